//! Records of `gw doctor`.

use super::envelope::{Column, column};
use crate::decide::doctor::Finding;
use serde::Serialize;

/// One thing that is wrong, or that could not be looked at.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Found<'a> {
    /// down: it is wrong; unknown: it could not be looked at, see error
    status: &'static str,
    /// error: it does not work; warning: it works until something else happens, or not for all
    severity: &'static str,
    /// The setting, the interface, the rule or the file
    object: &'a str,
    /// How it is
    got: &'a str,
    /// How it should be
    want: &'a str,
    /// The shell command that mends it, or what to do where none can
    mend: &'a str,
}

impl<'a> Found<'a> {
    pub(crate) fn new(finding: &'a Finding, is_known: bool) -> Self {
        Found {
            status: if is_known { "down" } else { "unknown" },
            severity: finding.severity.as_str(),
            object: &finding.object,
            got: &finding.got,
            want: &finding.want,
            mend: &finding.mend,
        }
    }
}

pub(crate) const DOCTOR_COLUMNS: &[Column] = &[
    column("subject", "FINDING"),
    column("severity", "SEVERITY"),
    column("object", "OBJECT"),
    column("got", "GOT"),
    column("want", "WANT"),
    column("mend", "MEND"),
];

pub(crate) const DOCTOR_SCHEMA: (&str, &str) = ("gw.doctor", include_str!("schema/gw.doctor.json"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_doctor() {
        check::<Found<'static>>("gw.doctor", "What is set wrong for a host with several gateways, and what mends it");
    }
}
