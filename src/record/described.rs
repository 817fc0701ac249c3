//! Files in which an operator describes things of one kind, a gateway or a site each.

use super::line::Line;
use std::collections::BTreeSet;

/// Reads a JSON array, JSON lines, or lines of words with comments, whichever it is.
///
/// # Errors
/// The first line that describes nothing, from 1, and why; two of one name.
pub(crate) fn read_file<T>(
    text: &str,
    words: impl Fn(&str) -> Result<T, String>,
    object: impl Fn(&Line<'_>) -> Result<T, String>,
    name: impl Fn(&T) -> String,
) -> Result<Vec<T>, (usize, String)> {
    let (mut all, mut names) = (Vec::new(), BTreeSet::new());
    let mut put = |at: usize, one: Result<T, String>| {
        let one = one.map_err(|why| (at, why))?;
        if !names.insert(name(&one)) {
            return Err((at, format!("{} stands there twice", name(&one))));
        }
        all.push(one);
        Ok(())
    };
    if text.trim_start().starts_with('[') {
        let objects: Vec<&serde_json::value::RawValue> =
            serde_json::from_str(text).map_err(|error| (error.line(), format!("no JSON array of objects: {error}")))?;
        for one in objects {
            put(0, Line::parse(one.get()).and_then(|line| object(&line)))?;
        }
        return Ok(all);
    }
    for (idx, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('{') {
            put(idx + 1, Line::parse(line).and_then(|line| object(&line)))?;
            continue;
        }
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            put(idx + 1, words(line))?;
        }
    }
    Ok(all)
}
