//! Is it well here, and what priority does that leave: see health(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::health::TOOL)
}
