//! Work of blocks and operations on every device: captured, replayed and eager, all with the same bits.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;

use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, HostTensor};

use crate::graphs::Random;
pub use crate::traced::{Work, cpu, numbers, stored};
use crate::traced::{correlation, distance, replayed};

pub fn unit(r: &mut Random) -> f32 {
    (r.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// fp32 within 1e-5 of the largest value, bf16 by correlation.
pub fn assert_close<'a>(
    what: &str,
    dtype: DType,
    found: impl IntoIterator<Item = &'a f64>,
    exact: impl IntoIterator<Item = &'a f64>,
) {
    let (a, b): (Vec<f64>, Vec<f64>) = (
        found.into_iter().copied().collect(),
        exact.into_iter().copied().collect(),
    );
    assert_eq!(a.len(), b.len(), "{what}");
    assert!(a.iter().all(|v| v.is_finite()), "{what}");
    let top = b.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
    let (worst, correlation) = (distance(&a, &b), correlation(&a, &b));
    println!(
        "{what}, {dtype}: off by {:.2e} of {top:.3}, correlation {correlation:.7}",
        worst
    );
    match dtype {
        DType::F32 => assert!(worst <= 1e-5 * top.max(1.0), "{what}: off by {worst} of {top}"),
        _ => assert!(correlation >= 0.999, "{what}: {correlation}"),
    }
}

/// Captures work and replays it on every device; the outputs come back.
pub fn everywhere(inputs: &[(&str, HostTensor)], work: impl Fn() -> Arc<Work>) -> Vec<HostTensor> {
    replayed(inputs, true, work)
}

/// A feature map as it is stored, `[N, H, W, C]`.
pub fn as_rows(map: &DeviceTensor) -> DeviceTensor {
    DeviceTensor {
        view: map.view.transpose(&[0, 2, 3, 1]).unwrap(),
        ..*map
    }
}
