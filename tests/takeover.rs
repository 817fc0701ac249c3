//! Take-over and heal: `vrrp run | vip apply` beside keepalived, as a client sees them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod support;

use nix::sys::signal::{Signal, kill};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::gap::{Answerer, Prober, cut};
use support::{Host, Keepalived, Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);
const VIP: &str = "192.0.2.10";

/// Whose router a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Keepalived,
}

/// What happens to the active host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
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
    fn start(whose: Whose, host: &Host, priority: u8, interval_ms: u64) -> Router {
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
                let apply = host.command(&line).stdin(elections).stdout(log).stderr(Stdio::null()).spawn().unwrap();
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

/// Two hosts with routers, a client that probes every millisecond.
struct Scene {
    lab: Lab,
    hosts: Vec<Host>,
    client: Host,
    routers: Vec<Router>,
    answerers: Vec<Answerer>,
}

impl Scene {
    /// The first host is preferred and serves.
    fn new(whose: [Whose; 2], interval_ms: u64) -> Scene {
        let lab = Lab::new();
        let hosts: Vec<Host> = (1..=2).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
        let client = lab.host("client", &["192.0.2.99/24"]);
        let answerers = hosts.iter().map(|host| Answerer::start(host, VIP)).collect();
        let routers = vec![
            Router::start(whose[0], &hosts[0], 200, interval_ms),
            Router::start(whose[1], &hosts[1], 190, interval_ms),
        ];
        let scene = Scene { lab, hosts, client, routers, answerers };
        scene.settles();
        scene
    }

    fn settles(&self) {
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

    /// The longest silence of the take-over, and of the way back with its changes of owner.
    fn play(&self, fault: Fault, lasts: Duration, window: Duration) -> (Duration, Duration, usize) {
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
        (gap, back.longest_silence(healed), back.changes(healed))
    }
}

/// Median, 90th percentile and the worst of some times.
fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |tenths: usize| times[(times.len() * tenths / 10).min(times.len() - 1)].as_secs_f64() * 1000.0;
    format!("{:.1} ms (90 %: {:.1}, worst {:.1})", at(5), at(9), at(10))
}

/// How often each fault is played: a look in CI, the figures at night.
fn runs() -> usize {
    if std::env::var_os("FAILOVER_NIGHTLY").is_some() { 20 } else { 1 }
}

/// The intervals that are played; a second takes too long for a look.
fn intervals() -> Vec<u64> {
    if runs() > 1 { vec![1000, 100, 10] } else { vec![100, 10] }
}

/// Take-over times side by side, ours and the peer in turn. At night, with
/// `cargo test --profile ci --test takeover -- --nocapture`, it prints the figures; in CI it holds that
/// we take over at all, and that one change of owner is all that a thaw makes.
#[test]
fn a_take_over_is_as_quick_as_keepalived_s() {
    for interval_ms in intervals() {
        for fault in [Fault::Cut, Fault::Freeze] {
            let scenes = [Whose::Ours, Whose::Keepalived].map(|whose| (whose, Scene::new([whose; 2], interval_ms)));
            let mut figures = [(); 2].map(|()| (Vec::new(), Vec::new(), 0));
            for _ in 0..runs() {
                for ((whose, scene), (gaps, backs, changes)) in scenes.iter().zip(&mut figures) {
                    let lasts = Duration::from_millis(interval_ms * 4 + 300);
                    let (gap, back, changed) = scene.play(fault, lasts, Duration::from_millis(interval_ms * 2 + 500));
                    if *whose == Whose::Ours {
                        // Four intervals are more than the down interval; half a second is a busy machine.
                        assert!(
                            gap < Duration::from_millis(interval_ms * 4 + 300),
                            "{fault:?} at {interval_ms}: {gap:?}"
                        );
                        assert!(changed <= 1, "{fault:?} at {interval_ms}: {changed} changes of owner");
                    }
                    gaps.push(gap);
                    backs.push(back);
                    *changes = changed.max(*changes);
                    scene.settles();
                }
            }
            for ((whose, _), (gaps, backs, changes)) in scenes.iter().zip(&mut figures) {
                println!(
                    "{fault:?} at {interval_ms} ms, {whose:?}: gap {}; back {}, at most {changes} changes of owner",
                    spread(gaps),
                    spread(backs)
                );
            }
        }
    }
}

/// A silent cut heals: the client follows the winner, whoever that is, and whoever loses.
#[test]
fn after_a_heal_the_client_follows_the_winner() {
    for interval_ms in intervals() {
        for pair in [[Whose::Ours; 2], [Whose::Ours, Whose::Keepalived], [Whose::Keepalived, Whose::Ours]] {
            let scene = Scene::new(pair, interval_ms);
            let mut backs = Vec::new();
            for _ in 0..runs() {
                let lasts = Duration::from_millis(interval_ms * 4 + 300);
                let (_, back, changes) = scene.play(Fault::Cut, lasts, Duration::from_millis(interval_ms * 2 + 500));
                // One interval and 50 ms are what is promised, and printed; the rest is a busy machine.
                assert!(back < Duration::from_millis(interval_ms + 400), "{pair:?} at {interval_ms}: {back:?}");
                assert!(changes <= 1, "{pair:?} at {interval_ms}: {changes} changes of owner");
                backs.push(back);
                scene.settles();
            }
            println!(
                "heal at {interval_ms} ms, winner {:?}, loser {:?}: silence {}",
                pair[0],
                pair[1],
                spread(&mut backs)
            );
        }
    }
}
