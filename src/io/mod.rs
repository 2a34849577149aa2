//! Bags, ROS messages and recordings: everything between files and the rest of the program.
//!
//! Reading and writing only; nothing here knows of actors or of the device.

pub mod bag;
pub mod cdr;
pub mod cloud;
pub mod cloud_file;
pub mod drive_bag;
pub mod forms;
pub mod foxglove;
pub mod foxglove_live;
pub mod interface;
pub mod messages;
pub mod player;
pub mod recorder;
pub mod ros;
pub mod sim;
pub mod tf;
pub mod zenoh;
