//! The commits of an archive that were lost to damage, as the archive records them.

/// The attribute that names commits lost to damage: `FIRST-LAST`, separated by commas. Nothing may build on
/// them.
pub(crate) const LOST_KEY: &str = "lost";
/// The most ranges that are remembered; the oldest are joined.
const RANGES_MAX: usize = 32;

/// Returns the value of [`LOST_KEY`] with one more range.
pub(crate) fn with_range(before: Option<&str>, first: u64, last: u64) -> String {
    let mut ranges: Vec<(u64, u64)> = before.map_or_else(Vec::new, |value| ranges(value).collect());
    ranges.push((first, last));
    while ranges.len() > RANGES_MAX {
        let (_, end) = ranges.remove(1);
        ranges[0].1 = end;
    }
    ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",")
}

fn ranges(value: &str) -> impl Iterator<Item = (u64, u64)> {
    value.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

/// Returns whether the commit with number `seq` was lost to damage, where `value` is that of [`LOST_KEY`].
pub(crate) fn is_lost(value: &str, seq: u64) -> bool {
    ranges(value).any(|(first, last)| (first..=last).contains(&seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_lost_commits_are_remembered() {
        let mut value = with_range(None, 5, 5);
        assert_eq!(value, "5-5");
        value = with_range(Some(&value), 9, 12);
        assert_eq!(value, "5-5,9-12");
        for (seq, lost) in [(4, false), (5, true), (6, false), (9, true), (12, true), (13, false)] {
            assert_eq!(is_lost(&value, seq), lost, "{seq}");
        }
        for n in 10..100 {
            value = with_range(Some(&value), n * 10, n * 10 + 1);
        }
        assert!(is_lost(&value, 5) && is_lost(&value, 991) && !is_lost(&value, 992));
        assert!(value.split(',').count() <= RANGES_MAX);
    }
}
