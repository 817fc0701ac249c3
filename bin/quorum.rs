//! What the majority says: see quorum(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::quorum::TOOL)
}
