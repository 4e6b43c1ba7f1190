//! `errors`: what failed, one line for each cause, and what to do.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use weir_catalog::clock::now;
use weir_catalog::{Listing, Repository};
use weir_ground::{FailureClass, Timestamp, name_matches};
use weir_pool::{Pool, shown_url};
use weir_transport::Url;

use crate::cli::{ErrorsArgs, Global};
use crate::colors;
use crate::error::{Error, Result};
use crate::listing::{LISTING, METADATA};
use crate::output;

pub(crate) fn errors(pool: &Pool, global: &Global, args: &ErrorsArgs) -> Result<()> {
    let ErrorsArgs { filters, all, max_count } = args;
    match filters.as_slice() {
        [only] if only == METADATA => return metadata_errors(pool, global, *max_count),
        [only] if only == LISTING => return listing_errors(pool, global, *max_count),
        _ => {}
    }
    let is_each = *all || global.json;
    let mut list = failing(pool, filters, if is_each { *max_count } else { usize::MAX })?;
    if global.json {
        list.iter_mut().for_each(|r| r.url = shown_url(r));
        return output::json(&list);
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
        writeln!(out, "{:1$}{2}", "", 12_usize.saturating_sub(class.len()), group.text(now))?;
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
        writeln!(out, "{class:<12}{}", FailureClass::from_name(class).map_or("", FailureClass::remedy))?;
    }
    Ok(())
}

/// Repositories that failed for one cause.
struct FailureGroup {
    /// The one that failed last.
    first: Repository,
    host: String,
    cause: String,
    count: usize,
    /// The first names.
    names: Vec<String>,
    /// When the first of them is due.
    next_due: Timestamp,
}

/// The number of repositories of a group that are named.
const NAMES_SHOWN: usize = 3;

impl FailureGroup {
    fn of_one(first: Repository) -> FailureGroup {
        let url = Url::parse(&first.url).ok();
        let is_local = first.error_class.is_some_and(FailureClass::is_local);
        let host = url.as_ref().map(Url::host_port).filter(|host| !host.is_empty() && !is_local);
        FailureGroup {
            host: host.unwrap_or_else(|| "this machine".to_owned()),
            cause: cause(&first, url.as_ref()),
            count: 1,
            names: vec![first.name.clone()],
            next_due: first.next_due,
            first,
        }
    }

    /// Groups failures by class, host and cause. The largest groups come first.
    fn group(list: Vec<Repository>) -> Vec<FailureGroup> {
        let mut groups = Vec::<FailureGroup>::new();
        let mut places = HashMap::<_, usize>::new();
        for repository in list {
            let one = FailureGroup::of_one(repository);
            let key = (one.first.error_class, one.host.clone(), one.cause.clone());
            match places.get(&key) {
                Some(&at) => groups[at].add(one),
                None => {
                    places.insert(key, groups.len());
                    groups.push(one);
                }
            }
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }

    fn add(&mut self, one: FailureGroup) {
        self.count += 1;
        self.next_due = self.next_due.min(one.next_due);
        if self.names.len() < NAMES_SHOWN {
            self.names.extend(one.names);
        }
    }

    fn text(&self, now: Timestamp) -> String {
        let (host, cause, count, names) = (&self.host, &self.cause, self.count, self.names.join(", "));
        let next = output::span((self.next_due - now).max(0));
        if count == 1 {
            let (error, failures) = (self.first.error.as_deref().unwrap_or_default(), self.first.failures);
            return format!("{names}: {error} ({failures} in a row; next visit in {next})");
        }
        let more = match count - self.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{host}: {cause} ({count} repositories: {names}{more}; next visit in {next})")
    }
}

/// Returns the error of `repository` without what only it has: its name, and the URL and path of its
/// upstream.
fn cause(repository: &Repository, url: Option<&Url>) -> String {
    let mut text = repository.error.clone().unwrap_or_default();
    let shown = url.map(Url::to_string).unwrap_or_default();
    let path = url.map_or("", |url| url.path.trim_matches('/'));
    for own in [&repository.url, &shown, path, &repository.name] {
        text = without(&text, own);
    }
    text
}

/// Returns `text` with `...` in place of each `word` that is a path, and not a part of a longer word.
fn without(text: &str, word: &str) -> String {
    if !word.contains('/') {
        return text.to_owned();
    }
    let is_inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_part = is_inner(before.chars().next_back()) || is_inner(after.chars().next());
        out += before;
        out += if is_part { word } else { "..." };
        rest = after;
    }
    out + rest
}

/// Returns at most `max` repositories whose last visit failed, the latest first: with one of the classes
/// among `filters`, and with a name that one of the others matches.
fn failing(pool: &Pool, filters: &[String], max: usize) -> Result<Vec<Repository>> {
    let (classes, patterns): (Vec<&String>, Vec<&String>) =
        filters.iter().partition(|filter| FailureClass::from_name(filter).is_some());
    for pattern in &patterns {
        if let Err(weir_pool::Error::NoMatch(_)) = weir_pool::matching(&pool.catalog, Some(pattern)) {
            let names: Vec<&str> = FailureClass::ALL.iter().map(|class| class.name()).collect();
            return Err(Error::Message(format!(
                "'{pattern}' matches no repository and names no class of failures; there are {}, {LISTING} \
                and {METADATA}",
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

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn errors_of_one_cause_are_alike() {
        for (text, word, left) in [
            ("'git/git' not found", "git/git", "'...' not found"),
            ("/srv/git/git.git: no", "git/git", "/srv/....git: no"),
            ("my-git/gitx", "git/git", "my-git/gitx"),
            ("a is a thing", "a", "a is a thing"),
            ("", "a/b", ""),
        ] {
            assert_eq!(without(text, word), left);
        }
    }
}
