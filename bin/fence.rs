//! Make sure that a node is off: see fence(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::fence::TOOL)
}
