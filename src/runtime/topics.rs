//! Which topics of a bag a source plays.

use std::sync::Arc;

use super::RuntimeError;
use super::poses::{TF_STATIC_TOPIC, TF_TOPIC};
use crate::io::bag::{Bag, BagTopic};
use crate::io::messages::{COMPRESSED_IMAGE_TYPE, IMAGE_TYPE, POINT_CLOUD_TYPE, TF_TYPE};
use crate::perception::Sensor;

/// A topic that a source plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlayedTopic {
    /// Its name.
    pub name: Arc<str>,
    /// What its messages are of.
    pub sensor: Sensor,
}

impl PlayedTopic {
    pub(crate) fn new(name: &str, sensor: Sensor) -> Self {
        Self {
            name: name.into(),
            sensor,
        }
    }
}

/// ROS types of a sensor's messages.
const fn types_of(sensor: Sensor) -> &'static [&'static str] {
    match sensor {
        Sensor::Camera => &[IMAGE_TYPE, COMPRESSED_IMAGE_TYPE],
        Sensor::Lidar => &[POINT_CLOUD_TYPE],
        // No message of a bag is one: they are made of those of the others.
        Sensor::Set => &[],
    }
}

/// The topics to play: the listed ones, or every topic of these sensors.
///
/// # Errors
/// [`RuntimeError::Source`] naming the topics that the bag has.
pub(crate) fn choose_topics(
    node: &str,
    bag: &Bag,
    wanted: &crate::pipeline::Topics,
    sensors: &[Sensor],
) -> Result<Vec<PlayedTopic>, RuntimeError> {
    let types: Vec<&str> = sensors
        .iter()
        .flat_map(|&sensor| types_of(sensor))
        .copied()
        .collect();
    let sensor_of = |type_name: &str| {
        let mut sensors = sensors.iter().copied();
        sensors.find(|&sensor| types_of(sensor).contains(&type_name))
    };
    let what = match sensors {
        [Sensor::Lidar] => "point cloud",
        [Sensor::Camera] => "image",
        _ => "image or point cloud",
    };
    let known = || {
        let lines: Vec<String> = bag
            .topics()
            .iter()
            .map(|topic| format!("{} [{}]", topic.name, topic.type_name))
            .collect();
        if lines.is_empty() {
            "the bag has no topics".into()
        } else {
            format!("the bag has {}", lines.join(", "))
        }
    };
    let refuse = |reason: String| RuntimeError::Source {
        node: node.into(),
        reason,
    };
    match wanted {
        crate::pipeline::Topics::Auto => {
            let played = |topic: &BagTopic| {
                sensor_of(&topic.type_name).map(|sensor| PlayedTopic::new(&topic.name, sensor))
            };
            let found: Vec<PlayedTopic> = bag.topics().iter().filter_map(played).collect();
            // An empty bag plays nothing and that is fine; a bag of something else is a mistake.
            if found.is_empty() && !bag.topics().is_empty() && bag.message_count() > 0 {
                let packets = bag
                    .topics()
                    .iter()
                    .find_map(|topic| packets(sensors, &topic.name, &topic.type_name));
                let reason = packets.unwrap_or_else(known);
                return Err(refuse(format!("no {what} topic to play; {reason}")));
            }
            Ok(found)
        }
        crate::pipeline::Topics::Listed(names) => names
            .iter()
            .map(
                |name| match bag.topics().iter().find(|topic| *topic.name == **name) {
                    None => Err(refuse(format!("topic {name} is not in the bag; {}", known()))),
                    Some(topic) => match sensor_of(&topic.type_name) {
                        Some(sensor) => Ok(PlayedTopic::new(&topic.name, sensor)),
                        None => {
                            let other = || {
                                format!(
                                    "topic {name} is of type {}; {what} topics are of type {}",
                                    topic.type_name,
                                    types.join(" or ")
                                )
                            };
                            let packets = packets(sensors, &topic.name, &topic.type_name);
                            Err(refuse(packets.unwrap_or_else(other)))
                        }
                    },
                },
            )
            .collect(),
    }
}

/// Messages that hold a sensor's packets as it sent them, whose they are, and where its driver publishes points.
const PACKETS: [(&str, &str, &str); 7] = [
    ("velodyne_msgs/msg/VelodyneScan", "a Velodyne", "/velodyne_points"),
    ("pandar_msgs/msg/PandarScan", "a Hesai", "/pandar_points"),
    ("hesai_ros_driver/msg/UdpFrame", "a Hesai", "/lidar_points"),
    (
        "nebula_msgs/msg/NebulaPackets",
        "a LiDAR or radar that Nebula drives",
        "/points",
    ),
    ("ouster_sensor_msgs/msg/PacketMsg", "an Ouster", "/ouster/points"),
    ("ouster_msgs/msg/PacketMsg", "an Ouster", "/ouster/points"),
    ("rslidar_msg/msg/RslidarPacket", "a RoboSense", "/rslidar_points"),
];

/// Says what to record instead of raw packets, where somebody wants point clouds.
fn packets(sensors: &[Sensor], topic: &str, type_name: &str) -> Option<String> {
    let (_, sensor, points) = PACKETS.iter().find(|(name, _, _)| *name == type_name)?;
    sensors.contains(&Sensor::Lidar).then(|| {
        format!(
            "topic {topic} is of type {type_name}: raw packets of {sensor}, which only its driver turns into points; \
             record the driver's topic of type {POINT_CLOUD_TYPE} (such as {points}) instead, or play this bag \
             through the driver and record that"
        )
    })
}

/// The topics of a bag that transforms come on.
pub(crate) fn transform_topics(bag: &Bag) -> Vec<Arc<str>> {
    let topics = bag
        .topics()
        .iter()
        .filter(|topic| topic.type_name == TF_TYPE && [TF_TOPIC, TF_STATIC_TOPIC].contains(&&*topic.name));
    topics.map(|topic| Arc::from(&*topic.name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::pipeline::Topics;

    /// A bag with one message on each topic.
    fn bag(topics: &[(&str, &str)]) -> (tempfile::TempDir, Bag) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db3");
        let database = rusqlite::Connection::open(&path).unwrap();
        let schema =
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);";
        database.execute_batch(schema).unwrap();
        for (name, type_name) in topics {
            let insert = "INSERT INTO topics(name, type, serialization_format) VALUES (?1, ?2, 'cdr')";
            database.execute(insert, [name, type_name]).unwrap();
            let insert = "INSERT INTO messages(topic_id, timestamp, data) VALUES (last_insert_rowid(), 1, x'00010000')";
            database.execute(insert, []).unwrap();
        }
        drop(database);
        let bag = Bag::open(&path).unwrap();
        (folder, bag)
    }

    fn refusal(bag: &Bag, wanted: &Topics, sensors: &[Sensor]) -> String {
        choose_topics("bag", bag, wanted, sensors)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn raw_packets_are_refused_with_what_to_record_instead() {
        for (type_name, sensor, points) in PACKETS {
            let (_folder, bag) = bag(&[("/tf", TF_TYPE), ("/packets", type_name)]);
            let listed = Topics::Listed(vec!["/packets".into()]);
            for wanted in [&Topics::Auto, &listed] {
                let text = refusal(&bag, wanted, &[Sensor::Lidar]);
                for part in ["/packets", type_name, sensor, POINT_CLOUD_TYPE, points] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
            // Who wants images is not helped by points.
            let text = refusal(&bag, &Topics::Auto, &[Sensor::Camera]);
            assert!(
                text.contains("no image topic") && !text.contains("raw packets"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bag_with_points_beside_packets_plays_the_points() {
        let (_folder, bag) = bag(&[("/packets", PACKETS[0].0), ("/points", POINT_CLOUD_TYPE)]);
        let topics = choose_topics("bag", &bag, &Topics::Auto, &[Sensor::Lidar]).unwrap();
        assert_eq!(topics, [PlayedTopic::new("/points", Sensor::Lidar)]);
    }
}
