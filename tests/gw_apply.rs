//! `gw apply`, `gw report`, `gw clear`: what the packets of real flows do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::gateways::{Site, TARGETS, TARGETS_6};
use support::{Host, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// A plan over the gateways of a site, by weights, where those named are dead.
fn plan(site: &Site, ipv6: bool, weights: &[f64], dead: &[usize]) -> String {
    plan_with(site, ipv6, weights, dead, "")
}

fn plan_with(site: &Site, ipv6: bool, weights: &[f64], dead: &[usize], flags: &str) -> String {
    let mut line = format!("gw split {flags}");
    let mut verdicts = String::new();
    for (n, weight) in (1..).zip(weights) {
        let gateway = if ipv6 { site.address_6(n) } else { site.address(n) };
        let _ = write!(line, " --gateway {gateway},weight={weight},name=g{n}");
        let status = if dead.contains(&n) { "down" } else { "up" };
        let _ = writeln!(verdicts, "{{\"subject\":\"{gateway}\",\"status\":\"{status}\"}}");
    }
    site.host.run_with(&line, &verdicts).stdout
}

fn apply(site: &Site, plan: &str) -> Value {
    site.host.run_with("gw apply", plan).ended(0).one()
}

fn target(ipv6: bool) -> IpAddr {
    if ipv6 { TARGETS_6[0] } else { TARGETS[0] }.parse().unwrap()
}

/// Sends `packets` datagrams from each of many source ports, port after port, round after round.
fn send(from: &Host, to: SocketAddr, ports: std::ops::Range<u16>, packets: usize) {
    let any: IpAddr = if to.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
    let sent = from.inside(move || {
        for _ in 0..packets {
            for port in ports.clone() {
                // A program that another thread is starting may have the last round's socket for an instant.
                eventually("the port is free", 5 * SECOND, || {
                    let socket = UdpSocket::bind((any, port));
                    socket.is_ok_and(|socket| socket.send_to(b"x", to).is_ok())
                });
            }
        }
    });
    sent.join().unwrap();
}

/// The internet says nothing to datagrams, so that every packet stays a first one.
fn mute(site: &Site) {
    site.net.sh("nft 'add table inet mute; add chain inet mute in { type filter hook input priority 0; }; \
                 add rule inet mute in meta l4proto udp drop'");
}

/// Within four standard deviations of what a fair draw gives.
#[track_caller]
#[allow(clippy::cast_precision_loss)] // counts of a test
fn is_share(got: u64, of: u64, share: f64) {
    let (got, of) = (got as f64, of as f64);
    let deviation = (of * share * (1.0 - share)).sqrt();
    assert!((got - of * share).abs() <= 4.0 * deviation, "{got} of {of}, wanted a share of {share}");
}

/// What stands of policy routing and rules, without counters and what ends by itself.
fn standing(host: &Host) -> String {
    host.sh("ip rule; ip -6 rule; ip route show table all; \
             ip -6 route show table all | sed 's/ expires [0-9]*sec//'; nft -s list ruleset")
}

/// Known-faults 7: what a connection really carries decides, counted at the gateways.
#[test]
fn new_flows_are_split_as_planned() {
    for (weights, ipv6) in [
        (&[0.3, 0.7][..], false),
        (&[0.3, 0.7], true),
        (&[1.0, 0.0, 2.0], false),
        (&[0.12, 0.12, 0.12, 0.64], false),
        (&[0.12, 0.12, 0.12, 0.64], true),
        (&[1.0; 16], false),
        (&[1e-9, 1.0], false),
    ] {
        let site = Site::one_link(weights.len());
        mute(&site);
        let done = apply(&site, &plan(&site, ipv6, weights, &[]));
        assert_eq!((&done["changed"], &done["by"], &done["flushed"]), (&true.into(), &"flow".into(), &0.into()));
        site.forget();
        send(&site.client, SocketAddr::new(target(ipv6), 9), 10_000..20_000, 1);
        let total: f64 = weights.iter().sum();
        let flows: Vec<u64> = (1..=weights.len()).map(|n| site.flows(n)).collect();
        assert_eq!(flows.iter().sum::<u64>(), 10_000, "{flows:?}");
        for (flows, weight) in flows.iter().zip(weights) {
            let share = (weight / total * 10_000.0).round() / 10_000.0;
            is_share(*flows, 10_000, share);
        }
        // What we counted is what they counted.
        let reports = site.host.run("gw report").ended(0).records();
        let counted: Vec<u64> = reports.iter().map(|report| report["connections"].as_u64().unwrap()).collect();
        assert_eq!(counted, flows);
        let sent: u64 = reports.iter().map(|report| report["sent_packets"].as_u64().unwrap()).sum();
        assert_eq!(sent, 10_000);
    }
}

/// Until an answer comes each packet of a flow is a first one; only the first is drawn for.
#[test]
fn a_flow_has_one_gateway() {
    for ipv6 in [false, true] {
        let site = Site::one_link(3);
        mute(&site);
        apply(&site, &plan(&site, ipv6, &[1.0, 1.0, 1.0], &[]));
        site.forget();
        send(&site.client, SocketAddr::new(target(ipv6), 9), 10_000..11_000, 3);
        let flows: Vec<u64> = (1..=3).map(|n| site.flows(n)).collect();
        assert_eq!(flows.iter().sum::<u64>(), 1000, "{flows:?}");
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        let listed = site.host.sh(&format!("conntrack -L -f {family} -p udp 2>/dev/null"));
        let mut marks: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ports = BTreeSet::new();
        for line in listed.lines().filter(|line| line.contains("dport=9 ")) {
            let value = |key: &str| line.split(key).nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
            ports.insert(value("sport="));
            *marks.entry(value("mark=").parse().unwrap()).or_default() += 1;
        }
        assert_eq!(ports.len(), 1000);
        let wanted: BTreeMap<u64, u64> = (1..).map(|n: u64| n << 16).zip(flows).collect();
        assert_eq!(marks, wanted);
        let packets: u64 =
            site.host.run("gw report").ended(0).records().iter().map(|one| one["sent_packets"].as_u64().unwrap()).sum();
        assert_eq!(packets, 3000);
    }
}

/// Something in a host's network that answers each datagram with the address that it came from.
struct Mirror {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Mirror {
    fn start(on: &Host, at: SocketAddr) -> Mirror {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let socket = on.inside(move || UdpSocket::bind(at).unwrap()).join().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let mut bytes = [0; 64];
                if let Ok((_, from)) = socket.recv_from(&mut bytes) {
                    let _ = socket.send_to(from.ip().to_string().as_bytes(), from);
                }
            }
        });
        Mirror { stop, thread: Some(thread) }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A socket of a host, with a port of its own.
fn socket(host: &Host, to: SocketAddr) -> UdpSocket {
    let any: IpAddr = if to.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
    host.inside(move || {
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    })
    .join()
    .unwrap()
}

/// What the other end sees a datagram come from.
fn seen_as(socket: &UdpSocket) -> Option<IpAddr> {
    let mut bytes = [0; 64];
    // One may wait for an answer of the neighbour, or hear of an earlier one's fate.
    for _ in 0..10 {
        let _ = socket.send(b"?");
        if let Ok(length) = socket.recv(&mut bytes) {
            return Some(String::from_utf8_lossy(&bytes[..length]).parse().unwrap());
        }
    }
    None
}

/// The gateway that a flow goes by.
fn way_of(socket: &UdpSocket) -> Option<usize> {
    let last = match seen_as(socket)? {
        IpAddr::V4(addr) => usize::from(addr.octets()[3]),
        IpAddr::V6(addr) => usize::from(addr.segments()[7]),
    };
    Some(last)
}

/// Known-faults 9: what dies takes its flows along to the living, and leaves nothing when it is back.
#[test]
fn a_death_moves_the_dead_one_s_flows_alone() {
    for ipv6 in [false, true] {
        let site = Site::own_links(3);
        // Another program with marks of its own, which it sets and looks for.
        site.host.sh("nft 'add table inet other; \
             add chain inet other early { type filter hook prerouting priority raw; }; \
             add rule inet other early meta mark set meta mark or 0x1; \
             add chain inet other late { type filter hook postrouting priority 300; }; \
             add rule inet other late udp dport 7 meta mark and 0xff00ffff != 0x1 counter; \
             add chain inet other own { type filter hook forward priority 0; }; \
             add rule inet other own ct mark set ct mark or 0x2; \
             add rule inet other late udp dport 7 ct mark and 0xff00ffff != 0x2 counter'");
        let to = SocketAddr::new(target(ipv6), 7);
        let _mirror = Mirror::start(&site.net, to);
        let weights = [1.0, 1.0, 1.0];
        let (well, sick) = (plan(&site, ipv6, &weights, &[]), plan(&site, ipv6, &weights, &[1]));
        apply(&site, &well);
        let before = standing(&site.host);
        for round in 0..10 {
            let flows: Vec<UdpSocket> = (0..12).map(|_| socket(&site.client, to)).collect();
            let mut ways: Vec<usize> = flows.iter().map(|flow| way_of(flow).unwrap()).collect();
            let on_first = ways.iter().filter(|way| **way == 1).count();
            site.kill(1);
            let done = site.host.run_with("gw apply --flush-dead", &sick).ended(0).one();
            assert!(done["flushed"].as_u64().unwrap() >= on_first as u64, "{done} {ways:?}");
            assert_eq!(done["gateways"].as_array().unwrap().len(), 2);
            for (flow, way) in flows.iter().zip(&mut ways) {
                let now = way_of(flow).unwrap_or_else(|| panic!("round {round}: a flow of {way} is silent"));
                assert!(now != 1 && (*way == 1 || now == *way), "round {round}: from {way} to {now}");
                *way = now;
            }
            assert_eq!(site.host.run_with("gw apply --flush-dead", &sick).ended(0).one()["changed"], false);
            site.mend(1);
            apply(&site, &well);
            for (flow, way) in flows.iter().zip(&ways) {
                assert_eq!(way_of(flow), Some(*way), "round {round}");
            }
            assert_eq!(standing(&site.host), before, "round {round}");
        }
        // Fail-back: new flows go to it again.
        site.host.sh("conntrack -F 2>/dev/null");
        let fresh: Vec<UdpSocket> = (0..60).map(|_| socket(&site.client, to)).collect();
        let by_first = fresh.iter().filter(|flow| way_of(flow) == Some(1)).count();
        assert!(by_first > 5, "{by_first} of 60");
        // It saw its own marks on every packet, and only those.
        let counters = site.host.sh("nft list chain inet other late");
        assert_eq!(counters.matches("packets 0 bytes 0").count(), 2, "{counters}");
        let listed = site.host.sh("conntrack -L -p udp 2>/dev/null | grep dport=7");
        assert!(listed.contains("mark=65538") && listed.contains("mark=131074"), "{listed}");
    }
}

/// Accepts connections on a port of a host's address and greets each.
fn greeter(host: &Host, at: &str) -> std::thread::JoinHandle<()> {
    let at: SocketAddr = at.parse().unwrap();
    let listener = host.inside(move || TcpListener::bind(at).unwrap()).join().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut word = [0; 4];
            if stream.write_all(b"well").is_err()
                || stream.read(&mut word).is_ok_and(|length| &word[..length] == b"end!")
            {
                return;
            }
        }
    })
}

/// Whether a caller is greeted.
fn call(from: &Host, to: &str, word: &'static [u8]) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    from.inside(move || {
        let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_millis(400)) else { return false };
        stream.set_read_timeout(Some(SECOND)).unwrap();
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting).is_ok() && &greeting == b"well" && stream.write_all(word).is_ok()
    })
    .join()
    .unwrap()
}

/// What is published behind gateway 2 answers through gateway 2, also a service of the host itself.
#[test]
fn what_comes_in_by_a_gateway_is_answered_by_it() {
    let site = Site::own_links(2);
    site.host.sh("ip route add default via 10.0.1.1");
    let servers = [greeter(&site.client, "192.0.2.201:80"), greeter(&site.host, "10.0.2.2:81")];
    site.gateways[1].sh("nft 'add table ip door; add chain ip door in { type nat hook prerouting priority dstnat; }; \
         add rule ip door in iifname wan0 tcp dport 80 dnat to 192.0.2.201; \
         add rule ip door in iifname wan0 tcp dport 81 dnat to 10.0.2.2'");
    for port in [80, 81] {
        assert!(!call(&site.net, &format!("198.51.100.2:{port}"), b"more"), "by main's default the answer is lost");
    }
    apply(&site, &plan(&site, false, &[1.0, 1.0], &[]));
    for _ in 0..10 {
        for port in [80, 81] {
            assert!(call(&site.net, &format!("198.51.100.2:{port}"), b"more"), "port {port}");
        }
    }
    // Where packets are dropped that come in by another way than the main table's.
    site.host.sh("sysctl -qw net.ipv4.conf.all.src_valid_mark=1 net.ipv4.conf.all.rp_filter=1 \
                  net.ipv4.conf.eth1.rp_filter=1 net.ipv4.conf.eth2.rp_filter=1");
    for port in [80, 81] {
        assert!(call(&site.net, &format!("198.51.100.2:{port}"), b"more"), "port {port}");
    }
    // Nothing of it was drawn for, and all of it was counted.
    let reports = site.host.run("gw report").ended(0).records();
    assert_eq!((&reports[0]["connections"], &reports[1]["connections"]), (&0.into(), &0.into()));
    assert_eq!(reports[1]["share_got"], Value::Null);
    let packets = |report: &Value, key: &str| report[key].as_u64().unwrap();
    assert!(packets(&reports[1], "sent_packets") >= 40 && packets(&reports[1], "received_packets") >= 40);
    assert_eq!(packets(&reports[0], "received_packets"), 0);
    for (server, port) in servers.into_iter().zip([80, 81]) {
        assert!(call(&site.net, &format!("198.51.100.2:{port}"), b"end!"));
        server.join().unwrap();
    }
}

/// Whoever is behind a gateway and uses this host as its router is not sent back there.
#[test]
fn what_only_passes_leaves_as_without_a_split() {
    let site = Site::own_links(2);
    site.host.sh("ip route add default via 10.0.1.1; ip route add 172.20.0.2 via 10.0.2.1");
    site.gateways[0].sh("ip route add 172.20.0.2 via 10.0.1.2");
    site.gateways[1].sh("ip addr add 172.20.0.2/32 dev lo; ip rule add from 172.20.0.2 table 99; \
                         ip route add default via 10.0.2.2 table 99");
    let to = SocketAddr::new(target(false), 7);
    let _mirror = Mirror::start(&site.net, to);
    let behind = || {
        let socket = site.gateways[1].inside(move || {
            let socket = UdpSocket::bind("172.20.0.2:0").unwrap();
            socket.connect(to).unwrap();
            socket
        });
        let socket = socket.join().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    };
    assert_eq!(way_of(&behind()), Some(1));
    apply(&site, &plan(&site, false, &[1.0, 1.0], &[]));
    for _ in 0..5 {
        let flow = behind();
        assert_eq!((way_of(&flow), way_of(&flow)), (Some(1), Some(1)));
    }
}

/// TCP out through the split, one connection after the other: each goes its way and comes back.
#[test]
fn connections_leave_by_every_gateway() {
    let site = Site::own_links(3);
    let server = greeter(&site.net, "203.0.113.1:80");
    apply(&site, &plan(&site, false, &[1.0, 1.0, 1.0], &[]));
    assert!((0..40).all(|_| call(&site.client, "203.0.113.1:80", b"more")));
    let reports = site.host.run("gw report").ended(0).records();
    assert_eq!(drawn(&site, "-"), 40);
    for report in &reports {
        let number = |key: &str| report[key].as_u64().unwrap();
        // SYN, ACK, data, FIN at least, and as many back.
        assert!(number("connections") > 0 && number("sent_packets") >= number("connections") * 4, "{report}");
        assert!(number("received_packets") >= number("connections") * 3, "{report}");
    }
    assert!(call(&site.client, "203.0.113.1:80", b"end!"));
    server.join().unwrap();
}

/// Gateways that are no neighbours by any address of ours: by a link-local address, and on the link by word alone.
#[test]
fn a_gateway_may_be_on_a_link_by_its_interface_alone() {
    let site = Site::own_links(2);
    let to = SocketAddr::new(target(true), 7);
    let _mirror = Mirror::start(&site.net, to);
    let mut line = "gw split".to_owned();
    let mut verdicts = String::new();
    for (n, gateway) in (1..).zip(&site.gateways) {
        let listed = gateway.sh("ip -6 -o addr show dev eth0 scope link");
        let address = listed.split("inet6 ").nth(1).unwrap().split('/').next().unwrap();
        let _ = write!(line, " --gateway {address}%eth{n}");
        let _ = writeln!(verdicts, "{{\"subject\":\"{address}%eth{n}\",\"status\":\"up\"}}");
    }
    let plan = site.host.run_with(&line, &verdicts).ended(0).stdout;
    let before = standing(&site.host);
    apply(&site, &plan);
    let mut ways: BTreeSet<usize> = BTreeSet::new();
    for _ in 0..30 {
        ways.insert(way_of(&socket(&site.client, to)).unwrap());
    }
    assert_eq!(ways.len(), 2);
    assert_eq!(apply(&site, &plan)["changed"], false);
    site.host.run("gw clear").ended(0);
    assert_eq!(standing(&site.host), before);
    // An address of no network of ours, on the link because we say so.
    site.gateways[0].sh("ip addr add 172.31.0.1/32 dev lo");
    let to = SocketAddr::new(target(false), 7);
    let _mirror = Mirror::start(&site.net, to);
    let verdict = "{\"subject\":\"172.31.0.1\",\"status\":\"up\"}\n";
    let plan = site.host.run_with("gw split --gateway 172.31.0.1,dev=eth1", verdict).ended(0).stdout;
    apply(&site, &plan);
    assert!(site.host.sh("ip route show table 7001").contains("via 172.31.0.1 dev eth1 proto 70 onlink"));
    assert_eq!(way_of(&socket(&site.client, to)), Some(1));
    assert_eq!(apply(&site, &plan)["changed"], false);
}

/// A dead gateway whose interface is gone takes nobody along.
#[test]
fn a_gateway_without_an_interface_is_no_reason_to_stop() {
    let site = Site::own_links(2);
    apply(&site, &plan(&site, false, &[1.0, 1.0], &[]));
    site.host.sh("ip link set eth1 down");
    let sick = plan(&site, false, &[1.0, 1.0], &[1]);
    assert_eq!(apply(&site, &sick)["gateways"], serde_json::json!(["10.0.2.1"]));
    assert_eq!(apply(&site, &sick)["changed"], false);
    let named = sick.replacen("\"name\":\"g1\"", "\"dev\":\"eth1\"", 1);
    apply(&site, &named);
    assert_eq!(apply(&site, &named)["changed"], false);
    let to = SocketAddr::new(target(false), 7);
    let _mirror = Mirror::start(&site.net, to);
    assert!((0..10).all(|_| way_of(&socket(&site.client, to)) == Some(2)));
    site.host.sh("ip link set eth1 up");
    apply(&site, &plan(&site, false, &[1.0, 1.0], &[]));
    assert!(site.host.sh("ip route show table 7001").contains("via 10.0.1.1"));
}

/// A gateway that cannot be reached takes nobody along, whatever the plan says: its interface or its network is
/// gone, or was never there.
#[test]
fn who_cannot_be_reached_gives_its_share_away() {
    let site = Site::own_links(3);
    let to = SocketAddr::new(target(false), 7);
    let _mirror = Mirror::start(&site.net, to);
    let well = plan(&site, false, &[1.0, 1.0, 1.0], &[]);
    let onto = |dev: &str| well.replacen("\"name\":\"g1\"", &format!("\"dev\":\"{dev}\""), 1);
    for (damage, undo, input, why) in [
        ("true", "true", onto("eth7"), "no such interface"),
        ("ip addr del 10.0.1.2/24 dev eth1", "ip addr add 10.0.1.2/24 dev eth1", well.clone(), "is on no network"),
        ("ip link set eth1 down", "ip link set eth1 up", well.clone(), "is on no network"),
        ("ip link set eth1 down", "ip link set eth1 up", onto("eth1"), "its interface eth1 is down"),
        ("ip link set eth1 name gone", "true", onto("eth1"), "no such interface"),
    ] {
        apply(&site, &well);
        let flows: Vec<UdpSocket> = (0..12).map(|_| socket(&site.client, to)).collect();
        let ways: Vec<usize> = flows.iter().map(|flow| way_of(flow).unwrap()).collect();
        site.host.sh(damage);
        let done = site.host.run_with("gw apply --flush-dead", &input).ended(5);
        assert!(done.stderr.contains(why) && done.stderr.contains("others have its share"), "{done:?}");
        let record = done.one();
        assert_eq!(record["gateways"], serde_json::json!(["10.0.2.1", "10.0.3.1"]), "{damage}");
        assert_eq!((&record["error"]["reason"], &record["changed"]), (&"no-such-interface".into(), &true.into()));
        for (flow, way) in flows.iter().zip(ways) {
            let now = way_of(flow).unwrap_or_else(|| panic!("{damage}: a flow of {way} is silent"));
            assert!(now != 1 && (way == 1 || now == way), "{damage}: from {way} to {now}");
        }
        // It does not try each minute what cannot be done.
        let again = site.host.run_with("gw apply --flush-dead", &input).ended(5).one();
        assert_eq!(again["changed"], false, "{damage}");
        site.host.sh(undo);
        site.host.sh("conntrack -F 2>/dev/null");
    }
    let stands = standing(&site.host);
    site.host.sh("ip link set gone down; ip link set eth2 down; ip link set eth3 down");
    let without = standing(&site.host);
    let none = site.host.run_with("gw apply", &well).ended(5);
    assert!(none.one().get("gateways").is_none() && stands != without, "{none:?}");
    assert_eq!(standing(&site.host), without);
}

/// A stream gives the share back when the address is.
#[test]
fn a_stream_follows_who_can_be_reached() {
    let site = Site::own_links(2);
    let mut run = site.host.start_fed("gw apply --follow");
    run.feed(&plan(&site, false, &[1.0, 1.0], &[]));
    let both = serde_json::json!(["10.0.1.1", "10.0.2.1"]);
    run.wait_for("both", 5 * SECOND, |record| record["gateways"] == both);
    site.host.sh("ip addr del 10.0.1.2/24 dev eth1");
    run.wait_for("one", 5 * SECOND, |record| record["gateways"] == serde_json::json!(["10.0.2.1"]));
    let told = run.so_far().len();
    site.host.sh("ip addr add 10.0.1.2/24 dev eth1");
    eventually("both again", 5 * SECOND, || run.so_far()[told..].iter().any(|record| record["gateways"] == both));
    assert_eq!(run.complaints().matches("others have its share").count(), 1);
}

/// A script in the place of nft, which is called by the real one's path as `$nft`.
fn wrapped(site: &Site, script: &str, input: &str) -> support::Run {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = site.host.folder.join("wrapped");
    std::fs::create_dir_all(&folder).unwrap();
    let real = site.host.sh("command -v nft");
    let text = format!("#!/bin/sh\nnft={}\ncd {}\n{script}\n", real.trim(), folder.display());
    std::fs::write(folder.join("nft"), text).unwrap();
    std::fs::set_permissions(folder.join("nft"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = site.host.command("gw apply");
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    support::Run::new("gw apply", child.wait_with_output().unwrap())
}

/// What another program takes away between loading and listing is loaded again, and never remembered as there.
#[test]
fn what_goes_at_once_is_never_taken_for_there() {
    let site = Site::one_link(2);
    let (well, other) = (plan(&site, false, &[1.0, 1.0], &[]), plan(&site, false, &[1.0, 2.0], &[]));
    apply(&site, &well);
    let wanted = standing(&site.host);
    apply(&site, &other);
    let stands = standing(&site.host);
    let load = "case \"$*\" in *-f*) ;; *) exec $nft \"$@\";; esac\n";
    for damage in ["flush ruleset", "flush table inet failover_gw", "flush chain inet failover_gw pick"] {
        let once = format!("{load}$nft \"$@\" || exit\n[ -e once ] || {{ touch once; $nft {damage}; }}");
        assert_eq!(wrapped(&site, &once, &well).ended(0).one()["changed"], true, "{damage}");
        assert_eq!(standing(&site.host), wanted, "{damage}");
        assert_eq!(apply(&site, &well)["changed"], false, "{damage}");
        std::fs::remove_file(site.host.folder.join("wrapped/once")).unwrap();
        let always = format!("{load}$nft \"$@\" && $nft {damage}");
        let refused = wrapped(&site, &always, &other).ended(1);
        assert!(refused.stderr.contains("nft monitor") && refused.stderr.lines().count() == 1, "{refused:?}");
        assert_eq!(apply(&site, &other)["changed"], true, "{damage}");
        assert_eq!(standing(&site.host), stands, "{damage}");
    }
    // One that says nothing and does nothing.
    for before in ["true", "nft delete table inet failover_gw"] {
        site.host.sh(before);
        wrapped(&site, &format!("{load}cat >/dev/null"), &well).ended(1);
        assert_eq!(apply(&site, &well)["changed"], true);
        assert_eq!(standing(&site.host), wanted);
        apply(&site, &other);
    }
}

/// A container that was started again has the state of the one before, and often the number of its namespace.
#[test]
fn a_new_namespace_has_nothing() {
    let site = Site::one_link(1);
    let file = site.host.folder.join("plan");
    std::fs::write(&file, plan(&site, false, &[1.0], &[])).unwrap();
    let (mut numbers, mut again) = (BTreeSet::new(), 0);
    for _ in 0..200 {
        // What a namespace of the same number left is its memory.
        let told = site.host.sh(&format!(
            "unshare -n sh -c 'n=$(stat -Lc %i /proc/self/ns/net); echo $n; ip link add eth0 type veth peer name p; \
             ip addr add 192.0.2.200/24 dev eth0; ip link set eth0 up; cd {}; \
             ! [ -d $n ] || nft add table ip as_many_transactions; \
             FAILOVER_NODE=host FAILOVER_STATE_DIR=$PWD/$n {} apply <{} >/dev/null; nft list tables'",
            site.host.folder.display(),
            support::binary("gw").display(),
            file.display()
        ));
        assert!(told.contains("table inet failover_gw"), "{again}: {told}");
        again += usize::from(!numbers.insert(told.lines().next().unwrap().to_owned()));
        if again == 3 {
            break;
        }
    }
    assert!(again > 0, "each of {} had another number", numbers.len());
}

/// Without room for what is remembered a fail-over is made all the same.
#[test]
fn a_full_state_folder_is_no_reason_to_stay_with_the_dead() {
    let site = Site::one_link(3);
    let file = |name: &str, text: String| {
        let path = site.host.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let well = file("well", plan(&site, false, &[1.0, 1.0], &[]));
    let sick = file("sick", plan(&site, false, &[1.0, 1.0, 1.0], &[1]));
    let gw = format!("FAILOVER_NODE=host FAILOVER_STATE_DIR=/mnt {}", support::binary("gw").display());
    let before = standing(&site.host);
    let told = site.host.sh(&format!(
        "unshare -m sh -c 'mount -t tmpfs -o size=1m none /mnt; {gw} apply <{well}; \
         dd if=/dev/zero of=/mnt/full bs=4k 2>/dev/null; {gw} apply <{sick} 2>&1; echo status $?; \
         {gw} apply <{sick}; {gw} apply <{well}; {gw} clear' 2>&1"
    ));
    assert!(told.contains("status 0") && told.contains("going on without it"), "{told}");
    assert!(told.contains("[\"192.0.2.2\",\"192.0.2.3\"]") && told.contains("\"changed\":false"), "{told}");
    assert_eq!(standing(&site.host), before, "{told}");
}

/// Flows keep their gateway because it keeps its number; a plan with others would give them away.
#[test]
fn a_number_that_stands_is_not_given_away() {
    let site = Site::own_links(3);
    let well = plan(&site, false, &[1.0, 1.0, 1.0], &[]);
    apply(&site, &well);
    let stands = standing(&site.host);
    let up = |n: usize| format!("{{\"subject\":\"10.0.{n}.1\",\"status\":\"up\"}}\n");
    let turned = site
        .host
        .run_with("gw split --gateway 10.0.3.1 --gateway 10.0.2.1 --gateway 10.0.1.1", &(up(1) + &up(2) + &up(3)));
    let masked = plan_with(&site, false, &[1.0, 1.0, 1.0], &[], "--mark-mask 0xff000000");
    let six = plan(&site, true, &[1.0, 1.0, 1.0], &[]);
    for (input, why) in
        [(turned.stdout.as_str(), "give gw split --state"), (&masked, "gw clear"), (&six, "one family each")]
    {
        let refused = site.host.run_with("gw apply", input).ended(1);
        assert!(refused.stderr.contains(why) && refused.stderr.lines().count() == 1, "{refused:?}");
        assert_eq!(refused.one()["error"]["reason"], "conflict");
        assert_eq!(standing(&site.host), stands);
        // After it was taken away, or a boot, nothing is in its way.
        site.host.run("gw clear").ended(0);
        assert_eq!(apply(&site, input)["changed"], true);
        site.host.run("gw clear").ended(0);
        apply(&site, &well);
        assert_eq!(standing(&site.host), stands);
    }
    // A number that nobody of the plan has any more is free.
    let one = plan(&site, false, &[1.0], &[]);
    apply(&site, &one);
    apply(&site, &one.replace("10.0.1.1", "10.0.2.1"));
    // Two long names with one table.
    site.host.run("gw clear").ended(0);
    let long = "a".repeat(34);
    apply(&site, &plan_with(&site, false, &[1.0], &[], &format!("--name {long}-x")));
    let refused = site.host.run_with("gw apply", &plan_with(&site, false, &[1.0], &[], &format!("--name {long}_x")));
    assert!(refused.ended(1).stderr.contains("give it another name"));
    site.host.run(&format!("gw report --name {long}_x")).ended(1);
    assert_eq!(site.host.run(&format!("gw clear --name {long}_x")).ended(0).one()["changed"], false);
    assert_eq!(site.host.run(&format!("gw report --name {long}-x")).ended(0).records().len(), 1);
}

/// Known-faults 19: a full disk is told, a reader that left is no failure.
#[test]
fn what_cannot_be_said_is_told() {
    let site = Site::one_link(1);
    let file = site.host.folder.join("plan");
    std::fs::write(&file, plan(&site, false, &[1.0], &[])).unwrap();
    let state = site.host.folder.join("state");
    for (verb, input) in
        [("apply", file.display().to_string()), ("report", "/dev/null".to_owned()), ("clear", "/dev/null".to_owned())]
    {
        let binary = support::binary("gw");
        let line = |out: &str| {
            format!(
                "FAILOVER_NODE=host FAILOVER_STATE_DIR={} {} {verb} <{input} {out}",
                state.display(),
                binary.display()
            )
        };
        let (_, said) = site.host.try_sh(&format!("{}; echo $?", line(">/dev/full")));
        assert!(said.contains("71\n") && said.contains("standard output"), "{verb}: {said}");
    }
}

/// On one LAN the MAC tells by which gateway a connection came.
#[test]
fn on_one_lan_the_mac_tells_the_gateway() {
    let site = Site::one_link(2);
    site.host.sh("ip route add default via 192.0.2.1");
    let server = greeter(&site.host, "192.0.2.200:81");
    site.gateways[1].sh("nft 'add table ip door; add chain ip door in { type nat hook prerouting priority dstnat; }; \
         add rule ip door in iifname wan0 tcp dport 81 dnat to 192.0.2.200'");
    assert!(!call(&site.net, "198.51.100.2:81", b"more"));
    apply(&site, &plan(&site, false, &[1.0, 0.0], &[]));
    assert!((0..10).all(|_| call(&site.net, "198.51.100.2:81", b"more")));
    assert!(call(&site.net, "198.51.100.2:81", b"end!"));
    server.join().unwrap();
}

/// What the main table knows better than by its default is none of a gateway's business.
#[test]
fn specific_routes_win() {
    for ipv6 in [false, true] {
        let site = Site::own_links(2);
        site.lab.bridge("lan2");
        site.lab.plug(&site.host, "eth9", "lan2", &["198.18.0.1/24", "2001:db8:18::1/64"]);
        let inner = site.lab.host("inner", &[]);
        site.lab.plug(&inner, "eth1", "lan2", &["198.18.0.2/24", "2001:db8:18::2/64"]);
        inner.sh("ip route add default via 198.18.0.1; ip -6 route add default via 2001:db8:18::1; \
                  ip addr add 198.19.0.1/32 dev lo; ip addr add 2001:db8:19::1/128 dev lo");
        site.host.sh("ip route add 198.19.0.0/24 via 198.18.0.2; ip -6 route add 2001:db8:19::/64 via 2001:db8:18::2");
        apply(&site, &plan(&site, ipv6, &[1.0, 1.0], &[]));
        let (places, own) = if ipv6 {
            (["2001:db8:18::2", "2001:db8:19::1"], "2001:db8::201")
        } else {
            (["198.18.0.2", "198.19.0.1"], "192.0.2.201")
        };
        for place in places {
            let to = SocketAddr::new(place.parse().unwrap(), 7);
            let _mirror = Mirror::start(&inner, to);
            for _ in 0..10 {
                assert_eq!(seen_as(&socket(&site.client, to)), Some(own.parse().unwrap()), "{place}");
            }
        }
    }
}

/// How many flows were drawn for.
fn drawn(site: &Site, name: &str) -> u64 {
    let reports = site.host.run(&format!("gw report --name {name}")).ended(0).records();
    reports.iter().map(|report| report["connections"].as_u64().unwrap()).sum()
}

#[test]
fn some_flows_are_left_alone() {
    for ipv6 in [false, true] {
        let site = Site::one_link(2);
        mute(&site);
        site.host.sh("ip route add default via 192.0.2.1; ip -6 route add default via 2001:db8::1");
        let plan = plan(&site, ipv6, &[1.0, 1.0], &[]);
        let all = if ipv6 { TARGETS_6 } else { TARGETS };
        let (client, wide) =
            if ipv6 { ("2001:db8::201", "2001:db8:2::/48") } else { ("192.0.2.201", "203.0.113.0/24") };
        for (flags, counts) in [
            (String::new(), true),
            (format!("--exclude {}", all[0]), false),
            (format!("--exclude {client}"), false),
            (format!("--exclude {},{}", all[1], all[2]), true),
            (format!("--exclude 10.0.0.0/8,fc00::/7,{wide},{}", all[1]), false),
            (format!("--only {}", all[0]), true),
            (format!("--only {client}"), true),
            (format!("--only {}", all[1]), false),
            (format!("--only {}", if ipv6 { "203.0.113.0/24" } else { "2001:db8:2::/48" }), false),
            ("--match udp".to_owned(), true),
            ("--match tcp".to_owned(), false),
            ("--match tcp,udp:8-9".to_owned(), true),
            ("--match udp:10".to_owned(), false),
            ("--match dscp:46".to_owned(), false),
            ("--match dscp:0".to_owned(), true),
            (format!("--match udp --only {} --by client", all[0]), true),
        ] {
            site.host.run("gw clear").ended(0);
            site.host.sh("conntrack -F 2>/dev/null");
            site.host.run_with(&format!("gw apply {flags}"), &plan).ended(0);
            send(&site.client, SocketAddr::new(target(ipv6), 9), 10_000..10_050, 2);
            assert_eq!(drawn(&site, "-"), if counts { 50 } else { 0 }, "{flags}");
        }
        // What this host itself opens, only if it was asked for; what carries a probe's mark never.
        for (flags, counts, ports) in [("", 0, 10_050..10_100), ("--local", 50, 10_100..10_150)] {
            site.host.run("gw clear").ended(0);
            site.host.sh("conntrack -F 2>/dev/null");
            site.host.run_with(&format!("gw apply {flags}"), &plan).ended(0);
            site.forget();
            send(&site.host, SocketAddr::new(target(ipv6), 9), ports, 2);
            assert_eq!(drawn(&site, "-"), counts, "{flags}");
            assert_eq!(site.flows(1) + site.flows(2), 50);
            assert_eq!(site.flows(2) > 10, counts > 0, "{flags}: {}", site.flows(2));
        }
    }
}

/// A client, or a client and where it goes, keeps its gateway.
#[test]
fn a_hash_keeps_a_client_with_its_gateway() {
    for ipv6 in [false, true] {
        let site = Site::own_links(3);
        let plan = plan(&site, ipv6, &[1.0, 1.0, 1.0], &[]);
        let all = if ipv6 { TARGETS_6 } else { TARGETS };
        let to = |at: usize| SocketAddr::new(all[at].parse().unwrap(), 7);
        let _mirrors: Vec<Mirror> = (0..3).map(|at| Mirror::start(&site.net, to(at))).collect();
        let mut several = BTreeSet::new();
        for n in 1..=20 {
            let more = if ipv6 { format!("2001:db8::a{n:02}/64") } else { format!("192.0.2.{}/24", 100 + n) };
            site.client.sh(&format!("ip addr add {more} dev eth0 {}", if ipv6 { "nodad" } else { "" }));
        }
        let from = |n: usize| -> IpAddr {
            if ipv6 { format!("2001:db8::a{n:02}") } else { format!("192.0.2.{}", 100 + n) }.parse().unwrap()
        };
        let way = |n: usize, at: usize| {
            let (own, to) = (from(n), to(at));
            let socket = site.client.inside(move || {
                let socket = UdpSocket::bind((own, 0)).unwrap();
                socket.connect(to).unwrap();
                socket
            });
            let socket = socket.join().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            way_of(&socket).unwrap()
        };
        site.host.run_with("gw apply --by client", &plan).ended(0);
        let by_client: Vec<usize> = (1..=20).map(|n| way(n, 0)).collect();
        for (n, kept) in (1..).zip(&by_client) {
            assert!([way(n, 0), way(n, 1), way(n, 2)].iter().all(|way| way == kept));
            several.insert(*kept);
        }
        assert_eq!(several.len(), 3, "{by_client:?}");
        site.host.run_with("gw apply --by client-destination", &plan).ended(0);
        let mut spread = 0;
        for n in 1..=20 {
            let ways: Vec<usize> = (0..3).map(|at| way(n, at)).collect();
            assert_eq!(ways, (0..3).map(|at| way(n, at)).collect::<Vec<_>>());
            spread += usize::from(ways.iter().any(|way| *way != ways[0]));
        }
        assert!(spread > 5, "{spread}");
        // The same in a table that was made anew.
        site.host.run("gw clear").ended(0);
        site.host.sh("conntrack -F 2>/dev/null");
        site.host.run_with("gw apply --by client", &plan).ended(0);
        assert_eq!((1..=20).map(|n| way(n, 0)).collect::<Vec<_>>(), by_client);
    }
}

/// A named split has its flows before the one without a name, and its end takes nothing of the other's.
#[test]
fn a_named_split_has_its_flows_first() {
    let site = Site::one_link(3);
    mute(&site);
    let before = standing(&site.host);
    let rest = plan(&site, false, &[1.0, 1.0, 0.0], &[]);
    let voip = plan_with(&site, false, &[0.0, 0.0, 1.0], &[], "--name voip");
    let other = plan_with(&site, true, &[1.0, 1.0, 1.0], &[], "--name six");
    for (ports, order) in [(10_000..10_050, [&rest, &voip]), (10_050..10_100, [&voip, &rest])] {
        for one in order {
            let flags = if one.contains("voip") { "--match udp:5060" } else { "" };
            site.host.run_with(&format!("gw apply {flags}"), one).ended(0);
        }
        site.host.run_with("gw apply", &other).ended(0);
        site.forget();
        for port in [5060, 9] {
            send(&site.client, SocketAddr::new(target(false), port), ports.clone(), 2);
        }
        send(&site.client, SocketAddr::new(target(true), 9), ports, 1);
        assert_eq!([drawn(&site, "-"), drawn(&site, "voip"), drawn(&site, "six")], [50, 50, 50]);
        assert_eq!(site.flows(1) + site.flows(2) + site.flows(3), 150);
        assert!(site.flows(3) >= 50);
        for (plan, flags) in [(&rest, ""), (&voip, "--match udp:5060"), (&other, "")] {
            let again = site.host.run_with(&format!("gw apply {flags}"), plan).ended(0).one();
            assert_eq!(again["changed"], false);
        }
        // The rules of gateway 1 and 2 are shared; what only the named one had goes.
        let removed = site.host.run("gw clear --name voip").ended(0).one();
        assert!(removed["removed"].to_string().contains("failover_gw_voip"));
        assert_eq!(site.host.run_with("gw apply", &rest).ended(0).one()["changed"], false);
        assert_eq!(site.host.run("gw clear --name voip").ended(0).one()["changed"], false);
        site.host.run("gw clear").ended(0);
        assert_eq!(site.host.run_with("gw apply", &other).ended(0).one()["changed"], false);
        site.host.run("gw clear --name six").ended(0);
        assert_eq!(standing(&site.host), before);
        site.host.sh("conntrack -F 2>/dev/null");
    }
}

/// "Unchanged" is the kernel's word, not memory's.
#[test]
fn what_others_take_away_is_put_back() {
    let site = Site::one_link(3);
    // What an interface that was down has lost is to be seen, and not its addresses.
    site.host.sh("sysctl -qw net.ipv6.conf.eth0.keep_addr_on_down=1");
    let plan = plan(&site, false, &[1.0, 1.0, 1.0], &[]);
    assert_eq!(apply(&site, &plan)["changed"], true);
    let stands = standing(&site.host);
    assert_eq!(apply(&site, &plan)["changed"], false);
    for damage in [
        "ip route flush table 7001",
        "ip route replace default via 192.0.2.2 dev eth0 table 7001 proto 70",
        "while ip rule del priority 7010; do :; done 2>/dev/null",
        "while ip rule del priority 7020; do :; done 2>/dev/null; while ip rule del priority 7000; do :; done 2>/dev/null",
        "ip rule add priority 7050 fwmark 0x20000/0xff0000 table 7001 protocol 70",
        "ip link set eth0 down; ip link set eth0 up",
        "nft insert rule inet failover_gw new drop",
        "nft flush chain inet failover_gw pick",
        "nft delete table inet failover_gw",
        "nft flush ruleset",
        "nft 'add chain inet failover_gw evil { type filter hook forward priority 0; policy drop; }'",
        "nft 'add chain inet failover_gw prerouting { policy drop; }'",
        "nft 'add set inet failover_gw evil { type ipv4_addr; }'",
        "nft 'add chain inet failover_gw evil; add map inet failover_gw way { type ifname : verdict; \
         elements = { \"eth0\" : jump evil } }'",
    ] {
        site.host.sh(damage);
        assert_ne!(standing(&site.host), stands, "{damage}");
        assert_eq!(apply(&site, &plan)["changed"], true, "{damage}");
        // An address that is looked for anew on its link takes a while on a busy machine.
        eventually(damage, 20 * SECOND, || standing(&site.host) == stands);
        assert_eq!(apply(&site, &plan)["changed"], false, "{damage}");
    }
    // A lost memory is no change of the kernel.
    let memory = site.host.folder.join("state/gw-apply-host--.json");
    std::fs::remove_file(&memory).unwrap();
    assert_eq!(apply(&site, &plan)["changed"], false);
    assert_eq!(standing(&site.host), stands);
    // A torn one is told, and neither overwritten nor believed.
    std::fs::write(&memory, "{\"kind\":\"state.gw-ap").unwrap();
    let refused = site.host.run_with("gw apply", &plan).ended(6);
    assert!(refused.stderr.contains("gw-apply-host--.json"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&memory).unwrap(), "{\"kind\":\"state.gw-ap");
}

/// The calls of a run that change something, or start a program.
fn calls(host: &Host, line: &str, input: &str) -> String {
    let log = host.folder.join("strace");
    let mut words = line.split_whitespace();
    let binary = support::binary(words.next().unwrap());
    let mut command = std::process::Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{}", host.ns))
        .args(["strace", "-f", "-qq", "-e", "trace=execve,rename,sendto,sendmsg", "-e", "signal=none", "-s", "20"])
        .args(["-o", &log.display().to_string()])
        .arg(binary)
        .args(words)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null());
    host.environment(&mut command);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    std::fs::read_to_string(log).unwrap()
}

/// A run that finds all as it should be asks, and changes nothing: no nft, no file written.
#[test]
fn twice_is_once() {
    let site = Site::one_link(3);
    let plan = plan(&site, false, &[1.0, 1.0, 1.0], &[]);
    let first = calls(&site.host, "gw apply", &plan);
    assert!(first.contains("rename(") && first.contains("RTM_NEWRULE") && first.contains("RTM_NEWROUTE"), "{first}");
    let monitor = site.host.start_shell("exec ip monitor route rule");
    let second = calls(&site.host, "gw apply", &plan);
    assert_eq!(second.matches("execve(").count(), 1, "{second}");
    let changes = ["rename(", "RTM_NEW", "RTM_DEL", "NFT_MSG_NEW", "NFNL_MSG_BATCH_BEGIN", "\"-f\""];
    for change in changes {
        assert!(!second.contains(change), "{change} in {second}");
    }
    // Once another program has changed rules of its own, it is looked whether ours are among them.
    site.host.sh("nft add table ip other");
    let third = calls(&site.host, "gw apply", &plan);
    assert_eq!(third.matches("execve(").count(), 2, "{third}");
    assert!(changes[1..].iter().all(|change| !third.contains(change)), "{third}");
    let fourth = calls(&site.host, "gw apply", &plan);
    assert_eq!(fourth.matches("execve(").count(), 1, "{fourth}");
    assert_eq!(monitor.text(), "");
}

/// Killed at any point, the next run makes what it would have made on a clean host.
#[test]
fn a_killed_run_is_mended_by_the_next() {
    let site = Site::one_link(3);
    let (three, two) = (plan(&site, false, &[1.0, 1.0, 1.0], &[]), plan(&site, false, &[1.0, 1.0], &[]));
    let before = standing(&site.host);
    apply(&site, &two);
    let wanted = standing(&site.host);
    site.host.run("gw clear").ended(0);
    assert_eq!(standing(&site.host), before);
    let mut ended = false;
    for (kill, first) in (1..40).flat_map(|kill| [(kill, false), (kill, true)]) {
        if first {
            apply(&site, &two);
        }
        let mut command = std::process::Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", site.host.ns))
            .args(["strace", "-qq", "-o", "/dev/null", "-e", "trace=sendto,write,rename,execve,clone3,wait4,waitid"])
            .args(["-e", &format!("inject=sendto,write,rename,clone3,wait4,waitid:signal=KILL:when={kill}")])
            .arg(support::binary("gw"))
            .arg("apply")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null());
        site.host.environment(&mut command);
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(three.as_bytes());
        ended = child.wait().unwrap().success();
        apply(&site, &two);
        assert_eq!(standing(&site.host), wanted, "killed at call {kill}");
        site.host.run("gw clear").ended(0);
        assert_eq!(standing(&site.host), before, "killed at call {kill}");
        if ended {
            break;
        }
    }
    assert!(ended, "more calls than were counted on");
}

/// Two at once do one after the other; who waits too long changes nothing.
#[test]
fn two_runs_never_interleave() {
    let site = Site::one_link(3);
    let plans = [plan(&site, false, &[1.0, 1.0, 1.0], &[]), plan(&site, false, &[1.0, 2.0], &[2])];
    let wanted: Vec<String> = plans
        .iter()
        .map(|plan| {
            apply(&site, plan);
            let stands = standing(&site.host);
            site.host.run("gw clear").ended(0);
            stands
        })
        .collect();
    for _ in 0..6 {
        std::thread::scope(|scope| {
            for plan in &plans {
                scope.spawn(|| apply(&site, plan));
            }
        });
        let now = standing(&site.host);
        // Which of the two was last is open; chains of one that has left come back at another place.
        let rules = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert!(wanted.iter().any(|wanted| rules(wanted) == rules(&now)), "{now}");
    }
    let before = standing(&site.host);
    let held = site.host.start_shell(&format!(
        "for f in {}/state/lock/*-gw; do exec flock $f sleep 60; done",
        site.host.folder.display()
    ));
    eventually("the lock is held", 5 * SECOND, || {
        !site.host.try_sh(&format!("flock -n {}/state/lock/*-gw true", site.host.folder.display())).0
    });
    let late = site.host.run_with("gw apply --timeout 200ms", &plan(&site, false, &[1.0], &[])).ended(75);
    assert!(late.stderr.contains("another run holds it"), "{late:?}");
    assert_eq!(standing(&site.host), before);
    drop(held);
}

/// Whoever has our bits is named, and nothing is changed.
#[test]
fn what_is_in_the_way_is_refused() {
    let site = Site::one_link(2);
    let plan = plan(&site, false, &[1.0, 1.0], &[]);
    for (foreign, undo, names) in [
        (
            "ip rule add priority 100 fwmark 0x20000/0x30000 table 100",
            "ip rule del priority 100",
            "fwmark 0x20000/0x30000",
        ),
        ("ip rule add priority 100 fwmark 0x10000 table 100", "ip rule del priority 100", "fwmark 0x10000"),
        (
            "nft 'add table ip m; add chain ip m c { type filter hook prerouting priority 0; }; add rule ip m c meta mark set 0x20000'",
            "nft delete table ip m",
            "'meta mark set 0x00020000' in the chain c of the table ip m",
        ),
        (
            "nft 'add table inet m; add chain inet m c { type filter hook prerouting priority 0; }; add rule inet m c ct mark and 0xff0000 == 0x10000 drop'",
            "nft delete table inet m",
            "chain c of the table inet m",
        ),
        (
            "nft 'add table ip m; add chain ip m c { type filter hook forward priority 0; }; add rule ip m c udp dport 9 ct mark set 0'",
            "nft delete table ip m",
            "'udp dport 9 ct mark set 0x00000000' in the chain c of the table ip m",
        ),
        (
            "iptables-nft -t mangle -A PREROUTING -p udp -j MARK --set-mark 1",
            "nft delete table ip mangle",
            "in the chain PREROUTING of the table ip mangle",
        ),
        (
            "nft 'add table inet m; add chain inet m far; add rule inet m far ct mark set meta mark; \
             add chain inet m c { type filter hook prerouting priority -160; }; add rule inet m c udp dport 9 jump far'",
            "nft delete table inet m",
            "'ct mark set meta mark' in the chain far of the table inet m",
        ),
        ("ip route add default via 192.0.2.77 table 7002", "ip route flush table 7002", "table 7002"),
    ] {
        site.host.sh(foreign);
        let before = standing(&site.host);
        let refused = site.host.run_with("gw apply", &plan).ended(1);
        assert!(refused.stderr.contains(names), "{refused:?}");
        assert_eq!((&refused.one()["error"]["reason"], refused.stderr.lines().count()), (&"conflict".into(), 1));
        assert_eq!(standing(&site.host), before);
        site.host.sh(undo);
    }
    // Who merely looks for a mark of its own is not in the way.
    site.host.sh("ip rule add priority 100 not fwmark 0xca6c table 100; \
         nft 'add table inet wg; add chain inet wg pre { type filter hook prerouting priority mangle; }; \
         add rule inet wg pre meta l4proto udp meta mark set ct mark; \
         add chain inet wg post { type filter hook postrouting priority mangle; }; \
         add rule inet wg post meta mark 0xca6c ct mark set meta mark; \
         add rule inet wg post meta mark set meta mark or 0x4000'");
    assert_eq!(apply(&site, &plan)["changed"], true);
    // Another split that has another gateway by a number, or another mask.
    let other = plan_with(&site, false, &[1.0], &[], "--name other");
    let turned = other.replace("192.0.2.1", "192.0.2.9");
    let refused = site.host.run_with("gw apply", &turned).ended(1);
    assert!(refused.stderr.contains("it is that of 192.0.2.1"), "{refused:?}");
    let masked = plan_with(&site, false, &[1.0], &[], "--name other --mark-mask 0xff000000");
    let refused = site.host.run_with("gw apply", &masked).ended(1);
    assert!(refused.stderr.contains("the same --mark-mask"), "{refused:?}");
    assert_eq!(site.host.run_with("gw apply", &plan).ended(0).one()["changed"], false);
}

#[test]
fn a_plan_that_is_none_changes_nothing() {
    let site = Site::one_link(2);
    let well = plan(&site, false, &[1.0, 1.0], &[]);
    let before = standing(&site.host);
    for (input, code, why) in [
        (String::new(), 75, "no plan was read"),
        ("{\"kind\":\"gw.probe\",\"subject\":\"192.0.2.1\",\"status\":\"up\"}\n".to_owned(), 75, "no plan was read"),
        ("nonsense\n".to_owned(), 6, "line 1 is malformed"),
        (well.replace("[0,4999]", "[0,4000]"), 6, "do not begin where others end"),
        (well.replace("7001", "254"), 6, "has the table 254"),
        (
            well.replace("192.0.2.1", "203.0.113.7").replace("192.0.2.2", "192.0.2.200"),
            5,
            "is on no network of this host",
        ),
        (well.replace("\"name\":\"g", "\"dev\":\"eth7"), 5, "no such interface"),
        (well.replace("\"subject\":\"-\"", "\"subject\":\"a\\\"b\""), 6, "a character that nft cannot keep"),
        (plan(&site, false, &[1.0, 1.0], &[1, 2]), 1, "what stands goes on"),
        (
            well.replace("\"v\":1", "\"v\":1,\"received_ms\":1.0,\"valid_for_ms\":1.0")
                .replacen(",\"received_ms\":", ",\"was\":", 2)
                .replacen(",\"was\":", ",\"received_ms\":", 1),
            75,
            "it has expired",
        ),
    ] {
        let refused = site.host.run_with("gw apply", &input).ended(code);
        assert!(refused.stderr.contains(why), "{refused:?}");
        refused.records();
        assert_eq!(standing(&site.host), before, "{why}");
    }
    let mixed = site.host.run_with("gw apply", &well.replace("192.0.2.1", "2001:db8::1")).ended(6);
    assert!(mixed.stderr.contains("both families"), "{mixed:?}");
    // The newest of a name counts, whatever was said before.
    let stands = site.host.run_with("gw apply", &(plan(&site, false, &[1.0, 1.0], &[1]) + &well)).ended(0);
    assert_eq!(stands.one()["gateways"], serde_json::json!(["192.0.2.1", "192.0.2.2"]));
    let stood = standing(&site.host);
    site.host.run_with("gw apply", &plan(&site, false, &[1.0, 1.0], &[1, 2])).ended(1);
    assert_eq!(standing(&site.host), stood, "nobody has a share: what stands goes on");
}

/// Who may not is told what it takes; who has no nft, what to install; cron's environment is enough.
#[test]
fn what_is_missing_is_named() {
    let site = Site::one_link(1);
    let plan = plan(&site, false, &[1.0], &[]);
    for verb in ["apply", "clear", "report"] {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]);
        command.arg("--bounding-set").arg("-all");
        command.arg(format!("{}", support::binary("gw").display())).arg(verb);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.contains("CAP_NET_ADMIN")), (Some(4), true), "{said}");
    }
    let mut cron = site.host.command("gw apply");
    cron.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "de_DE.UTF-8");
    site.host.environment(&mut cron);
    cron.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = cron.spawn().unwrap();
    child.stdin.take().unwrap().write_all(plan.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("\"changed\":true"));
}

/// Every document is taken by nft as it stands, and a dry run changes nothing.
#[test]
fn nft_takes_every_document() {
    for ipv6 in [false, true] {
        let site = Site::one_link(0);
        for count in [1, 2, 3, 16, 100] {
            let mut line = "gw split --redistribute proportional".to_owned();
            let mut verdicts = String::new();
            for n in 1..=count {
                let gateway = if ipv6 { format!("2001:db8::{n:x}") } else { format!("192.0.2.{n}") };
                let _ = write!(line, " --gateway {gateway}");
                let status = if count > 2 && n % 3 == 0 { "down" } else { "up" };
                let _ = writeln!(verdicts, "{{\"subject\":\"{gateway}\",\"status\":\"{status}\"}}");
            }
            let plan = site.host.run_with(&line, &verdicts).ended(0).stdout;
            let before = standing(&site.host);
            for (by, more) in [
                ("flow", ""),
                ("client", "--local --exclude 10.0.0.0/8,10.1.0.0/16,fd00::/8"),
                (
                    "client-destination",
                    "--only 203.0.113.0/24,2001:db8:2::/48 --match tcp,udp:53,udp:5060-5061,dscp:46 --flush-dead",
                ),
            ] {
                let planned = site.host.run_with(&format!("gw apply --dry-run --by {by} {more}"), &plan).ended(0).one();
                assert_eq!((&planned["changed"], &planned["dry_run"]), (&true.into(), &true.into()));
                let actions = planned["actions"].as_array().unwrap();
                let document = actions.iter().find(|action| action["op"] == "nft").unwrap()["text"].as_str().unwrap();
                let file = site.host.folder.join("document.nft");
                std::fs::write(&file, document).unwrap();
                let (taken, said) = site.host.try_sh(&format!("nft -c -f {}", file.display()));
                assert!(taken, "{count} {by}: {said}");
                let rules = actions.iter().filter(|action| action["op"] == "rule-add").count();
                assert_eq!(rules, 3 * count);
                assert_eq!(standing(&site.host), before);
            }
            // What was told is what is done.
            if count == 3 {
                let planned = site.host.run_with("gw apply --dry-run", &plan).ended(0).one();
                for action in planned["actions"].as_array().unwrap().iter().filter(|action| action["op"] != "nft") {
                    site.host.sh(action["text"].as_str().unwrap());
                }
                let done = site.host.run_with("gw apply --explain", &plan).ended(0).one();
                let ops: Vec<&Value> = done["actions"].as_array().unwrap().iter().map(|action| &action["op"]).collect();
                assert_eq!(ops, ["nft"], "routes and rules stand as told");
                site.host.run("gw clear --all").ended(0);
                assert_eq!(standing(&site.host), before);
            }
        }
    }
}

/// A gateway that leaves takes its rules, its routes and its chains along.
#[test]
fn who_leaves_leaves_nothing() {
    let site = Site::one_link(3);
    mute(&site);
    let before = standing(&site.host);
    let (three, two) = (plan(&site, false, &[1.0, 1.0, 1.0], &[]), plan(&site, false, &[1.0, 1.0], &[]));
    apply(&site, &two);
    let wanted = standing(&site.host);
    apply(&site, &three);
    send(&site.client, SocketAddr::new(target(false), 9), 10_000..10_060, 1);
    let done = site.host.run_with("gw apply --flush-dead", &two).ended(0).one();
    assert!(done["flushed"].as_u64().unwrap() > 5, "{done}");
    let removed: Vec<&str> = done["removed"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(removed.len(), 4, "{removed:?}");
    assert!(removed[3].starts_with("route default via 192.0.2.3 dev eth0 table 7003"), "{removed:?}");
    assert_eq!(standing(&site.host), wanted);
    assert_eq!(site.host.sh("conntrack -L -p udp -m 0x30000/0xff0000 2>/dev/null"), "");
    let cleared = site.host.run("gw clear --explain").ended(0).one();
    assert_eq!(cleared["changed"], true);
    assert_eq!(standing(&site.host), before);
    assert_eq!(site.host.run("gw clear").ended(0).one()["changed"], false);
    assert_eq!(site.host.run("gw clear --all").ended(0).one()["changed"], false);
    let none = site.host.run("gw report").ended(1);
    assert!(none.stderr.contains("no split - is applied (see: gw apply)"), "{none:?}");
}

/// Counters go on through a new plan, and what a new table counts is not taken for less.
#[test]
fn a_report_is_of_what_was_carried_since_the_last() {
    let site = Site::own_links(2);
    let to = SocketAddr::new(target(false), 7);
    let _mirror = Mirror::start(&site.net, to);
    let state = site.host.folder.join("report.json");
    let line = format!("gw report --state {}", state.display());
    apply(&site, &plan(&site, false, &[1.0, 3.0], &[]));
    let talk = |count: usize| {
        // A port may be drawn again, and a flow that is known is not new.
        site.host.sh("conntrack -F 2>/dev/null");
        let mut ways = [0u64; 2];
        for _ in 0..count {
            ways[way_of(&socket(&site.client, to)).unwrap() - 1] += 1;
        }
        ways
    };
    let told = || -> Vec<Value> { site.host.run(&line).ended(0).records() };
    let number = |report: &Value, key: &str| report[key].as_u64().unwrap();
    let first = talk(20);
    let reports = told();
    for (report, flows) in reports.iter().zip(first) {
        assert_eq!(number(report, "connections"), flows);
        // An IPv4 header, a UDP header, one octet there and eleven or so back.
        assert!(number(report, "sent_bytes") == number(report, "sent_packets") * 29);
        assert!(number(report, "received_packets") >= flows && number(report, "received_bytes") >= flows * 37);
        assert_eq!(report["counter_reset"], false);
    }
    assert_eq!((&reports[0]["share_wanted"], &reports[1]["share_wanted"]), (&0.25.into(), &0.75.into()));
    let got: f64 = reports.iter().map(|report| report["share_got"].as_f64().unwrap()).sum();
    assert!((got - 1.0).abs() < 0.001);
    // A new plan in between, and nothing is lost.
    let second = talk(10);
    apply(&site, &plan(&site, false, &[1.0, 1.0], &[]));
    let third = talk(10);
    let reports = told();
    for (at, report) in reports.iter().enumerate() {
        assert_eq!(number(report, "connections"), second[at] + third[at]);
        assert!(report["elapsed_ms"].as_f64().unwrap() < 60_000.0 && report["counter_reset"] == false);
    }
    assert_eq!(told().iter().map(|report| number(report, "sent_packets")).sum::<u64>(), 0);
    // Another table, with counters that have passed the old ones or not.
    talk(3);
    site.host.sh("nft delete table inet failover_gw");
    apply(&site, &plan(&site, false, &[1.0, 1.0], &[]));
    let after = talk(5);
    for (report, flows) in told().iter().zip(after) {
        assert_eq!((number(report, "connections"), &report["counter_reset"]), (flows, &true.into()));
    }
    assert!(told().iter().all(|report| report["counter_reset"] == false && report["share_got"] == Value::Null));
}

/// What a gateway carried before it left is told, and counts for the shares of the others.
#[test]
fn who_has_left_is_reported_with_what_it_carried() {
    let site = Site::one_link(3);
    mute(&site);
    let (three, two) = (plan(&site, false, &[1.0, 1.0, 1.0], &[]), plan(&site, false, &[1.0, 1.0], &[]));
    let state = site.host.folder.join("report.json");
    let told = || -> Vec<Value> { site.host.run(&format!("gw report --state {}", state.display())).ended(0).records() };
    let count = |reports: &[Value], key: &str| reports.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    let draw = |ports| send(&site.client, SocketAddr::new(target(false), 9), ports, 1);
    apply(&site, &three);
    draw(10_000..10_060);
    assert_eq!(count(&told(), "connections"), 60);
    draw(10_060..10_120);
    apply(&site, &two);
    draw(10_120..10_130);
    let reports = told();
    assert_eq!((reports.len(), count(&reports, "connections"), count(&reports, "sent_packets")), (3, 70, 70));
    let third = &reports[2];
    assert!(third["subject"] == "192.0.2.3" && third["name"] == "g3" && third["share_wanted"] == 0.0, "{third}");
    assert!(third["share_got"].as_f64().unwrap() > 0.05 && third["counter_reset"] == false, "{third}");
    assert_eq!(told().len(), 2, "all of it is told");
    // Back again, it goes on.
    apply(&site, &three);
    draw(10_130..10_190);
    let reports = told();
    assert_eq!((reports.len(), count(&reports, "connections")), (3, 60));
    assert!(reports.iter().all(|report| report["counter_reset"] == false));
    assert_eq!(count(&site.host.run("gw report").ended(0).records(), "connections"), 190);
}

/// Under a strict reverse path filter that looks at marks, both what is split and what is probed come back.
#[test]
fn answers_pass_a_strict_reverse_path_filter() {
    let site = Site::own_links(2);
    site.host.sh("ip route add default via 10.0.1.1; \
                  sysctl -qw net.ipv4.conf.all.src_valid_mark=1 net.ipv4.conf.all.rp_filter=1 \
                  net.ipv4.conf.eth1.rp_filter=1 net.ipv4.conf.eth2.rp_filter=1");
    let to = SocketAddr::new(target(false), 7);
    let _mirror = Mirror::start(&site.net, to);
    apply(&site, &plan(&site, false, &[0.0, 1.0], &[]));
    assert!((0..5).all(|_| way_of(&socket(&site.client, to)) == Some(2)));
    // A probe of gateway 2, as gw probe makes it.
    site.host.sh("ip route add default via 10.0.2.1 table 7255 proto 70; \
                  ip rule add priority 7100 fwmark 0xff0000/0xff0000 table 7255 protocol 70");
    let probe = |mark: u32| {
        let marked = site.host.inside(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Mark, &mark).unwrap();
            socket.connect(to).unwrap();
            socket
        });
        let socket = marked.join().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        seen_as(&socket)
    };
    assert_eq!(probe(0x00ff_0000), Some("198.51.100.2".parse().unwrap()));
    site.host.run("gw clear").ended(0);
    site.host.sh("conntrack -F 2>/dev/null");
    assert_eq!(probe(0x00ff_0000), None, "without the table the answers are filtered");
}

/// A stream carries out each plan as it comes, and mends what others take away.
#[test]
fn a_stream_follows_plans_and_mends() {
    let site = Site::one_link(2);
    let before = standing(&site.host);
    let well = plan(&site, false, &[1.0, 1.0], &[]);
    let mut run = site.host.start_fed("gw apply --follow --on-eof release");
    run.feed(&well);
    run.wait_for("split", 5 * SECOND, |record| record["changed"] == true);
    let stands = standing(&site.host);
    assert!(stands.contains("failover_gw"));
    run.feed(&well);
    for damage in ["ip route flush table 7002", "nft delete table inet failover_gw", "nft flush ruleset"] {
        site.host.sh(damage);
        eventually(damage, 5 * SECOND, || standing(&site.host) == stands);
    }
    run.feed("nonsense\n");
    run.feed(&plan(&site, false, &[1.0, 1.0], &[1, 2]));
    eventually("nobody has a share", 5 * SECOND, || run.complaints().contains("what stands goes on"));
    assert_eq!(standing(&site.host), stands);
    run.feed(&plan(&site, false, &[1.0, 1.0], &[1]));
    run.wait_for("one", 5 * SECOND, |record| record["gateways"] == serde_json::json!(["192.0.2.2"]));
    assert!(run.complaints().contains("line 3 is malformed"), "{}", run.complaints());
    drop(run.child.stdin.take());
    assert_eq!(run.ends(5 * SECOND), 6);
    assert_eq!(standing(&site.host), before);
    // By itself the end of input is no reason to cut anybody off.
    let mut run = site.host.start_fed("gw apply --follow");
    run.feed(&well);
    run.wait_for("split", 5 * SECOND, |record| record["changed"] == true);
    drop(run.child.stdin.take());
    assert_eq!(run.ends(5 * SECOND), 1);
    assert_eq!(standing(&site.host), stands);
}
