//! The commands that inspect repositories: `ls`, `log`, `visits`, `du`, `cat`, `ls-tree`.

use std::collections::VecDeque;
use std::io::Write;

use clap::builder::styling::Style;
use serde_json::json;
use weir_catalog::{ForgeWish, PastVisit, Repository};
use weir_git::{HashKind, Kind, Oid};
use weir_ground::Timestamp;
use weir_pool::{InRepo, Pool};
use weir_repo::{FollowedRefs, StateChange, TreeListing, resolve_path, resolve_revision};

use crate::cli::{Global, LsArgs, RepoSelection};
use crate::colors;
use crate::error::Result;
use crate::listing::{RepositoryState, SortKey};
use crate::output;
use crate::repository_json::repository_json;

pub(crate) fn ls(pool: &Pool, global: &Global, args: &LsArgs) -> Result<()> {
    let mut list = pool.selected(&args.selection.repos)?;
    if list.is_empty() && !global.json {
        if !global.quiet {
            warn_line!("no repositories yet; add some with 'weir add URL'");
        }
        return Ok(());
    }
    let state = |r: &Repository| RepositoryState::of(r, r.seq.is_none() || pool.archive_path(r).exists());
    list.retain(|r| args.states.is_empty() || args.states.contains(&state(r)));
    let (language, topic, fork_of) = (args.language.clone(), args.topic.clone(), args.fork_of.clone());
    let wish = ForgeWish { language, topic, stars_min: args.stars_min, fork_of };
    if !wish.is_empty() {
        let wished = pool.catalog.ids_wished(&wish)?;
        list.retain(|r| wished.contains(&r.id));
    }
    let last_first = |of: fn(&Repository) -> Option<i64>| {
        move |r: &Repository| std::cmp::Reverse(of(r).unwrap_or(i64::MIN))
    };
    match args.sort {
        SortKey::Name => {}
        SortKey::Size => list.sort_by_key(last_first(|r| r.archive_bytes)),
        SortKey::Refs => list.sort_by_key(last_first(|r| r.ref_count)),
        SortKey::Changed => list.sort_by_key(last_first(|r| r.last_change.map(|at| at.0))),
        SortKey::Updated => list.sort_by_key(last_first(|r| r.last_success.map(|at| at.0))),
        SortKey::Added => list.sort_by_key(last_first(|r| Some(r.added_at.0))),
    }
    if args.reverse {
        list.reverse();
    }
    list.truncate(args.max_count.unwrap_or(usize::MAX));
    let ids: Vec<i64> = if args.long { list.iter().map(|r| r.id).collect() } else { Vec::new() };
    let said = pool.catalog.forge_metadata(&ids)?;
    if global.json {
        return output::json_array(list.iter().map(|r| {
            let mut value = repository_json(pool, r);
            if args.long {
                value["forge_metadata"] = json!(said.get(&r.id));
            }
            value
        }));
    }
    let heads = ["STATE", "SIZE", "REFS", "UPDATED", "STARS", "LANGUAGE", "NAME"].map(str::to_owned);
    let is_of_forge = |column: usize| column == 4 || column == 5;
    let shown = |row: Vec<String>| {
        row.into_iter()
            .enumerate()
            .filter(|(n, _)| args.long || !is_of_forge(*n))
            .map(|(_, text)| text)
            .collect()
    };
    let mut rows = vec![shown(heads.to_vec())];
    for r in &list {
        let said = said.get(&r.id);
        rows.push(shown(vec![
            state(r).name(),
            r.archive_bytes.map_or("-".to_owned(), |n| output::bytes(n as u64)),
            r.ref_count.map_or("-".to_owned(), |n| n.to_string()),
            r.last_success.map_or("-".to_owned(), output::time),
            said.and_then(|m| m.stars).map_or("-".to_owned(), |n| n.to_string()),
            said.and_then(|m| m.language.as_deref())
                .map_or("-".to_owned(), |language| output::printable(language.as_bytes())),
            r.name.clone(),
        ]));
    }
    let style = |row: usize, column: usize| match (row, column) {
        (0, _) => colors::HEADING,
        (row, 0) => state(&list[row - 1]).style(),
        _ => Style::new(),
    };
    output::styled_table(&rows, if args.long { &[1, 2, 4] } else { &[1, 2] }, &style)
}

pub(crate) fn visits(pool: &Pool, global: &Global, name: &str, max: usize) -> Result<()> {
    let r = pool.get(name)?;
    let visits = pool.catalog.past_visits(r.id, max)?;
    let swhid = |v: &PastVisit| {
        let id = Oid::from_bytes(HashKind::Sha1, v.snapshot.as_deref()?)?;
        Some(format!("{}{id}", weir_repo::SNAPSHOT_SWHID))
    };
    let result = |v: &PastVisit| match (&v.error_class, v.seq) {
        (Some(_), _) => "failed",
        (None, Some(_)) => "changed",
        (None, None) => "well again",
    };
    if global.json {
        let list: Vec<_> = visits
            .iter()
            .map(|v| {
                json!({ "at": v.at, "result": result(v), "seq": v.seq, "snapshot": swhid(v),
                "error_class": v.error_class, "error": v.error })
            })
            .collect();
        return output::json(&list);
    }
    let mut out = output::stdout();
    for v in &visits {
        let (seq, what) = match (&v.error_class, v.seq) {
            (Some(class), _) => {
                (String::new(), format!("{class}: {}", v.error.as_deref().unwrap_or_default()))
            }
            (None, seq) => (seq.map_or(String::new(), |n| n.to_string()), swhid(v).unwrap_or_default()),
        };
        writeln!(out, "{}  {:<10}  {seq:>6}  {what}", output::time(v.at), result(v))?;
    }
    Ok(())
}

pub(crate) fn log(pool: &Pool, global: &Global, name: &str, max_count: Option<usize>) -> Result<()> {
    let r = pool.get(name)?;
    let repo = pool.open_repo(&r)?;
    let Some(mut states) = repo.ref_states().in_repo(&r.name)? else {
        return Err(weir_pool::Error::NotMirrored(r.name).into());
    };
    let names_max = if global.json || global.verbose > 0 { usize::MAX } else { NAMES_SHOWN };
    let mut entries = VecDeque::new();
    while let Some((before, change)) = states.next_state().in_repo(&r.name)? {
        let mut entry = LogEntry {
            seq: change.seq,
            time: change.time,
            is_partial: change.is_partial,
            head_changed: change.head.is_some(),
            ..LogEntry::default()
        };
        entry.add(before, change, names_max);
        entries.push_front(entry);
        entries.truncate(max_count.unwrap_or(usize::MAX));
    }
    if global.json {
        let list: Vec<_> = entries
            .iter()
            .map(|e| {
                json!({ "seq": e.seq, "time": e.time, "refs": e.refs, "added": e.added, "updated": e.updated,
                    "deleted": e.deleted,
                        "head_changed": e.head_changed, "partial": e.is_partial, "changes": e.names })
            })
            .collect();
        return output::json(&list);
    }
    let mut out = output::stdout();
    for e in entries {
        let when = e.time.map_or("(before the last compaction)".to_owned(), |t| output::time(t) + " UTC");
        let partial = if e.is_partial { ", part of what upstream had" } else { "" };
        writeln!(
            out,
            "{}@{}  {when}  {} refs (+{} ~{} -{}){partial}",
            r.name, e.seq, e.refs, e.added, e.updated, e.deleted
        )?;
        for line in &e.names {
            writeln!(out, "    {line}")?;
        }
        let more = e.added + e.updated + e.deleted - e.names.len();
        if more > 0 {
            writeln!(out, "    and {more} more (-v shows all)")?;
        }
    }
    Ok(())
}

/// The number of refs shown of each state, unless all are requested.
const NAMES_SHOWN: usize = 10;

/// A state of the refs, as `log` shows it.
#[derive(Default)]
struct LogEntry {
    seq: u64,
    time: Option<Timestamp>,
    is_partial: bool,
    refs: usize,
    added: usize,
    updated: usize,
    deleted: usize,
    head_changed: bool,
    /// The changed refs: `+ name`, `~ name old..new`, `- name old`.
    names: Vec<String>,
}

impl LogEntry {
    /// Counts the changes that `change` makes to the refs `before`, and keeps lines for the first
    /// `names_max`.
    fn add(&mut self, before: &FollowedRefs, change: &StateChange, names_max: usize) {
        for r in &change.set {
            let line = match before.get(&r.name) {
                None => {
                    self.added += 1;
                    format!("+ {} {}", output::printable(&r.name), r.oid)
                }
                Some(old) if old != r.oid => {
                    self.updated += 1;
                    format!("~ {} {old}..{}", output::printable(&r.name), r.oid)
                }
                // The ref is the same; only the object that it peels to became known.
                Some(_) => continue,
            };
            if self.names.len() < names_max {
                self.names.push(line);
            }
        }
        for name in &change.removed {
            self.deleted += 1;
            if let Some(old) = before.get(name).filter(|_| self.names.len() < names_max) {
                self.names.push(format!("- {} {old}", output::printable(name)));
            }
        }
        self.refs = before.len() + self.added - self.deleted;
    }
}

pub(crate) fn du(pool: &Pool, global: &Global, selection: &RepoSelection) -> Result<()> {
    let list = pool.selected(&selection.repos)?;
    let mut sizes: Vec<(u64, &str)> = list
        .iter()
        .map(|r| (std::fs::metadata(pool.archive_path(r)).map_or(0, |m| m.len()), r.name.as_str()))
        .collect();
    sizes.sort_by(|a, b| b.cmp(a));
    let total: u64 = sizes.iter().map(|s| s.0).sum();
    if global.json {
        let list: Vec<_> =
            sizes.iter().map(|(bytes, name)| json!({ "name": name, "bytes": bytes })).collect();
        return output::json(&json!({ "total_bytes": total, "repositories": list }));
    }
    let mut rows: Vec<Vec<String>> =
        sizes.iter().map(|(bytes, name)| vec![output::bytes(*bytes), (*name).to_owned()]).collect();
    rows.push(vec![output::bytes(total), "total".to_owned()]);
    output::table(&rows, &[0])
}

pub(crate) fn cat(pool: &Pool, name: &str, object: &str) -> Result<()> {
    let r = pool.get(name)?;
    let repo = pool.open_repo(&r)?;
    let oid = match object.split_once(':') {
        Some((revision, path)) => resolve_path(&repo, revision, path.as_bytes()).in_repo(&r.name)?.1,
        None => resolve_revision(&repo, object).in_repo(&r.name)?,
    };
    let found = repo.reader().require(&oid).in_repo(&r.name)?;
    // The bytes are written unchanged: they may go into a file.
    let mut out = std::io::stdout().lock();
    if found.kind == Kind::Tree {
        for e in TreeListing::list(&repo, &oid, false).in_repo(&r.name)? {
            write_entry(&mut out, &e)?;
        }
        return Ok(());
    }
    out.write_all(&found.data)?;
    out.flush()?;
    Ok(())
}

fn write_entry(out: &mut impl Write, e: &TreeListing) -> Result<()> {
    write!(out, "{:06o} {} {}\t", e.mode, e.kind, e.oid)?;
    writeln!(out, "{}", quoted(&e.path))?;
    Ok(())
}

/// Returns a path as git shows it (git-config, `core.quotePath`): in quotes, with escapes, if it holds
/// special characters.
fn quoted(path: &[u8]) -> String {
    if path.iter().all(|&c| matches!(c, b' '..=b'~') && !matches!(c, b'"' | b'\\')) {
        return String::from_utf8_lossy(path).into_owned();
    }
    let mut text = String::from("\"");
    for &c in path {
        match c {
            b'"' | b'\\' => text.extend(['\\', char::from(c)]),
            b'\x07' => text.push_str("\\a"),
            b'\x08' => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            b'\x0b' => text.push_str("\\v"),
            b'\x0c' => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            b' '..=b'~' => text.push(char::from(c)),
            _ => text.push_str(&format!("\\{c:03o}")),
        }
    }
    text + "\""
}

pub(crate) fn ls_tree(pool: &Pool, global: &Global, name: &str, tree: &str, recursive: bool) -> Result<()> {
    let r = pool.get(name)?;
    let repo = pool.open_repo(&r)?;
    let (revision, path) = tree.split_once(':').unwrap_or((tree, ""));
    let (_, oid) = resolve_path(&repo, revision, path.as_bytes()).in_repo(&r.name)?;
    let list = TreeListing::list(&repo, &oid, recursive).in_repo(&r.name)?;
    if global.json {
        let list: Vec<_> = list
            .iter()
            .map(|e| {
                json!({ "mode": format!("{:06o}", e.mode), "type": e.kind, "oid": e.oid.to_hex(),
                "path": String::from_utf8_lossy(&e.path) })
            })
            .collect();
        return output::json(&list);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for e in &list {
        write_entry(&mut out, e)?;
    }
    out.flush()?;
    Ok(())
}
