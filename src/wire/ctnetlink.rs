//! Conntrack entries over netlink: `linux/netfilter/nfnetlink.h` and `nfnetlink_conntrack.h`.
//!
//! Entries are never deleted by a filter: a kernel that does not know the mark there (before 4.0), or was built
//! without marks, takes the request as one to delete every connection of the host. They are listed, and each is
//! deleted by its own tuple and number.

/// `NFNL_SUBSYS_CTNETLINK << 8`
const SUBSYSTEM: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW`, `_GET`, `_DELETE`
const NEW: u16 = 0;
const GET: u16 = 1;
const DELETE: u16 = 2;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
/// `NLMSG_ERROR`, `NLMSG_DONE`
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `struct nlmsghdr`, and with `struct nfgenmsg` behind it.
const HEADER: usize = 16;
const HEADERS: usize = 20;
/// `CTA_TUPLE_ORIG`, `CTA_MARK`, `CTA_ID`, `CTA_ZONE`, `CTA_MARK_MASK`
const TUPLE: u16 = 1;
const MARK: u16 = 8;
const ID: u16 = 12;
const ZONE: u16 = 18;
const MASK: u16 = 21;
/// `NLA_TYPE_MASK`
const TYPE: u16 = 0x3fff;

/// A connection, as far as it is needed to delete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mark: u32,
    family: u8,
    /// The attributes that name it, as they came: tuple, zone, number.
    names: Vec<u8>,
}

/// What the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Entry(Entry),
    /// The end of a list.
    Done,
    /// An answer to a request, by its sequence number: an errno, or 0 for an acknowledgement.
    Answer(u32, i32),
}

/// `AF_INET`, `AF_INET6`
fn family(ipv6: bool) -> u8 {
    if ipv6 { 10 } else { 2 }
}

/// Asks for all connections of a family whose mark has `mark` in the bits of `mask`.
pub(crate) fn list(ipv6: bool, mark: u32, mask: u32, sequence: u32) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in [(MARK, mark), (MASK, mask)] {
        body.extend_from_slice(&8u16.to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(&value.to_be_bytes());
    }
    message(GET, REQUEST | DUMP, family(ipv6), sequence, &body)
}

/// Deletes one connection; acknowledged where that is asked for.
pub(crate) fn delete(entry: &Entry, sequence: u32, acknowledged: bool) -> Vec<u8> {
    let ack = if acknowledged { ACK } else { 0 };
    message(DELETE, REQUEST | ack, entry.family, sequence, &entry.names)
}

fn message(kind: u16, flags: u16, family: u8, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADERS + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&(SUBSYSTEM | kind).to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    // The port is the kernel's to fill in; then family, version 0, resource 0.
    bytes.extend_from_slice(&[0, 0, 0, 0, family, 0, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

/// The messages of one datagram, up to the first that is cut short.
pub(crate) fn read(bytes: &[u8]) -> Vec<Said> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while let Some((said, after)) = one(rest) {
        all.extend(said);
        rest = after;
    }
    all
}

fn one(bytes: &[u8]) -> Option<(Option<Said>, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let whole = bytes.get(..length).filter(|whole| whole.len() >= HEADER)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    let short = |at: usize| Some(u16::from_ne_bytes(*whole.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u32::from_ne_bytes(*whole.get(at..)?.first_chunk()?));
    let said = match short(4)? {
        ERROR => {
            let code = i32::from_ne_bytes(*whole.get(HEADER..)?.first_chunk()?);
            Some(Said::Answer(long(8)?, code.saturating_neg()))
        }
        DONE => Some(Said::Done),
        kind if kind == SUBSYSTEM | NEW => entry(whole).map(Said::Entry),
        _ => None,
    };
    Some((said, rest))
}

fn entry(whole: &[u8]) -> Option<Entry> {
    let mut entry = Entry { mark: 0, family: *whole.get(HEADER)?, names: Vec::new() };
    let mut attributes = whole.get(HEADERS..)?;
    let mut has_tuple = false;
    while let (Some(length), Some(kind)) = (attributes.first_chunk(), attributes.get(2..).and_then(<[u8]>::first_chunk))
    {
        let length = usize::from(u16::from_ne_bytes(*length));
        let padded = length.next_multiple_of(4);
        let value = attributes.get(4..length)?;
        match u16::from_ne_bytes(*kind) & TYPE {
            MARK => entry.mark = u32::from_be_bytes(*value.first_chunk()?),
            kind @ (TUPLE | ID | ZONE) => {
                has_tuple |= kind == TUPLE;
                entry.names.extend_from_slice(attributes.get(..length)?);
                entry.names.resize(entry.names.len().next_multiple_of(4), 0);
            }
            _ => {}
        }
        attributes = attributes.get(padded..).unwrap_or_default();
    }
    // Without it a request to delete would mean every connection there is.
    has_tuple.then_some(entry)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn told(body: &[u8]) -> Vec<u8> {
        message(NEW, 0x2, 2, 7, body)
    }

    #[test]
    fn a_list_is_asked_for_by_family_mark_and_mask() {
        let bytes = list(true, 0x1_0000, 0x00ff_0000, 7);
        assert_eq!(bytes.len(), 36);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 36);
        assert_eq!(u16::from_ne_bytes([bytes[4], bytes[5]]), 0x101);
        assert_eq!(bytes[16], 10);
        assert_eq!((&bytes[24..28], &bytes[32..36]), (&[0, 1, 0, 0][..], &[0, 0xff, 0, 0][..]));
    }

    #[test]
    fn a_connection_is_deleted_by_what_named_it() {
        let (tuple, id) = (attribute(TUPLE | 0x8000, &[1, 2, 3]), attribute(ID, &[0, 0, 0, 9]));
        let body = [tuple.clone(), attribute(3, &[0; 4]), attribute(MARK, &[0, 2, 0, 0]), id.clone()].concat();
        let [Said::Entry(entry)] = &read(&told(&body))[..] else { unreachable!() };
        assert_eq!(entry.mark, 0x2_0000);
        let bytes = delete(entry, 8, true);
        assert_eq!(bytes[HEADERS..], [tuple, id].concat());
        assert_eq!((u16::from_ne_bytes([bytes[4], bytes[5]]), u16::from_ne_bytes([bytes[6], bytes[7]])), (0x102, 0x5));
    }

    /// What would be a request without a tuple is one to delete everything.
    #[test]
    fn what_has_no_tuple_is_no_connection() {
        assert_eq!(read(&told(&attribute(MARK, &[0, 2, 0, 0]))), []);
        let body = [attribute(TUPLE, &[1; 8]), attribute(MARK, &[0, 2, 0, 0])].concat();
        let whole = told(&body);
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), [], "cut at {cut}");
        }
    }

    #[test]
    fn an_answer_has_its_number() {
        let mut bytes = message(0, 0, 0, 9, &[]);
        bytes[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        let mut done = message(0, 0, 0, 9, &[]);
        done[4..6].copy_from_slice(&DONE.to_ne_bytes());
        assert_eq!(read(&[bytes, done].concat()), [Said::Answer(9, 2), Said::Done]);
    }

    proptest! {
        #[test]
        fn no_bytes_end_in_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&told(&bytes));
        }
    }
}
