//! What the journal costs: the agent with a journal, without one, and no agent at all, while the disk has another user as demanding as
//! an etcd: an append and an fdatasync, one after the other.

use std::collections::VecDeque;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::service::Service;

use crate::agents::cpu_ticks;
use crate::stats::{median, now};
use crate::table::Table;
use crate::target::{RECORDED, Target};

/// A rollout: so many containers are stopped, one after the other, in a minute.
const PODS: u32 = 250;
const MINUTE: Duration = Duration::from_secs(60);
/// Containers at once: the next ones start while the earlier ones ignore their stop signal.
const AT_ONCE: usize = 4;
const IDLE: Duration = Duration::from_secs(20);
/// As etcd's own advice measures a disk with fio: an append of its log.
const APPEND: usize = 2_300;
const PAUSE: Duration = Duration::from_millis(10);
const TO_END: Duration = Duration::from_secs(10);

/// One rollout.
struct Rollout {
    /// Of one append with its fdatasync, ns.
    p50: f64,
    p99: f64,
    seconds: f64,
    /// Of the agent.
    usage: Usage,
}

/// What an agent has used so far, or within a time.
#[derive(Clone, Copy, Default)]
struct Usage {
    cpu_ticks: u64,
    bytes: f64,
    syncs: f64,
    /// As the kernel counts what the process has had written.
    written: u64,
}

impl Usage {
    fn of(agent: &Service) -> anyhow::Result<Usage> {
        let io = fs::read_to_string(format!("/proc/{}/io", agent.pid()))?;
        let written = io
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes: "))
            .context("no write_bytes")?;
        Ok(Usage {
            cpu_ticks: cpu_ticks(agent.pid())?,
            bytes: agent.count("epitaph_journal_written_bytes_total", &[])?,
            syncs: agent.count("epitaph_journal_syncs_total", &[])?,
            written: written.trim().parse()?,
        })
    }

    fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ticks: self.cpu_ticks - before.cpu_ticks,
            bytes: self.bytes - before.bytes,
            syncs: self.syncs - before.syncs,
            written: self.written - before.written,
        }
    }
}

pub fn measure(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: the journal, in three rollouts of {PODS} containers in a minute");
    // On the disk, not in memory: the same for the journal and for the other user.
    let directory = tempfile::tempdir_in("/var/tmp")?;
    let epitaph = Epitaph::copied(epitaph, directory.path())?;
    let journal = format!("journal.directory={}", directory.path().join("journal").display());

    let alone = rollout(directory.path(), None)?;
    let mut agent = Service::start(&epitaph, directory.path(), &[])?;
    let without = rollout(directory.path(), Some(&agent))?;
    agent.end(TO_END)?;

    let mut agent = Service::start(&epitaph, directory.path(), &["--set", &journal])?;
    // The first segment, and what the start itself reports.
    sleep(Duration::from_secs(3));
    let before = Usage::of(&agent)?;
    sleep(IDLE);
    let idle = Usage::of(&agent)?.since(before);
    let with = rollout(directory.path(), Some(&agent))?;
    agent.end(TO_END)?;

    table.fact(
        "the journal, idle: syncs per second",
        format!("{:.2}", idle.syncs / IDLE.as_secs_f64()),
    );
    let usage = with.usage;
    let each = |of: f64| of / f64::from(PODS);
    table.fact(
        "the journal, per termination",
        format!("{:.1} KiB, {:.1} syncs", each(usage.bytes) / 1024.0, each(usage.syncs)),
    );
    table.fact(
        "a rollout of 250 pods in a minute: syncs per second",
        format!("{:.1}", usage.syncs / with.seconds),
    );
    table.fact(
        "the same: written to the disk / to the journal",
        format!("{:.1}x", usage.written as f64 / usage.bytes),
    );
    let share = |rollout: &Rollout| rollout.usage.cpu_ticks as f64 / rollout.seconds;
    table.fact(
        "the same: the agent of a core, with / without a journal",
        format!("{:.2} % / {:.2} %", share(&with), share(&without)),
    );
    let ms = |ns: f64| format!("{:.2} ms", ns / 1e6);
    table.fact(
        "the same: fdatasync of an etcd-like writer, median: with / without a journal / without an agent",
        format!("{} / {} / {}", ms(with.p50), ms(without.p50), ms(alone.p50)),
    );
    table.fact(
        "the same, p99",
        format!("{} / {} / {}", ms(with.p99), ms(without.p99), ms(alone.p99)),
    );
    Ok(())
}

fn rollout(directory: &Path, agent: Option<&Service>) -> anyhow::Result<Rollout> {
    let usage = || agent.map(Usage::of).transpose().map(Option::unwrap_or_default);
    let (before, begin) = (usage()?, now());
    let over = AtomicBool::new(false);
    let (stopped, latencies) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| append_and_sync(&directory.join("log"), &over));
        let stopped = stop_all();
        over.store(true, Ordering::Relaxed);
        (stopped, writer.join())
    });
    stopped?;
    let mut latencies = latencies.map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    latencies.sort_by(f64::total_cmp);
    Ok(Rollout {
        p50: median(&latencies),
        p99: latencies[latencies.len() * 99 / 100],
        seconds: (now() - begin) as f64 / 1e9,
        usage: usage()?.since(before),
    })
}

/// Each gets its stop signal, ignores it, and is killed.
fn stop_all() -> anyhow::Result<()> {
    let begin = now();
    let mut stopping = VecDeque::new();
    for pod in 0..PODS {
        let target = Target::start()?;
        target.signal(RECORDED)?;
        stopping.push_back(target);
        if stopping.len() > AT_ONCE {
            // Dropped: killed.
            stopping.pop_front();
        }
        let due = begin + u64::from(pod + 1) * MINUTE.as_nanos() as u64 / u64::from(PODS);
        sleep(Duration::from_nanos(due.saturating_sub(now())));
    }
    Ok(())
}

/// Nanoseconds of each append with its fdatasync.
fn append_and_sync(file: &Path, over: &AtomicBool) -> anyhow::Result<Vec<f64>> {
    let mut out = File::create(file)?;
    let mut latencies = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let begin = now();
        out.write_all(&[7; APPEND])?;
        out.sync_data()?;
        latencies.push((now() - begin) as f64);
        sleep(PAUSE);
    }
    Ok(latencies)
}
