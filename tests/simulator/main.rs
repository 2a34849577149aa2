//! The driving simulator: what its LiDAR sees, who drives in its world, and the scenes that it writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod geometry;
mod scenes;
mod sensor;
mod traffic;
