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
        for cells in cells(columns, row) {
            table.add_row(cells.into_iter().chain(error.clone()));
        }
    }
    let mut text: String = table.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// The cells of a record: one row, or one for each item of the list that a column's key `LIST/KEY` names.
fn cells(columns: &[Column], row: &Value) -> Vec<Vec<String>> {
    let list = columns.iter().find_map(|column| column.key.split_once('/')).map(|(list, _)| list);
    let items = list.and_then(|list| row.get(list)?.as_array()).filter(|items| !items.is_empty());
    let of = |item: Option<&Value>| {
        let value = |column: &Column| match column.key.split_once('/') {
            Some((_, "")) => item,
            Some((_, key)) => item.and_then(|item| item.get(key)),
            None => row.get(column.key),
        };
        columns.iter().map(|column| value(column).map(cell).unwrap_or_default()).collect()
    };
    items.map_or_else(|| vec![of(None)], |items| items.iter().map(|item| of(Some(item))).collect())
}

/// The widths of a stream's columns, for rows printed one at a time.
pub(super) fn stream_head(columns: &[Column]) -> String {
    line(columns.iter().map(|column| (column.title.to_owned(), column.title.len().max(width(column.key)))))
}

/// The rows of a record in a stream.
pub(super) fn stream_rows(columns: &[Column], row: &Value) -> String {
    let widths = || columns.iter().map(|column| column.title.len().max(width(column.key)));
    cells(columns, row).into_iter().map(|cells| line(cells.into_iter().zip(widths()))).collect()
}

/// Columns of a stream cannot grow with what comes later.
fn width(key: &str) -> usize {
    match key.rsplit('/').next().unwrap_or(key) {
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
    fn a_list_has_a_row_an_item() {
        let columns =
            [column("subject", "SPLIT"), column("gateways/gateway", "GATEWAY"), column("gateways/share", "SHARE")];
        let row = json!({"subject": "-", "gateways": [{"gateway": "a", "share": 0.25}, {"gateway": "b"}]});
        let text = render(&columns, &[row.clone(), json!({"subject": "x", "gateways": []})]);
        assert_eq!(text, " SPLIT  GATEWAY  SHARE\n -      a        0.25\n -      b\n x\n");
        assert_eq!(stream_rows(&columns, &row).lines().count(), 2);
        let removed = [column("subject", "SPLIT"), column("removed/", "REMOVED")];
        assert_eq!(cells(&removed, &json!({"subject": "-", "removed": ["r1", "r2"]})), [["-", "r1"], ["-", "r2"]]);
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
