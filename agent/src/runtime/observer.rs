//! `epitaph observer`: candidate for the Lease, and while it holds it, the watches, the machine over them, and its spans.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::clock;
use crate::config::{Config, Env};
use crate::observe::election::{Answer, Ask, Election};
use crate::observe::{Input, Observer, Output, Watch};
use crate::render::span::{self, Options};
use crate::sink::http::{Duty, Health};
use crate::sink::metrics::observer::ObserverMetrics;
use crate::sink::otlp;
use crate::source::cluster::{self, Cluster, Lease, Stats};
use crate::source::pods::TOKEN;
use crate::time::Boot;

use super::export::{Export, host};
use super::{FLUSH, RuntimeError, listen, logging, privileges, stop_on_signal};
use crate::cli::SysExit;

/// How often the machine is told the time, and the Lease is looked after.
const TICK: Duration = Duration::from_millis(200);

/// Nothing was taken in for so long: the machine slept, or this process had no time. What waits has waited for nobody knows how long.
const STALL: Duration = Duration::from_secs(2);

/// Without an election: how often the Lease is looked at, to warn of another observer.
const LOOK: Duration = Duration::from_secs(30);

/// What the release of the Lease may take at the end.
const RELEASE: Duration = Duration::from_secs(2);

pub async fn run(mut config: Config, env: &dyn Env) -> Result<(), RuntimeError> {
    let wrong = |message: &str| Err(RuntimeError::new(SysExit::Config, message));
    if config.export.unclean_only {
        return wrong(
            "export.unclean_only is set: an observer cannot know which deaths are unclean, and its spans of the others would have no \
             trace to be in; unset it for the observer (EPITAPH_UNCLEAN_ONLY=false), or run none",
        );
    }
    if config.export.agent_service_name == Config::default().export.agent_service_name {
        config.export.agent_service_name = "epitaph-observer".to_owned();
    }
    let Some(access) = config.kubernetes.access(std::path::Path::new(TOKEN).exists()) else {
        return wrong("an observer needs the Kubernetes API: run it in a pod with a ServiceAccount, or give --kubeconfig FILE");
    };
    let logging = logging::start(&config)?;
    logging::warn_of_unknown_variables(env);
    let export = Export::of_observer(&config)?;
    let health = Arc::new(Health::default());
    let server = listen(&config).await?;
    let client = cluster::client(&access).await?;
    if let Err(error) = privileges::drop_all_but(&mut []) {
        tracing::warn!("{error}; going on with more than is needed");
    }
    let (stop_sender, stop) = watch::channel(false);
    tokio::spawn(stop_on_signal(stop_sender, false));
    let serving = server.map(|server| {
        let mut stop = stop.clone();
        tokio::spawn(server.serve(export.metrics.clone(), health.clone(), clock::now, async move {
            let _ = stop.wait_for(|stop| *stop).await;
        }))
    });
    let identity = identity();
    tracing::info!(
        %identity,
        listen = %config.listen,
        traces = export.destination(),
        "an observer"
    );
    // Half of the deadline, as client-go has it: one request that hangs must not cost the Lease.
    let lease = Lease::new(
        &client,
        config.observer.namespace.as_deref(),
        &config.observer.lease,
        config.observer.renew_deadline / 2,
    );
    let duty = OnDuty {
        metrics: ObserverMetrics::new(&export.metrics),
        traces: export.traces(),
        spans: Options {
            service_name: config.export.service_name.clone(),
            cluster_name: config.export.cluster_name.clone(),
            resource_attributes: config.export.resource_attributes.clone(),
            unclean_only: false,
        },
        health,
        client,
        stats: Arc::default(),
        counted: Counted::default(),
        seat: Seat::new(&config, identity, lease),
        term: None,
        limits: config.observer.limits(),
    };
    let released = duty.run(stop).await;
    tracing::debug!("ending: what waits is sent");
    tokio::join!(released, export.finish(FLUSH), logging.finish(FLUSH));
    if let Some(serving) = serving {
        serving.abort();
    }
    Ok(())
}

/// Unlike that of any other process, also of the one before it in the same pod: that one may still believe that it leads.
fn identity() -> String {
    // The standard library's only source of chance.
    format!("{}_{:016x}", host(), RandomState::new().hash_one(()))
}

struct OnDuty {
    metrics: ObserverMetrics,
    traces: Option<otlp::Sink>,
    spans: Options,
    health: Arc<Health>,
    client: kube::Client,
    stats: Arc<Stats>,
    counted: Counted,
    seat: Seat,
    term: Option<Term>,
    limits: crate::observe::Limits,
}

/// While it is ours to observe.
struct Term {
    observer: Observer,
    cluster: Cluster,
    /// What the machine was told last: three watches tell side by side.
    told: Boot,
    /// When that was, by the clock: a word is told with the time at which it came.
    fed: Boot,
    synced: bool,
    /// The Lease ran out while nobody could be asked: nothing is taken in and nothing is told until it is ours again.
    paused: bool,
    /// Said by the machine just as it ran out.
    held: Vec<Output>,
}

/// Of the sources' totals, what `/metrics` has already.
#[derive(Default)]
struct Counted {
    breaks: [u64; Watch::ALL.len()],
    unreadable: u64,
}

impl OnDuty {
    /// Until it is told to stop; what is left to do is to let go of the Lease.
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> impl Future<Output = ()> {
        let mut ticks = interval_at(Instant::now(), TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                () = self.seat.answered() => self.take_or_leave(),
                word = next(&mut self.term) => match word {
                    Some((at, input)) => self.feed(at, input),
                    None => {
                        tracing::error!("the watches ended by themselves; beginning anew");
                        self.term = None;
                    }
                },
                _ = ticks.tick() => {
                    self.take_or_leave();
                    if self.seat.is_ours(clock::now()) {
                        self.feed(clock::now(), Input::Tick);
                    }
                    self.tell();
                }
            }
        }
        // First nobody observes any more, then the Lease is free.
        self.term = None;
        self.seat.release()
    }

    /// Begins to observe where the Lease is ours, and ends where it is not any more.
    fn take_or_leave(&mut self) {
        let now = clock::now();
        self.seat.look_after(now);
        match (self.seat.is_ours(now), &mut self.term) {
            (true, None) => {
                tracing::info!("active: watching EndpointSlices, pods and namespaces");
                self.term = Some(Term {
                    observer: Observer::new(self.limits),
                    cluster: Cluster::start(&self.client, &self.stats),
                    told: now,
                    fed: now,
                    synced: false,
                    paused: false,
                    held: Vec::new(),
                });
            }
            (true, Some(term)) if term.paused => {
                tracing::info!("active again: the Lease was nobody else's meanwhile");
                term.paused = false;
                term.take(now, Input::Stalled);
            }
            (false, Some(_)) if self.seat.is_lost() => {
                tracing::warn!("the Lease is another's: nothing is observed any more; what was under way is not told");
                self.term = None;
            }
            (false, Some(term)) if !term.paused => {
                tracing::warn!("the Lease could not be renewed: nothing is told until it is ours again");
                term.paused = true;
            }
            _ => {}
        }
    }

    fn feed(&mut self, at: Boot, input: Input) {
        let Some(term) = &mut self.term else { return };
        if let Input::ApiClock(clock) = &input {
            self.metrics.api_clock(clock);
        }
        let now = clock::now();
        if now.since(term.fed) > STALL {
            term.take(now, Input::Stalled);
        }
        term.fed = now;
        term.take(at, input);
        if !term.synced && term.observer.is_synced() {
            term.synced = true;
            let (pods, endpoints) = term.observer.known();
            tracing::info!(pods, endpoints, "everything is known: what happens from here on is told");
        }
        // Between two looks at the Lease it may have run out.
        if !self.seat.is_ours(clock::now()) {
            return;
        }
        for mut output in term.held.drain(..) {
            if let Some(pod) = output.pod_mut()
                && let Some(named) = term.cluster.named(&pod.uid)
            {
                *pod = named;
            }
            self.metrics.output(&output);
            let Some(traces) = &self.traces else { continue };
            let offset = clock::wall_offset();
            let trace = match &output {
                Output::Removal(removal) => span::removal(removal, offset, &self.spans),
                Output::Replacement(replacement) => span::replacement(replacement, offset, &self.spans),
                Output::Dropped { .. } => continue,
            };
            // A full queue counts its oldest out; the count is on /metrics.
            traces.offer(trace);
        }
    }

    /// To `/metrics` and `/readyz`.
    fn tell(&mut self) {
        self.health.alive(clock::now());
        self.health.duty(Duty {
            ready: match &self.term {
                Some(term) => term.synced && !term.paused,
                None => self.seat.is_known(),
            },
            role: match (&self.term, self.seat.is_known()) {
                (Some(_), _) => "active",
                (None, true) => "standby",
                (None, false) => "starting",
            },
            lease_holder: self.seat.holder(),
        });
        self.metrics.active(self.term.as_ref().is_some_and(|term| !term.paused));
        let known = self.term.as_ref().map(|term| term.observer.known());
        self.metrics.known(known.unwrap_or_default());
        for watch in Watch::ALL {
            let total = self.stats.breaks(watch);
            let counted = std::mem::replace(&mut self.counted.breaks[watch as usize], total);
            self.metrics.watch_breaks(watch, total - counted);
        }
        let total = self.stats.unreadables();
        self.metrics
            .dropped("unreadable", total - std::mem::replace(&mut self.counted.unreadable, total));
    }
}

impl Term {
    fn take(&mut self, at: Boot, input: Input) {
        self.told = self.told.max(at);
        self.held.extend(self.observer.handle(self.told, input));
    }
}

/// Never where there is no term, or it is paused: the queue fills, and the watches wait.
async fn next(term: &mut Option<Term>) -> Option<(Boot, Input)> {
    match term {
        Some(term) if !term.paused => term.cluster.next().await,
        _ => std::future::pending().await,
    }
}

/// The right to observe: by the Lease, or without an election always.
struct Seat {
    election: Option<Election>,
    /// None while a question is under way.
    lease: Option<Lease>,
    asking: Option<JoinHandle<(Lease, Answer)>>,
    looked: Option<Boot>,
    /// Another one was seen to hold the Lease that we do without.
    warned: Option<String>,
    is_known: bool,
}

impl Seat {
    fn new(config: &Config, identity: String, lease: Lease) -> Seat {
        let election = config
            .observer
            .election
            .then(|| Election::new(identity, config.observer.timing()));
        if election.is_none() {
            tracing::warn!(
                "observer.election is off: run no second observer, or everything is told twice, with times that differ"
            );
        }
        Seat {
            is_known: election.is_none(),
            election,
            lease: Some(lease),
            asking: None,
            looked: None,
            warned: None,
        }
    }

    fn is_ours(&self, now: Boot) -> bool {
        self.election.as_ref().is_none_or(|election| election.leads(now))
    }

    fn is_lost(&self) -> bool {
        self.election.as_ref().is_some_and(Election::is_lost)
    }

    /// Somebody holds it, as far as the API server said.
    fn is_known(&self) -> bool {
        self.is_known
    }

    fn holder(&self) -> Option<String> {
        Some(self.election.as_ref()?.holder()?.to_owned())
    }

    /// Asks what is to be asked.
    fn look_after(&mut self, now: Boot) {
        if self.lease.is_none() {
            return;
        }
        let ask = match &mut self.election {
            Some(election) => election.ask(now, clock::wall_offset().wall(now)),
            None => {
                let is_due = self.looked.is_none_or(|looked| now.since(looked) >= LOOK);
                is_due.then(|| {
                    self.looked = Some(now);
                    Ask::Read
                })
            }
        };
        if let Some((ask, mut lease)) = ask.and_then(|ask| Some((ask, self.lease.take()?))) {
            self.asking = Some(tokio::spawn(async move {
                let answer = lease.ask(ask).await;
                (lease, answer)
            }));
        }
    }

    /// Waits for the answer, for ever where nothing was asked.
    async fn answered(&mut self) {
        let Some(asking) = &mut self.asking else {
            return std::future::pending().await;
        };
        let answered = asking.await;
        self.asking = None;
        let Ok((lease, answer)) = answered else {
            // Only a panic ends it so: then there is no Lease to renew, and the term ends with its deadline.
            tracing::error!("the task that asks for the Lease failed");
            return;
        };
        self.lease = Some(lease);
        self.is_known |= answer != Answer::Failed;
        let now = clock::now();
        match &mut self.election {
            Some(election) => election.answer(now, clock::wall_offset().wall(now), answer),
            None => self.warn_of_another(answer),
        }
    }

    fn warn_of_another(&mut self, answer: Answer) {
        let Answer::Is(version) = answer else { return };
        if let Some(holder) = version.record.holder
            && self.warned.as_ref() != Some(&holder)
        {
            tracing::warn!(
                %holder,
                "another observer holds the Lease while observer.election is off here: everything may be told twice, with times \
                 that differ; end one of them"
            );
            self.warned = Some(holder);
        }
    }

    /// Lets go of the Lease, where it is ours.
    async fn release(mut self) {
        let released = async {
            if self.asking.is_some() {
                self.answered().await;
            }
            let now = clock::now();
            let ask = self.election.as_mut()?.release(clock::wall_offset().wall(now))?;
            Some(self.lease.as_mut()?.ask(ask).await)
        };
        match tokio::time::timeout(RELEASE, released).await {
            Ok(Some(Answer::Is(_))) => tracing::info!("the Lease is free"),
            Ok(Some(_)) | Err(_) => tracing::warn!("could not let go of the Lease: the next observer waits for its end"),
            Ok(None) => {}
        }
    }
}
