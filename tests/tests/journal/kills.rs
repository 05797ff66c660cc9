//! Agents that are killed at random moments, many times in a row, while containers terminate.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_core::input::Input;
use epitaph_tests::http::free_port;
use epitaph_tests::play::Played;
use epitaph_tests::runtime::{Did, Kill, Others, Stop};
use epitaph_tests::story::{Bystander, End, Expected, Program, Story};
use epitaph_tests::sys::{boot_now, locked};
use epitaph_tests::timeout::{TIMEOUT, TO_END, holds, until_within};
use nix::libc::SIGTERM;

use crate::stage::{Collector, Random, Report, Stage, fields, now, number, reports, story, until};

/// Kills of the everyday tests. `EPITAPH_KILLS=1000` for the long run.
const KILLS: usize = 4;

/// On a busy machine a kill takes long: no more of them after so many minutes. `EPITAPH_MINUTES`.
const MINUTES: usize = 120;

/// Agents that observe the same containers at once and are killed independently, each with a journal and a collector of its own.
/// `EPITAPH_AGENTS=4` for the long run.
const AGENTS: usize = 1;

/// Containers that terminate at the same time.
const PLAYERS: u64 = 3;

/// Between what happens and its frame in the journal: an agent that is killed sooner may not know of it. On a busy machine the agent
/// waits for its turn, as it did when it started, and for the disk, which syncs what came before: so much longer.
const MARGIN_NS: u64 = 1_000_000_000;

/// All of a long run: what the agent removes to make room, the test would miss.
const ROOM: [&str; 2] = ["--set", "journal.max_bytes=1073741824"];

/// A container, by the players' own account. Times are of `CLOCK_BOOTTIME`, ns.
struct Play {
    subject: String,
    name: &'static str,
    /// With all evidence.
    verdict: &'static str,
    cause: &'static str,
    /// Between these, the termination began.
    begin: (u64, u64),
    end: u64,
}

/// From when to when an agent ran.
struct Run {
    started: u64,
    /// None: killed before.
    ready: Option<u64>,
    /// Or, of the last one, when it had reported the marker behind all plays.
    killed: u64,
    /// It knows of what began up to then, and may not know of what came later.
    knows_until: u64,
}

impl Run {
    /// Killed at a random moment, when a sync took so long.
    fn killed(started: u64, ready: Option<u64>, sync: u64, killed: u64) -> Run {
        let margin = ready.map_or(0, |ready| MARGIN_NS + (ready - started) + 2 * sync);
        Run {
            started,
            ready,
            killed,
            knows_until: killed.saturating_sub(margin),
        }
    }

    /// Never killed: the marker came behind all plays.
    fn to_its_end(started: u64, ready: u64, marker: u64) -> Run {
        Run {
            started,
            ready: Some(ready),
            killed: marker,
            knows_until: marker,
        }
    }
}

/// One agent after the other with the same journal.
struct Line {
    journal: PathBuf,
    port: u16,
    collector: Collector,
    random: Random,
}

impl Line {
    fn new(stage: &Stage, number: u64) -> anyhow::Result<Line> {
        let port = free_port()?;
        Ok(Line {
            journal: stage.directory.path().join(format!("journal-{number}")),
            port,
            collector: Collector::start(port)?,
            random: Random(0x9e37_79b9_7f4a_7c15 ^ number << 40),
        })
    }
}

/// Every termination that began before a kill, and was seen to, has exactly one distinct root span at the collector. None is clean
/// unless one agent saw all of it, and none names another culprit than all evidence does. What is not reported began and ended within
/// gaps that the journal states.
#[test]
fn every_termination_has_one_root_whenever_the_agent_is_killed() -> anyhow::Result<()> {
    let test = "every_termination_has_one_root_whenever_the_agent_is_killed";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let agents = number("EPITAPH_AGENTS", AGENTS)?;
    let most = Duration::from_secs(60 * number("EPITAPH_MINUTES", MINUTES)? as u64);
    let kills = number("EPITAPH_KILLS", KILLS)?.div_ceil(agents);
    let lines: Vec<Line> = (0..agents as u64).map(|n| Line::new(&stage, n)).collect::<Result<_, _>>()?;
    // Lines that still kill.
    let left = AtomicUsize::new(lines.len());
    // Players that still play.
    let players = AtomicUsize::new(PLAYERS as usize);
    let ended = Mutex::new(Vec::new());
    let (stage, left, players, ended) = (&stage, &left, &players, &ended);
    let lines = std::thread::scope(|scope| {
        let playing: Vec<_> = (1..=PLAYERS)
            .map(|seed| {
                scope.spawn(move || {
                    let _plays = Counted(players);
                    play(stage, Random(seed << 32 | 0x9e37_79b9), left, ended)
                })
            })
            .collect();
        let killing: Vec<_> = lines
            .into_iter()
            .map(|mut line| {
                scope.spawn(move || {
                    kill_and_restart(stage, &mut line, kills, most, (left, players, ended)).map(|runs| (line, runs))
                })
            })
            .collect();
        let lines: Vec<_> = killing.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        for player in playing {
            player.join().map_err(|_| anyhow::anyhow!("the players panicked"))??;
        }
        let lines = lines
            .into_iter()
            .map(|line| line.map_err(|_| anyhow::anyhow!("an agent's thread panicked"))?);
        lines.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let plays = locked(ended);
    for (line, runs) in &lines {
        let reports: Vec<Report> = reports(&line.journal)?.into_values().collect();
        sent_as_they_are_kept(&line.collector, &reports)?;
        let gaps = gaps(stage, &line.journal)?;
        let judged = judge(&plays, runs, &reports, &gaps)?;
        println!(
            "{} kills, {} of them before the agent was ready; {} terminations, {} seen to begin, {} reports, {} within gaps",
            runs.len() - 1,
            runs.iter().filter(|run| run.ready.is_none()).count(),
            plays.len(),
            judged.seen,
            judged.reported,
            judged.in_gap,
        );
        ensure!(judged.seen > 0, "no termination began while an agent observed");
        ensure!(
            runs.len() > kills,
            "the time was over before {kills} kills: set EPITAPH_MINUTES above {}",
            most.as_secs() / 60
        );
    }
    Ok(())
}

/// What ended goes to `ended`.
fn play(stage: &Stage, mut random: Random, left: &AtomicUsize, ended: &Mutex<Vec<Play>>) -> anyhow::Result<()> {
    while left.load(Ordering::Relaxed) > 0 {
        let story: &'static Story = Box::leak(Box::new(any(&mut random)));
        let role = stage.players.cast(story)?;
        let played = stage.players.play(&role)?;
        let differs = played.differs(&role);
        ensure!(differs.is_empty(), "{}: {}", story.name, differs.join("\n"));
        locked(ended).push(Play::of(role.subject.as_str(), story, &played)?);
        pause(&mut random, Duration::from_secs(1));
    }
    Ok(())
}

/// The moments of plays and kills.
fn pause(random: &mut Random, most: Duration) {
    // The subject is time: a kill comes at any moment.
    std::thread::sleep(Duration::from_millis(random.below(most.as_millis() as usize + 1) as u64));
}

/// A stop of a few seconds, or an exit that nobody asked for.
fn any(random: &mut Random) -> Story {
    let stop = |grace| Stop::Signal {
        signal: SIGTERM,
        grace,
        frozen: false,
        kill: Kill::Main,
        others: Others::Nothing,
    };
    let handled = |code: &'static str, seconds: usize| {
        let seconds = ["1", "2", "3"][seconds];
        let args: &'static [&'static str] = Box::leak(Box::new(["handle-for", seconds, code]));
        Story {
            program: Program::Victim(args),
            stop: stop(Duration::from_secs(20)),
            ..*story(if code == "0" { "handler-exits-0" } else { "handler-exits-3" })
        }
    };
    match random.below(8) {
        0 => handled("0", random.below(3)),
        1 => handled("3", random.below(3)),
        2 => Story {
            stop: stop(Duration::from_millis(300 + random.below(5_000) as u64)),
            ..*story("ignored-without-handler")
        },
        3 => *story("default-action"),
        4 => *story("completed"),
        5 => stopped_by_a_stranger(500 + random.below(4_000) as u64),
        6 => crashed_below(),
        _ => *story("exits-1-by-itself"),
    }
}

/// As `podman stop` is: the same party of the host asks, and kills.
fn stopped_by_a_stranger(grace_ms: u64) -> Story {
    let ignored = story("ignored-without-handler");
    Story {
        name: "stopped-by-a-stranger",
        stop: Stop::Wait,
        bystander: Bystander::Stops {
            name: "janitor",
            grace_ms,
        },
        expected: Expected {
            cause: "external",
            ..ignored.expected
        },
        ..*ignored
    }
}

/// The exit of PID 1 repeats a crash of a child, so much later that an agent can be killed in between.
fn crashed_below() -> Story {
    let crash = story("exits-1-by-itself");
    Story {
        name: "crashed-below",
        program: Program::Shell("$VICTIM fault; code=$?; sleep 1.5; exit $code"),
        expected: Expected {
            end: End::Code(139),
            ..crash.expected
        },
        ..*crash
    }
}

impl Play {
    /// Whether it may be the verdict of an agent that saw a part of it: that of all evidence, or one that claims less.
    fn may_be(&self, report: &Report) -> bool {
        let (verdict, cause) = (report.verdict(), report.json["cause"].as_str().unwrap_or_default());
        let is_cause = cause == self.cause || cause == "unknown";
        // Of the sockets, less is known.
        let is_verdict = verdict == self.verdict || self.verdict == "clean" && verdict == "clean-exit";
        // The code is a fact, whatever led to it.
        is_cause && (is_verdict || verdict == "unknown") || verdict == "nonzero-exit" && cause == "unknown"
    }

    fn of(subject: &str, story: &'static Story, played: &Played) -> anyhow::Result<Play> {
        let (mut ready, mut signalled, mut ended) = (None, None, None);
        for did in &played.did {
            match did {
                Did::Ready { at, .. } => ready = Some(*at),
                Did::Signalled { at, .. } => signalled = Some(*at),
                Did::Ended { at, .. } => ended = Some(*at),
                _ => {}
            }
        }
        let (Some(ready), Some(end)) = (ready, ended) else {
            anyhow::bail!("{}: not ready, or not ended: {:?}", story.name, played.did)
        };
        Ok(Play {
            subject: subject.to_owned(),
            name: story.name,
            verdict: story.expected.verdict,
            cause: story.expected.cause,
            begin: signalled.map_or((ready, end), |at| (at, at)),
            end,
        })
    }
}

/// Counts, as a line that kills or a player that plays, until it is dropped, also by an error.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts an agent, kills it at a random moment, and so on; the last one reports what is left.
fn kill_and_restart(
    stage: &Stage,
    line: &mut Line,
    kills: usize,
    most: Duration,
    (left, players, ended): (&AtomicUsize, &AtomicUsize, &Mutex<Vec<Play>>),
) -> anyhow::Result<Vec<Run>> {
    let begin = now();
    let killing = Counted(left);
    let Line {
        journal,
        port,
        collector,
        random,
    } = line;
    let mut runs = Vec::new();
    let mut to_ready = Duration::from_secs(1);
    while runs.len() < kills && begin.elapsed() < most {
        let started = boot_now();
        let mut agent = stage.begun(journal, *port, &ROOM)?;
        // Two of three observe for a while, some of them long enough to finish a report.
        let ready = if runs.len() % 3 == 2 {
            pause(random, to_ready);
            None
        } else {
            agent.until_ready()?;
            let ready = boot_now();
            to_ready = Duration::from_nanos(ready - started);
            pause(random, Duration::from_millis(if runs.len() % 4 == 0 { 6_000 } else { 1_500 }));
            Some(ready)
        };
        let begin = boot_now();
        synced(&journal.with_extension("synced"))?;
        let killed = boot_now();
        agent.kill()?;
        runs.push(Run::killed(started, ready, killed - begin, killed));
        if runs.len() % 50 == 0 {
            println!("{} kills", runs.len());
        }
    }
    let started = boot_now();
    let mut last = stage.agent_with(journal, *port, &ROOM)?;
    let ready = boot_now();
    // Of the next plays that end, more than were under way: one at least began while the last agent observed.
    let before = locked(ended).len();
    until_within(Duration::from_secs(600), "a play that the last agent sees begin", || {
        let since = locked(ended).len() - before;
        Ok(holds(since as u64 > PLAYERS, || format!("{since} have ended")))
    })?;
    drop(killing);
    until_within(Duration::from_secs(600), "the plays to end", || {
        let playing = players.load(Ordering::Relaxed);
        Ok(holds(playing == 0, || format!("{playing} go on")))
    })?;
    // Behind all of them. What was over before is reported and sent by then, held for what may still come, or never reported.
    let marker = stage.play(story("completed"))?;
    until("the marker at the collector", || {
        let reports = reports(journal).unwrap_or_default();
        let marker = reports.values().find(|report| report.subject() == marker);
        marker.is_some_and(|report| collector.times(&report.request) > 0)
    })?;
    // What an agent holds when it ends is its successor's, and this one has none.
    runs.push(Run::to_its_end(started, ready, boot_now()));
    until_within(TIMEOUT, "each play's report", || {
        let reports: Vec<Report> = reports(journal).unwrap_or_default().into_values().collect();
        let judged = judge(&locked(ended), &runs, &reports, &gaps(stage, journal)?);
        Ok(judged.map(drop).map_err(|wrong| wrong.to_string()))
    })?;
    ensure!(last.end(TO_END)?.success(), "{}", last.log());
    Ok(runs)
}

/// Writes a file beside the journal, and syncs it.
fn synced(file: &Path) -> anyhow::Result<()> {
    let mut file = File::create(file)?;
    file.write_all(b"as the agent does")?;
    Ok(file.sync_all()?)
}

/// The collector has each report, and no byte that the journal does not have.
fn sent_as_they_are_kept(collector: &Collector, reports: &[Report]) -> anyhow::Result<()> {
    let kept: HashSet<&[u8]> = reports.iter().flat_map(|report| fields(&report.request)).collect();
    let bodies = collector.bodies();
    let sent: HashSet<&[u8]> = bodies.iter().flat_map(|body| fields(body)).collect();
    let unknown: Vec<_> = sent.difference(&kept).map(|field| String::from_utf8_lossy(field)).collect();
    ensure!(
        unknown.is_empty(),
        "the collector got spans that are not in the journal: {unknown:?}"
    );
    for report in reports {
        let is_sent = fields(&report.request).all(|field| sent.contains(field));
        ensure!(is_sent, "not sent: {}", report.json);
    }
    Ok(())
}

/// Between the last evidence of one run and the begin of the next, ns.
fn gaps(stage: &Stage, journal: &Path) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut gaps = vec![];
    let mut last = 0;
    for (now, input) in stage.evidence(journal)?.context("a journal without evidence")? {
        if let Input::Start(observation) = &input {
            gaps.push((last, observation.since.0));
        }
        // As the core knows it: a busy agent takes a record late, and later ones may still wait when it is killed.
        last = match &input {
            Input::Kernel { at, .. } => last.max(at.0),
            Input::Start(observation) => observation.since.0,
            Input::Tick => now.0,
            _ => last,
        };
    }
    Ok(gaps)
}

#[derive(Default)]
struct Judged {
    seen: usize,
    reported: usize,
    in_gap: usize,
}

fn judge(plays: &[Play], runs: &[Run], reports: &[Report], gaps: &[(u64, u64)]) -> anyhow::Result<Judged> {
    let mut of: HashMap<&str, Vec<&Report>> = HashMap::new();
    for report in reports {
        of.entry(report.subject()).or_default().push(report);
    }
    let mut judged = Judged::default();
    let mut wrong = Vec::new();
    for play in plays {
        let Play { name, subject, end, .. } = play;
        let (earliest, latest) = play.begin;
        let found = of.get(subject.as_str()).map_or(&[][..], Vec::as_slice);
        let is_seen = runs
            .iter()
            .any(|run| run.ready.is_some_and(|ready| ready <= earliest && latest <= run.knows_until));
        let is_seen_whole = runs.iter().any(|run| run.started <= earliest && *end <= run.killed);
        // Without evidence in between, there may have been an agent: nothing showed it that the container was terminating.
        let in_gap = |at: u64| gaps.iter().any(|(from, to)| *from <= at && at <= *to);
        let is_in_gap = in_gap(latest) && in_gap(*end);
        judged.seen += usize::from(is_seen);
        judged.reported += usize::from(!found.is_empty());
        judged.in_gap += usize::from(found.is_empty() && is_in_gap);
        let mut is_wrong = |what: &str| {
            let verdicts: Vec<String> = found
                .iter()
                .map(|report| format!("{} ({})", report.verdict(), report.json["cause"]))
                .collect();
            wrong.push(format!(
                "{name} {subject}, begin {earliest} to {latest}, end {end}: {what}: {verdicts:?}"
            ));
        };
        match found {
            [] if is_seen => is_wrong("began before a kill, and is not reported"),
            [] if !is_in_gap => is_wrong("not reported, and not within a stated gap"),
            [] => {}
            [report] if report.verdict() == "clean" && !is_seen_whole => is_wrong("clean without evidence"),
            [report] if !play.may_be(report) => is_wrong(&format!("not {} ({}), nor unknown", play.verdict, play.cause)),
            [_] => {}
            _ => is_wrong("more than one root"),
        }
    }
    ensure!(
        wrong.is_empty(),
        "{}\nruns: {:?}\ngaps: {gaps:?}",
        wrong.join("\n"),
        runs.iter()
            .map(|run| (run.started, run.ready, run.killed))
            .collect::<Vec<_>>()
    );
    Ok(judged)
}
