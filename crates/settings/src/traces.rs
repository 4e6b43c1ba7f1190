//! The table `[traces]`: where spans of requests and visits are sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// The table `[traces]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesConfig {
    /// The collector that takes spans by OTLP over HTTP, to whose URL `/v1/traces` is appended; none are made
    /// without it.
    pub endpoint: Option<String>,
    /// Headers that are sent to it. They may hold a token, and are shown without their values.
    #[serde(serialize_with = "without_values")]
    pub headers: BTreeMap<String, String>,
    /// The share of traces that are sent, from 0 to 1, of those of which the client says nothing.
    pub sample_ratio: f64,
    /// The name under which this weir appears.
    pub service_name: String,
}

fn without_values<S: Serializer>(
    headers: &BTreeMap<String, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.keys().map(|name| (name, "(hidden)")))
}

impl Default for TracesConfig {
    fn default() -> TracesConfig {
        TracesConfig {
            endpoint: None,
            headers: BTreeMap::new(),
            sample_ratio: 1.0,
            service_name: "weir".to_owned(),
        }
    }
}

impl TracesConfig {
    /// Returns the URL to which spans are posted; `None` if there are none.
    pub fn url(&self) -> Option<String> {
        let endpoint = self.endpoint.as_deref()?.trim_end_matches('/');
        Some(format!("{}/v1/traces", endpoint.strip_suffix("/v1/traces").unwrap_or(endpoint)))
    }

    /// Returns a setting that is wrong, and what is wrong with it.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(url) = self.endpoint.as_ref().filter(|url| !is_url(url)) {
            return Some(("traces.endpoint", format!("must be a URL of http or https, not '{url}'")));
        }
        let is_share = (0.0..=1.0).contains(&self.sample_ratio);
        (!is_share)
            .then(|| ("traces.sample_ratio", format!("must be from 0 to 1, not {}", self.sample_ratio)))
    }
}
