//! `events bench`: sends lines at a steady rate over many connections.

use std::io::Write;
use std::time::Duration;

use weir_arguments::{EventsBenchArgs, Global};
use weir_events::{LineLoad, LoadTarget};
use weir_ground::FileError;
use weir_serve::{Address, ListenAddress};
use weir_terminal::output;

use crate::error::{Error, Result};

pub(crate) fn bench(global: &Global, args: &EventsBenchArgs) -> Result<()> {
    weir_serve::raise_descriptor_limit();
    let token = args
        .token_file
        .as_ref()
        .map(|file| std::fs::read_to_string(file).map_err(|e| Error::from(FileError::on("read", file)(e))));
    let load = LineLoad {
        target: match &args.address {
            ListenAddress::One(Address::Unix(path)) => LoadTarget::Unix(path.clone()),
            address => LoadTarget::Tcp(address.to_string()),
        },
        connections: args.connections,
        rate: args.rate,
        time: Duration::try_from_secs_f64(args.seconds).map_err(Error::of)?,
        lines_per_write: args.lines_per_write,
        acknowledged: args.acknowledged,
        token: token.transpose()?,
        line: args.line.clone(),
    };
    let report = load.run().map_err(|e| Error::Message(format!("{}: {e}", args.address)))?;
    let (sent, acknowledged, seconds) = (report.sent, report.acknowledged, report.took.as_secs_f64());
    if global.json {
        return Ok(output::json(&serde_json::json!({ "sent": sent, "acknowledged": acknowledged,
            "seconds": seconds, "median_us": report.median_us, "p99_us": report.p99_us }))?);
    }
    let mut out = output::stdout();
    writeln!(out, "{sent} lines sent in {seconds:.1} s, {acknowledged} acknowledged")?;
    if let (Some(median), Some(p99)) = (report.median_us, report.p99_us) {
        let ms = |us: u64| us as f64 / 1000.0;
        writeln!(out, "acknowledged after {:.1} ms (median), {:.1} ms (99 %)", ms(median), ms(p99))?;
    }
    Ok(())
}
