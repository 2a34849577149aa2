//! Where a vehicle is to go.

use std::sync::Arc;

use crate::tensor::HostTensor;

/// Poses one after another.
#[derive(Debug, Clone)]
pub struct Trajectory {
    poses: Vec<f32>,
    columns: Vec<String>,
    /// Which turn indicator to set, as the model numbers them.
    pub turn_indicator: Option<i64>,
    /// Where others are predicted to go, as the model has it: float32 of any shape.
    pub predicted_agents: Option<HostTensor>,
    /// Name of the model.
    pub model: Arc<str>,
    /// Coordinate frame of the poses.
    pub frame_id: Arc<str>,
}

impl Trajectory {
    /// Columns of a pose where nothing else is said: metres and radians.
    pub const COLUMNS: [&'static str; 3] = ["x", "y", "yaw"];

    /// A trajectory without turn indicator and others; `None` if `poses` are not whole rows of `columns`.
    #[must_use]
    pub fn new(poses: Vec<f32>, columns: Vec<String>, model: Arc<str>, frame_id: Arc<str>) -> Option<Self> {
        (!columns.is_empty() && poses.len().is_multiple_of(columns.len())).then_some(Self {
            poses,
            columns,
            turn_indicator: None,
            predicted_agents: None,
            model,
            frame_id,
        })
    }

    /// Names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The poses, a row each.
    pub fn poses(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.poses.chunks_exact(self.columns.len())
    }
}
