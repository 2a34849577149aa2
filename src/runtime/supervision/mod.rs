//! Actors that fail are put in order and started again, with pauses and limits.
//!
//! kameo's own supervision starts an actor from its arguments, at once and without what it had: here the receiving end
//! of a channel must survive, the frame that was held must be settled, and a pause comes first. So each incarnation is
//! run by its supervisor, which gets the actor back when it stops.
//!
//! - `budget`: how often, and how long to pause
//! - `watch`: what an actor tells of itself, and injected faults
//! - `watchdog`: looks at all actors and streams from time to time

mod budget;
mod watch;
mod watchdog;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use kameo::actor::{PreparedActor, Spawn};
use kameo::error::{ActorStopReason, PanicError};
use tokio::sync::oneshot;

pub(crate) use budget::{Backoff, Budget};
pub(crate) use watch::ActorWatch;
pub(crate) use watchdog::{SourcesOver, watch_over};

use super::ending::Ending;
use super::error::RuntimeError;
use super::health::{Reason, ReasonKind};
use super::run::Shared;

/// An actor that may be started again with what it had.
pub(crate) trait Supervised: kameo::Actor<Args = Self> + Sized {
    /// Settles the frame that the actor held when it failed, and makes it fit to be started again.
    fn mend(&mut self) -> impl Future<Output = ()> + Send;

    /// Settles everything that still comes until nobody sends any more: the actor is not started again.
    fn give_up(self) -> impl Future<Output = ()> + Send;

    /// Whether starting it again cannot help.
    fn is_hopeless(&self) -> bool {
        false
    }
}

/// Where an actor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunsIn {
    /// A task of the asynchronous runtime.
    Task,
    /// A thread of its own: it may wait for files or the network.
    Thread,
}

/// What happens when an actor is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenGivenUp {
    /// The run ends.
    End,
    /// The run goes on without it.
    GoOn,
}

/// Starts an actor and starts it again when it fails. What is returned completes when it has stopped for good.
pub(crate) fn supervise<A: Supervised>(
    watch: &ActorWatch,
    actor: A,
    runs_in: RunsIn,
    when_given_up: WhenGivenUp,
    shared: &Shared,
) -> Ending {
    let name = watch.pulse().actor().to_string();
    let supervisor = Supervisor {
        watch: watch.clone(),
        budget: Budget::new(&shared.supervision),
        within_s: shared.supervision.within_s,
        when_given_up,
        shared: shared.clone(),
    };
    let (tell, told) = oneshot::channel();
    let running = async move {
        let trouble = supervisor.run(actor).await;
        // Nobody listens only if the run was given up meanwhile.
        let _ = tell.send(trouble);
    };
    let refused = match runs_in {
        RunsIn::Task => {
            tokio::spawn(running);
            None
        }
        RunsIn::Thread => {
            let runtime = tokio::runtime::Handle::current();
            let thread = std::thread::Builder::new().name(name.clone());
            thread.spawn(move || runtime.block_on(running)).err()
        }
    };
    Box::pin(async move {
        let died = |reason: String| RuntimeError::ActorDied {
            actor: name.clone(),
            reason,
        };
        let trouble = match (refused, told.await) {
            (Some(error), _) => Some(died(format!("no thread for it: {error}"))),
            (None, Ok(trouble)) => trouble,
            (None, Err(_)) => Some(died("it panicked where it was put in order".into())),
        };
        (name, trouble)
    })
}

struct Supervisor {
    watch: ActorWatch,
    budget: Budget,
    within_s: u32,
    when_given_up: WhenGivenUp,
    shared: Shared,
}

impl Supervisor {
    /// Runs an actor until it stops for good; the error that ends the run, if it is one.
    async fn run<A: Supervised>(mut self, mut actor: A) -> Option<RuntimeError> {
        let pulse = Arc::clone(self.watch.pulse());
        let name = pulse.actor().to_string();
        let mut done_before = 0;
        loop {
            let incarnation: PreparedActor<A> = A::prepare();
            let cause;
            (actor, cause) = match incarnation.run(actor).await {
                Ok((_, ActorStopReason::Normal | ActorStopReason::SupervisorRestart)) => {
                    self.watch.clear(ReasonKind::Restarting);
                    return None;
                }
                Ok((actor, ActorStopReason::Panicked(error))) => (actor, words(&error)),
                Ok((actor, reason)) => (actor, format!("{reason:?}")),
                Err(error) => {
                    let reason = words(&error);
                    return Some(RuntimeError::ActorDied { actor: name, reason });
                }
            };
            actor.mend().await;
            let done = pulse.done();
            let worked = done > std::mem::replace(&mut done_before, done);
            let pause = self.budget.failed(Instant::now(), worked);
            let pause = pause.filter(|_| !actor.is_hopeless());
            let Some(pause) = pause.filter(|_| !self.shared.shutdown.is_aborting()) else {
                return self.give_up(actor, name, cause).await;
            };
            tracing::warn!(
                actor = name,
                cause,
                pause_ms = pause.as_millis() as u64,
                "an actor failed; it is started again"
            );
            self.watch.raise(Reason::Restarting {
                actor: name.clone(),
                cause,
            });
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shared.shutdown.draining() => {}
            }
            pulse.restarted();
            self.shared.live.restarted(&name);
            self.watch.clear(ReasonKind::Restarting);
        }
    }

    async fn give_up<A: Supervised>(self, actor: A, name: String, cause: String) -> Option<RuntimeError> {
        let error = RuntimeError::GivenUp {
            actor: name.clone(),
            failures: self.budget.failures(),
            within_s: self.within_s,
            cause: cause.clone(),
        };
        self.watch.clear(ReasonKind::Restarting);
        self.watch.raise(Reason::GivenUp { actor: name, cause });
        tracing::error!(%error, "an actor is given up");
        match self.when_given_up {
            // Told before its channel is emptied, for that takes until everyone before it has stopped.
            WhenGivenUp::End => self.shared.shutdown.fail(error),
            WhenGivenUp::GoOn => self.shared.shutdown.note(error),
        }
        actor.give_up().await;
        None
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

/// What a panic or an error says.
fn words(error: &PanicError) -> String {
    error.with_str(str::to_owned).unwrap_or_else(|| error.to_string())
}
