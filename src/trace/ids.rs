//! Ids of what a runner keeps: indices that remember which runner they belong to, so that an id of another
//! runner is an error and never another tensor.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{TraceError, TraceRunner};

/// Tells one runner of this process from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RunnerKey(u32);

impl RunnerKey {
    pub(super) fn next() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $kind:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name {
                runner: RunnerKey,
                index: usize,
            }

            impl $name {
                pub(super) const fn new(runner: RunnerKey, index: usize) -> Self {
                    Self { runner, index }
                }

                /// Index into the tables of the runner that handed the id out.
                pub(super) fn of(self, runner: &TraceRunner) -> Result<usize, TraceError> {
                    runner.alive()?;
                    if self.runner != runner.key {
                        return Err(TraceError::ForeignId {
                            runner: runner.name.clone(),
                            kind: $kind,
                        });
                    }
                    Ok(self.index)
                }
            }
        )*
    };
}

ids! {
    /// A registered input.
    InputId, "input";
    /// A registered parameter.
    ParamId, "parameter";
    /// A registered state.
    StateId, "state";
    /// A registered variant.
    VariantId, "variant";
}

/// One of a state's banks, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BankIndex(pub usize);
