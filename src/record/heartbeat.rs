//! Records of `heartbeat`, and the records that a beat carries.

use super::envelope::{Column, column};
use super::line::Line;
use crate::decide::heartbeat::{LinkState, Peer, What};
use crate::types::status::Status;
use crate::types::time::{Tick, millis};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What `recv` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Recv<'a> {
    /// up, late, down, restart, goodbye, payload, link-up, link-down, one-way, config-differs, refused or beat
    pub(crate) event: &'a str,
    /// The cluster that this receiver listens for
    pub(crate) cluster: &'a str,
    /// The life of the node that its beats are from
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<u64>,
    /// The newest beat
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<u64>,
    /// Whether its last beat says that it hears this node
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hears_us: Option<bool>,
    /// Our own links that it hears, by their numbers
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hears_links: Option<Vec<u8>>,
    /// Each link as heard here
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) links: Vec<Link>,
    /// How much later than planned this receiver ran
    pub(crate) lag_ms: f64,
    /// Why, where the event alone does not say it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Datagrams that were not believed, by reason, since the last such record
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) refused: BTreeMap<&'static str, u64>,
    /// What this node hears of each node
    pub(crate) view: BTreeMap<&'a str, &'static str>,
    /// The records that the node sent last
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Value>"))]
    pub(crate) payload: &'a [Box<RawValue>],
}

/// The numbers of the links whose bits are set.
pub(crate) fn numbers(links: u64) -> Vec<u8> {
    (0..64).filter(|number| links >> number & 1 == 1).collect()
}

/// One link of a node.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Link {
    /// The sender's number of the link
    link: u8,
    /// Where it was heard
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<String>,
    /// Where it came from
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    /// up or down
    status: &'static str,
    received: u64,
    /// Sequence numbers that never came
    lost: u64,
    /// Mean deviation of the gaps (RFC 3550 §6.4.1)
    jitter_ms: f64,
    last_gap_ms: f64,
}

impl Link {
    pub(crate) fn new(number: u8, state: &LinkState, local: Option<String>, remote: Option<String>) -> Self {
        Link {
            link: number,
            local,
            remote,
            status: if state.up { "up" } else { "down" },
            received: state.received,
            lost: state.lost,
            jitter_ms: millis(state.jitter),
            last_gap_ms: millis(state.last_gap),
        }
    }
}

/// What `send` prints at its end.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Sent {
    /// Datagrams that left
    pub(crate) sent: u64,
    /// Datagrams that the system refused
    pub(crate) failed: u64,
    /// The life that the beats were from
    pub(crate) incarnation: u64,
    /// The last beat
    pub(crate) sequence: u64,
    pub(crate) links: Vec<SentLink>,
}

/// One link of a sender.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SentLink {
    pub(crate) link: u8,
    pub(crate) remote: String,
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    /// Why the last failure was one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The word of an event.
pub(crate) fn event(what: &What) -> &'static str {
    match what {
        What::Up => "up",
        What::Late => "late",
        What::Down => "down",
        What::Restart => "restart",
        What::Goodbye => "goodbye",
        What::LinkUp(_) | What::HeardAgain(_) => "link-up",
        What::LinkDown(_) => "link-down",
        What::OneWay | What::Unheard(_) => "one-way",
    }
}

/// Why, where the event's word does not say it.
pub(crate) fn reason(what: &What, peer: &Peer, node: &str) -> Option<String> {
    match what {
        What::Late if peer.status == Status::Unknown => Some("never heard since the start".to_owned()),
        What::OneWay => Some(format!("{node} is heard and does not hear us")),
        What::Unheard(link) => Some(format!("{node} does not hear us on link {link}")),
        What::HeardAgain(link) => Some(format!("{node} hears us on link {link} again")),
        What::LinkUp(link) | What::LinkDown(link) => Some(format!("link {link}")),
        _ => None,
    }
}

/// A record on its way in a beat.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traveller {
    /// Its text up to where `valid_for_ms` goes, without the closing brace.
    text: String,
    /// What was left of its validity when it was read.
    valid_for_ms: Option<f64>,
    read_at: Tick,
    /// Its text without `time`, to see whether there is news.
    pub(crate) content: Vec<u8>,
    /// Its kind and subject: a newer record about the same takes its place.
    pub(crate) about: (String, Option<String>),
}

/// Whether a field of a record of this kind leaves the machine.
fn travels(kind: &str, key: &str) -> bool {
    const OURS: [&str; 3] = ["received_ms", "boot_id", "valid_for_ms"];
    if kind == "heartbeat.recv" { ["kind", "host", "view"].contains(&key) } else { !OURS.contains(&key) }
}

/// Appends what a record says, apart from when it was written.
fn put_content(record: &Line<'_>, kind: &str, into: &mut Vec<u8>) {
    for (key, value) in record.fields().filter(|(key, _)| *key != "time" && travels(kind, key)) {
        // A string cannot fail to serialise.
        let _ = serde_json::to_writer(&mut *into, key);
        into.push(b':');
        into.extend_from_slice(value.get().as_bytes());
    }
    // Values have no newline, since they come from lines.
    into.push(b'\n');
}

impl Traveller {
    /// Takes a record that shall travel; what belongs to this machine alone stays here.
    ///
    /// Of a `heartbeat.recv` record only `kind`, `host` and `view` travel: a beat inside a beat would grow
    /// without end.
    ///
    /// # Errors
    /// No record with a `kind`.
    pub(crate) fn read(line: &str, now: Tick) -> Result<Self, String> {
        let record = Line::parse(line)?;
        let kind: String = record.get("kind")?.ok_or("it has no 'kind'")?;
        let received: Option<f64> = record.get("received_ms")?;
        let held_ms = received.map_or(0.0, |received| (now.as_ms() - received).max(0.0));
        let valid_for_ms = record.get::<f64>("valid_for_ms")?.map(|valid| (valid - held_ms).max(0.0));
        let mut text = String::from("{");
        for (key, value) in record.fields().filter(|(key, _)| travels(&kind, key)) {
            let separator = if text.len() > 1 { "," } else { "" };
            let name = serde_json::to_string(key).map_err(|error| error.to_string())?;
            text.push_str(separator);
            text.push_str(&name);
            text.push(':');
            text.push_str(value.get());
        }
        let mut content = Vec::new();
        put_content(&record, &kind, &mut content);
        let subject = record.get("subject").ok().flatten();
        Ok(Traveller { text, valid_for_ms, read_at: now, content, about: (kind, subject) })
    }

    /// The record as it leaves at `now`, its validity shortened by the time that it waited here.
    pub(crate) fn line(&self, now: Tick) -> String {
        let mut line = self.text.clone();
        if let Some(valid) = self.valid_for_ms {
            let left = (valid - millis(now.since(self.read_at))).max(0.0);
            // Writing to a String does not fail.
            let _ = write!(line, ",\"valid_for_ms\":{}", (left * 1000.0).round() / 1000.0);
        }
        line.push('}');
        line
    }
}

/// What this node hears of the others, as a record that fits a beat.
pub(crate) fn view_line(host: &str, view: &BTreeMap<String, String>) -> String {
    #[derive(Serialize)]
    struct View<'a> {
        kind: &'static str,
        host: &'a str,
        view: &'a BTreeMap<String, String>,
    }
    serde_json::to_string(&View { kind: "heartbeat.recv", host, view }).unwrap_or_default()
}

/// The records of a payload, each with the time that it reached this machine.
///
/// # Errors
/// A line that is no record.
pub(crate) fn arrived(payload: &str, now: Tick) -> Result<Vec<Box<RawValue>>, String> {
    payload
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let record = Line::parse(line)?;
            let mut text = format!("{{\"received_ms\":{}", now.as_ms()).into_bytes();
            record.copy_rest(&["received_ms", "boot_id"], &mut text);
            text.push(b'}');
            // The fields come from a parsed object, so the text is one again; `kind` stands first
            // in our own records, and order means nothing to a reader.
            serde_json::from_slice::<Box<RawValue>>(&text).map_err(|error| error.to_string())
        })
        .collect()
}

/// What a payload says, whenever it was written and however long it holds.
///
/// # Errors
/// A line that is no record.
pub(crate) fn content(payload: &str) -> Result<Vec<u8>, String> {
    let mut content = Vec::with_capacity(payload.len());
    for line in payload.lines().filter(|line| !line.is_empty()) {
        let record = Line::parse(line)?;
        let kind: Cow<'_, str> = record.get("kind").ok().flatten().unwrap_or_default();
        put_content(&record, &kind, &mut content);
    }
    Ok(content)
}

/// `subject` and `config` of a `bucket.state` record, for the comparison between nodes.
pub(crate) fn config_of(payload: &str) -> Option<(String, String)> {
    payload.lines().find_map(|record| {
        let line = Line::parse(record).ok()?;
        (line.get::<String>("kind").ok()?.as_deref() == Some("bucket.state")).then_some(())?;
        Some((line.get("subject").ok()??, line.get("config").ok()??))
    })
}

/// What `recv` keeps for `send`, for as long as it lives: our session and whom we hear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// Our nonce, as hex: a JSON number would lose bits.
    pub(crate) nonce: String,
    pub(crate) heard: BTreeMap<String, Heard>,
    /// What is heard of each node; our beats say it, for those who never heard one themselves.
    #[serde(default)]
    pub(crate) view: BTreeMap<String, String>,
}

/// What our beats echo of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heard {
    /// The nonce that it was last heard with.
    pub(crate) nonce: String,
    /// A bit for each of its links that is heard.
    pub(crate) links: u64,
}

/// What `recv` remembers of senders beyond its own life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) nodes: BTreeMap<String, Life>,
}

/// A sender's life and its last beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

pub(crate) const RECV_COLUMNS: &[Column] = &[
    column("time", "TIME"),
    column("subject", "NODE"),
    column("event", "EVENT"),
    column("status", "STATUS"),
    column("hears_us", "HEARS_US"),
    column("sequence", "SEQUENCE"),
    column("reason", "REASON"),
];

pub(crate) const SEND_COLUMNS: &[Column] = &[
    column("subject", "NODE"),
    column("sent", "SENT"),
    column("failed", "FAILED"),
    column("incarnation", "INCARNATION"),
    column("sequence", "SEQUENCE"),
];

pub(crate) const RECV_SCHEMA: (&str, &str) = ("heartbeat.recv", include_str!("schema/heartbeat.recv.json"));
pub(crate) const SEND_SCHEMA: (&str, &str) = ("heartbeat.send", include_str!("schema/heartbeat.send.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;
    use std::time::Duration;

    #[test]
    fn schema_of_heartbeat() {
        check::<Recv<'static>>(
            "heartbeat.recv",
            "What is heard of a node, when something changes and again for renewal",
        );
        check::<Sent>("heartbeat.send", "What was sent, at the end of the run");
    }

    fn at(ms: u64) -> Tick {
        Tick(Duration::from_millis(ms))
    }

    #[test]
    fn a_record_loses_what_is_this_machine_s_and_the_time_that_it_waited() {
        let line =
            r#"{"kind":"health.score","host":"n1","received_ms":1000,"boot_id":"b","valid_for_ms":500,"priority":75}"#;
        let record = Traveller::read(line, at(1100)).unwrap();
        assert_eq!(record.line(at(1150)), r#"{"kind":"health.score","host":"n1","priority":75,"valid_for_ms":350}"#);
        assert_eq!(record.line(at(9000)), r#"{"kind":"health.score","host":"n1","priority":75,"valid_for_ms":0}"#);
    }

    #[test]
    fn a_beat_does_not_grow_inside_a_beat() {
        let line = r#"{"kind":"heartbeat.recv","v":1,"host":"n1","view":{"n2":"up"},"payload":[{"kind":"x"}]}"#;
        assert_eq!(
            Traveller::read(line, at(0)).unwrap().line(at(0)),
            r#"{"kind":"heartbeat.recv","host":"n1","view":{"n2":"up"}}"#
        );
    }

    #[test]
    fn news_is_what_differs_in_more_than_its_time() {
        let line = |time: &str, own: &str| format!(r#"{{"kind":"bucket.state","time":"{time}","own":"{own}"}}"#);
        let content = |time: &str, own: &str| content(&line(time, own)).unwrap();
        assert_eq!(content("1", "1-3"), content("2", "1-3"));
        assert_ne!(content("1", "1-3"), content("1", "1-2"));
        assert_ne!(content("1", "1-3"), super::content("").unwrap());
        assert!(super::content("nonsense").is_err());
    }

    #[test]
    fn a_payload_is_stamped_with_its_arrival_here() {
        let records = arrived("{\"kind\":\"x\",\"received_ms\":7}\n\n{\"kind\":\"y\"}\n", at(5)).unwrap();
        assert_eq!(records[0].get(), r#"{"received_ms":5,"kind":"x"}"#);
        assert_eq!(records.len(), 2);
        assert!(arrived("nonsense", at(5)).is_err());
    }

    #[test]
    fn the_digest_of_a_node_s_buckets_is_found() {
        let payload = r#"{"kind":"bucket.state","subject":"192.0.2.1","config":"ab"}"#;
        assert_eq!(config_of(payload), Some(("192.0.2.1".to_owned(), "ab".to_owned())));
    }
}
