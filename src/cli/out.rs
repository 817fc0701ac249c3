//! Standard output: records and nothing else. Standard error: sentences.

use super::exit::Exit;
use super::failure::{Failure, Reason};
use super::table;
use crate::record::envelope::{self, Column, Head};
use crate::sys::{clock, raw};
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Prints `who: sentence` on standard error, on one line.
pub(crate) fn complain(who: &str, sentence: &str) {
    // What other programs and inputs said is in it: bounded, and unable to move a cursor.
    const LONGEST: usize = 2000;
    let printable = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let mut text: String = sentence.chars().take(LONGEST).map(printable).collect();
    if sentence.chars().nth(LONGEST).is_some() {
        text.push_str(" [...]");
    }
    let line = format!("{who}: {text}\n");
    // Nobody is left to tell that standard error is gone.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// How records look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Json,
    Table(&'static [Column]),
}

impl Form {
    /// `--table`, or `FAILOVER_OUTPUT=table` where a person looks.
    pub(crate) fn choose(table: bool, columns: &'static [Column]) -> Self {
        let wished = || std::env::var_os("FAILOVER_OUTPUT").is_some_and(|value| value == "table");
        if table || (wished() && std::io::stdout().is_terminal()) { Form::Table(columns) } else { Form::Json }
    }
}

/// The writer of one-shot verbs. Each record leaves whole; a reader that left changes no answer.
#[derive(Debug)]
pub(crate) struct Out {
    host: String,
    form: Form,
    lines: Vec<u8>,
    rows: Vec<serde_json::Value>,
    /// Nobody reads any more.
    gone: bool,
}

impl Out {
    /// Records are handed to the kernel in pieces of about this size.
    const PIECE: usize = 32 * 1024;

    pub(crate) fn new(host: &str, form: Form) -> Self {
        Out { host: host.to_owned(), form, lines: Vec::new(), rows: Vec::new(), gone: false }
    }

    /// Writes one record.
    pub(crate) fn record(&mut self, head: &Head, body: &impl Serialize) -> Result<(), Failure> {
        let start = self.lines.len();
        envelope::write(&mut self.lines, head, clock::wall(), &self.host, body)
            .map_err(|why| Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write a record: {why}")))?;
        match self.form {
            Form::Json if self.lines.len() >= Self::PIECE => self.flush(),
            Form::Json => Ok(()),
            Form::Table(_) => {
                if let Some(Ok(row)) = self.lines.get(start..).map(serde_json::from_slice) {
                    self.rows.push(row);
                }
                self.lines.truncate(start);
                Ok(())
            }
        }
    }

    /// Writes bytes that are whole lines already: the fast path of a bulk writer.
    pub(crate) fn whole_lines(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() < Self::PIECE {
            self.lines.extend_from_slice(bytes);
            return if self.lines.len() >= Self::PIECE { self.flush() } else { Ok(()) };
        }
        // Copying a gigabyte once more would be seen.
        self.flush()?;
        self.hand_over(bytes)
    }

    /// Hands everything written so far to the reader.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let lines = std::mem::take(&mut self.lines);
        self.hand_over(&lines)
    }

    fn hand_over(&mut self, lines: &[u8]) -> Result<(), Failure> {
        if self.gone || lines.is_empty() {
            return Ok(());
        }
        if raw::stdout_was_closed() {
            return Err(write_failed(nix::errno::Errno::EBADF));
        }
        // Not through std's stdout, which would look for newlines and copy once more.
        match write_all(lines) {
            Ok(()) => Ok(()),
            Err(nix::errno::Errno::EPIPE) => {
                self.gone = true;
                Ok(())
            }
            Err(errno) => Err(write_failed(errno)),
        }
    }

    /// No titles of a table either, for a verb that prints no record: standard output is somebody else's.
    pub(crate) fn discard(&mut self) {
        self.form = Form::Json;
    }

    /// Whether the reader has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Flushes, and prints the table that was collected, once; `even_empty`: the titles alone say that there is
    /// nothing.
    pub(crate) fn finish(&mut self, even_empty: bool) -> Result<(), Failure> {
        if let Form::Table(columns) = std::mem::replace(&mut self.form, Form::Json)
            && (even_empty || !self.rows.is_empty())
        {
            let text = table::render(columns, &self.rows);
            self.rows.clear();
            self.lines.extend_from_slice(text.as_bytes());
        }
        self.flush()
    }
}

/// The failure that an error on standard output is.
pub(crate) fn write_failed(errno: nix::errno::Errno) -> Failure {
    Failure {
        exit: Exit::Refused,
        reason: Reason::WriteFailed,
        errno: Some(errno),
        sentence: format!("cannot write to standard output: {}", errno.desc()),
    }
}

fn write_all(mut bytes: &[u8]) -> nix::Result<()> {
    use std::os::fd::AsFd;
    let stdout = std::io::stdout();
    while !bytes.is_empty() {
        match nix::unistd::write(stdout.as_fd(), bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(nix::errno::Errno::EAGAIN) => {
                // Somebody else made our end non-blocking.
                let mut sources = crate::sys::event::Sources::default();
                sources.writable(stdout.as_fd());
                let _ = sources.wait(None);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
