//! Publishing over zenoh.

use std::collections::HashMap;

use zenoh::bytes::Encoding;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::{Config, Session};

use crate::pipeline::{ZenohMode, ZenohPublisherSettings};

/// Why zenoh cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZenohError {
    /// A setting that zenoh refuses.
    #[error("zenoh setting {key} = {value}: {reason}")]
    Setting {
        /// Name in zenoh's configuration.
        key: &'static str,
        /// The refused value.
        value: String,
        /// What zenoh says.
        reason: String,
    },
    /// The session cannot be opened.
    #[error("the zenoh session cannot be opened: {0}")]
    Open(String),
    /// A key that cannot be published on.
    #[error("cannot publish on {key}: {reason}")]
    Publish {
        /// The key.
        key: String,
        /// What zenoh says.
        reason: String,
    },
    /// The session did not close.
    #[error("the zenoh session did not close: {0}")]
    Close(String),
}

/// Publishes JSON on one key a stream. Keys are declared on first use.
#[derive(Debug)]
pub struct ZenohPublisher {
    session: Session,
    publishers: HashMap<String, Publisher<'static>>,
}

impl ZenohPublisher {
    /// Joins the network as `settings` say.
    ///
    /// # Errors
    /// [`ZenohError::Setting`], [`ZenohError::Open`] (an endpoint that cannot be reached or bound, for
    /// example).
    pub async fn open(settings: &ZenohPublisherSettings) -> Result<Self, ZenohError> {
        let mut config = Config::default();
        let mode = match settings.mode {
            ZenohMode::Client => "client",
            _ => "peer",
        };
        set(&mut config, "mode", format!("\"{mode}\""))?;
        for (key, endpoints) in [
            ("connect/endpoints", &settings.connect),
            ("listen/endpoints", &settings.listen),
        ] {
            if !endpoints.is_empty() {
                set(
                    &mut config,
                    key,
                    serde_json::Value::from(endpoints.clone()).to_string(),
                )?;
            }
        }
        if !settings.connect.is_empty() {
            // Where endpoints are named, no others are looked for.
            set(&mut config, "scouting/multicast/enabled", "false".to_owned())?;
        }
        let session = zenoh::open(config)
            .await
            .map_err(|e| ZenohError::Open(words(&e)))?;
        Ok(Self {
            session,
            publishers: HashMap::new(),
        })
    }

    /// Publishes one JSON document. A subscriber that cannot keep up loses samples on the network; this side
    /// never waits for it.
    ///
    /// # Errors
    /// [`ZenohError::Publish`].
    pub async fn put(&mut self, key: &str, json: Vec<u8>) -> Result<(), ZenohError> {
        let failed = |reason: zenoh::Error| ZenohError::Publish {
            key: key.into(),
            reason: words(&reason),
        };
        if !self.publishers.contains_key(key) {
            let publisher = self
                .session
                .declare_publisher(key.to_owned())
                .encoding(Encoding::APPLICATION_JSON)
                .congestion_control(CongestionControl::Drop)
                .await
                .map_err(failed)?;
            self.publishers.insert(key.to_owned(), publisher);
        }
        match self.publishers.get(key) {
            Some(publisher) => publisher.put(json).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Leaves the network.
    ///
    /// # Errors
    /// [`ZenohError::Close`].
    pub async fn close(self) -> Result<(), ZenohError> {
        drop(self.publishers);
        self.session
            .close()
            .await
            .map_err(|e| ZenohError::Close(words(&e)))
    }
}

/// What zenoh says, without the places in its source code that it adds.
pub(crate) fn words(error: &zenoh::Error) -> String {
    let text = error.to_string();
    let mut words = text.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "at" && words.peek().is_some_and(|place| place.contains(".rs:")) {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

fn set(config: &mut Config, key: &'static str, value: String) -> Result<(), ZenohError> {
    config.insert_json5(key, &value).map_err(|e| ZenohError::Setting {
        key,
        value,
        reason: words(&e),
    })
}
