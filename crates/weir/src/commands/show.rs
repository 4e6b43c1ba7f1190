//! `show`: everything about one repository.

use std::io::Write;

use weir_arguments::Global;
use weir_catalog::clock::now;
use weir_catalog::{ForgeMetadata, Interval, Repository, Settings};
use weir_ground::Timestamp;
use weir_pool::{ArchiveFacts, Pool, RepositoryDetails, RepositoryView};
use weir_terminal::{colors, output};

use crate::error::Result;

pub(crate) fn show(pool: &Pool, global: &Global, name: &str) -> Result<()> {
    let r = pool.get(name)?;
    let details = RepositoryDetails::of(pool, &r)?;
    if global.json {
        return Ok(output::json(&details)?);
    }
    let mut lines = catalog_lines(&r, &details.view);
    lines.extend(details.archive.iter().flat_map(archive_lines));
    lines.extend(details.forge_metadata.iter().flat_map(forge_lines));
    let mut out = output::stdout();
    for (label, text) in lines {
        out.styled(colors::HEADING, label)?;
        writeln!(out, "{:1$}{2}", "", LABEL_WIDTH - label.len(), output::printable(text.as_bytes()))?;
    }
    Ok(())
}

/// A line of the output: its label and its text.
type ShowLine = (&'static str, String);

/// The width of the labels, with what is between them and the texts.
const LABEL_WIDTH: usize = 16;

/// Returns a time, and how long ago that is.
fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} UTC, {} ago", output::time(at), output::span(now - at))
}

/// Returns what the catalog and the store know of `r`.
fn catalog_lines(r: &Repository, view: &RepositoryView) -> Vec<ShowLine> {
    let now = now();
    let mut lines = vec![
        ("name", r.name.clone()),
        ("upstream", view.url.clone()),
        ("state", view.state.name().to_owned()),
    ];
    if let Some(error) = &r.error {
        let class = r.error_class.map_or("", weir_ground::FailureClass::name);
        lines.push(("failure", format!("{class}: {error} ({} in a row)", r.failures)));
    }
    lines.push(("last visit", r.last_attempt.map_or_else(|| "none yet".to_owned(), |at| ago(at, now))));
    if let Some(at) = r.last_success.filter(|_| r.last_success != r.last_attempt) {
        lines.push(("last success", ago(at, now)));
    }
    if let Some(at) = r.last_change {
        lines.push(("last change", ago(at, now)));
    }
    let next = match r.next_due - now {
        _ if r.is_pinned => "none: set back until 'weir mirror' names it".to_owned(),
        _ if r.is_paused => "none: paused until 'weir resume'".to_owned(),
        wait if wait > 0 => format!("in {}", output::span(wait)),
        _ => "now".to_owned(),
    };
    lines.extend([("next visit", next), ("added", ago(r.added_at, now))]);
    lines.push(("settings", settings_text(&r.settings)));
    if r.priority != 0 {
        lines.push(("priority", r.priority.to_string()));
    }
    let length = match (view.archive_bytes, r.seq) {
        (Some(bytes), Some(_)) => output::bytes(bytes),
        (Some(bytes), None) => format!("being written, {} so far", output::bytes(bytes)),
        (None, Some(_)) => "missing".to_owned(),
        (None, None) => "none yet".to_owned(),
    };
    lines.push(("archive", format!("{}, {length}", view.archive.display())));
    if let Some(seq) = r.seq {
        lines.push(("refs", format!("{}, state {seq}", r.ref_count.unwrap_or(0))));
    }
    if r.lfs_missing > 0 {
        lines.push(("LFS missing", format!("{} objects", r.lfs_missing)));
    }
    lines
}

/// Returns the settings that are the repository's own.
fn settings_text(settings: &Settings) -> String {
    let Settings { interval, refs, lfs, metadata, .. } = settings;
    let interval = interval.as_ref().map(|interval| match interval {
        Interval::Auto => "interval auto".to_owned(),
        Interval::Seconds(s) => format!("interval {}", output::span(i64::try_from(*s).unwrap_or(i64::MAX))),
    });
    let is = |what: &str, is: Option<bool>| is.map(|is| format!("{what} {}", if is { "yes" } else { "no" }));
    let own = [
        interval,
        refs.as_ref().map(|refs| format!("refs {}", refs.join(","))),
        is("LFS", *lfs),
        is("metadata", *metadata),
    ];
    let own: Vec<String> = own.into_iter().flatten().collect();
    if own.is_empty() { "those of weir.toml".to_owned() } else { own.join("; ") }
}

/// Returns what an archive holds.
fn archive_lines(archive: &ArchiveFacts) -> Vec<ShowLine> {
    let mut lines = vec![
        ("HEAD", archive.head.clone()),
        ("objects", format!("{}, named by {}", archive.objects, archive.object_format)),
    ];
    lines.extend(archive.base.clone().map(|base| ("builds on", base)));
    if archive.is_shallow {
        lines.push(("shallow", "yes: the upstream is a shallow clone".to_owned()));
    }
    if archive.lfs.objects > 0 {
        let bytes = output::bytes(archive.lfs.bytes);
        lines.push(("LFS", format!("{} objects, {bytes}", archive.lfs.objects)));
    }
    let as_stored = match (archive.whole_clone.heads_and_tags, archive.whole_clone.all) {
        (true, true) => "of branches and tags, and of all refs",
        (true, false) => "of branches and tags",
        (false, true) => "of all refs",
        (false, false) => "none; packs are made for each",
    };
    lines.push(("stored clones", as_stored.to_owned()));
    for pack in &archive.packs {
        let class = pack.class.map_or(String::new(), |class| format!(", class {class}"));
        let text = format!("{} objects, {}{class}", pack.objects, output::bytes(pack.bytes));
        lines.push(("pack", text));
    }
    lines
}

/// Returns what the forge says about a repository, without the fields that it leaves out.
fn forge_lines(said: &ForgeMetadata) -> Vec<ShowLine> {
    let words = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let number = |n: Option<i64>| n.map(|n| n.to_string());
    let languages: Vec<&str> = said.languages.keys().map(String::as_str).collect();
    let list = |words: &[&str]| (!words.is_empty()).then(|| words.join(", "));
    let topics: Vec<&str> = said.topics.iter().map(String::as_str).collect();
    let is = |what: &str, truth: Option<bool>| truth.filter(|is| *is).map(|_| what.to_owned());
    let fields = [
        ("at its forge", Some(said.full_name.clone())),
        ("description", words(&said.description)),
        ("homepage", words(&said.homepage)),
        ("language", words(&said.language)),
        ("languages", list(&languages)),
        ("topics", list(&topics)),
        ("fork of", words(&said.fork_of)),
        ("archived", is("yes", said.archived)),
        ("private", is("yes", said.private)),
        ("stars", number(said.stars)),
        ("forks", number(said.forks)),
        ("open issues", number(said.open_issues)),
        ("created", words(&said.created_at)),
        ("pushed", words(&said.pushed_at)),
    ];
    fields.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}
