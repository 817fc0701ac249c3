//! nftables: documents for `nft -f -` as text, and what `nft -j list table` prints back.
//!
//! Source: nft(8) and libnftables-json(5) of 1.0.6, which Debian 12 ships. That version reads
//! `... }` at the end of a rule's line as part of the rule, so a closing brace of ours always
//! stands on a line of its own; it loses table comments in JSON, so there are none; and it dies
//! listing a named map of `typeof jhash`, so owned buckets are anonymous sets.

pub(crate) mod cluster;
pub(crate) mod forward;
pub(crate) mod gateway;
mod json;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod marks;
pub(crate) mod rule;

use std::net::IpAddr;

/// The name of the tables that hold `vip`, one for each family: `failover_192_0_2_10`.
pub(crate) fn table_name(vip: IpAddr) -> String {
    format!("failover_{}", vip.to_string().replace(['.', ':'], "_"))
}

/// The table family that sees packets to `vip`.
pub(crate) fn family(vip: IpAddr) -> &'static str {
    if vip.is_ipv4() { "ip" } else { "ip6" }
}
