//! The weights of a CenterPoint out of a safetensors file, and the parameters that they were trained with.

use ndarray::{ArrayView2, ArrayView4};

use super::CenterPointParams;
use crate::models::ConvSpec;
use crate::models::centerhead::HeadSpec;
use crate::models::pillars::PfnPlan;
use crate::tensor::Shape;
use crate::weights::{Safetensors, SafetensorsError};

/// Version of the file's layout that is read.
const FORMAT_VERSION: u64 = 1;

/// Heads in the order in which their channels lie in the output.
pub(super) const HEADS: [&str; 6] = ["heatmap", "reg", "height", "dim", "rot", "vel"];

/// Why a file is not taken as a CenterPoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] SafetensorsError),
    /// What it says of itself.
    #[error("{file}: its metadata has no usable `{key}`: {expected}")]
    Metadata {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What is expected there.
        expected: String,
    },
    /// A tensor has another shape than its place in the network.
    #[error("{file}: tensor {tensor} has shape {found}, expected {expected}")]
    Shape {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: String,
        /// The shape of its place.
        expected: String,
    },
    /// Layers that cannot be put together.
    #[error("{file}: {reason}")]
    Network {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

/// A CenterPoint with batch normalisation folded in: pillar feature net, SECOND, its pyramid, and the head.
#[derive(Debug, Clone)]
pub struct CenterPointWeights {
    /// The pillar feature net on points of 16 values, the ones beyond the encoder's being zero.
    pub pfn: PfnPlan,
    /// Blocks of the backbone.
    pub backbone: Vec<Vec<ConvSpec>>,
    /// One layer of the neck for each block.
    pub neck: Vec<ConvSpec>,
    /// The convolution that all heads share.
    pub shared: ConvSpec,
    /// The heads: heatmap, reg, height, dim, rot, vel.
    pub heads: Vec<HeadSpec>,
}

/// Values of a point in the device's memory.
pub const POINT_LANES: usize = 16;

impl CenterPointWeights {
    /// Reads weights and parameters.
    ///
    /// # Errors
    /// [`WeightsError`].
    pub fn read(file: &Safetensors) -> Result<(Self, CenterPointParams), WeightsError> {
        let reader = Reader { file };
        reader.check_kind()?;
        let params = reader.params()?;
        let strides: Vec<usize> = reader.metadata("backbone_strides", "a list of numbers")?;
        let layers: Vec<usize> = reader.metadata("backbone_layers", "a list of numbers")?;
        let ups: Vec<usize> = reader.metadata("neck_strides", "a list of numbers")?;
        if strides.is_empty() || strides.len() != layers.len() || strides.len() != ups.len() {
            return Err(reader.wrong(
                "backbone_strides",
                "as many as `backbone_layers` and `neck_strides`",
            ));
        }
        let mut backbone = Vec::with_capacity(layers.len());
        for (block, (&stride, &count)) in strides.iter().zip(&layers).enumerate() {
            let specs = (0..count).map(|layer| {
                let spec = reader.conv(&format!("backbone.{block}.{layer}"))?;
                Ok(spec.stride(if layer == 0 { stride } else { 1 }))
            });
            backbone.push(specs.collect::<Result<Vec<_>, WeightsError>>()?);
        }
        let neck = ups.iter().enumerate().map(|(block, &up)| {
            let name = format!("neck.{block}");
            match up {
                1 => reader.conv(&name),
                _ => reader.conv_transpose(&name, up),
            }
        });
        let heads = HEADS.iter().map(|&head| {
            Ok(HeadSpec {
                name: head.to_owned(),
                hidden: reader.conv(&format!("head.{head}.hidden"))?,
                output: reader.conv(&format!("head.{head}.out"))?.linear(),
            })
        });
        let weights = Self {
            pfn: reader.pfn(params.encoder_in_feature_size)?,
            backbone,
            neck: neck.collect::<Result<_, _>>()?,
            shared: reader.conv("head.shared")?,
            heads: heads.collect::<Result<_, WeightsError>>()?,
        };
        Ok((weights, params))
    }
}

struct Reader<'a> {
    file: &'a Safetensors,
}

impl Reader<'_> {
    fn wrong(&self, key: &str, expected: &str) -> WeightsError {
        WeightsError::Metadata {
            file: self.file.name().to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
        }
    }

    fn metadata<T: serde::de::DeserializeOwned>(&self, key: &str, expected: &str) -> Result<T, WeightsError> {
        let text = self.file.metadata().get(key);
        text.and_then(|text| serde_json::from_str(text).ok())
            .ok_or_else(|| self.wrong(key, expected))
    }

    fn check_kind(&self) -> Result<(), WeightsError> {
        if self.file.metadata().get("model").map(String::as_str) != Some("centerpoint") {
            return Err(self.wrong("model", "`centerpoint`; this file is of another model"));
        }
        let version: u64 = self.metadata("format_version", "a number")?;
        if version != FORMAT_VERSION {
            let expected =
                format!("version {FORMAT_VERSION}, not {version}; train or convert the weights anew");
            return Err(self.wrong("format_version", &expected));
        }
        Ok(())
    }

    fn params(&self) -> Result<CenterPointParams, WeightsError> {
        let class_names: Vec<String> = self.metadata("class_names", "a list of names")?;
        let thresholds: Vec<f64> = self.metadata("score_thresholds", "a list of numbers")?;
        if thresholds.len() != class_names.len() {
            return Err(self.wrong("score_thresholds", "one number a class"));
        }
        let encoder_in_feature_size = self.metadata("encoder_in_feature_size", "9, 10 or 11")?;
        let yaw_norm_thresholds = class_names
            .iter()
            .map(|name| if name == "PEDESTRIAN" { 0.0 } else { 0.3 })
            .collect();
        Ok(CenterPointParams {
            point_feature_size: if encoder_in_feature_size == 11 { 5 } else { 4 },
            max_voxels: DEFAULT_MAX_VOXELS,
            point_cloud_range_m: self.metadata("point_cloud_range", "six numbers")?,
            voxel_size_m: self.metadata("voxel_size", "three numbers")?,
            downsample_factor: self.metadata("downsample_factor", "a number")?,
            encoder_in_feature_size,
            max_points_per_voxel: self.metadata("max_points_per_pillar", "a number")?,
            has_variance: false,
            has_twist: self.metadata("has_twist", "true or false")?,
            distance_bin_upper_limits_m: vec![f64::MAX],
            score_thresholds: vec![thresholds],
            yaw_norm_thresholds,
            num_past_frames: self.metadata("num_past_frames", "a number")?,
            class_names,
            circle_nms_dist_threshold_m: 0.5,
            iou_nms_search_distance_m: 10.0,
            iou_nms_threshold: 0.1,
            world_frame_id: "map".to_owned(),
            cloud_capacity: 2_000_000,
            remapper: None,
        })
    }

    fn floats(&self, tensor: &str, rank: usize, expected: &str) -> Result<Floats, WeightsError> {
        let array = self.file.array(tensor)?;
        let shape = *array.shape();
        match array.to_f32() {
            Some(values) if shape.rank() == rank => Ok(Floats { shape, values }),
            _ => Err(WeightsError::Shape {
                file: self.file.name().to_owned(),
                tensor: tensor.to_owned(),
                found: format!("{shape} of {:?}", array.element()),
                expected: format!("{expected} of floats"),
            }),
        }
    }

    fn layer(
        &self,
        name: &str,
        rank: usize,
        expected: &str,
        make: impl FnOnce(&Floats, &[f32]) -> Option<ConvSpec>,
    ) -> Result<ConvSpec, WeightsError> {
        let weight = self.floats(&format!("{name}.weight"), rank, expected)?;
        let bias = self.floats(&format!("{name}.bias"), 1, "one number an output")?;
        let made = make(&weight, &bias.values);
        made.ok_or_else(|| WeightsError::Network {
            file: self.file.name().to_owned(),
            reason: format!("{name} has {} biases for weights {}", bias.shape, weight.shape),
        })
    }

    fn conv(&self, name: &str) -> Result<ConvSpec, WeightsError> {
        self.layer(name, 4, "[outputs, inputs, k, k]", |weight, bias| {
            Some(ConvSpec::conv(view4(weight)?, bias))
        })
    }

    fn conv_transpose(&self, name: &str, stride: usize) -> Result<ConvSpec, WeightsError> {
        self.layer(name, 4, "[inputs, outputs, k, k]", |weight, bias| {
            Some(ConvSpec::conv_transpose(view4(weight)?, bias, stride))
        })
    }

    /// The two layers, transposed to `[inputs, outputs]` and the first one padded to the device's point.
    fn pfn(&self, features: usize) -> Result<PfnPlan, WeightsError> {
        let matrix = |index: usize| -> Result<ndarray::Array2<f32>, WeightsError> {
            let name = format!("pfn.{index}.weight");
            let array = self.floats(&name, 2, "[outputs, inputs]")?;
            let view = ArrayView2::from_shape((array.shape[0], array.shape[1]), &array.values);
            view.map(|view| view.t().to_owned())
                .map_err(|error| WeightsError::Network {
                    file: self.file.name().to_owned(),
                    reason: format!("{name}: {error}"),
                })
        };
        let bias = |index: usize| self.floats(&format!("pfn.{index}.bias"), 1, "one number an output");
        let (first, second) = (matrix(0)?, matrix(1)?);
        if first.nrows() != features {
            return Err(WeightsError::Shape {
                file: self.file.name().to_owned(),
                tensor: "pfn.0.weight".into(),
                found: format!("[{}, {}]", first.ncols(), first.nrows()),
                expected: format!("[outputs, {features}]"),
            });
        }
        let (first_bias, second_bias) = (bias(0)?, bias(1)?);
        PfnPlan::from_weights(
            padded(&first).view(),
            &first_bias.values,
            second.view(),
            &second_bias.values,
        )
        .map_err(|error| WeightsError::Network {
            file: self.file.name().to_owned(),
            reason: error.to_string(),
        })
    }
}

/// Pillars that the device has room for unless parameters say otherwise. Two sweeps of 64 rings in open country make
/// up to some 20,000 of them, in a street half as many.
const DEFAULT_MAX_VOXELS: usize = 24_000;

/// Weights `[features, outputs]` for points of [`POINT_LANES`] values.
pub(super) fn padded(first: &ndarray::Array2<f32>) -> ndarray::Array2<f32> {
    let mut rows = ndarray::Array2::zeros((POINT_LANES.max(first.nrows()), first.ncols()));
    rows.slice_mut(ndarray::s![..first.nrows(), ..]).assign(first);
    rows
}

struct Floats {
    shape: Shape,
    values: Vec<f32>,
}

fn view4(array: &Floats) -> Option<ArrayView4<'_, f32>> {
    let shape = array.shape;
    ArrayView4::from_shape((shape[0], shape[1], shape[2], shape[3]), &array.values).ok()
}
