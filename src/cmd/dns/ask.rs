//! Many questions to many servers at once: each server by a socket of its own, each question by an identifier of
//! its own, so that a round takes about one round trip of the slowest.

use crate::cli::Failure;
use crate::cli::stream::Woken;
use crate::cmd::watch::Outlet;
use crate::sys::connect::{self, Via};
use crate::sys::worker::Crew;
use crate::sys::{clock, raw};
use crate::types::draw::Draw;
use crate::types::time::Tick;
use crate::wire::dns::{Answer, Question, tcp};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use socket2::Socket;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Questions on their way to one server: as many as its answers surely find room for in a socket's buffer, which
/// by default is 208 KiB on this side and as often on the other.
const WINDOW: usize = 96;
/// When a question without an answer is sent again, and again after twice the time.
const RESEND_AFTER: Duration = Duration::from_secs(1);
/// How long a question is waited for whose partner was sent after it and has its answer.
const LINGER: Duration = Duration::from_millis(250);
/// When sending is tried again for which the kernel had no room.
const NO_ROOM: Duration = Duration::from_millis(1);

/// An answer, and when it was asked for and heard.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The message as it came.
    pub(super) bytes: Vec<u8>,
    /// When the first copy of the question left.
    pub(super) asked: Tick,
    /// When the first word of it came, also where the rest had to be fetched over TCP.
    pub(super) heard: Tick,
    pub(super) copies: u32,
}

/// Where a question stands.
#[derive(Clone, Debug)]
enum State {
    Waiting,
    Sent {
        resend: Tick,
        after: Duration,
    },
    /// It was truncated, and is asked again over TCP.
    Whole {
        heard: Tick,
    },
    Replied(Box<Reply>),
    Failed(Errno),
}

#[derive(Debug)]
struct Asked {
    question: Question,
    bytes: Vec<u8>,
    /// The question that is to leave right behind it.
    leads: Option<usize>,
    asked: Tick,
    copies: u32,
    /// Its answer was truncated, so that it is asked over TCP.
    over_tcp: bool,
    /// Something came that is no answer to it.
    garbled: bool,
    state: State,
}

impl Asked {
    fn is_done(&self) -> bool {
        matches!(self.state, State::Replied(_) | State::Failed(_))
    }
}

/// A server.
#[derive(Debug)]
struct Peer {
    to: SocketAddr,
    socket: Result<Socket, Errno>,
    draw: Draw,
    ids: HashMap<u16, usize>,
    queue: VecDeque<usize>,
    in_flight: Vec<usize>,
    /// Truncated answers that wait for the connection.
    truncated: Vec<usize>,
    connected: bool,
    /// It has said something at all.
    speaks: bool,
}

impl Peer {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.truncated.is_empty() && !self.connected
    }
}

/// What a connection brought: the questions by their numbers, and the messages.
type Fetched = (usize, Vec<(usize, Result<Vec<u8>, Errno>)>);

/// Questions and where they stand.
#[derive(Debug)]
pub(super) struct Asker {
    peers: Vec<Peer>,
    asked: Vec<Asked>,
    crew: Crew<Fetched>,
    buffer: Vec<u8>,
    /// How long an answer is waited for.
    patience: Duration,
    /// The time was over before all were answered.
    cut: bool,
}

impl Asker {
    pub(super) fn new(patience: Duration) -> Result<Self, Failure> {
        Ok(Asker {
            peers: Vec::new(),
            asked: Vec::new(),
            crew: Crew::new()?,
            buffer: vec![0; 65_535],
            patience,
            cut: false,
        })
    }

    /// The server at this address; the same one each time.
    pub(super) fn peer(&mut self, to: SocketAddr) -> Result<usize, Failure> {
        if let Some(known) = self.peers.iter().position(|peer| peer.to == to) {
            return Ok(known);
        }
        self.peers.push(Peer {
            to,
            socket: connect::datagrams(to, &Via::default()),
            // Nobody who does not see the questions can guess an identifier (RFC 5452 §9.2).
            draw: Draw::new(raw::random_u64()?),
            ids: HashMap::new(),
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            truncated: Vec::new(),
            connected: false,
            speaks: false,
        });
        Ok(self.peers.len() - 1)
    }

    /// Puts a question in the queue; its number, to ask for the answer by.
    pub(super) fn ask(&mut self, peer: usize, name: &str, qtype: &str) -> Result<usize, Failure> {
        self.push(peer, name, qtype, true, None)
    }

    /// The same of a question that the server may not pass on.
    pub(super) fn ask_alone(&mut self, peer: usize, name: &str, qtype: &str) -> Result<usize, Failure> {
        self.push(peer, name, qtype, false, None)
    }

    /// A question that the server may not pass on, and right behind it the same that it may.
    pub(super) fn ask_both(&mut self, peer: usize, name: &str, qtype: &str) -> Result<(usize, usize), Failure> {
        let next = self.asked.len() + 1;
        Ok((self.push(peer, name, qtype, false, Some(next))?, self.push(peer, name, qtype, true, None)?))
    }

    fn push(
        &mut self,
        peer: usize,
        name: &str,
        qtype: &str,
        recursion: bool,
        leads: Option<usize>,
    ) -> Result<usize, Failure> {
        let number = self.asked.len();
        let peer = &mut self.peers[peer];
        // Of all that were ever asked here, so that an answer that comes late is not taken for another's.
        let id = loop {
            let [high, low, ..] = peer.draw.next().to_be_bytes();
            let id = u16::from_be_bytes([high, low]);
            if !peer.ids.contains_key(&id) {
                break id;
            }
        };
        let mut question = Question::new(name, qtype, id).map_err(Failure::usage)?.with_edns();
        if !recursion {
            question = question.without_recursion();
        }
        let bytes = question.encode().map_err(Failure::usage)?;
        peer.ids.insert(question.id(), number);
        peer.queue.push_back(number);
        self.asked.push(Asked {
            question,
            bytes,
            leads,
            asked: Tick::default(),
            copies: 0,
            over_tcp: false,
            garbled: false,
            state: State::Waiting,
        });
        Ok(number)
    }

    /// What came of a question.
    ///
    /// # Errors
    /// Why nothing did: `ETIMEDOUT`, `EBADMSG` where all that came is no answer, `ECANCELED` where the time was
    /// over before, or what the network said.
    pub(super) fn reply(&self, number: usize) -> Result<&Reply, Errno> {
        match &self.asked[number].state {
            State::Replied(reply) => Ok(reply),
            State::Failed(errno) => Err(*errno),
            _ => Err(Errno::ETIMEDOUT),
        }
    }

    /// How often a question was sent, and whether it was asked over TCP too.
    pub(super) fn sent(&self, number: usize) -> (u32, bool) {
        (self.asked[number].copies, self.asked[number].over_tcp)
    }

    /// Whether the time was over before all were answered.
    pub(super) fn was_cut(&self) -> bool {
        self.cut
    }

    /// Asks all that wait, until each has its answer or none will come; a signal ends it before.
    pub(super) fn go(&mut self, outlet: &mut Outlet<'_>, deadline: Option<Tick>) -> Result<Option<Signal>, Failure> {
        loop {
            let mut no_room = None;
            for at in 0..self.peers.len() {
                if !self.fill(at) {
                    no_room = Some(clock::boot().after(NO_ROOM));
                }
                self.connect(at)?;
            }
            let now = clock::boot();
            let next = self.timers(now);
            if deadline.is_some_and(|deadline| deadline <= now) {
                for asked in self.asked.iter_mut().filter(|asked| !asked.is_done()) {
                    asked.state = State::Failed(Errno::ECANCELED);
                    self.cut = true;
                }
                for peer in &mut self.peers {
                    peer.queue.clear();
                    peer.in_flight.clear();
                }
                return Ok(None);
            }
            if self.peers.iter().all(Peer::is_idle) {
                return Ok(None);
            }
            let waiting: Vec<usize> =
                (0..self.peers.len()).filter(|at| !self.peers[*at].in_flight.is_empty()).collect();
            let woken = {
                let sockets = waiting.iter().filter_map(|at| self.peers[*at].socket.as_ref().ok());
                let fds: Vec<BorrowedFd<'_>> =
                    [self.crew.as_fd()].into_iter().chain(sockets.map(Socket::as_fd)).collect();
                outlet.wait(&fds, [next, deadline, no_room].into_iter().flatten().min())?
            };
            match woken {
                Woken::Signal(signal) => return Ok(Some(signal)),
                Woken::Ready(ready) => {
                    // A peer without a socket has nothing on its way, so that the two lists are of one length.
                    for (at, _) in waiting.iter().zip(ready.into_iter().skip(1)).filter(|(_, ready)| *ready) {
                        self.hear(*at);
                    }
                }
            }
            self.fetched();
        }
    }

    /// Sends what has room in the window; false where the kernel had none.
    fn fill(&mut self, at: usize) -> bool {
        loop {
            let peer = &mut self.peers[at];
            let Some(&number) = peer.queue.front() else { return true };
            let is_second = number.checked_sub(1).is_some_and(|before| self.asked[before].leads == Some(number));
            if peer.in_flight.len() >= WINDOW && !is_second {
                return true;
            }
            let asked = &mut self.asked[number];
            let socket = peer.socket.as_ref().map_err(|errno| *errno);
            match socket.and_then(|socket| connect::send(socket, &asked.bytes)) {
                Ok(false) => return false,
                Ok(true) => {
                    let now = clock::boot();
                    (asked.asked, asked.copies) = (now, 1);
                    asked.state = State::Sent { resend: now.after(RESEND_AFTER), after: RESEND_AFTER };
                    peer.queue.pop_front();
                    peer.in_flight.push(number);
                }
                Err(errno) => self.fail(at, errno),
            }
        }
    }

    /// Nothing comes of what is on its way to a server, nor of what waits for it.
    fn fail(&mut self, at: usize, errno: Errno) {
        let peer = &mut self.peers[at];
        for number in peer.in_flight.drain(..).chain(peer.queue.drain(..)) {
            self.asked[number].state = State::Failed(errno);
        }
    }

    /// Fetches truncated answers over one connection, in a thread (RFC 7766 §6.2.1).
    fn connect(&mut self, at: usize) -> Result<(), Failure> {
        let peer = &mut self.peers[at];
        if peer.connected || peer.truncated.is_empty() {
            return Ok(());
        }
        let asked = &self.asked;
        let questions: Vec<(usize, Vec<u8>)> =
            peer.truncated.drain(..).map(|number| (number, asked[number].bytes.clone())).collect();
        let (to, patience) = (peer.to, self.patience);
        peer.connected = true;
        Ok(self.crew.start(move |_| (at, fetch(to, questions, patience)))?)
    }

    /// Takes in what connections have brought.
    fn fetched(&mut self) {
        for (at, messages) in self.crew.take() {
            self.peers[at].connected = false;
            for (number, message) in messages {
                let asked = &mut self.asked[number];
                let State::Whole { heard } = asked.state else { continue };
                let read = message
                    .and_then(|bytes| asked.question.answer(&bytes).map(|answer| (answer, bytes)).ok_or(Errno::EPROTO));
                asked.state = match read {
                    Ok((answer, bytes)) => State::Replied(Box::new(Reply {
                        answer,
                        bytes,
                        asked: asked.asked,
                        heard,
                        copies: asked.copies,
                    })),
                    Err(errno) => State::Failed(errno),
                };
            }
        }
    }

    /// Reads what a server has sent. What answers no question of ours is not looked at twice.
    fn hear(&mut self, at: usize) {
        loop {
            let (peer, buffer) = (&mut self.peers[at], &mut self.buffer);
            let Ok(socket) = &peer.socket else { return };
            let length = match connect::receive(socket, buffer) {
                Ok(Some(length)) => length,
                Ok(None) => return,
                Err(errno) => return self.fail(at, errno),
            };
            let heard = clock::boot();
            let bytes = &buffer[..length];
            let id = bytes.first_chunk().map(|id| u16::from_be_bytes(*id));
            let Some(&number) = id.and_then(|id| peer.ids.get(&id)) else { continue };
            let asked = &mut self.asked[number];
            if !matches!(asked.state, State::Sent { .. }) {
                continue;
            }
            let Some(answer) = asked.question.answer(bytes) else {
                asked.garbled = true;
                continue;
            };
            peer.speaks = true;
            peer.in_flight.retain(|other| *other != number);
            if answer.truncated {
                (asked.state, asked.over_tcp) = (State::Whole { heard }, true);
                peer.truncated.push(number);
            } else {
                let (bytes, copies) = (bytes.to_vec(), asked.copies);
                asked.state = State::Replied(Box::new(Reply { answer, bytes, asked: asked.asked, heard, copies }));
            }
        }
    }

    /// Sends again what is due, and gives up what is over; when there is something to do next.
    fn timers(&mut self, now: Tick) -> Option<Tick> {
        let mut next: Option<Tick> = None;
        let mut due = |tick: Tick| next = Some(next.map_or(tick, |next| next.min(tick)));
        for at in 0..self.peers.len() {
            for number in self.peers[at].in_flight.clone() {
                let asked = &self.asked[number];
                let State::Sent { resend, after } = asked.state else { continue };
                let mut end = asked.asked.after(self.patience);
                let second = asked.leads.map(|second| &self.asked[second].state);
                let second_heard = match second {
                    Some(State::Replied(reply)) => Some(reply.heard),
                    Some(State::Whole { heard }) => Some(*heard),
                    _ => None,
                };
                if let Some(heard) = second_heard {
                    end = end.min(heard.after(LINGER));
                }
                if end <= now {
                    self.give_up(at, number);
                } else if resend <= now && second_heard.is_none() {
                    let socket = self.peers[at].socket.as_ref().map_err(|errno| *errno);
                    let sent = socket.and_then(|socket| connect::send(socket, &self.asked[number].bytes));
                    let asked = &mut self.asked[number];
                    asked.copies += u32::from(sent == Ok(true));
                    asked.state = State::Sent { resend: now.after(2 * after), after: 2 * after };
                    due(now.after(2 * after).min(end));
                } else {
                    due(if second_heard.is_some() { end } else { end.min(resend) });
                }
            }
        }
        next
    }

    /// A question whose time is over. A server that has never said anything is not waited for once more.
    fn give_up(&mut self, at: usize, number: usize) {
        let peer = &mut self.peers[at];
        peer.in_flight.retain(|other| *other != number);
        let errno = if self.asked[number].garbled { Errno::EBADMSG } else { Errno::ETIMEDOUT };
        self.asked[number].state = State::Failed(errno);
        if !peer.speaks {
            for number in peer.queue.drain(..) {
                self.asked[number].state = State::Failed(errno);
            }
        }
    }
}

/// Asks one by one over a connection; over another where the server ends it.
fn fetch(to: SocketAddr, questions: Vec<(usize, Vec<u8>)>, patience: Duration) -> Vec<(usize, Result<Vec<u8>, Errno>)> {
    let mut connection: Option<Socket> = None;
    let mut ask = |bytes: &[u8]| -> Result<Vec<u8>, Errno> {
        let deadline = clock::boot().after(patience);
        let mut framed = Vec::new();
        tcp::push(bytes, &mut framed).map_err(|_| Errno::EMSGSIZE)?;
        loop {
            let (socket, fresh) = match connection.take() {
                Some(socket) => (socket, false),
                None => (connect::one(to, &Via::default(), deadline)?, true),
            };
            let whole = connect::converse(&socket, &framed, tcp::MOST, deadline, |got| {
                tcp::messages(got).next().map(<[u8]>::to_vec)
            });
            match whole {
                Ok(message) => {
                    connection = Some(socket);
                    return Ok(message);
                }
                Err(Errno::ECONNRESET | Errno::EPIPE) if !fresh => {}
                Err(errno) => return Err(errno),
            }
        }
    };
    let mut silent = false;
    let fetched = questions.into_iter().map(|(number, bytes)| {
        let message = if silent { Err(Errno::ETIMEDOUT) } else { ask(&bytes) };
        silent |= message == Err(Errno::ETIMEDOUT);
        (number, message)
    });
    fetched.collect()
}
