//! `hash-owner` through the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::{Run, binary};

fn hash_owner(args: &str) -> Command {
    let mut command = Command::new(binary("hash-owner"));
    command.args(args.split_whitespace()).env("FAILOVER_NODE", "n1").env_remove("FAILOVER_OUTPUT");
    command
}

/// Runs it with no input.
fn run(args: &str) -> Run {
    Run::new(args, hash_owner(args).stdin(Stdio::null()).output().unwrap())
}

/// Runs it with `input` in a pipe.
fn piped(args: &str, input: &str) -> Run {
    let mut child =
        hash_owner(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = feeder.join();
    Run::new(args, output)
}

/// Runs it with standard input from a file.
fn from_file(args: &str, input: &str) -> Run {
    let file = Scratch::new(input);
    Run::new(args, hash_owner(args).stdin(File::open(&file.0).unwrap()).output().unwrap())
}

/// A file that goes with its handle.
struct Scratch(PathBuf);

impl Scratch {
    fn new(content: &str) -> Scratch {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hash-owner-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::write(&path, content).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn data(name: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// What differs from run to run taken out.
fn timeless(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let (before, rest) = line.split_once("\"time\":\"").unwrap();
        let (_, after) = rest.split_once('"').unwrap();
        let _ = writeln!(out, "{before}{after}");
    }
    out
}

fn buckets(run: &Run) -> Vec<u64> {
    run.records().iter().map(|record| record["bucket"].as_u64().unwrap()).collect()
}

/// The flags of a line of tests/data/vectors/hash, and what its kernel calls the first bucket.
fn flags(line: &Value) -> (String, u64) {
    let mode = line["mode"].as_str().unwrap();
    let (mut flags, first) = match line["alg"].as_str().unwrap() {
        "nft_jhash" => (format!("--algo nft --fields {mode}"), line["offset"].as_u64().unwrap_or(0)),
        "hmark" => (format!("--algo hmark --fields {mode}"), line["offset"].as_u64().unwrap_or(0)),
        "xt_cluster" => ("--algo xt-cluster".to_owned(), 0),
        _ => (format!("--algo clusterip --mode {mode}"), 1),
    };
    if let Some(era) = line["era"].as_str() {
        let kernels = [("A", "2.6.11"), ("B", "2.6.21"), ("C", "2.6.25"), ("D", "2.6.37"), ("E", "el7"), ("F", "4.1")];
        let (_, kernel) = kernels.into_iter().find(|(name, _)| *name == era).unwrap();
        let _ = write!(flags, " --kernel {kernel}");
    }
    if line.get("endian").is_some() {
        flags.push_str(" --big-endian");
    }
    let _ = write!(flags, " --seed {} --total {}", line["seed"], line["total"]);
    (flags, first)
}

#[test]
fn every_vector_comes_out() {
    let mut groups: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for name in ["xt_cluster-v4", "xt_cluster-v6", "nft_jhash-v4", "nft_jhash-v6", "hmark", "clusterip", "clusterip-be"]
    {
        for text in data(&format!("vectors/hash/{name}.jsonl")).lines() {
            let line: Value = serde_json::from_str(text).unwrap();
            let (flags, first) = flags(&line);
            let wanted = line["bucket"].as_u64().unwrap() - first + 1;
            groups.entry(flags).or_default().push((text.to_owned(), wanted));
        }
    }
    let mut lines = 0;
    for (flags, flows) in &groups {
        let input: Vec<&str> = flows.iter().map(|(text, _)| text.as_str()).collect();
        let run = piped(flags, &input.join("\n"));
        assert_eq!(run.code, 0, "{flags}: {}", run.stderr);
        let wanted: Vec<u64> = flows.iter().map(|(_, bucket)| *bucket).collect();
        assert_eq!(buckets(&run), wanted, "{flags}");
        lines += wanted.len();
    }
    assert_eq!(lines, 15_784);
}

#[test]
fn three_hashes_three_owners() {
    for (algo, bucket) in [("clusterip", "1\n"), ("xt-cluster", "2\n"), ("nft", "2\n")] {
        let run = run(&format!("--seed 0xdeadbeef --total 2 --algo {algo} --brief 192.0.2.14")).ended(0);
        assert_eq!(run.stdout, bucket, "{algo}");
    }
    for row in data("vectors/hash/three-hashes.csv").lines().skip(1) {
        let [algo, mode, seed, total, src, _, _, node] = row.split(',').collect::<Vec<_>>().try_into().unwrap();
        let (algo, first) = match algo {
            "clusterip" => ("clusterip", 1),
            "xt_cluster" => ("xt-cluster", 1),
            _ => ("nft", 0),
        };
        let args = format!("--algo {algo} --mode {mode} --seed {seed} --total {total} --brief {src}");
        let wanted: u32 = node.parse().unwrap();
        assert_eq!(run(&args).ended(0).stdout, format!("{}\n", wanted - first + 1), "{row}");
    }
}

#[test]
fn a_record_says_what_was_hashed() {
    let run = run(
        "--total 3 --owners n1=1-2,n2=3 --local 1,3 --mode sourceip-sourceport 192.0.2.7:4660>198.51.100.10:80/tcp",
    );
    let record = run.one();
    for (key, value) in [
        ("kind", Value::from("hash-owner")),
        ("host", "n1".into()),
        ("subject", "192.0.2.7".into()),
        ("src", "192.0.2.7".into()),
        ("sport", 4660.into()),
        ("dst", "198.51.100.10".into()),
        ("dport", 80.into()),
        ("proto", "tcp".into()),
        ("algo", "nft".into()),
        ("hash", 1_811_077_406.into()),
        ("bucket", 2.into()),
        ("owner", "n1".into()),
        ("local", false.into()),
    ] {
        assert_eq!(record[key], value, "{key}");
    }
    assert_eq!(run.code, 1);
}

#[test]
fn every_form_is_read_from_one_file() {
    let input = "192.0.2.7\n\
                 192.0.2.7:4660\n\
                 [2001:db8::7]:4660\n\n\
                 192.0.2.7:4660>198.51.100.10:80/tcp\n\
                 192.0.2.7 4660 198.51.100.10 80 tcp\n\
                 {\"src\":\"192.0.2.7\",\"sport\":4660,\"dst\":\"198.51.100.10\",\"dport\":80,\"proto\":6}\n\
                 tcp      6 431997 ESTABLISHED src=192.0.2.7 dst=198.51.100.10 sport=4660 dport=80 src=198.51.100.10 dst=192.0.2.7 sport=80 dport=4660 [ASSURED] mark=0 use=1\r\n\
                 tcp   ESTAB      0      0      198.51.100.10:80     192.0.2.7:4660\n\
                 u_str ESTAB      0      0      * 7710 * 0\n\
                 {\"kind\":\"something.else\"}\n\
                 192.0.2.7>198.51.100.10/icmp";
    for run in [piped("--total 64 --seed 5", input), from_file("--total 64 --seed 5", input)] {
        let run = run.ended(0);
        let records = run.records();
        assert_eq!(records.len(), 9, "{}", run.stdout);
        for record in &records {
            assert_eq!(record["src"], record["subject"]);
        }
        for whole in &records[3..8] {
            for key in ["src", "sport", "dst", "dport", "proto", "bucket"] {
                assert_eq!(whole[key], records[3][key], "{key} of {whole}");
            }
        }
        assert_eq!(records[8]["proto"], "icmp");
    }
    // The words of one flow as operands, and several flows.
    let one = run("--total 64 --seed 5 192.0.2.7 4660 198.51.100.10 80 tcp").ended(0).one();
    assert_eq!((&one["sport"], &one["proto"]), (&4660.into(), &"tcp".into()));
    assert_eq!(run("--total 64 192.0.2.7 192.0.2.8 192.0.2.9:80 ::1 192.0.2.10").ended(0).records().len(), 5);
    let dash = piped("--total 64 --brief 192.0.2.7 - 192.0.2.7", "192.0.2.7\n192.0.2.7\n").ended(0);
    assert_eq!(dash.stdout.lines().count(), 4);
}

#[test]
fn conntrack_and_ss_give_the_flows_that_they_print() {
    for name in ["conntrack-L", "conntrack-E-timestamp", "proc-nf_conntrack", "ss-Hn", "ss-Hnt", "ss-Hnu", "ss-Hnti"] {
        let run = piped("--total 64", &data(&format!("flow/{name}.txt"))).ended(0);
        let flows = data(&format!("flow/{name}.flows"));
        let wanted: Vec<&str> = flows.lines().filter(|line| *line != "-").collect();
        let records = run.records();
        assert_eq!(records.len(), wanted.len(), "{name}");
        for (record, line) in records.iter().zip(wanted) {
            assert!(line.contains(record["src"].as_str().unwrap()), "{name}: {record} {line}");
            assert!(line.contains(record["dst"].as_str().unwrap()), "{name}: {record} {line}");
        }
    }
    let head = piped("--total 64", &data("flow/ss-nt.txt")).ended(6);
    assert!(
        head.stderr.contains("line 1 is malformed: the head line of ss (leave it out with ss -H)"),
        "{}",
        head.stderr
    );
    assert_eq!(head.records().len(), 7);
}

#[test]
fn a_single_flow_that_is_not_local_is_a_no() {
    assert_eq!(run("--total 3 --seed 0x7b --brief 192.0.2.10").ended(0).stdout, "1\n");
    assert_eq!(run("--total 3 --seed 0x7b --local 1,2 192.0.2.10").ended(0).one()["local"], true);
    assert_eq!(run("--total 3 --seed 0x7b --local 2-3 192.0.2.10").ended(1).one()["local"], false);
    assert_eq!(run("--total 3 --seed 0x7b --local 2-3 --brief 192.0.2.10").ended(1).stdout, "1\n");
    // Of several, each record answers for itself.
    run("--total 3 --seed 0x7b --local 2-3 192.0.2.10 192.0.2.10").ended(0);
    piped("--total 3 --seed 0x7b --local 2-3", "192.0.2.10\n").ended(0);
}

#[test]
fn a_malformed_line_is_told_and_the_others_are_answered() {
    let long = "x".repeat(70_000);
    let input = format!(
        "192.0.2.7\nno flow\n\n192.0.2.8\n{long}\n{{\"src\":7}}\n192.0.2.9\n{{\"src\":\"192.0.2.7\",\"src\":\"\"}}"
    );
    for run in [piped("--total 3", &input), from_file("--total 3", &input)] {
        let run = run.ended(6);
        assert_eq!(run.records().len(), 3, "{}", run.stdout);
        let told: Vec<&str> = run.stderr.lines().collect();
        for (line, part) in told.iter().zip([
            "hash-owner: line 2 is malformed: not a flow",
            "hash-owner: line 5 is malformed: it is longer than 65536 bytes",
            "hash-owner: line 6 is malformed: 'src'",
            "hash-owner: line 8 is malformed: the key 'src' stands there twice",
        ]) {
            assert!(line.starts_with(part), "{line}");
        }
        assert_eq!(told.len(), 4);
    }
    let many = piped("--total 3", &"x\n".repeat(25)).ended(6);
    assert_eq!(many.stderr.lines().count(), 11);
    assert!(many.stderr.ends_with("hash-owner: 15 more malformed lines\n"), "{}", many.stderr);
    // No text at all, in a line of its own and in the name of a process.
    let mut child =
        hash_owner("--total 3").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let bytes = b"\xff\xfe\n192.0.2.7\xff\nESTAB 0 0 192.0.2.10:80 192.0.2.7:9 users:((\"\xff\n{\"src\":\"\xff\"}\n";
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let run = Run::new("bytes", child.wait_with_output().unwrap()).ended(6);
    assert_eq!((run.records().len(), run.stderr.lines().count()), (1, 3), "{}", run.stderr);
}

#[test]
fn what_an_input_says_cannot_move_a_cursor_or_fill_a_log() {
    let run = piped("--total 2", &format!("\u{1b}[2J\u{7}{}\n", "x".repeat(5000)));
    assert_eq!(run.code, 6);
    assert!(!run.stderr.chars().any(|c| c.is_control() && c != '\n'), "{run:?}");
    assert!(run.stderr.lines().all(|line| line.len() < 2200), "{run:?}");
}

#[test]
fn an_operand_that_has_no_answer_says_why_in_its_record() {
    let run = run("--total 3 --mode sourceip-sourceport 192.0.2.7 192.0.2.7:80 nonsense").ended(6);
    let records = run.records();
    assert_eq!(records.len(), 3);
    assert_eq!(records[0]["error"]["reason"], "bad-input");
    assert_eq!(records[0]["error"]["code"], 6);
    assert_eq!(records[0]["subject"], "192.0.2.7");
    assert_eq!(records[1]["bucket"].as_u64().map(|bucket| (1..=3).contains(&bucket)), Some(true));
    assert_eq!(records[2]["subject"], "nonsense");
    assert!(
        run.stderr.starts_with(
            "hash-owner: cannot tell the owner of '192.0.2.7': the hash needs sport, which this flow does not tell\n"
        ),
        "{}",
        run.stderr
    );
}

#[test]
fn a_mode_with_ports_leaves_them_out_for_protocols_without() {
    let by = |args: &str| run(&format!("--total 4096 --seed 1 --brief {args}")).ended(0).stdout;
    let alone = by("192.0.2.7");
    assert_eq!(by("--mode sourceip-sourceport 192.0.2.7>198.51.100.10/icmp"), alone);
    assert_eq!(by("--mode sourceip-sourceport-destport 192.0.2.7>198.51.100.10/gre"), alone);
    assert_eq!(by("--mode sourceip-sourceport 192.0.2.7:80"), by("--fields saddr.sport 192.0.2.7:80"));
    assert_ne!(by("--mode sourceip-sourceport 192.0.2.7:80"), alone);
    assert_ne!(by("--big-endian 2001:db8::7"), by("2001:db8::7"));
    assert_eq!(by("--big-endian 192.0.2.7"), alone);
}

#[test]
fn brief_prints_the_bucket_alone() {
    let input = "192.0.2.7\n::1\n{\"src\":\"192.0.2.7\"}\n".repeat(3000);
    for run in [piped("--total 5000 --brief", &input), from_file("--total 5000 --brief", &input)] {
        let run = run.ended(0);
        let lines: Vec<u32> = run.stdout.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(lines.len(), 9000);
        assert!(lines.chunks(3).all(|three| three == &lines[..3] && three[0] == three[2]));
    }
}

#[test]
fn a_summary_counts_and_a_table_has_bars() {
    let addresses: Vec<String> = (0..4000u32).map(|n| format!("10.{}.{}.7\n", n % 200, n / 200)).collect();
    let addresses = addresses.concat();
    let args = "--total 4 --summary --owners n1=1-2,n2=3";
    for run in [piped(args, &addresses), from_file(args, &addresses)] {
        let record = run.ended(0).one();
        assert_eq!(
            (&record["kind"], &record["total"], &record["flows"]),
            (&"hash-owner.summary".into(), &4.into(), &4000.into())
        );
        let spread = record["buckets"].as_array().unwrap();
        assert_eq!(spread.iter().map(|bucket| bucket["flows"].as_u64().unwrap()).sum::<u64>(), 4000);
        for (bucket, owner) in spread.iter().zip([Some("n1"), Some("n1"), Some("n2"), None]) {
            assert_eq!(bucket["owner"].as_str(), owner);
            let (flows, share) = (bucket["flows"].as_f64().unwrap(), bucket["share"].as_f64().unwrap());
            assert!((share - flows / 4000.0).abs() < 1e-6);
            assert!((bucket["deviation_pct"].as_f64().unwrap() - (flows / 10.0 - 100.0)).abs() < 1e-3);
        }
    }
    let none = piped("--total 2 --summary", "").ended(0).one();
    assert_eq!(none["flows"], 0);
    assert_eq!(none["buckets"][0]["share"], Value::Null);
    let table = piped("--total 4 --summary --table", &addresses).ended(0).stdout;
    assert!(table.starts_with(" BUCKET  OWNER  FLOWS  SHARE"), "{table}");
    assert!(table.contains(&"#".repeat(40)) && !table.contains(&"#".repeat(41)), "{table}");
}

#[test]
fn moves_are_the_flows_with_another_owner() {
    let input = "192.0.2.7\n192.0.2.8\n192.0.2.9:80\n2001:db8::1\n192.0.2.10\n192.0.2.11\n192.0.2.12\n";
    let all: Vec<(String, u64)> = piped("--total 3 --seed 0x7b", input)
        .records()
        .iter()
        .map(|record| (record["src"].as_str().unwrap().to_owned(), record["bucket"].as_u64().unwrap()))
        .collect();
    let moved = piped("--total 3 --seed 0x7b --moves n1=1-2,n2=3 n1=1,n2=2,n3=3", input).ended(0).records();
    let wanted: Vec<&(String, u64)> = all.iter().filter(|(_, bucket)| *bucket != 1).collect();
    assert!(!wanted.is_empty() && wanted.len() < all.len());
    assert_eq!(moved.len(), wanted.len());
    for (record, (src, bucket)) in moved.iter().zip(wanted) {
        assert_eq!((record["subject"].as_str(), record["bucket"].as_u64()), (Some(src.as_str()), Some(*bucket)));
        let (from, to) = if *bucket == 2 { ("n1", "n2") } else { ("n2", "n3") };
        assert_eq!((record["from"].as_str(), record["to"].as_str()), (Some(from), Some(to)));
    }
    // What nobody owns has no name.
    let gone = piped("--total 3 --seed 0x7b --moves n1=1-3 n1=2-3", input).ended(0).records();
    assert!(gone.iter().all(|record| record["bucket"] == 1 && record["from"] == "n1" && record.get("to").is_none()));
    assert_eq!(piped("--total 3 --moves n1=1-3 n1=1-3", input).ended(0).stdout, "");
    let table = piped("--total 3 --seed 0x7b --moves n1=1-2,n2=3 n1=1,n2=2-3 --table", input).ended(0).stdout;
    assert!(table.starts_with(" SOURCE") && table.contains("  n1    n2"), "{table}");
}

#[test]
fn a_map_of_owners_comes_in_several_forms() {
    let lines = Scratch::new("# who\nn1 1-2\nn2 3\n");
    let plan = Scratch::new(
        "{\"kind\":\"bucket.plan\",\"v\":1,\"owners\":{\"n1\":\"1-3\"}}\n{\"kind\":\"bucket.plan\",\"v\":1,\"owners\":{\"n1\":\"1-2\",\"n2\":\"3\"}}\n",
    );
    let owner = |map: &str| {
        let run = run(&format!("--total 3 --seed 0x7b 192.0.2.11 192.0.2.12 192.0.2.10 --owners {map}")).ended(0);
        run.records().iter().map(|record| record["owner"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let inline = owner("n1=1-2,n2=3");
    assert_eq!(inline, ["n1", "n2", "n1"]);
    assert_eq!(owner("1-2=n1,3=n2"), inline);
    assert_eq!(owner(lines.0.to_str().unwrap()), inline);
    assert_eq!(owner(plan.0.to_str().unwrap()), inline);
    let shell = format!(
        "exec {} --total 3 --seed 0x7b --owners fd:7 192.0.2.12 7<{}",
        binary("hash-owner").display(),
        lines.0.display()
    );
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    assert_eq!(Run::new(&shell, output).ended(0).one()["owner"], "n2");
    // A bucket that nobody has is without an owner.
    assert!(run("--total 3 --seed 0x7b --owners n1=1 192.0.2.12").ended(0).one().get("owner").is_none());
    let torn = Scratch::new("n1 1-2\nn2\n");
    for (map, code, part) in [
        ("n1=1-4", 2, "bucket 4 is above the total of 3"),
        ("n1=1,n2=1", 2, "bucket 1 is given to both"),
        ("n1=0", 2, "not a bucket list"),
        ("/nonexistent/map", 6, "no such file"),
        (torn.0.to_str().unwrap(), 6, "line 2: 'n2' is not 'node LIST'"),
    ] {
        let run = run(&format!("--total 3 --owners {map} 192.0.2.7")).ended(code);
        assert!(run.stderr.contains(part) && run.stderr.lines().count() == 1, "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_table_is_for_a_person() {
    let run = run("--total 3 --seed 0x7b --local 1 --table 192.0.2.10 192.0.2.11:80").ended(0);
    assert_eq!(
        run.stdout,
        " SOURCE      SPORT  DEST  DPORT  PROTO  HASH        BUCKET  OWNER  LOCAL\n \
          192.0.2.10                             1052851700  1              yes\n \
          192.0.2.11  80                         2031768981  2              no\n"
    );
}

#[test]
fn fields_that_it_does_not_know_are_passed_on_as_they_are() {
    let input =
        "{\"src\":\"192.0.2.7\",\"rtt_ms\":1e2,\"big\":18446744073709551617,\"owner\":\"old\",\"a\":{\"b\":[ 1 ]}}\n";
    let run = piped("--total 3", input).ended(0);
    run.records();
    assert!(
        run.stdout.ends_with(",\"bucket\":2,\"rtt_ms\":1e2,\"big\":18446744073709551617,\"a\":{\"b\":[ 1 ]}}\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_choice_that_surprises_is_warned_of_once() {
    let warning = "hash-owner: warning: xt-cluster hashes the first 32 bits of an IPv6 address alone";
    for input in ["2001:db8::1\n2001:db8::2\n", "{\"src\":\"::1\"}\n192.0.2.1\n"] {
        let run = piped("--total 3 --algo xt-cluster --brief", input);
        assert_eq!(run.code, 0);
        assert!(run.stderr.starts_with(warning) && run.stderr.lines().count() == 1, "{}", run.stderr);
    }
    assert!(run("--total 3 --algo xt-cluster 2001:db8::1").stderr.starts_with(warning));
    assert_eq!(piped("--total 3 --algo xt-cluster", "192.0.2.1\n").ended(0).stderr, "");
    piped("--total 3", "2001:db8::1\n").ended(0);
}

#[test]
fn what_no_kernel_takes_is_a_usage_error() {
    for (args, part) in [
        ("192.0.2.7", "--total"),
        ("--total 0 192.0.2.7", "nft has 1 to 4294967295 buckets"),
        ("--total 4294967296 192.0.2.7", "not a number from 0 to 4294967295"),
        ("--total 33 --algo xt-cluster 192.0.2.7", "xt-cluster has 1 to 32 buckets"),
        ("--total 3 --algo xt-cluster --mode sourceip-sourceport 192.0.2.7", "hashes the source address alone"),
        ("--total 3 --algo clusterip --fields saddr 192.0.2.7", "hashes by mode, not by fields"),
        ("--total 3 --algo clusterip --kernel 6.3 192.0.2.7", "left the kernel with 6.3"),
        ("--total 3 --kernel el7 192.0.2.7", "nft came with kernel 4.9"),
        ("--total 3 --kernel six 192.0.2.7", "not a kernel version"),
        ("--total 3 --algo sha 192.0.2.7", "possible values: nft, xt-cluster, clusterip, hmark"),
        ("--total 3 --mode ip 192.0.2.7", "possible values: sourceip,"),
        ("--total 3 --fields saddr,sport 192.0.2.7", "not a field"),
        ("--total 3 --fields saddr --mode sourceip 192.0.2.7", "cannot be used with"),
        ("--total 3 --seed -1 192.0.2.7", "-1"),
        ("--total 3 --local 4 192.0.2.7", "--local: bucket 4 is above the total of 3"),
        ("--total 3 --brief --summary 192.0.2.7", "cannot be used with"),
        ("--total 5000 --summary 192.0.2.7", "--summary takes up to 4096 buckets"),
        ("--total 3 --moves n1=1 192.0.2.7:80", "192.0.2.7:80"),
        ("--total 3 - -", "'-' stands twice"),
    ] {
        let run = run(args);
        // A missing file of owners is input, not usage: --moves takes two maps whatever follows.
        let code = if args.contains("--moves") { 6 } else { 2 };
        assert_eq!(run.code, code, "{args}: {}", run.stderr);
        assert!(run.stderr.contains(part) && run.stderr.lines().count() == 1, "{args}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    for (text, same) in [("--seed 0xdeadbeef", "--seed 3735928559"), ("", "--seed 0")] {
        let by = |seed: &str| run(&format!("--total 4096 --brief {seed} 192.0.2.7")).ended(0).stdout;
        assert_eq!(by(text), by(same));
    }
}

/// Lines of all forms over many blocks of a file, with some that are malformed.
fn a_long_file() -> String {
    let mut text = String::new();
    for n in 0..60_000u32 {
        let [a, b, c, d] = n.wrapping_mul(2_654_435_761).to_be_bytes();
        let _ = match n % 5003 {
            7 => writeln!(text, "nonsense {n}"),
            77 => writeln!(text, "2001:db8::{n:x}"),
            777 => writeln!(text, "{{\"src\":\"{a}.{b}.{c}.{d}\",\"n\":{n}}}"),
            1777 => writeln!(text),
            2777 => {
                writeln!(text, "tcp 6 9 ESTABLISHED src={a}.{b}.{c}.{d} dst=192.0.2.1 sport={} dport=80", n % 65_536)
            }
            3777 => writeln!(text, "{}", "y".repeat(1000)),
            _ => writeln!(text, "{a}.{b}.{c}.{d}"),
        };
    }
    text
}

#[test]
fn a_file_is_answered_in_order_by_all_threads_as_a_pipe_is_by_one() {
    let text = a_long_file();
    for args in ["--total 64", "--total 64 --owners n1=1-20,n2=21-64 --local 1-20"] {
        let (file, pipe) = (from_file(args, &text).ended(6), piped(args, &text).ended(6));
        assert!(timeless(&file.stdout) == timeless(&pipe.stdout), "{args}");
        assert_eq!(file.stderr, pipe.stderr);
        assert_eq!(file.stderr.lines().next().unwrap().split(':').nth(1), Some(" line 8 is malformed"));
        assert!(file.stderr.lines().last().unwrap().ends_with("more malformed lines"));
    }
    for args in ["--total 64 --brief", "--total 64 --mode sourceip-sourceport --brief"] {
        let (file, pipe) = (from_file(args, &text).ended(6), piped(args, &text).ended(6));
        assert!(file.stdout == pipe.stdout, "{args}");
    }
    // The fast path and the general one agree, line for line.
    let plain: String =
        text.lines().filter(|line| line.parse::<std::net::Ipv4Addr>().is_ok()).flat_map(|line| [line, "\n"]).collect();
    let spaced: String = plain.lines().flat_map(|line| [line, " \n"]).collect();
    for algo in ["nft", "xt-cluster --total 32", "clusterip", "clusterip --kernel 2.6.24", "hmark --kernel 3.10"] {
        let args = if algo.contains("total") { format!("--algo {algo}") } else { format!("--algo {algo} --total 64") };
        let (fast, slow) = (from_file(&args, &plain).ended(0), piped(&args, &spaced).ended(0));
        assert!(timeless(&fast.stdout) == timeless(&slow.stdout), "{algo}");
    }
}

#[test]
fn an_answer_is_never_held_while_more_is_waited_for() {
    let mut child = hash_owner("--total 3").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for line in ["192.0.2.7\n", "2001:db8::1\n192.0.2.8\n", "192.0.2", ".9\n"] {
        stdin.write_all(line.as_bytes()).unwrap();
        for _ in 0..line.matches('\n').count() {
            let mut record = String::new();
            stdout.read_line(&mut record).unwrap();
            assert_eq!(support::records(&record).len(), 1);
        }
    }
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_silent_input_ends_undecided_at_the_deadline() {
    let mut child = hash_owner("--total 3 --timeout 100ms")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"192.0.2.7\n").unwrap();
    let output = child.wait_with_output();
    drop(stdin);
    let run = Run::new("--timeout", output.unwrap()).ended(75);
    assert_eq!(run.records().len(), 1);
    assert!(
        run.stderr.starts_with("hash-owner: cannot read standard input: nothing more came in time"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_reader_that_leaves_is_no_error_and_changes_no_answer() {
    let text = a_long_file();
    let file = Scratch::new(&text);
    for from_pipe in [false, true] {
        let mut command = hash_owner("--total 64");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = if from_pipe {
            command.stdin(Stdio::piped()).spawn().unwrap()
        } else {
            command.stdin(File::open(&file.0).unwrap()).spawn().unwrap()
        };
        if let Some(mut stdin) = child.stdin.take() {
            // It stops reading too, and then this end breaks.
            let plain = "192.0.2.7\n".repeat(200_000);
            std::thread::spawn(move || stdin.write_all(plain.as_bytes()));
        }
        let mut first = [0; 30];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.lines().all(|line| line.contains("malformed")), "{stderr}");
        assert!(matches!(output.status.code(), Some(0 | 6)), "{:?}", output.status);
    }
    let closed = Command::new("sh")
        .args([
            "-c",
            &format!(
                "{{ sleep 0.05; {} --total 3 --seed 0x7b --local 2 192.0.2.10; echo $? >&2; }} | true",
                binary("hash-owner").display()
            ),
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(closed.stderr).unwrap(), "1\n");
}

#[test]
fn a_full_device_is_an_error_of_the_system() {
    let file = Scratch::new(&a_long_file());
    for args in ["--total 3 192.0.2.7", "--total 3", "--total 3 --brief", "--total 3 --summary"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut child =
            hash_owner(args).stdin(File::open(&file.0).unwrap()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(71), "{args}");
        let last = stderr.lines().last().unwrap();
        assert!(
            last.starts_with("hash-owner: cannot write to standard output: No space left on device"),
            "{args}: {stderr}"
        );
    }
}

#[test]
fn a_file_is_left_at_its_end() {
    let file = Scratch::new("192.0.2.7\n192.0.2.8\n");
    let line =
        format!("{{ read first; {} --total 3 --brief; cat; }} < {}", binary("hash-owner").display(), file.0.display());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
}

#[test]
fn the_schemas_are_printed() {
    let schema: Value = serde_json::from_str(&run("--schema").ended(0).stdout).unwrap();
    let titles: Vec<&str> =
        schema["oneOf"].as_array().unwrap().iter().map(|one| one["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["hash-owner", "hash-owner.summary", "hash-owner.move"]);
}
