//! The least that a server of lines must do on tokio: a task for each connection reads lines, and the server
//! appends them to a file, which it syncs 20 times a second.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{LocalSet, spawn_local};

use crate::Error;

/// Takes lines at the Unix socket `path`, and appends them to `file`, for ever.
pub(crate) fn run(path: &str, file: &str) -> Result<(), Error> {
    let file = OpenOptions::new().create(true).append(true).open(file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(path, file))
}

async fn serve(path: &str, file: File) -> Result<(), Error> {
    let listener = UnixListener::bind(path)?;
    let filling = Rc::new(RefCell::new(Vec::new()));
    let written = filling.clone();
    spawn_local(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let batch: Vec<u8> = written.take();
            if !batch.is_empty() {
                let mut file = file.try_clone().expect("a descriptor is free");
                let write = move || file.write_all(&batch).and_then(|()| file.sync_data());
                tokio::task::spawn_blocking(write)
                    .await
                    .expect("it does not panic")
                    .expect("it can be written");
            }
        }
    });
    loop {
        let (stream, _) = listener.accept().await?;
        spawn_local(take(stream, filling.clone()));
    }
}

async fn take(stream: UnixStream, filling: Rc<RefCell<Vec<u8>>>) {
    let mut stream = BufReader::with_capacity(1024, stream);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        filling.borrow_mut().append(&mut line);
    }
}
