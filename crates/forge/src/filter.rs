//! Which of a forge's repositories are wanted.

use crate::Listed;

/// Conditions, all of which must hold. What a forge does not say of a repository is not held against it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those in one of these languages (any of a repository's, in any case); empty for all.
    pub languages: Vec<String>,
    /// Leave out forks.
    pub skip_forks: bool,
    /// Leave out those that are read-only.
    pub skip_archived: bool,
    /// Leave out those that only some may see.
    pub skip_private: bool,
    /// At least so many stars.
    pub stars_min: u64,
    /// At most so many kibibytes, as the forge counts.
    pub kibibytes_max: Option<u64>,
    /// Only what changed at or after this day (`YYYY-MM-DD`, or longer).
    pub active_since: Option<String>,
}

impl Filter {
    /// Whether `listed` is wanted.
    pub fn takes(&self, listed: &Listed) -> bool {
        let is_no = |what: Option<bool>, skip: bool| !(skip && what == Some(true));
        let speaks = |wanted: &String| {
            let names = listed.language.iter().chain(listed.languages.iter().map(|(name, _)| name));
            names.into_iter().any(|name| name.eq_ignore_ascii_case(wanted))
        };
        let says_language = listed.language.is_some() || !listed.languages.is_empty();
        is_no(listed.fork, self.skip_forks)
            && is_no(listed.archived, self.skip_archived)
            && is_no(listed.private, self.skip_private)
            && listed.empty != Some(true)
            && listed.stars.is_none_or(|stars| stars >= self.stars_min)
            && self.kibibytes_max.is_none_or(|max| listed.kibibytes.is_none_or(|size| size <= max))
            && (self.languages.is_empty() || !says_language || self.languages.iter().any(speaks))
            && self
                .active_since
                .as_ref()
                .is_none_or(|since| listed.pushed_at.as_ref().or(listed.updated_at.as_ref()).is_none_or(|at| at.as_str() >= since.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_held_against() {
        let strict = Filter {
            languages: vec!["rust".into()],
            skip_forks: true,
            skip_archived: true,
            skip_private: true,
            stars_min: 5,
            kibibytes_max: Some(100),
            active_since: Some("2024-01-01".into()),
        };
        assert!(strict.takes(&Listed::default()));
        let good = Listed {
            language: Some("C".into()),
            languages: vec![("Rust".into(), 3)],
            stars: Some(5),
            kibibytes: Some(100),
            pushed_at: Some("2024-01-01T00:00:00Z".into()),
            ..Listed::default()
        };
        assert!(strict.takes(&good));
        for bad in [
            Listed { fork: Some(true), ..good.clone() },
            Listed { archived: Some(true), ..good.clone() },
            Listed { private: Some(true), ..good.clone() },
            Listed { empty: Some(true), ..good.clone() },
            Listed { stars: Some(4), ..good.clone() },
            Listed { kibibytes: Some(101), ..good.clone() },
            Listed { languages: vec![], ..good.clone() },
            Listed { pushed_at: Some("2023-12-31T23:59:59Z".into()), ..good.clone() },
        ] {
            assert!(!strict.takes(&bad), "{bad:?}");
        }
    }
}
