//! Records of `store`, what travels through a store, and the file that is one.

use super::envelope::{Column, VERSION, column};
use super::line::Line;
use crate::decide::store::{Map, Running};
use crate::types::store::{Change, Entry};
use crate::types::time::{Tick, millis};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// One key: what it holds, held, or came to hold.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Key<'a> {
    /// What happened, of a watch: present, put, deleted, or overrun where changes are lost and what is there follows
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    /// What it holds, where that is UTF-8
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    /// What it holds, where that is not UTF-8
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    /// The revision that last changed it; of a key that is not there, the store's
    revision: u64,
    /// It ends with a lease of so long, unless that is renewed
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<f64>,
    #[serde(flatten)]
    backing: Backing,
}

/// On how many disks what a store says it has is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Backing {
    /// How many copies of the store vote
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<usize>,
    /// What was acknowledged outlives the loss of any one machine: a majority of three or more has it on disk
    pub(crate) durable: bool,
}

impl Backing {
    pub(crate) fn of(replicas: Option<usize>) -> Self {
        Backing { replicas, durable: replicas.is_some_and(|replicas| replicas >= 3) }
    }
}

impl<'a> Key<'a> {
    pub(crate) fn of(entry: &'a Entry, backing: Backing) -> Self {
        let text = std::str::from_utf8(&entry.value).ok();
        Key {
            value: text,
            value_base64: text.is_none().then(|| BASE64.encode(&entry.value)),
            revision: entry.revision,
            backing,
            ..Key::default()
        }
    }

    /// A key that is not there.
    pub(crate) fn absent(revision: u64, backing: Backing) -> Self {
        Key { revision, backing, ..Key::default() }
    }

    /// It ends with a lease of so long.
    pub(crate) fn lease(self, lease_ms: Option<f64>) -> Self {
        Key { lease_ms, ..self }
    }

    pub(crate) fn event(self, event: &'static str) -> Self {
        Key { event: Some(event), ..self }
    }
}

/// What became of a lock, or who holds it.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Lock<'a> {
    /// What happened: waiting, acquired, lost, released; of store leader: leader, or none
    pub(crate) event: &'static str,
    /// Rises with each holder: a store of data can refuse who comes with a lower one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// The node that has it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<Cow<'a, str>>,
    /// How long it outlives its holder's last renewal, as the store granted it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<f64>,
    /// How the command ended; 128 and the signal's number where one killed it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) child_status: Option<u8>,
    /// Who stands in line, the next one first
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) waiting: &'a [String],
}

pub(crate) const COLUMNS: &[Column] = &[
    column("subject", "KEY"),
    column("value", "VALUE"),
    column("revision", "REVISION"),
    column("lease_ms", "LEASE_MS"),
];
pub(crate) const CHANGE_COLUMNS: &[Column] = &[
    column("subject", "KEY"),
    column("changed", "CHANGED"),
    column("value", "VALUE"),
    column("revision", "REVISION"),
    column("replicas", "REPLICAS"),
];
pub(crate) const WATCH_COLUMNS: &[Column] =
    &[column("event", "EVENT"), column("subject", "KEY"), column("value", "VALUE"), column("revision", "REVISION")];
pub(crate) const LOCK_COLUMNS: &[Column] = &[
    column("subject", "LOCK"),
    column("event", "EVENT"),
    column("holder", "HOLDER"),
    column("token", "TOKEN"),
    column("ttl_ms", "TTL_MS"),
    column("waiting", "WAITING"),
];

pub(crate) const GET_SCHEMA: (&str, &str) = ("store.get", include_str!("schema/store.get.json"));
pub(crate) const PUT_SCHEMA: (&str, &str) = ("store.put", include_str!("schema/store.put.json"));
pub(crate) const DELETE_SCHEMA: (&str, &str) = ("store.delete", include_str!("schema/store.delete.json"));
pub(crate) const LIST_SCHEMA: (&str, &str) = ("store.list", include_str!("schema/store.list.json"));
pub(crate) const WATCH_SCHEMA: (&str, &str) = ("store.watch", include_str!("schema/store.watch.json"));
pub(crate) const LOCK_SCHEMA: (&str, &str) = ("store.lock", include_str!("schema/store.lock.json"));
pub(crate) const LEADER_SCHEMA: (&str, &str) = ("store.leader", include_str!("schema/store.leader.json"));

/// A template of keys: text, and names of a record's fields between braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
}

impl std::str::FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a key with {{FIELD}} in it (nodes/{{host}}/{{subject}})");
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (field, after) = after.split_once('}').ok_or_else(wrong)?;
            if field.is_empty() || field.contains('{') || before.contains('}') {
                return Err(wrong());
            }
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Field(field.to_owned()));
            rest = after;
        }
        if rest.contains('}') || !parts.iter().any(|part| matches!(part, Part::Field(_))) {
            return Err(wrong());
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Template(parts))
    }
}

impl Template {
    /// The key of one record.
    ///
    /// # Errors
    /// A field is missing, empty, or neither a string nor a number.
    pub(crate) fn key(&self, line: &Line<'_>) -> Result<String, String> {
        let mut key = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => key.push_str(text),
                Part::Field(field) => {
                    let raw = line.raw(field).map(serde_json::value::RawValue::get).unwrap_or_default();
                    match serde_json::from_str::<serde_json::Value>(raw) {
                        Ok(serde_json::Value::String(text)) if !text.is_empty() => key.push_str(&text),
                        Ok(serde_json::Value::Number(number)) => key.push_str(&number.to_string()),
                        _ => return Err(format!("it has no '{field}' to make a key of")),
                    }
                }
            }
        }
        Ok(key)
    }
}

/// A record as it is stored: when it came to this machine means nothing on another, so its validity is what is left.
///
/// # Errors
/// A field that times it has the wrong type.
pub(crate) fn to_store(line: &Line<'_>, boot_id: &str, now: Tick) -> Result<String, String> {
    let received: Option<f64> = line.get("received_ms")?;
    let foreign = line.get::<Cow<'_, str>>("boot_id")?.is_some_and(|other| other != boot_id);
    let valid: Option<f64> = line.get("valid_for_ms")?;
    let left = valid.map(|valid| {
        let held = received.filter(|_| !foreign).and_then(Tick::from_ms).map_or(0.0, |at| millis(now.since(at)));
        (valid - held).max(0.0)
    });
    Ok(retimed(line, left.map(|left| format!("\"valid_for_ms\":{left}"))))
}

/// A stored record as it arrives here; a record that says when it came keeps that.
///
/// # Errors
/// It is no record.
pub(crate) fn from_store(text: &str, now: Tick) -> Result<String, String> {
    let line = Line::parse(text)?;
    let valid: Option<f64> = line.get("valid_for_ms")?;
    let valid = valid.map_or(String::new(), |valid| format!(",\"valid_for_ms\":{valid}"));
    Ok(retimed(&line, Some(format!("\"received_ms\":{}{valid}", now.as_ms()))))
}

/// The fields of a record but for what times it, and `times` after its envelope's first ones.
fn retimed(line: &Line<'_>, times: Option<String>) -> String {
    let mut out = b"{".to_vec();
    line.copy_rest(&["received_ms", "boot_id", "valid_for_ms"], &mut out);
    if let Some(times) = times {
        out.push(b',');
        out.extend_from_slice(times.as_bytes());
    }
    out.push(b'}');
    // The first field came with a comma before it.
    if out.get(1) == Some(&b',') {
        out.remove(1);
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Bytes in JSON: a string, or base64 where they are not UTF-8.
#[derive(Serialize, Deserialize)]
enum Bytes<'a> {
    #[serde(rename = "text", borrow)]
    Text(Cow<'a, str>),
    #[serde(rename = "base64", borrow)]
    Base64(Cow<'a, str>),
}

impl<'a> Bytes<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text.into()),
            Err(_) => Bytes::Base64(BASE64.encode(bytes).into()),
        }
    }

    fn read(self) -> Result<Vec<u8>, String> {
        match self {
            Bytes::Text(text) => Ok(text.into_owned().into_bytes()),
            Bytes::Base64(text) => BASE64.decode(text.as_bytes()).map_err(|error| error.to_string()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredEntry<'a> {
    #[serde(borrow)]
    key: Bytes<'a>,
    /// Absent in a change that took it away.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<Bytes<'a>>,
    created: u64,
    revision: u64,
    lease: u64,
}

impl<'a> StoredEntry<'a> {
    fn of(entry: &'a Entry) -> Self {
        let Entry { key, value, created, revision, lease } = entry;
        let (key, value) = (Bytes::of(key), Some(Bytes::of(value)));
        StoredEntry { key, value, created: *created, revision: *revision, lease: *lease }
    }

    fn change(self) -> Result<Change, String> {
        let (key, revision) = (self.key.read()?, self.revision);
        let Some(value) = self.value else { return Ok(Change::Deleted { key, revision }) };
        let (created, lease) = (self.created, self.lease);
        Ok(Change::Put(Entry { key, value: value.read()?, created, revision, lease }))
    }
}

#[derive(Serialize, Deserialize)]
struct StoredLease {
    id: u64,
    ttl_us: u64,
    /// Since the boot that the file names.
    until_us: u64,
}

#[derive(Serialize, Deserialize)]
struct File<'a> {
    kind: Cow<'a, str>,
    v: u8,
    boot_id: Cow<'a, str>,
    revision: u64,
    last_lease: u64,
    forgotten: u64,
    leases: Vec<StoredLease>,
    #[serde(borrow)]
    entries: Vec<StoredEntry<'a>>,
    #[serde(borrow)]
    history: Vec<StoredEntry<'a>>,
}

const KIND: &str = "state.store";

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The bytes of the file that is a store.
pub(crate) fn write_map(map: &Map, boot_id: &str) -> Vec<u8> {
    let history = map.history.iter().map(|change| match change {
        Change::Put(entry) => StoredEntry::of(entry),
        Change::Deleted { key, revision } => {
            StoredEntry { key: Bytes::of(key), value: None, created: 0, revision: *revision, lease: 0 }
        }
    });
    let file = File {
        kind: KIND.into(),
        v: VERSION,
        boot_id: boot_id.into(),
        revision: map.revision,
        last_lease: map.last_lease,
        forgotten: map.forgotten,
        leases: map
            .leases
            .iter()
            .map(|(id, lease)| StoredLease { id: *id, ttl_us: micros(lease.ttl), until_us: micros(lease.until.0) })
            .collect(),
        entries: map.entries.values().map(StoredEntry::of).collect(),
        history: history.collect(),
    };
    // Strings and numbers: it cannot fail.
    let mut bytes = serde_json::to_vec(&file).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Reads the file; the leases of another boot have ended.
///
/// # Errors
/// Empty, torn, of another kind or a newer version.
pub(crate) fn read_map(bytes: &[u8], boot_id: &str) -> Result<Map, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) || bytes.iter().all(|byte| *byte == 0) {
        return Err("it is empty".to_owned());
    }
    let file: File<'_> = serde_json::from_slice(bytes).map_err(|error| format!("it is torn or foreign: {error}"))?;
    if file.kind != KIND {
        return Err(format!("it is of kind '{}', not '{KIND}'", file.kind));
    }
    if file.v > VERSION {
        return Err(format!("it is version {}, this reads up to {VERSION}", file.v));
    }
    let mut leases = BTreeMap::new();
    for StoredLease { id, ttl_us, until_us } in file.leases {
        let until = Tick(Duration::from_micros(until_us));
        leases.insert(id, Running { ttl: Duration::from_micros(ttl_us), until });
    }
    let mut entries = BTreeMap::new();
    for stored in file.entries {
        let Change::Put(entry) = stored.change()? else { return Err("an entry in it has no value".to_owned()) };
        entries.insert(entry.key.clone(), entry);
    }
    let history: VecDeque<Change> = file.history.into_iter().map(StoredEntry::change).collect::<Result<_, _>>()?;
    let mut map = Map {
        revision: file.revision,
        entries,
        leases,
        last_lease: file.last_lease,
        history,
        forgotten: file.forgotten,
    };
    if file.boot_id != boot_id {
        map.expire_all();
    }
    Ok(map)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;
    use crate::types::store::{Keys, Step, Transaction};

    #[test]
    fn schemas_of_store() {
        check::<Key<'static>>("store.get", "What a key holds");
        check::<Key<'static>>("store.put", "What a key came to hold");
        check::<Key<'static>>("store.delete", "A key that is gone, and what it held");
        check::<Key<'static>>("store.list", "One of the keys, and what it holds");
        check::<Key<'static>>("store.watch", "A key that is there, or a change of one");
        check::<Lock<'static>>("store.lock", "What became of a lock");
        check::<Lock<'static>>("store.leader", "Who holds a lock");
    }

    #[test]
    fn a_template_makes_a_key_of_each_record() {
        let template: Template = "nodes/{host}/{subject}".parse().unwrap();
        let key = |line: &str| template.key(&Line::parse(line).unwrap());
        assert_eq!(key(r#"{"host":"n1","subject":"n2"}"#).unwrap(), "nodes/n1/n2");
        assert_eq!(key(r#"{"host":"n1","subject":7}"#).unwrap(), "nodes/n1/7");
        for line in [r#"{"host":"n1"}"#, r#"{"host":"n1","subject":""}"#, r#"{"host":"n1","subject":["x"]}"#] {
            assert!(key(line).unwrap_err().contains("'subject'"), "{line}");
        }
        for wrong in ["nodes", "a{", "a}", "{}", "{a}}", "{a{b}", ""] {
            assert!(wrong.parse::<Template>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_times_a_record_does_not_travel() {
        let now = Tick(Duration::from_secs(10));
        let stored = |text: &str| to_store(&Line::parse(text).unwrap(), "here", now).unwrap();
        assert_eq!(
            stored(r#"{"received_ms":9000,"kind":"x","valid_for_ms":3000,"n":1e2}"#),
            r#"{"kind":"x","n":1e2,"valid_for_ms":2000}"#
        );
        assert_eq!(stored(r#"{"kind":"x","valid_for_ms":500,"received_ms":9000}"#), r#"{"kind":"x","valid_for_ms":0}"#);
        assert_eq!(
            stored(r#"{"kind":"x","valid_for_ms":500,"received_ms":1,"boot_id":"there"}"#),
            r#"{"kind":"x","valid_for_ms":500}"#
        );
        assert_eq!(stored(r#"{"kind":"x"}"#), r#"{"kind":"x"}"#);
        assert_eq!(
            from_store(r#"{"kind":"x","valid_for_ms":500}"#, now).unwrap(),
            r#"{"kind":"x","received_ms":10000.0,"valid_for_ms":500}"#.replace("10000.0", "10000").as_str()
        );
        assert!(from_store("words", now).is_err());
    }

    fn example() -> Map {
        let mut map = Map::default();
        let lease = map.grant(Duration::from_secs(3), Tick(Duration::from_secs(5)));
        for (key, value, lease) in [("a", &b"1"[..], 0), ("b", b"\xff\0", lease), ("c", b"", 0)] {
            let step = Step::Put { key: key.into(), value: value.into(), lease };
            map.run(&Transaction { then: vec![step], ..Transaction::default() }).unwrap();
        }
        let gone = Step::Delete(Keys::One("a".into()));
        map.run(&Transaction { then: vec![gone], ..Transaction::default() }).unwrap();
        map
    }

    #[test]
    fn a_file_has_all_of_a_map() {
        let map = example();
        let bytes = write_map(&map, "boot");
        assert_eq!(read_map(&bytes, "boot").unwrap(), map);
        let after = read_map(&bytes, "another").unwrap();
        assert_eq!((after.entries.len(), after.leases.len(), after.revision), (1, 0, map.revision + 1));
    }

    #[test]
    fn a_torn_or_foreign_file_is_refused() {
        let bytes = write_map(&example(), "boot");
        for length in 0..bytes.len() - 1 {
            assert!(read_map(&bytes[..length], "boot").is_err(), "{length}");
        }
        for wrong in ["\0\0\0\0", "{}", r#"{"kind":"state.quorum","v":1}"#, "[]"] {
            assert!(read_map(wrong.as_bytes(), "boot").is_err(), "{wrong}");
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(read_map(text.replace("\"v\":1", "\"v\":2").as_bytes(), "boot").unwrap_err().contains("version"));
        assert!(read_map(text.replace("state.store", "state.x").as_bytes(), "boot").unwrap_err().contains("kind"));
        assert!(read_map(format!("{text}{{}}").as_bytes(), "boot").is_err());
    }
}
