//! What a probe is aimed at: an address or a name, perhaps with a port and an interface.

use super::net::Endpoint;
use std::fmt;
use std::str::FromStr;

/// An address or a name: `192.0.2.1`, `www.example.org:80`, `[2001:db8::1]:443%eth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Address(Endpoint),
    /// A name that somebody has to look up, as it was given.
    Name {
        name: String,
        port: Option<u16>,
    },
}

impl Target {
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Target::Address(endpoint) => endpoint.port,
            Target::Name { port, .. } => *port,
        }
    }

    /// The interface that it names.
    pub(crate) fn dev(&self) -> Option<&str> {
        match self {
            Target::Address(endpoint) => endpoint.dev.as_deref(),
            Target::Name { .. } => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Address(endpoint) => endpoint.fmt(f),
            Target::Name { name, port: Some(port) } => write!(f, "{name}:{port}"),
            Target::Name { name, port: None } => f.write_str(name),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(endpoint) = text.parse() {
            return Ok(Target::Address(endpoint));
        }
        let wrong = || format!("'{text}' is not HOST[:PORT] (192.0.2.1:80, [2001:db8::1]:80%eth0, www.example.org:80)");
        let (name, port) = match text.split_once(':') {
            None => (text, None),
            Some((name, port)) => {
                let number = port.parse::<u16>().ok().filter(|number| *number != 0 && !port.starts_with('+'));
                (name, Some(number.ok_or_else(wrong)?))
            }
        };
        // Letters, digits, hyphens and dots (RFC 1123 §2.1), and the underscore that is out there.
        let fits = !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
            && !name.starts_with(['-', '.']);
        // What has the form of an address and is none is no name either.
        let looks_like_address = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !fits || looks_like_address {
            return Err(wrong());
        }
        Ok(Target::Name { name: name.to_owned(), port })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_and_prints_in_the_same_words() {
        for text in ["192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80%eth0", "fe80::1%eth0", "www.example.org:80", "db_1"]
        {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_neither_an_address_nor_a_name_is_refused() {
        for text in
            ["", ":80", "192.0.2.300:80", "192.0.2:80", "a b", "-x", "a:0", "a:", "a:99999", "a/b", "a:+1", "::x"]
        {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
