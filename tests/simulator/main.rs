//! The driving simulator: what its LiDAR and its cameras see, who drives in its world, and the
//! training data that it writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cameras;
mod geometry;
mod scenes;
mod sensor;
mod traffic;
