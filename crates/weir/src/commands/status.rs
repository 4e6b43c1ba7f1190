//! `status`, `due`: the state of the mirror.

use std::collections::BTreeMap;
use std::io::Write;

use clap::builder::styling::Style;
use serde::Serialize;
use serde_json::json;
use weir_catalog::clock::now;
use weir_catalog::{
    AccountCounts, CollectorCounts, Counts, Listing, MetadataCounts, PausedHost, ReceivedCounts,
    RequestBudget,
};
use weir_ground::{FailureClass, Timestamp};
use weir_mirror::throttle::Cause;
use weir_pool::{HookState, Pool, hook_states, pauses, shortage, space};

use crate::cli::Global;
use crate::colors;
use crate::error::Result;
use crate::hook_lines::state_of;
use crate::listing::LISTING;
use crate::output;

const DAY_S: i64 = 86_400;

pub(crate) fn status(pool: &Pool, global: &Global) -> Result<()> {
    let found = PoolStatus::read(pool)?;
    if global.json {
        return output::json(&found.json());
    }
    let mut out = output::stdout();
    for (what, text) in [
        found.repositories(),
        found.failures(),
        found.forges(),
        found.events(),
        found.hooks(),
        found.limits(),
    ]
    .into_iter()
    .flatten()
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
    /// Why archives may not grow now, if they may not.
    shortage: Option<Cause>,
    metadata: MetadataCounts,
    /// The events from outside, and those of the last day.
    received: ReceivedCounts,
    collectors: Vec<CollectorCounts>,
    hooks: Vec<HookState>,
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
        let room = pool.space();
        Ok(PoolStatus {
            now,
            counts: pool.catalog.counts(now)?,
            errors: pool.catalog.errors_by_class()?,
            pauses: pauses(&pool.catalog, &room)?,
            forges,
            accounts,
            budgets: pool.catalog.budgets(now)?,
            space: space(&pool.store.path)?,
            shortage: shortage(&pool.catalog, &room)?,
            metadata: pool.catalog.metadata_counts()?,
            received: pool.catalog.received_counts(now - DAY_S)?,
            collectors: pool.catalog.collector_counts()?,
            hooks: hook_states(pool)?,
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
            "events": { "last": self.received.last, "last_at": self.received.last_at,
                "day": self.received.lately, "collectors": self.collectors },
            "hooks": self.hooks,
            "space": { "free_bytes": self.space.0, "total_bytes": self.space.1,
                "shortage": self.shortage.map(Cause::name) } })
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
            some(c.gone, "gone at their forge"),
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

    fn events(&self) -> Vec<StatusLine> {
        let ReceivedCounts { last, last_at, lately } = self.received;
        let mut lines = Vec::new();
        if let Some(at) = last_at.filter(|_| last > 0) {
            let ago = output::span(self.now - at);
            lines.push(("events", format!("{last}, {lately} in the last day, the last {ago} ago")));
        }
        lines.extend(self.collectors.iter().map(|c| {
            let rejected = some(c.rejected, "rejected ('weir events rejected')");
            let waiting = match c.is_known {
                true => format!("{} events wait", c.waiting),
                false => "not in weir.toml any more".to_owned(),
            };
            ("collected", format!("{}: {waiting}{rejected}", c.name))
        }));
        lines
    }

    fn hooks(&self) -> Vec<StatusLine> {
        let line = |hook: &HookState| {
            let state = state_of(hook, self.now).map_or_else(String::new, |state| format!(", {state}"));
            ("hook", format!("{}: {} events wait{state}", hook.name, hook.waiting))
        };
        self.hooks.iter().map(line).collect()
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
        let short =
            self.shortage.map_or_else(String::new, |cause| format!("; nothing is fetched: {}", cause.name()));
        lines.push(("space", format!("{archives} in archives, {free} free of {total}{short}")));
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
