//! `health http`: does the server answer as it should?

use super::{Check, Monitoring, Usual, Way, failed, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::watch::Probed;
use crate::decide::monitor::{Evidence, Fault};
use crate::record::health::{HTTP_COLUMNS, HTTP_SCHEMA, Http};
use crate::sys::clock;
use crate::sys::http::{Client, NoResponse, Url};
use crate::sys::worker::Stop;
use crate::types::target::Target;
use crate::types::time::{Tick, millis};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// As much of a body is searched; more is left unread.
const MOST_BODY: u64 = 64 * 1024;

pub(super) const VERB: Verb = Verb {
    name: "http",
    about: "Tell whether a server answers as it should; redirects are answers, and not followed",
    examples: "health http http://192.0.2.10/health\n\
               health http https://www.example.org/ --expect-status 200 --match '\"ok\"'\n\
               health http https://www.example.org/ --connect 192.0.2.10 --ca /etc/ssl/our-ca.pem --follow",
    args: flags::<Flags>,
    schemas: &[HTTP_SCHEMA],
    columns: HTTP_COLUMNS,
    run: |matches, process| {
        let flags: Flags = args::read(matches)?;
        let outcome = run(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

#[derive(Args, Debug)]
struct Flags {
    /// What to get
    #[arg(value_name = "URL")]
    url: String,

    /// The statuses that are good: numbers and ranges
    #[arg(long, value_name = "N[-N],...", default_value = "200-399", value_delimiter = ',', value_parser = statuses)]
    expect_status: Vec<(u16, u16)>,

    /// The first 64 KiB of the answer must have TEXT in it
    #[arg(long = "match", value_name = "TEXT")]
    text: Option<String>,

    /// Connect to this server, whatever the URL's name means; the name stays in the request and in TLS
    #[arg(long, value_name = "HOST[:PORT]")]
    connect: Option<Target>,

    /// Trust the certificates in FILE (PEM) and no others [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    #[command(flatten)]
    way: Way,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if (100..=999).contains(&first) && first <= last && last <= 999 => Ok((first, last)),
        _ => Err(format!("'{text}' is not a status or a range of them (200, 200-399)")),
    }
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    let url: Url = flags.url.parse().map_err(Failure::usage)?;
    let shown = url.shown.clone();
    let target = flags.connect.as_ref().unwrap_or(&url.host);
    let via = flags.way.via(target)?;
    let client = Client::new(url.tls, flags.ca.as_deref(), target.clone(), via.clone())?;
    let (text, good) = (flags.text.clone(), flags.expect_status.clone());
    let probe = move |deadline: Tick, _: &Stop| {
        let started = clock::boot();
        let mut body =
            Http { url: url.shown.clone(), http_status: None, response_ms: None, matched: None, reason: None };
        match client.get(&url, MOST_BODY, deadline) {
            Ok(response) => {
                body.http_status = Some(response.status);
                body.response_ms = Some(millis(clock::boot().since(started)));
                body.matched =
                    text.as_ref().map(|text| memchr::memmem::find(&response.body, text.as_bytes()).is_some());
                let fits = good.iter().any(|(first, last)| (*first..=*last).contains(&response.status));
                let well = fits && body.matched != Some(false);
                Probed::new(if well { Evidence::Good } else { Evidence::Bad(Fault::BadAnswer) }, body)
            }
            Err(NoResponse::Connection(errno)) => failed(errno, "get", &url.shown, &via, body),
            Err(NoResponse::Timeout) => Probed::new(Evidence::Bad(Fault::Timeout), body),
            Err(NoResponse::Nowhere(error)) => Probed::untold(error),
            // A wrong certificate is an answer that no client takes.
            Err(NoResponse::Wrong(why)) => {
                body.reason = Some(why);
                Probed::new(Evidence::Bad(Fault::BadAnswer), body)
            }
        }
    };
    let check = Check {
        kind: "health.http",
        doing: format!("get {shown}"),
        subject: shown,
        usual: Usual::Network,
        answers_in: None,
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_read() {
        for (text, read) in
            [("200", Some((200, 200))), ("200-399", Some((200, 399))), ("399-200", None), ("99", None), ("x", None)]
        {
            assert_eq!(statuses(text).ok(), read, "{text}");
        }
    }
}
