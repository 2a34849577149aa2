//! What a bag says of its topics.

use super::{BagWarning, qos};
use crate::io::messages::{definition, type_hash};
use crate::io::ros::{Qos, TypeHash};

/// The text that defines a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeDefinition {
    /// Its language: `ros2msg`, `ros2idl`, `jsonschema`, ...
    pub encoding: String,
    /// The definition, with those that it is made of.
    pub text: String,
}

/// One topic of a bag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BagTopic {
    /// Topic name.
    pub name: String,
    /// Type in its long form, such as `sensor_msgs/msg/Image`.
    pub type_name: String,
    /// How messages are serialised, such as `cdr`.
    pub serialization: String,
    /// Messages in the files that are here.
    pub messages: u64,
    /// What its publishers offered, each profile once; empty where the bag does not say.
    pub offered_qos: Vec<Qos>,
    /// Hash of the type, where the bag has it.
    pub type_hash: Option<TypeHash>,
    /// Definition of the type, where the bag has it.
    pub definition: Option<TypeDefinition>,
}

/// A topic as one file, or `metadata.yaml`, has it.
#[derive(Debug)]
pub(super) struct FileTopic {
    pub name: String,
    pub type_name: String,
    pub serialization: String,
    pub messages: u64,
    /// Offered profiles as they are written there.
    pub offered_qos: serde_json::Value,
    /// Type hash as it is written there; empty for none.
    pub type_hash: String,
    pub definition: Option<TypeDefinition>,
}

impl BagTopic {
    /// A topic of ROS 2 messages in CDR, to be written; definition and hash are there if this crate knows the type.
    #[must_use]
    pub fn of_type(name: &str, type_name: &str) -> Self {
        Self {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            serialization: "cdr".to_owned(),
            messages: 0,
            offered_qos: Vec::new(),
            type_hash: type_hash(type_name),
            definition: definition(type_name).map(|text| TypeDefinition {
                encoding: "ros2msg".to_owned(),
                text,
            }),
        }
    }

    /// The same with an offered profile.
    #[must_use]
    pub fn offering(mut self, qos: Qos) -> Self {
        self.offered_qos.push(qos);
        self
    }

    pub(super) fn new(topic: &FileTopic) -> Self {
        Self {
            name: topic.name.clone(),
            type_name: topic.type_name.clone(),
            serialization: topic.serialization.clone(),
            messages: 0,
            offered_qos: Vec::new(),
            type_hash: None,
            definition: None,
        }
    }

    /// Takes what another part of the bag knows of this topic. What is known already stays.
    pub(super) fn learn(&mut self, topic: FileTopic, warnings: &mut Vec<BagWarning>) {
        self.messages = self.messages.saturating_add(topic.messages);
        let mut warn = |reason| {
            let warning = BagWarning::TopicDetail {
                topic: topic.name.clone(),
                reason,
            };
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        };
        let (known, unknown) = qos::profiles(&topic.offered_qos);
        unknown.into_iter().for_each(&mut warn);
        for profile in known {
            if !self.offered_qos.contains(&profile) {
                self.offered_qos.push(profile);
            }
        }
        if self.type_hash.is_none() && !topic.type_hash.is_empty() {
            match topic.type_hash.parse() {
                Ok(hash) => self.type_hash = Some(hash),
                Err(error) => warn(error.to_string()),
            }
        }
        if self.definition.is_none() {
            self.definition = topic.definition;
        }
        if self.type_name.is_empty() {
            self.type_name = topic.type_name;
        }
    }
}
