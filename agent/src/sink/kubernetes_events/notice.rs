//! The core's reports → Events: their objects and notes.

use epitaph_core::input::Observation;
use epitaph_core::kubernetes::PodContext;
use epitaph_core::observe::{Advice, LossAlarm};
use epitaph_core::pod::{PodIdentity, Workload};
use epitaph_core::report::{NodeShutdown, PodHeld, PodTermination, Report, StopSignalIgnored};
use epitaph_core::rollout::SettledRollout;
use epitaph_core::termination::{TerminationFacts, TerminationKey};
use epitaph_core::text::{head, tail};
use epitaph_core::time::{Boot, Wall};
use epitaph_core::verdict::Verdict;
use sha2::{Digest as _, Sha256};

/// Kubernetes' own limit of an Event's note, bytes.
const LONGEST_NOTE: usize = 1024;

/// Bytes of the hash in [`Notice::termination`], each with two characters.
const DIGEST: usize = 5;
/// Length of [`Notice::termination`].
pub(super) const TERMINATION: usize = 2 * DIGEST;

/// Subject of one Event; a repetition raises the Event's count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub object: Object,
    pub reason: Reason,
    /// The verdict's headline; empty if there is no verdict yet.
    pub headline: &'static str,
    /// Set if only the container terminated and its pod continues.
    pub container: Option<String>,
    /// The lost node: an Event's note is its first one's, and has the command for that node, right at that time.
    pub lost_node: Option<(String, Advice)>,
    /// Of a rollout: an Event's note is its first one's, and has that rollout's numbers.
    pub revision: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub kind: String,
    pub api_version: Option<String>,
    /// None for a node.
    pub namespace: Option<String>,
    pub name: String,
    pub uid: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    UncleanTermination,
    StopSignalIgnored,
    TerminationStuck,
    TerminationHeld,
    PodStuckOnLostNode,
    UncleanShutdown,
    RolloutLostConnections,
}

impl Reason {
    pub const fn name(self) -> &'static str {
        match self {
            Reason::UncleanTermination => "UncleanTermination",
            Reason::StopSignalIgnored => "StopSignalIgnored",
            Reason::TerminationStuck => "TerminationStuck",
            Reason::TerminationHeld => "TerminationHeld",
            Reason::PodStuckOnLostNode => "PodStuckOnLostNode",
            Reason::UncleanShutdown => "UncleanShutdown",
            Reason::RolloutLostConnections => "RolloutLostConnections",
        }
    }

    /// The Event's `action`: what was done to the object.
    pub const fn action(self) -> &'static str {
        match self {
            Reason::UncleanTermination | Reason::TerminationStuck | Reason::TerminationHeld | Reason::PodStuckOnLostNode => {
                "Terminate"
            }
            Reason::StopSignalIgnored => "Stop",
            Reason::UncleanShutdown => "Shutdown",
            Reason::RolloutLostConnections => "Rollout",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub key: Key,
    pub at: Wall,
    pub note: String,
    /// Identifies the termination, also after a restart of the agent.
    pub termination: String,
    /// Of a pod: its workload's Event, which comes first.
    pub workload: Option<Key>,
}

/// The workload's notice comes first: of hundreds at once, users look for the workload's Event.
pub(super) fn of(report: &Report, observation: &Observation) -> Vec<Notice> {
    match report {
        Report::PodTerminated(pod) => of_pod(pod, observation),
        Report::Terminated(termination) => of_container(
            &termination.facts,
            (termination.kubernetes.as_deref(), &termination.verdict),
            Reason::UncleanTermination,
            observation,
        ),
        Report::Stuck(stuck) => of_container(
            &stuck.facts,
            (Some(&stuck.kubernetes), &stuck.verdict),
            Reason::TerminationStuck,
            observation,
        ),
        Report::PodHeld(held) => of_held(held, observation),
        Report::StopSignalIgnored(early) => of_early(early, observation),
        Report::NodeShutdown(shutdown) => of_shutdown(shutdown),
        Report::ChildOomKilled { .. }
        | Report::Workload(_)
        | Report::WorkloadGone(_)
        | Report::NodeDown(_)
        | Report::OptedOut { .. }
        | Report::Dropped { .. } => Vec::new(),
    }
}

/// A pod that opted out has no alarm.
pub(super) fn of_loss(alarm: &LossAlarm, at: Wall) -> Vec<Notice> {
    let Some(pod) = &alarm.pod else { return Vec::new() };
    let about = About {
        pod,
        reason: Reason::PodStuckOnLostNode,
        headline: alarm.verdict.row.headline,
        container: None,
        lost_node: Some((alarm.node.name.to_string(), alarm.advice)),
        sentence: &alarm.verdict.sentence,
        remedy: format!(". Next: {}", alarm.verdict.remedy),
        termination: format!("lost pod {}", pod.uid.0),
    };
    about.notices_at(at)
}

/// None where no connection was lost, as far as is known. The Event keeps its first note: reports that come late can add to the numbers.
pub(super) fn of_rollout(settled: &SettledRollout, at: Wall) -> Option<Notice> {
    let cost = settled.cost.as_ref()?;
    let lost = cost.lost().filter(|lost| *lost > 0)?;
    let of = &settled.workload;
    let kinds = [("refused", cost.refused), ("reset", cost.reset), ("cut", cost.cut)];
    let kinds: Vec<String> = kinds
        .iter()
        .filter_map(|(kind, count)| Some(format!("{} {kind}", count.filter(|count| *count > 0)?)))
        .collect();
    let (at_least, unreported) = match cost.unreported {
        Some(0) => ("", String::new()),
        Some(1) => ("at least ", "; 1 replaced pod has no report yet".to_owned()),
        Some(pods) => ("at least ", format!("; {pods} replaced pods have no report yet")),
        None => ("at least ", "; how many replaced pods have no report is not known".to_owned()),
    };
    let at_least = if cost.unobserved > 0 { "at least " } else { at_least };
    let sentence = format!(
        "the rollout to revision {} lost {at_least}{lost} connections of clients ({}): {} of the {} replaced pods with a report terminated \
         uncleanly{unreported}",
        settled.revision,
        kinds.join(", "),
        cost.unclean,
        cost.pods,
    );
    let remedy = match of.kind.as_str() {
        "Deployment" => format!(
            ". Next: kubectl epitaph rollout deployment/{} --namespace {}",
            of.name, of.namespace
        ),
        _ => format!(". Next: kubectl epitaph list --unclean --namespace {}", of.namespace),
    };
    Some(Notice {
        key: Key {
            object: Object {
                kind: of.kind.clone(),
                api_version: Some(of.api_version.clone()),
                namespace: Some(of.namespace.clone()),
                name: of.name.clone(),
                uid: Some(of.uid.clone()),
            },
            reason: Reason::RolloutLostConnections,
            headline: "",
            container: None,
            lost_node: None,
            revision: Some(settled.revision),
        },
        at,
        note: fitting(&sentence, &remedy),
        termination: digest(&format!("rollout {} {}", of.uid, settled.revision)),
        workload: None,
    })
}

fn of_pod(termination: &PodTermination, observation: &Observation) -> Vec<Notice> {
    let ignored = termination
        .containers
        .iter()
        .any(|of| of.kubernetes.as_deref().is_some_and(ignores));
    if ignored || !termination.verdict.unclean {
        return Vec::new();
    }
    let about = About {
        pod: &termination.pod,
        reason: Reason::UncleanTermination,
        headline: termination.verdict.headline,
        container: None,
        lost_node: None,
        sentence: &termination.verdict.sentence,
        remedy: String::new(),
        termination: format!("pod {} {}", termination.pod.uid.0, termination.boot_id),
    };
    about.notices(termination.end, observation)
}

/// The agent of a node calls the machine by the node's name. After the next boot, the Event is about the boot before.
fn of_shutdown(shutdown: &NodeShutdown) -> Vec<Notice> {
    let verdict = &shutdown.verdict;
    if !verdict.unclean {
        return Vec::new();
    }
    let name = shutdown.host.to_string();
    let remedy = verdict
        .remedy
        .as_deref()
        .map_or_else(String::new, |remedy| format!(". Remedy: {remedy}"));
    vec![Notice {
        key: Key {
            object: Object {
                kind: "Node".to_owned(),
                api_version: Some("v1".to_owned()),
                namespace: None,
                uid: Some(name.clone()),
                name,
            },
            reason: Reason::UncleanShutdown,
            headline: verdict.headline,
            container: None,
            lost_node: None,
            revision: None,
        },
        at: shutdown.clock.wall(shutdown.end),
        note: fitting(&verdict.sentence, &remedy),
        termination: digest(&format!("shutdown {} {}", shutdown.key.boot_id, shutdown.key.ordinal)),
        workload: None,
    }]
}

fn of_container(
    facts: &TerminationFacts,
    (context, verdict): (Option<&PodContext>, &Verdict),
    reason: Reason,
    observation: &Observation,
) -> Vec<Notice> {
    let Some(context) = context else {
        return Vec::new();
    };
    if ignores(context) || !verdict.unclean {
        return Vec::new();
    }
    let about = About {
        pod: &context.pod,
        reason,
        headline: verdict.headline,
        container: context.container.clone(),
        lost_node: None,
        sentence: &verdict.sentence,
        remedy: String::new(),
        termination: named("container", &facts.key),
    };
    about.notices(facts.end, observation)
}

/// A pod that opted out is not reported.
fn of_held(held: &PodHeld, observation: &Observation) -> Vec<Notice> {
    let (facts, verdict) = (&held.facts, &held.verdict);
    let about = About {
        pod: &facts.pod,
        reason: Reason::TerminationHeld,
        headline: verdict.row.headline,
        container: None,
        lost_node: None,
        sentence: &verdict.sentence,
        remedy: format!(". Remedy: {}", verdict.row.remedy),
        termination: format!("held pod {} {}", facts.pod.uid.0, verdict.row.headline),
    };
    about.notices(facts.at, observation)
}

fn of_early(early: &StopSignalIgnored, observation: &Observation) -> Vec<Notice> {
    let Some(context) = early.kubernetes.as_deref() else {
        return Vec::new();
    };
    if ignores(context) {
        return Vec::new();
    }
    let about = About {
        pod: &context.pod,
        reason: Reason::StopSignalIgnored,
        headline: "",
        container: context.container.clone(),
        lost_node: None,
        sentence: &early.sentence,
        remedy: String::new(),
        termination: named("stop signal", &early.key),
    };
    about.notices(early.at, observation)
}

fn ignores(context: &PodContext) -> bool {
    context.options.ignore
}

fn named(what: &str, key: &TerminationKey) -> String {
    format!(
        "{what} {} {:?} {}",
        key.boot_id,
        key.cgroup,
        key.main_start.unwrap_or_default().0
    )
}

struct About<'a> {
    pod: &'a PodIdentity,
    reason: Reason,
    headline: &'static str,
    container: Option<String>,
    lost_node: Option<(String, Advice)>,
    sentence: &'a str,
    /// With the words that join it to the sentence.
    remedy: String,
    termination: String,
}

impl About<'_> {
    fn notices(&self, at: Boot, observation: &Observation) -> Vec<Notice> {
        self.notices_at(observation.wall_offset.wall(at))
    }

    fn notices_at(&self, at: Wall) -> Vec<Notice> {
        let pod = Object {
            kind: "Pod".to_owned(),
            api_version: Some("v1".to_owned()),
            namespace: Some(self.pod.namespace.clone()),
            name: self.pod.name.clone(),
            uid: Some(self.pod.uid.0.to_string()),
        };
        let owner = owner(&self.pod.workload);
        let named = format!("pod `{}`", self.pod.name);
        let sentence = match self.sentence.starts_with(&named) {
            true => self.sentence.to_owned(),
            false => format!("{named}: {}", self.sentence),
        };
        let notice = |object, sentence: &str, workload| Notice {
            key: self.key(object),
            at,
            note: fitting(sentence, &self.remedy),
            termination: digest(&self.termination),
            workload,
        };
        let of_pod = notice(pod, self.sentence, owner.clone().map(|owner| self.key(owner)));
        let of_owner = owner.map(|owner| notice(owner, &sentence, None));
        of_owner.into_iter().chain([of_pod]).collect()
    }

    fn key(&self, object: Object) -> Key {
        Key {
            object,
            reason: self.reason,
            headline: self.headline,
            container: self.container.clone(),
            lost_node: self.lost_node.clone(),
            revision: None,
        }
    }
}

fn owner(workload: &Workload) -> Option<Object> {
    let is_node = workload.kind == "Node";
    (workload.kind != "Pod").then(|| Object {
        kind: workload.kind.clone(),
        api_version: workload.api_version.clone(),
        namespace: (!is_node).then(|| workload.namespace.clone()),
        name: workload.name.clone(),
        // The kubelet also puts the node's name here, and `kubectl describe node` looks for it.
        uid: if is_node {
            Some(workload.name.clone())
        } else {
            workload.uid.clone()
        },
    })
}

/// Cut to the longest note that the API server accepts, without control characters: the sentence first, then the begin of the remedy, whose
/// end is the command.
fn fitting(sentence: &str, remedy: &str) -> String {
    const CUT: char = '…';
    let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let [sentence, remedy] = [sentence, remedy].map(|text| text.chars().map(clean).collect::<String>());
    if sentence.len() + remedy.len() <= LONGEST_NOTE {
        return sentence + &remedy;
    }
    let room = LONGEST_NOTE - CUT.len_utf8();
    match room.checked_sub(remedy.len()) {
        Some(left) => format!("{}{CUT}{remedy}", head(&sentence, left)),
        None => format!("{CUT}{}", tail(&remedy, room)),
    }
}

/// Short, because one annotation lists many of them.
fn digest(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .take(DIGEST)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Key {
    /// Whether agents of other nodes write the Event, too: a workload has pods on many nodes.
    pub fn is_shared(&self) -> bool {
        self.object.kind != "Pod" && self.object.kind != "Node"
    }

    /// The Event's name. Except for a workload's Event it includes the node, so that no two agents write the same Event.
    pub fn event_name(&self, node: &str) -> String {
        let node = if self.is_shared() { "" } else { node };
        let Object {
            kind,
            namespace,
            name,
            uid,
            ..
        } = &self.object;
        let mut text = format!(
            "{node}\n{kind}\n{namespace:?}\n{name}\n{uid:?}\n{}\n{}\n{:?}",
            self.reason.name(),
            self.headline,
            self.container
        );
        if let Some((node, advice)) = &self.lost_node {
            text.push_str(&format!("\n{node} {advice:?}"));
        }
        if let Some(revision) = self.revision {
            text.push_str(&format!("\nrevision {revision}"));
        }
        let hash: String = Sha256::digest(text)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let short: String = name.chars().take(200).collect();
        format!("{}.{hash}", short.trim_end_matches(['.', '-']))
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::rollout::{RevisionCost, RolledWorkload};

    use super::*;

    /// The Event of a rollout is not changed when late reports arrive.
    #[test]
    fn the_note_of_a_rollout_names_what_is_not_reported_yet() {
        let note = |unreported: Option<u64>, unobserved: u64| {
            let cost = RevisionCost {
                pods: 3,
                unclean: 1,
                unobserved,
                unreported,
                refused: Some(14),
                reset: Some(0),
                cut: Some(0),
                ..RevisionCost::default()
            };
            let settled = SettledRollout {
                workload: RolledWorkload::default(),
                revision: 7,
                cost: Some(cost),
            };
            of_rollout(&settled, Wall(0)).expect("losses").note
        };
        let begin = |text: &str| {
            format!("the rollout to revision 7 lost {text}14 connections of clients (14 refused): 1 of the 3 replaced pods")
        };
        let all = note(Some(0), 0);
        assert!(all.starts_with(&begin("")) && all.contains("uncleanly. Next:"), "{all}");
        for (unreported, unobserved, part) in [
            (Some(1), 0, "uncleanly; 1 replaced pod has no report yet. Next:"),
            (Some(9), 0, "uncleanly; 9 replaced pods have no report yet. Next:"),
            (
                None,
                0,
                "uncleanly; how many replaced pods have no report is not known. Next:",
            ),
            (Some(0), 1, "uncleanly. Next:"),
        ] {
            let note = note(unreported, unobserved);
            assert!(note.starts_with(&begin("at least ")) && note.contains(part), "{note}");
        }
    }

    /// As the observer's core writes the longest of them: about a StatefulSet's pod that nothing evicts.
    fn left_alone(node: &str, release: &str) -> (String, String) {
        let pod = &node[..40];
        let sentence = format!(
            "pod `{pod}` is not evicted, because it tolerates the loss of its node, and is not replaced: its node `{node}` has not been ready \
             for 310 s; its kubelet last renewed its Lease 41.0 s before `Ready` became `Unknown`, and its agent does not answer"
        );
        let remedy = format!(
            ". Next: check the console or the provider of `{node}`. If it runs, repair its network or kubelet: a taint would let two pods \
             write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is \
             still not ready then: {release}; and, when the machine is off, if the pod still exists then: kubectl delete pod --namespace \
             shop {pod}"
        );
        (sentence, remedy)
    }

    #[test]
    fn a_note_is_cut_in_its_sentence_and_never_in_its_command() {
        for length in [47, 63] {
            let node = "n".repeat(length);
            let taint = format!("kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute");
            let by_hand =
                format!("kubectl delete pods --all-namespaces --field-selector spec.nodeName={node} --force --grace-period=0");
            let alpha = |minor: u32| {
                format!(
                    "{taint} (alpha in Kubernetes 1.{minor}: without the feature gate NodeOutOfServiceVolumeDetach it only evicts, and \
                     the pods stay Terminating; then: {by_hand})"
                )
            };
            for release in [alpha(24), alpha(25), taint.clone()] {
                let (sentence, remedy) = left_alone(&node, &release);
                let note = fitting(&sentence, &remedy);
                assert!(note.len() <= LONGEST_NOTE, "{}: {note}", note.len());
                assert!(note.starts_with("pod `nnn"), "{note}");
                assert!(note.ends_with(&remedy), "{note}");
            }
        }
    }

    #[test]
    fn a_remedy_that_does_not_fit_keeps_its_end() {
        let command = "kubectl taint nodes n1 node.kubernetes.io/out-of-service-";
        let remedy = format!(". Next: {}: {command}", "é".repeat(LONGEST_NOTE));
        let note = fitting("a sentence", &remedy);
        assert!(note.len() <= LONGEST_NOTE && note.starts_with('…'), "{note}");
        assert!(note.ends_with(command), "{note}");
    }

    #[test]
    fn a_note_without_a_remedy_is_cut_at_its_end() {
        let note = fitting(&"é".repeat(LONGEST_NOTE), "");
        assert!(note.len() <= LONGEST_NOTE && note.ends_with('…'), "{note}");
        assert_eq!(fitting("a\nb", ". Next: c\n"), "a\u{fffd}b. Next: c\u{fffd}");
    }
}
