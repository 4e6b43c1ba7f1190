//! A long-lived program that reads updates as lines of JSON, and answers each with a line.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_catalog::{Catalog, LoggedEvent};
use weir_collect::{LineProgram, error_of};
use weir_ground::Stop;
use weir_settings::HooksConfig;

use crate::running::hooks::failures::HookFailures;
use crate::running::hooks::line::{HookLine, about};
use crate::running::hooks::reader::HookTeller;

/// How often an update is sent to a program that ends or does not answer, before it is given up.
const TRIES: u32 = 3;
/// Time until a program is started again that cannot be started.
const RETRY: Duration = Duration::from_secs(10);

/// Tells the program of `hooks.post_update`.
pub(super) struct ProgramTeller {
    pub(super) store: PathBuf,
    pub(super) config: HooksConfig,
    pub(super) stop: Stop,
    /// Set while the program cannot be started.
    pub(super) is_stuck: Arc<AtomicBool>,
    pub(super) program: Option<LineProgram>,
    /// Its failures, as the catalog has them.
    pub(super) failures: HookFailures,
}

impl HookTeller for ProgramTeller {
    fn tell(&mut self, catalog: &Catalog, event: &LoggedEvent) -> bool {
        // The catalog has forgotten the repository since.
        let (Some(_), Some(subject)) = (&event.path, &event.event.subject) else { return true };
        let (name, line) = (&subject.name, HookLine::of(event, &self.store).json());
        let mut why = String::new();
        for tries in 1..=TRIES {
            if self.stop.is_stopped() {
                return false;
            }
            let program = match self.program.take() {
                Some(program) => Ok(program),
                None => LineProgram::start(&self.config.post_update, &self.store),
            };
            let failed = match program {
                Ok(mut program) => {
                    self.is_stuck.store(false, Ordering::Relaxed);
                    match program.ask(&line, self.config.timeout.0, || self.stop.is_stopped()) {
                        Ok(answer) => {
                            self.program = Some(program);
                            self.failures.worked(catalog);
                            if let Some(error) = error_of(&answer) {
                                tracing::warn!("the hook for {}: {error}", name);
                            }
                            return true;
                        }
                        Err(why) => why,
                    }
                }
                // Without the program, updates wait.
                Err(e) => {
                    tracing::error!(
                        "cannot start the hook '{}': {e}; updates wait for it",
                        self.config.post_update[0]
                    );
                    self.failures.failed(catalog, format!("it cannot be started: {e}"), RETRY);
                    self.is_stuck.store(true, Ordering::Relaxed);
                    self.stop.sleep(RETRY);
                    return false;
                }
            };
            if self.stop.is_stopped() {
                return false;
            }
            tracing::warn!("the hook for {} {failed}, try {tries} of {TRIES}", name);
            why = failed.to_string();
            self.stop.sleep(Duration::from_secs(u64::from(tries) - 1));
        }
        tracing::error!("giving up on the hook for {}: {line}", name);
        self.failures.failed(catalog, format!("{} was given up: it {why}", about(event)), Duration::ZERO);
        true
    }

    fn end(&mut self) {
        if let Some(program) = self.program.take() {
            program.end();
        }
    }
}
