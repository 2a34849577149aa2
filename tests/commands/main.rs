//! Each command, from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/ros.rs"]
mod ros;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;
#[path = "../support/unknown.rs"]
mod unknown;

mod bag_command;
mod bag_play_command;
mod bench_command;
mod cloud_command;
mod command_pages;
mod compare_command;
mod demo_command;
mod device_command;
mod dtype_command;
mod eval_command;
mod image_command;
mod model_bench_command;
mod model_command;
mod run_command;
