//! Hosts that can be frozen and switched off, a volume that all of them reach, and a client that writes to it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::etcd::Etcd;
use super::{Host, Lab, Run, binary, eventually};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(20);
/// Where the drivers are.
pub(crate) const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/recipes/iscsi.d");
/// The storage driver of the lab, with a path of its own for each host.
pub(crate) const PATH_DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/iscsi-path");
const VOLUME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/iscsi-volume.py");
pub(crate) const IQN: &str = "iqn.2026-01.lab";
/// The size of each volume.
const VOLUME_BYTES: u64 = 4 << 20;
const BLOCK: usize = 4096;

/// A host that can be switched off and frozen: its processes are in a group of the kernel, with mounts and a /run of
/// their own.
pub(crate) struct Machine {
    pub(crate) host: Host,
    group: PathBuf,
    init: Option<Child>,
}

impl Machine {
    /// Switched on, with this host's network.
    pub(crate) fn boot(host: Host) -> Machine {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let of_groups = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[2] == "cgroup2").then(|| words[1].to_owned())
        });
        let group = Path::new(&of_groups.expect("hosts are frozen by cgroups, version 2")).join(&host.ns);
        fs::create_dir_all(&group).unwrap();
        let mut machine = Machine { host, group, init: None };
        machine.power_on();
        machine
    }

    pub(crate) fn name(&self) -> &str {
        &self.host.name
    }

    fn power_on(&mut self) {
        let up = self.host.folder.join("up");
        let _ = fs::remove_file(&up);
        let line = format!(
            "echo 0 >{}/cgroup.procs && exec nsenter --net=/run/netns/{} unshare --mount --propagation private sh -c \
             'mkdir -p {networks} && mount --rbind /run/netns {networks} && \
              mount -t tmpfs tmpfs /run && mkdir -p /run/lock && \
              (FUSE_LIBRARY_PATH=libfuse.so.2 /usr/bin/python3 {VOLUME} opener /run/opener & \
              until [ -p /run/opener ]; do sleep 0.01; done) && echo >{} && exec sleep infinity'",
            self.group.display(),
            self.host.ns,
            up.display(),
            // Where a power switch finds the other one's wires.
            networks = self.host.folder.parent().unwrap().join("networks").display(),
        );
        self.init = Some(Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).spawn().unwrap());
        eventually("the host is up", LIMIT, || up.exists());
    }

    /// A program, ready to run here; ours are in its PATH.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo 0 >\"$0/cgroup.procs\" && pid=$1 && shift && exec nsenter --target \"$pid\" --mount --net \"$@\"",
        ]);
        command.arg(&self.group).arg(self.init.as_ref().unwrap().id().to_string()).args(words);
        command.env_clear();
        self.host.environment(&mut command);
        let ours = binary("vip").parent().unwrap().display().to_string();
        command.env("PATH", format!("{ours}:/usr/sbin:/usr/bin:/sbin:/bin"));
        command.env("FAILOVER_STATE_DIR", "/run/failover").stdin(Stdio::null());
        command
    }

    /// Runs a shell line to its end.
    pub(crate) fn try_sh(&self, line: &str) -> Run {
        Run::new(line, self.command(&["sh", "-c", line]).output().unwrap())
    }

    /// The same; it must succeed.
    #[track_caller]
    pub(crate) fn sh(&self, line: &str) -> String {
        let run = self.try_sh(line);
        assert_eq!(run.code, 0, "{run:#?}");
        run.stdout
    }

    /// Starts a program, with what it says in files of the host.
    pub(crate) fn spawn(&self, name: &str, words: &[&str], environment: &[(&str, &str)]) -> Daemon {
        let log = self.host.folder.join(format!("{name}.log"));
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut command = self.command(words);
        command.envs(environment.iter().copied()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        Daemon { child: command.spawn().unwrap(), log }
    }

    fn set(&self, knob: &str, value: &str) {
        fs::write(self.group.join(knob), value).unwrap();
    }

    fn event(&self, wanted: &str) -> bool {
        fs::read_to_string(self.group.join("cgroup.events")).unwrap().lines().any(|line| line == wanted)
    }

    /// Its processes stop; its kernel goes on answering ARP and acknowledging what comes in.
    pub(crate) fn freeze(&self) {
        self.set("cgroup.freeze", "1");
        // A write that waits for its path, which is frozen already, does not count as frozen; nor does it run.
        let end = Instant::now() + 100 * MS;
        while !self.event("frozen 1") && Instant::now() < end {
            std::thread::sleep(MS);
        }
    }

    pub(crate) fn thaw(&self) {
        self.set("cgroup.freeze", "0");
    }

    /// The switch drops what comes from it and what goes to it, without a word.
    pub(crate) fn cut(&self, lab: &Lab, cut: bool) {
        let state = if cut { 0 } else { 3 };
        let name = &self.host.name;
        lab.on_switch(&format!(
            "bridge link set dev {name}.eth0 state {state}; bridge link set dev {name}.eth1 state {state}"
        ));
    }

    /// A virtual machine that its hypervisor has stopped.
    pub(crate) fn pause(&self, lab: &Lab) {
        self.cut(lab, true);
        self.freeze();
    }

    pub(crate) fn resume(&self, lab: &Lab) {
        self.cut(lab, false);
        self.thaw();
    }

    /// Power off: the wire goes dead, then everything is gone.
    pub(crate) fn kill(&mut self, lab: &Lab) {
        let name = &self.host.name;
        lab.on_switch(&format!("ip link set {name}.eth0 down; ip link set {name}.eth1 down"));
        self.end();
    }

    /// Power on again, with nothing running.
    pub(crate) fn reboot(&mut self, lab: &Lab) {
        self.end();
        // Addresses do not outlive a boot.
        self.host.sh("ip addr flush dev eth0 scope global; ip addr flush dev eth1 scope global");
        for (dev, address) in addresses(self.host.number) {
            self.host.sh(&format!("ip addr add {address} dev {dev}"));
        }
        self.power_on();
        let name = &self.host.name;
        lab.on_switch(&format!("ip link set {name}.eth0 up; ip link set {name}.eth1 up"));
        self.cut(lab, false);
    }

    fn end(&mut self) {
        self.set("cgroup.kill", "1");
        eventually("the host is off", LIMIT, || self.event("populated 0"));
        if let Some(mut init) = self.init.take() {
            let _ = init.wait();
        }
        self.thaw();
    }

    /// Whether a program of this name runs here.
    pub(crate) fn runs(&self, name: &str) -> bool {
        let pids = fs::read_to_string(self.group.join("cgroup.procs")).unwrap();
        pids.lines().any(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
    }

    /// Whether nothing runs here, whoever ended it.
    pub(crate) fn is_dead(&self) -> bool {
        self.event("populated 0")
    }

    pub(crate) fn is_on(&self) -> bool {
        self.init.is_some()
    }

    /// Whether the address is here.
    pub(crate) fn has(&self, address: &str) -> bool {
        self.host.sh("ip -o addr show dev eth0").contains(&format!(" {address}/"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
        if let Some(mut init) = self.init.take() {
            let _ = init.wait();
        }
        let end = Instant::now() + LIMIT;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < end {
            std::thread::sleep(5 * MS);
        }
    }
}

/// A process on a host that goes on; its log stays.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) log: PathBuf,
}

impl Daemon {
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn ends(&mut self, limit: Duration) -> Option<i32> {
        let said = self.said();
        eventually(&format!("it ends; it said {said}"), limit, || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The addresses of a host by its number, for each of its interfaces.
fn addresses(number: u32) -> [(&'static str, String); 2] {
    [("eth0", format!("10.77.1.{number}/24")), ("eth1", format!("10.77.2.{number}/24"))]
}

/// What Pacemaker wants to know of a fence agent.
const METADATA: &str = r#"<?xml version="1.0"?><resource-agent name="fence_lab" shortdesc="power switch of the lab">
<longdesc>Switches hosts off.</longdesc>
<parameters><parameter name="action"><content type="string" default="off"/><shortdesc lang="en">What to do</shortdesc></parameter>
<parameter name="port"><content type="string"/><shortdesc lang="en">The host</shortdesc></parameter></parameters>
<actions><action name="off"/><action name="status"/><action name="monitor"/><action name="metadata"/></actions>
</resource-agent>"#;

/// What can happen to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Freeze,
    Pause,
    Kill,
    /// The switch drops what comes from it and goes to it.
    Cut,
}

impl Fault {
    pub(crate) const ALL: [Fault; 4] = [Fault::Freeze, Fault::Pause, Fault::Kill, Fault::Cut];
}

/// Three hosts, volumes behind a server that logs, a client.
pub(crate) struct Scene {
    pub(crate) machines: Vec<Machine>,
    pub(crate) client: Host,
    server: Child,
    /// The folder of the volumes, beside the socket of their server and its log.
    pub(crate) storage: PathBuf,
    pub(crate) lab: Lab,
}

impl Scene {
    /// With these volumes. A server that trusts refuses no token.
    pub(crate) fn new(volumes: &[&str], trusting: bool) -> Scene {
        let lab = Lab::new();
        lab.bridge("mgmt");
        let mut machines = Vec::new();
        for number in 1..=3 {
            let [(_, lan), (_, mgmt)] = addresses(number);
            let host = lab.host(&format!("n{number}"), &[&lan]);
            lab.plug(&host, "eth1", "mgmt", &[&mgmt]);
            machines.push(Machine::boot(host));
        }
        let client = lab.host("client", &["10.77.1.100/24"]);
        let storage = client.folder.parent().unwrap().join("storage");
        fs::create_dir_all(&storage).unwrap();
        for volume in volumes {
            fs::File::create(storage.join(volume)).unwrap().set_len(VOLUME_BYTES).unwrap();
        }
        let server = Command::new("/usr/bin/python3")
            .args([VOLUME, "serve"])
            .args([storage.join("socket"), storage.clone(), storage.join("log")])
            .args(trusting.then_some("--trusting"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the storage serves", LIMIT, || storage.join("socket").exists());
        Scene { machines, client, server, storage, lab }
    }

    pub(crate) fn strike(&mut self, fault: Fault, idx: usize) {
        let Scene { machines, lab, .. } = self;
        match fault {
            Fault::Freeze => machines[idx].freeze(),
            Fault::Pause => machines[idx].pause(lab),
            Fault::Kill => machines[idx].kill(lab),
            Fault::Cut => machines[idx].cut(lab, true),
        }
    }

    /// What the paths have said so far.
    pub(crate) fn paths(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.storage.join("log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The blocks of a volume that are not as they should be.
    pub(crate) fn wrong(&self, volume: &str, wanted: &[u8]) -> Vec<usize> {
        let data = fs::read(self.storage.join(volume)).unwrap();
        let blocks = wanted.iter().enumerate();
        blocks
            .filter(|(block, byte)| data[block * BLOCK..(block + 1) * BLOCK].iter().any(|is| is != *byte))
            .map(|(block, _)| block)
            .collect()
    }

    /// What `serve` is told for a unit of one volume of the same name.
    pub(crate) fn unit(&self, volume: &str, address: &str, token: u32) -> Vec<(&'static str, String)> {
        vec![
            ("ISCSI_UNIT", volume.to_owned()),
            ("ISCSI_RUN", format!("/run/iscsi/{volume}")),
            ("ISCSI_ADDRESS", address.to_owned()),
            ("ISCSI_LEN", "24".to_owned()),
            ("ISCSI_DEV", "eth0".to_owned()),
            ("ISCSI_IQN", IQN.to_owned()),
            ("ISCSI_VOLUMES", format!("1:{volume}={}", self.storage.join("socket").display())),
            ("ISCSI_STORAGE", PATH_DRIVER.to_owned()),
            ("ISCSI_TARGET", format!("{DRIVERS}/tgt")),
            ("ISCSI_LOG", self.storage.join("phases").display().to_string()),
            ("STORE_TOKEN", token.to_string()),
        ]
    }

    /// Serves a volume from a host, as the recipe does under a lock.
    pub(crate) fn serve(&self, idx: usize, volume: &str, address: &str, token: u32) -> Daemon {
        let environment = self.unit(volume, address, token);
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.machines[idx].spawn("serve", &["sh", &format!("{DRIVERS}/serve")], &environment)
    }

    /// Waits for a phase of a unit on a host.
    #[track_caller]
    pub(crate) fn reaches(&self, host: &str, unit: &str, phase: &str) {
        let end = Instant::now() + LIMIT;
        while !self
            .phases()
            .iter()
            .any(|line| line["host"] == host && line["subject"] == unit && line["phase"] == phase)
        {
            assert!(
                Instant::now() < end,
                "{host} does not reach {phase} of {unit}: {:#?}\n{}",
                self.phases(),
                self.logs()
            );
            std::thread::sleep(2 * MS);
        }
    }

    /// What a path answered, host after host: none comes back once another has had its turn, but with a newer token.
    #[track_caller]
    pub(crate) fn one_at_a_time(&self, volume: &str) {
        let mut newest = 0;
        for line in self.paths().into_iter().filter(|line| line["volume"] == volume && line["refused"] == false) {
            let token = line["token"].as_u64().unwrap();
            assert!(token >= newest, "{line} after the token {newest}\n{}", self.story());
            newest = token;
        }
    }

    /// A switch that powers hosts off, as a fence agent: what it says is so. Gives the settings of the recipe.
    pub(crate) fn power_switch(&self) -> String {
        let agent = self.storage.join("fence_lab");
        let groups: String = self
            .machines
            .iter()
            .map(|machine| format!("{}) group={} ;; ", machine.name(), machine.group.display()))
            .collect();
        let script = format!(
            "#!/bin/sh\nwhile IFS='=' read -r key value; do case $key in action) action=$value ;; port) node=$value ;; esac; done\n\
             case $node in {groups} esac\n\
             [ $action != metadata ] || {{ echo '{METADATA}'; exit 0; }}\n\
             if [ $action = off ]; then\n\
             nsenter --net={networks}/{switch} sh -c \"ip link set $node.eth0 down; ip link set $node.eth1 down\"\n\
             echo 1 >$group/cgroup.kill; fi\n\
             [ $action = status ] || exit 0\n\
             grep -q 'populated 0' $group/cgroup.events && exit 2\nexit 0\n",
            networks = self.storage.parent().unwrap().join("networks").display(),
            switch = self.lab.switch(),
        );
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for machine in &self.machines {
            let options = self.storage.join(format!("fence_lab-{}", machine.name()));
            fs::write(&options, "# nothing\n").unwrap();
            fs::set_permissions(&options, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
        format!("fencing={}\nfence_options={}", agent.display(), self.storage.display())
    }

    /// The log of placements and phases, a line each.
    pub(crate) fn story(&self) -> String {
        let line = |of: Value| {
            let words = [
                "time",
                "host",
                "subject",
                "phase",
                "took_ms",
                "status",
                "node",
                "moved_from",
                "needs_fence",
                "held",
                "fence",
                "why",
            ];
            let words: Vec<String> =
                words.iter().filter(|key| !of[**key].is_null()).map(|key| format!("{key}={}", of[*key])).collect();
            words.join(" ") + "\n"
        };
        self.phases().into_iter().map(line).collect()
    }

    /// What the daemons of all hosts have said.
    pub(crate) fn logs(&self) -> String {
        let folders = self.machines.iter().map(|machine| fs::read_dir(&machine.host.folder).unwrap());
        let files = folders.flatten().map(|file| file.unwrap().path());
        let logs = files.filter(|file| file.extension().is_some_and(|ending| ending == "log"));
        logs.map(|log| format!("---- {}\n{}", log.display(), fs::read_to_string(&log).unwrap())).collect()
    }

    pub(crate) fn phases(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.storage.join("phases")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Their mounts end before the server does.
        self.machines.clear();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What a client opens.
pub(crate) fn url(address: &str, volume: &str) -> String {
    format!("iscsi://{address}:3260/{IQN}:{volume}/1")
}

/// One write: when it began, and how long it took.
pub(crate) type Written = (Instant, Duration);

/// A client that writes block after block through qemu-io and libiscsi, over and over, with other content each time.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<Mutex<Vec<Written>>>,
    thread: Option<JoinHandle<(Vec<u8>, Vec<String>)>>,
    io: nix::unistd::Pid,
}

/// What a client wrote.
pub(crate) struct Stream {
    pub(crate) writes: Vec<Written>,
    /// The byte that each block must be full of.
    pub(crate) wanted: Vec<u8>,
    pub(crate) failures: Vec<String>,
}

impl Writer {
    /// Writes the first `blocks` blocks of 4 KiB, in turn, until it is stopped; waits `pace` between two.
    pub(crate) fn start(client: &Host, url: &str, blocks: usize, pace: Duration) -> Writer {
        let mut io = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", client.ns))
            .args(["stdbuf", "-oL", "qemu-io", "-f", "raw", "-t", "none", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(io.id()).unwrap());
        let (mut asks, mut answers) = (io.stdin.take().unwrap(), BufReader::new(io.stdout.take().unwrap()));
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, log) = (stop.clone(), written.clone());
        let thread = std::thread::spawn(move || {
            let (mut wanted, mut failures) = (vec![0; blocks], Vec::new());
            for turn in 0_usize.. {
                let block = turn % blocks;
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let byte = u8::try_from((turn * 7 + turn / blocks) % 255 + 1).unwrap();
                let began = Instant::now();
                // One line, then its answer: with two in the pipe it waits for a third.
                if writeln!(asks, "write -P {byte} {} {BLOCK}", block * BLOCK).is_err() {
                    failures.push("qemu-io ended".to_owned());
                    break;
                }
                let mut line = String::new();
                while answers.read_line(&mut line).unwrap_or(0) > 0
                    && !line.contains("wrote ")
                    && !line.contains("failed")
                {
                    line.clear();
                }
                if line.contains("wrote ") {
                    wanted[block] = byte;
                    log.lock().unwrap().push((began, began.elapsed()));
                    let _ = answers.read_line(&mut line); // the rate
                } else {
                    failures.push(line);
                }
                std::thread::sleep(pace);
            }
            drop(asks);
            let end = Instant::now() + LIMIT;
            while io.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
                std::thread::sleep(MS);
            }
            let _ = io.kill();
            let _ = io.wait();
            (wanted, failures)
        });
        Writer { stop, written, thread: Some(thread), io: pid }
    }

    pub(crate) fn writes(&self) -> usize {
        self.written.lock().unwrap().len()
    }

    /// Waits until this many more writes have been acknowledged.
    #[track_caller]
    pub(crate) fn goes_on(&self, count: usize, limit: Duration) {
        let before = self.writes();
        eventually("the client writes on", limit, || self.writes() >= before + count);
    }

    /// The longest write that ended after `since`.
    pub(crate) fn stall(&self, since: Instant) -> Duration {
        let written = self.written.lock().unwrap();
        written.iter().filter(|(began, took)| *began + *took > since).map(|(_, took)| *took).max().unwrap_or_default()
    }

    /// Ends it when its write is through.
    pub(crate) fn stop(mut self) -> Stream {
        self.stop.store(true, Ordering::Relaxed);
        let (wanted, failures) = self.thread.take().unwrap().join().unwrap();
        Stream { writes: self.written.lock().unwrap().clone(), wanted, failures }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It may wait for an answer that will not come; not waited for yet, its number is its own.
            if !thread.is_finished() {
                let _ = nix::sys::signal::kill(self.io, nix::sys::signal::Signal::SIGKILL);
            }
            let _ = thread.join();
        }
    }
}

/// The recipe on three hosts, over an etcd of three members.
pub(crate) struct Cluster {
    /// `None` where it was ended; before the scene, whose hosts they are on.
    pub(crate) recipes: Vec<Option<Daemon>>,
    pub(crate) etcd: Etcd,
    config: PathBuf,
    settings: String,
    pub(crate) scene: Scene,
}

impl Cluster {
    /// Serves these volumes, each at an address of its own, with the homes given, and more settings.
    pub(crate) fn new(volumes: &[(&str, &str)], more: &str) -> Cluster {
        let mut cluster = Cluster::idle(volumes);
        cluster.configure(more);
        for idx in 0..3 {
            let recipe = cluster.start(idx);
            cluster.recipes.push(Some(recipe));
        }
        cluster
    }

    /// The same with a switch that powers hosts off.
    pub(crate) fn fenced(volumes: &[(&str, &str)]) -> Cluster {
        Cluster::fenced_with(volumes, "")
    }

    /// The same with more settings.
    pub(crate) fn fenced_with(volumes: &[(&str, &str)], more: &str) -> Cluster {
        let mut cluster = Cluster::idle(volumes);
        let agent = cluster.scene.power_switch();
        cluster.configure(&format!("{agent}\n{more}"));
        for idx in 0..3 {
            let recipe = cluster.start(idx);
            cluster.recipes.push(Some(recipe));
        }
        cluster
    }

    /// Writes the configuration, with more settings.
    fn configure(&self, more: &str) {
        fs::write(&self.config, format!("{}{more}\n", self.settings)).unwrap();
    }

    /// What `--check` says of more settings on a host.
    pub(crate) fn check(&self, idx: usize, more: &str) -> Run {
        self.configure(more);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/recipes/iscsi");
        self.scene.machines[idx].try_sh(&format!("{script} --check {}", self.config.display()))
    }

    /// Waits until the store has the client's connection to a volume, as it is now.
    #[track_caller]
    pub(crate) fn knows_peers(&self, volume: &str) {
        let ask = format!("store get iscsi/peers/{volume} --raw --store {} --timeout 2s", self.etcd.url());
        let ports = || -> Vec<String> {
            let line = self.scene.client.sh("ss -Htn dport = 3260");
            line.lines()
                .filter_map(|line| line.split_whitespace().nth(3)?.rsplit(':').next().map(str::to_owned))
                .collect()
        };
        eventually("the store knows the client", LIMIT, || {
            let known = self.scene.client.run(&ask).stdout;
            let ports = ports();
            !ports.is_empty() && ports.iter().all(|port| known.contains(&format!("\"peer_port\":{port}")))
        });
    }

    /// The hosts and the store, and nothing that runs on them.
    pub(crate) fn idle(volumes: &[(&str, &str)]) -> Cluster {
        let names: Vec<&str> = volumes.iter().map(|(name, _)| *name).collect();
        let scene = Scene::new(&names, false);
        let etcd = Etcd::start(&scene.lab, "10.77.1");
        let key = scene.storage.join("key");
        fs::write(&key, "ab".repeat(32)).unwrap();
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let words = |word: &dyn Fn(usize, &str, &str) -> String| {
            let all: Vec<String> =
                volumes.iter().enumerate().map(|(idx, (name, home))| word(idx, name, home)).collect();
            all.join(" ")
        };
        let config = scene.storage.join("iscsi.conf");
        let text = format!(
            "nodes='n1=10.77.1.1,10.77.2.1 n2=10.77.1.2,10.77.2.2 n3=10.77.1.3,10.77.2.3'\ndev=eth0\nkey={}\nstore={}\n\
             volumes='{}'\nvips='{}'\nhome='{}'\niqn={IQN}\nstorage={PATH_DRIVER}\nlog={}\n\
             interval=50ms\ndead_after=500ms\nttl=1s\nfail_back=1s\n",
            key.display(),
            etcd.url(),
            words(&|_, name, _| format!("{name}={}", scene.storage.join("socket").display())),
            words(&|idx, name, _| format!("{name}={}/24", address(idx))),
            words(&|_, name, home| format!("{name}={home}")),
            scene.storage.join("phases").display(),
        );
        Cluster { recipes: Vec::new(), etcd, config, settings: text, scene }
    }

    /// Starts the recipe on a host.
    pub(crate) fn start(&self, idx: usize) -> Daemon {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/recipes/iscsi");
        self.scene.machines[idx].spawn("recipe", &[script, &self.config.display().to_string()], &[])
    }

    /// Has the first host lead, or another than that.
    pub(crate) fn led(&self, by_first: bool) {
        let store = format!("--store {}", self.etcd.url());
        eventually("it is led as it should be", 2 * LIMIT, || {
            let run = self.scene.client.run(&format!("store leader iscsi/leader {store}"));
            let Ok(told) = serde_json::from_str::<Value>(&run.stdout) else { return false };
            let (Some(leader), Some(token)) = (told["holder"].as_str(), told["token"].as_u64()) else { return false };
            if (leader == "n1") != by_first {
                let before = token + 1;
                let broken = format!("lock iscsi/leader --proven-off {leader}@{before} --timeout 0s {store} -- true");
                self.scene.client.run(&format!("store {broken}"));
                return false;
            }
            self.scene.machines.iter().any(|machine| machine.name() == leader && machine.runs("place"))
        });
        // Nothing tells that it has heard what everybody says of everybody: a beat, and what it takes to count.
        std::thread::sleep(300 * MS);
    }

    /// The hosts that have the address of a volume by its number.
    pub(crate) fn at(&self, idx: usize) -> Vec<&str> {
        let machines = self.scene.machines.iter().filter(|machine| machine.is_on() && machine.has(&address(idx)));
        machines.map(Machine::name).collect()
    }

    /// Waits until a volume is at this host and nowhere else.
    #[track_caller]
    pub(crate) fn serves(&self, host: &str, idx: usize) {
        let end = Instant::now() + 2 * LIMIT;
        while self.at(idx) != [host] {
            assert!(
                Instant::now() < end,
                "{host} does not serve {}: {:?}\n{}\n{}",
                address(idx),
                self.at(idx),
                self.scene.story(),
                self.scene.logs()
            );
            std::thread::sleep(5 * MS);
        }
    }
}

/// The address of a volume by its number.
pub(crate) fn address(idx: usize) -> String {
    format!("10.77.1.{}", 200 + idx)
}
