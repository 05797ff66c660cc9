//! A story's facts → reports.

use std::sync::Arc;

use super::handling::Power;
use super::member::Member;
use super::report::{
    DuplicateRun, Holder, LINKS, LossEnd, LostPods, NodeLost, NodePhase, PhaseKind, PodLost, Return, Returned, ShuttingDown,
    Step,
};
use super::story::{Phase, Story};
use super::verdict::LossVerdict;
use super::{alarms, sentence};
use crate::ids::PodUid;
use crate::observe::{ClusterVersion, Moment, NodeIdentity, Output};
use crate::shutdown::ShutdownKey;

/// The root, once; none for a moment without harm.
pub(super) fn root(
    story: &mut Story,
    (end, ended_by): (Moment, LossEnd),
    version: Option<ClusterVersion>,
    out: &mut Vec<Output>,
) {
    if story.reported.root || !story.is_serious() {
        return;
    }
    story.reported.root = true;
    let is_its = |member: &&Member| {
        let is_ended = member.requested.is_some() || member.vanished() || (story.removed().is_some() && member.is_to_end());
        is_ended && is_lost(story, member)
    };
    // Anybody can bind pods to the node that have not run.
    let (ran, others): (Vec<_>, Vec<_>) = story
        .pods
        .members
        .values()
        .filter(is_its)
        .partition(|member| member.ran.has_run);
    let links = ran
        .into_iter()
        .chain(others)
        .take(LINKS)
        .map(|member| member.pod.clone())
        .collect();
    out.push(Output::NodeLost(Box::new(NodeLost {
        key: story.key.clone(),
        begin: story.begin(),
        end,
        ended_by,
        verdict: story.known(end.at, version).node(),
        steps: story.steps().to_vec(),
        reason: story.condition.reason.clone(),
        message: story.condition.message.clone(),
        renewed: story.lease.renewed.map(|renewed| renewed.wall),
        agent: story.agent.answer(),
        powered_off: story.handling.power != Power::NothingReported,
        pods: LostPods {
            stuck: story.stuck(),
            gone: story.gone(),
            has_dropped: story.pods.has_dropped(),
            links,
        },
        unwatched: story.unwatched,
    })));
    // A kubelet that reports its own trouble: only now it is a loss.
    if let Some(at) = story.time_of(Step::Evicting).filter(|at| at.at > story.begin().at) {
        not_ready(story, at, out);
    }
}

/// The kubelet's word on its shutdown holds no longer: once, and not if the node's agent did not say which shutdown it is.
pub(super) fn shutting_down(story: &mut Story, end: Moment, out: &mut Vec<Output>) {
    let Some(announced) = story.announced.as_mut().filter(|announced| !announced.is_over) else {
        return;
    };
    announced.is_over = true;
    let Some(ordinal) = announced.shutdown else { return };
    out.push(Output::ShuttingDown(Box::new(ShuttingDown {
        key: ShutdownKey {
            boot_id: story.key.node.boot_id.to_string(),
            ordinal,
        },
        node: story.key.node.clone(),
        transition: announced.transition,
        begin: announced.at,
        end,
        reason: announced.reason.clone(),
        message: announced.message.clone(),
        services: announced.ready.services(),
        has_dropped: announced.ready.has_dropped,
        unwatched: story.unwatched,
    })));
}

/// The controller evicts from now on.
pub(super) fn evicting(story: &mut Story, at: Moment, out: &mut Vec<Output>) {
    // A kubelet that reports its own trouble still terminates pods, and a drained node may be removed: whether it is a loss is not known
    // yet, and the root comes with this span if it is.
    if story.is_silent() && story.is_serious() {
        not_ready(story, at, out);
    }
}

/// Once.
fn not_ready(story: &mut Story, at: Moment, out: &mut Vec<Output>) {
    if !story.reported.add(PhaseKind::NotReady) {
        return;
    }
    out.push(Output::NodePhase(Box::new(NodePhase {
        key: story.key.clone(),
        kind: PhaseKind::NotReady,
        begin: story.begin(),
        end: at,
        boot: None,
        unwatched: story.unwatched,
    })));
}

/// The node is back, or its object is deleted, if so. Not before the scan: until then it is not known whether an earlier observer has
/// reported the loss.
pub(super) fn over(story: &mut Story, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if !story.pods.is_scanned {
        return;
    }
    match story.phase.clone() {
        Phase::Back {
            at, node: Some(node), ..
        } => back(story, &node, at, version, out),
        Phase::Deleted(at) | Phase::Back { deleted: Some(at), .. } => {
            root(story, (at, LossEnd::NodeDeleted), version, out);
            alarms::deleted(story, at.at, version, out);
        }
        Phase::Away | Phase::Back { .. } => {}
    }
}

/// The node is back.
fn back(story: &mut Story, node: &Arc<NodeIdentity>, at: Moment, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    root(story, (at, LossEnd::Back), version, out);
    if !story.reported.root {
        return;
    }
    let how = story.returned(node);
    out.push(Output::NodePhase(Box::new(NodePhase {
        key: story.key.clone(),
        kind: PhaseKind::Down,
        begin: story.begin(),
        end: at,
        boot: Some(Return {
            boot_id: node.boot_id.clone(),
            how,
        }),
        unwatched: story.unwatched,
    })));
    if how != Returned::SameBoot {
        return;
    }
    // One that is still there ran as well: a Deployment's is replaced at once. One that waited for its restart may have been started again.
    let ran = |member: &&Member| member.ran.has_run && !member.ran.is_finished && !member.is_ignored && decides(story, member);
    for member in story.pods.members.values().filter(ran) {
        let end = member.ran.confirmed.filter(|confirmed| confirmed.at < at.at).unwrap_or(at);
        let Some((by, ran)) = member.replaced.clone().filter(|(_, ran)| ran.at < end.at) else {
            continue;
        };
        out.push(Output::DuplicateRun(Box::new(DuplicateRun {
            verdict: sentence::duplicate(node, &member.pod, &by, (ran, end, at)),
            pod: member.pod.clone(),
            by,
            loss: story.key.clone(),
            begin: ran,
            end,
        })));
    }
}

/// The pod's root is this observer's, whether a container of the pod ran there or waited for its restart: no agent is needed for it.
pub(super) fn is_lost(story: &Story, member: &Member) -> bool {
    !member.is_ignored && (member.reported.is_parent || decides(story, member))
}

/// The node, not a kubelet, decided over the pod: the kubelet was silent, or did not finish in time.
fn decides(story: &Story, member: &Member) -> bool {
    if !story.reported.root && !story.is_serious() {
        return false;
    }
    // What ended before the silence, a kubelet ended.
    (story.was_silent() && story.is_silent() && member.gone.is_none_or(|gone| gone.is_unconfirmed))
        || story.is_deleted()
        || member.vanished()
        || member.was_held()
}

/// The observer stops while kubelets that are back still terminate pods, or while pods of a deleted Node are left: its successor finds no
/// loss, and would not report them.
pub(super) fn unfinished(story: &mut Story, now: Moment, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if !story.is_over() {
        return;
    }
    let is_ended = |member: &Member| member.requested.is_some() || (story.removed().is_some() && member.is_to_end());
    let is_its = |(_, member): &(&PodUid, &Member)| member.gone.is_none() && is_ended(member) && is_lost(story, member);
    let uids: Vec<PodUid> = story.pods.members.iter().filter(is_its).map(|(uid, _)| uid.clone()).collect();
    for uid in uids {
        let Some(mut member) = story.pods.members.remove(&uid) else {
            continue;
        };
        let (by, names) = member.holder();
        let requested = member.requested.map(|(requested, _)| now.at.since(requested.at));
        let verdict = story.known(now.at, version).pod_at_stop(by, names, requested);
        member.release(now);
        out.push(lost(story, &member, verdict, (now, false)));
    }
}

/// Pods went while the watch of nodes was interrupted. `is_unsure`: it still is, and the node may be back.
pub(super) fn gone(story: &mut Story, is_unsure: bool, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    let is_untold =
        |(uid, member): (&PodUid, &mut Member)| std::mem::take(&mut member.gone.as_mut()?.is_untold).then(|| uid.clone());
    let untold: Vec<PodUid> = story.pods.members.iter_mut().filter_map(is_untold).collect();
    for member in untold.iter().filter_map(|uid| story.pods.members.get(uid)) {
        if let Some(gone) = member.gone {
            pod(story, member, (gone.at, is_unsure), version, out);
        }
    }
}

/// A pod of the node is gone. `is_unsure`: as in [`gone`].
pub(super) fn pod(
    story: &Story,
    member: &Member,
    (gone, is_unsure): (Moment, bool),
    version: Option<ClusterVersion>,
    out: &mut Vec<Output>,
) {
    if !is_lost(story, member) {
        return;
    }
    // It went on after the node's return.
    if !story.is_away() && member.requested.is_none() {
        return;
    }
    let after = member.requested.map(|(requested, _)| gone.at.since(requested.at));
    let (by, names) = member.holder();
    let known = story.known(gone.at, version);
    let is_confirmed = member.ran.confirmed.is_some();
    let verdict = match (by, story.back()) {
        (Holder::Finalizer, _) => known.pod(by, names, after),
        (_, Some(back)) => known.pod_after_return(after, gone.earliest() < back.at && !is_confirmed),
        (_, None) if is_confirmed => known.pod_confirmed(after),
        (_, None) if is_unsure => known.pod_after_return(after, true),
        (_, None) => known.pod(by, names, after),
    };
    out.push(lost(story, member, verdict, (gone, true)));
}

fn lost(story: &Story, member: &Member, verdict: LossVerdict, (end, is_gone): (Moment, bool)) -> Output {
    let requested = member.requested.map(|(requested, _)| requested);
    let begin = requested
        .filter(|requested| requested.at < story.begin().at)
        .unwrap_or(story.begin());
    Output::PodLost(Box::new(PodLost {
        pod: member.pod.clone(),
        loss: story.key.clone(),
        begin,
        end,
        is_gone,
        verdict,
        requested,
        by_taint: member.requested.is_some_and(|(_, deletion)| deletion.by_taint),
        stuck: member.held.clone(),
        unwatched: story.unwatched,
    }))
}
