//! One line in, one answer out: the step that every way of reading shares.

use crate::cli::Process;
use crate::decide::hash_owner::{Answer, ByIpv4Source, Hasher};
use crate::record::hash_owner::{self as record, Block, Move, Verdicts, Writer};
use crate::record::line::{Line, MAX_LINE};
use crate::types::bucket::MAX_TOTAL;
use crate::types::flow::Flow;
use crate::types::time::WallTime;
use crate::wire::flow::{self, Ipv4Lines, RUN};
use std::net::IpAddr;

/// What is printed.
#[derive(Debug)]
pub(super) enum Wanted {
    Records,
    /// The bucket alone.
    Brief,
    /// Counts at the end.
    Summary,
    /// Flows that another node would own.
    Moves {
        from: Verdicts,
        to: Verdicts,
    },
}

/// What is done with each flow; shared by all threads.
#[derive(Debug)]
pub(super) struct Flows {
    hasher: Hasher,
    /// Where the IPv4 source alone decides.
    narrow: Option<ByIpv4Source>,
    writer: Writer,
    wanted: Wanted,
    /// By bucket from 0: the number and a newline, as `--brief` prints it, and their length; none
    /// where more buckets are than any map may have.
    brief: Vec<([u8; 8], usize)>,
}

/// What was counted on the way.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) flows: u64,
    /// By bucket, under `--summary`.
    pub(super) counts: Vec<u64>,
    /// Lines begun, blank ones included.
    pub(super) lines: u64,
    /// Malformed lines by their number from 1, the first few with the reason.
    pub(super) malformed: Vec<(u64, String)>,
    /// Some flow had an IPv6 source.
    pub(super) ipv6: bool,
    warned: bool,
}

impl Tally {
    /// Counts flows by bucket, where there are any buckets to count for.
    pub(super) fn of_buckets(buckets: usize) -> Self {
        Tally { counts: vec![0; buckets], ..Tally::default() }
    }

    /// Adds what a later block counted.
    pub(super) fn add(&mut self, block: &Tally) {
        self.flows += block.flows;
        self.lines += block.lines;
        self.ipv6 |= block.ipv6;
        for (sum, count) in self.counts.iter_mut().zip(&block.counts) {
            *sum += count;
        }
    }

    /// Makes it ready for the next block.
    pub(super) fn clear(&mut self) {
        self.flows = 0;
        self.lines = 0;
        self.malformed.clear();
        self.counts.fill(0);
    }

    fn answered(&mut self, answer: Answer) {
        self.flows += 1;
        count_in(&mut self.counts, answer);
    }
}

impl Flows {
    pub(super) fn new(hasher: Hasher, writer: Writer, wanted: Wanted, total: u32) -> Self {
        let is_ready = matches!(wanted, Wanted::Brief) && total <= u32::from(MAX_TOTAL);
        let brief = if is_ready { (0..=total).map(brief).collect() } else { Vec::new() };
        Flows { narrow: hasher.by_ipv4_source(), hasher, writer, wanted, brief }
    }

    pub(super) fn is_records(&self) -> bool {
        matches!(self.wanted, Wanted::Records)
    }

    /// The kind of the records for each flow.
    pub(super) fn kind(&self) -> &'static str {
        match self.wanted {
            Wanted::Moves { .. } => record::MOVE_SCHEMA.0,
            _ => record::KIND,
        }
    }

    pub(super) fn is_summary(&self) -> bool {
        matches!(self.wanted, Wanted::Summary)
    }

    pub(super) fn is_local(&self, answer: Answer) -> Option<bool> {
        self.writer.verdicts().local(answer.bucket)
    }

    pub(super) fn owner(&self, bucket: u32) -> Option<&str> {
        self.writer.verdicts().owner(bucket)
    }

    /// The writer of records that have `time` in common.
    pub(super) fn block(&self, time: WallTime) -> Block<'_> {
        self.writer.block(time)
    }

    /// Says once what is known to surprise.
    pub(super) fn warn(&self, tally: &mut Tally, process: &Process) {
        if tally.ipv6 && self.hasher.sees_ipv6_by_32_bits() && !tally.warned {
            tally.warned = true;
            process.complain(
                "warning: xt-cluster hashes the first 32 bits of an IPv6 address alone, so that one bucket has all of \
                 a 2001:db8::/32 (the kernel's own fault; nft hashes all of it)",
            );
        }
    }

    /// Answers for a block of whole lines; the last one may lack its newline.
    pub(super) fn lines(&self, bytes: &[u8], block: &Block<'_>, into: &mut Vec<u8>, tally: &mut Tally) {
        let mut at = 0;
        let mut plain = self.narrow.map(Plain::new);
        while at < bytes.len() {
            if let Some(plain) = &mut plain {
                at = self.plain_lines(plain, bytes, at, block, into, tally);
            }
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return;
            }
            let end = memchr::memchr(b'\n', rest);
            let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            at += line.len() + 1;
            tally.lines += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let Err(why) = self.line(line, block, into, tally) {
                let told = tally.malformed.len() < 10;
                tally.malformed.push((tally.lines, if told { why } else { String::new() }));
            }
        }
    }

    /// Answers for the IPv4 addresses from `at` on, up to the first line that is something else;
    /// gives where that begins.
    ///
    /// Reading, hashing and writing by turns over some hundred lines is faster than all three for
    /// each line: every loop is small, and the second one works on several addresses at once.
    fn plain_lines(
        &self,
        plain: &mut Plain,
        bytes: &[u8],
        mut at: usize,
        block: &Block<'_>,
        into: &mut Vec<u8>,
        tally: &mut Tally,
    ) -> usize {
        let Plain { narrow, lines: run, hashes, buckets } = plain;
        let mut records = block.sources();
        loop {
            let (sources, next) = run.read(bytes, at);
            let count = sources.len();
            if count == 0 {
                return at;
            }
            narrow.hash(sources, hashes, buckets);
            tally.lines += count as u64;
            tally.flows += count as u64;
            let answers = hashes.iter().zip(buckets.iter()).take(count).map(|(&hash, &bucket)| Answer { hash, bucket });
            match &self.wanted {
                Wanted::Brief => self.put_many_brief(answers, into),
                Wanted::Summary => answers.for_each(|answer| count_in(&mut tally.counts, answer)),
                Wanted::Moves { .. } => {
                    for (answer, src) in answers.zip(sources) {
                        self.put_move(&Flow::from_source(IpAddr::from(*src)), answer, block, into);
                    }
                }
                Wanted::Records => {
                    for (answer, length) in answers.zip(run.lengths()) {
                        records.put(into, bytes.get(at..).unwrap_or_default(), length, answer);
                        at += length + 1;
                    }
                }
            }
            at = next;
            if count < RUN {
                return at;
            }
        }
    }

    /// Answers for one line that is not blank; `None` where there is no flow in it.
    ///
    /// # Errors
    /// Why the line is malformed, or why its flow has no bucket.
    pub(super) fn line(
        &self,
        line: &[u8],
        block: &Block<'_>,
        into: &mut Vec<u8>,
        tally: &mut Tally,
    ) -> Result<Option<Answer>, String> {
        if line.len() > MAX_LINE {
            return Err(format!("it is longer than {MAX_LINE} bytes"));
        }
        let text = line.trim_ascii();
        let record = if text.first() == Some(&b'{') {
            Some(Line::parse(std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?)?)
        } else {
            None
        };
        let flow = match &record {
            Some(record) => record::flow(record)?,
            None => match flow::parse(line).map_err(|why| why.to_string())? {
                flow::Line::Flow(flow) => Some(flow),
                flow::Line::NoFlow => None,
            },
        };
        let Some(flow) = flow else { return Ok(None) };
        let answer = self.hasher.hash(&flow).map_err(|why| why.to_string())?;
        tally.answered(answer);
        tally.ipv6 |= flow.src.is_ipv6();
        match &self.wanted {
            Wanted::Brief => put_brief(answer, into),
            Wanted::Records => block.flow(into, &flow, answer, record.as_ref()),
            Wanted::Summary => {}
            Wanted::Moves { .. } => self.put_move(&flow, answer, block, into),
        }
        Ok(Some(answer))
    }

    /// The same for a run: eight bytes at once and then back is one store, a copy of just so many
    /// bytes is a call.
    fn put_many_brief(&self, answers: impl Iterator<Item = Answer>, into: &mut Vec<u8>) {
        let mut lines = [0; 8 * RUN];
        let mut end = 0;
        for answer in answers {
            let ready = usize::try_from(answer.bucket).ok().and_then(|bucket| self.brief.get(bucket));
            if let (Some((line, len)), Some(room)) = (ready, lines.get_mut(end..end + 8)) {
                room.copy_from_slice(line);
                end += len;
            } else {
                into.extend_from_slice(lines.get(..end).unwrap_or_default());
                end = 0;
                put_brief(answer, into);
            }
        }
        into.extend_from_slice(lines.get(..end).unwrap_or_default());
    }

    fn put_move(&self, flow: &Flow, answer: Answer, block: &Block<'_>, into: &mut Vec<u8>) {
        let Wanted::Moves { from, to } = &self.wanted else { return };
        let (from, to) = (from.owner(answer.bucket), to.owner(answer.bucket));
        if from != to {
            block.moved(into, flow, &Move { bucket: answer.bucket, from, to });
        }
    }
}

/// Where a run of plain lines goes through its steps.
struct Plain {
    narrow: ByIpv4Source,
    lines: Ipv4Lines,
    hashes: [u32; RUN],
    buckets: [u32; RUN],
}

impl Plain {
    fn new(narrow: ByIpv4Source) -> Self {
        Plain { narrow, lines: Ipv4Lines::new(), hashes: [0; RUN], buckets: [0; RUN] }
    }
}

#[inline]
fn count_in(counts: &mut [u64], answer: Answer) {
    if let Some(count) = usize::try_from(answer.bucket - 1).ok().and_then(|idx| counts.get_mut(idx)) {
        *count += 1;
    }
}

fn put_brief(answer: Answer, into: &mut Vec<u8>) {
    record::decimal(into, answer.bucket);
    into.push(b'\n');
}

/// A bucket of a map as a line.
fn brief(bucket: u32) -> ([u8; 8], usize) {
    let text = format!("{bucket}\n");
    let mut line = [0; 8];
    for (to, from) in line.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    (line, text.len())
}
