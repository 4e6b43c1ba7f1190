//! Sends a pack on while it arrives.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_repo::ArrivingPack;
use weir_upload::{Framing, WorkOutcome};

use crate::server::jobs::{FLUSH, KEEPALIVE, Out};
use crate::sockets::send::Gone;

/// Side-band frames that are read at a time: about a quarter of a megabyte.
const FRAMES_A_PIECE: usize = 4;
/// The message to a client whose pack breaks off.
const BROKEN_OFF: &str = "weir: the upstream's answer broke off; try again in a minute\n";

/// Sends `pack` as its bytes arrive. Fails if the rest of it will not come; the client is then told.
///
/// # Errors
/// If the client is gone.
pub(crate) async fn send_arriving(
    pack: &ArrivingPack,
    framing: Framing,
    out: &mut impl Out,
) -> io::Result<WorkOutcome> {
    let mut at = 0;
    loop {
        let piece = poll_fn(|context| poll_piece(pack, at, framing, context));
        let next = tokio::select! {
            biased;
            next = tokio::time::timeout(KEEPALIVE, piece) => next.ok(),
            gone = out.gone() => match gone {
                Gone::Whole => return Err(io::ErrorKind::BrokenPipe.into()),
                // The next write to the client shows whether it still reads.
                Gone::Half => None,
            },
        };
        match next {
            Some(Ok(piece)) if piece.len == 0 => {
                out.give(Bytes::from_static(FLUSH)).await?;
                return Ok(WorkOutcome::Sent);
            }
            Some(Ok(piece)) => {
                at += piece.len;
                // The client cannot be faster than the upstream.
                if piece.is_last_so_far {
                    out.restart();
                }
                out.give(piece.framed.into()).await?;
            }
            Some(Err(e)) => {
                tracing::info!("a pack broke off while a client got it: {e}");
                let mut message = Vec::new();
                framing.push_message(&mut message, 3, BROKEN_OFF);
                out.give(message.into()).await?;
                return Ok(WorkOutcome::Failed(format!("what was arriving broke off: {e}")));
            }
            None => {
                if let Some(keepalive) = framing.keepalive() {
                    out.give(Bytes::from_static(keepalive)).await?;
                }
                out.restart();
            }
        }
    }
}

/// A piece of a pack, in frames.
struct ArrivedPiece {
    framed: Vec<u8>,
    /// The bytes of the pack in it.
    len: u64,
    /// Whether no more had arrived.
    is_last_so_far: bool,
}

/// Reads what has arrived from byte `at`, up to a few frames.
fn poll_piece(
    pack: &ArrivingPack,
    at: u64,
    framing: Framing,
    context: &Context<'_>,
) -> Poll<io::Result<ArrivedPiece>> {
    let part_max = framing.payload_bytes_max().unwrap_or(64 << 10);
    let mut part = vec![0; part_max];
    let mut piece = ArrivedPiece { framed: Vec::new(), len: 0, is_last_so_far: false };
    for _ in 0..FRAMES_A_PIECE {
        match pack.poll_read(at + piece.len, &mut part, context) {
            Poll::Ready(Ok(count)) if count > 0 => {
                framing.push(&mut piece.framed, &part[..count]);
                piece.len += count as u64;
            }
            // The client first gets the bytes before the end, or before a failure.
            _ if piece.len > 0 => {
                piece.is_last_so_far = true;
                break;
            }
            Poll::Ready(Ok(_)) => break,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(piece))
}
