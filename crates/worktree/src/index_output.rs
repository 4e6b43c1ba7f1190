//! Writes an index to a file.

use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use weir_git::{HashKind, PlainHasher, plain_sha};
use weir_ground::thread::{spawn, spawn_scoped};

use crate::index_file::checksum;

/// The fewest bytes in a message to the thread, but for the last one; and how many messages may wait.
const PUSHED_BYTES_MIN: usize = 256 << 10;
const WAITING_MAX: usize = 16;

/// Writes the index `content`, and its checksum behind it, to the file at `path`.
pub fn write_index(hash: HashKind, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    let sum = || checksum(hash, content);
    // A large index takes as long to hash as to write.
    thread::scope(|scope| {
        let hashing = spawn_scoped("sum", scope, sum);
        file.write_all(content)?;
        let sum = match hashing {
            Ok(hashing) => hashing.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => sum(),
        };
        file.write_all(sum.as_bytes())
    })
}

/// A file of an index that is still being made. A thread hashes and writes the bytes that are there already.
pub struct IndexOutput {
    /// How many bytes were sent to the thread.
    pushed: usize,
    pieces: SyncSender<Vec<u8>>,
    thread: JoinHandle<io::Result<(File, PlainHasher)>>,
}

impl IndexOutput {
    /// Creates the file at `path`.
    ///
    /// # Errors
    /// If it cannot be created, or no thread started.
    pub fn create(hash: HashKind, path: &Path) -> io::Result<IndexOutput> {
        let file = File::create(path)?;
        let (pieces, waiting) = sync_channel(WAITING_MAX);
        let thread = spawn("sum", move || write_pieces(file, plain_sha(hash), &waiting))?;
        Ok(IndexOutput { pushed: 0, pieces, thread })
    }

    /// Sends the new bytes of `content` to the thread. `content` is the beginning of the index, and does not
    /// change any more.
    pub fn push(&mut self, content: &[u8]) {
        if content.len() - self.pushed >= PUSHED_BYTES_MIN {
            self.push_all(content);
        }
    }

    fn push_all(&mut self, content: &[u8]) {
        // If the thread has failed, `finish` returns why.
        let _ = self.pieces.send(content[self.pushed..].to_vec());
        self.pushed = content.len();
    }

    /// Writes the rest of the index `content`, which is whole, and its checksum.
    ///
    /// # Errors
    /// If the file could not be written.
    pub fn finish(mut self, content: &[u8]) -> io::Result<()> {
        self.push_all(content);
        drop(self.pieces);
        let (mut file, sum) = self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        file.write_all(sum.finish().as_bytes())
    }
}

fn write_pieces(
    mut file: File,
    mut sum: PlainHasher,
    pieces: &Receiver<Vec<u8>>,
) -> io::Result<(File, PlainHasher)> {
    for piece in pieces {
        sum.update(&piece);
        file.write_all(&piece)?;
    }
    Ok((file, sum))
}
