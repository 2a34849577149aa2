//! The choice of the next frame for the device: held to a plain definition on random sequences, and shown to meet
//! deadlines in virtual time that first come, first served misses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use sensorium::runtime::schedule::{LaneRules, Order, PATIENCE, SILENT_NS, Schedule};
use sensorium::telemetry::{StreamId, Streams};

const ALONE: LaneRules = LaneRules {
    places: 64,
    largest_batch: 1,
    timeout_ns: 0,
    drop_late: false,
};

/// Streams 0, 1, 2, ...
fn streams(count: usize) -> Vec<StreamId> {
    let streams = Streams::default();
    (0..count).map(|i| streams.register(&i.to_string())).collect()
}

/// A frame as the tests tell it apart: stream and number in the stream.
type Frame = (usize, u64);

/// A waiting frame in the plain definition.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    frame: Frame,
    lane: usize,
    deadline_ns: Option<u64>,
    ready_ns: u64,
}

/// The plain definition: a list in the order of arrival.
#[derive(Debug, Default)]
struct Plain {
    waiting: Vec<Waiting>,
    /// Turn in which a stream was last served.
    served: BTreeMap<usize, u64>,
    turn: u64,
}

impl Plain {
    /// The oldest frame of every stream.
    fn heads(&self) -> Vec<Waiting> {
        let mut seen = BTreeSet::new();
        let first = |waiting: &&Waiting| seen.insert(waiting.frame.0);
        self.waiting.iter().filter(first).copied().collect()
    }

    fn take(&mut self, frame: Frame) -> Waiting {
        let place = self.waiting.iter().position(|waiting| waiting.frame == frame);
        self.waiting
            .remove(place.expect("only what waits is chosen, and once"))
    }

    fn last_served(&self, stream: usize) -> u64 {
        self.served.get(&stream).copied().unwrap_or(0)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Push { stream: usize, due_in_ns: Option<u64> },
    Next { rooms: [usize; 2], closing: bool },
    Late,
    Wait { ns: u64 },
}

/// Streams of the random sequences; the even ones are on lane 0.
const STREAMS: usize = 6;

fn step() -> impl Strategy<Value = Step> {
    // Few deadlines, so that many are equal.
    let due = prop_oneof![Just(None), (0..4_u64).prop_map(|tens| Some(tens * 10))];
    prop_oneof![
        4 => (0..STREAMS, due).prop_map(|(stream, due_in_ns)| Step::Push { stream, due_in_ns }),
        3 => ([0..4_usize, 0..4_usize], any::<bool>()).prop_map(|(rooms, closing)| Step::Next { rooms, closing }),
        1 => Just(Step::Late),
        1 => prop_oneof![1..40_u64, Just(2 * SILENT_NS)].prop_map(|ns| Step::Wait { ns }),
    ]
}

fn rules() -> impl Strategy<Value = LaneRules> {
    (1..8_usize, 1..5_usize, 0..30_u64, any::<bool>()).prop_map(
        |(places, largest_batch, timeout_ns, drop_late)| LaneRules {
            places,
            largest_batch,
            timeout_ns,
            drop_late,
        },
    )
}

/// Runs a sequence on the schedule and on the plain definition, and compares every answer.
fn hold(order: Order, rules: [LaneRules; 2], steps: &[Step]) {
    let ids = streams(STREAMS);
    let mut schedule = Schedule::new(order, &rules);
    let mut plain = Plain::default();
    let (mut now_ns, mut passed_over) = (0, 0);
    let mut numbers = [0; STREAMS];
    let mut last_out: BTreeMap<usize, u64> = BTreeMap::new();
    let mut came_out = |(stream, number): Frame| {
        let before = last_out.insert(stream, number);
        assert!(
            before.is_none_or(|before| before < number),
            "a stream was reordered"
        );
    };
    let capacity = rules[0].places + rules[1].places;
    for step in steps {
        match *step {
            Step::Wait { ns } => now_ns += ns,
            Step::Push { stream, due_in_ns } => {
                let frame = (stream, numbers[stream]);
                let deadline_ns = due_in_ns.map(|due| now_ns + due);
                let pushed = schedule.push(stream % 2, ids[stream], deadline_ns, now_ns, frame);
                assert_eq!(pushed.is_ok(), plain.waiting.len() < capacity);
                if pushed.is_ok() {
                    numbers[stream] += 1;
                    plain.waiting.push(Waiting {
                        frame,
                        lane: stream % 2,
                        deadline_ns,
                        ready_ns: now_ns,
                    });
                }
            }
            Step::Late => {
                let is_late = |head: &Waiting| {
                    rules[head.lane].drop_late && head.deadline_ns.is_some_and(|due| due < now_ns)
                };
                let late: BTreeSet<Frame> = plain
                    .heads()
                    .iter()
                    .filter(|h| is_late(h))
                    .map(|h| h.frame)
                    .collect();
                match schedule.take_late(now_ns) {
                    Some(frame) => {
                        assert!(late.contains(&frame), "{frame:?} is not late");
                        plain.take(frame);
                        came_out(frame);
                    }
                    None => assert!(late.is_empty(), "{late:?}"),
                }
            }
            Step::Next { rooms, closing } => {
                let mut batch = Vec::new();
                let lane = schedule.next(now_ns, closing, |lane| rooms[lane], &mut batch);
                let heads = plain.heads();
                let has_room = |lane: usize| {
                    let own = heads.iter().filter(|head| head.lane == lane).count();
                    rooms[lane] >= own.min(rules[lane].largest_batch).max(1)
                };
                let Some(lane) = lane else {
                    assert!(batch.is_empty());
                    for head in &heads {
                        let rules = &rules[head.lane];
                        let held =
                            rules.largest_batch > 1 && !closing && now_ns < head.ready_ns + rules.timeout_ns;
                        assert!(!has_room(head.lane) || held, "{head:?} was held for nothing");
                    }
                    continue;
                };
                assert!(!batch.is_empty() && batch.len() <= rules[lane].largest_batch.min(rooms[lane]));
                plain.turn += 1;
                let members: BTreeSet<usize> = batch.iter().map(|&(stream, _)| stream).collect();
                assert_eq!(members.len(), batch.len(), "two frames of one stream: {batch:?}");
                let first = heads
                    .iter()
                    .find(|head| head.frame == batch[0])
                    .expect("the oldest of a stream");
                // A lane that waits for others to join is not in the choice; which lanes do is held by other tests.
                let alone = rules.iter().all(|rules| rules.largest_batch == 1) || closing;
                let open: Vec<&Waiting> = heads
                    .iter()
                    .filter(|h| has_room(h.lane) && (alone || h.lane == lane))
                    .collect();
                match order {
                    Order::Arrival => {
                        let place = |frame: Frame| plain.waiting.iter().position(|w| w.frame == frame);
                        assert!(open.iter().all(|other| place(first.frame) <= place(other.frame)));
                        let own: Vec<Frame> = plain
                            .waiting
                            .iter()
                            .filter(|w| w.lane == lane)
                            .map(|w| w.frame)
                            .collect();
                        assert_eq!(own[..batch.len()], batch, "in the order of arrival");
                    }
                    Order::Deadline => {
                        let rank = |head: &Waiting| {
                            let due = head.deadline_ns.unwrap_or(u64::MAX);
                            (head.deadline_ns.is_none(), due, plain.last_served(head.frame.0))
                        };
                        let without = open.iter().any(|head| head.deadline_ns.is_none());
                        let with = open.iter().any(|head| head.deadline_ns.is_some());
                        if alone && with && first.deadline_ns.is_none() {
                            assert_eq!(passed_over, PATIENCE, "before its turn");
                        } else if alone || first.deadline_ns.is_some() || !with {
                            assert!(
                                open.iter().all(|other| rank(first) <= rank(other)),
                                "{first:?} of {open:?}"
                            );
                        }
                        if alone {
                            passed_over = match (first.deadline_ns, without) {
                                (None, _) => 0,
                                (Some(_), true) => passed_over + 1,
                                (Some(_), false) => passed_over,
                            };
                            assert!(
                                passed_over <= PATIENCE,
                                "a frame without a deadline waits for ever"
                            );
                        }
                        // What is left of the lane may not go before what was taken along, but for the first.
                        let left = heads
                            .iter()
                            .filter(|h| h.lane == lane && !members.contains(&h.frame.0));
                        for head in left {
                            let taken = batch[1..]
                                .iter()
                                .map(|frame| heads.iter().find(|h| h.frame == *frame).unwrap());
                            taken.for_each(|taken| assert!(rank(taken) <= rank(head)));
                        }
                    }
                }
                for frame in batch {
                    assert_eq!(plain.take(frame).lane, lane);
                    plain.served.insert(frame.0, plain.turn);
                    came_out(frame);
                }
            }
        }
        assert_eq!(schedule.len(), plain.waiting.len());
        assert_eq!(schedule.is_full(), schedule.len() == capacity);
    }
    // Nothing is lost, and what is left comes in the order of arrival.
    for waiting in plain.waiting {
        assert_eq!(schedule.take_any(), Some(waiting.frame));
        came_out(waiting.frame);
    }
    assert!(schedule.is_empty() && schedule.take_any().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_is_scheduled_as_the_plain_definition_says(
        rules in [rules(), rules()],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        // A stream that fell silent may be forgotten, and comes in turn as a new one would: the order of turns is held
        // by sequences without such pauses.
        let short: Vec<Step> = steps.iter().filter(|s| !matches!(s, Step::Wait { ns } if *ns > SILENT_NS)).cloned().collect();
        hold(Order::Deadline, rules, &short);
        hold(Order::Arrival, rules, &steps);
    }

    #[test]
    fn frames_that_go_alone_are_scheduled_as_the_plain_definition_says(
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let short: Vec<Step> = steps.into_iter().filter(|s| !matches!(s, Step::Wait { ns } if *ns > SILENT_NS)).collect();
        hold(Order::Deadline, [ALONE; 2], &short);
    }
}

/// A schedule with one lane, and a way to ask it.
fn next(schedule: &mut Schedule<Frame>, now_ns: u64) -> Vec<Frame> {
    let mut batch = Vec::new();
    schedule.next(now_ns, false, |_| usize::MAX, &mut batch);
    batch
}

#[test]
fn a_stream_waits_for_at_most_one_frame_of_each_other_one_with_an_equal_deadline() {
    const COUNT: usize = 7;
    for deadline_ns in [None, Some(1_000)] {
        let ids = streams(COUNT);
        let mut schedule = Schedule::new(Order::Deadline, &[ALONE]);
        // Stream 0 floods: it has its frames in before anybody else.
        for number in 0..40 {
            schedule.push(0, ids[0], deadline_ns, 0, (0, number)).unwrap();
        }
        let mut numbers = [40_u64, 0, 0, 0, 0, 0, 0];
        let mut since = [0; COUNT];
        for _ in 0..200 {
            for stream in 0..COUNT {
                // Everybody always has a frame waiting.
                if stream > 0 && since[stream] == 0 || schedule.len() < 46 {
                    let frame = (stream, numbers[stream]);
                    if schedule.push(0, ids[stream], deadline_ns, 0, frame).is_ok() {
                        numbers[stream] += 1;
                    }
                }
            }
            let [(served, _)] = next(&mut schedule, 0)[..] else {
                panic!("one at a time")
            };
            for (stream, since) in since.iter_mut().enumerate() {
                *since = if stream == served { 0 } else { *since + 1 };
                assert!(
                    *since < COUNT,
                    "stream {stream} waited for {since} frames of others"
                );
            }
        }
    }
}

#[test]
fn a_lane_without_room_for_results_holds_nobody_else() {
    let ids = streams(2);
    for order in [Order::Deadline, Order::Arrival] {
        let mut schedule = Schedule::new(order, &[ALONE; 2]);
        schedule.push(0, ids[0], Some(1), 0, (0, 0)).unwrap();
        schedule.push(1, ids[1], Some(2), 0, (1, 0)).unwrap();
        let mut batch = Vec::new();
        assert_eq!(schedule.next(0, false, |lane| lane, &mut batch), Some(1));
        assert_eq!(batch, [(1, 0)]);
        assert_eq!(schedule.next(0, false, |lane| lane, &mut batch), None);
    }
}

/// Up to four frames together, at most 100 ns late.
const FOURS: LaneRules = LaneRules {
    largest_batch: 4,
    timeout_ns: 100,
    ..ALONE
};

#[test]
fn a_batch_starts_when_it_is_full_when_all_are_there_at_a_second_frame_or_at_its_timeout() {
    let ids = streams(6);
    let mut schedule = Schedule::new(Order::Deadline, &[FOURS]);
    let push = |schedule: &mut Schedule<Frame>, stream: usize, number: u64, now_ns: u64| {
        schedule
            .push(0, ids[stream], None, now_ns, (stream, number))
            .unwrap();
    };
    // The only stream that is known waits for nobody.
    push(&mut schedule, 0, 0, 0);
    assert_eq!(next(&mut schedule, 0), [(0, 0)]);
    // Both streams that live are there.
    push(&mut schedule, 1, 0, 10);
    assert_eq!(next(&mut schedule, 10), []);
    push(&mut schedule, 0, 1, 20);
    assert_eq!(
        next(&mut schedule, 20),
        [(1, 0), (0, 1)],
        "who was served longest ago goes first"
    );
    // At the timeout of the oldest, without the one that does not come.
    push(&mut schedule, 2, 0, 30);
    push(&mut schedule, 1, 1, 60);
    assert_eq!(schedule.wake_ns(60), Some(130));
    assert_eq!(next(&mut schedule, 129), []);
    assert_eq!(next(&mut schedule, 130), [(2, 0), (1, 1)]);
    // A second frame of a stream: it is faster than those that it would wait for.
    push(&mut schedule, 2, 1, 140);
    assert_eq!(next(&mut schedule, 140), []);
    push(&mut schedule, 2, 2, 150);
    assert_eq!(next(&mut schedule, 150), [(2, 1)]);
    // Full, although a fifth stream is known; the rest waits on.
    for stream in [3, 4, 5, 0, 1] {
        push(&mut schedule, stream, 9, 160);
    }
    let mut full = next(&mut schedule, 160);
    full.sort_unstable();
    assert_eq!(full.len(), 4);
    assert_eq!(schedule.len(), 2);
    // With no frame to come nobody is waited for.
    let mut batch = Vec::new();
    assert_eq!(schedule.next(160, true, |_| 9, &mut batch), Some(0));
    assert_eq!(batch.len(), 2);
    assert_eq!((schedule.len(), schedule.wake_ns(160)), (0, None));
}

/// 50 and 2 frames a second, and a batch that waits for 5 ms.
#[test]
fn a_fast_stream_is_held_for_a_slow_one_only_where_that_comes_in_time() {
    const MS: u64 = 1_000_000;
    let ids = streams(2);
    let rules = LaneRules {
        timeout_ns: 5 * MS,
        ..FOURS
    };
    let mut schedule = Schedule::new(Order::Deadline, &[rules]);
    // The slow one comes 3 ms after every twenty-fifth frame of the fast one. Twice, and how often it comes is known.
    let slow_at = |number: u64| (number * 500 + 3) * MS;
    let mut slow = 0;
    for number in 0..100 {
        let now_ns = number * 20 * MS;
        schedule.push(0, ids[0], None, now_ns, (0, number)).unwrap();
        let is_near = number % 25 == 0;
        let (known, held) = (slow >= 2, next(&mut schedule, now_ns).is_empty());
        if known {
            assert_eq!(held, is_near, "frame {number}");
        }
        if is_near {
            let now_ns = slow_at(slow);
            schedule.push(0, ids[1], None, now_ns, (1, slow)).unwrap();
            slow += 1;
            let together = next(&mut schedule, now_ns).len();
            if known {
                assert_eq!(together, 2, "frame {number}");
            }
        }
        // What is held while too little is known.
        next(&mut schedule, now_ns + 9 * MS);
        assert!(schedule.is_empty());
    }
}

#[test]
fn a_stream_that_fell_silent_is_not_waited_for() {
    let ids = streams(2);
    let mut schedule = Schedule::new(
        Order::Deadline,
        &[LaneRules {
            timeout_ns: u64::MAX,
            ..FOURS
        }],
    );
    for stream in [0, 1] {
        schedule.push(0, ids[stream], None, 0, (stream, 0)).unwrap();
    }
    assert_eq!(next(&mut schedule, 0).len(), 2);
    schedule.push(0, ids[0], None, SILENT_NS, (0, 1)).unwrap();
    assert_eq!(next(&mut schedule, SILENT_NS), []);
    assert_eq!(next(&mut schedule, SILENT_NS + 1), [(0, 1)]);
}

/// A model in virtual time: so many streams with a frame each period, all at the same moment.
#[derive(Debug, Clone, Copy)]
struct Model {
    streams: usize,
    period_us: u64,
    cost_us: u64,
    deadline_us: u64,
}

/// Frames in time, late, and given up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    in_time: u64,
    late: u64,
    given_up: u64,
}

/// One device that takes a frame at a time serves all models for so long.
fn simulate(models: &[Model], order: Order, drop_late: bool, until_us: u64) -> Tally {
    let rules = LaneRules {
        places: 10_000,
        drop_late,
        ..ALONE
    };
    let ids = streams(models.iter().map(|model| model.streams).sum());
    let mut releases: Vec<(u64, usize, usize)> = Vec::new();
    let mut stream = 0;
    for (lane, model) in models.iter().enumerate() {
        for own in stream..stream + model.streams {
            releases.extend(
                (0..until_us)
                    .step_by(model.period_us as usize)
                    .map(|at| (at, lane, own)),
            );
        }
        stream += model.streams;
    }
    releases.sort_unstable();
    let mut releases: VecDeque<_> = releases.into();
    let mut schedule = Schedule::new(order, &vec![rules; models.len()]);
    let (mut now_us, mut tally) = (0, Tally::default());
    let mut batch: Vec<(usize, u64)> = Vec::new();
    loop {
        while let Some(&(at, lane, stream)) = releases.front().filter(|release| release.0 <= now_us) {
            releases.pop_front();
            let due_us = at + models[lane].deadline_us;
            schedule
                .push(lane, ids[stream], Some(due_us), now_us, (lane, due_us))
                .unwrap();
        }
        while schedule.take_late(now_us).is_some() {
            tally.given_up += 1;
        }
        if schedule.next(now_us, false, |_| 1, &mut batch).is_none() {
            match releases.front() {
                Some(&(at, ..)) => now_us = at,
                None => return tally,
            }
            continue;
        }
        let (lane, due_us) = batch.pop().unwrap();
        now_us += models[lane].cost_us;
        match now_us <= due_us {
            true => tally.in_time += 1,
            false => tally.late += 1,
        }
    }
}

/// Three sweeps at a time that have half of their period, a camera that is due soon, and one in between.
const CAR: [Model; 3] = [
    Model {
        streams: 3,
        period_us: 50_000,
        cost_us: 8_000,
        deadline_us: 45_000,
    },
    Model {
        streams: 1,
        period_us: 20_000,
        cost_us: 4_000,
        deadline_us: 18_000,
    },
    Model {
        streams: 1,
        period_us: 33_000,
        cost_us: 3_000,
        deadline_us: 25_000,
    },
];

#[test]
fn earliest_deadline_first_meets_deadlines_that_first_come_first_served_misses() {
    let until_us = 3_300_000;
    let by_deadline = simulate(&CAR, Order::Deadline, false, until_us);
    let by_arrival = simulate(&CAR, Order::Arrival, false, until_us);
    println!("by deadline {by_deadline:?}, by arrival {by_arrival:?}");
    let all = 3 * 66 + 165 + 100;
    assert_eq!((by_deadline.in_time, by_deadline.late), (all, 0));
    assert_eq!(by_arrival.in_time + by_arrival.late, all);
    assert!(by_arrival.late >= 33, "{by_arrival:?}");
}

#[test]
fn giving_up_late_frames_keeps_an_overloaded_device_in_time() {
    // One and a half times what the device can do.
    let mut cars = CAR;
    cars[0].cost_us *= 2;
    cars[1].cost_us *= 2;
    let until_us = 3_300_000;
    let run_all = simulate(&cars, Order::Deadline, false, until_us);
    let give_up = simulate(&cars, Order::Deadline, true, until_us);
    println!("all {run_all:?}, late ones given up {give_up:?}");
    let total = |tally: &Tally| tally.in_time + tally.late + tally.given_up;
    assert_eq!(total(&run_all), total(&give_up), "every frame is told of");
    assert!(
        give_up.in_time > 10 * run_all.in_time.max(1),
        "{run_all:?} {give_up:?}"
    );
}
