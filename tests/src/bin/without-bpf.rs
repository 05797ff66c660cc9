//! `without-bpf CODE PROGRAM [ARGUMENT]…`: runs the program where bpf(2) returns the error: EPERM under a seccomp profile that does not know
//! bpf(2), as of some runtimes, EACCES in a domain of SELinux that may not use bpf(2).

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let (code, program) = args
        .next()
        .zip(args.next())
        .context("usage: without-bpf CODE PROGRAM [ARGUMENT]...")?;
    let code = code
        .to_str()
        .and_then(|code| code.parse().ok())
        .context("the code is not a number")?;
    epitaph_tests::sys::refuse_bpf(code).context("install the filter")?;
    Err(Command::new(&program).args(args).exec()).with_context(|| format!("run {}", program.display()))
}
