//! A simulated disk under the archive: torn writes, lost syncs, flipped bits, a full disk. After recovery the archive is
//! exactly a committed state, or the damage is named (docs/archive-format.md, section 5).

use std::cell::{Cell, RefCell};
use std::io;

use weir_archive::{Error, State, Storage, Writer, verify};

/// xorshift64*: every run can be made again from its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// What has been asked of the disk since the last sync.
enum Pending {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

/// A disk whose cache can be lost in part.
#[derive(Default)]
struct Disk {
    durable: RefCell<Vec<u8>>,
    seen: RefCell<Vec<u8>>,
    pending: RefCell<Vec<Pending>>,
    /// Fails writes beyond this many bytes of file.
    capacity: Cell<Option<u64>>,
    /// Makes syncs lie.
    lose_syncs: Cell<bool>,
}

fn apply(file: &mut Vec<u8>, op: &Pending, part: Option<usize>) {
    match op {
        Pending::Write(offset, data) => {
            let data = &data[..part.unwrap_or(data.len())];
            let end = *offset as usize + data.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[*offset as usize..end].copy_from_slice(data);
        }
        Pending::SetLen(len) => file.resize(*len as usize, 0),
    }
}

impl Disk {
    /// What is there after the power fails: of the writes since the last sync any subset, the last kept one cut at any byte.
    fn after_power_cut(&self, rng: &mut Rng) -> Disk {
        let mut file = self.durable.borrow().clone();
        for op in self.pending.borrow().iter() {
            match rng.below(3) {
                0 => apply(&mut file, op, None),
                1 => {
                    if let Pending::Write(_, data) = op {
                        apply(&mut file, op, Some(rng.below(data.len() as u64 + 1) as usize));
                    }
                }
                _ => {}
            }
        }
        Disk::of(file)
    }

    fn of(file: Vec<u8>) -> Disk {
        Disk { durable: RefCell::new(file.clone()), seen: RefCell::new(file), ..Default::default() }
    }
}

impl Storage for Disk {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let seen = self.seen.borrow();
        let part = seen.get(offset as usize..offset as usize + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let room = self.capacity.get().map_or(data.len(), |c| (c.saturating_sub(offset) as usize).min(data.len()));
        let op = Pending::Write(offset, data[..room].to_vec());
        apply(&mut self.seen.borrow_mut(), &op, None);
        self.pending.borrow_mut().push(op);
        if room < data.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
    fn sync(&self) -> io::Result<()> {
        if !self.lose_syncs.get() {
            *self.durable.borrow_mut() = self.seen.borrow().clone();
            self.pending.borrow_mut().clear();
        }
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.seen.borrow().len() as u64)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let op = Pending::SetLen(len);
        apply(&mut self.seen.borrow_mut(), &op, None);
        self.pending.borrow_mut().push(op);
        Ok(())
    }
}

fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("WEIR_SEED={seed}");
    seed
}

/// Content that is different for each commit, of very different sizes; some of it looks like records and headers.
fn content(rng: &mut Rng, decoy: &[u8]) -> Vec<u8> {
    let len = [0, 1, 511, 512, 513, 5000, 70_000, 1_300_000][rng.below(8) as usize];
    let mut data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
    if len >= 5000 && !decoy.is_empty() {
        let at = (rng.below(len as u64 - 4096) as usize) & !511;
        let n = decoy.len().min(len - at);
        data[at..at + n].copy_from_slice(&decoy[..n]);
    }
    data
}

fn append(writer: &mut Writer<&Disk>, rng: &mut Rng, n: u64) -> weir_archive::Result<State> {
    let decoy: Vec<u8> = {
        let seen = writer.storage().seen.borrow();
        let from = seen.len().saturating_sub(1024);
        seen[from..].to_vec()
    };
    let mut group = writer.begin();
    group.append_aligned(&format!("objects/pack/pack-{n}.pack"), &content(rng, &decoy))?;
    group.append("packed-refs", format!("refs {n}").as_bytes())?;
    if rng.below(3) == 0 {
        let reserved = group.reserve_aligned()?;
        let data = content(rng, &decoy);
        group.storage().write_all_at(&data, reserved.offset)?;
        use sha2::Digest;
        group.finish_reserved(reserved, &format!("objects/reserved-{n}"), data.len() as u64, sha2::Sha256::digest(&data).into())?;
    }
    group.set("n", n.to_string());
    group.commit(1_790_000_000 + n, 0)?;
    Ok(writer.state().expect("just committed").clone())
}

/// The state that a disk is recovered to, which must be sound and accept another commit.
fn recover(disk: &Disk, rng: &mut Rng) -> Result<State, Error> {
    let mut writer = Writer::open(disk)?;
    let state = writer.state().expect("opened").clone();
    assert_eq!(disk.seen.borrow().len() as u64, state.end(), "a torn tail is cut");
    assert_eq!(verify(&disk)?, [], "what is recovered is sound");
    append(&mut writer, rng, 999)?;
    assert_eq!(verify(&disk)?, []);
    Ok(state)
}

#[test]
fn power_cuts_leave_a_committed_state() {
    let seed = seed();
    for round in 0..150 {
        let mut rng = Rng(seed + round * 1000);
        let disk = Disk::default();
        let mut states: Vec<State> = Vec::new();
        let mut writer = Writer::create(&disk, 1).unwrap();
        for n in 0..rng.below(6) {
            states.push(append(&mut writer, &mut rng, n).unwrap());
        }
        // Cut in the middle of one more: keep only some of its operations.
        let before = Disk::of(disk.durable.borrow().clone());
        let mut writer = if states.is_empty() { Writer::create(&before, 1).unwrap() } else { Writer::open(&before).unwrap() };
        before.lose_syncs.set(true);
        let next = append(&mut writer, &mut rng, 50).unwrap();
        let total = before.pending.borrow().len() as u64;
        let keep = rng.below(total + 1) as usize;
        before.pending.borrow_mut().truncate(keep);
        let after = before.after_power_cut(&mut rng);
        match recover(&after, &mut rng) {
            Ok(state) => assert!(state == next || states.last() == Some(&state), "seed {seed}, round {round}: a state never committed"),
            Err(Error::NoCommit) => assert!(states.is_empty(), "seed {seed}, round {round}: all lost"),
            Err(e) => panic!("seed {seed}, round {round}: {e}"),
        }
    }
}

#[test]
fn torn_at_every_boundary() {
    let mut rng = Rng(seed());
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    let mut states = Vec::new();
    for n in 0..4 {
        let mut group = writer.begin();
        group.append_aligned("objects/pack/p.pack", format!("pack {n}").repeat(100).as_bytes()).unwrap();
        group.append("packed-refs", format!("refs {n}").as_bytes()).unwrap();
        group.commit(n, 0).unwrap();
        states.push(writer.state().unwrap().clone());
    }
    let whole = disk.durable.borrow().clone();
    // At every byte of the last group, and at every block before.
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
            let torn = Disk::of(file);
            match (Writer::open(&torn), expected) {
                (Ok(writer), Some(expected)) => assert_eq!(writer.state(), Some(expected), "cut at {cut}"),
                (Err(Error::NoCommit), None) => {}
                (other, _) => panic!("cut at {cut}: {:?}", other.err()),
            }
        }
    }
}

#[test]
fn flipped_bits_are_named_or_change_nothing() {
    let seed = seed();
    let mut rng = Rng(seed);
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    let mut states = Vec::new();
    for n in 0..5 {
        states.push(append(&mut writer, &mut rng, n).unwrap());
    }
    let whole = disk.durable.borrow().clone();
    for _ in 0..400 {
        let mut file = whole.clone();
        let at = rng.below(file.len() as u64) as usize;
        file[at] ^= 1 << rng.below(8);
        let bad = Disk::of(file);
        match verify(&bad) {
            Ok(damage) if damage.is_empty() => {
                // Noticed when it was opened: the last group does not count any more.
                let state = Writer::open(&bad).unwrap().state().cloned();
                assert!(states[..4].iter().any(|s| Some(s) == state.as_ref()), "seed {seed}: bit at {at} was not noticed");
            }
            Ok(damage) => assert!(!damage[0].what.is_empty()),
            Err(Error::NoCommit | Error::Damaged { .. }) => {}
            Err(e) => panic!("seed {seed}: bit at {at}: {e}"),
        }
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let seed = seed();
    for round in 0..60 {
        let mut rng = Rng(seed + round);
        let disk = Disk::default();
        let mut writer = Writer::create(&disk, 1).unwrap();
        let state = append(&mut writer, &mut rng, 0).unwrap();
        disk.capacity.set(Some(state.end() + rng.below(20_000)));
        let result = append(&mut writer, &mut rng, 1);
        disk.capacity.set(None);
        let expected = match result {
            Ok(next) => next,
            Err(Error::Io(e)) => {
                assert_eq!(e.kind(), io::ErrorKind::StorageFull);
                state
            }
            Err(e) => panic!("{e}"),
        };
        assert_eq!(recover(&disk, &mut rng).unwrap(), expected, "seed {seed}, round {round}");
    }
}

#[test]
fn a_lost_sync_is_noticed_by_verify() {
    let seed = seed();
    for round in 0..60 {
        let mut rng = Rng(seed + round);
        let disk = Disk::default();
        let mut writer = Writer::create(&disk, 1).unwrap();
        let first = append(&mut writer, &mut rng, 0).unwrap();
        disk.lose_syncs.set(true);
        let second = append(&mut writer, &mut rng, 1).unwrap();
        let after = disk.after_power_cut(&mut rng);
        // Opening trusts a sync it was promised; verify looks at every byte.
        let damage = verify(&after).unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
        let state = Writer::open(&after).unwrap().state().cloned().unwrap();
        assert!(state == first || state == second, "seed {seed}, round {round}: a state never committed");
        assert!(state == second || damage.is_empty(), "seed {seed}, round {round}: what was durable is not damaged");
    }
}

#[test]
fn a_record_inside_a_member_is_not_taken_for_one() {
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    let mut group = writer.begin();
    group.append("HEAD", b"ref: refs/heads/main\n").unwrap();
    group.commit(1, 0).unwrap();
    let state = writer.state().unwrap().clone();
    let forged = disk.durable.borrow().clone();
    // A whole archive as the content of a member, and the power fails just behind it.
    let mut group = writer.begin();
    group.append_aligned("objects/pack/hostile.pack", &forged).unwrap();
    group.append("filler", &[0; 512]).unwrap();
    group.commit(2, 0).unwrap();
    let whole = disk.durable.borrow().clone();
    for cut in (state.end() as usize..whole.len()).step_by(512) {
        let torn = Disk::of(whole[..cut].to_vec());
        assert_eq!(Writer::open(&torn).unwrap().state(), Some(&state), "cut at {cut}");
    }
}

#[test]
fn long_chains_and_old_states() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let replacement = weir_archive::Replacement::create(&path).unwrap();
    let mut writer = Writer::create(weir_archive::LockedFile(replacement.file().unwrap()), 1).unwrap();
    for n in 0..200 {
        let mut group = writer.begin();
        group.append("packed-refs", format!("{n}").as_bytes()).unwrap();
        group.append(&format!("m{}", n % 70), b"x").unwrap();
        if n % 10 == 0 {
            group.drop_member("m3");
        }
        group.commit(n, 0).unwrap();
    }
    replacement.persist().unwrap();
    let archive = weir_archive::Archive::open(&path).unwrap();
    assert!(archive.state().chain_len <= 65);
    assert_eq!(&*archive.member("packed-refs").unwrap(), b"199");
    assert_eq!(archive.records().unwrap().len(), 200);
    let old = archive.at(17).unwrap().unwrap();
    assert_eq!(&*old.member("packed-refs").unwrap(), b"16");
    assert!(archive.at(777).unwrap().is_none());
    // A second writer is kept out while the first lives.
    assert!(matches!(weir_archive::try_lock_existing(&path), Err(Error::Locked)));
    // A reader that uses a copy of its handle does not keep the lock when it is gone.
    let reader = writer.storage().0.try_clone().unwrap();
    drop(writer);
    assert!(weir_archive::try_lock_existing(&path).is_ok());
    drop(reader);
}
