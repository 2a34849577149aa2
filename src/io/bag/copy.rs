//! Carrying messages from bags to a new one: what cutting, merging and converting have in common.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Bag, BagError, BagMessage, BagTopic, BagWriteError, BagWriter, Messages, TimeRange, TopicId};
use crate::io::ros::Durability;

/// Errors of reading that are kept; those beyond are counted.
const MAX_DAMAGE_KEPT: usize = 100;

/// Most messages, and bytes, of one latched topic that are carried over from before the start.
const MAX_LATCHED: (usize, usize) = (256, 64 << 20);

/// Which messages are carried over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Topics; `None` for all.
    pub topics: Option<BTreeSet<String>>,
    /// Log times; `None` for all.
    pub range: Option<TimeRange>,
    /// Whether what latched topics (offered as transient local, or named `tf_static`) had before the range is carried
    /// over too, logged at its start: without it nobody could use what is in the range.
    pub latched: bool,
}

/// What was carried over, and what was not.
#[derive(Debug, Default)]
pub struct Copied {
    /// Messages carried over, those of latched topics included.
    pub messages: u64,
    /// Messages of latched topics from before the start.
    pub latched: u64,
    /// What was damaged in the sources, the first hundred.
    pub damage: Vec<BagError>,
    /// How much was damaged in all.
    pub damaged: u64,
}

impl Copied {
    fn damaged(&mut self, error: BagError) {
        // A file that was cut off says so each time that it is read.
        let text = error.to_string();
        if self.damage.iter().any(|known| known.to_string() == text) {
            return;
        }
        self.damaged += 1;
        if self.damage.len() < MAX_DAMAGE_KEPT {
            self.damage.push(error);
        }
    }
}

/// Carries messages of several bags over, in the order of their log times; where these are equal, those of earlier
/// bags come first. Damage in a source costs what is damaged. `progress` is called with the number of messages so far.
///
/// # Errors
/// [`BagWriteError::TwoTypes`] before anything is written, and any of writing.
pub fn copy(
    sources: &[Bag],
    selection: &Selection,
    writer: &mut BagWriter,
    progress: &mut dyn FnMut(u64),
) -> Result<Copied, BagWriteError> {
    let topics = topics(sources, selection)?;
    let mut ids = BTreeMap::new();
    for topic in topics.values() {
        ids.insert(topic.name.as_str(), writer.add_topic(topic)?);
    }
    let mut copied = Copied::default();
    let range = selection.range.unwrap_or(TimeRange::ALL);
    if selection.latched && range.start_ns > 0 {
        latched(sources, &topics, &ids, range.start_ns, writer, &mut copied)?;
    }
    let mut sources: Vec<Source> = sources.iter().map(|bag| Source::new(bag, &ids, range)).collect();
    loop {
        let mut due: Option<(u64, usize)> = None;
        for (number, source) in sources.iter_mut().enumerate() {
            if let Some(time_ns) = source.next_time_ns(&mut copied)
                && due.is_none_or(|(first, _)| time_ns < first)
            {
                due = Some((time_ns, number));
            }
        }
        let Some((_, number)) = due else { return Ok(copied) };
        if let Some(message) = sources[number].next.take()
            && let Some(id) = ids.get(&*message.topic)
        {
            writer.write(*id, message.log_time_ns, message.publish_time_ns, &message.data)?;
            copied.messages += 1;
            progress(copied.messages);
        }
    }
}

/// One bag and the message of it that is due next.
#[derive(Debug)]
struct Source {
    messages: Option<Messages>,
    next: Option<BagMessage>,
}

impl Source {
    fn new(bag: &Bag, ids: &BTreeMap<&str, TopicId>, range: TimeRange) -> Self {
        Self {
            messages: of_topics(bag, |topic| ids.contains_key(topic.name.as_str()), range),
            next: None,
        }
    }

    fn next_time_ns(&mut self, copied: &mut Copied) -> Option<u64> {
        while self.next.is_none() {
            match self.messages.as_mut()?.next()? {
                Ok(message) => self.next = Some(message),
                Err(error) => copied.damaged(error),
            }
        }
        self.next.as_ref().map(|message| message.log_time_ns)
    }
}

/// Messages of the topics that are wanted.
fn of_topics(bag: &Bag, wanted: impl Fn(&BagTopic) -> bool, range: TimeRange) -> Option<Messages> {
    let names = bag.topics().iter().filter(|topic| wanted(topic));
    let names: Vec<&str> = names.map(|topic| topic.name.as_str()).collect();
    // The names are the bag's own.
    bag.messages_within(Some(&names), range).ok()
}

/// The topics of all sources with what each of them knows.
fn topics(sources: &[Bag], selection: &Selection) -> Result<BTreeMap<String, BagTopic>, BagWriteError> {
    let mut topics: BTreeMap<String, BagTopic> = BTreeMap::new();
    for topic in sources.iter().flat_map(Bag::topics) {
        let wanted = selection.topics.as_ref();
        if wanted.is_some_and(|wanted| !wanted.contains(&topic.name)) {
            continue;
        }
        let Some(known) = topics.get_mut(&topic.name) else {
            topics.insert(topic.name.clone(), topic.clone());
            continue;
        };
        let differ = |first: String, second: String| BagWriteError::TwoTypes {
            topic: topic.name.clone(),
            first,
            second,
        };
        if known.type_name != topic.type_name {
            return Err(differ(known.type_name.clone(), topic.type_name.clone()));
        }
        if let (Some(first), Some(second)) = (known.type_hash, topic.type_hash)
            && first != second
        {
            let named = |hash| format!("{} ({hash})", topic.type_name);
            return Err(differ(named(first), named(second)));
        }
        known.type_hash = known.type_hash.or(topic.type_hash);
        if known.definition.is_none() {
            known.definition.clone_from(&topic.definition);
        }
        for profile in &topic.offered_qos {
            if !known.offered_qos.contains(profile) {
                known.offered_qos.push(*profile);
            }
        }
    }
    Ok(topics)
}

fn is_latched(topic: &BagTopic) -> bool {
    let latched = |qos: &crate::io::ros::Qos| qos.durability == Durability::TransientLocal;
    topic.offered_qos.iter().any(latched) || topic.name.ends_with("tf_static")
}

/// Writes the last messages of latched topics from before `start_ns`.
fn latched(
    sources: &[Bag],
    topics: &BTreeMap<String, BagTopic>,
    ids: &BTreeMap<&str, TopicId>,
    start_ns: u64,
    writer: &mut BagWriter,
    copied: &mut Copied,
) -> Result<(), BagWriteError> {
    let before = TimeRange {
        start_ns: 0,
        end_ns: Some(start_ns),
    };
    let wanted = |topic: &BagTopic| topics.get(&topic.name).is_some_and(is_latched);
    let mut kept: BTreeMap<TopicId, (usize, VecDeque<BagMessage>)> = BTreeMap::new();
    for messages in sources.iter().filter_map(|bag| of_topics(bag, wanted, before)) {
        for message in messages {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    copied.damaged(error);
                    continue;
                }
            };
            let Some(id) = ids.get(&*message.topic) else {
                continue;
            };
            let (bytes, queue) = kept.entry(*id).or_default();
            *bytes += message.data.len();
            queue.push_back(message);
            while queue.len() > MAX_LATCHED.0 || (*bytes > MAX_LATCHED.1 && queue.len() > 1) {
                *bytes -= queue.pop_front().map_or(0, |oldest| oldest.data.len());
            }
        }
    }
    for (id, (_, queue)) in kept {
        for message in queue {
            writer.write(id, start_ns, start_ns, &message.data)?;
            copied.messages += 1;
            copied.latched += 1;
        }
    }
    Ok(())
}
