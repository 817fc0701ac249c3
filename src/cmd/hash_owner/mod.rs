//! `hash-owner`: which bucket, and so which node, owns a flow.

mod bulk;
mod flows;

use crate::cli::args::{self, flags};
use crate::cli::out::{Form, Out};
use crate::cli::{Exit, Failure, Process, Reason, Tool, Verb, Verbs};
use crate::decide::hash_owner::{Algo, ByteOrder, Fields, Hashed, Kernel, Params};
use crate::record::Head;
use crate::record::envelope::Nothing;
use crate::record::hash_owner::{
    COLUMNS, KIND, MOVE_COLUMNS, MOVE_SCHEMA, SCHEMA, SUMMARY_COLUMNS, SUMMARY_SCHEMA, Spread, SpreadRow, Summary,
    Verdicts, Writer, owners,
};
use crate::sys;
use crate::sys::clock;
use crate::types::bucket::{Buckets, MAX_TOTAL, Owners};
use crate::types::cluster::Mode;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args};
use flows::{Flows, Tally, Wanted};
use std::path::PathBuf;
use std::str::FromStr;

/// The command.
pub const TOOL: Tool = Tool { name: "hash-owner", about: ABOUT, verbs: Verbs::One(VERB) };

const ABOUT: &str = "Tell which bucket, and so which node, owns a flow";

const VERB: Verb = Verb {
    name: "",
    about: ABOUT,
    examples: "hash-owner --total 3 --seed 0x7b 192.0.2.7                     the bucket of a client\n\
               hash-owner --total 3 --local 1,3 192.0.2.7 && echo mine        is it served here?\n\
               hash-owner --total 2 --algo clusterip --kernel el7 192.0.2.14  as an old cluster saw it\n\
               conntrack -L | hash-owner --total 3 --summary --table          do the flows spread evenly?\n\
               ss -Hnt | hash-owner --total 3 --moves n1=1-2,n2=3 n1=1-3      who would change hosts?\n\
               hash-owner --total 64 --brief < addresses                      millions of them",
    args: flags::<Flags>,
    schemas: &[SCHEMA, SUMMARY_SCHEMA, MOVE_SCHEMA],
    columns: COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// SRC, SRC:SPORT, SRC:SPORT>DST:DPORT/PROTO, 'SRC SPORT DST DPORT PROTO', a record, or a line of
    /// conntrack -L or ss -Hn; without any, or where '-' stands, one a line on standard input
    #[arg(value_name = "FLOW")]
    flows: Vec<String>,

    /// Number of buckets
    #[arg(long, value_name = "N", value_parser = number)]
    total: u32,

    /// Seed of the hash, decimal or 0x…
    #[arg(long, value_name = "S", default_value = "0", value_parser = number)]
    seed: u32,

    /// Hash as this part of the kernel does
    #[arg(long, value_name = "ALGO", default_value = "nft", value_parser = one_of::<Algo>(Algo::ALL.map(Algo::as_str)))]
    algo: Algo,

    /// Hash ports too, of protocols that have them
    #[arg(long, value_name = "MODE", default_value = "sourceip", value_parser = one_of::<Mode>(Mode::ALL.map(Mode::as_str)))]
    mode: Mode,

    /// Hash these fields in this order, as one nft concatenation or one --hmark-tuple: saddr, daddr,
    /// sport, dport, proto, joined by dots
    #[arg(long, value_name = "FIELDS", conflicts_with = "mode")]
    fields: Option<Fields>,

    /// Hash as this kernel does: 3.10, 2.6.24, el7, what uname -r prints [default: the newest that has
    /// the algorithm]
    #[arg(long, value_name = "VERSION")]
    kernel: Option<Kernel>,

    /// Hash as nodes with a big-endian CPU do
    #[arg(long)]
    big_endian: bool,

    /// Tell whether the bucket is one of these; a single flow that is not gives status 1
    #[arg(long, value_name = "LIST")]
    local: Option<Buckets>,

    /// Name the owner by this map: a file of 'node LIST' lines or bucket plan records, or node=LIST,…
    #[arg(long, value_name = "FILE|NODE=LIST,…")]
    owners: Option<String>,

    /// Print the bucket alone, one a line
    #[arg(long, conflicts_with_all = ["summary", "moves", "table"])]
    brief: bool,

    /// Print how the flows spread over the buckets, and nothing for each
    #[arg(long, conflicts_with = "moves")]
    summary: bool,

    /// Print the flows that have another owner under map B than under map A
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with = "owners")]
    moves: Option<Vec<String>>,
}

fn one_of<T>(names: impl Into<PossibleValuesParser>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    names.into().try_map(|name| name.parse::<T>())
}

/// A 32-bit number, decimal or in hexadecimal with `0x` before it.
fn number(text: &str) -> Result<u32, String> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = plain.then(|| u32::from_str_radix(digits, radix).ok()).flatten();
    number.ok_or_else(|| format!("'{text}' is not a number from 0 to 4294967295 (decimal or 0x…)"))
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let params = Params {
        algo: flags.algo,
        hashed: flags.fields.clone().map_or(Hashed::Mode(flags.mode), Hashed::Fields),
        total: flags.total,
        seed: flags.seed,
        kernel: flags.kernel,
        order: if flags.big_endian { ByteOrder::Big } else { ByteOrder::Little },
    };
    let hasher = params.prepare().map_err(|why| Failure::usage(why.to_string()))?;
    if let Some(local) = &flags.local {
        within_total(local, flags.total).map_err(|why| Failure::usage(format!("--local: {why}")))?;
    }
    let map = |text: &String| read_map(text, flags.total);
    let owners = flags.owners.as_ref().map(map).transpose()?;
    let wanted = match flags.moves.as_deref() {
        Some([from, to]) => {
            let verdicts = |text| map(text).map(|owners| Verdicts::new(Some(&owners), None));
            Wanted::Moves { from: verdicts(from)?, to: verdicts(to)? }
        }
        _ if flags.summary && flags.total > u32::from(MAX_TOTAL) => {
            return Err(Failure::usage(format!("--summary takes up to {MAX_TOTAL} buckets")));
        }
        _ if flags.summary => Wanted::Summary,
        _ if flags.brief => Wanted::Brief,
        _ => Wanted::Records,
    };
    // A table's columns are those of the kind that is printed; --brief prints none.
    if let Form::Table(_) = process.form {
        process.form = match wanted {
            Wanted::Records => Form::Table(COLUMNS),
            Wanted::Summary => Form::Table(SUMMARY_COLUMNS),
            Wanted::Moves { .. } => Form::Table(MOVE_COLUMNS),
            Wanted::Brief => Form::Json,
        };
        process.out = Out::new(&process.node, process.form);
    }
    let writer =
        Writer::new(&process.node, flags.algo, flags.total, Verdicts::new(owners.as_ref(), flags.local.as_ref()));
    let flows = Flows::new(hasher, writer, wanted, flags.total);
    let counted = if flows.is_summary() { usize::try_from(flags.total).unwrap_or(0) } else { 0 };
    let mut tally = Tally::of_buckets(counted);
    let exit = if flags.flows.is_empty() {
        bulk::standard_input(&flows, &mut tally, process)?
    } else {
        operands(&flags.flows, &flows, &mut tally, process)?
    };
    if flows.is_summary() {
        summarise(flags.total, &flows, &tally, process)?;
    }
    Ok(exit)
}

/// The words of one flow may stand as operands of their own: a bare number is never a flow.
fn rejoin(words: &[String]) -> Vec<String> {
    match words {
        [src, sport, dst, dport, proto @ ..]
            if proto.len() <= 1 && sport.bytes().chain(dport.bytes()).all(|byte| byte.is_ascii_digit()) =>
        {
            let mut flow = [src, sport, dst, dport].map(String::as_str).join(" ");
            for word in proto {
                flow = format!("{flow} {word}");
            }
            vec![flow]
        }
        _ => words.to_vec(),
    }
}

/// Answers for each operand; a single one that is not local gives a clear no.
fn operands(words: &[String], flows: &Flows, tally: &mut Tally, process: &mut Process) -> Result<Exit, Failure> {
    if words.iter().filter(|word| *word == "-").count() > 1 {
        return Err(Failure::usage("'-' stands twice: standard input can be read once"));
    }
    let words = rejoin(words);
    let alone = words.len() == 1;
    let mut exit = Exit::Yes;
    let mut lines = Vec::new();
    for word in &words {
        if word == "-" {
            exit = exit.and(bulk::standard_input(flows, tally, process)?);
            continue;
        }
        lines.clear();
        let answered = flows.line(word.as_bytes(), &flows.block(clock::wall()), &mut lines, tally).and_then(|answer| {
            // As an operand, what is no flow was not meant as a line to be skipped.
            answer.ok_or_else(|| "there is no flow in it".to_owned())
        });
        flows.warn(tally, process);
        match answered {
            Ok(answer) => {
                bulk::hand_over(flows, &lines, process)?;
                if alone && flows.is_local(answer) == Some(false) {
                    exit = Exit::No;
                }
            }
            Err(why) => {
                let failure = Failure::input(format!("cannot tell the owner of '{word}': {why}"));
                process.complain(&failure.sentence);
                exit = exit.and(failure.exit);
                if flows.is_records() {
                    process
                        .out
                        .record(&Head { error: Some(failure.body()), ..Head::new(KIND).about(word) }, &Nothing {})?;
                }
            }
        }
    }
    Ok(exit)
}

/// A map of owners as the user gave it: in the argument itself, or in the file that it names.
fn read_map(text: &str, total: u32) -> Result<Owners, Failure> {
    let is_inline = text.contains('=');
    let map = if is_inline {
        text.parse::<Owners>().map_err(Failure::usage)?
    } else {
        let doing = |why: &str| {
            Failure::new(Exit::BadInput, Reason::BadFile, format!("cannot read the owners in {text}: {why}"))
        };
        let path =
            text.strip_prefix("fd:").map_or_else(|| PathBuf::from(text), |fd| PathBuf::from(format!("/dev/fd/{fd}")));
        let bytes =
            sys::state::read(&path)?.ok_or_else(|| doing("no such file (a map on the command line is NODE=LIST,…)"))?;
        let content = std::str::from_utf8(&bytes).map_err(|_| doing("it is no text"))?;
        owners(content).map_err(|why| doing(&why))?
    };
    for buckets in map.0.values() {
        within_total(buckets, total).map_err(|why| {
            let why = format!("in the owners {text}: {why}");
            if is_inline { Failure::usage(why) } else { Failure::new(Exit::BadInput, Reason::BadFile, why) }
        })?;
    }
    Ok(map)
}

fn within_total(buckets: &Buckets, total: u32) -> Result<(), String> {
    match buckets.max() {
        Some(most) if u32::from(most) > total => Err(format!("bucket {most} is above the total of {total}")),
        _ => Ok(()),
    }
}

fn summarise(total: u32, flows: &Flows, tally: &Tally, process: &mut Process) -> Result<(), Failure> {
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53 flows
    let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let buckets: Vec<Spread> = (1..)
        .zip(&tally.counts)
        .map(|(bucket, count)| Spread {
            bucket,
            owner: flows.owner(bucket).map(str::to_owned),
            flows: *count,
            share: ratio(*count, tally.flows).map(|share| rounded(share, 1e6)),
            deviation_pct: ratio(*count * u64::from(total), tally.flows).map(|even| rounded((even - 1.0) * 100.0, 1e3)),
        })
        .collect();
    let Form::Table(_) = process.form else {
        let summary = Summary { total, flows: tally.flows, buckets };
        return process.out.record(&Head::new(SUMMARY_SCHEMA.0), &summary);
    };
    let most = tally.counts.iter().copied().max().unwrap_or(0);
    for spread in &buckets {
        // The longest bar is of forty.
        let len = (40 * spread.flows).checked_div(most).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        process.out.record(&Head::new(SUMMARY_SCHEMA.0), &SpreadRow { spread, bar: "#".repeat(len) })?;
    }
    Ok(())
}

/// A number to so many parts of one.
fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}
