//! Where the sensors are in the world: what the transforms of the sources say.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::io::cdr::CdrError;
pub(crate) use crate::io::drive_bag::{TF_STATIC_TOPIC, TF_TOPIC};
use crate::io::messages::{HeaderMsg, QuaternionMsg, TfMsg, TransformMsg, TransformStampedMsg, Vector3Msg};
use crate::io::tf::{TfBuffer, TfError, Transform};
use crate::pipeline::Mount;

/// How long a trouble is told of after it was met.
const RECENT: Duration = Duration::from_secs(1);

/// The transforms that the sources have played so far.
#[derive(Debug)]
pub(crate) struct Poses {
    world: String,
    buffer: Mutex<TfBuffer>,
    troubles: Mutex<Troubles>,
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
            buffer: Mutex::new(TfBuffer::default()),
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
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.insert(&message, true);
    }

    /// Takes the transforms of a message. What cannot be believed is left out and counted by the buffer.
    ///
    /// # Errors
    /// The message cannot be read.
    pub(crate) fn take(&self, message: &[u8], fixed: bool) -> Result<(), CdrError> {
        let message = TfMsg::decode(message)?;
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let update = buffer.insert(&message, fixed);
        drop(buffer);
        if update.jumps_back > 0 {
            self.note(
                "transforms jumped back in time; those before are forgotten".to_owned(),
                None,
            );
        }
        Ok(())
    }

    /// The frame in which vehicles move.
    pub(crate) fn world(&self) -> &str {
        &self.world
    }

    /// Where a frame was in the world, for whoever only wants to look: what is not known is no trouble.
    pub(crate) fn placed(&self, frame_id: &str, stamp_ns: i64) -> Option<Transform> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.lookup(&self.world, frame_id, stamp_ns).ok()
    }

    /// The rigid transform from a sensor's frame to the world's, row by row; `None` where it is not known.
    pub(crate) fn world_from(&self, frame_id: &str, stamp_ns: i64) -> Option<[f64; 16]> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let found = buffer.lookup(&self.world, frame_id, stamp_ns);
        drop(buffer);
        match found {
            Ok(pose) => Some(pose.matrix()),
            Err(error) => {
                let text = format!("where {frame_id} was is not known: {error}");
                self.note(text, Some(discriminant(&error)));
                None
            }
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
        let found = poses.world_from("roof", 5).unwrap_or_default();
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
            assert_eq!(poses.world_from("lidar", sensor_ns + i), None);
        }
        let trouble = poses.recent_trouble().unwrap_or_default();
        assert!(
            trouble.contains("946655660") && trouble.contains("1568785504"),
            "{trouble}"
        );
        let logged = poses.troubles.lock().map_or(0, |troubles| troubles.logged.len());
        assert_eq!(logged, 1, "one line for ten sweeps");
        assert!(poses.world_from("lidar", vehicle_ns).is_some());
        Ok(())
    }
}
