//! `vip show`: which addresses are there, and can they serve?

use super::{Present, lease};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::vip::{SHOW_COLUMNS, SHOW_SCHEMA, Show, subject};
use crate::types::link::{Address, AddressFlags};
use clap::{ArgMatches, Args};

pub(super) const VERB: Verb = Verb {
    name: "show",
    about: "Show addresses, as the kernel has them",
    examples: "vip show                              every address of this host\n\
               vip show 192.0.2.10 && echo serving   is it there, and usable?\n\
               vip show --mine --table               what these commands have added",
    args: flags::<Flags>,
    schemas: &[SHOW_SCHEMA],
    columns: SHOW_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Only these; status 0 says all are there and usable ('-' reads them from standard input)
    #[arg(value_name = "ADDR[/LEN]")]
    addresses: Vec<String>,

    /// Only on this interface
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// Only what these commands have added
    #[arg(long)]
    mine: bool,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let (wanted, malformed) = super::operands(&flags.addresses, &process.who)?;
    let asked = !flags.addresses.is_empty();
    let present = Present::look()?;
    let dev = flags.dev.as_deref().map(|dev| present.named(dev, "show addresses of")).transpose()?;
    let shown: Vec<&Address> = present
        .addresses
        .iter()
        .filter(|address| {
            dev.is_none_or(|link| link.index == address.ifindex)
                && (!flags.mine || address.is_ours())
                && (!asked || wanted.iter().any(|wanted| wanted.is(address.prefix)))
        })
        .collect();
    let ours = shown.iter().filter(|address| address.is_ours()).map(|address| address.prefix.addr);
    let leases = lease::all(&process.node, ours);
    let mut exit = malformed;
    for address in &shown {
        let Some(link) = present.link(address.ifindex) else { continue };
        let show = Show::new(address, link).leased(leases.get(&address.prefix.addr).copied());
        if asked && !show.state.usable {
            exit = exit.and(if show.state.tentative { Exit::Undecided } else { Exit::No });
        }
        process.out.record(&Head::new("vip.show").about(subject(address, link)), &show)?;
    }
    if wanted.iter().any(|wanted| !shown.iter().any(|address| wanted.is(address.prefix))) {
        exit = exit.and(Exit::No);
    }
    // A duplicate that the kernel found is a clear no, whatever else is still tentative.
    if asked && shown.iter().any(|address| address.flags.has(AddressFlags::DADFAILED)) {
        exit = malformed.and(Exit::No);
    }
    Ok(exit)
}
