//! How the program handles its stop signals.

use std::fs::File;
use std::io::{Error, PipeReader, Result, Write as _};
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::libc;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::history::{Handling, Program, Reaction};
use crate::sys::boot_now;

/// The write end of the pipe from the handler, and the log.
static PIPE: AtomicI32 = AtomicI32::new(-1);
static LOG: AtomicI32 = AtomicI32::new(-1);
static RAISES_AGAIN: AtomicBool = AtomicBool::new(false);
static CRASHES: AtomicBool = AtomicBool::new(false);

/// Whether the log of a signal is the handler's.
pub fn logs_itself(handling: Handling) -> bool {
    matches!(
        handling,
        Handling::Handler | Handling::LateHandler | Handling::Drops | Handling::IgnoresLater | Handling::Unblocks
    )
}

/// Sets up what `program` does about `signals`; the number of each that it reads comes out of the pipe, a byte, if it reads any. A
/// handler logs if it has a `log`.
///
/// # Errors
/// A system call fails.
pub fn install(program: &Program, signals: &[i32], log: Option<&File>) -> Result<Option<PipeReader>> {
    let (reader, mut writer) = std::io::pipe()?;
    let set = mask(signals);
    match program.handling {
        Handling::Default => return Ok(None),
        Handling::Ignored => {
            set_all(signals, libc::SIG_IGN)?;
            return Ok(None);
        }
        Handling::Blocked => {
            set.thread_block()?;
            return Ok(None);
        }
        Handling::Handler | Handling::LateHandler | Handling::Drops | Handling::IgnoresLater | Handling::Unblocks => {
            if program.handling == Handling::Unblocks {
                set.thread_block()?;
            }
            PIPE.store(writer.into_raw_fd(), Ordering::Relaxed);
            if let Some(log) = log {
                LOG.store(log.try_clone()?.into_raw_fd(), Ordering::Relaxed);
            }
            RAISES_AGAIN.store(program.reaction == Reaction::ReRaise, Ordering::Relaxed);
            CRASHES.store(program.reaction == Reaction::Crash, Ordering::Relaxed);
            set_all(signals, entered as *const () as libc::sighandler_t)?;
        }
        Handling::SignalFd => {
            set.thread_block()?;
            let from = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
            // A program has it in its loop; a thread that only moves bytes is the same to the kernel: the signal is read from the
            // descriptor.
            std::thread::spawn(move || {
                while let Ok(Some(read)) = from.read_signal() {
                    let _ = writer.write_all(&[byte(read.ssi_signo.cast_signed())]);
                }
            });
        }
        Handling::SigWait => {
            set.thread_block()?;
            std::thread::spawn(move || {
                while let Some(signal) = wait(&set) {
                    let _ = writer.write_all(&[byte(signal)]);
                }
            });
        }
    }
    Ok(Some(reader))
}

/// What the program changes some time after its start.
///
/// # Errors
/// A system call fails.
pub fn change(handling: Handling, signals: &[i32]) -> Result<()> {
    match handling {
        Handling::Drops => set_all(signals, libc::SIG_DFL),
        Handling::IgnoresLater => set_all(signals, libc::SIG_IGN),
        Handling::Unblocks => Ok(mask(signals).thread_unblock()?),
        _ => Ok(()),
    }
}

/// Of any signals, the real-time ones included.
fn mask(signals: &[i32]) -> SigSet {
    let mut set = SigSet::empty();
    #[expect(unsafe_code, reason = "nix's sets have no real-time signals")]
    // SAFETY: the set is initialised, and sigaddset refuses a number that is none.
    unsafe {
        let raw = std::ptr::from_mut(&mut set).cast::<libc::sigset_t>();
        for signal in signals {
            libc::sigaddset(raw, *signal);
        }
    }
    set
}

/// sigwait(3).
fn wait(set: &SigSet) -> Option<i32> {
    let mut signal = 0;
    #[expect(unsafe_code, reason = "nix's sigwait has no real-time signals")]
    // SAFETY: both are valid for the call.
    let done = unsafe { libc::sigwait(set.as_ref(), &raw mut signal) };
    (done == 0).then_some(signal)
}

fn set_all(signals: &[i32], handler: libc::sighandler_t) -> Result<()> {
    for signal in signals {
        #[expect(unsafe_code, reason = "installing a signal handler is, and nix has no real-time signals")]
        // SAFETY: the handler calls only what signal-safety(7) allows, and atomics; a zeroed action has an empty mask.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_RESTART;
            if libc::sigaction(*signal, &raw const action, std::ptr::null_mut()) != 0 {
                return Err(Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// The handler.
extern "C" fn entered(signal: libc::c_int) {
    log(format_args!("\"event\":\"signal\",\"signal\":{signal}"));
    if CRASHES.load(Ordering::Relaxed) {
        log(format_args!("\"event\":\"crashing\""));
        fault();
    }
    if RAISES_AGAIN.load(Ordering::Relaxed) {
        log(format_args!("\"event\":\"raising\""));
        // As language runtimes do it: the signal is delivered when the handler returns.
        let _ = set_all(&[signal], libc::SIG_DFL);
        raise(signal);
        return;
    }
    put(PIPE.load(Ordering::Relaxed), &[byte(signal)]);
}

/// Raises `signal` for its default action. Returns only where the kernel discards it: in PID 1.
///
/// # Errors
/// A system call fails.
pub fn raise_again(signal: i32) -> Result<()> {
    set_all(&[signal], libc::SIG_DFL)?;
    mask(&[signal]).thread_unblock()?;
    raise(signal);
    Ok(())
}

fn raise(signal: i32) {
    #[expect(unsafe_code, reason = "nix has no real-time signals")]
    // SAFETY: raise(3) takes an integer.
    unsafe {
        libc::raise(signal);
    }
}

fn byte(signal: i32) -> u8 {
    u8::try_from(signal).unwrap_or(u8::MAX)
}

/// A line of the program's log, by the handler: without memory of the heap.
fn log(event: std::fmt::Arguments<'_>) {
    let mut line = [0; 96];
    let mut rest = &mut line[..];
    let _ = writeln!(rest, "{{\"at\":{},{event}}}", boot_now());
    let left = rest.len();
    put(LOG.load(Ordering::Relaxed), &line[..line.len() - left]);
}

fn put(to: i32, bytes: &[u8]) {
    #[expect(unsafe_code, reason = "a handler may call write(2), and not what locks")]
    // SAFETY: the bytes are valid for their length.
    unsafe {
        libc::write(to, bytes.as_ptr().cast(), bytes.len());
    }
}

/// A fault of the program itself: SIGSEGV by the kernel. No core: the directory is shared.
pub fn fault() -> ! {
    #[expect(unsafe_code, reason = "it is what the history asks for")]
    // SAFETY: the limit is a plain integer; the second call never returns: no page is mapped without access rights for reading.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let _ = page.cast::<u8>().read_volatile();
    }
    // In the handler the kernel has already ended it.
    std::process::abort()
}
