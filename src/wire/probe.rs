//! "Who hears frames for this MAC?": a question and an answer of our own.
//!
//! `EtherType` 0x88B5 (IEEE 802, local experimental). After the Ethernet header: `FOPR`, version (1),
//! kind (1: ask, 2: answer), a nonce (8, network order), the length of the sender's node name (1),
//! the name. Padded to 46 bytes, the least that Ethernet carries.

use super::ethernet::{Frame, HEADER, header};
use crate::types::net::Mac;
use crate::types::node::check_name;

pub(crate) const ETHERTYPE: u16 = 0x88b5;
const MAGIC: &[u8; 4] = b"FOPR";
const VERSION: u8 = 1;
const LEAST: usize = HEADER + 46;

/// What a probe says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ask,
    Answer,
}

/// A probe as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) to: Mac,
    pub(crate) from: Mac,
    pub(crate) kind: Kind,
    pub(crate) nonce: u64,
    pub(crate) node: String,
}

impl Probe {
    /// The whole frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = header(self.to, self.from, ETHERTYPE).to_vec();
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION);
        bytes.push(if self.kind == Kind::Ask { 1 } else { 2 });
        bytes.extend_from_slice(&self.nonce.to_be_bytes());
        // Node names have at most 63 bytes.
        bytes.push(u8::try_from(self.node.len()).unwrap_or_default());
        bytes.extend_from_slice(self.node.as_bytes());
        bytes.resize(bytes.len().max(LEAST), 0);
        bytes
    }

    /// Reads a frame; `None` for any other.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let frame = Frame::decode(bytes).filter(|frame| frame.ethertype == ETHERTYPE)?;
        let (magic, rest) = frame.payload.split_first_chunk::<4>()?;
        let ([version, kind], rest) = rest.split_first_chunk::<2>()?;
        let (nonce, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first()?;
        let node = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
        let kind = match kind {
            1 => Kind::Ask,
            2 => Kind::Answer,
            _ => return None,
        };
        (magic == MAGIC && *version == VERSION && check_name(node).is_ok()).then(|| Probe {
            to: frame.to,
            from: frame.from,
            kind,
            nonce: u64::from_be_bytes(*nonce),
            node: node.to_owned(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe {
            to: Mac([1, 2, 3, 4, 5, 6]),
            from: Mac([2, 0, 0, 0, 0, 1]),
            kind: Kind::Ask,
            nonce: 0x0102_0304,
            node: "n1".to_owned(),
        }
    }

    #[test]
    fn a_probe_has_its_bytes() {
        let bytes = probe().encode();
        assert_eq!(bytes.len(), 60);
        assert_eq!(
            &bytes[..31],
            b"\x01\x02\x03\x04\x05\x06\x02\0\0\0\0\x01\x88\xb5FOPR\x01\x01\0\0\0\0\x01\x02\x03\x04\x02n1"
        );
        assert_eq!(Probe::decode(&bytes), Some(probe()));
        let answer = Probe { kind: Kind::Answer, node: "x".repeat(63), ..probe() };
        assert_eq!(Probe::decode(&answer.encode()), Some(answer));
    }

    #[test]
    fn what_is_cut_or_foreign_is_no_probe() {
        let bytes = probe().encode();
        for cut in 0..31 {
            assert_eq!(Probe::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        for at in [12, 14, 18, 19, 28, 29] {
            let mut other = bytes.clone();
            other[at] = 0xff;
            assert_eq!(Probe::decode(&other), None, "byte {at}");
        }
    }
}
