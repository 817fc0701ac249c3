//! `vip watch`: what happens to links and addresses, as it happens.

use super::Present;
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::vip::{Show, WATCH_COLUMNS, WATCH_SCHEMA, Watched, subject};
use crate::sys::clock;
use crate::sys::netlink::{Change, Netlink};
use crate::types::link::{Address, Link};
use crate::types::status::Status;
use crate::types::time::Span;
use clap::{ArgMatches, Args};

pub(super) const VERB: Verb = Verb {
    name: "watch",
    about: "Report changes of links and addresses as they happen",
    examples: "vip watch --mine | jq -c 'select(.event == \"removed\")'   who prunes our addresses?\n\
               vip watch --dev eth0 --table",
    args: flags::<Flags>,
    schemas: &[WATCH_SCHEMA],
    columns: WATCH_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Only this interface
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// Only addresses that these commands have added
    #[arg(long)]
    mine: bool,

    /// End after D
    #[arg(long = "for", value_name = "D")]
    duration: Option<Span>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let pump = Pump::new(&process.node, process.form)?;
    // Listening starts before looking: what happens in between is told twice, never lost.
    let mut monitor = Netlink::monitor()?;
    let mut watch = Watch { present: Present::look()?, pump, flags };
    let end = match watch.flags.duration {
        Some(span) => Some(clock::boot().after(span.0)),
        None => process.stream_deadline().map(clock::Deadline::tick),
    };
    watch.tell_present("present")?;
    loop {
        match watch.pump.wait(&[monitor.as_fd()], end)? {
            Woken::Signal(signal) => return Ok(watch.pump.die(signal)),
            Woken::Ready(ready) if ready.contains(&true) => {
                for change in monitor.changes()? {
                    watch.take(change)?;
                }
            }
            Woken::Ready(_) => {
                watch.pump.stream.finish();
                // `--for` is a planned end, `--timeout` a deadline.
                return Ok(if watch.flags.duration.is_some() { Exit::Yes } else { Exit::Undecided });
            }
        }
    }
}

struct Watch {
    present: Present,
    pump: Pump,
    flags: Flags,
}

impl Watch {
    /// What is there now: at the start, and again after messages were lost.
    fn tell_present(&mut self, event: &'static str) -> Result<(), Failure> {
        for link in self.present.links.clone() {
            self.tell_link(&link, event)?;
        }
        for address in self.present.addresses.clone() {
            self.tell_address(&address, event)?;
        }
        Ok(())
    }

    fn take(&mut self, change: Change) -> Result<(), Failure> {
        match change {
            Change::Overrun => {
                self.present = Present::look()?;
                self.tell_present("overrun")
            }
            Change::Link { link, gone: true } => {
                self.present.links.retain(|known| known.index != link.index);
                self.present.addresses.retain(|known| known.ifindex != link.index);
                self.tell_link(&link, "link-gone")
            }
            Change::Link { link, gone: false } => {
                let event = if link.is_usable() { "link-up" } else { "link-down" };
                let known = self.present.links.iter_mut().find(|known| known.index == link.index);
                // The kernel also reports counters and properties; only what serves or not is news.
                let news =
                    known.as_ref().is_none_or(|known| known.is_usable() != link.is_usable() || known.name != link.name);
                match known {
                    Some(known) => *known = link.clone(),
                    None => self.present.links.push(link.clone()),
                }
                if news { self.tell_link(&link, event) } else { Ok(()) }
            }
            Change::Route { .. } => Ok(()),
            Change::Address { address, gone: true } => {
                self.present.addresses.retain(|known| !same(known, &address));
                self.tell_address(&address, "removed")
            }
            Change::Address { address, gone: false } => {
                let known = self.present.addresses.iter_mut().find(|known| same(known, &address));
                let event = match known {
                    Some(known) if *known == address => return Ok(()),
                    Some(known) => {
                        *known = address.clone();
                        "changed"
                    }
                    None => {
                        self.present.addresses.push(address.clone());
                        "added"
                    }
                };
                self.tell_address(&address, event)
            }
        }
    }

    fn tell_link(&mut self, link: &Link, event: &'static str) -> Result<(), Failure> {
        if self.flags.dev.as_ref().is_some_and(|dev| !link.is_called(dev)) {
            return Ok(());
        }
        let mut head = Head::new("vip.watch").about(&link.name);
        head.status = Some(if link.is_usable() { Status::Up } else { Status::Down });
        let body = Watched { event, dev: link.name.clone(), ifindex: link.index, address: None };
        self.pump.stream.record(head, &body)
    }

    fn tell_address(&mut self, address: &Address, event: &'static str) -> Result<(), Failure> {
        let gone = Link { index: address.ifindex, name: format!("if{}", address.ifindex), ..Link::default() };
        let link = self.present.link(address.ifindex).cloned().unwrap_or(gone);
        let other = self.flags.dev.as_ref().is_some_and(|dev| !link.is_called(dev));
        if other || (self.flags.mine && !address.is_ours()) {
            return Ok(());
        }
        let Show { dev, ifindex, state, .. } = Show::new(address, &link);
        let body = Watched { event, dev, ifindex, address: Some(state) };
        self.pump.stream.record(Head::new("vip.watch").about(subject(address, &link)), &body)
    }
}

fn same(one: &Address, other: &Address) -> bool {
    one.prefix == other.prefix && one.ifindex == other.ifindex
}
