//! `vrrp`: the virtual router redundancy protocol, as other routers speak it.

mod check;
mod config;
mod port;
mod recv;
mod run;
mod send;

use crate::cli::{Tool, Verbs};

/// The command.
pub const TOOL: Tool = Tool {
    name: "vrrp",
    about: "Speak and hear the virtual router redundancy protocol (RFC 9568, RFC 3768)",
    verbs: Verbs::Many(&[run::VERB, recv::VERB, send::VERB]),
};
