//! Boxes in images as JSON lines.

use std::io::BufRead;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};

use super::boxes::LabelledBox;
use super::lines::{LineError, LineProblem};

/// The boxes that were reported for one image.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedImage {
    /// Name of the stream.
    pub stream: String,
    /// Stamp of the image in nanoseconds.
    pub stamp_ns: i64,
    /// What was found.
    pub boxes: Vec<LabelledBox>,
}

#[derive(Deserialize)]
struct Line {
    stream: String,
    stamp_ns: i64,
    detections: Option<Vec<LineBox>>,
    /// Objects on the road: not what is read here.
    objects: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct LineBox {
    label: String,
    score: f32,
    box_xyxy: [f32; 4],
}

/// Reads the JSON lines of a run with a camera detector: in each line `stream`, `stamp_ns` and `detections`, each with
/// `label`, `score` and `box_xyxy`. Empty lines and those of sweeps (`objects`) are passed over.
///
/// # Errors
/// [`LineError`] for the first line that cannot be used.
pub fn read_images(input: impl BufRead) -> Result<Vec<ReportedImage>, LineError> {
    let mut images = Vec::new();
    for (line, text) in (1..).zip(input.lines()) {
        let at_line = |problem| LineError { line, problem };
        let text = text.map_err(|e| at_line(LineProblem::Read(e)))?;
        if text.trim().is_empty() {
            continue;
        }
        let parsed: Line = serde_json::from_str(&text).map_err(|e| at_line(LineProblem::Form(e)))?;
        let detections = match (parsed.detections, parsed.objects) {
            (Some(detections), _) => detections,
            (None, Some(_)) => continue,
            (None, None) => {
                let missing = serde_json::Error::missing_field("detections");
                return Err(at_line(LineProblem::Form(missing)));
            }
        };
        let boxes = detections.into_iter().map(|found| LabelledBox {
            label: found.label,
            box_xyxy: found.box_xyxy,
            score: found.score,
            counts: true,
        });
        images.push(ReportedImage {
            stream: parsed.stream,
            stamp_ns: parsed.stamp_ns,
            boxes: boxes.collect(),
        });
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_the_first_bad_one_is_named() {
        let good = r#"{"stream":"front","seq":0,"stamp_ns":5,"detections":[{"label":"CAR","label_id":0,"score":0.5,"box_xyxy":[1,2,3,4]}]}"#;
        let sweep = r#"{"stream":"lidar","seq":0,"stamp_ns":5,"objects":[]}"#;
        let images = read_images(format!("{good}\n\n{sweep}\n").as_bytes()).unwrap();
        assert_eq!(images.len(), 1);
        assert_eq!(
            (
                images[0].stream.as_str(),
                images[0].stamp_ns,
                images[0].boxes.len()
            ),
            ("front", 5, 1)
        );
        let error = read_images(format!("{good}\n{{}}\n").as_bytes()).unwrap_err();
        assert_eq!(error.line, 2);
    }
}
