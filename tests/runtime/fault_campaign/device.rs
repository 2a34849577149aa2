//! The device is lost.

use crate::fault_campaign::watch::{longest_pause_ms, row, watched};
use crate::fault_campaign::{FRAMES, PERIOD_NS, TOPIC, campaign};
use crate::tiny::{Lab, film};

#[test]
fn a_device_that_is_lost_comes_back_and_costs_what_was_on_it() {
    campaign(|random| {
        let lab = Lab::new();
        lab.bag(&film(TOPIC, FRAMES, PERIOD_NS));
        let nth = 20 + random.below(FRAMES - 60);
        let fault = format!(
            "device.fault={{ faults: [ {{ kind: lose_device, call: replay, at: {{ nth: {nth} }} }} ] }}"
        );
        let (run, came) = watched(
            &lab,
            &["--set", &fault, "--set", "device.restart={ backoff_ms: 50 }"],
        );
        assert_eq!(run.code, Some(0), "{run:?}");
        let [_, out, dropped, _] = run.frames();
        assert!(
            (1..=2).contains(&dropped),
            "what was on the device, and no more: {run:?}"
        );
        assert_eq!(lab.lines("out.jsonl").len() as u64, out);
        assert_eq!(run.summary()["device_restarts"], 1);
        row(
            "device lost",
            format!("replay {nth}"),
            &run,
            Some(longest_pause_ms(&came)),
        )
    });
}
