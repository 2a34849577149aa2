//! Bags, ROS messages and recordings: everything between files and the rest of the program.
//!
//! Reading and writing only; nothing here knows of actors or of the device.

pub mod bag;
pub mod cdr;
pub mod foxglove;
pub mod messages;
pub mod recorder;
pub mod sim;
pub mod zenoh;
