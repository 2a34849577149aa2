//! The feature net of pillars and the host side of its inputs.

use std::sync::{Mutex, PoisonError};

use half::bf16;
use ndarray::{Array2, ArrayView2, ArrayView3, ArrayViewMut1, s};

use super::block_error::BlockError;
use super::layers::{free, free_buffer};
use crate::device::{BufferClass, BufferId, DenseLayer, Device, HostSlot, OpDesc, PillarsDesc, WeightDesc};
use crate::numeric::bf16_encode_into;
use crate::ops::gather::{IndexError, check_index};
use crate::ops::{DeviceTensor, HostStaging, OpContext, StagingError};
use crate::tensor::{DType, TensorError, TensorSpec};

const NET: &str = "pillar feature net";

/// Layers of a pillar feature net, batch normalisation folded into them.
///
/// With two layers the second sees every point beside the pillar's maximum: `relu([h_k | m] W1 + b1)` with
/// `m = max_k h_k`, and the result is the maximum of that over the points. `W1` is used in its two halves `A` (for the
/// point) and `B` (for the maximum), the second of which is the same for all points of a pillar:
///
/// `max_k relu(h_k A + c) = relu(max_k(h_k A) + c)` with `c = m B + b1`
///
/// because adding a constant and a ReLU keep the order of numbers. That holds for rounded numbers too (rounding keeps
/// the order), so nothing is lost by it: the result has the bits of the formula whose sum is rounded in this order, and
/// `m B` is computed once a pillar instead of once a point. Everything between points and result is fp32, whatever the
/// storage; weights are not rounded.
#[derive(Debug, Clone, PartialEq)]
pub struct PfnPlan {
    /// `[features, width]`
    first: Array2<f32>,
    first_bias: Vec<f32>,
    /// `[2 * width, outputs]` and biases.
    second: Option<(Array2<f32>, Vec<f32>)>,
}

impl PfnPlan {
    /// A net of one layer: `w` `[features, outputs]`, `b` `[outputs]`.
    ///
    /// # Errors
    /// [`BlockError::Weights`].
    pub fn one_layer(w: ArrayView2<'_, f32>, b: &[f32]) -> Result<Self, BlockError> {
        check(w.dim(), b, None)?;
        Ok(Self {
            first: w.as_standard_layout().into_owned(),
            first_bias: b.to_vec(),
            second: None,
        })
    }

    /// A net of two layers: `w0` `[features, width]`, `w1` `[2 * width, outputs]` whose first half is for the point and
    /// second half for the pillar's maximum, and a bias for each output.
    ///
    /// # Errors
    /// [`BlockError::Weights`].
    pub fn from_weights(
        w0: ArrayView2<'_, f32>,
        b0: &[f32],
        w1: ArrayView2<'_, f32>,
        b1: &[f32],
    ) -> Result<Self, BlockError> {
        check(w0.dim(), b0, None)?;
        check(w1.dim(), b1, Some(2 * w0.ncols()))?;
        Ok(Self {
            first: w0.as_standard_layout().into_owned(),
            first_bias: b0.to_vec(),
            second: Some((w1.as_standard_layout().into_owned(), b1.to_vec())),
        })
    }

    /// Features of a point.
    #[must_use]
    pub fn features(&self) -> usize {
        self.first.nrows()
    }

    /// Outputs of the first layer where there are two.
    #[must_use]
    pub fn hidden(&self) -> Option<usize> {
        self.second.as_ref().map(|_| self.first.ncols())
    }

    /// First layer and, where there is one, second: weights `[inputs, outputs]` and biases.
    pub(super) fn layers(&self) -> [Option<(ArrayView2<'_, f32>, &[f32])>; 2] {
        let second = self.second.as_ref();
        [
            Some((self.first.view(), &self.first_bias)),
            second.map(|(weight, bias)| (weight.view(), &bias[..])),
        ]
    }

    /// Features of a pillar.
    #[must_use]
    pub fn outputs(&self) -> usize {
        let last = self.second.as_ref().map_or(&self.first, |(weight, _)| weight);
        last.ncols()
    }
}

fn check((inputs, outputs): (usize, usize), bias: &[f32], expected: Option<usize>) -> Result<(), BlockError> {
    let reason = if inputs == 0 || outputs == 0 {
        format!("a layer of {inputs} inputs and {outputs} outputs")
    } else if bias.len() != outputs {
        format!("{} biases for {outputs} outputs", bias.len())
    } else if let Some(expected) = expected.filter(|&expected| expected != inputs) {
        format!("a second layer of {inputs} inputs behind a first one that needs {expected}")
    } else {
        return Ok(());
    };
    Err(BlockError::weights(NET, reason))
}

/// The feature net of pillars: `[pillars, points, features]` to `[pillars, outputs]`. Weights are brought to the device
/// in the first run. Every row is computed, also those past the frame's pillars; no index points there.
#[derive(Debug)]
pub struct PillarFeatureNet {
    plan: PfnPlan,
    prepared: Mutex<Vec<(PillarsDesc, BufferId)>>,
}

impl PillarFeatureNet {
    /// A net.
    #[must_use]
    pub fn new(plan: PfnPlan) -> Self {
        Self {
            plan,
            prepared: Mutex::default(),
        }
    }

    /// Its layers.
    #[must_use]
    pub const fn plan(&self) -> &PfnPlan {
        &self.plan
    }

    /// Features `[pillars, outputs]` of the points' type, freed by the caller.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        points: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let pillars = points.view.shape.first().copied().unwrap_or(1);
        let spec = TensorSpec::new(&[pillars, self.plan.outputs()], points.dtype);
        let spec = spec.map_err(BlockError::tensor(NET))?;
        let output = ops
            .alloc(&spec, BufferClass::Intermediate)
            .map_err(BlockError::device(NET))?;
        match self.forward_into(ops, points, &output) {
            Ok(()) => Ok(output),
            Err(error) => {
                free(ops, &[output]);
                Err(error)
            }
        }
    }

    /// As [`PillarFeatureNet::forward`], into rows that exist.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn forward_into(
        &self,
        ops: &mut OpContext<'_>,
        points: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), BlockError> {
        let (from, to) = (points.view.shape, output.view.shape);
        if from.rank() != 3 || from[2] != self.plan.features() {
            let expected = format!("[pillars, points, {}]", self.plan.features());
            return Err(BlockError::shape(NET, "the input", from, expected));
        }
        if to[..] != [from[0], self.plan.outputs()] {
            let expected = format!("[{}, {}]", from[0], self.plan.outputs());
            return Err(BlockError::shape(NET, "the output", to, expected));
        }
        let desc = PillarsDesc {
            points: points.operand(),
            output: output.operand(),
            hidden: self.plan.hidden(),
        };
        let weights = self.weights(ops.device, &desc)?;
        ops.run(&OpDesc::Pillars(desc), &[points.buffer, weights, output.buffer])
            .map_err(BlockError::device(NET))
    }

    /// Returns the weights' memory. The net may run again.
    pub fn release(&self, device: &mut dyn Device) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, buffer) in prepared.drain(..) {
            free_buffer(device, buffer);
        }
    }

    fn weights(&self, device: &mut dyn Device, desc: &PillarsDesc) -> Result<BufferId, BlockError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, buffer)) = prepared.iter().find(|(known, _)| known == desc) {
            return Ok(buffer);
        }
        // The arrays are in standard layout, so there is a slice of each.
        let layer = |weight: &'_ Array2<f32>| weight.as_slice().map(<[f32]>::to_vec).unwrap_or_default();
        let first = layer(&self.plan.first);
        let second = (self.plan.second.as_ref()).map(|(weight, bias)| (layer(weight), bias));
        let weights = WeightDesc::Pillars {
            desc,
            first: DenseLayer {
                weight: &first,
                bias: &self.plan.first_bias,
            },
            second: second.as_ref().map(|(weight, bias)| DenseLayer { weight, bias }),
        };
        let buffer = device
            .prepare_weights(&weights)
            .map_err(BlockError::device(NET))?;
        prepared.push((desc.clone(), buffer));
        Ok(buffer)
    }
}

/// Sizes of a frame's inputs, the same for every frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameShape {
    /// Most pillars.
    pub pillars: usize,
    /// Points of a pillar.
    pub points: usize,
    /// Features of a point.
    pub features: usize,
    /// Cells of the canvas.
    pub cells: usize,
    /// Type of the features: [`DType::F32`] or [`DType::Bf16`].
    pub dtype: DType,
}

/// Shape of the device's points: `[pillars, points, features]`.
#[must_use]
pub const fn features_shape(pillars: usize, points: usize, features: usize) -> [usize; 3] {
    [pillars, points, features]
}

impl FrameShape {
    /// The points: `[pillars, points, features]`.
    ///
    /// # Errors
    /// [`TensorError`] for a size that cannot be.
    pub fn features_spec(&self) -> Result<TensorSpec, TensorError> {
        TensorSpec::new(
            &features_shape(self.pillars, self.points, self.features),
            self.dtype,
        )
    }

    /// The canvas index: `[cells]`, uint32.
    ///
    /// # Errors
    /// [`TensorError`] for a size that cannot be.
    pub fn index_spec(&self) -> Result<TensorSpec, TensorError> {
        TensorSpec::new(&[self.cells], DType::U32)
    }

    /// What an empty cell's entry of the index is: the first row that no pillar can have.
    #[must_use]
    pub const fn sentinel(&self) -> u32 {
        self.pillars as u32
    }

    /// Whether there is an entry for each cell, a pillar of the frame or the sentinel.
    fn check_index(&self, canvas_index: &[u32], pillars: usize) -> Result<(), FrameError> {
        if canvas_index.len() != self.cells {
            return Err(FrameError::Cells {
                found: canvas_index.len(),
                expected: self.cells,
            });
        }
        Ok(check_index(canvas_index, pillars, Some(self.sentinel()))?)
    }

    fn check(&self, features: &ArrayView3<'_, f32>) -> Result<(), FrameError> {
        let (pillars, points, width) = features.dim();
        let fits = pillars <= self.pillars
            && (1..=self.points).contains(&points)
            && (1..=self.features).contains(&width);
        if fits {
            return Ok(());
        }
        Err(FrameError::Features {
            found: [pillars, points, width],
            capacity: [self.pillars, self.points, self.features],
        })
    }
}

/// Why a frame's inputs were not packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// More pillars, points or features than there are places, or none of the latter two.
    #[error(
        "features {found:?} do not fit {capacity:?} (pillars, points, features): there may be fewer of each, and no \
         pillars at all"
    )]
    Features {
        /// Their dimensions.
        found: [usize; 3],
        /// The places.
        capacity: [usize; 3],
    },
    /// Another number of cells.
    #[error("the canvas index has {found} entries for {expected} cells")]
    Cells {
        /// How many it has.
        found: usize,
        /// How many there are.
        expected: usize,
    },
    /// An entry that is no pillar of the frame and does not mark an empty cell.
    #[error("canvas index: {0}")]
    Index(#[from] IndexError),
    /// Features are staged as fp32 or bf16.
    #[error("features of {0} cannot be staged: float32 and bfloat16 can")]
    DType(DType),
    /// The memory that the frame was to be written to.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// A size that cannot be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// How values lie in a device's memory.
trait Stored: Copy {
    fn zero() -> Self;
    fn store(value: f32) -> Self;
    /// Stores a run of values.
    fn store_all(values: &[f32], to: &mut [Self]);
}

impl Stored for f32 {
    fn zero() -> Self {
        0.0
    }
    fn store(value: f32) -> Self {
        value
    }
    fn store_all(values: &[f32], to: &mut [Self]) {
        to.copy_from_slice(values);
    }
}

impl Stored for bf16 {
    fn zero() -> Self {
        Self::ZERO
    }
    fn store(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn store_all(values: &[f32], to: &mut [Self]) {
        // Both have one length, the only thing that is refused.
        let _ = bf16_encode_into(values, bytemuck::cast_slice_mut(to));
    }
}

/// Writes pillars into rows of `points * features` places: missing points repeat the first one (the maximum over the
/// points does not change by it), missing features are zeros.
fn write_rows<T: Stored>(features: &ArrayView3<'_, f32>, shape: &FrameShape, to: &mut [T]) {
    let (_, points, width) = features.dim();
    let row_len = shape.points * shape.features;
    if (points, width) == (shape.points, shape.features)
        && let Some(values) = features.as_slice()
    {
        T::store_all(values, &mut to[..values.len()]);
        return;
    }
    for (pillar, row) in features.outer_iter().zip(to.chunks_exact_mut(row_len)) {
        for (point, place) in row.chunks_exact_mut(shape.features).enumerate() {
            let values = pillar.row(if point < points { point } else { 0 });
            let mut place = ArrayViewMut1::from(place);
            place
                .slice_mut(s![..width])
                .zip_mut_with(&values, |to, &value| *to = T::store(value));
            place.slice_mut(s![width..]).fill(T::zero());
        }
    }
}

/// A frame's points as the device takes them: pillars past the frame's are zeros, missing points repeat the first one
/// of the pillar, missing features are zeros.
///
/// # Errors
/// [`FrameError::Features`].
pub fn pack_features(features: ArrayView3<'_, f32>, shape: &FrameShape) -> Result<Vec<f32>, FrameError> {
    shape.check(&features)?;
    let mut packed = vec![0.0; shape.features_spec()?.shape.elements()];
    write_rows(&features, shape, &mut packed);
    Ok(packed)
}

/// A frame's inputs on the host, for tests and tools.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedInputs {
    /// Points, as [`pack_features`] packs them.
    pub features: Vec<f32>,
    /// The checked canvas index.
    pub canvas_index: Vec<u32>,
}

/// A frame's inputs, checked: the pillars of the features are those that the index may name.
///
/// # Errors
/// [`FrameError::Features`], [`FrameError::Cells`], [`FrameError::Index`].
pub fn pack_inputs(
    features: ArrayView3<'_, f32>,
    canvas_index: &[u32],
    shape: &FrameShape,
) -> Result<PackedInputs, FrameError> {
    shape.check_index(canvas_index, features.dim().0)?;
    Ok(PackedInputs {
        features: pack_features(features, shape)?,
        canvas_index: canvas_index.to_vec(),
    })
}

/// A frame that was written, ready for an upload.
#[derive(Debug, Clone, Copy)]
pub struct StagedFrame<'a> {
    /// Points, as [`FrameShape::features_spec`] says.
    pub features: &'a HostSlot,
    /// Canvas index, as [`FrameShape::index_spec`] says.
    pub canvas_index: &'a HostSlot,
}

/// Memory that a device uploads frames from, written in place: a frame converts its own pillars only, and clears what
/// the frame before it in the same memory had beyond them.
#[derive(Debug)]
pub struct FrameStaging {
    shape: FrameShape,
    features: HostStaging,
    index: HostStaging,
    /// Pillars that each slot may hold something of.
    used: Vec<usize>,
}

impl FrameStaging {
    /// Memory for `count` frames: one where every upload is waited for, two where the next frame is prepared during it.
    ///
    /// # Errors
    /// [`FrameError::DType`], [`FrameError::Staging`], [`FrameError::Tensor`].
    pub fn new(device: &mut dyn Device, shape: FrameShape, count: usize) -> Result<Self, FrameError> {
        if !matches!(shape.dtype, DType::F32 | DType::Bf16) {
            return Err(FrameError::DType(shape.dtype));
        }
        Ok(Self {
            features: HostStaging::new(device, shape.features_spec()?, count)?,
            index: HostStaging::new(device, shape.index_spec()?, count)?,
            // New slots are zeros.
            used: vec![0; count],
            shape,
        })
    }

    /// Sizes of a frame.
    #[must_use]
    pub const fn shape(&self) -> &FrameShape {
        &self.shape
    }

    /// Writes a frame: points `[pillars, points, features]` (fewer of each than there are places is allowed) and, for
    /// each cell of the canvas, its pillar or [`FrameShape::sentinel`]. Values are rounded to nearest even where the type
    /// is bf16.
    ///
    /// # Errors
    /// [`FrameError`]; the frame before is still there unless its memory was just taken over.
    pub fn write(
        &mut self,
        features: ArrayView3<'_, f32>,
        canvas_index: &[u32],
    ) -> Result<StagedFrame<'_>, FrameError> {
        let shape = self.shape;
        shape.check(&features)?;
        let pillars = features.dim().0;
        shape.check_index(canvas_index, pillars)?;
        let (slot, row_len) = (self.features.next_slot(), shape.points * shape.features);
        let before = self.used[slot];
        // Should the writing panic, so much may have been written.
        self.used[slot] = before.max(pillars);
        match shape.dtype {
            DType::F32 => self.features.write_with::<f32>(|mut places| {
                // A slot's view is dense.
                if let Some(places) = places.as_slice_mut() {
                    write_rows(&features, &shape, places);
                    clear(places, row_len, pillars..before);
                }
            })?,
            _ => self.features.write_with::<bf16>(|mut places| {
                if let Some(places) = places.as_slice_mut() {
                    write_rows(&features, &shape, places);
                    clear(places, row_len, pillars..before);
                }
            })?,
        };
        self.used[slot] = pillars;
        let canvas_index = self.index.write(canvas_index)?;
        match self.features.slot() {
            Some(features) => Ok(StagedFrame {
                features,
                canvas_index,
            }),
            None => Err(StagingError::NoSlots.into()),
        }
    }
}

fn clear<T: Stored>(places: &mut [T], row_len: usize, rows: std::ops::Range<usize>) {
    if !rows.is_empty() {
        places[rows.start * row_len..rows.end * row_len].fill(T::zero());
    }
}
