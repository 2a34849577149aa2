//! Tensor descriptors, alone, wrapped and in a stream: no bytes panic, and what parses comes back byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::numeric::{ArgTensor, MAX_ARGUMENTS, ScalarType, UTensor, parse_arguments};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensor) = ArgTensor::parse(bytes) {
        assert_eq!(tensor.to_bytes(), bytes);
        materialise(&tensor);
    }
    if let Ok(object) = UTensor::parse(bytes) {
        assert_eq!(object.to_bytes(), bytes);
        assert_eq!(object.dtype_code(), bytes[10]);
        let _ = object.bind(ScalarType::Float);
        for length in [1, 2, 4, 8] {
            let _ = object.scalar(&bytes[..length]);
        }
        materialise(&object.tensor);
    }
    if let Ok(arguments) = parse_arguments(bytes) {
        assert!(arguments.len() <= MAX_ARGUMENTS);
        assert!(
            arguments
                .iter()
                .flat_map(ArgTensor::to_bytes)
                .eq(bytes.iter().copied())
        );
    }
});

fn materialise(tensor: &ArgTensor) {
    for rank in 0..10 {
        if let Ok(view) = tensor.materialise(rank) {
            assert_eq!(view.sizes.len(), rank);
            assert!(view.address.checked_add(view.bytes).is_some());
        }
    }
}
