//! A camera and how it is mounted.

/// A pinhole camera on the ego car, without distortion.
///
/// Pixel coordinates are those of `sensor_msgs/CameraInfo`: the middle of the top left pixel is (0, 0).
#[derive(Debug, Clone, PartialEq)]
pub struct CameraConfig {
    /// Its name, part of its topics and of its frame.
    pub name: String,
    /// Columns of the image.
    pub width_px: u32,
    /// Rows of the image.
    pub height_px: u32,
    /// Focal lengths fx and fy.
    pub focal_px: [f64; 2],
    /// Principal point cx and cy.
    pub centre_px: [f64; 2],
    /// Place in `base_link` in metres.
    pub position_m: [f64; 3],
    /// Heading in `base_link`, counter-clockwise from ahead.
    pub yaw_rad: f64,
    /// How far it looks down, about its own axis to the left.
    pub pitch_rad: f64,
}

impl CameraConfig {
    /// A camera of 640 x 400 pixels that sees 90 degrees across.
    #[must_use]
    pub fn new(name: &str, position_m: [f64; 3], yaw_deg: f64) -> Self {
        Self {
            name: name.to_owned(),
            width_px: 640,
            height_px: 400,
            focal_px: [320.0, 320.0],
            centre_px: [319.5, 199.5],
            position_m,
            yaw_rad: yaw_deg.to_radians(),
            pitch_rad: 0.0,
        }
    }

    /// The camera that looks ahead.
    #[must_use]
    pub fn front() -> Self {
        Self::new("front", [2.0, 0.0, 1.6], 0.0)
    }

    /// Three cameras that see 200 degrees together: `front`, `front_left` and `front_right`.
    #[must_use]
    pub fn three() -> Vec<Self> {
        vec![
            Self::front(),
            Self::new("front_left", [1.8, 0.6, 1.6], 55.0),
            Self::new("front_right", [1.8, -0.6, 1.6], -55.0),
        ]
    }

    /// Coordinate frame of the image: x to the right, y down, z forwards.
    #[must_use]
    pub fn frame_id(&self) -> String {
        format!("camera_{}_optical", self.name)
    }

    /// Rotation from the optical frame to `base_link`, as a quaternion x, y, z, w.
    #[must_use]
    pub fn base_from_optical_xyzw(&self) -> [f64; 4] {
        // Heading, then pitch, then the turn from x forward and z up to z forward and y down.
        let (yaw_sin, yaw_cos) = (self.yaw_rad / 2.0).sin_cos();
        let (pitch_sin, pitch_cos) = (self.pitch_rad / 2.0).sin_cos();
        let heading = [0.0, 0.0, yaw_sin, yaw_cos];
        let pitch = [0.0, pitch_sin, 0.0, pitch_cos];
        times(times(heading, pitch), [-0.5, 0.5, -0.5, 0.5])
    }
}

/// Which cameras the ego car has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CameraRig {
    /// None.
    #[default]
    None,
    /// The one that looks ahead.
    Front,
    /// Those of [`CameraConfig::three`].
    Three,
}

impl CameraRig {
    /// All rigs.
    pub const ALL: [Self; 3] = [Self::None, Self::Front, Self::Three];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Front => "front",
            Self::Three => "three",
        }
    }

    /// Its cameras.
    #[must_use]
    pub fn cameras(self) -> Vec<CameraConfig> {
        match self {
            Self::None => Vec::new(),
            Self::Front => vec![CameraConfig::front()],
            Self::Three => CameraConfig::three(),
        }
    }
}

/// Product of two rotations: the second, then the first.
fn times([ax, ay, az, aw]: [f64; 4], [bx, by, bz, bw]: [f64; 4]) -> [f64; 4] {
    [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
}
