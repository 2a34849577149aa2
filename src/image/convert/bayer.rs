//! Bilinear interpolation of a colour mosaic, scalar form: OpenCV's `COLOR_Bayer*2BGR`.

/// Where a mosaic has its red pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mosaic {
    /// Column and row of the red pixel among the first 2 x 2; the blue one lies diagonally opposite.
    pub(super) red_at: [usize; 2],
}

/// What a row of a mosaic holds: green and one of red and blue, in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct MosaicRow {
    /// Whether the pixels that are not green are red.
    pub(in super::super) red: bool,
    /// First column, 0 or 1, that is not green.
    pub(in super::super) first: usize,
}

impl Mosaic {
    /// Row `y`.
    pub(super) const fn row(self, y: usize) -> MosaicRow {
        let [red_x, red_y] = self.red_at;
        let red = y % 2 == red_y;
        MosaicRow {
            red,
            first: if red { red_x } else { 1 - red_x },
        }
    }
}

/// Interpolates the columns `columns` of the middle row, none of them the first or the last.
///
/// A red or blue pixel takes green as `(left + right + up + down + 2) >> 2` and the colour it lacks from its
/// four diagonal neighbours alike; a green one takes either colour as `(a + b + 1) >> 1` of the two pixels
/// beside and the two above and below it.
pub(in super::super) fn interior(
    [up, here, down]: [&[u8]; 3],
    row: MosaicRow,
    columns: std::ops::Range<usize>,
    out: &mut [u8],
) {
    let pixels = out.as_chunks_mut::<3>().0;
    let sum = |values: [u8; 4]| values.map(u32::from).iter().sum::<u32>();
    let quarter = |values| ((sum(values) + 2) >> 2) as u8;
    let half = |a: u8, b: u8| ((u32::from(a) + u32::from(b) + 1) >> 1) as u8;
    for x in columns {
        let (l, r) = (x - 1, x + 1);
        let [own, green, other] = if x % 2 == row.first {
            [
                here[x],
                quarter([here[l], here[r], up[x], down[x]]),
                quarter([up[l], up[r], down[l], down[r]]),
            ]
        } else {
            [half(here[l], here[r]), here[x], half(up[x], down[x])]
        };
        pixels[x] = if row.red {
            [other, green, own]
        } else {
            [own, green, other]
        };
    }
}
