//! Decides who may send lines: by a token, or by the user at the other end of a Unix socket.

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

use crate::doors::intake::BatchShare;

/// The word before a token, in a line of its own.
const AUTH: &[u8] = b"auth ";

/// Who may send lines. The default is everybody.
#[derive(Clone, Debug, Default)]
pub struct DoorGate {
    /// The names and SHA-256 of tokens, of which a sender over TCP or UDP needs one; empty, if nobody needs
    /// any.
    pub tokens: Vec<(String, [u8; 32])>,
    /// The users who may send over a Unix socket without a token; all, if there is no list.
    pub users: Option<Vec<u32>>,
}

/// A sender, as far as it is known.
pub(crate) struct LineSender {
    /// The socket and the peer, and the name of its token.
    pub(crate) peer: Box<str>,
    /// Whether it may send lines.
    pub(crate) is_known: bool,
    /// Whether it has sent no line yet.
    pub(crate) is_new: bool,
    /// Its share of the batch that is being filled.
    pub(crate) share: BatchShare,
}

impl LineSender {
    pub(crate) fn new(peer: String, is_known: bool) -> LineSender {
        LineSender { peer: peer.into(), is_known, is_new: true, share: BatchShare::default() }
    }
}

/// The result of a line of a sender that is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateVerdict {
    /// It had a token: the sender is known from here on.
    Known,
    /// It had none, or a wrong one: the reason.
    Refused(&'static str),
}

impl DoorGate {
    /// Returns whether senders over TCP and UDP need a token.
    pub(crate) fn needs_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Returns whether the user `uid` may send over a Unix socket without a token; `None` is a user that the
    /// system does not name.
    pub(crate) fn lets_in(&self, uid: Option<u32>) -> bool {
        self.users.as_ref().is_none_or(|users| uid.is_some_and(|uid| users.contains(&uid)))
    }

    /// Reads a line of `sender`. With `auth TOKEN`, it becomes known if the token is right. Returns `None` if
    /// the line is another one, of a sender that may send it. A token is never taken for an event: such a
    /// line has no other meaning if there are tokens, or if it is the first one.
    pub(crate) fn ask(&self, line: &[u8], sender: &mut LineSender) -> Option<GateVerdict> {
        let is_new = std::mem::replace(&mut sender.is_new, false);
        if sender.is_known && !is_new && !self.needs_tokens() {
            return None;
        }
        let token = line.trim_ascii().strip_prefix(AUTH).map(<[u8]>::trim_ascii);
        let token = token.filter(|token| !token.is_empty() && !token.iter().any(u8::is_ascii_whitespace));
        let Some(token) = token else {
            return (!sender.is_known).then_some(GateVerdict::Refused("say 'auth TOKEN' first"));
        };
        if !self.needs_tokens() && sender.is_known {
            return Some(GateVerdict::Known);
        }
        let sum = digest(&SHA256, token);
        let found = self.tokens.iter().find(|(_, known)| known.ct_eq(sum.as_ref()).into());
        let Some((name, _)) = found else { return Some(GateVerdict::Refused("the token is wrong")) };
        let peer = sender.peer.split(" token=").next().unwrap_or_default();
        sender.peer = format!("{peer} token={name}").into();
        sender.is_known = true;
        Some(GateVerdict::Known)
    }
}
