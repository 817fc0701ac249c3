//! The same hosts, volume and client under Pacemaker, with the agents of its distribution.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::Run;
use super::iscsi::{Daemon, IQN, MS, Scene, address};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pacemaker-node");

/// A target, its unit and its address, in the order in which the manual of the agents has them, at home on the first of
/// three nodes.
pub(crate) struct Pacemaker {
    /// Before the scene, whose hosts they are on.
    nodes: Vec<Option<Daemon>>,
    pub(crate) scene: Scene,
}

impl Pacemaker {
    /// Serves a volume. Corosync misses a token after `token`.
    pub(crate) fn new(volume: &str, token: Duration, fences: bool) -> Pacemaker {
        for program in ["/usr/sbin/corosync", "/usr/sbin/pacemakerd", "/usr/lib/ocf/resource.d/heartbeat/iSCSITarget"] {
            assert!(
                Path::new(program).exists(),
                "this test measures Pacemaker and needs {program} (run: scripts/deps)"
            );
        }
        let scene = Scene::new(&[volume], true);
        scene.power_switch();
        let sbin = scene.storage.join("sbin");
        fs::create_dir_all(&sbin).unwrap();
        fs::copy(scene.storage.join("fence_lab"), sbin.join("fence_lab")).unwrap();
        let mut cluster = Pacemaker { nodes: vec![None, None, None], scene };
        for idx in 0..3 {
            cluster.install(idx, &corosync_conf(token), &cib(&cluster.scene.storage.join(volume), volume, fences));
        }
        for idx in 0..3 {
            cluster.start(idx);
        }
        cluster
    }

    /// What outlives a power-off.
    fn install(&self, idx: usize, corosync_conf: &str, cib: &str) {
        let disk = self.scene.machines[idx].host.folder.join("disk");
        for folder in ["etc/corosync", "var/lib/corosync", "var/log/pacemaker"] {
            fs::create_dir_all(disk.join(folder)).unwrap();
        }
        let lib = disk.join("var/lib/pacemaker");
        for folder in ["blackbox", "cib", "cores", "pengine"] {
            fs::create_dir_all(lib.join(folder)).unwrap();
        }
        fs::write(disk.join("etc/corosync/corosync.conf"), corosync_conf).unwrap();
        let file = lib.join("cib/cib.xml");
        fs::write(&file, cib).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        // Most of its daemons are not root.
        let owned = [lib, disk.join("var/log/pacemaker")];
        let status = Command::new("chown").args(["-R", "hacluster:haclient"]).args(owned).status().unwrap();
        assert!(status.success());
    }

    /// Starts corosync and Pacemaker on a host.
    pub(crate) fn start(&mut self, idx: usize) {
        let machine = &self.scene.machines[idx];
        let lab = machine.host.folder.parent().unwrap().display().to_string();
        let mut words = vec!["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];
        words.extend(["sh", NODE, machine.name(), &lab]);
        self.nodes[idx] = Some(machine.spawn("node", &words, &[]));
    }

    /// Runs a shell line beside the daemons of a node.
    pub(crate) fn try_sh(&self, idx: usize, line: &str) -> Run {
        let node = self.nodes[idx].as_ref().unwrap().child.id();
        let (target, pids) = (node.to_string(), format!("--pid=/proc/{node}/ns/pid_for_children"));
        let words = ["nsenter", "--target", &target, "--mount", "--uts", "--ipc", &pids, "sh", "-c", line];
        Run::new(line, self.scene.machines[idx].command(&words).output().unwrap())
    }

    /// Waits until all nodes are members, the volume is at home, and nothing is left to do.
    #[track_caller]
    pub(crate) fn settles(&self) {
        let home = || {
            let seen = self.try_sh(1, "crm_mon --one-shot --output-as xml");
            let members =
                seen.stdout.lines().filter(|line| line.contains("<node ") && line.contains("online=\"true\""));
            members.filter(|line| !line.contains("pending=\"true\"")).count() == 3 && self.at() == ["n1"]
        };
        let end = std::time::Instant::now() + LIMIT;
        while !home() || self.try_sh(1, "crm_resource --wait --timeout 30s").code != 0 {
            assert!(
                std::time::Instant::now() < end,
                "Pacemaker does not settle: {:?} {:#?}\n{}",
                self.at(),
                self.try_sh(1, "crm_mon --one-shot --inactive"),
                self.scene.logs()
            );
            std::thread::sleep(20 * MS);
        }
    }

    /// The node that decides for all.
    pub(crate) fn leader(&self) -> String {
        let said = self.try_sh(1, "crmadmin --dc_lookup --quiet");
        said.stdout.trim().to_owned()
    }

    /// The hosts that have the address.
    pub(crate) fn at(&self) -> Vec<&str> {
        let machines = self.scene.machines.iter().filter(|machine| machine.is_on() && machine.has(&address(0)));
        machines.map(super::iscsi::Machine::name).collect()
    }
}

/// Three nodes, each with two links.
fn corosync_conf(token: Duration) -> String {
    let node =
        |id| format!("node {{\nname: n{id}\nnodeid: {id}\nring0_addr: 10.77.1.{id}\nring1_addr: 10.77.2.{id}\n}}\n");
    format!(
        "totem {{\nversion: 2\ncluster_name: lab\ntransport: knet\ncrypto_cipher: none\ncrypto_hash: none\n\
         token: {}\ntoken_coefficient: 0\n}}\n\
         quorum {{\nprovider: corosync_votequorum\n}}\n\
         logging {{\nto_syslog: no\nto_stderr: yes\ntimestamp: hires\n}}\n\
         nodelist {{\n{}}}\n",
        token.as_millis(),
        (1..=3).map(node).collect::<String>()
    )
}

/// The configuration of the cluster: nothing in it waits longer than it must.
fn cib(path: &Path, volume: &str, fences: bool) -> String {
    let pairs = |of: &str, pairs: &[(&str, &str)]| -> String {
        let pair = |(name, value): &(&str, &str)| format!("<nvpair id='{of}-{name}' name='{name}' value='{value}'/>");
        pairs.iter().map(pair).collect()
    };
    let resource = |id: &str, attributes: &str, parameters: &[(&str, &str)], every: &str| {
        format!(
            "<primitive id='{id}' {attributes}><instance_attributes id='{id}-told'>{}</instance_attributes>\
             <operations><op id='{id}-monitor' name='monitor' interval='{every}'/></operations></primitive>",
            pairs(&format!("{id}-told"), parameters)
        )
    };
    let heartbeat = |agent: &str| format!("class='ocf' provider='heartbeat' type='{agent}'");
    let (iqn, path, ip) = (format!("{IQN}:{volume}"), path.display().to_string(), address(0));
    // It lets nobody in unless told.
    let target = [("implementation", "tgt"), ("iqn", iqn.as_str()), ("tid", "1"), ("allowed_initiators", "ALL")];
    let unit = [
        ("implementation", "tgt"),
        ("target_iqn", iqn.as_str()),
        ("lun", "1"),
        ("path", path.as_str()),
        ("tgt_bsoflags", "sync"),
    ];
    let vip = [("ip", ip.as_str()), ("cidr_netmask", "24"), ("nic", "eth0")];
    let switch = [("pcmk_host_list", "n1 n2 n3")];
    let settings = [
        ("dc-deadtime", "1s"),
        ("stonith-enabled", if fences { "true" } else { "false" }),
        ("stonith-action", "off"),
        // A node that is not there yet when the first begin is not shot.
        ("startup-fencing", "false"),
    ];
    format!(
        "<cib validate-with='pacemaker-3.0' admin_epoch='0' epoch='1' num_updates='0'><configuration>\
         <crm_config><cluster_property_set id='settings'>{}</cluster_property_set></crm_config><nodes/>\
         <resources>{}<group id='served'>{}{}{}</group></resources>\
         <constraints><rsc_location id='home' rsc='served' node='n1' score='100'/></constraints>\
         </configuration><status/></cib>\n",
        pairs("settings", &settings),
        if fences { resource("fencing", "class='stonith' type='fence_lab'", &switch, "60s") } else { String::new() },
        resource("target", &heartbeat("iSCSITarget"), &target, "10s"),
        resource("unit", &heartbeat("iSCSILogicalUnit"), &unit, "10s"),
        resource("vip", &heartbeat("IPaddr2"), &vip, "10s"),
    )
}
