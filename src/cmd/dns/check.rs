//! `dns check`: what each server says of a name, where it has that from, and whether all say the same.

use super::ask::Asker;
use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Got, Lines};
use crate::cli::stream::Woken;
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::health::dns::configured_server;
use crate::cmd::watch::Outlet;
use crate::decide::check::{self, Agreement, Class, Known, Look, Said, Verdict};
use crate::decide::monitor::Settings;
use crate::record::Head;
use crate::record::dns::{AGREE_SCHEMA, Agree, Agreed, CHECK_COLUMNS, CHECK_SCHEMA, Check, ExtendedError};
use crate::sys::{clock, connect};
use crate::types::net::Endpoint;
use crate::types::status::Status;
use crate::types::target::Target;
use crate::types::time::{Span, Tick, millis};
use crate::wire::dns::{self, Answer};
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

const PORT: u16 = 53;
/// Names that are asked for at once; each question needs an identifier of its own (RFC 1035 §4.1.1: 16 bits).
const AT_ONCE: usize = 8_192;
/// Addresses of a zone's servers that are asked; no zone has more that matter.
const MOST_AUTHORITIES: usize = 64;
/// How long the servers of a zone are taken to be the same, in a stream.
const SAME_SERVERS: Duration = Duration::from_secs(60);
/// How often a slow reader is looked at.
const DRAIN: Duration = Duration::from_millis(20);

pub(super) const VERB: Verb = Verb {
    name: "check",
    about: "Ask each authority and resolver for a name: is its answer live, cached or stale, and do they agree?",
    examples: "dns check www.example.org --resolver 192.0.2.53,198.51.100.53 --table\n\
               dns check www.example.org --authority 192.0.2.1 --authority 192.0.2.2 --type AAAA --message\n\
               dns check - --authority 192.0.2.1 --resolver 192.0.2.53 < names    # dns check of many at once\n\
               dns check www.example.org --resolver 192.0.2.53 --follow --interval 10s",
    args: flags::<Flags>,
    schemas: &[CHECK_SCHEMA, AGREE_SCHEMA],
    columns: CHECK_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The names; - reads them from standard input, one a line
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// An authoritative server; auto finds the servers of the name's zone and asks each of their addresses
    #[arg(long, value_name = "ADDR[:PORT]|auto,...", value_delimiter = ',', default_value = "auto")]
    authority: Vec<Authority>,

    /// A resolver; the first one also finds the servers for auto [default: none, and the first nameserver of
    /// /etc/resolv.conf for auto]
    #[arg(long, value_name = "ADDR[:PORT],...", value_delimiter = ',')]
    resolver: Vec<Endpoint>,

    /// The type of the records
    #[arg(long = "type", value_name = "TYPE", default_value = "A", value_parser = dns::check_type)]
    qtype: String,

    /// Print the whole message in the words of RFC 8427 too
    #[arg(long)]
    message: bool,

    /// Ask a resolver again after D where one look leaves it open; 0s: do not
    #[arg(long, value_name = "D", default_value = "2100ms")]
    gap: Span,

    /// How long an answer is waited for; the question is sent again after 1s, 3s, 7s, ...
    #[arg(long, value_name = "D", default_value = "5s")]
    response_timeout: Span,

    /// Go on checking, with all records each round, until the end
    #[arg(long, display_order = 100)]
    follow: bool,

    /// From the start of a round to the start of the next; one that takes longer delays it
    #[arg(long, value_name = "D", default_value = "5s", display_order = 101)]
    interval: Span,

    /// End after D with the status of the last round
    #[arg(long = "for", value_name = "D", display_order = 111, requires = "follow")]
    duration: Option<Span>,
}

#[derive(Clone, Debug)]
enum Authority {
    Auto,
    At(Endpoint),
}

impl FromStr for Authority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Authority::Auto);
        }
        text.parse().map(Authority::At).map_err(|why| format!("{why}, nor auto"))
    }
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    for (flag, span) in [("--interval", flags.interval), ("--response-timeout", flags.response_timeout)] {
        if span.0.is_zero() {
            return Err(Failure::usage(format!("{flag} must be above 0s")));
        }
    }
    let (names, malformed) = names(&flags, process)?;
    let servers = Servers::of(&flags)?;
    let patience = flags.response_timeout.0;
    let chunks = u32::try_from(names.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX);
    // Three questions to find the servers, one look and another.
    let planned = (patience * 5).saturating_add(flags.gap.0).saturating_mul(chunks);
    let end = if flags.follow { process.stream_end(flags.duration) } else { Some(process.deadline(planned).tick()) };
    let mut outlet = Outlet::new(process, flags.follow)?;
    let mut checker = Checker {
        flags: &flags,
        servers,
        found: HashMap::new(),
        found_at: None,
        end,
        memory: HashMap::new(),
        last: None,
        this: None,
        cut: false,
    };
    let outcome = checker.rounds(&names, &mut outlet);
    outlet.finish();
    match outcome {
        Ok(None) => {}
        Ok(Some(signal)) => outlet.die(signal),
        // A reader that left changes no answer.
        Err(failure) if failure.is_reader_gone() => {}
        Err(failure) => return Err(failure),
    }
    Ok(malformed.and(checker.last.or(checker.this).unwrap_or(Exit::Undecided)))
}

/// The names in their order, each once, and the status of the lines that are none.
fn names(flags: &Flags, process: &Process) -> Result<(Vec<String>, Exit), Failure> {
    let mut complaints = Complaints::new(&process.who);
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    let mut take = |name: String| {
        if seen.insert(name.clone()) {
            names.push(name);
        }
    };
    if flags.names.iter().filter(|name| *name == "-").count() > 1 {
        return Err(Failure::usage("standard input can be read only once (-)"));
    }
    for name in &flags.names {
        if name != "-" {
            if name.parse::<IpAddr>().is_ok() {
                return Err(Failure::usage(format!(
                    "{name} is an address, not a name: who is asked is --resolver {name}"
                )));
            }
            take(dns::check_name(name).map_err(Failure::usage)?);
            continue;
        }
        let mut lines = Lines::stdin();
        while let Some(line) = lines.next()? {
            match line {
                Got::Line(number, text) if text.trim() == "-" => {
                    complaints.line(number, "'-' is not a name: standard input is read already");
                }
                Got::Line(number, text) => match dns::check_name(text.trim()) {
                    Ok(name) => take(name),
                    Err(why) => complaints.line(number, &why),
                },
                Got::Malformed(number, why) => complaints.line(number, &why),
            }
        }
    }
    Ok((names, complaints.finish()))
}

/// A server that is asked for every name.
#[derive(Clone, Debug)]
struct Server {
    /// As it stands in records.
    name: String,
    to: SocketAddr,
    is_authority: bool,
}

/// Who is asked.
#[derive(Debug)]
struct Servers {
    all: Vec<Server>,
    /// Through whom the authorities of a name are found, where they are.
    finder: Option<SocketAddr>,
}

impl Servers {
    fn of(flags: &Flags) -> Result<Self, Failure> {
        // An address is not looked up.
        let address = |endpoint: &Endpoint| -> Result<SocketAddr, Failure> {
            let found = connect::resolve(&Target::Address(endpoint.clone()), PORT, clock::boot())?;
            found.first().copied().ok_or_else(|| Failure::usage("the server has no address"))
        };
        let mut all: Vec<Server> = Vec::new();
        let mut take = |endpoint: &Endpoint, is_authority| -> Result<(), Failure> {
            let server = Server { name: endpoint.to_string(), to: address(endpoint)?, is_authority };
            if !all.iter().any(|other| (other.to, other.is_authority) == (server.to, is_authority)) {
                all.push(server);
            }
            Ok(())
        };
        let mut auto = false;
        for authority in &flags.authority {
            match authority {
                Authority::Auto => auto = true,
                Authority::At(endpoint) => take(endpoint, true)?,
            }
        }
        for resolver in &flags.resolver {
            take(resolver, false)?;
        }
        let finder = match flags.resolver.first() {
            _ if !auto => None,
            Some(resolver) => Some(address(resolver)?),
            None => connect::resolve(&configured_server()?, PORT, clock::boot())?.first().copied(),
        };
        Ok(Servers { all, finder })
    }
}

/// The servers of a name's zone, and the name to ask them for: what its aliases lead to.
type Found = Result<(Vec<Server>, String), Failure>;

/// One name at one server.
#[derive(Debug)]
struct Asking {
    server: Server,
    /// The name asked for and the questions' numbers: without recursion, and with; of an authority one.
    qname: String,
    peer: usize,
    alone: usize,
    said: Option<usize>,
    before: Option<Look>,
    /// The numbers of the first look, where it was looked at twice.
    first: Option<(usize, Option<usize>)>,
    verdict: Verdict,
}

/// One name.
#[derive(Debug)]
struct Checked<'a> {
    name: &'a str,
    askings: Vec<Asking>,
    /// Why no authority could be found.
    lost: Option<Failure>,
    known: Known,
}

/// What a record says that is not the same each time: class, response code and records.
type Told = (Class, Option<String>, Vec<String>);

/// The zone of a name, and the name to ask its servers for.
type Zone = Result<(String, String), Failure>;

/// What is remembered of a name in a stream.
#[derive(Debug, Default)]
struct Memory {
    known: Known,
    /// By server and role what was said of it.
    said: BTreeMap<(String, &'static str), Told>,
    agree: Option<Agree>,
}

struct Checker<'a> {
    flags: &'a Flags,
    servers: Servers,
    found: HashMap<String, Found>,
    found_at: Option<Tick>,
    end: Option<Tick>,
    memory: HashMap<String, Memory>,
    /// The status of the last whole round, and of what has been told of this one.
    last: Option<Exit>,
    this: Option<Exit>,
    /// The time was over before this one was through.
    cut: bool,
}

impl Checker<'_> {
    /// One round, or one after the other; the signal that ended them.
    fn rounds(&mut self, names: &[String], outlet: &mut Outlet<'_>) -> Result<Option<Signal>, Failure> {
        loop {
            let began = clock::boot();
            self.this = None;
            for names in names.chunks(AT_ONCE) {
                if let Some(signal) = self.round(names, outlet)? {
                    return Ok(Some(signal));
                }
            }
            if self.flags.follow && self.cut {
                return Ok(None);
            }
            self.last = Some(self.this.unwrap_or(Exit::Yes));
            if !self.flags.follow {
                return Ok(None);
            }
            let next = began.after(self.flags.interval.0);
            let next = self.end.map_or(next, |end| next.min(end));
            if let Some(signal) = wait(outlet, next)? {
                return Ok(Some(signal));
            }
            if self.is_over() {
                return Ok(None);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= clock::boot())
    }

    /// A round of a stream that its end cuts short takes nothing back of what the round before has told.
    fn is_left_untold(&self) -> bool {
        self.cut && self.last.is_some()
    }

    /// Asks for names, judges and tells; the signal that ended it.
    fn round(&mut self, names: &[String], outlet: &mut Outlet<'_>) -> Result<Option<Signal>, Failure> {
        let mut asker = Asker::new(self.flags.response_timeout.0)?;
        if let Some(signal) = self.find(names, &mut asker, outlet)? {
            return Ok(Some(signal));
        }
        let mut all = Vec::new();
        for name in names {
            all.push(self.begin(name, &mut asker)?);
        }
        if let Some(signal) = asker.go(outlet, self.end)? {
            return Ok(Some(signal));
        }
        if let Some(signal) = self.ask_apart(&mut all, &mut asker, outlet)? {
            return Ok(Some(signal));
        }
        self.cut |= asker.was_cut();
        if self.is_left_untold() {
            return Ok(None);
        }
        let mut open = Vec::new();
        let mut last_heard = Tick::default();
        for checked in &mut all {
            self.judge(checked, &asker, false);
        }
        if let Some(signal) = self.confirm(&mut all, &mut asker, outlet)? {
            return Ok(Some(signal));
        }
        for checked in all {
            let look_again = |asking: &Asking| asking.verdict.look_again && !self.flags.gap.0.is_zero();
            if checked.askings.iter().any(look_again) {
                for asking in &checked.askings {
                    let heard = asking.said.and_then(|said| asker.reply(said).ok()).map(|reply| reply.heard);
                    last_heard = last_heard.max(heard.unwrap_or_default());
                }
                open.push(checked);
                continue;
            }
            // What is decided is told at once.
            self.tell(&checked, &asker, outlet)?;
        }
        if !open.is_empty() {
            let next = last_heard.after(self.flags.gap.0);
            if let Some(signal) = wait(outlet, self.end.map_or(next, |end| end.min(next)))? {
                return Ok(Some(signal));
            }
            self.cut |= self.is_over();
            if !self.cut
                && let Some(signal) = self.look_again(&mut open, &mut asker, outlet)?
            {
                return Ok(Some(signal));
            }
            if self.is_left_untold() {
                return Ok(None);
            }
            for checked in open {
                self.tell(&checked, &asker, outlet)?;
            }
        }
        Ok(None)
    }

    /// Asks with recursion once more, and by itself, where nothing came of it: a forwarder that has the question
    /// without recursion on its way (dnsmasq) gives what comes to that to both.
    fn ask_apart(
        &self,
        all: &mut [Checked<'_>],
        asker: &mut Asker,
        outlet: &mut Outlet<'_>,
    ) -> Result<Option<Signal>, Failure> {
        let mut asked = Vec::new();
        for asking in all.iter_mut().flat_map(|checked| &mut checked.askings) {
            let alone = said(asker, asking.alone, false);
            let is_merged = |number| match said(asker, number, true) {
                Said::Error("refused") => alone == Said::Error("refused"),
                Said::Referral => alone == Said::Referral,
                Said::Answer(answer) => alone == Said::Referral && answer.is_bare(),
                _ => false,
            };
            if asking.said.is_some_and(is_merged) {
                let again = asker.ask(asking.peer, &asking.qname, &self.flags.qtype)?;
                asked.push((asking, again));
            }
        }
        if asked.is_empty() {
            return Ok(None);
        }
        let signal = asker.go(outlet, self.end)?;
        for (asking, again) in asked {
            if asker.reply(again).is_ok() {
                asking.said = Some(again);
            }
        }
        Ok(signal)
    }

    /// Looks a second time where the first has left it open. Where the time is over before it is answered, the
    /// first counts.
    fn look_again(
        &mut self,
        open: &mut [Checked<'_>],
        asker: &mut Asker,
        outlet: &mut Outlet<'_>,
    ) -> Result<Option<Signal>, Failure> {
        for asking in open.iter_mut().flat_map(|checked| &mut checked.askings) {
            if asking.verdict.look_again {
                asking.before = Some(look(asking, asker));
                asking.first = Some((asking.alone, asking.said));
                let (alone, said) = asker.ask_both(asking.peer, &asking.qname, &self.flags.qtype)?;
                (asking.alone, asking.said) = (alone, Some(said));
            }
        }
        if let Some(signal) = asker.go(outlet, self.end)? {
            return Ok(Some(signal));
        }
        if let Some(signal) = self.ask_apart(open, asker, outlet)? {
            return Ok(Some(signal));
        }
        self.cut |= asker.was_cut();
        for asking in open.iter_mut().flat_map(|checked| &mut checked.askings) {
            let is_cut = |number: usize| asker.reply(number).is_err_and(|errno| errno == Errno::ECANCELED);
            if (is_cut(asking.alone) || asking.said.is_some_and(is_cut))
                && let Some(first) = asking.first.take()
            {
                (asking.alone, asking.said) = first;
                asking.before = None;
            }
        }
        for checked in open.iter_mut() {
            self.judge(checked, asker, true);
        }
        self.confirm(open, asker, outlet)
    }

    /// Finds the authorities of each name: its zone by the SOA, the zone's servers, their addresses.
    fn find(
        &mut self,
        names: &[String],
        asker: &mut Asker,
        outlet: &mut Outlet<'_>,
    ) -> Result<Option<Signal>, Failure> {
        let Some(finder) = self.servers.finder else { return Ok(None) };
        let now = clock::boot();
        if self.found_at.is_none_or(|at| now.since(at) >= SAME_SERVERS) {
            self.found.clear();
            self.found_at = Some(now);
        }
        let peer = asker.peer(finder)?;
        let open: Vec<&String> = names.iter().filter(|name| !matches!(self.found.get(*name), Some(Ok(_)))).collect();
        let ask = |asker: &mut Asker, names: &[String], qtype: &str| -> Result<Vec<usize>, Failure> {
            names.iter().map(|name| asker.ask(peer, name, qtype)).collect()
        };
        // The zone of each name, or of what its aliases lead to.
        let open: Vec<String> = open.into_iter().cloned().collect();
        let soas = ask(asker, &open, "SOA")?;
        if let Some(signal) = asker.go(outlet, self.end)? {
            return Ok(Some(signal));
        }
        let via = format!("through {finder}");
        let mut zones: Vec<(String, Zone)> = Vec::new();
        for (name, number) in open.into_iter().zip(soas) {
            let zone = answered(asker, number, &via, &name, "SOA").and_then(|answer| {
                let zone = answer.soa.as_ref().map(|soa| soa.zone.clone());
                // A zone that has the name too tells of the whole chain.
                let is_in = |zone: &String| {
                    name == *zone || zone == "." || name.strip_suffix(zone).is_some_and(|rest| rest.ends_with('.'))
                };
                let last = answer.aliases.last().filter(|_| !zone.as_ref().is_some_and(is_in));
                let asked = last.unwrap_or(&name).clone();
                let zone =
                    zone.ok_or_else(|| unanswered(&name, "SOA", &via, &format!("{} without a SOA", answer.rcode)));
                zone.map(|zone| (zone, asked))
            });
            zones.push((name, zone));
        }
        // Its servers.
        let mut each: Vec<String> =
            zones.iter().filter_map(|(_, zone)| zone.as_ref().ok()).map(|(zone, _)| zone.clone()).collect();
        each.sort();
        each.dedup();
        let servers = ask(asker, &each, "NS")?;
        if let Some(signal) = asker.go(outlet, self.end)? {
            return Ok(Some(signal));
        }
        let mut servers_of: HashMap<String, Result<Vec<String>, Failure>> = HashMap::new();
        for (zone, number) in each.into_iter().zip(servers) {
            let of = answered(asker, number, &via, &zone, "NS").and_then(|answer| {
                let names: Vec<String> = answer.answers.iter().filter_map(|name| dns::check_name(name).ok()).collect();
                if names.is_empty() { Err(unanswered(&zone, "NS", &via, &answer.rcode)) } else { Ok(names) }
            });
            servers_of.insert(zone, of);
        }
        // Their addresses.
        let mut hosts: Vec<String> = servers_of.values().flatten().flatten().cloned().collect();
        hosts.sort();
        hosts.dedup();
        let v4 = ask(asker, &hosts, "A")?;
        let v6 = ask(asker, &hosts, "AAAA")?;
        if let Some(signal) = asker.go(outlet, self.end)? {
            return Ok(Some(signal));
        }
        let mut addresses: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for (host, numbers) in hosts.into_iter().zip(v4.into_iter().zip(v6)) {
            let of = [numbers.0, numbers.1].into_iter().filter_map(|number| asker.reply(number).ok());
            addresses.insert(host, of.flat_map(|reply| reply.answer.addresses.clone()).collect());
        }
        for (name, zone) in zones {
            let found = zone.and_then(|(zone, asked)| {
                let hosts = servers_of.get(&zone).cloned().unwrap_or_else(|| Ok(Vec::new()))?;
                let mut all: Vec<IpAddr> =
                    hosts.iter().filter_map(|host| addresses.get(host)).flatten().copied().collect();
                all.sort();
                all.dedup();
                all.truncate(MOST_AUTHORITIES);
                if all.is_empty() {
                    return Err(unanswered(&hosts.join(", "), "A, AAAA", &via, "no address"));
                }
                let server =
                    |addr: IpAddr| Server { name: addr.to_string(), to: (addr, PORT).into(), is_authority: true };
                Ok((all.into_iter().map(server).collect(), asked))
            });
            self.found.insert(name, found);
        }
        Ok(None)
    }

    /// Puts all questions of a name in the queues.
    fn begin<'n>(&self, name: &'n str, asker: &mut Asker) -> Result<Checked<'n>, Failure> {
        let mut askings: Vec<Asking> = Vec::new();
        let (found, asked, lost) = match self.found.get(name) {
            None => (&[][..], name, None),
            Some(Ok((servers, asked))) => (servers.as_slice(), asked.as_str(), None),
            Some(Err(failure)) => (&[][..], name, Some(failure.clone())),
        };
        let found = found
            .iter()
            .filter(|server| !self.servers.all.iter().any(|other| other.is_authority && other.to == server.to));
        let of_all = self.servers.all.iter().map(|server| (server, name));
        let (authorities, resolvers): (Vec<_>, Vec<_>) = of_all.partition(|(server, _)| server.is_authority);
        for (server, qname) in authorities.into_iter().chain(found.map(|server| (server, asked))).chain(resolvers) {
            let peer = asker.peer(server.to)?;
            let (alone, said) = if server.is_authority {
                (asker.ask_alone(peer, qname, &self.flags.qtype)?, None)
            } else {
                let (alone, said) = asker.ask_both(peer, qname, &self.flags.qtype)?;
                (alone, Some(said))
            };
            let verdict = check::authority(&Said::Nothing);
            let (server, qname) = (server.clone(), qname.to_owned());
            askings.push(Asking { server, qname, peer, alone, said, before: None, first: None, verdict });
        }
        Ok(Checked { name, askings, lost, known: Known::default() })
    }

    /// Judges what has come: the authorities first, against whom resolvers are held.
    fn judge(&mut self, checked: &mut Checked<'_>, asker: &Asker, again: bool) {
        let mut known = Known::default();
        for asking in checked.askings.iter_mut().filter(|asking| asking.server.is_authority) {
            let said = said(asker, asking.alone, false);
            asking.verdict = check::authority(&said);
            if let (Class::Live, Said::Answer(answer)) = (asking.verdict.class, &said) {
                known.add(answer);
            }
        }
        if self.flags.follow {
            let memory = self.memory.entry(checked.name.to_owned()).or_default();
            known = known.or_ttls_of(&memory.known);
            memory.known = known.clone();
        }
        let of_resolvers = checked.askings.iter_mut().filter(|asking| !asking.server.is_authority);
        // What one look has settled stays.
        for asking in of_resolvers.filter(|asking| !again || asking.before.is_some()) {
            asking.verdict = check::resolver(&look(asking, asker), asking.before.as_ref(), &known);
        }
        checked.known = known;
    }

    /// Asks once more for what is live by an empty cache: does it show what it has?
    fn confirm(
        &mut self,
        all: &mut [Checked<'_>],
        asker: &mut Asker,
        outlet: &mut Outlet<'_>,
    ) -> Result<Option<Signal>, Failure> {
        let now = clock::boot();
        let mut asked = Vec::new();
        for asking in all.iter_mut().flat_map(|checked| &mut checked.askings) {
            if asking.said.is_some() && check::needs_confirming(&asking.verdict, &look(asking, asker), now) {
                let again = asker.ask_alone(asking.peer, &asking.qname, &self.flags.qtype)?;
                asked.push((asking, again));
            }
        }
        if asked.is_empty() {
            return Ok(None);
        }
        let signal = asker.go(outlet, self.end)?;
        self.cut |= asker.was_cut();
        for (asking, again) in asked {
            asking.verdict = if asker.reply(again).is_err_and(|errno| errno == Errno::ECANCELED) {
                check::unconfirmed(asking.verdict.clone())
            } else {
                let last = look(asking, asker);
                check::confirmed(asking.verdict.clone(), &last, &said(asker, again, false))
            };
        }
        Ok(signal)
    }

    /// Writes the records of a name.
    fn tell(&mut self, checked: &Checked<'_>, asker: &Asker, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        let now = clock::boot();
        // A slow reader has until the next round; then older records of a name are left out for newer ones.
        if let Outlet::Stream(pump) = outlet
            && pump.stream.is_waiting()
        {
            let end = now.after(self.flags.interval.0);
            while matches!(outlet, Outlet::Stream(pump) if pump.stream.is_waiting()) && clock::boot() < end {
                if let Woken::Signal(signal) = outlet.wait(&[], Some(clock::boot().after(DRAIN)))? {
                    outlet.die(signal);
                }
            }
        }
        // That there is no such name and that it has none of these records are two things (RFC 8020 §2).
        let mut sets: Vec<(bool, Agreed)> = Vec::new();
        let mut silent = Vec::new();
        let mut by_authority = false;
        let mut records = Vec::new();
        if let Some(failure) = &checked.lost {
            let mut head = Head::new("dns.check").about(checked.name);
            head.error = Some(failure.body());
            let record = self.record("auto".to_owned(), true, Class::Unknown, vec!["no-authority-found"]);
            records.push((head, record));
        }
        for asking in &checked.askings {
            let number = asking.said.unwrap_or(asking.alone);
            let first = asking.first.filter(|_| asking.verdict.of_first).and_then(|(_, said)| said);
            let number = first.unwrap_or(number);
            let verdict = &asking.verdict;
            let mut record = self.record(
                asking.server.name.clone(),
                asking.server.is_authority,
                verdict.class,
                verdict.evidence.clone(),
            );
            let mut head = Head::new("dns.check").about(checked.name);
            match asker.reply(number) {
                Ok(reply) => {
                    let answer = &reply.answer;
                    let said = said(asker, number, asking.said.is_some());
                    record.rcode = Some(answer.rcode.clone());
                    record.aa = Some(answer.authoritative);
                    record.answers.clone_from(&answer.answers);
                    record.rtt_ms = Some(millis(reply.heard.since(reply.asked)));
                    record.ede = answer
                        .ede
                        .iter()
                        .map(|(code, text)| ExtendedError { code: *code, text: text.clone() })
                        .collect();
                    record.message = self.flags.message.then(|| dns::message::json(&reply.bytes)).flatten();
                    match said {
                        Said::Answer(said) => {
                            record.ttl_s = said.ttl_s();
                            if !asking.server.is_authority {
                                record.authority_ttl_s = checked.known.ttl_s(&said);
                            }
                            let left = verdict.at_most.map(|most| most.saturating_sub(now.since(reply.heard)));
                            record.stale_at_most_ms = left.map(millis);
                            if said.whole {
                                by_authority |= asking.server.is_authority && verdict.class == Class::Live;
                                let server = asking.server.name.clone();
                                let same = sets
                                    .iter_mut()
                                    .find(|(no_name, set)| (*no_name, &set.answers) == (said.no_name, &said.records));
                                match same {
                                    Some((_, set)) => set.servers.push(server),
                                    None => sets
                                        .push((said.no_name, Agreed { answers: said.records, servers: vec![server] })),
                                }
                            }
                        }
                        _ => silent.push(asking.server.name.clone()),
                    }
                }
                Err(errno) => {
                    silent.push(asking.server.name.clone());
                    head.error = Some(self.unheard(asking, asker.sent(number), errno).body());
                }
            }
            if self.flags.follow {
                let said = (verdict.class, record.rcode.clone(), record.answers.clone());
                let memory = self.memory.entry(checked.name.to_owned()).or_default();
                let before = memory.said.insert((record.server.clone(), record.role), said.clone());
                head.renewal = before == Some(said);
            }
            records.push((head, record));
        }
        let agreement = check::agreement(sets.len(), by_authority);
        let agree = Agree { sets: sets.into_iter().map(|(_, set)| set).collect(), silent };
        let mut head = Head::new("dns.agree").about(checked.name);
        let (status, exit) = match agreement {
            Agreement::Agree => (Status::Up, Exit::Yes),
            Agreement::Disagree => (Status::Down, Exit::No),
            Agreement::Undecided => (Status::Unknown, Exit::Undecided),
        };
        head.status = Some(status);
        // Another look would have told more, and there was no time for it.
        let left_open = |asking: &Asking| asking.verdict.look_again && asking.verdict.class == Class::Unknown;
        let is_open = self.cut && !self.flags.follow && checked.askings.iter().any(left_open);
        let exit = if is_open && exit == Exit::Yes { Exit::Undecided } else { exit };
        head.received_ms = Some(now.as_ms());
        if self.flags.follow {
            let (interval, patience) = (self.flags.interval.0, self.flags.response_timeout.0);
            // A round takes a look, the gap and another look.
            head.valid_for_ms = Some(millis(Settings::usual_validity(interval, 2 * patience + self.flags.gap.0)));
            let memory = self.memory.entry(checked.name.to_owned()).or_default();
            head.renewal = memory.agree.as_ref() == Some(&agree);
            memory.agree = Some(agree.clone());
        }
        // A reader that leaves in the middle changes no answer.
        self.this = Some(self.this.map_or(exit, |this| this.and(exit)));
        for (head, record) in records {
            outlet.record(head, &record)?;
        }
        outlet.record(head, &agree)
    }

    fn record(&self, server: String, is_authority: bool, class: Class, evidence: Vec<&'static str>) -> Check {
        Check {
            server,
            role: if is_authority { "authority" } else { "resolver" },
            class: class.as_str(),
            evidence,
            qtype: self.flags.qtype.clone(),
            rcode: None,
            aa: None,
            answers: Vec::new(),
            ttl_s: None,
            authority_ttl_s: None,
            stale_at_most_ms: None,
            rtt_ms: None,
            ede: Vec::new(),
            message: None,
        }
    }

    /// Why a server has not answered.
    fn unheard(&self, asking: &Asking, (copies, over_tcp): (u32, bool), errno: Errno) -> Failure {
        let (why, mend) = match errno {
            Errno::ECANCELED => {
                let end = if self.flags.duration.is_some() { "--for" } else { "--timeout" };
                (format!("no answer before {end} was over ({copies} sent)"), "allow longer, or is it down?")
            }
            Errno::EMFILE | Errno::ENFILE => (errno.desc().to_owned(), "allow more with: ulimit -n"),
            Errno::EPROTO => ("what came over TCP is no answer".to_owned(), "ask it with: dig +tcp"),
            Errno::EBADMSG => ("what came is no answer to the question".to_owned(), "ask it with: dig +qr"),
            errno if over_tcp => {
                let why = match errno {
                    Errno::ETIMEDOUT => format!("none came over TCP within {}", self.flags.response_timeout),
                    Errno::ECONNREFUSED => "nobody listens there for TCP".to_owned(),
                    Errno::ECONNRESET | Errno::EPIPE => "it ends the connection over TCP".to_owned(),
                    errno => format!("over TCP: {}", errno.desc()),
                };
                (format!("its answer does not fit UDP, and {why}"), "is TCP let through to it? ask it with: dig +tcp")
            }
            Errno::ETIMEDOUT => (
                format!("no answer within {} ({copies} sent)", self.flags.response_timeout),
                "is it up, and let through? allow longer with --response-timeout",
            ),
            Errno::ECONNREFUSED => ("nobody listens there".to_owned(), "is the server started, and the port right?"),
            Errno::ENETUNREACH | Errno::EHOSTUNREACH => (errno.desc().to_owned(), "see: ip route get"),
            errno => (errno.desc().to_owned(), "see: ip route get"),
        };
        let (server, qname, qtype) = (&asking.server.name, &asking.qname, &self.flags.qtype);
        let errno = if errno == Errno::ECANCELED { Errno::ETIMEDOUT } else { errno };
        let reason = if errno == Errno::ETIMEDOUT { Reason::TimedOut } else { Reason::Refused };
        Failure {
            errno: Some(errno),
            ..Failure::new(Exit::Undecided, reason, format!("cannot ask {server} for {qname} {qtype}: {why} ({mend})"))
        }
    }
}

/// Waits for a point; the signal that came before.
fn wait(outlet: &mut Outlet<'_>, until: Tick) -> Result<Option<Signal>, Failure> {
    while clock::boot() < until {
        if let Woken::Signal(signal) = outlet.wait(&[], Some(until))? {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}

/// An answer on the way to the authorities.
fn answered<'a>(asker: &'a Asker, number: usize, via: &str, name: &str, qtype: &str) -> Result<&'a Answer, Failure> {
    match asker.reply(number) {
        Ok(reply) => Ok(&reply.answer),
        Err(Errno::ECANCELED) => Err(unanswered(name, qtype, via, "the time was over")),
        Err(errno) => Err(unanswered(name, qtype, via, errno.desc())),
    }
}

fn unanswered(name: &str, qtype: &str, via: &str, why: &str) -> Failure {
    let sentence = format!(
        "cannot find the authorities of the zone: {name} {qtype} {via}: {why} (name them with --authority ADDR)"
    );
    Failure::new(Exit::Undecided, Reason::NoSuchName, sentence)
}

/// What came back to a question, as it is judged.
fn said(asker: &Asker, number: usize, recursion: bool) -> Said {
    let Ok(reply) = asker.reply(number) else { return Said::Nothing };
    let answer = &reply.answer;
    let has_records = !answer.answers.is_empty();
    let said = |negative, whole| {
        Said::Answer(check::Answer {
            links: answer.links.clone(),
            negative,
            no_name: answer.rcode == "NXDOMAIN",
            whole,
            records: answer.answers.clone(),
            authoritative: answer.authoritative,
        })
    };
    let none = answer.soa.is_some() || (answer.servers.is_empty() && (answer.authoritative || recursion));
    match answer.rcode.as_str() {
        "NOERROR" if has_records => said(false, true),
        "NXDOMAIN" => said(answer.soa.is_some(), true),
        "NOERROR" if !answer.aliases.is_empty() && answer.soa.is_none() => said(false, false),
        "NOERROR" if none => said(answer.soa.is_some(), true),
        "NOERROR" => Said::Referral,
        other => Said::Error(check::slug(other)),
    }
}

/// What a resolver said to both questions.
fn look(asking: &Asking, asker: &Asker) -> Look {
    let number = asking.said.unwrap_or(asking.alone);
    let (reply, alone) = (asker.reply(number), asker.reply(asking.alone));
    let late = matches!((&reply, &alone), (Ok(reply), Ok(alone)) if alone.heard > reply.heard);
    let said_alone = if late { Said::Late } else { said(asker, asking.alone, false) };
    // What is beside a refusal is of the refusal.
    let alone = alone.as_ref().ok().filter(|_| matches!(said_alone, Said::Answer(_)));
    let errors = [reply.as_ref().ok(), alone].into_iter().flatten();
    let errors = errors.flat_map(|reply| reply.answer.ede.iter().map(|(code, _)| *code)).collect();
    Look {
        alone: said_alone,
        said: said(asker, number, true),
        retried: reply.as_ref().is_ok_and(|reply| reply.copies > 1),
        errors,
        asked: reply.as_ref().map(|reply| reply.asked).unwrap_or_default(),
        heard: reply.as_ref().map(|reply| reply.heard).unwrap_or_default(),
    }
}
