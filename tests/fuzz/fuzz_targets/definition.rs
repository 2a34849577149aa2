//! Definitions of messages: no text panics, and what can be read can be hashed or lacks a part.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::io::interface::{DefinitionError, Interface};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(interface) = Interface::parse("here_msgs/msg/Thing", text) {
        let top = interface.top().unwrap();
        assert!(top.fields.len() + top.constants.len() <= text.lines().count());
        match interface.hash() {
            Ok(_) | Err(DefinitionError::Missing { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
});
