//! The outputs of the deployed model, put together on the host in fp32.

use std::collections::BTreeMap;

use ndarray::{Array2, ArrayView2, Axis, concatenate, s};

use super::HEAD;
use crate::models::BlockError;

/// Raw outputs of the head on the host.
#[derive(Debug, Clone, Copy)]
pub struct RawOutputs<'a> {
    /// By name, `[channels, K]`.
    pub heads: &'a BTreeMap<String, Array2<f32>>,
    /// The heat of each query's cell, `[>= K, >= classes]`.
    pub query_heat: ArrayView2<'a, f32>,
    /// Class-major positions `class * cells + cell` of the queries, at least `K`.
    pub indices: &'a [u32],
}

/// What the deployed TransFusion gives.
#[derive(Debug, Clone, PartialEq)]
pub struct TransFusionOutputs {
    /// `cls_score0`, `[classes, K]`: the query's heat times the sigmoid of the head `heatmap`.
    pub cls_score: Array2<f32>,
    /// `bbox_pred0`, `[8, K]`: centre (in cells), height, three sizes, two velocities.
    pub bbox_pred: Array2<f32>,
    /// `dir_cls_pred0`, `[2, K]`: sine and cosine of the heading.
    pub dir_cls_pred: Array2<f32>,
}

fn wrong(reason: impl Into<String>) -> BlockError {
    BlockError::weights(HEAD, reason)
}

/// Puts outputs together: centres are relative to the query's position, scores to its heat.
///
/// # Errors
/// [`BlockError::Weights`] for a head that is missing or has another size, too few rows, or an index outside the map.
pub fn assemble_transfusion(
    raw: &RawOutputs<'_>,
    bev_pos: ArrayView2<'_, f32>,
    [num_classes, num_proposals]: [usize; 2],
) -> Result<TransFusionOutputs, BlockError> {
    let cells = bev_pos.nrows();
    if cells == 0 || bev_pos.ncols() != 2 {
        return Err(wrong(format!(
            "bev_pos is [{cells}, {}], expected [cells, 2]",
            bev_pos.ncols()
        )));
    }
    let head = |name: &str, channels: usize| {
        let array = raw
            .heads
            .get(name)
            .ok_or_else(|| wrong(format!("there is no head {name:?}")))?;
        match array.dim() == (channels, num_proposals) {
            true => Ok(array.view()),
            false => Err(wrong(format!(
                "head {name:?} is {:?}, expected [{channels}, {num_proposals}]",
                array.shape()
            ))),
        }
    };
    let (rows, columns) = raw.query_heat.dim();
    if rows < num_proposals || columns < num_classes || raw.indices.len() < num_proposals {
        return Err(wrong(format!(
            "the query heat is [{rows}, {columns}] and there are {} indices, expected at least [{num_proposals}, \
             {num_classes}] and {num_proposals}",
            raw.indices.len()
        )));
    }
    let mut center = head("center", 2)?.to_owned();
    for (query, &index) in raw.indices[..num_proposals].iter().enumerate() {
        let index = index as usize;
        if index / cells >= num_classes {
            return Err(wrong(format!(
                "query {query} is position {index} of {num_classes} classes of {cells} cells"
            )));
        }
        let mut at = center.column_mut(query);
        at += &bev_pos.row(index % cells);
    }
    let heat = raw.query_heat.slice(s![..num_proposals, ..num_classes]);
    let sigmoid = head("heatmap", num_classes)?.mapv(|x| 1.0 / (1.0 + (-x).exp()));
    let parts = [
        center.view(),
        head("height", 1)?,
        head("dim", 3)?,
        head("vel", 2)?,
    ];
    Ok(TransFusionOutputs {
        cls_score: &heat.t() * &sigmoid,
        bbox_pred: concatenate(Axis(0), &parts).map_err(|error| wrong(error.to_string()))?,
        dir_cls_pred: head("rot", 2)?.to_owned(),
    })
}
