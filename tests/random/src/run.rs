//! The command: many histories side by side under one agent, their score, and the smallest form of what fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::agents::Agents;
use crate::history::History;
use crate::known::{self, KNOWN};
use crate::play::{Played, Stage};
use crate::port::Port;
use crate::score::{Class, Finding, score};
use crate::sys::boot_now;
use crate::watch::Watch;
use crate::{draw, shrink};

/// How many histories run at the same time: most of the time they wait.
const AT_ONCE: usize = 40;
/// The same while agents start again and again.
const AT_ONCE_UNDER_KILLED: usize = 12;
/// A report comes at the latest so long after the container is gone, on a loaded machine.
const REPORT: Duration = Duration::from_secs(120);
/// So many failing histories of a run are shrunk, each of another kind.
const SHRUNK: usize = 4;

const USAGE: &str = "usage: random-histories --epitaph PROGRAM [N] [--seed S] [--history JSON] [--self-test] [--kill-agents] [--starve] [--no-shrink] [--verbose]";

/// What a person asked for.
struct Options {
    epitaph: PathBuf,
    count: u64,
    seed: u64,
    history: Option<History>,
    self_test: bool,
    kill_agents: bool,
    starve: bool,
    shrinks: bool,
    verbose: bool,
}

/// One history with its judgement.
#[derive(Clone, Debug)]
struct Judged {
    /// None: it was not drawn.
    seed: Option<u64>,
    played: Played,
    reports: Vec<Value>,
}

/// Entry point of the command.
pub fn main(args: &[String]) -> ExitCode {
    match options(args).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("random-histories: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        epitaph: PathBuf::new(),
        count: 200,
        seed: boot_now() % 1_000_000,
        history: None,
        self_test: false,
        kill_agents: false,
        starve: false,
        shrinks: true,
        verbose: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} without a value"));
        match arg.as_str() {
            "--epitaph" => options.epitaph = value()?.into(),
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--history" => options.history = Some(serde_json::from_str(value()?).context("--history")?),
            "--kill-agents" => options.kill_agents = true,
            "--starve" => options.starve = true,
            "--self-test" => options.self_test = true,
            "--no-shrink" => options.shrinks = false,
            "--verbose" => options.verbose = true,
            count => {
                options.count = count
                    .parse()
                    .with_context(|| format!("unexpected argument `{count}`; {USAGE}"))?
            }
        }
    }
    if !options.epitaph.is_file() {
        bail!(USAGE);
    }
    Ok(options)
}

/// Whether all was played, and nothing was found but what is known.
fn run(options: &Options) -> Result<bool> {
    println!("seed {}", options.seed);
    let drawn: Vec<(Option<u64>, History)> = match &options.history {
        Some(history) => vec![(None, history.clone()); usize::try_from(options.count.min(10))?],
        None => (0..options.count)
            .map(|index| options.seed.wrapping_add(index))
            .map(|seed| (Some(seed), draw::here(seed)))
            .collect(),
    };
    if options.kill_agents {
        return under_killed_agents(options, &drawn);
    }
    let mut watch = Watch::start(&options.epitaph)?;
    let stage = Stage::new()?;
    let over = AtomicBool::new(!options.starve);
    let judged = std::thread::scope(|scope| {
        scope.spawn(|| watch.starve(options.seed, &over));
        let judged = under_one_agent(&stage, &watch, &drawn);
        over.store(true, Ordering::Relaxed);
        judged
    })?;
    if options.verbose {
        print_all(&judged)?;
    }
    let is_good = if options.self_test {
        self_test(&judged)?
    } else {
        let (failing, broken) = print(&judged, score);
        if options.shrinks {
            for (class, history) in failing.iter().take(SHRUNK) {
                print_shrunk(&stage, &watch, *class, history)?;
            }
        }
        failing.is_empty() && broken == 0
    };
    let odd = watch.odd();
    watch.end()?;
    for line in odd {
        println!("the agent: {line}");
    }
    Ok(is_good)
}

/// What no agent saw as a whole may be missing.
fn under_killed_agents(options: &Options, drawn: &[(Option<u64>, History)]) -> Result<bool> {
    let stage = Stage::new()?;
    let agents = Agents::start(&options.epitaph, stage.directory(), options.seed)?;
    let mut judged = play_all(&stage, drawn, AT_ONCE_UNDER_KILLED, |_| Vec::new())?;
    let (mut reports, runs) = agents.end()?;
    for one in &mut judged {
        one.reports = reports.remove(&one.played.container).unwrap_or_default();
    }
    if options.verbose {
        print_all(&judged)?;
    }
    let (mut seen, mut missing) = (0, 0);
    for one in &judged {
        let truth = &one.played.truth;
        seen += usize::from(runs.saw(truth.started, truth.ended));
        missing += usize::from(one.reports.is_empty());
    }
    println!(
        "{} agents; {seen} histories seen by one, {missing} not reported",
        runs.count()
    );
    let (failing, broken) = print(&judged, |played, reports| {
        let mut findings = score(played, reports);
        let is_excused = !runs.saw(played.truth.started, played.truth.ended);
        findings.retain(|finding| !(finding.class == Class::Missing && is_excused));
        findings
    });
    Ok(failing.is_empty() && broken == 0)
}

fn print_all(judged: &[Judged]) -> Result<()> {
    for one in judged {
        println!("{}\n  {:?}", serde_json::to_string(&one.reports)?, one.played.truth);
    }
    Ok(())
}

/// Prints findings and totals; one failing history of each kind, and how many were not played.
fn print(judged: &[Judged], score: impl Fn(&Played, &[Value]) -> Vec<Finding>) -> (Vec<(Class, History)>, usize) {
    let mut counts: BTreeMap<Class, usize> = BTreeMap::new();
    let mut met: BTreeMap<&str, Vec<Option<u64>>> = BTreeMap::new();
    let mut failing = Vec::new();
    let mut kinds = BTreeSet::new();
    let mut broken = 0;
    for one in judged {
        if let Some(why) = &one.played.truth.broken {
            broken += 1;
            println!("not played{}: {why}\n    {}", named(one.seed), one.played.history);
            continue;
        }
        for Finding { class, what } in score(&one.played, &one.reports) {
            if let Some(known) = known::kind(class, &one.played) {
                met.entry(known.name).or_default().push(one.seed);
                continue;
            }
            *counts.entry(class).or_default() += 1;
            println!("{}{}: {what}\n    {}", class.shown(), named(one.seed), one.played.history);
            let truth = &one.played.truth;
            let kind = (class, truth.is_main(), truth.finished(), truth.left().is_some());
            if class != Class::Unknown && kinds.insert(kind) {
                failing.push((class, one.played.history.clone()));
            }
        }
    }
    for known in KNOWN {
        let seeds = met.remove(known.name).unwrap_or_default();
        let some: Vec<String> = seeds.iter().take(5).map(|seed| named(*seed)).collect();
        println!(
            "known, {}: {} times{} ({}: {})",
            known.name,
            seeds.len(),
            some.concat(),
            known.class.shown(),
            known.what
        );
    }
    let each = counts.iter().map(|(class, count)| format!(", {count} {}", class.shown()));
    println!("{} histories, {broken} not played{}", judged.len(), each.collect::<String>());
    (failing, broken)
}

fn named(seed: Option<u64>) -> String {
    seed.map_or_else(String::new, |seed| format!(" --seed {seed}"))
}

fn print_shrunk(stage: &Stage, watch: &Watch, class: Class, history: &History) -> Result<()> {
    let small = shrink::shrunk(history, |candidates| {
        let twice: Vec<(Option<u64>, History)> = candidates
            .iter()
            .flat_map(|one| [(None, one.clone()), (None, one.clone())])
            .collect();
        let judged = under_one_agent(stage, watch, &twice)?;
        let fails = |one: &Judged| score(&one.played, &one.reports).iter().any(|finding| finding.class == class);
        Ok(judged.chunks(2).map(|two| two.iter().all(fails)).collect())
    })?;
    println!(
        "the smallest form, {}: {small}\n    --history '{}'",
        class.shown(),
        serde_json::to_string(&small)?
    );
    Ok(())
}

/// Two histories that end differently, each with the truth of the other: both must be found.
fn self_test(judged: &[Judged]) -> Result<bool> {
    let is_right = |one: &&Judged| one.played.truth.broken.is_none() && score(&one.played, &one.reports).is_empty();
    let right: Vec<&Judged> = judged.iter().filter(is_right).collect();
    let status = |one: &Judged| (one.played.truth.code, one.played.truth.signal);
    let first = right.first().context("no history without a finding")?;
    let second = right
        .iter()
        .find(|one| status(one) != status(first))
        .context("all end alike")?;
    let mut found = 0;
    for (one, other) in [(first, second), (second, first)] {
        let swapped = Played {
            truth: other.played.truth.clone(),
            ..one.played.clone()
        };
        let findings = score(&swapped, &one.reports);
        println!("swapped{}: {findings:?}", named(one.seed));
        found += usize::from(!findings.is_empty());
    }
    println!("self-test: {found} of 2 swapped truths found");
    Ok(found == 2)
}

/// Plays `histories`; each waits for its report.
fn under_one_agent(stage: &Stage, watch: &Watch, histories: &[(Option<u64>, History)]) -> Result<Vec<Judged>> {
    let mut judged = play_all(stage, histories, AT_ONCE, |container| watch.reports(container, REPORT))?;
    // A second report would have come meanwhile.
    for one in &mut judged {
        one.reports = watch.reports(&one.played.container, Duration::ZERO);
    }
    Ok(judged)
}

/// Plays `histories`, some at once, in their order. `reports` has what was reported on a container.
fn play_all(
    stage: &Stage,
    histories: &[(Option<u64>, History)],
    at_once: usize,
    reports: impl Fn(&str) -> Vec<Value> + Sync,
) -> Result<Vec<Judged>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Judged>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(histories.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((seed, history)) = histories.get(index) else { return };
                    let judged = play(stage, *seed, history, index, &reports);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, judged));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, judged)| judged).collect()
}

fn play(
    stage: &Stage,
    seed: Option<u64>,
    history: &History,
    index: usize,
    reports: impl Fn(&str) -> Vec<Value>,
) -> Result<Judged> {
    // Runs side by side begin at other ports: pids of one moment are near to each other.
    let port = Port::held(usize::try_from(std::process::id())? * 200 + index)?;
    let played = stage.play(history, port.number)?;
    let reports = match played.truth.broken {
        Some(_) => Vec::new(),
        None => reports(&played.container),
    };
    Ok(Judged { seed, played, reports })
}
