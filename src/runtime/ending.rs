//! Waiting for the actors of a run to end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kameo::actor::ActorRef;
use kameo::error::ActorStopReason;
use tokio::sync::mpsc;

use super::RuntimeError;
use super::shutdown::Shutdown;

/// How long actors may take to stop once a run is aborted. Only one that is stuck takes longer: in a file that
/// takes no more, or in a device that hangs.
const STOP_DEADLINE: Duration = Duration::from_secs(1);

/// Actors that are started while others run, at a time.
const LATE_STARTS: usize = 16;

/// Waits for one actor; the error says why it stopped if it should not have.
pub(super) type Ending = Pin<Box<dyn Future<Output = (String, Option<RuntimeError>)> + Send>>;

/// Where actors are handed over that are started while the run lasts.
#[derive(Debug, Clone)]
pub(super) struct Crew(mpsc::Sender<LateStart>);

/// An actor that joins.
pub(super) struct LateStart(Ending);

impl Crew {
    /// A crew, and where the run takes up who joins it.
    pub(super) fn new() -> (Self, mpsc::Receiver<LateStart>) {
        let (join, joining) = mpsc::channel(LATE_STARTS);
        (Self(join), joining)
    }

    /// Has the run wait for one more actor. `false` if it is over.
    pub(super) async fn join(&self, ending: Ending) -> bool {
        self.0.send(LateStart(ending)).await.is_ok()
    }
}

impl fmt::Debug for LateStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateStart")
    }
}

/// Waits for every actor, those that join later too. One that dies ends the run; after an abort, waiting is limited.
pub(super) async fn await_end(
    endings: &mut FuturesUnordered<Ending>,
    mut joining: mpsc::Receiver<LateStart>,
    shutdown: &Shutdown,
) {
    let mut aborted_at: Option<Instant> = None;
    while !endings.is_empty() {
        tokio::select! {
            Some((_, trouble)) = endings.next() => {
                if let Some(error) = trouble {
                    shutdown.fail(error);
                }
            }
            Some(LateStart(ending)) = joining.recv() => endings.push(ending),
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
        let actor = name.clone();
        (
            name,
            trouble.map(|reason| RuntimeError::ActorDied { actor, reason }),
        )
    })
}
