//! The heartbeat frame: who lives, in which life, and what it has to say.
//!
//! ```text
//!  0       4   5   6   7   8               16              24
//! +-------+---+---+---+---+---------------+---------------+---------------+
//! | FOHB  | v | f | k | l |    cluster    |  incarnation  |   sequence    |
//! +-------+---+---+---+---+---------------+---------------+---------------+
//!  32              40              48  49  50    52
//! +---------------+---------------+---+---+-----+------+---------+--------+------+
//! |   sent (us)   |     nonce     | n | e |  p  | name | payload | echoes | HMAC |
//! +---------------+---------------+---+---+-----+------+---------+--------+------+
//! ```
//!
//! Network order. `v` version 1; `f` flags: 1 goodbye, 2 extra, 4 unsigned; `k` key id; `l` link number,
//! the sender's; `cluster` the first 8 bytes of the SHA-256 of its name; `sent` the sender's wall
//! clock, shown and never compared; `nonce` the sender's session; `n`, `e`, `p` the lengths of the name
//! (1 to 63 bytes), of the echoes (24 bytes each: 8 of the SHA-256 of a peer's name, the session nonce
//! that was last heard from it, and a bit for each of its links that is heard, link 0 the lowest) and of the payload (JSON Lines, at most 1200 bytes).
//! The HMAC-SHA256 (32 bytes) is over everything before it; an unsigned frame has none.

use super::keys::Keys;
use hmac::Mac as _;
use sha2::{Digest, Sha256};

const MAGIC: [u8; 4] = *b"FOHB";
const VERSION: u8 = 1;
const HEADER: usize = 52;
const SIGNATURE: usize = 32;
const ECHO: usize = 24;
const FLAG_GOODBYE: u8 = 1;
const FLAG_EXTRA: u8 = 2;
const FLAG_UNSIGNED: u8 = 4;
/// The most that a payload may have, in bytes: with a few echoes it fits an Ethernet frame.
pub(crate) const MAX_PAYLOAD: usize = 1200;
/// The most peers that a frame answers.
pub(crate) const MAX_ECHOES: usize = 64;
/// The longest frame.
pub(crate) const MAX_FRAME: usize = HEADER + 63 + MAX_PAYLOAD + ECHO * MAX_ECHOES + SIGNATURE;

/// A session of one receiver; 0 is none.
pub(crate) type Nonce = u64;

/// One beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) goodbye: bool,
    /// Sent between two intervals, since there was news.
    pub(crate) extra: bool,
    pub(crate) link: u8,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    pub(crate) sent_us: u64,
    pub(crate) nonce: Nonce,
    pub(crate) name: &'a str,
    /// JSON Lines.
    pub(crate) payload: &'a str,
    pub(crate) echoes: Echoes<'a>,
}

/// What was heard of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echoed {
    pub(crate) nonce: Nonce,
    /// A bit for each of its links that is heard.
    pub(crate) links: u64,
}

/// The peers that the sender hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echoes<'a>(&'a [u8]);

impl<'a> Echoes<'a> {
    /// What the sender last heard from the peer with this hash.
    pub(crate) fn of(self, peer: PeerHash) -> Option<Echoed> {
        self.0.chunks_exact(ECHO).find_map(|echo| {
            let (hash, rest) = echo.split_at(8);
            let (nonce, links) = rest.split_at(8);
            (hash == peer.0).then(|| Echoed { nonce: number(nonce), links: number(links) })
        })
    }

    /// Writes the echoes of several peers into `bytes`, for a frame to be sent.
    pub(crate) fn write(peers: &[(PeerHash, Echoed)], bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        for (hash, echoed) in peers.iter().take(MAX_ECHOES) {
            bytes.extend_from_slice(&hash.0);
            bytes.extend_from_slice(&echoed.nonce.to_be_bytes());
            bytes.extend_from_slice(&echoed.links.to_be_bytes());
        }
        Echoes(bytes)
    }
}

/// Eight bytes that stand for a node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerHash([u8; 8]);

/// Eight bytes that stand for a cluster's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterHash([u8; 8]);

fn eight(name: &str) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(Sha256::digest(name.as_bytes())).for_each(|(to, from)| *to = from);
    bytes
}

impl PeerHash {
    pub(crate) fn new(name: &str) -> Self {
        PeerHash(eight(name))
    }
}

impl ClusterHash {
    pub(crate) fn new(name: &str) -> Self {
        ClusterHash(eight(name))
    }
}

/// Why a datagram is not believed. The slug is a key of `refused` in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Refused {
    /// No frame of ours at all.
    Foreign,
    /// A version that this program does not know.
    Version,
    /// Shorter or longer than its lengths say.
    Truncated,
    /// Another cluster's.
    Cluster,
    /// Unsigned, where a signature is asked for.
    Unsigned,
    /// Signed with a key that is not in the file.
    UnknownKey,
    /// The signature is wrong.
    Signature,
    /// Signed, and malformed all the same.
    Malformed,
}

impl Refused {
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Refused::Foreign => "foreign",
            Refused::Version => "version",
            Refused::Truncated => "truncated",
            Refused::Cluster => "cluster",
            Refused::Unsigned => "unsigned",
            Refused::UnknownKey => "unknown-key",
            Refused::Signature => "signature",
            Refused::Malformed => "malformed",
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl<'a> Frame<'a> {
    /// Writes the frame into `bytes`, signed with the first key, or unsigned where there is none.
    ///
    /// # Errors
    /// A name or payload that does not fit.
    pub(crate) fn encode(&self, cluster: ClusterHash, keys: Option<&Keys>, bytes: &mut Vec<u8>) -> Result<(), String> {
        let name_len = u8::try_from(self.name.len()).ok().filter(|len| (1..=63).contains(len));
        let name_len = name_len.ok_or_else(|| format!("the name '{}' does not fit a frame", self.name))?;
        let payload_len = u16::try_from(self.payload.len()).ok().filter(|len| usize::from(*len) <= MAX_PAYLOAD);
        let payload_len = payload_len
            .ok_or_else(|| format!("the payload has {} bytes, at most {MAX_PAYLOAD} fit", self.payload.len()))?;
        let echoes = u8::try_from(self.echoes.0.len() / ECHO).map_err(|_| "too many echoes".to_owned())?;
        let signing = keys.and_then(Keys::signing);
        let mut flags = 0;
        for (set, flag) in [(self.goodbye, FLAG_GOODBYE), (self.extra, FLAG_EXTRA), (signing.is_none(), FLAG_UNSIGNED)]
        {
            if set {
                flags |= flag;
            }
        }
        bytes.clear();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, flags, signing.as_ref().map_or(0, |(id, _)| *id), self.link]);
        bytes.extend_from_slice(&cluster.0);
        for number in [self.incarnation, self.sequence, self.sent_us, self.nonce] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&[name_len, echoes]);
        bytes.extend_from_slice(&payload_len.to_be_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(self.payload.as_bytes());
        bytes.extend_from_slice(self.echoes.0);
        if let Some((_, mut signer)) = signing {
            signer.update(bytes);
            bytes.extend_from_slice(&signer.finalize().into_bytes());
        }
        Ok(())
    }

    /// Reads a datagram. Nothing of it is believed before its signature was checked.
    ///
    /// # Errors
    /// Why it is not believed.
    pub(crate) fn decode(
        bytes: &'a [u8],
        cluster: ClusterHash,
        keys: &Keys,
        unsigned_too: bool,
    ) -> Result<Self, Refused> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Refused::Foreign);
        }
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Refused::Truncated)?;
        let [_, _, _, _, version, flags, key_id, link, ..] = *header;
        if version != VERSION {
            return Err(Refused::Version);
        }
        if header[8..16] != cluster.0 {
            return Err(Refused::Cluster);
        }
        let signed = flags & FLAG_UNSIGNED == 0;
        let (name_len, echoes_len) = (usize::from(header[48]), usize::from(header[49]) * ECHO);
        let payload_len = usize::from(u16::from_be_bytes([header[50], header[51]]));
        let body_len = HEADER + name_len + payload_len + echoes_len;
        let (body, signature) = bytes.split_at_checked(body_len).ok_or(Refused::Truncated)?;
        if signature.len() != if signed { SIGNATURE } else { 0 } {
            return Err(Refused::Truncated);
        }
        if signed {
            let mut signer = keys.verifying(key_id).ok_or(Refused::UnknownKey)?;
            signer.update(body);
            // Compared in constant time.
            signer.verify_slice(signature).map_err(|_| Refused::Signature)?;
        } else if !unsigned_too {
            return Err(Refused::Unsigned);
        }
        let rest = &body[HEADER..];
        let (name, rest) = rest.split_at_checked(name_len).ok_or(Refused::Malformed)?;
        let (payload, echoes) = rest.split_at_checked(payload_len).ok_or(Refused::Malformed)?;
        let name = std::str::from_utf8(name).ok().filter(|name| crate::types::node::check_name(name).is_ok());
        if payload_len > MAX_PAYLOAD {
            return Err(Refused::Malformed);
        }
        Ok(Frame {
            goodbye: flags & FLAG_GOODBYE != 0,
            extra: flags & FLAG_EXTRA != 0,
            link,
            incarnation: number(&header[16..24]),
            sequence: number(&header[24..32]),
            sent_us: number(&header[32..40]),
            nonce: number(&header[40..48]),
            name: name.ok_or(Refused::Malformed)?,
            payload: std::str::from_utf8(payload).map_err(|_| Refused::Malformed)?,
            echoes: Echoes(echoes),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(text: &str) -> Keys {
        Keys::parse(text).unwrap()
    }

    fn key(byte: u8) -> String {
        format!("{byte:02x}").repeat(32)
    }

    fn frame(echoes: Echoes<'_>) -> Frame<'_> {
        Frame {
            goodbye: false,
            extra: true,
            link: 1,
            incarnation: 7,
            sequence: 9,
            sent_us: 11,
            nonce: 13,
            name: "n1",
            payload: "{\"kind\":\"x\"}",
            echoes,
        }
    }

    fn encoded(key_text: &str) -> Vec<u8> {
        let (mut bytes, mut echoes) = (Vec::new(), Vec::new());
        let echoes = Echoes::write(&[(PeerHash::new("n2"), Echoed { nonce: 99, links: 5 })], &mut echoes);
        frame(echoes).encode(ClusterHash::new("failover"), Some(&keys(key_text)), &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_frame_reads_back() {
        let bytes = encoded(&key(1));
        let read = Frame::decode(&bytes, ClusterHash::new("failover"), &keys(&key(1)), false).unwrap();
        assert_eq!((read.name, read.sequence, read.payload), ("n1", 9, "{\"kind\":\"x\"}"));
        assert_eq!(read.echoes.of(PeerHash::new("n2")), Some(Echoed { nonce: 99, links: 5 }));
        assert_eq!(read.echoes.of(PeerHash::new("n3")), None);
        assert_eq!(bytes.len(), HEADER + 2 + 12 + 24 + 32);
    }

    #[test]
    fn the_layout_is_the_figure_s() {
        let bytes = encoded(&format!("5 {}", key(1)));
        assert_eq!(&bytes[..8], b"FOHB\x01\x02\x05\x01");
        // printf failover | sha256sum
        assert_eq!(bytes[8..16], eight("failover"));
        assert_eq!(
            bytes[16..48],
            [[0, 0, 0, 0, 0, 0, 0, 7], [0, 0, 0, 0, 0, 0, 0, 9], [0, 0, 0, 0, 0, 0, 0, 11], [0, 0, 0, 0, 0, 0, 0, 13]]
                .concat()
        );
        assert_eq!(&bytes[48..54], [2, 1, 0, 12, b'n', b'1']);
    }

    #[test]
    fn each_wrong_frame_has_its_own_reason() {
        let good = encoded(&key(1));
        let ours = ClusterHash::new("failover");
        let refused = |bytes: &[u8], keys_text: &str| Frame::decode(bytes, ours, &keys(keys_text), false).unwrap_err();
        assert_eq!(refused(b"", &key(1)), Refused::Foreign);
        assert_eq!(refused(b"hello, is anybody there", &key(1)), Refused::Foreign);
        assert_eq!(refused(&good, &key(2)), Refused::Signature);
        assert_eq!(refused(&good, &format!("2 {}", key(1))), Refused::UnknownKey);
        assert_eq!(
            Frame::decode(&good, ClusterHash::new("other"), &keys(&key(1)), false).unwrap_err(),
            Refused::Cluster
        );
        let mut newer = good.clone();
        newer[4] = 2;
        assert_eq!(refused(&newer, &key(1)), Refused::Version);
        let mut bytes = Vec::new();
        frame(Echoes(&[])).encode(ours, None, &mut bytes).unwrap();
        assert_eq!(refused(&bytes, &key(1)), Refused::Unsigned);
        assert!(Frame::decode(&bytes, ours, &keys(&key(1)), true).is_ok());
        // A signature cannot be taken off.
        let mut stripped = good[..good.len() - 32].to_vec();
        stripped[5] |= FLAG_UNSIGNED;
        assert_eq!(refused(&stripped, &key(1)), Refused::Unsigned);
    }

    #[test]
    fn a_key_file_is_read_whole_or_refused_with_its_line() {
        let two = format!("# rotation\n7 {}\n\n{} # old\n", key(3), key(4));
        assert_eq!(format!("{:?}", keys(&two)), "[7, 1]");
        for (text, why) in [
            ("", "no key"),
            ("# nothing\n", "no key"),
            ("abc", "line 1: the key is not"),
            ("00ff", "line 1: the key has 2 bytes"),
            ("300 00", "line 1: a key id is 0 to 255"),
            ("1 2 3", "line 1: wanted"),
        ] {
            assert!(Keys::parse(text).unwrap_err().contains(why), "{text}");
        }
        assert!(Keys::parse(&format!("{}\n{}", key(1), key(2))).unwrap_err().contains("line 2: key id 1"));
    }

    #[test]
    fn what_does_not_fit_is_refused_when_written() {
        let long = "x".repeat(MAX_PAYLOAD + 1);
        let ours = ClusterHash::new("failover");
        let mut bytes = Vec::new();
        let too_long = Frame { payload: &long, ..frame(Echoes(&[])) };
        assert!(too_long.encode(ours, None, &mut bytes).unwrap_err().contains("1201 bytes"));
        let named = "x".repeat(64);
        assert!(Frame { name: &named, ..frame(Echoes(&[])) }.encode(ours, None, &mut bytes).is_err());
        let full: Vec<u8> = vec![0; ECHO * MAX_ECHOES];
        let largest = Frame { payload: &long[..MAX_PAYLOAD], name: &named[..63], ..frame(Echoes(&full)) };
        largest.encode(ours, Some(&keys(&key(1))), &mut bytes).unwrap();
        assert_eq!(bytes.len(), MAX_FRAME);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let framed = [&b"FOHB\x01"[..], &bytes].concat();
            let ours = ClusterHash::new("failover");
            let keys = keys(&key(1));
            prop_assert!(Frame::decode(&bytes, ours, &keys, true).is_err());
            prop_assert!(Frame::decode(&framed, ours, &keys, false).is_err());
        }

        #[test]
        fn no_change_of_a_signed_frame_is_believed(at in 0usize..122, bit in 0u8..8) {
            let mut bytes = encoded(&key(1));
            bytes[at] ^= 1 << bit;
            prop_assert!(Frame::decode(&bytes, ClusterHash::new("failover"), &keys(&key(1)), true).is_err());
        }

        #[test]
        fn no_part_of_a_signed_frame_is_believed(cut in 0usize..122) {
            let bytes = encoded(&key(1));
            prop_assert!(Frame::decode(&bytes[..cut], ClusterHash::new("failover"), &keys(&key(1)), true).is_err());
        }
    }
}
