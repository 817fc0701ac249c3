//! Verdicts and plans from values handed in: no I/O, no clock, no JSON, no chance but a `Draw`.
//!
//! Each can be replayed from its inputs, which is what lets a test play a thousand nodes.

pub(crate) mod bucket;
pub(crate) mod elect;
pub(crate) mod fence;
pub(crate) mod gw;
pub(crate) mod hash_owner;
pub(crate) mod heartbeat;
pub(crate) mod monitor;
pub(crate) mod quorum;
pub(crate) mod route;
pub(crate) mod score;
pub(crate) mod vip;
pub(crate) mod vrrp;
