//! `health dns`: does a server know a name?

use super::{Check, Monitoring, Usual, Way, failed, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::watch::Probed;
use crate::decide::monitor::{Evidence, Fault};
use crate::record::health::{DNS_COLUMNS, DNS_SCHEMA, Dns};
use crate::sys::connect::{self, Via};
use crate::sys::worker::Stop;
use crate::sys::{clock, local, raw};
use crate::types::target::Target;
use crate::types::time::{Tick, millis};
use crate::wire::dns::{self, Answer, Question, tcp};
use clap::Args;
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const PORT: u16 = 53;
const RESOLV_CONF: &str = "/etc/resolv.conf";

pub(super) const VERB: Verb = Verb {
    name: "dns",
    about: "Tell whether a server knows a name: over UDP, and over TCP where the answer does not fit",
    examples: "health dns www.example.org --server 192.0.2.53\n\
               health dns www.example.org --server 192.0.2.53 --expect 192.0.2.10,192.0.2.11 --follow\n\
               health dns example.org --type SOA",
    args: flags::<Flags>,
    schemas: &[DNS_SCHEMA],
    columns: DNS_COLUMNS,
    run: |matches, process| {
        let flags: Flags = args::read(matches)?;
        let outcome = run(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

#[derive(Args, Debug)]
struct Flags {
    /// The name to ask for
    #[arg(value_name = "NAME")]
    qname: String,

    /// Whom to ask [default: the first nameserver of /etc/resolv.conf]
    #[arg(long, value_name = "ADDR[:PORT]")]
    server: Option<Target>,

    /// The type of the records
    #[arg(long = "type", value_name = "TYPE", default_value = "A", value_parser = dns::check_type)]
    qtype: String,

    /// Addresses that must be among the answers
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    expect: Vec<IpAddr>,

    #[command(flatten)]
    way: Way,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    // Refused before anything is asked.
    Question::new(&flags.qname, &flags.qtype, 0).map_err(Failure::usage)?;
    let server = match flags.server.clone() {
        Some(server) => server,
        None => configured_server()?,
    };
    let via = flags.way.via(&server)?;
    let (qname, qtype, expect, asked) =
        (flags.qname.clone(), flags.qtype.clone(), flags.expect.clone(), server.clone());
    let probe = move |deadline: Tick, _: &Stop| {
        let asking = || -> Result<_, Failure> {
            let to = connect::resolve(&asked, PORT, deadline)?.into_iter().next();
            let to = to.ok_or_else(|| Failure::usage("the server has no address"))?;
            let [high, low] = raw::random()?;
            let question = Question::new(&qname, &qtype, u16::from_be_bytes([high, low])).map_err(Failure::usage)?;
            let bytes = question.encode().map_err(Failure::usage)?;
            Ok((to, question, bytes))
        };
        let (to, question, bytes) = match asking() {
            Ok(asking) => asking,
            Err(failure) => return Probed::untold(failure),
        };
        let mut body = Dns {
            server: asked.to_string(),
            rcode: None,
            answers: Vec::new(),
            answers_left_out: None,
            response_ms: None,
        };
        let started = clock::boot();
        let answer = match ask(to, &question, &bytes, &via, deadline) {
            Ok(answer) => answer,
            Err(errno) => return failed(errno, "ask", &asked.to_string(), &via, body),
        };
        let all_there = expect.iter().all(|addr| answer.addresses.contains(addr));
        let well = answer.is_no_error() && !answer.answers.is_empty() && all_there;
        body.response_ms = Some(millis(clock::boot().since(started)));
        body.rcode = Some(answer.rcode);
        body.answer(answer.answers);
        Probed::new(if well { Evidence::Good } else { Evidence::Bad(Fault::BadAnswer) }, body)
    };
    let check = Check {
        kind: "health.dns",
        subject: flags.qname.to_ascii_lowercase().trim_end_matches('.').to_owned(),
        doing: format!("ask {server}"),
        usual: Usual::Network,
        answers_in: None,
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

/// The first name server that this host is configured with.
pub(in crate::cmd) fn configured_server() -> Result<Target, Failure> {
    let text = local::text(RESOLV_CONF)?;
    let first = dns::first_nameserver(&text).and_then(|server| server.parse().ok());
    first.ok_or_else(|| {
        Failure::input(format!("cannot read a name server from {RESOLV_CONF}: it has none (give --server ADDR)"))
    })
}

/// Asks over UDP, each time from a port of its own, and over TCP where the answer was cut
/// (RFC 7766 §5).
fn ask(to: SocketAddr, question: &Question, bytes: &[u8], via: &Via, deadline: Tick) -> Result<Answer, Errno> {
    let answer = connect::ask(to, bytes, via, deadline, |bytes| question.answer(bytes))?;
    if !answer.truncated {
        return Ok(answer);
    }
    let socket = connect::one(to, via, deadline)?;
    let mut framed = Vec::new();
    tcp::push(bytes, &mut framed).map_err(|_| Errno::EMSGSIZE)?;
    let whole = connect::converse(&socket, &framed, tcp::MOST, deadline, |got| {
        tcp::messages(got).next().map(|message| question.answer(message))
    })?;
    whole.ok_or(Errno::EPROTO)
}
