//! Records of `gw apply`, `gw clear` and `gw report`, and the plans that `gw apply` reads.

use super::envelope::{Column, column};
use super::gw::set;
use super::line::Line;
use super::text;
use crate::types::gateway::{Gateway, Marks};
use crate::types::time::WallTime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// A plan of `gw split`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) ipv6: bool,
    pub(crate) marks: Marks,
    pub(crate) slots: u32,
    pub(crate) gateways: Vec<Planned>,
    /// When it stops to hold, in milliseconds since boot, where that is said.
    pub(crate) until_ms: Option<f64>,
    pub(crate) boot_id: Option<String>,
}

/// In octets.
const LONGEST_NAME: usize = 100;

/// A gateway of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) gateway: Gateway,
    pub(crate) is_down: bool,
    pub(crate) is_up: bool,
    pub(crate) share: f64,
    /// `None`: it gets no new flows.
    pub(crate) slots: Option<RangeInclusive<u32>>,
    pub(crate) number: u32,
}

impl Planned {
    pub(crate) fn subject(&self) -> String {
        self.gateway.subject()
    }
}

impl Plan {
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.gateways.iter().map(|planned| planned.number).collect()
    }

    /// The gateways that get new flows.
    pub(crate) fn served(&self) -> Vec<String> {
        self.gateways.iter().filter(|planned| planned.slots.is_some()).map(Planned::subject).collect()
    }
}

/// One gateway as it stands in a plan.
#[derive(Deserialize)]
struct Piece {
    gateway: String,
    name: Option<String>,
    dev: Option<String>,
    status: String,
    share: f64,
    slots: Option<[u32; 2]>,
    mark: String,
    table: u32,
}

/// Reads a plan of the node `me`; `None` for another's, and for a record of another kind.
///
/// # Errors
/// It is none that can be carried out: pieces that are not the whole range, marks or tables that are not its
/// gateways', gateways of both families.
pub(crate) fn read_plan(line: &Line<'_>, me: &str) -> Result<Option<Plan>, String> {
    if line.get::<String>("kind")?.as_deref() != Some("gw.split")
        || line.get::<String>("host")?.is_some_and(|host| host != me)
        || line.raw("error").is_some()
    {
        return Ok(None);
    }
    let marks: Marks = line.parsed("mark_mask")?.ok_or("it has no 'mark_mask'")?;
    let slots = line.get::<u32>("slots")?.filter(|slots| *slots > 0).ok_or("it has no 'slots'")?;
    let pieces = line.get::<Vec<Piece>>("gateways")?.ok_or("it has no 'gateways'")?;
    let gateways = pieces.iter().map(|piece| planned(piece, marks)).collect::<Result<Vec<_>, _>>()?;
    let first = gateways.first().ok_or("it has no gateway")?;
    let ipv6 = first.gateway.addr.is_ipv6();
    if gateways.iter().any(|other| other.gateway.addr.is_ipv6() != ipv6) {
        return Err("it has gateways of both families (one split each, with its own --name)".to_owned());
    }
    for (at, one) in gateways.iter().enumerate() {
        for other in gateways.iter().take(at) {
            if other.subject() == one.subject() || other.number == one.number {
                return Err(format!("{} and {} are one gateway or have one mark", other.subject(), one.subject()));
            }
        }
    }
    partitions(&gateways, slots)?;
    let until_ms = match (line.get::<f64>("received_ms")?, line.get::<f64>("valid_for_ms")?) {
        (Some(received), Some(valid)) => Some(received + valid),
        _ => None,
    };
    let name = line.get::<String>("subject")?.unwrap_or_else(|| "-".to_owned());
    // It stands whole in its table, or two could not be told apart.
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(|c| c == '"' || c == '\\' || c.is_control()) {
        return Err(format!(
            "its name is empty, has more than {LONGEST_NAME} octets, or a character that nft cannot keep"
        ));
    }
    Ok(Some(Plan { name, ipv6, marks, slots, gateways, until_ms, boot_id: line.get("boot_id")? }))
}

fn planned(piece: &Piece, marks: Marks) -> Result<Planned, String> {
    let mut gateway = Gateway::at(&piece.gateway)?;
    let subject = gateway.subject();
    for (key, value) in [("dev", &piece.dev), ("name", &piece.name)] {
        if let Some(value) = value {
            set(&mut gateway, key, value).map_err(|why| format!("{subject}: {why}"))?;
        }
    }
    // It will stand in a document for nft.
    let is_plain = |dev: &String| dev.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-@".contains(&b));
    if let Some(dev) = gateway.dev.as_ref().filter(|dev| !is_plain(dev)) {
        return Err(format!("{subject}: '{dev}' is not the name of an interface that nft takes"));
    }
    if gateway.subject() != subject {
        return Err(format!("{subject} is on another interface by its 'dev'"));
    }
    let mark = piece.mark.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let mark = mark.ok_or_else(|| format!("{subject} has the mark '{}' (0x00010000)", piece.mark))?;
    let number = marks.number(mark);
    if marks.gateway(number) != mark || !(1..=marks.most_gateways()).contains(&number) {
        return Err(format!("the mark {mark:#010x} of {subject} is no gateway's in the mask {marks}"));
    }
    if piece.table != marks.table(mark) {
        return Err(format!("{subject} has the table {}, and its mark has {}", piece.table, marks.table(mark)));
    }
    if !(0.0..=1.0).contains(&piece.share) {
        return Err(format!("{subject} has the share {} (from 0 to 1)", piece.share));
    }
    let slots = match piece.slots {
        Some([first, last]) if first > last => return Err(format!("{subject} has the slots {first} to {last}")),
        slots => slots.map(|[first, last]| first..=last),
    };
    let (is_down, is_up) = (piece.status == "down", piece.status == "up");
    Ok(Planned { gateway, is_down, is_up, share: piece.share, slots, number })
}

/// Whether the pieces are the whole range, or nobody has one.
fn partitions(gateways: &[Planned], slots: u32) -> Result<(), String> {
    let mut pieces: Vec<&RangeInclusive<u32>> = gateways.iter().filter_map(|planned| planned.slots.as_ref()).collect();
    pieces.sort_by_key(|piece| *piece.start());
    let mut next = Some(0);
    for piece in &pieces {
        if next != Some(*piece.start()) {
            return Err(format!("the slots {} to {} do not begin where others end", piece.start(), piece.end()));
        }
        next = piece.end().checked_add(1);
    }
    if pieces.is_empty() || next == Some(slots) { Ok(()) } else { Err(format!("its pieces are not {slots} slots")) }
}

/// What was done about a split.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Applied {
    /// What decides which gateway a new flow gets: flow, client or client-destination
    pub(crate) by: &'static str,
    /// Those that get new flows
    pub(crate) gateways: Vec<String>,
    /// Connections of dead gateways that were forgotten, so that they begin anew by a living one
    pub(crate) flushed: u64,
    /// Rules and routes that are gone, as ip writes them
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) removed: Vec<String>,
}

/// What `clear` has taken away.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cleared {
    /// Tables, rules and routes, as nft and ip write them
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) removed: Vec<String>,
}

/// What one gateway carried since the last report.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// When the time begins that this is about
    #[serde(serialize_with = "text::display")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) since: WallTime,
    /// How long that is
    pub(crate) elapsed_ms: f64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) received_packets: u64,
    /// New ones that were given to it
    pub(crate) connections: u64,
    /// The part of new connections that the plan gives it, from 0 to 1
    pub(crate) share_wanted: f64,
    /// The part that it got; null: there were none
    pub(crate) share_got: Option<f64>,
    /// The counters began anew meanwhile, so this is what they have counted since
    pub(crate) counter_reset: bool,
}

/// What `apply` remembers of a split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// The chains as they were loaded, and the table as nft listed it right after.
    pub(crate) chains: String,
    pub(crate) listing: String,
    /// Of which rule set that is: the number of its generation, and that of the network namespace which no
    /// other has had since boot.
    #[serde(default)]
    pub(crate) rule_set: Option<(u32, u64)>,
    pub(crate) mark_mask: String,
    /// The numbers of gateways that there may be rules or routes for.
    pub(crate) numbers: BTreeSet<u32>,
    /// The MAC of each, where it is known.
    pub(crate) macs: BTreeMap<String, String>,
    /// What gateways carried that have left since the table was made.
    #[serde(default)]
    pub(crate) left: BTreeMap<String, Left>,
    /// When the table was made: on the wall clock, and in milliseconds since boot.
    pub(crate) since_us: i64,
    pub(crate) since_ms: f64,
}

impl Loaded {
    /// What is known before anything is loaded; the counters go on `since` an earlier time, or begin now.
    pub(crate) fn new(plan: &Plan, since: (i64, f64)) -> Self {
        let (since_us, since_ms) = since;
        Loaded { mark_mask: plan.marks.to_string(), numbers: plan.numbers(), since_us, since_ms, ..Loaded::default() }
    }
}

/// What a gateway carried that is in the table no longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) name: Option<String>,
    pub(crate) carried: Totals,
}

/// What `report` remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reported {
    /// The kernel's number of the table.
    pub(crate) handle: u64,
    pub(crate) at_us: i64,
    pub(crate) at_ms: f64,
    pub(crate) gateways: BTreeMap<String, Totals>,
}

/// A gateway's counters as they stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) received_packets: u64,
    pub(crate) connections: u64,
}

impl Totals {
    pub(crate) fn plus(self, other: Totals) -> Totals {
        Totals {
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            sent_packets: self.sent_packets.saturating_add(other.sent_packets),
            received_packets: self.received_packets.saturating_add(other.received_packets),
            connections: self.connections.saturating_add(other.connections),
        }
    }

    /// What was counted since; the whole where any counter is smaller than it was, and whether that is so.
    pub(crate) fn since(self, before: Totals) -> (Totals, bool) {
        let pairs = [
            (self.sent_bytes, before.sent_bytes),
            (self.received_bytes, before.received_bytes),
            (self.sent_packets, before.sent_packets),
            (self.received_packets, before.received_packets),
            (self.connections, before.connections),
        ];
        if pairs.iter().any(|(now, before)| now < before) {
            return (self, true);
        }
        let [sent_bytes, received_bytes, sent_packets, received_packets, connections] =
            pairs.map(|(now, before)| now - before);
        (Totals { sent_bytes, received_bytes, sent_packets, received_packets, connections }, false)
    }
}

pub(crate) const APPLY_COLUMNS: &[Column] = &[
    column("subject", "SPLIT"),
    column("changed", "CHANGED"),
    column("by", "BY"),
    column("gateways", "GATEWAYS"),
    column("flushed", "FLUSHED"),
    column("removed", "REMOVED"),
];
pub(crate) const CLEAR_COLUMNS: &[Column] =
    &[column("subject", "SPLIT"), column("changed", "CHANGED"), column("removed/", "REMOVED")];
pub(crate) const REPORT_COLUMNS: &[Column] = &[
    column("subject", "GATEWAY"),
    column("name", "NAME"),
    column("since", "SINCE"),
    column("sent_bytes", "SENT B"),
    column("received_bytes", "RECEIVED B"),
    column("connections", "CONNECTIONS"),
    column("share_wanted", "WANTED"),
    column("share_got", "GOT"),
];

pub(crate) const APPLY_SCHEMA: (&str, &str) = ("gw.apply", include_str!("schema/gw.apply.json"));
pub(crate) const CLEAR_SCHEMA: (&str, &str) = ("gw.clear", include_str!("schema/gw.clear.json"));
pub(crate) const REPORT_SCHEMA: (&str, &str) = ("gw.report", include_str!("schema/gw.report.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;
    use proptest::prelude::*;

    #[test]
    fn schema_of_gw_apply() {
        check::<Applied>("gw.apply", "What was done so that the kernel splits flows as planned");
        check::<Cleared>("gw.clear", "What was taken away of a split");
        check::<Report>("gw.report", "What one gateway carried since the last report");
    }

    const PLAN: &str = r#"{"kind":"gw.split","v":1,"subject":"-","slots":10000,"mark_mask":"0x00ff0000","gateways":[
        {"gateway":"192.0.2.1","name":"dsl","status":"up","weight":1.0,"share":0.3,"slots":[0,2999],"mark":"0x00010000","table":7001},
        {"gateway":"192.0.2.2","dev":"eth0","status":"down","weight":1.0,"share":0.0,"slots":null,"mark":"0x00020000","table":7002},
        {"gateway":"192.0.2.3","status":"up","weight":1.0,"share":0.7,"slots":[3000,9999],"mark":"0x00040000","table":7004}],"moved":[]}"#;

    fn read(text: &str) -> Result<Option<Plan>, String> {
        read_plan(&Line::parse(text)?, "n1")
    }

    #[test]
    fn a_plan_is_read() {
        let plan = read(PLAN).unwrap().unwrap();
        assert_eq!((plan.served(), plan.ipv6), (vec!["192.0.2.1".to_owned(), "192.0.2.3".to_owned()], false));
        assert_eq!(plan.gateways.iter().map(|planned| planned.number).collect::<Vec<_>>(), [1, 2, 4]);
        assert!(plan.gateways[1].is_down && plan.gateways[1].gateway.dev.as_deref() == Some("eth0"));
        assert_eq!(read(r#"{"kind":"gw.probe"}"#), Ok(None));
        assert_eq!(read(&PLAN.replacen("\"v\"", "\"host\":\"n2\",\"v\"", 1)), Ok(None));
        let none = PLAN.replace("[0,2999]", "null").replace("[3000,9999]", "null");
        assert_eq!(read(&none).unwrap().unwrap().served(), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_carried_out_is_told() {
        for (from, to, why) in [
            ("[0,2999]", "[0,2998]", "do not begin where others end"),
            ("[0,2999]", "[0,3000]", "do not begin where others end"),
            ("[0,2999]", "null", "do not begin"),
            ("[3000,9999]", "[3000,9998]", "not 10000 slots"),
            ("[3000,9999]", "[9999,3000]", "has the slots"),
            ("0x00040000", "0x00010000", "has the table"),
            ("\"mark\":\"0x00040000\",\"table\":7004", "\"mark\":\"0x00010000\",\"table\":7001", "one mark"),
            ("0x00040000", "0x01040000", "no gateway's in the mask"),
            ("0x00040000", "0x00ff0000", "no gateway's in the mask"),
            ("0x00040000", "0x00000000", "no gateway's in the mask"),
            ("7004", "254", "has the table 254"),
            ("192.0.2.3", "2001:db8::3", "both families"),
            ("192.0.2.3", "192.0.2.1", "one gateway"),
            ("192.0.2.3", "gateway", "not the address"),
            ("\"slots\":10000,", "", "no 'slots'"),
            ("\"eth0\"", "\"eth 0\"", "not the name"),
            ("192.0.2.3", "fe80::2%a\\\" drop", "not the name"),
            ("0x00ff0000\",\"gate", "0x00f0f000\",\"gate", "not neighbours"),
            ("0.7", "1.7", "has the share"),
            ("\"subject\":\"-\"", "\"subject\":\"a\\nb\"", "its name"),
            ("\"subject\":\"-\"", &format!("\"subject\":\"{}\"", "a".repeat(101)), "its name"),
        ] {
            let text = PLAN.replacen(from, to, 1);
            assert!(text != PLAN, "{from}");
            let told = read(&text).unwrap_err();
            assert!(told.contains(why), "{to}: {told}");
        }
    }

    #[test]
    fn a_counter_that_is_smaller_has_begun_anew() {
        let before = Totals { sent_bytes: 100, connections: 2, ..Totals::default() };
        let now = Totals { sent_bytes: 150, connections: 2, ..Totals::default() };
        assert_eq!(now.since(before), (Totals { sent_bytes: 50, ..Totals::default() }, false));
        assert_eq!(before.since(now), (before, true));
    }

    proptest! {
        #[test]
        fn no_plan_ends_in_a_panic(first in any::<u32>(), last in any::<u32>(), slots in any::<u32>(), mark in any::<u32>()) {
            let text = PLAN
                .replacen("[0,2999]", &format!("[{first},{last}]"), 1)
                .replacen("10000", &slots.to_string(), 1)
                .replacen("0x00010000", &format!("{mark:#010x}"), 1);
            let _ = read(&text);
        }
    }
}
