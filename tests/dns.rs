//! `dns`: verdicts about sites in, the addresses of a name out, and how long a fail-over takes on paper.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use support::{Host, Lab, eventually};

const SITES: &str = "--site paris,192.0.2.1,2001:db8::1,weight=3 --site rome,198.51.100.1,weight=1";

fn says(site: &str, status: &str) -> String {
    format!("{{\"kind\":\"health.tcp\",\"subject\":\"{site}\",\"status\":\"{status}\"}}\n")
}

fn both(paris: &str, rome: &str) -> String {
    says("paris", paris) + &says("rome", rome)
}

fn host(lab: &Lab) -> Host {
    lab.host("n1", &[])
}

fn ask(host: &Host, more: &str, input: &str, code: i32) -> Value {
    host.run_with(&format!("dns answer www.Example.org. {SITES} {more}"), input).ended(code).one()
}

/// known-faults 11, end to end.
#[test]
fn with_all_sites_down_the_answer_is_the_policy_s() {
    let lab = Lab::new();
    let host = host(&lab);
    let well = ask(&host, "", &both("up", "up"), 0);
    assert_eq!((&well["subject"], &well["qtype"], &well["ttl_s"]), (&"www.example.org".into(), &"A".into(), &5.into()));
    assert_eq!(well["answers"], json!(["192.0.2.1", "198.51.100.1"]));
    let dead = both("down", "down");
    assert_eq!(ask(&host, "", &dead, 0)["answers"], json!(["192.0.2.1", "198.51.100.1"]));
    let empty = ask(&host, "--all-down empty", &dead, 0);
    assert_eq!((&empty["answers"], &empty["empty"], &empty["fallback"]), (&json!([]), &true.into(), &"empty".into()));
    let backup = ask(&host, "--all-down backup --backup 203.0.113.9", &dead, 0);
    assert_eq!((&backup["answers"], &backup["empty"]), (&json!(["203.0.113.9"]), &false.into()));
    assert_eq!(ask(&host, "--all-down keep", &dead, 1)["answers"], json!([]));
    // Unmeasured is neither, and each member says what it was taken as, and why.
    let half = ask(&host, "--all-down empty", &says("paris", "down"), 0);
    assert_eq!(half["answers"], json!(["198.51.100.1"]));
    let rome = &half["members"][1];
    assert_eq!(
        (&rome["site"], &rome["counted_as"], &rome["status"]),
        (&"rome".into(), &"unmeasured".into(), &"unknown".into())
    );
    assert!(rome["why"].as_str().unwrap().contains("never measured"), "{rome}");
    // Nothing is known of any: nothing is concluded.
    let nothing = ask(&host, "--all-down empty", "", 75);
    assert_eq!((&nothing["answers"], &nothing["empty"]), (&json!([]), &false.into()));
    assert_eq!(ask(&host, "--type AAAA", &both("up", "up"), 0)["answers"], json!(["2001:db8::1"]));
}

#[test]
fn a_state_carries_what_was_known_and_whose_turn_it_is() {
    let lab = Lab::new();
    let host = host(&lab);
    let state = format!("--state {}", host.folder.join("answer.json").display());
    let up = both("up", "up");
    let one = |input: &str, more: &str| ask(&host, &format!("{state} {more}"), input, 0)["answers"][0].clone();
    let turns: Vec<Value> = (0..4).map(|_| one(&up, "--policy weighted")).collect();
    assert_eq!(turns, ["192.0.2.1", "192.0.2.1", "198.51.100.1", "192.0.2.1"]);
    assert_eq!((one(&up, "--one"), one(&up, "--one")), ("198.51.100.1".into(), "192.0.2.1".into()));
    // A silent site is as it was; with nobody up what was answered last is kept.
    assert_eq!(one(&says("paris", "down"), ""), "198.51.100.1");
    assert_eq!(one(&both("down", "down"), "--all-down keep"), "198.51.100.1");
    fs::write(host.folder.join("answer.json"), "{\"kind\":\"state.dns").unwrap();
    let refused = host.run_with(&format!("dns answer a.b {SITES} {state}"), &up).ended(6);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("answer.json"), "{refused:?}");
}

/// A verdict that has expired since is later than what an earlier run remembered: a check may take longer than the
/// word of the one before holds.
#[test]
fn an_expired_verdict_of_this_run_is_what_was_known_last() {
    let lab = Lab::new();
    let host = host(&lab);
    let state = format!("--policy priority --all-down empty --state {}", host.folder.join("answer.json").display());
    assert_eq!(ask(&host, &state, &both("up", "up"), 0)["answers"], json!(["192.0.2.1"]));
    let mut answer = host.start_fed(&format!("dns answer www.example.org {SITES} {state}"));
    answer.feed("{\"subject\":\"paris\",\"status\":\"down\",\"valid_for_ms\":1}\n");
    eventually("it has been read", Duration::from_secs(5), || {
        // It waits for more, long after the word has lost its force.
        fs::read_to_string(format!("/proc/{}/wchan", answer.pid())).is_ok_and(|wchan| wchan.contains("poll"))
    });
    answer.feed(&says("rome", "down"));
    drop(answer.child.stdin.take());
    assert_eq!(answer.ends(Duration::from_secs(5)), 0);
    assert_eq!(answer.so_far()[0]["empty"], true, "{:?}", answer.so_far());
}

#[test]
fn a_verdict_about_no_site_is_told() {
    let lab = Lab::new();
    let host = host(&lab);
    let lost = host.run_with(&format!("dns answer www.example.org {SITES}"), &says("pari", "up")).ended(75);
    assert!(lost.stderr.contains("about pari, and the sites are paris, rome"), "{lost:?}");
}

#[test]
fn a_site_in_standby_is_left_out_while_another_is_up() {
    let lab = Lab::new();
    let host = host(&lab);
    fs::write(host.folder.join("state/standby.paris"), "new switches\n").unwrap();
    let drained = ask(&host, "", &both("up", "up"), 0);
    assert_eq!(drained["answers"], json!(["198.51.100.1"]));
    assert_eq!(drained["members"][0]["counted_as"], "standby");
    assert_eq!(ask(&host, "", &both("up", "down"), 0)["fallback"], "standby");
}

#[test]
fn a_stream_answers_anew_when_a_verdict_changes_or_expires() {
    let lab = Lab::new();
    let host = host(&lab);
    let limit = Duration::from_secs(5);
    let mut stream =
        host.start_fed(&format!("dns answer www.example.org {SITES} --follow --policy priority --renew 50ms"));
    stream.feed(&both("up", "up"));
    stream.wait_for("paris", limit, |answer| answer["answers"] == json!(["192.0.2.1"]));
    stream.feed("{\"subject\":\"paris\",\"status\":\"up\",\"valid_for_ms\":150}\n");
    stream.wait_for("a renewal", limit, |answer| answer["renewal"] == true);
    // What it was last counts on, so nothing moves; a word of its end moves at once.
    stream.feed(&says("192.0.2.1", "down"));
    stream.wait_for("rome", limit, |answer| answer["answers"] == json!(["198.51.100.1"]));
    fs::write(host.folder.join("state/standby.rome"), "").unwrap();
    eventually("rome drains", limit, || stream.so_far().last().is_some_and(|answer| answer["fallback"] == "standby"));
    stream.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(stream.ends(limit), -15);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let lab = Lab::new();
    let host = host(&lab);
    for (line, code, why) in [
        ("dns answer www..org --site a,192.0.2.1", 2, "is not a name"),
        ("dns answer www.org", 2, "no site is named"),
        ("dns answer www.org --site a,192.0.2.1 --site a,192.0.2.2", 2, "named twice"),
        ("dns answer www.org --site a,192.0.2.1 --type AAAA", 2, "no site has an address"),
        ("dns answer www.org --site a,192.0.2.1 --all-down backup", 2, "--backup"),
        ("dns answer www.org --site a,192.0.2.1 --all-down backup --backup ::1", 2, "no address of the type A"),
        ("dns answer www.org --site a,192.0.2.1 --order b --policy nearest", 2, "names b"),
        ("dns answer www.org --site a,192.0.2.1 --threshold 1.5", 2, "share from 0 to 1"),
        ("dns answer www.org --sites /nonexistent", 6, "no such file"),
    ] {
        let refused = host.run(line).ended(code);
        assert!(refused.stderr.contains(why) && refused.stdout.is_empty(), "{refused:?}");
    }
    let torn = host.run_with(&format!("dns answer www.org {SITES}"), "{\"subject\":\n").ended(6);
    assert!(torn.stderr.contains("line 1"), "{torn:?}");
}

/// The seed's figures on paper: 12 to 17 s of detection, a TTL of 5 s, and a negative answer that outlives both.
#[test]
fn a_budget_is_the_sum_of_its_phases() {
    let lab = Lab::new();
    let host = host(&lab);
    let plain = host.run("dns budget www.example.org --ttl 5 --clients 1000").ended(0).one();
    assert_eq!(
        (&plain["min_ms"], &plain["max_ms"], &plain["queries_per_s"]),
        (&12_000.0.into(), &23_000.0.into(), &200.0.into())
    );
    let empty = host.run("dns budget www.example.org --ttl 5 --empty --negative-ttl 3600").ended(0).one();
    let back = empty["phases"].as_array().unwrap().iter().find(|phase| phase["phase"] == "return").unwrap();
    assert_eq!((&back["max_ms"], &empty["negative_ttl_s"]), (&3_631_000.0.into(), &3600.into()));
    let java = host.run("dns budget www.example.org --runtime java-forever").ended(0).one();
    assert_eq!(java["max_ms"], Value::Null);
    let table = host.run("dns budget www.example.org --table").ended(0).stdout;
    assert_eq!(table.lines().count(), 7, "{table}");
    let refused = host.run("dns budget www.example.org --runtime jvav").ended(2);
    assert!(refused.stderr.contains("java-forever"), "{refused:?}");
}
