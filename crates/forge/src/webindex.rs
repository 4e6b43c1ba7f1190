//! The indexes that cgit and gitweb show of their repositories. Neither has ids: a path identifies a
//! repository.

use html5gum::{Token, Tokenizer};

use crate::api::{Api, Usage};
use crate::api_answer::parameter;
use crate::whole::WholeListing;
use crate::{Error, Forge, Listed, Page, Result};

/// The program that shows the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebIndexKind {
    /// cgit (git.zx2c4.com/cgit, `ui-repolist.c`): a table, in pages.
    Cgit,
    /// gitweb (git's `gitweb.perl`, `git_project_index`): one line of text per repository.
    Gitweb,
}

/// An index.
pub struct WebIndex {
    api: Api,
    kind: WebIndexKind,
    url: String,
    site: String,
    whole: WholeListing,
}

impl WebIndex {
    /// Returns the index at `url`; the URL of a repository is its path below `site`.
    pub fn new(kind: WebIndexKind, url: &str, site: &str, api: Api) -> WebIndex {
        let cut = |url: &str| url.trim_end_matches('/').to_owned();
        WebIndex { api, kind, url: cut(url), site: cut(site), whole: WholeListing::default() }
    }

    fn listed(&self, path: &str, description: Option<String>, idle_since: Option<String>) -> Option<Listed> {
        let path = path.trim_matches('/');
        let full_name = path.strip_suffix(".git").unwrap_or(path);
        (!full_name.is_empty()).then(|| Listed {
            forge_id: path.to_owned(),
            full_name: full_name.to_owned(),
            clone_url: format!("{}/{path}", self.site),
            description,
            pushed_at: idle_since,
            ..Listed::default()
        })
    }

    fn address(&self, offset: u64) -> String {
        match self.kind {
            WebIndexKind::Cgit if offset == 0 => format!("{}/", self.url),
            WebIndexKind::Cgit => format!("{}/?ofs={offset}", self.url),
            WebIndexKind::Gitweb => format!("{}/?a=project_index", self.url),
        }
    }

    /// Reads a page `body` of an index, which begins at `position`.
    ///
    /// # Errors
    /// If it is not an index, but an error page, or something else.
    pub fn read(&self, position: &str, body: &[u8]) -> Result<Page> {
        let offset = position.parse().unwrap_or(0);
        let page = match self.kind {
            WebIndexKind::Cgit => self.cgit(offset, body),
            WebIndexKind::Gitweb => self.gitweb(body),
        };
        page.ok_or_else(|| Error::Unexpected {
            url: self.address(offset),
            detail: format!("no index of {}", format!("{:?}", self.kind).to_lowercase()),
        })
    }

    fn cgit(&self, offset: u64, html: &[u8]) -> Option<Page> {
        let index = read_cgit(html);
        // Links begin with the path of the index.
        let root = self
            .url
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|n| rest[n..].to_owned()))
            .unwrap_or_default();
        let row = |row: CgitRow| {
            let path = row.href.strip_prefix(&root).unwrap_or(&row.href);
            self.listed(&decoded(path), row.description, row.idle_since)
        };
        let repositories: Vec<Listed> = index.rows.into_iter().filter_map(row).collect();
        let next = index.offsets.into_iter().filter(|&n| n > offset && !repositories.is_empty()).min();
        index.is_index.then(|| Page { next: next.map(|n| n.to_string()), repositories, ..Page::default() })
    }

    fn gitweb(&self, body: &[u8]) -> Option<Page> {
        let text = String::from_utf8_lossy(body);
        let is_index = !text.trim_start().starts_with('<') && !text.trim().is_empty();
        let path = |line: &str| line.split(' ').next().map(|path| decoded(&path.replace('+', " ")));
        let repositories =
            text.lines().filter_map(path).filter_map(|path| self.listed(&path, None, None)).collect();
        is_index.then_some(Page { repositories, next: None, ..Page::default() })
    }
}

fn decoded(path: &str) -> String {
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

impl Forge for WebIndex {
    fn start(&self) -> &'static str {
        "0"
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        let body = self.api.bytes(&self.address(position.parse().unwrap_or(0)))?;
        self.read(position, &body)
    }

    fn is_one_list(&self) -> bool {
        true
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        if !self.whole.is_read() {
            let list = WholeListing::read(self)?;
            self.whole.set(list);
        }
        Ok(self.whole.get(forge_id))
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}

/// A row of cgit's index.
#[derive(Debug, Default, PartialEq, Eq)]
struct CgitRow {
    href: String,
    description: Option<String>,
    idle_since: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct CgitIndex {
    rows: Vec<CgitRow>,
    /// Where further pages begin.
    offsets: Vec<u64>,
    /// Whether the table is there, and whole.
    is_index: bool,
}

fn read_cgit(html: &[u8]) -> CgitIndex {
    let mut index = CgitIndex::default();
    // Cells of the row so far; 0 outside of rows about a repository.
    let mut cell = 0;
    let mut text = String::new();
    let mut is_inside = false;
    for token in Tokenizer::new(html).flatten() {
        match token {
            Token::StartTag(tag) => {
                let attribute = |name: &[u8]| {
                    tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
                };
                let class = attribute(b"class").unwrap_or_default();
                match &**tag.name {
                    b"table" if class.contains("list") => is_inside = true,
                    b"td" if class == "toplevel-repo" || class == "sublevel-repo" => cell = 1,
                    b"td" if cell > 0 => {
                        cell += 1;
                        text.clear();
                    }
                    b"a" => {
                        let href = attribute(b"href").unwrap_or_default();
                        index.offsets.extend(parameter(&href, "ofs").and_then(|n| n.parse::<u64>().ok()));
                        if cell == 1 && !href.is_empty() {
                            index.rows.push(CgitRow { href, ..CgitRow::default() });
                        }
                    }
                    b"span" if cell > 2 && class.starts_with("age-") => {
                        if let Some(row) = index.rows.last_mut() {
                            row.idle_since = attribute(b"title");
                        }
                    }
                    _ => {}
                }
            }
            Token::String(string) if cell == 2 => text.push_str(&String::from_utf8_lossy(&string)),
            Token::EndTag(tag) if &**tag.name == b"td" && cell == 2 => {
                let description = text.split_whitespace().collect::<Vec<_>>().join(" ");
                if let Some(row) = index
                    .rows
                    .last_mut()
                    .filter(|_| !description.is_empty() && !description.starts_with("Unnamed repository;"))
                {
                    row.description = Some(description);
                }
            }
            Token::EndTag(tag) if &**tag.name == b"tr" => cell = 0,
            // An index that was cut off is not one: repositories that are missing from it are not gone.
            Token::EndTag(tag) if &**tag.name == b"table" && is_inside => index.is_index = true,
            _ => {}
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_cgit() {
        let html = b"<html><table summary='repository list' class='list nowrap'><tr class='nohover'><th \
            class='left'>Name</th></tr>
            <tr><td colspan='5' class='reposection'>tools</td></tr>
            <tr><td class='sublevel-repo'><a title='a.git' href='/cgit/t/a.git/'>a.git</a></td>\
            <td><a href='/cgit/t/a.git/'>A &amp; B
            </a></td><td><span class='age-weeks' title='2019-08-04 05:29:42 +0000'>4 weeks</span></td></tr>
            <tr><td class='toplevel-repo'><a title='b' href='/cgit/b/'>b</a></td>\
            <td><a href='/cgit/b/'>Unnamed repository; edit this</a>
            </td></tr></table><div class='pager'><a href='/cgit/?ofs=0'>[prev]</a> \
            <a href='/cgit/?ofs=50'>[next]</a></div>";
        let index = read_cgit(html);
        assert!(index.is_index && index.offsets == [0, 50]);
        assert_eq!(index.rows.len(), 2);
        assert_eq!(
            (index.rows[0].href.as_str(), index.rows[0].description.as_deref()),
            ("/cgit/t/a.git/", Some("A & B"))
        );
        assert_eq!(
            (index.rows[0].idle_since.as_deref(), &index.rows[1].description),
            (Some("2019-08-04 05:29:42 +0000"), &None)
        );
        for junk in [
            &b""[..],
            b"<a href='?ofs=5'",
            b"<td class='toplevel-repo'><a href='/x/'>x</a></td></tr>",
            b"\xff\xfe<<<>>",
        ] {
            assert!(!read_cgit(junk).is_index);
        }
    }
}
