//! Publishing over zenoh.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Sink, frame_line};
use crate::io::zenoh::ZenohPublisher;
use crate::pipeline::ZenohPublisherSettings;
use crate::runtime::frame::{Detected, Sample};
use crate::runtime::meter::Meter;
use crate::telemetry::StreamId;

/// Publishes each result as JSON on the key of its stream.
#[derive(Debug)]
pub(crate) struct PublisherSink {
    /// Away only while it is opened again.
    publisher: Option<ZenohPublisher>,
    settings: ZenohPublisherSettings,
    keys: HashMap<StreamId, String>,
    /// The first publisher of a pipeline tells when a frame was published.
    meter: Option<Arc<Meter>>,
    with_latency: bool,
}

impl PublisherSink {
    /// A sink on an open session.
    #[must_use]
    pub(crate) fn new(
        publisher: ZenohPublisher,
        settings: ZenohPublisherSettings,
        meter: Option<Arc<Meter>>,
        with_latency: bool,
    ) -> Self {
        Self {
            publisher: Some(publisher),
            settings,
            keys: HashMap::new(),
            meter,
            with_latency,
        }
    }
}

impl Sink for PublisherSink {
    const GOES_ON: bool = true;

    async fn write(&mut self, sample: &Arc<Sample<Detected>>) -> Result<(), String> {
        let json = serde_json::to_vec(&frame_line(sample, self.with_latency)).map_err(|e| e.to_string())?;
        let settings = &self.settings;
        let key = self
            .keys
            .entry(sample.meta.id.stream)
            .or_insert_with(|| settings.key_of(&sample.meta.stream));
        let published = match &mut self.publisher {
            Some(publisher) => publisher.put(key, json).await.map_err(|e| e.to_string()),
            None => Err("the zenoh session is not open".to_owned()),
        };
        if let Some(meter) = &self.meter {
            meter.published(sample);
        }
        published
    }

    async fn recover(&mut self) -> Result<(), String> {
        if let Some(publisher) = self.publisher.take() {
            // It failed before, and is not used any more.
            let _ = publisher.close().await;
        }
        let opened = ZenohPublisher::open(&self.settings).await;
        self.publisher = Some(opened.map_err(|e| e.to_string())?);
        Ok(())
    }

    async fn finish(self) -> Result<(), String> {
        match self.publisher {
            Some(publisher) => publisher.close().await.map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }
}
