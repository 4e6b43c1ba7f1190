//! The part of an archive behind its last valid commit (section 5).

/// The part of an archive behind the last valid commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Where it starts, in bytes from the start of the archive.
    pub offset: u64,
    /// Its length in bytes; 0 if what was there is gone.
    pub len: u64,
    /// The number of the last valid commit.
    pub seq: u64,
    /// The highest number that a commit was given, as far as is known.
    pub seq_max: u64,
    /// Why these bytes are not part of a valid commit.
    pub kind: TailKind,
}

/// The kind of a [`Tail`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailKind {
    /// A group that was never finished: normal after a kill, or while another process writes.
    Unfinished,
    /// An invalid record: of a group that was never finished, or of a commit that is damaged now.
    Doubtful,
    /// Commits that the end mark or the catalog records, and that are damaged now.
    Committed,
}

/// Describes `tail` for a person.
pub(crate) fn tail_is(tail: &Tail) -> String {
    let Tail { offset, len, seq, seq_max, kind } = tail;
    match kind {
        TailKind::Unfinished => {
            format!("commit {seq} ends at byte {offset}; the {len} bytes after it were never committed")
        }
        TailKind::Doubtful => {
            format!(
                "the {len} bytes after commit {seq}, from byte {offset} on, may be a damaged or unfinished \
                commit"
            )
        }
        TailKind::Committed if seq_max - seq > 1 => {
            format!(
                "damaged after byte {offset}: commits {} to {seq_max} are corrupt; {len} bytes are left",
                seq + 1
            )
        }
        TailKind::Committed => {
            format!("damaged after byte {offset}: commit {seq_max} is corrupt; {len} bytes are left")
        }
    }
}
