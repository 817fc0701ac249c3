//! Records of `dns`, and the files that describe sites.

use super::described;
use super::envelope::{Column, column};
use super::line::Line;
use crate::decide::answer::OTHER_TYPE;
use crate::types::domain::Domain;
use crate::types::rrset::Family;
use crate::types::site::Site;
use crate::types::time::millis;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// What a name's addresses should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Answer {
    /// A or AAAA
    pub(crate) qtype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) view: Option<String>,
    pub(crate) ttl_s: u32,
    /// round-robin, priority, weighted, hash or nearest
    pub(crate) policy: &'static str,
    /// Why it is not the policy's choice: standby, unmeasured, all, empty, backup, first-tier or keep; other-type: sites
    /// serve, by addresses of the other type alone
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<&'static str>,
    /// The name is to be there without an address
    pub(crate) empty: bool,
    pub(crate) answers: Vec<String>,
    pub(crate) members: Vec<Member>,
}

/// One address of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Member {
    pub(crate) site: String,
    /// None of this type: absent
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// up, down or unknown, as the newest verdict on the site that holds
    pub(crate) status: &'static str,
    /// up, down, standby, or unmeasured: nobody has ever said
    pub(crate) counted_as: &'static str,
    pub(crate) chosen: bool,
    pub(crate) why: String,
}

/// How long a fail-over takes on paper.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Budget {
    phases: Vec<Phase>,
    /// Of detection, authority, resolver, os and application together
    min_ms: f64,
    /// null: some keep an address for ever
    max_ms: Option<f64>,
    /// How long an answer without an address may be kept, which is not the TTL of the addresses
    negative_ttl_s: u32,
    /// What the authority is asked, by resolvers that always have clients
    #[serde(skip_serializing_if = "Option::is_none")]
    queries_per_s: Option<f64>,
}

/// A phase of it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Phase {
    /// detection, authority, resolver, os, application, connection or return
    phase: &'static str,
    min_ms: f64,
    /// null: for ever
    max_ms: Option<f64>,
    /// What the figures rest on
    from: String,
}

impl Phase {
    pub(crate) fn new(phase: &'static str, min: Duration, max: Option<Duration>, from: &str) -> Self {
        Phase { phase, min_ms: millis(min), max_ms: max.map(millis), from: from.to_owned() }
    }
}

impl Budget {
    pub(crate) fn new(
        phases: Vec<Phase>,
        (min, max): (Duration, Option<Duration>),
        negative_ttl_s: u32,
        queries_per_s: Option<f64>,
    ) -> Self {
        Budget { phases, min_ms: millis(min), max_ms: max.map(millis), negative_ttl_s, queries_per_s }
    }
}

/// What one vantage point was given while a fail-over happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Trace {
    /// detection, authority, resolver, os, application or connection
    pub(crate) phase: &'static str,
    /// The server's address; of detection whose verdict it is; of the others what looks
    pub(crate) vantage: String,
    /// The last old answer, as RFC 3339; absent where none was seen
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_old: Option<String>,
    /// The first new answer that no old one has followed; absent while there is none
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_new: Option<String>,
    /// What `elapsed_ms` counts from: when the old site stopped serving where that was seen, else when it was said to
    /// have failed, else the start
    pub(crate) since: String,
    /// Until the first new answer; while there is none, until now
    pub(crate) elapsed_ms: f64,
    pub(crate) samples: u64,
}

/// A server that was asked to change the addresses of a name.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Update {
    /// As it was named
    pub(crate) server: String,
    /// Absent: it was not found out
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    /// A or AAAA
    pub(crate) qtype: &'static str,
    /// What stood there; absent: it was not found out
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Vec<String>>,
    /// What stands there, read again after a change; with `dry_run`, what would
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Vec<String>>,
    /// What it said to the update, or to the question where none was sent: NOERROR, NXRRSET, REFUSED, …; absent: nothing
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rcode: Option<String>,
    /// What it said of our signature (BADSIG, BADKEY, BADTIME, BADTRUNC, other-error), or what is wrong with its own:
    /// unsigned, truncated, other-key, unverified, out-of-time
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tsig_error: Option<&'static str>,
    /// How far our clock is ahead of the server's; below 0: behind
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skew_ms: Option<f64>,
    /// The addresses of authoritative servers that show it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) visible_on: Option<Vec<String>>,
    /// A wildcard answered for the name, which has records of its own now and no others of the wildcard; absent: not so
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wildcard: Option<bool>,
}

/// An answer that a server is to give.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) name: Domain,
    pub(crate) family: Family,
    pub(crate) view: Option<String>,
    pub(crate) ttl_s: u32,
    /// None of them, and not `empty`: nothing was concluded.
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) empty: bool,
    /// The name has addresses of the other type.
    pub(crate) beside_other: bool,
    /// When it stops to hold, in milliseconds since boot, where that is said.
    pub(crate) until_ms: Option<f64>,
    pub(crate) boot_id: Option<String>,
}

/// Reads a record of `answer`; none where it is another's, or that of an item that failed.
///
/// # Errors
/// Why it is malformed.
pub(crate) fn read_answer(line: &Line<'_>) -> Result<Option<Wanted>, String> {
    if line.get::<String>("kind")?.as_deref() != Some("dns.answer") || line.raw("error").is_some() {
        return Ok(None);
    }
    let name = line.parsed("subject")?.ok_or("it has no 'subject'")?;
    let qtype: String = line.get("qtype")?.ok_or("it has no 'qtype'")?;
    let family = Family::ALL.into_iter().find(|family| family.as_str() == qtype);
    let family = family.ok_or_else(|| format!("'qtype': '{qtype}' is neither A nor AAAA"))?;
    let ttl_s = line.get::<u32>("ttl_s")?.ok_or("it has no 'ttl_s'")?;
    if ttl_s > i32::MAX.unsigned_abs() {
        return Err(format!("'ttl_s': {ttl_s} is more than a TTL can be"));
    }
    let mut addresses = BTreeSet::new();
    for text in line.get::<Vec<String>>("answers")?.ok_or("it has no 'answers'")? {
        let address = text.parse().map_err(|_| format!("'answers': '{text}' is not an address"))?;
        if Family::of(address) != family || address.is_unspecified() || address.is_multicast() {
            return Err(format!("'answers': {address} is no address of the type {family}"));
        }
        addresses.insert(address);
    }
    let empty = line.get::<bool>("empty")?.unwrap_or(false);
    if empty && !addresses.is_empty() {
        return Err("it is 'empty' and has 'answers'".to_owned());
    }
    let until_ms = match (line.get::<f64>("received_ms")?, line.get::<f64>("valid_for_ms")?) {
        (Some(received), Some(valid)) => Some(received + valid),
        _ => None,
    };
    let (view, boot_id) = (line.get("view")?, line.get("boot_id")?);
    let beside_other = line.get::<String>("fallback")?.as_deref() == Some(OTHER_TYPE);
    Ok(Some(Wanted { name, family, view, ttl_s, addresses, empty, beside_other, until_ms, boot_id }))
}

/// What one server says of a name, and where it has that from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check {
    /// Whom it was asked: as given, or as found by `--authority auto`, or auto where none was found
    pub(crate) server: String,
    /// authority or resolver
    pub(crate) role: &'static str,
    /// live: the authority's own at this moment; cached: kept within its time; stale: kept beyond its time; unknown:
    /// it cannot be told
    pub(crate) class: &'static str,
    /// What the class rests on: words of the manual
    pub(crate) evidence: Vec<&'static str>,
    pub(crate) qtype: String,
    /// The response code; null without an answer
    pub(crate) rcode: Option<String>,
    /// The server is an authority for it, by its own word; null without an answer
    pub(crate) aa: Option<bool>,
    /// The records of the type, of the name or of what its aliases lead to, sorted
    pub(crate) answers: Vec<String>,
    /// Seconds that the answer may be kept: of aliases and records the lowest TTL, without records that of the SOA;
    /// null where nothing says it
    pub(crate) ttl_s: Option<u32>,
    /// What the authorities say that the same may be kept, or said last in a stream
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authority_ttl_s: Option<u32>,
    /// The latest that a resolver can still hand out what it holds, after this record; of aliases and records the
    /// highest TTL, and a second that does not show. Absent where there is no such limit: stale, unknown
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stale_at_most_ms: Option<f64>,
    /// From the first copy of the question to the answer; null without one
    pub(crate) rtt_ms: Option<f64>,
    /// Extended DNS Errors (RFC 8914)
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) ede: Vec<ExtendedError>,
    /// The message, in the words of RFC 8427 (`--message`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<serde_json::Value>,
}

/// What went wrong at the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExtendedError {
    /// By the IANA's registry
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// Whether all servers say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Agree {
    /// Each answer, and who gave it; more than one: they disagree
    pub(crate) sets: Vec<Agreed>,
    /// Those that gave no answer: nothing came, or an error, or a referral to others
    pub(crate) silent: Vec<String>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Agreed {
    /// The records, sorted; none where there are none
    pub(crate) answers: Vec<String>,
    pub(crate) servers: Vec<String>,
}

/// What `answer` remembers from run to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// Which sites were up when that was known last.
    pub(crate) up: BTreeMap<String, bool>,
    /// The site that was chosen last.
    #[serde(default)]
    pub(crate) last: Option<String>,
    /// What each site is owed, of the rotation by weight.
    #[serde(default)]
    pub(crate) owed: BTreeMap<String, f64>,
    /// The last answer that a site served.
    #[serde(default)]
    pub(crate) answer: Option<Vec<String>>,
}

/// Reads `NAME ADDR [ADDR ...] [weight=W] [tier=N]`, with `,` or blanks between.
///
/// # Errors
/// Why it is no site.
pub(crate) fn read_words(text: &str) -> Result<Site, String> {
    let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut site = Site::called(words.next().unwrap_or_default())?;
    for word in words {
        site.take(word)?;
    }
    if site.addresses.is_empty() { Err(format!("the site {} has no address", site.name)) } else { Ok(site) }
}

/// Reads a site from an object.
///
/// # Errors
/// Why it is no site.
fn read_object(line: &Line<'_>) -> Result<Site, String> {
    let mut site = Site::called(&line.get::<String>("site")?.ok_or("it has no 'site'")?)?;
    for address in line.get::<Vec<String>>("addresses")?.ok_or("it has no 'addresses'")? {
        site.add(&address)?;
    }
    for key in ["weight", "tier"] {
        if let Some(value) = line.raw(key) {
            site.take(&format!("{key}={}", value.get().trim_matches('"'))).map_err(|why| format!("'{key}': {why}"))?;
        }
    }
    if site.addresses.is_empty() { Err(format!("the site {} has no address", site.name)) } else { Ok(site) }
}

/// Reads a file of sites: a JSON array, JSON lines, or lines of words with comments.
///
/// # Errors
/// The first line that is no site, from 1, and why; two of one name.
pub(crate) fn read_file(text: &str) -> Result<Vec<Site>, (usize, String)> {
    described::read_file(text, read_words, read_object, |site| site.name.clone())
}

pub(crate) const ANSWER_COLUMNS: &[Column] = &[
    column("subject", "NAME"),
    column("qtype", "TYPE"),
    column("fallback", "FALLBACK"),
    column("ttl_s", "TTL"),
    column("members/site", "SITE"),
    column("members/address", "ADDRESS"),
    column("members/counted_as", "COUNTED AS"),
    column("members/chosen", "CHOSEN"),
    column("members/why", "WHY"),
];

pub(crate) const BUDGET_COLUMNS: &[Column] = &[
    column("subject", "NAME"),
    column("phases/phase", "PHASE"),
    column("phases/min_ms", "MIN MS"),
    column("phases/max_ms", "MAX MS"),
    column("phases/from", "FROM"),
    column("min_ms", "SUM MIN MS"),
    column("max_ms", "SUM MAX MS"),
    column("queries_per_s", "QUERIES/S"),
];

pub(crate) const TRACE_COLUMNS: &[Column] = &[
    column("phase", "PHASE"),
    column("vantage", "VANTAGE"),
    column("elapsed_ms", "ELAPSED MS"),
    column("last_old", "LAST OLD"),
    column("first_new", "FIRST NEW"),
    column("since", "SINCE"),
    column("samples", "SAMPLES"),
];

pub(crate) const TRACE_SCHEMA: (&str, &str) = ("dns.trace", include_str!("schema/dns.trace.json"));
pub(crate) const UPDATE_COLUMNS: &[Column] = &[
    column("subject", "NAME"),
    column("server", "SERVER"),
    column("qtype", "TYPE"),
    column("before", "BEFORE"),
    column("after", "AFTER"),
    column("changed", "CHANGED"),
    column("rcode", "RCODE"),
    column("tsig_error", "TSIG ERROR"),
    column("visible_on", "VISIBLE ON"),
];

pub(crate) const UPDATE_SCHEMA: (&str, &str) = ("dns.update", include_str!("schema/dns.update.json"));
pub(crate) const CHECK_COLUMNS: &[Column] = &[
    column("subject", "NAME"),
    column("server", "SERVER"),
    column("role", "ROLE"),
    column("class", "CLASS"),
    column("rcode", "RCODE"),
    column("ttl_s", "TTL"),
    column("authority_ttl_s", "OF"),
    column("stale_at_most_ms", "KEPT MS"),
    column("rtt_ms", "RTT MS"),
    column("answers", "ANSWERS"),
    column("evidence", "EVIDENCE"),
    column("status", "AGREE"),
];

pub(crate) const CHECK_SCHEMA: (&str, &str) = ("dns.check", include_str!("schema/dns.check.json"));
pub(crate) const AGREE_SCHEMA: (&str, &str) = ("dns.agree", include_str!("schema/dns.agree.json"));
pub(crate) const BUDGET_SCHEMA: (&str, &str) = ("dns.budget", include_str!("schema/dns.budget.json"));
pub(crate) const ANSWER_SCHEMA: (&str, &str) = ("dns.answer", include_str!("schema/dns.answer.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;
    use proptest::prelude::*;

    #[test]
    fn schema_of_dns() {
        check::<Answer>("dns.answer", "Which addresses a name should have, and why");
        check::<Check>("dns.check", "What a server says of a name, and whether that is live, cached or stale");
        check::<Agree>("dns.agree", "Whether the servers agree on a name; status up: they do, and with an authority");
        check::<Budget>("dns.budget", "How long a fail-over by DNS takes on paper");
        check::<Trace>("dns.trace", "What one vantage point was given while a fail-over happened");
        check::<Update>("dns.update", "What a server was asked to change about a name, and what stands there");
    }

    #[test]
    fn each_form_of_a_file_says_the_same() {
        let words = "# ours\nparis 192.0.2.1 2001:db8::1 weight=2\n\nrome,198.51.100.1,tier=2 # spare\n";
        let lines = r#"{"site":"paris","addresses":["192.0.2.1","2001:db8::1","192.0.2.1"],"weight":2}
            {"site":"rome","addresses":["198.51.100.1"],"tier":"2"}"#;
        let array = format!("[{}]", lines.lines().collect::<Vec<_>>().join(","));
        let read = read_file(words).unwrap();
        assert_eq!((read[0].addresses.len(), read[0].weight.0.to_string(), read[1].tier), (2, "2".to_owned(), 2));
        assert_eq!((read_file(lines).unwrap(), read_file(&array).unwrap()), (read.clone(), read));
    }

    const ANSWER: &str = r#"{"kind":"dns.answer","v":1,"subject":"www.example.org","qtype":"A","ttl_s":5,"policy":"priority","empty":false,"answers":["192.0.2.2","192.0.2.1"],"members":[],"received_ms":1000,"valid_for_ms":3000}"#;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let read = |text: &str| read_answer(&Line::parse(text)?);
        let wanted = read(ANSWER).unwrap().unwrap();
        assert_eq!((wanted.name.as_str(), wanted.family, wanted.ttl_s), ("www.example.org", Family::A, 5));
        assert_eq!((wanted.addresses.len(), wanted.empty, wanted.until_ms), (2, false, Some(4000.0)));
        assert_eq!(read(r#"{"kind":"dns.budget"}"#), Ok(None));
        let empty = ANSWER.replace(r#"["192.0.2.2","192.0.2.1"]"#, "[]").replace("false", "true");
        assert!(read(&empty).unwrap().unwrap().empty);
        for (from, to, why) in [
            ("\"A\"", "\"MX\"", "neither A nor AAAA"),
            ("\"A\"", "\"AAAA\"", "no address of the type AAAA"),
            ("192.0.2.2", "192.0.2", "not an address"),
            ("192.0.2.2", "0.0.0.0", "no address of the type A"),
            ("false", "true", "'empty' and has 'answers'"),
            ("\"ttl_s\":5", "\"ttl_s\":4294967295", "more than a TTL"),
            ("\"ttl_s\":5,", "", "no 'ttl_s'"),
            ("www.example.org", "www..org", "not a name"),
        ] {
            let text = ANSWER.replacen(from, to, 1);
            assert!(text != ANSWER && read(&text).unwrap_err().contains(why), "{text}: {:?}", read(&text));
        }
    }

    #[test]
    fn what_is_no_site_is_told_with_its_line() {
        for (text, line, why) in [
            ("paris 192.0.2.1\nparis 192.0.2.2", 2, "stands there twice"),
            ("paris", 1, "has no address"),
            ("paris 192.0.2.1 weight=0", 1, "weight 0"),
            ("paris 192.0.2.1 weight=-1", 1, "not a weight"),
            ("paris 192.0.2.1 tier=x", 1, "not a tier"),
            ("paris 192.0.2.1 view=x", 1, "has no 'view'"),
            ("\nparis 192.0.2", 2, "not an address"),
            ("paris 0.0.0.0", 1, "no address of a site"),
            ("pa/ris 192.0.2.1", 1, "no name of a site"),
            ("{\"site\":\"a\"}", 1, "no 'addresses'"),
            ("{\"site\":\"a\",\"addresses\":[]}", 1, "has no address"),
            ("{\"addresses\":[]}", 1, "no 'site'"),
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
