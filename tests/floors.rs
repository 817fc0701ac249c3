//! The floors look only down (ARCHITECTURE.md), and each rule of the house that text can show.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

const FLOORS: [(&str, &[&str]); 7] = [
    ("types", &[]),
    ("decide", &["types"]),
    ("wire", &["types"]),
    ("sys", &["types"]),
    ("record", &["decide", "types"]),
    ("cli", &["record", "sys", "types"]),
    ("cmd", &["cli", "record", "decide", "wire", "sys", "types"]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// Code without comments and without the test module at the end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\n#[allow").next().unwrap_or(text);
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn no_floor_looks_up() {
    let mut wrong = Vec::new();
    for (floor, below) in FLOORS {
        for (path, text) in sources(&root().join("src").join(floor)) {
            for (at, _) in text.match_indices("crate::") {
                let named: String = text[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_floor = FLOORS.iter().any(|(other, _)| *other == named);
                if is_floor && named != floor && !below.contains(&named.as_str()) {
                    wrong.push(format!("{}: {floor} names {named}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_room_for_it_has_unsafe_a_clock_or_standard_output() {
    let rules: [(&str, &[&str]); 5] = [
        ("unsafe {", &["sys/raw.rs"]),
        ("clock_gettime", &["sys/clock.rs"]),
        ("SystemTime", &[]),
        ("println!", &[]),
        ("tokio", &["sys/netlink.rs"]),
    ];
    for (path, text) in sources(&root().join("src")) {
        let name = path.strip_prefix(root().join("src")).unwrap().display().to_string();
        for (word, rooms) in rules {
            assert!(!code(&text).contains(word) || rooms.contains(&name.as_str()), "{name} has {word}");
        }
    }
}

#[test]
fn decisions_see_no_clock_no_bytes_and_no_chance() {
    for (path, text) in sources(&root().join("src/decide")) {
        // The simulator is a test as a whole.
        if path.ends_with("sim.rs") {
            continue;
        }
        for word in ["Instant", "std::fs", "std::io", "std::net::UdpSocket", "serde", "getrandom", "std::env"] {
            assert!(!code(&text).contains(word), "{} has {word}", path.display());
        }
    }
}

#[test]
fn a_main_is_an_entrance_of_about_ten_lines() {
    for (path, text) in sources(&root().join("bin")) {
        assert!(text.lines().count() <= 12, "{}", path.display());
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies]");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| inside) {
            assert!(architecture.contains(&format!("| `{}` |", name.trim())), "{name} is not in ARCHITECTURE.md");
        }
    }
}

#[test]
fn the_top_level_is_the_house_s() {
    let known = [
        ".ci",
        ".git",
        ".gitignore",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "bin",
        "completions",
        "man",
        "rustfmt.toml",
        "scripts",
        "src",
        "target",
        "tests",
    ];
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name.as_str()) || name.starts_with("target"), "{name} is not in the house's layout");
    }
}
