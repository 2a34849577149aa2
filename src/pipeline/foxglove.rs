//! Publishers that Foxglove connects to.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::Serialize;

use super::settings::{Edge, Node, NodeKind, OnFull, Pipeline, PublisherSettings};

/// Where a publisher listens unless the file says otherwise: the port that Foxglove asks for.
pub const FOXGLOVE_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8765));

/// Results that wait for a publisher that was added on the command line. A person who watches wants the newest.
const CAPACITY: u32 = 4;

/// Settings of a publisher that Foxglove connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FoxglovePublisherSettings {
    /// Where it listens; port 0 takes any that is free.
    pub address: SocketAddr,
}

impl Pipeline {
    /// The same pipeline with a publisher that Foxglove connects to at `address`, which all detectors feed. Where it has
    /// such a publisher already, that one listens there.
    #[must_use]
    pub fn with_foxglove(mut self, address: SocketAddr) -> Self {
        let settings = FoxglovePublisherSettings { address };
        let there = self.nodes.iter_mut().find_map(|node| match &mut node.kind {
            NodeKind::Publisher(PublisherSettings::Foxglove(settings)) => Some(settings),
            _ => None,
        });
        if let Some(there) = there {
            *there = settings;
            return self;
        }
        let is_free = |name: &String| !self.nodes.iter().any(|node| node.name == *name);
        let mut names =
            std::iter::once("foxglove".to_owned()).chain((2_u32..).map(|i| format!("foxglove_{i}")));
        let name = names.find(is_free).unwrap_or_default();
        let detectors = self
            .nodes
            .iter()
            .filter(|node| matches!(node.kind, NodeKind::Detector(_)));
        let edges: Vec<Edge> = detectors
            .map(|detector| Edge {
                from: detector.name.clone(),
                to: name.clone(),
                capacity: CAPACITY,
                on_full: OnFull::DropOldest,
            })
            .collect();
        self.edges.extend(edges);
        self.nodes.push(Node {
            name,
            kind: NodeKind::Publisher(PublisherSettings::Foxglove(settings)),
        });
        self
    }
}
