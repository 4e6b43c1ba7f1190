//! Sets the URL of the catalog in a pool's `weir.toml`, and leaves the rest of the file as it is.

use std::io::Write;
use std::path::Path;

use weir_ground::FileError;

use crate::config::{self, TEMPLATE};
use crate::error::Result;

/// Returns the text of a new pool's file, with the URL of its catalog if there is one.
pub fn template(url: Option<&str>) -> String {
    url.and_then(|url| with_url(TEMPLATE, Some(url))).unwrap_or_else(|| TEMPLATE.to_owned())
}

/// Sets or unsets `catalog.url` in `file`. Returns whether that could be done.
///
/// # Errors
/// If the file cannot be read or written.
pub fn set_catalog_url(file: &Path, url: Option<&str>) -> Result<bool> {
    let failed = |action| FileError::on(action, file);
    let text = match std::fs::read_to_string(file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(failed("read"))?,
    };
    let Some(changed) = with_url(&text, url) else { return Ok(false) };
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed("write"))?;
    // A new file is for its owner only, as a URL with a password requires.
    if let Ok(metadata) = file.metadata()
        && !url.is_some_and(has_password)
    {
        new.as_file().set_permissions(metadata.permissions()).map_err(failed("write"))?;
    }
    new.write_all(changed.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed("write"))?;
    new.persist(file).map_err(|e| failed("write")(e.error))?;
    Ok(true)
}

/// Returns `text` with that URL, if it can be set by changing one line.
fn with_url(text: &str, url: Option<&str>) -> Option<String> {
    let is_key = |line: &str| {
        line.trim_start_matches('#')
            .trim_start()
            .strip_prefix("url")
            .is_some_and(|l| l.trim_start().starts_with('='))
    };
    let new_line = match url {
        Some(url) => format!("url = {}", toml::Value::from(url)),
        None => "#url = \"postgres://USER@HOST/DATABASE\"".to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The table may be there as a comment.
    let is_header = |line: &str| line.trim_start_matches(['#', ' ']).starts_with('[');
    // A table that stands twice is empty at first.
    let section = lines.iter().rposition(|line| line.trim() == "[catalog]");
    match section.or_else(|| lines.iter().position(|line| line.trim() == "#[catalog]")) {
        Some(section) => {
            lines[section] = "[catalog]".to_owned();
            let end = lines[section + 1..]
                .iter()
                .position(|line| is_header(line))
                .map_or(lines.len(), |n| section + 1 + n);
            let is_set = (section + 1..end).find(|&n| is_key(&lines[n]) && !lines[n].starts_with('#'));
            match is_set.or_else(|| (section + 1..end).find(|&n| is_key(&lines[n]))) {
                Some(at) => lines[at] = new_line,
                None => lines.insert(section + 1, new_line),
            }
        }
        // Before the first section: keys above it belong to no section.
        None => {
            let first =
                lines.iter().position(|line| line.trim_start().starts_with('[')).unwrap_or(lines.len());
            lines.splice(first..first, ["[catalog]".to_owned(), new_line, String::new()]);
        }
    }
    let changed = lines.join("\n") + "\n";
    // The change counts only if it reads back as intended.
    let is_so = config::parse(&changed, "").is_ok_and(|config| config.catalog.url.as_deref() == url);
    is_so.then_some(changed)
}

/// Returns whether a URL contains a password.
pub fn has_password(url: &str) -> bool {
    weir_sql::redacted(url) != url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_url_changes_its_own_lines() {
        let url = "postgres://weir:a\"b\\c@h/db";
        let set = template(Some(url));
        assert_eq!(config::parse(&set, "").unwrap().catalog.url.as_deref(), Some(url));
        assert_eq!(set.lines().zip(TEMPLATE.lines()).filter(|(a, b)| a != b).count(), 1, "the key");
        let unset = with_url(&set, None).unwrap();
        assert_eq!(config::parse(&unset, "").unwrap().catalog.url, None);
        for text in [
            "",
            "[mirror]\njobs = 3\n",
            "# hello\n[[forge]]\ntype = \"github\"\nurl = \"https://h\"\n",
            "[catalog]\n[mirror]\n",
        ] {
            let set = with_url(text, Some(url)).unwrap();
            assert_eq!(config::parse(&set, "").unwrap().catalog.url.as_deref(), Some(url), "{set}");
            assert!(text.lines().all(|line| set.lines().any(|l| l == line)));
        }
        assert_eq!(
            with_url("catalog.url = \"postgres://a@b/c\"\n", Some(url)),
            None,
            "written otherwise: left to its owner"
        );
    }
}
