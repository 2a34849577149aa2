//! What an operation may be asked for.

/// Whether an operation takes all that this device computes, or only what a network can ask of the matrix accelerator that
/// its graph may be ported to (Tenstorrent Blackhole). A graph that is built under [`PortRule::Accelerator`] runs there
/// with the same calls; what the accelerator computes wrongly or not at all is refused here, with the reason, instead of
/// being found there.
///
/// | operation | the accelerator's rule |
/// |---|---|
/// | [`super::deform::grid_sample`] | channels in multiples of 32; bf16 input (fp32 input is sampled wrongly under fp32 accumulation); bilinear, zeros outside, corners not aligned |
/// | [`super::heatmap::LocalMax`] | bf16 heat (its pooling has no other) |
/// | [`super::segment::SegmentReduce`] | rows and channels in multiples of 32; the maximum only (its data movers have no float unit) |
///
/// What is wrong on any device (a grid of bf16, another number of grids than images, offsets of floats) is refused under
/// both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PortRule {
    /// All that this device computes.
    #[default]
    Here,
    /// What the accelerator computes too.
    Accelerator,
}
