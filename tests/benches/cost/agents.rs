//! The agent as a process: how much memory it holds, and whether it loses anything in a storm.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph::recording::Reader;
use epitaph_core::decode::decode;
use epitaph_core::event::{Event, Kind};
use epitaph_core::ids::Pid;
use epitaph_core::input::Input;
use epitaph_tests::agent::Agent;
use epitaph_tests::cgroup::Scope;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::get;
use epitaph_tests::service::Service;
use epitaph_tests::sys::{after_name, kill};
use nix::libc::SIGTERM;

use crate::stats::{median, now};
use crate::table::Table;
use crate::target::{RECORDED, Target};

const STORM: u64 = 200_000;
const TARGETS: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(20);

/// `epitaph watch --output json`, observing.
pub struct Watch(Agent);

impl Watch {
    pub fn start(epitaph: &Path) -> anyhow::Result<Watch> {
        let (to, lines) = channel();
        let agent = Agent::start(epitaph, None, None, to)?;
        match lines.recv_timeout(TIMEOUT) {
            // Later lines go nowhere: the sender does not mind.
            Ok(Some(line)) if line.contains("\"observing\"") => Ok(Watch(agent)),
            other => bail!("the agent does not observe: {other:?}\n{}", agent.log()),
        }
    }
}

pub fn measure(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    memory(epitaph, table)?;
    storm(epitaph, table)?;
    database(epitaph, table)
}

/// From the start of the process until all probes are attached and it says so.
pub fn start(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    const STARTS: usize = 9;
    const GOAL: f64 = 0.3;
    eprintln!("bench: {STARTS} starts of the agent");
    let dir = tempfile::tempdir()?;
    let epitaph = Epitaph::copied(epitaph, dir.path())?;
    let mut seconds = Vec::new();
    for _ in 0..STARTS {
        let begin = now();
        let mut agent = Service::begun(&epitaph, dir.path(), &[])?;
        while !get(agent.port, "/readyz").is_ok_and(|(status, _)| status == 200) {
            let waited = Duration::from_nanos(now() - begin);
            ensure!(waited < TIMEOUT, "the agent is not ready after {waited:?}: {}", agent.log());
            sleep(Duration::from_millis(1));
        }
        seconds.push((now() - begin) as f64 / 1e9);
        agent.end(TIMEOUT)?;
    }
    let middle = median(&seconds);
    table.goal(
        "start of the agent until /readyz answers 200",
        "<= 0.3 s",
        format!("{middle:.2} s"),
        middle <= GOAL,
    );
    Ok(())
}

/// Of the stripped programs: the image's, and the one with all features.
pub fn size(of_pods: &Path, whole: &Path, table: &mut Table) -> anyhow::Result<()> {
    for (what, program, goal) in [
        ("the image's program", of_pods, 10_u64),
        ("the program with all features", whole, 16),
    ] {
        let size = fs::metadata(program)?.len();
        table.goal(what, &format!("<= {goal} MiB"), mib(size), size <= goal << 20);
    }
    Ok(())
}

/// What the agent itself pays for a container whose processes signal each other all day, as a database's do: its probes drop these
/// signals, so its process sees none of them.
fn database(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    const A_SECOND: u64 = 100_000;
    const STEPS: u64 = 100;
    const SECONDS: u64 = 10;
    eprintln!("bench: {A_SECOND} signals a second within a container");
    let mut watch = Watch::start(epitaph)?;
    let scope = Scope::of_new_container()?;
    let mut player = Command::new(env!("CARGO_BIN_EXE_probe-player"))
        .arg("--cgroup")
        .arg(scope.home())
        .args(["storm", &(A_SECOND / STEPS).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(player.stdout.take().context("piped")?).lines();
    let mut orders = player.stdin.take().context("piped")?;
    let mut line = || lines.next().context("the storm ended")?.context("read the storm");
    ensure!(line()?.starts_with("ready"), "the storm is not ready");
    // The agent takes in the new container.
    sleep(Duration::from_secs(1));
    let (before, begin) = (cpu_ticks(watch.0.pid())?, now());
    for step in 0..SECONDS * STEPS {
        orders.write_all(b"\n")?;
        ensure!(line()? == "done", "the storm did not pass");
        let due = begin + (step + 1) * (1_000_000_000 / STEPS);
        sleep(Duration::from_nanos(due.saturating_sub(now())));
    }
    let seconds = (now() - begin) as f64 / 1e9;
    let ticks = cpu_ticks(watch.0.pid())? - before;
    drop(orders);
    player.wait()?;
    scope.remove()?;
    watch.0.end(TIMEOUT)?;
    // USER_HZ is 100 on every architecture of today.
    let share = ticks as f64 / seconds;
    let sent = (SECONDS * A_SECOND) as f64 / seconds;
    table.goal(
        "the agent, of a core, under 100 000 signals a second within a container",
        "< 1 %",
        format!("{share:.2} %"),
        share < 1.0,
    );
    table.note(format!(
        "That container sent itself {sent:.0} signals per second for {seconds:.1} s."
    ));
    Ok(())
}

/// User and system time of a process, in clock ticks.
pub fn cpu_ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = after_name(&stat).context("no name in stat")?;
    let times = rest.split(' ').skip(11).take(2);
    times.map(|ticks| Ok(ticks.parse::<u64>()?)).sum()
}

fn memory(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: the agent's memory");
    let mut watch = Watch::start(epitaph)?;
    sleep(Duration::from_secs(2));
    let idle = Memory::of(watch.0.pid())?;
    let seconds = rain(&targets()?)?;
    sleep(Duration::from_secs(3));
    let after = Memory::of(watch.0.pid())?;
    watch.0.end(TIMEOUT)?;
    table.goal(
        "resident, `epitaph watch`, idle",
        "<= 32 MiB",
        mib(idle.now),
        idle.now <= 32 << 20,
    );
    table.goal(
        "resident, after the storm",
        "<= 32 MiB",
        mib(after.now),
        after.now <= 32 << 20,
    );
    // Of one moment: while the kernel's type information is read.
    table.fact("the most it ever held (at its start)", mib(after.most));
    table.note(format!(
        "Of the {} resident after a storm of {STORM} signals in {seconds:.2} s, {} are the agent's own (anonymous), {} the \
         ring buffer and the binary's pages.",
        mib(after.now),
        mib(after.anonymous),
        mib(after.now - after.anonymous)
    ));
    Ok(())
}

/// Bytes.
struct Memory {
    now: u64,
    most: u64,
    anonymous: u64,
}

impl Memory {
    fn of(pid: u32) -> anyhow::Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib: Option<u64> = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok());
            kib.map(|kib| kib * 1024)
                .with_context(|| format!("no {name} in /proc/{pid}/status"))
        };
        Ok(Memory {
            now: field("VmRSS")?,
            most: field("VmHWM")?,
            anonymous: field("RssAnon")?,
        })
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn targets() -> anyhow::Result<Vec<Target>> {
    (0..TARGETS).map(|_| Target::start()).collect()
}

/// `STORM` stop signals, spread over a second; how long it took, in seconds.
fn rain(targets: &[Target]) -> anyhow::Result<f64> {
    const STEPS: u64 = 1_000;
    let begin = now();
    for step in 0..STEPS {
        for drop in 0..STORM / STEPS {
            targets[drop as usize % targets.len()].signal(RECORDED)?;
        }
        let due = begin + (step + 1) * 1_000_000;
        sleep(Duration::from_nanos(due.saturating_sub(now())));
    }
    Ok((now() - begin) as f64 / 1e9)
}

/// What was sent, against the content of a recording: every signal is there, or the agent reports how many are lost.
fn storm(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: a storm of {STORM} stop signals");
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("storm.epitaph");
    let targets = targets()?;
    let mut record = Record::start(epitaph, &file, dir.path())?;
    let seconds = rain(&targets)?;
    sleep(Duration::from_secs(1));
    record.end()?;

    let ours: Vec<Pid> = targets.iter().map(|target| Pid(target.pid())).collect();
    let (mut seen, mut lost) = (0, 0);
    let reader = Reader::new(BufReader::new(File::open(&file)?), decode)?;
    for (_, input) in reader {
        match input {
            Input::Kernel {
                event: Event::SignalGenerate(signal),
                ..
            } if ours.contains(&signal.target.tgid) && i32::from(signal.signal.number()) == RECORDED => seen += 1,
            Input::Lost {
                kind: Kind::SignalGenerate,
                count,
                ..
            } => lost += count,
            _ => {}
        }
    }
    let reached = format!("{seen} seen, {lost} counted lost");
    // A signal of another process may be among the lost.
    let whole = seen <= STORM && seen + lost >= STORM && (lost > 0 || seen == STORM);
    table.goal("200 000 stop signals in a second", "none lost, or counted", reached, whole);
    let silent = STORM.saturating_sub(seen + lost);
    table.note(format!(
        "The storm of {STORM} took {seconds:.2} s ({:.0} signals per second), {silent} lost uncounted.",
        STORM as f64 / seconds
    ));
    Ok(())
}

/// `epitaph record FILE`, observing.
struct Record(Child);

impl Record {
    fn start(epitaph: &Path, file: &Path, dir: &Path) -> anyhow::Result<Record> {
        let (out, log) = (dir.join("out"), dir.join("log"));
        let child = Command::new(epitaph)
            .args(["record", "--output", "json"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("start {}", epitaph.display()))?;
        let mut record = Record(child);
        for _ in 0..200 {
            sleep(Duration::from_millis(100));
            if fs::read_to_string(&out)?.contains("\"observing\"") {
                return Ok(record);
            }
            if let Some(status) = record.0.try_wait()? {
                bail!("the agent ended ({status}): {}", fs::read_to_string(&log)?);
            }
        }
        bail!("the agent does not observe: {}", fs::read_to_string(&log)?)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        kill(self.0.id().cast_signed(), SIGTERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the recording agent ended with {status}");
        Ok(())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
