//! `dns`: what do clients get, and when?

mod answer;
mod ask;
mod authorities;
mod budget;
mod check;
mod primary;
mod push;
mod timeline;
mod trace;
mod update;

use crate::cli::{Failure, Tool, Verbs};
use crate::cmd::described;
use crate::record::dns::{read_file, read_words};
use crate::types::site::Site;
use clap::Args;

/// The command.
pub const TOOL: Tool = Tool {
    name: "dns",
    about: "See what servers say of a name, decide which addresses it has, make it so, and tell when clients know",
    verbs: Verbs::Many(&[check::VERB, trace::VERB, budget::VERB, answer::VERB, update::VERB]),
};

/// A TTL on the command line.
///
/// # Errors
/// It is none (RFC 2181 §8).
fn seconds(text: &str) -> Result<u32, String> {
    let read = text.parse().ok().filter(|seconds| *seconds <= i32::MAX.unsigned_abs());
    read.ok_or_else(|| "a TTL is in whole seconds, without a unit, and at most 2147483647".to_owned())
}

/// The sites behind a name, on the command line or in a file.
#[derive(Args, Debug)]
struct Sites {
    /// The sites: a JSON array, JSON lines, or lines NAME ADDR ... weight=W tier=N
    #[arg(long, value_name = "FILE")]
    sites: Option<String>,

    /// One site
    #[arg(long, value_name = "NAME,ADDR,...[,weight=W][,tier=N]", value_parser = read_words)]
    site: Vec<Site>,
}

impl Sites {
    /// All that are named, in order.
    ///
    /// # Errors
    /// The file cannot be read or describes none; a site is named twice; there is none.
    fn all(&self) -> Result<Vec<Site>, Failure> {
        let mut all = self.site.clone();
        if let Some(file) = &self.sites {
            all.extend(described::read(file, "sites", "dns", read_file)?);
        }
        for (at, site) in all.iter().enumerate() {
            if all[..at].iter().any(|other| other.name == site.name) {
                return Err(Failure::usage(format!("the site {} is named twice", site.name)));
            }
        }
        if all.is_empty() { Err(Failure::usage("no site is named (--sites FILE, --site NAME,ADDR)")) } else { Ok(all) }
    }
}
