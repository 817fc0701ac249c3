//! What each kind of store can do, and which one a URL names.

use super::etcd::Etcd;
use super::file::FileStore;
use crate::cli::{Exit, Failure, Reason};
use crate::sys::http::Url;
use crate::sys::worker::Stop;
use crate::sys::{self, state};
use crate::types::store::{Change, Entry, Keys, Lease, LeaseId, Outcome, Transaction};
use crate::types::time::Tick;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Which store, and how to be let in.
#[derive(Args, Clone, Debug)]
pub(super) struct At {
    /// The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else
    /// file:/var/lib/failover/store]
    #[allow(clippy::doc_markdown)] // as the help shows it
    #[arg(long, value_name = "URL", display_order = 700)]
    store: Option<String>,

    /// A line NAME:PASSWORD, in a file that nobody else may read (etcd)
    #[arg(long, value_name = "FILE", display_order = 701)]
    user: Option<PathBuf>,

    /// Trust the certificates in FILE (PEM) and no others [default: the system's] (etcd, https)
    #[arg(long, value_name = "FILE", display_order = 702)]
    ca: Option<PathBuf>,

    /// Show this certificate (PEM) (etcd, https)
    #[arg(long, value_name = "FILE", display_order = 703, requires = "cert_key")]
    cert: Option<PathBuf>,

    /// The private key of --cert (PEM), in a file that nobody else may read
    #[arg(long, value_name = "FILE", display_order = 704, requires = "cert")]
    cert_key: Option<PathBuf>,
}

/// Where etcd is, and how to be let in.
#[derive(Clone, Debug)]
pub(super) struct EtcdAt {
    /// One of each member, without a path.
    pub(super) members: Vec<Url>,
    pub(super) user: Option<(String, String)>,
    pub(super) ca: Option<PathBuf>,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

impl At {
    /// Opens the store, which asks nothing of it yet.
    ///
    /// # Errors
    /// No such kind of store, or a file to be let in with that cannot be read.
    pub(super) fn open(&self) -> Result<Box<dyn Store>, Failure> {
        let told = std::env::var_os("FAILOVER_STORE").filter(|url| !url.is_empty()).map(OsString::into_string);
        let told = told
            .transpose()
            .map_err(|url| Failure::input(format!("FAILOVER_STORE is not UTF-8: {}", url.to_string_lossy())))?;
        let named = self.store.clone().or(told);
        let Some(url) = named else { return Ok(Box::new(FileStore::new(state::lasting_folder().join("store")))) };
        if let Some(folder) = url.strip_prefix("file:") {
            let folder = folder.strip_prefix("//").unwrap_or(folder);
            if !folder.starts_with('/') {
                return Err(Failure::usage(format!(
                    "--store '{url}': a whole path is wanted (file:/var/lib/failover/store)"
                )));
            }
            return Ok(Box::new(FileStore::new(PathBuf::from(folder))));
        }
        let Some(members) = url.strip_prefix("etcd:") else {
            return Err(Failure::usage(format!(
                "--store '{}': no such kind of store (file:FOLDER, or etcd:http://192.0.2.1:2379,http://192.0.2.2:2379)",
                shown(&url)
            )));
        };
        let members = members.split(',').map(member).collect::<Result<Vec<Url>, String>>().map_err(Failure::usage)?;
        let user = self.user.as_ref().map(|path| read_user(path)).transpose()?;
        let identity = self.cert.clone().zip(self.cert_key.clone());
        let at = EtcdAt { members, user, ca: self.ca.clone(), identity };
        Ok(Box::new(Etcd::new(at, None)?))
    }
}

/// A URL for a message: without a user and a password.
fn shown(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("...@{rest}"))
}

/// One member: `http://HOST:PORT`, or `HOST:PORT` for that.
fn member(text: &str) -> Result<Url, String> {
    let text = text.trim_end_matches('/');
    if text.contains('@') {
        return Err(format!("--store '{}': no user in a URL, where others see it (give --user FILE)", shown(text)));
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Url = url.parse().map_err(|why| format!("--store: {why}"))?;
    let has_path = url.shown.splitn(4, '/').nth(3).is_some();
    if has_path {
        Err(format!("--store '{text}': a member of etcd has no path (http://192.0.2.1:2379)"))
    } else {
        Ok(url)
    }
}

fn read_user(path: &std::path::Path) -> Result<(String, String), Failure> {
    let text = state::read_secret(path, "read", "a line NAME:PASSWORD is wanted")?;
    let line = text.lines().next().unwrap_or_default();
    line.split_once(':')
        .filter(|(name, password)| !name.is_empty() && !password.is_empty())
        .map(|(name, password)| (name.to_owned(), password.to_owned()))
        .ok_or_else(|| {
            let why = "there is no line NAME:PASSWORD in it".to_owned();
            let (doing, path) = ("read".to_owned(), path.display().to_string());
            sys::Error::File { doing, path, why, mend: "write one, and chmod 600".to_owned() }.into()
        })
}

/// Why a store did not do what it was asked to.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// It could not be asked, or did not answer in time.
    Away {
        why: String,
        /// What was asked for may be done, or be done yet.
        unclear: bool,
    },
    /// A lease that was named has ended.
    NoSuchLease,
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble::Failed(failure)
    }
}

impl From<sys::Error> for Trouble {
    fn from(error: sys::Error) -> Self {
        Trouble::Failed(error.into())
    }
}

impl Trouble {
    /// The failure of a run: `cannot DOING OBJECT: why`.
    pub(super) fn failure(self, doing: &str, object: &str) -> Failure {
        match self {
            Trouble::Away { why, unclear: false } => Failure::new(
                Exit::Undecided,
                Reason::Unreachable,
                format!(
                    "cannot {doing} {object}: {why} (is the store there, and has it a majority? allow longer with --timeout)"
                ),
            ),
            Trouble::Away { why, unclear: true } => Failure::new(
                Exit::Undecided,
                Reason::TimedOut,
                format!("cannot tell whether to {doing} {object} went through: {why} (look: store get)"),
            ),
            Trouble::NoSuchLease => Failure::new(
                Exit::Undecided,
                Reason::TimedOut,
                format!("cannot {doing} {object}: its lease has ended meanwhile (allow a longer one)"),
            ),
            Trouble::Failed(failure) => failure,
        }
    }
}

/// What a follower hears.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// The changes of one or several revisions, each once and in order.
    Changes(Vec<Change>),
    /// Changes are lost; this is what is there, at this revision.
    Overrun(Vec<Entry>, u64),
    /// The store does not answer, and why; it is asked again and again.
    Silent(String),
    /// It answers again.
    Back,
    /// It will never answer as it should.
    Failed(Failure),
}

/// A replicated map, or one that is not.
pub(super) trait Store: Send {
    /// Makes a transaction. A question, and what has a condition that does not hold afterwards, is asked for until there
    /// is an answer; without one it is asked for once.
    fn run(&mut self, transaction: &Transaction, deadline: Tick) -> Result<Outcome, Trouble>;

    /// Grants a lease of at least `ttl`.
    fn grant(&mut self, ttl: Duration, deadline: Tick) -> Result<Lease, Trouble>;

    /// Renews a lease: the time that it has from now on.
    ///
    /// # Errors
    /// `NoSuchLease` where it has ended.
    fn keep(&mut self, lease: LeaseId, deadline: Tick) -> Result<Duration, Trouble>;

    /// Ends a lease and every key that it holds; one that has ended is no error.
    fn revoke(&mut self, lease: LeaseId, deadline: Tick) -> Result<(), Trouble>;

    /// How many copies vote; `None` where the store does not tell.
    fn replicas(&mut self, deadline: Tick) -> Option<usize>;

    /// Tells every change of `keys` after revision `after`, until `stop`.
    fn follow(&mut self, keys: &Keys, after: u64, stop: &Stop, tell: &dyn Fn(News));

    /// The same store, for another thread.
    fn again(&self) -> Result<Box<dyn Store>, Failure>;
}

/// Waits for `step` before something is asked again; false once the time is over.
pub(super) fn pause(deadline: Tick, step: Duration) -> bool {
    let now = sys::clock::boot();
    if now >= deadline {
        return false;
    }
    sys::clock::sleep_until(deadline.min(now.after(step)));
    true
}
