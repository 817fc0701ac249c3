//! The Ethernet header (IEEE 802.3): destination, source, `EtherType`.

use crate::types::net::Mac;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const HEADER: usize = 14;

/// A header of 14 bytes.
pub(crate) fn header(to: Mac, from: Mac, ethertype: u16) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..6].copy_from_slice(&to.0);
    bytes[6..12].copy_from_slice(&from.0);
    bytes[12..].copy_from_slice(&ethertype.to_be_bytes());
    bytes
}

/// Gives a frame another source address.
pub(crate) fn send_from(frame: &mut [u8], from: Mac) {
    if let Some(source) = frame.get_mut(6..12) {
        source.copy_from_slice(&from.0);
    }
}

/// A frame taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) to: Mac,
    pub(crate) from: Mac,
    pub(crate) ethertype: u16,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame; `None` where it is shorter than its header.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (to, rest) = bytes.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (ethertype, payload) = rest.split_first_chunk()?;
        Some(Frame { to: Mac(*to), from: Mac(*from), ethertype: u16::from_be_bytes(*ethertype), payload })
    }
}
