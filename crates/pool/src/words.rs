//! Numbers, times and durations as people read them.

use weir_ground::Timestamp;

/// Returns a number of bytes: `1.5 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Returns a time: `2026-11-21 22:59:10` (UTC).
pub fn time(at: Timestamp) -> String {
    let Timestamp(seconds) = at;
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to civil date (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Returns a duration in its largest two units: `3 d 4 h`, `12 min`, `7 s`.
pub fn span(seconds: i64) -> String {
    match seconds {
        s if s >= 86_400 => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
        s if s >= 3600 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s if s >= 60 => format!("{} min", s / 60),
        s => format!("{} s", s.max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(time(Timestamp(0)), "1970-01-01 00:00:00");
        assert_eq!(time(Timestamp(1_790_000_000)), "2026-09-21 14:13:20");
        assert_eq!(time(Timestamp(951_782_400)), "2000-02-29 00:00:00");
        assert_eq!((bytes(1023), bytes(1536)), ("1023 B".to_owned(), "1.5 KiB".to_owned()));
    }
}
