//! `gw report`: what did each gateway carry?

use super::kernel::memory;
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::memory::Memory;
use crate::record::Head;
use crate::record::gw_apply::{Loaded, REPORT_COLUMNS, REPORT_SCHEMA, Report, Reported, Totals};
use crate::sys::clock;
use crate::sys::nft::Nft;
use crate::sys::privilege::{self, Capability};
use crate::types::time::WallTime;
use crate::wire::nft::gateway::{Counted, counted, is_named, table_name};
use crate::wire::nft::list;
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "report",
    about: "Tell what each gateway of a split carried since the last report",
    examples: "gw report --table                     since the split was applied\n\
               gw report --state hourly.json         since the run before, each hour from cron\n\
               gw report --name voip                 of another split",
    args: flags::<Flags>,
    schemas: &[REPORT_SCHEMA],
    columns: REPORT_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Remember from run to run
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// The split
    #[arg(long, value_name = "NAME", default_value = "-")]
    name: String,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    const DOING: &str = "read the counters of";
    let flags: Flags = args::read(matches)?;
    let table = table_name(&flags.name);
    privilege::need(Capability::NetAdmin, DOING, &table)?;
    let nft = Nft::find(DOING, &table, process.deadline(Duration::ZERO))?;
    let own = flags.state.as_ref().map(|path| Memory::new(path.clone(), "gw-report", process));
    let _lock = own.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let before: Option<Reported> = match &own {
        Some(memory) => memory.read(process, Ok)?,
        None => None,
    };
    let text = nft.list(&["table", "inet", &table], &table)?;
    let (wall, boot) = (clock::wall(), clock::boot());
    let listed = text
        .map(|text| list::parse(&text))
        .transpose()
        .map_err(|why| Failure::input(format!("cannot read what nft lists of {table}: {why} (nft 1.0.6 or newer?)")))?;
    let Some(listed) = listed.filter(|listed| is_named(listed, &flags.name)) else {
        process.complain(&format!("no split {} is applied (see: gw apply)", flags.name));
        return Ok(Exit::No);
    };
    let applied: Option<Loaded> = memory(&flags.name, process).read(process, Ok)?;
    let made = applied.as_ref().map_or((wall.unix_us, boot.as_ms()), |applied| (applied.since_us, applied.since_ms));
    let mut left = applied.map(|applied| applied.left).unwrap_or_default();
    let is_same = before.as_ref().is_some_and(|before| before.handle == listed.handle);
    let (since_us, since_ms) = before.as_ref().map_or(made, |before| (before.at_us, before.at_ms));
    let mut now =
        Reported { handle: listed.handle, at_us: wall.unix_us, at_ms: boot.as_ms(), gateways: BTreeMap::new() };
    let mut reports = Vec::new();
    let mut all: Vec<(String, Option<String>, Option<f64>, Totals)> = Vec::new();
    for (told, counted) in counted(&listed) {
        let earlier = left.remove(&told.subject).map(|left| left.carried).unwrap_or_default();
        all.push((told.subject, told.name, Some(told.share), totals(counted).plus(earlier)));
    }
    all.extend(left.into_iter().map(|(subject, left)| (subject, left.name, None, left.carried)));
    for (subject, name, share, totals) in all {
        let known = before.as_ref().and_then(|before| before.gateways.get(&subject)).copied();
        let (carried, smaller) = match known.filter(|_| is_same) {
            Some(known) => totals.since(known),
            None => (totals, known.is_some()),
        };
        now.gateways.insert(subject.clone(), totals);
        // One that has left is told of until all of it is told.
        if share.is_some() || carried != Totals::default() {
            reports.push((subject, name, share.unwrap_or_default(), carried, smaller));
        }
    }
    let all: u64 = reports.iter().map(|(.., carried, _)| carried.connections).sum();
    for (subject, name, share_wanted, carried, counter_reset) in reports {
        let report = Report {
            name,
            since: WallTime { unix_us: since_us },
            elapsed_ms: (boot.as_ms() - since_ms).max(0.0),
            sent_bytes: carried.sent_bytes,
            received_bytes: carried.received_bytes,
            sent_packets: carried.sent_packets,
            received_packets: carried.received_packets,
            connections: carried.connections,
            share_wanted,
            share_got: share(carried.connections, all),
            counter_reset,
        };
        process.out.record(&Head::new("gw.report").about(subject), &report)?;
    }
    if let Some(own) = own {
        own.write(&now)?;
    }
    Ok(Exit::Yes)
}

pub(super) fn totals(counted: Counted) -> Totals {
    Totals {
        sent_bytes: counted.sent.bytes,
        received_bytes: counted.received.bytes,
        sent_packets: counted.sent.packets,
        received_packets: counted.received.packets,
        connections: counted.new,
    }
}

/// To four decimals.
#[allow(clippy::cast_precision_loss)] // a share needs no more
fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| (part as f64 / all as f64 * 10_000.0).round() / 10_000.0)
}
