//! A spool gives back what was appended, whatever happens to its files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_events::{EventSpool, FrameRecords, SpoolError, SpoolOptions, SpoolReader};

const SMALL: SpoolOptions = SpoolOptions { bytes_max: 1 << 20, segment_bytes: 400 };

/// Returns the text of record `number`.
fn text(number: u64) -> String {
    format!("record {number} {}", "x".repeat(number as usize % 13))
}

/// Appends frames of one to three records until record `last`.
fn fill(spool: &mut EventSpool, last: u64) {
    while spool.last() < last {
        let mut records = FrameRecords::default();
        let first = spool.last() + 1;
        for number in first..=last.min(first + first % 3) {
            assert!(records.push(&[b"record ", &text(number).as_bytes()["record ".len()..]]));
        }
        spool.append(&records).unwrap();
    }
}

/// Returns the numbers of all records that are left, whose texts are right.
fn drain(reader: &mut SpoolReader) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let read = reader.read(7, &mut |number, record| {
            assert_eq!(String::from_utf8_lossy(record), text(number));
            numbers.push(number);
        });
        if read.unwrap() == 0 {
            return numbers;
        }
    }
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "spool")).collect();
    found.sort();
    found
}

#[test]
fn what_was_appended_is_read_in_order_and_then_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    let mut reader = spool.reader(0);
    assert!(!reader.wait(Duration::from_millis(1)));
    fill(&mut spool, 100);
    assert!(reader.wait(Duration::ZERO));
    assert_eq!((reader.waiting(), segments(folder.path()).len() > 5), (100, true));
    assert_eq!(drain(&mut reader), (1..=100).collect::<Vec<_>>());
    // It goes on where it was, also in another process.
    let id = spool.id();
    reader.release(50).unwrap();
    assert!(matches!(EventSpool::open(folder.path(), SMALL), Err(SpoolError::InUse(_))));
    drop(spool);
    assert!(!reader.wait(Duration::from_secs(600)), "nobody writes any more");
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    assert_eq!((spool.id(), spool.last()), (id, 100));
    fill(&mut spool, 120);
    let mut reader = spool.reader(77);
    assert_eq!(drain(&mut reader), (78..=120).collect::<Vec<_>>());
    reader.release(120).unwrap();
    assert_eq!(segments(folder.path()).len(), 1);
    assert_eq!(reader.lost(), 0);
}

#[test]
fn a_full_spool_takes_no_more_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SpoolOptions { bytes_max: 2000, ..SMALL }).unwrap();
    let mut records = FrameRecords::default();
    assert!(records.push(&[text(1).as_bytes()]));
    let mut count = 0;
    let full = loop {
        match spool.append(&records) {
            Ok(_) => count += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(full, SpoolError::Full { .. }) && full.to_string().contains("is full"), "{full}");
    let mut reader = spool.reader(0);
    assert_eq!(reader.read(1000, &mut |_, _| {}).unwrap(), count);
    reader.release(spool.last()).unwrap();
    assert_eq!(spool.append(&records).unwrap(), count as u64 + 1);
}

#[test]
fn a_record_that_is_too_large_for_a_frame_is_refused() {
    let mut records = FrameRecords::default();
    assert!(!records.push(&[&vec![0; 4 << 20]]) && records.is_empty());
    assert!(records.push(&[&vec![0; 4000]]) && records.len() == 1);
}

/// Wherever the last write was torn, what came before it is there, and more can be appended.
#[test]
fn a_torn_tail_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SpoolOptions::default()).unwrap();
    fill(&mut spool, 6);
    let path = segments(folder.path()).pop().unwrap();
    let before = std::fs::metadata(&path).unwrap().len();
    fill(&mut spool, 7);
    drop(spool);
    let whole = std::fs::read(&path).unwrap();
    for end in before..whole.len() as u64 {
        for zeros in [0, 5000] {
            // A file may have grown before its bytes were written.
            let torn = [&whole[..end as usize], &vec![0; zeros]].concat();
            std::fs::write(&path, torn).unwrap();
            let mut spool = EventSpool::open(folder.path(), SpoolOptions::default()).unwrap();
            assert_eq!(spool.last(), 6, "{end} {zeros}");
            fill(&mut spool, 9);
            let mut reader = spool.reader(0);
            assert_eq!(drain(&mut reader), (1..=9).collect::<Vec<_>>());
            assert_eq!(reader.lost(), 0);
        }
    }
}

/// A small generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % max
    }
}

/// Damages a file in one way, and returns the range of bytes that are not as they were.
fn damage(path: &Path, random: &mut Random) -> (u64, u64) {
    let length = std::fs::metadata(path).unwrap().len();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let at = random.below(length);
    match random.below(5) {
        // Cut somewhere, or to nothing.
        0 => file.set_len(at).map(|()| (at, length)).unwrap(),
        1 => file.set_len(0).map(|()| (0, length)).unwrap(),
        // Half a page of zeros, or of anything.
        2 => {
            let end = length.min(at + 200);
            file.write_all_at(&vec![0; (end - at) as usize], at).map(|()| (at, end)).unwrap()
        }
        3 => {
            let garbage: Vec<u8> = (0..random.below(300)).map(|_| random.below(256) as u8).collect();
            let end = length.min(at + garbage.len() as u64);
            file.write_all_at(&garbage[..(end - at) as usize], at).map(|()| (at, end)).unwrap()
        }
        // Far longer than a segment may be.
        _ => file.set_len(3 << 30).map(|()| (length, length)).unwrap(),
    }
}

/// Returns the frames of a segment: where each begins and ends, and its first and last number.
fn frames(path: &Path) -> Vec<(u64, u64, u64, u64)> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut found) = (32, Vec::new());
    while at < bytes.len() {
        let number = |from: usize, to: usize| {
            let mut value = [0; 8];
            value[..to - from].copy_from_slice(&bytes[at + from..at + to]);
            u64::from_le_bytes(value)
        };
        let (length, first, count) = (number(4, 8), number(8, 16), number(16, 20));
        let end = at as u64 + 24 + length;
        found.push((at as u64, end, first, first + count - 1));
        at = end as usize;
    }
    found
}

#[test]
fn whatever_is_damaged_what_is_sound_is_delivered() {
    for seed in 0..150 {
        let mut random = Random(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
        fill(&mut spool, 60);
        drop(spool);
        let files = segments(folder.path());
        let hit = &files[random.below(files.len() as u64) as usize];
        let whole: Vec<_> = files.iter().map(|file| (file, frames(file))).collect();
        let (from, to) = damage(hit, &mut random);
        let sound: Vec<u64> = whole
            .iter()
            .flat_map(|(file, frames)| frames.iter().map(move |frame| (*file, frame)))
            .filter(|(file, (begin, end, ..))| *file != hit || *end <= from || *begin >= to)
            .flat_map(|(_, (_, _, first, last))| *first..=*last)
            .collect();
        let began = Instant::now();
        let options = SpoolOptions { bytes_max: 1 << 30, ..SMALL };
        let mut spool = EventSpool::open(folder.path(), options).unwrap();
        assert!(began.elapsed() < Duration::from_secs(1), "seed {seed}");
        let mut records = FrameRecords::default();
        assert!(records.push(&[b"later"]));
        let later = spool.append(&records).unwrap();
        let (mut delivered, mut has_later) = (Vec::new(), false);
        let mut reader = spool.reader(0);
        while reader
            .read(5, &mut |number, record| match number == later {
                true => has_later = record == b"later",
                false => {
                    assert_eq!(String::from_utf8_lossy(record), text(number), "seed {seed}");
                    delivered.push(number);
                }
            })
            .unwrap()
            > 0
        {}
        assert!(has_later, "seed {seed}");
        let missing: Vec<_> = sound.iter().filter(|number| !delivered.contains(number)).collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?} of {hit:?} {from} to {to}");
        assert!(delivered.is_sorted_by(|a, b| a < b), "seed {seed}: {delivered:?}");
    }
}

#[test]
fn a_spool_that_lost_its_files_uses_no_number_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    fill(&mut spool, 60);
    drop(spool);
    let files = segments(folder.path());
    files[1..].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    let mut reader = spool.reader(60);
    let mut records = FrameRecords::default();
    assert!(records.push(&[text(61).as_bytes()]));
    assert_eq!(spool.append(&records).unwrap(), 61);
    assert_eq!(drain(&mut reader), [61]);
}

#[test]
fn a_spool_of_a_newer_version_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    fill(&mut spool, 3);
    drop(spool);
    let path = segments(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 2;
    let sum = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let error = EventSpool::open(folder.path(), SMALL).unwrap_err().to_string();
    assert!(error.contains("has version 2") && error.contains("use a newer weir"), "{error}");
}

#[test]
fn a_full_spool_of_one_segment_takes_more_once_that_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let options = SpoolOptions { bytes_max: 2000, segment_bytes: 1 << 20 };
    let mut spool = EventSpool::open(folder.path(), options).unwrap();
    let mut reader = spool.reader(0);
    let mut records = FrameRecords::default();
    assert!(records.push(&[&[b'x'; 100]]));
    for _ in 0..5 {
        while spool.append(&records).is_ok() {}
        while reader.read(1000, &mut |_, _| {}).unwrap() > 0 {}
        reader.release(spool.last()).unwrap();
        assert!(spool.append(&records).is_ok());
    }
    assert!(spool.last() > 20 && spool.bytes() <= 2000);
}

#[test]
fn what_is_no_segment_does_not_count_and_what_is_damaged_keeps_the_id() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    fill(&mut spool, 40);
    let id = spool.id();
    drop(spool);
    let files = segments(folder.path());
    files.iter().for_each(|file| {
        OpenOptions::new().write(true).open(file).unwrap().write_all_at(&[0; 32], 0).unwrap();
    });
    // A pipe that nobody writes to, a link, and a segment of another spool.
    let name = |number: u64| folder.path().join(format!("{number:020}.spool"));
    // Not by a program: for a moment, a child has the locks of all tests.
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, name(5000), kind, mode, 0).unwrap();
    std::os::unix::fs::symlink("/dev/zero", name(6000)).unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut foreign = EventSpool::open(other.path(), SMALL).unwrap();
    fill(&mut foreign, 3);
    std::fs::copy(&segments(other.path())[0], name(7000)).unwrap();
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    assert_eq!((spool.id(), spool.last()), (id, 40));
    let mut reader = spool.reader(0);
    assert_eq!(drain(&mut reader), (1..=40).collect::<Vec<_>>());
}

#[test]
fn a_spool_whose_files_somebody_deletes_goes_on_in_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SMALL).unwrap();
    let mut reader = spool.reader(0);
    fill(&mut spool, 5);
    assert_eq!(drain(&mut reader), (1..=5).collect::<Vec<_>>());
    segments(folder.path()).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    fill(&mut spool, 9);
    assert!(!segments(folder.path()).is_empty());
    assert_eq!(drain(&mut reader), (6..=9).collect::<Vec<_>>());
}
