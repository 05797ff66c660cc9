//! aya's loader, without the kernel's types.

use std::thread;

use aya::EbpfLoader;
use nix::errno::Errno;
use nix::libc;

/// A loader that has read nothing.
///
/// `EbpfLoader::new` of aya 0.14 reads and parses all types of the running kernel, tens of MiB for a moment, also where `EbpfLoader::btf` then gives
/// it others. aya 0.15 does not, but needs Rust 1.98: with it, this file can go. Until then a thread that may not open files makes the loader. Where
/// the kernel has no seccomp, the loader has read the types in vain.
pub(super) fn without_types() -> EbpfLoader<'static> {
    let made = thread::Builder::new().name("loader".into()).spawn(|| {
        if let Err(error) = refuse_to_open_files() {
            tracing::debug!("the kernel's types are read once more than needed: cannot forbid it by seccomp: {error}");
        }
        EbpfLoader::new()
    });
    let loader = made.ok().and_then(|thread| thread.join().ok());
    loader.unwrap_or_else(EbpfLoader::new)
}

/// For the rest of the calling thread.
fn refuse_to_open_files() -> Result<(), Errno> {
    const OPENAT: u32 = libc::SYS_openat as u32;
    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The number of the system call is the first field of `struct seccomp_data`.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, OPENAT, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, REFUSED, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // Without it, only a process with CAP_SYS_ADMIN may have a filter.
    nix::sys::prctl::set_no_new_privs()?;
    #[expect(unsafe_code, reason = "no safe crate of ours offers seccomp")]
    // SAFETY: `filter` is a whole program, which the kernel copies.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const filter,
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_has_no_types_and_this_thread_opens_files_all_the_same() {
        let shown = format!("{:?}", without_types());
        assert!(shown.starts_with("EbpfLoader { btf: None, "), "{} bytes", shown.len());
        assert!(std::fs::File::open("/proc/self/stat").is_ok());
    }
}
