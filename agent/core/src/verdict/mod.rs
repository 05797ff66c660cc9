//! Verdict: three axes, one constant table from axes to headline, a sentence and a remedy.

pub mod advice;
mod case;
mod cut;
mod disagreement;
mod evidence;
pub mod held;
pub mod judge;
pub mod node;
mod own_time;
mod pod;
mod sentence;
mod spent;
pub mod table;
mod tell;
#[cfg(test)]
mod tests;
mod words;

use serde::Serialize;

use crate::event::Kind;
use crate::time::Boot;

pub use crate::axes::{Cause, Exit, ShutdownOutcome, TrafficAxis};
pub use advice::{Advice, AdviceKind};
pub use case::Case;
pub use cut::is_grace_cut;
pub use disagreement::{Disagreement, Said, Was};
pub use judge::{Judgement, judge};
pub use node::{ShutdownVerdict, judge_shutdown};
pub use pod::judge_pod;
pub use sentence::{OBSERVATION_ENDED, Remedy, discarded_inside, ignored, in_container, raised_in_vain, remedies, remedies_of};
pub use tell::tell;
pub use words::{of_role as oom_role, peer_name, seconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

/// One piece of proof: which probe saw what, when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub at: Boot,
    #[serde(serialize_with = "source_name")]
    pub source: Source,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    Probe(Kind),
    /// The Kubernetes API: its times are the arrival of an answer, or whole seconds.
    Kubernetes,
    /// logind and systemd on the bus: their times are the arrival of a message.
    Bus,
    /// The kubelet's files.
    Kubelet,
}

impl Source {
    /// The probe's tracepoint (`signal_generate`), `kubernetes`, `dbus` or `kubelet`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Probe(kind) => kind.name(),
            Source::Kubernetes => "kubernetes",
            Source::Bus => "dbus",
            Source::Kubelet => "kubelet",
        }
    }
}

impl From<Kind> for Source {
    fn from(kind: Kind) -> Source {
        Source::Probe(kind)
    }
}

fn source_name<S: serde::Serializer>(source: &Source, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(source.name())
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// From the table: `clean`, `ignored-stop-signal`, `refused-connections`, …
    pub headline: &'static str,
    pub cause: Cause,
    pub exit: Exit,
    pub traffic: TrafficAxis,
    pub unclean: bool,
    pub severity: Severity,
    /// One plain sentence with the measured times.
    pub sentence: String,
    /// What to change, with a number where one was measured.
    pub remedy: Option<String>,
    /// Settings to improve, by measurement; also for a clean exit.
    pub advice: Vec<Advice>,
    /// What kubectl shows of the exit, where the kernel recorded something else. Of a pod: of the container that gives the verdict.
    #[serde(skip)]
    pub disagreement: Option<Disagreement>,
    /// In order of time.
    pub evidence: Vec<Evidence>,
}

/// A case with its verdict: what a pod's verdict is made of.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    pub case: Case<'a>,
    pub verdict: &'a Verdict,
}
