//! serde adapters for types whose text form is `Display`.

use serde::Serializer;
use std::fmt::Display;

/// Writes a value as its text.
pub(crate) fn display<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes a value as its text, `None` as null.
#[allow(clippy::ref_option)] // serde's signature
pub(crate) fn display_option<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
