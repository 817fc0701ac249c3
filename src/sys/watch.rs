//! Files that other processes replace: told at once, whatever they replace them with.

use super::{Error, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Watches the folders of some files.
pub(crate) struct Watch {
    inotify: Inotify,
    files: Vec<File>,
    folders: Vec<Folder>,
}

struct Folder {
    path: PathBuf,
    watched: WatchDescriptor,
    /// Device and inode. That a folder was taken away is told only once nobody has anything open in it.
    is: Option<(u64, u64)>,
}

impl Folder {
    fn there(&self) -> Option<(u64, u64)> {
        fs::metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()))
    }
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

/// Not what is only created: it is told when it was written, and not before.
fn flags() -> AddWatchFlags {
    AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE
}

impl Watch {
    /// Begins to watch; a file need not be there yet, its folder must.
    pub(crate) fn new(paths: &[PathBuf]) -> Result<Self> {
        let failed = |path: &Path, errno| Error::call("watch", path.display().to_string(), errno);
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|errno| failed(Path::new("files"), errno))?;
        let mut folders = Vec::new();
        for path in paths {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let watched = inotify.add_watch(folder, flags()).map_err(|errno| failed(folder, errno))?;
            let mut folder = Folder { path: folder.to_owned(), watched, is: None };
            folder.is = folder.there();
            folders.push(folder);
        }
        let files = paths.iter().map(|path| File { path: path.clone(), seen: None }).collect();
        Ok(Watch { inotify, files, folders })
    }

    /// Whether a folder was taken away, so that nothing is heard of its files: `changed` is to be asked,
    /// which watches a new one.
    pub(crate) fn is_blind(&self) -> bool {
        self.folders.iter().any(|folder| folder.is.is_none() || folder.there() != folder.is)
    }

    /// Watches anew what was taken away and is there again.
    fn look_at_folders(&mut self) {
        for folder in &mut self.folders {
            let there = folder.there();
            if there.is_some() && there == folder.is {
                continue;
            }
            // One that was moved away is still watched, under another name.
            let _ = self.inotify.rm_watch(folder.watched);
            folder.is = None;
            if let Ok(watched) = self.inotify.add_watch(folder.path.as_path(), flags()) {
                (folder.watched, folder.is) = (watched, there);
            }
        }
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
        self.look_at_folders();
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_taken_away_and_made_anew_is_watched_again() {
        let folder = std::env::temp_dir().join(format!("failover-watch-{}", std::process::id()));
        let path = folder.join("file");
        for takes_away in [
            |folder: &Path| fs::remove_dir_all(folder),
            |folder: &Path| fs::rename(folder, folder.with_extension("old")),
        ] {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, "a").unwrap();
            let mut watch = Watch::new(std::slice::from_ref(&path)).unwrap();
            assert_eq!((watch.changed(), watch.changed()), (vec![true], vec![false]));
            takes_away(&folder).unwrap();
            assert_eq!((watch.changed(), watch.is_blind()), (vec![true], true));
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, "b").unwrap();
            assert_eq!((watch.changed(), watch.is_blind()), (vec![true], false));
            fs::write(&path, "bc").unwrap();
            assert_eq!(watch.changed(), [true]);
        }
        let _ = fs::remove_dir_all(&folder);
        let _ = fs::remove_dir_all(folder.with_extension("old"));
    }
}
