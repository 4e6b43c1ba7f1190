//! One visit to one upstream.

use std::path::Path;

use weir_ground::{FailureClass, Timestamp};
use weir_transport::Url;

use crate::failure::Failure;
use crate::options::VisitOptions;
use crate::replace::relink_or_replace;
use crate::update::{exists, update};
use crate::visited::{Known, Visited};

/// Brings the archive at `path` up to date with `url`. If the upstream shows the same as when its fingerprint
/// was taken, only the end of the archive is looked at. If the archive is found to be damaged, it goes on
/// from the last commit that holds, or is put aside for a new clone.
///
/// # Errors
/// If it does not go well; then the archive is as it was, or has one part of the update more.
pub fn visit(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<Visited, Failure> {
    if known.is_damaged
        && exists(path)?
        && let Some(visited) = relink_or_replace(url, path, known, now, options)?
    {
        return Ok(visited);
    }
    match update(url, path, known, now, options) {
        // What an upstream sends must not be taken for damage: all of it is read before it is believed.
        Err(failure) if failure.class == FailureClass::Damaged && exists(path)? => {
            relink_or_replace(url, path, known, now, options)?.ok_or(failure)
        }
        result => result,
    }
}
