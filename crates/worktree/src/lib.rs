//! Working trees of git: the index (gitformat-index), read and written, and files of trees in folders.
//!
//! ```
//! use weir_worktree::{LineEnds, is_path_part, with_line_ends};
//!
//! // Names that git would not write, on any system.
//! assert!(is_path_part(b"notes") && !is_path_part(b".git") && !is_path_part(b".."));
//! assert_eq!(with_line_ends(b"a\nb\n", LineEnds::Stored), None);
//! ```

mod attributes;
mod cached_trees;
mod check_out;
mod error;
mod ewah;
mod index_file;
mod index_output;
mod memory;
mod names;
mod text;
mod tree_file;
mod untracked;
mod varint;

pub use attributes::{PathAttributes, TreeAttributes};
pub use cached_trees::{IndexChanges, cached_tree};
pub use check_out::{CheckOut, CheckedOut, asks_to_convert, asks_to_filter, stat_of};
pub use error::{Error, Result};
#[doc(hidden)]
pub use index_file::rewrite_index;
pub use index_file::{
    CacheEntry, EntryStat, IndexExtensions, IndexReader, IndexWriter, MODE, MODIFIED, PathForm, SIZE,
    index_moved_to, is_whole_index,
};
pub use index_output::{Buffers, IndexOutput, write_index};
pub use memory::populate;
pub use names::{DEPTH_MAX, is_like_dot_git, is_name, is_path_part};
pub use text::{LineEnds, with_ident, with_line_ends};
pub use tree_file::{LINK, SUBMODULE, TreeFile, index_mode};
pub use untracked::{FolderStat, UntrackedFolders};
