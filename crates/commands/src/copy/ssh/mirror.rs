//! The messages of a mirror inside the ssh session of a copy.

use netblt::mirror::{Channel, Message};

use crate::copy::ssh::messages::{AgentMessage, ClientMessage};
use crate::copy::ssh::session::SshSession;
use crate::exit::Failure;
use crate::reporter::Reporter;

/// The warning where entries stay that the source does not have.
pub(crate) const KEEPS_REMOVALS: &str =
    "nothing is removed: some of the source could not be read, and may be what the destination has";

/// The client's channel to the agent.
pub(crate) struct ClientChannel<'a, 'b> {
    pub(crate) link: &'a mut SshSession<'b>,
    pub(crate) report: &'a mut Reporter,
}

impl Channel for ClientChannel<'_, '_> {
    type Failure = Failure;

    fn send(&mut self, message: Message) -> Result<(), Failure> {
        self.link.send(&ClientMessage::Mirror(message))
    }

    fn receive(&mut self) -> Result<Message, Failure> {
        loop {
            match self.link.receive()? {
                AgentMessage::Mirror(message) => return Ok(message),
                AgentMessage::Warning(text) => self.report.warn(&self.link.with_host(&text)),
                // It was in flight when this end decided on the path.
                AgentMessage::ReachedAt(_) => {}
                AgentMessage::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.unexpected_message()),
            }
        }
    }
}
