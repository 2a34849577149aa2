//! What other programs put on the network: no token, attachment, name or number panics, and what is read is written
//! back so that it reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::io::ros::wire::{Attachment, Gid, Sequences, Token, decode_qos, encode_qos, ros_type};
use sensorium_fuzz::io::ros::{NodeName, TypeHash};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(attachment) = Attachment::decode(bytes) {
        assert_eq!(attachment.encode(), bytes);
    }
    let mut sequences = Sequences::default();
    let mut numbers = bytes.chunks_exact(9);
    for chunk in &mut numbers {
        let mut raw = [0; 8];
        raw.copy_from_slice(&chunk[1..]);
        sequences.missed_before(Gid([chunk[0]; 16]), i64::from_le_bytes(raw));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = Token::parse(text) {
        assert_eq!(Token::parse(&token.to_string()).as_ref(), Ok(&token));
    }
    if let Some(qos) = decode_qos(text) {
        assert_eq!(decode_qos(&encode_qos(&qos)), Some(qos));
    }
    if let Ok(hash) = text.parse::<TypeHash>() {
        assert_eq!(hash.to_string().parse(), Ok(hash));
    }
    let _ = ros_type(text);
    if let Ok(node) = NodeName::of_full(text) {
        assert_eq!(NodeName::of_full(&node.to_string()).as_ref(), Ok(&node));
        if let Ok(topic) = node.resolve(text) {
            assert_eq!(node.resolve(&topic).as_ref(), Ok(&topic));
        }
    }
});
