//! Standard input, line by line and bounded.

use super::exit::Exit;
use super::failure::Failure;
use crate::record::line::MAX_LINE;
use crate::sys;
use std::io::{BufRead, BufReader, StdinLock};
use std::os::fd::AsFd;

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

/// Standard input of a stream: read when it is readable, line by line, never waited for.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    rest: Vec<u8>,
    skipping: bool,
    number: u64,
    ended: bool,
}

/// A line that a feed gave, or why it is none.
pub(crate) type Fed = (u64, Result<String, String>);

impl Feed {
    /// Whether the input has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Reads what is there now, called when standard input is readable. Empty lines are skipped.
    pub(crate) fn take(&mut self) -> Result<Vec<Fed>, Failure> {
        let mut block = vec![0; MAX_LINE];
        let got = loop {
            match nix::unistd::read(std::io::stdin().as_fd(), &mut block) {
                Ok(got) => break got,
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => return Ok(Vec::new()),
                Err(errno) => return Err(sys::Error::call("read", "standard input", errno).into()),
            }
        };
        Ok(self.push(&block[..got]))
    }

    /// Takes a block in; an empty one is the end, which also ends a last line without newline.
    fn push(&mut self, block: &[u8]) -> Vec<Fed> {
        let mut lines = Vec::new();
        self.ended |= block.is_empty();
        let mut block = if self.ended && (self.skipping || !self.rest.is_empty()) { b"\n" } else { block };
        while let Some(end) = memchr::memchr(b'\n', block) {
            self.rest.extend_from_slice(&block[..end]);
            block = &block[end + 1..];
            self.number += 1;
            let line = std::mem::take(&mut self.rest);
            if std::mem::take(&mut self.skipping) || line.len() > MAX_LINE {
                lines.push((self.number, Err(format!("it is longer than {MAX_LINE} bytes"))));
            } else if !line.iter().all(u8::is_ascii_whitespace) {
                let text = String::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned());
                lines.push((self.number, text.map(|text| text.trim_end_matches('\r').to_owned())));
            }
        }
        self.rest.extend_from_slice(block);
        if self.rest.len() > MAX_LINE {
            self.rest.clear();
            self.skipping = true;
        }
        lines
    }
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
    fn a_feed_gives_whole_lines_whatever_the_pieces() {
        let input = b"a\n\nbc\r\n\xff\nlast";
        for size in 1..=input.len() {
            let mut feed = Feed::default();
            let mut got: Vec<Fed> = input.chunks(size).flat_map(|piece| feed.push(piece)).collect();
            got.extend(feed.push(b""));
            let got: Vec<String> =
                got.into_iter().map(|(number, line)| format!("{number} {}", line.unwrap_or("!".to_owned()))).collect();
            assert_eq!(got, ["1 a", "3 bc", "4 !", "5 last"]);
            assert!(feed.is_ended());
        }
    }

    #[test]
    fn a_feed_skips_a_line_without_end_in_bounded_memory() {
        let mut feed = Feed::default();
        for _ in 0..100 {
            assert!(feed.push(&[b'x'; 4096]).is_empty());
            assert!(feed.rest.len() <= MAX_LINE + 4096);
        }
        let got = feed.push(b"y\nok\n");
        assert!(got[0].1.is_err());
        assert_eq!(got[1], (2, Ok("ok".to_owned())));
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_is_skipped_alone() {
        let long = [vec![b'x'; MAX_LINE + 10], b"\nok\n\xff\nend\n".to_vec()].concat();
        assert_eq!(all(&long), ["1 !", "2 ok", "3 !", "4 end"]);
        assert_eq!(all(&vec![b'x'; MAX_LINE + 10]), ["1 !"]);
    }
}
