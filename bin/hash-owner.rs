//! Which bucket, and so which node, owns a flow: see hash-owner(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::hash_owner::TOOL)
}
