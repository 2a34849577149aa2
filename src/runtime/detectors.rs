//! The detectors of a run: the device is opened, and each detector gets its stages around it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use kameo::actor::Spawn;
use tokio::sync::oneshot;

use super::channel::{self, Receiver, Sender};
use super::ending::{Ending, ending};
use super::error::RuntimeError;
use super::finish::{Finish, SinkOutlet};
use super::frame::{Inferred, Prepared, Sample};
use super::models::{self, DetectorParts};
use super::owner::{DescribeDevice, DeviceOwner, FRAMES_UNDER_WAY, OwnerArgs, OwnerReady};
use super::poses::Poses;
use super::prepare::Prepare;
use super::run::Shared;
use super::sets;
use super::stage::Stage;
use crate::device::DeviceConfig;
use crate::pipeline::{DetectorSettings, NodeKind, OnFull, Pipeline, RestartSettings};
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
    let workers = |settings: &DetectorSettings| {
        let stateful = pipeline.models[&settings.model].family.is_stateful();
        if stateful {
            1
        } else {
            settings.prepare_workers as usize
        }
    };
    let to_device: usize = nodes
        .iter()
        .map(|(name, _)| shared.capacity(&prepare_name(name), "device"))
        .sum();
    let (device_tx, device_rx) = channel::bounded::<Sample<Prepared>>(to_device, OnFull::Block);
    let mut outputs = Vec::new();
    let mut results: Vec<Receiver<Sample<Inferred>>> = Vec::new();
    for (name, _) in &nodes {
        let capacity = shared.capacity("device", &finish_name(name));
        let (tx, rx) = channel::bounded(capacity, OnFull::Block);
        // As many output slots as places in the channel: results always find room there.
        outputs.push((tx, capacity));
        results.push(rx);
    }
    let (hosts, builders): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.host, part.device)).unzip();
    let input_slots = nodes
        .iter()
        .map(|(name, settings)| shared.capacity(&prepare_name(name), "device") + workers(settings))
        .max()
        .unwrap_or(0)
        + FRAMES_UNDER_WAY;
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
        outputs,
        ready: ready_tx,
        input_slots,
        frame_deadline: Duration::from_millis(device_settings.frame_deadline_ms.into()),
        restart,
        ledger: Arc::clone(&shared.ledger),
        clock: shared.clock,
        shutdown: shared.shutdown.clone(),
    };
    let owner = DeviceOwner::spawn_in_thread(args);
    let OwnerReady {
        input_pools,
        device,
        device_details,
    } = ready_rx
        .await
        .map_err(|_| RuntimeError::Device("the device owner stopped while opening the device".into()))??;
    if let Ok(description) = owner.ask(DescribeDevice).await {
        tracing::info!(%description, "device ready");
    }
    endings.push(ending("device".into(), owner));

    let world = hosts.iter().find_map(|host| host.world_frame.as_deref());
    let world = world.or_else(|| sets::world_frame(pipeline));
    let poses = world.map(|world| Arc::new(Poses::new(world)));
    let mut inlets = HashMap::new();
    // The first publisher measures what it publishes; other detectors are measured when their results are out.
    let publisher = pipeline
        .nodes
        .iter()
        .find(|node| matches!(node.kind, NodeKind::Publisher(_)));
    let measured_by_publisher = |detector: &str| {
        publisher.is_some_and(|publisher| {
            let fed_by = |edge: &crate::pipeline::Edge| edge.to == publisher.name && edge.from == detector;
            pipeline.edges.iter().any(fed_by)
        })
    };
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
            slots: pools,
            output: device_tx.clone(),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            poses: poses.clone().filter(|_| host.world_frame.is_some()),
            pose_wait: Duration::from_millis(settings.pose_wait_ms.into()),
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
        endings.push(ending(prepare_name(name), Stage::spawn(stage)));

        let finish = Finish {
            name: finish_name(name),
            model: host.model,
            output_len: host.output_len,
            sinks: outlets.remove(&finish_name(name)).unwrap_or_default(),
            ledger: Arc::clone(&shared.ledger),
            sink_ledger: Arc::clone(&shared.sink_ledger),
            meter: (!measured_by_publisher(name)).then(|| Arc::clone(&shared.meter)),
            clock: shared.clock,
        };
        let stage = Stage::new(
            finish,
            rx,
            settings.finish_workers as usize,
            Arc::clone(&shared.ledger),
            shared.shutdown.clone(),
        );
        endings.push(ending(finish_name(name), Stage::spawn(stage)));
    }
    Ok(StartedDetectors {
        device: (device, device_details),
        inlets,
        poses,
    })
}

/// Name of the actor that prepares for a detector.
fn prepare_name(node: &str) -> String {
    format!("{node}/prepare")
}

/// Name of the actor that finishes what a detector found.
fn finish_name(node: &str) -> String {
    format!("{node}/finish")
}
