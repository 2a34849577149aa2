//! The detectors of a run: the device is opened, and each detector gets its stages around it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use kameo::actor::Spawn;
use tokio::sync::oneshot;

use super::admission::Admission;
use super::channel::{Receiver, Sender};
use super::control::{DetectorLink, LiveParams, Places};
use super::ending::{Ending, ending};
use super::error::RuntimeError;
use super::finish::{Finish, SinkList, SinkOutlet};
use super::frame::{Inferred, Prepared, Sample};
use super::models::{self, DetectorParts};
use super::owner::schedule::Order;
use super::owner::{DescribeDevice, DeviceOwner, LaneArgs, OwnerArgs, OwnerReady};
use super::poses::Poses;
use super::prepare::Prepare;
use super::run::Shared;
use super::sets;
use super::slots::{SlotCounts, prepare_workers};
use super::stage::{Stage, StageLogic};
use super::supervision::{RunsIn, WhenGivenUp, supervise};
use crate::device::DeviceConfig;
use crate::pipeline::{DetectorSettings, NodeKind, OnFull, OnLate, OnStreamsFull, Pipeline, RestartSettings};
use crate::telemetry::FrameSizes;

/// The ways into the sinks, by the name of the actor that finishes for a detector.
pub(super) type Outlets = BTreeMap<String, Vec<SinkOutlet>>;

/// Detectors that are ready for frames.
pub(super) struct StartedDetectors {
    /// The device in words and in numbers.
    pub(super) device: (String, serde_json::Value),
    /// Channel into each detector from each source, by node names.
    pub(super) inlets: HashMap<(String, String), Sender<Sample<()>>>,
    /// Where transforms go; `None` where no detector asks for poses.
    pub(super) poses: Option<Arc<Poses>>,
    /// The sinks of each detector, by the name of the actor that finishes for it, while there is one.
    pub(super) sink_lists: Vec<(String, Weak<SinkList>)>,
}

pub(super) async fn start_detectors(
    pipeline: &Pipeline,
    config: DeviceConfig,
    parts: Vec<DetectorParts>,
    shared: &Shared,
    mut outlets: Outlets,
    endings: &mut FuturesUnordered<Ending>,
) -> Result<StartedDetectors, RuntimeError> {
    let nodes: Vec<(&str, &DetectorSettings)> = pipeline
        .nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Detector(settings) => Some((node.name.as_str(), settings)),
            _ => None,
        })
        .collect();
    // Without detectors nothing needs a device.
    if nodes.is_empty() {
        return Ok(StartedDetectors {
            device: ("none".into(), serde_json::Value::Null),
            inlets: HashMap::new(),
            poses: poses_of(pipeline, None),
            sink_lists: Vec::new(),
        });
    }
    let workers = |settings: &DetectorSettings| prepare_workers(settings, &pipeline.models[&settings.model]);
    let to_device: usize = nodes
        .iter()
        .map(|(name, _)| shared.capacity(&prepare_name(name), "device"))
        .sum();
    let prepares: Vec<String> = nodes.iter().map(|(name, _)| prepare_name(name)).collect();
    let (device_tx, device_rx) =
        shared.channel::<Sample<Prepared>>(&prepares.join(", "), "device", to_device, OnFull::Block);
    let mut lanes = Vec::new();
    let mut results: Vec<Receiver<Sample<Inferred>>> = Vec::new();
    for (name, settings) in &nodes {
        let model = &pipeline.models[&settings.model];
        let slots = SlotCounts::of(
            model,
            shared.capacity(&prepare_name(name), "device"),
            shared.capacity("device", &finish_name(name)),
            workers(settings),
        );
        // As many places in the channel as output slots: results always find room there.
        let (tx, rx) = shared.channel("device", &finish_name(name), slots.outputs, OnFull::Block);
        let timeout_us = model.batch.as_ref().map_or(0, |batch| batch.timeout_us);
        lanes.push(LaneArgs {
            detector: (*name).to_owned(),
            results: tx,
            output_slots: slots.outputs,
            input_slots: slots.inputs,
            batch_timeout: Duration::from_micros(timeout_us.into()),
            // Nothing is missing from a deterministic run.
            drop_late: settings.on_late == OnLate::Drop && !shared.lossless,
        });
        results.push(rx);
    }
    let (hosts, builders): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.host, part.device)).unzip();
    let device_settings = &pipeline.device;
    if !device_settings.faults.faults.is_empty() {
        let faults = device_settings.faults.faults.len();
        tracing::warn!(
            faults,
            "faults are injected into the device: this is a switch for tests"
        );
    }
    let restart = RestartSettings {
        // What was on a lost device is missing, and a deterministic run promises that nothing is.
        limit: if shared.lossless {
            0
        } else {
            device_settings.restart.limit
        },
        ..device_settings.restart
    };
    let (ready_tx, ready_rx) = oneshot::channel();
    let args = OwnerArgs {
        open: models::open_device(config, device_settings, restart.limit > 0, builders),
        input: device_rx,
        lanes,
        order: match shared.lossless {
            true => Order::Arrival,
            false => Order::Deadline,
        },
        ready: ready_tx,
        frame_deadline: Duration::from_millis(device_settings.frame_deadline_ms.into()),
        restart,
        ledger: Arc::clone(&shared.ledger),
        live: shared.live.clone(),
        clock: shared.clock,
        shutdown: shared.shutdown.clone(),
        board: Arc::clone(&shared.board),
    };
    let owner = DeviceOwner::spawn_in_thread(args);
    let OwnerReady {
        input_pools,
        device,
        device_details,
    } = ready_rx
        .await
        .map_err(|_| RuntimeError::Device("the device owner stopped while opening the device".into()))??;
    shared.board.device_opened(&device);
    shared.board.set_owner(&owner);
    if let Ok(description) = owner.ask(DescribeDevice).await {
        tracing::info!(%description, "device ready");
    }
    endings.push(ending("device".into(), owner));

    let world = hosts.iter().find_map(|host| host.world_frame.as_deref());
    let poses = poses_of(pipeline, world);
    let mut inlets = HashMap::new();
    let mut sink_lists = Vec::new();
    // The first publisher measures what it publishes; other detectors are measured when their results are out.
    let publisher = pipeline
        .nodes
        .iter()
        .find(|node| matches!(&node.kind, NodeKind::Publisher(publisher) if publisher.measures()));
    let measured_by_publisher =
        |detector: &str| publisher.is_some_and(|publisher| pipeline.feeds(detector, &publisher.name));
    for (index, (((name, settings), host), (pools, rx))) in nodes
        .iter()
        .zip(hosts)
        .zip(input_pools.into_iter().zip(results))
        .enumerate()
    {
        let (senders, input) = shared.channel_into::<Sample<()>>(&prepare_name(name));
        for (source, inlet) in senders {
            inlets.insert((source, (*name).to_owned()), inlet);
        }
        let prepare = Prepare {
            name: prepare_name(name),
            index,
            model: Arc::clone(&host.model),
            admission: Admission::new(pipeline.models[&settings.model].max_in_flight),
            slots: pools,
            output: Mutex::new(Some(device_tx.clone())),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            poses: poses.clone().filter(|_| host.world_frame.is_some()),
            pose_wait: Duration::from_millis(settings.pose_wait_ms.into()),
            deterministic: shared.turns.is_some(),
            clouds: Mutex::new(Vec::new()),
            pixels: Mutex::new(Vec::new()),
            explained: Mutex::new(HashSet::new()),
            sizes: FrameSizes::default(),
        };
        let stage = Stage::new(
            prepare,
            input,
            workers(settings),
            Arc::clone(&shared.ledger),
            shared.shutdown.clone(),
        );
        endings.push(start_stage(&prepare_name(name), stage, shared));

        let model = &pipeline.models[&settings.model];
        let places = match model.on_full {
            OnStreamsFull::Reject => model.max_streams.into(),
            // A detector without state loses nothing when a stream gives up its place.
            _ => usize::MAX,
        };
        let params = Arc::new(LiveParams::new(host.model.call_params()));
        shared.board.add_detector(DetectorLink {
            node: (*name).into(),
            params: Arc::clone(&params),
            places: Arc::new(Places::new(places)),
            model: Arc::clone(&host.model),
        });
        let sinks = SinkList::new(outlets.remove(&finish_name(name)).unwrap_or_default());
        sink_lists.push((finish_name(name), Arc::downgrade(&sinks)));
        let finish = Finish {
            name: finish_name(name),
            model: host.model,
            output_len: host.output_len,
            sinks,
            params,
            ledger: Arc::clone(&shared.ledger),
            sink_ledger: Arc::clone(&shared.sink_ledger),
            meter: (!measured_by_publisher(name)).then(|| Arc::clone(&shared.meter)),
            clock: shared.clock,
            turns: shared.turns.clone(),
        };
        let stage = Stage::new(
            finish,
            rx,
            settings.finish_workers as usize,
            Arc::clone(&shared.ledger),
            shared.shutdown.clone(),
        );
        endings.push(start_stage(&finish_name(name), stage, shared));
    }
    Ok(StartedDetectors {
        device: (device, device_details),
        inlets,
        poses,
        sink_lists,
    })
}

/// Where transforms go, if a detector asks where it is in this frame of the world, or a node brings clouds to one frame.
fn poses_of(pipeline: &Pipeline, world: Option<&str>) -> Option<Arc<Poses>> {
    let world = world.or_else(|| sets::world_frame(pipeline))?;
    let poses = Arc::new(Poses::new(world));
    poses.mount(&pipeline.mounts);
    Some(poses)
}

/// Starts a stage under supervision.
pub(super) fn start_stage<L: StageLogic>(name: &str, stage: Stage<L>, shared: &Shared) -> Ending {
    let watch = shared.watch(name);
    let stage = stage.watched(&watch);
    supervise(&watch, stage, RunsIn::Task, WhenGivenUp::End, shared)
}

/// Name of the actor that prepares for a detector.
fn prepare_name(node: &str) -> String {
    format!("{node}/prepare")
}

/// Name of the actor that finishes what a detector found.
fn finish_name(node: &str) -> String {
    format!("{node}/finish")
}
