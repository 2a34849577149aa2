//! Live messages as a feed of a source.
//!
//! The middleware's threads put messages into an inbox, where each sensor topic has one place: a new message takes that
//! of one that nobody has come for, which is counted. The feed's thread hands over what is there.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::RosGraph;
use crate::io::messages::{COMPRESSED_IMAGE_TYPE, IMAGE_TYPE, POINT_CLOUD_TYPE, TF_TYPE};
use crate::io::ros::{OnMessage, Qos, Received, RosSubscription};
use crate::perception::Sensor;
use crate::runtime::frame::Message;
use crate::runtime::poses::{TF_STATIC_TOPIC, TF_TOPIC};
use crate::runtime::source::{Feed, Playback, TopicDesk};
use crate::runtime::topics::PlayedTopic;
use crate::telemetry::DropReason;

/// Longest wait between two looks at whether the run is over.
const NAP: Duration = Duration::from_millis(50);

/// Transforms that wait at most; a vehicle sends some hundred a second.
const TRANSFORMS: usize = 4_096;

/// Latched transforms that are kept for a late subscription, of each publisher.
const STATIC_TRANSFORMS: u32 = 100;

/// ROS type of a sensor's messages on a topic, as `image_transport` names them.
pub(crate) fn type_of(sensor: Sensor, topic: &str) -> &'static str {
    match sensor {
        // Sets are made of what others sent, and are no topic themselves.
        Sensor::Lidar | Sensor::Set => POINT_CLOUD_TYPE,
        Sensor::Camera if topic.ends_with("/compressed") => COMPRESSED_IMAGE_TYPE,
        Sensor::Camera => IMAGE_TYPE,
    }
}

/// Topics that are subscribed to while the run lasts.
pub(crate) struct LiveFeed {
    /// The node that subscribes.
    pub graph: Arc<RosGraph>,
    /// Topics of sensors.
    pub desk: Arc<LiveDesk>,
    /// Whether transforms are asked for.
    pub transforms: bool,
}

/// Which topics of sensors are subscribed to.
#[derive(Debug)]
pub(crate) struct LiveDesk {
    graph: Arc<RosGraph>,
    sensor: Sensor,
    topics: Mutex<Vec<LiveTopic>>,
}

/// A topic by its name in the graph, and the type of its messages. Its place in the inbox is its place in the list.
#[derive(Debug, Clone)]
struct LiveTopic {
    name: Arc<str>,
    type_name: &'static str,
    wanted: bool,
}

impl LiveDesk {
    /// These topics of a sensor.
    pub(crate) fn new(
        graph: &Arc<RosGraph>,
        sensor: Sensor,
        topics: &[(Arc<str>, &'static str)],
    ) -> Arc<Self> {
        let topics = topics.iter().map(|(name, type_name)| LiveTopic {
            name: Arc::clone(name),
            type_name,
            wanted: true,
        });
        Arc::new(Self {
            graph: Arc::clone(graph),
            sensor,
            topics: Mutex::new(topics.collect()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LiveTopic>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicDesk for LiveDesk {
    fn find(&self, topic: &str, sensors: &[Sensor]) -> Result<PlayedTopic, String> {
        if !sensors.contains(&self.sensor) {
            return Err(format!("no detector behind it takes {}", self.sensor));
        }
        let name = self.graph.topic(topic).map_err(|error| error.to_string())?;
        Ok(PlayedTopic::new(&name, self.sensor))
    }

    fn add(&self, topic: PlayedTopic) {
        let mut topics = self.lock();
        match topics.iter_mut().find(|known| known.name == topic.name) {
            Some(known) => known.wanted = true,
            None => topics.push(LiveTopic {
                type_name: type_of(topic.sensor, &topic.name),
                name: topic.name,
                wanted: true,
            }),
        }
    }

    fn remove(&self, topic: &str) {
        for known in self.lock().iter_mut().filter(|known| *known.name == *topic) {
            known.wanted = false;
        }
    }
}

/// A message with the moment at which it came.
type Arrival = (Received, Instant);

/// What waits on one topic of a sensor.
#[derive(Debug, Default)]
struct Place {
    newest: Option<Arrival>,
    /// Messages that gave up their place.
    displaced: u64,
    /// Messages that did not arrive.
    missed: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    places: Vec<Place>,
    transforms: VecDeque<(Arc<str>, Arrival)>,
    /// Transforms that gave up their place, and that did not arrive.
    transforms_displaced: u64,
    transforms_missed: u64,
    /// The place that is looked at first, so that none starves another.
    turn: usize,
}

#[derive(Debug, Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

/// What the feed's thread takes out of the inbox.
#[derive(Debug)]
enum Taken {
    Transform(Arc<str>, Arrival),
    TransformsLost { displaced: u64, missed: u64 },
    Sensor { place: usize, content: Place },
}

impl Inbox {
    fn new(places: usize) -> Self {
        let mut inbox = Self::default();
        let waiting = inbox.waiting.get_mut().unwrap_or_else(PoisonError::into_inner);
        waiting.places.resize_with(places, Place::default);
        inbox
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: usize, received: Received) {
        let arrived = Instant::now();
        let mut waiting = self.lock();
        if waiting.places.len() <= place {
            waiting.places.resize_with(place + 1, Place::default);
        }
        if let Some(place) = waiting.places.get_mut(place) {
            place.missed = place.missed.saturating_add(received.missed_before);
            let displaced = place.newest.replace((received, arrived));
            place.displaced += u64::from(displaced.is_some());
        }
        drop(waiting);
        self.filled.notify_one();
    }

    fn put_transforms(&self, topic: &Arc<str>, received: Received) {
        let arrived = Instant::now();
        let mut waiting = self.lock();
        waiting.transforms_missed = waiting.transforms_missed.saturating_add(received.missed_before);
        if waiting.transforms.len() >= TRANSFORMS {
            // What is fixed is not sent again, so what moves gives way first.
            let moving = waiting
                .transforms
                .iter()
                .position(|(topic, _)| **topic == *TF_TOPIC);
            waiting.transforms.remove(moving.unwrap_or(0));
            waiting.transforms_displaced += 1;
        }
        waiting
            .transforms
            .push_back((Arc::clone(topic), (received, arrived)));
        drop(waiting);
        self.filled.notify_one();
    }

    /// The next thing that waits, transforms before the data that may need them; `None` after a while without.
    fn take(&self) -> Option<Taken> {
        let mut waiting = self.lock();
        if waiting.next().is_none() {
            let woken = self.filled.wait_timeout(waiting, NAP);
            (waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        waiting.take()
    }
}

impl Waiting {
    /// The place that is to be emptied next.
    fn next(&self) -> Option<usize> {
        let count = self.places.len();
        if !self.transforms.is_empty() || self.transforms_displaced > 0 || self.transforms_missed > 0 {
            return Some(count);
        }
        let mut places = (0..count).map(|i| (self.turn + i) % count);
        places.find(|&place| self.places[place].newest.is_some())
    }

    fn take(&mut self) -> Option<Taken> {
        if self.transforms_displaced > 0 || self.transforms_missed > 0 {
            return Some(Taken::TransformsLost {
                displaced: std::mem::take(&mut self.transforms_displaced),
                missed: std::mem::take(&mut self.transforms_missed),
            });
        }
        if let Some((topic, arrival)) = self.transforms.pop_front() {
            return Some(Taken::Transform(topic, arrival));
        }
        let place = self.next()?;
        self.turn = place + 1;
        Some(Taken::Sensor {
            place,
            content: std::mem::take(&mut self.places[place]),
        })
    }
}

/// Subscriptions to the topics of sensors, by their places in the inbox.
type Subscriptions = Vec<Option<Box<dyn RosSubscription>>>;

impl LiveFeed {
    /// Subscribes to transforms, where they are asked for.
    fn subscribe_to_transforms(&self, inbox: &Arc<Inbox>) -> Result<Subscriptions, String> {
        let transforms = [
            (TF_TOPIC, Qos::reliable(100)),
            (TF_STATIC_TOPIC, Qos::latched(STATIC_TRANSFORMS)),
        ];
        let wanted = transforms.into_iter().filter(|_| self.transforms);
        let subscribed = wanted.map(|(name, qos)| {
            let (inbox, topic) = (Arc::clone(inbox), Arc::from(name));
            let on_message: OnMessage = Box::new(move |received| inbox.put_transforms(&topic, received));
            let made = self.graph.subscribe(name, TF_TYPE, qos, on_message);
            made.map(Some).map_err(|error| error.to_string())
        });
        subscribed.collect()
    }

    /// Subscribes to what is wanted and is not subscribed to, and leaves what is wanted no more.
    fn follow(
        &self,
        topics: &[LiveTopic],
        inbox: &Arc<Inbox>,
        subscriptions: &mut Subscriptions,
    ) -> Result<(), String> {
        subscriptions.resize_with(topics.len(), || None);
        for (place, (topic, subscription)) in topics.iter().zip(subscriptions).enumerate() {
            if !topic.wanted {
                *subscription = None;
            } else if subscription.is_none() {
                let inbox = Arc::clone(inbox);
                let on_message: OnMessage = Box::new(move |received| inbox.put(place, received));
                let made =
                    self.graph
                        .subscribe(&topic.name, topic.type_name, Qos::sensor_data(1), on_message);
                *subscription = Some(made.map_err(|error| error.to_string())?);
            }
        }
        Ok(())
    }

    /// Hands over what was taken out of the inbox; `false` if nobody takes it any more.
    fn hand_over(&self, stage: &Playback, topics: &[LiveTopic], taken: Taken) -> bool {
        let message = |topic: &Arc<str>, type_name: &str, (received, arrived): Arrival| {
            let message = Message {
                topic: Arc::clone(topic),
                type_name: type_name.into(),
                log_time_ns: u64::try_from(self.graph.clock().now_ns()).unwrap_or(0),
                data: received.data,
                beside: Vec::new(),
                parts: Vec::new(),
            };
            (message, arrived)
        };
        match taken {
            Taken::TransformsLost { displaced, missed } => {
                let topic = Arc::from(TF_TOPIC);
                stage.lost(&topic, missed, DropReason::NotDelivered)
                    && stage.lost(&topic, displaced, DropReason::ChannelFullOldest)
            }
            Taken::Transform(topic, arrival) => {
                let (message, arrived) = message(&topic, TF_TYPE, arrival);
                stage.hand_over_live(message, arrived)
            }
            Taken::Sensor { place, content } => {
                let Some(LiveTopic {
                    name: topic,
                    type_name,
                    ..
                }) = topics.get(place)
                else {
                    return true;
                };
                stage.lost(topic, content.missed, DropReason::NotDelivered)
                    && stage.lost(topic, content.displaced, DropReason::ChannelFullOldest)
                    && content.newest.is_none_or(|arrival| {
                        let (message, arrived) = message(topic, type_name, arrival);
                        stage.hand_over_live(message, arrived)
                    })
            }
        }
    }
}

impl Feed for LiveFeed {
    fn play(&mut self, stage: &Playback) {
        let inbox = Arc::new(Inbox::new(0));
        let mut subscriptions = Subscriptions::new();
        let _transforms = match self.subscribe_to_transforms(&inbox) {
            Ok(transforms) => transforms,
            Err(reason) => return stage.damaged(reason),
        };
        while !stage.is_over() {
            let topics = self.desk.lock().clone();
            if let Err(reason) = self.follow(&topics, &inbox, &mut subscriptions) {
                return stage.damaged(reason);
            }
            if let Some(taken) = inbox.take()
                && !self.hand_over(stage, &topics, taken)
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(byte: u8, missed_before: u64) -> Received {
        Received {
            data: vec![byte],
            source_time_ns: None,
            missed_before,
        }
    }

    #[test]
    fn the_newest_message_of_a_topic_waits_and_the_others_are_counted() {
        let inbox = Inbox::new(2);
        inbox.put(0, received(1, 0));
        inbox.put(0, received(2, 5));
        inbox.put(0, received(3, 1));
        inbox.put(1, received(9, 0));
        let Some(Taken::Sensor { place: 0, content }) = inbox.take() else {
            panic!("the first place first");
        };
        assert_eq!((content.displaced, content.missed), (2, 6));
        assert_eq!(content.newest.map(|(received, _)| received.data), Some(vec![3]));
        // The other one has its turn even if the first is filled again.
        inbox.put(0, received(4, 0));
        assert!(matches!(inbox.take(), Some(Taken::Sensor { place: 1, .. })));
        assert!(matches!(inbox.take(), Some(Taken::Sensor { place: 0, .. })));
        assert!(inbox.take().is_none());
    }

    /// Three LiDARs at 10 Hz, and a reader that is held up once for more than a scan: from the next scan on it has the
    /// newest of each again.
    #[test]
    fn after_a_stall_the_newest_scans_are_read_again() {
        let inbox = Inbox::new(3);
        for scan in 0..8 {
            for place in 0..3 {
                inbox.put(place, received(scan, 0));
            }
            if scan == 3 {
                continue;
            }
            for _ in 0..3 {
                let Some(Taken::Sensor { content, .. }) = inbox.take() else {
                    panic!("a scan of each");
                };
                assert_eq!(
                    content.newest.map(|(received, _)| received.data),
                    Some(vec![scan])
                );
                assert_eq!(content.displaced, u64::from(scan == 4));
            }
        }
        assert!(inbox.lock().next().is_none());
    }

    #[test]
    fn transforms_go_before_sensors_and_lost_ones_are_told() {
        let inbox = Inbox::new(1);
        inbox.put(0, received(1, 0));
        let (topic, fixed): (Arc<str>, Arc<str>) = (TF_TOPIC.into(), TF_STATIC_TOPIC.into());
        inbox.put_transforms(&fixed, received(8, 0));
        inbox.put_transforms(&topic, received(7, 2));
        for _ in 0..TRANSFORMS + 1 {
            inbox.put_transforms(&topic, received(7, 0));
        }
        let lost = inbox.take();
        assert!(
            matches!(
                lost,
                Some(Taken::TransformsLost {
                    displaced: 3,
                    missed: 2
                })
            ),
            "{lost:?}"
        );
        for i in 0..TRANSFORMS {
            let Some(Taken::Transform(topic, _)) = inbox.take() else {
                panic!("transform {i}");
            };
            assert_eq!(*topic == *fixed, i == 0, "what is fixed stays");
        }
        assert!(matches!(inbox.take(), Some(Taken::Sensor { .. })));
    }
}
