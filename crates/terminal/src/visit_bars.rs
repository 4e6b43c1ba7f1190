//! Shows running visits on a terminal: a line for each, and a bar for all.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::style::ProgressTracker;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use weir_catalog::Repository;
use weir_repo::{Phase, Progress};

use crate::output;

/// Time between redraws.
const TICK: Duration = Duration::from_millis(200);
/// The approximate time over which a rate is averaged.
const RATE_OVER: Duration = Duration::from_secs(2);

/// A bar for all visits of a pass, and a line for each that is under way.
pub struct VisitBars {
    all: MultiProgress,
    bar: ProgressBar,
    running: HashMap<i64, ProgressBar>,
}

impl VisitBars {
    /// Returns bars for a pass over `tasks` repositories, and shows them.
    pub fn new(tasks: usize) -> VisitBars {
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} repositories, {elapsed}")
            .expect("a valid template");
        let bar = all.add(ProgressBar::new(tasks as u64).with_style(style));
        bar.enable_steady_tick(TICK);
        VisitBars { all, bar, running: HashMap::new() }
    }

    /// Shows that the visit of `repository` has begun, with what it reports from then on.
    pub fn started(&mut self, repository: &Repository, progress: Arc<Progress>) {
        let style =
            ProgressStyle::with_template("  {spinner} {msg} {elapsed} {visit}").expect("a valid template");
        let style = style.with_key(
            "visit",
            Seen { progress, phase: Phase::Asking, at: Instant::now(), bytes: 0, rate: 0.0 },
        );
        let spinner = ProgressBar::new_spinner()
            .with_style(style)
            .with_message(output::printable(repository.name.as_bytes()));
        let spinner = self.all.insert_before(&self.bar, spinner);
        spinner.enable_steady_tick(TICK);
        self.running.insert(repository.id, spinner);
    }

    /// Shows that the visit of the repository with this id has ended.
    pub fn ended(&mut self, id: i64) {
        if let Some(spinner) = self.running.remove(&id) {
            spinner.finish_and_clear();
        }
        self.bar.inc(1);
    }

    /// Adds `more` repositories to the pass.
    pub fn expect_more(&self, more: usize) {
        self.bar.inc_length(more as u64);
    }

    /// Prints a line above the bars.
    pub fn print(&self, text: &str) {
        let _ = self.all.println(output::printable(text.as_bytes()));
    }

    /// Removes the bars.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of a visit when it was last read.
#[derive(Clone)]
struct Seen {
    progress: Arc<Progress>,
    phase: Phase,
    at: Instant,
    bytes: u64,
    /// The recent rate, in bytes a second.
    rate: f64,
}

impl Seen {
    fn look(&mut self, now: Instant) {
        let (phase, bytes) = (self.progress.phase(), self.progress.bytes());
        let took = now.saturating_duration_since(self.at);
        if phase != self.phase || bytes < self.bytes {
            *self = Seen { progress: self.progress.clone(), phase, at: now, bytes, rate: 0.0 };
        } else if took >= TICK {
            let rate = (bytes - self.bytes) as f64 / took.as_secs_f64();
            let weight = (took.as_secs_f64() / RATE_OVER.as_secs_f64()).min(1.0);
            self.rate = if self.rate == 0.0 { rate } else { self.rate + (rate - self.rate) * weight };
            (self.at, self.bytes) = (now, bytes);
        }
    }
}

impl ProgressTracker for Seen {
    fn clone_box(&self) -> Box<dyn ProgressTracker> {
        Box::new(self.clone())
    }

    fn tick(&mut self, _: &ProgressState, now: Instant) {
        self.look(now);
    }

    fn reset(&mut self, _: &ProgressState, now: Instant) {
        self.look(now);
    }

    fn write(&self, _: &ProgressState, out: &mut dyn fmt::Write) {
        let _ = out.write_str(&line(&self.progress, self.rate));
    }
}

/// Describes what a visit is doing and its progress, in git's words where git has some.
fn line(progress: &Progress, rate: f64) -> String {
    let (done, total) = progress.count();
    let counted = |what: &str| match (done * 100).checked_div(total) {
        Some(percent) => format!("{what} {percent} % ({done}/{total})"),
        None => what.to_owned(),
    };
    let received = |what: &str| {
        let rate = if rate > 0.0 { format!(", {}/s", output::bytes(rate as u64)) } else { String::new() };
        format!("{}, {}{rate}", counted(what), output::bytes(progress.bytes()))
    };
    match progress.phase() {
        Phase::Asking => "asking".to_owned(),
        Phase::Receiving if progress.bytes() == 0 => match progress.said() {
            said if said.is_empty() => "waiting for a pack".to_owned(),
            said => format!("waiting for a pack: {said}"),
        },
        Phase::Receiving => received("receiving objects"),
        Phase::Resolving => counted("resolving deltas"),
        Phase::Connecting => "checking connectivity".to_owned(),
        Phase::Writing => "writing".to_owned(),
        Phase::Deriving => "making bitmaps".to_owned(),
        Phase::Lfs => received("receiving LFS objects"),
        Phase::Compacting => "compacting".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_phase_objects_bytes_and_rate() {
        let progress = Arc::new(Progress::default());
        let start = Instant::now();
        let mut seen =
            Seen { progress: progress.clone(), phase: Phase::Asking, at: start, bytes: 0, rate: 0.0 };
        assert_eq!(line(&progress, 0.0), "asking");
        progress.begin(Phase::Receiving, 0);
        assert_eq!(line(&progress, 0.0), "waiting for a pack");
        progress.say("Counting objects:  45% (9/20)");
        assert_eq!(line(&progress, 0.0), "waiting for a pack: Counting objects:  45% (9/20)");
        progress.begin(Phase::Receiving, 2740);
        seen.look(start);
        progress.set_done(1233);
        progress.set_bytes(3 << 20);
        seen.look(start + Duration::from_secs(2));
        assert_eq!(line(&progress, seen.rate), "receiving objects 45 % (1233/2740), 3.0 MiB, 1.5 MiB/s");
        progress.begin(Phase::Resolving, 10);
        progress.add(5);
        seen.look(start + Duration::from_secs(3));
        assert_eq!((line(&progress, seen.rate).as_str(), seen.rate), ("resolving deltas 50 % (5/10)", 0.0));
    }
}
