//! Object filters of partial clones (git-rev-list, `--filter`; gitprotocol-v2, `filter`).
//!
//! A filter is stored as what it lets through. Combined filters are merged into one.

use weir_git::Kind;

use crate::select::sparse::Patterns;

/// The most parts of a combination, nested parts included.
const PARTS_MAX: usize = 32;
/// The most specifications of paths among the parts.
const SPARSE_MAX: usize = 2;

/// Why a filter is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text is not a valid filter.
    #[error("invalid filter-spec '{0}'")]
    Invalid(String),
    /// The filter is valid but not served.
    #[error("filter '{0}' not supported")]
    Unsupported(String),
}

/// The sorts of filters, by their names in git's configuration (`uploadpackfilter.<filter>.allow`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterSort {
    /// `blob:none`.
    BlobNone,
    /// `blob:limit`.
    BlobLimit,
    /// `tree`, with its depth.
    Tree(u64),
    /// `object:type`.
    ObjectType,
    /// `sparse:oid`.
    SparseOid,
    /// `combine`.
    Combine,
}

impl FilterSort {
    /// Returns the name of the sort in git's configuration.
    pub fn name(self) -> &'static str {
        match self {
            FilterSort::BlobNone => "blob:none",
            FilterSort::BlobLimit => "blob:limit",
            FilterSort::Tree(_) => "tree",
            FilterSort::ObjectType => "object:type",
            FilterSort::SparseOid => "sparse:oid",
            FilterSort::Combine => "combine",
        }
    }
}

/// What a partial clone takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Blobs of this many bytes and more are left out; 0 leaves out all.
    pub(crate) blob_bytes_below: Option<u64>,
    /// Trees and blobs this many levels below a commit's tree, and deeper, are left out; 0 leaves out that
    /// tree itself.
    pub(crate) depth_below: Option<u64>,
    /// The kinds of objects that are taken.
    pub(crate) kinds: [bool; 4],
    /// The names of specifications of paths.
    pub(crate) sparse_names: Vec<String>,
    /// The specifications, once they were read. A blob is taken if all of them take its path.
    pub(crate) sparse: Vec<Patterns>,
    sorts: Vec<FilterSort>,
}

impl Filter {
    /// Parses a filter as clients send it.
    ///
    /// # Errors
    /// If the filter is malformed, or is not served.
    pub fn parse(spec: &str) -> std::result::Result<Filter, FilterError> {
        let mut filter = Filter {
            blob_bytes_below: None,
            depth_below: None,
            kinds: [true; 4],
            sparse_names: Vec::new(),
            sparse: Vec::new(),
            sorts: Vec::new(),
        };
        filter.add(spec)?;
        Ok(filter)
    }

    /// Returns the sorts of filters that it is made of.
    pub fn sorts(&self) -> &[FilterSort] {
        &self.sorts
    }

    pub(crate) fn takes(&self, kind: Kind) -> bool {
        self.kinds[place(kind)]
    }

    /// Returns whether no tree and no blob is taken, so that trees need not be read.
    pub(crate) fn is_commits_only(&self) -> bool {
        self.depth_below == Some(0)
            || !(self.takes(Kind::Tree) || (self.takes(Kind::Blob) && self.blob_bytes_below != Some(0)))
    }

    /// Returns whether the filter decides by an object's path.
    pub(crate) fn has_paths(&self) -> bool {
        !self.sparse.is_empty()
    }

    /// Returns whether the filter decides by an object's depth.
    pub(crate) fn has_depth(&self) -> bool {
        self.depth_below.is_some_and(|d| d > 0)
    }

    fn add(&mut self, spec: &str) -> std::result::Result<(), FilterError> {
        let invalid = || FilterError::Invalid(spec.chars().take(100).collect());
        if self.sorts.len() >= PARTS_MAX {
            return Err(FilterError::Unsupported("combine".to_owned()));
        }
        if spec == "blob:none" {
            self.sorts.push(FilterSort::BlobNone);
            self.limit_blobs(0);
        } else if let Some(limit) = spec.strip_prefix("blob:limit=") {
            self.sorts.push(FilterSort::BlobLimit);
            self.limit_blobs(parse_size(limit).ok_or_else(invalid)?);
        } else if let Some(depth) = spec.strip_prefix("tree:") {
            let depth: u64 = parse_size(depth).ok_or_else(invalid)?;
            self.sorts.push(FilterSort::Tree(depth));
            self.depth_below = Some(self.depth_below.map_or(depth, |d| d.min(depth)));
        } else if let Some(name) = spec.strip_prefix("object:type=") {
            let kind = Kind::from_name(name.as_bytes()).ok_or_else(invalid)?;
            self.sorts.push(FilterSort::ObjectType);
            for (n, taken) in self.kinds.iter_mut().enumerate() {
                *taken &= n == place(kind);
            }
        } else if let Some(parts) = spec.strip_prefix("combine:") {
            self.sorts.push(FilterSort::Combine);
            for part in parts.split('+') {
                if part.is_empty() {
                    return Err(invalid());
                }
                self.add(&percent_decode(part).ok_or_else(invalid)?)?;
            }
        } else if let Some(name) = spec.strip_prefix("sparse:oid=") {
            if self.sparse_names.len() == SPARSE_MAX {
                return Err(FilterError::Unsupported("sparse:oid".to_owned()));
            }
            self.sorts.push(FilterSort::SparseOid);
            self.sparse_names.push(name.to_owned());
        } else {
            return Err(invalid());
        }
        Ok(())
    }

    fn limit_blobs(&mut self, bytes: u64) {
        self.blob_bytes_below = Some(self.blob_bytes_below.map_or(bytes, |b| b.min(bytes)));
    }
}

fn place(kind: Kind) -> usize {
    match kind {
        Kind::Commit => 0,
        Kind::Tree => 1,
        Kind::Blob => 2,
        Kind::Tag => 3,
    }
}

/// Parses a number with git's suffixes k, m and g.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&c, after)) = rest.split_first() {
        rest = after;
        if c == b'%' {
            let digit = |c: u8| (c as char).to_digit(16);
            let [high, low, ..] = *rest else { return None };
            out.push((digit(high)? << 4 | digit(low)?) as u8);
            rest = &rest[2..];
        } else {
            out.push(c);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_meet() {
        let f = |spec| Filter::parse(spec).unwrap();
        assert_eq!(f("blob:none").blob_bytes_below, Some(0));
        assert_eq!(f("blob:limit=1k").blob_bytes_below, Some(1024));
        assert_eq!(f("tree:3").depth_below, Some(3));
        let both = f("combine:tree:3+blob:limit=2m+combine%3atree:2%2bblob:limit=5");
        assert_eq!((both.depth_below, both.blob_bytes_below), (Some(2), Some(5)));
        assert!(
            f("tree:0").is_commits_only()
                && f("object:type=commit").is_commits_only()
                && !f("object:type=blob").is_commits_only()
        );
        assert_eq!(f("combine:sparse:oid=main:x+sparse:oid=%62").sparse_names, ["main:x", "b"]);
        assert!(Filter::parse("combine:sparse:oid=a+sparse:oid=b+sparse:oid=c").is_err());
        let none = f("combine:object:type=blob+object:type=tree");
        assert!([Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag].iter().all(|k| !none.takes(*k)));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "blob",
            "blob:limit=",
            "blob:limit=k",
            "blob:limit=-1",
            "tree:x",
            "tree:99999999999999999999",
            "object:type=x",
            "combine:",
            "combine:tree:1+",
            "combine:%zz",
            "sparse:path=x",
        ] {
            assert!(matches!(Filter::parse(bad), Err(FilterError::Invalid(_))), "{bad}");
        }
        let mut nested = "tree:1".to_owned();
        for _ in 0..40 {
            nested = format!("combine:{}", nested.replace('%', "%25"));
        }
        assert!(Filter::parse(&nested).is_err());
    }
}
