//! The trees of a commit, listed for another machine.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use weir_git::{HashKind, Oid, TreeIter};
use weir_repo::{CommitTrees, ListHasher, Region, Repo, open_directory, write_commit_trees};
use weir_testing::run_git;

fn oid_of(at: &Path, revision: &str) -> Oid {
    Oid::from_hex_any(run_git(at, &["rev-parse", revision], b"").trim_ascii()).unwrap()
}

fn region(data: &[u8]) -> Region {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data).unwrap();
    // SAFETY: no other process can open a file without a name, and nothing writes to it any more.
    unsafe { Region::map(Arc::new(file), data.len() as u64) }.unwrap()
}

/// Makes a repository: equal folders, a link, a submodule, an empty file and a large one.
fn sample(at: &Path, hash: &str) -> Repo {
    run_git(at, &["init", "-q", "--bare", "--object-format", hash, "."], b"");
    let mut stream = b"commit refs/heads/main\ncommitter C <c@x> 1 +0000\ndata 1\nx\n".to_vec();
    let mut file = |mode: &str, path: &str, content: &[u8]| {
        let head = format!("M {mode} inline {path}\ndata {}\n", content.len());
        stream.extend([head.as_bytes(), content, b"\n"].concat());
    };
    for folder in ["a", "b", "deep/er"] {
        file("644", &format!("{folder}/equal"), b"equal\n");
    }
    file("755", "run", &[b'x'; 70_000]);
    file("644", "empty", b"");
    file("120000", "link", b"a/equal");
    stream
        .extend(format!("M 160000 {} module\n\n", "1".repeat(if hash == "sha1" { 40 } else { 64 })).bytes());
    run_git(at, &["fast-import", "--quiet"], &stream);
    open_directory(at).unwrap()
}

#[test]
fn a_list_has_all_trees_and_sizes() {
    for (name, hash) in [("sha1", HashKind::Sha1), ("sha256", HashKind::Sha256)] {
        let folder = weir_testing::folder();
        let at = folder.path();
        let repo = sample(at, name);
        let commit = oid_of(at, "main");
        let list = write_commit_trees(&repo, &commit).unwrap();
        let trees = CommitTrees::parse(hash, &commit, region(&list)).unwrap();
        assert_eq!(trees.commit(), &commit);
        let files = run_git(at, &["ls-tree", "-r", "main"], b"");
        assert_eq!(trees.entry_count().unwrap() as usize, files.split(|byte| *byte == b'\n').count() - 1);
        assert_eq!(trees.commit_data(), run_git(at, &["cat-file", "commit", "main"], b""));
        for folder in ["main:", "main:a", "main:b", "main:deep", "main:deep/er"] {
            let oid = oid_of(at, folder);
            let (data, sizes) = trees.tree(&oid).unwrap();
            let mut sizes = sizes.into_iter();
            for entry in TreeIter::new(hash, data).map(Result::unwrap) {
                if entry.is_tree() || entry.is_gitlink() {
                    continue;
                }
                let oid = Oid::from_bytes(hash, entry.id).unwrap().to_string();
                let size = run_git(at, &["cat-file", "-s", &oid], b"");
                assert_eq!(sizes.next().unwrap().unwrap().to_string().as_bytes(), size.trim_ascii());
            }
            assert!(sizes.next().is_none());
        }
        assert!(trees.tree(&commit).is_err());
        assert!(write_commit_trees(&repo, &oid_of(at, "main:a")).is_err());
    }
}

/// A file that is missing hides no other.
#[test]
fn a_missing_file_has_no_size() {
    let folder = weir_testing::folder();
    let at = folder.path();
    run_git(at, &["init", "-q", "--bare", "."], b"");
    let line = format!("100644 blob {}\tgone\n", "1".repeat(40));
    let tree = run_git(at, &["mktree", "--missing"], line.as_bytes());
    let tree = String::from_utf8(tree).unwrap();
    let commit = run_git(at, &["commit-tree", "-m", "x", tree.trim()], b"");
    let commit = Oid::from_hex_any(commit.trim_ascii()).unwrap();
    let repo = open_directory(at).unwrap();
    let list = write_commit_trees(&repo, &commit).unwrap();
    let trees = CommitTrees::parse(HashKind::Sha1, &commit, region(&list)).unwrap();
    let top = Oid::from_hex_any(tree.trim().as_bytes()).unwrap();
    assert_eq!(trees.tree(&top).unwrap().1.collect::<Vec<_>>(), [None]);
}

/// Changes each bit of a list, and cuts it everywhere. The parser accepts a change of a size only.
#[test]
fn a_changed_list_is_refused() {
    let folder = weir_testing::folder();
    let repo = sample(folder.path(), "sha1");
    let commit = oid_of(folder.path(), "main");
    let list = write_commit_trees(&repo, &commit).unwrap();
    let parse = |list: &[u8]| CommitTrees::parse(HashKind::Sha1, &commit, region(list));
    // Six files, one of them with three bytes of size.
    let size_bytes = 3 + 5;
    for at in 0..list.len() {
        assert!(parse(&list[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut changed = list.clone();
            changed[at] ^= 1 << bit;
            assert!(parse(&changed).is_err() || at >= list.len() - size_bytes, "bit {bit} of byte {at}");
        }
    }
    assert!(parse(&[&list[..], b"\0"].concat()).is_err());
    // A file without bytes is never read, and so never checked.
    for at in list.len() - size_bytes..list.len() {
        if list[at] > 0x7f || list[at - 1] > 0x7f {
            continue;
        }
        let mut changed = list.clone();
        changed[at] = if changed[at] == 0 { 1 } else { 0 };
        assert!(parse(&changed).is_err(), "size at {at}");
    }
    let other = Oid::from_hex_any(&[b'2'; 40]).unwrap();
    assert!(CommitTrees::parse(HashKind::Sha1, &other, region(&list)).is_err());
}

/// A list is hashed while it arrives, in whichever pieces.
#[test]
fn a_list_arrives_in_any_pieces() {
    for (name, hash) in [("sha1", HashKind::Sha1), ("sha256", HashKind::Sha256)] {
        let folder = weir_testing::folder();
        let repo = sample(folder.path(), name);
        let commit = oid_of(folder.path(), "main");
        let list = write_commit_trees(&repo, &commit).unwrap();
        for len in [1, 3, 50, list.len()] {
            let mut hasher = ListHasher::new(hash);
            list.chunks(len).for_each(|piece| hasher.push(piece).unwrap());
            let hashed = hasher.finish().unwrap();
            assert!(hashed.contains(&oid_of(folder.path(), "main:deep/er")));
            let trees = CommitTrees::with_hashed(hash, &commit, region(&list), &hashed).unwrap();
            assert_eq!(trees.tree(&oid_of(folder.path(), "main:a")).unwrap().1.count(), 1);
        }
        // The trees of another list; and a tree that is there twice.
        let size = u32::from_be_bytes(list[13..17].try_into().unwrap()) as usize;
        let head = &list[..17 + size];
        let first = u32::from_be_bytes(list[head.len() + 4..][..4].try_into().unwrap()) as usize;
        let tree = &list[head.len() + 4..][..4 + first];
        for count in [1_u32, 2] {
            let other = [head, &count.to_be_bytes(), &tree.repeat(count as usize)].concat();
            let mut hasher = ListHasher::new(hash);
            hasher.push(&other).unwrap();
            let hashed = hasher.finish().unwrap();
            assert!(CommitTrees::with_hashed(hash, &commit, region(&list), &hashed).is_err());
            let sizes = [1_u8; 8];
            let other = [&other[..], &sizes[..2 * count as usize]].concat();
            assert!(CommitTrees::parse(hash, &commit, region(&other)).is_err());
        }
        // The sizes of six files follow the trees.
        let mut endless = ListHasher::new(hash);
        endless.push(&list).unwrap();
        assert!((0..100).any(|_| endless.push(&[0; 10]).is_err()));
        let mut cut = ListHasher::new(hash);
        cut.push(&list[..60]).unwrap();
        assert!(cut.finish().is_err());
        assert!(ListHasher::new(hash).push(b"weir forests 1\n").is_err());
        let huge = [&b"weir trees 1\n"[..], &u32::MAX.to_be_bytes()].concat();
        assert!(ListHasher::new(hash).push(&huge).is_err());
        // More trees than memory should hold, however small.
        let mut many = ListHasher::new(hash);
        many.push(&[&b"weir trees 1\n"[..], &[0; 4]].concat()).unwrap();
        assert!(many.push(&u32::MAX.to_be_bytes()).is_err());
    }
}

/// With its notes, a list is read without a look at its trees, which are checked when they are read.
#[test]
fn a_list_with_notes_is_checked_as_it_is_read() {
    for (name, hash) in [("sha1", HashKind::Sha1), ("sha256", HashKind::Sha256)] {
        let folder = weir_testing::folder();
        let at = folder.path();
        let repo = sample(at, name);
        let (commit, other) = (oid_of(at, "main"), oid_of(at, "main:a"));
        let list = write_commit_trees(&repo, &commit).unwrap();
        let trees = CommitTrees::parse(hash, &commit, region(&list)).unwrap();
        let notes = trees.notes();
        let read = |list: &[u8], notes: &[u8]| CommitTrees::with_notes(hash, &commit, region(list), notes);
        let again = read(&list, &notes).unwrap();
        assert_eq!(again.notes(), notes);
        assert_eq!(again.file_count(), trees.file_count());
        let all = ["main:", "main:a", "main:deep", "main:deep/er"].map(|name| oid_of(at, name));
        for oid in &all {
            let ((data, sizes), (known, known_sizes)) = (again.tree(oid).unwrap(), trees.tree(oid).unwrap());
            assert_eq!((data, sizes.collect::<Vec<_>>()), (known, known_sizes.collect()));
        }
        for n in 0..notes.len() {
            let mut changed = notes.clone();
            changed[n] ^= 4;
            assert!(read(&list, &changed).is_err(), "byte {n}");
            assert!(read(&list, &notes[..n]).is_err(), "cut at {n}");
        }
        assert!(CommitTrees::with_notes(hash, &other, region(&list), &notes).is_err());
        // What changes in the list is found by the reader of a tree at the latest.
        for n in 0..list.len() {
            let mut changed = list.clone();
            changed[n] ^= 4;
            let Ok(read) = read(&changed, &notes) else { continue };
            // The notes have the lengths of trees, too.
            let is_same = |oid: &Oid| {
                let ((data, sizes), (known, known_sizes)) =
                    (read.tree(oid).unwrap(), trees.tree(oid).unwrap());
                data == known && sizes.eq(known_sizes)
            };
            assert!(all.iter().any(|oid| read.tree(oid).is_err()) || all.iter().all(is_same), "byte {n}");
        }
    }
}
