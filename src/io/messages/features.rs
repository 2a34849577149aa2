//! `tier4_perception_msgs/DetectedObjectsWithFeature`: what Autoware's camera detectors publish.

use super::objects::OBJECT_MIN_BYTES;
use super::{DetectedObjectMsg, HeaderMsg, PointCloud2Msg, RegionOfInterestMsg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `tier4_perception_msgs/Feature`: what an object was detected by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureMsg<'a> {
    /// Its points; empty for an object of an image.
    pub cluster: PointCloud2Msg<'a>,
    /// Its window in the image.
    pub roi: RegionOfInterestMsg,
}

/// `tier4_perception_msgs/DetectedObjectWithFeature`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DetectedObjectWithFeatureMsg<'a> {
    /// The object; one of an image says its classes and its probability only.
    pub object: DetectedObjectMsg,
    /// What it was detected by.
    pub feature: FeatureMsg<'a>,
}

/// `tier4_perception_msgs/DetectedObjectsWithFeature`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DetectedObjectsWithFeatureMsg<'a> {
    /// Stamp and frame, those of the image or cloud.
    pub header: HeaderMsg<'a>,
    /// The objects.
    pub feature_objects: Vec<DetectedObjectWithFeatureMsg<'a>>,
}

/// Least bytes of an object with its feature.
const FEATURE_OBJECT_MIN_BYTES: usize =
    OBJECT_MIN_BYTES + PointCloud2Msg::MIN_BYTES + RegionOfInterestMsg::BYTES;

impl<'a> DetectedObjectsWithFeatureMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        let header = HeaderMsg::read(reader)?;
        let count = reader.sequence_len(FEATURE_OBJECT_MIN_BYTES)?;
        let mut feature_objects = Vec::with_capacity(count);
        for _ in 0..count {
            feature_objects.push(DetectedObjectWithFeatureMsg {
                object: DetectedObjectMsg::read(reader)?,
                feature: FeatureMsg {
                    cluster: PointCloud2Msg::read(reader)?,
                    roi: RegionOfInterestMsg::read(reader)?,
                },
            });
        }
        Ok(Self {
            header,
            feature_objects,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let objects = &self.feature_objects;
        let points: usize = objects
            .iter()
            .map(|object| object.feature.cluster.data.len())
            .sum();
        let room = self.header.frame_id.len() + points + 32 + objects.len() * (FEATURE_OBJECT_MIN_BYTES + 64);
        let mut writer = CdrWriter::with_capacity(room);
        self.header.write(&mut writer)?;
        writer.len_prefix(objects.len())?;
        for DetectedObjectWithFeatureMsg { object, feature } in objects {
            object.write(&mut writer)?;
            feature.cluster.write(&mut writer)?;
            feature.roi.write(&mut writer);
        }
        Ok(writer.finish())
    }
}
