//! Who else is there: the tokens of the graph as they come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::ros::wire::{EntityKind, Token};

/// The nodes and endpoints that are known, by their tokens. What other programs put under the same prefix is left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    tokens: Arc<Mutex<BTreeMap<String, Token>>>,
}

impl Graph {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Token>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a token.
    pub(super) fn add(&self, key: &str) {
        if let Ok(token) = Token::parse(key) {
            self.lock().insert(key.to_owned(), token);
        }
    }

    /// Forgets a token.
    pub(super) fn remove(&self, key: &str) {
        self.lock().remove(key);
    }

    /// Every token, in the order of their texts.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.lock().values().cloned().collect()
    }

    /// Whether an endpoint of this kind, topic and type is known.
    pub(super) fn has(&self, kind: EntityKind, topic: &str, type_name: &str) -> bool {
        self.lock().values().any(|token| {
            token.entity.as_ref().is_some_and(|entity| {
                entity.kind == kind && entity.topic == topic && entity.type_name == type_name
            })
        })
    }
}
