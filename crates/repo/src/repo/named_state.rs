//! Names of states, as users write them behind a repository: `REPO@3`, `REPO@2026-05-01`.

use std::fmt;

use time::format_description::well_known::Rfc3339;
use time::{Date, Duration, OffsetDateTime, Time};
use weir_ground::Timestamp;

/// A state of the refs that somebody names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamedState {
    /// The state with this number, which is that of a commit of the archive.
    Number(u64),
    /// The last state that was there at this time.
    Until(Timestamp),
}

impl NamedState {
    /// Returns the state that `text` names: a number, a day (`2026-05-01`: the last state of that day, in
    /// UTC) or a time as RFC 3339 writes it (`2026-05-01T12:00:00Z`).
    pub fn parse(text: &str) -> Option<NamedState> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(NamedState::Number);
        }
        if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
            return Some(NamedState::Until(Timestamp(time.unix_timestamp())));
        }
        let time = OffsetDateTime::parse(&format!("{text}T00:00:00Z"), &Rfc3339).ok()?;
        let end = time.checked_add(Duration::seconds(24 * 60 * 60 - 1))?;
        Some(NamedState::Until(Timestamp(end.unix_timestamp())))
    }

    /// Splits `REPO@STATE`; returns `None` if `name` names no state. `.git` may end either part. Names of
    /// repositories have no `@`.
    pub fn split(name: &str) -> Option<(&str, NamedState)> {
        let (repository, state) = name.rsplit_once('@')?;
        let state = NamedState::parse(state.strip_suffix(".git").unwrap_or(state))?;
        (!repository.is_empty()).then_some((repository, state))
    }
}

/// Writes the state as [`NamedState::parse`] reads it.
impl fmt::Display for NamedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamedState::Number(seq) => seq.fmt(f),
            NamedState::Until(Timestamp(seconds)) => {
                let time = OffsetDateTime::from_unix_timestamp(*seconds).map_err(|_| fmt::Error)?;
                let (date, time): (Date, Time) = (time.date(), time.time());
                write!(f, "{date}T{:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_by_number_day_and_time() {
        let until = |seconds| Some(NamedState::Until(Timestamp(seconds)));
        assert_eq!(NamedState::parse("17"), Some(NamedState::Number(17)));
        assert_eq!(NamedState::parse("2026-05-01"), until(1_777_679_999));
        assert_eq!(NamedState::parse("2026-05-01T00:00:00Z"), until(1_777_593_600));
        assert_eq!(NamedState::parse("2026-05-01T02:00:00+02:00"), until(1_777_593_600));
        assert_eq!(NamedState::parse("2026-05-01").unwrap().to_string(), "2026-05-01T23:59:59Z");
        for wrong in ["", "-1", "+1", "v1", "2026-13-01", "2026-5-1", "9999-12-31T", "99999999999999999999"] {
            assert_eq!(NamedState::parse(wrong), None, "{wrong}");
        }
        // The last second that has a name.
        assert!(NamedState::parse("9999-12-31").is_some());
    }

    #[test]
    fn a_name_is_split_at_its_last_at() {
        let number = NamedState::Number;
        assert_eq!(NamedState::split("a/b@3"), Some(("a/b", number(3))));
        assert_eq!(NamedState::split("a/b.git@3"), Some(("a/b.git", number(3))));
        assert_eq!(NamedState::split("a@b@3.git"), Some(("a@b", number(3))));
        for wrong in ["a/b", "a@b", "@3", "a@", "a@3/b"] {
            assert_eq!(NamedState::split(wrong), None, "{wrong}");
        }
    }
}
