//! Arguments that every verb takes.

use super::failure::Failure;
use crate::types::time::Span;
use clap::Args;

/// Flags of all verbs.
#[derive(Args, Debug, Clone)]
pub(crate) struct Common {
    /// Print a table for a person instead of JSON
    #[arg(short, long, display_order = 900)]
    pub(crate) table: bool,

    /// Print the JSON Schema of what this writes, and do nothing else
    #[arg(long, display_order = 901)]
    pub(crate) schema: bool,

    // The help shows the text as it stands, backticks too.
    #[allow(clippy::doc_markdown)]
    /// Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]
    #[arg(long, value_name = "NAME", display_order = 902, value_parser = node_name)]
    pub(crate) node: Option<String>,

    /// End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]
    #[arg(long, value_name = "D", display_order = 903)]
    pub(crate) timeout: Option<Span>,
}

/// Flags of verbs that change the system.
#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct Changing {
    /// Print the exact changes as records and make none
    #[arg(long, display_order = 800)]
    pub(crate) dry_run: bool,

    /// Print the exact changes in the records of a real run too
    #[arg(long, display_order = 801)]
    pub(crate) explain: bool,
}

impl Changing {
    /// Whether the record says what each change is.
    pub(crate) fn shows_actions(self) -> bool {
        self.dry_run || self.explain
    }
}

/// An answer whose default depends on other flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum YesNo {
    Yes,
    No,
}

/// The flags of a verb: its own, then those of all verbs.
pub(crate) fn flags<T: Args>(command: clap::Command) -> clap::Command {
    // The parser takes a struct's doc comment for what the command is about.
    use clap::builder::Resettable;
    let about = command.get_about().cloned().map_or(Resettable::Reset, Resettable::Value);
    // Of a flag that stands twice the later one holds, as wrappers of every tool here expect.
    Common::augment_args(T::augment_args(command)).about(about).long_about(Resettable::Reset).args_override_self(true)
}

/// The flags that the parser has found.
pub(crate) fn read<T: clap::FromArgMatches>(matches: &clap::ArgMatches) -> Result<T, Failure> {
    T::from_arg_matches(matches).map_err(|error| Failure::usage(error.to_string()))
}

/// A share on the command line.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("'{text}' is not a share from 0 to 1"))
}

fn node_name(text: &str) -> Result<String, String> {
    crate::types::node::check_name(text).map(|()| text.to_owned())
}
