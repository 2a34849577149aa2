//! Manual pages and shell completions: all that the command has is in them, and their readers take them.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

fn sensorium(arguments: &[&str]) -> String {
    let output = crate::tiny::sensorium().args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Names of the subcommands, from the help.
fn subcommands() -> BTreeSet<String> {
    let help = sensorium(&["--help"]);
    let from = help.split("Commands:\n").nth(1).unwrap();
    let lines = from.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

/// The standard error of a program that reads `input`, or `None` where there is no such program.
fn complaints(program: &str, arguments: &[&str], input: &[u8]) -> Option<(bool, String)> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(_) => {
            println!("skipped: there is no {program} here");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

#[test]
fn every_subcommand_has_a_page_that_a_formatter_takes() {
    let folder = tempfile::tempdir().unwrap();
    sensorium(&["man", "--out", folder.path().to_str().unwrap()]);
    let pages: BTreeSet<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(pages.contains("sensorium.1"));
    let commands = subcommands();
    assert!(commands.len() >= 15, "{commands:?}");
    for command in &commands {
        assert!(
            pages.contains(&format!("sensorium-{command}.1")),
            "{command} in {pages:?}"
        );
    }
    for nested in ["bundle-make", "bundle-check", "bag-info", "model-bench"] {
        assert!(pages.contains(&format!("sensorium-{nested}.1")), "{nested}");
    }
    for page in &pages {
        let text = std::fs::read(folder.path().join(page)).unwrap();
        let plain = String::from_utf8(text.clone()).unwrap();
        for section in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(plain.contains(section), "{section} in {page}");
        }
        if let Some((good, told)) = complaints("groff", &["-man", "-Tutf8", "-ww", "-z"], &text) {
            assert!(good && told.is_empty(), "{page}: {told}");
        }
    }
    assert!(sensorium(&["man"]).contains(".TH sensorium 1"));
}

#[test]
fn shells_take_their_completions_and_know_every_subcommand() {
    let commands = subcommands();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = sensorium(&["completions", shell]);
        for command in &commands {
            assert!(script.contains(command.as_str()), "{command} for {shell}");
        }
        if let Some((good, told)) = complaints(shell, &[check], script.as_bytes()) {
            assert!(good && told.is_empty(), "{shell}: {told}");
        }
    }
    for shell in ["powershell", "elvish"] {
        assert!(sensorium(&["completions", shell]).contains("sensorium"));
    }
    // The script does what it is for: it completes a subcommand and an option.
    let script = sensorium(&["completions", "bash"])
        + "\ncomplete_of() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); \
           _sensorium sensorium \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[*]}\" >&2; }\n\
           complete_of sensorium bun\ncomplete_of sensorium run --veh\n";
    if let Some((good, told)) = complaints("bash", &["--norc"], script.as_bytes()) {
        assert!(good, "{told}");
        assert_eq!(told.lines().collect::<Vec<_>>(), ["bundle", "--vehicle"]);
    }
}
