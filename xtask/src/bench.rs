//! The measurements: builds the agent and the measuring program optimised, and has it measure on this machine.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{
    agent::{self, Built},
    bpf, cluster, debian, done, go, shell,
};

const PARTS: [&str; 9] = [
    "core",
    "density",
    "signals",
    "connections",
    "exits",
    "agents",
    "journal",
    "attacks",
    "parts",
];

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    match args.subcommand().context("reading what to measure")?.as_deref() {
        None => {}
        Some("api") => return api(args),
        Some("observer") => return observer(args),
        Some("rollout") => return rollout(args),
        Some("epitaphs") => return epitaphs(args),
        Some(other) => bail!("no measurement `{other}`; `cargo xtask` lists the tasks"),
    }
    let only: Option<String> = args.opt_value_from_str("--only")?;
    let record = args.contains("--record");
    done(args)?;
    if let Some(part) = only.as_deref()
        && !PARTS.contains(&part)
    {
        bail!("no part `{part}`; the parts are {}", PARTS.join(", "));
    }
    if !shell::is_root() {
        bail!("the measurements need root: they load probes and create cgroups");
    }
    debian::ensure_optional("bpftrace", "bpftrace", "comparing with bpftrace");
    bpf::build()?;
    let object = (only.as_deref() == Some("parts")).then(bpf::build_parts).transpose()?;
    let selection = [
        "--release",
        "--package",
        "epitaph",
        "--bin",
        "epitaph",
        "--package",
        "epitaph-tests",
        "--bench",
        "cost",
    ];
    let built = Built::of(&selection, "building the agent and the measurements, optimised")?;
    let (epitaph, cost) = (built.bin("epitaph")?, built.bench("cost")?);
    let etcd = match only.as_deref() {
        None | Some("journal") => etcd(),
        _ => None,
    };
    shell::log("measuring takes some minutes; an idle machine gives the best numbers");
    let status = Command::new(&cost)
        .arg(&epitaph)
        .env_remove("EPITAPH_CLUSTER_TOOLS")
        .envs(etcd.map(|tools| ("EPITAPH_CLUSTER_TOOLS", tools)))
        .args(only)
        .args(object)
        .args(record.then(commit).transpose()?.into_iter().flatten())
        .env("PATH", shell::path())
        .status()
        .with_context(|| format!("running {}", cost.display()))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What the results are recorded under.
fn commit() -> Result<[String; 2]> {
    let mut git = Command::new("git");
    git.current_dir(shell::root()).args(["describe", "--always", "--dirty"]);
    Ok(["--record".to_owned(), shell::read(&mut git)?])
}

/// The tools with an etcd, which shares its disk with the journal. None: the measurement has a writer of its own then.
fn etcd() -> Option<PathBuf> {
    cluster::api_tools()
        .inspect_err(|error| shell::log(format_args!("measuring the journal without an etcd: {error:#}")))
        .ok()
}

/// What a fleet's agents ask of a real API server, with kwok for the kubelets.
fn api(args: Arguments) -> Result<ExitCode> {
    bpf::build()?;
    let selection = ["--package", "epitaph-tests", "--bench", "api"];
    let built = Built::of(&selection, "building the measurement")?;
    shell::log("measuring takes a quarter of an hour; 5,000 agents need 6 GB of memory");
    fleet(args, &built, &[])
}

/// What the observer of a large cluster costs, also while a tenth of the nodes is lost.
fn observer(args: Arguments) -> Result<ExitCode> {
    let epitaph = agent::build(true)?;
    let selection = ["--package", "epitaph-tests", "--bench", "api"];
    let built = Built::of(&selection, "building the measurement")?;
    shell::log("measuring takes half an hour");
    fleet(args, &built, &["observer".into(), epitaph.into()])
}

/// What Epitaph writes for a rollout, beside what Kubernetes itself writes for it.
fn rollout(args: Arguments) -> Result<ExitCode> {
    let epitaph = agent::build(false)?;
    let selection = ["--package", "epitaph-tests", "--bench", "api"];
    let built = Built::of(&selection, "building the measurement")?;
    shell::log("measuring takes a quarter of an hour");
    fleet(args, &built, &["rollout".into(), epitaph.into()])
}

/// What many Epitaphs cost the observer, made by an agent whose node is taken over.
fn epitaphs(args: Arguments) -> Result<ExitCode> {
    let epitaph = agent::build(true)?;
    let selection = ["--package", "epitaph-tests", "--bench", "api"];
    let built = Built::of(&selection, "building the measurement")?;
    shell::log("measuring takes ten minutes");
    fleet(args, &built, &["epitaphs".into(), epitaph.into()])
}

/// Runs the measurement of many nodes.
fn fleet(mut args: Arguments, built: &Built, words: &[OsString]) -> Result<ExitCode> {
    let size: Option<u32> = args.opt_free_from_str()?;
    done(args)?;
    let tools = cluster::api_tools()?;
    let kwok = go::build(
        &shell::root().join("xtask/kwok"),
        "sigs.k8s.io/kwok/cmd/kwok",
        "about three minutes on two cores",
    )?;
    let status = Command::new(built.bench("api")?)
        .arg(&kwok)
        .args(words)
        .args(size.map(|size| size.to_string()))
        .env("EPITAPH_CLUSTER_TOOLS", &tools)
        .status()
        .context("running the measurement")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
