//! The commands: flags and the order of steps. Look, decide, act, look again.

pub mod bucket;
mod decider;
mod described;
pub mod dns;
mod echo;
pub mod fence;
pub mod gw;
pub mod hash_owner;
pub mod health;
pub mod heartbeat;
mod keys;
mod life;
mod memory;
pub mod place;
pub mod quorum;
pub mod store;
mod verdicts;
pub mod vip;
pub mod vrrp;
mod watch;

use crate::cli::Tool;

/// Every command of the family, in the order of the manual.
pub const TOOLS: &[&Tool] = &[
    &bucket::TOOL,
    &dns::TOOL,
    &fence::TOOL,
    &gw::TOOL,
    &hash_owner::TOOL,
    &health::TOOL,
    &heartbeat::TOOL,
    &place::TOOL,
    &quorum::TOOL,
    &store::TOOL,
    &vip::TOOL,
    &vrrp::TOOL,
];
