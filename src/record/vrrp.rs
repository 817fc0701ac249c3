//! Records of `vrrp`, and the scores that it reads.

use super::envelope::{Column, column};
use super::line::Line;
use crate::decide::vrrp::{Cause, Router, State};
use crate::types::net::Prefix;
use crate::types::time::{Tick, millis};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What `run` prints of one virtual address.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run<'a> {
    prefix_len: u8,
    /// The interface of the virtual router
    dev: &'a str,
    vrid: u8,
    /// init, backup or master
    state: &'static str,
    /// Whether this node serves the address
    mine: bool,
    /// The address of the master's adverts, where it is another
    #[serde(skip_serializing_if = "Option::is_none")]
    master_addr: Option<String>,
    /// 2 or 3
    version: u8,
    /// The state before
    from: &'static str,
    /// start, silence, resigned, higher-priority, contested, paused, priority-zero, link-down, sync, shutdown, master, priority, settings or renewal
    event: &'a str,
    /// The effective priority
    priority: u8,
    /// The interval of the master's adverts
    advert_interval_ms: f64,
    /// The group that moves together
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<&'a str>,
    /// How much later than planned this process ran
    lag_ms: f64,
    /// The event as a sentence
    why: String,
}

/// The word of a state.
pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Init => "init",
        State::Backup => "backup",
        State::Master => "master",
    }
}

/// Why a record of `run` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It went from there to where it is.
    Became(State, Cause),
    /// It is what it was, and something happened.
    Again(Cause),
    /// Nothing happened: the same again.
    Renewal,
}

impl<'a> Run<'a> {
    pub(crate) fn new(router: &'a Router, vip: Prefix, dev: &'a str, vrid: u8, told: Told, lag: Duration) -> Self {
        let (from, event) = match told {
            Told::Became(from, cause) => (from, cause.slug()),
            Told::Again(cause) => (router.state, cause.slug()),
            Told::Renewal => (router.state, "renewal"),
        };
        let master = router.master.filter(|_| router.state == State::Backup);
        Run {
            prefix_len: vip.len,
            dev,
            vrid,
            state: state(router.state),
            mine: router.state == State::Master,
            master_addr: master.map(|master| master.source.to_string()),
            version: router.settings.version.number(),
            from: state(from),
            event,
            priority: router.priority,
            advert_interval_ms: millis(router.advert_interval()),
            sync: router.settings.sync.as_deref(),
            lag_ms: millis(lag),
            why: why(router, told),
        }
    }
}

fn why(router: &Router, told: Told) -> String {
    let other = router.master.map_or_else(
        || "another master".to_owned(),
        |master| format!("{} (priority {})", master.source, master.priority),
    );
    match told {
        Told::Renewal => match router.state {
            State::Init if !router.link_up => "the link is down".to_owned(),
            State::Init if router.source.is_none() => "the interface has no address to speak from".to_owned(),
            State::Init => "the priority is 0".to_owned(),
            State::Backup => format!("{other} is master"),
            State::Master => "no better master is heard".to_owned(),
        },
        Told::Became(_, cause) | Told::Again(cause) => match cause {
            Cause::Start => "it begins".to_owned(),
            Cause::Silence => {
                format!("no advert was heard for {} ms", millis(router.down_interval()).round())
            }
            Cause::Resigned => "the master resigned".to_owned(),
            Cause::Higher => format!("{other} is better"),
            Cause::Contested => "another master was heard, and this one is better".to_owned(),
            Cause::Paused => "this process did not run for a while".to_owned(),
            Cause::Unfit => "the priority is 0".to_owned(),
            Cause::LinkDown => "the link is down, or has no address to speak from".to_owned(),
            Cause::Sync => "its group moves together".to_owned(),
            Cause::Shutdown => "it was told to stop".to_owned(),
            Cause::Master => format!("{other} is master"),
            Cause::Priority => "the priority changed".to_owned(),
            Cause::Settings => "the settings changed".to_owned(),
        },
    }
}

/// What `recv` prints of an advert.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Received<'a> {
    pub(crate) vrid: u8,
    /// 2 or 3
    pub(crate) version: u8,
    pub(crate) dst: String,
    pub(crate) dev: &'a str,
    /// 0: it resigns
    pub(crate) priority: u8,
    pub(crate) advert_interval_ms: f64,
    pub(crate) addresses: Vec<String>,
    /// rfc9568, pseudo, v2 or bad: which sum was found right
    pub(crate) checksum: &'static str,
    pub(crate) ttl: u8,
    pub(crate) source_mac: String,
    /// password, other or hmac
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<&'static str>,
    /// Everybody who was heard as master of this virtual router; more than one is a fault
    pub(crate) masters: Vec<String>,
    /// What is wrong with it: ttl, version, vrid, count-zero, truncated, too-long, checksum, interval, auth, first-address, source, source-mac
    pub(crate) faults: Vec<&'static str>,
}

/// What `send` prints at its end.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Sent {
    /// Adverts that left
    pub(crate) sent: u64,
    /// Adverts that the system refused
    pub(crate) failed: u64,
    /// Where they went
    pub(crate) links: Vec<String>,
}

/// What a process that did not resign leaves for the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HandOver {
    /// Which routers it was master of.
    pub(crate) masters: BTreeSet<String>,
    /// When it ended, in milliseconds since boot.
    pub(crate) at_ms: f64,
}

/// The effective priority of this node, as `health score` says it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Score {
    priority: Option<u8>,
    priorities: BTreeMap<String, u8>,
    /// When it must be said again.
    pub(crate) until: Option<Tick>,
}

impl Score {
    /// Reads a line; `None` for a record that is no score of this node.
    ///
    /// # Errors
    /// No record, or a score that is none.
    pub(crate) fn read(line: &str, node: &str, now: Tick) -> Result<Option<Self>, String> {
        let line = Line::parse(line)?;
        let kind: Option<String> = line.get("kind")?;
        let host: Option<String> = line.get("host")?;
        if kind.as_deref() != Some("health.score") || host.is_some_and(|host| host != node) {
            return Ok(None);
        }
        let valid: Option<f64> = line.get("valid_for_ms")?;
        let received = line.get::<f64>("received_ms")?.map_or(now, |ms| tick(ms).min(now));
        Ok(Some(Score {
            priority: line.get("priority")?,
            priorities: line.get("priorities")?.unwrap_or_default(),
            until: valid.map(|ms| received.after(tick(ms).0)),
        }))
    }

    /// The priority of a virtual router with these addresses: the lowest that is said of one of
    /// them, else the node's own.
    pub(crate) fn of(&self, vips: &[Prefix]) -> Option<u8> {
        let own = vips.iter().filter_map(|vip| self.priorities.get(&vip.addr.to_string())).min();
        own.copied().or(self.priority)
    }
}

/// Milliseconds of a record; what is no time is now.
fn tick(ms: f64) -> Tick {
    Tick(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default())
}

pub(crate) const RUN_COLUMNS: &[Column] = &[
    column("time", "TIME"),
    column("subject", "VIP"),
    column("vrid", "VRID"),
    column("dev", "DEV"),
    column("state", "STATE"),
    column("priority", "PRIORITY"),
    column("master_addr", "MASTER"),
    column("why", "WHY"),
];

pub(crate) const RECV_COLUMNS: &[Column] = &[
    column("subject", "SOURCE"),
    column("vrid", "VRID"),
    column("version", "VERSION"),
    column("priority", "PRIORITY"),
    column("advert_interval_ms", "INTERVAL_MS"),
    column("addresses", "ADDRESSES"),
    column("checksum", "CHECKSUM"),
    column("masters", "MASTERS"),
    column("faults", "FAULTS"),
];

pub(crate) const SEND_COLUMNS: &[Column] =
    &[column("subject", "VRID"), column("sent", "SENT"), column("failed", "FAILED"), column("links", "TO")];

pub(crate) const RUN_SCHEMA: (&str, &str) = ("vrrp.run", include_str!("schema/vrrp.run.json"));
pub(crate) const RECV_SCHEMA: (&str, &str) = ("vrrp.recv", include_str!("schema/vrrp.recv.json"));
pub(crate) const SEND_SCHEMA: (&str, &str) = ("vrrp.send", include_str!("schema/vrrp.send.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_vrrp() {
        check::<Run<'static>>(
            "vrrp.run",
            "A virtual address and who serves it, when something changes and for renewal",
        );
        check::<Received<'static>>("vrrp.recv", "An advert that was heard, and what is wrong with it");
        check::<Sent>("vrrp.send", "What was sent, at the end of the run");
    }

    #[test]
    fn a_score_counts_for_its_node_and_its_addresses() {
        let now = Tick(Duration::from_secs(100));
        let read = |text: &str| Score::read(text, "n1", now);
        let score = read(
            r#"{"kind":"health.score","host":"n1","priorities":{"192.0.2.1":7,"192.0.2.2":3},"priority":9,"valid_for_ms":500,"received_ms":99000}"#,
        );
        let score = score.unwrap().unwrap();
        let vips = |text: &[&str]| text.iter().map(|vip| vip.parse().unwrap()).collect::<Vec<Prefix>>();
        assert_eq!(score.of(&vips(&["192.0.2.1/24", "192.0.2.2/24"])), Some(3));
        assert_eq!(score.of(&vips(&["192.0.2.9/24"])), Some(9));
        assert_eq!(score.until, Some(Tick(Duration::from_millis(99_500))));
        assert_eq!(read(r#"{"kind":"health.score","host":"n2","priority":9}"#), Ok(None));
        assert_eq!(read(r#"{"kind":"health.tcp","subject":"x","status":"down"}"#), Ok(None));
        assert!(read(r#"{"kind":"health.score","host":"n1","priority":256}"#).is_err());
    }
}
