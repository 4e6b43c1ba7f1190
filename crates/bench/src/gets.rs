//! Small requests, each over a connection of its own, that begin at fixed times whatever the server does: one
//! that keeps some waiting cannot hide it, as it can from a client that waits for an answer before it asks
//! again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

use crate::Error;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(12);

/// Makes `rate` requests a second for `path` at `address`, for `seconds`. Prints how many were answered, and
/// the times from when each was due to the end of its answer.
pub(crate) fn run(address: &str, path: &str, rate: f64, seconds: f64) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let asking = ask(address.to_owned(), request, rate, seconds);
    let (waits, started) = LocalSet::new().block_on(&runtime, asking);
    let mut waits: Vec<f64> = waits.iter().map(|wait| wait.as_secs_f64() * 1000.0).collect();
    waits.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| waits.get(((waits.len() as f64 - 1.0) * part).max(0.0) as usize).copied();
    let told = serde_json::json!({
        "started": started, "answered": waits.len(), "failed": started - waits.len(),
        "median_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0),
    });
    println!("{told}");
    Ok(())
}

async fn ask(address: String, request: String, rate: f64, seconds: f64) -> (Vec<Duration>, usize) {
    let (address, request): (Rc<str>, Rc<str>) = (address.into(), request.into());
    let waits = Rc::new(RefCell::new(Vec::new()));
    let (begin, mut tasks) = (Instant::now(), Vec::new());
    let count = (rate * seconds) as usize;
    while tasks.len() < count {
        let due_now = ((begin.elapsed().as_secs_f64() * rate) as usize + 1).min(count);
        while tasks.len() < due_now {
            let due = begin + Duration::from_secs_f64(tasks.len() as f64 / rate);
            let (address, request, waits) = (address.clone(), request.clone(), waits.clone());
            tasks.push(spawn_local(async move {
                if let Ok(Ok(())) = tokio::time::timeout(PATIENCE, answered(&address, &request)).await {
                    waits.borrow_mut().push(due.elapsed());
                }
            }));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for task in tasks {
        let _ = task.await;
    }
    (waits.take(), count)
}

/// Makes one request, and reads the answer to its end.
async fn answered(address: &str, request: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let (mut buffer, mut begins) = ([0; 1024], Vec::new());
    loop {
        match stream.read(&mut buffer).await? {
            0 if begins.starts_with(b"HTTP/1.1 200") => return Ok(()),
            0 => return Err(std::io::ErrorKind::InvalidData.into()),
            n if begins.len() < 12 => begins.extend_from_slice(&buffer[..n]),
            _ => {}
        }
    }
}
