//! The pauses of visits that `weir status` and the metrics show.

use weir_catalog::clock::now;
use weir_catalog::{Catalog, PausedHost};
use weir_ground::Timestamp;
use weir_mirror::Space;
use weir_mirror::throttle::Cause;

/// The seconds after which the catalog has the sizes of all archives: visits are recorded in batches.
const SIZES_LAG_S: i64 = 5;

/// Returns the pauses whose causes are still there. There may be room in `space` again before the paused
/// process has noticed; or it was killed, and nothing pauses.
///
/// # Errors
/// If the catalog fails.
pub fn pauses(catalog: &Catalog, space: &Space) -> weir_catalog::Result<Vec<PausedHost>> {
    let now = now();
    let mut pauses = catalog.visits().throttles(now)?;
    let is_for_room = |pause: &PausedHost| {
        pause.cause == Cause::LowSpace.name()
            || pause.cause == Cause::Quota.name() && now - SIZES_LAG_S >= Timestamp(pause.since)
    };
    if pauses.iter().any(is_for_room) && shortage(catalog, space)?.is_none() {
        pauses.retain(|pause| !is_for_room(pause));
    }
    Ok(pauses)
}

/// Returns why archives may not grow now, if they may not.
///
/// # Errors
/// If the catalog fails.
pub fn shortage(catalog: &Catalog, space: &Space) -> weir_catalog::Result<Option<Cause>> {
    if space.is_limited() {
        space.set_used(catalog.status().archive_bytes()?);
    }
    Ok(space.shortage())
}
