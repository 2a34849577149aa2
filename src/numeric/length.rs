//! Slices that do not belong together.

/// The two slices of a conversion hold different numbers of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{conversion}: the codes of {values} values fill a slice of {required}, but the one given has {codes}; \
     give slices that hold the same number of values"
)]
pub struct LengthError {
    /// What was asked for.
    conversion: &'static str,
    values: usize,
    /// Length that the slice of codes must have.
    required: usize,
    codes: usize,
}

impl LengthError {
    /// Refuses slices unless that of the codes is as long as `values` values require.
    pub(super) const fn check(
        conversion: &'static str,
        values: usize,
        required: usize,
        codes: usize,
    ) -> Result<(), Self> {
        if required == codes {
            Ok(())
        } else {
            Err(Self {
                conversion,
                values,
                required,
                codes,
            })
        }
    }
}
