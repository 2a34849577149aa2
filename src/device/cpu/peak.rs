//! What this machine can do at best: the numbers that kernels are measured against.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::kernels::Isa;

/// Floats that one round of the arithmetic loop works on: enough sums at once to hide the latency of the additions.
const LANES: usize = 16 * 12;
/// Steps of one round.
const STEPS: usize = 4096;
/// Bytes that one thread copies at a time: more than it finds in its own caches.
const COPY_BYTES: usize = 64 << 20;

/// Best speed of some threads of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MachinePeak {
    /// Threads that worked at once.
    pub threads: usize,
    /// Single-precision multiply-adds in vector registers, counted as two operations each, in operations a second.
    pub flop_per_s: f64,
    /// Copies of 64 MiB a thread, reading and writing counted, in bytes a second.
    pub bytes_per_s: f64,
}

/// Measures for `time` each: the sum of the best round of every thread while all of them work. A busy machine shows less
/// than it has; short rounds keep that small.
#[must_use]
pub fn measure_peak(threads: usize, isa: Isa, time: Duration) -> MachinePeak {
    let threads = threads.max(1);
    let flop_per_round = (2 * LANES * STEPS) as f64;
    let flop_per_s = together(threads, || {
        let mut sums = [0.5_f32; LANES];
        best_rate(time, flop_per_round, || {
            multiply_add(isa, &mut sums);
            black_box(&mut sums);
        })
    });
    let bytes_per_s = together(threads, || {
        let source = vec![1_u8; COPY_BYTES];
        let mut target = vec![0_u8; COPY_BYTES];
        best_rate(time, (2 * COPY_BYTES) as f64, || {
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
        })
    });
    MachinePeak {
        threads,
        flop_per_s,
        bytes_per_s,
    }
}

/// The sum of what every thread answers.
fn together(threads: usize, work: impl Fn() -> f64 + Sync) -> f64 {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        // A worker has nothing that could panic but its allocations, which abort.
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(0.0))
            .sum()
    })
}

/// The best rate of rounds, repeated for some time and at least three times.
fn best_rate(time: Duration, per_round: f64, mut round: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = 0.0_f64;
    let mut rounds = 0;
    while rounds < 3 || begin.elapsed() < time {
        let start = Instant::now();
        round();
        best = best.max(per_round / start.elapsed().as_secs_f64().max(1e-9));
        rounds += 1;
    }
    best
}

/// Keeps sums near 1 for ever.
const FACTOR: f32 = 0.5;
const SUMMAND: f32 = 0.5;

/// [`STEPS`] times `sum * FACTOR + SUMMAND` for every sum.
fn multiply_add(isa: Isa, sums: &mut [f32; LANES]) {
    if !isa.is_available() {
        return multiply_add_scalar(sums);
    }
    match isa {
        // SAFETY: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { multiply_add_avx512(sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { multiply_add_avx2(sums) },
        _ => multiply_add_scalar(sums),
    }
}

/// Without an instruction for both: a multiplication and an addition.
fn multiply_add_scalar(sums: &mut [f32; LANES]) {
    for block in sums.chunks_exact_mut(32) {
        for _ in 0..STEPS {
            for sum in block.iter_mut() {
                *sum = *sum * FACTOR + SUMMAND;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_add_avx512(sums: &mut [f32; LANES]) {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_storeu_ps};
    let (factor, summand) = (_mm512_set1_ps(FACTOR), _mm512_set1_ps(SUMMAND));
    let (places, _) = sums.as_chunks_mut::<16>();
    // SAFETY: a place has the sixteen floats of a vector.
    let mut vectors: [_; 12] = std::array::from_fn(|i| unsafe { _mm512_loadu_ps(places[i].as_ptr()) });
    for _ in 0..STEPS {
        for vector in &mut vectors {
            *vector = _mm512_fmadd_ps(*vector, factor, summand);
        }
    }
    for (place, vector) in places.iter_mut().zip(vectors) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(place.as_mut_ptr(), vector) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_avx2(sums: &mut [f32; LANES]) {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_storeu_ps};
    let (factor, summand) = (_mm256_set1_ps(FACTOR), _mm256_set1_ps(SUMMAND));
    let (places, _) = sums.as_chunks_mut::<8>();
    // Two halves, for there are sixteen registers.
    for half in places.chunks_exact_mut(12) {
        // SAFETY: a place has the eight floats of a vector.
        let mut vectors: [_; 12] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(half[i].as_ptr()) });
        for _ in 0..STEPS {
            for vector in &mut vectors {
                *vector = _mm256_fmadd_ps(*vector, factor, summand);
            }
        }
        for (place, vector) in half.iter_mut().zip(vectors) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(place.as_mut_ptr(), vector) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_does_the_same_arithmetic() {
        let start: [f32; LANES] = std::array::from_fn(|i| i as f32 / 7.0 - 9.0);
        let mut scalar = start;
        multiply_add(Isa::Scalar, &mut scalar);
        // x = x / 2 + 1 / 2 ends at 1 from everywhere.
        assert!(scalar.iter().all(|sum| (sum - 1.0).abs() < 1e-6));
        for isa in [Isa::Avx2, Isa::Avx512] {
            let mut sums = start;
            multiply_add(isa, &mut sums);
            assert!(
                sums.iter().zip(&scalar).all(|(a, b)| (a - b).abs() < 1e-6),
                "{isa}"
            );
        }
    }

    #[test]
    fn a_peak_is_a_speed() {
        let peak = measure_peak(2, Isa::detect(), Duration::from_millis(5));
        assert_eq!(peak.threads, 2);
        // Slower than any processor of this century, and faster than any of the next.
        assert!((1e8..1e15).contains(&peak.flop_per_s), "{peak:?}");
        assert!((1e7..1e14).contains(&peak.bytes_per_s), "{peak:?}");
    }
}
