//! Offered quality of service as rosbag2 writes it: a list of profiles in YAML, policies as numbers up to version 8
//! of the metadata and as words since.

use serde::Serialize;
use serde_json::Value;

use crate::io::ros::{Durability, History, Qos, Reliability};

/// Messages kept where a profile does not say how many: ROS 2's default.
const DEFAULT_DEPTH: u32 = 10;

/// Longest list of profiles that is read; a topic has one for each of its publishers.
const MAX_PROFILES: usize = 4096;

/// Reads profiles: a list, YAML text that holds one, or nothing. Equal profiles come once; what cannot be read is
/// said in the second part.
pub(super) fn profiles(value: &Value) -> (Vec<Qos>, Vec<String>) {
    let parsed;
    let list = match value {
        Value::Null => return (Vec::new(), Vec::new()),
        Value::String(text) if text.trim().is_empty() => return (Vec::new(), Vec::new()),
        Value::String(text) => {
            parsed = serde_saphyr::from_str::<Value>(text);
            match &parsed {
                Ok(list) => list,
                Err(error) => return (Vec::new(), vec![format!("its QoS is no YAML: {error}")]),
            }
        }
        other => other,
    };
    let Value::Array(list) = list else {
        return (Vec::new(), vec!["its QoS is no list of profiles".to_owned()]);
    };
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for profile in list.iter().take(MAX_PROFILES) {
        match self::profile(profile) {
            Ok(profile) if known.contains(&profile) => {}
            Ok(profile) => known.push(profile),
            Err(reason) if unknown.contains(&reason) => {}
            Err(reason) => unknown.push(reason),
        }
    }
    (known, unknown)
}

fn profile(value: &Value) -> Result<Qos, String> {
    let policy = |name: &str| match &value[name] {
        Value::String(word) => word.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let unknown = |name: &str, value: &str| format!("a QoS profile has {name} {value:?}");
    let reliability = match policy("reliability").as_str() {
        "1" | "reliable" => Reliability::Reliable,
        "2" | "best_effort" => Reliability::BestEffort,
        other => return Err(unknown("reliability", other)),
    };
    let durability = match policy("durability").as_str() {
        "1" | "transient_local" => Durability::TransientLocal,
        "2" | "volatile" => Durability::Volatile,
        other => return Err(unknown("durability", other)),
    };
    let depth = value["depth"]
        .as_u64()
        .map(|depth| u32::try_from(depth).unwrap_or(u32::MAX));
    let history = match policy("history").as_str() {
        "1" | "keep_last" => History::KeepLast(depth.unwrap_or(DEFAULT_DEPTH).max(1)),
        "2" | "keep_all" => History::KeepAll,
        // Discovery does not always tell a recorder the history of others: 3 is "unknown", 0 "as the system likes".
        _ => History::KeepLast(depth.filter(|depth| *depth > 0).unwrap_or(DEFAULT_DEPTH)),
    };
    Ok(Qos {
        reliability,
        durability,
        history,
    })
}

/// A profile as rosbag2 writes it since version 9 of the metadata.
#[derive(Debug, Serialize)]
pub(super) struct WrittenProfile {
    history: &'static str,
    depth: u32,
    reliability: &'static str,
    durability: &'static str,
    deadline: WrittenDuration,
    lifespan: WrittenDuration,
    liveliness: &'static str,
    liveliness_lease_duration: WrittenDuration,
    avoid_ros_namespace_conventions: bool,
}

#[derive(Debug, Serialize)]
struct WrittenDuration {
    sec: u64,
    nsec: u64,
}

impl WrittenDuration {
    /// The largest duration of ROS 2 stands for "infinite".
    const INFINITE: Self = Self {
        sec: 9_223_372_036,
        nsec: 854_775_807,
    };
}

impl From<&Qos> for WrittenProfile {
    fn from(qos: &Qos) -> Self {
        Self {
            history: match qos.history {
                History::KeepLast(_) => "keep_last",
                History::KeepAll => "keep_all",
            },
            depth: qos.depth(),
            reliability: match qos.reliability {
                Reliability::Reliable => "reliable",
                Reliability::BestEffort => "best_effort",
            },
            durability: match qos.durability {
                Durability::TransientLocal => "transient_local",
                Durability::Volatile => "volatile",
            },
            deadline: WrittenDuration::INFINITE,
            lifespan: WrittenDuration::INFINITE,
            liveliness: "automatic",
            liveliness_lease_duration: WrittenDuration::INFINITE,
            avoid_ros_namespace_conventions: false,
        }
    }
}

/// Profiles as YAML text, as files keep them; empty text for no profile.
pub(in crate::io) fn text(profiles: &[Qos]) -> Result<String, serde_saphyr::ser::Error> {
    if profiles.is_empty() {
        return Ok(String::new());
    }
    let profiles: Vec<WrittenProfile> = profiles.iter().map(WrittenProfile::from).collect();
    serde_saphyr::to_string(&profiles)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn numbers_words_and_lists_mean_the_same() {
        let latched = Qos::latched(1);
        let numbers = "- history: 1\n  depth: 1\n  reliability: 1\n  durability: 1\n";
        let words = "- {history: keep_last, depth: 1, reliability: reliable, durability: transient_local}";
        let list = serde_json::json!([
            {"history": "keep_last", "depth": 1, "reliability": "reliable", "durability": "transient_local"}
        ]);
        for value in [numbers.into(), words.into(), list] {
            assert_eq!(profiles(&value), (vec![latched], vec![]), "{value}");
        }
        for nothing in [Value::Null, "".into(), "[]".into(), serde_json::json!([])] {
            assert_eq!(profiles(&nothing), (vec![], vec![]), "{nothing}");
        }
    }

    #[test]
    fn a_history_that_the_recorder_did_not_learn_is_the_default_one() {
        let text = "- history: 3\n  depth: 0\n  reliability: 2\n  durability: 2\n";
        assert_eq!(profiles(&text.into()), (vec![Qos::sensor_data(10)], vec![]));
    }

    #[test]
    fn what_is_unknown_is_left_out_and_said() {
        let text =
            "- {reliability: 1, durability: 2, history: 2}\n- {reliability: best_available, durability: 2}\n";
        let (known, unknown) = profiles(&text.into());
        assert_eq!(
            known,
            [Qos {
                history: History::KeepAll,
                ..Qos::reliable(1)
            }]
        );
        assert!(
            unknown.len() == 1 && unknown[0].contains("best_available"),
            "{unknown:?}"
        );
        for odd in ["{", "word", "7", "[1]", "[{}]"] {
            let (known, unknown) = profiles(&odd.into());
            assert!(known.is_empty() && unknown.len() == 1, "{odd}: {unknown:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let some = [
            Qos::latched(1),
            Qos::sensor_data(5),
            Qos {
                history: History::KeepAll,
                ..Qos::reliable(1)
            },
        ];
        assert_eq!(profiles(&text(&some).unwrap().into()), (some.to_vec(), vec![]));
        assert_eq!(text(&[]).unwrap(), "");
    }
}
