//! The addresses of a name in the DNS, and what may be changed about them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// The text that keeps a name without addresses alive: a name without any record is NXDOMAIN, which tells
/// resolvers that nothing else is there either (RFC 2308 §5).
pub(crate) const MARK: &str = "failover-utils: no site up";

/// The type of an address record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    A,
    Aaaa,
}

impl Family {
    pub(crate) const ALL: [Family; 2] = [Family::A, Family::Aaaa];

    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::A } else { Family::Aaaa }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Family::A => "A",
            Family::Aaaa => "AAAA",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The records of one type at a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressSet {
    /// None of them: there is no such record.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// Of all of them (RFC 2181 §5.2); 0 where there is none.
    pub(crate) ttl_s: u32,
}

impl AddressSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// What must stand at a name for an update to be done (RFC 2136 §2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prerequisite {
    /// Exactly these records of their type; at least one.
    Exactly(Family, BTreeSet<IpAddr>),
    /// A record of the type, whatever it says.
    With(Family),
    /// No record of the type.
    Without(Family),
}

/// One change of a name (RFC 2136 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// All records of the type go.
    Clear(Family),
    Add {
        address: IpAddr,
        ttl_s: u32,
    },
    /// The text [`MARK`] is added.
    Mark {
        ttl_s: u32,
    },
    /// The text goes; others stay.
    Unmark,
}
