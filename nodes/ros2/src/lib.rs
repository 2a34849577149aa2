//! A Sensorium pipeline as a node of ROS 2, over whatever middleware ROS 2 runs on.
//!
//! - [`settings`]: what the node's ROS parameters say of the pipeline
//! - [`overlay`]: parameters of Autoware's nodes as a parameter file for a model
//! - [`qos`]: quality of service as rcl says it
//! - `node`: [`RosNode`](sensorium::io::ros::RosNode) over r2r; with the feature `ros2` only
//! - `declared`: the parameters as other nodes see them; with the feature `ros2` only
//!
//! Everything but the last two is plain and needs no ROS 2.

#[cfg(all(feature = "ros2", feature = "ros2-doc"))]
compile_error!("`ros2` builds the node and `ros2-doc` only checks it: choose one of the two features");

#[cfg(any(feature = "ros2", feature = "ros2-doc"))]
pub mod declared;
#[cfg(any(feature = "ros2", feature = "ros2-doc"))]
pub mod node;
pub mod overlay;
pub mod qos;
pub mod settings;
