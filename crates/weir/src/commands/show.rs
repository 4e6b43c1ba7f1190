//! `show`: everything about one repository.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_catalog::clock::now;
use weir_catalog::{ForgeMetadata, Interval, Repository, Settings};
use weir_ground::Timestamp;
use weir_pool::Pool;
use weir_repo::{Head, Pack, Refs, Repo};

use crate::cli::Global;
use crate::colors;
use crate::error::Result;
use crate::listing::RepositoryState;
use crate::output;
use crate::repository_json::{repository_json, shown_url};

pub(crate) fn show(pool: &Pool, global: &Global, name: &str) -> Result<()> {
    let r = pool.get(name)?;
    let path = pool.archive_path(&r);
    let facts = if path.exists() { Some(ArchiveFacts::read(pool, &r)?) } else { None };
    let said = pool.catalog.forge_metadata(&[r.id])?.remove(&r.id);
    if global.json {
        let mut value = repository_json(pool, &r);
        if let Some(facts) = &facts {
            facts.add_to(&mut value);
        }
        value["forge_metadata"] = json!(said);
        return output::json(&value);
    }
    let mut lines = catalog_lines(&r, &path);
    lines.extend(facts.iter().flat_map(ArchiveFacts::lines));
    lines.extend(said.iter().flat_map(forge_lines));
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

/// Returns what the catalog knows of `r`, whose archive is at `path`.
fn catalog_lines(r: &Repository, path: &Path) -> Vec<ShowLine> {
    let now = now();
    let bytes = std::fs::metadata(path).ok().map(|m| m.len());
    let mut lines = vec![
        ("name", r.name.clone()),
        ("upstream", shown_url(r)),
        ("state", RepositoryState::of(r, bytes.is_some()).name()),
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
    let length = match (bytes, r.seq) {
        (Some(bytes), Some(_)) => output::bytes(bytes),
        (Some(bytes), None) => format!("being written, {} so far", output::bytes(bytes)),
        (None, Some(_)) => "missing".to_owned(),
        (None, None) => "none yet".to_owned(),
    };
    lines.push(("archive", format!("{}, {length}", path.display())));
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

/// The contents of an archive.
struct ArchiveFacts {
    head: String,
    object_format: &'static str,
    objects: u64,
    /// The repository that the archive builds on, or the path of its archive.
    base: Option<String>,
    is_shallow: bool,
    lfs_objects: u64,
    lfs_bytes: u64,
    /// Whether a clone of branches and tags, and one of all refs, is sent as it lies.
    whole_heads: bool,
    whole_all: bool,
    packs: Vec<PackFacts>,
}

struct PackFacts {
    name: String,
    bytes: u64,
    objects: u64,
    offset: u64,
    class: Option<&'static str>,
    sent_objects: Option<u64>,
}

impl ArchiveFacts {
    fn read(pool: &Pool, r: &Repository) -> Result<ArchiveFacts> {
        let repo = pool.open_repo(r)?;
        let base = repo.base().map(|base| base.path().to_owned());
        let store = std::path::absolute(&pool.store.path)?;
        let known = pool.catalog.bases(&[r.id])?.pop();
        let known = known.filter(|known| base.as_deref() == Some(&store.join(&known.path)));
        let (lfs_objects, lfs_bytes) = repo.lfs_count();
        let packs = PackFacts::read(&repo);
        Ok(ArchiveFacts {
            head: head_text(repo.refs()),
            object_format: repo.hash().name(),
            objects: packs.iter().map(|pack| pack.objects).sum(),
            base: known.map(|known| known.name).or_else(|| base.map(|path| path.display().to_string())),
            is_shallow: !repo.history().shallow().is_empty(),
            lfs_objects,
            lfs_bytes,
            whole_heads: repo.bodies().heads.is_some(),
            whole_all: repo.bodies().all.is_some(),
            packs,
        })
    }

    fn add_to(&self, value: &mut Value) {
        let pack = |p: &PackFacts| {
            json!({ "name": p.name, "bytes": p.bytes, "objects": p.objects, "offset": p.offset,
                "class": p.class, "sent_objects": p.sent_objects })
        };
        value["head"] = json!(self.head);
        value["object_format"] = json!(self.object_format);
        value["objects"] = json!(self.objects);
        value["base"] = json!(self.base);
        value["shallow"] = json!(self.is_shallow);
        value["lfs"] = json!({ "objects": self.lfs_objects, "bytes": self.lfs_bytes });
        value["whole_clone"] = json!({ "heads_and_tags": self.whole_heads, "all": self.whole_all });
        value["packs"] = json!(self.packs.iter().map(pack).collect::<Vec<_>>());
    }

    fn lines(&self) -> Vec<ShowLine> {
        let mut lines = vec![
            ("HEAD", self.head.clone()),
            ("objects", format!("{}, named by {}", self.objects, self.object_format)),
        ];
        lines.extend(self.base.clone().map(|base| ("builds on", base)));
        if self.is_shallow {
            lines.push(("shallow", "yes: the upstream is a shallow clone".to_owned()));
        }
        if self.lfs_objects > 0 {
            let bytes = output::bytes(self.lfs_bytes);
            lines.push(("LFS", format!("{} objects, {bytes}", self.lfs_objects)));
        }
        let as_stored = match (self.whole_heads, self.whole_all) {
            (true, true) => "of branches and tags, and of all refs",
            (true, false) => "of branches and tags",
            (false, true) => "of all refs",
            (false, false) => "none; packs are made for each",
        };
        lines.push(("stored clones", as_stored.to_owned()));
        for pack in &self.packs {
            let class = pack.class.map_or(String::new(), |class| format!(", class {class}"));
            let text = format!("{} objects, {}{class}", pack.objects, output::bytes(pack.bytes));
            lines.push(("pack", text));
        }
        lines
    }
}

impl PackFacts {
    /// Returns the packs that the archive itself holds.
    fn read(repo: &Repo) -> Vec<PackFacts> {
        let of_base = repo.objects().packs().len() - repo.own_packs().len();
        let read = |(n, p): (usize, &Arc<Pack>)| {
            let body = repo.bodies().list.iter().find(|body| body.pack as usize == n);
            PackFacts {
                name: p.name().to_string(),
                bytes: p.data().len() as u64,
                objects: p.index().count().into(),
                offset: p.data().file_offset(),
                class: body.map(|body| body.class.name()),
                sent_objects: body.map(|body| body.sent_count.into()),
            }
        };
        (of_base..).zip(repo.own_packs()).map(read).collect()
    }
}

fn head_text(refs: &Refs) -> String {
    match &refs.head {
        Head::Symbolic(name) => {
            output::printable(name) + if refs.head_oid().is_none() { " (unborn)" } else { "" }
        }
        Head::Detached(oid) => format!("{oid} (detached)"),
    }
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
