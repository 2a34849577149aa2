//! The fault campaign: each fault that a vehicle meets, at a place drawn by a seed, and what must be true after it.
//!
//! Every scenario runs the program on a camera in real time, hurts it, and asks: did it end, is every frame accounted for,
//! did results come again and after how long, are the outputs that the fault did not concern whole? The rows are printed as
//! a table. `SENSORIUM_CAMPAIGN_SEEDS` says how many seeds each scenario has (1 unless told otherwise).
#![cfg(unix)]

mod actors;
mod device;
mod input;
mod network;
mod sinks;
mod watch;

use std::fmt::Write as _;

/// The stream of every scenario.
pub(crate) const TOPIC: &str = "/camera/image";
/// 50 images a second.
pub(crate) const PERIOD_NS: u64 = 20_000_000;
/// Frames of a scenario.
pub(crate) const FRAMES: usize = 150;

/// What a scenario came to.
#[derive(Debug)]
pub(crate) struct Row {
    /// What went wrong.
    pub fault: &'static str,
    /// Where the seed put it.
    pub place: String,
    /// Frames in, out, dropped and lost.
    pub frames: [u64; 4],
    /// Longest time without a result, in milliseconds; `None` where results are not expected in between.
    pub recovery_ms: Option<u128>,
    /// Why frames were dropped, with how many.
    pub drops: String,
}

/// Numbers that a seed determines: SplitMix64, for its neighbouring seeds have nothing in common.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A whole number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 33) as usize % end
    }
}

#[test]
fn neighbouring_seeds_draw_different_places() {
    let first: std::collections::BTreeSet<usize> = (0..4).map(|seed| Random::new(seed).below(6)).collect();
    assert_eq!(first.len(), 4, "{first:?}");
}

/// Runs a scenario for every seed, holds each run to what is true of all, and prints the rows.
pub(crate) fn campaign(scenario: impl Fn(&mut Random) -> Row) {
    let seeds = std::env::var("SENSORIUM_CAMPAIGN_SEEDS").map_or(1, |text| text.parse().unwrap());
    let mut table = String::new();
    for seed in 0..seeds {
        let row = scenario(&mut Random::new(seed));
        let [came, out, dropped, lost] = row.frames;
        assert_eq!((came, lost), (out + dropped, 0), "seed {seed}: {row:?}");
        assert!(out > 0, "seed {seed}: {row:?}");
        let recovery = row
            .recovery_ms
            .map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        writeln!(
            table,
            "| {} | {seed} | {} | {came} | {out} | {dropped} | {} | {recovery} |",
            row.fault, row.place, row.drops
        )
        .unwrap();
    }
    print!("{table}");
}
