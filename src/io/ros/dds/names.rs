//! Names of ROS 2 as they are on DDS.

use crate::io::ros::RosError;

/// What ROS 2 puts before the topics of messages.
const TOPIC_PREFIX: &str = "rt";

/// A node's name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeName {
    /// `/` or `/perception`.
    pub(super) namespace: String,
    /// `lidar_centerpoint`.
    pub(super) base: String,
}

/// Takes a fully qualified name of a node apart.
pub(super) fn node(name: &str) -> Result<NodeName, RosError> {
    check("node", name)?;
    // `check` lets nothing pass that has no slash at its start.
    let (namespace, base) = name.rsplit_once('/').unwrap_or(("", name));
    Ok(NodeName {
        namespace: if namespace.is_empty() { "/" } else { namespace }.to_owned(),
        base: base.to_owned(),
    })
}

/// `/points` is `rt/points`.
pub(super) fn topic(name: &str) -> Result<String, RosError> {
    check("topic", name)?;
    Ok(format!("{TOPIC_PREFIX}{name}"))
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

/// A fully qualified name: words after slashes.
fn check(what: &'static str, name: &str) -> Result<(), RosError> {
    let Some(words) = name.strip_prefix('/') else {
        return Err(refused(what, name, "it does not start with a slash"));
    };
    match words.split('/').find(|word| !is_word(word)) {
        None => Ok(()),
        Some(word) => Err(refused(
            what,
            name,
            &format!("{word:?} is not made of letters, digits and underscores, or starts with a digit"),
        )),
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
        let split = |name| {
            let node = node(name).unwrap();
            (node.namespace, node.base)
        };
        assert_eq!(split("/talker"), ("/".to_owned(), "talker".to_owned()));
        assert_eq!(split("/a/b/c"), ("/a/b".to_owned(), "c".to_owned()));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            "", "points", "/", "/points/", "//points", "/2d", "/po ints", "/é", "/~",
        ] {
            assert!(matches!(topic(wrong), Err(RosError::Name { .. })), "{wrong:?}");
            assert!(matches!(node(wrong), Err(RosError::Name { .. })), "{wrong:?}");
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
