//! The commands that inspect repositories: `ls`, `log`, `visits`, `du`, `cat`, `ls-tree`.

use std::io::Write;

use clap::builder::styling::Style;
use serde::Serialize;
use serde_json::json;
use weir_arguments::{Global, LsArgs, RepoSelection};
use weir_catalog::ForgeMetadata;
use weir_git::Kind;
use weir_pool::{InRepo, Pool, RepositoryState, RepositoryView, archive_sizes, listed, ref_log, visit_log};
use weir_repo::{TreeListing, resolve_path, resolve_revision};
use weir_terminal::{colors, output, warn_line};

use crate::error::Result;

/// A repository in a list, with what its forge says if that is asked for.
#[derive(Serialize)]
struct ListedRepository<'m> {
    #[serde(flatten)]
    view: RepositoryView,
    #[serde(skip_serializing_if = "Option::is_none")]
    forge_metadata: Option<Option<&'m ForgeMetadata>>,
}

/// Returns the style in which lists show a state.
fn style_of(state: RepositoryState) -> Style {
    match state {
        RepositoryState::Ok => colors::GOOD,
        RepositoryState::Failed | RepositoryState::Missing => colors::BAD,
        RepositoryState::Stale | RepositoryState::Incomplete => colors::DOUBTFUL,
        RepositoryState::New | RepositoryState::Paused | RepositoryState::Pinned => Style::new(),
    }
}

pub(crate) fn ls(pool: &Pool, global: &Global, args: &LsArgs) -> Result<()> {
    let list = listed(pool, &args.wanted())?;
    if list.is_empty() && !global.json && pool.catalog.received().last_repository()? == 0 {
        if !global.quiet {
            warn_line!("no repositories yet; add some with 'weir add URL'");
        }
        return Ok(());
    }
    let ids: Vec<i64> = if args.long { list.iter().map(|(r, _)| r.id).collect() } else { Vec::new() };
    let said = pool.catalog.metadata().of_forge(&ids)?;
    if global.json {
        return Ok(output::json_array(list.iter().map(|(r, _)| ListedRepository {
            view: RepositoryView::of(pool, r),
            forge_metadata: args.long.then(|| said.get(&r.id)),
        }))?);
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
    for (r, state) in &list {
        let said = said.get(&r.id);
        rows.push(shown(vec![
            state.name().to_owned(),
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
        (row, 0) => style_of(list[row - 1].1),
        _ => Style::new(),
    };
    Ok(output::styled_table(&rows, if args.long { &[1, 2, 4] } else { &[1, 2] }, &style)?)
}

pub(crate) fn visits(pool: &Pool, global: &Global, name: &str, max: usize) -> Result<()> {
    let r = pool.get(name)?;
    let visits = visit_log(pool, &r, max)?;
    if global.json {
        return Ok(output::json(&visits)?);
    }
    let mut out = output::stdout();
    for v in &visits {
        let (seq, what) = match (&v.error_class, v.seq) {
            (Some(class), _) => {
                (String::new(), format!("{class}: {}", v.error.as_deref().unwrap_or_default()))
            }
            (None, seq) => {
                (seq.map_or(String::new(), |n| n.to_string()), v.snapshot.clone().unwrap_or_default())
            }
        };
        writeln!(out, "{}  {:<10}  {seq:>6}  {what}", output::time(v.at), v.result.name())?;
    }
    Ok(())
}

pub(crate) fn log(pool: &Pool, global: &Global, name: &str, max_count: Option<usize>) -> Result<()> {
    let r = pool.get(name)?;
    let changes_max = if global.json || global.verbose > 0 { usize::MAX } else { NAMES_SHOWN };
    let entries = ref_log(pool, &r, max_count, changes_max)?;
    if global.json {
        return Ok(output::json(&entries)?);
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
        if let Some(head) = &e.moved_head {
            writeln!(out, "    HEAD is {head}")?;
        }
        for change in &e.changes {
            writeln!(out, "    {change}")?;
        }
        let more = e.added + e.updated + e.deleted - e.changes.len();
        if more > 0 {
            writeln!(out, "    and {more} more (-v shows all)")?;
        }
    }
    Ok(())
}

/// The number of refs shown of each state, unless all are requested.
const NAMES_SHOWN: usize = 10;

pub(crate) fn du(pool: &Pool, global: &Global, selection: &RepoSelection) -> Result<()> {
    let sizes = archive_sizes(pool, &selection.repos)?;
    let total: u64 = sizes.iter().map(|one| one.bytes).sum();
    if global.json {
        return Ok(output::json(&json!({ "total_bytes": total, "repositories": sizes }))?);
    }
    let mut rows: Vec<Vec<String>> =
        sizes.iter().map(|one| vec![output::bytes(one.bytes), one.name.clone()]).collect();
    rows.push(vec![output::bytes(total), "total".to_owned()]);
    Ok(output::table(&rows, &[0])?)
}

pub(crate) fn cat(pool: &Pool, name: &str, object: &str) -> Result<()> {
    let (r, state) = pool.get_state(name)?;
    let repo = pool.open_state(&r, state)?;
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
    let (r, state) = pool.get_state(name)?;
    let repo = pool.open_state(&r, state)?;
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
        return Ok(output::json(&list)?);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for e in &list {
        write_entry(&mut out, e)?;
    }
    out.flush()?;
    Ok(())
}
