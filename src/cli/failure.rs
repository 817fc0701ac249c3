//! A failure: one sentence for a person, one word for a script, one status for the caller.

use super::exit::Exit;
use crate::record::ErrorBody;
use crate::sys;
use crate::sys::error::Missing;
use nix::errno::Errno;
use std::fmt;

/// The slugs of `error.reason`, listed in failover-utils(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Ambiguous,
    BadFile,
    BadInput,
    BadKey,
    BadSignature,
    BadTime,
    Conflict,
    LockHeld,
    NoSuchClusterIp,
    NoSuchFeature,
    NoSuchInterface,
    NoSuchName,
    NoSuchPath,
    NoSuchProgram,
    NotInZone,
    NotPermitted,
    NotProven,
    OtherAddressesToo,
    Refused,
    TimedOut,
    Unreachable,
    Usage,
    WriteFailed,
}

impl Reason {
    pub(crate) const ALL: [Reason; 23] = [
        Reason::Ambiguous,
        Reason::BadFile,
        Reason::BadInput,
        Reason::BadKey,
        Reason::BadSignature,
        Reason::BadTime,
        Reason::Conflict,
        Reason::LockHeld,
        Reason::NoSuchClusterIp,
        Reason::NoSuchFeature,
        Reason::NoSuchInterface,
        Reason::NoSuchName,
        Reason::NoSuchPath,
        Reason::NoSuchProgram,
        Reason::NotInZone,
        Reason::NotPermitted,
        Reason::NotProven,
        Reason::OtherAddressesToo,
        Reason::Refused,
        Reason::TimedOut,
        Reason::Unreachable,
        Reason::Usage,
        Reason::WriteFailed,
    ];

    pub(crate) fn slug(self) -> &'static str {
        match self {
            Reason::Ambiguous => "ambiguous",
            Reason::BadFile => "bad-file",
            Reason::BadInput => "bad-input",
            Reason::BadKey => "bad-key",
            Reason::BadSignature => "bad-signature",
            Reason::BadTime => "bad-time",
            Reason::Conflict => "conflict",
            Reason::LockHeld => "lock-held",
            Reason::NoSuchClusterIp => "no-such-cluster-ip",
            Reason::NoSuchFeature => "no-such-feature",
            Reason::NoSuchInterface => "no-such-interface",
            Reason::NoSuchName => "no-such-name",
            Reason::NoSuchPath => "no-such-path",
            Reason::NoSuchProgram => "no-such-program",
            Reason::NotInZone => "not-in-zone",
            Reason::NotPermitted => "not-permitted",
            Reason::NotProven => "not-proven",
            Reason::OtherAddressesToo => "other-addresses-too",
            Reason::Refused => "refused",
            Reason::TimedOut => "timed-out",
            Reason::Unreachable => "unreachable",
            Reason::Usage => "usage",
            Reason::WriteFailed => "write-failed",
        }
    }
}

/// The words that `error.reason` can be, for the manual's test.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    Reason::ALL.into_iter().map(Reason::slug)
}

/// Why a run or one of its items failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) reason: Reason,
    pub(crate) errno: Option<Errno>,
    /// `cannot DO WHAT to OBJECT: why (what to do)`, without the command's name.
    pub(crate) sentence: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, reason: Reason, sentence: impl Into<String>) -> Self {
        Failure { exit, reason, errno: None, sentence: sentence.into() }
    }

    /// The command line is wrong in a way that the argument parser cannot see.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, Reason::Usage, sentence)
    }

    /// What was read is wrong.
    pub(crate) fn input(sentence: impl Into<String>) -> Self {
        Failure::new(Exit::BadInput, Reason::BadInput, sentence)
    }

    /// Whether whoever read standard output has left: an end, not a failure.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.reason == Reason::WriteFailed && self.errno == Some(Errno::EPIPE)
    }

    /// The failure as it stands in a record.
    pub(crate) fn body(&self) -> ErrorBody {
        ErrorBody {
            code: self.exit.code(),
            reason: self.reason.slug(),
            errno: self.errno.map(|errno| format!("{errno:?}")),
            message: self.sentence.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// The one place where the system's refusals become exit statuses.
impl From<sys::Error> for Failure {
    fn from(error: sys::Error) -> Self {
        let sentence = error.to_string();
        match error {
            sys::Error::Call { errno, .. } => {
                let (exit, reason, hint) = match errno {
                    Errno::EPERM | Errno::EACCES => (Exit::NotPermitted, Reason::NotPermitted, " (are you root?)"),
                    Errno::ENODEV | Errno::ENXIO => (Exit::Missing, Reason::NoSuchInterface, " (see: ip link)"),
                    Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => {
                        (Exit::Missing, Reason::NoSuchFeature, " (this kernel lacks it)")
                    }
                    Errno::EMFILE => (Exit::Refused, Reason::Refused, " (raise the limit of open files: ulimit -n)"),
                    _ => (Exit::Refused, Reason::Refused, ""),
                };
                Failure { exit, reason, errno: Some(errno), sentence: sentence + hint }
            }
            sys::Error::Privilege { .. } => Failure {
                exit: Exit::NotPermitted,
                reason: Reason::NotPermitted,
                errno: Some(Errno::EPERM),
                sentence: sentence + " (run it as root or grant the capability)",
            },
            sys::Error::Missing { mend, reason, .. } => {
                let (exit, reason) = match reason {
                    Missing::Interface => (Exit::Missing, Reason::NoSuchInterface),
                    Missing::Program => (Exit::Missing, Reason::NoSuchProgram),
                    Missing::Path => (Exit::Missing, Reason::NoSuchPath),
                    Missing::Feature => (Exit::Missing, Reason::NoSuchFeature),
                    // It is not this host that lacks it.
                    Missing::Name => (Exit::Undecided, Reason::NoSuchName),
                };
                Failure::new(exit, reason, format!("{sentence} ({mend})"))
            }
            sys::Error::Late { doing, .. } => {
                let reason = if doing == "take the lock" { Reason::LockHeld } else { Reason::TimedOut };
                Failure::new(Exit::Undecided, reason, sentence + " (try again, or allow longer with --timeout)")
            }
            sys::Error::File { mend, .. } => {
                Failure::new(Exit::BadInput, Reason::BadFile, format!("{sentence} ({mend})"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_status() {
        for (error, exit, reason) in [
            (sys::Error::call("open", "x", Errno::EPERM), Exit::NotPermitted, "not-permitted"),
            (sys::Error::call("send on", "eth9", Errno::ENODEV), Exit::Missing, "no-such-interface"),
            (sys::Error::call("write", "x", Errno::ENOSPC), Exit::Refused, "refused"),
            (sys::Error::no_interface("add 192.0.2.1/24 to", "eth9"), Exit::Missing, "no-such-interface"),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.exit, failure.reason.slug()), (exit, reason));
        }
    }

    #[test]
    fn the_sentence_has_its_parts() {
        let failure = Failure::from(sys::Error::no_interface("add 192.0.2.10/24 to", "eth9"));
        assert_eq!(failure.to_string(), "cannot add 192.0.2.10/24 to eth9: no such interface (see: ip link)");
    }

    #[test]
    fn slugs_are_sorted_and_unlike() {
        let slugs = Reason::ALL.map(Reason::slug);
        assert!(slugs.is_sorted_by(|a, b| a < b));
    }
}
