//! How far each hook is, and trials of hooks.

use serde::Serialize;
use serde_json::json;
use weir_catalog::FailingHook;
use weir_catalog::clock::now;
use weir_ground::Stop;

use crate::error::{Error, Result};
use crate::running::hooks::command::{CommandInput, run};
use crate::running::hooks::hook::ConfiguredHook;
use crate::running::hooks::webhook::{DEAD_AFTER, PostResult, post_of};
use crate::running::pool::Pool;

/// How far a hook is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HookState {
    /// Its name.
    pub name: String,
    /// The table of the settings that it stands in: `post_update`, `command` or `webhook`.
    pub kind: &'static str,
    /// The program, or the URL without a password.
    pub target: String,
    /// The number of events that it has yet to take.
    pub waiting: i64,
    /// Its failures, if it takes none now.
    pub failing: Option<FailingHook>,
    /// Whether it has failed so often that weir hardly tries any more.
    pub is_dead: bool,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HookTest {
    /// Whether the hook took the event.
    pub is_taken: bool,
    /// The answer or the failure in words.
    pub said: String,
}

/// Returns how far each hook of the settings is.
///
/// # Errors
/// If the catalog fails.
pub fn hook_states(pool: &Pool) -> Result<Vec<HookState>> {
    let hooks = &pool.config.hooks;
    ConfiguredHook::all(&pool.config)
        .into_iter()
        .map(|hook| {
            let readers = hook.readers(&pool.config);
            let waiting = readers.iter().map(|reader| pool.catalog.events().waiting(reader));
            let waiting = waiting.sum::<weir_catalog::Result<i64>>()?;
            let failing = pool.catalog.events().failing_hook(&readers[0].name)?;
            let (name, kind, target) = match hook {
                ConfiguredHook::Program => ("post_update", "post_update", hooks.post_update.join(" ")),
                ConfiguredHook::Command(n) => {
                    (hooks.command[n].name.as_str(), "command", hooks.command[n].command.join(" "))
                }
                ConfiguredHook::Webhook(n) => {
                    let url = weir_transport::Url::parse(&hooks.webhook[n].url);
                    let shown = url.map_or_else(|_| String::new(), |url| url.without_userinfo());
                    (hooks.webhook[n].name.as_str(), "webhook", shown)
                }
            };
            let is_dead = failing.as_ref().is_some_and(|failing| failing.failures >= DEAD_AFTER);
            Ok(HookState { name: name.to_owned(), kind, target, waiting, failing, is_dead })
        })
        .collect()
}

/// Sends an event of the kind `test` to the command or webhook `name`, once.
///
/// # Errors
/// If there is no such hook, or it cannot be started or signed for.
pub fn test_hook(pool: &Pool, name: &str, stop: &Stop) -> Result<HookTest> {
    let hooks = &pool.config.hooks;
    if let Some(config) = hooks.webhook.iter().find(|webhook| webhook.name == name) {
        let post = post_of(pool, config)?;
        let time = now();
        let data = json!({ "event": "test", "time": time });
        let (is_taken, said) = match post.send(&format!("test-{time}"), "test", time.0, &data) {
            PostResult::Taken => {
                // What waits for it can go.
                pool.catalog.events().set_failing_hook(&format!("webhook {name}"), None)?;
                (true, "it took the event".to_owned())
            }
            PostResult::Refused(why) | PostResult::Away(why, _) => (false, why),
        };
        return Ok(HookTest { is_taken, said });
    }
    if let Some(config) = hooks.command.iter().find(|command| command.name == name) {
        let ended = run(config, &pool.store.path, &CommandInput::test(now()), stop)?;
        let said = match ended {
            Some(status) if status.success() => "it took the event".to_owned(),
            Some(status) => format!("it ended with {status}"),
            None => format!("it was killed after {} s", config.timeout.0.as_secs()),
        };
        return Ok(HookTest { is_taken: ended.is_some_and(|status| status.success()), said });
    }
    Err(Error::Refused(format!("no [[hooks.webhook]] or [[hooks.command]] is called '{name}'")))
}
