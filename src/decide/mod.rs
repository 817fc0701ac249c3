//! Verdicts and plans from values handed in: no I/O, no clock, no JSON, no chance but a `Draw`.
//!
//! Each can be replayed from its inputs, which is what lets a test play a thousand nodes.

pub(crate) mod answer;
pub(crate) mod bucket;
pub(crate) mod budget;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod fence;
pub(crate) mod gw;
pub(crate) mod gw_probe;
pub(crate) mod gw_rules;
pub(crate) mod hash_owner;
pub(crate) mod heartbeat;
pub(crate) mod monitor;
pub(crate) mod place;
pub(crate) mod quorum;
pub(crate) mod route;
pub(crate) mod score;
pub(crate) mod store;
pub(crate) mod tally;
pub(crate) mod trace;
pub(crate) mod update;
pub(crate) mod vip;
pub(crate) mod vrrp;

use std::time::Duration;

/// How old the word of a living peer may be for something to be taken by it: less than `take_after`, after
/// which others may take what its hearer had, by the beats' way, one change of the kernel and a margin.
fn fresh(take_after: Duration, dead_after: Duration) -> Duration {
    take_after.saturating_sub(Duration::from_millis(150)).max(dead_after)
}
