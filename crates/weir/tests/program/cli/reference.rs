//! The book's reference of commands, and the manual pages, match the program.

use std::fmt::Write as _;
use std::path::Path;

/// Runs `weir` with an empty environment, and returns its output.
fn said(args: &[&str]) -> String {
    let mut weir = weir_testing::command(env!("CARGO_BIN_EXE_weir"));
    let output = weir.args(args).env_clear().output().unwrap();
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the group titles and command names of a help text. Titles start in column 1, commands in column 3.
fn listed(help: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let lists = help.lines().skip_while(|line| !line.ends_with(':')).take_while(|line| *line != "Options:");
    lists.filter(|line| !line.starts_with("   ")).filter_map(|line| match line.strip_prefix("  ") {
        Some(command) => command.split(' ').next().map(|name| ("", Some(name))),
        None => line.strip_suffix(':').map(|title| (title, None)),
    })
}

fn add_command(page: &mut String, depth: usize, words: &[&str]) {
    let help = said(&[&["help"], words].concat());
    let heading = "#".repeat(depth);
    writeln!(page, "{heading} weir {}\n\n```text\n{}\n```\n", words.join(" "), help.trim_end()).unwrap();
    if help.contains("\nCommands:\n") {
        let below = listed(&help).filter_map(|(_, name)| name).filter(|name| *name != "help");
        below.for_each(|name| add_command(page, depth + 1, &[words, &[name]].concat()));
    }
}

#[test]
fn the_reference_tells_of_every_command() {
    let mut page = String::from("# Commands\n\nThis page is what `weir help COMMAND` prints. Written by\n");
    page += "`WEIR_WRITE_REFERENCE=1 cargo test -p weir --test program reference`.\n\n";
    let help = said(&["--help"]);
    for (title, command) in listed(&help) {
        match command {
            Some(command) => add_command(&mut page, 3, &[command]),
            None => writeln!(page, "## {title}\n").unwrap(),
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/reference/commands.md");
    if std::env::var_os("WEIR_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written == page, "{} is not what the program says; see its first lines", path.display());
}

#[test]
fn manual_pages_have_the_sections_that_readers_look_for() {
    let folder = weir_testing::folder();
    said(&["man", folder.path().to_str().unwrap()]);
    let pages: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 40 && pages.iter().any(|path| path.ends_with("weir-config-check.1")), "{pages:?}");
    for path in pages {
        let page = std::fs::read_to_string(&path).unwrap();
        for section in ["NAME", "SYNOPSIS", "ENVIRONMENT", "FILES", "\"EXIT STATUS\""] {
            let count = page.lines().filter(|line| line.strip_prefix(".SH ") == Some(section)).count();
            assert_eq!(count, 1, "{}: {section}", path.display());
        }
        let is_first = path.ends_with("weir.1");
        assert!(
            !page.contains(".SH EXTRA") && page.contains(".SH EXAMPLES") == is_first,
            "{}",
            path.display()
        );
    }
}
