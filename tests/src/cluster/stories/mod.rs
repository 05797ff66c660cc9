//! The deaths that are played on a real cluster: what is applied, what is done to it, and what must be said of it.

mod containers;
mod ends;
mod evictions;
mod hooks;
pub(crate) mod manifest;
mod restarts;
mod workloads;

use std::time::Duration;

use serde_json::Value;

/// All of them.
pub fn stories() -> impl Iterator<Item = &'static Story> {
    [
        ends::STORIES,
        hooks::STORIES,
        restarts::STORIES,
        evictions::STORIES,
        containers::STORIES,
        workloads::STORIES,
    ]
    .into_iter()
    .flatten()
}

/// Where they live.
pub const NAMESPACE: &str = "stories";

/// One death of one pod, which has the story's name.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// Kebab-case, unique.
    pub name: &'static str,
    /// What happens, in a line.
    pub what: &'static str,
    /// What is applied: given the story's name.
    pub manifest: fn(&str) -> Vec<Value>,
    /// When to begin with `acts`.
    pub from: From,
    pub acts: &'static [Act],
    /// It needs the cluster for itself.
    pub alone: bool,
    /// A switch of the kubelet's configuration that is on for this story; it is then alone.
    pub kubelet: Option<&'static str>,
    pub expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The pod is Ready.
    Ready,
    /// At once: it ends, or never becomes ready, by itself.
    Applied,
}

/// Something that is done, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// With this grace, or the pod's own; does not wait.
    Delete(Option<u32>),
    /// `--force --grace-period=0`.
    ForceDelete,
    /// By the Eviction API.
    Evict,
    /// A NoExecute taint on the pod's node, for as long as the pod is there.
    Taint,
    /// More manifests.
    Apply(fn(&str) -> Vec<Value>),
    Wait(Duration),
    /// Until the phase is Succeeded or Failed.
    UntilOver,
    /// Until a container of it was restarted.
    UntilRestarted,
    /// An ephemeral container, `debugger`, of the victim that handles its stop signal.
    Debug,
    /// A script in the node's own shell, with `$PID` the main process of container `app`.
    OnNode(&'static str),
    /// The agent's process is killed, and its DaemonSet starts it again.
    KillAgent,
    /// The agent's pod is deleted, as in a rollout of the DaemonSet, which makes the next.
    ReplaceAgent,
    /// The active observer's process is killed, and another takes over.
    KillObserver,
    /// Nobody can reach the API server for so long.
    StopApiServer(Duration),
}

/// What the trace must say.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Without the verdict, which the name ends with.
    pub root: &'static str,
    /// Of the root. `a|b`: either, where it depends on how slow the machine is.
    pub verdict: &'static str,
    pub cause: &'static str,
    /// Of each `container.stop`, by the container's name.
    pub containers: &'static [(&'static str, &'static str)],
    /// Containers that end before the pod's end, each once and with a trace of its own.
    pub earlier: &'static [&'static str],
    /// Spans that must be there besides.
    pub spans: &'static [&'static str],
    /// Spans and how long they last at least.
    pub lasts: &'static [(&'static str, Duration)],
    /// Words of the root's sentence.
    pub sentence: &'static [&'static str],
    /// Words of its remedy; there must be one where this is not empty.
    pub remedy: &'static [&'static str],
    /// Words of its advice.
    pub advice: &'static [&'static str],
    /// Another pod took its place, as this rule has it, and its Service's endpoint went.
    pub replaced: Option<&'static str>,
    /// Nothing of it may be told as incomplete, or as not seen.
    pub whole: bool,
}

/// A pod's end, asked for and clean.
pub(crate) const CLEAN: Expected = Expected {
    root: "pod.termination",
    verdict: "clean",
    cause: "deleted",
    containers: &[("app", "clean")],
    earlier: &[],
    spans: &["SIGTERM → exit"],
    lasts: &[],
    sentence: &["SIGTERM"],
    remedy: &[],
    advice: &[],
    replaced: None,
    whole: true,
};

/// One container, `app`, of which the pod's verdict is.
pub(crate) const fn one(verdict: &'static str, containers: &'static [(&'static str, &'static str)]) -> Expected {
    Expected {
        verdict,
        containers,
        ..CLEAN
    }
}

/// A pod that is deleted once it is ready.
pub(crate) const fn deleted(
    name: &'static str,
    what: &'static str,
    manifest: fn(&str) -> Vec<Value>,
    expected: Expected,
) -> Story {
    Story {
        name,
        what,
        manifest,
        from: From::Ready,
        acts: &[Act::Delete(None)],
        alone: false,
        kubelet: None,
        expected,
    }
}
