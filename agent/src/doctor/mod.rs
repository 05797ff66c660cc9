//! Can this machine be observed, and would this node ([`node`]) shut its pods down gracefully? Facts in, findings out: what works, what
//! is missing, and the remedy.
//!
//! Each check is a function in [`CHECKS`] or [`node`]'s. Pure: `runtime` gathers the facts and shows the findings.

mod checks;
pub mod node;
mod show;

use std::path::PathBuf;

use epitaph_core::input::{CgroupMode, ProbeState};
use epitaph_core::time::{Boot, WallOffset};

use crate::cli::SysExit;
use crate::error::Remedy;
use crate::source::kernel::{Fitting, Rights};

pub use show::{json, text};

/// The machine's facts. Errors are text: they are shown, not handled.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Content of `/proc/sys/kernel/osrelease`.
    pub kernel: Result<String, String>,
    /// Path of the kernel's type information.
    pub btf: Result<PathBuf, Trouble>,
    pub rights: Rights,
    pub probes: Probes,
    pub cgroups: Result<Cgroups, Trouble>,
    pub proc: PathBuf,
    /// Whether `proc` shows other processes than our own.
    pub shows_others: bool,
    pub now: Boot,
    pub wall_offset: WallOffset,
    /// None: the agent here writes no Epitaphs, or nothing here may ask the API server.
    pub epitaphs: Option<ServedKinds>,
}

/// Which of the custom resources the API server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedKinds {
    All,
    /// Names of those that are missing.
    Without(Vec<&'static str>),
    /// No answer, and why.
    Unknown(String),
}

/// The probes, after an attempt to load and attach all of them.
#[derive(Clone, Debug)]
pub enum Probes {
    Tried {
        states: Vec<(String, ProbeState)>,
        /// If the probes have less memory than they can use: the smaller parts, and the remedy.
        shrunk: Option<(String, &'static str)>,
    },
    /// No probe could be loaded. `fitting`: by the probe's name, what the kernel lacks for the probe.
    Refused { trouble: Trouble, fitting: Vec<Fitting> },
}

#[derive(Clone, Debug)]
pub struct Cgroups {
    /// Mount point of the hierarchy that identifies tasks.
    pub mount: PathBuf,
    pub mode: CgroupMode,
}

/// A failure: the problem, the remedy, and the exit code of a command with this failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub code: SysExit,
    pub problem: String,
    pub remedy: Option<Remedy>,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The checked thing: `kernel`, `probe signal_generate`.
    pub check: String,
    pub topic: Topic,
    pub status: Status,
    pub message: String,
    pub remedy: Option<Remedy>,
}

/// Which question a finding answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Can this machine be observed?
    Observation,
    /// Would this node shut its pods down gracefully?
    Shutdown,
    /// Can the agent write its journal, and does the journal outlive a reboot?
    Journal,
}

impl Topic {
    pub const fn name(self) -> &'static str {
        match self {
            Topic::Observation => "observation",
            Topic::Shutdown => "shutdown",
            Topic::Journal => "journal",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// Some evidence is not available here; verdicts report it as unknown. Of a shutdown: worth knowing, and no reason to fail.
    Note,
    /// The check was not possible here.
    Unknown,
    /// The agent does not work here, or a shutdown would not wait for the pods; the code for scripts.
    Problem(SysExit),
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Note => "note",
            Status::Unknown => "unknown",
            Status::Problem(_) => "problem",
        }
    }
}

impl Finding {
    fn ok(check: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding {
            check: check.into(),
            topic: Topic::Observation,
            status: Status::Ok,
            message: message.into(),
            remedy: None,
        }
    }

    fn note(check: impl Into<String>, message: impl Into<String>, remedy: Option<Remedy>) -> Finding {
        Finding {
            status: Status::Note,
            remedy,
            ..Finding::ok(check, message)
        }
    }

    fn unknown(check: impl Into<String>, message: impl Into<String>, remedy: Option<Remedy>) -> Finding {
        Finding {
            status: Status::Unknown,
            ..Finding::note(check, message, remedy)
        }
    }

    fn problem(check: impl Into<String>, trouble: &Trouble) -> Finding {
        Finding {
            status: Status::Problem(trouble.code),
            remedy: trouble.remedy.clone(),
            ..Finding::ok(check, trouble.problem.clone())
        }
    }
}

/// In the order of the output: a check comes before those that depend on it.
const CHECKS: [fn(&Facts) -> Vec<Finding>; 8] = [
    checks::kernel,
    checks::btf,
    checks::capabilities,
    checks::probes,
    checks::proc,
    checks::cgroups,
    checks::clock,
    checks::epitaphs,
];

pub fn examine(facts: &Facts) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(facts)).collect()
}

/// The exit code: of the first problem, or 0.
pub fn code(findings: &[Finding]) -> SysExit {
    let problem = findings.iter().find_map(|finding| match finding.status {
        Status::Problem(code) => Some(code),
        Status::Ok | Status::Note | Status::Unknown => None,
    });
    problem.unwrap_or(SysExit::Ok)
}

#[cfg(test)]
mod tests;
