//! `kubectl epitaph`: the custom resources of Epitaph for whoever has kubectl and the rights of `view`. No probe, no agent: every answer
//! is the API server's, with the user's own kubeconfig. See ARCHITECTURE.md.

#![warn(unused_crate_dependencies)]

pub mod cli;
mod cluster;
mod commands;
mod failure;
mod output;
mod read;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::Parser as _;
// A client of kube needs to know a version of Kubernetes.
use cli::{Cli, Command};
use cluster::Cluster;
pub use failure::{Exit, Failure};
use k8s_openapi as _;

/// kubectl starts this name for the completion of `kubectl epitaph …`.
const COMPLETES: &str = "kubectl_complete-epitaph";

/// The whole program, with its arguments.
pub fn run(mut args: Vec<OsString>) -> Exit {
    let name = args.first().map(Path::new).and_then(Path::file_stem).unwrap_or_default();
    if name == COMPLETES {
        // Also what looks like a flag is a word.
        args.splice(1..1, ["__complete".into(), "--".into()]);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = !error.use_stderr();
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match output::printed(printed) {
                _ if !is_help => Exit::Failed,
                Ok(()) => Exit::Done,
                Err(failure) => failure.show(),
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("cannot start: {error}")).show(),
    };
    runtime.block_on(command(&cli)).unwrap_or_else(|failure| failure.show())
}

async fn command(cli: &Cli) -> Result<Exit, Failure> {
    if let Command::Complete(args) = &cli.command {
        return commands::complete::run(args).await;
    }
    let cluster = Cluster::connect(&cli.access).await?;
    match &cli.command {
        Command::List(args) => commands::list::run(&cluster, args).await,
        Command::Why(args) => commands::why::run(&cluster, args).await,
        Command::Node(args) => commands::node::run(&cluster, args).await,
        Command::Rollout(args) => commands::rollout::run(&cluster, args).await,
        Command::Watch(args) => commands::watch::run(&cluster, args).await,
        Command::Doctor(args) => commands::doctor::run(&cluster, args).await,
        Command::Complete(_) => Ok(Exit::Done),
    }
}
