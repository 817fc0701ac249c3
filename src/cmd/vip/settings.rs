//! Settings of an interface that are changed for as long as something needs them, and put back.

use crate::cli::Failure;
use crate::record::Action;
use crate::record::state::{self, Origin, Read};
use crate::sys::{self, clock, sysctl};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings as they are wanted, or as they were.
pub(super) type Settings = BTreeMap<String, String>;

/// What was changed on one interface, for one reason; on disk, so that a killed run's is put back too.
pub(super) struct Kept<'a> {
    pub(super) node: &'a str,
    /// The reason, part of the file's name.
    pub(super) what: &'a str,
    pub(super) dev: &'a str,
}

impl Kept<'_> {
    fn path(&self) -> PathBuf {
        sys::state::folder().join(format!("vip-{}-{}-{}.json", self.node, self.what, sys::state::file_name(self.dev)))
    }

    fn origin(&self) -> Origin {
        let command = match self.what {
            "vmac" => "vip-vmac",
            "forward" => "vip-forward",
            _ => "vip-share",
        };
        Origin { command, host: self.node.to_owned(), boot_id: clock::boot_id(), at: clock::boot() }
    }

    /// Whether anything was changed.
    pub(super) fn is_there(&self) -> bool {
        self.path().exists()
    }

    /// What settings were before.
    pub(super) fn saved(&self) -> Result<Settings, Failure> {
        let path = self.path();
        let Some(bytes) = sys::state::read(&path)? else { return Ok(Settings::new()) };
        let read = state::read(&bytes, &self.origin()).map_err(|why| sys::Error::File {
            doing: "read".to_owned(),
            path: path.display().to_string(),
            why,
            mend: "it holds the settings to restore; mend or move it away".to_owned(),
        })?;
        Ok(match read {
            Read::Current(settings) => settings,
            // After a boot the settings are the system's own again.
            Read::OtherBoot => Settings::new(),
        })
    }

    /// Keeps what settings are now; what an earlier run has kept is older and stays.
    pub(super) fn remember<'a>(&self, settings: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
        let mut kept = self.saved()?;
        for setting in settings {
            if let Some(value) = sysctl::read(setting)? {
                kept.entry(setting.clone()).or_insert(value);
            }
        }
        let bytes = state::write(&self.origin(), &kept).unwrap_or_default();
        Ok(sys::state::replace(&self.path(), &bytes)?)
    }

    /// Puts the settings back, and forgets them.
    pub(super) fn put_back(&self) -> Result<Vec<Action>, Failure> {
        let mut actions = Vec::new();
        // Some that are for all interfaces write over each one's own.
        let (all, each): (Settings, Settings) =
            self.saved()?.into_iter().partition(|(setting, _)| setting.contains("/conf/all/"));
        for (setting, value) in all.into_iter().chain(each) {
            // An interface that is gone has taken its settings along.
            if sysctl::read(&setting)?.is_some() && sysctl::write(&setting, &value)? {
                let text = format!("sysctl net.{}={value}", setting.replace('/', "."));
                actions.push(Action { op: "sysctl", text });
            }
        }
        let path = self.path();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(sys::Error::io("remove", path.display().to_string(), &error).into())
            }
            _ => Ok(actions),
        }
    }
}
