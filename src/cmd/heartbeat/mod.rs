//! `heartbeat`: signed datagrams between nodes.

mod recv;
mod send;

use crate::cli::{Failure, Tool, Verbs};
use crate::record::heartbeat::Session;
use crate::record::state::{self, Origin};
use crate::sys;
use crate::sys::clock;
use crate::types::time::Tick;
use crate::wire::heartbeat::Keys;
use std::path::{Path, PathBuf};

/// The command.
pub const TOOL: Tool = Tool {
    name: "heartbeat",
    about: "Tell other nodes that this one lives, and hear who else does",
    verbs: Verbs::Many(&[send::VERB, recv::VERB]),
};

/// The default port: 694 is Linux-HA's.
const PORT: u16 = 6940;

/// How a cluster comes to signed frames without a flag day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Auth {
    /// First: understand signatures, send none
    ReceiveOnly,
    /// Then: sign, and still take unsigned frames
    Permissive,
    /// At last: take signed frames only
    #[default]
    Enforce,
}

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
    /// Reads the key file; nobody else may read or write it.
    fn keys(&self) -> Result<Keys, Failure> {
        const DOING: &str = "use the key file";
        let mend = format!("make one: umask 077; head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \\n' >{}", self.key);
        let wrong =
            |why: String| sys::Error::File { doing: DOING.to_owned(), path: self.key.clone(), why, mend: mend.clone() };
        let text = if let Some(number) = self.key.strip_prefix("fd:") {
            let path = number.parse::<u32>().map(|number| format!("/proc/self/fd/{number}"));
            let path = path.map_err(|_| Failure::usage(format!("--key {}: fd:N takes a number", self.key)))?;
            let bytes = sys::state::read(Path::new(&path))?.ok_or_else(|| wrong("it is not there".to_owned()))?;
            String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))?
        } else {
            sys::state::read_secret(Path::new(&self.key), DOING, &mend)?
        };
        Keys::parse(&text).map_err(|why| wrong(why).into())
    }
}

/// The newest life of a node that this one has heard, in this boot or before it.
pub(super) fn last_life(me: &str, node: &str) -> Result<Option<u64>, Failure> {
    Ok(recv::remembered(me)?.nodes.get(node).map(|life| life.incarnation))
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
