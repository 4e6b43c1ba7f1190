//! The environment that weir was started in, and git's configuration.

use std::path::PathBuf;

use weir_repo::{ConfigScope, GitConfig};
use weir_settings::Environment;
use weir_transport::{ExtraHeader, ExtraValue};

use crate::presentation::presentation;

/// Returns the environment of this process, for settings.
pub(crate) fn environment() -> Environment {
    Environment { variable: |name| std::env::var_os(name), extra_headers }
}

/// Returns the headers that git's configuration adds to requests: `http.extraHeader`, `http.cookieFile`. None
/// if the configuration cannot be read.
fn extra_headers() -> Vec<ExtraHeader> {
    let read = || -> Result<Vec<ExtraHeader>, String> {
        let how = presentation()?;
        let mut config = GitConfig::default();
        for file in &how.files_before {
            let scope = ConfigScope { git_dir: None, home: &how.home };
            config.read(file, scope).map_err(|e| e.to_string())?;
        }
        config.append(&how.environment);
        let setting = |scope: Option<&str>, value| ExtraHeader { scope: scope.map(str::to_owned), value };
        let headers = config.values_of("http", "extraheader").into_iter();
        let headers = headers.map(|(scope, line)| setting(scope, ExtraValue::Header(line.to_owned())));
        let files = config.values_of("http", "cookiefile").into_iter().map(|(scope, path)| {
            let path =
                path.strip_prefix("~/").map_or_else(|| PathBuf::from(path), |path| how.home.join(path));
            setting(scope, ExtraValue::CookieFile(path))
        });
        Ok(headers.chain(files).collect())
    };
    read().unwrap_or_else(|why| {
        tracing::warn!("http.extraHeader and http.cookieFile of git's configuration do not count: {why}");
        Vec::new()
    })
}
