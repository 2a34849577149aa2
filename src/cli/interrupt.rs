//! Ctrl-C, and service managers that ask the program to end.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::runtime::Shutdown;

/// How long frames under way get to come out after Ctrl-C.
const DRAIN: Duration = Duration::from_millis(600);

/// The interrupts of the process; from when this is made none ends it at once, and none is missed.
#[derive(Debug)]
pub(super) struct Interrupts {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
}

impl Interrupts {
    /// Catches interrupts from now on; needs a tokio runtime.
    ///
    /// # Errors
    /// The system does not let them be caught.
    pub(super) fn catch() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }
        #[cfg(windows)]
        Ok(Self {
            interrupt: tokio::signal::windows::ctrl_c()?,
        })
    }

    /// Completes at the next interrupt, or at once if one came since the last.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(windows)]
        let _ = self.interrupt.recv().await;
    }
}

/// From now on the first interrupt drains a run, which is aborted a little later, and the second ends the process.
/// Needs a tokio runtime.
pub(super) fn end_on_interrupt(shutdown: Shutdown) -> JoinHandle<()> {
    let interrupts = Interrupts::catch();
    tokio::spawn(async move {
        let mut interrupts = match interrupts {
            Ok(interrupts) => interrupts,
            Err(error) => {
                tracing::warn!(%error, "Ctrl-C cannot be caught; the run ends with its source");
                return;
            }
        };
        interrupts.next().await;
        shutdown.drain();
        tokio::select! {
            () = tokio::time::sleep(DRAIN) => shutdown.abort(),
            () = interrupts.next() => std::process::exit(130),
        }
        interrupts.next().await;
        std::process::exit(130);
    })
}
