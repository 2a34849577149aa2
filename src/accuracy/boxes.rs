//! How good boxes in images are: matched with the truth by overlap.

use std::collections::BTreeSet;

use super::PrecisionRecall;
use crate::perception::{BoxExtent, iou};

/// A box that a detector reported, or one that is really there.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledBox {
    /// Name of its class.
    pub label: String,
    /// Left, top, right and bottom in pixels of the image.
    pub box_xyxy: [f32; 4],
    /// How sure the detector is; of no meaning where the box is really there.
    pub score: f32,
    /// Whether it counts where it is really there. What is too small or too well hidden does not: it is neither missed
    /// nor is it a false alarm to report it.
    pub counts: bool,
}

/// The boxes of one image, as a detector saw them and as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageBoxes {
    /// What was found.
    pub found: Vec<LabelledBox>,
    /// What is there.
    pub truth: Vec<LabelledBox>,
}

/// How good the boxes of a class are.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxAccuracy {
    /// Name of the class.
    pub label: String,
    /// Boxes that are there and count.
    pub objects: usize,
    /// Reported boxes that are right.
    pub hits: usize,
    /// Reported boxes that are wrong.
    pub false_alarms: usize,
    /// Area under precision over recall, all points (Pascal VOC since 2010); 0 where nothing is there.
    pub average_precision: f64,
}

/// Matches boxes class by class. The surest goes first and takes the box of its class and image that it overlaps most
/// and that no other took, if the overlap (intersection over union) is at least `min_overlap`; one that does not count is
/// taken only where no other is left, by any number of reports, and then the report does not count either.
#[must_use]
pub fn evaluate_boxes(images: &[ImageBoxes], min_overlap: f32) -> Vec<BoxAccuracy> {
    let labels: BTreeSet<&str> = images
        .iter()
        .flat_map(|image| image.found.iter().chain(&image.truth))
        .map(|labelled| labelled.label.as_str())
        .collect();
    labels
        .into_iter()
        .map(|label| evaluate_class(images, label, min_overlap))
        .collect()
}

fn evaluate_class(images: &[ImageBoxes], label: &str, min_overlap: f32) -> BoxAccuracy {
    let of_class = |boxes: &'_ [LabelledBox]| -> Vec<usize> {
        (0..boxes.len()).filter(|&i| boxes[i].label == label).collect()
    };
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut objects = 0;
    for (image, boxes) in images.iter().enumerate() {
        found.extend(of_class(&boxes.found).into_iter().map(|i| (image, i)));
        let truth = of_class(&boxes.truth);
        objects += truth.iter().filter(|&&i| boxes.truth[i].counts).count();
    }
    // Stable, so equal scores stay in the order of images.
    found.sort_by(|&(a, i), &(b, j)| images[b].found[j].score.total_cmp(&images[a].found[i].score));
    let overlap = |a: &_, b: &_| iou(a, b, BoxExtent::Continuous);
    let mut taken: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut hits = Vec::new();
    for (image, i) in found {
        let report = &images[image].found[i];
        let best = |counts: bool| {
            of_class(&images[image].truth)
                .into_iter()
                .filter(|&t| images[image].truth[t].counts == counts && !taken.contains(&(image, t)))
                .map(|t| (t, overlap(&report.box_xyxy, &images[image].truth[t].box_xyxy)))
                .filter(|&(_, overlap)| overlap >= min_overlap)
                .max_by(|a, b| a.1.total_cmp(&b.1))
        };
        if let Some((t, _)) = best(true) {
            taken.insert((image, t));
            hits.push(true);
        } else if best(false).is_none() {
            hits.push(false);
        }
    }
    let reports = hits.len();
    let curve = PrecisionRecall::new(hits, objects.max(1));
    BoxAccuracy {
        label: label.to_owned(),
        objects,
        hits: curve.hits(),
        false_alarms: reports - curve.hits(),
        average_precision: if objects == 0 { 0.0 } else { curve.all_point_ap() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(label: &str, left: f32, score: f32, counts: bool) -> LabelledBox {
        LabelledBox {
            label: label.to_owned(),
            box_xyxy: [left, 0.0, left + 10.0, 10.0],
            score,
            counts,
        }
    }

    #[test]
    fn the_surest_takes_a_box_and_the_next_one_is_a_false_alarm() {
        let images = [ImageBoxes {
            found: vec![
                labelled("CAR", 1.0, 0.6, true),
                labelled("CAR", 0.0, 0.9, true),
                labelled("CAR", 90.0, 0.8, true),
            ],
            truth: vec![labelled("CAR", 0.0, 1.0, true), labelled("CAR", 50.0, 1.0, true)],
        }];
        let [car] = &evaluate_boxes(&images, 0.5)[..] else {
            panic!("one class");
        };
        assert_eq!((car.objects, car.hits, car.false_alarms), (2, 1, 2));
        assert!((car.average_precision - 0.5).abs() < 1e-12);
    }

    #[test]
    fn what_does_not_count_is_neither_missed_nor_a_false_alarm() {
        let images = [ImageBoxes {
            found: vec![labelled("CAR", 0.0, 0.9, true), labelled("CAR", 0.5, 0.8, true)],
            truth: vec![labelled("CAR", 0.0, 1.0, false)],
        }];
        let car = &evaluate_boxes(&images, 0.5)[0];
        assert_eq!((car.objects, car.hits, car.false_alarms), (0, 0, 0));
        assert!(car.average_precision.abs() < f64::EPSILON);
    }

    #[test]
    fn classes_and_images_are_kept_apart() {
        let images = [
            ImageBoxes {
                found: vec![labelled("BUS", 0.0, 0.9, true)],
                truth: vec![labelled("CAR", 0.0, 1.0, true)],
            },
            ImageBoxes {
                found: Vec::new(),
                truth: vec![labelled("BUS", 0.0, 1.0, true)],
            },
        ];
        let all = evaluate_boxes(&images, 0.5);
        let told: Vec<_> = all
            .iter()
            .map(|class| {
                (
                    class.label.as_str(),
                    class.objects,
                    class.hits,
                    class.false_alarms,
                )
            })
            .collect();
        assert_eq!(told, [("BUS", 1, 0, 1), ("CAR", 1, 0, 0)]);
    }
}
