//! What a vehicle needs, and what cannot fit.

use sensorium::device::DeviceLayer;
use sensorium::pipeline::VehicleOverrides;
use sensorium::runtime::{Budget, Footprint};

use super::{set, shipped};

#[test]
fn what_cannot_fit_is_refused_with_what_to_change() {
    let findings = |changes: &[(&str, &str)]| {
        let budget = Budget::new(&shipped("sedan", &set(changes)), None);
        let fits = budget.fits();
        let lines = budget
            .findings
            .iter()
            .map(|it| format!("{}; {}", it.message, it.help));
        (fits, lines.collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(findings(&[]), (true, String::new()));
    // What is set, and what is found then.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 5] = [
        (
            &[("cameras.models.yolox.max_streams", "4")],
            &[
                "fed with 5 streams",
                "room for 4",
                "models.yolox.max_streams to 5",
            ],
        ),
        (
            &[
                ("pipelines.lidar.expected_ms", "{ detector: 60 }"),
                ("pipelines.cameras.expected_ms", "{ detector: 9 }"),
            ],
            &["busy for 105 % of the time"],
        ),
        (
            &[("limits.memory_gb_s", "0.2")],
            &["through memory", "limits.memory_gb_s"],
        ),
        (
            &[("limits.host_mib", "16")],
            &["MiB of host memory", "limits.host_mib"],
        ),
        (
            &[("sensors.camera0.rate_hz", "1000"), ("limits.memory_gb_s", "5")],
            &["GB/s through memory"],
        ),
    ];
    for (changes, told) in cases {
        let (fits, found) = findings(changes);
        assert!(!fits, "{changes:?}");
        for part in told {
            assert!(found.contains(part), "{changes:?}: {part:?} is not in {found}");
        }
    }
    // Nearly all of the device's time is worth a word, and so is a frame that is late before it begins.
    let (fits, found) = findings(&[
        ("pipelines.lidar.expected_ms", "{ detector: 50 }"),
        ("pipelines.cameras.expected_ms", "{ detector: 9 }"),
        ("lidar.nodes.pointcloud.deadline_ms", "40"),
    ]);
    assert!(
        fits && found.contains("95 %") && found.contains("deadline of 40 ms"),
        "{found}"
    );
}

/// By hand, from the numbers of the vehicle file.
#[test]
fn bytes_are_added_up_as_the_sensors_send_them() {
    let budget = Budget::new(&shipped("sedan", &VehicleOverrides::default()), None);
    let sent = 10.0 * (130_000.0 * 16.0) + 5.0 * 10.0 * (1_280.0 * 720.0 * 3.0);
    assert!((budget.sensor_bytes_per_s - sent).abs() < 1.0);
    assert!((budget.memory_bytes_per_s - 2.0 * sent).abs() < 1.0);
    // LiDAR: 1 in front of prepare, 2 and 2 around the device, 1 to the publisher; 2 workers; 2 on the device.
    // Cameras: 5, 4 and 2, 5; 3 workers; 2.
    let queued = (6 + 2 + 2) * 130_000 * 16 + (16 + 3 + 2) * 1_280 * 720 * 3;
    assert_eq!(budget.queue_bytes, queued);
    let seconds: Vec<f64> = budget.detectors.iter().map(|it| it.frames_per_s).collect();
    assert_eq!(seconds, [10.0, 50.0]);
}

#[test]
fn a_footprint_is_what_the_device_holds_and_says_how_much_is_enough() {
    let only_lidar = |mib: &str| {
        let mut overrides = set(&[("device.arena_mib", mib)]);
        overrides.sensors = vec!["lidar_roof".into()];
        shipped("sedan", &overrides)
    };
    let vehicle = only_lidar("16");
    let footprint = Footprint::measure(&vehicle.pipeline, &DeviceLayer::default()).unwrap();
    assert_eq!(footprint.arena_bytes, 16 << 20);
    assert!(footprint.enough_bytes > footprint.arena_bytes);
    assert!(footprint.used_bytes <= footprint.enough_bytes);
    let [model] = footprint.models.as_slice() else {
        panic!("{footprint:?}")
    };
    assert!(model.device_bytes <= footprint.used_bytes && model.input_bytes > 0 && model.output_bytes > 0);
    // As a run makes them: 2 places, a worker and 2 flights before the device, 2 places and one more behind it.
    let slot_bytes = (5 * model.input_bytes + 3 * model.output_bytes) as u64;
    let enough = (footprint.enough_bytes >> 20).to_string();
    let budget = Budget::new(&vehicle, Some(footprint));
    assert_eq!(budget.slot_bytes, Some(slot_bytes));
    assert!(!budget.fits());
    assert!(
        budget.findings[0]
            .help
            .contains(&format!("arena_mib: {enough} is enough"))
    );
    // What it says is true: with so much, the same is held, and it fits.
    let vehicle = only_lidar(&enough);
    let again = Footprint::measure(&vehicle.pipeline, &DeviceLayer::default()).unwrap();
    assert_eq!(again.enough_bytes, again.arena_bytes);
    assert!(Budget::new(&vehicle, Some(again)).fits());
}
