//! Records of `gw`, and the files that describe gateways.

use super::described;
use super::envelope::{Column, column};
use super::line::Line;
use crate::types::gateway::{Gateway, Method, Probe};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A gateway as it is described: what `--gateways` reads.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Described {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<String>,
    /// Beside the other gateways' weights; 0 is a spare
    weight: f64,
    /// Gateways of the lowest tier that has a living one are used
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<u32>,
    /// The address that the world sees behind it
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<String>,
    /// none, icmp, tcp, http or wan-ip
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    /// What a probe asks through it
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[cfg_attr(test, schemars(default))]
    targets: Vec<String>,
}

impl Described {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        Described {
            name: gateway.name.clone(),
            dev: gateway.dev.clone(),
            weight: gateway.weight.0,
            tier: (gateway.tier != 1).then_some(gateway.tier),
            expect: gateway.expect.map(|addr| addr.to_string()),
            method: gateway.probe.as_ref().map(|probe| probe.method.as_str()),
            targets: gateway.probe.as_ref().map(|probe| probe.targets.clone()).unwrap_or_default(),
        }
    }
}

/// How new flows are split.
#[derive(Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Split {
    /// The range that is cut into pieces: 0 to slots - 1
    pub(crate) slots: u32,
    /// The bits of a mark that are ours
    pub(crate) mark_mask: String,
    pub(crate) gateways: Vec<Piece>,
    /// What gateways have of those that are dead
    pub(crate) moved: Vec<Moved>,
}

/// One gateway's piece.
#[derive(Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Piece {
    pub(crate) gateway: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    /// up, down, unknown, or standby: no new flows, and the old ones stay
    pub(crate) status: &'static str,
    pub(crate) weight: f64,
    /// The part of new flows that it gets, from 0 to 1
    pub(crate) share: f64,
    /// First and last; null: none
    pub(crate) slots: Option<[u32; 2]>,
    /// What its flows are marked with
    pub(crate) mark: String,
    /// Its routing table
    pub(crate) table: u32,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Moved {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) slots: u32,
}

/// What `split` remembers from run to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// The number of each gateway, from which its mark and its table are made.
    pub(crate) numbers: BTreeMap<String, u32>,
    /// Who was up when that was known last.
    pub(crate) up: BTreeMap<String, bool>,
}

/// The word of why a record's item failed.
///
/// # Errors
/// Its `error` is none.
pub(crate) fn reason(line: &Line<'_>) -> Result<Option<String>, String> {
    #[derive(Deserialize)]
    struct Error {
        reason: Option<String>,
    }
    Ok(line.get::<Error>("error")?.and_then(|error| error.reason))
}

/// Sets one property of a gateway: `weight=0.5`.
///
/// # Errors
/// A key that no gateway has, or a value that does not fit it.
pub(crate) fn set(gateway: &mut Gateway, key: &str, value: &str) -> Result<(), String> {
    match key {
        "name" => {
            crate::types::node::check_name(value).map_err(|_| format!("'{value}' is no name of a gateway"))?;
            gateway.name = Some(value.to_owned());
        }
        "dev" => {
            let there = Gateway::at(&format!("192.0.2.1%{value}"));
            gateway.dev = there.map_err(|_| format!("'{value}' is not the name of an interface"))?.dev;
        }
        "weight" => gateway.weight = value.parse()?,
        "tier" => {
            let tier = value.parse().ok().filter(|tier| (1..=255).contains(tier));
            gateway.tier = tier.ok_or_else(|| format!("'{value}' is not a tier from 1 to 255"))?;
        }
        "expect" => gateway.expect = Some(value.parse().map_err(|_| format!("'{value}' is not an address"))?),
        "method" => {
            let method = Method::ALL.into_iter().find(|method| method.as_str() == value);
            let method = method.ok_or_else(|| format!("'{value}' is not none, icmp, tcp, http or wan-ip"))?;
            gateway.probe.get_or_insert(Probe { method, targets: Vec::new() }).method = method;
        }
        "target" | "targets" => {
            let probe = gateway.probe.get_or_insert(Probe { method: Method::Icmp, targets: Vec::new() });
            probe.targets.extend(value.split(',').map(str::to_owned));
        }
        other => return Err(format!("a gateway has no '{other}' (name dev weight tier expect method target)")),
    }
    Ok(())
}

/// Reads `ADDR key=value ...`, with `,` or blanks between.
///
/// # Errors
/// Why it is no gateway.
pub(crate) fn read_words(text: &str) -> Result<Gateway, String> {
    let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut gateway = Gateway::at(words.next().unwrap_or_default())?;
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not key=value"))?;
        set(&mut gateway, key, value)?;
    }
    Ok(gateway)
}

/// Reads a gateway from an object: a record of `gw import` or `gw probe`, or one that an operator wrote.
///
/// # Errors
/// Why it is no gateway.
pub(crate) fn read_object(line: &Line<'_>) -> Result<Gateway, String> {
    let subject = match line.get::<String>("subject")? {
        Some(subject) => subject,
        None => line.get::<String>("gateway")?.ok_or("it has neither 'subject' nor 'gateway'")?,
    };
    let mut gateway = Gateway::at(&subject)?;
    for key in ["name", "dev", "expect", "method"] {
        if let Some(value) = line.get::<String>(key)? {
            set(&mut gateway, key, &value).map_err(|why| format!("'{key}': {why}"))?;
        }
    }
    for key in ["weight", "tier"] {
        if let Some(value) = line.raw(key) {
            set(&mut gateway, key, value.get().trim_matches('"')).map_err(|why| format!("'{key}': {why}"))?;
        }
    }
    if let Some(raw) = line.raw("targets") {
        // Those of a probe's record are what became of each.
        if let Ok(targets) = serde_json::from_str::<Vec<String>>(raw.get()) {
            gateway.probe.get_or_insert(Probe { method: Method::Icmp, targets: Vec::new() }).targets = targets;
        }
    }
    Ok(gateway)
}

/// Reads a file of gateways: a JSON array, JSON lines, or `ADDR key=value ...` lines with comments.
///
/// # Errors
/// The first line that is no gateway, from 1, and why; two of one address.
pub(crate) fn read_file(text: &str) -> Result<Vec<Gateway>, (usize, String)> {
    described::read_file(text, read_words, read_object, Gateway::subject)
}

pub(crate) const IMPORT_COLUMNS: &[Column] = &[
    column("subject", "GATEWAY"),
    column("name", "NAME"),
    column("dev", "DEV"),
    column("weight", "WEIGHT"),
    column("expect", "EXPECT"),
    column("method", "METHOD"),
    column("targets", "TARGETS"),
];

pub(crate) const SPLIT_COLUMNS: &[Column] = &[
    column("subject", "SPLIT"),
    column("gateways/gateway", "GATEWAY"),
    column("gateways/name", "NAME"),
    column("gateways/status", "STATUS"),
    column("gateways/weight", "WEIGHT"),
    column("gateways/share", "SHARE"),
    column("gateways/slots", "SLOTS"),
    column("gateways/mark", "MARK"),
    column("gateways/table", "TABLE"),
];

pub(crate) const IMPORT_SCHEMA: (&str, &str) = ("gw.import", include_str!("schema/gw.import.json"));
pub(crate) const SPLIT_SCHEMA: (&str, &str) = ("gw.split", include_str!("schema/gw.split.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use crate::record::schema::check;
    use proptest::prelude::*;

    #[test]
    fn schema_of_gw() {
        check::<Described>("gw.import", "A gateway as another program's configuration describes it");
        check::<Split>("gw.split", "How new flows are split over the gateways");
    }

    #[test]
    fn each_form_of_a_file_says_the_same() {
        let words = "# ours\n192.0.2.1 name=dsl weight=.25 dev=eth0\n\n192.0.2.2, weight=0.75,expect=203.0.113.2 # cable\n\
                     fe80::1%eth1 tier=2 method=tcp target=192.0.2.9:53\n";
        let lines = r#"{"kind":"gw.import","v":1,"subject":"192.0.2.1","name":"dsl","weight":0.25,"dev":"eth0"}
            {"gateway":"192.0.2.2","weight":"0.75","expect":"203.0.113.2"}
            {"gateway":"fe80::1%eth1","weight":1,"tier":2,"method":"tcp","targets":["192.0.2.9:53"]}"#;
        let array = format!("[{}]", lines.lines().collect::<Vec<_>>().join(",\n"));
        let read = read_file(words).unwrap();
        assert_eq!((read[0].weight.0, read[1].expect, read[2].tier), (0.25, Some("203.0.113.2".parse().unwrap()), 2));
        assert_eq!((read_file(lines).unwrap(), read_file(&array).unwrap()), (read.clone(), read));
    }

    #[test]
    fn what_is_no_gateway_is_told_with_its_line() {
        for (text, line, why) in [
            ("192.0.2.1\n192.0.2.1", 2, "stands there twice"),
            ("192.0.2.1 weight=-1", 1, "not a weight"),
            ("192.0.2.1 wait=1", 1, "a gateway has no 'wait'"),
            ("192.0.2.1 weight", 1, "not key=value"),
            ("\ngateway", 2, "not the address"),
            ("192.0.2.1 tier=0", 1, "not a tier"),
            ("192.0.2.1 method=arp", 1, "is not none, icmp"),
            ("{\"weight\":1}", 1, "neither"),
            ("{\"gateway\":\"192.0.2.1\",\"weight\":[]}", 1, "'weight'"),
            ("[7]", 0, ""),
            ("[{\"gateway\"", 1, "no JSON array"),
        ] {
            let refused = read_file(text).unwrap_err();
            assert!(refused.0 == line && refused.1.contains(why), "{text}: {refused:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_ends_in_a_panic(text in "[\\[\\]{}\",:a-z0-9.=%# \n]{0,120}") {
            let _ = read_file(&text);
        }
    }
}
