//! The files, modules and items that documents name exist.

use std::fs;
use std::path::{Path, PathBuf};

use crate::imports::{code, modules};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|one| one == extension) {
            found.push(path);
        }
    }
}

/// Returns the documents: those at the top, and all below `docs`.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&workspace().join("docs"), "md", &mut found);
    let top = fs::read_dir(workspace()).unwrap().map(|entry| entry.unwrap().path());
    found.extend(top.filter(|path| path.extension().is_some_and(|one| one == "md")));
    found
}

/// Returns the words between single backticks in `text`, with line numbers.
fn quoted(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().flat_map(move |(n, line)| {
        in_block ^= line.trim_start().starts_with("```");
        let words = if in_block { "" } else { line };
        words.split('`').skip(1).step_by(2).map(move |word| (n + 1, word))
    })
}

/// Returns whether `path` exists: from the top, from `crates`, or below the sources of one of the crates.
fn is_there(path: &str) -> bool {
    let crates = fs::read_dir(workspace().join("crates")).unwrap();
    workspace().join(path).exists()
        || workspace().join("crates").join(path).exists()
        || path
            .split_once('/')
            .is_some_and(|(name, rest)| workspace().join("crates").join(name).join("src").join(rest).exists())
        || crates.flatten().any(|one| one.path().join("src").join(path).exists())
}

/// Returns whether `item` is a module of the crate `name`, or an item that its code defines.
fn is_of_crate(name: &str, item: &str) -> bool {
    let modules = modules(&workspace().join("crates").join(name).join("src"));
    let defines = |path: &PathBuf| {
        let code = code(path);
        ["struct", "enum", "trait", "fn", "type", "const", "static", "macro_rules!"].iter().any(|word| {
            code.match_indices(&format!("{word} {item}")).any(|(at, found)| {
                !code[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        })
    };
    modules.keys().any(|module| module.rsplit("::").next() == Some(item)) || modules.values().any(defines)
}

#[test]
fn paths_and_items_in_documents_are_there() {
    let crates: Vec<String> = fs::read_dir(workspace().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (line, word) in quoted(&text) {
            let is_path = [".rs", ".py", ".sh", ".md"].iter().any(|end| word.ends_with(end))
                && word.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_./".contains(&c));
            let item = word.split_once("::").filter(|(name, _)| crates.iter().any(|one| one == name));
            let is_right = match item {
                Some((name, item)) => {
                    let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
                    end == 0 || is_of_crate(name, &item[..end])
                }
                None if is_path => is_there(word),
                None => continue,
            };
            seen += 1;
            if !is_right {
                wrong.push(format!("{}:{line}: {word}", document.display()));
            }
        }
    }
    assert!(seen > 80, "{seen}");
    assert!(wrong.is_empty(), "named, and not there:\n{}", wrong.join("\n"));
}

#[test]
fn documents_that_code_names_are_there() {
    let mut sources = Vec::new();
    files(&workspace().join("crates"), "rs", &mut sources);
    let mut wrong = Vec::new();
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        let comments = text.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
        let mut before = "";
        for line in comments {
            // git-lfs has a folder `docs`, too.
            let is_ours = !line.contains("git-lfs") && !before.contains("git-lfs");
            for word in line.split(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c)) {
                let is_named = word.starts_with("docs/") && word.ends_with(".md");
                if is_named && is_ours && !workspace().join(word).exists() {
                    wrong.push(format!("{}: {word}", source.display()));
                }
            }
            before = line;
        }
    }
    assert!(wrong.is_empty(), "named, and not there:\n{}", wrong.join("\n"));
}

#[test]
fn messages_that_the_book_explains_are_in_the_code() {
    let mut sources = Vec::new();
    files(&workspace().join("crates"), "rs", &mut sources);
    // A text may go on in the next line.
    let joined = |source: &PathBuf| -> String {
        let text = fs::read_to_string(source).unwrap();
        text.split("\\\n").map(str::trim_start).collect()
    };
    let code: String = sources.iter().map(joined).collect();
    let page = fs::read_to_string(workspace().join("docs/book/src/troubles.md")).unwrap();
    let messages: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .flat_map(|message| message.split('…'))
        .map(str::trim)
        .filter(|part| part.len() > 5)
        .collect();
    assert!(messages.len() > 40, "{}", messages.len());
    let wrong: Vec<&&str> = messages.iter().filter(|part| !code.contains(**part)).collect();
    assert!(wrong.is_empty(), "the book explains messages that nobody writes: {wrong:#?}");
}

/// Returns the anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || " -_".contains(c);
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| kept(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Returns the targets of all links in a Markdown document, with line numbers. Skips code.
fn links(text: &str) -> Vec<(usize, String)> {
    let (mut in_block, mut found) = (false, Vec::new());
    for (n, line) in text.lines().enumerate() {
        in_block ^= line.trim_start().starts_with("```");
        let words = if in_block { "" } else { line };
        let prose: String = words.split('`').step_by(2).collect::<Vec<_>>().join("code");
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.map(|(target, _)| (n + 1, target.to_owned())));
    }
    found
}

#[test]
fn links_in_documents_lead_somewhere() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (line, link) in links(&text).into_iter().filter(|(_, link)| !link.contains("://")) {
            seen += 1;
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let is_heading = |text: &str| {
                let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
                heading.is_empty() || headings.map(anchor).any(|one| one == heading)
            };
            let is_right = match fs::read_to_string(&target) {
                Ok(text) => is_heading(&text),
                Err(_) => target.exists() && heading.is_empty(),
            };
            if !is_right {
                wrong.push(format!("{}:{line}: {link}", document.display()));
            }
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}
