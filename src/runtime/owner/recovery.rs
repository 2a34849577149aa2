//! A lost device: what is on it is dropped, it is closed, and after a pause it is opened again, with every trace
//! built, warmed up and captured anew. Frames that wait on the host wait on.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{DeviceOwner, OpenDevice, OpenFailure, State};
use crate::device::{Device, OpenedDevice};
use crate::perception::ModelTrace;
use crate::pipeline::RestartSettings;
use crate::runtime::RuntimeError;
use crate::runtime::health::{Reason, ReasonKind};
use crate::runtime::shutdown::Shutdown;
use crate::telemetry::{DropReason, Ledger};

/// Longest time that a device may take to close. One that is stuck cannot be opened again beside itself.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Longest pause before an attempt to open the device.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// A time without a device.
#[derive(Debug)]
pub(super) struct Outage {
    since: Instant,
    /// When the next attempt is due.
    pub(super) reopen_at: Instant,
}

/// What has been used up of the restarts that a run may have.
#[derive(Debug)]
pub(super) struct Recovery {
    settings: RestartSettings,
    /// Losses within the window, oldest first, and their causes.
    losses: VecDeque<(Instant, String)>,
    /// Failed attempts to open the device since the last loss.
    failed: u32,
    /// Attempts since a frame last came back: the pauses double with them.
    in_a_row: u32,
}

impl Recovery {
    pub(super) const fn new(settings: RestartSettings) -> Self {
        Self {
            settings,
            losses: VecDeque::new(),
            failed: 0,
            in_a_row: 0,
        }
    }

    /// The device has proved to work.
    pub(super) const fn frame_came_back(&mut self) {
        self.in_a_row = 0;
    }

    /// After a loss: how long to pause before the device is opened again, or why it is not.
    fn lost(&mut self, now: Instant, cause: String) -> Result<Duration, RuntimeError> {
        let window = Duration::from_secs(self.settings.within_s.into());
        self.losses.retain(|(at, _)| now.duration_since(*at) < window);
        self.losses.push_back((now, cause));
        self.failed = 0;
        if self.losses.len() > self.settings.limit as usize {
            return Err(RuntimeError::DeviceLost {
                causes: self.losses.drain(..).map(|(_, cause)| cause).collect(),
                within_s: self.settings.within_s,
            });
        }
        Ok(self.pause())
    }

    /// After an attempt to open the device that failed: as after a loss.
    fn failed(&mut self, reason: String) -> Result<Duration, RuntimeError> {
        self.failed += 1;
        if self.failed >= self.settings.limit {
            let cause = self.losses.back().map(|(_, cause)| cause.clone());
            return Err(RuntimeError::DeviceGone {
                cause: cause.unwrap_or_default(),
                attempts: self.failed,
                reason,
            });
        }
        Ok(self.pause())
    }

    fn pause(&mut self) -> Duration {
        let doubled = 1_u32.checked_shl(self.in_a_row).unwrap_or(u32::MAX);
        self.in_a_row += 1;
        Duration::from_millis(self.settings.backoff_ms.into())
            .saturating_mul(doubled)
            .min(LONGEST_BACKOFF)
    }

    /// Opens the device at the start of a run. One that is lost while its traces are built is opened again like
    /// one that is lost later; one that cannot be opened at all is an error at once.
    pub(super) async fn open_first(
        &mut self,
        open: &mut OpenDevice,
        ledger: &Ledger,
        shutdown: &Shutdown,
    ) -> Result<(OpenedDevice, Vec<ModelTrace>), RuntimeError> {
        let mut since = None;
        loop {
            let OpenFailure { reason, lost } = match open() {
                Ok(opened) => {
                    if let Some(since) = since {
                        came_back(&opened.0, since, ledger);
                    }
                    return Ok(opened);
                }
                Err(failure) => failure,
            };
            let pause = match since {
                None if !lost => return Err(RuntimeError::Device(reason)),
                None => {
                    let now = *since.insert(Instant::now());
                    tracing::warn!(cause = reason, "the device was lost before the first frame");
                    self.lost(now, reason.clone())?
                }
                Some(_) => {
                    tracing::warn!(reason, "the device cannot be opened again yet");
                    self.failed(reason.clone())?
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.draining() => {
                    let causes = vec![reason];
                    let within_s = self.settings.within_s;
                    return Err(RuntimeError::DeviceLost { causes, within_s });
                }
            }
        }
    }
}

/// Tells that there is a device again.
fn came_back(opened: &OpenedDevice, since: Instant, ledger: &Ledger) {
    ledger.device_restarted();
    tracing::info!(
        device = %opened.choice,
        after_ms = since.elapsed().as_millis() as u64,
        restarts = ledger.device_restarts(),
        "the device is back"
    );
}

impl DeviceOwner {
    /// Gives the device up. Every frame on it is dropped; their slots go back to the pools when the closed device
    /// has let go of them, not before.
    pub(super) fn lose(&mut self, cause: String) {
        let State::Up(bench) = std::mem::replace(&mut self.state, State::Gone) else {
            return;
        };
        let since = Instant::now();
        let flights = std::mem::take(&mut self.flights);
        tracing::warn!(cause, frames = flights.len(), "the device is lost");
        self.board.raise(Reason::DeviceDown { cause: cause.clone() });
        for flight in flights {
            self.abandon(flight, DropReason::DeviceError);
        }
        self.known.clear();
        drop(bench.traces);
        let decided = if close_in_time(bench.device) {
            self.recovery.lost(since, cause)
        } else {
            Err(RuntimeError::Device(format!(
                "lost ({cause}) and not closed within {CLOSE_DEADLINE:?}, so it cannot be opened again"
            )))
        };
        self.returning.retain(|slot| slot.is_busy());
        match decided {
            Ok(pause) => {
                self.state = State::Down(Outage {
                    since,
                    reopen_at: Instant::now() + pause,
                });
            }
            Err(error) => {
                self.stand_down();
                self.shutdown.fail(error);
            }
        }
    }

    /// Opens the device again.
    pub(super) fn reopen(&mut self) {
        let State::Down(outage) = &mut self.state else {
            return;
        };
        match (self.open)() {
            Ok((opened, traces)) => {
                came_back(&opened, outage.since, &self.ledger);
                self.put_up(opened, traces);
                self.board.clear(ReasonKind::DeviceDown, "device");
            }
            Err(OpenFailure { reason, .. }) => {
                tracing::warn!(reason, "the device cannot be opened again yet");
                match self.recovery.failed(reason) {
                    Ok(pause) => outage.reopen_at = Instant::now() + pause,
                    Err(error) => {
                        self.stand_down();
                        self.shutdown.fail(error);
                    }
                }
            }
        }
    }

    /// There will be no device any more: what waits for one is dropped, and so is what still comes.
    pub(super) fn stand_down(&mut self) {
        self.state = State::Gone;
        self.turn_all_away();
    }
}

/// Closes a device on a thread of its own; whether it did so in time. One that hangs must not hang its owner.
pub(super) fn close_in_time(mut device: Box<dyn Device>) -> bool {
    let (done, closed) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("sensorium-close".into())
        .spawn(move || {
            device.close();
            drop(device);
            // Nobody listens only if it took too long.
            let _ = done.send(());
        });
    thread.is_ok() && closed.recv_timeout(CLOSE_DEADLINE).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;
    use crate::device::{
        BackendKind, BufferClass, CpuConfig, CpuDevice, Cq, DeviceChoice, Fault, FaultAt, FaultDevice,
        FaultKind, FaultPlan, HostSlot, InjectedFaults,
    };
    use crate::pipeline::OnFull;
    use crate::runtime::channel;
    use crate::runtime::owner::schedule::{Order, Schedule};
    use crate::runtime::slots::SlotPool;
    use crate::telemetry::live::Live;
    use crate::telemetry::{MonotonicClock, Streams};
    use crate::tensor::{DType, TensorSpec};

    /// An owner of this device, without detectors.
    fn owner_of(device: impl Device + 'static) -> DeviceOwner {
        let mut owner = DeviceOwner {
            open: Box::new(|| panic!("nobody opens it again")),
            state: State::Gone,
            recovery: recovery(1),
            lanes: Vec::new(),
            input: channel::bounded(1, OnFull::Block).1,
            ready: Schedule::new(Order::Deadline, &[]),
            chosen: Vec::new(),
            flights: VecDeque::new(),
            spare: Vec::new(),
            frames_together: 0,
            returning: Vec::new(),
            known: HashSet::new(),
            last_replay_ns: 0,
            exhausted: false,
            woken: Arc::new(Notify::new()),
            frame_deadline: Duration::from_secs(30),
            ledger: Arc::new(Ledger::new(Streams::default())),
            live: Live::default(),
            clock: MonotonicClock::start(),
            shutdown: Shutdown::default(),
            board: Arc::default(),
        };
        let choice = DeviceChoice {
            requested: BackendKind::CPU,
            used: BackendKind::CPU,
            fallback: None,
        };
        let device = Box::new(device);
        owner.put_up(OpenedDevice { device, choice }, Vec::new());
        owner
    }

    #[test]
    fn a_slot_goes_back_to_its_pool_only_when_the_device_has_let_go_of_it() {
        // A queue that waits for a lost event keeps what it is lent.
        let faults = InjectedFaults::new(&FaultPlan {
            seed: 0,
            faults: vec![Fault::new(FaultAt::Nth(1), FaultKind::LoseEvent)],
        });
        let config = CpuConfig {
            threads: 1,
            arena_bytes: 1 << 16,
            ..CpuConfig::default()
        };
        let mut device = FaultDevice::new(Box::new(CpuDevice::open(&config).unwrap()), faults);
        let spec = TensorSpec::new(&[64], DType::U8).unwrap();
        let buffer = device.alloc(&spec, BufferClass::Input).unwrap();
        let lost = device.record_event(Cq::IO).unwrap();
        device.wait_event(Cq::IO, lost).unwrap();
        let pool = SlotPool::new(vec![HostSlot::new(64)]);
        let slot = pool.try_take().unwrap();
        device.write(Cq::IO, buffer, 0, &slot, 64).unwrap();

        let mut owner = owner_of(device);
        owner.returning.push(slot);
        owner.advance();
        assert!(pool.try_take().is_none(), "the device may still read it");
        owner.lose("a frame did not come back".into());
        assert!(matches!(owner.state, State::Down(_)));
        assert!(!pool.try_take().unwrap().is_busy());
    }

    fn recovery(limit: u32) -> Recovery {
        Recovery::new(RestartSettings {
            limit,
            within_s: 60,
            backoff_ms: 200,
        })
    }

    fn ms(pause: Result<Duration, RuntimeError>) -> u128 {
        pause.unwrap().as_millis()
    }

    #[test]
    fn losses_are_forgotten_after_the_window_and_pauses_double_until_a_frame_comes_back() {
        let mut recovery = recovery(2);
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(ms(recovery.lost(start, "first".into())), 200);
        assert_eq!(ms(recovery.lost(after(30), "second".into())), 400);
        recovery.frame_came_back();
        // A minute after the first one.
        assert_eq!(ms(recovery.lost(after(60), "third".into())), 200);
        let error = recovery.lost(after(89), "fourth".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "device: lost 3 times within 60 s: at first second; at last fourth"
        );
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_given_up_after_as_many_attempts() {
        let mut recovery = recovery(3);
        let now = Instant::now();
        let cause = "a kernel panicked";
        assert_eq!(ms(recovery.lost(now, cause.into())), 200);
        assert_eq!(ms(recovery.failed("busy".into())), 400);
        assert_eq!(ms(recovery.failed("busy".into())), 800);
        let error = recovery.failed("no such device".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "device: lost (a kernel panicked) and not opened again in 3 attempt(s): no such device"
        );
    }

    #[test]
    fn without_restarts_the_first_loss_is_the_end() {
        let error = recovery(0).lost(Instant::now(), "it is cold".into()).unwrap_err();
        assert_eq!(error.to_string(), "device: lost: it is cold");
    }

    #[test]
    fn no_pause_is_longer_than_half_a_minute() {
        let mut recovery = recovery(1_000);
        let now = Instant::now();
        let pauses: Vec<_> = (0..100).map(|_| ms(recovery.lost(now, String::new()))).collect();
        assert_eq!(pauses[7], 25_600);
        assert!(pauses[8..].iter().all(|&pause| pause == 30_000));
    }
}
