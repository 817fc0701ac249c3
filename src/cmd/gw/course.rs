//! What is asked through each gateway in one round, and what that has shown.

use super::ways::Way;
use crate::cli::Failure;
use crate::cmd::echo::{self, Pace};
use crate::decide::gw_probe::{Shown, verdict};
use crate::decide::monitor::Fault;
use crate::record::Action;
use crate::sys::http::Url;
use crate::types::gateway::{Gateway, Method};
use crate::types::status::Status;
use crate::types::target::Target;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Connections of one round: each is a thread.
const MOST_THREADS: usize = 1000;

/// How gateways are asked that do not say it themselves, and what is borne.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) method: Method,
    pub(super) targets: Vec<String>,
    pub(super) need: usize,
    pub(super) pace: Pace,
    pub(super) max_loss: u8,
}

/// What is asked of a target.
#[derive(Clone, Debug)]
pub(super) enum What {
    Echo,
    Connect,
    Get(Box<Url>),
}

/// One target of a gateway, and what it has shown.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    /// As it stands in records.
    pub(super) name: String,
    pub(super) what: What,
    /// Where it is, by address or by name.
    pub(super) host: Target,
    /// The port of a connection.
    pub(super) port: u16,
    pub(super) address: Option<SocketAddr>,
    pub(super) found: Found,
}

impl Aim {
    /// Its status by what it has shown, and why it is not up.
    pub(super) fn judge(&self, plan: &Plan) -> (Status, Option<Fault>) {
        self.found.verdict.unwrap_or_else(|| self.found.shown.judge(plan.pace.count.into(), plan.max_loss))
    }
}

/// What was found out about a target.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) shown: Shown,
    /// Who said that it is unreachable.
    pub(super) from: Option<IpAddr>,
    /// The address that it saw.
    pub(super) wan_ip: Option<IpAddr>,
    /// A verdict that no figure gives.
    pub(super) verdict: Option<(Status, Option<Fault>)>,
    /// Why it could not be asked.
    pub(super) failure: Option<Failure>,
}

impl Found {
    /// What it has shown is not of the gateway.
    pub(super) fn doubt(&mut self, failure: Failure) {
        self.verdict = Some((Status::Unknown, Some(Fault::Local)));
        self.failure = Some(failure);
    }

    pub(super) fn untold(failure: impl Into<Failure>) -> Self {
        Found {
            verdict: Some((Status::Unknown, Some(Fault::Local))),
            failure: Some(failure.into()),
            ..Found::default()
        }
    }
}

/// One gateway in one round.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) gateway: Gateway,
    pub(super) subject: String,
    pub(super) method: Method,
    pub(super) need: usize,
    pub(super) aims: Vec<Aim>,
    pub(super) way: Option<Way>,
    /// A verdict without asking.
    pub(super) verdict: Option<(Status, Option<Fault>)>,
    pub(super) failure: Option<Failure>,
    pub(super) actions: Vec<Action>,
}

impl Course {
    /// Whether something is to be sent.
    pub(super) fn asks(&self) -> bool {
        self.verdict.is_none() && self.failure.is_none()
    }

    /// The targets that can be asked, or were.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, &Aim, SocketAddr)> {
        self.aims.iter().enumerate().filter_map(|(at, aim)| {
            let is_open = aim.found.verdict.is_none() || aim.found.shown.tally.sent > 0;
            let address = aim.address.filter(|_| is_open)?;
            Some((at, aim, address))
        })
    }

    /// What is said of each target: nothing that a failure of the whole has put in doubt.
    pub(super) fn judged(&self, plan: &Plan) -> Vec<(Status, Option<Fault>)> {
        let judge = |aim: &Aim| match (self.verdict, &self.failure, aim.judge(plan)) {
            (Some(verdict), ..) => verdict,
            (None, Some(_), (_, fault)) => (Status::Unknown, fault.or(Some(Fault::Local))),
            (None, None, judged) => judged,
        };
        self.aims.iter().map(judge).collect()
    }

    pub(super) fn status(&self, plan: &Plan) -> Status {
        match (self.verdict, &self.failure) {
            (Some((status, _)), _) => status,
            (None, Some(_)) => Status::Unknown,
            (None, None) => verdict(self.judged(plan).into_iter().map(|(status, _)| status), self.need),
        }
    }

    /// Why it is unknown, where that was told.
    pub(super) fn reason(&self) -> Option<&Failure> {
        self.failure.as_ref().or_else(|| self.aims.iter().find_map(|aim| aim.found.failure.as_ref()))
    }

    pub(super) fn failed(&mut self, failure: impl Into<Failure>) {
        self.failure.get_or_insert(failure.into());
    }
}

/// What is to be asked through each gateway.
pub(super) fn courses(gateways: &[Gateway], plan: &Plan) -> Vec<Course> {
    let mut courses: Vec<Course> = gateways.iter().map(|gateway| course(gateway, plan)).collect();
    let mut threads = 0;
    for course in &mut courses {
        if course.asks() && course.method != Method::Icmp {
            threads += course.aims.len();
        }
        if threads > MOST_THREADS {
            let why = format!("more than {MOST_THREADS} targets of all gateways are to be connected to at once");
            course.failed(Failure::usage(why));
        }
    }
    courses
}

fn course(gateway: &Gateway, plan: &Plan) -> Course {
    let own = gateway.probe.as_ref();
    let method = own.map_or(plan.method, |probe| probe.method);
    let named = own.map(|probe| &probe.targets).filter(|targets| !targets.is_empty());
    let targets = named.unwrap_or(&plan.targets);
    let need = if method == Method::None { 0 } else { plan.need };
    let mut course = Course {
        gateway: gateway.clone(),
        subject: gateway.subject(),
        method,
        need,
        aims: Vec::new(),
        way: None,
        verdict: (method == Method::None).then_some((Status::Up, None)),
        failure: None,
        actions: Vec::new(),
    };
    if method == Method::None {
        return course;
    }
    // Where the gateway has targets of its own, they are input.
    let wrong = |why: String| match named {
        Some(_) => Failure::input(format!("cannot probe {}: {why}", course.subject)),
        None => Failure::usage(why),
    };
    match aims(targets, method, need, plan.pace.count.into()) {
        Ok(aims) => course.aims = aims,
        Err(why) => course.failure = Some(wrong(why)),
    }
    let ipv6 = gateway.addr.is_ipv6();
    let foreign = course.aims.iter().find(|aim| aim.address.is_some_and(|address| address.is_ipv6() != ipv6));
    if let Some(foreign) = foreign {
        let why = format!("cannot probe {}: the target {} is of the other family", course.subject, foreign.name);
        course.failure = Some(Failure::input(why));
    }
    course
}

fn aims(targets: &[String], method: Method, need: usize, count: usize) -> Result<Vec<Aim>, String> {
    let aims: Vec<Aim> = targets.iter().map(|text| aim(text, method)).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = aims.iter().find(|aim| !seen.insert(&aim.name)) {
        return Err(format!("the target {} is named twice", twice.name));
    }
    if aims.is_empty() {
        return Err("no target is named (--target T, or target=T of the gateway)".to_owned());
    }
    if need > aims.len() {
        return Err(format!("{need} targets must be up and there are {}", aims.len()));
    }
    if method == Method::Icmp && aims.len() * count > echo::MOST {
        return Err(format!("{} targets with {count} echoes each are more than {}", aims.len(), echo::MOST));
    }
    Ok(aims)
}

fn aim(text: &str, method: Method) -> Result<Aim, String> {
    let (what, host, port) = match method {
        Method::Http | Method::WanIp => {
            let url: Url = text.parse()?;
            let (host, usual) = (url.host.clone(), if url.tls { 443 } else { 80 });
            (What::Get(Box::new(url)), host, usual)
        }
        Method::Tcp => {
            let target: Target = text.parse()?;
            let port = target.port().ok_or_else(|| format!("'{text}' names no port (203.0.113.1:53)"))?;
            (What::Connect, target, port)
        }
        Method::Icmp | Method::None => {
            let target: Target = text.parse()?;
            if target.port().is_some() || matches!(target, Target::Name { .. }) {
                return Err(format!("'{text}' is no address: echoes have no port, and a look-up depends on the way"));
            }
            (What::Echo, target, 0)
        }
    };
    if host.dev().is_some() {
        return Err(format!("'{text}' is on a link of this host and behind no gateway"));
    }
    let address = match &host {
        Target::Address(endpoint) => Some(SocketAddr::new(endpoint.addr, endpoint.port.unwrap_or(port))),
        Target::Name { .. } => None,
    };
    let name = if let What::Get(url) = &what { url.shown.clone() } else { host.to_string() };
    Ok(Aim { name, what, host, port, address, found: Found::default() })
}

/// How long a round takes at most by its own plan.
pub(super) fn lasts(courses: &[Course], pace: Pace) -> Duration {
    let of = |course: &Course| match course.method {
        Method::None => Duration::ZERO,
        Method::Icmp => pace.lasts(course.aims.len()),
        // One connection ends before the next begins.
        Method::Tcp | Method::Http | Method::WanIp => {
            let one = pace.interval.max(pace.patience);
            one.saturating_mul(u32::from(pace.count) - 1).saturating_add(pace.patience)
        }
    };
    courses.iter().map(of).max().unwrap_or_default()
}
