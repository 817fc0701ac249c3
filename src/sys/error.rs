//! What the machine refused: the operation, the object, the reason.

use nix::errno::Errno;
use std::fmt;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A refusal. `cli/failure.rs` turns it into a sentence and an exit status, in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// A system call failed.
    Call {
        /// What was being done, as in "cannot …": `open`, `add address 192.0.2.1/24`.
        doing: String,
        /// On what: a path, an interface, an address.
        object: String,
        errno: Errno,
        /// The kernel's or the program's own words, where it gave some.
        said: Option<String>,
    },
    /// A capability that the operation needs is not there.
    Privilege { doing: String, object: String, capability: &'static str },
    /// A program, an interface or a kernel feature is missing on this host.
    Missing { doing: String, object: String, what: String, mend: String, reason: Missing },
    /// It could not be had or found out before the deadline.
    Late { doing: String, object: String, why: String },
    /// A file is not what it should be: torn, foreign, too large, wrong mode.
    File { doing: String, path: String, why: String, mend: String },
}

/// What kind of thing is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Interface,
    Program,
    Feature,
    /// A name that no address was found for.
    Name,
    /// A file or folder.
    Path,
}

impl Error {
    /// A failed system call.
    pub(crate) fn call(doing: impl Into<String>, object: impl Into<String>, errno: Errno) -> Self {
        Error::Call { doing: doing.into(), object: object.into(), errno, said: None }
    }

    /// A failed operation of `std`, whose error may carry no errno.
    pub(crate) fn io(doing: impl Into<String>, object: impl Into<String>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Error::call(doing, object, Errno::from_raw(code)),
            None => Error::Call {
                doing: doing.into(),
                object: object.into(),
                errno: Errno::EIO,
                said: Some(error.to_string()),
            },
        }
    }

    /// An interface that is not there.
    pub(crate) fn no_interface(doing: impl Into<String>, object: impl Into<String>) -> Self {
        Error::Missing {
            doing: doing.into(),
            object: object.into(),
            what: "no such interface".to_owned(),
            mend: "see: ip link".to_owned(),
            reason: Missing::Interface,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Call { doing, object, errno, said } => {
                write!(f, "cannot {doing} {object}: ")?;
                match said {
                    Some(said) => write!(f, "{said} ({errno})"),
                    None => f.write_str(errno.desc()),
                }
            }
            Error::Privilege { doing, object, capability } => write!(f, "cannot {doing} {object}: needs {capability}"),
            Error::Missing { doing, object, what, .. } => write!(f, "cannot {doing} {object}: {what}"),
            Error::Late { doing, object, why } | Error::File { doing, path: object, why, .. } => {
                write!(f, "cannot {doing} {object}: {why}")
            }
        }
    }
}

impl std::error::Error for Error {}
