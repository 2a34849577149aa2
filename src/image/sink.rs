//! Where the rows of a resize go.

/// Takes finished rows, each `width * channels` interleaved values of type `T`.
pub(super) trait RowSink<T> {
    /// Has row `y` filled in. The memory that `fill` gets may hold anything; all of it has to be written.
    fn row(&mut self, y: usize, fill: impl FnOnce(&mut [T]));
}

/// Rows one below the other in memory, `step` values apart, from row `first` on.
#[derive(Debug)]
pub(super) struct RowsInMemory<'a, T> {
    /// From the first value of row `first` on.
    pub(super) values: &'a mut [T],
    /// Values from one row to the next.
    pub(super) step: usize,
    /// Values of a row.
    pub(super) row_len: usize,
    /// Number of the row that comes first.
    pub(super) first: usize,
}

impl<T> RowSink<T> for RowsInMemory<'_, T> {
    fn row(&mut self, y: usize, fill: impl FnOnce(&mut [T])) {
        fill(&mut self.values[(y - self.first) * self.step..][..self.row_len]);
    }
}

/// Takes finished rows of floats, plane by plane.
pub(super) trait PlanarSink {
    /// Has the three planes of row `y` filled in. The memory may hold anything; all of it has to be written.
    fn planes(&mut self, y: usize, fill: impl FnOnce([&mut [f32]; 3]));
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::columns::Sampler;
    use super::super::source_rows::SourceRows;
    use super::super::workspace::ResizerScratch;
    use super::super::{
        AutowareLetterboxPlan, BevfusionCameraPlan, Contraction, ImageRef, Kernels, NearestCropPlan,
        PixelFormat, ResizePlan, StreampetrPlan,
    };
    use super::{PlanarSink, RowSink};

    /// Rows one after another, each made in memory that holds something else.
    struct Collected<T> {
        values: Vec<T>,
        row: Vec<T>,
    }

    impl<T: Copy> RowSink<T> for Collected<T> {
        fn row(&mut self, _: usize, fill: impl FnOnce(&mut [T])) {
            fill(&mut self.row);
            self.values.extend_from_slice(&self.row);
        }
    }

    impl PlanarSink for Collected<f32> {
        fn planes(&mut self, y: usize, fill: impl FnOnce([&mut [f32]; 3])) {
            self.row(y, |row| {
                let (first, rest) = row.split_at_mut(row.len() / 3);
                let (second, third) = rest.split_at_mut(rest.len() / 2);
                fill([first, second, third]);
            });
        }
    }

    const SOURCE_PX: [usize; 2] = [97, 71];

    /// Fails if the rows of a result depend on the range that they are computed in.
    fn assert_ranges_agree<T: Copy + PartialEq>(
        size_px: [usize; 2],
        dirt: T,
        mut rows: impl FnMut(&mut SourceRows<'_>, Range<usize>, &mut ResizerScratch, &mut Collected<T>),
    ) {
        let pixels: Vec<u8> = (0..SOURCE_PX[0] * SOURCE_PX[1] * 3)
            .map(|i| (i * 7919 % 251) as u8)
            .collect();
        let [width, height] = SOURCE_PX;
        let image = ImageRef::new(&pixels, width, height, 3 * width, PixelFormat::Bgr8).unwrap();
        let mut converted = Vec::new();
        let mut source = SourceRows::new(image, Kernels::detect(), &mut converted);
        let mut scratch = ResizerScratch::default();
        let mut collect = |ranges: &[Range<usize>]| {
            let mut sink = Collected {
                values: Vec::new(),
                row: vec![dirt; 3 * size_px[0]],
            };
            for range in ranges {
                rows(&mut source, range.clone(), &mut scratch, &mut sink);
            }
            sink.values
        };
        let height = size_px[1];
        let whole = collect(std::slice::from_ref(&(0..height)));
        assert_eq!(whole.len(), 3 * size_px[0] * height);
        let single: Vec<_> = (0..height).map(|y| y..y + 1).collect();
        assert!(collect(&single) == whole);
        assert!(collect(&[0..height / 3, height / 3..height - 2, height - 2..height]) == whole);
        assert!(collect(std::slice::from_ref(&(5..5))).is_empty());
    }

    #[test]
    fn rows_do_not_depend_on_the_range_they_are_computed_in() {
        let sampler = Sampler::bgr(PixelFormat::Bgr8);
        for target in [[40, 40], [150, 200]] {
            let plan = AutowareLetterboxPlan::new(SOURCE_PX, target).unwrap();
            assert_ranges_agree(plan.content_px(), 0xA5, |source, range, scratch, sink| {
                plan.rows(source, &sampler, range, &mut scratch.letterbox, sink);
            });
            let plan = StreampetrPlan::new(SOURCE_PX, target, Contraction::Fused).unwrap();
            assert_ranges_agree(target, f32::NAN, |source, range, scratch, sink| {
                plan.rows(source, &sampler, [0, 1, 2], range, &mut scratch.triangle, sink);
            });
            for plan in [
                ResizePlan::new(SOURCE_PX, target),
                ResizePlan::area(SOURCE_PX, target),
            ] {
                let plan = plan.unwrap();
                assert_ranges_agree(target, 0xA5, |source, range, scratch, sink| {
                    plan.rows::<4, 3>(source, &sampler, range, &mut scratch.resize, sink);
                });
            }
            // More rows than the resized image has.
            let plan = BevfusionCameraPlan::new(SOURCE_PX, target, [0.5; 2], Contraction::Fused).unwrap();
            assert_ranges_agree(target, 0xA5, |source, range, scratch, sink| {
                plan.rows(source, &sampler, range, &mut scratch.triangle, sink);
            });
        }
        let plan = NearestCropPlan::new(SOURCE_PX, [40, 20], [0, 4]).unwrap();
        assert_ranges_agree([40, 20], 0xA5, |source, range, _, sink| {
            plan.rows(source, &sampler, range, sink);
        });
    }
}
