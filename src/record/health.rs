//! Records of `health`.

use super::envelope::{Column, column};
use super::line::{Line, ROOM, takes};
use super::text;
use crate::decide::monitor::{Fault, Past};
use crate::decide::score::{self, Service, Tally};
use crate::types::status::Status;
use crate::types::time::{Tick, WallTime, millis};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// What every check prints, before what it has measured.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Round<B> {
    /// From a fault to the record that tells it, with these settings; a refusal is told by the first probe
    pub(crate) detect_ms: Range,
    /// timeout, refused, reset, unreachable, bad-answer, limit, read-only or local: why the last probe failed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<&'static str>,
    /// Probes in a row that said the same as the last
    pub(crate) attempts: u32,
    /// Since when the status is what it is, in this run
    #[serde(serialize_with = "text::display")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) since: WallTime,
    /// What was measured; absent where it could not be looked at
    #[serde(flatten)]
    pub(crate) body: Option<B>,
}

/// The least and the most.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Range {
    min: f64,
    max: f64,
}

impl Range {
    pub(crate) fn new((min, max): (Duration, Duration)) -> Self {
        Range { min: millis(min), max: millis(max) }
    }
}

/// The word of a fault.
pub(crate) fn failure(fault: Option<Fault>) -> Option<&'static str> {
    fault.map(Fault::as_str)
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Link {
    /// Up, and something at the other end
    pub(crate) carrier: bool,
    /// notpresent, down, lowerlayerdown, testing, dormant, up or unknown (RFC 2863)
    pub(crate) operstate: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speed_mbit: Option<u64>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Load {
    pub(crate) load1: f64,
    pub(crate) load5: f64,
    pub(crate) load15: f64,
    /// CPUs that are online
    pub(crate) cpus: usize,
    /// The limit for all CPUs together
    pub(crate) limit_load: f64,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Disk {
    /// Of what an ordinary user can have
    pub(crate) used_pct: f64,
    pub(crate) available_bytes: u64,
    /// Inodes in use, where the file system counts them
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes_pct: Option<f64>,
    pub(crate) read_only: bool,
    pub(crate) limit_pct: f64,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Memory {
    /// What can be had without swapping
    pub(crate) available_bytes: u64,
    pub(crate) limit_bytes: u64,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tcp {
    /// The address that accepted, else the last that did not
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connect_ms: Option<f64>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Http {
    pub(crate) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response_ms: Option<f64>,
    /// Whether the text was in the first 64 KiB, where one was asked for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) matched: Option<bool>,
    /// What was wrong with the answer, where it was none: a certificate, a protocol
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ping {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    pub(crate) loss_pct: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_min_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_avg_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_max_ms: Option<f64>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Dns {
    pub(crate) server: String,
    /// NOERROR, NXDOMAIN, SERVFAIL, … as the server said
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rcode: Option<String>,
    /// The records of the type asked for, sorted
    pub(crate) answers: Vec<String>,
    /// So many more are not named, since the line would be too long to be read
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answers_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response_ms: Option<f64>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Process {
    /// The first of them, or that of the pid file
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// How many there are
    pub(crate) count: usize,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Exec {
    pub(crate) argv0: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_status: Option<i32>,
    /// The signal that ended it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    pub(crate) runtime_ms: f64,
    /// The first 1,024 bytes that it printed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
}

impl Dns {
    /// Takes the answers that a line has room for.
    pub(crate) fn answer(&mut self, answers: Vec<String>) {
        let (mut room, total) = (ROOM, answers.len());
        self.answers = answers.into_iter().take_while(|answer| takes(&mut room, answer, 1)).collect();
        self.answers_left_out = Some(total - self.answers.len()).filter(|left_out| *left_out > 0);
    }
}

/// A verdict as it came in: any record with a subject and a status.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) subject: String,
    pub(crate) status: Status,
    pub(crate) renewal: bool,
    /// When it reached this machine, where it says so.
    pub(crate) received_ms: Option<f64>,
    pub(crate) valid_for_ms: Option<f64>,
    pub(crate) boot_id: Option<String>,
    /// Its own time, for one that came from a file without an arrival.
    pub(crate) time: Option<String>,
}

/// Reads a line as a verdict on a service of `node`; none for a record of another shape, and for what
/// another node wrote, which is about that node. One without a host is ours.
///
/// # Errors
/// No record, or a field of the wrong type.
pub(crate) fn verdict(line: &Line<'_>, node: &str) -> Result<Option<Verdict>, String> {
    // What somebody concluded from services is no service.
    if line.get::<String>("kind")?.as_deref() == Some("health.score") {
        return Ok(None);
    }
    if line.get::<String>("host")?.is_some_and(|host| host != node) {
        return Ok(None);
    }
    let (Some(subject), Some(status)) = (line.get::<String>("subject")?, line.parsed::<Status>("status")?) else {
        return Ok(None);
    };
    Ok(Some(Verdict {
        subject,
        status,
        renewal: line.get("renewal")?.unwrap_or_default(),
        received_ms: line.get("received_ms")?,
        valid_for_ms: line.get("valid_for_ms")?,
        boot_id: line.get("boot_id")?,
        time: line.get("time")?,
    }))
}

/// What `damp` writes of its own.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Damped {
    /// What was said, before damping
    #[serde(serialize_with = "text::display")]
    #[cfg_attr(test, schemars(with = "super::envelope::StatusText"))]
    pub(crate) raw_status: Status,
    /// It goes up and down too often
    pub(crate) flapping: bool,
    /// 1000 for each flap, halved every 15 minutes (RFC 2439)
    pub(crate) penalty: f64,
    /// How long --penalty will keep it down, unless it flaps again
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suppressed_for_ms: Option<f64>,
    /// How often the status has changed
    pub(crate) changes: u64,
}

/// The record of a mapper: its own fields, then those of the line as they stand there.
pub(crate) struct Mapped<'a> {
    pub(crate) own: Damped,
    pub(crate) line: &'a Line<'a>,
    /// Keys of the envelope that are written already.
    pub(crate) written: &'static [&'static str],
}

impl Mapped<'_> {
    /// The keys that `damp` writes by itself.
    const OWN: [&'static str; 5] = ["raw_status", "flapping", "penalty", "suppressed_for_ms", "changes"];
}

impl Serialize for Mapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("raw_status", self.own.raw_status.as_str())?;
        map.serialize_entry("flapping", &self.own.flapping)?;
        map.serialize_entry("penalty", &self.own.penalty)?;
        if let Some(left) = self.own.suppressed_for_ms {
            map.serialize_entry("suppressed_for_ms", &left)?;
        }
        map.serialize_entry("changes", &self.own.changes)?;
        for (key, value) in self.line.fields() {
            if !self.written.contains(&key) && !Self::OWN.contains(&key) {
                map.serialize_entry::<str, RawValue>(key, value)?;
            }
        }
        map.end()
    }
}

/// What `score` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Score {
    /// none, all, one or progressive
    pub(crate) policy: &'static str,
    /// The priority when all is well: one number, or one for each VIP
    pub(crate) base: Base,
    /// What is left of it; 0 gives the address up at once. Absent where nothing is known yet
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u8>,
    /// The same for each VIP
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priorities: Option<BTreeMap<String, u8>>,
    pub(crate) up: usize,
    pub(crate) down: usize,
    pub(crate) unknown: usize,
    pub(crate) total: usize,
    /// Each service, and what it counts as; left out with --brief
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) services: Option<Vec<Counted>>,
    /// So many services that count as up are not named, since the line would be too long to be read
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) services_left_out: Option<usize>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Base {
    One(u8),
    Each(BTreeMap<String, u8>),
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counted {
    subject: String,
    status: &'static str,
    counted_as: &'static str,
}

impl Counted {
    /// The services that a line has room for, and how many it has not: first those that are down.
    fn fitting(tally: &Tally) -> (Option<Vec<Counted>>, usize) {
        // What the keys and the words of one take at most.
        const WORDS: usize = 60;
        let mut room = ROOM;
        let mut fits = |service: &&score::Counted| takes(&mut room, &service.subject, WORDS);
        let (down, up): (Vec<_>, Vec<_>) =
            tally.services.iter().partition(|service| service.counted_as == Status::Down);
        let mut named: Vec<&score::Counted> = down.into_iter().chain(up).filter(|service| fits(service)).collect();
        named.sort_by(|one, other| one.subject.cmp(&other.subject));
        let left_out = tally.services.len() - named.len();
        let named = named.into_iter().map(|service| Counted {
            subject: service.subject.clone(),
            status: service.status.as_str(),
            counted_as: service.counted_as.as_str(),
        });
        (Some(named.collect()), left_out)
    }
}

impl Score {
    /// A conclusion, without priorities.
    pub(crate) fn new(policy: &'static str, base: Base, tally: &Tally, brief: bool) -> Self {
        let (services, left_out) = if brief { (None, 0) } else { Counted::fitting(tally) };
        Score {
            policy,
            base,
            priority: None,
            priorities: None,
            up: tally.count(Status::Up),
            down: tally.count(Status::Down),
            unknown: tally.count(Status::Unknown),
            total: tally.services.len(),
            services,
            services_left_out: (left_out > 0).then_some(left_out),
        }
    }
}

/// What `damp` remembers from run to run.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Damping {
    subjects: BTreeMap<String, Remembered>,
}

/// One subject; points of time in milliseconds since boot.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Remembered {
    #[serde(default)]
    arrived_ms: f64,
    raw: String,
    status: String,
    verdict: String,
    good: u32,
    bad: u32,
    untold: u32,
    penalty: f64,
    at_ms: f64,
    flapping: bool,
    fell_ms: Option<f64>,
    changes: u64,
}

/// What `key` of a record or a state file gives in milliseconds: a point since boot, or a span.
///
/// # Errors
/// Nothing that could be one.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded
pub(crate) fn tick(key: &str, ms: f64) -> Result<Tick, String> {
    if ms.is_finite() && (0.0..1e15).contains(&ms) {
        Ok(Tick(Duration::from_micros((ms * 1000.0) as u64)))
    } else {
        Err(format!("{key} is {ms:?}, which is not milliseconds from 0 to 1e15"))
    }
}

impl Damping {
    pub(crate) fn new(subjects: &BTreeMap<String, Past>) -> Self {
        let subjects = subjects.iter().map(|(subject, past)| {
            let memory = Remembered {
                arrived_ms: past.arrived.as_ms(),
                raw: past.raw.to_string(),
                status: past.status.to_string(),
                verdict: past.verdict.to_string(),
                good: past.good,
                bad: past.bad,
                untold: past.untold,
                penalty: past.penalty,
                at_ms: past.at.as_ms(),
                flapping: past.flapping,
                fell_ms: past.fell.map(Tick::as_ms),
                changes: past.changes,
            };
            (subject.clone(), memory)
        });
        Damping { subjects: subjects.collect() }
    }

    /// What was remembered.
    ///
    /// # Errors
    /// A word or a time that is none.
    pub(crate) fn read(self) -> Result<BTreeMap<String, Past>, String> {
        let read = |(subject, memory): (String, Remembered)| {
            let penalty = memory.penalty;
            if !penalty.is_finite() || penalty < 0.0 {
                return Err(format!("{penalty} is no penalty"));
            }
            let past = Past {
                arrived: tick("arrived_ms", memory.arrived_ms)?,
                raw: memory.raw.parse()?,
                status: memory.status.parse()?,
                verdict: memory.verdict.parse()?,
                good: memory.good,
                bad: memory.bad,
                untold: memory.untold,
                penalty,
                at: tick("at_ms", memory.at_ms)?,
                flapping: memory.flapping,
                fell: memory.fell_ms.map(|ms| tick("fell_ms", ms)).transpose()?,
                changes: memory.changes,
            };
            Ok((subject, past))
        };
        self.subjects.into_iter().map(read).collect()
    }
}

/// What `score` remembers from run to run: the last verdict on each service.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    services: BTreeMap<String, Held>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    status: String,
    until_ms: Option<f64>,
}

impl Known {
    pub(crate) fn new(services: &BTreeMap<String, Service>) -> Self {
        let held = services.iter().filter_map(|(subject, service)| {
            let (status, until) = service.verdict()?;
            Some((subject.clone(), Held { status: status.to_string(), until_ms: until.map(Tick::as_ms) }))
        });
        Known { services: held.collect() }
    }

    /// What was remembered.
    ///
    /// # Errors
    /// A word or a time that is none.
    pub(crate) fn read(self) -> Result<BTreeMap<String, Service>, String> {
        let read = |(subject, held): (String, Held)| {
            let until = held.until_ms.map(|ms| tick("until_ms", ms)).transpose()?;
            Ok((subject, Service::remembered(held.status.parse()?, until)))
        };
        self.services.into_iter().map(read).collect()
    }
}

macro_rules! columns {
    ($($key:literal $title:literal),*) => {
        &[column("subject", "SUBJECT"), column("status", "STATUS"), $(column($key, $title),)* column("failure", "FAILURE")]
    };
}

pub(crate) const LINK_COLUMNS: &[Column] =
    columns!("carrier" "CARRIER", "operstate" "OPERSTATE", "speed_mbit" "SPEED_MBIT");
pub(crate) const LOAD_COLUMNS: &[Column] =
    columns!("load1" "LOAD1", "load5" "LOAD5", "load15" "LOAD15", "cpus" "CPUS", "limit_load" "LIMIT_LOAD");
pub(crate) const DISK_COLUMNS: &[Column] =
    columns!("used_pct" "USED_PCT", "inodes_pct" "INODES_PCT", "read_only" "READ_ONLY", "limit_pct" "LIMIT_PCT");
pub(crate) const MEMORY_COLUMNS: &[Column] = columns!("available_bytes" "AVAILABLE_BYTES", "limit_bytes" "LIMIT_BYTES");
pub(crate) const TCP_COLUMNS: &[Column] = columns!("address" "ADDRESS", "port" "PORT", "connect_ms" "CONNECT_MS");
pub(crate) const HTTP_COLUMNS: &[Column] =
    columns!("http_status" "HTTP_STATUS", "response_ms" "RESPONSE_MS", "matched" "MATCHED");
pub(crate) const PING_COLUMNS: &[Column] =
    columns!("sent" "SENT", "received" "RECEIVED", "loss_pct" "LOSS_PCT", "rtt_avg_ms" "RTT_AVG_MS");
pub(crate) const DNS_COLUMNS: &[Column] =
    columns!("server" "SERVER", "rcode" "RCODE", "answers" "ANSWERS", "response_ms" "RESPONSE_MS");
pub(crate) const PROCESS_COLUMNS: &[Column] = columns!("pid" "PID", "count" "COUNT");
pub(crate) const EXEC_COLUMNS: &[Column] =
    columns!("exit_status" "EXIT_STATUS", "signal" "SIGNAL", "runtime_ms" "RUNTIME_MS", "output" "OUTPUT");
pub(crate) const DAMP_COLUMNS: &[Column] = &[
    column("time", "TIME"),
    column("subject", "SUBJECT"),
    column("status", "STATUS"),
    column("raw_status", "RAW_STATUS"),
    column("flapping", "FLAPPING"),
    column("penalty", "PENALTY"),
    column("changes", "CHANGES"),
];
pub(crate) const SCORE_COLUMNS: &[Column] = &[
    column("time", "TIME"),
    column("subject", "NODE"),
    column("status", "STATUS"),
    column("policy", "POLICY"),
    column("priority", "PRIORITY"),
    column("priorities", "PRIORITIES"),
    column("up", "UP"),
    column("down", "DOWN"),
    column("unknown", "UNKNOWN"),
    column("standby", "STANDBY"),
];

macro_rules! schema {
    ($kind:literal) => {
        ($kind, include_str!(concat!("schema/", $kind, ".json")))
    };
}

pub(crate) const LINK_SCHEMA: (&str, &str) = schema!("health.link");
pub(crate) const LOAD_SCHEMA: (&str, &str) = schema!("health.load");
pub(crate) const DISK_SCHEMA: (&str, &str) = schema!("health.disk");
pub(crate) const MEMORY_SCHEMA: (&str, &str) = schema!("health.memory");
pub(crate) const TCP_SCHEMA: (&str, &str) = schema!("health.tcp");
pub(crate) const HTTP_SCHEMA: (&str, &str) = schema!("health.http");
pub(crate) const PING_SCHEMA: (&str, &str) = schema!("health.ping");
pub(crate) const DNS_SCHEMA: (&str, &str) = schema!("health.dns");
pub(crate) const PROCESS_SCHEMA: (&str, &str) = schema!("health.process");
pub(crate) const EXEC_SCHEMA: (&str, &str) = schema!("health.exec");
pub(crate) const DAMP_SCHEMA: (&str, &str) = schema!("health.damp");
pub(crate) const SCORE_SCHEMA: (&str, &str) = schema!("health.score");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::decide::monitor::Damping as Settings;
    use crate::decide::score::Word;
    use crate::record::line::MAX_LINE;
    use crate::record::schema::{check, check_open};

    #[test]
    fn schema_of_health() {
        check::<Round<Link>>("health.link", "Whether an interface carries anything");
        check::<Round<Load>>("health.load", "Whether there is more to run than this host can");
        check::<Round<Disk>>("health.disk", "Whether a file system has room and is mounted to be written to");
        check::<Round<Memory>>("health.memory", "Whether there is memory to be had");
        check::<Round<Tcp>>("health.tcp", "Whether something accepts connections");
        check::<Round<Http>>("health.http", "Whether a server answers as it should");
        check::<Round<Ping>>("health.ping", "Whether a host answers echoes");
        check::<Round<Dns>>("health.dns", "Whether a server knows a name");
        check::<Round<Process>>("health.process", "Whether a program runs");
        check::<Round<Exec>>("health.exec", "Whether a command is content");
        check_open::<Damped>("health.damp", "A verdict, damped; the rest of it as it came");
        check::<Score>("health.score", "The priority that is left to this node");
    }

    #[test]
    fn a_verdict_is_known_by_its_shape() {
        let read = |text: &str| verdict(&Line::parse(text).unwrap(), "n1");
        let one = read(r#"{"kind":"x","subject":"a","status":"up","valid_for_ms":5}"#).unwrap().unwrap();
        assert_eq!((one.subject.as_str(), one.status, one.valid_for_ms), ("a", Status::Up, Some(5.0)));
        for other in [
            r#"{"kind":"x","subject":"a"}"#,
            r#"{"status":"up"}"#,
            r#"{"kind":"health.score","subject":"n1","status":"up"}"#,
            r#"{"host":"n2","subject":"a","status":"up"}"#,
        ] {
            assert!(read(other).unwrap().is_none(), "{other}");
        }
        for wrong in [r#"{"subject":7,"status":"up"}"#, r#"{"subject":"a","status":"fine"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_remembered_reads_back() {
        let settings = Settings { rise: 2, fall: 1, hold: Duration::from_secs(1), penalty: true };
        let now = Tick(Duration::from_millis(1500));
        let past = Past::new(now).damp(settings, Status::Down, now);
        let subjects = BTreeMap::from([("a".to_owned(), past)]);
        assert_eq!(Damping::new(&subjects).read().unwrap(), subjects);
        let mut service = Service::SILENT;
        service.note(Word { status: Status::Up, arrived: now, expires: Some(now) });
        let back = Known::new(&BTreeMap::from([("a".to_owned(), service)])).read().unwrap();
        assert_eq!(back["a"].verdict(), service.verdict());
        assert!(tick("x", f64::NAN).is_err() && tick("x", -1.0).is_err());
        assert_eq!(tick("until_ms", 1e300).unwrap_err(), "until_ms is 1e300, which is not milliseconds from 0 to 1e15");
    }

    #[test]
    fn what_a_line_has_no_room_for_is_counted() {
        let mut services = BTreeMap::new();
        for number in 0..10_000 {
            let mut service = Service::SILENT;
            let status = if number == 9_999 { Status::Down } else { Status::Up };
            service.note(Word { status, arrived: Tick(Duration::ZERO), expires: None });
            services.insert(format!("\"{number:040}\""), service);
        }
        let tally = Tally::new(&services, score::Unknown::Hold, Tick(Duration::ZERO));
        let score = Score::new("all", Base::One(100), &tally, false);
        let named = score.services.as_ref().unwrap();
        assert_eq!(named.len() + score.services_left_out.unwrap(), 10_000);
        assert_eq!(named.last().unwrap().counted_as, "down", "what is down is named");
        let text = serde_json::to_string(&score).unwrap();
        assert!((ROOM / 2..MAX_LINE * 3 / 4).contains(&text.len()), "{}", text.len());
        assert_eq!(Score::new("all", Base::One(100), &tally, true).services_left_out, None);
        let mut dns =
            Dns { server: String::new(), rcode: None, answers: Vec::new(), answers_left_out: None, response_ms: None };
        dns.answer(vec!["\"".repeat(255); 200]);
        assert_eq!(dns.answers.len() + dns.answers_left_out.unwrap(), 200);
        let length = serde_json::to_string(&dns).unwrap().len();
        assert!((ROOM / 2..MAX_LINE * 3 / 4).contains(&length), "{length}");
        dns.answer(vec!["192.0.2.1".to_owned()]);
        assert_eq!((dns.answers.len(), dns.answers_left_out), (1, None));
    }

    #[test]
    fn a_mapped_line_keeps_what_it_does_not_know_byte_for_byte() {
        let line =
            Line::parse(r#"{"kind":"x","subject":"a","status":"up","penalty":7,"big":18446744073709551617,"e":1e2}"#)
                .unwrap();
        let own = Damped { raw_status: Status::Up, flapping: false, penalty: 0.0, suppressed_for_ms: None, changes: 1 };
        let text =
            serde_json::to_string(&Mapped { own, line: &line, written: &["kind", "subject", "status"] }).unwrap();
        assert_eq!(
            text,
            r#"{"raw_status":"up","flapping":false,"penalty":0.0,"changes":1,"big":18446744073709551617,"e":1e2}"#
        );
    }
}
