//! The virtual router protocol: see vrrp(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::vrrp::TOOL)
}
