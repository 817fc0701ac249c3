//! The README's pipelines work as pasted.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use support::binary;

/// The fenced blocks of the section "Pipelines", without their indent; the first prepares the others.
fn blocks() -> Vec<String> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("## Pipelines").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in section.lines() {
        match (line.trim_start().starts_with("```"), &mut open) {
            (true, Some(lines)) => {
                blocks.push(lines.join("\n"));
                open = None;
            }
            (true, None) => open = Some(Vec::new()),
            (false, Some(lines)) => lines.push(line.strip_prefix("    ").or(line.strip_prefix("   ")).unwrap_or(line)),
            (false, None) => {}
        }
    }
    blocks
}

#[test]
fn the_pipelines_work_as_pasted() {
    let blocks = blocks();
    assert_eq!(blocks.len(), 12, "{blocks:#?}");
    let folder = std::env::temp_dir().join(format!("failover-readme-{}", std::process::id()));
    // One shell, as a reader's: later ones build on earlier ones.
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, block) in blocks.iter().enumerate() {
        writeln!(script, "echo '== {number}'\n{block}").unwrap();
    }
    let path = binary("vip").parent().unwrap().display().to_string();
    let output = Command::new("unshare")
        .args(["--net", "bash", "-c", &script])
        .env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("FAILOVER_STATE_DIR", folder.join("run"))
        .env("FAILOVER_LIB_DIR", folder.join("lib"))
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&folder);
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    let parts: Vec<&str> = said.split("== ").skip(2).collect();
    for (part, words) in parts.iter().zip([
        &["\"192.0.2.19\"", "ADDRESS", "yes"][..],
        &["request reply"],
        &["n1", "n2"],
        &["table ip failover_192_0_2_100", "\"n3\""],
        &["\"needs_fence\":[\"n2\"]", "not proven off"],
        &["n2 is up"],
        &["PRIORITY", "200"],
        &["192.0.2.200: serve, since no advert was heard", "192.0.2.200: leave, since it was told to stop"],
        &["quorate false, waiting for [\"n2\"]", "n2 is off, proof true", "quorate true"],
        &["\"192.0.2.2\"", "ip route add default via 192.0.2.2 dev eth0", "table inet failover_gw", "jhash ip saddr"],
        &["198.51.100.1\nparis: down\nrome: up"],
    ]) {
        for word in words {
            assert!(part.contains(word), "no {word} in {part}\n{complained}");
        }
    }
    assert_eq!(parts.len(), 11, "{said}");
}
