//! `vip peers` and `vip tickle`: who is connected to an address, and wake them after a move.

use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Got, Lines};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::line::Line;
use crate::record::vip::{PEER_COLUMNS, PEER_SCHEMA, Peer, TICKLE_SCHEMA, Tickled};
use crate::sys::privilege::{self, Capability};
use crate::sys::{self, diag, raw};
use crate::types::net::Prefix;
use crate::wire::tcp;
use clap::{ArgMatches, Args};
use std::collections::HashSet;
use std::io::BufReader;
use std::net::{IpAddr, SocketAddr};

pub(super) const PEERS: Verb = Verb {
    name: "peers",
    about: "List the TCP peers that are connected to an address",
    examples: "vip peers 192.0.2.10 >peers.jsonl      before a move, for tickle after it",
    args: flags::<PeersFlags>,
    schemas: &[PEER_SCHEMA],
    columns: PEER_COLUMNS,
    run: run_peers,
};

pub(super) const TICKLE: Verb = Verb {
    name: "tickle",
    about: "After a take-over, make each TCP peer notice at once",
    examples: "vip tickle 192.0.2.10 --peers peers.jsonl\n\
               ss -Hnt src 192.0.2.10 | ssh n2 vip tickle 192.0.2.10 --peers -",
    args: flags::<TickleFlags>,
    schemas: &[TICKLE_SCHEMA],
    columns: PEER_COLUMNS,
    run: run_tickle,
};

#[derive(Args, Debug)]
struct PeersFlags {
    /// The address
    #[arg(value_name = "ADDR")]
    address: String,
}

#[derive(Args, Debug)]
struct TickleFlags {
    /// The address that moved here
    #[arg(value_name = "ADDR")]
    address: String,

    /// The peers that the old owner had: vip.peer records or lines of ss -Hnt ('-': standard input)
    #[arg(long, value_name = "FILE")]
    peers: String,
}

fn address(text: &str) -> Result<IpAddr, Failure> {
    text.parse::<Prefix>().map(|prefix| prefix.addr).map_err(Failure::usage)
}

fn run_peers(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: PeersFlags = args::read(matches)?;
    let addr = address(&flags.address)?;
    for connection in diag::connections(addr)? {
        let body = Peer {
            port: connection.local.port(),
            peer: connection.peer.ip().to_string(),
            peer_port: connection.peer.port(),
        };
        process.out.record(&Head::new("vip.peer").about(addr), &body)?;
    }
    Ok(Exit::Yes)
}

fn run_tickle(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: TickleFlags = args::read(matches)?;
    let addr = address(&flags.address)?;
    privilege::need(Capability::NetRaw, "tickle the peers of", &addr.to_string())?;
    let mut complaints = Complaints::new(&process.who);
    let peers = read_peers(&flags.peers, addr, &mut complaints)?;
    let socket = raw::ip_socket(addr.is_ipv6()).map_err(|errno| sys::Error::call("open", "a raw socket", errno))?;
    let mut exit = Exit::Yes;
    for (local, peer) in peers {
        let mut head = Head::new("vip.tickle").about(addr);
        let outcome = tcp::tickle(local, peer).map_or(Ok(()), |packet| raw::send_ip(&socket, &packet, peer.ip()));
        if let Err(errno) = outcome {
            let failure = Failure::from(sys::Error::call("tickle", peer.to_string(), errno));
            process.complain(&failure.sentence);
            head.error = Some(failure.body());
            exit = exit.and(failure.exit);
        }
        let body =
            Tickled { port: local.port(), peer: peer.ip().to_string(), peer_port: peer.port(), sent: outcome.is_ok() };
        process.out.record(&head, &body)?;
    }
    Ok(exit.and(complaints.finish()))
}

/// Each connection to `addr` once, in the order of the input.
fn read_peers(path: &str, addr: IpAddr, complaints: &mut Complaints) -> Result<Vec<(SocketAddr, SocketAddr)>, Failure> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    let mut take = |got: Got<'_>| match got {
        Got::Malformed(number, why) => complaints.line(number, &why),
        Got::Line(number, text) => match read_peer(text) {
            Ok(Some((local, peer))) if local.ip() == addr && known.insert((local, peer)) => found.push((local, peer)),
            Ok(_) => {}
            Err(why) => complaints.line(number, &why),
        },
    };
    if path == "-" {
        let mut lines = Lines::stdin();
        while let Some(got) = lines.next()? {
            take(got);
        }
    } else {
        let file = std::fs::File::open(path).map_err(|error| sys::Error::io("read", path, &error))?;
        let mut lines = Lines::new(BufReader::new(file));
        while let Some(got) = lines.next()? {
            take(got);
        }
    }
    Ok(found)
}

fn read_peer(text: &str) -> Result<Option<(SocketAddr, SocketAddr)>, String> {
    if !text.trim_start().starts_with('{') {
        return tcp::peer_from_ss(text);
    }
    let line = Line::parse(text)?;
    if line.get::<String>("kind")?.as_deref() != Some("vip.peer") {
        return Ok(None);
    }
    let part = |key: &str| line.parsed::<IpAddr>(key)?.ok_or_else(|| format!("it has no '{key}'"));
    let port = |key: &str| line.get::<u16>(key)?.ok_or_else(|| format!("it has no '{key}'"));
    let local = SocketAddr::new(part("subject")?, port("port")?);
    Ok(Some((local, SocketAddr::new(part("peer")?, port("peer_port")?))))
}
