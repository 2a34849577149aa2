//! A node over r2r, which is rcl: ROS 2's own library below the client libraries.
//!
//! rcl wants one thread that waits for whatever happens to the node. That thread owns the node; everything that
//! changes it is asked of the thread, and messages are handed on there. Publishing needs no turn of it.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use r2r::PublisherUntyped;
use sensorium::io::ros::{Endpoint, OnMessage, Received, RosError, RosNode, RosPublisher, RosSubscription};

use crate::qos::Profile;

/// Longest wait for something to happen before requests are looked at.
const TURN: Duration = Duration::from_millis(10);
/// Longest wait for an answer of the thread that owns the node.
const ANSWER: Duration = Duration::from_secs(10);

/// Something that goes on beside the node's messages, such as answering questions about parameters.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A node of ROS 2. Names are remapped by rcl, as the process's arguments say.
pub struct R2rNode {
    name: String,
    requests: mpsc::Sender<Request>,
    end: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is asked of the thread that owns the node.
enum Request {
    Publish(Endpoint, mpsc::Sender<Result<PublisherUntyped, RosError>>),
    Subscribe(Endpoint, OnMessage, mpsc::Sender<Result<Arc<State>, RosError>>),
    /// A publisher that nobody uses any more.
    Forget(PublisherUntyped),
}

/// What a subscription and the thread share.
#[derive(Debug, Default)]
struct State {
    /// Whether the subscription was dropped.
    ended: AtomicBool,
    /// Whether a message has come.
    heard: AtomicBool,
}

/// A subscription on the thread.
struct Taken {
    messages: Box<dyn Stream<Item = Vec<u8>> + Unpin>,
    on_message: OnMessage,
    state: Arc<State>,
}

impl R2rNode {
    /// Gives the node a thread of its own.
    ///
    /// # Errors
    /// [`RosError::Open`].
    pub fn start(node: r2r::Node, background: Background) -> Result<Self, RosError> {
        let failed = |error: String| RosError::Open(error);
        let name = node.fully_qualified_name().map_err(|e| failed(e.to_string()))?;
        let (requests, asked) = mpsc::channel();
        let end = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("ros2-spin".to_owned())
            .spawn({
                let end = Arc::clone(&end);
                move || spin(node, background, &asked, &end)
            })
            .map_err(|e| failed(e.to_string()))?;
        Ok(Self {
            name,
            requests,
            end,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Asks the thread for something about an endpoint.
    fn ask<T>(
        &self,
        endpoint: &Endpoint,
        request: impl FnOnce(mpsc::Sender<Result<T, RosError>>) -> Request,
    ) -> Result<T, RosError> {
        let (answer, answered) = mpsc::channel();
        let gone = |_| failed(endpoint, "the node has ended".to_owned());
        self.requests.send(request(answer)).map_err(|_| gone(()))?;
        answered.recv_timeout(ANSWER).map_err(|_| gone(()))?
    }

    fn join(&self) -> Result<(), RosError> {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread
            .map_or(Ok(()), JoinHandle::join)
            .map_err(|_| RosError::Close("the thread of the node panicked".to_owned()))
    }
}

fn spin(mut node: r2r::Node, mut background: Background, asked: &mpsc::Receiver<Request>, end: &AtomicBool) {
    let mut subscriptions: Vec<Taken> = Vec::new();
    let mut background_ended = false;
    while !end.load(Ordering::Relaxed) {
        node.spin_once(TURN);
        for request in asked.try_iter() {
            serve(&mut node, request, &mut subscriptions);
        }
        // rcl's own subscription ends with the next message, for which r2r finds no taker.
        subscriptions.retain(|taken| !taken.state.ended.load(Ordering::Relaxed));
        // r2r keeps ten messages and then loses the newest; every turn brings one of a topic at most.
        subscriptions.iter_mut().for_each(Taken::hand_on);
        if !background_ended {
            background_ended = background.as_mut().now_or_never().is_some();
        }
    }
}

fn serve(node: &mut r2r::Node, request: Request, subscriptions: &mut Vec<Taken>) {
    match request {
        Request::Publish(endpoint, answer) => {
            let qos = Profile::from(endpoint.qos).into();
            let made = node
                .create_publisher_untyped(&endpoint.topic, &endpoint.type_name, qos)
                .map_err(|error| explained(&endpoint, &error));
            // Whoever asked may have lost patience.
            let _ = answer.send(made);
        }
        Request::Subscribe(endpoint, on_message, answer) => {
            let qos = Profile::from(endpoint.qos).into();
            let made = node
                .subscribe_raw(&endpoint.topic, &endpoint.type_name, qos)
                .map_err(|error| explained(&endpoint, &error));
            let _ = answer.send(made.map(|messages| {
                let state = Arc::new(State::default());
                subscriptions.push(Taken {
                    messages: Box::new(messages),
                    on_message,
                    state: Arc::clone(&state),
                });
                state
            }));
        }
        Request::Forget(publisher) => node.destroy_publisher_untyped(publisher),
    }
}

impl Taken {
    fn hand_on(&mut self) {
        while let Some(Some(data)) = self.messages.next().now_or_never() {
            self.state.heard.store(true, Ordering::Relaxed);
            (self.on_message)(Received {
                data,
                // r2r does not hand on what rcl knows of a message.
                source_time_ns: None,
                missed_before: 0,
            });
        }
    }
}

impl RosNode for R2rNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn publisher(&self, endpoint: &Endpoint) -> Result<Arc<dyn RosPublisher>, RosError> {
        let publisher = self.ask(endpoint, |answer| Request::Publish(endpoint.clone(), answer))?;
        Ok(Arc::new(R2rPublisher {
            endpoint: endpoint.clone(),
            publisher: Mutex::new(publisher),
            requests: self.requests.clone(),
        }))
    }

    fn subscribe(
        &self,
        endpoint: &Endpoint,
        on_message: OnMessage,
    ) -> Result<Box<dyn RosSubscription>, RosError> {
        let state = self.ask(endpoint, |answer| {
            Request::Subscribe(endpoint.clone(), on_message, answer)
        })?;
        Ok(Box::new(R2rSubscription {
            endpoint: endpoint.clone(),
            state,
        }))
    }

    fn close(&self) -> Result<(), RosError> {
        self.join()
    }
}

impl Drop for R2rNode {
    fn drop(&mut self) {
        // A panic of the thread was told when it happened.
        let _ = self.join();
    }
}

impl fmt::Debug for R2rNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("R2rNode")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

struct R2rPublisher {
    endpoint: Endpoint,
    publisher: Mutex<PublisherUntyped>,
    requests: mpsc::Sender<Request>,
}

impl R2rPublisher {
    fn with<T>(&self, what: impl FnOnce(&PublisherUntyped) -> T) -> T {
        what(&self.publisher.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RosPublisher for R2rPublisher {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn publish(&self, data: Vec<u8>) -> Result<(), RosError> {
        self.with(|publisher| publisher.publish_raw(&data))
            .map_err(|error| RosError::Publish {
                topic: self.endpoint.topic.clone(),
                reason: error.to_string(),
            })
    }

    /// Subscriptions of this process are not counted, for rcl does not.
    fn has_subscribers(&self) -> bool {
        self.with(PublisherUntyped::get_inter_process_subscription_count)
            .is_ok_and(|count| count > 0)
    }
}

impl Drop for R2rPublisher {
    fn drop(&mut self) {
        // A node that has ended has taken its publishers with it.
        let _ = self.requests.send(Request::Forget(self.with(Clone::clone)));
    }
}

impl fmt::Debug for R2rPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("R2rPublisher")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct R2rSubscription {
    endpoint: Endpoint,
    state: Arc<State>,
}

impl RosSubscription for R2rSubscription {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether a message has come: r2r does not say more.
    fn has_publishers(&self) -> bool {
        self.state.heard.load(Ordering::Relaxed)
    }
}

impl Drop for R2rSubscription {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
    }
}

fn explained(endpoint: &Endpoint, error: &r2r::Error) -> RosError {
    match error {
        r2r::Error::InvalidMessageType { msgtype } => failed(
            endpoint,
            format!(
                "{msgtype} was not known when this node was built: source the workspace that has it, and build again"
            ),
        ),
        other => failed(endpoint, other.to_string()),
    }
}

fn failed(endpoint: &Endpoint, reason: String) -> RosError {
    RosError::Endpoint {
        topic: endpoint.topic.clone(),
        reason,
    }
}
