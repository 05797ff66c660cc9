//! `epitaph observer`: a candidate for the Lease; while it is the leader, its watches, its state machine and its spans.

mod leadership;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::observe::{Input, LossAlarm, Observer, Output, PhaseKind, Watch};
use epitaph_core::pod::ApiClock;
use epitaph_core::time::{Boot, WallClock, WallOffset};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::clock;
use crate::config::{Config, Env};
use crate::render::span::{self, Options};
use crate::rights;
use crate::sink::epitaphs::{self, KeepSettings, KeepStats, Keeper};
use crate::sink::http::{Health, ObserverState};
use crate::sink::kubernetes_events;
use crate::sink::metrics::observer::ObserverMetrics;
use crate::sink::metrics::rollouts::RolloutMetrics;
use crate::sink::otlp::Exporters;
use crate::source::WatchCounters;
use crate::source::cluster::{self, Cluster, ClusterCounters, Lease, Scope};
use crate::source::epitaphs::{self as known, EpitaphFeed, EpitaphNews};
use crate::source::pods::{Access, NEEDS_ACCESS, TOKEN};
use crate::source::rollouts::{self, RolloutCounters, RolloutFeed, RolloutNews};

use super::export::{Export, host};
use super::{FLUSH, RuntimeError, listen, logging, privileges, serve, stop_on_signal};
use crate::cli::SysExit;
use leadership::Leadership;

/// How often the state machine gets the time, and the Lease is checked.
const TICK: Duration = Duration::from_millis(200);

/// After so long without a tick the machine slept, or this process had no CPU: inputs waited for an unknown time.
const STALL: Duration = Duration::from_secs(2);

/// Most steps of the wall clock that spans state; older ones are forgotten.
const STEPS: usize = 8;

/// Why a report is dropped: of `epitaph_observer_dropped_total`.
const UNCONFIRMED: &str = "unconfirmed";

/// How often the state of lost nodes is computed for `/metrics`.
const STATE: Duration = Duration::from_secs(1);

pub async fn run(mut config: Config, env: &dyn Env) -> Result<(), RuntimeError> {
    let access = access(&mut config)?;
    clock::reach_behind_boot();
    let logging = logging::start(&config, logging::Terminations::Messages)?;
    logging::warn_of_unknown_variables(env);
    let export = Export::of_observer(&config)?;
    let health = Arc::new(Health::default());
    let server = listen(&config)?;
    let client = cluster::client(&access).await?;
    if let Err(error) = privileges::drop_all_but(&mut []) {
        tracing::warn!("{error}; the observer runs with more privileges than it needs");
    }
    let (stop_sender, stop) = watch::channel(false);
    tokio::spawn(stop_on_signal(stop_sender, false));
    let serving = serve(server, &export, &health, stop.clone());
    let counters = Counters::default();
    let all = counters.clone();
    export.metrics.follow_failures(move || all.failures().collect());
    let (events, posting) = post_events(&config, &client, &export).unzip();
    let (epitaphs, writing) = write_epitaphs(&config, &client, &export).unzip();
    let observer = ObserverLoop::new(&config, &export, client, (health, counters), (events, epitaphs));
    let released = observer.run(stop).await;
    tracing::debug!("shutting down: queued spans are exported");
    let posted = async {
        if let Some(posting) = posting {
            posting.shutdown(FLUSH).await;
        }
    };
    let written = async {
        if let Some(writing) = writing {
            writing.shutdown(FLUSH).await;
        }
    };
    tokio::join!(released, posted, written, export.finish(FLUSH), logging.finish(FLUSH));
    serving.abort();
    Ok(())
}

/// Checks the settings, and takes what only an observer has for what is not set.
fn access(config: &mut Config) -> Result<Access, RuntimeError> {
    let wrong = |problem: &str, remedy| RuntimeError::new(SysExit::Config, problem).with_remedy(remedy);
    if config.export.unclean_only {
        return Err(wrong(
            "bad setting `export.unclean_only`: an observer cannot know which terminations are unclean, and its spans of the others \
             would have no trace",
            "unset it for the observer (EPITAPH_UNCLEAN_ONLY=false), or run no observer",
        ));
    }
    if config.export.agent_service_name == Config::default().export.agent_service_name {
        config.export.agent_service_name = "epitaph-observer".to_owned();
    }
    let access = config.kubernetes.access(std::path::Path::new(TOKEN).exists());
    access.ok_or_else(|| wrong("an observer needs the Kubernetes API", NEEDS_ACCESS))
}

/// None without Events.
fn post_events(
    config: &Config,
    client: &kube::Client,
    export: &Export,
) -> Option<(kubernetes_events::Sink, kubernetes_events::EventsWorker)> {
    let posts = config.kubernetes.events && (config.observer.lost_nodes || config.kubernetes.epitaphs);
    posts.then(|| {
        let (sink, worker) = kubernetes_events::start(client.clone(), kubernetes_events::Settings::of_observer(), clock::now);
        export.metrics.follow_events(sink.stats().clone());
        (sink, worker)
    })
}

/// None without Epitaphs.
fn write_epitaphs(
    config: &Config,
    client: &kube::Client,
    export: &Export,
) -> Option<(epitaphs::Sink, epitaphs::EpitaphsWorker)> {
    config.kubernetes.epitaphs.then(|| {
        let (sink, worker) = epitaphs::start(client.clone(), epitaphs::Settings::of_observer(), clock::now);
        export.metrics.follow_epitaphs(sink.stats().clone());
        (sink, worker)
    })
}

/// None without Epitaphs.
fn keeping(config: &Config, export: &Export) -> Option<(KeepSettings, Arc<KeepStats>)> {
    config.kubernetes.epitaphs.then(|| {
        let stats = Arc::new(KeepStats::default());
        ObserverMetrics::follow_epitaphs(&export.metrics, stats.clone());
        let settings = KeepSettings {
            limits: config.observer.kept(),
            ..KeepSettings::default()
        };
        (settings, stats)
    })
}

/// Differs from every other process, also from the previous one in the same pod, which may still consider itself the leader.
fn identity() -> String {
    // The standard library's only source of randomness.
    format!("{}_{:016x}", host(), RandomState::new().hash_one(()))
}

struct ObserverLoop {
    metrics: ObserverMetrics,
    reports: Reports,
    health: Arc<Health>,
    counters: Counters,
    rollouts: RolloutMetrics,
    counted: Counted,
    leadership: Leadership,
    sessions: Sessions,
    session: Option<Session>,
    /// Outputs of the state machine with their times, until a renewal of the Lease confirms that no other observer was active by then.
    held: VecDeque<(Boot, Output)>,
    /// When the state of lost nodes was last computed.
    stated: Option<Boot>,
    wall: WallClock<STEPS>,
}

/// Where reports go.
struct Reports {
    exporters: Exporters,
    spans: Options,
    /// None without Events.
    events: Option<kubernetes_events::Sink>,
    /// None without Epitaphs.
    epitaphs: Option<epitaphs::Completer>,
}

/// What every session is started with.
struct Sessions {
    client: kube::Client,
    limits: epitaph_core::observe::ObserverLimits,
    scope: Scope,
    rollout_settle: Duration,
    /// None without Epitaphs.
    keeping: Option<(KeepSettings, Arc<KeepStats>)>,
}

/// The observation from winning the Lease to losing it.
struct Session {
    observer: Observer,
    cluster: Cluster,
    /// None without Epitaphs.
    feeds: Option<(RolloutFeed, EpitaphFeed)>,
    /// Removes Epitaphs while this observer is active.
    _keeper: Option<Keeper>,
    /// Time of the state machine's last input: inputs of several watches arrive side by side.
    handled: Boot,
    /// When that input was handled: an input carries the time of its arrival.
    fed: Boot,
    synced: bool,
    /// The Lease expired while the API server did not answer: no input is read and no span is exported until it is renewed.
    paused: bool,
    /// The sum of the clock's steps forward meanwhile.
    stepped: Duration,
}

/// Totals of the sources.
#[derive(Clone, Default)]
struct Counters {
    cluster: Arc<ClusterCounters>,
    rollouts: Arc<RolloutCounters>,
    epitaphs: Arc<WatchCounters>,
}

impl Counters {
    /// Failed requests: resource, reason, count.
    fn failures(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let of_epitaphs = self.epitaphs.by_reason(known::WATCH);
        self.cluster.failures().chain(self.rollouts.failures()).chain(of_epitaphs)
    }
}

/// The part of the sources' totals that `/metrics` has already.
#[derive(Default)]
struct Counted {
    breaks: [u64; Watch::ALL.len()],
    unreadable: u64,
    questions: u64,
    epitaphs: u64,
    /// Breaks, failed requests, ReplicaSets over the bound, unreadable ones.
    rollouts: [u64; 4],
}

impl ObserverLoop {
    fn new(
        config: &Config,
        export: &Export,
        client: kube::Client,
        (health, counters): (Arc<Health>, Counters),
        (events, epitaphs): (Option<kubernetes_events::Sink>, Option<epitaphs::Sink>),
    ) -> ObserverLoop {
        let identity = identity();
        tracing::info!(
            %identity,
            listen = %config.listen,
            traces = export.destination(false),
            "an observer"
        );
        // Half of the deadline, as in client-go: one hanging request must not lose the Lease.
        let lease = Lease::new(
            &client,
            config.observer.namespace.as_deref(),
            &config.observer.lease,
            config.observer.renew_deadline / 2,
        );
        ObserverLoop {
            metrics: ObserverMetrics::new(&export.metrics),
            reports: Reports {
                exporters: export.exporters(),
                spans: Options {
                    service_name: config.export.service_name.clone(),
                    cluster_name: config.export.cluster_name.clone(),
                    node_name: None,
                    resource_attributes: config.export.resource_attributes.clone(),
                    unclean_only: false,
                },
                events,
                epitaphs: epitaphs.map(epitaphs::Completer::new),
            },
            health,
            counters,
            rollouts: RolloutMetrics::new(&export.metrics),
            counted: Counted::default(),
            leadership: Leadership::new(config, identity, lease),
            sessions: Sessions {
                client,
                limits: config.observer.limits(),
                scope: Scope {
                    allowed: config.kubernetes.allowed(),
                    lost_nodes: config.observer.lost_nodes,
                    namespace: config.observer.namespace.clone(),
                },
                rollout_settle: config.observer.rollout_settle,
                keeping: keeping(config, export),
            },
            session: None,
            held: VecDeque::new(),
            stated: None,
            wall: WallClock::at(clock::wall_offset()),
        }
    }

    /// Runs until `stop`. The returned future releases the Lease.
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> impl Future<Output = ()> {
        let mut ticks = interval_at(Instant::now(), TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                () = self.leadership.answered() => self.start_or_stop(),
                input = next(&mut self.session) => match input {
                    Some(News::Cluster(at, input)) => self.feed(at, input),
                    Some(News::Rollout(news)) => self.rollout(news),
                    Some(News::Epitaph(news)) => self.epitaph(news),
                    None => {
                        tracing::error!("the watches ended unexpectedly; restarting them");
                        self.session = None;
                    }
                },
                _ = ticks.tick() => {
                    self.compare_clocks();
                    self.start_or_stop();
                    if self.leadership.is_ours(clock::now()) {
                        self.feed(clock::now(), Input::Tick);
                    }
                    self.publish();
                }
            }
        }
        let now = clock::now();
        if let Some(session) = self.session.as_mut().filter(|session| !session.paused) {
            let last = session.observer.stop(session.handled.max(now));
            self.hold(last);
        }
        if !self.held.is_empty() {
            self.leadership.confirm(now).await;
            self.report(now);
        }
        self.drop_held();
        // The watches end before the Lease is released.
        self.session = None;
        self.leadership.release()
    }

    /// Starts a session when the Lease is won, and ends the session when the Lease is lost.
    fn start_or_stop(&mut self) {
        let now = clock::now();
        self.leadership.renew(now);
        match (self.leadership.is_ours(now), &mut self.session) {
            (true, None) => {
                self.session = Some(self.sessions.start(&self.counters, now));
            }
            (true, Some(session)) if session.paused => {
                tracing::info!("active again: no other observer held the Lease meanwhile");
                session.paused = false;
                self.metrics.stalled();
                let mut outputs = session.take_steps(now);
                outputs.extend(session.take(now, Input::Stalled));
                self.hold(outputs);
            }
            (false, Some(_)) if self.leadership.is_lost() => {
                tracing::warn!("another observer holds the Lease: this one stops observing and exports no unfinished span");
                self.session = None;
                self.rollouts.clear();
                self.drop_held();
            }
            (false, Some(session)) if !session.paused => {
                tracing::warn!("the Lease could not be renewed: no span is exported until it is");
                session.paused = true;
            }
            _ => {}
        }
    }

    /// Before each input: what is read right after a pause waited meanwhile.
    fn compare_clocks(&mut self) {
        let now = clock::now();
        let Some(step) = self.wall.set(now, clock::wall_offset()) else {
            return;
        };
        tracing::info!(
            step = ?Duration::from_nanos(step.unsigned_abs()),
            is_ahead = step > 0,
            "the wall clock stepped, or the machine was paused: earlier times that are not exported yet may be wrong by as much"
        );
        let Some(session) = &mut self.session else { return };
        session.observer.forget_api_clock();
        if let Ok(step @ 1..) = u64::try_from(step) {
            session.stepped += Duration::from_nanos(step);
            // A gap begins with the last input, so a paused session's has to wait for its end.
            if !session.paused {
                self.metrics.stalled();
                let outputs = session.take_steps(now);
                self.hold(outputs);
            }
        }
    }

    fn feed(&mut self, at: Boot, input: Input) {
        self.compare_clocks();
        let Some(session) = &mut self.session else { return };
        if let Input::ApiClock(clock) = &input {
            self.metrics.api_clock(clock);
        }
        let now = clock::now();
        let mut outputs = Vec::new();
        let unread = now.since(session.fed);
        if unread > STALL {
            tracing::warn!(
                seconds = unread.as_secs_f64(),
                "this observer read nothing for a while: its process had no CPU or was stopped; spans of that time carry the gap"
            );
            self.metrics.stalled();
            outputs = session.take(now, Input::Stalled);
        }
        session.fed = now;
        outputs.extend(session.take(at, input));
        if !session.synced && session.observer.is_synced() {
            session.synced = true;
            let [pods, endpoints, nodes] = session.observer.known();
            tracing::info!(
                pods,
                endpoints,
                nodes,
                "all watches are synced: changes from here on are reported"
            );
        }
        self.hold(outputs);
        self.report(now);
    }

    /// Questions are asked at once: they do no harm.
    fn hold(&mut self, outputs: Vec<Output>) {
        let now = clock::now();
        for output in outputs {
            match (output, &mut self.session) {
                (Output::Ask(ask), Some(session)) => session.cluster.ask(ask),
                (output, _) => self.held.push_back((now, output)),
            }
        }
    }

    /// Another observer may have been active when these were made.
    fn drop_held(&mut self) {
        let count = std::mem::take(&mut self.held).len() as u64;
        if count > 0 {
            tracing::warn!(count, "reports that no renewal of the Lease confirmed are not exported");
            self.metrics.dropped(UNCONFIRMED, count);
        }
    }

    /// To the sinks.
    fn report(&mut self, now: Boot) {
        // The Lease may have expired since the last check.
        if !self.leadership.is_ours(clock::now()) {
            return;
        }
        let Some(session) = &mut self.session else { return };
        while let Some((made, _)) = self.held.front()
            && self.leadership.has_confirmed(*made)
            && let Some((_, mut output)) = self.held.pop_front()
        {
            if let Some(pod) = output.pod_mut()
                && let Some(named) = session.cluster.named(&pod.uid)
            {
                *pod = named;
            }
            self.metrics.output(&output);
            let offset = clock::wall_offset();
            match output {
                Output::LossAlarm(alarm) => {
                    log(&alarm);
                    if let Some(events) = &self.reports.events {
                        events.offer_loss(&alarm, offset.wall(alarm.at.at), now);
                    }
                    continue;
                }
                _ => log_end(&output),
            }
            if let Some(epitaphs) = &mut self.reports.epitaphs {
                epitaphs.offer(&output, offset, now);
            }
            let clocks = (offset, session.observer.api_clock());
            let Some((mut trace, what)) =
                trace(&output, clocks, &self.reports.spans).filter(|_| !self.reports.exporters.is_empty())
            else {
                continue;
            };
            span::add_clock_step(&mut trace, |begin| self.wall.step_after(offset.boot(begin)));
            // A full queue drops and counts its oldest trace; the count is on /metrics.
            self.reports.exporters.offer(&trace, what);
        }
    }

    /// A rollout that has settled: its metrics, and its Event.
    fn rollout(&mut self, news: RolloutNews) {
        let settled = match news {
            RolloutNews::Gone(workload) => return self.rollouts.gone(&workload),
            RolloutNews::Settled(settled) => settled,
        };
        let now = clock::now();
        let at = clock::wall_offset().wall(now);
        tracing::info!(
            workload = %format!("{} {}/{}", settled.workload.kind, settled.workload.namespace, settled.workload.name),
            revision = settled.revision,
            lost = settled.cost.as_ref().and_then(epitaph_core::rollout::RevisionCost::lost),
            unreported = settled.cost.as_ref().and_then(|cost| cost.unreported),
            "a rollout has settled"
        );
        if let Some(events) = &self.reports.events {
            events.offer_rollout(&settled, at, now);
        }
        self.rollouts.settled(*settled, at);
    }

    fn epitaph(&mut self, news: EpitaphNews) {
        let Some(epitaphs) = &mut self.reports.epitaphs else { return };
        match news {
            EpitaphNews::Listed => epitaphs.listed(),
            EpitaphNews::Written {
                namespace,
                name,
                unclean,
            } => epitaphs.written((namespace, name), unclean, clock::now()),
            EpitaphNews::Gone { namespace, name } => epitaphs.gone((namespace, name)),
            EpitaphNews::Forbidden => epitaphs.forbidden(clock::now()),
            EpitaphNews::Watched => epitaphs.watched(),
        }
    }

    /// To `/metrics` and `/readyz`.
    fn publish(&mut self) {
        self.health.alive(clock::now());
        self.health.observer(ObserverState {
            ready: match &self.session {
                Some(session) => session.synced && !session.paused,
                None => self.leadership.is_known(),
            },
            role: match (&self.session, self.leadership.is_known()) {
                (Some(_), _) => "active",
                (None, true) => "standby",
                (None, false) => "starting",
            },
            lease_holder: self.leadership.holder(),
        });
        self.metrics
            .active(self.session.as_ref().is_some_and(|session| !session.paused));
        let known = self.session.as_ref().map(|session| session.observer.known());
        self.metrics.known(known.unwrap_or_default());
        self.state();
        for watch in Watch::ALL {
            let total = self.counters.cluster.breaks(watch);
            let counted = std::mem::replace(&mut self.counted.breaks[watch as usize], total);
            self.metrics.watch_breaks(watch.name(), total - counted);
        }
        let total = self.counters.epitaphs.failures();
        let counted = std::mem::replace(&mut self.counted.epitaphs, total);
        self.metrics.watch_breaks(known::WATCH, total - counted);
        let of = &self.counters.rollouts;
        let totals = [of.breaks(), of.requests_failed(), of.over(), of.unreadable()];
        let counted = std::mem::replace(&mut self.counted.rollouts, totals);
        let [breaks, failures, over, unreadable] = std::array::from_fn(|at| totals[at] - counted[at]);
        self.metrics.watch_breaks(rollouts::WATCH, breaks);
        self.metrics.rollout_failures(failures);
        self.metrics.dropped("rollout_cap", over);
        self.metrics.dropped("rollout_unreadable", unreadable);
        let total = self.counters.cluster.unreadable();
        self.metrics
            .dropped("unreadable", total - std::mem::replace(&mut self.counted.unreadable, total));
        let total = self.counters.cluster.questions_dropped();
        self.metrics
            .dropped("question", total - std::mem::replace(&mut self.counted.questions, total));
    }

    /// The state of lost nodes, to `/metrics`.
    fn state(&mut self) {
        let now = clock::now();
        if self.stated.is_some_and(|stated| now.since(stated) < STATE) {
            return;
        }
        self.stated = Some(now);
        let session = self.session.as_ref().filter(|session| session.synced && !session.paused);
        self.metrics.losses(session.map(|session| session.observer.losses(now)));
    }
}

/// None for what is no span.
fn trace(output: &Output, clocks: (WallOffset, Option<ApiClock>), options: &Options) -> Option<(span::Trace, &'static str)> {
    Some(match output {
        Output::Removal(removal) => (span::removal(removal, clocks.0, options), "endpoint-removal"),
        Output::Replacement(replacement) => (span::replacement(replacement, clocks.0, options), "replacement"),
        Output::NodeLost(lost) => (span::node_lost(lost, clocks, options), lost.verdict.row.headline),
        Output::NodePhase(phase) => (span::node_phase(phase, clocks, options), phase.kind.name()),
        Output::ShuttingDown(down) => (span::shutting_down(down, clocks, options), "node-shutdown"),
        Output::PodLost(lost) => (span::pod_lost(lost, clocks, options), lost.verdict.row.headline),
        Output::VolumeDetach(detach) => (span::volume_detach(detach, clocks, options), "volume-detach"),
        Output::DuplicateRun(run) => (span::duplicate_run(run, clocks, options), run.verdict.row.headline),
        Output::LossAlarm(_) | Output::Ask(_) | Output::Dropped { .. } => return None,
    })
}

fn log(alarm: &LossAlarm) {
    let verdict = &alarm.verdict;
    tracing::warn!(
        node = %alarm.node.name,
        pod = alarm.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        verdict = verdict.row.headline,
        remedy = %verdict.remedy,
        "{}",
        verdict.sentence
    );
}

/// Who acted on an alarm looks here for whether more is to be done: Events keep the advice of their time.
fn log_end(output: &Output) {
    match output {
        Output::NodeLost(lost) => tracing::info!(
            node = %lost.key.node.name,
            verdict = lost.verdict.row.headline,
            ended_by = lost.ended_by.name(),
            remedy = %lost.verdict.remedy,
            "{}",
            lost.verdict.sentence
        ),
        Output::ShuttingDown(down) if !down.services.is_empty() => tracing::info!(
            node = %down.node.name,
            services = %down.services.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            "endpoints of node `{}` were ready after its kubelet had announced the shutdown: their Services sent clients to pods that the kubelet \
             stopped",
            down.node.name
        ),
        Output::NodePhase(phase) if phase.kind == PhaseKind::Down => tracing::info!(
            node = %phase.key.node.name,
            returned = phase.boot.as_ref().map(|boot| boot.how.name()),
            "node `{}` is ready again: earlier advice to set a taint does not hold any more",
            phase.key.node.name
        ),
        _ => {}
    }
}

impl Sessions {
    fn start(&self, counters: &Counters, now: Boot) -> Session {
        tracing::info!(lost_nodes = self.scope.lost_nodes, "active: watching the cluster");
        Session {
            observer: Observer::new(self.limits),
            cluster: Cluster::start(&self.client, &counters.cluster, &self.scope),
            feeds: self.keeping.is_some().then(|| {
                let rollouts = RolloutFeed::start(&self.client, self.rollout_settle, &counters.rollouts);
                (rollouts, EpitaphFeed::start(&self.client, &counters.epitaphs))
            }),
            _keeper: self.keeping.clone().map(|(settings, stats)| {
                let right = &rights::OBSERVER_EPITAPHS;
                let now = || clock::wall_offset().wall(clock::now());
                epitaphs::keep(self.client.clone(), settings, stats, now, right)
            }),
            handled: now,
            fed: now,
            synced: false,
            paused: false,
            stepped: Duration::ZERO,
        }
    }
}

impl Session {
    fn take(&mut self, at: Boot, input: Input) -> Vec<Output> {
        self.handled = self.handled.max(at);
        self.observer.handle(self.handled, input)
    }

    fn take_steps(&mut self, now: Boot) -> Vec<Output> {
        match std::mem::take(&mut self.stepped) {
            Duration::ZERO => Vec::new(),
            steps => self.take(now, Input::Paused(steps)),
        }
    }
}

/// What a session receives.
enum News {
    Cluster(Boot, Input),
    Rollout(RolloutNews),
    Epitaph(EpitaphNews),
}

/// Pending without a session, or during a pause: the queues fill, and the watches wait. None if a watch ended.
async fn next(session: &mut Option<Session>) -> Option<News> {
    match session {
        Some(Session {
            cluster,
            feeds,
            paused: false,
            ..
        }) => {
            let fed = async {
                let Some((rollouts, epitaphs)) = feeds else {
                    return std::future::pending().await;
                };
                tokio::select! {
                    news = rollouts.next() => news.map(News::Rollout),
                    news = epitaphs.next() => news.map(News::Epitaph),
                }
            };
            tokio::select! {
                input = cluster.next() => input.map(|(at, input)| News::Cluster(at, input)),
                news = fed => news,
            }
        }
        _ => std::future::pending().await,
    }
}
