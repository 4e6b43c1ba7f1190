//! Notices that a client of HTTP/1 has hung up while its answer is made.

use std::os::fd::RawFd;
use std::time::Duration;

use hyper::{Request, Version};

use crate::sockets::paced::Activity;
use crate::sockets::socket::has_ended;

/// How often the connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a client that has ended its half of the connection may wait for the first bytes of its answer. It
/// may have hung up as well: TCP does not tell.
const SILENT_AFTER_END_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(
    LOOK_EVERY.as_millis() * 2 < SILENT_AFTER_END_MAX.as_millis(),
    "a silent client is looked at more than once"
);

/// The connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct HangUp {
    /// Open for as long as the request is answered: a request of HTTP/1 is a part of its connection's task.
    fd: RawFd,
    activity: Activity,
}

impl HangUp {
    pub(crate) fn new(fd: RawFd, activity: Activity) -> HangUp {
        HangUp { fd, activity }
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Notes the connection in a request of HTTP/1. Those of HTTP/2 end with their connection by themselves.
    pub(crate) fn note_in<B>(&self, request: &mut Request<B>) {
        if request.version() < Version::HTTP_2 {
            request.extensions_mut().insert(self.clone());
        }
    }

    /// Resolves when the client of `connection` has hung up; never, if there is none.
    pub(crate) async fn of(connection: Option<&HangUp>) {
        let Some(HangUp { fd, activity }) = connection else { return std::future::pending().await };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if activity.quiet() >= SILENT_AFTER_END_MAX && has_ended(*fd) {
                return;
            }
        }
    }
}
