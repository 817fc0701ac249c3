//! What `nft -j list table` prints (libnftables-json(5)), read into rules of our words.

use super::json::Json;
use super::rule::{Hash, Part, Rule};
use crate::types::bucket::{Buckets, MAX_TOTAL};
use crate::types::net::Proto;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The elements of a listed set of `address . port . port`: a peer, its port and ours.
///
/// # Errors
/// Text that is no JSON, or JSON that is no such set.
pub(crate) fn peers(text: &str) -> Result<Vec<(IpAddr, u16, u16)>, String> {
    let value: Json<'_> = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let items = value.get("nftables").and_then(Json::list).ok_or("no key 'nftables'")?;
    let set = items.iter().find_map(|item| item.get("set")).ok_or("no set in it")?;
    let elements = set.get("elem").and_then(Json::list).unwrap_or_default();
    Ok(elements.iter().filter_map(peer).collect())
}

fn peer(element: &Json<'_>) -> Option<(IpAddr, u16, u16)> {
    let [address, theirs, ours] = element.get("elem")?.get("val")?.get("concat")?.list()? else { return None };
    let port = |port: &Json<'_>| u16::try_from(port.number()?).ok();
    Some((address.text()?.parse().ok()?, port(theirs)?, port(ours)?))
}

/// One table as listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: String,
    pub(crate) name: String,
    /// The kernel's number for it: one that was made anew has another.
    pub(crate) handle: u64,
    pub(crate) chains: BTreeMap<String, Chain>,
    pub(crate) counters: BTreeMap<String, Counter>,
    /// The elements of each set that have a time-out.
    pub(crate) timed: BTreeMap<String, Vec<Timed>>,
}

/// One chain with its rules in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) hook: Option<String>,
    pub(crate) priority: Option<i64>,
    pub(crate) rules: Vec<Rule>,
}

/// A named counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A set element that expires. nft prints both times in whole seconds, cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) value: String,
    pub(crate) left: Duration,
}

/// Reads one listed table.
///
/// # Errors
/// Text that is no JSON, or JSON that is not one table.
pub(crate) fn parse(text: &str) -> Result<Table, String> {
    let value: Json<'_> = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let items = value.get("nftables").and_then(Json::list).ok_or("no key 'nftables'")?;
    let mut table = Table::default();
    let mut found = false;
    for item in items {
        let Some((kind, body)) = item.first() else { continue };
        let name = || string(body, "name").unwrap_or_default();
        match kind {
            "table" => {
                found = true;
                table.family = string(body, "family").unwrap_or_default();
                table.name = name();
                table.handle = body.get("handle").and_then(Json::number).unwrap_or_default();
            }
            "chain" => {
                let chain = table.chains.entry(name()).or_default();
                chain.hook = string(body, "hook");
                chain.priority = body.get("prio").and_then(Json::signed);
            }
            "counter" => {
                let count = |key| body.get(key).and_then(Json::number).unwrap_or_default();
                table.counters.insert(name(), Counter { packets: count("packets"), bytes: count("bytes") });
            }
            "set" => {
                let elements = body.get("elem").and_then(Json::list).unwrap_or_default();
                table.timed.insert(name(), elements.iter().filter_map(timed).collect());
            }
            "rule" => {
                let chain = string(body, "chain").unwrap_or_default();
                table.chains.entry(chain).or_default().rules.push(rule(body));
            }
            _ => {}
        }
    }
    if found { Ok(table) } else { Err("no table in it".to_owned()) }
}

/// The names of the tables of one `family` that `nft -j list tables` prints.
pub(crate) fn table_names(text: &str, family: &str) -> Result<Vec<String>, String> {
    let value: Json<'_> = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let items = value.get("nftables").and_then(Json::list).ok_or("no key 'nftables'")?;
    Ok(items
        .iter()
        .filter_map(|item| item.get("table"))
        .filter(|table| table.get("family").and_then(Json::text) == Some(family))
        .filter_map(|table| string(table, "name"))
        .collect())
}

fn string(value: &Json<'_>, key: &str) -> Option<String> {
    value.get(key).and_then(Json::text).map(str::to_owned)
}

fn timed(element: &Json<'_>) -> Option<Timed> {
    let element = element.get("elem")?;
    let value = string(element, "val")?;
    // Below one second nft prints 0.
    let left = element.get("expires").and_then(Json::number).unwrap_or_default();
    Some(Timed { value, left: Duration::from_secs(left) })
}

fn rule(body: &Json<'_>) -> Rule {
    let statements = body.get("expr").and_then(Json::list).unwrap_or_default();
    let parts = statements.iter().map(|statement| part(statement).unwrap_or_else(|| unknown(statement))).collect();
    Rule { parts, comment: string(body, "comment") }
}

/// What we never write stays JSON: no rule of ours compares equal to it.
fn unknown(statement: &Json<'_>) -> Part {
    Part::Words(statement.to_string())
}

fn part(statement: &Json<'_>) -> Option<Part> {
    let (kind, body) = statement.first()?;
    let words = match kind {
        "match" => return matching(body),
        "counter" => match body.text() {
            Some(name) => format!("counter name \"{name}\""),
            None => "counter".to_owned(),
        },
        "accept" | "drop" | "notrack" => kind.to_owned(),
        "reject" => match (body.get("type")?.text()?, body.get("expr").and_then(Json::text)) {
            (kind, Some(code)) => format!("reject with {kind} {code}"),
            (kind, None) => format!("reject with {kind}"),
        },
        "mangle" => {
            let key = body.get("key")?;
            // A listed key of meta is bare where it is matched and not where it is set.
            let left = match key.get("meta").and_then(|meta| string(meta, "key")) {
                Some(key) => format!("meta {key}"),
                None => expression(key)?,
            };
            let value = body.get("value")?;
            match value.number() {
                // Raw payload is written in hex, as the RFCs' figures are.
                Some(number) => format!("{left} set {number:#x}"),
                None => format!("{left} set {}", scalar(value)?),
            }
        }
        "set" => {
            let (op, set) = (body.get("op")?.text()?, body.get("set")?.text()?);
            format!("{op} {set} {{ {} }}", expression(body.get("elem")?)?)
        }
        _ => return None,
    };
    Some(Part::Words(words))
}

fn matching(body: &Json<'_>) -> Option<Part> {
    let (left, right) = (body.get("left")?, body.get("right")?);
    let op = body.get("op")?.text()?;
    if let Some(jhash) = left.get("jhash") {
        return hash(jhash, op, right).map(Part::Hash);
    }
    let not = match op {
        "==" | "in" => "",
        "!=" => "!= ",
        "!" => "! ",
        _ => return None,
    };
    // `tcp flags != syn / fin,syn,rst,ack`
    if let Some([flags, mask]) = left.get("&").and_then(Json::list) {
        return Some(Part::Words(format!("{} {not}{} / {}", expression(flags)?, comma(right)?, comma(mask)?)));
    }
    let left = expression(left)?;
    // nft is asked for numbers here, since it looks names up in files of the host.
    let word = |value: &Json<'_>| match value.number().and_then(|number| u8::try_from(number).ok()) {
        Some(number) if left == "meta l4proto" => Some(Proto(number).to_string()),
        _ => scalar(value),
    };
    let right = match right {
        Json::Text(text) if left.ends_with("ifname") => format!("\"{text}\""),
        Json::List(_) => comma(right)?,
        Json::Object(_) => {
            let mut members: Vec<String> = right.get("set")?.list()?.iter().map(word).collect::<Option<_>>()?;
            members.sort_unstable();
            format!("{{ {} }}", members.join(", "))
        }
        single => word(single)?,
    };
    Some(Part::Words(format!("{left} {not}{right}")))
}

/// `syn`, or `["fin","syn"]` as `fin,syn`.
fn comma(value: &Json<'_>) -> Option<String> {
    match value {
        Json::List(list) => Some(list.iter().map(scalar).collect::<Option<Vec<_>>>()?.join(",")),
        other => scalar(other),
    }
}

fn scalar(value: &Json<'_>) -> Option<String> {
    match value {
        Json::Text(text) => Some(match text.strip_prefix("0x") {
            Some(digits) => format!("0x{}", digits.trim_start_matches('0')),
            None => text.clone().into_owned(),
        }),
        Json::Number(_) => value.number().map(|number| number.to_string()),
        _ => None,
    }
}

fn expression(value: &Json<'_>) -> Option<String> {
    let (kind, body) = value.first()?;
    match kind {
        "payload" => {
            if let (Some(protocol), Some(field)) = (string(body, "protocol"), string(body, "field")) {
                return Some(format!("{protocol} {field}"));
            }
            let number = |key| body.get(key).and_then(Json::number);
            Some(format!("@{},{},{}", string(body, "base")?, number("offset")?, number("len")?))
        }
        "meta" => {
            let key = string(body, "key")?;
            Some(if key == "l4proto" { format!("meta {key}") } else { key })
        }
        "ct" => Some(format!("ct {}", string(body, "key")?)),
        "fib" => {
            let flags = body.get("flags")?.list()?;
            Some(format!(
                "fib {} {}",
                flags.iter().map(scalar).collect::<Option<Vec<_>>>()?.join(" . "),
                string(body, "result")?
            ))
        }
        "concat" => Some(body.list()?.iter().map(expression).collect::<Option<Vec<_>>>()?.join(" . ")),
        _ => None,
    }
}

fn hash(jhash: &Json<'_>, op: &str, right: &Json<'_>) -> Option<Hash> {
    let number = |key| jhash.get(key).and_then(Json::number);
    if number("offset") != Some(1) {
        return None;
    }
    let among = match op {
        "==" => true,
        "!=" => false,
        _ => return None,
    };
    let members = match right.get("set").and_then(Json::list) {
        Some(members) => members,
        None => std::slice::from_ref(right),
    };
    let mut list = Vec::new();
    for member in members {
        let bucket =
            |value: &Json<'_>| value.number().and_then(|number| u16::try_from(number).ok()).filter(|&n| n <= MAX_TOTAL);
        match member.get("range").and_then(Json::list) {
            Some([first, last]) => list.extend(bucket(first)?..=bucket(last)?),
            _ => list.push(bucket(member)?),
        }
    }
    Some(Hash {
        fields: expression(jhash.get("expr")?)?,
        total: number("mod")?,
        seed: number("seed").unwrap_or_default(),
        among,
        buckets: list.into_iter().collect::<Buckets>(),
    })
}
