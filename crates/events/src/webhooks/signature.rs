//! Checks that the sender of a delivery knows the secret. Signatures cover the raw bytes of the body, and
//! weir compares them in constant time.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::{hmac, signature};
use subtle::ConstantTimeEq;
use weir_ground::unhex;

use crate::error::SecretError;
use crate::webhooks::delivery::header;
use crate::webhooks::forge::WebhookForge;

/// How many seconds the time in a signature may be away from the clock here (Standard Webhooks, "Verifying
/// webhook authenticity").
const AGE_MAX_S: u64 = 300;
/// The key with which sr.ht signs (<https://man.sr.ht/api-conventions.md#webhook-signatures>).
const SOURCEHUT_KEY: &str = "uX7KWyyDNMaBma4aVbJ/cbUQpdjqczuCyK/HxzV/u+4=";
/// The prefix of secrets of Standard Webhooks.
const STANDARD_PREFIX: &str = "whsec_";

/// A secret of a webhook, ready to check with.
pub(crate) struct WebhookKey {
    text: Vec<u8>,
    sha256: hmac::Key,
    sha1: hmac::Key,
    /// For signatures of Standard Webhooks.
    standard: hmac::Key,
    /// The key of a site that signs with a private key.
    public: Option<signature::UnparsedPublicKey<Vec<u8>>>,
}

impl WebhookKey {
    /// Returns the key that `secret` is for `forge`.
    ///
    /// # Errors
    /// If it cannot be one.
    pub(crate) fn new(forge: WebhookForge, secret: &str) -> Result<WebhookKey, SecretError> {
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| SecretError::NotBase64);
        let standard = match secret.strip_prefix(STANDARD_PREFIX) {
            Some(rest) => decode(rest)?,
            None => secret.as_bytes().to_vec(),
        };
        let public = match forge.has_public_key() {
            true => {
                let key = decode(secret)?;
                if key.len() != 32 {
                    return Err(SecretError::NoPublicKey);
                }
                Some(signature::UnparsedPublicKey::new(&signature::ED25519, key))
            }
            false => None,
        };
        Ok(WebhookKey {
            text: secret.as_bytes().to_vec(),
            sha256: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            sha1: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes()),
            standard: hmac::Key::new(hmac::HMAC_SHA256, &standard),
            public,
        })
    }

    /// Returns the HMAC-SHA256 of `body` with the text of the secret.
    pub(crate) fn sign(&self, body: &[u8]) -> Vec<u8> {
        hmac::sign(&self.sha256, body).as_ref().to_vec()
    }

    /// Returns the HMAC-SHA256 of `signed` as Standard Webhooks uses the secret.
    pub(crate) fn sign_standard(&self, signed: &[u8]) -> Vec<u8> {
        hmac::sign(&self.standard, signed).as_ref().to_vec()
    }

    /// Returns the keys that need no setting.
    pub(crate) fn known(forge: WebhookForge) -> Vec<WebhookKey> {
        let key = forge.has_public_key().then(|| WebhookKey::new(forge, SOURCEHUT_KEY));
        key.and_then(Result::ok).into_iter().collect()
    }
}

/// Checks the signature or token of a delivery at `now_s`, seconds since 1970, against each of `keys`.
///
/// # Errors
/// If none fits. The error says what is wrong.
pub(crate) fn check(
    forge: WebhookForge,
    keys: &[WebhookKey],
    headers: &HeaderMap,
    body: &[u8],
    now_s: u64,
) -> Result<(), &'static str> {
    let any = |fits: &dyn Fn(&WebhookKey) -> bool| keys.iter().any(fits);
    let is_right = match forge {
        WebhookForge::GitHub | WebhookForge::Bitbucket => {
            // Bitbucket names the method in the value, too.
            let name = if forge == WebhookForge::GitHub { "x-hub-signature-256" } else { "x-hub-signature" };
            let sent = header(headers, name).ok_or("it is not signed: set the secret of the webhook")?;
            let sent =
                sent.strip_prefix("sha256=").and_then(unhex_any).ok_or("its signature is malformed")?;
            any(&|key| hmac::verify(&key.sha256, body, &sent).is_ok())
        }
        WebhookForge::Gitea | WebhookForge::Forgejo | WebhookForge::Gogs => {
            let name = match forge {
                WebhookForge::Gitea => "x-gitea-signature",
                WebhookForge::Forgejo => "x-forgejo-signature",
                _ => "x-gogs-signature",
            };
            let sent = header(headers, name).ok_or("it is not signed: set the secret of the webhook")?;
            let sent = unhex_any(sent).ok_or("its signature is malformed")?;
            any(&|key| hmac::verify(&key.sha256, body, &sent).is_ok())
        }
        WebhookForge::GitLab if headers.contains_key("webhook-signature") => {
            standard(keys, headers, body, now_s)?
        }
        WebhookForge::GitLab => {
            let sent = header(headers, "x-gitlab-token").ok_or("it has no token: set that of the webhook")?;
            any(&|key| key.text.ct_eq(sent.as_bytes()).into())
        }
        WebhookForge::SourceForge => {
            let sent = header(headers, "x-allura-signature").ok_or("it is not signed")?;
            let sent = sent.strip_prefix("sha1=").and_then(unhex_any).ok_or("its signature is malformed")?;
            any(&|key| hmac::verify(&key.sha1, body, &sent).is_ok())
        }
        WebhookForge::Sourcehut => {
            let sent = header(headers, "x-payload-signature").ok_or("it is not signed")?;
            let sent = STANDARD.decode(sent).map_err(|_| "its signature is malformed")?;
            let nonce = header(headers, "x-payload-nonce").ok_or("its signature has no nonce")?;
            let signed = [body, nonce.as_bytes()].concat();
            any(&|key| key.public.as_ref().is_some_and(|public| public.verify(&signed, &sent).is_ok()))
        }
        WebhookForge::AzureDevOps => {
            let sent = credentials(headers, "basic").ok_or("it has no password: set that of the hook")?;
            let sent = STANDARD.decode(sent).map_err(|_| "its password is malformed")?;
            let at = sent.iter().position(|&byte| byte == b':').ok_or("its password is malformed")?;
            any(&|key| key.text.ct_eq(&sent[at + 1..]).into())
        }
        WebhookForge::Standard => standard(keys, headers, body, now_s)?,
        WebhookForge::Generic => {
            let sent = credentials(headers, "bearer").ok_or("it has no bearer token")?;
            any(&|key| key.text.ct_eq(sent.as_bytes()).into())
        }
    };
    if is_right { Ok(()) } else { Err("it was made with another secret than weir has for this webhook") }
}

/// Checks a signature as <https://www.standardwebhooks.com> specifies.
fn standard(keys: &[WebhookKey], headers: &HeaderMap, body: &[u8], now_s: u64) -> Result<bool, &'static str> {
    let id = header(headers, "webhook-id").ok_or("it has no header webhook-id")?;
    let time = header(headers, "webhook-timestamp").ok_or("it has no header webhook-timestamp")?;
    let sent = header(headers, "webhook-signature").ok_or("it is not signed")?;
    let at_s: u64 = time.parse().map_err(|_| "its time is malformed")?;
    if at_s.abs_diff(now_s) > AGE_MAX_S {
        return Err("its time is more than 5 minutes away from the clock of this machine");
    }
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
    let of_version_1 = sent.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let mut all = of_version_1.filter_map(|one| STANDARD.decode(one).ok());
    Ok(all.any(|one| keys.iter().any(|key| hmac::verify(&key.standard, &signed, &one).is_ok())))
}

/// Returns the credentials of the header Authorization with this scheme.
fn credentials<'h>(headers: &'h HeaderMap, scheme: &str) -> Option<&'h str> {
    let (sent, rest) = header(headers, "authorization")?.split_once(' ')?;
    sent.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

/// Returns the bytes that digits of either case mean.
fn unhex_any(text: &str) -> Option<Vec<u8>> {
    unhex(&text.to_ascii_lowercase()).filter(|bytes| !bytes.is_empty())
}
