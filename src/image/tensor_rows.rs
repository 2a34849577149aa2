//! Finished rows on their way into a network's input, in its layout and type.

use bytemuck::cast_slice_mut;
use half::bf16;
use half::slice::HalfFloatSliceExt;

use super::byte_map::ByteMap;
use super::simd::Kernels;
use super::sink::{PlanarSink, RowSink};
use super::tensor_form::{CHANNELS, Layout, SampleType, TensorForm};

/// Some rows of an input, to be written by one thread.
#[derive(Debug)]
pub(super) struct TensorRows<'a> {
    form: TensorForm,
    /// Number of the first row.
    first: usize,
    /// How many rows.
    count: usize,
    /// The rows of every plane; all in the first where pixels are interleaved.
    planes: [&'a mut [u8]; CHANNELS],
}

impl<'a> TensorRows<'a> {
    /// All rows of an input, whose memory [`TensorForm::check`] accepted.
    pub(super) fn new(form: TensorForm, out: &'a mut [u8]) -> Self {
        let [width, height] = form.size_px;
        let planes = match form.layout {
            Layout::Hwc => [out, &mut [], &mut []],
            Layout::Chw => {
                let plane = width * height * form.samples.bytes();
                let (a, rest) = out.split_at_mut(plane);
                let (b, c) = rest.split_at_mut(plane);
                [a, b, c]
            }
        };
        Self {
            form,
            first: 0,
            count: height,
            planes,
        }
    }

    /// Numbers of the rows.
    pub(super) const fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }

    /// The first `rows` rows, and the rest.
    pub(super) fn split_at(self, rows: usize) -> (Self, Self) {
        let rows = rows.min(self.count);
        let row_bytes = self.row_bytes();
        let [a, b, c] = self.planes.map(|plane| {
            let at = (rows * row_bytes).min(plane.len());
            plane.split_at_mut(at)
        });
        let (upper, lower) = ([a.0, b.0, c.0], [a.1, b.1, c.1]);
        let part = |first, count, planes| Self {
            form: self.form,
            first,
            count,
            planes,
        };
        (
            part(self.first, rows, upper),
            part(self.first + rows, self.count - rows, lower),
        )
    }

    /// Bytes of a row in one plane.
    const fn row_bytes(&self) -> usize {
        let values = match self.form.layout {
            Layout::Hwc => self.form.size_px[0] * CHANNELS,
            Layout::Chw => self.form.size_px[0],
        };
        values * self.form.samples.bytes()
    }

    /// The bytes of a row, plane by plane.
    fn row(&mut self, y: usize) -> [&mut [u8]; CHANNELS] {
        let row_bytes = self.row_bytes();
        let at = (y - self.first) * row_bytes;
        self.planes.each_mut().map(|plane| match plane.is_empty() {
            true => &mut [][..],
            false => &mut plane[at..at + row_bytes],
        })
    }
}

/// Memory between a resize and the input, one row of it.
#[derive(Debug, Clone, Default)]
pub(super) struct RowScratch {
    bytes: Vec<u8>,
    floats: Vec<f32>,
}

/// Writes the rows of a resize to the left of an input, and the padding to the right of them.
#[derive(Debug)]
pub(super) struct TensorWriter<'a, 's> {
    /// Where they go.
    pub(super) rows: TensorRows<'a>,
    /// Width of what is written, at most that of the input.
    pub(super) content_width: usize,
    /// What becomes of a byte.
    pub(super) map: &'s ByteMap,
    /// Value of the padding: as a byte, and as what that becomes.
    pub(super) padding: (u8, f32),
    /// Kernels.
    pub(super) kernels: Kernels,
    /// Memory.
    pub(super) scratch: &'s mut RowScratch,
}

impl TensorWriter<'_, '_> {
    /// Fills a row from column `from` on with padding.
    pub(super) fn pad(&mut self, y: usize, from: usize) {
        let form = self.rows.form;
        let from = match form.layout {
            Layout::Hwc => from * CHANNELS,
            Layout::Chw => from,
        };
        let (byte, float) = self.padding;
        for plane in self.rows.row(y) {
            if plane.is_empty() {
                continue;
            }
            match form.samples {
                SampleType::U8 => plane[from..].fill(byte),
                SampleType::Bf16 => cast_slice_mut::<_, bf16>(plane)[from..].fill(bf16::from_f32(float)),
                SampleType::F32 => cast_slice_mut::<_, f32>(plane)[from..].fill(float),
            }
        }
    }

    fn pad_right(&mut self, y: usize) {
        if self.content_width < self.rows.form.size_px[0] {
            self.pad(y, self.content_width);
        }
    }
}

impl RowSink<u8> for TensorWriter<'_, '_> {
    fn row(&mut self, y: usize, fill: impl FnOnce(&mut [u8])) {
        let width = self.content_width;
        let values = width * CHANNELS;
        let form = self.rows.form;
        if (form.layout, form.samples) == (Layout::Hwc, SampleType::U8) {
            let [row, ..] = self.rows.row(y);
            fill(&mut row[..values]);
            return self.pad_right(y);
        }
        let bytes = &mut self.scratch.bytes;
        bytes.resize(values, 0);
        fill(bytes);
        let in_order = [0, 1, 2];
        let planes = self.rows.row(y);
        match (form.layout, form.samples) {
            (Layout::Chw, SampleType::U8) => {
                let planes = planes.map(|plane| &mut plane[..width]);
                self.kernels.split_bytes(bytes, CHANNELS, in_order, planes);
            }
            (Layout::Chw, SampleType::F32) => {
                let planes = planes.map(|plane| &mut cast_slice_mut(plane)[..width]);
                self.kernels
                    .split_floats(bytes, CHANNELS, in_order, self.map, planes);
            }
            (Layout::Chw, SampleType::Bf16) => {
                let planes = planes.map(|plane| &mut cast_slice_mut(plane)[..width]);
                let tables = self.map.bf16s().each_ref();
                super::byte_map::split_row(bytes, CHANNELS, in_order, tables, 0, planes);
            }
            (Layout::Hwc, SampleType::F32) => {
                let [row, ..] = planes;
                map_row(bytes, self.map.floats(), cast_slice_mut(row));
            }
            (Layout::Hwc, SampleType::U8 | SampleType::Bf16) => {
                let [row, ..] = planes;
                map_row(bytes, self.map.bf16s(), cast_slice_mut(row));
            }
        }
        self.pad_right(y);
    }
}

/// Interleaved bytes to interleaved values.
fn map_row<T: Copy>(bytes: &[u8], tables: &[[T; 256]; CHANNELS], out: &mut [T]) {
    let pixels = out.as_chunks_mut::<CHANNELS>().0.iter_mut();
    for (out, pixel) in pixels.zip(bytes.as_chunks::<CHANNELS>().0) {
        for ((value, &byte), table) in out.iter_mut().zip(pixel).zip(tables) {
            *value = table[usize::from(byte)];
        }
    }
}

impl PlanarSink for TensorWriter<'_, '_> {
    fn planes(&mut self, y: usize, fill: impl FnOnce([&mut [f32]; 3])) {
        let width = self.content_width;
        let form = self.rows.form;
        if (form.layout, form.samples) == (Layout::Chw, SampleType::F32) {
            fill(self.rows.row(y).map(|plane| &mut cast_slice_mut(plane)[..width]));
            return self.pad_right(y);
        }
        let floats = &mut self.scratch.floats;
        floats.resize(width * CHANNELS, 0.0);
        let (a, rest) = floats.split_at_mut(width);
        let (b, c) = rest.split_at_mut(width);
        fill([&mut *a, &mut *b, &mut *c]);
        let from = [&*a, &*b, &*c];
        let rows = self.rows.row(y);
        match (form.layout, form.samples) {
            (Layout::Chw, _) => {
                for (out, floats) in rows.into_iter().zip(from) {
                    cast_slice_mut::<_, bf16>(&mut out[..width * 2]).convert_from_f32_slice(floats);
                }
            }
            (Layout::Hwc, SampleType::F32) => {
                let [row, ..] = rows;
                interleave(from, cast_slice_mut::<_, f32>(row), |value| value);
            }
            (Layout::Hwc, _) => {
                let [row, ..] = rows;
                interleave(from, cast_slice_mut::<_, bf16>(row), bf16::from_f32);
            }
        }
        self.pad_right(y);
    }
}

fn interleave<T>(planes: [&[f32]; CHANNELS], out: &mut [T], value: impl Fn(f32) -> T) {
    let [a, b, c] = planes;
    let pixels = out.as_chunks_mut::<CHANNELS>().0.iter_mut();
    for (pixel, ((&a, &b), &c)) in pixels.zip(a.iter().zip(b).zip(c)) {
        *pixel = [value(a), value(b), value(c)];
    }
}
