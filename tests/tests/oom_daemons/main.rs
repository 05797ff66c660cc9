//! OOM kills on an emulated Debian 12. Its systemd-oomd (252) and earlyoom each kill the process of a unit, and the agent of the package names
//! the daemon; the truth is the daemon's own journal. And the kernel kills processes of containers, of each role that needs no kubelet; the
//! truth is the kernel's log. `cargo xtask test oom` builds package and machine; arguments choose cases. Roles that the kubelet makes are played on
//! a cluster: `tests/src/cluster/stories/ooms.rs`.

mod roles;

#[path = "../systemd/machine.rs"]
#[expect(dead_code, reason = "the machine of the shutdowns, of which this needs a part")]
mod machine;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{MOST_NODES, Tools};
use epitaph_tests::shutdowns::Debian;
use epitaph_tests::timeout::{holds, until_within};
use serde_json::Value;

use machine::{LIMIT, Machine};

/// Not the ones of the other machines of the package.
const INDEX: u8 = MOST_NODES - 4;

const VICTIM: &str = "victim.service";
const MARKER: &str = "marker.service";

struct Case {
    name: &'static str,
    /// Root's shell sets the daemon up, and starts it.
    begin: &'static str,
    /// Starts the unit `victim.service`, which takes memory without an end.
    victim: &'static str,
    /// A line of the daemon's journal: it has killed the victim.
    truth: (&'static str, &'static str),
    /// Parts of the sentence.
    says: &'static [&'static str],
    end: &'static str,
}

/// A second of pressure is enough for oomd, and each page that the victim takes above its `MemoryHigh` makes some.
const OOMD: Case = Case {
    name: "systemd-oomd",
    begin: "mkdir -p /etc/systemd/oomd.conf.d && \
            printf '[OOM]\\nDefaultMemoryPressureLimit=5%%\\nDefaultMemoryPressureDurationSec=1s\\n' >/etc/systemd/oomd.conf.d/fast.conf && \
            systemctl start systemd-oomd && systemctl is-active systemd-oomd",
    victim: "systemd-run --quiet --unit=victim -p MemoryAccounting=yes -p MemoryHigh=48M -p ManagedOOMMemoryPressure=kill \
             -p ManagedOOMMemoryPressureLimit=5% tail /dev/zero",
    truth: ("systemd-oomd", "Killed /system.slice/victim.service"),
    says: &["systemd-oomd", "memory-pressure"],
    end: "systemctl stop systemd-oomd; systemctl reset-failed",
};

/// It polls the memory of the whole machine.
const EARLYOOM: Case = Case {
    name: "earlyoom",
    begin: "printf 'EARLYOOM_ARGS=\"-m 40,35 -s 100,100 -r 0 --prefer ^tail$\"\\n' >/etc/default/earlyoom && \
            systemctl start earlyoom && systemctl is-active earlyoom",
    victim: "systemd-run --quiet --unit=victim tail /dev/zero",
    truth: ("earlyoom", "\"tail\""),
    says: &["earlyoom"],
    end: "systemctl stop earlyoom; systemctl reset-failed",
};

const CASES: [Case; 2] = [OOMD, EARLYOOM];

#[test]
fn oom_kills_are_reported_with_who_killed_and_what_the_victim_was() -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own settings: no configuration file holds them"
    )]
    let (package, only) = (
        std::env::var_os("EPITAPH_DEB").map(PathBuf::from),
        std::env::var("EPITAPH_OOM_DAEMONS").unwrap_or_default(),
    );
    let package = package.context("no EPITAPH_DEB: run `cargo xtask test oom`")?;
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test oom`")?;
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let names: Vec<&str> = CASES.iter().map(|case| case.name).chain(roles::names()).collect();
    for name in &only {
        ensure!(names.contains(name), "no case `{name}`; the cases are {}", names.join(", "));
    }
    let dir = tempfile::tempdir()?;
    let node = Node::start(&tools, &NodeConfig::machine(INDEX)?, dir.path(), Lifetime::Caller)?;
    // As on Debian 11, the package's binary needs the C library of the machine that built it.
    let machine = Machine {
        node,
        debian: Debian::Eleven,
    };
    machine.prepare(&package)?;
    println!(
        "{}",
        machine
            .run("systemctl --version | head -n 1; uname -r; cat /proc/pressure/memory")?
            .trim()
    );
    machine.until_observing()?;
    let mut wrong = Vec::new();
    let is_asked_for = |name: &str| only.is_empty() || only.contains(&name);
    for case in CASES.iter().filter(|case| is_asked_for(case.name)) {
        if let Err(error) = play(&machine, case) {
            println!("{}: {error:#}; {}", case.name, machine.log());
            wrong.push(format!("{}: {error:#}", case.name));
        }
        machine.run(&format!("systemctl stop victim 2>/dev/null; {}; true", case.end))?;
    }
    wrong.extend(roles::play(&machine, is_asked_for)?);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn play(machine: &Machine, case: &Case) -> anyhow::Result<()> {
    let known = of_unit(machine, VICTIM)?.len();
    machine.run(case.begin)?;
    machine.run(case.victim)?;
    let (unit, words) = case.truth;
    let truth = until_within(LIMIT, "the daemon's own word", || {
        let journal = machine.run(&format!("journalctl --no-pager --boot --unit {unit} --output cat"))?;
        let line = journal.lines().rev().find(|line| line.contains(words)).map(str::to_owned);
        Ok(line.ok_or(journal))
    })?;
    println!("{}: {truth}", case.name);
    let report = until_within(LIMIT, "the victim's report", || {
        let found = of_unit(machine, VICTIM)?;
        let count = found.len();
        Ok(found.into_iter().nth(known).ok_or_else(|| format!("{count} reports")))
    })?;
    let sentence = report["sentence"].as_str().unwrap_or_default();
    println!("{}: {} {sentence}", case.name, report["verdict"]);
    ensure!(report["verdict"] == "oom-killed", "verdict {}: {sentence}", report["verdict"]);
    for part in case.says {
        ensure!(sentence.contains(part), "no `{part}` in: {sentence}");
    }
    // Nothing of it is left for a second report: the marker's comes behind.
    let marked = of_unit(machine, MARKER)?.len();
    machine.run("systemd-run --quiet --wait --unit=marker false; systemctl reset-failed marker; true")?;
    until_within(LIMIT, "the marker's report", || {
        let count = of_unit(machine, MARKER)?.len();
        Ok(holds(count > marked, || format!("{count} reports")))
    })?;
    let count = of_unit(machine, VICTIM)?.len();
    ensure!(count == known + 1, "{count} reports of the victim, {known} of them before");
    Ok(())
}

/// The reports of a unit, in the agent's journal.
fn of_unit(machine: &Machine, unit: &str) -> anyhow::Result<Vec<Value>> {
    let all = machine.all_reports()?;
    Ok(all
        .into_iter()
        .filter(|report| report["type"] == "termination" && report["subject"].to_string().contains(unit))
        .collect())
}
