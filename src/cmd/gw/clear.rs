//! `gw clear`: take a split away.

use super::kernel::{Kernel, lock, memory, of_table, rule_text};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::gw_rules::{is_of_gateways, number};
use crate::record::gw_apply::{CLEAR_COLUMNS, CLEAR_SCHEMA, Cleared, Loaded};
use crate::record::{Action, Head};
use crate::sys;
use crate::sys::clock::Deadline;
use crate::types::gateway::{Marks, TABLES};
use crate::types::link::OUR_PROTO;
use crate::types::route::Route;
use crate::types::rule::Rule;
use crate::wire::nft::gateway::{counted, is_named, is_split, table_name};
use crate::wire::nft::list;
use clap::{ArgMatches, Args};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "clear",
    about: "Take a split away: its table, then rules and routes that no other split has",
    examples: "gw clear               the split without a name; one that is not there is no failure\n\
               gw clear --name voip   another\n\
               gw clear --all         everything that gw apply has made, also what a killed run left\n\
               gw clear --dry-run     what would go?",
    args: flags::<Flags>,
    schemas: &[CLEAR_SCHEMA],
    columns: CLEAR_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The split
    #[arg(long, value_name = "NAME", default_value = "-")]
    name: String,

    /// All splits of this host
    #[arg(long, conflicts_with = "name")]
    all: bool,

    #[command(flatten)]
    changing: Changing,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let deadline = process.deadline(Duration::ZERO);
    let mut kernel = Kernel::open("take splits away from", deadline)?;
    let name = (!flags.all).then_some(flags.name.as_str());
    let (head, cleared) = clear(&mut kernel, name, flags.changing, process, deadline)?;
    process.out.record(&head, &cleared)?;
    Ok(Exit::Yes)
}

/// What there is to take away.
#[derive(Default)]
struct Found {
    tables: Vec<String>,
    rules: Vec<Rule>,
    routes: Vec<Route>,
}

/// Takes one split away, or all of them.
pub(super) fn clear(
    kernel: &mut Kernel,
    name: Option<&str>,
    changing: Changing,
    process: &Process,
    deadline: Deadline,
) -> Result<(Head, Cleared), Failure> {
    let _lock = lock(changing, deadline)?;
    kernel.nft = kernel.nft.until(deadline);
    let mut head = Head::new("gw.clear");
    head.subject = name.map(str::to_owned);
    head.dry_run = changing.dry_run;
    let memory = name.map(|name| memory(name, process));
    // One that cannot be read is no reason to leave anything.
    let kept: Option<Loaded> = memory.as_ref().and_then(|memory| memory.read(process, Ok).ok().flatten());
    let found = look(kernel, name, kept.as_ref())?;
    let ip = |ipv6: bool| if ipv6 { "ip -6" } else { "ip" };
    let mut document = String::new();
    for table in &found.tables {
        let _ = writeln!(document, "delete table inet {table}");
    }
    if changing.shows_actions() {
        if !document.is_empty() {
            head.actions.push(Action { op: "nft", text: document.clone() });
        }
        let rules =
            found.rules.iter().map(|rule| (rule.ipv6, "rule-del", rule_text(rule).replacen("rule", "rule del", 1)));
        let routes = found
            .routes
            .iter()
            .map(|route| (route.dst.addr.is_ipv6(), "route-del", format!("route del {}", kernel.route_text(route))));
        let texts: Vec<_> = rules.chain(routes).collect();
        head.actions
            .extend(texts.into_iter().map(|(ipv6, op, text)| Action { op, text: format!("{} {text}", ip(ipv6)) }));
    }
    head.changed = Some(!found.tables.is_empty() || !found.rules.is_empty() || !found.routes.is_empty());
    let mut cleared = Cleared { removed: Vec::new() };
    if changing.dry_run {
        return Ok((head, cleared));
    }
    // Nothing is marked any more before the ways go.
    match kernel.nft.load(&document, "take away", &found.tables.join(", ")) {
        Err(sys::Error::Call { errno: nix::errno::Errno::ENOENT, .. }) => {}
        loaded => loaded?,
    }
    cleared.removed = found.tables.iter().map(|table| format!("table inet {table}")).collect();
    cleared.removed.extend(kernel.delete(&found.rules, &found.routes)?);
    if let Some(memory) = memory {
        memory.forget()?;
    }
    Ok((head, cleared))
}

fn look(kernel: &mut Kernel, name: Option<&str>, kept: Option<&Loaded>) -> Result<Found, Failure> {
    let object = "this host";
    let listed = kernel.nft.list(&["tables"], object)?.unwrap_or_default();
    let foreign = |why: String| Failure::input(format!("cannot read what nft lists: {why} (nft 1.0.6 or newer?)"));
    let tables = list::table_names(&listed, "inet").map_err(foreign)?;
    let mut found = Found::default();
    // The numbers that other splits have, by family.
    let mut others: BTreeSet<(bool, u32)> = BTreeSet::new();
    let mut own: BTreeSet<u32> = kept.iter().flat_map(|kept| kept.numbers.iter().copied()).collect();
    let mut is_alone = true;
    for table in tables.into_iter().filter(|table| is_split(table)) {
        let mut is_meant = name.is_none_or(|name| table_name(name) == table);
        if let Some(name) = name {
            let Some(text) = kernel.nft.list(&["table", "inet", &table], &table)? else { continue };
            let listed = list::parse(&text).map_err(foreign)?;
            is_meant &= is_named(&listed, name);
            for (told, _) in counted(&listed) {
                if is_meant {
                    own.insert(told.number);
                } else {
                    others.insert((told.is_ipv6(), told.number));
                }
            }
            is_alone &= is_meant;
        }
        if is_meant {
            found.tables.push(table);
        }
    }
    let is_gone = |ipv6: bool, number: u32| {
        // What no other split can have is what a killed run left.
        (is_alone || own.contains(&number)) && !others.contains(&(ipv6, number))
    };
    kernel.links = kernel.netlink.links()?;
    for ipv6 in [false, true] {
        for rule in kernel.netlink.rules(ipv6)? {
            if is_of_gateways(&rule) && number(&rule).is_some_and(|number| is_gone(ipv6, number)) {
                found.rules.push(rule);
            }
        }
        for number in 1..=Marks::PROBES {
            let routes = kernel.netlink.routes(ipv6, TABLES + number, Some(OUR_PROTO))?;
            found.routes.extend(routes.into_iter().filter(|route| is_gone(ipv6, of_table(route, Marks::USUAL))));
        }
    }
    Ok(found)
}
