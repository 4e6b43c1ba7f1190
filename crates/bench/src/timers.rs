//! The cost of a line for the time-out of its connection: what weir's doors note, beside the reset of a timer
//! of tokio.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};
use weir_events::{IdleSweep, LastHeard};

use crate::Error;

/// The number of times that each connection is heard.
const ROUNDS: usize = 20;
/// A prime number that is no divisor of the number of connections: they speak in no order.
const STEP: usize = 48_611;

/// Measures weir's note and tokio's timer with `connections` connections. Prints the nanoseconds that each
/// takes for one line, as JSON.
pub(crate) fn run(connections: usize) -> Result<(), Error> {
    let order: Vec<usize> = (0..connections).map(|n| n * STEP % connections).collect();
    let (sweep, heard): (_, Vec<Box<LastHeard>>) =
        (IdleSweep::default(), (0..connections).map(|_| Box::default()).collect());
    let noted = time_of(connections, || {
        order.iter().for_each(|at| sweep.hear(&heard[*at]));
        sweep.begin();
    });
    assert!(heard.iter().all(|last| !sweep.is_idle(last)), "each was heard");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let reset = runtime.block_on(async {
        let far = || tokio::time::Instant::now() + Duration::from_secs(3600);
        let mut timers: Vec<Pin<Box<Sleep>>> =
            (0..connections).map(|_| Box::pin(sleep_until(far()))).collect();
        for timer in &mut timers {
            tokio::select! {
                biased;
                () = timer => unreachable!("an hour has not passed"),
                () = std::future::ready(()) => {}
            }
        }
        time_of(connections, || order.iter().for_each(|at| timers[*at].as_mut().reset(far())))
    });
    println!("{}", serde_json::json!({ "weir_ns": noted, "tokio_ns": reset }));
    Ok(())
}

/// Returns the nanoseconds that `round` takes for one of `connections`.
fn time_of(connections: usize, mut round: impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    began.elapsed().as_nanos() as f64 / (ROUNDS * connections) as f64
}
