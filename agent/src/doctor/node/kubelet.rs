//! The kubelet's configuration.

use std::time::Duration;

use epitaph_core::node::{CRITICAL_PRIORITY, KubeletShutdown, PriorityPeriod};

use super::{FoundKubelet, Machine, Node, RESTART, Unknown, not_checked, shown};
use crate::cli::SysExit;
use crate::doctor::{Finding, Trouble};
use crate::error::Remedy;
use crate::source::kubelet::Origin;

/// The clock of a file system is coarser than the start of a process.
const SLACK: Duration = Duration::from_secs(1);

pub(super) fn found(node: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let place = kubelet.located.place.map(|place| format!(", distribution {}", place.name));
    let place = place.unwrap_or_default();
    let version = kubelet.version.as_ref().map(|version| format!(", package {version}"));
    let version = version.unwrap_or_default();
    let message = match (&kubelet.located.origin, &node.machine) {
        (Origin::Process { pid, start, .. }, Machine::Live { wall_offset }) => {
            format!(
                "pid {pid}, started {}{place}{version}",
                wall_offset.wall(*start).rfc3339_millis()
            )
        }
        (Origin::Answer, _) => "answers; its configuration is that in force".to_owned(),
        (Origin::Settings, _) => "its files are those of the settings `kubelet.*`".to_owned(),
        (_, Machine::Image(root)) => format!("files in {}{place}{version}", root.display()),
        _ => format!("not running; its files are there{place}{version}"),
    };
    let mut findings = vec![Finding::ok("kubelet", message)];
    findings.extend(faults(kubelet.version.as_deref()));
    findings
}

/// Known faults of versions.
fn faults(version: Option<&str>) -> Option<Finding> {
    let (major, minor) = minor(version?)?;
    let (message, remedy): (_, Remedy) = match (major, minor) {
        (1, ..=20) => (
            "this kubelet manages no shutdown unless the feature gate GracefulNodeShutdown is switched on",
            "upgrade to 1.21 or later".into(),
        ),
        (1, 22..=27) => (
            "this kubelet gives a container its whole grace period again after preStop: pods with a preStop hook can outlast their phase \
             (kubernetes/kubernetes#115817)",
            "upgrade to 1.28.3 or later, or make the periods longer by the time of the hooks".into(),
        ),
        _ => return None,
    };
    Some(Finding::note("kubelet version", message, Some(remedy)))
}

/// `1.27.3-00` and `v1.27.3+k3s1` are 1, 27.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn configuration(node: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let check = "kubelet configuration";
    let configured = match &kubelet.configured {
        Ok(configured) => configured,
        Err(trouble) if trouble.code == SysExit::NoPerm => {
            return vec![not_checked(check, Unknown::new(&*trouble.problem, trouble.remedy.clone()))];
        }
        Err(trouble) => return vec![Finding::problem(check, trouble)],
    };
    if let Some(reason) = configured.shutdown.refused {
        let trouble = Trouble {
            code: SysExit::Config,
            problem: format!("the kubelet does not start with it: {reason}"),
            remedy: Some(match reason.split_once("the feature gate ") {
                Some((_, gate)) => format!("set the feature gate {gate} to true").into(),
                None => "correct the periods".into(),
            }),
        };
        return vec![Finding::problem(check, &trouble)];
    }
    let files = configured.protection().source;
    let mut findings = vec![Finding::ok(check, &files)];
    findings.push(match (&node.machine, &kubelet.located.origin, &configured.modified) {
        (Machine::Live { wall_offset }, Origin::Process { start, .. }, Some((path, modified))) => {
            let start = wall_offset.wall(*start);
            if modified.0 > start.0.saturating_add(SLACK.as_nanos() as u64) {
                let trouble = Trouble {
                    code: SysExit::Config,
                    problem: format!(
                        "{} was changed at {}, after the kubelet started: which configuration is in force is not known",
                        path.display(),
                        modified.rfc3339_millis()
                    ),
                    remedy: Some(
                        format!(
                            "{} (running containers are not affected)",
                            kubelet.restart().unwrap_or_else(|| RESTART.to_owned())
                        )
                        .into(),
                    ),
                };
                Finding::problem("in force", &trouble)
            } else {
                Finding::ok("in force", "the kubelet started after the last change")
            }
        }
        (_, Origin::Answer, _) => Finding::ok("in force", "as the kubelet itself answers"),
        (Machine::Live { .. }, Origin::Process { .. }, None) => Finding::ok("in force", "the kubelet reads no file"),
        (Machine::Image(_), ..) => not_checked("in force", Unknown::new("no kubelet runs in an image", None)),
        _ => not_checked("in force", Unknown::new("no process of the kubelet is visible here", None)),
    });
    findings
}

/// Whether pods get time, those that are not critical, too.
pub(super) fn protects(protection: &KubeletShutdown) -> bool {
    // Pods below all phases are in the first one.
    let is_for_others = |(at, phase): (usize, &PriorityPeriod)| at == 0 || phase.priority < CRITICAL_PRIORITY;
    let phases = protection.phases();
    let mut others = phases.iter().enumerate().filter(|phase| is_for_others(*phase));
    others.any(|(_, phase)| !phase.period.is_zero())
}

const NOTHING_LEFT: &str = "nothing is left for other pods, which are killed at once";

pub(super) fn periods(_: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let check = "grace periods";
    let Some(protection) = kubelet.protection() else {
        let reason = match kubelet.configured {
            Ok(_) => "the kubelet does not start with its configuration",
            Err(_) => "the configuration is not known",
        };
        return vec![not_checked(check, Unknown::new(reason, None))];
    };
    let phases = protection.phases();
    if protection.needed().is_zero() {
        let is_off = kubelet.configured.as_ref().is_ok_and(|configured| configured.shutdown.is_off);
        let (problem, gate) = match (is_off, protection.by_priority.is_empty()) {
            (true, _) => (
                "the feature gate GracefulNodeShutdown is off: no pod is protected",
                "set the feature gate GracefulNodeShutdown to true; ",
            ),
            (false, true) => (
                "both periods are zero, the default: no pod is protected; a shutdown kills all of them at once",
                "",
            ),
            (false, false) => (
                "the periods of all priorities are zero: no pod is protected; a shutdown kills all of them at once",
                "",
            ),
        };
        let advice = kubelet
            .located
            .place
            .map(|place| format!(" ({})", place.advice))
            .unwrap_or_default();
        let periods = match protection.by_priority.is_empty() {
            true => "set shutdownGracePeriod, such as 60s, and shutdownGracePeriodCriticalPods, such as 20s",
            false => "give each priority a period",
        };
        let remedy = format!("{gate}{periods}{advice}");
        let trouble = Trouble {
            code: SysExit::Config,
            problem: problem.to_owned(),
            remedy: Some(remedy.into()),
        };
        return vec![Finding::problem(check, &trouble)];
    }
    if !protection.by_priority.is_empty() {
        let shown: Vec<String> = phases
            .iter()
            .map(|phase| format!("{} from priority {}", shown(phase.period), phase.priority))
            .collect();
        let message = format!("{} in all: {}", super::shown(protection.needed()), shown.join(", "));
        let empty: Vec<String> = phases
            .iter()
            .filter(|phase| phase.period.is_zero())
            .map(|phase| phase.priority.to_string())
            .collect();
        let remedy: Remedy = "give each priority a period".into();
        return vec![if !protects(&protection) {
            let trouble = Trouble {
                code: SysExit::Config,
                problem: format!("{message}: {NOTHING_LEFT}"),
                remedy: Some(remedy),
            };
            Finding::problem(check, &trouble)
        } else if empty.is_empty() {
            Finding::ok(check, message)
        } else {
            let message = format!("{message}; pods from priority {} have no time at all", empty.join(" and "));
            Finding::note(check, message, Some(remedy))
        }];
    }
    let (total, critical) = (protection.total, protection.critical);
    let message = format!(
        "{} in all, the last {} for critical pods (priority {CRITICAL_PRIORITY} and above)",
        shown(total),
        shown(critical)
    );
    vec![if critical.is_zero() {
        Finding::note(
            check,
            format!(
                "{}, nothing of it for critical pods: they are killed at the end, epitaph among them",
                shown(total)
            ),
            Some("set shutdownGracePeriodCriticalPods, such as 20s, below shutdownGracePeriod".into()),
        )
    } else if !protects(&protection) {
        let trouble = Trouble {
            code: SysExit::Config,
            problem: format!("{message}: {NOTHING_LEFT}"),
            remedy: Some("set shutdownGracePeriodCriticalPods below shutdownGracePeriod".into()),
        };
        Finding::problem(check, &trouble)
    } else {
        Finding::ok(check, message)
    }]
}
