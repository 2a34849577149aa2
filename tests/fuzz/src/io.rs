//! All of the room but what talks to other processes, records, or simulates.

#[path = "../../../src/io/bag/mod.rs"]
pub mod bag;
#[path = "../../../src/io/cdr.rs"]
pub mod cdr;
#[path = "../../../src/io/cloud/mod.rs"]
pub mod cloud;
#[path = "../../../src/io/cloud_file/mod.rs"]
pub mod cloud_file;
#[path = "../../../src/io/foxglove.rs"]
pub mod foxglove;
#[path = "../../../src/io/interface/mod.rs"]
pub mod interface;
#[path = "../../../src/io/messages/mod.rs"]
pub mod messages;
#[path = "../../../src/io/recorder.rs"]
pub mod recorder;
#[path = "ros.rs"]
pub mod ros;
