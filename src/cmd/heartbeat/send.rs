//! `heartbeat send`: say that this node lives, and what it has to say.

use super::{Auth, PORT, Shared, goodbye_file, nonce_from_text, origin, sending_sign, session_file};
use crate::cli::args::{self, flags};
use crate::cli::input::Feed;
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::Head;
use crate::record::heartbeat::{Life, SEND_COLUMNS, SEND_SCHEMA, Sent, SentLink, Traveller, view_line};
use crate::record::state;
use crate::sys;
use crate::sys::clock;
use crate::sys::event::{Signals, Sources};
use crate::sys::socket::Datagram;
use crate::sys::state::Presence;
use crate::sys::watch::Watch;
use crate::types::net::Endpoint;
use crate::types::time::{Span, Tick};
use crate::wire::heartbeat::{ClusterHash, Echoed, Echoes, Frame, MAX_PAYLOAD, PeerHash};
use crate::wire::keys::Keys;
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::path::PathBuf;

pub(super) const VERB: Verb = Verb {
    name: "send",
    about: "Send signed beats, with the newest record of each payload",
    examples: "heartbeat send --to 192.0.2.2 --key /etc/failover/key                      one link\n\
               heartbeat send --to 192.0.2.2%eth0 --to 198.51.100.2%eth1 --key k        two links\n\
               health score --follow | heartbeat send --group 239.0.0.1%eth0 --key k --payload -\n\
               heartbeat send --to 192.0.2.2 --key k --payload state.json --goodbye      tell when leaving",
    args: flags::<Flags>,
    schemas: &[SEND_SCHEMA],
    columns: SEND_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The peers on one link, separated by commas; given again, the next link
    #[arg(long, value_name = "ADDR[:PORT][%DEV],...", required_unless_present = "group", value_parser = peers)]
    to: Vec<Peers>,

    /// A multicast group; each is one more link
    #[arg(long, value_name = "ADDR[:PORT][%DEV]")]
    group: Vec<Endpoint>,

    #[command(flatten)]
    shared: Shared,

    /// Time from beat to beat
    #[arg(long, value_name = "D", default_value = "1s")]
    interval: Span,

    /// End after N beats
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Carry the newest record of each kind and subject in FILE ('-': the newest of standard input); may be given
    /// several times
    #[arg(long, value_name = "FILE")]
    payload: Vec<String>,

    /// On TERM say goodbye, with what the payload says that this node still owns
    #[arg(long)]
    goodbye: bool,
}

/// The peers on one link.
#[derive(Clone, Debug)]
struct Peers(Vec<Endpoint>);

fn peers(text: &str) -> Result<Peers, String> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(Peers)
}

/// One link and what became of it.
struct Link {
    ends: Vec<End>,
    report: SentLink,
}

/// One peer on a link.
struct End {
    socket: Option<Datagram>,
    endpoint: Endpoint,
    told: Option<Errno>,
}

/// One `--payload`.
struct Source {
    path: Option<PathBuf>,
    records: Vec<Traveller>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if flags.interval.0.is_zero() {
        return Err(Failure::usage("--interval 0s: a beat needs some time to the next"));
    }
    if let Some(endpoint) = flags.group.iter().find(|endpoint| !endpoint.addr.is_multicast()) {
        return Err(Failure::usage(format!("--group {endpoint}: it is no multicast address (for one peer: --to)")));
    }
    if flags.payload.iter().filter(|path| *path == "-").count() > 1 {
        return Err(Failure::usage("--payload - stands twice: standard input can be read once"));
    }
    let keys = flags.shared.keys()?;
    let mut sender = Sender::new(&flags, keys, process)?;
    let Some(sign) = Presence::hold(&sending_sign(&process.node))? else {
        let sentence = format!(
            "cannot send as {}: another heartbeat send of this node runs (end it, or give --node another name)",
            process.node
        );
        return Err(Failure::new(Exit::Undecided, Reason::LockHeld, sentence));
    };
    sender.sign = Some(sign);
    sender.begin_life(flags.count.is_some(), process)?;
    sender.follow(&flags, process)
}

/// Everything that a beat is made of.
struct Sender {
    node: String,
    /// Held for as long as this runs.
    sign: Option<Presence>,
    keys: Option<Keys>,
    cluster: ClusterHash,
    links: Vec<Link>,
    sources: Vec<Source>,
    life: Life,
    own_nonce: u64,
    echoes: Vec<(PeerHash, Echoed)>,
    /// The last of these, for a goodbye after our receiver has ended: the peers believe an echo alone.
    farewell: Vec<(PeerHash, Echoed)>,
    /// What our receiver hears, as a record; empty where there is none.
    view: String,
    bytes: Vec<u8>,
    bad_input: bool,
}

impl Sender {
    fn new(flags: &Flags, keys: Keys, process: &Process) -> Result<Self, Failure> {
        let groups = flags.group.iter().map(std::slice::from_ref);
        let all: Vec<&[Endpoint]> = flags.to.iter().map(|peers| peers.0.as_slice()).chain(groups).collect();
        if all.len() > 64 {
            return Err(Failure::usage("more than 64 links"));
        }
        let mut links = Vec::new();
        for (number, endpoints) in (0..).zip(all) {
            let names: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
            let report = SentLink { link: number, remote: names.join(","), sent: 0, failed: 0, reason: None };
            let ends = endpoints
                .iter()
                .map(|endpoint| {
                    let socket = Some(Datagram::sender(endpoint, PORT)?);
                    Ok(End { socket, endpoint: endpoint.clone(), told: None })
                })
                .collect::<Result<Vec<_>, sys::Error>>()?;
            links.push(Link { ends, report });
        }
        let sources = flags
            .payload
            .iter()
            .map(|path| Source { path: (path != "-").then(|| PathBuf::from(path)), records: Vec::new() })
            .collect();
        Ok(Sender {
            node: process.node.clone(),
            keys: (flags.shared.auth != Auth::ReceiveOnly).then_some(keys),
            cluster: ClusterHash::new(&flags.shared.cluster),
            links,
            sources,
            life: Life::default(),
            sign: None,
            own_nonce: 0,
            echoes: Vec::new(),
            farewell: Vec::new(),
            view: String::new(),
            bytes: Vec::new(),
            bad_input: false,
        })
    }

    /// A stream begins a life of its own; a one-shot goes on with the last one of this boot, so
    /// that a beat a minute from cron is not a restart a minute.
    fn begin_life(&mut self, one_shot: bool, process: &Process) -> Result<(), Failure> {
        let path = self.life_file();
        let origin = origin("heartbeat-send", &self.node, clock::boot());
        let last = match sys::state::read(&path)? {
            None => None,
            Some(bytes) => Some(state::read_lasting::<Life>(&bytes, &origin).map_err(|why| sys::Error::File {
                doing: "read".to_owned(),
                path: path.display().to_string(),
                why,
                mend: "move it away to begin anew".to_owned(),
            })?),
        };
        self.life = match last {
            Some((life, boot_id)) if one_shot && boot_id == origin.boot_id => life,
            last => {
                Life { incarnation: super::next_incarnation(last.map_or(0, |(life, _)| life.incarnation)), sequence: 0 }
            }
        };
        // Written before the first beat: a life that was heard is never begun again.
        if let Err(error) = self.keep_life() {
            process.complain(&format!("{error}; a restart may look like a replay while the clock stands still"));
        }
        Ok(())
    }

    fn life_file(&self) -> PathBuf {
        sys::state::lasting_folder().join(format!("heartbeat-send-{}.json", self.node))
    }

    fn keep_life(&self) -> Result<(), sys::Error> {
        let bytes = state::write(&origin("heartbeat-send", &self.node, clock::boot()), &self.life).unwrap_or_default();
        sys::state::replace(&self.life_file(), &bytes)
    }

    fn follow(&mut self, flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
        let mut signals = Signals::catch()?;
        let mut paths: Vec<PathBuf> = self.sources.iter().filter_map(|source| source.path.clone()).collect();
        let session = session_file(&self.node);
        // The session's folder is there: the sign was put into it.
        paths.push(session);
        let mut watch = Watch::new(&paths)?;
        let mut feed = self.sources.iter().any(|source| source.path.is_none()).then(Feed::default);
        let mut due = clock::boot();
        let mut beats = 0;
        let mut last_extra: Option<Tick> = None;
        self.look(&mut watch, process);
        loop {
            let now = clock::boot();
            if now >= due {
                // The session ends with its receiver, which no file event tells.
                self.read_session();
                let sign = sending_sign(&self.node);
                if !self.sign.as_ref().is_some_and(|held| held.stands_at(&sign)) {
                    // Somebody has removed it, and our receiver looks for it.
                    self.sign = Presence::hold(&sign)?;
                }
                self.beat(false, false, now, process)?;
                beats += 1;
                if flags.count.is_some_and(|count| beats >= count) {
                    break;
                }
                // Beats that this process slept through are not made up for.
                while due <= now {
                    due = due.after(flags.interval.0);
                }
            }
            let (stdin, mut sources) = (std::io::stdin(), Sources::default());
            let signal = sources.readable(signals.as_fd());
            let files = sources.readable(watch.as_fd());
            let input = feed.as_ref().filter(|feed| !feed.is_ended()).map(|_| sources.readable(stdin.as_fd()));
            sources.wait(Some(due))?;
            let (signal, files) = (sources.is_ready(signal), sources.is_ready(files));
            let input = input.is_some_and(|slot| sources.is_ready(slot));
            let mut news = false;
            if files || watch.is_blind() {
                news |= self.look(&mut watch, process);
            }
            if input && let Some(feed) = &mut feed {
                news |= self.take(feed, process)?;
            }
            if signal && let Some(signal) = signals.next() {
                if flags.goodbye {
                    self.say_goodbye(process)?;
                }
                self.keep_life()?;
                self.report(process)?;
                process.out.finish(true)?;
                signals.die(signal);
                return Ok(Exit::Yes);
            }
            // News travels at once, but a chatty source makes no storm.
            let pause = flags.interval.0 / 10;
            let now = clock::boot();
            if news && last_extra.is_none_or(|last| now.since(last) >= pause) {
                last_extra = Some(now);
                self.beat(true, false, now, process)?;
            } else if news {
                due = due.min(now.after(pause));
            }
        }
        self.keep_life()?;
        self.report(process)
    }

    /// One beat on every link.
    fn beat(&mut self, extra: bool, goodbye: bool, now: Tick, process: &Process) -> Result<(), Failure> {
        self.life.sequence += 1;
        let mut payload: Vec<String> =
            self.sources.iter().flat_map(|source| &source.records).map(|record| record.line(now)).collect();
        // What is heard here comes last: it is left out where there is no room.
        let length: usize = payload.iter().map(|line| line.len() + 1).sum();
        if !self.view.is_empty() && length + self.view.len() <= MAX_PAYLOAD {
            payload.push(self.view.clone());
        }
        let payload = payload.join("\n");
        let mut echo_bytes = Vec::new();
        let echoes = Echoes::write(&self.echoes, &mut echo_bytes);
        for link in &mut self.links {
            let frame = Frame {
                goodbye,
                extra,
                link: link.report.link,
                incarnation: self.life.incarnation,
                sequence: self.life.sequence,
                sent_us: u64::try_from(clock::wall().unix_us).unwrap_or(0),
                nonce: self.own_nonce,
                name: &self.node,
                payload: &payload,
                echoes,
            };
            frame
                .encode(self.cluster, self.keys.as_ref(), &mut self.bytes)
                .map_err(|why| Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write a frame: {why}")))?;
            link.send(&self.bytes, process);
        }
        Ok(())
    }

    /// Says goodbye three times: a lost one costs the peers a whole dead time.
    ///
    /// Quorum must know first: while this node is away, nobody's goodbye makes a majority of it alone.
    fn say_goodbye(&mut self, process: &Process) -> Result<(), Failure> {
        let said = state::write(&origin("heartbeat-goodbye", &self.node, clock::boot()), &clock::boot().as_ms());
        sys::state::replace(&goodbye_file(&self.node), &said.unwrap_or_default())?;
        if self.echoes.is_empty() {
            self.echoes.clone_from(&self.farewell);
        }
        for _ in 0..3 {
            self.beat(true, true, clock::boot(), process)?;
        }
        Ok(())
    }

    /// Reads the payload files that changed; whether there is news.
    fn look(&mut self, watch: &mut Watch, process: &Process) -> bool {
        let changed = watch.changed();
        let mut news = false;
        let files: Vec<usize> = (0..self.sources.len()).filter(|idx| self.sources[*idx].path.is_some()).collect();
        for (idx, changed) in files.into_iter().zip(&changed) {
            if !changed {
                continue;
            }
            let Some(path) = self.sources[idx].path.clone() else { continue };
            match sys::state::read(&path) {
                Ok(None) => news |= !std::mem::take(&mut self.sources[idx].records).is_empty(),
                Ok(Some(bytes)) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
                    if !lines.is_empty() {
                        news |= self.put(idx, &lines, &path.display().to_string(), process);
                    }
                }
                Err(error) => process.complain(&error.to_string()),
            }
        }
        if changed.last() == Some(&true) {
            news |= self.read_session();
        }
        news
    }

    /// Takes our session and the peers to echo from the receiver; whether the peers must know.
    fn read_session(&mut self) -> bool {
        let session = super::read_session(&self.node);
        let nonce = session.as_ref().and_then(|session| nonce_from_text(&session.nonce)).unwrap_or(0);
        let echoes: Vec<(PeerHash, Echoed)> = session
            .iter()
            .flat_map(|session| &session.heard)
            .filter_map(|(node, heard)| {
                let echoed = Echoed { nonce: nonce_from_text(&heard.nonce)?, links: heard.links };
                Some((PeerHash::new(node), echoed))
            })
            .collect();
        let view = session
            .filter(|session| !session.view.is_empty())
            .map(|session| view_line(&self.node, &session.view))
            .unwrap_or_default();
        let news = nonce != self.own_nonce || echoes != self.echoes || view != self.view;
        if !echoes.is_empty() {
            self.farewell.clone_from(&echoes);
        }
        (self.own_nonce, self.echoes, self.view) = (nonce, echoes, view);
        news
    }

    /// Takes the newest line of standard input; whether there is news.
    fn take(&mut self, feed: &mut Feed, process: &Process) -> Result<bool, Failure> {
        let lines = feed.take()?;
        let Some(idx) = self.sources.iter().position(|source| source.path.is_none()) else { return Ok(false) };
        let mut news = false;
        for (number, line) in lines {
            match line {
                Ok(line) => news |= self.put(idx, &[&line], &format!("line {number}"), process),
                Err(why) => {
                    self.bad_input = true;
                    process.complain(&format!("line {number} is malformed: {why}"));
                }
            }
        }
        if feed.is_ended() {
            // The one who told about our health is gone; the node still lives, and says that much.
            news |= !std::mem::take(&mut self.sources[idx].records).is_empty();
        }
        Ok(news)
    }

    /// Puts records in their source's place; whether there is news. One that is none or does not fit is
    /// refused, and the others go on; where all are refused, the earlier ones stay.
    fn put(&mut self, idx: usize, lines: &[&str], from: &str, process: &Process) -> bool {
        // Numbers that are still to shrink never grow by more than this.
        const ROOM: usize = 8;
        let now = clock::boot();
        let length = |records: &[Traveller]| records.iter().map(|record| record.line(now).len() + 1).sum::<usize>();
        let others: usize = self
            .sources
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != idx)
            .map(|(_, one)| length(&one.records))
            .sum();
        let mut records: Vec<Traveller> = Vec::new();
        for line in lines {
            match Traveller::read(line, now) {
                Ok(record) => {
                    records.retain(|earlier| earlier.about != record.about);
                    records.push(record);
                }
                Err(why) => {
                    self.bad_input = true;
                    process.complain(&format!("{from} is no record: {why}"));
                }
            }
        }
        let mut room = (MAX_PAYLOAD - ROOM).saturating_sub(others);
        records.retain(|record| {
            let length = record.line(now).len();
            let fits = length <= room;
            if fits {
                room = room.saturating_sub(length + 1);
            } else {
                self.bad_input = true;
                process.complain(&format!("{from} does not fit a beat: {length} bytes, {room} are left"));
            }
            fits
        });
        if records.is_empty() {
            return false;
        }
        let old = std::mem::replace(&mut self.sources[idx].records, records);
        let now = &self.sources[idx].records;
        old.len() != now.len() || old.iter().zip(now).any(|(old, new)| old.content != new.content)
    }

    fn report(&self, process: &mut Process) -> Result<Exit, Failure> {
        let links: Vec<SentLink> = self.links.iter().map(|link| link.report.clone()).collect();
        let sent = links.iter().map(|link| link.sent).sum();
        let failed = links.iter().map(|link| link.failed).sum();
        let body = Sent { sent, failed, incarnation: self.life.incarnation, sequence: self.life.sequence, links };
        process.out.record(&Head::new("heartbeat.send").about(&self.node), &body)?;
        let exit = if sent == 0 && failed > 0 { Exit::Refused } else { Exit::Yes };
        Ok(if self.bad_input { exit.and(Exit::BadInput) } else { exit })
    }
}

impl Link {
    /// Sends a frame to each peer of the link.
    fn send(&mut self, bytes: &[u8], process: &Process) {
        for end in &mut self.ends {
            match end.send(bytes) {
                Ok(()) => {
                    self.report.sent += 1;
                    if end.told.take().is_some() {
                        process.complain(&format!("link {} to {} sends again", self.report.link, end.endpoint));
                    }
                }
                // Told once, until it is another or over.
                Err(errno) => {
                    self.report.failed += 1;
                    self.report.reason = Some(errno.desc().to_owned());
                    if end.told != Some(errno) {
                        end.told = Some(errno);
                        process.complain(&format!("cannot send to {}: {} (going on)", end.endpoint, errno.desc()));
                    }
                }
            }
        }
    }
}

impl End {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        if self.socket.is_none() {
            // Its interface may be back, with another index.
            self.socket = Datagram::sender(&self.endpoint, PORT).ok();
        }
        let outcome = self.socket.as_ref().map_or(Err(Errno::ENODEV), |socket| socket.send(bytes));
        if matches!(outcome, Err(Errno::ENODEV | Errno::ENXIO)) {
            self.socket = None;
        }
        outcome
    }
}
