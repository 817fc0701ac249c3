//! Completions and man pages are what the definitions give; `REGEN=1` rewrites them.
#![allow(clippy::unwrap_used, clippy::panic)]

use failover_utils::cli::{Tool, Verbs};
use failover_utils::cmd::TOOLS;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn check(name: &str, wanted: &str) {
    let path = root().join(name);
    if std::env::var_os("REGEN").is_some() {
        fs::write(&path, wanted).unwrap();
    }
    let got = fs::read_to_string(&path).unwrap_or_default();
    assert!(got == wanted, "{name} is not what the definitions give; run: REGEN=1 cargo test --test generated");
}

#[test]
fn completions_are_up_to_date() {
    use clap_complete::{Shell, generate};
    for tool in TOOLS {
        for (shell, file) in [
            (Shell::Bash, format!("{}.bash", tool.name)),
            (Shell::Zsh, format!("_{}", tool.name)),
            (Shell::Fish, format!("{}.fish", tool.name)),
        ] {
            let mut text = Vec::new();
            generate(shell, &mut tool.command(), tool.name, &mut text);
            check(&format!("completions/{file}"), &String::from_utf8(text).unwrap());
        }
    }
}

/// Each page is `man/NAME.8.in`, written by hand, with the parts that can drift filled in.
#[test]
fn man_pages_are_up_to_date() {
    for tool in TOOLS {
        let source = root().join(format!("man/{}.8.in", tool.name));
        let text = fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        let mut page = text;
        for (mark, part) in [
            ("@SYNOPSIS@\n", synopsis(tool)),
            ("@OPTIONS@\n", options(tool)),
            ("@RECORDS@\n", records(tool)),
            ("@EXAMPLES@\n", examples(tool)),
        ] {
            assert!(page.contains(mark), "{} has no {mark}", source.display());
            page = page.replace(mark, &part);
        }
        check(&format!("man/{}.8", tool.name), &page);
    }
}

#[test]
fn every_reason_is_in_the_family_s_page() {
    let page = fs::read_to_string(root().join("man/failover-utils.7")).unwrap();
    for slug in failover_utils::cli::reasons() {
        assert!(page.contains(&format!("\n.B {slug}\n")), "{slug} is not in failover-utils.7");
    }
}

#[test]
fn every_verb_has_an_example_and_a_schema() {
    for tool in TOOLS {
        for verb in tool.each_verb() {
            assert!(verb.examples.lines().all(|line| line.contains(tool.name)), "{} {}", tool.name, verb.name);
            assert!(!verb.schemas.is_empty(), "{} {}", tool.name, verb.name);
        }
    }
}

fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.lines()
        .map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() })
        .collect::<Vec<_>>()
        .join("\n")
}

fn commands(tool: &Tool) -> Vec<(String, clap::Command)> {
    let mut command = tool.command();
    command.build();
    match tool.verbs {
        Verbs::One(_) => vec![(tool.name.to_owned(), command)],
        Verbs::Many(verbs) => verbs
            .iter()
            .map(|verb| (format!("{} {}", tool.name, verb.name), command.find_subcommand(verb.name).unwrap().clone()))
            .collect(),
    }
}

fn synopsis(tool: &Tool) -> String {
    let mut text = String::new();
    for (name, mut command) in commands(tool) {
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim_start_matches(&name).trim();
        let _ = writeln!(text, ".B {}\n{}\n.br", roff(&name), roff(usage));
    }
    text
}

fn options(tool: &Tool) -> String {
    let mut text = String::new();
    for (name, command) in commands(tool) {
        if commands(tool).len() > 1 {
            let _ = writeln!(text, ".SS {}\n{}.", roff(&name), roff(&command.get_about().unwrap().to_string()));
        }
        let mut arguments: Vec<_> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
        arguments.sort_by_key(|argument| argument.get_index().is_none());
        for argument in arguments {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let mut values = String::new();
            for value in argument.get_possible_values() {
                if let Some(help) = value.get_help() {
                    let _ = write!(values, "\n.br\n.B {}\n{}", roff(value.get_name()), roff(&help.to_string()));
                }
            }
            let defaults: Vec<String> =
                argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
            let takes = argument.get_action().takes_values() && !defaults.is_empty();
            let default = if takes { format!(" [default: {}]", roff(&defaults.join(","))) } else { String::new() };
            let _ = writeln!(text, ".TP\n.B {}\n{}{default}{values}", roff(&name_of(argument)), roff(&help));
        }
    }
    text
}

fn name_of(argument: &clap::Arg) -> String {
    let long = argument.to_string();
    argument.get_short().map_or(long.clone(), |short| format!("-{short}, {long}"))
}

fn records(tool: &Tool) -> String {
    let mut text = String::new();
    for (kind, schema) in tool.each_verb().iter().flat_map(|verb| verb.schemas) {
        let schema: Value = serde_json::from_str(schema).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let _ = writeln!(text, ".SS {}\n{}.", roff(kind), roff(schema["description"].as_str().unwrap()));
        let required: Vec<&str> =
            schema["anyOf"][1]["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for (key, property) in schema["properties"].as_object().unwrap() {
            if ENVELOPE.contains(&key.as_str()) {
                continue;
            }
            let optional = if required.contains(&key.as_str()) { "" } else { "?" };
            let about = property["description"].as_str().unwrap_or_default();
            let _ = writeln!(text, ".TP\n.B {}{optional}\n{}", roff(key), roff(about));
        }
    }
    text
}

/// Keys of every record; failover-utils(7) has them.
const ENVELOPE: [&str; 15] = [
    "kind",
    "v",
    "time",
    "host",
    "subject",
    "status",
    "changed",
    "renewal",
    "skipped",
    "valid_for_ms",
    "received_ms",
    "boot_id",
    "standby",
    "dry_run",
    "actions",
];

fn examples(tool: &Tool) -> String {
    let mut text = ".nf\n".to_owned();
    for line in tool.each_verb().iter().flat_map(|verb| verb.examples.lines()) {
        let _ = writeln!(text, "{}", roff(line));
    }
    text + ".fi\n"
}
