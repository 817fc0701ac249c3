//! Which bits of marks other programs' rules look at and set, as `nft list ruleset` tells it.

use super::gateway::is_split;
use crate::types::gateway::Marks;

/// The first rule of another program that takes bits of ours: it sets some, or looks at some of them.
///
/// One that compares or sets all 32 bits takes those that are 1 in its value: a VPN that looks for its own mark
/// is not in the way. One that copies a mark from the connection, or to it, moves our bits where they belong.
pub(crate) fn overlap(ruleset: &str, marks: Marks) -> Option<String> {
    let (mut table, mut chain, mut foreign) = ("", "", false);
    for line in ruleset.lines() {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
            foreign = !table.strip_prefix("inet ").is_some_and(is_split);
        } else if let Some(name) = line.strip_prefix("\tchain ") {
            chain = name.trim_end_matches(" {");
        } else if foreign && takes(line) & marks.mask != 0 {
            return Some(format!("'{}' in the chain {chain} of the table {table}", line.trim()));
        }
    }
    None
}

/// The bits of marks that a rule takes.
fn takes(rule: &str) -> u32 {
    // What is behind it is a person's.
    let rule = rule.split(" comment \"").next().unwrap_or_default();
    let words: Vec<&str> = rule.split_whitespace().collect();
    let mut taken = 0;
    for (at, pair) in words.windows(2).enumerate() {
        // A key that is the source of a value was looked at with what it is copied to.
        let copied = at > 0 && matches!(words.get(at - 1), Some(&"set"));
        if matches!(pair, ["meta" | "ct", "mark"]) && !copied {
            let rest = words.get(at + 2..).unwrap_or_default();
            taken |= match rest {
                ["set", value @ ..] => sets(pair[0], value),
                rest => tests(rest),
            };
        }
    }
    taken
}

fn number(word: &str) -> Option<u32> {
    let word = word.trim_end_matches(',');
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// What `KEY mark set VALUE` takes.
fn sets(key: &str, value: &[&str]) -> u32 {
    match value {
        ["meta" | "ct", "mark", operations @ ..] => {
            let mut taken = 0;
            let mut rest = operations;
            while let [operator, operand, more @ ..] = rest {
                let Some(operand) = number(operand) else { break };
                taken |= match *operator {
                    // In place it clears the others; in a copy these are what is copied.
                    "&" | "and" if value[0] == key => !operand,
                    "&" | "and" | "|" | "or" | "^" | "xor" => operand,
                    _ => break,
                };
                rest = more;
            }
            taken
        }
        // Out of a map, whatever it is looked up by.
        value if value.contains(&"map") => {
            let values = value.iter().skip_while(|word| **word != "map");
            let keyed: Vec<&&str> = values.take_while(|word| **word != "}").collect();
            let bits = keyed.windows(2).filter(|pair| *pair[0] == ":").filter_map(|pair| number(pair[1]));
            bits.fold(0, |all, bits| all | bits)
        }
        [value, ..] => number(value).unwrap_or(0),
        [] => 0,
    }
}

/// What `KEY mark ...` takes where it is compared.
fn tests(rest: &[&str]) -> u32 {
    if let ["&" | "and", mask, ..] = rest
        && let Some(mask) = number(mask)
        && mask != u32::MAX
    {
        return mask;
    }
    let values = rest.iter().skip_while(|word| ["==", "!=", "<", ">", "<=", ">=", "vmap"].contains(*word));
    let mut values = values.peekable();
    if values.peek() == Some(&&"{") {
        let members = values.skip(1).take_while(|word| **word != "}");
        return members.filter_map(|word| number(word)).fold(0, |all, bits| all | bits);
    }
    values.next().and_then(|word| number(word)).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_takes_the_bits_that_it_sets_or_looks_at() {
        for (rule, bits) in [
            ("meta mark set 0x00020000", 0x2_0000),
            ("meta mark set 0x00000001 accept", 1),
            ("meta mark set meta mark & 0xff00ffff | 0x00010000", 0x00ff_0000),
            ("meta mark set meta mark | 0x00004000", 0x4000),
            ("meta mark set meta mark ^ 0x00004000 return", 0x4000),
            ("meta mark set ct mark & 0x0000ff00", 0xff00),
            ("ct mark & 0x0000ff00 == 0x00000100 accept", 0xff00),
            ("meta mark & 0x00ff0000 != 0x00000000 drop", 0x00ff_0000),
            ("tcp dport 80 ct mark & 0x00030000 vmap { 0x00010000 : accept }", 0x3_0000),
            ("meta mark set numgen random mod 100 map { 0-9 : 0x00000100, 10-99 : 0x00010000 }", 0x1_0100),
            ("meta mark { 0x00000001, 0x00020000 } accept", 0x2_0001),
            ("meta mark 0x0000ca6c ct mark set meta mark", 0xca6c),
            ("meta l4proto udp meta mark set ct mark", 0),
            ("ct mark set meta mark", 0),
            ("meta mark != 0x0000ca6c drop", 0xca6c),
            ("meta mark & 0xffffffff == 0x0000ca6c drop", 0),
            ("tcp dport 22 accept comment \"meta mark set 0x00ff0000\"", 0),
        ] {
            assert_eq!(takes(rule), bits, "{rule}");
        }
    }

    #[test]
    fn our_own_tables_are_in_nobody_s_way() {
        let table = |name: &str| {
            format!("table {name} {{\n\tchain pre {{\n\t\tct mark & 0x00ff0000 == 0x00010000 accept\n\t}}\n}}\n")
        };
        for own in ["inet failover_gw", "inet failover_gw_voip"] {
            assert_eq!(overlap(&table(own), Marks::USUAL), None, "{own}");
        }
        for other in ["inet mwan", "ip failover_gw", "inet failover_gwx"] {
            let told = overlap(&(table("inet failover_gw") + &table(other)), Marks::USUAL).unwrap();
            assert!(told.contains(other) && told.contains("chain pre"), "{told}");
        }
        let elsewhere = Marks { mask: 0xff00_0000 };
        assert_eq!(overlap(&table("inet mwan"), elsewhere), None);
    }
}
