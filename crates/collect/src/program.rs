//! A long-lived program that reads lines, and answers each with a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use weir_ground::thread::spawn;

use crate::process_group::ProcessGroup;

/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How many lines a program has at most that it has not answered.
pub(crate) const WINDOW: usize = 64;
/// How long a program may take to end after its input is closed.
pub const GOODBYE: Duration = Duration::from_secs(5);
/// How often a wait for an answer checks whether weir is to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Why a program does not answer. The text follows the program's name.
#[derive(Debug, thiserror::Error)]
pub enum LineProgramError {
    /// It wrote a line before it was asked. The line could be taken for the answer.
    #[error("said '{0}' unasked: it answers each line with one")]
    Unasked(String),
    /// It has closed its input.
    #[error("does not read: {0}")]
    Unread(io::Error),
    /// It said nothing in time.
    #[error("said nothing for {0} s")]
    Silent(u64),
    /// weir is to end, and does not wait longer.
    #[error("takes too long")]
    TakesTooLong,
    /// It has ended.
    #[error("has ended: {0}")]
    Ended(ExitStatus),
    /// It runs on without output.
    #[error("has closed its output")]
    Closed,
}

/// Returns the error that a program reports in an answer: `{"error": "..."}`.
pub fn error_of(answer: &str) -> Option<String> {
    let answer = serde_json::from_str::<serde_json::Value>(answer).ok()?;
    Some(answer.get("error").filter(|error| !error.is_null())?.to_string())
}

/// A running program. When it is dropped, it is killed, with the processes that it has started.
pub struct LineProgram {
    child: ProcessGroup,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl LineProgram {
    /// Starts `words`, the program and its arguments, in `folder`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(words: &[String], folder: &Path) -> std::io::Result<LineProgram> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = ProcessGroup::start(&mut command)?;
        let (input, output) = (child.0.stdin.take(), child.0.stdout.take().expect("piped above"));
        // A program that writes more than its answers blocks until they are read.
        let (sender, answers) = sync_channel(WINDOW);
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
        listening?;
        Ok(LineProgram { child, input, answers })
    }

    /// Sends `line`, and returns the answer.
    ///
    /// # Errors
    /// If there is none in time.
    pub fn ask(
        &mut self,
        line: &str,
        timeout: Duration,
        is_stopped: impl Fn() -> bool,
    ) -> Result<String, LineProgramError> {
        let (mut answers, failure) = self.ask_all(&[line.as_bytes()], timeout, is_stopped);
        failure.map_or_else(|| Ok(answers.pop().unwrap_or_default()), Err)
    }

    /// Sends `lines`, 64 at most, at once, and returns the answers, and why there are no more. The program
    /// has `timeout` for each.
    pub(crate) fn ask_all(
        &mut self,
        lines: &[&[u8]],
        timeout: Duration,
        is_stopped: impl Fn() -> bool,
    ) -> (Vec<String>, Option<LineProgramError>) {
        let mut found = Vec::with_capacity(lines.len());
        // A line that was not requested would be taken for the answer.
        if let Ok(unasked) = self.answers.try_recv() {
            let shown = unasked.chars().take(80).collect::<String>();
            return (found, Some(LineProgramError::Unasked(shown)));
        }
        let mut text = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        let input = self.input.as_mut().expect("open until the end");
        if let Err(e) = input.write_all(&text).and_then(|()| input.flush()) {
            return (found, Some(LineProgramError::Unread(e)));
        }
        // When weir ends, it waits a little for the current answer.
        let mut stopped_since = None;
        while found.len() < lines.len() {
            let until = Instant::now() + timeout;
            let why = loop {
                match self.answers.recv_timeout(STOP_EVERY) {
                    Ok(answer) => {
                        found.push(answer);
                        break None;
                    }
                    Err(RecvTimeoutError::Disconnected) => break Some(self.how_it_ended()),
                    Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                        break Some(LineProgramError::Silent(timeout.as_secs()));
                    }
                    Err(RecvTimeoutError::Timeout) if is_stopped() => {
                        if stopped_since.get_or_insert_with(Instant::now).elapsed() > GOODBYE {
                            break Some(LineProgramError::TakesTooLong);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            };
            if why.is_some() {
                return (found, why);
            }
        }
        (found, None)
    }

    /// Returns how the program ended.
    fn how_it_ended(&mut self) -> LineProgramError {
        let until = Instant::now() + STOP_EVERY;
        loop {
            match self.child.0.try_wait() {
                Ok(Some(status)) => return LineProgramError::Ended(status),
                _ if Instant::now() > until => return LineProgramError::Closed,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Closes the program's input, and waits a while for its end.
    pub fn end(mut self) {
        self.input = None;
        let until = Instant::now() + GOODBYE;
        while matches!(self.child.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
