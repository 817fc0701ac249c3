//! DNS messages over TCP (RFC 1035 §4.2.2): each has its length, in two octets, before it.

/// The most that one message and its length take.
pub(crate) const MOST: usize = 2 + u16::MAX as usize;

/// Appends a message to what is to be sent.
///
/// # Errors
/// It is longer than 65,535 octets.
pub(crate) fn push(message: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
    let length = u16::try_from(message.len()).map_err(|_| format!("{} octets are no message", message.len()))?;
    into.extend(length.to_be_bytes());
    into.extend(message);
    Ok(())
}

/// The whole messages at the beginning of what has come.
pub(crate) fn messages(mut got: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = got.split_first_chunk()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        got = rest;
        Some(message)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_out_whole_and_in_order() {
        let mut bytes = Vec::new();
        for message in [b"one".as_slice(), b"", &[7; 300]] {
            push(message, &mut bytes).unwrap();
        }
        assert_eq!(bytes[..5], *b"\x00\x03one");
        assert_eq!(messages(&bytes).map(<[u8]>::len).collect::<Vec<_>>(), [3, 0, 300]);
        for cut in 0..bytes.len() {
            assert!(messages(&bytes[..cut]).count() < 3, "{cut}");
        }
        assert!(push(&vec![0; 65_536], &mut bytes).is_err());
    }
}
