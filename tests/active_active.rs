//! The recipe active-active: three nodes, four addresses, and the example of the vendor boxes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::gap::{Answerer, Prober, cut};
use support::{Host, Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);
const VIPS: [&str; 4] = ["192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14"];
/// Priorities with which each address has one order of nodes: VIP1 and VIP2 on n1, VIP3 on n2, VIP4 on
/// n3; when n1 fails VIP1 goes to n3 and VIP2 to n2.
const PRIORITY: &str = "n1=190,190,90,80 n2=100,150,200,90 n3=150,100,100,200";

/// The recipe on one host.
struct Node {
    child: Child,
    host: usize,
}

struct Site {
    lab: Lab,
    hosts: Vec<Host>,
    client: Host,
    nodes: Vec<Node>,
}

impl Site {
    fn new(more: &str) -> Site {
        let lab = Lab::new();
        let hosts: Vec<Host> = (1..=3).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
        let client = lab.host("client", &["192.0.2.99/24"]);
        let vips: Vec<String> = (51..).zip(VIPS).map(|(vrid, vip)| format!("{vrid}={vip}/24")).collect();
        for host in &hosts {
            let config = format!(
                "dev=eth0\nvips='{}'\npriority='{PRIORITY}'\ninterval=250ms\ncheck_interval=100ms\n\
                 response_timeout=100ms\ndown_time=200ms\n{more}\n",
                vips.join(" ")
            );
            std::fs::write(host.folder.join("config"), config).unwrap();
        }
        let mut site = Site { lab, hosts, client, nodes: Vec::new() };
        for host in 0..3 {
            site.start(host);
        }
        site
    }

    fn command(&self, host: usize) -> Command {
        let host = &self.hosts[host];
        let recipe = format!("{}/scripts/recipes/active-active", env!("CARGO_MANIFEST_DIR"));
        let path = support::binary("vip").parent().unwrap().display().to_string();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", host.ns)).arg(recipe).arg(host.folder.join("config"));
        host.environment(&mut command);
        command.env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"));
        command
    }

    fn start(&mut self, host: usize) {
        let log = std::fs::File::create(self.hosts[host].folder.join("log")).unwrap();
        let mut command = self.command(host);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.nodes.push(Node { child, host });
    }

    fn stop(&mut self, host: usize, signal: Signal) {
        let at = self.nodes.iter().position(|node| node.host == host).unwrap();
        let mut node = self.nodes.remove(at);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(node.child.id()).unwrap()), signal).unwrap();
        node.child.wait().unwrap();
    }

    /// Which hosts carry an address, on the interface of its virtual router.
    fn holders(&self, vip: &str) -> Vec<usize> {
        (0..3).filter(|host| self.hosts[*host].sh("ip -br addr show").contains(&format!("{vip}/"))).collect()
    }

    /// Each address is on one node: `places` counts nodes from 1.
    #[track_caller]
    fn settles(&self, what: &str, places: [usize; 4]) {
        let end = Instant::now() + 15 * SECOND;
        let wanted: Vec<Vec<usize>> = places.iter().map(|node| vec![node - 1]).collect();
        loop {
            let now: Vec<Vec<usize>> = VIPS.iter().map(|vip| self.holders(vip)).collect();
            if now == wanted {
                break;
            }
            let logs = self.hosts.iter().map(|host| std::fs::read_to_string(host.folder.join("log")).unwrap());
            let last: Vec<String> = logs.map(|log| log.lines().rev().take(3).collect::<Vec<_>>().join("\n")).collect();
            assert!(Instant::now() < end, "{what}: {now:?} is not {wanted:?}\n{}", last.join("\n--\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        while let Some(node) = self.nodes.first() {
            let host = node.host;
            self.stop(host, Signal::SIGTERM);
        }
    }
}

/// The example whole, with clients on each address: NS1 fails and returns, and preempts.
#[test]
fn the_netscaler_example_plays() {
    let site = Site::new("vmac=yes");
    site.settles("all are well", [1, 1, 2, 3]);
    let _answerers: Vec<Answerer> =
        site.hosts.iter().flat_map(|host| VIPS.map(|vip| Answerer::start(host, vip))).collect();
    let probers: Vec<Prober> =
        VIPS.iter().map(|vip| Prober::start(&site.client, vip, Duration::from_millis(5))).collect();
    std::thread::sleep(SECOND);
    let failed = Instant::now();
    cut(&site.lab, &site.hosts[0], true);
    // n1 still carries its own two, cut off: what counts is who answers.
    eventually("VIP1 goes to n3, VIP2 to n2", 5 * SECOND, || {
        site.holders(VIPS[0]).contains(&2) && site.holders(VIPS[1]).contains(&1)
    });
    std::thread::sleep(SECOND);
    cut(&site.lab, &site.hosts[0], false);
    site.settles("n1 is back, and preempts", [1, 1, 2, 3]);
    std::thread::sleep(SECOND);
    for ((vip, prober), home) in VIPS.iter().zip(probers).zip([1, 1, 2, 3]) {
        let answers = prober.stop();
        assert_eq!(answers.last(), Some(home), "{vip}");
        let moved = home == 1;
        // Cut off, n1 was master of all four: at the heal some may be answered there until it hears the others.
        let changes = answers.changes(failed);
        assert!(changes.is_multiple_of(2) && changes <= if moved { 4 } else { 2 }, "{vip}: {changes}");
        assert!(!moved || changes > 0, "{vip} never moved");
        // Three intervals and a skew are below 1 s; the rest is a busy machine, which loses an advert at times.
        assert!(answers.longest_silence(failed) < Duration::from_millis(if moved { 1800 } else { 900 }), "{vip}");
        // Clients keep the virtual MAC through it all.
        let entry = site.client.sh(&format!("ip neigh show {vip}"));
        assert!(entry.contains("00:00:5e:00:01:3"), "{entry}");
    }
}

#[test]
fn without_preemption_what_moved_stays() {
    let mut site = Site::new("no_preempt=all");
    site.settles("all are well, whoever was first", site_now(&site));
    // Wherever they are: n1 leaves as planned, and returns.
    site.stop(0, Signal::SIGTERM);
    eventually("n1 has nothing", 5 * SECOND, || VIPS.iter().all(|vip| !site.holders(vip).contains(&0)));
    eventually("each is served", 5 * SECOND, || VIPS.iter().all(|vip| site.holders(vip).len() == 1));
    let moved = site_now(&site);
    site.start(0);
    std::thread::sleep(2 * SECOND);
    site.settles("they stay", moved);
}

/// Where each address is now; waits until it is in one place.
fn site_now(site: &Site) -> [usize; 4] {
    VIPS.map(|vip| {
        eventually("one holder", 10 * SECOND, || site.holders(vip).len() == 1);
        site.holders(vip)[0] + 1
    })
}

/// Each policy, with four services on n1 of which some stop: EP = BP, 0, BP(1-K/N).
#[test]
fn each_tracking_policy_moves_what_it_should() {
    let services = "checks='tcp=127.0.0.1:81 tcp=127.0.0.1:82 tcp=127.0.0.1:83 tcp=127.0.0.1:84'";
    for (policy, one_down, three_down, all_down) in [
        // 190 becomes 142, 47, 0, and VIP1 is 150 on n3, VIP2 150 on n2.
        ("progressive", [3, 2, 2, 3], [3, 2, 2, 3], [3, 2, 2, 3]),
        ("all", [3, 2, 2, 3], [3, 2, 2, 3], [3, 2, 2, 3]),
        ("one", [1, 1, 2, 3], [1, 1, 2, 3], [3, 2, 2, 3]),
        ("none", [1, 1, 2, 3], [1, 1, 2, 3], [1, 1, 2, 3]),
    ] {
        let site = Site::new(&format!("{services}\npolicy={policy}"));
        let listen = |host: &Host, port: u16| {
            host.start_shell(&format!("exec socat TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr /dev/null"))
        };
        let mut running: Vec<_> =
            site.hosts.iter().map(|host| (81..=84).map(|port| listen(host, port)).collect::<Vec<_>>()).collect();
        site.settles(&format!("{policy}: all are well"), [1, 1, 2, 3]);
        running[0].pop();
        site.settles(&format!("{policy}: one is down"), one_down);
        running[0].truncate(1);
        std::thread::sleep(Duration::from_millis(500));
        site.settles(&format!("{policy}: three are down"), three_down);
        running[0].clear();
        std::thread::sleep(Duration::from_millis(500));
        site.settles(&format!("{policy}: all are down"), all_down);
        running[0] = (81..=84).map(|port| listen(&site.hosts[0], port)).collect();
        site.settles(&format!("{policy}: all are up again"), [1, 1, 2, 3]);
    }
}

/// SIGKILL of each process of the recipe: one owner within the time of a take-over.
#[test]
fn whatever_is_killed_there_is_one_owner() {
    let mut site = Site::new("checks='memory'");
    site.settles("all are well", [1, 1, 2, 3]);
    for victim in ["vip apply", "vrrp run", "health score", "health memory", "active-active"] {
        let recipe = site.nodes.iter().position(|node| node.host == 0).unwrap();
        let parent = site.nodes[recipe].child.id();
        // The processes of this recipe alone: its children, or itself.
        let pid = if victim == "active-active" {
            parent
        } else {
            let list = Command::new("ps").args(["--ppid", &parent.to_string(), "-o", "pid=,args="]).output().unwrap();
            let list = String::from_utf8(list.stdout).unwrap();
            let line = list.lines().find(|line| line.contains(victim)).unwrap_or_else(|| panic!("{victim}: {list}"));
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
        let mut node = site.nodes.remove(recipe);
        let status = node.child.wait().unwrap();
        assert!(victim == "active-active" || status.code() == Some(71), "{victim}: {status:?}");
        site.settles(&format!("{victim} was killed"), [3, 2, 2, 3]);
        site.start(0);
        site.settles("it is back", [1, 1, 2, 3]);
    }
}

#[test]
fn a_planned_leave_and_a_standby_move_everything_and_back() {
    let mut site = Site::new("");
    site.settles("all are well", [1, 1, 2, 3]);
    let standby = site.hosts[0].folder.join("state/standby");
    std::fs::write(&standby, "new disks").unwrap();
    site.settles("n1 is in standby", [3, 2, 2, 3]);
    std::fs::remove_file(&standby).unwrap();
    site.settles("n1 is back", [1, 1, 2, 3]);
    site.stop(0, Signal::SIGTERM);
    site.settles("n1 has left", [3, 2, 2, 3]);
    assert_eq!(site.hosts[0].run("vip show --mine").ended(0).records().len(), 0);
    // Once more: it cannot run twice, and what is wrong is told before anything is done.
    site.start(0);
    site.settles("n1 is back again", [1, 1, 2, 3]);
    let second = site.command(0).output().unwrap();
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    for (line, why) in [
        ("vip=1", "not a setting"),
        ("policy='most'", "most"),
        ("checks='tcp'", "is no check"),
        ("checks='tcp=127.0.0.1'", "127.0.0.1"),
        ("interval=5ms", "10ms"),
        ("dev=nope", "no such interface"),
        ("vips='51=192.0.2.11/24'", "more priorities"),
        ("vmac=maybe", "yes or no"),
        ("lifetime=1s", "at least 2s"),
        ("refresh=0s", "above 0s"),
        ("no_preempt=192.0.2.99", "none of vips"),
        ("vips='51=192.0.2.11/24 52=192.0.2.12/24 53=192.0.2.13/24 54=192.0.2.11/24'", "number 4 of vips"),
    ] {
        let config = site.hosts[0].folder.join("config");
        let good = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{good}{line}\n")).unwrap();
        let run = site.command(0).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(6), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
        std::fs::write(&config, good).unwrap();
    }
}
