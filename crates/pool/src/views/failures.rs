//! Repositories whose last visit failed, by cause.

use std::collections::HashMap;

use serde::Serialize;
use weir_catalog::Repository;
use weir_ground::{FailureClass, Timestamp, name_matches};
use weir_transport::Url;

use crate::archives::matching;
use crate::error::{Error, Result};
use crate::running::Pool;
use crate::views::repository_view::shown_url;

/// A repository whose last visit failed, as JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct FailureView {
    /// Its name.
    pub name: String,
    /// Its upstream, without a password.
    pub url: String,
    /// The class of the failure.
    pub error_class: Option<FailureClass>,
    /// The failure in words.
    pub error: Option<String>,
    /// Visits that failed since the last one that did not.
    pub failures: i64,
    /// When it was visited last.
    pub last_attempt: Option<Timestamp>,
    /// When a visit went well last.
    pub last_success: Option<Timestamp>,
    /// When it is visited again.
    pub next_due: Timestamp,
}

impl From<Repository> for FailureView {
    fn from(r: Repository) -> FailureView {
        FailureView {
            url: shown_url(&r),
            name: r.name,
            error_class: r.error_class,
            error: r.error,
            failures: r.failures,
            last_attempt: r.last_attempt,
            last_success: r.last_success,
            next_due: r.next_due,
        }
    }
}

/// Repositories that failed for one cause.
#[derive(Clone, Debug)]
pub struct FailureGroup {
    /// The one that failed last.
    pub first: Repository,
    /// The host of their upstreams.
    pub host: String,
    /// The error, without what only one of them has.
    pub cause: String,
    /// The number of them.
    pub count: usize,
    /// The first names.
    pub names: Vec<String>,
    /// When the first of them is due.
    pub next_due: Timestamp,
}

/// The number of repositories of a group that are named.
const NAMES_SHOWN: usize = 3;

impl FailureGroup {
    /// Returns the group of one repository.
    pub fn of_one(first: Repository) -> FailureGroup {
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
    pub fn group(list: Vec<Repository>) -> Vec<FailureGroup> {
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
///
/// # Errors
/// If one of the others matches no repository, or the catalog fails.
pub fn failing(pool: &Pool, filters: &[String], max: usize) -> Result<Vec<Repository>> {
    let (classes, patterns): (Vec<&String>, Vec<&String>) =
        filters.iter().partition(|filter| FailureClass::from_name(filter).is_some());
    for pattern in &patterns {
        if let Err(Error::NoMatch(_)) = matching(&pool.catalog, Some(pattern)) {
            return Err(Error::NoFailures((*pattern).clone()));
        }
    }
    if let ([], []) | ([_], []) = (classes.as_slice(), patterns.as_slice()) {
        return Ok(pool.catalog.status().failing(classes.first().map(|class| class.as_str()), max)?);
    }
    let mut list = pool.catalog.status().failing(None, usize::MAX)?;
    let is_class = |r: &Repository| r.error_class.is_some_and(|of| classes.iter().any(|c| *c == of.name()));
    list.retain(|r| classes.is_empty() || is_class(r));
    list.retain(|r| patterns.is_empty() || patterns.iter().any(|p| name_matches(p, &r.name)));
    list.truncate(max);
    Ok(list)
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
