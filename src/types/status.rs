//! The three answers of a health verdict.

use std::fmt;
use std::str::FromStr;

/// A verdict. Unknown is neither of the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    Up,
    Down,
    Unknown,
}

impl Status {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Status::Up => "up",
            Status::Down => "down",
            Status::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "up" => Ok(Status::Up),
            "down" => Ok(Status::Down),
            "unknown" => Ok(Status::Unknown),
            _ => Err(format!("'{text}' is not a status (up, down, unknown)")),
        }
    }
}
