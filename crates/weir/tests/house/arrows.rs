//! The arrows between crates are those ARCHITECTURE.md draws, and no others.

use std::collections::BTreeMap;
use std::path::Path;

/// What each crate may build on.
const ARROWS: &[(&str, &[&str])] = &[
    ("git", &[]),
    ("archive", &[]),
    ("catalog", &[]),
    ("forge", &["catalog"]),
    ("repo", &["archive", "git"]),
    ("transport", &["git"]),
    ("upload", &["archive", "git", "repo"]),
    ("serve", &["archive", "git", "repo", "upload"]),
    ("mirror", &["catalog", "git", "repo", "transport"]),
    ("bench", &["catalog", "git", "repo"]),
    ("weir", &["archive", "catalog", "forge", "git", "mirror", "repo", "serve", "transport", "upload"]),
];

#[test]
fn crates_build_only_on_what_is_below_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let allowed = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crate '{name}' has no row in this test and ARCHITECTURE.md"));
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        for line in dependencies.lines() {
            if let Some(dependency) = line.strip_prefix("weir-").and_then(|l| l.split(['.', ' ', '=']).next())
            {
                assert!(allowed.contains(&dependency), "crate '{name}' must not build on '{dependency}'");
            }
        }
    }
}

#[test]
fn no_library_prints() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<_> = ARROWS
        .iter()
        .filter(|a| !matches!(a.0, "weir" | "bench"))
        .map(|a| crates.join(a.0).join("src"))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for forbidden in ["println!(", "eprintln!(", "print!(", "dbg!(", "std::env::var"] {
                assert!(!code.contains(forbidden), "{}: {forbidden}", path.display());
            }
        }
    }
}
