//! Where the sensors are in the world: what the transforms of the sources say.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::io::cdr::CdrError;
pub(crate) use crate::io::drive_bag::{TF_STATIC_TOPIC, TF_TOPIC};
use crate::io::messages::{HeaderMsg, QuaternionMsg, TfMsg, TransformMsg, TransformStampedMsg, Vector3Msg};
use crate::io::tf::{TfBuffer, TfError, Transform};
use crate::pipeline::Mount;

/// How long a trouble is told of after it was met.
const RECENT: Duration = Duration::from_secs(1);

/// The transforms that the sources have played so far. Lookups never wait for transforms that are being taken in: there are
/// two buffers, and while one is written to, the other one is read.
#[derive(Debug)]
pub(crate) struct Poses {
    world: String,
    /// What lookups read. The lock is held for as long as it takes to share or to exchange it.
    shown: RwLock<Arc<TfBuffer>>,
    writer: Mutex<Writer>,
    /// Messages taken so far.
    taken: Mutex<u64>,
    more: Condvar,
    troubles: Mutex<Troubles>,
}

/// The buffer that is not read.
#[derive(Debug, Default)]
struct Writer {
    spare: Arc<TfBuffer>,
    /// The message that the other buffer has and this one has not.
    behind: Option<(Vec<u8>, bool)>,
}

/// Lookups that failed.
#[derive(Debug, Default)]
struct Troubles {
    /// The last one.
    last: Option<(Instant, String)>,
    /// Kinds that were logged, `None` for jumps back: a cause is told once, not once a sweep.
    logged: HashSet<Option<Discriminant<TfError>>>,
}

impl Poses {
    /// No transform yet; `world` is the frame in which vehicles move.
    pub(crate) fn new(world: &str) -> Self {
        Self {
            world: world.to_owned(),
            shown: RwLock::default(),
            writer: Mutex::default(),
            taken: Mutex::default(),
            more: Condvar::new(),
            troubles: Mutex::default(),
        }
    }

    /// Takes where the sensors of a vehicle sit. What the sources play later goes before it.
    pub(crate) fn mount(&self, mounts: &[Mount]) {
        let placed = mounts.iter().map(|mount| {
            let ([x, y, z], [qx, qy, qz, qw]) = (mount.translation_m, mount.rotation);
            TransformStampedMsg {
                header: HeaderMsg {
                    stamp_sec: 0,
                    stamp_nanosec: 0,
                    frame_id: &mount.parent,
                },
                child_frame_id: &mount.child,
                transform: TransformMsg {
                    translation: Vector3Msg { x, y, z },
                    rotation: QuaternionMsg {
                        x: qx,
                        y: qy,
                        z: qz,
                        w: qw,
                    },
                },
            }
        });
        let message = TfMsg {
            transforms: placed.collect(),
        };
        if let Err(error) = message.encode().and_then(|message| self.take(&message, true)) {
            tracing::warn!(%error, "where the sensors sit cannot be taken");
        }
    }

    /// Takes the transforms of a message. What cannot be believed is left out and counted by the buffer.
    ///
    /// # Errors
    /// The message cannot be read.
    pub(crate) fn take(&self, message: &[u8], fixed: bool) -> Result<(), CdrError> {
        let transforms = TfMsg::decode(message)?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Writer { spare, behind } = &mut *writer;
        let behind = behind.replace((message.to_vec(), fixed));
        let buffer = match Arc::get_mut(spare) {
            Some(buffer) => {
                if let Some((message, fixed)) = behind {
                    buffer.insert(&TfMsg::decode(&message)?, fixed);
                }
                buffer
            }
            // A lookup that takes its time still has it.
            None => {
                *spare = Arc::new(TfBuffer::clone(&self.shown()));
                Arc::make_mut(spare)
            }
        };
        let update = buffer.insert(&transforms, fixed);
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *shown, spare);
        drop(shown);
        drop(writer);
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.more.notify_all();
        if update.jumps_back > 0 {
            self.note(
                "transforms jumped back in time; those before are forgotten".to_owned(),
                None,
            );
        }
        Ok(())
    }

    /// All that is known now.
    pub(crate) fn shown(&self) -> Arc<TfBuffer> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The frame in which vehicles move.
    pub(crate) fn world(&self) -> &str {
        &self.world
    }

    /// Where a frame was in the world, for whoever only wants to look: what is not known is no trouble.
    pub(crate) fn placed(&self, frame_id: &str, stamp_ns: i64) -> Option<Transform> {
        self.shown().lookup(&self.world, frame_id, stamp_ns).ok()
    }

    /// The rigid transform from a sensor's frame to the world's, row by row; `None` where it is not known, and did not
    /// become so within `wait`.
    pub(crate) fn world_from(&self, frame_id: &str, stamp_ns: i64, wait: Duration) -> Option<[f64; 16]> {
        let found = self.lookup_within(&self.world, frame_id, stamp_ns, wait);
        found.ok().map(|pose| pose.matrix())
    }

    /// The transform that takes points of `source` to `target` at a time. One that may still come is waited for, at most
    /// for `wait`.
    ///
    /// # Errors
    /// Any [`TfError`].
    pub(crate) fn lookup_within(
        &self,
        target: &str,
        source: &str,
        stamp_ns: i64,
        wait: Duration,
    ) -> Result<Transform, TfError> {
        let until = Instant::now() + wait;
        loop {
            let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let found = self.shown().lookup(target, source, stamp_ns);
            let Err(error) = found else { return found };
            let left = until.saturating_duration_since(Instant::now());
            // What is older than all that is known will never be known.
            let hopeless = matches!(error, TfError::ExtrapolationPast { .. });
            if hopeless || left.is_zero() {
                let text = format!("where {source} was is not known: {error}");
                self.note(text, Some(discriminant(&error)));
                return Err(error);
            }
            let counter = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let unchanged = |counter: &mut u64| *counter == taken;
            drop(self.more.wait_timeout_while(counter, left, unchanged));
        }
    }

    /// Keeps a trouble for whoever asks, and logs the first of its kind.
    fn note(&self, text: String, kind: Option<Discriminant<TfError>>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.logged.insert(kind) {
            tracing::warn!("{text}");
        }
        troubles.last = Some((Instant::now(), text));
    }

    /// What kept the last lookup from being answered, if that was just now.
    pub(crate) fn recent_trouble(&self) -> Option<String> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, text) = troubles.last.as_ref()?;
        (at.elapsed() < RECENT).then(|| text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transform(stamp_ns: i64) -> Vec<u8> {
        let transform = TransformStampedMsg {
            header: HeaderMsg::new(stamp_ns, "map").unwrap_or_default(),
            child_frame_id: "lidar",
            transform: TransformMsg::default(),
        };
        let message = TfMsg {
            transforms: vec![transform],
        };
        message.encode().unwrap_or_default()
    }

    #[test]
    fn a_vehicle_places_its_sensors_before_the_first_message() -> Result<(), CdrError> {
        let poses = Poses::new("map");
        let mount = |parent: &str, child: &str, x_m| Mount {
            parent: parent.into(),
            child: child.into(),
            translation_m: [x_m, 0.0, 2.0],
            // Turned to the left.
            rotation: [0.0, 0.0, 0.5_f64.sqrt(), 0.5_f64.sqrt()],
        };
        poses.mount(&[mount("lidar", "kit", 1.0), mount("kit", "roof", 0.5)]);
        poses.take(&transform(5), false)?;
        let found = poses.world_from("roof", 5, Duration::ZERO).unwrap_or_default();
        let expected = [
            -1.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0, 0.0, 1.0,
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        Ok(())
    }

    /// A LiDAR whose clock is 20 years behind the vehicle's: one trouble that names both times, and nothing waits.
    #[test]
    fn a_sensor_of_another_decade_is_told_of_with_both_times() -> Result<(), CdrError> {
        let poses = Poses::new("map");
        let (sensor_ns, vehicle_ns) = (946_655_660_000_000_000, 1_568_785_504_000_000_000);
        poses.take(&transform(vehicle_ns), false)?;
        poses.take(&transform(vehicle_ns + 100_000_000), false)?;
        assert!(poses.recent_trouble().is_none());
        for i in 0..10 {
            assert_eq!(poses.world_from("lidar", sensor_ns + i, Duration::ZERO), None);
        }
        let trouble = poses.recent_trouble().unwrap_or_default();
        assert!(
            trouble.contains("946655660") && trouble.contains("1568785504"),
            "{trouble}"
        );
        let logged = poses.troubles.lock().map_or(0, |troubles| troubles.logged.len());
        assert_eq!(logged, 1, "one line for ten sweeps");
        assert!(poses.world_from("lidar", vehicle_ns, Duration::ZERO).is_some());
        Ok(())
    }

    /// Every transform is in both buffers, also where a lookup holds one of them for long.
    #[test]
    fn lookups_see_every_transform_whichever_buffer_they_read() -> Result<(), CdrError> {
        let poses = Poses::new("map");
        let start_ns = 1_568_785_504_000_000_000;
        let stamp_ns = |i: i64| start_ns + i * 10_000_000;
        let mut held = Vec::new();
        for i in 0..200 {
            poses.take(&transform(stamp_ns(i)), false)?;
            if i % 7 == 0 {
                held.push(poses.shown());
            }
            if i % 31 == 0 {
                held.clear();
            }
            for known in 0..=i {
                let found = poses.world_from("lidar", stamp_ns(known), Duration::ZERO);
                assert!(found.is_some(), "{known} of {i}");
            }
        }
        // As where a bag is played again: what was known of the time after is forgotten, in both buffers.
        for i in 0..3 {
            poses.take(&transform(stamp_ns(i)), false)?;
            assert_eq!(poses.world_from("lidar", stamp_ns(150), Duration::ZERO), None);
            assert!(poses.world_from("lidar", stamp_ns(i), Duration::ZERO).is_some());
        }
        Ok(())
    }

    #[test]
    fn a_transform_that_comes_late_is_waited_for_and_one_that_cannot_come_is_not() -> Result<(), CdrError> {
        let poses = Poses::new("map");
        let stamp_ns = 1_568_785_504_000_000_000;
        let hour = Duration::from_secs(3_600);
        poses.take(&transform(stamp_ns), false)?;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| poses.world_from("lidar", stamp_ns + 5_000_000, hour));
            let unknown =
                scope.spawn(|| poses.lookup_within("map", "radar", stamp_ns, Duration::from_millis(1)));
            let late = poses.take(&transform(stamp_ns + 10_000_000), false);
            assert!(waiting.join().is_ok_and(|found| found.is_some()) && late.is_ok());
            assert!(unknown.join().is_ok_and(|found| found.is_err()));
        });
        // Older than all that is known: an hour would not help.
        assert_eq!(poses.world_from("lidar", stamp_ns - 1, hour), None);
        Ok(())
    }
}
