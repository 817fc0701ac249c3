//! Records of `fence`, and the proofs that it leaves.

use super::envelope::{Column, column};
use super::line::Line;
use crate::types::proof::Proof;
use crate::types::time::Tick;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What a switch says of a node after something was done about it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fenced {
    /// on, off or unknown, as asked of the device afterwards
    pub(crate) power: &'static str,
    /// The node was seen to be off: what it held may be taken
    pub(crate) proof: bool,
    /// The life of the node that is over, where one was ever heard
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<u64>,
    /// The agent whose word this is; stonith for Pacemaker's fencer
    pub(crate) agent: String,
    /// Which of the agents that is, from 1
    pub(crate) level: usize,
    /// How often agents were run to act
    pub(crate) attempts: u64,
    pub(crate) elapsed_ms: f64,
}

/// A proof, as it travels in the key `fence` and stands in the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proven {
    pub(crate) node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<u64>,
    #[serde(default)]
    pub(crate) time: String,
    #[serde(default)]
    pub(crate) agent: String,
}

/// The proofs that a node keeps: of this boot, since later nobody here has listened meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proofs {
    /// By node.
    pub(crate) nodes: BTreeMap<String, Kept>,
}

/// A proof with the point of this machine's clock at which it was had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) proven: Proven,
    /// When the device was asked
    pub(crate) at_ms: f64,
    /// It was switched on again since: what it held may be taken, and it may be there
    #[serde(default)]
    pub(crate) is_back: bool,
}

impl Kept {
    /// The proof to think with. Without a life it is about a node that was never heard, and any beat
    /// ends it.
    pub(crate) fn proof(&self) -> Proof {
        let incarnation = Some(self.proven.incarnation.unwrap_or(0));
        Proof { incarnation, at: Tick::from_ms(self.at_ms).unwrap_or_default() }
    }
}

/// The proofs that a record carries: it is one of `fence`, or has the key.
///
/// # Errors
/// A key that is no proof and no list of them.
pub(crate) fn read_proofs(line: &Line<'_>) -> Result<Vec<Proven>, String> {
    if let Some(key) = line.raw("fence") {
        return read_key(key);
    }
    // What a status says nobody keeps: it was off at that moment.
    if line.get::<String>("kind")?.is_none_or(|kind| !matches!(kind.as_str(), "fence.off" | "fence.reboot"))
        || line.get::<bool>("proof")? != Some(true)
    {
        return Ok(Vec::new());
    }
    let Some(node) = line.get::<String>("subject")? else { return Ok(Vec::new()) };
    Ok(vec![Proven {
        node,
        incarnation: line.get("incarnation")?,
        time: line.get("time")?.unwrap_or_default(),
        agent: line.get("agent")?.unwrap_or_default(),
    }])
}

/// One proof, or a list of several.
fn read_key(key: &RawValue) -> Result<Vec<Proven>, String> {
    let text = key.get();
    let read = if text.starts_with('[') {
        serde_json::from_str(text)
    } else {
        serde_json::from_str::<Option<Proven>>(text).map(|one| one.into_iter().collect())
    };
    read.map_err(|error| format!("'fence': {}", error.to_string().split(" at line ").next().unwrap_or_default()))
}

/// A line with these proofs in the key `fence`, everything else as it came.
///
/// # Errors
/// A line that is no object.
pub(crate) fn with_proofs(text: &str, proofs: &[Proven]) -> Result<String, String> {
    let line = Line::parse(text)?;
    let key = match proofs {
        [one] => serde_json::to_string(one),
        several => serde_json::to_string(several),
    };
    let mut rest = Vec::with_capacity(text.len() + 128);
    line.copy_rest(&["fence"], &mut rest);
    let rest = String::from_utf8(rest).map_err(|error| error.to_string())?;
    let separator = if rest.is_empty() { "" } else { "," };
    Ok(format!("{{{}{separator}\"fence\":{}}}", rest.trim_start_matches(','), key.map_err(|error| error.to_string())?))
}

/// What a line means to `fence records`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asks {
    /// Whom the record must have proven off; `None` where it is no such record.
    pub(crate) needs: Option<Vec<String>>,
    /// What the record is about: its newest takes the place of earlier ones.
    pub(crate) about: String,
    /// A sign of life: the node, and when that arrived.
    pub(crate) lives: Option<(String, Option<f64>)>,
    /// A node that is not heard any more.
    pub(crate) silent: Option<String>,
    /// The life that a node is or was in.
    pub(crate) life: Option<(String, u64)>,
}

/// Reads a line for `fence records`, which fences for `me`.
///
/// # Errors
/// A known field of the wrong type.
pub(crate) fn read_asks(line: &Line<'_>, me: &str) -> Result<Asks, String> {
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    let subject = line.get::<String>("subject")?;
    let own = line.get::<String>("host")?.is_none_or(|host| host == me);
    let mut asks = Asks::default();
    if let (true, Some(subject)) = (own, &subject) {
        let incarnation = line.get::<u64>("incarnation")?;
        if kind == "heartbeat.recv" {
            match line.get::<String>("status")?.as_deref() {
                Some("up") => asks.lives = Some((subject.clone(), line.get("received_ms")?)),
                Some("down") => asks.silent = Some(subject.clone()),
                _ => {}
            }
        }
        asks.life = incarnation.map(|life| (subject.clone(), life));
    }
    if own && line.raw("error").is_none() {
        asks.needs = line.get("needs_fence")?;
        asks.about = format!("{kind} {}", subject.unwrap_or_default());
    }
    Ok(asks)
}

pub(crate) const COLUMNS: &[Column] = &[
    column("subject", "NODE"),
    column("power", "POWER"),
    column("proof", "PROOF"),
    column("agent", "AGENT"),
    column("level", "LEVEL"),
    column("attempts", "ATTEMPTS"),
    column("elapsed_ms", "ELAPSED_MS"),
];

pub(crate) const OFF_SCHEMA: (&str, &str) = ("fence.off", include_str!("schema/fence.off.json"));
pub(crate) const ON_SCHEMA: (&str, &str) = ("fence.on", include_str!("schema/fence.on.json"));
pub(crate) const REBOOT_SCHEMA: (&str, &str) = ("fence.reboot", include_str!("schema/fence.reboot.json"));
pub(crate) const STATUS_SCHEMA: (&str, &str) = ("fence.status", include_str!("schema/fence.status.json"));

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_fence() {
        check::<Fenced>("fence.off", "Whether a node is proven off after it was switched off");
        check::<Fenced>("fence.on", "What the switch of a node says after it was switched on");
        check::<Fenced>("fence.reboot", "Whether a node was proven off before it was switched on again");
        check::<Fenced>("fence.status", "What the switch of a node says");
    }

    #[test]
    fn a_record_keeps_every_byte_and_gets_its_proof_last() {
        let proven = |node: &str| Proven {
            node: node.to_owned(),
            incarnation: Some(7),
            time: "t".to_owned(),
            agent: "a".to_owned(),
        };
        let line = r#"{"kind":"bucket.plan","a":1e2,"fence":null,"needs_fence":["n2"]}"#;
        assert_eq!(
            with_proofs(line, &[proven("n2")]).unwrap(),
            r#"{"kind":"bucket.plan","a":1e2,"needs_fence":["n2"],"fence":{"node":"n2","incarnation":7,"time":"t","agent":"a"}}"#
        );
        let two = with_proofs("{}", &[proven("n2"), proven("n3")]).unwrap();
        assert_eq!(read_proofs(&Line::parse(&two).unwrap()).unwrap(), [proven("n2"), proven("n3")]);
        assert!(read_proofs(&Line::parse(r#"{"fence":7}"#).unwrap()).is_err());
    }
}
