//! A map that several hosts share, and locks in it: see store(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::store::TOOL)
}
