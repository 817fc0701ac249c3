//! `gw probe`: does each gateway forward?

use super::Gateways;
use super::course::{Aim, Course, Found, Plan, courses, lasts};
use super::talk::{Asking, Wants, talk};
use super::ways::{Astray, Own, Place, Way, Ways, is_before, place, source_ports};
use crate::cli::args::{self, Changing, flags};
use crate::cli::stream::Woken;
use crate::cli::{Exit, Failure, Process, Reason, Verb, complain};
use crate::cmd::echo::{Pace, Train};
use crate::cmd::watch::{Outlet, exit};
use crate::decide::gw_probe::{Shown, beside_others, most_said};
use crate::decide::monitor::{Fault, Settings};
use crate::decide::tally::Tally;
use crate::record::gw_probe::{Asked, PROBE_COLUMNS, PROBE_SCHEMA, Probed};
use crate::record::{Action, Head};
use crate::sys::connect::{self, Via};
use crate::sys::netlink::Netlink;
use crate::sys::nft::Nft;
use crate::sys::privilege::{self, Capability};
use crate::sys::worker::{Crew, Worker};
use crate::sys::{self, clock, sysctl};
use crate::types::gateway::{Gateway, Marks, Method, priority};
use crate::types::link::Link;
use crate::types::status::Status;
use crate::types::target::Target;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args, ValueEnum};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "probe",
    about: "Tell whether each gateway forwards: every probe leaves by its own gateway, whatever the main table says",
    examples: "gw probe --gateway 192.0.2.1 --gateway 192.0.2.2 --target 203.0.113.1,203.0.113.2 --need 1\n\
               gw probe --gateways gateways.jsonl --method tcp --target 203.0.113.1:53 | gw split    from cron\n\
               gw probe --gateways gateways --method wan-ip --target http://ip.example.org/ --follow | gw split --follow",
    args: flags::<Flags>,
    schemas: &[PROBE_SCHEMA],
    columns: PROBE_COLUMNS,
    run,
};

/// All look-ups of names together.
const LOOK_UP: Duration = Duration::from_secs(4);
/// How much longer than planned a round may take.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
struct Flags {
    #[command(flatten)]
    gateways: Gateways,

    /// What a probe asks for, where the gateway does not say it itself
    #[arg(long, value_name = "METHOD", default_value = "icmp")]
    method: How,

    /// What is asked through each gateway: ADDR (icmp), HOST:PORT (tcp) or URL (http, wan-ip)
    #[arg(long, value_name = "T[,T...]", value_delimiter = ',')]
    target: Vec<String>,

    /// So many of the targets must be up
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1000))]
    need: u16,

    /// Probes of each target; connections end once the rest cannot change the verdict
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// From probe to probe of one target
    #[arg(long, value_name = "D", default_value = "200ms")]
    interval: Span,

    /// From target to target of one gateway, with icmp
    #[arg(long, value_name = "D", default_value = "0s")]
    spacing: Span,

    /// How long each probe waits for its answer
    #[arg(long, value_name = "D", default_value = "1s")]
    response_timeout: Span,

    /// The highest loss of a target that is up, in per cent
    #[arg(long, value_name = "PCT", default_value = "50", value_parser = clap::value_parser!(u8).range(0..=99))]
    max_loss: u8,

    /// Trust the certificates in FILE (PEM) and no others [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// The bits of a mark that are ours
    #[arg(long, value_name = "MASK", default_value_t = Marks::USUAL)]
    mark_mask: Marks,

    /// Go on probing, with a record of each gateway each round; the gateways are read anew
    #[arg(long)]
    follow: bool,

    /// From the start of a round to the start of the next
    #[arg(long, value_name = "D", default_value = "10s", requires = "follow")]
    every: Span,

    /// How long a record holds [default: two rounds and the time that one takes]
    #[arg(long, value_name = "D")]
    valid_for: Option<Span>,

    /// End after D with the status of the last round
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    #[command(flatten)]
    changing: Changing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Echoes
    Icmp,
    /// Connections; a refusal is down at once
    Tcp,
    /// Answers of HTTP, 200 to 399
    Http,
    /// The address that the target sees the question come from
    WanIp,
    /// Nothing: the gateway counts as up
    None,
}

impl How {
    fn method(self) -> Method {
        match self {
            How::Icmp => Method::Icmp,
            How::Tcp => Method::Tcp,
            How::Http => Method::Http,
            How::WanIp => Method::WanIp,
            How::None => Method::None,
        }
    }
}

impl Flags {
    fn plan(&self) -> Plan {
        Plan {
            method: self.method.method(),
            targets: self.target.clone(),
            need: self.need.into(),
            pace: Pace {
                count: self.count,
                interval: self.interval.0,
                spacing: self.spacing.0,
                patience: self.response_timeout.0,
            },
            max_loss: self.max_loss,
        }
    }
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    check(&flags)?;
    let gateways = flags.gateways.all()?;
    if gateways.is_empty() {
        return Err(Failure::usage("no gateway is named (--gateways FILE, or --gateway ADDR)"));
    }
    let plan = flags.plan();
    let courses = courses(&gateways, &plan);
    // What the command line itself gets wrong is no gateway's fault.
    if let Some(failure) = courses.iter().filter_map(|course| course.failure.as_ref()).find(|it| it.exit == Exit::Usage)
    {
        return Err(failure.clone());
    }
    if flags.changing.dry_run {
        return rehearse(&flags, courses, process);
    }
    if courses.iter().any(Course::asks) {
        privilege::need(Capability::NetAdmin, "probe", "gateways")?;
    }
    let (follow, who) = (flags.follow, process.who.clone());
    let end = if follow {
        process.stream_end(flags.duration)
    } else {
        Some(process.deadline(lasts(&courses, plan.pace)).tick())
    };
    let mut outlet = Outlet::new(process, follow)?;
    let mut prober = Prober::new(&flags, plan, who)?;
    let (mut answer, mut rest) = (Exit::Undecided, Vec::new());
    let outcome = if follow {
        prober.rounds(&mut outlet, gateways, end, &mut answer)
    } else {
        rest = courses;
        prober.round(&mut outlet, &mut rest, end)
    };
    // However it ended, nothing stays.
    let removed = prober.clear();
    let outcome = outcome.and_then(|ended| {
        if ended.is_none() && !follow {
            hand_out(removed, &mut rest);
            answer = prober.tell(&mut outlet, rest)?;
        }
        Ok(ended)
    });
    outlet.finish();
    match outcome {
        Ok(Some(signal)) => outlet.die(signal),
        // A reader that left changes no answer.
        Err(failure) if !failure.is_reader_gone() => return Err(failure),
        _ => {}
    }
    Ok(answer)
}

/// Tells which rules and routes would be made for a moment, and asks nobody.
fn rehearse(flags: &Flags, mut courses: Vec<Course>, process: &mut Process) -> Result<Exit, Failure> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    refuse_own(&mut netlink, &mut courses)?;
    let mut answer = Exit::Yes;
    for (number, mut course) in (0..).zip(courses) {
        let mut head = Head::new("gw.probe").about(&course.subject);
        if course.asks() {
            let (addr, dev) = (course.gateway.addr, course.gateway.dev.clone());
            match place(&mut netlink, &links, addr, dev.as_deref()) {
                Ok(Place::On { link, onlink }) => {
                    course.gateway.dev = Some(link.name.clone());
                    head.actions = Way::new(flags.mark_mask, number, addr, link.index, onlink).actions(&links);
                }
                Ok(Place::Down(link)) => course.gateway.dev = Some(link.name.clone()),
                Err(failure) => course.failed(failure),
            }
        }
        if let Some(failure) = course.reason() {
            process.complain(&failure.sentence);
            answer = answer.and(failure.exit);
            head.error = Some(failure.body());
        }
        (head.status, head.dry_run) = (Some(Status::Unknown), true);
        process.out.record(&head, &Probed::new(&course.gateway, course.method.as_str(), course.need))?;
    }
    Ok(answer)
}

/// # Errors
/// A usage that clap cannot see.
fn check(flags: &Flags) -> Result<(), Failure> {
    if flags.follow && flags.changing.dry_run {
        return Err(Failure::usage("--dry-run tells what one round would make: leave out --follow"));
    }
    for (flag, span) in [
        ("--response-timeout", Some(flags.response_timeout)),
        ("--every", Some(flags.every)),
        ("--valid-for", flags.valid_for),
    ] {
        if span.is_some_and(|span| span.0.is_zero()) {
            return Err(Failure::usage(format!("{flag} must be above 0s")));
        }
    }
    Ok(())
}

/// What the last round said of a gateway.
#[derive(Debug)]
struct Told {
    status: Status,
    complaint: Option<String>,
}

/// A run: what it holds, and what it has said.
struct Prober<'a> {
    flags: &'a Flags,
    plan: Plan,
    who: String,
    boot_id: Option<String>,
    netlink: Netlink,
    links: Vec<Link>,
    ways: Ways,
    /// Something may stand in the kernel.
    holds: bool,
    told: BTreeMap<String, Told>,
}

impl<'a> Prober<'a> {
    fn new(flags: &'a Flags, plan: Plan, who: String) -> Result<Self, Failure> {
        Ok(Prober {
            flags,
            plan,
            who,
            boot_id: (!flags.follow).then(clock::boot_id).filter(|id| !id.is_empty()),
            netlink: Netlink::open()?,
            links: Vec::new(),
            ways: Ways::default(),
            holds: false,
            told: BTreeMap::new(),
        })
    }

    /// Goes round after round, until a signal or the end.
    fn rounds(
        &mut self,
        outlet: &mut Outlet<'_>,
        mut gateways: Vec<Gateway>,
        end: Option<Tick>,
        answer: &mut Exit,
    ) -> Result<Option<Signal>, Failure> {
        let mut trouble: Option<String> = None;
        loop {
            let begun = clock::boot();
            let mut courses = courses(&gateways, &self.plan);
            let last = begun.after(lasts(&courses, self.plan.pace)).after(GRACE);
            if let Some(signal) = self.round(outlet, &mut courses, Some(end.map_or(last, |end| end.min(last))))? {
                return Ok(Some(signal));
            }
            if end.is_some_and(|end| clock::boot() >= end) {
                return Ok(None);
            }
            *answer = self.tell(outlet, courses)?;
            let next = begun.after(self.flags.every.0);
            while clock::boot() < next {
                if let Woken::Signal(signal) = outlet.wait(&[], Some(end.map_or(next, |end| end.min(next))))? {
                    return Ok(Some(signal));
                }
                if end.is_some_and(|end| clock::boot() >= end) {
                    return Ok(None);
                }
            }
            // A file that is being written, or is wrong, does not end what goes on.
            match self.flags.gateways.all() {
                Ok(read) if !read.is_empty() => (gateways, trouble) = (read, None),
                Ok(_) => self.complain_once("the list of gateways is empty; going on with the last one", &mut trouble),
                Err(failure) => {
                    self.complain_once(&format!("{failure}; going on with the last that could be read"), &mut trouble);
                }
            }
        }
    }

    fn complain_once(&self, sentence: &str, told: &mut Option<String>) {
        if told.as_deref() != Some(sentence) {
            complain(&self.who, sentence);
            *told = Some(sentence.to_owned());
        }
    }

    /// Asks through all gateways, and finds out what became of it; a signal ends it before.
    ///
    /// What this host refuses leaves those gateways unknown that it was needed for, each with its record.
    fn round(
        &mut self,
        outlet: &mut Outlet<'_>,
        courses: &mut [Course],
        deadline: Option<Tick>,
    ) -> Result<Option<Signal>, Failure> {
        match self.go_round(outlet, courses, deadline) {
            Err(failure) if failure.reason != Reason::WriteFailed => {
                courses.iter_mut().filter(|course| course.asks()).for_each(|course| course.failed(failure.clone()));
                Ok(None)
            }
            outcome => outcome,
        }
    }

    fn go_round(
        &mut self,
        outlet: &mut Outlet<'_>,
        courses: &mut [Course],
        deadline: Option<Tick>,
    ) -> Result<Option<Signal>, Failure> {
        if !courses.iter().any(Course::asks) {
            return Ok(None);
        }
        if let Some(signal) = look_up(outlet, courses, deadline)? {
            return Ok(Some(signal));
        }
        self.lay(courses)?;
        refuse_own(&mut self.netlink, courses)?;
        self.refuse_astray(courses)?;
        if let Some(signal) = self.ask(outlet, courses, deadline)? {
            return Ok(Some(signal));
        }
        compare(courses);
        self.look_again(courses)?;
        Ok(None)
    }

    /// Makes a way for each gateway.
    fn lay(&mut self, courses: &mut [Course]) -> Result<(), Failure> {
        self.links = self.netlink.links()?;
        let subjects: Vec<String> = courses.iter().map(|course| course.subject.clone()).collect();
        self.ways.keep(&subjects);
        let (mut wanted, mut owners) = (Vec::new(), Vec::new());
        for (idx, course) in courses.iter_mut().enumerate().filter(|(_, course)| course.asks()) {
            let dev = course.gateway.dev.clone();
            let (link, onlink) = match place(&mut self.netlink, &self.links, course.gateway.addr, dev.as_deref()) {
                Ok(Place::On { link, onlink }) => (link, onlink),
                Ok(Place::Down(link)) => {
                    course.gateway.dev = Some(link.name.clone());
                    course.verdict = Some((Status::Down, Some(Fault::Unreachable)));
                    continue;
                }
                Err(failure) => {
                    course.failed(failure);
                    continue;
                }
            };
            course.gateway.dev = Some(link.name.clone());
            let number = match self.ways.number(&course.subject) {
                Ok(number) => number,
                Err(error) => {
                    course.failed(error);
                    continue;
                }
            };
            let Some(number) = number else {
                let why = format!("cannot probe {}: other runs use all marks of probes (try again)", course.subject);
                course.failed(Failure::new(Exit::Undecided, Reason::LockHeld, why));
                continue;
            };
            wanted.push(Way::new(self.flags.mark_mask, number, course.gateway.addr, link.index, onlink));
            owners.push(idx);
        }
        self.holds = true;
        let agreed = self.ways.agree(&mut self.netlink, &self.links, &wanted)?;
        for failure in &agreed.left {
            complain(&self.who, &failure.sentence);
        }
        for ((idx, way), failure) in owners.iter().zip(wanted).zip(agreed.failures) {
            courses[*idx].way = Some(way);
            if let Some(failure) = failure {
                courses[*idx].failed(failure);
            }
        }
        hand_out(agreed.removed, courses);
        for (idx, actions) in owners.into_iter().zip(agreed.actions) {
            courses[idx].actions.extend(actions);
        }
        Ok(())
    }

    /// What is asked of each target must leave by the gateway, whatever other rules there are.
    ///
    /// Where nothing could lead one target another way than the rest, the first speaks for all.
    fn refuse_astray(&mut self, courses: &mut [Course]) -> Result<(), Failure> {
        let rules = [self.netlink.rules(false)?, self.netlink.rules(true)?].concat();
        let ports = source_ports(&rules)?;
        let learned = [self.netlink.learned(false), self.netlink.learned(true)];
        for course in courses.iter_mut().filter(|course| course.asks()) {
            let Some(way) = &course.way else { continue };
            let ipv6 = course.gateway.addr.is_ipv6();
            let are_alike = !rules.iter().any(|rule| rule.ipv6 == ipv6 && is_before(rule, way.mark));
            // Where nothing could lead one target elsewhere, the first speaks for the others.
            let odd = learned[usize::from(ipv6)].as_ref().filter(|_| are_alike);
            let open: Vec<(usize, SocketAddr)> = course
                .open()
                .map(|(at, _, to)| (at, to))
                .enumerate()
                .filter(|(number, (_, to))| *number == 0 || odd.is_none_or(|odd| odd.contains(&to.ip())))
                .map(|(_, one)| one)
                .collect();
            for (at, to) in open {
                let Some(astray) = way.astray(&mut self.netlink, course.method, to, &ports)? else { continue };
                let rule = astray.by(&rules, to.is_ipv6(), way.mark);
                let why = match (astray, rule) {
                    (Astray::Redirected(via), _) => format!(
                        "a router has redirected it to {via} (do not believe redirects, see: gw doctor; then: ip route \
                         flush cache)"
                    ),
                    (_, Some(rule)) => format!(
                        "the rule of priority {} is asked before its own and leads it elsewhere (give that rule a priority \
                         above {}, see: gw doctor)",
                        rule.priority,
                        priority::OURS.end()
                    ),
                    (_, None) => {
                        "somebody changed the rules or the table of its probes meanwhile (see: ip rule)".to_owned()
                    }
                };
                let why = format!("cannot probe {} at {}: {why}", course.subject, course.aims[at].name);
                course.aims[at].found.doubt(Failure::new(Exit::Undecided, Reason::Conflict, why));
            }
        }
        Ok(())
    }

    /// Sends all probes and takes in what comes of them.
    fn ask(
        &mut self,
        outlet: &mut Outlet<'_>,
        courses: &mut [Course],
        deadline: Option<Tick>,
    ) -> Result<Option<Signal>, Failure> {
        let mut trains = Vec::new();
        let crew: Crew<(usize, usize, Found)> = Crew::new()?;
        let mut away = 0;
        for (idx, course) in courses.iter_mut().enumerate() {
            let Some(way) = course.way.as_ref().filter(|_| course.asks()) else { continue };
            let via = Via { mark: Some(way.mark), ..Via::default() };
            if course.method == Method::Icmp {
                let (at, targets): (Vec<usize>, Vec<SocketAddr>) = course.open().map(|(at, _, to)| (at, to)).unzip();
                if targets.is_empty() {
                    continue;
                }
                match Train::new(targets, self.plan.pace, &via, &format!("through {}", course.subject)) {
                    Ok(train) => trains.push((idx, at, train)),
                    Err(error) => course.failed(error),
                }
                continue;
            }
            for (at, aim, to) in course.open() {
                let asking = Asking {
                    what: aim.what.clone(),
                    name: aim.name.clone(),
                    to,
                    via: via.clone(),
                    pace: self.plan.pace,
                    max_loss: self.plan.max_loss,
                    wants: match course.method {
                        Method::WanIp => Wants::Address(course.gateway.expect),
                        _ => Wants::Page,
                    },
                    ca: self.flags.ca.clone(),
                };
                crew.start(move |stop| (idx, at, talk(&asking, stop)))?;
                away += 1;
            }
        }
        let (mut ready, mut back) = (vec![false; trains.len()], false);
        let (mut late, mut caught) = (false, None);
        loop {
            for ((_, _, train), ready) in trains.iter_mut().zip(&ready) {
                train.turn(*ready);
            }
            if back {
                for (idx, at, found) in crew.take() {
                    courses[idx].aims[at].found = found;
                    away -= 1;
                }
            }
            let now = clock::boot();
            let live: Vec<usize> = (0..trains.len()).filter(|at| !trains[*at].2.is_over(now)).collect();
            if live.is_empty() && away == 0 {
                break;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                late = true;
                break;
            }
            let (heard, mut fds): (Vec<usize>, Vec<BorrowedFd<'_>>) =
                live.iter().filter_map(|at| Some((at, trains[*at].2.ear()?))).unzip();
            if away > 0 {
                fds.push(crew.as_fd());
            }
            let due = live.iter().filter_map(|at| trains[*at].2.due());
            let came = match outlet.wait(&fds, due.chain(deadline).min())? {
                Woken::Ready(came) => came,
                Woken::Signal(signal) => {
                    caught = Some(signal);
                    break;
                }
            };
            back = came.get(heard.len()) == Some(&true);
            ready.fill(false);
            for (at, came) in heard.into_iter().zip(came) {
                ready[at] = came;
            }
        }
        let now = clock::boot();
        for (idx, at, train) in trains {
            for (at, asked) in at.into_iter().zip(train.end(now)) {
                let aim = &mut courses[idx].aims[at];
                let unsent = asked.unsent.filter(|_| asked.tally.sent < u32::from(self.plan.pace.count));
                aim.found = Found {
                    shown: Shown { tally: asked.tally, bad: 0, fault: asked.refusal.map(|_| Fault::Unreachable) },
                    from: asked.refusal.and_then(|(_, from)| from),
                    failure: unsent.map(|errno| sys::Error::call("ping", &aim.name, errno).into()),
                    ..Found::default()
                };
            }
        }
        if late {
            for course in courses.iter_mut().filter(|course| course.asks()) {
                let why = format!(
                    "cannot probe {}: it did not end in the time given (allow longer with --timeout)",
                    course.subject
                );
                let failure = Failure::new(Exit::Undecided, Reason::TimedOut, why);
                for aim in course.aims.iter_mut().filter(|aim| aim.judge(&self.plan).0 == Status::Unknown) {
                    aim.found.failure.get_or_insert(failure.clone());
                }
            }
        }
        Ok(caught)
    }

    /// Whether what was found out is of the gateways at all.
    fn look_again(&mut self, courses: &mut [Course]) -> Result<(), Failure> {
        self.refuse_astray(courses)?;
        for course in courses.iter_mut().filter(|course| course.asks()) {
            let silent = |aim: &Aim| {
                aim.found.shown.tally.rtts.is_empty() && aim.judge(&self.plan) == (Status::Down, Some(Fault::Timeout))
            };
            if course.aims.iter().all(silent)
                && let Some(failure) = filtered(&mut self.netlink, &self.links, course)?
            {
                course.failed(failure);
            }
        }
        Ok(())
    }

    /// Prints a record of each, and what could not be found out.
    fn tell(&mut self, outlet: &mut Outlet<'_>, courses: Vec<Course>) -> Result<Exit, Failure> {
        let mut answer = Exit::Yes;
        let planned = lasts(&courses, self.plan.pace);
        let valid_for = self.flags.valid_for.map(|span| span.0);
        let valid_for = valid_for.unwrap_or_else(|| Settings::usual_validity(self.flags.every.0, planned));
        let mut told = BTreeMap::new();
        for course in courses {
            let status = course.status(&self.plan);
            let judged = course.judged(&self.plan);
            let failure = course.reason().filter(|_| status == Status::Unknown);
            let before = self.told.get(&course.subject);
            let complaint = failure.map(|failure| failure.sentence.clone());
            if let Some(sentence) = &complaint
                && before.is_none_or(|before| before.complaint.as_ref() != Some(sentence))
            {
                complain(&self.who, sentence);
            }
            answer = answer.and(failure.map_or(exit(status), |failure| failure.exit));
            let mut head = Head::new("gw.probe").about(&course.subject);
            head.status = Some(status);
            head.renewal = before.is_some_and(|before| before.status == status);
            head.valid_for_ms = Some(millis(valid_for));
            head.received_ms = Some(clock::boot().as_ms());
            // It may be written to a file, which outlives the boot.
            head.boot_id.clone_from(&self.boot_id);
            head.error = failure.map(Failure::body);
            if self.flags.changing.explain {
                head.actions = course.actions;
            }
            let asked = course.aims.iter().zip(judged).map(|(aim, (status, fault))| {
                let tally = &aim.found.shown.tally;
                let from = aim.found.from.filter(|_| status != Status::Up);
                Asked::new(&aim.name, status, tally, fault.map(Fault::as_str), from)
            });
            let said: Vec<IpAddr> = course.aims.iter().filter_map(|aim| aim.found.wan_ip).collect();
            let mut probed = Probed::new(&course.gateway, course.method.as_str(), course.need);
            let tallies: Vec<&Tally> = course.aims.iter().map(|aim| &aim.found.shown.tally).collect();
            probed.sum_up(asked.collect(), tallies.into_iter(), most_said(&said));
            outlet.record(head, &probed)?;
            told.insert(course.subject, Told { status, complaint });
        }
        self.told = told;
        Ok(answer)
    }

    /// Removes all that this run has made, and says what.
    fn clear(&mut self) -> Vec<(u32, Action)> {
        if !std::mem::take(&mut self.holds) {
            return Vec::new();
        }
        match self.ways.agree(&mut self.netlink, &self.links, &[]) {
            Ok(agreed) => {
                agreed.left.iter().for_each(|failure| complain(&self.who, &failure.sentence));
                agreed.removed
            }
            Err(error) => {
                complain(&self.who, &format!("{error}: rules and routes of probes stay until the next run"));
                Vec::new()
            }
        }
    }
}

/// A target that no gateway leads to would answer by none at all, or is none.
fn refuse_own(netlink: &mut Netlink, courses: &mut [Course]) -> Result<(), Failure> {
    for ipv6 in [false, true] {
        if !courses.iter().any(|course| course.asks() && course.gateway.addr.is_ipv6() == ipv6) {
            continue;
        }
        let own = Own::look(netlink, ipv6)?;
        for aim in courses.iter_mut().flat_map(|course| &mut course.aims) {
            let address = aim.address.map(|address| address.ip()).filter(|addr| addr.is_ipv6() == ipv6);
            if let Some(why) = address.and_then(|addr| own.objection(addr)) {
                aim.found = Found::untold(Failure::input(format!("cannot probe {}: {why}", aim.name)));
            }
        }
    }
    Ok(())
}

/// Holds what a target has shown by each gateway against what it told by the others.
fn compare(courses: &mut [Course]) {
    let aims = courses.iter().flat_map(|course| &course.aims);
    let told: BTreeSet<String> = aims.filter(|aim| aim.found.wan_ip.is_some()).map(|aim| aim.name.clone()).collect();
    for aim in courses.iter_mut().flat_map(|course| &mut course.aims) {
        aim.found.verdict = aim.found.verdict.map(|own| beside_others(own, told.contains(&aim.name)));
    }
}

/// Gives each removal to the gateway whose table it was about; one of a killed run to the first.
fn hand_out(removed: Vec<(u32, Action)>, courses: &mut [Course]) {
    for (table, action) in removed {
        let is_own = |course: &Course| course.way.as_ref().is_some_and(|way| way.route.table == table);
        let owner = courses.iter().position(is_own).unwrap_or(0);
        if let Some(course) = courses.get_mut(owner) {
            course.actions.push(action);
        }
    }
}

/// Looks the names of targets up, each once, by the system's resolver and beside the loop.
fn look_up(outlet: &mut Outlet<'_>, courses: &mut [Course], deadline: Option<Tick>) -> Result<Option<Signal>, Failure> {
    let asking = || courses.iter().filter(|course| course.asks()).flat_map(|course| &course.aims);
    let mut names: Vec<(Target, u16)> = Vec::new();
    for aim in asking().filter(|aim| aim.address.is_none()) {
        if !names.iter().any(|(host, _)| *host == aim.host) {
            names.push((aim.host.clone(), aim.port));
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    let until = clock::boot().after(LOOK_UP);
    let until = deadline.map_or(until, |deadline| deadline.min(until));
    let mut worker = Worker::new()?;
    worker.start(move |_| {
        let found = names.into_iter().map(|(host, port)| {
            let found = connect::resolve(&host, port, until);
            (host, found)
        });
        found.collect::<Vec<_>>()
    })?;
    let found = loop {
        match outlet.wait(&[worker.as_fd()], Some(until.after(Duration::from_secs(1))))? {
            Woken::Signal(signal) => return Ok(Some(signal)),
            Woken::Ready(_) => {
                if let Some(found) = worker.take() {
                    break found;
                }
                if clock::boot() > until {
                    break Vec::new();
                }
            }
        }
    };
    for course in courses.iter_mut() {
        let ipv6 = course.gateway.addr.is_ipv6();
        for aim in course.aims.iter_mut().filter(|aim| aim.address.is_none()) {
            let fits = |addresses: &Vec<SocketAddr>| addresses.iter().copied().find(|addr| addr.is_ipv6() == ipv6);
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            let failure = match found.iter().find(|(host, _)| *host == aim.host) {
                Some((_, Ok(addresses))) => {
                    aim.address = fits(addresses).map(|found| SocketAddr::new(found.ip(), aim.port));
                    let why = format!("cannot look up {}: it has no {family} address", aim.host);
                    aim.address.is_none().then(|| Failure::new(Exit::Undecided, Reason::NoSuchName, why))
                }
                Some((_, Err(error))) => Some(error.clone().into()),
                None => {
                    let why = format!("cannot look up {}: the resolver did not answer in the time given", aim.host);
                    Some(Failure::new(Exit::Undecided, Reason::TimedOut, why))
                }
            };
            if let Some(failure) = failure {
                aim.found = Found::untold(failure);
            }
        }
    }
    Ok(None)
}

/// Whether this host's own reverse-path filter would have dropped the answers: then silence says nothing.
///
/// Without the mark an answer is looked up as a packet back would be: by the main table.
fn filtered(netlink: &mut Netlink, links: &[Link], course: &Course) -> Result<Option<Failure>, Failure> {
    let (IpAddr::V4(_), Some(dev), Some(way)) = (course.gateway.addr, &course.gateway.dev, &course.way) else {
        return Ok(None);
    };
    let setting = |what: &str, of: &str| -> Result<u32, Failure> {
        let value = sysctl::read(&format!("ipv4/conf/{of}/{what}"))?;
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
    };
    let strict = u32::max(setting("rp_filter", "all")?, setting("rp_filter", dev)?) == 1;
    let Some(ifindex) = links.iter().find(|link| link.name == *dev).map(|link| link.index).filter(|_| strict) else {
        return Ok(None);
    };
    let mut is_back = true;
    for (_, _, to) in course.open() {
        let back = netlink.way_to(to.ip(), 0)?;
        is_back &= back.is_ok_and(|back| back.hops.iter().any(|hop| hop.ifindex == ifindex));
    }
    if is_back {
        return Ok(None);
    }
    // The table of `gw apply` gives an answer its mark back before the filter looks.
    if setting("src_valid_mark", "all")? == 1 || setting("src_valid_mark", dev)? == 1 {
        let deadline = clock::Deadline::after(Duration::from_secs(2));
        let nft = Nft::find("look for", "failover_gw", deadline).ok();
        let table = nft.and_then(|nft| nft.list_text(&["table", "inet", "failover_gw"], "failover_gw").ok().flatten());
        if table.is_some() {
            return Ok(None);
        }
    }
    let gateway = match way.route.hops.first().and_then(|hop| hop.via) {
        Some(gateway) => gateway.to_string(),
        None => course.subject.clone(),
    };
    let why = format!(
        "cannot probe {gateway} on {dev}: strict reverse-path filtering drops the answers, as the main table does not \
         lead to the targets by {dev} (sysctl -w net.ipv4.conf.{dev}.rp_filter=2)"
    );
    Ok(Some(Failure::new(Exit::Undecided, Reason::Conflict, why)))
}
