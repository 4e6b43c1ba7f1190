//! A repository as JSON, as several commands print it.

use serde_json::json;
use weir_catalog::Repository;
use weir_pool::Pool;
use weir_transport::Url;

use crate::listing::RepositoryState;
use crate::output;

/// Returns the URL of the upstream, without a password.
pub(crate) fn shown_url(r: &Repository) -> String {
    Url::parse(&r.url).map_or_else(|_| r.url.clone(), |u| u.to_string())
}

/// Returns what the catalog and the store know of a repository as JSON.
pub(crate) fn repository_json(pool: &Pool, r: &Repository) -> serde_json::Value {
    let path = pool.archive_path(r);
    let is_there = path.exists();
    json!({
        "name": r.name, "url": shown_url(r), "state": RepositoryState::of(r, is_there).name(),
        "paused": r.is_paused,
        "pinned": r.is_pinned,
        "archive": path, "archive_exists": is_there,
        "archive_bytes": std::fs::metadata(&path).ok().map(|m| m.len()), "refs": r.ref_count, "seq": r.seq,
        "added_at": r.added_at, "last_attempt": r.last_attempt, "last_success": r.last_success,
        "last_change": r.last_change,
        "next_due": (!r.is_paused && !r.is_pinned).then_some(r.next_due), "failures": r.failures,
        "error_class": r.error_class, "error": r.error, "lfs_missing": r.lfs_missing,
        "priority": r.priority, "settings": output::settings_json(&r.settings),
    })
}
