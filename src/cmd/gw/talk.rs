//! Connections through a gateway: each target has a thread, which asks it again and again.

use super::course::{Found, What};
use crate::cli::Failure;
use crate::cmd::echo::Pace;
use crate::cmd::health::evidence_of;
use crate::decide::monitor::{Evidence, Fault};
use crate::sys::connect::{self, Via};
use crate::sys::event::Sources;
use crate::sys::http::{Client, NoResponse};
use crate::sys::worker::Stop;
use crate::sys::{self, clock};
use crate::types::net::Endpoint;
use crate::types::status::Status;
use crate::types::target::Target;
use crate::types::time::Tick;
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// As much of a body is read.
const MOST_BODY: u64 = 1024;

/// What a thread asks for.
pub(super) struct Asking {
    pub(super) what: What,
    pub(super) name: String,
    pub(super) to: SocketAddr,
    pub(super) via: Via,
    pub(super) pace: Pace,
    pub(super) max_loss: u8,
    pub(super) wants: Wants,
    pub(super) ca: Option<PathBuf>,
}

/// What an answer of HTTP must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wants {
    /// 200 to 399.
    Page,
    /// An address, and this one where it is known.
    Address(Option<IpAddr>),
}

/// What one connection came to.
enum Came {
    /// Whether it was what was asked for.
    Answer(bool),
    Fault(Fault),
    /// It says nothing of the gateway.
    Nothing(Fault),
    Untold(Failure),
}

/// Asks one target, again and again, until the rest cannot change the verdict.
pub(super) fn talk(asking: &Asking, stop: &Stop) -> Found {
    let mut found = Found::default();
    let client = match client(asking) {
        Ok(client) => client,
        Err(error) => return Found::untold(error),
    };
    let Pace { count, interval, patience, .. } = asking.pace;
    for _ in 0..count {
        let started = clock::boot();
        let came = once(asking, client.as_ref(), started.after(patience), &mut found);
        let took = clock::boot().since(started);
        let shown = &mut found.shown;
        shown.tally.sent += 1;
        match came {
            Came::Answer(is_good) => {
                shown.tally.rtts.push(took);
                if !is_good {
                    shown.bad += 1;
                    shown.fault = Some(Fault::BadAnswer);
                }
            }
            Came::Fault(fault) => shown.fault = Some(fault),
            Came::Nothing(fault) => {
                shown.tally.rtts.push(took);
                found.verdict = Some((Status::Unknown, Some(fault)));
                return found;
            }
            Came::Untold(failure) => {
                shown.tally.sent -= 1;
                found.failure = Some(failure);
                return found;
            }
        }
        if found.verdict.is_some() || found.shown.judge(u32::from(count), asking.max_loss).0 != Status::Unknown {
            return found;
        }
        let mut sources = Sources::default();
        sources.readable(stop.as_fd());
        if sources.wait(Some(started.after(interval))).unwrap_or(true) {
            return found;
        }
    }
    found
}

fn client(asking: &Asking) -> Result<Option<Client>, sys::Error> {
    let What::Get(url) = &asking.what else { return Ok(None) };
    let endpoint = Endpoint { addr: asking.to.ip(), port: None, dev: None };
    Client::new(url.tls, asking.ca.as_deref(), Target::Address(endpoint), asking.via.clone()).map(Some)
}

fn once(asking: &Asking, client: Option<&Client>, deadline: Tick, found: &mut Found) -> Came {
    let (Some(client), What::Get(url)) = (client, &asking.what) else {
        return match connect::first(&[asking.to], &asking.via, deadline) {
            Ok(_) => Came::Answer(true),
            Err(refusals) => refused(asking, refusals.last().map_or(Errno::EHOSTUNREACH, |(_, errno)| *errno)),
        };
    };
    match client.get(url, MOST_BODY, deadline) {
        Ok(response) => match asking.wants {
            Wants::Page => Came::Answer((200..400).contains(&response.status)),
            Wants::Address(expected) => {
                let body = String::from_utf8_lossy(&response.body);
                let said: Option<IpAddr> = body.trim().parse().ok().filter(|_| response.status == 200);
                found.wan_ip = said;
                match said {
                    // A page of an error, or of a portal: the site tells no address today.
                    None => Came::Nothing(Fault::BadAnswer),
                    Some(said) if expected.is_some_and(|expected| expected != said) => {
                        found.verdict = Some((Status::Down, Some(Fault::BadAnswer)));
                        Came::Answer(false)
                    }
                    Some(_) => Came::Answer(true),
                }
            }
        },
        Err(NoResponse::Connection(errno)) => refused(asking, errno),
        Err(NoResponse::Timeout) => Came::Fault(Fault::Timeout),
        Err(NoResponse::Nowhere(error)) => Came::Untold(error.into()),
        // A wrong certificate is an answer that no client takes.
        Err(NoResponse::Wrong(_)) => Came::Fault(Fault::BadAnswer),
    }
}

fn refused(asking: &Asking, errno: Errno) -> Came {
    match evidence_of(errno) {
        Evidence::Bad(fault) => Came::Fault(fault),
        _ => Came::Untold(sys::Error::call("connect to", &asking.name, errno).into()),
    }
}
