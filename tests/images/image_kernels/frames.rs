//! Frames and geometries that the tests share.

use sensorium::image::{ImageRef, Kernels, PixelFormat, Preset, PresetOptions, PresetPlan, Workspace};

/// Random numbers, the same for the same seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// A number of `range`.
    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.next() as usize % (range.end() - range.start() + 1)
    }
}

/// A frame that owns its bytes, with padding after every row.
pub(crate) struct Frame {
    pub(crate) size_px: [usize; 2],
    pub(crate) format: PixelFormat,
    bytes: Vec<u8>,
}

impl Frame {
    /// Pixels without any structure.
    pub(crate) fn noise(size_px: [usize; 2], format: PixelFormat, seed: u64) -> Self {
        let mut noise = Noise::new(seed);
        Self::from_fn(size_px, format, |_, _, _| noise.next() as u8)
    }

    /// Every byte the same.
    pub(crate) fn constant(size_px: [usize; 2], value: u8) -> Self {
        Self::from_fn(size_px, PixelFormat::Bgr8, |_, _, _| value)
    }

    fn from_fn(
        size_px: [usize; 2],
        format: PixelFormat,
        mut value: impl FnMut(usize, usize, usize) -> u8,
    ) -> Self {
        let [width, height] = size_px;
        let mut bytes = Vec::new();
        for y in 0..height {
            for x in 0..width {
                bytes.extend((0..format.channels()).map(|c| value(x, y, c)));
            }
            bytes.extend([0xEE; PADDING_BYTES]);
        }
        Self {
            size_px,
            format,
            bytes,
        }
    }

    pub(crate) fn view(&self) -> ImageRef<'_> {
        let [width, height] = self.size_px;
        ImageRef::new(&self.bytes, width, height, self.step(), self.format).unwrap()
    }

    /// The pixels without padding.
    pub(crate) fn dense(&self) -> Vec<u8> {
        let rows = self.bytes.chunks_exact(self.step());
        rows.flat_map(|row| &row[..row.len() - PADDING_BYTES])
            .copied()
            .collect()
    }

    fn step(&self) -> usize {
        self.size_px[0] * self.format.channels() + PADDING_BYTES
    }

    /// Blue, green or red of a pixel.
    pub(crate) fn bgr(&self, x: usize, y: usize, channel: usize) -> u8 {
        let byte = match self.format {
            PixelFormat::Bgr8 | PixelFormat::Bgra8 => channel,
            PixelFormat::Rgb8 | PixelFormat::Rgba8 => 2 - channel,
            _ => 0,
        };
        self.bytes[y * self.step() + x * self.format.channels() + byte]
    }
}

const PADDING_BYTES: usize = 5;

/// Every pixel format in turn.
pub(crate) fn format(i: usize) -> PixelFormat {
    [
        PixelFormat::Bgr8,
        PixelFormat::Rgb8,
        PixelFormat::Mono8,
        PixelFormat::Bgra8,
        PixelFormat::Rgba8,
    ][i % 5]
}

/// Sixty pairs of source and target size in pixels: the ones given, then random ones of every proportion, some
/// an exact half or double.
pub(crate) fn sixty(given: &[[[usize; 2]; 2]], least_px: usize) -> Vec<[[usize; 2]; 2]> {
    let mut noise = Noise::new(5);
    let mut all = given.to_vec();
    while all.len() < 60 {
        let side = least_px..=120;
        let target = [noise.within(1..=120), noise.within(1..=120)];
        let source = match all.len() % 6 {
            0 => target.map(|side| 2 * side),
            1 => target.map(|side| side.div_ceil(2)),
            _ => [noise.within(side.clone()), noise.within(side)],
        };
        all.push([source.map(|side| side.max(least_px)), target]);
    }
    all
}

/// Fails with the first place where two results differ in a bit.
pub(crate) fn assert_same_bits<T: Copy + PartialEq + std::fmt::Debug>(
    ours: &[T],
    expected: &[T],
    what: &str,
) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    let wrong = ours.iter().zip(expected).filter(|(a, b)| a != b).count();
    if let Some(i) = ours.iter().zip(expected).position(|(a, b)| a != b) {
        panic!(
            "{what}: {wrong} values differ, value {i} is {:?}, not {:?}",
            ours[i], expected[i]
        );
    }
}

/// Bit patterns, so that equal means equal bits.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// What a preset makes of a frame, in memory that held something else, by two threads.
pub(crate) fn preset_bytes(
    preset: Preset,
    frame: &Frame,
    options: &PresetOptions,
    kernels: Kernels,
) -> Vec<u8> {
    let plan = PresetPlan::new(preset, frame.size_px, options)
        .unwrap()
        .with_kernels(kernels);
    let bytes = plan.form().bytes();
    let mut out = vec![f32::from_ne_bytes([0xA5; 4]); bytes.div_ceil(4)];
    let out = &mut bytemuck::cast_slice_mut(&mut out)[..bytes];
    let mut workspaces = [Workspace::default(), Workspace::default()];
    plan.apply(&frame.view(), out, &mut workspaces).unwrap();
    out.to_vec()
}

/// Planes of three channels as pixels of three bytes.
pub(crate) fn interleaved(planes: &[u8]) -> Vec<u8> {
    let area = planes.len() / 3;
    (0..area)
        .flat_map(|i| [0, 1, 2].map(|c| planes[c * area + i]))
        .collect()
}
