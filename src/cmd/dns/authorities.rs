//! The authoritative servers of a zone, asked as any client asks them, until each shows a change.

use super::primary::{Primary, Trouble, addresses};
use crate::cli::{Exit, Failure, Reason};
use crate::decide::update::Plan;
use crate::sys::connect::{self, Via};
use crate::sys::{clock, raw};
use crate::types::domain::Domain;
use crate::types::rrset::AddressSet;
use crate::types::target::Target;
use crate::types::time::Tick;
use crate::wire::dns::{Question, tcp};
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const PORT: u16 = 53;
/// How long one server has for its answer before the others are asked again.
const ANSWER: Duration = Duration::from_millis(500);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(50);

/// Who shows it.
pub(super) struct Seen {
    /// By their addresses, in order.
    pub(super) on: Vec<String>,
    /// Who does not, in words.
    pub(super) missing: Vec<String>,
}

/// A server by one of its addresses.
struct Authority {
    server: String,
    address: IpAddr,
    shows: bool,
    /// This host has no way to it.
    is_beyond: bool,
}

/// Waits until all show what is planned, at most until `until`.
///
/// They are those of the zone's NS records, as the primary tells them: one that is hidden is not among them.
pub(super) fn wait(primary: &Primary<'_>, zone: &str, plan: &Plan, until: Tick) -> Result<Seen, Trouble> {
    let (mut all, mut missing) = find(primary, zone, until)?;
    loop {
        for authority in all.iter_mut().filter(|authority| !authority.shows) {
            let limit = clock::boot().after(ANSWER).min(until);
            match sets(authority.address, primary.name, plan, limit) {
                Ok(sets) => {
                    let wanted = plan.about().iter().map(|family| Some(plan.after.of(*family).clone()));
                    authority.shows = sets.into_iter().eq(wanted);
                }
                Err(errno) => {
                    let beyond = [Errno::ENETUNREACH, Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT];
                    authority.is_beyond = beyond.contains(&errno);
                }
            }
        }
        let shown: Vec<String> =
            all.iter().filter(|authority| authority.shows).map(|authority| authority.server.clone()).collect();
        // A host without IPv6 need not see what a server shows over it too.
        let waits =
            |authority: &&Authority| !(authority.shows || (authority.is_beyond && shown.contains(&authority.server)));
        if !all.iter().any(|authority| waits(&authority)) || clock::boot() >= until {
            missing.extend(
                all.iter().filter(waits).map(|authority| format!("{} ({})", authority.server, authority.address)),
            );
            let on = all.iter().filter(|authority| authority.shows).map(|authority| authority.address.to_string());
            return Ok(Seen { on: on.collect(), missing });
        }
        clock::sleep_until(clock::boot().after(PAUSE).min(until));
    }
}

/// The servers by all their addresses; those without one in words.
fn find(primary: &Primary<'_>, zone: &str, until: Tick) -> Result<(Vec<Authority>, Vec<String>), Trouble> {
    let told = primary.ask(&[(zone, "NS")], until)?;
    let names: Vec<String> = told
        .iter()
        .flat_map(|answer| &answer.answers)
        .map(|name| name.trim_end_matches('.').to_ascii_lowercase())
        .collect();
    if names.is_empty() {
        let why = format!("it tells no name server of the zone {zone}, so nobody can be waited for (see --zone)");
        return Err(primary.failure(Exit::Undecided, Reason::NoSuchName, &why).into());
    }
    let questions: Vec<(&str, &str)> =
        names.iter().flat_map(|name| [(name.as_str(), "A"), (name.as_str(), "AAAA")]).collect();
    let answers = primary.ask(&questions, until)?;
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for (name, told) in names.iter().zip(answers.chunks(2)) {
        let mut found: Vec<IpAddr> = told.iter().flat_map(|answer| answer.addresses.clone()).collect();
        // Of another zone, which the primary may know nothing of.
        if found.is_empty() {
            let target = Target::Name { name: name.clone(), port: None };
            let known = connect::resolve(&target, PORT, until).unwrap_or_default();
            found = known.iter().map(SocketAddr::ip).collect();
        }
        if found.is_empty() {
            missing.push(format!("{name} (which has no address)"));
        }
        all.extend(found.into_iter().map(|address| Authority {
            server: name.clone(),
            address,
            shows: false,
            is_beyond: false,
        }));
    }
    all.sort_by_key(|authority| authority.address);
    all.dedup_by_key(|authority| authority.address);
    Ok((all, missing))
}

/// The sets of addresses of the types that a plan is about; none where it is not the server's own word.
fn sets(address: IpAddr, name: &Domain, plan: &Plan, until: Tick) -> Result<Vec<Option<AddressSet>>, Errno> {
    let (mut questions, mut bytes) = (Vec::new(), Vec::new());
    let mut id = u16::from_be_bytes(raw::random().map_err(|_| Errno::EIO)?);
    for family in plan.about() {
        id = id.wrapping_add(1);
        let question = Question::new(name.as_str(), family.as_str(), id).map_err(|_| Errno::EINVAL)?;
        let question = question.without_recursion();
        let message = question.encode().map_err(|_| Errno::EINVAL)?;
        tcp::push(&message, &mut bytes).map_err(|_| Errno::EMSGSIZE)?;
        questions.push(question);
    }
    let socket = connect::one(SocketAddr::new(address, PORT), &Via::default(), until)?;
    connect::converse(&socket, &bytes, questions.len() * tcp::MOST, until, |got| {
        let of = |question: &Question| tcp::messages(got).find_map(|bytes| question.answer(bytes));
        let answers: Option<Vec<_>> = questions.iter().map(of).collect();
        let own = |answer: crate::wire::dns::Answer| {
            let is_told = answer.authoritative && ["NOERROR", "NXDOMAIN"].contains(&answer.rcode.as_str());
            is_told.then(|| addresses(&answer))
        };
        answers.map(|answers| answers.into_iter().map(own).collect())
    })
}

/// Who has not shown it in the time given.
pub(super) fn unseen(primary: &Primary<'_>, missing: &[String]) -> Failure {
    Failure::new(
        Exit::Undecided,
        Reason::TimedOut,
        format!(
            "{} has what was asked on {}, and {} {} not show it yet (are they told of changes? allow longer with \
             --timeout)",
            primary.name,
            primary.target,
            missing.join(", "),
            if missing.len() == 1 { "does" } else { "do" }
        ),
    )
}
