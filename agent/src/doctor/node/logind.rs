//! logind: is it there, how long does it wait, and for whom.

use std::path::Path;
use std::time::Duration;

use epitaph_core::node::{InhibitMode, Inhibitor};

use super::{FoundKubelet, Logind, Machine, Node, RESTART, Unknown, not_checked, shown};
use crate::cli::SysExit;
use crate::doctor::{Finding, Trouble};
use crate::error::Remedy;
use crate::source::systemd::TimeSpan;
use crate::source::systemd::conf::{ConfiguredDelay, DROP_INS, KEY, KUBELETS, LogindConf};

/// From here on logind reads its configuration again at SIGHUP, which the kubelet sends after it wrote its drop-in.
const RELOADS: u32 = 230;

/// Most locks that are named.
const NAMED: usize = 5;

pub(super) fn reached(node: &Node) -> Vec<Finding> {
    let version = node.logind.systemd.map(|version| format!("systemd {version}"));
    let found = match (&node.logind.bus, &node.machine, version) {
        (Ok(()), _, version) => Finding::ok(
            "logind",
            version.unwrap_or_else(|| "answers; its version is not known".to_owned()),
        ),
        (Err(_), Machine::Image(_), Some(version)) => Finding::ok("logind", format!("{version}, by its files")),
        (Err(_), Machine::Image(_), None) => not_checked("logind", Unknown::new("no file of systemd was found", None)),
        (Err(reason), Machine::Live { .. }, version) => {
            let files = version
                .map(|version| format!(" ({version}, by its files)"))
                .unwrap_or_default();
            not_checked("logind", Unknown::new(format!("{reason}{files}"), None))
        }
    };
    let mut findings = vec![found];
    if node.logind.systemd.is_some_and(|version| version < RELOADS) {
        findings.push(Finding::note(
            "systemd version",
            "logind before systemd 230 does not read its configuration again: the kubelet cannot raise the inhibitor delay",
            Some(format!("set {KEY} in /etc/systemd/logind.conf yourself and boot, or upgrade systemd").into()),
        ));
    }
    findings
}

pub(super) fn delay(node: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let check = "inhibitor delay";
    let mut findings = Vec::new();
    if let Ok(conf) = &node.conf {
        findings.extend(mistakes(conf));
    }
    let Some(need) = kubelet.protection().map(|protection| protection.needed()) else {
        findings.push(not_checked(
            check,
            Unknown::new("how long the kubelet needs is not known", None),
        ));
        return findings;
    };
    if need.is_zero() {
        return findings;
    }
    findings.push(match (node.logind.limit, &node.conf) {
        (Some(limit), _) if limit >= need => Finding::ok(
            check,
            format!("{} in force, {} needed{}", shown(limit), shown(need), by_file(node)),
        ),
        (Some(limit), conf) => too_short(node, kubelet, &format!("{} in force", shown(limit)), need, conf.as_ref().ok()),
        (None, Ok(conf)) => configured(node, kubelet, conf, need),
        (None, Err(reason)) => not_checked(check, Unknown::new(reason.clone(), None)),
    });
    findings
}

/// The bus was not asked: what the files say.
fn configured(node: &Node, kubelet: &FoundKubelet, conf: &LogindConf, need: Duration) -> Finding {
    let check = "inhibitor delay";
    let delay = conf.delay();
    if let ConfiguredDelay::Unknown { reason } = delay {
        return not_checked(check, Unknown::new(reason, Some("run as root".into())));
    }
    let (value, by) = winner(&delay);
    if !conf.over_kubelets(need).is_empty() {
        return too_short(node, kubelet, &format!("{value} configured"), need, Some(conf));
    }
    let is_enough = matches!(delay.value(), Some(TimeSpan::Finite(value)) if value >= need);
    let message = match is_enough {
        true => format!("{value} configured{by}, {} needed", shown(need)),
        // The kubelet does this at each start.
        false => format!(
            "{value} configured{by}, {} needed: the kubelet raises it at its start (/etc/systemd/{DROP_INS}/{KUBELETS}), and \
             no other file overrides it",
            shown(need)
        ),
    };
    Finding::ok(check, message)
}

fn too_short(node: &Node, kubelet: &FoundKubelet, what: &str, need: Duration, conf: Option<&LogindConf>) -> Finding {
    let by = conf.map(|conf| winner(&conf.delay()).1).unwrap_or_default();
    let over = conf.map(|conf| conf.over_kubelets(need)).unwrap_or_default();
    let consequence = "the kubelet takes no lock, and a shutdown does not wait for pods";
    let remedy: Remedy = match (conf, over.is_empty()) {
        (_, false) => remedy(node, kubelet, &over).into(),
        (Some(_), true) => in_force(kubelet, Vec::new()).into(),
        (None, _) => "run `epitaph doctor` on the host: it names the file of logind.conf.d that sets the delay".into(),
    };
    let trouble = Trouble {
        code: SysExit::Config,
        problem: format!("{what}{by}, {} needed: {consequence}", shown(need)),
        remedy: Some(remedy),
    };
    Finding::problem("inhibitor delay", &trouble)
}

/// The value for people, and the file that sets it.
fn winner(delay: &ConfiguredDelay) -> (String, String) {
    match delay {
        ConfiguredDelay::Default => ("5 s".to_owned(), ", by default".to_owned()),
        ConfiguredDelay::Set { value, file, line } => {
            let value = match value {
                TimeSpan::Finite(value) => shown(*value),
                TimeSpan::Infinity => "infinity (which the kubelet reads as a negative number)".to_owned(),
            };
            (value, format!(" by {}:{line}", file.display()))
        }
        ConfiguredDelay::Unknown { .. } => (String::new(), String::new()),
    }
}

/// Only where the files say what is in force.
fn by_file(node: &Node) -> String {
    let Ok(conf) = &node.conf else {
        return String::new();
    };
    let delay = conf.delay();
    match (delay.value(), node.logind.limit) {
        (Some(TimeSpan::Finite(value)), Some(limit)) if value == limit => winner(&delay).1,
        _ => String::new(),
    }
}

/// What to do with files that are read after the kubelet's.
fn remedy(node: &Node, kubelet: &FoundKubelet, over: &[&Path]) -> String {
    let steps: Vec<String> = over.iter().map(|path| out_of_the_way(path)).collect();
    match node.machine {
        Machine::Image(_) => format!("in the image: {}", steps.join(" && ")),
        Machine::Live { .. } => in_force(kubelet, steps),
    }
}

/// After `steps`, logind reads its configuration, and then the kubelet takes its lock.
fn in_force(kubelet: &FoundKubelet, mut steps: Vec<String>) -> String {
    steps.push("systemctl kill -s HUP systemd-logind".to_owned());
    match kubelet.restart() {
        Some(restart) => {
            steps.push(restart);
            steps.join(" && ")
        }
        None => format!("{}, then {RESTART}", steps.join(" && ")),
    }
}

fn out_of_the_way(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match path.starts_with("/etc") || path.starts_with("/run") {
        // A package's file comes back: an entry of the same name in /etc hides it.
        false => format!("mkdir -p /etc/systemd/{DROP_INS} && ln -s /dev/null /etc/systemd/{DROP_INS}/{name}"),
        true => format!("rm {}", path.display()),
    }
}

/// Files that do not say what their authors meant.
fn mistakes(conf: &LogindConf) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((path, broken, after)) = conf.broken() {
        let line = match broken.line {
            0 => String::new(),
            line => format!(":{line}"),
        };
        findings.push(Finding::note(
            "logind.conf",
            format!(
                "systemd stops reading at {}{line}: {}; {after} later files do not count",
                path.display(),
                broken.reason
            ),
            Some("correct the file".into()),
        ));
    }
    findings.extend(conf.ignored().take(NAMED).map(|(path, line)| {
        let message = format!("{}:{line}: not a time span: systemd ignores this line", path.display());
        Finding::note(
            "logind.conf",
            message,
            Some(format!("write {KEY}= with a number of seconds, or remove the line").into()),
        )
    }));
    findings
}

pub(super) fn locks(node: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let mut findings = Vec::new();
    let needed = kubelet.protection().is_some_and(|protection| !protection.needed().is_zero());
    let check = "kubelet's lock";
    match (&node.logind, &node.machine) {
        (_, Machine::Image(_)) => findings.push(not_checked(check, Unknown::new("no logind runs in an image", None))),
        (Logind { locks: Err(reason), .. }, _) => findings.push(not_checked(check, Unknown::new(reason.clone(), None))),
        (Logind { locks: Ok(locks), .. }, _) => {
            let of_kubelet = locks.iter().find(|lock| lock.is_kubelets());
            match of_kubelet {
                Some(lock) => findings.push(Finding::ok(check, format!("held by pid {}", lock.pid))),
                None if needed => findings.push(Finding::problem(
                    check,
                    &Trouble {
                        code: SysExit::Config,
                        problem: "not held: a shutdown now would not wait for pods".to_owned(),
                        remedy: Some(
                            "look for `Failed to start node shutdown manager` in the kubelet's log; the kubelet does not try again: correct \
                             the inhibitor delay, then restart it"
                                .into(),
                        ),
                    },
                )),
                None => {}
            }
            findings.extend(others(locks));
        }
    }
    if let Some(scheduled) = &node.scheduled {
        findings.push(Finding::note(
            "scheduled shutdown",
            scheduled,
            Some("cancel it with shutdown -c".into()),
        ));
    }
    findings
}

fn others(locks: &[Inhibitor]) -> Vec<Finding> {
    let of_mode = |mode: fn(&Inhibitor) -> bool| -> Vec<String> {
        let fitting = locks
            .iter()
            .filter(|lock| lock.is_for_shutdown() && !lock.is_kubelets() && mode(lock));
        fitting
            .map(|lock| format!("`{}` (pid {}, uid {}: {})", lock.who, lock.pid, lock.uid, lock.why))
            .collect()
    };
    let listed = |names: &[String]| {
        let more = names.len().saturating_sub(NAMED);
        let shown = names[..names.len().min(NAMED)].join(", ");
        if more > 0 { format!("{shown} and {more} more") } else { shown }
    };
    let mut findings = Vec::new();
    let blocks = of_mode(|lock| matches!(lock.mode, InhibitMode::Block | InhibitMode::BlockWeak));
    if !blocks.is_empty() {
        findings.push(Finding::note(
            "block locks",
            format!(
                "held by {}: a shutdown is refused meanwhile, or must be forced, which can bypass logind",
                listed(&blocks)
            ),
            Some("end what holds the lock; `systemctl poweroff -i` ignores it and still goes through logind".into()),
        ));
    }
    let delays = of_mode(|lock| lock.mode == InhibitMode::Delay);
    if !delays.is_empty() {
        findings.push(Finding::ok("other delay locks", format!("held by {}", listed(&delays))));
    }
    findings
}
