//! `vip apply --forward` and `--src-route`: the routes that follow an address.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use support::{Host, Lab, Running, election, eventually};

const SECOND: Duration = Duration::from_secs(1);
const VIPS: [&str; 2] = ["192.0.2.10", "2001:db8::10"];

/// Hosts n1, n2, … with 192.0.2.N and `2001:db8::N`, none of them a router.
fn hosts(lab: &Lab, count: usize) -> Vec<Host> {
    let host = |n| {
        let host = lab.host(&format!("n{n}"), &[&format!("192.0.2.{n}/24"), &format!("2001:db8::{n}/64")]);
        host.sh("sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.eth0.forwarding=0 net.ipv6.conf.all.forwarding=0");
        host.sh("sysctl -qw net.ipv4.conf.all.send_redirects=1 net.ipv4.conf.eth0.send_redirects=1");
        host
    };
    (1..=count).map(host).collect()
}

fn client(lab: &Lab) -> Host {
    let client = lab.host("client", &["192.0.2.99/24", "2001:db8::99/64"]);
    client.sh("sysctl -qw net.ipv4.conf.all.accept_redirects=1 net.ipv4.conf.eth0.accept_redirects=1");
    client
}

/// Both addresses are another's: node `n`, whose own addresses are known.
fn elsewhere(n: u32) -> String {
    let of = |vip: &str, own: &str| election(vip, false, &format!(",\"master_addr\":\"{own}{n}\""));
    of(VIPS[0], "192.0.2.") + &of(VIPS[1], "2001:db8::")
}

fn both(mine: bool) -> String {
    VIPS.map(|vip| election(vip, mine, "")).concat()
}

/// The client's neighbour entries for both addresses are those of `host`, whoever announces what.
fn pin(client: &Host, host: &Host) {
    for vip in VIPS {
        client.sh(&format!("ip neigh replace {vip} dev eth0 lladdr 02:00:00:00:00:{:02x} nud permanent", host.number));
    }
}

fn route(host: &Host, vip: &str) -> String {
    let family = if vip.contains(':') { 6 } else { 4 };
    host.sh(&format!("ip -{family} route show {vip} table main")).trim().to_owned()
}

fn table(host: &Host, vip: &str) -> Option<String> {
    let (is_there, text) = host.try_sh(&format!("nft list table inet failover_{}", vip.replace(['.', ':'], "_")));
    is_there.then_some(text)
}

fn sends_on(host: &Host, to: u32) -> bool {
    let v6 = route(host, VIPS[1]);
    route(host, VIPS[0]).contains(&format!("via 192.0.2.{to} "))
        && ["2001:db8::", "fe80::ff:fe00:"].iter().any(|own| v6.contains(&format!("via {own}{to} ")))
}

fn is_clean(host: &Host) -> bool {
    VIPS.iter().all(|vip| route(host, vip).is_empty() && table(host, vip).is_none())
}

/// Every setting that forwarding changes.
fn settings(host: &Host) -> String {
    host.sh("sysctl -n net.ipv4.ip_forward net.ipv4.conf.eth0.forwarding net.ipv4.conf.eth0.send_redirects \
         net.ipv4.conf.all.send_redirects net.ipv6.conf.all.forwarding net.ipv6.conf.default.forwarding \
         net.ipv6.conf.eth0.forwarding net.ipv6.conf.eth0.accept_ra net.ipv6.conf.default.accept_ra")
}

fn pings(client: &Host, vip: &str) -> bool {
    client.try_sh(&format!("ping -c1 -W1 -q {vip}")).0
}

/// Who answers TCP port 80 of an address, as the client sees it.
fn greeting(client: &Host, vip: &str) -> Option<String> {
    let to = SocketAddr::new(vip.parse().unwrap(), 80);
    client
        .inside(move || {
            let mut stream = TcpStream::connect_timeout(&to, SECOND).ok()?;
            stream.set_read_timeout(Some(SECOND)).ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        })
        .join()
        .unwrap()
}

/// Says this host's name to whoever connects to port 80 of any address.
fn serve(host: &Host) {
    let name = host.name.clone();
    host.inside(move || {
        let listener = TcpListener::bind("[::]:80").unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.and_then(|mut stream| stream.write_all(name.as_bytes()));
            }
        });
    })
    .join()
    .unwrap();
}

fn redirects(host: &Host) -> String {
    host.sh("nstat -asz IcmpInRedirects Icmp6InRedirects | awk '/Redirects/ {print $2}'").split_whitespace().collect()
}

/// A client that still sends to the backup is served by the master; the master changes, the backup becomes one.
#[test]
fn what_still_reaches_a_backup_is_served_by_the_master() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 3);
    let client = client(&lab);
    hosts.iter().for_each(serve);
    let before = settings(&hosts[1]);
    let mut runs: Vec<Running> = hosts.iter().map(|host| host.start_fed("vip apply --follow --forward")).collect();
    let mut elect = |master: u32| {
        for (n, run) in (1..).zip(&mut runs) {
            // VRRP names masters by their link-local addresses; of others the kernel would tell in no redirect.
            let other = elsewhere(master).replace("addr\":\"2001:db8::", "addr\":\"fe80::ff:fe00:");
            run.feed(&if n == master { both(true) } else { other });
        }
    };
    pin(&client, &hosts[1]);
    elect(1);
    eventually("n2 sends on to n1", 5 * SECOND, || sends_on(&hosts[1], 1));
    for vip in VIPS {
        eventually("n1 serves", 5 * SECOND, || greeting(&client, vip).as_deref() == Some("n1"));
        assert!(client.try_sh(&format!("ping -c5 -i0.2 -W1 -q {vip}")).1.contains(" 0% packet loss"));
        // The client is told of no shorter way, and not because the kernel has none to tell.
        let quiet = table(&hosts[1], vip).unwrap();
        assert!(!quiet.split("chain quiet").nth(1).unwrap().contains("counter packets 0 "), "{quiet}");
        // What is for others is not sent on: the host is no router.
        let stranger = vip.replace("10", "77");
        client.sh(&format!("ip neigh replace {stranger} dev eth0 lladdr 02:00:00:00:00:02 nud permanent"));
        assert!(!pings(&client, &stranger));
        let way = table(&hosts[1], vip).unwrap();
        assert!(!way.split("chain way").nth(1).unwrap().contains("counter packets 0 "), "{way}");
    }
    assert_eq!(redirects(&client), "00");
    // Another master.
    elect(3);
    eventually("n2 sends on to n3", 5 * SECOND, || sends_on(&hosts[1], 3) && sends_on(&hosts[0], 3));
    eventually("n3 serves", 5 * SECOND, || VIPS.iter().all(|vip| greeting(&client, vip).as_deref() == Some("n3")));
    // It becomes master itself: nothing of it is left.
    elect(2);
    eventually("n2 serves", 5 * SECOND, || VIPS.iter().all(|vip| greeting(&client, vip).as_deref() == Some("n2")));
    assert!(is_clean(&hosts[1]), "{:?}", VIPS.map(|vip| (route(&hosts[1], vip), table(&hosts[1], vip))));
    eventually("its settings are back", SECOND, || settings(&hosts[1]) == before);
    // Back again, and then nobody is master.
    elect(1);
    eventually("n2 sends on to n1", 5 * SECOND, || sends_on(&hosts[1], 1));
    assert_ne!(settings(&hosts[1]), before);
    runs[1].feed(&both(false));
    eventually("n2 sends nothing on", 5 * SECOND, || is_clean(&hosts[1]) && settings(&hosts[1]) == before);
}

/// The records, the plan, twice is once, and the end.
#[test]
fn forwarding_is_told_planned_and_undone() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let host = &hosts[1];
    let before = settings(host);
    let planned = host.run_with("vip apply --forward --dry-run", &elsewhere(1)).ended(0).records();
    let ops = |record: &serde_json::Value| -> Vec<String> {
        record["actions"].as_array().unwrap().iter().map(|one| one["op"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ops(&planned[0]), ["nft", "sysctl", "route-add"]);
    assert_eq!(planned[0]["actions"][2]["text"], "ip route add 192.0.2.10/32 via 192.0.2.1 dev eth0 proto 70");
    assert!(is_clean(host) && settings(host) == before);
    // Once, as from cron.
    let done = host.run_with("vip apply --forward", &elsewhere(1)).ended(0).records();
    assert_eq!(
        (&done[0]["role"], &done[0]["via"], &done[0]["changed"], &done[0]["sysctls"]["ipv4/conf/eth0/forwarding"]),
        (&"forward".into(), &"192.0.2.1".into(), &true.into(), &"1".into())
    );
    assert_eq!(
        (&done[1]["via"], &done[1]["sysctls"]["ipv6/conf/eth0/accept_ra"]),
        (&"2001:db8::1".into(), &"2".into())
    );
    assert!(sends_on(host, 1));
    let again = host.run_with("vip apply --forward", &elsewhere(1)).ended(0).records();
    assert_eq!((&again[0]["role"], &again[0]["via"]), (&"forward".into(), &"192.0.2.1".into()));
    // Whoever is not master any more is told to, without the flag too.
    host.run_with("vip apply", &elsewhere(1)).ended(0);
    assert!(is_clean(host) && settings(host) == before);
    // A master that says nothing is no way.
    let silent = host.run_with("vip apply --forward", &elsewhere(7)).ended(75);
    assert!(silent.stderr.contains("does not say its MAC"), "{silent:?}");
    assert!(is_clean(host) && settings(host) == before);
    // One that could be an own address, or one of the other family, is none either.
    for master in ["192.0.2.2", "2001:db8::1", "192.0.2.10"] {
        let line = election(VIPS[0], false, &format!(",\"master_addr\":\"{master}\""));
        let done = host.run_with("vip apply --forward", &line).ended(0).one();
        assert_eq!((&done["role"], done.get("via")), (&"leave".into(), None));
    }
    // Each end of a stream, and the next run after none.
    for how in ["input", "term", "kill"] {
        let mut run = host.start_fed("vip apply --follow --forward");
        run.feed(&elsewhere(1));
        eventually("it sends on", 5 * SECOND, || sends_on(host, 1));
        let told = run.wait_for("a record", SECOND, |one| one["role"] == "forward");
        assert_eq!((&told["changed"], told["repaired"] == true), (&true.into(), false));
        match how {
            "input" => drop(run.child.stdin.take()),
            "term" => run.signal(Signal::SIGTERM),
            _ => run.signal(Signal::SIGKILL),
        }
        run.ends(3 * SECOND);
        if how == "kill" {
            assert!(sends_on(host, 1) && settings(host) != before);
            host.run_with("vip apply", &both(true)).ended(0);
            host.run("vip del --mine").ended(0);
        }
        assert!(is_clean(host) && settings(host) == before, "{how}");
    }
    // What a killed run has left goes with all that is ours, too.
    let mut run = host.start_fed("vip apply --follow --forward");
    run.feed(&elsewhere(1));
    eventually("it sends on", 5 * SECOND, || sends_on(host, 1));
    run.signal(Signal::SIGKILL);
    run.ends(SECOND);
    host.run("vip del --mine").ended(0);
    assert!(is_clean(host) && settings(host) == before);
    // An election that is not said again names nobody.
    let mut run = host.start_fed("vip apply --follow --forward");
    let short = elsewhere(1).replace('}', ",\"valid_for_ms\":1500}");
    run.feed(&short);
    eventually("it sends on", 3 * SECOND, || sends_on(host, 1));
    // Undecided, said again: what stands is left.
    for _ in 0..5 {
        run.feed(&both(false).replace('}', ",\"held\":true,\"renewal\":true,\"valid_for_ms\":1500}"));
        std::thread::sleep(Duration::from_millis(500));
        assert!(sends_on(host, 1));
    }
    eventually("it sends nothing on", 5 * SECOND, || is_clean(host) && settings(host) == before);
}

/// Of a host that is a router all the same, redirects about the address alone are dropped, and nothing else is.
#[test]
fn a_router_goes_on_being_one() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 3);
    let client = client(&lab);
    hosts[1].sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    let before = settings(&hosts[1]);
    hosts[0].run_with("vip apply", &both(true)).ended(0);
    let mut run = hosts[1].start_fed("vip apply --follow --forward");
    run.feed(&elsewhere(1).replace("addr\":\"2001:db8::", "addr\":\"fe80::ff:fe00:"));
    eventually("n2 sends on", 5 * SECOND, || sends_on(&hosts[1], 1));
    assert_eq!(settings(&hosts[1]), before);
    pin(&client, &hosts[1]);
    for vip in VIPS {
        client.sh(&format!("ping -c3 -i0.2 -W1 -q {vip}"));
        let quiet = table(&hosts[1], vip).unwrap();
        assert!(!quiet.split("chain quiet").nth(1).unwrap().contains("counter packets 0 "), "{quiet}");
    }
    assert_eq!(redirects(&client), "00");
    client.sh("ip neigh replace 192.0.2.3 dev eth0 lladdr 02:00:00:00:00:02 nud permanent");
    eventually("others are redirected", 5 * SECOND, || pings(&client, "192.0.2.3") && redirects(&client) != "00");
}

/// What is sent on belongs to the master; what is shared is served here.
#[test]
fn sharing_wins() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let mut run = hosts[1].start_fed("vip apply --follow --forward --share 192.0.2.10");
    run.feed(&elsewhere(1));
    run.wait_for("what is shared", 3 * SECOND, |one| one["subject"] == VIPS[0] && one["role"] == "share");
    run.wait_for("what is sent on", 3 * SECOND, |one| one["subject"] == VIPS[1] && one["role"] == "forward");
    assert!(route(&hosts[1], VIPS[0]).is_empty() && table(&hosts[1], VIPS[0]).is_none());
}

/// Echo requests to an address as the bridge receives them.
fn count_frames(lab: &Lab) {
    lab.on_switch(
        "nft 'table bridge count { chain c { type filter hook prerouting priority 0; \
         ip daddr 192.0.2.10 icmp type echo-request counter; \
         ip6 daddr 2001:db8::10 icmpv6 type echo-request counter; }; }'",
    );
}

fn frames(lab: &Lab) -> Vec<u32> {
    let text = lab.on_switch("nft list table bridge count");
    lab.on_switch("nft reset counters >/dev/null; nft flush table bridge count; nft delete table bridge count");
    count_frames(lab);
    let count = |line: &str| line.split("packets ").nth(1)?.split_whitespace().next()?.parse().ok();
    text.lines().filter_map(count).collect()
}

/// Nodes with stale views: one packet does not go round.
#[test]
fn no_packet_goes_to_and_fro() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 3);
    let client = client(&lab);
    let ring = |next: &[u32], members: &str| -> Vec<Running> {
        let begin = |(host, next): (&Host, &u32)| {
            let mut run = host.start_fed("vip apply --follow --forward");
            run.feed(&elsewhere(*next).replace('}', &format!("{members}}}")));
            eventually("it sends on", 5 * SECOND, || sends_on(host, *next));
            run
        };
        hosts.iter().zip(next).map(begin).collect()
    };
    count_frames(&lab);
    let lost = |runs: Vec<Running>| {
        pin(&client, &hosts[0]);
        frames(&lab);
        assert!(VIPS.iter().all(|vip| !pings(&client, vip)));
        // Let a storm show itself.
        std::thread::sleep(Duration::from_millis(300));
        drop(runs);
        frames(&lab)
    };
    // Two, each of which takes the other for the master: from the client, and to the other.
    assert_eq!(lost(ring(&[2, 1], "")), [2, 2]);
    // Three in a ring that know each other.
    let members: Vec<String> = (1..=3)
        .flat_map(|n| [format!("192.0.2.{n}"), format!("2001:db8::{n}")])
        .map(|addr| format!("{{\"node\":\"x\",\"address\":\"{addr}\",\"priority\":1,\"standing\":true,\"why\":\"\"}}"))
        .collect();
    let members = format!(",\"candidates\":[{}]", members.join(","));
    let runs = ring(&[2, 3, 1], &members);
    let knows_all = |host: &Host| {
        let others = (1..=3).filter(|n| *n != host.number).map(|n| format!("02:00:00:00:00:{n:02x}"));
        VIPS.iter().all(|vip| others.clone().all(|mac| table(host, vip).unwrap().contains(&mac)))
    };
    eventually("each knows the others", 5 * SECOND, || hosts.iter().all(knows_all));
    assert_eq!(lost(runs), [2, 2]);
    // Three that know no more than their own master's MAC: it ends with the hop limit.
    for counted in lost(ring(&[2, 3, 1], "")) {
        assert!((3..=9).contains(&counted), "{counted}");
    }
}

/// What others take away comes back: a rule set that is loaded anew, a route, an interface.
#[test]
fn the_guard_and_the_route_are_put_back() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    let host = &hosts[1];
    let mut run = host.start_fed("vip apply --follow --forward");
    run.feed(&elsewhere(1));
    eventually("it sends on", 5 * SECOND, || sends_on(host, 1));
    host.sh("nft flush ruleset");
    eventually("the tables are back", 3 * SECOND, || VIPS.iter().all(|vip| table(host, vip).is_some()));
    host.sh("ip route del 192.0.2.10/32");
    eventually("the route is back", 3 * SECOND, || sends_on(host, 1));
    run.wait_for("a word", SECOND, |one| one["repaired"] == true && one["subject"] == VIPS[0]);
    host.sh("ip link set eth0 down; ip link set eth0 up; ip addr replace 2001:db8::2/64 dev eth0 nodad");
    eventually("all of it is back", 8 * SECOND, || sends_on(host, 1));
}

/// Each bucket of a cluster IP has its own owner: there is no master to send packets to.
#[test]
fn a_cluster_ip_is_not_sent_on() {
    let lab = Lab::new();
    let hosts = hosts(&lab, 2);
    hosts[1].run("bucket init 192.0.2.10 --dev eth0 --mac 01:02:03:04:05:06 --total 2 --seed 0 --local 1").ended(0);
    let line = election(VIPS[0], false, ",\"master_addr\":\"192.0.2.1\"");
    let refused = hosts[1].run_with("vip apply --forward", &line).ended(1);
    assert!(refused.stderr.contains("it is a cluster IP of this host"), "{refused:?}");
    assert!(route(&hosts[1], VIPS[0]).is_empty() && table(&hosts[1], VIPS[0]).is_none());
}

/// A host behind a router, and a remote one that tells who has called.
struct Way {
    _lab: Lab,
    host: Host,
    router: Host,
    remote: Host,
}

impl Way {
    fn new() -> Way {
        let lab = Lab::new();
        lab.bridge("wan");
        let host = lab.host("n1", &["192.0.2.1/24", "2001:db8::1/64"]);
        let router = lab.host("router", &["192.0.2.254/24", "192.0.2.253/24", "2001:db8::fe/64", "2001:db8::fd/64"]);
        lab.plug(&router, "eth1", "wan", &["198.51.100.254/24", "2001:db8:1::fe/64"]);
        router.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        let remote = lab.host("remote", &[]);
        remote.sh("ip link set eth0 down");
        lab.plug(&remote, "eth1", "wan", &["198.51.100.1/24", "2001:db8:1::1/64"]);
        remote.sh("ip route add default via 198.51.100.254 && ip -6 route add default via 2001:db8:1::fe");
        host.sh("ip route add default via 192.0.2.254 && ip -6 route add default via 2001:db8::fe");
        remote
            .inside(|| {
                let listener = TcpListener::bind("[::]:80").unwrap();
                std::thread::spawn(move || {
                    for stream in listener.incoming() {
                        let _ = stream.and_then(|mut stream| {
                            let IpAddr::V6(peer) = stream.peer_addr()?.ip() else { return Ok(()) };
                            let peer = peer.to_ipv4_mapped().map_or(IpAddr::V6(peer), IpAddr::V4);
                            stream.write_all(peer.to_string().as_bytes())
                        });
                    }
                });
            })
            .join()
            .unwrap();
        Way { _lab: lab, host, router, remote }
    }

    /// Whom the remote host sees, in both families.
    fn seen(&self) -> [String; 2] {
        ["198.51.100.1", "2001:db8:1::1"].map(|to| greeting(&self.host, to).unwrap_or_default())
    }

    fn halves(&self) -> usize {
        let count = |family: u8| self.host.sh(&format!("ip -{family} route show table main proto 70")).lines().count();
        count(4) + count(6)
    }

    fn defaults(&self) -> String {
        self.host.sh("ip route show default; ip -6 route show default")
    }
}

const OWN: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

#[test]
fn the_host_sends_from_the_address_while_it_has_it() {
    let way = Way::new();
    let defaults = way.defaults();
    assert_eq!(way.seen(), OWN);
    let planned = way.host.run_with("vip apply --dry-run --src-route 192.0.2.10", &both(true)).ended(0).records();
    assert_eq!(
        planned[0]["actions"][1]["text"],
        "ip route add 0.0.0.0/1 via 192.0.2.254 dev eth0 proto 70 metric 1024 src 192.0.2.10"
    );
    assert!(way.halves() == 0 && planned[0]["changed"] == true);
    let mut run = way.host.start_fed("vip apply --follow --src-route 192.0.2.10,2001:db8::10");
    // Carried by another: nothing is changed.
    run.feed(&elsewhere(9));
    run.feed(&both(true));
    let told = run.wait_for("the address", 3 * SECOND, |one| one["role"] == "serve" && one["subject"] == VIPS[1]);
    assert_eq!(told["src_routes"][0], "::/1 via 2001:db8::fe dev eth0 proto 70 metric 1024 src 2001:db8::10");
    assert_eq!(way.seen(), VIPS);
    assert_eq!(way.defaults(), defaults);
    // The link itself is reached from the host's own address.
    assert!(way.host.sh("ip route get 192.0.2.254").contains("src 192.0.2.1 "));
    // Another router: they follow.
    way.host.sh("ip route replace default via 192.0.2.253 && ip -6 route replace default via 2001:db8::fd");
    let follows = || way.host.sh("ip route show 0.0.0.0/1").contains("via 192.0.2.253 ");
    eventually("they follow", 3 * SECOND, || follows() && way.halves() == 4);
    eventually("IPv6 too", 3 * SECOND, || way.host.sh("ip -6 route show 8000::/1").contains("via 2001:db8::fd "));
    assert_eq!(way.seen(), VIPS);
    // No way out at all, and one again.
    way.host.sh("ip route del default; ip -6 route del default");
    eventually("they go", 3 * SECOND, || way.halves() == 0);
    run.wait_for("a word", SECOND, |one| {
        one["error"]["message"].as_str().is_some_and(|why| why.contains("the main table has no default route"))
    });
    way.host.sh("ip route add default via 192.0.2.254 && ip -6 route add default via 2001:db8::fe");
    eventually("they are back", 3 * SECOND, || way.halves() == 4);
    // Given up.
    run.feed(&both(false));
    eventually("they go with it", 3 * SECOND, || way.halves() == 0);
    assert_eq!((way.seen(), way.defaults()), (OWN.map(str::to_owned), defaults.clone()));
    // Had again, and the end of input.
    run.feed(&both(true));
    eventually("they are back", 3 * SECOND, || way.halves() == 4);
    drop(run.child.stdin.take());
    assert_eq!(run.ends(3 * SECOND), 1);
    assert_eq!((way.halves(), way.defaults()), (0, defaults));
    assert!(way.router.sh("ip route").contains("198.51.100.0/24") && way.remote.ns.ends_with("remote"));
}

/// The kernel takes routes along with their source: the host's own default route must not be one of them.
#[test]
fn an_address_that_vanishes_leaves_the_host_reachable() {
    let way = Way::new();
    let defaults = way.defaults();
    let mut run = way.host.start_fed("vip apply --follow --src-route 192.0.2.10,2001:db8::10");
    run.feed(&both(true));
    eventually("it sends from both", 3 * SECOND, || way.halves() == 4);
    // Nobody repairs: what is left is the way that was there before.
    run.signal(Signal::SIGSTOP);
    way.host.sh("ip addr del 192.0.2.10/24 dev eth0; ip addr del 2001:db8::10/64 dev eth0");
    assert_eq!((way.seen(), way.defaults()), (OWN.map(str::to_owned), defaults.clone()));
    run.signal(Signal::SIGCONT);
    eventually("it is repaired", 3 * SECOND, || way.seen() == VIPS);
    assert_eq!((way.halves(), way.defaults()), (4, defaults.clone()));
    // One of the routes alone.
    way.host.sh("ip route del 128.0.0.0/1");
    eventually("it is back", 3 * SECOND, || way.halves() == 4);
    run.wait_for("a word", SECOND, |one| one["repaired"] == true && one["src_routes"].as_array().is_some());
    // Killed; the next run's first word.
    run.signal(Signal::SIGKILL);
    run.ends(3 * SECOND);
    assert_eq!(way.halves(), 4);
    way.host.run_with("vip apply", &both(true)).ended(0);
    assert_eq!(way.halves(), 0, "this run was not asked to send from it");
    way.host.run_with("vip apply --src-route 192.0.2.10,2001:db8::10", &both(true)).ended(0);
    assert_eq!(way.halves(), 4);
    way.host.run("vip del 192.0.2.10 2001:db8::10").ended(0);
    assert_eq!((way.halves(), way.seen(), way.defaults()), (0, OWN.map(str::to_owned), defaults));
}

#[test]
fn what_cannot_be_the_source_is_told() {
    let way = Way::new();
    let two = way.host.run("vip apply --src-route 192.0.2.10,192.0.2.11").ended(2);
    assert!(two.stderr.contains("one address of each family"), "{two:?}");
    // A VPN has both halves: it wins, and keeps them.
    way.host.sh("ip route add 0.0.0.0/1 via 192.0.2.253 && ip route add 128.0.0.0/1 via 192.0.2.253");
    let one = election(VIPS[0], true, "");
    let refused = way.host.run_with("vip apply --src-route 192.0.2.10", &one).ended(1);
    assert!(refused.stderr.contains("a route to 0.0.0.0/1 is there that is not ours"), "{refused:?}");
    assert_eq!(way.seen()[0], OWN[0]);
    way.host.sh("ip route del 0.0.0.0/1 via 192.0.2.253 && ip route del 128.0.0.0/1 via 192.0.2.253");
    assert_eq!(way.seen()[0], VIPS[0]);
    // Ways that the traffic is spread over, and a metric.
    way.host.sh(
        "ip route del default && ip route add default metric 50 nexthop via 192.0.2.253 dev eth0 weight 2 nexthop via 192.0.2.254 dev eth0",
    );
    let done = way.host.run_with("vip apply --src-route 192.0.2.10", &one).ended(0).one();
    assert_eq!(
        done["src_routes"][1],
        json!(
            "128.0.0.0/1 proto 70 metric 1024 src 192.0.2.10 nexthop via 192.0.2.253 dev eth0 weight 2 nexthop via 192.0.2.254 dev eth0 weight 1"
        )
    );
    assert_eq!(way.seen()[0], VIPS[0]);
    assert_eq!(way.host.run_with("vip apply --src-route 192.0.2.10", &one).ended(0).one()["changed"], false);
}
