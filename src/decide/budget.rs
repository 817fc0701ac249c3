//! How long a fail-over by DNS takes on paper, phase by phase.
//!
//! A cache that honours what is left of a TTL adds nothing to the one before it; only those that do not are
//! phases of their own. Sources: RFC 1035 §3.2.1 (TTL), RFC 2308 §5 (negative answers), RFC 8767 §4 (stale
//! answers), and the defaults of each runtime, which its own manual names.

use super::monitor::Settings;
use std::time::Duration;

/// One phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) min: Duration,
    /// `None`: for ever.
    pub(crate) max: Option<Duration>,
    /// Where the figures are from.
    pub(crate) from: String,
}

/// A program that keeps addresses by a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// It asks the system each time.
    Nothing,
    For(Duration),
    /// Until it ends.
    Forever,
}

/// What is known of the parts.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) monitor: Settings,
    /// The fault answers at once: a refusal, a reset.
    pub(crate) refuses: bool,
    /// From the decision until every authoritative server has it.
    pub(crate) propagation: Duration,
    pub(crate) ttl: Duration,
    /// Resolvers keep it at least so long, whatever it says.
    pub(crate) floor: Duration,
    /// Resolvers answer with what has expired while they look: for how long that may be kept.
    pub(crate) stale: Duration,
    /// How long "it has no address" may be kept: the lower of the SOA's TTL and its MINIMUM.
    pub(crate) negative: Duration,
    /// While all are down the answer has no address.
    pub(crate) empty: bool,
    pub(crate) system: Keeps,
    pub(crate) runtime: Keeps,
    /// How long an open connection takes to notice, where that counts.
    pub(crate) connection: Option<Duration>,
}

/// The phases, and their sum; connections that are open already and the way back stand for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) phases: Vec<Phase>,
    pub(crate) min: Duration,
    pub(crate) max: Option<Duration>,
}

/// Caches count whole seconds: what came at the end of one is kept to the end of its last (measured with Unbound).
const TICK: Duration = Duration::from_secs(1);

pub(crate) fn budget(parts: &Parts) -> Budget {
    let monitor = &parts.monitor;
    let (needed, silence) = (monitor.fall.needed(), monitor.response_timeout);
    let (least, most, why) = if parts.refuses {
        (Duration::ZERO, monitor.interval, "a refusal counts at once; a probe each interval".to_owned())
    } else {
        let (least, most) = monitor.detection(silence);
        (least, most, format!("{needed} silent probes in a row, each given up after {} s", silence.as_secs_f64()))
    };
    let phase = |name, min, max, from: String| Phase { name, min, max, from };
    let ticked = |kept: Duration| if kept.is_zero() { kept } else { kept + TICK };
    let cached = ticked(parts.ttl.max(parts.floor)) + parts.stale;
    let by = match (parts.floor > parts.ttl, parts.stale.is_zero()) {
        (true, _) => format!("the resolver's floor of {} s", parts.floor.as_secs()),
        (false, _) => format!("a TTL of {} s", parts.ttl.as_secs()),
    };
    let stale = if parts.stale.is_zero() {
        String::new()
    } else {
        format!(", and a stale answer kept for {} s", parts.stale.as_secs())
    };
    let mut phases = vec![
        phase("detection", least, Some(most), why),
        phase(
            "authority",
            Duration::ZERO,
            Some(parts.propagation),
            "until every authoritative server has it".to_owned(),
        ),
        phase("resolver", Duration::ZERO, Some(cached), format!("{by}{stale}, in whole seconds")),
        of_cache("os", parts.system, "the system"),
        of_cache("application", parts.runtime, "the program"),
    ];
    let min = phases.iter().map(|phase| phase.min).sum();
    let max = phases.iter().map(|phase| phase.max).try_fold(Duration::ZERO, |sum, max| Some(sum + max?));
    if let Some(connection) = parts.connection {
        let from = "open connections, until they notice".to_owned();
        phases.push(phase("connection", Duration::ZERO, Some(connection), from));
    }
    // Good probes in a row after the pause, then what is kept of the answer that stood meanwhile.
    let good = monitor.interval.saturating_mul(monitor.success_retries.saturating_sub(1));
    let kept = if parts.empty { ticked(parts.negative) } else { cached };
    let what = if parts.empty { "a negative answer" } else { "the other answer" };
    let back = good + monitor.down_time.max(monitor.interval) + kept;
    let from = format!("the pause after a failure, good probes, and {what} kept for {} s", kept.as_secs());
    phases.push(phase("return", Duration::ZERO, Some(back), from));
    Budget { phases, min, max }
}

fn of_cache(name: &'static str, keeps: Keeps, who: &str) -> Phase {
    let (max, from) = match keeps {
        Keeps::Nothing => (Some(Duration::ZERO), format!("{who} keeps nothing, or what is left of the TTL")),
        Keeps::For(time) => (Some(time), format!("{who} keeps it for {} s, whatever the TTL says", time.as_secs())),
        Keeps::Forever => (None, format!("{who} keeps it until it ends")),
    };
    Phase { name, min: Duration::ZERO, max, from }
}

/// Questions a second at the authority from so many resolvers that always have clients.
pub(crate) fn questions_per_s(resolvers: u32, ttl: Duration) -> Option<f64> {
    (!ttl.is_zero()).then(|| f64::from(resolvers) / ttl.as_secs_f64())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use crate::decide::monitor::Fall;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn parts() -> Parts {
        Parts {
            monitor: Settings {
                interval: s(5),
                fast_interval: None,
                response_timeout: s(2),
                fall: Fall::InARow(3),
                success_retries: 1,
                down_time: s(30),
                valid_for: s(12),
            },
            refuses: false,
            propagation: Duration::ZERO,
            ttl: s(5),
            floor: Duration::ZERO,
            stale: Duration::ZERO,
            negative: s(3600),
            empty: false,
            system: Keeps::Nothing,
            runtime: Keeps::Nothing,
            connection: None,
        }
    }

    fn of(budget: &Budget, name: &str) -> (Duration, Option<Duration>) {
        budget.phases.iter().find(|phase| phase.name == name).map(|phase| (phase.min, phase.max)).unwrap()
    }

    /// The defaults of the vendor boxes: 12 to 17 s of detection, a TTL of 5 s.
    #[test]
    fn the_sum_is_that_of_the_phases() {
        let plain = budget(&parts());
        assert_eq!((of(&plain, "detection"), of(&plain, "resolver")), ((s(12), Some(s(17))), (s(0), Some(s(6)))));
        assert_eq!((plain.min, plain.max), (s(12), Some(s(23))));
        assert_eq!(of(&plain, "return").1, Some(s(36)), "the pause, and the TTL of the other answer");
        let refused = budget(&Parts { refuses: true, ..parts() });
        assert_eq!(of(&refused, "detection"), (s(0), Some(s(5))));
    }

    #[test]
    fn what_is_not_kept_takes_no_second() {
        let none = budget(&Parts { ttl: s(0), ..parts() });
        assert_eq!(of(&none, "resolver").1, Some(s(0)));
    }

    #[test]
    fn who_does_not_honour_the_ttl_adds_to_it() {
        let floor = budget(&Parts { floor: s(60), stale: s(30), ..parts() });
        assert_eq!(of(&floor, "resolver").1, Some(s(91)));
        let java = budget(&Parts { runtime: Keeps::For(s(30)), propagation: s(1), ..parts() });
        assert_eq!(java.max, Some(s(17 + 1 + 6 + 30)));
        let forever = budget(&Parts { runtime: Keeps::Forever, connection: Some(s(900)), ..parts() });
        assert_eq!((forever.max, of(&forever, "connection").1), (None, Some(s(900))));
    }

    /// An answer without an address outlives the TTL of the addresses.
    #[test]
    fn the_way_back_from_an_empty_answer_is_the_soa_s() {
        let empty = budget(&Parts { empty: true, ..parts() });
        assert_eq!(of(&empty, "return").1, Some(s(3631)));
    }

    #[test]
    fn a_low_ttl_has_its_price() {
        assert_eq!(questions_per_s(1000, s(5)), Some(200.0));
        assert_eq!(questions_per_s(1000, s(0)), None, "each client's question");
    }
}
