//! Rows of mining as rows of tables.

use std::io;
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use weir_git::Oid;
use weir_ground::{Stop, Timestamp};
use weir_mine::{
    CommitDecoder, CommitParts, FaultRow, FileChangeRow, Ident, Lines, MineOptions, MineProgress, MineReport,
    RefChangeRow, ReleaseRow, ReplacedRows, RevisionRow, RowSink, Side, Tips, VisitRow, lossy, mine,
};
use weir_repo::{Head, Repo};

use crate::column::{BytesColumn, LongTextColumn, MinutesColumn, TextColumn, TimeColumn};
use crate::schema::{
    Buffered, DefaultBranchRows, FileChangeRows, MiningErrorRows, MiningRows, OriginVisitRows, RefChangeRows,
    ReleaseRows, RevisionExtraHeaderRows, RevisionHistoryRows, RevisionRows, TableKind, TableRows,
};

/// Takes batches of rows.
pub trait BatchWriter: Send {
    /// Takes rows of `table`.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()>;

    /// Removes rows of the repository `origin` that were committed before.
    ///
    /// # Errors
    /// If that cannot be done.
    fn remove(&mut self, origin: &str, rows: ReplacedRows) -> io::Result<()>;
}

/// A mining of a repository, for the table of them.
#[derive(Clone, Debug)]
pub struct MiningRow<'a> {
    /// The address of the upstream.
    pub url: Option<&'a str>,
    /// The name of the hash.
    pub object_format: &'a str,
    /// The branch that HEAD names.
    pub head: Option<&'a [u8]>,
    /// When the mining began.
    pub started_at: Timestamp,
    /// What was mined.
    pub report: MineReport,
}

impl<'a> MiningRow<'a> {
    /// Returns the row of a mining of `repo` that began at `started_at`.
    pub(crate) fn of(
        repo: &'a Repo,
        url: Option<&'a str>,
        started_at: Timestamp,
        report: MineReport,
    ) -> MiningRow<'a> {
        let head = match &repo.refs().head {
            Head::Symbolic(name) => Some(name.as_slice()),
            Head::Detached(_) => None,
        };
        MiningRow { url, object_format: repo.hash().name(), head, started_at, report }
    }
}

/// Makes batches of the rows of one thread.
pub struct TableSink<W> {
    writer: W,
    origin: String,
    decoder: CommitDecoder,
    minings: Buffered<MiningRows>,
    visits: Buffered<OriginVisitRows>,
    ref_changes: Buffered<RefChangeRows>,
    revisions: Buffered<RevisionRows>,
    parents: Buffered<RevisionHistoryRows>,
    headers: Buffered<RevisionExtraHeaderRows>,
    releases: Buffered<ReleaseRows>,
    changes: Buffered<FileChangeRows>,
    branches: Buffered<DefaultBranchRows>,
    errors: Buffered<MiningErrorRows>,
}

/// Mines `repo` into `sinks`, as [`mine`] does. The code of the miner is there once for all writers.
///
/// # Errors
/// See [`mine`].
pub(crate) fn mine_into<W: BatchWriter>(
    repo: &Repo,
    tips: Tips<'_>,
    options: &MineOptions,
    sinks: &[Mutex<TableSink<W>>],
    progress: &MineProgress,
    stop: &Stop,
) -> weir_mine::Result<MineReport> {
    let mut locked: Vec<_> =
        sinks.iter().map(|sink| sink.lock().unwrap_or_else(PoisonError::into_inner)).collect();
    let sinks: Vec<Mutex<&mut dyn RowSink>> =
        locked.iter_mut().map(|sink| Mutex::new(&mut **sink as &mut dyn RowSink)).collect();
    mine(repo, tips, options, &sinks, progress, stop)
}

fn put<T: TableRows, W: BatchWriter>(rows: &mut Buffered<T>, writer: &mut W, bytes: usize) -> io::Result<()> {
    rows.added(bytes).map_or(Ok(()), |batch| writer.write(T::TABLE, &batch))
}

impl<W: BatchWriter> TableSink<W> {
    /// Makes a sink that writes to `writer`.
    pub fn new(writer: W) -> TableSink<W> {
        TableSink {
            writer,
            origin: String::new(),
            decoder: CommitDecoder::default(),
            minings: Buffered::default(),
            visits: Buffered::default(),
            ref_changes: Buffered::default(),
            revisions: Buffered::default(),
            parents: Buffered::default(),
            headers: Buffered::default(),
            releases: Buffered::default(),
            changes: Buffered::default(),
            branches: Buffered::default(),
            errors: Buffered::default(),
        }
    }

    /// Sets the name of the repository that the next rows belong to.
    pub fn set_origin(&mut self, origin: &str) {
        origin.clone_into(&mut self.origin);
    }

    /// Takes a mining.
    ///
    /// # Errors
    /// If the rows cannot be written.
    pub fn mining(&mut self, row: &MiningRow<'_>) -> io::Result<()> {
        let rows = &mut self.minings.rows;
        rows.origin.0.append_value(&self.origin);
        rows.url.0.append_option(row.url);
        rows.object_format.0.append_value(row.object_format);
        rows.head.0.append_option(row.head.map(lossy));
        rows.started_at.push(Some(row.started_at.0));
        rows.revisions.push(Some(row.report.revisions));
        rows.releases.push(Some(row.report.releases));
        rows.file_changes.push(Some(row.report.changes));
        rows.errors.push(Some(row.report.faults));
        put(&mut self.minings, &mut self.writer, 0)
    }

    /// Hands all rows that are held to the writer.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        fn flush<T: TableRows, W: BatchWriter>(rows: &mut Buffered<T>, writer: &mut W) -> io::Result<()> {
            rows.take().map_or(Ok(()), |batch| writer.write(T::TABLE, &batch))
        }
        let writer = &mut self.writer;
        flush(&mut self.visits, writer)?;
        flush(&mut self.ref_changes, writer)?;
        flush(&mut self.revisions, writer)?;
        flush(&mut self.parents, writer)?;
        flush(&mut self.headers, writer)?;
        flush(&mut self.releases, writer)?;
        flush(&mut self.changes, writer)?;
        flush(&mut self.branches, writer)?;
        flush(&mut self.errors, writer)?;
        flush(&mut self.minings, writer)
    }

    /// Returns the writer.
    pub fn writer(&mut self) -> &mut W {
        &mut self.writer
    }

    /// Drops the rows that are held, and returns the writer.
    pub(crate) fn into_writer(self) -> W {
        self.writer
    }
}

/// Appends `bytes` as text, and `raw` where they differ. Returns the bytes that were appended.
fn push_text((text, raw): (&mut TextColumn, &mut BytesColumn), bytes: &[u8], as_they_are: &[u8]) -> usize {
    let decoded = lossy(bytes);
    text.0.append_value(&decoded);
    let differing = (decoded.as_bytes() != as_they_are).then_some(as_they_are);
    raw.0.append_option(differing);
    decoded.len() + differing.map_or(0, <[u8]>::len)
}

fn push_long_text(
    (text, raw): (&mut LongTextColumn, &mut BytesColumn),
    bytes: &[u8],
    as_they_are: &[u8],
) -> usize {
    let decoded = lossy(bytes);
    text.0.append_value(&decoded);
    let differing = (decoded.as_bytes() != as_they_are).then_some(as_they_are);
    raw.0.append_option(differing);
    decoded.len() + differing.map_or(0, <[u8]>::len)
}

/// Appends a person and a time. `raw` gets the whole line, as it is in `as_it_is`, if a part of it is not as
/// it was. Returns the bytes that were appended.
fn push_ident(
    (name, email): (&mut TextColumn, &mut TextColumn),
    (date, offset): (&mut TimeColumn, &mut MinutesColumn),
    raw: &mut BytesColumn,
    ident: &Ident<'_>,
    as_it_is: &Ident<'_>,
) -> usize {
    let (name_text, email_text) = (lossy(ident.name), lossy(ident.email));
    name.0.append_value(&name_text);
    email.0.append_value(&email_text);
    let differs = name_text.as_bytes() != as_it_is.name || email_text.as_bytes() != as_it_is.email;
    let is_date_whole = date.push(ident.seconds);
    let minutes = ident.offset_minutes();
    offset.0.append_option(minutes);
    // -0000 stands for an unknown zone, and is no other number of minutes than +0000.
    let is_whole = is_date_whole && ident.seconds.is_some() && minutes.is_some() && ident.offset != b"-0000";
    let line = (differs || !is_whole).then_some(as_it_is.line);
    raw.0.append_option(line);
    name_text.len() + email_text.len() + line.map_or(0, <[u8]>::len)
}

impl<W: BatchWriter> RowSink for TableSink<W> {
    fn visit(&mut self, row: &VisitRow) -> io::Result<()> {
        let rows = &mut self.visits.rows;
        rows.origin.0.append_value(&self.origin);
        rows.visit.push(Some(row.visit));
        rows.date.push(row.date.map(|date| date.0));
        rows.snapshot.push(row.snapshot);
        rows.is_partial.0.append_value(row.is_partial);
        put(&mut self.visits, &mut self.writer, 0)
    }

    fn ref_change(&mut self, row: &RefChangeRow<'_>) -> io::Result<()> {
        let rows = &mut self.ref_changes.rows;
        rows.origin.0.append_value(&self.origin);
        rows.visit.push(Some(row.visit));
        let bytes = push_text((&mut rows.name, &mut rows.name_raw), row.name, row.name);
        rows.old_target.push(row.old);
        rows.target.push(row.new);
        put(&mut self.ref_changes, &mut self.writer, bytes)
    }

    fn revision(&mut self, row: &RevisionRow<'_>) -> io::Result<()> {
        let raw = row.commit;
        let decoded = self.decoder.decode(raw.encoding, raw.data);
        let parsed = decoded.as_deref().map(|data| CommitParts::parse_text(&raw.links, data));
        let commit = parsed.as_ref().unwrap_or(raw);
        let rows = &mut self.revisions.rows;
        rows.origin.0.append_value(&self.origin);
        rows.id.push(Some(row.id));
        rows.directory.push(Some(raw.links.tree));
        rows.parent_count.0.append_value(raw.links.parents.len() as i32);
        let mut bytes = push_ident(
            (&mut rows.author_name, &mut rows.author_email),
            (&mut rows.author_date, &mut rows.author_date_offset),
            &mut rows.author_raw,
            &commit.author,
            &raw.author,
        );
        bytes += push_ident(
            (&mut rows.committer_name, &mut rows.committer_email),
            (&mut rows.committer_date, &mut rows.committer_date_offset),
            &mut rows.committer_raw,
            &commit.committer,
            &raw.committer,
        );
        // `git log` prints a message up to its first NUL.
        let message = commit.message.split(|&c| c == 0).next().unwrap_or_default();
        bytes += push_long_text((&mut rows.message, &mut rows.message_raw), message, raw.message);
        let encoding = (!raw.encoding.is_empty()).then(|| lossy(raw.encoding));
        bytes += encoding.as_ref().map_or(0, |encoding| encoding.len());
        rows.encoding.0.append_option(encoding);
        rows.signature.0.append_option(raw.signature.map(|kind| kind.name()));
        put(&mut self.revisions, &mut self.writer, bytes)?;
        for (rank, parent) in (0..).zip(&raw.links.parents) {
            let rows = &mut self.parents.rows;
            rows.origin.0.append_value(&self.origin);
            rows.id.push(Some(row.id));
            rows.parent_id.push(Some(*parent));
            rows.parent_rank.0.append_value(rank);
            put(&mut self.parents, &mut self.writer, 0)?;
        }
        let headers = raw.extra_headers();
        let texts = if decoded.is_some() { commit.extra_headers() } else { Vec::new() };
        for (rank, (key, value)) in headers.iter().enumerate() {
            let text = texts.get(rank).map_or(value, |(_, text)| text);
            let rows = &mut self.headers.rows;
            rows.origin.0.append_value(&self.origin);
            rows.id.push(Some(row.id));
            rows.rank.0.append_value(rank as i32);
            let key = lossy(key);
            rows.key.0.append_value(&key);
            let bytes = key.len() + push_long_text((&mut rows.value, &mut rows.value_raw), text, value);
            put(&mut self.headers, &mut self.writer, bytes)?;
        }
        Ok(())
    }

    fn release(&mut self, row: &ReleaseRow<'_>) -> io::Result<()> {
        let rows = &mut self.releases.rows;
        let tag = row.tag;
        rows.origin.0.append_value(&self.origin);
        rows.id.push(Some(row.id));
        let mut bytes = push_text((&mut rows.name, &mut rows.name_raw), tag.name, tag.name);
        rows.target.push(row.target.map(|(target, _)| target));
        rows.target_type.0.append_option(row.target.map(|(_, kind)| kind.name()));
        match &tag.tagger {
            Some(tagger) => {
                bytes += push_ident(
                    (&mut rows.author_name, &mut rows.author_email),
                    (&mut rows.date, &mut rows.date_offset),
                    &mut rows.author_raw,
                    tagger,
                    tagger,
                );
            }
            None => {
                rows.author_name.0.append_null();
                rows.author_email.0.append_null();
                rows.date.push(None);
                rows.date_offset.0.append_null();
                rows.author_raw.0.append_null();
            }
        }
        bytes += push_long_text((&mut rows.message, &mut rows.message_raw), tag.message, tag.message);
        put(&mut self.releases, &mut self.writer, bytes)
    }

    fn file_change(&mut self, row: &FileChangeRow<'_>) -> io::Result<()> {
        let rows = &mut self.changes.rows;
        rows.origin.0.append_value(&self.origin);
        rows.revision.push(Some(row.revision));
        rows.committer_date.push(row.committer_date);
        rows.parent_rank.0.append_value(row.parent_rank as i32);
        rows.is_merge.0.append_value(row.is_merge);
        rows.status.0.append_value(row.status.letter().encode_utf8(&mut [0; 4]));
        rows.similarity.0.append_option(row.similarity.map(i32::from));
        let path = row.new.or(row.old).map_or(&b""[..], |side| side.path);
        let mut bytes = push_text((&mut rows.path, &mut rows.path_raw), path, path);
        match row.old.map(|side| side.path).filter(|old| *old != path) {
            Some(old) => bytes += push_text((&mut rows.old_path, &mut rows.old_path_raw), old, old),
            None => {
                rows.old_path.0.append_null();
                rows.old_path_raw.0.append_null();
            }
        }
        let mode = |side: Option<Side<'_>>| side.map(|side| side.mode as i32);
        rows.blob.push(row.new.map(|side| side.id));
        rows.old_blob.push(row.old.map(|side| side.id));
        rows.mode.0.append_option(mode(row.new));
        rows.old_mode.0.append_option(mode(row.old));
        let counts = match row.lines {
            Some(Lines::Text { insertions, deletions }) => Some((insertions, deletions)),
            _ => None,
        };
        rows.insertions.push(counts.map(|(insertions, _)| insertions));
        rows.deletions.push(counts.map(|(_, deletions)| deletions));
        rows.is_binary.0.append_option(row.lines.and_then(|lines| match lines {
            Lines::Unavailable => None,
            lines => Some(lines == Lines::Binary),
        }));
        rows.is_unavailable.0.append_option(row.lines.map(|lines| lines == Lines::Unavailable));
        put(&mut self.changes, &mut self.writer, bytes)
    }

    fn branch_commit(&mut self, revision: Oid) -> io::Result<()> {
        let rows = &mut self.branches.rows;
        rows.origin.0.append_value(&self.origin);
        rows.revision.push(Some(revision));
        put(&mut self.branches, &mut self.writer, 0)
    }

    fn fault(&mut self, row: &FaultRow) -> io::Result<()> {
        let rows = &mut self.errors.rows;
        rows.origin.0.append_value(&self.origin);
        rows.object.push(Some(row.object));
        rows.revision.push(row.revision);
        rows.kind.0.append_value(row.kind.name());
        let text = lossy(row.text.as_bytes());
        rows.text.0.append_value(&text);
        put(&mut self.errors, &mut self.writer, text.len())
    }

    fn replace(&mut self, rows: ReplacedRows) -> io::Result<()> {
        self.writer.remove(&self.origin, rows)
    }
}
