//! The recipe iscsi and its parts: targets of tgt on three hosts, a client that writes through libiscsi, and faults.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod support;

use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::cluster::is_nightly;
use support::eventually;
use support::iscsi::{Cluster, DRIVERS, Daemon, Fault, MS, SECOND, Scene, Writer, address, url};

const LIMIT: Duration = Duration::from_secs(30);
const ADDRESS: &str = "10.77.1.200";
const DISK: &str = "disk";

/// The first host serves, by hand.
fn served(trusting: bool) -> (Scene, Daemon) {
    let scene = Scene::new(&[DISK], trusting);
    let first = scene.serve(0, DISK, ADDRESS, 1);
    scene.reaches("n1", DISK, "tickle");
    (scene, first)
}

fn writer(scene: &Scene, blocks: usize, pace: Duration) -> Writer {
    let writer = Writer::start(&scene.client, &url(ADDRESS, DISK), blocks, pace);
    writer.goes_on(50, LIMIT);
    writer
}

/// The list of the client's connections, as it is now.
fn peers(scene: &Scene) -> PathBuf {
    let peers = scene.client.folder.join("peers");
    fs::write(&peers, scene.machines[0].sh(&format!("vip peers {ADDRESS}"))).unwrap();
    peers
}

/// The second host takes over, and the client notices.
fn take(scene: &Scene, peers: &std::path::Path) -> Daemon {
    let second = scene.serve(1, DISK, ADDRESS, 2);
    scene.reaches("n2", DISK, "address");
    scene.machines[1].sh(&format!("vip tickle {ADDRESS} --peers {}", peers.display()));
    second
}

/// The longest write when the second host takes over so long after a fault of the first.
fn moved_by_hand(fault: Fault, detection: Duration) -> Duration {
    let (mut scene, _first) = served(false);
    let writer = writer(&scene, 500, Duration::ZERO);
    let peers = peers(&scene);
    let struck = Instant::now();
    scene.strike(fault, 0);
    std::thread::sleep(detection.saturating_sub(struck.elapsed()));
    let _second = take(&scene, &peers);
    writer.goes_on(600, LIMIT);
    let stall = writer.stall(struck);
    let stream = writer.stop();
    assert_eq!(stream.failures, Vec::<String>::new());
    assert_eq!(scene.wrong(DISK, &stream.wanted), Vec::<usize>::new(), "{fault:?}");
    stall
}

#[test]
fn on_time_a_client_waits_for_the_detection_and_a_fifth_of_a_second() {
    let detections = if is_nightly() { &[500, 1000, 2000, 4000][..] } else { &[500, 1000] };
    for fault in [Fault::Freeze, Fault::Pause, Fault::Kill] {
        for detection in detections.iter().map(|ms| *ms * MS) {
            // What else the machine does only adds to it.
            let is_soon = (0..3).any(|_| {
                let stall = moved_by_hand(fault, detection);
                eprintln!("{fault:?}, moved after {detection:?}: the longest write took {stall:.3?}");
                stall < detection + 200 * MS
            });
            assert!(is_soon, "{fault:?} {detection:?}");
        }
    }
}

#[test]
fn a_planned_move_fails_no_write() {
    let (scene, mut first) = served(false);
    let writer = writer(&scene, 500, Duration::ZERO);
    let (peers, told) = (peers(&scene), Instant::now());
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ends(LIMIT), Some(0), "{}", first.said());
    // Everything is given back, in the reverse order.
    let gone: Vec<String> = scene.phases().iter().map(|line| line["phase"].as_str().unwrap().to_owned()).collect();
    assert!(gone.ends_with(&["address-gone", "target-gone", "storage-gone"].map(str::to_owned)), "{gone:?}");
    assert!(!scene.machines[0].has(ADDRESS));
    assert!(!scene.machines[0].runs("tgtd"));
    eventually("its path ends", LIMIT, || !scene.machines[0].runs("path"));
    let _second = take(&scene, &peers);
    writer.goes_on(600, LIMIT);
    let stall = writer.stall(told);
    let stream = writer.stop();
    assert_eq!((stream.failures, scene.wrong(DISK, &stream.wanted)), (Vec::new(), Vec::new()));
    assert!(stall < SECOND, "{stall:?}");
    // Read back once more: what is given back twice is given back.
    let environment = scene.unit(DISK, ADDRESS, 1);
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut again = scene.machines[0].spawn("release", &[&format!("{DRIVERS}/release")], &environment);
    assert_eq!(again.ends(LIMIT), Some(0), "{}", again.said());
}

/// Freezes the first host while a write waits in its socket, moves the service, writes every block anew, and thaws.
/// The blocks that are wrong then, and how the old host's path was answered.
fn thawed(trusting: bool) -> (Vec<usize>, Vec<bool>) {
    let (scene, _first) = served(trusting);
    let writer = writer(&scene, 100, 2 * MS);
    let waits = || {
        let lines = scene.machines[0].host.sh(&format!("ss -Htn src {ADDRESS}"));
        lines.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|queue| queue != "0"))
    };
    let peers = peers(&scene);
    loop {
        scene.machines[0].freeze();
        std::thread::sleep(50 * MS);
        if waits() {
            break;
        }
        // It was elsewhere on its way.
        scene.machines[0].thaw();
        writer.goes_on(10, LIMIT);
    }
    let _second = take(&scene, &peers);
    writer.goes_on(250, LIMIT);
    let stream = writer.stop();
    assert_eq!((stream.failures, scene.wrong(DISK, &stream.wanted)), (Vec::new(), Vec::new()));
    let of_old =
        || scene.paths().into_iter().filter(|line| line["token"] == 1 && line["verb"] == "write").collect::<Vec<_>>();
    let before = of_old().len();
    scene.machines[0].thaw();
    eventually("the old host writes", LIMIT, || of_old().len() > before);
    let answers = of_old()[before..].iter().map(|line| line["refused"] == true).collect();
    std::thread::sleep(100 * MS);
    (scene.wrong(DISK, &stream.wanted), answers)
}

/// Why it needs fencing, or a storage that refuses: the address alone does not keep an old host from writing.
#[test]
fn without_protection_a_thawed_host_writes_its_stale_block() {
    let (wrong, answers) = thawed(true);
    assert!(!wrong.is_empty() && answers.iter().all(|refused| !refused), "{wrong:?} {answers:?}");
}

#[test]
fn a_storage_that_knows_the_token_lets_a_thawed_host_change_no_block() {
    for _ in 0..if is_nightly() { 20 } else { 3 } {
        let (wrong, answers) = thawed(false);
        assert!(wrong.is_empty() && answers.iter().all(|refused| *refused), "{wrong:?} {answers:?}");
    }
}

/// Every node shows the same disk, without a write cache.
#[test]
fn the_disk_is_the_same_on_every_node_and_caches_nothing() {
    let (scene, mut first) = served(false);
    let sense = || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/iscsi-sense.py");
        scene.client.sh(&format!("/usr/bin/python3 {script} {}", url(ADDRESS, DISK)))
    };
    let before = sense();
    assert!(before.starts_with("wce 0 serial ") && before.trim().len() == 29, "{before}");
    first.signal(Signal::SIGTERM);
    first.ends(LIMIT);
    let _second = take(&scene, &peers(&scene));
    assert_eq!(sense(), before);
}

/// What a driver says without the programs that it drives.
fn dry(driver: &str, verb: &str, more: &[(&str, &str)]) -> String {
    let mut command = std::process::Command::new(format!("{DRIVERS}/{driver}"));
    command.args(["--dry-run", verb]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.envs([
        ("ISCSI_UNIT", "disk"),
        ("ISCSI_RUN", "/run/iscsi/disk"),
        ("ISCSI_ADDRESS", ADDRESS),
        ("ISCSI_IQN", "iqn.2026-01.lab"),
    ]);
    let output = command.envs(more.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn drivers_tell_what_they_would_do() {
    let devices = [("ISCSI_DEVICES", "1:a=/dev/null 2:b=/dev/zero")];
    let start = dry("lio", "prepare", &devices) + &dry("lio", "start", &devices);
    for words in [
        "targetcli set global auto_add_default_portal=false auto_save_on_exit=false\n",
        "targetcli /backstores/fileio create name=disk.a file_or_dev=/dev/null write_back=false sparse=true wwn=",
        "targetcli /backstores/fileio/disk.a set attribute emulate_write_cache=0\n\
         targetcli /iscsi create iqn.2026-01.lab:a\n\
         targetcli /iscsi/iqn.2026-01.lab:a/tpg1/luns create /backstores/fileio/disk.a lun=1\n",
        "targetcli /iscsi/iqn.2026-01.lab:b/tpg1/portals create 10.77.1.200 3260\n",
    ] {
        assert!(start.contains(words), "no {words} in {start}");
    }
    assert_eq!(
        dry("lio", "stop", &devices[..]),
        "targetcli /iscsi delete iqn.2026-01.lab:a\ntargetcli /backstores/fileio delete disk.a\n\
         targetcli /iscsi delete iqn.2026-01.lab:b\ntargetcli /backstores/fileio delete disk.b\n"
    );
    let image = [("ISCSI_VOLUME", "a"), ("ISCSI_SPEC", "pool/a")];
    assert_eq!(
        dry("rbd", "start", &image),
        "rbd status pool/a\nceph osd blocklist add WATCHER\nrbd map --exclusive pool/a\n"
    );
    assert_eq!(dry("rbd", "stop", &image), "rbd unmap /dev/rbd/pool/a\n");
    let tgt = dry("tgt", "start", &devices);
    assert!(tgt.contains("tgtd --foreground --iscsi portal=10.77.1.200:3260\n"), "{tgt}");
    assert!(tgt.contains("--tid 2 --lun 1 --backing-store /dev/zero --bsoflags sync\n"), "{tgt}");
    assert_eq!(dry("tgt", "stop", &devices), "kill -KILL $(cat /run/iscsi/disk/tgtd.pid)\n");
    assert_eq!(
        dry("shared", "start", &[("ISCSI_VOLUME", "a"), ("ISCSI_SPEC", "/dev/sda")]),
        "blockdev --flushbufs /dev/sda\n"
    );
}

/// What stands in the way is said before anything is done.
#[test]
fn a_driver_says_what_is_wrong_here() {
    let scene = Scene::new(&[DISK], false);
    let environment = scene.unit(DISK, ADDRESS, 1);
    let ask = |line: &str| {
        let settings: String = environment.iter().map(|(name, value)| format!("export {name}='{value}'; ")).collect();
        scene.machines[0].try_sh(&format!("{settings} mkdir -p $ISCSI_RUN; {line}"))
    };
    assert_eq!(ask(&format!("{DRIVERS}/tgt check")).code, 0);
    let run = ask(&format!(
        "tgtd --foreground 2>/dev/null & sleep 0.3; {DRIVERS}/tgt check; status=$?; kill -KILL $!; exit $status"
    ));
    assert!(run.code == 6 && run.stderr.contains("a target listens on every address at port 3260"), "{run:?}");
    let run = ask(&format!("ISCSI_VOLUME=a ISCSI_SPEC=/nonexistent {DRIVERS}/shared check"));
    assert!(run.code == 6 && run.stderr.contains("neither a file nor a block device"), "{run:?}");
    // A LUN that caches is not ready, nor one that is not there.
    let image = scene.storage.join(DISK);
    let device = format!("ISCSI_DEVICES=1:disk={}", image.display());
    assert_eq!(
        ask(&format!(
            "export {device}; {DRIVERS}/tgt start && {DRIVERS}/tgt ready && {DRIVERS}/tgt status && {DRIVERS}/tgt start"
        ))
        .code,
        0
    );
    let run = ask(&format!("{device}2 {DRIVERS}/tgt ready"));
    assert!(run.code == 1 && run.stderr.contains("has not 'Backing store path"), "{run:?}");
    assert_eq!(
        ask(&format!("{device} {DRIVERS}/tgt stop && {device} {DRIVERS}/tgt stop && ! {DRIVERS}/tgt status")).code,
        0
    );
}

/// Ends a fault; what was switched off is switched on and begins anew.
fn mend(fault: Fault, cluster: &mut Cluster, idx: usize) {
    let Scene { machines, lab, .. } = &mut cluster.scene;
    match fault {
        Fault::Freeze => machines[idx].thaw(),
        Fault::Pause => machines[idx].resume(lab),
        Fault::Cut => machines[idx].cut(lab, false),
        Fault::Kill => {
            machines[idx].reboot(lab);
            cluster.recipes[idx] = Some(cluster.start(idx));
        }
    }
}

/// Milliseconds since the epoch of a time as records have it.
fn epoch_ms(time: &str) -> u64 {
    let output = std::process::Command::new("date").args(["+%s%3N", "--date", time]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Plays a fault of the first host, where the disk is at home, and its end. How long it took to decide that another host
/// is to serve, and how long the client waited in all.
fn played(cluster: &mut Cluster, fault: Fault) -> (Duration, Duration) {
    cluster.serves("n1", 0);
    let writer = Writer::start(&cluster.scene.client, &url(&address(0), DISK), 200, MS);
    writer.goes_on(50, LIMIT);
    cluster.knows_peers(DISK);
    let (struck, at) = (Instant::now(), epoch_ms("now"));
    cluster.scene.strike(fault, 0);
    eventually("another serves", LIMIT, || cluster.at(0).iter().any(|host| *host != "n1"));
    if fault == Fault::Cut {
        // It hears of nothing, and gives up by itself.
        eventually("it gives up", LIMIT, || !cluster.at(0).contains(&"n1"));
    }
    writer.goes_on(300, LIMIT);
    let stall = writer.stall(struck);
    let stream = writer.stop();
    assert_eq!(stream.failures, Vec::<String>::new());
    assert_eq!(cluster.scene.wrong(DISK, &stream.wanted), Vec::<usize>::new());
    // Back to life: not a block changes, and the service comes home.
    mend(fault, cluster, 0);
    cluster.serves("n1", 0);
    assert_eq!(cluster.scene.wrong(DISK, &stream.wanted), Vec::<usize>::new());
    cluster.scene.one_at_a_time(DISK);
    let placements = cluster.scene.phases().into_iter().filter(|line| line["moved_from"] == "n1");
    // A busy machine may have been given up before it was struck.
    let decided =
        placements.map(|line| epoch_ms(line["time"].as_str().unwrap())).filter(|time| *time > at).min().unwrap_or(at);
    (Duration::from_millis(decided - at), stall)
}

/// As table 3 of the paper: what a client waits for. Printed by scripts/demo iscsi.
#[test]
fn on_time_a_move_takes_its_detection_and_little_more() {
    let settings = if is_nightly() { &[500, 1000, 2000, 4000][..] } else { &[500] };
    eprintln!("dead_after  fault   leader     detection  migration  total (ms)");
    for dead_after in settings {
        let mut cluster = Cluster::new(&[(DISK, "n1")], &format!("fencing=none\ndead_after={dead_after}ms"));
        for (fault, leads) in Fault::ALL.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
            cluster.led(leads);
            let (detection, total) = played(&mut cluster, fault);
            let migration = total.saturating_sub(detection);
            eprintln!(
                "{dead_after:>10}  {:<6}  {:<9}  {:>9}  {:>9}  {:>5}",
                format!("{fault:?}").to_lowercase(),
                if leads { "the same" } else { "another" },
                detection.as_millis(),
                migration.as_millis(),
                total.as_millis()
            );
            assert!(total < Duration::from_millis(*dead_after) + 4 * SECOND, "{fault:?} {total:?}");
        }
    }
}

#[test]
fn a_client_writes_on_when_its_host_fails() {
    let mut cluster = Cluster::new(&[(DISK, "n1")], "fencing=none");
    for fault in Fault::ALL {
        played(&mut cluster, fault);
    }
    // A planned end gives everything back, and the others go on.
    let recipe = cluster.recipes[0].as_mut().unwrap();
    recipe.signal(Signal::SIGTERM);
    assert_eq!(recipe.ends(LIMIT), Some(0), "{}", recipe.said());
    assert!(!cluster.scene.machines[0].runs("tgtd") && !cluster.scene.machines[0].runs("store"));
    eventually("another serves", LIMIT, || cluster.at(0).len() == 1);
}

/// Where a device proves that a host is off, its lock is broken at once, and nothing of it comes back.
#[test]
fn a_fenced_host_is_off_before_another_serves() {
    let mut cluster = Cluster::fenced(&[(DISK, "n1")]);
    for fault in [Fault::Freeze, Fault::Cut] {
        cluster.serves("n1", 0);
        let writer = Writer::start(&cluster.scene.client, &url(&address(0), DISK), 200, MS);
        writer.goes_on(50, LIMIT);
        cluster.knows_peers(DISK);
        let struck = Instant::now();
        cluster.scene.strike(fault, 0);
        eventually("another serves", LIMIT, || cluster.at(0).iter().any(|host| *host != "n1"));
        assert!(cluster.scene.machines[0].is_dead(), "{fault:?}\n{}\n{}", cluster.scene.story(), cluster.scene.logs());
        writer.goes_on(300, LIMIT);
        eprintln!("{fault:?}, fenced: the longest write took {:.3?}", writer.stall(struck));
        let stream = writer.stop();
        assert_eq!((stream.failures, cluster.scene.wrong(DISK, &stream.wanted)), (Vec::new(), Vec::new()));
        // It is off, and its wires are, whatever it was before.
        mend(Fault::Kill, &mut cluster, 0);
    }
    cluster.serves("n1", 0);
}

/// All services of a node that dies, and all of them home again.
#[test]
fn ten_services_of_a_node_that_dies_go_to_the_others_and_come_home() {
    let names: Vec<String> = (0..10).map(|number| format!("disk{number}")).collect();
    let volumes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "n1")).collect();
    let mut cluster = Cluster::new(&volumes, "fencing=none");
    let at = |cluster: &Cluster, host: &str| (0..10).filter(|idx| cluster.at(*idx) == [host]).count();
    eventually("all are at home", LIMIT, || at(&cluster, "n1") == 10);
    cluster.scene.strike(Fault::Kill, 0);
    eventually("the others have five each", LIMIT, || at(&cluster, "n2") == 5 && at(&cluster, "n3") == 5);
    mend(Fault::Kill, &mut cluster, 0);
    eventually("all are at home again", LIMIT, || at(&cluster, "n1") == 10);
    for name in &names {
        cluster.scene.one_at_a_time(name);
    }
}

/// Faults of hosts and of the store by chance: one host at a time serves, and the data are what was written.
#[test]
fn by_chance_no_two_hosts_ever_serve_one_volume() {
    let runs = std::env::var("ISCSI_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = runs.unwrap_or(if is_nightly() { 200 } else { 10 });
    let seed = std::env::var("ISCSI_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
    let mut chance = seed;
    let mut draw = |below: u64| {
        // Knuth's MMIX.
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((chance >> 33) % below).unwrap()
    };
    let mut cluster = Cluster::new(&[(DISK, "n1")], "fencing=none");
    cluster.serves("n1", 0);
    let writer = Writer::start(&cluster.scene.client, &url(&address(0), DISK), 200, MS);
    for run in 0..runs {
        let (idx, fault) = (draw(3), Fault::ALL[draw(4)]);
        let member = draw(6);
        if member < 3 {
            cluster.etcd.kill(member);
        }
        cluster.scene.strike(fault, idx);
        std::thread::sleep(Duration::from_millis(u64::try_from(draw(3000)).unwrap()));
        mend(fault, &mut cluster, idx);
        if member < 3 {
            cluster.etcd.boot(member);
        }
        let before = writer.writes();
        let end = Instant::now() + 2 * LIMIT;
        while writer.writes() < before + 100 {
            let story = || {
                format!(
                    "run {run} of seed {seed}, {fault:?} of n{}\n{}\n{}",
                    idx + 1,
                    cluster.scene.story(),
                    cluster.scene.logs()
                )
            };
            assert!(Instant::now() < end, "the client does not write on: {}", story());
            std::thread::sleep(5 * MS);
        }
    }
    let stream = writer.stop();
    assert_eq!(stream.failures, Vec::<String>::new());
    cluster.scene.one_at_a_time(DISK);
    assert_eq!(cluster.scene.wrong(DISK, &stream.wanted), Vec::<usize>::new());
}

#[test]
fn a_wrong_configuration_is_refused_with_its_reason() {
    let cluster = Cluster::idle(&[(DISK, "n1")]);
    for (more, why) in [
        ("", "it has no fencing"),
        (
            "fencing=none\nstorage=shared\nvolumes='disk=/etc/passwd'",
            "would write to disk beside the one that serves it",
        ),
        ("fencing=none\nstore=file:/srv/x", "is this machine's alone"),
        ("fencing=none\nmove=some", "neither split nor whole"),
        ("fencing=none\nhome='disk=n9'", "disk has the home 'n9'"),
        ("fencing=none\nvips='other=192.0.2.1/24'", "vips has no disk=ADDRESS/LEN"),
        ("fencing=none\ntarget=iet", "target=iet: there is no"),
        ("fencing=none\nplce=x", "not a setting: plce=x"),
    ] {
        let run = cluster.check(0, more);
        assert!(run.code == 6 && run.stderr.contains(why), "{more}: {run:?}");
    }
    let run = cluster.check(0, "fencing=none");
    assert!(run.code == 0 && run.stderr.contains("is right for n1"), "{run:?}");
    // One runs; the second is told so.
    let mut first = cluster.start(0);
    eventually("it runs", LIMIT, || cluster.scene.machines[0].runs("heartbeat"));
    let mut second = cluster.start(0);
    assert_eq!(second.ends(LIMIT), Some(75), "{}", second.said());
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ends(LIMIT), Some(0), "{}", first.said());
}
