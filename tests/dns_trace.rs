//! `dns trace`: a fail-over at real name servers, and when each vantage point had the new answer.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::time::Duration;
use support::dns::{ZONE, key, primary, unbound};
use support::{Host, Lab, Running, eventually};

const LIMIT: Duration = Duration::from_secs(30);
const OLD: &str = "192.0.2.81";
const NEW: &str = "192.0.2.82";

/// An authority at 192.0.2.53 with `app` at the old site, for 2 s, and a client.
struct Scene {
    _lab: Lab,
    ns: Host,
    resolver: Host,
    client: Host,
    key: String,
    _servers: Vec<Running>,
}

impl Scene {
    fn new() -> Scene {
        let lab = Lab::new();
        let ns = lab.host("ns", &["192.0.2.53/24"]);
        let resolver = lab.host("resolver", &["192.0.2.54/24"]);
        let client = lab.host("client", &["192.0.2.1/24", "2001:db8::1/64"]);
        let key = key(&ns, "failover");
        let servers = vec![
            primary(&ns, "192.0.2.53", None, &key, &format!("app 2 A {OLD}\napp 2 TXT x")),
            unbound(&resolver, "192.0.2.54", "192.0.2.53", "allow_snoop", ""),
        ];
        Scene { _lab: lab, ns, resolver, client, key, _servers: servers }
    }

    fn update(&self, lines: &str) {
        self.ns.sh(&format!("printf 'server 192.0.2.53\\nzone {ZONE}\\n{lines}\\nsend\\n' | nsupdate -k {}", self.key));
    }

    fn fail_over(&self) {
        self.update(&format!("del app.{ZONE} A\\nadd app.{ZONE} 2 A {NEW}"));
    }

    fn trace(&self, more: &str) -> Running {
        self.client.start(&format!("dns trace app.{ZONE} --until {NEW} {more}"))
    }
}

/// The last record of each vantage.
fn last(records: &[Value], phase: &str) -> Value {
    let of_phase = |record: &&Value| record["phase"] == phase;
    records.iter().rfind(of_phase).unwrap_or_else(|| panic!("no {phase} in {records:#?}")).clone()
}

#[test]
fn each_vantage_turns_at_its_own_time() {
    let scene = Scene::new();
    let svg = scene.client.folder.join("trace.svg");
    let mut trace = scene.trace(&format!(
        "--authority 192.0.2.53 --resolver 192.0.2.54 --every 20ms --timeout 30s --svg {}",
        svg.display()
    ));
    // The resolver has the old answer in its cache.
    eventually("the resolver has it", LIMIT, || {
        scene.resolver.sh(&format!("dig +short +norecurse @192.0.2.54 app.{ZONE}")).contains(OLD)
    });
    scene.fail_over();
    assert_eq!(trace.ends(LIMIT), 0, "{}", trace.complaints());
    let records = trace.so_far();
    let (authority, resolver) = (last(&records, "authority"), last(&records, "resolver"));
    assert_eq!(authority["vantage"], "192.0.2.53");
    let time = |record: &Value, key: &str| record[key].as_str().unwrap().to_owned();
    for one in [&authority, &resolver] {
        assert!(time(one, "last_old") < time(one, "first_new"), "{one}");
        assert!(one["samples"].as_u64().unwrap() > 3, "{one}");
    }
    assert!(time(&authority, "first_new") < time(&resolver, "first_new"), "{records:#?}");
    // One that turned is told at once, and all of them at the end.
    let turns = records.iter().filter(|record| record["renewal"] != true).count();
    assert_eq!((turns, records.len()), (2, 4), "{records:#?}");
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("resolver 192.0.2.54") && drawn.trim_end().ends_with("</svg>"));
    scene.client.sh(&format!("python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' {}", svg.display()));
}

/// The system by its own library, a program that keeps an answer longer, and one that asks once.
#[test]
fn the_system_and_programs_are_seen_from_within() {
    let scene = Scene::new();
    let conf = scene.client.folder.join("resolv.conf");
    fs::write(&conf, "nameserver 192.0.2.54\noptions timeout:1 attempts:1\n").unwrap();
    let binary = support::binary("dns");
    let out = scene.client.folder.join("trace.jsonl");
    let mut trace = scene.client.start_shell(&format!(
        "exec unshare -m sh -c 'mount --bind {} /etc/resolv.conf && exec {} trace app.{ZONE} --until {NEW} --os \
         --application 4s,forever --authority 192.0.2.53 --timeout 30s >{}'",
        conf.display(),
        binary.display(),
        out.display()
    ));
    let read = || fs::read_to_string(&out).unwrap_or_default();
    // Once the programs have the old answer.
    eventually("the resolver has it", LIMIT, || {
        scene.resolver.sh(&format!("dig +short +norecurse @192.0.2.54 app.{ZONE}")).contains(OLD)
    });
    scene.fail_over();
    assert_eq!(trace.ends(LIMIT), 0, "{} {}", trace.complaints(), read());
    let records: Vec<Value> = read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let os = last(&records, "os");
    let programs: Vec<&Value> =
        records.iter().filter(|it| it["phase"] == "application" && it["renewal"] == true).collect();
    let elapsed = |record: &Value| record["elapsed_ms"].as_f64().unwrap();
    assert_eq!(programs[0]["vantage"], "keeps 4s");
    assert!(elapsed(&os) < elapsed(programs[0]), "{records:#?}");
    assert!(programs[1]["first_new"].is_null(), "what is kept for ever does not turn: {records:#?}");
}

#[test]
fn the_fault_is_what_times_count_from() {
    let scene = Scene::new();
    scene.ns.sh(&format!("ip addr add {OLD}/24 dev eth0; ip addr add {NEW}/24 dev eth0"));
    let _site = scene.ns.start_shell(&format!("exec socat TCP-LISTEN:80,bind={OLD},fork,reuseaddr EXEC:cat"));
    eventually("the site serves", LIMIT, || scene.ns.sh("ss -Hlnt").contains(":80"));
    let mut trace = scene.client.start_fed(&format!(
        "dns trace app.{ZONE} --until {NEW} --authority 192.0.2.53 --connect 80 --every 20ms \
         --response-timeout 300ms --timeout 30s -"
    ));
    eventually("a connection is held", LIMIT, || scene.ns.sh("ss -Hnt state established").contains(":80"));
    // Of another host, whose clock counts nothing here.
    let says = |status: &str| {
        format!(
            "{{\"kind\":\"health.tcp\",\"host\":\"n9\",\"subject\":\"paris\",\"status\":\"{status}\",\"received_ms\":1}}\n"
        )
    };
    trace.feed(&says("up"));
    scene.ns.sh("nft 'add table ip off; add chain ip off in { type filter hook input priority 0; }; \
                 add rule ip off in tcp dport 80 drop'");
    // Three attempts must have failed, and the kernel's three questions on the held one.
    eventually("the old site is given up", LIMIT, || !scene.client.sh("ss -Hnt state established").contains(":80"));
    trace.feed(&says("down"));
    trace.wait_for("detection", LIMIT, |record| record["phase"] == "detection");
    scene.fail_over();
    assert_eq!(trace.ends(LIMIT), 0, "{}", trace.complaints());
    let records = trace.so_far();
    let elapsed = |phase: &str| last(&records, phase)["elapsed_ms"].as_f64().unwrap();
    let (detection, authority, connection) = (elapsed("detection"), elapsed("authority"), elapsed("connection"));
    assert!(connection <= detection && detection <= authority, "{records:#?}");
    // Not from the start of the trace, but from a look at which nothing was let in any more.
    assert!(last(&records, "authority")["since"] != last(&records, "authority")["last_old"]);
    assert!(last(&records, "connection")["first_new"].is_string(), "{records:#?}");
}

#[test]
fn what_is_not_seen_everywhere_is_undecided_and_named() {
    let scene = Scene::new();
    let mut trace = scene.trace("--authority 192.0.2.53,192.0.2.99 --timeout 1s");
    assert_eq!(trace.ends(LIMIT), 75);
    assert!(trace.complaints().contains("authority 192.0.2.53, authority 192.0.2.99"), "{}", trace.complaints());
    let silent = last(&trace.so_far(), "authority");
    assert!(silent["last_old"].is_null() && silent["first_new"].is_null(), "{silent}");
    // A signal ends it as that signal, with what was seen so far.
    let mut trace = scene.trace("--authority 192.0.2.53");
    eventually("it looks", LIMIT, || trace.pid().as_raw() > 0 && scene.client.sh("ss -Hnu").contains("192.0.2.53"));
    trace.signal(Signal::SIGTERM);
    assert_eq!(trace.ends(LIMIT), -15);
    assert_eq!(trace.so_far().len(), 1);
    // Without an address is an answer that can be awaited too, and NODATA is one as NXDOMAIN is.
    let mut trace =
        scene.client.start(&format!("dns trace app.{ZONE} --until none --authority 192.0.2.53 --timeout 30s"));
    eventually("it looks", LIMIT, || scene.client.sh("ss -Hnu").contains("192.0.2.53"));
    scene.update(&format!("del app.{ZONE} A"));
    assert_eq!(trace.ends(LIMIT), 0, "{}", trace.complaints());
}

/// An alias that leads elsewhere, and a system that cannot ask, say nothing of addresses.
#[test]
fn what_says_nothing_is_no_new_answer() {
    let scene = Scene::new();
    scene.update(&format!("add other.{ZONE} 5 CNAME www.other.test"));
    let mut elsewhere =
        scene.client.start(&format!("dns trace other.{ZONE} --until none --authority 192.0.2.53 --timeout 500ms"));
    assert_eq!(elsewhere.ends(LIMIT), 75);
    // Nobody listens at the client's own address.
    let conf = scene.client.folder.join("resolv.conf");
    fs::write(&conf, "nameserver 192.0.2.1\noptions timeout:1 attempts:1\n").unwrap();
    let mut system = scene.client.start_shell(&format!(
        "exec unshare -m sh -c 'mount --bind {} /etc/resolv.conf && exec {} trace app.{ZONE} --until none --os --timeout 1s'",
        conf.display(),
        support::binary("dns").display(),
    ));
    assert_eq!(system.ends(LIMIT), 75, "{}", system.text());
    let os = last(&system.so_far(), "os");
    assert!(os["last_old"].is_null() && os["first_new"].is_null() && os["samples"].as_u64().unwrap() > 0, "{os}");
}

#[test]
fn a_picture_is_written_to_files_alone() {
    let scene = Scene::new();
    let folder = &scene.client.folder;
    let line = "--authority 192.0.2.53 --timeout 300ms --svg";
    for (path, why) in [("/dev/null", "no regular file"), ("/nonexistent/a.svg", "No such file")] {
        let mut trace = scene.trace(&format!("{line} {path}"));
        assert!(trace.ends(LIMIT) != 75 && trace.complaints().contains(why), "{path}: {}", trace.complaints());
        assert!(trace.so_far().is_empty(), "before anything is asked");
    }
    std::os::unix::fs::symlink(folder.join("real.svg"), folder.join("link.svg")).unwrap();
    fs::write(folder.join("real.svg"), "").unwrap();
    let mut trace = scene.trace(&format!("{line} {}", folder.join("link.svg").display()));
    assert_eq!(trace.ends(LIMIT), 75);
    assert!(fs::symlink_metadata(folder.join("link.svg")).unwrap().is_symlink());
    assert!(fs::read_to_string(folder.join("real.svg")).unwrap().contains("</svg>"));
}

#[test]
fn what_cannot_be_traced_is_refused() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    for (line, why) in [
        ("dns trace a.b --until 192.0.2.1", "nothing is watched"),
        ("dns trace a.b --authority 192.0.2.1", "--until"),
        ("dns trace a.b --until x --os", "not an address"),
        ("dns trace a.b --until ::1 --os", "no address of the type A"),
        ("dns trace a..b --until 192.0.2.1 --os", "is not a name"),
        ("dns trace a.b --until 192.0.2.1 --os --every 0s", "1ms or more"),
        ("dns trace a.b --until 192.0.2.1 --application soon", "not a duration"),
        ("dns trace a.b --until 192.0.2.1 --os --fault-at 2126-01-01T00:00:00Z", "has not come yet"),
        ("dns trace a.b --until 192.0.2.1 --os --fault-at 1971-01-01T00:00:00Z", "before the boot"),
        ("dns trace a.b c --until 192.0.2.1 --os", "invalid value"),
    ] {
        let refused = host.run(line).ended(2);
        assert!(refused.stderr.contains(why) && refused.stdout.is_empty(), "{refused:?}");
    }
}
