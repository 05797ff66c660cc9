//! The cost of a kill(2) of an unwatched process, with an empty program at the tracepoint, with ours, and with bpftrace doing the
//! same: timed from outside, for the kernel's own statistics of BPF programs have a floor of 46 ns and cost more than that.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph::source::kernel::{Kernel, Options, Programs};
use epitaph_core::input::ProbeState;
use epitaph_ebpf::{Class, watch};

use crate::agents::Watch;
use crate::stats::{median, median_of_pairs};
use crate::table::Table;
use crate::target::{FILTERED, RECORDED, Target};

pub const PROBE: &str = "signal_generate";
/// Kernel-only rounds: each with nothing, the empty program and ours, in turn.
const ROUNDS: usize = 24;
/// Rounds with a whole agent and a whole bpftrace, which take seconds to start.
const WHOLE_ROUNDS: usize = 6;
pub const BURSTS: usize = 40;
pub const BURST: u32 = 500;
/// The bursts of a round go to so many containers in turn, so that none of them is over its budget, however fast the machine is:
/// a signal beyond the budget is counted and not recorded, which costs less.
pub const TARGETS: usize = 20;
const _: () = assert!(BURSTS.div_ceil(TARGETS) as u32 * BURST <= Class::Signal.budget());
/// For readers to catch up, so that no side is cheap because its buffer is full.
pub const PAUSE: Duration = Duration::from_millis(4);

/// Nanoseconds per kill(2), a median per round.
#[derive(Default)]
struct Costs {
    filtered: Vec<f64>,
    recorded: Vec<f64>,
    /// Of first processes of containers, whose sockets the signal arms.
    first: Vec<f64>,
}

impl Costs {
    fn round(&mut self, targets: &[Target], mut between: impl FnMut()) -> anyhow::Result<()> {
        let (mut filtered, mut recorded) = (Vec::new(), Vec::new());
        for target in targets.iter().cycle().take(BURSTS) {
            filtered.push(target.burst(FILTERED, BURST)?);
            recorded.push(target.burst(RECORDED, BURST)?);
            between();
        }
        self.filtered.push(median(&filtered));
        self.recorded.push(median(&recorded));
        Ok(())
    }

    fn round_of_first(&mut self, containers: &[Target], mut between: impl FnMut()) -> anyhow::Result<()> {
        let mut first = Vec::new();
        for container in containers.iter().cycle().take(BURSTS) {
            first.push(container.burst(RECORDED, BURST)?);
            between();
        }
        self.first.push(median(&first));
        Ok(())
    }
}

pub fn measure(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: kill(2) with nothing, an empty program, and the probes ({ROUNDS} rounds)");
    let start = || (0..TARGETS).map(|_| Target::start()).collect::<anyhow::Result<Vec<_>>>();
    let (targets, containers) = (start()?, start()?);
    let (mut none, mut empty, mut ours) = (Costs::default(), Costs::default(), Costs::default());
    for _ in 0..ROUNDS {
        none.round(&targets, || sleep(PAUSE))?;
        none.round_of_first(&containers, || sleep(PAUSE))?;
        {
            let _kernel = load(PROBE, Programs::Empty)?;
            empty.round(&targets, || sleep(PAUSE))?;
            empty.round_of_first(&containers, || sleep(PAUSE))?;
        }
        let mut kernel = load(PROBE, Programs::All)?;
        for container in &containers {
            let cgroup = container.cgroup()?;
            kernel.watch(cgroup, watch::SELF, Some(cgroup))?;
        }
        // Drained in between: what is timed is the probe, not its reader.
        let mut drained = || {
            while kernel.drain(|_| {}) > 0 {}
            sleep(PAUSE);
        };
        ours.round(&targets, &mut drained)?;
        ours.round_of_first(&containers, drained)?;
        ensure!(
            kernel.lost().is_empty(),
            "records were lost while the probes were timed: the ring buffer filled up"
        );
    }
    let over = |costs: &[f64], none: &[f64]| median_of_pairs(costs, none, |with, without| with - without);
    let nanos = |ns: f64| format!("{ns:.0} ns");

    table.fact("kill(2) of an ignored signal, not watched", nanos(median(&none.recorded)));
    let floors = [
        over(&empty.filtered, &none.filtered),
        over(&empty.recorded, &none.recorded),
        over(&empty.first, &none.first),
    ];
    let floor = median(&floors);
    table.fact("an empty program at the tracepoint adds", nanos(floor));
    let filtered = over(&ours.filtered, &none.filtered);
    table.fact("ours, a signal that the filter drops, adds", nanos(filtered));
    let recorded = over(&ours.recorded, &none.recorded);
    table.fact("ours, a recorded stop signal, adds", nanos(recorded));
    let first = over(&ours.first, &none.first);
    table.fact("the same to a container's first process adds", nanos(first));
    let mut ratio = |what: &str, goal: f64, ratio: f64| {
        table.goal(what, &format!("<= {goal}x"), format!("{ratio:.2}x"), ratio <= goal);
    };
    ratio("a dropped signal: ours / empty", 1.2, filtered / floor);
    ratio("a recorded signal: ours / empty", 5.0, recorded / floor);
    ratio(
        "a recorded signal to a container's first process: ours / empty",
        5.0,
        first / floor,
    );

    whole(epitaph, &targets, table)
}

/// With `probe` active.
pub fn load(probe: &str, programs: Programs) -> anyhow::Result<Kernel> {
    let options = Options {
        programs,
        ..Options::default()
    };
    let kernel = Kernel::load(&options)?;
    for (name, state) in kernel.probes() {
        if *name == probe && *state != ProbeState::Active {
            bail!("the probe {name} is {state:?}: there is nothing to measure");
        }
    }
    Ok(kernel)
}

/// The agent as a process, with its reader, compared with bpftrace and its reader.
fn whole(epitaph: &Path, targets: &[Target], table: &mut Table) -> anyhow::Result<()> {
    const FILTERED_GOAL: &str = "a dropped signal: agent / bpftrace";
    const RECORDED_GOAL: &str = "a recorded signal: agent / bpftrace";
    eprintln!("bench: kill(2) with the agent and with bpftrace ({WHOLE_ROUNDS} rounds)");
    let (mut none, mut agent, mut trace) = (Costs::default(), Costs::default(), Costs::default());
    let mut written = 0;
    let mut no_bpftrace = None;
    for _ in 0..WHOLE_ROUNDS {
        none.round(targets, || sleep(PAUSE))?;
        {
            let _watch = Watch::start(epitaph)?;
            agent.round(targets, || sleep(PAUSE))?;
        }
        if no_bpftrace.is_none() {
            match Bpftrace::start(targets) {
                Ok(bpftrace) => {
                    trace.round(targets, || sleep(PAUSE))?;
                    written += bpftrace.end()?;
                }
                Err(error) => no_bpftrace = Some(format!("{error:#}")),
            }
        }
    }
    let over = |costs: &[f64], none: &[f64]| median_of_pairs(costs, none, |with, without| with - without);
    let nanos = |ns: f64| format!("{ns:.0} ns");
    let (filtered, recorded) = (over(&agent.filtered, &none.filtered), over(&agent.recorded, &none.recorded));
    table.fact("the whole agent running: a dropped signal adds", nanos(filtered));
    table.fact("the whole agent running: a recorded one adds", nanos(recorded));
    if let Some(reason) = no_bpftrace {
        table.skip(FILTERED_GOAL, "<= 0.5x", &reason);
        table.skip(RECORDED_GOAL, "<= 0.5x", &reason);
        return Ok(());
    }
    let (filtered_trace, recorded_trace) = (over(&trace.filtered, &none.filtered), over(&trace.recorded, &none.recorded));
    table.fact("bpftrace running: a dropped signal adds", nanos(filtered_trace));
    table.fact("bpftrace running: a recorded one adds", nanos(recorded_trace));
    for (what, ratio) in [
        (FILTERED_GOAL, filtered / filtered_trace),
        (RECORDED_GOAL, recorded / recorded_trace),
    ] {
        table.goal(what, "<= 0.5x", format!("{ratio:.2}x"), ratio <= 0.5);
    }
    let sent = WHOLE_ROUNDS * BURSTS * BURST as usize;
    table.note(format!(
        "bpftrace reads fewer fields than the agent (its tracepoint gives the target's pid and comm only) and wrote {written} \
         of {sent} signals."
    ));
    Ok(())
}

/// The same filter; of the same fields, those that it can reach: the sender's, and of the target its pid and comm.
const SCRIPT: &str = r#"
tracepoint:signal:signal_generate / args->sig != 14 && args->sig != 17 && args->sig != 20 && args->sig != 21 &&
    args->sig != 22 && args->sig != 23 && args->sig != 26 && args->sig != 27 && args->sig != 29 && args->sig != 32 &&
    args->sig != 33 /
{
    $s = curtask;
    printf("S %llu %d %d %d %d %llu %llu %s %s %d %d %s %d %d %d %d\n", nsecs, $s->tgid, $s->pid, $s->real_parent->tgid,
        $s->group_leader->thread_pid->level, $s->cgroups->dfl_cgrp->kn->id, $s->group_leader->start_boottime, comm,
        $s->real_parent->group_leader->comm, $s->real_parent->real_parent->tgid,
        args->pid, args->comm, args->sig, args->code, args->group, args->result);
}
"#;

struct Bpftrace {
    child: Child,
    dir: tempfile::TempDir,
}

impl Bpftrace {
    /// In a mount namespace of its own, where tracefs is mounted: it finds tracepoints by no other way.
    fn start(targets: &[Target]) -> anyhow::Result<Bpftrace> {
        const MOUNT: &str = "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing || exit 1
            exec bpftrace \"$1\"";
        let dir = tempfile::tempdir()?;
        let script = dir.path().join("same.bt");
        fs::write(&script, SCRIPT)?;
        let out = File::create(dir.path().join("out"))?;
        let child = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", MOUNT, "sh"])
            .arg(&script)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .context("start bpftrace in a mount namespace: unshare(1) of util-linux")?;
        let mut bpftrace = Bpftrace { child, dir };
        for target in targets.iter().cycle().take(200) {
            target.signal(RECORDED)?;
            sleep(Duration::from_millis(50));
            if bpftrace.lines()? > 0 {
                return Ok(bpftrace);
            }
            if let Some(status) = bpftrace.child.try_wait()? {
                bail!("bpftrace ended ({status}): {}", bpftrace.messages()?.trim());
            }
        }
        bail!("bpftrace saw no signal within 10 s: {}", bpftrace.messages()?.trim())
    }

    fn messages(&self) -> anyhow::Result<String> {
        let bytes = fs::read(self.dir.path().join("out"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn lines(&self) -> anyhow::Result<usize> {
        Ok(self.messages()?.lines().filter(|line| line.starts_with("S ")).count())
    }

    /// Lines that it wrote.
    fn end(mut self) -> anyhow::Result<usize> {
        sleep(Duration::from_millis(300));
        let _ = epitaph_tests::sys::kill(self.child.id().cast_signed(), nix::libc::SIGINT);
        self.child.wait()?;
        self.lines()
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
