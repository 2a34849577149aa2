//! Stamps inside of messages, moved along with the loops of a player.

use crate::io::bag::BagTopic;
use crate::io::cdr::CdrReader;
use crate::io::messages::{TF_TYPE, definition};

/// Where the stamps of a type are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamps {
    /// Nowhere that is known.
    None,
    /// The type begins with a `std_msgs/Header` or a `builtin_interfaces/Time`.
    First,
    /// In each transform of a `tf2_msgs/TFMessage`.
    Transforms,
}

/// Bytes before a CDR message's first field.
const CDR_HEADER_LEN: usize = 4;

impl Stamps {
    /// Where the stamps of a topic's messages are, by the definition in the bag or, without one, by that of this crate.
    pub(super) fn of(topic: &BagTopic) -> Self {
        if topic.serialization != "cdr" {
            return Self::None;
        }
        if topic.type_name == TF_TYPE {
            return Self::Transforms;
        }
        let known = match &topic.definition {
            Some(known) if known.encoding == "ros2msg" => Some(known.text.clone()),
            _ => definition(&topic.type_name),
        };
        let stamped = [
            "std_msgs/Header",
            "std_msgs/msg/Header",
            "Header",
            "builtin_interfaces/Time",
            "builtin_interfaces/msg/Time",
        ];
        match known.as_deref().and_then(first_field_type) {
            Some(first) if stamped.contains(&first) => Self::First,
            _ => Self::None,
        }
    }

    /// Moves the stamps of a message on; `false` where one does not fit ROS 2's 32 bits of seconds, which then stays as
    /// it is, or the message is damaged. Stamps of zero, which stand for "whenever", stay.
    pub(super) fn shift(self, data: &mut [u8], by_ns: u64) -> bool {
        match self {
            Self::None => true,
            Self::First => shift_at(data, CDR_HEADER_LEN, by_ns),
            Self::Transforms => match transforms(data) {
                Some(places) => {
                    // Each is moved, whatever became of those before.
                    let moved = places.iter().filter(|place| shift_at(data, **place, by_ns));
                    moved.count() == places.len()
                }
                None => false,
            },
        }
    }
}

/// Type of the first field of a definition: comments, blank lines and constants are none.
fn first_field_type(text: &str) -> Option<&str> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim());
    let mut fields = lines.filter(|line| !line.is_empty() && !line.contains('='));
    fields.next()?.split_whitespace().next()
}

/// Where the stamps of a `TFMessage` are.
fn transforms(data: &[u8]) -> Option<Vec<usize>> {
    let reader = &mut CdrReader::new(data).ok()?;
    // A stamp, two lengths, seven numbers of eight bytes.
    let count = reader.sequence_len(8 + 4 + 4 + 56).ok()?;
    let mut places = Vec::with_capacity(count);
    for _ in 0..count {
        reader.i32().ok()?;
        places.push(reader.offset().checked_sub(4)?);
        reader.u32().ok()?;
        reader.string().ok()?;
        reader.string().ok()?;
        for _ in 0..7 {
            reader.f64().ok()?;
        }
    }
    Some(places)
}

fn shift_at(data: &mut [u8], place: usize, by_ns: u64) -> bool {
    let big_endian = data.get(1) == Some(&0);
    let Some(stamp) = data.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<8>()) else {
        return false;
    };
    let [a, b, c, d, e, f, g, h] = *stamp;
    let (sec, nanosec) = match big_endian {
        true => (i32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])),
        false => (i32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])),
    };
    if (sec, nanosec) == (0, 0) {
        return true;
    }
    let stamp_ns = i128::from(sec) * 1_000_000_000 + i128::from(nanosec) + i128::from(by_ns);
    let Ok(sec) = i32::try_from(stamp_ns.div_euclid(1_000_000_000)) else {
        return false;
    };
    let nanosec = stamp_ns.rem_euclid(1_000_000_000) as u32;
    let bytes = match big_endian {
        true => [sec.to_be_bytes(), nanosec.to_be_bytes()],
        false => [sec.to_le_bytes(), nanosec.to_le_bytes()],
    };
    stamp.copy_from_slice(bytes.as_flattened());
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::io::messages::{
        CLOCK_TYPE, ClockMsg, HeaderMsg, IMAGE_TYPE, ImageMsg, MARKER_ARRAY_TYPE, POINT_CLOUD_TYPE, TfMsg,
        TransformMsg, TransformStampedMsg,
    };

    #[test]
    fn the_stamp_is_found_by_the_first_field() {
        for (type_name, expected) in [
            (IMAGE_TYPE, Stamps::First),
            (POINT_CLOUD_TYPE, Stamps::First),
            (CLOCK_TYPE, Stamps::First),
            (TF_TYPE, Stamps::Transforms),
            (MARKER_ARRAY_TYPE, Stamps::None),
            ("pkg/msg/Unheard", Stamps::None),
        ] {
            assert_eq!(
                Stamps::of(&BagTopic::of_type("/x", type_name)),
                expected,
                "{type_name}"
            );
        }
        let text = "# A comment\n\nuint8 KIND=1 # a constant\nstd_msgs/Header header # first\nfloat64 x\n";
        assert_eq!(first_field_type(text), Some("std_msgs/Header"));
        assert_eq!(first_field_type("# nothing\n"), None);
    }

    #[test]
    fn every_transform_moves_and_nothing_else_changes() {
        let transform = |stamp_ns, frame_id, child_frame_id| TransformStampedMsg {
            header: HeaderMsg::new(stamp_ns, frame_id).unwrap(),
            child_frame_id,
            transform: TransformMsg::default(),
        };
        let list = |by: i64| TfMsg {
            transforms: vec![
                transform(1_500_000_000 + by, "map", "odometry"),
                transform(2_999_999_999 + by, "a", "b"),
                transform(0, "fixed", "lidar"),
            ],
        };
        let mut data = list(0).encode().unwrap();
        assert!(Stamps::Transforms.shift(&mut data, 3_000_000_001));
        assert_eq!(data, list(3_000_000_001).encode().unwrap());
    }

    #[test]
    fn both_byte_orders_are_moved_and_what_does_not_fit_stays() {
        let mut big = vec![0, 0, 0, 0];
        big.extend([7i32.to_be_bytes(), 999_999_999i32.to_be_bytes()].as_flattened());
        assert!(Stamps::First.shift(&mut big, 2));
        assert_eq!(big[4..], *[8i32.to_be_bytes(), 1i32.to_be_bytes()].as_flattened());

        let header = HeaderMsg {
            stamp_sec: i32::MAX,
            stamp_nanosec: 5,
            frame_id: "f",
        };
        let image = ImageMsg {
            header,
            height: 0,
            width: 0,
            encoding: "rgb8",
            is_bigendian: 0,
            step: 0,
            data: &[],
        };
        let whole = image.encode().unwrap();
        let mut data = whole.clone();
        assert!(!Stamps::First.shift(&mut data, 1_000_000_000));
        assert_eq!(data, whole);
        let mut clock = ClockMsg::new(5).unwrap().encode();
        assert!(Stamps::First.shift(&mut clock, 10));
        assert_eq!(ClockMsg::decode(&clock).unwrap().time_ns(), 15);
    }

    #[test]
    fn damaged_messages_stay_as_they_are() {
        for data in [
            &[][..],
            &[0, 1],
            &[0, 1, 0, 0, 1, 2, 3],
            &[0, 1, 0, 0, 255, 255, 255, 255, 1],
        ] {
            for stamps in [Stamps::First, Stamps::Transforms] {
                let mut copy = data.to_vec();
                if !stamps.shift(&mut copy, 9) {
                    assert_eq!(copy, data);
                }
            }
        }
    }
}
