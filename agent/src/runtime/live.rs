//! One machine, observed live: the probes and `/proc` in, the pipeline out.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::Duration;

use epitaph_ebpf::watch as bits;
use nix::libc;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::attribute::Attribution;
use crate::clock;
use crate::decode::decode;
use crate::event::{Event, Kind, Task};
use crate::ids::CgroupId;
use crate::input::{Input, Observation};
use crate::neighbours::Neighbours;
use crate::report::Command;
use crate::sink::terminal::screen::Act;
use crate::source::kernel::{Hierarchies, Kernel, MapError, hello};
use crate::source::pods::{DropReason, Pods};
use crate::source::procfs::Procfs;
use crate::time::{Boot, WallOffset};

use super::RuntimeError;
use super::pipeline::Pipeline;

/// How often the core is told the time and the loss counters are read: well under the core's linger, so that a loss is
/// known before the death that it touches is judged.
const TICK: Duration = Duration::from_millis(200);

/// Batches of records taken before the core is told the time or the API's word, at most: in a storm both go on, too.
const BATCHES: usize = 64;

/// How often what the kernel armed by itself and no death came of is disarmed.
const SWEEP: Duration = Duration::from_secs(60);

/// A step of the wall clock smaller than this is not worth an input.
const CLOCK_STEP: Duration = Duration::from_millis(1);

pub struct Live {
    kernel: Kernel,
    procfs: Procfs,
    pipeline: Pipeline,
    /// None without Kubernetes.
    pods: Option<Pods>,
    neighbours: Neighbours,
    voice: Voice,
    /// Counted already of what they dropped.
    pods_dropped: [u64; DropReason::ALL.len()],
    wall_offset: WallOffset,
    /// When the loss counters were last read.
    losses_read: Boot,
    /// When what is armed was last gone through.
    swept: Boot,
}

/// Whether others can hear us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Voice {
    Heard,
    /// It failed, was said to have failed, and is tried again.
    Failed,
    /// A policy forbids it, for as long as we live.
    Forbidden,
}

/// Neighbours whose place is told, at most; of the others the pids are.
const PLACES: usize = 4;

/// What a drain of the ring buffer leaves to be done with the kernel's maps.
#[derive(Default)]
struct Chores {
    made: Vec<CgroupId>,
    gone: Vec<CgroupId>,
    commands: Vec<Command>,
}

impl Live {
    /// Starts observing. The probes run already: what happens during the scan waits in the ring buffer.
    pub fn start(
        kernel: Kernel,
        procfs: Procfs,
        pods: Option<Pods>,
        observation: Observation,
        mut pipeline: Pipeline,
    ) -> Result<Live, RuntimeError> {
        let since = observation.since;
        let wall_offset = observation.wall_offset;
        pipeline.feed(since, Input::Start(observation))?;
        for (name, state) in kernel.probes() {
            let (name, state) = (name.clone(), state.clone());
            pipeline.feed(since, Input::Probe { name, state })?;
        }
        let mut live = Live {
            kernel,
            procfs,
            pipeline,
            pods,
            neighbours: Neighbours::new(RandomState::new().hash_one(()) as u32, std::process::id()),
            voice: Voice::Heard,
            pods_dropped: [0; DropReason::ALL.len()],
            wall_offset,
            losses_read: since,
            swept: since,
        };
        procfs_facts(&mut live)?;
        live.pipeline.sinks().alive(clock::now())?;
        live.greet(clock::now())?;
        Ok(live)
    }

    /// Runs until `stop` says so or nobody reads our output, then finishes what can be finished.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>, mut acts: mpsc::Receiver<Act>) -> Result<(), RuntimeError> {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.pipeline.sinks().reader_gone {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(act) = acts.recv() => match act {
                    Act::Quit => break,
                    Act::Resize { columns } => self.pipeline.sinks().resize(columns)?,
                },
                ready = self.kernel.readable() => {
                    ready.map_err(RuntimeError::os("wait for the probes' records"))?;
                    self.drain()?;
                }
                Some(input) = next(&mut self.pods) => self.take_pod(input)?,
                _ = ticks.tick() => {
                    // What waits comes before the time at which it would be too late.
                    self.catch_up()?;
                    self.tick()?;
                }
            }
        }
        // What was there when we were told to end, and no more: under a storm the ring buffer is never empty.
        let mut left = self.kernel.ring_records();
        while left > 0 {
            match self.drain()? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        self.tick()?;
        self.pipeline.feed(clock::now(), Input::End)?;
        self.pipeline.flush()?;
        self.pipeline.sinks().finish()
    }

    fn tick(&mut self) -> Result<(), RuntimeError> {
        let now = clock::now();
        let since = std::mem::replace(&mut self.losses_read, now);
        // Any input can be the one at which a death is due, and its sockets need no watching any more.
        let mut commands = Vec::new();
        for (kind, count) in self.kernel.lost() {
            commands.extend(self.pipeline.feed(now, Input::Lost { kind, since, count })?);
        }
        let offset = clock::wall_offset();
        if u128::from(offset.0.abs_diff(self.wall_offset.0)) > CLOCK_STEP.as_nanos() {
            self.wall_offset = offset;
            commands.extend(self.pipeline.feed(now, Input::Clock(offset))?);
        }
        commands.extend(self.pipeline.tick(now)?);
        self.count_pods_dropped();
        self.greet(now)?;
        self.pipeline.sinks().alive(now)?;
        self.obey(commands);
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.sweep();
        }
        Ok(())
    }

    /// What the kernel said before it comes first: the API's word is always the later one.
    fn take_pod(&mut self, input: Input) -> Result<(), RuntimeError> {
        self.catch_up()?;
        let commands = self.pipeline.feed(clock::now(), input)?;
        self.obey(commands);
        Ok(())
    }

    /// Two that observe one machine are no error, but whoever sees each death twice shall know why.
    fn greet(&mut self, now: Boot) -> Result<(), RuntimeError> {
        let act = self.neighbours.tick(now);
        if act.say && self.voice != Voice::Forbidden {
            self.say_hello();
        }
        if !act.tell.is_empty() {
            const WORDS: &str = "another epitaph observes this machine, too: what both of them send is there twice; \
                                 one agent per node is enough, and watching beside one is fine";
            let who = self.who(&act.tell);
            if !self.pipeline.sinks().note(&format!("{WORDS} ({who})"))? {
                tracing::warn!(%who, "{WORDS}");
            }
        }
        if let Some(count) = self.neighbours.count() {
            self.pipeline.sinks().neighbours(count);
        }
        Ok(())
    }

    fn say_hello(&mut self) {
        let Err(error) = hello::say(self.neighbours.nonce()) else {
            return;
        };
        if is_forbidden(&error) {
            self.voice = Voice::Forbidden;
            tracing::warn!(%error, "other epitaphs on this machine cannot be told of this one: allow rt_sigqueueinfo(2)");
        } else if self.voice == Voice::Heard {
            self.voice = Voice::Failed;
            tracing::warn!(%error, "other epitaphs on this machine could not be told of this one; it is tried again each minute");
        }
    }

    /// Several processes in one bounded line: anybody can forge a hello.
    fn who(&self, tasks: &[Task]) -> String {
        let one = |(at, task): (usize, &Task)| match at < PLACES {
            true => format!("pid {} `{}`, {}", task.tgid, task.comm, self.place(task)),
            false => format!("pid {}", task.tgid),
        };
        tasks.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Where a process lives, for people.
    fn place(&self, task: &Task) -> String {
        let index = self.pipeline.core().index();
        match (index.attribute(task), index.path(task.cgroup)) {
            (Attribution::Subject(subject, _), Some(path)) => format!("{subject}, cgroup {path}"),
            (Attribution::Subject(subject, _), None) => subject.to_string(),
            (_, Some(path)) => format!("cgroup {path}"),
            (Attribution::Host, None) => "the host".to_owned(),
            (Attribution::Unknown(_), None) => "unknown".to_owned(),
        }
    }

    fn count_pods_dropped(&mut self) {
        let Some(pods) = &self.pods else { return };
        for (reason, counted) in DropReason::ALL.into_iter().zip(&mut self.pods_dropped) {
            let total = pods.stats.dropped(reason);
            self.pipeline.sinks().dropped(reason.name(), total - *counted);
            *counted = total;
        }
    }

    /// The core says when a subject's sockets need no watching any more; of what is no subject it says nothing, and a cgroup that
    /// stays armed costs every TCP event of the machine a look-up.
    fn sweep(&mut self) {
        let index = self.pipeline.core().index();
        let mut idle = self.kernel.armed();
        idle.retain(|&cgroup| !matches!(index.attribute_cgroup(cgroup), Attribution::Subject(..)));
        self.obey(idle.into_iter().map(Command::Forget).collect());
    }

    /// All that waits, or in a storm as much of it as the time may wait for.
    fn catch_up(&mut self) -> Result<(), RuntimeError> {
        for _ in 0..BATCHES {
            if self.drain()? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// A batch of records; how many.
    fn drain(&mut self) -> Result<usize, RuntimeError> {
        let mut chores = Chores::default();
        let mut result = Ok(());
        let Live {
            kernel,
            procfs,
            pipeline,
            neighbours,
            ..
        } = self;
        let hierarchies = kernel.hierarchies();
        let count = kernel.drain(|bytes| {
            if result.is_ok() {
                result = take(procfs, pipeline, neighbours, bytes, hierarchies, &mut chores);
            }
        });
        result?;
        for cgroup in chores.made {
            watch_cgroup(&mut self.kernel, &mut self.pipeline, cgroup);
        }
        // After the new ones: the kernel forgot it already, and must not have it put back for good.
        for cgroup in chores.gone {
            let mut told = self.kernel.watch(cgroup, 0);
            if cgroup.hierarchy == 0 {
                told = told.and_then(|()| self.kernel.kubelet(cgroup, false));
            }
            not_told(&mut self.pipeline, told);
        }
        self.obey(chores.commands);
        Ok(count)
    }

    /// What the core commands is done in the kernel.
    fn obey(&mut self, commands: Vec<Command>) {
        for command in commands {
            // The probes see no sockets of other hierarchies.
            let told = match command {
                Command::Watch(cgroup) if cgroup.hierarchy == 0 => self.kernel.arm(cgroup),
                Command::Forget(cgroup) if cgroup.hierarchy == 0 => self.kernel.disarm(cgroup),
                Command::Watch(_) | Command::Forget(_) => continue,
            };
            not_told(&mut self.pipeline, told);
        }
    }
}

/// By seccomp, as its profiles answer. Anything else may pass.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

/// Never where there is no Kubernetes.
async fn next(pods: &mut Option<Pods>) -> Option<Input> {
    match pods {
        Some(pods) => pods.inputs.recv().await,
        None => std::future::pending().await,
    }
}

/// What existed before the probes did.
#[tracing::instrument(skip_all)]
fn procfs_facts(live: &mut Live) -> Result<(), RuntimeError> {
    for fact in live.procfs.scan()? {
        let cgroup = match &fact {
            Input::Cgroup(fact) => Some(fact.cgroup),
            _ => None,
        };
        live.pipeline.feed(clock::now(), fact)?;
        if let Some(cgroup) = cgroup {
            watch_cgroup(&mut live.kernel, &mut live.pipeline, cgroup);
        }
    }
    Ok(())
}

/// One record from the ring buffer: decoded, its open questions answered first, handed on.
fn take(
    procfs: &mut Procfs,
    pipeline: &mut Pipeline,
    neighbours: &mut Neighbours,
    bytes: &[u8],
    hierarchies: Hierarchies,
    chores: &mut Chores,
) -> Result<(), RuntimeError> {
    let (at, event) = match decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => {
            tracing::warn!(%error, "a record of the probes was not understood");
            pipeline.sinks().dropped("undecodable", 1);
            // As at a replay: the deaths that it may have touched say so.
            if let Some(lost) = lost_in(bytes, clock::now()) {
                chores.commands.extend(pipeline.feed(clock::now(), lost)?);
            }
            return Ok(());
        }
    };
    match &event {
        Event::CgroupMkdir(mkdir) if hierarchies.has(mkdir.cgroup) => chores.made.push(mkdir.cgroup),
        Event::CgroupRmdir(rmdir) if hierarchies.has(rmdir.cgroup) => chores.gone.push(rmdir.cgroup),
        Event::Hello(hello) => neighbours.hear(clock::now(), hello),
        Event::ProcessExit(exit) => neighbours.ended(&exit.task),
        _ => {}
    }
    let input = Input::Kernel { at, event };
    let now = clock::now();
    for question in pipeline.core().questions(&input) {
        chores.commands.extend(pipeline.feed(now, procfs.answer(&question))?);
    }
    chores.commands.extend(pipeline.feed_record(now, bytes, input)?);
    Ok(())
}

/// Whose exits the kernel keeps: a subject's own and those below it; elsewhere only what is made below.
///
/// The kernel has marked a new cgroup with both bits already (nothing is born unseen); here it loses what it does not need.
fn watch_cgroup(kernel: &mut Kernel, pipeline: &mut Pipeline, cgroup: CgroupId) {
    let bits = match pipeline.core().index().attribute_cgroup(cgroup) {
        Attribution::Subject(..) => bits::SELF | bits::CHILDREN,
        Attribution::Host => bits::CHILDREN,
        Attribution::Unknown(_) => return,
    };
    let mut told = kernel.watch(cgroup, bits);
    // The probes see no sockets of other hierarchies.
    if cgroup.hierarchy == 0 && pipeline.core().is_kubelet(cgroup) {
        told = told.and(kernel.kubelet(cgroup, true));
    }
    not_told(pipeline, told);
}

/// One cgroup that the probes could not be told about (a map is full, no memory) is no reason to stop seeing all the others.
fn not_told(pipeline: &mut Pipeline, told: Result<(), MapError>) {
    if let Err(error) = told {
        tracing::warn!(%error, "the probes could not be told about a cgroup; deaths in it may be missed");
        pipeline.sinks().dropped("probe_map", 1);
    }
}

/// What an undecodable record means to the core, as far as its header says what it was.
fn lost_in(bytes: &[u8], now: Boot) -> Option<Input> {
    let kind = Kind::from_u16(u16::from_le_bytes(*bytes.first_chunk()?))?;
    let at = bytes.get(8..16).and_then(|at| at.first_chunk());
    let since = at.map_or(now, |at| Boot(u64::from_le_bytes(*at)).min(now));
    Some(Input::Lost { kind, since, count: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_policy_silences_us_for_good() {
        let forbidden = [libc::EPERM, libc::ENOSYS, libc::EAGAIN, libc::ENOMEM]
            .map(|code| is_forbidden(&io::Error::from_raw_os_error(code)));
        assert_eq!(forbidden, [true, true, false, false]);
    }

    #[test]
    fn an_undecodable_record_is_a_loss_of_its_kind_from_its_own_time_on() {
        let now = Boot(500);
        let lost = |since| {
            let (kind, since) = (Kind::ProcessExit, Boot(since));
            Some(Input::Lost { kind, since, count: 1 })
        };
        let record = |at: u64| [&[3, 0, 99, 0, 0, 0, 0, 0][..], &at.to_le_bytes(), &[0; 4]].concat();
        assert!(decode(&record(400)).is_err());
        assert_eq!(lost_in(&record(400), now), lost(400));
        assert_eq!(lost_in(&record(900), now), lost(500));
        assert_eq!(lost_in(&[3, 0], now), lost(500));
        assert_eq!(lost_in(&[200, 0, 1, 0], now), None);
        assert_eq!(lost_in(&[], now), None);
    }
}
