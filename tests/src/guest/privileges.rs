//! With how little the agent works on this kernel: capabilities, the locked-memory limit of old kernels, hardened sysctls; and
//! what it has left once it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{TO_END, TO_OBSERVE, check, kernel, row, sign_of_life};
use crate::agent::Agent;
use crate::epitaph::run;
use crate::privileges::{launcher, may_keep, nobody_with, root_with, too_much};

/// The kernel charges BPF maps to RLIMIT_MEMLOCK.
const CHARGES_UNTIL: (u32, u32) = (5, 11);
/// The default limit of such a kernel, in KiB.
const DEFAULT: u32 = 64;

/// Never lowered once set on a hardened machine; nothing of it may be in the agent's way.
const HARDENED: [(&str, &str); 3] = [
    ("perf_event_paranoid", "3"),
    ("kptr_restrict", "2"),
    ("unprivileged_bpf_disabled", "2"),
];

/// How the agent is started, and what is expected of it.
struct Case {
    name: &'static str,
    with: String,
    /// RLIMIT_MEMLOCK, soft and hard, in KiB.
    memlock: u32,
    expected: Expected,
}

#[derive(PartialEq, Eq)]
enum Expected {
    Observes,
    /// With smaller maps, and a message about them.
    ObservesSmaller,
    Refuses,
}

/// How many checks failed.
///
/// # Errors
/// A check could not be made.
pub fn play(program: &Path) -> anyhow::Result<u32> {
    let charges = kernel()? < CHARGES_UNTIL;
    let without = if charges { Expected::Refuses } else { Expected::Observes };
    let little = if charges {
        Expected::ObservesSmaller
    } else {
        Expected::Observes
    };
    let cases = [
        Case {
            name: "two capabilities and 64 KiB of locked memory",
            with: root_with("+bpf,+perfmon"),
            memlock: DEFAULT,
            expected: without,
        },
        Case {
            name: "two capabilities and 8 MiB of locked memory",
            with: root_with("+bpf,+perfmon"),
            memlock: 8 << 10,
            expected: little,
        },
        Case {
            name: "CAP_SYS_RESOURCE and 64 KiB of locked memory",
            with: root_with("+bpf,+perfmon,+sys_resource"),
            memlock: DEFAULT,
            expected: Expected::Observes,
        },
        Case {
            name: "nobody, with two capabilities and 24 MiB of locked memory",
            with: nobody_with("+bpf,+perfmon"),
            memlock: 24 << 10,
            expected: Expected::Observes,
        },
    ];
    // First as on a machine without hardening, then as strict as a machine can be.
    let lenient = set("unprivileged_bpf_disabled", "0").is_ok();
    let mut failed = check(
        "privileges: given up where bpf(2) is open to all",
        observes(program, &cases[2], lenient),
    );
    for (name, value) in HARDENED {
        // Not every kernel has all of them, or knows this value.
        if let Err(error) = set(name, value) {
            println!("skip privileges: {name}={value}: {error}");
        }
    }
    for case in &cases {
        let done = match case.expected {
            Expected::Refuses => refuses(program, case),
            Expected::Observes | Expected::ObservesSmaller => observes(program, case, false),
        };
        failed += check(&format!("privileges: {}", case.name), done);
    }
    failed += check("privileges: doctor finds nothing wrong", doctor(program));
    Ok(failed)
}

fn observes(program: &Path, case: &Case, open_to_all: bool) -> anyhow::Result<()> {
    let (to, lines) = channel();
    let mut agent = Agent::start(&made(program, case)?, None, None, to)?;
    let observing = match lines.recv_timeout(TO_OBSERVE) {
        Ok(Some(line)) => serde_json::from_str::<Value>(&line).with_context(|| format!("no JSON: {line}"))?,
        _ => anyhow::bail!("it does not observe; its log:\n{}", agent.log()),
    };
    let probes = observing["probes"].as_array().context("no probes")?;
    ensure!(probes.iter().all(|probe| probe["state"] != "failed"), "{probes:?}");
    sign_of_life(&agent, &lines, &mut row::Lost::default())?;
    let keeps = may_keep()?;
    ensure!(keeps == 0 || !open_to_all, "CAP_BPF is kept though bpf(2) is open to all");
    let wrong = too_much(agent.pid(), keeps)?;
    ensure!(wrong.is_empty(), "it kept too much: {wrong:#?}");
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.pid()))?;
    let locked = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .unwrap_or_default();
    let bytes = (case.memlock << 10).to_string();
    ensure!(
        locked.split_ascii_whitespace().filter(|word| **word == bytes).count() == 2,
        "the limit is not what it was: {locked}"
    );
    let status = agent.end(TO_END)?;
    let log = agent.log();
    ensure!(status.success(), "{status}; its log:\n{log}");
    // aya has a message of its own about the limit, printed even if all fits.
    let printed = log.contains("does not hold all that the probes can use");
    ensure!(
        printed == (case.expected == Expected::ObservesSmaller),
        "the message about smaller maps is missing or wrong:\n{log}"
    );
    Ok(())
}

fn refuses(program: &Path, case: &Case) -> anyhow::Result<()> {
    let output = run(Command::new(made(program, case)?), ["watch", "--output", "json"])?;
    ensure!(
        output.code == Some(77) && output.err.contains("RLIMIT_MEMLOCK") && output.err.contains("CAP_SYS_RESOURCE"),
        "{output:?}"
    );
    Ok(())
}

fn doctor(program: &Path) -> anyhow::Result<()> {
    let output = run(Command::new(program), ["doctor"])?;
    output.out.lines().for_each(|line| println!("    {line}"));
    ensure!(output.code == Some(0), "{output:?}");
    Ok(())
}

fn made(program: &Path, case: &Case) -> anyhow::Result<PathBuf> {
    let before = format!("ulimit -l {}", case.memlock);
    launcher(Path::new("/tmp"), "epitaph-with-little", &before, &case.with, program)
}

fn set(name: &str, value: &str) -> std::io::Result<()> {
    fs::write(format!("/proc/sys/kernel/{name}"), value)
}
