//! Hosts on one machine: network namespaces on a bridge, made by each test and removed after it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod cluster;
pub(crate) mod dns;
pub(crate) mod etcd;
pub(crate) mod gap;
pub(crate) mod gateways;
pub(crate) mod iscsi;
pub(crate) mod pacemaker;
pub(crate) mod scene;

use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The path of one of our binaries, beside the test that asks.
pub(crate) fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let path = folder.join(name);
    assert!(path.exists(), "{} is not built", path.display());
    path
}

/// A network of hosts on one bridge. All of it goes when this does, also after a failure.
pub(crate) struct Lab {
    prefix: String,
    folder: PathBuf,
    next: AtomicU32,
}

static LABS: AtomicU32 = AtomicU32::new(0);

impl Default for Lab {
    fn default() -> Self {
        Lab::new()
    }
}

impl Lab {
    /// An empty network; its bridge is called `lan` and does not snoop.
    pub(crate) fn new() -> Lab {
        Lab::called(&format!("fu{}", std::process::id()))
    }

    /// The same with namespaces whose names begin so.
    pub(crate) fn called(prefix: &str) -> Lab {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces and needs root");
        let prefix = format!("{prefix}-{}", LABS.fetch_add(1, Ordering::Relaxed));
        // In memory, as /run is: a state file is synced each time that it is replaced.
        let folder = Path::new("/dev/shm").join(&prefix);
        fs::create_dir_all(&folder).unwrap();
        let lab = Lab { prefix, folder, next: AtomicU32::new(1) };
        ip(&format!("netns add {}", lab.switch()));
        lab.on_switch("ip link set lo up");
        lab.bridge("lan");
        lab
    }

    /// The name of the namespace where the bridges are.
    pub(crate) fn switch(&self) -> String {
        format!("{}-sw", self.prefix)
    }

    /// Runs a shell line where the bridges are.
    pub(crate) fn on_switch(&self, line: &str) -> String {
        shell(&self.switch(), line)
    }

    /// One more bridge.
    pub(crate) fn bridge(&self, name: &str) {
        self.on_switch(&format!("ip link add {name} type bridge mcast_snooping 0 && ip link set {name} up"));
    }

    /// A host with an interface `eth0` on the bridge `lan`, and these addresses on it.
    ///
    /// Its MAC is 02:00:00:00:00:NN, with NN counted from 1.
    pub(crate) fn host(&self, name: &str, addresses: &[&str]) -> Host {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let host = Host {
            name: name.to_owned(),
            ns: format!("{}-{name}", self.prefix),
            folder: self.folder.join(name),
            number,
        };
        ip(&format!("netns add {}", host.ns));
        fs::create_dir_all(host.folder.join("state")).unwrap();
        host.sh("ip link set lo up");
        self.plug(&host, "eth0", "lan", addresses);
        host
    }

    /// Joins `host` to a bridge by an interface `dev`; the bridge's port is called `HOST.DEV`.
    pub(crate) fn plug(&self, host: &Host, dev: &str, bridge: &str, addresses: &[&str]) {
        let port = format!("{}.{dev}", host.name);
        let third = if dev == "eth0" { 0 } else { dev.bytes().last().unwrap_or(0) };
        let mac = format!("02:00:00:{third:02x}:00:{:02x}", host.number);
        self.on_switch(&format!(
            "ip link add {port} type veth peer name {dev} netns {} addr {mac} && ip link set {port} master {bridge} up",
            host.ns
        ));
        host.sh(&format!("sysctl -qw net.ipv6.conf.{dev}.accept_dad=0; ip link set {dev} up"));
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            host.sh(&format!("ip addr add {address} dev {dev} {nodad}"));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let list = Command::new("ip").args(["netns", "list"]).output().unwrap();
        for line in String::from_utf8_lossy(&list.stdout).lines() {
            let name = line.split_whitespace().next().unwrap_or_default();
            if name.starts_with(&format!("{}-", self.prefix)) {
                let _ = Command::new("ip").args(["netns", "del", name]).status();
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One host: a network namespace with a state folder of its own.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) ns: String,
    pub(crate) folder: PathBuf,
    pub(crate) number: u32,
}

impl Host {
    /// Runs a shell line here; it must succeed.
    pub(crate) fn sh(&self, line: &str) -> String {
        shell(&self.ns, line)
    }

    /// Runs a shell line here; says whether it succeeded, and all that it said.
    pub(crate) fn try_sh(&self, line: &str) -> (bool, String) {
        try_shell(&self.ns, line)
    }

    /// Runs one of our commands to its end: `host.run("vip show --mine")`.
    pub(crate) fn run(&self, line: &str) -> Run {
        self.run_with(line, "")
    }

    /// The same with something on standard input.
    pub(crate) fn run_with(&self, line: &str, input: &str) -> Run {
        let mut command = self.command(line);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let feeder = child.stdin.take().map(|mut stdin| {
            let input = input.to_owned();
            std::thread::spawn(move || stdin.write_all(input.as_bytes()))
        });
        let output = child.wait_with_output().unwrap();
        if let Some(feeder) = feeder {
            let _ = feeder.join();
        }
        Run::new(line, output)
    }

    /// Starts one of our commands; it is killed when the handle goes.
    pub(crate) fn start(&self, line: &str) -> Running {
        self.start_with(line, Stdio::null())
    }

    /// The same with a pipe for standard input: see [`Running::feed`].
    pub(crate) fn start_fed(&self, line: &str) -> Running {
        self.start_with(line, Stdio::piped())
    }

    fn start_with(&self, line: &str, stdin: Stdio) -> Running {
        let out = self.folder.join(format!("out-{}", LABS.fetch_add(1, Ordering::Relaxed)));
        let err = out.with_extension("err");
        let mut command = self.command(line);
        command.stdin(stdin).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Running { child: command.spawn().unwrap(), out, err, line: line.to_owned() }
    }

    /// Starts a shell line here; it is killed when the handle goes.
    pub(crate) fn start_shell(&self, line: &str) -> Running {
        let out = self.folder.join(format!("out-{}", LABS.fetch_add(1, Ordering::Relaxed)));
        let err = out.with_extension("err");
        let child = Command::new("nsenter")
            .args([&format!("--net=/run/netns/{}", self.ns), "sh", "-c", line])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        Running { child, out, err, line: line.to_owned() }
    }

    /// One of our commands, ready to run here.
    pub(crate) fn command(&self, line: &str) -> Command {
        let name = line.split_whitespace().next().unwrap();
        self.command_of(binary(name).parent().unwrap(), line)
    }

    /// The same of the binaries in a folder.
    pub(crate) fn command_of(&self, binaries: &Path, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.ns)).arg(binaries.join(name)).args(words);
        self.environment(&mut command);
        command
    }

    /// What makes this host another machine than the test's own.
    pub(crate) fn environment(&self, command: &mut Command) {
        command
            .env("FAILOVER_NODE", &self.name)
            .env("FAILOVER_STATE_DIR", self.folder.join("state"))
            .env("FAILOVER_LIB_DIR", self.folder.join("lib"));
    }

    /// Runs `what` in a thread that lives in this host's network.
    pub(crate) fn inside<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.ns);
        std::thread::spawn(move || {
            let ns = File::open(&path).unwrap();
            nix::sched::setns(&ns, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            what()
        })
    }
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) line: String,
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn new(line: &str, output: Output) -> Run {
        Run {
            line: line.to_owned(),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its records, each held against the schema of its kind.
    pub(crate) fn records(&self) -> Vec<Value> {
        records(&self.stdout)
    }

    /// Its only record.
    pub(crate) fn one(&self) -> Value {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{self:?}");
        records.remove(0)
    }

    /// It ended so, and said nothing on standard error unless it failed.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Run {
        assert_eq!(self.code, code, "{self:#?}");
        if code == 0 {
            assert_eq!(self.stderr, "", "{self:#?}");
        }
        self
    }
}

/// A command that goes on.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) line: String,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    /// What it has said so far, whole lines only.
    pub(crate) fn so_far(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).unwrap();
        records(text.rsplit_once('\n').map_or("", |(whole, _)| whole))
    }

    /// The same as it stands there.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn feed(&mut self, lines: &str) {
        self.child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    }

    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Waits for a record that fits, at most `limit`.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, limit: Duration, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + limit;
        loop {
            if let Some(found) = self.so_far().into_iter().find(&fits) {
                return found;
            }
            assert!(
                Instant::now() < end,
                "{}: no {what} within {limit:?}; it said {:#?} {}",
                self.line,
                self.so_far(),
                self.complaints()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end; the status, or the signal as a negative number.
    #[track_caller]
    pub(crate) fn ends(&mut self, limit: Duration) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
            }
            assert!(Instant::now() < end, "{} did not end within {limit:?}", self.line);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A pipeline of a shell is a group of its own.
        let _ = nix::sys::signal::killpg(self.pid(), nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines as records and holds each against the schema of its kind.
#[track_caller]
pub(crate) fn records(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
            validate(&record);
            record
        })
        .collect()
}

/// A record against the schema that its kind has in the tree.
#[track_caller]
pub(crate) fn validate(record: &Value) {
    static SCHEMAS: OnceLock<Mutex<HashMap<String, (boon::Schemas, boon::SchemaIndex)>>> = OnceLock::new();
    let kind = record["kind"].as_str().unwrap_or_else(|| panic!("no kind in {record}")).to_owned();
    let mut known = SCHEMAS.get_or_init(Mutex::default).lock().unwrap();
    let (schemas, index) = known.entry(kind.clone()).or_insert_with(|| {
        let path = format!("{}/src/record/schema/{kind}.json", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("schema.json", serde_json::from_str(&text).unwrap()).unwrap();
        let index = compiler.compile("schema.json", &mut schemas).unwrap();
        (schemas, index)
    });
    if let Err(error) = schemas.validate(record, *index) {
        panic!("{record} is not a {kind}: {error:#}");
    }
}

/// A line of `vip elect`, as far as `vip apply` looks at it.
pub(crate) fn election(vip: &str, mine: bool, more: &str) -> String {
    let len = if vip.contains(':') { 64 } else { 24 };
    format!(
        "{{\"kind\":\"vip.elect\",\"v\":1,\"subject\":\"{vip}\",\"prefix_len\":{len},\"dev\":\"eth0\",\"mine\":{mine}{more}}}\n"
    )
}

/// The MAC that a host has for an address.
pub(crate) fn neighbour(host: &Host, addr: &str) -> String {
    let line = host.sh(&format!("ip neigh show {addr} dev eth0"));
    line.split("lladdr ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
}

/// Waits until `done` says so, at most `limit`.
#[track_caller]
pub(crate) fn eventually(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What it printed. What it complained of on the way is left out: ip says so when another test's namespace
/// goes away while it looks for names.
fn shell(ns: &str, line: &str) -> String {
    let output = in_shell(ns, line);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn try_shell(ns: &str, line: &str) -> (bool, String) {
    let output = in_shell(ns, line);
    (
        output.status.success(),
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
    )
}

fn in_shell(ns: &str, line: &str) -> Output {
    Command::new("nsenter")
        .args([&format!("--net=/run/netns/{ns}"), "sh", "-c", line])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A keepalived in the foreground on a host, with a configuration, pid and log files of its own.
pub(crate) struct Keepalived {
    child: Child,
    folder: PathBuf,
}

impl Keepalived {
    /// Starts it with this body of its one `vrrp_instance` on eth0, VRID 51.
    pub(crate) fn start(host: &Host, version: u8, body: &str) -> Keepalived {
        Keepalived::start_with(host, version, body, "")
    }

    /// The same with more of the configuration behind it.
    pub(crate) fn start_with(host: &Host, version: u8, body: &str, more: &str) -> Keepalived {
        let folder = host.folder.join(format!("keepalived-{}", LABS.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "global_defs {{\n router_id {}\n vrrp_version {version}\n}}\nvrrp_instance vip {{\n state BACKUP\n \
             interface eth0\n virtual_router_id 51\n {body}\n}}\n{more}",
            host.name
        );
        fs::write(file("keepalived.conf"), config).unwrap();
        let log = File::create(file("log")).unwrap();
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", host.ns))
            .args(["keepalived", "--dont-fork", "--log-console", "--log-detail", "--vrrp"])
            .args(["--use-file", &file("keepalived.conf")])
            .args(["--pid", &file("pid"), "--vrrp_pid", &file("vrrp.pid")])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Keepalived { child, folder }
    }

    /// Its processes: the parent and the one that speaks VRRP.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let path = self.folder.join("vrrp.pid");
        eventually("keepalived runs", Duration::from_secs(5), || {
            fs::read_to_string(&path).is_ok_and(|text| text.trim().parse::<u32>().is_ok())
        });
        vec![self.child.id(), fs::read_to_string(&path).unwrap().trim().parse().unwrap()]
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Asks it to end, which makes a master resign.
    pub(crate) fn resign(&self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Stops or continues its processes, the parent and the one that speaks VRRP.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let worker = fs::read_to_string(self.folder.join("vrrp.pid")).unwrap();
        for pid in [i32::try_from(self.child.id()).unwrap(), worker.trim().parse().unwrap()] {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
        }
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        // The parent ends its worker when it is asked, and not when it is killed.
        self.signal_quietly(nix::sys::signal::Signal::SIGCONT);
        self.signal_quietly(nix::sys::signal::Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.signal_quietly(nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Keepalived {
    fn signal_quietly(&mut self, signal: nix::sys::signal::Signal) {
        // Once it was waited for, its number may be another's.
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let worker = fs::read_to_string(self.folder.join("vrrp.pid")).ok().and_then(|pid| pid.trim().parse().ok());
        for pid in worker.into_iter().chain(i32::try_from(self.child.id())) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        }
    }
}
