//! `dns update` against BIND, with dig and nsupdate as witnesses.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::dns::{key, primary, secondary};
use support::{Host, Lab, Run, Running, eventually};

const NS1: &str = "192.0.2.53";
const NS2: &str = "192.0.2.54";
const APP: &str = "app.gslb.test";
const LIMIT: Duration = Duration::from_secs(20);

/// A primary, perhaps a secondary, and a host that updates.
struct Scene {
    client: Host,
    ns1: Host,
    key: String,
    primary: Option<Running>,
    secondary: Option<Running>,
    // Last: the hosts' network goes when all else has.
    lab: Lab,
}

impl Scene {
    fn new(records: &str) -> Scene {
        Scene::with(records, false)
    }

    fn with(records: &str, has_secondary: bool) -> Scene {
        let lab = Lab::new();
        let ns1 = lab.host("ns1", &[&format!("{NS1}/24")]);
        let ns2 = lab.host("ns2", &[&format!("{NS2}/24")]);
        let client = lab.host("n1", &["192.0.2.1/24"]);
        let key = key(&client, "ddns");
        let other = Some(NS2).filter(|_| has_secondary);
        let primary = primary(&ns1, NS1, other, &key, records);
        let secondary = has_secondary.then(|| secondary(&ns2, NS2, NS1));
        Scene { client, ns1, key, primary: Some(primary), secondary, lab }
    }

    fn line(&self, more: &str) -> String {
        let server = if more.contains("--server") { String::new() } else { format!(" --server {NS1}") };
        format!("dns update {more}{server} --tsig-key {}", self.key)
    }

    fn update(&self, more: &str, code: i32) -> Run {
        self.client.run(&self.line(more)).ended(code)
    }

    fn one(&self, more: &str, code: i32) -> Value {
        self.update(more, code).one()
    }

    /// What dig says of a name's records, sorted.
    fn dig(&self, name: &str, qtype: &str) -> Vec<String> {
        let said = self.client.sh(&format!("dig +short +norec @{NS1} {name} {qtype}"));
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Status and number of answers and authority records, by dig.
    fn header(&self, name: &str, qtype: &str) -> String {
        let said = self.client.sh(&format!("dig +norec @{NS1} {name} {qtype}"));
        let part = |from: &str| said.split(from).nth(1).unwrap().split(',').next().unwrap().to_owned();
        format!("{} answer{} authority{}", part("status: "), part("ANSWER:"), part("AUTHORITY:"))
    }

    fn serial(&self) -> String {
        self.client.sh(&format!("dig +short +norec @{NS1} gslb.test SOA | cut -d' ' -f3"))
    }

    fn nsupdate(&self, lines: &str) {
        nsupdate(&self.client.ns, &self.key, lines);
    }
}

fn nsupdate(ns: &str, key: &str, lines: &str) {
    let mut command = std::process::Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{ns}")).args(["nsupdate", "-k", key]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let text = if lines.ends_with("send") { lines.to_owned() } else { format!("server {NS1}\n{lines}\nsend") };
    child.stdin.take().unwrap().write_all(format!("{text}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
}

fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

fn send(stream: &mut TcpStream, message: &[u8]) -> Option<()> {
    let length = u16::try_from(message.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes(), message].concat()).ok()
}

fn is_update(question: &[u8]) -> bool {
    question[2] >> 3 & 15 == 5
}

type Before = dyn Fn(&[u8]) -> bool + Send + Sync;
type After = dyn Fn(&[u8], Vec<u8>) -> Option<Vec<u8>> + Send + Sync;

/// What happens on the way between the client and the primary: before a question goes on, which may be its end,
/// and before its answer does.
struct Way {
    before: Box<Before>,
    after: Box<After>,
}

fn before(what: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Way {
    Way { before: Box::new(what), after: Box::new(|_, answer| Some(answer)) }
}

fn after(what: impl Fn(&[u8], Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static) -> Way {
    Way { before: Box::new(|_| true), after: Box::new(what) }
}

/// A relay on the client to the primary; where it listens.
fn relay(client: &Host, way: Way) -> SocketAddr {
    let (told, heard) = std::sync::mpsc::channel();
    client.inside(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        told.send(listener.local_addr().unwrap()).unwrap();
        let way = Arc::new(way);
        for stream in listener.incoming() {
            let (mut from, way) = (stream.unwrap(), way.clone());
            std::thread::spawn(move || {
                let mut to = TcpStream::connect((NS1, 53)).ok()?;
                loop {
                    let question = frame(&mut from)?;
                    (way.before)(&question).then_some(())?;
                    send(&mut to, &question)?;
                    let answer = (way.after)(&question, frame(&mut to)?)?;
                    send(&mut from, &answer)?;
                }
                #[allow(unreachable_code)]
                Some(())
            });
        }
    });
    heard.recv().unwrap()
}

/// known-faults 12 (a) and (b).
#[test]
fn twice_changes_once_and_another_address_stays() {
    let scene = Scene::new("app 30 A 192.0.2.81\napp 30 A 192.0.2.82\n");
    let first = scene.one(&format!("{APP} 192.0.2.83 192.0.2.82 --ttl 5"), 0);
    assert_eq!(
        (&first["changed"], &first["subject"], &first["zone"], &first["qtype"], &first["rcode"], &first["server"]),
        (&true.into(), &APP.into(), &"gslb.test".into(), &"A".into(), &"NOERROR".into(), &NS1.into())
    );
    assert_eq!(first["before"], json!(["192.0.2.81", "192.0.2.82"]));
    assert_eq!(first["after"], json!(["192.0.2.82", "192.0.2.83"]));
    let serial = scene.serial();
    let second = scene.one(&format!("{APP} 192.0.2.83 192.0.2.82 --ttl 5"), 0);
    assert_eq!(
        (&second["changed"], &second["before"], &second["after"]),
        (&false.into(), &first["after"], &first["after"])
    );
    // Without a TTL the one that stands is kept; another is a change.
    assert_eq!(scene.one(&format!("{APP} 192.0.2.82 192.0.2.83"), 0)["changed"], false);
    assert_eq!(scene.serial(), serial);
    assert_eq!(scene.one(&format!("{APP} 192.0.2.82 192.0.2.83 --ttl 7"), 0)["changed"], true);
    assert!(scene.client.sh(&format!("dig +noall +answer @{NS1} {APP} A")).contains("\t7\t"));
    scene.one(&format!("{APP} 192.0.2.82 --remove"), 0);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.83"]);
    assert_eq!(scene.one(&format!("{APP} 192.0.2.82 --remove"), 0)["changed"], false);
    scene.one(&format!("{APP} 192.0.2.84 192.0.2.83 --add"), 0);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.83", "192.0.2.84"]);
    let table = scene.update(&format!("{APP} 192.0.2.83 --table"), 0).stdout;
    assert!(table.contains("192.0.2.84") && table.contains("NOERROR"), "{table}");
}

/// known-faults 12 (c) to (f): each its own reason, none a success, none later than asked for.
#[test]
fn what_cannot_be_done_is_told_apart() {
    let scene = Scene::new("app 30 A 192.0.2.81\nalias CNAME app\n");
    fs::create_dir_all(scene.client.folder.join("other")).unwrap();
    let text = fs::read_to_string(&scene.key).unwrap();
    let with = |name: &str, text: &str| {
        let path = scene.client.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let secret = text.split("secret \"").nth(1).unwrap().split('"').next().unwrap();
    let wrong = with("wrong", &text.replace(secret, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="));
    let unknown = with("unknown", &text.replace("ddns", "nobody"));
    let strong = with("strong", &text.replace("hmac-sha256", "hmac-sha512"));
    let started = std::time::Instant::now();
    for (more, code, reason, tsig, why) in [
        (format!("{APP} 192.0.2.1 --server {NS1} --tsig-key {wrong}"), 6, "bad-signature", "BADSIG", "another secret"),
        (format!("{APP} 192.0.2.1 --server {NS1} --tsig-key {unknown}"), 6, "bad-key", "BADKEY", "key nobody"),
        (format!("{APP} 192.0.2.1 --server {NS1} --tsig-key {strong}"), 6, "bad-key", "BADKEY", "hmac-sha512"),
        (format!("www.example.org 192.0.2.1 --server {NS1} --tsig-key {}", scene.key), 6, "not-in-zone", "", "REFUSED"),
        (format!("{APP} 192.0.2.1 --server {NS2} --tsig-key {}", scene.key), 75, "unreachable", "", "nobody listens"),
        (
            format!("{APP} 192.0.2.1 --server 192.0.2.9 --timeout 300ms --tsig-key {}", scene.key),
            75,
            "unreachable",
            "",
            "given",
        ),
        (
            format!("alias.gslb.test 192.0.2.1 --server {NS1} --tsig-key {}", scene.key),
            6,
            "conflict",
            "",
            "alias of app.gslb.test",
        ),
    ] {
        let run = scene.client.run(&format!("dns update {more}")).ended(code);
        let record = run.one();
        assert_eq!((&record["error"]["reason"], &record["error"]["code"]), (&reason.into(), &code.into()), "{record}");
        assert_eq!((record["tsig_error"].as_str().unwrap_or_default(), &record["changed"]), (tsig, &false.into()));
        assert!(
            run.stderr.contains(why) && run.stderr.lines().count() == 1 && run.stderr.contains("192.0.2."),
            "{run:?}"
        );
    }
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.81"]);
    // Refused before anything is asked.
    for (more, code, why) in [
        (format!("{APP} 192.0.2.1 --zone example.org"), 2, "not in the zone"),
        (format!("{APP} 0.0.0.0"), 2, "no address of a site"),
        (format!("{APP} 192.0.2.1 --type AAAA"), 2, "no address of the type AAAA"),
        (APP.to_owned(), 2, "no address is given"),
        (format!("{APP} 192.0.2.1 --add --remove"), 2, "cannot be used with"),
        (format!("{APP} 192.0.2.1 --follow"), 2, "leave out the name"),
        ("--add".to_owned(), 2, "need a NAME"),
        ("--follow --dry-run".to_owned(), 2, "leave out --follow"),
        (String::new(), 75, "no answer was read"),
        ("-".to_owned(), 75, "no answer was read"),
    ] {
        let run = scene.update(&more, code);
        assert!(run.stderr.contains(why) && run.stdout.is_empty(), "{run:?}");
    }
}

/// The clock is wrong, and the answer on its way is not as it was sent.
#[test]
fn each_tsig_error_has_its_own_sentence() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    for (offset, side, ahead) in [("-412s", "behind", -412.0), ("+4000s", "ahead of", 4000.0)] {
        let mut command = scene.client.command(&scene.line(&format!("{APP} 192.0.2.1")));
        command
            .env("LD_PRELOAD", scene.client.sh("ls /usr/lib/*/faketime/libfaketime.so.1").trim())
            .env("FAKETIME", offset)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let run = Run::new("faketime", command.output().unwrap()).ended(6);
        let record = run.one();
        assert_eq!((&record["tsig_error"], &record["error"]["reason"]), (&"BADTIME".into(), &"bad-time".into()));
        let skew = record["skew_ms"].as_f64().unwrap();
        assert!((skew / 1000.0 - ahead).abs() <= 2.0, "{record}");
        assert!(run.stderr.contains(&format!(" s {side} the server's")), "{run:?}");
    }
    // Before all signatures.
    let mut command = scene.client.command(&scene.line(&format!("{APP} 192.0.2.1")));
    command
        .env("LD_PRELOAD", scene.client.sh("ls /usr/lib/*/faketime/libfaketime.so.1").trim())
        .env("FAKETIME", "@1960-01-01 00:00:00")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let run = Run::new("faketime", command.output().unwrap()).ended(6);
    assert!(run.one()["error"]["reason"] == "bad-time" && run.stderr.contains("our clock is before 1970"), "{run:?}");
    // The signature is the last record: a name of 6, ten more, and the algorithm's of 13 before its time.
    let tsig = |answer: &[u8]| answer.windows(6).rposition(|bytes| bytes == b"\x04ddns\x00").unwrap();
    let unsigned = move |_: &[u8], mut answer: Vec<u8>| {
        answer.truncate(tsig(&answer));
        answer[11] -= 1;
        Some(answer)
    };
    let cut = move |_: &[u8], mut answer: Vec<u8>| {
        let at = tsig(&answer) + 6 + 10 + 13 + 8;
        answer[at..at + 2].copy_from_slice(&[0, 16]);
        answer.drain(at + 2 + 16..at + 2 + 32);
        let length = tsig(&answer) + 15;
        answer[length] -= 16;
        Some(answer)
    };
    let changed = move |_: &[u8], mut answer: Vec<u8>| {
        answer[3] ^= 0x40;
        let at = tsig(&answer) + 6 + 10 + 13 + 8 + 2;
        answer[at] ^= 1;
        Some(answer)
    };
    let other = move |_: &[u8], mut answer: Vec<u8>| {
        let at = tsig(&answer);
        answer[at + 1] = b'x';
        Some(answer)
    };
    // What it says of ours is read first: it comes unsigned.
    let claimed = move |_: &[u8], mut answer: Vec<u8>| {
        let at = tsig(&answer) + 6 + 10 + 13 + 8 + 2 + 32 + 2;
        answer[at + 1] = 17;
        Some(answer)
    };
    for (way, slug, code, why) in [
        (after(unsigned), "unsigned", 75, "has no signature"),
        (after(cut), "truncated", 75, "cut short"),
        (after(changed), "unverified", 75, "signature of its answer is wrong"),
        (after(other), "other-key", 75, "another key"),
        (after(claimed), "BADKEY", 6, "does not know a key"),
    ] {
        let server = relay(&scene.client, way);
        let run = scene.update(&format!("{APP} 192.0.2.1 --server {server}"), code);
        let record = run.one();
        assert_eq!((&record["tsig_error"], &record["changed"]), (&slug.into(), &false.into()), "{record}");
        assert!(run.stderr.contains(why), "{run:?}");
    }
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.81"]);
}

/// Somebody else is faster, between the look and the update: nothing is overwritten.
#[test]
fn a_lost_race_overwrites_nothing() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let meanwhile = |lines: &'static str| {
        let (ns, key) = (scene.client.ns.clone(), scene.key.clone());
        let once = AtomicBool::new(false);
        relay(
            &scene.client,
            before(move |question| {
                if is_update(question) && !once.swap(true, Ordering::SeqCst) {
                    nsupdate(&ns, &key, lines);
                }
                true
            }),
        )
    };
    let server = meanwhile("update delete app.gslb.test A\nupdate add app.gslb.test 30 A 192.0.2.99");
    let run = scene.update(&format!("{APP} 192.0.2.82 --server {server}"), 1);
    let lost = run.one();
    assert_eq!((&lost["rcode"], &lost["changed"]), (&"NXRRSET".into(), &false.into()));
    assert_eq!((&lost["before"], &lost["after"]), (&json!(["192.0.2.81"]), &json!(["192.0.2.99"])));
    assert!(lost["error"]["reason"] == "conflict" && run.stderr.contains("it has A 192.0.2.99"), "{run:?}");
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.99"]);
    // Where nothing stood something does now.
    let server = meanwhile("update add new.gslb.test 30 A 192.0.2.98");
    let lost = scene.one(&format!("new.gslb.test 192.0.2.82 --add --server {server}"), 1);
    assert_eq!((&lost["rcode"], &lost["after"]), (&"YXRRSET".into(), &json!(["192.0.2.98"])));
    // Who wanted the same has not lost.
    let server = meanwhile("update delete app.gslb.test A\nupdate add app.gslb.test 30 A 192.0.2.82");
    let same = scene.one(&format!("{APP} 192.0.2.82 --server {server}"), 0);
    assert_eq!((&same["rcode"], &same["changed"]), (&"NXRRSET".into(), &false.into()));
    // An AAAA that comes is no reason to stand back from an A, and one is to mark the name as dead.
    let server = meanwhile("update add app.gslb.test 30 AAAA 2001:db8::1");
    scene.one(&format!("{APP} 192.0.2.83 --server {server}"), 0);
    scene.nsupdate("update delete app.gslb.test AAAA");
    let server = meanwhile("update add app.gslb.test 30 AAAA 2001:db8::1");
    scene.one(&format!("{APP} 192.0.2.83 --remove --server {server}"), 1);
    assert_eq!((scene.dig(APP, "A"), scene.dig(APP, "TXT")), (vec!["192.0.2.83".to_owned()], vec![]));
    // Done, and taken back before it is looked at.
    let (ns, key) = (scene.client.ns.clone(), scene.key.clone());
    let back = move |question: &[u8], answer| {
        if is_update(question) {
            nsupdate(&ns, &key, "update delete app.gslb.test A\nupdate add app.gslb.test 30 A 192.0.2.97");
        }
        Some(answer)
    };
    let server = relay(&scene.client, after(back));
    let run = scene.update(&format!("{APP} 192.0.2.84 --server {server}"), 1);
    assert!(run.stderr.contains("the name has A 192.0.2.97") && run.one()["changed"] == true, "{run:?}");
}

/// H23: the name goes on to be there, so that resolvers keep no NXDOMAIN.
#[test]
fn without_an_address_the_name_is_empty_and_not_gone() {
    let scene = Scene::new("app 30 A 192.0.2.81\napp 30 AAAA 2001:db8::81\napp 600 TXT \"v=spf1 -all\"\n");
    let gone = scene.update(&format!("{APP} --remove"), 0).records();
    assert_eq!((gone.len(), &gone[0]["after"], &gone[1]["after"]), (2, &json!([]), &json!([])));
    assert_eq!((&gone[1]["qtype"], &gone[1]["before"]), (&"AAAA".into(), &json!(["2001:db8::81"])));
    for qtype in ["A", "AAAA"] {
        assert_eq!(scene.header(APP, qtype), "NOERROR answer 0 authority 1");
    }
    assert!(scene.client.sh(&format!("dig @{NS1} {APP} A")).contains("SOA"));
    let mark = "\"failover-utils: no site up\"".to_owned();
    assert_eq!(scene.dig(APP, "TXT"), [mark.clone(), "\"v=spf1 -all\"".to_owned()]);
    // The other text keeps its TTL.
    assert_eq!(scene.client.sh(&format!("dig +noall +answer @{NS1} {APP} TXT")).matches("\t600\t").count(), 2);
    assert_eq!(scene.update(&format!("{APP} --remove"), 0).records()[0]["changed"], false);
    scene.update(&format!("{APP} 2001:db8::82 --add"), 0);
    assert_eq!(scene.dig(APP, "TXT"), ["\"v=spf1 -all\""]);
    // The last one by its name, where nothing else is there; and a name that never was.
    scene.update("one.gslb.test 192.0.2.1", 0);
    scene.update("one.gslb.test 192.0.2.1 --remove", 0);
    assert_eq!(scene.header("one.gslb.test", "A"), "NOERROR answer 0 authority 1");
    assert_eq!(scene.one("none.gslb.test 192.0.2.1 --remove", 0)["changed"], false);
    assert_eq!(scene.header("none.gslb.test", "A"), "NXDOMAIN answer 0 authority 1");
    scene.update("none.gslb.test --remove --type A", 0);
    assert_eq!(
        (scene.header("none.gslb.test", "AAAA"), scene.dig("none.gslb.test", "TXT")),
        ("NOERROR answer 0 authority 1".to_owned(), vec![mark])
    );
    scene.update("none.gslb.test 192.0.2.1", 0);
    assert_eq!(scene.dig("none.gslb.test", "TXT"), [""; 0]);
}

/// What `--dry-run` prints does the same by nsupdate, and changes nothing by itself.
#[test]
fn a_dry_run_is_a_script_for_nsupdate() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let serial = scene.serial();
    for (more, of_a, of_aaaa) in [
        (format!("{APP} 192.0.2.82 2001:db8::1 --ttl 9"), vec!["192.0.2.82"], vec!["2001:db8::1"]),
        (format!("{APP} --remove"), vec![], vec![]),
        (format!("{APP} 192.0.2.83"), vec!["192.0.2.83"], vec![]),
    ] {
        let planned = scene.update(&format!("{more} --dry-run"), 0).records();
        let first = &planned[0];
        assert_eq!(
            (&first["dry_run"], &first["changed"], &first["actions"][0]["op"]),
            (&true.into(), &true.into(), &"dns-update".into())
        );
        assert_eq!(first["after"], json!(of_a));
        scene.nsupdate(first["actions"][0]["text"].as_str().unwrap());
        assert_eq!(
            (scene.dig(APP, "A"), scene.dig(APP, "AAAA")),
            (of_a.iter().map(|a| (*a).to_owned()).collect(), of_aaaa.iter().map(|a| (*a).to_owned()).collect())
        );
        let run = scene.update(&more, 0);
        assert!(
            run.records().iter().all(|record| record["changed"] == false && record.get("actions").is_none()),
            "{run:?}"
        );
    }
    assert!(scene.dig(APP, "TXT").is_empty() && scene.serial() != serial);
    let serial = scene.serial();
    assert_eq!(scene.one(&format!("{APP} 192.0.2.84 --dry-run"), 0)["before"], json!(["192.0.2.83"]));
    assert_eq!(scene.serial(), serial);
    let explained = scene.one(&format!("{APP} 192.0.2.84 --explain"), 0);
    assert!(explained["actions"][0]["text"].as_str().unwrap().contains("prereq yxrrset"), "{explained}");
}

/// `--wait` returns when the secondary has it, and names who has not.
#[test]
fn a_wait_ends_when_every_authority_shows_it() {
    let mut scene = Scene::with("app 30 A 192.0.2.81\n", true);
    for last in 82..87 {
        let record = scene.one(&format!("{APP} 192.0.2.{last} --wait"), 0);
        assert_eq!(record["visible_on"], json!([NS1, NS2]));
        let shown = scene.client.sh(&format!("dig +short +norec @{NS2} {APP} A"));
        assert_eq!(shown.trim(), format!("192.0.2.{last}"));
    }
    assert_eq!(scene.one(&format!("{APP} 192.0.2.86 --wait"), 0)["visible_on"], json!([NS1, NS2]));
    drop(scene.secondary.take());
    // Who waits is in nobody's way.
    let mut waits = scene.client.start(&scene.line(&format!("{APP} 192.0.2.90 --wait --timeout 1m")));
    eventually("it is done", LIMIT, || scene.dig(APP, "A") == ["192.0.2.90"]);
    scene.one(&format!("{APP} 192.0.2.91"), 0);
    waits.signal(nix::sys::signal::Signal::SIGKILL);
    waits.ends(LIMIT);
    let run = scene.update(&format!("{APP} 192.0.2.87 --wait --timeout 2s"), 75);
    let record = run.one();
    assert_eq!(
        (&record["changed"], &record["visible_on"], &record["after"]),
        (&true.into(), &json!([NS1]), &json!(["192.0.2.87"]))
    );
    assert!(run.stderr.contains(&format!("ns2.gslb.test ({NS2}) does not show it yet")), "{run:?}");
}

/// The server goes between the look and the update, or after it.
#[test]
fn what_was_not_answered_is_looked_at_before_anything_is_said() {
    let mut scene = Scene::new("app 30 A 192.0.2.81\n");
    // It was done, and its answer is lost.
    let server = relay(&scene.client, after(|question, answer| (!is_update(question)).then_some(answer)));
    let serial: u32 = scene.serial().trim().parse().unwrap();
    let done = scene.one(&format!("{APP} 192.0.2.82 --server {server}"), 0);
    assert_eq!((&done["changed"], &done["after"]), (&true.into(), &json!(["192.0.2.82"])));
    assert_eq!(scene.serial().trim().parse::<u32>().unwrap(), serial + 1, "once");
    // It never came there.
    let server = relay(&scene.client, before(|question| !is_update(question)));
    let run = scene.update(&format!("{APP} 192.0.2.83 --server {server} --server {NS1}"), 75);
    let record = run.one();
    assert_eq!(
        (&record["after"], &record["changed"], &record["rcode"]),
        (&json!(["192.0.2.82"]), &false.into(), &Value::Null)
    );
    assert!(run.stderr.contains("may be done yet") && record["error"]["reason"] == "timed-out", "{run:?}");
    // It hangs there: no longer than asked for.
    let server = relay(
        &scene.client,
        before(|question| {
            if is_update(question) {
                std::thread::sleep(Duration::from_secs(600));
            }
            true
        }),
    );
    let started = std::time::Instant::now();
    scene.update(&format!("{APP} 192.0.2.83 --server {server} --timeout 1500ms"), 75);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    // The server itself goes.
    let pid = scene.primary.as_ref().unwrap().pid();
    let server = relay(
        &scene.client,
        before(move |question| {
            if is_update(question) {
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                std::thread::sleep(Duration::from_millis(200));
            }
            true
        }),
    );
    let run = scene.update(&format!("{APP} 192.0.2.83 --server {server} --timeout 3s"), 75);
    assert!(run.stderr.contains("what stands there now could not be read"), "{run:?}");
    drop(scene.primary.take());
    scene.primary = Some(primary(&scene.ns1, NS1, None, &scene.key, "app 30 A 192.0.2.81\n"));
    // Of two servers the first is dead: the other takes it, and the record of each says so.
    let run = scene.update(&format!("{APP} 192.0.2.84 --server {NS2} --server {NS1}"), 0);
    let records = run.records();
    assert_eq!((&records[0]["server"], &records[0]["error"]["reason"]), (&NS2.into(), &"unreachable".into()));
    assert_eq!((&records[1]["server"], &records[1]["after"]), (&NS1.into(), &json!(["192.0.2.84"])));
    // One that swallows everything leaves the other its share of the time.
    let run = scene.update(&format!("{APP} 192.0.2.85 --server 192.0.2.9 --server {NS1} --timeout 2s"), 0);
    assert_eq!(run.records()[1]["changed"], true);
    let dead = scene.update(&format!("{APP} 192.0.2.84 --server {NS2} --server {NS2}:5353"), 75);
    assert_eq!(dead.records().len(), 2);
}

/// What the key may not do, and what the server does not know.
#[test]
fn a_refusal_is_told_in_the_server_s_words() {
    let scene = Scene::with("app 30 A 192.0.2.81\n", true);
    // The secondary has the zone, and not the key.
    let run = scene.update(&format!("{APP} 192.0.2.1 --server {NS2}"), 6);
    assert_eq!(run.one()["tsig_error"], "BADKEY");
    // A resolver, which knows nothing of signatures.
    let resolver = scene.lab.host("res", &["192.0.2.55/24"]);
    let _unbound = support::dns::unbound(&resolver, "192.0.2.55", NS1, "allow_snoop", "");
    let run = scene.update(&format!("{APP} 192.0.2.1 --server 192.0.2.55"), 75);
    assert!(run.one()["tsig_error"] == "unsigned" && run.stderr.contains("does it know TSIG"), "{run:?}");
    // By a name, all addresses of which are tried.
    let run = scene.update(&format!("{APP} 192.0.2.81 --server localhost"), 75);
    assert_eq!(run.one()["error"]["reason"], "unreachable");
    let lab = Lab::called(&format!("fv{}", std::process::id()));
    let ns1 = lab.host("ns1", &[&format!("{NS1}/24")]);
    let client = lab.host("n1", &["192.0.2.1/24"]);
    let key = key(&client, "reader");
    let text = fs::read_to_string(&key).unwrap();
    fs::write(
        ns1.folder.join("zone"),
        "$ORIGIN gslb.test.\n$TTL 30\n@ SOA ns1 host 1 3600 600 86400 15\n@ NS ns1\nns1 A 192.0.2.53\n",
    )
    .unwrap();
    let zone = format!(
        "{text}\nzone gslb.test {{ type primary; file \"{}\"; allow-update {{ none; }}; }};",
        ns1.folder.join("zone").display()
    );
    let _named = support::dns::named(&ns1, NS1, &zone);
    let run = client.run(&format!("dns update {APP} 192.0.2.1 --server {NS1} --tsig-key {key}")).ended(4);
    let record = run.one();
    assert_eq!((&record["rcode"], &record["error"]["reason"]), (&"REFUSED".into(), &"not-permitted".into()));
    assert!(run.stderr.contains("the key reader may not change it"), "{run:?}");
    let run = client.run(&format!("dns update {APP} 192.0.2.1 --zone test --server {NS1} --tsig-key {key}")).ended(6);
    assert_eq!((&run.one()["rcode"], &run.one()["error"]["reason"]), (&"NOTAUTH".into(), &"not-in-zone".into()));
}

fn answer(name: &str, qtype: &str, answers: &[&str], more: &str) -> String {
    let empty = answers.is_empty();
    format!(
        "{{\"kind\":\"dns.answer\",\"v\":1,\"subject\":\"{name}\",\"qtype\":\"{qtype}\",\"ttl_s\":6,\"empty\":{empty},\"answers\":{}{more}}}\n",
        json!(answers)
    )
}

#[test]
fn answers_on_standard_input_are_carried_out() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let feed = |input: &str, code: i32| scene.client.run_with(&scene.line(""), input).ended(code);
    // The newest of a type counts; several names.
    let input = answer(APP, "A", &["192.0.2.1"], "")
        + &answer(APP, "A", &["192.0.2.2"], "")
        + &answer("www.gslb.test", "AAAA", &["2001:db8::1"], "");
    assert_eq!(feed(&input, 0).records().len(), 2);
    assert_eq!(
        (scene.dig(APP, "A"), scene.dig("www.gslb.test", "AAAA")),
        (vec!["192.0.2.2".to_owned()], vec!["2001:db8::1".to_owned()])
    );
    // Empty: of the other type too, unless an answer of its own says better.
    let both = answer(APP, "A", &["192.0.2.2"], "") + &answer(APP, "AAAA", &["2001:db8::2"], "");
    feed(&both, 0);
    feed(&(answer(APP, "A", &[], "") + &answer(APP, "AAAA", &["2001:db8::2"], "")), 0);
    assert_eq!((scene.dig(APP, "A").len(), scene.dig(APP, "AAAA").len(), scene.dig(APP, "TXT").len()), (0, 1, 0));
    feed(&answer(APP, "A", &[], ""), 0);
    assert_eq!((scene.dig(APP, "AAAA").len(), scene.header(APP, "A")), (0, "NOERROR answer 0 authority 1".to_owned()));
    // What concludes nothing, has expired or is no answer changes nothing.
    let nothing = answer(APP, "A", &[], "").replace("\"empty\":true", "\"empty\":false");
    assert!(feed(&nothing, 75).stderr.contains("concludes nothing"));
    let old = answer(APP, "A", &["192.0.2.3"], ",\"received_ms\":1,\"valid_for_ms\":5");
    assert!(feed(&old, 75).stderr.contains("has expired"));
    assert!(feed("{\"kind\":\"gw.split\"}\n", 75).stderr.contains("no answer was read"));
    assert!(feed("{\"kind\":\n", 6).stderr.contains("line 1"));
    let run = feed(&(answer("www.example.org", "A", &["192.0.2.1"], "") + &answer(APP, "A", &["192.0.2.9"], "")), 6);
    assert_eq!(run.records().len(), 2);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.9"]);
    let outside = scene.client.run_with(&scene.line("--zone example.org"), &both).ended(6).one();
    assert_eq!(outside["error"]["reason"], "bad-input");
    let views = answer(APP, "A", &["192.0.2.9"], ",\"view\":\"emea\"")
        + &answer(APP, "AAAA", &["2001:db8::9"], ",\"view\":\"apac\"");
    assert!(feed(&views, 6).stderr.contains("line 2") && scene.dig(APP, "AAAA").is_empty());
    // From the decider itself.
    let verdicts = "{\"subject\":\"paris\",\"status\":\"down\"}\n{\"subject\":\"rome\",\"status\":\"up\"}\n";
    let decided =
        scene.client.run_with(&format!("dns answer {APP} --site paris,192.0.2.21 --site rome,192.0.2.22"), verdicts);
    feed(&decided.ended(0).stdout, 0);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.22"]);
    assert!(scene.client.sh(&format!("dig +noall +answer @{NS1} {APP} A")).contains("\t5\t"), "the answer's TTL");
}

#[test]
fn a_stream_carries_out_each_step_and_tries_again() {
    let mut scene = Scene::new("app 30 A 192.0.2.81\n");
    let mut stream = scene.client.start_fed(&scene.line("--follow"));
    stream.feed(&(answer(APP, "A", &["192.0.2.1"], "") + &answer(APP, "A", &["192.0.2.2"], "")));
    stream.wait_for("the first", LIMIT, |record| record["after"] == json!(["192.0.2.2"]) && record["changed"] == true);
    // A renewal finds what others did, and sets it right; one that finds nothing is silent.
    scene.nsupdate("update delete app.gslb.test A\nupdate add app.gslb.test 6 A 192.0.2.66");
    let again = answer(APP, "A", &["192.0.2.2"], ",\"renewal\":true");
    stream.feed(&again);
    stream.wait_for("the repair", LIMIT, |record| record["before"] == json!(["192.0.2.66"]));
    stream.feed(&again);
    stream.feed(&answer("www.gslb.test", "A", &["192.0.2.3"], ""));
    stream.wait_for("another name", LIMIT, |record| record["subject"] == "www.gslb.test");
    assert_eq!(stream.so_far().len(), 3, "{:#?}", stream.so_far());
    // The server goes and comes back; the answer that came meanwhile is carried out without another word.
    drop(scene.primary.take());
    stream.feed(&answer(APP, "A", &["192.0.2.4"], ""));
    stream.wait_for("a failure", LIMIT, |record| record["error"]["reason"] == "unreachable");
    scene.primary = Some(primary(&scene.ns1, NS1, None, &scene.key, "app 30 A 192.0.2.81\n"));
    stream.wait_for("what was asked", LIMIT, |record| record["after"] == json!(["192.0.2.4"]));
    assert_eq!(stream.complaints().lines().count(), 1, "{}", stream.complaints());
    drop(stream.child.stdin.take());
    assert_eq!(stream.ends(LIMIT), 1);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.4"]);
    let mut planned = scene.client.start_fed(&scene.line("--follow --for 50ms"));
    assert_eq!(planned.ends(LIMIT), 0);
    let mut told = scene.client.start_fed(&scene.line("--follow"));
    told.feed(&answer(APP, "A", &["192.0.2.5"], ""));
    told.wait_for("a record", LIMIT, |record| record["changed"] == true);
    told.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(told.ends(LIMIT), -15);
}

/// A server that says a great deal and nothing of what was asked did answer.
#[test]
fn an_answer_without_end_is_told_as_such() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let (told, heard) = std::sync::mpsc::channel();
    scene.client.inside(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        told.send(listener.local_addr().unwrap()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            frame(&mut stream);
            while send(&mut stream, &vec![0; 60_000]).is_some() {}
        }
    });
    let server = heard.recv().unwrap();
    let run = scene.update(&format!("{APP} 192.0.2.1 --server {server}"), 75);
    assert!(run.one()["error"]["reason"] == "refused" && run.stderr.contains("it answered, and more"), "{run:?}");
}

/// The mark is one string; the same letters in two are somebody else's text.
#[test]
fn a_text_of_two_strings_is_no_mark() {
    let scene = Scene::new("app 30 TXT \"failover-utils: \" \"no site up\"\n");
    scene.one(&format!("{APP} 192.0.2.1"), 0);
    let foreign = "\"failover-utils: \" \"no site up\"".to_owned();
    assert_eq!(scene.dig(APP, "TXT"), std::slice::from_ref(&foreign));
    scene.update(&format!("{APP} --remove"), 0);
    assert_eq!(scene.dig(APP, "TXT"), [foreign, "\"failover-utils: no site up\"".to_owned()]);
}

/// What failed is tried again at its time, also while lines for other names come.
#[test]
fn other_names_do_not_put_a_retry_off() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let failing = Arc::new(AtomicBool::new(true));
    let fails = failing.clone();
    let server = relay(
        &scene.client,
        before(move |question| {
            let is_of_app = question.windows(5).any(|bytes| bytes == b"\x03app\x04");
            !(is_of_app && fails.load(Ordering::SeqCst))
        }),
    );
    let mut stream = scene.client.start_fed(&scene.line(&format!("--server {server} --follow")));
    stream.feed(&answer(APP, "A", &["192.0.2.1"], ""));
    stream.wait_for("the failure", LIMIT, |record| record["error"].is_object());
    failing.store(false, Ordering::SeqCst);
    let mut lines = 0;
    eventually("it is tried again", LIMIT, || {
        stream.feed(&answer("www.gslb.test", "A", &[&format!("192.0.2.{}", lines % 200 + 1)], ""));
        lines += 1;
        std::thread::sleep(Duration::from_millis(100));
        stream.so_far().iter().any(|record| record["after"] == json!(["192.0.2.1"]) && record["subject"] == APP)
    });
}

/// A server that is silent holds up neither a signal nor the end that was planned.
#[test]
fn the_end_of_a_run_cuts_a_step_short() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let silent = || {
        let held = Arc::new(AtomicBool::new(false));
        let noted = held.clone();
        let hangs = move |question: &[u8]| {
            if is_update(question) {
                noted.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_secs(600));
            }
            true
        };
        (relay(&scene.client, before(hangs)), held)
    };
    for (more, code) in [("--wait", -15), ("--for 2s --wait", 0)] {
        let (server, held) = silent();
        let mut stream = scene.client.start_fed(&scene.line(&format!("--server {server} --follow {more}")));
        stream.feed(&answer(APP, "A", &["192.0.2.1"], ""));
        eventually("it sends", LIMIT, || held.load(Ordering::SeqCst));
        let began = std::time::Instant::now();
        if code < 0 {
            stream.signal(nix::sys::signal::Signal::SIGTERM);
        }
        assert_eq!(stream.ends(LIMIT), code);
        // By itself the step would take 15 s.
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        assert!(stream.complaints().contains("may be done yet"), "{}", stream.complaints());
        assert_eq!(stream.so_far()[0]["error"]["reason"], "timed-out");
    }
}

/// All names of one step are carried out although the first record finds no reader, or no room.
#[test]
fn a_step_is_done_for_all_names_before_it_is_told() {
    let scene = Scene::new("");
    let names = ["a.gslb.test", "b.gslb.test", "c.gslb.test"];
    for (last, to) in [(1, ">/dev/full"), (2, "| sed -n 1q")] {
        let address = format!("192.0.2.{last}");
        let input: String = names.iter().map(|name| answer(name, "A", &[&address], "")).collect();
        let file = scene.client.folder.join("input");
        fs::write(&file, input).unwrap();
        let line = scene.line("--follow");
        let (dns, folder) = (support::binary("dns"), scene.client.folder.display());
        scene.client.try_sh(&format!(
            "FAILOVER_STATE_DIR={folder}/state {} {} <{} {to}",
            dns.display(),
            line.trim_start_matches("dns "),
            file.display()
        ));
        for name in names {
            assert_eq!(scene.dig(name, "A"), [address.as_str()], "{to}");
        }
    }
}

/// A stream that loses a race tells it, and does not race again before the next answer.
#[test]
fn a_stream_does_not_take_back_what_another_won() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let (ns, key) = (scene.client.ns.clone(), scene.key.clone());
    let once = AtomicBool::new(false);
    let server = relay(
        &scene.client,
        before(move |question| {
            if is_update(question) && !once.swap(true, Ordering::SeqCst) {
                nsupdate(&ns, &key, "update delete app.gslb.test A\nupdate add app.gslb.test 6 A 192.0.2.99");
            }
            true
        }),
    );
    let mut stream = scene.client.start_fed(&scene.line(&format!("--server {server} --follow")));
    stream.feed(&answer(APP, "A", &["192.0.2.1"], ""));
    stream.wait_for("the loss", LIMIT, |record| record["error"]["reason"] == "conflict");
    stream.feed(&answer("www.gslb.test", "A", &["192.0.2.1"], ""));
    stream.wait_for("another name", LIMIT, |record| record["subject"] == "www.gslb.test");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.99"]);
    stream.feed(&answer(APP, "A", &["192.0.2.1"], ""));
    stream.wait_for("the next", LIMIT, |record| record["before"] == json!(["192.0.2.99"]) && record["changed"] == true);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.1"]);
}

/// What stands at a name only by a wildcard is no race that somebody else has won.
#[test]
fn a_name_below_a_wildcard_gets_records_of_its_own() {
    let scene = Scene::new("* 30 A 192.0.2.80\n* 30 TXT \"wild\"\n");
    let made = scene.one(&format!("{APP} 192.0.2.81"), 0);
    assert_eq!(
        (&made["before"], &made["after"], &made["changed"]),
        (&json!(["192.0.2.80"]), &json!(["192.0.2.81"]), &true.into())
    );
    assert_eq!(
        (scene.dig("other.gslb.test", "A"), scene.dig(APP, "A")),
        (vec!["192.0.2.80".to_owned()], vec!["192.0.2.81".to_owned()])
    );
    scene.update("dead.gslb.test --remove", 0);
    assert_eq!(scene.header("dead.gslb.test", "A"), "NOERROR answer 0 authority 1");
    // The mark is its only text, so a text of the wildcard is not one of its own.
    assert_eq!(scene.dig("dead.gslb.test", "TXT"), ["\"failover-utils: no site up\""]);
    assert_eq!(scene.update("dead.gslb.test --remove", 0).records()[0]["changed"], false);
}

/// What a wildcard gives a name and is not to change goes on to be there, in both families.
#[test]
fn what_a_wildcard_gave_is_kept_beside_what_changes() {
    const FOUR: &str = "192.0.2.81";
    const SIX: &str = "2001:db8::81";
    let scene =
        Scene::new(&format!("*.wild 30 A {FOUR}\n*.wild 30 AAAA {SIX}\n*.wild MX 5 mail\n*.four 30 A {FOUR}\n"));
    for (name, more, of_a, of_aaaa) in [
        ("a.wild", "192.0.2.82 --add", vec![FOUR, "192.0.2.82"], vec![SIX]),
        ("b.wild", "192.0.2.82", vec!["192.0.2.82"], vec![SIX]),
        ("c.wild", "192.0.2.81 --remove", vec![], vec![SIX]),
        ("d.wild", "--remove", vec![], vec![]),
        ("e.four", "2001:db8::82", vec![FOUR], vec!["2001:db8::82"]),
        ("f.four", "2001:db8::82 --add", vec![FOUR], vec!["2001:db8::82"]),
        ("g.four", "192.0.2.81 --remove", vec![], vec![]),
    ] {
        let name = format!("{name}.gslb.test");
        let promised = scene.update(&format!("{name} {more} --dry-run"), 0).records()[0]["after"].clone();
        let run = scene.update(&format!("{name} {more}"), 0);
        for record in run.records() {
            let wanted = if record["qtype"] == "A" { &of_a } else { &of_aaaa };
            assert_eq!((&record["after"], &record["wildcard"]), (&json!(wanted), &true.into()), "{run:?}");
        }
        assert_eq!(run.records().iter().find(|record| record["after"] == promised).map(|_| ()), Some(()), "{run:?}");
        assert_eq!((scene.dig(&name, "A"), scene.dig(&name, "AAAA")), (texts(&of_a), texts(&of_aaaa)), "{name}");
        assert_eq!(scene.dig(&name, "TXT").len(), usize::from(of_a.is_empty() && of_aaaa.is_empty()), "{name}");
        // From then on it is a name as any other.
        let again = scene.update(&format!("{name} {more}"), 0);
        assert!(again.records()[0].get("wildcard").is_none(), "{again:?}");
        assert_eq!(again.records()[0]["changed"], false);
    }
    // What stands there as wished is left to the wildcard.
    let run = scene.update(&format!("h.wild.gslb.test {FOUR}"), 0);
    assert!(run.one()["changed"] == false && run.one().get("wildcard").is_none(), "{run:?}");
    assert_eq!(scene.dig("h.wild.gslb.test", "MX").len(), 1);
}

fn texts(addresses: &[&str]) -> Vec<String> {
    addresses.iter().map(|address| (*address).to_owned()).collect()
}

/// A server that answers each key from a view of its own: what is read is what is changed. Over IPv6, too.
#[test]
fn a_key_reads_and_changes_its_own_view() {
    let lab = Lab::new();
    let ns1 = lab.host("ns1", &[&format!("{NS1}/24"), "2001:db8::53/64"]);
    let client = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    let keys = [key(&client, "emea"), key(&client, "apac")];
    let mut views = String::new();
    for (name, key) in ["emea", "apac"].iter().zip(&keys) {
        let zone = ns1.folder.join(name);
        fs::write(
            &zone,
            format!("$ORIGIN gslb.test.\n$TTL 30\n@ SOA ns1 host 1 3600 600 86400 15\n@ NS ns1\nns1 A {NS1}\napp A 192.0.2.81\n"),
        )
        .unwrap();
        write!(
            views,
            "{}\nview {name} {{ match-clients {{ key {name}; }}; zone gslb.test {{ type primary; file \"{}\"; allow-update {{ key {name}; }}; }}; }};\n",
            fs::read_to_string(key).unwrap(),
            zone.display()
        )
        .unwrap();
    }
    let rest = ns1.folder.join("rest");
    fs::copy(ns1.folder.join("emea"), &rest).unwrap();
    writeln!(views, "view rest {{ zone gslb.test {{ type primary; file \"{}\"; }}; }};", rest.display()).unwrap();
    let _named = support::dns::named(&ns1, NS1, &views);
    for (key, last) in keys.iter().zip([82, 83]) {
        for changed in [true, false] {
            let line = format!("dns update {APP} 192.0.2.{last} --server [2001:db8::53]:53 --tsig-key {key}");
            let record = client.run(&line).ended(0).one();
            assert_eq!((&record["changed"], &record["after"]), (&changed.into(), &json!([format!("192.0.2.{last}")])));
        }
        let said = client.sh(&format!("dig +short -k {key} @{NS1} {APP} A"));
        assert_eq!(said.trim(), format!("192.0.2.{last}"));
    }
    assert_eq!(client.sh(&format!("dig +short @{NS1} {APP} A")).trim(), "192.0.2.81");
}

#[test]
fn five_hundred_addresses_are_one_set() {
    let scene = Scene::new("");
    let many: Vec<String> = (0..512).map(|n| format!("198.51.{}.{}", n / 200, n % 200 + 1)).collect();
    let many = many.join(" ");
    let record = scene.one(&format!("{APP} {many}"), 0);
    assert_eq!(record["after"].as_array().unwrap().len(), 512);
    assert_eq!(scene.one(&format!("{APP} {many}"), 0)["changed"], false);
    scene.one(&format!("{APP} 198.51.0.2 --remove"), 0);
    assert_eq!(scene.dig(APP, "A").len(), 511);
}

/// A message holds 65,535 octets: what fits is done whole, however long the name, and what does not is not sent.
#[test]
fn an_update_that_fits_no_message_is_not_sent() {
    let scene = Scene::new("");
    let many = |from: u32, count: u32| -> String {
        let octets = (from..from + count).map(|n| (0xc612_0000 + n).to_be_bytes());
        octets.map(|[a, b, c, d]| format!(" {a}.{b}.{c}.{d}")).collect()
    };
    let long = format!("{}.gslb.test", ["x".repeat(60).as_str(); 3].join("."));
    for (from, count) in [(0, 600), (300, 650), (0, 2500)] {
        let record = scene.one(&format!("{long}{}", many(from, count)), 0);
        assert_eq!(record["after"].as_array().unwrap().len(), usize::try_from(count).unwrap());
    }
    assert_eq!(scene.dig(&long, "A").len(), 2500);
    let serial = scene.serial();
    for more in ["", " --dry-run"] {
        let run = scene.update(&format!("{long}{}{more}", many(3000, 2500)), 6);
        let record = run.one();
        assert_eq!((&record["error"]["reason"], &record["changed"]), (&"bad-input".into(), &false.into()));
        assert!(run.stderr.contains("a DNS message holds 65,535 (give the name fewer"), "{run:?}");
    }
    assert_eq!(scene.serial(), serial);
}

/// A pipeline of two streams: what one site's end changes, and what others change meanwhile is set right.
#[test]
fn a_stream_of_answers_is_a_stream_of_updates() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let dns = support::binary("dns").display().to_string();
    let verdicts = scene.client.folder.join("verdicts");
    scene.client.sh(&format!("mkfifo {}", verdicts.display()));
    let update = scene.line("--follow");
    let pipeline = scene.client.start_shell(&format!(
        "export FAILOVER_STATE_DIR={}/state; {dns} answer {APP} --site paris,192.0.2.21 --site rome,192.0.2.22 \
         --all-down empty --follow --renew 100ms <>{} | {dns} {}",
        scene.client.folder.display(),
        verdicts.display(),
        update.trim_start_matches("dns ")
    ));
    let says = |site: &str, status: &str| {
        fs::write(&verdicts, format!("{{\"subject\":\"{site}\",\"status\":\"{status}\"}}\n")).unwrap();
    };
    let has = |addresses: &[&str]| eventually("the name has them", LIMIT, || scene.dig(APP, "A") == addresses);
    says("paris", "up");
    has(&["192.0.2.21"]);
    says("rome", "up");
    has(&["192.0.2.21", "192.0.2.22"]);
    says("paris", "down");
    has(&["192.0.2.22"]);
    scene.nsupdate("update delete app.gslb.test A");
    has(&["192.0.2.22"]);
    says("rome", "down");
    eventually("nobody serves", LIMIT, || scene.header(APP, "A") == "NOERROR answer 0 authority 1");
    assert!(pipeline.text().contains("\"after\":[\"192.0.2.22\"]"), "{}", pipeline.text());
}

/// Two runs never interleave, and one that was killed leaves nothing in the way.
#[test]
fn a_killed_run_blocks_nobody() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let held = Arc::new(AtomicBool::new(false));
    let noted = held.clone();
    let server = relay(
        &scene.client,
        before(move |question| {
            if is_update(question) {
                noted.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_secs(600));
            }
            true
        }),
    );
    let mut running = scene.client.start(&scene.line(&format!("{APP} 192.0.2.82 --server {server} --timeout 1m")));
    eventually("it sends", LIMIT, || held.load(Ordering::SeqCst));
    let second = scene.update(&format!("{APP} 192.0.2.83 --timeout 300ms"), 75);
    assert_eq!(second.one()["error"]["reason"], "lock-held");
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.81"]);
    scene.one("www.gslb.test 192.0.2.83", 0);
    running.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(running.ends(LIMIT), -9);
    scene.one(&format!("{APP} 192.0.2.83"), 0);
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.83"]);
}

#[test]
fn files_and_pipes_that_fail_are_told() {
    let scene = Scene::new("app 30 A 192.0.2.81\n");
    let line = scene.line(&format!("{APP} 192.0.2.82"));
    fs::set_permissions(&scene.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(scene.client.run(&line).ended(6).stderr.contains("others may read it"));
    fs::set_permissions(&scene.key, fs::Permissions::from_mode(0o600)).unwrap();
    let link = scene.client.folder.join("zero");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    for path in ["/dev/shm", &link.display().to_string()] {
        let run = scene.client.run(&line.replace(&scene.key, path)).ended(6);
        assert!(run.stderr.contains("no regular file") && !run.stderr.contains("chmod"), "{run:?}");
    }
    // By number, where nobody but the caller can open it.
    let by_number = scene.client.sh(&format!(
        "FAILOVER_STATE_DIR={}/state {} {} 4<{}",
        scene.client.folder.display(),
        support::binary("dns").display(),
        line.trim_start_matches("dns ").replace(&scene.key, "fd:4"),
        scene.key
    ));
    assert!(by_number.contains("\"changed\":true"), "{by_number}");
    // Another user, who may not read it.
    let mut nobody = std::process::Command::new("nsenter");
    nobody.arg(format!("--net=/run/netns/{}", scene.client.ns)).args(["setpriv", "--reuid=65534", "--clear-groups"]);
    let words = line.split_whitespace().skip(1).map(str::to_owned);
    let copy = std::env::temp_dir().join(format!("failover-dns-{}", std::process::id()));
    fs::copy(support::binary("dns"), &copy).unwrap();
    nobody.arg(&copy).args(words);
    scene.client.environment(&mut nobody);
    let run = Run::new("as nobody", nobody.output().unwrap());
    fs::remove_file(&copy).unwrap();
    assert!(run.code == 6 || run.code == 4, "{run:?}");
    assert!(run.stderr.contains("cannot") && run.stderr.contains("ddns.key") && run.stdout.is_empty(), "{run:?}");
    // A state folder without room: nothing is sent.
    let full = scene.client.folder.join("full");
    scene.client.sh(&format!("mkdir -p {0} && mount -t tmpfs -o size=4k,nr_inodes=1 none {0}", full.display()));
    let mut command = scene.client.command(&scene.line(&format!("{APP} 192.0.2.90")));
    command.env("FAILOVER_STATE_DIR", &full);
    let run = Run::new("full", command.output().unwrap());
    scene.client.sh(&format!("umount {}", full.display()));
    let run = run.ended(71);
    assert!(run.stderr.contains("No space left") && run.one()["error"]["errno"] == "ENOSPC", "{run:?}");
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.82"]);
    // A reader that has left changes no answer; a full device is told.
    let dns = support::binary("dns");
    let words = scene.line(&format!("{APP} 192.0.2.91"));
    let words = words.trim_start_matches("dns ");
    let state = format!("FAILOVER_STATE_DIR={}/state", scene.client.folder.display());
    let (_, said) = scene.client.try_sh(&format!("({state} {} {words}; echo status $? >&2) | true", dns.display()));
    assert_eq!(said, "status 0\n");
    assert_eq!(scene.dig(APP, "A"), ["192.0.2.91"]);
    let (ok, said) = scene.client.try_sh(&format!("{state} {} {words} >/dev/full", dns.display()));
    assert!(!ok && said.contains("standard output"), "{said}");
}

/// A thousand changes of every kind, some of them by nsupdate: dig, our records and a model say the same.
#[test]
fn a_thousand_updates_leave_what_a_model_has() {
    const TIMES: u32 = 1000;
    let scene = Scene::new("");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut model: [[BTreeSet<String>; 2]; 2] = Default::default();
    let names = ["a.gslb.test", "b.gslb.test"];
    let mut by_nsupdate = 0;
    for turn in 0..TIMES {
        let which = draw(2);
        let name = names[which];
        let of = |family: usize, last: usize| {
            if family == 0 { format!("192.0.2.{last}") } else { format!("2001:db8::{last}") }
        };
        let families = [vec![0], vec![1], vec![0, 1]][draw(3)].clone();
        let given: Vec<BTreeSet<String>> = (0..2)
            .map(|family| {
                (0..=draw(3)).map(|_| of(family, 1 + draw(4))).filter(|_| families.contains(&family)).collect()
            })
            .collect();
        let words: Vec<&str> = given.iter().flatten().map(String::as_str).collect();
        let how = draw(10);
        if how == 0 {
            by_nsupdate += 1;
            let family = families[0];
            let qtype = ["A", "AAAA"][family];
            let mut lines = format!("update delete {name} {qtype}\n");
            for address in &given[family] {
                writeln!(lines, "update add {name} 5 {qtype} {address}").unwrap();
            }
            scene.nsupdate(lines.trim_end());
            model[which][family].clone_from(&given[family]);
            continue;
        }
        let flag = match how {
            1..=4 => "",
            5..=7 => "--add",
            _ => "--remove",
        };
        let run = scene.update(&format!("{name} {} {flag}", words.join(" ")), 0);
        for family in families {
            let set = &mut model[which][family];
            match flag {
                "" => set.clone_from(&given[family]),
                "--add" => set.extend(given[family].iter().cloned()),
                _ => set.retain(|address| !given[family].contains(address)),
            }
            let record = run.records().into_iter().find(|record| record["qtype"] == ["A", "AAAA"][family]).unwrap();
            let after: BTreeSet<String> =
                record["after"].as_array().unwrap().iter().map(|a| a.as_str().unwrap().to_owned()).collect();
            assert_eq!(after, model[which][family], "turn {turn}: {run:?}");
        }
        if turn % 20 == 0 || turn + 1 == TIMES {
            for (name, sets) in names.iter().zip(&model) {
                for (set, qtype) in sets.iter().zip(["A", "AAAA"]) {
                    assert_eq!(scene.dig(name, qtype).into_iter().collect::<BTreeSet<_>>(), *set, "turn {turn}");
                }
            }
        }
    }
    assert!(by_nsupdate > 50, "{by_nsupdate}");
}
