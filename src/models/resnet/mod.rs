//! Residual networks: the image backbones of camera detectors and the encoders of bird's-eye views.
//!
//! A network is built from convolutions with batch normalisation folded into them, which a [`ConvProvider`] hands out by
//! the name of their module, and from layers that a [`ConvFactory`] makes of them. [`folded_convs`] makes plain
//! convolutions; a factory of one's own makes other layers of the modules that it names (a deformable convolution, one of
//! another precision) and leaves the rest to [`folded_convs`]. Weights are brought to the device in the first run, and
//! every map is freed as soon as the last layer that reads it has run.

mod blocks;
mod layer;
mod names;
mod stages;

pub use blocks::{BasicBlock, Bottleneck, ResNetStem};
pub use layer::{ConvFactory, ConvParams, ConvProvider, MapLayer, folded_convs};
pub use names::{BlockNames, custom_resnet_names, mmdet_names};
pub use stages::{BlockKind, ResNetStages};
