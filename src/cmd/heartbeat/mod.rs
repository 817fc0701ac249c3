//! `heartbeat`: signed datagrams between nodes.

mod recv;
mod send;

use super::keys::{self, Auth};
use crate::cli::{Failure, Tool, Verbs};
use crate::record::heartbeat::Session;
use crate::record::state::{self, Origin};
use crate::sys;
use crate::sys::clock;
use crate::types::time::Tick;
use crate::wire::keys::Keys;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The command.
pub const TOOL: Tool = Tool {
    name: "heartbeat",
    about: "Tell other nodes that this one lives, and hear who else does",
    verbs: Verbs::Many(&[send::VERB, recv::VERB]),
};

/// The default port: 694 is Linux-HA's.
const PORT: u16 = 6940;

/// Flags that sender and receiver share.
#[derive(clap::Args, Debug)]
struct Shared {
    /// File with the cluster's keys: lines '[ID] HEX', 32 bytes or more, mode 0600; the first signs
    #[arg(long, value_name = "FILE")]
    key: String,

    /// Name of the cluster; frames of others are refused
    #[arg(long, value_name = "NAME", default_value = "failover")]
    cluster: String,

    /// Step of a roll-out of signatures
    #[arg(long, value_name = "STEP", default_value = "enforce")]
    auth: Auth,
}

impl Shared {
    fn keys(&self) -> Result<Keys, Failure> {
        keys::read(&self.key)
    }
}

/// The newest life of a node that this one has heard, in this boot or before it.
pub(super) fn last_life(me: &str, node: &str) -> Result<Option<u64>, Failure> {
    Ok(recv::remembered(me)?.nodes.get(node).map(|life| life.incarnation))
}

/// The newest life of each node that this one has heard.
pub(super) fn lives(me: &str) -> Result<BTreeMap<String, u64>, Failure> {
    Ok(recv::remembered(me)?.nodes.into_iter().map(|(node, life)| (node, life.incarnation)).collect())
}

/// When this node has said goodbye last, in this boot.
pub(super) fn goodbye(me: &str) -> Result<Option<Tick>, Failure> {
    let Some(bytes) = sys::state::read(&goodbye_file(me))? else { return Ok(None) };
    match state::read::<f64>(&bytes, &origin("heartbeat-goodbye", me, clock::boot())) {
        Ok(state::Read::Current(ms)) => Ok(Tick::from_ms(ms)),
        // Cut short by a full disk: it was about to be said.
        Err(_) => Ok(Some(clock::boot())),
        Ok(state::Read::OtherBoot) => Ok(None),
    }
}

fn goodbye_file(node: &str) -> PathBuf {
    sys::state::folder().join(format!("heartbeat-{node}-goodbye.json"))
}

/// A life that no earlier one reaches: the wall clock in milliseconds, or one more than the last.
fn next_incarnation(last: u64) -> u64 {
    u64::try_from(clock::wall().unix_us / 1000).unwrap_or(0).max(last.saturating_add(1))
}

/// The file by which `recv` tells `send` our session and whom we hear.
fn session_file(node: &str) -> PathBuf {
    sys::state::folder().join(format!("heartbeat-{node}-session.json"))
}

/// The sign that `send` lives; while it stands, `recv` asks for echoes.
fn sending_sign(node: &str) -> PathBuf {
    sys::state::folder().join(format!("heartbeat-{node}.sending"))
}

/// The sign that `recv` lives; its session counts only while it does.
fn receiving_sign(node: &str) -> PathBuf {
    sys::state::folder().join(format!("heartbeat-{node}.receiving"))
}

fn origin(command: &'static str, node: &str, at: Tick) -> Origin {
    Origin { command, host: node.to_owned(), boot_id: clock::boot_id(), at }
}

/// Our session as the receiver of this node left it; none where no receiver lives.
fn read_session(node: &str) -> Option<Session> {
    if !sys::state::Presence::is_held(&receiving_sign(node)) {
        return None;
    }
    let bytes = sys::state::read(&session_file(node)).ok()??;
    match state::read(&bytes, &origin("heartbeat-session", node, clock::boot())) {
        Ok(state::Read::Current(session)) => Some(session),
        _ => None,
    }
}

fn nonce_from_text(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn nonce_to_text(nonce: u64) -> String {
    format!("{nonce:016x}")
}
