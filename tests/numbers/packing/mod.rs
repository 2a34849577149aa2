//! Packing of outputs: the rules, and the way through a device.

mod outputs;
mod rules;

use sensorium::tensor::{DType, PackError, PackLayout, PackOptions, Shape};

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

fn rows_of(row_elems: usize) -> PackOptions {
    PackOptions {
        row_elems: Some(row_elems),
        ..PackOptions::default()
    }
}

fn plan(tensors: &[(&str, &[usize])], options: &PackOptions) -> Result<PackLayout, PackError> {
    let specs: Vec<_> = tensors
        .iter()
        .map(|&(name, dims)| (name, shape(dims), DType::F32))
        .collect();
    PackLayout::plan(&specs, options)
}
