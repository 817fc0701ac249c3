//! On which node a service runs: see place(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::place::TOOL)
}
