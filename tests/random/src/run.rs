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
use crate::draw::{Draws, EXTRAS, Extra, LATER};
use crate::history::{Bind, History, Stop};
use crate::known::{self, KNOWN};
use crate::play::{Played, Stage};
use crate::port::Port;
use crate::score::{Class, Finding, score};
use crate::sys::boot_now;
use crate::truth::Truth;
use crate::watch::Watch;
use crate::{draw, entry, shrink};

/// How many histories run at the same time: most of the time they wait.
const AT_ONCE: usize = 40;
/// The same on a machine that is slower by `--slow`.
const AT_ONCE_IF_SLOW: usize = 4;
/// The same while agents start again and again.
const AT_ONCE_UNDER_KILLED: usize = 12;
/// A report comes at the latest so long after the container is gone, on a loaded machine.
const REPORT: Duration = Duration::from_secs(120);
/// So many failing histories of a run are shrunk, each of another kind.
const SHRUNK: usize = 4;

const USAGE: &str = "usage: random-histories --epitaph PROGRAM [N] [--seed S] [--history JSON] [--self-test] [--kill-agents [--keep]] [--starve] [--slow TIMES] [--all-draws] [--draw NAME] [--no-shrink] [--verbose]";

/// What a person asked for.
struct Options {
    epitaph: PathBuf,
    count: u64,
    seed: u64,
    history: Option<History>,
    self_test: bool,
    kill_agents: bool,
    /// The agents' journal and log stay.
    keep: bool,
    starve: bool,
    /// How many times slower than a usual machine this one is.
    slow: u32,
    draws: Draws,
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

impl Options {
    fn at_once(&self) -> usize {
        if self.slow > 1 { AT_ONCE_IF_SLOW } else { AT_ONCE }
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
        keep: false,
        starve: false,
        slow: 1,
        draws: Draws::Everyday,
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
            "--keep" => options.keep = true,
            "--starve" => options.starve = true,
            "--slow" => options.slow = value()?.parse().context("--slow")?,
            "--all-draws" => options.draws = Draws::All,
            "--draw" => options.draws = Draws::Only(extra(value()?)?),
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

fn extra(name: &str) -> Result<Extra> {
    let all = || EXTRAS.into_iter().chain(LATER);
    let names: Vec<&str> = all().map(|extra| extra.name).collect();
    let found = all().find(|extra| extra.name == name);
    found.with_context(|| format!("no draw `{name}`; there are {}", names.join(", ")))
}

/// Whether all was played, and nothing was found but what is known.
fn run(options: &Options) -> Result<bool> {
    println!("seed {}", options.seed);
    let drawn: Vec<(Option<u64>, History)> = match &options.history {
        // Which moment of a history an agent is killed in is chance.
        Some(history) => {
            let most = if options.kill_agents { u64::MAX } else { 10 };
            vec![(None, history.clone()); usize::try_from(options.count.min(most))?]
        }
        None => (0..options.count)
            .map(|index| options.seed.wrapping_add(index))
            .map(|seed| (Some(seed), draw::here(seed, options.draws).slowed(options.slow)))
            .collect(),
    };
    let left_out = print_left_out(options);
    if options.kill_agents {
        return under_killed_agents(options, &drawn, left_out);
    }
    let mut watch = Watch::start(&options.epitaph)?;
    let stage = Stage::new(options.slow)?;
    let over = AtomicBool::new(!options.starve);
    let judged = std::thread::scope(|scope| {
        scope.spawn(|| watch.starve(options.seed, &over));
        let judged = under_one_agent(&stage, &watch, options.at_once(), &drawn);
        over.store(true, Ordering::Relaxed);
        judged
    })?;
    if options.verbose {
        print_all(&judged)?;
    }
    let is_good = if options.self_test {
        self_test(&judged)?
    } else {
        let total = print(&judged, score);
        if options.shrinks {
            for (class, history) in total.failing.iter().take(SHRUNK) {
                print_shrunk(&stage, &watch, options.at_once(), *class, history)?;
            }
        }
        // A starved agent loses records, and does not know.
        for extra in EXTRAS
            .iter()
            .chain(&LATER)
            .filter(|_| matches!(options.draws, Draws::Everyday))
        {
            if let Some(shows) = extra.shows {
                println!("not drawn, {}: {shows}", extra.name);
            }
        }
        total.print_last(options.starve, left_out)
    };
    let odd = watch.odd();
    watch.end()?;
    for line in odd {
        println!("the agent: {line}");
    }
    Ok(is_good)
}

/// What no agent observed at any moment may be missing.
fn under_killed_agents(options: &Options, drawn: &[(Option<u64>, History)], left_out: usize) -> Result<bool> {
    let mut stage = Stage::new(options.slow)?;
    let agents = Agents::start(&options.epitaph, stage.directory(), options.seed)?;
    let mut judged = play_all(&stage, drawn, AT_ONCE_UNDER_KILLED, |_| Vec::new())?;
    let (mut reports, runs) = agents.end()?;
    if options.keep {
        println!("the journal and the log of the agents: {}", stage.keep().display());
    }
    for one in &mut judged {
        one.reports = reports.remove(&one.played.container).unwrap_or_default();
    }
    if options.verbose {
        print_all(&judged)?;
        println!("agents: {runs:?}");
    }
    let is_met = |truth: &Truth| runs.met(truth.began(), truth.ended);
    let met = judged.iter().filter(|one| is_met(&one.played.truth)).count();
    let missing = judged.iter().filter(|one| one.reports.is_empty()).count();
    println!("{} agents; {met} histories met by one, {missing} not reported", runs.count());
    let total = print(&judged, |played, reports| {
        let mut findings = score(played, reports);
        let truth = &played.truth;
        let is_excused = !is_met(truth);
        // Its own end was not observed, and a stop that came later began the termination: counts begin there, by docs/json.md.
        let is_stopped = truth.runtime_sent(|_| true);
        let is_gone = truth
            .left()
            .is_some_and(|at| is_stopped && at < truth.began() && !runs.met(at, at));
        findings.retain(|finding| match finding.class {
            Class::Missing => !is_excused,
            Class::FalseQuiet => !is_gone,
            _ => true,
        });
        findings
    });
    Ok(total.print_last(true, left_out))
}

/// How many histories were drawn with a wrapper that this machine lacks, and are played without it: a line for each program.
fn print_left_out(options: &Options) -> usize {
    if options.history.is_some() {
        return 0;
    }
    let mut of_program: BTreeMap<&str, usize> = BTreeMap::new();
    let mut histories = 0;
    for seed in (0..options.count).map(|index| options.seed.wrapping_add(index)) {
        let entry = draw::history(seed, options.draws, |_| true).entry;
        let missing: BTreeSet<&str> = entry.into_iter().filter_map(entry::missing).collect();
        histories += usize::from(!missing.is_empty());
        for program in missing {
            *of_program.entry(program).or_default() += 1;
        }
    }
    for (program, count) in of_program {
        println!("skip {program}: this machine has no such program; {count} histories are played without that wrapper");
    }
    histories
}

fn print_all(judged: &[Judged]) -> Result<()> {
    for one in judged {
        println!("{}\n  {:?}", serde_json::to_string(&one.reports)?, one.played.truth);
    }
    Ok(())
}

/// What a run came to.
#[derive(Debug, Default)]
struct Total {
    /// One of each kind.
    failing: Vec<(Class, History)>,
    /// Histories with a finding that fails the run.
    failed: usize,
    /// Not played.
    broken: usize,
    judged: usize,
    /// Allowed, and counted.
    unknown: usize,
    documented: usize,
    undecided: usize,
    known: usize,
}

impl Total {
    /// From so many histories on a share means something.
    const MANY: usize = 1_000;

    /// The last line, as the other tiers end; whether all is well. `may_be_unknown`: the machine is not quiet; `left_out`: histories without
    /// a wrapper that this machine lacks.
    fn print_last(&self, may_be_unknown: bool, left_out: usize) -> bool {
        let is_many = self.judged >= Total::MANY && !may_be_unknown;
        // By half of a percent.
        let is_bounded = !is_many || self.unknown * 200 <= self.judged;
        if !is_bounded {
            println!("unknown: {} of {}, more than 0.5 %", self.unknown, self.judged);
        }
        println!(
            "{} passed, {} failed, {} skipped, unknown: {}, by docs/limits: {}, undecided: {}, known: {}, without a wrapper: {left_out}",
            self.judged - self.failed,
            self.failed,
            self.broken,
            self.unknown,
            self.documented,
            self.undecided,
            self.known
        );
        self.failed == 0 && self.broken == 0 && is_bounded
    }
}

/// Prints findings and totals.
fn print(judged: &[Judged], score: impl Fn(&Played, &[Value]) -> Vec<Finding>) -> Total {
    let mut total = Total::default();
    let mut counts: BTreeMap<Class, usize> = BTreeMap::new();
    let mut met: BTreeMap<&str, Vec<Option<u64>>> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    for one in judged {
        let truth = &one.played.truth;
        if let Some(why) = &truth.broken {
            total.broken += 1;
            println!("not played{}: {why}\n    {}", named(one.seed), one.played.history);
            continue;
        }
        total.judged += 1;
        let mut has_failed = false;
        for finding in score(&one.played, &one.reports) {
            if let Some(known) = known::kind(&finding, &one.played) {
                met.entry(known.name).or_default().push(one.seed);
                total.known += 1;
                continue;
            }
            let Finding { class, what, .. } = finding;
            *counts.entry(class).or_default() += 1;
            println!("{}{}: {what}\n    {}", class.shown(), named(one.seed), one.played.history);
            if class.fails() {
                println!("    {}", as_argument(&one.played.history));
            }
            total.unknown += usize::from(class == Class::Unknown);
            total.documented += usize::from(class == Class::Documented);
            total.undecided += usize::from(class == Class::Undecided);
            has_failed |= class.fails();
            let kind = (class, truth.is_main(), truth.finished(), truth.left().is_some());
            if class.fails() && kinds.insert(kind) {
                total.failing.push((class, one.played.history.clone()));
            }
        }
        total.failed += usize::from(has_failed);
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
    let broken = total.broken;
    println!("{} histories, {broken} not played{}", judged.len(), each.collect::<String>());
    total
}

/// With which the history can be played again.
fn as_argument(history: &History) -> String {
    let json = serde_json::to_string(history).unwrap_or_default();
    format!("--history '{json}'")
}

fn named(seed: Option<u64>) -> String {
    seed.map_or_else(String::new, |seed| format!(" --seed {seed}"))
}

fn print_shrunk(stage: &Stage, watch: &Watch, at_once: usize, class: Class, history: &History) -> Result<()> {
    let small = shrink::shrunk(history, |candidates| {
        let twice: Vec<(Option<u64>, History)> = candidates
            .iter()
            .flat_map(|one| [(None, one.clone()), (None, one.clone())])
            .collect();
        let judged = under_one_agent(stage, watch, at_once, &twice)?;
        let fails = |one: &Judged| score(&one.played, &one.reports).iter().any(|finding| finding.class == class);
        Ok(judged.chunks(2).map(|two| two.iter().all(fails)).collect())
    })?;
    println!("the smallest form, {}: {small}\n    {}", class.shown(), as_argument(&small));
    Ok(())
}

/// A kind of wrong report.
struct Swap {
    name: &'static str,
    class: Class,
    /// The report on the first history, with the truth of the second, has a finding of the class.
    is: fn(&Judged, &Judged) -> bool,
}

const SWAPS: [Swap; 3] = [
    Swap {
        name: "one finished, the other was ended",
        class: Class::FalseClean,
        is: |one, other| one.first("exit") == "clean" && !other.played.truth.finished() && other.played.truth.program_pid != 0,
    },
    Swap {
        name: "one lost no client, the other did",
        class: Class::FalseQuiet,
        is: |one, other| {
            let truth = &other.played.truth;
            one.first("traffic") == "quiet"
                && truth.lost(truth.began()..=truth.ended) > 0
                && is_counted(one)
                && is_counted(other)
        },
    },
    Swap {
        name: "a stranger killed one, the runtime the other",
        class: Class::WrongCulprit,
        is: |one, other| one.first("exit") == "killed-by-other" && matches!(other.played.history.stop, Stop::Force(_)),
    },
];

fn is_counted(one: &Judged) -> bool {
    matches!(one.played.history.bind, Bind::V4 | Bind::V6 | Bind::Any)
}

impl Judged {
    fn first(&self, key: &str) -> &str {
        self.reports
            .first()
            .and_then(|report| report[key].as_str())
            .unwrap_or_default()
    }
}

/// Of each kind, two histories that wait(2) does not tell apart, each with the truth of the other: both must be found, the first by its class.
fn self_test(judged: &[Judged]) -> Result<bool> {
    let is_right = |one: &&Judged| {
        let findings = score(&one.played, &one.reports);
        one.played.truth.broken.is_none() && !findings.iter().any(|finding| finding.class.fails())
    };
    let right: Vec<&Judged> = judged.iter().filter(is_right).collect();
    let status = |one: &Judged| (one.played.truth.code, one.played.truth.signal);
    let mut found = 0;
    for Swap { name, class, is } in SWAPS {
        let pairs = right.iter().flat_map(|one| right.iter().map(move |other| (*one, *other)));
        let (first, second) = pairs
            .into_iter()
            .find(|(one, other)| status(one) == status(other) && is(one, other))
            .with_context(|| format!("no two histories end alike: {name}"))?;
        let [there, back] = [(first, second), (second, first)].map(|(one, other)| {
            let truth = Truth {
                // Processes differ in any case.
                shim_pid: one.played.truth.shim_pid,
                ..other.played.truth.clone()
            };
            let findings = score(
                &Played {
                    truth,
                    ..one.played.clone()
                },
                &one.reports,
            );
            println!("swapped{}: {name}: {findings:?}", named(one.seed));
            findings
        });
        found += usize::from(there.iter().any(|finding| finding.class == class));
        found += usize::from(back.iter().any(|finding| finding.class.fails()));
    }
    let all = 2 * SWAPS.len();
    println!("self-test: {found} of {all} swapped truths found");
    Ok(found == all)
}

/// Plays `histories`; each waits for its report.
fn under_one_agent(stage: &Stage, watch: &Watch, at_once: usize, histories: &[(Option<u64>, History)]) -> Result<Vec<Judged>> {
    let mut judged = play_all(stage, histories, at_once, |container| watch.reports(container, REPORT))?;
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
