//! Records of `place`, the services that it places, and the records that it decides by.

use super::bucket;
use super::described;
use super::envelope::{Column, column};
use super::fence;
use super::line::{Line, ROOM};
use crate::decide::place::{self, Memory, Outcome, Placed};
use crate::types::node::check_name;
use crate::types::service::{Fact, Resource, Service};
use crate::types::time::{Tick, WallTime};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// On which node a service should run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Place {
    /// Where it should run; absent where no node fits
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    policy: &'static str,
    /// Where it ran until now
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<String>,
    /// Why it was placed or moved: `down` (its node is), `new`, `leave` (its node is to be left), `home` (that is back) or
    /// `better`
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    /// Who must be proven off before it may start on the node
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) needs_fence: Vec<String>,
    /// It stays where it is although something speaks against that
    #[serde(skip_serializing_if = "super::envelope::is_false")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) held: bool,
    /// What chance was drawn from, where it had a part
    #[serde(skip_serializing_if = "Option::is_none")]
    random_seed: Option<u64>,
    why: String,
    /// The nodes that it was chosen from, the chosen first, then in the order of the policy, then those that do not fit
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    candidates: Vec<Candidate>,
    /// Candidates that a line has no room for
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates_left_out: Option<usize>,
    /// How many nodes do not fit, by the first predicate that each fails
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    rejected: BTreeMap<String, u64>,
}

/// A node's part in a choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Candidate {
    node: String,
    fits: bool,
    /// The predicates that it fails, and why
    failed: Vec<String>,
    /// What the policy goes by: its services, its turn from 1, or its weight
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    /// What the score is made of; of a weight the share of each resource that would be in use
    terms: BTreeMap<&'static str, f64>,
}

impl Candidate {
    fn new(candidate: place::Candidate) -> Self {
        Candidate {
            node: candidate.node,
            fits: candidate.failed.is_empty(),
            failed: candidate.failed,
            score: candidate.score,
            terms: candidate.terms.into_iter().collect(),
        }
    }
}

impl Place {
    pub(crate) fn new(policy: &'static str, seed: u64, outcome: Outcome) -> Self {
        let (mut room, total) = (ROOM, outcome.candidates.len());
        let mut fits = |candidate: &Candidate| {
            let length = serde_json::to_string(candidate).map_or(usize::MAX, |text| text.len() + 1);
            room.checked_sub(length).map(|left| room = left).is_some()
        };
        let candidates: Vec<Candidate> =
            outcome.candidates.into_iter().map(Candidate::new).take_while(|candidate| fits(candidate)).collect();
        Place {
            node: outcome.node,
            policy,
            moved_from: outcome.moved_from,
            cause: outcome.cause,
            needs_fence: outcome.needs_fence,
            held: outcome.held,
            random_seed: outcome.drawn.then_some(seed),
            why: outcome.why,
            candidates_left_out: Some(total - candidates.len()).filter(|left_out| *left_out > 0),
            candidates,
            rejected: outcome.rejected,
        }
    }
}

/// What a node would get of many services like one; without a node, what would fit nowhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Simulated {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    pub(crate) policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) random_seed: Option<u64>,
    /// How many it would get
    pub(crate) services: u64,
    /// Of all that were asked for, from 0 to 1
    pub(crate) share: f64,
    /// How many nodes do not fit, by the first predicate that each fails
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) rejected: BTreeMap<String, u64>,
}

/// What a node tells of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) total: Option<[Option<u64>; 3]>,
    pub(crate) used: Option<[Option<u64>; 3]>,
    pub(crate) services: Option<u64>,
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<u32>,
    /// In the order of the keys that were asked for.
    pub(crate) facts: Vec<Option<Fact>>,
}

impl Told {
    pub(crate) fn is_nothing(&self) -> bool {
        self.total.is_none() && self.used.is_none() && self.services.is_none()
    }
}

/// What one line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heard {
    /// About nodes: their life, and what they tell of themselves.
    pub(crate) words: Vec<(bucket::Word, Option<Told>)>,
    /// Where a service was put.
    pub(crate) placed: Option<(String, Put)>,
    pub(crate) renewal: bool,
}

/// An earlier record of `place`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Put {
    /// `None`: nowhere.
    pub(crate) node: Option<String>,
    pub(crate) unproven: Vec<String>,
    pub(crate) time: Option<WallTime>,
}

/// Amounts as records have them.
#[derive(Deserialize)]
struct Given {
    cpu: Option<f64>,
    memory_bytes: Option<f64>,
    bandwidth_bps: Option<f64>,
}

/// Reads a line by its shape: a node record, a beat with its payload, a score, a vote, a proof, or an
/// earlier record of `place`. Of a node's fields and labels those in `keys` are taken.
///
/// # Errors
/// A known field of the wrong type, or an amount that is none.
pub(crate) fn read(line: &Line<'_>, keys: &[String]) -> Result<Heard, String> {
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    let mut heard = Heard::default();
    if kind == "place" {
        let proofs = fence::read_proofs(line)?;
        heard.placed = read_place(line, &proofs)?;
        heard.words = proofs
            .into_iter()
            .map(|proven| {
                (bucket::Word { node: proven.node.clone(), proof: Some(proven), ..bucket::Word::default() }, None)
            })
            .collect();
        return Ok(heard);
    }
    let describes = || ["total", "used", "labels"].iter().any(|key| line.raw(key).is_some());
    let is_node = ["", "node", "heartbeat.recv", "health.score", "quorum"].contains(&kind.as_str()) || describes();
    for word in bucket::read_words(line, None)? {
        let mut told = None;
        if word.proof.is_none() || word.status.is_some() {
            if !is_node || kind.starts_with("bucket.") {
                continue;
            }
            check_name(&word.node).map_err(|why| format!("'subject': {why}"))?;
            told = Some(read_told(line, &word.node, keys)?);
            heard.renewal |= word.renewal;
        }
        heard.words.push((word, told));
    }
    Ok(heard)
}

fn read_place(line: &Line<'_>, proofs: &[fence::Proven]) -> Result<Option<(String, Put)>, String> {
    let Some(service) = line.get::<String>("subject")? else { return Ok(None) };
    if line.raw("error").is_some() || line.get::<bool>("dry_run")? == Some(true) {
        return Ok(None);
    }
    let mut unproven = line.get::<Vec<String>>("needs_fence")?.unwrap_or_default();
    unproven.retain(|node| !proofs.iter().any(|proven| proven.node == *node));
    let node = line.get::<String>("node")?;
    for name in node.iter().chain(&unproven) {
        check_name(name)?;
    }
    Ok(Some((service, Put { node, unproven, time: line.parsed("time")? })))
}

fn read_told(line: &Line<'_>, node: &str, keys: &[String]) -> Result<Told, String> {
    let mut told = Told { facts: vec![None; keys.len()], ..Told::default() };
    take_told(&mut told, line, keys)?;
    for record in line.get::<Vec<&RawValue>>("payload")?.unwrap_or_default() {
        let inner = Line::parse(record.get())?;
        // What a node says of an address or of another node is another matter.
        if inner.get::<String>("subject")?.is_none_or(|subject| subject == node) {
            take_told(&mut told, &inner, keys)?;
        }
    }
    Ok(told)
}

fn take_told(told: &mut Told, line: &Line<'_>, keys: &[String]) -> Result<(), String> {
    told.total = amounts(line, "total")?.or(told.total);
    told.used = amounts(line, "used")?.or(told.used);
    told.services = count(line)?.or(told.services);
    told.weight = line.get("weight")?.or(told.weight);
    // The 0 of a node in standby is no word about its health.
    if line.raw("standby").is_none() {
        told.priority = line.get("priority")?.or(told.priority);
    }
    let labels = match line.raw("labels").filter(|raw| raw.get() != "null") {
        Some(raw) if !keys.is_empty() => Some(Line::parse(raw.get()).map_err(|why| format!("'labels': {why}"))?),
        Some(raw) if !raw.get().starts_with('{') => return Err("'labels': it is no object".to_owned()),
        _ => None,
    };
    for (key, fact) in keys.iter().zip(&mut told.facts) {
        let label = |key: &str| labels.as_ref().and_then(|labels| labels.raw(key));
        let raw = match key.strip_prefix("labels.") {
            Some(key) => label(key),
            None => line.raw(key).filter(|raw| is_scalar(raw)).or_else(|| label(key)),
        };
        if let Some(raw) = raw.filter(|raw| is_scalar(raw)) {
            *fact = Some(if raw.get().starts_with('"') {
                Fact::read(&serde_json::from_str::<String>(raw.get()).map_err(|error| error.to_string())?)
            } else {
                Fact::read(raw.get())
            });
        }
    }
    Ok(())
}

fn is_scalar(raw: &RawValue) -> bool {
    raw.get() != "null" && !raw.get().starts_with(['{', '['])
}

/// How many services a node runs; a list of them, as other records have under this key, is no number.
fn count(line: &Line<'_>) -> Result<Option<u64>, String> {
    if line.raw("services").is_some_and(|raw| raw.get().starts_with('[')) {
        return Ok(None);
    }
    line.get("services")
}

fn amounts(line: &Line<'_>, key: &str) -> Result<Option<[Option<u64>; 3]>, String> {
    let Some(given) = line.get::<Given>(key)? else { return Ok(None) };
    let read = |resource: Resource, number: Option<f64>| {
        number.map(|number| resource.amount(number)).transpose().map_err(|why| format!("'{key}': {why}"))
    };
    Ok(Some([
        read(Resource::Cpu, given.cpu)?,
        read(Resource::Memory, given.memory_bytes)?,
        read(Resource::Bandwidth, given.bandwidth_bps)?,
    ]))
}

/// Reads `NAME [home=NODE] [cpu=N] [memory=N] [bandwidth=N] [require=EXPR ...]`, with `,` or blanks between.
///
/// # Errors
/// Why it is no service.
pub(crate) fn read_words(text: &str) -> Result<Service, String> {
    let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut service = Service::called(words.next().unwrap_or_default())?;
    for word in words {
        service.take(word)?;
    }
    Ok(service)
}

/// Reads a service from an object.
///
/// # Errors
/// Why it is no service.
fn read_object(line: &Line<'_>) -> Result<Service, String> {
    let mut service = Service::called(&line.get::<String>("service")?.ok_or("it has no 'service'")?)?;
    if let Some(home) = line.get::<String>("home")? {
        service.take(&format!("home={home}"))?;
    }
    for resource in Resource::ALL {
        if let Some(number) = line.get::<f64>(resource.as_str())? {
            let mut need = service.need.unwrap_or_default();
            need.0[resource as usize] = resource.amount(number)?;
            service.need = Some(need);
        }
    }
    for expr in line.get::<Vec<String>>("require")?.unwrap_or_default() {
        service.take(&format!("require={expr}"))?;
    }
    Ok(service)
}

/// Reads a file of services: a JSON array, JSON lines, or lines of words with comments.
///
/// # Errors
/// The first line that is no service, from 1, and why; two of one name.
pub(crate) fn read_file(text: &str) -> Result<Vec<Service>, (usize, String)> {
    described::read_file(text, read_words, read_object, |service| service.name.clone())
}

/// What `place` remembers from run to run of one boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    services: BTreeMap<String, Kept>,
    cursor: Option<String>,
    up_since_ms: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    node: String,
    at_ms: f64,
    unix_us: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unproven: Vec<String>,
}

impl Remembered {
    pub(crate) fn new(memory: &Memory) -> Self {
        let kept = |placed: &Placed| Kept {
            node: placed.node.clone(),
            at_ms: placed.at.as_ms(),
            unix_us: placed.time.unix_us,
            unproven: placed.unproven.clone(),
        };
        Remembered {
            services: memory.placed.iter().map(|(service, placed)| (service.clone(), kept(placed))).collect(),
            cursor: memory.cursor.clone(),
            up_since_ms: memory.up_since.iter().map(|(node, since)| (node.clone(), since.as_ms())).collect(),
        }
    }

    /// # Errors
    /// A name or a time that can be none.
    pub(crate) fn read(self) -> Result<Memory, String> {
        let tick = |ms: f64| Tick::from_ms(ms).ok_or_else(|| format!("{ms} is no time"));
        let mut memory = Memory { cursor: self.cursor, ..Memory::default() };
        for (service, kept) in self.services {
            for name in [&kept.node].into_iter().chain(&kept.unproven) {
                check_name(name)?;
            }
            let time = WallTime { unix_us: kept.unix_us };
            let placed = Placed { node: kept.node, at: tick(kept.at_ms)?, time, unproven: kept.unproven };
            memory.placed.insert(service, placed);
        }
        for (node, since) in self.up_since_ms {
            memory.up_since.insert(node, tick(since)?);
        }
        Ok(memory)
    }
}

pub(crate) const COLUMNS: &[Column] = &[
    column("subject", "SERVICE"),
    column("node", "NODE"),
    column("moved_from", "MOVED_FROM"),
    column("held", "HELD"),
    column("needs_fence", "NEEDS_FENCE"),
    column("why", "WHY"),
    column("rejected", "REJECTED"),
];

pub(crate) const SIMULATION_COLUMNS: &[Column] = &[
    column("subject", "SERVICE"),
    column("node", "NODE"),
    column("services", "SERVICES"),
    column("share", "SHARE"),
    column("rejected", "REJECTED"),
];

pub(crate) const SCHEMA: (&str, &str) = ("place", include_str!("schema/place.json"));
pub(crate) const SIMULATION_SCHEMA: (&str, &str) = ("place.simulation", include_str!("schema/place.simulation.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::decide::place::End;
    use crate::record::line::MAX_LINE;
    use crate::record::schema::check;
    use crate::types::service::Need;
    use crate::types::status::Status;

    #[test]
    fn schema_of_place() {
        check::<Place>("place", "On which node a service should run");
        check::<Simulated>("place.simulation", "What a node would get of many services like one");
    }

    fn heard(line: &str) -> Heard {
        read(&Line::parse(line).unwrap(), &["zone".to_owned(), "labels.services".to_owned(), "gen".to_owned()]).unwrap()
    }

    #[test]
    fn a_node_tells_what_it_has_and_what_is_asked_for() {
        let plain = heard(
            r#"{"subject":"n1","status":"up","weight":3,"gen":2,"total":{"cpu":8,"memory_bytes":1024},"used":{"cpu":0.5},
               "services":2,"labels":{"zone":"a","services":true}}"#,
        );
        let (word, told) = &plain.words[0];
        let told = told.as_ref().unwrap();
        assert_eq!((word.node.as_str(), word.status, told.weight), ("n1", Some(Status::Up), Some(3)));
        assert_eq!((told.total, told.used), (Some([Some(8000), Some(1024), None]), Some([Some(500), None, None])));
        assert_eq!(told.facts, [Some(Fact::read("a")), Some(Fact::read("true")), Some(Fact::Number(2.0))]);
        let beat = heard(
            r#"{"kind":"heartbeat.recv","host":"n1","subject":"n2","status":"up","renewal":true,"payload":[
               {"kind":"node","host":"n2","total":{"cpu":4},"services":1,"labels":{"zone":"b"}},
               {"kind":"health.score","subject":"n2","priority":0,"services":[]},
               {"kind":"vip.address","subject":"192.0.2.9","weight":9}]}"#,
        );
        let told = beat.words[0].1.clone().unwrap();
        assert!(beat.renewal);
        assert_eq!((told.services, told.priority, told.weight), (Some(1), Some(0), None));
        assert_eq!(told.facts[0], Some(Fact::read("b")));
        // A verdict about a service is none about a node.
        assert!(heard(r#"{"kind":"health.tcp","subject":"192.0.2.2:80","status":"up"}"#).words.is_empty());
        let proof = heard(r#"{"kind":"fence.off","subject":"n2","proof":true}"#);
        assert!(proof.words[0].0.proof.is_some() && proof.words[0].1.is_none());
        for wrong in [
            r#"{"subject":"n1","total":[1]}"#,
            r#"{"subject":"n1","total":{"cpu":-1}}"#,
            r#"{"subject":"n1","used":{"cpu":"x"}}"#,
            r#"{"subject":"n1","services":-1}"#,
            r#"{"subject":"n1","labels":[]}"#,
            r#"{"subject":"../n1","status":"up"}"#,
        ] {
            assert!(read(&Line::parse(wrong).unwrap(), &[]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_earlier_record_says_where_a_service_is() {
        let put = |line: &str| heard(line).placed;
        let (service, at) = put(
            r#"{"kind":"place","v":1,"time":"1970-01-01T00:00:01Z","subject":"web","node":"n2","needs_fence":["n1","n3"],"fence":{"node":"n1"}}"#,
        )
        .unwrap();
        assert_eq!((service.as_str(), at.node.as_deref(), at.unproven), ("web", Some("n2"), vec!["n3".to_owned()]));
        assert_eq!(at.time, Some(WallTime { unix_us: 1_000_000 }));
        assert_eq!(put(r#"{"kind":"place","subject":"web"}"#).unwrap().1.node, None);
        assert_eq!(put(r#"{"kind":"place","subject":"web","node":"n1","dry_run":true}"#), None);
        // A record that waits for proof is told again with it.
        let asks = |line: &str| fence::read_asks(&Line::parse(line).unwrap(), "n1").unwrap();
        let waits = asks(r#"{"kind":"place","host":"n1","subject":"web","node":"n2","needs_fence":["n3"]}"#);
        assert_eq!((waits.needs, waits.about.as_str()), (Some(vec!["n3".to_owned()]), "place web"));
        assert_eq!(asks(r#"{"kind":"place","host":"n1","subject":"web","node":"n2"}"#).needs, None);
    }

    #[test]
    fn services_are_read_from_words_and_objects() {
        let words = "# ours\nweb home=n1 cpu=2 memory=4G # big\ndb,cpu=1,require=zone=a\n\
                     {\"service\":\"lun0\",\"home\":\"n2\",\"cpu\":0.5,\"memory_bytes\":1024,\"require\":[\"gen>=2\"]}\n";
        let read = read_file(words).unwrap();
        assert_eq!(read.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["web", "db", "lun0"]);
        assert_eq!((read[2].need, read[2].requires[0].as_str()), (Some(Need([500, 1024, 0])), "gen>=2"));
        for (text, line) in
            [("a\nb x\n", 2), ("a\na\n", 2), ("{\"service\":\"a\",\"require\":[\"x\"]}", 1), ("a home=\n", 1)]
        {
            assert_eq!(read_file(text).unwrap_err().0, line, "{text}");
        }
    }

    #[test]
    fn many_candidates_leave_a_line_that_our_readers_take() {
        let candidate = |node: usize| place::Candidate {
            node: format!("node-{node}"),
            failed: vec!["status=up: it is down".to_owned()],
            score: None,
            terms: Vec::new(),
        };
        let outcome = Outcome {
            node: None,
            moved_from: None,
            needs_fence: Vec::new(),
            held: false,
            end: End::NoFit,
            why: String::new(),
            cause: None,
            standby: None,
            drawn: true,
            candidates: (0..10_000).map(candidate).collect(),
            rejected: BTreeMap::new(),
        };
        let record = Place::new("weighted", 7, outcome);
        assert_eq!(record.candidates.len() + record.candidates_left_out.unwrap(), 10_000);
        let length = serde_json::to_string(&record).unwrap().len();
        assert!((ROOM / 2..MAX_LINE * 3 / 4).contains(&length), "{length}");
    }

    #[test]
    fn what_is_remembered_reads_back() {
        let placed = Placed {
            node: "n1".to_owned(),
            at: Tick::from_ms(12.5).unwrap(),
            time: WallTime { unix_us: 7 },
            unproven: vec!["n2".to_owned()],
        };
        let memory = Memory {
            placed: [("web".to_owned(), placed)].into(),
            cursor: Some("n1".to_owned()),
            up_since: [("n1".to_owned(), Tick::from_ms(1.0).unwrap())].into(),
        };
        let text = serde_json::to_string(&Remembered::new(&memory)).unwrap();
        assert_eq!(serde_json::from_str::<Remembered>(&text).unwrap().read(), Ok(memory));
        let foreign = text.replace("\"n2\"", "\"../n2\"");
        assert!(serde_json::from_str::<Remembered>(&foreign).unwrap().read().is_err());
    }
}
