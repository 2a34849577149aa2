//! Files of clouds in every format (the first byte picks it): no bytes panic, and columns have one length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::io::cloud::ReadOptions;
use sensorium_fuzz::io::cloud_file::{CloudFileOptions, CloudFormat, CloudWriteOptions, encode, parse};

const FORMATS: [CloudFormat; 5] = [
    CloudFormat::Pcd,
    CloudFormat::Bin,
    CloudFormat::Npy,
    CloudFormat::Npz,
    CloudFormat::Cdr,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((pick, bytes)) = bytes.split_first() else {
        return;
    };
    let format = FORMATS[usize::from(*pick) % FORMATS.len()];
    let options = CloudFileOptions {
        read: ReadOptions {
            keep_non_finite: true,
            ..ReadOptions::default()
        },
        layout: None,
        max_unpacked_bytes: 64 << 20,
    };
    if let Ok(file) = parse(bytes, format, &options) {
        assert_eq!(file.cloud.len(), file.summary.points);
        // Writing checks that the columns are of one length.
        encode(&file.cloud, CloudFormat::Pcd, CloudWriteOptions::default()).unwrap();
    }
});
