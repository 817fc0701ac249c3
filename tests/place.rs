//! `place`: node records in, a node for each service out, with the reason; once, from run to run, and as a stream.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Host, Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);
const FIVE: &str = "--service a --service b --service c --service d --service e";

fn node(name: &str, status: &str) -> String {
    format!(
        "{{\"subject\":\"{name}\",\"status\":\"{status}\",\"total\":{{\"cpu\":8,\"memory_bytes\":1073741824,\"bandwidth_bps\":1000000000}},\
         \"used\":{{\"cpu\":1,\"memory_bytes\":1048576}},\"labels\":{{\"zone\":\"a\",\"gen\":2}}}}\n"
    )
}

fn nodes(names: &[&str]) -> String {
    names.iter().map(|name| node(name, "up")).collect()
}

/// The node of each service, `-` for none.
fn told(records: &[Value]) -> Vec<String> {
    records.iter().map(|record| record["node"].as_str().unwrap_or("-").to_owned()).collect()
}

fn alone() -> (Lab, Host) {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    (lab, host)
}

/// known-faults 14, from the command line.
#[test]
fn every_job_does_not_go_to_the_first_node() {
    let (_lab, host) = alone();
    for policy in ["least-services", "round-robin"] {
        for order in [["n1", "n2", "n3"], ["n3", "n2", "n1"], ["n2", "n3", "n1"]] {
            let run = host.run_with(&format!("place {FIVE} --policy {policy}"), &nodes(&order)).ended(0);
            assert_eq!(told(&run.records()), ["n1", "n2", "n3", "n1", "n2"], "{policy} {order:?}");
        }
    }
    let line = format!("place {FIVE} --policy weighted --need cpu=3 --random-seed 7");
    let first = host.run_with(&line, &nodes(&["n1", "n2", "n3"])).ended(0);
    assert_eq!(first.records()[0]["random_seed"], 7);
    let again = host.run_with(&line, &nodes(&["n3", "n1", "n2"])).ended(0);
    assert_eq!(told(&first.records()), told(&again.records()), "by the seed alone");
    // Each with room for two at the most.
    assert!(
        ["n1", "n2", "n3"].iter().all(|name| told(&first.records()).iter().filter(|node| node == name).count() <= 2)
    );

    let no = host.run_with("place --service web --need cpu=8 --require zone=a gen>=3", &nodes(&["n1", "n2"])).ended(1);
    let record = no.one();
    assert_eq!(record["rejected"], json!({"gen>=3": 2}));
    assert_eq!(
        record["candidates"][0],
        json!({"node": "n1", "fits": false, "failed": ["gen>=3: it is 2", "cpu: 1 in use and 8 needed, of 8"], "terms": {}})
    );
    for unsure in
        [String::new(), "{}\n".to_owned(), node("n1", "unknown"), nodes(&["n1"]).replace("\"status\":\"up\",", "")]
    {
        host.run_with("place --service web", &unsure).ended(75);
    }
    host.run_with("place --service web --exit-zero", &node("n1", "unknown")).ended(0);
    let passed = host.run_with("place --service web --pass", &nodes(&["n1"])).ended(0);
    assert!(passed.stdout.starts_with(&nodes(&["n1"])), "each line first, as it was");
}

/// known-faults 14: one node is removed between two calls.
#[test]
fn a_removed_node_costs_no_turn() {
    let (_lab, host) = alone();
    let state = host.folder.join("place.json");
    let line = |services: &str| format!("place {services} --policy round-robin --state {}", state.display());
    host.run_with(&line(FIVE), &nodes(&["n1", "n2", "n3"])).ended(0);
    let more = host.run_with(&line("--service f --service g --service h"), &nodes(&["n1", "n3"])).ended(0);
    assert_eq!(told(&more.records()), ["n3", "n1", "n3"]);
    // What was on the removed node stays there: nobody says that it is down.
    let held = host.run_with(&line(FIVE), &nodes(&["n1", "n3"])).ended(75);
    assert_eq!(told(&held.records()), ["n1", "n2", "n3", "n1", "n2"]);
    assert_eq!(held.records()[1]["held"], true);
}

#[test]
fn off_a_dead_node_with_a_proof_and_by_records_alone() {
    let (_lab, host) = alone();
    let input = |status: &str| node("n1", status) + &nodes(&["n2", "n3"]);
    let first = host.run_with("place --service web", &input("up")).ended(0);
    // Its own record is the memory.
    let moved = host.run_with("place --service web", &(first.stdout.clone() + &input("down"))).ended(75);
    let record = moved.one();
    assert_eq!((&record["node"], &record["moved_from"]), (&json!("n2"), &json!("n1")));
    assert_eq!(record["needs_fence"], json!(["n1"]));
    let unknown = host.run_with("place --service web", &(first.stdout.clone() + &input("unknown"))).ended(75);
    assert_eq!((&unknown.one()["node"], &unknown.one()["held"]), (&json!("n1"), &json!(true)));
    // The record as fence records passes it on: where it is now.
    let proven = moved.stdout.replace("\"policy\"", "\"fence\":{\"node\":\"n1\",\"agent\":\"x\"},\"policy\"");
    let settled = host.run_with("place --service web --sticky", &(proven + &input("down"))).ended(0);
    assert_eq!(settled.one()["node"], "n2");
    // The newest counts, whatever the order.
    let both = first.stdout.clone() + &moved.stdout + &first.stdout + &input("up");
    assert_eq!(
        host.run_with("place --service web --sticky", &both).ended(0).one()["node"],
        "n1",
        "n1 is back, and was never off"
    );
    let proof = "{\"kind\":\"fence.off\",\"host\":\"n1\",\"subject\":\"n1\",\"proof\":true}\n";
    let off = host.run_with("place --service web", &(first.stdout.clone() + &input("down") + proof)).ended(0);
    assert_eq!((&off.one()["node"], off.one().get("needs_fence")), (&json!("n2"), None));
    host.run_with("place --service web --fencing none", &(first.stdout + &input("down"))).ended(0);
}

/// `place | fence records`: passed on as it is, and again once the agent has proven the node off.
#[test]
fn fence_records_takes_records_of_place() {
    use std::os::unix::fs::PermissionsExt;
    let (_lab, host) = alone();
    let (state, agent) = (host.folder.join("place.json"), host.folder.join("agent"));
    let line = format!("place --service web --state {}", state.display());
    host.run_with(&line, &nodes(&["n0", "n1"])).ended(0);
    let needs = host.run_with(&line, &(node("n0", "down") + &nodes(&["n1"]))).ended(75);
    let script = format!(
        "#!/bin/sh\nwhile IFS='=' read -r key value; do [ $key != action ] || action=$value; done\n\
         [ $action = off ] && touch {off}\n[ $action = status ] && [ -e {off} ] && exit 2\nexit 0\n",
        off = host.folder.join("off").display()
    );
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let options = host.folder.join("options");
    fs::write(&options, "").unwrap();
    fs::set_permissions(&options, fs::Permissions::from_mode(0o600)).unwrap();
    let passed = host.run_with(
        &format!("fence records --agent {} --options {} --delay 0s", agent.display(), options.display()),
        &needs.stdout,
    );
    // With a key of its own, which the schema of place has not.
    let lines = passed.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let record =
        lines.into_iter().find(|record| record.get("fence").is_some()).unwrap_or_else(|| panic!("{passed:#?}"));
    assert_eq!((&record["node"], &record["fence"]["node"]), (&json!("n1"), &json!("n0")), "{passed:#?}");
    // The proof that it has left is one for the next run.
    let done = host.run_with(&line, &(node("n0", "down") + &nodes(&["n1"]))).ended(0);
    assert_eq!((&done.one()["node"], &done.one()["moved_from"]), (&json!("n1"), &json!("n0")));
}

#[test]
fn quorum_decides_who_is_up_and_whether_anything_moves() {
    let (_lab, host) = alone();
    let vote = |member: &str, status: &str, quorate: bool| {
        format!(
            "{{\"kind\":\"quorum\",\"host\":\"n1\",\"subject\":\"{member}\",\"status\":\"{status}\",\"quorate\":{quorate}}}\n"
        )
    };
    let all = nodes(&["n1", "n2"]);
    let by_votes = all.clone() + &vote("n1", "down", true) + &vote("n2", "up", true);
    assert_eq!(host.run_with("place --service web", &by_votes).ended(0).one()["node"], "n2");
    let minority = all.clone() + &vote("n1", "up", false) + &vote("n2", "up", false);
    let waits = host.run_with("place --service web", &minority).ended(75);
    assert_eq!((waits.one().get("node"), &waits.one()["why"]), (None, &json!("this side is not quorate")));
    host.run_with("place --service web --quorum", &all).ended(75);
}

#[test]
fn standby_files_of_nodes_and_services_are_honoured() {
    let (_lab, host) = alone();
    let folder = host.folder.join("state");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("standby"), "new kernel\n").unwrap();
    fs::write(folder.join("standby.n2"), "disk\n").unwrap();
    let run = host.run_with("place --service web", &nodes(&["n1", "n2", "n3"])).ended(0);
    let record = run.one();
    assert_eq!((&record["node"], &record["rejected"]), (&json!("n3"), &json!({"standby": 2})));
    assert_eq!(record["candidates"][1]["failed"], json!(["standby: new kernel"]));
    fs::write(folder.join("standby.web"), "by hand").unwrap();
    let left = host.run_with("place --service web", &nodes(&["n3"])).ended(75);
    assert_eq!((&left.one()["standby"], left.one().get("node")), (&json!("by hand"), None));
    let named = host.folder.join("mine");
    fs::write(host.folder.join("mine.n3"), "x").unwrap();
    let line = format!("place --service web --standby {}", named.display());
    assert_eq!(host.run_with(&line, &nodes(&["n1", "n3"])).ended(0).one()["node"], "n1");
}

#[test]
fn services_of_a_file_a_simulation_and_explanations() {
    let (_lab, host) = alone();
    let file = host.folder.join("services");
    fs::write(&file, "web home=n3 cpu=2 # ours\n{\"service\":\"db\",\"cpu\":4}\nodd require=zone=b\n").unwrap();
    let line = format!("place --services {} --service extra,cpu=1", file.display());
    let run = host.run_with(&line, &nodes(&["n1", "n2", "n3"])).ended(1);
    let records = run.records();
    assert_eq!(
        records.iter().map(|record| record["subject"].as_str().unwrap()).collect::<Vec<_>>(),
        ["extra", "web", "db", "odd"]
    );
    assert_eq!(told(&records), ["n1", "n3", "n2", "-"]);
    assert_eq!(records[1]["why"], "its home");
    let many: Vec<String> = (10..30).map(|number| format!("n{number}")).collect();
    let many = nodes(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let best = host.run_with("place --service a --service b", &many).ended(0);
    assert_eq!(best.records()[0]["candidates"].as_array().unwrap().len(), 5);
    for line in ["place --service a --service b --explain", "place --service a"] {
        assert_eq!(host.run_with(line, &many).ended(0).records()[0]["candidates"].as_array().unwrap().len(), 20);
    }
    let simulated = host.run_with("place --service a,cpu=2 --simulate 10", &nodes(&["n1", "n2"])).ended(1);
    let rows: Vec<(Value, Value)> =
        simulated.records().iter().map(|row| (row["node"].clone(), row["services"].clone())).collect();
    assert_eq!(rows, [(json!("n1"), json!(3)), (json!("n2"), json!(3)), (Value::Null, json!(4))]);
    let table = host.run_with("place --service a --simulate 4 --table", &nodes(&["n1", "n2"])).ended(0);
    assert_eq!(table.stdout.lines().count(), 3, "{}", table.stdout);
    let table = host.run_with("place --service a --table", &nodes(&["n1"])).ended(0);
    assert!(table.stdout.contains("it has the fewest services"), "{}", table.stdout);
}

/// known-faults 19 and 20.
#[test]
fn from_cron_with_torn_files_and_readers_that_leave() {
    let (_lab, host) = alone();
    let state = host.folder.join("place.json");
    let line = format!("place {FIVE} --state {}", state.display());
    let shell = host.run_with(&line, &nodes(&["n1", "n2"])).ended(0);
    let kept = fs::read(&state).unwrap();
    fs::remove_file(&state).unwrap();
    let mut cron = Command::new(support::binary("place"));
    cron.args(line.split_whitespace().skip(1)).args(["--node", "n1"]);
    cron.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "de_DE.UTF-8");
    cron.env("FAILOVER_STATE_DIR", host.folder.join("state"));
    let input = host.folder.join("nodes");
    fs::write(&input, nodes(&["n2", "n1"])).unwrap();
    cron.stdin(fs::File::open(&input).unwrap()).stdout(Stdio::piped());
    let cron = support::Run::new("place from cron", cron.output().unwrap()).ended(0);
    assert_eq!(told(&cron.records()), told(&shell.records()));
    // A second run waits for the first, and gives up at its time-out with nothing changed.
    let slow = host.start_fed(&line);
    eventually("the first holds its lock", 5 * SECOND, || {
        host.run_with(&format!("{line} --timeout 50ms"), &nodes(&["n3"])).code == 75
    });
    drop(slow);
    for broken in [Vec::new(), vec![0; 64], kept[..kept.len() / 2].to_vec()] {
        fs::write(&state, &broken).unwrap();
        let refused = host.run_with(&line, &nodes(&["n1"])).ended(6);
        assert!(refused.stderr.contains("place.json") && refused.stdout.is_empty(), "{refused:?}");
        assert_eq!(fs::read(&state).unwrap(), broken, "not overwritten");
    }
    let run = host
        .run_with(
            "place --service a",
            &("nonsense\n".to_owned() + &nodes(&["n1"]) + "{\"subject\":\"n2\",\"used\":7}\n"),
        )
        .ended(6);
    assert_eq!((run.stderr.lines().count(), told(&run.records())), (2, vec!["n1".to_owned()]));
    let services: String = (0..2000).map(|number| format!(" --service s{number}")).collect();
    let many = format!("{} --node n1 {services} <{}", support::binary("place").display(), input.display());
    let (_, said) = host.try_sh(&format!("{many} >/dev/full; echo $?"));
    assert!(said.starts_with("71\n") && said.contains("No space left"), "{said}");
    let (_, said) = host.try_sh(&format!("{{ {many}; echo $? >&2; }} | sed -n 1q >/dev/null"));
    assert_eq!(said.trim(), "0");
    // A pipe whose reader is gone already.
    let mut leaves = host.command("place --service a");
    leaves.stdin(fs::File::open(&input).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = leaves.spawn().unwrap();
    drop(child.stdout.take());
    let left = child.wait_with_output().unwrap();
    assert_eq!((left.status.code(), left.stderr.len()), (Some(0), 0), "{left:?}");
}

#[test]
fn a_wrong_command_line_is_one() {
    let (_lab, host) = alone();
    for flags in [
        "",
        "--service a --service a",
        "--service a,home=x/y",
        "--service a,disk=1",
        "--service a --require zone",
        "--service a --need cpu=x",
        "--service a --home",
        "--service a,home=n1 --home",
        "--service a --threshold 2",
        "--service a --simulate 0",
        "--service a --simulate 1 --follow",
        "--service a --members ../n",
    ] {
        host.run_with(&format!("place {flags}"), &nodes(&["n1"])).ended(2);
    }
    let file = host.folder.join("services");
    fs::write(&file, "a\nb cpu\n").unwrap();
    let refused = host.run_with(&format!("place --services {}", file.display()), "{}\n").ended(6);
    assert!(refused.stderr.contains("line 2"), "{refused:?}");
}

#[test]
fn a_stream_waits_for_its_nodes_says_what_changes_and_comes_home() {
    let (_lab, host) = alone();
    let mut stream = host.start_fed(
        "place --service a,home=n1 --service b --sticky --home=200ms --members n1,n2 --first-within 60s --follow --renew 100ms --fencing none",
    );
    stream.feed(&nodes(&["n1"]));
    assert!(stream.so_far().is_empty());
    stream.feed(&nodes(&["n2"]));
    let is = |service: &'static str, node: &'static str| {
        move |record: &Value| record["subject"] == service && record["node"] == node && record.get("renewal").is_none()
    };
    stream.wait_for("both nodes were heard", 5 * SECOND, is("a", "n1"));
    stream.wait_for("both nodes were heard", 5 * SECOND, is("b", "n2"));
    stream.feed(&nodes(&["n2"]).replace("\"subject\"", "\"renewal\":true,\"subject\""));
    stream.wait_for("a renewal", 5 * SECOND, |record| record["subject"] == "a" && record["renewal"] == true);
    stream.feed(&node("n1", "down"));
    let moved = stream.wait_for("off the dead node", 5 * SECOND, is("a", "n2"));
    assert_eq!((&moved["moved_from"], &moved["cause"]), (&json!("n1"), &json!("down")));
    stream.feed(&node("n1", "up"));
    let count = |stream: &support::Running| stream.so_far().iter().filter(|record| is("a", "n1")(record)).count();
    // Time alone brings it back.
    eventually("it comes home", 10 * SECOND, || count(&stream) == 2);
    drop(stream.child.stdin.take());
    assert_eq!(stream.ends(5 * SECOND), 0);
    // What ends before all were heard is concluded from nevertheless.
    let short = host.run_with("place --service a --follow --first-within 60s", &nodes(&["n2"])).ended(0);
    assert_eq!(told(&short.records()), ["n2"]);
}
