//! Shutdowns of an emulated Debian with systemd and logind, by the commands that people use, and power cuts within them: what the agent of
//! the package reports, at once or after the next boot. `cargo xtask test systemd` builds the package and the machine; arguments choose
//! cases. The cases and what is expected of them: `tests/src/shutdowns.rs`.

mod cuts;
mod lock;
mod machine;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{MOST_NODES, Tools};
use epitaph_tests::shutdowns::{CASES, CUTS, Case, Debian, Does, LOCKS, Seen, Then};
use epitaph_tests::timeout::{holds, until_within};
use serde_json::Value;

use machine::{LIMIT, Machine, summary};

/// Not the one of the package's test.
const INDEX: u8 = MOST_NODES - 2;
/// A machine that is expected to stay as it is, is looked at for so long.
const QUIET: Duration = Duration::from_secs(60);

#[test]
fn shutdowns_are_reported_as_they_were() -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own settings: no configuration file holds them"
    )]
    let (package, only, debian) = (
        std::env::var_os("EPITAPH_DEB").map(PathBuf::from),
        std::env::var("EPITAPH_SHUTDOWNS").unwrap_or_default(),
        std::env::var("EPITAPH_DEBIAN").unwrap_or_default(),
    );
    let package = package.context("no EPITAPH_DEB: run `cargo xtask test systemd`")?;
    let debian = Debian::numbered(&debian).context("no EPITAPH_DEBIAN: run `cargo xtask test systemd`")?;
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test systemd`")?;
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let names = CASES.iter().map(|case| case.name);
    let names: Vec<&str> = names
        .chain(CUTS.iter().map(|cut| cut.name))
        .chain(LOCKS.iter().map(|lock| lock.name))
        .chain([STOP])
        .collect();
    for name in &only {
        ensure!(names.contains(name), "no case `{name}`; the cases are {}", names.join(", "));
    }
    let dir = tempfile::tempdir()?;
    let node = Node::start(&tools, &NodeConfig::machine(INDEX)?, dir.path(), Lifetime::Caller)?;
    let mut machine = Machine { node, debian };
    machine.prepare(&package)?;
    println!(
        "systemd: {}",
        machine.run("systemctl --version | head -n 1; uname -r")?.trim()
    );
    let mut wrong = Vec::new();
    if only.is_empty() {
        wrong.extend(doctor(&machine)?);
    }
    for name in names.iter().filter(|name| only.is_empty() || only.contains(name)) {
        let played = match (
            CASES.iter().find(|case| case.name == *name),
            CUTS.iter().find(|cut| cut.name == *name),
            LOCKS.iter().find(|lock| lock.name == *name),
        ) {
            (Some(case), ..) => case.on(debian).map_or(Ok(()), |seen| play(&mut machine, case, seen)),
            (_, Some(cut), _) => cuts::play(&mut machine, cut),
            (.., Some(lock)) => lock::play(&mut machine, lock),
            _ => stop(&machine),
        };
        if let Err(error) = played {
            println!("shutdown {name}: {error:#}");
            wrong.push(format!("{name}: {error:#}"));
            restart(&mut machine)?;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// After a failed case the machine is in an unknown state. The report of this power loss is none of the next case.
fn restart(machine: &mut Machine) -> anyhow::Result<()> {
    let known = machine.reports("node-down").map_or(0, |downs| downs.len());
    machine.node.power_off()?;
    machine.node.power_on()?;
    machine.until_observing()?;
    // Without one, the next case has the same report to wait for.
    let _ = machine.until_down(known);
    // The shutdown's report comes with it.
    machine.after_a_marker()
}

/// What `epitaph doctor` says of logind on the real bus; what is wrong with it.
fn doctor(machine: &Machine) -> anyhow::Result<Vec<String>> {
    // Without a kubelet there is nothing to protect, and nothing is checked.
    const KUBELET: &str = "mkdir -p /var/lib/kubelet && cat >/var/lib/kubelet/config.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: 60s
shutdownGracePeriodCriticalPods: 20s
END
";
    let text = machine.run(&format!(
        "{KUBELET}{} doctor --only shutdown --output json || true; rm -r /var/lib/kubelet/config.yaml",
        machine.epitaph()
    ))?;
    let report: Value = serde_json::from_str(text.trim()).with_context(|| format!("the doctor's answer: {text}"))?;
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    for finding in &findings {
        println!("doctor {} {}: {}", finding["status"], finding["check"], finding["message"]);
    }
    let now = match machine.debian {
        Debian::Eleven => "shutdown now, poweroff, reboot and halt bypass it",
        Debian::Thirteen => "shutdown now, poweroff, reboot and halt, systemctl soft-reboot go through logind",
    };
    let version = format!("systemd {}", machine.debian.systemd());
    let mut wrong = Vec::new();
    for (check, part) in [("logind", version.as_str()), ("commands", now)] {
        let is_it =
            |finding: &&Value| finding["check"] == check && finding["message"].as_str().is_some_and(|m| m.contains(part));
        if !findings.iter().any(|finding| is_it(&finding)) {
            wrong.push(format!("doctor: no finding {check} with `{part}`"));
        }
    }
    Ok(wrong)
}

/// Plays the case, waits for its report, and holds both to the table.
fn play(machine: &mut Machine, case: &Case, expected: Seen) -> anyhow::Result<()> {
    machine.until_observing()?;
    let logind = machine.witness()?;
    let (known, downs) = (machine.reports("node-shutdown")?.len(), machine.reports("node-down")?.len());
    let boot = machine.node.boot_id()?;
    let soft = soft_reboots(machine)?;
    match case.does {
        Does::Shell(command) => machine.later(command)?,
        Does::PowerButton => machine.node.press_power_button()?,
        Does::ResetButton => machine.node.reset()?,
        Does::PowerPlug => machine.node.power_off()?,
    }
    match expected.then {
        Then::Stays => {}
        Then::Boots => machine.node.until_up(Some(&boot))?,
        Then::SoftBoots => until_soft_booted(machine, &soft)?,
        Then::Off => {
            machine.until_off()?;
            machine.node.power_on()?;
            machine.node.until_up(Some(&boot))?;
        }
    }
    let report = machine.new_report(known, if expected.report.is_some() { LIMIT } else { QUIET })?;
    if expected.report.is_some() && report.is_none() {
        bail!("no report; {}", machine.log());
    }
    let bus = machine.witnessed(&logind)?;
    if expected.then == Then::Stays {
        machine.run(
            "kill $(systemctl show --value --property MainPID witness); systemctl stop case witness 2>/dev/null || true",
        )?;
        ensure!(machine.node.boot_id()? == boot, "the machine has booted");
    } else {
        machine.expect_down(downs)?;
    }
    let found = report.as_ref().map(summary);
    println!("shutdown {}: on the bus: {bus}; report: {found:?}", case.name);
    let is_expected = match (&found, expected.report) {
        (None, None) => true,
        (Some((verdict, by, when, _)), Some((expected, expected_by, expected_when))) => {
            verdict == expected && by == expected_by && *when == Some(expected_when)
        }
        _ => false,
    };
    ensure!(is_expected && bus == expected.bus, "not {expected:?}; {report:?}");
    Ok(())
}

/// Of the case that ends the agent while the machine runs on.
const STOP: &str = "stop";

/// At SIGTERM outside a shutdown the agent is gone within two seconds, by the machine's own clock.
fn stop(machine: &Machine) -> anyhow::Result<()> {
    // The second process begins before the signal, and so sleeps no longer than two seconds from it.
    const STOP_WITHIN: &str = "pid=$(systemctl show --value --property MainPID epitaph); sleep 2 & kill -TERM $pid; wait $!; \
        test -e /proc/$pid && ! grep -q '^State:.Z' /proc/$pid/status && echo runs || echo gone; \
        systemctl show --property ExecMainExitTimestamp,ExecMainStatus epitaph";
    machine.until_observing()?;
    let seen = machine.run(STOP_WITHIN)?;
    machine.run("systemctl start epitaph epitaph-logind")?;
    println!("stop: {}", seen.replace('\n', " "));
    ensure!(
        seen.starts_with("gone") && seen.contains("ExecMainStatus=0"),
        "two seconds after SIGTERM: {seen}; {}",
        machine.log()
    );
    Ok(())
}

/// How often the services began again on this kernel; a systemd before soft reboots has no such property.
fn soft_reboots(machine: &Machine) -> anyhow::Result<String> {
    machine.run("systemctl show --value --property SoftRebootsCount")
}

fn until_soft_booted(machine: &Machine, before: &str) -> anyhow::Result<()> {
    until_within(LIMIT, "a soft reboot", || {
        machine.node.shell().forget();
        let count = soft_reboots(machine);
        let is_so = count.as_ref().is_ok_and(|count| !count.trim().is_empty() && count != before);
        Ok(holds(is_so, || format!("{count:?}")))
    })
}
