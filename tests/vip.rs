//! `vip` on real interfaces, with `ip` as the second witness.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use support::{Lab, Run, binary, eventually};

/// The addresses of `eth0` as `ip` sees them, link-local ones left out.
fn seen(host: &support::Host) -> Vec<String> {
    host.sh("ip -o addr show dev eth0")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3).map(str::to_owned))
        .filter(|prefix| !prefix.starts_with("fe80"))
        .collect()
}

#[test]
fn an_address_is_added_once_and_taken_away_once() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    for vip in ["192.0.2.10/24", "2001:db8::10/64"] {
        let addr = vip.split('/').next().unwrap();
        let added = host.run(&format!("vip add {vip} --dev eth0")).ended(0).one();
        assert_eq!((&added["changed"], &added["mine"], &added["subject"]), (&true.into(), &true.into(), &addr.into()));
        assert!(seen(&host).contains(&vip.to_owned()));
        assert_eq!(host.run(&format!("vip add {vip} --dev eth0")).ended(0).one()["changed"], false);
        assert_eq!(host.run(&format!("vip show {addr}")).ended(0).one()["usable"], true);
        let gone = host.run(&format!("vip del {vip} --dev eth0")).ended(0).one();
        assert_eq!((&gone["changed"], &gone["removed"][0]), (&true.into(), &vip.into()));
        assert!(!seen(&host).contains(&vip.to_owned()));
        assert_eq!(host.run(&format!("vip del {vip} --dev eth0")).ended(0).one()["changed"], false);
        host.run(&format!("vip show {addr}")).ended(1);
    }
}

#[test]
fn the_tag_tells_ours_from_the_host_s_own() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    host.run("vip add 192.0.2.10/24 2001:db8::10/64 --dev eth0 --dad off").ended(0);
    // Adding what the host has by itself does not make it ours.
    assert_eq!(host.run("vip add 192.0.2.1/24 --dev eth0").ended(0).one()["mine"], false);
    assert_eq!(host.run("vip show --mine").ended(0).records().len(), 2);
    assert_eq!(host.run("vip del --mine").ended(0).records().len(), 2);
    assert_eq!(seen(&host), ["192.0.2.1/24"]);
    assert!(host.run("vip del --mine").ended(0).records().is_empty());
}

/// known-faults 3: taking away one address takes away another.
#[test]
fn taking_away_one_address_takes_away_no_other() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.7/24"]);
    host.sh("sysctl -qw net.ipv4.conf.all.promote_secondaries=0 net.ipv4.conf.eth0.promote_secondaries=0");
    host.run("vip add 192.0.2.7/32 --dev eth0").ended(0);
    let ambiguous = host.run("vip del 192.0.2.7 --dev eth0").ended(2);
    assert!(ambiguous.stderr.contains("192.0.2.7/24 on eth0"), "{ambiguous:?}");
    host.run("vip del 192.0.2.7/32 --dev eth0").ended(0);
    assert_eq!(seen(&host), ["192.0.2.7/24"]);

    host.run("vip add 192.0.2.100/24 --dev eth0").ended(0);
    let refused = host.run("vip del 192.0.2.7/24 --dev eth0").ended(1);
    assert!(refused.stderr.contains("would remove 192.0.2.100/24 too"), "{refused:?}");
    assert_eq!(seen(&host).len(), 2);
    // Naming both, or asking for it, is consent; what went is read back.
    let gone = host.run("vip del 192.0.2.7/24 --dev eth0 --with-secondaries").ended(0).one();
    assert_eq!(gone["removed"], serde_json::json!(["192.0.2.7/24", "192.0.2.100/24"]));
    assert!(seen(&host).is_empty());

    host.sh("ip addr add 192.0.2.7/24 dev eth0; ip addr add 192.0.2.100/24 dev eth0; sysctl -qw net.ipv4.conf.eth0.promote_secondaries=1");
    host.run("vip del 192.0.2.7/24 --dev eth0").ended(0);
    assert_eq!(seen(&host), ["192.0.2.100/24"]);
}

/// known-faults 4: an address is not the beginning of another, and listed is not usable.
#[test]
fn show_answers_about_the_address_asked_for() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.100/24"]);
    for absent in ["192.0.2.10", "192.0.2.1", "192.0.2.255", "192.0.2.100/25", "2001:db8::100"] {
        let run = host.run(&format!("vip show {absent}")).ended(1);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    }
    host.run("vip show 192.0.2.100/24").ended(0);

    let other = lab.host("n2", &["2001:db8::100/64"]);
    host.sh("sysctl -qw net.ipv6.conf.eth0.accept_dad=1");
    other.sh("ping -6 -c1 -W2 -q ff02::1%eth0 || true");
    let refused = host.run("vip add 2001:db8::100/64 --dev eth0").ended(1);
    assert_eq!(refused.one()["error"]["reason"], "conflict");
    assert!(!seen(&host).contains(&"2001:db8::100/64".to_owned()), "a duplicate is not left behind");
    host.sh("ip addr add 2001:db8::100/64 dev eth0");
    eventually("dadfailed", Duration::from_secs(4), || host.sh("ip addr show dev eth0").contains("dadfailed"));
    let shown = host.run("vip show 2001:db8::100").ended(1).one();
    assert_eq!((&shown["dad_failed"], &shown["usable"]), (&true.into(), &false.into()));
}

#[test]
fn an_interface_is_named_by_either_name_and_never_guessed() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    host.sh("ip link property add dev eth0 altname enp0s1long");
    assert_eq!(host.run("vip add 192.0.2.10/24 --dev enp0s1long").ended(0).one()["dev"], "eth0");
    assert_eq!(host.run("vip add 192.0.2.11/24").ended(0).one()["dev"], "eth0");
    lab.plug(&host, "eth1", "lan", &["192.0.2.2/24"]);
    let several = host.run("vip add 192.0.2.12/24").ended(2);
    assert!(several.stderr.contains("eth0, eth1"), "{several:?}");
    let missing = host.run("vip add 192.0.2.12/24 --dev eth9").ended(5);
    assert_eq!(missing.stderr, "vip add: cannot add 192.0.2.12/24 to eth9: no such interface (see: ip link)\n");
    assert_eq!(host.run("vip del 192.0.2.12/24 --dev eth9").ended(0).one()["changed"], false);
}

#[test]
fn a_lifetime_ends_by_the_kernel_and_is_renewed_by_adding_again() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    host.sh("sysctl -qw net.ipv4.conf.all.promote_secondaries=0 net.ipv4.conf.eth0.promote_secondaries=0");
    let risky = host.run("vip add 198.51.100.9/24 --dev eth0 --lifetime 2s").ended(1);
    assert!(risky.stderr.contains("promote_secondaries"), "{risky:?}");
    for wrong in ["1s", "1500ms", "3"] {
        host.run(&format!("vip add 192.0.2.10/32 --dev eth0 --lifetime {wrong}")).ended(2);
    }
    host.run("vip add 192.0.2.10/32 --dev eth0 --lifetime 2s").ended(0);
    std::thread::sleep(Duration::from_millis(1200));
    let renewed = host.run("vip add 192.0.2.10/32 --dev eth0 --lifetime 2s").ended(0).one();
    assert_eq!((&renewed["renewal"], &renewed["changed"]), (&true.into(), &false.into()));
    std::thread::sleep(Duration::from_millis(1200));
    host.run("vip show 192.0.2.10").ended(0);
    eventually("the kernel removes it", Duration::from_secs(3), || host.run("vip show 192.0.2.10").code == 1);
}

#[test]
fn a_dry_run_says_what_a_real_run_does_and_does_nothing() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let planned = host.run("vip add 192.0.2.10/24 --dev eth0 --label eth0:v --dry-run").ended(0).one();
    assert_eq!((&planned["dry_run"], &planned["changed"]), (&true.into(), &true.into()));
    assert_eq!(planned["actions"][0]["text"], "ip addr add 192.0.2.10/24 dev eth0 proto 70 label eth0:v");
    assert_eq!(seen(&host), ["192.0.2.1/24"]);
    let real = host.run("vip add 192.0.2.10/24 --dev eth0 --label eth0:v --explain").ended(0).one();
    assert_eq!((&real["actions"], &real["label"]), (&planned["actions"], &"eth0:v".into()));
    host.run("vip add 192.0.2.10/24 --dev eth0 --label eth0:w").ended(1);
    host.run("vip del 192.0.2.10/24 --dry-run").ended(0);
    assert_eq!(seen(&host).len(), 2);
}

#[test]
fn a_thousand_addresses_go_in_one_go_and_sigkill_leaves_what_the_next_run_mends() {
    let lab = Lab::new();
    let host = lab.host("n1", &["10.0.0.1/16"]);
    let many: String = (0..1000).map(|n| format!("10.0.{}.{}/16\n", 1 + n / 250, 1 + n % 250)).collect();
    let added = host.run_with("vip add - --dev eth0", &many).ended(0).records();
    assert_eq!((added.len(), seen(&host).len()), (1000, 1001));
    host.run("vip del --mine").ended(0);
    for delay in [1, 3, 6, 10, 15] {
        let mut child = host
            .command("vip add - --dev eth0")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), many.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let there = seen(&host).len();
    let mended = host.run_with("vip add - --dev eth0", &many).ended(0).records();
    let changed = mended.iter().filter(|record| record["changed"] == true).count();
    assert_eq!((seen(&host).len(), changed), (1001, 1001 - there));
}

#[test]
fn two_runs_at_once_do_not_interleave() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| host.run("vip add 192.0.2.10/24 --dev eth0"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let changed = runs.into_iter().filter(|run| run.one()["changed"] == true).count();
    assert_eq!(changed, 1);

    // One that hangs with the lock: the next ends at its time-out with 75, and changes nothing.
    let folder = host.folder.join("state/lock");
    let name = std::fs::read_dir(&folder).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.ends_with("-192.0.2.10").then_some(name)
    });
    let file = std::fs::File::open(folder.join(name.unwrap())).unwrap();
    let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let started = Instant::now();
    let blocked = host.run("vip del 192.0.2.10/24 --timeout 300ms").ended(75);
    assert!(blocked.stderr.contains("another run holds it"), "{blocked:?}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(seen(&host).len(), 2);
    drop(lock);
    host.run("vip del 192.0.2.10/24 --timeout 300ms").ended(0);
}

#[test]
fn a_missing_right_is_named() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    // Root without the right is nobody; and a lock folder that cannot be made must not hide it.
    let (_, said) = host.try_sh(&format!(
        "FAILOVER_STATE_DIR=/proc/none setpriv --bounding-set=-net_admin {} add 192.0.2.10/24 --dev eth0; echo $?",
        binary("vip").display()
    ));
    assert!(said.starts_with("4\n") && said.contains("needs CAP_NET_ADMIN"), "{said}");
    let (_, said) =
        host.try_sh(&format!("setpriv --bounding-set=-all {} show 192.0.2.1 && echo yes", binary("vip").display()));
    assert!(said.contains("yes"), "{said}");
}

/// known-faults 19: in a pipe.
#[test]
fn a_reader_that_leaves_is_no_failure_and_a_full_device_is_one() {
    let lab = Lab::new();
    let host = lab.host("n1", &["10.0.0.1/16"]);
    let vip = binary("vip");
    let vip = vip.display();
    let many: String = (0..600).map(|n| format!("10.0.{}.{}/16\n", 1 + n / 250, 1 + n % 250)).collect();
    host.run_with("vip add - --dev eth0", &many).ended(0);
    let (_, said) = host.try_sh(&format!("bash -c '{vip} show | head -n 1 | wc -l; echo ${{PIPESTATUS[0]}}'"));
    assert_eq!(said, "1\n0\n");
    let (_, said) = host.try_sh(&format!("{vip} show >/dev/full; echo $?"));
    assert_eq!(said, "71\nvip show: cannot write to standard output: No space left on device\n");
    let (_, said) = host.try_sh(&format!("{vip} show --schema >/dev/full; echo $?"));
    assert!(said.starts_with("71\n"), "{said}");
}

#[test]
fn an_interface_that_vanishes_is_missing_or_gone_and_never_a_panic() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    for _ in 0..10 {
        host.sh("ip link add gone type veth peer name gone2; ip link set gone up");
        let add = host
            .command("vip add 198.51.100.9/24 --dev gone")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        host.sh("ip link del gone");
        let code = add.unwrap().wait().unwrap().code();
        assert!(matches!(code, Some(0 | 5 | 71)), "{code:?}");
    }
}

#[test]
fn wrong_words_are_one_line_and_status_2() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    for (words, part) in [
        ("vip", "a verb is missing"),
        ("vip sho", "unrecognized subcommand"),
        ("vip add --dev eth0", "required"),
        ("vip add 300.0.0.1/24 --dev eth0", "is not an address"),
        ("vip add 192.0.2.1/33 --dev eth0", "prefix length"),
        ("vip add 224.0.0.1/24 --dev eth0", "cannot be a host's address"),
        ("vip add 192.0.2.1/24 --dev eth0 --dad kernel", "IPv6"),
        ("vip add 192.0.2.1/24 --dev eth0 --timeout 5", "a unit is needed"),
        ("vip show --node a/b", "not a node name"),
        ("vip show - -", "stands twice"),
    ] {
        let run = host.run(words);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(part) && run.stderr.lines().count() == 1, "{run:?}");
    }
}

#[test]
fn a_signal_ends_as_that_signal() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut waiting = host.command("vip show -").stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(waiting.id()).unwrap()), Signal::SIGTERM).unwrap();
    let status = waiting.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

#[test]
fn a_malformed_line_is_told_with_its_number_and_the_others_are_done() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let run = host.run_with("vip add - --dev eth0", "192.0.2.60/24\nbogus\u{1b}[2J\n\n192.0.2.61/24\n").ended(6);
    assert!(run.stderr.starts_with("vip add: line 2 is malformed: 'bogus\u{fffd}[2J' is not an address"), "{run:?}");
    assert_eq!((run.records().len(), seen(&host).len()), (2, 3));
    host.run_with("vip del -", "192.0.2.60/24\nx\n").ended(6);
    assert_eq!(seen(&host), ["192.0.2.1/24", "192.0.2.61/24"]);
}
