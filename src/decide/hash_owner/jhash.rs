//! Jenkins' hash as the kernel had it, three times over.
//!
//! The name `jhash` stayed and the function changed twice: with 2.6.38 (lookup2 to lookup3) and
//! with 4.1 (the short forms of lookup3). Described after Bob Jenkins' papers of 1996 and 2006 and
//! checked against each kernel's answers; all words are 32 bits and wrap.

/// Which of the three functions a kernel calls `jhash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// lookup2: up to and with 2.6.37.
    Lookup2,
    /// lookup3 with a simplified start in its one-, two- and three-word forms: 2.6.38 to 4.0, and
    /// the 3.10 of RHEL 7, which never took the change of 4.1.
    EarlyLookup3,
    /// lookup3 throughout: 4.1 and later.
    Lookup3,
}

/// How a CPU loads a word of several bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Four bytes as a CPU of this order loads them.
    pub(crate) fn word(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }
}

const GOLDEN: u32 = 0x9e37_79b9;
const LOOKUP3_START: u32 = 0xdead_beef;

/// The forms with a fixed number of words, one to three: `jhash_1word` and its sisters.
///
/// Only 4.1 and later let the number of words enter; before, a missing word and a zero are alike.
pub(crate) fn fixed<const N: usize>(generation: Generation, words: [u32; N], seed: u32) -> u32 {
    Start::of::<N>(generation, seed).finish(padded(&words))
}

/// The state of a form with a fixed number of words before the first one is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    state: [u32; 3],
    lookup2: bool,
}

impl Start {
    /// The form of `N` words.
    pub(crate) fn of<const N: usize>(generation: Generation, seed: u32) -> Self {
        let state = match generation {
            Generation::Lookup2 => [GOLDEN, GOLDEN, seed],
            Generation::EarlyLookup3 => [LOOKUP3_START, LOOKUP3_START, seed],
            Generation::Lookup3 => [start_lookup3(4 * N, seed); 3],
        };
        Start { state, lookup2: generation == Generation::Lookup2 }
    }

    /// The hash of these words, the missing ones zero.
    #[inline]
    pub(crate) fn finish(self, words: [u32; 3]) -> u32 {
        let state = add(self.state, words);
        if self.lookup2 { mix_lookup2(state)[2] } else { finish_lookup3(state) }
    }
}

/// The form over an array of words: `jhash2`. The change of 4.1 did not touch it.
pub(crate) fn words(generation: Generation, mut key: &[u32], seed: u32) -> u32 {
    let bytes = 4 * key.len();
    match generation {
        Generation::Lookup2 => {
            let mut state = [GOLDEN, GOLDEN, seed];
            while let Some((block, rest)) = key.split_first_chunk::<3>() {
                state = mix_lookup2(add(state, *block));
                key = rest;
            }
            let [a, b, c] = add(state, padded(key));
            mix_lookup2([a, b, c.wrapping_add(truncated(bytes))])[2]
        }
        Generation::EarlyLookup3 | Generation::Lookup3 => {
            let mut state = [start_lookup3(bytes, seed); 3];
            while let Some((block, rest)) = key.split_first_chunk::<3>().filter(|(_, rest)| !rest.is_empty()) {
                state = mix_lookup3(add(state, *block));
                key = rest;
            }
            if key.is_empty() { state[2] } else { finish_lookup3(add(state, padded(key))) }
        }
    }
}

/// The form over bytes: `jhash` itself, of both generations of lookup3.
///
/// Whole blocks of twelve are loaded in the CPU's order, the last 1 to 12 bytes low byte first on
/// every CPU: a key of up to twelve bytes hashes alike everywhere, an IPv6 address does not.
pub(crate) fn bytes(mut key: &[u8], seed: u32, order: ByteOrder) -> u32 {
    let mut state = [start_lookup3(key.len(), seed); 3];
    while let Some((block, rest)) = key.split_first_chunk::<12>().filter(|(_, rest)| !rest.is_empty()) {
        state = mix_lookup3(add(state, three_words(block, order)));
        key = rest;
    }
    if key.is_empty() {
        return state[2];
    }
    let mut last = [0; 12];
    for (to, from) in last.iter_mut().zip(key) {
        *to = *from;
    }
    finish_lookup3(add(state, three_words(&last, ByteOrder::Little)))
}

fn three_words(block: &[u8; 12], order: ByteOrder) -> [u32; 3] {
    let mut three = [0; 3];
    for (to, bytes) in three.iter_mut().zip(block.as_chunks::<4>().0) {
        *to = order.word(*bytes);
    }
    three
}

/// Up to three words, the missing ones zero.
#[inline]
fn padded(key: &[u32]) -> [u32; 3] {
    let mut three = [0; 3];
    for (to, word) in three.iter_mut().zip(key) {
        *to = *word;
    }
    three
}

#[inline]
fn add(mut state: [u32; 3], block: [u32; 3]) -> [u32; 3] {
    for (word, more) in state.iter_mut().zip(block) {
        *word = word.wrapping_add(more);
    }
    state
}

fn start_lookup3(length: usize, seed: u32) -> u32 {
    LOOKUP3_START.wrapping_add(truncated(length)).wrapping_add(seed)
}

/// The functions take the length modulo 2^32.
#[allow(clippy::cast_possible_truncation)]
fn truncated(length: usize) -> u32 {
    length as u32
}

/// Nine steps; the word in hand loses the other two, then takes a shift of the second of them.
/// A positive shift goes left.
fn mix_lookup2([mut x, mut y, mut z]: [u32; 3]) -> [u32; 3] {
    for shift in [-13, 8, -13, -12, 16, -5, -3, 10, -15_i32] {
        let shifted = if shift > 0 { z << shift } else { z >> -shift };
        x = x.wrapping_sub(y).wrapping_sub(z) ^ shifted;
        (x, y, z) = (y, z, x);
    }
    [x, y, z]
}

/// Six steps; the word in hand is `x`, `before` and `after` its neighbours in the cycle a, b, c.
#[inline]
fn mix_lookup3([a, b, c]: [u32; 3]) -> [u32; 3] {
    let (mut x, mut before, mut after) = (a, c, b);
    for by in [4, 6, 8, 16, 19, 4] {
        x = x.wrapping_sub(before) ^ before.rotate_left(by);
        before = before.wrapping_add(after);
        (x, before, after) = (after, x, before);
    }
    [x, after, before]
}

/// Seven steps from c on; the last word in hand is the hash.
#[inline]
fn finish_lookup3([a, b, c]: [u32; 3]) -> u32 {
    let (mut x, mut before, mut after) = (c, b, a);
    for by in [14, 11, 25, 16, 4, 14, 24] {
        x = (x ^ before).wrapping_sub(before.rotate_left(by));
        (x, before, after) = (after, x, before);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::Generation::{EarlyLookup3, Lookup2, Lookup3};
    use super::*;

    #[test]
    fn the_fixed_forms_give_each_kernels_values() {
        for (generation, h1_0, h1_1, h1, h2, h3) in [
            (Lookup2, 0xbd49_d10d, 0x2027_e3ea, 0x8cb5_a68a, 0x7820_21d0, 0x552c_46a2),
            (EarlyLookup3, 0xc0b0_a2c2, 0xfcdf_ddda, 0x7fce_089d, 0x1119_4ad6, 0x9ea6_4b03),
            (Lookup3, 0x0493_96b8, 0x72a8_2a9b, 0xc4ff_4ed0, 0x7e76_280e, 0xb7a4_ccc7_u32),
        ] {
            assert_eq!(fixed(generation, [0], 0), h1_0, "{generation:?}");
            assert_eq!(fixed(generation, [1], 0), h1_1, "{generation:?}");
            assert_eq!(fixed(generation, [0xc0a8_0001], 0xdead_beef), h1, "{generation:?}");
            assert_eq!(fixed(generation, [0xc0a8_0001, 0x1234], 1), h2, "{generation:?}");
            assert_eq!(fixed(generation, [0xc0a8_0001, 0x1234, 0x5000], 1), h3, "{generation:?}");
        }
    }

    #[test]
    fn the_byte_form_gives_the_kernels_values() {
        let address = "2001:db8::1".parse::<std::net::Ipv6Addr>().map(|a| a.octets()).unwrap_or_default();
        for (key, seed, hash) in [
            (&[][..], 0, 0xdead_beef),
            (&[0x12, 0x34], 1, 0xd1c7_5e18),
            (&[0xc0, 0xa8, 0, 1], 0xdead_beef, 0x6e67_3a12),
            (&[0xc0, 0xa8, 0, 1, 0x12, 0x34, 0, 0], 1, 0x6a8b_d543),
            (&[0xc0, 0xa8, 0, 1, 0x12, 0x34, 0, 0, 0, 0x50, 0, 0], 1, 0x5d16_2bb8),
            (&address, 0xdead_beef, 0xf9db_fa2e_u32),
        ] {
            assert_eq!(bytes(key, seed, ByteOrder::Little), hash, "{key:02x?}");
        }
    }

    #[test]
    fn jenkins_own_check_values_come_out() {
        // lookup3.c, driver5: hashlittle("", 0), and of 30 bytes with initval 0 and 1. The kernel
        // starts from the same state but adds no second seed.
        let text = b"Four score and seven years ago";
        assert_eq!(bytes(text, 0, ByteOrder::Little), 0x1777_0551);
        assert_eq!(bytes(text, 1, ByteOrder::Little), 0xcd62_8161);
    }

    #[test]
    fn the_forms_of_lookup3_agree_on_the_same_bytes() {
        let key: Vec<u8> = (1..=40).collect();
        let loaded: Vec<u32> = key.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        for n in 0..=10 {
            assert_eq!(words(Lookup3, &loaded[..n], 7), bytes(&key[..4 * n], 7, ByteOrder::Little), "{n} words");
            assert_eq!(words(EarlyLookup3, &loaded[..n], 7), words(Lookup3, &loaded[..n], 7));
        }
        assert_eq!(fixed(Lookup3, [loaded[0]], 7), words(Lookup3, &loaded[..1], 7));
        assert_eq!(fixed(Lookup3, [loaded[0], loaded[1], loaded[2]], 7), words(Lookup3, &loaded[..3], 7));
    }

    #[test]
    fn only_the_newest_generation_counts_its_words() {
        for generation in [Lookup2, EarlyLookup3] {
            assert_eq!(fixed(generation, [9], 3), fixed(generation, [9, 0, 0], 3));
        }
        assert_ne!(fixed(Lookup3, [9], 3), fixed(Lookup3, [9, 0, 0], 3));
    }

    #[test]
    fn a_short_key_hashes_alike_on_every_cpu_and_a_long_one_does_not() {
        let key: Vec<u8> = (1..=16).collect();
        assert_eq!(bytes(&key[..12], 5, ByteOrder::Little), bytes(&key[..12], 5, ByteOrder::Big));
        assert_ne!(bytes(&key, 5, ByteOrder::Little), bytes(&key, 5, ByteOrder::Big));
    }
}
