//! When a repository is due: what moves that, in one place.
//!
//! `next_due` is the time of its next visit; of what is due the most overdue is leased first. `ahead` goes
//! before that: 1 if somebody says that it has changed, 2 and more by its priority. `hinted_at` is when that
//! was said last: a visit that began before may not have seen it.
//!
//! - Somebody says that it has changed, or what it builds on was replaced: `next_due` is now at the latest,
//!   `hinted_at` now, `ahead` 1 at least ([`hinted`]).
//! - What is said of it here is another, its URL or its settings: `next_due` is now at the latest,
//!   `hinted_at` now if a visit is under way ([`due`]).
//! - It is found damaged, or a visit counts for nothing: `next_due` is now at the latest
//!   ([`at_the_latest`]).
//! - A visit has ended: `next_due` is when to come again, or when that was said which it has not seen;
//!   `ahead` is 0 if it was 1 and what was said was seen (`record::RECORD`).
//! - Its archive was written under a later lease: `next_due` is now (`Catalog::raise_epoch`).
//! - Its forge lists it no more: `next_due` is put off (`Catalog::set_gone`).
//!
//! Each macro gives assignments for an `UPDATE` of `repositories`, of a time that is text of SQL.

/// Due, before what is only due.
macro_rules! hinted {
    ($time:literal) => {
        concat!(
            $crate::due::at_the_latest!($time),
            ", hinted_at = GREATEST(hinted_at, ",
            $time,
            "), ahead = GREATEST(ahead, 1)"
        )
    };
}

/// Due, also after a visit that is under way; not at all, if the time is [`weir_ground::Timestamp::NEVER`].
macro_rules! due {
    ($time:literal) => {
        concat!(
            $crate::due::at_the_latest!($time),
            ", hinted_at = CASE WHEN lease_owner IS NOT NULL AND ",
            $time,
            " < 9223372036854775807 THEN GREATEST(hinted_at, ",
            $time,
            ") ELSE hinted_at END"
        )
    };
}

/// Due at that time, if not earlier.
macro_rules! at_the_latest {
    ($time:literal) => {
        concat!("next_due = LEAST(next_due, ", $time, ")")
    };
}

pub(crate) use {at_the_latest, due, hinted};

#[cfg(test)]
mod tests {
    #[test]
    fn never_is_the_number_that_due_compares_with() {
        let never = format!("< {} ", weir_ground::Timestamp::NEVER.0);
        assert!(due!("?1").contains(&never), "{}", due!("?1"));
    }
}
