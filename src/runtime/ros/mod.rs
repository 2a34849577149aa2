//! The run as a node of the ROS 2 graph: names, clock, live messages in, results out.

mod audience;
mod diagnostics;
mod feed;
mod published;
mod sink;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use audience::Audience;
pub(crate) use feed::{LiveDesk, LiveFeed, type_of};
pub(crate) use sink::{RosSink, RosSinkParts};

use super::RuntimeError;
use crate::io::messages::{CLOCK_TYPE, ClockMsg, TimeMsg, type_hash};
#[cfg(feature = "dds")]
use crate::io::ros::dds::{DdsNode, DdsSettings, networks_of_process};
use crate::io::ros::wire::HashMode;
use crate::io::ros::zenoh::{
    SessionEnvironment, SessionSettings, ZenohNode, ZenohNodeSettings, domain_of_process,
};
use crate::io::ros::{
    Endpoint, NodeName, OnMessage, Qos, Remaps, RosError, RosNode, RosPublisher, RosSubscription,
};
use crate::pipeline::{Distro, NodeKind, Pipeline, PublisherSettings, Ros2Settings, RosTransport};

/// The node of a run.
#[derive(Debug)]
pub(crate) struct RosGraph {
    node: Arc<dyn RosNode>,
    name: NodeName,
    remaps: Remaps,
    clock: RosClock,
    /// Keeps `/clock` coming.
    _clock: Option<Box<dyn RosSubscription>>,
}

/// What time the node has.
#[derive(Debug, Clone, Default)]
pub(crate) struct RosClock {
    /// Nanoseconds that `/clock` told last, 0 before the first time; `None` for the system's clock.
    simulated: Option<Arc<AtomicI64>>,
}

impl RosClock {
    /// Nanoseconds since the epoch.
    pub(crate) fn now_ns(&self) -> i64 {
        match &self.simulated {
            Some(told) => told.load(Ordering::Relaxed),
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
            }
        }
    }

    /// The time for a message; what does not fit one is 0.
    pub(crate) fn stamp(&self) -> TimeMsg {
        TimeMsg::new(self.now_ns()).unwrap_or_default()
    }
}

/// Names of a pipeline's node, without joining the graph.
///
/// # Errors
/// [`RuntimeError::Ros2`] for names that ROS 2 does not allow.
pub(crate) fn names(settings: &Ros2Settings) -> Result<(NodeName, Remaps), RuntimeError> {
    let name = NodeName::new(&settings.namespace, &settings.node)?;
    let rules = settings
        .remap
        .iter()
        .map(|(from, to)| (from.as_str(), to.as_str()));
    let remaps = Remaps::new(&name, rules)?;
    Ok((name, remaps))
}

/// Whether a pipeline takes part in the ROS 2 graph.
pub(crate) fn is_used(pipeline: &Pipeline) -> bool {
    pipeline.nodes.iter().any(|node| match &node.kind {
        NodeKind::Source(source) => source.subscribe.is_some(),
        NodeKind::Publisher(publisher) => matches!(publisher, PublisherSettings::Ros2(_)),
        _ => false,
    })
}

impl RosGraph {
    /// Joins the graph; with a node that is `given`, under its name. Waits for the network.
    ///
    /// # Errors
    /// [`RuntimeError::Ros2`].
    pub(crate) fn open(
        settings: &Ros2Settings,
        given: Option<Arc<dyn RosNode>>,
    ) -> Result<Self, RuntimeError> {
        let (node, name, remaps) = match given {
            // Whoever made the node gives its topics their names.
            Some(node) => {
                let name = NodeName::of_full(node.name())?;
                (node, name, Remaps::default())
            }
            None => {
                let (name, remaps) = names(settings)?;
                (join(settings, &name)?, name, remaps)
            }
        };
        let mut graph = Self {
            node,
            name,
            remaps,
            clock: RosClock::default(),
            _clock: None,
        };
        if settings.use_sim_time {
            let told = Arc::new(AtomicI64::new(0));
            graph.clock.simulated = Some(Arc::clone(&told));
            let on_clock: OnMessage = Box::new(move |message| match ClockMsg::decode(&message.data) {
                Ok(clock) => told.store(clock.time_ns(), Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "a clock that cannot be read"),
            });
            graph._clock = Some(graph.subscribe("/clock", CLOCK_TYPE, Qos::sensor_data(1), on_clock)?);
        }
        Ok(graph)
    }

    /// Name of the node without its namespace.
    pub(crate) fn node_name(&self) -> &str {
        self.name.name()
    }

    /// The node's clock.
    pub(crate) const fn clock(&self) -> &RosClock {
        &self.clock
    }

    /// The name in the graph of a topic that the pipeline file names.
    ///
    /// # Errors
    /// [`RosError::Name`].
    pub(crate) fn topic(&self, name: &str) -> Result<String, RosError> {
        self.remaps.apply(&self.name, name)
    }

    fn endpoint(&self, topic: &str, type_name: &str, qos: Qos) -> Result<Endpoint, RosError> {
        let topic = self.topic(topic)?;
        let type_hash = type_hash(type_name).ok_or_else(|| RosError::Endpoint {
            topic: topic.clone(),
            reason: format!("the definition of {type_name} is not known"),
        })?;
        Ok(Endpoint {
            topic,
            type_name: type_name.to_owned(),
            type_hash,
            qos,
        })
    }

    /// Starts to publish a topic that the pipeline file names.
    ///
    /// # Errors
    /// [`RosError`].
    pub(crate) fn publisher(
        &self,
        topic: &str,
        type_name: &str,
        qos: Qos,
    ) -> Result<Arc<dyn RosPublisher>, RosError> {
        self.node.publisher(&self.endpoint(topic, type_name, qos)?)
    }

    /// Subscribes to a topic that the pipeline file names.
    ///
    /// # Errors
    /// [`RosError`].
    pub(crate) fn subscribe(
        &self,
        topic: &str,
        type_name: &str,
        qos: Qos,
        on_message: OnMessage,
    ) -> Result<Box<dyn RosSubscription>, RosError> {
        self.node
            .subscribe(&self.endpoint(topic, type_name, qos)?, on_message)
    }

    /// Leaves the graph.
    ///
    /// # Errors
    /// [`RosError::Close`].
    pub(crate) fn close(&self) -> Result<(), RosError> {
        self.node.close()
    }
}

fn join(settings: &Ros2Settings, name: &NodeName) -> Result<Arc<dyn RosNode>, RuntimeError> {
    let domain = match settings.domain {
        Some(domain) => domain,
        None => domain_of_process()?,
    };
    match settings.transport {
        RosTransport::Zenoh => {
            let node = ZenohNode::open(&ZenohNodeSettings {
                name: name.clone(),
                domain,
                hash_mode: match settings.distro {
                    Distro::Humble => HashMode::Humble,
                    _ => HashMode::Rihs01,
                },
                session: SessionSettings {
                    connect: settings.connect.clone(),
                    listen: settings.listen.clone(),
                    patience: None,
                    environment: SessionEnvironment::of_process()?,
                },
            })?;
            Ok(Arc::new(node))
        }
        #[cfg(feature = "dds")]
        RosTransport::Dds => {
            let node = DdsNode::open(&DdsSettings {
                name: name.clone(),
                domain,
                networks: networks_of_process(),
                humble: settings.distro == Distro::Humble,
            })?;
            Ok(Arc::new(node))
        }
        #[cfg(not(feature = "dds"))]
        RosTransport::Dds => Err(RosError::Open(
            "this build has no DDS: build with `--features dds`, or set ros2.transport to zenoh".into(),
        )
        .into()),
    }
}
