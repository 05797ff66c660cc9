//! Would this node shut its pods down gracefully? Facts in, findings out, as for the machine; for a mounted image, too.
//!
//! What could not be read is a finding of status `unknown`, never `ok`.

mod budget;
mod commands;
mod journal;
mod kubelet;
mod logind;
mod ready;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use epitaph_core::node::{BusState, Inhibitor, KubeletShutdown, NodeEvent};
use epitaph_core::time::WallOffset;

use super::{Finding, Topic, Trouble};
use crate::error::Remedy;
use crate::source::kubelet::{Configured, Located, Origin};
use crate::source::pods::PodGrace;
use crate::source::systemd::conf::LogindConf;

pub use journal::{Journal, NotWritable, none as no_journal};
pub use ready::{Readiness, ReadyCheck, ReadyState};

/// The node's facts.
#[derive(Clone, Debug)]
pub struct Node {
    pub machine: Machine,
    pub kubelet: Kubelet,
    pub logind: Logind,
    /// logind's configuration; otherwise why it is not known.
    pub conf: Result<LogindConf, String>,
    /// The pods of this node; otherwise why they are not known.
    pub pods: Result<Vec<PodGrace>, Unknown>,
    /// A shutdown that is scheduled, as logind writes it.
    pub scheduled: Option<String>,
    /// The directory of the agent's journal; None if none is configured.
    pub journal: Option<Journal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    Live {
        wall_offset: WallOffset,
    },
    /// A mounted image: no process, no bus, no pods.
    Image(PathBuf),
}

#[derive(Clone, Debug)]
pub enum Kubelet {
    Found(Box<FoundKubelet>),
    /// Its files are not visible here, or which they are is not known.
    Unknown(Unknown),
    /// No kubelet runs, and neither its program nor its unit nor a distribution's files exist.
    None,
}

#[derive(Clone, Debug)]
pub struct FoundKubelet {
    pub located: Located,
    /// Of the package: `1.34.1-1.1`.
    pub version: Option<String>,
    pub configured: Result<Configured, Trouble>,
}

/// Why something is not known, and what would make it known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub reason: String,
    pub remedy: Option<Remedy>,
}

impl Unknown {
    pub fn new(reason: impl Into<String>, remedy: Option<Remedy>) -> Unknown {
        let reason = reason.into();
        Unknown { reason, remedy }
    }
}

/// logind, as the bus shows it or as its files do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logind {
    /// Whether the bus was asked, and answered; otherwise why not.
    pub bus: Result<(), String>,
    pub systemd: Option<u32>,
    /// `InhibitDelayMaxUSec` as in force: only the bus knows it.
    pub limit: Option<Duration>,
    pub locks: Result<Vec<Inhibitor>, String>,
}

impl Logind {
    /// From what the source of logind's events reports: the complete states, the latest of each.
    pub fn of_events<'a>(events: impl IntoIterator<Item = &'a NodeEvent>) -> Logind {
        let mut found = Logind {
            bus: Err("logind was not asked".to_owned()),
            systemd: None,
            limit: None,
            locks: Err("logind was not asked".to_owned()),
        };
        for event in events {
            match event {
                NodeEvent::Bus { state } => match state {
                    BusState::Connected { systemd, .. } => {
                        found.bus = Ok(());
                        found.systemd = *systemd;
                    }
                    BusState::Unavailable { reason } => found.away(reason),
                    BusState::Off => found.away("the source of logind's events is off"),
                },
                NodeEvent::DelayLimit { limit } => found.limit = Some(*limit),
                NodeEvent::Inhibitors { locks } => found.locks = Ok(locks.clone()),
                _ => {}
            }
        }
        found
    }

    /// What was known before is not in force any more.
    fn away(&mut self, reason: &str) {
        self.bus = Err(reason.to_owned());
        self.locks = Err(reason.to_owned());
        self.limit = None;
    }
}

/// In the order of the output.
const CHECKS: [fn(&Node, &FoundKubelet) -> Vec<Finding>; 8] = [
    kubelet::found,
    kubelet::configuration,
    kubelet::periods,
    |node, _| logind::reached(node),
    logind::delay,
    logind::locks,
    |node, _| commands::check(node),
    budget::check,
];

pub fn examine(node: &Node) -> Vec<Finding> {
    let mut findings = match &node.kubelet {
        Kubelet::Found(found) => CHECKS.iter().flat_map(|check| check(node, found)).collect(),
        Kubelet::Unknown(unknown) => {
            let mut findings = vec![not_checked("kubelet", unknown.clone())];
            findings.extend(logind::reached(node));
            if node.conf.is_ok() {
                findings.extend(logind::configured_only(node));
            }
            findings.extend(commands::check(node));
            findings
        }
        // Not a node of Kubernetes: there is nothing to protect.
        Kubelet::None => vec![Finding::note(
            "kubelet",
            format!(
                "{}: no program, unit or known configuration of a kubelet was found, and nothing is to be checked of a node's shutdown",
                match &node.machine {
                    Machine::Live { .. } => "no kubelet runs".to_owned(),
                    Machine::Image(root) => format!("no node's image in {}", root.display()),
                }
            ),
            None,
        )],
    };
    for finding in &mut findings {
        finding.topic = Topic::Shutdown;
    }
    findings.extend(node.journal.as_ref().map(journal::finding));
    findings
}

fn not_checked(check: impl Into<String>, unknown: Unknown) -> Finding {
    Finding::unknown(check, unknown.reason, unknown.remedy)
}

/// Where the name of the kubelet's unit is not known.
const RESTART: &str = "restart the kubelet's service";

impl FoundKubelet {
    /// The command, if the unit is known: k3s, RKE2, MicroK8s and k0s have a kubelet in services of other names.
    fn restart(&self) -> Option<String> {
        let Origin::Process { unit: Some(unit), .. } = &self.located.origin else {
            return None;
        };
        let unit = unit.strip_suffix(".service").unwrap_or(unit);
        Some(format!("systemctl restart {unit}"))
    }

    /// The periods, where the configuration is known and valid.
    fn protection(&self) -> Option<KubeletShutdown> {
        let configured = self.configured.as_ref().ok()?;
        configured.shutdown.refused.is_none().then(|| configured.protection())
    }
}

/// For people: `30 s`, `1.5 s`.
fn shown(period: Duration) -> String {
    format!("{} s", period.as_secs_f64())
}
