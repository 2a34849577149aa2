//! Sixteen bits of grey to eight.

/// `round(value * 255 / 65535)` of every sample. The quotient is `value / 257`, which never lies half way
/// between two integers, so the rounding rule does not matter and `cv_bridge`'s float product comes out the
/// same.
pub(super) fn narrow(row: &[u8], sample: impl Fn([u8; 2]) -> u16, out: &mut [u8]) {
    for (out, &bytes) in out.iter_mut().zip(row.as_chunks().0) {
        *out = ((u32::from(sample(bytes)) * 255 + 32895) >> 16) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::narrow;

    #[test]
    fn every_value_is_rounded_to_the_nearest() {
        for value in 0..=u16::MAX {
            let mut out = [0];
            narrow(&value.to_le_bytes(), u16::from_le_bytes, &mut out);
            assert_eq!(out[0], (f64::from(value) / 257.0).round() as u8, "{value}");
        }
    }
}
