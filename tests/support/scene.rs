//! Take-over as a client sees it: two hosts with routers, ours or keepalived's, and a fault.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use super::gap::{Answerer, Prober, cut};
use super::{Host, Keepalived, Lab, eventually};
use nix::sys::signal::{Signal, kill};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const VIP: &str = "192.0.2.10";

/// Whose router a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Keepalived,
}

/// What happens to the active host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its link is cut without a word.
    Cut,
    /// Its processes stop; its kernel lives.
    Freeze,
}

enum Router {
    Ours { run: Child, apply: Child },
    Keepalived(Keepalived),
}

impl Router {
    fn start(binaries: &Path, whose: Whose, host: &Host, priority: u8, interval_ms: u64) -> Router {
        match whose {
            Whose::Keepalived => {
                #[allow(clippy::cast_precision_loss)] // below 10^6
                let seconds = interval_ms as f64 / 1000.0;
                let body = format!(
                    "priority {priority}\n advert_int {seconds}\n virtual_ipaddress {{\n {VIP}/24 dev eth0\n }}"
                );
                Router::Keepalived(Keepalived::start(host, 3, &body))
            }
            Whose::Ours => {
                let line = format!(
                    "vrrp run --dev eth0 --vrid 51 --priority {priority} --vip {VIP}/24 --interval {interval_ms}ms"
                );
                let mut run = host
                    .command(&line)
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let elections = run.stdout.take().unwrap();
                let log = std::fs::File::create(host.folder.join("applied")).unwrap();
                // A keepalived that loses is silent: hardening 22 and `man/vrrp.8`.
                let line = format!("vip apply --follow --refresh {interval_ms}ms");
                let apply = host
                    .command_of(binaries, &line)
                    .stdin(elections)
                    .stdout(log)
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                Router::Ours { run, apply }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Router::Keepalived(peer) => peer.signal(signal),
            Router::Ours { run, apply } => {
                for child in [run, apply] {
                    kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
                }
            }
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Router::Ours { run, apply } = self {
            let _ = run.kill();
            let _ = run.wait();
            let _ = apply.wait();
        }
    }
}

fn has(host: &Host) -> bool {
    host.sh("ip addr show dev eth0").contains(VIP)
}

/// What a client saw.
pub(crate) struct Played {
    /// The longest silence of the take-over.
    pub(crate) gap: Duration,
    /// The longest silence after the fault has ended.
    pub(crate) back: Duration,
    /// How long after that another than the preferred host still answered.
    pub(crate) others_until: Duration,
    /// How often another host than before answered after that.
    pub(crate) changes: usize,
}

/// Two hosts with routers, a client that probes every millisecond.
pub(crate) struct Scene {
    lab: Lab,
    hosts: Vec<Host>,
    client: Host,
    routers: Vec<Router>,
    answerers: Vec<Answerer>,
}

impl Scene {
    /// The first host is preferred and serves.
    pub(crate) fn new(lab: Lab, binaries: &Path, whose: [Whose; 2], interval_ms: u64) -> Scene {
        let hosts: Vec<Host> = (1..=2).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
        let client = lab.host("client", &["192.0.2.99/24"]);
        let answerers = hosts.iter().map(|host| Answerer::start(host, VIP)).collect();
        let routers = vec![
            Router::start(binaries, whose[0], &hosts[0], 200, interval_ms),
            Router::start(binaries, whose[1], &hosts[1], 190, interval_ms),
        ];
        let scene = Scene { lab, hosts, client, routers, answerers };
        scene.settles();
        scene
    }

    pub(crate) fn settles(&self) {
        eventually("the preferred one serves alone", 15 * SECOND, || has(&self.hosts[0]) && !has(&self.hosts[1]));
        eventually("the client is served by it", 15 * SECOND, || self.neighbour() == "02:00:00:00:00:01");
    }

    fn neighbour(&self) -> String {
        let line = self.client.sh(&format!("ping -c1 -W1 -q {VIP} >/dev/null; ip neigh show {VIP} dev eth0"));
        line.split("lladdr ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
    }

    fn strike(&self, fault: Fault, begins: bool) {
        match fault {
            Fault::Cut => cut(&self.lab, &self.hosts[0], begins),
            Fault::Freeze => {
                self.answerers[0].freeze(begins);
                self.routers[0].signal(if begins { Signal::SIGSTOP } else { Signal::SIGCONT });
            }
        }
    }

    /// Plays a fault and its end.
    pub(crate) fn play(&self, fault: Fault, lasts: Duration, window: Duration) -> Played {
        let prober = Prober::start(&self.client, VIP, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(300));
        let struck = Instant::now();
        self.strike(fault, true);
        std::thread::sleep(lasts);
        let gap = prober.stop().longest_silence(struck);
        let prober = Prober::start(&self.client, VIP, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(100));
        let healed = Instant::now();
        self.strike(fault, false);
        std::thread::sleep(window);
        let back = prober.stop();
        Played {
            gap,
            back: back.longest_silence(healed),
            others_until: back.others_until(1, healed),
            changes: back.changes(healed),
        }
    }
}
