//! Dumps of forges that others have made: GHTorrent's tables and collections, GH Archive's hours, answers of
//! GitHub's API.
//!
//! A dump is read as a stream, line by line, in bounded memory. Its rows go to the catalog in batches. Each
//! batch records how far the dump was read, so that an interrupted import resumes there. Bad rows are
//! reported and skipped.

mod gharchive;
mod ghtorrent;
mod lines;
mod objects;
mod row;

use std::collections::HashMap;
use std::io::Read;

use weir_catalog::{Catalog, ImportPosition, Taken};
use weir_ground::Timestamp;
use weir_listed::{Account, Listed};

use crate::filter::{FilterVerdict, ListingFilter};
use crate::no_name::NoName;
use lines::{DumpLines, Line, Unit};
use row::DumpRow;

/// Rows of a batch: one transaction.
const BATCH_ROWS: usize = 10_000;
/// Lines of a batch, if few of them are repositories.
const BATCH_LINES: u64 = 100_000;
/// Bytes of a batch, if its lines are long.
const BATCH_BYTES: usize = 64 << 20;
/// Characters of the message about a bad row.
const TOLD_CHARS: usize = 200;

/// The format of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// GHTorrent's `projects.csv`: no header, quotes and escapes as MySQL writes them (ghtorrent.org,
    /// sql/schema.sql).
    GhTorrent,
    /// An hour of GH Archive, one event a line (gharchive.org), of any year.
    GhArchive,
    /// Repositories and accounts as GitHub's API gives them, one a line in JSON.
    Objects,
    /// Repositories and accounts as GitHub's API gives them, in BSON, one document after the other
    /// (bsonspec.org): GHTorrent's `repos.bson`, `users.bson`, `org_members.bson`.
    Documents,
}

impl Dump {
    fn unit(self) -> Unit {
        match self {
            Dump::GhTorrent => Unit::Record,
            Dump::GhArchive | Dump::Objects => Unit::Line,
            Dump::Documents => Unit::Document,
        }
    }
}

/// A failure to import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The dump cannot be read.
    #[error("reading {source_name} near line {line}: {source}")]
    Io {
        /// The name of the dump.
        source_name: String,
        /// The line near which reading failed.
        line: u64,
        /// The cause.
        source: std::io::Error,
    },
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
}

/// What an import has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines read, including those of earlier imports of the same dump.
    pub lines: u64,
    /// Rows that name a repository.
    pub rows: u64,
    /// Rows that name a user, an organisation or a member of one.
    pub accounts: u64,
    /// Rows that cannot be read, or whose repository can have no name here.
    pub bad: u64,
    /// Rows that are not wanted, or say that the repository is deleted.
    pub unwanted: u64,
    /// Rows that lack data that the filter needs.
    pub unknown: u64,
    /// The data that the first of these rows lacks.
    pub unknown_of: Option<&'static str>,
    /// The changes that the catalog made for the other rows.
    pub taken: Taken,
    /// Whether the dump was read to its end.
    pub is_finished: bool,
    /// Whether it was read to its end before this import.
    pub was_finished: bool,
}

/// AccountBatch of a batch.
#[derive(Default)]
struct AccountBatch {
    told: Vec<Account>,
    members: Vec<(String, Account)>,
}

impl AccountBatch {
    fn len(&self) -> usize {
        self.told.len() + self.members.len()
    }
}

/// An import of one dump.
pub struct Import<'a> {
    /// The format of the dump.
    pub dump: Dump,
    /// The name of the dump in messages and in the catalog.
    pub source: &'a str,
    /// The forge whose repositories the dump lists.
    pub forge: &'a str,
    /// The filter for the repositories that are wanted.
    pub filter: &'a ListingFilter,
    /// Returns the name of a repository here; `None` if it is not wanted, an error if it can have no name.
    pub name_of: &'a dyn Fn(&Listed) -> Result<Option<String>, NoName>,
    /// Called for each bad row with its line and what is wrong.
    pub on_bad_row: &'a dyn Fn(u64, &str),
    /// Returns the time.
    pub now: &'a dyn Fn() -> Timestamp,
}

impl Import<'_> {
    /// Reads `input`, plain or compressed by gzip, from where the last import of the same source ended, until
    /// it ends or `observe` returns false. `catalog` is `None` for a dry run.
    ///
    /// # Errors
    /// If the dump cannot be read, or the catalog fails. The batches before stay in the catalog.
    pub fn run(
        &self,
        input: Box<dyn Read>,
        catalog: Option<&Catalog>,
        observe: &mut dyn FnMut(&Imported) -> bool,
    ) -> Result<Imported, ImportError> {
        let position = catalog
            .as_ref()
            .map_or(Ok(ImportPosition::default()), |c| c.listings().import_position(self.source))?;
        let mut done = Imported {
            lines: position.lines,
            is_finished: position.is_finished,
            was_finished: position.is_finished,
            ..Imported::default()
        };
        if done.was_finished {
            return Ok(done);
        }
        let broken = |line, source| ImportError::Io { source_name: self.source.to_owned(), line, source };
        let mut lines = DumpLines::open(input, self.dump.unit()).map_err(|e| broken(0, e))?;
        lines.skip(position.lines).map_err(|e| broken(position.lines, e))?;
        let mut batch: Vec<Option<(String, Listed)>> = Vec::new();
        let mut accounts = AccountBatch::default();
        let mut batch_bytes = 0;
        let mut before_batch = done;
        // Events name the same repositories repeatedly: the last row of a batch counts.
        let mut places: HashMap<String, usize> = HashMap::new();
        loop {
            let (number, line) = match lines.read() {
                Ok(read) => read,
                Err(e) => return Err(broken(lines.passed(), e)),
            };
            let is_end = matches!(line, Line::End);
            batch_bytes += if let Line::Is(line) = line { line.len() } else { 0 };
            self.row(&line, number, &mut batch, &mut places, &mut accounts, &mut done);
            let is_full = batch.len() >= BATCH_ROWS || accounts.len() >= BATCH_ROWS;
            if is_end || is_full || batch_bytes >= BATCH_BYTES || lines.passed() - done.lines >= BATCH_LINES {
                let rows: Vec<(String, Listed)> = batch.drain(..).flatten().collect();
                batch_bytes = 0;
                (done.lines, done.is_finished) = (lines.passed(), is_end);
                if let Some(catalog) = &catalog {
                    // Before the position is stored: taking the same accounts twice changes nothing.
                    catalog.accounts().take_of_import(self.forge, &accounts.told, &accounts.members)?;
                    let position = ImportPosition { lines: done.lines, is_finished: is_end };
                    match catalog.listings().take_import(
                        self.forge,
                        self.source,
                        position,
                        &rows,
                        (self.now)(),
                    )? {
                        Some(taken) => done.taken += taken,
                        None => {
                            done = Imported { lines: done.lines, is_finished: is_end, ..before_batch };
                        }
                    }
                }
                before_batch = done;
                places.clear();
                accounts = AccountBatch::default();
                if !observe(&done) || is_end {
                    return Ok(done);
                }
            }
        }
    }

    fn row(
        &self,
        line: &Line<'_>,
        number: u64,
        batch: &mut Vec<Option<(String, Listed)>>,
        places: &mut HashMap<String, usize>,
        accounts: &mut AccountBatch,
        done: &mut Imported,
    ) {
        let mut bad = |what: &str| {
            done.bad += 1;
            let short: String = what.chars().take(TOLD_CHARS).flat_map(char::escape_debug).collect();
            (self.on_bad_row)(number, &short);
        };
        let row = match (line, self.dump) {
            (Line::Is(line), Dump::GhTorrent) => ghtorrent::row(line),
            (Line::Is(line), Dump::GhArchive) => gharchive::row(line),
            (Line::Is(line), Dump::Objects) => objects::json_row(line),
            (Line::Is(document), Dump::Documents) => objects::bson_row(document),
            (Line::TooLong, _) => Err("too long".into()),
            (Line::Unclosed, _) => Err("a quote is not closed".into()),
            (Line::End, _) => return,
        };
        let mut listed = match row {
            Ok(DumpRow::Of(listed)) => *listed,
            Ok(DumpRow::Account(account)) => {
                done.accounts += 1;
                return accounts.told.push(account);
            }
            Ok(DumpRow::Member(organization, account)) => {
                done.accounts += 1;
                return accounts.members.push((organization, account));
            }
            Ok(DumpRow::Nothing) => return done.unwanted += 1,
            Err(why) => return bad(&why.to_string()),
        };
        done.rows += 1;
        match self.filter.verdict(&listed) {
            FilterVerdict::Wanted => {}
            FilterVerdict::Unwanted => return done.unwanted += 1,
            FilterVerdict::Unknown(what) => {
                done.unknown_of = done.unknown_of.or(Some(what));
                return done.unknown += 1;
            }
        }
        match (self.name_of)(&listed) {
            Err(why) => bad(&why.to_string()),
            Ok(None) => done.unwanted += 1,
            Ok(Some(name)) => {
                let key = if listed.forge_id.is_empty() { name.clone() } else { listed.forge_id.clone() };
                // It comes after all rows since the earlier one, because names pass from one repository to
                // another.
                if let Some(earlier) = places.insert(key, batch.len()).and_then(|place| batch[place].take()) {
                    listed.pushed_at = listed.pushed_at.or(earlier.1.pushed_at);
                }
                batch.push(Some((name, listed)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Cursor;

    use super::*;

    fn import(dump: Dump, text: &[u8], catalog: &Catalog) -> (Imported, Vec<(u64, String)>) {
        let bad = RefCell::new(Vec::new());
        let import = Import {
            dump,
            source: "d",
            forge: "github.com",
            filter: &ListingFilter { skip_forks: dump != Dump::GhArchive, ..ListingFilter::default() },
            name_of: &|l| Ok(Some(format!("github.com/{}", l.full_name))),
            on_bad_row: &|line, what| bad.borrow_mut().push((line, what.to_owned())),
            now: &|| Timestamp(7),
        };
        let done = import.run(Box::new(Cursor::new(text.to_vec())), Some(catalog), &mut |_| true).unwrap();
        (done, bad.into_inner())
    }

    fn catalog() -> (tempfile::TempDir, Catalog) {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        (dir, catalog)
    }

    const PROJECTS: &[u8] =
        b"1,\"https://api.github.com/repos/o/a\",5,\"a\",\"says \\\"hi\\\", twice\\\nand \
        more\",\"C\",\"2012-01-02 03:04:05\",\\N,0,\"2015-01-01 00:00:00\",\\N\n\
        2,\"https://api.github.com/repos/o/fork\",5,\"fork\",\\N,\\N,\"2012-01-02 \
            03:04:05\",1,0,\"0000-00-00 00:00:00\"\n\
        3,\"https://api.github.com/repos/o/gone\",5,\"gone\",\\N,\\N,\"2012-01-02 03:04:05\",\\N,1\n\
        4,\\N,5,\"nameless\"\n\
        rubbish\n\
        5,\"https://api.github.com/repos/o/\\\"open,5\n\
        6,\"https://api.github.com/repos/o/b\",5,\"b\",\"caf\xe9\",\"Go\",\"2013-01-01 00:00:00\",\\N,0\n";

    #[test]
    fn tables_of_ghtorrent() {
        let (_dir, c) = catalog();
        let (done, bad) = import(Dump::GhTorrent, PROJECTS, &c);
        assert_eq!((done.taken.added, done.unwanted, done.is_finished), (2, 2, true), "{bad:?}");
        assert_eq!(bad.iter().map(|b| b.0).collect::<Vec<_>>(), [5, 6, 7], "by their lines");
        let a = c.get("github.com/o/a").unwrap().unwrap();
        assert_eq!(a.url, "https://github.com/o/a.git");
        assert_eq!(c.listings().description(a.id).unwrap().as_deref(), Some("says \"hi\", twice\nand more"));
        assert!(c.get("github.com/o/b").unwrap().is_some());
        let (again, _) = import(Dump::GhTorrent, PROJECTS, &c);
        assert_eq!((again.rows, again.is_finished), (0, true), "it was imported");
    }

    const HOUR: &[u8] = br#"{"id":"1","repo":{"id":11,"name":"o/a","url":"https://api.github.com/repos/o/a"}}
{"type":"WatchEvent","repo":{"id":11,"name":"o/renamed"},"actor":{"login":"x"}}
{"repository":{"id":12,"url":"https://github.com/o/old","name":"old","language":"C","description":"d"}}
{"repository":{"id":13,"url":"https://github.com/o/forked","name":"forked","owner":"o","fork":true}}
{"type":"FollowEvent"}
{"type":"PushEvent","repo":{"id":14,"name":"no-owner"}}
{"type":"Push
"#;

    #[test]
    fn hours_of_gh_archive_plain_and_compressed() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gz, HOUR).unwrap();
        for text in [HOUR.to_vec(), gz.finish().unwrap()] {
            let (_dir, c) = catalog();
            let (done, bad) = import(Dump::GhArchive, &text, &c);
            assert_eq!((done.taken.added, done.rows, done.unwanted, done.lines), (3, 4, 1, 7));
            assert_eq!(bad.iter().map(|b| b.0).collect::<Vec<_>>(), [6, 7]);
            assert!(
                c.get("github.com/o/renamed").unwrap().is_some()
                    && c.get("github.com/o/old").unwrap().is_some()
            );
        }
    }

    #[test]
    fn what_was_interrupted_goes_on_and_what_breaks_off_is_said() {
        let (dir, c) = catalog();
        let line = |n: u64| format!("{{\"repo\":{{\"id\":{n},\"name\":\"o/r{n}\"}}}}\n");
        let text: String = (0..25_000).map(line).collect();
        let import = Import {
            dump: Dump::GhArchive,
            source: "d",
            forge: "github.com",
            filter: &ListingFilter::default(),
            name_of: &|l| Ok(Some(format!("github.com/{}", l.full_name))),
            on_bad_row: &|line, what| panic!("{line}: {what}"),
            now: &|| Timestamp(7),
        };
        let input = || Box::new(Cursor::new(text.clone().into_bytes()));
        let first = import.run(input(), Some(&c), &mut |_| false).unwrap();
        assert_eq!((first.lines, first.is_finished, first.taken.added), (10_000, false, 10_000));
        let rest = import.run(input(), Some(&c), &mut |_| true).unwrap();
        assert_eq!(
            (rest.lines, rest.is_finished, rest.taken.added, rest.taken.known),
            (25_000, true, 15_000, 0)
        );
        // Two imports run at once: neither takes rows that the other has taken.
        c.listings().forget_import("d").unwrap();
        let other = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let both = import.run(input(), Some(&c), &mut |done| {
            if done.lines == 10_000 {
                let other = import.run(input(), Some(&other), &mut |_| false).unwrap();
                assert_eq!((other.lines, other.rows, other.taken.known), (20_000, 10_000, 10_000));
            }
            true
        });
        let both = both.unwrap();
        assert_eq!((both.lines, both.rows, both.taken.known), (25_000, 15_000, 15_000));
        // If a compressed dump is cut short, whole rows are taken, and the rest is an error, not an end.
        c.listings().forget_import("d").unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
        let gz = gz.finish().unwrap();
        let cut = import.run(Box::new(Cursor::new(gz[..gz.len() - 20].to_vec())), Some(&c), &mut |_| true);
        assert!(matches!(cut, Err(ImportError::Io { .. })));
        assert!(!c.listings().import_position("d").unwrap().is_finished);
    }

    #[test]
    fn objects_of_the_api_and_documents() {
        let owner = bson::rawdoc! { "id": 5i32, "login": "o", "type": "Organization" };
        let a = bson::rawdoc! {
            "_id": bson::oid::ObjectId::from_bytes([7; 12]), "id": 11i32, "full_name": "o/a",
            "clone_url": "ext::sh -c evil", "owner": owner.clone(),
            "description": "says", "fork": false, "stargazers_count": 3.0, "size": 5_000_000_000i64,
            "topics": ["x"], "private": false,
        };
        let b = bson::rawdoc! { "id": 12i64, "full_name": "o/b", "html_url": "https://github.com/o/b",
        "owner": owner, "fork": false };
        let bad = bson::rawdoc! { "id": "x", "full_name": "o/c" };
        let mut documents: Vec<u8> = [a.as_bytes(), bad.as_bytes(), b.as_bytes()].concat();
        let mut damaged = a.as_bytes().to_vec();
        damaged[4] = 0x55;
        documents.extend(damaged);
        let lines = br#"
{"id":11,"full_name":"o/a","clone_url":"ext::sh evil","owner":{"login":"o"},"description":"says","fork":false}
{"id":"x","full_name":"o/c"}

{"id":12,"full_name":"o/b","html_url":"https://github.com/o/b","fork":false}
{"id":13,"full_name":"../etc/passwd","html_url":"x"}
"#;
        for (dump, text, bad_lines) in
            [(Dump::Documents, documents.as_slice(), vec![2, 4]), (Dump::Objects, &lines[1..], vec![2, 5])]
        {
            let (_dir, c) = catalog();
            let (done, bad) = import(dump, text, &c);
            assert_eq!((done.taken.added, done.is_finished), (2, true), "{dump:?} {bad:?}");
            assert_eq!(bad.iter().map(|b| b.0).collect::<Vec<_>>(), bad_lines, "{dump:?} {bad:?}");
            let a = c.get("github.com/o/a").unwrap().unwrap();
            assert_eq!(a.url, "https://github.com/o/a.git", "not what a dump says");
            assert_eq!(c.listings().description(a.id).unwrap().as_deref(), Some("says"));
        }
    }

    #[test]
    fn people_and_organisations_and_who_belongs_to_which() {
        let (_dir, c) = catalog();
        let organization = bson::rawdoc! { "id": 5i32, "login": "o", "type": "Organization", "name": "O" };
        let person = bson::rawdoc! { "id": 6i32, "login": "p", "type": "User" };
        let nobody = bson::rawdoc! { "login": "q" };
        let (done, bad) = import(
            Dump::Documents,
            &[organization.as_bytes(), nobody.as_bytes(), person.as_bytes()].concat(),
            &c,
        );
        assert_eq!((done.accounts, bad.len(), done.rows), (2, 1, 0));
        c.listings().forget_import("d").unwrap();
        let members = br#"{"id":6,"login":"older","org":"o"}
{"id":7,"login":"r","org":"o"}
{"id":7,"login":"r","org":"unknown"}
"#;
        import(Dump::Objects, members, &c);
        let known = c.accounts().known(None, None, 10).unwrap();
        let told: Vec<_> =
            known.iter().map(|a| (a.account.login.as_str(), a.organizations.join(","))).collect();
        assert_eq!(told, [("o", String::new()), ("p", "o".to_owned()), ("r", "o".to_owned())]);
    }

    #[test]
    fn what_is_no_document_or_cut_short_is_an_error_and_no_end() {
        let a = bson::rawdoc! { "id": 11i32, "full_name": "o/a" };
        for text in [
            b"\xff\xff\xff\x7f rubbish".as_slice(),
            b"{}",
            &a.as_bytes()[..a.as_bytes().len() - 1],
            b"\x05\0",
        ] {
            let import = Import {
                dump: Dump::Documents,
                source: "d",
                forge: "github.com",
                filter: &ListingFilter::default(),
                name_of: &|_| Ok(None),
                on_bad_row: &|_, _| (),
                now: &|| Timestamp(7),
            };
            assert!(
                import.run(Box::new(Cursor::new(text.to_vec())), None, &mut |_| true).is_err(),
                "{text:?}"
            );
        }
    }
}
