//! Standard input, line by line and bounded.

use super::exit::Exit;
use super::failure::Failure;
use crate::record::line::MAX_LINE;
use crate::sys;
use std::io::{BufRead, BufReader, StdinLock};

/// Counts malformed lines and tells the first ten of them on standard error.
///
/// The other lines are processed; the run ends with status 6.
#[derive(Debug)]
pub(crate) struct Complaints {
    who: String,
    count: u64,
}

impl Complaints {
    const TOLD: u64 = 10;

    pub(crate) fn new(who: &str) -> Self {
        Complaints { who: who.to_owned(), count: 0 }
    }

    /// Line `number` is wrong, and why.
    pub(crate) fn line(&mut self, number: u64, why: &str) {
        self.count += 1;
        if self.count <= Self::TOLD {
            super::out::complain(&self.who, &format!("line {number} is malformed: {why}"));
        }
    }

    /// The status that the lines read so far give to the run.
    pub(crate) fn exit(&self) -> Exit {
        if self.count == 0 { Exit::Yes } else { Exit::BadInput }
    }

    /// Tells how many more there were; the end of input.
    pub(crate) fn finish(&self) -> Exit {
        if self.count > Self::TOLD {
            super::out::complain(&self.who, &format!("{} more malformed lines", self.count - Self::TOLD));
        }
        self.exit()
    }
}

/// Reads lines of at most 64 KiB.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
}

/// One line of input.
#[derive(Debug)]
pub(crate) enum Got<'a> {
    /// The line without its end, and its number from 1.
    Line(u64, &'a str),
    /// A line that is no text, or too long; it was skipped.
    Malformed(u64, String),
}

impl Lines<BufReader<StdinLock<'static>>> {
    pub(crate) fn stdin() -> Self {
        Lines::new(BufReader::with_capacity(MAX_LINE, std::io::stdin().lock()))
    }
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Lines { reader, buffer: Vec::new(), number: 0 }
    }

    /// The next line that is not empty; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Got<'_>>, Failure> {
        loop {
            self.buffer.clear();
            let whole = self.fill().map_err(|error| sys::Error::io("read", "standard input", &error))?;
            if self.buffer.is_empty() && whole == Whole::End {
                return Ok(None);
            }
            self.number += 1;
            if whole == Whole::TooLong {
                return Ok(Some(Got::Malformed(self.number, format!("it is longer than {MAX_LINE} bytes"))));
            }
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            // Borrowed again below: the borrow checker does not see that the loop ends here.
            break;
        }
        Ok(Some(match std::str::from_utf8(&self.buffer) {
            Ok(text) => Got::Line(self.number, text.trim_end_matches(['\n', '\r'])),
            Err(_) => Got::Malformed(self.number, "it is not UTF-8".to_owned()),
        }))
    }

    /// Reads up to the next newline into the buffer, dropping what does not fit.
    fn fill(&mut self) -> std::io::Result<Whole> {
        let mut whole = Whole::Line;
        loop {
            let block = match self.reader.fill_buf() {
                Ok(block) => block,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if block.is_empty() {
                return Ok(if whole == Whole::TooLong { whole } else { Whole::End });
            }
            let end = memchr::memchr(b'\n', block);
            let piece = end.map_or(block.len(), |end| end + 1);
            if self.buffer.len() + piece > MAX_LINE + 2 {
                whole = Whole::TooLong;
            } else if whole == Whole::Line {
                self.buffer.extend_from_slice(&block[..piece]);
            }
            self.reader.consume(piece);
            if end.is_some() {
                return Ok(whole);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Line,
    TooLong,
    End,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn all(input: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(BufReader::with_capacity(7, input));
        let mut got = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            got.push(match line {
                Got::Line(number, text) => format!("{number} {text}"),
                Got::Malformed(number, _) => format!("{number} !"),
            });
        }
        got
    }

    #[test]
    fn empty_lines_count_and_are_skipped() {
        assert_eq!(all(b"a\n\n  \nb\r\nc"), ["1 a", "4 b", "5 c"]);
        assert!(all(b"").is_empty());
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_is_skipped_alone() {
        let long = [vec![b'x'; MAX_LINE + 10], b"\nok\n\xff\nend\n".to_vec()].concat();
        assert_eq!(all(&long), ["1 !", "2 ok", "3 !", "4 end"]);
        assert_eq!(all(&vec![b'x'; MAX_LINE + 10]), ["1 !"]);
    }
}
