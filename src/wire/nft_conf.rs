//! A file that `nft -f` loads when the system starts or its service reloads.

/// The tables that a file declares, where it flushes the whole rule set first; `None` where it leaves the
/// tables of others alone.
pub(crate) fn flushes_all(text: &str) -> Option<Vec<String>> {
    let mut flushes = false;
    let mut tables = Vec::new();
    for line in text.lines() {
        // A brace may stand close to the name before it.
        let line = line.split('#').next().unwrap_or_default().replace('{', " {");
        for command in line.split(';') {
            let words: Vec<&str> = command.split_whitespace().collect();
            match words.as_slice() {
                ["flush", "ruleset", ..] => flushes = true,
                ["table", rest @ ..] | ["add", "table", rest @ ..] => {
                    let names: Vec<&str> = rest.iter().copied().take_while(|word| !word.starts_with('{')).collect();
                    let table = match names.as_slice() {
                        [name] => format!("ip {name}"),
                        [family, name] => format!("{family} {name}"),
                        _ => continue,
                    };
                    if !tables.contains(&table) {
                        tables.push(table);
                    }
                }
                _ => {}
            }
        }
    }
    flushes.then_some(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_flushes_all_and_its_own_tables() {
        // As Debian 12 ships it.
        let debian = "#!/usr/sbin/nft -f\n\nflush ruleset\n\ntable inet filter {\n\tchain input {\n\t}\n}\n";
        assert_eq!(flushes_all(debian), Some(vec!["inet filter".to_owned()]));
        let two = "flush ruleset; add table nat\ntable inet filter{\n}\ntable ip nat {\n}";
        assert_eq!(flushes_all(two), Some(vec!["ip nat".to_owned(), "inet filter".to_owned()]));
        for kind in ["# flush ruleset\ntable inet filter {", "flush table inet filter\n", ""] {
            assert_eq!(flushes_all(kind), None, "{kind}");
        }
        assert_eq!(flushes_all("flush ruleset"), Some(Vec::new()));
    }
}
