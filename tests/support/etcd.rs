//! A real etcd of three members, each on a host of its own.

use super::{Host, Lab, Running, eventually};
use serde_json::Value;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// One member.
pub(crate) struct Member {
    pub(crate) host: Host,
    pub(crate) address: String,
    /// `None` while it is off.
    pub(crate) process: Option<Running>,
}

/// The members, and what clients are told of them.
pub(crate) struct Etcd {
    pub(crate) members: Vec<Member>,
    /// More flags of each member: TLS, quotas.
    more: String,
    scheme: &'static str,
}

impl Etcd {
    /// Three members at NET.101 to NET.103, once they have a leader. Leases last at least a second.
    pub(crate) fn start(lab: &Lab, net: &str) -> Etcd {
        Etcd::start_with(lab, net, "http", "")
    }

    /// The same with other flags, `{folder}` being the member's own.
    pub(crate) fn start_with(lab: &Lab, net: &str, scheme: &'static str, more: &str) -> Etcd {
        let members = (1..=3)
            .map(|number| {
                let address = format!("{net}.{}", 100 + number);
                let host = lab.host(&format!("m{number}"), &[&format!("{address}/24")]);
                Member { host, address, process: None }
            })
            .collect();
        let mut etcd = Etcd { members, more: more.to_owned(), scheme };
        for idx in 0..3 {
            etcd.boot(idx);
        }
        if scheme == "http" {
            eventually("a leader", LIMIT, || etcd.leader().is_some());
        }
        etcd
    }

    /// Starts a member, with the data that it had.
    pub(crate) fn boot(&mut self, idx: usize) {
        let all: Vec<String> =
            (1..=3).map(|number| format!("m{number}=http://{}:2380", self.members[number - 1].address)).collect();
        let member = &self.members[idx];
        let (address, folder) = (&member.address, member.host.folder.display());
        let line = format!(
            "exec etcd --name m{} --data-dir {folder}/etcd --listen-peer-urls http://{address}:2380 \
             --initial-advertise-peer-urls http://{address}:2380 --listen-client-urls {}://{address}:2379 \
             --advertise-client-urls {}://{address}:2379 --initial-cluster {} --initial-cluster-state new \
             --heartbeat-interval 50 --election-timeout 500 --logger zap {}",
            idx + 1,
            self.scheme,
            self.scheme,
            all.join(","),
            self.more.replace("{folder}", &folder.to_string())
        );
        let running = member.host.start_shell(&line);
        self.members[idx].process = Some(running);
    }

    /// Power off: without a word, and what it had stays.
    pub(crate) fn kill(&mut self, idx: usize) {
        self.members[idx].process = None;
    }

    pub(crate) fn signal(&self, idx: usize, signal: nix::sys::signal::Signal) {
        self.members[idx].process.as_ref().unwrap().signal(signal);
    }

    /// Cuts a member off from everybody, or joins it again.
    pub(crate) fn cut(&self, lab: &Lab, idx: usize, off: bool) {
        let how = if off { "nomaster" } else { "master lan" };
        lab.on_switch(&format!("ip link set {}.eth0 {how}", self.members[idx].host.name));
    }

    /// What `--store` is to be told.
    pub(crate) fn url(&self) -> String {
        let all: Vec<String> =
            self.members.iter().map(|member| format!("{}://{}:2379", self.scheme, member.address)).collect();
        format!("etcd:{}", all.join(","))
    }

    /// Runs etcdctl on a host against all members.
    pub(crate) fn ctl(&self, host: &Host, line: &str) -> String {
        let endpoints = self.url().replace("etcd:", "");
        host.sh(&format!("ETCDCTL_API=3 etcdctl --endpoints={endpoints} {line}"))
    }

    /// Which member leads, as those that live see it.
    pub(crate) fn leader(&self) -> Option<usize> {
        for member in self.members.iter().filter(|member| member.process.is_some()) {
            let (found, said) = member.host.try_sh(&format!(
                "ETCDCTL_API=3 timeout 2 etcdctl --endpoints=http://{}:2379 --command-timeout=1s endpoint status -w json",
                member.address
            ));
            let line = said.lines().find(|line| line.starts_with('[')).unwrap_or_default();
            let Ok(status) = serde_json::from_str::<Value>(line) else { continue };
            let (own, leader) = (&status[0]["Status"]["header"]["member_id"], &status[0]["Status"]["leader"]);
            if found && own == leader && leader.as_u64() != Some(0) {
                return self.members.iter().position(|other| other.address == member.address);
            }
        }
        None
    }
}
