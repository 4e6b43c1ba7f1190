//! Pages of listings as they were: a forge that says one has not changed need not give it again.

use crate::database::{TransactionKind, Value, values};
use crate::{Catalog, Result};

/// A page as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPage {
    /// What tells it from what it will be (RFC 9110, "ETag").
    pub etag: String,
    /// What was wanted of it: with other wishes it must be looked through again.
    pub wanted: String,
    /// Ids of the repositories in it.
    pub ids: Vec<String>,
    /// Where the listing went on.
    pub next: Option<String>,
}

impl Catalog {
    /// The page of `forge` at `position` when it was last had.
    ///
    /// # Errors
    /// If the database fails.
    pub fn kept_page(&self, forge: &str, position: &str) -> Result<Option<KeptPage>> {
        let sql = "SELECT etag, wanted, ids, next FROM pages WHERE forge = ?1 AND position = ?2";
        self.database.query_one(sql, &values![forge, position], |row| {
            let ids = serde_json::from_str(&row.get::<String>(2)?).unwrap_or_default();
            Ok(KeptPage { etag: row.get(0)?, wanted: row.get(1)?, ids, next: row.get(3)? })
        })
    }

    /// Keeps a page. To be called when what is in it was taken.
    ///
    /// # Errors
    /// If the database fails.
    pub fn keep_page(&mut self, forge: &str, position: &str, page: &KeptPage) -> Result<()> {
        let KeptPage { etag, wanted, ids, next } = page;
        let ids = serde_json::to_string(ids).expect("words are JSON");
        let sql = "INSERT INTO pages (forge, position, etag, wanted, ids, next) VALUES (?1, ?2, ?3, ?4, ?5, \
            ?6)
                   ON CONFLICT (forge, position) DO UPDATE SET etag = excluded.etag,
                   wanted = excluded.wanted, ids = excluded.ids,
                   next = excluded.next";
        let parameters: [Value<'_>; 6] = values![forge, position, etag, wanted, ids, next.as_deref()];
        self.database.transaction(TransactionKind::Listing, |db| db.execute(sql, &parameters)).map(|_| ())
    }
}
