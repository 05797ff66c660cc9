//! The core's speed: wire bytes in, decoded, attributed, correlated, judged; on one core, no I/O.

mod machine;

use std::hint::black_box;
use std::time::Duration;

use anyhow::{bail, ensure};
use epitaph::runtime::{Evidence, Taken};
use epitaph_core::attribute::Question;
use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::decode;
use epitaph_core::input::{CgroupFact, CgroupMode, Input, Observation, ProbeState};
use epitaph_core::report::{Answers, Report};
use epitaph_core::time::{Boot, WallOffset};

use crate::stats::{median, median_of_pairs, now};
use crate::table::Table;
use machine::Machine;

pub const FEW: usize = 10;
const MANY: usize = 10_000;
const MOST: usize = 100_000;
/// On one host, at the same time.
const DENSE: [usize; 2] = [500, 2_000];
/// Ticks until a termination is judged, at most.
const SETTLED: usize = 100;
const UNKNOWN: &str = "unknown";
const BLOCKS: usize = 30;
/// Records of a block.
const BLOCK: usize = 50_000;
const TRACEPOINTS: [&str; 11] = [
    "cgroup_mkdir",
    "cgroup_rmdir",
    "sched_process_exit",
    "sched_process_exec",
    "mark_victim",
    "signal_deliver",
    "signal_generate",
    "inet_sock_set_state",
    "tcp_send_reset",
    "tcp_receive_reset",
    "inet_sk_error_report",
];
/// The default is for a node: ten thousand containers do not fit.
const MEMORY: usize = 256 << 20;
/// For [`MOST`].
const MEMORY_OF_MOST: usize = 2 << 30;
/// As the runtime passes the time to the core.
const TICK: Duration = Duration::from_millis(200);

pub fn measure(table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: the core, with {FEW}, {MANY} and {MOST} live subjects ({BLOCKS} blocks of {BLOCK} records each)");
    let mut cores = [
        Core::new(FEW, None)?,
        Core::new(MANY, None)?,
        Core::with(MOST, MEMORY_OF_MOST, None)?,
    ];
    // The first blocks grow what grows once.
    for core in &mut cores {
        core.block()?;
        core.block()?;
    }
    let mut ns = [const { Vec::new() }; 3];
    for _ in 0..BLOCKS {
        for (core, ns) in cores.iter_mut().zip(&mut ns) {
            ns.push(core.block()?);
        }
    }
    for ((live, goal), ns) in [(FEW, 6.0), (MANY, 1.0)].into_iter().zip(&ns) {
        let rate = 1e3 / median(ns);
        table.goal(
            &format!("decode + attribute + correlate, {live} live subjects"),
            &format!(">= {goal} M/s"),
            format!("{rate:.2} M/s"),
            rate >= goal,
        );
    }
    for ((live, goal), more) in [(MANY, 1.3), (MOST, 2.0)].into_iter().zip(&ns[1..]) {
        let ratio = median_of_pairs(more, &ns[0], |more, few| more / few);
        let what = format!("time per record, {live} live subjects / {FEW}");
        table.goal(&what, &format!("<= {goal}x"), format!("{ratio:.2}x"), ratio <= goal);
    }
    let sum = |of: fn(&Core) -> u64| cores.iter().map(of).sum::<u64>();
    table.note(format!(
        "The core judged {} terminations of {} while it was timed, and dropped {} facts.",
        sum(|core| core.counts.judged),
        sum(|core| core.machine.terminations),
        sum(|core| core.counts.dropped)
    ));
    cores.into_iter().try_for_each(Core::end)
}

pub fn measure_density(table: &mut Table) -> anyhow::Result<()> {
    DENSE.into_iter().try_for_each(|live| density(live, table))
}

/// So many containers end within the same second, with the memory that the agent has by default.
fn density(live: usize, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: {live} containers that end within one second");
    let memory = Limits::default().memory;
    let mut core = Core::with(live, memory, None)?;
    core.end_all()?;
    let mut roomy = Core::with(live, MEMORY, None)?;
    roomy.end_all()?;
    core.close();
    let most = roomy.most;
    let Counts {
        judged,
        unknown,
        dropped,
    } = core.counts;
    let without = core.machine.terminations - judged;
    table.goal(
        &format!("{live} containers end within one second: without verdict; unknown; facts dropped"),
        "0; 0; 0",
        format!("{without}; {unknown}; {dropped}"),
        without + unknown + dropped == 0,
    );
    table.note(format!(
        "With room, the core keeps {:.1} MiB of {live} containers that end within one second, {:.1} KiB of each; it may keep {} MiB.",
        most as f64 / f64::from(1 << 20),
        most as f64 / 1024.0 / live as f64,
        memory >> 20
    ));
    roomy.end()
}

pub struct Core {
    machine: Machine,
    correlator: Correlator,
    /// To a journal.
    evidence: Option<Evidence>,
    tick: Boot,
    counts: Counts,
    /// It has the memory of an agent, which may forget a cgroup.
    is_full: bool,
    /// The most bytes that the core kept.
    most: usize,
}

/// Of the core's reports.
#[derive(Default)]
struct Counts {
    judged: u64,
    unknown: u64,
    dropped: u64,
}

impl Core {
    pub fn new(live: usize, evidence: Option<Evidence>) -> anyhow::Result<Core> {
        Core::with(live, MEMORY, evidence)
    }

    fn with(live: usize, memory: usize, evidence: Option<Evidence>) -> anyhow::Result<Core> {
        let mut core = Core {
            evidence,
            machine: Machine::new(live),
            correlator: Correlator::new(Limits {
                memory,
                // Above the default, for MOST.
                subjects: 2 * MOST,
                index_live: 2 * MOST,
                ..Limits::default()
            }),
            tick: Boot(0),
            counts: Counts::default(),
            is_full: memory < MEMORY,
            most: 0,
        };
        let since = core.machine.now();
        core.correlator.handle(since, Input::Start(observation(since)));
        for name in TRACEPOINTS {
            let (name, state) = (name.to_owned(), ProbeState::Active);
            core.correlator.handle(since, Input::Probe { name, state });
        }
        core.machine.boot();
        core.run()?;
        let (known, _) = core.correlator.sizes();
        ensure!(known >= live, "the core knows {known} of {live} subjects");
        Ok(core)
    }

    /// Nanoseconds per record of another block.
    pub fn block(&mut self) -> anyhow::Result<f64> {
        self.machine.play(BLOCK);
        self.run()
    }

    /// All containers end, and their terminations settle.
    fn end_all(&mut self) -> anyhow::Result<()> {
        self.machine.end_all();
        self.run()?;
        for _ in 0..SETTLED {
            self.tick = self.tick.plus(TICK);
            let answers = self.correlator.handle(self.tick, Input::Tick);
            self.counts.add(&answers);
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<f64> {
        let begin = now();
        let mut count = 0_u32;
        for record in self.machine.records() {
            let (at, event) = decode(record)?;
            if at.since(self.tick) >= TICK {
                self.tick = at;
                self.most = self.most.max(self.correlator.memory());
                let answers = self.correlator.handle(at, Input::Tick);
                if let Some(evidence) = &mut self.evidence {
                    let noted = evidence.before(&self.correlator, &Input::Tick);
                    evidence.after(&self.correlator, at, noted, Some(&Input::Tick), Taken::of(&answers));
                    evidence.tick(&self.correlator, at);
                }
                self.counts.add(&answers);
            }
            let input = Input::Kernel { at, event };
            let questions = self.correlator.questions(&input);
            for question in &questions {
                match question {
                    // Its index is full: the agent looks the name up.
                    Question::Cgroup(cgroup) if self.is_full => {
                        let fact = CgroupFact::of(*cgroup, Ok(Machine::path(cgroup.id)));
                        let answers = self.correlator.handle(at, Input::Cgroup(fact));
                        self.counts.add(&answers);
                    }
                    _ => bail!("the core asks {question:?} of a machine that reported everything"),
                }
            }
            let noted = (self.evidence.as_mut()).map(|evidence| evidence.before(&self.correlator, &input));
            let answers = self.correlator.handle(at, input);
            if let (Some(evidence), Some(noted)) = (&mut self.evidence, noted) {
                evidence.after_record(&self.correlator, at, noted, record, Taken::of(&answers));
            }
            self.counts.add(&answers);
            black_box(&answers);
            count += 1;
        }
        Ok((now() - begin) as f64 / f64::from(count))
    }

    fn close(&mut self) {
        let answers = self.correlator.handle(self.machine.now().max(self.tick), Input::End);
        self.counts.add(&answers);
    }

    /// Proves that the work was real: every termination was judged.
    fn end(mut self) -> anyhow::Result<()> {
        self.close();
        let (judged, terminations) = (self.counts.judged, self.machine.terminations);
        ensure!(
            judged == terminations,
            "the core judged {judged} terminations of {terminations}"
        );
        Ok(())
    }
}

pub fn observation(since: Boot) -> Observation {
    Observation {
        boot_id: "5a3c2f0e-0000-4000-8000-000000000001".to_owned(),
        host: "bench".to_owned(),
        kernel: "6.18.0".to_owned(),
        wall_offset: WallOffset(1_700_000_000_000_000_000),
        since,
        cgroups: CgroupMode::V2,
        nodes_in_containers: false,
        ticks_per_second: None,
        observes_followed: true,
    }
}

impl Counts {
    fn add(&mut self, answers: &Answers) {
        for report in &answers.reports {
            match report {
                Report::Terminated(termination) => {
                    self.judged += 1;
                    self.unknown += u64::from(termination.verdict.headline == UNKNOWN);
                }
                Report::Dropped { count, .. } => self.dropped += count,
                _ => {}
            }
        }
    }
}
