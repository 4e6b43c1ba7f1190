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
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_ground::Stop;
use weir_ground::thread::give_way;
use weir_repo::Repo;
use weir_upload::{DaemonRequest, Service, WorkOutcome};

use crate::access::locate::{AwaitedFor, BUSY, Client, Found, INTERNAL_ERROR, Refusal};
use crate::access::repositories::ServedRepositories;
use crate::limits::admission::{HeldTurn, Party, Turn, Turns};
use crate::limits::answer_spool::{AnswerPiece, AnswerPlace, AnswerReader, AnswerSpool, Answers};
use crate::sockets::shards::STACK_BYTES;

/// Bytes in one piece of a body that is written while it is sent.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait between the answer and the connection.
const PIECES_MAX: usize = 4;
const _: () = assert!(PIECES_MAX > 1, "one piece is written while another is sent");
/// How long the head of an answer waits for the first piece, so that it can tell of a failure.
const PEEK: Duration = Duration::from_secs(1);

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
    /// Pieces.
    Stream(mpsc::Receiver<io::Result<Bytes>>),
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
            HandlerContent::Stream(_) => PIECES_MAX * PIECE_BYTES,
        }
    }

    /// Returns the bytes of a body that is in memory; `None` for one that is written while it is sent.
    pub fn into_whole(self) -> Option<Bytes> {
        match self.0 {
            HandlerContent::Whole(bytes) => Some(bytes),
            HandlerContent::Stream(_) => None,
        }
    }
}

/// How much work a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The work that one file, folder or history takes.
    Bounded,
    /// Work that the client chooses, such as a query. It has turns of its own, so that it keeps nothing else
    /// waiting.
    Open,
}

impl Effort {
    /// Gives the memory that the work had back to the system. The allocator would keep it for threads that
    /// have ended.
    fn end(self) {
        #[cfg(target_env = "gnu")]
        if self == Effort::Open {
            // SAFETY: it takes no pointers, and any thread may call it at any time (malloc_trim(3)).
            unsafe { libc::malloc_trim(0) };
        }
    }
}

/// Requests a stop when it is dropped.
#[derive(Default)]
struct StopWhenDropped(Stop);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop();
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
    pub(crate) explorations: Arc<Turns>,
    pub(crate) answers: Arc<Answers>,
}

impl HandlerClient {
    /// Opens the repository at `found`, which the client calls `name`, or returns it if it is open.
    ///
    /// # Errors
    /// If it is not there, cannot be opened, or too many are being opened.
    pub async fn open(&self, found: Found, name: &str) -> Result<Arc<Repo>, Refusal> {
        self.repositories.open(found, name, self.client.address).await.map(|opened| opened.repo)
    }

    /// Waits for a visit to the upstream of the repository that the client calls `name`, if the server
    /// fetches it on demand: it is not here yet, or its copy is too old.
    ///
    /// # Errors
    /// If it is not here and cannot be fetched, or the client may not ask for that.
    pub async fn fetch(&self, name: &str) -> Result<(), Refusal> {
        let request = DaemonRequest {
            service: Service::UploadPack,
            path: name.to_owned(),
            host: self.host.clone(),
            version: 0,
            protocol: String::new(),
        };
        self.repositories.wait(&request, &self.client, AwaitedFor::Begin).await.map(drop)
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
    /// has turns of its own, and a thread that gives way to others. `work` is told to stop when the client
    /// hangs up.
    ///
    /// # Errors
    /// If its turn does not come in time, or `work` panics.
    pub async fn compute<T: Send + 'static>(
        &self,
        effort: Effort,
        work: impl FnOnce(&Stop) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.turn(self.turns_for(effort)).await?;
        // Dropped with this future, when its client is gone.
        let left = StopWhenDropped::default();
        let stop = left.0.clone();
        let done = on_yielding_thread(move || {
            let done = work(&stop);
            effort.end();
            drop(turn);
            done
        })?;
        done.await.map_err(|_| Refusal::Failed(INTERNAL_ERROR.to_owned()))
    }

    fn turns_for(&self, effort: Effort) -> &Arc<Turns> {
        match effort {
            Effort::Bounded => &self.computes,
            Effort::Open => &self.explorations,
        }
    }

    /// Runs `write` as [`HandlerClient::compute`] runs work, and returns the body that it writes. If `write`
    /// fails, the body breaks off; [`io::ErrorKind::InvalidInput`] says that no answer can be made of what
    /// was asked for. Clients that ask for the same `key` at the same time share one answer, and it is kept
    /// for a while. `key` is a hash of all that the answer depends on.
    ///
    /// # Errors
    /// If its turn does not come in time, or `write` fails at once.
    pub async fn stream(
        &self,
        effort: Effort,
        key: [u8; 32],
        write: impl FnOnce(&mut BodyWriter) -> io::Result<()> + Send + 'static,
    ) -> Result<HandlerBody, Refusal> {
        if let Some(reader) = self.answers.join(key) {
            return body_of(reader).await;
        }
        let turns = self.turns_for(effort);
        let turn = self.turn(turns).await?;
        let (spool, reader) = match self.answers.place(Some(key)) {
            AnswerPlace::Follow(reader) => return body_of(reader).await,
            AnswerPlace::Make(spool, reader) => (spool, reader),
        };
        let mut writer = BodyWriter {
            answers: self.answers.clone(),
            key,
            spool: spool.clone(),
            piece: Vec::new(),
            turn: HeldTurn::new(turns.clone(), self.party(), turn),
        };
        let written = on_yielding_thread(move || {
            let outcome = match write(&mut writer).and_then(|()| writer.flush()) {
                Ok(()) => WorkOutcome::Sent,
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => WorkOutcome::Refused(e.to_string()),
                Err(e) => WorkOutcome::Failed(e.to_string()),
            };
            effort.end();
            writer.answers.settle(&writer.spool, outcome)
        });
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let outcome = match written {
                Ok(written) => written.await.ok(),
                Err(_) => None,
            };
            let failed = || WorkOutcome::Failed(INTERNAL_ERROR.to_owned());
            answers.end(Some(key), &spool, outcome.unwrap_or_else(failed));
        });
        body_of(reader).await
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
        give_way();
        let _ = sender.send(work());
    });
    started.map_err(|_| Refusal::Busy(BUSY.to_owned()))?;
    Ok(done)
}

/// Returns the body that `reader` reads.
///
/// # Errors
/// If the work on it has failed already.
async fn body_of(mut reader: AnswerReader) -> Result<HandlerBody, Refusal> {
    let failed = || Refusal::Failed(INTERNAL_ERROR.to_owned());
    let mut first = match timeout(PEEK, reader.next()).await {
        Ok(Ok(AnswerPiece::End(WorkOutcome::Refused(words)))) => return Err(Refusal::Wrong(words)),
        Ok(Ok(AnswerPiece::End(WorkOutcome::Failed(_))) | Err(_)) => return Err(failed()),
        Ok(Ok(first)) => Some(first),
        Err(_) => None,
    };
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        loop {
            let next = match first.take() {
                Some(first) => Ok(first),
                None => tokio::select! {
                    next = reader.next() => next,
                    () = sender.closed() => return,
                },
            };
            let piece = match next {
                Ok(AnswerPiece::Bytes(bytes)) => Ok(bytes),
                Ok(AnswerPiece::End(WorkOutcome::Refused(words) | WorkOutcome::Failed(words))) => {
                    Err(io::Error::other(words))
                }
                Ok(AnswerPiece::End(_)) => return,
                // The rest of the answer found no room.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"))
                }
                Err(e) => Err(e),
            };
            let is_last = piece.is_err();
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Ok(HandlerBody(HandlerContent::Stream(receiver)))
}

/// Writes the body of an answer while it is sent. The rest of the answer for a slow client goes to disk.
pub struct BodyWriter {
    answers: Arc<Answers>,
    key: [u8; 32],
    spool: Arc<AnswerSpool>,
    piece: Vec<u8>,
    turn: HeldTurn,
}

impl BodyWriter {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.answers.write(Some(self.key), &self.spool, piece, Some(&mut self.turn))
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
