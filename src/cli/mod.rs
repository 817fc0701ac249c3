//! The process: arguments in, records and sentences out, an exit status at the end.

pub(crate) mod args;
pub mod exit;
pub(crate) mod failure;
pub(crate) mod input;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod stream;
mod table;
mod tool;

pub(crate) use exit::Exit;
pub use failure::reasons;
pub(crate) use failure::{Failure, Reason};
pub(crate) use out::complain;
pub(crate) use tool::Process;
pub use tool::{Tool, Verb, Verbs, main};
