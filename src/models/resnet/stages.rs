//! Stages of blocks.

use super::super::block_error::BlockError;
use super::super::layers::free;
use super::blocks::{BasicBlock, Bottleneck};
use super::layer::{ConvFactory, ConvProvider};
use super::names::BlockNames;
use crate::device::Device;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::Shape;

const NETWORK: &str = "resnet";

/// What the stages are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// [`Bottleneck`]: ResNet-50 and deeper.
    Bottleneck,
    /// [`BasicBlock`]: ResNet-18, ResNet-34, encoders of bird's-eye views.
    Basic,
}

#[derive(Debug)]
enum Block {
    Bottleneck(Bottleneck),
    Basic(BasicBlock),
}

impl Block {
    fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
        match self {
            Self::Bottleneck(block) => block.out_shape(input),
            Self::Basic(block) => block.out_shape(input),
        }
    }

    fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        match self {
            Self::Bottleneck(block) => block.forward(ops, input),
            Self::Basic(block) => block.forward(ops, input),
        }
    }

    fn release(&self, device: &mut dyn Device) {
        match self {
            Self::Bottleneck(block) => block.release(device),
            Self::Basic(block) => block.release(device),
        }
    }
}

/// Stages of blocks, each stage working on the output of the one before it.
#[derive(Debug)]
pub struct ResNetStages {
    stages: Vec<Vec<Block>>,
}

impl ResNetStages {
    /// Stages of `layers[s]` blocks each. `names` says what the modules of block `b` of stage `s` are called.
    /// `downsample_first` says for each stage whether its first block projects its input; empty means that all do (as in
    /// ResNet-50; the first stage of ResNet-18 does not).
    ///
    /// # Errors
    /// [`BlockError::Weights`] for no stages, a stage without blocks, another number of flags than of stages; as the
    /// provider and the factory.
    pub fn new(
        provider: &dyn ConvProvider,
        names: &dyn Fn(usize, usize) -> BlockNames,
        layers: &[usize],
        kind: BlockKind,
        factory: &dyn ConvFactory,
        downsample_first: &[bool],
    ) -> Result<Self, BlockError> {
        if layers.is_empty() || layers.contains(&0) {
            let reason =
                format!("stages of {layers:?} blocks: at least one stage of at least one is expected");
            return Err(BlockError::weights(NETWORK, reason));
        }
        if !downsample_first.is_empty() && downsample_first.len() != layers.len() {
            let reason = format!("{} flags for {} stages", downsample_first.len(), layers.len());
            return Err(BlockError::weights(NETWORK, reason));
        }
        let projects =
            |stage: usize, block: usize| block == 0 && downsample_first.get(stage).copied().unwrap_or(true);
        let block = |stage, block| {
            let (names, projects) = (names(stage, block), projects(stage, block));
            Ok(match kind {
                BlockKind::Bottleneck => {
                    Block::Bottleneck(Bottleneck::new(provider, &names, projects, factory)?)
                }
                BlockKind::Basic => Block::Basic(BasicBlock::new(provider, &names, projects, factory)?),
            })
        };
        let stages = layers.iter().enumerate();
        let stages = stages.map(|(stage, &count)| (0..count).map(|index| block(stage, index)).collect());
        Ok(Self {
            stages: stages.collect::<Result<_, BlockError>>()?,
        })
    }

    /// Number of stages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.stages.len()
    }

    /// Always false: there is at least one stage.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Shapes `[N, C, H, W]` of the stages' outputs.
    ///
    /// # Errors
    /// As [`Bottleneck::out_shape`].
    pub fn out_shapes(&self, input: [usize; 4]) -> Result<Vec<[usize; 4]>, BlockError> {
        let mut last = input;
        let mut shapes = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            for block in stage {
                let known = Shape::new(&last).map_err(BlockError::tensor(NETWORK))?;
                last = block.out_shape(&known)?;
            }
            shapes.push(last);
        }
        Ok(shapes)
    }

    /// The outputs of the stages in `keep`, in that order, which the caller frees; no stage behind the last of them runs.
    /// All other maps are freed once they were read, the input with them where `free_input` is set (also if the run
    /// fails).
    ///
    /// # Errors
    /// [`BlockError::Weights`] for no stages, one that there is not, or one twice; [`BlockError`] of a block; nothing stays
    /// allocated but weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        keep: &[usize],
        free_input: bool,
    ) -> Result<Vec<DeviceTensor>, BlockError> {
        let mut kept: Vec<Option<DeviceTensor>> = vec![None; self.stages.len()];
        // Maps that nobody has freed yet and nobody else will.
        let mut held = Vec::new();
        if free_input {
            held.push(*input);
        }
        let run = self.run(ops, input, keep, &mut kept, &mut held);
        free(ops, &held);
        let found: Vec<_> = keep
            .iter()
            .filter_map(|&stage| kept.get(stage).copied().flatten())
            .collect();
        match run {
            Ok(()) => Ok(found),
            Err(error) => {
                free(ops, &kept.into_iter().flatten().collect::<Vec<_>>());
                Err(error)
            }
        }
    }

    fn run(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        keep: &[usize],
        kept: &mut [Option<DeviceTensor>],
        held: &mut Vec<DeviceTensor>,
    ) -> Result<(), BlockError> {
        let count = self.stages.len();
        let repeated = keep
            .iter()
            .enumerate()
            .any(|(i, stage)| keep[..i].contains(stage));
        let Some(&last) = keep.iter().max().filter(|&&last| last < count && !repeated) else {
            let reason =
                format!("outputs of the stages {keep:?} of {count}: at least one is expected, each once");
            return Err(BlockError::weights(NETWORK, reason));
        };
        let mut map = *input;
        for (stage, blocks) in self.stages[..=last].iter().enumerate() {
            for (index, block) in blocks.iter().enumerate() {
                map = block.forward(ops, &map)?;
                free(ops, held);
                held.clear();
                if index + 1 < blocks.len() || !keep.contains(&stage) {
                    held.push(map);
                }
            }
            if keep.contains(&stage) {
                kept[stage] = Some(map);
            }
        }
        Ok(())
    }

    /// Returns the weights' memory. The stages may run again.
    pub fn release(&self, device: &mut dyn Device) {
        for block in self.stages.iter().flatten() {
            block.release(device);
        }
    }
}
