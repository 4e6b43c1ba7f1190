//! `status`, `due`: the state of the mirror.

use std::io::Write;

use clap::builder::styling::Style;
use weir_arguments::Global;
use weir_catalog::{Listing, PausedHost};
use weir_ground::Timestamp;
use weir_pool::{
    AccountsStatus, BudgetStatus, EventsStatus, ForgeStatus, HookState, Pool, PoolStatus, SpaceStatus,
    due_repositories,
};
use weir_terminal::{colors, hook_lines::state_of, output};

use crate::error::Result;
use crate::listing::LISTING;

pub(crate) fn status(pool: &Pool, global: &Global) -> Result<()> {
    let found = PoolStatus::read(pool)?;
    if global.json {
        return Ok(output::json(&found)?);
    }
    let found = StatusText(found);
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

/// A line of the status: its label and its text.
type StatusLine = (&'static str, String);

/// Returns ", N what", or nothing if `n` is 0.
fn some(n: i64, what: &str) -> String {
    if n > 0 { format!(", {n} {what}") } else { String::new() }
}

/// The state of a pool, as people read it.
struct StatusText(PoolStatus);

impl StatusText {
    fn repositories(&self) -> Vec<StatusLine> {
        let c = &self.0.counts;
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
        let classes: Vec<String> = self.0.errors.iter().map(|(class, n)| format!("{n} {class}")).collect();
        let failing = match classes.is_empty() {
            true => "none".to_owned(),
            false => format!("{}: {}", self.0.counts.failing, classes.join(", ")),
        };
        let pause = |p: &PausedHost| {
            let what = if p.host.is_empty() { "everything" } else { &p.host };
            ("pauses", format!("{what} for {} more: {}", output::span(p.until - self.0.now), p.cause))
        };
        let mut lines = vec![("failing", failing)];
        lines.extend(self.0.pauses.iter().map(pause));
        if self.0.pauses.is_empty() {
            lines.push(("pauses", "none".to_owned()));
        }
        lines
    }

    fn events(&self) -> Vec<StatusLine> {
        let EventsStatus { last, last_at, day, .. } = self.0.events;
        let mut lines = Vec::new();
        if let Some(at) = last_at.filter(|_| last > 0) {
            let ago = output::span(self.0.now - at);
            lines.push(("events", format!("{last}, {day} in the last day, the last {ago} ago")));
        }
        lines.extend(self.0.events.collectors.iter().map(|c| {
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
            let state = state_of(hook, self.0.now).map_or_else(String::new, |state| format!(", {state}"));
            ("hook", format!("{}: {} events wait{state}", hook.name, hook.waiting))
        };
        self.0.hooks.iter().map(line).collect()
    }

    fn forges(&self) -> Vec<StatusLine> {
        let ago = |at: Timestamp| output::span(self.0.now - at);
        let state = |l: &Listing| match (l.finished_at, l.failed_at) {
            (Some(at), _) => format!("listed {} ago", ago(at)),
            (None, Some(at)) => {
                format!("failed {} ago after {} ('weir errors {LISTING}')", ago(at), l.listed)
            }
            (None, None) => format!("being listed since {} ago, {} so far", ago(l.started_at), l.listed),
        };
        let mut lines = Vec::new();
        for ForgeStatus { listing, known, gone, skipped_pages } in &self.0.forges {
            let skipped = some(*skipped_pages as i64, &format!("failed pages ('weir errors {LISTING}')"));
            let (gone, state) = (some(*gone, "gone"), state(listing));
            lines.push(("forge", format!("{}: {known} known{gone}, {state}{skipped}", listing.forge)));
        }
        for AccountsStatus { forge, counts: c, listing } in &self.0.accounts {
            let (users, organizations, memberships) = (c.users, c.organizations, c.memberships);
            lines.push((
                "accounts",
                format!(
                    "{forge}: {users} people, {organizations} organisations, {memberships} memberships, {}",
                    state(listing)
                ),
            ));
        }
        let (looked_at, failing) = (self.0.metadata.looked_at, self.0.metadata.failing);
        if looked_at > 0 {
            let failing = some(failing, "failing ('weir errors metadata')");
            lines.push(("metadata", format!("of {looked_at} repositories{failing}")));
        }
        lines
    }

    fn limits(&self) -> Vec<StatusLine> {
        let budget = |BudgetStatus { forge, budget: b }: &BudgetStatus| {
            let of = b.limit.map_or(String::new(), |limit| format!(" of {limit}"));
            let whole_in = output::span(b.reset_at - self.0.now);
            let (credential, remaining) = (&b.credential, b.remaining);
            let text = format!("{forge}, {credential}: {remaining}{of} requests left, reset in {whole_in}");
            ("budget", text)
        };
        let mut lines: Vec<StatusLine> = self.0.budgets.iter().map(budget).collect();
        let archives = output::bytes(self.0.counts.archive_bytes as u64);
        let SpaceStatus { free_bytes, total_bytes, shortage } = self.0.space;
        let (free, total) = (output::bytes(free_bytes), output::bytes(total_bytes));
        let short = shortage.map_or_else(String::new, |cause| format!("; nothing is fetched: {cause}"));
        lines.push(("space", format!("{archives} in archives, {free} free of {total}{short}")));
        lines
    }
}

pub(crate) fn due(pool: &Pool, global: &Global, max: usize) -> Result<()> {
    let list = due_repositories(pool, max)?;
    if global.json {
        return Ok(output::json(&list)?);
    }
    let mut out = output::stdout();
    for r in &list {
        let when = match r.in_s {
            _ if !r.was_visited => "never visited".to_owned(),
            wait if wait > 0 => format!("in {}", output::span(wait)),
            wait => format!("for {}", output::span(-wait)),
        };
        writeln!(out, "{when:<16}{}", r.name)?;
    }
    Ok(())
}
