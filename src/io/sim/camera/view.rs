//! Where things lie in a camera: positions, directions, projection.

use super::super::pose::Pose;
use super::config::CameraConfig;

/// Nothing nearer than this is seen, in metres along the optical axis.
pub(super) const NEAR_M: f32 = 0.2;

pub(super) type Vec3 = [f32; 3];

pub(super) fn dot(a: Vec3, b: Vec3) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// A camera at a place of the map.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// The camera's place in the map.
    pub(super) eye: [f64; 3],
    /// Directions of the camera's x (right), y (down) and z (forward) axes in the map.
    pub(super) axes: [[f64; 3]; 3],
    pub(super) focal_px: [f32; 2],
    pub(super) centre_px: [f32; 2],
    pub(super) width: usize,
    pub(super) height: usize,
}

impl View {
    pub(super) fn new(config: &CameraConfig, world_from_base: &Pose) -> Self {
        let (sin, cos) = (world_from_base.yaw_rad + config.yaw_rad).sin_cos();
        let (dip, level) = config.pitch_rad.sin_cos();
        let forward = [cos * level, sin * level, -dip];
        let right = [sin, -cos, 0.0];
        let down = [-cos * dip, -sin * dip, -level];
        Self {
            eye: world_from_base.apply(config.position_m),
            axes: [right, down, forward],
            focal_px: config.focal_px.map(|px| px as f32),
            centre_px: config.centre_px.map(|px| px as f32),
            width: config.width_px as usize,
            height: config.height_px as usize,
        }
    }

    /// A body's frame as the camera sees it.
    pub(super) fn frame(&self, pose: &Pose) -> Frame {
        let (sin, cos) = pose.yaw_rad.sin_cos();
        let away = [
            pose.x_m - self.eye[0],
            pose.y_m - self.eye[1],
            pose.z_m - self.eye[2],
        ];
        let mut frame = Frame::default();
        for (row, axis) in self.axes.iter().enumerate() {
            frame.rows[row] = [
                (axis[0] * cos + axis[1] * sin) as f32,
                (axis[1] * cos - axis[0] * sin) as f32,
                axis[2] as f32,
            ];
            frame.origin[row] = (axis[0] * away[0] + axis[1] * away[1] + axis[2] * away[2]) as f32;
        }
        frame.eye = [
            -(cos * away[0] + sin * away[1]) as f32,
            -(cos * away[1] - sin * away[0]) as f32,
            -away[2] as f32,
        ];
        frame
    }

    /// Direction of a pixel in the camera, with 1 along the optical axis.
    pub(super) fn ray(&self, u: f32, v: f32) -> Vec3 {
        [
            (u - self.centre_px[0]) / self.focal_px[0],
            (v - self.centre_px[1]) / self.focal_px[1],
            1.0,
        ]
    }

    /// Pixel of a point in front of the camera.
    pub(super) fn pixel(&self, [x, y, z]: Vec3) -> [f32; 2] {
        [
            self.centre_px[0] + self.focal_px[0] * x / z,
            self.centre_px[1] + self.focal_px[1] * y / z,
        ]
    }

    /// Whether a ball may be seen.
    pub(super) fn may_see(&self, [x, y, z]: Vec3, radius: f32) -> bool {
        if z < -radius {
            return false;
        }
        let inside = |place: f32, focal: f32, low: f32, high: f32| {
            // The edges of the image as slopes, and how far a ball reaches over each.
            let (low, high) = (low / focal, high / focal);
            place > low * z - radius * (1.0 + low * low).sqrt()
                && place < high * z + radius * (1.0 + high * high).sqrt()
        };
        let [cx, cy] = self.centre_px;
        inside(x, self.focal_px[0], -cx - 0.5, self.width as f32 - cx)
            && inside(y, self.focal_px[1], -cy - 0.5, self.height as f32 - cy)
    }
}

/// A body's frame in a camera.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    /// Takes directions of the body to those of the camera.
    rows: [Vec3; 3],
    /// The body's origin in the camera.
    origin: Vec3,
    /// The camera's place in the body's frame.
    pub(super) eye: Vec3,
}

impl Frame {
    pub(super) fn direction(&self, d: Vec3) -> Vec3 {
        self.rows.map(|row| dot(row, d))
    }

    pub(super) fn point(&self, p: Vec3) -> Vec3 {
        let [x, y, z] = self.direction(p);
        [x + self.origin[0], y + self.origin[1], z + self.origin[2]]
    }

    /// A direction of the camera in the body's frame.
    pub(super) fn direction_back(&self, d: Vec3) -> Vec3 {
        let [a, b, c] = self.rows;
        [0, 1, 2].map(|i| a[i] * d[0] + b[i] * d[1] + c[i] * d[2])
    }

    /// Where a ray of the camera is at a depth, in the body's frame.
    pub(super) fn at_depth(&self, ray: Vec3, depth: f32) -> Vec3 {
        let d = self.direction_back(ray);
        [0, 1, 2].map(|i| self.eye[i] + d[i] * depth)
    }
}
