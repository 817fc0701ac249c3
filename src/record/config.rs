//! The digest by which nodes notice that they run different configurations.

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The first 16 hex digits of the SHA-256 of a value's canonical JSON: keys sorted, no blanks.
pub(crate) fn digest(value: &impl Serialize) -> String {
    // Through `Value`, whose maps are sorted by key.
    let canonical = serde_json::to_value(value).map(|value| value.to_string()).unwrap_or_default();
    Sha256::digest(canonical.as_bytes()).iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter_and_every_value_does() {
        assert_eq!(digest(&json!({"a": 1, "b": [1, 2]})), digest(&json!({"b": [1, 2], "a": 1})));
        assert_ne!(digest(&json!({"a": 1})), digest(&json!({"a": 2})));
        // sha256sum of the two bytes `{}`.
        assert_eq!(digest(&json!({})), "44136fa355b3678a");
    }
}
