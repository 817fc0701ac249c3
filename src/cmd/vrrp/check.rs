//! Whether this host's own rules let VRRP out and in.

use super::port::Port;
use crate::cli::Failure;
use crate::sys::clock::Deadline;
use crate::sys::socket::Looped;
use crate::sys::{self, raw};
use crate::types::vrrp::{self, Version};
use crate::wire::vrrp::{Advert, PROTOCOL, Sum};
use clap::ValueEnum;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Families {
    Ipv4,
    Ipv6,
    /// Each family that the interface has an address of
    Both,
}

impl Families {
    pub(super) fn has(self, ipv6: bool) -> bool {
        matches!((self, ipv6), (Families::Both, _) | (Families::Ipv4, false) | (Families::Ipv6, true))
    }
}

/// How long an advert may take through this host.
const THROUGH: Duration = Duration::from_millis(500);

/// Sends an advert to the group that never leaves this host, and tells where it is lost; `None` where it comes
/// back.
///
/// Its TTL is 0, for which every receiver must discard it (RFC 9568 §7.1); its priority is the least.
pub(super) fn own_rules(port: &Port, source: IpAddr, vrid: u8) -> Result<Option<String>, Failure> {
    let number = raw::random_u64()?;
    let [.., a, b, c, d] = number.to_be_bytes();
    // Its addresses tell it from every other.
    let nonce = if port.ipv6 {
        IpAddr::from(Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(number)))
    } else {
        IpAddr::from(Ipv4Addr::new(a, b, c, d))
    };
    let advert =
        Advert { version: Version::V3, vrid, priority: 1, interval: Duration::from_secs(1), addresses: vec![nonce; 2] };
    let group = vrrp::group(source);
    let looped = Looped::open(source, group, PROTOCOL, &port.link)?;
    let message = advert.message(source, group, Sum::Pseudo, None);
    let hook = match looped.comes_back(&message, Deadline::after(THROUGH).tick()) {
        Ok(true) => return Ok(None),
        Ok(false) => "input",
        Err(sys::Error::Call { errno: Errno::EPERM, .. }) => "output",
        Err(error) => return Err(error.into()),
    };
    Ok(Some(format!("this host's own {hook} rules drop VRRP to {group} on {} ({})", port.dev, opens(hook, port.ipv6))))
}

/// What opens a firewall. firewalld lets everything out by itself.
fn opens(hook: &str, ipv6: bool) -> String {
    let (matching, family) = if ipv6 { ("ip6 nexthdr", "ipv6") } else { ("ip protocol", "ipv4") };
    let nft = format!("nft add rule inet filter {hook} {matching} vrrp accept");
    if hook == "output" {
        return nft;
    }
    format!("{nft}; or firewall-cmd --add-rich-rule='rule family=\"{family}\" protocol value=\"vrrp\" accept'")
}
