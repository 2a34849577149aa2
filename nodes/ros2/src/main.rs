//! Runs a pipeline as a node of ROS 2; README.md beside the package says how.

#[cfg(any(feature = "ros2", feature = "ros2-doc"))]
mod run;

use std::process::ExitCode;

#[cfg(any(feature = "ros2", feature = "ros2-doc"))]
fn main() -> ExitCode {
    run::main()
}

#[cfg(not(any(feature = "ros2", feature = "ros2-doc")))]
fn main() -> ExitCode {
    eprintln!(
        "This program was built without ROS 2. Source ROS 2 and build it again:\n\n    \
         source /opt/ros/jazzy/setup.bash\n    \
         cargo build --release -p sensorium_ros2 --features ros2\n\n\
         Without ROS 2's libraries, `sensorium run` takes part in the graph by itself."
    );
    ExitCode::FAILURE
}
