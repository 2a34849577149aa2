//! ROS 2: messages, transports, parameters and launch files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/ros.rs"]
mod ros;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod autoware_params;
#[cfg(feature = "dds")]
mod dds;
mod launch_files;
mod launch_times;
mod ros_messages;
mod ros_zenoh;
mod run_ros2;
