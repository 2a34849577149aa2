//! Results in planes, one a channel, as most networks take them.

use super::ImageError;
use super::sink::RowSink;

/// Channels of a result: blue, green, red.
const CHANNELS: usize = 3;

/// Takes interleaved rows of three channels apart into planes that lie one after another.
#[derive(Debug)]
pub(super) struct PlanarRows<'a, S, D, F> {
    planes: [&'a mut [D]; CHANNELS],
    width: usize,
    row: &'a mut Vec<S>,
    convert: F,
}

impl<'a, S: Copy + Default, D, F: Fn(S) -> D> PlanarRows<'a, S, D, F> {
    /// Planes of `size_px` in `out`, which holds three of them; `row` is memory for one interleaved row.
    pub(super) fn new(out: &'a mut [D], size_px: [usize; 2], row: &'a mut Vec<S>, convert: F) -> Self {
        let [width, height] = size_px;
        let (blue, rest) = out.split_at_mut(width * height);
        let (green, red) = rest.split_at_mut(width * height);
        if row.len() < width * CHANNELS {
            row.resize(width * CHANNELS, S::default());
        }
        Self {
            planes: [blue, green, red],
            width,
            row,
            convert,
        }
    }
}

impl<S: Copy, D, F: Fn(S) -> D> RowSink<S> for PlanarRows<'_, S, D, F> {
    fn row(&mut self, y: usize, fill: impl FnOnce(&mut [S])) {
        let row = &mut self.row[..self.width * CHANNELS];
        fill(row);
        let pixels = row.as_chunks::<CHANNELS>().0;
        let [blue, green, red] = &mut self.planes;
        let range = y * self.width..(y + 1) * self.width;
        let planes = blue[range.clone()]
            .iter_mut()
            .zip(&mut green[range.clone()])
            .zip(&mut red[range]);
        for (&[b, g, r], ((blue, green), red)) in pixels.iter().zip(planes) {
            (*blue, *green, *red) = ((self.convert)(b), (self.convert)(g), (self.convert)(r));
        }
    }
}

/// Refuses an output of another length.
pub(super) fn check_length<T>(out: &[T], expected: usize) -> Result<(), ImageError> {
    if out.len() == expected {
        Ok(())
    } else {
        Err(ImageError::OutputLength {
            expected,
            found: out.len(),
        })
    }
}
