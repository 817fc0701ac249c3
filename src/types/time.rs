//! Time as values. Only `sys::clock` reads a clock; everything else is told.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A point on `CLOCK_BOOTTIME`: time since this machine started, suspend included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(pub(crate) Duration);

impl Tick {
    /// The time from `earlier` to here; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Tick) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This point, `later` on.
    pub(crate) fn after(self, later: Duration) -> Tick {
        Tick(self.0.saturating_add(later))
    }

    /// Milliseconds since boot, with three decimals.
    pub(crate) fn as_ms(self) -> f64 {
        millis(self.0)
    }

    /// A point that a record gives in milliseconds since boot; `None` for what can be none.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded
    pub(crate) fn from_ms(ms: f64) -> Option<Tick> {
        (ms.is_finite() && (0.0..1e15).contains(&ms)).then(|| Tick(Duration::from_micros((ms * 1000.0) as u64)))
    }
}

/// A duration in milliseconds, cut to three decimals: the form of every `_ms` key.
pub(crate) fn millis(duration: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss)] // exact below 285 years of microseconds
    let micros = duration.as_micros() as f64;
    micros / 1000.0
}

/// A point of wall-clock time, printed as RFC 3339 in UTC with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WallTime {
    /// Microseconds since 1970-01-01T00:00:00Z.
    pub(crate) unix_us: i64,
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, micros) = (self.unix_us.div_euclid(1_000_000), self.unix_us.rem_euclid(1_000_000));
        let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl FromStr for WallTime {
    type Err = String;

    /// Reads RFC 3339 with any fraction and any offset; digits beyond microseconds are cut.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || -> Option<i64> {
            let number = |range: std::ops::Range<usize>| -> Option<i64> {
                let digits = text.get(range)?;
                digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
            };
            let marks = [(4, "-"), (7, "-"), (13, ":"), (16, ":")];
            if !marks.iter().all(|(at, mark)| text.get(*at..at + 1) == Some(mark)) {
                return None;
            }
            matches!(text.get(10..11)?, "T" | "t" | " ").then_some(())?;
            let (month, day) = (number(5..7)?, number(8..10)?);
            let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
            let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
            fits.then_some(())?;
            let mut rest = text.get(19..)?;
            let mut micros = 0;
            if let Some(fraction) = rest.strip_prefix('.') {
                let digits = fraction.find(|c: char| !c.is_ascii_digit())?;
                let cut = fraction.get(..digits.min(6)).filter(|cut| !cut.is_empty())?;
                micros = format!("{cut:0<6}").parse().ok()?;
                rest = fraction.get(digits..)?;
            }
            let offset = match rest {
                "Z" | "z" => 0,
                _ => {
                    let sign = if rest.starts_with('-') { -1 } else { rest.strip_prefix('+').map(|_| 1)? };
                    let (hours, minutes) = rest.get(1..)?.split_once(':')?;
                    sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60)
                }
            };
            let days = days(number(0..4)?, month, day);
            Some((days * 86_400 + hour * 3600 + minute * 60 + second - offset) * 1_000_000 + micros)
        };
        let unix_us = read().ok_or_else(|| format!("'{text}' is not a time (RFC 3339: 2026-01-31T23:59:59Z)"))?;
        Ok(WallTime { unix_us })
    }
}

/// The day counted from 1970-01-01 of a proleptic Gregorian date (Hinnant, `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The proleptic Gregorian date of a day counted from 1970-01-01 (Hinnant, "chrono-compatible
/// low-level date algorithms", `civil_from_days`: years start in March, eras have 146,097 days).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A duration as an operator writes it: `50ms`, `3s`, `1m30s`, `0s`.
///
/// No blanks, no fraction, and never a bare number: `--timeout 5` has been read as seconds by one
/// tool and as milliseconds by the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

const UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a duration (50ms, 3s, 1m30s; a unit is needed)");
        let (mut rest, mut total) = (text, 0u64);
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor));
            total = part.and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
            rest = tail;
        }
        Ok(Span(Duration::from_micros(total)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        if left == 0 {
            return f.write_str("0s");
        }
        for (name, factor) in UNITS {
            if left >= factor {
                write!(f, "{}{name}", left / factor)?;
                left %= factor;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_prints_as_rfc_3339() {
        for (unix_us, printed) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_795_992_271_853_505, "2026-11-29T22:44:31.853505Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (4_102_444_799_999_999, "2099-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(WallTime { unix_us }.to_string(), printed);
            assert_eq!(printed.parse::<WallTime>().unwrap(), WallTime { unix_us });
        }
        for (text, same) in [
            ("2026-11-29T23:44:31.8535+01:00", "2026-11-29T22:44:31.853500Z"),
            ("2026-11-29T22:44:31Z", "2026-11-29T22:44:31.000000Z"),
        ] {
            assert_eq!(text.parse::<WallTime>().unwrap().to_string(), same);
        }
        for text in ["", "2026-11-29", "2026-11-29T22:44:31", "2026-13-29T22:44:31Z", "2026-11-29T22:44:31.Z\u{e9}"] {
            assert!(text.parse::<WallTime>().is_err(), "{text}");
        }
    }

    #[test]
    fn wall_time_reads_as_it_prints() {
        for unix_us in [0, 951_782_400_000_000, 1_795_992_271_853_505, -1, 4_102_444_799_999_999] {
            let time = WallTime { unix_us };
            assert_eq!(time.to_string().parse::<WallTime>().unwrap(), time);
        }
        assert_eq!("1970-01-01T00:00:01Z".parse::<WallTime>().unwrap().unix_us, 1_000_000);
        assert_eq!("1970-01-01T00:00:01.5Z".parse::<WallTime>().unwrap().unix_us, 1_500_000);
        for text in [
            "",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00",
            "x",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.é00000Z",
        ] {
            assert!(text.parse::<WallTime>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_reads_and_prints_in_the_same_words() {
        for text in ["50ms", "3s", "1m30s", "0s", "2h", "1d1us", "250us"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "1m30s");
    }

    #[test]
    fn a_bare_number_is_no_duration() {
        for text in
            ["", "5", "1.5s", "5 s", "s", "-1s", "+1s", "5x", "99999999999999999999s", "213503982334602d", "1s2"]
        {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_earlier_tick_is_no_time_ago() {
        let (early, late) = (Tick(Duration::from_secs(1)), Tick(Duration::from_secs(3)));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
