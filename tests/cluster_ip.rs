//! The recipe cluster-ip, whole: hosts fail, links fail, processes are killed, and clients that
//! nobody told go on being served.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod support;

use nix::sys::signal::Signal;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};
use support::cluster::{CLIENTS, Cluster, MS, Probes, SECOND, VIP, VIP6, is_nightly, power_switch};
use support::{Host, binary, eventually};

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

/// The LAN of a living node fails: it gives up, and its clients are reset and served elsewhere.
fn lan_fails(how: &str, back: &str, detection: Duration) {
    let cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let mut connections = cluster.connect();
    let probes = Probes::start(&cluster);
    std::thread::sleep(300 * MS);
    cluster.lab.on_switch(how);
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    let log = probes.stop();
    let silence = log.silence.0;
    eprintln!("{how}: silent for {silence:?}, detection {detection:?}");
    // 100 ms beyond the detection is the aim, and held by the nightly run, which runs this alone; two
    // cores carry three hosts and other tests here. The probes' distance and the command that breaks
    // the LAN are in it.
    let bar = if is_nightly() { 100 * MS } else { SECOND };
    assert!(silence < detection + bar && log.twice.is_empty(), "{log:?}\n{}", cluster.logs());
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

/// Checks of a node's health that fail while a file of its name is there, and how they count.
fn checks(client: &Host, policy: &str, names: &[&str]) -> String {
    let folder = client.folder.display();
    let entries: Vec<String> = names
        .iter()
        .map(|name| {
            let check = client.folder.join(name);
            fs::write(&check, format!("#!/bin/sh\n[ ! -e {folder}/{name}-$FAILOVER_NODE ]\n")).unwrap();
            fs::set_permissions(&check, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            format!("exec={}", check.display())
        })
        .collect();
    format!(
        "quorum=yes\nfencing=none\nchecks='{}'\npolicy={policy}\ncheck_interval=200ms\nresponse_timeout=1s\n\
         down_time=200ms\nsuccess_retries=1",
        entries.join(" ")
    )
}

#[test]
fn the_death_of_any_process_of_the_recipe_leaves_one_owner() {
    let mut cluster = Cluster::with(3, |_, client| checks(client, "all", &["check"]));
    for words in [
        "heartbeat recv",
        "heartbeat send",
        "^quorum",
        "bucket plan 10.77",
        "bucket apply 10.77",
        "bucket watch",
        "bucket apply fd77",
        "^tee .*heard2",
        "^tee .*counted$",
        "health exec",
        "health score",
    ] {
        cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
        nix::sys::signal::kill(cluster.recipes[1].process(words), Signal::SIGKILL).unwrap();
        cluster.settles(5 * SECOND, &["n1", "n3"]);
        assert_eq!(cluster.recipes[1].ends(5 * SECOND), Some(71), "{words}");
        cluster.recipes[1] = cluster.start(1);
    }
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
}

#[test]
fn a_node_that_is_less_well_serves_less_and_loses_no_connection() {
    let cluster = Cluster::with(3, |_, client| checks(client, "progressive", &["one", "two"]));
    let home = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let mut connections = cluster.connect();
    let sick = cluster.client.folder.join("one-n2");
    fs::write(&sick, "").unwrap();
    let count = |list: &str| {
        let parts = list.split(',').filter(|part| !part.is_empty());
        let ends = parts.map(|part| part.split_once('-').unwrap_or((part, part)));
        ends.map(|(first, last)| last.parse::<u16>().unwrap() - first.parse::<u16>().unwrap() + 1).sum::<u16>()
    };
    // 4, 2 and 4 of 10 parts of 12 buckets.
    eventually("n2 has half its share", 5 * SECOND, || cluster.owned(1).iter().all(|owned| count(owned) == 2));
    let less = cluster.settles(5 * SECOND, &["n1", "n2", "n3"]);
    assert!(home.iter().all(|(client, host)| host == "n2" || less[client] == *host), "clients of others stay");
    for connection in &mut connections {
        connection.echo(2 * SECOND).unwrap();
    }
    fs::remove_file(sick).unwrap();
    cluster.never_twice(SECOND);
    assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2", "n3"]), home);
    // Maintenance is not health: it drains too.
    let standby = cluster.hosts[1].folder.join("state/standby");
    fs::write(&standby, "disk").unwrap();
    cluster.settles(5 * SECOND, &["n1", "n3"]);
    for connection in &mut connections {
        connection.echo(2 * SECOND).unwrap();
    }
    fs::remove_file(standby).unwrap();
    assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2", "n3"]), home);
}

/// A process that only two hosts need ends: its host says goodbye, and is not shot.
#[test]
fn the_death_of_what_settles_a_tie_leaves_one_owner() {
    let mut cluster = Cluster::with(2, |lab, client| {
        format!("{}\nveto=10.77.9.9\nlog={}", power_switch(lab, client), client.folder.display())
    });
    for words in ["fence records", "health ping", "^tee -a"] {
        cluster.settles(10 * SECOND, &["n1", "n2"]);
        nix::sys::signal::kill(cluster.recipes[1].process(words), Signal::SIGKILL).unwrap();
        cluster.settles(5 * SECOND, &["n1"]);
        assert_eq!(cluster.recipes[1].ends(5 * SECOND), Some(71), "{words}");
        assert!(!cluster.client.folder.join("shots").exists(), "{words}: {}", cluster.logs());
        cluster.recipes[1] = cluster.start(1);
    }
    cluster.settles(10 * SECOND, &["n1", "n2"]);
}

#[test]
fn a_frozen_judge_of_health_is_the_last_choice() {
    let cluster = Cluster::with(3, |_, client| checks(client, "all", &["check"]));
    let home = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    for words in ["health exec", "health score", "^tee .*counted$"] {
        let pid = cluster.recipes[1].process(words);
        nix::sys::signal::kill(pid, Signal::SIGSTOP).unwrap();
        // Its last word expires after two intervals and a response time-out.
        cluster.settles(8 * SECOND, &["n1", "n3"]);
        nix::sys::signal::kill(pid, Signal::SIGCONT).unwrap();
        assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2", "n3"]), home, "{words}");
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
    // What stays is closed, and the next start takes it over.
    assert!(cluster.hosts[1].sh("ip addr").contains(VIP));
    assert_eq!(cluster.owned(1), ["", ""]);
    cluster.hosts[1].run(&format!("bucket show {VIP}")).ended(0);
    cluster.recipes[1] = cluster.start(1);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
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
fn of_two_hosts_the_one_whose_lan_works_goes_on() {
    // What proves nothing about its own LAN: a peer that says it cannot serve, with or without a check.
    let cluster = Cluster::with(2, |_, _| {
        "fencing=none\nchecks=ping=10.77.9.9\npolicy=all\ncheck_interval=200ms\nresponse_timeout=200ms\n\
         down_time=500ms\nsuccess_retries=1"
            .to_owned()
    });
    let home = cluster.settles(10 * SECOND, &["n1", "n2"]);
    let lan = |hook: &str, which: &str| {
        format!(
            "nft 'table bridge t {{ chain c {{ type filter hook {hook} priority 0; {which} \"n2.eth0\" drop; }}; }}'"
        )
    };
    let heal = "nft delete table bridge t";
    for (fault, mend) in [
        ("ip link set n2.eth0 down".to_owned(), "ip link set n2.eth0 up"),
        (lan("postrouting", "oifname"), heal),
        (lan("prerouting", "iifname"), heal),
    ] {
        cluster.lab.on_switch(&fault);
        cluster.settles(5 * SECOND, &["n1"]);
        // That it stays so has no event: beyond dead_after + lease + 150 ms.
        std::thread::sleep(2 * SECOND);
        cluster.settles(SECOND, &["n1"]);
        cluster.lab.on_switch(mend);
        assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2"]), home, "{fault}");
    }
}

/// `cluster-ip --check` on the first host, with programs from `path`, begun by the words of `before`.
fn check(cluster: &Cluster, config: &std::path::Path, path: &str, before: &[&str]) -> support::Run {
    let host = &cluster.hosts[0];
    let mut command = Command::new("/usr/bin/nsenter");
    command.arg(format!("--net=/run/netns/{}", host.ns)).args(before).arg("/bin/sh").arg(script());
    command.arg("--check").arg(config);
    host.environment(&mut command);
    command.env("PATH", path);
    support::Run::new("cluster-ip --check", command.output().unwrap())
}

fn script() -> String {
    format!("{}/scripts/recipes/cluster-ip", env!("CARGO_MANIFEST_DIR"))
}

fn path() -> String {
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", binary("bucket").parent().unwrap().display())
}

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_wrong_configuration_is_refused_with_its_reason() {
    let mut cluster = Cluster::new(2);
    let good = fs::read_to_string(&cluster.config).unwrap();
    let wrong = cluster.client.folder.join("wrong.conf");
    let run = |cluster: &Cluster, text: &str, mode: u32| {
        fs::write(&wrong, text).unwrap();
        set_mode(&wrong, mode);
        check(cluster, &wrong, &path(), &[])
    };
    cluster.settles(10 * SECOND, &["n1", "n2"]);
    let checked = run(&cluster, &good, 0o644);
    assert_eq!((checked.code, checked.stdout.as_str()), (0, ""), "beside the one that runs: {checked:?}");
    cluster.recipes[0].signal_all(Signal::SIGTERM);
    cluster.recipes[0].ends(20 * SECOND);
    let interleaved = |of: u16| (0..512).map(|n| (2 * n + of).to_string()).collect::<Vec<_>>().join(",");
    let interleaved = good
        .replace("total=8", "total=1024")
        .replace("n1=1-4,n2=5-8", &format!("n1={},n2={}", interleaved(1), interleaved(2)));
    for (text, mode, why) in [
        (good.clone(), 0o646, "not be writable by others"),
        (good.replace("dead_after", "dead_affter"), 0o644, "not a setting: dead_affter"),
        (good.clone() + "rm -rf /nonexistent\n", 0o644, "not a setting: rm -rf /nonexistent"),
        (good.replace("total=8", "total=$(touch /nonexistent)"), 0o644, "not a plain value: total="),
        (good.replace("nodes='", "nodes='n9 "), 0o644, "node n9 has no home"),
        (good.replace('\n', "\r\n"), 0o644, "not a"),
        (good.replace("drain_max=20s", "drain_max=-3"), 0o644, "drain_max=-3: '-3' is not a duration"),
        (
            good.replace("n1=10.77.0.1,", "n1=10.77.0.77,"),
            0o644,
            "nodes: 10.77.0.77, the address of n1, is not on eth0",
        ),
        (good.replace("n1=10.77.0.1,10.78.0.1", "n1=10.77.0.1,10.78.0.77"), 0o644, "nodes: 10.78.0.77, the management"),
        (good.replace(",10.78.0.1 ", ",10.78.0.1,10.79.0.1 "), 0o644, "nodes: n1 has more than"),
        (good.replace("nodes='", "nodes='n1=10.77.0.9 "), 0o644, "nodes: n1 is there twice"),
        (good.replace("n2=10.77.0.2,", "n2=10.77.0.1,"), 0o644, "nodes: 10.77.0.1 is there twice"),
        (good.replace("total=8", "total="), 0o644, "it has no total"),
        (good.replace("total=8", "total=x"), 0o644, "total=x: "),
        (good.replace("n1=", "n9="), 0o644, "nodes: this node, n1, is not among its nodes"),
        (
            good.replace("lease=1s", "lease=4"),
            0o644,
            "lease=4: '4' is not a duration (50ms, 3s, 1m30s; a unit is needed)",
        ),
        (good.replace("lease=1s", "lease=1ms"), 0o644, "lease=1ms: takes whole milliseconds"),
        (
            good.replace("interval=100ms", "interval=200ms"),
            0o644,
            "interval=200ms: it is more than a third of dead_after",
        ),
        (good.replace("interval=100ms", "interval=9ms"), 0o644, "interval=9ms: it is less than 10ms"),
        (good.replace("n2=5-8", "n2=5-9"), 0o644, "home=n1=1-4,n2=5-9: cannot plan for n2: 5-9 goes beyond"),
        (interleaved, 0o644, "home: the buckets of n1 take"),
        (good.clone() + "mode=most\n", 0o644, "mode=most: 'most' is not a mode"),
        (good.clone() + "vip6=10.77.0.200\n", 0o644, "vip6=10.77.0.200: it is no IPv6 address"),
        (good.clone() + "vip=10.77.0\n", 0o644, "vip=10.77.0: '10.77.0' is not an address"),
        (good.clone() + "vip=10.77.255.255\n", 0o644, "vip=10.77.255.255: cannot make the cluster IP"),
        (good.clone() + "vip=10.99.0.1\n", 0o644, "vip=10.99.0.1: 10.99.0.1 is in no network of eth0"),
        (good.clone() + "vip=10.77.0.2\n", 0o644, "nodes: 10.77.0.2 is the shared address"),
        (good.clone() + "mac=02:00:00:00:00:09\n", 0o644, "mac=02:00:00:00:00:09: it is no group address"),
        (good.clone() + "mac=01:00:5e:00:00:01\n", 0o644, "mac=01:00:5e:00:00:01: "),
        (good.clone() + "port=x\n", 0o644, "port=x: it is no number from 1 to 65535"),
        (good.clone() + "log=/nonexistent\n", 0o644, "log=/nonexistent: no such folder"),
        (good.clone() + "key=/nonexistent\n", 0o644, "key=/nonexistent: cannot use the key file"),
        (good.clone() + "quorum=maybe\n", 0o644, "quorum=maybe: it is yes or no"),
        (good.clone() + "quorum=yes\n", 0o644, "half is no majority"),
        (good.clone() + "veto=10.77.9.9\n", 0o644, "veto=10.77.9.9: a veto needs quorum"),
        (good.clone() + "fencing=fence_dummy\n", 0o644, "agents need quorum=yes"),
        (good.clone() + "checks='load frob'\n", 0o644, "frob is no check"),
        (good.clone() + "checks=exec=/nonexistent\n", 0o644, "checks=exec=/nonexistent: /nonexistent is not there"),
        (good.clone() + "checks=load\npolicy=most\n", 0o644, "policy=most: [possible values: none"),
        (good.clone() + "checks=tcp=127.0.0.1:80\nretries=0\n", 0o644, "retries=0: 0 is not in 1"),
        (good.clone() + "checks=tcp=127.0.0.1:x\n", 0o644, "checks=tcp=127.0.0.1:x: '127.0.0.1:x' is not HOST"),
        (
            good.clone() + "quorum=yes\nfencing=fence_dummy\nfence_options=/nonexistent\n",
            0o644,
            "fence_options=/nonexistent: cannot use the options file",
        ),
    ] {
        let refused = run(&cluster, &text, mode);
        assert_eq!(refused.code, 6, "{why}: {refused:?}");
        assert!(refused.stderr.contains(why), "{why}: {refused:?}");
        assert!(refused.stderr.lines().all(|line| line.starts_with("cluster-ip: cannot use ")), "{refused:?}");
        assert_eq!(refused.stderr.matches(why).count(), 1, "{refused:?}");
    }
    let missing = run(&cluster, &(good.clone() + "mgmt_dev=eth9\n"), 0o644);
    assert_eq!(missing.code, 5, "{missing:?}");
    assert!(missing.stderr.contains("mgmt_dev=eth9: "), "{missing:?}");
    // A key that others may read is right but for that.
    let key = cluster.client.folder.join("open-key");
    fs::write(&key, "ab".repeat(32)).unwrap();
    set_mode(&key, 0o644);
    let refused = run(&cluster, &format!("{good}key={}\n", key.display()), 0o644);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains(&format!("(chmod 600 {})", key.display())), "{refused:?}");
    // The port of another program.
    let ns = cluster.hosts[0].inside(|| std::net::UdpSocket::bind("10.77.0.1:6940").unwrap());
    let socket = ns.join().unwrap();
    let refused = run(&cluster, &good, 0o644);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("port=6940: cannot listen on"), "{refused:?}");
    drop(socket);
    let refused = check(&cluster, &cluster.config, &path(), &["setpriv", "--reuid=65534", "--clear-groups"]);
    assert_eq!(refused.code, 4, "{refused:?}");
}

/// One that is missed half-way would leave rules behind, or say nothing and be believed.
#[test]
fn every_program_is_looked_for_before_anything_else() {
    let cluster = Cluster::new(2);
    let farm = cluster.client.folder.join("farm");
    fs::create_dir(&farm).unwrap();
    for folder in path().split(':') {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let _ = std::os::unix::fs::symlink(entry.path(), farm.join(entry.file_name()));
        }
    }
    let farm_path = farm.display().to_string();
    assert_eq!(check(&cluster, &cluster.config, &farm_path, &[]).code, 0);
    for (program, package) in [
        ("sed", "sed"),
        ("sort", "coreutils"),
        ("sha256sum", "coreutils"),
        ("flock", "util-linux"),
        ("mkfifo", "coreutils"),
        ("setpriv", "util-linux"),
        ("sleep", "coreutils"),
        ("grep", "grep"),
        ("stat", "coreutils"),
        ("tee", "coreutils"),
        ("nft", "nftables"),
        ("readlink", "coreutils"),
        ("hostname", "hostname"),
    ] {
        let (place, away) = (farm.join(program), cluster.client.folder.join("away"));
        fs::rename(&place, &away).unwrap();
        let refused = check(&cluster, &cluster.config, &farm_path, &[]);
        fs::rename(&away, &place).unwrap();
        assert_eq!(refused.code, 5, "{refused:?}");
        let why =
            format!("cluster-ip: cannot start: the program {program} is not in PATH (install the package {package})\n");
        assert_eq!(refused.stderr, why);
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

/// The address is one, whatever folder each keeps its state in.
#[test]
fn a_second_start_with_another_state_folder_leaves_the_first_alone() {
    let cluster = Cluster::new(3);
    let before = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let host = &cluster.hosts[0];
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", host.ns)).args(["sh", &script()]).arg(&cluster.config);
    host.environment(&mut command);
    command.env("PATH", path()).env("FAILOVER_STATE_DIR", host.folder.join("elsewhere"));
    let second = support::Run::new("cluster-ip", command.output().unwrap());
    assert_eq!(second.code, 75, "{second:?}");
    assert!(second.stderr.contains("it runs already"), "{second:?}");
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

/// A cleaner of temporary files, or an operator: what a node writes for its own other processes is gone.
#[test]
fn what_is_removed_under_a_running_recipe_makes_no_second_owner() {
    let cluster = Cluster::with(3, |_, _| "quorum=yes\nfencing=none".to_owned());
    let all = ["n1", "n2", "n3"];
    cluster.settles(10 * SECOND, &all);
    let probes = Probes::start(&cluster);
    let state = cluster.hosts[0].folder.join("state");
    for removes in
        ["rm -rf cluster-ip-n1", "mv cluster-ip-n1 old", "rm -f heartbeat-n1*", "rm -rf heartbeat-n1* cluster-ip-n1"]
    {
        cluster.hosts[0].sh(&format!("cd {} && {removes}", state.display()));
        // A second owner would come when what n1 listed has expired: beyond dead_after + lease + 150 ms.
        std::thread::sleep(3 * SECOND);
        cluster.settles(15 * SECOND, &all);
    }
    let log = probes.stop();
    assert!(log.twice.is_empty(), "{:?}\n{}", log.twice, cluster.logs());
}

#[test]
fn a_cluster_ip_cleared_by_hand_ends_the_recipe() {
    let mut cluster = Cluster::new(3);
    cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    cluster.hosts[1].run(&format!("bucket clear {VIP}")).ended(0);
    assert_eq!(cluster.recipes[1].ends(10 * SECOND), Some(71));
    cluster.settles(5 * SECOND, &["n1", "n3"]);
}

/// H10: a firewall's reload, whenever it comes and however often, is mended.
#[test]
fn flushed_rules_come_back_each_time_and_the_recipe_goes_on() {
    let mut cluster = Cluster::new(3);
    let home = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    for pause in [200 * MS, SECOND] {
        for round in 1..=20 {
            cluster.hosts[1].sh("nft flush ruleset");
            cluster.never_twice(pause);
            assert!(!cluster.recipes[1].has_ended(), "round {round} of {pause:?}\n{}", cluster.logs());
        }
        let started = Instant::now();
        assert_eq!(cluster.settles(5 * SECOND, &["n1", "n2", "n3"]), home);
        eprintln!("flushed 20 times, {pause:?} apart: healed within {:?} of the last pause", started.elapsed());
    }
    // A clear beside a flush finds less than it looked for, which is what it is for.
    cluster.recipes[1].signal_all(Signal::SIGTERM);
    while !cluster.recipes[1].has_ended() {
        cluster.hosts[1].sh("nft flush ruleset");
    }
    let log = cluster.recipes[1].log();
    assert!(!log.contains("/dev/stdin"), "{log}");
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

/// What all share is asked gently: a hiccup of the gateway is no outage, and what is one ends with it.
#[test]
fn a_short_silence_of_the_gateway_stops_nobody() {
    let cluster = Cluster::with(3, |_, _| "quorum=yes\nfencing=none\nveto=10.77.9.9".to_owned());
    let home = cluster.settles(10 * SECOND, &["n1", "n2", "n3"]);
    let silent = "nft 'table bridge gw { chain c { type filter hook forward priority 0; ip protocol icmp drop; }; }'";
    let end = Instant::now() + 4 * SECOND;
    cluster.lab.on_switch(silent);
    let back = Instant::now() + 1500 * MS;
    let mut is_silent = true;
    while Instant::now() < end {
        if is_silent && Instant::now() >= back {
            cluster.lab.on_switch("nft delete table bridge gw");
            is_silent = false;
        }
        let answers = cluster.ask(VIP);
        assert!(answers.is_exactly_one(&["n1", "n2", "n3"]), "{answers:?}\n{}", cluster.logs());
    }
    cluster.lab.on_switch(silent);
    eventually("nobody reaches it, and nobody serves", 10 * SECOND, || {
        (0..3).all(|idx| cluster.owned(idx).iter().all(String::is_empty))
    });
    cluster.lab.on_switch("nft delete table bridge gw");
    let started = Instant::now();
    assert_eq!(cluster.settles(10 * SECOND, &["n1", "n2", "n3"]), home);
    eprintln!("the gateway is back: all served after {:?}", started.elapsed());
}
