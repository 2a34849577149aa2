//! Names of nodes and topics, and how a relative one becomes fully qualified.

use std::fmt;

use super::RosError;

/// A node's name and namespace, both valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeName {
    namespace: String,
    name: String,
}

impl NodeName {
    /// A node in a namespace; an empty one, or one without its leading slash, is put right.
    ///
    /// # Errors
    /// [`RosError::Name`].
    pub fn new(namespace: &str, name: &str) -> Result<Self, RosError> {
        if let Err(reason) = check_token(name) {
            return Err(refuse("node", name, reason));
        }
        let inner = namespace.trim_start_matches('/');
        if !inner.is_empty() {
            check_path(inner).map_err(|reason| refuse("namespace", namespace, reason))?;
        }
        Ok(Self {
            namespace: format!("/{inner}"),
            name: name.to_owned(),
        })
    }

    /// The node of a fully qualified name, such as `/perception/lidar_centerpoint`.
    ///
    /// # Errors
    /// [`RosError::Name`].
    pub fn of_full(name: &str) -> Result<Self, RosError> {
        let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
        Self::new(namespace, name)
    }

    /// The namespace, with its leading slash: `/` or `/perception`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name alone.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fully qualified form of a topic: `/a/b` stays, `~/a` is put below the node, anything else below its
    /// namespace.
    ///
    /// # Errors
    /// [`RosError::Name`].
    pub fn resolve(&self, topic: &str) -> Result<String, RosError> {
        let refused = |reason| refuse("topic", topic, reason);
        let (base, rest) = match topic.strip_prefix("~/") {
            Some(rest) => (self.to_string(), rest),
            None => match topic.strip_prefix('/') {
                Some(rest) => (String::new(), rest),
                None if topic == "~" => return Err(refused("expected a name behind `~/`")),
                None => (self.namespace.trim_end_matches('/').to_owned(), topic),
            },
        };
        check_path(rest).map_err(refused)?;
        Ok(format!("{base}/{rest}"))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace.trim_end_matches('/'), self.name)
    }
}

/// Rules that give topics other names, in the order of their use: the first one that fits is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaps(Vec<(String, String)>);

impl Remaps {
    /// Rules `from` → `to`, each name resolved as a topic of the node.
    ///
    /// # Errors
    /// [`RosError::Name`].
    pub fn new<'a>(
        node: &NodeName,
        rules: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, RosError> {
        let resolved = |(from, to): (&str, &str)| Ok((node.resolve(from)?, node.resolve(to)?));
        rules
            .into_iter()
            .map(resolved)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether there is no rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The topic's name in the graph, of a name as [`NodeName::resolve`] takes it.
    ///
    /// # Errors
    /// [`RosError::Name`].
    pub fn apply(&self, node: &NodeName, topic: &str) -> Result<String, RosError> {
        let topic = node.resolve(topic)?;
        let rule = self.0.iter().find(|(from, _)| *from == topic);
        Ok(rule.map_or(topic, |(_, to)| to.clone()))
    }
}

fn refuse(what: &'static str, name: &str, reason: &str) -> RosError {
    RosError::Name {
        what,
        name: name.to_owned(),
        reason: reason.to_owned(),
    }
}

fn check_path(path: &str) -> Result<(), &'static str> {
    path.split('/').try_for_each(check_token)
}

fn check_token(token: &str) -> Result<(), &'static str> {
    match token.chars().next() {
        None => Err("expected names joined by single slashes"),
        Some(first) if first.is_ascii_digit() => Err("no part may start with a digit"),
        _ if token.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => Ok(()),
        _ => Err("expected letters, digits and underscores"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Result<NodeName, RosError> {
        NodeName::new("perception/lidar", "centerpoint")
    }

    #[test]
    fn topics_are_resolved_as_ros_does() -> Result<(), RosError> {
        let node = node()?;
        assert_eq!(node.to_string(), "/perception/lidar/centerpoint");
        for (topic, full) in [
            ("/points", "/points"),
            ("points", "/perception/lidar/points"),
            ("a/b", "/perception/lidar/a/b"),
            (
                "~/input/pointcloud",
                "/perception/lidar/centerpoint/input/pointcloud",
            ),
        ] {
            assert_eq!(node.resolve(topic)?, full);
        }
        let root = NodeName::new("/", "n")?;
        assert_eq!(root.to_string(), "/n");
        assert_eq!(
            (root.resolve("t")?, root.resolve("~/t")?),
            ("/t".into(), "/n/t".into())
        );
        assert_eq!(NodeName::new("", "n")?, root);
        Ok(())
    }

    #[test]
    fn what_ros_does_not_allow_is_refused_by_name() -> Result<(), RosError> {
        let node = node()?;
        for topic in [
            "", "/", "~", "~/", "a//b", "a/", "/1a", "a b", "a*", "a/~/b", "ä", "{x}",
        ] {
            assert!(
                matches!(node.resolve(topic), Err(RosError::Name { .. })),
                "{topic:?}"
            );
        }
        for name in ["", "a/b", "1", "a-b", "~"] {
            assert!(NodeName::new("/", name).is_err(), "{name:?}");
        }
        assert!(NodeName::new("/a//b", "n").is_err());
        Ok(())
    }

    #[test]
    fn the_first_rule_that_fits_renames_a_topic() -> Result<(), RosError> {
        let node = node()?;
        let rules = [
            ("~/input/pointcloud", "/sensing/points"),
            ("objects", "out"),
            ("~/input/pointcloud", "/no"),
        ];
        let remaps = Remaps::new(&node, rules)?;
        assert_eq!(remaps.apply(&node, "~/input/pointcloud")?, "/sensing/points");
        assert_eq!(
            remaps.apply(&node, "/perception/lidar/objects")?,
            "/perception/lidar/out"
        );
        assert_eq!(remaps.apply(&node, "other")?, "/perception/lidar/other");
        assert!(Remaps::new(&node, [("a", "b c")]).is_err());
        Ok(())
    }
}
