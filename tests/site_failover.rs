//! The recipe site-failover: two sites behind a name, in the foreground and from cron, with dig as the witness.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::dns::{ZONE, key, primary};
use support::{Host, Lab, Running, eventually};

const LIMIT: Duration = Duration::from_secs(20);
const PARIS: &str = "192.0.2.81";
const ROME: &str = "192.0.2.82";
/// A site is down after two probes a tenth of a second apart, and asked again after half a second.
const FAST: &str = "interval=100ms\nresponse_timeout=200ms\nretries=2\ndown_time=500ms\npolicy=priority\n";

/// An authority, two sites that serve, and a host that watches them.
struct Scene {
    _lab: Lab,
    monitor: Host,
    paris: Host,
    rome: Host,
    key: String,
    _running: Vec<Running>,
}

impl Scene {
    fn new() -> Scene {
        let lab = Lab::new();
        let ns = lab.host("ns", &["192.0.2.53/24"]);
        let paris = lab.host("paris", &[&format!("{PARIS}/24"), "2001:db8::81/64"]);
        let rome = lab.host("rome", &[&format!("{ROME}/24"), "2001:db8::82/64"]);
        let monitor = lab.host("monitor", &["192.0.2.10/24", "2001:db8::10/64"]);
        let key = key(&ns, "failover");
        let mut running = vec![primary(&ns, "192.0.2.53", None, &key, &format!("app 5 A {PARIS}"))];
        for site in [&paris, &rome] {
            running.push(site.start_shell("exec socat TCP6-LISTEN:80,ipv6only=0,fork,reuseaddr EXEC:cat"));
            eventually("the site serves", LIMIT, || site.sh("ss -Hlnt").contains(":80"));
            site.sh("nft 'add table inet off; add chain inet off in { type filter hook input priority 0; }'");
        }
        Scene { _lab: lab, monitor, paris, rome, key, _running: running }
    }

    /// Writes a configuration; gives its path.
    fn configure(&self, sites: &str, more: &str) -> String {
        let (file, config) = (self.monitor.folder.join("sites"), self.monitor.folder.join("site-failover.conf"));
        fs::write(&file, sites).unwrap();
        fs::write(
            &config,
            format!(
                "name=app.{ZONE}\nserver=192.0.2.53\ntsig_key={}\nsites={}\nchecks='paris={PARIS}:80 rome={ROME}:80'\n{FAST}{more}",
                self.key,
                file.display()
            ),
        )
        .unwrap();
        config.display().to_string()
    }

    fn both(&self, more: &str) -> String {
        self.configure(&format!("paris {PARIS}\nrome {ROME}\n"), more)
    }

    fn recipe(&self, arguments: &str) -> Command {
        let script = format!("{}/scripts/recipes/site-failover", env!("CARGO_MANIFEST_DIR"));
        let path = support::binary("dns").parent().unwrap().display().to_string();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.monitor.ns)).arg(script).args(arguments.split_whitespace());
        command.env_clear();
        self.monitor.environment(&mut command);
        // As cron has it.
        command.env("PATH", format!("{path}:/usr/bin:/bin")).env("LANG", "de_DE.UTF-8").stdin(Stdio::null());
        command
    }

    /// One run of the recipe: its status, what it printed, and what it complained of.
    fn run(&self, arguments: &str) -> (i32, String, String) {
        let output = self.recipe(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    fn dig(&self, more: &str) -> String {
        self.monitor.sh(&format!("dig @192.0.2.53 app.{ZONE} {more}"))
    }

    fn addresses(&self) -> Vec<String> {
        let mut all: Vec<String> = self.dig("+short A").lines().map(str::to_owned).collect();
        all.sort();
        all
    }

    #[track_caller]
    fn becomes(&self, addresses: &[&str]) {
        eventually(&format!("the name has {addresses:?}"), LIMIT, || self.addresses() == addresses);
    }

    fn standby(&self, site: &str) -> PathBuf {
        self.monitor.folder.join(format!("state/standby.{site}"))
    }
}

/// A site answers nothing any more, or again.
fn is_up(site: &Host, up: bool) {
    site.sh(if up { "nft flush chain inet off in" } else { "nft add rule inet off in tcp dport 80 drop" });
}

/// The recipe in the foreground.
struct Loop {
    child: Child,
    log: PathBuf,
}

impl Loop {
    fn start(scene: &Scene, config: &str) -> Loop {
        let log = scene.monitor.folder.join("log");
        let file = fs::File::create(&log).unwrap();
        let child = scene.recipe(config).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Loop { child, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn ends(&mut self) -> i32 {
        eventually("the recipe ends", LIMIT, || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(Signal::SIGTERM);
            self.child.wait().unwrap();
        }
    }
}

#[test]
fn the_name_leaves_a_dead_site_and_comes_back_to_it() {
    let scene = Scene::new();
    let config = scene.both("all_down=empty\n");
    let mut recipe = Loop::start(&scene, &config);
    is_up(&scene.paris, false);
    scene.becomes(&[ROME]);
    // Neither: the name is there, and has no address.
    is_up(&scene.rome, false);
    scene.becomes(&[]);
    let empty = scene.dig("A");
    assert!(empty.contains("status: NOERROR") && empty.contains("SOA"), "{empty}");
    is_up(&scene.rome, true);
    scene.becomes(&[ROME]);
    is_up(&scene.paris, true);
    scene.becomes(&[PARIS]);
    assert_eq!(scene.dig("+short TXT"), "", "nothing is left of the empty answer");
    // Drained, as long as somebody else is there.
    fs::write(scene.standby("paris"), "new switches\n").unwrap();
    scene.becomes(&[ROME]);
    fs::remove_file(scene.standby("paris")).unwrap();
    scene.becomes(&[PARIS]);
    // What stands stays, and a second one does not run meanwhile.
    let second = scene.run(&config);
    assert!(second.0 == 75 && second.2.contains("it runs already"), "{second:?}");
    recipe.signal(Signal::SIGTERM);
    assert_eq!(recipe.ends(), 0, "{}", recipe.said());
    assert_eq!(scene.addresses(), [PARIS]);
    assert!(recipe.said().contains("\"kind\":\"dns.update\""), "{}", recipe.said());
}

#[test]
fn with_nobody_up_the_backup_is_the_answer() {
    let scene = Scene::new();
    let config = scene.both("all_down=backup\nbackup=192.0.2.99\n");
    let _recipe = Loop::start(&scene, &config);
    is_up(&scene.paris, false);
    is_up(&scene.rome, false);
    scene.becomes(&["192.0.2.99"]);
    is_up(&scene.rome, true);
    scene.becomes(&[ROME]);
}

#[test]
fn both_families_of_a_site_go_together() {
    let scene = Scene::new();
    let sites = format!("paris {PARIS} 2001:db8::81\nrome {ROME} 2001:db8::82\n");
    let config = scene.configure(&sites, "all_down=empty\n");
    let _recipe = Loop::start(&scene, &config);
    let six = || scene.dig("+short AAAA").trim().to_owned();
    eventually("both are there", LIMIT, || six() == "2001:db8::81" && scene.addresses() == [PARIS]);
    is_up(&scene.paris, false);
    eventually("both have moved", LIMIT, || six() == "2001:db8::82" && scene.addresses() == [ROME]);
    is_up(&scene.rome, false);
    eventually("both are empty", LIMIT, || six().is_empty() && scene.addresses().is_empty());
    assert!(scene.dig("AAAA").contains("status: NOERROR"));
}

#[test]
fn from_cron_each_run_does_what_is_to_be_done() {
    let scene = Scene::new();
    let config = scene.both("all_down=empty\n");
    let once = |status: i32| {
        let (code, said, complaints) = scene.run(&format!("--once {config}"));
        assert_eq!(code, status, "{said} {complaints}");
        said
    };
    assert_eq!(once(0), "", "cron has nothing to send");
    is_up(&scene.paris, false);
    assert!(once(0).contains("\"changed\":true"));
    assert_eq!(scene.addresses(), [ROME]);
    assert_eq!(once(0), "");
    is_up(&scene.paris, true);
    eventually("its down time is over", LIMIT, || {
        once(0);
        scene.addresses() == [PARIS]
    });
    fs::write(scene.standby("paris"), "").unwrap();
    once(0);
    assert_eq!(scene.addresses(), [ROME]);
}

#[test]
fn what_a_killed_run_leaves_the_next_one_mends() {
    let scene = Scene::new();
    let config = scene.both("");
    for process in ["dns answer", "dns update", "health tcp"] {
        let mut recipe = Loop::start(&scene, &config);
        eventually("it has updated once", LIMIT, || recipe.said().contains("dns.update"));
        let found = scene.monitor.sh(&format!(
            "for pid in $(ip netns pids {}); do tr '\\0' ' ' </proc/$pid/cmdline | sed \"s|^|$pid |\"; echo; done",
            scene.monitor.ns
        ));
        let pid = found.lines().find(|line| line.contains(process)).unwrap_or_else(|| panic!("no {process}: {found}"));
        kill(Pid::from_raw(pid.split(' ').next().unwrap().parse().unwrap()), Signal::SIGKILL).unwrap();
        assert_eq!(recipe.ends(), 71, "{}", recipe.said());
        assert!(recipe.said().contains("has ended"), "{}", recipe.said());
        assert_eq!(scene.addresses(), [PARIS], "what stands stays");
    }
    is_up(&scene.paris, false);
    let _recipe = Loop::start(&scene, &config);
    scene.becomes(&[ROME]);
}

#[test]
fn a_new_configuration_counts_from_hup_on() {
    let scene = Scene::new();
    let config = scene.both("");
    let recipe = Loop::start(&scene, &config);
    eventually("it has updated once", LIMIT, || recipe.said().contains("dns.update"));
    scene.both("policy=round-robin\n");
    recipe.signal(Signal::SIGHUP);
    scene.becomes(&[PARIS, ROME]);
    // One that is wrong changes nothing, wherever that is found out.
    for (wrong, why) in [
        ("polcy=priority\n", "not a setting: polcy=priority"),
        ("interval=5x\n", "not a duration"),
        ("sites=/no\n", "/no"),
    ] {
        let before = recipe.said().matches("goes on with what it had").count();
        scene.both(wrong);
        recipe.signal(Signal::SIGHUP);
        eventually(why, LIMIT, || {
            recipe.said().contains(why) && recipe.said().matches("goes on with what it had").count() > before
        });
    }
    is_up(&scene.paris, false);
    scene.becomes(&[ROME]);
    // TERM counts also while it begins anew.
    let mut recipe = recipe;
    recipe.signal(Signal::SIGHUP);
    recipe.signal(Signal::SIGTERM);
    assert_eq!(recipe.ends(), 0, "{}", recipe.said());
}

/// What is not known yet takes no site out of the name, and nothing measured changes nothing.
#[test]
fn what_was_not_measured_changes_nothing() {
    let scene = Scene::new();
    let slow = format!("192.0.2.83:80 rome={ROME}:80");
    let config = scene.configure(
        &format!("paris {PARIS}\nrome {ROME}\n"),
        &format!("policy=round-robin\nchecks='paris={slow}'\nresponse_timeout=2s\nretries=3\n"),
    );
    // Paris is asked at an address that nobody has, for six seconds.
    let recipe = Loop::start(&scene, &config);
    eventually("rome is well", LIMIT, || {
        scene.monitor.sh("ss -Hnt state all").contains(ROME) || recipe.said().len() > 1
    });
    assert_eq!(scene.addresses(), [PARIS], "nothing is pushed before both are known");
    scene.becomes(&[ROME]);
    drop(recipe);
    // A torn memory is no verdict: that of the checks counts, and the status tells it.
    let state = scene.monitor.folder.join("state");
    let mut files = fs::read_dir(&state).unwrap().map(|file| file.unwrap().path());
    let memory = files.find(|path| path.extension().is_some_and(|ending| ending == "A")).unwrap();
    fs::write(memory.with_extension("damp"), "").unwrap();
    let config = scene.both("");
    let (code, _, complaints) = scene.run(&format!("--once {config}"));
    assert!(code == 6 && complaints.contains(".damp"), "{code} {complaints}");
    assert_eq!(scene.addresses(), [PARIS]);
    fs::write(&memory, "").unwrap();
    is_up(&scene.paris, false);
    assert_eq!(scene.run(&format!("--once {config}")).0, 6);
    assert_eq!(scene.addresses(), [PARIS], "nothing is decided from a torn memory");
}

/// With both families the dead site goes in both, also where the other has only one.
#[test]
fn a_dead_site_leaves_in_the_family_that_nobody_else_has() {
    let scene = Scene::new();
    let config = scene.configure(&format!("paris {PARIS} 2001:db8::81\nrome {ROME}\n"), "");
    let _recipe = Loop::start(&scene, &config);
    let six = || scene.dig("+short AAAA").trim().to_owned();
    eventually("both are there", LIMIT, || six() == "2001:db8::81" && scene.addresses() == [PARIS]);
    is_up(&scene.paris, false);
    eventually("both have moved", LIMIT, || six().is_empty() && scene.addresses() == [ROME]);
    is_up(&scene.paris, true);
    eventually("both are back", LIMIT, || six() == "2001:db8::81" && scene.addresses() == [PARIS]);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let scene = Scene::new();
    assert!(scene.run(&format!("--check {}", scene.both(""))).2.contains("is right"));
    for (more, why) in [
        ("polcy=priority\n", "not a setting: polcy=priority"),
        ("checks=''\n", "it has no checks"),
        ("checks=paris\n", "paris is no check"),
        ("policy=chance\n", "chance"),
        ("interval=5\n", "is not a duration"),
        ("all_down=backup\n", "needs an address"),
        ("wait=maybe\n", "wait and one are yes or no"),
        ("sites=/nonexistent\n", "/nonexistent"),
        ("tsig_key=www.key\n", "begins at no /"),
        ("checks='paris=192.0.2.81:80 roma=192.0.2.82:80'\n", "names the site roma, and the sites are paris rome"),
        ("tsig_key=/nonexistent\n", "/nonexistent"),
        ("server='192.0.2.53;reboot'\n", "not a plain value"),
    ] {
        let config = scene.both(more);
        let (code, said, complaints) = scene.run(&config);
        assert!(code == 6 && said.is_empty() && complaints.contains(why), "{more}: {code} {said} {complaints}");
    }
    assert_eq!(scene.addresses(), [PARIS]);
    let unchecked =
        scene.run(&format!("--check {}", scene.both("checks=paris=192.0.2.81:80\nserver=192.0.2.53,192.0.2.54\n")));
    assert!(unchecked.0 == 0 && unchecked.2.contains("no check for rome"), "{unchecked:?}");
    assert_eq!(scene.run("").0, 2);
}
