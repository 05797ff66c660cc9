//! `without-bpf PROGRAM [ARGUMENT]…`: runs the program under a seccomp profile that does not know bpf(2), as some runtimes do.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().context("usage: without-bpf PROGRAM [ARGUMENT]...")?;
    epitaph_tests::sys::refuse_bpf().context("install the filter")?;
    Err(Command::new(&program).args(args).exec()).with_context(|| format!("run {}", program.display()))
}
