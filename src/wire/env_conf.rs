//! `env.conf` of `BashLb`: lines that a shell reads with `.`, and what they mean.
//!
//! Source: `script.sh` and `env.conf` of govorunov-av/BashLb. It reads `gw1`, `gw2`, ... up to the first
//! that is not set; each is `|gateway|share|expected WAN address|`. The last one's share is what the
//! others leave.

use crate::types::gateway::{Gateway, Method, Probe, Weight};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a configuration asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) hourly_report: bool,
    /// What is there and means nothing, with its line.
    pub(crate) ignored: Vec<(usize, String)>,
}

/// Why a configuration is refused, with the number of the line from 1; 0 is the whole file.
pub(crate) type Refusal = (usize, String);

/// Reads a configuration.
///
/// # Errors
/// A line that does more than set a variable, or a value that fits nothing: nothing is guessed.
pub(crate) fn read(text: &str) -> Result<Config, Refusal> {
    let variables = variables(text)?;
    let get = |name: &str| variables.get(name).filter(|(_, value)| !value.is_empty());
    let (net_int_line, net_int) = get("net_int").ok_or_else(|| (0, "net_int is not set".to_owned()))?;
    let dev = format!("192.0.2.1%{net_int}");
    Gateway::at(&dev).map_err(|_| (*net_int_line, format!("'{net_int}' is not the name of an interface")))?;
    let probe = probe(&get)?;
    let mut ignored = Vec::new();
    let mut found: Vec<(usize, Gateway, String)> = Vec::new();
    for number in 1.. {
        let Some((line, value)) = get(&format!("gw{number}")) else { break };
        let wrong = |why: String| (*line, format!("gw{number}: {why}"));
        let [before, addr, share, expect, after] = value.split('|').collect::<Vec<_>>()[..] else {
            return Err(wrong(format!("'{value}' is not |gateway|share|expected WAN address|")));
        };
        if !before.is_empty() || !after.is_empty() {
            return Err(wrong(format!("'{value}' does not begin and end with |")));
        }
        let addr: IpAddr = addr.parse().map_err(|_| wrong(format!("'{addr}' is not an address")))?;
        let mut gateway = Gateway::at(&addr.to_string()).map_err(wrong)?;
        gateway.dev = Some(net_int.clone());
        gateway.name = Some(format!("gw{number}"));
        gateway.probe.clone_from(&probe);
        if !expect.is_empty() {
            let expect = expect.parse().map_err(|_| wrong(format!("'{expect}' is not an address")))?;
            gateway.expect = Some(expect);
        }
        if let Some((_, twin, _)) = found.iter().find(|(_, other, _)| other.addr == addr) {
            let twin = twin.name.as_deref().unwrap_or_default();
            return Err(wrong(format!("{addr} is {twin} already")));
        }
        found.push((*line, gateway, share.to_owned()));
    }
    let gateways = shares(found, &mut ignored)?;
    let known = ["net_int", "test_method", "ping_check_ip", "curl_check_site", "wan_ip_check_site", "hourly_report"];
    for (name, (line, _)) in &variables {
        let index = name.strip_prefix("gw").and_then(|number| number.parse::<usize>().ok());
        if let Some(index) = index.filter(|index| *index > gateways.len()) {
            let missing = gateways.len() + 1;
            return Err((*line, format!("gw{index} would never be read: gw{missing} is missing")));
        }
        if index.is_none() && !known.contains(&name.as_str()) {
            ignored.push((*line, format!("nothing here reads {name}")));
        }
    }
    ignored.sort();
    let hourly_report = match get("hourly_report").map(|(line, value)| (line, value.as_str())) {
        None | Some((_, "0")) => false,
        Some((_, "1")) => true,
        Some((line, other)) => return Err((*line, format!("hourly_report is 0 or 1, not '{other}'"))),
    };
    Ok(Config { gateways, hourly_report, ignored })
}

/// The shares as weights: the last one has what the others leave.
fn shares(found: Vec<(usize, Gateway, String)>, ignored: &mut Vec<(usize, String)>) -> Result<Vec<Gateway>, Refusal> {
    let Some(last) = found.len().checked_sub(1) else {
        return Err((0, "no gateway is set: gw1 is missing".to_owned()));
    };
    let mut left = 1.0;
    let mut gateways = Vec::new();
    for (at, (line, mut gateway, share)) in found.into_iter().enumerate() {
        let name = gateway.name.clone().unwrap_or_default();
        if at == last {
            if !share.is_empty() {
                ignored.push((line, format!("the share of {name} counts for nothing: the last has what is left")));
            }
            gateway.weight = Weight(round(left));
        } else {
            // What iptables takes as a probability: digits and a point, no exponent.
            let plain = share.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let number = share.parse::<Weight>().ok().filter(|weight| plain && weight.0 <= 1.0);
            gateway.weight =
                number.ok_or_else(|| (line, format!("{name}: the share '{share}' is not a number from 0 to 1")))?;
            left = round(left - gateway.weight.0);
            if left < 0.0 {
                return Err((line, format!("{name}: the shares up to here are above 1")));
            }
        }
        gateways.push(gateway);
    }
    Ok(gateways)
}

/// Without what is no decimal of anybody's: 1 - 0.1 - 0.2 is 0.7.
fn round(number: f64) -> f64 {
    (number * 1e12).round() / 1e12
}

/// How the gateways are probed.
fn probe<'a>(get: &impl Fn(&str) -> Option<&'a (usize, String)>) -> Result<Option<Probe>, Refusal> {
    let Some((line, method)) = get("test_method") else {
        return Err((0, "test_method is not set".to_owned()));
    };
    let number = method;
    let (method, from) = match number.as_str() {
        "0" => return Ok(Some(Probe { method: Method::None, targets: Vec::new() })),
        "1" => (Method::Icmp, "ping_check_ip"),
        "2" => (Method::Http, "curl_check_site"),
        "3" => (Method::WanIp, "wan_ip_check_site"),
        other => return Err((*line, format!("test_method is 0, 1, 2 or 3, not '{other}'"))),
    };
    let Some((target_line, target)) = get(from) else {
        return Err((*line, format!("test_method={number} needs {from}, which is not set")));
    };
    if method == Method::Icmp && target.parse::<IpAddr>().is_err() {
        return Err((*target_line, format!("{from}: '{target}' is not an address")));
    }
    if method != Method::Icmp && !(target.starts_with("http://") || target.starts_with("https://")) {
        return Err((*target_line, format!("{from}: '{target}' is not a URL")));
    }
    Ok(Some(Probe { method, targets: vec![target.clone()] }))
}

/// The variables that a shell would have after reading the text; the later of two counts.
fn variables(text: &str) -> Result<BTreeMap<String, (usize, String)>, Refusal> {
    let mut all = BTreeMap::new();
    for (idx, line) in text.split('\n').enumerate() {
        let wrong = |why: String| (idx + 1, why);
        if line.ends_with('\r') {
            let why =
                "it ends with a carriage return, which a shell takes into the value (mend the file: sed -i 's/\\r$//')";
            return Err(wrong(why.to_owned()));
        }
        let mut rest = line.trim_start_matches([' ', '\t']);
        if let Some(more) = rest.strip_prefix("export").filter(|more| more.starts_with([' ', '\t'])) {
            rest = more.trim_start_matches([' ', '\t']);
        }
        while !rest.is_empty() && !rest.starts_with('#') {
            let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
            let is_name = !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_name || !rest.contains('=') {
                return Err(wrong(format!("'{}' is more than NAME=VALUE", word(rest))));
            }
            let (value, more) = value_of(value).map_err(wrong)?;
            all.insert(name.to_owned(), (idx + 1, value));
            rest = more.trim_start_matches([' ', '\t']);
        }
    }
    Ok(all)
}

fn word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// The value that a word begins with, unquoted, and what follows it.
fn value_of(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    let open = |quote: char| format!("a {quote} is not closed on its line");
    let runs = |what: char| format!("'{what}' would have a shell do more than set a variable");
    while let Some((at, one)) = chars.next() {
        match one {
            ' ' | '\t' => return Ok((value, &text[at..])),
            '\'' => loop {
                match chars.next().ok_or_else(|| open('\''))? {
                    (_, '\'') => break,
                    (_, other) => value.push(other),
                }
            },
            '"' => loop {
                match chars.next().ok_or_else(|| open('"'))? {
                    (_, '"') => break,
                    (_, other @ ('$' | '`')) => return Err(runs(other)),
                    (_, '\\') => match chars.next().ok_or_else(|| open('"'))? {
                        (_, escaped @ ('$' | '`' | '"' | '\\')) => value.push(escaped),
                        (_, other) => value.extend(['\\', other]),
                    },
                    (_, other) => value.push(other),
                }
            },
            '\\' => value.push(chars.next().ok_or("it goes on in the next line")?.1),
            '$' | '`' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => return Err(runs(one)),
            '~' if value.is_empty() => return Err(runs(one)),
            _ => value.push(one),
        }
    }
    Ok((value, ""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights(config: &Config) -> Vec<f64> {
        config.gateways.iter().map(|gateway| gateway.weight.0).collect()
    }

    #[test]
    fn the_samples_read_as_a_shell_reads_them() {
        let two = read(include_str!("../../tests/data/gw/env-two.conf")).unwrap();
        assert_eq!((weights(&two), two.hourly_report), (vec![0.1, 0.9], true));
        let first = &two.gateways[0];
        assert_eq!((first.subject().as_str(), first.dev.as_deref()), ("192.0.2.1", Some("eth0")));
        assert_eq!(first.probe, Some(Probe { method: Method::Icmp, targets: vec!["192.0.2.53".to_owned()] }));
        let four = read(include_str!("../../tests/data/gw/env-four.conf")).unwrap();
        assert_eq!((weights(&four), four.hourly_report), (vec![0.12, 0.12, 0.12, 0.64], false));
        assert_eq!(four.gateways[3].expect, Some("203.0.113.4".parse().unwrap()));
        assert_eq!(four.gateways[3].dev.as_deref(), Some("bond0.10"));
        let odd = include_str!("../../tests/data/gw/env-odd.conf");
        assert_eq!(read(odd).unwrap_err(), (9, "gw10 would never be read: gw4 is missing".to_owned()));
        let odd = read(&odd.replace("gw10", "#gw10")).unwrap();
        assert_eq!(weights(&odd), [0.5, 0.25, 0.25]);
        let target = "http://probe.example.test/path?a=1#frag".to_owned();
        assert_eq!(odd.gateways[0].probe, Some(Probe { method: Method::Http, targets: vec![target] }));
        let (line, why) = read(include_str!("../../tests/data/gw/env-crlf.conf")).unwrap_err();
        assert!(line == 1 && why.contains("carriage return"), "{why}");
    }

    const HEAD: &str = "net_int=eth0\ntest_method=0\n";

    #[test]
    fn shares_that_do_not_fit_are_refused_with_their_line() {
        for (lines, wanted) in [
            ("gw1=\"|192.0.2.1|0.6||\"\ngw2=\"|192.0.2.2|0.6||\"\ngw3=\"|192.0.2.3|||\"", (4, "above 1")),
            ("gw1=\"|192.0.2.1|-0.1||\"\ngw2=\"|192.0.2.2|||\"", (3, "'-0.1' is not a number")),
            ("gw1=\"|192.0.2.1|1e-1||\"\ngw2=\"|192.0.2.2|||\"", (3, "'1e-1' is not a number")),
            ("gw1=\"|192.0.2.1|ten||\"\ngw2=\"|192.0.2.2|||\"", (3, "'ten' is not a number")),
            ("gw1=\"|192.0.2.1|||\"\ngw2=\"|192.0.2.2|||\"", (3, "'' is not a number")),
            ("gw1=\"|192.0.2.1|1.5||\"\ngw2=\"|192.0.2.2|||\"", (3, "'1.5' is not a number")),
            ("gw1=\"|192.0.2.1|0.5||\"\ngw2=\"|192.0.2.1|||\"", (4, "192.0.2.1 is gw1 already")),
            ("gw1=\"192.0.2.1|0.5||\"", (3, "is not |gateway|share")),
            ("gw1=\"|192.0.2.1|0.5|here|\"", (3, "'here' is not an address")),
            ("gw1=\"|gateway|0.5||\"", (3, "'gateway' is not an address")),
            ("", (0, "gw1 is missing")),
        ] {
            let (line, why) = read(&format!("{HEAD}{lines}\n")).unwrap_err();
            assert!(line == wanted.0 && why.contains(wanted.1), "{lines}: {line}: {why}");
        }
        let full = read(&format!("{HEAD}gw1=\"|192.0.2.1|1.0||\"\ngw2=\"|192.0.2.2|||\"\n")).unwrap();
        assert_eq!(weights(&full), [1.0, 0.0], "a spare");
        let said = read(&format!("{HEAD}gw1=\"|192.0.2.1|0.1||\"\ngw2=\"|192.0.2.2|0.2||\"\nx=1\n")).unwrap();
        assert_eq!(weights(&said), [0.1, 0.9]);
        assert_eq!(said.ignored.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn what_a_shell_would_run_is_refused() {
        for line in [
            "gw1=$(reboot)",
            "gw1=`reboot`",
            "gw1=\"$x\"",
            "net_int=eth0; reboot",
            "net_int=eth0 reboot",
            "reboot",
            "x=1 & y=2",
            "x=<(y)",
            "x='",
            "x=\"a",
            "x=a\\",
            "x=~root",
            "1x=1",
            "=1",
            "export",
        ] {
            assert!(variables(line).is_err(), "{line}");
        }
    }

    #[test]
    fn words_are_unquoted_as_a_shell_does() {
        for (line, value) in [
            ("x=a#b", "a#b"),
            ("x=a #b", "a"),
            ("x='a b'\"c d\"e", "a bc de"),
            ("x=\"a\\\"b\\c\"", "a\"b\\c"),
            ("x=a\\ b", "a b"),
            ("  export x=1", "1"),
            ("x=1 x=2", "2"),
            ("x='$y`z`'", "$y`z`"),
            ("x=", ""),
        ] {
            assert_eq!(variables(line).unwrap()["x"].1, value, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_ends_in_a_panic(text in "(net_int=e\n)?(test_method=[0-3]\n)?([a-z0-9_=|'\"\\\\$#. \t\r\n]{0,200})") {
            let _ = read(&text);
        }
    }
}
