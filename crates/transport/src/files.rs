//! Reads files below a repository's URL over HTTP, from any byte on (RFC 9110, "Range Requests").

use std::io::Read;
use std::ops::Range;

use ureq::http::{StatusCode, header};

use crate::dumb;
use crate::error::{Error, Result};
use crate::http::Http;
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::url::{Scheme, Url};

/// The files of one repository. A copy shares the connections.
#[derive(Clone)]
pub struct HttpFiles {
    http: Http,
}

/// A file, or the rest of it.
pub struct HttpFile {
    /// Its bytes.
    pub reader: Box<dyn Read + Send>,
    /// The offset of the first byte: 0 if the server does not support ranges.
    pub from: u64,
    /// Its media type.
    pub content_type: String,
}

impl HttpFiles {
    pub(crate) fn of(http: Http) -> HttpFiles {
        HttpFiles { http }
    }

    /// Returns the whole file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// If the network or the server fails.
    pub fn get_whole(&mut self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        self.http.file(path)
    }

    /// Returns the files of the repository whose object folder `line` names in this one's `info/alternates`
    /// or `info/http-alternates` (gitrepository-layout): as a URL, as a path of the server, or relative to
    /// this repository's object folder.
    ///
    /// # Errors
    /// If that is not a URL, or is on another host.
    pub fn alternate(&self, line: &str) -> Result<HttpFiles> {
        let url = dumb::alternate_of(&self.http.base, line)?;
        Ok(HttpFiles { http: self.http.neighbour(&url)? })
    }

    /// Returns the files below `url`; `None` if that is not an HTTP URL.
    ///
    /// # Errors
    /// If the client cannot be made.
    pub fn new(url: &Url, options: &TransportOptions) -> Result<Option<HttpFiles>> {
        Ok(if matches!(url.scheme, Scheme::Http { .. }) {
            Some(HttpFiles { http: Http::new(url, url, options)? })
        } else {
            None
        })
    }

    /// Returns the file at `path`, from byte `from` on; `None` if there is none.
    ///
    /// # Errors
    /// If the network fails or the server refuses.
    pub fn get(&mut self, path: &str, from: u64) -> Result<Option<HttpFile>> {
        let range = (from > 0).then(|| format!("bytes={from}-"));
        self.get_part(path, from, range)
    }

    /// Returns the bytes `range` of the file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// If the network fails, or the server refuses or does not support ranges.
    pub fn get_range(&mut self, path: &str, range: Range<u64>) -> Result<Option<Box<dyn Read + Send>>> {
        let (from, last) = (range.start, range.end.saturating_sub(1));
        let Some(file) = self.get_part(path, from, Some(format!("bytes={from}-{last}")))? else {
            return Ok(None);
        };
        if file.from != from {
            return Err(Error::Protocol(format!("asked for bytes {from} to {last}, the server sends all")));
        }
        Ok(Some(Box::new(file.reader.take(range.end - from))))
    }

    /// Returns the file at `path` from byte `from` on, as the header `range` asks.
    fn get_part(&mut self, path: &str, from: u64, range: Option<String>) -> Result<Option<HttpFile>> {
        let headers: Vec<(header::HeaderName, String)> =
            range.into_iter().map(|range| (header::RANGE, range)).collect();
        let mut response = self.http.get_with(path, &headers)?;
        let from = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => {
                let said = response
                    .headers()
                    .get(header::CONTENT_RANGE)
                    .and_then(|v| v.to_str().ok())
                    .unwrap_or_default();
                let start =
                    said.strip_prefix("bytes ").and_then(|r| r.split('-').next()?.parse::<u64>().ok());
                if start != Some(from) {
                    return Err(Error::Protocol(format!(
                        "asked for bytes from {from} on, the server sends '{said}'"
                    )));
                }
                from
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN => {
                return Ok(None);
            }
            _ => {
                crate::http::check_status(&mut response)?;
                0
            }
        };
        let content_type = crate::http::content_type(&response);
        Ok(Some(HttpFile {
            reader: self.http.body(response, &Pace::new(&self.http.options)),
            from,
            content_type,
        }))
    }
}
