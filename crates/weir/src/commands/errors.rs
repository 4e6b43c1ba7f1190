//! `errors`: what failed, one line for each cause, and what to do.

use std::collections::BTreeSet;
use std::io::Write;

use serde::Serialize;
use weir_arguments::{ErrorsArgs, Global};
use weir_catalog::clock::now;
use weir_catalog::{Listing, Repository};
use weir_ground::{FailureClass, Timestamp};
use weir_pool::{FailureGroup, FailureView, Pool, failing};
use weir_terminal::{colors, output};

use crate::error::Result;
use crate::listing::{LISTING, METADATA};
use crate::remedies;

pub(crate) fn errors(pool: &Pool, global: &Global, args: &ErrorsArgs) -> Result<()> {
    let ErrorsArgs { filters, all, max_count } = args;
    match filters.as_slice() {
        [only] if only == METADATA => return metadata_errors(pool, global, *max_count),
        [only] if only == LISTING => return listing_errors(pool, global, *max_count),
        _ => {}
    }
    let is_each = *all || global.json;
    let list = failing(pool, filters, if is_each { *max_count } else { usize::MAX })?;
    if global.json {
        return Ok(output::json(&list.into_iter().map(FailureWithRemedy::from).collect::<Vec<_>>())?);
    }
    let groups = match is_each {
        true => list.into_iter().map(FailureGroup::of_one).collect(),
        false => FailureGroup::group(list),
    };
    let shown = &groups[..groups.len().min(*max_count)];
    let (mut out, now) = (output::stdout(), now());
    for group in shown {
        let class = group.first.error_class.map_or("", FailureClass::name);
        out.styled(colors::BAD, class)?;
        writeln!(out, "{:1$}{2}", "", 12_usize.saturating_sub(class.len()), line(group, now))?;
    }
    if shown.len() < groups.len() {
        writeln!(out, "and {} more causes; -n N shows more", groups.len() - shown.len())?;
    }
    if shown.iter().any(|group| group.count > 1) {
        writeln!(out, "'weir errors --all' lists each repository")?;
    }
    let classes: BTreeSet<&str> =
        shown.iter().filter_map(|group| group.first.error_class).map(FailureClass::name).collect();
    if !classes.is_empty() {
        writeln!(out)?;
        writeln!(out, "What to do:")?;
    }
    for class in classes {
        writeln!(out, "{class:<12}{}", FailureClass::from_name(class).map_or("", remedies::of_class))?;
    }
    Ok(())
}

/// A failure, as JSON has it.
#[derive(Serialize)]
struct FailureWithRemedy {
    #[serde(flatten)]
    failure: FailureView,
    remedy: Option<&'static str>,
}

impl From<Repository> for FailureWithRemedy {
    fn from(r: Repository) -> FailureWithRemedy {
        FailureWithRemedy { remedy: r.error_class.map(remedies::of_class), failure: r.into() }
    }
}

/// Returns a group as a line.
fn line(group: &FailureGroup, now: Timestamp) -> String {
    let (host, cause, count, names) = (&group.host, &group.cause, group.count, group.names.join(", "));
    let next = output::span((group.next_due - now).max(0));
    if count == 1 {
        let (error, failures) = (group.first.error.as_deref().unwrap_or_default(), group.first.failures);
        return format!("{names}: {error} ({failures} in a row; next visit in {next})");
    }
    let more = match count - group.names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{host}: {cause} ({count} repositories: {names}{more}; next visit in {next})")
}

fn listing_errors(pool: &Pool, global: &Global, max: usize) -> Result<()> {
    let now = now();
    let mut rows = Vec::new();
    for Listing { forge, failed_at, error, .. } in pool.catalog.listings().all()? {
        if let (Some(at), Some(error)) = (failed_at, error) {
            rows.push((forge.clone(), None, error, at));
        }
        rows.extend(
            pool.catalog
                .listings()
                .skipped_pages(&forge)?
                .into_iter()
                .map(|page| (forge.clone(), Some(page.position), page.error, page.last_at)),
        );
    }
    rows.truncate(max);
    if global.json {
        let row = |(forge, position, error, at): &(_, _, _, _)| {
            serde_json::json!({ "forge": forge,
            "position": position, "error": error, "at": at })
        };
        return Ok(output::json(&rows.iter().map(row).collect::<Vec<_>>())?);
    }
    let mut out = output::stdout();
    for (forge, position, error, at) in &rows {
        let place = position.as_ref().map_or(String::new(), |position| format!(", page {position}"));
        writeln!(
            out,
            "{LISTING:<12}{forge}{place}: {error} ({} ago; 'weir crawl' tries again)",
            output::span(now - *at)
        )?;
    }
    Ok(())
}

fn metadata_errors(pool: &Pool, global: &Global, max: usize) -> Result<()> {
    let list = pool.catalog.metadata().errors(max)?;
    if global.json {
        return Ok(output::json(
            &list
                .iter()
                .map(|(name, error)| serde_json::json!({ "name": name, "error": error }))
                .collect::<Vec<_>>(),
        )?);
    }
    let mut out = output::stdout();
    for (name, error) in &list {
        writeln!(out, "{METADATA:<12}{name}: {error}")?;
    }
    Ok(())
}
