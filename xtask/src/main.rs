//! `cargo xtask`: the one door for people.

mod kernels;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
enum Task {
    /// The probes and the agent on other kernels, in emulated machines
    Kernels(kernels::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Task::parse() {
        Task::Kernels(args) => kernels::kernels(args),
    }
}
