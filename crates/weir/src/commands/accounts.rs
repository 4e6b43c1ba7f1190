//! `accounts`: shows who owns what and belongs to which organisation, as forges list it.

use weir_arguments::Global;
use weir_pool::Pool;
use weir_terminal::{output, warn_line};

use crate::error::{Error, Result};

pub(crate) fn accounts(pool: &Pool, global: &Global, login: Option<&str>, max: usize) -> Result<()> {
    let list = pool.catalog.accounts().known(login, None, max)?;
    if let (Some(login), true) = (login, list.is_empty()) {
        return Err(Error::Message(format!("no account named '{login}' is known")));
    }
    if global.json {
        return Ok(output::json(&list)?);
    }
    if list.is_empty() {
        if !global.quiet {
            warn_line!(
                "no accounts yet; 'weir crawl' records owners, or all accounts with accounts = true in a \
                [[forge]]"
            );
        }
        return Ok(());
    }
    let mut rows = vec![["FORGE", "KIND", "REPOS", "LOGIN", "BELONGS TO"].map(str::to_owned).to_vec()];
    for a in &list {
        rows.push(vec![
            a.forge.clone(),
            a.account.kind.name().to_owned(),
            a.repositories.to_string(),
            output::printable(a.account.login.as_bytes()),
            output::printable(a.organizations.join(", ").as_bytes()),
        ]);
    }
    Ok(output::table(&rows, &[2])?)
}
