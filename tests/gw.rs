//! `gw`: plans from verdicts, and foreign configurations.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use support::{Host, Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn says(gateway: &str, status: &str) -> String {
    format!("{{\"kind\":\"health.ping\",\"subject\":\"{gateway}\",\"status\":\"{status}\"}}\n")
}

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/gw").join(name)
}

/// Each gateway's slots.
fn slots(plan: &Value) -> Vec<Value> {
    plan["gateways"].as_array().unwrap().iter().map(|gateway| gateway["slots"].clone()).collect()
}

fn shares(plan: &Value) -> Vec<f64> {
    plan["gateways"].as_array().unwrap().iter().map(|gateway| gateway["share"].as_f64().unwrap()).collect()
}

fn host(lab: &Lab) -> Host {
    lab.host("n1", &[])
}

/// A person knows a gateway by its name.
#[test]
fn a_standby_file_may_have_the_name() {
    let lab = Lab::new();
    let host = host(&lab);
    let up = says("192.0.2.1", "up") + &says("192.0.2.2", "up");
    let line = "gw split --gateway 192.0.2.1,name=dsl --gateway 192.0.2.2,name=cable";
    fs::write(host.folder.join("state/standby.cable"), "new modem\n").unwrap();
    assert_eq!(shares(&host.run_with(line, &up).ended(0).one()), [1.0, 0.0]);
    fs::rename(host.folder.join("state/standby.cable"), host.folder.join("state/standby.192.0.2.1")).unwrap();
    assert_eq!(shares(&host.run_with(line, &up).ended(0).one()), [0.0, 1.0]);
}

/// The samples, unmodified, through to a plan: known-faults 7.
#[test]
fn an_env_conf_becomes_gateways_and_a_plan() {
    let lab = Lab::new();
    let host = host(&lab);
    let imported = host.run(&format!("gw import {}", sample("env-four.conf").display())).ended(0);
    let first = &imported.records()[0];
    assert_eq!(
        (&first["subject"], &first["weight"], &first["dev"]),
        (&"192.0.2.1".into(), &0.12.into(), &"bond0.10".into())
    );
    assert_eq!((&first["method"], &first["expect"]), (&"wan-ip".into(), &"203.0.113.1".into()));
    let file = host.folder.join("gateways");
    fs::write(&file, &imported.stdout).unwrap();
    let up: String = (1..=4).map(|n| says(&format!("192.0.2.{n}"), "up")).collect();
    let plan = host.run_with(&format!("gw split --gateways {}", file.display()), &up).ended(0).one();
    assert_eq!(shares(&plan), [0.12, 0.12, 0.12, 0.64]);
    assert_eq!(slots(&plan), [json!([0, 1199]), json!([1200, 2399]), json!([2400, 3599]), json!([3600, 9999])]);
    for (name, line, why) in
        [("env-crlf.conf", "line 1", "carriage return"), ("env-odd.conf", "line 9", "gw4 is missing")]
    {
        let refused = host.run(&format!("gw import {}", sample(name).display())).ended(6);
        assert!(
            refused.stderr.contains(line) && refused.stderr.contains(why) && refused.stdout.is_empty(),
            "{refused:?}"
        );
    }
    host.run("gw import /nonexistent").ended(6);
}

#[test]
fn a_dead_gateway_s_share_goes_to_the_nearest_and_comes_back() {
    let lab = Lab::new();
    let host = host(&lab);
    let state = host.folder.join("split.json");
    let line = format!(
        "gw split --gateway 192.0.2.1,weight=0.5,name=dsl --gateway 192.0.2.2,weight=0.25 --gateway fe80::1%eth0,weight=0.25 --state {}",
        state.display()
    );
    let all = |one: &str, two: &str, three: &str| {
        says("192.0.2.1", one) + &says("192.0.2.2", two) + &says("fe80::1%eth0", three)
    };
    let well = host.run_with(&line, &all("up", "up", "up")).ended(0).one();
    assert_eq!(shares(&well), [0.5, 0.25, 0.25]);
    assert_eq!((&well["gateways"][0]["mark"], &well["gateways"][2]["table"]), (&"0x00010000".into(), &7003.into()));
    let dead = host.run_with(&line, &all("up", "down", "up")).ended(0).one();
    assert_eq!(slots(&dead), [json!([0, 7499]), Value::Null, json!([7500, 9999])]);
    assert_eq!(dead["moved"], json!([{"from": "192.0.2.2", "to": "192.0.2.1", "slots": 2500}]));
    // Unknown is as it was.
    let held = host.run_with(&line, &all("unknown", "unknown", "up")).ended(0).one();
    assert_eq!(slots(&held), slots(&dead));
    assert_eq!(held["gateways"][1]["status"], "unknown");
    let back = host.run_with(&line, &all("up", "up", "up")).ended(0).one();
    assert_eq!((slots(&back), &back["moved"]), (slots(&well), &json!([])));
    // Who cannot even be asked forwards nothing; whatever else is the matter is unknown.
    let error = |reason: &str| {
        says("192.0.2.2", "unknown")
            .replace('}', &format!(",\"error\":{{\"code\":5,\"reason\":\"{reason}\",\"message\":\"\"}}}}"))
    };
    let rest = says("192.0.2.1", "up") + &says("192.0.2.3", "up");
    for (reason, status, same) in [("refused", "unknown", &back), ("no-such-interface", "down", &dead)] {
        let told = host.run_with(&line, &(rest.clone() + &error(reason))).ended(0).one();
        assert_eq!((slots(&told), &told["gateways"][1]["status"]), (slots(same), &status.into()), "{reason}");
    }
    // All are dead: nobody has anything. Nobody is known: that is no answer.
    let none = host.run_with(&line, &all("down", "down", "down")).ended(1).one();
    assert_eq!(slots(&none), [Value::Null, Value::Null, Value::Null]);
    host.run_with("gw split --gateway 192.0.2.1 --gateway 192.0.2.2", &says("192.0.2.1", "unknown")).ended(75);
    host.run_with("gw split --gateway 192.0.2.1", "").ended(75);
    // One that leaves takes its number along, and the others keep theirs.
    let line = line.replace("--gateway 192.0.2.1,weight=0.5,name=dsl ", "");
    let fewer = host.run_with(&line, &all("up", "up", "up")).ended(0).one();
    assert_eq!((&fewer["gateways"][0]["mark"], &fewer["gateways"][1]["table"]), (&"0x00020000".into(), &7003.into()));
}

/// A gateway in standby gets no new flows; one word of its file is the reason.
#[test]
fn a_stream_follows_verdicts_standby_and_expiry() {
    let lab = Lab::new();
    let host = host(&lab);
    let mut run = host.start_fed("gw split --gateway 192.0.2.1 --gateway 192.0.2.2 --follow --renew 100ms");
    run.feed(&(says("192.0.2.1", "up") + &says("192.0.2.2", "up")));
    let now = |run: &support::Running| run.so_far().last().map(shares).unwrap_or_default();
    eventually("both", 5 * SECOND, || now(&run) == [0.5, 0.5]);
    fs::write(host.folder.join("state/standby.192.0.2.2"), "new line").unwrap();
    eventually("it rests", 5 * SECOND, || now(&run) == [1.0, 0.0]);
    assert_eq!(run.so_far().last().unwrap()["gateways"][1]["status"], "standby");
    fs::remove_file(host.folder.join("state/standby.192.0.2.2")).unwrap();
    eventually("it is back", 5 * SECOND, || now(&run) == [0.5, 0.5]);
    run.feed("{\"subject\":\"192.0.2.1\",\"status\":\"down\",\"valid_for_ms\":300}\n");
    eventually("it is dead", 5 * SECOND, || now(&run) == [0.0, 1.0]);
    let status = |run: &support::Running| run.so_far().last().unwrap()["gateways"][0]["status"].clone();
    eventually("the verdict expires", 5 * SECOND, || status(&run) == "unknown");
    assert_eq!(now(&run), [0.0, 1.0], "unknown is as it was");
    drop(run.child.stdin.take());
    assert_eq!(run.ends(5 * SECOND), 0);
}

/// Without a list the probes' records describe the gateways, in their order.
#[test]
fn records_of_probes_bring_their_gateways_along() {
    let lab = Lab::new();
    let host = host(&lab);
    let probe = |gateway: &str, weight: &str, status: &str| {
        format!(
            "{{\"kind\":\"gw.probe\",\"subject\":\"{gateway}\",\"status\":\"{status}\",\"weight\":{weight},\"targets\":[{{\"target\":\"x\"}}]}}\n"
        )
    };
    let input = probe("192.0.2.9", "3", "up") + &probe("192.0.2.1", "1", "up") + &says("192.0.2.77", "up");
    let plan = host.run_with("gw split", &input).ended(0).one();
    assert_eq!((&plan["gateways"][0]["gateway"], shares(&plan)), (&"192.0.2.9".into(), vec![0.75, 0.25]));
    let to = host
        .run_with("gw split --redistribute proportional", &(input.clone() + &probe("192.0.2.5", "4", "down")))
        .ended(0)
        .one();
    assert_eq!(shares(&to), [0.75, 0.25, 0.0]);
    for (flags, code) in [
        ("--gateway 192.0.2.1 --gateway 192.0.2.1", 2),
        ("--gateway 192.0.2.1,weight=x", 2),
        ("--gateway 192.0.2.1 --mark-mask 0x7", 2),
        ("--gateways /nonexistent", 6),
        ("--renew 0s", 2),
    ] {
        host.run_with(&format!("gw split {flags}"), "{}\n").ended(code);
    }
}
