//! failover-utils: small commands that keep a service reachable when a host, a link, a gateway or
//! a site fails.
//!
//! # The floors
//!
//! ```text
//! bin    -> cmd, cli
//! cmd    -> cli, record, decide, wire, sys, types    the only place that introduces them
//! record -> decide, types                            the JSON contract
//! cli    -> record (envelope, error), sys, types     the process: exit, failure, out, input
//! sys    -> types                                    the machine: moves bytes, reads clocks
//! decide -> types                                    verdicts and plans from values handed in
//! wire   -> types                                    bytes <-> structs, each names its RFC
//! types  -> nothing                                  nouns that two floors share
//! ```
//!
//! # What is absent
//!
//! `decide` sees no bytes, no clock, no JSON and no randomness but what is handed in. `wire` sees
//! no socket. `sys` knows no protocol. `record` knows no kernel. `unsafe` stands in `sys/raw.rs`
//! alone, and only `sys/clock.rs` reads a clock. `tests/floors.rs` holds the tree to this.
//!
//! Public is what a binary needs: [`cmd`] and [`cli`].

pub mod cli;
pub mod cmd;
mod decide;
mod record;
mod sys;
mod types;
mod wire;
