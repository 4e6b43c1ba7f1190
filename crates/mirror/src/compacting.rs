//! Compacts an archive when it has too many packs or too many unused bytes.

use std::path::Path;

use weir_ground::Timestamp;
use weir_repo::{ArchiveRepo, ArchiveUse, Phase, Rewrite, Sharing, UpdateReport};

use crate::options::{Compacting, VisitOptions};

/// Fewer unused bytes than this are not worth a compaction.
const UNUSED_BYTES_MIN: u64 = 4 << 20;
/// Each compaction copies the large files that are kept beside the repository. The more there are, the more
/// packs it waits for: up to this many times as many.
const PACKS_TIMES_MAX: u64 = 20;
/// Repositories smaller than this count as having this many bytes.
const COPIED_BYTES_MIN: u64 = 256 << 20;

impl Compacting {
    /// Returns why an archive with this usage is to be compacted, if it is.
    fn reason(&self, used: &ArchiveUse) -> Option<String> {
        let ArchiveUse { packs, bytes, live_bytes, beside_bytes } = *used;
        let repository_bytes = live_bytes.saturating_sub(beside_bytes).max(COPIED_BYTES_MIN);
        let packs_max = self.packs_max as u64 * (1 + beside_bytes / repository_bytes).min(PACKS_TIMES_MAX);
        let unused = bytes.saturating_sub(live_bytes);
        if packs as u64 > packs_max {
            Some(format!("{packs} packs"))
        } else if unused > UNUSED_BYTES_MIN
            && unused as f64 > bytes as f64 * f64::from(self.unused_percent_max) / 100.0
        {
            Some(format!("{unused} bytes unused of {bytes}"))
        } else {
            None
        }
    }
}

/// Compacts `archive`, which is at `path`, if that is due, there is room for it, and it has not just failed.
/// A failed compaction costs only time: the archive stays as it is, and is not compacted for some updates.
pub(crate) fn compact_if_due(
    mut archive: ArchiveRepo,
    path: &Path,
    now: Timestamp,
    options: &VisitOptions,
) -> Option<UpdateReport> {
    let used = archive.used();
    let has_long_chains = archive.has_long_chains(now).unwrap_or_else(|e| {
        tracing::warn!(path = %path.display(), "cannot look for long chains of deltas: {e}");
        false
    });
    let reason = match has_long_chains {
        true => "chains of deltas are longer than git writes them".to_owned(),
        false => options.compacting.reason(&used)?,
    };
    if archive.compaction_is_put_off() {
        return None;
    }
    let store = path.parent().unwrap_or(Path::new("."));
    // The new file, and once more the largest pack if it does not fit the scratch folder.
    let needed = used.live_bytes.saturating_add(used.live_bytes - used.beside_bytes);
    if !options.space.has_room_for(needed) {
        tracing::warn!(path = %path.display(), "not compacted ({reason}): not enough free space, {needed} \
            bytes needed");
        return None;
    }
    let spill = |bytes| options.scratch.place(bytes, store);
    options.progress.begin(Phase::Compacting, 0);
    let how = Rewrite { sharing: Sharing::Keep, time: now, threads: options.threads, spill: &spill };
    match archive.compact(&how) {
        Ok(report) => {
            tracing::debug!(path = %path.display(), "compacted: {reason}");
            Some(report)
        }
        Err(e) => {
            tracing::warn!(path = %path.display(), "not compacted: {e}");
            if let Err(e) = archive.put_compaction_off(now) {
                tracing::warn!(path = %path.display(), "cannot postpone the compaction, the next update \
                    tries it again: {e}");
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unused_bytes_are_reasons() {
        const MIB: u64 = 1 << 20;
        let when = Compacting { packs_max: 50, unused_percent_max: 50 };
        let used = |packs, bytes, live_bytes, beside_bytes| {
            when.reason(&ArchiveUse { packs, bytes, live_bytes, beside_bytes })
        };
        assert_eq!(used(50, 100 * MIB, 100 * MIB, 0), None);
        assert!(used(51, 100 * MIB, 100 * MIB, 0).is_some());
        // A few unused bytes are not worth it, more than half is.
        assert_eq!(used(1, 3 * MIB, 0, 0), None);
        assert_eq!(used(1, 100 * MIB, 51 * MIB, 0), None);
        assert!(used(1, 100 * MIB, 49 * MIB, 0).is_some());
        // With many bytes that are only copied, less often.
        assert_eq!(used(51, 3000 * MIB, 3000 * MIB, 2700 * MIB), None);
        assert!(used(1001, 900_000 * MIB, 900_000 * MIB, 899_000 * MIB).is_some());
    }
}
