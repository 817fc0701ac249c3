//! The state files of filters: one JSON object each, refused when it is not ours or not whole.

use super::envelope::VERSION;
use super::line::Line;
use crate::types::time::Tick;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who wrote a state file, and when.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The command: the kind is `state.COMMAND`.
    pub(crate) command: &'static str,
    pub(crate) host: String,
    pub(crate) boot_id: String,
    pub(crate) at: Tick,
}

/// What a state file held.
#[derive(Debug, PartialEq)]
pub(crate) enum Read<T> {
    /// It was written in this boot, so its times can be compared with ours.
    Current(T),
    /// It is from an earlier boot: a first run, and the caller says so.
    OtherBoot,
}

/// The bytes of a state file.
pub(crate) fn write(origin: &Origin, body: &impl Serialize) -> Result<Vec<u8>, String> {
    #[derive(Serialize)]
    struct File<'a, T> {
        kind: String,
        v: u8,
        host: &'a str,
        boot_id: &'a str,
        received_ms: f64,
        state: &'a T,
    }
    let file = File {
        kind: format!("state.{}", origin.command),
        v: VERSION,
        host: &origin.host,
        boot_id: &origin.boot_id,
        received_ms: origin.at.as_ms(),
        state: body,
    };
    let mut bytes = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a state file of this command on this host.
///
/// # Errors
/// Empty, torn, of another kind, a newer version or another host: never taken for a first run.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], origin: &Origin) -> Result<Read<T>, String> {
    let (state, boot_id) = read_lasting(bytes, origin)?;
    Ok(if boot_id == origin.boot_id { Read::Current(state) } else { Read::OtherBoot })
}

/// Reads a state file that outlives a boot, and the boot that it was written in.
///
/// # Errors
/// As `read`.
pub(crate) fn read_lasting<T: DeserializeOwned>(bytes: &[u8], origin: &Origin) -> Result<(T, String), String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let line = Line::parse(text).map_err(|why| format!("it is torn or foreign: {why}"))?;
    let kind = line.get::<String>("kind")?.unwrap_or_default();
    let wanted = format!("state.{}", origin.command);
    if kind != wanted {
        return Err(format!("it is of kind '{kind}', wanted '{wanted}'"));
    }
    let host = line.get::<String>("host")?.unwrap_or_default();
    if host != origin.host {
        return Err(format!("it belongs to host '{host}', this is '{}'", origin.host));
    }
    let boot_id = line.get::<String>("boot_id")?.unwrap_or_default();
    let state = line.get::<T>("state")?.ok_or_else(|| "it has no 'state'".to_owned())?;
    Ok((state, boot_id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { command: "test", host: "n1".to_owned(), boot_id: "b".to_owned(), at: Tick::default() }
    }

    #[test]
    fn a_state_reads_back() {
        let bytes = write(&origin(), &vec![1, 2]).unwrap();
        assert_eq!(read::<Vec<u8>>(&bytes, &origin()).unwrap(), Read::Current(vec![1, 2]));
        let later = Origin { boot_id: "c".to_owned(), ..origin() };
        assert_eq!(read::<Vec<u8>>(&bytes, &later).unwrap(), Read::OtherBoot);
    }

    #[test]
    fn a_torn_or_foreign_file_is_never_a_first_run() {
        let bytes = write(&origin(), &vec![1, 2]).unwrap();
        for cut in 0..bytes.len() - 1 {
            assert!(read::<Vec<u8>>(&bytes[..cut], &origin()).is_err(), "cut at {cut}");
        }
        assert!(read::<Vec<u8>>(&[0; 64], &origin()).is_err());
        assert!(read::<Vec<u8>>(&[&bytes[..], b"x"].concat(), &origin()).is_err());
        let other = Origin { host: "n2".to_owned(), ..origin() };
        assert!(read::<Vec<u8>>(&bytes, &other).unwrap_err().contains("host 'n1'"));
        let other = Origin { command: "other", ..origin() };
        assert!(read::<Vec<u8>>(&bytes, &other).unwrap_err().contains("state.other"));
    }
}
