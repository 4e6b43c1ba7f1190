//! The repositories that `mine` and `query` are about.

use std::path::Path;

use weir_pool::{Pool, bytes_of, open_local};
use weir_tables::MineSource;
use weir_terminal::output;

use crate::error::Result;

/// The words of a user: paths that are there, and names or patterns of repositories.
pub(crate) struct NamedSources<'n> {
    pub(crate) paths: Vec<&'n String>,
    pub(crate) patterns: Vec<&'n String>,
}

impl NamedSources<'_> {
    pub(crate) fn of(names: &[String]) -> NamedSources<'_> {
        let (paths, patterns) = names.iter().partition(|text| Path::new(text.as_str()).exists());
        NamedSources { paths, patterns }
    }
}

/// Returns the repositories that `patterns` select, and those at `paths`.
pub(crate) fn sources<'p>(
    pool: Option<&'p Pool>,
    patterns: &[&String],
    paths: &[&String],
) -> Result<Vec<MineSource<'p>>> {
    let mut sources = Vec::new();
    if let Some(pool) = pool {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).clone()).collect();
        let repositories = pool.selected(&patterns)?;
        let store = &pool.store;
        let mut former_names = pool.catalog.former_names()?;
        for r in repositories.into_iter().filter(|r| r.seq.is_some()) {
            sources.push(MineSource {
                former: former_names.remove(&r.id).unwrap_or_default(),
                origin: r.name.clone(),
                url: Some(
                    weir_transport::Url::parse(&r.url).map_or_else(|_| r.url.clone(), |u| u.to_string()),
                ),
                bytes: r.archive_bytes.map_or(0, |bytes| bytes as u64),
                seq: r.seq.map(|seq| seq as u64),
                open: Box::new(move || store.open(&r).map_err(Into::into)),
            });
        }
    }
    for path in paths {
        let path = Path::new(path.as_str());
        let whole = path.canonicalize().map_err(weir_ground::FileError::on("open", path))?;
        sources.push(MineSource {
            former: Vec::new(),
            origin: output::printable(whole.as_os_str().as_encoded_bytes()),
            url: None,
            bytes: bytes_of(&whole),
            seq: None,
            open: Box::new(move || open_local(&whole).map_err(Into::into)),
        });
    }
    Ok(sources)
}

/// Returns the number of threads that the machine runs at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
