//! Prepared weights in files: made once, made again when anything about them is wrong, shared by threads.

use std::cell::Cell;
use std::convert::Infallible;
use std::path::Path;

use crate::tiny::{self, Lab, film};
use sensorium::models::{LowerOptions, lower, lower_cached};
use sensorium::tensor::{DType, HostTensor, Layout, TensorSpec};
use sensorium::weights::{OnnxModel, StoreError, StoredWeights, WeightCache, WeightCacheError, WeightFormat};

fn spec(dims: &[usize], dtype: DType) -> TensorSpec {
    TensorSpec::new(dims, dtype).unwrap()
}

/// Gets `[count]` floats from a cache, and says whether they had to be made.
fn get(cache: &WeightCache, key: &str, values: &[f32]) -> (Vec<f32>, bool) {
    let made = Cell::new(false);
    let tensor = cache.get(key, &spec(&[values.len()], DType::F32), || {
        made.set(true);
        HostTensor::from_slice(&[values.len()], values)
    });
    (tensor.unwrap().as_slice::<f32>().unwrap().to_vec(), made.get())
}

fn cache(root: &Path) -> WeightCache {
    WeightCache::at(root, "camera/net", "0123abcd", "0.1.prep1")
}

#[test]
fn a_tensor_is_made_once_for_each_source_version_and_key() {
    let root = tempfile::tempdir().unwrap();
    let first = cache(root.path());
    assert_eq!(get(&first, "/conv/0.weight", &[1.0, 2.0]), (vec![1.0, 2.0], true));
    assert_eq!(
        get(&first, "/conv/0.weight", &[9.0, 9.0]),
        (vec![1.0, 2.0], false)
    );
    assert_eq!((first.hits(), first.misses()), (1, 1));
    assert!(
        !get(&cache(root.path()), "/conv/0.weight", &[9.0, 9.0]).1,
        "another run"
    );
    assert!(get(&first, "/conv/1.weight", &[3.0, 4.0]).1, "another key");
    let others = [
        ("camera/other", "0123abcd", "0.1.prep1"),
        ("camera/net", "ff", "0.1.prep1"),
        ("camera/net", "0123abcd", "2"),
    ];
    for (namespace, digest, version) in others {
        let other = WeightCache::at(root.path(), namespace, digest, version);
        assert!(
            get(&other, "/conv/0.weight", &[5.0, 6.0]).1,
            "{namespace} {digest} {version}"
        );
    }
    first.clear().unwrap();
    assert!(get(&first, "/conv/0.weight", &[7.0, 8.0]).1);
    let kept = WeightCache::at(root.path(), "camera/other", "0123abcd", "0.1.prep1");
    assert!(
        !get(&kept, "/conv/0.weight", &[0.0, 0.0]).1,
        "other namespaces stay"
    );
    cache(&root.path().join("empty")).clear().unwrap();
}

#[test]
fn a_tensor_of_another_type_or_shape_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let cache = cache(root.path());
    get(&cache, "w", &[1.0, 2.0, 3.0, 4.0]);
    for (dims, dtype) in [
        (&[2, 2][..], DType::F32),
        (&[4][..], DType::I32),
        (&[8][..], DType::F16),
        (&[3][..], DType::F32),
    ] {
        let spec = spec(dims, dtype);
        let make = || Ok::<_, Infallible>(HostTensor::zeros(spec));
        assert_eq!(cache.get("w", &spec, make).unwrap().spec(), &spec);
        let again = cache.get("w", &spec, || -> Result<_, Infallible> { panic!("it is there") });
        assert_eq!(again.unwrap().bytes(), HostTensor::zeros(spec).bytes());
    }
    let asked = spec(&[2], DType::F32);
    let found = cache.get("x", &asked, || {
        Ok::<_, Infallible>(HostTensor::zeros(spec(&[3], DType::F32)))
    });
    assert!(matches!(found, Err(WeightCacheError::Spec { .. })));
    assert!(!cache.path("x").unwrap().exists());
    let tiled = spec(&[2, 2], DType::F32).with_layout(Layout::Tile).unwrap();
    let found = cache.get("x", &tiled, || Ok::<_, Infallible>(HostTensor::zeros(asked)));
    assert!(matches!(found, Err(WeightCacheError::Layout { .. })));
    let failed = cache.get("x", &asked, || Err("no weights"));
    assert!(matches!(failed, Err(WeightCacheError::Make("no weights"))));
}

#[test]
fn every_damage_to_a_file_is_noticed_and_mended() {
    let root = tempfile::tempdir().unwrap();
    let cache = cache(root.path());
    get(&cache, "w", &[1.0, 2.0]);
    let path = cache.path("w").unwrap();
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(get(&cache, "w", &[1.0, 2.0]), (vec![1.0, 2.0], true), "byte {at}");
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(get(&cache, "w", &[1.0, 2.0]).1, "cut at {at}");
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
    std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    assert!(get(&cache, "w", &[1.0, 2.0]).1);
    assert_eq!(
        std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "no temporary files"
    );
}

#[test]
fn a_cache_that_cannot_be_written_or_is_off_still_gives_tensors() {
    let off = WeightCache::off();
    assert!(!off.is_on() && off.path("w").is_none());
    assert!(get(&off, "w", &[1.0]).1 && get(&off, "w", &[1.0]).1);
    assert_eq!((off.hits(), off.misses()), (0, 2));
    off.clear().unwrap();
    // A file where the folder should be.
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let blocked = cache(&file);
    assert_eq!(get(&blocked, "w", &[1.0]), (vec![1.0], true));
    assert_eq!(get(&blocked, "w", &[1.0]), (vec![1.0], true));
}

#[test]
fn threads_share_a_cache() {
    let root = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..20).map(|k| format!("w{k}")).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // One for each thread, as for processes.
            scope.spawn(|| {
                let cache = cache(root.path());
                for (k, key) in keys.iter().enumerate() {
                    let expected = vec![k as f32; 1000];
                    assert_eq!(get(&cache, key, &expected).0, expected);
                }
                assert_eq!(cache.hits() + cache.misses(), 20);
            });
        }
    });
    let after = cache(root.path());
    for (k, key) in keys.iter().enumerate() {
        assert_eq!(get(&after, key, &vec![-1.0; 1000]), (vec![k as f32; 1000], false));
    }
}

/// Weights of 37 rows of 21: the last block of a row is not full.
fn rows() -> Vec<f32> {
    (0..37 * 21)
        .map(|i: i32| ((i * 7919 % 1009) - 500) as f32 / 64.0)
        .collect()
}

#[test]
fn weights_come_out_of_the_cache_as_they_were_stored() {
    let root = tempfile::tempdir().unwrap();
    let weights = rows();
    for format in WeightFormat::ALL {
        let packed = StoredWeights::pack(format, &weights, 21).unwrap();
        let bits = |stored: &StoredWeights| stored.widen().iter().map(|w| w.to_bits()).collect::<Vec<_>>();
        let kept = u64::from(format != WeightFormat::Fp32);
        for (run, expected) in [(0, [0, kept]), (1, [kept, 0])] {
            let cache = cache(root.path());
            let found = StoredWeights::pack_cached(format, &weights, 21, "conv", &cache).unwrap();
            assert_eq!([cache.hits(), cache.misses()], expected, "{format}, run {run}");
            assert_eq!(bits(&found), bits(&packed), "{format}");
            assert_eq!((found.format(), found.len()), (format, weights.len()));
            assert_eq!(found.stored_bytes(), packed.stored_bytes());
        }
    }
    // Other weights under the same name, or other rows of the same, are not taken for them.
    let mut other = weights.clone();
    other[5] += 1.0;
    let cache = cache(root.path());
    for (weights, row_len) in [(&other, 21), (&weights, 37)] {
        let found = StoredWeights::pack_cached(WeightFormat::Bfp8, weights, row_len, "conv", &cache).unwrap();
        let expected = StoredWeights::pack(WeightFormat::Bfp8, weights, row_len).unwrap();
        assert_eq!(found.widen(), expected.widen());
    }
    assert_eq!(cache.hits(), 0);
    for row_len in [0, 20] {
        let found = StoredWeights::pack_cached(WeightFormat::Bfp4, &weights, row_len, "conv", &cache);
        assert!(matches!(found, Err(StoreError::Rows { .. })));
    }
    other[0] = f32::NAN;
    let found = StoredWeights::pack_cached(WeightFormat::Bf16, &other, 21, "conv", &cache);
    assert!(matches!(found, Err(StoreError::NotFinite { index: 0, .. })));
}

/// A whole network lowered twice: the second time every convolution's weights come out of files, to the bit.
#[test]
fn a_network_is_lowered_from_the_cache_the_second_time() {
    let root = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/weights/yolox_sim.onnx");
    let model = OnnxModel::open(path).unwrap();
    let options = LowerOptions {
        weights: WeightFormat::Bfp8,
        ..LowerOptions::default()
    };
    let plain = format!("{:?}", lower(&model, &options).unwrap().weights);
    let lowered =
        |cache: &WeightCache| format!("{:?}", lower_cached(&model, &options, cache).unwrap().weights);
    let open = || WeightCache::at(root.path(), "camera", model.sha256(), "1");
    let (first, second) = (open(), open());
    assert_eq!(lowered(&first), plain);
    assert!(first.hits() == 0 && first.misses() > 50, "{}", first.misses());
    assert_eq!(lowered(&second), plain);
    assert_eq!((second.hits(), second.misses()), (first.misses(), 0));
}

#[test]
fn the_program_as_tests_start_it_keeps_nothing_in_the_home() {
    let lab = Lab::new();
    lab.bag(&film("/camera/image", 1, 1));
    let kept = |switch: Option<&str>| {
        let home = tempfile::tempdir().unwrap();
        let mut command = lab.command(&["--set", "models.squares.weight_format=bf16"]);
        command.env("HOME", home.path()).env_remove("SENSORIUM_CACHE");
        if let Some(switch) = switch {
            command.env("SENSORIUM_WEIGHT_CACHE", switch);
        }
        let outcome = tiny::outcome(&mut command);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        home.path().join(".cache/sensorium").exists()
    };
    assert!(!kept(None));
    assert!(
        kept(Some("1")),
        "a run keeps its weights where it is not told otherwise"
    );
}
