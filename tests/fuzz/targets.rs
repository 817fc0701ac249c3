//! One function for each parser of bytes that come from elsewhere.
//!
//! Each takes any bytes at all. It must not panic, and where a parser has an inverse or a twin it
//! must agree with it. cargo-fuzz can call the same functions: `fuzz_target!(|bytes| one(bytes))`.

use crate::record::line::Line;
use crate::record::state::{self, Origin};
use crate::record::{bucket, fence, gw, hash_owner, health, heartbeat, place, quorum, store};
use crate::types::bucket::Buckets;
use crate::types::gateway::Marks;
use crate::types::net::{Endpoint, Mac, Prefix};
use crate::types::service::{Expr, Fact, Need};
use crate::types::target::Target;
use crate::types::time::{Span, Tick, WallTime};
use crate::wire::heartbeat::{ClusterHash, Frame, PeerHash};
use crate::wire::keys::Keys;
use crate::wire::{
    arp, clusterip, ctnetlink, dns, env_conf, etcd, ethernet, flow, icmp, iptables, ndp, networkd, nft, nft_conf, proc,
    tcp, vrrp,
};
use std::fmt::{Debug, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

pub(crate) type One = fn(&[u8]);

/// Every parser by its name.
pub(crate) const TARGETS: [(&str, One); 24] = [
    ("heartbeat_frame", heartbeat_frame),
    ("heartbeat_keys", heartbeat_keys),
    ("heartbeat_payload", heartbeat_payload),
    ("frame_arp", frame_arp),
    ("frame_ndp", frame_ndp),
    ("dns_answer", dns_answer),
    ("dns_signed", dns_signed),
    ("dns_key", dns_key),
    ("flow_line", flow_line),
    ("icmp_reply", icmp_reply),
    ("proc_files", proc_files),
    ("ss_peer", ss_peer),
    ("record_line", record_line),
    ("state_file", state_file),
    ("nft_list", nft_list),
    ("clusterip_file", clusterip_file),
    ("vrrp_frame", vrrp_frame),
    ("gateways", gateways),
    ("services", services),
    ("foreign_settings", foreign_settings),
    ("conntrack", conntrack),
    ("etcd_answer", etcd_answer),
    ("store_file", store_file),
    ("words", words),
];

pub(crate) const KEY: &str = "7 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub(crate) fn keys() -> Keys {
    Keys::parse(KEY).unwrap()
}

/// A frame with an advert: what is believed is sent again in the same bytes, up to what the sum is of.
fn vrrp_frame(bytes: &[u8]) {
    let Some(heard) = ethernet::Frame::decode(bytes).and_then(|frame| vrrp::decode(&frame, Some(&keys()))) else {
        return;
    };
    assert!(heard.advert.addresses.len() <= vrrp::MAX_ADDRESSES);
    if heard.is_believed() && heard.auth.is_none() && heard.dst == crate::types::vrrp::group(heard.src) {
        let sum =
            if heard.checksum == vrrp::Found::Is(vrrp::Sum::Pseudo) { vrrp::Sum::Pseudo } else { vrrp::Sum::Rfc9568 };
        let again = heard.advert.frame(heard.source_mac, heard.src, sum, None);
        let again = ethernet::Frame::decode(&again).and_then(|frame| vrrp::decode(&frame, None)).unwrap();
        assert_eq!(again.advert, heard.advert);
    }
}

/// A datagram on the heartbeat port. What is believed is exactly what its sender would have signed.
fn heartbeat_frame(bytes: &[u8]) {
    let cluster = ClusterHash::new("failover");
    if let Ok(frame) = Frame::decode(bytes, cluster, &keys(), false) {
        let mut again = Vec::new();
        frame.encode(cluster, Some(&keys()), &mut again).unwrap();
        assert_eq!(again, bytes);
    }
    if let Ok(frame) = Frame::decode(bytes, cluster, &keys(), true) {
        assert!((1..=63).contains(&frame.name.len()));
        let _ = frame.echoes.of(PeerHash::new("n1"));
        heartbeat_payload(frame.payload.as_bytes());
    }
}

/// A key file. What it is refused for tells nothing of a key.
fn heartbeat_keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(why) = Keys::parse(text) {
        let told = |word: &str| word.len() >= 16 && why.contains(word);
        assert!(!text.split_whitespace().any(told), "{why}");
    }
}

/// What a beat carries, also when its sender is one of us and is wrong.
fn heartbeat_payload(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = heartbeat::config_of(text);
    // What is compared and what is printed are of the same payloads.
    let content = heartbeat::content(text);
    let records = heartbeat::arrived(text, Tick::default());
    assert_eq!(content.is_ok(), records.is_ok());
    for record in records.unwrap_or_default() {
        Line::parse(record.get()).unwrap();
    }
}

/// A frame on an interface, read as ARP.
fn frame_arp(bytes: &[u8]) {
    let Some(frame) = ethernet::Frame::decode(bytes) else { return };
    let Some(arp) = arp::Arp::decode(&frame) else { return };
    let _ = arp.claim(&frame, Mac([2, 0, 0, 0, 0, 1]), arp.sender_ip);
    let _ = arp.claim(&frame, Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::UNSPECIFIED);
}

/// A frame on an interface, read as neighbour discovery.
fn frame_ndp(bytes: &[u8]) {
    let Some(frame) = ethernet::Frame::decode(bytes) else { return };
    let Some(ndp) = ndp::Ndp::decode(&frame) else { return };
    let _ = ndp.claim(&frame, Mac([2, 0, 0, 0, 0, 1]), ndp.target);
    let _ = ndp.claim(&frame, Mac([2, 0, 0, 0, 0, 1]), Ipv6Addr::LOCALHOST);
}

/// A line of flows. The fast reader of many addresses and the reader of one line agree.
fn flow_line(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = flow::parse(line).map_err(|why| why.to_string());
    }
    let mut many = flow::Ipv4Lines::new();
    let mut at = 0;
    let (sources, next) = many.read(bytes, at);
    let sources = sources.to_vec();
    assert!(next <= bytes.len() + 1);
    for (source, length) in sources.iter().zip(many.lengths()) {
        match flow::parse(&bytes[at..at + length]) {
            Ok(flow::Line::Flow(flow)) => assert_eq!(flow.src, IpAddr::from(*source)),
            other => panic!("{other:?}"),
        }
        at += length + 1;
    }
}

/// A file of gateways, in each of its forms, and the configuration of another program.
fn gateways(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for gateway in gw::read_file(text).unwrap_or_default() {
        assert!(gateway.weight.0.is_finite() && gateway.weight.0 >= 0.0);
    }
    for gateway in env_conf::read(text).map(|config| config.gateways).unwrap_or_default() {
        assert!((0.0..=1.0).contains(&gateway.weight.0), "{gateway:?}");
    }
}

/// A file of services, or the words of a flag; an expression prints as it was written.
fn services(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for service in place::read_file(text).unwrap_or_default() {
        assert!(!service.name.is_empty() && service.need.is_none_or(|need| need.0.iter().all(|need| *need <= 1 << 53)));
        for expr in &service.requires {
            let fact = Fact::read(text);
            assert!(!(expr.holds(None) || expr.holds(Some(&fact)) && expr.fault(Some(&fact)).is_empty()));
        }
    }
    let _ = place::read_words(text);
    let _ = text.parse::<Need>();
    same::<Expr>(text);
}

/// What others have set on this host, as gw doctor and gw apply read it.
fn foreign_settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = networkd::removes_foreign([text]);
    let _ = nft_conf::flushes_all(text);
    let _ = nft::marks::overlap(text, Marks::USUAL);
    let _ = iptables::overlap(text, Marks::USUAL);
    let _ = nft::gateway::told(text);
}

/// What the kernel says of connections: each that is read can be asked to go.
fn conntrack(bytes: &[u8]) {
    for said in ctnetlink::read(bytes) {
        if let ctnetlink::Said::Entry(entry) = said {
            assert!(ctnetlink::delete(&entry, 1, true).len() > 16);
        }
    }
}

/// What comes back on the port that a question left by. What is believed answers that question.
fn dns_answer(bytes: &[u8]) {
    let question = dns::Question::new("www.example.org", "A", 0x1234).unwrap();
    if let Some(answer) = question.answer(bytes) {
        assert_eq!(bytes[..2], [0x12, 0x34]);
        assert!(answer.addresses.len() >= answer.answers.len());
        // What it rests on: no TTL above what RFC 2181 §8 lets be, and the lowest is the answer's.
        assert!(answer.links.iter().all(|(_, ttl)| *ttl <= i32::MAX.unsigned_abs()));
        assert!(answer.ttl_s.is_none() || answer.ttl_s == answer.links.iter().map(|(_, ttl)| *ttl).min());
        // What is read is told.
        assert!(dns::message::json(bytes).is_some());
    }
    let _ = dns::message::json(bytes);
    let _ = std::str::from_utf8(bytes).map(|text| {
        let _ = dns::first_nameserver(text);
        if let Ok(name) = dns::check_name(text) {
            assert_eq!(dns::check_name(&name).as_ref(), Ok(&name), "'{text}'");
        }
        let _ = dns::Question::new(text, "TXT", 1).map(|question| question.encode());
    });
}

/// An answer to what was signed, from the TCP stream on. What is believed says what BIND has signed.
fn dns_signed(bytes: &[u8]) {
    let key = dns::update::Key::parse(DNS_KEY).unwrap();
    let question = dns::Question::new("app.gslb.test", "A", 0x1234).unwrap().without_recursion();
    let signed = question.signed(&key, 1_796_068_238).unwrap();
    for bytes in dns::tcp::messages(bytes).chain([bytes]) {
        if let Some(said) = signed.read(bytes, 1_796_068_238).filter(|said| said.fault.is_none()) {
            assert_eq!(said.rcode, "NOERROR");
            assert!(question.answer(bytes).is_none_or(|answer| answer.answers == ["192.0.2.1"]));
        }
    }
}

pub(crate) const DNS_KEY: &str =
    "key \"ddns\" {\n\talgorithm hmac-sha256;\n\tsecret \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\";\n};\n";

/// A key clause. What it is refused for tells nothing of a secret.
fn dns_key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match dns::update::Key::parse(text) {
        Err(why) => assert!(!why.contains("AAECAwQF"), "{why}"),
        Ok(key) => assert!(!format!("{key:?}").contains("AAECAwQF") || key.name().contains("aaecawqf")),
    }
}

/// A packet on a socket for ICMP.
fn icmp_reply(bytes: &[u8]) {
    for (v6, with_ip) in [(false, false), (false, true), (true, false)] {
        if icmp::reply(bytes, v6, with_ip, b"0123456789abcdef").is_some() {
            assert!(bytes.ends_with(b"0123456789abcdef"));
        }
    }
}

/// Files of /proc: a process chooses its own name and command line.
fn proc_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = proc::loadavg(&text);
    let _ = proc::cpus(&text);
    let _ = proc::meminfo(&text, "MemAvailable");
    if let Some((name, _)) = proc::stat(&text) {
        let _ = proc::is_called("nginx", name, bytes, Some(bytes));
    }
}

/// A line of `ss -Hnt`.
fn ss_peer(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(Some((local, peer))) = tcp::peer_from_ss(text) {
        let _ = tcp::tickle(local, peer);
    }
}

/// A record on standard input, and everything that is read out of one.
fn record_line(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = hash_owner::owners(text);
    let Ok(line) = Line::parse(text) else { return };
    // What is passed on reads as the same record.
    let mut again = b"{\"first\":1".to_vec();
    line.copy_rest(&["first"], &mut again);
    again.push(b'}');
    let again = String::from_utf8(again).unwrap();
    let again = Line::parse(&again).unwrap();
    let fields = |line: &Line<'_>| -> Vec<(String, String)> {
        let own = line.fields().filter(|(key, _)| *key != "first");
        own.map(|(key, value)| (key.to_owned(), value.get().to_owned())).collect()
    };
    assert_eq!(fields(&line), fields(&again));
    let _ = hash_owner::flow(&line);
    let _ = bucket::read_shown(&line);
    let _ = bucket::read_words(&line, None);
    let _ = bucket::read_words(&line, Some("192.0.2.100"));
    let _ = bucket::read_plan(&line, "192.0.2.100", "n1").map(drop);
    let _ = health::verdict(&line, "n1");
    let _ = crate::record::dns::read_answer(&line);
    let _ = quorum::read(&line, "n1");
    if let Ok(heard) = place::read(&line, &["zone".to_owned(), "labels.status".to_owned()]) {
        let told = heard.words.iter().filter_map(|(_, told)| told.as_ref());
        assert!(told.filter_map(|told| told.total).flatten().flatten().all(|amount| amount <= 1 << 53));
    }
    let _ = fence::read_asks(&line, "n1");
    if let Ok(proofs @ [_, ..]) = fence::read_proofs(&line).as_deref() {
        // What is said of a proof reads as the same proof.
        let again = fence::with_proofs(text, proofs).unwrap();
        assert_eq!(fence::read_proofs(&Line::parse(&again).unwrap()).unwrap(), proofs);
    }
    let _ = heartbeat::Traveller::read(text, Tick::default()).map(|record| record.line(Tick::default()));
}

/// A state file after a crash, or by another hand.
fn state_file(bytes: &[u8]) {
    let origin = |command| Origin { command, host: "n1".to_owned(), boot_id: "b".to_owned(), at: Tick::default() };
    let _ = state::read::<heartbeat::Session>(bytes, &origin("heartbeat-session"));
    let _ = state::read_lasting::<heartbeat::Remembered>(bytes, &origin("heartbeat-recv"));
    let _ = state::read::<quorum::Remembered>(bytes, &origin("quorum"));
    if let Ok(state::Read::Current(proofs)) = state::read::<fence::Proofs>(bytes, &origin("fence")) {
        // A proof of life 0 is over with the first beat, whatever a file says.
        assert!(
            proofs.nodes.values().all(|kept| kept.proven.incarnation.is_some() || !kept.proof().holds(Some(1), None))
        );
    }
    if let Ok(state::Read::Current(kept)) = state::read::<bucket::Kept>(bytes, &origin("bucket")) {
        let _ = kept.read();
    }
    if let Ok(state::Read::Current(memory)) = state::read::<health::Damping>(bytes, &origin("health-damp")) {
        let _ = memory.read();
    }
    if let Ok(state::Read::Current(known)) = state::read::<health::Known>(bytes, &origin("health-score")) {
        let _ = known.read();
    }
    if let Ok(state::Read::Current(memory)) = state::read::<bucket::Remembered>(bytes, &origin("bucket-plan")) {
        let _ = memory.read();
    }
    if let Ok(state::Read::Current(memory)) = state::read::<place::Remembered>(bytes, &origin("place")) {
        let _ = memory.read();
    }
}

/// What etcd's gateway answers, or somebody in its place.
fn etcd_answer(bytes: &[u8]) {
    let _ = etcd::read_outcome(bytes);
    let _ = etcd::read_granted(bytes);
    let _ = etcd::read_kept(bytes);
    let _ = etcd::read_revoked(bytes);
    let _ = etcd::read_members(bytes);
    let _ = etcd::read_news(bytes);
    if let Ok(token) = etcd::read_token(bytes) {
        // It goes into a header.
        assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    for status in [200, 400, 404, 503] {
        let _ = etcd::read_refusal(status, bytes);
    }
}

/// A store's file after a crash or by another hand, and records on their way through a store.
fn store_file(bytes: &[u8]) {
    if let Ok(map) = store::read_map(bytes, "b") {
        // What was read is written as it reads.
        assert_eq!(store::read_map(&store::write_map(&map, "b"), "b").unwrap(), map);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = text.parse::<store::Template>();
    let now = Tick(std::time::Duration::from_secs(1));
    let Ok(line) = Line::parse(text) else { return };
    if let Ok(stored) = store::to_store(&line, "b", now) {
        Line::parse(&stored).unwrap();
        Line::parse(&store::from_store(&stored, now).unwrap()).unwrap();
    }
}

/// What `nft -j list` prints.
fn nft_list(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = nft::list::table_names(text, "ip");
    let _ = nft::cluster::left(text);
    let Ok(table) = nft::list::parse(text) else { return };
    for vip in ["192.0.2.100", "2001:db8::100"] {
        let vip: IpAddr = vip.parse().unwrap();
        let Ok(listed) = nft::cluster::read(vip, &table) else { continue };
        let Ok(wanted) = nft::cluster::tables(&listed.cluster, &listed.held) else { continue };
        for wanted in wanted {
            let _ = nft::cluster::differences(&wanted, &table);
        }
    }
}

/// `/proc/net/ipt_CLUSTERIP/ADDRESS`.
fn clusterip_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(buckets) = clusterip::parse(text) {
        assert!(buckets.iter().all(|bucket| (1..=32).contains(&bucket)));
    }
}

/// Operands and values of flags: what parses, prints as something that parses as the same.
fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    same::<Mac>(text);
    same::<Prefix>(text);
    same::<Endpoint>(text);
    same::<Buckets>(text);
    same::<Target>(text);
    same::<WallTime>(text);
    let _ = text.parse::<Span>();
    let _ = crate::types::node::check_name(text);
}

fn same<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        assert_eq!(printed.parse::<T>().ok(), Some(value), "'{text}' printed '{printed}'");
    }
}
