//! Repositories and accounts as forges describe them: the types that clients of forges and the catalog share.

mod account;
mod listed;

pub use account::{Account, AccountKind, RequestBudget};
pub use listed::Listed;
