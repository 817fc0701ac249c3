//! Files that other processes replace: told at once, whatever they replace them with.

use super::{Error, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Watches the folders of some files.
pub(crate) struct Watch {
    inotify: Inotify,
    files: Vec<File>,
}

struct File {
    path: PathBuf,
    seen: Option<Version>,
}

/// What tells one version of a file from the next.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Whether the folder of a file is there, so that the file can be waited for.
pub(crate) fn has_folder(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.as_os_str().is_empty() || folder.is_dir())
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.files.iter().map(|file| &file.path)).finish()
    }
}

impl Watch {
    /// Begins to watch; a file need not be there yet, its folder must.
    pub(crate) fn new(paths: &[PathBuf]) -> Result<Self> {
        let failed = |path: &Path, errno| Error::call("watch", path.display().to_string(), errno);
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|errno| failed(Path::new("files"), errno))?;
        // Not what is only created: it is told when it was written, and not before.
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE;
        for path in paths {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            inotify.add_watch(folder, flags).map_err(|errno| failed(folder, errno))?;
        }
        let files = paths.iter().map(|path| File { path: path.clone(), seen: None }).collect();
        Ok(Watch { inotify, files })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Whether each file is another than at the last call; the first call says yes for all.
    ///
    /// Asked of the files themselves, so that nothing is lost when the queue of events was full.
    pub(crate) fn changed(&mut self) -> Vec<bool> {
        // Emptied; what is in it does not matter.
        while self.inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
        self.files
            .iter_mut()
            .map(|file| {
                let now = fs::metadata(&file.path).ok().map(|meta| Version {
                    inode: meta.ino(),
                    size: meta.size(),
                    modified: (meta.mtime(), meta.mtime_nsec()),
                });
                let changed = now != file.seen;
                file.seen = now;
                changed
            })
            .collect()
    }
}
