//! What tells ROS 2 which node the endpoints of a DDS participant belong to: a message on `ros_discovery_info` after
//! every change.

use rustdds::GUID;

use crate::io::cdr::{CdrError, CdrWriter};
use crate::io::ros::{NodeName, Qos};

/// Topic of the graph; ROS 2 puts no prefix before it.
pub(super) const TOPIC: &str = "ros_discovery_info";
/// Its type.
pub(super) const TYPE: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";
/// Its quality of service: whoever comes late gets the newest state.
pub(super) const QOS: Qos = Qos::latched(1);

/// The endpoints of one node.
#[derive(Debug)]
pub(super) struct Graph {
    participant: GUID,
    node: NodeName,
    /// Bytes of an id: 24 for Humble and older, of which 8 are padding, otherwise 16.
    id_len: usize,
    readers: Vec<GUID>,
    writers: Vec<GUID>,
}

impl Graph {
    pub(super) fn new(participant: GUID, node: NodeName, humble: bool) -> Self {
        Self {
            participant,
            node,
            id_len: if humble { 24 } else { 16 },
            readers: Vec::new(),
            writers: Vec::new(),
        }
    }

    pub(super) fn add_reader(&mut self, id: GUID) {
        self.readers.push(id);
    }

    pub(super) fn add_writer(&mut self, id: GUID) {
        self.writers.push(id);
    }

    /// Takes a reader or a writer out.
    pub(super) fn remove(&mut self, id: GUID) {
        self.readers.retain(|&other| other != id);
        self.writers.retain(|&other| other != id);
    }

    /// The message that says so: `rmw_dds_common/msg/ParticipantEntitiesInfo`.
    pub(super) fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let mut message = CdrWriter::with_capacity(256);
        self.write_id(&mut message, self.participant);
        // One node.
        message.len_prefix(1)?;
        message.string(self.node.namespace())?;
        message.string(self.node.name())?;
        for ids in [&self.readers, &self.writers] {
            message.len_prefix(ids.len())?;
            ids.iter().for_each(|&id| self.write_id(&mut message, id));
        }
        Ok(message.finish())
    }

    fn write_id(&self, message: &mut CdrWriter, id: GUID) {
        let bytes = id.to_bytes();
        let padding = std::iter::repeat_n(0, self.id_len.saturating_sub(bytes.len()));
        bytes.into_iter().chain(padding).for_each(|byte| message.u8(byte));
    }
}
