//! An older state that lacks an object. Archives may have such states from before weir refused them.

use std::borrow::Cow;
use std::path::Path;

use weir_git::{HashKind, Oid, OidSet};
use weir_ground::{Epoch, Timestamp};
use weir_repo::ingest::{IngestLimits, IngestOptions, Ingested, SpillPlace, ingest};
use weir_repo::{
    ArchiveRepo, Head, NamedState, NewState, Ref, RefClass, Refs, Repo, Rewrite, Sharing, StateKind,
};
use weir_testing::run_git;

fn git(at: &Path, args: &[&str], input: &str) -> Vec<u8> {
    run_git(at, args, input.as_bytes())
}

fn oid(at: &Path, args: &[&str]) -> Oid {
    Oid::from_hex_any(git(at, args, "").trim_ascii()).unwrap()
}

fn take(pack: &[u8], base: Option<&Repo>, lost: &[Oid]) -> weir_repo::Result<Option<Ingested>> {
    let options = IngestOptions {
        hash: HashKind::Sha1,
        limits: IngestLimits::default(),
        threads: 1,
        base,
        wanted: &[],
        shallow: &OidSet::default(),
        lost: &lost.iter().copied().collect(),
        delta_bytes_max: 1 << 20,
        progress: &weir_repo::Progress::default(),
        arriving: None,
    };
    ingest(&mut &pack[..], &spill, &options)
}

fn spill(_: u64) -> std::io::Result<SpillPlace> {
    Ok(SpillPlace::unlimited(tempfile::tempfile()?))
}

fn state(refs: &Refs, time: u64) -> NewState<'_> {
    NewState {
        refs: Cow::Borrowed(refs),
        shallow: &[],
        time: Timestamp::from(time),
        epoch: Epoch::NONE,
        kind: StateKind::Mirrored,
    }
}

#[test]
fn a_hole_in_an_older_state_stays_one_and_keeps_nothing_else_from_being_compacted() {
    let folder = weir_testing::folder();
    let at = folder.path();
    git(at, &["init", "-q", "--bare", "."], "");
    let tree = oid(at, &["mktree"]);
    let commit = |message: &str, parents: &[&Oid]| {
        let parents: Vec<String> = parents.iter().flat_map(|p| ["-p".to_owned(), p.to_string()]).collect();
        let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
        oid(at, &[&["commit-tree", "-m", message, &tree.to_string()], &parents[..]].concat())
    };
    let gone = commit("gone", &[]);
    let (older, now) = (commit("older", &[&gone]), commit("now", &[]));
    let pack = |oids: &[&Oid]| {
        let list: String = oids.iter().map(|oid| format!("{oid}\n")).collect();
        git(at, &["pack-objects", "-q", "--stdout"], &list)
    };
    assert!(take(&pack(&[&older, &tree]), None, &[]).is_err());
    let path = at.join("a.tar");
    let mut archive = ArchiveRepo::create(&path, HashKind::Sha1, 1).unwrap();
    let refs =
        |oid| Refs::new(vec![Ref { name: b"refs/heads/main".to_vec(), oid, peeled: None }], Head::default());
    let added = take(&pack(&[&older, &tree]), None, &[gone]).unwrap().unwrap();
    archive.commit(Some((RefClass::HeadsAndTags, added)), state(&refs(older), 1)).unwrap();
    let base = archive.base_for(RefClass::HeadsAndTags).unwrap();
    let added = take(&pack(&[&now]), base.as_ref(), &[]).unwrap().unwrap();
    archive.commit(Some((RefClass::HeadsAndTags, added)), state(&refs(now), 2)).unwrap();
    drop(archive);
    let whole = std::fs::read(&path).unwrap();
    let assert_states = || {
        let repo = Repo::open_archive(&path).unwrap();
        let tip = |state| Some(repo.at_state(state).unwrap()?.refs().list()[0].oid);
        let [at_first, at_second, before] = [1, 2, 0].map(|time| tip(NamedState::Until(Timestamp(time))));
        assert_eq!((at_first, at_second, before), (Some(older), Some(now), None));
        let [first, second, none, later] = [1, 2, 0, 3].map(|number| tip(NamedState::Number(number)));
        assert_eq!((first, second, none), (Some(older), Some(now), None));
        // The compaction is a commit, too.
        assert_eq!(later, (repo.archive().unwrap().state().record.seq == 3).then_some(now));
    };
    assert_states();

    let how = Rewrite { sharing: Sharing::Keep, time: Timestamp(3), threads: 1, spill: &spill };
    weir_repo::compact(&path, &how).unwrap();
    assert_states();
    let repo = Repo::open_archive(&path).unwrap();
    assert!(weir_repo::fsck(&repo).unwrap().problems.is_empty());
    assert_eq!(repo.refs_at(1).unwrap().unwrap().list()[0].oid, older);
    assert!(repo.contains(&older) && !repo.contains(&gone));
    assert_eq!(
        (repo.history().first_missing([older]).unwrap(), repo.history().first_missing([now]).unwrap()),
        (Some(gone), None)
    );

    // An object that is missing because of the disk is damage.
    let mut changed = whole.clone();
    let index = changed.windows(20).position(|w| w == older.as_bytes()).unwrap();
    changed[index + 19] ^= 1;
    // This writes a new file: what is known of the end of the old file does not hold for it.
    let put = |data: &[u8]| {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, data).unwrap();
    };
    put(&changed);
    assert!(matches!(weir_repo::compact(&path, &how), Err(weir_repo::Error::Missing(_))));
    // An object that the current refs lead to must not be missing, either.
    put(&whole);
    let mut archive = ArchiveRepo::open(&path).unwrap();
    archive.commit(None, state(&refs(older), 3)).unwrap();
    drop(archive);
    assert!(matches!(weir_repo::compact(&path, &how), Err(weir_repo::Error::Missing(oid)) if oid == gone));
}
