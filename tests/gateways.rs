//! The recipe gateways: faults of every kind, in the foreground and from cron, with the gateways as witnesses.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::gateways::{Site, TARGETS};
use support::{Running, eventually};

const SECOND: Duration = Duration::from_secs(1);
/// The settings at which a fault is to be over within a second.
const FAST: &str = "count=3\ninterval=50ms\nresponse_timeout=200ms\nmax_loss=50\nfall=1\nrise=2\nevery=100ms\n";
const ECHO: u16 = 7777;

/// Writes the file of gateways, all with the same weight, and a configuration; gives its path.
fn configure(site: &Site, lines: &str, more: &str) -> String {
    let (gateways, config) = (site.host.folder.join("gateways"), site.host.folder.join("gateways.conf"));
    fs::write(&gateways, lines).unwrap();
    fs::write(&config, format!("gateways={}\ntarget='{},{}'\n{more}", gateways.display(), TARGETS[0], TARGETS[1]))
        .unwrap();
    config.display().to_string()
}

fn even(site: &Site) -> String {
    (1..=site.gateways.len()).map(|n| format!("{} name=g{n}\n", site.address(n))).collect()
}

fn recipe(site: &Site, arguments: &str) -> Command {
    let script = format!("{}/scripts/recipes/gateways", env!("CARGO_MANIFEST_DIR"));
    let path = support::binary("gw").parent().unwrap().display().to_string();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", site.host.ns)).arg(script).args(arguments.split_whitespace());
    command.env_clear();
    site.host.environment(&mut command);
    // As cron has it.
    command.env("PATH", format!("{path}:/usr/bin:/bin")).env("LANG", "de_DE.UTF-8").stdin(Stdio::null());
    command
}

/// One run of the recipe: its status, what it printed, and what it complained of.
fn run(site: &Site, arguments: &str) -> (i32, String, String) {
    let output = recipe(site, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// The recipe in the foreground.
struct Loop {
    child: Child,
    log: std::path::PathBuf,
}

impl Loop {
    fn start(site: &Site, config: &str) -> Loop {
        let log = site.host.folder.join("log");
        let file = fs::File::create(&log).unwrap();
        let mut command = recipe(site, config);
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let it = Loop { child, log };
        eventually("the split is in force", 10 * SECOND, || it.said().contains("\"changed\":true"));
        it
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.signal(Signal::SIGTERM);
        self.child.wait().unwrap();
    }
}

/// A server in the internet that tells who asks: by the port that answers, the address of the gateway.
struct Echo(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Echo {
    fn start(site: &Site) -> Echo {
        let ends = Arc::new(AtomicBool::new(false));
        let flag = ends.clone();
        let server = site.net.inside(move || {
            let socket = UdpSocket::bind((TARGETS[2], ECHO)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut buffer = [0; 64];
            while !flag.load(Ordering::Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(from.ip().to_string().as_bytes(), from);
                }
            }
        });
        Echo(ends, Some(server))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

/// One flow: when it was begun, and who answered.
type Flow = (Instant, Option<String>);

/// Begins new flows from the client, one each `pause`, for `time`; gives each with its answer.
fn flows(site: &Site, pause: Duration, time: Duration) -> JoinHandle<Vec<Flow>> {
    site.client.inside(move || {
        let to: SocketAddr = format!("{}:{ECHO}", TARGETS[2]).parse().unwrap();
        let end = Instant::now() + time;
        let mut begun = Vec::new();
        while Instant::now() < end {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(to).unwrap();
            socket.set_nonblocking(true).unwrap();
            let at = Instant::now();
            // A refusal of the network is an answer that is none.
            let _ = socket.send(b"?");
            begun.push((at, socket));
            std::thread::sleep(pause);
        }
        // Those that were answered have it by now, whatever was lost.
        let last = begun.last().map(|(_, socket)| socket).unwrap();
        last.set_nonblocking(false).unwrap();
        last.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let _ = last.peek(&mut [0; 64]);
        let mut buffer = [0; 64];
        let mut answered = |socket: UdpSocket| {
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        };
        begun.into_iter().map(|(at, socket)| (at, answered(socket))).collect()
    })
}

/// How long after `fault` the last flow was begun that nobody answered.
fn trouble(flows: &[Flow], fault: Instant) -> Duration {
    let lost = flows.iter().filter(|(at, answer)| answer.is_none() && *at >= fault);
    lost.map(|(at, _)| at.duration_since(fault)).max().unwrap_or_default()
}

/// Everything that the recipe may have changed.
fn standing(site: &Site) -> String {
    site.host.sh("nft -s list ruleset; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all | grep -v ' expires '")
}

/// What happens to gateway N, and its name.
type Fault = (&'static str, fn(&Site, usize));

const FAULTS: [Fault; 3] =
    [("off", Site::kill), ("upstream off", Site::cut_upstream), ("forwarding off", Site::cut_forwarding)];

/// From the fault to new flows on the living gateways: at most a second, with 2 and with 16.
#[test]
fn on_time_a_fault_is_over_within_a_second() {
    for count in [2, 16] {
        let site = Site::one_link(count);
        let config = configure(&site, &even(&site), FAST);
        let _echo = Echo::start(&site);
        let it = Loop::start(&site, &config);
        for (what, fault) in FAULTS {
            let client = flows(&site, Duration::from_millis(2), 3 * SECOND);
            std::thread::sleep(SECOND);
            let at = Instant::now();
            fault(&site, 1);
            let flows = client.join().unwrap();
            let gap = trouble(&flows, at);
            println!("{count} gateways, one {what}: new flows lost for {} ms", gap.as_millis());
            let lost = flows.iter().filter(|(begun, answer)| answer.is_none() && *begun >= at).count();
            assert!(lost > 0, "{count}, {what}: the fault did nothing");
            assert!(gap <= SECOND, "{count} gateways, {what}: {gap:?}\n{}", it.said());
            let before = flows.iter().filter(|(begun, answer)| answer.is_none() && *begun < at).count();
            assert_eq!(before, 0, "{count}, {what}: lost without a fault\n{}", it.said());
            site.mend(1);
            eventually("it is back", 10 * SECOND, || {
                let said = it.said();
                let last = said.lines().rev().find(|line| line.contains("gw.apply")).unwrap_or_default().to_owned();
                serde_json::from_str::<Value>(&last)
                    .is_ok_and(|last| last["gateways"].as_array().unwrap().len() == count)
            });
        }
    }
}

/// Ten gateways' deaths of every kind: flows of the living are not touched, the dead one's go on over a living one, and
/// nothing is left of it all.
#[test]
fn ten_rounds_leave_nothing() {
    let site = Site::one_link(3);
    let config = configure(&site, &even(&site), "count=2\ninterval=20ms\nresponse_timeout=150ms\nrise=1\n");
    let _echo = Echo::start(&site);
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    let (status, said, complained) = run(&site, &format!("--once {config}"));
    assert_eq!((status, said.as_str(), complained.as_str()), (0, "", ""), "nothing changed, nothing is said");
    let before = standing(&site);
    // Flows that live through all of it.
    let target = TARGETS[2];
    let lasting = site.client.inside(move || {
        let sockets: Vec<UdpSocket> = (0..30)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect((target, ECHO)).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                socket
            })
            .collect();
        sockets
    });
    let sockets = lasting.join().unwrap();
    let ask = |sockets: &[UdpSocket]| -> Vec<Option<String>> {
        let mut buffer = [0; 64];
        for socket in sockets {
            drop(socket.send(b"?"));
        }
        sockets
            .iter()
            .map(|socket| {
                socket.recv(&mut buffer).ok().map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
            })
            .collect()
    };
    for round in 0..10 {
        let (what, fault) = FAULTS[round % 3];
        let dead = round % 3 + 1;
        let by_whom = ask(&sockets);
        assert!(by_whom.iter().all(Option::is_some), "{round}: {by_whom:?}");
        fault(&site, dead);
        let (status, said, complained) = run(&site, &format!("--once {config}"));
        assert_eq!(status, 0, "{round}, {what}: {said}{complained}");
        let applied: Value = serde_json::from_str(&said).unwrap();
        support::validate(&applied);
        assert_eq!((&applied["changed"], applied["gateways"].as_array().unwrap().len()), (&true.into(), 2), "{said}");
        // A port that had an error of the network waiting gives it up first.
        ask(&sockets);
        let now = ask(&sockets);
        for (was, is) in by_whom.iter().zip(&now) {
            let was = was.as_deref().unwrap();
            if was == site.seen(dead) {
                assert!(is.as_deref().is_some_and(|is| is != was), "{round}, {what}: {was} to {is:?}");
            } else {
                assert_eq!(is.as_deref(), Some(was), "{round}, {what}: a flow of a living gateway was touched");
            }
        }
        site.mend(dead);
        eventually("it answers again", 5 * SECOND, || {
            run(&site, &format!("--once {config}")).1.contains("\"changed\":true")
        });
        assert_eq!(standing(&site), before, "{round}, {what}");
    }
}

/// The configuration of `BashLb`, as it is: the test that it names, its shares, and what it cannot say.
#[test]
fn an_env_conf_runs_as_it_is() {
    let site = Site::one_link(2);
    let _nginx = site.nginx();
    let env = site.host.folder.join("env.conf");
    let config = site.host.folder.join("gateways.conf");
    fs::write(&config, format!("bashlb={}\ncount=2\ninterval=20ms\nresponse_timeout=300ms\n", env.display())).unwrap();
    let ping = format!(
        "net_int=eth0 #outgoing interface\ntest_method=1\nping_check_ip=\"{}\"\nhourly_report=1\n\
         gw1=\"|192.0.2.1|0.25||\"\ngw2=\"|192.0.2.2|||\"\n",
        TARGETS[0]
    );
    fs::write(&env, ping).unwrap();
    let (status, said, complained) = run(&site, &format!("--once {}", config.display()));
    assert_eq!(status, 0, "{said}{complained}");
    let applied: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(applied["gateways"].as_array().unwrap().len(), 2, "{said}");
    // The address that the world should see, and one that is another gateway's.
    let wan = format!(
        "net_int=eth0\ntest_method=3\nwan_ip_check_site=\"http://{}/\"\ngw1=\"|192.0.2.1|0.25|198.51.100.1|\"\n\
         gw2=\"|192.0.2.2||198.51.100.9|\"\n",
        TARGETS[0]
    );
    fs::write(&env, wan).unwrap();
    let (status, said, complained) = run(&site, &format!("--once {}", config.display()));
    assert_eq!(status, 0, "{said}{complained}");
    let applied: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(applied["gateways"], serde_json::json!(["192.0.2.1"]), "{said}");
    let before = standing(&site);
    fs::write(&env, "test_method=1\nping_check_ip=192.0.2.1; reboot\n").unwrap();
    let (status, said, complained) = run(&site, &format!("--once {}", config.display()));
    assert_eq!((status, said.as_str(), standing(&site)), (6, "", before), "{complained}");
    assert!(complained.contains("line 2"), "{complained}");
}

/// A squid, which leaves its shared memory behind unless it is asked to end.
struct Squid(Running, String);

impl Drop for Squid {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGTERM);
        let end = Instant::now() + 5 * SECOND;
        while Instant::now() < end && self.0.child.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for entry in fs::read_dir("/dev/shm").unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{}-cf__", self.1)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A squid that every HTTP of the clients goes through: it answers for anybody, and only the address that the
/// world sees shows that it works.
#[test]
fn a_transparent_proxy_is_a_gateway() {
    let site = Site::own_links(2);
    let _nginx = site.nginx();
    let gateway = &site.gateways[1];
    let folder = gateway.folder.join("squid");
    fs::create_dir_all(&folder).unwrap();
    let dir = folder.display();
    let config = format!(
        "http_port 3128\nhttp_port 3129 intercept\nhttp_access allow all\ncache deny all\nvia off\nforwarded_for delete\n\
         access_log none\ncache_log {dir}/cache.log\npid_filename none\ncoredump_dir {dir}\n\
         shutdown_lifetime 0 seconds\nconnect_timeout 1 seconds\nforward_timeout 1 seconds\n\
         netdb_filename none\nvisible_hostname g2\n"
    );
    fs::write(folder.join("squid.conf"), config).unwrap();
    // It gives root up.
    gateway.sh(&format!("chown proxy {dir}"));
    let gateway = &site.gateways[1];
    gateway.sh("nft 'add table ip proxy; add chain ip proxy in { type nat hook prerouting priority dstnat; }; \
         add rule ip proxy in iifname eth0 tcp dport 80 redirect to :3129'");
    // It forwards nothing by itself: only what goes through the proxy comes out.
    site.cut_forwarding(2);
    let name = format!("fu{}", std::process::id());
    let squid = gateway.start_shell(&format!("exec squid -N -n {name} -f {dir}/squid.conf"));
    let _squid = Squid(squid, name);
    eventually("squid listens", 20 * SECOND, || gateway.sh("ss -Hltn").contains(":3129 "));
    let lines = "10.0.1.1 expect=198.51.100.1\n10.0.2.1 expect=198.51.100.2\n";
    let config = configure(&site, lines, "method=wan-ip\ncount=1\nresponse_timeout=2s\n");
    let config_text = fs::read_to_string(&config).unwrap().replace(
        &format!("target='{},{}'", TARGETS[0], TARGETS[1]),
        &format!("target='http://{}/,http://{}/'", TARGETS[0], TARGETS[1]),
    );
    fs::write(&config, config_text).unwrap();
    let (status, said, complained) = run(&site, &format!("--once {config}"));
    assert_eq!(status, 0, "{said}{complained}");
    let applied: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(applied["gateways"].as_array().unwrap().len(), 2, "{said}{complained}");
    // Its upstream dies: it answers on, with a page of its own, which others' answers prove to be its fault.
    site.cut_upstream(2);
    let (status, said, complained) = run(&site, &format!("--once {config}"));
    assert_eq!(status, 0, "{said}{complained}");
    let applied: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(applied["gateways"], serde_json::json!(["10.0.1.1"]), "{said}{complained}");
}

/// All are dead: what stands goes on, and that is told once.
#[test]
fn with_none_alive_what_stands_goes_on() {
    let site = Site::one_link(2);
    let config = configure(&site, &even(&site), "count=1\nresponse_timeout=150ms\nrise=1\n");
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    let before = standing(&site);
    site.kill(1);
    site.kill(2);
    let (status, _, complained) = run(&site, &format!("--once {config}"));
    let what = complained.lines().filter(|line| line.contains("what stands goes on")).count();
    assert!(status == 1 && what == 1 && complained.contains("gateways: 192.0.2.1 is down"), "{status} {complained}");
    assert_eq!(standing(&site), before);
    let (status, said, complained) = run(&site, &format!("--once {config}"));
    assert_eq!((status, complained.as_str()), (1, ""), "{said}");
    site.mend(1);
    let mut told = String::new();
    eventually("one is back", 5 * SECOND, || {
        let (_, said, complained) = run(&site, &format!("--once {config}"));
        told += &complained;
        said.contains("\"changed\":true")
    });
    assert!(told.contains("gateways: 192.0.2.1 is up") && told.contains("nothing to complain of"), "{told}");
}

/// What is wrong with its own files keeps no gateway's flows from a living one.
#[test]
fn broken_memories_do_not_hold_the_split_up() {
    let site = Site::one_link(2);
    let config = configure(&site, &even(&site), "count=1\nresponse_timeout=150ms\nrise=1\n");
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    let state = site.host.folder.join("state");
    let mut files = fs::read_dir(&state).unwrap().flatten().map(|entry| entry.path());
    let damp = files.find(|path| path.extension().is_some_and(|end| end == "damp")).unwrap();
    fs::write(&damp, &fs::read(&damp).unwrap()[..50]).unwrap();
    site.kill(2);
    let (status, said, complained) = run(&site, &format!("--once {config}"));
    assert!(status == 6 && complained.contains(".damp"), "{status} {complained}");
    let applied: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(applied["gateways"], serde_json::json!(["192.0.2.1"]), "{said}");
    fs::remove_file(&damp).unwrap();
    // The folder is tidied away under a foreground that goes on, and nobody else begins meanwhile.
    let fast = configure(&site, &even(&site), FAST);
    assert_eq!(run(&site, &format!("--clear {fast}")).0, 0);
    let it = Loop::start(&site, &fast);
    fs::remove_dir_all(&state).unwrap();
    eventually("the lock is held anew", 5 * SECOND, || run(&site, &format!("--once {fast}")).0 == 75);
    site.mend(2);
    eventually("it is back", 10 * SECOND, || it.said().contains("192.0.2.2 is up"));
    site.kill(1);
    eventually("the other dies", 5 * SECOND, || it.said().contains("\"gateways\":[\"192.0.2.2\"]"));
}

/// Values are taken as they stand: a shell runs none of them, and each that is wrong is told by its name.
#[test]
fn a_configuration_is_no_program() {
    let site = Site::one_link(1);
    let made = site.host.folder.join("made");
    let good = fs::read_to_string(configure(&site, &even(&site), "")).unwrap();
    let config = site.host.folder.join("gateways.conf").display().to_string();
    for (line, why) in [
        (format!("fall=1#$(touch${{IFS}}{})", made.display()), "not a plain value"),
        (format!("fall='1';touch${{IFS}}{}", made.display()), "not a plain value"),
        ("fall=0".to_owned(), "'0'"),
        ("every=08x".to_owned(), "every=08x"),
        ("need=x".to_owned(), "need"),
        ("by=dice".to_owned(), "dice"),
        ("match=udp:0".to_owned(), "udp:0"),
        ("local=perhaps".to_owned(), "yes or no"),
        ("redistribute=nearst".to_owned(), "nearst"),
        ("hold=60".to_owned(), "60"),
        ("mark_mask=0x3".to_owned(), "0x3"),
        ("bashlb=/nonexistent".to_owned(), "both"),
    ] {
        fs::write(&config, format!("{good}{line}\n")).unwrap();
        let (status, said, complained) = run(&site, &format!("--check {config}"));
        assert!(status == 6 && said.is_empty() && complained.contains(why), "{line}: {status} {complained}");
        assert!(!made.exists(), "{line}");
    }
    fs::write(&config, format!("{good}every=08s # a comment\nhold=010s\n")).unwrap();
    assert_eq!(run(&site, &format!("--check {config}")).0, 0);
    site.host.sh(&format!("chmod 664 {config}"));
    assert_eq!(run(&site, &format!("--check {config}")).0, 6);
}

/// A split that has another name from now on leaves nothing under the old one.
#[test]
fn a_new_name_takes_the_old_one_s_place() {
    let site = Site::one_link(2);
    let config = configure(&site, &even(&site), "count=1\nresponse_timeout=150ms\n");
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    let before = standing(&site);
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}name=voip\n")).unwrap();
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    assert_eq!(site.host.sh("nft list tables inet").trim(), "table inet failover_gw_voip");
    fs::write(&config, &text).unwrap();
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    assert_eq!(standing(&site), before);
}

/// From cron: two at once, a state file that is torn, a configuration that is changed, the hourly report.
#[test]
fn from_cron_runs_do_not_get_into_each_others_way() {
    let site = Site::one_link(2);
    let config = configure(&site, &even(&site), "count=3\ninterval=200ms\nresponse_timeout=300ms\n");
    let (status, said, complained) = run(&site, &format!("--check {config}"));
    assert_eq!((status, said.as_str()), (0, ""), "{complained}");
    assert_eq!(site.host.sh("nft list ruleset; ip rule show pref 7010"), "", "--check changes nothing");
    let first = recipe(&site, &format!("--once {config}")).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it probes", 5 * SECOND, || site.host.sh("ip rule").contains("7100:"));
    let (status, said, complained) = run(&site, &format!("--once {config}"));
    assert!(status == 75 && said.is_empty() && complained.contains("runs already"), "{status} {said}{complained}");
    assert!(first.wait_with_output().unwrap().status.success());
    // A weight is changed: the next round has it.
    let gateways = site.host.folder.join("gateways");
    fs::write(&gateways, "192.0.2.1 weight=0.9\n192.0.2.2 weight=0.1\n").unwrap();
    let (status, said, _) = run(&site, &format!("--once {config}"));
    assert!(status == 0 && said.contains("\"changed\":true"), "{said}");
    let _echo = Echo::start(&site);
    let begun = flows(&site, Duration::from_micros(200), Duration::from_millis(600)).join().unwrap();
    let (status, said, complained) = run(&site, &format!("--report {config}"));
    assert_eq!((status, complained.as_str()), (0, ""));
    assert!(said.contains("192.0.2.1") && said.contains("0.9"), "{} flows\n{said}", begun.len());
    // A state that is torn is refused by name, and not overwritten.
    let torn = site.host.folder.join("state/gateways.split");
    fs::write(&torn, "{\"kind\":\"state.gw-sp").unwrap();
    let (status, _, complained) = run(&site, &format!("--once {config}"));
    assert!(status != 0 && complained.contains("gateways.split"), "{status} {complained}");
    assert_eq!(fs::read_to_string(&torn).unwrap(), "{\"kind\":\"state.gw-sp");
    fs::remove_file(&torn).unwrap();
    // A misspelt setting is no silent default.
    fs::write(&config, fs::read_to_string(&config).unwrap() + "evry=1s\n").unwrap();
    let (status, _, complained) = run(&site, &format!("--once {config}"));
    assert!(status == 6 && complained.contains("evry"), "{status} {complained}");
}

/// SIGKILL at any point of a round: flows go on, and the next run leaves nothing behind.
#[test]
fn a_killed_run_is_mended_by_the_next() {
    let site = Site::one_link(2);
    let config = configure(&site, &even(&site), "count=2\ninterval=100ms\nresponse_timeout=200ms\n");
    assert_eq!(run(&site, &format!("--once {config}")).0, 0);
    let before = standing(&site);
    for wait in [2, 10, 30, 60, 100, 140, 180] {
        let mut child = {
            use std::os::unix::process::CommandExt as _;
            recipe(&site, &format!("--once {config}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap()
        };
        std::thread::sleep(Duration::from_millis(wait));
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let _ = nix::sys::signal::killpg(group, Signal::SIGKILL);
        child.wait().unwrap();
        let (status, said, complained) = run(&site, &format!("--once {config}"));
        assert_eq!((status, complained.as_str()), (0, ""), "{wait} ms: {said}");
        assert_eq!(standing(&site), before, "killed after {wait} ms");
    }
    let (status, said, complained) = run(&site, &format!("--clear {config}"));
    assert_eq!((status, complained.as_str()), (0, ""), "{said}");
    let rest = site.host.sh("nft list tables; ip rule; ip route show table all");
    assert!(!rest.contains("failover_gw") && !rest.contains("proto 70") && !rest.contains("70"), "{rest}");
}
