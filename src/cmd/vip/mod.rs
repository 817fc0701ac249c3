//! `vip`: virtual addresses, seen, added and taken away by netlink.

mod add;
mod apply;
mod arp;
mod ask;
mod beat;
mod del;
mod elect;
mod forward;
mod lease;
mod settings;
mod share;
mod show;
mod source;
mod speaker;
mod tickle;
mod vmac;
mod watch;
mod who;

use crate::cli::{Exit, Failure, Reason, Tool, Verbs};
use crate::decide::vip::{self, NoLink};
use crate::sys;
use crate::sys::netlink::Netlink;
use crate::sys::sysctl;
use crate::types::link::{Address, Link};
use crate::types::net::Prefix;
use crate::types::route::Route;
use std::net::IpAddr;

/// The command.
pub const TOOL: Tool = Tool {
    name: "vip",
    about: "Show, add and take away virtual addresses",
    verbs: Verbs::Many(&[
        show::VERB,
        add::VERB,
        del::VERB,
        arp::VERB,
        who::WHO,
        who::DAD,
        tickle::PEERS,
        tickle::TICKLE,
        elect::VERB,
        apply::VERB,
        watch::VERB,
    ]),
};

/// What the kernel has: interfaces and addresses.
#[derive(Debug)]
struct Present {
    netlink: Netlink,
    links: Vec<Link>,
    addresses: Vec<Address>,
}

impl Present {
    fn look() -> Result<Self, sys::Error> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let addresses = netlink.addresses(None)?;
        Ok(Present { netlink, links, addresses })
    }

    fn look_again(&mut self) -> Result<(), sys::Error> {
        self.addresses = self.netlink.addresses(None)?;
        Ok(())
    }

    /// Interfaces and addresses again.
    fn look_anew(&mut self) -> Result<(), sys::Error> {
        self.links = self.netlink.links()?;
        self.look_again()
    }

    fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == ifindex)
    }

    /// The address of this host itself where `vip` belongs: the one whose network has it first.
    fn own_address(&self, vip: Prefix, dev: Option<&str>) -> Option<IpAddr> {
        let link = match dev {
            Some(dev) => vip::link_called(&self.links, dev),
            None => vip::link_for(&self.links, &self.addresses, vip).ok(),
        }?;
        vip::own_address(&self.addresses, link.index, vip)
    }

    /// A route as ip writes it.
    fn route_text(&self, route: &Route) -> String {
        route.text(|ifindex| self.link(ifindex).map(|link| link.name.as_str()))
    }

    /// The interface that the user named.
    fn named(&self, dev: &str, doing: &str) -> Result<&Link, Failure> {
        vip::link_called(&self.links, dev).ok_or_else(|| sys::Error::no_interface(doing, dev).into())
    }
}

/// The failure of naming no single interface.
fn no_link(why: NoLink, doing: &str, prefix: Prefix, none: &str) -> Failure {
    match why {
        NoLink::None => Failure::new(
            Exit::Missing,
            Reason::NoSuchInterface,
            format!("cannot {doing} {prefix}: {none} (name one: --dev DEV)"),
        ),
        NoLink::Several(names) => Failure::new(
            Exit::Usage,
            Reason::Ambiguous,
            format!("cannot {doing} {prefix}: several fit: {} (name one: --dev DEV)", names.join(", ")),
        ),
    }
}

/// One address asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    prefix: Prefix,
    /// Whether its length was written.
    exact: bool,
}

impl Asked {
    fn parse(word: &str) -> Result<Self, String> {
        Ok(Asked { prefix: word.parse()?, exact: word.contains('/') })
    }

    /// Whether an address is the one asked for; without a length any fits.
    fn is(self, prefix: Prefix) -> bool {
        prefix.addr == self.prefix.addr && (!self.exact || prefix.len == self.prefix.len)
    }
}

/// The addresses of the operands, and where `-` stands those of standard input, one a line.
///
/// A wrong operand is a wrong command line. A wrong line is told with its number, the others are
/// processed, and the run ends with the status that comes along.
fn operands(words: &[String], who: &str) -> Result<(Vec<Asked>, Exit), Failure> {
    use crate::cli::input::{Complaints, Got, Lines};
    if words.iter().filter(|word| *word == "-").count() > 1 {
        return Err(Failure::usage("'-' stands twice: standard input can be read once"));
    }
    let mut complaints = Complaints::new(who);
    let mut all = Vec::with_capacity(words.len());
    for word in words {
        if word != "-" {
            all.push(Asked::parse(word).map_err(Failure::usage)?);
            continue;
        }
        let mut lines = Lines::stdin();
        while let Some(got) = lines.next()? {
            match got {
                Got::Line(number, text) => match Asked::parse(text.trim()) {
                    Ok(asked) => all.push(asked),
                    Err(why) => complaints.line(number, &why),
                },
                Got::Malformed(number, why) => complaints.line(number, &why),
            }
        }
    }
    Ok((all, complaints.finish()))
}

/// Refuses what cannot be one host's address.
fn only_hosts(prefixes: &[Prefix]) -> Result<(), Failure> {
    let is_no_host = |prefix: &&Prefix| {
        let broadcast = matches!(prefix.addr, IpAddr::V4(addr) if addr.is_broadcast());
        prefix.addr.is_multicast() || prefix.addr.is_unspecified() || prefix.addr.is_loopback() || broadcast
    };
    match prefixes.iter().find(is_no_host) {
        Some(prefix) => Err(Failure::usage(format!("{} cannot be a host's address", prefix.addr))),
        None => Ok(()),
    }
}

/// Whether the kernel promotes a secondary when the first address of a subnet goes.
fn promotes_secondaries(dev: &str) -> sys::Result<bool> {
    // It takes the setting of all interfaces or of this one.
    for conf in ["all", dev] {
        if sysctl::read(&format!("ipv4/conf/{conf}/promote_secondaries"))?.as_deref() == Some("1") {
            return Ok(true);
        }
    }
    Ok(false)
}
