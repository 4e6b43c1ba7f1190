//! How hooks are shown.

use weir_ground::Timestamp;
use weir_pool::HookState;

use crate::output;

/// Returns how a hook fails in words, if it does.
pub fn state_of(hook: &HookState, now: Timestamp) -> Option<String> {
    let failing = hook.failing.as_ref()?;
    let word = if hook.is_dead { "dead" } else { "failing" };
    let since = output::span(now - failing.failing_since);
    let next = match failing.retry_at - now {
        wait if wait > 0 => format!(", next try in {}", output::span(wait)),
        _ => String::new(),
    };
    Some(format!("{word} for {since}{next}: {}", failing.error))
}
