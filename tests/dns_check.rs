//! `dns check` against BIND and Unbound, with dig and kdig as second witnesses, and against a server that lies.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::dns::{ZONE, key, named, primary, secondary, unbound};
use support::{Host, Lab, Running, eventually};

const LIMIT: Duration = Duration::from_secs(20);
const RECORDS: &str = "app 5 A 192.0.2.81\nlong 300 A 192.0.2.81\nwww 3600 CNAME app\ntext TXT x\nzero 0 A 192.0.2.1\n\
                       app 5 AAAA 2001:db8::81\n*.wild 60 A 192.0.2.7\na\\.b 60 A 192.0.2.8\n_x._tcp 60 A 192.0.2.9";
const NS: &str = "198.18.0.1";
const NS2: &str = "198.18.0.2";

/// BIND with the zone, a secondary that no resolver knows of, and the host that asks.
struct Net {
    lab: Lab,
    ns: Host,
    client: Host,
    primary: Running,
    _secondary: Running,
    _second: Host,
}

/// Caches count whole seconds, each its own, and a TTL that runs out on all of them is no event that could be
/// waited for: one that serves what has expired shows no difference.
fn a_second_passes() {
    std::thread::sleep(Duration::from_millis(1_100));
}

fn net() -> Net {
    let lab = Lab::new();
    let (ns, second) = (lab.host("ns", &["198.18.0.1/24"]), lab.host("ns2", &["198.18.0.2/24"]));
    let client = lab.host("client", &["198.18.0.100/24"]);
    let primary = primary(&ns, NS, None, &key(&ns, "k"), RECORDS);
    let secondary = secondary(&second, NS2, NS);
    Net { lab, ns, client, primary, _secondary: secondary, _second: second }
}

impl Net {
    /// Resolvers of these settings, each with a host of its own, from 198.18.0.10 on.
    fn resolvers(&self, settings: &[(&str, &str)]) -> Vec<(Host, Running, String)> {
        let start = |(at, (access, settings)): (usize, &(&str, &str))| {
            let addr = format!("198.18.0.{}", 10 + at);
            let host = self.lab.host(&format!("r{at}"), &[&format!("{addr}/24")]);
            let server = unbound(&host, &addr, NS, access, settings);
            (host, server, addr)
        };
        settings.iter().enumerate().map(start).collect()
    }

    fn check(&self, line: &str, code: i32) -> Vec<Value> {
        self.client.run(&format!("dns check {line}")).ended(code).records()
    }
}

/// The records of servers, by the end of the list that `dns.agree` is.
fn class(records: &[Value], server: &str) -> (String, Vec<String>) {
    let record = of(records, server);
    let words =
        |value: &Value| value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    (record["class"].as_str().unwrap().to_owned(), words(&record["evidence"]))
}

fn of<'a>(records: &'a [Value], server: &str) -> &'a Value {
    let found = records.iter().find(|record| record["kind"] == "dns.check" && record["server"] == server);
    found.unwrap_or_else(|| panic!("no {server} in {records:#?}"))
}

fn agree(records: &[Value]) -> &Value {
    let last = records.last().unwrap();
    assert_eq!(last["kind"], "dns.agree");
    last
}

const SETTINGS: [&str; 4] = ["", "  cache-min-ttl: 60", "  serve-expired: yes", "  serve-original-ttl: yes"];

/// Each setting twice: its cache may be looked into, or not.
fn all_settings() -> Vec<(&'static str, &'static str)> {
    ["allow_snoop", "allow"].into_iter().flat_map(|access| SETTINGS.map(|settings| (access, settings))).collect()
}

/// Issue 5's list: before the first question, once cached, after its end, and when the authority has died.
#[test]
fn each_setting_of_unbound_is_classed_right_as_an_answer_ages() {
    let mut net = net();
    let resolvers = net.resolvers(&all_settings());
    let addrs: Vec<&str> = resolvers.iter().map(|(_, _, addr)| addr.as_str()).collect();
    let line = format!("app.{ZONE} --authority {NS},{NS2} --resolver {}", addrs.join(","));
    let told =
        |records: &[Value]| -> Vec<(String, Vec<String>)> { addrs.iter().map(|addr| class(records, addr)).collect() };
    let has = |told: &(String, Vec<String>), word: &str| told.1.iter().any(|evidence| evidence == word);

    let first = net.check(&line, 0);
    assert_eq!(class(&first, NS), ("live".to_owned(), vec!["aa".to_owned()]));
    let seen = told(&first);
    // The cache was empty, and that is seen where it may be looked into; a floor hides it for a while.
    for at in [0, 2, 3] {
        assert_eq!(seen[at], ("live".to_owned(), vec!["rd0-empty".to_owned(), "rd0-answer-after".to_owned()]), "{at}");
    }
    assert!(seen[1].0 == "cached" && has(&seen[1], "ttl-above-authority") && has(&seen[1], "ttl-falls"), "{seen:?}");
    for at in [4, 5, 6] {
        assert!(seen[at].0 == "cached" && has(&seen[at], "ttl-falls") && has(&seen[at], "rd0-refused"), "{seen:?}");
    }
    assert_eq!(seen[7].0, "unknown", "{seen:?}");
    assert!(has(&seen[7], "ttl-constant"), "{seen:?}");

    // Known-fault 10: a resolver that keeps longer than the source says tells how long.
    let long = net.client.run(&format!("dns check app.{ZONE} --authority {NS} --resolver {} --gap 0s", addrs[1]));
    assert_eq!(of(&long.records(), addrs[1])["authority_ttl_s"], 5);

    let long = line.replace("app.", "long.");
    net.check(&long, 0);
    a_second_passes();
    let seen = told(&net.check(&long, 0));
    for (at, seen) in seen.iter().enumerate() {
        match at {
            // It hands out the authority's TTL all the time: in the cache by its own word, else nobody can say.
            3 => assert_eq!(*seen, ("cached".to_owned(), vec!["rd0-answer".to_owned()])),
            7 => assert!(seen.0 == "unknown" && has(seen, "ttl-constant"), "{seen:?}"),
            _ => assert!(seen.0 == "cached" && has(seen, "ttl-below-authority"), "{at}: {seen:?}"),
        }
    }

    // Its end has passed, the authority lives: one that serves what has expired does it once.
    eventually("the answer expires", LIMIT, || dig(&net.client, addrs[0], &format!("app.{ZONE}"), "+norec").is_empty());
    a_second_passes();
    let seen = told(&net.check(&line, 0));
    assert_eq!(seen[0].0, "live", "{seen:?}");
    for at in [2, 6] {
        assert!(seen[at].0 == "stale" && has(&seen[at], "ttl-refreshed"), "{at}: {seen:?}");
    }
    assert!(
        seen.iter().enumerate().all(|(at, seen)| seen.0 != "live" || at != 3 || has(seen, "rd0-empty")),
        "{seen:?}"
    );
    assert!(seen[1].0 == "cached" && seen[5].0 == "cached" && seen[7].0 == "unknown", "{seen:?}");

    // The authority that they know has died; another still tells what is right.
    net.primary = net.ns.start_shell("true");
    eventually("the answer expires", LIMIT, || dig(&net.client, addrs[0], &format!("app.{ZONE}"), "+norec").is_empty());
    eventually("the answer expires", LIMIT, || dig(&net.client, addrs[3], &format!("app.{ZONE}"), "+norec").is_empty());
    a_second_passes();
    let dead = net.check(&format!("{line} --response-timeout 3s"), 0);
    let seen = told(&dead);
    assert_eq!(class(&dead, NS).1, ["silent"]);
    assert!(seen[2].0 == "stale" && has(&seen[2], "ttl-constant"), "{seen:?}");
    assert!(seen[6].0 == "unknown" && has(&seen[6], "ttl-above-authority"), "{seen:?}");
    assert!(seen[1].0 == "cached" && seen[5].0 == "cached", "{seen:?}");
    assert_eq!(of(&dead, addrs[2]).get("stale_at_most_ms"), None);
    assert!(of(&dead, addrs[1])["stale_at_most_ms"].as_f64().unwrap() > 10_000.0);
    for at in [0, 3, 4, 7] {
        assert_eq!(seen[at].0, "unknown", "{at}: {seen:?}");
    }
    assert_eq!(agree(&dead)["sets"].as_array().unwrap().len(), 1);
    assert!(agree(&dead)["silent"].as_array().unwrap().contains(&json!(NS)));
}

fn dig(host: &Host, server: &str, name: &str, more: &str) -> String {
    host.sh(&format!("dig +noall +answer +tries=1 +time=3 {more} @{server} {name} || true"))
}

/// Without an error beside it and without another look an expired answer is like any other in the cache.
#[test]
fn an_expired_answer_is_not_called_cached_by_one_look() {
    let mut net = net();
    let resolvers = net.resolvers(&[("allow_snoop", "  serve-expired: yes")]);
    let r = &resolvers[0].2;
    let line = format!("app.{ZONE} --authority {NS2} --resolver {r}");
    net.check(&line, 0);
    net.primary = net.ns.start_shell("true");
    eventually("the answer expires", LIMIT, || {
        dig(&net.client, r, &format!("app.{ZONE}"), "+norec").contains("\t30\t")
    });
    let one = class(&net.check(&format!("{line} --gap 0s"), 0), r);
    assert_eq!(
        (one.0.as_str(), one.1.as_slice()),
        ("unknown", ["rd0-answer", "ttl-above-authority"].map(String::from).as_slice())
    );
    assert_eq!(class(&net.check(&line, 0), r).0, "stale");
}

/// A cap, and a forwarder in front of a cache: both fetched it for this question, and one of them from a cache.
#[test]
fn a_cap_and_a_cache_behind_a_forwarder_look_alike() {
    let net = net();
    let resolvers = net.resolvers(&[("allow_snoop", "  cache-max-ttl: 60"), ("allow_snoop", "")]);
    let (capped, behind) = (&resolvers[0].2, &resolvers[1].2);
    let front = net.lab.host("front", &["198.18.0.20/24"]);
    let conf = front.folder.join("forward.conf");
    std::fs::write(
        &conf,
        format!(
            "options {{ directory \"{}\"; pid-file none; session-keyfile none; listen-on {{ any; }}; recursion yes; \
             allow-recursion {{ any; }}; allow-query-cache {{ any; }}; dnssec-validation no; }};\ncontrols {{ }};\n\
             zone \"{ZONE}\" {{ type forward; forward only; forwarders {{ {behind}; }}; }};\n",
            front.folder.display()
        ),
    )
    .unwrap();
    let _front = front.start_shell(&format!("exec named -g -n 1 -c {}", conf.display()));
    eventually("named forwards", LIMIT, || {
        front.try_sh(&format!("dig +short +tries=1 +time=1 @198.18.0.20 {ZONE} SOA")).1.contains("host")
    });
    let line = format!("long.{ZONE} --authority {NS} --gap 0s");
    net.check(&format!("{line} --resolver {behind}"), 0);
    a_second_passes();
    let told = net.check(&format!("{line} --resolver {capped},198.18.0.20"), 0);
    for addr in [capped, "198.18.0.20"] {
        let words = ["rd0-empty", "ttl-below-authority", "rd0-answer-after"].map(String::from);
        assert_eq!(class(&told, addr), ("unknown".to_owned(), words.to_vec()), "{addr}");
    }
}

/// dnsmasq passes one of two equal questions on, and gives what comes to both: of a cache that is slow enough, and
/// refuses questions without recursion or answers them with nothing.
#[test]
fn a_forwarder_that_merges_questions_is_asked_once_more() {
    let lab = Lab::new();
    let (server, front) = (lab.host("ns", &["198.18.0.1/24"]), lab.host("front", &["198.18.0.20/24"]));
    let client = lab.host("client", &["198.18.0.100/24"]);
    let (on, thread) = liar(&server, |socket, to, question| {
        let mut answer = truth(question, 1);
        answer[2] &= !0x04;
        if question[2] & 1 == 0 {
            answer.truncate(answer.len() - 16);
            answer[7] = 0;
            answer[3] = if question[13] == b'r' { 5 } else { 0 };
            std::thread::sleep(Duration::from_millis(100));
        }
        socket.send_to(&answer, to).unwrap();
    });
    let _dnsmasq = front.start_shell(
        "exec dnsmasq --keep-in-foreground --no-resolv --no-hosts --conf-file=/dev/null --user=root --pid-file= \
         --cache-size=0 --server=198.18.0.1",
    );
    eventually("dnsmasq listens", LIMIT, || front.sh("ss -Hlnu").contains(":53"));
    for name in ["refuses", "empty"] {
        let line = format!("dns check {name}.example.org --authority 198.18.0.1 --resolver 198.18.0.20 --gap 0s");
        let told = client.run(&line).ended(75).records();
        assert_eq!(of(&told, "198.18.0.20")["answers"], json!(["192.0.2.1"]), "{told:#?}");
    }
    on.store(false, Ordering::SeqCst);
    thread.join().unwrap();
}

/// RFC 8914: a server that says so needs no proof.
#[test]
fn an_extended_error_tells_of_an_expired_answer() {
    let mut net = net();
    let ede = "  serve-expired: yes\n  ede: yes\n  ede-serve-expired: yes";
    let slow = "  serve-expired: yes\n  serve-expired-client-timeout: 500";
    let resolvers = net.resolvers(&[("allow_snoop", ede), ("allow", ede), ("allow_snoop", slow)]);
    let addrs: Vec<&str> = resolvers.iter().map(|(_, _, addr)| addr.as_str()).collect();
    let line = format!("app.{ZONE} --authority {NS2} --resolver {} --response-timeout 4s", addrs.join(","));
    assert!(net.check(&line, 0).iter().all(|record| record["class"] != "stale"));
    net.primary = net.ns.start_shell("true");
    eventually("the answer expires", LIMIT, || dig(&net.client, addrs[0], &format!("app.{ZONE}"), "").contains("30"));
    let at_third = || dig(&net.client, addrs[2], &format!("app.{ZONE}"), "+norecurse");
    eventually("the third's too", LIMIT, || at_third().is_empty());
    let dead = net.check(&line, 0);
    for addr in &addrs[..2] {
        let record = of(&dead, addr);
        assert_eq!((&record["class"], &record["ede"][0]["code"]), (&json!("stale"), &json!(3)), "{record}");
    }
    // It waits for the authority first, and shows nothing of what has expired to a question without recursion.
    assert_ne!(class(&dead, addrs[2]).0, "live", "{dead:#?}");
    assert_ne!(class(&dead, addrs[2]).0, "cached", "{dead:#?}");
}

#[test]
fn an_authority_is_found_by_the_zone_and_each_address_of_it_is_asked() {
    let lab = Lab::new();
    let ns = lab.host("ns", &["198.18.0.1/24", "2001:db8:18::1/64"]);
    let (client, r) =
        (lab.host("client", &["198.18.0.100/24", "2001:db8:18::100/64"]), lab.host("r", &["198.18.0.10/24"]));
    let records = format!("{RECORDS}\nns1 AAAA 2001:db8:18::1\nfar 60 CNAME there.other.test.");
    let _primary = primary(&ns, NS, None, &key(&ns, "k"), &records);
    let _unbound = unbound(&r, "198.18.0.10", NS, "allow_snoop", "");
    let found = client.run(&format!("dns check www.{ZONE} --resolver 198.18.0.10")).ended(0).records();
    let servers: Vec<&Value> = found[..3].iter().map(|record| &record["server"]).collect();
    assert_eq!(servers, [NS, "2001:db8:18::1", "198.18.0.10"]);
    assert!(found[..2].iter().all(|record| record["class"] == "live" && record["answers"] == json!(["192.0.2.81"])));
    // The alias is kept for an hour, what it leads to for five seconds.
    let resolver = &found[2];
    assert_eq!(resolver["authority_ttl_s"], 5);
    let most = resolver["stale_at_most_ms"].as_f64().unwrap();
    assert!((3_500_000.0..=3_601_000.0).contains(&most), "{resolver}");
    // IPv6 alone.
    let v6 =
        client.run(&format!("dns check app.{ZONE} --type AAAA --authority [2001:db8:18::1]:53")).ended(0).records();
    assert_eq!((&v6[0]["answers"], &v6[0]["qtype"]), (&json!(["2001:db8::81"]), &json!("AAAA")));
    // No such zone: a record that says so, and no status that says yes.
    let lost = client.run("dns check www.nowhere.net --resolver 198.18.0.10 --response-timeout 1s").ended(75).records();
    let auto = of(&lost, "auto");
    assert!(auto["error"]["message"].as_str().unwrap().contains("--authority ADDR"), "{auto}");
    assert_eq!((&auto["error"]["reason"], &auto["role"]), (&json!("no-such-name"), &json!("authority")));
    // What leads out of the zone has no answer there.
    let far = client.run(&format!("dns check far.{ZONE} --authority {NS}")).ended(75).records();
    assert_eq!(class(&far, NS).1, ["aa", "alias-elsewhere"]);
}

#[test]
fn names_of_every_form_are_asked_for_and_without_records_the_soa_counts() {
    let net = net();
    let resolvers = net.resolvers(&[("allow_snoop", "")]);
    let r = &resolvers[0].2;
    let many = format!("{ZONE}\n*.wild.{ZONE}\nx.wild.{ZONE}\n_x._tcp.{ZONE}\na\\.b.{ZONE}.\nAPP.{ZONE}\napp.{ZONE}\n");
    let run = net.client.run_with(&format!("dns check - --authority {NS} --resolver {r} --gap 0s"), &many).ended(0);
    let agrees: Vec<Value> = run.records().into_iter().filter(|record| record["kind"] == "dns.agree").collect();
    assert_eq!(agrees.len(), 6, "one a name, in lower case");
    for (name, answers) in
        [("*.wild", json!(["192.0.2.7"])), ("x.wild", json!(["192.0.2.7"])), ("a\\.b", json!(["192.0.2.8"]))]
    {
        let agree = agrees.iter().find(|agree| agree["subject"] == format!("{name}.{ZONE}")).unwrap();
        assert_eq!(agree["sets"][0]["answers"], answers, "{agree}");
    }
    let bad = net.client.run_with(&format!("dns check - --authority {NS}"), &format!("app.{ZONE}\na..b\n")).ended(6);
    assert!(bad.stderr.contains("line 2") && bad.records().len() == 2, "{bad:?}");
    // Neither a name that is not there nor one without addresses has any: NXDOMAIN and NODATA, with the SOA's TTL.
    for (name, rcode) in [("none", "NXDOMAIN"), ("text", "NOERROR")] {
        let line = format!("{name}.{ZONE} --authority {NS} --resolver {r} --gap 0s");
        let first = net.check(&line, 0);
        assert_eq!((&of(&first, r)["rcode"], &of(&first, r)["class"]), (&json!(rcode), &json!("live")), "{first:#?}");
        assert_eq!((&of(&first, NS)["ttl_s"], &agree(&first)["sets"][0]["answers"]), (&json!(15), &json!([])));
        assert_eq!(class(&net.check(&line, 0), r).0, "cached");
    }
    let zero = format!("zero.{ZONE} --authority {NS} --resolver {r}");
    assert_eq!(of(&net.check(&zero, 0), r)["ttl_s"], 0);
}

#[test]
fn a_server_that_is_lame_refuses_fails_or_is_off_is_an_entry_and_no_failure() {
    let net = net();
    let resolvers = net.resolvers(&[("allow_snoop", ""), ("allow", "  local-zone: \"bad.test.\" always_refuse")]);
    let (r, refusing) = (&resolvers[0].2, &resolvers[1].2);
    // 198.18.0.100 is on, and nobody listens there; nothing has 198.18.0.250.
    let line = format!("app.{ZONE} --authority {NS},198.18.0.100 --resolver {r},198.18.0.250 --response-timeout 1s");
    let told = net.check(&line, 0);
    let off = of(&told, "198.18.0.100");
    assert_eq!(
        (&off["error"]["errno"], &off["class"], &off["rcode"]),
        (&json!("ECONNREFUSED"), &json!("unknown"), &Value::Null)
    );
    assert_eq!(of(&told, "198.18.0.250")["evidence"], json!(["silent"]));
    assert_eq!(agree(&told)["silent"], json!(["198.18.0.100", "198.18.0.250"]));
    // Lame: the resolver is no authority, whether it has the answer or not; BIND has no other zone.
    let lame = net.check(&format!("app.{ZONE} --authority {r}"), 75);
    assert_eq!(class(&lame, r).1[0], "not-authoritative");
    assert_eq!(of(&lame, r)["aa"], false);
    let refused = net.check(&format!("www.other.test --authority {NS}"), 75);
    assert_eq!(
        (class(&refused, NS).1, &of(&refused, NS)["rcode"]),
        (vec!["refused".into(), "not-authoritative".into()], &json!("REFUSED"))
    );
    let failed =
        net.check(&format!("www.bad.test --authority {NS} --resolver {refusing},{r} --response-timeout 2s"), 75);
    assert_eq!(of(&failed, refusing)["class"], "unknown");
    assert_eq!(agree(&failed)["sets"], json!([]));
    // They disagree: an old zone on another server.
    let other = net.lab.host("old", &["198.18.0.3/24"]);
    std::fs::write(
        other.folder.join("z"),
        "$TTL 5\n@ SOA ns1 host 1 1 1 1 1\n@ NS ns1\nns1 A 198.18.0.3\napp A 192.0.2.99\n",
    )
    .unwrap();
    let zone = format!("zone \"{ZONE}\" {{ type primary; file \"{}\"; }};", other.folder.join("z").display());
    let _old = named(&other, "198.18.0.3", &zone);
    // No such name there, no such record here.
    let empty = net.check(&format!("text.{ZONE} --authority {NS},198.18.0.3"), 1);
    assert_eq!(agree(&empty)["sets"].as_array().unwrap().len(), 2, "{empty:?}");
    let apart = net.check(&format!("app.{ZONE} --authority {NS},198.18.0.3"), 1);
    assert_eq!((&agree(&apart)["status"], agree(&apart)["sets"].as_array().unwrap().len()), (&json!("down"), 2));
}

#[test]
fn five_hundred_addresses_come_over_tcp_and_the_witnesses_see_the_same() {
    let lab = Lab::new();
    let (ns, r, client) = (
        lab.host("ns", &["198.18.0.1/24"]),
        lab.host("r", &["198.18.0.10/24"]),
        lab.host("client", &["198.18.0.100/24"]),
    );
    let mut records = format!("{RECORDS}\nmail 60 MX 10 app\nhex 60 TXT \"a b\" \"c\"");
    for at in 0..512 {
        let _ = write!(records, "\nmany 30 A 10.0.{}.{}", at / 256, at % 256);
    }
    let _primary = primary(&ns, NS, None, &key(&ns, "k"), &records);
    let _unbound = unbound(&r, "198.18.0.10", NS, "allow_snoop", "");
    let many = client.run(&format!("dns check many.{ZONE} --authority {NS} --resolver 198.18.0.10")).ended(0).records();
    for server in [NS, "198.18.0.10"] {
        assert_eq!(of(&many, server)["answers"].as_array().unwrap().len(), 512);
        assert_eq!(of(&many, server)["class"], "live", "{server}");
    }
    for (name, qtype, sections) in
        [("app", "A", 1), ("www", "A", 1), ("mail", "MX", 1), ("text", "A", 0), ("none", "A", 0), ("app", "NS", 0)]
    {
        let line = format!("dns check {name}.{ZONE} --type {qtype} --authority {NS} --message");
        let ours = client.run(&line).ended(0).records()[0]["message"].clone();
        let theirs: Value =
            serde_json::from_str(&client.sh(&format!("kdig +json +norec +edns=0 @{NS} {name}.{ZONE} {qtype}")))
                .unwrap();
        for key in [
            "QR",
            "Opcode",
            "AA",
            "TC",
            "RD",
            "RA",
            "AD",
            "CD",
            "RCODE",
            "QDCOUNT",
            "ANCOUNT",
            "NSCOUNT",
            "ARCOUNT",
            "QNAME",
            "QTYPE",
            "QTYPEname",
            "QCLASS",
            "QCLASSname",
        ] {
            assert_eq!(ours[key], theirs[key], "{name} {qtype}: {key}");
        }
        let section = |message: &Value, key: &str| -> Vec<(String, Value, Value, Value)> {
            let mut all: Vec<_> = message[key]
                .as_array()
                .unwrap_or(&Vec::new())
                .iter()
                .map(|one| {
                    (one["RDATAHEX"].to_string(), one["NAME"].clone(), one["TYPEname"].clone(), one["TTL"].clone())
                })
                .collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            all
        };
        assert!(section(&ours, "answerRRs").len() >= sections);
        for key in ["answerRRs", "authorityRRs"] {
            assert_eq!(section(&ours, key), section(&theirs, key), "{name} {qtype}: {key}");
        }
    }
    // The same addresses and TTL as dig's.
    let told = client
        .run(&format!("dns check app.{ZONE} --authority {NS} --resolver 198.18.0.10 --gap 0s"))
        .ended(0)
        .records();
    let dug = dig(&client, "198.18.0.10", &format!("app.{ZONE}"), "");
    let words: Vec<&str> = dug.split_whitespace().collect();
    assert_eq!(of(&told, "198.18.0.10")["answers"], json!([words[4]]));
    assert!(words[1].parse::<u64>().unwrap() <= of(&told, "198.18.0.10")["ttl_s"].as_u64().unwrap());
}

/// How a liar answers a question, which is handed to it as it came.
type Lie = fn(&UdpSocket, std::net::SocketAddr, &[u8]);

/// An answer to a question: one address, with the flags of an authority.
fn truth(question: &[u8], last: u8) -> Vec<u8> {
    // The question ends where its OPT record begins, which is all that follows it.
    let end = question.len() - 11;
    let mut answer = question[..end].to_vec();
    (answer[2], answer[3]) = (0x84 | question[2] & 1, 0);
    (answer[7], answer[11]) = (1, 0);
    answer.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02");
    answer.push(last);
    answer
}

/// A server that answers as `lie` does, until the flag falls.
fn liar(host: &Host, lie: Lie) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let on = Arc::new(AtomicBool::new(true));
    let (flag, ready) = (on.clone(), Arc::new(AtomicBool::new(false)));
    let listens = ready.clone();
    let thread = host.inside(move || {
        // A process that another test is about to start holds the port of the one before for a moment.
        let mut socket = UdpSocket::bind("0.0.0.0:53");
        eventually("the port is free", LIMIT, || {
            if socket.is_err() {
                socket = UdpSocket::bind("0.0.0.0:53");
            }
            socket.is_ok()
        });
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        listens.store(true, Ordering::SeqCst);
        let mut buffer = [0; 1500];
        while flag.load(Ordering::SeqCst) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                lie(&socket, from, &buffer[..length]);
            }
        }
    });
    eventually("it listens", LIMIT, || ready.load(Ordering::SeqCst));
    (on, thread)
}

static LIE: std::sync::Mutex<Option<Lie>> = std::sync::Mutex::new(None);

/// RFC 5452: what is not the answer to the question is as if it had not come.
#[test]
fn what_is_no_answer_is_not_taken_for_one() {
    let lab = Lab::new();
    let (server, client) = (lab.host("ns", &["198.18.0.1/24"]), lab.host("client", &["198.18.0.100/24"]));
    let wrong: [(&str, Lie); 6] = [
        ("another identifier", |socket, to, question| {
            let mut other = truth(question, 66);
            other[0] ^= 0x40;
            socket.send_to(&other, to).unwrap();
        }),
        ("another question", |socket, to, question| {
            let mut other = truth(question, 66);
            other[13] = b'x';
            socket.send_to(&other, to).unwrap();
        }),
        ("another source", |_, to, question| {
            UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&truth(question, 66), to).unwrap();
        }),
        ("a name that points at itself", |socket, to, question| {
            let mut other = truth(question, 66);
            let at = other.len() - 16;
            other[at + 1] = u8::try_from(at).unwrap();
            socket.send_to(&other, to).unwrap();
        }),
        ("half of it", |socket, to, question| {
            let other = truth(question, 66);
            socket.send_to(&other[..other.len() - 3], to).unwrap();
        }),
        ("the question itself, and noise", |socket, to, question| {
            socket.send_to(question, to).unwrap();
            socket.send_to(&[0xff; 700], to).unwrap();
            socket.send_to(&[], to).unwrap();
        }),
    ];
    for (what, lie) in wrong {
        let (on, thread) = liar(&server, lie);
        let run = client.run("dns check www.example.org --authority 198.18.0.1 --response-timeout 300ms").ended(75);
        assert_eq!(run.records()[0]["evidence"], json!(["silent"]), "{what}");
        // One with another identifier, or from elsewhere, is nobody's.
        let is_nobodys = matches!(what, "another identifier" | "another source");
        let why = if is_nobodys { "no answer within 300ms" } else { "what came is no answer" };
        let message = run.records()[0]["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(why), "{what}: {message}");
        on.store(false, Ordering::SeqCst);
        thread.join().unwrap();
        // The true one behind it counts.
        *LIE.lock().unwrap() = Some(lie);
        let (on, thread) = liar(&server, |socket, to, question| {
            LIE.lock().unwrap().unwrap()(socket, to, question);
            socket.send_to(&truth(question, 1), to).unwrap();
        });
        let run = client.run("dns check www.example.org --authority 198.18.0.1").ended(0);
        assert_eq!(run.records()[0]["answers"], json!(["192.0.2.1"]), "{what}");
        on.store(false, Ordering::SeqCst);
        thread.join().unwrap();
    }
}

static SEEN: std::sync::Mutex<Vec<Vec<u8>>> = std::sync::Mutex::new(Vec::new());

#[test]
fn a_lost_question_is_sent_again_and_a_late_answer_is_its_own() {
    let lab = Lab::new();
    let (server, client) = (lab.host("ns", &["198.18.0.1/24"]), lab.host("client", &["198.18.0.100/24"]));
    // The first copy of each is kept, and answered with the second one's answer behind it.
    let (on, thread) = liar(&server, |socket, to, question| {
        let mut seen = SEEN.lock().unwrap();
        if seen.iter().any(|before| before == question) {
            for (at, before) in seen.iter().enumerate() {
                socket.send_to(&truth(before, u8::try_from(at).unwrap() + 1), to).unwrap();
            }
        } else {
            seen.push(question.to_vec());
        }
    });
    let told = client.run("dns check a.example.org b.example.org --authority 198.18.0.1").ended(0).records();
    assert_eq!((&told[0]["answers"], &told[2]["answers"]), (&json!(["192.0.2.1"]), &json!(["192.0.2.2"])));
    assert!(told[0]["rtt_ms"].as_f64().unwrap() >= 1_000.0);
    let seen = SEEN.lock().unwrap();
    assert_ne!(seen[0][..2], seen[1][..2], "each has an identifier of its own");
    on.store(false, Ordering::SeqCst);
    drop(seen);
    thread.join().unwrap();
}

/// A server whose answer does not fit UDP, and whose TCP is shut, silent or cut off.
#[test]
fn a_truncated_answer_that_cannot_be_fetched_is_told_as_that() {
    let lab = Lab::new();
    let (server, client) = (lab.host("ns", &["198.18.0.1/24"]), lab.host("client", &["198.18.0.100/24"]));
    let (on, thread) = liar(&server, |socket, to, question| {
        let mut cut = truth(question, 1);
        cut[2] |= 0x02;
        socket.send_to(&cut, to).unwrap();
    });
    let why = || {
        let run = client.run("dns check www.example.org --authority 198.18.0.1 --response-timeout 500ms").ended(75);
        run.records()[0]["error"]["message"].as_str().unwrap().to_owned()
    };
    let refused = why();
    assert!(refused.contains("does not fit UDP, and nobody listens there for TCP"), "{refused}");
    let listener = server.inside(|| std::net::TcpListener::bind("0.0.0.0:53").unwrap()).join().unwrap();
    let silent = why();
    assert!(silent.contains("does not fit UDP, and none came over TCP within 500ms"), "{silent}");
    let closing = std::thread::spawn(move || {
        // The connection before waits to be taken, too.
        for _ in 0..2 {
            drop(listener.accept().unwrap());
        }
    });
    let closed = why();
    assert!(closed.contains("does not fit UDP, and it ends the connection over TCP"), "{closed}");
    closing.join().unwrap();
    on.store(false, Ordering::SeqCst);
    thread.join().unwrap();
    // Too few files for a socket each.
    let many: Vec<String> = (1..60).map(|at| format!("198.18.0.{at}")).collect();
    let (_, told) = client.try_sh(&format!(
        "prlimit --nofile=24 {} check www.example.org --response-timeout 300ms --authority {}",
        support::binary("dns").display(),
        many.join(",")
    ));
    assert!(told.contains("ulimit -n"), "{told}");
}

#[test]
fn a_thousand_names_at_five_servers_take_moments() {
    let lab = Lab::new();
    let (ns, client) = (lab.host("ns", &["198.18.0.1/24"]), lab.host("client", &["198.18.0.100/24"]));
    let mut records = RECORDS.to_owned();
    let mut names = String::new();
    for at in 0..1000 {
        let _ = write!(records, "\nn{at} 300 A 10.1.{}.{}", at / 250, at % 250);
        let _ = writeln!(names, "n{at}.{ZONE}");
    }
    let _primary = primary(&ns, NS, None, &key(&ns, "k"), &records);
    let resolvers: Vec<_> = (0..4)
        .map(|at| {
            let addr = format!("198.18.0.{}", 10 + at);
            let host = lab.host(&format!("r{at}"), &[&format!("{addr}/24")]);
            let server = unbound(&host, &addr, NS, "allow_snoop", "");
            (host, server, addr)
        })
        .collect();
    let all: Vec<&str> = resolvers.iter().map(|(_, _, addr)| addr.as_str()).collect();
    let line = format!("dns check - --authority {NS} --resolver {} --gap 0s --response-timeout 10s", all.join(","));
    let run = client.run_with(&line, &names).ended(0);
    let told = run.records();
    assert_eq!(told.len(), 6_000);
    assert!(
        told.iter()
            .filter(|record| record["kind"] == "dns.agree")
            .all(|agree| agree["status"] == "up" && agree["silent"] == json!([]))
    );
    assert!(told.iter().filter(|record| record["role"] == "resolver").all(|record| record["class"] != "unknown"));
}

#[test]
fn a_stream_goes_on_says_what_is_the_same_and_ends_with_its_reader() {
    let net = net();
    let resolvers = net.resolvers(&[("allow_snoop", "")]);
    let r = &resolvers[0].2;
    let mut stream = net.client.start(&format!(
        "dns check long.{ZONE} --authority {NS} --resolver {r} --follow --interval 300ms --gap 0s --for 30s"
    ));
    let agreed =
        stream.wait_for("a renewal", LIMIT, |record| record["kind"] == "dns.agree" && record["renewal"] == true);
    assert!(agreed["valid_for_ms"].as_f64().unwrap() > 0.0 && agreed["status"] == "up");
    net.ns.sh(&format!("printf 'server {NS}\\nupdate delete long.{ZONE} A\\nupdate add long.{ZONE} 300 A 192.0.2.99\\nsend\\n' | nsupdate -k {}", net.ns.folder.join("k.key").display()));
    let apart = stream.wait_for("disagreement", LIMIT, |record| record["status"] == "down");
    assert!(apart.get("renewal").is_none() && apart["sets"].as_array().unwrap().len() == 2, "{apart}");
    stream.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(stream.ends(LIMIT), -15);
    let short = net
        .client
        .run(&format!("dns check long.{ZONE} --authority {NS} --follow --interval 100ms --for 350ms"))
        .ended(0);
    assert!(short.records().len() >= 4, "{short:?}");
    // A reader that takes one line.
    let mut child = net
        .client
        .command(&format!("dns check app.{ZONE} --authority {NS} --follow --interval 50ms"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    assert!(line.ends_with("}\n"));
    let end = child.wait_with_output().unwrap();
    assert_eq!((end.status.code(), String::from_utf8(end.stderr).unwrap().as_str()), (Some(0), ""));
    let table = net.client.run(&format!("dns check app.{ZONE} --authority {NS} --table")).ended(0).stdout;
    assert!(table.contains("CLASS") && table.contains("live") && table.lines().count() == 3, "{table}");
}

/// Whatever --gap says, the end is the end, and what the first look gave counts.
#[test]
fn the_end_comes_on_time_and_keeps_the_first_look() {
    let net = net();
    let floor = net.resolvers(&[("allow", "  serve-original-ttl: yes"), ("allow_snoop", "  cache-min-ttl: 60")]);
    let (r, floor) = (&floor[0].2, &floor[1].2);
    let line = format!("dns check long.{ZONE} --authority {NS} --resolver {r}");
    for (more, code) in
        [("--timeout 1s --gap 20s", 75), ("--follow --for 1s --gap 20s", 0), ("--follow --timeout 1s --gap 20s", 0)]
    {
        let began = Instant::now();
        let told = net.client.run(&format!("{line} {more}")).ended(code).records();
        assert!(began.elapsed() < Duration::from_secs(15), "{more}");
        assert_eq!(agree(&told)["silent"], json!([]), "{more}");
        let record = of(&told, r);
        assert_eq!((&record["answers"], record.get("error")), (&json!(["192.0.2.81"]), None), "{more}");
    }
    // What one look has proven is not open, though another would have told more.
    let app = format!("app.{ZONE} --authority {NS} --resolver {floor}");
    net.check(&format!("{app} --gap 0s"), 0);
    assert_eq!(class(&net.check(&format!("{app} --timeout 1s --gap 20s"), 0), floor).0, "cached");
    // A server that has not answered by then is told as that.
    let off = format!("app.{ZONE} --authority {NS},198.18.0.250 --timeout 1s");
    let off = net.check(&off, 0);
    let error = &of(&off, "198.18.0.250")["error"];
    assert!(error["message"].as_str().unwrap().contains("before --timeout was over"), "{error}");
    assert_eq!((&error["errno"], &error["reason"]), (&json!("ETIMEDOUT"), &json!("timed-out")));
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let lab = Lab::new();
    let host = lab.host("n1", &[]);
    for (line, why) in [
        ("dns check", "required"),
        ("dns check a..b --authority 192.0.2.1", "not a name"),
        ("dns check www.org --authority ns.example.org", "nor auto"),
        ("dns check www.org --authority 192.0.2.1 --resolver 192.0.2.1:0", "is not ADDR"),
        ("dns check www.org --authority 192.0.2.1 --type B", "is not a type"),
        ("dns check www.org --authority 192.0.2.1 --type ANY", "not of records"),
        ("dns check www.org --authority 192.0.2.1 --interval 0s --follow", "--interval"),
        ("dns check www.org --authority 192.0.2.1 --gap 2", "is not a duration"),
        ("dns check - - --authority 192.0.2.1", "only once"),
    ] {
        let refused = host.run(line).ended(2);
        assert!(refused.stderr.contains(why) && refused.stdout.is_empty(), "{refused:?}");
    }
    let mut empty = host.command("dns check");
    let empty = empty.args(["", "--authority", "192.0.2.1"]).output().unwrap();
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
    assert!(String::from_utf8_lossy(&empty.stderr).contains("the root is '.'"), "{empty:?}");
    let dash = host.run_with("dns check - --authority 192.0.2.1", "-\n").ended(6);
    assert!(dash.stderr.contains("line 1") && dash.stdout.is_empty(), "{dash:?}");
    // No network at all: each server has its record.
    let alone = host.run("dns check www.org --authority 192.0.2.1 --resolver 192.0.2.2").ended(75);
    assert!(alone.records()[..2].iter().all(|record| record["error"]["errno"] == "ENETUNREACH"), "{alone:?}");
}
