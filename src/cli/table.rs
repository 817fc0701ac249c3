//! Tables for a person's eyes, made of the same records that a program reads.

use crate::record::Column;
use crate::record::bucket::finding;
use comfy_table::{Table, presets};
use serde_json::Value;
use std::fmt::Write as _;

/// One table of all records, a row each; an item that failed shows why in its last cell.
pub(super) fn render(columns: &[Column], rows: &[Value]) -> String {
    let failed = rows.iter().any(|row| row.get("error").is_some());
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let titles = columns.iter().map(|column| column.title).chain(failed.then_some("ERROR"));
    table.set_header(titles);
    for row in rows {
        let error = failed.then(|| row.pointer("/error/message").map(cell).unwrap_or_default());
        table.add_row(columns.iter().map(|column| row.get(column.key).map(cell).unwrap_or_default()).chain(error));
    }
    let mut text: String = table.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// The widths of a stream's columns, for rows printed one at a time.
pub(super) fn stream_head(columns: &[Column]) -> String {
    line(columns.iter().map(|column| (column.title.to_owned(), column.title.len().max(width(column.key)))))
}

/// One row of a stream.
pub(super) fn stream_row(columns: &[Column], row: &Value) -> String {
    line(
        columns.iter().map(|column| {
            (row.get(column.key).map(cell).unwrap_or_default(), column.title.len().max(width(column.key)))
        }),
    )
}

/// Columns of a stream cannot grow with what comes later.
fn width(key: &str) -> usize {
    match key {
        "time" => 27,
        "subject" => 24,
        "event" | "dev" | "status" => 12,
        _ => 10,
    }
}

fn line(cells: impl Iterator<Item = (String, usize)>) -> String {
    let mut text = String::new();
    for (cell, width) in cells {
        // Writing to a String does not fail.
        let _ = write!(text, "{cell:<width$}  ");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A value as a person writes it; lists join with blanks, and those of more than a word each with semicolons.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(values) => {
            let between = if values.iter().any(Value::is_object) { "; " } else { " " };
            values.iter().map(cell).collect::<Vec<_>>().join(between)
        }
        Value::Object(map) => {
            if let Some(sentence) = finding(map) {
                return printable(&sentence);
            }
            map.iter().map(|(key, value)| format!("{key}={}", cell(value))).collect::<Vec<_>>().join(" ")
        }
        Value::Number(number) => number.to_string(),
    }
}

/// Text from outside cannot move the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::envelope::column;
    use serde_json::json;

    #[test]
    fn a_table_has_a_row_a_record_and_says_what_failed() {
        let columns = [column("subject", "ADDRESS"), column("flags", "FLAGS")];
        let rows = [
            json!({"subject": "192.0.2.1", "flags": ["permanent", "nodad"]}),
            json!({"subject": "x", "error": {"message": "no"}}),
        ];
        let text = render(&columns, &rows);
        assert_eq!(
            text,
            " ADDRESS    FLAGS            ERROR\n 192.0.2.1  permanent nodad\n x                           no\n"
        );
    }

    #[test]
    fn what_was_found_is_told_as_a_sentence() {
        let found = json!([
            {"what": "link", "want": "up with carrier", "got": "down", "mend": "ip link set eth0 up"},
            {"what": "no lease"},
        ]);
        assert_eq!(cell(&found), "link: down instead of up with carrier (ip link set eth0 up); no lease");
        assert_eq!(cell(&json!({"n1": "1-2", "n2": ""})), "n1=1-2 n2=");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(cell(&json!("a\u{1b}[2J\n")), "a\u{fffd}[2J\u{fffd}");
    }
}
