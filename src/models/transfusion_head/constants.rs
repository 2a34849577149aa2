//! Tables and rows that the head keeps on the device.

use std::sync::PoisonError;

use ndarray::Array2;

use super::{HEAD, TransFusionQueryHead, device, keep};
use crate::device::BufferClass;
use crate::models::BlockError;
use crate::models::layers::free;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, HostTensor};

/// Tables and rows on the device, in one element type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub(super) dtype: DType,
    pub(super) class_table: DeviceTensor,
    pub(super) query_pos: DeviceTensor,
    pub(super) key_pos: DeviceTensor,
    /// Factors and summands, fp32.
    pub(super) norms: [[DeviceTensor; 2]; 3],
}

impl Constants {
    /// Everything that is to be freed.
    pub(super) fn all(&self) -> Vec<DeviceTensor> {
        let mut all = vec![self.class_table, self.query_pos, self.key_pos];
        all.extend(self.norms.iter().flatten());
        all
    }
}

impl TransFusionQueryHead {
    /// Tables and rows for maps of this type, brought to the device by the first call.
    pub(super) fn constants(&self, ops: &mut OpContext<'_>, dtype: DType) -> Result<Constants, BlockError> {
        let mut known = self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(constants) = known.iter().find(|constants| constants.dtype == dtype) {
            return Ok(*constants);
        }
        if !matches!(dtype, DType::F32 | DType::Bf16) {
            return Err(BlockError::DType {
                block: HEAD.into(),
                tensor: "the features".into(),
                found: dtype,
                expected: DType::F32,
            });
        }
        let weights = &self.weights;
        let mut made = Vec::new();
        let outcome = (|| {
            let mut table = |table: &Array2<f32>, dtype: DType| {
                let values: Vec<f32> = table.iter().copied().collect();
                keep(
                    &mut made,
                    upload(ops, &[table.nrows(), table.ncols()], &values, dtype),
                )
            };
            let class_table = table(&weights.class_table, dtype)?;
            let query_pos = table(&weights.query_pos_table(), dtype)?;
            let key_pos = table(&weights.key_pos_table(), dtype)?;
            let mut norms = [[class_table; 2]; 3];
            for (norm, rows) in weights.norms.iter().zip(&mut norms) {
                for (values, row) in [&norm.gamma, &norm.beta].into_iter().zip(rows) {
                    *row = keep(
                        &mut made,
                        upload(ops, &[values.len()], &values.to_vec(), DType::F32),
                    )?;
                }
            }
            Ok(Constants {
                dtype,
                class_table,
                query_pos,
                key_pos,
                norms,
            })
        })();
        match &outcome {
            Ok(constants) => known.push(*constants),
            Err(_) => free(ops, &made),
        }
        outcome
    }
}

/// A constant on the device, rounded to its type once.
fn upload(
    ops: &mut OpContext<'_>,
    dims: &[usize],
    values: &[f32],
    dtype: DType,
) -> Result<DeviceTensor, BlockError> {
    let tensor = match dtype {
        DType::F32 => HostTensor::from_slice(dims, values),
        _ => {
            let rounded: Vec<half::bf16> = values.iter().map(|&x| half::bf16::from_f32(x)).collect();
            HostTensor::from_slice(dims, &rounded)
        }
    };
    let tensor = tensor.map_err(BlockError::tensor(HEAD))?;
    ops.upload(&tensor, BufferClass::Weight).map_err(device)
}
