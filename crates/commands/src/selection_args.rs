//! Which files are sent, and with which permissions: options of `cp` and `send`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use netblt::Modes;
use rustix::fs::Mode;
use rustix::process::umask;

use crate::chmod::Chmod;
use crate::copy::files_from::FilesFrom;
use crate::exit::Failure;

/// Which files, and with which permissions.
#[derive(Args, Debug)]
pub(crate) struct SelectionArgs {
    /// Leave out what matches, in directories; may be repeated
    ///
    /// A PATTERN without a slash is compared with names, one with a slash with the whole path from
    /// the copied directory's name on; a slash at its end means directories only.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Follow symbolic links in directories: what they lead to is sent in their place
    ///
    /// As `scp -r` does by itself, and `rsync -L`. A link to a directory that it is in, and one
    /// that leads nowhere, are left out and named (exit code 23).
    #[arg(short = 'L', long)]
    pub(crate) copy_links: bool,
    /// Send a file that changes while it is read as it was read, with a warning
    ///
    /// It is sent with as many bytes as it had when it was found, for example a log that grows. A
    /// file that became shorter is left out and named (exit code 23).
    #[arg(long)]
    pub(crate) allow_changes: bool,
    /// Only the files listed in FILE, a name a line, relative to the one source; - is standard
    /// input
    ///
    /// As rsync reads it: the directories above a name come with it, and the contents of a listed
    /// directory where -r is given (`send`: always); dir/ means its direct contents. Empty lines
    /// and those that begin with # or ; are ignored.
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// In the list, names end with a zero byte, as `find -print0` writes them
    #[arg(short = '0', long = "from0", requires = "files_from")]
    pub(crate) from0: bool,
    /// Change permissions on their way, such as D755,F644 or u+w,go-w (D: directories, F: files)
    ///
    /// As in chmod and rsync: octal numbers, or classes (ugoa), + - or =, and permissions (rwxX).
    /// New files get the result, less the receiver's umask unless it keeps permissions. Existing
    /// files keep theirs unless it does.
    #[arg(long, value_name = "CHANGES", value_parser = chmod)]
    pub(crate) chmod: Option<String>,
}

impl SelectionArgs {
    /// Whether nothing of it was given.
    pub(crate) fn is_empty(&self) -> bool {
        let plain = !self.copy_links && !self.allow_changes;
        plain && self.exclude.is_empty() && self.files_from.is_none() && self.chmod.is_none()
    }

    /// The names in `--files-from`.
    pub(crate) fn listed(&self, recursive: bool) -> Result<Option<FilesFrom>, Failure> {
        let read = |path: &PathBuf| FilesFrom::read(path, self.from0, recursive);
        self.files_from.as_ref().map(read).transpose()
    }
}

fn chmod(value: &str) -> Result<String, String> {
    Chmod::parse(value, 0).map(|_| value.to_owned())
}

/// The change of permissions that a text describes, with this process's umask where it has no
/// classes.
pub(crate) fn modes(text: &str) -> Result<Modes, Failure> {
    // There is no other way to look at it.
    let mask = umask(Mode::empty());
    umask(mask);
    let changes = Chmod::parse(text, mask.bits());
    let changes = changes.map_err(|why| Failure::usage(format!("--chmod: {why}")))?;
    Ok(Modes::new(move |mode, directory| changes.apply(mode, directory)))
}
