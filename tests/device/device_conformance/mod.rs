//! The conformance suite on the CPU device, and on devices that are broken on purpose.

mod broken;

use std::collections::BTreeSet;
use std::time::Duration;

use broken::{Broken, Flaw};
use sensorium::device::conformance::{CHECKS, Open, Outcome, run_all};
use sensorium::device::cpu::kernels::Isa;
use sensorium::device::{
    BinaryKind, BufferClass, CpuConfig, CpuDevice, Cq, Device, OpDesc, Operand, SimConfig, SimDevice,
};
use sensorium::tensor::{DType, TensorSpec, View};

fn config(queues: u8, threads: usize, isa: Isa) -> CpuConfig {
    CpuConfig {
        queues,
        threads,
        isa: Some(isa),
        arena_bytes: 8 << 20,
        trace_region_bytes: 1 << 20,
        ..CpuConfig::default()
    }
}

/// The CPU device in one configuration.
fn cpu_conforms(config: &CpuConfig) {
    let isa = config.isa.unwrap();
    if isa.is_available() {
        conforms(&mut || Ok(Box::new(CpuDevice::open(config)?)));
    } else {
        println!("skipped: this processor has no {isa}");
    }
}

/// Runs all checks; skips are printed, failures are told together.
fn conforms(open: &mut Open<'_>) {
    let reports = run_all(open).unwrap();
    assert_eq!(reports.len(), CHECKS.len());
    let mut failures = Vec::new();
    for report in &reports {
        println!("{:>9.3?} {}", report.took, report.check.name);
        match &report.outcome {
            Outcome::Passed => {}
            Outcome::Skipped(reason) => println!("skipped: {}: {reason}", report.check.name),
            Outcome::Failed(failure) => failures.push(format!("{}: {failure}", report.check.name)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

macro_rules! configurations {
    ($($name:ident: $queues:literal, $threads:literal, $isa:ident;)+) => {
        $(
            #[test]
            fn $name() {
                cpu_conforms(&config($queues, $threads, Isa::$isa));
            }
        )+
    };
}

configurations! {
    one_queue_and_one_thread_with_scalar_kernels_conform: 1, 1, Scalar;
    one_queue_and_two_threads_with_avx2_kernels_conform: 1, 2, Avx2;
    one_queue_and_two_threads_with_avx512_kernels_conform: 1, 2, Avx512;
    two_queues_and_two_threads_with_scalar_kernels_conform: 2, 2, Scalar;
    two_queues_and_two_threads_with_avx2_kernels_conform: 2, 2, Avx2;
    two_queues_and_one_thread_with_avx512_kernels_conform: 2, 1, Avx512;
}

/// Every seed is another order of execution.
#[test]
fn the_simulated_device_conforms_under_any_order() {
    for seed in 0..9 {
        let queues = if seed == 0 { 1 } else { 2 };
        let config = SimConfig {
            queues,
            seed,
            arena_bytes: 8 << 20,
            trace_region_bytes: 1 << 20,
            ..SimConfig::default()
        };
        conforms(&mut || Ok(Box::new(SimDevice::open(&config)?)));
    }
}

/// Each flaw, and the checks that have to notice it. Others may as well.
const NOTICED: &[(Flaw, &[&str])] = &[
    (Flaw::OddAlignment, &["capabilities_hold_together"]),
    (
        Flaw::HidesTraceRegion,
        &[
            "a_trace_beyond_its_region_is_given_up",
            "report_13_a_region_that_is_too_small_says_how_much_is_missing",
        ],
    ),
    (Flaw::RefusesBytes, &["every_type_of_the_list_can_be_stored"]),
    (Flaw::FullOfTiles, &["a_layout_is_stored_or_refused_by_name"]),
    (Flaw::RefusesEmpty, &["zero_sized_tensors_work"]),
    (Flaw::LeaksWhenFull, &["out_of_memory_changes_nothing"]),
    (
        Flaw::ClosedIsFull,
        &["a_closed_device_answers_closed_to_everything"],
    ),
    (
        Flaw::AllocatesInCapture,
        &[
            "a_capture_refuses_what_a_trace_cannot_hold_on_every_queue",
            "report_10_an_allocation_in_the_window_spoils_no_later_launch",
        ],
    ),
    (Flaw::KeepsFreedInCapture, &["what_a_capture_frees_is_used_again"]),
    (Flaw::FreesTwice, &["a_freed_buffer_is_unknown"]),
    (Flaw::OffByFour, &["live_buffers_are_aligned_and_never_overlap"]),
    (Flaw::Wanders, &["addresses_stay_where_they_are"]),
    (Flaw::ShortSlots, &["a_slot_beyond_all_memory_is_refused"]),
    (
        Flaw::WritesNothing,
        &[
            "the_host_cannot_change_what_is_being_uploaded",
            "a_slot_may_go_away_before_its_transfer_is_done",
            "what_was_enqueued_before_a_free_still_happens",
            "report_09_a_host_buffer_that_is_used_again_reaches_no_older_upload",
        ],
    ),
    (
        Flaw::ReadsNothing,
        &[
            "the_host_cannot_see_half_a_download",
            "a_slot_that_is_being_filled_takes_no_second_transfer",
        ],
    ),
    (
        Flaw::CutsTransfers,
        &["bytes_outside_a_buffer_or_slot_are_refused"],
    ),
    (Flaw::AnyQueue, &["a_queue_that_does_not_exist_is_refused"]),
    (
        Flaw::SwallowsInCapture,
        &["a_capture_refuses_what_a_trace_cannot_hold_on_every_queue"],
    ),
    (
        Flaw::SyncsInCapture,
        &["report_04_synchronising_in_a_capture_is_refused_and_costs_nothing"],
    ),
    (Flaw::BlindInCapture, &["a_capture_allows_what_touches_no_queue"]),
    (Flaw::LateCopies, &["commands_of_one_queue_run_in_order"]),
    (Flaw::CopiesAnySize, &["copies_need_buffers_of_one_size"]),
    (
        Flaw::WaitsForNothing,
        &[
            "an_event_makes_one_queue_wait_for_another",
            "report_12_uploads_of_another_queue_reach_a_replay_through_events",
        ],
    ),
    (
        Flaw::KnowsEveryEvent,
        &["an_event_that_was_never_recorded_is_refused"],
    ),
    (
        Flaw::EagerEvents,
        &["an_event_completes_when_its_queue_gets_there"],
    ),
    (Flaw::ForgetsEvents, &["an_event_stays_known_after_it_completed"]),
    (Flaw::Patient, &["a_deadline_that_passes_is_a_timeout"]),
    (Flaw::AnyWeights, &["weights_of_another_size_are_refused"]),
    (
        Flaw::NoCache,
        &[
            "one_description_is_one_program",
            "a_capture_of_warm_work_compiles_nothing",
        ],
    ),
    (
        Flaw::CompilesNonsense,
        &["a_description_that_makes_no_sense_compiles_nothing"],
    ),
    (
        Flaw::CompilesAlways,
        &[
            "a_forbidden_compilation_names_the_operation",
            "report_05_a_capture_that_failed_can_be_given_up_and_begun_again",
        ],
    ),
    (
        Flaw::Subtracts,
        &["operations_compute_their_formulas_on_whole_numbers"],
    ),
    (Flaw::LosesLaunches, &["a_full_queue_loses_nothing"]),
    (Flaw::BindsAnything, &["bindings_that_do_not_fit_are_refused"]),
    (
        Flaw::RunsWhenCaptured,
        &["captured_launches_do_not_run_before_the_replay"],
    ),
    (Flaw::AbortsNothing, &["ending_what_never_began_is_refused"]),
    (Flaw::AbortEnds, &["an_aborted_capture_leaves_nothing"]),
    (
        Flaw::AbortForgets,
        &["report_05_a_capture_that_failed_can_be_given_up_and_begun_again"],
    ),
    (
        Flaw::ReplaysNothing,
        &[
            "a_replay_equals_the_eager_run_bit_for_bit",
            "two_traces_play_ping_pong",
            "report_11_eager_work_between_replays_disturbs_neither",
        ],
    ),
    (
        Flaw::ReplaysLatest,
        &[
            "two_traces_play_ping_pong",
            "report_03_the_storage_of_one_trace_survives_another",
        ],
    ),
    (Flaw::ReplayAllocates, &["a_replay_allocates_nothing"]),
    (
        Flaw::ReplayLies,
        &[
            "a_replay_is_refused_while_a_later_buffer_is_alive",
            "report_06_a_refused_replay_is_told_and_leaves_the_outputs",
        ],
    ),
    (Flaw::ReplaysOnOneQueue, &["a_trace_replays_on_every_queue"]),
    (Flaw::ReleasesTwice, &["a_released_trace_is_unknown"]),
    (Flaw::Deaf, &["an_acknowledged_buffer_does_not_stop_a_replay"]),
    (Flaw::DrainsNothing, &["draining_waits_for_every_queue"]),
    (Flaw::Mute, &["the_completion_hook_hears_of_events"]),
    (
        Flaw::CloseForgets,
        &[
            "closing_twice_is_closing_once",
            "closing_ends_pending_work_and_gives_slots_back",
            "closing_gives_up_a_capture",
        ],
    ),
    (Flaw::DropPanics, &["a_device_may_be_dropped_without_closing"]),
    (
        Flaw::Untracked,
        &[
            "a_replay_is_refused_while_a_later_buffer_is_alive",
            "a_replay_is_refused_after_a_later_program",
            "report_01_an_allocation_after_the_capture_keeps_its_contents",
            "report_02_a_program_compiled_after_the_capture_is_named",
        ],
    ),
];

#[test]
fn every_check_is_failed_by_a_device_that_breaks_its_promise() {
    let config = config(2, 1, Isa::detect());
    let mut failed = BTreeSet::new();
    for &(flaw, names) in NOTICED {
        let mut open = || Ok(Box::new(Broken::open(&config, flaw)?) as Box<dyn Device>);
        let mut device = Broken::open(&config, flaw).unwrap();
        let caps = device.caps().clone();
        device.close();
        for &name in names {
            let check = CHECKS.iter().find(|check| check.name == name).unwrap();
            let report = check.run(&caps, &mut open);
            println!("{flaw:?}: {name}: {:?}", report.outcome);
            assert!(
                matches!(report.outcome, Outcome::Failed(_)),
                "{flaw:?} goes unnoticed by {name}: {:?}",
                report.outcome
            );
            failed.insert(name);
        }
    }
    let unproven: Vec<&str> = CHECKS
        .iter()
        .map(|check| check.name)
        .filter(|name| !failed.contains(name))
        .collect();
    assert!(unproven.is_empty(), "no device here fails {unproven:?}");
}

#[test]
fn a_replay_that_is_not_checked_destroys_a_later_buffer() {
    let mut device = CpuDevice::open(&CpuConfig {
        track_allocations: false,
        ..config(1, 1, Isa::detect())
    })
    .unwrap();
    let spec = TensorSpec::new(&[64], DType::F32).unwrap();
    let operand = Operand {
        dtype: DType::F32,
        view: View::contiguous(spec.shape),
    };
    let add = OpDesc::Binary {
        lhs: operand,
        rhs: operand,
        dst: operand,
        kind: BinaryKind::Add,
    };
    let program = device.compile(&add).unwrap();
    let write = |device: &mut CpuDevice, buffer, value: f32| {
        let mut slot = device.host_slot(256).unwrap();
        slot.bytes_mut()
            .unwrap()
            .copy_from_slice(bytemuck::cast_slice(&[value; 64]));
        device.write(Cq::COMPUTE, buffer, 0, &slot, 256).unwrap();
    };
    let read = |device: &mut CpuDevice, buffer| -> Vec<f32> {
        let mut slot = device.host_slot(256).unwrap();
        device.read(Cq::COMPUTE, buffer, 0, &mut slot, 256).unwrap();
        device.drain(Duration::from_secs(10)).unwrap();
        bytemuck::cast_slice(slot.bytes().unwrap()).to_vec()
    };
    let a = device.alloc(&spec, BufferClass::Input).unwrap();
    let b = device.alloc(&spec, BufferClass::Output).unwrap();
    write(&mut device, a, 1.0);
    device.begin_capture(Cq::COMPUTE).unwrap();
    let temporary = device.alloc(&spec, BufferClass::Intermediate).unwrap();
    device.launch(Cq::COMPUTE, program, &[a, a, temporary]).unwrap();
    device.launch(Cq::COMPUTE, program, &[temporary, a, b]).unwrap();
    device.free(temporary).unwrap();
    let trace = device.end_capture().unwrap();

    let late = device.alloc(&spec, BufferClass::State).unwrap();
    write(&mut device, late, 7.0);
    assert_eq!(read(&mut device, late), [7.0; 64]);
    device.replay(Cq::COMPUTE, trace).unwrap();
    assert_eq!(read(&mut device, b), [3.0; 64], "the trace does its work");
    assert_eq!(
        read(&mut device, late),
        [2.0; 64],
        "and writes its intermediate where the later buffer lies"
    );
}
