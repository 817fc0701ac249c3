//! Records of `quorum`, and the records that it counts.

use super::envelope::{Column, column};
use super::fence;
use super::line::Line;
use crate::decide::quorum::{Conclusion, Settings, Verdict};
use crate::types::status::Status;
use crate::types::time::WallTime;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What the majority says about one member.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Quorum<'a> {
    votes: Votes<'a>,
    /// How many members were named
    members: usize,
    /// Votes that make a majority: more than half of the members that are not proven off
    needed: usize,
    /// Whether this side may act for all
    quorate: bool,
    /// What settles an even split: fence
    #[serde(skip_serializing_if = "Option::is_none")]
    tie_breaker: Option<&'static str>,
    /// What this side cannot reach: ping
    #[serde(skip_serializing_if = "Option::is_none")]
    vetoed_by: Option<&'static str>,
    /// What has a veto and is reached by this node
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[cfg_attr(test, schemars(default))]
    reaches: &'a [String],
    /// Who must be heard once or proven off, or which veto has no verdict, before there is an answer
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[cfg_attr(test, schemars(default))]
    waiting_for: &'a [String],
    /// Not quorate yet, and nobody else can be: what is held may be kept, nothing taken
    #[serde(skip_serializing_if = "super::envelope::is_false")]
    #[cfg_attr(test, schemars(default))]
    may_keep: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Votes<'a> {
    up: &'a [String],
    down: &'a [String],
    /// Had a vote, and no word of theirs counts
    silent: &'a [String],
}

impl<'a> Quorum<'a> {
    pub(crate) fn new(settings: &Settings, conclusion: &'a Conclusion, verdict: &'a Verdict) -> Self {
        Quorum {
            votes: Votes { up: &verdict.votes.up, down: &verdict.votes.down, silent: &verdict.votes.silent },
            members: settings.members.len(),
            needed: conclusion.needed,
            quorate: conclusion.quorate,
            tie_breaker: settings.fence.then_some("fence"),
            vetoed_by: conclusion.vetoed.then_some("ping"),
            reaches: &conclusion.reaches,
            waiting_for: &conclusion.waiting_for,
            may_keep: conclusion.may_keep,
        }
    }
}

/// When a record was true, as it says itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stamp {
    pub(crate) received_ms: Option<f64>,
    pub(crate) boot_id: Option<String>,
    pub(crate) time: Option<WallTime>,
    pub(crate) valid_for_ms: Option<f64>,
}

/// One node's word about another, or a verdict about something else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    /// Whose word; `None` where the record does not say.
    pub(crate) reporter: Option<String>,
    pub(crate) subject: String,
    pub(crate) status: Status,
    /// Not about health, nor a majority's: a vote.
    pub(crate) is_about_life: bool,
    /// The reporter has heard the subject at some time, and did not just wait for it in vain.
    pub(crate) was_heard: bool,
    pub(crate) stamp: Stamp,
}

/// What one line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Words {
    pub(crate) words: Vec<Word>,
    /// A node has said goodbye, to this one, and when that arrived.
    pub(crate) left: Option<(String, Option<f64>)>,
    /// The life that a node is in.
    pub(crate) life: Option<(String, u64)>,
    pub(crate) proofs: Vec<fence::Proven>,
    pub(crate) renewal: bool,
}

/// What else has subjects and verdicts, and says nothing about who lives.
const OTHERS: [&str; 6] = ["health.", "vip.", "bucket.", "vrrp.", "gw.", "dns."];

/// Reads a line by its shape: whatever has `subject` and `status` is a verdict.
///
/// Verdicts about health and those of another majority are no votes about life; they can be what a veto
/// is about.
///
/// # Errors
/// A known field of the wrong type.
pub(crate) fn read(line: &Line<'_>, me: &str) -> Result<Words, String> {
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    let mut said = Words { renewal: line.get("renewal")?.unwrap_or_default(), ..Words::default() };
    let own = line.get::<String>("host")?.is_none_or(|host| host == me);
    // Behind a split another's proof may be of before this node itself was switched off.
    // After a reboot it is on again and has its vote, also where its beats do not arrive.
    said.proofs = if own && kind != "fence.reboot" { fence::read_proofs(line)? } else { Vec::new() };
    let subject = line.get::<String>("subject")?;
    let status = line.parsed::<Status>("status")?;
    if kind.starts_with("fence.") || kind == "quorum" {
        return Ok(said);
    }
    let is_about_life = !OTHERS.iter().any(|prefix| kind.starts_with(prefix));
    let reporter = line.get::<String>("host")?;
    let incarnation = line.get::<u64>("incarnation")?;
    if let Some((subject, status)) = subject.clone().zip(status) {
        said.life = incarnation.map(|incarnation| (subject.clone(), incarnation));
        let was_heard = status == Status::Up || (status == Status::Down && incarnation.is_some());
        let reporter = reporter.clone();
        said.words.push(Word { reporter, subject, status, is_about_life, was_heard, stamp: stamp(line)? });
    }
    if kind == "heartbeat.recv" {
        let own = reporter.as_deref().is_none_or(|reporter| reporter == me);
        let goodbye = line.get::<String>("event")?.as_deref() == Some("goodbye");
        said.left = subject.clone().filter(|_| own && goodbye).zip(Some(line.get("received_ms")?));
        said.words.extend(view(line, reporter.as_deref())?);
    }
    for record in line.get::<Vec<&RawValue>>("payload")?.unwrap_or_default() {
        let inner = Line::parse(record.get())?;
        let host = inner.get::<String>("host")?;
        // A node speaks for itself alone.
        if inner.get::<String>("kind")?.as_deref() == Some("heartbeat.recv") && host.is_some() && host == subject {
            said.words.extend(view(&inner, host.as_deref())?);
        }
    }
    Ok(said)
}

/// What a node hears of all the others.
fn view(line: &Line<'_>, reporter: Option<&str>) -> Result<Vec<Word>, String> {
    let stamp = stamp(line)?;
    let view = line.get::<BTreeMap<String, String>>("view")?.unwrap_or_default();
    view.into_iter()
        .map(|(subject, status)| {
            let status = status.parse().map_err(|why| format!("'view': {why}"))?;
            let was_heard = status == Status::Up;
            let (reporter, stamp) = (reporter.map(str::to_owned), stamp.clone());
            Ok(Word { reporter, subject, status, is_about_life: true, was_heard, stamp })
        })
        .collect()
}

fn stamp(line: &Line<'_>) -> Result<Stamp, String> {
    Ok(Stamp {
        received_ms: line.get("received_ms")?,
        boot_id: line.get("boot_id")?,
        time: line.parsed("time")?,
        valid_for_ms: line.get("valid_for_ms")?,
    })
}

/// What `quorum` remembers from run to run of one boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// The members that were heard since this machine started.
    pub(crate) heard: std::collections::BTreeSet<String>,
}

pub(crate) const COLUMNS: &[Column] = &[
    column("subject", "MEMBER"),
    column("status", "STATUS"),
    column("votes", "VOTES"),
    column("needed", "NEEDED"),
    column("quorate", "QUORATE"),
    column("waiting_for", "WAITING_FOR"),
    column("vetoed_by", "VETOED_BY"),
];

pub(crate) const SCHEMA: (&str, &str) = ("quorum", include_str!("schema/quorum.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_quorum() {
        check::<Quorum<'static>>("quorum", "What the majority says about one member, and whether this side has it");
    }

    fn words(line: &str) -> Words {
        read(&Line::parse(line).unwrap(), "n1").unwrap()
    }

    fn told(words: &Words) -> Vec<String> {
        words
            .words
            .iter()
            .map(|word| format!("{}:{} {}", word.reporter.as_deref().unwrap_or("-"), word.subject, word.status))
            .collect()
    }

    #[test]
    fn a_beat_tells_what_this_node_hears_and_what_its_sender_hears() {
        let beat = words(
            r#"{"kind":"heartbeat.recv","host":"n1","subject":"n2","status":"up","incarnation":7,"received_ms":5,"valid_for_ms":9,
               "view":{"n2":"up","n3":"down"},"payload":[{"received_ms":4,"kind":"heartbeat.recv","host":"n2","view":{"n1":"up"}},
               {"kind":"heartbeat.recv","host":"n3","view":{"n2":"down"}},{"kind":"bucket.state","host":"n2","own":"1"}]}"#,
        );
        assert_eq!(told(&beat), ["n1:n2 up", "n1:n2 up", "n1:n3 down", "n2:n1 up"]);
        assert_eq!(beat.life, Some(("n2".to_owned(), 7)));
        assert_eq!((beat.words[0].stamp.valid_for_ms, beat.words[3].stamp.received_ms), (Some(9.0), Some(4.0)));
    }

    #[test]
    fn a_plain_report_is_a_vote_and_a_vote_is_none() {
        let report = words(r#"{"host":"n1","subject":"n2","status":"down","time":"2026-11-29T22:44:31Z"}"#);
        assert_eq!(told(&report), ["n1:n2 down"]);
        assert!(!report.words[0].was_heard && report.words[0].stamp.time.is_some());
        assert!(told(&words(r#"{"kind":"quorum","host":"n1","subject":"n2","status":"down"}"#)).is_empty());
        assert!(told(&words(r#"{"kind":"whatever"}"#)).is_empty());
        assert!(read(&Line::parse(r#"{"subject":"n2","status":"well"}"#).unwrap(), "n1").is_err());
    }

    #[test]
    fn a_proof_is_read_from_a_record_and_from_its_key() {
        let record =
            words(r#"{"kind":"fence.off","host":"n1","subject":"n2","proof":true,"incarnation":7,"agent":"a"}"#);
        assert_eq!((record.proofs[0].node.as_str(), record.proofs[0].incarnation), ("n2", Some(7)));
        assert!(words(r#"{"kind":"fence.off","host":"n1","subject":"n2","proof":false}"#).proofs.is_empty());
        let key =
            words(r#"{"kind":"x","fence":[{"node":"n2","agent":"a"},{"node":"n3","incarnation":1,"agent":"a"}]}"#);
        assert_eq!(key.proofs.len(), 2);
    }
}
