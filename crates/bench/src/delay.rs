//! Passes TCP connections on, and lets all bytes arrive later, as a longer network would.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use weir_ground::thread::spawn;

use crate::Error;

const BUFFER_BYTES: usize = 256 << 10;
/// Pieces on their way in one direction.
const PIECES_MAX: usize = 256;

/// Listens at `listen` and connects to `target` for each connection. A request and its answer take `delay`
/// longer together. Never returns.
pub(crate) fn run(listen: &str, target: &str, delay: Duration) -> Result<(), Error> {
    let listener = TcpListener::bind(listen)?;
    for stream in listener.incoming() {
        let (near, target) = (stream?, target.to_owned());
        spawn("connection", move || {
            if let Err(e) = pass_on(&near, &target, delay / 2) {
                eprintln!("{e}");
            }
        })?;
    }
    Ok(())
}

fn pass_on(near: &TcpStream, target: &str, delay: Duration) -> Result<(), Error> {
    let far = TcpStream::connect(target)?;
    for stream in [near, &far] {
        stream.set_nodelay(true)?;
    }
    let (to, from) = (far.try_clone()?, near.try_clone()?);
    spawn("there", move || pump(from, to, delay))?;
    pump(far, near.try_clone()?, delay);
    Ok(())
}

/// Writes to `to` what `from` says, each piece `delay` after it was said.
fn pump(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (send, receive) = sync_channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let Ok(writer) = spawn("pump", move || {
        for (due, piece) in receive {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    }) else {
        return;
    };
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if send.send((Instant::now() + delay, buffer[..len].to_vec())).is_err() {
            break;
        }
    }
    drop(send);
    let _ = writer.join();
}
