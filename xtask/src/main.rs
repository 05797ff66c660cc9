//! The one door for people: `cargo xtask` lists its tasks; each does its own set-up and says what it is doing.
//!
//! *Architecture invariant*: nothing here depends on crate `epitaph`, which embeds the probes that a task must build first.

mod agent;
mod bench;
mod bpf;
mod cluster;
mod debian;
mod demo;
mod fresh;
mod go;
mod jaeger;
mod kernels;
mod shell;
mod skips;
mod tally;
mod test;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

struct Task {
    name: &'static str,
    flags: &'static str,
    about: &'static str,
    run: fn(Arguments) -> Result<ExitCode>,
}

const TASKS: &[Task] = &[
    Task {
        name: "demo",
        flags: "[--otlp URL] [--keep] [STORY...]",
        about: "over fifty deaths, played by real processes, explained as they happen; --keep leaves the agent's output in a file (root)",
        run: demo::task,
    },
    Task {
        name: "test",
        flags: "[--unprivileged] | cluster [STORY...] | kernels ... | fresh [--run COMMAND]",
        about: "all that CI checks: format, clippy, unit, property, live probe, story, Jaeger and API server tests (root); cluster: \
                the stories on a real cluster; kernels: as the task of that name; fresh: the README's two commands (or COMMAND) in a \
                minimal Debian root with git, gcc, this machine's rustup and stable toolchain (mounted read-only, as rustup would \
                have installed it) and network settings; also fails if a command starts a program that is not installed",
        run: test::task,
    },
    Task {
        name: "jaeger",
        flags: "[--print-path] [--ui DIR]",
        about: "build and start a Jaeger on 127.0.0.1 for --otlp; Ctrl-C ends it",
        run: jaeger::task,
    },
    Task {
        name: "bench",
        flags: "[--only core|signals|connections|agents]",
        about: "what observing costs, against an empty probe and bpftrace, and how fast the core is, as a table (root)",
        run: bench::task,
    },
    Task {
        name: "kernels",
        flags: kernels::FLAGS,
        about: "the probes, the agent and the stories on kernels from 5.10 to the newest, in emulated machines, and on the running one \
                (root); each held to its row in docs/kernels.md",
        run: kernels::task,
    },
    Task {
        name: "cluster",
        flags: cluster::FLAGS,
        about: "a real Kubernetes cluster on the loopback, its nodes emulated machines, with a Jaeger (root)",
        run: cluster::task,
    },
    Task {
        name: "build",
        flags: "[--dev]",
        about: "the probes, then the binary `epitaph` that embeds them, optimised unless --dev; prints its path",
        run: agent::task,
    },
    Task {
        name: "bpf",
        flags: "[--clippy]",
        about: "the probes alone: target/bpf/probes",
        run: bpf::task,
    },
];

fn main() -> ExitCode {
    match dispatch() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<ExitCode> {
    let mut args = Arguments::from_env();
    let Some(name) = args.subcommand().context("reading the task's name")? else {
        args.contains(["-h", "--help"]);
        done(args)?;
        print!("{}", listing());
        return Ok(ExitCode::SUCCESS);
    };
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        bail!("no task `{name}`; `cargo xtask` lists them");
    };
    if args.contains(["-h", "--help"]) {
        println!("cargo xtask {} {}\n{}", task.name, task.flags, task.about);
        return Ok(ExitCode::SUCCESS);
    }
    (task.run)(args).with_context(|| format!("task {name}"))
}

fn listing() -> String {
    let calls: Vec<String> = TASKS.iter().map(|task| format!("{} {}", task.name, task.flags)).collect();
    let width = calls.iter().map(String::len).max().unwrap_or(0);
    let lines = TASKS
        .iter()
        .zip(&calls)
        .map(|(task, call)| format!("  {call:width$}  {}\n", task.about));
    format!("cargo xtask TASK\n\n{}", lines.collect::<String>())
}

/// Refuses what a task did not ask for: a mistyped flag is an error, not a wish unheard.
fn done(args: Arguments) -> Result<()> {
    let rest = args.finish();
    if let Some(first) = rest.first() {
        bail!(
            "unexpected argument `{}`; `cargo xtask` lists the tasks and their flags",
            first.to_string_lossy()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_listed_on_a_line_of_its_own() {
        let listing = listing();
        for task in TASKS {
            assert_eq!(
                listing
                    .lines()
                    .filter(|line| line.starts_with(&format!("  {} ", task.name)))
                    .count(),
                1,
                "{listing}"
            );
        }
    }
}
