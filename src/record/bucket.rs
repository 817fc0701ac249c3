//! Records of `bucket`.

use super::envelope::{Column, column};
use super::fence::{self, Proven};
use super::health::Base;
use super::line::Line;
use crate::decide::bucket::change::{How, Order, Outcome};
use crate::decide::bucket::check::Shown;
use crate::decide::bucket::plan::Memory;
use crate::types::bucket::Buckets;
use crate::types::cluster::{Cluster, Held, Mode};
use crate::types::net::Mac;
use crate::types::status::Status;
use crate::types::time::{Tick, millis};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one node answers for, as read back.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Show {
    /// nft, proc or file
    pub(crate) backend: &'static str,
    /// The interface that carries the address
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    /// The MAC that all nodes answer with
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<String>,
    /// The MAC is no group address
    pub(crate) unicast: bool,
    /// The hash: nft, or clusterip for the old kernel's
    pub(crate) algo: &'static str,
    /// What is hashed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<&'static str>,
    /// How many buckets there are
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u32>,
    /// The only protocol that is served
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proto: Option<String>,
    /// The only port that is served
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// What happens to other protocols and ports: drop or hash
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rest: Option<&'static str>,
    /// The flags with which hash-owner finds the same owners
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<String>,
    /// The buckets that this node answers for
    pub(crate) owned: String,
    /// Of these, gained by drain: of TCP only what was opened here
    pub(crate) opening: String,
    /// Of these, taken over: TCP that nobody here opened is reset
    pub(crate) reset: String,
    /// Given up, and TCP that was opened here still served
    pub(crate) draining: String,
    /// The number of the ownership map; 0 before the first
    pub(crate) epoch: u64,
    /// The digest of the configuration
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    /// How long the kernel serves without a renewal; absent: for ever
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_ms: Option<f64>,
    /// What is left of that, in whole seconds, cut; absent: it has run out
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_left_ms: Option<f64>,
    /// The interface's own MAC when the rules were made
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) made_from_mac: Option<String>,
    pub(crate) accepted_packets: u64,
    pub(crate) accepted_bytes: u64,
    pub(crate) dropped_packets: u64,
    pub(crate) dropped_bytes: u64,
    /// Accepted for draining buckets
    pub(crate) drained_packets: u64,
    /// Not let out: another node would have got the answer, or the lease had run out
    pub(crate) refused_out_packets: u64,
    /// TCP connections of this host in draining buckets, where there are such buckets
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections_left: Option<u64>,
}

/// What the counters of the rules say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: (u64, u64),
    pub(crate) dropped: (u64, u64),
    pub(crate) drained: u64,
    pub(crate) refused: u64,
}

impl Show {
    pub(crate) fn new(
        backend: &'static str,
        cluster: &Cluster,
        held: &Held,
        lease_left: Option<Duration>,
        counts: Counts,
    ) -> Self {
        Show {
            backend,
            dev: Some(cluster.dev.clone()),
            mac: Some(cluster.mac.to_string()),
            unicast: cluster.is_unicast(),
            algo: "nft",
            mode: Some(cluster.mode.as_str()),
            total: Some(cluster.total),
            seed: Some(cluster.seed),
            proto: cluster.proto.map(|proto| proto.to_string()),
            port: cluster.port,
            rest: cluster.proto.map(|_| cluster.rest.as_str()),
            params: Some(params(cluster.total, cluster.seed, cluster.mode)),
            epoch: cluster.epoch,
            config: cluster.config.clone(),
            lease_ms: cluster.lease.map(millis),
            lease_left_ms: lease_left.map(millis),
            made_from_mac: Some(cluster.made_from.to_string()),
            accepted_packets: counts.accepted.0,
            accepted_bytes: counts.accepted.1,
            dropped_packets: counts.dropped.0,
            dropped_bytes: counts.dropped.1,
            drained_packets: counts.drained,
            refused_out_packets: counts.refused,
            ..Show::holding(held)
        }
    }

    /// The record of a node of which only the buckets are known.
    pub(crate) fn holding(held: &Held) -> Self {
        Show {
            owned: held.owned.to_string(),
            opening: held.opening.to_string(),
            reset: held.reset.to_string(),
            draining: held.draining.to_string(),
            ..Show::default()
        }
    }
}

fn params(total: u16, seed: u32, mode: Mode) -> String {
    format!("--total {total} --seed {seed:#x} --algo nft --mode {mode}")
}

/// What `init`, `set` and `apply` print: the state as read back, and what was done.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Acted {
    // Flattening serialises keys in place; it is reading that loses numbers.
    #[serde(flatten)]
    pub(crate) show: Show,
    /// Buckets that are answered for and were not
    pub(crate) gained: String,
    /// Buckets that were answered for and are not
    pub(crate) lost: String,
    /// drain, take-over or settle, where something was gained or lost
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) how: Option<&'static str>,
    /// Kernel settings that were changed, with their new values
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) sysctls: BTreeMap<String, String>,
    /// TCP peers that were woken, under --tickle
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tickled: Option<u64>,
}

impl Acted {
    /// `how` is the way in which something is gained; what is lost by plan is drained.
    pub(crate) fn new(show: Show, outcome: &Outcome, how: Option<How>) -> Self {
        let how = match how {
            _ if outcome.gained.is_empty() && outcome.lost.is_empty() => None,
            Some(How::TakeOver) if outcome.gained.is_empty() => Some(How::Drain),
            how => how,
        };
        Acted {
            show,
            gained: outcome.gained.to_string(),
            lost: outcome.lost.to_string(),
            how: how.map(How::as_str),
            sysctls: BTreeMap::new(),
            tickled: None,
        }
    }
}

/// What `clear` prints: the state as it was, where there was one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cleared {
    #[serde(flatten)]
    pub(crate) before: Option<Show>,
    /// Buckets that were answered for
    pub(crate) lost: String,
    /// Kernel settings that were put back, with their values now
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) sysctls: BTreeMap<String, String>,
}

/// What a beat carries.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct State {
    /// The buckets that this node answers for, as read back from the kernel
    pub(crate) own: String,
    /// Given up, and TCP that was opened here still served
    pub(crate) draining: String,
    /// The number of the ownership map that is carried out
    pub(crate) epoch: u64,
    /// The digest of the configuration
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
    /// Why this node can serve nobody at this moment: its link is down
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfit: Option<String>,
}

/// A conclusion: who should own what, and what this node may answer for now.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Plan {
    pub(crate) total: u16,
    /// The number of this map
    pub(crate) epoch: u64,
    /// The digest of the configuration
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    /// Who should own what
    pub(crate) owners: BTreeMap<String, String>,
    /// What this node may answer for now
    pub(crate) mine: String,
    /// What is not where it should be
    pub(crate) moves: Vec<Move>,
    /// What is known of each node
    pub(crate) nodes: BTreeMap<String, NodeSeen>,
    /// Nobody is fit to own them
    pub(crate) unowned: String,
    /// Of this node's share, what somebody may still answer for of whom that cannot be known
    pub(crate) held: String,
    /// The nodes of which a proof is missing that they are off
    pub(crate) needs_fence: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Move {
    pub(crate) buckets: String,
    /// Who has them, or had them last
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    /// drain, take-over or settle
    pub(crate) how: &'static str,
    pub(crate) why: String,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NodeSeen {
    pub(crate) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
    /// What its health leaves of its weight, in per cent; absent where it has told no score
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health_pct: Option<u32>,
    pub(crate) own: String,
    pub(crate) draining: String,
}

/// Whether this host holds what it should.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check {
    /// What is not as it should be
    pub(crate) differences: Vec<Difference>,
    /// What may do harm one day
    pub(crate) warnings: Vec<Warning>,
    /// With --wire: the nodes that heard a frame for the cluster MAC
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seen_by: Option<Vec<String>>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Difference {
    pub(crate) what: String,
    pub(crate) want: String,
    pub(crate) got: String,
    /// The command that mends it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Warning {
    pub(crate) what: String,
    /// The command that mends it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
}

/// A [`Difference`] or [`Warning`] that was written, as a sentence; `None` for another object.
pub(crate) fn finding(object: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str);
    let mut sentence = text("what")?.to_owned();
    if let (Some(want), Some(got)) = (text("want"), text("got")) {
        sentence = format!("{sentence}: {got} instead of {want}");
    }
    if let Some(mend) = text("mend") {
        sentence = format!("{sentence} ({mend})");
    }
    Some(sentence)
}

/// Something happened to a cluster IP on this host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Watch {
    /// present, rules-lost, rules-changed, address-lost, membership-lost, mac-changed, setting-lost or overrun
    pub(crate) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    /// It was put right at once
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repaired: Option<bool>,
}

/// What several nodes serve together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verify {
    pub(crate) nodes: Vec<String>,
    /// Served by nobody
    pub(crate) gaps: String,
    /// Served by several
    pub(crate) overlaps: Vec<Overlap>,
    /// What is not the same on every node
    pub(crate) parameters_differ: Vec<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Overlap {
    pub(crate) buckets: String,
    pub(crate) nodes: Vec<String>,
}

/// A record of `show`, read for `verify`; `None` for another kind.
pub(crate) fn read_shown(line: &Line<'_>) -> Result<Option<(String, Shown)>, String> {
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    let Some(verb) = kind.strip_prefix("bucket.") else { return Ok(None) };
    if !["show", "init", "set", "apply"].contains(&verb) || line.raw("error").is_some() {
        return Ok(None);
    }
    let text = |key: &str| line.get::<String>(key);
    let vip = text("subject")?.ok_or("it has no 'subject'")?;
    let node = text("host")?.ok_or("it has no 'host'")?;
    let total = line.get::<u16>("total")?.ok_or("it has no 'total'")?;
    let owned = line.parsed::<Buckets>("owned")?.ok_or("it has no 'owned'")?;
    let mut parameters = BTreeMap::new();
    for key in ["algo", "mode", "mac", "proto", "rest", "config"] {
        parameters.insert(key, text(key)?.unwrap_or_default());
    }
    for key in ["seed", "port"] {
        parameters.insert(key, line.get::<u64>(key)?.map(|number| number.to_string()).unwrap_or_default());
    }
    Ok(Some((vip, Shown { node, owned, total, parameters })))
}

/// What one line says about a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Word {
    pub(crate) node: String,
    /// The cluster IP that its list is about.
    pub(crate) vip: Option<String>,
    pub(crate) status: Option<Status>,
    /// The verdict is a majority's, not one node's own.
    pub(crate) voted: bool,
    /// What a majority says about this side.
    pub(crate) quorum: Option<Side>,
    pub(crate) lists: Option<Lists>,
    pub(crate) weight: Option<u32>,
    pub(crate) score: Option<Score>,
    pub(crate) standby: Option<Rest>,
    pub(crate) incarnation: Option<u64>,
    pub(crate) links: Option<Links>,
    /// It said goodbye, or is back.
    pub(crate) left: Option<bool>,
    /// What it hears of others.
    pub(crate) view: Option<BTreeMap<String, Status>>,
    /// A life of the node is over.
    pub(crate) proof: Option<Proven>,
    pub(crate) received_ms: Option<f64>,
    pub(crate) valid_for_ms: Option<f64>,
    pub(crate) renewal: bool,
}

/// What `quorum` says about the side that this node is on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Side {
    pub(crate) quorate: bool,
    /// Not quorate, and nobody else can take what is held here.
    pub(crate) may_keep: bool,
    /// The gateway answers this node.
    pub(crate) reaches_gateway: bool,
    pub(crate) waiting_for: Vec<String>,
}

/// Whether a node is to be left alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rest {
    No,
    Because(String),
}

/// What its health leaves of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// 0 is not a low priority: it must not serve.
    pub(crate) priority: u32,
    /// The priority when all is well, where that is told.
    pub(crate) base: Option<u32>,
    /// Until when this holds, on our clock.
    pub(crate) until_ms: Option<f64>,
}

/// What a node lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lists {
    pub(crate) own: Buckets,
    pub(crate) draining: Buckets,
    pub(crate) epoch: Option<u64>,
    pub(crate) config: Option<String>,
    /// It says that it can serve nobody.
    pub(crate) unfit: bool,
    /// Until when this holds, on our clock; its applier says it anew long before.
    pub(crate) until_ms: Option<f64>,
}

/// Which links carry beats between a node and us.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Links {
    /// Its links that are heard here.
    pub(crate) heard: Vec<u8>,
    /// Our links that it hears.
    pub(crate) hears: Vec<u8>,
}

/// What a line says about nodes, as far as it is about `vip` (any, where that is not known yet): a node record, a beat with its
/// payload, a vote, a proof, or the state of a node. Other records say nothing.
pub(crate) fn read_words(line: &Line<'_>, vip: Option<&str>) -> Result<Vec<Word>, String> {
    let is_about = |subject: Option<&str>| subject.is_some() && vip.is_none_or(|vip| subject == Some(vip));
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    let mut words = Vec::new();
    for proven in fence::read_proofs(line)? {
        words.push(Word { node: proven.node.clone(), proof: Some(proven), ..Word::default() });
    }
    let common = |word: Word| -> Result<Word, String> {
        Ok(Word {
            received_ms: line.get("received_ms")?,
            valid_for_ms: line.get("valid_for_ms")?,
            renewal: line.get("renewal")?.unwrap_or_default(),
            ..word
        })
    };
    if kind.starts_with("bucket.") {
        // A state that stands alone is that of the host which wrote it.
        let vip = line.get::<String>("subject")?;
        if is_about(vip.as_deref())
            && let Some(lists) = read_lists(line)?
            && let Some(node) = line.get::<String>("host")?
        {
            let standby = Some(line.get("standby")?.map_or(Rest::No, Rest::Because));
            let word = Word { node, lists: Some(lists), weight: line.get("weight")?, standby, vip, ..Word::default() };
            words.push(common(word)?);
        }
        return Ok(words);
    }
    let (Some(node), status) = (line.get::<String>("subject")?, line.parsed::<Status>("status")?) else {
        return Ok(words);
    };
    if kind.starts_with("fence.") {
        return Ok(words);
    }
    let mut word = common(Word {
        node,
        status,
        voted: kind == "quorum",
        quorum: line.get::<bool>("quorate")?.map(|quorate| side(line, quorate)).transpose()?,
        lists: read_lists(line)?,
        weight: line.get("weight")?,
        score: score(line, vip)?,
        standby: line.get::<String>("standby")?.map(Rest::Because),
        incarnation: line.get("incarnation")?,
        left: match line.get::<String>("event")?.as_deref() {
            Some("goodbye") => Some(true),
            _ if status == Some(Status::Up) => Some(false),
            _ => None,
        },
        links: if kind == "heartbeat.recv" { Some(read_links(line)?) } else { None },
        ..Word::default()
    })?;
    if kind == "health.score" {
        // A verdict about health is not one about life.
        word.status = None;
    }
    if let Some(payload) = line.get::<Vec<&RawValue>>("payload")? {
        // What a beat does not say any more has ended.
        word.standby = Some(word.standby.unwrap_or(Rest::No));
        for record in payload {
            let inner = Line::parse(record.get())?;
            let own_kind = inner.get::<String>("kind")?.unwrap_or_default();
            let about = inner.get::<String>("subject")?;
            if let Some(reason) = inner.get::<String>("standby")? {
                word.standby = Some(Rest::Because(reason));
            }
            if own_kind == "bucket.state" && is_about(about.as_deref()) {
                word.vip = about;
                word.lists = read_lists(&inner)?;
                word.weight = inner.get("weight")?.or(word.weight);
            } else if own_kind == "heartbeat.recv" {
                let view = inner.get::<BTreeMap<String, String>>("view")?.unwrap_or_default();
                let verdicts = view.into_iter().filter_map(|(node, status)| Some((node, status.parse().ok()?)));
                word.view = Some(verdicts.collect());
            } else if own_kind == "health.score" {
                word.score = score(&inner, vip)?.or(word.score);
            }
        }
    }
    words.push(word);
    Ok(words)
}

fn read_links(line: &Line<'_>) -> Result<Links, String> {
    let mut links = Links { hears: line.get("hears_links")?.unwrap_or_default(), ..Links::default() };
    for link in line.get::<Vec<&RawValue>>("links")?.unwrap_or_default() {
        let link = Line::parse(link.get())?;
        if link.parsed::<Status>("status")? == Some(Status::Up) {
            links.heard.extend(link.get::<u8>("link")?);
        }
    }
    Ok(links)
}

fn score(line: &Line<'_>, vip: Option<&str>) -> Result<Option<Score>, String> {
    let is_score = line.get::<String>("kind")?.as_deref() == Some("health.score");
    if is_score && line.raw("standby").is_some() {
        // Its 0 is a standby's: what is to be left alone drains, and its health is another matter.
        return Ok(None);
    }
    let each = line.get::<BTreeMap<String, u32>>("priorities")?.unwrap_or_default();
    let priority = match vip.and_then(|vip| each.get(vip)) {
        Some(priority) => Some(*priority),
        None => line.get("priority")?,
    };
    let Some(priority) = priority else { return Ok(None) };
    if !is_score {
        return Ok(Some(Score { priority, ..Score::default() }));
    }
    let base = match line.get::<Base>("base")? {
        Some(Base::One(base)) => Some(base),
        Some(Base::Each(each)) => vip.and_then(|vip| each.get(vip)).copied(),
        None => None,
    };
    Ok(Some(Score { priority, base: base.map(u32::from), until_ms: until(line)? }))
}

/// When what is told here is too old, on the clock of this machine.
fn until(line: &Line<'_>) -> Result<Option<f64>, String> {
    let valid = line.get::<f64>("received_ms")?.zip(line.get::<f64>("valid_for_ms")?);
    Ok(valid.map(|(received, valid)| received + valid))
}

fn read_lists(line: &Line<'_>) -> Result<Option<Lists>, String> {
    let own = match line.parsed::<Buckets>("own")? {
        Some(own) => Some(own),
        None => line.parsed::<Buckets>("owned")?,
    };
    let Some(own) = own else { return Ok(None) };
    Ok(Some(Lists {
        own,
        draining: line.parsed("draining")?.unwrap_or_default(),
        epoch: line.get("epoch")?,
        config: line.get("config")?,
        unfit: line.raw("unfit").is_some(),
        until_ms: until(line)?,
    }))
}

fn side(line: &Line<'_>, quorate: bool) -> Result<Side, String> {
    Ok(Side {
        quorate,
        may_keep: line.get("may_keep")?.unwrap_or_default(),
        reaches_gateway: line.get::<Vec<String>>("reaches")?.is_some_and(|gateways| !gateways.is_empty()),
        waiting_for: line.get("waiting_for")?.unwrap_or_default(),
    })
}

/// A plan, read for `apply`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ordered {
    pub(crate) total: u16,
    pub(crate) epoch: u64,
    pub(crate) config: Option<String>,
    pub(crate) order: Order,
    /// What the planner knew this node to hold.
    pub(crate) known: Buckets,
    pub(crate) standby: Option<String>,
    pub(crate) received_ms: Option<f64>,
    pub(crate) renewal: bool,
}

/// Reads a plan for `vip` made for `me`; `None` for any other record.
///
/// What was held for want of a proof is taken where the record carries that proof.
pub(crate) fn read_plan(line: &Line<'_>, vip: &str, me: &str) -> Result<Option<Ordered>, String> {
    if line.get::<String>("kind")?.as_deref() != Some("bucket.plan")
        || line.get::<String>("subject")?.is_some_and(|subject| subject != vip)
        || line.get::<String>("host")?.is_some_and(|host| host != me)
        || line.raw("error").is_some()
    {
        return Ok(None);
    }
    let mut ordered = Ordered {
        total: line.get("total")?.ok_or("the plan has no 'total'")?,
        epoch: line.get("epoch")?.ok_or("the plan has no 'epoch'")?,
        config: line.get("config")?,
        standby: line.get("standby")?,
        received_ms: line.get("received_ms")?,
        renewal: line.get("renewal")?.unwrap_or_default(),
        ..Ordered::default()
    };
    if ordered
        .config
        .as_ref()
        .is_some_and(|config| config.len() > 16 || !config.bytes().all(|b| b.is_ascii_alphanumeric()))
    {
        return Err("'config' is no digest (1 to 16 letters and digits)".to_owned());
    }
    ordered.order.mine = line.parsed("mine")?.ok_or("the plan has no 'mine'")?;
    let held = line.parsed::<Buckets>("held")?.unwrap_or_default();
    let proven: Vec<String> = fence::read_proofs(line)?.into_iter().map(|proven| proven.node).collect();
    for (name, node) in line.get::<BTreeMap<String, &RawValue>>("nodes")?.unwrap_or_default() {
        let node = Line::parse(node.get())?;
        if name == me {
            ordered.known = node.parsed("own")?.unwrap_or_default();
        } else if node.parsed::<Status>("status")? == Some(Status::Up) {
            let draining = node.parsed::<Buckets>("draining")?.unwrap_or_default();
            ordered.order.drained = ordered.order.drained.union(&draining);
        }
    }
    for step in line.get::<Vec<&RawValue>>("moves")?.unwrap_or_default() {
        let step = Line::parse(step.get())?;
        let buckets = step.parsed::<Buckets>("buckets")?.unwrap_or_default();
        let (from, to) = (step.get::<String>("from")?, step.get::<String>("to")?);
        let how = step.get::<String>("how")?;
        if how.as_deref() == Some("settle") && from.as_deref() == Some(me) {
            ordered.order.settled = ordered.order.settled.union(&buckets);
        }
        let off = from.is_some_and(|from| proven.contains(&from));
        if off && to.as_deref() == Some(me) && how.as_deref() == Some("take-over") {
            ordered.order.mine = ordered.order.mine.union(&buckets.intersection(&held));
        }
    }
    Ok(Some(ordered))
}

/// What `plan` remembers from run to run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Remembered {
    epoch: u64,
    mine: String,
    own: String,
    could: BTreeMap<String, String>,
    concluded_ms: Option<f64>,
    away_ms: Option<f64>,
    closed_ms: Option<f64>,
}

impl Remembered {
    pub(crate) fn new(memory: &Memory) -> Self {
        Remembered {
            epoch: memory.epoch,
            mine: memory.mine.to_string(),
            own: memory.own.to_string(),
            could: memory.could.iter().map(|(node, buckets)| (node.clone(), buckets.to_string())).collect(),
            concluded_ms: memory.concluded.map(Tick::as_ms),
            away_ms: memory.away.map(Tick::as_ms),
            closed_ms: memory.closed.map(Tick::as_ms),
        }
    }

    /// # Errors
    /// A field that does not parse.
    pub(crate) fn read(&self) -> Result<Memory, String> {
        let tick = |ms: Option<f64>| -> Result<Option<Tick>, String> {
            ms.map(|ms| Duration::try_from_secs_f64(ms / 1000.0).map(Tick).map_err(|error| error.to_string()))
                .transpose()
        };
        let mut could = BTreeMap::new();
        for (node, buckets) in &self.could {
            could.insert(node.clone(), buckets.parse()?);
        }
        Ok(Memory {
            epoch: self.epoch,
            mine: self.mine.parse()?,
            could,
            own: self.own.parse()?,
            concluded: tick(self.concluded_ms)?,
            away: tick(self.away_ms)?,
            closed: tick(self.closed_ms)?,
            // A run that begins anew hears for itself.
            twice: None,
        })
    }
}

/// The state of the `file` backend.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Kept {
    vip: String,
    dev: String,
    mac: String,
    made_from: String,
    total: u16,
    seed: u32,
    mode: String,
    proto: Option<String>,
    port: Option<u16>,
    rest: String,
    epoch: u64,
    config: Option<String>,
    owned: String,
    opening: String,
    reset: String,
    draining: String,
}

impl Kept {
    pub(crate) fn new(cluster: &Cluster, held: &Held) -> Self {
        Kept {
            vip: cluster.vip.to_string(),
            dev: cluster.dev.clone(),
            mac: cluster.mac.to_string(),
            made_from: cluster.made_from.to_string(),
            total: cluster.total,
            seed: cluster.seed,
            mode: cluster.mode.to_string(),
            proto: cluster.proto.map(|proto| proto.to_string()),
            port: cluster.port,
            rest: cluster.rest.to_string(),
            epoch: cluster.epoch,
            config: cluster.config.clone(),
            owned: held.owned.to_string(),
            opening: held.opening.to_string(),
            reset: held.reset.to_string(),
            draining: held.draining.to_string(),
        }
    }

    /// # Errors
    /// A field that does not parse.
    pub(crate) fn read(&self) -> Result<(Cluster, Held), String> {
        let cluster = Cluster {
            vip: self.vip.parse().map_err(|_| format!("'vip': '{}' is not an address", self.vip))?,
            dev: self.dev.clone(),
            mac: self.mac.parse()?,
            made_from: self.made_from.parse::<Mac>()?,
            total: self.total,
            seed: self.seed,
            mode: self.mode.parse()?,
            proto: self.proto.as_deref().map(str::parse).transpose()?,
            port: self.port,
            rest: self.rest.parse()?,
            lease: None,
            remember: false,
            sysctl_was: None,
            epoch: self.epoch,
            config: self.config.clone(),
        };
        let held = Held {
            owned: self.owned.parse()?,
            opening: self.opening.parse()?,
            reset: self.reset.parse()?,
            draining: self.draining.parse()?,
        };
        Ok((cluster, held))
    }
}

pub(crate) const SHOW_COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("host", "NODE"),
    column("dev", "DEV"),
    column("total", "TOTAL"),
    column("owned", "OWNED"),
    column("draining", "DRAINING"),
    column("epoch", "EPOCH"),
    column("lease_ms", "LEASE_MS"),
    column("accepted_packets", "ACCEPTED"),
    column("dropped_packets", "DROPPED"),
];

pub(crate) const ACTED_COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("dev", "DEV"),
    column("changed", "CHANGED"),
    column("owned", "OWNED"),
    column("gained", "GAINED"),
    column("lost", "LOST"),
    column("how", "HOW"),
    column("draining", "DRAINING"),
];

pub(crate) const PLAN_COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("epoch", "EPOCH"),
    column("mine", "MINE"),
    column("held", "HELD"),
    column("unowned", "UNOWNED"),
    column("needs_fence", "NEEDS_FENCE"),
    column("owners", "OWNERS"),
];

pub(crate) const CHECK_COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("status", "STATUS"),
    column("differences", "DIFFERENCES"),
    column("warnings", "WARNINGS"),
];

pub(crate) const VERIFY_COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("status", "STATUS"),
    column("nodes", "NODES"),
    column("gaps", "GAPS"),
    column("overlaps", "OVERLAPS"),
    column("parameters_differ", "DIFFER"),
];

pub(crate) const WATCH_COLUMNS: &[Column] = &[
    column("time", "TIME"),
    column("subject", "VIP"),
    column("event", "EVENT"),
    column("dev", "DEV"),
    column("repaired", "REPAIRED"),
];

pub(crate) const SHOW_SCHEMA: (&str, &str) = ("bucket.show", include_str!("schema/bucket.show.json"));
pub(crate) const STATE_SCHEMA: (&str, &str) = ("bucket.state", include_str!("schema/bucket.state.json"));
pub(crate) const INIT_SCHEMA: (&str, &str) = ("bucket.init", include_str!("schema/bucket.init.json"));
pub(crate) const SET_SCHEMA: (&str, &str) = ("bucket.set", include_str!("schema/bucket.set.json"));
pub(crate) const APPLY_SCHEMA: (&str, &str) = ("bucket.apply", include_str!("schema/bucket.apply.json"));
pub(crate) const CLEAR_SCHEMA: (&str, &str) = ("bucket.clear", include_str!("schema/bucket.clear.json"));
pub(crate) const PLAN_SCHEMA: (&str, &str) = ("bucket.plan", include_str!("schema/bucket.plan.json"));
pub(crate) const CHECK_SCHEMA: (&str, &str) = ("bucket.check", include_str!("schema/bucket.check.json"));
pub(crate) const VERIFY_SCHEMA: (&str, &str) = ("bucket.verify", include_str!("schema/bucket.verify.json"));
pub(crate) const WATCH_SCHEMA: (&str, &str) = ("bucket.watch", include_str!("schema/bucket.watch.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_bucket() {
        check::<Show>("bucket.show", "What this node answers for, as read back from the kernel");
        check::<State>("bucket.state", "What this node answers for, as a beat carries it");
        check::<Acted>("bucket.init", "A cluster IP that was made, as read back afterwards");
        check::<Acted>("bucket.set", "A change of buckets, as read back afterwards");
        check::<Acted>("bucket.apply", "A plan that was carried out, as read back afterwards");
        check::<Cleared>("bucket.clear", "A cluster IP that was taken away, as it was before");
        check::<Plan>("bucket.plan", "Who should own what, and what this node may answer for now");
        check::<Check>("bucket.check", "Whether this host holds what a cluster IP needs");
        check::<Verify>("bucket.verify", "Whether several nodes together serve each bucket once");
        check::<Watch>("bucket.watch", "Something happened to a cluster IP on this host");
    }

    proptest::proptest! {
        #[test]
        fn no_line_ends_in_a_panic(at in 0usize..400, byte in 32u8..127) {
            let lines = [
                r#"{"kind":"heartbeat.recv","v":1,"host":"n1","subject":"n2","status":"up","incarnation":7,"received_ms":12.5,"payload":[{"kind":"bucket.state","v":1,"host":"n2","subject":"192.0.2.9","own":"3-4","draining":"5","epoch":9}]}"#,
                r#"{"kind":"bucket.plan","v":1,"host":"n1","subject":"192.0.2.9","total":6,"epoch":9,"mine":"1-2","held":"3","nodes":{"n2":{"status":"up","own":"3","draining":"4"}},"moves":[{"buckets":"3","from":"n2","to":"n1","how":"take-over","why":"x"}],"fence":{"node":"n2","incarnation":1}}"#,
            ];
            for line in lines {
                let mut bytes = line.as_bytes().to_vec();
                let at = at % bytes.len();
                bytes[at] = byte;
                if let Ok(text) = std::str::from_utf8(&bytes)
                    && let Ok(line) = Line::parse(text)
                {
                    let _ = read_words(&line, Some("192.0.2.9"));
                    let _ = read_plan(&line, "192.0.2.9", "n1");
                    let _ = read_shown(&line);
                }
            }
        }
    }

    #[test]
    fn a_proof_on_a_plan_frees_what_was_held_for_it() {
        let plan = |fence: &str| {
            let text = format!(
                r#"{{"kind":"bucket.plan","host":"n1","subject":"192.0.2.9","total":6,"epoch":9,"mine":"1-2","held":"3,6","needs_fence":["n2"],"moves":[{{"buckets":"3-4","from":"n2","to":"n1","how":"take-over","why":"x"}},{{"buckets":"6","from":"n3","to":"n1","how":"take-over","why":"x"}}]{fence}}}"#
            );
            read_plan(&Line::parse(&text).unwrap(), "192.0.2.9", "n1").unwrap().unwrap().order.mine.to_string()
        };
        assert_eq!(plan(""), "1-2");
        assert_eq!(plan(r#","fence":{"node":"n2","incarnation":7,"agent":"a"}"#), "1-3");
        assert_eq!(plan(r#","fence":[{"node":"n2","agent":"a"},{"node":"n3","agent":"a"}]"#), "1-3,6");
    }

    fn words(line: &str) -> Vec<Word> {
        read_words(&Line::parse(line).unwrap(), Some("192.0.2.9")).unwrap()
    }

    #[test]
    fn a_beat_tells_what_its_node_lists() {
        let line = r#"{"kind":"heartbeat.recv","v":1,"host":"n1","subject":"n2","status":"up","incarnation":7,"received_ms":12.5,
            "payload":[{"kind":"bucket.state","v":1,"host":"n2","subject":"192.0.2.9","own":"3-4","draining":"5","epoch":9,"config":"ab"},
                       {"kind":"bucket.state","v":1,"host":"n2","subject":"192.0.2.10","own":"1","draining":"","epoch":1},
                       {"kind":"health.score","v":1,"host":"n2","subject":"n2","status":"up","base":{"192.0.2.9":80},"priorities":{"192.0.2.9":0},"received_ms":12,"valid_for_ms":8}]}"#;
        let [word] = words(line).try_into().unwrap();
        assert_eq!((word.node.as_str(), word.status, word.incarnation), ("n2", Some(Status::Up), Some(7)));
        assert_eq!(word.score, Some(Score { priority: 0, base: Some(80), until_ms: Some(20.0) }));
        let lists = word.lists.unwrap();
        assert_eq!(
            (lists.own.to_string(), lists.draining.to_string(), lists.epoch),
            ("3-4".to_owned(), "5".to_owned(), Some(9))
        );
        assert_eq!(word.standby, Some(Rest::No));
    }

    #[test]
    fn the_zero_of_a_standby_says_nothing_about_health() {
        let score = |more: &str| {
            let text = format!(r#"{{"kind":"health.score","host":"n2","subject":"n2","base":100,"priority":0{more}}}"#);
            let [word] = words(&text).try_into().unwrap();
            (word.score.map(|score| score.priority), word.standby)
        };
        assert_eq!(score(""), (Some(0), None));
        assert_eq!(score(r#","standby":"disk""#), (None, Some(Rest::Because("disk".to_owned()))));
    }

    #[test]
    fn a_plain_node_record_a_vote_a_state_and_a_proof_are_read() {
        let [word] = words(r#"{"subject":"n2","status":"down","weight":3}"#).try_into().unwrap();
        assert_eq!((word.status, word.weight, word.voted), (Some(Status::Down), Some(3), false));
        let [word] = words(r#"{"kind":"quorum","subject":"n2","status":"down","quorate":true}"#).try_into().unwrap();
        assert_eq!((word.voted, word.quorum.map(|side| side.quorate)), (true, Some(true)));
        let [word] =
            words(r#"{"kind":"bucket.show","host":"n1","subject":"192.0.2.9","owned":"1-2"}"#).try_into().unwrap();
        assert_eq!((word.node.as_str(), word.lists.unwrap().own.to_string()), ("n1", "1-2".to_owned()));
        let line = r#"{"subject":"n2","status":"down","fence":{"node":"n2","incarnation":7,"time":"x","agent":"a"}}"#;
        assert_eq!(words(line)[0].proof.as_ref().unwrap().incarnation, Some(7));
        assert!(words(r#"{"kind":"bucket.show","host":"n1","subject":"192.0.2.10","owned":"1-2"}"#).is_empty());
        assert!(words(r#"{"kind":"whatever"}"#).is_empty());
        assert!(read_words(&Line::parse(r#"{"subject":"n2","status":"well"}"#).unwrap(), None).is_err());
    }
}
