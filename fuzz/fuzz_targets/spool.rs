//! Spools: any bytes behind the head of a segment, and any bytes as the whole of it. A record after them is
//! delivered. Lines and records are any bytes, too.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_events::{EventSpool, FrameRecords, Notice, ReceivedLine, SpoolOptions};

fn read(segment: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(format!("{:020}.spool", 1)), segment).unwrap();
    let Ok(mut spool) = EventSpool::open(folder.path(), SpoolOptions::default()) else { return };
    let mut records = FrameRecords::default();
    assert!(records.push(&[b"last"]));
    let last = spool.append(&records).unwrap();
    let (mut before, mut has_last) = (0, false);
    let mut each = |number: u64, record: &[u8]| {
        assert!(number > before, "numbers grow");
        before = number;
        has_last = number == last && record == b"last";
    };
    let mut reader = spool.reader(0);
    while reader.read(100, &mut each).unwrap() > 0 {}
    assert!(has_last);
}

fuzz_target!(|data: &[u8]| {
    let _ = Notice::parse(data);
    if let Some(line) = ReceivedLine::parse(data) {
        assert!(line.line.len() + line.peer.len() < data.len());
    }
    read(data);
    let mut head = [&b"weirev\r\n"[..], &[1, 0, 0, 0], &[7; 8], &1u64.to_le_bytes()].concat();
    head.extend(crc32fast::hash(&head).to_le_bytes());
    read(&[&head[..], data].concat());
    // A frame with the right checksum, and any numbers and records.
    if let Some((numbers, records)) = data.split_at_checked(12) {
        let length = (records.len() as u32).to_le_bytes();
        let sum = crc32fast::hash(&[&length[..], numbers, records].concat()).to_le_bytes();
        read(&[&head[..], b"\xf7WEf", &length, numbers, &sum, records].concat());
    }
});
