//! A site with several ways out: clients, the host under test, gateways that masquerade, and an internet
//! that tells a caller its address.

use super::{Host, Lab, Running, eventually};
use std::fs;
use std::time::Duration;

/// What answers behind the gateways, on any port that is opened there.
pub(crate) const TARGETS: [&str; 3] = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
pub(crate) const TARGETS_6: [&str; 3] = ["2001:db8:2::1", "2001:db8:2::2", "2001:db8:2::3"];

/// The site. Gateway N, from 1, is 192.0.2.N (`2001:db8::N`) and seen as 198.51.100.N (`2001:db8:1::N`).
pub(crate) struct Site {
    pub(crate) lab: Lab,
    /// The host under test: a router with the clients on `eth0`.
    pub(crate) host: Host,
    pub(crate) client: Host,
    pub(crate) gateways: Vec<Host>,
    pub(crate) net: Host,
    own_links: bool,
}

impl Site {
    /// Clients, host and `count` gateways on one LAN, 192.0.2.0/24; the host is 192.0.2.200.
    pub(crate) fn one_link(count: usize) -> Site {
        Site::build(count, false)
    }

    /// Each gateway on a link of its own: `ethN` of the host, 10.0.N.0/24 with the gateway at 10.0.N.1
    /// (`2001:db8:a:N::1`). The clients are on `eth0`.
    pub(crate) fn own_links(count: usize) -> Site {
        Site::build(count, true)
    }

    fn build(count: usize, own_links: bool) -> Site {
        let lab = Lab::new();
        lab.bridge("wan");
        let host = lab.host("host", &["192.0.2.200/24", "2001:db8::200/64"]);
        router(&host);
        let client = lab.host("client", &["192.0.2.201/24", "2001:db8::201/64"]);
        client.sh("ip route add default via 192.0.2.200; ip -6 route add default via 2001:db8::200");
        let net = lab.host("net", &[]);
        lab.plug(&net, "wan0", "wan", &["198.51.100.254/24", "2001:db8:1::fe/64"]);
        for address in
            TARGETS.iter().map(|addr| format!("{addr}/32")).chain(TARGETS_6.map(|addr| format!("{addr}/128")))
        {
            net.sh(&format!("ip addr add {address} dev lo"));
        }
        let gateways = (1..=count).map(|n| gateway(&lab, &host, n, own_links)).collect();
        Site { lab, host, client, gateways, net, own_links }
    }

    /// The address of gateway N on the host's side.
    pub(crate) fn address(&self, n: usize) -> String {
        if self.own_links { format!("10.0.{n}.1") } else { format!("192.0.2.{n}") }
    }

    pub(crate) fn address_6(&self, n: usize) -> String {
        if self.own_links { format!("2001:db8:a:{n:x}::1") } else { format!("2001:db8::{n:x}") }
    }

    /// The address that the internet sees behind gateway N.
    #[allow(clippy::unused_self)] // asked like the others
    pub(crate) fn seen(&self, n: usize) -> String {
        format!("198.51.100.{n}")
    }

    fn link(&self, n: usize) -> (&Host, String) {
        let gateway = &self.gateways[n - 1];
        (gateway, format!("{}.eth0", gateway.name))
    }

    /// Gateway N is off: it hears and says nothing.
    pub(crate) fn kill(&self, n: usize) {
        let (gateway, port) = self.link(n);
        self.lab.on_switch(&format!("ip link set {port} down; ip link set {}.wan0 down", gateway.name));
    }

    /// What is behind gateway N is off; the gateway itself lives.
    pub(crate) fn cut_upstream(&self, n: usize) {
        self.lab.on_switch(&format!("ip link set {}.wan0 down", self.gateways[n - 1].name));
    }

    /// Gateway N answers for itself and forwards nothing.
    pub(crate) fn cut_forwarding(&self, n: usize) {
        self.gateways[n - 1].sh("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
    }

    /// Gateway N loses so many packets of a hundred that it would forward.
    pub(crate) fn lose(&self, n: usize, pct: u32) {
        self.gateways[n - 1].sh(&format!(
            "nft 'add table inet loss; add chain inet loss f {{ type filter hook forward priority 0; }}; \
             add rule inet loss f numgen random mod 100 < {pct} drop'"
        ));
    }

    /// Gateway N is as new.
    pub(crate) fn mend(&self, n: usize) {
        let (gateway, port) = self.link(n);
        self.lab.on_switch(&format!("ip link set {port} up; ip link set {}.wan0 up", gateway.name));
        let _ = gateway.try_sh("nft delete table inet loss");
        gateway.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        // A route goes with its link.
        gateway.sh("ip route replace default via 198.51.100.254 && ip -6 route replace default via 2001:db8:1::fe");
    }

    /// New flows that gateway N has let through since the last `forget`: its own conntrack entries count them.
    pub(crate) fn flows(&self, n: usize) -> u64 {
        let text = self.gateways[n - 1].sh("nft list chain inet nat out");
        let after = text.split("counter packets ").nth(1).unwrap_or_default();
        after.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Starts counting anew, on all gateways.
    pub(crate) fn forget(&self) {
        for gateway in &self.gateways {
            gateway.sh("nft reset rules table inet nat >/dev/null 2>&1 || { nft flush chain inet nat out; \
                        nft add rule inet nat out oifname wan0 counter masquerade; }");
        }
    }

    /// An nginx in the internet that tells a caller its address at any path, `html` at /html and nothing
    /// but 503 at /sick.
    pub(crate) fn nginx(&self) -> Running {
        let folder = self.net.folder.join("nginx");
        fs::create_dir_all(&folder).unwrap();
        let dir = folder.display();
        let config = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir};\n\
             uwsgi_temp_path {dir}; scgi_temp_path {dir}; keepalive_timeout 0;\n\
             server {{ listen 80; listen [::]:80; default_type text/plain;\n\
             location / {{ return 200 \"$remote_addr\\n\"; }}\n\
             location /html {{ default_type text/html; return 200 \"<html>It works</html>\"; }}\n\
             location /sick {{ return 503 \"no\"; }} }} }}\n"
        );
        fs::write(folder.join("nginx.conf"), config).unwrap();
        let nginx = self.net.start_shell(&format!("exec nginx -p {dir} -e {dir}/error.log -c {dir}/nginx.conf"));
        eventually("nginx listens", Duration::from_secs(5), || {
            self.net.sh("ss -Hltn").lines().any(|line| line.contains(":80 "))
        });
        nginx
    }
}

fn router(host: &Host) {
    host.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
             net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0");
    host.sh("sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0 \
             net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.eth0.accept_redirects=0");
}

fn gateway(lab: &Lab, host: &Host, n: usize, own_link: bool) -> Host {
    let gateway = if own_link {
        let bridge = format!("up{n}");
        lab.bridge(&bridge);
        lab.plug(host, &format!("eth{n}"), &bridge, &[&format!("10.0.{n}.2/24"), &format!("2001:db8:a:{n:x}::2/64")]);
        let gateway = lab.host(&format!("g{n}"), &[]);
        lab.on_switch(&format!("ip link set g{n}.eth0 master {bridge}"));
        gateway.sh(&format!("ip addr add 10.0.{n}.1/24 dev eth0; ip addr add 2001:db8:a:{n:x}::1/64 dev eth0 nodad"));
        gateway.sh(&format!(
            "ip route add 192.0.2.0/24 via 10.0.{n}.2; ip -6 route add 2001:db8::/64 via 2001:db8:a:{n:x}::2"
        ));
        gateway
    } else {
        lab.host(&format!("g{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n:x}/64")])
    };
    router(&gateway);
    lab.plug(&gateway, "wan0", "wan", &[&format!("198.51.100.{n}/24"), &format!("2001:db8:1::{n:x}/64")]);
    gateway.sh("ip route add default via 198.51.100.254; ip -6 route add default via 2001:db8:1::fe");
    gateway.sh("nft 'add table inet nat; add chain inet nat out { type nat hook postrouting priority srcnat; }; \
                add rule inet nat out oifname wan0 counter masquerade'");
    gateway
}
