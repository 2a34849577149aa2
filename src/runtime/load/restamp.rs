//! Messages with other names and later stamps.

use std::sync::Arc;

use crate::io::cdr::{CdrError, CdrReader};
use crate::io::messages::TfMsg;
use crate::runtime::frame::Message;

/// A message under another name, its stamp later by `shift_ns`.
pub(super) fn shifted(message: &Message, topic: &Arc<str>, shift_ns: u64) -> Result<Message, CdrError> {
    let mut data = message.data.clone();
    if shift_ns > 0 {
        shift_stamp(&mut data, shift_ns)?;
    }
    Ok(Message {
        topic: Arc::clone(topic),
        type_name: Arc::clone(&message.type_name),
        log_time_ns: message.log_time_ns.saturating_add(shift_ns),
        data,
        beside: Vec::new(),
        parts: Vec::new(),
    })
}

/// Moves the stamp of a message that begins with a header: after the four bytes of encapsulation come its seconds
/// (int32) and nanoseconds (uint32) in the byte order that the encapsulation names.
fn shift_stamp(data: &mut [u8], shift_ns: u64) -> Result<(), CdrError> {
    let stamp_ns = {
        let mut reader = CdrReader::new(data)?;
        i64::from(reader.i32()?) * 1_000_000_000 + i64::from(reader.u32()?)
    };
    let moved_ns = stamp_ns.saturating_add(i64::try_from(shift_ns).unwrap_or(i64::MAX));
    // Beyond 2038 the seconds of ROS 2 end, and the stamp stays at the end.
    let sec = i32::try_from(moved_ns.div_euclid(1_000_000_000)).unwrap_or(i32::MAX);
    let nanosec = moved_ns.rem_euclid(1_000_000_000) as u32;
    let little = data[1] & 1 == 1;
    let bytes = |value: u32| {
        if little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        }
    };
    data[4..8].copy_from_slice(&bytes(sec.cast_unsigned()));
    data[8..12].copy_from_slice(&bytes(nanosec));
    Ok(())
}

/// Transforms whose stamps are all later by `shift_ns`.
pub(super) fn shifted_transforms(message: &Message, shift_ns: u64) -> Result<Message, CdrError> {
    let mut moved = message.clone();
    if shift_ns > 0 {
        let mut transforms = TfMsg::decode(&message.data)?;
        for transform in &mut transforms.transforms {
            let header = &mut transform.header;
            let stamp_ns = header
                .stamp_ns()
                .saturating_add(i64::try_from(shift_ns).unwrap_or(i64::MAX));
            header.stamp_sec = i32::try_from(stamp_ns.div_euclid(1_000_000_000)).unwrap_or(i32::MAX);
            header.stamp_nanosec = stamp_ns.rem_euclid(1_000_000_000) as u32;
        }
        moved.data = transforms.encode()?;
        moved.log_time_ns = message.log_time_ns.saturating_add(shift_ns);
    }
    moved.beside = Vec::new();
    Ok(moved)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::io::cdr::CdrWriter;
    use crate::io::messages::HeaderMsg;

    #[test]
    fn stamps_move_in_both_byte_orders_and_across_the_second() {
        let mut writer = CdrWriter::with_capacity(64);
        HeaderMsg::new(1_999_999_999, "lidar")
            .unwrap()
            .write(&mut writer)
            .unwrap();
        let mut little = writer.finish();
        shift_stamp(&mut little, 2).unwrap();
        let header = HeaderMsg::read(&mut CdrReader::new(&little).unwrap()).unwrap();
        assert_eq!((header.stamp_ns(), header.frame_id), (2_000_000_001, "lidar"));

        let mut big = vec![0, 0, 0, 0];
        big.extend(7_i32.to_be_bytes());
        big.extend(5_u32.to_be_bytes());
        shift_stamp(&mut big, 3_000_000_001).unwrap();
        assert_eq!(big[4..12], [0, 0, 0, 10, 0, 0, 0, 6]);
        assert!(
            shift_stamp(&mut [0, 1, 0, 0, 1], 1).is_err(),
            "too short for a stamp"
        );
    }
}
