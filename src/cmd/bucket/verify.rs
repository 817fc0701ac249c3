//! `bucket verify`: do several nodes together serve each bucket once?

use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Got, Lines};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::bucket::check::{Shown, verify};
use crate::record::Head;
use crate::record::bucket::{Overlap, VERIFY_COLUMNS, VERIFY_SCHEMA, Verify, read_shown};
use crate::record::line::Line;
use crate::sys;
use crate::types::status::Status;
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

pub(super) const VERB: Verb = Verb {
    name: "verify",
    about: "Hold the records of several nodes against each other: gaps, overlaps, other parameters",
    examples: "for h in n1 n2 n3; do ssh $h bucket show; done | bucket verify\n\
               bucket verify n1.json n2.json n3.json --table",
    args: flags::<Flags>,
    schemas: &[VERIFY_SCHEMA],
    columns: VERIFY_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Files with records of bucket show [default: standard input]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let mut complaints = Complaints::new(&process.who);
    let mut shown: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    if flags.files.is_empty() {
        read(&mut Lines::stdin(), &mut complaints, &mut shown)?;
    }
    for path in &flags.files {
        if path.as_os_str() == "-" {
            read(&mut Lines::stdin(), &mut complaints, &mut shown)?;
            continue;
        }
        let file = File::open(path).map_err(|error| sys::Error::io("open", path.display().to_string(), &error))?;
        read(&mut Lines::new(BufReader::new(file)), &mut complaints, &mut shown)?;
    }
    // Nothing to hold against each other is no agreement.
    let mut exit = if shown.is_empty() { Exit::Undecided } else { Exit::Yes };
    if shown.is_empty() {
        process.complain("no record of bucket show was read (give it those of each node)");
    }
    for (vip, shown) in &shown {
        let cover = verify(shown);
        let mut head = Head::new("bucket.verify").about(vip);
        head.status = Some(if cover.is_whole() { Status::Up } else { Status::Down });
        if !cover.is_whole() {
            exit = exit.and(Exit::No);
        }
        let overlaps = cover
            .overlaps
            .into_iter()
            .map(|(buckets, nodes)| Overlap { buckets: buckets.to_string(), nodes })
            .collect();
        let record =
            Verify { nodes: cover.nodes, gaps: cover.gaps.to_string(), overlaps, parameters_differ: cover.differ };
        process.out.record(&head, &record)?;
    }
    Ok(exit.and(complaints.finish()))
}

fn read<R: BufRead>(
    lines: &mut Lines<R>,
    complaints: &mut Complaints,
    shown: &mut BTreeMap<String, Vec<Shown>>,
) -> Result<(), Failure> {
    while let Some(got) = lines.next()? {
        let (number, text) = match got {
            Got::Line(number, text) => (number, text),
            Got::Malformed(number, why) => {
                complaints.line(number, &why);
                continue;
            }
        };
        match Line::parse(text).and_then(|line| read_shown(&line)) {
            Ok(Some((vip, one))) => shown.entry(vip).or_default().push(one),
            Ok(None) => {}
            Err(why) => complaints.line(number, &why),
        }
    }
    Ok(())
}
