//! Sweeps: asks forges, at intervals, for deliveries of webhooks that never arrived.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_events::WebhookDoors;
use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::error::Result;
use crate::running::{Pool, Sweeper};

/// Time until a sweep is tried again that failed, or that another process makes.
const RETRY: Duration = Duration::from_secs(60);

/// Sweeps the webhooks that the settings want swept, at their intervals, until `stop` is requested; at first
/// at once. `doors` learn of the deliveries that were taken, and `stop` is nudged then.
///
/// # Errors
/// If the catalog cannot be opened, or no thread be started.
pub fn keep_sweeping(pool: &Pool, doors: Arc<WebhookDoors>, stop: &Stop) -> Result<Option<JoinHandle<()>>> {
    let swept = |pool: &Pool| pool.config.events.webhook.iter().any(|webhook| !webhook.sweep().is_empty());
    if !swept(pool) {
        return Ok(None);
    }
    let (mut pool, stop) = (pool.again()?, stop.clone());
    Ok(Some(spawn("sweeps", move || {
        let webhooks = pool.config.events.webhook.clone();
        let mut due: Vec<_> = webhooks
            .iter()
            .filter(|webhook| !webhook.sweep().is_empty())
            .map(|webhook| (Instant::now(), webhook))
            .collect();
        while let Some((next, webhook)) = due.iter_mut().min_by_key(|(next, _)| *next) {
            if !stop.sleep(next.saturating_duration_since(Instant::now())) {
                return;
            }
            let mut taken = 0;
            let mut sweeper = Sweeper::new(&mut pool, false, &stop).telling(doors.clone());
            let swept = sweeper.sweep(webhook, &mut |outcome| {
                taken += outcome.taken;
                if outcome.failed > 0 {
                    tracing::info!("{outcome}");
                }
            });
            let wait = match swept {
                Ok(true) => webhook.sweep_interval(),
                Ok(false) => RETRY,
                Err(e) => {
                    if !stop.is_stopped() {
                        tracing::error!("{e}; trying again in {} s", RETRY.as_secs());
                    }
                    RETRY
                }
            };
            if taken > 0 {
                stop.nudge();
            }
            *next = Instant::now() + wait;
        }
    })?))
}
