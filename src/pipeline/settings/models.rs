//! Models and what is peculiar to their families.

use std::path::PathBuf;

use serde::Serialize;

use crate::perception::Sensor;
use crate::pipeline::camera::CameraSettings;
use crate::pipeline::scheduling::BatchSettings;
use crate::pipeline::temporal::TemporalSettings;
use crate::pipeline::words::words;

/// A model and how its inputs and outputs are treated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelSettings {
    /// The weights' file; `None` if it is still to be given.
    pub weights: Option<PathBuf>,
    /// Storage of weights and activations.
    pub precision: Precision,
    /// Most streams served at once.
    pub max_streams: u16,
    /// What happens to a stream beyond `max_streams`.
    pub on_full: OnStreamsFull,
    /// Most frames between preparation and result in each detector; `None`: as many as there is memory for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Frames of several streams in one go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchSettings>,
    /// The bundle that the model comes from, where it comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<PathBuf>,
    /// Family of the network, and what is peculiar to it.
    #[serde(flatten)]
    pub family: Family,
}

/// A family of networks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Family {
    /// YOLOX on camera images.
    Yolox(CameraSettings),
    /// FastestDet on camera images.
    FastestDet(CameraSettings),
    /// CenterPoint on LiDAR sweeps.
    CenterPoint(CenterPointSettings),
    /// A ring of maps of LiDAR sweeps, with random weights.
    #[serde(rename = "bev_ring")]
    BevRing(TemporalSettings),
    /// Queries with a memory on camera images, with random weights.
    #[serde(rename = "stream_queries")]
    StreamQueries(TemporalSettings),
}

impl Family {
    /// The `type` as a pipeline file spells it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Yolox(_) => "yolox",
            Self::FastestDet(_) => "fastestdet",
            Self::CenterPoint(_) => "centerpoint",
            Self::BevRing(_) => "bev_ring",
            Self::StreamQueries(_) => "stream_queries",
        }
    }

    /// What it takes.
    #[must_use]
    pub const fn sensor(&self) -> Sensor {
        match self {
            Self::Yolox(_) | Self::FastestDet(_) | Self::StreamQueries(_) => Sensor::Camera,
            Self::CenterPoint(_) | Self::BevRing(_) => Sensor::Lidar,
        }
    }

    /// Whether it may ask where the sensor was, so that transforms have to be played for it.
    #[must_use]
    pub const fn asks_for_poses(&self) -> bool {
        match self {
            Self::Yolox(_) | Self::FastestDet(_) => false,
            // Whether it does is in its parameters.
            Self::CenterPoint(_) => true,
            Self::BevRing(temporal) | Self::StreamQueries(temporal) => temporal.world_frame.is_some(),
        }
    }

    /// Whether it keeps earlier frames of a stream, so that they have to come one after another.
    #[must_use]
    pub const fn is_stateful(&self) -> bool {
        matches!(self, Self::CenterPoint(_)) || self.is_seeded()
    }

    /// Whether the weights come out of a seed, so that there is no file of them.
    #[must_use]
    pub const fn is_seeded(&self) -> bool {
        matches!(self, Self::BevRing(_) | Self::StreamQueries(_))
    }

    /// Whether frames of several streams can go through the network together.
    #[must_use]
    pub const fn can_batch(&self) -> bool {
        !self.is_stateful()
    }
}

/// What is peculiar to CenterPoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CenterPointSettings {
    /// Autoware's ONNX file of the encoder; `None` for a safetensors file.
    pub encoder: Option<PathBuf>,
    /// Autoware's parameter files, the later ones over the earlier.
    pub params: Vec<PathBuf>,
    /// Lowest score reported, 0 to 1; `None`: as the parameters say.
    pub score_threshold: Option<f32>,
    /// Frame in which the vehicle moves; `None`: as the parameters say.
    pub world_frame: Option<String>,
    /// Seed of the choice of points where a pillar has more than it holds.
    pub shuffle_seed: u64,
}

impl ModelSettings {
    /// Precision and, where it is another, the format of the weights: `fp32`, or `bf16, weights bfp8`.
    #[must_use]
    pub fn numbers(&self) -> String {
        match &self.family {
            Family::Yolox(camera) | Family::FastestDet(camera)
                if camera.weight_format != WeightFormat::Fp32 =>
            {
                format!("{}, weights {}", self.precision, camera.weight_format)
            }
            _ => self.precision.to_string(),
        }
    }
}

/// Names of a model's classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Labels {
    /// The 80 classes of COCO.
    Coco80,
    /// A text file, one name a line.
    File(PathBuf),
}

words! {
    /// Storage of weights and activations.
    #[derive(Default)]
    Precision {
        /// IEEE single precision.
        #[default]
        Fp32 = "fp32",
        /// bfloat16 storage, fp32 sums.
        Bf16 = "bf16",
    }
}
words! {
    /// How the weights of convolutions are stored until they are brought onto the device.
    #[derive(Default)]
    WeightFormat {
        /// IEEE single precision, as the model file has them.
        #[default]
        Fp32 = "fp32",
        /// bfloat16.
        Bf16 = "bf16",
        /// IEEE half precision.
        Fp16 = "fp16",
        /// 8-bit float, 4 exponent and 3 mantissa bits, up to 448.
        Fp8E4M3 = "fp8_e4m3",
        /// 8-bit float, 5 exponent and 2 mantissa bits, up to 57344.
        Fp8E5M2 = "fp8_e5m2",
        /// 8-bit float, 3 exponent and 4 mantissa bits, up to 15.5.
        Fp8E3M4 = "fp8_e3m4",
        /// 16 weights share an exponent, each keeps a sign and 7 bits.
        Bfp8 = "bfp8",
        /// 16 weights share an exponent, each keeps a sign and 3 bits.
        Bfp4 = "bfp4",
    }
}
words! {
    /// What happens to a stream when a model serves all that it can.
    #[derive(Default)]
    OnStreamsFull {
        /// The new stream is refused.
        #[default]
        Reject = "reject",
        /// The stream that was silent longest loses its place.
        Evict = "evict",
    }
}
