//! A node of ROS 2 over DDS, without any library of ROS 2: what rmw_fastrtps and rmw_cyclonedds speak.
//!
//! A node is one DDS participant and says on `ros_discovery_info` which endpoints are its own, so that `ros2 node
//! list` knows it. Type hashes are not told (they would be in the user data of endpoints, which RustDDS does not
//! send): ROS 2 matches endpoints by their type's name, as before Iron. Messages go out in little-endian plain CDR and
//! come in in either byte order.

mod graph;
mod names;
mod publisher;
mod qos;
mod raw;
mod subscription;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustdds::dds::result::CreateError;
use rustdds::{DomainParticipant, DomainParticipantBuilder, GUID, RTPSEntity, Topic, TopicKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::graph::Graph;
use self::publisher::DdsPublisher;
use self::raw::{Body, RawWriter};
use self::subscription::DdsSubscription;
use super::{Endpoint, NodeName, OnMessage, RosError, RosNode, RosPublisher, RosSubscription};

/// The highest domain: ports of higher ones do not exist (250 a domain from 7400 on).
const DOMAIN_MAX: u16 = 232;
/// How long a node that leaves waits for subscriptions to acknowledge what it published.
const LEAVE: Duration = Duration::from_secs(1);

/// How a node joins a DDS network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdsSettings {
    /// Name of the node.
    pub name: NodeName,
    /// What `ROS_DOMAIN_ID` says: 0 to 232.
    pub domain: u32,
    /// Addresses of this host whose networks are used; all if empty.
    pub networks: Vec<IpAddr>,
    /// Whether the others are ROS 2 Humble or older: their message on who is who has longer ids.
    pub humble: bool,
}

/// The networks that the environment of this process keeps its nodes to: loopback alone with
/// `ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST` or, as before Iron, `ROS_LOCALHOST_ONLY=1`; otherwise all (empty).
#[must_use]
pub fn networks_of_process() -> Vec<IpAddr> {
    let says = |variable, value: &str| std::env::var(variable).is_ok_and(|said| said.trim() == value);
    if says("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST") || says("ROS_LOCALHOST_ONLY", "1") {
        vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]
    } else {
        Vec::new()
    }
}

/// A node of ROS 2 on a DDS network.
pub struct DdsNode {
    name: String,
    shared: Arc<Shared>,
}

/// What a node and its endpoints share.
struct Shared {
    /// `None` once the node has left.
    joined: Mutex<Option<Joined>>,
    /// Whether the node has left, for who may not wait for the lock.
    left: AtomicBool,
}

/// A node's place on the network.
struct Joined {
    participant: DomainParticipant,
    publisher: rustdds::Publisher,
    subscriber: rustdds::Subscriber,
    graph: Graph,
    graph_writer: RawWriter,
    /// Publishers that have not been dropped.
    writers: Vec<Weak<RawWriter>>,
    /// The thread on which messages and changes of the network are handed on.
    events: EventThread,
}

impl DdsNode {
    /// Joins the network. Others are found in the background; that may take seconds.
    ///
    /// # Errors
    /// [`RosError::Open`].
    pub fn open(settings: &DdsSettings) -> Result<Self, RosError> {
        let domain = u16::try_from(settings.domain)
            .ok()
            .filter(|&domain| domain <= DOMAIN_MAX)
            .ok_or_else(|| {
                RosError::Open(format!(
                    "domain {} does not exist: DDS has domains 0 to {DOMAIN_MAX}",
                    settings.domain
                ))
            })?;
        let mut builder = DomainParticipantBuilder::new(domain);
        if !settings.networks.is_empty() {
            builder = builder.with_only_networks(settings.networks.iter().copied());
        }
        let joined = Joined::new(
            &builder.build().map_err(open_error)?,
            settings.name.clone(),
            settings.humble,
        )?;
        Ok(Self {
            name: settings.name.to_string(),
            shared: Arc::new(Shared {
                joined: Mutex::new(Some(joined)),
                left: AtomicBool::new(false),
            }),
        })
    }
}

impl Joined {
    fn new(participant: &DomainParticipant, node: NodeName, humble: bool) -> Result<Self, RosError> {
        let defaults = rustdds::QosPolicies::qos_none();
        let publisher = participant.create_publisher(&defaults).map_err(open_error)?;
        let subscriber = participant.create_subscriber(&defaults).map_err(open_error)?;
        let graph_qos = qos::of_publisher(&graph::QOS);
        let topic = participant
            .create_topic(
                graph::TOPIC.to_owned(),
                graph::TYPE.to_owned(),
                &graph_qos,
                TopicKind::NoKey,
            )
            .map_err(open_error)?;
        let graph_writer = publisher
            .create_datawriter_no_key(&topic, Some(graph_qos))
            .map_err(open_error)?;
        let joined = Self {
            graph: Graph::new(participant.guid(), node, humble),
            participant: participant.clone(),
            publisher,
            subscriber,
            graph_writer,
            writers: Vec::new(),
            events: EventThread::start()?,
        };
        joined.tell_graph();
        Ok(joined)
    }

    fn topic(&self, endpoint: &Endpoint, qos: &rustdds::QosPolicies) -> Result<Topic, RosError> {
        self.participant
            .create_topic(
                names::topic(&endpoint.topic)?,
                names::message_type(&endpoint.type_name)?,
                qos,
                TopicKind::NoKey,
            )
            .map_err(|error| endpoint_error(endpoint, &error))
    }

    /// Tells the network which endpoints belong to the node. Nothing depends on it but tools that show the graph.
    fn tell_graph(&self) {
        let told = match self.graph.encode() {
            Ok(message) => match Body::of_message(message) {
                Some(body) => self.graph_writer.write(body, None).map_err(|e| e.to_string()),
                None => Ok(()),
            },
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "the ROS 2 graph is not told of a change");
        }
    }
}

impl Shared {
    /// Does something with a node that is on the network.
    fn with<T>(&self, what: impl FnOnce(&mut Joined) -> T) -> Option<T> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        joined.as_mut().map(what)
    }

    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes an endpoint that was dropped out of the graph.
    fn forget(&self, id: GUID) {
        self.with(|joined| {
            joined.graph.remove(id);
            joined.tell_graph();
        });
    }

    /// Leaves the network, with what was published on its way.
    fn leave(&self) -> Result<(), RosError> {
        let joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(joined) = joined else { return Ok(()) };
        self.left.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + LEAVE;
        for writer in joined.writers.iter().filter_map(Weak::upgrade) {
            let left = deadline.saturating_duration_since(Instant::now());
            if !matches!(writer.wait_for_acknowledgments(left), Ok(true)) {
                tracing::debug!("a subscription has not acknowledged everything when the node leaves");
            }
        }
        joined.events.end()
    }
}

impl RosNode for DdsNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn publisher(&self, endpoint: &Endpoint) -> Result<Arc<dyn RosPublisher>, RosError> {
        let made = self.shared.with(|joined| {
            let policies = qos::of_publisher(&endpoint.qos);
            let topic = joined.topic(endpoint, &policies)?;
            let writer: RawWriter = joined
                .publisher
                .create_datawriter_no_key(&topic, Some(policies))
                .map_err(|error| endpoint_error(endpoint, &error))?;
            let writer = Arc::new(writer);
            joined.writers.retain(|writer| writer.strong_count() > 0);
            joined.writers.push(Arc::downgrade(&writer));
            joined.graph.add_writer(writer.guid());
            joined.tell_graph();
            let made = DdsPublisher::start(endpoint, writer, &joined.events.handle, Arc::clone(&self.shared));
            Ok(Arc::new(made) as Arc<dyn RosPublisher>)
        });
        made.unwrap_or_else(|| Err(has_left(endpoint)))
    }

    fn subscribe(
        &self,
        endpoint: &Endpoint,
        on_message: OnMessage,
    ) -> Result<Box<dyn RosSubscription>, RosError> {
        let made = self.shared.with(|joined| {
            let policies = qos::of_subscription(&endpoint.qos);
            let topic = joined.topic(endpoint, &policies)?;
            let reader = joined
                .subscriber
                .create_simple_datareader_no_key(&topic, Some(policies))
                .map_err(|error| endpoint_error(endpoint, &error))?;
            joined.graph.add_reader(reader.guid());
            joined.tell_graph();
            let handle = &joined.events.handle;
            let made = DdsSubscription::start(endpoint, reader, on_message, handle, Arc::clone(&self.shared));
            Ok(Box::new(made) as Box<dyn RosSubscription>)
        });
        made.unwrap_or_else(|| Err(has_left(endpoint)))
    }

    fn close(&self) -> Result<(), RosError> {
        self.shared.leave()
    }
}

impl Drop for DdsNode {
    fn drop(&mut self) {
        if let Err(error) = self.shared.leave() {
            tracing::warn!(%error, "a ROS 2 node did not end in order");
        }
    }
}

impl fmt::Debug for DdsNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DdsNode")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// One thread for all endpoints of a node. Tasks may be given to it from anywhere.
struct EventThread {
    handle: Handle,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl EventThread {
    fn start() -> Result<Self, RosError> {
        let failed = |error: std::io::Error| RosError::Open(format!("no thread for its events: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("ros-dds".to_owned())
            .spawn(move || {
                // A sender that is gone ends the thread as well.
                let _ = runtime.block_on(ended);
            })
            .map_err(failed)?;
        Ok(Self { handle, end, thread })
    }

    /// Ends the thread; no message is handed on afterwards.
    fn end(self) -> Result<(), RosError> {
        // A thread that does not listen any more has ended.
        let _ = self.end.send(());
        self.thread
            .join()
            .map_err(|_| RosError::Close("the thread that hands messages on panicked".to_owned()))
    }
}

fn open_error(error: CreateError) -> RosError {
    RosError::Open(error.to_string())
}

fn endpoint_error(endpoint: &Endpoint, error: &CreateError) -> RosError {
    RosError::Endpoint {
        topic: endpoint.topic.clone(),
        reason: error.to_string(),
    }
}

fn has_left(endpoint: &Endpoint) -> RosError {
    RosError::Endpoint {
        topic: endpoint.topic.clone(),
        reason: "the node has left the network".to_owned(),
    }
}
