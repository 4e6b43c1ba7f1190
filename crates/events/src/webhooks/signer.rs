//! Signs webhooks that weir sends, as Standard Webhooks says (standardwebhooks.com), and as GitHub does.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_ground::hex;

use crate::error::SecretError;
use crate::webhooks::forge::WebhookForge;
use crate::webhooks::signature::WebhookKey;

/// Signs the messages to one receiver.
pub struct WebhookSigner {
    /// The secrets: while one is replaced, the receiver may have either.
    keys: Vec<WebhookKey>,
}

impl WebhookSigner {
    /// Returns a signer with `secrets`, of which the first is the current one.
    ///
    /// # Errors
    /// If one begins with `whsec_` and is not in base64.
    pub fn new(secrets: &[String]) -> Result<WebhookSigner, SecretError> {
        let key = |secret: &String| WebhookKey::new(WebhookForge::Standard, secret);
        Ok(WebhookSigner { keys: secrets.iter().map(key).collect::<Result<_, _>>()? })
    }

    /// Returns the headers of the message `id` with `body`, sent at `now_s`, in seconds since 1970. Each
    /// attempt has a time of its own.
    pub fn headers(&self, id: &str, now_s: u64, body: &[u8]) -> Vec<(&'static str, String)> {
        let mut headers = vec![("webhook-id", id.to_owned()), ("webhook-timestamp", now_s.to_string())];
        if let Some(first) = self.keys.first() {
            let signed = [id.as_bytes(), b".", now_s.to_string().as_bytes(), b".", body].concat();
            let all =
                self.keys.iter().map(|key| format!("v1,{}", STANDARD.encode(key.sign_standard(&signed))));
            headers.push(("webhook-signature", all.collect::<Vec<_>>().join(" ")));
            headers.push(("x-hub-signature-256", format!("sha256={}", hex(&first.sign(body)))));
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::webhooks::signature::check;

    #[test]
    fn what_is_signed_here_is_believed_here() {
        let secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "old"].map(str::to_owned);
        let signer = WebhookSigner::new(&secrets).unwrap();
        let headers = signer.headers("weir-1", 1_700_000_000, b"body");
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        for (forge, secret) in [
            (WebhookForge::Standard, &secrets[0]),
            (WebhookForge::Standard, &secrets[1]),
            (WebhookForge::GitHub, &secrets[0]),
        ] {
            let keys = [WebhookKey::new(forge, secret).unwrap()];
            assert_eq!(check(forge, &keys, &map, b"body", 1_700_000_100), Ok(()));
            assert!(check(forge, &keys, &map, b"other", 1_700_000_100).is_err());
        }
        // The example of the specification (standard-webhooks/spec, "Symmetric").
        let signer = WebhookSigner::new(&secrets[..1]).unwrap();
        let headers =
            signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(headers[2].1, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(WebhookSigner::new(&["whsec_?".to_owned()]).is_err());
        assert_eq!(WebhookSigner::new(&[]).unwrap().headers("x", 1, b"").len(), 2);
    }
}
