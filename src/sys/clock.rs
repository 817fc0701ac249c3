//! The only reader of time.

use crate::types::time::{Tick, WallTime};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Now on `CLOCK_BOOTTIME`, which goes on through suspend and never steps.
///
/// `CLOCK_MONOTONIC` stands still in suspend: a peer would look alive for as long as we slept.
pub(crate) fn boot() -> Tick {
    // The clock exists since Linux 2.6.39; this call has no other way to fail.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Tick::default(), |now| Tick(Duration::from(now)))
}

/// Now on the wall clock: for records and people, never for a decision.
pub(crate) fn wall() -> WallTime {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map_or((0, 0), |now| (now.tv_sec(), now.tv_nsec()));
    WallTime { unix_us: now.0 * 1_000_000 + now.1 / 1000 }
}

/// When something happened that the kernel stamped with the wall clock, on our own clock: not after
/// `now`, and not before `earliest`, since the wall clock may have stepped meanwhile.
pub(crate) fn since_stamp(stamp: Duration, earliest: Tick, now: Tick) -> Tick {
    let wall = Duration::from_micros(u64::try_from(wall().unix_us).unwrap_or(0));
    let age = wall.saturating_sub(stamp);
    Tick(now.0.saturating_sub(age)).clamp(earliest.min(now), now)
}

/// Sleeps until a point; at once if it has passed.
pub(crate) fn sleep_until(tick: Tick) {
    loop {
        let left = tick.since(boot());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}

/// The kernel's name for this boot; points of `boot()` mean nothing in another.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// The point at which a run ends undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(Tick);

impl Deadline {
    pub(crate) fn after(span: Duration) -> Self {
        Deadline(boot().after(span))
    }

    pub(crate) fn at(tick: Tick) -> Self {
        Deadline(tick)
    }

    /// The time that is left; zero once it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.since(boot())
    }

    pub(crate) fn tick(self) -> Tick {
        self.0
    }
}
