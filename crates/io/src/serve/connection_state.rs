//! How far a connection of a server is: what was asked over it, and what moves.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

use super::audit::AuditKind;
use super::cleanup::KeptAt;
use super::requests::facts::UploadKey;
use super::requests::request::Request;
use super::response::{Done, HeldReader};
use crate::disk::threads::Writer;
use crate::error::{Error, RequestErrorKind};
use crate::net::event_loop::Application as _;
use crate::request_error::RequestError;
use crate::transfer::buffer_pool::BufferPool;
use crate::transfer::receive::{ReceiveResult, Receiving};
use crate::transfer::send::{SendResult, Sending};

/// The result of a connection: bytes, or an error.
pub(super) type TaskResult = Result<u64, Error>;

/// The sender of an answer.
pub(super) type AnswerTask = Sending<'static, HeldReader>;
/// The receiver of an upload.
pub(super) type UploadTask = Receiving<'static, Box<dyn Writer>>;

/// The state of a connection.
pub(super) enum ConnectionState {
    /// Requests branch from it.
    Session,
    /// It asks for something, and gets an answer.
    Answering(Box<AnswerTask>, AnswerStep),
    /// It brings the files of an announced upload.
    Receiving(Box<UploadTask>, Upload),
}

/// How far an answer is.
#[derive(Default)]
pub(super) enum AnswerStep {
    /// Nothing was asked so far.
    #[default]
    Idle,
    /// The request waits until a buffer was granted for the answer.
    Waiting(Asked),
    /// The upload that it announces waits, since then, until it is known whether the client of an
    /// earlier one is alive.
    Deferred(Asked, Instant),
    /// A thread performs it.
    Preparing(Asked, Preparation),
    /// The answer is sent.
    Sending(Asked, Answer),
}

/// The request of a connection.
pub(super) struct Asked {
    pub(super) request: Arc<Request>,
    /// The client's HAVE, until the answer begins.
    pub(super) had: Vec<u8>,
    /// Its other path, or the name of a single file that is put, for logs.
    pub(super) target: Vec<u8>,
}

/// A request that a thread performs.
pub(super) struct Preparation {
    pub(super) job: Receiver<Result<Done, RequestError>>,
    /// Its files go to another server.
    pub(super) is_push: bool,
}

/// An answer that is sent.
pub(super) struct Answer {
    /// Bytes that it will have moved in the end, as far as that is known.
    pub(super) total: Option<u64>,
    /// The error of a transfer to another server, if the answer is about one.
    pub(super) push_failure: Option<Receiver<RequestError>>,
}

/// An upload.
pub(super) struct Upload {
    pub(super) key: UploadKey,
    /// The name of a single file, if it does not keep its own.
    pub(super) name: Vec<u8>,
    /// Bytes that it will have moved in the end, as far as that is known.
    pub(super) total: Option<u64>,
    /// The place of its parts.
    pub(super) kept_at: KeptAt,
    /// The directory of the paths that it uses.
    pub(super) _held: Arc<OwnedFd>,
}

impl AnswerStep {
    /// The request, if there was one.
    pub(super) fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Idle => None,
            Self::Waiting(asked)
            | Self::Deferred(asked, _)
            | Self::Preparing(asked, _)
            | Self::Sending(asked, _) => Some(asked),
        }
    }

    fn into_asked(self) -> Option<Asked> {
        match self {
            Self::Idle => None,
            Self::Waiting(asked)
            | Self::Deferred(asked, _)
            | Self::Preparing(asked, _)
            | Self::Sending(asked, _) => Some(asked),
        }
    }
}

impl ConnectionState {
    /// What its audit record is about.
    pub(super) fn audit_kind(&self) -> AuditKind {
        match self {
            Self::Session => AuditKind::None,
            Self::Answering(_, step) => step
                .asked()
                .map_or(AuditKind::None, |asked| AuditKind::Request(asked.request.kind())),
            Self::Receiving(..) => AuditKind::Receive,
        }
    }

    /// The path that it is about, and its target.
    pub(super) fn paths(&self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::Session | Self::Answering(_, AnswerStep::Idle) => Default::default(),
            Self::Answering(_, step) => step
                .asked()
                .map(|asked| (asked.request.path.clone(), asked.target.clone()))
                .unwrap_or_default(),
            Self::Receiving(_, upload) => (upload.key.path.clone(), upload.name.clone()),
        }
    }

    /// The request of this connection, if it has sent one.
    pub(super) fn asked_mut(&mut self) -> Option<&mut Asked> {
        match self {
            Self::Session | Self::Receiving(..) | Self::Answering(_, AnswerStep::Idle) => None,
            Self::Answering(_, AnswerStep::Waiting(asked))
            | Self::Answering(_, AnswerStep::Deferred(asked, _))
            | Self::Answering(_, AnswerStep::Preparing(asked, _))
            | Self::Answering(_, AnswerStep::Sending(asked, _)) => Some(asked),
        }
    }

    /// Whether it has asked nothing so far.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Answering(_, AnswerStep::Idle))
    }

    /// The request that waits for a buffer, if there is one now.
    pub(super) fn granted(&self) -> Option<Arc<Request>> {
        match self {
            Self::Answering(task, AnswerStep::Waiting(asked)) if task.has_grant() => {
                Some(Arc::clone(&asked.request))
            }
            Self::Session | Self::Answering(..) | Self::Receiving(..) => None,
        }
    }

    /// The upload that is deferred, and since when.
    pub(super) fn deferred(&self) -> Option<(&Arc<Request>, Instant)> {
        match self {
            Self::Answering(_, AnswerStep::Deferred(asked, since)) => {
                Some((&asked.request, *since))
            }
            Self::Session | Self::Answering(..) | Self::Receiving(..) => None,
        }
    }

    /// A request has arrived.
    pub(super) fn ask(&mut self, asked: Asked) {
        if let Self::Answering(_, step) = self {
            *step = AnswerStep::Waiting(asked);
        }
    }

    /// The upload that is announced waits.
    pub(super) fn defer(&mut self, now: Instant) {
        if let Self::Answering(_, step) = self
            && let Some(asked) = std::mem::take(step).into_asked()
        {
            *step = AnswerStep::Deferred(asked, now);
        }
    }

    /// A thread performs the request.
    pub(super) fn prepare(&mut self, preparation: Preparation) {
        if let Self::Answering(_, step) = self
            && let Some(asked) = std::mem::take(step).into_asked()
        {
            *step = AnswerStep::Preparing(asked, preparation);
        }
    }

    /// The answer begins. Returns its sender, and the client's HAVE with the request.
    pub(super) fn send(&mut self, answer: Answer) -> Option<(&mut AnswerTask, Vec<u8>, u64)> {
        let Self::Answering(task, step) = self else { return None };
        let mut asked = std::mem::take(step).into_asked()?;
        let had = std::mem::take(&mut asked.had);
        let subflows = asked.request.facts().subflows;
        *step = AnswerStep::Sending(asked, answer);
        Some((task, had, subflows))
    }

    /// The result of the thread, once.
    pub(super) fn poll_job(&self) -> Option<Result<Done, RequestError>> {
        let Self::Answering(_, AnswerStep::Preparing(_, preparation)) = self else {
            return None;
        };
        match preparation.job.try_recv() {
            Ok(done) => Some(done),
            Err(TryRecvError::Empty) => None,
            // A fault of the thread's is no reason to let a client wait.
            Err(TryRecvError::Disconnected) => {
                Some(Err(RequestError::new(RequestErrorKind::Failed, "internal server error")))
            }
        }
    }

    /// The failure of a transfer to another server.
    pub(super) fn poll_push_failure(&self) -> Option<RequestError> {
        match self {
            Self::Answering(_, AnswerStep::Sending(_, answer)) => {
                answer.push_failure.as_ref()?.try_recv().ok()
            }
            Self::Session | Self::Answering(..) | Self::Receiving(..) => None,
        }
    }

    /// Whether its answer is about files that go elsewhere.
    pub(super) fn reports_push(&self) -> bool {
        matches!(self, Self::Answering(_, AnswerStep::Sending(_, answer))
            if answer.push_failure.is_some())
    }

    /// Bytes that it will have moved in the end, as far as that is known.
    pub(super) fn total(&self) -> Option<u64> {
        match self {
            Self::Answering(_, AnswerStep::Sending(_, answer)) => answer.total,
            Self::Receiving(_, upload) => upload.total,
            Self::Session | Self::Answering(..) => None,
        }
    }

    /// Whether data of an answer move, to the client or to another server.
    pub(super) fn has_begun(&self) -> bool {
        match self {
            Self::Answering(_, AnswerStep::Sending(..)) => true,
            Self::Answering(_, AnswerStep::Preparing(_, preparation)) => preparation.is_push,
            Self::Session | Self::Answering(..) | Self::Receiving(..) => false,
        }
    }

    /// The place of the parts of its upload.
    pub(super) fn kept_at(&self) -> Option<KeptAt> {
        match self {
            Self::Receiving(_, upload) => Some(upload.kept_at),
            Self::Session | Self::Answering(..) => None,
        }
    }

    /// Its buffers.
    pub(super) fn pool_mut(&mut self) -> Option<&mut BufferPool> {
        match self {
            Self::Session => None,
            Self::Answering(task, _) => Some(&mut task.pool),
            Self::Receiving(task, _) => Some(&mut task.pool),
        }
    }

    /// Drives its transfer. Returns its result, if it is over.
    pub(super) fn on_ready(&mut self, now: Instant, end: &mut Endpoint) -> Option<TaskResult> {
        match self {
            Self::Session => None,
            Self::Answering(task, _) => task.on_ready(now, (), end).break_value().map(sent),
            Self::Receiving(task, _) => task.on_ready(now, (), end).break_value().map(received),
        }
    }

    /// Has its transfer fail. Returns its result, if it is over.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        error: Error,
    ) -> Option<TaskResult> {
        match self {
            Self::Session => None,
            Self::Answering(task, _) => task.session.fail(now, end, error).break_value().map(sent),
            Self::Receiving(task, _) => {
                task.session.fail(now, end, error).break_value().map(received)
            }
        }
    }
}

/// The bytes that were sent.
pub(super) fn sent(result: Result<SendResult, Error>) -> TaskResult {
    result.map(|sent| sent.end.map_or(0, |end| end.bytes))
}

/// The bytes that were stored.
pub(super) fn received(result: Result<ReceiveResult, Error>) -> TaskResult {
    result.map(|received| received.outcome.bytes)
}
