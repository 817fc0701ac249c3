//! Progress, on a terminal's standard error only, for work that takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A bar that appears once the work has taken a second.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    what: &'static str,
    started: Instant,
}

impl Progress {
    const PATIENCE: Duration = Duration::from_secs(1);

    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        Progress { bar: None, total, what, started: Instant::now() }
    }

    /// So much of it is done.
    pub(crate) fn at(&mut self, done: u64) {
        if self.bar.is_none() && self.started.elapsed() > Self::PATIENCE && std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} {pos}/{len} [{bar:30}] {eta}") {
                bar.set_style(style);
            }
            bar.set_message(self.what);
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
