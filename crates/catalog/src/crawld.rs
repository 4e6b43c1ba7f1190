//! What a crawld has collected, read from its database.

use std::io::{Error as IoError, PipeReader, Read, Result as IoResult};
use std::thread::JoinHandle;

use crate::database::connect_to;
use crate::{Error, Result};
use weir_ground::thread::spawn;

/// Its repositories of GitHub in the order they were found, each as GitHub's API has it, a line of JSON
/// (db/create_schema.sql of crawld). JSON has no control characters: what quotes and delimits in CSV is not
/// in it.
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

/// Lines that come from another thread; how that ended is told at their end.
struct CrawldLines {
    pipe: PipeReader,
    from: Option<JoinHandle<Result<()>>>,
}

impl Read for CrawldLines {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        let n = self.pipe.read(buffer)?;
        if n == 0
            && !buffer.is_empty()
            && let Some(from) = self.from.take()
        {
            from.join()
                .unwrap_or_else(|_| Err(Error::Copy(IoError::other("it ended early"))))
                .map_err(IoError::other)?;
        }
        Ok(n)
    }
}

/// The repositories in the database of a crawld at `url` (`postgres://user@host/database`), one a line of
/// JSON as GitHub's API has them. They are read as they are taken.
///
/// # Errors
/// If it cannot be connected to. What happens later is an error of the reader.
pub fn repositories_of_crawld(url: &str) -> Result<Box<dyn Read>> {
    let mut client = connect_to(url)?;
    client.batch_execute("SET timezone = 'UTC'")?;
    let (pipe, mut lines) = std::io::pipe().map_err(Error::Copy)?;
    let from = spawn("crawld", move || {
        let mut rows = client.copy_out(REPOSITORIES)?;
        match std::io::copy(&mut rows, &mut lines) {
            Ok(_) => Ok(()),
            // Nobody wants the rest.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(e) => Err(Error::Copy(e)),
        }
    })
    .map_err(Error::Copy)?;
    Ok(Box::new(CrawldLines { pipe, from: Some(from) }))
}
