//! A long-lived program that reads lines of JSON, and answers each with a line.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use weir_ground::thread::spawn;

/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How long a program may take to end after its input is closed.
pub(super) const GOODBYE: Duration = Duration::from_secs(5);
/// How often a wait for an answer checks whether weir is to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Returns the error that a program reports: `{"error": "..."}`.
pub(super) fn error_of(answer: &str) -> Option<String> {
    Some(serde_json::from_str::<serde_json::Value>(answer).ok()?.get("error")?.to_string())
}

/// A running program.
pub(super) struct LineProgram {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl LineProgram {
    pub(super) fn start(words: &[String], folder: &Path) -> std::io::Result<LineProgram> {
        let mut command = Command::new(&words[0]);
        // A process group of its own: an interrupt from the terminal is for weir, which ends the program
        // after its answer.
        command
            .args(&words[1..])
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped above"));
        // A program that writes more than its answers blocks until they are read.
        let (sender, answers) = sync_channel(1);
        let listening = spawn("hook output", move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                match output.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line) {
                    Ok(1..)
                        if line.ends_with(b"\n")
                            && sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_ok() => {}
                    _ => return,
                }
            }
        });
        if let Err(e) = listening {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
        Ok(LineProgram { child, input, answers })
    }

    /// Sends `line`, and returns the answer.
    pub(super) fn ask(
        &mut self,
        line: &str,
        timeout: Duration,
        is_stopped: impl Fn() -> bool,
    ) -> std::result::Result<String, String> {
        // A line that was not requested would be taken for the answer.
        if let Ok(unasked) = self.answers.try_recv() {
            return Err(format!(
                "said '{}' unasked: it answers each line with one",
                unasked.chars().take(80).collect::<String>()
            ));
        }
        let input = self.input.as_mut().expect("open until the end");
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|e| format!("does not read: {e}"))?;
        let until = Instant::now() + timeout;
        // When weir ends, it waits a little for the current answer.
        let mut stopped_since = None;
        loop {
            match self.answers.recv_timeout(STOP_EVERY) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err("has ended".to_owned()),
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    return Err(format!("said nothing for {} s", timeout.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) if is_stopped() => {
                    if stopped_since.get_or_insert_with(Instant::now).elapsed() > GOODBYE {
                        return Err("takes too long".to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Closes the program's input, and waits a while for its end.
    pub(super) fn end(mut self) {
        self.input = None;
        let until = Instant::now() + GOODBYE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for LineProgram {
    fn drop(&mut self) {
        // Kills the processes that it has started, too.
        if let (Ok(None), Ok(group)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = nix::sys::signal::killpg(
                nix::unistd::Pid::from_raw(group),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        let _ = self.child.wait();
    }
}
