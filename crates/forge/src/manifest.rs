//! grokmirror's manifests (`manifest.js`, also compressed): all repositories of a host, with fingerprints of
//! their refs.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::api::{Api, Usage};
use crate::{Error, Forge, Listed, Page, Result};

const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
/// Bytes of an unpacked manifest: kernel.org's has a few million.
const MANIFEST_BYTES_MAX: usize = 256 << 20;
/// The most repositories in it.
const ENTRIES_MAX: usize = 1_000_000;

/// The fields of a repository that are wanted. A field of the wrong type counts as missing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ManifestEntry {
    #[serde(deserialize_with = "text")]
    description: Option<String>,
    #[serde(deserialize_with = "text")]
    head: Option<String>,
    #[serde(deserialize_with = "text")]
    fingerprint: Option<String>,
    #[serde(deserialize_with = "number")]
    modified: Option<u64>,
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64())
}

/// Repositories by path, read one by one, so that unwanted fields are not kept in memory.
struct ManifestEntries(Vec<(String, ManifestEntry)>);

impl<'de> Deserialize<'de> for ManifestEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<ManifestEntries, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = ManifestEntries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with repositories by path")
            }

            fn visit_map<M: MapAccess<'de>>(
                self,
                mut map: M,
            ) -> std::result::Result<ManifestEntries, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    if entries.len() == ENTRIES_MAX {
                        return Err(serde::de::Error::custom(format!(
                            "more than {ENTRIES_MAX} repositories"
                        )));
                    }
                    entries.push(entry);
                }
                Ok(ManifestEntries(entries))
            }
        }
        deserializer.deserialize_map(Reading)
    }
}

/// A manifest.
pub struct Manifest {
    api: Api,
    url: String,
    site: String,
    /// The repositories as last read, for requests for one of them.
    last: Vec<Listed>,
}

impl Manifest {
    /// Returns the manifest at `url`; the clone URLs of its repositories are below `site`.
    pub fn new(url: &str, site: &str, api: Api) -> Manifest {
        Manifest { api, url: url.to_owned(), site: site.trim_end_matches('/').to_owned(), last: Vec::new() }
    }

    fn read(&mut self) -> Result<Vec<Listed>> {
        let mut bytes = self.api.bytes(&self.url)?;
        let unexpected = |detail: String| Error::Unexpected { url: self.url.clone(), detail };
        if bytes.starts_with(GZIP_MAGIC) {
            bytes = sirocco::decompress(sirocco::Format::Gzip, &bytes, MANIFEST_BYTES_MAX)
                .map_err(|e| unexpected(e.to_string()))?;
        }
        let ManifestEntries(entries) =
            serde_json::from_slice(&bytes).map_err(|e| unexpected(e.to_string()))?;
        // An empty manifest comes from a broken server.
        if entries.is_empty() {
            return Err(unexpected("no repositories".to_owned()));
        }
        Ok(entries.into_iter().filter_map(|(path, entry)| self.entry(&path, entry)).collect())
    }

    fn entry(&self, path: &str, entry: ManifestEntry) -> Option<Listed> {
        let path = path.trim_matches('/');
        let full_name = path.strip_suffix(".git").unwrap_or(path);
        let some = |text: Option<String>| text.filter(|t| !t.is_empty());
        (!full_name.is_empty()).then(|| Listed {
            // A manifest has no other ids.
            forge_id: path.to_owned(),
            full_name: full_name.to_owned(),
            clone_url: format!("{}/{path}", self.site),
            description: some(entry.description),
            default_branch: some(entry.head)
                .and_then(|h| h.strip_prefix("ref: refs/heads/").map(str::to_owned)),
            // The fingerprint shows every change; the time may not.
            pushed_at: some(entry.fingerprint).or_else(|| entry.modified.map(|t| t.to_string())),
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

    fn is_one_list(&self) -> bool {
        true
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
