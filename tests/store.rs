//! `store get put delete list watch` on a file and on a real etcd of three members.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::etcd::Etcd;
use support::{Host, Lab, Run, eventually};

const LIMIT: Duration = Duration::from_secs(30);
const NET: &str = "192.0.2";

/// A store of one kind and a host that uses it.
struct Scene {
    host: Host,
    url: String,
    etcd: Option<Etcd>,
    // Last: the hosts' network goes when all else has.
    lab: Lab,
}

impl Scene {
    fn file() -> Scene {
        let lab = Lab::new();
        let host = lab.host("n1", &["192.0.2.1/24"]);
        let url = format!("file:{}", host.folder.join("store").display());
        Scene { host, url, etcd: None, lab }
    }

    fn etcd() -> Scene {
        let lab = Lab::new();
        let host = lab.host("n1", &["192.0.2.1/24"]);
        let etcd = Etcd::start(&lab, NET);
        Scene { host, url: etcd.url(), etcd: Some(etcd), lab }
    }

    /// Both kinds, which must behave alike.
    fn both() -> [Scene; 2] {
        [Scene::file(), Scene::etcd()]
    }

    fn line(&self, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        format!("store {verb} --store {} {rest}", self.url)
    }

    fn run(&self, line: &str, code: i32) -> Run {
        self.host.run(&self.line(line)).ended(code)
    }

    fn one(&self, line: &str, code: i32) -> Value {
        self.run(line, code).one()
    }

    fn value(&self, key: &str) -> Option<String> {
        let run = self.host.run(&self.line(&format!("get {key}")));
        assert!(matches!(run.code, 0 | 1), "{run:?}");
        run.one()["value"].as_str().map(str::to_owned)
    }
}

fn strings(records: &[Value], key: &str) -> Vec<String> {
    records.iter().map(|record| record[key].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn what_was_put_is_there_and_twice_is_once() {
    for scene in Scene::both() {
        assert_eq!(scene.one("get a/b", 1)["value"], Value::Null);
        let put = scene.one("put a/b 1", 0);
        assert_eq!((&put["changed"], &put["value"]), (&json!(true), &json!("1")));
        let again = scene.one("put a/b 1", 0);
        assert_eq!((&again["changed"], &again["revision"]), (&json!(false), &put["revision"]));
        let replicas = if scene.etcd.is_some() { (json!(3), json!(true)) } else { (json!(1), json!(false)) };
        let got = scene.one("get a/b", 0);
        assert_eq!((got["replicas"].clone(), got["durable"].clone()), replicas);
        assert_eq!(got["revision"], put["revision"]);
        assert_eq!(scene.run("get a/b --raw", 0).stdout, "1");
        scene.run("put a/c -5", 0);
        scene.run("put b -- -x", 0);
        assert_eq!(strings(&scene.run("list a/", 0).records(), "subject"), ["a/b", "a/c"]);
        assert_eq!(strings(&scene.run("list", 0).records(), "value"), ["1", "-5", "-x"]);
        // What is not text travels too.
        let bytes: Vec<u8> = (0..=255).collect();
        let mut child =
            scene.host.command(&scene.line("put bin -")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
        assert!(scene.one("get bin", 0)["value_base64"].as_str().unwrap().starts_with("AAEC"));
        assert_eq!(scene.host.command(&scene.line("get bin --raw")).output().unwrap().stdout, bytes);
        let gone = scene.one("delete a/b", 0);
        assert_eq!((&gone["changed"], &gone["value"]), (&json!(true), &json!("1")));
        assert_eq!(scene.one("delete a/b", 0)["changed"], json!(false));
        assert_eq!(scene.run("delete --prefix a/", 0).records().len(), 1);
        assert_eq!(strings(&scene.run("list", 0).records(), "subject"), ["b", "bin"]);
    }
}

#[test]
fn a_condition_that_does_not_hold_changes_nothing() {
    for scene in Scene::both() {
        let first = scene.one("put a 1 --if-absent", 0)["revision"].as_u64().unwrap();
        let lost = scene.one("put a 2 --if-absent", 1);
        assert_eq!((&lost["changed"], &lost["error"]["reason"]), (&json!(false), &json!("conflict")));
        assert_eq!((&lost["value"], lost["revision"].as_u64()), (&json!("1"), Some(first)));
        let second = scene.one(&format!("put a 2 --if-revision {first}"), 0)["revision"].as_u64().unwrap();
        scene.one(&format!("put a 3 --if-revision {first}"), 1);
        scene.one("put b 1 --if-revision 7", 1);
        scene.one("put b 1 --if-revision 0", 0);
        scene.one(&format!("delete a --if-revision {first}"), 1);
        assert_eq!(scene.value("a").as_deref(), Some("2"));
        scene.one(&format!("delete a --if-revision {second}"), 0);
        assert_eq!(scene.value("a"), None);
        // Asked first what it would do, it does nothing.
        let dry = scene.one("put a 5 --dry-run", 0);
        assert_eq!(
            (&dry["changed"], &dry["dry_run"], &dry["actions"][0]["text"]),
            (&json!(true), &json!(true), &json!("put a 5"))
        );
        assert_eq!(scene.run("delete --prefix b --dry-run", 0).one()["changed"], json!(true));
        assert_eq!((scene.value("a"), scene.value("b").as_deref()), (None, Some("1")));
    }
}

/// Eight writers add to one number; every one of their sums is there in the end.
#[test]
fn a_race_loses_no_write() {
    for scene in Scene::both() {
        scene.run("put n 0", 0);
        let won = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let (scene, won) = (&scene, won.clone());
                scope.spawn(move || {
                    let mut done = 0;
                    while done < 10 {
                        let now = scene.one("get n", 0);
                        let next = now["value"].as_str().unwrap().parse::<u32>().unwrap() + 1;
                        let run =
                            scene.host.run(&scene.line(&format!("put n {next} --if-revision {}", now["revision"])));
                        assert!(matches!(run.code, 0 | 1), "{run:?}");
                        if run.code == 0 {
                            done += 1;
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!((scene.value("n").as_deref(), won.load(Ordering::Relaxed)), (Some("80"), 80));
    }
}

#[test]
fn a_lease_ends_and_a_stream_keeps_it() {
    for scene in Scene::both() {
        let put = scene.one("put a 1 --lease 1s", 0);
        assert!(put["lease_ms"].as_f64().unwrap() >= 1000.0);
        let watch = scene.host.start(&scene.line("watch a"));
        watch.wait_for("end of the lease", LIMIT, |record| record["event"] == "deleted");
        let mut stream = scene.host.start_fed(&scene.line("put --key nodes/{host}/{subject} --lease 1s -"));
        let all = scene.host.start(&scene.line("watch nodes/"));
        stream.feed("{\"kind\":\"x\",\"host\":\"n1\",\"subject\":\"n2\",\"received_ms\":1,\"status\":\"up\"}\n{\"host\":\"n1\"}\nwords\n");
        let stored = all.wait_for("record", LIMIT, |record| record["subject"] == "nodes/n1/n2");
        assert_eq!(stored["value"], json!(r#"{"kind":"x","host":"n1","subject":"n2","status":"up"}"#));
        // Longer than the lease: it is renewed.
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(scene.one("get nodes/n1/n2", 0)["revision"], stored["revision"]);
        drop(stream.child.stdin.take());
        assert_eq!(stream.ends(LIMIT), 6, "two lines were malformed");
        assert!(
            stream.complaints().contains("line 2") && stream.complaints().contains("line 3"),
            "{}",
            stream.complaints()
        );
        all.wait_for("end of the lease", LIMIT, |record| record["event"] == "deleted");
    }
}

#[test]
fn a_watch_tells_what_is_there_and_then_each_change() {
    for scene in Scene::both() {
        scene.run("put w/a 1", 0);
        scene.run("put x 1", 0);
        let watch = scene.host.start(&scene.line("watch w/"));
        watch.wait_for("what is there", LIMIT, |record| record["event"] == "present");
        for number in 0..50 {
            scene.run(&format!("put w/{} {number}", number % 3), 0);
        }
        scene.run("delete --prefix w/", 0);
        watch.wait_for("the last one", LIMIT, |record| record["event"] == "deleted" && record["subject"] == "w/a");
        let records = watch.so_far();
        let puts: Vec<u64> = records
            .iter()
            .filter(|record| record["event"] == "put")
            .map(|record| record["value"].as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(puts, (0..50).collect::<Vec<_>>());
        assert_eq!(records.iter().filter(|record| record["event"] == "deleted").count(), 4);
        assert!(records.iter().all(|record| record["subject"] != "x"));
        // Records come out as they went in, with the time of their arrival, and a filter reads them.
        let records = scene.host.start(&scene.line("watch r/ --records"));
        for node in ["n2", "n3"] {
            let line = format!(
                "{{\"kind\":\"heartbeat.recv\",\"v\":1,\"host\":\"{node}\",\"subject\":\"n1\",\"status\":\"down\",\"incarnation\":7}}\n"
            );
            scene.host.run_with(&scene.line("put --key r/{host} -"), &line).ended(0);
        }
        eventually("both records", LIMIT, || records.text().lines().count() == 2);
        assert!(records.text().lines().all(|line| line.contains("\"received_ms\"")), "{}", records.text());
        let verdict = scene.host.run_with("quorum --members n1,n2,n3 --node n2", &records.text());
        assert!(verdict.stdout.contains(r#""subject":"n1","status":"down""#), "{verdict:?}");
    }
}

/// The file and etcd go through the same random changes, and show the same.
#[test]
fn a_file_is_what_etcd_is() {
    let [file, etcd] = Scene::both();
    let mut state = 12_345_u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    for _ in 0..120 {
        let (key, value) = (draw(4), draw(3));
        let line = match draw(6) {
            0 => format!("delete k{key}"),
            1 => format!("put k{key} {value} --if-absent"),
            2 => "delete --prefix k".to_owned(),
            _ => format!("put k{key} {value}"),
        };
        let told = |scene: &Scene| {
            let run = scene.host.run(&scene.line(&line));
            let records: Vec<Value> = run
                .records()
                .iter()
                .map(|record| json!([record["subject"], record["value"], record["changed"], record["error"]["reason"]]))
                .collect();
            (run.code, records)
        };
        assert_eq!(told(&file), told(&etcd), "{line}");
        let all = |scene: &Scene| {
            let records = scene.run("list", 0).records();
            (strings(&records, "subject"), strings(&records, "value"))
        };
        assert_eq!(all(&file), all(&etcd), "{line}");
    }
    // Both begin their revisions elsewhere, and each change is one.
    let etcd_ctl = etcd.etcd.as_ref().unwrap().ctl(&etcd.host, "get k --prefix -w json");
    let kvs: Value = serde_json::from_str(&etcd_ctl).unwrap();
    assert_eq!(kvs["kvs"].as_array().map_or(0, Vec::len), etcd.run("list", 0).records().len());
}

/// One member may be off, cut off, stopped, or come back: reads and writes go on, and a watch loses nothing.
#[test]
fn one_member_of_three_is_not_needed() {
    let mut scene = Scene::etcd();
    let mut etcd = scene.etcd.take().unwrap();
    let watch = scene.host.start(&scene.line("watch w/"));
    scene.run("put w/first 0", 0);
    watch.wait_for("the first", LIMIT, |record| record["subject"] == "w/first");
    let mut next = 1_u32;
    let mut write = |count: u32| {
        for _ in 0..count {
            scene.run(&format!("put w/n {next}"), 0);
            next += 1;
        }
    };
    let settled = |etcd: &Etcd| eventually("a leader", LIMIT, || etcd.leader().is_some());
    for idx in 0..3 {
        etcd.kill(idx);
        settled(&etcd);
        write(3);
        etcd.boot(idx);
        settled(&etcd);
        etcd.cut(&scene.lab, idx, true);
        settled(&etcd);
        write(3);
        etcd.cut(&scene.lab, idx, false);
        write(3);
        etcd.signal(idx, Signal::SIGSTOP);
        settled(&etcd);
        write(3);
        etcd.signal(idx, Signal::SIGCONT);
        write(1);
    }
    let last = (next - 1).to_string();
    watch.wait_for("the last", LIMIT, |record| record["value"] == json!(last));
    let seen: Vec<u64> = watch
        .so_far()
        .iter()
        .filter(|record| record["subject"] == "w/n")
        .map(|record| record["value"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(seen, (1..next).map(u64::from).collect::<Vec<_>>(), "none lost, none twice");
    let revisions: Vec<u64> = watch.so_far().iter().map(|record| record["revision"].as_u64().unwrap()).collect();
    assert!(revisions.is_sorted(), "{revisions:?}");
}

#[test]
fn without_a_majority_it_is_undecided_and_then_goes_on() {
    let mut scene = Scene::etcd();
    let mut etcd = scene.etcd.take().unwrap();
    scene.run("put a 1", 0);
    let watch = scene.host.start(&scene.line("watch a"));
    watch.wait_for("what is there", LIMIT, |record| record["event"] == "present");
    let mut stream = scene.host.start_fed(&scene.line("put --key {subject} -"));
    etcd.kill(0);
    etcd.kill(1);
    for line in ["get a", "put a 2", "delete a", "list", "leader L"] {
        let began = Instant::now();
        let run = scene.host.run(&scene.line(&format!("{line} --timeout 1s")));
        assert!(run.code == 75 && run.stdout.is_empty() && run.stderr.contains("cannot"), "{run:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    stream.feed("{\"subject\":\"a\",\"n\":1}\n{\"subject\":\"a\",\"n\":2}\n");
    eventually("its complaint", LIMIT, || stream.complaints().contains("does not answer"));
    etcd.boot(0);
    watch.wait_for("the newest", LIMIT, |record| record["value"] == json!(r#"{"subject":"a","n":2}"#));
    drop(stream.child.stdin.take());
    assert_eq!(stream.ends(LIMIT), 0);
}

#[test]
fn a_full_store_says_so() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let etcd = Etcd::start_with(&lab, NET, "http", "--quota-backend-bytes 1500000");
    let scene = Scene { host, url: etcd.url(), etcd: Some(etcd), lab };
    scene.run("put a 1", 0);
    let big = "x".repeat(400_000);
    let mut last = None;
    for number in 0..20 {
        let run = scene.host.run_with(&scene.line(&format!("put big{number} -")), &big);
        if run.code != 0 {
            last = Some(run);
            break;
        }
    }
    let last = last.unwrap();
    assert!(last.code == 71 && last.stderr.contains("full") && last.stderr.contains("etcdctl"), "{last:?}");
    // What is there can be read all the same.
    assert_eq!(scene.value("a").as_deref(), Some("1"));
}

/// TLS with a certificate of each side, and a user with a password. etcd's gateway takes no certificate with a common
/// name once users are told apart.
#[test]
fn tls_and_a_user_are_asked_for() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let folder = host.folder.display().to_string();
    host.sh(&format!(
        "cd {folder} && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca \
         -keyout ca.key -out ca.pem 2>/dev/null && for name in server client; do \
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=$name -keyout $name.key -out $name.csr 2>/dev/null && \
         printf 'subjectAltName=IP:{NET}.101,IP:{NET}.102,IP:{NET}.103\\nextendedKeyUsage=serverAuth,clientAuth\\n' >ext && \
         openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out $name.pem 2>/dev/null; done; \
         chmod 600 client.key; printf 'ops:secret\\n' >user; printf 'ops:wrong\\n' >wrong; chmod 600 user wrong"
    ));
    let flags = format!(
        "--cert-file {folder}/server.pem --key-file {folder}/server.key --trusted-ca-file {folder}/ca.pem --client-cert-auth"
    );
    let etcd = Etcd::start_with(&lab, NET, "https", &flags);
    let ctl = |line: &str| {
        format!(
            "ETCDCTL_API=3 etcdctl --endpoints=https://{NET}.101:2379 --cacert {folder}/ca.pem --cert {folder}/client.pem --key {folder}/client.key {line}"
        )
    };
    eventually("a leader", LIMIT, || host.try_sh(&ctl("--command-timeout=1s put x 1")).0);
    let scene = Scene { host, url: etcd.url(), etcd: Some(etcd), lab };
    let tls = format!("--ca {folder}/ca.pem --cert {folder}/client.pem --cert-key {folder}/client.key");
    scene.run(&format!("get x {tls}"), 0);
    // Without our certificate, with a CA that has not signed theirs, with a key that others can read.
    let no = scene.host.run(&scene.line(&format!("get x --timeout 1s --ca {folder}/ca.pem")));
    assert_eq!(no.code, 75, "{no:?}");
    let no = scene
        .host
        .run(&scene.line(&format!("get x --timeout 1s {}", tls.replace("ca.pem --cert", "server.pem --cert"))));
    assert!(no.code == 75 && no.stderr.contains("certificate"), "{no:?}");
    scene.host.sh(&format!("chmod 644 {folder}/client.key"));
    let no = scene.host.run(&scene.line(&format!("get x {tls}")));
    assert!(no.code == 6 && no.stderr.contains("chmod 600"), "{no:?}");
    scene.host.sh(&format!("chmod 600 {folder}/client.key"));
    for line in [
        "user add root:top",
        "user grant-role root root",
        "role add app",
        "role grant-permission app readwrite a/ --prefix=true",
        "user add ops:secret",
        "user grant-role ops app",
        "auth enable",
    ] {
        scene.host.sh(&ctl(line));
    }
    let ops = format!("{tls} --user {folder}/user");
    assert_eq!(scene.one(&format!("put a/b 1 {ops}"), 0)["value"], json!("1"));
    // Who may see the members is told how many they are; others are not, and it is no failure.
    let denied = scene.host.run(&scene.line(&format!("get x {ops}")));
    assert!(denied.code == 4 && denied.stderr.contains("--user"), "{denied:?}");
    let wrong = scene.host.run(&scene.line(&format!("get a/b {tls} --user {folder}/wrong")));
    assert!(wrong.code == 4 && !wrong.stderr.contains("wrong"), "{wrong:?}");
    // A token that the servers have forgotten is had anew.
    let mut watch = scene.host.start(&scene.line(&format!("watch a/ {ops}")));
    watch.wait_for("what is there", LIMIT, |record| record["event"] == "present");
    scene.run(&format!("put a/c 2 {ops}"), 0);
    watch.wait_for("the change", LIMIT, |record| record["subject"] == "a/c");
    watch.signal(Signal::SIGTERM);
    assert_eq!(watch.ends(LIMIT), -15);
}

/// Takes requests for an etcd and passes them on; `keep_back` says whose answer is thrown away.
struct Relay {
    port: u16,
    keep_back: Arc<AtomicBool>,
}

impl Relay {
    fn start(host: &Host, to: String) -> Relay {
        let keep_back = Arc::new(AtomicBool::new(false));
        let kept = keep_back.clone();
        let (send, receive) = std::sync::mpsc::channel();
        host.inside(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            send.send(listener.local_addr().unwrap().port()).unwrap();
            for client in listener.incoming().flatten() {
                let (to, kept) = (to.clone(), kept.clone());
                // Connected in this thread, which lives in the host's network.
                let Ok(server) = TcpStream::connect(&to) else { continue };
                std::thread::spawn(move || relay(client, server, &kept));
            }
        });
        Relay { port: receive.recv().unwrap(), keep_back }
    }
}

fn relay(client: TcpStream, mut server: TcpStream, kept: &AtomicBool) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut client = client;
    loop {
        let (mut head, mut length, mut line) = (String::new(), 0, String::new());
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            head.push_str(&line);
            if line == "\r\n" {
                break;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if head.is_empty() || reader.read_exact(&mut body).is_err() {
            return;
        }
        let is_put = head.contains("/v3/kv/txn") && String::from_utf8_lossy(&body).contains("request_put");
        server.write_all(head.as_bytes()).unwrap();
        server.write_all(&body).unwrap();
        let mut block = vec![0; 65536];
        let got = server.read(&mut block).unwrap_or(0);
        if is_put && kept.load(Ordering::Relaxed) {
            // The answer is lost on the way, and the connection stays open.
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        if got == 0 || client.write_all(&block[..got]).is_err() {
            return;
        }
    }
}

#[test]
fn a_put_whose_answer_is_lost_is_looked_at_and_not_made_twice() {
    let scene = Scene::etcd();
    let relay = Relay::start(&scene.host, format!("{NET}.101:2379"));
    let url = format!("etcd:http://127.0.0.1:{},http://{NET}.102:2379", relay.port);
    relay.keep_back.store(true, Ordering::Relaxed);
    let run = scene.host.run(&format!("store put a 1 --store {url} --timeout 4s")).ended(0);
    assert_eq!((&run.one()["changed"], &run.one()["value"]), (&json!(true), &json!("1")));
    let created = scene.etcd.as_ref().unwrap().ctl(&scene.host, "get a -w json");
    let kvs: Value = serde_json::from_str(&created).unwrap();
    assert_eq!(kvs["kvs"][0]["version"], json!(1), "written once");
    // Under a condition the same value can be another's: that is said, and not taken for a success.
    let run = scene.host.run(&format!("store put b 1 --if-absent --store {url} --timeout 4s"));
    assert!(run.code == 75 && run.stderr.contains("by this run or by another"), "{run:?}");
    relay.keep_back.store(false, Ordering::Relaxed);
    scene.host.run(&format!("store put a 2 --store {url}")).ended(0);
}

/// A deletion and a put that a stopped member keeps back are carried out when it goes on: over nothing that is newer.
#[test]
fn what_a_member_keeps_back_changes_nothing_later() {
    let scene = Scene::etcd();
    let etcd = scene.etcd.as_ref().unwrap();
    for line in ["delete k", "put k stale"] {
        scene.run("put k old", 0);
        let leader = etcd.leader().unwrap();
        let idle = (leader + 1) % 3;
        etcd.signal(idle, Signal::SIGSTOP);
        let address = |idx: usize| format!("http://{}:2379", etcd.members[idx].address);
        let url = format!("etcd:{},{}", address(idle), address(leader));
        let (verb, rest) = line.split_once(' ').unwrap();
        scene.host.run(&format!("store {verb} --store {url} {rest} --timeout 4s")).ended(0);
        scene.host.run(&format!("store put k new --store etcd:{}", address(leader))).ended(0);
        etcd.signal(idle, Signal::SIGCONT);
        // It is with the others again, and what it had in hand before that is done.
        let alone = format!("store put alive {line} --store etcd:{}", address(idle))
            .replace("delete k", "a")
            .replace("put k stale", "b");
        eventually("it goes on", LIMIT, || scene.host.run(&format!("{alone} --timeout 2s")).code == 0);
        assert_eq!(scene.value("k").as_deref(), Some("new"), "{line}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_and_no_fault_of_ours() {
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::file();
    let odd = std::ffi::OsStr::from_bytes(b"\xff");
    for words in [&["get"][..], &["put", "a"], &["lock", "L", "--"]] {
        let mut command = scene.host.command("store");
        let run = command.args(words).arg(odd).env("FAILOVER_STORE", &scene.url).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!said.contains("fault of our own"), "{words:?} {said}");
        assert!(matches!(run.status.code(), Some(2 | 127)), "{words:?} {run:?}");
    }
    let run = scene.host.command("store get a").env("FAILOVER_STORE", odd).output().unwrap();
    assert_eq!(run.status.code(), Some(6), "{run:?}");
}

#[test]
fn what_answers_and_is_no_etcd_is_not_believed() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    for (answer, code) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n404 page not found", 5),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 6),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", 6),
        ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", 75),
        ("SSH-2.0-OpenSSH_9.2\r\n", 75),
        ("", 75),
    ] {
        let (send, receive) = std::sync::mpsc::channel();
        let liar = host.inside(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            send.send(listener.local_addr().unwrap().port()).unwrap();
            listener.set_nonblocking(true).unwrap();
            let end = Instant::now() + Duration::from_secs(3);
            while Instant::now() < end {
                if let Ok((mut client, _)) = listener.accept() {
                    let _ = client.set_read_timeout(Some(Duration::from_millis(200)));
                    let _ = client.read(&mut [0; 4096]);
                    let _ = client.write_all(answer.as_bytes());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let port = receive.recv().unwrap();
        for verb in ["get a", "list"] {
            let run = host.run(&format!("store {verb} --timeout 1s --store etcd:http://127.0.0.1:{port}"));
            assert!(run.code == code && run.stdout.is_empty() && !run.stderr.is_empty(), "{answer:?}: {run:?}");
        }
        liar.join().unwrap();
    }
    for (url, code) in [
        ("consul:http://127.0.0.1", 2),
        ("etcd:", 2),
        ("etcd:http://user:secret@127.0.0.1:2379", 2),
        ("etcd:http://127.0.0.1:2379/v3", 2),
        ("file:relative", 2),
        ("etcd:http://127.0.0.1:1", 75),
        ("etcd:http://nowhere.invalid:2379", 75),
    ] {
        let run = host.run(&format!("store get a --timeout 1s --store {url}"));
        assert!(run.code == code && !run.stderr.contains("secret"), "{url}: {run:?}");
    }
}

#[test]
fn a_broken_file_is_refused_and_left_alone() {
    let scene = Scene::file();
    scene.run("put a 1", 0);
    scene.run("put b 2", 0);
    let path = scene.host.folder.join("store/store.json");
    let whole = fs::read(&path).unwrap();
    for broken in [vec![], vec![0; 100], whole[..whole.len() / 2].to_vec(), b"{}".to_vec(), b"\xff\xfe".to_vec()] {
        fs::write(&path, &broken).unwrap();
        for line in ["get a", "list", "put a 3", "delete a", "put a 1 --if-absent"] {
            let run = scene.host.run(&scene.line(line));
            assert!(run.code == 6 && run.stdout.is_empty() && run.stderr.contains("store.json"), "{line}: {run:?}");
        }
        let mut watch = scene.host.start(&scene.line("watch"));
        assert_eq!(watch.ends(LIMIT), 6);
        assert_eq!(fs::read(&path).unwrap(), broken);
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(scene.value("a").as_deref(), Some("1"));
}

#[test]
fn a_killed_writer_leaves_the_old_or_the_new() {
    let scene = Scene::file();
    let big = "x".repeat(200_000);
    scene.host.run_with(&scene.line("put a -"), &big).ended(0);
    for round in 0_u64..40 {
        let mut child =
            scene.host.command(&scene.line(&format!("put n {round}"))).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 150));
        let _ = child.kill();
        let _ = child.wait();
        let run = scene.host.run(&scene.line("get n"));
        assert!(matches!(run.code, 0 | 1), "{run:?}");
        assert_eq!(scene.run("get a --raw", 0).stdout.len(), big.len());
    }
    // The lock of a killed run blocks nobody.
    scene.run("put n last --timeout 2s", 0);
}

#[test]
fn a_run_that_hangs_with_the_lock_makes_others_wait_and_no_longer() {
    let scene = Scene::file();
    scene.run("put a 1", 0);
    let lock = scene.host.folder.join("store/lock").display().to_string();
    let holder = scene.host.start_shell(&format!("exec flock {lock} sleep 60"));
    eventually("the holder", LIMIT, || !scene.host.try_sh(&format!("flock --nonblock {lock} true")).0);
    let run = scene.host.run(&scene.line("put a 2 --timeout 300ms"));
    assert!(run.code == 75 && run.stderr.contains("another run holds it"), "{run:?}");
    assert_eq!(scene.value("a").as_deref(), Some("1"), "reading waits for nobody");
    drop(holder);
    scene.run("put a 2", 0);
}

#[test]
fn in_a_pipe_and_without_rights() {
    for scene in Scene::both() {
        scene.host.sh("true");
        for number in 0..5 {
            scene.run(&format!("put p/{number} {number}"), 0);
        }
        let store = support::binary("store").display().to_string();
        let early = scene.host.sh(&format!("{store} watch p/ --store {} --for 20s | head -n 1", scene.url));
        assert_eq!(early.lines().count(), 1);
        let (_, full) = scene.host.try_sh(&format!("{store} list --store {} >/dev/full; echo status $?", scene.url));
        assert!(full.contains("status 71"), "{full}");
        let (_, full) =
            scene.host.try_sh(&format!("{store} get p/1 --raw --store {} >/dev/full; echo status $?", scene.url));
        assert!(full.contains("status 71"), "{full}");
        scene.run("watch --for 100ms nothing/", 0);
        // From cron, in another language.
        let cron = scene.host.sh(&format!(
            "env -i PATH=/usr/bin:/bin LANG=de_DE.UTF-8 HOME=/ {store} get p/1 --store {} --node n1",
            scene.url
        ));
        assert!(cron.contains("\"value\":\"1\""), "{cron}");
    }
    let scene = Scene::file();
    scene.run("put a 1", 0);
    fs::set_permissions(scene.host.folder.join("store"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&scene.host.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let store = support::binary("store").display().to_string();
    scene.host.sh(&format!("cp {store} /dev/shm/{0} && chmod 755 /dev/shm/{0}", scene.host.ns));
    let (_, said) = scene.host.try_sh(&format!(
        "setpriv --reuid 65534 --clear-groups /dev/shm/{} put a 2 --store {} --node n1; echo status $?",
        scene.host.ns, scene.url
    ));
    scene.host.sh(&format!("rm /dev/shm/{}", scene.host.ns));
    assert!(said.contains("status 71") || said.contains("status 4"), "{said}");
    assert!(said.contains("cannot"), "{said}");
}
