//! Modes of tree entries.

/// A mode as git keeps it in memory: all that a tree can mean (`canon_mode` in git's cache.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Mode {
    /// There is no entry.
    #[default]
    Absent,
    /// A file.
    File,
    /// A file that can be executed.
    Executable,
    /// A symbolic link.
    Link,
    /// A folder.
    Tree,
    /// A commit of a submodule.
    Gitlink,
}

impl Mode {
    /// Returns what the mode `raw` of a tree entry means.
    pub fn of(raw: u32) -> Mode {
        match raw & 0o170_000 {
            0o100_000 if raw & 0o100 != 0 => Mode::Executable,
            0o100_000 => Mode::File,
            0o120_000 => Mode::Link,
            0o040_000 => Mode::Tree,
            _ => Mode::Gitlink,
        }
    }

    /// Returns the mode as git prints it, 0 if there is no entry.
    pub fn bits(self) -> u32 {
        match self {
            Mode::Absent => 0,
            Mode::File => 0o100_644,
            Mode::Executable => 0o100_755,
            Mode::Link => 0o120_000,
            Mode::Tree => 0o040_000,
            Mode::Gitlink => 0o160_000,
        }
    }

    /// Returns whether there is no entry.
    pub fn is_absent(self) -> bool {
        self == Mode::Absent
    }

    /// Returns whether the entry is a file, executable or not.
    pub fn is_file(self) -> bool {
        matches!(self, Mode::File | Mode::Executable)
    }

    /// Returns whether two entries are of the same type: executable or not makes no difference.
    pub fn is_same_type(self, other: Mode) -> bool {
        self == other || (self.is_file() && other.is_file())
    }
}
