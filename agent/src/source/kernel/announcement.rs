//! How an agent announces itself to other agents on its machine. They share no file system and no namespace, only the kernel,
//! and each of them observes the kernel's signals.

use std::io;

use epitaph_ebpf::announcement;
use nix::libc;

/// Sends ourselves a signal that does nothing and carries `nonce`. Needs no capability; seccomp's usual profiles allow it.
///
/// # Errors
/// A policy forbids rt_sigqueueinfo(2), or too many signals of this user are pending.
pub fn send(nonce: u32) -> io::Result<()> {
    let signal = announcement::SIGNAL.cast_signed();
    #[expect(unsafe_code, reason = "sigqueue(3) and nix offer no si_code of one's own")]
    // SAFETY: all-zero bytes are a siginfo_t; the kernel only reads it, and it lives until the call returns.
    let result = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = signal;
        info.si_code = announcement::code(nonce);
        libc::syscall(libc::SYS_rt_sigqueueinfo, std::process::id(), signal, &raw const info)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
