//! How hooks are shown.

use weir_ground::Timestamp;
use weir_pool::HookState;

use crate::output;

/// Returns how a hook fails in words, if it does.
pub(crate) fn state_of(hook: &HookState, now: Timestamp) -> Option<String> {
    let failing = hook.failing.as_ref()?;
    let word = if hook.is_dead { "dead" } else { "failing" };
    Some(format!(
        "{word} for {}, next try in {}: {}",
        output::span(now - failing.failing_since),
        output::span((failing.retry_at - now).max(0)),
        failing.error
    ))
}
