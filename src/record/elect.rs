//! Records of `vip elect`, the word of an address that a beat carries, and the records that are elected by.

use super::bucket::{self, Rest};
use super::envelope::{Column, column};
use super::line::Line;
use crate::decide::elect::{Ballot, Claim, Election, Memory};
use crate::types::net::Prefix;
use crate::types::time::Tick;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Who should serve an address, and whether this node serves it now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Elect {
    prefix_len: u8,
    /// The interface, where --dev named one
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<String>,
    /// master, backup or init
    state: &'static str,
    /// Whether this node serves the address now
    mine: bool,
    /// Who should serve it; absent where nobody stands
    #[serde(skip_serializing_if = "Option::is_none")]
    master: Option<String>,
    /// The master's own address, where it is another
    #[serde(skip_serializing_if = "Option::is_none")]
    master_addr: Option<String>,
    /// The number of this election; the nodes agree on it before anybody takes the address
    epoch: u64,
    /// Who stands beside the master, in the order in which they would follow
    backups: Vec<String>,
    candidates: Vec<Candidate>,
    /// Who must be proven off before the address can be taken
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    needs_fence: Vec<String>,
    /// It is this node's to take, and somebody may still serve of whom that cannot be known
    held: bool,
    why: String,
}

/// A node that could serve an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Candidate {
    node: String,
    /// Its own address; of equal priorities the higher one wins
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The effective priority
    priority: u32,
    standing: bool,
    why: String,
}

impl Elect {
    pub(crate) fn new(vip: Prefix, dev: Option<&str>, me: &str, election: &Election) -> Self {
        let winner = election.winner().map(str::to_owned);
        let other = winner.as_deref().filter(|winner| *winner != me);
        let of = |name: &str| election.candidates.iter().find(|one| one.node == name);
        let backups = election.candidates.iter().filter(|one| one.standing && Some(&one.node) != winner.as_ref());
        Elect {
            prefix_len: vip.len,
            dev: dev.map(str::to_owned),
            state: match (election.mine, election.standing) {
                (true, _) => "master",
                (false, true) => "backup",
                (false, false) => "init",
            },
            mine: election.mine,
            master_addr: other.and_then(of).and_then(|one| one.address).map(|addr| addr.to_string()),
            epoch: election.ballot.epoch,
            backups: backups.map(|one| one.node.clone()).collect(),
            candidates: election
                .candidates
                .iter()
                .map(|one| Candidate {
                    node: one.node.clone(),
                    address: one.address.map(|addr| addr.to_string()),
                    priority: one.priority,
                    standing: one.standing,
                    why: one.why.clone(),
                })
                .collect(),
            needs_fence: election.needs_fence.clone(),
            held: election.held,
            why: election.why.clone(),
            master: winner,
        }
    }

    /// The last word of a run: nobody hears its conclusions any more.
    pub(crate) fn gives_up(self, why: &str) -> Self {
        Elect { state: "init", mine: false, held: false, needs_fence: Vec::new(), why: why.to_owned(), ..self }
    }
}

/// What a node says of an address, as a beat carries it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Told {
    pub(crate) prefix_len: u8,
    /// The interface that it belongs on
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    /// The node's own address on that interface
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// Whether the node's kernel has it, as read back, or is about to get it
    pub(crate) mine: bool,
    /// Who should serve it, as the node's last election says
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) master: Option<String>,
    /// The number of that election
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
}

/// What a node said of one address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heard {
    pub(crate) claim: Claim,
    pub(crate) address: Option<IpAddr>,
    /// Why the node does not stand for it.
    pub(crate) standby: Option<String>,
    /// When it reached this machine, in milliseconds since its boot.
    pub(crate) received_ms: Option<f64>,
    /// For how long it holds from then on.
    pub(crate) valid_for_ms: Option<f64>,
}

/// A node's effective priorities.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Priorities {
    each: BTreeMap<String, u32>,
    common: Option<u32>,
    /// From a beat, in which what is not said any more has ended.
    pub(crate) replaces: bool,
    pub(crate) received_ms: Option<f64>,
    pub(crate) valid_for_ms: Option<f64>,
}

impl Priorities {
    pub(crate) fn of(&self, vip: IpAddr) -> Option<u32> {
        self.each.get(&vip.to_string()).copied().or(self.common)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty() && self.common.is_none()
    }

    fn read(line: &Line<'_>) -> Result<Self, String> {
        Ok(Priorities {
            each: line.get("priorities")?.unwrap_or_default(),
            common: line.get("priority")?,
            replaces: false,
            received_ms: line.get("received_ms")?,
            valid_for_ms: line.get("valid_for_ms")?,
        })
    }
}

/// What one line says of a node: about its life, and about addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Word {
    pub(crate) base: bucket::Word,
    /// Its kind is one that is about nodes.
    pub(crate) is_node: bool,
    /// Its own address, where it is a plain node record.
    pub(crate) address: Option<IpAddr>,
    pub(crate) priorities: Option<Priorities>,
    pub(crate) heard: BTreeMap<IpAddr, Heard>,
}

/// Reads a line: a node record, a beat with its payload, a score, a vote, a proof or the word of an address.
///
/// # Errors
/// A known field of the wrong type.
pub(crate) fn read_words(line: &Line<'_>) -> Result<Vec<Word>, String> {
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    if kind == "vip.address" {
        // One that stands alone is that of the host which wrote it.
        let Some(node) = line.get::<String>("host")? else { return Ok(Vec::new()) };
        let heard = read_told(line)?.into_iter().collect();
        let base = bucket::Word { node, received_ms: line.get("received_ms")?, ..bucket::Word::default() };
        return Ok(vec![Word { base, is_node: true, heard, ..Word::default() }]);
    }
    if kind.starts_with("vip.") || kind.starts_with("bucket.") || kind == "vrrp.run" {
        return Ok(Vec::new());
    }
    let mut words: Vec<Word> =
        bucket::read_words(line, None)?.into_iter().map(|base| Word { base, ..Word::default() }).collect();
    // Proofs come first, and the node that the line is about last.
    let Some(word) = words.last_mut().filter(|word| word.base.proof.is_none() || word.base.status.is_some()) else {
        return Ok(words);
    };
    word.is_node = ["", "heartbeat.recv", "health.score", "quorum"].contains(&kind.as_str());
    word.address = line.parsed("address")?;
    let own = Priorities::read(line)?;
    word.priorities = (!own.is_empty()).then_some(own);
    if let Some(payload) = line.get::<Vec<&RawValue>>("payload")? {
        let mut said = Priorities { replaces: true, ..word.priorities.take().unwrap_or_default() };
        for record in payload {
            let inner = Line::parse(record.get())?;
            match inner.get::<String>("kind")?.as_deref() {
                Some("vip.address") => word.heard.extend(read_told(&inner)?),
                Some("health.score") => said = Priorities { replaces: true, ..Priorities::read(&inner)? },
                _ => {}
            }
        }
        word.priorities = Some(said);
        // A node can stand aside for one address alone; its score says by itself what it is worth.
        word.base.standby = Some(line.get("standby")?.map_or(Rest::No, Rest::Because));
    }
    Ok(words)
}

fn read_told(line: &Line<'_>) -> Result<Option<(IpAddr, Heard)>, String> {
    let (Some(vip), Some(mine)) = (line.parsed::<IpAddr>("subject")?, line.get::<bool>("mine")?) else {
        return Ok(None);
    };
    let ballot = Ballot { epoch: line.get("epoch")?.unwrap_or_default(), master: line.get("master")? };
    let heard = Heard {
        claim: Claim { mine, ballot },
        address: line.parsed("address")?,
        standby: line.get("standby")?,
        received_ms: line.get("received_ms")?,
        valid_for_ms: line.get("valid_for_ms")?,
    };
    Ok(Some((vip, heard)))
}

/// What `elect` remembers of each address from run to run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Remembered {
    vips: BTreeMap<IpAddr, Kept>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    epoch: u64,
    master: Option<String>,
    since_ms: f64,
    spent: bool,
    mine: bool,
    could: Vec<String>,
    down_ms: BTreeMap<String, f64>,
    concluded_ms: Option<f64>,
    away_ms: Option<f64>,
    undecided_ms: Option<f64>,
}

impl Remembered {
    pub(crate) fn new(memory: &BTreeMap<IpAddr, Memory>) -> Self {
        let kept = |memory: &Memory| Kept {
            epoch: memory.ballot.epoch,
            master: memory.ballot.master.clone(),
            since_ms: memory.since.as_ms(),
            spent: memory.spent,
            mine: memory.mine,
            could: memory.could.iter().cloned().collect(),
            down_ms: memory.down.iter().map(|(node, at)| (node.clone(), at.as_ms())).collect(),
            concluded_ms: memory.concluded.map(Tick::as_ms),
            away_ms: memory.away.map(Tick::as_ms),
            undecided_ms: memory.undecided.map(Tick::as_ms),
        };
        Remembered { vips: memory.iter().map(|(vip, memory)| (*vip, kept(memory))).collect() }
    }

    /// # Errors
    /// A time that can be none.
    pub(crate) fn read(self) -> Result<BTreeMap<IpAddr, Memory>, String> {
        let tick = |ms: f64| Tick::from_ms(ms).ok_or_else(|| format!("{ms} is no time"));
        let read = |(vip, kept): (IpAddr, Kept)| {
            let down = kept.down_ms.into_iter().map(|(node, ms)| Ok((node, tick(ms)?)));
            let memory = Memory {
                ballot: Ballot { epoch: kept.epoch, master: kept.master },
                since: tick(kept.since_ms)?,
                spent: kept.spent,
                mine: kept.mine,
                could: kept.could.into_iter().collect(),
                down: down.collect::<Result<_, String>>()?,
                concluded: kept.concluded_ms.map(tick).transpose()?,
                away: kept.away_ms.map(tick).transpose()?,
                undecided: kept.undecided_ms.map(tick).transpose()?,
            };
            Ok((vip, memory))
        };
        self.vips.into_iter().map(read).collect()
    }
}

pub(crate) const COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("state", "STATE"),
    column("master", "MASTER"),
    column("backups", "BACKUPS"),
    column("held", "HELD"),
    column("needs_fence", "NEEDS_FENCE"),
    column("why", "WHY"),
];

pub(crate) const SCHEMA: (&str, &str) = ("vip.elect", include_str!("schema/vip.elect.json"));
pub(crate) const TOLD_SCHEMA: (&str, &str) = ("vip.address", include_str!("schema/vip.address.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;
    use crate::types::status::Status;

    #[test]
    fn schema_of_elect() {
        check::<Elect>("vip.elect", "Who should serve an address, and whether this node serves it now");
        check::<Told>("vip.address", "What a node says of an address, as a beat carries it");
    }

    fn words(line: &str) -> Vec<Word> {
        read_words(&Line::parse(line).unwrap()).unwrap()
    }

    #[test]
    fn a_beat_tells_what_its_node_serves_and_with_which_priority() {
        let [word] = words(
            r#"{"kind":"heartbeat.recv","host":"n1","subject":"n2","status":"up","incarnation":7,"received_ms":12.5,
            "payload":[{"received_ms":11,"kind":"vip.address","host":"n2","subject":"192.0.2.9","mine":true,"address":"192.0.2.2","epoch":3,"master":"n2"},
                       {"kind":"vip.address","host":"n2","subject":"2001:db8::9","mine":false},
                       {"kind":"health.score","host":"n2","subject":"n2","priority":7,"priorities":{"192.0.2.9":0}}]}"#,
        )
        .try_into()
        .unwrap();
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap());
        let priorities = word.priorities.unwrap();
        assert_eq!((priorities.of(v4), priorities.of(v6), word.base.status), (Some(0), Some(7), Some(Status::Up)));
        assert_eq!(word.heard[&v4].claim.ballot, Ballot { epoch: 3, master: Some("n2".to_owned()) });
        assert_eq!((word.heard[&v4].address, word.heard[&v4].received_ms), (Some([192, 0, 2, 2].into()), Some(11.0)));
        assert!(word.heard[&v4].claim.mine && !word.heard[&v6].claim.mine);
    }

    #[test]
    fn a_plain_record_a_score_and_a_word_that_stands_alone_are_read() {
        let [word] = words(r#"{"subject":"n2","status":"up","priority":9,"address":"192.0.2.2"}"#).try_into().unwrap();
        assert_eq!(word.priorities.unwrap().of([192, 0, 2, 9].into()), Some(9));
        assert!(word.address.is_some());
        let [score] = words(r#"{"kind":"health.score","host":"n1","subject":"n1","status":"down","priority":0}"#)
            .try_into()
            .unwrap();
        assert_eq!((score.base.status, score.priorities.unwrap().replaces), (None, false));
        let [told] =
            words(r#"{"kind":"vip.address","host":"n2","subject":"192.0.2.9","mine":true}"#).try_into().unwrap();
        assert_eq!((told.base.node.as_str(), told.heard.len()), ("n2", 1));
        assert!(words(r#"{"kind":"vip.elect","host":"n1","subject":"192.0.2.9","mine":true}"#).is_empty());
        assert!(words(r#"{"kind":"fence.off","subject":"n2","proof":true}"#)[0].base.proof.is_some());
        assert!(
            read_words(&Line::parse(r#"{"kind":"vip.address","host":"n2","subject":"x","mine":true}"#).unwrap())
                .is_err()
        );
    }

    proptest::proptest! {
        #[test]
        fn no_line_ends_in_a_panic(at in 0usize..400, byte in 32u8..127) {
            let line = r#"{"kind":"heartbeat.recv","v":1,"host":"n1","subject":"n2","status":"up","fence":{"node":"n3"},"payload":[{"kind":"vip.address","host":"n2","subject":"192.0.2.9","mine":true,"epoch":9},{"kind":"health.score","priority":3,"valid_for_ms":5}]}"#;
            let mut bytes = line.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(text) = std::str::from_utf8(&bytes)
                && let Ok(line) = Line::parse(text)
            {
                let _ = read_words(&line);
            }
        }
    }
}
