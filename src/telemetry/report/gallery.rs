//! Frames as pictures with the objects found in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ReportFrame;
use super::markup::escape;
use crate::outputs::{Detection2D, Detections2D};

/// Box colours by class, bright enough for dark pictures; a dark rim sets them off from light ones.
pub(super) const COLOURS: [&str; 8] = [
    "#ffb000", "#35c2ff", "#7ee081", "#ff7eb6", "#c3a6ff", "#ffe45c", "#5ce0d2", "#ff8f5c",
];

/// A frame as a figure.
pub(super) fn figure(frame: &ReportFrame) -> String {
    let width = f64::from(frame.width_px.max(1));
    let height = f64::from(frame.height_px.max(1));
    let stream = escape(&frame.stream);
    let objects = objects(&frame.detections);
    let mut html = format!(
        "<figure><svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{stream} #{}: {objects}\">",
        frame.seq
    );
    if frame.jpeg.starts_with(&[0xFF, 0xD8]) {
        _ = write!(
            html,
            "<image width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" href=\"data:image/jpeg;base64,{}\"/>",
            STANDARD.encode(&frame.jpeg)
        );
    } else {
        _ = write!(
            html,
            "<rect class=\"no-picture\" width=\"{width}\" height=\"{height}\"/>"
        );
    }
    for [x0, y0, x1, y1] in &frame.truth {
        _ = write!(
            html,
            r##"<rect class="truth-box" x="{x0:.1}" y="{y0:.1}" width="{:.1}" height="{:.1}" stroke-width="{:.2}"/>"##,
            (x1 - x0).max(0.0),
            (y1 - y0).max(0.0),
            width * 0.0025
        );
    }
    // Best score last, so that it lies on top.
    for detection in frame.detections.detections.iter().rev() {
        overlay(&mut html, &frame.detections, detection, width, height);
    }
    _ = write!(
        html,
        "</svg><figcaption><b>{stream}</b> #{} <span>stamp {} s</span> <span>{objects}</span></figcaption></figure>",
        frame.seq,
        stamp(frame.stamp_ns)
    );
    html
}

/// One box with its label above it, or inside it at the upper edge of the picture.
fn overlay(svg: &mut String, detections: &Detections2D, detection: &Detection2D, width: f64, height: f64) {
    let [x0, y0, x1, y1] = detection.box_xyxy.map(f64::from);
    if ![x0, y0, x1, y1].iter().all(|v| v.is_finite()) {
        return;
    }
    let label = detections.label(detection);
    let text = format!("{} {:.2}", escape(&label), detection.score);
    let colour = COLOURS[detection.label_id as usize % COLOURS.len()];
    // About 12 px where the picture is shown half a page wide.
    let font = (width * 0.024).max(1.0);
    let stroke = width * 0.004;
    let label_width = font * (0.602 * (label.chars().count() + 5) as f64 + 0.7);
    let label_height = font * 1.35;
    let label_x = (x0 - stroke / 2.0).min(width - label_width).max(0.0);
    let label_y = if y0 >= label_height {
        y0 - label_height
    } else {
        y0.max(0.0)
    };
    _ = write!(
        svg,
        r##"<g><rect x="{x0:.1}" y="{y0:.1}" width="{:.1}" height="{:.1}" fill="none" stroke="#000" stroke-opacity=".55" stroke-width="{:.2}"/><rect x="{x0:.1}" y="{y0:.1}" width="{:.1}" height="{:.1}" fill="none" stroke="{colour}" stroke-width="{stroke:.2}"/><rect x="{label_x:.1}" y="{label_y:.1}" width="{label_width:.1}" height="{label_height:.1}" fill="#10151b" fill-opacity=".86"/><text class="box" x="{:.1}" y="{:.1}" font-size="{font:.1}" fill="{colour}">{text}</text></g>"##,
        (x1 - x0).max(0.0),
        (y1 - y0).max(0.0),
        stroke * 2.2,
        (x1 - x0).max(0.0),
        (y1 - y0).max(0.0),
        label_x + font * 0.35,
        (label_y + font * 1.0).min(height),
    );
}

/// The number of objects and of each class, escaped; most frequent class first.
fn objects(detections: &Detections2D) -> String {
    let mut classes: BTreeMap<u32, usize> = BTreeMap::new();
    for detection in &detections.detections {
        *classes.entry(detection.label_id).or_default() += 1;
    }
    let mut classes: Vec<(u32, usize)> = classes.into_iter().collect();
    classes.sort_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
    let total = detections.detections.len();
    let mut text = format!("{total} object{}", if total == 1 { "" } else { "s" });
    for (i, (id, count)) in classes.into_iter().enumerate() {
        let name = crate::outputs::label_name(&detections.labels, id);
        _ = write!(
            text,
            "{}{count} {}",
            if i == 0 { ": " } else { ", " },
            escape(&name)
        );
    }
    text
}

/// Nanoseconds as seconds, to the last digit.
pub(super) fn stamp(stamp_ns: i64) -> String {
    let sign = if stamp_ns < 0 { "-" } else { "" };
    let ns = stamp_ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_keeps_every_digit() {
        assert_eq!(stamp(1_700_000_000_000_000_009), "1700000000.000000009");
        assert_eq!(stamp(-1), "-0.000000001");
    }

    #[test]
    fn a_frame_without_a_picture_and_a_box_without_a_place_do_no_harm() {
        let detection = |box_xyxy| Detection2D {
            label_id: 9,
            score: 0.5,
            box_xyxy,
        };
        let boxes = [[f32::NAN, 0.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]].map(detection);
        let frame = ReportFrame {
            stream: "<b>".to_owned(),
            seq: 1,
            stamp_ns: 0,
            width_px: 0,
            height_px: 0,
            jpeg: b"\x89PNG".to_vec(),
            detections: Detections2D::new(boxes.to_vec(), [].into(), "m".into(), "f".into(), [0, 0]),
            truth: Vec::new(),
        };
        let html = figure(&frame);
        assert!(!html.contains("NaN") && !html.contains("<image") && !html.contains("<b><"));
        assert!(html.contains("2 objects: 2 9"));
    }
}
