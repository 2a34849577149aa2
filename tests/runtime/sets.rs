//! Sets of what several sensors saw at one time: which messages belong together, and what becomes of the others.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sensorium::pipeline::{MatchRule, OnPartial};
use sensorium::runtime::sets::{MatchSettings, MatchedSet, Matcher, Outcome, Unused};

const MS: i64 = 1_000_000;
const PERIOD: i64 = 100 * MS;
const YEAR: i64 = 31_556_952 * 1_000 * MS;
/// Stamp of the first scan.
const START: i64 = 1_568_785_504_000 * MS;

fn settings(members: usize, rule: MatchRule) -> MatchSettings {
    MatchSettings {
        offsets_ns: vec![0; members],
        rule,
        timeout_ns: 50 * MS,
        on_partial: OnPartial::Release,
        min_members: 1,
        max_waiting: 8,
    }
}

fn within(members: usize, tolerance_ms: i64) -> MatchSettings {
    let tolerance_ns = tolerance_ms * MS;
    settings(members, MatchRule::Within { tolerance_ns })
}

/// A message of a sensor: number of the sensor, stamp, time of arrival, both in milliseconds after the start.
type Sent = (usize, i64, i64);

/// What comes of messages; each one's item is its position in the list.
fn outcomes(settings: MatchSettings, messages: &[Sent]) -> Vec<Outcome<usize>> {
    let mut matcher = Matcher::new(settings);
    let mut out = Vec::new();
    for (item, &(member, stamp_ms, arrival_ms)) in messages.iter().enumerate() {
        let (stamp_ns, arrival_ns) = (START + stamp_ms * MS, START + arrival_ms * MS);
        matcher.push(member, stamp_ns, arrival_ns, item, &mut out);
    }
    matcher.flush(&mut out);
    out
}

/// The sets, each as its stamp in milliseconds and the items of its members.
fn sets(out: &[Outcome<usize>]) -> Vec<(i64, Vec<Option<usize>>)> {
    let set = |set: &MatchedSet<usize>| {
        let members = set.members.iter().map(|placed| placed.as_ref().map(|p| p.item));
        ((set.stamp_ns - START) / MS, members.collect())
    };
    out.iter()
        .filter_map(|outcome| match outcome {
            Outcome::Set(found) => Some(set(found)),
            _ => None,
        })
        .collect()
}

fn unused(out: &[Outcome<usize>]) -> Vec<(usize, Unused)> {
    out.iter()
        .filter_map(|outcome| match outcome {
            Outcome::Unused { item, why, .. } => Some((*item, *why)),
            _ => None,
        })
        .collect()
}

#[test]
fn equal_stamps_make_a_set_whatever_the_order_of_arrival() {
    let messages = [(2, 0, 1), (0, 0, 2), (1, 0, 3), (1, 1, 4)];
    let out = outcomes(within(3, 0), &messages);
    let expected = [
        (0, vec![Some(1), Some(2), Some(0)]),
        (1, vec![None, Some(3), None]),
    ];
    assert_eq!(sets(&out), expected);
    // An older message after a newer one is no jump, and the set of its time still waits for it.
    let messages = [(0, 0, 1), (2, 0, 2), (1, 5, 3), (1, 0, 4)];
    let mut patient = within(3, 0);
    patient.max_waiting = 2;
    assert_eq!(sets(&outcomes(patient, &messages)).len(), 2);
}

#[test]
fn a_known_delay_of_a_sensor_is_taken_off_its_stamps() {
    let mut shifted = within(2, 0);
    shifted.offsets_ns = vec![0, 7 * MS];
    let out = outcomes(shifted, &[(0, 0, 10), (1, 7, 11), (0, 100, 110), (1, 107, 111)]);
    assert_eq!(
        sets(&out),
        [(0, vec![Some(0), Some(1)]), (100, vec![Some(2), Some(3)])]
    );
    assert!(unused(&out).is_empty());
}

#[test]
fn a_message_goes_to_the_nearer_of_two_sets_that_it_fits() {
    // 55 is within 60 of both 0 and 100, and nearer to 100.
    let out = outcomes(within(2, 60), &[(0, 0, 1), (0, 100, 41), (1, 55, 42)]);
    assert_eq!(
        sets(&out),
        [(0, vec![Some(0), None]), (55, vec![Some(1), Some(2)])]
    );
}

/// Three LiDARs at 10 Hz; one is held up once for more than a scan, and its scans come all at once after that. Two scans
/// later sets are complete again as soon as the last scan is there, and stay so.
#[test]
fn after_a_stall_sets_are_of_the_newest_scans_again() {
    let mut messages: Vec<Sent> = Vec::new();
    for scan in 0..20_i64 {
        for lidar in 0..3 {
            let stamp = scan * 100 + lidar as i64 * 5;
            let stalled = lidar == 2 && (5..7).contains(&scan);
            let arrival = if stalled { 710 } else { stamp + 10 };
            messages.push((lidar, stamp, arrival));
        }
    }
    messages.sort_by_key(|&(lidar, stamp, arrival)| (arrival, lidar, stamp));
    let mut matcher = Matcher::new(within(3, 20));
    let mut released = Vec::new();
    for (item, &(lidar, stamp, arrival)) in messages.iter().enumerate() {
        let mut out = Vec::new();
        // Time passes between messages, as on a timer.
        while let Some(expiry) = matcher.next_expiry_ns().filter(|&at| at < START + arrival * MS) {
            let now = (expiry - START) / MS;
            matcher.expire(expiry, &mut out);
            released.extend(sets(&out).into_iter().map(|set| (now, set)));
            out.clear();
        }
        matcher.push(lidar, START + stamp * MS, START + arrival * MS, item, &mut out);
        released.extend(sets(&out).into_iter().map(|set| (arrival, set)));
    }
    assert_eq!(released.len(), 20, "one set a scan: {released:?}");
    for (scan, (released_ms, (stamp, members))) in released.iter().enumerate() {
        assert_eq!(*stamp, scan as i64 * 100, "one after another, none twice");
        let partial = members.contains(&None);
        assert_eq!(partial, (5..7).contains(&scan), "scan {scan}: {members:?}");
        // 20 ms after its stamp the last LiDAR's scan is there; without it the first one's 10 ms and the timeout.
        let latency = released_ms - stamp;
        assert_eq!(latency, if partial { 60 } else { 20 }, "scan {scan}");
    }
}

/// One LiDAR loses every fifth scan, and is late with others: no scan is ever put to those of another time.
#[test]
fn a_sensor_that_is_late_or_drops_makes_partial_sets_and_no_wrong_ones() {
    let mut messages: Vec<Sent> = Vec::new();
    for scan in 0..50_i64 {
        for lidar in 0..3 {
            let stamp = scan * 100;
            let late = if lidar == 1 && scan % 7 == 3 { 80 } else { 0 };
            if lidar != 1 || scan % 5 != 4 {
                messages.push((lidar, stamp, stamp + 5 + late));
            }
        }
    }
    messages.sort_by_key(|&(lidar, stamp, arrival)| (arrival, lidar, stamp));
    let out = outcomes(within(3, 20), &messages);
    let found = sets(&out);
    assert_eq!(found.len(), 50);
    for (stamp, members) in &found {
        let scan = stamp / 100;
        for item in members.iter().flatten() {
            assert_eq!(messages[*item].1, *stamp);
        }
        let missing = scan % 5 == 4 || scan % 7 == 3;
        assert_eq!(members[1].is_none(), missing, "scan {scan}");
        assert!(members[0].is_some() && members[2].is_some());
    }
    // Those that came after their sets had waited for 50 ms, and were not lost on the way.
    let late = (0..50).filter(|scan| scan % 7 == 3 && scan % 5 != 4).count();
    let expected: Vec<Unused> = vec![Unused::Unmatched; late];
    assert_eq!(
        unused(&out).iter().map(|(_, why)| *why).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn what_comes_after_its_set_was_released_is_unmatched_and_costs_nothing_else() {
    let messages = [
        (0, 0, 5),
        (0, 100, 105), // 55 ms have passed: the first set goes without the second sensor.
        (1, 0, 110),
        (1, 100, 115),
        (0, 200, 205),
        (1, 200, 206),
    ];
    let out = outcomes(within(2, 20), &messages);
    assert_eq!(
        sets(&out),
        [
            (0, vec![Some(0), None]),
            (100, vec![Some(1), Some(3)]),
            (200, vec![Some(4), Some(5)])
        ]
    );
    assert_eq!(unused(&out), [(2, Unused::Unmatched)]);
}

#[test]
fn partial_sets_are_dropped_where_that_is_asked_for_or_too_few_are_there() {
    let messages = [(0, 0, 5), (1, 0, 6), (0, 100, 105), (1, 100, 106), (2, 100, 107)];
    let mut strict = within(3, 20);
    strict.on_partial = OnPartial::Drop;
    let out = outcomes(strict, &messages);
    assert_eq!(sets(&out), [(100, vec![Some(2), Some(3), Some(4)])]);
    assert_eq!(unused(&out), [(0, Unused::Unmatched), (1, Unused::Unmatched)]);
    for (fewest, released) in [(2, 2), (3, 1)] {
        let mut some = within(3, 20);
        some.min_members = fewest;
        assert_eq!(sets(&outcomes(some, &messages)).len(), released);
    }
}

#[test]
fn a_stamp_that_is_there_twice_is_superseded() {
    let out = outcomes(within(2, 20), &[(0, 0, 5), (0, 0, 6), (1, 0, 7), (1, 0, 8)]);
    assert_eq!(sets(&out), [(0, vec![Some(0), Some(2)])]);
    assert_eq!(unused(&out), [(1, Unused::Superseded), (3, Unused::Superseded)]);
}

#[test]
fn a_bag_that_is_played_again_starts_over() {
    let once: Vec<Sent> = (0..10)
        .flat_map(|i| [(0, i * 100, i * 100), (1, i * 100, i * 100)])
        .collect();
    // The last message of the first round waits for the other sensor when time jumps back.
    let mut twice = once.clone();
    twice.push((0, 1_000, 1_000));
    twice.extend(&once);
    let out = outcomes(within(2, 20), &twice);
    let stamps: Vec<i64> = sets(&out).into_iter().map(|(stamp, _)| stamp).collect();
    let round: Vec<i64> = (0..10).map(|i| i * 100).collect();
    assert_eq!(stamps, [round.clone(), round].concat());
    assert!(sets(&out).iter().all(|(_, members)| !members.contains(&None)));
    assert_eq!(unused(&out), [(20, Unused::Unmatched)]);
    let jumps = out.iter().filter(|o| matches!(o, Outcome::JumpedBack { .. }));
    assert_eq!(jumps.count(), 1);
}

/// A sensor without a synchronised clock stamps twenty years off. One diagnosis names both times, nothing of it waits, and
/// the others go on without waiting for it.
#[test]
fn a_sensor_of_another_decade_is_told_of_once_and_left_out() {
    for (off, members, years) in [(0, 2, -20), (1, 3, 20), (2, 3, -20)] {
        let mut matcher = Matcher::new(within(members, 20));
        let mut out = Vec::new();
        let (mut longest, mut item) = (0, 0);
        for scan in 0..50 {
            for member in 0..members {
                let at = START + scan * PERIOD;
                let stamp = if member == off { at + years * YEAR } else { at };
                matcher.push(member, stamp, at + member as i64 * MS, item, &mut out);
                longest = longest.max(matcher.waiting());
                item += 1;
            }
        }
        let told: Vec<(i64, i64)> = out
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::ClockOff {
                    member,
                    stamp_ns,
                    others_ns,
                } => {
                    assert_eq!(*member, off);
                    Some((*stamp_ns, *others_ns))
                }
                _ => None,
            })
            .collect();
        let [(stamp, others)] = told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((others - stamp - -years * YEAR) / PERIOD, 0, "both times");
        let lost = unused(&out);
        assert!(lost.len() >= 49 && lost.iter().all(|(_, why)| *why == Unused::Unsynchronised));
        let complete_but_for_it = sets(&out)
            .iter()
            .filter(|(_, set)| (0..members).all(|member| set[member].is_some() == (member != off)))
            .count();
        assert!(complete_but_for_it >= 49, "{complete_but_for_it}");
        assert!(longest <= 2, "{longest} sets waited");
    }
}

#[test]
fn a_clock_that_is_set_right_is_in_sets_again() {
    let mut messages: Vec<Sent> = Vec::new();
    for scan in 0..20 {
        messages.push((0, scan * 100, scan * 100));
        let error = if scan < 10 { -3_600_000 } else { 0 };
        messages.push((1, scan * 100 + error, scan * 100 + 1));
    }
    let out = outcomes(within(2, 20), &messages);
    let complete = sets(&out).iter().filter(|(_, set)| !set.contains(&None)).count();
    // The first one found a set that did not wait for it.
    assert_eq!(complete, 9);
    assert!(
        out.iter()
            .any(|outcome| matches!(outcome, Outcome::ClockBack { member: 1 }))
    );
}

/// Sets at each scan of the LiDAR, with the newest image of a slower camera, which is in several of them.
#[test]
fn the_newest_of_others_may_be_in_several_sets_and_comes_out_once() {
    let latest = settings(
        2,
        MatchRule::Latest {
            reference: 0,
            max_age_ns: 150 * MS,
        },
    );
    let messages = [
        (1, -20, 0),
        (0, 0, 5),
        (0, 100, 105),
        (0, 200, 205), // the image is 220 ms old: too old, and nothing else comes in time
        (1, 280, 290),
        (1, 290, 295), // takes the place of one that no set had
        (0, 300, 305),
    ];
    let out = outcomes(latest, &messages);
    assert_eq!(
        sets(&out),
        [
            (0, vec![Some(1), Some(0)]),
            (100, vec![Some(2), Some(0)]),
            (200, vec![Some(3), None]),
            (300, vec![Some(6), Some(5)])
        ]
    );
    assert_eq!(unused(&out), [(4, Unused::Superseded)]);
    let firsts: Vec<bool> = out
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Set(set) => set.members[1].as_ref().map(|placed| placed.first),
            _ => None,
        })
        .collect();
    assert_eq!(firsts, [true, false, true]);
}

/// A rule, and messages in any order and with any stamps.
fn anything() -> impl Strategy<Value = (MatchSettings, Vec<Sent>)> {
    let rule = prop_oneof![
        (0..40_i64).prop_map(|ms| MatchRule::Within {
            tolerance_ns: ms * MS
        }),
        (0..200_i64).prop_map(|ms| MatchRule::Latest {
            reference: 0,
            max_age_ns: ms * MS
        }),
    ];
    let shape = (
        rule,
        1..5_usize,
        0..200_i64,
        1..5_usize,
        any::<bool>(),
        1..4_usize,
    );
    shape.prop_flat_map(|(rule, members, timeout_ms, waiting, drops, fewest)| {
        let mut settings = settings(members, rule);
        settings.timeout_ns = timeout_ms * MS;
        settings.max_waiting = waiting;
        settings.min_members = fewest.min(members);
        settings.on_partial = if drops {
            OnPartial::Drop
        } else {
            OnPartial::Release
        };
        let stamp = prop_oneof![
            8 => 0..1_000_i64,
            2 => (0..10_i64).prop_map(|scan| scan * 100),
            1 => any::<i32>().prop_map(i64::from),
        ];
        let step = prop_oneof![9 => 0..60_i64, 1 => -2_000..20_000_i64];
        let sent = (0..members, stamp, step);
        let all = proptest::collection::vec(sent, 0..80);
        all.prop_map(move |all| {
            let mut now = 0;
            let messages = all.into_iter().map(|(member, stamp, step)| {
                now += step;
                (member, stamp, now)
            });
            (settings.clone(), messages.collect())
        })
    })
}

/// Stamps of a sensor that go back a little never make two sets of one stamp.
#[test]
fn a_message_behind_the_one_of_its_sensor_makes_no_second_set_of_that_time() {
    let out = outcomes(
        within(3, 12),
        &[(2, 787, 0), (0, 788, 0), (0, 787, 0), (1, 790, 1)],
    );
    assert_eq!(sets(&out), [(787, vec![Some(1), Some(3), Some(0)])]);
    let superseded = |it: &Outcome<usize>| {
        matches!(
            it,
            Outcome::Unused {
                item: 2,
                why: Unused::Superseded,
                ..
            }
        )
    };
    assert!(out.iter().any(superseded), "{out:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every message is in a set or is told to be in none, once; sets are what the rule says; nothing piles up.
    #[test]
    fn nothing_is_lost_and_nothing_counted_twice((settings, messages) in anything()) {
        let members = settings.offsets_ns.len();
        let mut matcher = Matcher::new(settings.clone());
        let mut out = Vec::new();
        for (item, &(member, stamp, arrival)) in messages.iter().enumerate() {
            matcher.push(member, START + stamp * MS, START + arrival * MS, item, &mut out);
            prop_assert!(matcher.waiting() <= settings.max_waiting);
            if let Some(expiry) = matcher.next_expiry_ns() {
                prop_assert!(expiry > START + arrival * MS, "what has waited long enough waits no more");
            }
        }
        matcher.flush(&mut out);
        prop_assert_eq!(matcher.waiting(), 0);
        let mut settled: BTreeMap<usize, usize> = BTreeMap::new();
        for outcome in &out {
            match outcome {
                Outcome::Unused { item, member, .. } => {
                    prop_assert_eq!(messages[*item].0, *member);
                    *settled.entry(*item).or_default() += 1;
                }
                Outcome::Set(set) => {
                    prop_assert_eq!(set.members.len(), members);
                    let there: Vec<_> = set.members.iter().flatten().collect();
                    let complete = there.len() == members;
                    prop_assert!(complete || settings.on_partial == OnPartial::Release);
                    prop_assert!(complete || there.len() >= settings.min_members);
                    for (member, placed) in set.members.iter().enumerate() {
                        let Some(placed) = placed else { continue };
                        prop_assert_eq!(messages[placed.item].0, member);
                        prop_assert_eq!(START + messages[placed.item].1 * MS, placed.stamp_ns);
                        if placed.first {
                            *settled.entry(placed.item).or_default() += 1;
                        }
                    }
                    let stamps = || there.iter().map(|placed| placed.stamp_ns);
                    match settings.rule {
                        MatchRule::Within { tolerance_ns } => {
                            let spread = stamps().max().unwrap() - stamps().min().unwrap();
                            prop_assert!(spread <= tolerance_ns);
                            prop_assert_eq!(Some(set.stamp_ns), stamps().min());
                            prop_assert!(there.iter().all(|placed| placed.first));
                        }
                        MatchRule::Latest { max_age_ns, .. } => {
                            prop_assert_eq!(set.members[0].as_ref().map(|p| p.stamp_ns), Some(set.stamp_ns));
                            prop_assert!(stamps().all(|at| at.abs_diff(set.stamp_ns) <= max_age_ns as u64));
                        }
                    }
                }
                _ => {}
            }
        }
        prop_assert!(settled.values().all(|&count| count == 1));
        prop_assert_eq!(settled.len(), messages.len());
        // Between two jumps of time sets come in rising order, and no sensor's message twice.
        let mut last = i64::MIN;
        let mut seen = BTreeSet::new();
        for outcome in &out {
            match outcome {
                Outcome::Set(set) => {
                    prop_assert!(set.stamp_ns > last);
                    last = set.stamp_ns;
                    for placed in set.members.iter().flatten().filter(|placed| placed.first) {
                        prop_assert!(seen.insert(placed.item));
                    }
                }
                Outcome::JumpedBack { .. } | Outcome::ClockOff { .. } | Outcome::ClockBack { .. } => last = i64::MIN,
                Outcome::Unused { .. } => {}
            }
        }
    }

    /// The same messages make the same sets whether or not a timer tells that time passes between them.
    #[test]
    fn sets_do_not_depend_on_the_pace((settings, messages) in anything()) {
        let plain = outcomes(settings.clone(), &messages);
        let mut matcher = Matcher::new(settings);
        let mut out = Vec::new();
        for (item, &(member, stamp, arrival)) in messages.iter().enumerate() {
            let arrival_ns = START + arrival * MS;
            while let Some(expiry_ns) = matcher.next_expiry_ns().filter(|&expiry_ns| expiry_ns < arrival_ns) {
                matcher.expire(expiry_ns, &mut out);
            }
            matcher.push(member, START + stamp * MS, arrival_ns, item, &mut out);
        }
        matcher.flush(&mut out);
        prop_assert_eq!(plain, out);
    }
}
