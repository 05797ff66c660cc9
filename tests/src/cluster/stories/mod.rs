//! The terminations that are played on a real cluster: the manifests, the acts, and the expected reports.

mod containers;
mod ends;
mod evictions;
mod holding;
mod hooks;
pub(crate) mod manifest;
mod ooms;
mod programs;
mod restarts;
mod workloads;

use std::time::Duration;

use serde_json::Value;

use crate::cluster::images;

/// Of a container, the kernel's OOM killer ends the process that it chose, and no other.
const SINGLE_KILL: &str = r#"{"singleProcessOOMKill": true}"#;

/// All of them.
pub fn stories() -> impl Iterator<Item = &'static Story> {
    [
        ends::STORIES,
        hooks::STORIES,
        holding::STORIES,
        restarts::STORIES,
        ooms::STORIES,
        evictions::STORIES,
        containers::STORIES,
        workloads::STORIES,
        programs::STORIES,
    ]
    .into_iter()
    .flatten()
}

/// What this machine lacks for the story.
pub fn lacks(story: &Story) -> Option<&'static str> {
    let is_of_programs = programs::STORIES.iter().any(|of| of.name == story.name);
    (is_of_programs && !images::programs_are_here()).then_some("a program of its image is not installed")
}

/// The pods' namespace.
pub const NAMESPACE: &str = "stories";

/// The termination of one pod, which has the story's name.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// Kebab-case, unique.
    pub name: &'static str,
    /// What happens, in a line.
    pub what: &'static str,
    /// The manifests, given the story's name.
    pub manifest: fn(&str) -> Vec<Value>,
    /// When to begin with `acts`.
    pub from: From,
    pub acts: &'static [Act],
    /// The story needs the cluster for itself.
    pub alone: bool,
    /// Settings of the kubelets' configuration for this story, which then runs alone: a JSON object. Its keys are removed afterwards.
    pub kubelet: Option<&'static str>,
    pub expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The pod is Ready.
    Ready,
    /// At once: the pod exits, or never becomes ready, by itself.
    Applied,
}

/// One act; acts follow one another.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// With this grace, or the pod's own; does not wait.
    Delete(Option<u32>),
    /// `--force --grace-period=0`.
    ForceDelete,
    /// By the Eviction API, with this grace in its `deleteOptions`, or the pod's own.
    Evict(Option<u32>),
    /// `kubectl drain --grace-period` of the pod's node, of this pod alone.
    Drain(u32),
    /// A NoExecute taint on the pod's node, for as long as the pod is there.
    Taint,
    /// More manifests.
    Apply(fn(&str) -> Vec<Value>),
    Wait(Duration),
    /// Until the phase is Succeeded or Failed.
    UntilOver,
    /// Until a container of it was restarted.
    UntilRestarted,
    /// Until the Event `TerminationHeld` of the pod has these words; then the pod's finalizers are removed.
    UntilHeld(&'static str),
    /// An ephemeral container, `debugger`, of the victim that handles its stop signal.
    Debug,
    /// Deletes what these manifests name.
    Remove(fn(&str) -> Vec<Value>),
    /// The pod `NAME-clients`, which calls the Service `NAME` until [`Expected::clients`] is compared; returns while it calls.
    Clients(&'static [&'static str]),
    /// A script in the node's own shell, with `$PID` the main process of container `app` and `$POD` the pod's UID.
    OnNode(&'static str),
    /// The kubelet of the pod's node evicts below so many MiB more than the node has now; the story names `evictionHard` in `kubelet`.
    LackMemory(u64),
    /// The agent's process is killed, and its DaemonSet starts it again.
    KillAgent,
    /// The agent's pod is deleted, as in a rollout of the DaemonSet, which makes the next.
    ReplaceAgent,
    /// The active observer's process is killed, and another takes over.
    KillObserver,
    /// The API server is unreachable for so long.
    StopApiServer(Duration),
}

/// What the trace must show.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Without the verdict, which the name ends with.
    pub root: &'static str,
    /// The root's verdict. `a|b`: either, depending on the speed of the machine.
    pub verdict: &'static str,
    pub cause: &'static str,
    /// Of each `container.stop`, by the container's name.
    pub containers: &'static [(&'static str, &'static str)],
    /// Containers that exit before the pod's termination, each once and with a trace of its own.
    pub earlier: &'static [&'static str],
    /// Further spans that must be there.
    pub spans: &'static [&'static str],
    /// Spans and how long they last at least.
    pub lasts: &'static [(&'static str, Duration)],
    /// Words of the root's sentence.
    pub sentence: &'static [&'static str],
    /// Words that the root's sentence has if this span lasts at least so long, and else not.
    pub sentence_if_lasts: Option<(&'static str, Duration, &'static str)>,
    /// Words of its remedy; if not empty, there must be a remedy.
    pub remedy: &'static [&'static str],
    /// Words of its advice.
    pub advice: &'static [&'static str],
    /// Terminations of other containers of a pod that goes on: one trace each, and no more of these containers.
    pub beside: &'static [Beside],
    /// Container of `beside` whose lost connections are those of the clients' own log.
    pub clients: Option<&'static str>,
    /// Another pod replaced the pod, by this rule, and its Service's endpoint was removed.
    pub replaced: Option<&'static str>,
    /// No report may be marked incomplete or unseen.
    pub whole: bool,
}

/// A termination with a trace of its own, beside the one that the story is about.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    pub container: &'static str,
    pub verdict: &'static str,
    pub cause: &'static str,
    /// Words of its sentence.
    pub sentence: &'static [&'static str],
}

/// A pod's clean termination after a deletion request.
pub(crate) const CLEAN: Expected = Expected {
    root: "pod.termination",
    verdict: "clean",
    cause: "deleted",
    containers: &[("app", "clean")],
    earlier: &[],
    spans: &["SIGTERM → exit"],
    lasts: &[],
    sentence: &["SIGTERM"],
    sentence_if_lasts: None,
    remedy: &[],
    advice: &[],
    beside: &[],
    clients: None,
    replaced: None,
    whole: true,
};

/// One container, `app`, which decides the pod's verdict.
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A node runs a script line by line: a line that is not shell is noticed only there, in the middle of what it breaks.
    #[test]
    fn scripts_for_a_node_are_shell() {
        let acts = stories().flat_map(|story| story.acts.iter().map(move |act| (story.name, act)));
        let scripts = acts.filter_map(|(name, act)| match act {
            Act::OnNode(script) => Some((name, *script)),
            _ => None,
        });
        for (name, script) in scripts {
            let read = Command::new("sh").args(["-n", "-c", script]).output().expect("run sh");
            let problem = String::from_utf8_lossy(&read.stderr);
            assert!(read.status.success() && problem.is_empty(), "{name}: {problem}");
        }
    }

    #[test]
    fn each_story_has_its_name() {
        let mut names: Vec<&str> = stories().map(|story| story.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
        for story in stories() {
            let is_beside = |of: &str| story.expected.beside.iter().any(|beside| beside.container == of);
            assert!(
                story.expected.clients.is_none_or(is_beside),
                "{} compares nothing",
                story.name
            );
        }
    }
}
