//! `fence`: real agents, and agents that fail in every way that agents do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::{Host, Lab, Run, Running, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn file(host: &Host, name: &str, mode: u32, text: &str) -> PathBuf {
    let path = host.folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// An agent: shell text that sees `action`, `port` and the file `$plug`, whose words are on and off.
fn agent(host: &Host, name: &str, body: &str) -> String {
    let plug = file(host, &format!("{name}.plug"), 0o600, "on");
    let text = format!(
        "#!/bin/sh\nplug={} log={}/{name}.log\nread_input() {{ while IFS='=' read -r key value; do \
         case $key in action) action=$value ;; port) port=$value ;; secret) secret=$value ;; esac; done; }}\n\
         status() {{ case $(cat $plug) in on) exit 0 ;; off) exit 2 ;; esac; exit 1; }}\n{body}\n",
        plug.display(),
        host.folder.display()
    );
    file(host, name, 0o755, &text).display().to_string()
}

/// Does what it is told at once, and logs it.
const GOOD: &str = "read_input; echo $action $port >>$log; [ $action = status ] && status; printf $action >$plug";

fn plug(host: &Host, name: &str) -> String {
    fs::read_to_string(host.folder.join(format!("{name}.plug"))).unwrap()
}

fn log(host: &Host, name: &str) -> String {
    fs::read_to_string(host.folder.join(format!("{name}.log"))).unwrap_or_default()
}

#[test]
fn the_dummy_of_the_field_is_driven_also_with_cron_s_path() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let state = file(&host, "plug", 0o600, "on");
    let options = file(&host, "n2.options", 0o600, &format!("status_file={}\n", state.display()));
    let by = format!("--agent fence_dummy --options {}/{{node}}.options", host.folder.display());
    let mut cron = host.command(&format!("fence off n2 {by}"));
    let run = Run::new("fence off, cron's PATH", cron.env("PATH", "/usr/bin:/bin").output().unwrap()).ended(0);
    let off = run.one();
    assert_eq!((&off["power"], &off["proof"], &off["attempts"]), (&"off".into(), &true.into(), &1.into()));
    assert_eq!(fs::read_to_string(&state).unwrap(), "off");
    assert_eq!(host.run(&format!("fence status n2 {by}")).ended(1).one()["power"], "off");
    host.run(&format!("fence on n2 {by}")).ended(0);
    assert_eq!(fs::read_to_string(&state).unwrap(), "on");
    assert_eq!(host.run(&format!("fence status n2 {by}")).ended(0).one()["proof"], false);
    let reboot = host.run(&format!("fence reboot n2 {by}")).ended(0).one();
    assert_eq!((&reboot["power"], &reboot["proof"]), (&"on".into(), &true.into()));
    // Its kind that never gets anything done.
    fs::write(&options, "type=fail\n").unwrap();
    let failed = host.run(&format!("fence off n2 {by} --timeout 3s --retries 0")).ended(1).one();
    assert_eq!((&failed["power"], &failed["proof"]), (&"on".into(), &false.into()));
}

/// known-faults 17, and what else agents do.
#[test]
fn only_the_device_s_word_is_a_proof() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    for (name, body, code, power, reason) in [
        ("good", GOOD, 0, "off", ""),
        // (a) it says that it is done, and the status says on
        ("liar", "read_input; [ $action = status ] && status; exit 0", 1, "on", "not-proven"),
        // (c) it was off already
        (
            "was-off",
            "printf off >$plug; read_input; [ $action = status ] && status; [ $action = monitor ]; exit",
            0,
            "off",
            "",
        ),
        // a script that a shell cannot read, or that lacks an option, ends with what means off
        ("crashes", "exit 2", 75, "unknown", "not-proven"),
        // the device does not answer
        ("mute", "exit 1", 75, "unknown", "not-proven"),
        // it has no use for its input, or dies
        ("deaf", "exec <&-; [ -e $plug.asked ] && { printf off >$plug; status; }; touch $plug.asked", 0, "off", ""),
        ("killed", "kill -KILL $$", 75, "unknown", "not-proven"),
    ] {
        let path = agent(&host, name, body);
        let run = host.run(&format!("fence off n2 --agent {path} --timeout 5s"));
        assert_eq!(run.code, code, "{name}: {run:#?}");
        let record = run.one();
        assert_eq!((record["power"].as_str(), record["proof"].as_bool()), (Some(power), Some(code == 0)), "{name}");
        assert_eq!(record["error"]["reason"].as_str().unwrap_or_default(), reason, "{name}");
    }
    // (d) it cannot be started: each has its own reason
    let text = file(&host, "no-program", 0o755, "\u{7f}ELF, but not quite").display().to_string();
    let broken = host.run(&format!("fence off n2 --agent {text} --timeout 3s"));
    assert_eq!((broken.code, &broken.one()["error"]["errno"]), (71, &"ENOEXEC".into()), "{broken:#?}");
    let missing = host.run("fence off n2 --agent fence_of_nobody").ended(5);
    assert!(missing.stderr.contains("fence_of_nobody"), "{missing:?}");
    host.run("fence off n2 --agent /nonexistent/fence_x").ended(5);
    // Its reason, not where to read more.
    let lacks = host.run("fence status n2 --agent fence_ipmilan").ended(75);
    assert!(!lacks.stderr.contains("for usage") && !lacks.stderr.contains(",0"), "{lacks:?}");
    host.run("fence off n1 --agent fence_dummy").ended(2);
}

/// known-faults 17 (b): with its children, wherever they went.
#[test]
fn an_agent_that_never_returns_ends_with_everything_it_started() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let pids = host.folder.join("pids");
    let name = |what: &str| format!("fence-test-{}-{what}", std::process::id());
    for (what, body) in [
        ("hang", "trap '' TERM; sleep 987650 & sleep 987651"),
        ("fork", "(setsid sh -c 'trap \"\" TERM HUP; echo $$ >>PIDS; sleep 987652 & wait' &) ; sleep 987653"),
        ("talk", "yes 0123456789 & yes abcdefgh >&2"),
    ] {
        let body = format!("echo $$ >>PIDS; {body}").replace("PIDS", &pids.display().to_string());
        let path = agent(&host, &name(what), &body);
        let started = Instant::now();
        let run = host.run(&format!("fence off n2 --agent {path} --timeout 1s --retries 0"));
        assert_eq!(run.code, 75, "{what}: {run:#?}");
        assert_eq!(run.one()["error"]["reason"], "timed-out", "{what}");
        assert!(started.elapsed() < 8 * SECOND, "{what}");
        for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
            assert!(!PathBuf::from(format!("/proc/{pid}")).exists(), "{what}: {pid} lives on");
        }
        let left = host.sh("for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done");
        assert!(!left.contains(&name(what)) && !left.contains("sleep 98765"), "{what}: {left}");
    }
    // One that returns and leaves a daemon with its pipes: its answer counts at once.
    let path = agent(&host, "daemon", &format!("setsid sleep 987654 & {GOOD}"));
    let started = Instant::now();
    host.run(&format!("fence off n2 --agent {path} --timeout 20s")).ended(0);
    assert!(started.elapsed() < 10 * SECOND);
    // A signal to us ends it too, and nothing is proven.
    let path = agent(&host, "slow", "echo $$ >>$log; sleep 987655");
    let mut run = host.start(&format!("fence off n2 --agent {path}"));
    eventually("the agent runs", 5 * SECOND, || !log(&host, "slow").is_empty());
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(5 * SECOND), -15);
    let pid = log(&host, "slow");
    assert!(!PathBuf::from(format!("/proc/{}", pid.trim())).exists());
}

#[test]
fn levels_are_tried_in_order_and_two_supplies_must_both_be_off() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let mute = agent(&host, "mute", "exit 1");
    let (first, second) = (agent(&host, "first", GOOD), agent(&host, "second", GOOD));
    let off = host.run(&format!("fence off n2 --agent {mute} --agent {first} --agent {second}")).ended(0).one();
    assert_eq!((&off["agent"], &off["level"], &off["attempts"]), (&"first".into(), &2.into(), &3.into()));
    assert_eq!(plug(&host, "second"), "on");
    // One supply that cannot be asked, or that goes on, is no proof.
    host.run(&format!("fence off n2 --all --agent {first} --agent {mute}")).ended(75);
    let stuck = agent(&host, "stuck", "read_input; [ $action = status ] && status; exit 0");
    let half = host.run(&format!("fence off n2 --all --agent {first} --agent {stuck}")).ended(1).one();
    assert_eq!((&half["power"], &half["proof"]), (&"on".into(), &false.into()));
    let both = agent(&host, "one", &GOOD.replace("$log", "$log.all"));
    let other = agent(&host, "two", &GOOD.replace("$log", &format!("{}/one.log.all", host.folder.display())));
    let reboot = host.run(&format!("fence reboot n2 --all --agent {both} --agent {other}")).ended(0).one();
    assert_eq!((&reboot["power"], &reboot["agent"]), (&"on".into(), &"one+two".into()));
    let order = fs::read_to_string(host.folder.join("one.log.all")).unwrap();
    let acts: Vec<&str> = order.lines().filter(|line| !line.starts_with("status")).collect();
    assert_eq!(acts, ["off n2", "off n2", "on n2", "on n2"]);
}

#[test]
fn options_are_secret_and_a_wrong_file_is_refused() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let body = format!(
        "tr '\\0' ' ' </proc/$$/cmdline >>$log.argv; tr '\\0' ' ' </proc/$PPID/cmdline >>$log.argv; env >>$log.argv; {GOOD}; echo $secret >$log.secret"
    );
    let path = agent(&host, "spy", &body);
    let options = file(&host, "options", 0o600, "# BMC\nsecret=geheim\nport=7\n");
    let by = format!("--agent {path} --options {}", options.display());
    host.run(&format!("fence off n2 {by}")).ended(0);
    assert!(log(&host, "spy").contains("off 7"));
    assert_eq!(fs::read_to_string(host.folder.join("spy.log.secret")).unwrap(), "geheim\n");
    assert!(!fs::read_to_string(host.folder.join("spy.log.argv")).unwrap().contains("geheim"));
    let dry = host.run(&format!("fence off n2 {by} --dry-run")).ended(0);
    assert!(dry.one()["actions"][0]["text"].as_str().unwrap().contains("action=off") && !dry.stdout.contains("geheim"));
    for (mode, text, why) in
        [(0o644, "a=b", "others may read it"), (0o600, "geheim", "line 1"), (0o600, "action=on", "line 1")]
    {
        file(&host, "options", mode, text);
        let refused = host.run(&format!("fence off n2 {by}")).ended(6);
        assert!(refused.stderr.contains(why) && !refused.stderr.contains("geheim"), "{refused:?}");
    }
}

#[test]
fn two_runs_never_act_at_once_and_a_torn_file_of_proofs_is_refused() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let slow = agent(&host, "slow", &format!("sleep 3; {GOOD}"));
    let mut first = host.start(&format!("fence off n2 --agent {slow}"));
    eventually("the first holds the lock", 5 * SECOND, || {
        host.folder
            .join("state/lock")
            .read_dir()
            .is_ok_and(|mut names| names.any(|name| name.unwrap().file_name().to_string_lossy().ends_with("fence-n2")))
    });
    let late = host.run(&format!("fence off n2 --agent {slow} --timeout 200ms")).ended(75);
    assert!(late.stderr.contains("another run holds it"), "{late:?}");
    assert_eq!(first.ends(30 * SECOND), 0);
    // Whoever waited for the first need not do it again.
    let once = host.run(&format!("fence off n2 --agent {slow} --once")).ended(0).one();
    assert_eq!((&once["proof"], &once["attempts"]), (&true.into(), &0.into()));
    let proofs = host.folder.join("state/fence-n1.json");
    for broken in [String::new(), "\0".repeat(64), fs::read_to_string(&proofs).unwrap()[..60].to_owned()] {
        fs::write(&proofs, &broken).unwrap();
        let refused = host.run(&format!("fence off n2 --agent {slow} --once")).ended(6);
        assert!(refused.stderr.contains("fence-n1.json"), "{refused:?}");
        assert_eq!(fs::read_to_string(&proofs).unwrap(), broken, "it is not overwritten");
    }
}

const PLAN: &str = r#"{"kind":"bucket.plan","v":1,"time":"2026-11-29T22:00:00.000000Z","host":"n1","subject":"192.0.2.9","total":6,"epoch":9,"owners":{},"mine":"1-2","moves":[],"nodes":{},"unowned":"","held":"3","needs_fence":["n2"]}"#;

fn beat(status: &str, incarnation: u64) -> String {
    format!(
        r#"{{"kind":"heartbeat.recv","host":"n1","subject":"n2","status":"{status}","incarnation":{incarnation},"odd":1e2}}"#
    )
}

/// What a stream has printed, as lines.
fn printed(run: &Running) -> Vec<String> {
    run.text().lines().map(str::to_owned).collect()
}

#[test]
fn a_record_that_needs_a_proof_goes_on_without_and_then_with_it() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let slow = agent(
        &host,
        "slow",
        "read_input; echo $action >>$log; [ $action = status ] && status; sleep 4; printf off >$plug",
    );
    let mut stream = host.start_fed(&format!("fence records --agent {slow}"));
    stream.feed(&format!("{}\n{PLAN}\n", beat("down", 7)));
    eventually("the agent runs", 5 * SECOND, || log(&host, "slow").contains("off"));
    // Renewals do not wait for it.
    let renewal = PLAN.replace("\"held\"", "\"renewal\":true,\"held\"");
    for _ in 0..5 {
        stream.feed(&format!("{renewal}\n"));
    }
    eventually("they pass", 3 * SECOND, || printed(&stream).len() == 7);
    assert_eq!(log(&host, "slow"), "off\n", "still at it");
    assert_eq!(printed(&stream)[..3], [beat("down", 7), PLAN.to_owned(), renewal.clone()], "byte for byte");
    eventually("the proof", 20 * SECOND, || printed(&stream).len() == 9);
    let lines = printed(&stream);
    assert!(lines[7].contains("\"kind\":\"fence.off\"") && lines[7].contains("\"incarnation\":7"), "{lines:#?}");
    let (before, key) = lines[8].split_once(",\"fence\":").unwrap();
    assert_eq!(format!("{before}}}"), renewal);
    let key: serde_json::Value = serde_json::from_str(key.strip_suffix('}').unwrap()).unwrap();
    assert_eq!((&key["node"], &key["incarnation"], &key["agent"]), (&"n2".into(), &7.into(), &"slow".into()));
    // It counts when the plan comes again, also for a run that is started anew.
    stream.feed(&format!("{PLAN}\n"));
    eventually("with the proof at once", SECOND, || printed(&stream).len() == 10);
    assert!(printed(&stream)[9].contains("\"fence\":"));
    let again = host.run_with(&format!("fence records --agent {slow}"), &format!("{PLAN}\n")).ended(0);
    assert!(again.stdout.contains("\"fence\":{\"node\":\"n2\",\"incarnation\":7"), "{again:?}");
    assert_eq!(log(&host, "slow").matches("off").count(), 1, "fenced once");
    // The first beat of its next life ends the proof.
    stream.feed(&format!("{}\n{PLAN}\n", beat("up", 8)));
    eventually("passed without", SECOND, || printed(&stream).len() == 12);
    assert!(!printed(&stream)[11].contains("\"fence\":"));
    eventually("it is fenced again", 10 * SECOND, || log(&host, "slow").matches("off").count() == 2);
    let kept = fs::read_to_string(host.folder.join("state/fence-n1.json")).unwrap();
    assert!(!kept.contains("\"n2\""), "{kept}");
    stream.signal(Signal::SIGTERM);
    assert_eq!(stream.ends(10 * SECOND), -15);
}

#[test]
fn without_a_proof_a_record_stays_as_it_was_and_the_status_says_so() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    for (name, body, code) in
        [("mute", "exit 1", 75), ("liar", "read_input; [ $action = status ] && status; exit 0", 1)]
    {
        let path = agent(&host, name, body);
        let run = host.run_with(&format!("fence records --agent {path}"), &format!("{PLAN}\n"));
        assert_eq!(run.code, code, "{run:#?}");
        assert_eq!(run.stdout.lines().next(), Some(PLAN));
        assert!(!run.stdout.contains("\"fence\":"), "{run:?}");
    }
    let run = host.run_with("fence records --agent fence_of_nobody", &format!("{PLAN}\n"));
    assert_eq!(run.code, 5, "{run:#?}");
    assert!(run.stdout.is_empty(), "told before the outage");
    // Nothing is asked for: nothing is done, and strange lines are told.
    let plain = "{\"kind\":\"x\",\"a\":0.10}\nnonsense\n";
    let run = host.run_with("fence records --agent fence_dummy", plain).ended(6);
    assert_eq!(run.stdout, "{\"kind\":\"x\",\"a\":0.10}\n");
}

/// Pacemaker's own tool, where there is no cluster: nobody can be asked, so nothing is proven.
#[test]
fn without_a_cluster_pacemaker_proves_nothing() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let run = host.run("fence off n2 --via stonith --timeout 2s").ended(75);
    let record = run.one();
    assert_eq!((&record["power"], &record["proof"]), (&"unknown".into(), &false.into()));
    assert!(run.stderr.contains("stonith_admin"), "{run:?}");
    host.run("fence status n2 --via stonith").ended(2);
}

/// Nothing proves what no device was asked about.
#[test]
fn without_time_to_ask_there_is_no_proof() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let (yes, hang) = (agent(&host, "yes", "exit 0"), agent(&host, "hang", "exec sleep 100"));
    for line in [
        format!("fence off n2 --agent {yes} --timeout 0s"),
        format!("fence off n2 --agent {yes} --delay 300ms --timeout 100ms"),
        format!("fence reboot n2 --agent {yes} --timeout 0s"),
        format!("fence off n2 --all --agent {yes} --agent {hang} --delay 300ms --timeout 100ms"),
    ] {
        let run = host.run(&line);
        assert!(run.code != 0 && run.records().iter().all(|record| record["proof"] == false), "{run:#?}");
    }
    // Frozen while its agent hangs: the time of the next one is over when it thaws.
    let mut frozen = host.start(&format!("fence off n2 --agent {hang} --agent {yes} --limit 1s --retries 0"));
    std::thread::sleep(Duration::from_millis(300));
    frozen.signal(Signal::SIGSTOP);
    std::thread::sleep(2 * SECOND);
    frozen.signal(Signal::SIGCONT);
    assert!(frozen.ends(10 * SECOND) != 0 && frozen.so_far()[0]["proof"] == false, "{:?}", frozen.so_far());
    assert!(!host.folder.join("state/fence-n1.json").exists());
    let late = host.run(&format!("fence off n2 --agent {hang} --limit 1s --retries 0")).ended(75).one();
    assert!(late["elapsed_ms"].as_f64().unwrap() < 4000.0, "the limit is one: {late}");
}

/// A proof is of one life, and a device or a beat is stronger than it.
#[test]
fn a_proof_ends_with_the_word_of_the_device_and_with_a_newer_life() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let other = lab.host("n2", &["192.0.2.2/24"]);
    let good = agent(&host, "good", GOOD);
    let kept = || fs::read_to_string(host.folder.join("state/fence-n1.json")).unwrap().contains("\"n2\"");
    for verb in ["status", "off"] {
        host.run(&format!("fence off n2 --agent {good}")).ended(0);
        assert!(kept());
        let on = agent(&host, "on", "read_input; [ $action = status ] && exit 0; exit 1");
        host.run(&format!("fence {verb} n2 --agent {on} --retries 0 --timeout 3s"));
        assert!(!kept(), "{verb}: the device says that it is on");
    }
    for verb in ["on", "reboot", "status"] {
        host.run(&format!("fence {verb} n2 --once --agent {good}")).ended(2);
    }
    // It was proven off in an earlier life, and this host has heard a newer one.
    host.run(&format!("fence off n2 --agent {good} --incarnation 5")).ended(0);
    let key = host.folder.join("key");
    fs::write(&key, "ab".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let _beats = other.start(&format!("heartbeat send --key {} --interval 50ms --to 192.0.2.1", key.display()));
    let recv = format!("heartbeat recv --key {} --bind 192.0.2.1 --expect n2 --for 5s", key.display());
    host.run(&recv).ended(0);
    fs::write(host.folder.join("good.log"), "").unwrap();
    let run = host.run_with(&format!("fence records --agent {good}"), &format!("{PLAN}\n")).ended(0);
    assert!(log(&host, "good").contains("off n2"), "it is fenced again: {run:#?}");
    let down = "{\"host\":\"n1\",\"subject\":\"n2\",\"status\":\"down\"}\n";
    let line = "quorum --members n1,n2 --tie-breaker fence --wait-for-all no";
    host.run_with(line, down).ended(0);
    // Switched on again it has its vote, also where its beats do not arrive.
    host.run(&format!("fence reboot n2 --agent {good}")).ended(0);
    host.run_with(line, down).ended(75);
}

/// What cannot be kept is told before anybody is shot.
#[test]
fn with_a_torn_file_of_proofs_nobody_is_shot() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let good = agent(&host, "good", GOOD);
    fs::create_dir_all(host.folder.join("state")).unwrap();
    fs::write(host.folder.join("state/fence-n1.json"), "{\"kind\":\"state.fence\",\"v\":1").unwrap();
    for verb in ["off", "reboot", "on"] {
        host.run(&format!("fence {verb} n2 --agent {good}")).ended(6);
    }
    assert_eq!((log(&host, "good").as_str(), plug(&host, "good").as_str()), ("", "on"));
}

/// An agent that outlives its run may still act: nobody else does meanwhile.
#[test]
fn a_killed_run_leaves_its_lock_to_its_agent() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let slow = agent(&host, "slow", &format!("read_input; touch $plug.runs; sleep 2; {GOOD}"));
    let good = agent(&host, "good", GOOD);
    let mut killed = host.start(&format!("fence on n2 --agent {slow}"));
    eventually("its agent runs", 5 * SECOND, || host.folder.join("slow.plug.runs").exists());
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let late = host.run(&format!("fence off n2 --agent {good} --timeout 200ms")).ended(75);
    assert!(late.stderr.contains("another run holds it"), "{late:?}");
    host.run(&format!("fence off n2 --agent {good} --timeout 20s")).ended(0);
    assert!(log(&host, "slow").contains("on n2"), "the orphan was waited for");
}
