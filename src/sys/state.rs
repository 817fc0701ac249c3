//! Files that must be whole after any crash, and locks that end with their holder.

use super::clock::Deadline;
use super::{Error, Result};
use crate::types::node::Standby;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest state file that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Locks and the state of filters: `FAILOVER_STATE_DIR`, else `/run/failover`. Gone after a boot.
pub(crate) fn folder() -> PathBuf {
    from_environment("FAILOVER_STATE_DIR", "/run/failover")
}

/// What must outlive a boot: `FAILOVER_LIB_DIR`, else `/var/lib/failover`.
pub(crate) fn lasting_folder() -> PathBuf {
    from_environment("FAILOVER_LIB_DIR", "/var/lib/failover")
}

fn from_environment(name: &str, default: &str) -> PathBuf {
    std::env::var_os(name).filter(|value| !value.is_empty()).map_or_else(|| PathBuf::from(default), PathBuf::from)
}

/// Reads a file whole; `None` where there is none.
///
/// # Errors
/// Larger than 16 MiB, or anything that the system refuses.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let name = path.display().to_string();
    let failed = |error: &std::io::Error| Error::io("read", &name, error);
    // Opening a pipe would wait for its writer; one that was handed over by number is wanted.
    if let Ok(meta) = fs::metadata(path) {
        check_regular(path, &meta, "read")?;
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::File {
            doing: "read".to_owned(),
            path: name,
            why: "it is larger than 16 MiB".to_owned(),
            mend: "is it a state file?".to_owned(),
        });
    }
    Ok(Some(bytes))
}

fn check_regular(path: &Path, meta: &fs::Metadata, doing: &str) -> Result<()> {
    if meta.is_file() || path.starts_with("/proc/self/fd") {
        return Ok(());
    }
    Err(Error::File {
        doing: doing.to_owned(),
        path: path.display().to_string(),
        why: "it is no regular file".to_owned(),
        mend: "name another".to_owned(),
    })
}

/// Reads a file of secrets: its mode lets nobody else read it, and it belongs to root or to this user.
///
/// # Errors
/// `File` with `doing` and `mend` where it is not there, is no text, or others could know or change it.
pub(crate) fn read_secret(path: &Path, doing: &str, mend: &str) -> Result<String> {
    let wrong = |why: String| Error::File {
        doing: doing.to_owned(),
        path: path.display().to_string(),
        why,
        mend: mend.to_owned(),
    };
    if let Ok(meta) = fs::metadata(path) {
        check_regular(path, &meta, doing)?;
        let own = nix::unistd::geteuid().as_raw();
        if meta.mode() & 0o077 != 0 {
            let mend = format!("chmod 600 {}", path.display());
            let why = format!("its mode is {:04o}, others may read it", meta.mode() & 0o7777);
            return Err(Error::File { doing: doing.to_owned(), path: path.display().to_string(), why, mend });
        }
        if meta.uid() != 0 && meta.uid() != own {
            let mend = format!("chown root {}", path.display());
            let why = format!("it belongs to uid {}", meta.uid());
            return Err(Error::File { doing: doing.to_owned(), path: path.display().to_string(), why, mend });
        }
    }
    let bytes = read(path)?.ok_or_else(|| wrong("it is not there".to_owned()))?;
    String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))
}

/// Replaces a file: write beside, fsync, rename, fsync the folder. The old content or the new.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folder(folder)?;
    replace_as(path, bytes, 0o600)
}

/// The same with a file of the user's own, that others may read as the umask has it: where a link leads it is
/// replaced, and what is no file is not.
pub(crate) fn publish(path: &Path, bytes: &[u8]) -> Result<()> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&real).is_ok_and(|meta| !meta.is_file()) {
        return Err(Error::File {
            doing: "write".to_owned(),
            path: path.display().to_string(),
            why: "it is no regular file".to_owned(),
            mend: "name another".to_owned(),
        });
    }
    replace_as(&real, bytes, 0o666)
}

fn replace_as(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The process number keeps two writers apart; one that was killed here is overwritten later.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let name = path.display().to_string();
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&beside);
        Error::io("write", &name, &error)
    })
}

/// Makes a folder that is not there yet.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io("make the folder", folder.display().to_string(), &error))
}

/// A lock on subjects, the same for all commands, in this network namespace.
///
/// `flock` on files that are never removed: it ends with its holder, however that ends, so a lock
/// file left by a killed run blocks nobody.
#[derive(Debug)]
pub(crate) struct Lock(Vec<Flock<File>>);

impl Lock {
    /// More subjects than this are locked by one lock on all, not by a descriptor each.
    const MANY: usize = 128;

    /// Takes the locks of all `subjects`, sorted so that two runs cannot wait for each other.
    ///
    /// Every holder also shares the lock on all subjects; a run over many holds that one alone.
    ///
    /// # Errors
    /// `Late` if another run still holds one at the deadline.
    pub(crate) fn take<S: AsRef<str>>(subjects: &[S], deadline: Deadline) -> Result<Lock> {
        let (folder, namespace) = lock_folder()?;
        let all = folder.join(format!("{namespace}-all"));
        if subjects.len() > Self::MANY {
            return lock_file(&all, FlockArg::LockExclusiveNonblock, deadline).map(|lock| Lock(vec![lock]));
        }
        let mut names: Vec<String> =
            subjects.iter().map(|subject| format!("{namespace}-{}", file_name(subject.as_ref()))).collect();
        names.sort();
        names.dedup();
        let mut held = vec![lock_file(&all, FlockArg::LockSharedNonblock, deadline)?];
        for name in names {
            held.push(lock_file(&folder.join(name), FlockArg::LockExclusiveNonblock, deadline)?);
        }
        Ok(Lock(held))
    }

    /// Takes the lock of one thing that is no subject of any other command, at once; `None` where another has it.
    ///
    /// # Errors
    /// The lock cannot be opened.
    pub(crate) fn try_take(thing: &str) -> Result<Option<Lock>> {
        let (folder, namespace) = lock_folder()?;
        let path = folder.join(format!("{namespace}-{}", file_name(thing)));
        Ok(Presence::try_lock(&path, true)?.map(|lock| Lock(vec![lock])))
    }

    /// Has the programs that this process starts hold the locks too: while one of them lives, also after
    /// this process was killed, nobody else has them.
    ///
    /// # Errors
    /// The flags of a descriptor cannot be set.
    pub(crate) fn hand_down(&self) -> Result<()> {
        for lock in &self.0 {
            nix::fcntl::fcntl(lock.as_fd(), nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))
                .map_err(|errno| Error::call("hand down", "a lock", errno))?;
        }
        Ok(())
    }
}

/// A lock on a file of its own, apart from those on subjects.
#[derive(Debug)]
pub(crate) struct FileLock(#[allow(dead_code)] Flock<File>);

impl FileLock {
    /// # Errors
    /// `Late` if another has it still at the deadline.
    pub(crate) fn take(path: &Path, deadline: Deadline) -> Result<Self> {
        lock_file(path, FlockArg::LockExclusiveNonblock, deadline).map(FileLock)
    }
}

/// Where the locks are, and how the names of this network namespace's begin.
fn lock_folder() -> Result<(PathBuf, u64)> {
    let folder = folder().join("lock");
    make_folder(&folder)?;
    Ok((folder, network_namespace()))
}

/// The number of this process's network namespace: another may have it once this one is gone.
fn network_namespace() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |meta| meta.ino())
}

fn lock_file(path: &Path, how: FlockArg, deadline: Deadline) -> Result<Flock<File>> {
    const PAUSE: Duration = Duration::from_millis(5);
    let name = path.display().to_string();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| Error::io("open the lock", &name, &error))?;
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(Error::call("take the lock", name, errno)),
        }
        let left = deadline.left();
        if left.is_zero() {
            return Err(Error::Late {
                doing: "take the lock".to_owned(),
                object: name,
                why: "another run holds it".to_owned(),
            });
        }
        std::thread::sleep(left.min(PAUSE));
    }
}

/// A sign that a process lives: an exclusive lock on a file, gone with the process.
#[derive(Debug)]
pub(crate) struct Presence(Flock<File>);

impl Presence {
    /// Takes the sign; `None` where another process has it.
    pub(crate) fn hold(path: &Path) -> Result<Option<Self>> {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        // Whoever asks `is_held` is in the way for an instant, or for its next turn on a busy machine.
        for _ in 0..20 {
            if let Some(lock) = Self::try_lock(path, true)? {
                return Ok(Some(Presence(lock)));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(None)
    }

    /// Whether the sign that is held is still the one at `path`, where others look.
    pub(crate) fn stands_at(&self, path: &Path) -> bool {
        let own = self.0.metadata().map(|meta| (meta.dev(), meta.ino()));
        let there = fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    /// Whether some process has the sign.
    pub(crate) fn is_held(path: &Path) -> bool {
        // Taking and dropping the lock for an instant can make a `hold` elsewhere fail: shared, so
        // that two who ask do not answer each other, and only a holder is in the way.
        matches!(Self::try_lock(path, false), Ok(None))
    }

    fn try_lock(path: &Path, exclusive: bool) -> Result<Option<Flock<File>>> {
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(exclusive).create(exclusive).truncate(false).mode(0o600);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) => return Err(Error::io("open", name, &error)),
        };
        let how = if exclusive { FlockArg::LockExclusiveNonblock } else { FlockArg::LockSharedNonblock };
        match Flock::lock(file, how) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(Error::call("lock", name, errno)),
        }
    }
}

/// A subject as part of a file name: what could leave the folder becomes `_`.
pub(crate) fn file_name(subject: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_' | '%') { c } else { '_' };
    let name: String = subject.chars().map(safe).take(200).collect();
    if name.starts_with('.') { name.replacen('.', "_", 1) } else { name }
}

/// The standby file of one subject.
pub(crate) fn standby_file(subject: &str) -> PathBuf {
    folder().join(format!("standby.{}", file_name(subject)))
}

/// Reads the standby files that hold for `subject`: the node's own first, then the subject's.
///
/// `named` is `--standby FILE`, which replaces the node's default.
pub(crate) fn standby(named: Option<&Path>, subject: Option<&str>) -> Result<Option<Standby>> {
    let node = named.map_or_else(|| folder().join("standby"), Path::to_path_buf);
    let own = subject.map(standby_file);
    for path in std::iter::once(node).chain(own) {
        if let Some(text) = read(&path)? {
            return Ok(Some(Standby { reason: String::from_utf8_lossy(&text).trim().chars().take(200).collect() }));
        }
    }
    Ok(None)
}

/// Why `subject` alone is to drain: the text of its own file, which stands beside `named`.
pub(crate) fn standby_of(named: Option<&Path>, subject: &str) -> Result<Option<String>> {
    let path = match named {
        Some(path) => {
            let mut path = path.as_os_str().to_owned();
            path.push(format!(".{}", file_name(subject)));
            PathBuf::from(path)
        }
        None => standby_file(subject),
    };
    Ok(standby(Some(&path), None)?.map(|standby| standby.reason))
}

/// All standby files: one look at their folder, where there are many subjects.
#[derive(Debug, Default)]
pub(crate) struct Standbys {
    node: Option<String>,
    of: BTreeMap<String, String>,
}

impl Standbys {
    /// Reads this node's own file, which `named` replaces, and those of subjects beside it.
    ///
    /// # Errors
    /// A file or the folder cannot be read.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self> {
        let own = named.map_or_else(|| folder().join("standby"), Path::to_path_buf);
        let mut all =
            Standbys { node: standby(Some(&own), None)?.map(|standby| standby.reason), ..Standbys::default() };
        let folder = own.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let failed = |error: &std::io::Error| Error::io("read", folder.display().to_string(), error);
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(all),
            entries => entries.map_err(|error| failed(&error))?,
        };
        let prefix = own.file_name().map(|name| format!("{}.", name.to_string_lossy())).unwrap_or_default();
        for entry in entries {
            let name = entry.map_err(|error| failed(&error))?.file_name().to_string_lossy().into_owned();
            if let Some(subject) = name.strip_prefix(&prefix)
                && let Some(standby) = standby(Some(&folder.join(&name)), None)?
            {
                all.of.insert(subject.to_owned(), standby.reason);
            }
        }
        Ok(all)
    }

    /// Why this node is to be left alone.
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Why `subject` is.
    pub(crate) fn of(&self, subject: &str) -> Option<&str> {
        self.of.get(&file_name(subject)).map(String::as_str)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_cannot_leave_the_folder() {
        for (subject, name) in
            [("192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::1%eth0"), ("../x", "_._x"), ("a/b", "a_b")]
        {
            assert_eq!(file_name(subject), name);
        }
    }

    #[test]
    fn a_replaced_file_has_the_new_content_and_nothing_beside_it() {
        let folder = std::env::temp_dir().join(format!("failover-state-{}", std::process::id()));
        let path = folder.join("x.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"two");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_missing_file_is_not_an_error() {
        assert_eq!(read(Path::new("/nonexistent/x")).unwrap(), None);
    }
}
