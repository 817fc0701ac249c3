//! The one table of exit statuses.

/// How a run ends. An answer is never dressed as a failure, nor a failure as an answer, and
/// nothing looks like OCF's 7, 8 or 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Yes, up, mine, done (changed or not).
    Yes = 0,
    /// A clear no: down, not mine, nothing selectable, conflict, they disagree.
    No = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Not permitted; the missing capability is named.
    NotPermitted = 4,
    /// Missing on this host: a program, an interface, a kernel feature.
    Missing = 5,
    /// Input or configuration is wrong: a malformed line, a torn state file, a wrong key.
    BadInput = 6,
    /// A fault of our own (sysexits' `EX_SOFTWARE`): a panic ends so.
    Bug = 70,
    /// The system refused: errno and the call are told.
    Refused = 71,
    /// It could not be found out in the time given; a lock was not had.
    Undecided = 75,
    /// A lock was lost.
    Lost = 76,
}

impl Exit {
    pub fn code(self) -> u8 {
        self as u8
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
            Exit::Yes => 9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

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
