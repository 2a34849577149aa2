//! Actors panic and stand still.

use crate::fault_campaign::watch::{longest_pause_ms, row, watched};
use crate::fault_campaign::{FRAMES, PERIOD_NS, TOPIC, campaign};
use crate::tiny::{Lab, film};

/// What panics, and how: the actor itself, or whoever works for it.
const PANICS: [(&str, &str); 6] = [
    ("camera", "panic"),
    ("detector/prepare", "panic"),
    ("detector/finish", "panic"),
    ("recorder", "panic"),
    ("camera", "worker_panic"),
    ("detector/prepare", "worker_panic"),
];

#[test]
fn an_actor_that_panics_costs_the_frame_that_it_held() {
    for (actor, kind) in PANICS {
        campaign(|random| {
            let lab = Lab::new();
            lab.bag(&film(TOPIC, FRAMES, PERIOD_NS));
            let nth = 20 + random.below(FRAMES - 60);
            let fault = format!(
                "supervision={{ backoff_ms: 50, fault: [ {{ actor: {actor}, kind: {kind}, nth: {nth} }} ] }}"
            );
            let (run, came) = watched(&lab, &["--record", "tape.mcap", "--set", &fault]);
            assert_eq!(run.code, Some(0), "{actor} ({kind}): {run:?}");
            let [came_in, out, dropped, _] = run.frames();
            assert_eq!(came_in, FRAMES as u64, "{actor} ({kind}): {run:?}");
            assert!(
                dropped <= 1,
                "{actor} ({kind}), what it held, and no more: {run:?}"
            );
            assert_eq!(
                lab.lines("out.jsonl").len() as u64,
                out,
                "{actor} ({kind}): {run:?}"
            );
            let place = format!("{actor} ({kind}) at frame {nth}");
            row("actor panics", place, &run, Some(longest_pause_ms(&came)))
        });
    }
}

#[test]
fn a_worker_that_stands_still_costs_the_frame_that_it_held() {
    campaign(|random| {
        let lab = Lab::new();
        lab.bag(&film(TOPIC, FRAMES, PERIOD_NS));
        let actor = ["detector/prepare", "detector/finish"][random.below(2)];
        let nth = 20 + random.below(FRAMES - 60);
        let fault = format!(
            "supervision={{ watchdog_ms: 200, fault: [ {{ actor: {actor}, kind: stall, nth: {nth}, for_ms: 1500 }} ] }}"
        );
        let (run, came) = watched(&lab, &["--set", &fault]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let [came_in, out, dropped, _] = run.frames();
        assert_eq!((came_in, dropped), (FRAMES as u64, 1), "{run:?}");
        assert_eq!(lab.lines("out.jsonl").len() as u64, out, "{run:?}");
        let place = format!("{actor} at frame {nth}, for 1500 ms");
        row("worker stands still", place, &run, Some(longest_pause_ms(&came)))
    });
}
