//! The drill: kills under load, with the database away for a minute, and no room on the disk for another.

use std::collections::HashMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_testing::wait_until;

use super::{Sender, with_doors};
use crate::common::{Env, Rng};
use crate::mirror::outages::Disk;

/// The senders of the drill.
struct Senders {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    acknowledged: Arc<Mutex<Vec<String>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Senders {
    /// Starts to send lines, each once, over connections that are opened again when they end.
    fn start(port: u16, count: usize) -> Senders {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let send = || {
            let (stop, sent, acknowledged) = (stop.clone(), sent.clone(), acknowledged.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(mut sender) = Sender::try_connect(port) else {
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    };
                    loop {
                        let id = sent.fetch_add(1, Ordering::Relaxed).to_string();
                        if sender.send(&id, &format!("r{id}")).is_err() {
                            break;
                        }
                        match sender.answer().strip_prefix("ok ") {
                            Some(id) => acknowledged.lock().unwrap().push(format!("r{id}")),
                            None => break,
                        }
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                }
            })
        };
        let threads = (0..count).map(|_| send()).collect();
        Senders { stop, sent, acknowledged, threads }
    }

    /// Ends them, and returns the lines that were acknowledged.
    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        Arc::into_inner(self.acknowledged).unwrap().into_inner().unwrap()
    }
}

fn serve(env: &Env) -> Child {
    env.weir_command(&["events", "serve"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills weir, and starts it again, `kills` times, or for `time`.
fn kill_again(env: &Env, weir: &mut Child, rng: &mut Rng, kills: usize, time: Duration) -> usize {
    let (began, mut killed) = (Instant::now(), 0);
    while killed < kills || began.elapsed() < time {
        std::thread::sleep(Duration::from_millis(50 + rng.below(400)));
        let _ = weir.kill();
        weir.wait().unwrap();
        *weir = serve(env);
        killed += 1;
    }
    killed
}

#[test]
#[ignore = "takes four minutes; needs root for a small file system"]
fn kills_and_a_minute_without_database_and_room_lose_nothing() {
    let Some(mut postgres) = weir_testing::PostgresServer::start(&[]) else { return };
    let (env, port) = with_doors(Env::over(&postgres.schema("pool")));
    let spool = env.pool().join("events");
    let Some(disk) = Disk::of(64 << 20, &spool) else {
        weir_testing::skip("mount", "no disk of its own can be mounted here");
        return;
    };
    let (mut weir, mut rng) = (serve(&env), Rng(11));
    let senders = Senders::start(port, 8);
    let minute = Duration::from_secs(60);
    let mut killed = kill_again(&env, &mut weir, &mut rng, 70, Duration::ZERO);
    postgres.stop();
    std::thread::sleep(minute / 2);
    killed += kill_again(&env, &mut weir, &mut rng, 1, minute / 2);
    postgres.go_on();
    killed += kill_again(&env, &mut weir, &mut rng, 70, Duration::ZERO);
    // No room for anything: what is under way is not acknowledged until there is.
    let filler = spool.join("filler");
    let mut full = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut full, &[0; 4096]).is_ok() {}
    let before = senders.acknowledged.lock().unwrap().len();
    killed += kill_again(&env, &mut weir, &mut rng, 1, minute);
    let while_full = senders.acknowledged.lock().unwrap().len() - before;
    std::fs::remove_file(&filler).unwrap();
    killed += kill_again(&env, &mut weir, &mut rng, 200usize.saturating_sub(killed), Duration::ZERO);
    std::thread::sleep(Duration::from_secs(3));
    let sent = senders.sent.load(Ordering::Relaxed);
    let acknowledged = senders.end();
    let found = || -> HashMap<String, usize> {
        let mut found = HashMap::new();
        for event in env.weir_json(&["events", "ls", "-n", "10000000"]).as_array().unwrap() {
            *found.entry(event["subject"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        found
    };
    let lost = || {
        let found = found();
        acknowledged.iter().filter(|name| !found.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    wait_until(|| format!("lost: {:?}", lost().len()), || lost().is_empty());
    weir.kill().unwrap();
    weir.wait().unwrap();
    let found = found();
    let twice = found.values().filter(|count| **count > 1).count();
    drop(disk);
    assert!(killed >= 200 && twice == 0, "{killed} kills, {twice} twice");
    println!(
        "{killed} kills; of {sent} lines {} were acknowledged, {while_full} of them without room; none lost, \
        none twice",
        acknowledged.len()
    );
}
