//! What clients get of a name: see dns(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::dns::TOOL)
}
