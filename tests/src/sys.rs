//! The few system calls that neither std nor nix gives safely, each with its reason. Signal numbers are plain `i32`, because
//! nix's `Signal` has no real-time ones.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::libc;
use nix::sched::CloneFlags;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, Pid};

use crate::timeout::{holds, until};

/// `CLOCK_BOOTTIME`, nanoseconds: the clock of the agent's evidence, so that both can be compared.
pub fn boot_now() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}

/// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`, nanoseconds.
pub fn wall_offset() -> i64 {
    let nanos = |clock| clock_gettime(clock).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec());
    nanos(ClockId::CLOCK_REALTIME) - nanos(ClockId::CLOCK_BOOTTIME)
}

/// `CLOCK_REALTIME`, seconds since the epoch: compared with the times of an API.
pub fn wall_seconds() -> f64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 / 1e9)
}

/// What a mutex holds, also after a panic of another thread: its own test fails by that.
pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `bytes` random bytes as lower-case hex.
///
/// # Errors
/// `/dev/urandom` is not readable.
pub fn random_hex(bytes: usize) -> Result<String> {
    let mut raw = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut raw)?;
    Ok(raw.iter().map(|b| format!("{b:02x}")).collect())
}

/// kill(2), any signal number.
///
/// # Errors
/// As kill(2); `pid` must be above 0.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    if pid <= 0 {
        return Err(Error::from_raw_os_error(libc::EINVAL));
    }
    #[expect(unsafe_code, reason = "nix's kill takes no real-time signals")]
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    check(unsafe { libc::kill(pid, signal) })
}

/// A free loop device with that file, and its path. The kernel frees it when nothing uses it any more: neither the returned file nor a
/// mount.
///
/// # Errors
/// Not root, no loop devices, a kernel before 5.8.
pub fn loop_device(image: &File) -> Result<(File, PathBuf)> {
    // include/uapi/linux/loop.h
    const LOOP_CTL_GET_FREE: u64 = 0x4c82;
    const LOOP_CONFIGURE: u64 = 0x4c0a;
    const LO_FLAGS_AUTOCLEAR: u32 = 4;
    /// `struct loop_config`: the file, the size of a block, `struct loop_info64` with its flags, and 64 reserved bytes.
    const CONFIG: usize = 304;
    const FLAGS: usize = 60;
    let open = |path: &Path| File::options().read(true).write(true).open(path);
    let control = open("/dev/loop-control".as_ref())?;
    loop {
        #[expect(unsafe_code, reason = "nix has no call for loop devices")]
        // SAFETY: this ioctl takes no argument, and returns a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        check(number.min(0))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path)?;
        let mut config = [0_u8; CONFIG];
        config[..4].copy_from_slice(&image.as_raw_fd().to_ne_bytes());
        config[FLAGS..FLAGS + 4].copy_from_slice(&LO_FLAGS_AUTOCLEAR.to_ne_bytes());
        #[expect(unsafe_code, reason = "nix has no call for loop devices")]
        // SAFETY: the kernel reads the whole of `struct loop_config`, which has this size.
        let configured = check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, config.as_ptr()) });
        match configured {
            Ok(()) => return Ok((device, path)),
            // Another process was first.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Write end of the pipe that the handler writes signal numbers to.
static HANDLED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn write_to_pipe(signal: i32) {
    let byte = signal as u8;
    #[expect(
        unsafe_code,
        reason = "a signal handler may only use async-signal-safe calls: write(2) is one"
    )]
    // SAFETY: one byte from our own stack to a file descriptor that is never closed.
    unsafe {
        libc::write(HANDLED.load(Ordering::Relaxed), (&raw const byte).cast(), 1);
    }
}

/// Handles `signals` from now on: the handler is entered, and writes the signal's number as one byte to the returned pipe.
///
/// # Errors
/// A second call (one handler per process), a signal that cannot be handled, no file descriptors left.
pub fn handle(signals: &[i32]) -> Result<std::io::PipeReader> {
    use std::os::fd::IntoRawFd;
    let (reader, writer) = std::io::pipe()?;
    if HANDLED
        .compare_exchange(-1, writer.into_raw_fd(), Ordering::SeqCst, Ordering::SeqCst)
        .is_err()
    {
        return Err(Error::other("handle signals: they are handled already"));
    }
    for &signal in signals {
        set_action(signal, write_to_pipe as *const () as usize)?;
    }
    Ok(reader)
}

/// Sets the kernel's default action.
///
/// # Errors
/// As sigaction(2).
pub fn set_default(signal: i32) -> Result<()> {
    set_action(signal, libc::SIG_DFL)
}

/// Has the kernel ignore `signal`.
///
/// # Errors
/// As sigaction(2).
pub fn ignore(signal: i32) -> Result<()> {
    set_action(signal, libc::SIG_IGN)
}

fn set_action(signal: i32, action: libc::sighandler_t) -> Result<()> {
    #[expect(unsafe_code, reason = "nix's sigaction takes no real-time signals, and is unsafe too")]
    // SAFETY: a zeroed sigaction is a valid one (SIG_DFL, empty mask); `action` is SIG_DFL, SIG_IGN or `write_to_pipe`,
    // which is async-signal-safe.
    check(unsafe {
        let mut new: libc::sigaction = MaybeUninit::zeroed().assume_init();
        new.sa_sigaction = action;
        new.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const new, null_mut())
    })
}

/// A set of signals that the calling thread (and those it makes) has blocked.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    /// Blocks `signal` in the calling thread.
    ///
    /// # Errors
    /// As sigprocmask(2).
    pub fn new(signal: i32) -> Result<Blocked> {
        #[expect(unsafe_code, reason = "nix's SigSet takes no real-time signals")]
        // SAFETY: `set` is ours; sigemptyset initialises it before any other use.
        unsafe {
            let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            check(libc::sigemptyset(&raw mut set))?;
            check(libc::sigaddset(&raw mut set, signal))?;
            check(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut()))?;
            Ok(Blocked(set))
        }
    }

    /// Waits with sigwait(3); the signal's number.
    ///
    /// # Errors
    /// As sigwait(3).
    pub fn wait(&self) -> Result<i32> {
        let mut signal = 0;
        #[expect(unsafe_code, reason = "nix's SigSet takes no real-time signals")]
        // SAFETY: both pointers are to live values of ours.
        let code = unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        if code == 0 {
            Ok(signal)
        } else {
            Err(Error::from_raw_os_error(code))
        }
    }

    /// Waits by reading a signalfd(2); the signal's number.
    ///
    /// # Errors
    /// As signalfd(2) and read(2).
    pub fn read_fd(&self) -> Result<i32> {
        use std::os::fd::FromRawFd;
        #[expect(unsafe_code, reason = "nix's SignalFd takes no real-time signals")]
        // SAFETY: signalfd makes a new descriptor, of which the File is the only owner; it is checked before.
        let mut fd = unsafe {
            let raw = libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC);
            if raw < 0 {
                return Err(Error::last_os_error());
            }
            File::from_raw_fd(raw)
        };
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        fd.read_exact(&mut info)?;
        // ssi_signo is the first field.
        Ok(i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))
    }
}

/// Raises `signal` in the calling thread (tgkill, as raise(3) does).
///
/// # Errors
/// As raise(3).
pub fn raise(signal: i32) -> Result<()> {
    #[expect(unsafe_code, reason = "nix's raise takes no real-time signals")]
    // SAFETY: raise(3) takes an integer.
    check(unsafe { libc::raise(signal) })
}

/// A real fault: writes to address 0. Rust's own handler for stack overflows is taken away first, so that the kernel's
/// default action is all that happens.
pub fn fault() -> ! {
    let _ = set_default(libc::SIGSEGV);
    #[expect(unsafe_code, reason = "the story is a program that faults: nothing safe does")]
    // SAFETY: none, on purpose. Page 0 is not mapped, the process ends here by SIGSEGV.
    unsafe {
        let nowhere = std::hint::black_box(std::ptr::without_provenance_mut::<u32>(0));
        nowhere.write_volatile(1);
    }
    std::process::abort()
}

/// Waits until every other thread of this process has exited. The first one stays as a zombie until the process ends.
///
/// # Errors
/// No /proc, or another thread runs on.
pub fn until_alone() -> Result<()> {
    // In the pid namespace of /proc, whichever this is.
    let own = std::fs::read_link("/proc/thread-self")?;
    let tasks = own.parent().ok_or_else(|| Error::other("no threads in /proc"))?;
    let tasks = Path::new("/proc").join(tasks);
    let alone = until("every other thread to exit", || {
        let others = std::fs::read_dir(&tasks)?
            .flatten()
            .filter(|task| Some(task.file_name().as_os_str()) != own.file_name());
        let running: Vec<String> = others
            .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
            .filter(|stat| after_name(stat).is_some_and(|rest| !rest.starts_with(['Z', 'X'])))
            .collect();
        Ok(holds(running.is_empty(), || running.join("")))
    });
    alone.map_err(Error::other)
}

/// Waits until none of `processes` that has a child among them is runnable: on a busy machine the child that a parent started may be ready
/// long before the parent knows it. One that vfork(2) holds sleeps uninterruptibly.
///
/// # Errors
/// A parent runs for as long as tests wait, or `processes` cannot be read.
pub fn until_parents_sleep(processes: impl Fn() -> Result<Vec<u32>>) -> anyhow::Result<()> {
    until("the parents to sleep", || {
        let stats: Vec<(u32, String)> = processes()?
            .into_iter()
            .filter_map(|pid| Some((pid, std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)))
            .collect();
        // State and parent are the first two fields after the name.
        let parents: Vec<&str> = stats
            .iter()
            .filter_map(|(_, stat)| after_name(stat)?.split(' ').nth(1))
            .collect();
        let busy = stats
            .iter()
            .filter(|(_, stat)| after_name(stat).is_some_and(|rest| rest.starts_with('R')))
            .find(|(pid, _)| parents.contains(&pid.to_string().as_str()));
        Ok(holds(busy.is_none(), || format!("{busy:?}")))
    })
}

/// The fields of a /proc/PID/stat after the name, which may hold anything, a bracket too. None: it has no name.
pub fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

/// A child that does `act`, executes nothing, and exits with 0; its process id. Before this process has another thread.
///
/// # Errors
/// As fork(2).
pub fn fork(act: impl FnOnce()) -> Result<Pid> {
    #[expect(unsafe_code, reason = "std cannot start a process that executes nothing")]
    // SAFETY: this process has one thread, so the child may do what this one may.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            act();
            std::process::exit(0)
        }
    }
}

/// As [`fork`], but this process waits in the kernel until the child has exited, as one that has called vfork(2): SIGKILL alone ends that
/// wait.
///
/// # Errors
/// As clone(2).
pub fn wait_for(act: impl Fn()) -> Result<()> {
    // Of the child's own copy, for it shares no memory.
    let mut stack = vec![0; 256 << 10];
    let run = Box::new(|| {
        act();
        0
    });
    #[expect(unsafe_code, reason = "nix's clone is unsafe")]
    // SAFETY: this process has one thread, and the child shares no memory with it: it may do what this one may.
    unsafe { nix::sched::clone(run, &mut stack, CloneFlags::CLONE_VFORK, Some(libc::SIGCHLD)) }?;
    Ok(())
}

/// The listener that this process was started with, under that number, and that nothing here has used yet.
///
/// # Errors
/// The number is no open file descriptor.
pub fn inherited(fd: i32) -> Result<std::net::TcpListener> {
    use std::os::fd::FromRawFd as _;
    std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
    #[expect(unsafe_code, reason = "an inherited file descriptor has a number only")]
    // SAFETY: it is open, and the listener is its only owner in this process, which calls this once.
    Ok(unsafe { std::net::TcpListener::from_raw_fd(fd) })
}

/// Exits the calling thread alone, as exit(2) of the kernel does: the process goes on in its other threads.
pub fn exit_thread(code: i32) -> ! {
    #[expect(unsafe_code, reason = "std ends the whole process when its first thread returns")]
    // SAFETY: the thread runs no code after this; what is on its stack is never freed, and no other thread borrows from it.
    unsafe {
        libc::syscall(libc::SYS_exit, code);
    }
    std::process::abort()
}

/// Has the kernel answer with an error to every bpf(2) of this process and of what it becomes: EPERM as a seccomp profile does, EACCES as
/// SELinux does.
///
/// # Errors
/// As prctl(2).
pub fn refuse_bpf(code: i32) -> Result<()> {
    filter(libc::SYS_bpf, libc::SECCOMP_RET_ERRNO | code as u32)
}

/// Has the kernel end this process by SIGSYS at that system call.
///
/// # Errors
/// As prctl(2).
pub fn kill_at(call: libc::c_long) -> Result<()> {
    filter(call, libc::SECCOMP_RET_KILL_PROCESS)
}

/// The kernel's answer to one system call.
fn filter(call: libc::c_long, answer: u32) -> Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The first field of the filter's input is the number of the call.
    let mut filter = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 0, 1, call as u32),
        step(RETURN, 0, 0, answer),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    nix::sys::prctl::set_no_new_privs()?;
    #[expect(unsafe_code, reason = "nix has no seccomp filters")]
    // SAFETY: `program` and the filter that it points to live longer than the call, which copies them.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) })
}

fn check(result: i32) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
