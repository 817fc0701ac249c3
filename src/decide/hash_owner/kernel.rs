//! Which kernel has which selector, and what it computes there.

use super::Algo;
use super::jhash::Generation;
use std::fmt;
use std::str::FromStr;

/// A kernel's version, as far as a hash can depend on it: `6.1`, `2.6.24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kernel {
    major: u16,
    minor: u16,
    patch: u16,
}

impl Kernel {
    const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Kernel { major, minor, patch }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

impl FromStr for Kernel {
    type Err = String;

    /// Takes a version (`3.10`, `2.6.24`), all that `uname -r` prints
    /// (`3.10.0-1160.el7.x86_64`), or `el7`.
    ///
    /// RHEL 7 kept the hash of its 3.10 (seen in 3.10.0-1127 and 3.10.0-1160), so the version
    /// answers for it as well.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "el7" {
            return Ok(Kernel::new(3, 10, 0));
        }
        let wrong = || format!("'{text}' is not a kernel version (3.10, 2.6.24, el7)");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (version, release) = text.split_at(digits);
        if !release.is_empty() && !release.starts_with(['-', '+', '_']) {
            return Err(wrong());
        }
        let mut numbers = version.split('.').map(str::parse::<u16>);
        let mut next = || numbers.next().transpose().map_err(|_| wrong());
        match (next()?, next()?, next()?) {
            (Some(major), Some(minor), patch) => Ok(Kernel::new(major, minor, patch.unwrap_or(0))),
            _ => Err(wrong()),
        }
    }
}

/// lookup3 came with this kernel.
const LOOKUP3: Kernel = Kernel::new(2, 6, 38);
/// The short forms count their words from this one on.
const COUNTED: Kernel = Kernel::new(4, 1, 0);

/// What CLUSTERIP of one era takes as ports, and how it cuts the hash down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Era {
    pub(crate) generation: Generation,
    pub(crate) ports: PortRule,
    pub(crate) reduction: Reduction,
}

/// Where CLUSTERIP finds its two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortRule {
    /// TCP and UDP by number, ICMP by echo id; 2.6.11 to 2.6.17.
    Natural,
    /// The first four bytes of the header as they lie there, of ICMP too; 2.6.18 to 2.6.36.
    /// UDP-Lite belongs to it from 2.6.21 on.
    Raw { udplite: bool },
    /// As they lie there, by the kernel's table of port offsets: no ICMP, but ESP and AH; from 2.6.37.
    ByTable,
}

/// How a hash becomes a number below the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// The remainder: the low bits decide.
    Modulo,
    /// The high half of hash × total: the high bits decide (`reciprocal_scale`).
    Scale,
}

impl Reduction {
    /// A number from 0 to `total` - 1; 0 where `total` is 0.
    #[inline]
    pub(crate) fn below(self, hash: u32, total: u32) -> u32 {
        match self {
            Reduction::Modulo => hash.checked_rem(total).unwrap_or(0),
            #[allow(clippy::cast_possible_truncation)] // the high half has 32 bits
            Reduction::Scale => ((u64::from(hash) * u64::from(total)) >> 32) as u32,
        }
    }
}

/// The first and the last kernel that have `algo`; no last one where it is still there.
pub(crate) fn lifetime(algo: Algo) -> (Kernel, Option<Kernel>) {
    match algo {
        Algo::Nft => (Kernel::new(4, 9, 0), None),
        Algo::XtCluster => (Kernel::new(2, 6, 30), None),
        Algo::Clusterip => (Kernel::new(2, 6, 11), Some(Kernel::new(6, 2, u16::MAX))),
        Algo::Hmark => (Kernel::new(3, 5, 0), None),
    }
}

/// What `kernel` calls jhash; the newest where none is named.
pub(crate) fn generation(kernel: Option<Kernel>) -> Generation {
    match kernel {
        Some(kernel) if kernel < LOOKUP3 => Generation::Lookup2,
        Some(kernel) if kernel < COUNTED => Generation::EarlyLookup3,
        _ => Generation::Lookup3,
    }
}

/// The era of CLUSTERIP that `kernel` belongs to; the last one where none is named.
///
/// All nodes of one cluster must be of one era: elsewhere two nodes, or none, answer a client.
pub(crate) fn era(kernel: Option<Kernel>) -> Era {
    let (ports, reduction) = match kernel {
        Some(kernel) if kernel < Kernel::new(2, 6, 18) => (PortRule::Natural, Reduction::Modulo),
        Some(kernel) if kernel < Kernel::new(2, 6, 21) => (PortRule::Raw { udplite: false }, Reduction::Modulo),
        Some(kernel) if kernel < Kernel::new(2, 6, 25) => (PortRule::Raw { udplite: true }, Reduction::Modulo),
        Some(kernel) if kernel < Kernel::new(2, 6, 37) => (PortRule::Raw { udplite: true }, Reduction::Scale),
        _ => (PortRule::ByTable, Reduction::Scale),
    };
    Era { generation: generation(kernel), ports, reduction }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_as_uname_prints_it() {
        for (text, printed) in [
            ("3.10", "3.10"),
            ("el7", "3.10"),
            ("2.6.24", "2.6.24"),
            ("2.6.24.7", "2.6.24"),
            ("3.10.0-1160.el7.x86_64", "3.10"),
            ("6.1.0-18-amd64", "6.1"),
            ("6.18.2+", "6.18.2"),
        ] {
            assert_eq!(text.parse::<Kernel>().unwrap().to_string(), printed);
        }
        for text in ["", "6", "6.", ".6", "six", "6.x", "el9", "-6.1", "6.1 ", "99999.1", "6.1rc1"] {
            assert!(text.parse::<Kernel>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_generation_begins_where_the_sources_say() {
        for (kernel, wanted) in [
            ("2.6.37", Generation::Lookup2),
            ("2.6.38", Generation::EarlyLookup3),
            ("3.10.0-1160.el7.x86_64", Generation::EarlyLookup3),
            ("4.0.5", Generation::EarlyLookup3),
            ("4.1", Generation::Lookup3),
            ("6.18", Generation::Lookup3),
        ] {
            assert_eq!(generation(Some(kernel.parse().unwrap())), wanted, "{kernel}");
        }
        assert_eq!(generation(None), Generation::Lookup3);
    }

    #[test]
    fn each_era_of_clusterip_begins_where_the_sources_say() {
        let of = |kernel: &str| era(Some(kernel.parse().unwrap()));
        for (first, last) in
            [("2.6.11", "2.6.17"), ("2.6.21", "2.6.24"), ("2.6.25", "2.6.36"), ("2.6.38", "4.0.9"), ("4.1", "6.2.16")]
        {
            assert_eq!(of(first), of(last), "{first} to {last}");
        }
        for (before, after) in
            [("2.6.17", "2.6.18"), ("2.6.24", "2.6.25"), ("2.6.36", "2.6.37"), ("2.6.37", "2.6.38"), ("4.0", "4.1")]
        {
            assert_ne!(of(before), of(after), "{before} and {after}");
        }
        assert_eq!(of("2.6.20").ports, PortRule::Raw { udplite: false });
        assert_eq!(era(None), of("6.2"));
    }
}
