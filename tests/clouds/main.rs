//! Point clouds: messages, files, sweeps, pillars, decoding and suppression.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod cloud_files;
mod clouds;
mod lidar_decode;
mod lidar_objects;
mod lidar_pillars;
mod lidar_suppression;
mod lidar_sweeps;
mod transforms;
