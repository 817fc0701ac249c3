//! Keys that sign what travels between nodes: HMAC-SHA256 (RFC 2104).

use hmac::{Hmac, KeyInit};
use sha2::Sha256;

/// The shortest key, in bytes: as long as the hash (RFC 2104 §3).
const MIN_KEY: usize = 32;

/// A key at work; made once, copied for each message.
pub(crate) type Signer = Hmac<Sha256>;

/// The keys of a cluster. The first signs, all verify, so that a key can be rotated node by node.
#[derive(Clone)]
pub(crate) struct Keys(Vec<(u8, Signer)>);

impl std::fmt::Debug for Keys {
    /// Ids only.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

impl Keys {
    /// Reads a key file: lines `[ID] HEX`, `#` begins a comment, an id is 0 to 255 and 1 if absent.
    ///
    /// # Errors
    /// The line that is wrong, and why. Never a part of a key.
    pub(crate) fn parse(text: &str) -> Result<Keys, String> {
        let mut keys: Vec<(u8, Signer)> = Vec::new();
        for (idx, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = |why: &str| format!("line {}: {why}", idx + 1);
            let (id, hex) = match words.as_slice() {
                [] => continue,
                [hex] => (1, *hex),
                [id, hex] => (id.parse().map_err(|_| at("a key id is 0 to 255"))?, *hex),
                _ => return Err(at("wanted [ID] HEX")),
            };
            let key = unhex(hex).ok_or_else(|| at("the key is not an even number of hex digits"))?;
            if key.len() < MIN_KEY {
                return Err(at(&format!("the key has {} bytes, it needs {MIN_KEY}", key.len())));
            }
            if keys.iter().any(|(other, _)| *other == id) {
                return Err(at(&format!("key id {id} stands there twice")));
            }
            let signer = Signer::new_from_slice(&key).map_err(|_| at("the key has no usable length"))?;
            keys.push((id, signer));
        }
        if keys.is_empty() { Err("it has no key".to_owned()) } else { Ok(Keys(keys)) }
    }

    /// The key that signs, and its id.
    pub(crate) fn signing(&self) -> Option<(u8, Signer)> {
        self.0.first().cloned()
    }

    /// The key with this id.
    pub(crate) fn verifying(&self, id: u8) -> Option<Signer> {
        self.0.iter().find(|(own, _)| *own == id).map(|(_, signer)| signer.clone())
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
