//! `vip apply --lease`: what is carried answers only while elections renew it, as clients see it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{Host, Keepalived, Lab, Running, eventually};

const SECOND: Duration = Duration::from_secs(1);
/// A machine with other work: a frame may be stamped this much later than it was decided on.
const SLACK: Duration = Duration::from_millis(100);

/// One family, as `vrrp` tests have it.
#[derive(Clone, Copy)]
struct Way {
    vip: &'static str,
    all: &'static str,
}

const WAYS: [Way; 2] = [
    Way { vip: "192.0.2.10", all: "192.0.2.10/24" },
    Way { vip: "2001:db8::10", all: "fe80::200:5eff:fe00:233/64,2001:db8::10/64" },
];

fn election(vip: &str, mine: bool, more: &str) -> String {
    let len = if vip.contains(':') { 64 } else { 24 };
    format!(
        "{{\"kind\":\"vip.elect\",\"v\":1,\"subject\":\"{vip}\",\"prefix_len\":{len},\"dev\":\"eth0\",\"mine\":{mine}{more}}}\n"
    )
}

fn has(host: &Host, vip: &str) -> bool {
    host.sh("ip addr show dev eth0").contains(&format!(" {vip}/"))
}

/// Whether rules of a lease are there.
fn has_rules(host: &Host) -> bool {
    host.sh("nft list tables").contains("failover_vip_")
}

fn answers(client: &Host, vip: &str) -> bool {
    client.try_sh(&format!("ip neigh flush to {vip}; ping -c1 -W1 -q {vip}")).0
}

/// Everything that a host says from an address, as its neighbours see it: packets, ARP, advertisements.
struct Tap<'a> {
    running: Running,
    vip: &'a str,
}

impl<'a> Tap<'a> {
    fn start(client: &Host, of: &Host, vip: &'a str) -> Tap<'a> {
        let filter = format!("ether src 02:00:00:00:00:{:02x}", of.number);
        let running = client.start_shell(&format!("exec tcpdump -i eth0 -n -tt -l {filter}"));
        eventually("it listens", 5 * SECOND, || running.complaints().contains("listening on"));
        Tap { running, vip }
    }

    /// What came after `since`: how many packets, and how many words to neighbours.
    fn since(&self, since: SystemTime) -> [usize; 2] {
        let since = since.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let vip = self.vip;
        let mut counts = [0; 2];
        for line in self.running.text().lines() {
            let Some((stamp, said)) = line.split_once(' ') else { continue };
            if stamp.parse::<f64>().unwrap() < since {
                continue;
            }
            let is_ndp = said.contains("neighbor advertisement") && said.contains(vip);
            if is_ndp || said.contains(&format!("Reply {vip} is-at")) || said.contains(&format!("tell {vip},")) {
                counts[1] += 1;
            } else if said.starts_with(&format!("IP {vip} >")) || said.starts_with(&format!("IP6 {vip} >")) {
                counts[0] += 1;
            }
        }
        counts
    }
}

/// Two clients that ask without a pause: one knows the MAC and pings, the other asks for it each time.
fn ask_without_pause(client: &Host, asker: &Host, vip: &str) -> [Running; 2] {
    client.sh(&format!("ip neigh replace {vip} dev eth0 lladdr 02:00:00:00:00:01 nud permanent"));
    [
        client.start_shell(&format!("exec ping -n -i 0.01 {vip} >/dev/null")),
        asker.start_shell(&format!(
            "while :; do ip neigh flush to {vip} dev eth0; ping -n -c1 -W0.02 {vip} >/dev/null; done"
        )),
    ]
}

/// `vrrp run | vip apply --follow --lease`.
struct Router {
    run: Child,
    apply: Child,
}

impl Router {
    fn start(host: &Host, way: Way, more: &str, lease: &str) -> Router {
        let line = format!("vrrp run --dev eth0 --vrid 51 --priority 150 --vip {} {more}", way.all);
        let mut run = host.command(&line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let elections = run.stdout.take().unwrap();
        let file = |name: &str| std::fs::File::create(host.folder.join(name)).unwrap();
        let line = format!("vip apply --follow --lease {lease}");
        let mut apply = host.command(&line);
        let apply = apply.stdin(elections).stdout(file("applied")).stderr(file("said")).spawn().unwrap();
        Router { run, apply }
    }
}

fn signal(signal: Signal, which: &[&Child]) {
    for child in which {
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        for child in [&mut self.run, &mut self.apply] {
            let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGCONT);
        }
        let _ = self.run.kill();
        let _ = self.run.wait();
        let _ = self.apply.wait();
    }
}

fn applied(host: &Host, vip: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(host.folder.join("applied")).unwrap();
    let mut records = support::records(text.rsplit_once('\n').map_or("", |(whole, _)| whole));
    records.retain(|record| record["subject"] == vip);
    records
}

/// The applier, the router and both are frozen in turn, beside a keepalived that takes over when it hears nothing:
/// from D on not one frame, and one owner after the thaw.
#[test]
fn whatever_is_frozen_the_kernel_falls_silent_on_time() {
    let term = Duration::from_millis(200);
    for way in WAYS {
        for frozen in ["apply", "run", "both"] {
            let lab = Lab::new();
            let hosts: Vec<Host> = (1..=2)
                .map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n}/64")]))
                .collect();
            let client = lab.host("client", &["192.0.2.98/24", "2001:db8::98/64"]);
            let asker = lab.host("asker", &["192.0.2.99/24", "2001:db8::99/64"]);
            let addresses = way.all.replace(',', " dev eth0\n ");
            let body = format!("priority 100\n advert_int 0.1\n virtual_ipaddress {{\n {addresses} dev eth0\n }}");
            let _peer = Keepalived::start(&hosts[1], 3, &body);
            let router = Router::start(&hosts[0], way, "--interval 100ms --renew 50ms", "200ms");
            eventually("ours is master", 12 * SECOND, || has(&hosts[0], way.vip) && !has(&hosts[1], way.vip));
            let tap = Tap::start(&client, &hosts[0], way.vip);
            let word = Tap::start(&asker, &hosts[0], way.vip);
            let begun = SystemTime::now();
            let _asking = ask_without_pause(&client, &asker, way.vip);
            eventually("both are answered", 5 * SECOND, || tap.since(begun)[0] > 20 && word.since(begun)[1] > 3);
            let which: &[&Child] = match frozen {
                "apply" => &[&router.apply],
                "run" => &[&router.run],
                _ => &[&router.run, &router.apply],
            };
            signal(Signal::SIGSTOP, which);
            let lapsed = SystemTime::now() + term + SLACK;
            std::thread::sleep(Duration::from_millis(1200));
            let (packets, words) = (tap.since(lapsed), word.since(lapsed));
            assert_eq!((packets, words), ([0; 2], [0; 2]), "{frozen} frozen, {}", way.vip);
            // While the router speaks nobody else takes over.
            assert_eq!(has(&hosts[1], way.vip), frozen != "apply", "{frozen}");
            signal(Signal::SIGCONT, which);
            eventually("one owner that answers", 10 * SECOND, || {
                let owners: Vec<bool> = hosts.iter().map(|host| has(host, way.vip)).collect();
                owners.iter().filter(|owns| **owns).count() == 1
                    && hosts.iter().zip(&owners).all(|(host, owns)| !has_rules(host) || *owns)
                    && (word.since(SystemTime::now() - SECOND)[1] > 0) == owners[0]
            });
            if frozen == "apply" {
                assert!(has(&hosts[0], way.vip));
                let records = applied(&hosts[0], way.vip);
                let lost = records.iter().position(|record| record["role"] == "leave").unwrap();
                let again = records.iter().skip(lost).find(|record| record["role"] == "serve").unwrap();
                assert_eq!((&again["changed"], again["announced"].as_u64() > Some(0)), (&true.into(), true), "{again}");
            }
        }
    }
}

/// A lease that is longer than an election holds by itself: it counts from each word all the same.
#[test]
fn a_long_lease_is_renewed_by_short_words() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let router = Router::start(&host, WAYS[0], "--interval 300ms", "4s");
    eventually("ours is master", 12 * SECOND, || has(&host, "192.0.2.10"));
    std::thread::sleep(3 * SECOND);
    let left = host.run("vip show 192.0.2.10").ended(0).one()["lease_left_ms"].as_f64().unwrap();
    assert!(left > 2000.0, "renewed each third: {left}");
    let roles: Vec<Value> = applied(&host, "192.0.2.10").into_iter().map(|record| record["role"].clone()).collect();
    assert!(roles.iter().all(|role| role == "serve"), "{roles:?}");
    let said = std::fs::read_to_string(host.folder.join("said")).unwrap();
    assert!(said.contains("others take it over 600ms after the last word") && said.lines().count() == 1, "{said}");
    drop(router);
}

/// Renewed by delete and add, or in place: while elections come, nobody misses an answer.
#[test]
fn a_lease_that_is_renewed_is_not_noticed() {
    for (lease, wait) in [("900ms", 100), ("1s", 100)] {
        let lab = Lab::new();
        let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
        let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
        let mut run = host.start_fed(&format!("vip apply --follow --lease {lease}"));
        let both = |more: &str| election("192.0.2.10", true, more) + &election("2001:db8::10", true, more);
        run.feed(&both(""));
        run.wait_for("both", 5 * SECOND, |one| one["subject"] == "2001:db8::10" && one["changed"] == true);
        let pings = ["192.0.2.10", "2001:db8::10"]
            .map(|vip| client.start_shell(&format!("exec ping -q -n -i 0.01 -w 3 -W 1 {vip}")));
        for _ in 0..3400 / wait {
            run.feed(&both(",\"renewal\":true"));
            std::thread::sleep(Duration::from_millis(wait));
        }
        for ping in &pings {
            eventually("ping ends", 5 * SECOND, || ping.text().contains("packet loss"));
            assert!(ping.text().contains(" 0% packet loss"), "{lease}: {}", ping.text());
        }
        let shown = host.run("vip show 2001:db8::10").ended(0).one();
        let term = if lease == "1s" { 1000.0 } else { 900.0 };
        assert_eq!(shown["lease_ms"], term);
        let left = shown["lease_left_ms"].as_f64().unwrap();
        assert!(0.0 < left && left <= term, "{shown}");
        // Nothing is heard any more: everything is given back, and the run ends.
        assert_eq!(run.ends(5 * SECOND), 1);
        assert!(run.complaints().contains("for as long as the lease"), "{}", run.complaints());
        assert!(!has(&host, "192.0.2.10") && !has(&host, "2001:db8::10") && !has_rules(&host));
    }
}

/// How each end leaves the host, and what a killed run has left.
#[test]
fn every_end_leaves_an_address_silent_or_gone() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let client = lab.host("client", &["192.0.2.99/24"]);
    let begin = |flags: &str| {
        let mut run = host.start_fed(&format!("vip apply --follow --lease 1500ms {flags}"));
        run.feed(&election("192.0.2.10", true, ""));
        run.wait_for("it carries it", 3 * SECOND, |one| one["role"] == "serve" && one["lease_ms"] == 1500.0);
        assert!(answers(&client, "192.0.2.10") && has_rules(&host));
        run
    };
    let mut run = begin("");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(3 * SECOND), -15);
    assert!(!has(&host, "192.0.2.10") && !has_rules(&host));
    // Given up by an election.
    let mut run = begin("");
    run.feed(&election("192.0.2.10", false, ""));
    run.wait_for("it is gone", 3 * SECOND, |one| one["role"] == "leave");
    assert!(!has(&host, "192.0.2.10") && !has_rules(&host));
    drop(run);
    // What stands by wish or by accident is silent when the lease has run out.
    let silent = || {
        eventually("it is silent", 5 * SECOND, || !answers(&client, "192.0.2.10"));
        let shown = host.run("vip show 192.0.2.10").ended(1).one();
        assert_eq!((&shown["usable"], &shown["lease_left_ms"]), (&false.into(), &json!(0.0)), "{shown}");
    };
    let mut run = begin("--on-eof keep");
    drop(run.child.stdin.take());
    assert_eq!(run.ends(3 * SECOND), 1);
    silent();
    // Also while it is not renewed for as long as a run may last.
    let mut run = begin("--for 100ms");
    assert_eq!(run.ends(3 * SECOND), 0);
    silent();
    // Whoever adds it without a lease means it.
    let added = host.run("vip add 192.0.2.10/24 --dev eth0").ended(0).one();
    assert_eq!(added["changed"], false);
    assert!(answers(&client, "192.0.2.10") && !has_rules(&host));
    host.run("vip del --mine").ended(0);
    for mend in ["vip del --mine", "vip apply"] {
        let run = begin("");
        run.signal(Signal::SIGKILL);
        drop(run);
        silent();
        let input = if mend == "vip apply" { election("192.0.2.10", true, "") } else { String::new() };
        host.run_with(mend, &input).ended(0);
        assert!(!has_rules(&host), "{mend}");
        assert_eq!(answers(&client, "192.0.2.10"), mend == "vip apply");
    }
    // The next run with a lease goes on with what it finds.
    begin("").signal(Signal::SIGKILL);
    drop(begin(""));
}

#[test]
fn rules_that_somebody_flushes_are_back_at_once() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut run = host.start_fed("vip apply --follow --lease 2s");
    run.feed(&election("192.0.2.10", true, ""));
    run.wait_for("it carries it", 3 * SECOND, |one| one["role"] == "serve");
    for round in 1..=3 {
        run.feed(&election("192.0.2.10", true, ",\"renewal\":true"));
        host.sh("nft flush ruleset");
        eventually("they are back", SECOND, || {
            host.try_sh(
                "nft list set ip failover_vip_192_0_2_10 lease && nft list set arp failover_vip_192_0_2_10 lease",
            )
            .0
        });
        let healed = |record: &&Value| record["repaired"] == true;
        eventually("it says so", SECOND, || run.so_far().iter().filter(healed).count() >= round);
    }
    // As they were: what ran out stays out.
    run.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(2200));
    assert!(!host.sh("nft list set ip failover_vip_192_0_2_10 lease").contains("expires"));
    run.signal(Signal::SIGCONT);
    assert_eq!(run.complaints(), "");
}

#[test]
fn who_must_not_lease_an_address_does_not_carry_it() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "192.0.2.41/24"]);
    host.run("bucket init 192.0.2.20 --dev eth0 --total 2 --local 1").ended(0);
    let rules = host.sh("nft list ruleset");
    let mut run = host.start_fed("vip apply --follow --lease 5s");
    let vips = ["192.0.2.20", "192.0.2.41", "192.0.2.10"];
    let all = |more: &str| vips.map(|vip| election(vip, true, more)).concat();
    run.feed(&all(""));
    let why = |run: &Running, vip: &str| {
        run.wait_for("an answer", 3 * SECOND, |one| one["subject"] == vip)["error"]["message"].clone()
    };
    assert!(why(&run, vips[0]).as_str().unwrap().contains("it is a cluster IP of this host"));
    assert!(why(&run, vips[1]).as_str().unwrap().contains("this host's own address"));
    assert_eq!(why(&run, vips[2]), Value::Null);
    for _ in 0..5 {
        run.feed(&all(",\"renewal\":true"));
        std::thread::sleep(Duration::from_millis(100));
    }
    // Told once, and what was there is as it was.
    assert_eq!(run.complaints().lines().count(), 2, "{}", run.complaints());
    assert!(has(&host, "192.0.2.41") && host.sh("nft list ruleset").contains(rules.lines().next().unwrap()));
    // Another run cannot renew what this one holds, so that its death shows.
    let mut other = host.start_fed("vip apply --follow --lease 1s");
    other.feed(&election("192.0.2.10", true, ""));
    assert!(why(&other, vips[2]).as_str().unwrap().contains("another vip apply on this host leases it"));
    drop(other.child.stdin.take());
    assert_eq!(other.ends(3 * SECOND), 1);
    run.feed(&all(",\"renewal\":true"));
    assert!(has(&host, "192.0.2.10") && has_rules(&host));
}

/// A word that waited, in a pipe or with a frozen process, is as old as it is.
#[test]
fn an_election_older_than_the_lease_takes_nothing() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let ago = |ms: f64| {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
        let now = Duration::from(now).as_secs_f64() * 1000.0;
        format!(",\"received_ms\":{}", now - ms)
    };
    let mut run = host.start_fed("vip apply --follow --lease 5s");
    run.feed(&election("192.0.2.10", true, &ago(6000.0)));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!has(&host, "192.0.2.10") && !has_rules(&host));
    run.feed(&election("192.0.2.10", true, &ago(2000.0)));
    let told = run.wait_for("it carries it", 3 * SECOND, |one| one["role"] == "serve");
    assert!(told["lease_left_ms"].as_f64().unwrap() <= 3000.0, "{told}");
}

#[test]
fn the_flags_are_what_they_must_be() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    for (flags, why) in [
        ("--lease 1s", "--lease needs --follow"),
        ("--follow --lease 99ms", "100ms to 1h"),
        ("--follow --lease 100500us", "whole milliseconds"),
        ("--follow --lease 3s --lifetime 2s", "no longer than --lease"),
    ] {
        let run = host.run(&format!("vip apply {flags}")).ended(2);
        assert!(run.stderr.contains(why), "{flags}: {run:?}");
    }
    let planned =
        host.run_with("vip apply --lease 300ms --dry-run", &election("2001:db8::10", true, "")).ended(0).one();
    let text = planned["actions"][0]["text"].as_str().unwrap();
    assert_eq!(planned["actions"][0]["op"], "nft");
    assert!(planned["actions"][1]["text"].as_str().unwrap().starts_with("ip addr add 2001:db8::10/64"), "{planned}");
    assert!(!has_rules(&host));
    // What it says is what nft takes.
    let file = host.folder.join("rules");
    std::fs::write(&file, text).unwrap();
    host.sh(&format!("nft -c -f {}", file.display()));
    // With a lifetime too, the kernel also removes what a run leaves.
    let mut run = host.start_fed("vip apply --follow --lease 500ms --lifetime 2s");
    run.feed(&election("192.0.2.10", true, ",\"advert_interval_ms\":100"));
    let told = run.wait_for("it carries it", 3 * SECOND, |one| one["role"] == "serve");
    assert_eq!((&told["lease_ms"], &told["valid_s"]), (&json!(500.0), &json!(2)), "{told}");
    assert!(run.complaints().contains("others take it over 200ms after the last word"), "{}", run.complaints());
    run.signal(Signal::SIGKILL);
    eventually("it is gone", 4 * SECOND, || !has(&host, "192.0.2.10"));
}
