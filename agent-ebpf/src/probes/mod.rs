//! BTF tracepoints. What 5.10 to 7.3 really do at each of them is in docs; four rules carry everything here:
//!
//! - **`siginfo` is never dereferenced.** It can be 0 or 1, and a load through it panics several kernels.
//! - Fields are loaded directly through BTF pointers at offsets that the verifier knows as constants (`kernel::field!`);
//!   `bpf_probe_read_kernel` only where it refuses that.
//! - A program calls no function of this object (`kernel::with_current`).
//! - Every record that cannot be written is counted in `LOST`.
#![expect(
    unsafe_code,
    reason = "a probe reads the kernel's memory: the verifier proves each load, not rustc"
)]

mod cgroup;
mod files;
mod kernel;
mod maps;
mod process;
mod signal;
mod tcp;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

// GPL-only helpers (bpf_probe_read_kernel, bpf_get_current_task_btf) are refused to anything else.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
