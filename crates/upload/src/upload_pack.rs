//! The state machine: splits input into pkt-lines and queues answers.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_git::pktline;
use weir_repo::{Repo, StoredClone, pack_header};

use crate::answer::{Answer, Step, list_refs};
use crate::archive::ArchiveArguments;
use crate::band::Framing;
use crate::error::{RequestError, refuse};
use crate::options::{Context, NOT_OUR_REF, UploadOptions};
use crate::pack_request::WorkOutcome;
use crate::v0::V0;
use crate::v2::V2;
use crate::work::{RefsList, RefsRequest, TrailerRequest, Work};
use crate::{advertise, archive, v0, v2};

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 0.
    V0,
    /// Version 1: version 0 with an announcement.
    V1,
    /// Version 2 (gitprotocol-v2).
    V2,
}

impl Version {
    /// Returns the version for the number that a client requests.
    pub fn from_number(n: u8) -> Version {
        match n {
            0 => Version::V0,
            1 => Version::V1,
            _ => Version::V2,
        }
    }
}

impl Version {
    /// Returns the highest version named in `GIT_PROTOCOL` or the `Git-Protocol` header.
    pub fn from_protocol(words: &str) -> Version {
        let versions = words.split(':').filter_map(|word| word.strip_prefix("version=")?.parse::<u8>().ok());
        Version::from_number(versions.filter(|v| *v <= 2).max().unwrap_or(0))
    }
}

/// Regions up to this size are copied into the bytes around them: one system call instead of several.
const INLINE_BYTES_MAX: usize = 32 << 10;

enum Protocol {
    V0(Box<V0>),
    V2(V2),
    Archive(ArchiveArguments),
}

/// A session with one client on one repository.
pub struct UploadPack {
    pub(crate) repo: Arc<Repo>,
    pub(crate) options: Arc<UploadOptions>,
    input: Vec<u8>,
    used: usize,
    /// The bytes of the current request that were processed.
    request_bytes: usize,
    out: VecDeque<Step>,
    protocol: Option<Protocol>,
    /// Whether the current work lists refs.
    is_listing: bool,
    pub(crate) ended: bool,
    failure: Option<String>,
}

impl UploadPack {
    /// Starts a session and queues the advertisement.
    ///
    /// Over HTTP the advertisement is a separate answer: see [`UploadPack::answering`].
    pub fn new(repo: Arc<Repo>, version: Version, options: impl Into<Arc<UploadOptions>>) -> UploadPack {
        let mut machine = UploadPack::answering(repo, version, options);
        if version == Version::V2 {
            let capabilities = advertise::capabilities_v2(&machine.repo, &machine.options);
            machine.send(capabilities);
        } else {
            let list = RefsList::Early { options: machine.options.clone(), announce: version == Version::V1 };
            let step = list_refs(RefsRequest { repo: machine.repo.clone(), list });
            machine.queue(vec![Answer::Step(step)]);
        }
        machine
    }

    /// Starts a session whose advertisement was sent before.
    pub fn answering(
        repo: Arc<Repo>,
        version: Version,
        options: impl Into<Arc<UploadOptions>>,
    ) -> UploadPack {
        let protocol = match version {
            Version::V2 => Protocol::V2(V2::default()),
            Version::V0 | Version::V1 => Protocol::V0(Box::default()),
        };
        UploadPack::speaking(repo, protocol, options.into())
    }

    /// Starts a session of upload-archive, which has no advertisement.
    pub fn archiving(repo: Arc<Repo>, options: impl Into<Arc<UploadOptions>>) -> UploadPack {
        UploadPack::speaking(repo, Protocol::Archive(ArchiveArguments::default()), options.into())
    }

    fn speaking(repo: Arc<Repo>, protocol: Protocol, options: Arc<UploadOptions>) -> UploadPack {
        UploadPack {
            repo,
            options,
            input: Vec::new(),
            used: 0,
            request_bytes: 0,
            out: VecDeque::new(),
            protocol: Some(protocol),
            is_listing: false,
            ended: false,
            failure: None,
        }
    }

    /// Takes bytes that a client sent.
    ///
    /// # Errors
    /// If the request is refused. [`UploadPack::step`] then returns the message to send before
    /// [`Step::Done`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        self.input.extend_from_slice(bytes);
        let result = self.advance();
        if let Err(e) = &result {
            let mut message = Vec::new();
            pktline::push(&mut message, format!("ERR {e}").as_bytes());
            self.send(message);
            self.ended = true;
            self.failure = Some(e.to_string());
        }
        result
    }

    fn advance(&mut self) -> Result<(), RequestError> {
        // One request at a time: while an answer is queued, the rest of the input waits.
        while self.out.is_empty() && !self.ended {
            let Some((pkt, len)) = pktline::decode(&self.input[self.used..])? else { break };
            let mut protocol = self.protocol.take().expect("put back below");
            let result = match &mut protocol {
                Protocol::V0(v0) => v0::take(v0, &self.context(), pkt),
                Protocol::V2(v2) => v2::take(v2, &self.context(), pkt),
                Protocol::Archive(arguments) => archive::take(arguments, &self.context(), pkt),
            };
            self.protocol = Some(protocol);
            let answers = result?;
            self.used += len;
            self.request_bytes += len;
            if self.request_bytes > self.options.limits.request_bytes_max {
                return refuse(format!(
                    "the request is larger than {} bytes",
                    self.options.limits.request_bytes_max
                ));
            }
            // Before v2, all input is one request, with answers in between.
            if !answers.is_empty() && matches!(self.protocol, Some(Protocol::V2(_))) {
                self.request_bytes = 0;
            }
            self.queue(answers);
        }
        if self.input.len() - self.used > self.options.limits.request_bytes_max {
            return refuse(format!(
                "the request is larger than {} bytes",
                self.options.limits.request_bytes_max
            ));
        }
        if self.used == self.input.len() || self.used > 1 << 16 {
            self.input.drain(..self.used);
            self.used = 0;
            if self.input.is_empty() && self.input.capacity() > 1 << 16 {
                self.input = Vec::new();
            }
        }
        Ok(())
    }

    fn queue(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            match answer {
                Answer::Step(step) => {
                    self.is_listing = matches!(step, Step::Work(Work::Refs(_)));
                    self.out.push_back(step);
                }
                Answer::Whole { before, clone, framing, after } => {
                    self.queue_whole(before, clone, framing, after)
                }
                Answer::End => self.ended = true,
            }
        }
    }

    fn context(&self) -> Context {
        Context { repo: self.repo.clone(), options: self.options.clone() }
    }

    /// Returns the next step.
    pub fn step(&mut self) -> Step {
        if let Some(step) = self.out.pop_front() {
            return step;
        }
        if !self.ended && self.used < self.input.len() {
            // Process input that waited behind the last answer; errors end up in the queue.
            let _ = self.feed(&[]);
            if let Some(step) = self.out.pop_front() {
                return step;
            }
        }
        if self.ended { Step::Done } else { Step::Read }
    }

    /// Takes the outcome of a [`Step::Work`].
    pub fn finish(&mut self, outcome: WorkOutcome) {
        match outcome {
            WorkOutcome::Sent => {
                // Before v2, nothing follows a pack; nor an archive.
                if !std::mem::take(&mut self.is_listing) && !matches!(self.protocol, Some(Protocol::V2(_))) {
                    self.ended = true;
                }
            }
            WorkOutcome::GoOn(bytes) => self.send(bytes),
            WorkOutcome::Cut(bytes, cut) => {
                self.send(bytes);
                if let Some(Protocol::V0(v0)) = &mut self.protocol {
                    v0.cut = Some(cut);
                }
            }
            WorkOutcome::Met(answer, looked_at) => {
                let context = self.context();
                let answers = match &mut self.protocol {
                    Some(Protocol::V0(v0)) => v0::met(v0, &context, answer, looked_at),
                    _ => Vec::new(),
                };
                self.queue(answers);
            }
            WorkOutcome::Shown(is_shown) => {
                let context = self.context();
                let answers = match &mut self.protocol {
                    Some(Protocol::V0(v0)) => v0::looked_up(v0, &context, is_shown),
                    _ => Vec::new(),
                };
                self.queue(answers);
            }
            WorkOutcome::Refused(why) | WorkOutcome::Failed(why) => {
                self.ended = true;
                self.failure = Some(why);
            }
        }
    }

    /// Returns the bytes of the current request: about as much memory is kept for it.
    pub fn request_bytes(&self) -> usize {
        self.request_bytes + self.input.len() - self.used
    }

    /// Returns why the session failed, if it did. The client was told, except for internal causes.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns whether the repository of the session is arriving.
    pub fn is_arriving(&self) -> bool {
        self.repo.arriving_pack().is_some()
    }

    /// Returns whether the session failed because the client wants what is not here.
    pub fn lacks_what_is_wanted(&self) -> bool {
        self.failure().is_some_and(|why| why.starts_with(NOT_OUR_REF))
    }

    fn send(&mut self, bytes: Vec<u8>) {
        match self.out.back_mut() {
            Some(Step::Send(last)) => last.extend_from_slice(&bytes),
            _ => self.out.push_back(Step::Send(bytes)),
        }
    }

    fn queue_whole(&mut self, before: Vec<u8>, clone: StoredClone, framing: Framing, after: Vec<u8>) {
        self.send(before);
        let mut small = pack_header(clone.count).to_vec();
        for region in &clone.regions {
            if small.len() + region.len() <= INLINE_BYTES_MAX {
                small.extend_from_slice(region);
                if region.check().is_ok() {
                    continue;
                }
                // The sender of the region will find that it cannot be read, and stop.
                small.truncate(small.len() - region.len());
            }
            self.send_wrapped(&mut small, framing);
            self.out.push_back(Step::SendRegion(region.clone(), framing));
        }
        // The checksum of a small pack is computed at once.
        let bytes: usize = clone.regions.iter().map(|r| r.len()).sum();
        let known = clone
            .known_trailer(&self.repo)
            .or_else(|| (bytes <= INLINE_BYTES_MAX).then(|| clone.trailer(&self.repo)));
        if let Some(trailer) = known {
            small.extend_from_slice(trailer.as_bytes());
            self.send_wrapped(&mut small, framing);
            self.send(after);
        } else {
            self.send_wrapped(&mut small, framing);
            self.out.push_back(Step::Work(Work::Trailer(TrailerRequest {
                repo: self.repo.clone(),
                clone,
                framing,
                after,
            })));
        }
    }

    fn send_wrapped(&mut self, bytes: &mut Vec<u8>, framing: Framing) {
        if bytes.is_empty() {
            return;
        }
        let mut wrapped = Vec::with_capacity(bytes.len() + 16);
        framing.push(&mut wrapped, bytes);
        bytes.clear();
        self.send(wrapped);
    }
}
