//! Results as the messages that Autoware's detectors publish.

use crate::io::cdr::CdrError;
use crate::io::messages::{
    DETECTED_OBJECTS_TYPE, DETECTED_OBJECTS_WITH_FEATURE_TYPE, DetectedObjectMsg,
    DetectedObjectWithFeatureMsg, DetectedObjectsMsg, DetectedObjectsWithFeatureMsg, FeatureMsg, HeaderMsg,
    ObjectClassificationMsg, PointCloud2Msg, RegionOfInterestMsg,
};
use crate::outputs::{Detection2D, Detections, Detections2D};
use crate::perception::Sensor;

/// Type of the results of a sensor's detector.
pub(super) const fn results_type(sensor: Sensor) -> &'static str {
    match sensor {
        Sensor::Lidar | Sensor::Set => DETECTED_OBJECTS_TYPE,
        Sensor::Camera => DETECTED_OBJECTS_WITH_FEATURE_TYPE,
    }
}

/// The message of a result, with the header of the message that it was found in.
///
/// # Errors
/// [`CdrError::TooLong`].
pub(super) fn encode(header: HeaderMsg<'_>, found: &Detections) -> Result<Vec<u8>, CdrError> {
    match found {
        Detections::Objects(found) => DetectedObjectsMsg {
            header,
            objects: found.objects.iter().map(DetectedObjectMsg::from).collect(),
        }
        .encode(),
        Detections::Image(found) => DetectedObjectsWithFeatureMsg {
            header,
            feature_objects: found
                .detections
                .iter()
                .map(|detection| with_region(found, detection))
                .collect(),
        }
        .encode(),
    }
}

/// A box in an image: the region of interest is what is known, as Autoware's tensorrt_yolox fills it in.
fn with_region<'a>(found: &Detections2D, detection: &Detection2D) -> DetectedObjectWithFeatureMsg<'a> {
    let name = found.labels.get(detection.label_id as usize);
    let object = DetectedObjectMsg {
        existence_probability: detection.score,
        classification: vec![ObjectClassificationMsg {
            label: name.map_or(0, |name| label_of(name)),
            probability: 1.0,
        }],
        ..DetectedObjectMsg::default()
    };
    let [width_px, height_px] = found.image_size_px;
    let [left, top, right, bottom] = detection.box_xyxy;
    // Boxes are clipped to the image, so that what is left of a pixel is all that is cut here.
    let (x_offset, y_offset) = ((left as u32).min(width_px), (top as u32).min(height_px));
    DetectedObjectWithFeatureMsg {
        object,
        feature: FeatureMsg {
            cluster: PointCloud2Msg::default(),
            roi: RegionOfInterestMsg {
                x_offset,
                y_offset,
                width: ((right - left).max(0.0) as u32).min(width_px - x_offset),
                height: ((bottom - top).max(0.0) as u32).min(height_px - y_offset),
                do_rectify: false,
            },
        },
    }
}

/// Autoware's number for a class by its name, in Autoware's or COCO's words; 0, unknown, for any other.
fn label_of(name: &str) -> u8 {
    match name.to_ascii_lowercase().as_str() {
        "car" => 1,
        "truck" => 2,
        "bus" => 3,
        "trailer" => 4,
        "motorcycle" | "motorbike" => 5,
        "bicycle" => 6,
        "pedestrian" | "person" => 7,
        "animal" | "bird" | "cat" | "dog" | "horse" | "sheep" | "cow" | "elephant" | "bear" | "zebra"
        | "giraffe" => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_box_becomes_a_region_of_interest() -> Result<(), CdrError> {
        let detection = |label_id, box_xyxy| Detection2D {
            label_id,
            score: 0.5,
            box_xyxy,
        };
        let found = Detections2D {
            detections: vec![
                detection(0, [10.9, 20.0, 30.5, 25.25]),
                detection(1, [0.0, 0.0, 640.0, 480.0]),
                detection(9, [639.5, 479.5, 640.0, 480.0]),
            ],
            labels: Arc::from(["person".to_owned(), "MOTORBIKE".to_owned()]),
            model: "m".into(),
            frame_id: "cam".into(),
            image_size_px: [640, 480],
        };
        let header = HeaderMsg::new(5_000_000_007, "cam").unwrap_or_default();
        let bytes = encode(header, &Detections::Image(found))?;
        let read = DetectedObjectsWithFeatureMsg::decode(&bytes)?;
        assert_eq!(read.header, header);
        let summary = |object: &DetectedObjectWithFeatureMsg<'_>| {
            let roi = object.feature.roi;
            let class = object.object.classification[0];
            (class.label, [roi.x_offset, roi.y_offset, roi.width, roi.height])
        };
        let all: Vec<_> = read.feature_objects.iter().map(summary).collect();
        assert_eq!(
            all,
            [(7, [10, 20, 19, 5]), (5, [0, 0, 640, 480]), (0, [639, 479, 0, 0])]
        );
        Ok(())
    }

    #[test]
    fn label_file_of_autoware_keeps_its_meaning() {
        let names = [
            "UNKNOWN",
            "CAR",
            "TRUCK",
            "BUS",
            "BICYCLE",
            "MOTORBIKE",
            "PEDESTRIAN",
            "ANIMAL",
        ];
        assert_eq!(names.map(label_of), [0, 1, 2, 3, 6, 5, 7, 8]);
    }
}
