//! Posts a body to a URL, over the same proxies and with the same trust as visits.

use std::time::{Duration, SystemTime};

use ureq::Agent;
use ureq::http::header::RETRY_AFTER;
use ureq::tls::RootCerts;

use crate::proxy::{Proxies, ProxyError, http_client};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 4 << 10;

/// A client that posts.
pub struct HttpPost {
    agent: Agent,
    timeout: Duration,
}

/// An answer to a POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostAnswer {
    /// The status code.
    pub status: u16,
    /// The seconds after which to come again, if the answer has them.
    pub retry_after_s: Option<u64>,
    /// The beginning of the body.
    pub text: String,
}

/// Why a POST has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// It did not come in time.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// The request could not be sent, or the answer not be read.
    #[error(transparent)]
    Http(ureq::Error),
}

impl HttpPost {
    /// Returns a client that calls itself `agent`, and waits at most `timeout` for an answer. It follows no
    /// redirects.
    ///
    /// # Errors
    /// If the text of a proxy is no URL of one.
    pub fn new(
        url: &str,
        agent: &str,
        timeout: Duration,
        proxies: &Proxies,
        roots: RootCerts,
    ) -> Result<HttpPost, ProxyError> {
        let config = Agent::config_builder()
            .user_agent(agent)
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .max_redirects(0)
            .max_redirects_will_error(false);
        let proxy = proxies.of_http(url.starts_with("https://"))?;
        Ok(HttpPost { agent: http_client(config, proxy, roots), timeout })
    }

    /// Sends `body` to `url`.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn post(&self, url: &str, headers: &[(&str, String)], body: &[u8]) -> Result<PostAnswer, PostError> {
        let mut request = self.agent.post(url).content_type("application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let mut answer = request.send(body).map_err(|e| match e {
            ureq::Error::Timeout(_) => PostError::TimedOut(self.timeout.as_secs()),
            e => PostError::Http(e),
        })?;
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after_s = retry_after.and_then(seconds_of);
        let limited = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = limited.lossy_utf8(true).read_to_string().unwrap_or_default();
        Ok(PostAnswer { status: answer.status().as_u16(), retry_after_s, text })
    }
}

/// Returns the seconds from now that `Retry-After` asks for: a number, or a date (RFC 9110, section 10.2.3).
fn seconds_of(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(SystemTime::now()).map_or(0, |wait| wait.as_secs() + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_seconds_or_dates() {
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(120));
        assert!((115..125).contains(&seconds_of(&soon).unwrap()), "{soon}");
        assert_eq!((seconds_of(" 7 "), seconds_of("Sun, 06 Nov 1994 08:49:37 GMT")), (Some(7), Some(0)));
        assert_eq!((seconds_of("-1"), seconds_of("soon")), (None, None));
    }
}
