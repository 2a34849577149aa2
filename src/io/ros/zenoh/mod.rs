//! A node of the ROS 2 graph over zenoh, as the middleware rmw_zenoh has them: nodes that run on rmw_zenoh see it,
//! publish to it and subscribe to it, and no library of ROS 2 is needed.
//!
//! Follows rmw_zenoh_cpp 0.1.9 (Humble), 0.2.10 (Jazzy) and later. Services and parameters are not part of it.

mod graph;
mod session;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use graph::Graph;
pub use session::{ROUTER_ENDPOINT, Router, SessionEnvironment, SessionSettings, domain_of_process};
use zenoh::handlers::Callback;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Sample, SampleKind};
use zenoh::{Session, Wait};
use zenoh_ext::{
    AdvancedPublisher, AdvancedPublisherBuilderExt, AdvancedSubscriber, AdvancedSubscriberBuilderExt,
    CacheConfig, HistoryConfig, MissDetectionConfig, RecoveryConfig,
};

use super::wire::{
    Attachment, EntityKind, Gid, HashMode, Sequences, TOKEN_PREFIX, Token, TokenEntity, data_key,
};
use super::{
    Durability, Endpoint, History, NodeName, OnMessage, Qos, Received, Reliability, RosError, RosNode,
    RosPublisher, RosSubscription,
};
use crate::io::zenoh::words;

/// How soon after the last message of a latched topic its number is told, so that a lost one is noticed.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// How long a late subscription waits for what was published before it.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(600);

/// What a node is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZenohNodeSettings {
    /// Its name.
    pub name: NodeName,
    /// ROS domain.
    pub domain: u32,
    /// How type hashes are written.
    pub hash_mode: HashMode,
    /// The session.
    pub session: SessionSettings,
}

/// A node over zenoh.
pub struct ZenohNode {
    name: NodeName,
    full_name: String,
    domain: u32,
    hash_mode: HashMode,
    session: Session,
    graph: Graph,
    next_id: AtomicU64,
    /// What keeps the node on the graph; taken away at the end.
    presence: Mutex<Option<Presence>>,
}

/// The node's own token, and its view of the others.
struct Presence {
    _token: LivelinessToken,
    _watch: Subscriber<()>,
}

impl ZenohNode {
    /// Joins the graph. Waits for a router as the environment says.
    ///
    /// # Errors
    /// [`RosError::Open`].
    pub fn open(settings: &ZenohNodeSettings) -> Result<Self, RosError> {
        let session = session::open(&settings.session)?;
        let node = Self {
            name: settings.name.clone(),
            full_name: settings.name.to_string(),
            domain: settings.domain,
            hash_mode: settings.hash_mode,
            session,
            graph: Graph::default(),
            // The node itself is number 0.
            next_id: AtomicU64::new(1),
            presence: Mutex::new(None),
        };
        let failed = |error: zenoh::Error| RosError::Open(words(&error));
        let watch = node.watch().map_err(failed)?;
        let token = node.token(None);
        let token = node.session.liveliness().declare_token(token.to_string()).wait();
        *node.presence.lock().unwrap_or_else(PoisonError::into_inner) = Some(Presence {
            _token: token.map_err(failed)?,
            _watch: watch,
        });
        Ok(node)
    }

    /// Follows the tokens of the domain.
    fn watch(&self) -> Result<Subscriber<()>, zenoh::Error> {
        let graph = self.graph.clone();
        self.session
            .liveliness()
            .declare_subscriber(format!("{TOKEN_PREFIX}/{}/**", self.domain))
            .history(true)
            .callback(move |sample: Sample| match sample.kind() {
                SampleKind::Put => graph.add(sample.key_expr().as_str()),
                SampleKind::Delete => graph.remove(sample.key_expr().as_str()),
            })
            .wait()
    }

    /// Nodes and endpoints of the domain that are known by now, our own among them.
    #[must_use]
    pub fn graph(&self) -> Vec<Token> {
        self.graph.tokens()
    }

    fn token(&self, entity: Option<TokenEntity>) -> Token {
        Token {
            domain: self.domain,
            zid: self.session.zid().to_string(),
            node_id: 0,
            enclave: "/".into(),
            node: self.name.clone(),
            entity,
        }
    }

    /// The key and the token of a new endpoint.
    fn announce(&self, kind: EntityKind, endpoint: &Endpoint) -> Result<(String, Token), RosError> {
        let refused = |reason: &str| RosError::Endpoint {
            topic: endpoint.topic.clone(),
            reason: reason.to_owned(),
        };
        if self.name.resolve(&endpoint.topic)? != endpoint.topic {
            return Err(refused("expected a fully qualified name"));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let key = data_key(self.domain, endpoint, self.hash_mode);
        let entity = TokenEntity::new(id, kind, endpoint, self.hash_mode);
        match (key, entity) {
            (Some(key), Some(entity)) => Ok((key, self.token(Some(entity)))),
            _ => Err(refused(&format!(
                "{:?} is no type; expected package/msg/Name",
                endpoint.type_name
            ))),
        }
    }

    fn declare(&self, token: &Token) -> Result<LivelinessToken, zenoh::Error> {
        self.session.liveliness().declare_token(token.to_string()).wait()
    }
}

impl fmt::Debug for ZenohNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZenohNode")
            .field("name", &self.full_name)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

/// What zenoh says of an endpoint.
fn endpoint_failed(endpoint: &Endpoint) -> impl Fn(zenoh::Error) -> RosError {
    let topic = endpoint.topic.clone();
    move |error| RosError::Endpoint {
        topic: topic.clone(),
        reason: words(&error),
    }
}

fn zenoh_reliability(qos: &Qos) -> zenoh::qos::Reliability {
    match qos.reliability {
        Reliability::Reliable => zenoh::qos::Reliability::Reliable,
        Reliability::BestEffort => zenoh::qos::Reliability::BestEffort,
    }
}

/// Messages that a latched topic keeps.
fn history_depth(qos: &Qos) -> usize {
    match qos.history {
        History::KeepLast(depth) => depth as usize,
        History::KeepAll => usize::MAX,
    }
}

impl RosNode for ZenohNode {
    fn name(&self) -> &str {
        &self.full_name
    }

    fn publisher(&self, endpoint: &Endpoint) -> Result<Arc<dyn RosPublisher>, RosError> {
        let (key, token) = self.announce(EntityKind::Publisher, endpoint)?;
        let failed = endpoint_failed(endpoint);
        let qos = &endpoint.qos;
        let keep_all = matches!(qos.history, History::KeepAll);
        let reliable = qos.reliability == Reliability::Reliable;
        let builder = self
            .session
            .declare_publisher(key)
            .reliability(zenoh_reliability(qos))
            .congestion_control(if keep_all && reliable {
                CongestionControl::Block
            } else {
                CongestionControl::Drop
            });
        let publisher = if qos.durability == Durability::TransientLocal {
            let mut advanced = builder
                .cache(CacheConfig::default().max_samples(history_depth(qos)))
                .publisher_detection();
            if reliable {
                let heartbeat = MissDetectionConfig::default().sporadic_heartbeat(HEARTBEAT);
                advanced = advanced.sample_miss_detection(heartbeat);
            }
            advanced.wait()
        } else {
            builder.advanced().wait()
        };
        let publisher = publisher.map_err(&failed)?;
        let liveliness = self.declare(&token).map_err(&failed)?;
        Ok(Arc::new(ZenohPublisher {
            endpoint: endpoint.clone(),
            gid: Gid::of_token(&token.to_string()),
            sent: Mutex::new(0),
            publisher,
            graph: self.graph.clone(),
            _token: liveliness,
        }))
    }

    fn subscribe(
        &self,
        endpoint: &Endpoint,
        on_message: OnMessage,
    ) -> Result<Box<dyn RosSubscription>, RosError> {
        let (key, token) = self.announce(EntityKind::Subscription, endpoint)?;
        let failed = endpoint_failed(endpoint);
        let sequences = Mutex::new(Sequences::default());
        let topic = endpoint.topic.clone();
        let callback = Callback::from(move |sample: Sample| {
            let attachment = sample
                .attachment()
                .and_then(|bytes| Attachment::decode(&bytes.to_bytes()).ok());
            if attachment.is_none() {
                // Other programs may put messages here; what is in them is what counts.
                tracing::debug!(topic, "a message without a number");
            }
            let missed_before = attachment.map_or(0, |attachment| {
                let mut sequences = sequences.lock().unwrap_or_else(PoisonError::into_inner);
                sequences.missed_before(attachment.gid, attachment.sequence)
            });
            on_message(Received {
                data: sample.payload().to_bytes().into_owned(),
                source_time_ns: attachment.map(|attachment| attachment.source_time_ns),
                missed_before,
            });
        });
        let builder = self.session.declare_subscriber(key).with(callback);
        let subscriber = if endpoint.qos.durability == Durability::TransientLocal {
            let history = HistoryConfig::default()
                .detect_late_publishers()
                .max_samples(history_depth(&endpoint.qos));
            let mut advanced = builder
                .history(history)
                .query_timeout(HISTORY_TIMEOUT)
                .subscriber_detection();
            if endpoint.qos.reliability == Reliability::Reliable {
                advanced = advanced.recovery(RecoveryConfig::default().heartbeat());
            }
            advanced.wait()
        } else {
            builder.advanced().wait()
        };
        let subscriber = subscriber.map_err(&failed)?;
        let liveliness = self.declare(&token).map_err(&failed)?;
        Ok(Box::new(ZenohSubscription {
            endpoint: endpoint.clone(),
            graph: self.graph.clone(),
            _subscriber: subscriber,
            _token: liveliness,
        }))
    }

    fn close(&self) -> Result<(), RosError> {
        drop(
            self.presence
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let closed = self.session.close().wait();
        closed.map_err(|error| RosError::Close(words(&error)))
    }
}

struct ZenohPublisher {
    endpoint: Endpoint,
    gid: Gid,
    /// Messages sent so far; held while one is sent, so that numbers leave in their order.
    sent: Mutex<i64>,
    publisher: AdvancedPublisher<'static>,
    graph: Graph,
    _token: LivelinessToken,
}

impl fmt::Debug for ZenohPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZenohPublisher")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl RosPublisher for ZenohPublisher {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn publish(&self, data: Vec<u8>) -> Result<(), RosError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        *sent += 1;
        let attachment = Attachment {
            sequence: *sent,
            source_time_ns: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
            gid: self.gid,
        };
        let put = self.publisher.put(data).attachment(attachment.encode());
        put.wait().map_err(|error| RosError::Publish {
            topic: self.endpoint.topic.clone(),
            reason: words(&error),
        })
    }

    fn has_subscribers(&self) -> bool {
        let Endpoint { topic, type_name, .. } = &self.endpoint;
        // A reader without a token, such as a recorder of everything, is one too.
        self.graph.has(EntityKind::Subscription, topic, type_name)
            || self
                .publisher
                .matching_status()
                .wait()
                .is_ok_and(|status| status.matching())
    }
}

struct ZenohSubscription {
    endpoint: Endpoint,
    graph: Graph,
    _subscriber: AdvancedSubscriber<()>,
    _token: LivelinessToken,
}

impl fmt::Debug for ZenohSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZenohSubscription")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl RosSubscription for ZenohSubscription {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn has_publishers(&self) -> bool {
        let Endpoint { topic, type_name, .. } = &self.endpoint;
        self.graph.has(EntityKind::Publisher, topic, type_name)
    }
}
