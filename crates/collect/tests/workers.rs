//! Each line is given to a program, and told of when the program has answered; no program that fails loses a
//! line or holds up the others.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use weir_collect::{EventWorkers, FinishedLine, LineFilter, WorkerLine, WorkerSpec};
use weir_ground::Stop;

/// Returns a group of `count` programs, each a script of bash.
fn spec(folder: &std::path::Path, count: usize, script: &str) -> WorkerSpec {
    WorkerSpec {
        name: "w".to_owned(),
        command: ["bash", "-c", script].map(str::to_owned).to_vec(),
        folder: folder.to_owned(),
        count,
        key: None,
        filter: LineFilter::default(),
        timeout: Duration::from_secs(20),
    }
}

fn give(workers: &mut EventWorkers, lines: impl Iterator<Item = String>) {
    for (id, line) in (1..).zip(lines) {
        assert!(workers.give(WorkerLine { id, line: line.into_bytes() }, &Stop::default()));
    }
}

fn finished(from: &Receiver<FinishedLine>, count: usize) -> BTreeMap<i64, Option<String>> {
    let wait = || from.recv_timeout(Duration::from_secs(60)).unwrap();
    (0..count).map(|_| wait()).map(|finished| (finished.line.id, finished.failure)).collect()
}

#[test]
fn lines_go_to_all_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, from) = channel();
    let script = "while read -r line; do echo \"$line\" >> got-$$; echo ok; done";
    let mut workers = EventWorkers::start(&spec(folder.path(), 4, script), &sender).unwrap();
    give(&mut workers, (0..1000).map(|n| format!("line {n}")));
    let done = finished(&from, 1000);
    assert!(done.len() == 1000 && done.values().all(Option::is_none));
    drop(workers);
    let files: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert_eq!(files.len(), 4);
    assert!(files.iter().all(|file| file.lines().count() > 100));
    assert_eq!(files.concat().lines().count(), 1000);
}

#[test]
fn lines_of_a_key_go_to_one_program_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let script = "while read -r line; do echo \"$line\" >> got-$$; echo ok; done";
    for (key, filter, line) in [
        (
            Some("host"),
            None,
            (|n: usize| format!("{{\"host\":\"h{}\",\"n\":{n}}}", n % 10)) as fn(usize) -> String,
        ),
        (None, Some("^(?<key>h[0-9])"), |n| format!("h{} {n}", n % 10)),
    ] {
        let (sender, from) = channel();
        let mut spec = spec(folder.path(), 3, script);
        (spec.key, spec.filter) = (key.map(str::to_owned), LineFilter::new(filter).unwrap());
        let mut workers = EventWorkers::start(&spec, &sender).unwrap();
        give(&mut workers, (0..600).map(line));
        assert_eq!(finished(&from, 600).len(), 600);
        drop(workers);
        let mut seen = BTreeMap::new();
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines() {
                let number = line.rsplit(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
                let number: usize = number.unwrap().parse().unwrap();
                let (last, of) =
                    seen.insert(number % 10, (number, path.clone())).unwrap_or((0, path.clone()));
                assert!(last <= number && of == path, "{line}");
            }
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(seen.len(), 10);
    }
}

#[test]
fn a_program_that_fails_loses_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, from) = channel();
    // Ends at each line with a 7, says that lines with a 5 are wrong, and once answers nothing.
    let script = "while read -r line; do
        case $line in
            *7*) exit 1 ;;
            *5*) echo '{\"error\": \"five\"}' ;;
            *3*) [ -e slept ] || { touch slept; sleep 100; }; echo ok ;;
            *) echo ok ;;
        esac
    done";
    let spec = WorkerSpec { timeout: Duration::from_secs(1), ..spec(folder.path(), 2, script) };
    let mut workers = EventWorkers::start(&spec, &sender).unwrap();
    give(&mut workers, (0..40).map(|n| n.to_string()));
    let done = finished(&from, 40);
    for (id, failure) in &done {
        let line = (id - 1).to_string();
        match failure {
            Some(why) if line.contains('7') => {
                assert_eq!(why, "the program has ended: exit status: 1");
            }
            Some(why) => assert!(line.contains('5') && why == "\"five\"", "{line}: {why}"),
            None => assert!(!line.contains(['5', '7']), "{line}"),
        }
    }
    assert_eq!(done.len(), 40);
    assert!(folder.path().join("slept").exists());
}

#[test]
fn a_missing_program_makes_lines_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, from) = channel();
    let program = folder.path().join("late");
    let mut spec = spec(folder.path(), 1, "");
    spec.command = vec![program.display().to_string()];
    let mut workers = EventWorkers::start(&spec, &sender).unwrap();
    give(&mut workers, (0..3).map(|n| n.to_string()));
    assert!(from.recv_timeout(Duration::from_millis(300)).is_err());
    // Written elsewhere first: a program that is open for writing cannot be started.
    let text = "#!/bin/bash\nwhile read -r line; do echo ok; done\n";
    let made = std::process::Command::new("bash")
        .args(["-c", "printf '%s' \"$1\" > new && chmod +x new && mv new late", "-", text])
        .current_dir(folder.path())
        .status();
    assert!(made.unwrap().success());
    assert_eq!(finished(&from, 3).len(), 3);
    // Lines that were not answered are not told of: they come again later.
    let stop = Stop::default();
    stop.stop();
    drop(workers);
    assert!(from.try_recv().is_err());
}
