//! The imports between the files of a crate, read from their text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of modules, by the module's path within the crate. The crate's root has the path "".
pub type Modules = BTreeMap<String, PathBuf>;

pub fn modules(src: &Path) -> Modules {
    let (mut found, mut folders) = (Modules::new(), vec![src.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Some(name) = path.strip_prefix(src).unwrap().to_str().unwrap().strip_suffix(".rs") else {
                continue;
            };
            let name = name.strip_suffix("/mod").unwrap_or(name);
            let name = if matches!(name, "lib" | "main") { String::new() } else { name.replace('/', "::") };
            found.insert(name, path);
        }
    }
    found
}

/// Returns the code of a file, without comments and tests.
pub fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Parses the tree of a `use` at the start of `rest`. Adds its paths to `found`, each behind `before`.
/// Returns the text that follows the tree.
fn tree<'t>(before: &[String], rest: &'t str, found: &mut Vec<Vec<String>>) -> &'t str {
    let rest = rest.trim_start();
    if let Some(mut rest) = rest.strip_prefix('{') {
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            let after = tree(before, rest, found);
            if after.len() == rest.len() {
                return after;
            }
            rest = after;
        }
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let path = [before, &[rest[..end].to_owned()]].concat();
    match rest[end..].strip_prefix("::") {
        Some(more) => tree(&path, more, found),
        None => {
            found.push(path);
            // A new name (`as`) is not part of the path.
            rest[end..].strip_prefix(" as ").map_or(&rest[end..], |name| {
                name.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
            })
        }
    }
}

/// Returns the paths in `code` that follow `word`.
fn paths_from(code: &str, word: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(word) {
        if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            tree(&[], &code[at + word.len()..], &mut found);
        }
    }
    found
}

/// Returns the modules that each module names.
pub fn imports(modules: &Modules) -> BTreeMap<String, BTreeSet<String>> {
    // Modules may name an item that the crate exports by its exported name.
    let given: BTreeMap<String, String> = paths_from(&code(&modules[""]), "pub use ")
        .into_iter()
        .filter_map(|path| Some((path.last()?.clone(), path.first()?.clone())))
        .collect();
    let of = |name: &str, path: &Path| {
        let code = code(path);
        let parent = name.rsplit_once("::").map_or("", |(parent, _)| parent);
        let mut named = BTreeSet::new();
        let children = modules
            .keys()
            .filter_map(|module| module.strip_prefix(name)?.strip_prefix("::"))
            .filter(|child| !child.contains("::"));
        let children = children.map(|child| (format!("{name}::{child}"), format!("{child}::")));
        let words = [("", "crate::"), (parent, "super::"), (name, "self::")]
            .map(|(base, word)| (base.to_owned(), word.to_owned()));
        for (base, word) in words.into_iter().chain(children) {
            for path in paths_from(&code, &word) {
                let mut path: Vec<String> =
                    base.split("::").filter(|part| !part.is_empty()).map(str::to_owned).chain(path).collect();
                if let Some(module) =
                    path.first().filter(|_| path.len() == 1).and_then(|item| given.get(item))
                {
                    path = vec![module.clone()];
                }
                let longest = (1..=path.len())
                    .rev()
                    .map(|n| path[..n].join("::"))
                    .find(|module| modules.contains_key(module));
                named.extend(longest.filter(|module| module != name));
            }
        }
        named
    };
    modules
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, path)| (name.clone(), of(name, path)))
        .collect()
}

#[test]
fn paths_are_found() {
    let code =
        "use crate::a::{self, b::{C, D as E}, f};\nfn x() { crate::g::h(); mycrate::no(); }\nuse super::i;";
    let found: Vec<String> = paths_from(code, "crate::").iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a::self", "a::b::C", "a::b::D", "a::f", "g::h"]);
    assert_eq!(paths_from(code, "super::"), [["i"]]);
}
