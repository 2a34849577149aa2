//! A driving simulator: a small town in motion, and the spinning LiDAR and the cameras of a car that drives through it.
//!
//! For demonstrations without a vehicle, for tests that need the truth, and for training data. One seed gives one
//! world, the same on every run and with any number of threads. Level ground, a main road that closes on itself, roads
//! that cross it with signals, traffic that keeps its distance, and scenery.

mod bodies;
mod camera;
mod drive;
mod lidar;
mod material;
mod path;
mod population;
mod pose;
mod random;
mod roads;
mod scenery;
mod scenes;
mod solid;
mod traffic;
mod world;

pub use camera::{CameraConfig, CameraImage, CameraRig, FrameError, FrameSet, FrameTotals, TrueBox};
pub use drive::{Drive, DriveConfig, DriveFrame, SCENE_CLASSES, Scene, TrueObject};
pub use lidar::LidarConfig;
pub use pose::Pose;
pub use scenes::{SceneError, SceneSet, SceneTotals};
pub use world::{World, WorldConfig};
