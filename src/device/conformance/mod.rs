//! What every device promises, as checks that run on any of them.
//!
//! Each check opens devices of its own, asks for something that the [contract](crate::device::Device) states,
//! and says what it found where that is not what was promised. A check knows nothing of the backend: what a
//! device cannot do it says in its capabilities, and the checks that need it are skipped with that reason.
//! Whoever adds a backend runs `sensorium device check --backend NAME`.
//!
//! - `subject`: a device under test, with shorthand for moving numbers
//! - `verdict`: how a check ends
//! - `graphs`: small networks for comparing a replay with an eager run
//! - `queues`, `slots`, `capture`, `programs`, `replay`, `memory`, `refusals`, `closing`: the promises
//! - `reports`: what users of comparable systems reported as bugs, by the rows of a list

mod capture;
mod closing;
mod graphs;
mod memory;
mod programs;
mod queues;
mod refusals;
mod replay;
mod reports;
mod slots;
mod subject;
mod verdict;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use verdict::Stop;
pub use verdict::{Failure, Outcome};

use super::{CaptureKind, Device, DeviceCaps, DeviceError};
use crate::tensor::DType;

/// Opens a device of the backend under test; called once or several times by each check.
pub type Open<'a> = dyn FnMut() -> Result<Box<dyn Device>, DeviceError> + 'a;

/// One promise.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The promise, as a sentence.
    pub name: &'static str,
    /// The rule that it belongs to: a phrase.
    pub rule: &'static str,
    needs: &'static [Need],
    run: fn(&mut Open<'_>) -> Result<(), Stop>,
}

/// A check that was run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The check.
    pub check: &'static Check,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// What a check cannot do without.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// More than one command queue.
    TwoQueues,
    /// Traces that are made by recording launches.
    Capture,
    /// A trace region that launches can fill in a moment.
    SmallTraceRegion,
    /// Queues that commands can fill in a moment.
    ShallowQueues,
}

/// Largest trace region that a check fills.
const SMALL_TRACE_REGION: usize = 128 << 20;
/// Deepest queue that a check fills.
const SHALLOW_QUEUE: usize = 1 << 16;

impl Need {
    /// Why a device does not have it.
    fn missing(self, caps: &DeviceCaps) -> Option<String> {
        let (there, reason) = match self {
            Self::TwoQueues => (caps.queues > 1, "it has one command queue".to_owned()),
            Self::Capture => (
                caps.capture != CaptureKind::Prebuilt,
                "its traces are made ahead of time".to_owned(),
            ),
            Self::SmallTraceRegion => (
                caps.trace_region_bytes <= SMALL_TRACE_REGION,
                format!(
                    "its trace region of {} MiB is too large to fill",
                    caps.trace_region_bytes >> 20
                ),
            ),
            Self::ShallowQueues => (
                caps.queue_depth <= SHALLOW_QUEUE,
                format!("its queues of {} commands are too deep to fill", caps.queue_depth),
            ),
        };
        (!there).then_some(reason)
    }
}

macro_rules! checks {
    ($($rule:literal: $($module:ident :: $name:ident $([$($need:ident),+])?,)+)+) => {
        &[$($(Check {
            name: stringify!($name),
            rule: $rule,
            needs: &[$($(Need::$need),+)?],
            run: $module::$name,
        },)+)+]
    };
}

/// All checks.
pub const CHECKS: &[Check] = checks! {
    "capabilities":
    memory::capabilities_hold_together,
    memory::every_type_of_the_list_can_be_stored,
    memory::a_layout_is_stored_or_refused_by_name,
    "queues run in order":
    queues::commands_of_one_queue_run_in_order,
    queues::draining_waits_for_every_queue,
    queues::a_full_queue_loses_nothing [ShallowQueues],
    queues::a_queue_that_does_not_exist_is_refused,
    "events order queues":
    queues::an_event_makes_one_queue_wait_for_another [TwoQueues],
    queues::an_event_completes_when_its_queue_gets_there,
    queues::an_event_that_was_never_recorded_is_refused,
    queues::an_event_stays_known_after_it_completed,
    queues::the_completion_hook_hears_of_events,
    "every wait has a deadline":
    queues::a_deadline_that_passes_is_a_timeout,
    "slots on loan":
    slots::the_host_cannot_change_what_is_being_uploaded,
    slots::the_host_cannot_see_half_a_download,
    slots::a_slot_that_is_being_filled_takes_no_second_transfer,
    slots::a_slot_may_go_away_before_its_transfer_is_done,
    slots::a_slot_beyond_all_memory_is_refused,
    "captures are strict":
    capture::a_capture_refuses_what_a_trace_cannot_hold_on_every_queue [Capture],
    capture::a_capture_allows_what_touches_no_queue [Capture],
    capture::captured_launches_do_not_run_before_the_replay [Capture],
    capture::a_trace_replays_on_every_queue [Capture],
    "captures end":
    capture::an_aborted_capture_leaves_nothing [Capture],
    capture::ending_what_never_began_is_refused [Capture],
    capture::a_trace_beyond_its_region_is_given_up [Capture, SmallTraceRegion],
    "programs are compiled once":
    programs::one_description_is_one_program,
    programs::a_forbidden_compilation_names_the_operation,
    programs::a_capture_of_warm_work_compiles_nothing [Capture],
    programs::a_description_that_makes_no_sense_compiles_nothing,
    "replays do what was captured":
    replay::operations_compute_their_formulas_on_whole_numbers,
    replay::a_replay_equals_the_eager_run_bit_for_bit [Capture],
    replay::two_traces_play_ping_pong [Capture],
    replay::a_replay_allocates_nothing [Capture],
    "replays are safe":
    replay::a_replay_is_refused_while_a_later_buffer_is_alive [Capture],
    replay::an_acknowledged_buffer_does_not_stop_a_replay [Capture],
    replay::a_replay_is_refused_after_a_later_program [Capture],
    "memory":
    memory::addresses_stay_where_they_are [Capture],
    memory::live_buffers_are_aligned_and_never_overlap,
    memory::what_a_capture_frees_is_used_again [Capture],
    memory::zero_sized_tensors_work,
    memory::what_was_enqueued_before_a_free_still_happens,
    "refusals change nothing":
    memory::out_of_memory_changes_nothing,
    refusals::bytes_outside_a_buffer_or_slot_are_refused,
    refusals::copies_need_buffers_of_one_size,
    refusals::bindings_that_do_not_fit_are_refused,
    refusals::weights_of_another_size_are_refused,
    refusals::a_freed_buffer_is_unknown,
    refusals::a_released_trace_is_unknown [Capture],
    "closing":
    closing::closing_twice_is_closing_once,
    closing::a_closed_device_answers_closed_to_everything,
    closing::closing_ends_pending_work_and_gives_slots_back,
    closing::closing_gives_up_a_capture [Capture],
    closing::a_device_may_be_dropped_without_closing,
    "reported bugs":
    reports::report_01_an_allocation_after_the_capture_keeps_its_contents [Capture],
    reports::report_02_a_program_compiled_after_the_capture_is_named [Capture],
    reports::report_03_the_storage_of_one_trace_survives_another [Capture],
    reports::report_04_synchronising_in_a_capture_is_refused_and_costs_nothing [Capture],
    reports::report_05_a_capture_that_failed_can_be_given_up_and_begun_again [Capture],
    reports::report_06_a_refused_replay_is_told_and_leaves_the_outputs [Capture],
    reports::report_09_a_host_buffer_that_is_used_again_reaches_no_older_upload [Capture],
    reports::report_10_an_allocation_in_the_window_spoils_no_later_launch [Capture],
    reports::report_11_eager_work_between_replays_disturbs_neither [Capture],
    reports::report_12_uploads_of_another_queue_reach_a_replay_through_events [Capture, TwoQueues],
    reports::report_13_a_region_that_is_too_small_says_how_much_is_missing [Capture, SmallTraceRegion],
};

impl Check {
    /// Runs the check on a backend with these capabilities. A panic of the device is a failure like any other.
    pub fn run(&'static self, caps: &DeviceCaps, open: &mut Open<'_>) -> Report {
        let start = Instant::now();
        let outcome = match self.missing(caps) {
            Some(reason) => Outcome::Skipped(reason),
            None => match catch_unwind(AssertUnwindSafe(|| (self.run)(open))) {
                Ok(Ok(())) => Outcome::Passed,
                Ok(Err(Stop(failure))) => Outcome::Failed(failure),
                Err(panic) => Outcome::Failed(Failure::of_panic(&*panic)),
            },
        };
        Report {
            check: self,
            outcome,
            took: start.elapsed(),
        }
    }

    /// What the check cannot do without and a device with these capabilities does not have.
    fn missing(&self, caps: &DeviceCaps) -> Option<String> {
        if !caps.dtypes.contains(&DType::F32) {
            return Some("its buffers hold no float32".into());
        }
        self.needs.iter().find_map(|need| need.missing(caps))
    }
}

/// Runs every check, in order.
///
/// # Errors
/// The device cannot be opened at all.
pub fn run_all(open: &mut Open<'_>) -> Result<Vec<Report>, DeviceError> {
    let caps = open()?.caps().clone();
    Ok(CHECKS.iter().map(|check| check.run(&caps, open)).collect())
}
