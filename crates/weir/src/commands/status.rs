//! `status`, `due`, `errors`: how the mirror is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use weir_catalog::Listing;
use weir_ground::FailureClass;

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{Pool, now, space};

pub(crate) fn status(pool: &Pool, global: &Global) -> Result<()> {
    let now = now();
    let counts = pool.catalog.counts(now)?;
    let errors = pool.catalog.errors_by_class()?;
    let pauses = pool.catalog.throttles(now)?;
    let mut forges = Vec::new();
    let mut accounts = Vec::new();
    for listing in pool.catalog.listings()? {
        if let Some(forge) = weir_forge::forge_of_accounts_listing(&listing.forge) {
            let forge = forge.to_owned();
            accounts.push((pool.catalog.account_counts(&forge)?, listing, forge));
            continue;
        }
        let skipped = pool.catalog.skipped_pages(&listing.forge)?.len();
        let (known, gone) = pool.catalog.forge_counts(&listing.forge)?;
        forges.push((listing, known, gone, skipped));
    }
    let budgets = pool.catalog.budgets(now)?;
    let space = space(&pool.store())?;
    let metadata = pool.catalog.metadata_counts()?;
    if global.json {
        let forges: Vec<_> = forges
            .iter()
            .map(|(listing, known, gone, skipped)| {
                serde_json::json!({ "listing": listing, "known": known, "gone": gone,
                    "skipped_pages": skipped })
            })
            .collect();
        let by_class: BTreeMap<&str, i64> = errors.iter().map(|(class, n)| (class.name(), *n)).collect();
        return output::json(&serde_json::json!({
            "counts": counts, "metadata": metadata,
            "errors": by_class, "pauses": pauses,
            "accounts": accounts.iter().map(|(counts, listing, forge)| serde_json::json!({ "forge": forge,
            "counts": counts, "listing": listing })).collect::<Vec<_>>(),
            "budgets": budgets.iter().map(|(forge, budget)| serde_json::json!({ "forge": forge,
            "budget": budget })).collect::<Vec<_>>(),
            "forges": forges, "space": { "free_bytes": space.0, "total_bytes": space.1 } }));
    }
    let mut out = output::stdout();
    let mut line = |what: &str, text: String| writeln!(out, "{what:<14}{text}");
    let c = &counts;
    let some = |n: i64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
    line(
        "repositories",
        format!(
            "{}, {} mirrored{}{}{}{}",
            c.repositories,
            c.mirrored,
            some(c.gone, "gone upstream"),
            some(c.paused, "paused"),
            some(c.pinned, "set back"),
            some(c.incomplete, "without all files of Git LFS ('weir ls --state incomplete')")
        ),
    )?;
    let lag =
        if c.lag_s > 0 { format!(", the most overdue for {}", output::span(c.lag_s)) } else { String::new() };
    line(
        "visits",
        format!(
            "{} due{lag}{}; {} well in an hour, {} in a day",
            c.due,
            some(c.leased, "leased"),
            c.visited_hour,
            c.visited_day
        ),
    )?;
    let classes: Vec<String> = errors.iter().map(|(class, n)| format!("{n} {class}")).collect();
    line(
        "failing",
        if errors.is_empty() { "none".to_owned() } else { format!("{}: {}", c.failing, classes.join(", ")) },
    )?;
    if pauses.is_empty() {
        line("pauses", "none".to_owned())?;
    }
    for p in &pauses {
        let what = if p.host.is_empty() { "everything" } else { &p.host };
        line("pauses", format!("{what} for {} more: {}", output::span(p.until - now), p.cause))?;
    }
    let state = |l: &Listing| match (l.finished_at, l.failed_at) {
        (Some(at), _) => format!("listed {} ago", output::span(now - at)),
        (None, Some(at)) => {
            format!("failed {} ago after {} ('weir errors {LISTING}')", output::span(now - at), l.listed)
        }
        (None, None) => {
            format!("being listed since {} ago, {} so far", output::span(now - l.started_at), l.listed)
        }
    };
    for (l, known, gone, skipped) in &forges {
        let state = state(l);
        let (gone, skipped) = (
            some(*gone, "gone"),
            some(*skipped as i64, &format!("pages that cannot be had ('weir errors {LISTING}')")),
        );
        line("forge", format!("{}: {known} known{gone}, {state}{skipped}", l.forge))?;
    }
    for (c, l, forge) in &accounts {
        line(
            "accounts",
            format!(
                "{forge}: {} people, {} organisations, {} memberships, {}",
                c.users,
                c.organizations,
                c.memberships,
                state(l)
            ),
        )?;
    }
    if metadata.looked_at > 0 {
        let failing = some(metadata.failing, "failing ('weir errors metadata')");
        line("metadata", format!("of {} repositories{failing}", metadata.looked_at))?;
    }
    for (forge, b) in &budgets {
        let of = b.limit.map_or(String::new(), |limit| format!(" of {limit}"));
        line(
            "budget",
            format!(
                "{forge}, {}: {}{of} requests left, whole again in {}",
                b.credential,
                b.remaining,
                output::span(b.reset_at - now)
            ),
        )?;
    }
    let (free, total) = space;
    line(
        "space",
        format!(
            "{} in archives, {} free of {}",
            output::bytes(c.archive_bytes as u64),
            output::bytes(free),
            output::bytes(total)
        ),
    )?;
    Ok(())
}

pub(crate) fn due(pool: &Pool, global: &Global, max: usize) -> Result<()> {
    let now = now();
    let list = pool.catalog.next_ones(max)?;
    if global.json {
        let rows: Vec<_> = list
            .iter()
            .map(|r| serde_json::json!({ "name": r.name, "next_due": r.next_due, "in_s": r.next_due - now }))
            .collect();
        return output::json(&rows);
    }
    let mut out = output::stdout();
    for r in &list {
        let when = match r.next_due - now {
            _ if r.last_attempt.is_none() => "never visited".to_owned(),
            wait if wait > 0 => format!("in {}", output::span(wait)),
            wait => format!("for {}", output::span(-wait)),
        };
        writeln!(out, "{when:<16}{}", r.name)?;
    }
    Ok(())
}

pub(crate) fn errors(pool: &Pool, global: &Global, class: Option<&str>, max: usize) -> Result<()> {
    if class == Some(METADATA) {
        return metadata_errors(pool, global, max);
    }
    if class == Some(LISTING) {
        return listing_errors(pool, global, max);
    }
    let now = now();
    let list = pool.catalog.failing(class, max)?;
    if let Some(class) = class.filter(|class| FailureClass::from_name(class).is_none()) {
        let names: Vec<&str> = FailureClass::ALL.iter().map(|class| class.name()).collect();
        return Err(Error::Message(format!(
            "no class of failures is called '{class}'; there are {}, {LISTING} and {METADATA}",
            names.join(", ")
        )));
    }
    if global.json {
        return output::json(&list);
    }
    let mut out = output::stdout();
    for r in &list {
        let class = r.error_class.map_or("", FailureClass::name);
        let next = output::span((r.next_due - now).max(0));
        writeln!(
            out,
            "{class:<12}{}: {} ({} in turn; again in {next})",
            r.name,
            r.error.as_deref().unwrap_or_default(),
            r.failures
        )?;
    }
    let classes: BTreeSet<&str> = list.iter().filter_map(|r| r.error_class).map(FailureClass::name).collect();
    if !classes.is_empty() {
        writeln!(out)?;
        writeln!(out, "What to do:")?;
    }
    for class in classes {
        writeln!(out, "{class:<12}{}", FailureClass::from_name(class).map_or("", FailureClass::remedy))?;
    }
    Ok(())
}

/// What is no class of visits either: listings of forges that ended early, and pages that could not be had.
const LISTING: &str = "listing";

fn listing_errors(pool: &Pool, global: &Global, max: usize) -> Result<()> {
    let now = now();
    let mut rows = Vec::new();
    for Listing { forge, failed_at, error, .. } in pool.catalog.listings()? {
        if let (Some(at), Some(error)) = (failed_at, error) {
            rows.push((forge.clone(), None, error, at));
        }
        rows.extend(
            pool.catalog
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
        return output::json(&rows.iter().map(row).collect::<Vec<_>>());
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

/// What is no class of visits: looks at what forges say around repositories.
const METADATA: &str = "metadata";

fn metadata_errors(pool: &Pool, global: &Global, max: usize) -> Result<()> {
    let list = pool.catalog.metadata_errors(max)?;
    if global.json {
        return output::json(
            &list
                .iter()
                .map(|(name, error)| serde_json::json!({ "name": name, "error": error }))
                .collect::<Vec<_>>(),
        );
    }
    let mut out = output::stdout();
    for (name, error) in &list {
        writeln!(out, "{METADATA:<12}{name}: {error}")?;
    }
    Ok(())
}
