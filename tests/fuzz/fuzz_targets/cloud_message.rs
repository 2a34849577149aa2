//! PointCloud2 to columns: no message panics, and points are those of the message less the ones that are nowhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::io::cloud::{ReadOptions, encode_cloud, read_cloud};
use sensorium_fuzz::io::messages::PointCloud2Msg;
use sensorium_fuzz::lidar::PointCloud;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = PointCloud2Msg::decode(bytes) else {
        return;
    };
    let mut cloud = PointCloud::default();
    for keep_non_finite in [true, false] {
        let options = ReadOptions {
            keep_non_finite,
            ..ReadOptions::default()
        };
        let Ok(summary) = read_cloud(&message, options, &mut cloud) else {
            assert!(cloud.is_empty());
            continue;
        };
        let dropped = if keep_non_finite { 0 } else { summary.non_finite };
        assert_eq!(cloud.len() + dropped, summary.points);
        let _ = encode_cloud(&cloud, message.header);
    }
});
