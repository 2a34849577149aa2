//! Names of topics and types as they are on DDS.

use crate::io::ros::RosError;

/// What ROS 2 puts before the topics of messages.
const TOPIC_PREFIX: &str = "rt";

/// `/points` is `rt/points`; the name must be fully qualified.
pub(super) fn topic(name: &str) -> Result<String, RosError> {
    let path = name.strip_prefix('/').unwrap_or_default();
    if path.split('/').all(is_word) {
        Ok(format!("{TOPIC_PREFIX}{name}"))
    } else {
        Err(refused(
            "topic",
            name,
            "it must be words after slashes, made of letters, digits and underscores",
        ))
    }
}

/// `sensor_msgs/msg/PointCloud2` is `sensor_msgs::msg::dds_::PointCloud2_`.
pub(super) fn message_type(name: &str) -> Result<String, RosError> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [package, "msg", message] if is_word(package) && is_word(message) => {
            Ok(format!("{package}::msg::dds_::{message}_"))
        }
        _ => Err(refused("message type", name, "write it as package/msg/Name")),
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn refused(what: &'static str, name: &str, reason: &str) -> RosError {
    RosError::Name {
        what,
        name: name.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_marks_that_ros_puts_on_them() {
        assert_eq!(topic("/sensing/lidar/points").unwrap(), "rt/sensing/lidar/points");
        assert_eq!(
            message_type("sensor_msgs/msg/PointCloud2").unwrap(),
            "sensor_msgs::msg::dds_::PointCloud2_"
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            "", "points", "/", "/points/", "//points", "/2d", "/po ints", "/é", "/~",
        ] {
            assert!(matches!(topic(wrong), Err(RosError::Name { .. })), "{wrong:?}");
        }
        for wrong in [
            "",
            "PointCloud2",
            "sensor_msgs/PointCloud2",
            "a/srv/B",
            "a/msg/",
            "a/msg/B/c",
            "a/msg/B::C",
        ] {
            assert!(
                matches!(message_type(wrong), Err(RosError::Name { .. })),
                "{wrong:?}"
            );
        }
    }
}
