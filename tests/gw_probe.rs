//! `gw probe` through real gateways: what each says is its own, and nothing stays behind.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::gateways::{Site, TARGETS, TARGETS_6};
use support::{Host, Run, Running, binary, eventually};

const SECOND: Duration = Duration::from_secs(1);
/// A verdict on silence in half a second.
const QUICK: &str = "--count 3 --interval 20ms --response-timeout 400ms";

fn status(record: &Value) -> &str {
    record["status"].as_str().unwrap_or_default()
}

fn statuses(run: &Run) -> Vec<String> {
    run.records().iter().map(|record| status(record).to_owned()).collect()
}

/// `--gateway` for each of these.
fn named(gateways: &[String]) -> String {
    gateways.iter().map(|gateway| format!("--gateway {gateway} ")).collect()
}

/// All rules and routes of a host, as ip tells them.
fn routing(host: &Host) -> String {
    host.sh("ip rule; ip -6 rule; ip route show table all; ip -6 route show table all")
}

/// Counts what a gateway forwards that a rule of nft takes.
fn count(gateway: &Host, what: &str) {
    gateway.sh(&format!(
        "nft 'add table inet n; add chain inet n f {{ type filter hook forward priority -10; }}; \
         add rule inet n f {what} counter'"
    ));
}

fn counted(gateway: &Host) -> u64 {
    let text = gateway.sh("nft list chain inet n f");
    let after = text.split("counter packets ").nth(1).unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

/// A host whose main table leads to gateway 1.
fn with_default(site: &Site) {
    site.host.sh(&format!(
        "ip route add default via {}; ip -6 route add default via {}",
        site.address(1),
        site.address_6(1)
    ));
}

fn has_rules(host: &Host) -> bool {
    host.sh("ip rule; ip -6 rule").contains("7100:")
}

fn ended_clean(host: &Host, before: &str) {
    assert_eq!(routing(host), before);
}

/// Each probe is counted at the gateway that it was for, in both families, with both kinds of socket.
#[test]
fn every_probe_leaves_by_its_own_gateway() {
    for own_links in [false, true] {
        let site = if own_links { Site::own_links(3) } else { Site::one_link(3) };
        with_default(&site);
        for gateway in &site.gateways {
            count(gateway, "icmp type echo-request");
        }
        let before = routing(&site.host);
        for (round, range) in ["1 0", "0 2147483647"].into_iter().enumerate() {
            site.host.sh(&format!("sysctl -qw net.ipv4.ping_group_range='{range}'"));
            let one = site.address(2);
            let line = format!("gw probe --gateway {one},name=dsl,weight=0.5 --target {} {QUICK}", TARGETS.join(","));
            let up = site.host.run(&line).ended(0).one();
            assert_eq!(
                (status(&up), &up["subject"], &up["method"]),
                ("up", &one.as_str().into(), &"icmp".into()),
                "{up}"
            );
            assert_eq!((&up["loss_pct"], &up["name"], &up["weight"]), (&0.0.into(), &"dsl".into(), &0.5.into()));
            assert_eq!(up["dev"], if own_links { "eth2" } else { "eth0" });
            let target = &up["targets"][0];
            assert_eq!(
                (&target["target"], &target["sent"], &target["received"]),
                (&TARGETS[0].into(), &3.into(), &3.into())
            );
            assert!(target["rtt_min_ms"].as_f64() <= target["rtt_avg_ms"].as_f64() && target["failure"].is_null());
            let counts: Vec<u64> = site.gateways.iter().map(counted).collect();
            assert_eq!(counts, [0, 9 * (round as u64 + 1), 0], "3 to each of 3, own links: {own_links}");
        }
        for gateway in &site.gateways {
            gateway.sh("nft flush chain inet n f; nft add rule inet n f icmpv6 type echo-request counter");
        }
        for (round, range) in ["1 0", "0 2147483647"].into_iter().enumerate() {
            site.host.sh(&format!("sysctl -qw net.ipv4.ping_group_range='{range}'"));
            let all: Vec<String> = [3, 2].map(|n| site.address_6(n)).to_vec();
            let run = site.host.run(&format!("gw probe {} --target {} {QUICK}", named(&all), TARGETS_6[1])).ended(0);
            let subjects: Vec<Value> = run.records().iter().map(|record| record["subject"].clone()).collect();
            assert_eq!(subjects, all, "in the order given");
            let counts: Vec<u64> = site.gateways.iter().map(counted).collect();
            let each = 3 * (round as u64 + 1);
            assert_eq!(counts, [0, each, each], "own links: {own_links}");
        }
        // A router that is known by its link-local address alone.
        let text = site.gateways[1].sh("ip -6 -o addr show dev eth0 scope link");
        let local = text.split("inet6 ").nth(1).unwrap().split('/').next().unwrap();
        let dev = if own_links { "eth2" } else { "eth0" };
        let up = site
            .host
            .run(&format!("gw probe --gateway {local}%{dev} --target {} {QUICK}", TARGETS_6[0]))
            .ended(0)
            .one();
        assert_eq!((status(&up), &up["subject"]), ("up", &format!("{local}%{dev}").into()));
        assert_eq!(counted(&site.gateways[1]), 9);
        ended_clean(&site.host, &before);
    }
}

/// known-faults 8: what looks alive by another way, or says that it is not.
#[test]
fn a_gateway_that_does_not_forward_is_down() {
    let site = Site::one_link(4);
    with_default(&site);
    let line = format!("gw probe {} --target {} {QUICK}", named(&[1, 2, 3, 4].map(|n| site.address(n))), TARGETS[0]);
    let line_6 =
        format!("gw probe {} --target {} {QUICK}", named(&[1, 2, 3, 4].map(|n| site.address_6(n))), TARGETS_6[0]);
    site.host.run(&line).ended(0);
    // (c) it is off, and the target answers by the default route.
    site.kill(2);
    site.cut_forwarding(3);
    site.cut_upstream(4);
    for line in [&line, &line_6] {
        let run = site.host.run(line).ended(1);
        assert_eq!(statuses(&run), ["up", "down", "down", "down"]);
        let lost = &run.records()[1];
        let target = &lost["targets"][0];
        assert_eq!((&lost["loss_pct"], &target["failure"]), (&100.0.into(), &"timeout".into()), "{lost}");
        assert_eq!((&target["sent"], &target["received"]), (&3.into(), &0.into()));
        assert_eq!(run.stderr, "", "a clear no is an answer");
    }
    // All are dead.
    site.kill(1);
    assert_eq!(statuses(&site.host.run(&line).ended(1)), ["down"; 4]);
    for n in 1..=4 {
        site.mend(n);
    }
    // A link takes up to a second to come up.
    eventually("all are back", 10 * SECOND, || site.host.run(&line).code == 0);
    // (b) somebody on the way says that it cannot be reached: nobody waits for more.
    site.gateways[1].sh("ip route add unreachable 203.0.113.1; ip -6 route add unreachable 2001:db8:2::1");
    site.gateways[1].sh("sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0");
    for (line, from) in [(&line, site.address(2)), (&line_6, site.address_6(2))] {
        let slow = line.replace("--response-timeout 400ms", "--response-timeout 30s");
        let started = Instant::now();
        let run = site.host.run(&slow).ended(1);
        assert_eq!(statuses(&run), ["up", "down", "up", "up"]);
        let target = &run.records()[1]["targets"][0];
        assert_eq!((&target["failure"], &target["from"]), (&"unreachable".into(), &from.into()), "{target}");
        assert_eq!(target["loss_pct"], 100.0);
        assert!(started.elapsed() < 10 * SECOND, "it did not wait for what was said already");
    }
    // What is still waited for when the time is over is not lost.
    site.kill(3);
    let one = format!("gw probe --gateway {} --target {} --count 1", site.address(3), TARGETS[0]);
    let run = site.host.run(&format!("{one} --response-timeout 30s --timeout 200ms")).ended(75);
    assert_eq!((status(&run.one()), run.one()["error"]["reason"].as_str()), ("unknown", Some("timed-out")), "{run:?}");
    // (d) the interface is not there, nor is the network.
    for (gateway, code, reason) in [
        ("192.0.2.1,dev=eth9", 5, "no-such-interface"),
        ("198.18.0.1", 5, "no-such-interface"),
        ("192.0.2.200", 6, "bad-input"),
    ] {
        let run = site.host.run(&format!("gw probe --gateway {gateway} --target {} {QUICK}", TARGETS[0])).ended(code);
        let record = run.one();
        assert_eq!((status(&record), &record["error"]["reason"]), ("unknown", &reason.into()), "{record}");
        assert!(run.stderr.contains("cannot probe"), "{run:?}");
    }
}

/// Of the requests exactly 40 in a hundred are lost.
#[test]
fn loss_counts_by_its_limit() {
    let site = Site::one_link(1);
    site.gateways[0].sh("nft 'add table inet loss; add chain inet loss f { type filter hook forward priority 0; }; \
         add rule inet loss f icmp type echo-request numgen inc mod 10 < 4 drop'");
    let line = format!(
        "gw probe --gateway 192.0.2.1 --target {} --count 20 --interval 10ms --response-timeout 500ms",
        TARGETS[0]
    );
    for (max_loss, code) in [(30, 1), (39, 1), (40, 0), (60, 0)] {
        let run = site.host.run(&format!("{line} --max-loss {max_loss}")).ended(code);
        assert_eq!(run.one()["targets"][0]["loss_pct"], 40.0, "{run:?}");
    }
}

/// Needs so many of the targets.
#[test]
fn need_says_how_many_targets_must_answer() {
    let site = Site::one_link(1);
    let line = format!("gw probe --gateway 192.0.2.1 {QUICK} --target {},{},203.0.113.77", TARGETS[0], TARGETS[1]);
    site.gateways[0].sh("ip route add blackhole 203.0.113.77");
    for (need, code) in [(1, 0), (2, 0), (3, 1)] {
        let record = site.host.run(&format!("{line} --need {need}")).ended(code).one();
        assert_eq!((&record["need"], &record["targets"][2]["status"]), (&need.into(), &"down".into()));
    }
    // One that is this host itself would answer always.
    let own = format!("gw probe --gateway 192.0.2.1 {QUICK} --target 192.0.2.200");
    let run = site.host.run(&own).ended(6);
    assert!(status(&run.one()) == "unknown" && run.stderr.contains("answers itself"), "{run:?}");
    assert_eq!(status(&site.host.run(&format!("{own},{}", TARGETS[0])).ended(0).one()), "up");
    let run = site.host.run(&format!("{own},{} --need 2", TARGETS[0])).ended(6);
    assert_eq!(run.one()["targets"][0]["failure"], "local", "{run:?}");
}

#[test]
fn connections_pages_and_the_address_that_the_world_sees() {
    let site = Site::one_link(2);
    let _nginx = site.nginx();
    let (one, two) = (site.address(1), site.address(2));
    let probe = |flags: &str| site.host.run(&format!("gw probe {flags} {QUICK}"));
    for (method, target) in
        [("tcp", "203.0.113.1:80"), ("http", "http://203.0.113.1/"), ("wan-ip", "http://203.0.113.1/")]
    {
        let run = probe(&format!("--gateway {one} --gateway {two} --method {method} --target {target}")).ended(0);
        assert_eq!(statuses(&run), ["up", "up"], "{method}");
        assert_eq!(run.records()[0]["targets"][0]["loss_pct"], 0.0);
        // Two of three are enough.
        assert_eq!(run.records()[0]["targets"][0]["sent"], 2, "{run:?}");
    }
    let six = probe(&format!("--gateway {} --method http --target http://[2001:db8:2::1]/", site.address_6(2)));
    assert_eq!(status(&six.ended(0).one()), "up");
    let wan = "--method wan-ip --target http://203.0.113.1/,http://203.0.113.2/";
    let run = probe(&format!(
        "--gateway {one},expect={} --gateway {two},expect={} {wan} --need 2",
        site.seen(1),
        site.seen(2)
    ));
    let records = run.ended(0).records();
    assert_eq!((&records[0]["wan_ip"], &records[1]["wan_ip"]), (&site.seen(1).into(), &site.seen(2).into()));
    // Its traffic leaves by another: that is not this gateway.
    let wrong = probe(&format!("--gateway {one},expect={} {wan}", site.seen(2))).ended(1).one();
    assert_eq!((&wrong["targets"][0]["failure"], &wrong["wan_ip"]), (&"bad-answer".into(), &site.seen(1).into()));
    assert_eq!(wrong["targets"][0]["received"], 1);
    // A page, an error: the site tells no address, and nothing is known of the gateway.
    for path in ["html", "sick"] {
        let target = format!("http://203.0.113.1/{path}");
        let open = probe(&format!("--gateway {one} --method wan-ip --target {target}")).ended(75).one();
        assert_eq!((status(&open), &open["targets"][0]["failure"]), ("unknown", &"bad-answer".into()), "{open}");
        let both = format!("--gateway {one} --method wan-ip --target {target},http://203.0.113.2/");
        assert_eq!(status(&probe(&both).ended(0).one()), "up");
    }
    let sick = probe(&format!("--gateway {one} --method http --target http://203.0.113.1/sick")).ended(1).one();
    assert_eq!(sick["targets"][0]["failure"], "bad-answer");
    let started = Instant::now();
    let refused =
        site.host.run(&format!("gw probe --gateway {one} --method tcp --target 203.0.113.1:81 --response-timeout 30s"));
    let target = refused.ended(1).one()["targets"][0].clone();
    assert_eq!((&target["failure"], &target["sent"]), (&"refused".into(), &1.into()));
    assert!(started.elapsed() < 10 * SECOND);
    // A gateway's own words go first.
    let own =
        format!("--gateway {one},method=tcp,target=203.0.113.1:80 --gateway {two},method=none --target 203.0.113.77");
    let run = probe(&own).ended(0).records();
    assert_eq!((&run[0]["method"], &run[1]["method"]), (&"tcp".into(), &"none".into()));
    assert_eq!((status(&run[1]), &run[1]["targets"]), ("up", &Value::Array(Vec::new())));
    site.kill(1);
    for method in
        ["tcp --target 203.0.113.1:80", "http --target http://203.0.113.1/", "wan-ip --target http://203.0.113.1/"]
    {
        let down = probe(&format!("--gateway {one} --method {method}")).ended(1).one();
        assert_eq!(down["targets"][0]["failure"], "timeout", "{down}");
    }
}

/// What the filter of this host drops, the gateway has not lost.
#[test]
fn silence_under_a_strict_filter_is_not_down() {
    let site = Site::own_links(2);
    with_default(&site);
    let filter = |value: u32| {
        site.host.sh(&format!("for dev in eth0 eth1 eth2; do sysctl -qw net.ipv4.conf.$dev.rp_filter={value}; done"));
    };
    let line = format!("gw probe {} --target {} {QUICK}", named(&[site.address(1), site.address(2)]), TARGETS[0]);
    for loose in [0, 2] {
        filter(loose);
        site.host.run(&line).ended(0);
    }
    filter(1);
    let run = site.host.run(&line).ended(75);
    assert_eq!(statuses(&run), ["up", "unknown"], "the default route leads to the first");
    assert!(run.stderr.contains("sysctl -w net.ipv4.conf.eth2.rp_filter=2"), "{run:?}");
    assert_eq!(run.records()[1]["targets"][0]["status"], "unknown");
    // Marks that are given back before the filter looks.
    site.host.sh("sysctl -qw net.ipv4.conf.all.src_valid_mark=1");
    site.host.run(&line).ended(75);
    site.host.sh(
        "nft 'add table inet failover_gw; add chain inet failover_gw p { type filter hook prerouting priority -150; }; \
         add rule inet failover_gw p meta mark set ct mark; \
         add chain inet failover_gw o { type route hook output priority -150; }; \
         add rule inet failover_gw o ct mark set meta mark'",
    );
    site.host.run(&line).ended(0);
    site.kill(2);
    assert_eq!(statuses(&site.host.run(&line).ended(1)), ["up", "down"]);
    site.host.sh("nft delete table inet failover_gw");
    // The one that the main table leads by is down, whatever the filter.
    site.kill(1);
    let first = format!("gw probe --gateway {} --target {} {QUICK}", site.address(1), TARGETS[0]);
    site.host.run(&first).ended(1);
    filter(2);
    assert_eq!(statuses(&site.host.run(&line).ended(1)), ["down", "down"]);
    // No way leads through an interface that is down.
    site.mend(1);
    site.mend(2);
    eventually("both are back", 10 * SECOND, || site.host.run(&line).code == 0);
    site.host.sh("ip link set eth2 down");
    let run = site.host.run(&line).ended(1);
    let down = &run.records()[1];
    assert_eq!(
        (status(down), &down["dev"], &down["targets"][0]["sent"]),
        ("down", &"eth2".into(), &0.into()),
        "{down}"
    );

    let site = Site::one_link(2);
    let line = format!("gw probe {} --target {} {QUICK}", named(&[site.address(1), site.address(2)]), TARGETS[0]);
    site.host.sh("sysctl -qw net.ipv4.conf.eth0.rp_filter=1");
    assert_eq!(statuses(&site.host.run(&line).ended(75)), ["unknown", "unknown"], "no way back at all");
    with_default(&site);
    site.host.run(&line).ended(0);
}

/// Starts a run that takes a while, and waits until its ways are there.
fn start(host: &Host, more: &str) -> Running {
    let line = format!("gw probe --target {} --count 20 --interval 100ms {more}", TARGETS[0]);
    let run = host.start(&line);
    eventually("the ways are there", 5 * SECOND, || host.sh("ip route show table all").contains("table 7255"));
    run
}

/// An emptied table falls through to the main one unless somebody sees to it.
#[test]
fn what_others_do_to_the_ways_makes_no_gateway_up() {
    let site = Site::one_link(2);
    with_default(&site);
    site.kill(2);
    let before = routing(&site.host);
    for harm in [
        "ip route flush table 7255",
        "ip route flush table 7255; ip rule del priority 7110",
        "ip rule del priority 7100; ip rule del priority 7110",
        "ip route replace default via 192.0.2.1 table 7255",
    ] {
        let mut run = start(&site.host, &format!("--gateway {} --max-loss 99", site.address(2)));
        site.host.sh(harm);
        assert_eq!(run.ends(10 * SECOND), 75, "{harm}: {} {}", run.text(), run.complaints());
        assert_eq!(status(&run.so_far()[0]), "unknown", "{harm}");
        site.host.sh("ip route flush table 7255");
        ended_clean(&site.host, &before);
    }
}

/// A rule that is asked before ours sees more than the mark: what it sends by another gateway is not this one's.
#[test]
fn a_rule_of_another_makes_no_dead_gateway_up() {
    let site = Site::one_link(2);
    let _nginx = site.nginx();
    site.cut_upstream(2);
    site.host.sh("ip route add default via 192.0.2.1 table 500; ip -6 route add default via 2001:db8::1 table 500");
    site.host.sh("ip route add default table 501 nexthop via 192.0.2.1 nexthop via 192.0.2.2");
    site.host.sh("ip route add default via 192.0.2.2 table 502");
    let two = format!("--gateway {}", site.address(2));
    let tcp = format!("{two} --method tcp --target 203.0.113.1:80");
    let http = format!("{two} --method http --target http://203.0.113.1/");
    let wan = format!("{two} --method wan-ip --target http://203.0.113.1/");
    let icmp = format!("{two} --target 203.0.113.1");
    let six = format!("--gateway {}", site.address_6(2));
    let tcp_6 = format!("{six} --method tcp --target [2001:db8:2::1]:80");
    let icmp_6 = format!("{six} --target 2001:db8:2::1");
    for ask in [&tcp, &http, &wan, &icmp, &tcp_6, &icmp_6] {
        site.host.run(&format!("gw probe {QUICK} {ask}")).ended(1);
    }
    for (rule, asks) in [
        ("from 192.0.2.200 lookup 500", &[(&tcp, 75), (&http, 75), (&wan, 75), (&icmp, 1)][..]),
        ("from 192.0.2.200 lookup 501", &[(&tcp, 75)]),
        // It has the same way, and no other.
        ("from 192.0.2.200 lookup 502", &[(&tcp, 1)]),
        ("ipproto tcp lookup 500", &[(&tcp, 75), (&icmp, 1)]),
        ("ipproto tcp dport 80 lookup 500", &[(&tcp, 75), (&http, 75)]),
        ("ipproto tcp dport 81 lookup 500", &[(&tcp, 1)]),
        ("ipproto tcp sport 20000-65000 lookup 500", &[(&tcp, 75)]),
        // No connection of this host leaves from there.
        ("ipproto tcp sport 22 lookup 500", &[(&tcp, 1)]),
        ("ipproto icmp lookup 500", &[(&icmp, 75), (&tcp, 1)]),
        ("to 203.0.113.1 lookup 500", &[(&icmp, 75), (&tcp, 75)]),
        ("to 203.0.113.1 unreachable", &[(&icmp, 75)]),
        ("to 203.0.113.2 lookup 500", &[(&icmp, 1)]),
    ] {
        site.host.sh(&format!("ip rule add priority 100 {rule}"));
        for (ask, code) in asks {
            let run = site.host.run(&format!("gw probe {QUICK} {ask}"));
            assert_eq!(run.code, *code, "{rule}: {run:#?}");
            assert_eq!(run.stderr.contains("the rule of priority 100 is asked before"), *code == 75, "{rule}: {run:?}");
        }
        site.host.sh("ip rule del priority 100");
    }
    site.host.sh("ip -6 rule add priority 100 from 2001:db8::200 lookup 500");
    site.host.run(&format!("gw probe {QUICK} {tcp_6}")).ended(75);
    site.host.run(&format!("gw probe {QUICK} {icmp_6}")).ended(1);
    site.host.sh("ip -6 rule del priority 100; ip -6 rule add priority 100 ipproto ipv6-icmp lookup 500");
    site.host.run(&format!("gw probe {QUICK} {icmp_6}")).ended(75);
    // Each uplink with a rule for its address, as is usual: the gateway that they lead to is known.
    let site = Site::own_links(2);
    let _nginx = site.nginx();
    for n in 1..=2 {
        site.host.sh(&format!(
            "ip route add default via 10.0.{n}.1 table 50{n}; ip rule add from 10.0.{n}.2 lookup 50{n} priority 10{n}"
        ));
    }
    site.kill(2);
    let both = named(&[site.address(1), site.address(2)]);
    let run = site.host.run(&format!("gw probe {QUICK} {both} --method tcp --target 203.0.113.1:80")).ended(1);
    assert_eq!(statuses(&run), ["up", "down"]);
}

/// What a gateway says of a nearer one is the kernel's to believe, and no verdict on the gateway.
#[test]
fn a_redirected_probe_is_told_as_one() {
    let site = Site::one_link(2);
    site.host.sh("sysctl -qw net.ipv4.conf.all.accept_redirects=1 net.ipv4.conf.eth0.accept_redirects=1");
    site.gateways[1].sh(&format!(
        "sysctl -qw net.ipv4.conf.eth0.send_redirects=1; ip route add {} via 192.0.2.1; nft flush ruleset",
        TARGETS[0]
    ));
    // The first is not believed before the other's MAC is known.
    site.host.sh("ping -c 1 -W 2 192.0.2.1 >/dev/null");
    // Of several it is found which.
    let line =
        format!("gw probe --gateway 192.0.2.2 --target {},{} --count 5 --interval 100ms", TARGETS[1], TARGETS[0]);
    let run = site.host.run(&line).ended(75);
    let why = format!("192.0.2.2 at {}: a router has redirected it to 192.0.2.1", TARGETS[0]);
    assert!(run.stderr.contains(&why), "{run:#?}");
}

/// No gateway leads to these, so that neither an answer nor silence is one's.
#[test]
fn targets_that_are_no_host_s_address_are_refused() {
    let site = Site::one_link(2);
    for (gateway, target, why) in [
        ("192.0.2.1", "224.0.0.1", "of a group"),
        ("192.0.2.1", "192.0.2.255", "of all on a link"),
        ("192.0.2.1", "255.255.255.255", "of all on a link"),
        ("192.0.2.1", "0.0.0.0", "no host's"),
        ("192.0.2.1", "192.0.2.200", "answers itself"),
        ("2001:db8::1", "ff02::1", "of a group"),
        ("2001:db8::1", "::", "no host's"),
        ("2001:db8::1", "2001:db8::200", "answers itself"),
    ] {
        for more in ["", "--dry-run"] {
            let run = site.host.run(&format!("gw probe {QUICK} --gateway {gateway} --target {target} {more}")).ended(6);
            assert!(run.stderr.contains(why) && run.stderr.contains(target), "{run:#?}");
            assert_eq!(run.one()["error"]["reason"], "bad-input");
        }
    }
}

#[test]
fn the_main_table_stays_as_it_is() {
    let site = Site::own_links(2);
    with_default(&site);
    let monitor = site.host.start_shell("exec ip monitor route rule");
    let line =
        format!("gw probe {} --target {} {QUICK} --explain", named(&[site.address(1), site.address(2)]), TARGETS[0]);
    let seen = |text: &str| text.lines().filter(|line| line.contains("lookup 7255")).count();
    let run = eventually_some("the monitor listens", || {
        let run = site.host.run(&line).ended(0);
        (seen(&monitor.text()) >= 2).then_some(run)
    });
    for line in monitor.text().lines().filter(|line| !line.trim().is_empty()) {
        assert!(line.contains("725") || line.contains("7110:"), "{line}");
    }
    let actions = run.records()[0]["actions"].clone();
    let texts: Vec<&str> = actions.as_array().unwrap().iter().filter_map(|action| action["text"].as_str()).collect();
    assert_eq!(
        texts[..3],
        [
            "ip rule add priority 7110 fwmark 0xff0000/0xff0000 unreachable protocol 70",
            "ip rule add priority 7100 fwmark 0xff0000/0xff0000 table 7255 protocol 70",
            "ip route add default via 10.0.1.1 dev eth1 table 7255 proto 70",
        ]
    );
    assert_eq!(
        texts[3..],
        [
            "ip route del default via 10.0.1.1 dev eth1 table 7255 proto 70",
            "ip rule del priority 7100 fwmark 0xff0000/0xff0000 table 7255 protocol 70",
            "ip rule del priority 7110 fwmark 0xff0000/0xff0000 unreachable protocol 70",
        ]
    );
    // They work as they stand there.
    for text in &texts[..3] {
        site.host.sh(text);
    }
    let before = routing(&site.host);
    assert!(before.contains("default via 10.0.1.1 dev eth1 table 7255"), "{before}");
    site.host.run(&line).ended(0);
    assert!(!has_rules(&site.host), "they were taken for what a killed run has left");
}

fn eventually_some<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, 10 * SECOND, || {
        found = done();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn nothing_stays_behind_however_it_ends() {
    let site = Site::one_link(3);
    let before = routing(&site.host);
    let line = format!("gw probe --gateway {} --target {} {QUICK}", site.address(2), TARGETS[0]);
    for (signal, ends) in [(Signal::SIGTERM, -15), (Signal::SIGINT, -2)] {
        let mut run = start(&site.host, &format!("--gateway {}", site.address(1)));
        run.signal(signal);
        assert_eq!(run.ends(5 * SECOND), ends, "{} {}", run.text(), run.complaints());
        ended_clean(&site.host, &before);
    }
    // Killed: of both families.
    let mut run = start(&site.host, &named(&[site.address(1), site.address(2), site.address_6(3)]));
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    assert!(has_rules(&site.host));
    site.host.run(&line).ended(0);
    ended_clean(&site.host, &before);
    // A reader that has left, a full disk.
    let mut piped = site.host.command(&format!("{line} --follow --every 100ms"));
    let mut child = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("its ways are there", 5 * SECOND, || has_rules(&site.host));
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    ended_clean(&site.host, &before);
    for more in ["", "--follow"] {
        let mut full = site.host.command(&format!("{line} {more}"));
        let output = full.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(71), "{output:?}");
        ended_clean(&site.host, &before);
    }
    // Two at once have marks of their own, and neither waits.
    let mut first = start(&site.host, &format!("--gateway {}", site.address(1)));
    site.host.run(&line).ended(0);
    assert!(first.child.try_wait().unwrap().is_none(), "the other took no longer than it takes");
    let mut second =
        site.host.start(&format!("gw probe --gateway {} --target {} --count 10", site.address(2), TARGETS[0]));
    eventually("both are there", 5 * SECOND, || {
        let routes = site.host.sh("ip route show table all");
        routes.contains("table 7255") && routes.contains("table 7254")
    });
    assert_eq!((first.ends(10 * SECOND), second.ends(10 * SECOND)), (0, 0));
    ended_clean(&site.host, &before);
}

/// All at once: the run is as long as one gateway's.
#[test]
fn sixty_four_gateways_are_one_round() {
    let site = Site::one_link(1);
    let many: Vec<String> = (10..74).map(|n| format!("192.0.2.{n}")).collect();
    site.gateways[0].sh(&many.iter().map(|addr| format!("ip addr add {addr}/24 dev eth0; ")).collect::<String>());
    count(&site.gateways[0], "icmp type echo-request");
    let dead: Vec<String> = (80..84).map(|n| format!("192.0.2.{n}")).collect();
    let line = format!("gw probe {} {} --target {},{} {QUICK}", named(&many), named(&dead), TARGETS[0], TARGETS[1]);
    let before = routing(&site.host);
    let started = Instant::now();
    let run = site.host.run(&line).ended(1);
    let took = started.elapsed();
    assert_eq!(counted(&site.gateways[0]), 64 * 2 * 3);
    let up = statuses(&run).iter().filter(|status| *status == "up").count();
    assert_eq!((up, run.records().len()), (64, 68));
    // Not one after the other: that would be half a minute.
    assert!(took < 5 * SECOND, "{took:?}");
    ended_clean(&site.host, &before);
}

/// Whatever this host has too few of: each gateway has its record.
#[test]
fn a_gateway_without_a_socket_has_its_record() {
    let site = Site::one_link(1);
    let before = routing(&site.host);
    let many: Vec<String> = (10..71).map(|n| format!("192.0.2.{n}")).collect();
    let gw = binary("gw").display().to_string();
    for (method, target) in [("icmp", "203.0.113.1"), ("tcp", "203.0.113.1:80")] {
        for limit in [16, 20, 40] {
            let line = format!("{gw} probe {} {QUICK} --method {method} --target {target}", named(&many));
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{}", site.host.ns));
            command.args(["sh", "-c", &format!("ulimit -n {limit}; exec {line}")]);
            site.host.environment(&mut command);
            let run = Run::new(&line, command.output().unwrap()).ended(71);
            let records = run.records();
            assert_eq!(records.len(), many.len(), "{limit}: {run:#?}");
            let without: Vec<&Value> = records.iter().filter(|record| record["error"].is_object()).collect();
            assert!(!without.is_empty() && without.iter().all(|record| status(record) == "unknown"));
            assert!(without.iter().all(|record| record["error"]["errno"] == "EMFILE"), "{run:#?}");
            assert!(run.stderr.contains("raise the limit of open files"), "{run:#?}");
            ended_clean(&site.host, &before);
        }
    }
}

#[test]
fn without_the_right_nothing_is_tried() {
    let site = Site::one_link(1);
    let folder = site.host.folder.join("open");
    fs::create_dir_all(&folder).unwrap();
    // The build's folder may be closed to others.
    fs::copy(binary("gw"), folder.join("gw")).unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", site.host.ns)).args(["setpriv", "--reuid=65534", "--regid=65534"]);
    command.args(["--clear-groups", "--inh-caps=-all"]).arg(folder.join("gw"));
    command.args(["probe", "--gateway", "192.0.2.1", "--target", TARGETS[0]]);
    site.host.environment(&mut command);
    let refused = Run::new("as nobody", command.output().unwrap()).ended(4);
    assert!(refused.stderr.contains("CAP_NET_ADMIN") && refused.stdout.is_empty(), "{refused:?}");
}

#[test]
fn what_is_wrong_is_told_before_anything_is_sent() {
    let site = Site::one_link(2);
    let before = routing(&site.host);
    let gateway = "--gateway 192.0.2.1";
    for (flags, code, why) in [
        ("--target 203.0.113.1".to_owned(), 2, "no gateway is named"),
        (gateway.to_owned(), 2, "no target is named"),
        (format!("{gateway} --target 203.0.113.1 --need 2"), 2, "2 targets must be up"),
        (format!("{gateway} --target 203.0.113.1,203.0.113.1"), 2, "named twice"),
        (format!("{gateway} {gateway} --target 203.0.113.1"), 2, "named twice"),
        (format!("{gateway} --target www.example.org"), 2, "is no address"),
        (format!("{gateway} --target 203.0.113.1:80"), 2, "echoes have no port"),
        (format!("{gateway} --target fe80::1%eth0"), 2, "behind no gateway"),
        (format!("{gateway} --target 203.0.113.1 --method tcp"), 2, "names no port"),
        (format!("{gateway} --target 203.0.113.1 --method http"), 2, "not a URL"),
        (format!("{gateway} --target 203.0.113.1 --response-timeout 0s"), 2, "above 0s"),
        (format!("{gateway} --target 203.0.113.1 --every 1s"), 2, "--follow"),
        (format!("{gateway} --target 203.0.113.1 --mark-mask 0x7"), 2, "fewer than 8 bits"),
        ("--gateways /nonexistent --target 203.0.113.1".to_owned(), 6, "no such file"),
        ("--gateway fe80::1 --target 2001:db8:2::1".to_owned(), 6, "name the interface"),
        (format!("{gateway},method=tcp,target=203.0.113.1"), 6, "names no port"),
        (format!("{gateway} --method tcp --target www.example.org:80"), 75, "cannot look up www.example.org"),
        (format!("{gateway} --method tcp --target localhost:80"), 6, "answers itself"),
    ] {
        let run = site.host.run(&format!("gw probe {QUICK} {flags}"));
        assert!(run.code == code && run.stderr.contains(why) && run.stderr.lines().count() == 1, "{flags}: {run:#?}");
        assert_eq!(run.records().iter().filter(|record| status(record) != "unknown").count(), 0);
        ended_clean(&site.host, &before);
    }
    // Of the other family: its own fault alone.
    let both = format!("gw probe --gateway 192.0.2.1 --gateway 2001:db8::2 --target {} {QUICK}", TARGETS[0]);
    let run = site.host.run(&both).ended(6);
    assert_eq!(statuses(&run), ["up", "unknown"]);
    assert!(run.stderr.contains("of the other family"), "{run:?}");
}

/// From cron: no PATH to speak of, no language, no terminal; and the next in the pipe reads it.
#[test]
fn split_reads_what_probe_says_from_cron_too() {
    let site = Site::one_link(3);
    site.kill(2);
    let gateways = site.host.folder.join("gateways");
    fs::write(&gateways, "192.0.2.1 weight=0.5\n192.0.2.2 weight=0.25\n192.0.2.3 weight=0.25 tier=1\n").unwrap();
    let gw = binary("gw").display().to_string();
    let line = format!(
        "env --ignore-environment PATH=/usr/bin:/bin FAILOVER_STATE_DIR={} {gw} probe --node host --gateways {} --target {} {QUICK} | \
         {gw} split --node host",
        site.host.folder.join("state").display(),
        gateways.display(),
        TARGETS[0],
    );
    let plan: Value = serde_json::from_str(&site.host.sh(&line)).unwrap();
    let shares: Vec<f64> =
        plan["gateways"].as_array().unwrap().iter().map(|one| one["share"].as_f64().unwrap()).collect();
    assert_eq!(shares, [0.75, 0.0, 0.25]);
}

#[test]
fn a_stream_goes_on_with_the_list_as_it_is_now() {
    let site = Site::one_link(3);
    let before = routing(&site.host);
    let gateways = site.host.folder.join("gateways");
    fs::write(&gateways, "192.0.2.1\n192.0.2.2\n").unwrap();
    let mut run = site.host.start(&format!(
        "gw probe --gateways {} --target {} {QUICK} --follow --every 100ms",
        gateways.display(),
        TARGETS[0]
    ));
    let last = |subject: &str| run.so_far().iter().rev().find(|record| record["subject"] == subject).cloned();
    let is = |subject: &str, wanted: &str| last(subject).is_some_and(|record| status(&record) == wanted);
    eventually("both are up", 5 * SECOND, || is("192.0.2.1", "up") && is("192.0.2.2", "up"));
    eventually("it is said again", 5 * SECOND, || last("192.0.2.2").is_some_and(|record| record["renewal"] == true));
    let record = last("192.0.2.2").unwrap();
    assert!(record["valid_for_ms"].as_f64().unwrap() >= 640.0 && record["received_ms"].is_number(), "{record}");
    let ways = || site.host.sh("ip rule").matches("7100:").count();
    assert_eq!(ways(), 2, "they stand between rounds");
    site.kill(2);
    eventually("it is down", 5 * SECOND, || is("192.0.2.2", "down"));
    // A broken file is complained of once, and the last good one holds.
    fs::write(&gateways, "192.0.2.1\nnonsense\n").unwrap();
    eventually("it is told", 5 * SECOND, || run.complaints().contains("line 2"));
    let rounds = run.so_far().len();
    eventually("it goes on", 5 * SECOND, || run.so_far().len() > rounds + 4);
    assert_eq!(run.complaints().lines().count(), 1, "{}", run.complaints());
    fs::write(&gateways, "192.0.2.3\n").unwrap();
    eventually("the new one is up", 5 * SECOND, || is("192.0.2.3", "up"));
    eventually("the old ones' ways are gone", 5 * SECOND, || ways() == 1);
    // Somebody's broom.
    site.host.sh("ip rule del priority 7100; ip rule del priority 7110");
    eventually("its way is made again", 5 * SECOND, || ways() == 1 && is("192.0.2.3", "up"));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(5 * SECOND), -15);
    ended_clean(&site.host, &before);
    let ended = format!("gw probe --gateway 192.0.2.1 --target {} {QUICK} --follow --every 100ms --for 1s", TARGETS[0]);
    site.host.run(&ended).ended(0);
    ended_clean(&site.host, &before);
}

/// Asked first, it says what it would make, makes nothing, and needs no right to do so.
#[test]
fn a_rehearsal_makes_nothing() {
    let site = Site::one_link(2);
    let monitor = site.host.start_shell("exec ip monitor route rule");
    let line = "gw probe --gateway 192.0.2.1 --gateway 192.0.2.2,method=none --target 203.0.113.1 --dry-run";
    let told = site.host.run(line).ended(0).records();
    let texts: Vec<&str> =
        told[0]["actions"].as_array().unwrap().iter().map(|action| action["text"].as_str().unwrap()).collect();
    assert_eq!((&told[0]["dry_run"], &told[0]["status"], texts.len()), (&true.into(), &"unknown".into(), 3));
    assert!(told[1].get("actions").is_none_or(|actions| actions.as_array().unwrap().is_empty()), "{told:?}");
    assert_eq!(monitor.text(), "");
    // What it says is what ip takes.
    for text in texts {
        site.host.sh(text);
    }
    // And is what a run would find as left by one that was killed.
    site.host.run(&line.replace(" --dry-run", "")).ended(0);
    assert!(!site.host.sh("ip rule; ip route show table all").contains("72"), "left behind");
    site.host.run("gw probe --gateway 198.51.100.77 --target 203.0.113.1 --dry-run").ended(5);
}
