//! The repositories that a crawld has collected, read from its database.

use std::io::{Error as IoError, PipeReader, Read, Result as IoResult};
use std::thread::JoinHandle;

use crate::Result;
use weir_ground::thread::spawn;
use weir_sql::connect_postgres;

/// Selects the repositories of GitHub in the order in which they were found, each as a line of JSON in the
/// format of GitHub's API (db/create_schema.sql of crawld). JSON has no control characters, so the quote and
/// the delimiter of CSV do not occur in it.
const REPOSITORIES: &str = r#"COPY (
    SELECT json_strip_nulls(json_build_object('id', g.github_id, 'full_name', g.full_name, 'clone_url',
    r.clone_url, 'html_url', g.html_url,
        'description', g.description, 'homepage', g.homepage, 'language', r.primary_language, 'fork', g.fork,
        'default_branch', g.default_branch, 'size', g.size_in_kb, 'stargazers_count', g.stargazers_count,
        'forks_count', g.forks_count,
        'open_issues_count', g.open_issues_count, 'created_at', to_char(g.created_at,
        'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        'updated_at', to_char(g.updated_at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'pushed_at', to_char(g.pushed_at,
        'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
    FROM gh_repositories g JOIN repositories r ON r.id = g.repository_id ORDER BY r.id, g.id
    ) TO STDOUT (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')"#;

/// Lines from another thread. An error of the thread is returned at their end.
struct CrawldLines {
    pipe: PipeReader,
    from: Option<JoinHandle<weir_sql::Result<()>>>,
}

impl Read for CrawldLines {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        let n = self.pipe.read(buffer)?;
        if n == 0
            && !buffer.is_empty()
            && let Some(from) = self.from.take()
        {
            from.join()
                .unwrap_or_else(|_| Err(weir_sql::Error::Copy(IoError::other("it ended early"))))
                .map_err(IoError::other)?;
        }
        Ok(n)
    }
}

/// Reads the repositories in the database of a crawld at `url` (`postgres://user@host/database`), one a line,
/// as JSON in the format of GitHub's API. They are read as the caller takes them.
///
/// # Errors
/// If it cannot be connected to. Later failures are errors of the reader.
pub fn repositories_of_crawld(url: &str) -> Result<Box<dyn Read>> {
    let mut client = connect_postgres(url)?;
    client.batch_execute("SET timezone = 'UTC'").map_err(weir_sql::Error::from)?;
    let (pipe, mut lines) = std::io::pipe().map_err(weir_sql::Error::Copy)?;
    let from = spawn("crawld", move || {
        let mut rows = client.copy_out(REPOSITORIES)?;
        match std::io::copy(&mut rows, &mut lines) {
            Ok(_) => Ok(()),
            // The reader does not want the rest.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(e) => Err(weir_sql::Error::Copy(e)),
        }
    })
    .map_err(weir_sql::Error::Copy)?;
    Ok(Box::new(CrawldLines { pipe, from: Some(from) }))
}
