//! grokmirror's manifests (`manifest.js`, also compressed): all repositories of a host, with fingerprints of their refs.

use serde_json::Value;

use crate::api::{Api, Usage};
use crate::{Error, Forge, Listed, Page, Result};

const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
/// Bytes of an unpacked manifest: kernel.org's has a few.
const MANIFEST_BYTES_MAX: usize = 1 << 30;

/// A manifest.
pub struct Manifest {
    api: Api,
    url: String,
    site: String,
    /// As last read, for questions about one.
    last: Vec<Listed>,
}

impl Manifest {
    /// The manifest at `url`, of repositories whose paths come behind `site`.
    pub fn new(url: &str, site: &str, api: Api) -> Manifest {
        Manifest { api, url: url.to_owned(), site: site.trim_end_matches('/').to_owned(), last: Vec::new() }
    }

    fn read(&mut self) -> Result<Vec<Listed>> {
        let mut bytes = self.api.bytes(&self.url)?;
        let unexpected = |detail: String| Error::Unexpected { url: self.url.clone(), detail };
        if bytes.starts_with(GZIP_MAGIC) {
            bytes = sirocco::decompress(sirocco::Format::Gzip, &bytes, MANIFEST_BYTES_MAX).map_err(|e| unexpected(e.to_string()))?;
        }
        let manifest: Value = serde_json::from_slice(&bytes).map_err(|e| unexpected(e.to_string()))?;
        // An empty one is what a broken server has.
        let entries = manifest.as_object().filter(|m| !m.is_empty()).ok_or_else(|| unexpected("no repositories".to_owned()))?;
        Ok(entries.iter().filter_map(|(path, entry)| self.entry(path, entry)).collect())
    }

    fn entry(&self, path: &str, entry: &Value) -> Option<Listed> {
        let path = path.trim_matches('/');
        let full_name = path.strip_suffix(".git").unwrap_or(path);
        let text = |key: &str| entry[key].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
        (!full_name.is_empty()).then(|| Listed {
            // It has no other id.
            forge_id: path.to_owned(),
            full_name: full_name.to_owned(),
            clone_url: format!("{}/{path}", self.site),
            description: text("description"),
            default_branch: text("head").and_then(|h| h.strip_prefix("ref: refs/heads/").map(str::to_owned)),
            // The fingerprint tells changes; the time need not.
            pushed_at: text("fingerprint").or_else(|| entry["modified"].as_u64().map(|t| t.to_string())),
            ..Listed::default()
        })
    }
}

impl Forge for Manifest {
    fn start(&self) -> &'static str {
        ""
    }

    fn page(&mut self, _: &str) -> Result<Page> {
        self.last = self.read()?;
        Ok(Page { repositories: self.last.clone(), next: None, ..Page::default() })
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        if self.last.is_empty() {
            self.last = self.read()?;
        }
        Ok(self.last.iter().find(|l| l.forge_id == forge_id).cloned())
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}
