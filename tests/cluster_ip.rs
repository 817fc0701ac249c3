//! The recipe cluster-ip, whole: hosts fail, links fail, processes are killed, and clients that
//! nobody told go on being served.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod support;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use support::{Host, Lab, binary, eventually};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const VIP: &str = "10.77.0.200";
const VIP6: &str = "fd77::200";
const PORT: u16 = 7000;
const CLIENTS: u16 = 60;

/// The recipe on one host.
struct Recipe {
    child: Child,
    log: PathBuf,
}

impl Recipe {
    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn signal_all(&self, signal: Signal) {
        killpg(self.group(), signal).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process of the recipe that runs this command.
    fn process(&self, words: &str) -> Pid {
        let found = Command::new("pgrep").args(["-g", &self.group().to_string(), "-f", words]).output().unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        Pid::from_raw(text.lines().next().unwrap_or_else(|| panic!("no {words}: {}", self.log())).parse().unwrap())
    }

    fn ends(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the recipe did not end: {}", self.log());
            std::thread::sleep(10 * MS);
        }
    }
}

impl Drop for Recipe {
    fn drop(&mut self) {
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

struct Cluster {
    hosts: Vec<Host>,
    recipes: Vec<Recipe>,
    client: Host,
    config: PathBuf,
    lab: Lab,
}

impl Cluster {
    /// `count` hosts that all serve, and a client with many addresses.
    fn new(count: usize) -> Cluster {
        Cluster::with(count, |_, _| "fencing=none".to_owned())
    }

    /// The same with more settings, which may be made of the network and the client, whose folder is
    /// the cluster's.
    fn with(count: usize, more: impl Fn(&Lab, &Host) -> String) -> Cluster {
        let lab = Lab::new();
        lab.bridge("mgmt");
        let names: Vec<String> = (1..=count).map(|n| format!("n{n}")).collect();
        let hosts: Vec<Host> = names
            .iter()
            .enumerate()
            .map(|(idx, name)| {
                let host = lab.host(name, &[&format!("10.77.0.{}/16", idx + 1), &format!("fd77::{}/64", idx + 1)]);
                lab.plug(&host, "eth1", "mgmt", &[&format!("10.78.0.{}/24", idx + 1)]);
                serve(&host);
                host
            })
            .collect();
        let client = lab.host("client", &["10.77.9.9/16", "fd77::9:9/64"]);
        let addresses: String = (1..=CLIENTS)
            .flat_map(|n| {
                [format!("addr add 10.77.1.{n}/16 dev eth0\n"), format!("addr add fd77::1:{n}/64 dev eth0 nodad\n")]
            })
            .collect();
        let batch = client.folder.join("batch");
        fs::write(&batch, addresses).unwrap();
        client.sh(&format!("ip -batch {}", batch.display()));
        let key = client.folder.join("key");
        fs::write(&key, "ab".repeat(32)).unwrap();
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let nodes: Vec<String> = (1..=count).map(|n| format!("n{n}=10.77.0.{n},10.78.0.{n}")).collect();
        let total = 4 * count;
        let homes: Vec<String> = (0..count).map(|n| format!("n{}={}-{}", n + 1, 4 * n + 1, 4 * n + 4)).collect();
        let config = client.folder.join("cluster-ip.conf");
        fs::write(
            &config,
            format!(
                "vip={VIP}\nvip6={VIP6}\ndev=eth0\nmgmt_dev=eth1\nnodes='{}'\ntotal={total}\nhome='{}'\nkey={}\n\
                 interval=100ms\ndead_after=500ms\nlease=1s\ndrain_max=20s\nremember=yes\n{}\n",
                nodes.join(" "),
                homes.join(","),
                key.display(),
                more(&lab, &client)
            ),
        )
        .unwrap();
        fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let recipes = Vec::new();
        let mut cluster = Cluster { hosts, recipes, client, config, lab };
        for idx in 0..count {
            let recipe = cluster.start(idx);
            cluster.recipes.push(recipe);
        }
        cluster
    }

    fn start(&self, idx: usize) -> Recipe {
        let host = &self.hosts[idx];
        let log = host.folder.join("recipe.log");
        let script = format!("{}/scripts/recipes/cluster-ip", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", host.ns)).args(["sh", &script]).arg(&self.config);
        host.environment(&mut command);
        let folder = binary("bucket").parent().unwrap().to_owned();
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command
            .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()))
            .process_group(0)
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let child = command.spawn().unwrap();
        fs::write(host.folder.join("group"), child.id().to_string()).unwrap();
        Recipe { child, log }
    }

    fn logs(&self) -> String {
        self.recipes.iter().map(|recipe| recipe.log() + "\n----\n").collect()
    }

    /// Asks once from every client address by UDP: who answered whom, and how often in all.
    fn ask(&self, vip: &'static str) -> Answers {
        self.client.inside(move || ask(vip)).join().unwrap()
    }

    /// Waits until every client gets exactly one answer, and from these hosts alone.
    #[track_caller]
    fn settles(&self, limit: Duration, hosts: &[&str]) -> BTreeMap<u16, String> {
        let end = Instant::now() + limit;
        loop {
            let answers = [self.ask(VIP), self.ask(VIP6)];
            let right = answers.iter().all(|answers| answers.is_exactly_one(hosts));
            if right {
                let [answers, _] = answers;
                return answers.first;
            }
            assert!(Instant::now() < end, "not within {limit:?} by {hosts:?}: {answers:?}\n{}", self.logs());
        }
    }

    /// Opens one connection from each client address.
    fn connect(&self) -> Vec<Connection> {
        let opened = self.client.inside(|| (1..=CLIENTS).map(Connection::open).collect::<std::io::Result<_>>());
        opened.join().unwrap().unwrap_or_else(|error| panic!("a client is not served: {error}\n{}", self.logs()))
    }

    /// Power off: the kernel goes silent and every process is gone.
    fn kill_host(&self, idx: usize) {
        self.cut(idx);
        self.recipes[idx].signal_all(Signal::SIGKILL);
    }

    /// Cuts the heartbeats between one host and the others, on both nets, and nothing else.
    fn cut_heartbeats(&self, idx: usize) {
        let ports = format!("{{ \"{0}.eth0\", \"{0}.eth1\" }}", self.hosts[idx].name);
        self.lab.on_switch(&format!(
            "nft 'table bridge hb {{ chain c {{ type filter hook forward priority 0; \
             iifname {ports} ether type ip udp dport 6940 drop; oifname {ports} ether type ip udp dport 6940 drop; }}; }}'"
        ));
    }

    fn mend_heartbeats(&self) {
        self.lab.on_switch("nft delete table bridge hb");
    }

    /// Asks for so long; nobody is ever answered twice.
    #[track_caller]
    fn never_twice(&self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            for answers in [self.ask(VIP), self.ask(VIP6)] {
                assert!(answers.total <= usize::from(CLIENTS), "answered twice: {answers:?}\n{}", self.logs());
            }
        }
    }

    /// What a host answers for, in both families.
    fn owned(&self, idx: usize) -> [String; 2] {
        [VIP, VIP6].map(|vip| {
            let run = self.hosts[idx].run(&format!("bucket show {vip}"));
            run.records().first().map_or_else(String::new, |show| show["owned"].as_str().unwrap_or_default().to_owned())
        })
    }

    fn cut(&self, idx: usize) {
        let name = &self.hosts[idx].name;
        self.lab.on_switch(&format!("ip link set {name}.eth0 down; ip link set {name}.eth1 down"));
    }
}

#[derive(Debug, Default)]
struct Answers {
    /// The first who answered each client.
    first: BTreeMap<u16, String>,
    total: usize,
}

impl Answers {
    fn is_exactly_one(&self, hosts: &[&str]) -> bool {
        let by: std::collections::BTreeSet<&str> = self.first.values().map(String::as_str).collect();
        self.total == usize::from(CLIENTS)
            && self.first.len() == self.total
            && by.iter().copied().eq(hosts.iter().copied())
    }
}

fn source(vip: &str, n: u16) -> IpAddr {
    if vip.contains(':') { format!("fd77::1:{n}").parse().unwrap() } else { format!("10.77.1.{n}").parse().unwrap() }
}

fn ask(vip: &str) -> Answers {
    let to = SocketAddr::new(vip.parse().unwrap(), PORT);
    let sockets: Vec<UdpSocket> = (1..=CLIENTS)
        .map(|n| {
            let socket = UdpSocket::bind(SocketAddr::new(source(vip, n), 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    for socket in &sockets {
        let _ = socket.send_to(b"?", to);
    }
    let mut answers = Answers::default();
    let end = Instant::now() + 120 * MS;
    let mut buffer = [0; 64];
    while Instant::now() < end {
        for (n, socket) in (1..).zip(&sockets) {
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                assert_eq!(from, to, "answers come from the shared address");
                answers.total += 1;
                answers.first.entry(n).or_insert_with(|| String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
        }
        std::thread::sleep(MS);
    }
    answers
}

/// The longest time that a client of `host` in each family heard nothing while `what` happened: one
/// datagram each 10 ms from each address, answers counted.
fn silence(cluster: &Cluster, host: &str, what: impl FnOnce()) -> [Duration; 2] {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let clients: Vec<(&str, u16)> = [VIP, VIP6]
        .into_iter()
        .flat_map(|vip| cluster.ask(vip).first.into_iter().map(move |(n, by)| (vip, n, by)))
        .filter(|(.., by)| by == host)
        .map(|(vip, n, _)| (vip, n))
        .collect();
    assert!([VIP, VIP6].iter().all(|vip| clients.iter().any(|(of, _)| of == vip)), "{clients:?}");
    let thread = cluster.client.inside(move || {
        let sockets: Vec<UdpSocket> = clients
            .iter()
            .map(|(vip, n)| {
                let socket = UdpSocket::bind(SocketAddr::new(source(vip, *n), 0)).unwrap();
                socket.connect(SocketAddr::new(vip.parse().unwrap(), PORT)).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            })
            .collect();
        let mut last = vec![Instant::now(); sockets.len()];
        let mut longest = vec![Duration::ZERO; sockets.len()];
        let mut due = Instant::now();
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            if Instant::now() >= due {
                due += 10 * MS;
                for socket in &sockets {
                    let _ = socket.send(b"?");
                }
            }
            for ((socket, last), longest) in sockets.iter().zip(&mut last).zip(&mut longest) {
                while socket.recv(&mut [0; 64]).is_ok() {
                    *longest = (*longest).max(last.elapsed());
                    *last = Instant::now();
                }
            }
            std::thread::sleep(MS);
        }
        [VIP, VIP6].map(|vip| {
            let all = clients.iter().zip(last.iter().zip(&longest)).filter(|((of, _), _)| *of == vip);
            all.map(|(_, (last, longest))| last.elapsed().max(*longest)).max().unwrap()
        })
    });
    std::thread::sleep(300 * MS);
    what();
    std::thread::sleep(4 * SECOND);
    stop.send(()).unwrap();
    thread.join().unwrap()
}

/// A TCP connection to the shared address, and who serves it.
struct Connection {
    stream: TcpStream,
    host: String,
}

impl Connection {
    fn open(n: u16) -> std::io::Result<Connection> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(source(VIP, n), 0).into())?;
        socket.connect_timeout(&SocketAddr::new(VIP.parse().unwrap(), PORT).into(), 5 * SECOND)?;
        let mut stream: TcpStream = socket.into();
        stream.set_read_timeout(Some(5 * SECOND))?;
        let mut name = [0; 2];
        stream.read_exact(&mut name)?;
        Ok(Connection { stream, host: String::from_utf8_lossy(&name).into_owned() })
    }

    /// Says nothing, and waits.
    fn listen(&mut self, limit: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.read_exact(&mut [0])
    }

    /// Sends a byte and waits for it to come back.
    fn echo(&mut self, limit: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.write_all(b"x")?;
        self.stream.read_exact(&mut [0])
    }
}

/// A service on all addresses of a host: tells its name, echoes what comes.
fn serve(host: &Host) {
    let name = host.name.clone();
    host.inside(move || {
        let udp = UdpSocket::bind(("::", PORT)).unwrap();
        let tcp = TcpListener::bind(("::", PORT)).unwrap();
        let said = name.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let said = said.clone();
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let mut block = [0; 64];
                    let _ = stream.write_all(said.as_bytes());
                    while let Ok(length @ 1..) = stream.read(&mut block) {
                        if stream.write_all(&block[..length]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        // Answers leave from the address that was asked.
        nix::sys::socket::setsockopt(&udp, nix::sys::socket::sockopt::Ipv6RecvPacketInfo, &true).unwrap();
        answer_udp(&udp, &name);
    });
}

fn answer_udp(socket: &UdpSocket, name: &str) {
    use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg};
    use std::io::{IoSlice, IoSliceMut};
    use std::os::fd::AsRawFd;
    let mut block = [0; 64];
    loop {
        let mut space = nix::cmsg_space!(libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(&mut block)];
        let Ok(message) = recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())
        else {
            return;
        };
        let mut info = None;
        for control in message.cmsgs().unwrap() {
            if let ControlMessageOwned::Ipv6PacketInfo(packet) = control {
                info = Some(libc::in6_pktinfo { ipi6_addr: packet.ipi6_addr, ipi6_ifindex: 0 });
            }
        }
        let (Some(info), Some(from)) = (info, message.address) else { continue };
        let _ = sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(name.as_bytes())],
            &[ControlMessage::Ipv6PacketInfo(&info)],
            MsgFlags::empty(),
            Some(&from),
        );
    }
}

#[test]
fn three_hosts_share_the_clients_and_survive_a_killed_one() {
    let mut cluster = Cluster::new(3);
    let before = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    assert!(cluster.recipes[0].log().contains("no quorum: a split will serve twice"));
    // The long form kills each host seventeen times.
    let rounds = if is_nightly() { 51 } else { 3 };
    for idx in (0..3).cycle().take(rounds) {
        let mut connections = cluster.connect();
        let name = cluster.hosts[idx].name.clone();
        let others: Vec<&str> = ["n1", "n2", "n3"].into_iter().filter(|other| *other != name).collect();
        cluster.kill_host(idx);
        let started = Instant::now();
        let after = cluster.settles(5 * SECOND, &others);
        eprintln!("{name} killed: served by {others:?} after {:?}", started.elapsed());
        for (client, host) in &before {
            assert!(*host == name || after[client] == *host, "client {client} of a living host moved");
        }
        for connection in &mut connections {
            if connection.host == name {
                let outcome = connection.listen(2 * SECOND);
                assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset, "who only waits is woken");
            } else {
                connection.echo(2 * SECOND).unwrap();
            }
        }
        cluster.lab.on_switch(&format!("ip link set {name}.eth0 up; ip link set {name}.eth1 up"));
        cluster.recipes[idx] = cluster.start(idx);
        let back = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
        assert_eq!(back, before, "everybody is at home again");
    }
}

#[test]
fn a_planned_leave_loses_no_connection() {
    let mut cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let mut connections = cluster.connect();
    let group = cluster.recipes[1].group();
    nix::sys::signal::kill(group, Signal::SIGTERM).unwrap();
    // New clients go elsewhere; the open connections of n2 stay on it.
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    for _ in 0..5 {
        for connection in &mut connections {
            connection
                .echo(2 * SECOND)
                .unwrap_or_else(|error| panic!("{} lost: {error}\n{}", connection.host, cluster.logs()));
        }
        std::thread::sleep(100 * MS);
    }
    assert!(connections.iter().any(|connection| connection.host == "n2"));
    drop(connections);
    assert_eq!(cluster.recipes[1].ends(10 * SECOND), Some(0));
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    assert!(!cluster.hosts[1].sh("ip addr").contains(VIP), "nothing is left behind");
    assert!(!cluster.hosts[1].sh("nft list tables").contains("failover"));
}

#[test]
fn the_loss_of_one_link_of_two_moves_nothing() {
    let cluster = Cluster::new(3);
    let before = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let mut connections = cluster.connect();
    cluster.lab.on_switch("ip link set n2.eth1 down");
    std::thread::sleep(1500 * MS);
    assert_eq!(cluster.settles(5 * SECOND, &["n1", "n2", "n3"]), before);
    for connection in &mut connections {
        connection.echo(2 * SECOND).unwrap();
    }
}

/// Whether the long runs of `scripts/test --nightly` are asked for.
fn is_nightly() -> bool {
    std::env::var_os("FAILOVER_NIGHTLY").is_some()
}

/// The LAN of a living node fails: it gives up, and its clients are reset and served elsewhere.
fn lan_fails(how: &str, back: &str, detection: Duration) {
    let cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let mut connections = cluster.connect();
    let silence = silence(&cluster, "n2", || drop(cluster.lab.on_switch(how)));
    eprintln!("{how}: silent for {silence:?}, detection {detection:?}");
    // 100 ms beyond the detection is the aim, and held by the nightly run, which runs this alone; two
    // cores carry three hosts and other tests here. The probes' distance and the command that breaks
    // the LAN are in it.
    let bar = if is_nightly() { 100 * MS } else { SECOND };
    assert!(silence.iter().all(|silence| *silence < detection + bar), "{silence:?}\n{}", cluster.logs());
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    for connection in connections.iter_mut().filter(|connection| connection.host == "n2") {
        assert_eq!(connection.echo(2 * SECOND).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    cluster.lab.on_switch(back);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
}

#[test]
fn a_node_whose_lan_is_unplugged_gives_up() {
    lan_fails("ip link set n2.eth0 down", "ip link set n2.eth0 up", Duration::ZERO);
}

#[test]
fn a_node_whose_lan_sends_nothing_gives_up() {
    lan_fails(
        "nft 'table bridge t { chain c { type filter hook prerouting priority 0; iifname \"n2.eth0\" drop; }; }'",
        "nft delete table bridge t",
        500 * MS,
    );
}

#[test]
fn a_node_whose_lan_hears_nothing_gives_up() {
    lan_fails(
        "nft 'table bridge t { chain c { type filter hook postrouting priority 0; oifname \"n2.eth0\" drop; }; }'",
        "nft delete table bridge t",
        500 * MS,
    );
}

#[test]
fn a_frozen_host_answers_nothing_from_the_take_over_on() {
    let cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    cluster.recipes[1].signal_all(Signal::SIGSTOP);
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    // From now on not one packet of the frozen host's kernel: its MAC is counted at the client.
    cluster.client.sh("nft 'table netdev t { chain c { type filter hook ingress device eth0 priority 0; \
         ether saddr 02:00:00:00:00:02 ip saddr 10.77.0.200 counter comment \"v4\"; \
         ether saddr 02:00:00:00:00:02 ip6 saddr fd77::200 ip6 nexthdr != icmpv6 counter comment \"v6\"; }; }'");
    let end = Instant::now() + 3 * SECOND;
    while Instant::now() < end {
        for answers in [cluster.ask(VIP), cluster.ask(VIP6)] {
            assert!(answers.is_exactly_one(&["n1", "n3"]), "{answers:?}");
        }
    }
    let counted = |client: &Host| client.sh("nft list table netdev t").matches("packets 0 bytes 0").count();
    assert_eq!(counted(&cluster.client), 2, "{}", cluster.client.sh("nft list table netdev t"));
    cluster.recipes[1].signal_all(Signal::SIGCONT);
    // Thawed, it may answer only after it asked again; never twice.
    let end = Instant::now() + 3 * SECOND;
    while Instant::now() < end {
        let answers = cluster.ask(VIP);
        assert!(answers.total <= usize::from(CLIENTS), "answered twice: {answers:?}\n{}", cluster.logs());
    }
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
}

#[test]
fn the_death_of_any_process_of_the_recipe_leaves_one_owner() {
    for words in [
        "heartbeat recv",
        "heartbeat send",
        "bucket plan 10.77",
        "bucket apply 10.77",
        "bucket watch",
        "bucket apply fd77",
        "^tee",
    ] {
        let mut cluster = Cluster::new(3);
        cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
        nix::sys::signal::kill(cluster.recipes[1].process(words), Signal::SIGKILL).unwrap();
        cluster.settles(5 * SECOND, &["n1", "n3"]);
        assert_eq!(cluster.recipes[1].ends(5 * SECOND), Some(71), "{words}");
        cluster.recipes[1] = cluster.start(1);
        cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    }
}

#[test]
fn the_death_of_the_supervisor_ends_everything_it_started() {
    let mut cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    nix::sys::signal::kill(cluster.recipes[1].group(), Signal::SIGKILL).unwrap();
    cluster.recipes[1].ends(SECOND);
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    eventually("nothing runs on", 5 * SECOND, || {
        let found = Command::new("pgrep").args(["-g", &cluster.recipes[1].group().to_string()]).output().unwrap();
        found.stdout.is_empty()
    });
}

#[test]
fn two_hosts_take_over_from_each_other() {
    let mut cluster = Cluster::new(2);
    cluster.settles(10 * SECOND, &["n1", "n2"]);
    for (idx, other) in [(0, "n2"), (1, "n1")] {
        cluster.kill_host(idx);
        cluster.settles(5 * SECOND, &[other]);
        let name = cluster.hosts[idx].name.clone();
        cluster.lab.on_switch(&format!("ip link set {name}.eth0 up; ip link set {name}.eth1 up"));
        cluster.recipes[idx] = cluster.start(idx);
        cluster.settles(10 * SECOND, &["n1", "n2"]);
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_its_reason() {
    let cluster = Cluster::new(2);
    let script = format!("{}/scripts/recipes/cluster-ip", env!("CARGO_MANIFEST_DIR"));
    let good = fs::read_to_string(&cluster.config).unwrap();
    let wrong = cluster.client.folder.join("wrong.conf");
    let run = |text: &str, mode: u32| {
        fs::write(&wrong, text).unwrap();
        fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let host = &cluster.hosts[0];
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", host.ns)).args(["sh", &script, "--check"]).arg(&wrong);
        host.environment(&mut command);
        let folder = binary("bucket").parent().unwrap().to_owned();
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()));
        support::Run::new("cluster-ip --check", command.output().unwrap())
    };
    let checked = run(&good, 0o644);
    assert_eq!((checked.code, checked.stdout.as_str()), (0, ""), "{checked:?}");
    for (text, mode, why) in [
        (good.clone(), 0o646, "not be writable by others"),
        (good.replace("dead_after", "dead_affter"), 0o644, "not a setting: dead_affter"),
        (good.clone() + "rm -rf /nonexistent\n", 0o644, "not a setting: rm -rf /nonexistent"),
        (good.replace("total=8", "total=$(touch /nonexistent)"), 0o644, "not a plain value: total="),
        (good.replace("nodes='", "nodes='n9 "), 0o644, "node n9 has no home"),
        (good.replace('\n', "\r\n"), 0o644, "not a"),
        (good.replace("drain_max=20s", "drain_max=-3"), 0o644, "not a duration"),
        (good.replace("n1=10.77.0.1,", "n1=10.77.0.77,"), 0o644, "is not on eth0"),
        (good.replace("total=8", "total="), 0o644, "it has no total"),
        (good.replace("n1=", "n9="), 0o644, "n1, is not among its nodes"),
        (good.replace("lease=1s", "lease=4"), 0o644, "a unit is needed"),
        (good.replace("n2=5-8", "n2=5-9"), 0o644, "bucket"),
        (good.clone() + "quorum=maybe\n", 0o644, "quorum is yes or no"),
        (good.clone() + "quorum=yes\n", 0o644, "half is no majority"),
        (good.clone() + "veto=10.77.9.9\n", 0o644, "a veto needs quorum"),
        (good.clone() + "fencing=fence_dummy\n", 0o644, "needs quorum=yes"),
        (good.clone() + "quorum=yes\nfencing=fence_dummy\nfence_options=/nonexistent\n", 0o644, "fence_dummy-n2"),
    ] {
        let refused = run(&text, mode);
        assert_eq!(refused.code, 6, "{why}: {refused:?}");
        assert!(refused.stderr.contains(why), "{why}: {refused:?}");
    }
}

#[test]
fn the_last_node_after_planned_leaves_serves_all() {
    let mut cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    for (idx, left) in [(0, &["n2", "n3"][..]), (1, &["n3"])] {
        nix::sys::signal::kill(cluster.recipes[idx].group(), Signal::SIGTERM).unwrap();
        assert_eq!(cluster.recipes[idx].ends(10 * SECOND), Some(0));
        cluster.settles(5 * SECOND, left);
    }
    // Beyond dead_after + lease + 150 ms, when it would give up: that nothing happens has no event.
    std::thread::sleep(2 * SECOND);
    cluster.settles(SECOND, &["n3"]);
    // One that comes back while another stays away gets its share, though it never heard that one.
    cluster.recipes[1] = cluster.start(1);
    cluster.settles(10 * SECOND, &["n2", "n3"]);
}

#[test]
fn a_second_start_is_refused_and_the_first_goes_on() {
    let cluster = Cluster::new(3);
    let before = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let mut second = cluster.start(0);
    assert_eq!(second.ends(10 * SECOND), Some(75));
    assert!(cluster.recipes[0].log().contains("it runs already"));
    assert_eq!(cluster.settles(2 * SECOND, &["n1", "n2", "n3"]), before);
}

#[test]
fn a_frozen_applier_is_taken_over_from_though_its_node_beats_on() {
    let cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    for words in ["bucket apply 10.77", "bucket apply fd77"] {
        nix::sys::signal::kill(cluster.recipes[1].process(words), Signal::SIGSTOP).unwrap();
    }
    cluster.settles(6 * SECOND, &["n1", "n3"]);
    for words in ["bucket apply 10.77", "bucket apply fd77"] {
        nix::sys::signal::kill(cluster.recipes[1].process(words), Signal::SIGCONT).unwrap();
    }
    let end = Instant::now() + 3 * SECOND;
    while Instant::now() < end {
        let answers = cluster.ask(VIP);
        assert!(answers.total <= usize::from(CLIENTS), "answered twice: {answers:?}\n{}", cluster.logs());
    }
}

#[test]
fn a_cluster_ip_cleared_by_hand_ends_the_recipe() {
    let mut cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    cluster.hosts[1].run(&format!("bucket clear {VIP}")).ended(0);
    assert_eq!(cluster.recipes[1].ends(10 * SECOND), Some(71));
    cluster.settles(5 * SECOND, &["n1", "n3"]);
}

#[test]
fn the_smaller_side_of_a_split_gives_up_and_the_larger_takes() {
    let cluster = Cluster::with(3, |_, _| "quorum=yes\nfencing=none".to_owned());
    let before = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    assert!(!cluster.recipes[0].log().contains("no quorum"), "{}", cluster.recipes[0].log());
    for idx in [2, 0] {
        let name = cluster.hosts[idx].name.clone();
        let others: Vec<&str> = ["n1", "n2", "n3"].into_iter().filter(|other| *other != name).collect();
        cluster.cut_heartbeats(idx);
        let started = Instant::now();
        // Its kernel is told before the others' take-after: dead_after, and what a loaded machine adds.
        eventually("the smaller side has given up", 3 * SECOND, || cluster.owned(idx).iter().all(String::is_empty));
        eprintln!("{name} alone: gave up after {:?}", started.elapsed());
        let taken = cluster.owned((idx + 1) % 3);
        cluster.never_twice(SECOND);
        cluster.settles(5 * SECOND, &others);
        eprintln!("{name} alone: the others serve all after {:?}, had {taken:?} when it gave up", started.elapsed());
        assert!(cluster.owned(idx).iter().all(String::is_empty));
        cluster.mend_heartbeats();
        cluster.never_twice(SECOND);
        assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2", "n3"]), before, "one owner each, at home");
    }
}

/// A switch for hosts of a lab: kills what runs there and takes its links down. What it says is so.
fn power_switch(lab: &Lab, client: &Host) -> String {
    let folder = client.folder.parent().unwrap();
    let agent = client.folder.join("fence_lab");
    let script = format!(
        "#!/bin/sh\nwhile IFS='=' read -r key value; do case $key in action) action=$value ;; port) node=$value ;; esac; done\n\
         switch() {{ nsenter --net=/run/netns/{switch} ip link $*; }}\n\
         group=$(cat {folder}/$node/group)\n\
         if [ $action = off ] && [ ! -e {own}/stuck ]; then\n\
         echo $FAILOVER_NODE shoots $node >>{own}/shots\n\
         kill -KILL -$group; switch set $node.eth0 down; switch set $node.eth1 down; fi\n\
         [ $action = status ] || exit 0\n\
         pgrep -g $group -r R,S,D,T >/dev/null && exit 0\n\
         switch show $node.eth0 | grep -q 'state DOWN' && exit 2\nexit 0\n",
        switch = lab.switch(),
        folder = folder.display(),
        own = client.folder.display()
    );
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["n1", "n2"] {
        let options = client.folder.join(format!("fence_lab-{name}"));
        fs::write(&options, "# nothing\n").unwrap();
        fs::set_permissions(&options, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    format!("quorum=yes\nfencing={}\nfence_options={}", agent.display(), client.folder.display())
}

#[test]
fn two_hosts_that_lose_each_other_settle_it_by_fencing() {
    let mut cluster = Cluster::with(2, power_switch);
    cluster.settles(10 * SECOND, &["n1", "n2"]);
    // Since the last look; it may take the agent two tries until all has ended.
    let shots = |cluster: &Cluster| {
        let path = cluster.client.folder.join("shots");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    // One that is dead is shot, and its share taken on the proof; the other keeps what it had.
    // Its processes first: with its links gone it would say that it serves nobody.
    cluster.recipes[1].signal_all(Signal::SIGKILL);
    cluster.cut(1);
    cluster.settles(10 * SECOND, &["n1"]);
    assert!(shots(&cluster).iter().eq(["n1 shoots n2"]), "its share was taken without one");
    cluster.lab.on_switch("ip link set n2.eth0 up; ip link set n2.eth1 up");
    cluster.recipes[1] = cluster.start(1);
    cluster.settles(10 * SECOND, &["n1", "n2"]);
    // Both live, reach their clients and the switch, and do not hear each other: one owner.
    cluster.cut_heartbeats(1);
    cluster.never_twice(2 * SECOND);
    cluster.settles(10 * SECOND, &["n1"]);
    assert!(shots(&cluster).iter().eq(["n1 shoots n2"]), "the winner of the tie, and it alone");
    cluster.mend_heartbeats();
    cluster.lab.on_switch("ip link set n2.eth0 up; ip link set n2.eth1 up");
    cluster.recipes[1] = cluster.start(1);
    cluster.settles(10 * SECOND, &["n1", "n2"]);
}

#[test]
fn one_of_two_that_says_goodbye_is_not_shot() {
    let mut cluster = Cluster::with(2, power_switch);
    cluster.settles(10 * SECOND, &["n1", "n2"]);
    nix::sys::signal::kill(cluster.recipes[0].group(), Signal::SIGTERM).unwrap();
    assert_eq!(cluster.recipes[0].ends(10 * SECOND), Some(0));
    cluster.settles(5 * SECOND, &["n2"]);
    // That nothing happens has no event: beyond the delay of the loser of a tie.
    std::thread::sleep(6 * SECOND);
    assert!(!cluster.client.folder.join("shots").exists());
    cluster.recipes[0] = cluster.start(0);
    cluster.settles(10 * SECOND, &["n1", "n2"]);
    // A recipe that fails gives everything up first, then says so.
    nix::sys::signal::kill(cluster.recipes[1].process("bucket plan 10.77"), Signal::SIGKILL).unwrap();
    assert_eq!(cluster.recipes[1].ends(10 * SECOND), Some(71), "{}", cluster.logs());
    cluster.settles(5 * SECOND, &["n1"]);
    std::thread::sleep(SECOND);
    assert!(!cluster.client.folder.join("shots").exists(), "{}", cluster.logs());
}

#[test]
fn without_a_proof_nothing_moves() {
    let cluster = Cluster::with(2, power_switch);
    let before = cluster.settles(10 * SECOND, &["n1", "n2"]);
    let stuck = cluster.client.folder.join("stuck");
    fs::write(&stuck, "").unwrap();
    cluster.cut_heartbeats(1);
    let end = Instant::now() + 4 * SECOND;
    while Instant::now() < end {
        for answers in [cluster.ask(VIP), cluster.ask(VIP6)] {
            assert!(answers.is_exactly_one(&["n1", "n2"]), "{answers:?}\n{}", cluster.logs());
        }
    }
    assert_eq!(cluster.ask(VIP).first, before, "each keeps its own");
    cluster.mend_heartbeats();
    cluster.settles(5 * SECOND, &["n1", "n2"]);
    std::thread::sleep(3 * SECOND);
    assert!(!cluster.client.folder.join("shots").exists(), "who is back in time is not shot");
    assert_eq!(cluster.settles(5 * SECOND, &["n1", "n2"]), before);
}

#[test]
fn a_side_that_does_not_reach_the_gateway_gives_up() {
    let cluster = Cluster::with(2, |lab, client| {
        // What health ping prints each second, by a real ping of a gateway that is the client.
        let command = client.folder.join("veto");
        let script = "#!/bin/sh\nwhile :; do if ping -c 1 -W 1 -I eth0 10.77.9.9 >/dev/null 2>&1; then s=up; else s=down; fi\n\
            echo \"{\\\"kind\\\":\\\"health.ping\\\",\\\"host\\\":\\\"$FAILOVER_NODE\\\",\\\"subject\\\":\\\"10.77.9.9\\\",\\\"status\\\":\\\"$s\\\",\\\"valid_for_ms\\\":5000}\"\nsleep 0.2; done\n";
        fs::write(&command, script).unwrap();
        fs::set_permissions(&command, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        format!("{}\nveto=10.77.9.9\nveto_command={}", power_switch(lab, client), command.display())
    });
    let before = cluster.settles(10 * SECOND, &["n1", "n2"]);
    cluster.lab.on_switch(
        "nft 'table bridge gw { chain c { type filter hook forward priority 0; \
         iifname \"n2.eth0\" ether type ip icmp type echo-request drop; }; }'",
    );
    cluster.settles(10 * SECOND, &["n1"]);
    assert!(!cluster.client.folder.join("shots").exists(), "n2 says itself that it serves nobody");
    cluster.lab.on_switch("nft delete table bridge gw");
    assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2"]), before);
}
