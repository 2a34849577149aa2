//! Who else is there: the tokens of the graph as they come and go.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::ros::wire::{EntityKind, Token};

/// The nodes and endpoints that are known, by their tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    keys: Arc<Mutex<BTreeSet<String>>>,
}

impl Graph {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a token.
    pub(super) fn add(&self, key: &str) {
        self.keys().insert(key.to_owned());
    }

    /// Forgets a token.
    pub(super) fn remove(&self, key: &str) {
        self.keys().remove(key);
    }

    /// Every token that can be read, in the order of their texts. What other programs put under the same prefix is
    /// left out.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.keys()
            .iter()
            .filter_map(|key| Token::parse(key).ok())
            .collect()
    }

    /// Whether an endpoint of this kind, topic and type is known.
    pub(super) fn has(&self, kind: EntityKind, topic: &str, type_name: &str) -> bool {
        self.keys()
            .iter()
            .filter_map(|key| Token::parse(key).ok())
            .any(|token| {
                token.entity.is_some_and(|entity| {
                    entity.kind == kind && entity.topic == topic && entity.type_name == type_name
                })
            })
    }
}
