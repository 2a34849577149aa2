//! Quality of service as rcl says it.

use sensorium::io::ros::{Durability, History, Qos, Reliability};

/// A profile of rcl. What is not in it has rcl's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Whether everything is kept, whatever `depth` says.
    pub keep_all: bool,
    /// Messages kept; 0 stands for the middleware's own choice, which is never wanted here.
    pub depth: usize,
    /// Whether lost messages are sent again.
    pub reliable: bool,
    /// Whether a late subscription gets what was published before.
    pub transient_local: bool,
}

impl From<Qos> for Profile {
    fn from(qos: Qos) -> Self {
        Self {
            keep_all: qos.history == History::KeepAll,
            // rcl warns about a depth of 0 even where it is not used.
            depth: qos.depth().max(1) as usize,
            reliable: qos.reliability == Reliability::Reliable,
            transient_local: qos.durability == Durability::TransientLocal,
        }
    }
}

#[cfg(any(feature = "ros2", feature = "ros2-doc"))]
impl From<Profile> for r2r::QosProfile {
    fn from(profile: Profile) -> Self {
        let qos = Self::default();
        let qos = if profile.keep_all {
            qos.keep_all()
        } else {
            qos.keep_last(profile.depth)
        };
        let qos = if profile.reliable {
            qos.reliable()
        } else {
            qos.best_effort()
        };
        if profile.transient_local {
            qos.transient_local()
        } else {
            qos.volatile()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_say_what_the_endpoints_ask_for() {
        let profile = |keep_all, depth, reliable, transient_local| Profile {
            keep_all,
            depth,
            reliable,
            transient_local,
        };
        let keep_all = Qos {
            history: History::KeepAll,
            ..Qos::reliable(1)
        };
        for (qos, expected) in [
            (Qos::reliable(1), profile(false, 1, true, false)),
            (Qos::sensor_data(5), profile(false, 5, false, false)),
            (Qos::latched(100), profile(false, 100, true, true)),
            (keep_all, profile(true, 1, true, false)),
        ] {
            assert_eq!(Profile::from(qos), expected, "{qos}");
        }
    }
}
