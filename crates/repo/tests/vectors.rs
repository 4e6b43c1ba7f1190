//! The archives in `docs/vectors`, each with its listing: what a reader of the format must find in them.
//!
//! `WEIR_WRITE_VECTORS=1` rewrites the listings.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use weir_archive::Archive;
use weir_repo::{Head, Repo, fsck};

/// Returns the listing of an archive, as of its last commit that counts.
fn listing(path: &Path) -> String {
    let archive = Archive::open(path).unwrap();
    let state = archive.state();
    let mut text = format!("seq {}\nend {}\n", state.record.seq, state.end());
    for (name, member) in &state.members {
        let sum = weir_ground::hex(&member.sha256);
        writeln!(text, "member {} {} {sum} {name}", member.offset, member.len).unwrap();
    }
    for (key, value) in &state.attributes {
        writeln!(text, "attribute {key} {value}").unwrap();
    }
    let repo = Repo::open_archive(path).unwrap();
    match &repo.refs().head {
        Head::Symbolic(name) => writeln!(text, "HEAD {}", String::from_utf8_lossy(name)),
        Head::Detached(oid) => writeln!(text, "HEAD {oid}"),
    }
    .unwrap();
    for r in repo.refs().list() {
        writeln!(text, "ref {} {}", r.oid, String::from_utf8_lossy(&r.name)).unwrap();
    }
    for pack in repo.own_packs() {
        for n in 0..pack.index().count() {
            writeln!(text, "object {} {}", pack.index().oid(n), pack.name()).unwrap();
        }
    }
    let report = fsck(&repo).unwrap();
    assert!(report.problems.is_empty(), "{}: {:?}", path.display(), report.problems);
    writeln!(text, "behind the end: {}", report.unfinished.as_deref().unwrap_or("nothing")).unwrap();
    text
}

#[test]
fn vectors_are_as_they_are_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            count += 1;
            let (found, listed) = (listing(&path), path.with_extension("txt"));
            if std::env::var_os("WEIR_WRITE_VECTORS").is_some() {
                fs::write(&listed, &found).unwrap();
            }
            assert_eq!(found, fs::read_to_string(&listed).unwrap(), "{}", path.display());
        }
    }
    assert_eq!(count, 3);
}

#[test]
fn a_byte_that_is_changed_is_found() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors/two-commits.tar");
    let whole = fs::read(&path).unwrap();
    let dir = weir_testing::folder();
    let copy = dir.path().join("copy.tar");
    let with_flip = |offset: usize| {
        let mut data = whole.clone();
        data[offset] ^= 1;
        fs::write(&copy, &data).unwrap();
        Repo::open_archive(&copy)
    };
    let in_a_pack = fsck(&with_flip(8250).unwrap()).unwrap().problems;
    assert!(in_a_pack.iter().any(|problem| problem.contains("wrong checksum")), "{in_a_pack:?}");
    // No record is valid: the first record covers every header before it.
    assert!(with_flip(7700).is_err());
    // A flip in the second record: the archive is as of the first record, and the rest is doubtful.
    let before = with_flip(20_500).unwrap();
    assert_eq!(before.archive().unwrap().state().record.seq, 1);
    let doubtful = fsck(&before).unwrap().problems;
    assert!(doubtful[0].contains("may be a damaged or unfinished commit"), "{doubtful:?}");
}
