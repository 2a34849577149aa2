//! The `ros2` section of a pipeline file, and what else of it is about ROS 2.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::patterns::{NAMESPACE, TOKEN, TOPIC};
use super::words::words;

/// The node that a pipeline is in the ROS 2 graph.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Ros2")]
pub(super) struct RawRos2 {
    /// Name of the node. Left out: the name of the pipeline.
    #[schemars(regex(pattern = TOKEN))]
    node: Option<String>,
    /// Namespace of the node.
    #[schemars(regex(pattern = NAMESPACE))]
    namespace: String,
    /// ROS domain. Left out: what ROS_DOMAIN_ID says, or 0.
    #[schemars(range(min = 0, max = 232))]
    domain: Option<u32>,
    /// How messages travel.
    transport: RosTransport,
    /// Distribution of ROS 2 that the other nodes run on.
    distro: Distro,
    /// Other names for topics, as in a launch file: from and to.
    #[schemars(extend(
        "propertyNames" = { "pattern": TOPIC },
        "additionalProperties" = { "type": "string", "pattern": TOPIC }
    ))]
    remap: BTreeMap<String, String>,
    /// zenoh endpoints to connect to, such as tcp/192.168.0.10:7447. Empty: a router on this machine.
    connect: Vec<String>,
    /// zenoh endpoints to listen on. Empty: any free port of this machine.
    listen: Vec<String>,
    /// Whether /clock is the node's clock, as in a replay of a bag.
    use_sim_time: bool,
    /// When processing counts as slow.
    diagnostics: DiagnosticsSettings,
}

/// Limits of what /diagnostics says, with the names and defaults of Autoware's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Diagnostics")]
pub struct DiagnosticsSettings {
    /// Processing longer than this is a warning, in milliseconds.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub max_allowed_processing_time_ms: u32,
    /// Being that slow for longer than this without a pause is an error, in milliseconds.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub max_acceptable_consecutive_delay_ms: u32,
    /// Time between two messages in milliseconds.
    #[schemars(range(min = 10, max = 60_000))]
    pub validation_callback_interval_ms: u32,
}

impl Default for DiagnosticsSettings {
    fn default() -> Self {
        Self {
            max_allowed_processing_time_ms: 200,
            max_acceptable_consecutive_delay_ms: 1_000,
            validation_callback_interval_ms: 100,
        }
    }
}

words! {
    /// How messages of ROS 2 travel.
    #[derive(Default)]
    RosTransport {
        /// zenoh, as the middleware rmw_zenoh does it.
        #[default]
        Zenoh = "zenoh",
        /// DDS; for builds with the feature `dds`.
        Dds = "dds",
    }
}
words! {
    /// A distribution of ROS 2.
    #[derive(Default)]
    Distro {
        /// Its zenoh keys have no type hash.
        Humble = "humble",
        /// 2024.
        #[default]
        Jazzy = "jazzy",
        /// 2025.
        Kilted = "kilted",
        /// 2026.
        Lyrical = "lyrical",
        /// Under development.
        Rolling = "rolling",
    }
}
words! {
    /// Where the messages of a live source come from.
    Subscribe {
        /// Topics of the ROS 2 graph.
        Ros2 = "ros2",
    }
}

/// The node that a pipeline is in the ROS 2 graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ros2Settings {
    /// Name of the node.
    pub node: String,
    /// Its namespace.
    pub namespace: String,
    /// ROS domain; `None`: what `ROS_DOMAIN_ID` says.
    pub domain: Option<u32>,
    /// How messages travel.
    pub transport: RosTransport,
    /// Distribution of the other nodes.
    pub distro: Distro,
    /// Other names for topics, from and to; the first one that fits is taken.
    pub remap: Vec<(String, String)>,
    /// zenoh endpoints to connect to.
    pub connect: Vec<String>,
    /// zenoh endpoints to listen on.
    pub listen: Vec<String>,
    /// Whether `/clock` is the node's clock.
    pub use_sim_time: bool,
    /// When processing counts as slow.
    pub diagnostics: DiagnosticsSettings,
}

/// The name that a pipeline or a vehicle lends to its node: they may be called what nodes may not.
pub(super) fn node_name(pipeline: &str) -> String {
    let name = pipeline.replace('-', "_");
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

impl RawRos2 {
    /// The settings of the pipeline of this name; `first` are remaps that go before those of the file.
    pub(super) fn settings(self, pipeline: &str, first: &[(String, String)]) -> Ros2Settings {
        let node = self.node.unwrap_or_else(|| node_name(pipeline));
        Ros2Settings {
            node,
            namespace: format!("/{}", self.namespace.trim_start_matches('/')),
            domain: self.domain,
            transport: self.transport,
            distro: self.distro,
            remap: first.iter().cloned().chain(self.remap).collect(),
            connect: self.connect,
            listen: self.listen,
            use_sim_time: self.use_sim_time,
            diagnostics: self.diagnostics,
        }
    }
}

/// Settings of a publisher of ROS 2 messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ros2PublisherSettings {
    /// Topic of the results, with `{stream}` still to be filled in; see [`Self::topic_of`].
    pub topic: String,
    /// Whether frames that nobody would see the results of are dropped at the source.
    pub skip_without_subscribers: bool,
    /// Whether processing times, diagnostics and times of publication are published too.
    pub debug: bool,
}

impl Ros2PublisherSettings {
    /// The topic of one stream, which is named after its own topic. Characters that ROS 2 does not allow become `_`.
    #[must_use]
    pub fn topic_of(&self, stream: &str) -> String {
        let parts = stream.split('/').filter(|part| !part.is_empty()).map(|part| {
            let plain = part.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '_'), "_");
            if plain.starts_with(|c: char| c.is_ascii_digit()) {
                format!("_{plain}")
            } else {
                plain
            }
        });
        let stream = parts.collect::<Vec<_>>().join("/");
        let stream = if stream.is_empty() { "_" } else { &stream };
        self.topic.replace("{stream}", stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_filled_in_as_ros_allows_it() {
        let settings = Ros2PublisherSettings {
            topic: "~/{stream}/objects".into(),
            skip_without_subscribers: true,
            debug: true,
        };
        for (stream, topic) in [
            ("/sensing/lidar", "~/sensing/lidar/objects"),
            ("cam-0", "~/cam_0/objects"),
            ("/2nd/x", "~/_2nd/x/objects"),
            ("/", "~/_/objects"),
        ] {
            assert_eq!(settings.topic_of(stream), topic);
        }
    }

    #[test]
    fn a_pipeline_lends_its_name_to_the_node() {
        for (pipeline, node) in [("front-lidar", "front_lidar"), ("3d", "_3d")] {
            assert_eq!(RawRos2::default().settings(pipeline, &[]).node, node);
        }
        let raw = RawRos2 {
            node: Some("n".into()),
            namespace: "/a/b".into(),
            remap: BTreeMap::from([("x".into(), "y".into())]),
            ..RawRos2::default()
        };
        let settings = raw.settings("p", &[("x".into(), "z".into())]);
        assert_eq!(
            (settings.node.as_str(), settings.namespace.as_str()),
            ("n", "/a/b")
        );
        assert_eq!(settings.remap[0], ("x".into(), "z".into()));
    }
}
