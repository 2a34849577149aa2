//! Quality of service as liveliness tokens carry it:
//! `reliability:durability:history,depth:deadline s,ns:lifespan s,ns:liveliness,lease s,ns`, where a field that has its
//! default value is empty.

use crate::io::ros::{Durability, History, Qos, Reliability};

/// Depth that is left out.
const DEFAULT_DEPTH: u32 = 42;

/// The text of a profile.
#[must_use]
pub fn encode_qos(qos: &Qos) -> String {
    let reliability = match qos.reliability {
        Reliability::Reliable => "",
        Reliability::BestEffort => "2",
    };
    let durability = match qos.durability {
        Durability::Volatile => "",
        Durability::TransientLocal => "1",
    };
    let history = match qos.history {
        History::KeepLast(DEFAULT_DEPTH) => ",".to_owned(),
        History::KeepLast(depth) => format!(",{depth}"),
        History::KeepAll => "2,".to_owned(),
    };
    format!("{reliability}:{durability}:{history}:,:,:,,")
}

/// Reads a profile; `None` for a text that is none. Deadline, lifespan and liveliness are not looked at, for nothing
/// here depends on them.
#[must_use]
pub fn decode_qos(text: &str) -> Option<Qos> {
    let mut fields = text.split(':');
    let reliability = match fields.next()? {
        "" | "0" | "1" => Reliability::Reliable,
        "2" | "3" => Reliability::BestEffort,
        _ => return None,
    };
    let durability = match fields.next()? {
        "" | "0" | "2" | "3" => Durability::Volatile,
        "1" => Durability::TransientLocal,
        _ => return None,
    };
    let (kind, depth) = fields.next()?.split_once(',')?;
    let history = match kind {
        "" | "0" | "1" | "3" if depth.is_empty() => History::KeepLast(DEFAULT_DEPTH),
        // A depth beyond 32 bits is as good as the largest.
        "" | "0" | "1" | "3" => History::KeepLast(
            u32::try_from(depth.parse::<u64>().ok()?)
                .unwrap_or(u32::MAX)
                .max(1),
        ),
        "2" => History::KeepAll,
        _ => return None,
    };
    Some(Qos {
        reliability,
        durability,
        history,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_the_texts_of_rmw_zenoh() {
        let keep_all = Qos {
            history: History::KeepAll,
            ..Qos::reliable(1)
        };
        for (qos, text) in [
            (Qos::reliable(1), "::,1:,:,:,,"),
            (Qos::reliable(10), "::,10:,:,:,,"),
            (Qos::sensor_data(5), "2::,5:,:,:,,"),
            (Qos::latched(1), ":1:,1:,:,:,,"),
            (Qos::reliable(42), "::,:,:,:,,"),
            (keep_all, "::2,:,:,:,,"),
        ] {
            assert_eq!(encode_qos(&qos), text);
            assert_eq!(decode_qos(text), Some(qos));
        }
        assert_eq!(decode_qos("1:2:1,7:1,2:3,4:1,5,6"), Some(Qos::reliable(7)));
        for wrong in [
            "",
            ":",
            "::",
            "x::,:,:,:,,",
            ":9:,:,:,:,,",
            "::,-1:,:,:,,",
            "::9,:,:,:,,",
        ] {
            assert_eq!(decode_qos(wrong), None, "{wrong:?}");
        }
    }
}
