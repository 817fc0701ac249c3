//! `vip`: virtual addresses, seen, added and taken away by netlink.

mod add;
mod arp;
mod ask;
mod del;
mod show;
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

    fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == ifindex)
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
            format!("cannot {doing} {prefix}: several interfaces fit: {} (name one: --dev DEV)", names.join(", ")),
        ),
    }
}

/// The operands, and where `-` stands the words of standard input, one a line.
fn operands(words: &[String]) -> Result<Vec<String>, Failure> {
    use crate::cli::input::{Got, Lines};
    if words.iter().filter(|word| *word == "-").count() > 1 {
        return Err(Failure::usage("'-' stands twice: standard input can be read once"));
    }
    let mut all = Vec::with_capacity(words.len());
    for word in words {
        if word != "-" {
            all.push(word.clone());
            continue;
        }
        let mut lines = Lines::stdin();
        while let Some(got) = lines.next()? {
            match got {
                Got::Line(_, text) => all.push(text.trim().to_owned()),
                Got::Malformed(number, why) => {
                    return Err(Failure::input(format!("line {number} is malformed: {why}")));
                }
            }
        }
    }
    Ok(all)
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
