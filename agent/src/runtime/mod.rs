//! Joins the rooms: what each command starts, in which order, and how it ends.
//!
//! Start: what a wrong word refuses comes first (configuration, port, file), then the probes, then the scan of what exists. End:
//! the loop finishes what it has seen, then every sink gets a moment to send what waits.

mod doctor;
mod error;
mod export;
mod live;
mod logging;
mod observe;
mod observer;
mod pipeline;
mod privileges;
mod replay;
mod show;
mod sinks;

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::correlate::Correlator;
use tokio::sync::watch;

use crate::cli;
use crate::config::{Config, Env, Listen};
use crate::sink::http::Server;

pub use doctor::doctor;
pub use error::RuntimeError;
use export::Export;
use show::Show;
use sinks::Sinks;

/// What the sinks, all at once, may take to send what waits when we end. The kubelet gives an agent 30 s, a node shutdown less.
const FLUSH: Duration = Duration::from_secs(2);

/// `epitaph agent`.
pub fn agent(args: &cli::AgentArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::load(args.config.as_deref(), env, &args.overrides())?;
    if args.print_config {
        return print_config(&config);
    }
    block_on(observe::observe(config, env, None, None))
}

/// `epitaph observer`.
pub fn observer(args: &cli::ObserverArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::load(args.config.as_deref(), env, &args.overrides())?;
    if args.print_config {
        return print_config(&config);
    }
    block_on(observer::run(config, env))
}

/// `epitaph watch`.
pub fn watch(args: &cli::WatchArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    block_on(observe::observe(config, env, Some(Show::new(&args.show, env)), None))
}

/// `epitaph record FILE`.
pub fn record(args: &cli::RecordArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    let show = Show::new(&args.show, env);
    block_on(observe::observe(config, env, Some(show), Some(&args.file)))
}

/// `epitaph replay FILE`.
pub fn replay(args: &cli::ReplayArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    let show = Show::new(&args.show, env);
    block_on(async {
        let logging = logging::start(&config)?;
        let export = Export::start(&config)?;
        let sinks = Sinks::new(&config, &export, Some(show.stream()?), Arc::default());
        // Reading a file blocks; the tasks of the exporter go on meanwhile.
        let replayed = tokio::task::block_in_place(|| replay::replay(&args.file, core(&config), sinks));
        tokio::join!(export.finish(FLUSH), logging.finish(FLUSH));
        replayed
    })
}

fn print_config(config: &Config) -> Result<(), RuntimeError> {
    cli::print(&config.to_toml()).map_err(RuntimeError::os("write to standard output"))
}

fn block_on(command: impl Future<Output = Result<(), RuntimeError>>) -> Result<(), RuntimeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // For the sinks; the loop runs on this thread.
        .worker_threads(1)
        .on_thread_start(privileges::drop_all)
        .enable_all()
        .build()
        .map_err(RuntimeError::os("start the runtime"))?;
    let done = runtime.block_on(command);
    // Every sink has had its moment. A drop would wait for the threads that block: a look-up of the collector's name takes as
    // long as the resolver likes.
    runtime.shutdown_background();
    done
}

/// Takes the port; answers come once it serves.
async fn listen(config: &Config) -> Result<Option<Server>, RuntimeError> {
    match config.listen {
        Listen::At(address) => Ok(Some(Server::bind(address).await?)),
        Listen::Off => Ok(None),
    }
}

fn core(config: &Config) -> Correlator {
    Correlator::new(config.limits.core).with_kubelet_units(config.kubernetes.kubelet_units.clone())
}

/// SIGTERM and SIGINT, and for a recording SIGHUP too (a lost terminal must not lose the tail): the first ends the command.
async fn stop_on_signal(stop: watch::Sender<bool>, hangup_too: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            // Then the default action ends the process.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::hangup()), if hangup_too => {}
    }
    let _ = stop.send(true);
    // Kept so that receivers do not see the channel close.
    std::future::pending::<()>().await;
}
