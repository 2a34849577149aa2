//! The direction of the arrows: who may import whom, where tasks and unsafe code may live.

use std::path::{Path, PathBuf};

/// The rooms, lowest first. A room may import only rooms before it.
const ROOMS: [&str; 19] = [
    "numeric",
    "tensor",
    "outputs",
    "precision",
    "device",
    "ops",
    "trace",
    "weights",
    "models",
    "image",
    "lidar",
    "perception",
    "accuracy",
    "pipeline",
    "telemetry",
    "io",
    "runtime",
    "server",
    "cli",
];

/// Crates of the asynchronous world, and the rooms that may know them.
const ASYNC_CRATES: [&str; 5] = ["tokio", "kameo", "flume", "zenoh", "rustdds"];
const ASYNC_ROOMS: [&str; 4] = ["io", "runtime", "server", "cli"];

struct Source {
    path: PathBuf,
    room: String,
    /// Code without comments.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let inside = path.strip_prefix(&root).unwrap();
                let room = match inside.components().count() {
                    1 => continue,
                    _ => inside
                        .components()
                        .next()
                        .unwrap()
                        .as_os_str()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                };
                let code = code_of(&std::fs::read_to_string(&path).unwrap());
                found.push(Source {
                    path: inside.to_owned(),
                    room,
                    code,
                });
            }
        }
    }
    assert!(found.len() > 100, "the walk found {} files", found.len());
    found
}

fn code_of(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Rooms named behind `crate::`, also inside `use crate::{a::.., b::..}`.
fn imports(code: &str) -> Vec<String> {
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => rooms.push(word(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && c.is_alphabetic() => {
                            rooms.push(word(&group[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    rooms
}

fn violations(sources: &[Source]) -> Vec<String> {
    let rank = |room: &str| ROOMS.iter().position(|r| *r == room);
    let mut found = Vec::new();
    for source in sources {
        let Some(own) = rank(&source.room) else {
            found.push(format!(
                "{}: room {} is not in the list",
                source.path.display(),
                source.room
            ));
            continue;
        };
        for import in imports(&source.code) {
            if rank(&import).is_some_and(|imported| imported > own) {
                found.push(format!(
                    "{}: {} may not import {import}",
                    source.path.display(),
                    source.room
                ));
            }
        }
        if !ASYNC_ROOMS.contains(&&*source.room) {
            for name in ASYNC_CRATES {
                if source.code.contains(&format!("{name}::")) {
                    found.push(format!(
                        "{}: {} may not know {name}",
                        source.path.display(),
                        source.room
                    ));
                }
            }
        }
        let file = source.path.file_name().unwrap().to_str().unwrap();
        let may_be_unsafe = source.room == "device" || file.starts_with("simd");
        if !may_be_unsafe && (source.code.contains("unsafe {") || source.code.contains("unsafe fn")) {
            found.push(format!(
                "{}: unsafe code outside device and simd files",
                source.path.display()
            ));
        }
    }
    found
}

#[test]
fn a_room_imports_only_rooms_before_it() {
    let found = violations(&sources());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_list_in_the_library_is_the_list_here() {
    let lib = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let listed: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("//! - [`"))
        .map(|rest| rest.split('`').next().unwrap())
        .collect();
    assert_eq!(listed, ROOMS);
}

#[test]
fn a_wrong_arrow_is_found() {
    let wrong = |room: &str, code: &str| {
        violations(&[Source {
            path: format!("{room}/x.rs").into(),
            room: room.into(),
            code: code.into(),
        }])
    };
    assert_eq!(
        wrong("tensor", "use crate::device::Cq;"),
        ["tensor/x.rs: tensor may not import device"]
    );
    assert_eq!(
        wrong("image", "use crate::{tensor::View, io::{bag, cdr}};").len(),
        1
    );
    assert_eq!(wrong("image", "fn f() { tokio::spawn(g()) }").len(), 1);
    assert_eq!(wrong("io", "unsafe { x() }").len(), 1);
    assert!(
        wrong(
            "io",
            "use crate::{pipeline::OnFull, tensor::{DType, View}}; use tokio::x;"
        )
        .is_empty()
    );
}
