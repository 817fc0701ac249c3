//! `vip elect`: node records in, owners out; then the whole pipe, from beats to addresses and back.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::gap::cut;
use support::{Host, Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);
const VIP: &str = "192.0.2.10";

fn node(name: &str, status: &str, more: &str) -> String {
    format!("{{\"subject\":\"{name}\",\"status\":\"{status}\"{more}}}\n")
}

fn address(name: &str, mine: bool) -> String {
    format!("{{\"kind\":\"vip.address\",\"v\":1,\"host\":\"{name}\",\"subject\":\"{VIP}\",\"mine\":{mine}}}\n")
}

fn has(host: &Host) -> bool {
    host.sh("ip addr show dev eth0").contains(&format!("inet {VIP}/"))
}

/// One conclusion from records by hand: known-faults 16, hardening 2, 7 and 20.
#[test]
fn once_it_says_who_serves_and_why() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let up = |name: &str, more: &str| node(name, "up", more);
    for (input, code, state, master, held) in [
        (up("n1", ",\"priority\":200") + &up("n2", ",\"priority\":100"), 0, "master", "n1", false),
        (up("n1", ",\"priority\":100") + &up("n2", ",\"priority\":200"), 1, "backup", "n2", false),
        // Equal: 192.0.2.10 beats 192.0.2.9, as numbers.
        (up("n2", ",\"address\":\"192.0.2.9\"") + &up("n3", ",\"address\":\"192.0.2.10\""), 1, "backup", "n3", false),
        // The own score on standard input; the map holds before the common one.
        (
            up("n2", "")
                + &format!(
                    "{{\"kind\":\"health.score\",\"host\":\"n1\",\"subject\":\"n1\",\"status\":\"up\",\"priority\":1,\"priorities\":{{\"{VIP}\":180}}}}\n"
                ),
            0,
            "master",
            "n1",
            false,
        ),
        // Priority 0 stands aside also when nobody else is there, and 1 is not 0.
        (up("n1", ",\"priority\":0") + &node("n2", "down", ""), 1, "init", "", false),
        (up("n1", ",\"priority\":0") + &up("n2", ",\"priority\":1"), 1, "init", "n2", false),
        // Release before take.
        (up("n1", ",\"priority\":200") + &up("n2", "") + &address("n2", true), 1, "backup", "n1", false),
        (up("n1", "") + &node("n2", "unknown", "") + &address("n2", true), 1, "backup", "n1", true),
        (up("n1", "") + &node("n2", "down", "") + &address("n2", true), 1, "backup", "n1", true),
        (up("n1", "") + &node("n2", "down", "") + &address("n2", false), 0, "master", "n1", false),
    ] {
        let run = host.run_with(&format!("vip elect --vip {VIP}/24"), &input);
        assert_eq!(run.code, code, "{input}{run:#?}");
        let one = run.one();
        assert_eq!((&one["state"], &one["mine"]), (&state.into(), &(code == 0).into()), "{input}{one:#}");
        assert_eq!((one["master"].as_str().unwrap_or(""), &one["held"]), (master, &held.into()), "{input}{one:#}");
        assert!(!one["why"].as_str().unwrap().is_empty());
    }
    let dead = up("n1", "") + &node("n2", "down", "") + &address("n2", true);
    let one = host.run_with(&format!("vip elect --vip {VIP}/24 --exit-zero --pass"), &dead).ended(0);
    assert!(one.stdout.starts_with(&dead), "each line first, as it was");
    let one: Value = serde_json::from_str(one.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(one["needs_fence"], json!(["n2"]));
    let proven = dead.clone() + "{\"kind\":\"fence.off\",\"host\":\"n1\",\"subject\":\"n2\",\"proof\":true}\n";
    host.run_with(&format!("vip elect --vip {VIP}/24"), &proven).ended(0);
    let votes = "{\"kind\":\"quorum\",\"subject\":\"n1\",\"status\":\"up\",\"quorate\":false}\n";
    let given_up = host.run_with(&format!("vip elect --vip {VIP}/24"), &(up("n1", "") + votes)).ended(1).one();
    assert_eq!((&given_up["state"], &given_up["standby"]), (&"init".into(), &"its side is not quorate".into()));
    host.run_with(&format!("vip elect --vip {VIP}/24 --quorum"), &up("n1", "")).ended(1);
    // A member that was never heard is not dead.
    let unheard = host.run_with(&format!("vip elect --vip {VIP}/24 --members n1,n2"), &up("n1", "")).ended(1).one();
    assert_eq!((&unheard["held"], &unheard["why"]), (&true.into(), &"n2 was never heard".into()));
    assert_eq!(unheard["candidates"][0]["address"], "192.0.2.1", "its own address is read from the kernel");
}

#[test]
fn what_is_wrong_is_told_and_nothing_heard_concludes_nothing() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let line = format!("vip elect --vip {VIP}/24");
    for (input, code, why) in [
        ("\n", 75, "no node was heard of"),
        ("{\"kind\":\"health.tcp\",\"subject\":\"192.0.2.1:80\",\"status\":\"up\"}\n", 75, "no node was heard of"),
        ("nonsense\n", 6, "line 1 is malformed"),
        ("{\"subject\":\"n1\",\"status\":\"well\"}\n", 6, "'status'"),
        ("{\"subject\":\"n1\",\"status\":\"up\",\"priority\":\"high\"}\n", 6, "'priority'"),
        ("{\"kind\":\"vip.address\",\"host\":\"n2\",\"subject\":\"x\",\"mine\":true}\n", 6, "'subject'"),
    ] {
        let run = host.run_with(&line, input);
        assert_eq!(run.code, code, "{input}: {run:#?}");
        assert!(run.stderr.contains(why) && run.stdout.is_empty(), "{input}: {run:#?}");
    }
    for (flags, why) in [
        ("", "--vip"),
        ("--vip 192.0.2.10/33", "prefix length"),
        ("--vip 192.0.2.10/24,192.0.2.10/32", "twice"),
        ("--vip 192.0.2.10/24 --follow", "need --members"),
        ("--vip 192.0.2.10/24 --members n2,n3", "is not in --members"),
        ("--vip 192.0.2.10/24 --members n1,n1", "twice"),
        ("--vip 192.0.2.10/24 --members n1,a/b", "is not a node name"),
        ("--vip 192.0.2.10/24 --no-preempt=192.0.2.11", "is not in --vip"),
        ("--vip 192.0.2.10/24 --lifetime 2s --take-after 5s", "too early"),
        ("--vip 192.0.2.10/24 --renew 0s", "10ms or more"),
    ] {
        let run = host.run_with(&format!("vip elect {flags}"), "{}\n").ended(2);
        assert!(run.stderr.contains(why), "{flags}: {run:?}");
    }
}

/// What cannot be remembered makes the next run wait; this one serves on.
#[test]
fn a_stream_goes_on_where_its_state_cannot_be_written() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let mut run = host.start_fed(&format!("vip elect --vip {VIP}/24 --members n1 --state /proc/none/elect --follow"));
    run.feed("{\"kind\":\"health.score\",\"host\":\"n1\",\"subject\":\"n1\",\"status\":\"up\",\"priority\":9}\n");
    run.wait_for("elected", 5 * SECOND, |record| record["mine"] == true);
    eventually("it says so", 5 * SECOND, || run.complaints().contains("going on without it"));
    assert!(run.child.try_wait().unwrap().is_none());
}

/// From cron: agreement and silence are remembered from run to run of one boot.
#[test]
fn single_runs_with_a_state_agree_before_they_take() {
    let lab = Lab::new();
    let host = lab.host("n1", &["192.0.2.1/24"]);
    let state = host.folder.join("elect.json");
    let line = format!("vip elect --vip {VIP}/24 --members n1,n2 --state {}", state.display());
    let input = |epoch: u64, master: &str| {
        node("n2", "up", ",\"priority\":50")
            + &format!(
                "{{\"kind\":\"vip.address\",\"host\":\"n2\",\"subject\":\"{VIP}\",\"mine\":false,\"epoch\":{epoch},\"master\":\"{master}\"}}\n"
            )
    };
    let first = host.run_with(&line, &input(0, "n2")).ended(1).one();
    assert_eq!((&first["why"], &first["epoch"]), (&"n2 does not agree yet".into(), &1.into()));
    let second = host.run_with(&line, &input(1, "n1")).ended(0).one();
    assert_eq!((&second["state"], &second["epoch"]), (&"master".into(), &1.into()));
    // It serves: silence of the other changes nothing.
    host.run_with(&line, &node("n2", "down", "")).ended(0);
    let kept = fs::read_to_string(&state).unwrap();
    fs::write(&state, kept.replace("\"boot_id\":\"", "\"boot_id\":\"0")).unwrap();
    let later = host.run_with(&line, &input(0, "n2"));
    assert!(later.code == 1 && later.stderr.contains("earlier boot"), "{later:#?}");
    fs::write(&state, &kept[..kept.len() / 2]).unwrap();
    let refused = host.run_with(&line, &input(0, "n2")).ended(6);
    assert!(refused.stderr.contains("elect.json"), "{refused:?}");
}

/// The pipe on one host: `heartbeat recv | [quorum |] vip elect | vip apply --beat`, and `heartbeat send`.
struct Pipe {
    children: Vec<(&'static str, Child)>,
    /// Where the host's own scores go in.
    scores: std::io::PipeWriter,
}

impl Pipe {
    fn start(host: &Host, peers: &[Host], quorum: bool, flags: &str) -> Pipe {
        let key = host.folder.join("key");
        fs::write(&key, format!("1 {}\n", "5a".repeat(32))).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
        let others = peers.iter().filter(|peer| peer.name != host.name);
        let others: Vec<String> = others.map(|peer| format!("192.0.2.{}", peer.number)).collect();
        let (folder, members) = (host.folder.display(), names.join(","));
        let recv = format!(
            "heartbeat recv --bind 192.0.2.{} --key {folder}/key --dead-after 500ms --renew 100ms --follow",
            host.number
        );
        let votes = format!("quorum --members {members} --follow --pass --renew 100ms");
        let count = if quorum { "--quorum" } else { "" };
        let elect = format!(
            "vip elect --vip {VIP}/24 --dev eth0 --members {members} --dead-after 500ms --renew 200ms --follow {count} {flags}"
        );
        let apply = format!("vip apply --follow --beat {folder}/beat.json");
        let (merged, scores) = std::io::pipe().unwrap();
        let mut merged = Some(merged);
        let stages = [("recv", recv), ("quorum", votes), ("elect", elect), ("apply", apply)];
        let mut children: Vec<(&'static str, Child)> = Vec::new();
        for (name, line) in stages.into_iter().filter(|(name, _)| quorum || *name != "quorum") {
            let input = children.last_mut().and_then(|(_, child)| child.stdout.take());
            let input = match name {
                "recv" => Stdio::null(),
                // What was heard and the scores come by one pipe.
                _ => merged.take().map(Stdio::from).or(input.map(Stdio::from)).unwrap(),
            };
            let log = File::create(host.folder.join(format!("{name}.log"))).unwrap();
            let mut command = host.command(&line);
            command.stdin(input).stderr(log.try_clone().unwrap());
            command.stdout(match name {
                "recv" => Stdio::from(scores.try_clone().unwrap()),
                "apply" => Stdio::from(log),
                _ => Stdio::piped(),
            });
            children.push((name, command.spawn().unwrap()));
        }
        let send = format!(
            "heartbeat send --to {} --key {folder}/key --interval 100ms --payload {folder}/beat.json --payload {folder}/score.json --goodbye",
            others.join(",")
        );
        let log = File::create(host.folder.join("send.log")).unwrap();
        let mut command = host.command(&send);
        children
            .push(("send", command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()));
        Pipe { children, scores }
    }

    fn signal(&self, stage: &str, signal: Signal) {
        for (_, child) in self.children.iter().filter(|(name, _)| stage == "all" || *name == stage) {
            kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Site {
    lab: Lab,
    hosts: Vec<Host>,
    pipes: Vec<Pipe>,
}

impl Site {
    fn new(count: u32, quorum: bool, flags: &str) -> Site {
        let lab = Lab::new();
        let hosts: Vec<Host> = (1..=count).map(|n| lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24")])).collect();
        let pipes = hosts.iter().map(|host| Pipe::start(host, &hosts, quorum, flags)).collect();
        Site { lab, hosts, pipes }
    }

    /// Who has the address. Hosts are asked one after the other, so of several each is asked once more: one
    /// that released it in between has it no more.
    fn owners(&self) -> Vec<usize> {
        let mut owners: Vec<usize> = (0..self.hosts.len()).filter(|idx| has(&self.hosts[*idx])).collect();
        if owners.len() > 1 {
            owners.retain(|idx| has(&self.hosts[*idx]));
        }
        owners
    }

    /// The address comes to be on one node and never is on two, but for hosts that are `out`.
    #[track_caller]
    fn settles(&self, what: &str, owner: usize, out: &[usize]) {
        let end = Instant::now() + 15 * SECOND;
        loop {
            let owners: Vec<usize> = self.owners().into_iter().filter(|idx| !out.contains(idx)).collect();
            assert!(owners.len() <= 1, "{what}: {owners:?} {}", self.logs());
            if owners == [owner] {
                break;
            }
            assert!(Instant::now() < end, "{what}: {owners:?} {}", self.logs());
            std::thread::sleep(Duration::from_millis(5));
        }
        // And stays: nothing flaps.
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(50));
            let owners: Vec<usize> = self.owners().into_iter().filter(|idx| !out.contains(idx)).collect();
            assert_eq!(owners, [owner], "{what}: it stays there; {}", self.logs());
        }
    }

    fn score(&self, host: usize, priority: u32) {
        let name = &self.hosts[host].name;
        let line = format!(
            "{{\"kind\":\"health.score\",\"v\":1,\"host\":\"{name}\",\"subject\":\"{name}\",\"status\":\"up\",\"priority\":{priority}}}\n"
        );
        let path = self.hosts[host].folder.join("score.json");
        fs::write(path.with_extension("new"), &line).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
        (&self.pipes[host].scores).write_all(line.as_bytes()).unwrap();
    }

    /// What was done last on each host, and what was complained of.
    fn logs(&self) -> String {
        let mut logs = Vec::new();
        for (idx, host) in self.hosts.iter().enumerate() {
            for stage in ["recv", "quorum", "elect", "apply", "send"] {
                let log = self.log(idx, stage);
                for line in log.lines().rev().take(8).collect::<Vec<_>>().into_iter().rev() {
                    logs.push(format!("{} {stage}: {line}", host.name));
                }
            }
            let beat = fs::read_to_string(host.folder.join("beat.json")).unwrap_or_default();
            logs.push(format!("{} beat: {beat}", host.name));
        }
        logs.join("\n")
    }

    fn log(&self, host: usize, stage: &str) -> String {
        fs::read_to_string(self.hosts[host].folder.join(format!("{stage}.log"))).unwrap_or_default()
    }
}

#[test]
fn two_nodes_follow_priorities_and_the_higher_address() {
    let site = Site::new(2, false, "");
    site.settles("equal: the higher address", 1, &[]);
    site.score(0, 200);
    site.settles("n1 is better, and preempts", 0, &[]);
    site.score(0, 50);
    site.settles("n1 is worse", 1, &[]);
    site.score(1, 0);
    site.settles("0 is not a low priority", 0, &[]);
    site.score(0, 0);
    eventually("nobody stands", 5 * SECOND, || site.owners().is_empty());
    site.score(1, 1);
    site.settles("1 is one", 1, &[]);
    let beat = fs::read_to_string(site.hosts[1].folder.join("beat.json")).unwrap();
    let told = &support::records(&beat)[0];
    assert_eq!((&told["mine"], &told["address"]), (&true.into(), &"192.0.2.2".into()));
    let standby = site.hosts[1].folder.join("state/standby");
    site.score(0, 1);
    fs::write(&standby, "new disks").unwrap();
    site.settles("n2 is in standby", 0, &[]);
    fs::remove_file(&standby).unwrap();
    site.settles("and back", 1, &[]);
}

#[test]
fn without_preemption_the_incumbent_stays() {
    let site = Site::new(2, false, "--no-preempt");
    site.settles("the higher address at first", 1, &[]);
    site.score(0, 200);
    std::thread::sleep(SECOND);
    site.settles("n2 stays", 1, &[]);
    site.score(1, 0);
    site.settles("until it cannot", 0, &[]);
    site.score(1, 250);
    std::thread::sleep(SECOND);
    site.settles("n1 stays", 0, &[]);
}

/// Hardening 20: a frozen owner's kernel serves on, so only a proof moves the address.
#[test]
fn without_a_proof_nothing_moves() {
    let site = Site::new(2, false, "");
    site.settles("n2 serves", 1, &[]);
    site.pipes[1].signal("all", Signal::SIGSTOP);
    std::thread::sleep(3 * SECOND);
    assert_eq!(site.owners(), [1], "unknown is not down, and down is not off");
    let host = &site.hosts[0];
    let agent = host.folder.join("agent");
    let plug = host.folder.join("plug");
    let text = format!(
        "#!/bin/sh\nwhile IFS='=' read -r key value; do [ $key = action ] && action=$value; done\n\
         [ $action = status ] || echo $action >{0}\n[ \"$(cat {0})\" = off ] && exit 2\nexit 0\n",
        plug.display()
    );
    fs::write(&agent, text).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    host.run(&format!("fence off n2 --agent {}", agent.display())).ended(0);
    site.settles("n2 is proven off", 0, &[1]);
    // It was not off after all: the first beat ends the proof, and the better one of the two gives way.
    site.pipes[1].signal("all", Signal::SIGCONT);
    eventually("one owner", 10 * SECOND, || site.owners().len() == 1);
    site.settles("n2 is back, and better", 1, &[]);
}

/// Each way in which a chain can end or stand still, with a majority that goes on.
#[test]
fn three_nodes_replace_whoever_is_cut_off_stands_still_or_leaves() {
    let mut site = Site::new(3, true, "--fencing none");
    site.settles("the highest address", 2, &[]);
    cut(&site.lab, &site.hosts[2], true);
    // n3 gives up before n2 takes: never two.
    site.settles("n3 is cut off", 1, &[]);
    cut(&site.lab, &site.hosts[2], false);
    site.settles("n3 is back", 2, &[]);

    site.pipes[2].signal("recv", Signal::SIGSTOP);
    site.settles("its ears stand still: it gives up by itself", 1, &[]);
    site.pipes[2].signal("recv", Signal::SIGCONT);
    site.settles("they hear again", 2, &[]);

    site.pipes[2].signal("elect", Signal::SIGKILL);
    site.settles("its election was killed: the pipe gives up", 1, &[]);
    site.pipes.pop();
    site.pipes.push(Pipe::start(&site.hosts[2], &site.hosts, true, "--fencing none"));
    site.settles("it runs again", 2, &[]);

    // A planned leave: released, then told, and taken at once.
    site.pipes[2].signal("apply", Signal::SIGTERM);
    site.settles("n3 has left", 1, &[]);
    site.pipes[2].signal("send", Signal::SIGTERM);
    site.settles("and said goodbye", 1, &[]);
    assert!(!site.log(1, "elect").contains("malformed"));
}
