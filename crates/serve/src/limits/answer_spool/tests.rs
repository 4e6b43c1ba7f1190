//! Answers made once, read by clients of every speed, kept and dropped.

use super::*;

fn make(answers: &Answers, key: Key) -> (Arc<AnswerSpool>, AnswerReader) {
    match answers.place(Some(key)) {
        AnswerPlace::Make(spool, reader) => (spool, reader),
        AnswerPlace::Follow(_) => panic!("there is one already"),
    }
}

async fn all(mut reader: AnswerReader) -> (Vec<u8>, WorkOutcome) {
    let mut out = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            AnswerPiece::Bytes(bytes) => out.extend(bytes),
            AnswerPiece::End(outcome) => return (out, outcome),
        }
    }
}

fn write(answers: &Answers, key: u8, spool: &AnswerSpool, data: &[u8]) -> io::Result<()> {
    answers.write(Some([key; 32]), spool, data.to_vec(), None)
}

#[tokio::test(flavor = "current_thread")]
async fn an_answer_is_made_once() {
    let answers = Answers::new(std::env::temp_dir(), 8 << 20);
    let (spool, first) = make(&answers, [1; 32]);
    write(&answers, 1, &spool, b"begun").unwrap();
    let AnswerPlace::Follow(second) = answers.place(Some([1; 32])) else { panic!("made twice") };
    let data: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    for part in data.chunks(50_000) {
        write(&answers, 1, &spool, part).unwrap();
    }
    answers.end(Some([1; 32]), &spool, WorkOutcome::Sent);
    let AnswerPlace::Follow(third) = answers.place(Some([1; 32])) else { panic!("not kept") };
    for reader in [first, second, third] {
        assert_eq!(all(reader).await, ([b"begun", &*data].concat(), WorkOutcome::Sent));
    }
    assert_eq!(lock(&answers.list).bytes, [0, 1_000_005 + PLACE_BYTES]);
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_asked_for_again_is_kept() {
    let answers = Answers::new(std::env::temp_dir(), 8 << 20);
    for round in 0..2 {
        let (spool, mut reader) = make(&answers, [1; 32]);
        for _ in 0..10 {
            write(&answers, 1, &spool, &[7; 100_000]).unwrap();
            reader.next().await.unwrap();
        }
        answers.end(Some([1; 32]), &spool, WorkOutcome::Sent);
        assert_eq!(lock(&answers.list).bytes[1] > 0, round == 1);
    }
    let AnswerPlace::Follow(reader) = answers.place(Some([1; 32])) else { panic!("not kept") };
    assert_eq!(all(reader).await.0.len(), 1_000_000);
}

#[tokio::test(flavor = "current_thread")]
async fn what_nobody_reads_stays_in_memory_for_nobody() {
    for (bytes_max, has_room) in [(0, false), (64 << 20, true)] {
        let answers = Answers::new(std::env::temp_dir(), bytes_max);
        let (spool, mut reader) = make(&answers, [1; 32]);
        write(&answers, 1, &spool, &[7; 100_000]).unwrap();
        write(&answers, 1, &spool, &[7; 3_000_000]).unwrap();
        let first = reader.next().await.unwrap();
        assert!(matches!(first, AnswerPiece::Bytes(bytes) if bytes.len() == 100_000));
        let outcome = answers.settle(&spool, WorkOutcome::Sent);
        assert_eq!(outcome == WorkOutcome::Sent, has_room);
        assert!(lock(&spool.state).chunks.is_empty());
        answers.end(Some([1; 32]), &spool, outcome);
        match has_room {
            true => assert_eq!(all(reader).await.0.len(), 3_000_000),
            false => assert_eq!(reader.next().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
        }
    }
    // A short answer stays in memory, even if there is no room for a spool.
    let answers = Answers::new(std::env::temp_dir(), 0);
    let (spool, reader) = make(&answers, [2; 32]);
    write(&answers, 2, &spool, &[7; 50_000]).unwrap();
    assert_eq!(answers.settle(&spool, WorkOutcome::Sent), WorkOutcome::Sent);
    answers.end(Some([2; 32]), &spool, WorkOutcome::Sent);
    assert_eq!(all(reader).await.0.len(), 50_000);
}

#[tokio::test(flavor = "current_thread")]
async fn room_is_bounded_and_failures_are_not_kept() {
    let answers = Answers::new(std::env::temp_dir(), 1 << 20);
    for n in 0..100 {
        let (spool, reader) = make(&answers, [n; 32]);
        drop(answers.place(Some([n; 32])));
        write(&answers, n, &spool, &vec![n; 200 << 10]).unwrap();
        let outcome = if n % 10 == 9 { WorkOutcome::Failed("x".to_owned()) } else { WorkOutcome::Sent };
        answers.end(Some([n; 32]), &spool, outcome);
        drop(reader);
        assert!(lock(&answers.list).bytes[1] <= 1 << 20);
    }
    assert!(matches!(answers.place(Some([99; 32])), AnswerPlace::Make(..)), "a failure");
    assert!(matches!(answers.place(Some([98; 32])), AnswerPlace::Follow(_)));
    assert!(matches!(answers.place(Some([1; 32])), AnswerPlace::Make(..)), "long gone");
}

#[tokio::test(flavor = "current_thread")]
async fn nobody_left_ends_the_work() {
    let answers = Answers::new(std::env::temp_dir(), 8 << 20);
    let (spool, first) = make(&answers, [1; 32]);
    drop(first);
    assert!(write(&answers, 1, &spool, b"x").is_err());
    assert!(matches!(answers.place(Some([1; 32])), AnswerPlace::Make(..)), "those who come later start anew");
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_too_large_flows_through() {
    let answers = Arc::new(Answers::new(std::env::temp_dir(), 8 << 20));
    for joined in [false, true] {
        let (spool, reader) = make(&answers, [1 + u8::from(joined); 32]);
        let other = joined.then(|| match answers.place(Some([2; 32])) {
            AnswerPlace::Follow(reader) => reader,
            AnswerPlace::Make(..) => panic!("made twice"),
        });
        let writing = tokio::task::spawn_blocking({
            let (answers, key) = (answers.clone(), Some([1 + u8::from(joined); 32]));
            move || {
                for n in 0..100u8 {
                    answers.write(key, &spool, vec![n; 1 << 20], None).unwrap();
                }
                answers.end(key, &spool, WorkOutcome::Sent);
            }
        });
        let other = other.map(|other| tokio::spawn(all(other)));
        let (data, outcome) = all(reader).await;
        writing.await.unwrap();
        assert_eq!((data.len(), outcome), (100 << 20, WorkOutcome::Sent));
        assert!(data.chunks(1 << 20).zip(0u8..).all(|(part, n)| part.iter().all(|&b| b == n)));
        if let Some(other) = other {
            assert!(other.await.unwrap().0 == data);
        }
        assert_eq!(lock(&answers.list).bytes, [0, 0]);
    }
    assert_eq!(answers.spooled.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "current_thread")]
async fn somebody_slow_holds_up_nobody() {
    let answers = Arc::new(Answers::new(std::env::temp_dir(), 1 << 30));
    let (spool, reader) = make(&answers, [1; 32]);
    let writing = tokio::task::spawn_blocking({
        let answers = answers.clone();
        move || {
            for n in 0..50u8 {
                write(&answers, 1, &spool, &vec![n; 1 << 20]).unwrap();
            }
            answers.end(Some([1; 32]), &spool, WorkOutcome::Sent);
        }
    });
    // The work ends although nothing was read.
    writing.await.unwrap();
    let (data, outcome) = all(reader).await;
    assert_eq!((data.len(), outcome), (50 << 20, WorkOutcome::Sent));
    assert!(data.chunks(1 << 20).zip(0u8..).all(|(part, n)| part.iter().all(|&b| b == n)));
}
