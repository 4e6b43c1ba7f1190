//! Checks URLs to register, and gives repositories names by them.

use std::path::{Component, Path};

use weir_catalog::NewRepository;
use weir_ground::{check_name, without_password};
use weir_transport::{Scheme, Url};

use crate::archives::files::SUFFIX;
use crate::error::{Error, Result};

/// Forges where the path of a repository is always an owner and a name.
const OWNER_AND_NAME: [&str; 3] = ["github.com", "codeberg.org", "bitbucket.org"];

/// Refuses a URL that looks like a repository's but cannot be one: it names an owner, or a page.
///
/// # Errors
/// If it is such a URL, or not a URL at all.
pub fn check_url(text: &str) -> Result<()> {
    let url = Url::parse(text)?;
    let refuse = |why: String| Err(Error::Refused(why));
    if url.scheme == Scheme::Local {
        let path = url.local_path();
        let mut with_suffix = path.clone().into_os_string();
        with_suffix.push(".git");
        let is_archive = |path: &Path| {
            path.extension().is_some_and(|e| e == "tar") && weir_archive::Archive::open(path).is_ok()
        };
        let is_repository = |path: &Path| match path.is_file() {
            true => is_archive(path) || weir_repo::is_bundle(path),
            false => path.join("HEAD").exists() || path.join(".git").exists(),
        };
        if is_repository(&path) || is_repository(Path::new(&with_suffix)) {
            return Ok(());
        }
        if path.exists() {
            return refuse(format!("'{text}' is no repository"));
        }
        let first = text.split('/').next().unwrap_or_default();
        let is_host = text.contains('/')
            && first.contains('.')
            && first.chars().any(char::is_alphabetic)
            && !text.starts_with(['.', '/']);
        let guess = if is_host {
            format!("; did you mean https://{}?", without_password(text))
        } else {
            String::new()
        };
        return refuse(format!("there is nothing at '{}'{guess}", without_password(text)));
    }
    let host = url.host.to_ascii_lowercase();
    let parts: Vec<&str> = url.path.split('/').filter(|part| !part.is_empty()).collect();
    let is_owner_and_name = OWNER_AND_NAME.contains(&host.as_str());
    let end = match host.as_str() {
        _ if is_owner_and_name => 2,
        "gitlab.com" => parts.iter().position(|part| *part == "-").unwrap_or(parts.len()),
        _ => parts.len(),
    };
    match parts.len() {
        1 if is_owner_and_name || host == "gitlab.com" => refuse(format!(
            "'{url}' is an owner, not a repository; to register all that an owner has, add a [[forge]] to \
            weir.toml and crawl it"
        )),
        len if len > end => refuse(format!(
            "'{url}' is a page of a repository; did you mean https://{host}/{}?",
            parts[..end].join("/")
        )),
        _ => Ok(()),
    }
}

/// Returns the entry that the catalog adds for the upstream at `url`, under `name` or the URL's default name.
///
/// # Errors
/// If the URL or the name is invalid.
pub fn entry(url: &str, name: Option<&str>) -> Result<NewRepository> {
    let parsed = Url::parse(url)?;
    let mut kept = url.to_owned();
    let mut default = parsed.default_name();
    if parsed.scheme == Scheme::Local {
        // The path is relative to where the command was run. The mirror runs elsewhere.
        let mut absolute = std::path::absolute(parsed.local_path())?;
        if absolute.components().any(|part| part == Component::ParentDir)
            && let Ok(found) = absolute.canonicalize()
        {
            absolute = found;
        }
        kept = absolute.to_str().ok_or_else(|| Error::Refused(format!("'{url}' is not UTF-8")))?.to_owned();
        default = Url::parse(&kept)?.default_name();
    }
    let is_given = name.is_some();
    let name = name.map_or(default, |n| n.trim_matches('/').to_owned());
    check_name(&name).map_err(|why| match is_given {
        true => Error::Refused(why.to_string()),
        false => Error::NoName(why),
    })?;
    let path = format!("{name}{SUFFIX}");
    Ok(NewRepository { name, url: kept, path })
}
