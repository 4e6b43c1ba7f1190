//! The text format of Prometheus (prometheus.io/docs/instrumenting/exposition_formats).

use std::fmt::Write;

/// Writes a histogram, which is cumulative and has a sum, with a label more.
pub(crate) fn write_histogram(
    text: &mut String,
    name: &str,
    label: &str,
    (buckets, sum): &(Vec<(f64, u64)>, f64),
) {
    let (comma, braces) = if label.is_empty() { ("", String::new()) } else { (",", format!("{{{label}}}")) };
    for (bound, count) in buckets {
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        let _ = writeln!(text, "{name}_bucket{{{label}{comma}le=\"{bound}\"}} {count}");
    }
    let count = buckets.last().map_or(0, |(_, count)| *count);
    let _ = writeln!(text, "{name}_sum{braces} {sum}\n{name}_count{braces} {count}");
}

pub(crate) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

pub(crate) fn one(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    head(text, name, kind, help);
    let _ = writeln!(text, "{name} {value}");
}

pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
