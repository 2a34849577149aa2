//! Parameters of a detector that may be set while frames flow.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Map, Value};

use crate::perception::{CallParam, CallParamError, CallParams};

/// The parameters that hold for a detector's next frame.
#[derive(Debug)]
pub(crate) struct LiveParams {
    declared: Vec<CallParam>,
    current: RwLock<Current>,
}

#[derive(Debug, Default)]
struct Current {
    given: Map<String, Value>,
    checked: Arc<CallParams>,
}

impl LiveParams {
    /// What a model declares, with nothing set.
    pub(crate) fn new(declared: Vec<CallParam>) -> Self {
        Self {
            declared,
            current: RwLock::default(),
        }
    }

    /// What holds now.
    pub(crate) fn current(&self) -> Arc<CallParams> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.checked)
    }

    /// Sets one parameter beside those that are set.
    ///
    /// # Errors
    /// [`CallParamError`]; nothing is changed.
    pub(crate) fn set(&self, name: &str, value: Value) -> Result<(), CallParamError> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let mut given = current.given.clone();
        given.insert(name.to_owned(), value);
        let checked = Arc::new(CallParams::check_json(&self.declared, &given)?);
        *current = Current { given, checked };
        Ok(())
    }

    /// The parameters that are set, by name.
    pub(crate) fn given(&self) -> Map<String, Value> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.given.clone()
    }
}
