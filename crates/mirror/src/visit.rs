//! Visits one upstream.

use std::path::Path;

use weir_ground::{FailureClass, Timestamp};
use weir_transport::Url;

use crate::failure::Failure;
use crate::options::VisitOptions;
use crate::replace::relink_or_replace;
use crate::update::{exists, update};
use crate::visited::{Known, Visited};

/// Brings the archive at `path` up to date with `url`. If the upstream advertises what the known fingerprint
/// was made of, only the end of the archive is checked. A damaged archive continues from its last intact
/// commit, or is set aside and cloned again.
///
/// # Errors
/// If the visit fails. The archive is then as it was, or has one more part of the update.
pub fn visit(
    url: &Url,
    path: &Path,
    known: &Known<'_>,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<Visited, Failure> {
    if known.is_damaged && exists(path)? {
        check_base(known)?;
        if let Some(visited) = relink_or_replace(url, path, known, now, options)? {
            return Ok(visited);
        }
    }
    match update(url, path, known, now, options) {
        // Input from the upstream must not be taken for damage: the archive is read in full before it is
        // replaced.
        Err(failure) if failure.class == FailureClass::Damaged && exists(path)? => {
            check_base(known)?;
            relink_or_replace(url, path, known, now, options)?.ok_or(failure)
        }
        result => result,
    }
}

/// Checks that the base of an archive is there. Without it the archive looks damaged, and lacks nothing once
/// the base has been cloned again.
fn check_base(known: &Known<'_>) -> Result<(), Failure> {
    match known.base.filter(|base| !base.exists()) {
        Some(base) => {
            let words =
                format!("its base '{}' is missing; it is visited again after the base", base.display());
            Err(Failure::new(FailureClass::Base, words))
        }
        None => Ok(()),
    }
}
