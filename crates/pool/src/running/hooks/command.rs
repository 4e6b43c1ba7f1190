//! A program that is run for each event.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_catalog::{Catalog, LoggedEvent};
use weir_collect::{GOODBYE, ProcessGroup};
use weir_ground::thread::spawn;
use weir_ground::{Stop, Timestamp};
use weir_settings::{EventSelection, HookCommandConfig};

use crate::running::hooks::failures::HookFailures;
use crate::running::hooks::line::{HookLine, about};
use crate::running::hooks::reader::HookTeller;

/// How often a program is run that fails, before the event is given up.
const TRIES: u32 = 3;
/// How often to look whether it has ended: at first, and at most.
const LOOK_AFTER: Duration = Duration::from_millis(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const _: () =
    assert!(LOOK_AFTER.as_millis() <= LOOK_EVERY.as_millis() && TRIES > 0, "the first look is the soonest");
/// Time until a program is started again that cannot be started.
const RETRY: Duration = Duration::from_secs(10);

/// Runs the program of a table `[[hooks.command]]`.
pub(super) struct CommandTeller {
    pub(super) store: PathBuf,
    pub(super) config: HookCommandConfig,
    pub(super) selection: EventSelection,
    pub(super) stop: Stop,
    /// Set while the program cannot be started.
    pub(super) is_stuck: Arc<AtomicBool>,
    /// Its failures, as the catalog has them.
    pub(super) failures: HookFailures,
}

impl HookTeller for CommandTeller {
    fn tell(&mut self, catalog: &Catalog, event: &LoggedEvent) -> bool {
        let name = event.event.subject.as_ref().map(|subject| subject.name.as_str());
        if !self.selection.has(name) {
            return true;
        }
        let hook = &self.config.name;
        let mut why = String::new();
        for tries in 1..=TRIES {
            if self.stop.is_stopped() {
                return false;
            }
            let input = CommandInput::of(event, &self.store);
            let ended = match run(&self.config, &self.store, &input, &self.stop) {
                Ok(ended) => ended,
                Err(e) => {
                    tracing::error!("cannot start the hook '{hook}': {e}; events wait for it");
                    self.failures.failed(catalog, format!("it cannot be started: {e}"), RETRY);
                    self.is_stuck.store(true, Ordering::Relaxed);
                    self.stop.sleep(RETRY);
                    return false;
                }
            };
            self.is_stuck.store(false, Ordering::Relaxed);
            let failed = match ended {
                Some(status) if status.success() => {
                    self.failures.worked(catalog);
                    return true;
                }
                Some(status) => match (status.code(), status.signal()) {
                    (Some(code), _) => format!("ended with status {code}"),
                    (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
                },
                None if self.stop.is_stopped() => return false,
                None => format!("did not end within {} s", self.config.timeout.0.as_secs()),
            };
            tracing::warn!("the hook '{hook}' for {} {failed}, try {tries} of {TRIES}", about(event));
            why = failed;
            self.stop.sleep(Duration::from_secs(u64::from(tries) - 1));
        }
        tracing::error!("giving up on the hook '{hook}' for {}", about(event));
        self.failures.failed(catalog, format!("{} was given up: it {why}", about(event)), Duration::ZERO);
        true
    }
}

/// An event as a program gets it.
pub(super) struct CommandInput {
    /// The line on its standard input.
    line: String,
    /// Variables of its environment.
    variables: Vec<(&'static str, OsString)>,
}

impl CommandInput {
    fn of(event: &LoggedEvent, store: &Path) -> CommandInput {
        let line = HookLine::of(event, store);
        let mut variables: Vec<(&'static str, OsString)> =
            vec![("WEIR_EVENT", event.event.kind.name().into()), ("WEIR_ID", event.id.to_string().into())];
        if let Some(subject) = &event.event.subject {
            variables.push(("WEIR_NAME", subject.name.clone().into()));
            variables.push(("WEIR_URL", subject.url.clone().into()));
        }
        variables.extend(line.archive.iter().map(|archive| ("WEIR_ARCHIVE", archive.into())));
        CommandInput { line: line.json(), variables }
    }

    /// Returns a trial: an event of the kind `test`.
    pub(super) fn test(now: Timestamp) -> CommandInput {
        let line = serde_json::json!({ "id": 0, "time": now, "event": "test" }).to_string();
        CommandInput { line, variables: vec![("WEIR_EVENT", "test".into()), ("WEIR_ID", "0".into())] }
    }
}

/// Runs the program for an event. Returns how it ended; `None` if it was killed, because it took too long or
/// `stop` was requested.
///
/// # Errors
/// If it cannot be started.
pub(super) fn run(
    config: &HookCommandConfig,
    store: &Path,
    event: &CommandInput,
    stop: &Stop,
) -> std::io::Result<Option<ExitStatus>> {
    let mut command = Command::new(&config.command[0]);
    command.args(&config.command[1..]).current_dir(store);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    for name in ["WEIR_NAME", "WEIR_URL", "WEIR_ARCHIVE"] {
        command.env_remove(name);
    }
    command.envs(event.variables.iter().map(|(name, value)| (name, value)));
    let mut child = ProcessGroup::start(&mut command)?;
    let (input, text) = (child.0.stdin.take(), format!("{}\n", event.line));
    // A program may end, or run for long, without reading.
    if let Some(mut input) = input {
        let writing = spawn("hook input", move || drop(input.write_all(text.as_bytes())));
        drop(writing?);
    }
    let (began, mut pause, mut stopped) = (Instant::now(), LOOK_AFTER, None);
    loop {
        if let Some(status) = child.0.try_wait()? {
            return Ok(Some(status));
        }
        let is_late = began.elapsed() > config.timeout.0;
        if is_late || (stop.is_stopped() && stopped.get_or_insert_with(Instant::now).elapsed() > GOODBYE) {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK_EVERY);
    }
}
