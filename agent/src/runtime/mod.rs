//! Joins the rooms: what each command starts, in which order, and how it ends.
//!
//! Start: what can be refused for a wrong word comes first (configuration, port, file), then the probes, then the scan of what
//! exists. End: the loop finishes what it has seen, then every sink gets a moment to send what waits.

mod doctor;
mod export;
mod live;
mod logging;
mod observer;
mod pipeline;
mod privileges;
mod replay;
mod sinks;

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use caps::Capability;
use tokio::sync::{mpsc, watch};

use crate::cli::{self, SysExit};
use crate::clock;
use crate::config::{self, Config, Env, KubernetesMode, Listen};
use crate::correlate::Correlator;
use crate::input::ProbeState;
use crate::recording::Writer;
use crate::render::span::Options;
use crate::render::text::Style;
use crate::sink::http::{Health, Server};
use crate::sink::kubernetes_events;
use crate::sink::terminal::screen::Screen;
use crate::sink::terminal::{self, Background, Form};
use crate::source::kernel::{self, Kernel, LoadError};
use crate::source::pods::{self, Pods, PodsError};
use crate::source::procfs::Procfs;

pub use doctor::doctor;
use export::Export;
use live::Live;
use pipeline::Pipeline;
use privileges::Need;
use sinks::Sinks;

/// What the sinks, all at once, may take to send what waits when we end. The kubelet gives an agent 30 s, a node shutdown less.
const FLUSH: Duration = Duration::from_secs(2);

/// Why a command ended early, and the code for scripts.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RuntimeError {
    pub code: SysExit,
    message: String,
}

impl RuntimeError {
    fn new(code: SysExit, message: impl Into<String>) -> Self {
        RuntimeError {
            code,
            message: message.into(),
        }
    }

    fn os<E: std::fmt::Display>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| RuntimeError::new(SysExit::Os, format!("cannot {action}: {error}"))
    }
}

impl From<config::ConfigError> for RuntimeError {
    fn from(error: config::ConfigError) -> Self {
        RuntimeError::new(SysExit::Config, error.to_string())
    }
}

impl From<crate::source::procfs::ProcfsError> for RuntimeError {
    fn from(error: crate::source::procfs::ProcfsError) -> Self {
        RuntimeError::new(SysExit::Unavailable, error.to_string())
    }
}

impl From<PodsError> for RuntimeError {
    fn from(error: PodsError) -> Self {
        RuntimeError::new(SysExit::Config, error.to_string())
    }
}

impl From<LoadError> for RuntimeError {
    fn from(error: LoadError) -> Self {
        RuntimeError::new(code(&error), error.to_string())
    }
}

fn code(error: &LoadError) -> SysExit {
    match error {
        LoadError::Capability(_) | LoadError::Refused { .. } | LoadError::Memlock(_) => SysExit::NoPerm,
        LoadError::Btf(_) | LoadError::BtfParse { .. } | LoadError::Controller(_) => SysExit::Unavailable,
        LoadError::RingSize(_) => SysExit::Usage,
        LoadError::Object(_) | LoadError::Map(_) | LoadError::Watch(_) => SysExit::Os,
        LoadError::NoMap(_) => SysExit::Software,
    }
}

/// `epitaph agent`.
pub fn agent(args: &cli::AgentArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::load(args.config.as_deref(), env, &args.overrides())?;
    if args.print_config {
        return cli::print(&config.to_toml()).map_err(RuntimeError::os("write to standard output"));
    }
    block_on(observe(config, env, None, None))
}

/// `epitaph observer`.
pub fn observer(args: &cli::ObserverArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::load(args.config.as_deref(), env, &args.overrides())?;
    if args.print_config {
        return cli::print(&config.to_toml()).map_err(RuntimeError::os("write to standard output"));
    }
    block_on(observer::run(config, env))
}

/// `epitaph watch`.
pub fn watch(args: &cli::WatchArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    block_on(observe(config, env, Some(Show::new(&args.show, env)), None))
}

/// `epitaph record FILE`.
pub fn record(args: &cli::RecordArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    block_on(observe(config, env, Some(Show::new(&args.show, env)), Some(&args.file)))
}

/// `epitaph replay FILE`.
pub fn replay(args: &cli::ReplayArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    let show = Show::new(&args.show, env);
    block_on(async {
        let logging = logging::start(&config)?;
        let export = Export::start(&config)?;
        let output = privileges::without(|| Background::whole(std::io::stdout())).map_err(no_output)?;
        let terminal = terminal::Sink::new(output, show.stream_form(), show.filter);
        let sinks = sinks(&config, &export, Some(terminal));
        // Reading a file blocks; the exporter's tasks go on beside it.
        let replayed = tokio::task::block_in_place(|| replay::replay(&args.file, core(&config), sinks));
        tokio::join!(export.finish(FLUSH), logging.finish(FLUSH));
        replayed
    })
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

async fn observe(config: Config, env: &dyn Env, show: Option<Show>, file: Option<&Path>) -> Result<(), RuntimeError> {
    let logging = logging::start(&config)?;
    logging::warn_of_unknown_variables(env);
    let export = Export::start(&config)?;
    let health = Arc::new(Health::default());
    let server = listen(&config).await?;
    let file = file.map(Created::new).transpose()?;
    let pods = match config.kubernetes.access(Path::new(pods::TOKEN).exists()) {
        Some(access) => Some(Pods::start(config.kubernetes.node_name.as_deref(), &access).await?),
        None => {
            if config.kubernetes.mode == KubernetesMode::Auto && config.kubernetes.node_name.is_some() {
                tracing::warn!(
                    "a node's name is given, but no way to the Kubernetes API: nothing is known of pods; mount the ServiceAccount's token \
                     (automountServiceAccountToken), or give --kubeconfig FILE, or --kubernetes off"
                );
            }
            None
        }
    };
    if let Some(pods) = &pods {
        let stats = pods.stats.clone();
        export.metrics.follow_requests(move || stats.requests().collect());
    }
    let procfs = Procfs::new(&config.host.proc, &config.host.sys)?;
    let (stop_sender, stop) = watch::channel(false);
    tokio::spawn(stop_on_signal(stop_sender, file.is_some()));

    // Loading takes a while on a slow machine: whoever asks meanwhile gets an answer.
    let serving = server.map(|server| {
        let mut stop = stop.clone();
        tokio::spawn(server.serve(export.metrics.clone(), health.clone(), clock::now, async move {
            let _ = stop.wait_for(|stop| *stop).await;
        }))
    });

    let v1 = procfs.v1();
    let options = kernel::Options {
        v1: v1.clone(),
        ..config.kernel.options()
    };
    let mut kernel = Kernel::load(&options)?;
    if let Some((less, remedy)) = kernel.shrunk() {
        tracing::warn!("{less}; {remedy}");
    }
    let mut observation = procfs.observation(clock::now(), clock::wall_offset())?;
    if let (Some(_), Some(node)) = (&pods, &config.kubernetes.node_name) {
        // A pod's own host name is the pod's.
        observation.host.clone_from(node);
    }
    let recorder = file
        .map(|file| Writer::new(BufWriter::new(file.begin()), &observation))
        .transpose()
        .map_err(|error| RuntimeError::new(SysExit::CantCreat, error.to_string()))?;
    give_up_privileges(&mut kernel, &config.host.proc);

    if let Some(v1) = v1.filter(|v1| v1.is_alone) {
        tracing::warn!(
            controller = v1.controller,
            "this machine has cgroup v1 alone: deaths are judged all the same, but what clients saw of them is unknown, for the kernel \
             knows a socket by its cgroup v2; boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) to have it"
        );
    }
    let is_agent = show.is_none();
    if is_agent {
        let active = kernel
            .probes()
            .iter()
            .filter(|(_, state)| *state == ProbeState::Active)
            .count();
        tracing::info!(
            probes = %format_args!("{active} of {} active", kernel.probes().len()),
            listen = %config.listen,
            traces = export.destination(),
            "observing"
        );
    }

    // Taken last: an error before it is shown on the terminal as it was.
    let live_view = show.as_ref().is_some_and(Show::is_live);
    let (screen, acts) = if live_view {
        let (screen, acts) =
            privileges::without(Screen::enter).map_err(RuntimeError::os("take the terminal (--output text does without)"))?;
        (Some(screen), acts)
    } else {
        (None, mpsc::channel(1).1)
    };
    let terminal = match show {
        Some(show) => {
            let form = if live_view { show.live_form() } else { show.stream_form() };
            let output = privileges::without(|| Background::live(std::io::stdout(), FLUSH)).map_err(no_output)?;
            Some(terminal::Sink::new(output, form, show.filter))
        }
        None => None,
    };
    let mut sinks = sinks(&config, &export, terminal);
    sinks.health = health;
    // A person who watches must not write to the cluster.
    let events = pods.as_ref().filter(|_| is_agent && config.kubernetes.events).map(|pods| {
        let settings = kubernetes_events::Settings::of_node(&pods.node);
        kubernetes_events::start(pods.client(), settings, clock::now)
    });
    let posting = events.map(|(sink, worker)| {
        export.metrics.follow_events(sink.stats().clone());
        sinks.events = Some(sink);
        worker
    });
    let pipeline = Pipeline::new(core(&config), observation.clone(), recorder, sinks);
    let observed = match Live::start(kernel, procfs, pods, observation, pipeline) {
        Ok(live) => live.run(stop, acts).await,
        Err(error) => Err(error),
    };
    drop(screen);
    tracing::debug!("ending: what waits is sent");
    let posted = async {
        if let Some(posting) = posting {
            posting.shutdown(FLUSH).await;
        }
    };
    tokio::join!(posted, export.finish(FLUSH), logging.finish(FLUSH));
    if let Some(serving) = serving {
        serving.abort();
    }
    observed
}

/// Of the main thread: the others have none.
fn give_up_privileges(kernel: &mut Kernel, proc: &Path) {
    // Mounted with hidepid /proc may show the machine's processes to CAP_SYS_PTRACE only; that some end meanwhile is no sign of it.
    let before = privileges::shown(proc);
    let dropped = privileges::drop_all_but(&mut [
        Need {
            any_of: &[Capability::CAP_BPF, Capability::CAP_SYS_ADMIN],
            works: &mut || kernel.may_write_maps(),
        },
        Need {
            any_of: &[Capability::CAP_SYS_PTRACE],
            works: &mut || privileges::shown(proc) > before / 2,
        },
    ]);
    match dropped {
        Ok(kept) => tracing::debug!(?kept, "capabilities given up"),
        Err(error) => tracing::warn!("{error}; going on with more than is needed"),
    }
}

/// Takes the port; answers come once it serves.
async fn listen(config: &Config) -> Result<Option<Server>, RuntimeError> {
    match config.listen {
        Listen::At(address) => Server::bind(address)
            .await
            .map(Some)
            .map_err(|error| RuntimeError::new(SysExit::Unavailable, error.to_string())),
        Listen::Off => Ok(None),
    }
}

fn core(config: &Config) -> Correlator {
    Correlator::new(config.limits.core()).with_kubelet_units(config.kubernetes.kubelet_units.clone())
}

fn sinks(config: &Config, export: &Export, terminal: Option<terminal::Sink<Background>>) -> Sinks {
    Sinks {
        metrics: export.metrics.clone(),
        health: Arc::default(),
        terminal,
        traces: export.traces(),
        events: None,
        spans: Options {
            service_name: config.export.service_name.clone(),
            cluster_name: config.export.cluster_name.clone(),
            resource_attributes: config.export.resource_attributes.clone(),
            unclean_only: config.export.unclean_only,
        },
        reader_gone: false,
    }
}

fn no_output(error: std::io::Error) -> RuntimeError {
    RuntimeError::os("start the output's thread")(error)
}

/// A recording that is not begun yet: gone again where nothing can be recorded, so that the next attempt finds the name free.
struct Created<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl Created<'_> {
    /// A recording is evidence: it is never overwritten.
    fn new(path: &Path) -> Result<Created<'_>, RuntimeError> {
        match File::create_new(path) {
            Ok(file) => Ok(Created { path, file: Some(file) }),
            Err(error) => {
                let remedy = match error.kind() {
                    std::io::ErrorKind::AlreadyExists => "; give a name that does not exist yet",
                    _ => "; give a name in a directory that exists and that you may write to",
                };
                Err(RuntimeError::new(
                    SysExit::CantCreat,
                    format!("cannot create recording {}: {error}{remedy}", path.display()),
                ))
            }
        }
    }

    fn begin(mut self) -> File {
        self.file.take().expect("taken here alone, where self ends")
    }
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// SIGTERM and SIGINT, and for a recording SIGHUP too (a lost terminal must not lose the tail): the first asks us to end.
async fn stop_on_signal(stop: watch::Sender<bool>, hangup_too: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            // Then the default action ends us.
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

/// How a person wants to see it.
struct Show {
    output: cli::Output,
    style: Style,
    filter: cli::Filter,
}

impl Show {
    fn new(args: &cli::ShowArgs, env: &dyn Env) -> Show {
        Show {
            output: args.output,
            style: args.color.style(std::io::stdout().is_terminal(), env),
            filter: args.filter.clone(),
        }
    }

    fn is_live(&self) -> bool {
        self.output == cli::Output::Auto && Screen::available()
    }

    fn live_form(&self) -> Form {
        Form::Live {
            style: self.style,
            columns: Screen::columns(),
        }
    }

    fn stream_form(&self) -> Form {
        match self.output {
            cli::Output::Json => Form::Json,
            cli::Output::Auto | cli::Output::Text => Form::Text(self.style),
        }
    }
}
