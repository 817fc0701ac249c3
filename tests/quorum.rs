//! `quorum`: reports in, a verdict for each member and one for the side; then the whole pipe.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use support::{Host, Lab, Running, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn report(host: &str, subject: &str, status: &str) -> String {
    format!("{{\"host\":\"{host}\",\"subject\":\"{subject}\",\"status\":\"{status}\"}}\n")
}

fn about<'a>(records: &'a [Value], member: &str) -> &'a Value {
    records.iter().find(|record| record["subject"] == member).unwrap_or_else(|| panic!("{member}: {records:#?}"))
}

/// known-faults 15, from the command line.
#[test]
fn half_is_no_majority() {
    let lab = Lab::new();
    let host = lab.host("observer", &[]);
    for (members, reports, subject, status, code) in [
        ("a,b,c,d,x", &[("a", "down"), ("b", "down"), ("c", "up"), ("d", "up")][..], "x", "unknown", 0),
        ("a,b,c,d,e", &[("a", "down"), ("b", "down")], "e", "unknown", 1),
        ("a,b,c", &[("a", "down"), ("a", "down"), ("a", "down")], "c", "unknown", 1),
        ("a,b,c", &[("a", "down"), ("b", "down"), ("c", "up")], "c", "down", 0),
        ("a,b,c", &[("a", "unknown"), ("b", "unknown")], "c", "unknown", 1),
    ] {
        let input: String = reports.iter().map(|(reporter, said)| report(reporter, subject, said)).collect();
        let run = host.run_with(&format!("quorum --members {members}"), &input);
        assert_eq!(run.code, code, "{run:#?}");
        let records = run.records();
        assert_eq!(records.len(), members.split(',').count());
        let verdict = about(&records, subject);
        assert_eq!((&verdict["status"], &verdict["quorate"]), (&status.into(), &(code == 0).into()), "{run:#?}");
        let zero = host.run_with(&format!("quorum --members {members} --exit-zero --pass"), &input).ended(0);
        assert!(zero.stdout.starts_with(&input), "each line first, as it was");
    }
}

#[test]
fn an_old_report_a_strange_clock_and_another_boot_do_not_count() {
    let lab = Lab::new();
    let host = lab.host("observer", &[]);
    let dated = |reporter: &str, date: &str| {
        let time = host.sh(&format!("date --utc --date '{date}' +%Y-%m-%dT%H:%M:%S.%6NZ"));
        format!("{{\"host\":\"{reporter}\",\"subject\":\"c\",\"status\":\"down\",\"time\":\"{}\"}}\n", time.trim())
    };
    for (date, status) in [
        ("now", "down"),
        ("30 seconds ago", "down"),
        ("2 minutes ago", "unknown"),
        ("10 seconds", "unknown"),
        ("1970-01-01", "unknown"),
    ] {
        let run = host.run_with("quorum --members a,b,c --exit-zero", &(dated("a", "now") + &dated("b", date)));
        assert_eq!(about(&run.records(), "c")["status"], status, "{date}: {run:#?}");
    }
    let foreign = "{\"host\":\"b\",\"subject\":\"c\",\"status\":\"down\",\"received_ms\":1,\"boot_id\":\"x\"}\n";
    let run = host.run_with("quorum --members a,b,c --exit-zero", &(report("a", "c", "down") + foreign));
    assert_eq!(about(&run.records(), "c")["votes"]["silent"], serde_json::json!(["b"]), "{run:#?}");
}

#[test]
fn what_is_malformed_is_told_and_a_usage_fault_is_one() {
    let lab = Lab::new();
    let host = lab.host("a", &[]);
    let run = host
        .run_with("quorum --members a", "nonsense\n{\"subject\":\"a\",\"status\":\"well\"}\n{\"kind\":\"x\"}\n")
        .ended(6);
    assert_eq!(run.stderr.lines().count(), 2, "{run:?}");
    for flags in ["", "--members a,a", "--members a/b", "--members a --window 0s", "--members a --tie-breaker ping"] {
        host.run_with(&format!("quorum {flags}"), "{}\n").ended(2);
    }
}

#[test]
fn two_members_wait_for_all_and_remember_it_for_this_boot_only() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let state = host.folder.join("quorum.json");
    let line = format!("quorum --members n1,n2 --tie-breaker fence --state {}", state.display());
    let boot = host.run_with(&line, "{}\n").ended(75);
    assert_eq!(about(&boot.records(), "n2")["waiting_for"], serde_json::json!(["n2"]));
    host.run_with(&line, &report("n1", "n2", "up")).ended(0);
    // It was heard: now only a proof is missing.
    let tie = host.run_with(&line, &report("n1", "n2", "down")).ended(75);
    let record = &about(&tie.records(), "n2").clone();
    assert_eq!((&record["may_keep"], &record["status"]), (&true.into(), &"unknown".into()));
    let proof = "{\"kind\":\"fence.off\",\"host\":\"n1\",\"subject\":\"n2\",\"proof\":true}\n";
    let won = host.run_with(&line, &(report("n1", "n2", "down") + proof)).ended(0);
    assert_eq!(about(&won.records(), "n2")["status"], "down");
    // Another host's proof may be of before this one was switched off; a reboot leaves it on; a status keeps
    // nothing.
    for other in [
        proof.replace("\"n1\"", "\"n9\""),
        proof.replace("fence.off", "fence.reboot"),
        proof.replace("fence.off", "fence.status"),
    ] {
        host.run_with(&line, &(report("n1", "n2", "down") + &other)).ended(75);
    }
    // A service is no node, whatever it is called.
    let service = "{\"kind\":\"health.tcp\",\"host\":\"n1\",\"subject\":\"n2\",\"status\":\"up\"}\n";
    host.run_with("quorum --members n1,n2", service).ended(75);
    let ahead = "{\"host\":\"n1\",\"subject\":\"n2\",\"status\":\"up\",\"received_ms\":99999999999}\n";
    host.run_with("quorum --members n1,n2", ahead).ended(75);
    // An input that does not end.
    assert_eq!(host.start_fed("quorum --members n1,n2 --timeout 100ms").ends(4 * SECOND), 75);
    // Without the tie-breaker half is no majority, waited for or not.
    host.run_with("quorum --members n1,n2 --wait-for-all no", &report("n1", "n2", "down")).ended(1);
    let kept = fs::read_to_string(&state).unwrap();
    fs::write(&state, kept.replace("\"boot_id\":\"", "\"boot_id\":\"0")).unwrap();
    let later = host.run_with(&line, &report("n1", "n2", "down"));
    assert_eq!(later.code, 75);
    assert!(later.stderr.contains("earlier boot") && about(&later.records(), "n2")["may_keep"] == true, "{later:#?}");
    for broken in [String::new(), kept[..kept.len() / 2].to_owned()] {
        fs::write(&state, &broken).unwrap();
        let refused = host.run_with(&line, "{}\n").ended(6);
        assert!(refused.stderr.contains("quorum.json"), "{refused:?}");
    }
}

#[test]
fn a_veto_takes_the_vote_of_a_side_that_reaches_nothing() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let ping = |status: &str, host: &str| {
        format!(
            "{{\"kind\":\"health.ping\",\"host\":\"{host}\",\"subject\":\"192.0.2.254\",\"status\":\"{status}\"}}\n"
        )
    };
    let line = "quorum --members n1,n2,n3 --veto 192.0.2.254";
    let majority = report("n1", "n2", "up");
    let vetoed = host.run_with(line, &(majority.clone() + &ping("down", "n1"))).ended(1);
    assert_eq!(vetoed.records()[0]["vetoed_by"], "ping");
    host.run_with(line, &(majority.clone() + &ping("up", "n1"))).ended(0);
    for unsure in [String::new(), ping("unknown", "n1"), ping("down", "n2")] {
        let run = host.run_with(line, &(majority.clone() + &unsure)).ended(75);
        assert_eq!(run.records()[0]["waiting_for"], serde_json::json!(["192.0.2.254"]));
    }
    host.run_with(line, &ping("up", "n1")).ended(1);
}

#[test]
fn a_stream_says_what_changes_repeats_with_renewals_and_gives_up_at_its_end() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    let mut stream = host.start_fed("quorum --members n1,n2,n3 --follow --window 1s");
    let has = |quorate: bool| move |record: &Value| record["quorate"] == quorate && record["subject"] == "n1";
    stream.wait_for("no majority yet", 2 * SECOND, has(false));
    stream.feed(&report("n1", "n2", "up"));
    let yes = stream.wait_for("a majority", 2 * SECOND, has(true));
    assert_eq!(yes["valid_for_ms"], 3000.0);
    stream.feed("{\"host\":\"n1\",\"subject\":\"n2\",\"status\":\"up\",\"renewal\":true}\n");
    stream.wait_for("a renewal", 2 * SECOND, |record| record["renewal"] == true && record["quorate"] == true);
    // Nobody says anything any more: the reports grow old.
    let count = |run: &Running| run.so_far().iter().filter(|record| has(false)(record)).count();
    eventually("they count no more", 4 * SECOND, || count(&stream) == 2);
    stream.feed(&report("n1", "n3", "up"));
    eventually("again", 2 * SECOND, || stream.so_far().last().is_some_and(|record| record["quorate"] == true));
    drop(stream.child.stdin.take());
    assert_eq!(stream.ends(5 * SECOND), 0, "the last conclusion's");
    assert_eq!(stream.so_far().last().unwrap()["quorate"], false, "nobody counts here any more");
}

struct Pair {
    _lab: Lab,
    n1: Host,
    n2: Host,
    key: PathBuf,
}

fn pair() -> Pair {
    let lab = Lab::new();
    let (n1, n2) = (lab.host("n1", &["192.0.2.1/24"]), lab.host("n2", &["192.0.2.2/24"]));
    let key = n1.folder.join("key");
    fs::write(&key, "ab".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    Pair { _lab: lab, n1, n2, key }
}

/// A shell pipeline of our commands on a host, with its output in a file.
fn pipeline(host: &Host, line: &str) -> Running {
    let folder = support::binary("quorum").parent().unwrap().display().to_string();
    let environment = format!(
        "export PATH={folder}:$PATH FAILOVER_NODE={} FAILOVER_STATE_DIR={d}/state FAILOVER_LIB_DIR={d}/lib; ",
        host.name,
        d = host.folder.display()
    );
    host.start_shell(&(environment + line))
}

/// `heartbeat recv | quorum --pass | bucket plan --pass | fence records | bucket apply`, with real beats, a
/// real rule set, and an agent whose word is the truth.
#[test]
fn a_take_over_waits_for_the_proof_and_nothing_moves_without() {
    let Pair { _lab, n1, n2, key } = pair();
    n1.run("bucket init 192.0.2.9 --dev eth0 --total 6 --lease 2s").ended(0);
    let (plug, agent) = (n1.folder.join("plug"), n1.folder.join("agent"));
    let script = format!(
        "#!/bin/sh\nwhile IFS='=' read -r key value; do [ $key != action ] || action=$value; done\n\
         [ $action = off ] && [ -e {plug} ] && exit 0\n[ $action = status ] && [ -e {plug}.off ] && exit 2\nexit 0\n",
        plug = plug.display()
    );
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&plug, "stuck").unwrap();
    let own = n1.folder.join("state/own");
    let beats = |host: &Host, to: &str| {
        host.start(&format!("heartbeat send --key {} --interval 50ms --to {to}", key.display()))
    };
    let _own_beats = beats(&n1, "192.0.2.2");
    let other = n2.start(&format!("heartbeat recv --key {} --bind 192.0.2.2 --follow", key.display()));
    let mut n2_beats = beats(&n2, "192.0.2.1");
    let pipe = pipeline(
        &n1,
        &format!(
            "heartbeat recv --key {} --bind 192.0.2.1 --expect n2 --dead-after 300ms --renew 100ms --follow | \
             quorum --members n1,n2 --tie-breaker fence --window 300ms --follow --pass | \
             bucket plan 192.0.2.9 --total 6 --home n1=1-3,n2=4-6 --dead-after 300ms --lease 2s --quorum \
             --own {own} --follow --pass | \
             fence records --agent {} --retries 0 | bucket apply 192.0.2.9 --follow --beat {own}",
            key.display(),
            agent.display(),
            own = own.display()
        ),
    );
    let owned = || n1.run("bucket show 192.0.2.9").one()["owned"].as_str().unwrap_or_default().to_owned();
    eventually("both are at home", 10 * SECOND, || owned() == "1-3");
    // n2 falls silent, and its switch is stuck: nothing moves, and what is owned stays.
    n2_beats.child.kill().unwrap();
    n2_beats.child.wait().unwrap();
    std::thread::sleep(4 * SECOND);
    assert_eq!(owned(), "1-3", "{}", pipe.complaints());
    assert!(n1.run("bucket show 192.0.2.9").one()["lease_left_ms"].is_number(), "renewed meanwhile");
    // It is repaired: after the pause it is tried again, and then all is ours.
    fs::write(plug.with_extension("off"), "").unwrap();
    fs::remove_file(&plug).unwrap();
    eventually("taken on the proof", 15 * SECOND, || owned() == "1-6");
    std::thread::sleep(SECOND);
    assert_eq!(owned(), "1-6", "and kept");
    let kept = fs::read_to_string(n1.folder.join("state/fence-n1.json")).unwrap();
    assert!(kept.contains("\"incarnation\":"), "{kept}");
    // Its next life ends the proof and gets its share back.
    let state = n2.folder.join("payload");
    let line = |epoch: u64| {
        format!(
            "{{\"kind\":\"bucket.state\",\"v\":1,\"host\":\"n2\",\"subject\":\"192.0.2.9\",\"own\":\"\",\"draining\":\"\",\"epoch\":{epoch}}}\n"
        )
    };
    fs::write(&state, line(0)).unwrap();
    let _again = beats(&n2, &format!("192.0.2.1 --payload {}", state.display()));
    eventually("the proof has ended", 10 * SECOND, || {
        !fs::read_to_string(n1.folder.join("state/fence-n1.json")).unwrap().contains("\"n2\"")
    });
    let epoch = || {
        let text = fs::read_to_string(&own).unwrap_or_default();
        serde_json::from_str::<Value>(text.trim()).ok().and_then(|state| state["epoch"].as_u64()).unwrap_or_default()
    };
    eventually("released when both follow one map", 10 * SECOND, || {
        fs::write(&state, line(epoch())).unwrap();
        owned() == "1-3"
    });
    other.signal(Signal::SIGTERM);
}
