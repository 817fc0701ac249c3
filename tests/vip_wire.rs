//! `vip arp who dad tickle watch` on the wire, with tcpdump and the neighbours' tables as witnesses.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use support::{Host, Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// tcpdump on a host's eth0, until `count` packets came or it is stopped.
struct Capture {
    child: std::process::Child,
    out: std::path::PathBuf,
}

impl Capture {
    fn start(host: &Host, filter: &str) -> Capture {
        let out = host.folder.join("tcpdump");
        let err = host.folder.join("tcpdump.err");
        let child = std::process::Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", host.ns))
            .args(["tcpdump", "-lnnei", "eth0", "--immediate-mode", "-vv", filter])
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        eventually("tcpdump listens", 5 * SECOND, || std::fs::read_to_string(&err).unwrap().contains("listening on"));
        Capture { child, out }
    }

    /// What it saw, once `parts` are all there.
    fn sees(&self, parts: &[&str]) -> String {
        let seen = || std::fs::read_to_string(&self.out).unwrap();
        let end = Instant::now() + 3 * SECOND;
        while !parts.iter().all(|part| seen().contains(part)) {
            assert!(Instant::now() < end, "wanted {parts:?} in:\n{}", seen());
            std::thread::sleep(Duration::from_millis(10));
        }
        seen()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The MAC that a host's neighbour table has for an address.
fn neighbour(host: &Host, addr: &str) -> String {
    let line = host.sh(&format!("ip neigh show {addr} dev eth0"));
    line.split("lladdr ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
}

#[test]
fn announcements_leave_in_both_forms_and_the_neighbours_believe_them() {
    let lab = Lab::new();
    let old = lab.host("n1", &["192.0.2.1/24", "192.0.2.10/24", "2001:db8::1/64", "2001:db8::10/64"]);
    let new = lab.host("n2", &["192.0.2.2/24", "2001:db8::2/64"]);
    let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
    client.sh("ping -c1 -W2 -q 192.0.2.10 && ping -c1 -W2 -q 2001:db8::10");
    assert_eq!(neighbour(&client, "192.0.2.10"), "02:00:00:00:00:01");
    old.sh("ip addr del 192.0.2.10/24 dev eth0; ip addr del 2001:db8::10/64 dev eth0");
    let capture = Capture::start(&client, "arp or icmp6");
    let run = new.run("vip arp 192.0.2.10 2001:db8::10 --dev eth0 --count 2 --interval 50ms").ended(0);
    assert_eq!(run.records()[0]["sent"], 4);
    assert_eq!(run.records()[1]["forms"], serde_json::json!(["na"]));
    let seen = capture.sees(&[
        "Request who-has 192.0.2.10 tell 192.0.2.10",
        "Reply 192.0.2.10 is-at 02:00:00:00:00:02",
        "neighbor advertisement",
        "tgt is 2001:db8::10, Flags [override]",
        "destination link-address option (2), length 8 (1): 02:00:00:00:00:02",
    ]);
    assert!(!seen.contains("bad icmp6 cksum"), "{seen}");
    for addr in ["192.0.2.10", "2001:db8::10"] {
        assert_eq!(neighbour(&client, addr), "02:00:00:00:00:02");
    }
    // One form, another MAC, a virtual router's.
    let capture = Capture::start(&client, "arp or icmp6");
    new.run("vip arp 192.0.2.10 --dev eth0 --form reply --mac 01:02:03:04:05:06").ended(0);
    new.run("vip arp 192.0.2.10 2001:db8::10 --dev eth0 --vmac 51").ended(0);
    let seen = capture.sees(&[
        "02:00:00:00:00:02 > ff:ff:ff:ff:ff:ff",
        "Reply 192.0.2.10 is-at 01:02:03:04:05:06",
        "00:00:5e:00:01:33 > ff:ff:ff:ff:ff:ff",
        "00:00:5e:00:02:33 > 33:33:00:00:00:01",
        "Flags [router, override]",
    ]);
    assert!(!seen.contains("bad icmp6 cksum"), "{seen}");
    // One neighbour alone.
    let other = lab.host("other", &["192.0.2.98/24"]);
    let (to_client, to_other) = (Capture::start(&client, "arp"), Capture::start(&other, "arp and not broadcast"));
    new.run("vip arp 192.0.2.10 --dev eth0 --target 192.0.2.99").ended(0);
    to_client.sees(&["02:00:00:00:00:02 > 02:00:00:00:00:03"]);
    assert!(!std::fs::read_to_string(&to_other.out).unwrap().contains("192.0.2.10"));
}

#[test]
fn a_device_without_an_address_announces_and_a_dead_link_is_an_error() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    host.run("vip arp 192.0.2.10 --dev eth0").ended(0);
    lab.on_switch("ip link set n1.eth0 down");
    let dead = host.run("vip arp 192.0.2.10 --dev eth0").ended(71);
    assert!(dead.stderr.contains("no carrier"), "{dead:?}");
    let record = dead.one();
    assert_eq!(
        (&record["sent"], &record["failed"], &record["error"]["errno"]),
        (&0.into(), &2.into(), &"ENETDOWN".into())
    );
    host.sh("ip link set eth0 down");
    assert!(host.run("vip arp 192.0.2.10 --dev eth0").ended(71).stderr.contains("the link is down"));
    assert!(host.run("vip arp 192.0.2.10 --dev lo").ended(5).stderr.contains("no MAC"));
}

/// known-faults 6: who keeps the address says so again, and a failed saying is told and tried again.
#[test]
fn the_owner_says_it_again_after_another_did_and_after_its_link_died() {
    let lab = Lab::new();
    let owner = lab.host("n1", &["192.0.2.1/24", "192.0.2.10/24"]);
    let other = lab.host("n2", &["192.0.2.2/24"]);
    let client = lab.host("client", &["192.0.2.99/24"]);
    client.sh("ping -nc1 -W2 192.0.2.10");
    let mac = neighbour(&client, "192.0.2.10");
    let owners = || neighbour(&client, "192.0.2.10") == mac;
    let misled = || {
        other.run("vip arp 192.0.2.10 --dev eth0").ended(0);
        eventually("the client believes the other", 5 * SECOND, || {
            let believes = !owners();
            if !believes {
                other.run("vip arp 192.0.2.10 --dev eth0").ended(0);
            }
            believes
        });
    };
    let refresh = owner.start("vip arp 192.0.2.10 --dev eth0 --refresh 1500ms");
    refresh.wait_for("the first round", 5 * SECOND, |record| record["sent"] == 2);
    misled();
    eventually("the owner says it again", 5 * SECOND, owners);
    lab.on_switch("ip link set n1.eth0 down");
    let failed = refresh.wait_for("the failure", 5 * SECOND, |record| record["failed"] == 2);
    assert_eq!(failed["error"]["errno"], "ENETDOWN");
    misled();
    lab.on_switch("ip link set n1.eth0 up");
    eventually("the owner says it after its link came back", 5 * SECOND, owners);
}

#[test]
fn four_thousand_announcements_all_arrive() {
    let lab = Lab::new();
    let (host, client) = (lab.host("n1", &["10.0.0.1/16"]), lab.host("client", &["10.0.99.1/16"]));
    client.sh("nft 'table netdev t { chain c { type filter hook ingress device eth0 priority 0; ether type arp counter; }; }'");
    let many: String = (0..4096).map(|n| format!("10.0.{}.{}\n", 1 + n / 250, 1 + n % 250)).collect();
    let records = host.run_with("vip arp - --dev eth0", &many).ended(0).records();
    assert_eq!(records.len(), 4096);
    assert!(records.iter().all(|record| record["sent"] == 2 && record["failed"] == 0));
    eventually("all of them", 3 * SECOND, || client.sh("nft list table netdev t").contains("packets 8192 "));
}

/// known-faults 5: a question that never left the host.
#[test]
fn a_search_for_duplicates_has_three_answers() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    let other = lab.host("n2", &["192.0.2.10/24", "2001:db8::10/64"]);
    // (a) free, and what was asked.
    let capture = Capture::start(&other, "arp or icmp6");
    assert_eq!(host.run("vip dad 192.0.2.77 --dev eth0").ended(0).one()["answer"], "free");
    assert_eq!(host.run("vip dad 2001:db8::77 --dev eth0").ended(0).one()["answer"], "free");
    let seen = capture.sees(&["Request who-has 192.0.2.77", "who has 2001:db8::77"]);
    assert!(seen.contains("tell 0.0.0.0"), "sender address 0.0.0.0: {seen}");
    assert!(seen.contains(":: > ff02::1:ff00:77"), "from nobody: {seen}");
    // (b) taken, with the MAC, and soon.
    let started = Instant::now();
    for addr in ["192.0.2.10", "2001:db8::10"] {
        let taken = host.run(&format!("vip dad {addr} --dev eth0")).ended(1).one();
        assert_eq!((&taken["answer"], &taken["holders"][0]["mac"]), (&"taken".into(), &"02:00:00:00:00:02".into()));
    }
    assert!(started.elapsed() < SECOND, "a conflict ends the search");
    // (e) two machines, each once.
    let third = lab.host("n3", &["192.0.2.10/24", "2001:db8::10/64"]);
    for addr in ["192.0.2.10", "2001:db8::10"] {
        let many = host.run(&format!("vip who {addr} --dev eth0 --for 500ms")).ended(1).one();
        let mut macs: Vec<&str> =
            many["holders"].as_array().unwrap().iter().map(|h| h["mac"].as_str().unwrap()).collect();
        macs.sort_unstable();
        assert_eq!((&many["answer"], macs), (&"many".into(), vec!["02:00:00:00:00:02", "02:00:00:00:00:03"]));
    }
    third.sh("ip link set eth0 down");
    assert_eq!(host.run("vip who 192.0.2.10 --for 300ms").ended(0).one()["answer"], "one");
    assert_eq!(host.run("vip who 192.0.2.1 --for 300ms").ended(0).one()["holders"][0]["mac"], "02:00:00:00:00:01");
    assert_eq!(host.run("vip who 192.0.2.77 --for 300ms").ended(1).one()["answer"], "none");
    // (c), (d) no carrier, down, missing: never free.
    lab.on_switch("ip link set n1.eth0 down");
    for line in ["vip dad 192.0.2.77 --dev eth0", "vip who 192.0.2.77 --dev eth0"] {
        let unknown = host.run(line).ended(75);
        assert!(unknown.stderr.contains("no carrier"), "{unknown:?}");
        assert_eq!(unknown.one()["answer"], "unknown");
    }
    host.sh("ip link set eth0 down");
    assert!(host.run("vip dad 192.0.2.77 --dev eth0").ended(75).stderr.contains("the link is down"));
    host.run("vip dad 192.0.2.77 --dev eth9").ended(5);
}

#[test]
fn adding_with_a_search_adds_no_duplicate_and_tells_whose_it_is() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    let _other = lab.host("n2", &["192.0.2.10/24", "2001:db8::10/64"]);
    for vip in ["192.0.2.10/24", "2001:db8::10/64"] {
        let refused = host.run(&format!("vip add {vip} --dev eth0 --dad fast")).ended(1);
        assert!(refused.stderr.contains("02:00:00:00:00:02 has it"), "{refused:?}");
        assert_eq!(refused.one()["holders"][0], "02:00:00:00:00:02");
        assert!(!host.sh("ip addr show dev eth0").contains(vip));
    }
    let started = Instant::now();
    let added = host.run("vip add 192.0.2.11/24 2001:db8::11/64 --dev eth0 --dad fast --announce 2").ended(0).records();
    assert!(started.elapsed() < 2 * SECOND);
    assert_eq!((&added[0]["announced"], &added[1]["announced"]), (&4.into(), &2.into()));
    lab.on_switch("ip link set n1.eth0 down");
    host.run("vip add 192.0.2.12/24 --dev eth0 --dad fast").ended(75);
    host.run("vip add 192.0.2.12/24 --dev eth0 --require-carrier").ended(75);
    assert!(!host.sh("ip addr show dev eth0").contains("192.0.2.12/24"));
}

#[test]
fn a_full_search_takes_as_long_as_the_rfc_says() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let started = Instant::now();
    host.run("vip dad 192.0.2.77 --dev eth0 --profile full").ended(0);
    let took = started.elapsed();
    assert!((4 * SECOND..8 * SECOND).contains(&took), "{took:?}");
}

#[test]
fn watch_tells_what_happens_within_milliseconds() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut watch = host.start("vip watch");
    watch.wait_for("what is there", 2 * SECOND, |record| {
        record["event"] == "present" && record["subject"] == "192.0.2.1"
    });
    let wait = |event: &'static str, subject: &'static str| {
        let started = Instant::now();
        let record =
            watch.wait_for(event, 2 * SECOND, |record| record["event"] == event && record["subject"] == subject);
        assert!(started.elapsed() < Duration::from_millis(500), "{event}: {:?}", started.elapsed());
        record
    };
    host.run("vip add 192.0.2.10/24 --dev eth0").ended(0);
    assert_eq!(wait("added", "192.0.2.10")["mine"], true);
    host.sh("ip addr change 192.0.2.10/24 dev eth0 valid_lft 100 preferred_lft 100");
    wait("changed", "192.0.2.10");
    host.sh("ip addr del 192.0.2.10/24 dev eth0");
    wait("removed", "192.0.2.10");
    lab.on_switch("ip link set n1.eth0 down");
    assert_eq!(wait("link-down", "eth0")["status"], "down");
    lab.on_switch("ip link set n1.eth0 up");
    wait("link-up", "eth0");
    host.sh("ip link del eth0");
    wait("link-gone", "eth0");
    watch.signal(Signal::SIGTERM);
    assert_eq!(watch.ends(2 * SECOND), -15);
}

#[test]
fn watch_reads_all_anew_when_messages_were_lost() {
    let lab = Lab::new();
    let host = lab.host("n1", &["10.0.0.1/16"]);
    let watch = host.start("vip watch --mine");
    std::thread::sleep(Duration::from_millis(100));
    watch.signal(Signal::SIGSTOP);
    let many: String = (0..6000).map(|n| format!("10.0.{}.{}/16\n", 1 + n / 250, 1 + n % 250)).collect();
    host.run_with("vip add - --dev eth0", &many).ended(0);
    watch.signal(Signal::SIGCONT);
    eventually("every address was told", 20 * SECOND, || {
        let subjects: std::collections::HashSet<String> = watch
            .so_far()
            .iter()
            .filter(|record| record["prefix_len"] == 16)
            .map(|record| record["subject"].as_str().unwrap().to_owned())
            .collect();
        subjects.len() == 6000
    });
}

/// An echo server on the address; the threads end with the test.
fn serve(host: &Host, addr: &'static str) {
    host.inside(move || {
        let listener = TcpListener::bind(addr).unwrap();
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|got| got == 1) && stream.write_all(&byte).is_ok() {}
            });
        }
    });
}

fn connect(host: &Host, addr: &'static str) -> TcpStream {
    let thread = host.inside(move || {
        let end = Instant::now() + 3 * SECOND;
        loop {
            match TcpStream::connect(addr) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut stream = thread.join().unwrap();
    stream.set_read_timeout(Some(10 * SECOND)).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

#[test]
fn a_tickled_peer_notices_at_once_and_an_idle_one_would_not() {
    for (vip, place, prefix) in
        [("192.0.2.10", "192.0.2.10:7000", "192.0.2.10/24"), ("2001:db8::10", "[2001:db8::10]:7000", "2001:db8::10/64")]
    {
        let lab = Lab::new();
        let old = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64", prefix]);
        let new = lab.host("n2", &["192.0.2.2/24", "2001:db8::2/64"]);
        let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
        serve(&old, place);
        let mut stream = connect(&client, place);
        let peers = old.run(&format!("vip peers {vip}")).ended(0);
        assert_eq!((peers.records().len(), &peers.records()[0]["port"]), (1, &7000.into()));
        let from_ss = old.sh(&format!("ss -Hnt src [{vip}]").replace("[192.0.2.10]", "192.0.2.10"));
        lab.on_switch("ip link set n1.eth0 down");
        new.run(&format!("vip add {prefix} --dev eth0 --dad off --announce 1")).ended(0);
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let idle = stream.read(&mut [0]).unwrap_err();
        assert_eq!(idle.kind(), std::io::ErrorKind::WouldBlock, "an idle client notices nothing");
        // Both forms of the list name the same connection once.
        let list = format!("{}{from_ss}", peers.stdout);
        let tickled = new.run_with(&format!("vip tickle {vip} --peers -"), &list).ended(0);
        assert_eq!(tickled.one()["sent"], true);
        let reset = stream.read(&mut [0]).unwrap_err();
        assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset, "{vip}");
    }
}

#[test]
fn tickle_names_a_malformed_line_and_does_the_others() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.10/24"]);
    let run = host
        .run_with("vip tickle 192.0.2.10 --peers -", "nonsense\nESTAB 0 0 192.0.2.10:80 192.0.2.99:4000\nESTAB 0 0 192.0.2.1:80 192.0.2.99:4000\n{\"kind\":\"other\"}\n")
        .ended(6);
    assert!(run.stderr.contains("line 1 is malformed"), "{run:?}");
    assert_eq!(run.records().len(), 1);
}

#[test]
fn deleting_with_its_connections_tells_both_ends() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let client = lab.host("client", &["192.0.2.99/24"]);
    host.run("vip add 192.0.2.10/24 --dev eth0").ended(0);
    serve(&host, "192.0.2.10:7000");
    let mut stream = connect(&client, "192.0.2.10:7000");
    let gone = host.run("vip del 192.0.2.10/24 --dev eth0 --kill-connections");
    assert_eq!(gone.ended(0).one()["connections_killed"], 1);
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_missing_right_to_the_wire_is_named() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    for verb in [
        "arp 192.0.2.10 --dev eth0",
        "who 192.0.2.10 --dev eth0",
        "dad 192.0.2.10 --dev eth0",
        "tickle 192.0.2.10 --peers /dev/null",
    ] {
        let (_, said) = host
            .try_sh(&format!("setpriv --bounding-set=-net_raw {} {verb}; echo $?", support::binary("vip").display()));
        assert!(said.contains("needs CAP_NET_RAW") && said.starts_with("4\n"), "{verb}: {said}");
    }
}

#[test]
fn a_virtual_router_has_its_own_mac_and_leaves_no_setting_behind() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
    host.sh("sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=0");
    let settings = "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.eth0.rp_filter net.ipv4.conf.eth0.arp_ignore net.ipv4.conf.eth0.arp_filter net.ipv4.conf.lo.rp_filter";
    let before = host.sh(settings);
    let planned = host.run("vip add 192.0.2.10/32 --dev eth0 --vmac 51 --dry-run").ended(0).one();
    assert!(
        planned["actions"]
            .to_string()
            .contains("ip link add vrrp4.51 link eth0 address 00:00:5e:00:01:33 type macvlan mode private")
    );
    assert_eq!((host.sh(settings), host.try_sh("ip link show vrrp4.51").0), (before.clone(), false));

    let added = host
        .run("vip add 192.0.2.10/32 2001:db8::10/128 --dev eth0 --vmac 51 --dad off --announce 1")
        .ended(0)
        .records();
    assert_eq!(
        (&added[0]["dev"], &added[0]["vrid"], &added[0]["vmac"]),
        (&"vrrp4.51".into(), &51.into(), &"00:00:5e:00:01:33".into())
    );
    assert_eq!((&added[1]["dev"], &added[1]["vmac"]), (&"vrrp6.51".into(), &"00:00:5e:00:02:33".into()));
    assert_eq!(added[0]["sysctls"]["ipv4/conf/all/rp_filter"], "0");
    assert_eq!(host.run("vip add 192.0.2.10/32 --dev eth0 --vmac 51").ended(0).one()["changed"], false);
    client.sh("ping -c1 -W2 -q 192.0.2.10 && ping -c1 -W2 -q 2001:db8::10 && ping -c1 -W2 -q 192.0.2.1");
    assert_eq!(neighbour(&client, "192.0.2.10"), "00:00:5e:00:01:33");
    assert_eq!(neighbour(&client, "2001:db8::10"), "00:00:5e:00:02:33");
    assert_eq!(neighbour(&client, "192.0.2.1"), "02:00:00:00:00:01");

    // The setting that was kept is the first, also after a second router.
    host.run("vip add 192.0.2.11/32 --dev eth0 --vmac 52").ended(0);
    host.run("vip del 192.0.2.11/32 --dev vrrp4.52").ended(0);
    assert!(host.try_sh("ip link show vrrp4.51").0 && !host.try_sh("ip link show vrrp4.52").0);
    host.run("vip del --mine").ended(0);
    assert!(!host.try_sh("ip link show vrrp4.51").0 && !host.try_sh("ip link show vrrp6.51").0);
    assert_eq!(host.sh(settings), before);
}

#[test]
fn a_foreign_interface_of_that_name_is_left_alone() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    host.sh("ip link add vrrp4.51 type veth peer name other");
    let refused = host.run("vip add 192.0.2.10/32 --dev eth0 --vmac 51").ended(1);
    assert!(refused.stderr.contains("vrrp4.51 is there and is another"), "{refused:?}");
}

#[test]
fn a_slow_reader_gets_the_newest_of_every_subject() {
    let lab = Lab::new();
    let host = lab.host("n1", &["10.0.0.1/16"]);
    let many: String = (0..3000).map(|n| format!("10.0.{}.{}/16\n", 1 + n / 250, 1 + n % 250)).collect();
    host.run_with("vip add - --dev eth0", &many).ended(0);
    let vip = support::binary("vip");
    // Far more than a pipe holds waits until the reader wakes.
    let (_, said) = host.try_sh(&format!(
        "timeout 4 {} watch --mine | (sleep 1; cat) | jq -r 'select(.prefix_len == 16) | .subject' | sort -u | wc -l",
        vip.display()
    ));
    assert_eq!(said.trim(), "3000");
}

/// keepalived on the same LAN: neither side confuses the other.
#[test]
fn an_address_that_keepalived_holds_is_taken_and_a_move_of_it_is_seen() {
    let lab = Lab::new();
    let (master, host) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &["192.0.2.2/24"]));
    let config = master.folder.join("keepalived.conf");
    std::fs::write(
        &config,
        "vrrp_instance V {\n state MASTER\n interface eth0\n virtual_router_id 51\n priority 150\n advert_int 0.1\n version 3\n \
         virtual_ipaddress {\n 192.0.2.50/24\n }\n}\n",
    )
    .unwrap();
    let file = |name: &str| master.folder.join(name).display().to_string();
    let log = std::fs::File::create(master.folder.join("keepalived.log")).unwrap();
    let mut keepalived = std::process::Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", master.ns))
        .args(["keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", &file("keepalived.conf")])
        .args(["--pid", &file("pid"), "--vrrp_pid", &file("vrrp.pid")])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    eventually("keepalived is master", 8 * SECOND, || master.sh("ip addr show dev eth0").contains("192.0.2.50"));
    let refused = host.run("vip add 192.0.2.50/24 --dev eth0 --dad fast").ended(1);
    assert!(refused.stderr.contains("02:00:00:00:00:01 has it"), "{refused:?}");
    assert_eq!(host.run("vip who 192.0.2.50 --for 400ms").ended(0).one()["answer"], "one");
    // Its own address is none of ours, and is not taken away with ours.
    master.run("vip add 192.0.2.60/24 --dev eth0").ended(0);
    assert_eq!(master.run("vip del --mine").ended(0).records().len(), 1);
    assert!(master.sh("ip addr show dev eth0").contains("192.0.2.50"));
    let watch = master.start("vip watch --dev eth0");
    watch.wait_for("present", 2 * SECOND, |record| record["subject"] == "192.0.2.50");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(keepalived.id()).unwrap()), Signal::SIGTERM)
        .unwrap();
    let gone = watch
        .wait_for("removed", 5 * SECOND, |record| record["event"] == "removed" && record["subject"] == "192.0.2.50");
    assert_eq!(gone["mine"], false);
    keepalived.wait().unwrap();
    host.run("vip add 192.0.2.50/24 --dev eth0 --dad fast --announce 1").ended(0);
}

#[test]
fn a_link_that_dies_during_the_question_leaves_it_open() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    lab.on_switch(
        "nft 'table bridge asked { chain c { type filter hook prerouting priority 0; arp daddr ip 192.0.2.77 counter; \
         icmpv6 type nd-neighbor-solicit @th,64,128 0x20010db8000000000000000000000077 counter; }; }'",
    );
    for (asked, addr) in [(1, "192.0.2.77"), (2, "2001:db8::77")] {
        lab.on_switch("ip link set n1.eth0 up");
        eventually("carrier", 2 * SECOND, || host.run("vip show 192.0.2.1").code == 0);
        let mut asking = host.start(&format!("vip dad {addr} --dev eth0"));
        eventually("the question is on the wire", 2 * SECOND, || {
            lab.on_switch("nft list table bridge asked").matches("packets").count()
                - lab.on_switch("nft list table bridge asked").matches("packets 0").count()
                >= asked
        });
        lab.on_switch("ip link set n1.eth0 down");
        assert_eq!(asking.ends(3 * SECOND), 75, "{:?}", asking.so_far());
        assert_eq!(asking.so_far()[0]["answer"], "unknown");
    }
}

#[test]
fn what_this_host_has_is_not_free_and_what_no_host_can_have_is_refused() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let own = host.run("vip dad 192.0.2.1").ended(1).one();
    assert_eq!((&own["answer"], &own["holders"][0]["mac"]), (&"taken".into(), &"02:00:00:00:00:01".into()));
    for addr in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "127.0.0.1", "255.255.255.255"] {
        for verb in ["dad", "who", "arp", "add"] {
            host.run(&format!("vip {verb} {addr} --dev eth0")).ended(2);
        }
    }
}

#[test]
fn a_virtual_router_that_was_killed_half_way_is_mended_by_the_next_run() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let state = "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.eth0.arp_ignore net.ipv4.conf.eth0.arp_announce; ip -br link | cut -d' ' -f1";
    let before = host.sh(state);
    let killed = |line: &str, call: u32| {
        let mut words = line.split_whitespace();
        let binary = support::binary(words.next().unwrap());
        let mut command = std::process::Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", host.ns))
            .args(["strace", "-qq", "-o", "/dev/null", "-e", "trace=sendto,write,rename"])
            .args(["-e", &format!("inject=sendto,write,rename:signal=KILL:when={call}")])
            .arg(binary)
            .args(words)
            .stdout(std::process::Stdio::null());
        host.environment(&mut command);
        command.status().unwrap()
    };
    for call in 1..=14 {
        killed("vip add 192.0.2.10/32 --dev eth0 --vmac 51", call);
        host.run("vip del --mine").ended(0);
        assert_eq!(host.sh(state), before, "add killed at call {call}");
        host.run("vip add 192.0.2.10/32 --dev eth0 --vmac 51").ended(0);
        killed("vip del 192.0.2.10/32 --dev vrrp4.51", call);
        host.run("vip del --mine").ended(0);
        assert_eq!(host.sh(state), before, "del killed at call {call}");
    }
}
