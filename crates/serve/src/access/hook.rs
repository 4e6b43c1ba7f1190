//! Runs a program that decides whether a client may have what it asks for (git-daemon, `--access-hook`).

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_ground::thread::spawn;
use weir_upload::DaemonRequest;

use crate::access::locate::Client;

/// Bytes of a hook's answer that are read.
const ANSWER_BYTES_MAX: u64 = 4096;
/// Time to wait for the answer once the hook has ended.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Time between the first two checks of whether the hook has ended; it doubles with each check.
const FIRST_LOOK: Duration = Duration::from_micros(500);
const _: () =
    assert!(FIRST_LOOK.as_micros() < ANSWER_TIME.as_micros(), "a hook is looked at before its time is over");

/// An access hook.
#[derive(Debug)]
pub struct Hook {
    /// The path of the program.
    pub program: PathBuf,
    /// Time after which it is killed.
    pub timeout: Duration,
}

/// A request that an access hook denies.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub struct HookDenial {
    /// The first line that the hook printed. It is empty if the hook printed none, cannot be run, or does not
    /// end in time.
    pub said: String,
}

impl HookDenial {
    fn unsaid() -> HookDenial {
        HookDenial { said: String::new() }
    }
}

impl Hook {
    /// Runs the hook with service, path, host, canonical host, address and port as arguments, as git-daemon
    /// does, and the client's address in `REMOTE_ADDR` and `REMOTE_PORT`.
    ///
    /// # Errors
    /// If the hook denies the request, cannot be run, or does not end in time.
    pub fn ask(&self, request: &DaemonRequest, path: &str, client: &Client) -> Result<(), HookDenial> {
        let host_port = request.host.as_deref().unwrap_or_default();
        let (host, port) = host_port.rsplit_once(':').unwrap_or((host_port, ""));
        let mut command = Command::new(&self.program);
        command.args([request.service.name(), path, host, host]);
        command.arg(client.address.map_or(String::new(), |a| a.ip().to_string())).arg(port);
        if let Some(address) = client.address {
            command
                .env("REMOTE_ADDR", address.ip().to_string())
                .env("REMOTE_PORT", address.port().to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| {
            tracing::error!(hook = %self.program.display(), "cannot be run: {e}");
            HookDenial::unsaid()
        })?;
        let (sender, answer) = std::sync::mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            let reading = spawn("access hook", move || {
                let mut answer = String::new();
                let _ = BufReader::new(stdout.take(ANSWER_BYTES_MAX)).read_line(&mut answer);
                let _ = sender.send(answer.trim_end().to_owned());
            });
            if let Err(e) = reading {
                tracing::error!(hook = %self.program.display(), "cannot be listened to: {e}");
                let _ = child.kill();
                let _ = child.wait();
                return Err(HookDenial::unsaid());
            }
        }
        let (end, mut pause) = (Instant::now() + self.timeout, FIRST_LOOK);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < end => std::thread::sleep(pause),
                _ => {
                    tracing::error!(hook = %self.program.display(), "did not end within {} s: killed",
                        self.timeout.as_secs_f32());
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        match status {
            Some(status) if status.success() => Ok(()),
            // A process that still holds the hook's output open is not waited for.
            None => Err(HookDenial::unsaid()),
            Some(_) => Err(HookDenial { said: answer.recv_timeout(ANSWER_TIME).unwrap_or_default() }),
        }
    }
}
