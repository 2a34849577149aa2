//! What the demo's cameras saw, against what is there.

use std::collections::HashMap;
use std::fs;
use std::io::BufReader;
use std::path::Path;

use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::json;

use crate::accuracy::{BoxAccuracy, ImageBoxes, LabelledBox, ReportedImage, evaluate_boxes, read_images};
use crate::io::sim::TrueBox;
use crate::outputs::ObjectLabel;
use crate::runtime::TruthImage;
use crate::telemetry::report::{QualityTable, ReportPictures};

/// Overlap (intersection over union) at which a box counts as right.
const MATCH_OVERLAP: f32 = 0.5;
/// Share of a road user that has to be seen for it to count.
const LEAST_VISIBLE: f32 = 0.25;
/// Height from which on pedestrians count, in pixels.
const LEAST_PEDESTRIAN_PX: f32 = 20.0;
/// Height from which on everybody else counts, in pixels.
const LEAST_OTHER_PX: f32 = 12.0;

/// Whether a road user can be expected to be found.
fn counts(truth: &TrueBox) -> bool {
    let [_, top, _, bottom] = truth.box_px;
    let least_px = match truth.label {
        ObjectLabel::Pedestrian => LEAST_PEDESTRIAN_PX,
        _ => LEAST_OTHER_PX,
    };
    truth.visible_share() >= LEAST_VISIBLE && bottom - top >= least_px
}

/// Writes the truth of every image as a line of JSON.
pub(super) fn write_truth(path: &Path, images: &[TruthImage]) -> miette::Result<()> {
    let mut text = Vec::new();
    for image in images {
        let boxes: Vec<_> = image
            .boxes
            .iter()
            .map(|truth| {
                json!({
                    "id": truth.id,
                    "label": truth.label.name(),
                    "box_xyxy": truth.box_px,
                    "visible_share": truth.visible_share(),
                    "distance_m": truth.distance_m,
                })
            })
            .collect();
        let line = json!({ "stream": &*image.stream, "stamp_ns": image.stamp_ns, "boxes": boxes });
        serde_json::to_writer(&mut text, &line).into_diagnostic()?;
        text.push(b'\n');
    }
    fs::write(path, text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} cannot be written", path.display()))
}

/// What was found in the images, against what is there.
pub(super) fn quality(detections: &Path, truth: &[TruthImage]) -> miette::Result<QualityTable> {
    let found = fs::File::open(detections).into_diagnostic()?;
    let found = read_images(BufReader::new(found))
        .map_err(|error| miette!("{}, line {}: {}", detections.display(), error.line, error.problem))?;
    let classes = evaluate_boxes(&side_by_side(found, truth), MATCH_OVERLAP);
    let head = [
        "class",
        "there",
        "found",
        "missed",
        "false",
        "precision",
        "recall",
        "AP",
    ];
    let shown = classes
        .iter()
        .filter(|class| class.objects + class.hits + class.false_alarms > 0);
    Ok(QualityTable {
        title: "Cameras, YOLOX".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: shown.map(row).collect(),
        note: format!(
            "A box is right if it overlaps one of its class that no better one took by {MATCH_OVERLAP} or more \
             (intersection over union). Of what is hidden to more than {:.0} %, pedestrians lower than \
             {LEAST_PEDESTRIAN_PX} px and others lower than {LEAST_OTHER_PX} px nothing counts; what is on dropped \
             images is missed. AP: area under precision over recall, of what is reported.",
            (1.0 - LEAST_VISIBLE) * 100.0
        ),
    })
}

fn side_by_side(found: Vec<ReportedImage>, truth: &[TruthImage]) -> Vec<ImageBoxes> {
    let mut reported: HashMap<(String, i64), Vec<LabelledBox>> = found
        .into_iter()
        .map(|image| ((image.stream, image.stamp_ns), image.boxes))
        .collect();
    let with_truth = truth.iter().map(|image| ImageBoxes {
        found: reported
            .remove(&(image.stream.to_string(), image.stamp_ns))
            .unwrap_or_default(),
        truth: image
            .boxes
            .iter()
            .map(|truth| LabelledBox {
                label: truth.label.name().to_owned(),
                box_xyxy: truth.box_px,
                score: 1.0,
                counts: counts(truth),
            })
            .collect(),
    });
    with_truth.collect()
}

fn row(class: &BoxAccuracy) -> Vec<String> {
    let share = |part: usize, of: usize| match of {
        0 => "-".to_owned(),
        of => format!("{:.2}", part as f64 / of as f64),
    };
    vec![
        class.label.clone(),
        class.objects.to_string(),
        class.hits.to_string(),
        (class.objects - class.hits).to_string(),
        class.false_alarms.to_string(),
        share(class.hits, class.hits + class.false_alarms),
        share(class.hits, class.objects),
        match class.objects {
            0 => "-".to_owned(),
            _ => format!("{:.2}", class.average_precision),
        },
    ]
}

/// Lays the truth over the pictures of images.
pub(super) fn add_truth(pictures: &mut ReportPictures, truth: &[TruthImage]) {
    for frame in &mut pictures.frames {
        let image = truth
            .iter()
            .find(|image| image.stamp_ns == frame.stamp_ns && *image.stream == *frame.stream);
        if let Some(image) = image {
            let boxes = image.boxes.iter().filter(|truth| counts(truth));
            frame.truth = boxes.map(|truth| truth.box_px).collect();
        }
    }
}
