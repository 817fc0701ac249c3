//! `etcd:`: a replicated store, asked over its JSON gateway, any member of it.

use super::backend::{EtcdAt, News, Store, Trouble, pause};
use crate::cli::{Exit, Failure, Reason};
use crate::sys::clock;
use crate::sys::event::Sources;
use crate::sys::http::{Client, NoAnswer, NoResponse, Post, Tls, Url};
use crate::sys::worker::{Crew, Stop};
use crate::types::store::{Change, Keys, Lease, LeaseId, Outcome, Transaction};
use crate::types::time::Tick;
use crate::wire::etcd::{self, Answer, Refusal};
use std::io::{BufRead, BufReader};
use std::time::Duration;

/// Before the members are asked again when none could do it.
const PAUSE: Duration = Duration::from_millis(50);
/// The most of an answer that is read: etcd itself takes requests of 1.5 MiB, and a list has many.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// A stream is silent while nothing changes: the member is asked so often whether it lives.
const CHECK: Duration = Duration::from_secs(1);
/// A member that cannot act for the majority says so, instead of letting a request wait for a leader
/// (`rpctypes.MetadataRequireLeaderKey`).
const REQUIRE_LEADER: (&str, &str) = ("grpc-metadata-hasleader", "true");

/// A client of all members.
pub(super) struct Etcd {
    at: EtcdAt,
    members: Vec<(Url, Client)>,
    /// The one that answered last.
    first: usize,
    token: Option<String>,
    /// Which cluster answered first: another one's answers are none.
    cluster: Option<String>,
}

/// What one member said to one request.
enum Said {
    Answer(Vec<u8>),
    /// Another member may do it.
    No {
        why: String,
        unclear: bool,
    },
    /// No member will.
    Trouble(Trouble),
    OldToken,
}

impl Etcd {
    pub(super) fn new(at: EtcdAt, stop: Option<&Stop>) -> Result<Self, Failure> {
        let mut members = Vec::new();
        for url in &at.members {
            let identity = at.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
            let tls = url.tls.then_some(Tls { ca: at.ca.as_deref(), identity });
            members.push((url.clone(), Client::lasting(tls.as_ref(), url.host.clone(), stop.cloned())?));
        }
        Ok(Etcd { at, members, first: 0, token: None, cluster: None })
    }

    /// Asks one member.
    fn ask_one(&self, idx: usize, path: &str, body: &[u8], deadline: Tick) -> Said {
        let Some((base, client)) = self.members.get(idx) else {
            return Said::No { why: "no member".to_owned(), unclear: false };
        };
        let url: Url = match format!("{}{path}", base.shown).parse() {
            Ok(url) => url,
            Err(why) => return Said::Trouble(Failure::usage(why).into()),
        };
        let mut headers = vec![REQUIRE_LEADER];
        headers.extend(self.token.as_ref().map(|token| ("authorization", token.as_str())));
        match client.post(Post { url: &url, headers: &headers, body }, MOST_BYTES, deadline) {
            Ok(answer) if answer.status == 200 => Said::Answer(answer.body),
            Ok(answer) => refused(base, etcd::read_refusal(answer.status, &answer.body)),
            Err(NoAnswer { why, asked }) => Said::No { why: no_answer(base, why), unclear: asked },
        }
    }

    /// Asks the members, one after another, until one has done it.
    ///
    /// `again` is a request that may be made twice; with the answer comes whether it perhaps was.
    fn ask(&mut self, path: &str, body: &[u8], again: bool, deadline: Tick) -> Result<(Vec<u8>, bool), Trouble> {
        let mut last = String::new();
        let (mut authenticated, mut doubt) = (false, false);
        loop {
            let count = self.members.len();
            for turn in 0..count {
                if self.token.is_none() && self.at.user.is_some() {
                    self.authenticate(deadline)?;
                    authenticated = true;
                }
                let idx = (self.first + turn) % count;
                // What is left is shared out, so that a member which says nothing leaves time for the others.
                let left = deadline.since(clock::boot());
                let until = clock::boot().after(left / u32::try_from(count - turn).unwrap_or(1));
                match self.ask_one(idx, path, body, until) {
                    Said::Answer(answer) => {
                        self.first = idx;
                        return Ok((answer, doubt));
                    }
                    Said::OldToken if !authenticated => self.token = None,
                    Said::OldToken => "it does not know its own token".clone_into(&mut last),
                    Said::Trouble(trouble) => return Err(trouble),
                    Said::No { why, unclear } if unclear && !again => return Err(Trouble::Away { why, unclear: true }),
                    Said::No { why, unclear } => {
                        doubt |= unclear;
                        // That its time is over says less than what was said before.
                        if last.is_empty() || clock::boot() < until {
                            last = why;
                        }
                    }
                }
            }
            if !pause(deadline, PAUSE) {
                return Err(Trouble::Away { why: last, unclear: doubt });
            }
        }
    }

    /// Asks, and reads the answer.
    fn get<T>(
        &mut self,
        path: &str,
        body: &[u8],
        again: bool,
        read: fn(&[u8]) -> etcd::Result<Answer<T>>,
        deadline: Tick,
    ) -> Result<T, Trouble> {
        self.get_doubted(path, body, again, read, deadline).map(|(what, _)| what)
    }

    fn get_doubted<T>(
        &mut self,
        path: &str,
        body: &[u8],
        again: bool,
        read: fn(&[u8]) -> etcd::Result<Answer<T>>,
        deadline: Tick,
    ) -> Result<(T, bool), Trouble> {
        let (bytes, doubt) = self.ask(path, body, again, deadline)?;
        let member = self.members.get(self.first).map(|(url, _)| url.shown.clone()).unwrap_or_default();
        let answer = read(&bytes)
            .map_err(|why| Trouble::Failed(Failure::input(format!("cannot read what {member} answers: {why}"))))?;
        match &self.cluster {
            Some(cluster) if *cluster != answer.cluster => Err(Trouble::Failed(Failure::input(format!(
                "cannot believe {member}: it is of cluster {}, the others are of {cluster} (see --store)",
                answer.cluster
            )))),
            Some(_) => Ok((answer.what, doubt)),
            None => {
                self.cluster = Some(answer.cluster);
                Ok((answer.what, doubt))
            }
        }
    }

    fn authenticate(&mut self, deadline: Tick) -> Result<(), Trouble> {
        let Some((name, password)) = self.at.user.clone() else { return Ok(()) };
        let body = etcd::authenticate(&name, &password);
        // Not by `ask`, which would come here again.
        let mut last = String::new();
        loop {
            let count = self.members.len();
            for turn in 0..count {
                let idx = (self.first + turn) % count;
                let share = deadline.since(clock::boot()) / u32::try_from(count - turn).unwrap_or(1);
                match self.ask_one(idx, etcd::AUTHENTICATE, &body, clock::boot().after(share)) {
                    Said::Answer(answer) => {
                        let token = etcd::read_token(&answer).map_err(|why| {
                            Trouble::Failed(Failure::input(format!("cannot log in to etcd as {name}: {why}")))
                        })?;
                        self.token = Some(token);
                        return Ok(());
                    }
                    Said::Trouble(trouble) => return Err(trouble),
                    Said::No { why, .. } => last = why,
                    Said::OldToken => {}
                }
            }
            if !pause(deadline, PAUSE) {
                return Err(Trouble::Away { why: last, unclear: false });
            }
        }
    }
}

/// What a refusal of one member means for the request.
fn refused(base: &Url, refusal: Refusal) -> Said {
    let says = |words: &str| format!("{} says: {}", base.shown, words.trim_start_matches("etcdserver: "));
    let fail = |exit, reason, sentence: String| Said::Trouble(Failure::new(exit, reason, sentence).into());
    match refusal {
        Refusal::NoLeader(words) => Said::No { why: says(&words), unclear: false },
        Refusal::Unclear(words) => Said::No { why: says(&words), unclear: true },
        Refusal::NoSuchLease => Said::Trouble(Trouble::NoSuchLease),
        Refusal::OldToken => Said::OldToken,
        Refusal::Full(words) => fail(
            Exit::Refused,
            Reason::Refused,
            format!("the store is full: {} (see: etcdctl alarm list; compact, defrag, disarm)", says(&words)),
        ),
        Refusal::Denied(words) => fail(
            Exit::NotPermitted,
            Reason::NotPermitted,
            format!("the store does not let us: {} (see --user)", says(&words)),
        ),
        Refusal::NotThere => fail(
            Exit::Missing,
            Reason::NoSuchFeature,
            format!("{} has no /v3 interface: is it etcd 3.4 or later, and its client port?", base.shown),
        ),
        Refusal::Wrong(words) => {
            fail(Exit::BadInput, Reason::BadInput, format!("the store refuses it: {}", says(&words)))
        }
    }
}

/// Why a member did not answer.
fn no_answer(base: &Url, why: NoResponse) -> String {
    match why {
        NoResponse::Connection(errno) => format!("{}: {}", base.shown, errno.desc()),
        NoResponse::Timeout => format!("{} did not answer in time", base.shown),
        NoResponse::Nowhere(error) => error.to_string(),
        NoResponse::Wrong(why) => format!("{}: {why}", base.shown),
    }
}

impl Store for Etcd {
    fn run(&mut self, transaction: &Transaction, deadline: Tick) -> Result<Outcome, Trouble> {
        let body = etcd::transaction(transaction);
        // What has a condition is made once, however often it is asked for: it does not hold afterwards. So a request
        // that a member has kept back, and carries out later, changes nothing any more.
        let again = transaction.is_question() || !transaction.when.is_empty();
        match self.get_doubted(etcd::TXN, &body, again, etcd::read_outcome, deadline) {
            Ok((outcome, doubt)) => Ok(Outcome { doubt, ..outcome }),
            // A question leaves nothing behind that could be unclear.
            Err(Trouble::Away { why, .. }) if transaction.is_question() => Err(Trouble::Away { why, unclear: false }),
            Err(trouble) => Err(trouble),
        }
    }

    fn grant(&mut self, ttl: Duration, deadline: Tick) -> Result<Lease, Trouble> {
        // One that was granted and is not known of ends by itself.
        self.get(etcd::GRANT, &etcd::grant(ttl), true, etcd::read_granted, deadline)
    }

    fn keep(&mut self, lease: LeaseId, deadline: Tick) -> Result<Duration, Trouble> {
        let kept = self.get(etcd::KEEP, &etcd::lease(lease), true, etcd::read_kept, deadline)?;
        kept.map(|lease| lease.ttl).ok_or(Trouble::NoSuchLease)
    }

    fn revoke(&mut self, lease: LeaseId, deadline: Tick) -> Result<(), Trouble> {
        match self.get(etcd::REVOKE, &etcd::lease(lease), true, etcd::read_revoked, deadline) {
            Err(Trouble::NoSuchLease) => Ok(()),
            other => other,
        }
    }

    fn replicas(&mut self, deadline: Tick) -> Option<usize> {
        // Where users are told apart not everybody may ask for it; that is no reason to fail.
        self.get(etcd::MEMBERS, b"{}", true, etcd::read_members, deadline).ok()
    }

    fn follow(&mut self, keys: &Keys, after: u64, stop: &Stop, tell: &dyn Fn(News)) {
        if let Err(failure) = self.follow_members(keys, after, stop, tell) {
            tell(News::Failed(failure));
        }
    }

    fn again(&self) -> Result<Box<dyn Store>, Failure> {
        Ok(Box::new(Etcd::new(self.at.clone(), None)?))
    }
}

/// What the reader of one stream tells.
enum Heard {
    News(Answer<etcd::News>),
    Ended(Said),
}

impl Etcd {
    /// Watches at one member after another. Each stream begins with the first revision that was not told, so none is
    /// lost and none told twice.
    fn follow_members(&mut self, keys: &Keys, after: u64, stop: &Stop, tell: &dyn Fn(News)) -> Result<(), Failure> {
        let mut next = after + 1;
        let (mut is_silent, mut failures) = (false, 0_u32);
        loop {
            let ended = self.follow_one(keys, &mut next, stop, &mut |news| {
                if std::mem::take(&mut is_silent) {
                    tell(News::Back);
                }
                failures = 0;
                if let Some(news) = news {
                    tell(news);
                }
            })?;
            let Some(said) = ended else { return Ok(()) };
            match said {
                Said::Trouble(Trouble::Failed(failure)) => return Err(failure),
                Said::OldToken => self.token = None,
                Said::No { why, .. } => {
                    failures += 1;
                    // One member less is no news while another answers.
                    if !is_silent && failures as usize > self.members.len() {
                        is_silent = true;
                        tell(News::Silent(why));
                    }
                }
                Said::Answer(_) | Said::Trouble(_) => {}
            }
            self.first = (self.first + 1) % self.members.len().max(1);
            let mut sources = Sources::default();
            let stopped = sources.readable(stop.as_fd());
            let wait = PAUSE * failures.clamp(1, 10);
            sources.wait(Some(clock::boot().after(wait)))?;
            if sources.is_ready(stopped) {
                return Ok(());
            }
        }
    }

    /// Watches at the member in turn until that fails; `None` once it was stopped.
    fn follow_one(
        &mut self,
        keys: &Keys,
        next: &mut u64,
        stop: &Stop,
        tell: &mut dyn FnMut(Option<News>),
    ) -> Result<Option<Said>, Failure> {
        if self.token.is_none()
            && self.at.user.is_some()
            && let Err(trouble) = self.authenticate(clock::boot().after(CHECK))
        {
            return Ok(Some(match trouble {
                Trouble::Away { why, unclear } => Said::No { why, unclear },
                other => Said::Trouble(other),
            }));
        }
        let ours = Stop::new()?;
        let crew: Crew<Heard> = Crew::new()?;
        let mut reader = Etcd::new(self.at.clone(), Some(&ours))?;
        (reader.first, reader.token) = (self.first, self.token.clone());
        let body = etcd::watch(keys, *next);
        crew.follow(move |_, told| told(Heard::Ended(reader.read_stream(&body, told))))?;
        let mut check = clock::boot().after(CHECK);
        let ended = loop {
            let mut sources = Sources::default();
            let stopped = sources.readable(stop.as_fd());
            sources.readable(crew.as_fd());
            sources.wait(Some(check))?;
            if sources.is_ready(stopped) {
                break None;
            }
            let mut end = None;
            for heard in crew.take() {
                match heard {
                    Heard::Ended(said) => end = Some(said),
                    Heard::News(answer) => {
                        if self.cluster.get_or_insert_with(|| answer.cluster.clone()) != &answer.cluster
                            && !answer.cluster.is_empty()
                        {
                            let why = format!("it is of another cluster, {}", answer.cluster);
                            end = Some(Said::No { why, unclear: false });
                            break;
                        }
                        match answer.what {
                            // A store that was restored from a copy counts on from there, and what was told is of another course.
                            etcd::News::Created(revision) if revision + 1 < *next => {
                                end = Some(self.look_anew(keys, next, tell));
                            }
                            etcd::News::Created(_) => tell(None),
                            etcd::News::Nothing => {}
                            etcd::News::Ended(why) => end = Some(Said::No { why, unclear: false }),
                            etcd::News::Changes(changes) => {
                                let new: Vec<Change> =
                                    changes.into_iter().filter(|change| change.revision() >= *next).collect();
                                if let Some(last) = new.last() {
                                    *next = last.revision() + 1;
                                    tell(Some(News::Changes(new)));
                                }
                            }
                            etcd::News::Forgotten => end = Some(self.look_anew(keys, next, tell)),
                        }
                    }
                }
            }
            if end.is_some() {
                break end;
            }
            if clock::boot() >= check {
                // A member that was stopped or cut off keeps its streams open and says nothing.
                let look = etcd::transaction(&Transaction::get(Keys::One(vec![0])));
                match self.ask_one(self.first, etcd::TXN, &look, clock::boot().after(CHECK)) {
                    Said::Answer(_) => tell(None),
                    said => break Some(said),
                }
                check = clock::boot().after(CHECK);
            }
        };
        ours.say();
        Ok(ended)
    }

    /// Changes are lost: tells what is there. The stream after that begins from there on.
    fn look_anew(&mut self, keys: &Keys, next: &mut u64, tell: &mut dyn FnMut(Option<News>)) -> Said {
        match self.run(&Transaction::get(keys.clone()), clock::boot().after(CHECK * 5)) {
            Ok(found) => {
                *next = found.revision + 1;
                let revision = found.revision;
                tell(Some(News::Overrun(found.first(), revision)));
                Said::Answer(Vec::new())
            }
            Err(Trouble::Away { why, unclear }) => Said::No { why, unclear },
            Err(trouble) => Said::Trouble(trouble),
        }
    }

    /// Reads one stream to its end.
    fn read_stream(&self, body: &[u8], told: &dyn Fn(Heard)) -> Said {
        let Some((base, client)) = self.members.get(self.first) else {
            return Said::No { why: "no member".to_owned(), unclear: false };
        };
        let url: Url = match format!("{}{}", base.shown, etcd::WATCH).parse() {
            Ok(url) => url,
            Err(why) => return Said::Trouble(Failure::usage(why).into()),
        };
        let mut headers = vec![REQUIRE_LEADER];
        headers.extend(self.token.as_ref().map(|token| ("authorization", token.as_str())));
        let post = Post { url: &url, headers: &headers, body };
        let (status, reader) = match client.stream(post, clock::boot().after(CHECK * 2)) {
            Ok(stream) => stream,
            Err(NoAnswer { why, asked }) => return Said::No { why: no_answer(base, why), unclear: asked },
        };
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return Said::No { why: format!("{} has ended the stream", base.shown), unclear: false },
                Ok(_) if status != 200 => return refused(base, etcd::read_refusal(status, &line)),
                Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) => match etcd::read_news(&line) {
                    Ok(news) => told(Heard::News(news)),
                    Err(why) => return Said::No { why: format!("{}: {why}", base.shown), unclear: false },
                },
                Err(error) => return Said::No { why: format!("{}: {error}", base.shown), unclear: false },
            }
        }
    }
}
