//! Files of /proc (proc(5)), as the kernel writes them.

/// The three averages of `/proc/loadavg`: of 1, 5 and 15 minutes.
pub(crate) fn loadavg(text: &str) -> Option<[f64; 3]> {
    let mut words = text.split_whitespace().map(|word| word.parse::<f64>().ok().filter(|load| load.is_finite()));
    Some([words.next()??, words.next()??, words.next()??])
}

/// How many CPUs are online, from `/proc/stat`.
pub(crate) fn cpus(stat: &str) -> usize {
    let is_cpu =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    stat.lines().filter(is_cpu).count()
}

/// A figure of `/proc/meminfo` in bytes.
pub(crate) fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The name and the state letter of `/proc/PID/stat`. A name may have blanks and brackets in it.
pub(crate) fn stat(text: &str) -> Option<(&str, char)> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    Some((name, tail.trim_start().chars().next()?))
}

/// Whether a process is of a program: by its name, or by the last part of the path that it was started
/// with. The kernel cuts names to 15 bytes; one that may be cut counts only where the file that runs,
/// `exe`, or one of the first words, where an interpreter has its script, tells the rest.
pub(crate) fn is_called(program: &str, name: &str, cmdline: &[u8], exe: Option<&[u8]>) -> bool {
    const NAME_MAX: usize = 15;
    let last = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(program.as_bytes());
    let mut words = cmdline.split(|byte| *byte == 0);
    let first = words.next().unwrap_or_default();
    // Daemons write their state behind it: `nginx: master process /usr/sbin/nginx`.
    if last(first.split(|byte| matches!(byte, b' ' | b':')).next().unwrap_or_default()) {
        return true;
    }
    if name.len() < NAME_MAX {
        return name == program;
    }
    // A package that is being replaced.
    let exe = exe.map(|exe| exe.strip_suffix(b" (deleted)").unwrap_or(exe));
    // Without words it is the kernel's own, or has ended: there is no more to go by.
    let untold = cmdline.is_empty() && exe.is_none() && name == program;
    program.as_bytes().get(..NAME_MAX) == Some(name.as_bytes())
        && (untold || exe.is_some_and(last) || words.take(2).any(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_read() {
        assert_eq!(loadavg("0.20 1.50 0.05 1/123 4567\n"), Some([0.2, 1.5, 0.05]));
        assert_eq!(loadavg("0.20 x 0.05"), None);
        assert_eq!(cpus("cpu  1 2\ncpu0 1\ncpu1 1\nintr 5\n"), 2);
        assert_eq!(meminfo("MemTotal:  100 kB\nMemAvailable:   7 kB\n", "MemAvailable"), Some(7168));
        assert_eq!(meminfo("MemTotal: 100 kB\n", "MemAvailable"), None);
        assert_eq!(stat("42 (a) b) S 1 2"), Some(("a) b", 'S')));
        assert_eq!(stat("42 x"), None);
    }

    #[test]
    fn a_program_is_known_by_either_name() {
        for (program, name, cmdline, exe, is) in [
            ("nginx", "nginx", &b"nginx: master process /usr/sbin/nginx\0"[..], None, true),
            ("sshd", "sshd", b"/usr/sbin/sshd\0-D\0", None, true),
            ("a-name-longer-than-15", "a-name-longer-t", b"/bin/a-name-longer-than-15\0", None, true),
            ("a-name-longer-than-15", "a-name-longer-t", b"/bin/a-name-longer-than-16\0", None, false),
            ("a-name-longer-than-15", "a-name-longer-t", b"", None, false),
            ("a-name-longer-t", "a-name-longer-t", b"a-name-longer-than-15\0", None, false),
            ("a-name-longer-t", "a-name-longer-t", b"", None, true),
            // Its own words are gone, the file is not; a script, whose interpreter has it.
            ("a-name-longer-than-15", "a-name-longer-t", b"idle\0", Some(&b"/bin/a-name-longer-than-15"[..]), true),
            ("a-name-longer-than-15", "a-name-longer-t", b"x\0", Some(b"/a-name-longer-than-15 (deleted)"), true),
            ("a-name-longer-than-15", "a-name-longer-t", b"sh\0/x/a-name-longer-than-15\0", Some(b"/bin/sh"), true),
            ("a-name-longer-than-16", "a-name-longer-t", b"sh\0/x/a-name-longer-than-15\0", Some(b"/bin/sh"), false),
            ("myscript", "sh", b"/opt/myscript\0x\0", None, true),
            ("myscript", "myscript", b"/bin/sh\0/opt/myscript\0", None, true),
            ("sshd", "bash", b"bash\0-c\0sshd\0", None, false),
            ("ssh", "sshd", b"/usr/sbin/sshd\0", None, false),
            ("x", "kworker", b"", None, false),
        ] {
            assert_eq!(is_called(program, name, cmdline, exe), is, "{program} {name} {cmdline:?}");
        }
    }
}
