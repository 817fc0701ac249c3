//! `hash-owner` against the running kernel: what its own selectors say of each packet.
//!
//! Every packet has a source of its own, so that a set of (source, mark) is a list of verdicts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use support::{Host, Lab, eventually};

const SEED: u32 = 0xdead_beef;
const TOTAL: u32 = 24;
const SERVER4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

/// One packet, or one datagram in fragments.
#[derive(Clone, Copy, Debug)]
struct Packet {
    src: IpAddr,
    proto: u8,
    sport: u16,
    dport: u16,
    fragments: bool,
}

impl Packet {
    /// As `hash-owner` reads it.
    fn flow(&self) -> String {
        let dst: IpAddr = if self.src.is_ipv4() { SERVER4.into() } else { SERVER6.into() };
        let end = |addr: IpAddr, port: u16| SocketAddr::new(addr, port).to_string();
        if has_ports(self.proto) {
            format!("{}>{}/{}", end(self.src, self.sport), end(dst, self.dport), self.proto)
        } else {
            format!("{}>{dst}/{}", self.src, self.proto)
        }
    }

    /// What follows the IP header.
    fn payload(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.proto {
            // Echo requests.
            1 => bytes.extend([8, 0, 0, 0, 0x12, 0x34, 0, 1]),
            58 => bytes.extend([128, 0, 0, 0, 0x12, 0x34, 0, 1]),
            _ if has_ports(self.proto) => {
                bytes.extend(self.sport.to_be_bytes());
                bytes.extend(self.dport.to_be_bytes());
                match self.proto {
                    // A SYN, 20 bytes of header.
                    6 => bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x10, 0, 0, 0, 0, 0]),
                    17 => {
                        bytes.extend([0, if self.fragments { 40 } else { 12 }, 0, 0]);
                        bytes.resize(if self.fragments { 40 } else { 12 }, b'x');
                    }
                    _ => bytes.extend([0; 24]),
                }
            }
            _ => bytes.extend([0; 16]),
        }
        if let Some(at) = match self.proto {
            1 | 58 => Some(2),
            6 => Some(16),
            17 => Some(6),
            _ => None,
        } {
            let sum = self.checksum(&bytes);
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }

    /// The Internet checksum (RFC 1071) with the pseudo-header of the family, but for ICMP.
    fn checksum(&self, bytes: &[u8]) -> u16 {
        let mut all = bytes.to_vec();
        all.resize(bytes.len().next_multiple_of(2), 0);
        match self.src {
            IpAddr::V4(_) if self.proto == 1 => {}
            IpAddr::V4(src) => all.extend([src.octets(), SERVER4.octets()].concat()),
            IpAddr::V6(src) => all.extend([src.octets(), SERVER6.octets()].concat()),
        }
        if self.proto != 1 {
            all.extend([0, self.proto]);
            all.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        }
        let mut sum: u32 = all.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    /// With the IP header, one datagram or two fragments of it.
    fn wire(&self) -> Vec<Vec<u8>> {
        let payload = self.payload();
        let pieces: Vec<(usize, &[u8], bool)> = if self.fragments {
            vec![(0, &payload[..24], true), (24, &payload[24..], false)]
        } else {
            vec![(0, payload.as_slice(), false)]
        };
        pieces
            .into_iter()
            .map(|(offset, piece, more)| match self.src {
                IpAddr::V4(src) => {
                    let place = u16::try_from(offset / 8).unwrap() | u16::from(more) << 13;
                    let mut bytes = vec![0x45, 0, 0, 0];
                    bytes.extend(self.sport.to_be_bytes());
                    bytes.extend(place.to_be_bytes());
                    // The kernel fills in the length and the checksum.
                    bytes.extend([64, self.proto, 0, 0]);
                    bytes.extend(src.octets());
                    bytes.extend(SERVER4.octets());
                    bytes.extend(piece);
                    bytes
                }
                IpAddr::V6(src) => {
                    let extra = if self.fragments { 8 } else { 0 };
                    let next = if self.fragments { 44 } else { self.proto };
                    let mut bytes = vec![0x60, 0, 0, 0];
                    bytes.extend(u16::try_from(piece.len() + extra).unwrap().to_be_bytes());
                    bytes.extend([next, 64]);
                    bytes.extend(src.octets());
                    bytes.extend(SERVER6.octets());
                    if self.fragments {
                        let place = u16::try_from(offset).unwrap() | u16::from(more);
                        bytes.extend([self.proto, 0]);
                        bytes.extend(place.to_be_bytes());
                        bytes.extend(u32::from(self.sport).to_be_bytes());
                    }
                    bytes.extend(piece);
                    bytes
                }
            })
            .collect()
    }
}

fn has_ports(proto: u8) -> bool {
    matches!(proto, 6 | 17 | 33 | 132 | 136)
}

/// Packets of one family, 600 of them from as many sources spread over all networks.
fn packets(v6: bool) -> Vec<Packet> {
    let protos: [u8; 12] = [6, 17, if v6 { 58 } else { 1 }, 6, 17, 17, 33, 132, 136, 47, 50, 6];
    (0..600u32)
        .map(|n| {
            let mixed = n.wrapping_mul(2_654_435_761);
            let src: IpAddr = if v6 {
                // Many networks and many hosts in one network; no multicast, loopback or mapped one.
                let high = if n % 2 == 0 { 0x2001_0db8 } else { 0x2400_0000 | mixed >> 8 };
                Ipv6Addr::from(u128::from(high) << 96 | u128::from(mixed) << 40 | u128::from(n + 1)).into()
            } else {
                // 1.0.0.0 to 126.255.255.255.
                Ipv4Addr::from((1 + n % 126) << 24 | mixed >> 8).into()
            };
            let proto = protos[n as usize % protos.len()];
            let sport = u16::try_from(1024 + (mixed >> 7) % 60_000).unwrap();
            let dport = [80, 443, 53, 2049][n as usize % 4];
            Packet { src, proto, sport, dport, fragments: proto == 17 && n % 12 == 5 }
        })
        .collect()
}

/// What the kernel is asked for, and what `hash-owner` is.
struct Question {
    set: &'static str,
    flags: String,
    /// Only these packets are asked about.
    about: fn(&Packet) -> bool,
}

fn send(host: &Host, packets: Vec<Packet>) {
    let sent = host.inside(move || {
        let v4 = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
        let v6 = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(255))).unwrap();
        for packet in packets {
            let (socket, to): (_, IpAddr) =
                if packet.src.is_ipv4() { (&v4, SERVER4.into()) } else { (&v6, SERVER6.into()) };
            for bytes in packet.wire() {
                socket.send_to(&bytes, &SockAddr::from(SocketAddr::new(to, 0))).unwrap();
            }
        }
    });
    sent.join().unwrap();
}

/// The verdicts in a set, by source.
fn verdicts(host: &Host, set: &str) -> BTreeMap<IpAddr, u64> {
    let list: Value = serde_json::from_str(&host.sh(&format!("nft -j list set inet witness {set}"))).unwrap();
    let set = list["nftables"].as_array().unwrap().iter().find_map(|entry| entry.get("set")).unwrap();
    let elements = set["elem"].as_array().cloned().unwrap_or_default();
    let mut verdicts = BTreeMap::new();
    for element in &elements {
        let pair = element["concat"].as_array().unwrap();
        let src: IpAddr = pair[0].as_str().unwrap().parse().unwrap();
        let mark = pair[1].as_u64().unwrap();
        assert_eq!(verdicts.insert(src, mark), None, "two verdicts for {src}");
    }
    verdicts
}

/// Lets the kernel see all packets of a family, and compares it with `hash-owner` one by one.
fn compare(v6: bool) {
    let lab = Lab::new();
    let client = lab.host("client", &["10.77.0.1/24", "fd77::1/64"]);
    let server = lab.host("server", &["10.77.0.2/24", "fd77::2/64"]);
    let (ip, addr, tables) = if v6 { ("ip6", "ipv6_addr", "ip6tables") } else { ("ip", "ipv4_addr", "iptables") };
    let mut questions = vec![
        Question { set: "by_source", flags: "--mode sourceip".to_owned(), about: |_| true },
        Question { set: "by_sport", flags: "--mode sourceip-sourceport".to_owned(), about: |_| true },
        Question { set: "by_dport", flags: "--mode sourceip-sourceport-destport".to_owned(), about: |_| true },
        Question {
            set: "by_all",
            flags: "--fields saddr.daddr.sport.dport".to_owned(),
            about: |packet| has_ports(packet.proto),
        },
        Question { set: "by_proto", flags: "--fields proto.saddr".to_owned(), about: |_| true },
    ];
    let ports = "meta l4proto { tcp, udp, sctp, dccp, udplite }";
    let parameters = format!("mod {TOTAL} seed {SEED:#x} offset 1");
    let protocol = if v6 { "meta l4proto" } else { "ip protocol" };
    // Neighbour discovery would be among the verdicts.
    let ours = if v6 { "ip6 saddr != { fd77::/64, fe80::/10, :: }" } else { "ip saddr != 10.77.0.0/24" };
    let mut rules = String::new();
    let mut sets = String::new();
    for set in ["by_source", "by_sport", "by_dport", "by_all", "by_proto", "by_cluster", "by_hmark"] {
        let _ = writeln!(sets, "set {set} {{\n type {addr} . mark\n size 65535\n flags dynamic\n}}");
    }
    for (set, keys) in [
        ("by_source", vec![("", format!("{ip} saddr"))]),
        ("by_sport", vec![("", format!("{ip} saddr")), (ports, format!("{ip} saddr . th sport"))]),
        ("by_dport", vec![("", format!("{ip} saddr")), (ports, format!("{ip} saddr . th sport . th dport"))]),
        ("by_all", vec![(ports, format!("{ip} saddr . {ip} daddr . th sport . th dport"))]),
        ("by_proto", vec![("", format!("{protocol} . {ip} saddr"))]),
    ] {
        let _ = writeln!(rules, "meta mark set 0");
        for (only, key) in keys {
            let _ = writeln!(rules, "{only} meta mark set jhash {key} {parameters}");
        }
        let _ = writeln!(rules, "meta mark != 0 add @{set} {{ {ip} saddr . meta mark }}");
    }
    let chain = |name: &str, priority: i32, rules: &str| {
        format!(
            "chain {name} {{\ntype filter hook prerouting priority {priority}\n{ours} meta nfproto {family} jump {name}-own\n}}\nchain {name}-own {{\n{rules}}}\n",
            family = if v6 { "ipv6" } else { "ipv4" }
        )
    };
    let record = |set: &str| format!("meta mark != 0 add @{set} {{ {ip} saddr . meta mark }}\nmeta mark set 0\n");
    // `ct state` switches on conntrack, and so the reassembly of fragments.
    let document = format!(
        "table inet witness {{\n{sets}{}{}{}}}\n",
        chain("hmarked", -290, &record("by_hmark")),
        chain("clustered", -145, &record("by_cluster")),
        chain("hashed", -140, &format!("ct state new\n{rules}"))
    );
    // The chains that are jumped to come first.
    let file = server.folder.join("witness.nft");
    std::fs::write(&file, document).unwrap();
    server.sh(&format!("nft -f {}", file.display()));
    for node in 1..=TOTAL {
        server.sh(&format!(
            "{tables} -t mangle -A PREROUTING -m cluster --cluster-total-nodes {TOTAL} --cluster-local-node {node} \
             --cluster-hash-seed {SEED} -j MARK --set-mark {node}"
        ));
    }
    questions.push(Question {
        set: "by_cluster",
        flags: "--algo xt-cluster".to_owned(),
        // Conntrack follows these; what it calls invalid no rule of this kind matches.
        about: |packet| matches!(packet.proto, 1 | 6 | 17 | 58),
    });
    server.sh(&format!(
        "{tables} -t raw -A PREROUTING -j HMARK --hmark-tuple src,dst,sport,dport,proto --hmark-mod {TOTAL} \
         --hmark-offset 1 --hmark-rnd {SEED}"
    ));
    questions.push(Question {
        set: "by_hmark",
        flags: "--algo hmark --fields src.dst.sport.dport.proto".to_owned(),
        about: |packet| matches!(packet.proto, 1 | 6 | 17 | 33 | 132 | 136 | 58 | 47),
    });

    let all = packets(v6);
    client.sh(&format!("ping -c1 -W2 {}", if v6 { SERVER6.to_string() } else { SERVER4.to_string() }));
    send(&client, all.clone());
    eventually("all packets seen", Duration::from_secs(5), || verdicts(&server, "by_source").len() == all.len());
    for Question { set, flags, about } in questions {
        let asked: Vec<&Packet> = all.iter().filter(|packet| about(packet)).collect();
        let lines: Vec<String> = asked.iter().map(|packet| packet.flow()).collect();
        let run = client.run_with(&format!("hash-owner --total {TOTAL} --seed {SEED} {flags}"), &lines.join("\n"));
        assert_eq!(run.code, 0, "{run:?}");
        let answers = run.records();
        let kernel = verdicts(&server, set);
        assert_eq!(answers.len(), asked.len());
        for (packet, answer) in asked.iter().zip(&answers) {
            assert_eq!(
                kernel.get(&packet.src).copied(),
                answer["bucket"].as_u64(),
                "{set} {flags}: {packet:?} {answer}"
            );
        }
    }
}

#[test]
fn the_kernel_agrees_on_every_ipv4_packet() {
    compare(false);
}

#[test]
fn the_kernel_agrees_on_every_ipv6_packet() {
    compare(true);
}
