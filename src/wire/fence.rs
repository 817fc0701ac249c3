//! What a fence agent is told and what its end means (`ClusterLabs`, Fence Agent API).
//!
//! An agent reads `key=value` lines on its standard input: no argument carries a password where `ps`
//! shows it. Lines that begin with `#` are skipped, the last of a key wins, unknown keys are ignored.

use crate::types::power::Power;

/// What is asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Off,
    On,
    Status,
    /// Whether the agent reaches its device at all.
    Monitor,
}

impl Action {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Action::Off => "off",
            Action::On => "on",
            Action::Status => "status",
            Action::Monitor => "monitor",
        }
    }
}

/// The options of one agent: how it reaches its device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    lines: Vec<(String, String)>,
}

impl Options {
    /// Reads `key=value` lines.
    ///
    /// # Errors
    /// A line that is none, a blank in a key, or an `action`, which is not a matter of configuration.
    /// No value is told: it may be a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut lines = Vec::new();
        for (idx, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("line {}: {why}", idx + 1);
            let (key, value) = line.split_once('=').ok_or_else(|| wrong("it is not key=value"))?;
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if key.is_empty() || !key.chars().all(plain) {
                return Err(wrong("its key is not of letters, digits, '_' and '-' (no blanks around '=')"));
            }
            if matches!(key, "action" | "option") {
                return Err(wrong("the action is not an option"));
            }
            lines.push((key.to_owned(), value.to_owned()));
        }
        Ok(Options { lines })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether they say which plug is the node's.
    pub(crate) fn names_plug(&self) -> bool {
        self.lines.iter().any(|(name, _)| name == "port" || name == "plug")
    }

    /// What an agent is told. The node is its plug, unless the options name one.
    pub(crate) fn input(&self, action: Action, node: &str) -> String {
        let own = [("action", action.as_str()), ("nodename", node), ("port", node)];
        let own = own.into_iter().filter(|(key, _)| *key != "port" || !self.names_plug());
        let options = self.lines.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        own.chain(options).map(|(key, value)| format!("{key}={value}\n")).collect()
    }
}

/// What the exit status of `action=status` means: 0 on, 2 off, and anything else that the agent could
/// not find out.
pub(crate) fn power(status: Option<i32>) -> Power {
    match status {
        Some(0) => Power::On,
        Some(2) => Power::Off,
        _ => Power::Unknown,
    }
}

/// The words for Pacemaker's own tool (stonith_admin(8)), which has its fencer act and tells by 0 that
/// a device has confirmed it.
#[allow(clippy::doc_markdown)] // the name of a manual page
pub(crate) fn stonith(action: &str, node: &str, seconds: u64) -> [String; 4] {
    let word = match action {
        "on" => "--unfence",
        "reboot" => "--reboot",
        _ => "--fence",
    };
    [word.to_owned(), node.to_owned(), "--timeout".to_owned(), seconds.to_string()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_all_on_its_input() {
        let options = Options::parse("# the BMC\nip=192.0.2.7\n\npasswd=a=b #c\r\nip=192.0.2.8\n").unwrap();
        assert_eq!(
            options.input(Action::Off, "n2"),
            "action=off\nnodename=n2\nport=n2\nip=192.0.2.7\npasswd=a=b #c\nip=192.0.2.8\n"
        );
        let named = Options::parse("plug=7").unwrap();
        assert_eq!(named.input(Action::Status, "n2"), "action=status\nnodename=n2\nplug=7\n");
    }

    #[test]
    fn a_wrong_option_is_refused_without_its_value() {
        for text in ["secret", "a b=secret", "=secret", "action=secret", " ip =secret"] {
            let why = Options::parse(text).unwrap_err();
            assert!(why.starts_with("line 1: ") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_status_is_on_off_or_nothing() {
        let powers = [Some(0), Some(2), Some(1), Some(3), None].map(power);
        assert_eq!(powers, [Power::On, Power::Off, Power::Unknown, Power::Unknown, Power::Unknown]);
    }
}
