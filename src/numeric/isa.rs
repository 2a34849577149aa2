//! Which vector instructions the processor has.

use std::fmt;

/// Instruction set that a kernel or a conversion runs on. The choice changes speed, never a result that is
/// promised bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// One lane, any processor.
    Scalar,
    /// Eight lanes: AVX2, FMA and F16C.
    Avx2,
    /// Sixteen lanes: AVX-512 F, BW, VL and DQ.
    Avx512,
}

impl Isa {
    /// The widest set that this processor has.
    #[must_use]
    pub fn detect() -> Self {
        [Self::Avx512, Self::Avx2]
            .into_iter()
            .find(|isa| isa.is_available())
            .unwrap_or(Self::Scalar)
    }

    /// Whether this processor has the set.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = || {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            };
            match self {
                Self::Scalar => true,
                Self::Avx2 => avx2(),
                Self::Avx512 => {
                    avx2()
                        && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512vl")
                        && is_x86_feature_detected!("avx512dq")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Scalar
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        })
    }
}
