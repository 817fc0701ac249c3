//! Flags about signatures: what `heartbeat` and `vrrp` share.

use crate::cli::Failure;
use crate::sys;
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
    const DOING: &str = "use the key file";
    let mend = format!("make one: umask 077; head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \\n' >{word}");
    let wrong =
        |why: String| sys::Error::File { doing: DOING.to_owned(), path: word.to_owned(), why, mend: mend.clone() };
    let text = if let Some(number) = word.strip_prefix("fd:") {
        let path = number.parse::<u32>().map(|number| format!("/proc/self/fd/{number}"));
        let path = path.map_err(|_| Failure::usage(format!("--key {word}: fd:N takes a number")))?;
        let bytes = sys::state::read(Path::new(&path))?.ok_or_else(|| wrong("it is not there".to_owned()))?;
        String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))?
    } else {
        sys::state::read_secret(Path::new(word), DOING, &mend)?
    };
    Keys::parse(&text).map_err(|why| wrong(why).into())
}
