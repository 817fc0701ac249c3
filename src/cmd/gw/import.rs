//! `gw import`: the gateways of another program's configuration.

use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::gw::{Described, IMPORT_COLUMNS, IMPORT_SCHEMA};
use crate::sys;
use crate::wire::env_conf;
use clap::{ArgMatches, Args};
use std::path::Path;

pub(super) const VERB: Verb = Verb {
    name: "import",
    about: "Read the env.conf of BashLb, and print its gateways as --gateways reads them",
    examples: "gw import /opt/BashLb/env.conf > gateways.jsonl\n\
               gw import env.conf --table",
    args: flags::<Flags>,
    schemas: &[IMPORT_SCHEMA],
    columns: IMPORT_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The file, as it is: nothing in it is run
    #[arg(value_name = "FILE")]
    file: String,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let refused = |line: usize, why: &str| {
        let place = if line == 0 { String::new() } else { format!("line {line}: ") };
        Failure::input(format!("cannot import {}: {place}{why}", flags.file))
    };
    let bytes = sys::state::read(Path::new(&flags.file))?.ok_or_else(|| refused(0, "there is no such file"))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(0, "it is no text"))?;
    let config = env_conf::read(&text).map_err(|(line, why)| refused(line, &why))?;
    for (line, what) in &config.ignored {
        process.complain(&format!("{}, line {line}: {what}", flags.file));
    }
    for gateway in &config.gateways {
        process.out.record(&Head::new("gw.import").about(gateway.subject()), &Described::new(gateway))?;
    }
    Ok(Exit::Yes)
}
