//! No files of a crate import each other in a circle, so that a reader of one knows which are below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::imports::{imports, modules};

/// Returns all modules that `from` imports, directly or through others.
fn reached(imports: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(at) = open.pop() {
        for next in imports.get(&at).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn files_import_only_what_is_below_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let imports = imports(&modules(&folder.join("src")));
        let in_circles = imports.keys().filter(|module| reached(&imports, module).contains(*module));
        wrong
            .extend(in_circles.map(|module| {
                format!("{name}: '{module}' is in a circle; it imports {:?}", imports[module])
            }));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
