//! Which buckets of a cluster IP this node answers for: see bucket(8).

use failover_utils::{cli, cmd};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cmd::bucket::TOOL)
}
