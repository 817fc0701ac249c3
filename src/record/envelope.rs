//! What every record begins with.

use super::text;
use crate::types::status::Status;
use crate::types::time::WallTime;
use serde::Serialize;

/// The version of the kinds written here. Within one version keys are only added.
pub(crate) const VERSION: u8 = 1;

/// The part of a record that is the same for all kinds; the body's fields follow it.
///
/// What is not known is absent: an empty list, `None` and `false` of an optional flag are not
/// printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) kind: &'static str,
    /// What the record is about: the join key.
    pub(crate) subject: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) changed: Option<bool>,
    /// The same state said again, so that it does not expire.
    pub(crate) renewal: bool,
    /// Records of this subject that a slow reader did not get.
    pub(crate) skipped: u64,
    pub(crate) valid_for_ms: Option<f64>,
    pub(crate) received_ms: Option<f64>,
    pub(crate) boot_id: Option<String>,
    /// Why this node or subject is in standby.
    pub(crate) standby: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) actions: Vec<Action>,
    pub(crate) error: Option<ErrorBody>,
}

impl Head {
    pub(crate) fn new(kind: &'static str) -> Self {
        Head { kind, ..Head::default() }
    }

    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // an address by value, a name by reference
    pub(crate) fn about(mut self, subject: impl ToString) -> Self {
        self.subject = Some(subject.to_string());
        self
    }
}

/// One change to the system, in the words of the tool that an operator would use for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Action {
    /// What kind of change: address-add, link-add, nft, sysctl, file, …
    pub(crate) op: &'static str,
    /// The change as ip, nft, sysctl or nsupdate would say it
    pub(crate) text: String,
}

/// Why an item failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ErrorBody {
    /// The exit status that this item alone would have
    pub(crate) code: u8,
    /// A word for scripts, listed in failover-utils(7)
    pub(crate) reason: &'static str,
    /// The system's error name, where a system call failed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errno: Option<String>,
    /// The sentence that standard error carries
    pub(crate) message: String,
}

/// One column of a table: a key of the record and its title; `LIST/KEY` is the key of each item of a list, which
/// has a row of its own then, and `LIST/` the item itself.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
}

/// A column whose title is its key in capitals.
pub(crate) const fn column(key: &'static str, title: &'static str) -> Column {
    Column { key, title }
}

/// The envelope as it is printed.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Envelope<'a> {
    /// What this record is
    kind: &'static str,
    /// Version of this kind; within one version keys are only added
    v: u8,
    /// When it was written: RFC 3339, UTC, microseconds
    #[serde(serialize_with = "text::display")]
    #[cfg_attr(test, schemars(with = "String"))]
    time: WallTime,
    /// The node that wrote it
    host: &'a str,
    /// What it is about
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    /// A health verdict
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text::display_option")]
    #[cfg_attr(test, schemars(with = "Option<StatusText>"))]
    status: Option<Status>,
    /// Whether this run changed the system
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    /// The same state said again, so that it does not expire
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(test, schemars(default))]
    renewal: bool,
    /// Earlier records of this subject that a slow reader did not get
    #[serde(skip_serializing_if = "is_zero")]
    #[cfg_attr(test, schemars(default))]
    skipped: u64,
    /// How long the verdict holds, from `received_ms` on
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_for_ms: Option<f64>,
    /// When it reached this machine, in milliseconds since its boot
    #[serde(skip_serializing_if = "Option::is_none")]
    received_ms: Option<f64>,
    /// The boot that `received_ms` counts from, in records written to a file
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<&'a str>,
    /// Why the node or subject is in standby
    #[serde(skip_serializing_if = "Option::is_none")]
    standby: Option<&'a str>,
    /// Nothing was changed; this is what would be
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(test, schemars(default))]
    dry_run: bool,
    /// The exact changes, in order
    #[serde(skip_serializing_if = "<[Action]>::is_empty")]
    #[cfg_attr(test, schemars(default))]
    actions: &'a [Action],
    /// Why this item failed
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorBody>,
}

#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum StatusText {
    Up,
    Down,
    Unknown,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The body of a record that has none.
#[derive(Serialize)]
pub(crate) struct Nothing {}

/// Appends one record, with its final newline, to `line`.
///
/// # Errors
/// A body that is no JSON object; nothing was appended then.
pub(crate) fn write(
    line: &mut Vec<u8>,
    head: &Head,
    time: WallTime,
    host: &str,
    body: &impl Serialize,
) -> Result<(), String> {
    let start = line.len();
    let envelope = Envelope {
        kind: head.kind,
        v: VERSION,
        time,
        host,
        subject: head.subject.as_deref(),
        status: head.status,
        changed: head.changed,
        renewal: head.renewal,
        skipped: head.skipped,
        valid_for_ms: head.valid_for_ms,
        received_ms: head.received_ms,
        boot_id: head.boot_id.as_deref(),
        standby: head.standby.as_deref(),
        dry_run: head.dry_run,
        actions: &head.actions,
        error: head.error.as_ref(),
    };
    let written = serde_json::to_writer(&mut *line, &envelope).and_then(|()| {
        let seam = line.len();
        serde_json::to_writer(&mut *line, body).map(|()| seam)
    });
    match written {
        // `{…}` and `{…}` become one object; an empty body leaves the envelope alone.
        Ok(seam) if line.get(seam) == Some(&b'{') => {
            if line.get(seam + 1) == Some(&b'}') {
                line.truncate(seam);
            } else {
                line[seam - 1] = b',';
                line.remove(seam);
            }
            line.push(b'\n');
            Ok(())
        }
        Ok(_) => {
            line.truncate(start);
            Err(format!("a {} record has a body that is no object", head.kind))
        }
        Err(error) => {
            line.truncate(start);
            Err(error.to_string())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Body {
        dev: &'static str,
    }

    fn written(head: &Head, body: &impl Serialize) -> String {
        let mut line = Vec::new();
        write(&mut line, head, WallTime { unix_us: 0 }, "n1", body).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_kind_comes_first_and_the_body_last() {
        assert_eq!(
            written(&Head::new("vip.show").about("192.0.2.1"), &Body { dev: "eth0" }),
            "{\"kind\":\"vip.show\",\"v\":1,\"time\":\"1970-01-01T00:00:00.000000Z\",\"host\":\"n1\",\"subject\":\"192.0.2.1\",\"dev\":\"eth0\"}\n"
        );
    }

    #[test]
    fn a_record_without_a_body_is_its_envelope() {
        assert_eq!(
            written(&Head::new("x"), &Nothing {}),
            "{\"kind\":\"x\",\"v\":1,\"time\":\"1970-01-01T00:00:00.000000Z\",\"host\":\"n1\"}\n"
        );
    }

    #[test]
    fn a_body_that_is_no_object_writes_nothing() {
        let mut line = b"before".to_vec();
        assert!(write(&mut line, &Head::new("x"), WallTime { unix_us: 0 }, "n1", &7).is_err());
        assert_eq!(line, b"before");
    }
}
