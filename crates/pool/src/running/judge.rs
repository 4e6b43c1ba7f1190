//! Gives a verdict on each event: which repositories are due or added, and about which weir asks a forge.

use std::collections::HashSet;

use weir_catalog::clock::now;
use weir_catalog::{Catalog, EventEffect, ReceivedBatch};
use weir_collect::LineFilter;
use weir_events::{Notice, ReceivedLine};
use weir_ground::name_matches;
use weir_transport::{Scheme, Url};

use crate::archives::{SoundEntries, Store};
use crate::error::{Error, Result};
use crate::running::hint_finder::{HintAnswer, HintFinder};
use crate::running::pool::Pool;
use crate::running::received::Verdict;

/// Judges events by the settings of a pool.
pub(crate) struct EventJudge {
    finder: HintFinder,
    store: Store,
    /// The lines that tables and workers take.
    collected: Vec<LineFilter>,
    /// Patterns of the names of repositories that are added.
    add: Vec<String>,
    debounce_s: i64,
}

/// The changes that a batch of events makes to repositories.
pub(crate) struct JudgedEvents {
    pub(crate) effect: EventEffect,
    /// The repositories that are due, with the times of the events in milliseconds since 1970.
    pub(crate) due_since: Vec<(i64, u64)>,
}

impl EventJudge {
    pub(crate) fn new(pool: &Pool) -> EventJudge {
        let events = &pool.config.events;
        EventJudge {
            finder: HintFinder::default(),
            store: pool.store.clone(),
            collected: events.collected(),
            add: events.add.clone(),
            debounce_s: events.debounce.0.as_secs() as i64,
        }
    }

    /// Judges events, sets their verdicts, and adds the repositories to the catalog that are to be added. The
    /// rest of the effect is for the caller.
    ///
    /// # Errors
    /// If the catalog fails.
    pub(crate) fn judge(&mut self, catalog: &Catalog, batch: &mut ReceivedBatch) -> Result<JudgedEvents> {
        let lines: Vec<Option<ReceivedLine<'_>>> =
            batch.events().map(|(_, record, _)| ReceivedLine::parse(record)).collect();
        let notices = lines.iter().map(|line| line.and_then(|line| Notice::parse(line.line).ok()));
        let notices: Vec<Option<Notice<'_>>> = notices.collect();
        // Many events are about few repositories: each name is looked for once.
        let names: Vec<&str> =
            notices.iter().flatten().flat_map(|notice| &notice.names).map(AsRef::as_ref).collect();
        let mut answers = self.finder.learn(catalog, &names)?;
        let mut added = self.add_unknown(catalog, &notices, &answers)?;
        if !added.is_empty() {
            // A repository is found by the name that its URL gives.
            self.finder.forget();
            answers = self.finder.learn(catalog, &names)?;
        }
        let groups: Vec<&str> =
            notices.iter().flatten().filter_map(|notice| notice.old_group.as_deref()).collect();
        let groups = self.finder.below(catalog, &groups)?;
        let mut effect = EventEffect { debounce_s: self.debounce_s, ..EventEffect::default() };
        let (mut due_since, mut verdicts, mut rest) =
            (Vec::new(), Vec::with_capacity(lines.len()), answers.as_slice());
        for (line, notice) in lines.iter().zip(&notices) {
            let found = notice.as_ref().map(|notice| {
                let of_group = notice.old_group.as_deref().and_then(|group| groups.get(group));
                let named = self.repositories(notice, &mut rest);
                of_group.map_or(named, Vec::as_slice)
            });
            let at_ms = line.map_or(0, |line| line.at_ms);
            let is_collected = || {
                let line = line.map_or(&[][..], |line| line.line);
                self.collected.iter().any(|filter| filter.takes(line))
            };
            let verdict = match found {
                None | Some([]) if is_collected() => Verdict::Collected,
                None => Verdict::Bad,
                Some([]) => Verdict::Unknown,
                Some(ids) => {
                    due_since.extend(ids.iter().map(|id| (*id, at_ms)));
                    if notice.as_ref().is_some_and(|notice| notice.changes_repository) {
                        effect.asked.extend_from_slice(ids);
                    }
                    // The first event that names it has added it.
                    let mut names = notice.iter().flat_map(|notice| &notice.names);
                    match names.any(|name| added.remove(name.as_ref())) {
                        true => Verdict::Added,
                        false => Verdict::Due,
                    }
                }
            };
            verdicts.push(verdict as u8);
        }
        effect.due = due_since.iter().map(|(id, _)| *id).collect();
        for ids in [&mut effect.due, &mut effect.asked] {
            ids.sort_unstable();
            ids.dedup();
        }
        (batch.at, batch.verdicts) = (now(), verdicts);
        Ok(JudgedEvents { effect, due_since })
    }

    /// Returns the repositories that `notice` names. Takes the answers for its names from `answers`.
    fn repositories(&self, notice: &Notice<'_>, answers: &mut &[HintAnswer]) -> &[i64] {
        let (own, rest) = answers.split_at(notice.names.len());
        *answers = rest;
        let mut found = own.iter().map(|answer| self.finder.repositories(*answer));
        found.find(|ids| !ids.is_empty()).unwrap_or_default()
    }

    /// Adds the repositories to the catalog that `notices` name by URLs, that it does not know, and that the
    /// settings want. Returns the URLs, as the notices have them.
    fn add_unknown(
        &self,
        catalog: &Catalog,
        notices: &[Option<Notice<'_>>],
        mut answers: &[HintAnswer],
    ) -> Result<HashSet<String>> {
        let (mut added, mut names) = (HashSet::new(), HashSet::new());
        let mut sound = SoundEntries::default();
        if self.add.is_empty() {
            return Ok(added);
        }
        for notice in notices.iter().flatten() {
            if !self.repositories(notice, &mut answers).is_empty() || notice.is_deletion {
                continue;
            }
            let wanted = notice.names.iter().find_map(|name| Some((name, self.wanted(name)?)));
            let Some((name, url)) = wanted.filter(|(name, _)| !added.contains(name.as_ref())) else {
                continue;
            };
            // Another event of this batch may name it in another way.
            let of_repository = Url::parse(&url).map(|url| url.default_name()).unwrap_or_default();
            if !names.insert(of_repository) {
                continue;
            }
            match sound.take(catalog, &self.store, &url, None, false) {
                Ok(()) => drop(added.insert(name.clone().into_owned())),
                Err(Error::Catalog(e)) => return Err(e.into()),
                // As often as a sender likes.
                Err(e) => tracing::debug!("an event names {url}, which cannot be added: {e}"),
            }
        }
        if !sound.entries.is_empty() {
            catalog.add(&sound.entries, now())?;
            sound.new.iter().for_each(|name| tracing::info!("{name}: added, because an event names it"));
        }
        Ok(added)
    }

    /// Returns the URL of an upstream, without a password, if `name` is one that is to be added. An upstream
    /// on this machine never is.
    fn wanted(&self, name: &str) -> Option<String> {
        let url = Url::parse(name).ok().filter(|url| url.scheme != Scheme::Local && is_plain(&url.path))?;
        let of_repository = url.default_name();
        let is_wanted = self.add.iter().any(|pattern| name_matches(pattern, &of_repository));
        is_wanted.then(|| url.without_userinfo())
    }
}

/// Returns whether a path has one meaning on every server. Patterns are about its text, and a path with `..`
/// or an escape may lead elsewhere.
fn is_plain(path: &str) -> bool {
    let inner = path.trim_matches('/');
    !inner.is_empty()
        && inner.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !path.bytes().any(|byte| b"%?#\\;".contains(&byte) || byte <= b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_may_lead_elsewhere_are_not_plain() {
        for path in ["/team/a.git", "team/a", "/~team/a b".trim_end_matches(" b"), "/a/b/c/"] {
            assert!(is_plain(path), "{path}");
        }
        for path in
            ["/", "", "/team/../x", "/team/./x", "/team//x", "/team/%2e%2e/x", "/a?x=/team", "/a#b", "/a b"]
        {
            assert!(!is_plain(path), "{path}");
        }
    }
}
