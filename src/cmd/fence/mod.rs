//! `fence`: make sure that a node is off.

mod act;
mod records;

use super::heartbeat;
use crate::cli::{Failure, Tool, Verbs};
use crate::decide::fence::Delay;
use crate::record::fence::{Kept, Proofs};
use crate::record::state::{self, Origin};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::state::Lock;
use crate::types::proof::Proof;
use crate::types::time::{Span, Tick};
use std::path::PathBuf;
use std::time::Duration;

/// The command.
pub const TOOL: Tool = Tool {
    name: "fence",
    about: "Make sure that a node is off, and prove it",
    verbs: Verbs::Many(&[act::OFF, act::ON, act::REBOOT, act::STATUS, records::VERB]),
};

/// Who acts, and how.
#[derive(clap::Args, Debug)]
struct Agents {
    /// Fence agent, by name or path; several are levels, tried in order
    #[arg(long, value_name = "AGENT", required_unless_present = "via")]
    agent: Vec<String>,

    /// What the agent is told: key=value lines, mode 0600; one file for all agents or one for each;
    /// {node} in its name is the node's
    #[arg(long, value_name = "FILE")]
    options: Vec<String>,

    /// Every agent must say that the node is off, before any switches it on: two power supplies
    #[arg(long)]
    all: bool,

    /// Let another do it
    #[arg(long, value_name = "WHO", conflicts_with_all = ["agent", "options", "all"])]
    via: Option<Via>,

    /// Wait before it, for chance a little longer: of two nodes that would shoot each other one is off by then
    #[arg(long, value_name = "BASE[+RANDOM]")]
    delay: Option<Delay>,

    /// Try each agent N times more, a second apart
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=100))]
    retries: u32,

    /// How long it may take from the end of the delay; levels and tries share it
    #[arg(long, value_name = "D", default_value = "60s")]
    limit: Span,
}

/// How long a change of the file of proofs may wait for another run.
const STEP: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Via {
    // The help shows the text as it stands, backticks too.
    #[allow(clippy::doc_markdown)]
    /// Pacemaker's fencer, by stonith_admin
    Stonith,
}

impl Agents {
    fn check(&self) -> Result<(), Failure> {
        if self.limit.0.is_zero() {
            return Err(Failure::usage("--limit must be above 0s"));
        }
        if !matches!(self.options.len(), 0 | 1) && self.options.len() != self.agent.len() {
            return Err(Failure::usage(format!(
                "--options: {} files for {} agents (give one for all, or one for each)",
                self.options.len(),
                self.agent.len()
            )));
        }
        Ok(())
    }
}

/// Where the proofs of this node are kept. They do not outlive a boot: while this machine was down
/// nobody here could hear that a node is back.
pub(super) fn proofs_file(me: &str) -> PathBuf {
    sys::state::folder().join(format!("fence-{me}.json"))
}

/// The proofs that this node keeps, but for those of a life that was over anyway: `heartbeat recv` has
/// heard a newer one.
pub(super) fn proofs(me: &str, now: Tick) -> Result<Proofs, Failure> {
    let mut proofs = kept(me, now)?;
    if !proofs.nodes.is_empty() {
        let lives = heartbeat::lives(me)?;
        let is_newest = |node: &String, kept: &Kept| kept.proof().holds(lives.get(node).copied(), None);
        proofs.nodes.retain(|node, kept| is_newest(node, kept));
    }
    Ok(proofs)
}

/// The proofs of this node for a stream that must not end when their file is torn while it runs.
#[derive(Debug, Default)]
pub(super) struct Filed {
    last: Option<Proofs>,
    is_torn: bool,
}

impl Filed {
    /// The proofs as they are, or as they were when they could be read; the first time they must be.
    pub(super) fn look(&mut self, me: &str, now: Tick) -> Result<&Proofs, Failure> {
        match proofs(me, now) {
            Ok(proofs) => (self.last, self.is_torn) = (Some(proofs), false),
            Err(failure) if self.last.is_none() => return Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut self.is_torn, true) {
                    crate::cli::complain(
                        "fence",
                        &format!("{}; going on with the proofs as they were", failure.sentence),
                    );
                }
            }
        }
        Ok(self.last.get_or_insert_default())
    }
}

/// Strikes proofs that something heard since has refuted.
pub(super) fn strike(me: &str, refuted: &[(String, Proof)]) -> Result<(), Failure> {
    if refuted.is_empty() {
        return Ok(());
    }
    change_proofs(me, Deadline::after(STEP), |proofs| {
        let is_refuted =
            |node: &String, kept: &Kept| refuted.iter().any(|(name, proof)| name == node && *proof == kept.proof());
        proofs.nodes.retain(|node, kept| !is_refuted(node, kept));
    })
}

fn kept(me: &str, now: Tick) -> Result<Proofs, Failure> {
    let path = proofs_file(me);
    let Some(bytes) = sys::state::read(&path)? else { return Ok(Proofs::default()) };
    match state::read(&bytes, &origin(me, now)) {
        Ok(state::Read::Current(proofs)) => Ok(proofs),
        Ok(state::Read::OtherBoot) => Ok(Proofs::default()),
        Err(why) => Err(sys::Error::File {
            doing: "read".to_owned(),
            path: path.display().to_string(),
            why,
            mend: "move it away to begin anew: what it proved counts no more".to_owned(),
        }
        .into()),
    }
}

/// Changes the proofs that this node keeps, one run at a time.
fn change_proofs(me: &str, deadline: Deadline, change: impl FnOnce(&mut Proofs)) -> Result<(), Failure> {
    let _lock = Lock::take(&["fence-proofs"], deadline)?;
    let now = clock::boot();
    let mut proofs = kept(me, now)?;
    let before = proofs.clone();
    change(&mut proofs);
    if proofs != before {
        let bytes = state::write(&origin(me, now), &proofs).unwrap_or_default();
        sys::state::replace(&proofs_file(me), &bytes)?;
    }
    Ok(())
}

fn origin(me: &str, at: Tick) -> Origin {
    Origin { command: "fence", host: me.to_owned(), boot_id: clock::boot_id(), at }
}
