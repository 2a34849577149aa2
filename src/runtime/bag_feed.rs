//! A bag as a feed of a source.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frame::Message;
use super::source::{Feed, Playback, TopicDesk};
use super::topics::{PlayedTopic, choose_topics};
use crate::io::bag::{Bag, BagMessage};
use crate::perception::Sensor;
use crate::pipeline::Topics;

/// A bag, and the topics of it that are played.
pub(crate) struct BagFeed {
    desk: Arc<BagDesk>,
    /// Messages of each topic that were handed over or passed by.
    passed: HashMap<Arc<str>, u64>,
    /// Time of the last message that was handed over, in nanoseconds.
    at_ns: u64,
    /// Places that cannot be read and were told of.
    troubles: usize,
}

/// Which topics of a bag are played.
#[derive(Debug)]
pub(crate) struct BagDesk {
    node: String,
    bag: Bag,
    topics: Mutex<Vec<Arc<str>>>,
}

/// Why a pass over a bag ended.
#[derive(Debug, PartialEq, Eq)]
enum Pass {
    /// There is nothing left, or nobody takes it.
    Over,
    /// Other topics are asked for.
    Replanned,
}

impl BagFeed {
    /// A bag of which these topics are played, for the source of this name.
    pub(crate) fn new(node: &str, bag: Bag, topics: Vec<Arc<str>>) -> Self {
        Self {
            desk: Arc::new(BagDesk {
                node: node.to_owned(),
                bag,
                topics: Mutex::new(topics),
            }),
            passed: HashMap::new(),
            at_ns: 0,
            troubles: 0,
        }
    }

    /// Where it is decided which topics are played.
    pub(crate) fn desk(&self) -> Arc<BagDesk> {
        Arc::clone(&self.desk)
    }

    /// Plays what is left of these topics.
    fn pass(&mut self, topics: &[Arc<str>], stage: &Playback) -> Pass {
        let desk = Arc::clone(&self.desk);
        let names: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
        let messages = match desk.bag.messages(&names) {
            Ok(messages) => messages,
            Err(error) => {
                stage.damaged(error.to_string());
                return Pass::Over;
            }
        };
        // What was taken away and is added again is played on from where the bag is, too.
        self.passed.retain(|topic, _| topics.contains(topic));
        let mut skip = self.passed.clone();
        let mut troubles = 0;
        for message in messages {
            let BagMessage {
                topic,
                type_name,
                log_time_ns,
                data,
                ..
            } = match message {
                Ok(message) => message,
                Err(error) => {
                    troubles += 1;
                    if troubles > self.troubles {
                        self.troubles = troubles;
                        stage.damaged(error.to_string());
                    }
                    continue;
                }
            };
            match skip.get_mut(&topic) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    continue;
                }
                Some(_) => {}
                // A topic that was added: it is played on from where the bag is.
                None if log_time_ns < self.at_ns => {
                    *self.passed.entry(topic).or_default() += 1;
                    continue;
                }
                None => {
                    skip.insert(Arc::clone(&topic), 0);
                }
            }
            let message = Message {
                topic: Arc::clone(&topic),
                type_name,
                log_time_ns,
                data,
                beside: Vec::new(),
                parts: Vec::new(),
            };
            if !stage.hand_over(message) {
                return Pass::Over;
            }
            *self.passed.entry(topic).or_default() += 1;
            self.at_ns = self.at_ns.max(log_time_ns);
            if *desk.lock() != topics {
                return Pass::Replanned;
            }
        }
        Pass::Over
    }
}

impl Feed for BagFeed {
    fn play(&mut self, stage: &Playback) {
        loop {
            let topics = self.desk.lock().clone();
            if self.pass(&topics, stage) == Pass::Over {
                return;
            }
        }
    }
}

impl BagDesk {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<str>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicDesk for BagDesk {
    fn find(&self, topic: &str, sensors: &[Sensor]) -> Result<PlayedTopic, String> {
        let wanted = Topics::Listed(vec![topic.to_owned()]);
        let found = choose_topics(&self.node, &self.bag, &wanted, sensors).map_err(|e| e.to_string())?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| "it has no such topic".to_owned())
    }

    fn add(&self, topic: PlayedTopic) {
        let mut topics = self.lock();
        if !topics.contains(&topic.name) {
            topics.push(topic.name);
        }
    }

    fn remove(&self, topic: &str) {
        self.lock().retain(|known| **known != *topic);
    }
}
