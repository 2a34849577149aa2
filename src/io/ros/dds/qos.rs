//! Quality of service as DDS says it.

use rustdds::policy::{self, ResourceLimits};
use rustdds::{Duration, QosPolicies, QosPolicyBuilder};

use crate::io::ros::{Durability, History, Qos, Reliability};

/// Messages that a publisher holds for subscriptions that have not acknowledged them, at least: a window of one would
/// make every message wait for the acknowledgement of the one before it.
const UNACKNOWLEDGED: u32 = 64;
/// Messages of a topic that a subscription holds, at least: a burst of small ones comes in one go. RustDDS holds them
/// until newer ones come, handed on or not.
const HELD: u32 = 16;
/// Messages that a subscription holds which keeps all.
const HELD_OF_ALL: u32 = 1024;
/// Longest wait for a slow subscription of a publisher that keeps all.
const KEEP_ALL_WAIT_S: i32 = 10;

/// What a publisher offers.
pub(super) fn of_publisher(qos: &Qos) -> QosPolicies {
    match qos.history {
        History::KeepAll => policies(qos, Duration::from_secs(KEEP_ALL_WAIT_S)).build(),
        // Without a limit 8192 messages are held for a subscription that has stopped to answer.
        History::KeepLast(depth) => policies(qos, Duration::ZERO)
            .resource_limits(at_most(depth.max(UNACKNOWLEDGED)))
            .build(),
    }
}

/// What a subscription asks for.
pub(super) fn of_subscription(qos: &Qos) -> QosPolicies {
    let held = match qos.history {
        History::KeepAll => HELD_OF_ALL,
        History::KeepLast(depth) => depth.max(HELD),
    };
    policies(qos, Duration::ZERO)
        .resource_limits(at_most(held))
        .build()
}

fn policies(qos: &Qos, max_blocking_time: Duration) -> QosPolicyBuilder {
    let builder = QosPolicyBuilder::new()
        .durability(match qos.durability {
            Durability::Volatile => policy::Durability::Volatile,
            Durability::TransientLocal => policy::Durability::TransientLocal,
        })
        .history(match qos.history {
            History::KeepAll => policy::History::KeepAll,
            History::KeepLast(depth) => policy::History::KeepLast {
                depth: number(depth.max(1)),
            },
        });
    match qos.reliability {
        Reliability::Reliable => builder.reliable(max_blocking_time),
        Reliability::BestEffort => builder.best_effort(),
    }
}

fn at_most(messages: u32) -> ResourceLimits {
    ResourceLimits {
        max_samples: number(messages),
        max_instances: 1,
        max_samples_per_instance: number(messages),
    }
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_says_the_same_on_dds() {
        let objects = of_publisher(&Qos::reliable(1));
        assert!(objects.is_reliable() && objects.is_volatile());
        assert_eq!(objects.reliable_max_blocking_time(), Some(Duration::ZERO));
        assert_eq!(objects.history(), Some(policy::History::KeepLast { depth: 1 }));

        let cloud = of_subscription(&Qos::sensor_data(5));
        assert_eq!(cloud.reliability(), Some(policy::Reliability::BestEffort));
        assert_eq!(cloud.history(), Some(policy::History::KeepLast { depth: 5 }));

        let tf_static = of_subscription(&Qos::latched(100));
        assert_eq!(tf_static.durability(), Some(policy::Durability::TransientLocal));
        assert_eq!(
            tf_static.resource_limits().map(|limits| limits.max_samples),
            Some(100)
        );

        let all = of_publisher(&Qos {
            history: History::KeepAll,
            ..Qos::reliable(1)
        });
        assert_eq!(all.history(), Some(policy::History::KeepAll));
        assert_eq!(
            all.reliable_max_blocking_time(),
            Some(Duration::from_secs(KEEP_ALL_WAIT_S))
        );
    }
}
