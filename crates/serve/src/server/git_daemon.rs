//! git:// (gitprotocol-pack, "Git Transport"): one small task per connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use weir_git::pktline::{self, Pkt};
use weir_ground::{MinRate, printable};
use weir_upload::{DaemonRequest, Service, Step, UploadPack, Version, parse_daemon_request};

use crate::access::locate::{AwaitedFor, BUSY, Client, Refusal};
use crate::access::opened::Opened;
use crate::access::repositories::FoundRepository;
use crate::counts::RequestKind;
use crate::limits::admission::Party;
use crate::request_log::{AccessFields, RequestEntry, next_request_id};
use crate::server::arriving::send_arriving;
use crate::server::daemon::Daemon;
use crate::server::jobs::Out;
use crate::sockets::send::{Gone, Sender};
use crate::sockets::socket::Socket;

/// Bytes read at a time; also the most a first line may have.
const READ_BYTES: usize = 8 << 10;
const FIRST_LINE_BYTES_MAX: usize = 8 << 10;
/// A request that is longer is not read again after a visit to the upstream.
const READ_AGAIN_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(
    READ_BYTES <= READ_AGAIN_BYTES_MAX && FIRST_LINE_BYTES_MAX <= READ_BYTES,
    "a first line is read at once"
);

impl Out for Sender<'_> {
    async fn give(&mut self, bytes: Bytes) -> io::Result<()> {
        self.bytes(&bytes).await
    }
    fn restart(&mut self) {
        Sender::restart(self);
    }
    async fn gone(&mut self) -> Gone {
        Sender::gone(self).await
    }
}

/// The client has closed the connection.
struct ClientGone;

/// A request over git://, and who sent it.
struct GitAsk<'a> {
    request: &'a DaemonRequest,
    client: Client,
}

impl Daemon {
    pub(crate) async fn converse(
        self: &Arc<Self>,
        stream: &Socket,
        peer: Option<SocketAddr>,
    ) -> io::Result<()> {
        let mut sender = Sender::new(stream, self.limits.idle_timeout, self.limits.bytes_per_second_min);
        let mut input = Vec::new();
        let first = tokio::time::timeout(self.limits.init_timeout, first_line(stream, &mut input)).await;
        let Ok(first) = first else { return Err(io::Error::new(io::ErrorKind::TimedOut, "no request came")) };
        let Some((line, used)) = first? else { return Ok(()) };
        let Some(request) = parse_daemon_request(&line) else {
            self.note_malformed_git(peer);
            return self.refuse(&mut sender, "weir: not a git request; this is a read-only git server").await;
        };
        let mut entry = self.entry_of_git(&request, peer);
        "refused".clone_into(&mut entry.status);
        let client = Client::at(peer);
        let found = match self.find_git(&request, client.clone()).await {
            Ok(found) => found,
            Err(refusal) => {
                entry.set_status_of_http(refusal.status().as_u16());
                self.notices.say(
                    peer.map(|p| p.ip()),
                    "refused",
                    &refusal.words_without_token().escape_default(),
                );
                return self.refuse(&mut sender, refusal.words_without_token()).await;
            }
        };
        let opened = {
            let opening = self.repositories.open_found(found, &request.path, peer);
            tokio::pin!(opening);
            loop {
                tokio::select! {
                    biased;
                    opened = &mut opening => break opened,
                    // Nothing is opened for a client that has gone.
                    gone = sender.gone() => if gone == Gone::Whole { return Ok(()) },
                }
            }
        };
        let Opened { repo, features, .. } = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                entry.set_status_of_http(refusal.status().as_u16());
                let is_failure = matches!(refusal, Refusal::Failed(_));
                let before = if is_failure { "weir: " } else { "" };
                return self.refuse(&mut sender, &format!("{before}{}", refusal.words())).await;
            }
        };
        let party = Party::new(peer, repo.path());
        let options = self.options_with(features, &request.path);
        let mut machine = match request.service {
            Service::UploadArchive => UploadPack::archiving(repo, options),
            _ => UploadPack::new(repo, Version::from_number(request.version), options),
        };
        let fed = input.split_off(used);
        drop(input);
        if !fed.is_empty() {
            let _ = machine.feed(&fed);
        }
        let asked = GitAsk { request: &request, client };
        let result = self.drive(&mut machine, fed, &mut sender, &party, &asked).await;
        if let Some(why) = machine.failure() {
            self.notices.say(
                party.address,
                "no answer",
                &format_args!("{} {}", request.path.escape_default(), why.escape_default()),
            );
        }
        "ok".clone_into(&mut entry.status);
        entry.set_status_of_http(StatusCode::OK.as_u16());
        (entry.bytes, entry.is_whole) = (sender.sent, result.is_ok() && machine.failure().is_none());
        result
    }

    /// Finds what `request` asks for.
    async fn find_git(&self, request: &DaemonRequest, client: Client) -> Result<FoundRepository, Refusal> {
        // Before version 2, a conversation keeps to what it has begun with.
        let takes_arriving = request.service == Service::UploadPack && request.version == 2;
        let why = if takes_arriving { AwaitedFor::Arriving } else { AwaitedFor::Begin };
        self.repositories.find_fresh(request, client, Some(why), takes_arriving).await
    }

    /// Writes a line of the access log about a request that is none of git's.
    fn note_malformed_git(&self, peer: Option<SocketAddr>) {
        if let Some(log) = &self.sinks.log {
            log.malformed("git", StatusCode::BAD_REQUEST.as_u16(), peer);
        }
    }

    /// Starts the entry of a request in the logs.
    fn entry_of_git(&self, request: &DaemonRequest, peer: Option<SocketAddr>) -> RequestEntry {
        let command = format!("git-{}", request.service.name());
        let path = request.path.clone();
        let kind = RequestKind::Git;
        let entry =
            RequestEntry::start(self.counts.clone(), kind, peer, "git", command.clone(), path.clone());
        if self.sinks.is_empty() {
            return entry;
        }
        let version = match request.version {
            2 => "GIT/2",
            1 => "GIT/1",
            _ => "GIT/0",
        };
        let request_id = next_request_id();
        let context = self.sinks.context_of(None);
        let (method, target) = (command, path);
        let fields = AccessFields { request_id, version, method, target, context, ..AccessFields::default() };
        entry.with_access(self.sinks.clone(), fields)
    }

    async fn refuse(&self, sender: &mut Sender<'_>, why: &str) -> io::Result<()> {
        let mut out = Vec::new();
        let shown = printable(why);
        pktline::push(&mut out, format!("ERR {shown}").as_bytes());
        sender.bytes(&out).await
    }

    /// Waits for a visit to the upstream, because the copy lacks what the client wants. Returns a
    /// conversation over the copy as it is then, which has read the client's request `fed`; `None` if there
    /// is no visit; a refusal if there is no copy, because what `was_arriving` has failed.
    async fn after_visit(
        self: &Arc<Self>,
        asked: &GitAsk<'_>,
        fed: &[u8],
        sender: &mut Sender<'_>,
        was_arriving: bool,
    ) -> Result<Result<Option<UploadPack>, Refusal>, ClientGone> {
        let GitAsk { request, client } = asked;
        let visit = async {
            let found = self.repositories.find_missing(request, client.clone(), was_arriving).await?;
            let Some(found) = found else { return Ok(None) };
            self.repositories.open(found, &request.path, client.address).await.map(Some)
        };
        tokio::pin!(visit);
        let opened = loop {
            tokio::select! {
                biased;
                opened = &mut visit => break opened,
                // Nobody waits any more.
                gone = sender.gone() => if gone == Gone::Whole { return Err(ClientGone) },
            }
        };
        sender.restart();
        let opened = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                let (path, why) = (request.path.escape_default(), refusal.words_without_token());
                tracing::info!("no visit for what a client wants of {path}: {}", why.escape_default());
                // The client is told what it would be told without a visit, if that is known.
                return Ok(if was_arriving { Err(refusal) } else { Ok(None) });
            }
        };
        let Some(Opened { repo, features, .. }) = opened else { return Ok(Ok(None)) };
        let options = self.options_with(features, &request.path);
        let mut machine = UploadPack::new(repo, Version::from_number(request.version), options);
        // The client has the capabilities already.
        while let Step::Send(_) = machine.step() {}
        let _ = machine.feed(fed);
        Ok(Ok(Some(machine)))
    }

    /// Reads from a client, and feeds `machine`. Appends what came to `fed`, unless the request is too long.
    /// Returns the number of bytes.
    async fn feed(
        &self,
        machine: &mut UploadPack,
        fed: &mut Option<Vec<u8>>,
        sender: &mut Sender<'_>,
    ) -> io::Result<usize> {
        let read = tokio::time::timeout(self.limits.idle_timeout, async {
            loop {
                sender.stream.readable().await?;
                sender.stream.quick_ack();
                // On the stack: a connection that waits owns no buffer.
                let mut buf = [0; READ_BYTES];
                match sender.stream.try_read(&mut buf) {
                    Ok(n) => {
                        *fed = fed.take().filter(|fed| fed.len() + n <= READ_AGAIN_BYTES_MAX);
                        fed.iter_mut().for_each(|fed| fed.extend_from_slice(&buf[..n]));
                        // A refusal is queued for the client; the machine then ends.
                        let _ = machine.feed(&buf[..n]);
                        return Ok::<usize, io::Error>(n);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
        });
        read.await.map_err(|_| timed_out("the client says nothing"))?
    }

    /// Converses with a client, which has sent `fed`.
    async fn drive(
        self: &Arc<Self>,
        machine: &mut UploadPack,
        fed: Vec<u8>,
        sender: &mut Sender<'_>,
        party: &Party,
        asked: &GitAsk<'_>,
    ) -> io::Result<()> {
        // In version 2 nothing that was answered before counts. `None` if a request is too long.
        let is_read_again = asked.request.service == Service::UploadPack && asked.request.version == 2;
        let mut fed = is_read_again.then_some(fed);
        let mut share = self.request_room.share(party.address);
        // When the reading of a request began, and how much of it has come.
        let mut reading: Option<MinRate> = None;
        loop {
            if machine.lacks_what_is_wanted()
                && let Some(fed) = fed.take().filter(|fed| !fed.is_empty())
            {
                match self.after_visit(asked, &fed, sender, machine.is_arriving()).await {
                    Ok(Ok(Some(fresh))) => *machine = fresh,
                    Ok(Ok(None)) => {}
                    Ok(Err(refusal)) => return self.refuse(sender, refusal.words_without_token()).await,
                    Err(ClientGone) => return Ok(()),
                }
            }
            match machine.step() {
                Step::Send(bytes) => {
                    // What came ahead of its turn is no whole request.
                    fed = (is_read_again && machine.request_bytes() == 0).then(Vec::new);
                    reading = None;
                    sender.bytes(&bytes).await?;
                }
                Step::SendRegion(region, framing) => sender.region(&region, framing).await?,
                Step::SendArriving(pack, framing) => {
                    machine.finish(send_arriving(&pack, framing, sender).await?);
                }
                Step::Work(work) => {
                    reading = None;
                    let outcome = self.follow(self.start(work, party), sender).await?;
                    machine.finish(outcome);
                }
                Step::Read => {
                    match self.feed(machine, &mut fed, sender).await? {
                        0 => return Ok(()),
                        n => {
                            let rate =
                                reading.get_or_insert_with(|| MinRate::new(self.limits.bytes_per_second_min));
                            rate.moved(n as u64);
                            if rate.is_too_slow() {
                                return Err(timed_out("the request comes too slowly"));
                            }
                        }
                    }
                    if share.resize(machine.request_bytes()).is_err() {
                        return self.refuse(sender, BUSY).await;
                    }
                    sender.restart();
                }
                Step::Done => return Ok(()),
            }
        }
    }
}

fn timed_out(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Reads until the first pkt-line is complete. Returns it, and how many bytes of `input` it takes.
async fn first_line(stream: &Socket, input: &mut Vec<u8>) -> io::Result<Option<(Vec<u8>, usize)>> {
    loop {
        match pktline::decode(input)? {
            Some((Pkt::Line(line), used)) => return Ok(Some((line.to_vec(), used))),
            Some(_) => return Ok(None),
            None if input.len() >= FIRST_LINE_BYTES_MAX => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the first line is too long"));
            }
            None => {}
        }
        stream.readable().await?;
        stream.quick_ack();
        let mut buf = [0; READ_BYTES];
        match stream.try_read(&mut buf) {
            Ok(0) => return Ok(None),
            Ok(n) => input.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}
