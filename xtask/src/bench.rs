//! The measurements: builds the agent and the measuring program optimised, and has it measure on this machine.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{
    agent::{self, Built},
    bpf, cluster, debian,
    dist::{self, Arch},
    done, go, shell,
};

/// The page that has what the API server pays.
const PAGE: &str = "docs/kubernetes.md";
const END: &str = "<!-- end -->";

const PARTS: [&str; 11] = [
    "core",
    "density",
    "signals",
    "connections",
    "exits",
    "agents",
    "start",
    "size",
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
    let programs = match only.as_deref() {
        None | Some("size") => Some(programs()?),
        _ => None,
    };
    shell::log("measuring takes some minutes; an idle machine gives the best numbers");
    let status = Command::new(&cost)
        .arg(&epitaph)
        .env_remove("EPITAPH_CLUSTER_TOOLS")
        .envs(etcd.map(|tools| ("EPITAPH_CLUSTER_TOOLS", tools)))
        .args(only)
        .args(object)
        .args(programs.into_iter().flatten())
        .args(record.then(commit).transpose()?.into_iter().flatten())
        .env("PATH", shell::path())
        .status()
        .with_context(|| format!("running {}", cost.display()))?;
    Ok(shell::exit_code(status))
}

/// The program of the image and the one with all features, as they are installed.
fn programs() -> Result<[PathBuf; 3]> {
    let host = Arch::host()?;
    let [of_pods, whole] = [dist::build_for_pods(host)?, dist::build(host)?].map(|dist| dist.program);
    Ok(["--programs".into(), of_pods, whole])
}

/// What the results are recorded under.
fn commit() -> Result<[String; 2]> {
    Ok(["--record".to_owned(), dist::git(&["describe", "--always", "--dirty"])?])
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
    shell::log("measuring takes a quarter of an hour; 5,000 agents need 6 GB of memory");
    fleet(args, None, None)
}

/// What the observer of a large cluster costs, also while a tenth of the nodes is lost.
fn observer(args: Arguments) -> Result<ExitCode> {
    let epitaph = agent::build(true)?;
    shell::log("measuring takes half an hour");
    fleet(args, Some(("observer", epitaph)), None)
}

/// What Epitaph writes for a rollout, beside what Kubernetes itself writes for it.
fn rollout(mut args: Arguments) -> Result<ExitCode> {
    let record = args.contains("--record").then_some("rollout");
    let epitaph = agent::build(false)?;
    shell::log("measuring takes a quarter of an hour");
    fleet(args, Some(("rollout", epitaph)), record)
}

/// What many Epitaphs cost the observer, made by an agent whose node is taken over.
fn epitaphs(mut args: Arguments) -> Result<ExitCode> {
    let record = args.contains("--record").then_some("epitaphs");
    let epitaph = agent::build(true)?;
    shell::log("measuring takes ten minutes");
    fleet(args, Some(("epitaphs", epitaph)), record)
}

/// Runs the measurement of many nodes: which one, and of which agent. `record`: the name of its tables in [`PAGE`].
fn fleet(mut args: Arguments, of: Option<(&str, PathBuf)>, record: Option<&str>) -> Result<ExitCode> {
    let size: Option<u32> = args.opt_free_from_str()?;
    done(args)?;
    if record.is_some() && size.is_some() {
        bail!("--record is of the whole measurement: leave the number out");
    }
    // Of what was built: the checkout may have other files when the tables are written.
    let [_, commit] = commit()?;
    let selection = ["--package", "epitaph-tests", "--bench", "api"];
    let built = Built::of(&selection, "building the measurement")?;
    let tools = cluster::api_tools()?;
    let kwok = go::build(
        &shell::root().join("xtask/kwok"),
        "sigs.k8s.io/kwok/cmd/kwok",
        "about three minutes on two cores",
    )?;
    let mut command = Command::new(built.bench("api")?);
    command.arg(&kwok);
    if let Some((which, epitaph)) = of {
        command.arg(which).arg(epitaph);
    }
    command
        .args(size.map(|size| size.to_string()))
        .env("EPITAPH_CLUSTER_TOOLS", &tools);
    let Some(name) = record else {
        let status = command.status().context("running the measurement")?;
        return Ok(shell::exit_code(status));
    };
    let output = command.stderr(Stdio::inherit()).output().context("running the measurement")?;
    let tables = String::from_utf8(output.stdout).context("reading the tables")?;
    print!("{tables}");
    if !output.status.success() {
        return Ok(ExitCode::FAILURE);
    }
    let page = shell::root().join(PAGE);
    let text = fs::read_to_string(&page).with_context(|| format!("reading {PAGE}"))?;
    let text = recorded(&text, name, &format!("At {commit}:\n\n{tables}"))?;
    fs::write(&page, text).with_context(|| format!("writing {PAGE}"))?;
    Ok(ExitCode::SUCCESS)
}

/// `page` with the tables of this measurement in place of those before.
fn recorded(page: &str, name: &str, tables: &str) -> Result<String> {
    let begin = format!("<!-- by `cargo xtask bench {name} --record`; do not edit -->\n");
    let (before, rest) = page
        .split_once(&begin)
        .with_context(|| format!("{PAGE} has no line {begin}"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("{PAGE} has no {END} behind {begin}"))?;
    Ok(format!("{before}{begin}\n{}\n\n{END}{after}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_those_before_and_nothing_else() {
        let page = fs::read_to_string(shell::root().join(PAGE)).unwrap();
        for name in ["rollout", "epitaphs"] {
            let once = recorded(&page, name, "| a |\n|---|\n").unwrap();
            assert!(
                once.contains("--record`; do not edit -->\n\n| a |\n|---|\n\n<!-- end -->\n"),
                "{once}"
            );
            let twice = recorded(&once, name, "| b |\n|---|\n").unwrap();
            assert_eq!(once.replace("| a |", "| b |"), twice);
        }
        assert!(recorded(&page, "nothing", "").is_err());
    }
}
