//! Activations by the names that configurations use.

use super::LayerError;
use crate::device::{Activation, Scalar};

/// Names and what they stand for.
const NAMED: [(&str, Activation); 8] = [
    ("identity", Activation::Identity),
    ("relu", Activation::Relu),
    ("relu6", RELU6),
    ("silu", Activation::Silu),
    ("sigmoid", Activation::Sigmoid),
    ("hardswish", Activation::HardSwish),
    ("tanh", Activation::Tanh),
    ("exp", Activation::Exp),
];

const RELU6: Activation = Activation::Clip {
    low: Scalar::new(0.0),
    high: Scalar::new(6.0),
};

/// The activation of a name, in any case. All of them are fused behind convolutions, hardswish too, which some
/// accelerators silently skip there.
///
/// # Errors
/// [`LayerError::Weights`] with the names that there are.
pub fn activation_named(layer: &str, name: &str) -> Result<Activation, LayerError> {
    let wanted = name.to_ascii_lowercase();
    let found = NAMED.iter().find(|(name, _)| *name == wanted);
    found.map(|&(_, activation)| activation).ok_or_else(|| {
        let known = NAMED.map(|(name, _)| name).join(", ");
        LayerError::weights(
            layer,
            format!("no activation is called `{name}`: expected one of {known}"),
        )
    })
}
