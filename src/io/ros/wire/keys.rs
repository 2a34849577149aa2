//! Key expressions of rmw_zenoh: where messages travel, and the liveliness tokens by which the graph is known.

use std::fmt;

use super::qos_text::{decode_qos, encode_qos};
use crate::io::ros::{Endpoint, NodeName, Qos};

/// What every liveliness token starts with.
pub const TOKEN_PREFIX: &str = "@ros2_lv";

/// How a distribution of ROS 2 writes type hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HashMode {
    /// As they are: Iron and later.
    #[default]
    Rihs01,
    /// As a fixed text: Humble knows none.
    Humble,
}

/// What stands for the hash in [`HashMode::Humble`].
const NO_HASH: &str = "TypeHashNotSupported";

impl HashMode {
    fn text(self, endpoint: &Endpoint) -> String {
        match self {
            Self::Rihs01 => endpoint.type_hash.to_string(),
            Self::Humble => NO_HASH.to_owned(),
        }
    }
}

/// The name that DDS has for a type: `sensor_msgs/msg/Image` becomes `sensor_msgs::msg::dds_::Image_`.
///
/// `None` where `type_name` has not three parts.
#[must_use]
pub fn dds_type(type_name: &str) -> Option<String> {
    let parts: Vec<&str> = type_name.split('/').collect();
    match parts[..] {
        [package, kind, name] if parts.iter().all(|part| is_plain(part)) => {
            Some(format!("{package}::{kind}::dds_::{name}_"))
        }
        _ => None,
    }
}

/// The way back from [`dds_type`]; `None` for a name that does not come from it.
#[must_use]
pub fn ros_type(dds: &str) -> Option<String> {
    let (package, rest) = dds.split_once("::")?;
    let (kind, rest) = rest.split_once("::dds_::")?;
    let name = rest.strip_suffix('_')?;
    let parts = [package, kind, name];
    parts.iter().all(|part| is_plain(part)).then(|| parts.join("/"))
}

fn is_plain(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The key that messages of an endpoint travel on. `None` for a type name that has not three parts.
#[must_use]
pub fn data_key(domain: u32, endpoint: &Endpoint, mode: HashMode) -> Option<String> {
    let topic = endpoint.topic.trim_matches('/');
    let (dds, hash) = (dds_type(&endpoint.type_name)?, mode.text(endpoint));
    Some(format!("{domain}/{topic}/{dds}/{hash}"))
}

/// What kind of endpoint a token tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntityKind {
    /// A publisher.
    Publisher,
    /// A subscription.
    Subscription,
    /// A service's server.
    Server,
    /// A service's client.
    Client,
}

impl EntityKind {
    const ALL: [(Self, &str); 4] = [
        (Self::Publisher, "MP"),
        (Self::Subscription, "MS"),
        (Self::Server, "SS"),
        (Self::Client, "SC"),
    ];

    fn code(self) -> &'static str {
        let found = Self::ALL.iter().find(|(kind, _)| *kind == self);
        found.map_or("", |(_, code)| code)
    }

    fn from_code(code: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, known)| *known == code);
        found.map(|(kind, _)| *kind)
    }
}

/// One liveliness token: a node, or an endpoint of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token {
    /// ROS domain.
    pub domain: u32,
    /// Identity of the zenoh session, lower-case hexadecimal.
    pub zid: String,
    /// Number of the node in its session.
    pub node_id: u64,
    /// Security enclave; `/` by default.
    pub enclave: String,
    /// The node.
    pub node: NodeName,
    /// What else is told of an endpoint; `None` for a node.
    pub entity: Option<TokenEntity>,
}

/// The part of a token that only endpoints have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenEntity {
    /// Number of the endpoint in its session.
    pub id: u64,
    /// Kind of the endpoint.
    pub kind: EntityKind,
    /// Fully qualified topic.
    pub topic: String,
    /// Type as ROS spells it, such as `sensor_msgs/msg/Image`.
    pub type_name: String,
    /// Hash of the type as it is on the wire.
    pub hash: String,
    /// Quality of service.
    pub qos: Qos,
}

impl TokenEntity {
    /// What a token says of an endpoint. `None` for a type name that has not three parts.
    #[must_use]
    pub fn new(id: u64, kind: EntityKind, endpoint: &Endpoint, mode: HashMode) -> Option<Self> {
        dds_type(&endpoint.type_name).map(|_| Self {
            id,
            kind,
            topic: endpoint.topic.clone(),
            type_name: endpoint.type_name.clone(),
            hash: mode.text(endpoint),
            qos: endpoint.qos,
        })
    }
}

/// A key that is no token of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key:?} is no liveliness token of rmw_zenoh: {reason}")]
pub struct TokenError {
    key: String,
    reason: &'static str,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain, zid, node_id, ..
        } = self;
        let (id, code) = self
            .entity
            .as_ref()
            .map_or((*node_id, "NN"), |entity| (entity.id, entity.kind.code()));
        write!(f, "{TOKEN_PREFIX}/{domain}/{zid}/{node_id}/{id}/{code}")?;
        let (namespace, name) = (self.node.namespace(), self.node.name());
        write!(f, "/{}/{}/{name}", mangle(&self.enclave), mangle(namespace))?;
        if let Some(entity) = &self.entity {
            let dds = dds_type(&entity.type_name).unwrap_or_default();
            let (topic, qos) = (mangle(&entity.topic), encode_qos(&entity.qos));
            write!(f, "/{topic}/{}/{}/{qos}", mangle(&dds), mangle(&entity.hash))?;
        }
        Ok(())
    }
}

impl Token {
    /// Reads a token. More parts than are known, as newer distributions add them, are no fault.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn parse(key: &str) -> Result<Self, TokenError> {
        let refuse = |reason| TokenError {
            key: key.chars().take(200).collect(),
            reason,
        };
        let parts: Vec<&str> = key.split('/').collect();
        let [
            prefix,
            domain,
            zid,
            node_id,
            id,
            code,
            enclave,
            namespace,
            name,
            rest @ ..,
        ] = &parts[..]
        else {
            return Err(refuse("expected at least 9 parts"));
        };
        if *prefix != TOKEN_PREFIX {
            return Err(refuse("expected @ros2_lv in front"));
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| refuse("expected numbers"));
        let domain = domain
            .parse()
            .map_err(|_| refuse("expected the number of a domain"))?;
        let node =
            NodeName::new(&unmangle(namespace), name).map_err(|_| refuse("expected the name of a node"))?;
        let entity = match (*code, rest) {
            ("NN", _) => None,
            (code, [topic, dds, hash, qos, ..]) => Some(TokenEntity {
                id: number(id)?,
                kind: EntityKind::from_code(code).ok_or_else(|| refuse("unknown kind of endpoint"))?,
                topic: unmangle(topic),
                type_name: ros_type(&unmangle(dds)).ok_or_else(|| refuse("expected the name of a type"))?,
                hash: unmangle(hash),
                qos: decode_qos(qos).ok_or_else(|| refuse("expected a quality of service"))?,
            }),
            _ => return Err(refuse("expected 13 parts for an endpoint")),
        };
        Ok(Self {
            domain,
            zid: (*zid).to_owned(),
            node_id: number(node_id)?,
            enclave: unmangle(enclave),
            node,
            entity,
        })
    }
}

/// Names with their slashes replaced, so that each is one part of a key.
fn mangle(name: &str) -> String {
    name.replace('/', "%")
}

fn unmangle(part: &str) -> String {
    part.replace('%', "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::ros::TypeHash;

    fn endpoint() -> Endpoint {
        Endpoint {
            topic: "/sensing/lidar/points".into(),
            type_name: "sensor_msgs/msg/PointCloud2".into(),
            type_hash: TypeHash([0x91; 32]),
            qos: Qos::sensor_data(5),
        }
    }

    #[test]
    fn keys_are_those_of_rmw_zenoh() {
        let hash = format!("RIHS01_{}", "91".repeat(32));
        assert_eq!(
            data_key(0, &endpoint(), HashMode::Rihs01),
            Some(format!(
                "0/sensing/lidar/points/sensor_msgs::msg::dds_::PointCloud2_/{hash}"
            ))
        );
        assert_eq!(
            data_key(7, &endpoint(), HashMode::Humble).as_deref(),
            Some("7/sensing/lidar/points/sensor_msgs::msg::dds_::PointCloud2_/TypeHashNotSupported")
        );
        let short = Endpoint {
            type_name: "sensor_msgs/PointCloud2".into(),
            ..endpoint()
        };
        assert_eq!(data_key(0, &short, HashMode::Rihs01), None);
    }

    #[test]
    fn tokens_are_written_and_read() -> Result<(), Box<dyn std::error::Error>> {
        let node = Token {
            domain: 3,
            zid: "aa0f".into(),
            node_id: 0,
            enclave: "/".into(),
            node: NodeName::new("/", "talker")?,
            entity: None,
        };
        assert_eq!(node.to_string(), "@ros2_lv/3/aa0f/0/0/NN/%/%/talker");
        assert_eq!(Token::parse(&node.to_string())?, node);
        let endpoint = Token {
            node: NodeName::new("/perception/lidar", "talker")?,
            entity: TokenEntity::new(11, EntityKind::Publisher, &endpoint(), HashMode::Rihs01),
            ..node
        };
        let text = format!(
            "@ros2_lv/3/aa0f/0/11/MP/%/%perception%lidar/talker/%sensing%lidar%points/\
             sensor_msgs::msg::dds_::PointCloud2_/RIHS01_{}/2::,5:,:,:,,",
            "91".repeat(32)
        );
        assert_eq!(endpoint.to_string(), text);
        assert_eq!(Token::parse(&text)?, endpoint);
        // Newer distributions say more.
        assert_eq!(Token::parse(&format!("{text}/backends:cpu:1"))?, endpoint);
        Ok(())
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for wrong in [
            "",
            "@ros2_lv/0/a/0/0/NN/%/%",
            "@ros2/0/a/0/0/NN/%/%/n",
            "@ros2_lv/x/a/0/0/NN/%/%/n",
            "@ros2_lv/0/a/-1/0/NN/%/%/n",
            "@ros2_lv/0/a/0/0/MP/%/%/n",
            "@ros2_lv/0/a/0/1/XX/%/%/n/%t/p::msg::dds_::T_/h/::,1:,:,:,,",
            "@ros2_lv/0/a/0/1/MP/%/%/n/%t/p::msg::T/h/::,1:,:,:,,",
            "@ros2_lv/0/a/0/1/MP/%/%/n/%t/p::msg::dds_::T_/h/q",
        ] {
            assert!(Token::parse(wrong).is_err(), "{wrong}");
        }
    }
}
