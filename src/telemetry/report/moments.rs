//! What all sensors saw at one time, side by side: the sweep from above, and the images around it.

use std::fmt::Write as _;

use super::{ReportFrame, SweepFrame, birds_eye, gallery};

/// The frames and sweeps of a report, by what they share.
#[derive(Debug)]
pub(super) struct Moments<'a> {
    /// Sweeps with the images of the same stamp, in order.
    pub(super) shared: Vec<(&'a SweepFrame, Vec<&'a ReportFrame>)>,
    /// Sweeps without images.
    pub(super) sweeps: Vec<&'a SweepFrame>,
    /// Images without a sweep.
    pub(super) frames: Vec<&'a ReportFrame>,
}

impl<'a> Moments<'a> {
    pub(super) fn of(sweeps: &'a [SweepFrame], frames: &'a [ReportFrame]) -> Self {
        let mut moments = Self {
            shared: Vec::new(),
            sweeps: Vec::new(),
            frames: Vec::new(),
        };
        let mut with_sweep = Vec::new();
        for sweep in sweeps {
            let mut beside: Vec<_> = frames
                .iter()
                .filter(|frame| frame.stamp_ns == sweep.stamp_ns)
                .collect();
            if beside.is_empty() {
                moments.sweeps.push(sweep);
            } else {
                with_sweep.push(sweep.stamp_ns);
                beside.sort_by(|a, b| a.stream.cmp(&b.stream));
                moments.shared.push((sweep, beside));
            }
        }
        moments.shared.sort_by_key(|(sweep, _)| sweep.stamp_ns);
        moments.frames = frames
            .iter()
            .filter(|frame| !with_sweep.contains(&frame.stamp_ns))
            .collect();
        moments
    }

    /// The shared moments, one below the other.
    pub(super) fn figures(&self) -> String {
        let mut html = String::new();
        for (sweep, frames) in &self.shared {
            _ = write!(
                html,
                "<div class=\"moment\">{}<div class=\"cameras\">{}</div></div>",
                birds_eye::figure(sweep),
                frames.iter().copied().map(gallery::figure).collect::<String>()
            );
        }
        html
    }
}
