//! Bags: reading, damage, writing, playing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod bag_damage;
mod bag_topics;
mod bag_writer;
mod bags;
mod drive_bag;
mod drive_cameras;
mod player;
mod recordings;
