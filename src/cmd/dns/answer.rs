//! `dns answer`: verdicts about sites in, the addresses of a name out.

use super::Sites;
use crate::cli::args::{self, flags};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::decider::{self, Concluded, Decider, Deciding, Step};
use crate::cmd::memory::Memory;
use crate::cmd::verdicts::Verdicts;
use crate::decide::answer::{self, AllDown, Policy, Settings, Turn, Unknown};
use crate::record::Head;
use crate::record::dns::{ANSWER_COLUMNS, ANSWER_SCHEMA, Answer, Member, Remembered};
use crate::record::health::verdict;
use crate::record::line::Line;
use crate::sys::clock;
use crate::sys::state::{folder, standby_of};
use crate::types::domain::Domain;
use crate::types::rrset::Family;
use crate::types::site::Site;
use crate::types::status::Status;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

pub(super) const VERB: Verb = Verb {
    name: "answer",
    about: "Conclude from verdicts about sites which addresses a name should have, with the reason for each",
    examples: "{ health tcp 192.0.2.1:443 --name paris & health tcp 198.51.100.1:443 --name rome & wait; } | \
               dns answer www.example.org --site paris,192.0.2.1 --site rome,198.51.100.1 --all-down empty\n\
               ... | dns answer www.example.org --sites sites --policy priority --state answer.json --table\n\
               ... | dns answer www.example.org --sites sites --policy nearest --view emea --order paris,rome --follow",
    args: flags::<Flags>,
    schemas: &[ANSWER_SCHEMA],
    columns: ANSWER_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The name
    #[arg(value_name = "NAME")]
    name: Domain,

    #[command(flatten)]
    sites: Sites,

    /// The addresses that are asked for
    #[arg(long = "type", value_name = "TYPE", default_value = "A", ignore_case = true)]
    qtype: Type,

    /// How sites are chosen among those that are up
    #[arg(long, value_name = "HOW", default_value = "round-robin")]
    policy: Choice,

    /// Of round robin one site alone, the next at each conclusion
    #[arg(long)]
    one: bool,

    /// What hash chooses by: a client's network, a view
    #[arg(long, value_name = "TEXT", default_value = "")]
    key: String,

    /// Of nearest: the sites in the order of the view; those that are not named come last
    #[arg(long, value_name = "SITE,...", value_delimiter = ',')]
    order: Vec<String>,

    /// The view that the answer is for
    #[arg(long, value_name = "NAME")]
    view: Option<String>,

    /// A tier serves while so much of its weight is up, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = args::share)]
    threshold: f64,

    /// What is answered when no site serves
    #[arg(long, value_name = "WHAT", default_value = "all")]
    all_down: Instead,

    /// The addresses of --all-down backup
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', required_if_eq("all_down", "backup"))]
    backup: Vec<IpAddr>,

    /// What a site counts as of which nothing is known
    #[arg(long, value_name = "AS", default_value = "hold")]
    unknown: CountAs,

    /// How long the answer may be kept, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = super::seconds)]
    ttl: u32,

    /// While FILE.SITE (by default standby.SITE) is there, that site is left out where another is up
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    /// Once, take a record without arrival by its own time, at most so far ahead of ours
    #[arg(long, value_name = "D", default_value = "2s")]
    max_skew: Span,

    /// In a stream, conclude nothing before every site was heard of, but for at most D: until then what stands in the
    /// DNS goes on
    #[arg(long, value_name = "D", default_value = "0s")]
    first_within: Span,

    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Type {
    /// IPv4
    #[value(name = "A")]
    A,
    /// IPv6
    #[value(name = "AAAA")]
    Aaaa,
}

impl Type {
    pub(super) fn family(self) -> Family {
        match self {
            Type::A => Family::A,
            Type::Aaaa => Family::Aaaa,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        self.family().as_str()
    }

    pub(super) fn is_of(self, address: IpAddr) -> bool {
        Family::of(address) == self.family()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// All of them: the server does the rotating
    RoundRobin,
    /// The first in the order given
    Priority,
    /// One, the more often the higher its weight; an even rotation with --state or --follow
    Weighted,
    /// One by the hash of --key: a site's death moves its own keys alone
    Hash,
    /// The first of --order
    Nearest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Instead {
    /// Every address: one may be right
    All,
    /// None; the name stays, without an address
    Empty,
    /// Those of --backup
    Backup,
    /// Every address of the first tier
    FirstTier,
    /// The last answer that a site served
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CountAs {
    /// As when it was known last
    Hold,
    /// Down
    Down,
    /// Up
    Up,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    let sites = flags.sites.all()?;
    if let Some(name) = flags.order.iter().find(|name| !sites.iter().any(|site| site.name == **name)) {
        return Err(Failure::usage(format!("--order names {name}, which is no site")));
    }
    if let Some(address) = flags.backup.iter().find(|address| !flags.qtype.is_of(**address)) {
        return Err(Failure::usage(format!("--backup {address} is no address of the type {}", flags.qtype.as_str())));
    }
    if !sites.iter().any(|site| site.addresses.iter().any(|address| flags.qtype.is_of(*address))) {
        return Err(Failure::usage(format!("no site has an address of the type {}", flags.qtype.as_str())));
    }
    let memory = flags.deciding.memory("dns-answer", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut answerer = Answerer::new(&flags, sites, memory, process)?;
    decider::run(&mut answerer, &flags.deciding, process)
}

/// So many subjects that are no site are told.
const STRANGERS: usize = 5;

struct Answerer<'a> {
    flags: &'a Flags,
    settings: Settings,
    sites: Vec<Site>,
    verdicts: Verdicts,
    remembered: Remembered,
    kept: Remembered,
    memory: Option<Memory>,
    begun: Tick,
    /// Whom verdicts were about that are no site.
    strangers: BTreeSet<String>,
    /// What a stream said last, how it counted, and when.
    said: Option<(Answer, Exit)>,
    said_at: Tick,
}

impl<'a> Answerer<'a> {
    fn new(flags: &'a Flags, sites: Vec<Site>, memory: Option<Memory>, process: &Process) -> Result<Self, Failure> {
        let kept: Option<Remembered> = match &memory {
            Some(memory) => memory.read(process, |kept: Remembered| turn(&kept).map(|_| kept))?,
            None => None,
        };
        let kept = kept.unwrap_or_default();
        let settings = Settings {
            policy: match flags.policy {
                Choice::RoundRobin => Policy::RoundRobin,
                Choice::Priority => Policy::Priority,
                Choice::Weighted => Policy::Weighted,
                Choice::Hash => Policy::Hash,
                Choice::Nearest => Policy::Nearest,
            },
            one: flags.one,
            threshold: flags.threshold,
            all_down: match flags.all_down {
                Instead::All => AllDown::All,
                Instead::Empty => AllDown::Empty,
                Instead::Backup => AllDown::Backup(flags.backup.clone()),
                Instead::FirstTier => AllDown::FirstTier,
                Instead::Keep => AllDown::Keep,
            },
            unknown: match flags.unknown {
                CountAs::Hold => Unknown::Hold,
                CountAs::Down => Unknown::Down,
                CountAs::Up => Unknown::Up,
            },
            key: flags.key.clone(),
            order: flags.order.clone(),
        };
        Ok(Answerer {
            flags,
            settings,
            sites,
            verdicts: Verdicts::new(process, flags.deciding.follow, flags.max_skew),
            remembered: kept.clone(),
            kept,
            memory,
            begun: clock::boot(),
            strangers: BTreeSet::new(),
            said: None,
            said_at: clock::boot(),
        })
    }

    /// What is to be decided on, with what has become known of each site noted.
    fn look(&mut self, now: Tick) -> Result<Vec<answer::Site>, Failure> {
        let mut all = Vec::new();
        for site in &self.sites {
            let status = self.verdicts.status(&site.name, now);
            // One that has expired since this run began is later than what an earlier run remembered.
            if let Some(last) = self.verdicts.last(&site.name, self.begun) {
                self.remembered.up.insert(site.name.clone(), last == Status::Up);
            }
            let before = self.remembered.up.get(&site.name).map(|up| if *up { Status::Up } else { Status::Down });
            if status != Status::Unknown {
                self.remembered.up.insert(site.name.clone(), status == Status::Up);
            }
            let of_type = site.addresses.iter().filter(|address| self.flags.qtype.is_of(**address));
            all.push(answer::Site {
                name: site.name.clone(),
                addresses: of_type.copied().collect(),
                weight: site.weight.0,
                tier: site.tier,
                status,
                before,
                rests: standby_of(self.flags.standby.as_deref(), &site.name)?.is_some(),
            });
        }
        Ok(all)
    }

    /// Concludes; what comes of it is remembered where it is printed.
    fn conclude(&mut self, now: Tick) -> Result<(Answer, Exit, Turn), Failure> {
        let sites = self.look(now)?;
        let mut turn = turn(&self.remembered).unwrap_or_default();
        let told = answer::answer(&sites, &self.settings, &mut turn);
        let mut members = Vec::new();
        for (site, member) in sites.iter().zip(&told.members) {
            let of = |address: Option<&IpAddr>| Member {
                site: site.name.clone(),
                address: address.map(ToString::to_string),
                status: site.status.as_str(),
                counted_as: member.counted_as.as_str(),
                chosen: member.chosen,
                why: member.why.clone(),
            };
            members.extend(site.addresses.iter().map(|address| of(Some(address))));
            if site.addresses.is_empty() {
                members.push(of(None));
            }
        }
        let is_known = sites.iter().any(|site| site.status != Status::Unknown || site.before.is_some());
        let exit = match &told.addresses {
            Some(_) => Exit::Yes,
            None if is_known => Exit::No,
            None => Exit::Undecided,
        };
        let answers: Vec<String> = told.addresses.iter().flatten().map(ToString::to_string).collect();
        let answer = Answer {
            qtype: self.flags.qtype.as_str(),
            view: self.flags.view.clone(),
            ttl_s: self.flags.ttl,
            policy: self.settings.policy.as_str(),
            fallback: told.fallback,
            empty: told.addresses.as_ref().is_some_and(Vec::is_empty),
            answers,
            members,
        };
        Ok((answer, exit, turn))
    }

    fn keep(&mut self, turn: Turn) -> Result<(), Failure> {
        self.remembered.last = turn.last;
        self.remembered.owed = turn.owed.into_iter().collect();
        self.remembered.answer = turn.answer.map(|all| all.iter().map(ToString::to_string).collect());
        if let Some(memory) = &self.memory {
            memory.keep(&mut self.kept, &self.remembered)?;
        }
        Ok(())
    }

    fn head(&self, now: Tick, renewal: bool) -> Head {
        let mut head = Head::new("dns.answer").about(self.flags.name.as_str());
        head.received_ms = Some(now.as_ms());
        head.renewal = renewal;
        // It may be written to a file, which outlives the boot.
        head.boot_id = (!self.flags.deciding.follow).then(clock::boot_id).filter(|id| !id.is_empty());
        head.valid_for_ms = self.flags.deciding.follow.then(|| millis(self.flags.deciding.renew.0 * 3));
        head
    }
}

/// Where a rotation stands.
fn turn(kept: &Remembered) -> Result<Turn, String> {
    let address = |text: &String| text.parse().map_err(|_| format!("'{text}' is not an address"));
    Ok(Turn {
        last: kept.last.clone(),
        owed: kept.owed.iter().map(|(site, owed)| (site.clone(), *owed)).collect(),
        answer: kept.answer.as_ref().map(|all| all.iter().map(address).collect()).transpose()?,
    })
}

impl Decider for Answerer<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let Some(said) = verdict(&Line::parse(text)?, self.verdicts.node())? else { return Ok(false) };
        // By its name, or by an address of it.
        let is_of = |site: &&Site| {
            site.name == said.subject || site.addresses.iter().any(|address| address.to_string() == said.subject)
        };
        let Some(site) = self.sites.iter().find(is_of).map(|site| site.name.clone()) else {
            if self.strangers.len() < STRANGERS {
                self.strangers.insert(said.subject);
            }
            return Ok(false);
        };
        self.verdicts.take(&site, &said, now)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        let now = clock::boot();
        let (answer, exit, turn) = self.conclude(now)?;
        process.out.record(&self.head(now, false), &answer)?;
        self.keep(turn)?;
        if exit == Exit::Undecided && !self.strangers.is_empty() {
            let whom: Vec<&str> = self.strangers.iter().map(String::as_str).collect();
            let sites: Vec<&str> = self.sites.iter().map(|site| site.name.as_str()).collect();
            process.complain(&format!(
                "no verdict is about a site of {}: there are some about {}, and the sites are {} (see: health --name)",
                self.flags.name,
                whom.join(", "),
                sites.join(", ")
            ));
        }
        Ok(exit)
    }

    fn watched(&self) -> Vec<PathBuf> {
        vec![self.flags.standby.clone().unwrap_or_else(|| folder().join("standby"))]
    }

    fn first(&self) -> Option<Tick> {
        Some(self.said_at.after(self.flags.deciding.renew.0))
    }

    fn step(&mut self, step: Step, _: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let (now, renew) = (step.now, self.flags.deciding.renew.0);
        let patience = self.begun.after(self.flags.first_within.0);
        if self.said.is_none() && now < patience {
            let sites = self.look(now)?;
            if sites.iter().any(|site| site.status == Status::Unknown && site.before.is_none()) {
                return Ok(Concluded { exit: Exit::Undecided, wake: Some(patience) });
            }
        }
        let (answer, exit, turn) = self.conclude(now)?;
        // A rotation turns with the verdicts, not with each line of input.
        let is_turn = |said: &Answer| {
            said.members.iter().map(|one| one.counted_as).ne(answer.members.iter().map(|one| one.counted_as))
        };
        let news = self
            .said
            .as_ref()
            .is_none_or(|(said, was)| is_turn(said) || *was != exit || said.fallback != answer.fallback);
        if news {
            stream.record(self.head(now, false), &answer)?;
            self.keep(turn)?;
            self.said = Some((answer, exit));
            self.said_at = now;
        } else if (step.renewal || now.since(self.said_at) >= renew)
            && let Some((said, _)) = &self.said
        {
            stream.record(self.head(now, true), said)?;
            self.said_at = now;
        }
        let ends = self.verdicts.ends(now);
        Ok(Concluded { exit, wake: ends.chain([self.said_at.after(renew)]).min() })
    }

    /// What stands in the DNS goes on.
    fn last_word(&mut self, _: &mut Stream) -> Result<(), Failure> {
        Ok(())
    }
}
