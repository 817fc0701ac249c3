//! `bucket set`: take buckets and give them up by hand.

use super::backend::{self, Seen, Store, Where};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::bucket::change::{How, Outcome, Wish, change};
use crate::record::Action;
use crate::record::bucket::{ACTED_COLUMNS, Acted, SET_SCHEMA};
use crate::types::bucket::Buckets;
use crate::types::cluster::{Cluster, Held};
use crate::wire::clusterip;
use crate::wire::nft::cluster;
use clap::{ArgMatches, Args};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "set",
    about: "Take buckets or give them up; twice is once",
    examples: "bucket set 192.0.2.10 +2 --drain      its old owner lives and has given it up\n\
               bucket set 192.0.2.10 +2              its old owner is proven dead: take all, reset orphans\n\
               bucket set 192.0.2.10 -1              give it up, keep its open TCP connections\n\
               bucket set 192.0.2.10 =1-22 --settle  these, closed altogether otherwise",
    args: flags::<Flags>,
    schemas: &[SET_SCHEMA],
    columns: ACTED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IP
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: IpAddr,

    /// Take a bucket, give one up, or have these and no others
    #[arg(value_name = "+K|-K|=LIST", allow_negative_numbers = true)]
    words: Vec<String>,

    /// Take these
    #[arg(long, value_name = "LIST")]
    add: Option<Buckets>,

    /// Give these up
    #[arg(long, value_name = "LIST")]
    remove: Option<Buckets>,

    /// Have these and no others
    #[arg(long, value_name = "LIST", conflicts_with_all = ["add", "remove"])]
    only: Option<Buckets>,

    /// Of what is taken, serve only TCP connections that are opened from now on
    #[arg(long, conflicts_with_all = ["take_over", "settle"])]
    drain: bool,

    /// Serve all of what is taken, and reset TCP that nobody here opened [default]
    #[arg(long, conflicts_with = "settle")]
    take_over: bool,

    /// Wake the TCP peers of what is taken over, so that those who only wait notice; needs init --remember
    #[arg(long, conflicts_with_all = ["drain", "settle"])]
    tickle: bool,

    /// Close what is given up altogether, and end every drain and take-over
    #[arg(long)]
    settle: bool,

    /// How many buckets there are, where the backend does not know (proc)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    total: Option<u16>,

    #[command(flatten)]
    place: Where,

    #[command(flatten)]
    changing: Changing,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let wish = wish(&flags)?;
    let how = if flags.settle {
        How::Settle
    } else if flags.drain {
        How::Drain
    } else {
        How::TakeOver
    };
    let vip = flags.vip;
    let doing = "change the buckets of";
    let deadline = process.deadline(Duration::ZERO);
    let store = Store::open(&flags.place, doing, Some(vip), process, deadline)?;
    let (_lock, mut head) = super::begin("bucket.set", vip, flags.changing, deadline)?;
    let seen = store.need(doing, vip)?;
    let total = seen.cluster.as_ref().map_or(flags.total.unwrap_or(clusterip::MAX_NODES), |cluster| cluster.total);
    // What was held when the lease ran out is lost, and has to be asked for again.
    let outcome = change(&seen.standing(), total, &wish, how).map_err(|why| super::refusal(&why, doing, vip))?;
    let changes = outcome.held != seen.held || seen.is_lapsed();
    if flags.tickle {
        match &seen.cluster {
            Some(cluster) => super::may_wake(cluster, doing)?,
            None => return Err(Failure::usage("--tickle: the old kernel's file remembers no peers")),
        }
    }
    let mut tickled = None;
    if changes && flags.changing.shows_actions() {
        head.actions = actions(&seen, &outcome)?;
    }
    if !flags.changing.dry_run {
        act(&store, vip, &seen, &outcome.held, changes, doing)?;
        if let (Store::Nft(_), Some(cluster)) = (&store, &seen.cluster) {
            super::end_connections(&process.who, cluster, &seen.held, &outcome.held);
        }
        if let (true, Store::Nft(nft), Some(cluster)) = (flags.tickle, &store, &seen.cluster) {
            tickled = Some(super::wake(&process.who, nft, cluster, &outcome.gained));
        }
    }
    let now = store.need(doing, vip)?;
    // As read back: what another program changed meanwhile is not claimed.
    let done = flags.changing.dry_run || now.held == outcome.held;
    head.changed = Some(changes && done);
    process.out.record(&head, &Acted { tickled, ..Acted::new(now.show(), &outcome, Some(how)) })?;
    if done {
        Ok(Exit::Yes)
    } else {
        let why = format!("cannot {doing} {vip}: read back, {} is held, wanted {}", now.held.owned, outcome.held.owned);
        process.complain(&format!("{why} (is another program changing the rules?)"));
        Ok(Exit::Refused)
    }
}

/// One kind of wish at a time.
fn wish(flags: &Flags) -> Result<Wish, Failure> {
    let mut add = flags.add.clone().unwrap_or_default();
    let mut remove = flags.remove.clone().unwrap_or_default();
    let mut only = flags.only.clone();
    for word in &flags.words {
        let (sign, rest) = word.split_at_checked(1).unwrap_or(("", ""));
        let list: Buckets = rest.parse().map_err(Failure::usage)?;
        match sign {
            "=" => only = Some(only.unwrap_or_default().union(&list)),
            "+" | "-" if list.is_empty() => return Err(Failure::usage(format!("'{word}' names no bucket"))),
            "+" => add = add.union(&list),
            "-" => remove = remove.union(&list),
            _ => return Err(Failure::usage(format!("'{word}' is neither +K, -K nor =LIST"))),
        }
    }
    match only {
        Some(_) if !add.is_empty() || !remove.is_empty() => {
            Err(Failure::usage("=LIST stands alone: it says all that is to be held"))
        }
        Some(only) => Ok(Wish::Only(only)),
        None if add.is_empty() && remove.is_empty() && !flags.settle => {
            Err(Failure::usage("nothing to do: +K, -K, =LIST or --settle"))
        }
        None => Ok(Wish::Change { add, remove }),
    }
}

/// The whole transaction: the map, and the lease with it.
pub(super) fn document(cluster: &Cluster, held: &Held, lapsed: bool) -> Result<String, Failure> {
    let map = cluster::map(cluster, held).map_err(Failure::usage)?;
    Ok(map + &if lapsed { cluster::grant(cluster) } else { cluster::renew(cluster) })
}

fn act(store: &Store, vip: IpAddr, seen: &Seen, held: &Held, changes: bool, doing: &str) -> Result<(), Failure> {
    match (store, &seen.cluster) {
        (Store::Nft(nft), Some(cluster)) => {
            // Without a change the lease alone is renewed: the operator is there.
            let text = if changes { document(cluster, held, seen.is_lapsed())? } else { cluster::renew(cluster) };
            Ok(nft.load(&text, doing, &vip.to_string())?)
        }
        (Store::File(origin), Some(cluster)) if changes => backend::keep(origin, cluster, held),
        (Store::Proc(folder), _) => backend::tell_proc(folder, vip, &seen.held, held),
        _ => Ok(()),
    }
}

fn actions(seen: &Seen, outcome: &Outcome) -> Result<Vec<Action>, Failure> {
    Ok(match &seen.cluster {
        Some(cluster) => vec![Action { op: "nft", text: document(cluster, &outcome.held, seen.is_lapsed())? }],
        None => outcome
            .lost
            .iter()
            .map(clusterip::remove)
            .chain(outcome.gained.iter().map(clusterip::add))
            .map(|word| Action { op: "file", text: word.trim_end().to_owned() })
            .collect(),
    })
}
