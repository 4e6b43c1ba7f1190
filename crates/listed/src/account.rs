//! Accounts of forges, and the requests that they may make.

use serde::{Deserialize, Serialize};
use weir_ground::Timestamp;

/// The kind of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountKind {
    /// A person.
    User,
    /// An organisation or group.
    Organization,
}

impl AccountKind {
    /// Returns the name of the kind in the catalog.
    pub fn name(self) -> &'static str {
        match self {
            AccountKind::User => "user",
            AccountKind::Organization => "organization",
        }
    }
}

/// The owner of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its id at the forge.
    pub forge_id: String,
    /// The name it has now.
    pub login: String,
    /// Its kind.
    pub kind: AccountKind,
}

/// The remaining requests of a credential, as a forge reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestBudget {
    /// The credential: the start of its SHA-256, or the name of an App's installation. A limit of some
    /// requests only has its name behind a blank: `graphql`.
    pub credential: String,
    /// Requests in all, if the forge says so.
    pub limit: Option<i64>,
    /// Requests left.
    pub remaining: i64,
    /// When the limit is reset, in seconds since 1970.
    pub reset_at: Timestamp,
}
