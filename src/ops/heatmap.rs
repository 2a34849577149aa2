//! Peaks of heat maps.

use std::str::FromStr;
use std::sync::Arc;

use super::{DeviceTensor, OpContext, OpRefusal, PortRule};
use crate::device::{Activation, LocalMaxDesc, OpDesc, Unpooled};
use crate::tensor::{DType, Shape};

const OP: &str = "local_max";

/// Which cells compete with their neighbours, as the published query heads have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocalMaxRule {
    /// TransFusion: all classes compete, the border of the map is dropped.
    TransFusion,
    /// BEVFusion: some classes (the first four, if not told otherwise) as in TransFusion, the others pass everywhere: small
    /// objects stand closer than a window.
    BevFusion,
    /// PTv3: all classes compete (or some, and the others pass), the border of the map passes.
    Ptv3,
}

/// A rule that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no local maximum rule {0:?}: there are transfusion, bevfusion and ptv3")]
pub struct UnknownRule(String);

impl FromStr for LocalMaxRule {
    type Err = UnknownRule;

    fn from_str(name: &str) -> Result<Self, UnknownRule> {
        match name {
            "transfusion" => Ok(Self::TransFusion),
            "bevfusion" => Ok(Self::BevFusion),
            "ptv3" => Ok(Self::Ptv3),
            _ => Err(UnknownRule(name.to_owned())),
        }
    }
}

/// The local maximum as two constant maps of rows `[h * w, classes]`, 0 or 1 and never both 1:
/// `keep = pass + (heat == window maximum) * compare`.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalMaxMasks {
    /// Where the heat stays whatever it is.
    pub pass: Vec<f32>,
    /// Where it stays if it is the largest of its window.
    pub compare: Vec<f32>,
}

/// Keeps the peaks of a heat map and multiplies the rest by 0, on the device in one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalMax {
    height: usize,
    width: usize,
    pooled: Arc<[bool]>,
    rule: LocalMaxRule,
    kernel: usize,
    port_rule: PortRule,
}

impl LocalMax {
    /// Peaks of `classes` maps of `height x width` in windows of 3 x 3.
    #[must_use]
    pub fn new([height, width]: [usize; 2], classes: usize, rule: LocalMaxRule) -> Self {
        let all = match rule {
            LocalMaxRule::BevFusion => 4,
            LocalMaxRule::TransFusion | LocalMaxRule::Ptv3 => classes,
        };
        Self {
            height,
            width,
            pooled: (0..classes).map(|class| class < all).collect(),
            rule,
            kernel: 3,
            port_rule: PortRule::Here,
        }
    }

    /// With other classes that compete.
    ///
    /// # Errors
    /// [`OpRefusal::Invalid`] for a class that there is not, and for [`LocalMaxRule::TransFusion`], where all compete.
    pub fn pooled_classes(mut self, classes: &[usize]) -> Result<Self, OpRefusal> {
        if self.rule == LocalMaxRule::TransFusion {
            let reason = "all classes compete under the rule transfusion; bevfusion and ptv3 have a choice";
            return Err(OpRefusal::invalid(OP, reason));
        }
        let mut pooled = vec![false; self.pooled.len()];
        for &class in classes {
            match pooled.get_mut(class) {
                Some(flag) => *flag = true,
                None => {
                    let reason = format!("class {class} of {}", self.pooled.len());
                    return Err(OpRefusal::invalid(OP, reason));
                }
            }
        }
        self.pooled = pooled.into();
        Ok(self)
    }

    /// With another window.
    ///
    /// # Errors
    /// [`OpRefusal::Invalid`] for a side that is even or above 63.
    pub fn kernel(self, kernel: usize) -> Result<Self, OpRefusal> {
        if kernel.is_multiple_of(2) || kernel > 63 {
            return Err(OpRefusal::invalid(
                OP,
                format!("a window of {kernel}: sides are odd and at most 63"),
            ));
        }
        Ok(Self { kernel, ..self })
    }

    /// Under a rule of what may be asked for.
    #[must_use]
    pub fn port_rule(self, port_rule: PortRule) -> Self {
        Self { port_rule, ..self }
    }

    const fn fate(&self, pooled: bool) -> Unpooled {
        match (self.rule, pooled) {
            (LocalMaxRule::TransFusion | LocalMaxRule::BevFusion, true) => Unpooled::Drop,
            _ => Unpooled::Pass,
        }
    }

    /// The same as masks.
    #[must_use]
    pub fn masks(&self) -> LocalMaxMasks {
        let margin = self.kernel / 2;
        let inside = |at: usize, len: usize| at >= margin && at + margin < len;
        let count = self.height * self.width * self.pooled.len();
        let (mut pass, mut compare) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (y, x) in (0..self.height).flat_map(|y| (0..self.width).map(move |x| (y, x))) {
            for &pooled in self.pooled.iter() {
                let compared = pooled && inside(y, self.height) && inside(x, self.width);
                compare.push(f32::from(compared));
                pass.push(f32::from(!compared && self.fate(pooled) == Unpooled::Pass));
            }
        }
        LocalMaxMasks { pass, compare }
    }

    /// The peaks of rows `[.., h * w, classes]` (or a stored map `[1, h, w, classes]`), of the heat's type and in dense rows
    /// `[h * w, classes]`; freed by the caller.
    ///
    /// # Errors
    /// [`OpRefusal`]; nothing stays allocated.
    pub fn forward(&self, ops: &mut OpContext<'_>, heat: &DeviceTensor) -> Result<DeviceTensor, OpRefusal> {
        if self.port_rule == PortRule::Accelerator && heat.dtype != DType::Bf16 {
            return Err(OpRefusal::Unportable {
                op: OP,
                reason: format!("heat of {}: maxima are taken of bfloat16 only", heat.dtype),
            });
        }
        let (cells, classes) = (self.height * self.width, self.pooled.len());
        let map = |rows: &DeviceTensor| {
            (rows.as_rows())
                .filter(|rows| rows.view.shape[..] == [cells, classes])
                .and_then(|rows| rows.as_feature_map([1, self.height, self.width, classes]))
        };
        let input = map(heat).ok_or_else(|| {
            let expected = format!("rows at equal distances, [.., {cells}, {classes}]");
            OpRefusal::shape(OP, "the heat", heat.view.shape, expected)
        })?;
        ops.make(OP, &[cells, classes], heat.dtype, |ops, peaks| {
            let desc = LocalMaxDesc {
                input: input.operand(),
                // A new tensor is dense, so it is a map.
                output: map(peaks).unwrap_or(*peaks).operand(),
                kernel: self.kernel,
                pooled: Arc::clone(&self.pooled),
                border: self.fate(true),
                others: self.fate(false),
            };
            ops.run(&OpDesc::LocalMax(desc), &[input.buffer, peaks.buffer])
                .map_err(OpRefusal::device(OP))
        })
    }

    /// The host's form of it, by the masks: rows `[h * w, classes]` in and out.
    ///
    /// # Errors
    /// [`OpRefusal::Invalid`] for another number of values.
    pub fn host(&self, heat: &[f32]) -> Result<Vec<f32>, OpRefusal> {
        let (classes, margin) = (self.pooled.len(), self.kernel / 2);
        let LocalMaxMasks { pass, compare } = self.masks();
        if heat.len() != pass.len() {
            let reason = format!("{} values for {} places", heat.len(), pass.len());
            return Err(OpRefusal::invalid(OP, reason));
        }
        let around = |at: usize, len: usize| at.saturating_sub(margin)..(at + margin + 1).min(len);
        let peak = |place: usize| {
            let (cell, class) = (place / classes, place % classes);
            let (y, x) = (cell / self.width, cell % self.width);
            let window = around(y, self.height)
                .flat_map(|y| around(x, self.width).map(move |x| (y * self.width + x) * classes + class));
            let is_largest = window.into_iter().all(|other| heat[other] <= heat[place]);
            heat[place] * (pass[place] + f32::from(is_largest) * compare[place])
        };
        Ok((0..heat.len()).map(peak).collect())
    }
}

/// What [`sigmoid_heat`] makes. Where the types are one, both are the same tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigmoidHeat {
    /// The sigmoid in the type asked for.
    pub heat: DeviceTensor,
    /// The sigmoid in the type of the logits.
    pub sigmoid: DeviceTensor,
}

impl SigmoidHeat {
    /// Returns the memory of both.
    pub fn free(&self, ops: &mut OpContext<'_>) {
        ops.discard(&[self.sigmoid]);
        if self.heat.buffer != self.sigmoid.buffer {
            ops.discard(&[self.heat]);
        }
    }
}

/// The sigmoid of logits in their own type, and once rounded to `dtype`: `1 / (1 + exp(-x))`. Both are dense and freed by
/// the caller.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn sigmoid_heat(
    ops: &mut OpContext<'_>,
    logits: &DeviceTensor,
    dtype: DType,
) -> Result<SigmoidHeat, OpRefusal> {
    const OP: &str = "sigmoid_heat";
    let dims: Shape = logits.view.shape;
    let sigmoid = ops.make(OP, &dims, logits.dtype, |ops, sigmoid| {
        let op = OpDesc::Unary {
            src: logits.operand(),
            dst: sigmoid.operand(),
            activation: Activation::Sigmoid,
        };
        ops.run(&op, &[logits.buffer, sigmoid.buffer])
            .map_err(OpRefusal::device(OP))
    })?;
    match ops.typecast(&sigmoid, dtype) {
        Ok(heat) => Ok(SigmoidHeat { heat, sigmoid }),
        Err(error) => {
            ops.discard(&[sigmoid]);
            Err(OpRefusal::device(OP)(error))
        }
    }
}
