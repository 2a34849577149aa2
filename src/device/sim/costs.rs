//! What commands cost in virtual time.

use std::collections::BTreeMap;

/// Durations of commands. A rate of 0 bytes a microsecond stands for work that takes no time.
///
/// - A transfer or copy takes its bytes over its rate.
/// - A launch takes [`Self::launch_ns`] and its operation's work.
/// - A replay takes [`Self::replay_ns`] and the work of all recorded operations.
/// - Recording an event and waiting for one take [`Self::event_ns`] each.
///
/// An operation's work is its entry in [`Self::op_ns`], else the bytes of its output over
/// [`Self::output_bytes_per_us`]. Quotients are rounded up to whole nanoseconds.
///
/// Transfers on one queue follow each other; on two queues they do not slow each other down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimCosts {
    /// Rate of uploads ([`crate::device::Device::write`]).
    pub upload_bytes_per_us: u64,
    /// Rate of reads.
    pub read_bytes_per_us: u64,
    /// Rate of copies between buffers.
    pub copy_bytes_per_us: u64,
    /// Fixed part of a launch that is not replayed.
    pub launch_ns: u64,
    /// Rate at which operations produce output.
    pub output_bytes_per_us: u64,
    /// Work by operation, under [`crate::device::OpDesc::name`].
    pub op_ns: BTreeMap<String, u64>,
    /// Fixed part of a replay.
    pub replay_ns: u64,
    /// Recording an event, or waiting for one.
    pub event_ns: u64,
}

impl Default for SimCosts {
    /// The order of magnitude of an accelerator behind PCIe: 10 GB/s up, 5 GB/s down.
    fn default() -> Self {
        Self {
            upload_bytes_per_us: 10_000,
            read_bytes_per_us: 5_000,
            copy_bytes_per_us: 100_000,
            launch_ns: 5_000,
            output_bytes_per_us: 20_000,
            op_ns: BTreeMap::new(),
            replay_ns: 10_000,
            event_ns: 500,
        }
    }
}

impl SimCosts {
    /// Work of one operation.
    pub(super) fn work_ns(&self, op: &str, output_bytes: usize) -> u64 {
        match self.op_ns.get(op) {
            Some(&ns) => ns,
            None => bytes_ns(output_bytes, self.output_bytes_per_us),
        }
    }
}

/// Time that `bytes` take at a rate.
pub(super) fn bytes_ns(bytes: usize, bytes_per_us: u64) -> u64 {
    if bytes_per_us == 0 {
        return 0;
    }
    let ns = (bytes as u128 * 1000).div_ceil(u128::from(bytes_per_us));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_from_the_table_or_from_the_output() {
        let costs = SimCosts {
            output_bytes_per_us: 300,
            op_ns: BTreeMap::from([("conv2d".into(), 77)]),
            ..SimCosts::default()
        };
        assert_eq!(costs.work_ns("conv2d", 1 << 20), 77);
        assert_eq!(costs.work_ns("unary", 100), 334);
        assert_eq!(bytes_ns(100, 0), 0);
        assert_eq!(bytes_ns(usize::MAX, 1), u64::MAX);
    }
}
