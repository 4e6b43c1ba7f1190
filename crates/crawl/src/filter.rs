//! Decides which of a forge's repositories are wanted.

use serde::Serialize;
use weir_listed::Listed;

/// Conditions, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListingFilter {
    /// Only repositories in one of these languages (any of a repository's, in any case); empty for all.
    pub languages: Vec<String>,
    /// Leave out forks.
    pub skip_forks: bool,
    /// Leave out repositories that are read-only.
    pub skip_archived: bool,
    /// Leave out private repositories.
    pub skip_private: bool,
    /// The least number of stars.
    pub stars_min: u64,
    /// The largest size in kibibytes, as the forge counts.
    pub kibibytes_max: Option<u64>,
    /// Only repositories that changed at or after this day (`YYYY-MM-DD`, or longer).
    pub active_since: Option<String>,
}

/// The decision of a filter about a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// It is wanted.
    Wanted,
    /// It is not wanted.
    Unwanted,
    /// The forge does not say this about it.
    Unknown(&'static str),
}

impl ListingFilter {
    /// Decides whether `listed` is wanted. A repository of which too little is known is not let in: a forge
    /// that sends fewer details for a while must not let everything through.
    pub fn verdict(&self, listed: &Listed) -> FilterVerdict {
        if listed.empty == Some(true) {
            return FilterVerdict::Unwanted;
        }
        let names = || listed.language.iter().chain(listed.languages.iter().flatten().map(|(name, _)| name));
        let is_spoken =
            || self.languages.iter().any(|wanted| names().any(|name| name.eq_ignore_ascii_case(wanted)));
        let active = || listed.pushed_at.as_ref().or(listed.updated_at.as_ref());
        let conditions = [
            ("whether it is a fork", self.skip_forks.then(|| listed.fork.map(|is| !is))),
            ("whether it is archived", self.skip_archived.then(|| listed.archived.map(|is| !is))),
            ("whether it is private", self.skip_private.then(|| listed.private.map(|is| !is))),
            ("its stars", (self.stars_min > 0).then(|| listed.stars.map(|stars| stars >= self.stars_min))),
            ("its size", self.kibibytes_max.map(|max| listed.kibibytes.map(|size| size <= max))),
            ("its languages", (!self.languages.is_empty()).then(|| names().next().map(|_| is_spoken()))),
            (
                "when it was active",
                self.active_since.as_ref().map(|since| active().map(|at| at.as_str() >= since.as_str())),
            ),
        ];
        let asked = || conditions.iter().filter_map(|(what, answer)| answer.map(|answer| (*what, answer)));
        if asked().any(|(_, answer)| answer == Some(false)) {
            return FilterVerdict::Unwanted;
        }
        match asked().find(|(_, answer)| answer.is_none()) {
            Some((what, _)) => FilterVerdict::Unknown(what),
            None => FilterVerdict::Wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_let_in() {
        let strict = ListingFilter {
            languages: vec!["rust".into()],
            skip_forks: true,
            skip_archived: true,
            skip_private: true,
            stars_min: 5,
            kibibytes_max: Some(100),
            active_since: Some("2024-01-01".into()),
        };
        assert_eq!(ListingFilter::default().verdict(&Listed::default()), FilterVerdict::Wanted);
        assert!(matches!(strict.verdict(&Listed::default()), FilterVerdict::Unknown(_)));
        let good = Listed {
            language: Some("C".into()),
            languages: Some(vec![("Rust".into(), 3)]),
            fork: Some(false),
            archived: Some(false),
            private: Some(false),
            stars: Some(5),
            kibibytes: Some(100),
            pushed_at: Some("2024-01-01T00:00:00Z".into()),
            ..Listed::default()
        };
        assert_eq!(strict.verdict(&good), FilterVerdict::Wanted);
        for bad in [
            Listed { fork: Some(true), ..good.clone() },
            Listed { archived: Some(true), ..good.clone() },
            Listed { private: Some(true), ..good.clone() },
            Listed { empty: Some(true), ..good.clone() },
            Listed { stars: Some(4), ..good.clone() },
            Listed { kibibytes: Some(101), ..good.clone() },
            Listed { languages: None, ..good.clone() },
            Listed { pushed_at: Some("2023-12-31T23:59:59Z".into()), ..good.clone() },
            Listed { fork: Some(true), stars: None, ..good.clone() },
        ] {
            assert_eq!(strict.verdict(&bad), FilterVerdict::Unwanted, "{bad:?}");
        }
        for unknown in [
            Listed { fork: None, ..good.clone() },
            Listed { archived: None, ..good.clone() },
            Listed { private: None, ..good.clone() },
            Listed { stars: None, ..good.clone() },
            Listed { kibibytes: None, ..good.clone() },
            Listed { language: None, languages: None, ..good.clone() },
            Listed { pushed_at: None, ..good.clone() },
        ] {
            assert!(matches!(strict.verdict(&unknown), FilterVerdict::Unknown(_)), "{unknown:?}");
        }
    }
}
