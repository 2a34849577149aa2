//! What a point's time means: an offset or a time of day, in seconds or in nanoseconds.

use super::Place;
use super::error::CloudError;

/// Longest time in seconds between a cloud's stamp and one of its points that is believed.
pub const MAX_SWEEP_S: f64 = 5.0;

const NS_PER_S: f64 = 1e9;

/// How the times of points are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    /// Whole nanoseconds after the stamp.
    OffsetNanoseconds,
    /// Whole nanoseconds, after the stamp or since the epoch: the values tell.
    Nanoseconds,
    /// Seconds after the stamp.
    OffsetSeconds,
    /// Seconds before the stamp, as collections of several sweeps have it.
    LagSeconds,
    /// Seconds after the stamp, or seconds or nanoseconds since the epoch: the values tell.
    Seconds,
}

impl TimeUnit {
    /// The column holds the bits of float64 until [`settle`] replaces them.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::OffsetSeconds | Self::LagSeconds | Self::Seconds)
    }
}

/// Where and how the times of points are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) place: Place,
    pub(crate) unit: TimeUnit,
}

/// A way to read float64 times.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    name: &'static str,
    /// Nanoseconds of one unit.
    unit_ns: f64,
    /// Subtracted before the unit is applied.
    whole: f64,
    /// Subtracted after it, in nanoseconds.
    rest_ns: i64,
}

impl Reading {
    const OFFSET: Self = Self {
        name: "seconds after the stamp",
        unit_ns: NS_PER_S,
        whole: 0.0,
        rest_ns: 0,
    };

    fn seconds_of_day(stamp_ns: i64) -> Self {
        Self {
            name: "seconds since the epoch",
            unit_ns: NS_PER_S,
            whole: stamp_ns.div_euclid(1_000_000_000) as f64,
            rest_ns: stamp_ns.rem_euclid(1_000_000_000),
        }
    }

    fn nanoseconds_of_day(stamp_ns: i64) -> Self {
        // A float64 holds whole multiples of 256 ns today, and so does what is subtracted here.
        let whole = stamp_ns as f64;
        Self {
            name: "nanoseconds since the epoch",
            unit_ns: 1.0,
            whole,
            rest_ns: (i128::from(stamp_ns) - whole as i128) as i64,
        }
    }

    /// Nanoseconds after the stamp, rounded to the nearest.
    fn apply(&self, value: f64) -> i64 {
        let ns = (value - self.whole) * self.unit_ns;
        // Truncation of what is half a unit farther from 0 rounds halves away from 0.
        ((ns + 0.5f64.copysign(ns)) as i64).saturating_sub(self.rest_ns)
    }

    /// What [`apply`](Self::apply) says for a time within [`MAX_SWEEP_S`] of the stamp, in a few vector instructions: a
    /// conversion that saturates is not one, nor is a call that rounds.
    fn apply_near(&self, value: f64) -> i64 {
        // Between 2^52 and 2^53 a float64 has steps of 1, and its lowest bits count them.
        const STEPS_OF_ONE: f64 = 1.5 * (1u64 << 52) as f64;
        let ns = (value - self.whole) * self.unit_ns;
        let farther = ns + 0.5f64.copysign(ns);
        let nearest = farther + STEPS_OF_ONE;
        let whole = nearest.to_bits().wrapping_sub(STEPS_OF_ONE.to_bits()) as i64;
        // Back to truncation where the nearest is farther from 0.
        let beyond = i64::from((nearest - STEPS_OF_ONE).abs() > farther.abs());
        let truncated = whole - if farther < 0.0 { -beyond } else { beyond };
        truncated - self.rest_ns
    }

    /// Greatest distance from the stamp in seconds.
    fn reach_s(&self, from: f64, to: f64) -> f64 {
        let distance = |value| self.apply(value).unsigned_abs() as f64 / NS_PER_S;
        distance(from).max(distance(to))
    }
}

/// Turns times as stored (whole numbers, or bits of float64) into nanoseconds after the stamp, and returns the stamp.
///
/// Without a stamp, times of day count from the earliest of them.
///
/// # Errors
/// [`CloudError::TimeRange`], [`CloudError::TimeAmbiguous`], [`CloudError::Value`].
pub(crate) fn settle(
    times: &mut [i64],
    unit: TimeUnit,
    stamp_ns: Option<i64>,
) -> Result<Option<i64>, CloudError> {
    if times.is_empty() {
        return Ok(stamp_ns);
    }
    match unit {
        TimeUnit::OffsetNanoseconds => Ok(stamp_ns),
        TimeUnit::Nanoseconds => settle_integers(times, stamp_ns),
        _ => settle_floats(times, unit, stamp_ns),
    }
}

fn settle_floats(
    times: &mut [i64],
    unit: TimeUnit,
    stamp_ns: Option<i64>,
) -> Result<Option<i64>, CloudError> {
    let value_of = |bits: i64| f64::from_bits(bits as u64);
    let (from, to, finite) = range(times);
    if !finite {
        let point = times.iter().position(|&b| !value_of(b).is_finite()).unwrap_or(0);
        return Err(CloudError::Value {
            meaning: "time",
            point,
            value: value_of(times[point]),
            expected: "a finite number of seconds",
        });
    }
    let mut stamp_ns = stamp_ns;
    let reading = match unit {
        TimeUnit::OffsetSeconds => Reading::OFFSET,
        TimeUnit::LagSeconds => Reading {
            unit_ns: -NS_PER_S,
            ..Reading::OFFSET
        },
        _ => choose(from, to, &mut stamp_ns)?,
    };
    if reading.reach_s(from, to) > MAX_SWEEP_S {
        return Err(CloudError::TimeRange {
            from,
            to,
            limit_s: MAX_SWEEP_S,
            stamp_ns,
        });
    }
    for time in times {
        *time = reading.apply_near(value_of(*time));
    }
    Ok(stamp_ns)
}

/// Least and greatest of float64 values given by their bits, and whether all are finite.
fn range(times: &[i64]) -> (f64, f64, bool) {
    // Several of each, because one minimum after the other would wait for the one before.
    const LANES: usize = 8;
    let (mut low, mut high) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
    let mut sums = [0.0; LANES];
    let (chunks, rest) = times.as_chunks::<LANES>();
    let mut take = |lane: usize, bits: i64| {
        let value = f64::from_bits(bits as u64);
        low[lane] = if value < low[lane] { value } else { low[lane] };
        high[lane] = if value > high[lane] { value } else { high[lane] };
        // 0 for a finite value, NaN for any other one.
        sums[lane] += value * 0.0;
    };
    for chunk in chunks {
        (0..LANES).for_each(|lane| take(lane, chunk[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, &bits)| take(lane, bits));
    let from = low.into_iter().fold(f64::INFINITY, f64::min);
    let to = high.into_iter().fold(f64::NEG_INFINITY, f64::max);
    (from, to, sums.into_iter().all(|sum| sum == 0.0))
}

/// The reading under which all times are nearest to the stamp, where no other comes near it.
fn choose(from: f64, to: f64, stamp_ns: &mut Option<i64>) -> Result<Reading, CloudError> {
    // Seconds since the epoch reach 1e12 in the year 33658, nanoseconds did so in its first hour.
    let in_seconds = to.abs() < 1e12;
    let Some(stamp) = *stamp_ns else {
        if Reading::OFFSET.reach_s(from, to) <= MAX_SWEEP_S {
            return Ok(Reading::OFFSET);
        }
        let first = if in_seconds { from * NS_PER_S } else { from } as i64;
        *stamp_ns = Some(first);
        return Ok(if in_seconds {
            Reading::seconds_of_day(first)
        } else {
            Reading::nanoseconds_of_day(first)
        });
    };
    if !in_seconds {
        return Ok(Reading::nanoseconds_of_day(stamp));
    }
    let (offset, day) = (Reading::OFFSET, Reading::seconds_of_day(stamp));
    let offset_is_nearer = offset.reach_s(from, to) <= day.reach_s(from, to);
    let (best, next) = if offset_is_nearer {
        (offset, day)
    } else {
        (day, offset)
    };
    let (reach, other) = (best.reach_s(from, to), next.reach_s(from, to));
    // At stamp 0 both readings say the same.
    let same = best.apply(from) == next.apply(from) && best.apply(to) == next.apply(to);
    if reach <= MAX_SWEEP_S && other <= 2.0 * reach && !same {
        return Err(CloudError::TimeAmbiguous {
            from,
            to,
            stamp_ns: stamp,
            first: best.name,
            second: next.name,
        });
    }
    Ok(best)
}

fn settle_integers(times: &mut [i64], stamp_ns: Option<i64>) -> Result<Option<i64>, CloudError> {
    let limit = (MAX_SWEEP_S * NS_PER_S) as u64;
    let from = times.iter().copied().min().unwrap_or(0);
    let to = times.iter().copied().max().unwrap_or(0);
    let reach = |origin: i64| from.abs_diff(origin).max(to.abs_diff(origin));
    let (offsets, stamped) = (reach(0), stamp_ns.map(reach));
    let range = || CloudError::TimeRange {
        from: from as f64,
        to: to as f64,
        limit_s: MAX_SWEEP_S,
        stamp_ns,
    };
    let origin = match (stamp_ns, stamped) {
        (None, _) if offsets <= limit => return Ok(None),
        (None, _) => from,
        (Some(stamp), Some(stamped)) => {
            let (near, far) = (offsets.min(stamped), offsets.max(stamped));
            if near <= limit && far <= 2 * near && stamp != 0 {
                let names = ["nanoseconds after the stamp", "nanoseconds since the epoch"];
                let [first, second] = if offsets <= stamped {
                    names
                } else {
                    [names[1], names[0]]
                };
                return Err(CloudError::TimeAmbiguous {
                    from: from as f64 / NS_PER_S,
                    to: to as f64 / NS_PER_S,
                    stamp_ns: stamp,
                    first,
                    second,
                });
            }
            if offsets <= stamped { 0 } else { stamp }
        }
        (Some(_), None) => return Err(range()),
    };
    if reach(origin) > limit {
        return Err(range());
    }
    for time in times {
        *time -= origin;
    }
    Ok(stamp_ns.or(Some(origin)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const STAMP: i64 = 1_714_506_077_250_967_979;

    fn seconds(values: &[f64], stamp_ns: Option<i64>) -> Result<(Vec<i64>, Option<i64>), CloudError> {
        let mut times: Vec<i64> = values.iter().map(|v| v.to_bits() as i64).collect();
        let stamp = settle(&mut times, TimeUnit::Seconds, stamp_ns)?;
        Ok((times, stamp))
    }

    #[test]
    fn seconds_of_day_offsets_and_nanoseconds_of_day_come_out_alike() {
        let near = |times: &[i64]| times[0].abs() < 300 && (times[1] - 100_000_000).abs() < 300;
        let (times, _) = seconds(&[1_714_506_077.250_968, 1_714_506_077.350_968], Some(STAMP)).unwrap();
        assert!(near(&times), "{times:?}");
        let (times, _) = seconds(&[STAMP as f64, STAMP as f64 + 1e8], Some(STAMP)).unwrap();
        assert!(near(&times), "{times:?}");
        assert_eq!(
            seconds(&[-0.05, 0.05], Some(STAMP)).unwrap().0,
            [-50_000_000, 50_000_000]
        );
        assert_eq!(seconds(&[0.0, 0.1], None).unwrap(), (vec![0, 100_000_000], None));
        assert_eq!(
            seconds(&[1e9 + 0.5, 1e9 + 0.75], None).unwrap(),
            (vec![0, 250_000_000], Some(1_000_000_000_500_000_000))
        );
    }

    #[test]
    fn times_near_the_stamp_are_rounded_as_all_others_are() {
        let lag = Reading {
            unit_ns: -NS_PER_S,
            ..Reading::OFFSET
        };
        let day = [Reading::seconds_of_day(STAMP), Reading::nanoseconds_of_day(STAMP)];
        let mut random = 1u64;
        for reading in [Reading::OFFSET, lag, day[0], day[1]] {
            // Halves, their neighbours, and whatever else lies within the limit.
            for i in -20_000i32..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let anywhere_ns = (random >> 11) as f64 / (1u64 << 53) as f64 * 1e10 - 5e9;
                let half_ns = f64::from(i) / 2.0;
                for ns in [half_ns, half_ns.next_up(), half_ns.next_down(), anywhere_ns] {
                    let value = reading.whole + ns / reading.unit_ns;
                    assert_eq!(
                        reading.apply_near(value),
                        reading.apply(value),
                        "{reading:?} {value:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_range_of_times_is_that_of_a_plain_loop_and_no_nan_or_infinity_is_missed() {
        for len in [1usize, 7, 8, 9, 100] {
            let values: Vec<f64> = (0..len).map(|i| ((i * 37 + 5) % 101) as f64 - 50.0).collect();
            let bits: Vec<i64> = values.iter().map(|v| v.to_bits() as i64).collect();
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(range(&bits), (low, high, true));
            for (at, wrong) in (0..len).zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().cycle())
            {
                let mut bits = bits.clone();
                bits[at] = wrong.to_bits() as i64;
                assert!(!range(&bits).2, "{wrong} at {at} of {len}");
            }
        }
    }

    #[test]
    fn a_simulation_near_time_zero_is_read_where_it_can_be_and_refused_where_not() {
        assert_eq!(seconds(&[0.0, 0.1], Some(0)).unwrap().0, [0, 100_000_000]);
        assert_eq!(
            seconds(&[3.0, 3.1], Some(3_000_000_000)).unwrap().0,
            [0, 100_000_000]
        );
        assert_eq!(
            seconds(&[0.0, 0.1], Some(3_000_000_000)).unwrap().0,
            [0, 100_000_000]
        );
        let error = seconds(&[0.0, 0.1], Some(100_000_000)).unwrap_err();
        assert!(matches!(error, CloudError::TimeAmbiguous { .. }), "{error}");
    }

    #[test]
    fn a_sensor_in_another_year_is_refused_with_both_times() {
        let error = seconds(&[946_655_660.0, 946_655_660.1], Some(STAMP)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("946655660") && text.contains("1714506077.250967979"),
            "{text}"
        );
        let nan = seconds(&[0.0, f64::NAN], Some(STAMP)).unwrap_err();
        assert!(matches!(nan, CloudError::Value { point: 1, .. }), "{nan}");
    }

    #[test]
    fn whole_nanoseconds_are_offsets_or_times_of_day() {
        let settled = |values: &[i64], stamp_ns| {
            let mut times = values.to_vec();
            settle(&mut times, TimeUnit::Nanoseconds, stamp_ns).map(|stamp| (times, stamp))
        };
        let day = [STAMP - 5, STAMP + 9];
        assert_eq!(settled(&day, Some(STAMP)).unwrap(), (vec![-5, 9], Some(STAMP)));
        assert_eq!(settled(&day, None).unwrap(), (vec![0, 14], Some(STAMP - 5)));
        assert_eq!(settled(&[0, 9], Some(STAMP)).unwrap().0, [0, 9]);
        let range = settled(&[0, STAMP], Some(STAMP));
        assert!(matches!(range, Err(CloudError::TimeRange { .. })), "{range:?}");
        let extremes = settled(&[i64::MIN, i64::MAX], Some(-1));
        assert!(
            matches!(extremes, Err(CloudError::TimeRange { .. })),
            "{extremes:?}"
        );
    }
}
