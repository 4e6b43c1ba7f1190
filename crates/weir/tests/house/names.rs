//! No name of a type has two meanings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::imports::{code, modules};

/// Names that mean the same in every crate: its error and result, and a vector register.
const ALIKE: &[&str] = &["Error", "Result", "Vector"];

/// Returns the names of the types that `code` defines. Skips associated types, which belong to a trait.
fn types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let is_inner = line.starts_with(' ');
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let kind = words.next()?;
        let is_type = matches!(kind, "struct" | "enum" | "trait" | "union") || (kind == "type" && !is_inner);
        let name = words.next()?;
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        (is_type && end > 0).then(|| &name[..end])
    })
}

#[test]
fn no_type_has_the_name_of_another() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        for (module, path) in modules(&folder.join("src")) {
            for ty in types(&code(&path)) {
                places.entry(ty.to_owned()).or_default().push(format!("{name}::{module}"));
            }
        }
    }
    assert!(places.len() > 300, "{}", places.len());
    places.retain(|name, places| places.len() > 1 && !ALIKE.contains(&name.as_str()));
    let list: Vec<String> =
        places.iter().map(|(name, places)| format!("{name}: {}", places.join(", "))).collect();
    assert!(list.is_empty(), "types of one name:\n{}", list.join("\n"));
}
