//! Builders of convolutions, and what joins their results. Each is made of host weights, brings them to the device in its
//! first run, once for every form in which it runs, and keeps them there until it is released; so run each once before a
//! capture.
//!
//! A feature map is a [`super::DeviceTensor`] of logical shape `[N, C, H, W]` whose channels lie next to each other.
//!
//! No builder has an arithmetic by default: whoever makes one says [`crate::precision::Math::Native`] or a
//! [`crate::precision::Precision`].

mod activation;
mod conv2d;
mod error;
mod joined;
mod ksplit;
mod maps;
mod prepared;
mod spec;
mod terms;
mod transpose;

pub use activation::activation_named;
pub use conv2d::Conv2d;
pub use error::LayerError;
pub use joined::{MergedConvs, concat_channels, merge_sibling_convs, residual_add, split_channels};
pub use ksplit::{KSplitConv, KSplitSpec, split_k_weights};
pub use maps::{map_from_host, map_to_host, new_map};
pub use prepared::PreparedInput;
pub use spec::{Conv2dSpec, Padding, Slicing, WeightTerms};
pub use terms::bf16_terms;
pub use transpose::{ConvTranspose2d, ConvTranspose2dSpec, TransposeMethod};

pub(super) use maps::{lent, made};
pub(super) use prepared::{HostWeights, Prepared};
