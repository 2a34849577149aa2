//! Boxes in images as JSON lines.

use std::collections::HashMap;
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
    let mut lines_of_images = HashMap::new();
    for (line, text) in (1..).zip(input.lines()) {
        let at_line = |problem| LineError { line, problem };
        let text = text.map_err(|e| at_line(LineProblem::Read(e)))?;
        if text.trim().is_empty() {
            continue;
        }
        let parsed: Line = serde_json::from_str(&text).map_err(|e| at_line(LineProblem::ImageForm(e)))?;
        let detections = match (parsed.detections, parsed.objects) {
            (Some(detections), _) => detections,
            (None, Some(_)) => continue,
            (None, None) => {
                let missing = serde_json::Error::missing_field("detections");
                return Err(at_line(LineProblem::ImageForm(missing)));
            }
        };
        let image = (parsed.stream.clone(), parsed.stamp_ns);
        if let Some(first) = lines_of_images.insert(image, line) {
            return Err(at_line(LineProblem::ImageTwice {
                stream: parsed.stream,
                stamp_ns: parsed.stamp_ns,
                first,
            }));
        }
        let wrong = detections
            .iter()
            .position(|found| !(0.0..=1.0).contains(&found.score));
        if let Some(object) = wrong {
            return Err(at_line(LineProblem::Value {
                object,
                name: "score",
                value: f64::from(detections[object].score),
                expected: "scores go from 0 to 1",
            }));
        }
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
        let error = read_images(format!("{good}\n{good}\n").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("line 1 already"), "{error}");
        let unsure = good.replace("0.5", "1.5");
        let error = read_images(unsure.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("score 1.5"), "{error}");
    }
}
