//! `set`, `hint`: settings and hints for single repositories.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use weir_arguments::{Global, SetArgs};
use weir_catalog::clock::now;
use weir_catalog::{Interval, Repository};
use weir_ground::Timestamp;
use weir_pool::{HintFinder, Pool, SettingsView, tell_door};
use weir_settings::IntervalSetting;
use weir_terminal::{output, warn_line};
use weir_transport::Url;

use crate::error::{Error, Result};

pub(crate) fn set(pool: &mut Pool, global: &Global, args: SetArgs) -> Result<()> {
    let SetArgs { patterns, url, priority, interval, refs, lfs, metadata } = args;
    if let Some(url) = &url {
        set_url(pool, &patterns, url)?;
    }
    if url.is_none()
        && priority.is_none()
        && interval.is_none()
        && refs.is_none()
        && lfs.is_none()
        && metadata.is_none()
    {
        return list(pool, global, &patterns);
    }
    if patterns.is_empty() {
        return Err(Error::Message(
            "no repositories given; name some, or a pattern ('*' for all)".to_owned(),
        ));
    }
    let repositories = pool.matching_any(&patterns)?;
    let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
    // They are visited with the new settings: an interval counts from that visit, and other refs make another
    // state.
    let is_looked_at = interval.is_some() || refs.is_some() || lfs.is_some();
    pool.catalog.change_settings(
        &ids,
        if is_looked_at { now() } else { Timestamp(i64::MAX) },
        &|own_priority, s| {
            *own_priority = priority.map_or(*own_priority, |priority| priority.own().unwrap_or(0));
            if let Some(interval) = interval {
                s.interval = interval.own().map(IntervalSetting::own);
            }
            if let Some(refs) = refs.clone() {
                s.refs = refs.own();
            }
            if let Some(lfs) = lfs {
                s.lfs = lfs.own();
            }
            if let Some(metadata) = metadata {
                s.metadata = metadata.own();
            }
        },
    )?;
    if global.json {
        output::json(&json!({ "set": repositories.iter().map(|r| &r.name).collect::<Vec<_>>() }))?;
    } else if !global.quiet {
        writeln!(output::stdout(), "{} set", repositories.len())?;
    }
    Ok(())
}

/// Sets the upstream URL of the one repository in `names`.
fn set_url(pool: &mut Pool, names: &[String], url: &str) -> Result<()> {
    let [name] = names else {
        return Err(Error::Message("--url needs exactly one repository name".to_owned()));
    };
    let repository = pool.get(name)?;
    weir_pool::check_url(url)?;
    let entry = weir_pool::entry(url, Some(&repository.name))?;
    Ok(pool.catalog.set_url(&repository.name, &entry.url, now())?)
}

/// Lists the settings of repositories that match `patterns`, or of all that have settings.
fn list(pool: &Pool, global: &Global, patterns: &[String]) -> Result<()> {
    let mut repositories = pool.catalog.with_settings()?;
    if !patterns.is_empty() {
        let named = pool.matching_any(patterns)?;
        repositories.retain(|r| named.iter().any(|named| named.id == r.id));
    }
    if global.json {
        let entry = |r: &Repository| {
            let settings = SettingsView::from(&r.settings);
            json!({ "name": r.name, "priority": r.priority, "settings": settings })
        };
        let list: Vec<_> = repositories.iter().map(entry).collect();
        return Ok(output::json(&list)?);
    }
    if repositories.is_empty() {
        if !global.quiet {
            warn_line!("no repository has settings of its own");
        }
        return Ok(());
    }
    let mut rows =
        vec![["PRIORITY", "INTERVAL", "REFS", "LFS", "METADATA", "NAME"].map(str::to_owned).to_vec()];
    for r in &repositories {
        let s = &r.settings;
        let or_default = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        rows.push(vec![
            r.priority.to_string(),
            or_default(s.interval.map(|interval| match interval {
                Interval::Auto => "auto".to_owned(),
                Interval::Seconds(s) => output::span(s.min(i64::MAX as u64) as i64),
            })),
            or_default(s.refs.as_ref().map(|refs| refs.join(","))),
            or_default(s.lfs.map(|lfs| lfs.to_string())),
            or_default(s.metadata.map(|metadata| metadata.to_string())),
            r.name.clone(),
        ]);
    }
    Ok(output::table(&rows, &[0])?)
}

pub(crate) fn hint(
    pool: &mut Pool,
    global: &Global,
    mut repos: Vec<String>,
    from: Option<&Path>,
) -> Result<ExitCode> {
    if let Some(from) = from {
        for line in output::read_lines(from)? {
            // A line that is not UTF-8 names no repository.
            let line = line.unwrap_or_else(|| char::REPLACEMENT_CHARACTER.to_string());
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                repos.push(line.to_owned());
            }
        }
    }
    let (mut ids, mut unknown) = (Vec::new(), Vec::new());
    let (patterns, names): (Vec<String>, Vec<String>) =
        repos.into_iter().partition(|text| text.contains(['*', '?']));
    for pattern in patterns {
        match pool.catalog.get(&pattern)? {
            Some(exact) => ids.push(exact.id),
            None => ids.extend(pool.matching(&pattern)?.iter().map(|r| r.id)),
        }
    }
    // A feed of a whole forge also names repositories that are not mirrored here: they are only reported.
    let texts: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = HintFinder::default().find(&pool.catalog, &texts)?;
    for (name, found) in names.iter().zip(found) {
        match found.is_empty() {
            true => unknown.push(name.clone()),
            false => ids.extend(found),
        }
    }
    let names: Vec<String> = names.into_iter().filter(|name| !unknown.contains(name)).collect();
    // URLs are reported without passwords.
    unknown
        .iter_mut()
        .for_each(|text| *text = Url::parse(text).map_or_else(|_| text.clone(), |url| url.to_string()));
    ids.sort_unstable();
    ids.dedup();
    let hinted = pool.catalog.visits().hint(&ids, now())?;
    // The catalog has it. Who mirrors the pool learns of it now, if it has doors for events.
    tell_door(&pool.config.events.listen, &names.iter().map(String::as_str).collect::<Vec<_>>());
    if global.json {
        output::json(&json!({ "hinted": hinted, "unknown": unknown }))?;
    } else if !global.quiet {
        let mut out = output::stdout();
        writeln!(out, "{hinted} due now")?;
        for text in &unknown {
            writeln!(out, "unknown: {text}")?;
        }
    }
    Ok(ExitCode::from(u8::from(ids.is_empty() && !unknown.is_empty())))
}
