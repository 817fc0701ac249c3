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

/// Whether a process is of a program: by its name, which the kernel cuts to 15 bytes, or by the last
/// part of the path that it was started with.
pub(crate) fn is_called(program: &str, name: &str, cmdline: &[u8]) -> bool {
    const NAME_MAX: usize = 15;
    let cut = program.as_bytes().get(..NAME_MAX).unwrap_or(program.as_bytes());
    let started = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
    // Daemons write their state behind it: `nginx: master process /usr/sbin/nginx`.
    let started = started.split(|byte| matches!(byte, b' ' | b':')).next().unwrap_or_default();
    let last = started.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.as_bytes() == cut || (!last.is_empty() && last == program.as_bytes())
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
        for (program, name, cmdline, is) in [
            ("nginx", "nginx", &b"nginx: master process /usr/sbin/nginx\0"[..], true),
            ("sshd", "sshd", b"/usr/sbin/sshd\0-D\0", true),
            ("a-name-longer-than-15", "a-name-longer-t", b"", true),
            ("myscript", "sh", b"/opt/myscript\0x\0", true),
            ("sshd", "bash", b"bash\0-c\0sshd\0", false),
            ("ssh", "sshd", b"/usr/sbin/sshd\0", false),
            ("x", "kworker", b"", false),
        ] {
            assert_eq!(is_called(program, name, cmdline), is, "{program} {name}");
        }
    }
}
