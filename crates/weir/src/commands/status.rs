//! `status`, `due`, `errors`: the state of the mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clap::builder::styling::Style;
use serde::Serialize;
use serde_json::json;
use weir_catalog::{AccountCounts, Counts, Listing, MetadataCounts, PausedHost, Repository, RequestBudget};
use weir_ground::{FailureClass, Timestamp, name_matches};

use crate::cli::Global;
use crate::colors;
use crate::error::{Error, Result};
use crate::output;
use crate::pauses::pauses;
use crate::pool::{Pool, now, space};

pub(crate) fn status(pool: &Pool, global: &Global) -> Result<()> {
    let found = PoolStatus::read(pool)?;
    if global.json {
        return output::json(&found.json());
    }
    let mut out = output::stdout();
    for (what, text) in
        [found.repositories(), found.failures(), found.forges(), found.limits()].into_iter().flatten()
    {
        out.styled(colors::HEADING, what)?;
        write!(out, "{:1$}", "", 14 - what.len())?;
        out.styled(style_of(what, &text), &text)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Returns the style of a line's text.
fn style_of(what: &str, text: &str) -> Style {
    match (what, text) {
        ("failing" | "pauses", "none") => colors::GOOD,
        ("failing", _) => colors::BAD,
        ("pauses", _) => colors::DOUBTFUL,
        _ => Style::new(),
    }
}

/// What `weir status` shows.
struct PoolStatus {
    now: Timestamp,
    counts: Counts,
    errors: Vec<(FailureClass, i64)>,
    pauses: Vec<PausedHost>,
    forges: Vec<ForgeStatus>,
    accounts: Vec<(AccountCounts, Listing, String)>,
    budgets: Vec<(String, RequestBudget)>,
    /// The free bytes and all bytes of the store's file system.
    space: (u64, u64),
    metadata: MetadataCounts,
}

/// A forge's listing and the numbers of its repositories in the catalog.
#[derive(Serialize)]
struct ForgeStatus {
    listing: Listing,
    known: i64,
    gone: i64,
    skipped_pages: usize,
}

/// A line of the status: its label and its text.
type StatusLine = (&'static str, String);

/// Returns ", N what", or nothing if `n` is 0.
fn some(n: i64, what: &str) -> String {
    if n > 0 { format!(", {n} {what}") } else { String::new() }
}

impl PoolStatus {
    fn read(pool: &Pool) -> Result<PoolStatus> {
        let now = now();
        let (mut forges, mut accounts) = (Vec::new(), Vec::new());
        for listing in pool.catalog.listings()? {
            if let Some(forge) = weir_forge::forge_of_accounts_listing(&listing.forge) {
                let forge = forge.to_owned();
                accounts.push((pool.catalog.account_counts(&forge)?, listing, forge));
                continue;
            }
            let skipped_pages = pool.catalog.skipped_pages(&listing.forge)?.len();
            let (known, gone) = pool.catalog.forge_counts(&listing.forge)?;
            forges.push(ForgeStatus { listing, known, gone, skipped_pages });
        }
        Ok(PoolStatus {
            now,
            counts: pool.catalog.counts(now)?,
            errors: pool.catalog.errors_by_class()?,
            pauses: pauses(&pool.catalog, &pool.space())?,
            forges,
            accounts,
            budgets: pool.catalog.budgets(now)?,
            space: space(&pool.store.path)?,
            metadata: pool.catalog.metadata_counts()?,
        })
    }

    fn json(&self) -> serde_json::Value {
        let by_class: BTreeMap<&str, i64> = self.errors.iter().map(|(class, n)| (class.name(), *n)).collect();
        let accounts = self
            .accounts
            .iter()
            .map(|(counts, listing, forge)| json!({ "forge": forge, "counts": counts, "listing": listing }));
        let budgets = self.budgets.iter().map(|(forge, budget)| json!({ "forge": forge, "budget": budget }));
        json!({
            "counts": self.counts, "metadata": self.metadata, "errors": by_class, "pauses": self.pauses,
            "accounts": accounts.collect::<Vec<_>>(), "budgets": budgets.collect::<Vec<_>>(),
            "forges": self.forges,
            "space": { "free_bytes": self.space.0, "total_bytes": self.space.1 } })
    }

    fn repositories(&self) -> Vec<StatusLine> {
        let c = &self.counts;
        let lag = match c.lag_s {
            s if s > 0 => format!(", the most overdue for {}", output::span(s)),
            _ => String::new(),
        };
        let repositories = format!(
            "{}, {} mirrored{}{}{}{}",
            c.repositories,
            c.mirrored,
            some(c.gone, "gone upstream"),
            some(c.paused, "paused"),
            some(c.pinned, "set back"),
            some(c.incomplete, "with missing LFS objects ('weir ls --state incomplete')")
        );
        let visits = format!(
            "{} due{lag}{}; {} succeeded in the last hour, {} in the last day",
            c.due,
            some(c.leased, "leased"),
            c.visited_hour,
            c.visited_day
        );
        vec![("repositories", repositories), ("visits", visits)]
    }

    fn failures(&self) -> Vec<StatusLine> {
        let classes: Vec<String> = self.errors.iter().map(|(class, n)| format!("{n} {class}")).collect();
        let failing = match classes.is_empty() {
            true => "none".to_owned(),
            false => format!("{}: {}", self.counts.failing, classes.join(", ")),
        };
        let pause = |p: &PausedHost| {
            let what = if p.host.is_empty() { "everything" } else { &p.host };
            ("pauses", format!("{what} for {} more: {}", output::span(p.until - self.now), p.cause))
        };
        let mut lines = vec![("failing", failing)];
        lines.extend(self.pauses.iter().map(pause));
        if self.pauses.is_empty() {
            lines.push(("pauses", "none".to_owned()));
        }
        lines
    }

    fn forges(&self) -> Vec<StatusLine> {
        let ago = |at: Timestamp| output::span(self.now - at);
        let state = |l: &Listing| match (l.finished_at, l.failed_at) {
            (Some(at), _) => format!("listed {} ago", ago(at)),
            (None, Some(at)) => {
                format!("failed {} ago after {} ('weir errors {LISTING}')", ago(at), l.listed)
            }
            (None, None) => format!("being listed since {} ago, {} so far", ago(l.started_at), l.listed),
        };
        let mut lines = Vec::new();
        for ForgeStatus { listing, known, gone, skipped_pages } in &self.forges {
            let skipped = some(*skipped_pages as i64, &format!("failed pages ('weir errors {LISTING}')"));
            let (gone, state) = (some(*gone, "gone"), state(listing));
            lines.push(("forge", format!("{}: {known} known{gone}, {state}{skipped}", listing.forge)));
        }
        for (c, listing, forge) in &self.accounts {
            let (users, organizations, memberships) = (c.users, c.organizations, c.memberships);
            lines.push((
                "accounts",
                format!(
                    "{forge}: {users} people, {organizations} organisations, {memberships} memberships, {}",
                    state(listing)
                ),
            ));
        }
        let (looked_at, failing) = (self.metadata.looked_at, self.metadata.failing);
        if looked_at > 0 {
            let failing = some(failing, "failing ('weir errors metadata')");
            lines.push(("metadata", format!("of {looked_at} repositories{failing}")));
        }
        lines
    }

    fn limits(&self) -> Vec<StatusLine> {
        let budget = |(forge, b): &(String, RequestBudget)| {
            let of = b.limit.map_or(String::new(), |limit| format!(" of {limit}"));
            let whole_in = output::span(b.reset_at - self.now);
            let (credential, remaining) = (&b.credential, b.remaining);
            let text = format!("{forge}, {credential}: {remaining}{of} requests left, reset in {whole_in}");
            ("budget", text)
        };
        let mut lines: Vec<StatusLine> = self.budgets.iter().map(budget).collect();
        let archives = output::bytes(self.counts.archive_bytes as u64);
        let (free, total) = (output::bytes(self.space.0), output::bytes(self.space.1));
        lines.push(("space", format!("{archives} in archives, {free} free of {total}")));
        lines
    }
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

pub(crate) fn errors(pool: &Pool, global: &Global, filters: &[String], max: usize) -> Result<()> {
    match filters {
        [only] if only == METADATA => return metadata_errors(pool, global, max),
        [only] if only == LISTING => return listing_errors(pool, global, max),
        _ => {}
    }
    let now = now();
    let list = failing(pool, filters, max)?;
    if global.json {
        return output::json(&list);
    }
    let mut out = output::stdout();
    for r in &list {
        let class = r.error_class.map_or("", FailureClass::name);
        let next = output::span((r.next_due - now).max(0));
        writeln!(
            out,
            "{class:<12}{}: {} ({} in a row; next visit in {next})",
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

/// Returns at most `max` repositories whose last visit failed, the latest first: with one of the classes among
/// `filters`, and with a name that one of the others matches.
fn failing(pool: &Pool, filters: &[String], max: usize) -> Result<Vec<Repository>> {
    let (classes, patterns): (Vec<&String>, Vec<&String>) =
        filters.iter().partition(|filter| FailureClass::from_name(filter).is_some());
    for pattern in &patterns {
        if let Err(weir_pool::Error::NoMatch(_)) = weir_pool::matching(&pool.catalog, Some(pattern)) {
            let names: Vec<&str> = FailureClass::ALL.iter().map(|class| class.name()).collect();
            return Err(Error::Message(format!(
                "'{pattern}' matches no repository and names no class of failures; there are {}, {LISTING} and \
                {METADATA}",
                names.join(", ")
            )));
        }
    }
    if let ([], []) | ([_], []) = (classes.as_slice(), patterns.as_slice()) {
        return Ok(pool.catalog.failing(classes.first().map(|class| class.as_str()), max)?);
    }
    let mut list = pool.catalog.failing(None, usize::MAX)?;
    let is_class = |r: &Repository| r.error_class.is_some_and(|of| classes.iter().any(|c| *c == of.name()));
    list.retain(|r| classes.is_empty() || is_class(r));
    list.retain(|r| patterns.is_empty() || patterns.iter().any(|p| name_matches(p, &r.name)));
    list.truncate(max);
    Ok(list)
}

/// The class of failures of listings: those that ended early, and pages that could not be fetched.
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

/// The class of failures of looks.
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
