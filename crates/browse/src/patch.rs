//! The difference of two trees as a patch, as `git diff --full-index -M` prints it in a bare repository.

use std::borrow::Cow;
use std::io::{self, Write};
use std::rc::Rc;

use weir_git::Oid;
use weir_mine::{
    DifferenceSide, Edit, EditFinder, FileDifference, FileLines, LineStarts, Mode, Status, is_binary,
};
use weir_repo::{ObjectReader, Repo};

use crate::blame::LINES_MAX;
use crate::error::{Error, Result};

/// Larger files are shown as if they were binary.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the line that a hunk is in, as far as it is shown (xemit.c).
const HEADING_BYTES_MAX: usize = 80;

/// Writes patches. Has buffers of its own.
pub struct PatchWriter<'r> {
    reader: ObjectReader<'r>,
    finder: EditFinder,
    edits: Vec<Edit>,
    context: u32,
}

/// A file in a patch; a side that is absent has no lines.
struct PatchSide {
    path: String,
    mode: Mode,
    oid: Oid,
    /// `None` for a file that is not shown.
    data: Option<Rc<Vec<u8>>>,
}

impl<'r> PatchWriter<'r> {
    /// Returns a writer that shows `context` lines around those that differ.
    pub fn new(repo: &'r Repo, context: u32) -> PatchWriter<'r> {
        PatchWriter { reader: repo.reader(), finder: EditFinder::default(), edits: Vec::new(), context }
    }

    /// Writes how a file differs.
    ///
    /// # Errors
    /// If an object is missing or corrupt, or `out` fails.
    pub fn write(&mut self, file: &FileDifference, out: &mut dyn Write) -> Result<()> {
        match (&file.old, &file.new) {
            // A file that becomes a link goes, and the link comes.
            (Some(old), Some(new)) if !old.mode.is_same_type(new.mode) => {
                self.write_sides(file, Some(old), None, out)?;
                self.write_sides(file, None, Some(new), out)
            }
            (old, new) => self.write_sides(file, old.as_ref(), new.as_ref(), out),
        }
    }

    fn write_sides(
        &mut self,
        file: &FileDifference,
        old: Option<&DifferenceSide>,
        new: Option<&DifferenceSide>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let Some(shown) = old.or(new) else { return Ok(()) };
        let (old, new) = (self.side(old, old.or(new), b"a/")?, self.side(new, new.or(old), b"b/")?);
        write_header(file, &old, &new, shown, out)?;
        let (Some(old_data), Some(new_data)) = (&old.data, &new.data) else {
            if old.oid != new.oid {
                writeln!(out, "Binary files {} and {} differ", old.label(), new.label())?;
            }
            return Ok(());
        };
        let (old_starts, new_starts) = (LineStarts::of(old_data), LineStarts::of(new_data));
        if old_starts.count().max(new_starts.count()) > LINES_MAX {
            let path = String::from_utf8_lossy(&shown.path);
            return Err(Error::TooLarge(format!("'{path}' has more than {LINES_MAX} lines")));
        }
        let lines = [FileLines::new(old_data, &old_starts), FileLines::new(new_data, &new_starts)];
        self.finder.find(lines[0], lines[1], self.context == 0, &mut self.edits);
        if !self.edits.is_empty() {
            for (sign, side) in [("---", &old), ("+++", &new)] {
                let label = side.label();
                // Programs find the end of a name with spaces by a tab.
                let end = if label.contains(' ') { "\t" } else { "" };
                writeln!(out, "{sign} {label}{end}")?;
            }
        }
        Ok(write_hunks(lines, &self.edits, self.context as usize, out)?)
    }

    /// Returns a side that is there or `absent`, with the name of `named`.
    fn side(
        &mut self,
        side: Option<&DifferenceSide>,
        named: Option<&DifferenceSide>,
        prefix: &[u8],
    ) -> Result<PatchSide> {
        let named = named.expect("one of both sides is there");
        let path = quoted(&[prefix, &named.path].concat()).into_owned();
        let Some(side) = side else {
            let oid = Oid::null(named.oid.kind());
            return Ok(PatchSide { path, mode: Mode::Absent, oid, data: Some(Rc::default()) });
        };
        let data = match side.mode {
            Mode::Gitlink => Some(Rc::new(format!("Subproject commit {}\n", side.oid).into_bytes())),
            _ => match self.reader.kind_and_size(&side.oid)? {
                Some((_, size)) if size > FILE_BYTES_MAX => None,
                Some(_) => Some(self.reader.require(&side.oid)?.data).filter(|data| !is_binary(data)),
                None => return Err(Error::Repo(weir_repo::Error::Missing(side.oid))),
            },
        };
        Ok(PatchSide { path, mode: side.mode, oid: side.oid, data })
    }
}

impl PatchSide {
    fn is_absent(&self) -> bool {
        self.mode.is_absent()
    }

    fn label(&self) -> &str {
        if self.is_absent() { "/dev/null" } else { &self.path }
    }
}

/// Writes the lines before the hunks (diff.c, `builtin_diff` and `fill_metainfo`).
fn write_header(
    file: &FileDifference,
    old: &PatchSide,
    new: &PatchSide,
    shown: &DifferenceSide,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "diff --git {} {}", old.path, new.path)?;
    let mode = |side: &PatchSide| format!("{:06o}", side.mode.bits());
    if old.is_absent() {
        writeln!(out, "new file mode {}", mode(new))?;
    } else if new.is_absent() {
        writeln!(out, "deleted file mode {}", mode(old))?;
    } else if old.mode != new.mode {
        writeln!(out, "old mode {}\nnew mode {}", mode(old), mode(new))?;
    }
    let verb = match file.status {
        Status::Renamed => "rename",
        Status::Copied => "copy",
        _ => "",
    };
    if let (false, Some(new_side)) = (verb.is_empty(), &file.new) {
        let (from, to) = (quoted(&shown.path), quoted(&new_side.path));
        writeln!(out, "similarity index {}%\n{verb} from {from}\n{verb} to {to}", file.similarity)?;
    }
    if old.oid != new.oid {
        let mode = if old.mode == new.mode { format!(" {}", mode(new)) } else { String::new() };
        writeln!(out, "index {}..{}{mode}", old.oid, new.oid)?;
    }
    Ok(())
}

/// Returns a path as git prints it: in quotes, if it has other characters than those of ASCII that are seen
/// (quote.c, `quote_c_style`).
fn quoted(path: &[u8]) -> Cow<'_, str> {
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !b"\"\\".contains(byte);
    if path.iter().all(is_plain) {
        return String::from_utf8_lossy(path);
    }
    let mut text = "\"".to_owned();
    for byte in path {
        match byte {
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            byte if is_plain(byte) => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    Cow::Owned(text)
}

/// Returns how much of a line is shown as that which a hunk is in; `None` if none is (`def_ff` in xemit.c).
fn heading(line: &[u8]) -> Option<&[u8]> {
    line.first().filter(|first| first.is_ascii_alphabetic() || b"_$".contains(first))?;
    let shown = &line[..line.len().min(HEADING_BYTES_MAX)];
    let len = shown.iter().rposition(|byte| !b" \t\n\r".contains(byte)).map_or(0, |last| last + 1);
    Some(&shown[..len])
}

/// Returns the start of a heading up to the first bytes that are no character (diff.c, `sane_truncate_line`):
/// one may have been cut in two.
fn in_characters(heading: &[u8]) -> &[u8] {
    let valid = match std::str::from_utf8(heading) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&heading[..e.valid_up_to()]).unwrap_or_default(),
    };
    // git takes these for no characters.
    &heading[..valid.find(['\u{fffe}', '\u{ffff}']).unwrap_or(valid.len())]
}

/// Writes the hunks (xemit.c, `xdl_emit_diff`).
fn write_hunks(
    [old, new]: [FileLines<'_>; 2],
    edits: &[Edit],
    context: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let near = |edits: &[Edit]| (edits[1].old.start - edits[0].old.end) as usize <= 2 * context;
    let mut rest = edits;
    let (mut hunk_heading, mut seen) = (&b""[..], 0);
    while !rest.is_empty() {
        let count = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let (hunk, behind) = rest.split_at(count);
        rest = behind;
        let (first, last) = (&hunk[0], &hunk[count - 1]);
        let before = context.min(first.old.start as usize).min(first.new.start as usize);
        let [old_start, new_start] = [&first.old, &first.new].map(|range| range.start as usize - before);
        let after = context.min(old.count() - last.old.end as usize).min(new.count() - last.new.end as usize);
        let [old_end, new_end] = [&last.old, &last.new].map(|range| range.end as usize + after);
        // The heading of the hunk before stays, if no line since is one.
        if let Some(found) = (seen..old_start).rev().find_map(|line| heading(old.line(line))) {
            hunk_heading = found;
        }
        seen = old_start;
        let range = |start: usize, end: usize| {
            let shown = if start == end { start } else { start + 1 };
            if end - start == 1 { shown.to_string() } else { format!("{shown},{}", end - start) }
        };
        write!(out, "@@ -{} +{} @@", range(old_start, old_end), range(new_start, new_end))?;
        if !hunk_heading.is_empty() {
            out.write_all(b" ")?;
            out.write_all(in_characters(hunk_heading))?;
        }
        out.write_all(b"\n")?;
        let mut at = new_start;
        for edit in hunk {
            let [old_lines, new_lines] =
                [&edit.old, &edit.new].map(|range| range.start as usize..range.end as usize);
            (at..new_lines.start).try_for_each(|line| write_line(b" ", new.line(line), out))?;
            old_lines.into_iter().try_for_each(|line| write_line(b"-", old.line(line), out))?;
            at = new_lines.end;
            new_lines.into_iter().try_for_each(|line| write_line(b"+", new.line(line), out))?;
        }
        (at..new_end).try_for_each(|line| write_line(b" ", new.line(line), out))?;
    }
    Ok(())
}

fn write_line(sign: &[u8], line: &[u8], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(sign)?;
    out.write_all(line)?;
    if line.last() != Some(&b'\n') {
        out.write_all(b"\n\\ No newline at end of file\n")?;
    }
    Ok(())
}
