//! Positions in crawls. A catalog keeps them as text; only this file knows how they are written.

/// The place of a whole crawl: a page of the forge's, or behind the last one.
///
/// Written as the forge writes its positions, or `unseen:ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CrawlPosition {
    /// A page of the forge's.
    Page(String),
    /// All pages are taken: repositories above this number of the catalog's, which no page named, are asked
    /// for one by one.
    Unseen(i64),
}

const UNSEEN: &str = "unseen:";

impl CrawlPosition {
    /// Reads `text`, which [`CrawlPosition::text`] wrote.
    pub(crate) fn parse(text: &str) -> CrawlPosition {
        match text.strip_prefix(UNSEEN).and_then(|number| number.parse().ok()) {
            Some(after) => CrawlPosition::Unseen(after),
            None => CrawlPosition::Page(text.to_owned()),
        }
    }

    /// Returns the position as the catalog keeps it.
    pub(crate) fn text(&self) -> String {
        match self {
            CrawlPosition::Page(position) => position.clone(),
            CrawlPosition::Unseen(after) => format!("{UNSEEN}{after}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        for (text, position) in [
            ("unseen:5", CrawlPosition::Unseen(5)),
            ("0:1", CrawlPosition::Page("0:1".to_owned())),
            ("unseen:x", CrawlPosition::Page("unseen:x".to_owned())),
        ] {
            assert_eq!((CrawlPosition::parse(text), position.text()), (position, text.to_owned()));
        }
    }
}
