//! Standard input in blocks of whole lines: a file from several threads, anything else as it comes.

use super::clock::Deadline;
use super::event::Sources;
use super::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Standard input, by what can be done with it.
#[derive(Debug)]
pub(crate) enum Input {
    /// A file: its blocks can be read in any order.
    File(Blocks),
    /// A pipe, a terminal, a socket.
    Stream(Stream),
}

/// Opens standard input for lines of at most `longest` bytes.
pub(crate) fn stdin(longest: usize) -> Result<Input> {
    // Our own descriptor of the same open file, so that no buffer of std's lies between.
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
    let mut file = File::from(descriptor);
    let is_file = file.metadata().map_err(|error| failed(&error))?.is_file();
    if !is_file {
        return Ok(Input::Stream(Stream {
            file,
            buffer: Vec::new(),
            given: 0,
            filled: 0,
            longest,
            skipping: false,
            ended: false,
        }));
    }
    let start = file.stream_position().map_err(|error| failed(&error))?;
    let end = file.metadata().map_err(|error| failed(&error))?.len().max(start);
    Ok(Input::File(Blocks { file, start, end, longest }))
}

fn failed(error: &std::io::Error) -> Error {
    Error::io("read", "standard input", error)
}

/// A file in blocks; each has the lines that begin in it, whole.
#[derive(Debug)]
pub(crate) struct Blocks {
    file: File,
    start: u64,
    end: u64,
    longest: usize,
}

/// Small enough that a block and what is made of it stay in a core's own cache.
const BLOCK: u64 = 128 * 1024;
/// Lines reach over the end of their block; this much is read on.
const BEYOND: usize = 512;

impl Blocks {
    /// How many blocks there are.
    pub(crate) fn count(&self) -> u64 {
        (self.end - self.start).div_ceil(BLOCK)
    }

    /// Reads block `idx` into `buffer` and gives the lines that begin in it; the last line of the
    /// file may have no newline.
    ///
    /// Of a line longer than it may be, one byte more than that is given, without a newline.
    pub(crate) fn read<'b>(&self, idx: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let from = self.start + idx * BLOCK;
        let to = from.saturating_add(BLOCK).min(self.end);
        // The byte before tells whether a line begins with the block.
        let before = u64::from(idx > 0);
        let len = usize::try_from(to - from + before).unwrap_or(usize::MAX);
        self.fill(from - before, len + BEYOND, buffer)?;
        let first = if idx == 0 { 0 } else { after_newline(buffer, 0) };
        if first >= len.min(buffer.len()) {
            return Ok(&[]);
        }
        // The last line is the one that holds the block's last byte.
        let mut end = after_newline(buffer, len - 1);
        let last = buffer.get(..len - 1).and_then(|lines| memchr::memrchr(b'\n', lines)).map_or(first, |at| at + 1);
        while buffer.get(end - 1) != Some(&b'\n') && end - last <= self.longest {
            let mut more = Vec::new();
            self.fill(from - before + end as u64, BEYOND, &mut more)?;
            if more.is_empty() {
                break;
            }
            let until = after_newline(&more, 0);
            buffer.extend_from_slice(more.get(..until).unwrap_or_default());
            end = buffer.len();
        }
        let end = if end - last > self.longest + 1 { last + self.longest + 1 } else { end };
        Ok(buffer.get(first..end).unwrap_or_default())
    }

    /// Reads up to `len` bytes at `at`; fewer at the end of the file.
    fn fill(&self, at: u64, len: usize, buffer: &mut Vec<u8>) -> Result<()> {
        // Only what is new is zeroed: a buffer that is used again costs nothing.
        buffer.resize(len, 0);
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.file.read_at(room, at + filled as u64) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        // What was appended behind the end seen at the start is somebody else's.
        let ours = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        buffer.truncate(filled.min(ours));
        Ok(())
    }

    /// Leaves the file as a reader would that had read it all: at its end.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(self.end)).map(|_| ()).map_err(|error| failed(&error))
    }
}

/// The place behind the first newline from `at` on; the end where there is none.
fn after_newline(bytes: &[u8], at: usize) -> usize {
    let newline = bytes.get(at..).and_then(|rest| memchr::memchr(b'\n', rest));
    newline.map_or(bytes.len(), |offset| at + offset + 1)
}

/// Input that comes when it comes: lines are given as soon as they are whole.
#[derive(Debug)]
pub(crate) struct Stream {
    file: File,
    buffer: Vec<u8>,
    /// What the last call gave away.
    given: usize,
    filled: usize,
    longest: usize,
    /// The rest of a line that was too long is coming.
    skipping: bool,
    /// A terminal can go on after its end of input; we do not.
    ended: bool,
}

impl Stream {
    /// More than a pipe holds by default, so that one read empties it.
    const ROOM: usize = 256 * 1024;

    /// Waits for the next whole lines; `None` at the end, `Some(&[])` never.
    ///
    /// Of a line longer than it may be, one byte more than that is given, without a newline.
    pub(crate) fn next(&mut self, deadline: Option<Deadline>) -> Result<Option<&[u8]>> {
        self.buffer.resize(Self::ROOM.max(2 * self.longest), 0);
        self.buffer.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        self.given = 0;
        while !self.ended {
            let seen = self.filled;
            self.ended = self.more(deadline)? == 0;
            let ended = self.ended;
            if self.skipping {
                let newline = self.buffer.get(..self.filled).and_then(|bytes| memchr::memchr(b'\n', bytes));
                let skip = newline.map_or(self.filled, |at| at + 1);
                self.skipping = newline.is_none() && !ended;
                self.buffer.copy_within(skip..self.filled, 0);
                self.filled -= skip;
                if self.skipping {
                    continue;
                }
            }
            let seen = seen.min(self.filled);
            let fresh = self.buffer.get(seen..self.filled).and_then(|fresh| memchr::memrchr(b'\n', fresh));
            self.given = match fresh {
                Some(at) => seen + at + 1,
                None if ended => self.filled,
                None if self.filled > self.longest => {
                    self.skipping = true;
                    // The rest of it is dropped here and by the next call.
                    self.filled = self.longest + 1;
                    self.filled
                }
                None => continue,
            };
            if self.given > 0 {
                return Ok(self.buffer.get(..self.given));
            }
        }
        Ok(None)
    }

    /// Reads once, as much as there is.
    fn more(&mut self, deadline: Option<Deadline>) -> Result<usize> {
        loop {
            if deadline.is_some() {
                self.wait(deadline)?;
            }
            match self.file.read(self.buffer.get_mut(self.filled..).unwrap_or_default()) {
                Ok(got) => {
                    self.filled += got;
                    return Ok(got);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Somebody else made our end non-blocking.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.wait(deadline)?,
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    fn wait(&self, deadline: Option<Deadline>) -> Result<()> {
        let mut sources = Sources::default();
        sources.readable(self.file.as_fd());
        if sources.wait(deadline.map(Deadline::tick))? {
            return Ok(());
        }
        Err(Error::Late {
            doing: "read".to_owned(),
            object: "standard input".to_owned(),
            why: "nothing more came in time".to_owned(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file that is gone when its descriptor is.
    fn file(name: &str, content: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("failover-blocks-{}-{name}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }

    fn through_blocks(name: &str, content: &[u8], longest: usize) -> Vec<Vec<u8>> {
        let blocks = Blocks { file: file(name, content), start: 0, end: content.len() as u64, longest };
        let mut buffer = Vec::new();
        (0..blocks.count()).flat_map(|idx| lines(blocks.read(idx, &mut buffer).unwrap())).collect()
    }

    fn through_stream(name: &str, content: &[u8], longest: usize) -> Vec<Vec<u8>> {
        let file = file(name, content);
        let mut stream =
            Stream { file, buffer: Vec::new(), given: 0, filled: 0, longest, skipping: false, ended: false };
        let mut all = Vec::new();
        while let Some(block) = stream.next(None).unwrap() {
            assert!(!block.is_empty());
            all.extend(lines(block));
        }
        all
    }

    fn lines(block: &[u8]) -> Vec<Vec<u8>> {
        block.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn every_line_is_given_once_and_whole() {
        let numbered: Vec<u8> = (0..60_000).flat_map(|n| format!("{}{n}\n", "x".repeat(n % 17)).into_bytes()).collect();
        let block = usize::try_from(BLOCK).unwrap();
        let edges = |at: usize| [vec![b'a'; at], b"\nend".to_vec()].concat();
        for (name, content) in [
            ("empty", Vec::new()),
            ("newline", b"\n".to_vec()),
            ("no-newline", b"last".to_vec()),
            ("numbered", numbered),
            ("empty-lines", vec![b'\n'; 300_000]),
            ("edge-0", edges(block - 2)),
            ("edge-1", edges(block - 1)),
            ("edge-2", edges(block)),
            ("edge-3", edges(block + BEYOND)),
            ("edge-4", edges(2 * block)),
        ] {
            let whole = lines(&content);
            assert_eq!(through_blocks(name, &content, 1 << 20), whole, "{name}");
            assert_eq!(through_stream(name, &content, 1 << 20), whole, "{name}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_once() {
        for len in [101, 102, 5000, 200_000, 700_000] {
            let content = [b"a\n".to_vec(), vec![b'x'; len], b"\nb\n".to_vec()].concat();
            for got in [through_blocks("long", &content, 100), through_stream("long", &content, 100)] {
                assert_eq!(got.len(), 3, "{len}");
                assert!(got[1].len() > 100 && got[1].len() <= len + 1, "{len}: {}", got[1].len());
                assert_eq!((got[0].as_slice(), got[2].as_slice()), (&b"a\n"[..], &b"b\n"[..]));
            }
        }
    }

    #[test]
    fn a_file_is_left_at_its_end() {
        let mut file = file("end", b"one\ntwo\n");
        let blocks = Blocks { file: file.try_clone().unwrap(), start: 4, end: 8, longest: 100 };
        assert_eq!(blocks.read(0, &mut Vec::new()).unwrap(), b"two\n");
        blocks.finish().unwrap();
        assert_eq!(file.stream_position().unwrap(), 8);
    }
}
