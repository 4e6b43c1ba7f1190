//! A simulated disk under the archive. After a power failure it holds all that was synced, and any part of
//! the rest. Syncs may also lie, reads may fail, and bits may flip.
#![allow(dead_code)] // Each test file uses its own part.

use std::cell::{Cell, RefCell};
use std::io;

use weir_archive::{EndMark, Error, State, Storage, Tail, Writer, verify};
use weir_ground::{Epoch, Timestamp};

/// A generator (xorshift64*). Every run can be repeated from its seed.
pub struct Rng(pub u64);

impl Rng {
    /// Returns the generator of one round. Generators of consecutive rounds begin far apart.
    pub fn of(seed: u64, round: u64) -> Rng {
        Rng((seed.wrapping_add(round).wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// Returns `WEIR_SEED`, or a new seed from the clock. Prints it.
pub fn seed() -> u64 {
    let clock = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
            % 1_000_000_007
    };
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(clock);
    println!("WEIR_SEED={seed}");
    seed
}

/// An operation since the last sync.
enum Pending {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Mark(EndMark),
}

/// A disk whose cache can be lost in part.
#[derive(Default)]
pub struct Disk {
    durable: RefCell<Vec<u8>>,
    pub seen: RefCell<Vec<u8>>,
    pending: RefCell<Vec<Pending>>,
    mark: Cell<Option<EndMark>>,
    durable_mark: Cell<Option<EndMark>>,
    /// The length of the file beyond which writes fail.
    pub capacity: Cell<Option<u64>>,
    /// Whether syncs lie: they succeed, but make nothing durable.
    pub lose_syncs: Cell<bool>,
    /// The number of calls that change something until the power fails.
    pub power_left: Cell<Option<u64>>,
    /// The number of the sync that fails, and the count of syncs so far.
    pub sync_fails: Cell<Option<u64>>,
    pub syncs: Cell<u64>,
    /// Whether cutting the file fails.
    pub cut_fails: Cell<bool>,
    /// The range of bytes that cannot be read.
    pub unreadable: Cell<Option<(u64, u64)>>,
    /// The number of bytes that were read.
    pub bytes_read: Cell<u64>,
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
        Pending::Mark(_) => {}
    }
}

impl Disk {
    /// Returns the disk as a power failure may leave it. Any subset of the writes since the last sync has
    /// reached it, and each of them may be cut at any byte. Changes of the length are kept, in their order.
    pub fn after_power_cut(&self, rng: &mut Rng) -> Disk {
        let mut file = self.durable.borrow().clone();
        let mut mark = self.durable_mark.get();
        for op in self.pending.borrow().iter() {
            match (op, rng.below(3)) {
                (Pending::SetLen(_), _) | (Pending::Write(..), 0) => apply(&mut file, op, None),
                (Pending::Write(_, data), 1) => {
                    apply(&mut file, op, Some(rng.below(data.len() as u64 + 1) as usize))
                }
                (Pending::Mark(new), 0) => mark = Some(*new),
                _ => {}
            }
        }
        let disk = Disk::of(file);
        disk.mark.set(mark);
        disk.durable_mark.set(mark);
        disk
    }

    /// Returns a disk with the content `file` and without an end mark.
    pub fn of(file: Vec<u8>) -> Disk {
        Disk { durable: RefCell::new(file.clone()), seen: RefCell::new(file), ..Default::default() }
    }

    /// Returns the disk as a killed process leaves it: with every operation so far.
    pub fn copy(&self) -> Disk {
        let copy = Disk::of(self.seen.borrow().clone());
        copy.mark.set(self.mark.get());
        copy.durable_mark.set(self.mark.get());
        copy
    }

    /// Returns the disk without its end mark, as a copy of the file would be.
    pub fn unmarked(&self) -> Disk {
        Disk::of(self.seen.borrow().clone())
    }

    pub fn flip(&self, at: u64, bit: u64) {
        self.seen.borrow_mut()[at as usize] ^= 1 << bit;
        self.durable.borrow_mut().clone_from(&self.seen.borrow());
    }

    pub fn cut(&self, len: u64) {
        self.seen.borrow_mut().truncate(len as usize);
        self.durable.borrow_mut().clone_from(&self.seen.borrow());
    }

    fn power(&self) -> io::Result<()> {
        match self.power_left.get() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("no power")),
            Some(n) => {
                self.power_left.set(Some(n - 1));
                Ok(())
            }
        }
    }

    fn do_and_keep(&self, op: Pending) {
        apply(&mut self.seen.borrow_mut(), &op, None);
        self.pending.borrow_mut().push(op);
    }
}

impl Storage for Disk {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes_read.set(self.bytes_read.get() + buf.len() as u64);
        let end = offset + buf.len() as u64;
        if self.unreadable.get().is_some_and(|(from, to)| offset < to && from < end) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let seen = self.seen.borrow();
        let part = seen.get(offset as usize..end as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.power()?;
        let room =
            self.capacity.get().map_or(data.len(), |c| (c.saturating_sub(offset) as usize).min(data.len()));
        self.do_and_keep(Pending::Write(offset, data[..room].to_vec()));
        if room < data.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
    fn sync(&self) -> io::Result<()> {
        self.power()?;
        self.syncs.set(self.syncs.get() + 1);
        if self.sync_fails.get() == Some(self.syncs.get()) {
            return Err(io::Error::from_raw_os_error(5));
        }
        if !self.lose_syncs.get() {
            self.durable.borrow_mut().clone_from(&self.seen.borrow());
            self.durable_mark.set(self.mark.get());
            self.pending.borrow_mut().clear();
        }
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.seen.borrow().len() as u64)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.power()?;
        if self.cut_fails.get() {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.do_and_keep(Pending::SetLen(len));
        Ok(())
    }
    fn end_mark(&self) -> io::Result<Option<EndMark>> {
        Ok(self.mark.get())
    }
    fn set_end_mark(&self, mark: EndMark) {
        if self.power().is_ok() {
            self.mark.set(Some(mark));
            self.do_and_keep(Pending::Mark(mark));
        }
    }
}

/// Returns content that differs between commits and varies widely in size. Some of it looks like records and
/// headers.
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

/// Commits a group of some members.
pub fn append(writer: &mut Writer<&Disk>, rng: &mut Rng, n: u64) -> weir_archive::Result<State> {
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
        group.finish_reserved(
            reserved,
            &format!("objects/reserved-{n}"),
            data.len() as u64,
            sha2::Sha256::digest(&data).into(),
        )?;
    }
    group.set("n", n.to_string());
    group.commit(Timestamp::from(1_790_000_000 + n), Epoch::NONE)?;
    Ok(writer.state().expect("just committed").clone())
}

/// Creates an archive of `groups` groups. Returns it with the state after each group.
pub fn archive(rng: &mut Rng, groups: u64) -> (Disk, Vec<State>) {
    let disk = Disk::default();
    let mut writer = Writer::create(&disk, 1).unwrap();
    let states = (0..groups).map(|n| append(&mut writer, rng, n).unwrap()).collect();
    (disk, states)
}

/// Recovers the archive on `disk`. Returns its state, and the tail that was behind it. The archive must be
/// sound, and must accept another commit with an unused number.
pub fn recover(disk: &Disk, rng: &mut Rng) -> Result<(State, Option<Tail>), Error> {
    let mut kept = None;
    let mut writer = Writer::open_keeping(disk, |tail| {
        kept = Some(*tail);
        Ok(())
    })?;
    let state = writer.state().expect("opened").clone();
    assert_eq!(disk.seen.borrow().len() as u64, state.end(), "what is behind is cut off");
    assert_eq!(verify(&disk)?, [], "what is recovered is sound");
    let next = append(&mut writer, rng, 999)?;
    assert!(next.record.seq > kept.map_or(state.record.seq, |tail| tail.seq_max), "a number is given once");
    assert_eq!(verify(&disk)?, []);
    Ok((state, kept))
}
