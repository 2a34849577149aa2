//! `foxglove.ImageAnnotations`: boxes and labels over an image, as the Foxglove viewer draws them.
//!
//! Messages are JSON in the shape of Foxglove's public JSON schema
//! (<https://docs.foxglove.dev/docs/sdk/schemas/image-annotations>): a box is a `points` annotation of type
//! `LINE_LOOP`, its label a `texts` annotation at the box's top left corner.

use serde::Serialize;
use serde_json::json;

use crate::outputs::Detections2D;

/// Name of the schema.
pub const IMAGE_ANNOTATIONS: &str = "foxglove.ImageAnnotations";

/// `PointsAnnotationType.LINE_LOOP`.
const LINE_LOOP: u8 = 2;
const THICKNESS_PX: f64 = 2.0;
const FONT_SIZE_PX: f64 = 14.0;

#[derive(Debug, Serialize)]
struct ImageAnnotations {
    circles: [(); 0],
    points: Vec<PointsAnnotation>,
    texts: Vec<TextAnnotation>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Time {
    sec: u32,
    nsec: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Point {
    x: f32,
    y: f32,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Color {
    pub(super) r: f64,
    pub(super) g: f64,
    pub(super) b: f64,
    pub(super) a: f64,
}

#[derive(Debug, Serialize)]
struct PointsAnnotation {
    timestamp: Time,
    r#type: u8,
    points: [Point; 4],
    outline_color: Color,
    outline_colors: [(); 0],
    fill_color: Color,
    thickness: f64,
}

#[derive(Debug, Serialize)]
struct TextAnnotation {
    timestamp: Time,
    position: Point,
    text: String,
    font_size: f64,
    text_color: Color,
    background_color: Color,
}

/// One message with every detection of an image, as JSON.
///
/// `stamp_ns` is the stamp of the image, by which the viewer pairs the two; it must be the image's own.
///
/// # Errors
/// The serialiser's; none is known for this shape.
pub fn image_annotations(detections: &Detections2D, stamp_ns: u64) -> serde_json::Result<Vec<u8>> {
    let timestamp = Time {
        // Foxglove's seconds are 32 bits: good until February 2106.
        sec: u32::try_from(stamp_ns / 1_000_000_000).unwrap_or(u32::MAX),
        nsec: (stamp_ns % 1_000_000_000) as u32,
    };
    let mut message = ImageAnnotations {
        circles: [],
        points: Vec::with_capacity(detections.detections.len()),
        texts: Vec::with_capacity(detections.detections.len()),
    };
    for detection in &detections.detections {
        let [left, top, right, bottom] = detection.box_xyxy;
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        let color = class_color(detection.label_id);
        message.points.push(PointsAnnotation {
            timestamp,
            r#type: LINE_LOOP,
            points: corners.map(|(x, y)| Point { x, y }),
            outline_color: color,
            outline_colors: [],
            fill_color: Color { a: 0.0, ..color },
            thickness: THICKNESS_PX,
        });
        message.texts.push(TextAnnotation {
            timestamp,
            position: Point { x: left, y: top },
            text: format!("{} {:.2}", detections.label(detection), detection.score),
            font_size: FONT_SIZE_PX,
            text_color: Color {
                r: 1.0,
                g: 1.0,
                b: 1.0,
                a: 1.0,
            },
            background_color: Color { a: 0.6, ..color },
        });
    }
    serde_json::to_vec(&message)
}

/// A colour that stays with its class: hues a golden angle apart, equally bright.
pub(super) fn class_color(label_id: u32) -> Color {
    let hue = f64::from(label_id) * 0.618_033_988_749_895 % 1.0 * 6.0;
    let channel = |offset: f64| {
        let place = (hue + offset) % 6.0;
        0.15 + 0.7 * (1.0 - (place.min(4.0 - place)).clamp(0.0, 1.0))
    };
    Color {
        r: channel(0.0),
        g: channel(4.0),
        b: channel(2.0),
        a: 1.0,
    }
}

/// The JSON schema of [`IMAGE_ANNOTATIONS`], for the recording's schema record.
#[must_use]
pub fn image_annotations_schema() -> String {
    let time = json!({
        "type": "object", "title": "time",
        "properties": {
            "sec": {"type": "integer", "minimum": 0},
            "nsec": {"type": "integer", "minimum": 0, "maximum": 999_999_999}
        }
    });
    let point = json!({
        "type": "object", "title": "foxglove.Point2",
        "properties": {"x": {"type": "number"}, "y": {"type": "number"}}
    });
    let color = json!({
        "type": "object", "title": "foxglove.Color",
        "properties": {
            "r": {"type": "number"}, "g": {"type": "number"},
            "b": {"type": "number"}, "a": {"type": "number"}
        }
    });
    let circles = json!({
        "type": "object", "title": "foxglove.CircleAnnotation",
        "properties": {
            "timestamp": time, "position": point, "diameter": {"type": "number"},
            "thickness": {"type": "number"}, "fill_color": color, "outline_color": color
        }
    });
    let kinds = ["UNKNOWN", "POINTS", "LINE_LOOP", "LINE_STRIP", "LINE_LIST"];
    let kinds: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(value, title)| json!({"title": title, "const": value}))
        .collect();
    let points = json!({
        "type": "object", "title": "foxglove.PointsAnnotation",
        "properties": {
            "timestamp": time,
            "type": {"title": "foxglove.PointsAnnotationType", "oneOf": kinds},
            "points": {"type": "array", "items": point},
            "outline_color": color,
            "outline_colors": {"type": "array", "items": color},
            "fill_color": color,
            "thickness": {"type": "number"}
        }
    });
    let texts = json!({
        "type": "object", "title": "foxglove.TextAnnotation",
        "properties": {
            "timestamp": time, "position": point, "text": {"type": "string"},
            "font_size": {"type": "number"}, "text_color": color, "background_color": color
        }
    });
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": IMAGE_ANNOTATIONS,
        "type": "object",
        "properties": {
            "circles": {"type": "array", "items": circles},
            "points": {"type": "array", "items": points},
            "texts": {"type": "array", "items": texts}
        }
    });
    schema.to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::outputs::Detection2D;

    #[test]
    fn a_box_becomes_a_closed_line_with_its_label() {
        let detection = Detection2D {
            label_id: 1,
            score: 0.875,
            box_xyxy: [10.0, 20.5, 30.0, 40.0],
        };
        let labels = ["person".to_owned(), "dog".to_owned()];
        let all = Detections2D::new(vec![detection], labels.into(), "m".into(), "cam".into(), [64, 48]);
        let json = image_annotations(&all, 1_700_000_000_000_000_007).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["circles"], json!([]));
        let line = &value["points"][0];
        assert_eq!(line["type"], 2);
        assert_eq!(line["timestamp"], json!({"sec": 1_700_000_000, "nsec": 7}));
        let corners = json!([
            {"x": 10.0, "y": 20.5}, {"x": 30.0, "y": 20.5}, {"x": 30.0, "y": 40.0}, {"x": 10.0, "y": 40.0}
        ]);
        assert_eq!(line["points"], corners);
        assert_eq!(value["texts"][0]["text"], "dog 0.88");
        assert_eq!(value["texts"][0]["position"], json!({"x": 10.0, "y": 20.5}));
    }

    #[test]
    fn class_colors_are_in_range_and_differ() {
        let colors: Vec<Color> = (0..80).map(class_color).collect();
        for (i, c) in colors.iter().enumerate() {
            assert!(
                [c.r, c.g, c.b].iter().all(|v| (0.0..=1.0).contains(v)),
                "{i}: {c:?}"
            );
            let same = |d: &Color| (d.r - c.r).abs() + (d.g - c.g).abs() + (d.b - c.b).abs() < 1e-3;
            assert_eq!(colors.iter().filter(|d| same(d)).count(), 1, "{i}");
        }
    }
}
