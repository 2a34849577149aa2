//! A point cloud as columns.

/// One sweep of a LiDAR, one vector a property. All vectors have one length, or are empty where the sensor does not
/// say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PointCloud {
    /// Metres, in the sensor's frame: forward.
    pub x: Vec<f32>,
    /// Metres: left.
    pub y: Vec<f32>,
    /// Metres: up.
    pub z: Vec<f32>,
    /// Strength of the return, in the sensor's own unit (0 to 255 for Autoware's layouts).
    pub intensity: Vec<f32>,
    /// Number of the laser, lowest first.
    pub ring: Vec<u16>,
    /// Nanoseconds after the cloud's stamp (negative before it).
    pub time_ns: Vec<i64>,
    /// Kind of return, as the sensor's driver numbers them.
    pub return_type: Vec<u8>,
}

/// Borrowed coordinates of a cloud, and what a network takes beside them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Columns<'a> {
    /// Metres.
    pub x: &'a [f32],
    /// Metres.
    pub y: &'a [f32],
    /// Metres.
    pub z: &'a [f32],
    /// Strength of the return; empty where the sensor does not say.
    pub intensity: &'a [f32],
}

impl PointCloud {
    /// Number of points.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.x.len()
    }

    /// Whether there is no point.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// Removes every point and keeps the memory.
    pub fn clear(&mut self) {
        self.x.clear();
        self.y.clear();
        self.z.clear();
        self.intensity.clear();
        self.ring.clear();
        self.time_ns.clear();
        self.return_type.clear();
    }

    /// The coordinates and intensities.
    #[must_use]
    pub fn columns(&self) -> Columns<'_> {
        Columns {
            x: &self.x,
            y: &self.y,
            z: &self.z,
            intensity: &self.intensity,
        }
    }
}
