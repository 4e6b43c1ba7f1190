//! People and organisations as forges list them, and what is left of the limits of forges' APIs.

use std::collections::HashMap;

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Database, Type, Value, values};

use crate::listing::Listing;
use crate::transactions::LISTING;
use crate::upsert::fits;
use crate::{Accounts, Result};
use weir_listed::{Account, AccountKind, RequestBudget};

/// An account as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownAccount {
    /// The forge, by its name in the configuration.
    pub forge: String,
    /// What the forge says of it.
    #[serde(flatten)]
    pub account: Account,
    /// Logins of the organisations it is known to belong to.
    pub organizations: Vec<String>,
    /// The number of its repositories that are known.
    pub repositories: i64,
}

/// The number of accounts that are known of a forge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountCounts {
    /// People.
    pub users: i64,
    /// Organisations.
    pub organizations: i64,
    /// Memberships of accounts in organisations.
    pub memberships: i64,
}

impl Accounts<'_> {
    /// Takes a page of the listing of a forge's accounts: accounts, and all members of organisations, by the
    /// organisations' ids at the forge. Records where to go on, as [`crate::Listings::take_page`] does. The
    /// accounts belong to `forge`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take(
        &self,
        listing: &mut Listing,
        forge: &str,
        accounts: &[Account],
        members: &[(String, Vec<Account>)],
        next: Option<&str>,
        now: Timestamp,
    ) -> Result<()> {
        let finished_at = next.is_none().then_some(now);
        self.catalog.database.transaction(LISTING, |db| -> Result<()> {
            // Members that were only named are people. What the accounts themselves say comes last, and
            // counts more.
            let all = members.iter().flat_map(|(_, members)| members).chain(accounts);
            let ids = write_accounts(db, forge, all)?;
            for (organization, members) in members {
                let Some(id) = ids.get(organization.as_str()) else { continue };
                db.execute("DELETE FROM memberships WHERE organization_id = ?1", &values![*id])?;
                let mut rows: Vec<i64> =
                    members.iter().filter_map(|member| ids.get(member.forge_id.as_str()).copied()).collect();
                rows.sort_unstable();
                rows.dedup();
                let rows: Vec<Vec<Value<'_>>> =
                    rows.into_iter().map(|member| values![*id, member].to_vec()).collect();
                let sql = "INSERT INTO memberships (organization_id, account_id) SELECT * FROM rows";
                db.execute_rows(sql, &[Type::Integer; 2], &rows)?;
            }
            db.execute(
                "UPDATE forges SET position = ?3, listed = listed + ?4, finished_at = ?5 WHERE name = ?1 AND \
                pass = ?2",
                &values![&listing.forge, listing.pass, next, accounts.len(), finished_at],
            )?;
            Ok(())
        })?;
        listing.position = next.map(str::to_owned);
        listing.listed += accounts.len() as i64;
        listing.finished_at = finished_at;
        Ok(())
    }

    /// Takes accounts of `forge` from a dump, and members of organisations, by the organisations' logins, as
    /// far as these are known. It does not change what a listing has said, because a dump is of the past.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take_of_import(
        &self,
        forge: &str,
        accounts: &[Account],
        members: &[(String, Account)],
    ) -> Result<()> {
        if accounts.is_empty() && members.is_empty() {
            return Ok(());
        }
        self.catalog.database.transaction(LISTING, |db| {
            let all = members.iter().map(|(_, member)| member).chain(accounts);
            let ids = add_accounts(db, forge, all)?;
            if members.is_empty() {
                return Ok(());
            }
            let logins = members.iter().map(|(organization, _)| organization.as_str()).collect();
            let sql = "SELECT login, id FROM accounts WHERE forge = ?1 AND kind = 'organization' AND login = \
                ANY(?2)";
            let known = db.query(sql, &[forge.into(), Value::Texts(logins)], |row| {
                Ok((row.get::<String>(0)?, row.get::<i64>(1)?))
            })?;
            let known: HashMap<String, i64> = known.into_iter().collect();
            let belongs = |(organization, member): &(String, Account)| {
                Some((*known.get(organization)?, *ids.get(&member.forge_id)?))
            };
            let mut rows: Vec<(i64, i64)> = members.iter().filter_map(belongs).collect();
            rows.sort_unstable();
            rows.dedup();
            let rows: Vec<Vec<Value<'_>>> = rows
                .into_iter()
                .map(|(organization, member)| values![organization, member].to_vec())
                .collect();
            let sql = "INSERT INTO memberships (organization_id, account_id) SELECT * FROM rows ON CONFLICT \
                (organization_id, account_id) DO NOTHING";
            db.execute_rows(sql, &[Type::Integer; 2], &rows)?;
            Ok(())
        })
    }

    /// Returns how many accounts are known of `forge`. Reads all of them.
    ///
    /// # Errors
    /// If the database fails.
    pub fn counts(&self, forge: &str) -> Result<AccountCounts> {
        let sql = "SELECT count(*) FILTER (WHERE kind = 'user'), count(*) FILTER (WHERE kind = \
            'organization'),
                   (SELECT count(*) FROM memberships m JOIN accounts o ON o.id = m.organization_id WHERE
                   o.forge = ?1)
                   FROM accounts WHERE forge = ?1";
        let counts = self.catalog.database.query_one(sql, &values![forge], |row| {
            Ok(AccountCounts { users: row.get(0)?, organizations: row.get(1)?, memberships: row.get(2)? })
        })?;
        Ok(counts.unwrap_or_default())
    }

    /// Returns at most `max` accounts with that login, or of all, in the order of logins and forges, behind
    /// the account `after`, a login and a forge.
    ///
    /// # Errors
    /// If the database fails.
    pub fn known(
        &self,
        login: Option<&str>,
        after: Option<(&str, &str)>,
        max: usize,
    ) -> Result<Vec<KnownAccount>> {
        let sql = "SELECT a.id, a.forge, a.forge_id, a.login, a.kind FROM accounts a
                   WHERE (CAST(?1 AS TEXT) IS NULL OR a.login = ?1)
                   AND (CAST(?2 AS TEXT) IS NULL OR (a.login, a.forge) > (?2, ?3))
                   ORDER BY a.login, a.forge LIMIT ?4";
        let (after_login, after_forge) = after.unzip();
        let wanted = values![login, after_login, after_forge, max];
        let mut list: Vec<(i64, KnownAccount)> = self.catalog.database.query(sql, &wanted, |row| {
            let kind = if row.get::<String>(4)? == "organization" {
                AccountKind::Organization
            } else {
                AccountKind::User
            };
            let account = Account { forge_id: row.get(2)?, login: row.get(3)?, kind };
            Ok((
                row.get(0)?,
                KnownAccount { forge: row.get(1)?, account, organizations: Vec::new(), repositories: 0 },
            ))
        })?;
        let sql =
            "SELECT m.account_id, o.login FROM memberships m JOIN accounts o ON o.id = m.organization_id
                   WHERE m.account_id = ANY(?1) ORDER BY o.login";
        let ids = Value::Integers(list.iter().map(|(id, _)| *id).collect());
        let mut of: HashMap<i64, Vec<String>> = HashMap::new();
        for (id, login) in
            self.catalog.database.query(sql, &[ids], |row| Ok((row.get::<i64>(0)?, row.get::<String>(1)?)))?
        {
            of.entry(id).or_default().push(login);
        }
        // Read all repositories once, not once for each account.
        let sql = "SELECT owner_id, count(*) FROM metadata WHERE owner_id = ANY(?1) GROUP BY owner_id";
        let ids = Value::Integers(list.iter().map(|(id, _)| *id).collect());
        let counts =
            self.catalog.database.query(sql, &[ids], |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)))?;
        let counts: HashMap<i64, i64> = counts.into_iter().collect();
        for (id, account) in &mut list {
            account.organizations = of.remove(id).unwrap_or_default();
            account.repositories = counts.get(id).copied().unwrap_or(0);
        }
        Ok(list.into_iter().map(|(_, account)| account).collect())
    }

    /// Records what is left of the limits of `forge`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_budgets(&self, forge: &str, budgets: &[RequestBudget], now: Timestamp) -> Result<()> {
        let row = |b: &RequestBudget| {
            values![forge, b.credential.clone(), b.limit, b.remaining, b.reset_at, now].to_vec()
        };
        let rows: Vec<Vec<Value<'_>>> = budgets.iter().map(row).collect();
        let sql = "INSERT INTO budgets (forge, credential, request_limit, remaining, reset_at, at) SELECT * \
            FROM rows
                   ON CONFLICT (forge, credential) DO UPDATE SET request_limit = excluded.request_limit,
                   remaining = excluded.remaining,
                   reset_at = excluded.reset_at, at = excluded.at";
        let types = [Type::Text, Type::Text, Type::Integer, Type::Integer, Type::Integer, Type::Integer];
        self.catalog.database.transaction(LISTING, |db| {
            // Remove old limits: tokens come and go.
            db.execute("DELETE FROM budgets WHERE forge = ?1 AND reset_at <= ?2", &values![forge, now])?;
            db.execute_rows(sql, &types, &rows)
        })?;
        Ok(())
    }

    /// Returns what is left of the limits that are not reset by `now`, with their forges.
    ///
    /// # Errors
    /// If the database fails.
    pub fn budgets(&self, now: Timestamp) -> Result<Vec<(String, RequestBudget)>> {
        let sql = "SELECT forge, credential, request_limit, remaining, reset_at FROM budgets WHERE reset_at \
            > ?1 ORDER BY forge, credential";
        Ok(self.catalog.database.query(sql, &values![now], |row| {
            Ok((
                row.get(0)?,
                RequestBudget {
                    credential: row.get(1)?,
                    limit: row.get(2)?,
                    remaining: row.get(3)?,
                    reset_at: row.get(4)?,
                },
            ))
        })?)
    }
}

/// Returns accounts as rows. Of several with one id, the last counts.
fn rows_of<'a>(
    forge: &'a str,
    told: impl Iterator<Item = &'a Account>,
) -> (HashMap<&'a str, &'a Account>, Vec<Vec<Value<'a>>>) {
    let told = told.filter(|account| fits(&account.forge_id) && fits(&account.login));
    let told: HashMap<&str, &Account> = told.map(|account| (account.forge_id.as_str(), account)).collect();
    let mut rows: Vec<Vec<Value<'_>>> =
        told.values().map(|a| values![forge, &a.forge_id, &a.login, a.kind.name()].to_vec()).collect();
    // In the same order everywhere, so that transactions do not wait for each other.
    rows.sort_by(|a, b| format!("{:?}", a[1]).cmp(&format!("{:?}", b[1])));
    (told, rows)
}

/// Adds the accounts that are not known. Returns the numbers of all by their ids at the forge.
fn add_accounts<'a>(
    db: &Database,
    forge: &'a str,
    told: impl Iterator<Item = &'a Account>,
) -> Result<HashMap<String, i64>> {
    let (told, rows) = rows_of(forge, told);
    let sql = "INSERT INTO accounts (forge, forge_id, login, kind) SELECT * FROM rows ON CONFLICT (forge, \
        forge_id) DO NOTHING";
    db.execute_rows(sql, &[Type::Text; 4], &rows)?;
    let sql = "SELECT forge_id, id FROM accounts WHERE forge = ?1 AND forge_id = ANY(?2)";
    let ids = db.query(sql, &[forge.into(), Value::Texts(told.into_keys().collect())], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(ids.into_iter().collect())
}

/// Writes accounts. Returns their numbers by their ids at the forge. Of several with one id, the last counts.
fn write_accounts<'a>(
    db: &Database,
    forge: &'a str,
    told: impl Iterator<Item = &'a Account>,
) -> Result<HashMap<&'a str, i64>> {
    let (told, rows) = rows_of(forge, told);
    let sql = "INSERT INTO accounts (forge, forge_id, login, kind) SELECT * FROM rows
               ON CONFLICT (forge, forge_id) DO UPDATE SET login = excluded.login,
               kind = excluded.kind RETURNING forge_id, id";
    let ids =
        db.query_rows(sql, &[Type::Text; 4], &rows, |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?)))?;
    Ok(ids
        .into_iter()
        .filter_map(|(forge_id, id)| told.get_key_value(forge_id.as_str()).map(|(key, _)| (*key, id)))
        .collect())
}
