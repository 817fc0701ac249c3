//! Standard input: a file by several threads in order, anything else as soon as it comes.

use super::flows::{Flows, Tally};
use crate::cli::input::Complaints;
use crate::cli::out::Form;
use crate::cli::{Exit, Failure, Process};
use crate::record::Head;
use crate::record::line::MAX_LINE;
use crate::sys::blocks::{self, Blocks, Input};
use crate::sys::clock;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More threads than this wait for each other's turn to write.
const MOST_THREADS: usize = 8;

/// Answers for all of standard input.
pub(super) fn standard_input(flows: &Flows, tally: &mut Tally, process: &mut Process) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new(&process.who);
    match blocks::stdin(MAX_LINE)? {
        Input::File(file) => {
            in_threads(&file, flows, tally, process, &mut complaints)?;
            file.finish()?;
        }
        Input::Stream(mut stream) => {
            let deadline = process.stream_deadline();
            let mut step = Step::new(tally);
            while let Some(bytes) = stream.next(deadline)? {
                step.work(flows, bytes);
                step.conclude(flows, tally, process, &mut complaints)?;
                // What is finished is never held while more is waited for.
                process.out.flush()?;
                if process.out.is_gone() {
                    break;
                }
            }
        }
    }
    Ok(complaints.finish())
}

/// What one block became.
#[derive(Debug)]
struct Step {
    lines: Vec<u8>,
    tally: Tally,
}

impl Step {
    fn new(sum: &Tally) -> Self {
        Step { lines: Vec::new(), tally: Tally::of_buckets(sum.counts.len()) }
    }

    /// Answers for a block of whole lines. Its records have one time.
    fn work(&mut self, flows: &Flows, bytes: &[u8]) {
        self.lines.clear();
        self.tally.clear();
        flows.lines(bytes, &flows.block(clock::wall()), &mut self.lines, &mut self.tally);
    }

    /// Hands the records over and tells what was malformed, in the order of input.
    fn conclude(
        &self,
        flows: &Flows,
        tally: &mut Tally,
        process: &mut Process,
        complaints: &mut Complaints,
    ) -> Result<(), Failure> {
        for (number, why) in &self.tally.malformed {
            complaints.line(tally.lines + number, why);
        }
        tally.add(&self.tally);
        flows.warn(tally, process);
        hand_over(flows, &self.lines, process)
    }
}

/// Prints lines that are whole records already; for a person, as rows.
pub(super) fn hand_over(flows: &Flows, lines: &[u8], process: &mut Process) -> Result<(), Failure> {
    let Form::Table(_) = process.form else { return process.out.whole_lines(lines) };
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
        process.out.record(&Head::new(flows.kind()), &row)?;
    }
    Ok(())
}

/// The end of the queue for standard output.
struct Turn<'p> {
    /// The block whose turn it is.
    next: u64,
    tally: &'p mut Tally,
    process: &'p mut Process,
    complaints: &'p mut Complaints,
    /// Why everybody stops: the reader left, or something failed.
    ended: Option<Result<(), Failure>>,
}

/// Each thread takes the next block, answers for it, and waits for its turn to write.
fn in_threads(
    file: &Blocks,
    flows: &Flows,
    tally: &mut Tally,
    process: &mut Process,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let count = file.count();
    let cores = if count > 1 { std::thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    let threads = cores.min(MOST_THREADS).min(usize::try_from(count).unwrap_or(MOST_THREADS));
    let steps: Vec<Step> = (0..threads).map(|_| Step::new(tally)).collect();
    let taken = AtomicU64::new(0);
    let turn = Mutex::new(Turn { next: 0, tally, process, complaints, ended: None });
    let changed = Condvar::new();
    let work = |mut step: Step| {
        let mut buffer = Vec::new();
        loop {
            let idx = taken.fetch_add(1, Ordering::Relaxed);
            if idx >= count {
                return;
            }
            let read = file.read(idx, &mut buffer).map(|bytes| step.work(flows, bytes));
            let mut turn = locked(&turn);
            while turn.next < idx && turn.ended.is_none() {
                turn = changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
            if turn.ended.is_some() {
                return;
            }
            let Turn { tally, process, complaints, .. } = &mut *turn;
            let done = read.map_err(Failure::from).and_then(|()| step.conclude(flows, tally, process, complaints));
            if done.is_err() || turn.process.out.is_gone() {
                turn.ended = Some(done);
            }
            turn.next = idx + 1;
            drop(turn);
            changed.notify_all();
        }
    };
    std::thread::scope(|scope| {
        let mut steps = steps.into_iter();
        let own = steps.next();
        for step in steps {
            // Where no more threads are to be had, those that there are do the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || work(step));
        }
        if let Some(step) = own {
            work(step);
        }
    });
    let turn = turn.into_inner().unwrap_or_else(PoisonError::into_inner);
    turn.ended.unwrap_or(Ok(()))
}

fn locked<'l, 'p>(turn: &'l Mutex<Turn<'p>>) -> MutexGuard<'l, Turn<'p>> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}
