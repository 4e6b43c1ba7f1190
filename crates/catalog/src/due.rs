//! SQL that makes repositories due.
//!
//! Four columns decide when a repository is visited. `next_due` is the time of its next visit; among due
//! repositories, the most overdue is leased first. Repositories with `ahead` above 0 go before all others: a
//! hint sets 1, a priority sets 2 or more. `hinted_at` is the time of the last hint, and `hints` the number
//! of hints: a visit under a lease of before the last hint may have missed the change, unless it began later.
//!
//! These events change the columns:
//! - A hint, a push that a forge lists, or a new archive in place of the base: [`hinted`].
//! - `weir set` and `weir set --url`: [`due`].
//! - `weir fsck` finds damage, a visit loses its lease, or a stream of events was away: [`at_the_latest`].
//! - A visit ends (`record::RECORD`): `next_due` becomes the next time by the schedule, or the time of a hint
//!   that came during the visit, but not before the debounce of events is over. `ahead` drops from 1 to 0,
//!   unless there was such a hint.
//! - An archive turns out to be written under a later lease (`Visits::raise_epoch`): `next_due` becomes now.
//! - A forge no longer lists the repository (`Listings::set_gone`): `next_due` moves into the future.
//!
//! Each macro takes a time as SQL text and returns assignments for an `UPDATE` of `repositories`.

/// Makes a repository due at a time at the latest, and puts it before those that are only due. With two
/// times, the first is that of the hint, and the repository is due at the second.
macro_rules! hinted {
    ($time:literal) => {
        $crate::due::hinted!($time, $time)
    };
    ($time:literal, $due:literal) => {
        concat!(
            $crate::due::at_the_latest!($due),
            ", hinted_at = GREATEST(hinted_at, ",
            $time,
            "), hints = hints + 1, ahead = GREATEST(ahead, 1)"
        )
    };
}

/// Makes a repository due at a time at the latest, and again if a visit is running. Does nothing if the time
/// is [`weir_ground::Timestamp::NEVER`].
macro_rules! due {
    ($time:literal) => {
        concat!(
            $crate::due::at_the_latest!($time),
            ", hinted_at = CASE WHEN lease_owner IS NOT NULL AND ",
            $time,
            " < 9223372036854775807 THEN GREATEST(hinted_at, ",
            $time,
            ") ELSE hinted_at END, hints = CASE WHEN lease_owner IS NOT NULL AND ",
            $time,
            " < 9223372036854775807 THEN hints + 1 ELSE hints END"
        )
    };
}

/// Makes a repository due at a time at the latest.
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
