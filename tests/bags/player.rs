//! Playing bags: on a clock that stands still until somebody waits, so that every time is exact.

use crate::support;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sensorium::io::bag::{Bag, BagMessage, BagTopic, BagWriter, BagWriterSettings, TimeRange};
use sensorium::io::messages::{
    CLOCK_TYPE, ClockMsg, HeaderMsg, IMAGE_TYPE, ImageMsg, TF_TYPE, TfMsg, TransformMsg, TransformStampedMsg,
};
use sensorium::io::player::{
    Bell, Buffering, ClockMessages, Ending, Player, PlayerClock, PlayerError, PlayerHandle, PlayerSettings,
    PlayerSink, PlayerSummary, Rate, Release, Reset, SystemClock,
};
use sensorium::io::tf::TfBuffer;

const MS: u64 = 1_000_000;
const START_NS: u64 = 1_700_000_000_000_000_000;

/// What is to happen at a time of the clock.
type Event = (Duration, Box<dyn FnOnce()>);

/// A clock that moves when somebody waits, and to which things happen at given times.
struct FakeClock {
    base: Instant,
    now: Cell<Duration>,
    events: RefCell<VecDeque<Event>>,
}

impl FakeClock {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            base: Instant::now(),
            now: Cell::default(),
            events: RefCell::default(),
        })
    }

    /// Has something happen so many milliseconds after the start; in the order of the times.
    fn at(&self, ms: u64, event: impl FnOnce() + 'static) {
        self.events
            .borrow_mut()
            .push_back((Duration::from_millis(ms), Box::new(event)));
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    fn ns(&self, at: Instant) -> u64 {
        at.duration_since(self.base).as_nanos() as u64
    }
}

impl PlayerClock for FakeClock {
    fn now(&self) -> Instant {
        self.base + self.now.get()
    }

    fn wait(&self, until: Option<Instant>, _bell: &Bell, _heard: u64) {
        let until = until.map(|until| until - self.base);
        let due = self.events.borrow().front().map(|(at, _)| *at);
        match (due, until) {
            (Some(at), until) if until.is_none_or(|until| at <= until) => {
                let (at, event) = self.events.borrow_mut().pop_front().unwrap();
                self.now.set(self.now.get().max(at));
                event();
            }
            (_, Some(until)) => self.now.set(self.now.get().max(until)),
            (_, None) => panic!("nobody would ever wake the player"),
        }
    }
}

/// What a sink got, with the time of the clock.
#[derive(Debug, Clone, PartialEq)]
enum Got {
    Release {
        at_ns: u64,
        due_ns: u64,
        release: Release,
    },
    Reset(Reset),
}

struct Sink {
    clock: Rc<FakeClock>,
    got: Vec<Got>,
    /// Called after each release.
    then: Box<dyn FnMut(&Release)>,
}

impl PlayerSink for Sink {
    fn release(&mut self, release: Release) {
        let (at_ns, due_ns) = (self.clock.ns(self.clock.now()), self.clock.ns(release.intended));
        assert_eq!(release.lateness.as_nanos(), u128::from(at_ns - due_ns));
        (self.then)(&release);
        self.got.push(Got::Release {
            at_ns,
            due_ns,
            release,
        });
    }

    fn reset(&mut self, reset: Reset) {
        self.got.push(Got::Reset(reset));
    }
}

struct Played {
    got: Vec<Got>,
    summary: PlayerSummary,
}

impl Played {
    fn releases(&self) -> impl Iterator<Item = (u64, u64, &Release)> {
        self.got.iter().filter_map(|got| match got {
            Got::Release {
                at_ns,
                due_ns,
                release,
            } => Some((*at_ns, *due_ns, release)),
            Got::Reset(_) => None,
        })
    }

    /// Milliseconds of the clock at which messages of a topic came.
    fn at_ms(&self, topic: usize) -> Vec<u64> {
        let of_topic = self.releases().filter(|(.., release)| release.topic == topic);
        of_topic.map(|(at_ns, ..)| at_ns / MS).collect()
    }
}

fn play_with(player: Player, clock: &Rc<FakeClock>, then: impl FnMut(&Release) + 'static) -> Played {
    let mut sink = Sink {
        clock: Rc::clone(clock),
        got: Vec::new(),
        then: Box::new(then),
    };
    let summary = player.play(&**clock, &mut sink).unwrap();
    Played {
        got: sink.got,
        summary,
    }
}

fn play(bag: &Path, settings: PlayerSettings) -> Played {
    play_with(
        Player::open(Bag::open(bag).unwrap(), settings).unwrap(),
        &FakeClock::new(),
        |_| {},
    )
}

/// A bag of images on `/a` every 10 ms and of transforms on `/tf` every 25 ms, from 0 to 100 ms.
fn small(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("small.mcap");
    let mut writer = BagWriter::create(&path, BagWriterSettings::default()).unwrap();
    let images = writer.add_topic(&BagTopic::of_type("/a", IMAGE_TYPE)).unwrap();
    let transforms = writer.add_topic(&BagTopic::of_type("/tf", TF_TYPE)).unwrap();
    for ms in 0..=100 {
        let time_ns = START_NS + ms * MS;
        if ms % 10 == 0 {
            let data = image(time_ns - 5 * MS);
            writer.write(images, time_ns, time_ns, &data).unwrap();
        }
        if ms % 25 == 0 {
            writer
                .write(transforms, time_ns, time_ns, &transform(time_ns))
                .unwrap();
        }
    }
    writer.finish().unwrap();
    path
}

fn header(stamp_ns: u64) -> HeaderMsg<'static> {
    HeaderMsg::new(stamp_ns as i64, "f").unwrap()
}

fn image(stamp_ns: u64) -> Vec<u8> {
    let image = ImageMsg {
        header: header(stamp_ns),
        height: 1,
        width: 2,
        encoding: "mono8",
        is_bigendian: 0,
        step: 2,
        data: &[7, 8],
    };
    image.encode().unwrap()
}

fn transform(stamp_ns: u64) -> Vec<u8> {
    let transform = TransformStampedMsg {
        header: header(stamp_ns),
        child_frame_id: "child",
        transform: TransformMsg::default(),
    };
    TfMsg {
        transforms: vec![transform; 2],
    }
    .encode()
    .unwrap()
}

fn all(bag: &Bag) -> Vec<BagMessage> {
    bag.all_messages().map(Result::unwrap).collect()
}

#[test]
fn every_message_comes_at_its_time_whatever_the_rate() {
    let Some(path) = support::data("bags/evo_nav2_turtlebot/nav2_turtlebot.mcap") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    let (every, start_ns) = (all(&bag), bag.range_ns().unwrap().0);
    for rate in [1.0, 0.25, 3.0, 1000.0] {
        let settings = PlayerSettings {
            rate: Rate::Times(rate),
            ..PlayerSettings::default()
        };
        let played = play(&path, settings);
        assert_eq!(played.summary.messages, every.len() as u64);
        assert_eq!(
            (played.summary.late, played.summary.largest_lateness),
            (0, Duration::ZERO)
        );
        for ((at_ns, due_ns, release), message) in played.releases().zip(&every) {
            let expected = (message.log_time_ns - start_ns) as f64 / rate;
            assert!(
                (at_ns as f64 - expected).abs() <= 0.5 && due_ns == at_ns,
                "{at_ns} {expected}"
            );
            assert_eq!(release.log_time_ns, message.log_time_ns);
            assert_eq!(bag.topics()[release.topic].name, *message.topic);
            assert!(release.data == message.data);
        }
    }
    let settings = PlayerSettings {
        rate: Rate::Max,
        ..PlayerSettings::default()
    };
    let played = play(&path, settings);
    assert!(played.releases().all(|(at_ns, ..)| at_ns == 0));
    assert_eq!(
        (played.summary.messages, played.summary.ending),
        (every.len() as u64, Ending::Finished)
    );
}

#[test]
fn start_duration_topics_and_names_are_those_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let settings = PlayerSettings {
        start_offset_ns: 15 * MS,
        duration_ns: Some(60 * MS),
        remap: [("/a".to_owned(), "/camera".to_owned())].into(),
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
    let names: Vec<&str> = player.topics().iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(
        (names, player.loop_length_ns()),
        (vec!["/camera", "/tf"], 60 * MS)
    );
    assert_eq!(player.topics()[0].recorded.name, "/a");
    let played = play_with(player, &FakeClock::new(), |_| {});
    // Time starts with the offset, not with the first message; what is at the end is not played.
    assert_eq!(played.at_ms(0), [5, 15, 25, 35, 45, 55]);
    assert_eq!(played.at_ms(1), [10, 35]);

    let settings = PlayerSettings {
        topics: Some(vec!["/tf".to_owned()]),
        ..PlayerSettings::default()
    };
    let played = play(&path, settings);
    assert_eq!(
        (played.at_ms(0), played.summary.messages),
        (vec![0, 25, 50, 75, 100], 5)
    );
}

#[test]
fn pause_step_rate_and_stop_act_at_once_and_a_pause_takes_no_time_of_the_bag() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let topics = Some(vec!["/a".to_owned()]);
    let settings = PlayerSettings {
        topics,
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
    let clock = FakeClock::new();
    let handle = player.handle();
    let order = |ms, order: fn(&PlayerHandle)| {
        let handle = handle.clone();
        clock.at(ms, move || order(&handle));
    };
    order(15, |handle| handle.pause());
    order(1000, |handle| handle.step(2));
    order(2000, |handle| handle.step(1));
    order(3000, |handle| handle.resume());
    // 40 ms into the bag when it goes on; 50 ms at 3010.
    order(3015, |handle| handle.set_rate(Rate::Times(0.5)).unwrap());
    // 55 ms into the bag then: 60 ms comes 10 ms later, 70 ms another 20 ms.
    order(3050, |handle| handle.set_rate(Rate::Max).unwrap());
    let played = play_with(player, &clock, |_| {});
    assert_eq!(
        played.at_ms(0),
        [0, 10, 1000, 1000, 2000, 3010, 3025, 3045, 3050, 3050, 3050]
    );
    assert_eq!(
        (played.summary.late, played.summary.ending),
        (0, Ending::Finished)
    );
    assert!(!handle.is_paused());

    let settings = PlayerSettings {
        looped: true,
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
    let clock = FakeClock::new();
    let handle = player.handle();
    clock.at(235, move || handle.stop());
    let played = play_with(player, &clock, |_| {});
    assert_eq!(
        (played.summary.loops, played.summary.ending),
        (2, Ending::Stopped)
    );
    assert_eq!(played.at_ms(0).last(), Some(&232));
}

/// Public report: geometry2 issue 606 (a bag in a loop: old data for ever).
#[test]
fn a_loop_begins_with_a_reset_and_all_times_move_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    for buffering in [
        Buffering::ReadAhead { bytes: 500 },
        Buffering::Preload { max_bytes: 1 << 20 },
    ] {
        let settings = PlayerSettings {
            looped: true,
            buffering,
            clock: ClockMessages::BeforeEachMessage,
            ..PlayerSettings::default()
        };
        let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
        assert_eq!(player.loop_length_ns(), 101 * MS);
        let handle = player.handle();
        let mut left = 3 * 32;
        let played = play_with(player, &FakeClock::new(), move |_| {
            left -= 1;
            if left == 0 {
                handle.stop();
            }
        });
        let resets: Vec<(usize, Reset)> = played
            .got
            .iter()
            .enumerate()
            .filter_map(|(place, got)| match got {
                Got::Reset(reset) => Some((place, *reset)),
                Got::Release { .. } => None,
            })
            .collect();
        let reset = |loop_number| Reset {
            loop_number,
            shift_ns: loop_number * 101 * MS,
        };
        // 11 images, 5 transforms, and a /clock before each.
        assert_eq!(resets, [(32, reset(1)), (65, reset(2))]);
        let mut last_ns = 0;
        for (at_ns, due_ns, release) in played.releases() {
            assert_eq!(at_ns, due_ns);
            assert_eq!(release.log_time_ns, START_NS + at_ns);
            assert!(release.log_time_ns >= last_ns);
            last_ns = release.log_time_ns;
            let expected = match release.topic {
                0 => image(release.log_time_ns - 5 * MS),
                1 => transform(release.log_time_ns),
                _ => ClockMsg::new(release.log_time_ns as i64).unwrap().encode(),
            };
            assert!(release.data == expected, "{release:?}");
        }
        assert_eq!((played.summary.messages, played.summary.clock_messages), (48, 48));
        assert_eq!((played.summary.loops, played.summary.unshifted), (2, 0));
    }
}

/// Public report: geometry2 issue 606 (a bag in a loop: old data for ever), with the transforms of a real recording.
#[test]
fn a_buffer_of_frames_takes_every_turn_of_a_loop() {
    let Some(path) = support::data("bags/autoware_mot_test_data1/test_data1.db3") else {
        return;
    };
    for (shift_stamps, jumps) in [(true, 0), (false, 2)] {
        let settings = PlayerSettings {
            looped: true,
            shift_stamps,
            topics: Some(vec!["/tf".to_owned()]),
            ..PlayerSettings::default()
        };
        let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
        let handle = player.handle();
        let mut left = 3 * player
            .bag()
            .topics()
            .iter()
            .find(|t| t.name == "/tf")
            .unwrap()
            .messages;
        let played = play_with(player, &FakeClock::new(), move |_| {
            left -= 1;
            if left == 0 {
                handle.stop();
            }
        });
        let mut buffer = TfBuffer::default();
        for (.., release) in played.releases() {
            buffer.insert(&TfMsg::decode(&release.data).unwrap(), false);
        }
        let total = buffer.total();
        assert_eq!((total.accepted, total.too_old, total.repeated), (3 * 235, 0, 0));
        assert_eq!(total.jumps_back, jumps);
    }
}

#[test]
fn the_clock_comes_before_the_data_it_belongs_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let clock_ns = |release: &Release| ClockMsg::decode(&release.data).unwrap().time_ns() as u64;
    for (rate, period_ms) in [(Rate::Times(1.0), 20), (Rate::Times(2.0), 40), (Rate::Max, 20)] {
        let settings = PlayerSettings {
            rate,
            clock: ClockMessages::Hz(50.0),
            ..PlayerSettings::default()
        };
        let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
        let topics = player.topics();
        let clock_topic = topics.len() - 1;
        assert_eq!((topics[clock_topic].name.as_str(), topics.len()), ("/clock", 3));
        assert_eq!(topics[clock_topic].recorded.type_name, CLOCK_TYPE);
        let played = play_with(player, &FakeClock::new(), |_| {});
        let ticks = played
            .releases()
            .filter(|(.., release)| release.topic == clock_topic);
        let ticks: Vec<u64> = ticks.map(|(.., release)| clock_ns(release)).collect();
        let expected: Vec<u64> = (0..=100)
            .step_by(period_ms)
            .map(|ms| START_NS + ms * MS)
            .collect();
        assert_eq!(ticks, expected, "{rate:?}");
        // Whoever keeps the last time that was told has never seen data from its future, nor from before the last tick.
        let mut told_ns = 0;
        for (.., release) in played.releases() {
            if release.topic == clock_topic {
                told_ns = clock_ns(release);
            }
            let behind_ns = release.log_time_ns - told_ns;
            assert!(behind_ns < period_ms as u64 * MS, "{behind_ns}");
        }
    }
}

#[test]
fn a_recorded_clock_gives_way_to_the_one_that_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clock.mcap");
    let mut writer = BagWriter::create(&path, BagWriterSettings::default()).unwrap();
    let id = writer
        .add_topic(&BagTopic::of_type("/clock", CLOCK_TYPE))
        .unwrap();
    writer
        .write(id, 5, 5, &ClockMsg::new(3).unwrap().encode())
        .unwrap();
    writer.finish().unwrap();
    assert_eq!(play(&path, PlayerSettings::default()).summary.messages, 1);
    let on = PlayerSettings {
        clock: ClockMessages::BeforeEachMessage,
        ..PlayerSettings::default()
    };
    assert_eq!(play(&path, on.clone()).summary.messages, 0);
    let renamed = PlayerSettings {
        remap: [("/clock".to_owned(), "/old".to_owned())].into(),
        ..on
    };
    let played = play(&path, renamed);
    assert_eq!((played.summary.messages, played.summary.clock_messages), (1, 1));
}

#[test]
fn what_a_slow_sink_makes_late_is_counted_and_made_up_for() {
    let folder = tempfile::tempdir().unwrap();
    let topics = Some(vec!["/a".to_owned()]);
    let settings = PlayerSettings {
        topics,
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(&small(folder.path())).unwrap(), settings).unwrap();
    let clock = FakeClock::new();
    let slow = Rc::clone(&clock);
    let mut count = 0;
    // The third message takes 45 ms: those of 30, 40, 50 and 60 ms are late by 35, 25, 15 and 5 ms.
    let played = play_with(player, &clock, move |_| {
        count += 1;
        if count == 3 {
            slow.pass(Duration::from_millis(45));
        }
    });
    assert_eq!(played.at_ms(0), [0, 10, 20, 65, 65, 65, 65, 70, 80, 90, 100]);
    let summary = &played.summary;
    assert_eq!((summary.late, summary.bursts, summary.largest_burst), (4, 1, 4));
    assert_eq!(summary.largest_lateness, Duration::from_millis(35));
    // Each knows its own lateness.
    let late: Vec<u64> = played
        .releases()
        .map(|(at_ns, due_ns, _)| (at_ns - due_ns) / MS)
        .collect();
    assert_eq!(late, [0, 0, 0, 35, 25, 15, 5, 0, 0, 0, 0]);
}

/// Public report: rosbag2 issue 845 (messages come in bursts at each tick of the clock).
#[test]
fn a_fast_topic_does_not_wait_for_the_ticks_of_the_clock() {
    let Some(path) = support::data("bags/plotjuggler/rosbag2_test/rosbag2_test_0.db3") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    let imu = bag
        .topics()
        .iter()
        .find(|topic| topic.messages == 1565)
        .unwrap()
        .name
        .clone();
    // 1565 messages in a minute, played forty times as fast: about 1 kHz, with ticks at 100 Hz.
    let settings = PlayerSettings {
        rate: Rate::Times(40.0),
        clock: ClockMessages::Hz(100.0),
        topics: Some(vec![imu]),
        ..PlayerSettings::default()
    };
    let start_ns = bag.range_ns().unwrap().0;
    let every: Vec<BagMessage> = bag
        .messages_within(
            settings
                .topics
                .as_ref()
                .map(|t| [t[0].as_str()])
                .as_ref()
                .map(|t| &t[..]),
            TimeRange::ALL,
        )
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let played = play(&path, settings);
    let times: Vec<u64> = played
        .releases()
        .filter(|(.., r)| r.topic == 0)
        .map(|(at_ns, ..)| at_ns)
        .collect();
    assert_eq!(
        (times.len(), played.summary.bursts, played.summary.late),
        (1565, 0, 0)
    );
    assert!(played.summary.clock_messages > 100);
    for (at_ns, message) in times.iter().zip(&every) {
        assert!((*at_ns as f64 - (message.log_time_ns - start_ns) as f64 / 40.0).abs() <= 0.5);
    }
}

#[test]
fn no_more_is_read_ahead_than_allowed_and_large_messages_come_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.mcap");
    let mut writer = BagWriter::create(&path, BagWriterSettings::default()).unwrap();
    let id = writer.add_topic(&BagTopic::of_type("/a", IMAGE_TYPE)).unwrap();
    let sizes: Vec<usize> = (0..200)
        .map(|i| if i % 50 == 9 { 100_000 } else { 1000 + i })
        .collect();
    for (i, size) in sizes.iter().enumerate() {
        writer.write(id, i as u64, 0, &vec![i as u8; *size]).unwrap();
    }
    writer.finish().unwrap();
    let play = |buffering| {
        let settings = PlayerSettings {
            buffering,
            ..PlayerSettings::default()
        };
        let played = play(&path, settings);
        let got: Vec<usize> = played
            .releases()
            .map(|(.., release)| release.data.len())
            .collect();
        assert!(got == sizes, "{buffering:?}");
        played.summary.read_ahead_bytes as usize
    };
    for bytes in [0, 10_000, 50_000] {
        let most = play(Buffering::ReadAhead { bytes });
        // A message that is larger than the room comes alone.
        assert!((100_000..100_200).contains(&most), "{bytes}: {most}");
    }
    let most = play(Buffering::ReadAhead { bytes: 150_000 });
    assert!(most > 100_000 && most <= 150_000, "{most}");
    let all: usize = sizes.iter().sum();
    assert_eq!(play(Buffering::Preload { max_bytes: 1 << 20 }), all);
    let settings = PlayerSettings {
        buffering: Buffering::Preload {
            max_bytes: all as u64 / 2,
        },
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(&path).unwrap(), settings).unwrap();
    let mut sink = Sink {
        clock: FakeClock::new(),
        got: Vec::new(),
        then: Box::new(|_| {}),
    };
    let error = player.play(&SystemClock, &mut sink).unwrap_err();
    assert!(
        matches!(error, PlayerError::Preload { .. }) && sink.got.is_empty(),
        "{error}"
    );
}

#[test]
fn two_runs_release_the_same() {
    let Some(path) = support::data("bags/rosbag2_resources/rosbag2_py/test/resources/mcap/wbag") else {
        return;
    };
    // Six thousand messages within microseconds of each other, in five files.
    let times = |buffering| {
        let settings = PlayerSettings {
            buffering,
            clock: ClockMessages::Hz(1000.0),
            ..PlayerSettings::default()
        };
        let played = play(&path, settings);
        let releases = played.releases();
        releases
            .map(|(at_ns, _, release)| (at_ns, release.topic, release.log_time_ns, release.data.clone()))
            .collect::<Vec<_>>()
    };
    let first = times(Buffering::ReadAhead { bytes: 2000 });
    assert_eq!(first.len(), 6074 + 1);
    assert!(first == times(Buffering::ReadAhead { bytes: 1 << 20 }));
    assert!(first == times(Buffering::Preload { max_bytes: 1 << 30 }));
}

#[test]
fn damage_is_told_and_what_is_whole_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let file = std::fs::read(&path).unwrap();
    std::fs::write(&path, &file[..file.len() / 3]).unwrap();
    let whole = Bag::open(&path)
        .unwrap()
        .all_messages()
        .filter(Result::is_ok)
        .count() as u64;
    assert!(whole > 0);
    for buffering in [
        Buffering::ReadAhead { bytes: 500 },
        Buffering::Preload { max_bytes: 1 << 20 },
    ] {
        let played = play(
            &path,
            PlayerSettings {
                buffering,
                ..PlayerSettings::default()
            },
        );
        assert_eq!((played.summary.messages, played.summary.damaged), (whole, 1));
        assert!(played.summary.damage[0].to_string().contains("truncated"));
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let refused = |settings| {
        Player::open(Bag::open(&path).unwrap(), settings)
            .unwrap_err()
            .to_string()
    };
    let default = PlayerSettings::default;
    for (settings, said) in [
        (
            PlayerSettings {
                rate: Rate::Times(0.0),
                ..default()
            },
            "0 is no rate",
        ),
        (
            PlayerSettings {
                clock: ClockMessages::Hz(f64::NAN),
                ..default()
            },
            "NaN Hz",
        ),
        (
            PlayerSettings {
                start_offset_ns: 101 * MS,
                ..default()
            },
            "0.101 s into the bag, which has 0.100 s",
        ),
        (
            PlayerSettings {
                duration_ns: Some(0),
                ..default()
            },
            "plays nothing",
        ),
        (
            PlayerSettings {
                topics: Some(vec!["/b".to_owned()]),
                ..default()
            },
            "it has: /a, /tf",
        ),
        (
            PlayerSettings {
                remap: [("/b".to_owned(), "/c".to_owned())].into(),
                ..default()
            },
            "/b is to be renamed",
        ),
        (
            PlayerSettings {
                remap: [("/a".to_owned(), "/tf".to_owned())].into(),
                ..default()
            },
            "both be called /tf",
        ),
    ] {
        let told = refused(settings);
        assert!(told.contains(said), "{told}");
    }
    let player = Player::open(Bag::open(&path).unwrap(), default()).unwrap();
    assert!(player.handle().set_rate(Rate::Times(-1.0)).is_err());
}

#[test]
fn bags_without_messages_end_at_once_even_in_a_loop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.mcap");
    BagWriter::create(&path, BagWriterSettings::default())
        .unwrap()
        .finish()
        .unwrap();
    for buffering in [
        Buffering::ReadAhead { bytes: 500 },
        Buffering::Preload { max_bytes: 1 << 20 },
    ] {
        let settings = PlayerSettings {
            looped: true,
            buffering,
            ..PlayerSettings::default()
        };
        assert_eq!(play(&path, settings).summary.messages, 0);
    }
}

/// Counts, and says so on a channel.
struct Counter(u64, std::sync::mpsc::Sender<u64>);

impl PlayerSink for Counter {
    fn release(&mut self, _release: Release) {
        self.0 += 1;
        let _ = self.1.send(self.0);
    }
}

#[test]
fn a_player_on_the_systems_clock_obeys_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    let settings = PlayerSettings {
        looped: true,
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(&small(folder.path())).unwrap(), settings).unwrap();
    let handle = player.handle();
    handle.pause();
    let (sender, released) = std::sync::mpsc::channel();
    let playing = std::thread::spawn(move || player.play(&SystemClock, &mut Counter(0, sender)).unwrap());
    handle.step(3);
    assert_eq!(released.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
    handle.set_rate(Rate::Max).unwrap();
    handle.resume();
    assert_eq!(released.iter().find(|n| *n == 100), Some(100));
    handle.stop();
    let summary = playing.join().unwrap();
    assert_eq!(summary.ending, Ending::Stopped);
    assert!(summary.messages >= 100 && summary.loops >= 6, "{summary:?}");
}
