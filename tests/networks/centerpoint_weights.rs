//! The CenterPoint weights that come with the repository: what the file holds and says of itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sensorium::weights::Safetensors;
use serde::de::DeserializeOwned;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pipelines/weights/centerpoint_sim.safetensors")
}

fn weights() -> Safetensors {
    Safetensors::open(path()).unwrap()
}

/// A value of the metadata, which is JSON.
fn said<T: DeserializeOwned>(weights: &Safetensors, key: &str) -> T {
    let text = weights.metadata().get(key).unwrap_or_else(|| panic!("no {key}"));
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{key} is {text}: {error}"))
}

/// A convolution layer of the network: its name and the shape of its weight.
fn conv(name: &str, shape: [usize; 4]) -> (String, Vec<usize>) {
    (name.to_owned(), shape.to_vec())
}

#[test]
fn the_shipped_weights_have_every_layer_in_its_shape_and_no_other() {
    let mut layers = vec![
        ("pfn.0".to_owned(), vec![16, 9]),
        ("pfn.1".to_owned(), vec![32, 32]),
        conv("neck.0", [32, 32, 1, 1]),
        // Transposed convolutions have their inputs first.
        conv("neck.1", [48, 32, 2, 2]),
        conv("neck.2", [64, 32, 4, 4]),
        conv("head.shared", [32, 96, 3, 3]),
    ];
    let mut inputs = 32;
    for (block, (channels, count)) in [(32, 2), (48, 3), (64, 3)].into_iter().enumerate() {
        for layer in 0..count {
            layers.push(conv(
                &format!("backbone.{block}.{layer}"),
                [channels, inputs, 3, 3],
            ));
            inputs = channels;
        }
    }
    for (head, channels) in [
        ("heatmap", 5),
        ("reg", 2),
        ("height", 1),
        ("dim", 3),
        ("rot", 2),
        ("vel", 2),
    ] {
        layers.push(conv(&format!("head.{head}.hidden"), [32, 32, 1, 1]));
        layers.push(conv(&format!("head.{head}.out"), [channels, 32, 1, 1]));
    }
    let mut expected = BTreeMap::new();
    for (name, shape) in layers {
        let transposed = matches!(name.as_str(), "neck.1" | "neck.2");
        let outputs = if transposed { shape[1] } else { shape[0] };
        expected.insert(format!("{name}.bias"), ("F32", vec![outputs]));
        expected.insert(format!("{name}.weight"), ("BF16", shape));
    }

    let weights = weights();
    let stored: BTreeMap<_, _> = weights
        .entries()
        .iter()
        .map(|(name, entry)| (name.clone(), (entry.stored_type, entry.shape.to_vec())))
        .collect();
    assert_eq!(stored, expected);
    for (name, array) in weights.arrays().unwrap() {
        let values = array.to_f32().unwrap();
        assert!(values.iter().all(|value| value.is_finite()), "{name}");
    }
}

#[test]
fn the_shipped_weights_say_how_they_are_to_be_run() {
    let weights = weights();
    assert_eq!(weights.metadata()["model"], "centerpoint");
    assert_eq!(said::<u32>(&weights, "format_version"), 1);
    assert_eq!(
        said::<Vec<String>>(&weights, "class_names"),
        ["CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN"]
    );
    assert_eq!(
        said::<Vec<f64>>(&weights, "point_cloud_range"),
        [-51.2, -51.2, -3.0, 51.2, 51.2, 5.0]
    );
    assert_eq!(said::<Vec<f64>>(&weights, "voxel_size"), [0.32, 0.32, 8.0]);
    assert_eq!(said::<u32>(&weights, "max_points_per_pillar"), 32);
    assert_eq!(said::<u32>(&weights, "encoder_in_feature_size"), 9);
    assert_eq!(said::<u32>(&weights, "num_past_frames"), 1);
    assert_eq!(said::<u32>(&weights, "downsample_factor"), 2);
    assert_eq!(said::<Vec<u32>>(&weights, "backbone_strides"), [2, 2, 2]);
    assert_eq!(said::<Vec<u32>>(&weights, "backbone_layers"), [2, 3, 3]);
    assert_eq!(said::<Vec<u32>>(&weights, "neck_strides"), [1, 2, 4]);
    let thresholds = said::<Vec<f32>>(&weights, "score_thresholds");
    assert_eq!(thresholds.len(), 5);
    assert!(
        thresholds.iter().all(|t| (0.1..0.8).contains(t)),
        "{thresholds:?}"
    );
}

#[test]
fn the_shipped_weights_reach_their_goals_and_are_small() {
    let weights = weights();
    let precision = said::<BTreeMap<String, f64>>(&weights, "average_precision_1m");
    for (class, goal) in [
        ("CAR", 0.93),
        ("TRUCK", 0.8),
        ("BUS", 0.6),
        ("BICYCLE", 0.75),
        ("PEDESTRIAN", 0.88),
    ] {
        assert!(precision[class] >= goal, "{class}: {}", precision[class]);
    }
    assert!(said::<f64>(&weights, "car_heading_median_rad") <= 0.17);
    assert!(said::<f64>(&weights, "car_flipped") <= 0.07);
    let moving = said::<f64>(&weights, "car_speed_error_moving_median_mps");
    assert_eq!(said::<bool>(&weights, "has_twist"), moving < 1.0, "{moving}");
    assert!(std::fs::metadata(path()).unwrap().len() < 4_000_000);
}
