//! `sensorium bag play`: a bag on the ROS 2 graph.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueHint;
use miette::{IntoDiagnostic, Report, WrapErr, miette};

use super::carry::bytes;
use super::times::seconds_ns;
use crate::cli::interrupt::Interrupts;
use crate::cli::report;
use crate::cli::ros_args::RosArgs;
use crate::cli::run::remap;
use crate::io::bag::{Bag, BagError, BagTopic, TimeRange};
use crate::io::interface::hash_of_definition;
use crate::io::messages::type_hash;
use crate::io::player::{
    Buffering, ClockMessages, Ending, Player, PlayerHandle, PlayerSettings, PlayerSink, PlayerSummary, Rate,
    Release, Reset, SystemClock,
};
use crate::io::ros::{Durability, Endpoint, Qos, RosNode, RosPublisher, TypeHash};
use crate::pipeline;

/// Depth of topics whose bag does not say how they were offered.
const DEFAULT_DEPTH: u32 = 10;

/// Most messages of a latched topic from before the start.
const MOST_LATCHED: u32 = 1_000;

/// How long a message may wait for the network: it makes the next one late, which is told; a message that is dropped
/// is missing from what was to be measured.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two looks for subscribers.
const LOOK: Duration = Duration::from_millis(20);

/// Plays a bag on the ROS 2 graph over zenoh, like `ros2 bag play` with rmw_zenoh, and without ROS 2.
///
/// Messages are published as they are, at the times at which they were recorded, with the quality of service that the
/// bag names. What is released late is counted and told at the end; a subscription sees what the network lost by the
/// gaps in the messages' numbers.
///
/// On a terminal, lines steer it: p pauses and resumes, s [N] releases N messages while paused, r RATE changes the
/// speed, q ends. The exit code is 1 if some of the bag could not be read or published.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag play drive.mcap
  sensorium bag play drive/ --rate 0.5 --start 10 --duration 5 --clock
  sensorium bag play drive/ --loop --topics /points,/tf,/tf_static --remap /points:=/sensing/lidar/points")]
pub(super) struct Args {
    /// Folder, metadata.yaml, .mcap or .db3.
    #[arg(value_hint = ValueHint::AnyPath)]
    bag: PathBuf,
    /// Speed: a multiple of the recorded speed, or `max` for as fast as messages can be sent.
    #[arg(long, short, value_name = "RATE", default_value = "1")]
    rate: pipeline::Rate,
    /// Start so many seconds into the bag.
    #[arg(long, value_name = "SECONDS", value_parser = seconds_ns, default_value = "0")]
    start: u64,
    /// Play so many seconds of the bag.
    #[arg(long, value_name = "SECONDS", value_parser = seconds_ns)]
    duration: Option<u64>,
    /// Begin again at the end, with stamps that go on, until interrupted.
    #[arg(long = "loop", short = 'l')]
    looped: bool,
    /// Play these topics and no others.
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    topics: Vec<String>,
    /// Gives a topic another name: FROM:=TO. Can be given several times.
    #[arg(long, value_name = "FROM:=TO", value_parser = remap)]
    remap: Vec<(String, String)>,
    /// Publish /clock: HZ times a second (--clock=100), or before each message if no number is given.
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = "messages", value_parser = clock)]
    clock: Option<Clock>,
    /// Bytes that are read ahead.
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "64MiB", conflicts_with = "preload")]
    read_ahead: u64,
    /// Read the whole bag before the first message, if it has no more than these bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes, num_args = 0..=1, require_equals = true, default_missing_value = "8GiB")]
    preload: Option<u64>,
    /// Begin paused.
    #[arg(long)]
    paused: bool,
    /// Wait at most so many seconds for somebody to subscribe.
    #[arg(long, value_name = "SECONDS", value_parser = seconds_ns, default_value = "10")]
    wait: u64,
    /// Name of the node.
    #[arg(long, value_name = "NAME", default_value = "sensorium_player")]
    node: String,
    #[command(flatten)]
    ros: RosArgs,
}

/// When `/clock` is published.
#[derive(Debug, Clone, Copy)]
enum Clock {
    Messages,
    Hz(f64),
}

fn clock(text: &str) -> Result<Clock, String> {
    match text {
        "messages" => Ok(Clock::Messages),
        _ => text
            .parse()
            .map(Clock::Hz)
            .map_err(|_| "expected a number of messages a second".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// A bag that cannot be opened, a network that cannot be joined, settings without sense.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let bag = Bag::open(&args.bag).into_diagnostic()?;
    for warning in bag.warnings() {
        tracing::warn!("{warning}");
    }
    let hashless = args.ros.is_humble();
    let (topics, left_out) = playable(&bag, &args.topics, hashless)?;
    for (topic, reason) in &left_out {
        tracing::warn!(topic, reason, "not played");
    }
    let player = Player::open(bag, settings(args, topics)).into_diagnostic()?;
    let node = args.ros.join(&args.node, PATIENCE)?;
    let publishers = advertise(&player, &*node, hashless)?;
    let heard = wait_for_subscribers(&publishers, Duration::from_nanos(args.wait));

    let handle = player.handle();
    if args.paused {
        handle.pause();
    }
    steer(&handle)?;
    let mut outlet = Outlet {
        publishers,
        failed: 0,
        first_failure: None,
    };
    let latched = publish_latched(&player, args.start, &mut outlet).into_diagnostic()?;
    let started = Instant::now();
    let played = player.play(&SystemClock, &mut outlet);
    let took = started.elapsed();
    let heard = heard
        || outlet
            .publishers
            .iter()
            .any(|publisher| publisher.has_subscribers());
    let closed = node.close();
    let summary = played.into_diagnostic()?;
    tell(&summary, &outlet, took, latched, heard)?;
    closed.into_diagnostic()?;
    let whole = summary.damaged == 0 && outlet.failed == 0;
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn settings(args: &Args, topics: Vec<String>) -> PlayerSettings {
    PlayerSettings {
        rate: match args.rate {
            pipeline::Rate::Times(times) => Rate::Times(times),
            pipeline::Rate::Max => Rate::Max,
        },
        start_offset_ns: args.start,
        duration_ns: args.duration,
        looped: args.looped,
        buffering: match args.preload {
            Some(max_bytes) => Buffering::Preload { max_bytes },
            None => Buffering::ReadAhead {
                bytes: usize::try_from(args.read_ahead).unwrap_or(usize::MAX),
            },
        },
        topics: Some(topics),
        remap: args.remap.iter().cloned().collect::<BTreeMap<_, _>>(),
        clock: match args.clock {
            None => ClockMessages::Off,
            Some(Clock::Messages) => ClockMessages::BeforeEachMessage,
            Some(Clock::Hz(hz)) => ClockMessages::Hz(hz),
        },
        ..PlayerSettings::default()
    }
}

/// The topics that can be played, and those that cannot, with the reason.
type Playable = (Vec<String>, Vec<(String, String)>);

/// Sorts the topics of a bag, or those asked for; one that was asked for has to be playable.
fn playable(bag: &Bag, asked: &[String], hashless: bool) -> miette::Result<Playable> {
    let (mut topics, mut left_out) = (Vec::new(), Vec::new());
    for name in asked {
        if !bag.topics().iter().any(|topic| topic.name == *name) {
            let known: Vec<&str> = bag.topics().iter().map(|topic| topic.name.as_str()).collect();
            return Err(miette!(
                help = format!("it has {}", known.join(", ")),
                "the bag has no topic {name}"
            ));
        }
    }
    for topic in bag.topics() {
        let wanted = asked.contains(&topic.name);
        if !asked.is_empty() && !wanted {
            continue;
        }
        match hash_of(topic, hashless) {
            Ok(_) => topics.push(topic.name.clone()),
            Err(reason) if wanted => {
                return Err(miette!("topic {} cannot be played: {reason}", topic.name));
            }
            Err(reason) => left_out.push((topic.name.clone(), reason)),
        }
    }
    if topics.is_empty() && !left_out.is_empty() {
        let (topic, reason) = &left_out[0];
        return Err(miette!(
            "no topic of the bag can be played; {topic}, for one: {reason}"
        ));
    }
    Ok((topics, left_out))
}

/// The type hash of a topic: the bag's, or that of the definition it carries, or of one that is known here. Any will do
/// where hashes are never written.
fn hash_of(topic: &BagTopic, hashless: bool) -> Result<TypeHash, String> {
    if topic.serialization != "cdr" {
        return Err(format!("its messages are {}, not cdr", topic.serialization));
    }
    if let Some(hash) = topic.type_hash {
        return Ok(hash);
    }
    let carried = topic
        .definition
        .as_ref()
        .map(|definition| match definition.encoding.as_str() {
            "ros2msg" => {
                hash_of_definition(&topic.type_name, &definition.text).map_err(|error| error.to_string())
            }
            other => Err(format!("its definition is written as {other}")),
        });
    match (carried, type_hash(&topic.type_name)) {
        (Some(Ok(hash)), _) | (_, Some(hash)) => Ok(hash),
        _ if hashless => Ok(TypeHash([0; 32])),
        (Some(Err(reason)), None) => Err(reason),
        (None, None) => Err(format!(
            "the bag has neither hash nor definition of {}, and it is not known here",
            topic.type_name
        )),
    }
}

/// A publisher for each topic, in the order of the player's.
fn advertise(
    player: &Player,
    node: &dyn RosNode,
    hashless: bool,
) -> miette::Result<Vec<Arc<dyn RosPublisher>>> {
    let publisher = |topic: &crate::io::player::PlayedTopic| {
        let name = if topic.name.starts_with('/') {
            topic.name.clone()
        } else {
            format!("/{}", topic.name)
        };
        let endpoint = Endpoint {
            topic: name,
            type_name: topic.recorded.type_name.clone(),
            type_hash: hash_of(&topic.recorded, hashless)
                .map_err(|reason| miette!("topic {}: {reason}", topic.name))?,
            qos: offer(&topic.recorded.offered_qos),
        };
        node.publisher(&endpoint).into_diagnostic()
    };
    player.topics().iter().map(publisher).collect()
}

/// One profile that serves all that were offered: what any publisher kept for late subscriptions is kept.
fn offer(offered: &[Qos]) -> Qos {
    let Some(first) = offered.first() else {
        return Qos::reliable(DEFAULT_DEPTH);
    };
    let latched = offered
        .iter()
        .find(|qos| qos.durability == Durability::TransientLocal);
    *latched.unwrap_or(first)
}

/// Publishes what latched topics had before the start, as a late subscription would have got it: how many messages.
fn publish_latched(player: &Player, start_offset_ns: u64, outlet: &mut Outlet) -> Result<u64, BagError> {
    let Some((first_ns, _)) = player.bag().range_ns().filter(|_| start_offset_ns > 0) else {
        return Ok(0);
    };
    let before = TimeRange {
        start_ns: 0,
        end_ns: Some(first_ns.saturating_add(start_offset_ns)),
    };
    let mut published = 0;
    for (topic, publisher) in player.topics().iter().zip(&outlet.publishers) {
        let qos = publisher.endpoint().qos;
        let recorded = player
            .bag()
            .topics()
            .iter()
            .any(|known| known.name == topic.recorded.name);
        if qos.durability != Durability::TransientLocal || !recorded {
            continue;
        }
        let kept = qos.depth().clamp(1, MOST_LATCHED) as usize;
        let mut newest = VecDeque::new();
        for message in player
            .bag()
            .messages_within(Some(&[&topic.recorded.name]), before)?
        {
            // What cannot be read is told when it is its turn.
            let Ok(message) = message else { continue };
            if newest.len() == kept {
                newest.pop_front();
            }
            newest.push_back(message.data);
        }
        for data in newest {
            match publisher.publish(data) {
                Ok(()) => published += 1,
                Err(error) => {
                    outlet.failed += 1;
                    outlet.first_failure.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }
    Ok(published)
}

/// Messages that are sent before anybody listens are lost, and it takes a moment until nodes have found each other.
/// Whether anybody listens.
fn wait_for_subscribers(publishers: &[Arc<dyn RosPublisher>], most: Duration) -> bool {
    let start = Instant::now();
    let found = || publishers.iter().any(|publisher| publisher.has_subscribers());
    while !found() {
        if start.elapsed() >= most {
            if !most.is_zero() {
                tracing::warn!("nobody subscribes to any topic of the bag yet");
            }
            return false;
        }
        std::thread::sleep(LOOK);
    }
    // Who has found one topic is about to find the others.
    std::thread::sleep(LOOK * 5);
    true
}

/// Stops the player at Ctrl-C; on a terminal, lines steer it.
fn steer(handle: &PlayerHandle) -> miette::Result<()> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .into_diagnostic()
        .wrap_err("interrupts cannot be waited for")?;
    let interrupts = {
        let _within = tokio.enter();
        Interrupts::catch()
    };
    let mut interrupts = interrupts
        .into_diagnostic()
        .wrap_err("interrupts cannot be caught")?;
    let stopped = handle.clone();
    std::thread::spawn(move || {
        tokio.block_on(interrupts.next());
        stopped.stop();
        // A second one ends at once.
        tokio.block_on(interrupts.next());
        std::process::exit(130);
    });
    if std::io::stdin().is_terminal() {
        let handle = handle.clone();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if let Err(reason) = obey(&handle, &line) {
                    tracing::warn!("{reason}");
                }
            }
        });
    }
    Ok(())
}

/// Does what a line says.
fn obey(handle: &PlayerHandle, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => Ok(()),
        (Some("p"), None) if handle.is_paused() => {
            handle.resume();
            Ok(())
        }
        (Some("p"), None) => {
            handle.pause();
            Ok(())
        }
        (Some("s"), count) => {
            let count = count
                .map_or(Ok(1), str::parse)
                .map_err(|_| "s takes a number".to_owned())?;
            handle.step(count);
            Ok(())
        }
        (Some("r"), Some(rate)) => {
            let rate = match rate
                .parse()
                .map_err(|error: pipeline::RateError| error.to_string())?
            {
                pipeline::Rate::Times(times) => Rate::Times(times),
                pipeline::Rate::Max => Rate::Max,
            };
            handle.set_rate(rate).map_err(|error| error.to_string())
        }
        (Some("q"), None) => {
            handle.stop();
            Ok(())
        }
        _ => Err("p pauses and resumes, s [N] steps, r RATE changes the speed, q ends".into()),
    }
}

/// Where the player's messages go.
struct Outlet {
    publishers: Vec<Arc<dyn RosPublisher>>,
    failed: u64,
    first_failure: Option<String>,
}

impl PlayerSink for Outlet {
    fn release(&mut self, release: Release) {
        let Some(publisher) = self.publishers.get(release.topic) else {
            return;
        };
        if let Err(error) = publisher.publish(release.data) {
            self.failed += 1;
            self.first_failure.get_or_insert_with(|| error.to_string());
        }
    }

    fn reset(&mut self, reset: Reset) {
        tracing::info!(loops = reset.loop_number, "the bag begins again");
    }
}

/// Says what was played, and what went wrong.
fn tell(
    summary: &PlayerSummary,
    outlet: &Outlet,
    took: Duration,
    latched: u64,
    heard: bool,
) -> miette::Result<()> {
    for damage in &summary.damage {
        report::show(&Report::msg(damage.to_string()));
    }
    if let Some(failure) = &outlet.first_failure {
        report::show(&miette!(
            "{} message(s) could not be published: {failure}",
            outlet.failed
        ));
    }
    let ending = match summary.ending {
        Ending::Finished => "played",
        Ending::Stopped => "stopped after",
    };
    let mut text = format!(
        "{ending} {} messages, {:.1} MB, in {:.1} s",
        summary.messages,
        summary.bytes as f64 / 1e6,
        took.as_secs_f64()
    );
    for (count, what) in [
        (latched, "latched ones from before the start"),
        (summary.loops, "loop(s)"),
        (summary.clock_messages, "of /clock"),
        (summary.unshifted, "with stamps that could not be moved along"),
        (summary.starved, "not read yet when their turn came"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text.push_str(&format!(
        "\n{} late (worst {:.1} ms), {} burst(s) of up to {}",
        summary.late,
        summary.largest_lateness.as_secs_f64() * 1e3,
        summary.bursts,
        summary.largest_burst
    ));
    if !heard {
        text.push_str("\nnobody subscribed: `sensorium router` lets nodes find each other");
    }
    report::print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_publisher_latched_stays_latched() {
        assert_eq!(offer(&[]), Qos::reliable(10));
        assert_eq!(offer(&[Qos::sensor_data(5)]), Qos::sensor_data(5));
        let both = offer(&[Qos::reliable(1), Qos::latched(7)]);
        assert_eq!((both.durability, both.depth()), (Durability::TransientLocal, 7));
    }
}
