//! logind: is it there, how long does it wait, and for whom.

use std::path::Path;
use std::time::Duration;

use epitaph_core::node::{InhibitMode, Inhibitor};

use super::{FoundKubelet, Logind, Machine, Node, RESTART, Unknown, not_checked, shown};
use crate::cli::SysExit;
use crate::doctor::{Finding, Trouble};
use crate::error::Remedy;
use crate::source::systemd::TimeSpan;
use crate::source::systemd::conf::{ConfiguredDelay, DROP_INS, KEY, KUBELETS, LogindConf, Obstacle};

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
            Some(by_hand()),
        ));
    }
    findings
}

pub(super) fn delay(node: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let check = "inhibitor delay";
    let Some(need) = kubelet.protection().map(|protection| protection.needed()) else {
        return configured_only(node);
    };
    let mut findings = mistakes(node);
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

/// Where the kubelet's periods are not known.
pub(super) fn configured_only(node: &Node) -> Vec<Finding> {
    let delay = node.conf.as_ref().ok().map(LogindConf::delay);
    let set = match (node.logind.limit, delay) {
        (Some(limit), _) => format!("{} in force; ", shown(limit)),
        (None, Some(delay)) if delay.value().is_some() => {
            let (value, by) = winner(&delay);
            format!("{value} configured{by}; ")
        }
        _ => String::new(),
    };
    let reason = format!("{set}how long the kubelet needs is not known");
    let mut findings = mistakes(node);
    findings.push(not_checked("inhibitor delay", Unknown::new(reason, None)));
    findings
}

/// The bus was not asked: what the files say.
fn configured(node: &Node, kubelet: &FoundKubelet, conf: &LogindConf, need: Duration) -> Finding {
    let check = "inhibitor delay";
    let delay = conf.delay();
    if let ConfiguredDelay::Unknown { reason, remedy } = delay {
        return not_checked(check, Unknown::new(reason, Some(remedy.into())));
    }
    let (value, by) = winner(&delay);
    let message = format!("{value} configured{by}, {} needed", shown(need));
    if matches!(delay.value(), Some(TimeSpan::Finite(value)) if value >= need) {
        return Finding::ok(check, message);
    }
    if !conf.obstacles(need).is_empty() {
        return too_short(node, kubelet, &format!("{value} configured"), need, Some(conf));
    }
    if node.logind.systemd.is_some_and(|version| version < RELOADS) {
        let reason = format!("{message}: whether this logind comes to know what the kubelet writes is not known");
        return not_checked(check, Unknown::new(reason, Some(by_hand())));
    }
    // The kubelet does this at each start.
    let raises =
        format!("the kubelet raises it at its start (/etc/systemd/{DROP_INS}/{KUBELETS}), and no other file overrides it");
    Finding::ok(check, format!("{message}: {raises}"))
}

fn by_hand() -> Remedy {
    format!("set {KEY} in /etc/systemd/logind.conf yourself and reboot, or upgrade systemd").into()
}

fn too_short(node: &Node, kubelet: &FoundKubelet, what: &str, need: Duration, conf: Option<&LogindConf>) -> Finding {
    let by = conf.map(|conf| winner(&conf.delay()).1).unwrap_or_default();
    let obstacles = conf.map(|conf| conf.obstacles(need)).unwrap_or_default();
    let lost = obstacles.iter().find_map(|obstacle| match obstacle {
        Obstacle::Lost { path, .. } => Some(format!("what the kubelet writes to {} is lost, ", path.display())),
        Obstacle::Broken { .. } | Obstacle::Over { .. } => None,
    });
    let lost = lost.unwrap_or_default();
    let consequence = "the kubelet takes no lock, and a shutdown does not wait for pods";
    let remedy: Remedy = match (conf, obstacles.is_empty()) {
        (_, false) => remedy(node, kubelet, &obstacles).into(),
        (Some(_), true) => in_force(kubelet, Vec::new()).into(),
        (None, _) => "run `epitaph doctor` on the host: it names the file of logind.conf.d that sets the delay".into(),
    };
    let trouble = Trouble {
        code: SysExit::Config,
        problem: format!("{what}{by}, {} needed: {lost}{consequence}", shown(need)),
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

/// What to do with the files in the kubelet's way. What a person has to edit comes before the commands.
fn remedy(node: &Node, kubelet: &FoundKubelet, obstacles: &[Obstacle]) -> String {
    let edits: Vec<String> = obstacles.iter().filter_map(edit).collect();
    let steps: Vec<String> = obstacles.iter().filter_map(out_of_the_way).collect();
    let commands = match node.machine {
        Machine::Image(_) => steps.join(" && "),
        Machine::Live { .. } => in_force(kubelet, steps),
    };
    let all = [edits.join(" and "), commands].into_iter().filter(|part| !part.is_empty());
    let all = all.collect::<Vec<_>>().join(", then ");
    match node.machine {
        Machine::Image(_) => format!("in the image: {all}"),
        Machine::Live { .. } => all,
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

fn edit(obstacle: &Obstacle) -> Option<String> {
    match obstacle {
        Obstacle::Broken { path, line } => Some(format!("correct {}", place(path, *line))),
        Obstacle::Lost { .. } | Obstacle::Over { .. } => None,
    }
}

fn out_of_the_way(obstacle: &Obstacle) -> Option<String> {
    let path = match obstacle {
        Obstacle::Broken { .. } => return None,
        Obstacle::Lost {
            path,
            is_directory: true,
        } => return Some(format!("rm -r {}", quoted(path))),
        Obstacle::Lost { path, .. } => return Some(format!("rm {}", quoted(path))),
        Obstacle::Over { path, .. } => path,
    };
    let is_hiding = matches!(obstacle, Obstacle::Over { hides: true, .. });
    let mask = Path::new("/etc/systemd")
        .join(DROP_INS)
        .join(path.file_name().unwrap_or_default());
    Some(match path.starts_with("/etc") {
        true if is_hiding => format!("ln -sf /dev/null {}", quoted(path)),
        false if is_hiding || !path.starts_with("/run") => {
            // A package's file comes back: an entry of the same name in /etc hides it.
            format!("mkdir -p /etc/systemd/{DROP_INS} && ln -s /dev/null {}", quoted(&mask))
        }
        _ => format!("rm {}", quoted(path)),
    })
}

/// For a shell.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:+,".contains(c);
    match path.chars().all(is_plain) {
        true => path.into_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// A line of a file; 0 is the whole file.
fn place(path: &Path, line: usize) -> String {
    match line {
        0 => path.display().to_string(),
        line => format!("{}:{line}", path.display()),
    }
}

/// Files that do not say what their authors meant.
fn mistakes(node: &Node) -> Vec<Finding> {
    let check = "logind.conf";
    let Ok(conf) = &node.conf else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if let Some((path, broken, after)) = conf.broken() {
        findings.push(Finding::note(
            check,
            format!(
                "systemd stops reading at {}: {}; later files do not count ({after})",
                place(path, broken.line),
                broken.reason
            ),
            Some("correct the file".into()),
        ));
    }
    let ignored = conf.ignored();
    findings.extend(ignored.iter().take(NAMED).map(|(path, line, reason)| {
        let message = format!("{}: {reason}: systemd ignores this line", place(path, *line));
        let remedy = format!("write {KEY}= with a number of seconds below [Login], or remove the line");
        Finding::note(check, message, Some(remedy.into()))
    }));
    if ignored.len() > NAMED {
        let message = format!("{} more lines that systemd ignores", ignored.len() - NAMED);
        findings.push(Finding::note(check, message, None));
    }
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
