//! What the journal costs: the agent with a journal, without one, and no agent at all, while an etcd with the same disk makes one change
//! safe after the other; and the event path with and without a journal.

mod etcd;

use std::collections::VecDeque;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use epitaph::clock;
use epitaph::journal::{self, JournalDropReason, Options};
use epitaph::runtime::Evidence;
use epitaph_tests::cluster::Tools;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::service::Service;

use crate::agents::cpu_ticks;
use crate::pure::{Core, FEW, observation};
use crate::stats::{median, median_of_pairs, now};
use crate::table::Table;
use crate::target::{RECORDED, Target};
use etcd::{Etcd, Fsyncs};

/// A rollout: so many containers are stopped, one after the other, in a minute; in parts, so that what drifts, drifts for all.
const PODS: u32 = 252;
const MINUTE: Duration = Duration::from_secs(60);
const PARTS: u32 = 3;
/// Containers at once: the next ones start while the earlier ones ignore their stop signal.
const AT_ONCE: usize = 4;
const IDLE: Duration = Duration::from_secs(20);
/// The first segment, and what the start itself reports.
const TO_SETTLE: Duration = Duration::from_secs(3);
/// As etcd's own advice measures a disk with fio: an append of its log.
const APPEND: usize = 2_300;
const PAUSE: Duration = Duration::from_millis(10);
const TO_END: Duration = Duration::from_secs(10);
/// Pairs of blocks on the event path, and records that are handed over one by one.
const BLOCKS: usize = 15;
const RECORDS: usize = 20_000;

/// The other user of the disk: makes one change after the other safe.
enum Other {
    Etcd(Etcd),
    /// Where there is no etcd: an append and an fdatasync.
    Log(File),
}

impl Other {
    fn change(&mut self) -> anyhow::Result<()> {
        match self {
            Other::Etcd(etcd) => etcd.put(&[7; APPEND]),
            Other::Log(file) => {
                file.write_all(&[7; APPEND])?;
                Ok(file.sync_data()?)
            }
        }
    }

    /// Nanoseconds of each change.
    fn until(&mut self, over: &AtomicBool) -> anyhow::Result<Vec<f64>> {
        let mut latencies = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let begin = now();
            self.change()?;
            latencies.push((now() - begin) as f64);
            sleep(PAUSE);
        }
        Ok(latencies)
    }

    fn fsyncs(&self) -> anyhow::Result<Option<Fsyncs>> {
        match self {
            Other::Etcd(etcd) => etcd.fsyncs().map(Some),
            Other::Log(_) => Ok(None),
        }
    }
}

/// All parts of a rollout, with a journal, without, or without an agent.
#[derive(Default)]
struct Rollout {
    /// Of the other user's changes, ns.
    latencies: Vec<f64>,
    fsyncs: Option<Fsyncs>,
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

    fn plus(self, more: Usage) -> Usage {
        Usage {
            cpu_ticks: self.cpu_ticks + more.cpu_ticks,
            bytes: self.bytes + more.bytes,
            syncs: self.syncs + more.syncs,
            written: self.written + more.written,
        }
    }
}

pub fn measure(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    // On the disk, not in memory: the same for the journal and for the other user.
    let directory = tempfile::tempdir_in("/var/tmp")?;
    event_path(directory.path(), table)?;

    eprintln!("bench: the journal, in three rollouts of {PODS} containers in a minute");
    let epitaph = Epitaph::copied(epitaph, directory.path())?;
    let journal = format!("journal.directory={}", directory.path().join("journal").display());
    let with_journal = ["--set", journal.as_str()];
    let mut other = match Tools::named()? {
        Some(tools) => Other::Etcd(Etcd::start(&tools, directory.path())?),
        None => Other::Log(File::create(directory.path().join("log"))?),
    };
    let (mut alone, mut without, mut with) = (Rollout::default(), Rollout::default(), Rollout::default());
    let mut idle = Usage::default();
    for part in 0..PARTS {
        alone.part(&mut other, None)?;
        for (args, rollout) in [(&[][..], &mut without), (&with_journal[..], &mut with)] {
            let mut agent = Service::start(&epitaph, directory.path(), args)?;
            sleep(TO_SETTLE);
            if part == 0 && !args.is_empty() {
                let before = Usage::of(&agent)?;
                sleep(IDLE);
                idle = Usage::of(&agent)?.since(before);
            }
            rollout.part(&mut other, Some(&agent))?;
            agent.end(TO_END)?;
        }
    }
    costs(table, idle, &with, &without);
    disk(table, &other, [&with, &without, &alone]);
    Ok(())
}

fn costs(table: &mut Table, idle: Usage, with: &Rollout, without: &Rollout) {
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
        "the same: the agent, of a core, with / without a journal",
        format!("{:.2} % / {:.2} %", share(with), share(without)),
    );
}

/// What the other user of the disk sees.
fn disk(table: &mut Table, other: &Other, rollouts: [&Rollout; 3]) {
    let ms = |ns: f64| format!("{:.2} ms", ns / 1e6);
    let who = match other {
        Other::Etcd(_) => "a put to an etcd",
        Other::Log(_) => "an append and fdatasync as etcd's",
    };
    let mut of = |what: &str, value: &dyn Fn(&Rollout) -> String| {
        let [with, without, alone] = rollouts.map(value);
        let what = format!("{what}: with / without a journal / without an agent");
        table.fact(&what, format!("{with} / {without} / {alone}"));
    };
    of(&format!("the same: {who} on the same disk, median"), &|rollout| {
        ms(median(&rollout.latencies))
    });
    of("the same, p99", &|rollout| ms(percentile(&rollout.latencies, 99)));
    if let Other::Etcd(_) = other {
        of("the same: fsync of that etcd's log, p99 by its histogram", &|rollout| {
            rollout
                .fsyncs
                .as_ref()
                .map_or_else(String::new, |fsyncs| ms(fsyncs.quantile(0.99)))
        });
    }
}

fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

impl Rollout {
    /// Plays one part of the rollout.
    fn part(&mut self, other: &mut Other, agent: Option<&Service>) -> anyhow::Result<()> {
        let usage = || agent.map(Usage::of).transpose().map(Option::unwrap_or_default);
        let (before, fsyncs, begin) = (usage()?, other.fsyncs()?, now());
        let over = AtomicBool::new(false);
        let (stopped, latencies) = std::thread::scope(|scope| {
            let changes = scope.spawn(|| other.until(&over));
            let stopped = stop_all(PODS / PARTS);
            over.store(true, Ordering::Relaxed);
            (stopped, changes.join())
        });
        stopped?;
        let latencies = latencies.map_err(|_| anyhow::anyhow!("the other user of the disk panicked"))??;
        self.latencies.extend(latencies);
        self.seconds += (now() - begin) as f64 / 1e9;
        self.usage = self.usage.plus(usage()?.since(before));
        if let (Some(before), Some(after)) = (fsyncs, other.fsyncs()?) {
            self.fsyncs.get_or_insert_default().add(&after, &before);
        }
        Ok(())
    }
}

/// Each gets its stop signal, ignores it, and is killed.
fn stop_all(pods: u32) -> anyhow::Result<()> {
    let begin = now();
    let mut stopping = VecDeque::new();
    for pod in 0..pods {
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

/// The loop's part of the journal: which records are evidence, and the copy of a frame into a buffer.
fn event_path(directory: &Path, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: the event path with and without a journal");
    let options = Options {
        directory: directory.join("event-path"),
        group: None,
        max_bytes: 64 << 20,
        pid: std::process::id(),
    };
    let opened = journal::open(&options, &observation(clock::now()), &|| false)?;
    let stats = opened.journal.stats();
    let mut with = Core::new(FEW, Some(Evidence::new(opened.journal.clone())))?;
    let mut without = Core::new(FEW, None)?;
    for core in [&mut with, &mut without] {
        core.block()?;
        core.block()?;
    }
    let (mut with_ns, mut without_ns) = (Vec::new(), Vec::new());
    let kept = stats.frames();
    for _ in 0..BLOCKS {
        with_ns.push(with.block()?);
        without_ns.push(without.block()?);
    }
    let ratio = median_of_pairs(&with_ns, &without_ns, |with, without| with / without);
    table.fact(
        "time per record on the event path, with / without a journal",
        format!("{ratio:.2}x"),
    );
    table.note(format!(
        "On the event path {} frames of {BLOCKS} blocks were evidence, and {} were dropped.",
        stats.frames() - kept,
        JournalDropReason::ALL.map(|reason| stats.dropped(reason)).iter().sum::<u64>(),
    ));

    // Slowly enough for many syncs in between, none of which the loop may wait for.
    opened.journal.in_progress(true);
    let (record, syncs) = ([7; 200], stats.syncs());
    let mut handed = Vec::with_capacity(RECORDS);
    for n in 0..RECORDS {
        let begin = now();
        opened.journal.record(clock::now(), &record);
        handed.push((now() - begin) as f64);
        if n % 10 == 0 {
            sleep(Duration::from_millis(1));
        }
    }
    let syncs = stats.syncs() - syncs;
    let longest = handed.iter().copied().fold(0.0, f64::max);
    table.fact(
        "a record handed to the journal: median / p99 / longest",
        format!(
            "{:.2} us / {:.2} us / {:.2} ms, during {syncs} syncs",
            median(&handed) / 1e3,
            percentile(&handed, 99) / 1e3,
            longest / 1e6
        ),
    );
    opened.thread.close(TO_END);
    Ok(())
}
