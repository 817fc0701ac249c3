//! Runs in turn, their medians, and how they are told.

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Took {
    /// As a run that does `times` as much would take.
    pub(crate) fn scaled(self, times: u32) -> Took {
        Took { wall: self.wall * times, cpu: self.cpu * times }
    }
}

/// CPU time of all children that have ended, theirs and the kernel's for them.
fn children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    [usage.user_time(), usage.system_time()]
        .into_iter()
        .map(|time| Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap()))
        .sum()
}

/// Runs a command from start to end. One at a time: CPU time is that of all children.
pub(crate) fn run(command: &mut Command) -> (Took, ExitStatus) {
    let before = children();
    let started = Instant::now();
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let wall = started.elapsed();
    (Took { wall, cpu: children().saturating_sub(before) }, status)
}

/// The same; it must succeed.
pub(crate) fn run_well(command: &mut Command) -> Took {
    let (took, status) = run(command);
    assert!(status.success(), "{command:?}: {status}");
    took
}

/// Many pairs of runs, ours and the peer's in turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(Vec<(Took, Took)>);

impl Pairs {
    /// Runs each once unmeasured, then `count` pairs.
    pub(crate) fn measure(count: usize, mut ours: impl FnMut() -> Took, mut peer: impl FnMut() -> Took) -> Pairs {
        ours();
        peer();
        Pairs((0..count).map(|_| (ours(), peer())).collect())
    }

    fn column(&self, what: impl Fn(&(Took, Took)) -> f64) -> Spread {
        Spread::of(self.0.iter().map(what).collect())
    }
}

/// A median with its quartiles.
#[derive(Clone, Copy, Debug)]
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |quarter: usize| f64::midpoint(values[last * quarter / 4], values[(last * quarter).div_ceil(4)]);
        Spread { low: at(1), median: at(2), high: at(3) }
    }
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    Misses,
    /// There is no bar: told, not judged.
    Told,
}

/// The report: a table for eyes, raw figures for a file.
#[derive(Debug)]
pub(crate) struct Report {
    raw: Option<File>,
    missed: Vec<String>,
    headed: bool,
}

impl Report {
    pub(crate) fn new(raw: Option<File>) -> Report {
        Report { raw, missed: Vec::new(), headed: false }
    }

    /// The rows that missed their bar.
    pub(crate) fn missed(&self) -> &[String] {
        &self.missed
    }

    pub(crate) fn raw(&mut self, value: &Value) {
        if let Some(file) = &mut self.raw {
            writeln!(file, "{value}").unwrap();
        }
    }

    /// Ratios of wall and of CPU time, against a bar for both, one for wall time alone, or none.
    pub(crate) fn pairs(&mut self, row: &str, pairs: &Pairs, wall: Option<f64>, cpu: Option<f64>, note: &str) {
        for (number, (ours, peer)) in pairs.0.iter().enumerate() {
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            self.raw(&json!({"kind": "bench.pair", "row": row, "pair": number + 1,
                "ours": {"wall_ms": ms(ours.wall), "cpu_ms": ms(ours.cpu)},
                "peer": {"wall_ms": ms(peer.wall), "cpu_ms": ms(peer.cpu)}}));
        }
        let seconds = |duration: Duration| duration.as_secs_f64();
        self.line(
            row,
            "wall",
            [pairs.column(|pair| seconds(pair.0.wall)), pairs.column(|pair| seconds(pair.1.wall))],
            pairs.column(|pair| seconds(pair.0.wall) / seconds(pair.1.wall)),
            wall,
            &format!("{} pairs{note}", pairs.0.len()),
        );
        self.line(
            row,
            "cpu",
            [pairs.column(|pair| seconds(pair.0.cpu)), pairs.column(|pair| seconds(pair.1.cpu))],
            // A run too short for the kernel to count is one microsecond, not none.
            pairs.column(|pair| seconds(pair.0.cpu).max(1e-6) / seconds(pair.1.cpu).max(1e-6)),
            cpu,
            "",
        );
    }

    fn line(&mut self, row: &str, what: &str, times: [Spread; 2], ratio: Spread, bar: Option<f64>, note: &str) {
        let verdict = match bar {
            None => Verdict::Told,
            Some(bar) if ratio.median <= bar => Verdict::Holds,
            Some(_) => Verdict::Misses,
        };
        self.raw(&json!({"kind": "bench.row", "row": row, "what": what, "ratio": ratio.median,
            "ratio_quartiles": [ratio.low, ratio.high], "bar": bar, "ours_s": times[0].median,
            "peer_s": times[1].median, "note": note}));
        self.head();
        let mut text = format!(
            "{row:<20} {what:<5} {:>10} {:>10} {:>7} {:>15}",
            short(times[0].median),
            short(times[1].median),
            figure(ratio.median),
            format!("{} to {}", figure(ratio.low), figure(ratio.high)),
        );
        let _ = write!(text, " {:>6} {:<6} {note}", bar.map_or("-".to_owned(), figure), word(verdict));
        print(&text);
        if verdict == Verdict::Misses {
            self.missed.push(format!("{row} {what}"));
        }
    }

    /// A figure that has no peer: a limit that holds or not, or a fact that is told.
    pub(crate) fn fact(&mut self, row: &str, what: &str, value: &str, holds: Option<bool>, raw: &Value) {
        let verdict = match holds {
            None => Verdict::Told,
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Misses,
        };
        self.raw(&json!({"kind": "bench.fact", "row": row, "what": what, "value": value, "holds": holds, "raw": raw}));
        self.head();
        print(format!("{row:<20} {what}: {value} {}", word(verdict)).trim_end());
        if verdict == Verdict::Misses {
            self.missed.push(format!("{row} {what}"));
        }
    }

    fn head(&mut self) {
        if !std::mem::replace(&mut self.headed, true) {
            print(&format!(
                "{:<20} {:<5} {:>10} {:>10} {:>7} {:>15} {:>6} {:<6} {}",
                "ROW", "OF", "OURS", "PEER", "RATIO", "QUARTILES", "BAR", "", "NOTE"
            ));
        }
    }
}

/// Prints a line; that the reader has left ends the bench.
pub(crate) fn print(text: &str) {
    std::io::stdout().lock().write_all(format!("{}\n", text.trim_end()).as_bytes()).unwrap();
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Misses => "MISSES",
        Verdict::Told => "",
    }
}

/// A duration that fits a column.
fn short(seconds: f64) -> String {
    match seconds {
        s if s >= 10.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.2} ms", s * 1e3),
    }
}

fn figure(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}
