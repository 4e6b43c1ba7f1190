//! Looks at all due repositories of a forge, once or for ever.

use std::time::{Duration, Instant};

use weir_catalog::clock::now;
use weir_catalog::{Catalog, EventKind, PoolEvent, Repository};
use weir_forge::{Forge, MetadataKind};
use weir_ground::{OtherError, Stop};
use weir_mirror::throttle::Cause;

use crate::look::{FetchedItems, LEASE_S, Look};
use crate::outcome::LookOutcome;
use crate::place::Place;

/// The most pages of one stream that a look takes while watching: the rest waits until others had their turn.
const PAGES_MAX: u64 = 1000;
/// Time between checks of which repositories are wanted, and of what is due.
const NOTED_EVERY: Duration = Duration::from_secs(900);
const DUE_EVERY: Duration = Duration::from_secs(10);

/// Why a run ends early. What it has written stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
    /// There is no room in the store.
    #[error("cannot store metadata: {}", .0.name())]
    NoRoom(Cause),
    /// A function of the [`Schedule`] failed.
    #[error(transparent)]
    Other(OtherError),
}

/// The result of a run.
pub type Result<T> = std::result::Result<T, Error>;

/// A function that opens a forge. The forge waits for its rate limits unless asked to stop.
pub type OpenForge<'a> = dyn Fn(&Stop) -> std::result::Result<Box<dyn Forge>, OtherError> + 'a;
/// A function that gets the result of a look, and the name of the repository.
pub type TellLook<'a> = dyn Fn(&str, &LookOutcome) -> std::result::Result<(), OtherError> + 'a;

/// The repositories to look at, and the function that reports each look.
pub struct Schedule<'a> {
    /// The name of this process, for leases.
    pub owner: &'a str,
    /// The name of the forge.
    pub forge: &'a str,
    /// Whether to look at repositories whose own settings do not say.
    pub is_wanted_by_default: bool,
    /// The kinds of metadata to ask for.
    pub wanted: &'a [MetadataKind],
    /// Only the repositories with these numbers, due or not.
    pub ids: Option<&'a [i64]>,
    /// Whether to go on with what becomes due, until asked to stop.
    pub watch: bool,
    /// Opens the forge.
    pub open: &'a OpenForge<'a>,
    /// Gets the result of each look, and the name of the repository.
    pub report: &'a TellLook<'a>,
}

/// Looks at the due repositories of a forge, or at `ids`, once or for ever. Returns whether a look failed.
///
/// # Errors
/// If the catalog or one of the functions of `schedule` fails, or if there is no room and `watch` is not set.
pub fn run(catalog: &Catalog, place: &Place, schedule: &Schedule<'_>, stop: &Stop) -> Result<bool> {
    let Schedule { forge: name, watch, .. } = *schedule;
    let mut failed = false;
    loop {
        let (noted, began_at) = (Instant::now(), now());
        let mut named = note_wanted(catalog, schedule, stop)?;
        let mut forge = (schedule.open)(stop).map_err(Error::Other)?;
        let budgets = catalog.accounts().budgets(now())?.into_iter().filter(|(of, _)| of == name);
        forge.remember(&budgets.map(|(_, budget)| budget).collect::<Vec<_>>());
        if place.space.is_limited() {
            place.space.set_used(catalog.status().archive_bytes()?);
        }
        // Take the named repositories, or else those that are due. While watching, go on with those that
        // become due, until it is time to check which are wanted.
        while !stop.is_stopped() && (!watch || noted.elapsed() < NOTED_EVERY) {
            let only = named.as_mut().map(Iterator::next);
            if matches!(only, Some(None)) {
                break;
            }
            if let Some(cause) = place.space.shortage() {
                if !watch {
                    return Err(Error::NoRoom(cause));
                }
                tracing::warn!("{name}: {}", Error::NoRoom(cause));
                stop.sleep(NOTED_EVERY.saturating_sub(noted.elapsed()));
                continue;
            }
            let term = (now(), now() + LEASE_S);
            let (due, only) = (if watch { now() } else { began_at }, only.flatten());
            let Some(task) = catalog.metadata().lease(schedule.owner, name, only, due, term)? else {
                match (only, watch) {
                    (Some(_), _) => continue,
                    (None, true) => drop(stop.sleep(DUE_EVERY)),
                    (None, false) => break,
                }
                continue;
            };
            let mut look = Look {
                catalog,
                place,
                forge: forge.as_mut(),
                task: &task,
                stop,
                pages_max: if watch { PAGES_MAX } else { u64::MAX },
                held: FetchedItems::default(),
                brought: LookOutcome::default(),
            };
            let brought = look.run(schedule.wanted)?;
            catalog.accounts().set_budgets(name, &forge.budgets(), now())?;
            failed |= brought.error.is_some();
            if let Some(event) = event_of(&task.repository, &brought) {
                catalog.events().log(&event)?;
            }
            (schedule.report)(&task.repository.name, &brought).map_err(Error::Other)?;
        }
        if !watch || stop.is_stopped() {
            return Ok(failed);
        }
    }
}

/// Returns the event of a look, if it is news.
fn event_of(repository: &Repository, brought: &LookOutcome) -> Option<PoolEvent> {
    let LookOutcome { added, error, .. } = brought;
    let is_news = error.is_some() || added.values().any(|n| *n > 0);
    let added = added.iter().map(|(stream, n)| ((*stream).to_owned(), *n)).collect();
    let kind = EventKind::Metadata { added, error: error.clone() };
    is_news.then(|| PoolEvent { time: now(), subject: Some(weir_mirror::subject_of(repository)), kind })
}

/// Notes in the catalog which repositories are to be looked at. Returns those that `schedule` names, if it
/// names any.
fn note_wanted(
    catalog: &Catalog,
    schedule: &Schedule<'_>,
    stop: &Stop,
) -> Result<Option<std::vec::IntoIter<i64>>> {
    if let Some(ids) = schedule.ids {
        return Ok(Some(catalog.metadata().note_of(schedule.forge, ids)?.into_iter()));
    }
    let mut after = Some(0);
    while let Some(from) = after.filter(|_| !stop.is_stopped()) {
        after = catalog.metadata().note(schedule.forge, schedule.is_wanted_by_default, from, now())?;
    }
    Ok(None)
}
