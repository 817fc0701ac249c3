//! Signed datagrams between nodes: see heartbeat(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::heartbeat::TOOL)
}
