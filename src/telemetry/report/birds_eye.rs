//! Sweeps seen from above, with what was found in them and, where it is known, what is really there.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::gallery::{COLOURS, stamp};
use super::markup::escape;
use crate::lidar::Columns;
use crate::outputs::DetectedObject;

/// Width and height of the picture of the points in pixels.
const SIDE_PX: usize = 960;

/// Height above the sensor's origin from which on points have the brightest colour, and below which the darkest, in metres.
const HEIGHTS_M: [f32; 2] = [-2.2, 2.0];

/// A sweep that the report shows from above.
#[derive(Debug, Clone)]
pub struct SweepFrame {
    /// Name of the stream.
    pub stream: String,
    /// Position in the stream.
    pub seq: u64,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
    /// The points, from [`birds_eye_png`] with the same extent.
    pub png: Vec<u8>,
    /// Metres from the sensor to each edge of the picture.
    pub extent_m: f32,
    /// The objects that were found.
    pub objects: Vec<DetectedObject>,
    /// The objects that are there, where that is known.
    pub truth: Vec<DetectedObject>,
}

/// The points of a sweep from above, x upwards and y to the left, as a PNG. Higher points are brighter.
///
/// # Errors
/// The encoder's, which can only be out of memory.
pub fn birds_eye_png(points: Columns<'_>, extent_m: f32) -> Result<Vec<u8>, png::EncodingError> {
    let mut pixels = vec![0_u8; SIDE_PX * SIDE_PX];
    let per_m = SIDE_PX as f32 / (2.0 * extent_m);
    let [low, high] = HEIGHTS_M;
    for ((&x, &y), &z) in points.x.iter().zip(points.y).zip(points.z) {
        let (row, column) = ((extent_m - x) * per_m, (extent_m - y) * per_m);
        let inside = |at: f32| at >= 0.0 && at < SIDE_PX as f32;
        // False for what is no number.
        if !(inside(row) && inside(column)) || z.is_nan() {
            continue;
        }
        let level = ((z - low) / (high - low)).clamp(0.0, 1.0);
        let pixel = &mut pixels[row as usize * SIDE_PX + column as usize];
        *pixel = (*pixel).max(1 + (level * 254.0) as u8);
    }
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, SIDE_PX as u32, SIDE_PX as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette());
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(png)
}

/// Black for nothing, then from dark blue over teal to pale yellow.
fn palette() -> Vec<u8> {
    const STOPS: [[f32; 3]; 4] = [
        [66.0, 92.0, 140.0],
        [70.0, 156.0, 176.0],
        [140.0, 210.0, 160.0],
        [250.0, 240.0, 180.0],
    ];
    let mut palette = vec![13, 17, 23];
    for level in 0..255 {
        let at = level as f32 / 254.0 * (STOPS.len() - 1) as f32;
        let stop = (at as usize).min(STOPS.len() - 2);
        let part = at - stop as f32;
        for (from, to) in STOPS[stop].iter().zip(STOPS[stop + 1]) {
            palette.push((from + (to - from) * part) as u8);
        }
    }
    palette
}

/// What the lines of the figures mean.
pub(super) const LEGEND: &str = "<p class=\"note\">Seen from above, forward is up; rings every 10 m. White dashes: what is there. \
     Coloured boxes: what was found, with class and score; the line from the middle points to the front.</p>\n";

/// A sweep as a figure.
pub(super) fn figure(frame: &SweepFrame) -> String {
    let extent = f64::from(frame.extent_m);
    let side = 2.0 * extent;
    let stream = escape(&frame.stream);
    let text = match frame.truth.len() {
        0 => format!("{} objects", frame.objects.len()),
        there => format!("{} objects found, {there} there", frame.objects.len()),
    };
    let mut html = format!(
        "<figure class=\"sweep\"><svg viewBox=\"0 0 {side} {side}\" role=\"img\" aria-label=\"{stream} #{}: {text}\">\
         <image width=\"{side}\" height=\"{side}\" href=\"data:image/png;base64,{}\"/>",
        frame.seq,
        STANDARD.encode(&frame.png)
    );
    let mut radius = 10.0;
    while radius < extent {
        _ = write!(
            html,
            "<circle cx=\"{extent}\" cy=\"{extent}\" r=\"{radius}\" fill=\"none\" stroke=\"#8b98a5\" stroke-opacity=\".25\" \
             stroke-width=\".12\"/>"
        );
        radius += 10.0;
    }
    for object in &frame.truth {
        outline(
            &mut html,
            object,
            extent,
            "#ffffff",
            "stroke-dasharray=\".8 .5\" stroke-width=\".22\"",
        );
    }
    // Best score last, so that it lies on top.
    for object in frame.objects.iter().rev() {
        let colour = COLOURS[object.label as usize % COLOURS.len()];
        outline(&mut html, object, extent, colour, "stroke-width=\".3\"");
        label(&mut html, object, extent, colour);
    }
    _ = write!(
        html,
        "</svg><figcaption><b>{stream}</b> #{} <span>stamp {} s</span> <span>{text}</span></figcaption></figure>",
        frame.seq,
        stamp(frame.stamp_ns)
    );
    html
}

/// Where a place lies in the picture.
fn place(x_m: f64, y_m: f64, extent: f64) -> [f64; 2] {
    [extent - y_m, extent - x_m]
}

fn outline(svg: &mut String, object: &DetectedObject, extent: f64, colour: &str, stroke: &str) {
    let [x, y, _] = object.position_m;
    let [length, width, _] = object.size_m;
    let (sin, cos) = object.yaw_rad.sin_cos();
    if ![x, y, length, width, sin].iter().all(|v| v.is_finite()) {
        return;
    }
    let corner = |along: f64, across: f64| {
        place(
            x + along * length / 2.0 * cos - across * width / 2.0 * sin,
            y + along * length / 2.0 * sin + across * width / 2.0 * cos,
            extent,
        )
    };
    _ = write!(
        svg,
        "<g fill=\"none\" stroke=\"{colour}\" {stroke}><polygon points=\""
    );
    for [px, py] in [
        corner(1.0, 1.0),
        corner(1.0, -1.0),
        corner(-1.0, -1.0),
        corner(-1.0, 1.0),
    ] {
        _ = write!(svg, "{px:.2},{py:.2} ");
    }
    let ([x0, y0], [x1, y1]) = (place(x, y, extent), corner(1.0, 0.0));
    _ = write!(svg, "\"/><path d=\"M{x0:.2} {y0:.2}L{x1:.2} {y1:.2}\"/></g>");
}

fn label(svg: &mut String, object: &DetectedObject, extent: f64, colour: &str) {
    let [px, py] = place(object.position_m[0], object.position_m[1], extent);
    if !(px.is_finite() && py.is_finite()) {
        return;
    }
    let name = object.label.name();
    let offset = object.size_m[0].max(object.size_m[1]) / 2.0 + 0.6;
    _ = write!(
        svg,
        "<text class=\"box\" x=\"{:.2}\" y=\"{:.2}\" font-size=\"1.5\" fill=\"{colour}\">{} {:.2}</text>",
        px + offset.min(3.0),
        py - offset.min(2.0),
        name.to_lowercase(),
        object.score
    );
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::outputs::{ObjectLabel, OrientationAvailability};

    #[test]
    fn a_point_in_front_of_the_sensor_lies_above_the_middle() {
        let points = Columns {
            x: &[5.0, f32::NAN, 1e9],
            y: &[0.0; 3],
            z: &[0.0; 3],
            intensity: &[],
        };
        let png = birds_eye_png(points, 10.0).unwrap();
        let mut decoder = png::Decoder::new(std::io::Cursor::new(&png));
        decoder.set_transformations(png::Transformations::IDENTITY);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let lit: Vec<usize> = (0..pixels.len()).filter(|&i| pixels[i] > 0).collect();
        assert_eq!(lit, [SIDE_PX / 4 * SIDE_PX + SIDE_PX / 2]);
    }

    #[test]
    fn an_object_to_the_left_lies_to_the_left_and_its_front_line_points_along_its_heading() {
        let object = DetectedObject {
            label: ObjectLabel::Car,
            score: 0.5,
            position_m: [0.0, 5.0, 0.0],
            yaw_rad: std::f64::consts::FRAC_PI_2,
            size_m: [4.0, 2.0, 1.5],
            orientation: OrientationAvailability::Available,
            twist: None,
            pose_variance: None,
            twist_variance: None,
        };
        let broken = DetectedObject {
            position_m: [f64::NAN; 3],
            ..object
        };
        let html = figure(&SweepFrame {
            stream: "/lidar <1>".into(),
            seq: 3,
            stamp_ns: 0,
            png: Vec::new(),
            extent_m: 10.0,
            objects: vec![object, broken],
            truth: Vec::new(),
        });
        // The middle is at (10, 10); five metres to the left is 5, and the front is two metres further left.
        assert!(html.contains("M5.00 10.00L3.00 10.00"), "{html}");
        assert!(!html.contains("NaN") && html.contains("car 0.50") && html.contains("&lt;1&gt;"));
    }
}
