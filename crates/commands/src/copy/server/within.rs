//! A copy from one place of a server to another: the server copies, and nothing is sent.

use netblt::serve::client::Client;
use netblt::{Cancel, Overwrite};

use crate::copy::server::sources::{expand, means_contents, wanted};
use crate::exit::{Code, Failure};
use crate::server_client::address::ServerPath;
use crate::server_client::client::WarningsOnly;
use crate::server_client::command::{CommandError, CommonArgs};
use crate::server_client::target::ServerTarget;

/// How a server copies.
pub(crate) struct CopyWithin {
    pub(crate) common: CommonArgs,
    pub(crate) trees: bool,
    pub(crate) preserve: bool,
    pub(crate) verbose: bool,
}

impl CopyWithin {
    /// Copies files on a server to another place on it.
    pub(crate) fn run(&self, sources: &[ServerPath], target: &ServerPath, cancel: &Cancel) -> Code {
        let mut landing = ServerTarget::new(target, sources.len() > 1);
        self.common.each_of(sources.iter().cloned().map(Ok), true, cancel, |server, served| {
            let mut options = server.options.clone();
            (options.settings.overwrite, options.settings.preserve) =
                (Overwrite::Always, self.preserve);
            let server = Client { options: &options, ..*server };
            let apart = self.trees && means_contents(&served.path) && landing.is_one(&server)?;
            let sources = expand(&server, served, apart)?;
            if sources.is_empty() && served.pattern.is_some() {
                return Err(Failure::new(Code::Partial, "nothing matches").into());
            }
            landing.several |= sources.len() > 1;
            sources.iter().try_for_each(|source| self.one(&server, source, &mut landing))
        })
    }

    fn one(
        &self,
        server: &Client<'_>,
        source: &ServerPath,
        landing: &mut ServerTarget<'_>,
    ) -> Result<(), CommandError> {
        if let Err(why) = wanted(server, &source.path, self.trees)? {
            return Err(Failure::new(Code::Partial, format!("skipped: {why}")).into());
        }
        let to = landing.of(server, source)?;
        let count = server.copy(&source.path, &to, self.trees, &mut WarningsOnly)?;
        let common = &self.common;
        Ok(common.report_result("copied", &source.path, Some(&to), count, self.verbose)?)
    }
}
