//! etcd's v3 API in JSON, as its gRPC gateway speaks it (etcd 3.4 and later, `api_grpc_gateway.md`, `rpc.proto`).
//!
//! Bytes travel as base64, 64-bit numbers as strings, and what is zero, false or empty is left out. An answer can
//! have text behind its JSON (`Grpc-Trailer-...`), and a stream is one object after another.

use crate::types::store::{Change, Condition, Entry, Keys, Lease, LeaseId, Outcome, Step, Transaction};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) const TXN: &str = "/v3/kv/txn";
pub(crate) const GRANT: &str = "/v3/lease/grant";
pub(crate) const KEEP: &str = "/v3/lease/keepalive";
pub(crate) const REVOKE: &str = "/v3/lease/revoke";
pub(crate) const WATCH: &str = "/v3/watch";
pub(crate) const MEMBERS: &str = "/v3/cluster/member/list";
pub(crate) const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// What is no answer of etcd's, and why.
pub(crate) type Result<T> = std::result::Result<T, String>;

fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The first key after all that begin with `prefix` (`clientv3.GetPrefixRangeEnd`); a zero byte is the end of all.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// `key` and `range_end` of some keys.
fn range(keys: &Keys) -> Value {
    match keys {
        Keys::One(key) => json!({"key": base64(key)}),
        Keys::Prefix(prefix) if prefix.is_empty() => json!({"key": base64(&[0]), "range_end": base64(&[0])}),
        Keys::Prefix(prefix) => json!({"key": base64(prefix), "range_end": base64(&end_of(prefix))}),
    }
}

fn condition(condition: &Condition) -> Value {
    match condition {
        Condition::Revision(key, revision) => {
            json!({"key": base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()})
        }
        Condition::Created(key, created) => {
            json!({"key": base64(key), "target": "CREATE", "result": "EQUAL", "create_revision": created.to_string()})
        }
    }
}

fn step(step: &Step) -> Value {
    let with = |mut body: Value, key: &str, value: Value| {
        body[key] = value;
        body
    };
    match step {
        Step::Get(keys) => json!({"request_range": range(keys)}),
        Step::Put { key, value, lease } => {
            let body = json!({"key": base64(key), "value": base64(value), "prev_kv": true});
            let body = if *lease == 0 { body } else { with(body, "lease", lease.to_string().into()) };
            json!({"request_put": body})
        }
        Step::Delete(keys) => json!({"request_delete_range": with(range(keys), "prev_kv", true.into())}),
    }
}

/// The body of [`TXN`].
pub(crate) fn transaction(transaction: &Transaction) -> Vec<u8> {
    let when: Vec<Value> = transaction.when.iter().map(condition).collect();
    let steps = |steps: &[Step]| -> Vec<Value> { steps.iter().map(step).collect() };
    let body = json!({"compare": when, "success": steps(&transaction.then), "failure": steps(&transaction.otherwise)});
    body.to_string().into_bytes()
}

/// The body of [`GRANT`]. etcd counts whole seconds, and gives more where that is its least.
pub(crate) fn grant(ttl: Duration) -> Vec<u8> {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    json!({"TTL": seconds.to_string()}).to_string().into_bytes()
}

/// The body of [`KEEP`] and of [`REVOKE`].
pub(crate) fn lease(lease: LeaseId) -> Vec<u8> {
    json!({"ID": lease.to_string()}).to_string().into_bytes()
}

/// The body of [`WATCH`]: the changes of some keys from revision `from` on.
pub(crate) fn watch(keys: &Keys, from: u64) -> Vec<u8> {
    let mut request = range(keys);
    request["start_revision"] = from.to_string().into();
    json!({"create_request": request}).to_string().into_bytes()
}

/// The body of [`AUTHENTICATE`].
pub(crate) fn authenticate(name: &str, password: &str) -> Vec<u8> {
    json!({"name": name, "password": password}).to_string().into_bytes()
}

/// A 64-bit number: a string, as protobuf's JSON has it, or a number.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
        /// An identity above what is signed.
        Large(u64),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Either::Large(number) => Err(serde::de::Error::custom(format!("{number} is above 2^63"))),
    }
}

fn bytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map_err(serde::de::Error::custom)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Header {
    /// An identity, 64 bits without a sign.
    cluster_id: String,
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pair {
    #[serde(deserialize_with = "bytes")]
    key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    create_revision: i64,
    #[serde(deserialize_with = "number")]
    mod_revision: i64,
    #[serde(deserialize_with = "number")]
    lease: i64,
}

impl Pair {
    fn entry(self) -> Entry {
        Entry {
            key: self.key,
            value: self.value,
            created: unsigned(self.create_revision),
            revision: unsigned(self.mod_revision),
            lease: unsigned(self.lease),
        }
    }
}

/// Revisions and leases are never below zero.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The first object of an answer; what stands behind it is the gateway's own.
fn first<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T> {
    // A list would be read as the fields of an object in their order.
    if answer.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err("it is no answer of etcd's: no JSON object".to_owned());
    }
    let mut objects = serde_json::Deserializer::from_slice(answer).into_iter::<T>();
    match objects.next() {
        Some(Ok(object)) => Ok(object),
        Some(Err(error)) => Err(format!("it is no answer of etcd's: {error}")),
        None => Err("it is empty".to_owned()),
    }
}

/// An answer, and the cluster that gave it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<T> {
    pub(crate) cluster: String,
    pub(crate) what: T,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Found {
    kvs: Vec<Pair>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Replaced {
    prev_kv: Option<Pair>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Removed {
    prev_kvs: Vec<Pair>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    response_range: Option<Found>,
    response_put: Option<Replaced>,
    response_delete_range: Option<Removed>,
}

impl Response {
    fn entries(self) -> Vec<Entry> {
        let found = self.response_range.map(|found| found.kvs).unwrap_or_default();
        let replaced = self.response_put.and_then(|put| put.prev_kv);
        let removed = self.response_delete_range.map(|removed| removed.prev_kvs).unwrap_or_default();
        found.into_iter().chain(replaced).chain(removed).map(Pair::entry).collect()
    }
}

/// Reads the answer to [`TXN`].
pub(crate) fn read_outcome(answer: &[u8]) -> Result<Answer<Outcome>> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Made {
        header: Header,
        succeeded: bool,
        responses: Vec<Response>,
    }
    let made: Made = first(answer)?;
    let what = Outcome {
        revision: unsigned(made.header.revision),
        held: made.succeeded,
        found: made.responses.into_iter().map(Response::entries).collect(),
        doubt: false,
    };
    Ok(Answer { cluster: made.header.cluster_id, what })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Granted {
    header: Header,
    #[serde(rename = "ID", deserialize_with = "number")]
    id: i64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    ttl: i64,
}

impl Granted {
    /// The lease, unless it has ended: no time is left of it.
    fn lease(&self) -> Option<Lease> {
        let (id, seconds) = (unsigned(self.id), unsigned(self.ttl));
        (id > 0 && seconds > 0).then(|| Lease { id, ttl: Duration::from_secs(seconds) })
    }
}

/// Reads the answer to [`GRANT`].
pub(crate) fn read_granted(answer: &[u8]) -> Result<Answer<Lease>> {
    let granted: Granted = first(answer)?;
    let what = granted.lease().ok_or("it grants no lease")?;
    Ok(Answer { cluster: granted.header.cluster_id, what })
}

/// Reads the answer to [`KEEP`]: the lease, or that it has ended.
pub(crate) fn read_kept(answer: &[u8]) -> Result<Answer<Option<Lease>>> {
    #[derive(Deserialize)]
    struct Kept {
        result: Granted,
    }
    let kept: Kept = first(answer)?;
    Ok(Answer { what: kept.result.lease(), cluster: kept.result.header.cluster_id })
}

/// Reads the answer to [`REVOKE`].
pub(crate) fn read_revoked(answer: &[u8]) -> Result<Answer<()>> {
    let revoked: Granted = first(answer)?;
    Ok(Answer { cluster: revoked.header.cluster_id, what: () })
}

/// Reads the answer to [`MEMBERS`]: how many have a vote.
pub(crate) fn read_members(answer: &[u8]) -> Result<Answer<usize>> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Member {
        #[serde(rename = "isLearner")]
        is_learner: bool,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Members {
        header: Header,
        members: Vec<Member>,
    }
    let members: Members = first(answer)?;
    let voters = members.members.iter().filter(|member| !member.is_learner).count();
    Ok(Answer { cluster: members.header.cluster_id, what: voters })
}

/// Reads the answer to [`AUTHENTICATE`]: what the header `authorization` must have.
pub(crate) fn read_token(answer: &[u8]) -> Result<String> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Token {
        token: String,
    }
    let token: Token = first(answer)?;
    if token.token.is_empty() || !token.token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("it gives no token".to_owned());
    }
    Ok(token.token)
}

/// What a watch says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It watches, and this is the store's revision.
    Created(u64),
    Changes(Vec<Change>),
    /// The changes that it was to begin with are forgotten.
    Forgotten,
    /// It has ended, and why.
    Ended(String),
    /// Nothing that matters here.
    Nothing,
}

/// Reads one line of what [`WATCH`] sends.
pub(crate) fn read_news(line: &[u8]) -> Result<Answer<News>> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Event {
        #[serde(rename = "type")]
        kind: String,
        kv: Pair,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Told {
        header: Header,
        created: bool,
        canceled: bool,
        cancel_reason: String,
        #[serde(deserialize_with = "number")]
        compact_revision: i64,
        events: Vec<Event>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Line {
        result: Option<Told>,
        error: Option<Failure>,
    }
    let line: Line = first(line)?;
    if let Some(error) = line.error {
        return Ok(Answer { cluster: String::new(), what: News::Ended(error.words()) });
    }
    let told = line.result.ok_or("it has neither a result nor an error")?;
    let change = |event: Event| match event.kind.as_str() {
        "DELETE" => Change::Deleted { key: event.kv.key, revision: unsigned(event.kv.mod_revision) },
        _ => Change::Put(event.kv.entry()),
    };
    let what = if told.compact_revision > 0 {
        News::Forgotten
    } else if told.canceled {
        News::Ended(told.cancel_reason)
    } else if told.created {
        News::Created(unsigned(told.header.revision))
    } else if told.events.is_empty() {
        News::Nothing
    } else {
        News::Changes(told.events.into_iter().map(change).collect())
    };
    Ok(Answer { cluster: told.header.cluster_id, what })
}

/// What etcd says where it does not do what it was asked to.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Failure {
    error: String,
    message: String,
    /// Of gRPC.
    #[serde(alias = "grpc_code")]
    code: i64,
}

impl Failure {
    fn words(self) -> String {
        if self.message.is_empty() { self.error } else { self.message }
    }
}

/// Why etcd did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No member can act for all now, and nothing was begun.
    NoLeader(String),
    /// It took too long: what was asked for may be done yet.
    Unclear(String),
    /// A lease that was named has ended.
    NoSuchLease,
    /// It is full, and takes nothing in.
    Full(String),
    /// The user is not known, or may not do this.
    Denied(String),
    /// The token has ended; another one is to be had.
    OldToken,
    /// This server has no such interface: it is no etcd, or one before 3.4.
    NotThere,
    /// The request is wrong.
    Wrong(String),
}

/// Reads an answer whose status is not 200.
pub(crate) fn read_refusal(status: u16, answer: &[u8]) -> Refusal {
    // google.golang.org/grpc/codes.
    const INVALID: i64 = 3;
    const NOT_FOUND: i64 = 5;
    const DENIED: i64 = 7;
    const EXHAUSTED: i64 = 8;
    const PRECONDITION: i64 = 9;
    const UNAVAILABLE: i64 = 14;
    const UNAUTHENTICATED: i64 = 16;
    let failure: Failure = first(answer).unwrap_or_default();
    let code = failure.code;
    let words = failure.words();
    if words.is_empty() {
        // Not of etcd's API, but of its web server: plain text.
        let text = String::from_utf8_lossy(answer);
        let text: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
        let words = format!("HTTP status {status} {text}").trim_end().to_owned();
        return match status {
            404 => Refusal::NotThere,
            500..=599 => Refusal::Unclear(words),
            _ => Refusal::Wrong(words),
        };
    }
    let said = |part: &str| words.contains(part);
    match code {
        _ if said("requested lease not found") => Refusal::NoSuchLease,
        _ if said("invalid auth token") || said("revision of auth store is old") => Refusal::OldToken,
        _ if said("space exceeded") => Refusal::Full(words),
        // Said before anything is proposed (`etcdserver/v3_server.go`).
        _ if said("no leader") || said("not leader") || said("too many requests") || said("connection refused") => {
            Refusal::NoLeader(words)
        }
        DENIED | UNAUTHENTICATED => Refusal::Denied(words),
        INVALID | PRECONDITION
            if said("authentication failed") || said("authentication is not enabled") || said("user") =>
        {
            Refusal::Denied(words)
        }
        NOT_FOUND if status == 404 && !said("etcdserver") => Refusal::NotThere,
        EXHAUSTED | UNAVAILABLE => Refusal::Unclear(words),
        _ if status >= 500 => Refusal::Unclear(words),
        _ => Refusal::Wrong(words),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // What etcd 3.4.23 sends, but for spaces.
    const HEADER: &str = r#""header":{"cluster_id":"13455796455940752355","member_id":"443629905751424238","revision":"2","raft_term":"2"}"#;

    fn answer(rest: &str) -> Vec<u8> {
        format!("{{{HEADER},{rest}}}").into_bytes()
    }

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        for (prefix, end) in
            [(&b"a"[..], &b"b"[..]), (b"nodes/", b"nodes0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")]
        {
            assert_eq!(end_of(prefix), end);
        }
    }

    #[test]
    fn a_transaction_as_etcd_wants_it() {
        let asked = Transaction {
            when: vec![Condition::Created("a".into(), 0)],
            then: vec![Step::Put { key: "a".into(), value: "1".into(), lease: 7 }],
            otherwise: vec![Step::Get(Keys::Prefix("a".into())), Step::Delete(Keys::One("b".into()))],
        };
        let body: Value = serde_json::from_slice(&transaction(&asked)).unwrap();
        let wanted = json!({
            "compare": [{"key": "YQ==", "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": {"key": "YQ==", "value": "MQ==", "prev_kv": true, "lease": "7"}}],
            "failure": [
                {"request_range": {"key": "YQ==", "range_end": "Yg=="}},
                {"request_delete_range": {"key": "Yg==", "prev_kv": true}},
            ],
        });
        assert_eq!(body, wanted);
    }

    #[test]
    fn an_outcome_reads() {
        let put = answer(r#""succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}}]"#);
        let read = read_outcome(&put).unwrap();
        assert_eq!(read.cluster, "13455796455940752355");
        assert_eq!(read.what, Outcome { revision: 2, held: true, found: vec![vec![]], doubt: false });
        let found = answer(
            r#""responses":[{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"3","version":"2","value":"MQ==","lease":"9"}],"count":"1"}}]"#,
        );
        let entry = Entry { key: "a".into(), value: "1".into(), created: 2, revision: 3, lease: 9 };
        let read = read_outcome(&found).unwrap().what;
        assert_eq!((read.held, read.first()), (false, vec![entry]));
        // An empty value is left out.
        let empty = answer(r#""responses":[{"response_range":{"kvs":[{"key":"YQ==","create_revision":"2"}]}}]"#);
        assert_eq!(read_outcome(&empty).unwrap().what.first()[0].value, b"");
    }

    #[test]
    fn leases_read() {
        let granted = answer(r#""ID":"4390625007795078917","TTL":"2""#);
        let lease = Lease { id: 4_390_625_007_795_078_917, ttl: Duration::from_secs(2) };
        assert_eq!(read_granted(&granted).unwrap().what, lease);
        let kept = format!("{{\"result\":{{{HEADER},\"ID\":\"123\",\"TTL\":\"3\"}}}}\n");
        assert_eq!(read_kept(kept.as_bytes()).unwrap().what.unwrap().ttl, Duration::from_secs(3));
        let gone = format!("{{\"result\":{{{HEADER},\"ID\":\"123\"}}}}\n");
        assert_eq!(read_kept(gone.as_bytes()).unwrap().what, None);
        assert_eq!(grant(Duration::from_millis(1500)), br#"{"TTL":"2"}"#);
    }

    #[test]
    fn news_read() {
        let line = |rest: &str| format!("{{\"result\":{{{HEADER}{rest}}}}}\n").into_bytes();
        let news = |rest: &str| read_news(&line(rest)).unwrap().what;
        assert_eq!(news(r#","created":true"#), News::Created(2));
        assert_eq!(news(""), News::Nothing);
        assert_eq!(news(r#","canceled":true,"compact_revision":"5""#), News::Forgotten);
        assert_eq!(news(r#","canceled":true,"cancel_reason":"no leader""#), News::Ended("no leader".to_owned()));
        let events = r#","events":[{"kv":{"key":"YQ==","create_revision":"2","mod_revision":"2","value":"MQ=="}},{"type":"DELETE","kv":{"key":"Yg==","mod_revision":"2"}}]"#;
        let News::Changes(changes) = news(events) else { unreachable!() };
        assert_eq!(changes.len(), 2);
        assert_eq!(changes[1], Change::Deleted { key: "b".into(), revision: 2 });
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let said = |status, text: &str, code: i64| {
            let body =
                format!("{{\"error\":\"{text}\",\"message\":\"{text}\",\"code\":{code}}}Grpc-Trailer-Content-Type: x");
            read_refusal(status, body.as_bytes())
        };
        assert_eq!(said(404, "etcdserver: requested lease not found", 5), Refusal::NoSuchLease);
        assert!(matches!(said(503, "etcdserver: no leader", 14), Refusal::NoLeader(_)));
        assert!(matches!(said(503, "etcdserver: request timed out", 14), Refusal::Unclear(_)));
        assert!(matches!(said(503, "etcdserver: leader changed", 14), Refusal::Unclear(_)));
        assert!(matches!(said(429, "etcdserver: mvcc: database space exceeded", 8), Refusal::Full(_)));
        assert!(matches!(said(403, "etcdserver: permission denied", 7), Refusal::Denied(_)));
        assert!(matches!(
            said(400, "etcdserver: authentication failed, invalid user ID or password", 3),
            Refusal::Denied(_)
        ));
        assert!(matches!(said(412, "etcdserver: authentication is not enabled", 9), Refusal::Denied(_)));
        assert_eq!(said(401, "etcdserver: invalid auth token", 16), Refusal::OldToken);
        assert_eq!(read_refusal(404, b"404 page not found"), Refusal::NotThere);
        assert!(matches!(read_refusal(502, b"<html>"), Refusal::Unclear(_)));
    }

    #[test]
    fn what_is_cut_or_foreign_is_no_answer() {
        let whole = answer(r#""succeeded":true,"responses":[]"#);
        for length in 0..whole.len() {
            assert!(read_outcome(&whole[..length]).is_err(), "{length}");
        }
        assert!(read_outcome(b"{\"header\":{\"revision\":\"x\"}}").is_err());
        assert!(read_news(b"{}").is_err());
        assert!(read_token(b"{\"token\":\"a\\r\\nb: c\"}").is_err());
    }
}
