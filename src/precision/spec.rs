//! A precision: what of an engine's configuration a module sets, as text and as a value.

use std::fmt;
use std::str::FromStr;

use super::{Fidelity, OperandFormat, PrecisionError};
use crate::tensor::DType;

/// How a module computes.
///
/// As text: a fidelity or a preset, then options in any order, then storage: `HiFi4+fp32+approx+l1acc+fullsync`,
/// `HiFi2+fp32:w=bfp8`, `balanced:a=fp32`, `HiFi4+fp32:w=bfp8:a=bf16`. What a fidelity is not followed by is off;
/// weights and activations are bf16 unless the text says otherwise. [`Precision`]'s `Display` writes a text that
/// reads back as the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Precision {
    /// Passes over the operands' bits.
    pub fidelity: Fidelity,
    /// fp32 sums in the engine; bf16 otherwise.
    pub fp32_acc: bool,
    /// Approximate activation functions. The CPU device computes them exactly either way.
    pub approx: bool,
    /// Partial sums of long products are added up in the engine's type; in the output's type otherwise.
    pub packer_l1_acc: bool,
    /// The engine's sums use the whole of their registers at a time. Changes no result.
    pub dst_full_sync: bool,
    /// How weights are stored.
    pub weights: OperandFormat,
    /// How activations are stored: bf16 or fp32.
    pub activations: DType,
}

/// A precision with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub precision: Precision,
    /// When to use it.
    pub doc: &'static str,
}

/// The precisions that have a name.
pub const PRESETS: [Preset; 3] = [
    Preset {
        name: "accurate",
        precision: Precision::new(Fidelity::HiFi4, true),
        doc: "four passes, fp32 sums",
    },
    Preset {
        name: "balanced",
        precision: Precision::new(Fidelity::HiFi2, true),
        doc: "two passes, fp32 sums",
    },
    Preset {
        name: "fast",
        precision: Precision {
            weights: OperandFormat::Bfp8,
            ..Precision::new(Fidelity::LoFi, false)
        },
        doc: "one pass, bf16 sums, bfp8 weights: only where the accuracy gates pass with it",
    },
];

impl Precision {
    /// A fidelity with fp32 sums or without, nothing else switched on, bf16 weights and activations.
    #[must_use]
    pub const fn new(fidelity: Fidelity, fp32_acc: bool) -> Self {
        Self {
            fidelity,
            fp32_acc,
            approx: false,
            packer_l1_acc: false,
            dst_full_sync: false,
            weights: OperandFormat::Bf16,
            activations: DType::Bf16,
        }
    }

    /// `HiFi4+fp32+l1acc`: what convolutions want where nothing speaks against it. Without the accumulation of partial
    /// sums a 3 x 3 convolution of 256 channels keeps them in bf16 and has ten times the error.
    pub const CONVOLUTION: Self = Self::new(Fidelity::HiFi4, true).with_packer_l1_acc(true);

    /// With another fidelity.
    #[must_use]
    pub const fn with_fidelity(self, fidelity: Fidelity) -> Self {
        Self { fidelity, ..self }
    }

    /// With fp32 sums or without.
    #[must_use]
    pub const fn with_fp32_acc(self, fp32_acc: bool) -> Self {
        Self { fp32_acc, ..self }
    }

    /// With approximate activation functions or without.
    #[must_use]
    pub const fn with_approx(self, approx: bool) -> Self {
        Self { approx, ..self }
    }

    /// With partial sums in the engine's type or without.
    #[must_use]
    pub const fn with_packer_l1_acc(self, packer_l1_acc: bool) -> Self {
        Self {
            packer_l1_acc,
            ..self
        }
    }

    /// With the whole of the engine's registers at a time or without.
    #[must_use]
    pub const fn with_dst_full_sync(self, dst_full_sync: bool) -> Self {
        Self {
            dst_full_sync,
            ..self
        }
    }

    /// With weights in another format.
    #[must_use]
    pub const fn with_weights(self, weights: OperandFormat) -> Self {
        Self { weights, ..self }
    }

    /// With activations of another type.
    ///
    /// # Errors
    /// [`PrecisionError::Activations`] for a type other than bf16 and fp32.
    pub fn with_activations(self, activations: DType) -> Result<Self, PrecisionError> {
        match activations {
            DType::Bf16 | DType::F32 => Ok(Self { activations, ..self }),
            other => Err(PrecisionError::Activations {
                text: self.to_string(),
                found: other.to_string(),
            }),
        }
    }

    /// The text of `Display`, as reports name it.
    #[must_use]
    pub fn label(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fidelity.fmt(f)?;
        let options = [
            (self.fp32_acc, "+fp32"),
            (self.approx, "+approx"),
            (self.packer_l1_acc, "+l1acc"),
            (self.dst_full_sync, "+fullsync"),
        ];
        for (_, text) in options.into_iter().filter(|&(on, _)| on) {
            f.write_str(text)?;
        }
        if self.weights != OperandFormat::Bf16 {
            write!(f, ":w={}", self.weights)?;
        }
        match self.activations {
            DType::F32 => f.write_str(":a=fp32"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Precision {
    type Err = PrecisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let twice = |what: String| PrecisionError::Twice {
            text: text.into(),
            what,
        };
        let mut fields = text.trim().split(':');
        // Splitting gives at least one part.
        let mut flags = fields.next().unwrap_or_default().split('+');
        let mut precision = head(flags.next().unwrap_or_default(), text)?;
        let mut seen = Vec::new();
        for flag in flags {
            let place = match flag {
                "fp32" => &mut precision.fp32_acc,
                "approx" => &mut precision.approx,
                "l1acc" => &mut precision.packer_l1_acc,
                "fullsync" => &mut precision.dst_full_sync,
                _ => {
                    return Err(PrecisionError::Flag {
                        text: text.into(),
                        flag: flag.into(),
                    });
                }
            };
            *place = true;
            if seen.contains(&flag) {
                return Err(twice(format!("+{flag}")));
            }
            seen.push(flag);
        }
        for field in fields {
            let Some((key @ ("w" | "a"), value)) = field.split_once('=') else {
                return Err(PrecisionError::Field {
                    text: text.into(),
                    field: field.into(),
                });
            };
            if seen.contains(&key) {
                return Err(twice(format!(":{key}=")));
            }
            seen.push(key);
            match key {
                "w" => {
                    precision.weights = value.parse().map_err(|source| PrecisionError::Weights {
                        text: text.into(),
                        source,
                    })?;
                }
                _ => precision.activations = activations(value, text)?,
            }
        }
        Ok(precision)
    }
}

fn head(word: &str, text: &str) -> Result<Precision, PrecisionError> {
    if word.is_empty() {
        return Err(PrecisionError::NoFidelity { text: text.into() });
    }
    if let Some(preset) = PRESETS.iter().find(|preset| preset.name == word) {
        return Ok(preset.precision);
    }
    match word.parse() {
        Ok(fidelity) => Ok(Precision::new(fidelity, false)),
        Err(_) => Err(PrecisionError::Head { text: text.into() }),
    }
}

fn activations(value: &str, text: &str) -> Result<DType, PrecisionError> {
    match value {
        "bf16" | "bfloat16" => Ok(DType::Bf16),
        "fp32" | "f32" | "float32" => Ok(DType::F32),
        _ => Err(PrecisionError::Activations {
            text: text.into(),
            found: value.into(),
        }),
    }
}
