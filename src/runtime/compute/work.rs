//! Busy work of a stated cost.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::pipeline::ComputeCost;

/// Work of one run, as it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// None.
    Free,
    /// Counts the primes up to a number.
    Primes(u64),
    /// So many divisions.
    Divisions(u64),
}

impl Work {
    /// The work of a cost; microseconds become divisions, by what this processor does in a microsecond.
    pub(super) fn of(cost: ComputeCost) -> Self {
        match cost {
            ComputeCost::Free => Self::Free,
            ComputeCost::Primes(limit) => Self::Primes(limit.into()),
            ComputeCost::Micros(micros) => {
                Self::Divisions((f64::from(micros) * divisions_per_us()).round() as u64)
            }
        }
    }

    /// Does it; the result is there so that the work cannot be left out.
    pub(super) fn run(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Primes(limit) => primes_up_to(limit),
            Self::Divisions(count) => divide(count),
        }
    }
}

/// Primes among 2 ..= `limit`, each number divided by every smaller one until one divides it.
pub(super) fn primes_up_to(limit: u64) -> u64 {
    let mut primes = 0;
    for number in 2..=limit {
        let divided = (2..number).any(|divisor| black_box(number) % divisor == 0);
        primes += u64::from(!divided);
    }
    primes
}

/// So many divisions of a number by others.
fn divide(count: u64) -> u64 {
    let mut sum = 0_u64;
    for divisor in 1..=count {
        sum = sum.wrapping_add(black_box(0x7FFF_FFFF_u64) % divisor);
    }
    sum
}

/// Divisions that an idle processor does in a microsecond: the best of several measurements, made once.
pub(super) fn divisions_per_us() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const COUNT: u64 = 200_000;
        let measure = |_| {
            let since = Instant::now();
            black_box(divide(COUNT));
            since.elapsed()
        };
        let best = (0..9).map(measure).min().unwrap_or(Duration::from_millis(1));
        COUNT as f64 / (best.as_secs_f64() * 1e6).max(1e-3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_those_of_the_sieve() {
        let limit = 2_000;
        let mut composite = vec![false; limit + 1];
        let mut primes = 0;
        for number in 2..=limit {
            primes += u64::from(!composite[number]);
            (number * number..=limit)
                .step_by(number)
                .for_each(|multiple| composite[multiple] = true);
        }
        assert_eq!((primes, primes_up_to(limit as u64)), (303, 303));
        assert_eq!((primes_up_to(0), primes_up_to(1), primes_up_to(2)), (0, 0, 1));
    }

    #[test]
    fn microseconds_become_divisions() {
        let divisions = |micros| match Work::of(ComputeCost::Micros(micros)) {
            Work::Divisions(count) => count,
            other => panic!("{other:?}"),
        };
        let (one, three) = (divisions(1_000), divisions(3_000));
        // Each is rounded by itself.
        assert!(three.abs_diff(3 * one) <= 2, "{one} {three}");
        assert!(one > 1_000, "{one} divisions in a millisecond");
    }
}
