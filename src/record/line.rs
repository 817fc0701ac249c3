//! One line of input as a record: typed fields read out, the rest kept byte for byte.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The longest line that is taken as a record, in bytes.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// Bytes of a line for a list of names: the rest of what our own readers take is for everything else in it.
pub(super) const ROOM: usize = MAX_LINE / 2;

/// Takes the room that `text` needs as it is written, with quotes and escapes, and `more` bytes beside
/// it; says whether there was as much.
pub(super) fn takes(room: &mut usize, text: &str, more: usize) -> bool {
    let length = serde_json::to_string(text).map_or(usize::MAX, |text| text.len().saturating_add(more));
    room.checked_sub(length).map(|left| *room = left).is_some()
}

/// A record as it came: fields in their order, values untouched.
///
/// serde's `flatten` would turn `1e2` into `100.0` and lose integers above 2^64 on the way through
/// a filter; this keeps what was not read as it was.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Line<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// Not one JSON object, a key twice, or a `v` that is newer than ours.
    pub(crate) fn parse(line: &'a str) -> Result<Self, String> {
        let line: Line<'a> = serde_json::from_str(line).map_err(|error| plain(&error))?;
        if let Some(version) = line.get::<u64>("v")?
            && version > u64::from(super::envelope::VERSION)
        {
            return Err(format!("it is version {version}, this reads up to {}", super::envelope::VERSION));
        }
        Ok(line)
    }

    /// All fields in their order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.fields.iter().map(|(key, value)| (key.as_ref(), *value))
    }

    /// The value of `key` as it stands in the line.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a RawValue> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Reads one field; `None` where it is absent or null.
    ///
    /// # Errors
    /// A value of another type.
    pub(crate) fn get<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, String> {
        match self.raw(key) {
            None => Ok(None),
            Some(value) => {
                serde_json::from_str::<Option<T>>(value.get()).map_err(|error| format!("'{key}': {}", plain(&error)))
            }
        }
    }

    /// Reads one field by its text form.
    ///
    /// # Errors
    /// No string, or one that does not parse.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, String>
    where
        T::Err: fmt::Display,
    {
        self.get::<Cow<'_, str>>(key)?.map(|text| text.parse().map_err(|error| format!("'{key}': {error}"))).transpose()
    }

    /// Appends `,"key":value` for every field that is not in `written`.
    pub(crate) fn copy_rest(&self, written: &[&str], into: &mut Vec<u8>) {
        for (key, value) in &self.fields {
            if !written.contains(&key.as_ref()) {
                into.push(b',');
                // A string key cannot fail to serialise.
                let _ = serde_json::to_writer(&mut *into, key);
                into.push(b':');
                into.extend_from_slice(value.get().as_bytes());
            }
        }
    }
}

/// `serde_json`'s words without "at line 1", which is the number of nothing a user has.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

impl<'de> Deserialize<'de> for Line<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Line<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line<'de>, A::Error> {
                let mut fields: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
                    if fields.iter().any(|(name, _)| *name == key) {
                        return Err(serde::de::Error::custom(format!("the key '{key}' stands there twice")));
                    }
                    fields.push((key, map.next_value()?));
                }
                Ok(Line { fields })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A key: borrowed where it has no escapes. (`Cow` by itself always copies.)
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_leaves_byte_for_byte() {
        let line = Line::parse(
            r#"{"kind":"x","v":1,"a":1e2,"b":0.10,"c":18446744073709551617,"d\"e":{"f":[ 1 ]},"status":"up"}"#,
        )
        .unwrap();
        let mut out = Vec::new();
        line.copy_rest(&["kind", "v", "status"], &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#","a":1e2,"b":0.10,"c":18446744073709551617,"d\"e":{"f":[ 1 ]}"#);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for (line, why) in [
            ("", "EOF"),
            ("[]", "object"),
            ("7", "object"),
            ("{\"a\":1,\"a\":2}", "twice"),
            ("{\"a\":1}{", "trailing"),
            ("{\"v\":2}", "version 2"),
            ("{\"v\":\"1\"}", "'v'"),
        ] {
            let error = Line::parse(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn a_null_is_a_field_that_is_not_known() {
        let line = Line::parse(r#"{"ttl_s":null,"port":80}"#).unwrap();
        assert_eq!(line.get::<u32>("ttl_s").unwrap(), None);
        assert_eq!(line.get::<u16>("port").unwrap(), Some(80));
        assert!(line.get::<bool>("port").unwrap_err().contains("'port'"));
    }
}
