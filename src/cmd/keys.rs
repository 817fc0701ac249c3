//! Flags about signatures: what `heartbeat`, `vrrp` and `dns` share.

use crate::cli::Failure;
use crate::sys;
use crate::wire::dns::update::Key;
use crate::wire::keys::Keys;
use std::path::Path;

/// How a cluster comes to signed frames without a flag day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Auth {
    /// First: understand signatures, send none
    ReceiveOnly,
    /// Then: sign, and still take unsigned frames
    Permissive,
    /// At last: take signed frames only
    #[default]
    Enforce,
}

/// Reads a key file, or `fd:N`; nobody else may read or write it.
pub(super) fn read(word: &str) -> Result<Keys, Failure> {
    let make = format!("umask 077; head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \\n' >{word}");
    read_as(word, "--key", &make, Keys::parse)
}

/// The same for a key that a name server shares.
pub(super) fn read_tsig(word: &str) -> Result<Key, Failure> {
    let make = format!("umask 077; tsig-keygen -a hmac-sha256 NAME >{word}, which is the server's too");
    read_as(word, "--tsig-key", &make, Key::parse)
}

fn read_as<K>(word: &str, flag: &str, make: &str, parse: impl FnOnce(&str) -> Result<K, String>) -> Result<K, Failure> {
    const DOING: &str = "use the key file";
    let mend = format!("make one: {make}");
    let wrong =
        |why: String| sys::Error::File { doing: DOING.to_owned(), path: word.to_owned(), why, mend: mend.clone() };
    let text = if let Some(number) = word.strip_prefix("fd:") {
        let path = number.parse::<u32>().map(|number| format!("/proc/self/fd/{number}"));
        let path = path.map_err(|_| Failure::usage(format!("{flag} {word}: fd:N takes a number")))?;
        let bytes = sys::state::read(Path::new(&path))?.ok_or_else(|| wrong("it is not there".to_owned()))?;
        String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))?
    } else {
        sys::state::read_secret(Path::new(word), DOING, &mend)?
    };
    parse(&text).map_err(|why| wrong(why).into())
}
