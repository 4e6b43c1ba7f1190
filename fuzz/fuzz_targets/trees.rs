//! Lists of a commit's trees: any bytes, and a commit with its tree followed by any sizes.
#![no_main]
use std::io::Write;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_git::{HashKind, Kind, ObjectHasher, Oid};
use weir_repo::{CommitTrees, ListHasher, Region};

fn parse(commit: &Oid, list: &[u8]) {
    let mut hasher = ListHasher::new(commit.kind());
    let _ = list.chunks(7).try_for_each(|piece| hasher.push(piece)).and_then(|()| hasher.finish());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(list).unwrap();
    // SAFETY: no other process can open a file without a name, and nothing writes to it any more.
    let region = unsafe { Region::map(Arc::new(file), list.len() as u64) }.unwrap();
    let Ok(trees) = CommitTrees::parse(commit.kind(), commit, region.clone()) else { return };
    assert_eq!(trees.commit(), commit);
    assert!(trees.file_count() <= list.len());
    let again = CommitTrees::with_notes(commit.kind(), commit, region, &trees.notes()).unwrap();
    assert_eq!(again.file_count(), trees.file_count());
}

fn piece(data: &[u8]) -> Vec<u8> {
    [&(data.len() as u32).to_be_bytes()[..], data].concat()
}

fuzz_target!(|data: &[u8]| {
    for hash in [HashKind::Sha1, HashKind::Sha256] {
        let id = |kind, data: &[u8]| ObjectHasher::hash(hash, kind, data);
        let at = data.len() / 2;
        let (tree, sizes) = data.split_at(at);
        let Ok(top) = id(Kind::Tree, tree) else { continue };
        let commit = format!("tree {top}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\n").into_bytes();
        let Ok(oid) = id(Kind::Commit, &commit) else { continue };
        parse(&oid, data);
        let head = [&b"weir trees 1\n"[..], &piece(&commit), &1u32.to_be_bytes(), &piece(tree)].concat();
        parse(&oid, &[&head[..], sizes].concat());
        parse(&oid, &[&head[..13 + 4 + commit.len()], data].concat());
    }
});
