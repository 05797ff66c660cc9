//! The role's own delay lock on a real logind: as uid 0 it is taken, and let go well before the limit; as another user it is refused. And what
//! ends in the shutdown is observed to its end.

use anyhow::{bail, ensure};
use epitaph_tests::cluster::node::quoted;
use epitaph_tests::shutdowns::{Lock, When};
use epitaph_tests::timeout::until_within;
use serde_json::Value;

use crate::machine::{LIMIT, Machine, summary};

/// Whose user the role is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    Root,
    /// Of the package.
    OwnUser,
}

/// Stops four seconds after it was asked to, with this code.
const LATE: &str = "[Service]
ExecStart=/bin/sh -c 'trap \"sleep 4; exit 7\" TERM; while :; do sleep 0.2; done'
";

/// logind waits long enough for every case.
pub fn limit(machine: &Machine) -> anyhow::Result<()> {
    machine.run(
        "mkdir -p /etc/systemd/logind.conf.d && printf '[Login]\\nInhibitDelayMaxSec=30\\n' >/etc/systemd/logind.conf.d/limit.conf && \
         systemctl kill --signal=HUP systemd-logind",
    )?;
    Ok(())
}

/// The role takes the lock if it may.
pub fn take(machine: &Machine, user: As) -> anyhow::Result<()> {
    let (of_role, of_agent) = match user {
        As::Root => (
            "User=root\nEnvironment=EPITAPH_LOGIND_UID=0\n",
            "Environment=EPITAPH_LOGIND_UID=0\n",
        ),
        As::OwnUser => ("", ""),
    };
    machine.drop_in(
        "epitaph-logind",
        "lock",
        &format!("[Service]\nEnvironment=EPITAPH_LOGIND_LOCK=true\n{of_role}"),
    )?;
    machine.drop_in("epitaph", "lock", &format!("[Service]\n{of_agent}"))?;
    if user == As::Root {
        // The role has no capability: not even root's to open another user's socket.
        machine.drop_in("epitaph-logind.socket", "lock", "[Socket]\nSocketUser=root\n")?;
    }
    again(machine)
}

/// As the package has it.
pub fn leave(machine: &Machine) -> anyhow::Result<()> {
    machine.run(
        "cd /etc/systemd && if rm logind.conf.d/limit.conf 2>/dev/null; then systemctl kill --signal=HUP systemd-logind; fi; \
         test -e system/epitaph.service.d/lock.conf || exit 0; rm -f system/epitaph*.d/lock.conf; touch /run/again",
    )?;
    if machine.run("rm /run/again 2>/dev/null && echo again || true")?.is_empty() {
        return Ok(());
    }
    again(machine)
}

fn again(machine: &Machine) -> anyhow::Result<()> {
    machine.run(
        "systemctl daemon-reload && systemctl stop epitaph epitaph-logind epitaph-logind.socket && systemctl start epitaph",
    )?;
    machine.until_observing()
}

/// Whether the list of `systemd-inhibit` has the lock.
pub fn is_listed(locks: &str) -> bool {
    locks
        .lines()
        .any(|line| line.starts_with("epitaph") && line.contains("shutdown") && line.contains("delay"))
}

pub fn play(machine: &mut Machine, lock: &Lock) -> anyhow::Result<()> {
    let user = if lock.as_root { As::Root } else { As::OwnUser };
    limit(machine)?;
    take(machine, user)?;
    until_decided(machine, lock)?;
    machine.run(&format!(
        "printf %s {} >/run/systemd/system/late.service && systemctl daemon-reload && systemctl start late",
        quoted(LATE)
    ))?;
    let known = machine.reports("node-shutdown")?.len();
    let downs = machine.reports("node-down")?.len();
    let boot = machine.node.boot_id()?;
    machine.later("systemctl poweroff")?;
    machine.until_off()?;
    machine.node.power_on()?;
    machine.node.until_up(Some(&boot))?;
    leave(machine)?;
    let Some(report) = machine.new_report(known, LIMIT)? else {
        bail!("no report; {}", machine.log());
    };
    machine.expect_down(downs)?;
    let (verdict, by, when, sentence) = summary(&report);
    println!(
        "shutdown {}: {verdict} by {by}, {when:?}: {sentence}; own lock {}, delay {}, locks {}",
        lock.name, report["own_lock"], report["delay"], report["locks"]
    );
    ensure!(
        (verdict.as_str(), when) == ("graceful", Some(When::Ending)),
        "not graceful as the agent ended: {report}"
    );
    ensure!(
        report["own_lock"].as_str().is_some_and(|state| state.starts_with(lock.state)),
        "the own lock is not {}: {report}",
        lock.state
    );
    ensure!(report["delay"]["expired"] == false, "logind waited to its limit: {report}");
    let own = |of: &&Value| of["who"] == "epitaph";
    let own = report["locks"].as_array().and_then(|locks| locks.iter().find(own));
    ensure!(
        own.is_some_and(|lock| lock["released"].is_string() && lock["outlasted"] == false) == lock.as_root,
        "the lock in the report: {own:?}"
    );
    // The other lock's case has one, too.
    let of_late = |report: &&Value| report["boot_id"] == *boot && report["subject"].to_string().contains("late.service");
    let reports = machine.all_reports()?;
    let late: Vec<_> = reports.iter().filter(of_late).collect();
    ensure!(
        late.len() == 1 && late[0]["sentence"].as_str().is_some_and(|text| text.contains("code 7")),
        "a unit that stops during the shutdown was not observed to its exit: {late:?}"
    );
    println!("shutdown {}: late.service {}", lock.name, late[0]["sentence"]);
    Ok(())
}

/// The lock is in the list, or its refusal in the role's log.
fn until_decided(machine: &Machine, lock: &Lock) -> anyhow::Result<()> {
    until_within(LIMIT, "lock or refusal", || {
        let locks = machine.run("systemd-inhibit --list --no-pager")?;
        let log = machine.run("journalctl --no-pager --boot --unit epitaph-logind --output cat | tail -n 20")?;
        let is_refused = log.contains("the delay lock is refused, observing goes on");
        let seen = format!("{locks}{log}");
        if if lock.as_root { is_listed(&locks) } else { is_refused } {
            ensure!(is_listed(&locks) == lock.as_root, "a lock that was refused is held: {locks}");
            println!("shutdown {}: {}", lock.name, seen.trim().replace('\n', " | "));
            return Ok(Ok(()));
        }
        Ok(Err(seen))
    })
}
