//! Inside a machine with another kernel: the agent's probes, terminations that are dangerous to a probed kernel, and the stories.
//!
//! One line per check, for the host to count: `pass NAME`, `fail NAME: WHY`, `skip NAME: WHY`; and [`row`]'s for its table.
//! The guest is the machine's only task, unless `--native` marks the machine as a shared one.

mod danger;
mod outside;
mod privileges;
mod row;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::agent::Agent;
use crate::cgroup::Inhabitants;
use crate::demo::{self, Options};
use crate::report::Case;

/// Emulated machines are slow, and so are unoptimised programs in them.
const TO_OBSERVE: Duration = Duration::from_secs(180);
const TO_JUDGE: Duration = Duration::from_secs(60);
const TO_END: Duration = Duration::from_secs(30);
/// How often a story is played again if its evidence was lost.
const AGAIN: u32 = 3;

/// `guest AGENT [--native] [--containers-in-v1] [--tests PROGRAM] [STORY]…`; `guest privileges AGENT` and
/// `guest clients AGENT` for that part alone; `guest victim HOW` for the process that exits in it. The exit code.
pub fn main(args: &[String]) -> i32 {
    let mut args = args.iter().map(String::as_str).collect::<Vec<_>>();
    if let ["victim", how] = args[..] {
        return danger::victim(how);
    }
    if let ["clients", agent] = args[..] {
        return i32::from(part("clients", outside::play(Path::new(agent), &mut row::Lost::default())) > 0);
    }
    if let ["privileges", agent] = args[..] {
        return i32::from(part("privileges", privileges::play(Path::new(agent))) > 0);
    }
    let in_v1 = args.iter().position(|arg| *arg == "--containers-in-v1");
    let inhabitants = match in_v1.map(|at| args.remove(at)) {
        Some(_) => Inhabitants::ContainersInV1,
        None => Inhabitants::AsFound,
    };
    let tests = args.iter().position(|arg| *arg == "--tests").map(|at| {
        let tests = args.get(at + 1).copied().unwrap_or_default();
        args.drain(at..(at + 2).min(args.len()));
        tests
    });
    let native = args
        .iter()
        .position(|arg| *arg == "--native")
        .map(|at| args.remove(at))
        .is_some();
    let Some((agent, stories)) = args.split_first() else {
        println!("fail the guest has a command: usage: guest AGENT [--native] [--tests PROGRAM] [STORY]...");
        return 64;
    };
    let (mut failed, mut lost) = (0, row::Lost::default());
    let tainted = tainted();
    if native {
        println!("skip danger: a kernel that panics takes the machine down, and this machine is shared");
    } else {
        failed += part("the agent under danger", under_danger(Path::new(agent), &mut lost));
        failed += part("privileges", privileges::play(Path::new(agent)));
        failed += part("clients", outside::play(Path::new(agent), &mut lost));
    }
    if let Some(tests) = tests {
        failed += part("the probes' own tests", probe_tests(Path::new(tests)));
    }
    failed += part("the stories", play(Path::new(agent), stories, inhabitants, &mut lost));
    // On a shared machine, another program may have tainted the kernel.
    if !native {
        failed += part("the kernel is sound", tainted.and_then(is_still));
    }
    lost.print();
    i32::from(failed > 0)
}

/// How many of its checks failed; a part that cannot be made is one.
fn part(name: &str, done: anyhow::Result<u32>) -> u32 {
    match done {
        Ok(fails) => fails,
        Err(error) => {
            println!("fail {name}: {error:#}");
            1
        }
    }
}

/// What the kernel itself holds against its state: warnings and oopses among it.
fn tainted() -> anyhow::Result<String> {
    fs::read_to_string("/proc/sys/kernel/tainted").context("read what taints the kernel")
}

fn is_still(before: String) -> anyhow::Result<u32> {
    let now = tainted()?;
    let judged = if now == before {
        Ok(())
    } else {
        Err(anyhow::anyhow!("kernel.tainted was {}, is {}", before.trim(), now.trim()))
    };
    Ok(check("the kernel is as sound as before", judged))
}

/// Plays what panics kernels whose probes are careless, and checks that the agent still reports.
fn under_danger(program: &Path, lost: &mut row::Lost) -> anyhow::Result<u32> {
    let (to, lines) = channel();
    let mut agent = Agent::start(program, None, None, to)?;
    match lines.recv_timeout(TO_OBSERVE) {
        Ok(Some(_)) => {}
        _ => anyhow::bail!("it does not observe; its log:\n{}", agent.log()),
    }
    let mut failed = 0;
    for danger in danger::ALL {
        let done = danger.play();
        failed += check(&format!("danger: {}", danger.name), done);
    }
    failed += check(
        "danger: the agent still runs and reports the next termination",
        sign_of_life(&agent, &lines, lost),
    );
    let status = agent.end(TO_END)?;
    let ended = if status.success() {
        Ok(())
    } else {
        Err(anyhow::anyhow!("{status}; its log:\n{}", agent.log()))
    };
    for line in lines.try_iter().flatten() {
        lost.take_line(&serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?);
    }
    Ok(failed + check("the agent ends at SIGTERM", ended))
}

/// Checks that every probe has a valid state. Whether the state is the expected one for this kernel, the table decides.
fn probes(observing: &Value) -> anyhow::Result<u32> {
    let states = observing["probes"].as_array().context("its first line names no probes")?;
    let mut failed = 0;
    for probe in states {
        let text = |key: &str| probe[key].as_str().unwrap_or_default();
        let judged = match (text("state"), text("by"), text("reason")) {
            ("active", "", "") => Ok(()),
            // Without a reason it would be a shrug.
            ("substituted", by, _) if !by.is_empty() => Ok(()),
            ("unsupported", "", reason) if !reason.is_empty() => Ok(()),
            _ => Err(anyhow::anyhow!("{probe}")),
        };
        failed += check(&format!("probe {} is {}", text("name"), text("state")), judged);
    }
    Ok(failed)
}

/// The termination of one more subject, after all the others.
fn sign_of_life(agent: &Agent, lines: &Receiver<Option<String>>, lost: &mut row::Lost) -> anyhow::Result<()> {
    let id = crate::sys::random_hex(32)?;
    danger::one_termination(&id)?;
    loop {
        match lines.recv_timeout(TO_JUDGE) {
            Ok(Some(line)) => {
                let line: Value = serde_json::from_str(&line).with_context(|| format!("no JSON: {line}"))?;
                lost.take_line(&line);
                if line["type"] == "termination" && line["subject"]["id"] == id.as_str() {
                    return Ok(());
                }
            }
            Ok(None) => anyhow::bail!("the agent ended; its log:\n{}", agent.log()),
            Err(_) => anyhow::bail!(
                "no termination of it within {} s; the agent's log:\n{}",
                TO_JUDGE.as_secs(),
                agent.log()
            ),
        }
    }
}

/// The tests that look at what each probe writes, one after the other; the same program as on the host.
fn probe_tests(program: &Path) -> anyhow::Result<u32> {
    let done = Command::new(program)
        .args(["--test-threads=1", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let skip = |name: &str| {
        text.lines()
            .find_map(|line| line.split_once(&format!("SKIP {name}: ")).map(|(_, why)| why))
    };
    let (mut failed, mut seen) = (0, 0);
    // With --nocapture a test's own output is between its name and its outcome.
    let mut running = None;
    for line in text.lines() {
        if line.starts_with("verifier ") {
            println!("{line}");
        }
        if let Some((name, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            running = Some(name);
        }
        let outcome = line.rsplit(' ').next().unwrap_or_default();
        let Some(name) = running.filter(|_| ["ok", "FAILED"].contains(&outcome)) else {
            continue;
        };
        running = None;
        seen += 1;
        match (outcome, skip(name)) {
            ("ok", None) => println!("pass probes: {name}"),
            ("ok", Some(why)) => println!("skip probes: {name}: {why}"),
            _ => {
                println!("fail probes: {name}");
                failed += 1;
            }
        }
    }
    if failed > 0 || !done.status.success() {
        text.lines().for_each(|line| println!("    {line}"));
    }
    ensure!(seen > 0, "{} named no test ({})", program.display(), done.status);
    ensure!(
        failed > 0 || done.status.success(),
        "{} ended with {}",
        program.display(),
        done.status
    );
    Ok(failed)
}

/// The demo's stories, judged as on any host.
fn play(agent: &Path, only: &[&str], inhabitants: Inhabitants, lost: &mut row::Lost) -> anyhow::Result<u32> {
    let own = std::env::current_exe().context("find the guest's own program")?;
    let players = own.parent().context("the guest's program lies nowhere")?.to_path_buf();
    let mut options = Options::new(agent.to_path_buf(), players);
    options.only = only.iter().map(|name| (*name).to_owned()).collect();
    options.at_once = 2;
    options.inhabitants = inhabitants;
    options.to_judge = TO_JUDGE;
    let mut report = demo::run(&options, &mut |_| {})?;
    for _ in 0..AGAIN {
        let unknowable = report.cases.iter().filter(|case| is_for_loss(case));
        options.only = unknowable.map(|case| case.role.story.name.to_owned()).collect();
        if options.only.is_empty() {
            break;
        }
        println!(
            "note played again, because the agent reported a lost record: {}",
            options.only.join(", ")
        );
        lost.again(options.only.len() as u64);
        let again = demo::run(&options, &mut |_| {})?;
        report.lines.extend(again.lines);
        for case in again.cases {
            let name = case.role.story.name;
            if let Some(place) = report.cases.iter_mut().find(|known| known.role.story.name == name) {
                *place = case;
            }
        }
    }
    row::print(&report);
    for line in report.lines.iter().filter_map(|line| serde_json::from_str(line).ok()) {
        lost.take_line(&line);
    }
    let mut failed = probes(&report.observing)?;
    for case in &report.cases {
        let differs = case.differs();
        let judged = if differs.is_empty() {
            Ok(())
        } else {
            Err(anyhow::anyhow!("{}", differs.join("; ")))
        };
        failed += check(&format!("story {}", case.role.story.name), judged);
        if let Some(judged) = case.judged().filter(|_| !differs.is_empty()) {
            println!("    judged: {judged}");
        }
    }
    for (name, why) in &report.unplayable {
        println!("skip story {name}: {why}");
    }
    for problem in &report.problems {
        failed += check("the agent behaves", Err(anyhow::anyhow!("{problem}")));
    }
    Ok(failed)
}

/// Differs because a record was lost, as the agent itself reports: in an emulated machine an interrupt can hit a
/// probe now and then.
fn is_for_loss(case: &Case) -> bool {
    let lost = case.judged().is_some_and(|judged| {
        let kinds = judged["gaps"]["lost"].as_object();
        kinds.is_some_and(|kinds| !kinds.is_empty())
    });
    lost && !case.differs().is_empty()
}

/// Prints the outcome; 1 where it is a failure. On one line: what follows a line's end is the host's to print, not to count.
fn check(name: &str, judged: anyhow::Result<()>) -> u32 {
    match judged {
        Ok(()) => {
            println!("pass {name}");
            0
        }
        Err(error) => {
            println!("fail {name}: {}", format!("{error:#}").replace('\n', "\n    "));
            1
        }
    }
}

fn kernel() -> anyhow::Result<(u32, u32)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
    let mut parts = release.trim().split(['.', '-', '+', '~']).map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => anyhow::bail!("no version in the kernel's release {release}"),
    }
}
