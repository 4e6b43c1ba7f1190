//! Writing pages of listings and dumps into the catalog. Most rows of a page are new, or have kept their
//! names: these are written together. The others are written one at a time.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use weir_ground::Timestamp;
use weir_sql::{Database, Row, Rows, Type, Value, values};

use crate::Result;
use crate::due::hinted;
use crate::repository::path_for;
use weir_listed::{Account, Listed};

/// The result of taking a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// Repositories that are new.
    pub added: usize,
    /// Repositories that have another name or owner now.
    pub renamed: usize,
    /// Repositories that are back after they were gone.
    pub back: usize,
    /// Repositories whose content has changed according to the forge: they are due at once.
    pub hinted: usize,
    /// Repositories that are unchanged.
    pub known: usize,
}

impl std::ops::AddAssign for Taken {
    fn add_assign(&mut self, other: Taken) {
        self.added += other.added;
        self.renamed += other.renamed;
        self.back += other.back;
        self.hinted += other.hinted;
        self.known += other.known;
    }
}

/// Where rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListingSource {
    /// A listing of a forge, with the number of its pass.
    Listing(i64),
    /// A dump. It never changes what a listing has said.
    Dump,
}

impl ListingSource {
    fn pass(self) -> i64 {
        if let ListingSource::Listing(pass) = self { pass } else { 0 }
    }
}

/// A listed repository as the catalog has it.
struct KnownRow {
    id: i64,
    name: String,
    url: String,
    is_gone: bool,
    /// Whether a listing has named it.
    was_listed: bool,
    pushed_at: Option<String>,
    created_at: Option<String>,
    /// When the last visit ended.
    last_attempt: Option<Timestamp>,
}

/// A visit that ended this long after a push, in seconds, has not missed it: it began after that.
const VISIT_SECONDS_MAX: i64 = 3600;

const KNOWN: &str =
    "SELECT r.forge_id, r.id, r.name, r.url, r.gone_at IS NOT NULL, coalesce(r.seen_pass, 0) \
    > 0 OR r.gone_at IS NOT NULL,
    m.pushed_at, m.created_at, r.last_attempt FROM repositories r
    LEFT JOIN metadata m ON m.repository_id = r.id WHERE r.forge = ?1 AND r.forge_id = ANY(?2)";

impl KnownRow {
    fn from_row(row: &Row<'_>) -> weir_sql::Result<(String, KnownRow)> {
        let known = KnownRow {
            id: row.get(1)?,
            name: row.get(2)?,
            url: row.get(3)?,
            is_gone: row.get(4)?,
            was_listed: row.get(5)?,
            pushed_at: row.get(6)?,
            created_at: row.get(7)?,
            last_attempt: row.get(8)?,
        };
        Ok((row.get(0)?, known))
    }

    /// Returns whether `listed` is another repository, to which a forge that was set up anew has given the
    /// same id: it has another name, and was made at another time.
    fn is_another(&self, name: &str, listed: &Listed) -> bool {
        let made = self.created_at.as_ref().zip(listed.created_at.as_ref());
        self.name != name && made.is_some_and(|(one, other)| one != other)
    }

    /// Returns whether `listed` tells of a push that no visit has seen. A listing does if it says otherwise
    /// than the last one. A dump may be old: it does if the push is later than the last visit.
    fn is_pushed(&self, listed: &Listed, source: ListingSource) -> bool {
        match source {
            ListingSource::Listing(_) => {
                self.pushed_at.is_some() && listed.pushed_at.is_some() && self.pushed_at != listed.pushed_at
            }
            ListingSource::Dump => {
                let push_and_visit = listed.pushed_time().zip(self.last_attempt);
                push_and_visit.is_some_and(|(push, visit)| push > visit - VISIT_SECONDS_MAX)
            }
        }
    }

    /// Counts the repository. `stays` says whether it keeps its name.
    fn count(&self, listed: &Listed, source: ListingSource, stays: bool, taken: &mut Taken) {
        match () {
            () if self.is_gone => taken.back += 1,
            () if !stays || self.url != listed.clone_url => taken.renamed += 1,
            () if self.is_pushed(listed, source) => taken.hinted += 1,
            () => taken.known += 1,
        }
    }

    /// Returns the parameters of [`TOUCH`].
    fn row<'a>(&self, name: &'a str, listed: &'a Listed, pass: i64) -> Vec<Value<'a>> {
        values![self.id, name, &listed.clone_url, pass].into()
    }

    /// Returns the repository's number if the listing is a reason to visit it: a push, or its return.
    fn hinted(&self, listed: &Listed, source: ListingSource) -> Option<i64> {
        (self.is_gone || self.is_pushed(listed, source)).then_some(self.id)
    }

    /// Counts the repository of a dump that a listing has named. Returns its number if the dump tells of a
    /// push that no visit has seen; nothing else that the dump says counts.
    fn pushed_in_dump(&self, listed: &Listed, taken: &mut Taken) -> Option<i64> {
        let is_pushed = !self.is_gone && self.is_pushed(listed, ListingSource::Dump);
        *(if is_pushed { &mut taken.hinted } else { &mut taken.known }) += 1;
        is_pushed.then_some(self.id)
    }
}

/// Remembers the names that the repositories of [`TOUCH`] had, if they get other ones.
const REMEMBER: &str = "INSERT INTO former_names (repository_id, name)
    SELECT rows.p1, (SELECT name FROM repositories WHERE id = rows.p1) FROM rows
    WHERE EXISTS (SELECT 1 FROM repositories WHERE id = rows.p1 AND name <> rows.p2) ON CONFLICT DO NOTHING";

/// Marks a repository as listed, under this name and URL.
const TOUCH: &str = concat!(
    "UPDATE repositories SET name = rows.p2, url = rows.p3, gone_at = NULL, ",
    "seen_pass = GREATEST(coalesce(seen_pass, 0), rows.p4) FROM rows WHERE id = rows.p1"
);
const TOUCHED: [Type; 4] = [Type::Integer, Type::Text, Type::Text, Type::Integer];

const INSERT: &str =
    "INSERT INTO repositories (name, url, path, added_at, forge, forge_id, seen_pass, is_wiki)
    SELECT * FROM rows ON CONFLICT DO NOTHING RETURNING name, id";
const INSERTED: [Type; 8] = {
    use Type::{Integer, Text};
    [Text, Text, Text, Integer, Text, Text, Integer, Integer]
};

/// The maximum length of a key of an index, in bytes. PostgreSQL's indexes hold 2,700 bytes of a row.
const KEY_BYTES_MAX: usize = 512;

/// Returns whether a text from a forge can be a key.
pub(crate) fn fits(key: &str) -> bool {
    key.len() <= KEY_BYTES_MAX && !key.contains('\0')
}

/// Returns those of `of` that are in a column of `repositories` whose values are unique.
fn held(db: &Database, column: &str, of: &[&str]) -> Result<HashSet<String>> {
    let sql = format!("SELECT {column} FROM repositories WHERE {column} = ANY(?1)");
    Ok(db.query(&sql, &[Value::Texts(of.to_vec())], |row| row.get(0))?.into_iter().collect())
}

/// Returns the keys that occur more than once.
fn repeated<'a>(keys: impl Iterator<Item = &'a str>) -> HashSet<&'a str> {
    let mut seen = HashSet::new();
    keys.filter(|key| !seen.insert(*key)).collect()
}

/// Takes `rows`, each with the name it gets here, as repositories of `forge`.
pub(crate) fn take(
    db: &Database,
    forge: &str,
    source: ListingSource,
    rows: &[(String, Listed)],
    now: Timestamp,
) -> Result<Taken> {
    let mut taken = Taken::default();
    let (rows, unfit): (Vec<_>, Vec<_>) = rows.iter().partition(|(_, l)| fits(&l.forge_id));
    if let Some((name, _)) = unfit.first() {
        tracing::warn!(
            "{} repositories of {forge} have ids that are too long or no text, {name} for one: left out",
            unfit.len()
        );
    }
    let ids: Vec<&str> = rows.iter().map(|(_, l)| l.forge_id.as_str()).filter(|id| !id.is_empty()).collect();
    let known: HashMap<String, KnownRow> = match ids.is_empty() {
        true => HashMap::new(),
        false => db
            .query(KNOWN, &[forge.into(), Value::Texts(ids.clone())], KnownRow::from_row)?
            .into_iter()
            .collect(),
    };
    let repeated_names = repeated(rows.iter().map(|(name, _)| name.as_str()));
    let repeated_ids = repeated(ids.into_iter());
    let is_new = |row: &&&(String, Listed)| !known.contains_key(&row.1.forge_id);
    let new_names: Vec<&str> = rows.iter().filter(is_new).map(|(name, _)| name.as_str()).collect();
    let new_paths: Vec<String> = new_names.iter().map(|name| path_for(name)).collect();
    let held_names = held(db, "name", &new_names)?;
    let held_paths = held(db, "path", &new_paths.iter().map(String::as_str).collect::<Vec<_>>())?;

    let (mut touched, mut hinted, mut new, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut told: Vec<(i64, &Listed)> = Vec::with_capacity(rows.len());
    for &row in &rows {
        let (name, listed) = row;
        let is_alone =
            !repeated_names.contains(name.as_str()) && !repeated_ids.contains(listed.forge_id.as_str());
        match known.get(&listed.forge_id) {
            Some(known) if source == ListingSource::Dump && known.was_listed => {
                hinted.extend(known.pushed_in_dump(listed, &mut taken));
            }
            Some(known) if is_alone && known.name == *name => {
                known.count(listed, source, true, &mut taken);
                touched.push(known.row(name, listed, source.pass()));
                hinted.extend(known.hinted(listed, source));
                told.push((known.id, listed));
            }
            None if is_alone && !held_names.contains(name) && !held_paths.contains(&path_for(name)) => {
                new.push(row)
            }
            _ => others.push(row),
        }
    }
    touch(db, &touched, hinted, now)?;
    let inserts: Vec<_> = new
        .iter()
        .map(|(name, listed)| inserted(forge, source, name, &path_for(name), listed, now))
        .collect();
    let mut added: HashMap<String, i64> = db
        .query_rows(INSERT, &INSERTED, &inserts, |row| Ok((row.get(0)?, row.get(1)?)))?
        .into_iter()
        .collect();
    for row in new {
        match added.remove(&row.0) {
            Some(id) => {
                taken.added += 1;
                told.push((id, &row.1));
            }
            None => others.push(row),
        }
    }
    for (name, listed) in others {
        told.extend(take_one(db, forge, source, name, listed, now, &mut taken)?.map(|id| (id, listed)));
    }
    write_metadata(db, forge, &told, now)?;
    Ok(taken)
}

/// Marks the repositories of `rows` as listed, and makes those with the numbers `hinted` due.
fn touch(db: &Database, rows: &Rows<'_>, hinted: Vec<i64>, now: Timestamp) -> Result<()> {
    let renamed: Vec<_> = rows.iter().map(|row| row[..2].to_vec()).collect();
    db.execute_rows(REMEMBER, &TOUCHED[..2], &renamed)?;
    db.execute_rows(TOUCH, &TOUCHED, rows)?;
    if !hinted.is_empty() {
        let sql = concat!("UPDATE repositories SET ", hinted!("?2"), " WHERE id = ANY(?1)");
        db.execute(sql, &[Value::Integers(hinted), now.into()])?;
    }
    Ok(())
}

/// Makes rules about `name` apply to repository `id` from now on.
pub(crate) fn remember_name(db: &Database, id: i64, name: &str) -> Result<()> {
    let sql = "INSERT INTO former_names (repository_id, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    Ok(db.execute(sql, &values![id, name]).map(|_| ())?)
}

fn inserted<'a>(
    forge: &'a str,
    source: ListingSource,
    name: &'a str,
    path: &str,
    listed: &'a Listed,
    now: Timestamp,
) -> Vec<Value<'a>> {
    // A dump that does not know the forge's ids gives none.
    let of_forge = !listed.forge_id.is_empty();
    let (forge, forge_id, pass) =
        (of_forge.then_some(forge), of_forge.then_some(&listed.forge_id), of_forge.then_some(source.pass()));
    let is_wiki = Listed::of_wiki(&listed.forge_id).is_some();
    values![name, &listed.clone_url, path.to_owned(), now, forge, forge_id, pass, is_wiki].into()
}

/// Takes one row whose name or id another repository has, too. Returns the repository whose metadata is to be
/// written, if any.
fn take_one(
    db: &Database,
    forge: &str,
    source: ListingSource,
    name: &str,
    listed: &Listed,
    now: Timestamp,
    taken: &mut Taken,
) -> Result<Option<i64>> {
    if listed.forge_id.is_empty() {
        // The repository that had this name before has another one now, and keeps its archive.
        let rows = [inserted(forge, source, name, &path_for(name), listed, now)];
        let id: Option<i64> = db.query_rows(INSERT, &INSERTED, &rows, |row| row.get(1))?.pop();
        *(if id.is_some() { &mut taken.added } else { &mut taken.known }) += 1;
        return Ok(id);
    }
    let known = db
        .query_one(KNOWN, &[forge.into(), Value::Texts(vec![&listed.forge_id])], KnownRow::from_row)?
        .map(|(_, known)| known);
    if source == ListingSource::Dump {
        // Nor does a repository of a dump take the name of one that a listing has named.
        let sql =
            "SELECT EXISTS (SELECT 1 FROM repositories WHERE name = ?1 AND forge = ?2 AND forge_id <> ?3
                   AND (seen_pass > 0 OR gone_at IS NOT NULL))";
        let is_taken =
            db.query_one(sql, &values![name, forge, &listed.forge_id], |row| row.get(0))? == Some(true);
        if let Some(known) = known.as_ref().filter(|known| known.was_listed) {
            let hinted = known.pushed_in_dump(listed, taken).into_iter().collect();
            touch(db, &[], hinted, now)?;
            return Ok(None);
        }
        if is_taken {
            taken.known += 1;
            return Ok(None);
        }
    }
    let another = known.as_ref().filter(|known| known.is_another(name, listed));
    if let Some(old) = another {
        tracing::warn!("{forge} has given the id of {} to another repository, {name}", old.name);
        // Its archive stays. An id of its own keeps others from being taken for it.
        let sql = "UPDATE repositories SET forge_id = ?2, gone_at = coalesce(gone_at, ?3) WHERE id = ?1";
        db.execute(sql, &values![old.id, format!("{}~{}", listed.forge_id, old.id), now])?;
    }
    let Some(known) = known.filter(|known| !known.is_another(name, listed)) else {
        taken.added += 1;
        return add(db, forge, source, name, listed, now).map(Some);
    };
    // A repository gets another name if its own is taken. It keeps that name until its own is free.
    let stays = known.name == name || known.name.starts_with(&set_aside(name, &listed.forge_id));
    let own = stays.then_some(known.name.as_str());
    let name = if known.name == name { name.to_owned() } else { free_name(db, forge, name, listed, own)? };
    let hinted = known.hinted(listed, source).into_iter().collect();
    touch(db, &[known.row(&name, listed, source.pass())], hinted, now)?;
    known.count(listed, source, stays, taken);
    Ok(Some(known.id))
}

fn add(
    db: &Database,
    forge: &str,
    source: ListingSource,
    name: &str,
    listed: &Listed,
    now: Timestamp,
) -> Result<i64> {
    // The repository may have been added or imported before. Servers accept URLs without `.git`.
    let bare = listed.clone_url.trim_end_matches('/');
    let bare = bare.strip_suffix(".git").unwrap_or(bare);
    let (suffixed, slashed) = (format!("{bare}.git"), format!("{bare}/"));
    let sql = "UPDATE repositories SET forge = ?1, forge_id = ?2, seen_pass = ?3, url = ?4 WHERE forge IS \
        NULL AND url IN (?4, ?6, ?7, ?8) AND name = ?5 RETURNING id";
    let adopted = db.query_one(
        sql,
        &values![forge, &listed.forge_id, source.pass(), &listed.clone_url, name, bare, suffixed, slashed],
        |row| row.get(0),
    )?;
    if let Some(id) = adopted {
        return Ok(id);
    }
    let name = free_name(db, forge, name, listed, None)?;
    let path = path_for(&name);
    // The archive of the repository that had this name before stays where it is.
    let path = match held(db, "path", &[&path])?.is_empty() {
        true => path,
        false => free_beside(db, "path", &name, &listed.forge_id)?,
    };
    let sql = "INSERT INTO repositories (name, url, path, added_at, forge, forge_id, seen_pass, is_wiki) \
        SELECT * FROM rows RETURNING id";
    let rows = [inserted(forge, source, &name, &path, listed, now)];
    Ok(db.query_rows(sql, &INSERTED, &rows, |row| row.get(0))?.pop().expect("one row was inserted"))
}

/// Returns the name of a repository whose own name is taken.
fn set_aside(name: &str, forge_id: &str) -> String {
    format!("{name}~{}", forge_id.replace('/', "~"))
}

/// Returns `name`, and takes it from the repository of the same forge that has it, because that one must have
/// another name by now. If the holder is not of this forge, returns a name beside it: `own`, if the
/// repository already has such a name.
fn free_name(db: &Database, forge: &str, name: &str, listed: &Listed, own: Option<&str>) -> Result<String> {
    let holder: Option<(i64, Option<String>, Option<String>)> = db.query_one(
        "SELECT id, forge, forge_id FROM repositories WHERE name = ?1",
        &values![name],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    match holder {
        None => Ok(name.to_owned()),
        Some((id, Some(of), Some(forge_id))) if of == forge => {
            remember_name(db, id, name)?;
            let aside = free_beside(db, "name", name, &forge_id)?;
            db.execute("UPDATE repositories SET name = ?2 WHERE id = ?1", &values![id, aside])?;
            Ok(name.to_owned())
        }
        Some(_) => {
            own.map_or_else(|| free_beside(db, "name", name, &listed.forge_id), |own| Ok(own.to_owned()))
        }
    }
}

/// Returns `path`, or a path beside it if that is taken, for the archive of the repository called `name`.
pub(crate) fn free_path(db: &Database, path: &str, name: &str) -> Result<String> {
    let candidates = std::iter::once(path.to_owned()).chain((2..).map(|n| path_for(&format!("{name}~{n}"))));
    for candidate in candidates {
        if held(db, "path", &[&candidate])?.is_empty() {
            return Ok(candidate);
        }
    }
    unreachable!("numbers do not end")
}

/// Returns a name or path beside `name`, for the repository with the id `forge_id`, that is in no row of
/// `column`. It tries several, because a forge may list a repository with just such a name.
fn free_beside(db: &Database, column: &str, name: &str, forge_id: &str) -> Result<String> {
    let first = set_aside(name, forge_id);
    let candidates = std::iter::once(first.clone()).chain((2..).map(|n| format!("{first}~{n}")));
    for candidate in candidates.map(|name| if column == "path" { path_for(&name) } else { name }) {
        if held(db, column, &[&candidate])?.is_empty() {
            return Ok(candidate);
        }
    }
    unreachable!("numbers do not end")
}

/// A later listing leaves what it does not say as it was, except for the description and the homepage.
const METADATA: &str = "INSERT INTO metadata AS m (repository_id, listed_at, full_name, owner_id, \
    description, homepage, language,
    default_branch, fork, parent_id, archived, private, kibibytes, stars, forks, open_issues, created_at,
    updated_at, pushed_at)
    SELECT * FROM rows ON CONFLICT (repository_id) DO UPDATE SET listed_at = excluded.listed_at,
    full_name = excluded.full_name,
    owner_id = coalesce(excluded.owner_id, m.owner_id), description = excluded.description,
    homepage = excluded.homepage,
    language = coalesce(excluded.language, m.language), default_branch = coalesce(excluded.default_branch,
    m.default_branch),
    fork = coalesce(excluded.fork, m.fork), parent_id = coalesce(excluded.parent_id, m.parent_id),
    archived = coalesce(excluded.archived, m.archived), private = coalesce(excluded.private, m.private),
    kibibytes = coalesce(excluded.kibibytes, m.kibibytes), stars = coalesce(excluded.stars, m.stars),
    forks = coalesce(excluded.forks, m.forks), open_issues = coalesce(excluded.open_issues, m.open_issues),
    created_at = coalesce(excluded.created_at, m.created_at), updated_at = coalesce(excluded.updated_at,
    m.updated_at),
    pushed_at = coalesce(excluded.pushed_at, m.pushed_at)";
const METADATA_COLUMNS: [Type; 19] = {
    use Type::{Integer, Text};
    [
        Integer, Integer, Text, Integer, Text, Text, Text, Text, Integer, Text, Integer, Integer, Integer,
        Integer, Integer, Integer, Text, Text, Text,
    ]
};

fn write_metadata(db: &Database, forge: &str, told: &[(i64, &Listed)], now: Timestamp) -> Result<()> {
    let owners = write_owners(db, forge, told)?;
    // The last row of a repository counts. One statement must not write a row twice.
    let last: HashMap<i64, &Listed> = told.iter().copied().collect();
    let mut last: Vec<(i64, &Listed)> = last.into_iter().collect();
    last.sort_unstable_by_key(|(id, _)| *id);
    let rows: Vec<Vec<Value<'_>>> = last
        .iter()
        .map(|&(id, l)| {
            let owner = l.owner.as_ref().and_then(|owner| owners.get(&owner.forge_id)).copied();
            values![
                id,
                now,
                &l.full_name,
                owner,
                l.description.as_ref(),
                l.homepage.as_ref(),
                l.language.as_ref(),
                l.default_branch.as_ref(),
                l.fork,
                l.parent_id.as_ref(),
                l.archived,
                l.private,
                l.kibibytes,
                l.stars,
                l.forks,
                l.open_issues,
                l.created_at.as_ref(),
                l.updated_at.as_ref(),
                l.pushed_at.as_ref(),
            ]
            .into()
        })
        .collect();
    db.execute_rows(METADATA, &METADATA_COLUMNS, &rows)?;
    write_lists(db, "languages", &last, |l| {
        let languages = l.languages.as_ref()?;
        Some(languages.iter().map(|(name, bytes)| (name.as_str(), Some(*bytes))).collect())
    })?;
    write_lists(db, "topics", &last, |l| {
        Some(l.topics.as_ref()?.iter().map(|topic| (topic.as_str(), None)).collect())
    })
}

/// Writes the owners of the repositories in `told`. Returns their numbers by their ids at the forge.
fn write_owners(db: &Database, forge: &str, told: &[(i64, &Listed)]) -> Result<HashMap<String, i64>> {
    let told: HashMap<&str, _> = told
        .iter()
        .filter_map(|(_, l)| l.owner.as_ref())
        .filter(|o| fits(&o.forge_id))
        .map(|o| (o.forge_id.as_str(), o))
        .collect();
    if told.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "SELECT forge_id, id, login FROM accounts WHERE forge = ?1 AND forge_id = ANY(?2)";
    let known: Vec<(String, i64, String)> =
        db.query(sql, &[forge.into(), Value::Texts(told.keys().copied().collect())], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    // Most owners are unchanged.
    let mut changed = told.clone();
    let mut ids = HashMap::new();
    for (forge_id, id, login) in known {
        if told.get(forge_id.as_str()).is_some_and(|owner| owner.login == login) {
            changed.remove(forge_id.as_str());
        }
        ids.insert(forge_id, id);
    }
    let rows = changed
        .into_values()
        .map(|owner: &Account| values![forge, &owner.forge_id, &owner.login, owner.kind.name()].to_vec());
    let rows: Vec<Vec<Value<'_>>> = rows.collect();
    let sql = "INSERT INTO accounts (forge, forge_id, login, kind) SELECT * FROM rows
               ON CONFLICT (forge, forge_id) DO UPDATE SET login = excluded.login RETURNING forge_id, id";
    ids.extend(
        db.query_rows(sql, &[Type::Text; 4], &rows, |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?)))?,
    );
    Ok(ids)
}

/// Writes a list of each repository, such as its topics, unless the listing says nothing of it.
fn write_lists<'a>(
    db: &Database,
    table: &str,
    told: &[(i64, &'a Listed)],
    list: impl Fn(&'a Listed) -> Option<Vec<(&'a str, Option<u64>)>>,
) -> Result<()> {
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    let mut has_numbers = false;
    for &(id, listed) in told {
        let Some(of_one) = list(listed) else { continue };
        let of_one: HashMap<&str, Option<u64>> = of_one.into_iter().filter(|(name, _)| fits(name)).collect();
        ids.push(id);
        for (name, number) in of_one {
            has_numbers |= number.is_some();
            let mut row: Vec<Value<'_>> = values![id, name].into();
            row.extend(number.map(Value::from));
            rows.push(row);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    db.execute(&format!("DELETE FROM {table} WHERE repository_id = ANY(?1)"), &[Value::Integers(ids)])?;
    if rows.is_empty() {
        return Ok(());
    }
    let types = [Type::Integer, Type::Text, Type::Integer];
    db.execute_rows(
        &format!("INSERT INTO {table} SELECT * FROM rows"),
        &types[..if has_numbers { 3 } else { 2 }],
        &rows,
    )?;
    Ok(())
}
