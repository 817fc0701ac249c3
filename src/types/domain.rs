//! Names in the DNS.

use std::fmt;
use std::str::FromStr;

/// A name whose addresses are somebody's: in lower case, without the final dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Domain(String);

impl Domain {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `zone` or below it; both in lower case and without the final dot, but for the root.
    pub(crate) fn is_in(&self, zone: &str) -> bool {
        matches!(zone, "" | ".") || self.0.strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl FromStr for Domain {
    type Err = String;

    /// Labels of up to 63 letters, digits, hyphens and underscores, 253 together (RFC 1035 §2.3.4, RFC 2181 §11).
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let fits = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if name.len() > 253 || !name.split('.').all(fits) {
            return Err(format!("'{text}' is not a name in the DNS (www.example.org)"));
        }
        Ok(Domain(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        let long = format!("{}.{}", "a".repeat(63), "b".repeat(63));
        for (text, name) in
            [("WWW.Example.ORG.", "www.example.org"), ("_x._tcp.a", "_x._tcp.a"), ("a", "a"), (&long, &long)]
        {
            assert_eq!(text.parse::<Domain>().unwrap().to_string(), name);
        }
        for wrong in ["", ".", "a..b", "a b", "www.example.org/", "\u{e4}.de", &"a".repeat(64), &["a"; 128].join(".")] {
            assert!(wrong.parse::<Domain>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_zone_holds_itself_and_what_is_below() {
        let name: Domain = "www.example.org".parse().unwrap();
        for zone in ["www.example.org", "example.org", "org", "", "."] {
            assert!(name.is_in(zone), "{zone}");
        }
        for zone in ["ample.org", "a.www.example.org", "example.com"] {
            assert!(!name.is_in(zone), "{zone}");
        }
    }
}
