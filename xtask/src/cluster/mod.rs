//! A real Kubernetes cluster on this machine: builds what it is made of, and hands that to the binary `cluster` of crate
//! `epitaph-tests`, which starts, shows and ends it.

mod oldest;
mod programs;
mod rootfs;
mod stories;
mod tools;

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, debian, done, shell};

pub use {
    oldest::task as test_oldest,
    programs::build as programs,
    rootfs::Suite,
    stories::task as test,
    tools::{api as api_tools, helm},
};

pub const FLAGS: &str = "up [--nodes N] [--debian 12|13|13-backports] [--pod-within SECONDS] | status | down | shell [NODE] | kubectl ... | test [--nodes N] [--debian 12|13|13-backports] [--at-once N] [STORY...]";

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    match args.subcommand().context("reading what to do")?.as_deref() {
        Some("up") => {
            let nodes: u8 = args.opt_value_from_str("--nodes")?.unwrap_or(1);
            let suite = debian_of_nodes(&mut args)?;
            let pod_within: Option<u32> = args.opt_value_from_str("--pod-within")?;
            done(args)?;
            up(nodes, suite, pod_within)
        }
        Some(name @ ("status" | "down")) => {
            done(args)?;
            run(&[name.into()], None)
        }
        Some(name @ ("shell" | "kubectl")) => {
            let mut words: Vec<OsString> = vec![name.into()];
            words.extend(args.finish());
            run(&words, None)
        }
        Some("test") => test(args),
        Some(other) => bail!("no command `{other}`; the commands are {FLAGS}"),
        None => bail!("a command is missing: {FLAGS}"),
    }
}

/// The tools of a cluster with nodes, built if need be.
pub fn node_tools() -> Result<PathBuf> {
    tools::all(Some(Suite::Trixie))
}

/// What the nodes are made of: Debian 13, 12 with the kernel that many clusters run, or 13 with the kernel of its backports.
fn debian_of_nodes(args: &mut Arguments) -> Result<Suite> {
    let Some(number) = args.opt_value_from_str::<_, String>("--debian")? else {
        return Ok(Suite::Trixie);
    };
    Suite::of_nodes(&number).with_context(|| format!("no node of Debian {number}: 12, 13 and 13-backports"))
}

/// The tools of machines with the Debian of `suite`, built if need be. Those of clusters serve as well where they are that Debian.
pub fn machine_tools(suite: Suite) -> Result<PathBuf> {
    match suite {
        Suite::Trixie => node_tools(),
        Suite::Bullseye | Suite::Bookworm | Suite::TrixieBackports | Suite::Runtimes | Suite::OomDaemons => tools::bare(suite),
    }
}

/// For the image `programs` (`tests/src/cluster/images.rs`).
const PROGRAMS: [&str; 5] = ["tini", "dumb-init", "nginx-light", "haproxy", "redis-server"];

/// Builds what is missing, and starts what does not run; gives up, with the status of what is not in time, where a pod takes longer
/// than `pod_within` seconds to be ready.
fn up(nodes: u8, suite: Suite, pod_within: Option<u32>) -> Result<ExitCode> {
    let tools = tools::all((nodes > 0).then_some(suite))?;
    if nodes > 0
        && let Err(error) = debian::ensure(&PROGRAMS, "pods of real programs")
    {
        shell::log(format_args!("going on without the pods of real programs: {error:#}"));
    }
    let pod_within = pod_within.map(|seconds| ["--pod-within".into(), seconds.to_string().into()]);
    let words: Vec<OsString> = ["up".into(), "--nodes".into(), nodes.to_string().into()]
        .into_iter()
        .chain(pod_within.into_iter().flatten())
        .collect();
    run(&words, Some(tools))
}

/// Directory of a cluster's state: one per user, shared by all checkouts, or the directory that the user names.
fn state() -> PathBuf {
    shell::env("EPITAPH_CLUSTER").map_or_else(|| shell::cache().join("cluster/state"), PathBuf::from)
}

/// The selection of every build of the cluster tier. A test of the default packages among them: so dependencies get the same features as in
/// the everyday tests, and nothing is built twice.
const BUILDS: [&str; 3] = ["--bins", "--test", "cluster"];

/// Runs the binary, which knows from the state which tools a running cluster is made of.
fn run(words: &[OsString], tools: Option<PathBuf>) -> Result<ExitCode> {
    let built = if tools.is_some() {
        bpf::build()?;
        Built::of(
            &BUILDS,
            "building the agent, the players, the program `cluster` and its tests",
        )?
    } else {
        let selection = ["--package", "epitaph", "--package", "epitaph-tests", "--bin", "cluster"];
        Built::of(&selection, "building the program `cluster`")?
    };
    let mut command = Command::new(built.bin("cluster")?);
    command.args(words).env("EPITAPH_CLUSTER", state()).env("PATH", shell::path());
    match tools {
        Some(tools) => command.env("EPITAPH_CLUSTER_TOOLS", tools),
        None => command.env_remove("EPITAPH_CLUSTER_TOOLS"),
    };
    let status = command.status().context("running the program `cluster`")?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, signal) => bail!("the program `cluster` was terminated by signal {}", signal.unwrap_or(0)),
    })
}
