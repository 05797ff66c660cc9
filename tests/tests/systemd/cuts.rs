//! Power cuts within a shutdown: the machine tells the moment on its console, and its plug is pulled.

use std::fs;
use std::thread::sleep;

use anyhow::{bail, ensure};
use epitaph_tests::cluster::node::quoted;
use epitaph_tests::shutdowns::{Cut, Moment, When};
use epitaph_tests::timeout::{holds, until_within};

use crate::lock::{self, As};
use crate::machine::{LIMIT, Machine, summary};

/// On the console.
const NOW: &str = "epitaph-test: now";
/// Ends before the shutdown, and is on disk by then.
const EARLIER: &str = "earlier";
/// Stops during the shutdown, at once.
const PROMPT: &str = "prompt";

pub fn play(machine: &mut Machine, cut: &Cut) -> anyhow::Result<()> {
    set_up(machine, cut.moment)?;
    machine.until_observing()?;
    ended_earlier(machine)?;
    let before = machine.all_reports()?;
    let count = |kind: &str| before.iter().filter(|report| report["type"] == kind).count();
    let (known, downs) = (count("node-shutdown"), count("node-down"));
    let boot = machine.node.boot_id()?;
    machine.witness()?;
    begin(machine, cut.moment)?;
    until_now(machine)?;
    // The subject is time: the case's own.
    sleep(cut.after);
    machine.node.power_off()?;
    machine.node.power_on()?;
    machine.node.until_up(Some(&boot))?;
    // The next case has a machine as before.
    lock::leave(machine)?;
    let Some(report) = machine.new_report(known, LIMIT)? else {
        bail!("no report; {}", machine.log());
    };
    machine.expect_down(downs)?;
    let (verdict, by, when, sentence) = summary(&report);
    println!("shutdown {}: {verdict} by {by}, {when:?}: {sentence}", cut.name);
    ensure!(
        (verdict.as_str(), by.as_str(), when) == (cut.verdict, cut.by, Some(When::NextBoot)),
        "not {cut:?}: {report}"
    );
    ensure!(
        sentence.contains("lost its power or was reset"),
        "the sentence does not say why: {sentence}"
    );
    let after = machine.all_reports()?;
    for report in &before {
        ensure!(after.contains(report), "lost in the power cut: {report}");
    }
    if cut.moment == Moment::Services {
        let of_prompt = |report: &&serde_json::Value| report["subject"].to_string().contains(&format!("{PROMPT}.service"));
        let found: Vec<_> = after.iter().filter(of_prompt).collect();
        ensure!(
            found.len() == 1,
            "a unit that stopped during the shutdown, reported {} times: {found:?}",
            found.len()
        );
        println!("shutdown {}: {PROMPT}.service {}", cut.name, found[0]["sentence"]);
    }
    Ok(())
}

/// What the moment needs, before the agent is looked at.
fn set_up(machine: &Machine, moment: Moment) -> anyhow::Result<()> {
    machine.run("systemctl daemon-reload")?;
    match moment {
        Moment::Delay => lock::limit(machine),
        Moment::OwnLock => {
            lock::limit(machine)?;
            lock::take(machine, As::Root)
        }
        Moment::Services => {
            let service = |text: &str| format!("[Service]\nExecStart=/bin/sleep infinity\n{text}");
            let slow = service(&format!("ExecStop=/bin/sh -c 'sleep 3; echo {NOW} >/dev/ttyS0; sleep 60'\n"));
            for (unit, text) in [("slow", slow), (PROMPT, service(""))] {
                machine.run(&format!("printf %s {} >/run/systemd/system/{unit}.service", quoted(&text)))?;
            }
            machine.run(&format!("systemctl daemon-reload && systemctl start slow {PROMPT}"))?;
            Ok(())
        }
        Moment::AskedToEnd => {
            // Stops behind all services and before the agent. The agent's own unit has no device.
            let unit = format!(
                "[Unit]\nDefaultDependencies=no\nConflicts=shutdown.target\nAfter=epitaph.service\nBefore=basic.target shutdown.target\n\
                 [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecStop=/bin/sh -c 'echo {NOW} >/dev/ttyS0'\n"
            );
            machine.run(&format!(
                "printf %s {} >/run/systemd/system/end.service && systemctl daemon-reload && systemctl start end",
                quoted(&unit)
            ))?;
            Ok(())
        }
    }
}

/// A unit that has failed, and its report on disk.
fn ended_earlier(machine: &Machine) -> anyhow::Result<()> {
    machine.until_failed(EARLIER)?;
    // A sync makes all safe that was written before, and the marker has frames of its own to be synced.
    let before = machine.syncs()?;
    machine.after_a_marker()?;
    until_within(LIMIT, "a sync of the journal", || {
        let now = machine.syncs()?;
        Ok(holds(now > before, || format!("{now} syncs, {before} before")))
    })
}

fn begin(machine: &Machine, moment: Moment) -> anyhow::Result<()> {
    const POWER_OFF: &str = "systemctl poweroff";
    let announced = |seconds: u32| {
        let wait = format!(
            "until grep -q member=PrepareForShutdown /root/witness; do sleep 0.1; done; sleep {seconds}; echo {NOW} >/dev/ttyS0"
        );
        machine.run(&format!(
            "systemd-run --quiet --collect --unit=moment sh -c {}",
            quoted(&wait)
        ))
    };
    match moment {
        Moment::Delay => {
            announced(3)?;
            machine.later(&format!(
                "systemd-inhibit --what=shutdown --mode=delay --who=backup sleep 60 & sleep 5; {POWER_OFF}; wait"
            ))
        }
        Moment::OwnLock => {
            let locks = machine.run("systemd-inhibit --list --no-pager")?;
            ensure!(lock::is_listed(&locks), "the role has no lock: {locks}");
            announced(1)?;
            machine.later(POWER_OFF)
        }
        Moment::Services | Moment::AskedToEnd => machine.later(POWER_OFF),
    }
}

/// Waits for the moment.
fn until_now(machine: &mut Machine) -> anyhow::Result<()> {
    let console = machine.node.console();
    until_within(LIMIT, "the moment", || {
        let runs = machine.node.runs();
        let text = fs::read(&console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        ensure!(runs || text.contains(NOW), "the machine is off, and the moment did not come");
        Ok(holds(text.contains(NOW), || {
            text.chars().rev().take(200).collect::<Vec<_>>().iter().rev().collect()
        }))
    })
}
