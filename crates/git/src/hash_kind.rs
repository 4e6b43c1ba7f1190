//! The hash by which a repository names its objects.

/// The hash by which a repository names its objects (`extensions.objectFormat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashKind {
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-256, 32 bytes.
    Sha256,
}

impl HashKind {
    /// Bytes of a raw id.
    pub const fn len(self) -> usize {
        match self {
            HashKind::Sha1 => 20,
            HashKind::Sha256 => 32,
        }
    }

    /// Never true: an id always has bytes. Present because `len` is.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// Characters of an id in hexadecimal.
    pub const fn hex_len(self) -> usize {
        self.len() * 2
    }

    /// The name used in configuration and protocol: `sha1` or `sha256`.
    pub const fn name(self) -> &'static str {
        match self {
            HashKind::Sha1 => "sha1",
            HashKind::Sha256 => "sha256",
        }
    }

    /// The number git's commit-graph, multi-pack-index and rev files use: 1 or 2 (gitformat-commit-graph).
    pub const fn format_id(self) -> u8 {
        match self {
            HashKind::Sha1 => 1,
            HashKind::Sha256 => 2,
        }
    }

    /// Returns the hash called `name`.
    pub fn from_name(name: &[u8]) -> Option<HashKind> {
        match name {
            b"sha1" => Some(HashKind::Sha1),
            b"sha256" => Some(HashKind::Sha256),
            _ => None,
        }
    }
}
