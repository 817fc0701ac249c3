//! The only unsafe code: calls for which no crate has a safe wrapper.
#![allow(unsafe_code)]
// Lengths of structures and constants of the kernel's headers, in the types that its calls take.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use super::{Error, Result};
use crate::types::net::Mac;
use nix::errno::Errno;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether standard output was closed when this process began. Before `main` std opens /dev/null in its
/// place, where records would vanish without a word.
pub(crate) fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: no pointers, and it only asks (fcntl(2)).
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the loader calls what stands in this section before `main`, with no other thread about, and the
// function needs nothing of std.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_stdout;

/// The effective capability set of this thread as a bit mask; 0 where it cannot be read.
pub(crate) fn effective_capabilities() -> u64 {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    // _LINUX_CAPABILITY_VERSION_3 takes two words of each set.
    let mut header = Header { version: 0x2008_0522, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: both pointers are to live values of the layout that capget(2) gives for version 3.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if done == 0 { u64::from(data[0].effective) | u64::from(data[1].effective) << 32 } else { 0 }
}

/// Lets a signal end this process again, also where whoever started it had it ignored (`nohup`, a job in the
/// background of a script).
pub(crate) fn let_end(signal: nix::sys::signal::Signal) {
    // SAFETY: the default disposition is no handler that could run.
    unsafe { libc::signal(signal as libc::c_int, libc::SIG_DFL) };
}

/// Fills an array with numbers that nobody can predict (getrandom(2)).
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // SAFETY: the pointer and the length describe the unfilled rest of `bytes`.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().add(filled).cast(), N - filled, 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) if Errno::last() == Errno::EINTR => {}
            Err(_) => return Err(Error::call("draw", "random bytes", Errno::last())),
        }
    }
    Ok(bytes)
}

/// A random number.
pub(crate) fn random_u64() -> Result<u64> {
    random().map(u64::from_ne_bytes)
}

/// The number of the network namespace that a socket is of, which no other gets as long as this kernel runs
/// (`SO_NETNS_COOKIE`, Linux 5.14); `None` where the kernel has none.
pub(crate) fn namespace_cookie(socket: BorrowedFd<'_>) -> Option<u64> {
    // <asm-generic/socket.h>; a kernel that calls something else so has no option of 8 octets there.
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the pointers are to a live value and its length.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (done == 0 && length as usize == size_of::<u64>()).then_some(cookie)
}

/// Parts this process in two (`fork(2)`); `None` in the new one.
///
/// To be called before any thread is started: the new process has this one alone.
pub(crate) fn fork() -> std::result::Result<Option<nix::unistd::Pid>, Errno> {
    // SAFETY: no other thread holds a lock that the new process would wait for.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Some(child)),
        nix::unistd::ForkResult::Child => Ok(None),
    }
}

/// Has a program be killed once the thread that starts it is gone, whatever ended that (`PR_SET_PDEATHSIG`), and begin
/// with no signal blocked.
pub(crate) fn die_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let parent = nix::unistd::getpid();
    let before = move || {
        nix::sys::signal::SigSet::empty().thread_set_mask()?;
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        // It may have gone in between.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: three system calls, which allocate nothing and take no lock.
    unsafe { command.pre_exec(before) };
}

/// Has a program begin with no signal blocked: what this process waits for otherwise, it could not be ended by.
pub(crate) fn unblock_signals(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let before = || Ok(nix::sys::signal::SigSet::empty().thread_set_mask()?);
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(before) };
}

/// A descriptor of a child, readable once it has ended (`pidfd_open(2)`).
pub(crate) fn pidfd(pid: u32) -> std::result::Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0 as libc::c_long) };
    let fd = Errno::result(fd)?;
    // SAFETY: a descriptor that was just made and that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn link_request(dev: &str) -> Option<libc::ifreq> {
    // SAFETY: ifreq is plain data; all zeroes is a valid value of it.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if dev.is_empty() || dev.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(dev.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Some(request)
}

/// Joins (or leaves) the link-layer group `mac` on `dev`, as `ip maddr add` does.
///
/// The kernel counts joins of one address by this call as one, and they outlive the process.
pub(crate) fn set_group(dev: &str, mac: Mac, join: bool) -> Result<()> {
    let doing = if join { format!("join {mac} on") } else { format!("leave {mac} on") };
    let mut request = link_request(dev).ok_or_else(|| Error::no_interface(&doing, dev))?;
    // SAFETY: writing one variant of a union of plain data.
    unsafe {
        for (to, from) in request.ifr_ifru.ifru_hwaddr.sa_data.iter_mut().zip(mac.0) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        request.ifr_ifru.ifru_hwaddr.sa_family = 0; // AF_UNSPEC is what the kernel asks for
    }
    let socket = datagram_socket(&doing, dev)?;
    let number = if join { libc::SIOCADDMULTI } else { libc::SIOCDELMULTI };
    // SAFETY: the descriptor is open and the request is an initialised ifreq.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw mut request) };
    match Errno::result(done) {
        Ok(_) => Ok(()),
        Err(Errno::ENODEV) => Err(Error::no_interface(&doing, dev)),
        Err(errno) => Err(Error::call(doing, dev, errno)),
    }
}

fn datagram_socket(doing: &str, object: &str) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let fd = Errno::result(fd).map_err(|errno| Error::call(doing, object, errno))?;
    // SAFETY: a descriptor that was just made and that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A link-layer socket address.
fn link_address(ifindex: u32, ethertype: u16, to: Option<Mac>) -> libc::sockaddr_ll {
    // SAFETY: sockaddr_ll is plain data; all zeroes is a valid value of it.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = i32::try_from(ifindex).unwrap_or(0);
    if let Some(mac) = to {
        address.sll_halen = 6;
        address.sll_addr[..6].copy_from_slice(&mac.0);
    }
    address
}

const LINK_ADDRESS_LEN: libc::socklen_t = size_of::<libc::sockaddr_ll>() as libc::socklen_t;

/// Opens a packet socket bound to one interface and one `EtherType`.
///
/// Frames come and go with their Ethernet header. Non-blocking.
pub(crate) fn packet_socket(ifindex: u32, dev: &str, ethertype: u16) -> Result<OwnedFd> {
    let doing = "open a packet socket on";
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Protocol 0: nothing is queued before bind names the interface.
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    let fd = Errno::result(fd).map_err(|errno| Error::call(doing, dev, errno))?;
    // SAFETY: a descriptor that was just made and that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = link_address(ifindex, ethertype, None);
    // SAFETY: the address is an initialised sockaddr_ll of the length given.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), LINK_ADDRESS_LEN) };
    match Errno::result(done) {
        Ok(_) => Ok(socket),
        Err(Errno::ENODEV) => Err(Error::no_interface(doing, dev)),
        Err(errno) => Err(Error::call(doing, dev, errno)),
    }
}

/// Sends frames in as few calls as the kernel takes; returns how many left, and why it stopped.
///
/// A short count without an error means that the queue is full for now (`EAGAIN`).
pub(crate) fn send_many(socket: BorrowedFd<'_>, frames: &[&[u8]]) -> (usize, Option<Errno>) {
    const BATCH: usize = 256;
    let mut sent = 0;
    while sent < frames.len() {
        let batch = &frames[sent..frames.len().min(sent + BATCH)];
        let mut parts: Vec<libc::iovec> = batch
            .iter()
            .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: mmsghdr is plain data; all zeroes is a valid value of it.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
        // SAFETY: each message points at one iovec of `parts`, which points at a live frame; the
        // kernel only reads them.
        let done = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        match usize::try_from(done) {
            Ok(0) => return (sent, None),
            Ok(done) => sent += done,
            Err(_) => match Errno::last() {
                Errno::EINTR => {}
                Errno::EAGAIN => return (sent, None),
                errno => return (sent, Some(errno)),
            },
        }
    }
    (sent, None)
}

/// Receives datagrams, many to a call, into buffers that are made once.
pub(crate) struct Datagrams {
    room: usize,
    bytes: Vec<u8>,
    addresses: Vec<libc::sockaddr_storage>,
    /// Room for one time stamp a datagram, aligned as the kernel writes it.
    controls: Vec<[u64; CONTROL_WORDS]>,
    lengths: Vec<usize>,
    arrivals: Vec<Option<Duration>>,
}

/// A control header and a `timespec`: 16 bytes each.
const CONTROL_WORDS: usize = 4;

impl std::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Datagrams({} of {} bytes)", self.addresses.len(), self.room)
    }
}

impl Datagrams {
    /// Room for `count` datagrams of `room` bytes; longer ones come cut.
    pub(crate) fn new(count: usize, room: usize) -> Self {
        // SAFETY: sockaddr_storage is plain data; all zeroes is a valid value of it.
        let blank: libc::sockaddr_storage = unsafe { mem::zeroed() };
        Datagrams {
            room,
            bytes: vec![0; count * room],
            addresses: vec![blank; count],
            controls: vec![[0; CONTROL_WORDS]; count],
            lengths: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// Takes what is queued, without waiting; the number of datagrams, 0 where there are none.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> std::result::Result<usize, Errno> {
        let mut parts: Vec<libc::iovec> = self
            .bytes
            .chunks_exact_mut(self.room)
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .zip(&mut self.addresses)
            .zip(&mut self.controls)
            .map(|((part, address), control)| {
                // SAFETY: mmsghdr is plain data; all zeroes is a valid value of it.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message.msg_hdr.msg_name = (&raw mut *address).cast();
                message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
                message.msg_hdr.msg_control = control.as_mut_ptr().cast();
                message.msg_hdr.msg_controllen = size_of_val(control);
                message
            })
            .collect();
        self.lengths.clear();
        self.arrivals.clear();
        let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
        // SAFETY: each message points at its own chunk of `bytes` and its own address, all of which
        // live until after the call; no timeout is given.
        let done = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT, std::ptr::null_mut())
        };
        match usize::try_from(done) {
            Ok(done) => {
                self.lengths.extend(messages.iter().take(done).map(|message| message.msg_len as usize));
                self.arrivals.extend(messages.iter().take(done).map(|message| arrival(&message.msg_hdr)));
                Ok(done)
            }
            Err(_) => match Errno::last() {
                Errno::EAGAIN | Errno::EINTR => Ok(0),
                errno => Err(errno),
            },
        }
    }

    /// The datagrams of the last call, where each came from, and when the kernel got it on the wall
    /// clock (`SO_TIMESTAMPNS`), where the socket asks for that.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<std::net::SocketAddr>, Option<Duration>)> {
        self.lengths.iter().zip(&self.arrivals).enumerate().map(|(idx, (length, arrival))| {
            let start = idx * self.room;
            let bytes = &self.bytes[start..start + (*length).min(self.room)];
            (bytes, socket_address(&self.addresses[idx]), *arrival)
        })
    }
}

/// The time stamp among a message's control data.
fn arrival(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled in control data and its length; CMSG_FIRSTHDR looks at no more.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const *message).as_ref() }?;
    if header.cmsg_level != libc::SOL_SOCKET || header.cmsg_type != libc::SCM_TIMESTAMPNS {
        return None;
    }
    // SAFETY: a control message of this type holds one timespec.
    let stamp: libc::timespec = unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(&raw const *header).cast()) };
    Some(Duration::new(u64::try_from(stamp.tv_sec).ok()?, u32::try_from(stamp.tv_nsec).ok()?))
}

fn socket_address(address: &libc::sockaddr_storage) -> Option<std::net::SocketAddr> {
    use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
    match libc::c_int::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a sockaddr_in, as the family says, into a larger buffer.
            let v4 = unsafe { *(&raw const *address).cast::<libc::sockaddr_in>() };
            Some(SocketAddr::V4(SocketAddrV4::new(u32::from_be(v4.sin_addr.s_addr).into(), u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the kernel wrote a sockaddr_in6, as the family says, into a larger buffer.
            let v6 = unsafe { *(&raw const *address).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::V6(SocketAddrV6::new(
                v6.sin6_addr.s6_addr.into(),
                u16::from_be(v6.sin6_port),
                0,
                v6.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// Names the interface that multicast leaves by (ip(7), `IP_MULTICAST_IF`).
pub(crate) fn set_multicast_interface(
    socket: BorrowedFd<'_>,
    request: &libc::ip_mreqn,
) -> std::result::Result<(), Errno> {
    // SAFETY: the pointer and the length describe one initialised ip_mreqn, which is only read.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            (&raw const *request).cast(),
            size_of::<libc::ip_mreqn>() as libc::socklen_t,
        )
    };
    Errno::result(done).map(drop)
}

/// Opens a socket for IP packets that come with their own header (raw(7), `IPPROTO_RAW`).
pub(crate) fn ip_socket(v6: bool) -> std::result::Result<OwnedFd, Errno> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW) };
    let fd = Errno::result(fd)?;
    // SAFETY: a descriptor that was just made and that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends one IP packet by the routes to `to`.
pub(crate) fn send_ip(socket: &OwnedFd, packet: &[u8], to: std::net::IpAddr) -> std::result::Result<(), Errno> {
    // Port 0: a raw IPv6 socket takes no other.
    let to = socket2::SockAddr::from(std::net::SocketAddr::new(to, 0));
    // SAFETY: both pointers describe live memory of the lengths given, which is only read.
    let done = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            libc::MSG_DONTWAIT,
            to.as_ptr().cast(),
            to.len(),
        )
    };
    Errno::result(done).map(drop)
}

/// Has the interface hand over frames to every group (packet(7), `PACKET_MR_ALLMULTI`).
pub(crate) fn hear_all_groups(socket: BorrowedFd<'_>, ifindex: u32) -> std::result::Result<(), Errno> {
    let request = libc::packet_mreq {
        mr_ifindex: i32::try_from(ifindex).unwrap_or(0),
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: the pointer and the length describe one initialised packet_mreq, which is only read.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    Errno::result(done).map(drop)
}

/// Has a packet socket not hear what this host sends (packet(7), `PACKET_IGNORE_OUTGOING`).
pub(crate) fn ignore_outgoing(socket: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length describe one int, which is only read.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    Errno::result(done).map(drop)
}
