//! `store watch`: what is there, and every change of it.

use super::backend::{At, News, Store, Trouble};
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::store::{Backing, Key, WATCH_COLUMNS, WATCH_SCHEMA, from_store};
use crate::sys::clock;
use crate::sys::worker::Crew;
use crate::types::store::{Change, Entry, Keys, Transaction};
use crate::types::time::{Span, Tick};
use clap::{ArgMatches, Args};
use nix::sys::signal::Signal;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "watch",
    about: "Print the keys that begin with a text, then every change of them, none lost and none twice",
    examples: "store watch placement/ --table\n\
               store watch nodes/ --records | quorum --members n1,n2,n3 --follow --window 3s",
    args: flags::<Flags>,
    schemas: &[WATCH_SCHEMA],
    columns: WATCH_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// How the keys begin; all of them where it is left out
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Print the stored records themselves, as they were put, for a filter; what is deleted says nothing
    #[arg(long)]
    records: bool,

    /// End after D, with status 0
    #[arg(long = "for", value_name = "D")]
    duration: Option<Span>,

    #[command(flatten)]
    at: At,
}

/// What one try to begin may take.
const TRY: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(200);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let mut store = flags.at.open()?;
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut watcher = Watcher { flags: &flags, backing: Backing::default() };
    let outcome = watcher.run(store.as_mut(), &mut pump, process);
    pump.stream.finish();
    match outcome {
        Ok(End::Signal(signal)) => Ok(pump.die(signal)),
        Ok(End::Planned) => Ok(Exit::Yes),
        Ok(End::Late) => Ok(Exit::Undecided),
        Err(failure) if failure.is_reader_gone() => Ok(Exit::Yes),
        Err(failure) => Err(failure),
    }
}

enum End {
    Signal(Signal),
    Planned,
    Late,
}

struct Watcher<'a> {
    flags: &'a Flags,
    backing: Backing,
}

impl Watcher<'_> {
    fn run(&mut self, store: &mut dyn Store, pump: &mut Pump, process: &Process) -> Result<End, Failure> {
        let end = process.stream_end(self.flags.duration);
        let ended = || if self.flags.duration.is_some() { End::Planned } else { End::Late };
        let keys = Keys::Prefix(self.flags.prefix.clone().into_bytes());
        let Some((entries, revision)) = self.begin(store, &keys, end, pump, process)? else {
            process.complain("the store did not answer in the time given");
            return Ok(End::Late);
        };
        for entry in &entries {
            self.entry(entry, "present", pump)?;
        }
        let crew: Crew<News> = Crew::new()?;
        let mut follower = store.again()?;
        crew.follow(move |stop, tell| follower.follow(&keys, revision, stop, tell))?;
        let mut waiting = std::collections::VecDeque::new();
        loop {
            // A slow reader holds the news back; it loses none.
            while !pump.stream.is_waiting()
                && let Some(news) = waiting.pop_front()
            {
                self.tell(news, pump, process)?;
            }
            let woken = {
                let fds: Vec<_> = waiting.is_empty().then(|| crew.as_fd()).into_iter().collect();
                // While it writes, there is nothing else to wait for but the moment when it has written.
                let soon = (!waiting.is_empty()).then(|| clock::boot().after(Duration::from_millis(20)));
                pump.wait(&fds, [end, soon].into_iter().flatten().min())?
            };
            match woken {
                Woken::Signal(signal) => return Ok(End::Signal(signal)),
                Woken::Ready(_) if end.is_some_and(|end| clock::boot() >= end) => return Ok(ended()),
                Woken::Ready(ready) if ready.first() == Some(&true) => waiting.extend(crew.take()),
                Woken::Ready(_) => {}
            }
        }
    }

    /// What is there; asked until the store answers.
    fn begin(
        &mut self,
        store: &mut dyn Store,
        keys: &Keys,
        end: Option<Tick>,
        pump: &mut Pump,
        process: &Process,
    ) -> Result<Option<(Vec<Entry>, u64)>, Failure> {
        let mut is_told = false;
        loop {
            let until = clock::boot().after(TRY);
            match store.run(&Transaction::get(keys.clone()), end.map_or(until, |end| end.min(until))) {
                Ok(outcome) => {
                    self.backing = Backing::of(store.replicas(clock::boot().after(TRY)));
                    let revision = outcome.revision;
                    return Ok(Some((outcome.first(), revision)));
                }
                Err(Trouble::Away { why, .. }) => {
                    if !std::mem::replace(&mut is_told, true) {
                        process.complain(&format!("the store does not answer: {why} (goes on asking)"));
                    }
                }
                Err(trouble) => return Err(trouble.failure("watch", &self.flags.prefix)),
            }
            let next = clock::boot().after(RETRY);
            match pump.wait(&[], Some(end.map_or(next, |end| end.min(next))))? {
                Woken::Signal(signal) => {
                    pump.die(signal);
                    return Ok(None);
                }
                Woken::Ready(_) if end.is_some_and(|end| clock::boot() >= end) => return Ok(None),
                Woken::Ready(_) => {}
            }
        }
    }

    fn tell(&self, news: News, pump: &mut Pump, process: &Process) -> Result<(), Failure> {
        match news {
            News::Changes(changes) => {
                for change in &changes {
                    match change {
                        Change::Put(entry) => self.entry(entry, "put", pump)?,
                        Change::Deleted { key, revision } if !self.flags.records => {
                            let head = Head::new("store.watch").about(String::from_utf8_lossy(key));
                            let body = Key::absent(*revision, self.backing).event("deleted");
                            pump.stream.record(head, &body)?;
                        }
                        Change::Deleted { .. } => {}
                    }
                }
                Ok(())
            }
            News::Overrun(entries, revision) => {
                process.complain("changes were lost, since the store has forgotten them: what is there follows");
                if !self.flags.records {
                    let body = Key::absent(revision, self.backing).event("overrun");
                    pump.stream.record(Head::new("store.watch").about(&self.flags.prefix), &body)?;
                }
                entries.iter().try_for_each(|entry| self.entry(entry, "present", pump))
            }
            News::Silent(why) => {
                process.complain(&format!("the store does not answer: {why} (goes on asking)"));
                Ok(())
            }
            News::Back => {
                process.complain("the store answers again");
                Ok(())
            }
            News::Failed(failure) => Err(failure),
        }
    }

    fn entry(&self, entry: &Entry, event: &'static str, pump: &mut Pump) -> Result<(), Failure> {
        if !self.flags.records {
            let head = Head::new("store.watch").about(entry.name());
            return pump.stream.record(head, &Key::of(entry, self.backing).event(event));
        }
        // What others keep below the same prefix is no record.
        match std::str::from_utf8(&entry.value).map(|text| from_store(text, clock::boot())) {
            Ok(Ok(line)) => pump.stream.pass(&line),
            _ => Ok(()),
        }
    }
}
