//! Epitaph's probes. Built for the BPF target only; on a host this is an empty program, so that the workspace checks.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(asm_experimental_arch))]

#[cfg(target_arch = "bpf")]
mod probes;

#[cfg(not(target_arch = "bpf"))]
fn main() {}
