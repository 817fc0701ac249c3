//! The one table of exit statuses.

/// How a run ends. An answer is never dressed as a failure, nor a failure as an answer, and
/// nothing looks like OCF's 7, 8 or 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Yes, up, mine, done (changed or not).
    Yes,
    /// A clear no: down, not mine, nothing selectable, conflict, they disagree.
    No,
    /// The command line is wrong.
    Usage,
    /// Not permitted; the missing capability is named.
    NotPermitted,
    /// Missing on this host: a program, an interface, a kernel feature.
    Missing,
    /// Input or configuration is wrong: a malformed line, a torn state file, a wrong key.
    BadInput,
    /// A fault of our own (sysexits' `EX_SOFTWARE`): a panic ends so.
    Bug,
    /// The system refused: errno and the call are told.
    Refused,
    /// It could not be found out in the time given; a lock was not had.
    Undecided,
    /// A lock was lost.
    Lost,
    /// A status of another program's dialect, which `--exit` asked for.
    Foreign(u8),
}

/// The statuses of a program that runs ours, where it does not know our table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    /// 0 up, 2 down, 3 unknown or failed (Monitoring Plugins' guidelines, §2.3)
    Nagios,
    /// 0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)
    Ocf,
}

impl Dialect {
    pub(crate) fn of(self, exit: Exit) -> Exit {
        Exit::Foreign(match (self, exit) {
            (_, Exit::Yes) => 0,
            (Dialect::Nagios, Exit::No) => 2,
            (Dialect::Nagios, _) => 3,
            (Dialect::Ocf, Exit::No) => 7,
            (Dialect::Ocf, Exit::Usage | Exit::NotPermitted | Exit::Missing) => exit.code(),
            // Never 6, which stops the resource on every node.
            (Dialect::Ocf, _) => 1,
        })
    }
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::NotPermitted => 4,
            Exit::Missing => 5,
            Exit::BadInput => 6,
            Exit::Bug => 70,
            Exit::Refused => 71,
            Exit::Undecided => 75,
            Exit::Lost => 76,
            Exit::Foreign(code) => code,
        }
    }

    /// The status of several items together: the first of 71, 4, 5, 6, 75, 1, 0 that occurred.
    #[must_use]
    pub fn and(self, other: Exit) -> Exit {
        if self.rank() <= other.rank() { self } else { other }
    }

    fn rank(self) -> u8 {
        match self {
            Exit::Bug => 0,
            Exit::Refused => 1,
            Exit::NotPermitted => 2,
            Exit::Missing => 3,
            Exit::BadInput => 4,
            Exit::Usage => 5,
            Exit::Lost => 6,
            Exit::Undecided => 7,
            Exit::No => 8,
            Exit::Yes | Exit::Foreign(_) => 9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Exit};

    #[test]
    fn a_dialect_tells_the_three_answers_apart() {
        let told = |dialect: Dialect| {
            [Exit::Yes, Exit::No, Exit::Undecided, Exit::BadInput].map(|exit| dialect.of(exit).code())
        };
        assert_eq!(told(Dialect::Nagios), [0, 2, 3, 3]);
        assert_eq!(told(Dialect::Ocf), [0, 7, 1, 1]);
        assert_eq!(Dialect::Ocf.of(Exit::Missing).code(), 5);
    }

    #[test]
    fn the_worst_of_several_items_counts() {
        let order =
            [Exit::Refused, Exit::NotPermitted, Exit::Missing, Exit::BadInput, Exit::Undecided, Exit::No, Exit::Yes];
        for (idx, worse) in order.iter().enumerate() {
            for better in &order[idx..] {
                assert_eq!(worse.and(*better), *worse);
                assert_eq!(better.and(*worse), *worse);
            }
        }
    }

    #[test]
    fn no_status_looks_like_ocf_or_a_signal() {
        for exit in [
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::NotPermitted,
            Exit::Missing,
            Exit::BadInput,
            Exit::Bug,
            Exit::Refused,
            Exit::Undecided,
            Exit::Lost,
        ] {
            assert!(![3, 7, 8, 9, 101].contains(&exit.code()) && exit.code() < 126);
        }
    }
}
