//! Waiting for the actors of a run to end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kameo::actor::ActorRef;
use kameo::error::ActorStopReason;

use super::RuntimeError;
use super::shutdown::Shutdown;

/// How long actors may take to stop once a run is aborted. Only one that is stuck takes longer: in a file that
/// takes no more, or in a device that hangs.
const STOP_DEADLINE: Duration = Duration::from_secs(1);

/// Waits for one actor; the text says why it stopped if it should not have.
pub(super) type Ending = Pin<Box<dyn Future<Output = (String, Option<String>)> + Send>>;

/// Waits for every actor. One that dies ends the run; after an abort, waiting is limited.
pub(super) async fn await_end(endings: &mut FuturesUnordered<Ending>, shutdown: &Shutdown) {
    let mut aborted_at: Option<Instant> = None;
    while !endings.is_empty() {
        tokio::select! {
            Some((actor, trouble)) = endings.next() => {
                if let Some(reason) = trouble {
                    shutdown.fail(RuntimeError::ActorDied { actor, reason });
                }
            }
            () = tokio::time::sleep(Duration::from_millis(20)), if shutdown.is_draining() => {
                if shutdown.is_aborting() {
                    let since = *aborted_at.get_or_insert_with(Instant::now);
                    if since.elapsed() > STOP_DEADLINE {
                        let reason = format!("{} actor(s) did not stop in time", endings.len());
                        shutdown.note(RuntimeError::ActorDied { actor: "pipeline".into(), reason });
                        return;
                    }
                }
            }
            () = shutdown.draining(), if !shutdown.is_draining() => {}
        }
    }
}

/// The ending of an actor that has just been started.
pub(super) fn ending<A: kameo::Actor<Error: fmt::Debug>>(name: String, actor: ActorRef<A>) -> Ending {
    Box::pin(async move {
        let trouble = actor
            .wait_for_shutdown_with_result(|outcome| match outcome {
                Ok(ActorStopReason::Normal | ActorStopReason::SupervisorRestart) => None,
                Ok(reason) => Some(format!("{reason:?}")),
                Err(error) => Some(format!("{error:?}")),
            })
            .await;
        (name, trouble)
    })
}
