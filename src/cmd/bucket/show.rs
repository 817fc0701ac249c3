//! `bucket show`: what does this node answer for?

use super::backend::{Seen, Store, Where};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::bucket::{SHOW_COLUMNS, SHOW_SCHEMA, STATE_SCHEMA};
use crate::sys::netlink::Netlink;
use clap::{ArgMatches, Args};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "show",
    about: "Show which buckets this node answers for, as read back from the kernel",
    examples: "bucket show                     every cluster IP of this host\n\
               bucket show 192.0.2.10 --beat   as a beat carries it",
    args: flags::<Flags>,
    schemas: &[SHOW_SCHEMA, STATE_SCHEMA],
    columns: SHOW_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IP [default: all of this host]
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: Option<IpAddr>,

    /// Print what a beat carries (bucket.state) instead
    #[arg(long)]
    beat: bool,

    #[command(flatten)]
    place: Where,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let deadline = process.deadline(Duration::ZERO);
    let store = Store::open(&flags.place, "show", flags.vip, process, deadline)?;
    let vips = match flags.vip {
        Some(vip) => vec![vip],
        None => store.all()?,
    };
    for vip in vips {
        // One that went away between the list and the look was not asked for by name.
        let seen = match flags.vip {
            Some(vip) => Some(store.need("show", vip)?),
            None => store.look(vip)?,
        };
        let Some(seen) = seen else { continue };
        if flags.beat {
            process.out.record(&Head::new("bucket.state").about(vip), &seen.state(None))?;
        } else {
            let mut show = seen.show();
            if let (Store::Nft(_), Some(cluster), false) = (&store, &seen.cluster, seen.held.draining.is_empty()) {
                let left = super::connections_in(cluster, &seen.held.draining)?;
                show.connections_left = u64::try_from(left.len()).ok();
            }
            process.out.record(&Head::new("bucket.show").about(vip), &show)?;
            warn_of_mac(&store, &seen, process)?;
        }
    }
    Ok(Exit::Yes)
}

/// hardening 26: with another MAC than the one that the sums of neighbour messages were corrected for,
/// every neighbour drops them.
fn warn_of_mac(store: &Store, seen: &Seen, process: &Process) -> Result<(), Failure> {
    let (Store::Nft(_), Some(cluster)) = (store, &seen.cluster) else { return Ok(()) };
    if cluster.vip.is_ipv4() {
        return Ok(());
    }
    let links = Netlink::open()?.links()?;
    let now = links.iter().find(|link| link.name == cluster.dev).and_then(|link| link.mac);
    if let Some(now) = now.filter(|now| *now != cluster.made_from) {
        process.complain(&format!(
            "warning: {dev} has the MAC {now}, and the rules of {vip} were made from {was}: neighbours drop what they \
             are told of it (bucket init {vip} --dev {dev} … again, or keep bucket watch --repair running)",
            dev = cluster.dev,
            vip = cluster.vip,
            was = cluster.made_from,
        ));
    }
    Ok(())
}
