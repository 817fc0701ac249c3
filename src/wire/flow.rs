//! Flows as people and other programs write them, one a line.
//!
//! ```text
//! SRC                                   192.0.2.7, 2001:db8::7
//! SRC:SPORT                             192.0.2.7:4660, [2001:db8::7]:4660
//! SRC:SPORT>DST:DPORT/PROTO             192.0.2.7:4660>198.51.100.10:80/tcp
//! SRC>DST/PROTO                         192.0.2.7>198.51.100.10/icmp
//! SRC SPORT DST DPORT [PROTO]           192.0.2.7 4660 198.51.100.10 80 tcp
//! conntrack -L, -E, /proc/net/nf_conntrack    conntrack-tools 1.4.7
//! ss -Hn and its variants                     iproute2 6.1
//! ```
//!
//! A line tells its form by itself, so that a file may mix them. Of a conntrack entry the original
//! direction is taken, before any address translation. Of a socket the flow is what comes in from
//! the peer, since that is what a bucket rule on this host hashes: source and destination are the
//! peer's and ours.

use crate::types::flow::{Flow, Icmp, Ports};
use crate::types::net::Proto;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// What a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Flow(Flow),
    /// A line of `ss` that is none: a Unix or netlink socket, one that listens, a second line of
    /// `-i`.
    NoFlow,
}

/// Why a line is no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Form,
    Address,
    Port,
    Proto,
    Families,
    /// The first line of `ss` without `-H`.
    Header,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Form => {
                "not a flow (SRC, SRC:SPORT, SRC:SPORT>DST:DPORT/PROTO, SRC SPORT DST DPORT [PROTO], a line of conntrack -L or ss -Hn)"
            }
            Malformed::Address => "not an address (192.0.2.7, 2001:db8::7; with a port [2001:db8::7]:4660)",
            Malformed::Port => "not a port (0 to 65535)",
            Malformed::Proto => "not a protocol (tcp, udp, icmp, …, or 0 to 255)",
            Malformed::Families => "source and destination are of different families",
            Malformed::Header => "the head line of ss (leave it out with ss -H)",
        })
    }
}

/// Reads one line, without its newline.
///
/// # Errors
/// The line has none of the forms, or an address, port or protocol in it is none.
pub(crate) fn parse(line: &[u8]) -> Result<Line, Malformed> {
    let line = match std::str::from_utf8(line) {
        Ok(line) => line,
        // The name of a process in ss -p may be any bytes; it comes after the addresses.
        Err(e) => {
            let good = line.get(..e.valid_up_to()).and_then(|good| std::str::from_utf8(good).ok());
            return socket(good.unwrap_or_default());
        }
    };
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Err(Malformed::Form) };
    // An address has a dot or a colon, the words of other programs have not; their times have.
    let is_address = first.bytes().any(|letter| matches!(letter, b'.' | b':'));
    if !is_address || first.starts_with('[') {
        // A colon before it: a socket whose process bears that name.
        let at = memchr::memmem::find(line.as_bytes(), b" src=").map(|at| line.split_at(at));
        if let Some((head, tuple)) = at.filter(|(head, _)| !head.contains(':')) {
            return conntrack(head, tuple.get(" src=".len()..).unwrap_or_default()).map(Line::Flow);
        }
    }
    if line.starts_with("\t ") {
        return Ok(Line::NoFlow);
    }
    if !is_address {
        return socket(line);
    }
    let Some(sport) = words.next() else { return endpoints(first).map(Line::Flow) };
    let (Some(dst), Some(dport)) = (words.next(), words.next()) else { return Err(Malformed::Form) };
    let (proto, None) = (words.next(), words.next()) else { return Err(Malformed::Form) };
    let ports = Ports { src: port(sport)?, dst: Some(port(dport)?) };
    flow(address(first)?, Some(address(dst)?), Some(ports), proto.map(protocol).transpose()?).map(Line::Flow)
}

/// So many lines go through each step at a time.
pub(crate) const RUN: usize = 128;

/// Lines that are an IPv4 address and nothing else, read in runs: by far the most frequent lines
/// of long files.
///
/// Without a branch for each digit, since it would be guessed wrong at every other address, where
/// one number is of one digit and the next of three. Where the three dots and the newline stand is
/// read off a mask; what the numbers are, and whether they are written as [`parse`] wants them, is
/// worked out for the whole run side by side.
#[derive(Debug)]
pub(crate) struct Ipv4Lines {
    sources: [[u8; 4]; RUN],
    /// By the four numbers of an address, then by line: the number's last three letters and what
    /// stands behind them, the first lowest.
    words: [[u32; RUN]; 4],
    /// How many letters of the line lie before what stands behind the number.
    ends: [[u32; RUN]; 4],
}

impl Ipv4Lines {
    pub(crate) const fn new() -> Self {
        Ipv4Lines { sources: [[0; 4]; RUN], words: [[0; RUN]; 4], ends: [[0; RUN]; 4] }
    }

    /// Reads lines from `at` in a block of many; gives their addresses, and where the next line
    /// begins.
    ///
    /// It stops before the first line that is something else, or that lies too near an end of the
    /// block to be looked at sixteen bytes at a time; there [`parse`] decides. What it takes
    /// `parse` takes and as the same address.
    pub(crate) fn read(&mut self, block: &[u8], at: usize) -> (&[[u8; 4]], usize) {
        let (count, end) = self.cut(block, at);
        if count == 0 {
            return (&[], at);
        }
        let wrong = self.numbers(count);
        if wrong.iter().take(count).fold(0, |any, wrong| any | wrong) == 0 {
            return (self.sources.get(..count).unwrap_or_default(), end);
        }
        let right = wrong.iter().take_while(|wrong| **wrong == 0).count().min(count);
        let taken: usize = self.lengths().take(right).map(|length| length + 1).sum();
        (self.sources.get(..right).unwrap_or_default(), at + taken)
    }

    /// The lengths of the lines last read, without their newlines.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.ends[3].iter().map(|end| *end as usize)
    }

    /// Cuts lines at their first four letters that are no digits; gives their number and where the
    /// next line begins.
    fn cut(&mut self, block: &[u8], at: usize) -> (usize, usize) {
        let ([one, two, three, four], [a, b, c, d]) = (&mut self.words, &mut self.ends);
        // The first number may look three bytes back.
        let mut rest = at.checked_sub(3).and_then(|from| block.get(from..)).unwrap_or_default();
        let mut count = 0;
        while count < RUN {
            // The longest line has 15 digits and dots, and a newline.
            let Some(window) = rest.first_chunk::<19>() else { break };
            let [_, _, _, low @ .., _, _, _, _, _, _, _, _] = window;
            let [_, _, _, _, _, _, _, _, _, _, _, high @ ..] = window;
            let first = not_digits(u64::from_le_bytes(*low)) | not_digits(u64::from_le_bytes(*high)) << 8;
            let second = first & first.wrapping_sub(1);
            let third = second & second.wrapping_sub(1);
            let fourth = third & third.wrapping_sub(1);
            // A bit that is always there saves the question whether there is any.
            let place = |marks: u32| (marks | 0x8000).trailing_zeros();
            let length = place(fourth);
            if fourth == 0 || window.get(length as usize + 3) != Some(&b'\n') {
                break;
            }
            // In `window` the last three letters of a number begin where its mark is in the line.
            let word = |end: u32| window.get(end as usize..).and_then(|letters| letters.first_chunk()).copied();
            for (words, ends, end) in [
                (&mut *one, &mut *a, place(first)),
                (&mut *two, &mut *b, place(second)),
                (&mut *three, &mut *c, place(third)),
                (&mut *four, &mut *d, length),
            ] {
                words[count] = u32::from_le_bytes(word(end).unwrap_or_default());
                ends[count] = end;
            }
            rest = rest.get(length as usize + 1..).unwrap_or_default();
            count += 1;
        }
        (count, block.len().saturating_sub(rest.len()) + 3)
    }

    /// Works out the addresses of so many lines; gives for each what speaks against it, zero where
    /// nothing does.
    ///
    /// Loops over plain words with nothing else in them are what the compiler spreads over wide
    /// registers; those take the lines by sixteen, some beyond the last one that was cut.
    fn numbers(&mut self, count: usize) -> [u32; RUN] {
        let lines = count.next_multiple_of(16).min(RUN);
        let (mut packed, mut wrong) = ([0; RUN], [0; RUN]);
        let mut before = &[u32::MAX; RUN];
        for (((words, ends), mark), up) in self.words.iter().zip(&self.ends).zip(*b"...\n").zip([0, 8, 16, 24]) {
            for line in 0..lines {
                let (word, width) = (words[line], ends[line].wrapping_sub(before[line]).wrapping_sub(1));
                let hundreds = if width > 2 { word & 15 } else { 0 };
                let tens = if width > 1 { word >> 8 & 15 } else { 0 };
                let number = 100 * hundreds + 10 * tens + (word >> 16 & 15);
                // One to three digits, no zero in front, at most 255, the right mark behind it.
                let digits = 1 + u32::from(number > 9) + u32::from(number > 99);
                wrong[line] |= (word >> 24 ^ u32::from(mark)) | (digits ^ width) | number >> 8;
                packed[line] |= number << up;
            }
            before = ends;
        }
        self.sources = packed.map(u32::to_le_bytes);
        wrong
    }
}

/// A bit for each of eight letters, the first lowest, set where it is no digit.
#[inline]
fn not_digits(letters: u64) -> u32 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let moved = letters ^ (EACH * 0x30);
    // Digits are now 0 to 9: adding 0x76 to seven bits carries into the eighth from 10 on.
    let high = (((moved & (EACH * 0x7f)) + EACH * 0x76) | moved) & (EACH * 0x80);
    // The multiplication gathers the eight top bits in the uppermost byte.
    #[allow(clippy::cast_possible_truncation)] // eight bits are left
    let gathered = ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32;
    gathered
}

/// `SRC`, `SRC:SPORT`, `SRC:SPORT>DST:DPORT[/PROTO]`, `SRC>DST[/PROTO]`.
fn endpoints(text: &str) -> Result<Flow, Malformed> {
    let Some((src, rest)) = text.split_once('>') else {
        let (src, sport) = endpoint(text)?;
        return flow(src, None, sport.map(|src| Ports { src, dst: None }), None);
    };
    let (dst, proto) = rest.split_once('/').map_or((rest, None), |(dst, proto)| (dst, Some(proto)));
    let ((src, sport), (dst, dport)) = (endpoint(src)?, endpoint(dst)?);
    let ports = match (sport, dport) {
        (Some(src), Some(_)) => Some(Ports { src, dst: dport }),
        (None, None) => None,
        _ => return Err(Malformed::Port),
    };
    flow(src, Some(dst), ports, proto.map(protocol).transpose()?)
}

fn flow(src: IpAddr, dst: Option<IpAddr>, ports: Option<Ports>, proto: Option<Proto>) -> Result<Flow, Malformed> {
    if dst.is_some_and(|dst| dst.is_ipv4() != src.is_ipv4()) {
        return Err(Malformed::Families);
    }
    Ok(Flow { dst, ports, proto, ..Flow::from_source(src) })
}

/// `ADDR`, `ADDR:PORT`, `[ADDR6]` or `[ADDR6]:PORT`.
fn endpoint(text: &str) -> Result<(IpAddr, Option<u16>), Malformed> {
    if let Some(inner) = text.strip_prefix('[') {
        let (addr, rest) = inner.split_once(']').ok_or(Malformed::Address)?;
        let addr = IpAddr::V6(addr.parse().map_err(|_| Malformed::Address)?);
        return match rest.strip_prefix(':') {
            Some(digits) => Ok((addr, Some(port(digits)?))),
            None if rest.is_empty() => Ok((addr, None)),
            None => Err(Malformed::Address),
        };
    }
    match text.split_once(':') {
        // A second colon: an IPv6 address, which has its port only behind brackets.
        Some((addr, digits)) if !digits.contains(':') => {
            let addr = addr.parse::<Ipv4Addr>().map_err(|_| Malformed::Address)?;
            Ok((IpAddr::V4(addr), Some(port(digits)?)))
        }
        _ => Ok((address(text)?, None)),
    }
}

fn address(text: &str) -> Result<IpAddr, Malformed> {
    text.parse().map_err(|_| Malformed::Address)
}

fn protocol(text: &str) -> Result<Proto, Malformed> {
    text.parse().map_err(|_| Malformed::Proto)
}

fn port(text: &str) -> Result<u16, Malformed> {
    digits(text).ok_or(Malformed::Port)
}

/// A number of decimal digits alone: `FromStr` of the integers would take `+80`.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// `[l3name l3number] name number timeout [STATE] src=… dst=… [sport=… dport=… | type=… code=…
/// id=…] … src=…`: the first tuple is the original direction, the second the reply.
///
/// Event lines (`-E`) have a time and `[NEW]` in front, `-o id` an `id=` at the end that is not
/// ICMP's. `tuple` begins behind the first ` src=`.
fn conntrack(head: &str, tuple: &str) -> Result<Flow, Malformed> {
    let mut words = head.split_ascii_whitespace().filter(|word| !word.starts_with('['));
    let mut name = words.next().ok_or(Malformed::Form)?;
    if matches!(name, "ipv4" | "ipv6") {
        name = words.nth(1).ok_or(Malformed::Form)?;
    }
    // The number holds; the name may be "unknown".
    let proto = match words.next().map(digits) {
        Some(Some(number)) => Proto(number),
        _ => protocol(name)?,
    };
    let mut words = tuple.split_ascii_whitespace();
    let src = address(words.next().unwrap_or_default())?;
    let (mut dst, mut sport, mut dport) = (None, None, None);
    let mut icmp = Icmp::default();
    for word in words {
        let Some((key, value)) = word.split_once('=') else { continue };
        match key {
            "src" => break,
            "dst" => dst = Some(address(value)?),
            "sport" => sport = Some(port(value)?),
            "dport" => dport = Some(port(value)?),
            "type" => icmp.kind = digits(value),
            "code" => icmp.code = digits(value),
            "id" if icmp.kind.is_some() => icmp.id = digits(value),
            _ => {}
        }
    }
    let dst = dst.ok_or(Malformed::Form)?;
    let ports = match (sport, dport) {
        // What the kernel follows by address alone (DCCP without its helper) is printed with zeros.
        (Some(0), Some(0)) if !matches!(proto, Proto::TCP | Proto::UDP) => None,
        (Some(src), Some(_)) if proto.has_ports() => Some(Ports { src, dst: dport }),
        _ => None,
    };
    Ok(Flow { icmp, ..flow(src, Some(dst), ports, Some(proto))? })
}

/// `[NETID] [STATE] RECV-Q SEND-Q LOCAL PEER …`.
///
/// `ss` leaves out the column of what it was asked for alone: no Netid under `-t`, no State under
/// `-u` or `state established`.
fn socket(line: &str) -> Result<Line, Malformed> {
    let mut words = line.split_ascii_whitespace().peekable();
    let (mut netid, mut state) = (None, None);
    while let Some(word) = words.next_if(|word| digits::<u64>(word).is_none()) {
        if matches!(word, "Recv-Q" | "Netid" | "State") {
            return Err(Malformed::Header);
        }
        match (netid, state) {
            (None, None) if word.starts_with(|c: char| c.is_ascii_lowercase()) => netid = Some(word),
            (_, None) if word.starts_with(|c: char| c.is_ascii_uppercase()) => state = Some(word),
            _ => return Err(Malformed::Form),
        }
    }
    let (Some(_), Some(send_queue)) = (words.next(), words.next()) else { return Err(Malformed::Form) };
    digits::<u64>(send_queue).ok_or(Malformed::Form)?;
    let (Some(local), Some(peer)) = (words.next(), words.next()) else { return Err(Malformed::Form) };
    let proto = match netid {
        None => state.and_then(tcp_state),
        Some("tcp" | "mptcp") => Some(Proto::TCP),
        Some("udp") => Some(Proto::UDP),
        Some("sctp") => Some(Proto::SCTP),
        Some("dccp") => Some(Proto::DCCP),
        Some("icmp") => Some(Proto::ICMP),
        Some("icmp6") => Some(Proto::ICMPV6),
        Some(_) => return Ok(Line::NoFlow),
    };
    let Some((local, own_port)) = socket_end(local)? else { return Ok(Line::NoFlow) };
    let Some((peer, peer_port)) = socket_end(peer)? else { return Ok(Line::NoFlow) };
    let ports = proto.is_none_or(Proto::has_ports).then_some(Ports { src: peer_port, dst: Some(own_port) });
    flow(peer, Some(local), ports, proto).map(Line::Flow)
}

/// TCP, where the state is one that only TCP has; ESTAB and UNCONN may be UDP as well.
fn tcp_state(state: &str) -> Option<Proto> {
    (!matches!(state, "ESTAB" | "UNCONN")).then_some(Proto::TCP)
}

/// `ADDR[%dev]:PORT` or `[ADDR6][%dev]:PORT`; `None` for what has no remote end: `*`, a path, an
/// address with port `*`.
///
/// An IPv4 connection to an IPv6 socket is shown as `::ffff:a.b.c.d` and is IPv4 on the wire.
fn socket_end(text: &str) -> Result<Option<(IpAddr, u16)>, Malformed> {
    if text == "*" || text.starts_with(['*', '/', '@']) {
        return Ok(None);
    }
    let (addr, number) = text.rsplit_once(':').ok_or(Malformed::Form)?;
    let addr = addr.split_once('%').map_or(addr, |(addr, _)| addr);
    let addr = addr.strip_prefix('[').and_then(|addr| addr.strip_suffix(']')).unwrap_or(addr);
    if number == "*" {
        return Ok(None);
    }
    Ok(Some((address(addr)?.to_canonical(), port(number)?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    /// A flow in the form of the third line above, with what else is known behind it.
    fn written(flow: &Flow) -> String {
        let end = |addr: IpAddr, port: Option<u16>| match (addr, port) {
            (IpAddr::V6(addr), Some(port)) => format!("[{addr}]:{port}"),
            (_, Some(port)) => format!("{addr}:{port}"),
            (_, None) => addr.to_string(),
        };
        let mut text = end(flow.src, flow.ports.map(|ports| ports.src));
        if let Some(dst) = flow.dst {
            text = format!("{text}>{}", end(dst, flow.ports.and_then(|ports| ports.dst)));
        }
        if let Some(proto) = flow.proto {
            text = format!("{text}/{proto}");
        }
        if let Icmp { kind: Some(kind), code: Some(code), id: Some(id), checksum: None } = flow.icmp {
            text = format!("{text} type {kind} code {code} id {id}");
        }
        text
    }

    fn read(line: &str) -> Result<String, Malformed> {
        parse(line.as_bytes()).map(|line| match line {
            Line::Flow(flow) => written(&flow),
            Line::NoFlow => "-".to_owned(),
        })
    }

    #[test]
    fn every_written_form_is_read() {
        for (line, flow) in [
            ("192.0.2.7", "192.0.2.7"),
            ("2001:DB8::0:7", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("  192.0.2.7\r", "192.0.2.7"),
            ("192.0.2.7:4660", "192.0.2.7:4660"),
            ("[2001:db8::7]:4660", "[2001:db8::7]:4660"),
            ("192.0.2.7:4660>198.51.100.10:80/tcp", "192.0.2.7:4660>198.51.100.10:80/tcp"),
            ("192.0.2.7:4660>198.51.100.10:80/132", "192.0.2.7:4660>198.51.100.10:80/sctp"),
            ("192.0.2.7:4660>198.51.100.10:80", "192.0.2.7:4660>198.51.100.10:80"),
            ("[2001:db8::7]:4660>[2001:db8::10]:80/UDP", "[2001:db8::7]:4660>[2001:db8::10]:80/udp"),
            ("192.0.2.7>198.51.100.10/icmp", "192.0.2.7>198.51.100.10/icmp"),
            ("2001:db8::7>2001:db8::10/ipv6-icmp", "2001:db8::7>2001:db8::10/ipv6-icmp"),
            ("192.0.2.7 4660 198.51.100.10 80", "192.0.2.7:4660>198.51.100.10:80"),
            ("192.0.2.7\t4660 198.51.100.10  80 tcp", "192.0.2.7:4660>198.51.100.10:80/tcp"),
            ("2001:db8::7 4660 2001:db8::10 80 17", "[2001:db8::7]:4660>[2001:db8::10]:80/udp"),
            // Without brackets the last group is no port.
            ("2001:db8::1:80", "2001:db8::1:80"),
        ] {
            assert_eq!(read(line).as_deref(), Ok(flow), "{line}");
        }
    }

    #[test]
    fn what_is_no_flow_is_refused_with_its_reason() {
        for (line, why) in [
            ("", Malformed::Form),
            (" ", Malformed::Form),
            ("localhost", Malformed::Form),
            ("4660", Malformed::Form),
            ("192.0.2.7 4660", Malformed::Form),
            ("192.0.2.7 4660 198.51.100.10 80 tcp more", Malformed::Form),
            ("192.0.2", Malformed::Address),
            ("192.0.2.256", Malformed::Address),
            ("192.0.2.07", Malformed::Address),
            ("192.0.2.7/24", Malformed::Address),
            ("www.example.org", Malformed::Address),
            ("www.example.org:80", Malformed::Address),
            ("[192.0.2.7]:80", Malformed::Address),
            ("[2001:db8::7", Malformed::Address),
            ("[2001:db8::7]80", Malformed::Address),
            ("fe80::7%eth0", Malformed::Address),
            ("192.0.2.7:", Malformed::Port),
            ("192.0.2.7:65536", Malformed::Port),
            ("192.0.2.7:+80", Malformed::Port),
            ("192.0.2.7:http", Malformed::Port),
            ("192.0.2.7:4660>198.51.100.10/tcp", Malformed::Port),
            ("192.0.2.7>198.51.100.10:80/tcp", Malformed::Port),
            ("192.0.2.7:4660>198.51.100.10:80/", Malformed::Proto),
            ("192.0.2.7:4660>198.51.100.10:80/http", Malformed::Proto),
            ("192.0.2.7 4660 198.51.100.10 80 256", Malformed::Proto),
            ("192.0.2.7:4660>[2001:db8::10]:80/tcp", Malformed::Families),
            ("tcp 6 9 ESTABLISHED src=192.0.2.7 sport=1 dport=2", Malformed::Form),
            ("tcp 6 9 ESTABLISHED src=192.0.2.7 dst=2001:db8::1 sport=1 dport=2", Malformed::Families),
            ("tcp 6 9 ESTABLISHED src= dst=192.0.2.1", Malformed::Address),
            ("nosuch x src=192.0.2.7 dst=192.0.2.1", Malformed::Proto),
            ("tcp ESTAB 0 0 192.0.2.7:80", Malformed::Form),
            ("tcp ESTAB 0 x 192.0.2.7:80 192.0.2.1:9", Malformed::Form),
            ("ESTAB 0 0 192.0.2.7:http 192.0.2.1:9", Malformed::Port),
        ] {
            assert_eq!(read(line), Err(why), "{line}");
        }
    }

    /// Each file beside its flows: `-` for none, `!` for a line that is refused.
    #[test]
    fn lines_of_the_programs_are_read_as_they_print_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/flow");
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        for name in [
            "conntrack-L",
            "conntrack-L-extended-id",
            "conntrack-E-timestamp",
            "proc-nf_conntrack",
            "ss-Hn",
            "ss-Hna",
            "ss-Hnt",
            "ss-Hnte",
            "ss-Hnti",
            "ss-Hntp",
            "ss-Hnu",
            "ss-nt",
        ] {
            let flows: Vec<String> = text(&format!("{name}.txt"))
                .lines()
                .map(|line| read(line).unwrap_or_else(|_| "!".to_owned()))
                .collect();
            let wanted = text(&format!("{name}.flows"));
            assert_eq!(flows, wanted.lines().collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn the_process_of_a_socket_does_not_make_it_something_else() {
        let line = "ESTAB 0 0 192.0.2.10:80 192.0.2.7:4660 users:((\"a src=203.0.113.9 dst=203.0.113.8\",pid=1,fd=3))";
        assert_eq!(read(line).as_deref(), Ok("192.0.2.7:4660>192.0.2.10:80"));
        let bytes = [b"ESTAB 0 0 192.0.2.10:80 192.0.2.7:4660 users:((\"".as_slice(), &[0xff, 0xfe]].concat();
        assert!(matches!(parse(&bytes), Ok(Line::Flow(_))));
        assert_eq!(parse(b"192.0.2.7\xff"), Err(Malformed::Form));
    }

    /// The line from the fourth byte on, as it is read in a run.
    fn first_fast(block: &str) -> Option<([u8; 4], usize)> {
        let mut lines = Ipv4Lines::new();
        let first = lines.read(block.as_bytes(), 4).0.first().copied();
        first.zip(lines.lengths().next())
    }

    #[test]
    fn every_number_is_read_fast_or_not_at_all() {
        for number in (0..2000).map(|n| n.to_string()).chain(["00", "01", "000", "007", "099", ""].map(str::to_owned)) {
            for place in 0..4 {
                let mut parts = ["1", "22", "133", "4"];
                parts[place] = &number;
                let line = parts.join(".");
                let block = format!("\n99\n{line}\n################");
                let fast = first_fast(&block).map(|(octets, len)| (Ipv4Addr::from(octets), len));
                assert_eq!(fast, line.parse().ok().map(|addr: Ipv4Addr| (addr, line.len())), "{line}");
            }
        }
    }

    #[test]
    fn the_head_line_of_ss_is_told_apart() {
        assert_eq!(read("State Recv-Q Send-Q Local Address:Port Peer Address:Port Process"), Err(Malformed::Header));
        assert_eq!(read("Netid State Recv-Q Send-Q Local Address:Port Peer Address:Port"), Err(Malformed::Header));
        assert_eq!(read("Recv-Q Send-Q Local Address:Port Peer Address:Port"), Err(Malformed::Header));
    }

    proptest! {
        #[test]
        fn no_line_ends_in_a_panic(line in any::<Vec<u8>>(), text in "[a-z0-9:.>/ =\\[\\]%*-]{0,60}") {
            let _ = parse(&line);
            let _ = parse(text.as_bytes());
            let _ = parse(format!("tcp 6 src={text}").as_bytes());
            let _ = parse(format!("ESTAB 0 0 {text}").as_bytes());
        }

        #[test]
        fn the_fast_reader_takes_what_the_other_takes(line in "([0-9]{1,4}|[0-9.:x ]{0,3})([.][0-9]{1,3}){3}[\r ]?", rest in "[0-9.\n]{0,20}") {
            let block = format!("####{line}\n{rest}################");
            if let Some((octets, len)) = first_fast(&block) {
                prop_assert_eq!(len, line.len());
                prop_assert_eq!(parse(line.as_bytes()), Ok(Line::Flow(Flow::from_source(IpAddr::from(octets)))));
            } else {
                prop_assert!(line.parse::<Ipv4Addr>().is_err(), "{}", line);
            }
        }

        #[test]
        fn a_run_ends_before_the_first_line_that_is_something_else(
            before in proptest::collection::vec(any::<[u8; 4]>(), 0..2 * RUN),
            other in "(|x|1[.]2|1[.]2[.]3[.]256|01[.]2[.]3[.]4|1:2:3:4|1[.]2[.]3[.]4 )",
        ) {
            let lines: Vec<String> = before.iter().map(|src| Ipv4Addr::from(*src).to_string() + "\n").collect();
            let text = lines.concat();
            let block = format!("###\n{text}{other}\n1.2.3.4\n################");
            let mut lines = Ipv4Lines::new();
            let (mut at, mut got) = (4, Vec::new());
            loop {
                let (sources, next) = lines.read(block.as_bytes(), at);
                got.extend_from_slice(sources);
                let count = sources.len();
                prop_assert_eq!(next, at + lines.lengths().take(count).map(|length| length + 1).sum::<usize>());
                at = next;
                if count < RUN {
                    break;
                }
            }
            prop_assert_eq!(got, before);
            prop_assert_eq!(at, 4 + text.len());
        }

        #[test]
        fn every_letter_that_is_no_digit_has_its_bit(bytes: [u8; 8], text in "[0-9.\n/:]{8}") {
            let bits = |bytes: &[u8]| (0..8).fold(0, |bits, idx| bits | u32::from(!bytes[idx].is_ascii_digit()) << idx);
            prop_assert_eq!(not_digits(u64::from_le_bytes(bytes)), bits(&bytes));
            prop_assert_eq!(not_digits(u64::from_le_bytes(text.as_bytes().try_into().unwrap())), bits(text.as_bytes()));
        }

        #[test]
        fn every_plain_address_is_read_fast(src: [u8; 4]) {
            let line = Ipv4Addr::from(src).to_string();
            let block = format!("####{line}\n################");
            prop_assert_eq!(first_fast(&block), Some((src, line.len())));
        }

        #[test]
        fn what_is_written_reads_back(src: [u8; 4], dst: [u8; 4], sport: u16, dport: u16, proto: u8) {
            let flow = Flow {
                dst: Some(IpAddr::from(dst)),
                ports: Some(Ports { src: sport, dst: Some(dport) }),
                proto: Some(Proto(proto)),
                ..Flow::from_source(IpAddr::from(src))
            };
            prop_assert_eq!(parse(written(&flow).as_bytes()), Ok(Line::Flow(flow)));
        }
    }
}
