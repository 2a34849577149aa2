//! Results on topics of the ROS 2 graph, and beside them what Autoware's detectors say of their work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::diagnostics::{Diagnostics, ProcessingWatch, Updater, capacity_status};
use super::published::{encode, results_type};
use super::{Audience, RosClock, RosGraph};
use crate::io::messages::{
    DIAGNOSTIC_ARRAY_TYPE, FLOAT64_STAMPED_TYPE, Float64StampedMsg, HeaderMsg, PUBLISHED_TIME_TYPE,
    PublishedTimeMsg,
};
use crate::io::ros::{Qos, RosError, RosPublisher};
use crate::perception::Sensor;
use crate::pipeline::{DiagnosticsSettings, Ros2PublisherSettings};
use crate::runtime::frame::{Detected, Sample};
use crate::runtime::meter::Meter;
use crate::runtime::poses::Poses;
use crate::runtime::sinks::Sink;
use crate::telemetry::{MonotonicClock, Stage};

/// What a sink is made from.
pub(crate) struct RosSinkParts<'a> {
    /// The node.
    pub graph: Arc<RosGraph>,
    /// What the pipeline file says.
    pub settings: &'a Ros2PublisherSettings,
    /// Where it says what counts as slow.
    pub diagnostics: DiagnosticsSettings,
    /// Name of the sink, where the node has more than one.
    pub scope: Option<&'a str>,
    /// The streams whose results come here, and what they are of.
    pub streams: Vec<(Arc<str>, Sensor)>,
    /// Transforms, where a detector asks for them.
    pub poses: Option<Arc<Poses>>,
    /// Measures when frames are published, if this sink is to.
    pub meter: Option<Arc<Meter>>,
    /// Clock of the run.
    pub clock: MonotonicClock,
}

/// Publishes results as Autoware's detectors do.
#[derive(Debug)]
pub(crate) struct RosSink {
    streams: HashMap<Arc<str>, StreamOutputs>,
    debug: Option<Debug>,
    meter: Option<Arc<Meter>>,
}

#[derive(Debug)]
struct StreamOutputs {
    objects: Arc<dyn RosPublisher>,
    published_time: Option<Arc<dyn RosPublisher>>,
}

/// What is told beside the results.
#[derive(Debug)]
struct Debug {
    cyclic_time: Arc<dyn RosPublisher>,
    processing_time: Arc<dyn RosPublisher>,
    pipeline_latency: Arc<dyn RosPublisher>,
    diagnostics: Arc<Diagnostics>,
    watch: Arc<Mutex<ProcessingWatch>>,
    /// End of the frame before.
    cycle: Option<Instant>,
    ros_clock: RosClock,
    clock: MonotonicClock,
    /// Says how the node is between frames.
    _updater: Updater,
}

impl RosSink {
    /// Starts to publish.
    ///
    /// # Errors
    /// [`RosError`].
    pub(crate) fn open(parts: RosSinkParts<'_>) -> Result<Self, RosError> {
        let graph = &parts.graph;
        let settings = parts.settings;
        let mut by_topic: HashMap<String, Arc<dyn RosPublisher>> = HashMap::new();
        let mut publisher = |topic: String, type_name: &str| -> Result<Arc<dyn RosPublisher>, RosError> {
            if let Some(known) = by_topic.get(&topic) {
                return Ok(Arc::clone(known));
            }
            let made = graph.publisher(&topic, type_name, Qos::reliable(1))?;
            by_topic.insert(topic, Arc::clone(&made));
            Ok(made)
        };
        let mut streams = HashMap::new();
        for (stream, sensor) in parts.streams {
            let topic = graph.topic(&settings.topic_of(&stream))?;
            let published_time = format!("{topic}/debug/published_time");
            let outputs = StreamOutputs {
                objects: publisher(topic, results_type(sensor))?,
                published_time: if settings.debug {
                    Some(publisher(published_time, PUBLISHED_TIME_TYPE)?)
                } else {
                    None
                },
            };
            streams.insert(stream, outputs);
        }
        // Names of nodes may have what names of topics may not; those of a vehicle begin with their pipeline's.
        let topic_part = |name: &str| name.replace('-', "_").replace('.', "/");
        let mut debug_topic = |name: &str| {
            let scope = parts
                .scope
                .map_or(String::new(), |scope| format!("{}/", topic_part(scope)));
            publisher(format!("~/{scope}debug/{name}"), FLOAT64_STAMPED_TYPE)
        };
        let debug = if settings.debug {
            let ros_clock = graph.clock().clone();
            let diagnostics = Arc::new(Diagnostics {
                node: graph.node_name().to_owned(),
                clock: ros_clock.clone(),
                publisher: graph.publisher("/diagnostics", DIAGNOSTIC_ARRAY_TYPE, Qos::reliable(10))?,
            });
            let task = match parts.scope {
                Some(scope) => format!("{scope}/processing_time_status"),
                None => "processing_time_status".to_owned(),
            };
            let watch = Arc::new(Mutex::new(ProcessingWatch::new(parts.diagnostics, task)));
            let interval_ms = parts.diagnostics.validation_callback_interval_ms;
            let updater = Updater::start(
                Arc::clone(&diagnostics),
                Arc::clone(&watch),
                parts.poses,
                Duration::from_millis(interval_ms.into()),
            );
            Some(Debug {
                cyclic_time: debug_topic("cyclic_time_ms")?,
                processing_time: debug_topic("processing_time_ms")?,
                pipeline_latency: debug_topic("pipeline_latency_ms")?,
                diagnostics,
                watch,
                cycle: None,
                ros_clock,
                clock: parts.clock,
                _updater: updater
                    .map_err(|error| RosError::Open(format!("no thread for diagnostics: {error}")))?,
            })
        } else {
            None
        };
        Ok(Self {
            streams,
            debug,
            meter: parts.meter,
        })
    }

    /// Adds the topics that results go to.
    pub(crate) fn add_to(&self, audience: &mut Audience) {
        for (stream, outputs) in &self.streams {
            audience.add(Arc::clone(stream), Arc::clone(&outputs.objects));
        }
    }

    fn publish(&mut self, sample: &Sample<Detected>) -> Result<(), String> {
        let meta = &sample.meta;
        let outputs = self
            .streams
            .get(&meta.stream)
            .ok_or_else(|| format!("no topic for the stream {}", meta.stream))?;
        let header = HeaderMsg::new(meta.stamp_ns, &meta.frame_id)
            .ok_or_else(|| format!("the stamp {} ns does not fit a message", meta.stamp_ns))?;
        let objects = encode(header, &sample.payload.detections).map_err(|error| error.to_string())?;
        outputs
            .objects
            .publish(objects)
            .map_err(|error| error.to_string())?;
        if let Some(debug) = &mut self.debug
            && let Err(error) = debug.tell(sample, header, outputs.published_time.as_deref())
        {
            tracing::debug!(error, "what goes beside a result cannot be published");
        }
        Ok(())
    }
}

impl Debug {
    /// Tells how long a frame took, and when it was published.
    fn tell(
        &mut self,
        sample: &Sample<Detected>,
        header: HeaderMsg<'_>,
        published_time: Option<&dyn RosPublisher>,
    ) -> Result<(), String> {
        let meta = &sample.meta;
        let now = Instant::now();
        let cyclic_ms = self
            .cycle
            .replace(now)
            .map(|before| (now - before).as_secs_f64() * 1e3);
        let started_ns = meta.times.span(Stage::Prepare).map(|span| span.started_ns);
        let processing_ms =
            started_ns.map(|started_ns| self.clock.now_ns().saturating_sub(started_ns) as f64 / 1e6);
        // Before the first message on /clock there is no time to compare with.
        let now_ns = Some(self.ros_clock.now_ns()).filter(|now_ns| *now_ns > 0);
        let latency_ms = now_ns.map(|now_ns| now_ns.saturating_sub(meta.stamp_ns) as f64 / 1e6);
        if let Some(processing_ms) = processing_ms {
            let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
            watch.took(processing_ms);
        }
        let stamp = self.ros_clock.stamp();
        for (publisher, value) in [
            (&self.cyclic_time, cyclic_ms),
            (&self.processing_time, processing_ms),
            (&self.pipeline_latency, latency_ms),
        ] {
            if let Some(data) = value {
                let message = Float64StampedMsg { stamp, data }.encode();
                publisher.publish(message).map_err(|error| error.to_string())?;
            }
        }
        if let Some(published_time) = published_time
            && published_time.has_subscribers()
        {
            let message = PublishedTimeMsg {
                header,
                published_stamp: stamp,
            };
            let bytes = message.encode().map_err(|error| error.to_string())?;
            published_time.publish(bytes).map_err(|error| error.to_string())?;
        }
        if let Some(within) = meta.within_capacity {
            self.diagnostics.publish(&[capacity_status(within)])?;
        }
        Ok(())
    }
}

impl Sink for RosSink {
    const GOES_ON: bool = true;

    async fn write(&mut self, sample: &Arc<Sample<Detected>>) -> Result<(), String> {
        let published = self.publish(sample);
        if let Some(meter) = &self.meter {
            meter.published(sample);
        }
        published
    }

    // Publishers have nothing of their own that could be broken: the node holds the connection.
    async fn recover(&mut self) -> Result<(), String> {
        Ok(())
    }

    async fn finish(self) -> Result<(), String> {
        Ok(())
    }
}
