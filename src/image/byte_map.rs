//! What becomes of a byte after the resize: a float for each channel and value.

use half::bf16;

/// A float for every byte value of every channel, with short cuts where it can be computed as fast.
#[derive(Clone, PartialEq)]
pub(super) struct ByteMap {
    floats: [[f32; 256]; 3],
    bf16s: [[bf16; 256]; 3],
    form: MapForm,
}

/// How a map may be computed to the same bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MapForm {
    /// The byte less a number for each channel, in float.
    Less([f32; 3]),
    /// By looking it up.
    Table,
}

impl ByteMap {
    /// The map `value(channel, byte)`.
    pub(super) fn new(value: impl Fn(usize, u8) -> f32) -> Self {
        let floats: [[f32; 256]; 3] =
            std::array::from_fn(|channel| std::array::from_fn(|byte| value(channel, byte as u8)));
        let less = floats.each_ref().map(|table| -table[0]);
        let is_less = floats.iter().zip(less).all(|(table, less)| {
            (0..=255_u8).all(|byte| (f32::from(byte) - less).to_bits() == table[usize::from(byte)].to_bits())
        });
        Self {
            floats,
            bf16s: floats.map(|table| table.map(bf16::from_f32)),
            form: if is_less {
                MapForm::Less(less)
            } else {
                MapForm::Table
            },
        }
    }

    /// Bytes as the floats of the same values.
    pub(super) fn identity() -> Self {
        Self::new(|_, byte| f32::from(byte))
    }

    /// The floats of a channel.
    pub(super) const fn floats(&self) -> &[[f32; 256]; 3] {
        &self.floats
    }

    /// The brain floats of a channel.
    pub(super) const fn bf16s(&self) -> &[[bf16; 256]; 3] {
        &self.bf16s
    }

    /// How it may be computed.
    pub(super) const fn form(&self) -> MapForm {
        self.form
    }
}

impl std::fmt::Debug for ByteMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ByteMap").field(&self.form).finish()
    }
}

/// The bytes of three channels of a row of pixels, each to its place in its plane, from pixel `done` on.
pub(super) fn split_row<T: Copy>(
    row: &[u8],
    pixel_bytes: usize,
    channel_byte: [usize; 3],
    tables: [&[T; 256]; 3],
    done: usize,
    planes: [&mut [T]; 3],
) {
    for ((plane, byte), table) in planes.into_iter().zip(channel_byte).zip(tables) {
        let pixels = row.chunks_exact(pixel_bytes);
        for (value, pixel) in plane.iter_mut().zip(pixels).skip(done) {
            *value = table[usize::from(pixel[byte])];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_others_are_looked_up() {
        assert_eq!(ByteMap::identity().form(), MapForm::Less([-0.0; 3]));
        let means = [103.53, 116.28, 123.675];
        let less = ByteMap::new(|channel, byte| f32::from(byte) - means[channel]);
        assert_eq!(less.form(), MapForm::Less(means));
        let scaled = ByteMap::new(|_, byte| f32::from(byte) * (1.0 / 255.0));
        assert_eq!(scaled.form(), MapForm::Table);
        assert_eq!(scaled.floats()[2][255], 255.0 * (1.0_f32 / 255.0));
    }
}
