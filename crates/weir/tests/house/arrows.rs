//! The dependencies between crates, and between the rooms of a crate, are those that ARCHITECTURE.md draws.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::imports::{code, imports, modules};

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn architecture() -> String {
    fs::read_to_string(crates().parent().unwrap().join("ARCHITECTURE.md")).unwrap()
}

/// Returns the crates of the picture from the top floor to the ground, each with the crates that it builds
/// on.
fn drawn() -> Vec<(String, BTreeSet<String>)> {
    let text = architecture();
    let picture = text.split("```").nth(1).expect("a picture");
    let lines = picture.lines().filter_map(|line| line.split_once("->"));
    lines
        .map(|(name, below)| (name.trim().to_owned(), below.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

/// Returns the rows of the table whose header starts with `header`: the first cell, and the cells behind it.
fn table(header: &str) -> Vec<(String, Vec<String>)> {
    let text = architecture();
    let rows = text.lines().skip_while(|line| !line.starts_with(header)).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            (cells.next().unwrap().trim_matches('`').to_owned(), cells.collect())
        })
        .collect()
}

/// Returns the crates that the manifest of each crate names.
fn built() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = |path: &Path| {
        let text = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let dependencies = text.split("[dev-dependencies]").next().unwrap().to_owned();
        let named = |line: &str| Some(line.strip_prefix("weir-")?.split(['.', ' ', '=']).next()?.to_owned());
        dependencies.lines().filter_map(named).collect()
    };
    fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), manifest(&path)))
        .collect()
}

#[test]
fn crates_build_on_what_the_picture_shows_and_nothing_else() {
    let drawn = drawn();
    assert_eq!(drawn.iter().cloned().collect::<BTreeMap<_, _>>(), built());
    for (floor, (name, below)) in drawn.iter().enumerate() {
        let is_below = |other: &String| drawn[floor + 1..].iter().any(|(lower, _)| lower == other);
        assert!(below.iter().all(is_below), "{name} builds on a crate that is drawn above it: {below:?}");
    }
}

#[test]
fn each_crate_has_a_row() {
    let rows: BTreeSet<String> = table("| crate | what it is").into_iter().map(|(name, _)| name).collect();
    assert_eq!(rows, built().into_keys().collect());
}

#[test]
fn rooms_import_only_from_rooms_below() {
    let table = table("| crate | rooms");
    assert!(!table.is_empty());
    for (name, cells) in table {
        let rooms: Vec<&str> = cells[0].split('`').filter(|room| !room.trim().is_empty()).collect();
        let imports = imports(&modules(&crates().join(&name).join("src")));
        // Files beside the rooms are below all of them.
        let floor = |module: &str| {
            let room = module.split("::").next().unwrap();
            rooms.iter().position(|one| *one == room).map_or(0, |floor| floor + 1)
        };
        let folders: BTreeSet<&str> =
            imports.keys().filter_map(|module| Some(module.split_once("::")?.0)).collect();
        assert_eq!(folders, rooms.iter().copied().collect(), "rooms of {name}");
        for (module, below) in &imports {
            for other in below {
                assert!(
                    floor(other) <= floor(module),
                    "{name}: '{module}' imports '{other}' of a room above it"
                );
            }
        }
    }
}

#[test]
fn no_command_imports_another() {
    let imports = imports(&modules(&crates().join("weir/src")));
    let command = |module: &str| module.strip_prefix("commands::")?.split("::").next().map(str::to_owned);
    for (module, below) in &imports {
        for other in below.iter().filter_map(|other| command(other)) {
            assert!(
                module == "commands" || command(module).as_ref() == Some(&other),
                "'{module}' imports the command '{other}': what both need stands beside commands"
            );
        }
    }
}

#[test]
fn no_library_prints() {
    let mut folders: Vec<_> = drawn()
        .into_iter()
        .filter(|(name, _)| !matches!(name.as_str(), "weir" | "bench" | "testing"))
        .map(|(name, _)| crates().join(name).join("src"))
        .collect();
    // A service manager speaks to a process by its environment, and so does the process before it.
    let heeds_environment = crates().join("process");
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            // Examples in comments print.
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            let code: Vec<&str> = code.lines().filter(is_code).collect();
            let code = code.join("\n");
            let may_read = path.starts_with(&heeds_environment);
            let environment = (!may_read).then_some("std::env::var");
            for forbidden in ["println!(", "eprintln!(", "print!(", "dbg!("].into_iter().chain(environment) {
                assert!(!code.contains(forbidden), "{}: {forbidden}", path.display());
            }
        }
    }
}

/// A library may be used by another program, which has no such commands.
#[test]
fn libraries_name_no_command_and_no_flag() {
    const ADVICE: [&str; 5] = ["'weir ", "raise --", "use --", "(--", "with --"];
    // Datasets of older weirs have their settings as flags.
    let stores_flags = crates().join("tables/src/settings.rs");
    let is_of_program = |name: &str| ["weir", "arguments", "bench", "stage", "testing"].contains(&name);
    for (name, _) in drawn().into_iter().filter(|(name, _)| !is_of_program(name)) {
        for path in modules(&crates().join(&name).join("src")).values().filter(|path| **path != stores_flags)
        {
            let code = code(path);
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            for line in code.lines().filter(is_code) {
                // A command is followed by a verb; keys and magic numbers are not.
                let advice = ADVICE.into_iter().find(|advice| line.contains(advice));
                let is_key = ["lock(", "LOCKS", "MAGIC", "chain_update"].iter().any(|key| line.contains(key));
                assert!(advice.is_none() || is_key, "{}: {line}", path.display());
            }
        }
    }
}

/// `std::thread::spawn` and `Scope::spawn` panic if the process has too many threads.
#[test]
fn a_thread_that_cannot_be_started_is_an_error() {
    // In a test, it may panic.
    for (name, _) in drawn().into_iter().filter(|(name, _)| name != "testing") {
        for path in modules(&crates().join(&name).join("src")).values() {
            let code = code(path);
            for forbidden in ["thread::spawn(", "scope.spawn("] {
                assert!(
                    !code.contains(forbidden),
                    "{}: {forbidden} (see weir_ground::thread)",
                    path.display()
                );
            }
        }
    }
}
