//! What a switch says of a machine.

/// The state of a machine's power. Unknown is neither of the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Off,
    Unknown,
}

impl Power {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Power::On => "on",
            Power::Off => "off",
            Power::Unknown => "unknown",
        }
    }
}
