//! The rows: what is compared with what, and the bar of each.

use crate::measure::{Pairs, Report, Took, run, run_well};
use crate::support::dns::{self, ZONE, primary, unbound};
use crate::support::etcd::Etcd;
use crate::support::gateways::{Site, TARGETS};
use crate::support::scene::{Fault, Scene, Whose};
use crate::support::{Host, Keepalived, Lab, Running, eventually};
use crate::sys::raw;
use crate::types::net::Mac;
use crate::wire::arp;
use crate::wire::heartbeat::{ClusterHash, Echoes, Frame};
use crate::wire::keys::Keys;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What the rows are told.
#[derive(Debug)]
pub(crate) struct Bench {
    /// Where the shipped binaries are.
    pub(crate) binaries: PathBuf,
    /// Pairs a row, where the user wants another number than the row's own.
    pub(crate) pairs: Option<usize>,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&str, &Bench, &mut Report),
}

const fn row(name: &'static str, about: &'static str, run: fn(&str, &Bench, &mut Report)) -> Row {
    Row { name, about, run }
}

pub(crate) const ROWS: &[Row] = &[
    row("vip-show", "one start: vip show / ip -j addr, wall and CPU <= 1.0", vip_show),
    row("bucket-show", "one start: bucket show / nft -j list table, wall and CPU <= 1.4", bucket_show),
    row("health-tcp", "one check: health tcp / sh and nc, as a check script has it, wall and CPU <= 1.0", health_tcp),
    row("hash-owner-brief", "5,000,000 addresses: hash-owner --brief / wc -l, <= 4", hash_owner_brief),
    row("hash-owner-json", "5,000,000 addresses: hash-owner / wc -l, <= 12", hash_owner_json),
    row("hash-owner-cat", "the same two through '| cat', told", hash_owner_cat),
    row("arp-arping", "4,096 gratuitous ARPs: vip arp / arping one by one (16, scaled), <= 0.01", arp_arping),
    row("arp-sendmmsg", "4,096 gratuitous ARPs: vip arp / a program of one sendmmsg loop, <= 2", arp_sendmmsg),
    row("add-1000", "1,000 addresses: vip add / ip -batch, <= 0.7", add_1000),
    row("add-10000", "10,000 addresses: vip add / ip -batch, <= 0.8", add_10000),
    row("place", "place: 100,000 nodes x 1,000 services < 1 s wall; its growth from 1,000 nodes, told", place),
    row("heartbeat-signed", "heartbeat recv: 100,000 signed frames/s on one core, none lost, memory flat", signed),
    row("heartbeat-forged", "heartbeat recv: 100,000 forged frames/s, 10 real peers stay up", forged),
    row(
        "takeover-1000",
        "VIP take-over at 1 s, link cut and processes frozen: client's silence / keepalived's, <= 1.0",
        takeover_1000,
    ),
    row("takeover-100", "the same at 100 ms", takeover_100),
    row("takeover-10", "the same at 10 ms", takeover_10),
    row("vrrp-255", "255 routers, CPU of 20 s: vrrp run | vip apply / keepalived, <= 1.0", vrrp_255),
    row(
        "gw-probe-1000",
        "1,000 targets once through one gateway: gw probe / fping, wall and CPU <= 1.0",
        gw_probe_1000,
    ),
    row("gw-probe-64", "64 gateways at once, three echoes 200 ms apart: told", gw_probe_64),
    row("gw-apply", "an unchanged plan of 3 gateways: gw apply / nft list table, wall and CPU <= 1.0", gw_apply),
    row("dns-check", "one name at 1 authority and 4 resolvers: dns check / dig five times, <= 0.3", dns_check),
    row("dns-check-kdig", "1,000 names at 5 servers: dns check / kdig for each server, <= 1.0", dns_check_kdig),
    row("dns-check-dnsperf", "the same / dnsperf at each server, told", dns_check_dnsperf),
    row("dns-trace", "16 servers asked every 50 ms: CPU of one core, <= 5 per cent", dns_trace),
    row("store-get", "one key of a replicated store: store get / etcdctl get, <= 1.0", store_get),
    row(
        "store-put",
        "one key of a replicated store, each time another value: store put / etcdctl put, <= 1.0",
        store_put,
    ),
    row("store-lock", "a lock taken and given back around /bin/true: store lock / etcdctl lock, <= 1.0", store_lock),
    row("gw-split-cost", "50,000 datagrams of one flow through the host: split / routed alone, told", gw_split_cost),
    row("sizes", "bytes of each binary, told", sizes),
    row("instructions", "instructions to start, by callgrind, told", instructions),
];

impl Bench {
    fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    fn pairs(&self, own: usize) -> usize {
        self.pairs.unwrap_or(own)
    }
}

/// A command whose output goes nowhere.
fn quiet(program: impl AsRef<OsStr>, args: &str) -> Command {
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// One of our commands as it runs on `host`.
fn on(host: &Host, program: impl AsRef<OsStr>, args: &str) -> Command {
    let mut command = quiet(program, args);
    host.environment(&mut command);
    command
}

fn reading(mut command: Command, path: &Path) -> Command {
    command.stdin(File::open(path).unwrap());
    command
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    // On a machine of one core everything shares it.
    cores.set(core.min(std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1))).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cores).unwrap();
}

/// What the names of our namespaces and files begin with: the script removes them by it.
fn prefix() -> String {
    std::env::var("FAILOVER_BENCH_PREFIX").unwrap_or_else(|_| format!("bn-{}", std::process::id()))
}

fn lab() -> Lab {
    Lab::called(&prefix())
}

// Gateways.

/// A plan over all gateways of a site, in a file.
fn gw_plan(site: &Site, bench: &Bench) -> PathBuf {
    let path = site.host.folder.join("plan");
    let (mut split, mut verdicts) = ("split".to_owned(), String::new());
    for n in 1..=site.gateways.len() {
        let _ = write!(split, " --gateway {}", site.address(n));
        let _ = writeln!(verdicts, "{{\"subject\":\"{}\",\"status\":\"up\"}}", site.address(n));
    }
    let input = site.host.folder.join("verdicts");
    fs::write(&input, verdicts).unwrap();
    let mut command = reading(on(&site.host, bench.binary("gw"), &split), &input);
    run_well(command.stdout(File::create(&path).unwrap()));
    path
}

fn gw_apply(name: &str, bench: &Bench, report: &mut Report) {
    let site = Site::one_link(3);
    let (plan, count) = (gw_plan(&site, bench), bench.pairs(200));
    let mut ours = on(&site.host, bench.binary("gw"), "apply");
    let mut peer = quiet("nft", "list table inet failover_gw");
    let pairs = site.host.inside(move || {
        let mut apply = || run_well(ours.stdin(File::open(&plan).unwrap()));
        apply();
        Pairs::measure(count, apply, || run_well(&mut peer))
    });
    report.pairs(name, &pairs.join().unwrap(), Some(1.0), Some(1.0), "");
}

fn gw_split_cost(name: &str, bench: &Bench, report: &mut Report) {
    const DATAGRAMS: usize = 50_000;
    let site = Site::one_link(3);
    site.host.sh(&format!("ip route add default via {}", site.address(1)));
    site.net.sh("nft 'add table ip mute; add chain ip mute in { type filter hook input priority 0; }; \
                 add rule ip mute in udp dport 9 drop'");
    let (plan, count) = (gw_plan(&site, bench), bench.pairs(20));
    let target: Ipv4Addr = TARGETS[0].parse().unwrap();
    // A veth hands each packet on to its end before the next is sent: what the sender waits is its whole way.
    let talk = || {
        let took = site.client.inside(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((target, 9)).unwrap();
            let started = Instant::now();
            for _ in 0..DATAGRAMS {
                let _ = socket.send(&[0; 100]);
            }
            started.elapsed()
        });
        let wall = took.join().unwrap();
        Took { wall, cpu: wall }
    };
    let gw = |args: &str| {
        let mut command = reading(on(&site.host, bench.binary("gw"), args), &plan);
        site.host.inside(move || run_well(&mut command)).join().unwrap();
    };
    let split = || {
        gw("apply");
        talk()
    };
    let routed = || {
        gw("clear");
        talk()
    };
    let pairs = Pairs::measure(count, split, routed);
    report.pairs(name, &pairs, None, None, "");
}

// Names.

/// An authority and four resolvers that have all of 1,000 names, and a client; its file has the names.
struct Names {
    lab: Lab,
    client: Host,
    servers: [&'static str; 5],
    names: PathBuf,
    running: Vec<Running>,
}

impl Names {
    const COUNT: usize = 1000;

    fn new() -> Names {
        let lab = lab();
        let servers = ["192.0.2.53", "192.0.2.61", "192.0.2.62", "192.0.2.63", "192.0.2.64"];
        let ns = lab.host("ns", &["192.0.2.53/24"]);
        let key = dns::key(&ns, "bench");
        let records = (0..Names::COUNT).fold(String::new(), |mut all, n| {
            let _ = writeln!(all, "n{n} 3600 A 192.0.2.1");
            all
        });
        let mut running = vec![primary(&ns, servers[0], None, &key, &records)];
        for (n, addr) in (1..).zip(&servers[1..]) {
            let host = lab.host(&format!("r{n}"), &[&format!("{addr}/24")]);
            running.push(unbound(&host, addr, servers[0], "allow_snoop", ""));
        }
        let client = lab.host("client", &["192.0.2.1/24"]);
        let names = client.folder.join("names");
        let all: Vec<String> = (0..Names::COUNT).map(|n| format!("n{n}.{ZONE}\n")).collect();
        fs::write(&names, all.concat()).unwrap();
        let names = Names { lab, client, servers, names, running };
        // Cached everywhere, so that no row measures who was asked first.
        for server in &names.servers {
            names.client.sh(&format!("sed 's/$/ A/' {0} | dnsperf -s {server} -n 1 >/dev/null", names.names.display()));
        }
        names
    }

    fn check(&self, bench: &Bench, what: &str) -> Command {
        let [authority, resolvers @ ..] = self.servers;
        let line = format!("check {what} --authority {authority} --resolver {} --gap 0s", resolvers.join(","));
        on(&self.client, bench.binary("dns"), &line)
    }

    fn measure(self, count: usize, mut ours: impl FnMut() -> Took + Send + 'static, mut peer: Command) -> Pairs {
        let pairs = self.client.inside(move || Pairs::measure(count, &mut ours, || run_well(&mut peer)));
        let pairs = pairs.join().unwrap();
        drop((self.running, self.lab));
        pairs
    }

    /// `program` for each server, one after the other.
    fn each(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("for server in {}; do {program}; done", self.servers.join(" ")));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

fn dns_check(name: &str, bench: &Bench, report: &mut Report) {
    let (scene, count) = (Names::new(), bench.pairs(50));
    let mut ours = scene.check(bench, &format!("n1.{ZONE}"));
    let peer = scene.each(&format!("dig @$server n1.{ZONE}"));
    let pairs = scene.measure(count, move || run_well(&mut ours), peer);
    report.pairs(name, &pairs, Some(0.3), Some(0.3), "");
}

fn dns_check_many(name: &str, bench: &Bench, report: &mut Report, peer: &str, bar: Option<f64>) {
    let (scene, count) = (Names::new(), bench.pairs(20));
    let (mut ours, names) = (scene.check(bench, "-"), scene.names.clone());
    let peer = scene.each(&peer.replace("NAMES", &names.display().to_string()));
    let pairs = scene.measure(count, move || run_well(ours.stdin(File::open(&names).unwrap())), peer);
    report.pairs(name, &pairs, bar, None, ", ours asks resolvers twice");
}

fn dns_check_kdig(name: &str, bench: &Bench, report: &mut Report) {
    dns_check_many(name, bench, report, "xargs kdig @$server <NAMES", Some(1.0));
}

fn dns_check_dnsperf(name: &str, bench: &Bench, report: &mut Report) {
    dns_check_many(name, bench, report, "sed 's/$/ A/' NAMES | dnsperf -s $server -n 1", None);
}

fn dns_trace(name: &str, bench: &Bench, report: &mut Report) {
    const SECONDS: u32 = 10;
    let lab = lab();
    let (ns, client) = (lab.host("ns", &["192.0.2.53/24"]), lab.host("client", &["192.0.2.1/24"]));
    let key = dns::key(&ns, "bench");
    let _server = primary(&ns, "192.0.2.53", None, &key, "n0 5 A 192.0.2.1");
    let servers: Vec<String> = (1..=16).map(|n| format!("192.0.2.{}", 100 + n)).collect();
    ns.sh(&servers.iter().map(|addr| format!("ip addr add {addr}/24 dev eth0; ")).collect::<String>());
    eventually("BIND listens on all of them", Duration::from_secs(90), || {
        ns.sh("ss -Hlnu").matches(":53 ").count() > servers.len()
    });
    let line = format!("trace n0.{ZONE} --until 192.0.2.2 --authority {} --timeout {SECONDS}s", servers.join(","));
    let mut command = on(&client, bench.binary("dns"), &line);
    command.stderr(Stdio::null());
    let took = client.inside(move || run(&mut command).0).join().unwrap();
    let per_cent = took.cpu.as_secs_f64() / took.wall.as_secs_f64() * 100.0;
    let holds = Some(per_cent <= 5.0);
    report.fact(name, "16 servers", &format!("{per_cent:.2} % of a core"), holds, &json!({"cpu_pct": per_cent}));
}

/// The same asked of three members of etcd by ours and by etcdctl; `{n}` is another number each time.
fn store(name: &str, bench: &Bench, report: &mut Report, ours: &'static str, peer: &'static str) {
    let lab = lab();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let etcd = Etcd::start(&lab, "192.0.2");
    etcd.ctl(&host, "put a 0");
    let (count, program, url) = (bench.pairs(50), bench.binary("store"), etcd.url());
    let endpoints = url.replace("etcd:", "");
    let folder = host.folder.clone();
    let mut number = 0;
    let mut next = move |line: &str| {
        number += 1;
        line.replace("{n}", &number.to_string())
    };
    let pairs = host.inside(move || {
        let next = std::cell::RefCell::new(&mut next);
        let line = |line: &str| (next.borrow_mut())(line);
        let run_ours = || {
            let mut command = quiet(&program, &line(ours));
            command.env("FAILOVER_STORE", &url).env("FAILOVER_STATE_DIR", &folder).env("FAILOVER_NODE", "n1");
            run_well(&mut command)
        };
        let run_peer = || {
            let mut command = quiet("etcdctl", &format!("--endpoints={endpoints} {}", line(peer)));
            run_well(command.env("ETCDCTL_API", "3"))
        };
        Pairs::measure(count, run_ours, run_peer)
    });
    report.pairs(name, &pairs.join().unwrap(), Some(1.0), Some(1.0), "");
    drop((etcd, lab));
}

fn store_get(name: &str, bench: &Bench, report: &mut Report) {
    store(name, bench, report, "get a", "get a");
}

fn store_put(name: &str, bench: &Bench, report: &mut Report) {
    store(name, bench, report, "put a {n}", "put a {n}");
}

fn store_lock(name: &str, bench: &Bench, report: &mut Report) {
    store(name, bench, report, "lock L -- /bin/true", "lock L /bin/true");
}

// One start.

fn vip_show(name: &str, bench: &Bench, report: &mut Report) {
    let lab = lab();
    let host = lab.host("n1", &["192.0.2.1/24", "192.0.2.10/24", "2001:db8::1/64"]);
    let (count, vip) = (bench.pairs(300), bench.binary("vip"));
    let (mut ours, mut peer) = (on(&host, vip, "show"), quiet("ip", "-j addr"));
    let pairs = host.inside(move || Pairs::measure(count, || run_well(&mut ours), || run_well(&mut peer)));
    report.pairs(name, &pairs.join().unwrap(), Some(1.0), Some(1.0), "");
}

const CLUSTER: &str = "192.0.2.100";
const INIT: &str = "init 192.0.2.100 --dev eth0 --mac 01:02:03:04:05:06 --total 8 --seed 0 --local 1-4";

fn bucket_show(name: &str, bench: &Bench, report: &mut Report) {
    let lab = lab();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let (count, bucket) = (bench.pairs(100), bench.binary("bucket"));
    let mut init = on(&host, &bucket, INIT);
    let mut ours = on(&host, &bucket, &format!("show {CLUSTER}"));
    let mut peer = quiet("nft", &format!("-j list table ip failover_{}", CLUSTER.replace('.', "_")));
    let pairs = host.inside(move || {
        run_well(&mut init);
        Pairs::measure(count, || run_well(&mut ours), || run_well(&mut peer))
    });
    report.pairs(name, &pairs.join().unwrap(), Some(1.4), Some(1.4), "");
}

/// A check script of keepalived's kind: a shell and nc.
fn health_tcp(name: &str, bench: &Bench, report: &mut Report) {
    let lab = lab();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let (count, health) = (bench.pairs(300), bench.binary("health"));
    let listener = host.inside(|| std::net::TcpListener::bind("192.0.2.1:80").unwrap()).join().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let mut ours = on(&host, health, "tcp 192.0.2.1:80");
    let mut peer = Command::new("sh");
    peer.args(["-c", "nc -z -w 2 192.0.2.1 80"]).stdin(Stdio::null()).stdout(Stdio::null());
    let pairs = host.inside(move || Pairs::measure(count, || run_well(&mut ours), || run_well(&mut peer)));
    report.pairs(name, &pairs.join().unwrap(), Some(1.0), Some(1.0), "");
}

// Bulk.

/// Five million addresses that look like a log's: no order, all lengths.
struct Addresses(PathBuf);

impl Addresses {
    fn new() -> Addresses {
        let path = std::env::temp_dir().join(format!("{}-addresses", prefix()));
        let mut text = String::with_capacity(75_000_000);
        let mut state = 1_u32;
        for _ in 0..5_000_000 {
            // The 32 bit generator of Numerical Recipes; its high bits are good enough here.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let _ = writeln!(text, "{}", Ipv4Addr::from(state));
        }
        fs::write(&path, text).unwrap();
        Addresses(path)
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn bulk(bench: &Bench, args: &str) -> Pairs {
    let input = Addresses::new();
    let ours = || run_well(&mut reading(quiet(bench.binary("hash-owner"), args), &input.0));
    Pairs::measure(bench.pairs(20), ours, || run_well(&mut reading(quiet("wc", "-l"), &input.0)))
}

fn hash_owner_brief(name: &str, bench: &Bench, report: &mut Report) {
    report.pairs(name, &bulk(bench, "--total 64 --seed 7 --brief"), Some(4.0), None, ", into /dev/null");
}

fn hash_owner_json(name: &str, bench: &Bench, report: &mut Report) {
    report.pairs(name, &bulk(bench, "--total 64 --seed 7"), Some(12.0), None, ", into /dev/null");
}

fn hash_owner_cat(name: &str, bench: &Bench, report: &mut Report) {
    let input = Addresses::new();
    let piped = |words: &str| {
        let mut shell = quiet("sh", "-c");
        shell.arg(format!("{words} | cat >/dev/null")).stdin(File::open(&input.0).unwrap());
        run_well(&mut shell)
    };
    let ours = bench.binary("hash-owner").display().to_string();
    for more in [" --brief", ""] {
        let pairs = Pairs::measure(
            bench.pairs(20),
            || piped(&format!("'{ours}' --total 64 --seed 7{more}")),
            || piped("wc -l"),
        );
        let what = if more.is_empty() { ", JSON" } else { ", --brief" };
        report.pairs(name, &pairs, None, None, what);
    }
}

// Placement.

fn place(name: &str, bench: &Bench, report: &mut Report) {
    const SERVICES: usize = 1000;
    let path = |what: &str| std::env::temp_dir().join(format!("{}-{what}", prefix()));
    let (input, services) = (path("nodes"), path("services"));
    let all: String = (0..SERVICES).map(|n| format!("service-{n} cpu=2 memory=4G bandwidth=100M\n")).collect();
    fs::write(&services, all).unwrap();
    for policy in ["least-services", "round-robin", "weighted"] {
        let line = format!("--node n1 --services {} --require zone=a --policy {policy}", services.display());
        for count in [1_000, 10_000, 100_000_u64] {
            let mut text = String::new();
            for n in 0..count {
                let part = n * 7919 % 1000;
                let _ = writeln!(
                    text,
                    "{{\"subject\":\"node-{n:06}\",\"status\":\"up\",\
                     \"total\":{{\"cpu\":64,\"memory_bytes\":274877906944,\"bandwidth_bps\":10000000000}},\
                     \"used\":{{\"cpu\":{},\"memory_bytes\":{},\"bandwidth_bps\":{}}},\"services\":{},\
                     \"labels\":{{\"zone\":\"{}\",\"ssd\":\"yes\"}}}}",
                    part % 40,
                    part * 200_000_000,
                    part * 7_000_000,
                    part % 9,
                    if n % 3 == 0 { 'b' } else { 'a' }
                );
            }
            fs::write(&input, text).unwrap();
            let mut walls: Vec<f64> = (0..bench.pairs(10))
                .map(|_| run_well(&mut reading(quiet(bench.binary("place"), &line), &input)).wall.as_secs_f64())
                .collect();
            walls.sort_by(f64::total_cmp);
            let (median, worst) = (walls[walls.len() / 2], walls[walls.len() - 1]);
            let what = format!("{policy}, {count} nodes x {SERVICES} services");
            let value = format!("{median:.3} s, at most {worst:.3} s of {} runs", walls.len());
            let raw =
                json!({"policy": policy, "nodes": count, "services": SERVICES, "median_s": median, "worst_s": worst});
            report.fact(name, &what, &value, (count == 100_000).then_some(median < 1.0), &raw);
        }
    }
    let _ = fs::remove_file(&input);
    let _ = fs::remove_file(&services);
}

// Announcements.

const N_ARPS: u32 = 4096;

/// The addresses that are announced: as many as asked for, from 198.18.0.1 on (RFC 2544).
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 1)) + number)
}

/// A file of `count` lines in the host's folder.
fn lines(host: &Host, name: &str, count: u32, line: impl Fn(Ipv4Addr) -> String) -> PathBuf {
    let path = host.folder.join(name);
    fs::write(&path, (0..count).map(|number| line(address(number)) + "\n").collect::<String>()).unwrap();
    path
}

/// Two hosts, the first with all the addresses.
fn announcer(lab: &Lab) -> (Host, Host, PathBuf) {
    let (host, other) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &["192.0.2.2/24"]));
    let batch = lines(&host, "batch", N_ARPS, |addr| format!("addr add {addr}/32 dev eth0"));
    host.sh(&format!("ip -batch {}", batch.display()));
    let operands = lines(&host, "operands", N_ARPS, |addr| addr.to_string());
    (host, other, operands)
}

const ARP: &str = "arp - --dev eth0 --form request";

fn arp_arping(name: &str, bench: &Bench, report: &mut Report) {
    const SOME: u32 = 16;
    let lab = lab();
    let (host, other, operands) = announcer(&lab);
    // arping waits a second after each: three pairs are a minute.
    let (count, vip) = (bench.pairs(3), bench.binary("vip"));
    let mut ours = on(&host, vip, ARP);
    let pairs = host.inside(move || {
        Pairs::measure(
            count,
            || run_well(ours.stdin(File::open(&operands).unwrap())),
            || {
                let each = (0..SOME)
                    .map(|number| run(&mut quiet("arping", &format!("-U -q -c 1 -I eth0 {}", address(number)))).0);
                let all = each.reduce(|sum, one| Took { wall: sum.wall + one.wall, cpu: sum.cpu + one.cpu });
                all.unwrap().scaled(N_ARPS / SOME)
            },
        )
    });
    report.pairs(name, &pairs.join().unwrap(), Some(0.01), None, ", peer of 16, scaled");
    drop(other);
}

fn arp_sendmmsg(name: &str, bench: &Bench, report: &mut Report) {
    let lab = lab();
    let (host, other, operands) = announcer(&lab);
    let (count, vip) = (bench.pairs(100), bench.binary("vip"));
    let mut ours = on(&host, vip, ARP);
    let mut peer = quiet(std::env::current_exe().unwrap(), &format!("--sendmmsg eth0 {N_ARPS}"));
    let received = || {
        let said: Value = serde_json::from_str(&other.sh("ip -json -stats link show dev eth0")).unwrap();
        said[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    };
    let before = received();
    let pairs = host.inside(move || {
        Pairs::measure(count, || run_well(ours.stdin(File::open(&operands).unwrap())), || run_well(&mut peer))
    });
    let pairs = pairs.join().unwrap();
    // One pair is not measured; the neighbour counts that neither cheats.
    let wanted = 2 * (count as u64 + 1) * u64::from(N_ARPS);
    assert!(received() - before >= wanted, "{} frames came, {wanted} were sent", received() - before);
    report.pairs(name, &pairs, Some(2.0), None, ", both from start to end");
}

/// The bare loop as a program: the same frames, made, sent, and nothing said.
pub(crate) fn bare_loop(words: &mut dyn Iterator<Item = String>) -> ExitCode {
    let (dev, count) = (words.next().unwrap(), words.next().unwrap().parse::<u32>().unwrap());
    let ifindex = nix::net::if_::if_nametoindex(dev.as_str()).unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|number| arp::announcement(arp::Form::Request, mac, mac, address(number), Mac::BROADCAST))
        .collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let socket = raw::packet_socket(ifindex, &dev, 0).unwrap();
    let mut sent = 0;
    while sent < frames.len() {
        let (more, why) = raw::send_many(socket.as_fd(), &frames[sent..]);
        assert!(why.is_none(), "{why:?}");
        sent += more;
    }
    ExitCode::SUCCESS
}

// Many addresses.

fn add_1000(name: &str, bench: &Bench, report: &mut Report) {
    add(name, bench, report, 1_000, 0.7);
}

fn add_10000(name: &str, bench: &Bench, report: &mut Report) {
    add(name, bench, report, 10_000, 0.8);
}

fn add(name: &str, bench: &Bench, report: &mut Report, n_addresses: u32, bar: f64) {
    let lab = lab();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let operands = lines(&host, "operands", n_addresses, |addr| format!("{addr}/32"));
    let batch = lines(&host, "batch", n_addresses, |addr| format!("addr add {addr}/32 dev eth0"));
    let (count, vip) = (bench.pairs(20), bench.binary("vip"));
    let mut ours = on(&host, vip, "add - --dev eth0");
    let mut peer = quiet("ip", &format!("-batch {}", batch.display()));
    let fresh = move || {
        // Taking ten thousand away one by one takes longer than adding them; the interface takes them along.
        for line in
            ["link del eth0", "link add eth0 type veth peer name peer0", "link set peer0 up", "link set eth0 up"]
        {
            run_well(&mut quiet("ip", line));
        }
    };
    let pairs = host.inside(move || {
        let full = || {
            let said = Command::new("ip").args(["-o", "-4", "addr", "show", "dev", "eth0"]).output().unwrap().stdout;
            assert_eq!(String::from_utf8(said).unwrap().lines().count(), n_addresses as usize);
        };
        Pairs::measure(
            count,
            || {
                fresh();
                let took = run_well(ours.stdin(File::open(&operands).unwrap()));
                full();
                took
            },
            || {
                fresh();
                let took = run_well(&mut peer);
                full();
                took
            },
        )
    });
    report.pairs(name, &pairs.join().unwrap(), Some(bar), None, "");
}

// Heartbeats.

const RATE: u32 = 100_000;
const TICK: Duration = Duration::from_millis(1);

/// A receiver on its own core.
struct Receiver {
    child: Child,
    out: PathBuf,
}

impl Receiver {
    fn start(bench: &Bench, host: &Host, args: &str) -> Receiver {
        let key = key(host, "key", 1);
        let out = host.folder.join("out");
        let mut command = on(host, bench.binary("heartbeat"), &format!("recv --key {} {args}", key.display()));
        command.stdout(File::create(&out).unwrap());
        let child = host.inside(move || {
            pin(0);
            command.spawn().unwrap()
        });
        let receiver = Receiver { child: child.join().unwrap(), out };
        eventually("it listens", Duration::from_secs(5), || host.sh("ss -Hlun").contains(":6940"));
        receiver
    }

    /// CPU time so far, of its one thread (proc(5), `schedstat`).
    fn cpu(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }

    fn memory_kib(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// All records so far, whole lines only.
    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(host: &Host, name: &str, byte: u8) -> PathBuf {
    let path = host.folder.join(name);
    fs::write(&path, format!("{byte:02x}").repeat(32)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A payload of 300 bytes, another with each beat as a sender's is.
fn payload(node: &str, sequence: u64) -> String {
    let mut text = format!(
        r#"{{"kind":"bucket.state","v":1,"time":"2026-11-30T00:00:{:02}.{:06}Z","host":"{node}","subject":"192.0.2.100","own":"1-22,40","draining":"","epoch":7,"config":"0123456789abcdef","valid_for_ms":{}.125"#,
        sequence / 1_000_000 % 60,
        sequence % 1_000_000,
        2000 + sequence % 1000,
    );
    let missing = 300 - text.len() - r#","reason":""}"#.len();
    let _ = write!(text, r#","reason":"{}"}}"#, "x".repeat(missing));
    assert_eq!(text.len(), 300);
    text
}

/// Signed frames of many nodes, each newer than the last.
struct Signer {
    keys: Keys,
    n_nodes: u64,
    next: u64,
}

impl Signer {
    fn frames(&mut self, count: u32) -> Vec<Vec<u8>> {
        let mut echoes = Vec::new();
        (0..u64::from(count))
            .map(|_| {
                let (node, sequence) = (self.next % self.n_nodes, self.next / self.n_nodes + 1);
                self.next += 1;
                let name = format!("node{node}");
                let frame = Frame {
                    goodbye: false,
                    extra: false,
                    link: 0,
                    incarnation: 1,
                    sequence,
                    sent_us: sequence,
                    nonce: node + 1,
                    name: &name,
                    payload: &payload(&name, sequence),
                    echoes: Echoes::write(&[], &mut echoes),
                };
                let mut bytes = Vec::new();
                frame.encode(ClusterHash::new("failover"), Some(&self.keys), &mut bytes).unwrap();
                bytes
            })
            .collect()
    }
}

/// Sends frames at `rate` a second from a core of its own; how many left, and how long it took.
fn flood(host: &Host, frames: Vec<Vec<u8>>, rate: u32) -> (u64, Duration) {
    let thread = host.inside(move || {
        pin(1);
        let socket = UdpSocket::bind("192.0.2.2:0").unwrap();
        socket.connect("192.0.2.1:6940").unwrap();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let started = Instant::now();
        let mut sent = 0;
        while sent < frames.len() {
            let due = started.elapsed().as_micros() * u128::from(rate) / 1_000_000 + u128::from(rate / 1000);
            let due = usize::try_from(due).unwrap().min(frames.len());
            while sent < due {
                let (more, why) = raw::send_many(socket.as_fd(), &frames[sent..due]);
                assert!(why.is_none(), "{why:?}");
                sent += more;
            }
            std::thread::sleep(TICK);
        }
        (sent as u64, started.elapsed())
    });
    thread.join().unwrap()
}

/// Datagrams that the receiver's socket dropped, by the kernel's own count.
fn dropped(host: &Host) -> u64 {
    let text = host.sh("cat /proc/net/udp");
    let drops = text.lines().skip(1).filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    drops.sum()
}

fn keys(path: &Path) -> Keys {
    Keys::parse(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Whether the median round had the rate that the bar names, but for three in a hundred.
fn is_full(rates: &mut [u128]) -> bool {
    rates.sort_unstable();
    rates[rates.len() / 2] >= u128::from(RATE) * 97 / 100
}

/// A rate and a share of a core, as a sentence.
fn pace(sent: u64, took: Duration, cpu: Duration) -> String {
    let rate = f64::from(u32::try_from(sent).unwrap()) / took.as_secs_f64();
    let share = cpu.as_secs_f64() / took.as_secs_f64() * 100.0;
    format!("{rate:.0} frames/s, receiver's core {share:.0} %")
}

/// What a receiver was given, and how it fared.
#[derive(Default)]
struct Rounds {
    sent: u64,
    memory: Vec<u64>,
    rates: Vec<u128>,
}

/// Floods the receiver on the first host from the second, at the full rate for 5 s a round.
fn rounds(
    name: &str,
    bench: &Bench,
    report: &mut Report,
    (to, from): (&Host, &Host),
    receiver: &Receiver,
    signer: &mut Signer,
) -> Rounds {
    const SECONDS: u32 = 5;
    let mut rounds = Rounds::default();
    for round in 1..=bench.pairs(4) {
        let frames = signer.frames(RATE * SECONDS);
        let before = receiver.cpu();
        let (sent, took) = flood(from, frames, RATE);
        within(Duration::from_secs(1), || queued(to) == 0);
        rounds.sent += sent;
        rounds.memory.push(receiver.memory_kib());
        rounds.rates.push(u128::from(sent) * 1_000_000 / took.as_micros());
        let used = receiver.cpu().saturating_sub(before);
        let raw = json!({"round": round, "sent": sent, "wall_s": took.as_secs_f64(), "cpu_s": used.as_secs_f64(),
            "dropped": dropped(to), "memory_kib": rounds.memory.last()});
        report.fact(name, &format!("round {round}"), &pace(sent, took, used), None, &raw);
    }
    rounds
}

impl Rounds {
    fn report_memory(&self, name: &str, report: &mut Report) {
        let (first, last) = (self.memory[0], self.memory[self.memory.len() - 1]);
        let text = format!("{first} KiB after the first round, {last} KiB after the last");
        report.fact(name, "memory flat", &text, Some(last <= first + first / 20), &json!(self.memory));
    }
}

/// Waits until it is so, or the time is over; the figures tell which.
fn within(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that wait in the sockets of a host.
fn queued(host: &Host) -> u64 {
    let text = host.sh("cat /proc/net/udp");
    let queues = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)?.split_once(':'));
    queues.filter_map(|(_, received)| u64::from_str_radix(received, 16).ok()).sum()
}

fn signed(name: &str, bench: &Bench, report: &mut Report) {
    const N_NODES: u64 = 100;
    let lab = lab();
    let (n1, n2) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &["192.0.2.2/24"]));
    let receiver = Receiver::start(bench, &n1, "--bind 192.0.2.1 --follow");
    let mut signer = Signer { keys: keys(&key(&n2, "key", 1)), n_nodes: N_NODES, next: 0 };
    // Each node comes up first: that writes files, once in its life.
    let mut sent = flood(&n2, signer.frames(10 * u32::try_from(N_NODES).unwrap()), 1_000).0;
    let mut rounds = rounds(name, bench, report, (&n1, &n2), &receiver, &mut signer);
    sent += rounds.sent;
    let counts = || {
        let mut links: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for record in receiver.records() {
            if let (Some(node), Some(link)) = (record["subject"].as_str(), record["links"].get(0)) {
                let number = |key: &str| link[key].as_u64().unwrap_or_default();
                links.insert(node.to_owned(), (number("received"), number("lost")));
            }
        }
        links.values().fold((0, 0), |sum, link| (sum.0 + link.0, sum.1 + link.1))
    };
    // The next renewal of every node tells what was taken in.
    within(Duration::from_secs(5), || counts().0 == sent);
    let (received, lost) = counts();
    let drops = dropped(&n1);
    let text = format!("{sent} sent, {received} taken in, {lost} missed by sequence, {drops} dropped by the socket");
    // A sender that was held up proves nothing about the receiver.
    let whole = received == sent && lost == 0 && drops == 0 && is_full(&mut rounds.rates);
    report.fact(
        name,
        "none lost at the full rate",
        &text,
        Some(whole),
        &json!({"sent": sent, "received": received, "dropped": drops}),
    );
    rounds.report_memory(name, report);
}

fn forged(name: &str, bench: &Bench, report: &mut Report) {
    const N_PEERS: usize = 10;
    let lab = lab();
    let (n1, n2) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &["192.0.2.2/24"]));
    let names: Vec<String> = (1..=N_PEERS).map(|number| format!("real{number}")).collect();
    let args = format!("--bind 192.0.2.1 --follow --dead-after 1s --expect {}", names.join(","));
    let receiver = Receiver::start(bench, &n1, &args);
    let (right, wrong) = (key(&n2, "key", 1), key(&n2, "wrong", 2));
    let senders: Vec<_> = names.iter().map(|node| sender(bench, &n2, node, &right)).collect();
    let up = |records: &[Value]| {
        let last =
            |node: &String| records.iter().rfind(|record| record["subject"] == **node).map(|r| r["status"].clone());
        names.iter().all(|node| last(node) == Some("up".into()))
    };
    eventually("all are up", Duration::from_secs(5), || up(&receiver.records()));
    let mut signer = Signer { keys: keys(&wrong), n_nodes: N_PEERS as u64, next: 0 };
    let seen = receiver.records().len();
    let mut rounds = rounds(name, bench, report, (&n1, &n2), &receiver, &mut signer);
    // Beyond dead-after and the renewal after that: that no peer falls has no event.
    std::thread::sleep(Duration::from_millis(2500));
    let records = receiver.records();
    let refused: u64 = records.iter().filter_map(|record| record["refused"]["signature"].as_u64()).sum();
    let bad = |record: &&Value| record["event"] == "down" || record["event"] == "late";
    let fell = records[seen..].iter().filter(bad).count();
    let text = format!("{fell} times late or down; {refused} of {} refused, {} dropped", rounds.sent, dropped(&n1));
    let holds = fell == 0 && up(&records) && is_full(&mut rounds.rates);
    report.fact(name, "10 peers stay up at the full rate", &text, Some(holds), &json!({"fell": fell}));
    rounds.report_memory(name, report);
    drop(senders);
}

/// A real peer that beats ten times a second.
fn sender(bench: &Bench, host: &Host, node: &str, key: &Path) -> Receiver {
    let out = host.folder.join(format!("out-{node}"));
    let args = format!("send --to 192.0.2.1 --interval 100ms --node {node} --key {}", key.display());
    let mut command = on(host, bench.binary("heartbeat"), &args);
    command.stdout(File::create(&out).unwrap());
    let child = host.inside(move || {
        pin(1);
        command.spawn().unwrap()
    });
    Receiver { child: child.join().unwrap(), out }
}

// What is told.

const BINARIES: [&str; 5] = ["bucket", "hash-owner", "health", "heartbeat", "vip"];

fn sizes(name: &str, bench: &Bench, report: &mut Report) {
    for binary in BINARIES {
        let bytes = fs::metadata(bench.binary(binary)).unwrap().len();
        report.fact(name, binary, &format!("{} kB", bytes / 1000), None, &json!(bytes));
    }
}

fn instructions(name: &str, bench: &Bench, report: &mut Report) {
    let lab = lab();
    let host = lab.host("n1", &["192.0.2.1/24", "192.0.2.10/24", "2001:db8::1/64"]);
    let path = |binary: &str| bench.binary(binary).display().to_string();
    let lines = [
        ("vip show".to_owned(), format!("{} show", path("vip"))),
        ("ip -j addr".to_owned(), "ip -j addr".to_owned()),
        ("bucket --version".to_owned(), format!("{} --version", path("bucket"))),
        ("health load".to_owned(), format!("{} load --limit 100000", path("health"))),
        ("heartbeat --version".to_owned(), format!("{} --version", path("heartbeat"))),
        ("hash-owner 192.0.2.1".to_owned(), format!("{} --total 8 192.0.2.1", path("hash-owner"))),
        ("true".to_owned(), "true".to_owned()),
    ];
    for (what, line) in lines {
        let mut command = on(&host, "valgrind", "--tool=callgrind --callgrind-out-file=/dev/null");
        command.args(line.split_whitespace());
        let said = host.inside(move || command.output().unwrap().stderr).join().unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        let count = said.lines().find_map(|line| line.split("refs:").nth(1));
        let count: u64 = count.unwrap_or_else(|| panic!("{said}")).trim().replace(',', "").parse().unwrap();
        report.fact(name, &what, &format!("{} k", count / 1000), None, &json!(count));
    }
}

// Gateways.

/// Both send one a millisecond, so wall time is what starting and ending add to a second.
fn gw_probe_1000(name: &str, bench: &Bench, report: &mut Report) {
    const TARGETS: u32 = 1000;
    let lab = lab();
    let (host, gateway) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &["192.0.2.2/24"]));
    host.sh("ip route add default via 192.0.2.2");
    let batch = lines(&gateway, "batch", TARGETS, |addr| format!("addr add {addr}/32 dev lo"));
    gateway.sh(&format!("ip -batch {}", batch.display()));
    let (count, gw) = (bench.pairs(20), bench.binary("gw"));
    let targets: Vec<String> = (0..TARGETS).map(|number| address(number).to_string()).collect();
    let ours = format!(
        "probe --gateway 192.0.2.2 --count 1 --spacing 1ms --response-timeout 500ms --need {TARGETS} --target {}",
        targets.join(",")
    );
    let mut ours = on(&host, gw, &ours);
    let mut peer = quiet("fping", &format!("-c1 -q -i1 -t500 {}", targets.join(" ")));
    peer.stderr(Stdio::null());
    let pairs = host.inside(move || Pairs::measure(count, || run_well(&mut ours), || run_well(&mut peer)));
    report.pairs(name, &pairs.join().unwrap(), Some(1.0), Some(1.0), ", one a ms");
    drop(gateway);
}

fn gw_probe_64(name: &str, bench: &Bench, report: &mut Report) {
    let lab = lab();
    let (host, gateway) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &[]));
    gateway.sh("ip addr add 198.18.0.1/32 dev lo");
    let gateways: Vec<String> = (10..74).map(|number| format!("192.0.2.{number}")).collect();
    gateway.sh(&gateways.iter().map(|addr| format!("ip addr add {addr}/24 dev eth0; ")).collect::<String>());
    let named: String = gateways.iter().map(|addr| format!("--gateway {addr} ")).collect();
    let mut ours = on(&host, bench.binary("gw"), &format!("probe {named} --target 198.18.0.1"));
    let count = bench.pairs(10);
    let mut runs = host.inside(move || (0..count).map(|_| run_well(&mut ours)).collect::<Vec<Took>>()).join().unwrap();
    runs.sort_by_key(|took| took.wall);
    let Took { wall, cpu } = runs[runs.len() / 2];
    let value = format!("{:.1} ms, CPU {:.1} ms", wall.as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e3);
    report.fact(name, "64 gateways", &value, None, &json!({"wall_s": wall.as_secs_f64(), "cpu_s": cpu.as_secs_f64()}));
}

// Take-over.

fn takeover_1000(name: &str, bench: &Bench, report: &mut Report) {
    takeover(name, bench, report, 1000);
}

fn takeover_100(name: &str, bench: &Bench, report: &mut Report) {
    takeover(name, bench, report, 100);
}

fn takeover_10(name: &str, bench: &Bench, report: &mut Report) {
    takeover(name, bench, report, 10);
}

/// Ours and the peer in turn, each with two hosts of its own; a client probes every millisecond.
fn takeover(name: &str, bench: &Bench, report: &mut Report, interval_ms: u64) {
    for fault in [Fault::Cut, Fault::Freeze] {
        let scene = |whose| Scene::new(lab(), &bench.binaries, [whose; 2], interval_ms);
        let (ours, peer) = (scene(Whose::Ours), scene(Whose::Keepalived));
        let (lasts, window) = (Duration::from_millis(interval_ms * 4 + 300), Duration::from_millis(interval_ms + 300));
        let mut gaps = [Vec::new(), Vec::new()];
        for _ in 0..bench.pairs(20) {
            for (scene, gaps) in [&ours, &peer].into_iter().zip(&mut gaps) {
                gaps.push(scene.play(fault, lasts, window).gap);
                scene.settles();
            }
        }
        let [ours, peer] = gaps.map(|mut gaps| {
            gaps.sort();
            let at = |tenth: usize| gaps[(gaps.len() * tenth / 10).min(gaps.len() - 1)].as_secs_f64() * 1e3;
            (at(5), at(9))
        });
        let what = format!("{fault:?}").to_lowercase();
        let ratio = (ours.0 / peer.0, ours.1 / peer.1);
        let value = format!(
            "median {:.1} / {:.1} ms = {:.2}, 90 % {:.1} / {:.1} ms = {:.2}",
            ours.0, peer.0, ratio.0, ours.1, peer.1, ratio.1
        );
        let raw = json!({"ours_ms": [ours.0, ours.1], "peer_ms": [peer.0, peer.1], "runs": bench.pairs(20)});
        // The client's probes are a millisecond apart: less than that it cannot tell apart.
        report.fact(name, &what, &value, Some(ours.0.round() <= peer.0.round()), &raw);
    }
}

/// What a process and its children have used of the CPU.
fn cpu_of(pids: &[u32]) -> Duration {
    let ticks = |pid: &u32| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let rest: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        rest[11].parse::<u64>().unwrap() + rest[12].parse::<u64>().unwrap()
    };
    Duration::from_millis(pids.iter().map(ticks).sum::<u64>() * 10)
}

/// 255 routers in one process on each of two hosts, at 1 s: ours against keepalived's, as master and as backup.
fn vrrp_255(name: &str, bench: &Bench, report: &mut Report) {
    const SPAN: Duration = Duration::from_secs(20);
    let measure = |whose: Whose| -> [Duration; 2] {
        let lab = lab();
        let hosts: Vec<Host> = (1..=2).map(|n| lab.host(&format!("n{n}"), &[&format!("198.51.100.{n}/24")])).collect();
        let mut running = Vec::new();
        let mut peers = Vec::new();
        let pids: Vec<Vec<u32>> = hosts
            .iter()
            .zip([200, 100])
            .map(|(host, priority)| match whose {
                Whose::Ours => {
                    let lines: String = (1..=255).map(|vrid| format!("{vrid} vip=192.0.2.{vrid}/32\n")).collect();
                    fs::write(host.folder.join("routers"), lines).unwrap();
                    let line = format!(
                        "vrrp run --dev eth0 --priority {priority} --config {}",
                        host.folder.join("routers").display()
                    );
                    // With the renewals, and with what acts on them.
                                        let mut run =
                        host.command_of(&bench.binaries, &line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
                    let elections = run.stdout.take().unwrap();
                    let out = File::create(host.folder.join("applied")).unwrap();
                    let mut apply = host.command_of(&bench.binaries, "vip apply --follow");
                    let apply = apply.stdin(elections).stdout(out).spawn().unwrap();
                    let pids = vec![run.id(), apply.id()];
                    running.extend([run, apply]);
                    pids
                }
                Whose::Keepalived => {
                    let instances: String = (2..=255)
                        .map(|vrid| {
                            format!(
                                "vrrp_instance v{vrid} {{\n state BACKUP\n interface eth0\n virtual_router_id {vrid}\n \
                                 priority {priority}\n advert_int 1\n virtual_ipaddress {{\n 192.0.2.{vrid}/32\n }}\n}}\n"
                            )
                        })
                        .collect();
                    let first = format!("priority {priority}\n advert_int 1\n virtual_ipaddress {{\n 192.0.2.1/32\n }}");
                    // The body's instance is VRID 51 by name; the generated ones skip it.
                    let peer = Keepalived::start_with(host, 3, &first, &instances.replace("virtual_router_id 51\n", "virtual_router_id 1\n"));
                    let pids = peer.pids();
                    peers.push(peer);
                    pids
                }
            })
            .collect();
        // Until every election is over, and the second announcement too.
        eventually("one host has all of them", Duration::from_secs(30), || {
            let count = |host: &Host| host.sh("ip -o addr show dev eth0").matches(" 192.0.2.").count();
            count(&hosts[0]) == 255 && count(&hosts[1]) == 0
        });
        std::thread::sleep(Duration::from_secs(8));
        let before: Vec<Duration> = pids.iter().map(|pids| cpu_of(pids)).collect();
        std::thread::sleep(SPAN);
        let used: Vec<Duration> =
            pids.iter().zip(before).map(|(pids, before)| cpu_of(pids).saturating_sub(before)).collect();
        for mut child in running {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        [used[0], used[1]]
    };
    let (ours, peer) = (measure(Whose::Ours), measure(Whose::Keepalived));
    for (what, ours, peer) in [("masters", ours[0], peer[0]), ("backups", ours[1], peer[1])] {
        let ratio = ours.as_secs_f64() / peer.as_secs_f64().max(0.01);
        let value = format!("{} / {} ms of {} s = {ratio:.2}", ours.as_millis(), peer.as_millis(), SPAN.as_secs());
        let raw = json!({"ours_ms": ours.as_millis(), "peer_ms": peer.as_millis()});
        report.fact(name, what, &value, Some(ratio <= 1.0), &raw);
    }
}
