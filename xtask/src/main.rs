//! The entry point for people: `cargo xtask` lists the tasks; each does its own set-up and prints each step.
//!
//! *Architecture invariant*: this crate does not depend on crate `epitaph`, which embeds the probes that a task must build first.

#![warn(unused_crate_dependencies)]

mod agent;
mod arm64;
mod bench;
mod bpf;
mod cluster;
mod corpus;
mod crate_tool;
mod deb;
mod debian;
mod demo;
mod deny;
mod dist;
mod faults;
mod fresh;
mod fuzz;
mod go;
mod http;
mod image;
mod in_a_row;
mod jaeger;
mod journal;
mod kernels;
mod monitoring;
mod picture;
mod platforms;
mod programs;
mod prove;
mod random;
mod release;
mod sbom;
mod shell;
mod skips;
mod suites;
mod tally;
mod test;
mod times;

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
        about: "over fifty terminations of real processes, each explained in one sentence; --keep keeps the agent's output in a file (root)",
        run: demo::task,
    },
    Task {
        name: "test",
        flags: "[--unprivileged] [--times] [--only PROGRAM,... [--tests TEST,...] | --only timing] [--repeat RUNS] [--loops N] | cluster [STORY...] | oldest | kernels ... | fresh [--run COMMAND] | image [--dev | --size] | release [--dev] [--one-arch] [--windows] | platforms | deb [--dev] | systemd [--dev] [--debian 11|13] [CASE...] | runtimes [--dev] [CASE...] | oom [--dev] [CASE...] | programs [STORY...] | journal [KILLS] | random [N] [--seed S] [--kernels KERNEL,...] [--all-draws | --draw NAME] [--history JSON] [--self-test | --kill-agents [--keep] | --starve] | faults [NAME...]",
        about: "everything that CI checks: format, clippy, unit, property, live probe, story, Jaeger and API server tests (root); \
                --times: also where the time went, by step, test program and test; --only: these test programs, without format and clippy (timing: those that a loaded machine can disturb); --tests: of them, the tests with these names; \
                --repeat: so many runs in a row, beside so many busy loops (--loops), without a retry, with a row in docs/tiers.md; \
                cluster: the stories on a real cluster; oldest: chart, agent and observer at the API server of Kubernetes 1.28; kernels: the same as the task `kernels`; fresh: the README's two commands \
                (or COMMAND) in a minimal Debian root with git, gcc, this machine's rustup and stable toolchain (mounted read-only, \
                as rustup would have installed it) and network settings; fails if a command starts a program that is not installed; \
                image: the container image's digest through two builds, a registry and containerd, and its size (root; --size: the program's size alone, by anybody); \
                release: the artefacts of a release through two builds, a registry and a signature; \
                platforms: `kubectl epitaph` built for Windows and checked for macOS; \
                deb: the package installed, run and purged in an emulated Debian (root); \
                systemd: shutdowns of an emulated Debian, each by another command, and what the agent reports of them (root); \
                runtimes: containers of Docker, Podman and CRI-O in an emulated Debian, and what the agent reports of them (root); \
                oom: processes killed by systemd-oomd and earlyoom of an emulated Debian, and what the agent reports of them (root); \
                programs: real programs of Debian's packages, which are installed, as containers (root); \
                journal: 1,000 kills of agents while containers terminate, 50 power cuts of the journal's disk, an emulated Debian booted with 5 of the images (root); \
                random: N (200) histories drawn from the seed S (by default another each time), played by real processes with clients, and compared with the processes' own logs; \
                a failing history is printed with its seed and shrunk; --history plays one again; --self-test swaps the truths of pairs, \
                and must report each; --all-draws: also what shows a known fault; --draw: each history has this draw; \
                --kernels: the same histories on each of these kernels, in emulated machines, 40 by default, without root; \
                --kill-agents: one agent after the other with a journal, each killed after 4 to 9 s (--keep: journal and log stay); \
                --starve: an agent that is stopped and continued all the time (root); \
                faults: whether the tests find deliberate faults of the product, one at a time, in a copy of the checkout in target/faults (root)",
        run: test::task,
    },
    Task {
        name: "prove",
        flags: prove::FLAGS,
        about: "run tiers of tests, and write the result, date, kernel and commit of each into docs/tiers.md; --quick: those within a \
                quarter of an hour; claims: run what proves each claim of the README, of SECURITY.md and of the threat model, and write \
                docs/proof.md (--quick: those of less than five minutes each; --only: those with this text in their command)",
        run: prove::task,
    },
    Task {
        name: "corpus",
        flags: "[--all] [--timelines] [STORY...]",
        about: "records into tests/corpus what has no recording there: the demo's stories (root) and the text timelines, or these alone; \
                --all records everything anew; then writes what replay gives of all of it",
        run: corpus::task,
    },
    Task {
        name: "fuzz",
        flags: "[TARGET] [--time SECONDS]",
        about: "hostile input for everything that reads bytes from outside: seconds of CPU in all, an hour without --time; a failing \
                input is shrunk and written to tests/fuzz",
        run: fuzz::task,
    },
    Task {
        name: "deny",
        flags: "",
        about: "check licences, banned crates, sources and known vulnerabilities of the dependencies (deny.toml) with cargo-deny, \
                which is built at the first call; `test` checks them too once cargo-deny is built",
        run: deny::task,
    },
    Task {
        name: "jaeger",
        flags: "[--print-path] [--ui DIR]",
        about: "build and start a Jaeger on 127.0.0.1 for --otlp; Ctrl-C stops Jaeger",
        run: jaeger::task,
    },
    Task {
        name: "picture",
        flags: picture::FLAGS,
        about: "make a picture of docs/images anew (root). jaeger: the trace of a recorded termination in Jaeger, whose own pages were \
                built in DIR; alerts, dashboard: made-up metrics in Debian 12's Prometheus",
        run: picture::task,
    },
    Task {
        name: "bench",
        flags: "[--only core|density|signals|connections|exits|agents|journal|attacks|parts] [--record] | api [NODES] | observer [NODES] | rollout [PODS | --record] | epitaphs [NUMBER | --record]",
        about: "measure the cost of observing, compared with an empty probe and bpftrace, and the speed of the core; with attacks (only if named, \
                half an hour): the share of verdicts kept next to a hostile container; with parts (only if named): what each part of the \
                probe of signals costs; prints a table with the last three results (root), names what is worse by more than 5 %, and with --record \
                adds the results to tests/benches/cost/results.tsv. \
                api: what the agents of 50, 500 and 5,000 nodes ask of a real API server, with kwok for the kubelets; \
                observer: what the observer of 50, 150 and 500 nodes costs, and a tenth of them that is lost at once; \
                rollout: what Epitaph writes for a rollout of 1,000 pods, beside what Kubernetes writes for it; \
                epitaphs: what 20,000 Epitaphs cost the observer; with --record these two write their tables into docs/kubernetes.md",
        run: bench::task,
    },
    Task {
        name: "kernels",
        flags: kernels::FLAGS,
        about: "run the probes, the agent and the stories on kernels from 5.10 to the newest, in emulated machines, and on the running \
                kernel (root); compare each with its row in docs/kernels.md",
        run: kernels::task,
    },
    Task {
        name: "cluster",
        flags: cluster::FLAGS,
        about: "run a real Kubernetes cluster on the loopback, with emulated machines as nodes and a Jaeger (root)",
        run: cluster::task,
    },
    Task {
        name: "build",
        flags: "[--dev]",
        about: "build the probes and the binary `epitaph` that embeds them, optimised unless --dev; prints the binary's path. \
                The debug information of the optimised binary is beside it, in epitaph.debug",
        run: agent::task,
    },
    Task {
        name: "image",
        flags: image::FLAGS,
        about: "make the container image, without a Docker daemon: an OCI archive in target/image, which `ctr images import` and \
                `docker load` read; prints its path. --dev: of the unoptimised binary; --arm64: for amd64 and arm64; --push: to a \
                registry, with the credentials of `docker login`",
        run: image::task,
    },
    Task {
        name: "deb",
        flags: "[--dev]",
        about: "make the Debian package, with the systemd unit and the manual pages, in target/deb; prints its path",
        run: deb::task,
    },
    Task {
        name: "release",
        flags: release::FLAGS,
        about: "a release: while the checkout has another version, show where the version stands and what the changelog becomes, and with \
                --write write both; then, with this version, build programs, image, chart, package, checksums and a statement of their \
                origin into target/release-artefacts. --push: image and chart to a registry, from the commit of the version's tag, and never over \
                another image or chart; --minisign: sign the checksums",
        run: release::task,
    },
    Task {
        name: "bpf",
        flags: "[--clippy]",
        about: "build the probes only: target/bpf/probes and target/bpf/shipped",
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
    let task = |task: &Task| format!("\n  {} {}\n{}", task.name, task.flags, indented(task.about));
    format!("cargo xtask TASK\n{}", TASKS.iter().map(task).collect::<String>())
}

/// `text` in lines that fit a terminal, below the name of the task.
fn indented(text: &str) -> String {
    const WIDTH: usize = 92;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| format!("      {line}\n")).collect()
}

/// Refuses arguments that the task did not read: a mistyped flag is an error.
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
