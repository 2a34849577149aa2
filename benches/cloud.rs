//! A point-cloud message to columns and back: the sweep of a 32-laser LiDAR, 64,000 points.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sensorium::io::cloud::{ReadOptions, encode_cloud, read_cloud};
use sensorium::io::messages::{HeaderMsg, PointCloud2Msg, PointFieldMsg, field_type};
use sensorium::lidar::PointCloud;

const POINTS: u32 = 64_000;
const STAMP_NS: i64 = 1_714_506_077_250_967_979;

/// One field: name, offset, type.
type Layout = (&'static str, u32, &'static [(&'static str, u32, u8)]);

const LAYOUTS: [Layout; 3] = [
    (
        // Robosense and Hesai: a float64 time of day, unaligned.
        "xyzirt_26",
        26,
        &[
            ("x", 0, field_type::FLOAT32),
            ("y", 4, field_type::FLOAT32),
            ("z", 8, field_type::FLOAT32),
            ("intensity", 12, field_type::FLOAT32),
            ("ring", 16, field_type::UINT16),
            ("timestamp", 18, field_type::FLOAT64),
        ],
    ),
    (
        "xyzircaedt_32",
        32,
        &[
            ("x", 0, field_type::FLOAT32),
            ("y", 4, field_type::FLOAT32),
            ("z", 8, field_type::FLOAT32),
            ("intensity", 12, field_type::UINT8),
            ("return_type", 13, field_type::UINT8),
            ("channel", 14, field_type::UINT16),
            ("azimuth", 16, field_type::FLOAT32),
            ("elevation", 20, field_type::FLOAT32),
            ("distance", 24, field_type::FLOAT32),
            ("time_stamp", 28, field_type::UINT32),
        ],
    ),
    (
        "xyzi_16",
        16,
        &[
            ("x", 0, field_type::FLOAT32),
            ("y", 4, field_type::FLOAT32),
            ("z", 8, field_type::FLOAT32),
            ("intensity", 12, field_type::FLOAT32),
        ],
    ),
];

fn data(step: u32, fields: &[(&str, u32, u8)]) -> Vec<u8> {
    let mut data = vec![0; (POINTS * step) as usize];
    for (i, point) in data.chunks_exact_mut(step as usize).enumerate() {
        for &(name, offset, datatype) in fields {
            let at = offset as usize;
            match (name, datatype) {
                ("timestamp", _) => {
                    let seconds = STAMP_NS as f64 / 1e9 + i as f64 * 1e-6;
                    point[at..at + 8].copy_from_slice(&seconds.to_le_bytes());
                }
                (_, field_type::FLOAT32) => {
                    let value = (i * 7919 % 100_003) as f32 * 1e-3 - 50.0;
                    point[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
                (_, field_type::UINT32) => {
                    point[at..at + 4].copy_from_slice(&(i as u32 * 1000).to_le_bytes())
                }
                _ => point[at] = (i % 32) as u8,
            }
        }
    }
    data
}

fn cloud(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cloud_64000_points");
    group.throughput(Throughput::Elements(u64::from(POINTS)));
    for (name, step, layout) in LAYOUTS {
        let data = data(step, layout);
        let fields = layout.iter().map(|&(name, offset, datatype)| PointFieldMsg {
            name,
            offset,
            datatype,
            count: 1,
        });
        let message = PointCloud2Msg {
            header: HeaderMsg::new(STAMP_NS, "lidar").unwrap(),
            height: 1,
            width: POINTS,
            fields: fields.collect(),
            is_bigendian: false,
            point_step: step,
            row_step: POINTS * step,
            data: &data,
            is_dense: true,
        };
        let bytes = message.encode().unwrap();
        let mut columns = PointCloud::default();
        group.bench_function(format!("read/{name}"), |bencher| {
            bencher.iter(|| {
                let message = PointCloud2Msg::decode(black_box(&bytes)).unwrap();
                read_cloud(&message, ReadOptions::default(), &mut columns).unwrap()
            });
        });
        if name == "xyzircaedt_32" {
            columns
                .intensity
                .iter_mut()
                .for_each(|value| *value = value.abs());
            group.bench_function(format!("write/{name}"), |bencher| {
                bencher.iter(|| encode_cloud(black_box(&columns), message.header).unwrap());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, cloud);
criterion_main!(benches);
