//! Rows of GHTorrent's `projects`: id, url, owner_id, name, description, language, created_at, forked_from,
//! deleted, updated_at, and more in later dumps, less in earlier ones (sql/schema.sql of
//! gousiosg/github-mirror).

use std::cell::RefCell;

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use weir_listed::Listed;

use super::row::{DumpRow, DumpRowError, clone_url_of, full_name_of};

/// Fields that are read.
const FIELDS: usize = 9;

pub(super) fn row(line: &[u8]) -> Result<DumpRow, DumpRowError> {
    let fields = fields(line);
    let text = |n: usize| {
        fields.get(n).map(|f| String::from_utf8_lossy(f).into_owned()).filter(|f| f != "\\N" && !f.is_empty())
    };
    if line.is_empty() || text(0).as_deref() == Some("id") {
        return Ok(DumpRow::Nothing);
    }
    let url = text(1).ok_or("no url: is this the table 'projects'?")?;
    let full_name = full_name_of(&url).ok_or_else(|| format!("'{url}' is no repository's url"))?.to_owned();
    if text(8).as_deref() == Some("1") {
        return Ok(DumpRow::Nothing);
    }
    // "0000-00-00 00:00:00" is no date, and updated_at is the time at which GHTorrent looked.
    let created_at = text(6)
        .filter(|t| t.len() == 19 && !t.starts_with("0000"))
        .map(|t| format!("{}Z", t.replace(' ', "T")));
    Ok(DumpRow::Of(Box::new(Listed {
        clone_url: clone_url_of(&full_name),
        full_name,
        description: text(4),
        language: text(5),
        created_at,
        fork: (fields.len() > 7).then(|| text(7).is_some_and(|id| id != "-1")),
        ..Listed::default()
    })))
}

thread_local! {
    /// Escapes by backslash, as MySQL writes them. Making its tables takes longer than reading a record, and
    /// its clones have none.
    static READER: RefCell<Reader> =
        RefCell::new(ReaderBuilder::new().escape(Some(b'\\')).double_quote(false).build());
}

/// Returns the first fields of a record.
fn fields(record: &[u8]) -> Vec<Vec<u8>> {
    READER.with_borrow_mut(|reader| {
        reader.reset();
        fields_with(reader, record)
    })
}

fn fields_with(reader: &mut Reader, record: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = Vec::with_capacity(FIELDS);
    let mut field = vec![0; record.len() + 1];
    let (mut input, mut len) = (record, 0);
    while fields.len() < FIELDS {
        let (result, read, written) = reader.read_field(input, &mut field[len..]);
        input = &input[read..];
        len += written;
        match result {
            // Called again without input, the reader ends the field.
            ReadFieldResult::InputEmpty => {}
            ReadFieldResult::OutputFull | ReadFieldResult::End => break,
            ReadFieldResult::Field { record_end } => {
                fields.push(field[..len].to_vec());
                len = 0;
                if record_end {
                    break;
                }
            }
        }
    }
    fields
}
