//! `cargo xtask cluster` builds the parts of a cluster and runs this program.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, bail};
use epitaph_tests::cluster::{Cluster, NotInTime, Tools, lifecycle};

const USAGE: &str = "usage: cluster up [--nodes N [--pod-within SECONDS]] | status | down | shell [NODE] | kubectl ...";
const NONE: &str = "there is no cluster: `cargo xtask cluster up` creates one";

fn main() -> ExitCode {
    match act() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: error: {error:#}");
            match error.is::<NotInTime>() {
                true => ExitCode::from(NotInTime::STATUS),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn act() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let directory = PathBuf::from(environment("EPITAPH_CLUSTER").context("EPITAPH_CLUSTER names no directory")?);
    let cluster = || Cluster::open(&directory)?.context(NONE);
    match args[..] {
        ["up", ref rest @ ..] => {
            let (nodes, pod_within) = match *rest {
                [] => ("1", None),
                ["--nodes", nodes] => (nodes, None),
                ["--nodes", nodes, "--pod-within", seconds] => (nodes, Some(seconds)),
                _ => bail!(USAGE),
            };
            let nodes = nodes.parse().with_context(|| format!("read the number of nodes {nodes}"))?;
            let pod_within = pod_within.map(|seconds| seconds.parse().with_context(|| format!("read the seconds {seconds}")));
            let pod_within = pod_within.transpose()?.map(Duration::from_secs);
            let tools = Tools::named()?.context("EPITAPH_CLUSTER_TOOLS names no directory: run `cargo xtask cluster up`")?;
            let players = std::env::current_exe().context("find the directory of this program")?;
            let players = players.parent().context("this program is in no directory")?;
            lifecycle::up(&tools, &directory, nodes, players, pod_within, &log)?;
        }
        ["status"] => {
            let (text, all) = lifecycle::status(&directory)?;
            print!("{text}");
            if !all {
                return Ok(ExitCode::FAILURE);
            }
        }
        ["down"] => lifecycle::down(&directory, &log)?,
        ["shell"] => {
            let cluster = cluster()?;
            let mut shell = Command::new(environment("SHELL").unwrap_or_else(|| "sh".into()));
            let mut path = cluster.tools().program("").into_os_string();
            path.push(":");
            path.push(environment("PATH").unwrap_or_default());
            shell.env("PATH", path).env("KUBECONFIG", cluster.control_plane()?.admin());
            return Err(shell.exec()).context("start a shell");
        }
        ["shell", node] => return Err(cluster()?.node(node)?.shell().ssh().exec()).context("start ssh"),
        ["kubectl", ref rest @ ..] => {
            let mut kubectl = cluster()?.control_plane()?.kubectl().command();
            return Err(kubectl.args(rest).exec()).context("start kubectl");
        }
        _ => bail!(USAGE),
    }
    Ok(ExitCode::SUCCESS)
}

fn log(line: &str) {
    eprintln!("cluster: {line}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "this program's settings, from cargo xtask and the person's shell"
)]
fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
