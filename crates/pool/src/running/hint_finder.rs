//! Finds the repositories that a hint means.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use weir_catalog::Catalog;
use weir_transport::{Scheme, Url};

use crate::error::Result;

/// How long the places of all upstreams are believed; those of new repositories are added at once. They are
/// read only for names that nothing else explains.
const PLACES_AGE_MAX: Duration = Duration::from_secs(10);

/// How long an answer is believed while no repository is added, and how many are kept.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(10);
const ANSWERS_MAX: usize = 100_000;

/// Finds repositories by their names, and by the URLs of their upstreams.
#[derive(Default)]
pub struct HintFinder {
    /// The number of the answer for each name that was looked for.
    answers: HashMap<String, HintAnswer>,
    /// The repositories of each answer.
    found: Vec<Vec<i64>>,
    /// When the first of these was looked for, and the highest number of a repository then.
    answered: Option<(Instant, i64)>,
    places: Option<UpstreamPlaces>,
}

/// The repositories by the place of their upstream.
struct UpstreamPlaces {
    /// When they were read.
    read: Instant,
    /// The highest number of a repository among them.
    last: i64,
    repositories: HashMap<String, Vec<i64>>,
}

/// The number of an answer of a [`HintFinder`], until it looks for other names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HintAnswer(usize);

impl HintFinder {
    /// Returns the numbers of the repositories that each of `names` means: one of that name, one that has the
    /// name that a URL gives, or all whose upstream is at that URL, whatever the scheme.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn find(&mut self, catalog: &Catalog, names: &[&str]) -> Result<Vec<Vec<i64>>> {
        let answers = self.learn(catalog, names)?;
        Ok(answers.into_iter().map(|answer| self.repositories(answer).to_vec()).collect())
    }

    /// Looks for `names`. Returns the answer for each. Believes what it found in the last seconds.
    ///
    /// # Errors
    /// If the catalog fails.
    pub(crate) fn learn<'n>(&mut self, catalog: &Catalog, names: &[&'n str]) -> Result<Vec<HintAnswer>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let last = catalog.received().last_repository()?;
        let is_fresh = |(at, of): (Instant, i64)| at.elapsed() <= ANSWER_AGE_MAX && of == last;
        if !self.answered.is_some_and(is_fresh) || self.answers.len() > ANSWERS_MAX {
            self.answers.clear();
            self.found.clear();
            self.answered = Some((Instant::now(), last));
        }
        let known: Vec<Option<HintAnswer>> =
            names.iter().map(|name| self.answers.get(*name).copied()).collect();
        let is_new = |(name, answer): (&&'n str, &Option<HintAnswer>)| answer.is_none().then_some(*name);
        let new: HashSet<&str> = names.iter().zip(&known).filter_map(is_new).collect();
        let new: Vec<&str> = new.into_iter().collect();
        for (name, ids) in new.iter().zip(self.look_up(catalog, &new)?) {
            self.answers.insert((*name).to_owned(), HintAnswer(self.found.len()));
            self.found.push(ids);
        }
        let answer_of =
            |(answer, name): (Option<HintAnswer>, &&str)| answer.unwrap_or_else(|| self.answers[*name]);
        Ok(known.into_iter().zip(names).map(answer_of).collect())
    }

    /// Forgets all answers.
    pub(crate) fn forget(&mut self) {
        self.answered = None;
    }

    /// Returns the repositories of an answer.
    pub(crate) fn repositories(&self, answer: HintAnswer) -> &[i64] {
        &self.found[answer.0]
    }

    /// Returns the repositories whose upstreams are below each of `groups`, URLs of groups of a forge. A site
    /// as a whole is no group.
    ///
    /// # Errors
    /// If the catalog fails.
    pub(crate) fn below<'g>(
        &mut self,
        catalog: &Catalog,
        groups: &[&'g str],
    ) -> Result<HashMap<&'g str, Vec<i64>>> {
        let place = |group: &&'g str| place_of(group).filter(|place| place.contains('/'));
        let wanted: HashMap<String, &str> =
            groups.iter().filter_map(|group| Some((place(group)?, *group))).collect();
        let mut found: HashMap<&str, Vec<i64>> = HashMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        for (place, ids) in self.places(catalog)? {
            let folders = place.match_indices('/').map(|(at, _)| &place[..at]);
            for group in folders.filter_map(|folder| wanted.get(folder)) {
                found.entry(group).or_default().extend(ids);
            }
        }
        Ok(found)
    }

    /// Looks for names that were not looked for yet.
    fn look_up(&mut self, catalog: &Catalog, names: &[&str]) -> Result<Vec<Vec<i64>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // No name has a NUL, and PostgreSQL takes none.
        let spellings_of = |name: &&str| if name.contains('\0') { Vec::new() } else { spellings(name) };
        let spellings: Vec<Vec<String>> = names.iter().map(spellings_of).collect();
        let wanted: Vec<&str> = spellings.iter().flatten().map(String::as_str).collect();
        let known: HashMap<String, i64> = catalog.ids_of_names(&wanted)?.into_iter().collect();
        let mut found: Vec<Vec<i64>> = spellings
            .iter()
            .map(|spellings| spellings.iter().find_map(|name| known.get(name).copied()).into_iter().collect())
            .collect();
        if found.iter().any(Vec::is_empty) {
            let places = self.places(catalog)?;
            for (ids, name) in found.iter_mut().zip(names).filter(|(ids, _)| ids.is_empty()) {
                *ids = place_of(name).and_then(|place| places.get(&place).cloned()).unwrap_or_default();
            }
        }
        Ok(found)
    }

    /// Returns the repositories by the place of their upstream.
    fn places(&mut self, catalog: &Catalog) -> Result<&HashMap<String, Vec<i64>>> {
        let is_fresh = |places: &UpstreamPlaces| places.read.elapsed() <= PLACES_AGE_MAX;
        let mut places = self.places.take().filter(is_fresh).unwrap_or_else(|| UpstreamPlaces {
            read: Instant::now(),
            last: 0,
            repositories: HashMap::new(),
        });
        let mut last = places.last;
        catalog.for_each_url_after(places.last, |id, url| {
            last = last.max(id);
            if let Some(place) = place_of(&url) {
                places.repositories.entry(place).or_default().push(id);
            }
        })?;
        places.last = last;
        Ok(&self.places.insert(places).repositories)
    }
}

/// Returns the names that `name` may be written for, the likeliest first.
fn spellings(name: &str) -> Vec<String> {
    let trimmed = name.trim_matches('/');
    let mut all = vec![name.to_owned(), trimmed.to_owned()];
    all.extend(trimmed.strip_suffix(".git").map(str::to_owned));
    all.extend(Url::parse(name).ok().map(|url| url.default_name()));
    all.dedup();
    all
}

/// Returns whether the upstream at `url` is below `site`, whatever the schemes.
pub(crate) fn is_below(url: &str, site: &str) -> bool {
    // A site need not have a path, unlike a repository.
    let any = place_of(&format!("{}/x", site.trim_end_matches('/')));
    let site = any.as_deref().and_then(|any| any.strip_suffix('x'));
    site.zip(place_of(url)).is_some_and(|(site, place)| place.starts_with(site))
}

/// Returns where an upstream is, whatever the scheme: a hint may use another one than the mirror. Most forges
/// take a URL in any case, and name a repository in their own.
fn place_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    match url.scheme {
        Scheme::Local => {
            let path = std::path::absolute(url.local_path()).ok()?;
            Some(format!("file://{}", path.display().to_string().trim_end_matches('/')))
        }
        _ => Some(of_azure(url.default_name().to_lowercase())),
    }
}

/// Returns the one place of a repository of Azure DevOps, which has several URLs
/// (<https://learn.microsoft.com/en-us/azure/devops/repos/git/clone>); `place` itself, of any other.
fn of_azure(place: String) -> String {
    let (host, path) = place.split_once('/').unwrap_or((&place, ""));
    let path = match host {
        "dev.azure.com" => path.to_owned(),
        "ssh.dev.azure.com" | "vs-ssh.visualstudio.com" => path.trim_start_matches("v3/").to_owned(),
        host => match host.strip_suffix(".visualstudio.com") {
            Some(organization) => {
                format!("{organization}/{}", path.trim_start_matches("defaultcollection/"))
            }
            None => return place,
        },
    };
    format!("dev.azure.com/{}", path.replace("/_git/", "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_of_azure_has_one_place() {
        for url in [
            "https://dev.azure.com/Org/Project/_git/Repo",
            "https://user@dev.azure.com/org/project/_git/repo",
            "git@ssh.dev.azure.com:v3/org/project/repo",
            "https://org.visualstudio.com/project/_git/repo",
            "https://org.visualstudio.com/DefaultCollection/project/_git/repo",
            "org@vs-ssh.visualstudio.com:v3/org/project/repo",
        ] {
            assert_eq!(place_of(url).as_deref(), Some("dev.azure.com/org/project/repo"), "{url}");
        }
        assert_eq!(place_of("https://visualstudio.com/a/b").as_deref(), Some("visualstudio.com/a/b"));
    }

    #[test]
    fn upstreams_are_below_their_site() {
        for (url, site, yes) in [
            ("ssh://u@review.example.org:29418/tools/x.git", "https://review.example.org:29418", true),
            ("https://review.example.org/tools/x", "https://Review.example.org/", true),
            ("https://review.example.org/a/tools/x", "https://review.example.org/a", true),
            ("https://review.example.org/ab/x", "https://review.example.org/a", false),
            ("https://review.example.org.evil/x", "https://review.example.org", false),
            ("/srv/git/x", "https://review.example.org", false),
        ] {
            assert_eq!(is_below(url, site), yes, "{url} {site}");
        }
    }
}
