//! Torn tails, flipped bits, full disks, forged records: after recovery the archive is in a committed state,
//! or the damage is reported (docs/archive-format.md, section 5).

mod common;

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use common::{Disk, Rng, append, archive, recover, seed};
use sha2::{Digest, Sha256};
use weir_archive::{Archive, Error, Replacement, Tail, TailKind, Takes, Writer, verify};
use weir_ground::{Epoch, Timestamp};

#[test]
fn torn_at_every_boundary() {
    let mut rng = Rng::of(seed(), 0);
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    let mut states = Vec::new();
    for n in 0..4 {
        let mut group = writer.begin();
        group.append_aligned("objects/pack/p.pack", format!("pack {n}").repeat(100).as_bytes()).unwrap();
        group.append("packed-refs", format!("refs {n}").as_bytes()).unwrap();
        group.commit(Timestamp(n), Epoch::NONE).unwrap();
        states.push(writer.state().unwrap().clone());
    }
    let whole = disk.seen.borrow().clone();
    // The file is cut at every byte of the last group, and at every block before.
    let last_start = states[2].end() as usize;
    let cuts = (0..last_start).step_by(512).chain(last_start..=whole.len());
    for cut in cuts {
        let expected = states.iter().rev().find(|s| s.end() <= cut as u64);
        // As the file system might leave it: cut, or zeroes up to the old length, or old garbage.
        for tail in 0..3 {
            let mut file = whole[..cut].to_vec();
            match tail {
                1 => file.resize(whole.len(), 0),
                2 => file.resize_with(whole.len(), || rng.below(256) as u8),
                _ => {}
            }
            // Garbage that happens to be what was there, down to the last byte, would be no damage.
            if tail == 2 && cut < whole.len() {
                file[cut] = !whole[cut];
            }
            match (Writer::open_keeping(&Disk::of(file), |_| Ok(())), expected) {
                (Ok(writer), Some(expected)) => assert_eq!(writer.state(), Some(expected), "cut at {cut}"),
                (Err(Error::NoCommit), None) => {}
                (other, _) => panic!("cut at {cut}: {:?}", other.err()),
            }
        }
        // With an end mark that names a later commit, opening reports that a commit is lost.
        let shorter = disk.copy();
        shorter.cut(cut as u64);
        match (Writer::open(&shorter).map(drop), expected) {
            (Ok(()), _) => assert_eq!(cut, whole.len()),
            (Err(Error::Tail(Tail { kind: TailKind::Committed, seq, seq_max: 4, .. })), Some(state)) => {
                assert_eq!(seq, state.record.seq)
            }
            (Err(Error::NoCommit), None) => {}
            (other, _) => panic!("cut at {cut}: {other:?}"),
        }
    }
}

#[test]
fn each_flipped_bit_is_told_of() {
    let seed = seed();
    let rounds = std::env::var("WEIR_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for round in 0..rounds {
        let mut rng = Rng::of(seed, round);
        let groups = 1 + rng.below(12);
        let (disk, states) = archive(&mut rng, groups);
        for _ in 0..25 {
            let at = rng.below(disk.seen.borrow().len() as u64);
            // Only a check of the whole archive finds a flip in padding.
            let last_start = states.iter().rev().nth(1).map_or(0, |state| state.end());
            let is_data_of_last = states
                .last()
                .unwrap()
                .members
                .values()
                .any(|m| m.offset >= last_start && (m.offset..m.offset + m.len).contains(&at));
            let (marked, unmarked) = (disk.copy(), disk.unmarked());
            for bad in [&marked, &unmarked] {
                bad.flip(at, rng.below(8));
                match verify(bad) {
                    Ok(damage) => assert!(
                        !damage.is_empty(),
                        "WEIR_SEED={seed}, round {round}: byte {at} was not noticed"
                    ),
                    Err(Error::NoCommit | Error::Damaged { .. }) => {}
                    Err(e) => panic!("WEIR_SEED={seed}, round {round}: byte {at}: {e}"),
                }
            }
            // Opening never returns an older state: it returns the last one, or an error.
            match Writer::open(&marked) {
                Ok(writer) => {
                    assert_eq!(writer.state(), states.last(), "WEIR_SEED={seed}, round {round}: byte {at}");
                    let is_synced = writer.state().unwrap().record.synced;
                    assert!(
                        is_synced || !is_data_of_last,
                        "WEIR_SEED={seed}, round {round}: byte {at} is of the last group"
                    );
                }
                Err(
                    Error::NoCommit
                    | Error::Damaged { .. }
                    | Error::Tail(Tail { kind: TailKind::Committed, .. }),
                ) => {}
                Err(e) => panic!("WEIR_SEED={seed}, round {round}: byte {at}: {e}"),
            }
            match Writer::open(&unmarked) {
                Ok(writer) => {
                    assert_eq!(writer.state(), states.last(), "WEIR_SEED={seed}, round {round}: byte {at}")
                }
                Err(Error::NoCommit | Error::Damaged { .. } | Error::Tail(_)) => {}
                Err(e) => panic!("WEIR_SEED={seed}, round {round}: byte {at}: {e}"),
            }
            // Recovery returns a state that was committed, and gives no number twice.
            if let Ok((state, _)) = recover_anyhow(&marked) {
                assert!(states.contains(&state), "WEIR_SEED={seed}, round {round}: byte {at}");
            }
        }
    }
}

/// Recovers the archive, but does not check that all of it is sound: there may be other damage.
fn recover_anyhow(disk: &Disk) -> Result<(weir_archive::State, u64), Error> {
    let known = disk.seen.borrow().len() as u64;
    let mut writer = Writer::open_keeping(disk, |_| Ok(()))?;
    let state = writer.state().unwrap().clone();
    let mut group = writer.begin();
    group.append("x", b"x")?;
    let seq = group.commit(Timestamp(1), Epoch::NONE)?.seq;
    assert!(state.end() == known || seq > state.record.seq + 1, "number {seq} was another commit's");
    Ok((state, seq))
}

#[test]
fn a_full_disk_changes_nothing() {
    let seed = seed();
    for round in 0..60 {
        let mut rng = Rng::of(seed, round);
        let (disk, states) = archive(&mut rng, 1);
        let mut writer = Writer::open(&disk).unwrap();
        disk.capacity.set(Some(states[0].end() + rng.below(20_000)));
        let result = append(&mut writer, &mut rng, 1);
        disk.capacity.set(None);
        let expected = match result {
            Ok(next) => next,
            Err(Error::Io(e)) => {
                assert_eq!(e.kind(), io::ErrorKind::StorageFull);
                states[0].clone()
            }
            Err(e) => panic!("{e}"),
        };
        assert_eq!(recover(&disk, &mut rng).unwrap(), (expected, None), "WEIR_SEED={seed}, round {round}");
    }
}

/// Returns a complete record for the offset `at`. An attacker can write it after running weir on the same
/// upstream.
fn forged(at: u64, previous: &str) -> Vec<u8> {
    let frame: String = Sha256::digest(b"").iter().map(|b| format!("{b:02x}")).collect();
    let mut text = format!(
        "weir-commit 2\nseq 99\nepoch 0\ntime 1\nstart {}\nprevious {previous}\nfull yes\nsynced yes\nframe \
        {frame}\nset owner attacker\n",
        at - 512
    );
    let total = (text.len() + 82).div_ceil(512) * 512;
    while text.len() < total - 82 {
        text.push('\n');
    }
    let sum: String = Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    text.push_str(&format!("end {total:012} {sum}\n"));
    text.into_bytes()
}

fn open(path: &Path) -> std::fs::File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn records_forged_inside_members_are_never_believed() {
    let mut rng = Rng::of(seed(), 0);
    let folder = weir_testing::folder();
    for round in 0..100 {
        let path = folder.path().join(format!("{round}.tar"));
        let mut writer = Writer::create(open(&path), 1).unwrap();
        let mut group = writer.begin();
        group.append("packed-refs", b"precious history").unwrap();
        group.commit(Timestamp(1), Epoch::NONE).unwrap();
        let end = writer.state().unwrap().end();
        let file = std::fs::read(&path).unwrap();
        let header_at =
            (0..file.len()).step_by(512).find(|&at| file[at..].starts_with(b"weir/commit\0")).unwrap();
        let header = &file[header_at..header_at + 512];
        // The next group is a pack or LFS object. An attacker chose its bytes, and knows at which offset it
        // will lie.
        let data_at = (end + 512).next_multiple_of(4096);
        let mut data: Vec<u8> = (0..300_000).map(|_| rng.below(256) as u8).collect();
        for place in (8192..260_000).step_by(4096 << rng.below(3)) {
            let at = data_at + place;
            let previous = match rng.below(3) {
                0 => "none".to_owned(),
                1 => format!("{} 512 {}", at - 1024, "0".repeat(64)),
                // A genuine record, which ends elsewhere.
                _ => format!("{} {} {}", end - 512, 512, "0".repeat(64)),
            };
            let record = forged(at, &previous);
            data[place as usize - 512..place as usize].copy_from_slice(header);
            data[place as usize..place as usize + record.len()].copy_from_slice(&record);
        }
        let is_aligned = rng.below(2) == 0;
        let mut group = writer.begin();
        match is_aligned {
            true => group.append_aligned("objects/pack/hostile.pack", &data).unwrap(),
            false => group.append("lfs/objects/00/11/0011", &data).unwrap(),
        }
        // A reader opens the archive meanwhile.
        let seen = |what: &str, path: &Path| {
            let read = Archive::open(path).unwrap();
            assert_eq!((read.state().record.seq, read.attribute("owner")), (1, None), "{what}");
        };
        seen("while it is written", &path);
        // The writer is killed, at any block, and the end mark is lost with a copy.
        let len = std::fs::metadata(&path).unwrap().len();
        let killed = folder.path().join("killed.tar");
        for _ in 0..8 {
            let cut = end + rng.below((len - end) / 512 + 1) * 512;
            std::fs::copy(&path, &killed).unwrap();
            open(&killed).set_len(cut).unwrap();
            seen("killed, and copied", &killed);
            let writer = Writer::open_keeping(open(&killed), |_| Ok(())).unwrap();
            assert_eq!(writer.state().unwrap().record.seq, 1, "the next writer");
        }
        group.commit(Timestamp(2), Epoch::NONE).unwrap();
        assert_eq!(Archive::open(&path).unwrap().state().record.seq, 2);
        assert_eq!(verify(&open(&path)).unwrap(), []);
    }
}

#[test]
fn opening_reads_as_much_whatever_a_member_holds() {
    let cost = |content: &[u8], is_marked: bool| {
        let disk = Disk::default();
        let mut writer = Writer::create(&disk, 1).unwrap();
        let mut group = writer.begin();
        group.append("big", &vec![1; 3 << 20]).unwrap();
        group.commit(Timestamp(1), Epoch::NONE).unwrap();
        let mut group = writer.begin();
        group.append_aligned("objects/pack/hostile.pack", content).unwrap();
        group.append("filler", &vec![1; 200_000]).unwrap();
        let copy = if is_marked { disk.copy() } else { disk.unmarked() };
        copy.bytes_read.set(0);
        assert_eq!(Writer::open(&copy).unwrap().state().unwrap().record.seq, 1);
        copy.bytes_read.get()
    };
    let mut ending = vec![b'x'; 512 - 82];
    ending.extend_from_slice(format!("end {:012} {}\n", 64 << 20, "0".repeat(64)).as_bytes());
    for is_marked in [true, false] {
        let plain = cost(&vec![b'x'; 512 * 4096], is_marked);
        let hostile = cost(&ending.repeat(4096), is_marked);
        assert_eq!(plain, hostile);
        assert!(plain < 20_000, "{plain} bytes were read to open it");
    }
}

#[test]
fn what_cannot_be_read_is_told_of_and_the_rest_is_looked_at() {
    let mut rng = Rng::of(seed(), 0);
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    for n in 0..3 {
        let mut group = writer.begin();
        group.append_aligned(&format!("objects/pack/{n}.pack"), &vec![n; 1_500_000]).unwrap();
        group.commit(Timestamp(1), Epoch::NONE).unwrap();
    }
    let member = |n: u8| *writer.state().unwrap().members.get(&format!("objects/pack/{n}.pack")).unwrap();
    let (unreadable, flipped) = (member(0), member(1));
    let bad = disk.copy();
    bad.flip(flipped.offset + rng.below(flipped.len), 3);
    bad.unreadable.set(Some((unreadable.offset + 4096, unreadable.offset + 8192)));
    let damage = verify(&bad).unwrap();
    assert_eq!(damage.len(), 2, "{damage:?}");
    assert!(
        damage[0].what.contains("cannot be read") && damage[1].what.contains("wrong checksum"),
        "{damage:?}"
    );
    // Opening reads none of these bytes.
    assert_eq!(Writer::open(&bad).unwrap().state(), writer.state());
    // An unreadable block of the last record is an error, and never the end of the archive.
    let end = writer.state().unwrap().end();
    bad.unreadable.set(Some((end - 512, end)));
    let Err(e) = Writer::open(&bad) else { panic!("it was opened") };
    assert!(e.is_unreadable(), "{e}");
    assert_eq!(bad.seen.borrow().len() as u64, end);
}

#[test]
fn an_archive_of_a_later_format_is_told_of_as_that() {
    let folder = weir_testing::folder();
    let path = folder.path().join("later.tar");
    let mut writer = Writer::create(std::fs::File::create_new(&path).unwrap(), 1).unwrap();
    for n in 1..3 {
        let mut group = writer.begin();
        group.append("file", b"content").unwrap();
        group.commit(Timestamp(n), Epoch(1)).unwrap();
    }
    drop(writer);
    let mut data = std::fs::read(&path).unwrap();
    // The last record gets another version, and its checksum.
    let start = data.windows(14).rposition(|bytes| bytes == b"weir-commit 2\n").unwrap();
    data[start + 12] = b'7';
    let sum_at = data.len() - 65;
    let end_line = data[start..].windows(5).rposition(|bytes| bytes == b"\nend ").unwrap() + start + 1;
    let sum = weir_ground::hex(&Sha256::digest(&data[start..end_line]));
    data[sum_at..sum_at + 64].copy_from_slice(sum.as_bytes());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &data).unwrap();
    for said in [Archive::open(&path).err().unwrap(), Archive::check_end(&path).unwrap_err()] {
        assert!(matches!(said, Error::Newer(7)), "{said}");
    }
    assert!(matches!(Writer::open(open(&path)), Err(Error::Newer(7))));
    assert_eq!(std::fs::read(&path).unwrap(), data);
}

#[test]
fn names_attributes_and_numbers_are_kept_apart() {
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 7).unwrap();
    let mut group = writer.begin();
    group.append("b", b"2").unwrap();
    assert!(matches!(group.append("b", b"3"), Err(Error::NameTwice(_))));
    assert!(matches!(group.append("weir/commit", b"3"), Err(Error::NameTwice(_))));
    assert_eq!(group.commit(Timestamp(1), Epoch::NONE).unwrap().seq, 7);
    for (key, value) in [("a b", "c"), ("a", "b\nseq 9"), ("", "x"), ("a\n", "x")] {
        let mut group = writer.begin();
        group.set(key, value);
        assert!(matches!(group.commit(Timestamp(2), Epoch::NONE), Err(Error::BadAttribute(_))), "{key:?}");
    }
    writer.skip_to(20);
    assert_eq!(writer.begin().commit(Timestamp(3), Epoch::NONE).unwrap().seq, 21);
    assert_eq!(verify(&&disk).unwrap(), []);
    // A new archive needs an empty file.
    assert!(matches!(Writer::create(&disk, 1), Err(Error::NotEmpty)));
}

#[test]
fn whoever_was_leased_it_before_is_refused() {
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    writer.begin().commit(Timestamp(1), Epoch(4)).unwrap();
    writer.begin().commit(Timestamp(2), Epoch(9)).unwrap();
    assert!(matches!(
        writer.begin().commit(Timestamp(3), Epoch(8)),
        Err(Error::Fenced { epoch: Epoch(8), highest: Epoch(9) })
    ));
    // A lower epoch is refused after the archive is reopened, too. A writer without a lease may write.
    let mut writer = Writer::open(&disk).unwrap();
    writer.begin().commit(Timestamp(4), Epoch::NONE).unwrap();
    assert!(matches!(writer.begin().commit(Timestamp(5), Epoch(4)), Err(Error::Fenced { .. })));
    assert_eq!(writer.begin().commit(Timestamp(6), Epoch(9)).unwrap().seq, 4);
}

#[test]
fn nobody_takes_a_place_they_have_not_looked_at() {
    let folder = weir_testing::folder();
    let path = folder.path().join("host/owner/a.tar");
    let make = |n: u8| {
        let replacement = Replacement::create(&path).unwrap();
        let mut writer = Writer::create(replacement.file().unwrap(), 1).unwrap();
        let mut group = writer.begin();
        group.append("n", &[n]).unwrap();
        group.commit(Timestamp(1), Epoch::NONE).unwrap();
        replacement
    };
    let stands = || Archive::open(&path).unwrap().member("n").unwrap()[0];
    let (first, second) = (make(1), make(2));
    first.persist(Takes::FreePlace).unwrap();
    assert!(matches!(second.persist(Takes::FreePlace), Err(Error::Exists)));
    assert_eq!(stands(), 1);
    // A writer that has the archive open and locked may replace it, once.
    let old = weir_archive::lock_existing(&path).unwrap();
    make(3).persist(Takes::PlaceOf(&old)).unwrap();
    assert_eq!(stands(), 3);
    assert!(matches!(make(4).persist(Takes::PlaceOf(&old)), Err(Error::Exists)));
    assert_eq!(stands(), 3);
    let left: Vec<_> =
        std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["a.tar"], "nothing half-made is left");
}

#[test]
fn long_chains_and_old_states() {
    let folder = weir_testing::folder();
    let path = folder.path().join("a.tar");
    let replacement = Replacement::create(&path).unwrap();
    let mut writer = Writer::create(weir_archive::LockedFile(replacement.file().unwrap()), 1).unwrap();
    for n in 0..200 {
        let mut group = writer.begin();
        group.append("packed-refs", format!("{n}").as_bytes()).unwrap();
        group.append(&format!("m{}", n % 70), b"x").unwrap();
        if n % 10 == 0 {
            group.drop_member("m3");
        }
        group.commit(Timestamp(n), Epoch::NONE).unwrap();
    }
    replacement.persist(Takes::FreePlace).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert!(archive.state().chain_len <= 65);
    assert_eq!(&*archive.member("packed-refs").unwrap(), b"199");
    assert_eq!(
        archive.records().map(|r| r.unwrap().seq).collect::<Vec<_>>(),
        (1..=200).rev().collect::<Vec<_>>()
    );
    let old = archive.at(17).unwrap().unwrap();
    assert_eq!(&*old.member("packed-refs").unwrap(), b"16");
    assert!(archive.at(777).unwrap().is_none());
    // A copy has no end mark, but the same state.
    let copied = folder.path().join("copied.tar");
    std::fs::write(&copied, std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(Archive::open(&copied).unwrap().state(), archive.state());
    // A second writer is kept out while the first lives.
    assert!(matches!(weir_archive::try_lock_existing(&path), Err(Error::Locked)));
    // A reader that uses a copy of its handle does not keep the lock when it is gone.
    let reader = writer.storage().0.try_clone().unwrap();
    drop(writer);
    assert!(weir_archive::try_lock_existing(&path).is_ok());
    drop(reader);
}

#[test]
fn one_folder_that_cannot_be_read_stops_nothing() {
    let folder = weir_testing::folder();
    let temporary = folder.path().join(format!("owner/.a.tar.1{}", weir_archive::TEMPORARY_SUFFIX));
    std::fs::create_dir_all(temporary.parent().unwrap()).unwrap();
    std::fs::write(&temporary, b"half").unwrap();
    // This folder cannot be read, like one that is removed meanwhile. (Root may read any other folder.)
    std::os::unix::fs::symlink("/nowhere", folder.path().join("lost+found")).unwrap();
    let (removed, _) = weir_archive::remove_stale(folder.path()).unwrap();
    assert_eq!(removed, 1);
    assert!(!temporary.exists());
}
