//! One connection to the bus: subscribe, read the states, then follow signals and re-read what has none.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use epitaph_core::node::{BusState, NodeEvent, OwnLock, ScheduledShutdown, ShutdownKind, SignalSender};
use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use zbus::MessageStream;
use zbus::wire::OwnedFd;

use super::RoleOptions;
use super::bus::{self, Bus, Credentials};
use super::drops::LogindDropReason;
use super::error::BusError;
use super::gate::{Admitted, Gate, Service};
use super::inbox::{self, Inbox};
use super::lock::{Do, LockPlan};
use super::outbox::Outbox;
use super::process;
use crate::clock;
use crate::error;

/// States without a signal: the limit of the delay, before systemd 257 the scheduled shutdown, and locks of a kind that another holds too.
const SLOW: Duration = Duration::from_secs(10);
/// In a shutdown: whose lock is still held, as the locks go.
const FAST: Duration = Duration::from_millis(250);

/// For the questions who a stranger is: what logind sends meanwhile waits.
const LOOK: Duration = Duration::from_secs(1);

/// Between two attempts: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Rounds of questions at the end of the role, while signals come.
const SETTLES: u32 = 3;

/// A question that was answered and then fails in so many rounds: what the last answer said may not be so any more.
const FAILURES: u32 = 3;

/// What has no signal, or one without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    SystemState,
    Inhibitors,
    DelayLimit,
    Scheduled,
}

impl Question {
    /// In the order of a round.
    const ALL: [Question; 4] = [
        Question::SystemState,
        Question::Inhibitors,
        Question::DelayLimit,
        Question::Scheduled,
    ];

    const fn service(self) -> Service {
        match self {
            Question::SystemState => Service::Systemd,
            Question::Inhibitors | Question::DelayLimit | Question::Scheduled => Service::Logind,
        }
    }
}

/// How a question fares with one service.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    is_answered: bool,
    /// Rounds that failed one after the other.
    failures: u32,
}

/// From the connection to the agent, and at the end of the role.
#[derive(Debug)]
pub(super) enum FromLink {
    /// An agent reads.
    Connected,
    Gone,
    Release,
    /// Answered, or dropped, when everything that the bus has sent so far is in the outbox.
    Settle(oneshot::Sender<()>),
}

/// Observes the bus as long as the role runs.
pub(super) async fn observe(options: &RoleOptions, outbox: &Outbox, mut link: mpsc::Receiver<FromLink>) -> Infallible {
    let mut plan = LockPlan::new(options.lock);
    let mut logged = HashSet::new();
    let mut backoff = BACKOFF.0;
    loop {
        let began = clock::now();
        let problem = session(options, outbox, &mut link, &mut plan, &mut logged).await;
        let now = clock::now();
        let reason = error::line(&problem);
        // Each problem once: the attempts go on for as long as the role runs.
        if logged.insert(problem.to_string()) {
            match problem {
                // Many nodes have none.
                BusError::Missing { .. } => tracing::info!("{reason}; waiting for it"),
                BusError::RootOnly { .. } => tracing::info!("{reason}"),
                _ => tracing::warn!("{reason}; retried"),
            }
        }
        outbox.forget(now, BusState::Unavailable { reason });
        if now.since(began) > BACKOFF.1 {
            backoff = BACKOFF.0;
            logged.clear();
        }
        let end = Instant::now() + backoff;
        backoff = (backoff * 2).min(BACKOFF.1);
        // The state of the link is followed meanwhile.
        loop {
            tokio::select! {
                () = sleep_until(end) => break,
                Some(command) = link.recv() => follow(&mut plan, command),
            }
        }
    }
}

fn follow(plan: &mut LockPlan, command: FromLink) {
    match command {
        FromLink::Connected => plan.agent(true),
        FromLink::Gone => plan.agent(false),
        FromLink::Release => plan.release(),
        // There is no bus.
        FromLink::Settle(_) => {}
    }
}

async fn session(
    options: &RoleOptions,
    outbox: &Outbox,
    link: &mut mpsc::Receiver<FromLink>,
    plan: &mut LockPlan,
    logged: &mut HashSet<String>,
) -> BusError {
    let (bus, stream) = match Bus::connect(&options.bus).await {
        Ok(connected) => connected,
        Err(error) => return error,
    };
    let gate = Mutex::new(Gate::new());
    let (to, signals, changed) = inbox::new();
    plan.begin();
    let session = Session {
        bus,
        signals,
        changed,
        gate: &gate,
        outbox,
        proc: &options.proc,
        plan,
        held: None,
        systemd: None,
        preparing: false,
        ending: false,
        asked: Default::default(),
        is_begun: false,
        logged,
        jobs_refused: false,
    };
    // Both at once: the stream must be read while calls are under way, because their answers come after it. And the stream first: a
    // signal that came before an answer is known before the answer.
    tokio::select! {
        biased;
        () = read(stream, &gate, outbox, to) => BusError::Closed,
        error = session.run(link) => error,
    }
}

/// Takes the messages of the bus as they come; the end of the stream is the end.
async fn read(mut stream: MessageStream, gate: &Mutex<Gate>, outbox: &Outbox, to: inbox::Sender) {
    while let Some(Ok(message)) = stream.next().await {
        let admitted = match bus::signal(&message) {
            Ok(Some(signal)) => {
                let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                gate.admit(clock::now(), signal, &outbox.drops)
            }
            Ok(None) => None,
            Err(bus::NotASignal) => {
                outbox.drops.add(LogindDropReason::Garbage, 1);
                None
            }
        };
        if let Some(admitted) = admitted {
            to.send(admitted, &outbox.drops);
        }
    }
}

struct Session<'s> {
    bus: Bus,
    /// Of the bus, admitted.
    signals: Inbox,
    /// A property of logind has changed, since the last round of questions.
    changed: mpsc::Receiver<()>,
    gate: &'s Mutex<Gate>,
    outbox: &'s Outbox,
    /// Where processes of the host are shown, if they are.
    proc: &'s Path,
    plan: &'s mut LockPlan,
    held: Option<OwnedFd>,
    /// Version.
    systemd: Option<u32>,
    preparing: bool,
    /// systemd has queued the machine's end.
    ending: bool,
    /// By [`Question`].
    asked: [Asked; Question::ALL.len()],
    /// logind has said whether it prepares a shutdown.
    is_begun: bool,
    /// Problems that were logged.
    logged: &'s mut HashSet<String>,
    jobs_refused: bool,
}

impl Session<'_> {
    async fn run(mut self, link: &mut mpsc::Receiver<FromLink>) -> BusError {
        match self.follow_all(link).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn follow_all(&mut self, link: &mut mpsc::Receiver<FromLink>) -> Result<Infallible, BusError> {
        self.bus.subscribe().await?;
        for of in Service::ALL {
            let owner = self.bus.owner(of).await?;
            self.gate().answered(of, owner);
        }
        self.begin_systemd().await?;
        self.begin_logind().await?;
        let mut next = Instant::now() + SLOW;
        loop {
            self.lock().await?;
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    self.take(signal).await?;
                    next = next.min(Instant::now() + FAST / 5);
                }
                Some(command) = link.recv() => match command {
                    FromLink::Settle(done) => {
                        self.settle().await?;
                        // Nobody waits any more: the role ends by its own time.
                        let _ = done.send(());
                    }
                    command => follow(self.plan, command),
                },
                () = sleep_until(next) => {
                    match self.is_begun || self.owner(Service::Logind).is_none() {
                        true => self.ask().await?,
                        // It is there, and has not answered yet.
                        false => self.begin_logind().await?,
                    }
                    next = Instant::now() + if self.preparing || self.ending { FAST } else { SLOW };
                }
                // All states are read in the next round. The last, because whoever takes locks can make properties change at any rate.
                Some(()) = self.changed.recv() => next = next.min(Instant::now() + FAST / 5),
            }
        }
    }

    /// What the bus sent before now has come when the answers have come.
    async fn settle(&mut self) -> Result<(), BusError> {
        for _ in 0..SETTLES {
            self.ask().await?;
            if self.signals.is_empty() {
                break;
            }
            while let Some(signal) = self.signals.try_next() {
                self.take(signal).await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, signal: Admitted) -> Result<(), BusError> {
        match signal {
            Admitted::Owner {
                of: Service::Logind,
                now: Some(_),
            } => self.begin_logind().await,
            Admitted::Owner {
                of: Service::Logind,
                now: None,
            } => {
                self.no_logind();
                Ok(())
            }
            Admitted::Owner {
                of: Service::Systemd,
                now: Some(_),
            } => self.begin_systemd().await,
            Admitted::Owner {
                of: Service::Systemd,
                now: None,
            }
            | Admitted::Owner { of: Service::Oomd, .. } => Ok(()),
            Admitted::OomKilled { cgroup, reason } => {
                self.put(NodeEvent::OomKilled { cgroup, reason });
                Ok(())
            }
            Admitted::Prepare {
                start,
                kind,
                stranger: None,
            } => {
                self.preparing = start;
                self.plan.preparing(clock::now(), start);
                self.put(prepare(start, kind, SignalSender::Logind));
                Ok(())
            }
            Admitted::Prepare {
                start,
                kind,
                stranger: Some(name),
            } => {
                let sender = self.stranger(name).await?;
                self.put(prepare(start, kind, sender));
                Ok(())
            }
            // Not among these signals.
            Admitted::Changed => Ok(()),
            Admitted::Job { unit, removed } => {
                self.ending = !removed;
                self.put(NodeEvent::Job { unit, removed });
                Ok(())
            }
        }
    }

    /// logind is there, from the start or again. The subscription is older, so that no change is missed.
    async fn begin_logind(&mut self) -> Result<(), BusError> {
        self.held = None;
        self.is_begun = false;
        self.plan.begin();
        let Some(logind) = self.owner(Service::Logind) else {
            self.no_logind();
            return self.ask().await;
        };
        for question in Question::ALL
            .into_iter()
            .filter(|question| question.service() == Service::Logind)
        {
            self.asked[question as usize] = Asked::default();
        }
        let preparing = match self.bus.preparing(&logind).await {
            Ok(preparing) => preparing,
            Err(error) if error.is_of_service() => {
                let reason = error::line(&error);
                self.outbox.forget(clock::now(), BusState::Unavailable { reason });
                return self.ask().await;
            }
            Err(error) => return Err(error),
        };
        let now = clock::now();
        self.is_begun = true;
        self.preparing = preparing;
        self.plan.preparing(now, preparing);
        self.put(NodeEvent::Bus {
            state: BusState::Connected {
                systemd: self.systemd,
                preparing,
            },
        });
        self.ask().await
    }

    fn no_logind(&mut self) {
        self.held = None;
        self.is_begun = false;
        self.plan.begin();
        self.preparing = false;
        let reason = error::line(&BusError::NoLogind);
        self.outbox.forget(clock::now(), BusState::Unavailable { reason });
    }

    async fn begin_systemd(&mut self) -> Result<(), BusError> {
        let Some(systemd) = self.owner(Service::Systemd) else {
            return Ok(());
        };
        if let Err(error) = self.bus.subscribe_to_jobs(&systemd).await {
            if !error.is_of_service() {
                return Err(error);
            }
            if !std::mem::replace(&mut self.jobs_refused, true) {
                tracing::warn!(
                    "systemd does not send its jobs: {error}; a shutdown that bypasses logind is detected only by systemd's state"
                );
            }
        }
        match self.bus.version(&systemd).await {
            Ok(version) => self.systemd = version,
            Err(error) if error.is_of_service() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A round of questions, each by itself: old versions do not have all, and a refusal of one says nothing of the others.
    async fn ask(&mut self) -> Result<(), BusError> {
        let mut silent = None;
        for question in Question::ALL {
            let service = question.service();
            let may_ask = silent != Some(service) && (self.is_begun || service == Service::Systemd);
            let Some(owner) = self.owner(service).filter(|_| may_ask) else {
                continue;
            };
            let answer = self.answer(question, &owner).await;
            // A signal came in between, is older than the answer, and taken first. Another round follows soon.
            if !self.signals.is_empty() {
                return Ok(());
            }
            let asked = &mut self.asked[question as usize];
            match answer {
                Ok((event, over)) => {
                    *asked = Asked {
                        is_answered: true,
                        failures: 0,
                    };
                    if let NodeEvent::DelayLimit { limit } = &event {
                        self.plan.limit(*limit);
                    }
                    self.outbox.drops.add(LogindDropReason::Locks, over);
                    self.put(event);
                }
                Err(error) if error.is_of_service() => {
                    asked.failures += 1;
                    if asked.is_answered && asked.failures >= FAILURES {
                        return Err(error);
                    }
                    silent = error.is_silence().then_some(service).or(silent);
                    if self.logged.insert(error.to_string()) {
                        tracing::warn!("{}; asked again", error::line(&error));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The answer, and the number of locks that are not in it.
    async fn answer(&mut self, question: Question, owner: &str) -> Result<(NodeEvent, u64), BusError> {
        let event = match question {
            Question::SystemState => NodeEvent::SystemState {
                state: self.bus.system_state(owner).await?,
            },
            Question::Inhibitors => {
                let (locks, over) = self.bus.inhibitors(owner).await?;
                return Ok((NodeEvent::Inhibitors { locks }, over));
            }
            Question::DelayLimit => NodeEvent::DelayLimit {
                limit: self.bus.delay_limit(owner).await?,
            },
            Question::Scheduled => {
                let shutdown: Option<ScheduledShutdown> = match self.bus.scheduled(owner).await {
                    // systemd 219.
                    Err(error) if error.is_unknown_member() => {
                        if self.logged.insert(error.to_string()) {
                            tracing::warn!("{error}: this logind plans no shutdowns, or does not show them");
                        }
                        None
                    }
                    answer => answer?,
                };
                NodeEvent::Scheduled { shutdown }
            }
        };
        Ok((event, 0))
    }

    /// Takes or lets go the own lock, whichever is due.
    async fn lock(&mut self) -> Result<(), BusError> {
        match self.plan.due(clock::now()) {
            None => Ok(()),
            Some(Do::Release) => {
                self.held = None;
                self.plan.let_go();
                self.put(NodeEvent::OwnLock {
                    state: OwnLock::Released,
                });
                Ok(())
            }
            Some(Do::Take) => {
                let Some(logind) = self.owner(Service::Logind) else {
                    return Ok(());
                };
                let state = match self.bus.inhibit(&logind).await {
                    Ok(held) => {
                        self.held = Some(held);
                        self.plan.taken();
                        OwnLock::Held
                    }
                    Err(error) if error.is_of_service() => {
                        self.plan.refused();
                        let reason = format!("{error}; {LOCK_REMEDY}");
                        tracing::warn!(remedy = LOCK_REMEDY, "the delay lock is refused, observing goes on: {error}");
                        OwnLock::Refused { reason }
                    }
                    Err(error) => return Err(error),
                };
                self.put(NodeEvent::OwnLock { state });
                Ok(())
            }
        }
    }

    /// Who sent a signal, as far as it is known while the sender is connected.
    async fn stranger(&self, name: String) -> Result<SignalSender, BusError> {
        let mut credentials = Credentials::default();
        let look = async {
            credentials = self.bus.credentials(&name).await?;
            match (credentials.pid, self.owner(Service::Systemd)) {
                (Some(pid), Some(systemd)) => self.bus.unit(&systemd, pid).await,
                _ => Ok(None),
            }
        };
        // Too late: what is known by then.
        let unit = timeout(LOOK, look).await.unwrap_or(Ok(None))?;
        let mut sender = SignalSender::Other {
            name,
            pid: credentials.pid,
            uid: credentials.uid,
            comm: None,
            unit,
        };
        process::complete(&mut sender, self.proc);
        Ok(sender)
    }

    fn owner(&self, of: Service) -> Option<String> {
        self.gate().owner(of).map(str::to_owned)
    }

    fn gate(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, event: NodeEvent) {
        // Texts of other processes.
        if let Some(event) = super::bounds::event(event) {
            self.outbox.put(clock::now(), event);
        }
    }
}

const LOCK_REMEDY: &str = "polkit lets only uid 0 take a lock: run the role as uid 0 (chart value `logind.runAsRoot`; its price is in \
                           docs/privileges.md), allow org.freedesktop.login1.inhibit-delay-shutdown in polkit, or leave \
                           `logind.lock` off";

fn prepare(start: bool, kind: Option<ShutdownKind>, sender: SignalSender) -> NodeEvent {
    NodeEvent::Prepare { start, kind, sender }
}
