//! Pages of listings that were read before. If the forge says that a page has not changed, it need not send
//! the page again.

use weir_sql::{Value, values};

use crate::transactions::LISTING;
use crate::{Listings, Result};

/// A page as it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPage {
    /// The tag that changes with the page (RFC 9110, "ETag").
    pub etag: String,
    /// The configuration that chose repositories from the page. Under another one, weir reads the page again.
    pub wanted: String,
    /// Ids of the repositories in it.
    pub ids: Vec<String>,
    /// The position of the next page, if there was one.
    pub next: Option<String>,
}

impl Listings<'_> {
    /// Returns the page of `forge` at `position` as it was last read.
    ///
    /// # Errors
    /// If the database fails.
    pub fn kept_page(&self, forge: &str, position: &str) -> Result<Option<KeptPage>> {
        let sql = "SELECT etag, wanted, ids, next FROM pages WHERE forge = ?1 AND position = ?2";
        Ok(self.catalog.database.query_one(sql, &values![forge, position], |row| {
            let ids = serde_json::from_str(&row.get::<String>(2)?).unwrap_or_default();
            Ok(KeptPage { etag: row.get(0)?, wanted: row.get(1)?, ids, next: row.get(3)? })
        })?)
    }

    /// Keeps a page. It is called after the content of the page was taken.
    ///
    /// # Errors
    /// If the database fails.
    pub fn keep_page(&self, forge: &str, position: &str, page: &KeptPage) -> Result<()> {
        let KeptPage { etag, wanted, ids, next } = page;
        let ids = serde_json::to_string(ids).expect("words are JSON");
        let sql = "INSERT INTO pages (forge, position, etag, wanted, ids, next) VALUES (?1, ?2, ?3, ?4, ?5, \
            ?6)
                   ON CONFLICT (forge, position) DO UPDATE SET etag = excluded.etag,
                   wanted = excluded.wanted, ids = excluded.ids,
                   next = excluded.next";
        let parameters: [Value<'_>; 6] = values![forge, position, etag, wanted, ids, next.as_deref()];
        Ok(self.catalog.database.transaction(LISTING, |db| db.execute(sql, &parameters)).map(|_| ())?)
    }
}
