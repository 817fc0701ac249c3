//! Real input to begin from: captures, vectors, and records as our commands print them.

use crate::targets::{DNS_KEY, KEY, keys};
use crate::types::net::Mac;
use crate::types::vrrp::Version;
use crate::wire::heartbeat::{ClusterHash, Echoed, Echoes, Frame, PeerHash};
use crate::wire::{arp, dns, icmp, ndp, vrrp};
use std::fs;
use std::path::PathBuf;

const SHOW: &str = r#"{"kind":"bucket.show","v":1,"time":"2026-11-30T03:00:59.284429Z","host":"n1","subject":"192.0.2.100","backend":"nft","dev":"eth0","mac":"01:02:03:04:05:06","unicast":false,"algo":"nft","mode":"sourceip","total":8,"seed":0,"params":"--total 8","owned":"1-4","opening":"","reset":"","draining":"","epoch":3,"config":"0123456789abcdef","accepted_packets":0,"accepted_bytes":0,"dropped_packets":0,"dropped_bytes":0,"drained_packets":0,"refused_out_packets":0}"#;
const STATE: &str = r#"{"kind":"bucket.state","v":1,"time":"2026-11-30T03:00:59.284429Z","host":"n1","subject":"192.0.2.100","own":"1-4","draining":"8","epoch":3,"config":"0123456789abcdef","weight":2,"valid_for_ms":2000.5}"#;
const BEAT: &str = r#"{"kind":"heartbeat.recv","v":1,"time":"2026-11-30T03:00:59.284429Z","host":"n1","subject":"n2","status":"up","valid_for_ms":3000,"received_ms":123456.789,"event":"up","cluster":"failover","incarnation":1796000000000,"sequence":7,"hears_us":true,"hears_links":[0,1],"links":[{"link":0,"local":"192.0.2.1","remote":"192.0.2.2:6940","status":"up","received":7,"lost":0,"jitter_ms":0.1,"last_gap_ms":50}],"lag_ms":0,"view":{"n2":"up","n3":"down"},"payload":[{"received_ms":123456.789,"kind":"bucket.state","v":1,"host":"n2","subject":"192.0.2.100","own":"5-8","draining":"","epoch":3,"config":"0123456789abcdef"}]}"#;
const PLAN: &str = r#"{"kind":"bucket.plan","v":1,"time":"2026-11-30T03:00:59.284429Z","host":"n1","subject":"192.0.2.100","total":8,"epoch":3,"config":"0123456789abcdef","owners":{"n1":"1-4","n2":"5-8"},"mine":"1-4","moves":[{"buckets":"5","from":"n2","to":"n1","how":"take-over","why":"n2 is down"}],"nodes":{"n1":{"status":"up","weight":1,"own":"1-4","draining":""}},"unowned":"","held":"","needs_fence":[]}"#;
const FLOW: &str = r#"{"kind":"conntrack","src":"192.0.2.7","sport":4660,"dst":"192.0.2.100","dport":80,"proto":"tcp","other":[1e2,0.10,18446744073709551617]}"#;
const VERDICT: &str = r#"{"kind":"health.tcp","v":1,"time":"2026-11-30T10:01:05.520034Z","host":"n1","subject":"192.0.2.2:80","status":"down","renewal":true,"valid_for_ms":12000.0,"received_ms":30739565.464,"boot_id":"89643072-781f","detect_ms":{"min":12000.0,"max":17000.0},"failure":"refused","attempts":1}"#;
const ANSWER: &str = r#"{"kind":"dns.answer","v":1,"time":"2026-11-30T10:01:05.520034Z","host":"n1","subject":"www.example.org","valid_for_ms":3000.0,"received_ms":30739565.464,"qtype":"A","view":"emea","ttl_s":5,"policy":"round-robin","empty":false,"answers":["192.0.2.1","198.51.100.1"],"members":[]}"#;
const FENCE: &str = r#"{"kind":"node","subject":"n2","status":"down","weight":3,"fence":{"node":"n2","incarnation":7,"time":"2026-11-30T03:00:59Z","agent":"ipmi"}}"#;

const NODE: &str = r#"{"subject":"n2","status":"up","weight":3,"total":{"cpu":8.5,"memory_bytes":1073741824,"bandwidth_bps":1e9},"used":{"cpu":0.25},"services":2,"labels":{"zone":"a","gen":2,"ssd":true}}"#;
const PLACE: &str = r#"{"kind":"place","v":1,"time":"2026-11-30T22:53:47.042283Z","host":"n1","subject":"lun0","received_ms":77101028.874,"boot_id":"89643072-781f","node":"n2","policy":"weighted","moved_from":"n3","needs_fence":["n3"],"random_seed":5,"why":"n3 is down","candidates":[],"fence":{"node":"n3","agent":"ipmi"}}"#;

fn tree(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files of a folder whose names end so.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(tree(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn lines(files: &[Vec<u8>]) -> Vec<Vec<u8>> {
    files.iter().flat_map(|file| file.split(|byte| *byte == b'\n').map(<[u8]>::to_vec)).collect()
}

/// The frames of a capture (libpcap, little endian: 24 bytes, then 16 before each frame).
fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &capture[24..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        frames.push(after[..length].to_vec());
        rest = &after[length..];
    }
    frames
}

fn beat(payload: &str, signed: bool) -> Vec<u8> {
    let mut echoes = Vec::new();
    let heard =
        [(PeerHash::new("n1"), Echoed { nonce: 5, links: 3 }), (PeerHash::new("n3"), Echoed { nonce: 6, links: 1 })];
    let frame = Frame {
        goodbye: false,
        extra: true,
        link: 1,
        incarnation: 1_796_000_000_000,
        sequence: 7,
        sent_us: 9,
        nonce: 11,
        name: "n2",
        payload,
        echoes: Echoes::write(&heard, &mut echoes),
    };
    let mut bytes = Vec::new();
    frame.encode(ClusterHash::new("failover"), signed.then(keys).as_ref(), &mut bytes).unwrap();
    bytes
}

/// A state file as a crash would leave it whole.
fn state(command: &str, body: &str) -> Vec<u8> {
    format!(r#"{{"kind":"state.{command}","v":1,"host":"n1","boot_id":"b","received_ms":1.5,"state":{body}}}"#)
        .into_bytes()
}

/// A connection as the kernel lists it: the tuple of its opening, its mark, its number.
fn conntrack_message() -> Vec<u8> {
    let nested = |kind: u16, parts: &[Vec<u8>]| attribute(kind | 0x8000, &parts.concat());
    let addresses = nested(1, &[attribute(1, &[192, 0, 2, 201]), attribute(2, &[203, 0, 113, 3])]);
    let ports = nested(2, &[attribute(1, &[17]), attribute(2, &[0x9c, 0x40]), attribute(3, &[0x1e, 0x61])]);
    let tuple = nested(1, &[addresses, ports]);
    let body = [vec![2, 0, 0, 0], tuple, attribute(8, &[0, 1, 0, 0]), attribute(12, &[0, 0, 0, 7])].concat();
    let length = u32::try_from(16 + body.len()).unwrap();
    let header = [length.to_ne_bytes(), [0, 1, 2, 0], [1, 0, 0, 0], [0; 4]].concat();
    [header, body].concat()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// What the target of this name begins from.
pub(crate) fn of(name: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let (mac, v4, v6) = (Mac([2, 0, 0, 0, 0, 1]), "192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    match name {
        "heartbeat_frame" => vec![beat("", true), beat(STATE, true), beat("", false), beat(STATE, false)],
        "heartbeat_keys" => {
            texts(&[KEY, &format!("# all\n{KEY} # old\n\n9 {}\n", "ab".repeat(40)), &"0".repeat(64), "300 aa", "1 2 3"])
        }
        "heartbeat_payload" => texts(&[STATE, BEAT, &format!("{STATE}\n{STATE}\n"), "{}", ""]),
        "frame_arp" => {
            let mut seeds: Vec<Vec<u8>> =
                files("tests/data/pcap", ".pcap").iter().flat_map(|file| frames(file)).collect();
            seeds.push(arp::probe(mac, v4));
            seeds
        }
        "vrrp_frame" => {
            let advert = |version, addresses| vrrp::Advert {
                version,
                vrid: 51,
                priority: 100,
                interval: std::time::Duration::from_secs(1),
                addresses,
            };
            let (src4, src6) = (std::net::IpAddr::from([192, 0, 2, 1]), std::net::IpAddr::from(v6));
            let vips = |count: u8| (1..=count).map(|last| std::net::IpAddr::from([192, 0, 2, last])).collect();
            vec![
                advert(Version::V2, vips(1)).frame(mac, src4, vrrp::Sum::Rfc9568, None),
                advert(Version::V3, vips(3)).frame(mac, src4, vrrp::Sum::Pseudo, None),
                advert(Version::V3, vips(1)).frame(mac, src4, vrrp::Sum::Rfc9568, Some((&keys(), 7))),
                advert(Version::V3, vec![src6]).frame(mac, src6, vrrp::Sum::Rfc9568, None),
            ]
        }
        "frame_ndp" => vec![
            ndp::advertisement(mac, mac, v6, true, None),
            ndp::advertisement(mac, mac, v6, false, Some((Mac([2, 0, 0, 0, 0, 2]), v6))),
            ndp::probe(mac, v6),
        ],
        "dns_answer" => {
            // Two answers behind an alias, as RFC 1035 §4 lays them out.
            let mut answer = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 3, 0, 0, 0, 0];
            answer.extend(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
            answer.extend(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01a\xc0\x10");
            for last in [20, 10] {
                answer.extend(b"\xc0\x2d\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02");
                answer.push(last);
            }
            let mut seeds = vec![answer];
            seeds.extend(texts(&["search a\nnameserver 192.0.2.53\n", "www.example.org"]));
            seeds
        }
        "dns_signed" => {
            let text = include_str!("../data/dns/bind-9.18.txt");
            let answers = text.lines().filter(|line| !line.starts_with('#'));
            let octets = |hex: &str| {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            };
            let mut seeds: Vec<Vec<u8>> = answers.map(|line| octets(line.rsplit(' ').next().unwrap())).collect();
            let mut stream = Vec::new();
            dns::tcp::push(&seeds[0], &mut stream).unwrap();
            seeds.push(stream);
            seeds
        }
        "dns_key" => texts(&[DNS_KEY, "# a\nkey b { secret \"AAECAwQF\"; algorithm hmac-md5; } ;"]),
        "flow_line" => {
            let mut seeds = lines(&files("tests/data/flow", ".txt"));
            seeds.extend(lines(&files("tests/data/flow", ".flows")));
            seeds.push(b"192.0.2.1\n10.0.0.255\n1.2.3.4\n255.255.255.255\n0.0.0.0\n".repeat(30));
            seeds.extend(texts(&[
                "2001:db8::7",
                "[2001:db8::7]:4660>[2001:db8::1]:80/tcp",
                "192.0.2.7:80>192.0.2.1:1/17",
            ]));
            seeds
        }
        "icmp_reply" => {
            let nonce = b"0123456789abcdef";
            let mut reply = icmp::echo(v4.into(), 1, 7, nonce);
            reply[0] = 0;
            let mut reply6 = icmp::echo(v6.into(), 1, 7, nonce);
            reply6[0] = 129;
            vec![reply.clone(), reply6, [vec![0x45; 20], reply].concat()]
        }
        "proc_files" => texts(&[
            "0.20 1.50 0.05 1/123 4567\n",
            "cpu  1 2\ncpu0 1\ncpu1 1\nintr 5\n",
            "MemTotal:  100 kB\nMemAvailable:   7 kB\n",
            "42 (nginx) S 1 42 42 0 -1",
            "nginx: master process /usr/sbin/nginx\0",
        ]),
        "ss_peer" => lines(&files("tests/data/flow", ".txt")),
        "record_line" => {
            let mut seeds = texts(&[SHOW, STATE, BEAT, PLAN, FLOW, FENCE, NODE, PLACE, "n1 1-4\nn2 5-8\n# all\n"]);
            seeds.extend(lines(&files("tests/data/vectors/hash", ".jsonl")).into_iter().take(50));
            seeds.extend(texts(&[VERDICT, ANSWER]));
            seeds.push(b"[".repeat(5000));
            seeds.push([br#"{"a":"#.repeat(1000), b"1".to_vec(), b"}".repeat(1000)].concat());
            seeds
        }
        "state_file" => vec![
            state("heartbeat-session", r#"{"nonce":"0011223344556677","heard":{"n2":{"nonce":"01","links":3}}}"#),
            state("heartbeat-recv", r#"{"nodes":{"n2":{"incarnation":7,"sequence":9}}}"#),
            state(
                "bucket",
                r#"{"vip":"192.0.2.100","dev":"eth0","mac":"01:02:03:04:05:06","made_from":"02:00:00:00:00:01","total":8,"seed":0,"mode":"sourceip","proto":null,"port":null,"rest":"drop","epoch":3,"config":null,"owned":"1-4","opening":"","reset":"","draining":""}"#,
            ),
            state(
                "health-damp",
                r#"{"subjects":{"a":{"raw":"up","status":"down","verdict":"up","good":1,"bad":0,"untold":0,"penalty":2500.5,"at_ms":12.5,"flapping":true,"fell_ms":null,"changes":3}}}"#,
            ),
            state(
                "health-score",
                r#"{"services":{"a":{"status":"up","until_ms":12.5},"b":{"status":"down","until_ms":null}}}"#,
            ),
            state(
                "place",
                r#"{"services":{"lun0":{"node":"n2","at_ms":12.5,"unix_us":1796000000000,"unproven":["n3"]}},"cursor":"n2","up_since_ms":{"n1":7.5}}"#,
            ),
            state(
                "bucket-plan",
                r#"{"epoch":3,"mine":"1-4","own":"1-4","could":{"n2":"5-8"},"concluded_ms":12.5,"away_ms":null}"#,
            ),
        ],
        "nft_list" => {
            let mut seeds = files("src/wire/nft/captured", ".json");
            seeds.extend(texts(&["{\"nftables\":[]}", "192.0.2.100 timeout 3s expires 1s234ms"]));
            seeds
        }
        "gateways" => {
            let mut seeds = files("tests/data/gw", ".conf");
            seeds.extend(texts(&[
                "192.0.2.1 name=dsl weight=.25 dev=eth0 # ours\nfe80::1%eth1 tier=2 method=tcp target=192.0.2.9:53\n",
                r#"[{"gateway":"192.0.2.1","weight":"0.75","expect":"203.0.113.2","targets":["192.0.2.9"]}]"#,
            ]));
            seeds
        }
        "services" => texts(&[
            "# ours\nweb home=n1 cpu=2 memory=4G bandwidth=1G\nlun0,require=zone!=b,require=services<8\n",
            r#"[{"service":"db","home":"n2","cpu":0.5,"memory_bytes":1024,"bandwidth_bps":7,"require":["free.cpu>=2"]}]"#,
            "cpu=2,memory_bytes=4G",
            "labels.zone<=7",
        ]),
        "foreign_settings" => texts(&[
            "*mangle\n-A INPUT -m comment --comment \"a \\\" b\" -j MARK --set-xmark 0x40000/0xffffffff\nCOMMIT\n",
            "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes = off\n",
            "flush ruleset\n\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter;\n\t}\n}\n",
            "table ip other {\n\tchain c {\n\t\tct mark & 0x00030000 vmap { 0x00010000 : accept }\n\t\tmeta mark set ct mark & 0xff00\n\t}\n}\n",
            "table inet failover_gw {\n\tchain was_1 {\n\t\tmeta mark set meta mark & 0xff00ffff | 0x00010000 comment \"192.0.2.1 0.5 0x00ff0000 dsl\"\n\t}\n}\n",
        ]),
        "conntrack" => vec![conntrack_message()],
        "clusterip_file" => texts(&["1,2\n", "", "32\n", "1,3,16"]),
        "etcd_answer" => texts(&[
            r#"{"header":{"cluster_id":"13455796455940752355","member_id":"443629905751424238","revision":"2","raft_term":"2"},"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}},{"response_range":{"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"3","version":"2","value":"MQ==","lease":"9"}],"count":"1"}}]}"#,
            r#"{"header":{"cluster_id":"1","revision":"1"},"ID":"4390625007795078917","TTL":"2"}"#,
            r#"{"result":{"header":{"cluster_id":"1"},"ID":"123","TTL":"3"}}"#,
            r#"{"result":{"header":{"cluster_id":"1","revision":"2"},"events":[{"kv":{"key":"YQ==","mod_revision":"2","value":"MQ=="}},{"type":"DELETE","kv":{"key":"Yg==","mod_revision":"2"}}]}}"#,
            r#"{"result":{"header":{},"canceled":true,"compact_revision":"5"}}"#,
            r#"{"header":{"cluster_id":"1"},"members":[{"ID":"1","name":"m1"},{"ID":"2","isLearner":true}]}"#,
            r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}Grpc-Trailer-Content-Type: application/grpc"#,
            r#"{"header":{},"token":"abc.1"}"#,
        ]),
        "store_file" => texts(&[
            r#"{"kind":"state.store","v":1,"boot_id":"b","revision":4,"last_lease":1,"forgotten":0,"leases":[{"id":1,"ttl_us":3000000,"until_us":8000000}],"entries":[{"key":{"text":"b"},"value":{"base64":"/wA="},"created":2,"revision":2,"lease":1},{"key":{"text":"c"},"value":{"text":""},"created":3,"revision":3,"lease":0}],"history":[{"key":{"text":"a"},"value":{"text":"1"},"created":1,"revision":1,"lease":0},{"key":{"text":"a"},"created":0,"revision":4,"lease":0}]}"#,
            BEAT,
            "nodes/{host}/{subject}",
        ]),
        "words" => texts(&[
            "01:02:03:04:05:06",
            "192.0.2.10/24",
            "2001:db8::10/64",
            "fe80::1%eth0",
            "[2001:db8::1]:6940%eth0",
            "192.0.2.1:6940%eth0",
            "1-22,40",
            "1m30s",
            "300ms",
            "node-1.example",
            "www.example.org:80",
            "2026-11-30T10:01:05.520034Z",
        ]),
        other => panic!("{other} has no seeds"),
    }
}
