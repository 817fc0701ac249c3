//! `vrrp` against keepalived, tcpdump and tshark.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::Duration;
use support::{Host, Keepalived, Lab, Running, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// One way to speak the protocol.
#[derive(Clone, Copy)]
struct Way {
    version: u8,
    ipv6: bool,
    /// keepalived's `advert_int`, and ours.
    interval: (&'static str, &'static str),
}

const WAYS: [Way; 3] = [
    Way { version: 2, ipv6: false, interval: ("1", "1s") },
    Way { version: 3, ipv6: false, interval: ("0.1", "100ms") },
    Way { version: 3, ipv6: true, interval: ("0.1", "100ms") },
];

impl Way {
    fn vip(self) -> &'static str {
        if self.ipv6 { "2001:db8::10" } else { "192.0.2.10" }
    }

    /// The addresses of the virtual router, as both sides must be told: the link-local one is ours.
    fn ours(self) -> &'static str {
        if self.ipv6 { "fe80::200:5eff:fe00:233/64,2001:db8::10/64" } else { "192.0.2.10/24" }
    }

    fn keepalived(self, host: &Host, priority: u8, more: &str) -> Keepalived {
        let addresses = self.ours().replace(',', " dev eth0\n ");
        let body = format!(
            "priority {priority}\n advert_int {}\n {more}\n virtual_ipaddress {{\n {addresses} dev eth0\n }}",
            self.interval.0
        );
        Keepalived::start(host, self.version, &body)
    }

    fn run(self, host: &Host, priority: u8, more: &str) -> Running {
        host.start(&format!(
            "vrrp run --dev eth0 --vrid 51 --priority {priority} --vip {} --version {} --interval {} {more}",
            self.ours(),
            self.version,
            self.interval.1
        ))
    }

    fn has(self, host: &Host) -> bool {
        host.sh("ip addr show dev eth0").contains(&format!("{}/", self.vip()))
    }

    /// The newest word of a router on the address.
    fn now(self, router: &Running) -> Value {
        router.so_far().into_iter().rfind(|record| record["subject"] == self.vip()).unwrap_or_default()
    }

    fn becomes(self, router: &Running, state: &str) {
        eventually(&format!("{} becomes {state}", router.line), 12 * SECOND, || self.now(router)["state"] == state);
    }
}

fn hosts(lab: &Lab, count: u8) -> Vec<Host> {
    (1..=count)
        .map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n}/64")]))
        .collect()
}

/// Both roles, preemption, and resignation both ways.
#[test]
fn keepalived_and_we_elect_each_other() {
    for way in WAYS {
        let lab = Lab::new();
        let hosts = hosts(&lab, 2);
        let peer = way.keepalived(&hosts[1], 100, "");
        eventually("keepalived is master", 8 * SECOND, || way.has(&hosts[1]));
        // We are better, and take over; it hears us and gives up.
        let ours = way.run(&hosts[0], 150, "");
        way.becomes(&ours, "master");
        eventually("keepalived is backup", 3 * SECOND, || !way.has(&hosts[1]));
        // We resign, and it takes over within its skew time: 0.6 intervals, not three.
        ours.signal(Signal::SIGTERM);
        eventually("keepalived is master again", 2 * SECOND, || way.has(&hosts[1]));
        drop(ours);
        // We are worse, and wait; it resigns, and we take over.
        let ours = way.run(&hosts[0], 50, "");
        let waiting = ours.wait_for("its master", 3 * SECOND, |record| record["event"] == "master");
        assert_eq!((&waiting["state"], &waiting["mine"]), (&"backup".into(), &false.into()), "{waiting}");
        let master = waiting["master_addr"].as_str().unwrap();
        assert!(if way.ipv6 { master.starts_with("fe80::") } else { master == "192.0.2.2" }, "{waiting}");
        peer.resign();
        let master = ours.wait_for("take-over", 3 * SECOND, |record| record["state"] == "master");
        assert_eq!(master["event"], "resigned", "{master}");
        assert_eq!(ours.complaints(), "", "{}", peer.log());
    }
}

#[test]
fn without_preemption_whoever_is_master_stays() {
    for way in WAYS {
        let lab = Lab::new();
        let hosts = hosts(&lab, 2);
        let peer = way.keepalived(&hosts[1], 50, "nopreempt");
        eventually("keepalived is master", 8 * SECOND, || way.has(&hosts[1]));
        let ours = way.run(&hosts[0], 150, "--no-preempt");
        std::thread::sleep(if way.version == 2 { 5 * SECOND } else { SECOND });
        assert_eq!(way.now(&ours)["state"], "backup");
        // keepalived dies without a word: that is no preemption.
        peer.signal(Signal::SIGSTOP);
        let master = ours.wait_for("take-over", 6 * SECOND, |record| record["state"] == "master");
        assert_eq!(master["event"], "silence");
        // It wakes, is the worse one, and gives way; with the better one's priority it would not.
        peer.signal(Signal::SIGCONT);
        eventually("keepalived gives way", 6 * SECOND, || !way.has(&hosts[1]));
        assert_eq!(way.now(&ours)["state"], "master");
    }
}

/// RFC 9568 §6.4.3: of equal priorities the higher address wins, whoever that is.
#[test]
fn of_equal_priorities_the_higher_address_wins() {
    for way in WAYS {
        let lab = Lab::new();
        let hosts = hosts(&lab, 2);
        for (our_host, their_host, we_win) in [(0, 1, false), (1, 0, true)] {
            // Apart until both are master.
            lab.on_switch("ip link set n1.eth0 type bridge_slave isolated on && ip link set n2.eth0 type bridge_slave isolated on");
            let _peer = way.keepalived(&hosts[their_host], 100, "");
            let ours = way.run(&hosts[our_host], 100, "");
            way.becomes(&ours, "master");
            eventually("keepalived is master", 8 * SECOND, || way.has(&hosts[their_host]));
            lab.on_switch("ip link set n1.eth0 type bridge_slave isolated off && ip link set n2.eth0 type bridge_slave isolated off");
            if we_win {
                eventually("keepalived gives way", 5 * SECOND, || !way.has(&hosts[their_host]));
                assert_eq!(way.now(&ours)["state"], "master");
            } else {
                ours.wait_for("the better one", 5 * SECOND, |record| record["event"] == "higher-priority");
                assert!(way.has(&hosts[their_host]));
            }
        }
    }
}

/// Three routers, of which one or two are keepalived: each death is followed by the next best.
#[test]
fn three_routers_follow_one_another() {
    let way = WAYS[1];
    let lab = Lab::new();
    let hosts = hosts(&lab, 3);
    // Ours, keepalived, ours.
    let mut first = way.run(&hosts[0], 200, "");
    let second = way.keepalived(&hosts[1], 150, "");
    let third = way.run(&hosts[2], 100, "");
    way.becomes(&first, "master");
    way.becomes(&third, "backup");
    eventually("keepalived waits", 3 * SECOND, || !way.has(&hosts[1]));
    first.child.kill().unwrap();
    eventually("keepalived follows", 3 * SECOND, || way.has(&hosts[1]));
    assert_eq!(way.now(&third)["state"], "backup");
    second.signal(Signal::SIGSTOP);
    way.becomes(&third, "master");
    second.signal(Signal::SIGCONT);
    eventually("the better one is back", 3 * SECOND, || way.now(&third)["state"] == "backup");
    drop((first, second, third));
    // keepalived, ours, keepalived.
    let first = way.keepalived(&hosts[0], 200, "");
    eventually("keepalived is master", 8 * SECOND, || way.has(&hosts[0]));
    let second = way.run(&hosts[1], 150, "");
    let _third = way.keepalived(&hosts[2], 100, "");
    way.becomes(&second, "backup");
    first.resign();
    way.becomes(&second, "master");
    second.signal(Signal::SIGTERM);
    eventually("the last one follows", 3 * SECOND, || way.has(&hosts[2]));
}

/// Wireshark's dissector calls our sums right. It knows only the pseudo-header form of version 3 over
/// IPv4, and names that sum where it sees the RFC's.
#[test]
fn tshark_calls_our_sums_right() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let judge = hosts[1].start_shell(
        "exec tshark -lni eth0 -T fields -e vrrp.version -e vrrp.prio -e vrrp.checksum.status -e _ws.expert.message ip proto 112 or ip6 proto 112",
    );
    eventually("tshark listens", 20 * SECOND, || judge.complaints().contains("Capturing"));
    let said = || judge.text();
    let mut lines = 0;
    for (flags, wanted) in [
        ("--vip 192.0.2.10 --version 2 --priority 101", "2\t101\t1"),
        ("--vip 192.0.2.10,192.0.2.11 --checksum pseudo --priority 102", "3\t102\t1"),
        ("--vip 2001:db8::10 --vmac --priority 103", "3\t103\t1"),
        ("--vip 2001:db8::10 --resign", "3\t0\t1"),
        ("--vip 192.0.2.10 --checksum rfc9568 --priority 105", "3\t105\t0\tBad checksum [should be"),
    ] {
        // It drops to its capture program's rights in its own time: the first may be missed.
        eventually(flags, 10 * SECOND, || {
            hosts[0].run(&format!("vrrp send --dev eth0 --vrid 51 {flags}")).ended(0);
            std::thread::sleep(Duration::from_millis(100));
            said().lines().skip(lines).any(|line| line.starts_with(wanted))
        });
        lines = said().lines().count();
    }
}

/// An IPv4 advert as a frame in hex, so that each part of it can be wrong.
fn frame(ttl: u8, source: [u8; 4], message: &[u8], right_sum: bool) -> String {
    fn sum(bytes: &[u8]) -> [u8; 2] {
        let mut sum: u32 =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!u16::try_from(sum).unwrap()).to_be_bytes()
    }
    let mut message = message.to_vec();
    if right_sum && message.len() >= 8 {
        message[6..8].fill(0);
        let sum = sum(&message);
        message[6..8].copy_from_slice(&sum);
    }
    let mut header = vec![0x45, 0xc0, 0, u8::try_from(20 + message.len()).unwrap(), 0, 0, 0, 0, ttl, 112, 0, 0];
    header.extend(source);
    header.extend([224, 0, 0, 18]);
    let checksum = sum(&header);
    header[10..12].copy_from_slice(&checksum);
    let mut bytes = vec![0x01, 0, 0x5e, 0, 0, 0x12, 0, 0, 0x5e, 0, 1, 0x33, 8, 0];
    bytes.extend(header);
    bytes.extend(message);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn throw(host: &Host, hex: &str) {
    host.sh(&format!(
        "python3 -c \"import socket; s=socket.socket(17,3); s.bind(('eth0',0)); s.send(bytes.fromhex('{hex}'))\""
    ));
}

/// Wrong in one way each, and better than our master: none of them dethrones it, and each is named.
#[test]
fn what_is_wrong_is_not_believed_and_is_named() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let way = WAYS[1];
    let good = [0x31, 51, 254, 1, 0, 10, 0, 0, 192, 0, 2, 10];
    let (other, own) = ([192, 0, 2, 2], [192, 0, 2, 1]);
    let with = |at: usize, value: u8| {
        let mut message = good;
        message[at] = value;
        message.to_vec()
    };
    let ours = way.run(&hosts[0], 100, "");
    way.becomes(&ours, "master");
    let listener = hosts[0].start("vrrp recv --dev eth0 --follow");
    std::thread::sleep(Duration::from_millis(200));
    for (hex, slug, complaint) in [
        (frame(254, other, &good, true), "ttl", "beyond the link"),
        (frame(255, other, &with(0, 0x41), true), "version", "(version)"),
        (frame(255, other, &with(3, 0), true), "count-zero", "(count-zero"),
        (frame(255, other, &with(3, 9), true), "truncated", "(truncated)"),
        (frame(255, other, &[&good[..], &[0; 4]].concat(), true), "too-long", "(too-long)"),
        (frame(255, other, &good, false), "checksum", "(checksum)"),
        (frame(255, other, &with(5, 0), true), "interval", "(interval)"),
        (frame(255, other, &good[..6], true), "truncated", ""),
        (frame(255, own, &good, true), "", "our own address"),
        (frame(255, [0, 0, 0, 0], &good, true), "source", "(source)"),
        (frame(255, [224, 0, 0, 18], &good, true), "source", "(source)"),
        (frame(255, other, &with(1, 52), true), "", ""),
        (
            frame(255, other, &[0x21, 51, 254, 1, 0, 1, 0, 0, 192, 0, 2, 10, 0, 0, 0, 0, 0, 0, 0, 0], true),
            "",
            "speaks version 2",
        ),
    ] {
        throw(&hosts[1], &hex);
        if !slug.is_empty() {
            listener.wait_for(slug, 3 * SECOND, |record| {
                record["faults"].as_array().unwrap().iter().any(|fault| fault == slug)
            });
        }
        eventually(complaint, 3 * SECOND, || ours.complaints().contains(complaint));
    }
    assert!(
        ours.so_far().iter().skip_while(|record| record["state"] != "master").all(|record| record["state"] == "master")
    );
    // The same without a fault does.
    throw(&hosts[1], &frame(255, other, &good, true));
    way.becomes(&ours, "backup");
    // From the other's view there were two masters for a while; now we are silent.
    let judged = hosts[0].run("vrrp recv --dev eth0 --vrid 99 --for 100ms").ended(75);
    assert!(judged.stderr.contains("no advert was heard"), "{judged:?}");
}

/// Two masters on one LAN are seen as such: known-faults 6 and keepalived's issue 2387.
#[test]
fn recv_tells_one_master_from_two() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 3);
    let way = WAYS[1];
    let one = way.run(&hosts[0], 100, "");
    way.becomes(&one, "master");
    let judged = hosts[2].run("vrrp recv --dev eth0 --for 500ms").ended(0).one();
    assert_eq!((&judged["masters"], &judged["checksum"]), (&serde_json::json!(["192.0.2.1"]), &"pseudo".into()));
    assert_eq!(judged["faults"], serde_json::json!(["source-mac"]));
    lab.on_switch(
        "ip link set n1.eth0 type bridge_slave isolated on; ip link set n2.eth0 type bridge_slave isolated on",
    );
    let two = way.run(&hosts[1], 100, "--checksum rfc9568 --vmac");
    way.becomes(&two, "master");
    let judged = hosts[2].run("vrrp recv --dev eth0 --for 500ms").ended(1).records();
    assert_eq!(judged.len(), 2);
    assert_eq!(judged[1]["masters"], serde_json::json!(["192.0.2.1", "192.0.2.2"]));
    assert_eq!((&judged[1]["checksum"], &judged[1]["faults"]), (&"rfc9568".into(), &serde_json::json!([])));
}

/// Adverts to single routers, through a LAN that drops the group.
#[test]
fn unicast_routers_elect_too() {
    for way in &WAYS[1..] {
        let lab = Lab::new();
        let hosts = hosts(&lab, 2);
        hosts[1].sh("nft 'table netdev t { chain i { type filter hook ingress device eth0 priority 0; meta pkttype multicast ip protocol 112 drop; meta pkttype multicast ip6 nexthdr 112 drop; }; }'");
        let local = |host: &Host| {
            if way.ipv6 {
                host.sh("ip -6 -br addr show dev eth0 scope link")
                    .split_whitespace()
                    .nth(2)
                    .unwrap()
                    .split('/')
                    .next()
                    .unwrap()
                    .to_owned()
            } else {
                format!("192.0.2.{}", host.number)
            }
        };
        let (first, second) = (local(&hosts[0]), local(&hosts[1]));
        let peer = way.keepalived(&hosts[1], 100, &format!("unicast_src_ip {second}\n unicast_peer {{\n {first}\n }}"));
        eventually("keepalived is master", 8 * SECOND, || way.has(&hosts[1]));
        let ours = way.run(&hosts[0], 150, &format!("--peer {second}"));
        way.becomes(&ours, "master");
        eventually("keepalived is backup", 3 * SECOND, || !way.has(&hosts[1]));
        ours.signal(Signal::SIGTERM);
        eventually("keepalived is master again", 3 * SECOND, || way.has(&hosts[1]));
        drop(peer);
    }
}

/// The effective priority follows the score; without one it is the last choice, and never absent.
#[test]
fn a_score_moves_the_priority_and_its_end_leaves_the_last_choice() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let mut ours = hosts[0].start_fed(
        "vrrp run --dev eth0 --vrid 51 --priority 100 --vip 192.0.2.10/24 --interval 100ms --track - --renew 100ms",
    );
    let score = |priority: u8, valid: u32| {
        format!(
            "{{\"kind\":\"health.score\",\"v\":1,\"host\":\"n1\",\"priority\":{priority},\"valid_for_ms\":{valid}}}\n"
        )
    };
    ours.feed(&score(90, 60_000));
    ours.wait_for("master", 3 * SECOND, |record| record["state"] == "master" && record["priority"] == 90);
    ours.feed("nonsense\n");
    eventually("a complaint", SECOND, || ours.complaints().contains("line 2 is malformed"));
    ours.feed(&score(0, 60_000));
    let gone = ours.wait_for("priority 0", 3 * SECOND, |record| record["event"] == "priority-zero");
    assert_eq!((&gone["state"], &gone["mine"], &gone["from"]), (&"init".into(), &false.into(), &"master".into()));
    ours.feed(&score(70, 400));
    ours.wait_for("70", 3 * SECOND, |record| record["priority"] == 70 && record["state"] == "backup");
    ours.wait_for("1", 5 * SECOND, |record| record["priority"] == 1 && record["state"] == "master");
    assert!(ours.complaints().contains("the score has expired"));
    // Its pipe ends: nothing changes.
    drop(ours.child.stdin.take());
    std::thread::sleep(Duration::from_millis(300));
    assert!(ours.child.try_wait().unwrap().is_none());
    // A standby file takes it out, with its reason; it returns when the file goes.
    let standby = hosts[0].folder.join("state/standby.192.0.2.10");
    std::fs::write(&standby, "new disks\n").unwrap();
    let out = ours.wait_for("standby", 3 * SECOND, |record| record["standby"] == "new disks");
    assert_eq!(out["state"], "init");
    let before = ours.so_far().len();
    std::fs::remove_file(&standby).unwrap();
    eventually("it is back", 3 * SECOND, || {
        ours.so_far().iter().skip(before).any(|record| record["state"] == "master")
    });
}

/// Several routers of one file: HUP adds, removes and changes; a wrong file changes nothing.
#[test]
fn a_configuration_is_read_anew_and_a_wrong_one_is_not() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 1);
    let file = hosts[0].folder.join("routers");
    std::fs::write(&file, "# two\n51 vip=192.0.2.10/24 priority=100\n52 vip=192.0.2.11/24,192.0.2.12/24 sync=g\n")
        .unwrap();
    let ours = hosts[0].start(&format!("vrrp run --dev eth0 --interval 50ms --config {}", file.display()));
    for vip in ["192.0.2.10", "192.0.2.11", "192.0.2.12"] {
        ours.wait_for("master", 3 * SECOND, |record| record["subject"] == vip && record["mine"] == true);
    }
    std::fs::write(&file, "51 vip=192.0.2.10/24 priority=0\n").unwrap();
    ours.signal(Signal::SIGHUP);
    eventually("a complaint", SECOND, || ours.complaints().contains("line 1: a base priority is 1 to 255"));
    assert!(ours.complaints().contains("the settings stay as they were"));
    std::fs::write(&file, "51 vip=192.0.2.10/24 priority=120\n53 vip=192.0.2.13/24\n").unwrap();
    ours.signal(Signal::SIGHUP);
    ours.wait_for("the new one", 3 * SECOND, |record| record["subject"] == "192.0.2.13" && record["mine"] == true);
    let gone = ours
        .wait_for("the old one", SECOND, |record| record["subject"] == "192.0.2.11" && record["event"] == "shutdown");
    assert_eq!(gone["mine"], false);
    ours.wait_for("its priority", SECOND, |record| record["subject"] == "192.0.2.10" && record["priority"] == 120);
    let of_first: Vec<Value> = ours.so_far().into_iter().filter(|record| record["subject"] == "192.0.2.10").collect();
    let master = of_first.iter().position(|record| record["mine"] == true).unwrap();
    assert!(
        of_first[master..].iter().all(|record| record["mine"] == true),
        "a change of settings is no change of master"
    );
}

#[test]
fn a_dead_link_and_a_reader_that_left_end_a_mastership() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let way = WAYS[1];
    let ours = way.run(&hosts[0], 150, "");
    way.becomes(&ours, "master");
    lab.on_switch("ip link set n1.eth0 down");
    let down = ours.wait_for("link down", 2 * SECOND, |record| record["event"] == "link-down");
    assert_eq!((&down["state"], &down["mine"]), (&"init".into(), &false.into()));
    lab.on_switch("ip link set n1.eth0 up");
    way.becomes(&ours, "master");
    drop(ours);
    // The reader takes one line and leaves: the master resigns, and the other need not wait.
    let other = way.run(&hosts[1], 50, "");
    let vrrp = support::binary("vrrp").display().to_string();
    let line = format!(
        "FAILOVER_STATE_DIR={} {vrrp} run --dev eth0 --vrid 51 --priority 150 --vip 192.0.2.10/24 --interval 100ms | sed '/\"state\":\"master\"/q' >/dev/null",
        hosts[0].folder.join("state").display()
    );
    way.becomes(&other, "master");
    hosts[0].sh(&line);
    let again = other.so_far().len();
    eventually("the other follows", 3 * SECOND, || {
        other.so_far().iter().skip(again.saturating_sub(3)).any(|r| r["event"] == "resigned")
    });
}

/// A router whose adverts do not fit would be a second master for ever.
#[test]
fn who_cannot_advertise_is_not_master() {
    let lab = Lab::new();
    let host = &hosts(&lab, 1)[0];
    let vips: Vec<String> = (10..40).map(|n| format!("192.0.2.{n}/24")).collect();
    let line = format!("vrrp run --dev eth0 --vrid 51 --interval 10ms --vip {}", vips.join(","));
    host.sh("ip link set eth0 mtu 120");
    let checked = host.run(&format!("{line} --check")).ended(5);
    assert!(checked.stderr.contains("its MTU is 28 octets below their 148"), "{}", checked.stderr);
    let mut router = host.start(&line);
    let state = |router: &Running| router.so_far().last().map(|record| record["state"].clone()).unwrap_or_default();
    eventually("it is down", 3 * SECOND, || state(&router) == "init");
    assert!(router.complaints().contains("below their 148"), "{}", router.complaints());
    host.sh("ip link set eth0 mtu 148");
    eventually("it is master", 3 * SECOND, || state(&router) == "master");
    host.sh("ip link set eth0 mtu 147");
    eventually("it is down again", 3 * SECOND, || state(&router) == "init");
    router.signal(Signal::SIGTERM);
    router.ends(3 * SECOND);
}

#[test]
fn usage_is_told_and_nothing_else_happens() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    for (flags, code, why) in [
        ("--vip 192.0.2.10", 2, "--vrid is missing"),
        ("--vrid 0 --vip 192.0.2.10", 2, "0"),
        ("--vrid 1", 2, "--vip is missing"),
        ("--vrid 1 --vip 192.0.2.10,2001:db8::1", 2, "one family"),
        ("--vrid 1 --vip 192.0.2.10 --priority 0", 2, "a base priority is 1 to 255"),
        ("--vrid 1 --vip 192.0.2.10 --priority 256", 2, "256"),
        ("--vrid 1 --vip 192.0.2.10 --interval 5ms", 2, "steps of 10ms"),
        ("--vrid 1 --vip 192.0.2.10 --version 2 --interval 100ms", 2, "whole seconds"),
        ("--vrid 1 --vip 2001:db8::1 --version 2", 2, "no IPv6"),
        ("--vrid 1 --vip 192.0.2.10,192.0.2.10", 2, "twice"),
        ("--vrid 1 --vip 224.0.0.1", 2, "no address of a host"),
        ("--vrid 1 --vip 192.0.2.10 --peer fe80::1", 2, "another family"),
        ("--vrid 1 --vip 192.0.2.10 --config x", 2, "cannot be used with"),
    ] {
        let run = host.run(&format!("vrrp run --dev eth0 {flags}")).ended(code);
        assert!(run.stderr.contains(why) && run.stderr.lines().count() == 1, "{flags}: {run:?}");
        assert_eq!(run.stdout, "");
    }
    let run = host.run("vrrp run --dev nope --vrid 1 --vip 192.0.2.10").ended(5);
    assert!(run.stderr.contains("no such interface"), "{run:?}");
    let run = host.run("vrrp run --config /nonexistent/x --dev eth0").ended(6);
    assert!(run.stderr.contains("it is not there"), "{run:?}");
    host.sh("ip link set eth0 down");
    let run = host.run("vrrp send --dev eth0 --vrid 1 --vip 192.0.2.10").ended(71);
    assert!(run.stderr.contains("ENETDOWN") || run.stderr.contains("etwork is down"), "{run:?}");
}

/// The HMAC trailer: who has the key elects, who has not is named and not believed; the steps of a
/// roll-out; a replay. Its bytes are those of the draft's appendix: `wire/vrrp.rs`.
#[test]
fn signed_routers_believe_the_key_alone() {
    for way in &WAYS[1..] {
        let lab = Lab::new();
        let hosts = hosts(&lab, 3);
        let key = |host: &Host, byte: &str| {
            let path = host.folder.join(format!("key-{byte}"));
            std::fs::write(&path, byte.repeat(32)).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            path.display().to_string()
        };
        let ours = way.run(&hosts[0], 100, &format!("--key {}", key(&hosts[0], "ab")));
        way.becomes(&ours, "master");
        // Better, and without the key, or with another: not believed.
        let stranger = way.run(&hosts[1], 200, "");
        eventually("it is named", 5 * SECOND, || ours.complaints().contains("is unsigned"));
        drop(stranger);
        let forger = way.run(&hosts[1], 200, &format!("--key {}", key(&hosts[1], "cd")));
        eventually("it is named", 5 * SECOND, || ours.complaints().contains("is wrong (auth)"));
        drop(forger);
        assert_eq!(way.now(&ours)["state"], "master");
        let listened =
            hosts[2].run(&format!("vrrp recv --dev eth0 --for 300ms --key {}", key(&hosts[2], "ab"))).ended(0);
        assert_eq!(
            (&listened.one()["auth"], &listened.one()["faults"]),
            (&"hmac".into(), &serde_json::json!(["source-mac"]))
        );
        let other = hosts[2].run(&format!("vrrp recv --dev eth0 --for 300ms --key {}", key(&hosts[2], "cd"))).ended(75);
        assert_eq!(other.one()["faults"], serde_json::json!(["auth", "source-mac"]));
        // With the key it is.
        let better = way.run(&hosts[1], 200, &format!("--key {}", key(&hosts[1], "ab")));
        way.becomes(&better, "master");
        way.becomes(&ours, "backup");
        // A roll-out: one that only receives is heard by one that permits.
        drop((ours, better));
        let permits = way.run(&hosts[0], 200, &format!("--auth permissive --key {}", key(&hosts[0], "ab")));
        let receives = way.run(&hosts[1], 100, &format!("--auth receive-only --key {}", key(&hosts[1], "ab")));
        way.becomes(&permits, "master");
        way.becomes(&receives, "backup");
        drop(permits);
        way.becomes(&receives, "master");
    }
}

#[test]
fn a_replayed_advert_is_not_believed() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 3);
    let key = hosts[0].folder.join("key");
    std::fs::write(&key, "ab".repeat(32)).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let key = key.display().to_string();
    // A master that resigned: its adverts are recorded, and sent again when another has followed it.
    let tape = hosts[2].folder.join("tape");
    let record = hosts[2].start_shell(&format!(
        "exec tcpdump -Uni eth0 --immediate-mode -w {} 'ip proto 112 and src 192.0.2.2'",
        tape.display()
    ));
    eventually("tcpdump listens", 5 * SECOND, || record.complaints().contains("listening on"));
    let way = WAYS[1];
    let ours = way.run(&hosts[0], 100, &format!("--key {key}"));
    let gone = way.run(&hosts[1], 200, &format!("--key {key}"));
    way.becomes(&gone, "master");
    way.becomes(&ours, "backup");
    gone.signal(Signal::SIGTERM);
    let seen = ours.so_far().len();
    eventually("we follow", 5 * SECOND, || ours.so_far().iter().skip(seen).any(|one| one["state"] == "master"));
    drop(record);
    let tape = std::fs::read(&tape).unwrap();
    let length = usize::try_from(u32::from_le_bytes(tape[32..36].try_into().unwrap())).unwrap();
    let hex: String = tape[40..40 + length].iter().map(|byte| format!("{byte:02x}")).collect();
    throw(&hosts[2], &hex);
    eventually("it is named", 5 * SECOND, || ours.complaints().contains("a replay, or its clock went back"));
    assert_eq!(way.now(&ours)["state"], "master");
}

/// A master that nobody can be told of would keep the address from everybody.
#[test]
fn with_its_output_on_a_full_device_it_is_no_router() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let other = WAYS[1].run(&hosts[1], 50, "");
    WAYS[1].becomes(&other, "master");
    let vrrp = support::binary("vrrp").display().to_string();
    let line = "run --dev eth0 --vrid 51 --priority 150 --vip 192.0.2.10/24 --interval 100ms";
    let state = hosts[0].folder.join("state");
    let (_, said) =
        hosts[0].try_sh(&format!("FAILOVER_STATE_DIR={} {vrrp} {line} >/dev/full; echo $?", state.display()));
    assert_eq!(said, "71\nvrrp run: cannot write to standard output: No space left on device\n");
    assert!(WAYS[1].now(&other)["state"] == "master", "{:?}", other.so_far());
}

/// The address owner speaks from its own address; a node whose first address is another's leftover
/// speaks from its second.
#[test]
fn the_source_is_the_owner_s_or_what_is_not_virtual() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let owner = hosts[0].start("vrrp run --dev eth0 --vrid 51 --vip 192.0.2.1/24 --priority 255 --interval 100ms");
    let master = owner.wait_for("the owner is master at once", 2 * SECOND, |record| record["state"] == "master");
    assert_eq!(master["event"], "start");
    let backup = hosts[1].start("vrrp run --dev eth0 --vrid 51 --vip 192.0.2.1/24 --priority 100 --interval 100ms");
    backup.wait_for("its master", 3 * SECOND, |record| record["master_addr"] == "192.0.2.1");
    drop((owner, backup));
    hosts[0].sh("ip -4 addr flush dev eth0");
    hosts[0].run("vip add 192.0.2.10/24 --dev eth0").ended(0);
    hosts[0].sh("ip addr add 192.0.2.1/24 dev eth0");
    let ours = WAYS[1].run(&hosts[0], 100, "");
    WAYS[1].becomes(&ours, "master");
}

/// A second process of the same router would not hear the first.
#[test]
fn one_process_is_a_router_on_a_host() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 1);
    let first = WAYS[1].run(&hosts[0], 100, "");
    WAYS[1].becomes(&first, "master");
    let second = hosts[0].run("vrrp run --dev eth0 --vrid 51 --vip 192.0.2.10/24 --for 1s").ended(75);
    assert!(second.stderr.contains("lock"), "{second:?}");
    hosts[0].run("vrrp run --dev eth0 --vrid 51 --vip 192.0.2.10/24 --check").ended(0);
    hosts[0].run("vrrp run --dev eth0 --vrid 52 --vip 192.0.2.11/24 --interval 100ms --for 100ms").ended(0);
}

/// Each form of a standby file, and a state folder that is made anew.
#[test]
fn a_standby_file_is_noticed_whatever_made_it() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 1);
    let ours = WAYS[1].run(&hosts[0], 100, "");
    WAYS[1].becomes(&ours, "master");
    let state = hosts[0].folder.join("state");
    let elsewhere = hosts[0].folder.join("why");
    std::fs::write(&elsewhere, "new disks").unwrap();
    let shell = |line: &str| {
        hosts[0].sh(&format!("cd {} && {line}", state.display()));
    };
    for (make, unmake) in [
        (format!("ln -s {} standby", elsewhere.display()), "rm standby".to_owned()),
        (format!("ln {} standby", elsewhere.display()), "mv standby ../gone".to_owned()),
        ("echo x >standby.192.0.2.10".to_owned(), "rm standby.192.0.2.10".to_owned()),
    ] {
        shell(&make);
        WAYS[1].becomes(&ours, "init");
        shell(&unmake);
        WAYS[1].becomes(&ours, "master");
    }
    // Something there that cannot be read is told, and changes nothing.
    shell("mkdir standby");
    eventually("a complaint", 3 * SECOND, || ours.complaints().contains("cannot tell whether this is standby"));
    assert_eq!(WAYS[1].now(&ours)["state"], "master");
    shell("rmdir standby; cd .. && rm -r state && mkdir state && echo x >state/standby");
    WAYS[1].becomes(&ours, "init");
}

/// A group parted on one link of two does not flap: it has a master for both, or for none.
#[test]
fn a_group_that_is_parted_on_one_link_stays_together() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    lab.bridge("inner");
    for host in &hosts {
        lab.plug(host, "eth1", "inner", &[&format!("198.51.100.{}/24", host.number)]);
    }
    let file = |host: &Host, priority: u8| {
        let path = host.folder.join("routers");
        let lines = format!(
            "61 dev=eth0 vip=192.0.2.10/24 priority={priority} sync=g\n62 dev=eth1 vip=198.51.100.10/24 priority=150 sync=g\n"
        );
        std::fs::write(&path, lines).unwrap();
        host.start(&format!("vrrp run --interval 100ms --config {}", path.display()))
    };
    // Unlike priorities: the group has the lowest of its own, so that one side is better as a whole.
    let (first, second) = (file(&hosts[0], 200), file(&hosts[1], 100));
    let inner = |run: &Running| {
        run.so_far().into_iter().rfind(|one| one["subject"] == "198.51.100.10").unwrap_or_default()["state"].clone()
    };
    eventually("the first has both", 5 * SECOND, || {
        inner(&first) == "master" && WAYS[1].now(&first)["state"] == "master"
    });
    let changes = |run: &Running| run.so_far().iter().filter(|one| one["state"] != one["from"]).count();
    std::thread::sleep(SECOND);
    let before = (changes(&first), changes(&second));
    lab.on_switch("bridge link set dev n1.eth1 state 0");
    std::thread::sleep(3 * SECOND);
    assert_eq!((changes(&first), changes(&second)), before);
    assert_eq!((inner(&first), inner(&second)), ("master".into(), "backup".into()));
    // Dead on both, it goes over whole.
    drop(first);
    eventually("the second has both", 5 * SECOND, || {
        inner(&second) == "master" && WAYS[1].now(&second)["state"] == "master"
    });
}

/// A restart with `--no-resign`: the other stays backup throughout, and nothing is given up.
#[test]
fn a_new_process_goes_on_where_the_old_one_did_not_resign() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let way = WAYS[1];
    let run = |host: &Host, more: &str| {
        host.start(&format!("vrrp run --dev eth0 --vrid 51 --vip 192.0.2.10/24 --interval 500ms {more}"))
    };
    let old = run(&hosts[0], "--no-resign");
    way.becomes(&old, "master");
    let other = run(&hosts[1], "");
    other.wait_for("its master", 5 * SECOND, |record| record["event"] == "master");
    old.signal(Signal::SIGTERM);
    let new = run(&hosts[0], "--no-resign");
    let resumed = new.wait_for("it goes on", 3 * SECOND, |record| record["state"] == "master");
    assert_eq!((&resumed["event"], &resumed["from"]), (&"start".into(), &"init".into()));
    std::thread::sleep(2 * SECOND);
    assert!(!other.so_far().iter().any(|record| record["state"] == "master"));
    assert!(old.so_far().iter().skip_while(|record| record["mine"] == false).all(|record| record["mine"] == true));
    // Much later it is a start like any other.
    new.signal(Signal::SIGTERM);
    way.becomes(&other, "master");
    let late = run(&hosts[0], "--no-resign");
    late.wait_for("it begins as backup", 3 * SECOND, |record| record["state"] == "backup");
}

/// A rule set as sites have it: what is not let in, or out, is dropped.
fn wall(host: &Host, hook: &str) {
    host.sh(&format!(
        "nft 'table inet filter {{ chain {hook} {{ type filter hook {hook} priority 0; policy drop; \
         ct state established,related accept; meta l4proto {{ icmp, ipv6-icmp }} accept; tcp dport 22 accept; }}; }}'"
    ));
}

/// The command that a complaint names.
fn mend(complaint: &str) -> String {
    let rest = complaint.split("(nft ").nth(1).unwrap_or_else(|| panic!("no command in {complaint}"));
    format!("nft {}", rest.split([';', ')']).next().unwrap())
}

/// The host's own firewall, each hook and family; what the complaint names is what mends it, and nobody on the wire
/// hears of the check.
#[test]
fn a_check_names_the_rule_that_drops_adverts_on_this_host() {
    for way in [WAYS[1], WAYS[2]] {
        let lab = Lab::new();
        let hosts = hosts(&lab, 2);
        let peer = way.keepalived(&hosts[1], 100, "");
        eventually("keepalived is master", 8 * SECOND, || way.has(&hosts[1]));
        let family = if way.ipv6 { "ipv6" } else { "ipv4" };
        let check = || hosts[0].run(&format!("vrrp recv --dev eth0 --check={family} --for 600ms"));
        let wire = hosts[1].start_shell(
            "exec tcpdump -i eth0 -n -l 'ether src 02:00:00:00:00:01 and (ip proto 112 or ip6 proto 112)'",
        );
        eventually("it listens", 5 * SECOND, || wire.complaints().contains("listening on"));
        let heard = check().ended(0).records();
        assert_eq!((heard.len(), &heard[0]["priority"]), (1, &100.into()), "{heard:?}");
        for hook in ["input", "output"] {
            wall(&hosts[0], hook);
            let run = check().ended(1);
            let lines: Vec<&str> = run.stderr.lines().collect();
            assert_eq!(lines.len(), 1, "{run:?}");
            assert!(lines[0].contains(&format!("this host's own {hook} rules drop VRRP to ")), "{run:?}");
            assert!(lines[0].contains("firewall-cmd") == (hook == "input"), "{run:?}");
            // It is heard all the same, beside the rules.
            assert_eq!(run.records().len(), 1, "{run:?}");
            hosts[0].sh(&mend(&run.stderr));
            check().ended(0);
            hosts[0].sh("nft flush ruleset");
        }
        assert_eq!(wire.text(), "", "nothing leaves this host");
        // Both at once, of which the other family is fine.
        wall(&hosts[0], "input");
        let other = if way.ipv6 { "ip protocol" } else { "ip6 nexthdr" };
        hosts[0].sh(&format!("nft add rule inet filter input {other} vrrp accept"));
        let both = hosts[0].run("vrrp recv --dev eth0 --check --for 600ms").ended(1);
        assert_eq!(both.stderr.lines().count(), 1, "{both:?}");
        // A keepalived on the host that checks hears the advert, and does not believe it.
        let second = way.keepalived(&hosts[0], 200, "");
        hosts[0].sh("nft flush ruleset");
        eventually("it takes over", 8 * SECOND, || way.has(&hosts[0]) && !way.has(&hosts[1]));
        hosts[0].run(&format!("vrrp recv --dev eth0 --check={family} --vrid 51 --for 600ms")).ended(75);
        assert!(way.has(&hosts[0]) && !way.has(&hosts[1]), "{}", second.log());
        drop((peer, second));
    }
}

#[test]
fn a_check_tells_what_cannot_be_believed_and_what_cannot_be_asked() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let nobody = hosts[0].run("vrrp recv --dev eth0 --check --for 300ms").ended(75);
    assert!(nobody.stderr.contains("this host lets them in"), "{nobody:?}");
    // A password that everybody can read: told, and no reason to be quiet.
    let peer = Keepalived::start(
        &hosts[1],
        2,
        "priority 100\n advert_int 1\n authentication {\n auth_type PASS\n auth_pass secret\n }\n virtual_ipaddress {\n 192.0.2.10/24 dev eth0\n }",
    );
    eventually("keepalived is master", 8 * SECOND, || WAYS[0].has(&hosts[1]));
    let run = hosts[0].run("vrrp recv --dev eth0 --check --for 1500ms").ended(1);
    assert!(run.stderr.contains("an advert of 192.0.2.2 for router 51 cannot be believed: auth"), "{run:?}");
    drop(peer);
    hosts[0].sh("ip link set eth0 down");
    let down = hosts[0].run("vrrp recv --dev eth0 --check --for 300ms").ended(75);
    assert!(down.stderr.contains("cannot check VRRP on eth0: it is down"), "{down:?}");
    hosts[0].run("vrrp recv --dev eth0 --check --follow").ended(2);
}
