//! The JSON contract: what other programs read. One file per command, apart from the types that
//! we think with, so that renaming a field inside cannot break somebody's pipe.

pub(crate) mod bucket;
pub(crate) mod config;
pub(crate) mod described;
pub(crate) mod dns;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod envelope;
pub(crate) mod fence;
pub(crate) mod gw;
pub(crate) mod gw_apply;
pub(crate) mod gw_probe;
pub(crate) mod hash_owner;
pub(crate) mod health;
pub(crate) mod heartbeat;
pub(crate) mod line;
pub(crate) mod place;
pub(crate) mod quorum;
#[cfg(test)]
pub(crate) mod schema;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod text;
pub(crate) mod vip;
pub(crate) mod vrrp;

pub(crate) use envelope::{Action, Column, ErrorBody, Head};
