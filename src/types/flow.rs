//! A flow: what a hash is taken of.

use super::net::Proto;
use std::net::IpAddr;

/// One direction of one flow, as far as it is known.
///
/// Numbers are the values that a packet carries, read in network order; what is not known is
/// `None`. Both ports are there or neither is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: IpAddr,
    pub(crate) dst: Option<IpAddr>,
    pub(crate) ports: Option<Ports>,
    pub(crate) proto: Option<Proto>,
    /// The first eight bytes of an ICMP message; old CLUSTERIP hashed them.
    pub(crate) icmp: Icmp,
    /// The security parameter index of ESP and AH.
    pub(crate) spi: Option<u32>,
}

/// A source and a destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) src: u16,
    /// A flow written as `SRC:SPORT` has none.
    pub(crate) dst: Option<u16>,
}

/// The fields of an ICMP echo that some eras of CLUSTERIP took in place of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Icmp {
    pub(crate) kind: Option<u8>,
    pub(crate) code: Option<u8>,
    pub(crate) id: Option<u16>,
    pub(crate) checksum: Option<u16>,
}

impl Flow {
    /// A flow of which only the source is known.
    pub(crate) fn from_source(src: IpAddr) -> Self {
        Flow { src, dst: None, ports: None, proto: None, icmp: Icmp::default(), spi: None }
    }
}
