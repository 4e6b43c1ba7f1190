//! Positions in listings that go owner by owner. A catalog keeps them as text; only this file knows how they
//! are written.

use std::fmt;
use std::str::FromStr;

/// A position in a listing of all repositories, or of those of one owner after the other.
///
/// Written `AT`, or `OWNER:AT`, with the owner's place in the configuration, from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerPosition<A> {
    /// The owner, or none in a listing of all.
    pub(crate) owner: Option<usize>,
    /// Where in the listing of all, or of the owner: a page, an id, or the forge's own cursor.
    pub(crate) at: A,
}

impl<A: FromStr + fmt::Display> OwnerPosition<A> {
    /// Reads `text`, which [`OwnerPosition::text`] wrote. What another program wrote there begins at `start`
    /// of everything: nothing is left out.
    pub(crate) fn parse(text: &str, start: A) -> OwnerPosition<A> {
        let (owner, at) = match text.split_once(':') {
            None => (None, text.parse().ok()),
            Some((owner, at)) => (Some(owner.parse().ok()), at.parse().ok()),
        };
        match (owner, at) {
            (None, Some(at)) => OwnerPosition { owner: None, at },
            (Some(Some(owner)), Some(at)) => OwnerPosition { owner: Some(owner), at },
            (owner, _) => {
                tracing::warn!("unknown position '{text}'; listing from the start");
                OwnerPosition { owner: owner.map(|_| 0), at: start }
            }
        }
    }

    /// Returns the position as the catalog keeps it.
    pub(crate) fn text(&self) -> String {
        match self.owner {
            None => self.at.to_string(),
            Some(owner) => format!("{owner}:{}", self.at),
        }
    }

    /// Returns `at` of the same owner.
    pub(crate) fn go_to(&self, at: A) -> OwnerPosition<A> {
        OwnerPosition { owner: self.owner, at }
    }

    /// Returns the beginning, `start`, of the owner behind this one, if there is one of `owners`.
    pub(crate) fn next_owner(&self, owners: usize, start: A) -> Option<String> {
        let owner = self.owner? + 1;
        (owner < owners).then(|| OwnerPosition { owner: Some(owner), at: start }.text())
    }
}

/// The page of an owner that could not be fetched last.
#[derive(Debug, Default)]
pub(crate) struct FailedPages {
    last: Option<(Option<usize>, u64)>,
}

impl FailedPages {
    /// Notes that the page at `place` cannot be fetched. Returns whether the rest of the owner is left to
    /// another listing: it is the first page, or the page before failed, too.
    pub(crate) fn again(&mut self, place: &OwnerPosition<u64>, is_first: bool) -> bool {
        let follows = self.last == Some((place.owner, place.at.wrapping_sub(1)));
        self.last = Some((place.owner, place.at));
        place.owner.is_some() && (is_first || follows)
    }
}

/// A position in a listing of accounts.
///
/// Written `owner:N`, `organisations:N`, `people:N`, or `N` alone where a forge lists all accounts in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountsPosition {
    /// The owner of that place in the configuration.
    Owner(usize),
    /// A page of organizations.
    Organizations(u64),
    /// A page of people.
    People(u64),
    /// The accounts with ids above.
    After(u64),
}

impl AccountsPosition {
    /// Reads `text`, which [`AccountsPosition::text`] wrote. What another program wrote there begins at
    /// `start`.
    pub(crate) fn parse(text: &str, start: AccountsPosition) -> AccountsPosition {
        let (kind, number) = text.split_once(':').unwrap_or(("", text));
        let position = match (kind, number.parse()) {
            ("owner", Ok(n)) => usize::try_from(n).ok().map(AccountsPosition::Owner),
            ("organisations", Ok(n)) => Some(AccountsPosition::Organizations(n)),
            ("people", Ok(n)) => Some(AccountsPosition::People(n)),
            ("", Ok(n)) => Some(AccountsPosition::After(n)),
            _ => None,
        };
        position.unwrap_or_else(|| {
            tracing::warn!("unknown position '{text}'; listing accounts from the start");
            start
        })
    }

    /// Returns the position as the catalog keeps it.
    pub(crate) fn text(self) -> String {
        match self {
            AccountsPosition::Owner(n) => format!("owner:{n}"),
            AccountsPosition::Organizations(n) => format!("organisations:{n}"),
            AccountsPosition::People(n) => format!("people:{n}"),
            AccountsPosition::After(n) => n.to_string(),
        }
    }

    /// Returns the position of the owner behind this one, if there is one of `owners`.
    pub(crate) fn next_owner(self, owners: usize) -> Option<String> {
        match self {
            AccountsPosition::Owner(n) if n + 1 < owners => Some(AccountsPosition::Owner(n + 1).text()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        for (text, owner, at) in [("7", None, 7), ("0:1", Some(0), 1), ("12:34", Some(12), 34)] {
            let position = OwnerPosition { owner, at };
            assert_eq!((OwnerPosition::parse(text, 0), position.text()), (position, text.to_owned()));
        }
        for (text, position) in [
            ("owner:3", AccountsPosition::Owner(3)),
            ("organisations:2", AccountsPosition::Organizations(2)),
            ("people:1", AccountsPosition::People(1)),
            ("99", AccountsPosition::After(99)),
        ] {
            assert_eq!(AccountsPosition::parse(text, AccountsPosition::After(0)), position);
            assert_eq!(position.text(), text);
        }
    }

    #[test]
    fn what_nobody_wrote_begins_at_the_start() {
        for (text, owner) in [("", None), ("x", None), ("1:x", Some(0)), ("x:1", Some(0)), ("-1:5", Some(0))]
        {
            assert_eq!(OwnerPosition::parse(text, 9), OwnerPosition { owner, at: 9 }, "{text}");
        }
        let start = AccountsPosition::People(1);
        for text in ["", "nobody:1", "owner:x", "owner:-1"] {
            assert_eq!(AccountsPosition::parse(text, start), start, "{text}");
        }
    }

    #[test]
    fn the_owner_behind_the_last_is_none() {
        let at = |owner| OwnerPosition { owner, at: 5 };
        assert_eq!(at(Some(0)).next_owner(2, 1).as_deref(), Some("1:1"));
        assert_eq!((at(Some(1)).next_owner(2, 1), at(None).next_owner(2, 1)), (None, None));
        assert_eq!(AccountsPosition::Owner(0).next_owner(2).as_deref(), Some("owner:1"));
        assert_eq!(AccountsPosition::Owner(1).next_owner(2), None);
    }
}
