//! From `main` to the exit status.

use super::args::Common;
use super::exit::{Dialect, Exit};
use super::failure::{Failure, Reason};
use super::out::{self, Form, Out};
use super::stream;
use crate::record::Column;
use crate::sys::clock::Deadline;
use crate::types::time::{Span, Tick};
use clap::{ArgMatches, Command, FromArgMatches, ValueEnum};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// One binary.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    pub name: &'static str,
    pub about: &'static str,
    pub verbs: Verbs,
}

/// A command that answers one question, or one with several verbs.
#[derive(Clone, Copy, Debug)]
pub enum Verbs {
    One(Verb),
    Many(&'static [Verb]),
}

/// One verb: its flags and its steps.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The word on the command line; empty where the command has but one.
    pub name: &'static str,
    pub about: &'static str,
    /// Command lines that work when pasted, with a word on each.
    pub examples: &'static str,
    /// Adds the verb's flags: `args::flags::<Flags>`.
    pub args: fn(Command) -> Command,
    /// Kind and schema of each record that it writes.
    pub schemas: &'static [(&'static str, &'static str)],
    /// What `--table` shows.
    pub columns: &'static [Column],
    pub(crate) run: fn(&ArgMatches, &mut Process) -> Result<Exit, Failure>,
}

impl Tool {
    /// The parser of the whole command line. Only the called verb's flags are built.
    pub fn command(&self) -> Command {
        let command = Command::new(self.name)
            .about(self.about)
            .version(env!("CARGO_PKG_VERSION"))
            .propagate_version(true)
            .disable_help_subcommand(true)
            .max_term_width(100);
        match self.verbs {
            Verbs::One(verb) => (verb.args)(command).after_help(examples(&verb)),
            Verbs::Many(verbs) => verbs.iter().fold(command.subcommand_required(true), |command, verb| {
                let help = examples(verb);
                command.subcommand(
                    Command::new(verb.name).about(verb.about).after_help(help).max_term_width(100).defer(verb.args),
                )
            }),
        }
    }

    fn verb(&self, name: Option<&str>) -> Option<&Verb> {
        match &self.verbs {
            Verbs::One(verb) => Some(verb),
            Verbs::Many(verbs) => verbs.iter().find(|verb| Some(verb.name) == name),
        }
    }

    /// All verbs.
    pub fn each_verb(&self) -> &[Verb] {
        match &self.verbs {
            Verbs::One(verb) => std::slice::from_ref(verb),
            Verbs::Many(verbs) => verbs,
        }
    }
}

fn examples(verb: &Verb) -> String {
    let mut text = "Examples:".to_owned();
    for line in verb.examples.lines() {
        text.push_str("\n  ");
        text.push_str(line);
    }
    text
}

/// What a verb has at hand: its name, this node's name, its output and its time.
#[derive(Debug)]
pub(crate) struct Process {
    /// The words that begin a complaint: `vip add`.
    pub(crate) who: String,
    pub(crate) node: String,
    pub(crate) out: Out,
    pub(crate) form: Form,
    timeout: Option<Span>,
}

impl Process {
    /// The deadline of a run that plans to take `planned` by itself.
    pub(crate) fn deadline(&self, planned: Duration) -> Deadline {
        const GRACE: Duration = Duration::from_secs(5);
        Deadline::after(self.timeout.map_or(planned.saturating_add(GRACE), |timeout| timeout.0))
    }

    /// The deadline of a stream: none, unless `--timeout` was given.
    pub(crate) fn stream_deadline(&self) -> Option<Deadline> {
        self.timeout.map(|timeout| Deadline::after(timeout.0))
    }

    /// When a stream ends by itself: as planned with `--for`, else at `--timeout`, else never.
    pub(crate) fn stream_end(&self, planned: Option<Span>) -> Option<Tick> {
        planned.or(self.timeout).map(|span| Deadline::after(span.0).tick())
    }

    /// Prints a sentence on standard error.
    pub(crate) fn complain(&self, sentence: &str) {
        out::complain(&self.who, sentence);
    }
}

/// Runs a tool on this process's arguments.
pub fn main(tool: &Tool) -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let name = words().next().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        out::complain(
            name,
            &format!("a fault of our own{place} (please report it with the command line and the input)"),
        );
        std::process::exit(i32::from(Exit::Bug.code()));
    }));
    let exit = run(tool, &args);
    ExitCode::from(exit.code())
}

/// The command line for messages, whatever bytes are in it.
fn words() -> impl Iterator<Item = String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned())
}

fn run(tool: &Tool, args: &[OsString]) -> Exit {
    if let Some(exit) = print_schema(tool, args) {
        return exit;
    }
    let matches = match tool.command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => return parse_failed(tool, &error),
    };
    let (name, matches) = match matches.subcommand() {
        Some((name, matches)) => (Some(name), matches),
        None => (None, &matches),
    };
    let who = name.map_or_else(|| tool.name.to_owned(), |name| format!("{} {name}", tool.name));
    // The parser has let no other word through.
    let Some(verb) = tool.verb(name) else { return Exit::Usage };
    let outcome = process(&who, verb, matches).and_then(|mut process| {
        let answer = (verb.run)(matches, &mut process);
        // A stream has written its own; one that failed has nothing to show titles of.
        let finished = process.out.finish(answer.is_ok() && !stream::owns_stdout());
        let answer = answer?;
        // Also after a failure to write, the answer that was found is not told as another.
        finished.map(|()| answer)
    });
    match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            if !failure.sentence.is_empty() {
                out::complain(&who, &failure.sentence);
            }
            failure.exit
        }
    }
}

fn process(who: &str, verb: &Verb, matches: &ArgMatches) -> Result<Process, Failure> {
    let common = Common::from_arg_matches(matches).map_err(|error| Failure::usage(one_line(&error)))?;
    let node = match common.node {
        Some(node) => node,
        None => own_name()?,
    };
    let form = Form::choose(common.table, verb.columns);
    Ok(Process { who: who.to_owned(), out: Out::new(&node, form), node, form, timeout: common.timeout })
}

/// `FAILOVER_NODE`, else the host name up to its first dot's domain as it stands.
fn own_name() -> Result<String, Failure> {
    let (name, source) = match std::env::var("FAILOVER_NODE") {
        Ok(name) if !name.is_empty() => (name, "FAILOVER_NODE"),
        _ => (
            nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            "the host name",
        ),
    };
    crate::types::node::check_name(&name)
        .map_err(|why| Failure::new(Exit::BadInput, Reason::BadInput, format!("{source}: {why} (give --node NAME)")))?;
    Ok(name)
}

/// `--schema` needs no operands, so it is looked for before they are.
fn print_schema(tool: &Tool, args: &[OsString]) -> Option<Exit> {
    let words = || args.iter().skip(1).map_while(|arg| arg.to_str().filter(|arg| *arg != "--"));
    if !words().any(|word| word == "--schema") {
        return None;
    }
    let verb = tool.verb(words().find(|word| !word.starts_with('-')))?;
    let text = match verb.schemas {
        [(_, one)] => (*one).to_owned(),
        several => {
            let list: Vec<&str> = several.iter().map(|(_, schema)| schema.trim()).collect();
            format!(
                "{{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"oneOf\":[\n{}\n]}}\n",
                list.join(",\n")
            )
        }
    };
    Some(print(tool.name, &text))
}

fn print(who: &str, text: &str) -> Exit {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Exit::Yes,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Yes,
        Err(error) => {
            out::complain(who, &format!("cannot write to standard output: {error}"));
            Exit::Refused
        }
    }
}

/// Help and version go to standard output; anything else is one line and status 2.
fn parse_failed(tool: &Tool, error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return print(tool.name, &error.render().to_string());
    }
    let verb = words().nth(1).filter(|word| tool.verb(Some(word)).is_some_and(|verb| !verb.name.is_empty()));
    let who = verb.map_or_else(|| tool.name.to_owned(), |verb| format!("{} {verb}", tool.name));
    out::complain(&who, &format!("{} (see: {who} --help)", one_line(error)));
    // A dialect holds for a wrong command line too, where 2 may be an answer.
    let words: Vec<String> = words().collect();
    let asked =
        words.iter().zip(words.iter().skip(1)).find(|(flag, _)| *flag == "--exit").map(|(_, word)| word.as_str());
    let asked = asked.or_else(|| words.iter().find_map(|word| word.strip_prefix("--exit=")));
    asked.and_then(|word| Dialect::from_str(word, false).ok()).map_or(Exit::Usage, |dialect| dialect.of(Exit::Usage))
}

/// The parser's words as one sentence: its first paragraph, and its tips.
fn one_line(error: &clap::Error) -> String {
    use clap::error::ErrorKind;
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == ErrorKind::MissingSubcommand
    {
        return "a verb is missing".to_owned();
    }
    let text = error.render().to_string();
    let mut sentence = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        if line.is_empty() {
            continue;
        }
        let line = line.strip_prefix("error: ").unwrap_or(line);
        if !sentence.is_empty() {
            sentence.push_str(if line.starts_with("tip:") || line.starts_with('[') { "; " } else { " " });
        }
        sentence.push_str(line);
    }
    sentence
}
