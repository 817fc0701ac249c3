//! `health` against real servers, links and kernels in network namespaces.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Host, Lab, Run, Running, binary, eventually};

const SECOND: Duration = Duration::from_secs(1);
/// Settings that come to a verdict in a fraction of a second.
const QUICK: &str = "--interval 100ms --response-timeout 80ms";

fn two() -> (Lab, Host, Host) {
    let lab = Lab::new();
    let n1 = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
    let n2 = lab.host("n2", &["192.0.2.2/24", "2001:db8::2/64"]);
    (lab, n1, n2)
}

/// Listens in a host's network for as long as the value lives.
fn listen(host: &Host, at: &'static str) -> TcpListener {
    host.inside(move || TcpListener::bind(at).unwrap()).join().unwrap()
}

fn drop_from(host: &Host, what: &str) {
    host.sh(&format!(
        "nft 'add table inet t; add chain inet t i {{ type filter hook input priority 0; }}; add rule inet t i {what}'"
    ));
}

fn status(record: &Value) -> &str {
    record["status"].as_str().unwrap_or_default()
}

fn is(status: &str) -> impl Fn(&Value) -> bool + '_ {
    move |record| record["status"] == status
}

/// Runs a shell line with `health` in PATH, in a host's network.
fn shell(host: &Host, line: &str) -> Run {
    shell_with(host, line, &[])
}

/// The same with arguments.
fn shell_with(host: &Host, line: &str, arguments: &[&Path]) -> Run {
    let mut command = Command::new("nsenter");
    command.args([&format!("--net=/run/netns/{}", host.ns), "bash", "-c", line, "bash"]).stdin(Stdio::null());
    command.args(arguments);
    host.environment(&mut command);
    let folder = binary("health").parent().unwrap().display().to_string();
    command.env("PATH", format!("{folder}:/usr/sbin:/usr/bin:/sbin:/bin"));
    Run::new(line, command.output().unwrap())
}

// Over the network.

#[test]
fn tcp_is_up_where_it_accepts_and_down_at_once_where_it_refuses() {
    let (_lab, n1, n2) = two();
    let _listener = listen(&n2, "[::]:80");
    for target in ["192.0.2.2:80", "[2001:db8::2]:80"] {
        let up = n1.run(&format!("health tcp {target}")).ended(0).one();
        assert_eq!((status(&up), &up["port"], &up["attempts"]), ("up", &80.into(), &1.into()), "{up}");
        assert!(up["connect_ms"].as_f64().unwrap() > 0.0);
    }
    for target in ["192.0.2.2:81", "[2001:db8::2]:81"] {
        let run = n1.run(&format!("health tcp {target}"));
        assert_eq!(run.stderr, "", "a no is an answer");
        let down = run.ended(1).one();
        assert_eq!((&down["failure"], &down["attempts"]), (&"refused".into(), &1.into()), "{down}");
    }
    // The way to go by.
    n1.run("health tcp 192.0.2.2:80 --dev eth0 --source 192.0.2.1").ended(0);
}

/// known-faults 8: what never left the host is unknown, with the reason.
#[test]
fn what_cannot_be_asked_is_unknown_and_never_down() {
    let (_lab, n1, _n2) = two();
    for (line, code, reason) in [
        ("health tcp 192.0.2.2:80 --dev eth9", 5, "no-such-interface"),
        ("health tcp 192.0.2.2:80 --source 192.0.2.99", 71, "refused"),
        ("health tcp nosuch.invalid:80", 75, "no-such-name"),
        ("health ping 192.0.2.2 --dev eth9", 5, "no-such-interface"),
        ("health ping fe80::1%eth9", 5, "no-such-interface"),
        ("health http http://nosuch.invalid/", 75, "no-such-name"),
        ("health dns www.example.org --server 192.0.2.53 --dev eth9", 5, "no-such-interface"),
        ("health link eth9", 5, "no-such-interface"),
        ("health exec -- /nonexistent/program", 5, "no-such-program"),
        ("health disk /nonexistent", 5, "no-such-path"),
        ("health exec -- /etc/passwd", 5, "no-such-program"),
    ] {
        let run = n1.run(line).ended(code);
        let record = run.one();
        assert_eq!((status(&record), &record["error"]["reason"]), ("unknown", &reason.into()), "{record}");
        assert_eq!(record["failure"], "local");
        assert_eq!(record["error"]["code"], code);
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    }
}

#[test]
fn silence_is_down_after_all_retries_and_not_before() {
    let (_lab, n1, n2) = two();
    let _listener = listen(&n2, "[::]:80");
    drop_from(&n2, "tcp dport 80 drop");
    let started = Instant::now();
    let down = n1.run(&format!("health tcp 192.0.2.2:80 {QUICK}")).ended(1).one();
    assert!(started.elapsed() >= Duration::from_millis(280), "two intervals and a time-out");
    assert_eq!((&down["failure"], &down["attempts"]), (&"timeout".into(), &3.into()));
    assert_eq!(down["detect_ms"], json!({"min": 280.0, "max": 380.0}));
    let once = n1.run(&format!("health tcp 192.0.2.2:80 --retries 1 {QUICK}")).ended(1).one();
    assert_eq!((&once["attempts"], &once["detect_ms"]["min"]), (&1.into(), &80.0.into()));
    let of = n1.run(&format!("health tcp 192.0.2.2:80 --k-of-n 2/5 --fast-interval 10ms {QUICK}")).ended(1).one();
    assert_eq!((&of["attempts"], &of["detect_ms"]), (&2.into(), &json!({"min": 160.0, "max": 260.0})), "{of}");
    for wrong in ["--k-of-n 3/2", "--k-of-n 0/2", "--fast-interval 10s", "--interval 0s", "--interval 5", "--retries 0"]
    {
        n1.run(&format!("health tcp 192.0.2.2:80 {wrong}")).ended(2);
    }
    // The deadline of the run comes first: nothing is known.
    let run = n1.run("health tcp 192.0.2.2:80 --timeout 300ms").ended(75);
    assert_eq!(status(&run.one()), "unknown");
    // No route: the kernel says so itself.
    let unreachable = n1.run("health tcp 198.51.100.1:80 --retries 1").ended(1).one();
    assert_eq!(unreachable["failure"], "unreachable");
}

/// A checker that was not scheduled does not take its own pause for an answer, nor for none.
#[test]
fn a_checker_that_stood_still_still_comes_to_its_verdict() {
    let (_lab, n1, n2) = two();
    drop_from(&n2, "tcp dport 80 drop");
    let mut check = n1.start("health tcp 192.0.2.2:80 --retries 1 --response-timeout 300ms");
    std::thread::sleep(Duration::from_millis(100));
    check.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(2));
    check.signal(Signal::SIGCONT);
    assert_eq!(check.ends(5 * SECOND), 1, "{:?} {}", check.so_far(), check.complaints());
}

/// The defaults, for real: 12.0 s after the first failed probe started.
#[test]
fn a_silent_target_takes_twelve_seconds() {
    let (_lab, n1, n2) = two();
    drop_from(&n2, "tcp dport 80 drop");
    let started = Instant::now();
    let down = n1.run("health tcp 192.0.2.2:80").ended(1).one();
    let took = started.elapsed();
    assert!(took >= 12 * SECOND && took < 16 * SECOND, "{took:?}");
    assert_eq!(down["detect_ms"], json!({"min": 12_000.0, "max": 17_000.0}));
}

#[test]
fn a_stream_tells_a_fault_and_its_end_and_pauses_between() {
    let (_lab, n1, n2) = two();
    let listener = listen(&n2, "[::]:80");
    let stream = n1.start(&format!("health tcp 192.0.2.2:80 --follow --down-time 700ms {QUICK}"));
    stream.wait_for("up", 5 * SECOND, is("up"));
    stream.wait_for("a renewal", 5 * SECOND, |record| record["renewal"] == true);
    drop(listener);
    let down = stream.wait_for("down", 5 * SECOND, is("down"));
    assert_eq!((&down["failure"], &down["renewal"]), (&"refused".into(), &Value::Null));
    let _listener = listen(&n2, "[::]:80");
    let up = stream.wait_for("up again", 5 * SECOND, |record| {
        record["status"] == "up" && record["since"].as_str() > down["since"].as_str()
    });
    let gap = up["received_ms"].as_f64().unwrap() - down["received_ms"].as_f64().unwrap();
    assert!(gap >= 700.0, "no probe in the down time: {gap}");
    // The down verdict was renewed meanwhile, so that it did not expire.
    let renewed = stream.so_far().into_iter().filter(|record| record["status"] == "down").count();
    assert!(renewed >= 3, "{renewed}");
}

#[test]
fn a_stream_that_ends_within_its_first_look_says_so() {
    let (_lab, n1, n2) = two();
    drop_from(&n2, "tcp dport 80 drop");
    let run = n1.run("health tcp 192.0.2.2:80 --follow --interval 50ms --response-timeout 10s --for 300ms").ended(75);
    assert_eq!(status(&run.one()), "unknown");
}

#[test]
fn ping_counts_what_comes_back_in_both_families() {
    let (_lab, n1, n2) = two();
    for target in ["192.0.2.2", "2001:db8::2"] {
        let up = n1.run(&format!("health ping {target} --count 3 --echo-interval 10ms")).ended(0).one();
        assert_eq!((&up["sent"], &up["received"], &up["loss_pct"]), (&3.into(), &3.into(), &0.0.into()), "{up}");
        assert!(up["rtt_min_ms"].as_f64() <= up["rtt_max_ms"].as_f64());
    }
    // (a) all echoes lost.
    drop_from(&n2, "icmp type echo-request drop");
    let down = n1.run(&format!("health ping 192.0.2.2 {QUICK}")).ended(1).one();
    assert_eq!((&down["failure"], &down["loss_pct"]), (&"timeout".into(), &100.0.into()), "{down}");
    // Some are lost: by the limit.
    n2.sh("nft flush chain inet t i && nft add rule inet t i icmp type echo-request numgen inc mod 2 0 drop");
    let line = "health ping 192.0.2.2 --count 4 --echo-interval 10ms --retries 1 --response-timeout 300ms";
    assert_eq!(n1.run(line).ended(0).one()["loss_pct"], 50.0);
    n1.run(&format!("{line} --max-loss 49")).ended(1);
}

/// known-faults 8 b: an answer that is none.
#[test]
fn unreachable_is_down_with_all_lost() {
    let (_lab, n1, n2) = two();
    drop_from(&n2, "icmp type echo-request reject with icmp host-unreachable");
    let started = Instant::now();
    let down = n1.run("health ping 192.0.2.2 --retries 1").ended(1).one();
    assert_eq!((&down["failure"], &down["loss_pct"]), (&"unreachable".into(), &100.0.into()), "{down}");
    assert!(started.elapsed() < SECOND, "it did not wait for what was said already");
}

/// The words that run `health` as an ordinary user.
fn as_nobody(host: &Host) -> String {
    let folder = host.folder.join("open");
    fs::create_dir_all(&folder).unwrap();
    // The build's folder may be closed to others.
    fs::copy(binary("health"), folder.join("health")).unwrap();
    format!("setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all {}/health", folder.display())
}

#[test]
fn an_ordinary_user_pings_where_the_kernel_allows_it_and_is_told_where_not() {
    let (_lab, n1, _n2) = two();
    let health = as_nobody(&n1);
    let ping = |range: &str| {
        n1.sh(&format!("sysctl -qw net.ipv4.ping_group_range='{range}'"));
        shell(&n1, &format!("{health} ping 192.0.2.2 --retries 1"))
    };
    assert_eq!(status(&ping("0 2147483647").ended(0).one()), "up");
    let refused = ping("1 0").ended(4);
    assert_eq!(status(&refused.one()), "unknown");
    assert!(refused.stderr.contains("CAP_NET_RAW"), "{refused:?}");
}

/// nginx in a host's network, on 80 and 443.
fn nginx(host: &Host) -> Running {
    let folder = host.folder.join("nginx");
    fs::create_dir_all(folder.join("www")).unwrap();
    let path = folder.display();
    fs::write(folder.join("san"), "subjectAltName=IP:192.0.2.2\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    host.sh(&format!(
        "cd {path} && openssl req -x509 {key} -days 2 -subj /CN=ca -keyout ca.key -out ca 2>&1 &&
         openssl req {key} -subj /CN=n2 -keyout key -out request 2>&1 &&
         openssl x509 -req -in request -CA ca -CAkey ca.key -days 2 -extfile san -out cert 2>&1"
    ));
    fs::write(folder.join("www/big"), vec![b'x'; 3 << 20]).unwrap();
    fs::write(
        folder.join("conf"),
        format!(
            "pid {path}/pid; error_log {path}/error; user root; daemon off; events {{}}
             http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;
               fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
               server {{ listen 80 default_server; listen [::]:80; root {path}/www;
                 location = /ok {{ return 200 'all is well'; }}
                 location = /fail {{ return 503 'no'; }}
                 location = /moved {{ return 301 /ok; }} }}
               server {{ listen 80; server_name other; location / {{ return 200 'the other'; }} }}
               server {{ listen 443 ssl; ssl_certificate {path}/cert; ssl_certificate_key {path}/key;
                 location / {{ return 200 'in secret'; }} }} }}"
        ),
    )
    .unwrap();
    let server = host.start_shell(&format!("exec nginx -p {path} -c {path}/conf"));
    eventually("nginx listens", 10 * SECOND, || host.sh("ss -Hlnt").contains(":443"));
    server
}

#[test]
fn http_is_judged_by_status_and_text() {
    let (_lab, n1, n2) = two();
    let _nginx = nginx(&n2);
    for (line, code, http_status, matched) in [
        ("http://192.0.2.2/ok", 0, 200, Value::Null),
        ("http://[2001:db8::2]/ok", 0, 200, Value::Null),
        ("http://192.0.2.2/ok --match well", 0, 200, true.into()),
        ("http://192.0.2.2/ok --match ill", 1, 200, false.into()),
        ("http://192.0.2.2/fail", 1, 503, Value::Null),
        ("http://192.0.2.2/fail --expect-status 500-599", 0, 503, Value::Null),
        ("http://192.0.2.2/moved", 0, 301, Value::Null),
        ("http://192.0.2.2/moved --expect-status 200", 1, 301, Value::Null),
        ("http://other/ --connect 192.0.2.2 --match other", 0, 200, true.into()),
        ("http://none.invalid:1/ok --connect [2001:db8::2]:80 --match well", 0, 200, true.into()),
        ("http://192.0.2.2/big --match y", 1, 200, false.into()),
    ] {
        let record = n1.run(&format!("health http --retries 1 {line}")).ended(code).one();
        assert_eq!((&record["http_status"], &record["matched"]), (&http_status.into(), &matched), "{line}: {record}");
        if code == 1 {
            assert_eq!(record["failure"], "bad-answer", "{record}");
        }
    }
    let refused = n1.run("health http http://192.0.2.2:81/").ended(1).one();
    assert_eq!(refused["failure"], "refused");
    let ca = n2.folder.join("nginx/ca");
    let known = n1.run(&format!("health http https://192.0.2.2/ --ca {} --match secret", ca.display()));
    assert_eq!(known.ended(0).one()["matched"], true);
    let stranger = n1.run("health http https://192.0.2.2/ --retries 1").ended(1).one();
    assert_eq!(stranger["failure"], "bad-answer");
    assert!(stranger["reason"].as_str().unwrap().contains("certificate"), "{stranger}");
    for line in [
        "ftp://192.0.2.2/",
        "192.0.2.2",
        "http://192.0.2.2/ --expect-status 20",
        "http://192.0.2.2:99999/",
        "http://[fe80::1]/",
    ] {
        n1.run(&format!("health http {line}")).ended(2);
    }
    // What `openssl req -x509` makes is no certificate of a server.
    let own = ca.display();
    let _server = n2.start_shell(&format!("exec openssl s_server -quiet -accept 444 -cert {own} -key {own}.key -www"));
    eventually("openssl listens", 10 * SECOND, || n2.sh("ss -Hlnt").contains(":444"));
    let selfsigned = n1.run(&format!("health http https://192.0.2.2:444/ --retries 1 --ca {own}")).ended(1).one();
    assert!(selfsigned["reason"].as_str().unwrap().contains("a CA has signed"), "{selfsigned}");
    n1.run("health http https://192.0.2.2/ --ca /nonexistent/ca.pem").ended(6);
    // The password is the server's business alone.
    for (url, code) in
        [("http://me:secret@192.0.2.2/ok", 0), ("http://me:secret@192.0.2.2:81/", 1), ("http://me:secret@x:0/", 2)]
    {
        let run = n1.run(&format!("health http {url}")).ended(code);
        assert!(!run.stdout.contains("secret") && !run.stderr.contains("secret"), "{run:?}");
    }
}

/// An address that each link may have needs its link.
#[test]
fn a_link_local_address_is_reached_by_its_interface() {
    let (_lab, n1, n2) = two();
    let _nginx = nginx(&n2);
    let told = n2.sh("ip -6 -o addr show dev eth0 scope link");
    let addr =
        told.split_whitespace().find(|word| word.starts_with("fe80")).unwrap().split('/').next().unwrap().to_owned();
    eventually("it is no longer tentative", 10 * SECOND, || {
        !n2.sh("ip -6 -o addr show dev eth0").contains("tentative")
    });
    eventually("nor is ours", 10 * SECOND, || !n1.sh("ip -6 -o addr show dev eth0").contains("tentative"));
    for line in [format!("tcp [{addr}]:80"), format!("ping {addr}"), format!("dns x --server {addr}")] {
        let run = n1.run(&format!("health {line}")).ended(2);
        assert!(run.stderr.contains("name the interface"), "{run:?}");
    }
    n1.run(&format!("health tcp [{addr}]:80%eth0")).ended(0);
    n1.run(&format!("health tcp [{addr}]:80 --dev eth0")).ended(0);
    let up = n1.run(&format!("health http http://[{addr}%25eth0]/ok --match well")).ended(0).one();
    assert_eq!(up["subject"], format!("http://[{addr}%25eth0]/ok"));
    n1.run(&format!("health http http://[{addr}%25eth9]/ok")).ended(5);
}

/// A resolver that is gone takes no longer than a look may.
#[test]
fn a_name_that_nobody_looks_up_in_time_is_unknown() {
    let (_lab, n1, n2) = two();
    drop_from(&n2, "udp dport 53 drop");
    let conf = n1.folder.join("resolv.conf");
    fs::write(&conf, "nameserver 192.0.2.2\n").unwrap();
    for line in ["tcp www.example.org:80", "http http://www.example.org/", "ping www.example.org"] {
        let line = format!("health {line} --retries 1 --response-timeout 300ms");
        let run =
            shell_with(&n1, &format!("unshare -m sh -c 'mount --bind $1 /etc/resolv.conf && {line}' sh $1"), &[&conf]);
        assert!(run.stderr.contains("did not answer in the time given"), "{run:?}");
        assert_eq!(run.ended(75).one()["error"]["reason"], "no-such-name");
    }
}

/// A server that says nothing, one that never ends, and one that talks nonsense.
#[test]
fn a_server_that_does_not_play_by_the_rules_costs_no_more_than_the_time_out() {
    let (_lab, n1, n2) = two();
    let listener = listen(&n2, "192.0.2.2:80");
    std::thread::spawn(move || {
        use std::io::Write;
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            match number {
                0 => std::mem::forget(stream),
                1 => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    while stream.write_all(b"1\r\nx\r\n").is_ok() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                2 => {
                    let _ = stream.write_all(b"nonsense\r\n\r\n");
                }
                3 => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx");
                }
                _ => {}
            }
        }
    });
    for failure in ["timeout", "timeout", "bad-answer"] {
        let started = Instant::now();
        let down = n1.run("health http http://192.0.2.2/ --retries 1 --response-timeout 300ms").ended(1).one();
        assert_eq!(down["failure"], failure, "{down}");
        assert!(started.elapsed() < 3 * SECOND);
    }
    for broken_off in ["in mid-answer", "before it"] {
        let down = n1.run("health http http://192.0.2.2/").ended(1).one();
        assert_eq!((&down["failure"], &down["attempts"]), (&"reset".into(), &1.into()), "{broken_off}: {down}");
    }
}

#[test]
fn dns_asks_over_udp_and_over_tcp_where_it_does_not_fit() {
    let (_lab, n1, n2) = two();
    let long: Vec<String> = (0..40).map(|number| format!("--txt-record=long.example.org,{number:0>60}")).collect();
    let _server = n2.start_shell(&format!(
        "exec dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --user=root --pid-file \
         --host-record=www.example.org,192.0.2.10,2001:db8::10 --host-record=www.example.org,192.0.2.11 \
         --local=/example.org/ {}",
        long.join(" ")
    ));
    eventually("dnsmasq listens", 10 * SECOND, || n2.sh("ss -Hlnu").contains(":53"));
    let ask =
        |line: &str, code: i32| n1.run(&format!("health dns {line} --server 192.0.2.2 --retries 1")).ended(code).one();
    let up = ask("WWW.Example.org. --expect 192.0.2.11,192.0.2.10", 0);
    assert_eq!(up["answers"], json!(["192.0.2.10", "192.0.2.11"]));
    assert_eq!((&up["subject"], &up["rcode"]), (&"www.example.org".into(), &"NOERROR".into()));
    assert_eq!(ask("www.example.org --type AAAA", 0)["answers"], json!(["2001:db8::10"]));
    assert_eq!(ask("www.example.org --expect 192.0.2.12", 1)["failure"], "bad-answer");
    assert_eq!(ask("nosuch.example.org", 1)["rcode"], "NXDOMAIN");
    assert_eq!(ask("other.invalid", 1)["rcode"], "REFUSED");
    let long = ask("long.example.org --type TXT", 0);
    assert_eq!(long["answers"].as_array().unwrap().len(), 40, "over TCP: {long}");
    n1.run("health dns www.example.org --server 192.0.2.2:54").ended(1);
    n1.run("health dns a..b --server 192.0.2.2").ended(2);
    n1.run("health dns a --type NONSENSE --server 192.0.2.2").ended(2);
}

// What this host knows about itself.

#[test]
fn a_link_is_down_without_carrier_and_a_stream_hears_of_it_at_once() {
    let (lab, n1, _n2) = two();
    let up = n1.run("health link eth0").ended(0).one();
    assert_eq!((&up["carrier"], &up["operstate"]), (&true.into(), &"up".into()));
    // Longer than the test: only the kernel's word can be what is told.
    let stream = n1.start("health link eth0 --follow --interval 1h");
    let first = stream.wait_for("up", 5 * SECOND, is("up"));
    assert_eq!(first["detect_ms"], json!({"min": 0.0, "max": 0.0}));
    lab.on_switch("ip link set n1.eth0 down");
    let down = stream.wait_for("down", 5 * SECOND, is("down"));
    assert_eq!(down["carrier"], false);
    assert_ne!(down["operstate"], "up");
    n1.run("health link eth0").ended(1);
    lab.on_switch("ip link set n1.eth0 up");
    stream.wait_for("up again", 5 * SECOND, |record| {
        is("up")(record) && record["since"].as_str() > down["since"].as_str()
    });
    n1.sh("ip link set eth0 down");
    assert_eq!(n1.run("health link eth0").ended(1).one()["operstate"], "down");
    n1.sh("ip link del eth0");
    let gone = stream.wait_for("gone", 5 * SECOND, |record| record["operstate"] == "notpresent");
    assert_eq!(status(&gone), "down", "it was there");
    n1.run("health link eth0").ended(5);
}

#[test]
fn figures_are_held_to_their_limits() {
    let (_lab, n1, _n2) = two();
    for (well, ill) in [
        ("load --limit 100000", "load --limit 0.0000001 --over 15"),
        ("memory --limit 1", "memory --limit 1000000T"),
        ("memory --limit 1%", "memory --limit 100%"),
        ("disk /proc --limit 100 --read-only", "disk / --limit 1"),
    ] {
        n1.run(&format!("health {well}")).ended(0).one();
        let down = n1.run(&format!("health {ill}")).ended(1).one();
        assert_eq!(down["failure"], "limit", "{down}");
    }
    for wrong in [
        "load --limit 0",
        "load --over 2",
        "memory --limit 1.5G",
        "memory --limit 0",
        "disk / --limit 0",
        "link",
        "tcp 192.0.2.2",
    ] {
        n1.run(&format!("health {wrong}")).ended(2);
    }
}

#[test]
fn a_read_only_file_system_is_down_unless_it_may_be() {
    let (_lab, n1, _n2) = two();
    let line = |more: &str| {
        let mount = n1.folder.join("ro");
        fs::create_dir_all(&mount).unwrap();
        let path = mount.display();
        shell(
            &n1,
            &format!("unshare -m sh -c 'mount -t tmpfs -o ro,size=1m tmpfs {path} && health disk {path} {more}'"),
        )
    };
    let down = line("").ended(1).one();
    assert_eq!((&down["read_only"], &down["failure"]), (&true.into(), &"read-only".into()), "{down}");
    line("--read-only").ended(0);
    // A path that this user may not reach.
    let closed = n1.folder.join("closed");
    fs::create_dir_all(closed.join("inner")).unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let refused = shell_with(&n1, &format!("{} disk $1/inner", as_nobody(&n1)), &[&closed]).ended(4);
    assert_eq!(refused.one()["error"]["reason"], "not-permitted", "{refused:?}");
}

/// known-faults 8 f: a file system whose server never answers.
#[test]
fn a_hung_mount_is_unknown_in_time_and_leaves_nothing_hanging() {
    let (_lab, n1, _n2) = two();
    let mount = n1.folder.join("hung");
    fs::create_dir_all(&mount).unwrap();
    let path = mount.display();
    // FUSE without anybody who reads its requests; it ends with the descriptor.
    let prepare = format!(
        "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hung {path} || exit 99"
    );
    let runs = "for i in 1 2 3 4 5 6 7 8 9 10; do
        health disk $1 --response-timeout 200ms || echo $? >&2; done
        sleep 0.2; pgrep --full -- \"disk --look -- $1\" | wc --lines >&2";
    fs::write(n1.folder.join("runs"), runs).unwrap();
    let started = Instant::now();
    let run = shell(&n1, &format!("unshare -m sh -c '{prepare}; . {}/runs' sh {path}", n1.folder.display()));
    assert!(started.elapsed() < 20 * SECOND, "{:?}", started.elapsed());
    let records = run.records();
    assert_eq!(records.len(), 10, "{run:#?}");
    assert!(records.iter().all(|record| status(record) == "unknown"), "{run:#?}");
    let said: Vec<&str> = run.stderr.lines().filter(|line| !line.starts_with("health disk:")).collect();
    assert_eq!(said, [&["75"; 10][..], &["0"]].concat(), "status each time, and no process left: {run:#?}");
}

#[test]
fn while_one_look_hangs_no_other_begins() {
    let (_lab, n1, _n2) = two();
    let path = n1.folder.join("state/lock/health-disk-_");
    n1.run("health disk / --limit 100 --read-only").ended(0);
    assert!(path.exists());
    let held = shell(&n1, &format!("flock {} health disk / --limit 100 --read-only", path.display())).ended(75);
    assert_eq!(status(&held.one()), "unknown");
    assert!(held.stderr.contains("still hangs"), "{held:?}");
}

/// known-faults 8 e.
#[test]
fn a_pid_file_counts_while_the_number_is_the_program_s() {
    let (_lab, n1, _n2) = two();
    let sleeper = n1.start_shell("exec sleep 1000");
    let other = n1.start_shell("exec tail -f /dev/null");
    let file = |name: &str, text: &str| {
        let path = n1.folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    eventually("they run", 5 * SECOND, || {
        let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name(sleeper.pid().as_raw()) == "sleep\n" && name(other.pid().as_raw()) == "tail\n"
    });
    let own = file("sleep.pid", &format!("{}\n", sleeper.pid()));
    let up = n1.run(&format!("health process --pidfile {own}")).ended(0).one();
    assert_eq!((&up["pid"], &up["count"]), (&sleeper.pid().as_raw().into(), &1.into()));
    n1.run(&format!("health process sleep --pidfile {own}")).ended(0);
    let reused = file("reused/../sleep2.pid".trim_start_matches("reused/../"), &other.pid().to_string());
    let down = n1.run(&format!("health process sleep --pidfile {reused}")).ended(1).one();
    assert_eq!((&down["failure"], &down["count"]), (&"bad-answer".into(), &0.into()));
    let gone = file("gone.pid", "4194999");
    assert_eq!(n1.run(&format!("health process --pidfile {gone}")).ended(1).one()["failure"], "refused");
    n1.run("health process --pidfile /nonexistent/x.pid").ended(1);
    let torn = file("torn.pid", "x");
    assert_eq!(status(&n1.run(&format!("health process --pidfile {torn}")).ended(6).one()), "unknown");
    n1.run("health process tail").ended(0);
    n1.run("health process no-such-program-here").ended(1);
}

#[test]
fn a_command_is_killed_with_all_its_children_when_it_is_late_and_when_we_end() {
    let (_lab, n1, _n2) = two();
    let pids = n1.folder.join("pids");
    let script = n1.folder.join("slow");
    let body = format!("#!/bin/sh\nsleep 1000 &\necho $! >>{0}\necho $$ >>{0}\necho begun\nwait\n", pids.display());
    fs::write(&script, body).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let all_gone = || {
        let text = fs::read_to_string(&pids).unwrap_or_default();
        text.lines().count() >= 2 && text.lines().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    let late = n1.run(&format!("health exec --response-timeout 300ms -- {}", script.display())).ended(1).one();
    assert_eq!((&late["failure"], &late["output"]), (&"timeout".into(), &"begun".into()), "{late}");
    eventually("they are gone", 5 * SECOND, all_gone);
    // A reader that leaves while it runs.
    fs::remove_file(&pids).unwrap();
    let first = format!(
        "#!/bin/sh\n[ -e {0} ] || {{ : >{0}; exit 0; }}\nexec {1}\n",
        n1.folder.join("first").display(),
        script.display()
    );
    let then = n1.folder.join("then");
    fs::write(&then, first).unwrap();
    fs::set_permissions(&then, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let line = "health exec --follow --interval 100ms --response-timeout 100s -- $1 2>/dev/null | { read line; until [ -s $2 ]; do sleep 0.05; done; }";
    let read = shell_with(&n1, line, &[&then, &pids]);
    assert_eq!(read.code, 0, "{read:?}");
    eventually("they are gone", 5 * SECOND, all_gone);
    for follow in ["", "--follow"] {
        fs::remove_file(&pids).unwrap();
        let mut run = n1.start(&format!("health exec {follow} --response-timeout 100s -- {}", script.display()));
        eventually("it runs", 5 * SECOND, || fs::read_to_string(&pids).is_ok_and(|text| text.lines().count() == 2));
        run.signal(Signal::SIGTERM);
        assert_eq!(run.ends(5 * SECOND), -15, "{}", run.complaints());
        eventually("they are gone", 5 * SECOND, all_gone);
    }
}

/// The kernel's name for a program ends after 15 bytes.
#[test]
fn a_program_with_a_long_name_is_not_its_neighbour() {
    let (_lab, n1, _n2) = two();
    let one = n1.folder.join("averyveryverylongname1");
    fs::copy("/usr/bin/sleep", &one).unwrap();
    let running = n1.start_shell(&format!("exec {} 1000", one.display()));
    let name = format!("/proc/{}/comm", running.pid());
    eventually("it runs", 5 * SECOND, || fs::read_to_string(&name).is_ok_and(|name| name.starts_with("averyvery")));
    assert_eq!(n1.run("health process averyveryverylongname1").ended(0).one()["pid"], running.pid().as_raw());
    n1.run("health process averyveryverylongname2").ended(1);
    n1.run("health process averyveryverylo").ended(1);
}

#[test]
fn where_nothing_can_be_seen_nothing_is_down() {
    let (_lab, n1, _n2) = two();
    let pidfile = n1.folder.join("sleep.pid");
    let sleeper = n1.start_shell("exec sleep 1000");
    fs::write(&pidfile, sleeper.pid().to_string()).unwrap();
    let health = as_nobody(&n1);
    let proc =
        |mount: &str, line: &str| shell_with(&n1, &format!("unshare -m sh -c '{mount} && {line}' sh $1"), &[&pidfile]);
    let hidden = "mount -t proc -o hidepid=2 proc /proc";
    for (mount, line, code) in [
        ("mount -t tmpfs proc /proc", "health process no-such-program-here".to_owned(), 5),
        ("mount -t tmpfs proc /proc", "health process --pidfile $1".to_owned(), 5),
        (hidden, format!("{health} process no-such-program-here"), 4),
        (hidden, format!("{health} process --pidfile $1"), 4),
    ] {
        let run = proc(mount, &line).ended(code);
        let record = run.one();
        assert_eq!(status(&record), "unknown", "{line}: {record}");
        assert_ne!(record["boot_id"], "", "{record}");
    }
    proc(hidden, "health process no-such-program-here").ended(1);
    // What has gone is down, hidden or not.
    fs::write(&pidfile, "4194999").unwrap();
    proc(hidden, &format!("{health} process --pidfile $1")).ended(1);
}

/// A session of its own is no way out.
#[test]
fn a_command_leaves_nothing_behind() {
    let (_lab, n1, _n2) = two();
    let pids = n1.folder.join("pids");
    let script = n1.folder.join("script");
    let gone = |wanted: usize| {
        eventually("they are gone", 5 * SECOND, || {
            let text = fs::read_to_string(&pids).unwrap_or_default();
            text.lines().count() >= wanted && text.lines().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
    };
    let write = |end: &str| {
        let _ = fs::remove_file(&pids);
        let daemon =
            format!("setsid sh -c 'echo $$ >>{}; exec sleep 1000' >/dev/null 2>&1 </dev/null &", pids.display());
        fs::write(&script, format!("#!/bin/sh\n{daemon}\nuntil [ -s {} ]; do :; done\n{end}\n", pids.display()))
            .unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let line = format!("-- {}", script.display());
    write("wait");
    n1.run(&format!("health exec --response-timeout 1s {line}")).ended(1);
    gone(1);
    write("exit 0");
    n1.run(&format!("health exec {line}")).ended(0);
    gone(1);
    write("wait");
    let mut run = n1.start(&format!("health exec --follow --response-timeout 100s {line}"));
    eventually("it runs", 5 * SECOND, || fs::read_to_string(&pids).is_ok_and(|text| text.ends_with('\n')));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(5 * SECOND), -15);
    gone(1);
}

#[test]
fn a_command_s_word_is_its_status() {
    let (_lab, n1, _n2) = two();
    let run = |more: &str, script: &str, code: i32| {
        let mut command = n1.command(&format!("health exec {more} -- sh -c"));
        Run::new(script, command.arg(script).output().unwrap()).ended(code).one()
    };
    assert_eq!(run("", "echo all well", 0)["output"], "all well");
    assert_eq!(run("", "exit 3", 1)["exit_status"], 3);
    let killed = run("", "kill -9 $$", 1);
    assert_eq!((&killed["signal"], &killed["exit_status"]), (&9.into(), &Value::Null));
    for (status, code, verdict) in [(0, 0, "up"), (1, 0, "up"), (2, 1, "down"), (3, 75, "unknown")] {
        let record = run("--nagios", &format!("exit {status}"), code);
        assert_eq!(record["status"], verdict, "{record}");
    }
    let long = run("", "head -c 100000 /dev/zero | tr '\\0' x", 0);
    assert_eq!(long["output"].as_str().unwrap().len(), 1024);
    // A daemon that it leaves behind may hold its output open.
    run("", "sleep 5 & exit 0", 0);
}

#[test]
fn a_dialect_changes_the_status_and_not_the_record() {
    let (_lab, n1, _n2) = two();
    for (line, plain, nagios, ocf) in [
        ("link eth0", 0, 0, 0),
        ("tcp 192.0.2.2:81", 1, 2, 7),
        ("link eth9", 5, 3, 5),
        ("tcp nosuch.invalid:1", 75, 3, 1),
        ("tcp 192.0.2.2", 2, 3, 2),
        ("tcp 192.0.2.2:81 --interval 5", 2, 3, 2),
    ] {
        let runs = ["", " --exit nagios", " --exit ocf"].map(|dialect| n1.run(&format!("health {line}{dialect}")));
        assert_eq!(runs.each_ref().map(|run| run.code), [plain, nagios, ocf], "{runs:#?}");
        let verdict = |run: &Run| run.records().first().map(|record| record["status"].clone());
        assert!(runs.iter().all(|run| verdict(run) == verdict(&runs[0])));
    }
    // What cannot be written, in the dialect too; and a closed output is as bad as a full one.
    for output in [">/dev/full", ">&-"] {
        for (dialect, code) in [("", 71), ("--exit nagios", 3), ("--exit ocf", 1), ("--follow --for 100ms", 71)] {
            let run = shell(&n1, &format!("health link eth0 {dialect} {output}")).ended(code);
            assert!(run.stderr.contains("standard output"), "{run:?}");
        }
    }
    let table = n1.run("health link eth0 --table --exit nagios").ended(0);
    assert_eq!(table.stdout.lines().count(), 2, "{table:?}");
}

// Filters.

fn line(subject: &str, status: &str, more: &str) -> String {
    format!("{{\"kind\":\"x\",\"v\":1,\"subject\":\"{subject}\",\"status\":\"{status}\"{more}}}\n")
}

fn verdict(subject: &str, status: &str) -> String {
    line(subject, status, "")
}

#[test]
fn damp_passes_on_what_it_does_not_know_and_changes_only_when_it_was_said_often_enough() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let more = ",\"big\":18446744073709551617,\"e\":1e2,\"deep\":{\"a\":[ 1 ]}";
    let input: String = [
        line("a", "up", more),
        line("b", "down", ""),
        line("a", "down", more),
        line("a", "down", ",\"renewal\":true"),
        "{\"kind\":\"other\",\"text\":\"\\u00e9\"}\n".to_owned(),
    ]
    .concat();
    let run = n1.run_with("health damp --fall 2", &input).ended(75);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].ends_with("\"big\":18446744073709551617,\"e\":1e2,\"deep\":{\"a\":[ 1 ]}}"), "{}", lines[0]);
    assert_eq!(lines[4], "{\"kind\":\"other\",\"text\":\"\\u00e9\"}", "no verdict: as it came");
    let records = support::records(&lines[..4].join("\n"));
    let said: Vec<_> = records.iter().map(|record| (status(record), record["raw_status"].as_str().unwrap())).collect();
    assert_eq!(said, [("up", "up"), ("unknown", "down"), ("up", "down"), ("down", "down")]);
    let old = n1.run_with("health damp", &line("a", "up", ",\"received_ms\":1,\"valid_for_ms\":1")).ended(75).one();
    assert_eq!((status(&old), &old["raw_status"]), ("unknown", &"unknown".into()), "too old to be a verdict");
    assert_eq!(records[3]["renewal"], Value::Null, "what changes is no renewal");
    assert_eq!((&records[2]["penalty"], &records[2]["flapping"]), (&1000.0.into(), &false.into()));
}

#[test]
fn what_flaps_is_told_and_kept_down_where_that_was_asked_for() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let input: String = (0..9).map(|round| line("a", if round % 2 == 0 { "up" } else { "down" }, "")).collect();
    let told = n1.run_with("health damp", &input).ended(0).records();
    assert_eq!((&told[8]["flapping"], status(&told[8])), (&true.into(), "up"));
    let kept = n1.run_with("health damp --penalty", &input).ended(1).records();
    assert_eq!((&kept[8]["flapping"], status(&kept[8])), (&true.into(), "down"));
    let left = kept[8]["suppressed_for_ms"].as_f64().unwrap();
    // 4000 to 750 is 2.4 half-lives.
    assert!((2_100_000.0..2_200_000.0).contains(&left), "{left}");
    // Held down for a while.
    let held = n1.run_with("health damp --hold 1h", &[line("a", "down", ""), line("a", "up", "")].concat());
    assert_eq!(status(&held.ended(1).records()[1]), "down");
}

/// known-faults 20: from cron, with a memory.
#[test]
fn damp_and_score_remember_from_run_to_run_and_refuse_a_broken_memory() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let state = n1.folder.join("memory");
    let damp = |status: &str, code: i32| {
        n1.run_with(&format!("health damp --rise 3 --state {}", state.display()), &line("a", status, "")).ended(code)
    };
    for (said, code) in [("up", 75), ("up", 75), ("up", 0), ("up", 0), ("down", 1), ("up", 1)] {
        damp(said, code);
    }
    for broken in ["", "\0\0\0\0", "{\"kind\":\"state.health-damp\",\"v\":1", "{}"] {
        fs::write(&state, broken).unwrap();
        let run = damp("up", 6);
        assert!(run.stderr.contains(&state.display().to_string()) && run.stdout.is_empty(), "{run:?}");
        assert_eq!(fs::read_to_string(&state).unwrap(), broken, "not overwritten");
    }
    let state = n1.folder.join("scores");
    let score = |input: &str, code: i32| {
        n1.run_with(&format!("health score --policy all --state {}", state.display()), input).ended(code).one()
    };
    score(&line("a", "up", ",\"valid_for_ms\":3600000"), 0);
    let held = score(&line("a", "unknown", ""), 0);
    assert_eq!(held["services"][0], json!({"subject": "a", "status": "unknown", "counted_as": "up"}));
    // A second run waits for the first, and says so.
    let mut first = n1.start_fed(&format!("health damp --state {}", n1.folder.join("x").display()));
    first.feed(&line("a", "up", ""));
    first.wait_for("its line", 5 * SECOND, is("up"));
    let second = n1.run_with(&format!("health damp --timeout 200ms --state {}", n1.folder.join("x").display()), "");
    second.ended(75);
}

/// known-faults 16.
#[test]
fn priority_zero_is_not_a_low_priority() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let services = |down: usize| -> String {
        (0..4).map(|number| line(&format!("s{number}"), if number < down { "down" } else { "up" }, "")).collect()
    };
    for (policy, down, priority, code) in [
        ("progressive", 0, 100, 0),
        ("progressive", 1, 75, 0),
        ("progressive", 3, 25, 0),
        ("progressive", 4, 0, 1),
        ("all", 0, 100, 0),
        ("all", 1, 0, 1),
        ("one", 3, 100, 0),
        ("one", 4, 0, 1),
        ("none", 4, 100, 0),
    ] {
        let run = n1.run_with(&format!("health score --base 100 --policy {policy}"), &services(down)).ended(code);
        let score = run.one();
        assert_eq!(score["priority"], priority, "{policy} {down}: {score}");
        assert_eq!((&score["down"], &score["total"], &score["subject"]), (&down.into(), &4.into(), &"n1".into()));
    }
    assert_eq!(n1.run_with("health score --base 1", &services(3)).ended(0).one()["priority"], 1, "partly up");
    for base in ["0", "256", "-1", "x", "192.0.2.1=0", "100,200", "192.0.2.1=1,192.0.2.1=2"] {
        n1.run(&format!("health score --base={base}")).ended(2);
    }
    let each = n1.run_with("health score --base 192.0.2.1=200,192.0.2.2=50", &services(1)).ended(0).one();
    assert_eq!(each["priorities"], json!({"192.0.2.1": 150, "192.0.2.2": 37}));
    assert_eq!(each["priority"], Value::Null);
}

#[test]
fn what_nobody_knows_is_no_verdict() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let now = || {
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 1000.0
    };
    let score = |more: &str, input: &str, code: i32| {
        n1.run_with(&format!("health score --policy all {more}"), input).ended(code).one()
    };
    // Nothing at all, and nothing of what was expected.
    assert_eq!(status(&n1.run("health score").ended(75).one()), "unknown");
    let silent = score("--expect web", &line("x", "unknown", ""), 75);
    assert_eq!((&silent["priority"], &silent["total"]), (&Value::Null, &2.into()));
    score("--expect web --unknown down", &line("x", "up", ""), 1);
    score("--expect web --unknown up", &line("x", "up", ""), 0);
    // Expired, by its arrival here.
    let old = format!(",\"received_ms\":{},\"valid_for_ms\":500", now() - 1000.0);
    let expired = score("", &line("x", "up", &old), 1);
    assert_eq!(expired["services"][0], json!({"subject": "x", "status": "unknown", "counted_as": "down"}));
    let fresh = format!(",\"received_ms\":{},\"valid_for_ms\":60000", now() - 1000.0);
    let valid = score("", &line("x", "up", &fresh), 0)["valid_for_ms"].as_f64().unwrap();
    assert!((30_000.0..59_001.0).contains(&valid), "{valid}");
    // Of another boot, and by its own time where it has no arrival.
    score("", &line("x", "up", ",\"received_ms\":1,\"boot_id\":\"other\""), 75);
    score("", &line("x", "up", ",\"time\":\"2020-01-01T00:00:00.000000Z\",\"valid_for_ms\":60000"), 1);
    score("", &line("x", "up", ",\"time\":\"2999-01-01T00:00:00.000000Z\",\"valid_for_ms\":60000"), 75);
    // A mistake in one line is told, the others count.
    let mixed = n1.run_with("health score", &format!("nonsense\n{}", line("x", "up", ""))).ended(6);
    assert_eq!((&mixed.one()["priority"], mixed.stderr.contains("line 1")), (&100.into(), true));
    n1.run_with("health score --exit-zero", &line("x", "down", "")).ended(0);
    let passed = n1.run_with("health score --pass", &line("x", "up", ",\"e\":1e2")).ended(0);
    assert!(passed.stdout.starts_with(&line("x", "up", ",\"e\":1e2")), "{passed:?}");
}

/// Lines come in any order and from several nodes.
#[test]
fn the_newest_word_on_our_own_services_counts() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let now = uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 1000.0;
    let said = |status: &str, age: f64| line("a", status, &format!(",\"received_ms\":{}", now - age));
    for (input, code) in [
        (said("down", 10.0) + &said("up", 5000.0), 1),
        (said("up", 10.0) + &said("down", 5000.0), 0),
        (said("down", 5000.0) + &said("up", 10.0), 0),
        (said("up", 10.0) + &line("a", "down", ",\"boot_id\":\"other\""), 0),
    ] {
        n1.run_with("health score", &input).ended(code);
        n1.run_with("health damp", &input).ended(code);
    }
    let damped = n1.run_with("health damp", &(said("down", 10.0) + &said("up", 5000.0))).records();
    assert_eq!((status(&damped[1]), &damped[1]["raw_status"]), ("down", &"up".into()), "it passes, and does not count");
    let state = n1.folder.join("newest");
    let damp = |input: &str, code: i32| {
        n1.run_with(&format!("health damp --state {}", state.display()), input).ended(code);
    };
    damp(&said("down", 10.0), 1);
    damp(&said("up", 5000.0), 1);
    // What another node says is about that node.
    let other = line("eth0", "down", ",\"host\":\"n2\"");
    let both = line("eth0", "up", ",\"host\":\"n1\"") + &other;
    let score = n1.run_with("health score --policy all", &both).ended(0).one();
    assert_eq!((&score["priority"], &score["total"]), (&100.into(), &1.into()), "{score}");
    let passed = n1.run_with("health damp", &both).ended(0);
    assert!(passed.stdout.ends_with(&other), "as it came: {passed:?}");
}

#[test]
fn no_record_is_longer_than_its_reader_takes() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let many: String = (0..10_000).map(|number| verdict(&format!("service-{number}"), "up")).collect();
    let score = n1.run_with("health score", &many).ended(0);
    assert!(score.stdout.len() < 64 * 1024, "{}", score.stdout.len());
    let record = score.one();
    let named = record["services"].as_array().unwrap().len();
    assert_eq!(record["services_left_out"], 10_000 - named);
    n1.run_with("health score --expect x", &score.stdout).ended(75);
    for (key, value) in [("valid_for_ms", "-5"), ("received_ms", "1e300")] {
        let wrong = n1.run_with("health score", &line("a", "up", &format!(",\"{key}\":{value}"))).ended(6);
        assert!(wrong.stderr.contains(key) && wrong.stderr.len() < 200, "{wrong:?}");
    }
    for verb in ["health score", "bucket plan 192.0.2.9 --total 4 --home n1=1-4"] {
        let flood = n1.run_with(&format!("{verb} --follow --renew 1us"), "").ended(2);
        assert!(flood.stderr.contains("10ms"), "{flood:?}");
    }
}

#[test]
fn standby_takes_the_priority_away_and_says_why() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let mut stream = n1.start_fed("health score --follow --base 192.0.2.1=200,192.0.2.2=100");
    stream.feed(&line("x", "up", ""));
    let both = |one: i64, other: i64| {
        move |record: &Value| record["priorities"] == json!({"192.0.2.1": one, "192.0.2.2": other})
    };
    stream.wait_for("both", 5 * SECOND, both(200, 100));
    fs::write(n1.folder.join("state/standby.192.0.2.1"), "moved").unwrap();
    stream.wait_for("one in standby", 5 * SECOND, both(0, 100));
    fs::write(n1.folder.join("state/standby"), "new disks\n").unwrap();
    let rest = stream.wait_for("all in standby", 5 * SECOND, both(0, 0));
    assert_eq!((&rest["standby"], status(&rest)), (&"new disks".into(), "down"));
    let once = n1.run_with("health score", &line("x", "up", "")).ended(1).one();
    assert_eq!((&once["priority"], &once["standby"]), (&0.into(), &"new disks".into()));
    fs::remove_file(n1.folder.join("state/standby")).unwrap();
    fs::remove_file(n1.folder.join("state/standby.192.0.2.1")).unwrap();
    n1.run_with("health score", &line("x", "up", "")).ended(0);
}

#[test]
fn a_stream_waits_for_what_is_expected_then_tells_changes_and_repeats_itself() {
    let lab = Lab::new();
    let n1 = lab.host("n1", &[]);
    let mut stream = n1.start_fed("health score --follow --policy all --expect a,b --renew 200ms --settle 100s");
    stream.feed(&line("a", "up", ",\"valid_for_ms\":600000"));
    std::thread::sleep(Duration::from_millis(500));
    assert!(stream.so_far().is_empty(), "b has not been told of: {:?}", stream.so_far());
    stream.feed(&line("b", "up", ",\"valid_for_ms\":1500"));
    let first = stream.wait_for("all", 5 * SECOND, |record| record["priority"] == 100);
    assert!(first["valid_for_ms"].as_f64().unwrap() <= 1500.0 && first["renewal"].is_null());
    let again = stream.wait_for("renewal", 5 * SECOND, |record| record["renewal"] == true);
    assert!(again["valid_for_ms"].as_f64() < first["valid_for_ms"].as_f64(), "it holds no longer for being said again");
    // Nobody renews b: its verdict expires.
    let down = stream.wait_for("expiry", 5 * SECOND, |record| record["priority"] == 0);
    assert_eq!(down["services"][1], json!({"subject": "b", "status": "unknown", "counted_as": "down"}));
    let said = stream.so_far().len();
    stream.feed(&line("a", "up", ",\"valid_for_ms\":600000,\"renewal\":true"));
    eventually("a renewal is passed on", 5 * SECOND, || stream.so_far().len() > said);
    drop(stream.child.stdin.take());
    assert_eq!(stream.ends(5 * SECOND), 1, "the status of the last conclusion");
}

/// A checker that froze must not look healthy.
#[test]
fn a_frozen_checker_is_noticed_by_its_silence() {
    let (_lab, n1, n2) = two();
    let _listener = listen(&n2, "[::]:80");
    let fifo = n1.folder.join("fifo");
    n1.sh(&format!("mkfifo {}", fifo.display()));
    let out = n1.folder.join("scores");
    let mut score = n1.command("health score --follow --policy all");
    score.stdin(Stdio::from(fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap()));
    let mut score = score.stdout(fs::File::create(&out).unwrap()).spawn().unwrap();
    let mut check = n1.command(&format!("health tcp 192.0.2.2:80 --follow {QUICK}"));
    let mut check = check.stdout(fs::OpenOptions::new().write(true).open(&fifo).unwrap()).spawn().unwrap();
    let last = || {
        let text = fs::read_to_string(&out).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        support::records(whole).last().map(|record| record["priority"].as_i64())
    };
    eventually("it is well", 5 * SECOND, || last() == Some(Some(100)));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(check.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGSTOP).unwrap();
    eventually("it is not", 5 * SECOND, || last() == Some(Some(0)));
    nix::sys::signal::kill(pid, Signal::SIGCONT).unwrap();
    eventually("it is again", 5 * SECOND, || last() == Some(Some(100)));
    for child in [&mut check, &mut score] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// What a beat carries, and what the planner makes of it.
#[test]
fn a_score_fits_a_beat_and_a_planner_heeds_it() {
    let (_lab, n1, _n2) = two();
    let many: String = (0..100).map(|number| line(&format!("service-{number}"), "down", "")).collect();
    let bases: Vec<String> = (1..=20).map(|number| format!("192.0.2.{number}=100")).collect();
    let score = n1.run_with(&format!("health score --brief --base {}", bases.join(",")), &many).ended(1);
    assert!(score.stdout.len() < 1200 && score.one()["services"].is_null(), "{}", score.stdout.len());
    let plan = |status: &str| {
        let score = n1.run_with("health score --brief", &line("web", status, "")).stdout;
        let nodes = "{\"subject\":\"n1\",\"status\":\"up\"}\n{\"subject\":\"n2\",\"status\":\"up\"}\n";
        let plan = "bucket plan 192.0.2.9 --total 4 --home n1=1-2,n2=3-4 --fencing none --exit-zero";
        n1.run_with(plan, &format!("{nodes}{score}")).ended(0).one()["owners"].clone()
    };
    assert_eq!(plan("up"), json!({"n1": "1-2", "n2": "3-4"}));
    assert_eq!(plan("down"), json!({"n2": "1-4"}));
}

#[test]
fn a_score_travels_in_beats() {
    let (_lab, n1, n2) = two();
    let key = |host: &Host| {
        let path = host.folder.join("key");
        fs::write(&path, "07".repeat(32)).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let listener = n2.start(&format!("heartbeat recv --bind 192.0.2.2 --follow --key {}", key(&n2)));
    let folder = binary("health").parent().unwrap().display().to_string();
    let fifo = n1.folder.join("verdicts");
    n1.sh(&format!("mkfifo {}", fifo.display()));
    let mut command = Command::new("nsenter");
    let line = "health score --follow --brief --renew 100ms <>$1 | heartbeat send --payload - --to 192.0.2.2 --interval 50ms --key $2";
    command.arg(format!("--net=/run/netns/{}", n1.ns)).args(["setsid", "sh", "-c", line, "sh"]);
    command.arg(&fifo).arg(key(&n1)).env("PATH", format!("{folder}:/usr/sbin:/usr/bin:/sbin:/bin"));
    n1.environment(&mut command);
    let mut pipeline = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let priority = |wanted: i64| move |record: &Value| record["payload"][0]["priority"] == wanted;
    let feed = |verdicts: String| fs::write(&fifo, verdicts).unwrap();
    feed(verdict("web", "up") + &verdict("db", "up"));
    listener.wait_for("the whole priority", 10 * SECOND, priority(100));
    feed(verdict("db", "down"));
    let half = listener.wait_for("half of it", 10 * SECOND, priority(50));
    assert_eq!((&half["payload"][0]["kind"], &half["payload"][0]["host"]), (&"health.score".into(), &"n1".into()));
    let group = nix::unistd::Pid::from_raw(i32::try_from(pipeline.id()).unwrap());
    nix::sys::signal::killpg(group, Signal::SIGKILL).unwrap();
    pipeline.wait().unwrap();
}

// known-faults 19 and 20.

#[test]
fn in_a_pipe_a_reader_that_leaves_and_a_full_device() {
    let (_lab, n1, n2) = two();
    let _listener = listen(&n2, "[::]:80");
    let one = shell(&n1, &format!("health tcp 192.0.2.2:80 --follow {QUICK} | head -n 1; echo ${{PIPESTATUS[0]}} >&2"));
    assert_eq!((one.records().len(), one.stderr.as_str()), (1, "0\n"), "{one:?}");
    let gone = shell(&n1, "health tcp 192.0.2.2:81 | true; echo ${PIPESTATUS[0]} >&2");
    assert_eq!(gone.stderr, "1\n", "a closed pipe changes no answer");
    for line in
        ["health tcp 192.0.2.2:80 >/dev/full", "echo '{\"subject\":\"a\",\"status\":\"up\"}' | health score >/dev/full"]
    {
        let full = shell(&n1, line).ended(71);
        assert!(full.stderr.contains("standard output"), "{full:?}");
    }
    let mut slow = n1.start(&format!("health tcp 192.0.2.2:80 --follow {QUICK}"));
    slow.wait_for("up", 5 * SECOND, is("up"));
    slow.signal(Signal::SIGTERM);
    assert_eq!(slow.ends(5 * SECOND), -15);
    let planned = n1.run(&format!("health tcp 192.0.2.2:80 --follow --for 300ms {QUICK}")).ended(0);
    assert!(planned.records().len() >= 2);
}

#[test]
fn every_verb_has_a_schema_and_works_in_an_empty_environment() {
    let health = binary("health");
    for verb in ["link", "load", "disk", "memory", "tcp", "http", "ping", "dns", "process", "exec", "damp", "score"] {
        let schema = Command::new(&health).args([verb, "--schema"]).output().unwrap();
        let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
        assert_eq!(schema["title"], format!("health.{verb}"));
    }
    let run = Command::new(&health).args(["load", "--limit", "10000"]).env_clear().output().unwrap();
    assert_eq!(Run::new("health load", run).ended(0).one()["kind"], "health.load");
}
