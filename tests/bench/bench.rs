//! `scripts/bench`: our commands and their peers side by side, as ratios.
//!
//! An example target, since that is what cargo builds beside tests without shipping it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod measure;
mod rows;

#[path = "../support/mod.rs"]
mod support;
// The floors as they are, since nothing is made public for a bench; their lints are the crate's.
#[allow(dead_code, clippy::all, clippy::pedantic)]
#[path = "../../src/sys/mod.rs"]
mod sys;
#[allow(dead_code, clippy::all, clippy::pedantic)]
#[path = "../../src/types/mod.rs"]
mod types;
#[allow(dead_code, clippy::all, clippy::pedantic)]
#[path = "../../src/wire/mod.rs"]
mod wire;

use measure::Report;
use rows::{Bench, ROWS};
use serde_json::json;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: scripts/bench [--list] [--pairs N] [--json FILE] [NAME...]";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (mut names, mut pairs, mut raw, mut binaries) = (Vec::new(), None, None, PathBuf::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                for row in ROWS {
                    measure::print(&format!("{:<20} {}", row.name, row.about));
                }
                return ExitCode::SUCCESS;
            }
            "--sendmmsg" => return rows::bare_loop(&mut words),
            "--pairs" => match words.next().and_then(|count| count.parse::<usize>().ok()).filter(|count| *count > 0) {
                Some(count) => pairs = Some(count),
                None => return usage("--pairs takes a number above 0"),
            },
            "--json" => match words.next() {
                Some(path) => raw = Some(path),
                None => return usage("--json takes a file"),
            },
            "--binaries" => binaries = words.next().unwrap_or_default().into(),
            name if ROWS.iter().any(|row| row.name == name) => names.push(word),
            other => return usage(&format!("'{other}' is no row (see: scripts/bench --list)")),
        }
    }
    let raw = match raw.map(|path| File::create(&path).map_err(|error| format!("{path}: {error}"))) {
        Some(Err(why)) => return usage(&why),
        Some(Ok(file)) => Some(file),
        None => None,
    };
    let mut report = Report::new(raw);
    machine(&mut report);
    let bench = Bench { binaries, pairs };
    for row in ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)) {
        (row.run)(row.name, &bench, &mut report);
    }
    if report.missed().is_empty() {
        return ExitCode::SUCCESS;
    }
    let missed = report.missed().join(", ");
    complain(&format!("a bar is missed: {missed}"));
    ExitCode::from(1)
}

fn complain(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "bench: {why}");
}

fn usage(why: &str) -> ExitCode {
    complain(&format!("{why}\n{USAGE}"));
    ExitCode::from(2)
}

/// Which machine the figures are of.
fn machine(report: &mut Report) {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    measure::print(&format!("{model}, {cores} cores, Linux {}, load {load} before", kernel.trim()));
    report.raw(&json!({"kind": "bench.machine", "cpu": model, "cores": cores, "kernel": kernel.trim(), "load": load}));
}
