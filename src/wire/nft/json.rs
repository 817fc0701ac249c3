//! JSON that borrows from its text: a listing has a thousand keys and words, none worth a copy.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A value; of an object its keys in the order of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<(Json<'a>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// The value of `key` in an object.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        let Json::Object(entries) = self else { return None };
        entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// The first key of an object, and its value.
    pub(super) fn first(&self) -> Option<(&str, &Json<'a>)> {
        let Json::Object(entries) = self else { return None };
        entries.first().and_then(|(name, value)| Some((name.text()?, value)))
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn list(&self) -> Option<&[Json<'a>]> {
        if let Json::List(list) = self { Some(list) } else { None }
    }

    pub(super) fn number(&self) -> Option<u64> {
        if let Json::Number(number) = self { number.as_u64() } else { None }
    }

    pub(super) fn signed(&self) -> Option<i64> {
        if let Json::Number(number) = self { number.as_i64() } else { None }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = items.next_entry()? {
            entries.push(entry);
        }
        Ok(Json::Object(entries))
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => number.serialize(serializer),
            Json::Text(text) => serializer.serialize_str(text),
            Json::List(list) => serializer.collect_seq(list),
            Json::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was read as JSON can be written as such.
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_again() {
        let text = r#"{"a":[1,-2,2.5,true,null,"b","\n"],"é":{"c":{}}}"#;
        let read: Json<'_> = serde_json::from_str(text).unwrap();
        assert_eq!(read.to_string(), text);
        let list = read.get("a").unwrap().list().unwrap();
        assert!(matches!(list[5], Json::Text(Cow::Borrowed("b"))));
        assert_eq!((list[0].number(), list[1].signed(), list[1].number()), (Some(1), Some(-2), None));
        assert_eq!(list[6].text(), Some("\n"));
        assert_eq!(read.get("é").unwrap().first().unwrap().0, "c");
        assert_eq!((read.get("b"), list[0].get("a")), (None, None));
    }
}
