//! The digest of the settings that a bundle pins.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::weights::hex;

/// SHA-256, in hexadecimal, of the settings as JSON without spaces and with sorted keys, so that neither the order nor the
/// layout of a manifest counts.
#[must_use]
pub fn settings_sha256(model: &Map<String, Value>) -> String {
    let mut text = String::new();
    object(model, &mut text);
    hex(&Sha256::digest(text.as_bytes()))
}

fn value(value: &Value, text: &mut String) {
    match value {
        Value::Object(entries) => object(entries, text),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                self::value(item, text);
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

fn object(entries: &Map<String, Value>, text: &mut String) {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    text.push('{');
    for (at, (key, entry)) in sorted.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(key.as_str()).to_string());
        text.push(':');
        value(entry, text);
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_count_and_everything_else_does() {
        let digest = |text: &str| settings_sha256(&serde_json::from_str(text).unwrap());
        let one = digest(r#"{"type": "yolox", "score": 0.3, "params": [{"b": 1, "a": "x"}, null]}"#);
        let same = digest(r#"{"params":[{"a":"x","b":1},null],"score":0.30,"type":"yolox"}"#);
        assert_eq!(one, same);
        for other in [
            r#"{"type": "yolox", "score": 0.4, "params": [{"b": 1, "a": "x"}, null]}"#,
            r#"{"type": "yolox", "score": 0.3, "params": [null, {"b": 1, "a": "x"}]}"#,
            r#"{"type": "yolox", "score": 0.3, "params": [{"b": "1", "a": "x"}, null]}"#,
            r#"{"type": "yolox", "score": 0.3, "params": [{"b": 1, "a": "x"}, null], "c": 0}"#,
        ] {
            assert_ne!(one, digest(other), "{other}");
        }
        // What `printf '{"a":[1,0.3],"b":"x"}' | sha256sum` says.
        let known = "c58b95002a68d764f52058f99032d6d15573b5621942e553993dc84a99562aa8";
        assert_eq!(digest(r#"{"b": "x", "a": [1, 0.3]}"#), known);
    }
}
