//! Files in which an operator describes what a command is about.

use crate::cli::Failure;
use crate::sys;
use std::path::Path;

/// Reads `file`, which describes `what`, as the manual page `page` says.
///
/// # Errors
/// It is not there, is no text, or has a line that describes nothing.
pub(super) fn read<T>(
    file: &str,
    what: &str,
    page: &str,
    read: impl FnOnce(&str) -> Result<Vec<T>, (usize, String)>,
) -> Result<Vec<T>, Failure> {
    let wrong = |line: usize, why: String| {
        let place = if line == 0 { String::new() } else { format!("line {line}: ") };
        Failure::input(format!("cannot use the {what} of {file}: {place}{why} (see: man {page})"))
    };
    let bytes = sys::state::read(Path::new(file))?.ok_or_else(|| wrong(0, "there is no such file".to_owned()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong(0, "it is no text".to_owned()))?;
    read(&text).map_err(|(line, why)| wrong(line, why))
}
