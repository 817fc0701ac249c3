//! Which bits of marks the rules of iptables look at and set, as `iptables-legacy-save` tells it: nft does not show
//! them.
//!
//! Source: iptables-extensions(8), `mark`, `connmark`, `MARK`, `CONNMARK`.

use crate::types::gateway::Marks;

/// The first rule of a table, as it was saved, that takes bits of ours: it sets some, or looks at some of them.
///
/// As with nftables, one for all 32 bits takes those that are 1 in its value, and one that copies a mark from the
/// connection, or to it, moves our bits where they belong.
pub(crate) fn overlap(saved: &str, marks: Marks) -> Option<String> {
    let mut table = "";
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if line.starts_with("-A ") && takes(line) & marks.mask != 0 {
            return Some(format!("'{line}' in the table {table} of iptables-legacy"));
        }
    }
    None
}

/// The bits of marks that a rule takes.
fn takes(rule: &str) -> u32 {
    let mut taken = 0;
    // What is between quotes is a person's.
    let mut rest = rule;
    while !rest.is_empty() {
        let (plain, behind) = rest.split_once(" \"").unwrap_or((rest, ""));
        let words: Vec<&str> = plain.split_whitespace().collect();
        for pair in words.windows(2) {
            if matches!(pair[0], "--set-xmark" | "--set-mark" | "--mark") {
                taken |= bits(pair[1]);
            } else if matches!(pair[0], "--or-mark" | "--xor-mark") {
                taken |= number(pair[1]).unwrap_or(0);
            } else if pair[0] == "--and-mark" {
                taken |= number(pair[1]).map_or(0, |kept| !kept);
            }
        }
        rest = end_of_quote(behind);
    }
    taken
}

/// What is behind the end of what is between quotes.
fn end_of_quote(text: &str) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return text.get(at + 1..).unwrap_or_default(),
            _ => escaped = false,
        }
    }
    ""
}

/// Of `VALUE[/MASK]`.
fn bits(word: &str) -> u32 {
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    match (number(value), number(mask)) {
        (Some(value), Some(u32::MAX)) => value,
        (Some(value), Some(mask)) => value | mask,
        _ => 0,
    }
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_takes_the_bits_that_it_sets_or_looks_at() {
        for (rule, bits) in [
            ("-A PREROUTING -j MARK --set-xmark 0x40000/0xffffffff", 0x4_0000),
            ("-A PREROUTING -j MARK --set-xmark 0x10000/0x10000", 0x1_0000),
            ("-A PREROUTING -j MARK --set-xmark 0x0/0xfffeffff", 0xfffe_ffff),
            ("-A PREROUTING -j CONNMARK --set-xmark 0x100/0xff00", 0xff00),
            ("-A PREROUTING -j MARK --set-mark 7", 7),
            ("-A PREROUTING -j MARK --and-mark 0xffffff00", 0xff),
            ("-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", 0),
            ("-A PREROUTING -m mark ! --mark 0x10000/0xff0000 -j ACCEPT", 0xff_0000),
            ("-A PREROUTING -m mark --mark 0xca6c -j ACCEPT", 0xca6c),
            ("-A INPUT -m comment --comment \"say \\\" --set-mark 0xff0000\" -j MARK --set-mark 0x2", 2),
            ("-A INPUT -m comment --comment \"open", 0),
            ("-A INPUT --set-mark", 0),
        ] {
            assert_eq!(takes(rule), bits, "{rule}");
        }
    }

    #[test]
    fn the_rule_is_told_with_its_table() {
        let saved = "# by\n*mangle\n:INPUT ACCEPT [0:0]\n-A INPUT -j MARK --set-xmark 0x40000/0xffffffff\nCOMMIT\n";
        let told = overlap(saved, Marks::USUAL).unwrap();
        assert_eq!(told, "'-A INPUT -j MARK --set-xmark 0x40000/0xffffffff' in the table mangle of iptables-legacy");
        assert_eq!(overlap(saved, Marks { mask: 0xff00 }), None);
    }
}
