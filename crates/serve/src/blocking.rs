//! upload-pack over any blocking stream: local upstreams, stdio.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicBool;

use weir_upload::{Step, UploadPack};

/// Serves one conversation to its end. Work ends soon after `cancelled` is set. Calls `is_working` when a
/// piece of work begins and ends.
///
/// # Errors
/// If a stream fails.
pub fn serve_blocking(
    machine: &mut UploadPack,
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    cancelled: &AtomicBool,
    is_working: &dyn Fn(bool),
) -> io::Result<()> {
    let mut buf = vec![0; 64 << 10];
    loop {
        match machine.step() {
            Step::Send(bytes) => writer.write_all(&bytes)?,
            Step::SendRegion(region, framing) => {
                let mut wrapped = Vec::new();
                for part in region.chunks(framing.payload_bytes_max().unwrap_or(64 << 10)) {
                    wrapped.clear();
                    framing.push(&mut wrapped, part);
                    region.check()?;
                    writer.write_all(&wrapped)?;
                }
            }
            Step::SendArriving(..) => {
                return Err(io::Error::other("what is arriving is not here yet"));
            }
            Step::Work(work) => {
                is_working(true);
                let outcome = work.run(&mut |bytes| writer.write_all(&bytes), cancelled);
                is_working(false);
                machine.finish(outcome);
            }
            Step::Read => {
                writer.flush()?;
                match reader.read(&mut buf) {
                    Ok(0) => return Ok(()),
                    // A refusal is queued for the client; the machine then ends.
                    Ok(n) => drop(machine.feed(&buf[..n])),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Step::Done => return writer.flush(),
        }
    }
}
