//! The formats of archives.

use std::io::Write;

use flate2::{Compression, GzBuilder};
use weir_repo::Repo;

use crate::archive::{TreeArchive, write_tar, write_zip};
use crate::error::Result;

/// How hard archives are compressed by default, as git and `gzip` do.
const LEVEL: u32 = 6;

/// A format of archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// A tar, compressed with gzip.
    TarGz,
    /// A tar.
    Tar,
    /// A zip file.
    Zip,
}

impl ArchiveFormat {
    /// All formats.
    pub const ALL: [ArchiveFormat; 3] = [ArchiveFormat::TarGz, ArchiveFormat::Tar, ArchiveFormat::Zip];

    /// Returns the ending of its files.
    pub fn name(self) -> &'static str {
        match self {
            ArchiveFormat::TarGz => "tar.gz",
            ArchiveFormat::Tar => "tar",
            ArchiveFormat::Zip => "zip",
        }
    }

    /// Writes `archive`, as `git archive` does.
    ///
    /// # Errors
    /// If an object is missing or corrupt, or `out` fails.
    pub fn write(self, repo: &Repo, archive: &TreeArchive, out: &mut dyn Write) -> Result<()> {
        let level = archive.level.unwrap_or(LEVEL);
        match self {
            ArchiveFormat::Tar => write_tar(repo, archive, out),
            ArchiveFormat::Zip => write_zip(repo, archive, level, out),
            ArchiveFormat::TarGz => {
                let mut gzip = GzBuilder::new().write(out, Compression::new(level));
                write_tar(repo, archive, &mut gzip)?;
                gzip.finish()?;
                Ok(())
            }
        }
    }
}
