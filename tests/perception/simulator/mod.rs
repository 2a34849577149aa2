//! The driving simulator: what its LiDAR and its cameras see, who drives in its world, and the
//! training data that it writes.

mod cameras;
mod geometry;
mod scenes;
mod sensor;
mod traffic;
