//! The recipe cluster-ip on hosts of a lab, whole, and clients that nobody tells anything.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Host, Lab, binary};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const VIP: &str = "10.77.0.200";
pub(crate) const VIP6: &str = "fd77::200";
pub(crate) const PORT: u16 = 7000;
pub(crate) const CLIENTS: u16 = 64;

/// The recipe on one host.
pub(crate) struct Recipe {
    pub(crate) child: Child,
    pub(crate) log: PathBuf,
}

impl Recipe {
    pub(crate) fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal_all(&self, signal: Signal) {
        killpg(self.group(), signal).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process of the recipe that runs this command.
    pub(crate) fn process(&self, words: &str) -> Pid {
        let found = Command::new("pgrep").args(["-g", &self.group().to_string(), "-f", words]).output().unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        Pid::from_raw(text.lines().next().unwrap_or_else(|| panic!("no {words}: {}", self.log())).parse().unwrap())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn ends(&mut self, limit: Duration) -> Option<i32> {
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

pub(crate) struct Cluster {
    pub(crate) hosts: Vec<Host>,
    pub(crate) recipes: Vec<Recipe>,
    pub(crate) client: Host,
    pub(crate) config: PathBuf,
    pub(crate) lab: Lab,
}

impl Cluster {
    /// `count` hosts that all serve, and a client with many addresses.
    pub(crate) fn new(count: usize) -> Cluster {
        Cluster::with(count, |_, _| "fencing=none".to_owned())
    }

    /// The same with more settings, which may be made of the network and the client, whose folder is
    /// the cluster's.
    pub(crate) fn with(count: usize, more: impl Fn(&Lab, &Host) -> String) -> Cluster {
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

    pub(crate) fn start(&self, idx: usize) -> Recipe {
        self.start_by(idx, None)
    }

    /// Starts the recipe where the wall clock is as far off as the file says; all other clocks are right.
    pub(crate) fn start_by(&self, idx: usize, wall_clock: Option<&Path>) -> Recipe {
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
        if let Some(file) = wall_clock {
            step_clock_of(&mut command, file);
        }
        let child = command.spawn().unwrap();
        fs::write(host.folder.join("group"), child.id().to_string()).unwrap();
        Recipe { child, log }
    }

    pub(crate) fn logs(&self) -> String {
        self.recipes.iter().map(|recipe| recipe.log() + "\n----\n").collect()
    }

    /// Asks once from every client address by UDP: who answered whom, and how often in all.
    pub(crate) fn ask(&self, vip: &'static str) -> Answers {
        self.client.inside(move || ask(vip)).join().unwrap()
    }

    /// A client of each bucket, in the order of the buckets.
    fn client_of_each_bucket(&self, vip: &str) -> Vec<u16> {
        let clients: String = (1..=CLIENTS).map(|n| format!("{}\n", source(vip, n))).collect();
        let total = 4 * self.hosts.len();
        let told = self.client.run_with(&format!("hash-owner --total {total} --brief"), &clients).ended(0).stdout;
        let buckets: Vec<usize> = told.lines().map(|bucket| bucket.parse().unwrap()).collect();
        let first = |bucket| buckets.iter().position(|of| *of == bucket).expect("each bucket has a client");
        (1..=total).map(|bucket| u16::try_from(first(bucket) + 1).unwrap()).collect()
    }

    /// Waits until every client gets exactly one answer, and from these hosts alone.
    #[track_caller]
    pub(crate) fn settles(&self, limit: Duration, hosts: &[&str]) -> BTreeMap<u16, String> {
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
    pub(crate) fn connect(&self) -> Vec<Connection> {
        let opened = self.client.inside(|| (1..=CLIENTS).map(Connection::open).collect::<std::io::Result<_>>());
        opened.join().unwrap().unwrap_or_else(|error| panic!("a client is not served: {error}\n{}", self.logs()))
    }

    /// Power off: the kernel goes silent and every process is gone.
    pub(crate) fn kill_host(&self, idx: usize) {
        self.cut(idx);
        self.recipes[idx].signal_all(Signal::SIGKILL);
    }

    /// Joins a host's links to the switches, or parts them.
    pub(crate) fn links(&self, idx: usize, devs: &[&str], state: &str) {
        let name = &self.hosts[idx].name;
        let lines: Vec<String> = devs.iter().map(|dev| format!("ip link set {name}.{dev} {state}")).collect();
        self.lab.on_switch(&lines.join("; "));
    }

    /// Cuts the heartbeats between one host and the others, on both nets, and nothing else.
    pub(crate) fn cut_heartbeats(&self, idx: usize) {
        self.split(&[idx]);
    }

    /// Cuts the heartbeats between some hosts and the others, on both nets, and nothing else.
    pub(crate) fn split(&self, side: &[usize]) {
        let ports = |here: bool| {
            let hosts = self.hosts.iter().enumerate().filter(|(idx, _)| side.contains(idx) == here);
            let ports = hosts.flat_map(|(_, host)| ["eth0", "eth1"].map(|dev| format!("\"{}.{dev}\"", host.name)));
            format!("{{ {} }}", ports.collect::<Vec<_>>().join(", "))
        };
        let (here, there) = (ports(true), ports(false));
        self.lab.on_switch(&format!(
            "nft 'table bridge hb {{ chain c {{ type filter hook forward priority 0; \
             iifname {here} oifname {there} udp dport 6940 drop; iifname {there} oifname {here} udp dport 6940 drop; }}; }}'"
        ));
    }

    pub(crate) fn mend_heartbeats(&self) {
        self.lab.on_switch("nft delete table bridge hb");
    }

    /// Asks for so long; nobody is ever answered twice.
    #[track_caller]
    pub(crate) fn never_twice(&self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            for answers in [self.ask(VIP), self.ask(VIP6)] {
                assert!(answers.total <= usize::from(CLIENTS), "answered twice: {answers:?}\n{}", self.logs());
            }
        }
    }

    /// What a host answers for, in both families.
    pub(crate) fn owned(&self, idx: usize) -> [String; 2] {
        [VIP, VIP6].map(|vip| {
            let run = self.hosts[idx].run(&format!("bucket show {vip}"));
            run.records().first().map_or_else(String::new, |show| show["owned"].as_str().unwrap_or_default().to_owned())
        })
    }

    pub(crate) fn cut(&self, idx: usize) {
        self.links(idx, &["eth0", "eth1"], "down");
    }
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The first who answered each client.
    pub(crate) first: BTreeMap<u16, String>,
    pub(crate) total: usize,
}

impl Answers {
    pub(crate) fn is_exactly_one(&self, hosts: &[&str]) -> bool {
        let by: std::collections::BTreeSet<&str> = self.first.values().map(String::as_str).collect();
        self.total == usize::from(CLIENTS)
            && self.first.len() == self.total
            && by.iter().copied().eq(hosts.iter().copied())
    }
}

pub(crate) fn source(vip: &str, n: u16) -> IpAddr {
    if vip.contains(':') { format!("fd77::1:{n}").parse().unwrap() } else { format!("10.77.1.{n}").parse().unwrap() }
}

pub(crate) fn ask(vip: &str) -> Answers {
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
                answers.first.entry(n).or_insert_with(|| host_of(&buffer[..length]));
            }
        }
        std::thread::sleep(MS);
    }
    answers
}

/// Who sent an answer.
fn host_of(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..2]).into_owned()
}

/// Has a command and all that it starts see another wall clock: file holds the seconds, as in `+3600`.
pub(crate) fn step_clock_of(command: &mut Command, file: &Path) {
    command
        .env("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_TIMESTAMP_FILE", file);
}

/// A client for each bucket of both addresses that asks each 20 ms, until it is stopped.
pub(crate) struct Probes {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Log>>,
}

/// What the clients heard.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The longest time for which a client heard nothing, with its address.
    pub(crate) silence: (Duration, String),
    /// Each question that was answered more than once, and by whom.
    pub(crate) twice: Vec<String>,
}

impl Probes {
    pub(crate) fn start(cluster: &Cluster) -> Probes {
        let clients: Vec<(&str, u16)> = [VIP, VIP6]
            .into_iter()
            .flat_map(|vip| cluster.client_of_each_bucket(vip).into_iter().map(move |n| (vip, n)))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = cluster.client.inside(move || {
            let mut probes: Vec<Probe> = clients.into_iter().map(|(vip, n)| Probe::new(vip, n)).collect();
            let (mut log, mut due) = (Log::default(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                if Instant::now() >= due {
                    due += 20 * MS;
                    probes.iter_mut().for_each(Probe::ask);
                }
                for probe in &mut probes {
                    probe.hear(&mut log);
                }
                std::thread::sleep(MS);
            }
            for probe in &mut probes {
                probe.note(&mut log);
            }
            log
        });
        Probes { stop, thread: Some(thread) }
    }

    pub(crate) fn stop(mut self) -> Log {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Probe {
    client: IpAddr,
    socket: UdpSocket,
    last: Instant,
    /// Who answered each question so far.
    answered: Vec<Option<String>>,
}

impl Probe {
    fn new(vip: &str, n: u16) -> Probe {
        let client = source(vip, n);
        let socket = UdpSocket::bind(SocketAddr::new(client, 0)).unwrap();
        socket.connect(SocketAddr::new(vip.parse().unwrap(), PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Probe { client, socket, last: Instant::now(), answered: Vec::new() }
    }

    fn ask(&mut self) {
        let number = u32::try_from(self.answered.len()).unwrap();
        self.answered.push(None);
        // An error of an earlier question is told here.
        let _ = self.socket.send(&number.to_be_bytes());
    }

    fn hear(&mut self, log: &mut Log) {
        let mut buffer = [0; 64];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let host = host_of(&buffer[..length]);
            let number = usize::try_from(u32::from_be_bytes(buffer[2..6].try_into().unwrap())).unwrap();
            if let Some(other) = self.answered[number].replace(host.clone()) {
                log.twice.push(format!("{} was answered by {other} and by {host}", self.client));
            }
            self.note(log);
            self.last = Instant::now();
        }
    }

    fn note(&mut self, log: &mut Log) {
        if self.last.elapsed() > log.silence.0 {
            log.silence = (self.last.elapsed(), self.client.to_string());
        }
    }
}

/// A TCP connection to the shared address, and who serves it.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) host: String,
}

impl Connection {
    pub(crate) fn open(n: u16) -> std::io::Result<Connection> {
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
    pub(crate) fn listen(&mut self, limit: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.read_exact(&mut [0])
    }

    /// Sends a byte and waits for it to come back.
    pub(crate) fn echo(&mut self, limit: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.write_all(b"x")?;
        self.stream.read_exact(&mut [0])
    }
}

/// A service on all addresses of a host: tells its name, then what it was asked.
pub(crate) fn serve(host: &Host) {
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

pub(crate) fn answer_udp(socket: &UdpSocket, name: &str) {
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
        let (Some(info), Some(from), length) = (info, message.address, message.bytes) else { continue };
        let _ = sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(name.as_bytes()), IoSlice::new(&block[..length])],
            &[ControlMessage::Ipv6PacketInfo(&info)],
            MsgFlags::empty(),
            Some(&from),
        );
    }
}

/// Whether the long runs of `scripts/test --nightly` are asked for.
pub(crate) fn is_nightly() -> bool {
    std::env::var_os("FAILOVER_NIGHTLY").is_some()
}

/// A switch for hosts of a lab: kills what runs there and takes its links down. What it says is so.
pub(crate) fn power_switch(lab: &Lab, client: &Host) -> String {
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
