//! Listings of folders.

use std::fs;
use std::path::Path;

use weir_forge::{AccountsPage, Error, Folder, Forge, Listed, MetadataKind, MetadataPage, Page, Usage};
use weir_ground::Timestamp;

use crate::text;

fn repository(path: &Path, head: &str, description: Option<&str>) {
    fs::create_dir_all(path.join("objects")).unwrap();
    fs::write(path.join("HEAD"), head).unwrap();
    if let Some(description) = description {
        fs::write(path.join("description"), description).unwrap();
    }
}

#[test]
fn folder_listing_finds_git_directories_at_any_depth() {
    let folder = weir_testing::folder();
    let at = |path: &str| folder.path().join(path);
    repository(&at("bare.git"), "ref: refs/heads/main\n", Some("A bare one\n"));
    repository(&at("bare.git/inner.git"), "ref: refs/heads/main\n", None);
    repository(&at("deep/tree/.git"), "ref: refs/heads/trunk\n", Some("Unnamed repository; edit this\n"));
    repository(&at("detached.git"), "0123456789\n", Some(" \n"));
    // Neither of these is a git directory.
    fs::create_dir_all(at("half/objects")).unwrap();
    fs::create_dir_all(at("other")).unwrap();
    fs::write(at("other/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::os::unix::fs::symlink(at("bare.git"), at("link.git")).unwrap();
    let listed = |id: &str, path: &str| Listed {
        forge_id: id.to_owned(),
        full_name: id.trim_end_matches(".git").to_owned(),
        clone_url: at(path).to_str().unwrap().to_owned(),
        ..Listed::default()
    };
    let bare = Listed {
        description: text("A bare one"),
        default_branch: text("main"),
        ..listed("bare.git", "bare.git")
    };
    let tree = Listed { default_branch: text("trunk"), ..listed("deep/tree", "deep/tree/.git") };
    let repositories = vec![bare.clone(), tree.clone(), listed("detached.git", "detached.git")];
    let mut forge = Folder::new(folder.path());
    assert_eq!((forge.start(), forge.is_one_list()), ("", true));
    assert_eq!(forge.page("").unwrap(), Page { repositories, ..Page::default() });
    assert_eq!(forge.one("bare.git").unwrap(), Some(bare));
    assert_eq!(forge.one("deep/tree").unwrap(), Some(tree));
    assert_eq!(forge.one("gone").unwrap(), None);
    assert_eq!(forge.usage(), Usage::default());
    assert!(matches!(Folder::new(&at("gone")).page(""), Err(Error::Io { .. })));
}

#[test]
fn folder_listing_ends_at_a_depth() {
    let folder = weir_testing::folder();
    for (levels, count) in [(31, 1), (32, 1), (33, 0)] {
        let root = folder.path().join(levels.to_string());
        let mut path = root.clone();
        (0..levels).for_each(|_| path.push("d"));
        repository(&path, "x", None);
        assert_eq!(Folder::new(&root).page("").unwrap().repositories.len(), count, "{levels}");
    }
}

#[test]
fn folder_has_no_accounts_no_metadata_and_no_limits() {
    let mut forge = Folder::new(Path::new("/"));
    forge.expect_public(true);
    forge.remember(&[]);
    assert_eq!((forge.accounts_start(), forge.accounts("x").unwrap()), (None, AccountsPage::default()));
    assert!(forge.metadata_streams(&[MetadataKind::Issues]).is_empty());
    let last = MetadataPage { is_last: true, ..MetadataPage::default() };
    assert_eq!(forge.metadata("1", "issues", None, Timestamp(7)).unwrap(), last);
    assert!(forge.hook_deliveries().is_none() && forge.budgets().is_empty());
}
