//! Which capabilities this process may use.

use super::{Error, Result, raw};

/// A capability that some command needs (`linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin,
    NetRaw,
}

impl Capability {
    fn number(self) -> u32 {
        match self {
            Capability::NetAdmin => 12,
            Capability::NetRaw => 13,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
        }
    }
}

/// Checks that this process may use `capability`.
///
/// Asked before anything is looked at, so that a missing right is told as such and not as the
/// lock folder or the program that it would have failed on.
pub(crate) fn need(capability: Capability, doing: &str, object: &str) -> Result<()> {
    if raw::effective_capabilities() >> capability.number() & 1 == 1 {
        Ok(())
    } else {
        Err(Error::Privilege { doing: doing.to_owned(), object: object.to_owned(), capability: capability.name() })
    }
}
