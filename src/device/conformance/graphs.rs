//! Small networks: lists of operations on buffers that stay.

use std::sync::Arc;

use super::subject::{Random, Subject};
use crate::device::{
    Activation, BinaryKind, BufferClass, BufferId, Conv2dDesc, Cq, DeviceError, Geometry2d, OpDesc, Operand,
    Pool2dDesc, PoolKind, ResidualOrder, Scalar, WeightDesc,
};
use crate::precision::Math;
use crate::tensor::{DType, Shape, TensorSpec, View};

/// A buffer and how it is seen.
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    pub(super) buffer: BufferId,
    pub(super) operand: Operand,
    /// Elements of the buffer.
    pub(super) elements: usize,
}

/// A list of operations.
pub(super) struct Graph {
    pub(super) name: &'static str,
    pub(super) inputs: Vec<Tensor>,
    pub(super) outputs: Vec<Tensor>,
    steps: Vec<(OpDesc, Vec<BufferId>)>,
}

impl Graph {
    pub(super) const fn new(name: &'static str) -> Self {
        Self {
            name,
            inputs: Vec::new(),
            outputs: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Launches all of it.
    pub(super) fn launch(&self, subject: &mut Subject, cq: Cq) -> Result<(), DeviceError> {
        self.steps
            .iter()
            .try_for_each(|(op, buffers)| subject.launch(cq, op, buffers))
    }

    /// Gives every input other values.
    pub(super) fn feed(&self, subject: &mut Subject, cq: Cq, random: &mut Random) -> Result<(), DeviceError> {
        self.inputs
            .iter()
            .try_for_each(|input| subject.write(cq, input.buffer, &random.fractions(input.elements)))
    }

    /// What the outputs hold.
    pub(super) fn results(&self, subject: &mut Subject, cq: Cq) -> Result<Vec<f32>, DeviceError> {
        let mut all = Vec::new();
        for output in &self.outputs {
            all.extend(subject.read_some(cq, output.buffer, output.elements)?);
        }
        Ok(all)
    }

    /// Overwrites the outputs, so that what was there before is no result.
    pub(super) fn spoil(&self, subject: &mut Subject, cq: Cq) -> Result<(), DeviceError> {
        self.outputs
            .iter()
            .try_for_each(|output| subject.write(cq, output.buffer, &vec![f32::NAN; output.elements]))
    }

    pub(super) fn input(&mut self, subject: &mut Subject, dims: &[usize]) -> Result<Tensor, DeviceError> {
        let tensor = reserve(subject, dims, DType::F32, BufferClass::Input)?;
        self.inputs.push(tensor);
        Ok(tensor)
    }

    pub(super) fn output(&mut self, subject: &mut Subject, dims: &[usize]) -> Result<Tensor, DeviceError> {
        let tensor = reserve(subject, dims, DType::F32, BufferClass::Output)?;
        self.outputs.push(tensor);
        Ok(tensor)
    }

    pub(super) fn copy(&mut self, src: Tensor, dst: Tensor) {
        let op = OpDesc::Copy {
            src: src.operand,
            dst: dst.operand,
        };
        self.steps.push((op, vec![src.buffer, dst.buffer]));
    }

    pub(super) fn fill(&mut self, dst: Tensor, value: f32) {
        let op = OpDesc::Fill {
            dst: dst.operand,
            value: Scalar::new(value),
        };
        self.steps.push((op, vec![dst.buffer]));
    }

    pub(super) fn unary(&mut self, activation: Activation, src: Tensor, dst: Tensor) {
        let op = OpDesc::Unary {
            src: src.operand,
            dst: dst.operand,
            activation,
        };
        self.steps.push((op, vec![src.buffer, dst.buffer]));
    }

    pub(super) fn binary(&mut self, kind: BinaryKind, lhs: Tensor, rhs: Tensor, dst: Tensor) {
        let op = OpDesc::Binary {
            lhs: lhs.operand,
            rhs: rhs.operand,
            dst: dst.operand,
            kind,
        };
        self.steps.push((op, vec![lhs.buffer, rhs.buffer, dst.buffer]));
    }

    pub(super) fn softmax(&mut self, axis: usize, src: Tensor, dst: Tensor) {
        let op = OpDesc::Softmax {
            src: src.operand,
            dst: dst.operand,
            axis,
        };
        self.steps.push((op, vec![src.buffer, dst.buffer]));
    }

    pub(super) fn gather(&mut self, axis: usize, indices: &[u32], src: Tensor, dst: Tensor) {
        let op = OpDesc::Gather {
            src: src.operand,
            dst: dst.operand,
            axis,
            indices: Arc::from(indices),
        };
        self.steps.push((op, vec![src.buffer, dst.buffer]));
    }

    pub(super) fn resize(&mut self, rows: &[u32], columns: &[u32], src: Tensor, dst: Tensor) {
        let op = OpDesc::ResizeNearest {
            src: src.operand,
            dst: dst.operand,
            rows: Arc::from(rows),
            columns: Arc::from(columns),
        };
        self.steps.push((op, vec![src.buffer, dst.buffer]));
    }

    pub(super) fn pool(&mut self, kind: PoolKind, geometry: Geometry2d, src: Tensor, dst: Tensor) {
        let op = OpDesc::Pool2d(Pool2dDesc {
            input: src.operand,
            output: dst.operand,
            geometry,
            kind,
        });
        self.steps.push((op, vec![src.buffer, dst.buffer]));
    }

    /// Prepares the weights and adds the convolution.
    pub(super) fn conv(
        &mut self,
        subject: &mut Subject,
        desc: Conv2dDesc,
        weight: &[f32],
        bias: &[f32],
        buffers: [Tensor; 2],
        residual: Option<Tensor>,
    ) -> Result<(), DeviceError> {
        let weights = subject.device.prepare_weights(&WeightDesc::Conv2d {
            desc: &desc,
            weight,
            bias: Some(bias),
        })?;
        let [src, dst] = buffers.map(|tensor| tensor.buffer);
        let residual = residual.map(|tensor| tensor.buffer);
        let bound = [src, weights, dst].into_iter().chain(residual).collect();
        self.steps.push((OpDesc::Conv2d(desc), bound));
        Ok(())
    }
}

/// A dense row-major tensor.
pub(super) fn reserve(
    subject: &mut Subject,
    dims: &[usize],
    dtype: DType,
    class: BufferClass,
) -> Result<Tensor, DeviceError> {
    let spec = TensorSpec::new(dims, dtype)?;
    Ok(Tensor {
        buffer: subject.device.alloc(&spec, class)?,
        operand: Operand {
            dtype,
            view: View::contiguous(spec.shape),
        },
        elements: spec.shape.elements(),
    })
}

impl Tensor {
    /// The same elements, stored channels-last, as `[n, c, h, w]`.
    pub(super) fn as_image(mut self, dims: [usize; 4]) -> Result<Self, DeviceError> {
        self.operand.view = View::channels_last(dims, dims[1], 0)?;
        Ok(self)
    }

    pub(super) fn transposed(mut self, permutation: &[usize]) -> Result<Self, DeviceError> {
        self.operand.view = self.operand.view.transpose(permutation)?;
        Ok(self)
    }

    fn broadcast(mut self, dims: &[usize]) -> Result<Self, DeviceError> {
        self.operand.view = self.operand.view.broadcast_to(Shape::new(dims)?)?;
        Ok(self)
    }

    fn slice(mut self, axis: usize, start: usize, count: usize, step: isize) -> Result<Self, DeviceError> {
        self.operand.view = self.operand.view.slice(axis, start, count, step)?;
        Ok(self)
    }
}

/// A square window.
pub(super) const fn window(kernel: usize, stride: usize, pad: usize) -> Geometry2d {
    Geometry2d {
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        pad_begin: [pad; 2],
    }
}

/// Networks whose replays have to equal their eager runs.
pub(super) fn networks(subject: &mut Subject) -> Result<Vec<Graph>, DeviceError> {
    let mut networks = vec![
        elements(subject)?,
        movement(subject)?,
        convolutions(subject)?,
        reductions(subject)?,
    ];
    if subject.caps().dtypes.contains(&DType::Bf16) {
        networks.push(narrow(subject)?);
    }
    Ok(networks)
}

fn elements(subject: &mut Subject) -> Result<Graph, DeviceError> {
    let mut graph = Graph::new("element-wise functions");
    let dims = [7, 33];
    let (a, b) = (graph.input(subject, &dims)?, graph.input(subject, &dims)?);
    let (x, y) = (graph.output(subject, &dims)?, graph.output(subject, &dims)?);
    graph.binary(BinaryKind::Mul, a, b, x);
    graph.unary(Activation::Tanh, x, y);
    graph.binary(BinaryKind::Sub, y, a, y);
    graph.unary(Activation::Silu, x, x);
    graph.binary(BinaryKind::Max, x, y, x);
    graph.binary(BinaryKind::Add, x, b.slice(0, 0, 1, 1)?.broadcast(&dims)?, x);
    graph.unary(Activation::Sigmoid, y, y);
    Ok(graph)
}

fn movement(subject: &mut Subject) -> Result<Graph, DeviceError> {
    let mut graph = Graph::new("copies and gathers");
    let a = graph.input(subject, &[6, 10])?;
    let x = graph.output(subject, &[10, 6])?;
    let y = graph.output(subject, &[10, 6])?;
    let z = graph.output(subject, &[10, 9])?;
    graph.copy(a.transposed(&[1, 0])?, x);
    graph.fill(y, 0.25);
    graph.copy(x.slice(0, 9, 5, -2)?, y.slice(0, 0, 5, 1)?);
    graph.gather(1, &[5, 0, 0, 3, 1, 2, 4, 5, 5], y, z);
    Ok(graph)
}

fn convolutions(subject: &mut Subject) -> Result<Graph, DeviceError> {
    let mut random = Random::new(7);
    let mut graph = Graph::new("convolutions");
    let (small, wide) = ([1, 8, 6, 6], [1, 16, 3, 3]);
    let image = graph.input(subject, &[6 * 6 * 8])?.as_image(small)?;
    let depthwise = graph.output(subject, &[6 * 6 * 8])?.as_image(small)?;
    let dense = graph.output(subject, &[3 * 3 * 16])?.as_image(wide)?;
    let shortcut = graph.input(subject, &[3 * 3 * 16])?.as_image(wide)?;
    let desc = Conv2dDesc {
        input: image.operand,
        output: depthwise.operand,
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: window(3, 1, 1),
        groups: 8,
        activation: Activation::Relu,
        math: Math::Native,
    };
    let (weight, bias) = (random.fractions(8 * 9), random.fractions(8));
    graph.conv(subject, desc, &weight, &bias, [image, depthwise], None)?;
    let desc = Conv2dDesc {
        input: depthwise.operand,
        output: dense.operand,
        residual: Some(shortcut.operand),
        residual_order: ResidualOrder::AfterActivation,
        geometry: window(3, 2, 1),
        groups: 1,
        activation: Activation::Silu,
        math: Math::Native,
    };
    let (weight, bias) = (random.fractions(16 * 8 * 9), random.fractions(16));
    graph.conv(subject, desc, &weight, &bias, [depthwise, dense], Some(shortcut))?;
    Ok(graph)
}

fn reductions(subject: &mut Subject) -> Result<Graph, DeviceError> {
    let mut graph = Graph::new("pools, resizes and softmax");
    let image = graph.input(subject, &[6 * 6 * 8])?.as_image([1, 8, 6, 6])?;
    let half = graph.output(subject, &[3 * 3 * 8])?.as_image([1, 8, 3, 3])?;
    let mean = graph.output(subject, &[3 * 3 * 8])?.as_image([1, 8, 3, 3])?;
    let large = graph.output(subject, &[6 * 6 * 8])?.as_image([1, 8, 6, 6])?;
    let shares = graph.output(subject, &[9, 8])?;
    graph.pool(PoolKind::Max, window(3, 2, 1), image, half);
    graph.pool(PoolKind::AverageExcludingPad, window(3, 1, 1), half, mean);
    graph.resize(&[0, 0, 1, 1, 2, 2], &[0, 0, 1, 1, 2, 2], mean, large);
    let rows = Tensor {
        operand: shares.operand,
        ..mean
    };
    graph.softmax(1, rows, shares);
    Ok(graph)
}

fn narrow(subject: &mut Subject) -> Result<Graph, DeviceError> {
    let mut graph = Graph::new("bfloat16 storage");
    let dims = [5, 16];
    let a = graph.input(subject, &dims)?;
    let out = graph.output(subject, &dims)?;
    let narrow = reserve(subject, &dims, DType::Bf16, BufferClass::State)?;
    graph.copy(a, narrow);
    graph.binary(BinaryKind::Mul, narrow, narrow, narrow);
    graph.unary(Activation::HardSwish, narrow, narrow);
    graph.copy(narrow, out);
    Ok(graph)
}
