//! Writes an index to a file.

use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use weir_git::{HashKind, PlainHasher, plain_sha};
use weir_ground::thread::{spawn, spawn_scoped};

use crate::error::Result;
use crate::index_file::{IndexWriter, checksum};

/// The fewest bytes in a message to a thread, but for the last one; and how many messages may wait.
const PUSHED_BYTES_MIN: usize = 64 << 10;
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

/// Bytes of an index: those of `data` from `from` on.
struct Piece {
    data: Vec<u8>,
    from: usize,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.data[self.from..]
    }
}

/// Memory that is used again. The threads that allocate and those that free would wait for each other.
#[derive(Clone, Default)]
pub struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// Returns a buffer, which is empty.
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Gives back a piece that no other thread needs any more.
    fn give_piece(&self, piece: Arc<Piece>) {
        if let Some(piece) = Arc::into_inner(piece) {
            self.give(piece.data);
        }
    }
}

/// A file of an index that is still being made. One thread hashes the bytes that are there already, another
/// writes them.
pub struct IndexOutput {
    hashed: SyncSender<Arc<Piece>>,
    hashing: JoinHandle<PlainHasher>,
    written: SyncSender<Arc<Piece>>,
    writing: JoinHandle<io::Result<File>>,
    buffers: Buffers,
}

impl IndexOutput {
    /// Creates the file at `path`.
    ///
    /// # Errors
    /// If it cannot be created, or no thread started.
    pub fn create(hash: HashKind, path: &Path) -> io::Result<IndexOutput> {
        let file = File::create(path)?;
        let ((hashed, to_hash), (written, to_write)) = (sync_channel(WAITING_MAX), sync_channel(WAITING_MAX));
        let buffers = Buffers::default();
        let (of_writing, of_hashing) = (buffers.clone(), buffers.clone());
        let writing = spawn("write", move || write_pieces(file, to_write, &of_writing))?;
        let hashing = spawn("sum", move || hash_pieces(plain_sha(hash), to_hash, &of_hashing))?;
        Ok(IndexOutput { hashed, hashing, written, writing, buffers })
    }

    /// Returns the buffers for what [`IndexOutput::append`] takes.
    pub fn buffers(&self) -> Buffers {
        self.buffers.clone()
    }

    /// Appends the entries of `other` to those of `index`, which is announced, and takes what is enough for a
    /// message.
    ///
    /// # Errors
    /// As [`IndexWriter::append`].
    pub fn append(&mut self, index: &mut IndexWriter, other: IndexWriter) -> Result<()> {
        if other.content().len() < PUSHED_BYTES_MIN {
            index.append(&other)?;
            self.buffers.give(other.into_content());
        } else {
            let from = index.append_path(&other)?;
            self.send(Piece { data: index.take_content(self.buffers.take()), from: 0 });
            self.send(Piece { data: other.into_content(), from });
        }
        if index.content().len() >= PUSHED_BYTES_MIN {
            self.send(Piece { data: index.take_content(self.buffers.take()), from: 0 });
        }
        Ok(())
    }

    fn send(&self, piece: Piece) {
        let piece = Arc::new(piece);
        // If a thread has failed, `finish` returns why.
        let _ = self.hashed.send(Arc::clone(&piece));
        let _ = self.written.send(piece);
    }

    /// Writes the `rest` of the index, and its checksum.
    ///
    /// # Errors
    /// If the file could not be written.
    pub fn finish(self, rest: Vec<u8>) -> io::Result<()> {
        self.send(Piece { data: rest, from: 0 });
        let IndexOutput { hashed, hashing, written, writing, .. } = self;
        drop((hashed, written));
        let mut file = writing.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        let sum = hashing.join().unwrap_or_else(|panic| resume_unwind(panic));
        file.write_all(sum.finish().as_bytes())
    }
}

fn hash_pieces(mut sum: PlainHasher, pieces: Receiver<Arc<Piece>>, buffers: &Buffers) -> PlainHasher {
    for piece in pieces {
        sum.update(piece.bytes());
        buffers.give_piece(piece);
    }
    sum
}

fn write_pieces(mut file: File, pieces: Receiver<Arc<Piece>>, buffers: &Buffers) -> io::Result<File> {
    for piece in pieces {
        file.write_all(piece.bytes())?;
        buffers.give_piece(piece);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use weir_git::Oid;

    use super::*;
    use crate::index_file::{CacheEntry, PathForm};

    #[test]
    fn what_is_written_while_it_is_made_is_as_if_it_were_written_at_once() {
        let dir = weir_testing::folder();
        let (hash, path) = (HashKind::Sha1, dir.path().join("index"));
        let entry = CacheEntry::new([5; 10], Oid::from_bytes(hash, &[7; 20]).unwrap());
        // Entries of folders: of few files, of none, and of more than a message has.
        let counts = [1, 0, 3000, 40, 2000, 900, 900, 900, 5000, 1];
        let total = counts.iter().sum();
        let mut whole = IndexWriter::new(hash, PathForm::Shared);
        let mut parted = IndexWriter::new(hash, PathForm::Shared);
        parted.announce(total);
        let mut output = IndexOutput::create(hash, &path).unwrap();
        let buffers = output.buffers();
        for (folder, count) in counts.iter().enumerate() {
            let mut part = IndexWriter::new_in(hash, PathForm::Shared, buffers.take());
            for n in 0..*count {
                let file = format!("d{folder}/file{n:06}");
                part.push(file.as_bytes(), &entry, n % 7 == 0).unwrap();
                whole.push(file.as_bytes(), &entry, n % 7 == 0).unwrap();
            }
            output.append(&mut parted, part).unwrap();
        }
        assert_eq!(parted.count, total);
        output.finish(parted.finish_content(b"", None, Some("token")).unwrap()).unwrap();
        assert!(std::fs::read(&path).unwrap() == whole.finish(b"", None, Some("token")).unwrap());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut output = IndexOutput::create(HashKind::Sha1, Path::new("/dev/full")).unwrap();
        let mut index = IndexWriter::new(HashKind::Sha1, PathForm::Shared);
        index.announce(0);
        output.append(&mut index, IndexWriter::new(HashKind::Sha1, PathForm::Shared)).unwrap();
        let content = index.finish_content(b"", None, None).unwrap();
        assert_eq!(output.finish(content).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
