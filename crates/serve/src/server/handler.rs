//! The door for requests that are not git's: a handler answers them.
//!
//! The server has counted the client and checked the request before, and receives the body within its limits
//! on time, rate and memory. It lends the handler its open repositories and its threads.

use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_repo::Repo;

use crate::access::locate::{BUSY, Client, Found, INTERNAL_ERROR, Refusal};
use crate::access::repositories::ServedRepositories;
use crate::limits::admission::{HeldTurn, Party, Turn, Turns};
use crate::sockets::shards::STACK_BYTES;

/// Bytes in one piece of a body that is written while it is sent.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait between the thread that writes them and the connection.
const PIECES_MAX: usize = 4;
/// How long a thread keeps its turn while its client reads nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// The nice value of threads for long work (sched(7)): others get nine times as much of a processor.
const NICE: i32 = 10;

/// An answer that a handler is making.
pub type HandlerAnswer<'h> = Pin<Box<dyn Future<Output = Response<HandlerBody>> + Send + 'h>>;

/// The decision of a handler about a request, by its head.
#[derive(Debug)]
pub enum HttpAdmission {
    /// The path is not one of its own.
    Foreign,
    /// It answers the request after the body, which may have this many bytes.
    Body(usize),
    /// It answers at once, whatever the body is.
    Answer(Response<HandlerBody>),
}

/// Answers requests that are not git's.
pub trait HttpHandler: Send + Sync {
    /// Returns whether all requests for `path`, percent-encoded, are for the handler, even those for what
    /// would be a git URL.
    fn reserves(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// Looks at the head of a request, before the body is received.
    fn admit(&self, head: &Parts) -> HttpAdmission;

    /// Answers a request that it has admitted.
    fn answer(&self, request: Request<Bytes>, client: HandlerClient) -> HandlerAnswer<'_>;

    /// Returns the answer to a request for a reserved path that the server refuses.
    fn refuse(&self, status: StatusCode, words: &str) -> Response<HandlerBody> {
        let mut response = Response::new(format!("{words}\n").into_bytes().into());
        *response.status_mut() = status;
        response
    }
}

/// The body of a handler's answer.
#[derive(Debug)]
pub struct HandlerBody(pub(crate) HandlerContent);

#[derive(Debug)]
pub(crate) enum HandlerContent {
    Whole(Bytes),
    /// Pieces, and the number of bytes of all, if known.
    Stream(mpsc::Receiver<io::Result<Bytes>>, Option<u64>),
}

impl From<Bytes> for HandlerBody {
    fn from(bytes: Bytes) -> HandlerBody {
        HandlerBody(HandlerContent::Whole(bytes))
    }
}

impl From<Vec<u8>> for HandlerBody {
    fn from(bytes: Vec<u8>) -> HandlerBody {
        Bytes::from(bytes).into()
    }
}

impl HandlerBody {
    /// Returns the bytes that are in memory until the client has read them.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.0 {
            HandlerContent::Whole(bytes) => bytes.len(),
            HandlerContent::Stream(..) => PIECES_MAX * PIECE_BYTES,
        }
    }

    /// Returns the bytes of a body that is in memory; `None` for one that is written while it is sent.
    pub fn into_whole(self) -> Option<Bytes> {
        match self.0 {
            HandlerContent::Whole(bytes) => Some(bytes),
            HandlerContent::Stream(..) => None,
        }
    }

    /// Sets the number of bytes of a body that is written while it is sent.
    #[must_use]
    pub fn of_length(mut self, bytes: u64) -> HandlerBody {
        if let HandlerContent::Stream(_, len) = &mut self.0 {
            *len = Some(bytes);
        }
        self
    }
}

/// The client whose request a handler answers, with what the server lends the handler.
#[derive(Clone)]
pub struct HandlerClient {
    /// The client.
    pub client: Client,
    /// The host that it names.
    pub host: Option<String>,
    pub(crate) repositories: Arc<ServedRepositories>,
    pub(crate) reads: Arc<Turns>,
    pub(crate) computes: Arc<Turns>,
    pub(crate) idle_timeout: Duration,
    pub(crate) bytes_per_second_min: u64,
}

impl HandlerClient {
    /// Opens the repository at `found`, which the client calls `name`, or returns it if it is open.
    ///
    /// # Errors
    /// If it is not there, cannot be opened, or too many are being opened.
    pub async fn open(&self, found: Found, name: &str) -> Result<Arc<Repo>, Refusal> {
        self.repositories.open(found, name, self.client.address).await.map(|opened| opened.repo)
    }

    /// Runs `work`, which is short, on a thread that may block, when it is the client's turn.
    ///
    /// # Errors
    /// If its turn does not come in time, or `work` panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.turn(&self.reads).await?;
        let done = spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.map_err(|_| Refusal::Failed(INTERNAL_ERROR.to_owned()))
    }

    /// Runs `work`, which may take long, when it is the client's turn. Short work does not wait for it: it
    /// has turns of its own, and a thread that gives way to others.
    ///
    /// # Errors
    /// If its turn does not come in time, or `work` panics.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.turn(&self.computes).await?;
        let done = on_yielding_thread(move || {
            let done = work();
            drop(turn);
            done
        })?;
        done.await.map_err(|_| Refusal::Failed(INTERNAL_ERROR.to_owned()))
    }

    /// Runs `write` as [`HandlerClient::compute`] runs work, and returns the body that it writes. If `write`
    /// fails, the body breaks off.
    ///
    /// # Errors
    /// If its turn does not come in time.
    pub async fn stream(
        &self,
        write: impl FnOnce(&mut BodyWriter) -> io::Result<()> + Send + 'static,
    ) -> Result<HandlerBody, Refusal> {
        let turn = self.turn(&self.computes).await?;
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        let mut writer = BodyWriter {
            sender: sender.clone(),
            piece: Vec::new(),
            turn: HeldTurn::new(self.computes.clone(), self.party(), turn),
            runtime: Handle::current(),
            time_max: self.idle_timeout
                + Duration::from_secs(PIECE_BYTES as u64 / self.bytes_per_second_min.max(1)),
        };
        let writing = on_yielding_thread(move || write(&mut writer).and_then(|()| writer.flush()))?;
        tokio::spawn(async move {
            let failure = match writing.await {
                Ok(Ok(())) => return,
                Ok(Err(e)) => e,
                Err(_) => io::Error::other(INTERNAL_ERROR),
            };
            let _ = sender.send(Err(failure)).await;
        });
        Ok(HandlerBody(HandlerContent::Stream(receiver, None)))
    }

    fn party(&self) -> Party {
        Party::new(self.client.address, "".as_ref())
    }

    async fn turn(&self, turns: &Arc<Turns>) -> Result<Turn, Refusal> {
        turns.take(self.party()).await.map_err(|_| Refusal::Busy(BUSY.to_owned()))
    }
}

/// Starts `work` on a thread that gets less of the processors than others, as `nice` does.
fn on_yielding_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Refusal> {
    let (sender, done) = oneshot::channel();
    let runtime = Handle::current();
    let thread = Builder::new().name("weir-compute".to_owned()).stack_size(STACK_BYTES);
    let started = thread.spawn(move || {
        // Timers and channels of tokio work here as on its own threads.
        let _entered = runtime.enter();
        // On Linux each thread has a priority of its own (sched(7), "The nice value").
        let _ = setpriority_process(Some(gettid()), NICE);
        let _ = sender.send(work());
    });
    started.map_err(|_| Refusal::Busy(BUSY.to_owned()))?;
    Ok(done)
}

/// Writes the body of an answer while it is sent. Another has its turn while its client reads nothing.
pub struct BodyWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
    turn: HeldTurn,
    runtime: Handle,
    /// The time for one piece.
    time_max: Duration,
}

impl BodyWriter {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let full = match self.sender.try_send(Ok(piece.into())) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => piece,
        };
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        if let Ok(room) = self.runtime.block_on(timeout(PATIENCE, self.sender.reserve())) {
            room.map_err(gone)?.send(full);
            return Ok(());
        }
        self.turn.leave()?;
        let room = self.runtime.block_on(timeout(self.time_max, self.sender.reserve()));
        self.turn.come_back();
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing");
        room.map_err(late)?.map_err(gone)?.send(full);
        Ok(())
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.piece.len();
        let taken = bytes.len().min(room);
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}
