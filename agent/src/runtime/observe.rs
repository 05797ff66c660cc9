//! `epitaph agent`, `watch` and `record`: the start of a live observation, step by step, and its end.

use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use caps::Capability;
use epitaph_core::input::{CgroupMode, Observation, ProbeState};
use epitaph_ebpf::watch as bits;
use tokio::sync::watch;

use crate::clock;
use crate::config::{Config, Env, KubernetesMode};
use crate::error::HasRemedy as _;
use crate::journal::{JournalThread, Opened};
use crate::recording::Writer;
use crate::sink::epitaphs;
use crate::sink::http::Health;
use crate::sink::kubernetes_events;
use crate::sink::otlp::Exporters;
use crate::source::kernel::{self, Attached, Kernel, LoadError};
use crate::source::kubelet::{Configz, KubeletFiles, Running};
use crate::source::pods::{self, PodSource};
use crate::source::procfs::Procfs;
use crate::source::runtimes::{self, Runtimes};

use super::export::Export;
use super::journaling::{self, Journaling};
use super::live::{FileSources, Live};
use super::logging::Logging;
use super::new_recording::NewRecording;
use super::pipeline::{Pipeline, Recorder};
use super::privileges::{self, Need};
use super::show::{Show, View};
use super::sinks::Sinks;
use super::unclean::UncleanLog;
use super::{FLUSH, RuntimeError, core, listen, logging, serve, stop_on_signal};

/// Observes until a signal, or until the reader of the output is gone. Without `show`: as an agent; with `file`: recorded.
pub async fn observe(config: Config, env: &dyn Env, show: Option<Show>, file: Option<&Path>) -> Result<(), RuntimeError> {
    let is_agent = show.is_none();
    let logging = start_logging(&config, env, is_agent)?;
    let export = Export::start(&config)?;
    let server = listen(&config)?;
    let file = file.map(NewRecording::create).transpose()?;
    let logind = match is_agent {
        true => super::logind::listen(&config, env, &export.metrics)?,
        false => None,
    };
    let pods = start_pods(&config, &export).await?;
    let mut procfs = Procfs::new(&config.host.proc, &config.host.sys)?;

    let (stop_sender, stop) = watch::channel(false);
    tokio::spawn(stop_on_signal(stop_sender, file.is_some()));
    let health = Arc::new(Health::default());
    // From before the probes are loaded, which takes a while on a slow machine.
    let serving = serve(server, &export, &health, stop.clone());

    if !is_agent {
        Show::announce();
    }
    let has_others = is_agent && (logind.is_some() || pods.is_some());
    let mut kernel = load_probes(&config, &procfs, has_others)?;
    // Before anything that may wait: from here on, no end of what exists is missed, and each has a name.
    procfs.first_scan(|cgroup| {
        // Counted, where it fails again, when the core names the cgroup.
        let _ = kernel.watch(cgroup, bits::SELF | bits::CHILDREN, None);
    })?;
    let observation = describe(&config, &procfs, pods.is_some())?;
    let recorder = file.map(|file| begin(file, &observation)).transpose()?;
    let stops = || *stop.borrow();
    let opened = match privileges::without(|| journaling::open(&config, &observation, &export.metrics, &stops)) {
        // Told to end while another agent had the journal: nothing was observed.
        Err(_) if stops() => return Ok(()),
        opened => opened?,
    };
    give_up_privileges(&mut kernel, &config.host.proc);

    if is_agent {
        let is_written = opened.as_ref().is_some_and(|opened| !opened.journal.stats().is_memory_only());
        log_start(&config, is_written, (&kernel, &procfs), &export);
    }
    // Opened last: an earlier error is shown on the unchanged terminal.
    let View { screen, acts, sink } = Show::open(show)?;
    if is_agent && opened.is_none() {
        journaling::not_configured(&export.metrics, &health);
    }
    let mut sinks = Sinks::new(&config, &export, sink, health);
    sinks.unclean = is_agent.then(|| UncleanLog::new(opened.is_some()));
    // `epitaph watch` must not write to the cluster.
    let posting = match &pods {
        Some(pods) if is_agent => Posting::start(&config, pods, &export, &mut sinks),
        _ => Posting::default(),
    };
    let sources = FileSources {
        runtimes: start_runtimes(&config),
        kubelet: if is_agent { start_kubelet(&config) } else { None },
    };
    sinks.journal = opened.as_ref().map(|opened| journal(opened, &sinks.exporters));
    if let Some(opened) = &opened {
        sinks.offer_kept(&opened.past, clock::now());
    }
    let pipeline = Pipeline::new(core(&config), observation.clone(), recorder, sinks);
    let past = opened.as_ref().map(|opened| &opened.past);
    let grace = is_agent.then_some(config.shutdown.grace);
    let observed = match Live::start(kernel, procfs, pods, sources, observation, pipeline, past) {
        Ok(live) => {
            // Of the scan.
            kernel::trim_heap();
            live.with_grace(grace).with_logind(logind).run(stop, acts).await
        }
        Err(error) => Err(error),
    };

    drop(screen);
    if is_agent {
        tracing::info!("ending: sending what is queued, {} s at most", FLUSH.as_secs());
    }
    finish(opened.map(|opened| opened.thread), posting, export, logging).await;
    serving.abort();
    observed
}

/// The journal of this run, with what earlier ones could not deliver on its way.
fn journal(opened: &Opened, exporters: &Exporters) -> Journaling {
    let journal = Journaling::new(opened);
    journal.send_pending(&opened.past, exporters);
    journal
}

/// Sends the queues.
async fn finish(thread: Option<JournalThread>, posting: Posting, export: Export, logging: Logging) {
    tracing::debug!("shutting down: sending the queues");
    if let Some(thread) = &thread {
        thread.flush(FLUSH / 4);
    }
    tokio::join!(posting.finish(), export.finish(FLUSH), logging.finish(FLUSH));
    // Last: with the collector's answers.
    if let Some(thread) = thread {
        journaling::close(thread);
    }
}

fn start_logging(config: &Config, env: &dyn Env, is_agent: bool) -> Result<Logging, RuntimeError> {
    let terminations = match is_agent {
        true => logging::Terminations::of_agent(env, logging::stderr_file()),
        false => logging::Terminations::Person,
    };
    let logging = logging::start(config, terminations)?;
    logging::warn_of_unknown_variables(env);
    Ok(logging)
}

/// None without Kubernetes.
async fn start_pods(config: &Config, export: &Export) -> Result<Option<PodSource>, RuntimeError> {
    let Some(access) = config.kubernetes.access(Path::new(pods::TOKEN).exists()) else {
        if config.kubernetes.mode == KubernetesMode::Auto && config.kubernetes.node_name.is_some() {
            tracing::warn!(
                remedy = pods::NO_ACCESS,
                "a node name is set, but no access to the Kubernetes API: pods are unknown"
            );
        }
        return Ok(None);
    };
    let pods = PodSource::start(config.kubernetes.node_name.as_deref(), &access, config.kubernetes.allowed()).await?;
    let (requests, failures) = (pods.counters.clone(), pods.counters.clone());
    export.metrics.follow_requests(move || requests.requests().collect());
    export.metrics.follow_failures(move || failures.failures().collect());
    Ok(Some(pods))
}

/// None if no directory is configured, or without a thread: names are not needed.
fn start_runtimes(config: &Config) -> Option<Runtimes> {
    let settings = &config.containers;
    if settings.directories.is_empty() {
        return None;
    }
    let files = runtimes::Files::new(&settings.directories, settings.command);
    let started = privileges::without(|| Runtimes::start(files));
    started
        .inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread that reads container names: containers are reported by id only"),
        )
        .ok()
}

/// None if the settings give neither a file nor the kubelet's address, or without a thread.
fn start_kubelet(config: &Config) -> Option<KubeletFiles> {
    let paths = config.kubelet.paths();
    let kubelet = config.kubelet.address.map(Configz::in_cluster).transpose();
    let kubelet = kubelet.unwrap_or_else(|error| {
        tracing::warn!(remedy = error.remedy().as_deref(), "the kubelet is not asked: {error}");
        None
    });
    if paths.is_empty() && kubelet.is_none() {
        return None;
    }
    let running = || Running::new(&config.host.proc, &config.kubernetes.kubelet_units);
    let kubelet = kubelet.map(|kubelet| (kubelet, running()));
    let started = privileges::without(|| KubeletFiles::start(paths, kubelet));
    started
        .inspect_err(|error| tracing::warn!(%error, "cannot start the thread that reads the kubelet's files: they are unknown"))
        .ok()
}

/// `has_others`: there are other sources, and an agent that goes on with them alone.
fn load_probes(config: &Config, procfs: &Procfs, has_others: bool) -> Result<Attached, RuntimeError> {
    let v1 = procfs.v1();
    let options = kernel::Options {
        v1: v1.clone(),
        ..config.kernel.options()
    };
    let kernel = match Kernel::load(&options) {
        Ok(kernel) => kernel,
        Err(error) => {
            let reason = goes_on(error, has_others, || kernel::incapable(&options, &config.host.proc))?;
            tracing::warn!(
                remedy = kernel::NEWER,
                "no probe runs: {reason}; pods, logind and the journal are observed, and how processes ended is unknown"
            );
            return Ok(Attached::none(&options, &reason));
        }
    };
    if let Some((less, remedy)) = kernel.shrunk() {
        tracing::warn!(remedy, "{less}");
    }
    if let Some(v1) = v1.filter(|v1| v1.is_alone) {
        tracing::warn!(
            controller = v1.controller,
            remedy = ProbeState::USE_V2,
            "this machine has cgroup v1 only: the traffic of every termination is unknown, because the kernel knows the cgroup of a \
             socket in v2 only"
        );
    }
    Ok(Attached::Probes(Box::new(kernel)))
}

/// Why this kernel cannot run any probe, if an agent has something to observe without them. A right or a setting that is missing stays an
/// error: its remedy is not another kernel.
fn goes_on(error: LoadError, has_others: bool, incapable: impl FnOnce() -> Option<String>) -> Result<String, LoadError> {
    let reason = if has_others { incapable() } else { None };
    reason.ok_or(error)
}

fn describe(config: &Config, procfs: &Procfs, has_pods: bool) -> Result<Observation, RuntimeError> {
    let mut observation = procfs.observation(clock::now(), clock::wall_offset())?;
    observation.nodes_in_containers = config.kubernetes.nodes_in_containers;
    observation.ticks_per_second = clock::ticks_per_second();
    if let (true, Some(node)) = (has_pods, &config.kubernetes.node_name) {
        // In a pod, the host name is the pod's name.
        observation.host.clone_from(node);
    }
    Ok(observation)
}

/// Gives up privileges of the main thread: the other threads have none.
fn give_up_privileges(kernel: &mut Attached, proc: &Path) {
    // With `hidepid`, /proc may show the machine's processes to CAP_SYS_PTRACE only. A slightly lower number is not a sign of
    // that: some processes exit meanwhile.
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
        Err(error) => tracing::warn!("{error}; running with more privileges than needed"),
    }
}

/// `is_written`: the journal is on disk.
fn log_start(config: &Config, is_written: bool, (kernel, procfs): (&Attached, &Procfs), export: &Export) {
    let states = kernel.probes().iter().map(|(_, state)| state);
    let active = states.filter(|state| **state == ProbeState::Active).count();
    let journal = config.journal.directory.as_deref().filter(|_| is_written);
    tracing::info!(
        probes = %format_args!("{active} of {} active", kernel.probes().len()),
        cgroups = %format_args!("{} at {}", cgroups(procfs.cgroups()), procfs.mount().display()),
        journal = %journal.map_or_else(|| "in memory only".into(), Path::to_string_lossy),
        listen = %config.listen,
        traces = export.destination(journal.is_some()),
        "observing"
    );
}

/// As `epitaph watch --output json` names it.
const fn cgroups(mode: CgroupMode) -> &'static str {
    match mode {
        CgroupMode::V2 => "v2",
        CgroupMode::Hybrid => "hybrid",
        CgroupMode::V1(_) => "v1",
    }
}

/// What writes to the Kubernetes API.
#[derive(Default)]
struct Posting {
    events: Option<kubernetes_events::EventsWorker>,
    epitaphs: Option<epitaphs::EpitaphsWorker>,
}

impl Posting {
    fn start(config: &Config, pods: &PodSource, export: &Export, sinks: &mut Sinks) -> Posting {
        let mut posting = Posting::default();
        if config.kubernetes.events {
            let settings = kubernetes_events::Settings::of_node(&pods.node);
            let (sink, worker) = kubernetes_events::start(pods.client(), settings, clock::now);
            export.metrics.follow_events(sink.stats().clone());
            sinks.events = Some(sink);
            posting.events = Some(worker);
        }
        if config.kubernetes.epitaphs {
            let (sink, worker) = epitaphs::start(pods.client(), epitaphs::Settings::default(), clock::now);
            export.metrics.follow_epitaphs(sink.stats().clone());
            sinks.epitaphs = Some(sink);
            posting.epitaphs = Some(worker);
        }
        posting
    }

    /// Both at once: each has the whole time.
    async fn finish(self) {
        let events = async {
            if let Some(events) = self.events {
                events.shutdown(FLUSH).await;
            }
        };
        let epitaphs = async {
            if let Some(epitaphs) = self.epitaphs {
                epitaphs.shutdown(FLUSH).await;
            }
        };
        tokio::join!(events, epitaphs);
    }
}

fn begin(file: NewRecording<'_>, observation: &Observation) -> Result<Recorder, RuntimeError> {
    Ok(Writer::new(BufWriter::new(file.keep()), observation)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_that_cannot_and_other_sources_let_an_agent_go_on() {
        let refused = || LoadError::Capability("CAP_BPF");
        let old = || Some("kernel 5.4 is older than 5.10".to_owned());
        assert_eq!(
            goes_on(refused(), true, old).expect("goes on"),
            "kernel 5.4 is older than 5.10"
        );
        let ends = [goes_on(refused(), false, old), goes_on(refused(), true, || None)];
        assert!(
            ends.iter().all(|end| matches!(end, Err(LoadError::Capability(_)))),
            "{ends:?}"
        );
    }
}
