//! `gw doctor`: each planted fault is found, and its mending command mends it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::fs;
use support::Run;
use support::gateways::Site;

const ALL: &str = "gw doctor --gateway 10.0.1.1 --gateway 10.0.2.1 --gateway 2001:db8:a:1::1 --gateway 2001:db8:a:2::1";

/// A site where nothing is wrong.
fn site() -> Site {
    let site = Site::own_links(2);
    for dev in ["eth0", "eth1", "eth2"] {
        site.host.sh(&format!(
            "sysctl -qw net.ipv4.conf.{dev}.rp_filter=2 net.ipv4.conf.{dev}.send_redirects=0 \
             net.ipv4.conf.{dev}.accept_redirects=0"
        ));
    }
    site.host.sh("ip route add default via 10.0.1.1");
    site
}

/// Runs it as on a host without systemd and rules of its own, whatever the machine of this test has.
fn doctor(site: &Site, ask: &str) -> Run {
    let gw = support::binary("gw").display().to_string();
    let hidden = "for place in /run/systemd /etc/systemd; do [ ! -d $place ] || mount -t tmpfs none $place; done";
    let ask = ask.replacen("gw", &gw, 1);
    let mut command = std::process::Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", site.host.ns));
    command.args(["unshare", "--mount", "sh", "-c", &format!("{hidden}; exec {ask}")]);
    site.host.environment(&mut command);
    Run::new(&ask, command.output().unwrap())
}

fn slugs(run: &Run) -> Vec<String> {
    run.records().iter().map(|record| record["subject"].as_str().unwrap().to_owned()).collect()
}

/// Plants a fault, sees that it is the only finding, and lets the finding's own command mend it.
#[track_caller]
fn finds(site: &Site, plant: &str, ask: &str, slug: &str) -> Value {
    doctor(site, ask).ended(0);
    site.host.sh(plant);
    let run = doctor(site, ask).ended(1);
    assert!(!slugs(&run).is_empty() && slugs(&run).iter().all(|found| found == slug), "{plant}: {run:#?}");
    for found in run.records() {
        assert_eq!(found["status"], "down");
        site.host.sh(found["mend"].as_str().unwrap());
    }
    doctor(site, ask).ended(0);
    run.records().remove(0)
}

#[test]
fn each_setting_of_the_kernel_is_found_and_mended() {
    let site = site();
    for (plant, slug, severity) in [
        ("sysctl -qw net.ipv4.conf.eth2.rp_filter=1", "rp-filter", "error"),
        ("sysctl -qw net.ipv4.conf.eth2.rp_filter=0 net.ipv4.conf.all.rp_filter=1", "rp-filter", "error"),
        (
            "sysctl -qw net.ipv4.conf.all.accept_redirects=1 net.ipv4.conf.eth1.accept_redirects=1",
            "accept-redirects",
            "warning",
        ),
        // The kernel has a host believe redirects again.
        (
            "sysctl -qw net.ipv4.ip_forward=0; sysctl -qw net.ipv4.conf.all.accept_redirects=0 \
             net.ipv4.conf.eth1.accept_redirects=0 net.ipv4.conf.eth2.accept_redirects=0",
            "ip-forward",
            "warning",
        ),
        (
            "sysctl -qw net.ipv6.conf.all.forwarding=0 net.ipv6.conf.eth1.accept_redirects=0 net.ipv6.conf.eth2.accept_redirects=0",
            "ip-forward",
            "warning",
        ),
    ] {
        let found = finds(&site, plant, ALL, slug);
        assert_eq!(found["severity"], severity, "{found}");
    }
    let named = "gw doctor --gateway 10.0.1.1 --gateway 10.0.2.1,dev=eth2";
    finds(&site, "ip link set eth2 down", named, "link-down");
}

#[test]
fn a_strict_filter_is_right_where_the_main_table_agrees() {
    let site = site();
    site.host.sh("sysctl -qw net.ipv4.conf.eth1.rp_filter=1");
    doctor(&site, "gw doctor --gateway 10.0.1.1").ended(0);
    site.host.sh("ip route replace default via 10.0.2.1");
    assert_eq!(slugs(&doctor(&site, "gw doctor --gateway 10.0.1.1").ended(1)), ["rp-filter"]);
    // One that waits for the other to go carries nothing, and each hop of the best one does.
    site.host.sh("ip route add default via 10.0.1.1 metric 200");
    assert_eq!(slugs(&doctor(&site, "gw doctor --gateway 10.0.1.1").ended(1)), ["rp-filter"]);
    site.host.sh("ip route replace default nexthop via 10.0.1.1 nexthop via 10.0.2.1");
    doctor(&site, "gw doctor --gateway 10.0.1.1").ended(0);
}

#[test]
fn redirects_matter_where_clients_share_the_link() {
    let site = Site::one_link(2);
    let ask = "gw doctor --gateway 192.0.2.1 --gateway 192.0.2.2";
    site.host.sh("ip route add default via 192.0.2.1");
    // Gateways would answer the clients past this host.
    let run = doctor(&site, ask).ended(1);
    assert_eq!(slugs(&run), ["one-way"]);
    site.host.sh(run.records()[0]["mend"].as_str().unwrap());
    finds(&site, "sysctl -qw net.ipv4.conf.eth0.send_redirects=1", ask, "send-redirects");
}

#[test]
fn a_gateway_that_is_on_no_link_is_told() {
    let site = site();
    let run = doctor(&site, "gw doctor --gateway 203.0.113.1").ended(1);
    assert_eq!(slugs(&run), ["gateway-astray"], "the main table's router leads there");
    let run = doctor(&site, "gw doctor --gateway 10.0.9.1,dev=eth9").ended(1);
    assert!(run.records()[0]["got"].as_str().unwrap().contains("eth9"), "{run:#?}");
    let run = doctor(&site, "gw doctor --gateway 10.0.2.1,dev=eth1").ended(1);
    assert!(run.records()[0]["mend"].as_str().unwrap().contains("dev=eth2"), "{run:#?}");
}

#[test]
fn a_split_that_somebody_flushed_is_told() {
    let site = site();
    let up = "{\"subject\":\"10.0.1.1\",\"status\":\"up\"}\n";
    let plan = site.host.run_with("gw split --gateway 10.0.1.1", up).ended(0).stdout;
    site.host.run_with("gw apply", &plan).ended(0);
    doctor(&site, "gw doctor --gateway 10.0.1.1").ended(0);
    site.host.sh("nft flush ruleset");
    assert_eq!(slugs(&doctor(&site, "gw doctor --gateway 10.0.1.1").ended(1)), ["split-gone"]);
    site.host.run_with("gw apply", &plan).ended(0);
    doctor(&site, "gw doctor --gateway 10.0.1.1").ended(0);
}

#[test]
fn a_rule_of_another_with_our_bits_is_told_and_one_that_compares_all_is_mended() {
    let site = site();
    site.host.sh("ip rule add priority 5210 fwmark 0x80000/0xff0000 lookup main");
    let found = doctor(&site, ALL).ended(1).records().remove(0);
    assert_eq!((&found["subject"], &found["severity"]), (&"mark-collision".into(), &"error".into()));
    doctor(&site, &format!("{ALL} --mark-mask 0x0000ff00")).ended(0);
    site.host.sh("ip rule del priority 5210");
    site.host
        .sh("nft 'add table ip other; add chain ip other c; add rule ip other c meta mark set meta mark | 0x40000'");
    let found = doctor(&site, ALL).ended(1).records().remove(0);
    assert!(found["object"].as_str().unwrap().contains("table ip other"), "{found}");
    site.host.sh("nft delete table ip other");
    finds(&site, "ip rule add priority 5211 fwmark 0x7 lookup main", ALL, "mark-collision");
    assert!(site.host.sh("ip rule").contains("5211:\tfrom all fwmark 0x7/0xff00ffff lookup main"));
    doctor(&site, ALL).ended(0);
    // As wg-quick does it: behind ours.
    site.host.sh("ip rule add priority 32764 not fwmark 0xca6c lookup 51820");
    doctor(&site, ALL).ended(0);
}

#[test]
fn a_rule_that_is_asked_before_ours_is_moved_behind_them() {
    let site = site();
    for plant in [
        "ip rule add priority 100 from 10.0.1.2 lookup 500",
        "ip rule add priority 5212 not fwmark 0xca6c lookup 51820",
        "ip -6 rule add priority 100 from 2001:db8:a:1::2 to 2001:db8:9::/48 lookup 500",
        "ip rule add priority 101 iif eth0 ipproto tcp sport 80-90 dport 443 lookup 500",
        "ip rule add priority 102 not from 10.0.0.0/8 lookup 500; ip rule add priority 103 uidrange 5-9 lookup main",
    ] {
        let found = finds(&site, plant, ALL, "rule-before");
        assert_eq!(found["severity"], "warning", "{found}");
    }
    let rules = site.host.sh("ip rule");
    for moved in [
        "7299:\tfrom 10.0.1.2 lookup 500",
        "7300:\tfrom all iif eth0 ipproto tcp sport 80-90 dport 443",
        "7301:\tnot from 10.0.0.0/8",
    ] {
        assert!(rules.contains(moved), "{rules}");
    }
    site.host.sh("ip rule add priority 200 lookup main suppress_prefixlength 0");
    doctor(&site, ALL).ended(0);
    // It cannot be told whole: words, and no command that does something else.
    site.host.sh("ip rule add priority 201 from all tos 0x10 lookup 500");
    let found = doctor(&site, ALL).ended(1).one();
    assert!(found["mend"].as_str().unwrap().contains("see: ip rule"), "{found}");
}

/// nft does not show them.
#[test]
fn a_rule_of_iptables_legacy_with_our_bits_is_told() {
    let site = site();
    for (program, set) in [("iptables-legacy", "--set-mark 0x40000"), ("ip6tables-legacy", "--or-mark 0x10000")] {
        site.host.sh(&format!("{program} -t mangle -A PREROUTING -j MARK --set-mark 0x100"));
        doctor(&site, ALL).ended(0);
        site.host.sh(&format!("{program} -t mangle -A PREROUTING -j MARK {set}"));
        let found = doctor(&site, ALL).ended(1).one();
        assert_eq!(found["subject"], "mark-collision");
        assert!(found["object"].as_str().unwrap().contains("of iptables-legacy"), "{found}");
        site.host.sh(&format!("{program} -t mangle -F"));
    }
}

#[test]
fn an_interface_may_be_called_anything() {
    let site = site();
    let odd = "e;id>x'2";
    site.host.sh(&format!("ip link set eth2 down; ip link set eth2 name \"{odd}\"; ip link set \"{odd}\" up"));
    site.host.sh(&format!("sysctl -qw \"net/ipv4/conf/{odd}/rp_filter=1\""));
    let run = doctor(&site, "gw doctor --gateway 10.0.2.1").ended(1);
    assert_eq!(slugs(&run), ["rp-filter"]);
    site.host.sh(run.records()[0]["mend"].as_str().unwrap());
    doctor(&site, "gw doctor --gateway 10.0.2.1").ended(0);
}

/// In a mount namespace of its own: these files are the host's.
#[test]
fn what_removes_the_rules_of_others_is_found_and_mended() {
    let site = site();
    let folder = site.host.folder.join("etc");
    fs::create_dir_all(folder.join("systemd/system/sysinit.target.wants")).unwrap();
    fs::create_dir_all(folder.join("run/netif")).unwrap();
    fs::write(folder.join("run/netif/state"), "").unwrap();
    let rules = "#!/usr/sbin/nft -f\n\nflush ruleset\n\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0;\n\t}\n}\n";
    fs::write(folder.join("nftables.conf"), rules).unwrap();
    let gw = support::binary("gw").display().to_string();
    let script = format!(
        "mount -t tmpfs none /etc && mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && \
         cp -r {etc}/systemd /etc/ && cp -r {etc}/run/. /run/systemd/ && \
         ln -s /lib/systemd/system/nftables.service /etc/systemd/system/sysinit.target.wants/ && \
         cp {etc}/nftables.conf /etc/ || exit 99\n\
         doctor() {{ FAILOVER_NODE=host {gw} doctor --gateway 10.0.1.1; }}\n\
         doctor >{etc}/before; echo $? >>{etc}/before\n\
         jq -r .mend {etc}/before 2>/dev/null >{etc}/mend || true\n\
         sh {etc}/mend >/dev/null 2>&1\n\
         doctor >{etc}/after; echo $? >>{etc}/after\n\
         nft -f /etc/nftables.conf && nft -f /etc/nftables.conf && nft list tables >{etc}/tables; cp /etc/nftables.conf {etc}/mended\n",
        etc = folder.display()
    );
    fs::write(folder.join("script"), script).unwrap();
    site.host.sh("nft add table inet failover_gw");
    site.host.sh(&format!("unshare --mount sh {}", folder.join("script").display()));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let before = read("before");
    let found: Vec<Value> =
        before.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect();
    found.iter().for_each(support::validate);
    let slugs: Vec<&str> = found.iter().map(|found| found["subject"].as_str().unwrap()).collect();
    assert_eq!(slugs, ["networkd", "flush-ruleset"], "{before}");
    assert_eq!((read("after").as_str(), read("mend").lines().count()), ("0\n", 2), "{}", read("mended"));
    // Their own tables are loaded as before, twice, and ours is still there.
    let tables = read("tables");
    assert!(tables.contains("inet filter") && tables.contains("failover_gw"), "{tables}");
}

#[test]
fn nobody_is_told_what_he_lacks() {
    let site = site();
    let gw = support::binary("gw").display().to_string();
    let (done, said) = site.host.try_sh(&format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all env FAILOVER_NODE=host {gw} doctor --gateway 10.0.1.1"
    ));
    assert!(!done && said.contains("CAP_NET_ADMIN") && said.contains("ping_group_range"), "{said}");
}
