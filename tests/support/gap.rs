//! How long a client hears nothing from an address while it moves: answerers on the hosts, a prober
//! on the client, over UDP.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use super::{Host, Lab};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 7007;

/// Answers probes to an address on one host, also while the address is elsewhere.
pub(crate) struct Answerer {
    frozen: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answerer {
    pub(crate) fn start(host: &Host, vip: &str) -> Answerer {
        let (frozen, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (frozen_there, stop_there) = (frozen.clone(), stop.clone());
        let number = u8::try_from(host.number).unwrap();
        let place = SocketAddr::new(vip.parse::<IpAddr>().unwrap(), PORT);
        let thread = host.inside(move || {
            let domain = if place.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            if place.is_ipv4() { socket.set_freebind_v4(true) } else { socket.set_freebind_v6(true) }.unwrap();
            socket.bind(&place.into()).unwrap();
            let socket: UdpSocket = socket.into();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut buffer = [0; 64];
            while !stop_there.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                if !frozen_there.load(Ordering::Relaxed) {
                    buffer[length] = number;
                    // The address may have gone this moment.
                    let _ = socket.send_to(&buffer[..=length], from);
                }
            }
        });
        Answerer { frozen, stop, thread: Some(thread) }
    }

    /// Stops answering, as a stopped process does; or goes on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One answer: when it came, and from which host.
pub(crate) type Answer = (Instant, u8);

/// Probes an address from a client.
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Answer>>>,
}

impl Prober {
    /// Sends a probe each `every`.
    pub(crate) fn start(client: &Host, vip: &str, every: Duration) -> Prober {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_there = stop.clone();
        let place = SocketAddr::new(vip.parse::<IpAddr>().unwrap(), PORT);
        let thread = client.inside(move || {
            let any: SocketAddr = if place.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
            let socket = UdpSocket::bind(any).unwrap();
            let mut answers = Vec::new();
            let mut due = Instant::now();
            let mut buffer = [0; 64];
            while !stop_there.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now >= due {
                    // No route for a moment, or an ICMP error of an earlier one.
                    let _ = socket.send_to(b"?", place);
                    due = (due + every).max(now);
                    continue;
                }
                socket.set_read_timeout(Some((due - now).max(Duration::from_micros(50)))).unwrap();
                if let Ok((length, _)) = socket.recv_from(&mut buffer) {
                    answers.push((Instant::now(), buffer[length - 1]));
                }
            }
            answers
        });
        Prober { stop, thread: Some(thread) }
    }

    pub(crate) fn stop(mut self) -> Answers {
        self.stop.store(true, Ordering::Relaxed);
        Answers { all: self.thread.take().unwrap().join().unwrap(), end: Instant::now() }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What a prober heard.
pub(crate) struct Answers {
    pub(crate) all: Vec<Answer>,
    end: Instant,
}

impl Answers {
    /// The longest silence that ended after `since`, the end of the run included.
    pub(crate) fn longest_silence(&self, since: Instant) -> Duration {
        let ends = self.all.iter().map(|(at, _)| *at).chain([self.end]);
        let begins = self.all.iter().map(|(at, _)| *at);
        begins
            .zip(ends.skip(1))
            .filter(|(_, end)| *end >= since)
            .map(|(begin, end)| end - begin)
            .max()
            .unwrap_or_default()
    }

    /// How often another host than before answered, after `since`.
    pub(crate) fn changes(&self, since: Instant) -> usize {
        self.all.windows(2).filter(|pair| pair[1].0 >= since && pair[0].1 != pair[1].1).count()
    }

    /// How long after `since` somebody else than `host` still answered.
    pub(crate) fn others_until(&self, host: u8, since: Instant) -> Duration {
        let others = self.all.iter().filter(|(at, by)| *by != host && *at >= since);
        others.map(|(at, _)| *at - since).max().unwrap_or_default()
    }

    /// Who answered last.
    pub(crate) fn last(&self) -> Option<u8> {
        self.all.last().map(|(_, host)| *host)
    }
}

/// Has the switch drop everything to and from a host without a word, or no longer.
pub(crate) fn cut(lab: &Lab, host: &Host, cut: bool) {
    let state = if cut { 0 } else { 3 };
    lab.on_switch(&format!("bridge link set dev {}.eth0 state {state}", host.name));
}
