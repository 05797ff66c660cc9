//! Joins sources, core and sinks: what each command starts, in which order, and how the command ends.
//!
//! Start: first what a wrong setting can refuse (configuration, port, file), then the probes, then the first scan. End: the loop
//! handles the remaining inputs, then every sink has a limited time to send its queue.

mod doctor;
mod error;
mod evidence;
mod export;
mod holding;
mod input;
#[cfg(test)]
mod journal_directory_tests;
#[cfg(test)]
mod journal_tests;
mod journaling;
mod live;
mod logging;
mod logind;
mod nested;
mod new_recording;
#[cfg(test)]
mod node_tests;
mod observe;
mod observer;
mod past;
mod pipeline;
mod privileges;
mod ready;
mod replay;
#[cfg(test)]
mod restart_tests;
mod show;
mod sinks;
mod throttle;
mod unclean;

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::correlate::Correlator;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cli::{self, SysExit};
use crate::clock;
use crate::config::{Config, Env, Listen, Overrides};
use crate::sink::http::{Health, Server};
use crate::sink::otlp::{self, Reason, SpanDropReason};

pub use doctor::doctor;
pub use error::RuntimeError;
pub use evidence::{Evidence, Taken};
use export::Export;
pub use logind::logind;
pub use past::{export, list, terminal, why};
use show::Show;
use sinks::Sinks;

/// Time for all sinks together to send their queues at shutdown. The kubelet gives an agent 30 s, a node shutdown less.
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
        let logging = logging::start(&config, logging::Terminations::Person)?;
        // The counts of a recording are not those of this machine, whose agent has the same name at the collector.
        let export = Export::of_recording(&config)?;
        let sinks = Sinks::new(&config, &export, Some(show.stream()?), Arc::default());
        // Reading a file blocks; the exporter's tasks continue meanwhile.
        let replayed = tokio::task::block_in_place(|| replay::replay(&args.file, core(&config), sinks));
        let exporters = export.exporters();
        // Nobody else sends a recording's traces and logs: the collector gets the time of a whole request.
        tokio::join!(export.finish(config.otlp.timeout.max(FLUSH)), logging.finish(FLUSH));
        replayed?;
        exporters.iter().try_for_each(all_sent)
    })
}

/// Fails if the collector did not accept every span, or log record.
fn all_sent(sink: &otlp::Sink) -> Result<(), RuntimeError> {
    let (stats, items) = (sink.stats(), sink.signal().items());
    let sent = stats.exported();
    let lost: u64 = SpanDropReason::ALL.into_iter().map(|reason| stats.dropped(reason)).sum();
    if lost == 0 {
        return Ok(());
    }
    let (why, remedy) = match stats.last_failure() {
        Some(Reason { why, remedy }) => (why, remedy),
        None if stats.dropped(SpanDropReason::QueueFull) > 0 => {
            ("the queue was full".to_owned(), "raise `limits.export_queue`")
        }
        None => ("the time for sending was over".to_owned(), "raise `otlp.timeout`"),
    };
    let problem = format!("{sent} of {} {items} sent: {why}", sent + lost);
    let remedy = format!("{remedy}; then replay again: {items} that are sent twice are identical");
    Err(RuntimeError::new(SysExit::Unavailable, problem).with_remedy(remedy))
}

/// `epitaph ready [HOST:PORT...]`.
pub fn ready(args: &cli::ReadyArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let targets = match args.targets.as_slice() {
        [] if !args.each.is_empty() => Vec::new(),
        [] => vec![ready::own(&Config::load(args.config.as_deref(), env, &Overrides::default())?)?.to_string()],
        given => given.to_vec(),
    };
    block_on(ready::ready(&targets, &args.each, args.wait))
}

/// Those of which there are some: `1 damaged line`, `2 damaged lines`.
fn counted<'a>(of: impl IntoIterator<Item = (u64, &'a str, &'a str)>) -> Vec<String> {
    let some = of.into_iter().filter(|(count, ..)| *count > 0);
    some.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect()
}

fn print_config(config: &Config) -> Result<(), RuntimeError> {
    cli::print(&config.to_toml()).map_err(RuntimeError::os("write to standard output"))
}

fn block_on(command: impl Future<Output = Result<(), RuntimeError>>) -> Result<(), RuntimeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // For the sinks: the loop runs on the calling thread.
        .worker_threads(1)
        .on_thread_start(privileges::drop_all)
        .enable_all()
        .build()
        .map_err(RuntimeError::os("start the runtime"))?;
    let done = runtime.block_on(command);
    // Every sink has finished or used up its time. A drop would wait for blocking threads: a look-up of the collector's name has
    // no time limit.
    runtime.shutdown_background();
    done
}

/// For a command that does not observe: one request, on this thread.
fn block_on_value<T>(request: impl Future<Output = T>) -> Result<T, RuntimeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(RuntimeError::os("start the runtime"))?.block_on(request))
}

/// Binds the ports; requests are answered once the server runs.
fn listen(config: &Config) -> Result<Server, RuntimeError> {
    let health = config.health_listen.and_then(Listen::address);
    Ok(Server::bind(config.listen.address(), health)?)
}

/// Serves until `stop`.
fn serve(server: Server, export: &Export, health: &Arc<Health>, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    let closed = server.closed();
    export.metrics.follow_http(move || closed.totals().collect());
    tokio::spawn(server.serve(export.metrics.clone(), health.clone(), clock::now, async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }))
}

fn core(config: &Config) -> Correlator {
    Correlator::new(config.limits.core)
        .with_kubelet_units(config.kubernetes.kubelet_units.clone())
        .with_reported_units(config.units.clone())
}

/// SIGTERM and SIGINT, and for a recording SIGHUP too (a lost terminal must not lose the tail): the first ends the command.
async fn stop_on_signal(stop: watch::Sender<bool>, hangup_too: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            // Without a handler the default action ends the process.
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
