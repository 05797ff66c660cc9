//! One machine, observed live: the probes and `/proc` in, the pipeline out.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::attribute::Attribution;
use crate::clock;
use crate::decode::decode;
use crate::event::{Boot, CgroupId, Event, Input, WallOffset};
use crate::source::kernel::{Kernel, watch as bits};
use crate::source::procfs::Procfs;

use super::RuntimeError;
use super::pipeline::Pipeline;

/// How often the core is told the time and the loss counters are read: well under the core's linger, so that a loss is
/// known before the death that it touches is judged.
const TICK: Duration = Duration::from_millis(200);

/// A step of the wall clock smaller than this is not worth an input.
const CLOCK_STEP: Duration = Duration::from_millis(1);

pub struct Live {
    kernel: Kernel,
    procfs: Procfs,
    pipeline: Pipeline,
    wall_offset: WallOffset,
    /// When the loss counters were last read.
    losses_read: Boot,
}

impl Live {
    /// Starts observing: what happens from now on waits in the ring buffer while `/proc` is scanned.
    pub fn start(mut kernel: Kernel, procfs: Procfs, mut pipeline: Pipeline) -> Result<Live, RuntimeError> {
        let since = clock::now();
        let observation = procfs.observation(since, clock::wall_offset())?;
        let wall_offset = observation.wall_offset;
        pipeline.feed(since, Input::Start(observation))?;
        for (name, state) in kernel.probes() {
            pipeline.feed(since, Input::Probe { name, state })?;
        }
        for fact in procfs.scan()? {
            let cgroup = match &fact {
                Input::Cgroup(fact) => Some(fact.cgroup),
                _ => None,
            };
            pipeline.feed(since, fact)?;
            if let Some(cgroup) = cgroup {
                watch(&mut kernel, &pipeline, cgroup)?;
            }
        }
        Ok(Live { kernel, procfs, pipeline, wall_offset, losses_read: since })
    }

    /// Runs until `stop` says so, then finishes what can be finished and answers the pipeline.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), RuntimeError> {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                ready = self.kernel.readable() => {
                    ready?;
                    self.drain()?;
                }
                _ = ticks.tick() => self.tick()?,
            }
        }
        self.drain()?;
        self.tick()?;
        let now = clock::now();
        self.pipeline.feed(now, Input::End)?;
        self.pipeline.flush()?;
        Ok(())
    }

    fn tick(&mut self) -> Result<(), RuntimeError> {
        // Records first: a loss counted now may touch what is still in the ring buffer.
        self.drain()?;
        let now = clock::now();
        let since = std::mem::replace(&mut self.losses_read, now);
        for (kind, count) in self.kernel.lost()? {
            self.pipeline.feed(now, Input::Lost { kind, since, count })?;
        }
        let offset = clock::wall_offset();
        if offset.0.abs_diff(self.wall_offset.0) > CLOCK_STEP.as_nanos() as u64 {
            self.wall_offset = offset;
            self.pipeline.feed(now, Input::Clock(offset))?;
        }
        let over = self.pipeline.handle(now, Input::Tick);
        self.pipeline.sinks().loop_alive(now);
        self.forget(over)
    }

    fn drain(&mut self) -> Result<(), RuntimeError> {
        let mut over = Vec::new();
        let mut made = Vec::new();
        let mut result = Ok(());
        let Live { kernel, procfs, pipeline, .. } = self;
        kernel.drain(|bytes| {
            if result.is_ok() {
                result = take(procfs, pipeline, bytes, &mut over, &mut made);
            }
        });
        result?;
        for cgroup in made {
            watch(&mut self.kernel, &self.pipeline, cgroup)?;
        }
        self.forget(over)
    }

    fn forget(&mut self, over: Vec<CgroupId>) -> Result<(), RuntimeError> {
        for cgroup in over {
            self.kernel.disarm(cgroup)?;
        }
        Ok(())
    }
}

/// One record from the ring buffer: decoded, its open questions answered first, handed on.
fn take(
    procfs: &Procfs,
    pipeline: &mut Pipeline,
    bytes: &[u8],
    over: &mut Vec<CgroupId>,
    made: &mut Vec<CgroupId>,
) -> Result<(), RuntimeError> {
    let (at, event) = match decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => {
            tracing::warn!(%error, "kernel record not understood");
            pipeline.sinks().dropped(error.reason(), 1);
            return Ok(());
        }
    };
    if let Event::CgroupMkdir(mkdir) = &event {
        made.push(mkdir.cgroup);
    }
    let input = Input::Kernel { at, event };
    let now = clock::now();
    for question in pipeline.core().questions(&input) {
        over.extend(pipeline.feed(now, procfs.answer(&question))?);
    }
    over.extend(pipeline.feed_record(now, bytes, input)?);
    Ok(())
}

/// Whose exits the kernel keeps: a subject's own and its children's; elsewhere only what is made below.
///
/// The kernel has marked a new cgroup with both bits already (nothing is born unseen); here it loses what it does not need.
fn watch(kernel: &mut Kernel, pipeline: &Pipeline, cgroup: CgroupId) -> Result<(), RuntimeError> {
    if cgroup.hierarchy != 0 {
        return Ok(());
    }
    let bits = match pipeline.core().attribution(cgroup) {
        Attribution::Subject(..) => bits::SELF | bits::CHILDREN,
        Attribution::Host => bits::CHILDREN,
        Attribution::Unknown(_) => return Ok(()),
    };
    kernel.watch(cgroup, bits)?;
    Ok(())
}
