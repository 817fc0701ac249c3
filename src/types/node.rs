//! Names of nodes, and a node's wish to be left alone.

/// The longest node name, in bytes: a host name's limit (RFC 1035 §2.3.4), and it must fit a frame.
pub(crate) const MAX_NAME: usize = 63;

/// Checks that `name` can stand in records, file names and owner maps.
///
/// # Errors
/// Empty, longer than 63 bytes, or with something else than letters, digits, `.`, `-` and `_`.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let fits = !name.is_empty()
        && name.len() <= MAX_NAME
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        && !name.starts_with(['.', '-']);
    if fits {
        Ok(())
    } else {
        Err(format!("'{name}' is not a node name (1 to {MAX_NAME} letters, digits, '.', '-' or '_')"))
    }
}

/// Planned maintenance: while it stands, a node or subject is offered nothing new and drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standby {
    /// The text of the file that an operator left.
    pub(crate) reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_folder_or_its_field() {
        for name in ["", "..", "a/b", "a b", "a=b", "a,b", "-x", "\u{e9}", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["n1", "db-2.example.net", "a_b", &"x".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
