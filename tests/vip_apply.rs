//! `vip apply`: elections in, addresses and announcements out; with `vrrp run` before it, a router.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use support::{Host, Keepalived, Lab, election, eventually, neighbour};

const SECOND: Duration = Duration::from_secs(1);

fn has(host: &Host, vip: &str) -> bool {
    host.sh("ip addr show dev eth0").contains(&format!("inet {vip}/"))
        || host.sh("ip addr show dev eth0").contains(&format!("inet6 {vip}/"))
}

#[test]
fn once_it_adds_what_is_mine_and_takes_away_what_is_not() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "192.0.2.99/24", "2001:db8::1/64"]);
    let both = election("192.0.2.10", true, "") + &election("2001:db8::10", true, "");
    let planned = host.run_with("vip apply --dry-run", &both).ended(0).records();
    assert_eq!(planned[0]["actions"][0]["text"], "ip addr add 192.0.2.10/24 dev eth0 proto 70");
    assert!(planned[0]["changed"] == true && !has(&host, "192.0.2.10"));
    let done = host.run_with("vip apply", &both).ended(0).records();
    assert_eq!(
        (&done[0]["changed"], &done[0]["role"], &done[0]["mine"]),
        (&true.into(), &"serve".into(), &true.into())
    );
    // Five times both forms; five advertisements.
    assert_eq!((&done[0]["announced"], &done[1]["announced"]), (&10.into(), &5.into()));
    assert!(has(&host, "192.0.2.10") && has(&host, "2001:db8::10"));
    assert_eq!(host.run_with("vip apply", &both).ended(0).records()[0]["changed"], false);
    // Not mine: gone. Named by nobody, or not ours: left.
    host.run("vip add 192.0.2.20/24 --dev eth0").ended(0);
    let away =
        election("192.0.2.10", true, "") + &election("192.0.2.10", false, "") + &election("192.0.2.99", false, "");
    let done = host.run_with("vip apply", &away).ended(0).records();
    assert_eq!((&done[0]["removed"], &done[0]["role"]), (&json!(["192.0.2.10/24"]), &"leave".into()));
    assert_eq!((&done[1]["subject"], &done[1]["changed"]), (&"192.0.2.99".into(), &false.into()));
    assert!(has(&host, "192.0.2.99") && has(&host, "192.0.2.20") && has(&host, "2001:db8::10"));
    // Undecided: what stands is left.
    host.run_with("vip apply", &election("2001:db8::10", false, ",\"held\":true")).ended(0);
    assert!(has(&host, "2001:db8::10"));
    // The list alone: other addresses of ours go, foreign ones stay.
    host.run_with("vip apply --only 2001:db8::10", &election("2001:db8::10", true, "")).ended(0);
    assert!(!has(&host, "192.0.2.20") && has(&host, "192.0.2.99") && has(&host, "2001:db8::10"));
}

#[test]
fn what_is_no_election_changes_nothing() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    for (input, code, why) in [
        ("", 75, "no election was read"),
        ("{\"kind\":\"health.score\",\"priority\":7}\n", 75, "no election was read"),
        ("{\"kind\":\"vip.show\",\"subject\":\"192.0.2.10\",\"mine\":true}\n", 75, "no election was read"),
        ("nonsense\n", 6, "line 1 is malformed"),
        ("{\"subject\":\"x\",\"mine\":true}\n", 6, "is no address"),
        ("{\"subject\":\"192.0.2.10\",\"prefix_len\":33,\"mine\":true}\n", 6, "more than"),
        ("{\"subject\":\"192.0.2.10\",\"mine\":1}\n", 6, "'mine'"),
        ("{\"subject\":\"0.0.0.0\",\"mine\":true}\n", 6, "no address of a host"),
        ("{\"subject\":\"224.0.0.1\",\"mine\":true}\n", 6, "no address of a host"),
        ("{\"subject\":\"192.0.2.10\",\"mine\":true,\"valid_for_ms\":-5}\n", 6, "is no time"),
        ("{\"subject\":\"192.0.2.10\",\"mine\":true,\"valid_for_ms\":1e300}\n", 6, "is no time"),
        ("{\"subject\":\"198.51.100.1\",\"prefix_len\":24,\"mine\":true}\n", 5, "no interface has a network"),
        ("{\"subject\":\"192.0.2.10\",\"dev\":\"nope\",\"mine\":true}\n", 5, "no such interface"),
    ] {
        let run = host.run_with("vip apply", if input.is_empty() { "\n" } else { input }).ended(code);
        assert!(run.stderr.contains(why), "{input}: {run:?}");
        assert_eq!(host.run("vip show --mine").ended(0).records().len(), 0);
    }
    for (flags, why) in [
        ("--lifetime 1s", "at least 2s"),
        ("--follow --dry-run", "leave out --follow"),
        ("--refresh 1s", "--follow"),
        ("--follow --refresh 0s", "above 0s"),
    ] {
        let run = host.run(&format!("vip apply {flags}")).ended(2);
        assert!(run.stderr.contains(why), "{flags}: {run:?}");
    }
}

/// Each way that a stream can end, and what stands afterwards.
#[test]
fn a_stream_that_ends_gives_everything_back() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let begin = |flags: &str| {
        let mut run = host.start_fed(&format!("vip apply --follow {flags}"));
        run.feed(&election("192.0.2.10", true, ""));
        // The run before may have left the address: its own word counts.
        eventually("it carries it", 3 * SECOND, || !run.so_far().is_empty() && has(&host, "192.0.2.10"));
        run
    };
    let mut run = begin("");
    drop(run.child.stdin.take());
    assert_eq!(run.ends(3 * SECOND), 1);
    assert!(!has(&host, "192.0.2.10"));
    assert_eq!(run.so_far().last().unwrap()["why"], "the input has ended");

    let mut run = begin("--on-eof keep");
    drop(run.child.stdin.take());
    assert_eq!(run.ends(3 * SECOND), 1);
    assert!(has(&host, "192.0.2.10"));

    let mut run = begin("");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(3 * SECOND), -15);
    assert!(!has(&host, "192.0.2.10"));

    let mut run = begin("--for 300ms");
    assert_eq!(run.ends(3 * SECOND), 0);
    assert!(has(&host, "192.0.2.10"));

    // Silence for as long as the lifetime; the kernel would have done it by itself.
    let mut run = begin("--lifetime 2s");
    assert_eq!(host.run("vip show 192.0.2.10").ended(0).one()["valid_s"], 2);
    assert_eq!(run.ends(5 * SECOND), 1);
    assert!(!has(&host, "192.0.2.10") && run.complaints().contains("fell silent"));

    // An election that holds for 300 ms and is not said again.
    let mut run = begin("");
    run.feed(&election("192.0.2.10", true, ",\"renewal\":true,\"valid_for_ms\":300"));
    eventually("it expires", 3 * SECOND, || !has(&host, "192.0.2.10"));
    assert!(run.child.try_wait().unwrap().is_none());
    run.feed(&election("192.0.2.10", true, ""));
    eventually("it is elected again", 3 * SECOND, || has(&host, "192.0.2.10"));

    // Its reader is gone.
    let vip = support::binary("vip").display().to_string();
    let state = host.folder.join("state");
    let line = format!(
        "(printf '%s' '{}'; sleep 5) | FAILOVER_STATE_DIR={} {vip} apply --follow | head -n 1",
        election("192.0.2.11", true, "").trim(),
        state.display()
    );
    host.sh(&line.replace("printf '%s'", "echo"));
    assert!(!has(&host, "192.0.2.11"));

    // Nobody can be told.
    let line = line.replace("printf '%s'", "echo").replace("| head -n 1", ">/dev/full; echo $?");
    let (_, said) = host.try_sh(&line);
    assert_eq!(said, "71\nvip apply: cannot write to standard output: No space left on device\n");
    assert!(!has(&host, "192.0.2.11"));
}

#[test]
fn the_kernel_ends_what_a_frozen_process_does_not_renew() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut run = host.start_fed("vip apply --follow --lifetime 2s");
    for _ in 0..6 {
        run.feed(&election("192.0.2.10", true, ",\"renewal\":true"));
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(has(&host, "192.0.2.10"), "renewed for 3 s");
    run.signal(Signal::SIGSTOP);
    // Hardening 16: up to half a second late.
    eventually("the kernel removes it", 3 * SECOND, || !has(&host, "192.0.2.10"));
}

/// known-faults 3, and every network manager that prunes.
#[test]
fn what_somebody_takes_away_is_put_back() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    let mut run = host.start_fed("vip apply --follow");
    run.feed(&(election("192.0.2.10", true, "") + &election("2001:db8::10", true, "")));
    eventually("it carries both", 3 * SECOND, || has(&host, "192.0.2.10") && has(&host, "2001:db8::10"));
    for round in 0..5 {
        host.sh("ip addr del 192.0.2.10/24 dev eth0");
        eventually("it is back", SECOND, || has(&host, "192.0.2.10"));
        eventually("it says so", SECOND, || run.so_far().iter().filter(|one| one["repaired"] == true).count() > round);
    }
    eventually("a word about who prunes", SECOND, || run.complaints().contains("a network manager prunes it"));
    // A link that goes down takes IPv6 addresses along.
    host.sh("ip link set eth0 down");
    host.sh("ip link set eth0 up");
    eventually("the IPv6 one is back", 2 * SECOND, || has(&host, "2001:db8::10"));
}

/// The first address of a subnet goes, and the kernel would take its secondaries along.
#[test]
fn giving_up_the_first_address_leaves_the_others() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    host.sh("sysctl -qw net.ipv4.conf.all.promote_secondaries=0 net.ipv4.conf.eth0.promote_secondaries=0");
    host.run_with("vip apply", &(election("192.0.2.10", true, ""))).ended(0);
    host.sh("ip addr add 192.0.2.50/24 dev eth0");
    host.run_with("vip apply", &election("192.0.2.11", true, "")).ended(0);
    let done = host.run_with("vip apply", &election("192.0.2.10", false, "")).ended(0).one();
    assert_eq!(done["removed"], json!(["192.0.2.10/24"]));
    assert!(has(&host, "192.0.2.11") && has(&host, "192.0.2.50"));
    let ours = host.run("vip show --mine").ended(0).records();
    assert_eq!((ours.len(), &ours[0]["subject"]), (1, &"192.0.2.11".into()), "a foreign one stays foreign");
}

/// known-faults 6: the neighbours hear of the owner again whenever another claims its address.
#[test]
fn who_claims_an_address_that_is_carried_is_named_and_answered() {
    let lab = Lab::new();
    let hosts: Vec<Host> = (1..=2)
        .map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n}/64")]))
        .collect();
    let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
    let mut run = hosts[0].start_fed("vip apply --follow");
    run.feed(&(election("192.0.2.10", true, "") + &election("2001:db8::10", true, "")));
    client.sh("ping -c1 -W2 -q 192.0.2.10 && ping -c1 -W2 -q 2001:db8::10");
    for vip in ["192.0.2.10", "2001:db8::10"] {
        hosts[1].run(&format!("vip arp {vip} --dev eth0")).ended(0);
        let told =
            run.wait_for("who contests", 3 * SECOND, |one| one["subject"] == vip && one["contested_by"] != json!(null));
        assert_eq!(told["contested_by"], json!(["02:00:00:00:00:02"]));
        eventually("the client is back", 3 * SECOND, || neighbour(&client, vip) == "02:00:00:00:00:01");
    }
    // Somebody who has it since long ago is found by asking.
    hosts[1].sh("ip addr add 192.0.2.11/24 dev eth0");
    run.feed(&election("192.0.2.11", true, ""));
    run.wait_for("the other holder", 3 * SECOND, |one| {
        one["subject"] == "192.0.2.11" && one["contested_by"] == json!(["02:00:00:00:00:02"])
    });
}

/// `vrrp run | vip apply --follow` on a host, with the same VRID as keepalived's in `support`.
struct Router {
    run: std::process::Child,
    apply: std::process::Child,
}

impl Router {
    fn start(host: &Host, priority: u8, run: &str, apply: &str) -> Router {
        let line = format!("vrrp run --dev eth0 --vrid 51 --priority {priority} --vip 192.0.2.10/24 {run}");
        let mut run = host.command(&line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let elections = run.stdout.take().unwrap();
        let null = std::fs::File::create(host.folder.join("applied")).unwrap();
        let apply = host.command(&format!("vip apply --follow {apply}")).stdin(elections).stdout(null).spawn().unwrap();
        Router { run, apply }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Whoever is killed first: the other gives everything back.
        let _ = self.run.kill();
        let _ = self.run.wait();
        let _ = self.apply.wait();
    }
}

#[test]
fn a_pipe_of_two_commands_is_a_router_beside_keepalived() {
    let lab = Lab::new();
    let hosts: Vec<Host> = (1..=2).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
    let client = lab.host("client", &["192.0.2.99/24"]);
    let body = "priority 100\n advert_int 0.1\n virtual_ipaddress {\n 192.0.2.10/24 dev eth0\n }";
    let peer = Keepalived::start(&hosts[1], 3, body);
    eventually("keepalived is master", 8 * SECOND, || has(&hosts[1], "192.0.2.10"));
    client.sh("ping -c1 -W2 -q 192.0.2.10");
    let ours = Router::start(&hosts[0], 150, "--interval 100ms", "");
    eventually("we take over", 5 * SECOND, || has(&hosts[0], "192.0.2.10") && !has(&hosts[1], "192.0.2.10"));
    eventually("the client knows", SECOND, || neighbour(&client, "192.0.2.10") == "02:00:00:00:00:01");
    drop(ours);
    // Whatever was killed: nothing of ours is left by the end of the pipe.
    eventually("keepalived follows", 5 * SECOND, || has(&hosts[1], "192.0.2.10"));
    eventually("it is gone here", 3 * SECOND, || !has(&hosts[0], "192.0.2.10"));
    drop(peer);
}

/// A backup knows its master by the adverts alone.
#[test]
fn a_router_sends_on_to_its_master_while_it_is_backup() {
    let lab = Lab::new();
    let hosts: Vec<Host> = (1..=2).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
    let client = lab.host("client", &["192.0.2.99/24"]);
    let backup = Router::start(&hosts[1], 100, "--interval 100ms", "--forward");
    let master = Router::start(&hosts[0], 150, "--interval 100ms", "--forward");
    let way = |host: &Host| host.sh("ip route show 192.0.2.10");
    eventually("n2 sends on", 5 * SECOND, || way(&hosts[1]).contains("via 192.0.2.1 ") && has(&hosts[0], "192.0.2.10"));
    client.sh("ip neigh replace 192.0.2.10 dev eth0 lladdr 02:00:00:00:00:02 nud permanent");
    client.sh("ping -c3 -i0.2 -W1 -q 192.0.2.10");
    assert!(!has(&hosts[1], "192.0.2.10"));
    drop(master);
    eventually("n2 takes over", 5 * SECOND, || has(&hosts[1], "192.0.2.10") && way(&hosts[1]).is_empty());
    client.sh("ping -c1 -W1 -q 192.0.2.10");
    drop(backup);
}

/// With the virtual MAC: clients keep one MAC through every move.
#[test]
fn with_the_virtual_mac_clients_notice_no_move() {
    let lab = Lab::new();
    let hosts: Vec<Host> = (1..=2).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
    let client = lab.host("client", &["192.0.2.99/24"]);
    let other = Router::start(&hosts[1], 100, "--interval 100ms --vmac", "--vmac");
    let on_router = |host: &Host| host.try_sh("ip addr show dev vrrp4.51").1.contains("192.0.2.10/");
    eventually("the other is master", 5 * SECOND, || on_router(&hosts[1]));
    client.sh("ping -c1 -W2 -q 192.0.2.10");
    assert_eq!(neighbour(&client, "192.0.2.10"), "00:00:5e:00:01:33");
    let ours = Router::start(&hosts[0], 150, "--interval 100ms --vmac", "--vmac");
    eventually("we take over", 5 * SECOND, || on_router(&hosts[0]) && !on_router(&hosts[1]));
    eventually("and answer", 2 * SECOND, || client.try_sh("ping -c1 -W1 -q 192.0.2.10").0);
    assert_eq!(neighbour(&client, "192.0.2.10"), "00:00:5e:00:01:33");
    drop((ours, other));
    eventually("nothing is left", 5 * SECOND, || hosts.iter().all(|host| !host.try_sh("ip link show dev vrrp4.51").0));
}

/// Sharing: a backup serves what reaches it, and nobody learns its MAC for the address.
#[test]
fn a_sharing_backup_serves_and_stays_out_of_neighbour_tables() {
    let lab = Lab::new();
    let hosts: Vec<Host> = (1..=2)
        .map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n}/64")]))
        .collect();
    let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
    hosts[1].sh("sysctl -qw net.ipv4.conf.eth0.arp_ignore=0 net.ipv4.conf.eth0.arp_announce=0");
    let both = |mine: bool| election("192.0.2.10", mine, "") + &election("2001:db8::10", mine, "");
    let mut master = hosts[0].start_fed("vip apply --follow");
    master.feed(&both(true));
    let mut backup = hosts[1].start_fed("vip apply --follow --share 192.0.2.10,2001:db8::10");
    backup.feed(&both(false));
    let on_loopback = |vip: &str| hosts[1].sh("ip addr show dev lo").contains(&format!("{vip}/"));
    eventually("it shares", 3 * SECOND, || on_loopback("192.0.2.10") && on_loopback("2001:db8::10"));
    let told = backup.wait_for("a record", SECOND, |one| one["subject"] == "192.0.2.10");
    assert_eq!((&told["role"], &told["changed"]), (&"share".into(), &true.into()));
    assert_eq!(told["sysctls"]["ipv4/conf/eth0/arp_announce"], "2");
    // Asked, only the master answers; also after the backup has answered a client that it does not know.
    let asks = |vip: &str| {
        client.sh("ip neigh flush dev eth0");
        client.sh(&format!("ping -c1 -W2 -q {vip}"));
        neighbour(&client, vip)
    };
    for vip in ["192.0.2.10", "2001:db8::10"] {
        eventually("the master is known", 3 * SECOND, || asks(vip) == "02:00:00:00:00:01");
        let to_backup = format!("ip neigh replace {vip} dev eth0 lladdr 02:00:00:00:00:02 nud permanent");
        client.sh(&to_backup);
        hosts[1].sh("ip neigh flush dev eth0");
        client.sh(&format!("ping -c3 -i0.2 -W2 -q {vip}"));
        assert!(hosts[1].sh("nstat -az IcmpInEchos Icmp6InEchos").contains('3'), "{vip} was served by the backup");
        client.sh(&format!("ip neigh del {vip} dev eth0"));
        assert_eq!(asks(vip), "02:00:00:00:00:01", "{vip}");
    }
    assert!(!master.so_far().iter().any(|one| one["contested_by"] != json!(null)), "{:?}", master.so_far());
    // It becomes master: the one on loopback goes, and comes back with the next change.
    backup.feed(&both(true));
    eventually("it serves", 3 * SECOND, || has(&hosts[1], "192.0.2.10") && !on_loopback("192.0.2.10"));
    backup.feed(&both(false));
    eventually("it shares again", 3 * SECOND, || !has(&hosts[1], "192.0.2.10") && on_loopback("192.0.2.10"));
    // The end takes everything back, the settings too.
    drop(backup.child.stdin.take());
    assert_eq!(backup.ends(3 * SECOND), 1);
    assert!(!on_loopback("192.0.2.10") && !on_loopback("2001:db8::10"));
    let settings = hosts[1].sh("sysctl -n net.ipv4.conf.eth0.arp_ignore net.ipv4.conf.eth0.arp_announce");
    assert_eq!(settings.split_whitespace().collect::<Vec<_>>(), ["0", "0"]);
}

/// What an earlier run has left: the first word about an address is acted on, also a renewal.
#[test]
fn what_a_killed_run_has_left_goes_with_the_first_word() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    host.run("vip add 192.0.2.10/24 --dev eth0").ended(0);
    let mut run = host.start_fed("vip apply --follow");
    run.feed(&election("192.0.2.10", false, ",\"renewal\":true"));
    eventually("it is gone", 3 * SECOND, || !has(&host, "192.0.2.10"));
    drop(run);
    // The same with a router that never becomes one: its interface has no carrier.
    host.run("vip add 192.0.2.10/24 --dev eth0").ended(0);
    lab.on_switch("ip link set n1.eth0 down");
    let router = Router::start(&host, 100, "", "");
    eventually("it is gone", 3 * SECOND, || !has(&host, "192.0.2.10"));
    drop(router);
}

/// Another holds the lock of an address: the election is carried out all the same.
#[test]
fn no_lock_keeps_an_address_here() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut run = host.start_fed("vip apply --follow");
    run.feed(&(election("192.0.2.10", true, "") + &election("192.0.2.11", true, "")));
    eventually("it carries both", 3 * SECOND, || has(&host, "192.0.2.10") && has(&host, "192.0.2.11"));
    let locks = host.folder.join("state/lock");
    let name = std::fs::read_dir(&locks).unwrap().map(|entry| entry.unwrap().path());
    let name = name.into_iter().find(|path| path.display().to_string().ends_with("192.0.2.10")).unwrap();
    let _holder = host.start_shell(&format!("exec flock {} sleep 60", name.display()));
    std::thread::sleep(Duration::from_millis(200));
    run.feed(&election("192.0.2.10", false, ""));
    eventually("it is gone", 2 * SECOND, || !has(&host, "192.0.2.10"));
    assert!(run.complaints().contains("going on without it"), "{}", run.complaints());
    run.feed(&election("192.0.2.10", true, ""));
    eventually("it is back", 2 * SECOND, || has(&host, "192.0.2.10"));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(3 * SECOND), -15);
    assert!(!has(&host, "192.0.2.10") && !has(&host, "192.0.2.11"));
}

#[test]
fn an_address_moves_with_its_order_and_comes_back_with_its_interface() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    lab.plug(&host, "eth1", "lan", &["192.0.2.101/24"]);
    let on = |dev: &str| host.try_sh(&format!("ip addr show dev {dev}")).1.matches("192.0.2.10/").count();
    let mut run = host.start_fed("vip apply --follow");
    run.feed(&election("192.0.2.10", true, ""));
    eventually("it is on eth0", 3 * SECOND, || on("eth0") == 1);
    run.feed(&election("192.0.2.10", true, "").replace("eth0", "eth1"));
    eventually("it is on eth1 alone", 3 * SECOND, || on("eth0") == 0 && on("eth1") == 1);
    run.feed(&election("192.0.2.10", true, ",\"renewal\":true").replace("eth0", "eth1").replace(":24", ":32"));
    eventually("with another prefix", 3 * SECOND, || host.sh("ip addr show dev eth1").contains("192.0.2.10/32"));
    assert_eq!(on("eth1"), 1);
    host.sh("ip link del eth1");
    std::thread::sleep(Duration::from_millis(200));
    lab.plug(&host, "eth1", "lan", &["192.0.2.101/24"]);
    eventually("it is back with its interface", 3 * SECOND, || on("eth1") == 1);
}

/// With a lifetime, what is not elected again ends, and is not taken for somebody's doing.
#[test]
fn a_lifetime_ends_what_is_not_elected_again() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut run = host.start_fed("vip apply --follow --lifetime 2s");
    run.feed(&election("192.0.2.10", true, ""));
    for _ in 0..8 {
        run.feed(&election("192.0.2.11", true, ",\"renewal\":true"));
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(!has(&host, "192.0.2.10") && has(&host, "192.0.2.11"));
    let told = run.wait_for("its end", SECOND, |one| one["subject"] == "192.0.2.10" && one["role"] == "leave");
    assert_eq!(told["why"], "its election was not said again in time");
    assert!(!run.so_far().iter().any(|one| one["repaired"] == true));
}

/// An address that somebody else put there is not ours to take away; that it still answers is told.
#[test]
fn a_foreign_address_is_left_and_told() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "192.0.2.41/24"]);
    let mut run = host.start_fed("vip apply --follow");
    run.feed(&election("192.0.2.41", true, ""));
    run.wait_for("it serves", 3 * SECOND, |one| one["role"] == "serve");
    run.feed(&election("192.0.2.41", false, ""));
    let told = run.wait_for("a word", 3 * SECOND, |one| one["role"] == "leave");
    assert_eq!(
        (&told["changed"], &told["why"]),
        (&false.into(), &"192.0.2.41/24 on eth0 is not ours: it is left, and answers".into())
    );
    assert!(has(&host, "192.0.2.41"));
}
