//! Which bits of marks other programs' rules look at and set, as `nft list ruleset` tells it.

use super::gateway::is_split;
use crate::types::gateway::Marks;
use std::collections::BTreeSet;

/// The first rule of another program that takes bits of ours: it looks at some of them, sets some, or writes a
/// whole mark over them where our packets pass.
///
/// One that compares all 32 bits takes those that are 1 in its value: a VPN that looks for its own mark is not in
/// the way. What is written over a packet's mark before ours is, or over that of a packet whose way is found, does
/// no harm; nor does a copy of a mark to or from the connection, unless the packet has none of our bits yet.
pub(crate) fn overlap(ruleset: &str, marks: Marks) -> Option<String> {
    let chains = foreign(ruleset);
    let (mut cleared_late, mut saves_late) = (None, false);
    for chain in &chains {
        let mut restored = false;
        for rule in &chain.rules {
            let told = || format!("'{}' in the chain {} of the table {}", rule.trim(), chain.name, chain.table);
            if takes(rule) & marks.mask != 0 {
                return Some(told());
            }
            let written = writes(rule);
            restored |= written.restored & marks.mask == marks.mask;
            for (hook, priority) in &chain.places {
                let finds_way = matches!(*hook, "prerouting" | "output");
                let is_early = finds_way && *priority <= OURS && !restored;
                if written.ct & marks.mask != 0
                    || (written.meta & marks.mask != 0 && finds_way && *priority >= OURS_NAMED)
                    || (written.saved & marks.mask != 0 && is_early)
                {
                    return Some(told());
                }
                if !finds_way {
                    saves_late |= written.saved & marks.mask != 0;
                    if written.meta & marks.mask != 0 {
                        cleared_late.get_or_insert_with(told);
                    }
                }
            }
        }
    }
    cleared_late.filter(|_| saves_late)
}

/// The priorities of our chains: of the split without a name (`mangle`), and of those with one.
const OURS: i32 = -150;
const OURS_NAMED: i32 = OURS - 1;

/// A chain of another program.
struct Chain<'a> {
    table: &'a str,
    name: &'a str,
    rules: Vec<&'a str>,
    /// The hooks of IP from which it is reached, and with which priority.
    places: BTreeSet<(&'a str, i32)>,
}

fn foreign(ruleset: &str) -> Vec<Chain<'_>> {
    let (mut table, mut is_foreign, mut chains) = ("", false, Vec::<Chain<'_>>::new());
    for line in ruleset.lines() {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
            is_foreign = !table.strip_prefix("inet ").is_some_and(is_split);
        } else if let Some(name) = line.strip_prefix("\tchain ").filter(|_| is_foreign) {
            let name = name.trim_end_matches(" {");
            chains.push(Chain { table, name, rules: Vec::new(), places: BTreeSet::new() });
        } else if let Some(chain) = chains.last_mut().filter(|chain| is_foreign && chain.table == table) {
            chain.places.extend(place(line).filter(|(hook, _)| HOOKS.contains(hook)));
            chain.rules.push(line);
        }
    }
    // Whoever is jumped to is where it is jumped from.
    let mut reached = true;
    while reached {
        reached = false;
        for at in 0..chains.len() {
            let (from, table) = (chains[at].places.clone(), chains[at].table);
            let targets: BTreeSet<&str> = chains[at].rules.iter().flat_map(|rule| targets(rule)).collect();
            for chain in chains.iter_mut().filter(|chain| chain.table == table && targets.contains(chain.name)) {
                let before = chain.places.len();
                chain.places.extend(&from);
                reached |= chain.places.len() > before;
            }
        }
    }
    chains
}

const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];

/// The hook and the priority of `type filter hook prerouting priority mangle + 5; policy accept;`.
fn place(line: &str) -> Option<(&str, i32)> {
    let (hook, rest) = line.trim().strip_prefix("type ")?.split_once(" hook ")?.1.split_once(' ')?;
    let (_, rest) = rest.split_once("priority ")?;
    let mut words = rest.split(';').next()?.split_whitespace();
    let first = words.next()?;
    let named = [("raw", -300), ("mangle", -150), ("dstnat", -100), ("filter", 0), ("security", 50), ("srcnat", 100)];
    let base = match named.iter().find(|(name, _)| *name == first) {
        Some((_, number)) => *number,
        None => first.parse().ok()?,
    };
    let more: String = words.collect();
    Some((hook, base + more.parse::<i32>().unwrap_or(0)))
}

/// The chains that a rule sends packets to.
fn targets(rule: &str) -> Vec<&str> {
    let words: Vec<&str> = rule.split([' ', '\t', ',']).collect();
    words.windows(2).filter(|pair| matches!(pair[0], "jump" | "goto")).map(|pair| pair[1]).collect()
}

/// Which bits of marks a rule writes over, whatever they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    /// Of the packet's, with what is not the connection's.
    meta: u32,
    /// Of the connection's, with what is not the packet's.
    ct: u32,
    /// Of the connection's, with the packet's.
    saved: u32,
    /// Of the packet's, with the connection's.
    restored: u32,
}

fn writes(rule: &str) -> Written {
    let words = words(rule);
    let mut written = Written::default();
    for (at, three) in words.windows(3).enumerate() {
        let [key @ ("meta" | "ct"), "mark", "set"] = *three else { continue };
        let (source, operations) = match words.get(at + 3..).unwrap_or_default() {
            [source @ ("meta" | "ct"), "mark", operations @ ..] => (*source, operations),
            _ => ("", [].as_slice()),
        };
        let kept = match operations {
            ["&" | "and", mask, ..] => number(mask).unwrap_or(0),
            _ => u32::MAX,
        };
        match (key, source) {
            ("meta", "ct") => (written.restored, written.meta) = (kept, written.meta | !kept),
            ("ct", "meta") => (written.saved, written.ct) = (kept, written.ct | !kept),
            ("meta", "") => written.meta = u32::MAX,
            ("ct", "") => written.ct = u32::MAX,
            // In place: these it takes.
            _ => {}
        }
    }
    written
}

/// The bits of marks that a rule takes.
fn takes(rule: &str) -> u32 {
    let words = words(rule);
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

fn words(rule: &str) -> Vec<&str> {
    // What is behind it is a person's.
    let rule = rule.split(" comment \"").next().unwrap_or_default();
    let plain = rule.split_whitespace().map(|word| word.trim_matches(['(', ')'])).filter(|word| !word.is_empty());
    let mut words: Vec<&str> = Vec::new();
    for word in plain {
        // As rules of iptables are listed.
        if word == "mark" && words.last() == Some(&"set") {
            words.push("meta");
        }
        words.push(word);
    }
    words
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
                    // In place it clears the others.
                    "&" | "and" if value[0] == key => !operand,
                    // Of a copy these are what is copied.
                    "&" | "and" => 0,
                    "|" | "or" | "^" | "xor" => operand,
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
            ("meta mark set ct mark & 0x0000ff00", 0),
            ("ct mark & 0x0000ff00 == 0x00000100 accept", 0xff00),
            ("meta mark & 0x00ff0000 != 0x00000000 drop", 0x00ff_0000),
            ("tcp dport 80 ct mark & 0x00030000 vmap { 0x00010000 : accept }", 0x3_0000),
            ("meta mark set numgen random mod 100 map { 0-9 : 0x00000100, 10-99 : 0x00010000 }", 0x1_0100),
            ("meta mark { 0x00000001, 0x00020000 } accept", 0x2_0001),
            ("meta mark 0x0000ca6c ct mark set meta mark", 0xca6c),
            ("meta l4proto udp meta mark set ct mark", 0),
            ("ct mark set meta mark", 0),
            ("counter packets 0 bytes 0 meta mark set mark and 0xffffff00 xor 0x1", 0xff),
            ("meta mark set (meta mark & 0xff00ffff) | 0x00010000", 0x00ff_0000),
            ("meta mark != 0x0000ca6c drop", 0xca6c),
            ("meta mark & 0xffffffff == 0x0000ca6c drop", 0),
            ("tcp dport 22 accept comment \"meta mark set 0x00ff0000\"", 0),
        ] {
            assert_eq!(takes(rule), bits, "{rule}");
        }
    }

    #[test]
    fn a_rule_that_writes_over_our_bits_where_our_packets_pass_is_in_the_way() {
        let keeps = "meta mark set meta mark & 0xffffff00 | 0x00000001";
        let pre = "filter hook prerouting priority";
        for (place, rules, is_in_the_way) in [
            // What is zero in the connection is drawn anew.
            (format!("{pre} raw"), "ct mark set 0x00000000", true),
            (format!("{pre} filter"), "ct mark set 0x00000000", true),
            ("filter hook forward priority filter".to_owned(), "tcp dport 25 ct mark set 0x00000001", true),
            ("filter hook postrouting priority srcnat + 5".to_owned(), "ct mark set numgen random mod 2", true),
            ("filter hook output priority filter".to_owned(), "ct mark set ip saddr map { 192.0.2.7 : 0x1 }", true),
            (format!("{pre} mangle"), "meta mark set jhash ip saddr mod 2 seed 0x1", true),
            // A packet's mark, by where its way is found.
            (format!("{pre} mangle"), "meta mark set 0x00000001", true),
            (format!("{pre} -10"), "counter packets 1 bytes 2 meta mark set 0x00000001", true),
            (format!("{pre} mangle - 10"), "meta mark set 0x00000001", false),
            (format!("{pre} raw"), "meta mark set 0x00000001", false),
            ("route hook output priority mangle".to_owned(), "meta skuid 7 meta mark set 0x00000001", true),
            ("filter hook forward priority filter".to_owned(), "meta mark set 0x00000001", false),
            ("filter hook postrouting priority srcnat".to_owned(), "meta mark set 0x00000001", false),
            ("filter hook ingress device \"eth0\" priority filter".to_owned(), "meta mark set 0x00000001", false),
            (format!("{pre} filter"), keeps, false),
            // Copies: the packet has our bits only once our chain has seen it.
            (format!("{pre} mangle - 10"), "ct mark set meta mark", true),
            (format!("{pre} mangle"), "ct mark set mark", true),
            (format!("{pre} filter"), "ct mark set meta mark", false),
            (format!("{pre} mangle"), "meta mark set ct mark", false),
            (format!("{pre} mangle"), "meta mark set ct mark\n\t\tct mark set meta mark", false),
            (format!("{pre} filter"), "meta mark set ct mark & 0x000000ff", true),
            (format!("{pre} filter"), "ct mark set meta mark & 0x000000ff", true),
            ("filter hook postrouting priority mangle".to_owned(), "meta mark 0x0000ca6c ct mark set meta mark", false),
            (
                "filter hook postrouting priority mangle".to_owned(),
                "meta mark set 0x00000001\n\t\tct mark set meta mark",
                true,
            ),
        ] {
            let table =
                format!("table inet m {{\n\tchain base {{\n\t\ttype {place}; policy accept;\n\t\t{rules}\n\t}}\n}}\n");
            let told = overlap(&table, Marks::USUAL);
            assert_eq!(told.is_some(), is_in_the_way, "{place}: {rules}: {told:?}");
            // By way of another chain it is the same, and where nobody goes nothing happens.
            let jumps = format!(
                "table inet m {{\n\tchain far {{\n\t\t{rules}\n\t}}\n\tchain base {{\n\t\ttype {place}; policy accept;\n\
                 \t\ttcp dport vmap {{ 1 : jump near, 2 : accept }}\n\t}}\n\tchain near {{\n\t\tgoto far\n\t}}\n}}\n"
            );
            assert_eq!(overlap(&jumps, Marks::USUAL).is_some(), is_in_the_way, "{place}: {rules}");
            assert_eq!(overlap(&jumps.replace("goto far", "accept"), Marks::USUAL), None, "{place}: {rules}");
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
