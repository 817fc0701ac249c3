//! The machine: moves bytes, reads clocks, changes the kernel. Knows no protocol.

pub(crate) mod blocks;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod conntrack;
pub(crate) mod diag;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod group;
pub(crate) mod http;
pub(crate) mod local;
pub(crate) mod netlink;
pub(crate) mod nft;
pub(crate) mod packet;
pub(crate) mod ping;
pub(crate) mod privilege;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod sysctl;
pub(crate) mod watch;
pub(crate) mod worker;

pub(crate) use error::{Error, Result};
