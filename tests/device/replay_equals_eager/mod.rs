//! Random graphs under random schedules: every replay has the bits of an eager run of the same function, and both have
//! the values of plain loops over integers.
//!
//! - `case`: what is generated, and how it reads when it fails
//! - `plain`: the same graph, states, streams and parameters in plain Rust
//! - `traced`: the graph on a simulated device
//! - `schedule`: the three side by side

mod case;
mod plain;
mod schedule;
mod traced;

use crate::graphs;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sensorium::trace::TraceOptions;

use case::cases;

fn config(seed: u64) -> ProptestConfig {
    ProptestConfig {
        cases: 2_500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(1))]

    #[test]
    fn on_one_queue_every_replay_is_the_eager_run(case in cases()) {
        schedule::run(&case, &TraceOptions::default())?;
    }
}

proptest! {
    #![proptest_config(config(2))]

    #[test]
    fn on_one_queue_with_two_sets_of_outputs_every_replay_is_the_eager_run(case in cases()) {
        schedule::run(&case, &TraceOptions { output_phases: 2, ..TraceOptions::default() })?;
    }
}

proptest! {
    #![proptest_config(config(3))]

    #[test]
    fn on_two_queues_every_replay_is_the_eager_run(case in cases()) {
        schedule::run(&case, &TraceOptions { queues: 2, ..TraceOptions::default() })?;
    }
}

proptest! {
    #![proptest_config(config(4))]

    #[test]
    fn on_two_queues_with_staged_inputs_every_replay_is_the_eager_run(case in cases()) {
        schedule::run(&case, &TraceOptions::two_queues())?;
    }
}
