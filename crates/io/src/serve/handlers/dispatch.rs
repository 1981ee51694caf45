//! Performs a request on the server's disk, on a thread of its own: beneath one root, by handles,
//! without following a link (`disk/safe_open.rs`).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::answer::{answer, outgoing, streamed};
use super::context::HandlerContext;
use super::copy::{self, Bounds};
use super::file_list::look;
use super::get::get;
use super::join::join;
use super::list::list;
use super::make_dir::make;
use super::put::put;
use super::put_range;
use super::read::{RangeReader, log_pieces};
use super::remove::remove;
use super::rename::rename;
use super::stat::stat;
use crate::disk::{safe_open, staging};
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;
use crate::serve::push::PushContext;
use crate::serve::request::{self, EntryType, Request, RequestKind, ResponseItem};
use crate::serve::response::{Done, OutgoingData};

/// Performs a request.
pub(in crate::serve) fn perform(
    request: &Request,
    root: &Arc<OwnedFd>,
    with: &HandlerContext<'_>,
    outward: Option<PushContext>,
) -> Result<Done, RequestError> {
    let HandlerContext { options, layout, cleanups, cancel, .. } = *with;
    let path = &request.path[..];
    if request.paths().any(staging::has_ours) && !is_left(request) {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "reserved name: netblt keeps parts of transfers there",
        ));
    }
    match &request.what {
        RequestKind::Get { trees, name, .. } => get(look(root, path, *trees, name, with)?, with),
        RequestKind::Put(_) if request.cancels_upload().is_some() => {
            answer([ResponseItem::Done(1)], layout)
        }
        RequestKind::Put(wish) => put(root, path, *wish, with),
        RequestKind::PutRange(wish) => put_range::put(root, path, *wish, options, layout, cleanups),
        RequestKind::Join(wish) => answer([ResponseItem::Done(join(root, path, wish)?)], layout),
        RequestKind::Stat { trees } => {
            let entry = stat(root, path)?;
            let data = match (entry.sort, *trees) {
                // It takes as much as it needs to send the tree, and as much memory.
                (EntryType::Directory, true) => {
                    look(root, path, true, request::NAME.as_bytes(), with)?.0.data_bytes()
                }
                _ => Some(entry.data).filter(|data| *data < entry.length),
            };
            let lines =
                [ResponseItem::Entry(entry)].into_iter().chain(data.map(ResponseItem::Room));
            answer(lines, layout)
        }
        RequestKind::List { after, most } => {
            let (lines, memory) = list(root, path, after, *most, with)?;
            let mut outgoing = outgoing(lines, layout)?;
            outgoing.reader.hold(memory);
            Ok(Done::Send(Box::new(outgoing)))
        }
        RequestKind::MakeDir { parents } => {
            answer([ResponseItem::Done(make(root, path, *parents)?)], layout)
        }
        RequestKind::Remove { directory, tree } => {
            answer([ResponseItem::Done(remove(root, path, *directory, *tree, cancel)?)], layout)
        }
        RequestKind::Rename { to, replace } => {
            answer([ResponseItem::Done(rename(root, path, to, *replace)?)], layout)
        }
        RequestKind::Copy { to, how } => {
            let bytes = options.max_bytes.unwrap_or(u64::MAX);
            let bounds = Bounds { count: options.max_files, bytes };
            let count = copy::copy(root, path, to, *how, bounds, cancel)?;
            answer([ResponseItem::Done(count)], layout)
        }
        RequestKind::Read { pieces } => {
            log_pieces(pieces, options.name_log.as_ref());
            let all = pieces.iter().fold(0, |all: u64, piece| all.saturating_add(piece.bytes));
            let pieces = RangeReader::new(Arc::clone(root), pieces.clone());
            let outgoing = streamed(Box::new(pieces), all, layout)?;
            Ok(Done::Send(Box::new(outgoing)))
        }
        RequestKind::Send { trees, name, push } => {
            let none = || RequestError::new(RequestErrorKind::Failed, "internal server error");
            let outward = outward.ok_or_else(none)?;
            let found = look(root, path, *trees, name, with)?;
            let (progress, fails) = outward.send(found, push, cancel)?;
            let outgoing = streamed(Box::new(progress), u64::MAX, layout)?;
            Ok(Done::Send(Box::new(OutgoingData { fails: Some(fails), ..outgoing })))
        }
    }
}

/// Whether a request removes the parts of a transfer under a label.
fn is_left(request: &Request) -> bool {
    let (parent, leaf) = safe_open::split(&request.path);
    let own = staging::has_ours(parent);
    matches!(request.what, RequestKind::Remove { tree: true, .. })
        && (staging::label_of(leaf).is_some() || staging::is_ranges(leaf))
        && !own
}
