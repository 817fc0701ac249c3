//! `gw`: which way out?

mod apply;
mod clear;
mod course;
mod doctor;
mod flush;
mod import;
mod kernel;
mod probe;
mod report;
mod split;
mod talk;
mod ways;

use crate::cli::{Failure, Tool, Verbs};
use crate::cmd::described;
use crate::record::gw::{read_file, read_words};
use crate::types::gateway::Gateway;
use clap::Args;

/// The command.
pub const TOOL: Tool = Tool {
    name: "gw",
    about: "Find out which gateways forward, and split new flows over them",
    verbs: Verbs::Many(&[apply::VERB, clear::VERB, doctor::VERB, import::VERB, probe::VERB, report::VERB, split::VERB]),
};

/// More are no gateways of one host: each has a mark of its own.
const MOST: usize = 100;

/// The gateways, on the command line or in a file.
#[derive(Args, Debug)]
struct Gateways {
    /// The gateways: a JSON array, JSON lines as gw import prints them, or lines ADDR key=value ...
    #[arg(long, value_name = "FILE")]
    gateways: Option<String>,

    /// One gateway: name= dev= weight= tier= expect= method= target=
    #[arg(long, value_name = "ADDR[,key=value...]", value_parser = read_words)]
    gateway: Vec<Gateway>,
}

impl Gateways {
    /// All that are named, in order.
    ///
    /// # Errors
    /// The file cannot be read or describes none; a gateway is named twice; there are too many.
    fn all(&self) -> Result<Vec<Gateway>, Failure> {
        let mut all = self.gateway.clone();
        if let Some(name) = &self.gateways {
            all.extend(described::read(name, "gateways", "gw", read_file)?);
        }
        for (at, gateway) in all.iter().enumerate() {
            if all[..at].iter().any(|other| other.subject() == gateway.subject()) {
                return Err(Failure::usage(format!("{} is named twice", gateway.subject())));
            }
        }
        if all.len() > MOST {
            return Err(Failure::usage(format!("{} gateways are more than {MOST}", all.len())));
        }
        Ok(all)
    }
}
