//! Tensors on the host and their way to a device.

mod casts;
mod device_types;
mod layouts;
mod staging;

use std::time::Duration;

use sensorium::device::{CpuConfig, CpuDevice};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, Element, TensorSpec};

fn open(queues: u8) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        queues,
        threads: 2,
        arena_bytes: 8 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

fn spec(dims: &[usize], dtype: DType) -> TensorSpec {
    TensorSpec::new(dims, dtype).unwrap()
}

fn read<T: Element>(ops: &mut OpContext<'_>, tensor: &DeviceTensor) -> Vec<T> {
    let host = ops.download(tensor, Duration::from_secs(10)).unwrap();
    assert_eq!(host.shape(), &tensor.view.shape);
    host.as_slice::<T>().unwrap().to_vec()
}
