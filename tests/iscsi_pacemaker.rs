//! The same move of an iSCSI target by the recipe iscsi and by Pacemaker: on the same hosts, under the same faults, for the
//! same client, and with the same time until a silent host is given up.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::time::{Duration, Instant};
use support::cluster::is_nightly;
use support::iscsi::{Cluster, Fault, MS, SECOND, Scene, Writer, address, url};
use support::pacemaker::Pacemaker;

const LIMIT: Duration = Duration::from_secs(60);
const DISK: &str = "disk";

/// One that moves the disk, which is at home on the first host.
enum Mover {
    Ours(Cluster),
    Pacemaker(Pacemaker),
}

/// A fault as the client saw it.
struct Sample {
    /// Its longest write.
    stall: Duration,
    /// Until another host had the address. After that the client has yet to notice.
    moved: Duration,
    /// The host that failed led the others too: those begin with another leader.
    led: bool,
}

impl Mover {
    /// The recipe; without a fence agent its storage refuses the old host.
    fn ours(dead_after: u64, fences: bool) -> Mover {
        let (volumes, dead_after) = ([(DISK, "n1")], format!("dead_after={dead_after}ms"));
        Mover::Ours(if fences {
            Cluster::fenced_with(&volumes, &dead_after)
        } else {
            Cluster::new(&volumes, &format!("fencing=none\n{dead_after}"))
        })
    }

    /// Without a fence agent nothing keeps the old host from writing.
    fn pacemaker(dead_after: u64, fences: bool) -> Mover {
        Mover::Pacemaker(Pacemaker::new(DISK, Duration::from_millis(dead_after), fences))
    }

    fn scene(&mut self) -> &mut Scene {
        match self {
            Mover::Ours(cluster) => &mut cluster.scene,
            Mover::Pacemaker(cluster) => &mut cluster.scene,
        }
    }

    /// Waits until the first host serves, and says whether it leads.
    fn settles(&self) -> bool {
        match self {
            Mover::Ours(cluster) => {
                cluster.serves("n1", 0);
                cluster.scene.machines[0].runs("place")
            }
            Mover::Pacemaker(cluster) => {
                cluster.settles();
                cluster.leader() == "n1"
            }
        }
    }

    fn story(&self) -> String {
        match self {
            Mover::Ours(cluster) => cluster.scene.story() + &cluster.scene.logs(),
            Mover::Pacemaker(cluster) => cluster.scene.logs(),
        }
    }

    /// Plays a fault of the first host, and its end.
    fn play(&mut self, fault: Fault, fences: bool) -> Sample {
        self.settles();
        let writer = Writer::start(&self.scene().client, &url(&address(0), DISK), 200, MS);
        writer.goes_on(50, LIMIT);
        if let Mover::Ours(cluster) = self {
            cluster.knows_peers(DISK);
        }
        let led = self.settles();
        let struck = Instant::now();
        self.scene().strike(fault, 0);
        let before = writer.writes();
        let wait = |what: &str, mover: &mut Mover, done: &dyn Fn(&Scene) -> bool| {
            while !done(mover.scene()) {
                assert!(struck.elapsed() < LIMIT, "{fault:?}: {what}: not within {LIMIT:?}\n{}", mover.story());
                std::thread::sleep(5 * MS);
            }
            struck.elapsed()
        };
        let moved = wait("another serves", self, &|scene| scene.machines[1..].iter().any(|host| host.has(&address(0))));
        // More than can have been on their way.
        wait("the client writes on", self, &|_| writer.writes() >= before + 300);
        let stall = writer.stall(struck);
        let stream = writer.stop();
        assert_eq!(stream.failures, Vec::<String>::new(), "{fault:?}");
        assert_eq!(self.scene().wrong(DISK, &stream.wanted), Vec::<usize>::new(), "{fault:?}");
        assert!(!fences || self.scene().machines[0].is_dead(), "{fault:?}\n{}", self.story());
        self.mend(fault, fences);
        // Nothing that was on its way arrives late.
        self.settles();
        assert_eq!(self.scene().wrong(DISK, &stream.wanted), Vec::<usize>::new(), "{fault:?}");
        Sample { stall, moved, led }
    }

    /// Ends a fault; what is off begins anew.
    fn mend(&mut self, fault: Fault, fences: bool) {
        // Nobody would leave such a host to write.
        let unsafe_to_thaw = matches!(self, Mover::Pacemaker(_));
        let Scene { machines, lab, .. } = self.scene();
        if fences || unsafe_to_thaw || fault == Fault::Kill {
            machines[0].reboot(lab);
            match self {
                Mover::Ours(cluster) => cluster.recipes[0] = Some(cluster.start(0)),
                Mover::Pacemaker(cluster) => cluster.start(0),
            }
        } else {
            machines[0].resume(lab);
        }
    }
}

fn median(samples: &[Sample]) -> Duration {
    let mut stalls: Vec<Duration> = samples.iter().map(|sample| sample.stall).collect();
    stalls.sort();
    stalls[stalls.len() / 2]
}

/// Each as `stall/moved`, in milliseconds; with a star where the host led.
fn shown(samples: &[Sample]) -> String {
    let cell = |sample: &Sample| {
        let star = if sample.led { "*" } else { "" };
        format!("{}/{}{star}", sample.stall.as_millis(), sample.moved.as_millis())
    };
    samples.iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// What a client waits for when the host of its target fails. By day as much of it as takes less than a minute.
#[test]
fn on_time_a_fenced_move_is_no_slower_than_pacemakers() {
    let (settings, faults, rounds) = if is_nightly() {
        (&[500, 1000, 2000, 4000][..], &Fault::ALL[..], 3)
    } else {
        (&[500][..], &[Fault::Pause, Fault::Kill][..], 1)
    };
    // One fault is no average: by day a leader that was on the host that failed is not made up for.
    let slack = if is_nightly() { Duration::ZERO } else { 2 * SECOND };
    eprintln!("the client's longest write / another host has the address (ms); *: the host that failed led");
    let more = if is_nightly() { "  ours  pacemaker-unfenced" } else { "" };
    eprintln!("dead_after  fault   ours-fenced  pacemaker-fenced{more}");
    let mut slower = Vec::new();
    for dead_after in settings.iter().copied() {
        // One after another: each has the machine for itself.
        let measure = |mut mover: Mover, fences: bool, rounds: usize| -> Vec<Vec<Sample>> {
            let mut samples: Vec<Vec<Sample>> = faults.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (fault, samples) in faults.iter().zip(&mut samples) {
                    samples.push(mover.play(*fault, fences));
                }
            }
            samples
        };
        // What fencing costs; Pacemaker is not to be run without.
        let unfenced = is_nightly().then(|| {
            let ours = measure(Mover::ours(dead_after, false), false, rounds);
            (ours, measure(Mover::pacemaker(dead_after, false), false, 1))
        });
        let ours_fenced = measure(Mover::ours(dead_after, true), true, rounds);
        let pacemaker = measure(Mover::pacemaker(dead_after, true), true, rounds);
        for (idx, fault) in faults.iter().enumerate() {
            eprintln!(
                "{dead_after:>10}  {:<6}  {}  {}{}",
                format!("{fault:?}").to_lowercase(),
                shown(&ours_fenced[idx]),
                shown(&pacemaker[idx]),
                unfenced.as_ref().map_or_else(String::new, |(ours, pacemaker)| {
                    format!("  {}  {}", shown(&ours[idx]), shown(&pacemaker[idx]))
                })
            );
            if median(&ours_fenced[idx]) > median(&pacemaker[idx]) + slack {
                slower.push((dead_after, *fault));
            }
        }
    }
    assert_eq!(slower, Vec::new());
}
