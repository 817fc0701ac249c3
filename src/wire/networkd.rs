//! systemd-networkd's configuration, as far as routes and rules of others are concerned (networkd.conf(5)).

/// What a networkd with these files does with what it did not make, in the order in which they are read.
///
/// Rules and routes, each: whether it removes them.
pub(crate) fn removes_foreign<'a>(files: impl IntoIterator<Item = &'a str>) -> (bool, bool) {
    let (mut rules, mut routes) = (true, true);
    for text in files {
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| section == "Network") else { continue };
            let setting = match key.trim() {
                "ManageForeignRoutingPolicyRules" => &mut rules,
                "ManageForeignRoutes" => &mut routes,
                _ => continue,
            };
            match value.trim().to_ascii_lowercase().as_str() {
                "1" | "yes" | "y" | "true" | "t" | "on" => *setting = true,
                "0" | "no" | "n" | "false" | "f" | "off" => *setting = false,
                // What it cannot read it ignores.
                _ => {}
            }
        }
    }
    (rules, routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_silence_is_yes() {
        let keeps = "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes = off\n";
        for (files, removes) in [
            (&[][..], (true, true)),
            (&["[Network]\nSpeedMeter=no\n"], (true, true)),
            (&[keeps], (false, false)),
            (&["ManageForeignRoutes=no\n"], (true, true)),
            (&["[DHCPv4]\nManageForeignRoutes=no\n[Network]\n#ManageForeignRoutes=no"], (true, true)),
            (&[keeps, "[Network]\nManageForeignRoutes=yes"], (false, true)),
            (&["[Network]\nManageForeignRoutes=perhaps\nManageForeignRoutingPolicyRules=0"], (false, true)),
        ] {
            assert_eq!(removes_foreign(files.iter().copied()), removes, "{files:?}");
        }
    }
}
