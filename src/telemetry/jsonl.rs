//! One line of JSON for every frame that came out.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::{FrameTimes, histogram::us};
use crate::outputs::{DetectedObject, Detection2D, Detections, Detections2D};

/// The record of one frame. Fields are written in the order in which they stand here; scores and boxes as the
/// shortest decimals that read back as the same `f32`.
#[derive(Debug, Clone, Serialize)]
pub struct FrameLine<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// Position in the stream, from 0; missing numbers were dropped.
    pub seq: u64,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
    /// Coordinate frame of the sensor.
    pub frame_id: &'a str,
    /// What was found, best score first: `detections` in an image, each with `label`, `label_id`, `score` and `box_xyxy`
    /// (pixels of the source image), or `objects` on the road, as [`DetectedObject`].
    #[serde(flatten)]
    pub found: Found<'a>,
    /// Microseconds per stage and in total; left out where outputs must not depend on time.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "latencies")]
    pub latency_us: Option<&'a FrameTimes>,
    /// Frames of this stream that were dropped since the frame that came out before.
    pub dropped_before: u64,
    /// The result stands on no earlier frame of its stream: the stream's states started afresh with it, or, of models
    /// without states, it is the first since a lost device was opened again. Left out where it is false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// Topics of the sensors that are missing in a set or in a cloud that is made of one; left out where none is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<&'a str>,
}

/// What was found in a frame.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found<'a> {
    /// Boxes in an image.
    #[serde(serialize_with = "detection_lines")]
    Detections(&'a Detections2D),
    /// Objects on the road.
    Objects(&'a [DetectedObject]),
}

impl<'a> From<&'a Detections> for Found<'a> {
    fn from(detections: &'a Detections) -> Self {
        match detections {
            Detections::Image(found) => Self::Detections(found),
            Detections::Objects(found) => Self::Objects(&found.objects),
        }
    }
}

#[derive(Serialize)]
struct DetectionLine<'a> {
    label: &'a str,
    #[serde(flatten)]
    detection: &'a Detection2D,
}

fn detection_lines<S: Serializer>(detections: &Detections2D, serializer: S) -> Result<S::Ok, S::Error> {
    let mut lines = serializer.serialize_seq(Some(detections.detections.len()))?;
    for detection in &detections.detections {
        lines.serialize_element(&DetectionLine {
            label: &detections.label(detection),
            detection,
        })?;
    }
    lines.end()
}

/// Each stage with its wait, so that the stages add up to the total: the end of the last stage that has ended
/// minus the intended release.
fn latencies<S: Serializer>(times: &Option<&FrameTimes>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    if let Some(times) = times {
        let mut total_ns = 0;
        for (stage, span) in times.spans() {
            map.serialize_entry(stage.name(), &us(span.wait_ns() + span.service_ns()))?;
            total_ns = span.finished_ns.saturating_sub(times.released_ns());
        }
        map.serialize_entry("total", &us(total_ns))?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::telemetry::Stage;

    fn detections() -> Detections2D {
        let detection = Detection2D {
            label_id: 1,
            score: 0.855_3,
            box_xyxy: [0.1, 2.0, 300.25, 1e-3],
        };
        let labels: Arc<[String]> = Arc::from(["cat".to_owned(), "dog \"x\"".to_owned()]);
        Detections2D::new(
            vec![detection],
            labels,
            "m".into(),
            "cam_optical".into(),
            [640, 480],
        )
    }

    #[test]
    fn a_line_has_exactly_the_documented_fields_in_order() {
        let mut times = FrameTimes::new(1_000);
        times.begin(Stage::Ingest, 2_000);
        times.end(Stage::Ingest, 3_500);
        times.begin(Stage::Replay, 4_000);
        times.end(Stage::Replay, 10_001);
        let detections = detections();
        let line = FrameLine {
            stream: "/cam",
            seq: 7,
            stamp_ns: 1_700_000_000_123_456_789,
            frame_id: &detections.frame_id,
            found: Found::Detections(&detections),
            latency_us: Some(&times),
            dropped_before: 2,
            fresh: true,
            missing: vec!["/lidar/left"],
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            concat!(
                r#"{"stream":"/cam","seq":7,"stamp_ns":1700000000123456789,"frame_id":"cam_optical","#,
                r#""detections":[{"label":"dog \"x\"","label_id":1,"score":0.8553,"#,
                r#""box_xyxy":[0.1,2.0,300.25,0.001]}],"#,
                r#""latency_us":{"ingest":2.5,"replay":6.501,"total":9.001},"dropped_before":2,"fresh":true,"#,
                r#""missing":["/lidar/left"]}"#
            )
        );
    }

    #[test]
    fn without_latency_the_line_depends_on_the_data_alone() {
        let mut detections = detections();
        detections.detections.clear();
        let line = FrameLine {
            stream: "s",
            seq: 0,
            stamp_ns: -5,
            frame_id: "",
            found: Found::Detections(&detections),
            latency_us: None,
            dropped_before: 0,
            fresh: false,
            missing: Vec::new(),
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"stream":"s","seq":0,"stamp_ns":-5,"frame_id":"","detections":[],"dropped_before":0}"#
        );
    }
}
