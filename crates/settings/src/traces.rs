//! The table `[traces]`: where spans of requests and visits are sent.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize, Serializer};

/// Headers that weir sets itself.
const OWN_HEADERS: [&str; 5] = ["content-length", "content-type", "host", "transfer-encoding", "connection"];

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
        if let Some(fault) = self.endpoint.as_deref().and_then(fault_of_endpoint) {
            return Some(("traces.endpoint", fault));
        }
        for (name, value) in &self.headers {
            let lower = name.to_ascii_lowercase();
            let fault = match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                (Err(_), _) => format!("has '{}', which is no name of a header", name.escape_default()),
                (_, Err(_)) => format!("has a value for '{name}' that no header can have"),
                _ if OWN_HEADERS.contains(&&*lower) => format!("has '{name}', which weir sets itself"),
                _ => continue,
            };
            return Some(("traces.headers", fault));
        }
        if self.service_name.is_empty() {
            return Some(("traces.service_name", "must not be empty".to_owned()));
        }
        let is_share = (0.0..=1.0).contains(&self.sample_ratio);
        (!is_share)
            .then(|| ("traces.sample_ratio", format!("must be from 0 to 1, not {}", self.sample_ratio)))
    }
}

/// Returns what is wrong with the URL of a collector. The words do not repeat a password.
fn fault_of_endpoint(endpoint: &str) -> Option<String> {
    let fault = |words: &str| Some(words.to_owned());
    let Ok(url) = endpoint.parse::<Uri>() else { return fault("must be a URL of http or https") };
    let Some(authority) = url.authority().filter(|_| matches!(url.scheme_str(), Some("http" | "https")))
    else {
        return fault("must be a URL of http or https");
    };
    let port =
        authority.as_str().rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    if authority.as_str().contains('@') {
        fault("must have no user and password: use traces.headers")
    } else if authority.host().is_empty() || port.is_some() && authority.port_u16().is_none() {
        fault("must have a host, and a port from 1 to 65535")
    } else if url.query().is_some() {
        fault("must have no '?': the path /v1/traces is appended")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let of =
            |endpoint: &str| TracesConfig { endpoint: Some(endpoint.to_owned()), ..TracesConfig::default() };
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://[::1]:4318/", "https://[::1]:4318/v1/traces"),
            ("http://host/base/v1/traces", "http://host/base/v1/traces"),
        ] {
            assert_eq!((of(endpoint).fault(), of(endpoint).url().as_deref()), (None, Some(url)));
        }
        for wrong in [
            "",
            "host:4318",
            "ftp://host",
            "http://",
            "http://h:99999",
            "http://u:pw@h",
            "http://h/?key=1",
            "/v1",
        ] {
            let (key, words) = of(wrong).fault().unwrap_or_else(|| panic!("{wrong}"));
            assert!(key == "traces.endpoint" && !words.contains("pw"), "{wrong}: {words}");
        }
        let with = |name: &str, value: &str| {
            let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            TracesConfig { headers, ..TracesConfig::default() }.fault().map(|(key, _)| key)
        };
        assert_eq!(with("Authorization", "Bearer x"), None);
        for (name, value) in [("Bad Name", "x"), ("X", "a\nb"), ("content-LENGTH", "3"), ("Host", "evil")] {
            assert_eq!(with(name, value), Some("traces.headers"), "{name}");
        }
        assert!(TracesConfig { service_name: String::new(), ..TracesConfig::default() }.fault().is_some());
        assert!(TracesConfig { sample_ratio: f64::NAN, ..TracesConfig::default() }.fault().is_some());
    }
}
