//! `bucket` on real hosts: network namespaces on a bridge, clients that count their answers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Host, Lab, eventually};

const V4: &str = "192.0.2.100";
const V6: &str = "2001:db8::100";
const MAC: &str = "01:02:03:04:05:06";
const TCP: u16 = 7000;
const UDP: u16 = 7001;

/// Servers and one client with many addresses, all on one bridge.
struct Cluster {
    lab: Lab,
    nodes: Vec<Host>,
    client: Host,
    n_clients: u8,
    /// Ends the echo servers.
    over: Arc<AtomicBool>,
}

impl Cluster {
    fn new(n_nodes: u8, n_clients: u8) -> Cluster {
        let lab = Lab::new();
        let nodes: Vec<Host> = (1..=n_nodes)
            .map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n}/64")]))
            .collect();
        let client = lab.host("client", &["192.0.2.9/24", "2001:db8::9/64"]);
        let batch: String = (0..n_clients)
            .map(|n| {
                let (v4, v6) = (source(V4, n), source(V6, n));
                format!("addr add {v4}/16 dev eth0\naddr add {v6}/64 dev eth0 nodad\n")
            })
            .collect();
        client.sh(&format!("printf '{batch}' | ip -batch -"));
        for node in &nodes {
            node.sh("ip route add 192.0.0.0/16 dev eth0; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0");
        }
        Cluster { lab, nodes, client, n_clients, over: Arc::default() }
    }

    /// Makes the cluster IP on each node with its part of `total` buckets.
    fn init(&self, vip: &str, flags: &str, locals: &[&str]) {
        for (node, local) in self.nodes.iter().zip(locals) {
            node.run(&format!("bucket init {vip} --dev eth0 --mac {MAC} --seed 0 {flags} --local {local}")).ended(0);
        }
    }

    /// Starts servers that answer with their node's name.
    fn serve(&self) {
        for node in &self.nodes {
            serve(node, &self.over);
        }
    }

    fn sources(&self, vip: &str) -> Vec<IpAddr> {
        (0..self.n_clients).map(|n| source(vip, n)).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn source(vip: &str, n: u8) -> IpAddr {
    if vip.contains(':') {
        format!("2001:db8::1:{n:x}").parse().unwrap()
    } else {
        format!("192.0.77.{n}").parse().unwrap()
    }
}

/// Echo servers for both protocols and families: each answer is the node's name.
fn serve(node: &Host, over: &Arc<AtomicBool>) {
    let (name, over) = (node.name.clone(), over.clone());
    let ready = Arc::new(AtomicBool::new(false));
    let told = ready.clone();
    node.inside(move || {
        let any: [IpAddr; 2] = ["0.0.0.0".parse().unwrap(), "::".parse().unwrap()];
        let mut tcp = Vec::new();
        let mut udp = Vec::new();
        for addr in any {
            let domain = socket2::Domain::for_address(SocketAddr::new(addr, 0));
            let listener = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
            if addr.is_ipv6() {
                listener.set_only_v6(true).unwrap();
            }
            listener.set_reuse_address(true).unwrap();
            listener.bind(&SocketAddr::new(addr, TCP).into()).unwrap();
            listener.listen(512).unwrap();
            let listener = TcpListener::from(listener);
            listener.set_nonblocking(true).unwrap();
            tcp.push(listener);
        }
        // UDP answers from the address that was asked: bound to it, also before it is there.
        for vip in [V4, V6] {
            let addr: IpAddr = vip.parse().unwrap();
            let domain = socket2::Domain::for_address(SocketAddr::new(addr, 0));
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            if addr.is_ipv4() { socket.set_freebind_v4(true) } else { socket.set_freebind_v6(true) }.unwrap();
            socket.bind(&SocketAddr::new(addr, UDP).into()).unwrap();
            socket.set_recv_buffer_size(1 << 20).unwrap();
            socket.set_nonblocking(true).unwrap();
            udp.push(UdpSocket::from(socket));
        }
        told.store(true, Ordering::Relaxed);
        let mut open: Vec<TcpStream> = Vec::new();
        let mut block = [0; 64];
        while !over.load(Ordering::Relaxed) {
            let mut idle = true;
            for listener in &tcp {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).unwrap();
                    open.push(stream);
                    idle = false;
                }
            }
            for socket in &udp {
                while let Ok((_, from)) = socket.recv_from(&mut block) {
                    let _ = socket.send_to(name.as_bytes(), from);
                    idle = false;
                }
            }
            open.retain_mut(|stream| match stream.read(&mut block) {
                Ok(0) => false,
                Ok(_) => {
                    idle = false;
                    stream.write_all(name.as_bytes()).is_ok()
                }
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
            if idle {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    eventually("servers", Duration::from_secs(2), || ready.load(Ordering::Relaxed));
}

/// How many clients were answered by whom; `n1+n2` was answered twice, `-` not at all.
type Tally = BTreeMap<String, usize>;

/// Each source asks once by UDP; all answers within `wait` count.
fn ask_udp(client: &Host, vip: &str, sources: Vec<IpAddr>, wait: Duration) -> Tally {
    let vip: IpAddr = vip.parse().unwrap();
    client
        .inside(move || {
            let sockets: Vec<UdpSocket> = sources
                .iter()
                .map(|source| {
                    let socket = UdpSocket::bind((*source, 0)).unwrap();
                    socket.set_nonblocking(true).unwrap();
                    socket.connect((vip, UDP)).unwrap();
                    socket
                })
                .collect();
            let mut got: Vec<Vec<String>> = vec![Vec::new(); sockets.len()];
            let end = Instant::now() + wait;
            for socket in &sockets {
                let _ = socket.send(b"?");
            }
            let mut block = [0; 64];
            loop {
                for (socket, got) in sockets.iter().zip(&mut got) {
                    while let Ok(size) = socket.recv(&mut block) {
                        got.push(String::from_utf8_lossy(&block[..size]).into_owned());
                    }
                }
                if Instant::now() >= end {
                    return tally(got);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        })
        .join()
        .unwrap()
}

fn tally(got: Vec<Vec<String>>) -> Tally {
    let mut tally = Tally::new();
    for mut answers in got {
        answers.sort();
        let key = if answers.is_empty() { "-".to_owned() } else { answers.join("+") };
        *tally.entry(key).or_default() += 1;
    }
    tally
}

/// Open connections of many clients, held while the buckets move.
struct Connections(std::thread::JoinHandle<Vec<(IpAddr, TcpStream)>>);

fn connect(client: &Host, vip: &str, sources: Vec<IpAddr>) -> Connections {
    let vip: IpAddr = vip.parse().unwrap();
    Connections(client.inside(move || {
        let pending: Vec<(IpAddr, socket2::Socket)> = sources
            .into_iter()
            .map(|source| {
                let domain = socket2::Domain::for_address(SocketAddr::new(vip, 0));
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
                socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&SocketAddr::new(vip, TCP).into());
                (source, socket)
            })
            .collect();
        let end = Instant::now() + Duration::from_millis(900);
        let mut open = Vec::new();
        let mut pending = pending;
        while !pending.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            let mut left = Vec::new();
            for (source, socket) in pending {
                // A SYN that was dropped is sent again after a second: that is too late here.
                if matches!(socket.take_error(), Ok(Some(_))) {
                    continue;
                }
                if socket.peer_addr().is_ok() {
                    open.push((source, TcpStream::from(socket)));
                } else {
                    left.push((source, socket));
                }
            }
            pending = left;
        }
        open
    }))
}

impl Connections {
    fn open(self) -> Vec<(IpAddr, TcpStream)> {
        self.0.join().unwrap()
    }
}

/// Says something on each connection: who answers, `reset`, or `-` for silence; and the longest wait.
fn talk(connections: &mut [(IpAddr, TcpStream)], wait: Duration) -> (Tally, Duration) {
    let start = Instant::now();
    let mut got: Vec<Vec<String>> = vec![Vec::new(); connections.len()];
    for ((_, stream), got) in connections.iter_mut().zip(&mut got) {
        if stream.write_all(b"?").is_err() {
            got.push("reset".to_owned());
        }
    }
    hear(connections, got, start, wait)
}

/// Says nothing, and notes what comes.
fn listen(connections: &mut [(IpAddr, TcpStream)], wait: Duration) -> (Tally, Duration) {
    let got = vec![Vec::new(); connections.len()];
    hear(connections, got, Instant::now(), wait)
}

fn hear(
    connections: &mut [(IpAddr, TcpStream)],
    mut got: Vec<Vec<String>>,
    start: Instant,
    wait: Duration,
) -> (Tally, Duration) {
    let mut last = start;
    let mut block = [0; 64];
    while got.iter().any(Vec::is_empty) && start.elapsed() < wait {
        for ((_, stream), got) in connections.iter_mut().zip(&mut got).filter(|(_, got)| got.is_empty()) {
            match stream.read(&mut block) {
                Ok(0) => got.push("closed".to_owned()),
                Ok(size) => got.push(String::from_utf8_lossy(&block[..size]).into_owned()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => got.push("reset".to_owned()),
            }
            last = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (tally(got), last - start)
}

/// One ping from each source, all at once; answers per source, duplicates counted.
fn ping(client: &Host, vip: &str, n_clients: u8) -> Tally {
    let lines: String = (0..n_clients)
        .map(|n| format!("(ping -n -q -c1 -w1 -I {} {vip} | grep -o '[0-9]* received.*' >&3) &\n", source(vip, n)))
        .collect();
    let said = client.sh(&format!("exec 3>&1\n{lines}wait"));
    let mut tally = Tally::new();
    for line in said.lines().filter(|line| line.contains("received")) {
        let key = if line.contains("duplicates") {
            "twice"
        } else if line.starts_with('1') {
            "once"
        } else {
            "never"
        };
        *tally.entry(key.to_owned()).or_default() += 1;
    }
    tally
}

fn neighbour(client: &Host, vip: &str) -> String {
    client.sh(&format!("ip neigh show {vip}")).split("lladdr ").nth(1).unwrap_or("none").chars().take(17).collect()
}

fn packets(host: &Host, vip: &str, key: &str) -> u64 {
    host.run(&format!("bucket show {vip}")).ended(0).one()[key].as_u64().unwrap()
}

#[track_caller]
fn once_each(tally: &Tally, n_clients: u8, n_nodes: usize) {
    assert!(tally.keys().all(|who| who.starts_with('n') && !who.contains('+')), "{tally:?}");
    assert_eq!(tally.values().sum::<usize>(), usize::from(n_clients), "{tally:?}");
    assert_eq!(tally.len(), n_nodes, "{tally:?}");
}

#[test]
fn two_hundred_clients_get_one_answer_each() {
    let cluster = Cluster::new(3, 200);
    cluster.serve();
    for (vip, mode) in
        [(V4, "sourceip"), (V6, "sourceip"), (V4, "sourceip-sourceport-destport"), (V6, "sourceip-sourceport")]
    {
        cluster.init(vip, &format!("--total 64 --mode {mode}"), &["1-22", "23-43", "44-64"]);
        cluster.client.sh("ip neigh flush all");
        let answered = ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(700));
        once_each(&answered, 200, 3);
        if mode == "sourceip" {
            // hash-owner finds the same owners with the parameters that show prints.
            let params = cluster.nodes[0].run(&format!("bucket show {vip}")).ended(0).one()["params"].clone();
            let flags = format!("hash-owner {} --owners n1=1-22,n2=23-43,n3=44-64 -", params.as_str().unwrap());
            let sources: String = cluster.sources(vip).iter().map(|source| format!("{source}\n")).collect();
            let mut told = Tally::new();
            for record in cluster.client.run_with(&flags, &sources).ended(0).records() {
                *told.entry(record["owner"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            assert_eq!(told, answered);
        }
        let mut open = connect(&cluster.client, vip, cluster.sources(vip)).open();
        let (tally, _) = talk(&mut open, Duration::from_secs(2));
        once_each(&tally, 200, 3);
        assert_eq!(ping(&cluster.client, vip, 200), Tally::from([("once".to_owned(), 200)]));
        assert_eq!(neighbour(&cluster.client, vip), MAC);
        for node in &cluster.nodes {
            assert_eq!(node.run(&format!("bucket check {vip}")).ended(0).one()["status"], "up");
            assert!(packets(node, vip, "accepted_packets") > 0);
        }
    }
    // What show prints is what verify needs, and together they serve everything once.
    let shown: String =
        cluster.nodes.iter().map(|node| node.run(&format!("bucket show {V4}")).ended(0).stdout).collect();
    let whole = cluster.client.run_with("bucket verify", &shown).ended(0).one();
    assert_eq!((&whole["status"], &whole["nodes"]), (&json!("up"), &json!(["n1", "n2", "n3"])));
}

#[test]
fn the_hash_is_the_one_that_was_measured() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.168.10.2/24"]);
    let client = lab.host("client", &["192.168.10.1/24"]);
    // research: 192.168.10.1, seed 0, 2 buckets: 1.
    for (local, answers) in [("1", true), ("2", false)] {
        host.run(&format!("bucket init 192.168.10.3 --dev eth0 --mac {MAC} --total 2 --seed 0 --local {local}"))
            .ended(0);
        assert_eq!(client.try_sh("ping -n -q -c1 -W1 192.168.10.3").0, answers);
    }
}

#[test]
fn a_drain_keeps_every_connection_and_sends_new_ones_on() {
    let cluster = Cluster::new(2, 80);
    cluster.serve();
    for vip in [V4, V6] {
        cluster.init(vip, "--total 2", &["1", "2"]);
        let mut open = connect(&cluster.client, vip, cluster.sources(vip)).open();
        let (before, _) = talk(&mut open, Duration::from_secs(2));
        once_each(&before, 80, 2);
        let released = cluster.nodes[1].run(&format!("bucket set {vip} -2")).ended(0).one();
        assert_eq!(
            (&released["lost"], &released["how"], &released["draining"]),
            (&json!("2"), &json!("drain"), &json!("2"))
        );
        let taken = cluster.nodes[0].run(&format!("bucket set {vip} +2 --drain")).ended(0).one();
        assert_eq!((&taken["gained"], &taken["how"], &taken["opening"]), (&json!("2"), &json!("drain"), &json!("2")));
        let (after, _) = talk(&mut open, Duration::from_secs(2));
        assert_eq!(after, before, "a connection moved or was lost");
        assert!(packets(&cluster.nodes[1], vip, "drained_packets") > 0);
        let mut new = connect(&cluster.client, vip, cluster.sources(vip)).open();
        assert_eq!(talk(&mut new, Duration::from_secs(2)).0, Tally::from([("n1".to_owned(), 80)]));
        // The end of the drain: what is left is reset, and nothing answers twice.
        let shown = cluster.nodes[1].run(&format!("bucket show {vip}")).ended(0).one();
        assert_eq!(shown["connections_left"], json!(before["n2"]));
        cluster.nodes[1].run(&format!("bucket set {vip} --settle")).ended(0);
        let (settled, _) = talk(&mut open, Duration::from_secs(2));
        assert_eq!((settled.get("reset"), settled.get("n1")), (before.get("n2"), before.get("n1")), "{settled:?}");
        once_each(&ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(300)), 80, 1);
        cluster.nodes[1].run(&format!("bucket clear {vip}")).ended(0);
    }
}

/// H17: whether the site's firewall lets strangers' segments in decides nothing.
#[test]
fn a_take_over_resets_orphans_at_once_behind_a_closed_firewall() {
    let cluster = Cluster::new(2, 60);
    cluster.serve();
    for node in &cluster.nodes {
        node.sh(
            "nft 'table inet site { chain in { type filter hook input priority 0; policy drop; ct state established,related accept; tcp flags syn / fin,syn,rst,ack accept; meta l4proto { icmp, ipv6-icmp, udp } accept; }
}'; sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0",
        );
    }
    for vip in [V4, V6] {
        cluster.init(vip, "--total 2", &["1", "2"]);
        let mut open = connect(&cluster.client, vip, cluster.sources(vip)).open();
        let (before, _) = talk(&mut open, Duration::from_secs(2));
        once_each(&before, 60, 2);
        // n2 loses its power.
        cluster.lab.on_switch("ip link set n2.eth0 down");
        let taken = cluster.nodes[0].run(&format!("bucket set {vip} +2 --take-over")).ended(0).one();
        assert_eq!((&taken["how"], &taken["reset"]), (&json!("take-over"), &json!("2")));
        let (after, slowest) = talk(&mut open, Duration::from_secs(2));
        assert_eq!(after.get("reset"), before.get("n2"), "{after:?}");
        assert_eq!(after.get("n1"), before.get("n1"));
        assert!(slowest < Duration::from_millis(100), "the last orphan was reset after {slowest:?}");
        let mut new = connect(&cluster.client, vip, cluster.sources(vip)).open();
        assert_eq!(talk(&mut new, Duration::from_secs(2)).0, Tally::from([("n1".to_owned(), 60)]));
        cluster.lab.on_switch("ip link set n2.eth0 up");
        cluster.nodes[1].run(&format!("bucket clear {vip}")).ended(0);
        cluster.nodes[0].run(&format!("bucket clear {vip}")).ended(0);
    }
}

/// hardening 35: who only waits learns of a take-over too, whatever the site's firewall.
#[test]
fn a_take_over_wakes_clients_that_only_wait() {
    let cluster = Cluster::new(2, 60);
    cluster.serve();
    let firewall = "nft 'table inet site { chain in { type filter hook input priority 0; policy drop; ct state established,related accept; tcp flags syn / fin,syn,rst,ack accept; meta l4proto { icmp, ipv6-icmp, udp } accept; }
}'; sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0";
    for (vip, closed) in [(V4, false), (V6, false), (V4, true), (V6, true)] {
        if closed {
            cluster.nodes[0].sh(&format!("nft delete table inet site 2>/dev/null; {firewall}"));
        }
        cluster.init(vip, "--total 2 --remember", &["1", "2"]);
        let mut open = connect(&cluster.client, vip, cluster.sources(vip)).open();
        let before = talk(&mut open, Duration::from_secs(2)).0;
        once_each(&before, 60, 2);
        cluster.lab.on_switch("ip link set n2.eth0 down");
        let taken = cluster.nodes[0].run(&format!("bucket set {vip} +2 --take-over --tickle")).ended(0).one();
        assert_eq!(taken["tickled"].as_u64(), before.get("n2").map(|n| *n as u64), "{taken}");
        // Nothing is said: the reset has come by itself.
        let (after, slowest) = listen(&mut open, Duration::from_secs(1));
        assert_eq!(after.get("reset"), before.get("n2"), "{after:?}, closed firewall: {closed}");
        assert!(slowest < Duration::from_millis(100), "{slowest:?}");
        // Nothing is left by which this node would answer once the port is used anew.
        let family = if vip == V4 { "ipv4" } else { "ipv6" };
        let left =
            cluster.nodes[0].sh(&format!("conntrack -L -f {family} -p tcp --orig-src {vip} 2>/dev/null || true"));
        assert_eq!(left, "");
        let checked = cluster.nodes[0].run(&format!("bucket check {vip}")).ended(0).one();
        assert!(!checked["warnings"].to_string().contains("untracks"), "{checked}");
        cluster.lab.on_switch("ip link set n2.eth0 up");
        for node in &cluster.nodes {
            node.run(&format!("bucket clear {vip}")).ended(0);
        }
    }
    cluster.init(V4, "--total 2", &["1", "2"]);
    let refused = cluster.nodes[0].run(&format!("bucket set {V4} +2 --take-over --tickle")).ended(2);
    assert!(refused.stderr.contains("nobody remembers its peers"), "{refused:?}");
}

/// H4: giving up closes the bucket altogether, and the peers learn it at once.
#[test]
fn giving_everything_up_resets_every_connection() {
    let cluster = Cluster::new(1, 40);
    cluster.serve();
    for (vip, end) in [(V4, format!("bucket set {V4} = --settle")), (V6, format!("bucket clear {V6}"))] {
        cluster.init(vip, "--total 2", &["1-2"]);
        let mut open = connect(&cluster.client, vip, cluster.sources(vip)).open();
        once_each(&talk(&mut open, Duration::from_secs(2)).0, 40, 1);
        cluster.nodes[0].run(&end).ended(0);
        // Nothing is said: the reset has come by itself.
        let (after, slowest) = listen(&mut open, Duration::from_secs(1));
        assert_eq!(after, Tally::from([("reset".to_owned(), 40)]));
        assert!(slowest < Duration::from_millis(100), "{slowest:?}");
    }
}

#[test]
fn verify_finds_gaps_overlaps_and_other_seeds() {
    let cluster = Cluster::new(2, 0);
    cluster.init(V4, "--total 8", &["1-4", "4-7"]);
    let show = |node: &Host| node.run(&format!("bucket show {V4}")).ended(0).stdout;
    let both = show(&cluster.nodes[0]) + &show(&cluster.nodes[1]);
    let found = cluster.client.run_with("bucket verify", &both).ended(1).one();
    assert_eq!(found["gaps"], "8");
    assert_eq!(found["overlaps"], json!([{"buckets": "4", "nodes": ["n1", "n2"]}]));
    assert_eq!(found["parameters_differ"], json!([]));
    cluster.nodes[1].run(&format!("bucket init {V4} --dev eth0 --mac {MAC} --seed 1 --total 8 --local 5-8")).ended(0);
    let both = show(&cluster.nodes[0]) + &show(&cluster.nodes[1]);
    assert_eq!(cluster.client.run_with("bucket verify", &both).ended(1).one()["parameters_differ"], json!(["seed"]));
    assert_eq!(cluster.client.run_with("bucket verify", "{\"kind\":\"x\"}\n").ended(75).stdout, "");
    cluster.client.run_with("bucket verify", "{\"kind\":\"bucket.show\"}\n").ended(6);
}

/// H10: lost rules mean silence, not two answers.
#[test]
fn a_flushed_rule_set_is_silence_and_is_mended_within_a_second() {
    let cluster = Cluster::new(2, 60);
    cluster.serve();
    for vip in [V4, V6] {
        cluster.init(vip, "--total 2", &["1", "2"]);
        once_each(&ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(300)), 60, 2);
    }
    cluster.nodes[1].sh("nft flush ruleset");
    for vip in [V4, V6] {
        let tally = ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(300));
        assert!(tally.keys().all(|who| who == "n1" || who == "-"), "{vip}: {tally:?}");
        cluster.nodes[1].run(&format!("bucket show {vip}")).ended(5);
    }
    cluster.init(V4, "--total 2", &["1", "2"]);
    cluster.init(V6, "--total 2", &["1", "2"]);
    let watch = cluster.nodes[1].start("bucket watch --repair");
    for vip in [V4, V6] {
        watch.wait_for("present", Duration::from_secs(2), |record| {
            record["event"] == "present" && record["subject"] == vip
        });
    }
    let flushed = Instant::now();
    cluster.nodes[1].sh("nft flush ruleset");
    for vip in [V4, V6] {
        let told = watch.wait_for("rules-lost", Duration::from_secs(1), |record| {
            record["event"] == "rules-lost" && record["subject"] == vip
        });
        assert_eq!(told["repaired"], true);
    }
    assert!(flushed.elapsed() < Duration::from_secs(1), "{:?}", flushed.elapsed());
    for vip in [V4, V6] {
        once_each(&ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(300)), 60, 2);
    }
    // The address is put back too; what an operator clears is not.
    cluster.nodes[1].sh(&format!("ip addr del {V4}/32 dev eth0"));
    watch.wait_for("address-lost", Duration::from_secs(1), |record| record["event"] == "address-lost");
    eventually("the address", Duration::from_secs(1), || {
        cluster.nodes[1].sh("ip addr show dev eth0").contains(&format!("{V4}/32"))
    });
    cluster.nodes[1].run(&format!("bucket clear {V4}")).ended(0);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(!cluster.nodes[1].sh("nft list tables").contains("192_0_2_100"));
    assert!(!cluster.nodes[1].sh("ip addr show dev eth0").contains(V4));
}

/// H10: what makes lost rules silence is watched too, and neighbours that asked meanwhile are told again.
#[test]
fn a_lost_setting_is_put_back_and_the_mac_told_again() {
    let cluster = Cluster::new(2, 10);
    cluster.serve();
    let node = &cluster.nodes[1];
    for vip in [V4, V6] {
        cluster.init(vip, "--total 2", &["1", "2"]);
        once_each(&ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(300)), 10, 2);
    }
    let watch = node.start("bucket watch --repair");
    for vip in [V4, V6] {
        watch.wait_for("present", Duration::from_secs(2), |record| record["subject"] == vip);
    }
    for (family, vip) in [("ipv4", V4), ("ipv6", V6)] {
        let setting = format!("net.{family}.conf.eth0.drop_unicast_in_l2_multicast");
        node.sh(&format!("sysctl -qw {setting}=0"));
        let told = watch.wait_for("setting-lost", Duration::from_secs(5), |record| {
            record["event"] == "setting-lost" && record["subject"] == vip
        });
        assert_eq!(told["repaired"], true);
        assert_eq!(node.sh(&format!("sysctl -n {setting}")).trim(), "1");
    }
    // The announcements of those repairs are over; what a host without rules answers is its own MAC.
    std::thread::sleep(Duration::from_secs(2));
    for vip in [V4, V6] {
        cluster.client.sh(&format!("ip neigh replace {vip} lladdr 02:00:00:00:00:77 dev eth0 nud stale"));
    }
    node.sh("nft flush ruleset");
    for vip in [V4, V6] {
        eventually("the neighbours have the cluster MAC", Duration::from_secs(5), || {
            neighbour(&cluster.client, vip) == MAC
        });
    }
}

/// H6: rules that come back bring no lease that nobody granted.
#[test]
fn a_repair_adds_nothing_to_the_lease() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    node.run(&format!("bucket init {V4} --dev eth0 --total 2 --local 1-2 --lease 4s")).ended(0);
    let watch = node.start("bucket watch --repair");
    watch.wait_for("present", Duration::from_secs(2), |record| record["event"] == "present");
    std::thread::sleep(Duration::from_secs(3));
    node.sh("nft flush ruleset");
    watch.wait_for("rules-lost", Duration::from_secs(5), |record| record["event"] == "rules-lost");
    let shown = node.run(&format!("bucket show {V4}")).ended(0).one();
    assert!(shown["lease_left_ms"].as_f64().unwrap_or(0.0) <= 1000.0, "{shown}");
}

/// H11: nodes that forward and have lost the address do not send the packet round and round.
#[test]
fn a_lost_address_on_forwarding_hosts_makes_no_storm() {
    let cluster = Cluster::new(4, 8);
    cluster.init(V4, "--total 4", &["1", "2", "3", "4"]);
    for node in &cluster.nodes {
        node.sh(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0",
        );
    }
    cluster.client.sh(&format!("ping -n -q -c1 -W1 {V4} || true"));
    for node in &cluster.nodes[1..] {
        node.sh(&format!("ip addr del {V4}/32 dev eth0"));
    }
    let frames = || -> u64 {
        let text = cluster.lab.on_switch("ip -s -j link show client.eth0");
        let links: Value = serde_json::from_str(&text).unwrap();
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    // One ping from each client; most of their buckets belong to nodes that lost the address.
    let pings = || {
        let before = frames();
        for source in cluster.sources(V4) {
            cluster.client.sh(&format!("ping -n -q -c1 -t 8 -W0.2 -I {source} {V4} || true"));
        }
        frames() - before
    };
    let seen = pings();
    assert!(seen <= 20, "{seen} frames for 8 pings");
    // Two rules stand against it: the hash, by which all but the owner drop the packet, and the
    // first one, which is enough alone.
    for node in &cluster.nodes[1..] {
        node.sh("nft flush chain ip failover_192_0_2_100 own");
    }
    let seen = pings();
    assert!(seen <= 20, "{seen} frames for 8 pings without the hash");
    for node in &cluster.nodes[1..] {
        node.sh("nft flush chain ip failover_192_0_2_100 pre");
    }
    let seen = pings();
    assert!(seen > 100, "{seen} frames for 8 pings without both");
    for node in &cluster.nodes[1..] {
        node.run(&format!("bucket check {V4}")).ended(1);
    }
    cluster.init(V4, "--total 4", &["1", "2", "3", "4"]);
    for node in &cluster.nodes[1..] {
        node.sh(&format!("ip addr del {V4}/32 dev eth0"));
    }
    for node in &cluster.nodes[1..] {
        let found = node.run(&format!("bucket check {V4}")).ended(1).one();
        assert_eq!(found["differences"][0]["what"], "address");
        let mend = found["differences"][0]["mend"].as_str().unwrap().to_owned();
        node.sh(&mend);
        node.run(&format!("bucket check {V4}")).ended(0);
    }
}

/// H12: a bridge that snoops, with a querier, floods to router ports only.
#[test]
fn a_snooping_bridge_needs_its_ports_told() {
    let cluster = Cluster::new(2, 20);
    cluster.serve();
    cluster.init(V4, "--total 2", &["1", "2"]);
    cluster.init(V6, "--total 2", &["1", "2"]);
    cluster.lab.on_switch("ip link set lan type bridge mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 10 mcast_startup_query_interval 10");
    for node in &cluster.nodes {
        cluster.lab.on_switch(&format!("ip link set {}.eth0 type bridge_slave mcast_router 2", node.name));
    }
    std::thread::sleep(Duration::from_millis(500));
    for vip in [V4, V6] {
        once_each(&ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(500)), 20, 2);
    }
}

/// H12: a question to the group, answered by whoever watches.
#[test]
fn the_wire_says_who_hears_the_group() {
    let cluster = Cluster::new(3, 0);
    for vip in [V4, V6] {
        cluster.init(vip, "--total 3", &["1", "2", "3"]);
        let ask = || cluster.nodes[0].run(&format!("bucket check {vip} --wire"));
        // Nobody watches: that is not known, and not a no.
        let deaf = ask().ended(75).one();
        assert_eq!((&deaf["status"], &deaf["seen_by"]), (&json!("unknown"), &json!([])));
        let watches: Vec<_> =
            cluster.nodes[1..].iter().map(|node| node.start(&format!("bucket watch {vip}"))).collect();
        for watch in &watches {
            watch.wait_for("present", Duration::from_secs(2), |record| record["event"] == "present");
        }
        assert_eq!(ask().ended(0).one()["seen_by"], json!(["n2", "n3"]));
        cluster.lab.on_switch("ip link set n3.eth0 down");
        assert_eq!(ask().ended(0).one()["seen_by"], json!(["n2"]));
        cluster.lab.on_switch("ip link set n3.eth0 up");
    }
}

/// H14: what starts on a node.
#[test]
fn a_node_reaches_itself_and_opens_only_what_comes_back_to_it() {
    let cluster = Cluster::new(2, 16);
    serve(&cluster.client, &cluster.over);
    for vip in [V4, V6] {
        cluster.init(vip, "--total 2", &["1", "2"]);
        for node in &cluster.nodes {
            node.sh(&format!("ping -n -q -c1 -W1 {vip}"));
        }
        let sources = cluster.sources(vip);
        let addr: IpAddr = vip.parse().unwrap();
        let opened: Vec<usize> = cluster
            .nodes
            .iter()
            .map(|node| {
                let sources = sources.clone();
                node.inside(move || {
                    let mut open = 0;
                    for to in sources {
                        let socket = socket2::Socket::new(
                            socket2::Domain::for_address(SocketAddr::new(to, 0)),
                            socket2::Type::STREAM,
                            None,
                        )
                        .unwrap();
                        socket.bind(&SocketAddr::new(addr, 0).into()).unwrap();
                        if socket.connect_timeout(&SocketAddr::new(to, TCP).into(), Duration::from_millis(150)).is_ok()
                        {
                            let mut stream = TcpStream::from(socket);
                            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                            stream.write_all(b"?").unwrap();
                            // Opened and used: never reset by the other node.
                            assert_eq!(stream.read(&mut [0; 64]).unwrap(), "client".len());
                            open += 1;
                        }
                    }
                    open
                })
                .join()
                .unwrap()
            })
            .collect();
        assert_eq!(opened.iter().sum::<usize>(), 16, "{opened:?}");
        assert!(packets(&cluster.nodes[0], vip, "refused_out_packets") > 0);
    }
}

/// H26: the IPv6 correction is made from the device's own MAC.
#[test]
fn another_mac_is_noticed_and_the_rules_made_anew() {
    let cluster = Cluster::new(1, 10);
    cluster.serve();
    cluster.init(V6, "--total 2", &["1-2"]);
    let node = &cluster.nodes[0];
    let watch = node.start(&format!("bucket watch {V6} --repair"));
    watch.wait_for("present", Duration::from_secs(2), |record| record["event"] == "present");
    node.sh("ip link set dev eth0 address 02:00:00:00:aa:bb");
    watch.wait_for("mac-changed", Duration::from_secs(1), |record| {
        record["event"] == "mac-changed" && record["repaired"] == true
    });
    assert_eq!(node.run(&format!("bucket show {V6}")).ended(0).one()["made_from_mac"], "02:00:00:00:aa:bb");
    cluster.client.sh("ip neigh flush all");
    once_each(&ask_udp(&cluster.client, V6, cluster.sources(V6), Duration::from_secs(1)), 10, 1);
    assert_eq!(neighbour(&cluster.client, V6), MAC);
    drop(watch);
    node.sh("ip link set dev eth0 address 02:00:00:00:aa:cc");
    let found = node.run(&format!("bucket check {V6}")).ended(1).one();
    assert_eq!(found["differences"][0]["what"], "made_from_mac");
    let shown = node.run(&format!("bucket show {V6}"));
    assert_eq!(shown.code, 0);
    assert!(shown.stderr.contains("neighbours drop what they are told"), "{shown:?}");
}

/// H27: an ordinary MAC that is nobody's own.
#[test]
fn a_unicast_mac_serves_too() {
    let cluster = Cluster::new(2, 20);
    cluster.serve();
    for node in &cluster.nodes {
        // The switch has to flood it, so it must not learn it.
        cluster.lab.on_switch(&format!("ip link set {}.eth0 type bridge_slave flood on", node.name));
    }
    for vip in [V4, V6] {
        for (node, local) in cluster.nodes.iter().zip(["1", "2"]) {
            let made = node
                .run(&format!(
                    "bucket init {vip} --dev eth0 --unicast --mac 02:11:22:33:44:55 --total 2 --seed 0 --local {local}"
                ))
                .ended(0)
                .one();
            assert_eq!(made["unicast"], true);
        }
        once_each(&ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(500)), 20, 2);
        let mut open = connect(&cluster.client, vip, cluster.sources(vip)).open();
        once_each(&talk(&mut open, Duration::from_secs(2)).0, 20, 2);
        assert_eq!(neighbour(&cluster.client, vip), "02:11:22:33:44:55");
        for node in &cluster.nodes {
            node.run(&format!("bucket check {vip}")).ended(0);
        }
    }
    for vip in [V4, V6] {
        cluster.nodes[0].run(&format!("bucket clear {vip}")).ended(0);
    }
    assert!(!cluster.nodes[0].sh("bridge fdb show dev eth0").contains("02:11:22:33:44:55"));
}

/// H1: a service behind DNAT, as containers have it, never passes input.
#[test]
fn a_service_behind_dnat_is_hashed_too() {
    let cluster = Cluster::new(2, 40);
    for (idx, node) in cluster.nodes.iter().enumerate() {
        let name = format!("c{}", idx + 1);
        let inner = cluster.lab.host(&name, &[]);
        inner.sh("ip link del eth0");
        node.sh(&format!(
            "ip link add veth0 type veth peer name eth0 netns {} && ip addr add 10.99.0.1/24 dev veth0 && ip link set veth0 up && sysctl -qw net.ipv4.ip_forward=1",
            inner.ns
        ));
        inner.sh("ip addr add 10.99.0.2/24 dev eth0 && ip link set eth0 up && ip route add default via 10.99.0.1");
        node.sh(&format!("nft 'table ip docker {{ chain pre {{ type nat hook prerouting priority dstnat; ip daddr {V4} tcp dport {TCP} dnat to 10.99.0.2; }}\n}}'"));
        serve(&inner, &cluster.over);
    }
    cluster.init(V4, "--total 2", &["1", "2"]);
    let mut open = connect(&cluster.client, V4, cluster.sources(V4)).open();
    let (tally, _) = talk(&mut open, Duration::from_secs(2));
    assert_eq!(tally.values().sum::<usize>(), 40, "{tally:?}");
    assert_eq!(tally.keys().collect::<Vec<_>>(), ["c1", "c2"], "{tally:?}");
}

/// H13: what `--proto` and `--port` leave out is answered by nobody.
#[test]
fn what_is_left_out_is_dropped_on_every_node() {
    let cluster = Cluster::new(2, 10);
    cluster.serve();
    cluster.init(V4, &format!("--total 2 --proto tcp --port {TCP}"), &["1", "2"]);
    let mut open = connect(&cluster.client, V4, cluster.sources(V4)).open();
    once_each(&talk(&mut open, Duration::from_secs(2)).0, 10, 2);
    let tally = ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(200));
    assert_eq!(tally, Tally::from([("-".to_owned(), 10)]));
    cluster.init(V4, &format!("--total 2 --proto tcp --port {TCP} --rest hash"), &["1", "2"]);
    once_each(&ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(300)), 10, 2);
    let usage = cluster.nodes[0].run(&format!("bucket init {V4} --dev eth0 --total 2 --proto icmp --port 7")).ended(2);
    assert!(usage.stderr.contains("no ports"), "{usage:?}");
}

/// H6: a lease ends in the kernel; not one packet leaves after that.
#[test]
fn a_lease_that_nobody_renews_ends_every_answer() {
    let cluster = Cluster::new(1, 8);
    cluster.serve();
    let node = &cluster.nodes[0];
    for vip in [V4, V6] {
        cluster.init(vip, "--total 2 --lease 1s", &["1-2"]);
    }
    let granted = Instant::now();
    let mut open = connect(&cluster.client, V4, cluster.sources(V4)).open();
    assert_eq!(open.len(), 8);
    std::thread::sleep(Duration::from_millis(1400).saturating_sub(granted.elapsed()));
    let capture = cluster
        .client
        .start_shell("exec timeout 2 tcpdump -n -i eth0 -Q in ether src 02:00:00:00:00:01 and not ip6 proto 58");
    eventually("tcpdump", Duration::from_secs(2), || capture.complaints().contains("listening"));
    cluster.client.sh("ip neigh flush all");
    for vip in [V4, V6] {
        let tally = ask_udp(&cluster.client, vip, cluster.sources(vip), Duration::from_millis(200));
        assert_eq!(tally, Tally::from([("-".to_owned(), 8)]));
    }
    let (tally, _) = talk(&mut open, Duration::from_millis(600));
    assert_eq!(tally, Tally::from([("-".to_owned(), 8)]));
    eventually("the end of the capture", Duration::from_secs(3), || capture.complaints().contains("captured"));
    assert!(capture.complaints().contains("0 packets captured"), "{}", capture.complaints());
    let shown = node.run(&format!("bucket show {V4}")).ended(0).one();
    assert_eq!((&shown["lease_ms"], &shown["lease_left_ms"]), (&json!(1000.0), &Value::Null));
    // Nor does it overlap with who took over.
    assert_eq!(shown["owned"], "");
    assert_eq!(node.run(&format!("bucket show {V4} --beat")).ended(0).one()["own"], "");
    // What was held is lost, and has to be asked for again.
    let again = node.run(&format!("bucket set {V4} +2")).ended(0).one();
    assert_eq!((&again["owned"], &again["gained"]), (&json!("2"), &json!("2")));
}

#[test]
fn a_short_lease_is_renewed_in_place_by_each_plan() {
    let cluster = Cluster::new(1, 1);
    cluster.serve();
    let node = &cluster.nodes[0];
    node.run(&format!("bucket init {V4} --dev eth0 --mac {MAC} --total 2 --seed 0 --lease 800ms")).ended(0);
    let plan = |mine: &str, renewal: bool| {
        json!({"kind": "bucket.plan", "v": 1, "host": "n1", "subject": V4, "total": 2, "epoch": 5, "mine": mine, "renewal": renewal}).to_string() + "\n"
    };
    let mut child = node
        .command(&format!("bucket apply {V4} --follow --beat {}", node.folder.join("own.json").display()))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(plan("1-2", false).as_bytes()).unwrap();
    for _ in 0..13 {
        std::thread::sleep(Duration::from_millis(150));
        stdin.write_all(plan("1-2", true).as_bytes()).unwrap();
    }
    let beat: Value = serde_json::from_str(&std::fs::read_to_string(node.folder.join("own.json")).unwrap()).unwrap();
    support::validate(&beat);
    assert_eq!((&beat["own"], &beat["epoch"]), (&json!("1-2"), &json!(5)));
    let silent = Instant::now();
    once_each(&ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(50)), 1, 1);
    // The planner falls silent: everything is released, and that is a clear no.
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(silent.elapsed() < Duration::from_millis(1500), "{:?}", silent.elapsed());
    assert_eq!(node.run(&format!("bucket show {V4}")).ended(0).one()["owned"], "");
    drop(stdin);
}

/// H15: whoever reads the records leaves first when a pipeline is taken down.
#[test]
fn an_applier_whose_reader_left_releases_and_says_so() {
    let cluster = Cluster::new(1, 1);
    let node = &cluster.nodes[0];
    node.run(&format!("bucket init {V4} --dev eth0 --mac {MAC} --total 2 --seed 0 --lease 60s")).ended(0);
    let beat = node.folder.join("own.json");
    let mut child = node
        .command(&format!("bucket apply {V4} --follow --beat {}", beat.display()))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let plan =
        json!({"kind": "bucket.plan", "v": 1, "host": "n1", "subject": V4, "total": 2, "epoch": 5, "mine": "1-2"});
    writeln!(child.stdin.as_mut().unwrap(), "{plan}").unwrap();
    let mut record = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut record).unwrap();
    assert!(record.contains("\"gained\":\"1-2\""), "{record}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let beat: Value = serde_json::from_str(&std::fs::read_to_string(&beat).unwrap()).unwrap();
    assert_eq!((&beat["own"], &beat["unfit"]), (&json!(""), &json!("bucket apply has ended")));
    assert_eq!(node.run(&format!("bucket show {V4}")).ended(0).one()["owned"], "");
}

/// H3, H4: also long after the last plan, and whatever happened to the rules meanwhile.
#[test]
fn a_dead_link_is_released_and_told_at_once() {
    let cluster = Cluster::new(1, 1);
    let node = &cluster.nodes[0];
    let beats = [V4, V6].map(|vip| (vip, node.folder.join(format!("{}.json", vip.replace(':', "-")))));
    let own = |beat: &std::path::Path| -> Option<(String, bool)> {
        let beat: Value = serde_json::from_str(&std::fs::read_to_string(beat).ok()?).ok()?;
        Some((beat["own"].as_str()?.to_owned(), beat["unfit"].is_string()))
    };
    let mut children: Vec<_> = beats
        .iter()
        .map(|(vip, beat)| {
            node.run(&format!("bucket init {vip} --dev eth0 --mac {MAC} --total 2 --seed 0")).ended(0);
            let mut child = node
                .command(&format!("bucket apply {vip} --follow --beat {}", beat.display()))
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let plan = json!({"kind": "bucket.plan", "v": 1, "host": "n1", "subject": vip, "total": 2, "epoch": 5, "mine": "1-2"});
            writeln!(child.stdin.as_mut().unwrap(), "{plan}").unwrap();
            eventually("the plan", Duration::from_secs(2), || own(beat) == Some(("1-2".to_owned(), false)));
            child
        })
        .collect();
    // By hand, behind the applier's back: what it knows is no longer so.
    node.run(&format!("bucket set {V6} -2 --settle")).ended(0);
    // Beyond the 5 s that a step may take: the time of the last one must not be that of the next.
    std::thread::sleep(Duration::from_millis(5200));
    cluster.lab.on_switch("ip link set n1.eth0 down");
    for (_, beat) in &beats {
        eventually("the beat", Duration::from_millis(500), || own(beat) == Some((String::new(), true)));
    }
    for ((vip, _), child) in beats.iter().zip(&mut children) {
        assert_eq!(node.run(&format!("bucket show {vip}")).ended(0).one()["owned"], "");
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}

/// H16: the applier's lease lives by renewals, and whoever renews by himself is no dead man.
#[test]
fn a_planner_renews_while_its_input_may_still_live() {
    let cluster = Cluster::new(1, 1);
    let node = &cluster.nodes[0];
    let mut child = node
        .command(&format!(
            "bucket plan {V4} --total 2 --home n1=1,n2=2 --dead-after 1s --take-after 2s --renew 100ms --follow --for 3s"
        ))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let beat = json!({"kind": "heartbeat.recv", "v": 1, "subject": "n2", "status": "up", "renewal": true});
    writeln!(stdin, "{beat}").unwrap();
    let mut times = Vec::new();
    let mut begun = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let begun = begun.get_or_insert_with(Instant::now);
        if record["renewal"] == true {
            times.push(begun.elapsed());
        }
    }
    drop(stdin);
    child.wait().unwrap();
    assert!((6..=11).contains(&times.len()), "{times:?}");
    assert!(times.iter().all(|time| *time < Duration::from_millis(1300)), "{times:?}");
}

/// A record that has waited for years in a file proves nothing about a node that was heard since.
#[test]
fn an_old_proof_is_of_its_own_time() {
    let cluster = Cluster::new(1, 1);
    let line = format!("bucket plan {V4} --total 2 --home n1=1,n2=2 --wait-for-all no");
    let beat =
        |status: &str| json!({"kind": "heartbeat.recv", "v": 1, "subject": "n2", "status": status, "incarnation": 7});
    let today = cluster.nodes[0].sh("date -u -d '+1 minute' +%Y-%m-%dT%H:%M:%SZ");
    for (time, held) in [("2020-01-01T00:00:00.000000Z", "2"), (today.trim(), "")] {
        let proof = json!({"kind": "fence.off", "v": 1, "subject": "n2", "proof": true, "time": time});
        let input = format!("{}\n{}\n{proof}\n", beat("up"), beat("down"));
        let plan = cluster.nodes[0].run_with(&line, &input).one();
        assert_eq!(plan["held"], held, "{time}: {plan}");
    }
}

#[test]
fn a_plan_is_made_and_carried_out() {
    let cluster = Cluster::new(3, 30);
    cluster.serve();
    cluster.init(V4, "--total 6", &["1-2", "3-4", "5-6"]);
    let show = |node: &Host| node.run(&format!("bucket show {V4} --beat")).ended(0).one();
    let beat = |node: &Host, status: &str| {
        json!({"kind": "heartbeat.recv", "v": 1, "host": "n1", "subject": node.name, "status": status, "incarnation": 7, "payload": [show(node)]}).to_string() + "\n"
    };
    let [n1, n2, n3] = [0, 1, 2].map(|idx| &cluster.nodes[idx]);
    let flags = format!("bucket plan {V4} --total 6 --home n1=1-2,n2=3-4,n3=5-6");
    let seen = beat(n2, "up") + &beat(n3, "up") + &show(n1).to_string();
    // A blank in a digest would break the rule's comment that keeps it.
    let mut blank = n1.command(&flags);
    blank.args(["--config", "a b"]);
    support::Run::new("bucket plan with a blank digest", blank.output().unwrap()).ended(2);
    let plan = n1.run_with(&flags, &seen).ended(0).one();
    assert_eq!((&plan["mine"], &plan["moves"], &plan["owners"]["n3"]), (&json!("1-2"), &json!([]), &json!("5-6")));
    // The order of the lines does not matter.
    let mut lines: Vec<&str> = seen.lines().collect();
    lines.reverse();
    let other = n1.run_with(&flags, &lines.join("\n")).ended(0).one();
    assert_eq!((&other["owners"], &other["epoch"]), (&plan["owners"], &plan["epoch"]));
    // n3 falls silent: without proof its share is held.
    let seen = beat(n2, "up") + &beat(n3, "down") + &show(n1).to_string();
    let held = n1.run_with(&flags, &seen).ended(75).one();
    assert_eq!((&held["mine"], &held["needs_fence"]), (&json!("1-2"), &json!(["n3"])));
    // With proof it is taken over.
    cluster.lab.on_switch("ip link set n3.eth0 down");
    let proof =
        json!({"kind": "fence.off", "v": 1, "subject": "n3", "status": "down", "proof": true, "incarnation": 7})
            .to_string();
    for (node, other) in [(n1, n2), (n2, n1)] {
        let seen = beat(other, "up") + &beat(n3, "down") + &show(node).to_string() + "\n" + &proof;
        let run = node.run_with(&flags, &seen).ended(0);
        let done = node.run_with(&format!("bucket apply {V4}"), &run.stdout).ended(0).one();
        assert_eq!((&done["changed"], &done["how"]), (&json!(true), &json!("take-over")));
        assert_eq!(done["epoch"], run.one()["epoch"]);
        // Twice is once.
        assert_eq!(node.run_with(&format!("bucket apply {V4}"), &run.stdout).ended(0).one()["changed"], false);
    }
    once_each(&ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(300)), 30, 2);
    n1.run_with(&format!("bucket apply {V4}"), "").ended(75);
    n1.run_with(&flags, "{\"subject\":\"n2\",\"status\":7}\n").ended(6);
    n1.run_with(&format!("{flags} --take-after 2s"), "").ended(2);
}

/// A planner, its input, an applier; killed when this goes, also while they stand still.
struct Pipe {
    plan: std::process::Child,
    stdin: Option<std::process::ChildStdin>,
    apply: std::process::Child,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for child in [&mut self.plan, &mut self.apply] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Three nodes, each with its own `plan --follow | apply --follow`, told of the others by this test
/// in place of heartbeats.
#[test]
fn release_tell_take_between_running_pipelines() {
    let cluster = Cluster::new(3, 60);
    cluster.serve();
    for node in &cluster.nodes {
        node.run(&format!("bucket init {V4} --dev eth0 --mac {MAC} --total 12 --seed 0 --lease 2s")).ended(0);
    }
    let mut pipes: Vec<Pipe> = cluster
        .nodes
        .iter()
        .map(|node| {
            let own = node.folder.join("own.json");
            std::fs::write(&own, "").unwrap();
            let mut plan = node
                .command(&format!(
                    "bucket plan {V4} --total 12 --home n1=1-4,n2=5-8,n3=9-12 --fencing none --dead-after 300ms --lease 2s --follow --own {}",
                    own.display()
                ))
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let apply = node
                .command(&format!("bucket apply {V4} --follow --beat {}", own.display()))
                .stdin(plan.stdout.take().unwrap())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let stdin = plan.stdin.take();
            Pipe { plan, stdin, apply }
        })
        .collect();
    let files: Vec<_> = cluster.nodes.iter().map(|node| node.folder.join("own.json")).collect();
    let mut sick: Option<usize> = None;
    let round = |sick: Option<usize>, down: bool, pipes: &mut Vec<Pipe>| {
        let states: Vec<String> =
            files.iter().map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned()).collect();
        for (to, pipe) in pipes.iter_mut().enumerate() {
            for (from, state) in states.iter().enumerate().filter(|(from, _)| *from != to) {
                if Some(to) == sick || (Some(from) == sick && !down) {
                    continue;
                }
                let status = if Some(from) == sick { "down" } else { "up" };
                let payload =
                    if state.is_empty() || Some(from) == sick { "[]".to_owned() } else { format!("[{state}]") };
                let line = format!(
                    "{{\"kind\":\"heartbeat.recv\",\"v\":1,\"host\":\"n{}\",\"subject\":\"n{}\",\"status\":\"{status}\",\"incarnation\":7,\"renewal\":true,\"payload\":{payload}}}\n",
                    to + 1,
                    from + 1
                );
                let _ = pipe.stdin.as_mut().unwrap().write_all(line.as_bytes());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let owned = || -> Vec<String> {
        cluster
            .nodes
            .iter()
            .map(|node| node.run(&format!("bucket show {V4}")).ended(0).one()["owned"].as_str().unwrap().to_owned())
            .collect()
    };
    for _ in 0..30 {
        round(sick, false, &mut pipes);
    }
    assert_eq!(owned(), ["1-4", "5-8", "9-12"]);
    once_each(&ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(200)), 60, 3);
    // n3's processes stand still: its kernel stops with its lease, and the others take over.
    sick = Some(2);
    let signal = |signal: Signal, pipes: &[Pipe]| {
        for child in [&pipes[2].plan, &pipes[2].apply] {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        }
    };
    signal(Signal::SIGSTOP, &pipes);
    let frozen = Instant::now();
    let mut healed = None;
    while healed.is_none() && frozen.elapsed() < Duration::from_secs(8) {
        round(sick, frozen.elapsed() >= Duration::from_millis(300), &mut pipes);
        let tally = ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(20));
        assert!(tally.keys().all(|who| !who.contains('+')), "answered twice: {tally:?}");
        if !tally.contains_key("-") && !tally.contains_key("n3") {
            healed = Some(frozen.elapsed());
        }
    }
    // take-after (dead-after, lease, 150 ms), and 250 ms for the agreement on the map.
    let healed = healed.unwrap();
    assert!(healed < Duration::from_millis(300 + 2000 + 150 + 250 + 500), "all served again after {healed:?}");
    let after = owned();
    assert!(after[0].starts_with("1-4,") && after[1].starts_with("5-"), "{after:?}");
    // It goes on, and what it held comes home: released, told, taken; nobody is answered twice.
    signal(Signal::SIGCONT, &pipes);
    sick = None;
    let thawed = Instant::now();
    while owned() != ["1-4", "5-8", "9-12"] {
        assert!(thawed.elapsed() < Duration::from_secs(8), "{:?}", owned());
        round(sick, false, &mut pipes);
        let tally = ask_udp(&cluster.client, V4, cluster.sources(V4), Duration::from_millis(20));
        assert!(tally.keys().all(|who| !who.contains('+')), "answered twice: {tally:?}");
    }
    for pipe in &mut pipes {
        pipe.stdin = None;
        assert!(pipe.plan.wait().unwrap().success());
        assert_eq!(pipe.apply.wait().unwrap().code(), Some(1));
    }
    // End of input gives everything up, and the beat says why.
    let last: Value = serde_json::from_str(&std::fs::read_to_string(&files[0]).unwrap()).unwrap();
    assert_eq!((&last["own"], &last["unfit"]), (&json!(""), &json!("bucket apply has ended")));
    assert_eq!(owned(), ["", "", ""]);
}

#[test]
fn all_of_init_is_undone_by_clear() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    let look = || {
        node.sh("nft list tables; ip addr show dev eth0 | grep -v valid_lft; ip maddr show dev eth0; sysctl net.ipv4.conf.eth0.drop_unicast_in_l2_multicast net.ipv6.conf.eth0.drop_unicast_in_l2_multicast")
    };
    let before = look();
    for (vip, other) in [(V4, "192.0.2.101"), (V6, "2001:db8::101")] {
        let init = |vip: &str, more: &str| {
            node.run(&format!("bucket init {vip} --dev eth0 --mac {MAC} --total 4 --local 1-4{more}"))
        };
        let dry = init(vip, " --dry-run").ended(0).one();
        assert_eq!(look(), before, "a dry run changed something");
        let ops: Vec<&str> =
            dry["actions"].as_array().unwrap().iter().map(|action| action["op"].as_str().unwrap()).collect();
        assert_eq!(ops, ["nft", "sysctl", "membership-add", "address-add", "nft"]);
        let made = init(vip, " --explain").ended(0).one();
        assert_eq!((&made["changed"], &made["actions"]), (&json!(true), &dry["actions"]));
        assert_eq!(init(vip, "").ended(0).one()["changed"], false);
        // A second one on the same interface keeps what the first needs.
        init(other, "").ended(0);
        node.run(&format!("bucket clear {vip}")).ended(0);
        node.run(&format!("bucket check {other}")).ended(0);
        node.run(&format!("bucket clear {other}")).ended(0);
        assert_eq!(node.run(&format!("bucket clear {vip}")).ended(0).one()["changed"], false);
        assert_eq!(look(), before);
    }
    assert!(node.run("bucket show").ended(0).records().is_empty());
}

/// What the beat in a file lists.
fn told(beat: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(beat).unwrap_or_default();
    serde_json::from_str::<Value>(&text).map_or(Value::Null, |beat| beat["own"].clone())
}

/// The others take by what the beat says: it never lists less than the kernel serves.
#[test]
fn the_beat_tells_of_what_others_change_and_its_loss_ends_the_service() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    node.run(&format!("bucket init {V4} --dev eth0 --total 6 --lease 5s")).ended(0);
    let folder = node.folder.join("beats");
    std::fs::create_dir(&folder).unwrap();
    let beat = folder.join("own");
    let own = || told(&beat);
    let mut applier = node.start_fed(&format!("bucket apply {V4} --follow --beat {}", beat.display()));
    let plan = |mine: &str, epoch: u64| {
        format!(
            "{}\n",
            json!({"kind": "bucket.plan", "v": 1, "host": "n1", "subject": V4, "total": 6, "epoch": epoch,
            "owners": {"n1": mine}, "mine": mine, "moves": [], "nodes": {}, "unowned": "", "held": "", "needs_fence": []})
        )
    };
    applier.feed(&plan("1-3", 1));
    eventually("the plan is followed", Duration::from_secs(3), || own() == "1-3");
    node.run(&format!("bucket set {V4} +5")).ended(0);
    eventually("the change by hand is told", Duration::from_secs(1), || own() == "1-3,5");
    // From now on nothing can be told any more.
    std::fs::rename(&folder, node.folder.join("elsewhere")).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    applier.feed(&plan("1-6", 2));
    assert_eq!(applier.ends(Duration::from_secs(5)), 71, "{}", applier.complaints());
    assert!(applier.complaints().contains("/beats"), "{}", applier.complaints());
    assert_eq!(node.run(&format!("bucket show {V4}")).ended(0).one()["owned"], "", "who is mute holds nothing");
    // And where the tables go away and nobody puts them back, the beat says in the end that nothing is held.
    node.run(&format!("bucket init {V4} --dev eth0 --total 6 --lease 3s")).ended(0);
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let mut applier = node.start_fed(&format!("bucket apply {V4} --follow --beat {}", beat.display()));
    applier.feed(&plan("1-3", 3));
    eventually("the plan is followed", Duration::from_secs(3), || own() == "1-3");
    node.sh("nft flush ruleset");
    for epoch in 4..8 {
        applier.feed(&plan("1-3", epoch));
        assert_eq!(own(), "1-3", "they may still come back, and what was held with them");
        std::thread::sleep(Duration::from_millis(100));
    }
    // No silence of the planner is as long as the lease.
    for epoch in 8..10 {
        std::thread::sleep(Duration::from_millis(1500));
        applier.feed(&plan("1-3", epoch));
    }
    assert_eq!(applier.ends(Duration::from_secs(5)), 5, "{}", applier.complaints());
    assert_eq!(applier.complaints().matches("are gone: waiting").count(), 1, "{}", applier.complaints());
    assert_eq!(own(), "");
}

/// One nft does many plans and is replaced between two of them; where the kernel knows it by another number
/// each plan has its own.
#[test]
fn a_stream_of_plans_keeps_one_nft_as_long_as_it_is_of_use() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    node.run(&format!("bucket init {V4} --dev eth0 --total 6 --lease 1s")).ended(0);
    let beat = node.folder.join("own");
    let own = || told(&beat);
    let plan = |mine: &str| {
        format!(
            "{}\n",
            json!({"kind": "bucket.plan", "v": 1, "host": "n1", "subject": V4, "total": 6, "epoch": 1, "mine": mine})
        )
    };
    let mut applier = node.start_fed(&format!("bucket apply {V4} --follow --beat {}", beat.display()));
    let pid = applier.child.id();
    let nft = || node.sh(&format!("pgrep --parent {pid} --exact nft || true")).trim().to_owned();
    eventually("nft is ready", Duration::from_secs(3), || !nft().is_empty());
    let first = nft();
    for round in 0..64 {
        let mine = if round % 2 == 0 { "1-2" } else { "1" };
        applier.feed(&plan(mine));
        eventually("the plan is followed", Duration::from_secs(3), || own() == mine);
    }
    assert!(nft().lines().any(|line| line == first), "the same nft did all of them");
    eventually("a fresh nft renews", Duration::from_secs(5), || {
        applier.feed(&plan("1"));
        let now = nft();
        !now.is_empty() && !now.lines().any(|line| line == first)
    });
    assert_eq!(own(), "1");
    drop(applier.child.stdin.take());
    assert_eq!(applier.ends(Duration::from_secs(5)), 1);
    node.sh(&format!(
        "(printf '%s' '{}'; sleep 0.5) | FAILOVER_STATE_DIR={folder}/state unshare --pid --fork {} apply {V4} --node n1 \
         --follow --on-eof keep --beat {folder}/own || true",
        plan("1-6").trim_end().to_owned() + "\n",
        support::binary("bucket").display(),
        folder = node.folder.display(),
    ));
    assert_eq!(own(), "1-6");
}

#[test]
fn many_of_one_interface_come_and_go_at_once() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    let setting = || node.sh("sysctl -n net.ipv4.conf.eth0.drop_unicast_in_l2_multicast");
    let members = || node.sh("ip maddr show dev eth0").matches("link  03:").count();
    let (before, joined) = (setting(), members());
    for verb in ["init", "clear"] {
        let more = if verb == "init" { " --dev eth0 --total 4" } else { "" };
        let all: Vec<_> = (101..107).map(|n| node.start(&format!("bucket {verb} 192.0.2.{n}{more}"))).collect();
        for mut one in all {
            assert_eq!(one.ends(Duration::from_secs(20)), 0, "{verb}: {}", one.complaints());
        }
        let made = if verb == "init" { 6 } else { 0 };
        assert_eq!(node.run("bucket show").ended(0).records().len(), made);
        assert_eq!(setting().trim() == "1", made > 0 || before.trim() == "1", "{verb}");
    }
    assert_eq!((setting(), members()), (before, joined));
}

#[test]
fn what_lost_rules_left_is_cleared_by_the_address() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    let look = || node.sh("ip addr show dev eth0 | grep -v valid_lft; ip maddr show dev eth0 | sort");
    let before = look();
    for vip in [V4, V6] {
        node.run(&format!("bucket init {vip} --dev eth0 --total 4 --local 1-4")).ended(0);
        node.sh("nft flush ruleset");
        let cleared = node.run(&format!("bucket clear {vip}"));
        assert_eq!((cleared.code, &cleared.one()["changed"]), (0, &json!(true)));
        assert!(cleared.stderr.contains("drop_unicast_in_l2_multicast is 1 and stays so"), "{cleared:?}");
        assert_eq!(look(), before, "{vip}");
        node.sh("sysctl -qw net.ipv4.conf.eth0.drop_unicast_in_l2_multicast=0 net.ipv6.conf.eth0.drop_unicast_in_l2_multicast=0");
        // One table of three is lost: the others go too.
        node.run(&format!("bucket init {vip} --dev eth0 --total 4 --local 1-4")).ended(0);
        node.sh(&format!(
            "nft delete table {} failover_{}",
            if vip == V4 { "ip" } else { "ip6" },
            vip.replace(['.', ':'], "_")
        ));
        assert_eq!(node.run(&format!("bucket clear {vip}")).code, 0);
        assert_eq!(node.sh("nft list tables"), "");
        node.sh("sysctl -qw net.ipv4.conf.eth0.drop_unicast_in_l2_multicast=0 net.ipv6.conf.eth0.drop_unicast_in_l2_multicast=0");
        // The interface has got another name.
        node.run(&format!("bucket init {vip} --dev eth0 --total 4 --local 1-4")).ended(0);
        node.sh("ip link set eth0 down; ip link set eth0 name eth9; ip link set eth9 up");
        node.run(&format!("bucket clear {vip}")).ended(0);
        let members = node.sh("ip maddr show dev eth9; sysctl net.ipv4.conf.eth9.drop_unicast_in_l2_multicast net.ipv6.conf.eth9.drop_unicast_in_l2_multicast");
        assert!(!members.contains("link  03:") && !members.contains("= 1"), "{members}");
        node.sh("ip link set eth9 down; ip link set eth9 name eth0; ip link set eth0 up; ip addr replace 2001:db8::1/64 dev eth0 nodad");
    }
}

#[test]
fn what_is_wrong_is_refused_and_nothing_is_changed() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    node.run(&format!("bucket init {V4} --dev eth9 --total 2")).ended(5);
    node.run(&format!("bucket init {V4} --dev eth0 --total 0")).ended(2);
    node.run(&format!("bucket init {V4} --dev eth0 --total 5000")).ended(2);
    node.run(&format!("bucket init {V4} --dev eth0 --total 2 --local 3")).ended(2);
    node.run(&format!("bucket init {V4} --dev eth0 --total 2 --mac 02:00:00:00:00:09")).ended(2);
    node.run(&format!("bucket init {V4} --dev eth0 --total 2 --lease 50ms")).ended(2);
    node.run("bucket init 224.0.0.9 --dev eth0 --total 2").ended(2);
    assert_eq!(node.sh("nft list tables"), "");
    // An address that others reach this host by would be closed to most of them.
    let own = node.run("bucket init 192.0.2.1 --dev eth0 --total 2 --local 1").ended(1);
    assert!(own.stderr.contains("this host's own address"), "{own:?}");
    assert_eq!(node.sh("nft list tables"), "");
    for verb in ["set", "watch"] {
        let words = if verb == "set" { "+1" } else { "--for 5s" };
        let absent = node.run(&format!("bucket {verb} {V4} {words}")).ended(5);
        assert!(absent.stderr.contains("bucket init"), "{absent:?}");
    }
    cluster.init(V4, "--total 2", &["1"]);
    for wrong in ["+0", "+3", "+1 -1", "x", "+", "=3", ""] {
        node.run(&format!("bucket set {V4} {wrong}")).ended(2);
    }
    for (words, owned, changed) in [
        ("+1", "1", false),
        ("-2", "1", false),
        ("+2", "1-2", true),
        ("=2", "2", true),
        ("--add 1 --remove 2", "1", true),
        ("=", "", true),
    ] {
        let set = node.run(&format!("bucket set {V4} {words}")).ended(0).one();
        assert_eq!((&set["owned"], &set["changed"]), (&json!(owned), &json!(changed)), "{words}");
    }
}

#[test]
fn a_table_that_is_lost_is_made_again_by_the_same_init() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    for vip in [V4, V6] {
        let init = || {
            node.run(&format!("bucket init {vip} --dev eth0 --mac {MAC} --total 4 --local 1-4")).ended(0).one()["changed"]
                .clone()
        };
        assert_eq!((init(), init()), (json!(true), json!(false)));
        let tables = node.sh("nft list tables");
        assert!(tables.contains("table netdev"), "{tables}");
        for table in tables.lines() {
            node.sh(&format!("nft delete {table}"));
            assert_ne!(node.run(&format!("bucket check {vip}")).code, 0, "{table}");
            assert_eq!((init(), init()), (json!(true), json!(false)), "{table}");
            node.run(&format!("bucket check {vip}")).ended(0);
        }
        node.run(&format!("bucket clear {vip}")).ended(0);
    }
}

/// known-faults 20: two runs at once, and a run that is killed.
#[test]
fn runs_do_not_interleave_and_a_killed_one_leaves_whole_rules() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    cluster.init(V4, "--total 64", &["1"]);
    let mut runs: Vec<_> = (2..=9).map(|bucket| node.start(&format!("bucket set {V4} +{bucket}"))).collect();
    for run in &mut runs {
        assert_eq!(run.ends(Duration::from_secs(10)), 0, "{}", run.complaints());
    }
    assert_eq!(node.run(&format!("bucket show {V4}")).ended(0).one()["owned"], "1-9");
    for round in 0u32..12 {
        let run = node.start(&format!("bucket set {V4} =1-{}", 10 + round));
        std::thread::sleep(Duration::from_millis(u64::from(round) * 2));
        run.signal(Signal::SIGKILL);
        drop(run);
        // nft itself may still be at work: it ends by itself.
        node.run(&format!("bucket check {V4}")).ended(0);
    }
    let held = node.folder.join("state/lock");
    assert!(held.is_dir());
    let lock = node.sh(&format!("ls {} | grep {V4}", held.display()));
    let holder = node.start_shell(&format!("exec flock {}/{} sleep 3", held.display(), lock.trim()));
    eventually("the lock", Duration::from_secs(1), || {
        !node.try_sh(&format!("flock -n {}/{} true", held.display(), lock.trim())).0
    });
    let late = node.run(&format!("bucket set {V4} =1 --timeout 100ms")).ended(75);
    assert!(late.stderr.contains("another run holds it"), "{late:?}");
    drop(holder);
}

#[test]
fn missing_rights_and_missing_parts_have_their_own_answers() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    let mut nobody = std::process::Command::new("nsenter");
    nobody.arg(format!("--net=/run/netns/{}", node.ns)).args([
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ]);
    nobody.arg(support::binary("bucket")).args(["show", V4]);
    node.environment(&mut nobody);
    let run = support::Run::new("bucket show as nobody", nobody.output().unwrap()).ended(4);
    assert!(run.stderr.contains("CAP_NET_ADMIN"), "{run:?}");
    let mut bare = std::process::Command::new("unshare");
    bare.args(["--mount", "sh", "-c"]);
    bare.arg("mount --bind /dev/null /usr/sbin/nft && exec nsenter --net=\"$0\" \"$@\"");
    bare.arg(format!("/run/netns/{}", node.ns)).arg(support::binary("bucket")).args(["show", V4]);
    node.environment(&mut bare);
    let run = support::Run::new("bucket show without nft", bare.output().unwrap()).ended(5);
    assert!(run.stderr.contains("nftables"), "{run:?}");
    // An nft that cannot be run says nothing of the rules, whatever its words.
    let broken = node.folder.join("broken");
    std::fs::create_dir(&broken).unwrap();
    node.sh(&format!(
        "printf '#!/bin/sh\necho No such file or directory >&2; exit 127\n' >{0}/nft; chmod +x {0}/nft",
        broken.display()
    ));
    let mut path = broken.into_os_string();
    path.push(":/usr/sbin:/usr/bin:/sbin:/bin");
    let mut misled = node.command(&format!("bucket show {V4}"));
    misled.env("PATH", path);
    let run = support::Run::new("bucket show with a broken nft", misled.output().unwrap()).ended(71);
    assert!(run.stderr.contains("No such file or directory"), "{run:?}");
    // cron's PATH.
    let mut cron = node.command(&format!("bucket init {V4} --dev eth0 --total 2"));
    cron.env("PATH", "/usr/bin:/bin").env("LANG", "de_DE.UTF-8");
    support::Run::new("bucket init from cron", cron.output().unwrap()).ended(0);
}

/// known-faults 2: three answers.
#[test]
fn the_old_kernels_file_has_three_answers() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    let root = node.folder.join("proc");
    let show = format!("bucket show 192.0.2.7 --backend proc --proc-root {}", root.display());
    let none = node.run(&show).ended(5);
    std::fs::create_dir_all(root.join("net/ipt_CLUSTERIP")).unwrap();
    let never = node.run(&show).ended(5);
    assert_ne!(none.stderr, never.stderr);
    let file = root.join("net/ipt_CLUSTERIP/192.0.2.7");
    std::fs::write(&file, "").unwrap();
    assert_eq!(node.run(&show).ended(0).one()["owned"], "");
    std::fs::write(&file, "1,2\n").unwrap();
    assert_eq!(node.run(&show).ended(0).one()["owned"], "1-2");
    let set = |words: &str| {
        node.run(&format!("bucket set 192.0.2.7 {words} --backend proc --total 4 --proc-root {}", root.display()))
    };
    assert_eq!(set("+1").ended(0).one()["changed"], false);
    set("+5").ended(2);
    set("+0").ended(2);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1,2\n");
}

#[test]
fn a_rehearsal_needs_no_root() {
    let cluster = Cluster::new(1, 0);
    let node = &cluster.nodes[0];
    let run = |line: &str| node.run(&format!("{line} --backend file"));
    assert_eq!(run(&format!("bucket init {V4} --dev eth0 --total 8 --local 1-4")).ended(0).one()["changed"], true);
    assert_eq!(run(&format!("bucket set {V4} +5 --drain")).ended(0).one()["opening"], "5");
    assert_eq!(run(&format!("bucket show {V4}")).ended(0).one()["owned"], "1-5");
    assert_eq!(node.sh("nft list tables"), "");
    let file = node.folder.join(format!("state/bucket-n1-{V4}.json"));
    std::fs::write(&file, "").unwrap();
    let torn = run(&format!("bucket show {V4}")).ended(6);
    assert!(torn.stderr.contains("it is empty"), "{torn:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    run(&format!("bucket clear {V4}")).ended(6);
}
