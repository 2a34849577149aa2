//! Window geometry of convolutions and poolings.

use super::error::{NodeError, form, invalid};
use super::facts::NodeContext;
use crate::device::Geometry2d;
use crate::weights::Node;

/// Sizes and paddings beyond this are taken for damage.
const MAX_SIZE: i64 = 1 << 24;

/// A window sliding over the spatial axes of `[N, C, ...]`, one entry per spatial axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) kernel: Vec<usize>,
    pub(super) stride: Vec<usize>,
    pub(super) dilation: Vec<usize>,
    pub(super) pad_begin: Vec<usize>,
    pub(super) pad_end: Vec<usize>,
    /// Number of windows.
    pub(super) output: Vec<usize>,
}

impl Window {
    /// Reads strides, dilations, padding and rounding of a node with the given window over `input`.
    pub(super) fn new(
        context: &NodeContext<'_>,
        kernel: &[usize],
        input: &[usize],
    ) -> Result<Self, NodeError> {
        let (node, axes) = (context.node, input.len());
        if kernel.len() != axes {
            return invalid(format!(
                "a window {kernel:?} over the {axes} spatial axes {input:?}"
            ));
        }
        let stride = sizes(node, "strides", axes, 1)?;
        let dilation = sizes(node, "dilations", axes, 1)?;
        let pads = sizes(node, "pads", 2 * axes, 0)?;
        let small = |v: &[usize]| v.iter().all(|&x| x as i64 <= MAX_SIZE);
        if kernel.contains(&0) || stride.contains(&0) || dilation.contains(&0) {
            return invalid("a window, stride or dilation of 0");
        }
        if !small(kernel) || !small(input) {
            return form(format!("a window {kernel:?} over {input:?}"));
        }
        let mut window = Self {
            kernel: kernel.to_vec(),
            stride,
            dilation,
            pad_begin: pads[..axes].to_vec(),
            pad_end: pads[axes..].to_vec(),
            output: vec![0; axes],
        };
        let auto = node.text("auto_pad")?.unwrap_or("NOTSET").to_owned();
        let ceil = node.int("ceil_mode")?.unwrap_or(0) != 0;
        for (axis, &size) in input.iter().enumerate() {
            window.fit(axis, size, &auto, ceil)?;
        }
        Ok(window)
    }

    fn fit(&mut self, axis: usize, size: usize, auto: &str, ceil: bool) -> Result<(), NodeError> {
        let (reach, stride) = (self.reach(axis), self.stride[axis]);
        match auto {
            "NOTSET" => {}
            "VALID" => (self.pad_begin[axis], self.pad_end[axis]) = (0, 0),
            "SAME_UPPER" | "SAME_LOWER" => {
                let windows = size.div_ceil(stride);
                let total = (windows.saturating_sub(1) * stride + reach).saturating_sub(size);
                let (less, more) = (total / 2, total - total / 2);
                (self.pad_begin[axis], self.pad_end[axis]) = if auto == "SAME_UPPER" {
                    (less, more)
                } else {
                    (more, less)
                };
            }
            other => return form(format!("auto_pad {other}")),
        }
        let padded = size + self.pad_begin[axis] + self.pad_end[axis];
        let Some(room) = padded.checked_sub(reach) else {
            return invalid(format!(
                "a window over {reach} elements does not fit {size} padded to {padded}"
            ));
        };
        let mut windows = if ceil {
            room.div_ceil(stride)
        } else {
            room / stride
        } + 1;
        // A window that would start behind the image and its leading padding is left out.
        if ceil && (windows - 1) * stride >= size + self.pad_begin[axis] {
            windows -= 1;
        }
        self.output[axis] = windows;
        Ok(())
    }

    /// Elements from the first to the last tap of a window.
    pub(super) fn reach(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1) * self.dilation[axis] + 1
    }

    /// Whether windows reach beyond the declared padding, as rounding the output size up makes them.
    pub(super) fn overhangs(&self, input: &[usize]) -> bool {
        (0..input.len()).any(|a| {
            (self.output[a] - 1) * self.stride[a] + self.reach(a)
                > input[a] + self.pad_begin[a] + self.pad_end[a]
        })
    }

    /// A window over one axis as one over the columns of a single row.
    pub(super) fn with_row(&self) -> Self {
        let front = |value: usize, rest: &[usize]| [&[value], rest].concat();
        Self {
            kernel: front(1, &self.kernel),
            stride: front(1, &self.stride),
            dilation: front(1, &self.dilation),
            pad_begin: front(0, &self.pad_begin),
            pad_end: front(0, &self.pad_end),
            output: front(1, &self.output),
        }
    }

    /// The geometry of a window over two axes.
    pub(super) fn geometry(&self) -> Result<Geometry2d, NodeError> {
        let pair = |v: &[usize]| match v {
            &[rows, columns] => Ok([rows, columns]),
            _ => form(format!("a window over {} spatial axes", v.len())),
        };
        Ok(Geometry2d {
            kernel: pair(&self.kernel)?,
            stride: pair(&self.stride)?,
            dilation: pair(&self.dilation)?,
            pad_begin: pair(&self.pad_begin)?,
        })
    }
}

/// A list of sizes out of an attribute, each within reason.
pub(super) fn sizes(node: &Node, name: &str, count: usize, default: usize) -> Result<Vec<usize>, NodeError> {
    let Some(values) = node.ints(name)? else {
        return Ok(vec![default; count]);
    };
    if values.len() != count || values.iter().any(|v| !(0..=MAX_SIZE).contains(v)) {
        return invalid(format!(
            "attribute `{name}` = {values:?} where {count} sizes are expected"
        ));
    }
    Ok(values.iter().map(|&v| v as usize).collect())
}
