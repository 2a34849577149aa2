//! What the conversions of whole slices share.

/// Two slices of a conversion that do not belong together.
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

/// Converts chunk by chunk, `N` elements of `from` to `M` of `to`; what is left at the end goes through a
/// chunk padded with zeros. The caller has checked that the lengths match.
#[inline(always)]
pub(super) fn in_chunks<A, B, const N: usize, const M: usize>(
    from: &[A],
    to: &mut [B],
    convert: impl Fn(&[A; N], &mut [B; M]),
) where
    A: Copy + Default,
    B: Copy + Default,
{
    let (chunks, _) = from.as_chunks::<N>();
    let (out, _) = to.as_chunks_mut::<M>();
    for (chunk, out) in chunks.iter().zip(&mut *out) {
        convert(chunk, out);
    }
    let whole = chunks.len().min(out.len());
    let (rest, out_rest) = (&from[whole * N..], &mut to[whole * M..]);
    if !out_rest.is_empty() {
        let (mut padded, mut converted) = ([A::default(); N], [B::default(); M]);
        padded[..rest.len()].copy_from_slice(rest);
        convert(&padded, &mut converted);
        out_rest.copy_from_slice(&converted[..out_rest.len()]);
    }
}
