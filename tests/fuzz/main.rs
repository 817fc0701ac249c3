//! Every parser of foreign bytes, fed with damaged copies of real input and with noise.
//!
//! Twenty thousand cases each; `FAILOVER_NIGHTLY=1` makes them twenty times as many. Without
//! libtest's harness, since the floors bring their unit tests along and those run elsewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// The floors as they are, since nothing is made public for a test; their lints are the crate's.
#[allow(dead_code, unused_imports, unused_macros, clippy::all, clippy::pedantic)]
#[path = "../../src/decide/mod.rs"]
mod decide;
#[allow(dead_code, unreachable_pub, unused_imports, unused_macros, clippy::all, clippy::pedantic)]
#[path = "../../src/record/mod.rs"]
mod record;
#[allow(dead_code, unused_imports, unused_macros, clippy::all, clippy::pedantic)]
#[path = "../../src/types/mod.rs"]
mod types;
#[allow(dead_code, unused_imports, unused_macros, clippy::all, clippy::pedantic)]
#[path = "../../src/wire/mod.rs"]
mod wire;

mod seeds;
mod targets;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Pieces that parsers stumble over.
const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\u0000",
    "\\ud800",
    ":",
    ",",
    "\n",
    "\0",
    "-",
    "/",
    "%",
    "0",
    "-1",
    "1e999",
    "18446744073709551616",
    "4294967296",
    "65536",
    "null",
    "1-4096",
    "255.255.255.256",
    "::ffff:1.2.3.4",
];

/// One act of damage; positions are shares of the length.
#[derive(Clone, Debug)]
enum Damage {
    Set(u16, u8),
    Flip(u16, u8),
    Cut(u16, u16),
    Twice(u16, u16),
    Piece(u16, usize),
    Noise(u16, Vec<u8>),
}

impl Damage {
    fn strategy() -> impl Strategy<Value = Damage> {
        let at = any::<u16>;
        prop_oneof![
            (at(), any::<u8>()).prop_map(|(place, byte)| Damage::Set(place, byte)),
            (at(), 0..8_u8).prop_map(|(place, bit)| Damage::Flip(place, bit)),
            (at(), at()).prop_map(|(from, to)| Damage::Cut(from, to)),
            (at(), at()).prop_map(|(from, to)| Damage::Twice(from, to)),
            (at(), 0..PIECES.len()).prop_map(|(place, piece)| Damage::Piece(place, piece)),
            (at(), prop::collection::vec(any::<u8>(), 1..16)).prop_map(|(place, noise)| Damage::Noise(place, noise)),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let index = |share: u16| len * usize::from(share) / (usize::from(u16::MAX) + 1);
        let range = |one: u16, other: u16| index(one.min(other))..index(one.max(other));
        match self {
            Damage::Set(place, value) => {
                if let Some(byte) = bytes.get_mut(index(*place)) {
                    *byte = *value;
                }
            }
            Damage::Flip(place, bit) => {
                if let Some(byte) = bytes.get_mut(index(*place)) {
                    *byte ^= 1 << bit;
                }
            }
            Damage::Cut(from, to) => drop(bytes.drain(range(*from, *to))),
            Damage::Twice(from, to) => bytes.extend_from_within(range(*from, *to)),
            Damage::Piece(place, piece) => drop(bytes.splice(index(*place)..index(*place), PIECES[*piece].bytes())),
            Damage::Noise(place, noise) => drop(bytes.splice(index(*place)..index(*place), noise.iter().copied())),
        }
    }
}

/// A seed with some damage, now and then none; or noise alone.
fn input(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let damaged = (prop::sample::select(seeds), prop::collection::vec(Damage::strategy(), 0..6));
    let damaged = damaged.prop_map(|(mut bytes, damages)| {
        for damage in &damages {
            damage.apply(&mut bytes);
        }
        bytes
    });
    prop_oneof![9 => damaged, 1 => prop::collection::vec(any::<u8>(), 0..600)]
}

fn main() -> ExitCode {
    // What libtest would take and this does not need; a plain word chooses by name.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let cases = if std::env::var_os("FAILOVER_NIGHTLY").is_some() { 400_000 } else { 20_000 };
    let mut failed = false;
    for (name, one) in targets::TARGETS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word)) {
            continue;
        }
        let seeds = seeds::of(name);
        let started = Instant::now();
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&input(seeds), |bytes| {
            one(&bytes);
            Ok(())
        });
        let text = match outcome {
            Ok(()) => format!("fuzz {name} ... ok, {cases} cases in {:.1} s", started.elapsed().as_secs_f64()),
            Err(TestError::Fail(why, bytes)) => {
                failed = true;
                format!("fuzz {name} ... FAILED: {why}\n  input: b\"{}\"", bytes.escape_ascii())
            }
            Err(error) => {
                failed = true;
                format!("fuzz {name} ... FAILED: {error}")
            }
        };
        std::io::stdout().lock().write_all(format!("{text}\n").as_bytes()).unwrap();
    }
    ExitCode::from(u8::from(failed))
}
