//! What forges say of repositories and accounts: the words that their clients and the catalog share.

mod account;
mod listed;

pub use account::{Account, AccountKind, RequestBudget};
pub use listed::Listed;
