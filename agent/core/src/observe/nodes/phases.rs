//! A story's facts → reports.

use std::sync::Arc;

use super::member::Member;
use super::report::{
    Advice, DuplicateRun, Holder, LINKS, LossAlarm, LossEnd, NodeLost, NodePhase, PhaseKind, PodLost, Return, Returned,
    ShuttingDown, Step,
};
use super::sentence;
use super::story::Story;
use super::verdict::LossVerdict;
use crate::ids::PodUid;
use crate::observe::{ClusterVersion, Moment, NodeIdentity, Output, Ready};
use crate::pod::PodIdentity;
use crate::shutdown::ShutdownKey;
use crate::time::Boot;
use crate::tolerances::ALARM_AGAIN;

/// Alarms about a node with another advice each, until they count as flapping.
const CHANGES: u8 = 3;
/// The root, once; none for a moment without harm.
pub(super) fn root(
    story: &mut Story,
    (end, ended_by): (Moment, LossEnd),
    version: Option<ClusterVersion>,
    out: &mut Vec<Output>,
) {
    if story.is_reported || !story.is_serious() {
        return;
    }
    story.is_reported = true;
    let is_its = |member: &&Member| {
        let is_ended = member.requested.is_some() || member.vanished || (story.removed.is_some() && member.is_to_end());
        is_ended && is_lost(story, member)
    };
    // Anybody can bind pods to the node that have not run.
    let (ran, others): (Vec<_>, Vec<_>) = story.members.values().filter(is_its).partition(|member| member.has_run);
    let pods = ran
        .into_iter()
        .chain(others)
        .take(LINKS)
        .map(|member| member.pod.clone())
        .collect();
    out.push(Output::NodeLost(Box::new(NodeLost {
        key: story.key.clone(),
        begin: story.begin,
        end,
        ended_by,
        verdict: story.known(end.at, version).node(),
        steps: story.steps.clone(),
        reason: story.reason.clone(),
        message: story.message.clone(),
        renewed: story.renewed.map(|renewed| renewed.wall),
        agent: story.agent.answer(),
        powered_off: story.powered_off,
        stuck: story.stuck(),
        gone: story.gone(),
        has_dropped: story.has_dropped,
        pods,
        unwatched: story.unwatched,
    })));
    // A kubelet that reports its own trouble: only now it is a loss.
    if let Some(at) = story.time_of(Step::Evicting).filter(|at| at.at > story.begin.at) {
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
    if story.ready == Ready::Unknown && story.is_serious() {
        not_ready(story, at, out);
    }
}

/// Once.
fn not_ready(story: &mut Story, at: Moment, out: &mut Vec<Output>) {
    if std::mem::replace(&mut story.is_not_ready_reported, true) {
        return;
    }
    out.push(Output::NodePhase(Box::new(NodePhase {
        key: story.key.clone(),
        kind: PhaseKind::NotReady,
        begin: story.begin,
        end: at,
        boot: None,
        unwatched: story.unwatched,
    })));
}

/// The node is back, or its object is deleted, if so. Not before the scan: until then it is not known whether an earlier observer has
/// reported the loss.
pub(super) fn over(story: &mut Story, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if !story.is_scanned {
        return;
    }
    if let Some((node, at)) = story.returned_as.clone().zip(story.back) {
        back(story, &node, at, version, out);
    } else if let Some(at) = story.removed {
        root(story, (at, LossEnd::NodeDeleted), version, out);
        deleted(story, at.at, version, out);
    }
}

/// The node is back.
fn back(story: &mut Story, node: &Arc<NodeIdentity>, at: Moment, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    root(story, (at, LossEnd::Back), version, out);
    if !story.is_reported {
        return;
    }
    let how = story.returned(node);
    out.push(Output::NodePhase(Box::new(NodePhase {
        key: story.key.clone(),
        kind: PhaseKind::Down,
        begin: story.begin,
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
    let ran = |member: &&Member| member.has_run && !member.is_finished && !member.is_ignored && decides(story, member);
    for member in story.members.values().filter(ran) {
        let end = member.confirmed.filter(|confirmed| confirmed.at < at.at).unwrap_or(at);
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
    !member.is_ignored && (member.is_parent || decides(story, member))
}

/// The node, not a kubelet, decided over the pod: the kubelet was silent, or did not finish in time.
fn decides(story: &Story, member: &Member) -> bool {
    if !story.is_reported && !story.is_serious() {
        return false;
    }
    // What ended before the silence, a kubelet ended.
    (story.was_silent() && story.ready == Ready::Unknown && (member.gone.is_none() || member.is_unconfirmed))
        || (story.removed.is_some() && story.back.is_none())
        || member.vanished
        || member.was_held()
}

/// The observer stops while kubelets that are back still terminate pods, or while pods of a deleted Node are left: its successor finds no
/// loss, and would not report them.
pub(super) fn unfinished(story: &mut Story, now: Moment, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if !story.is_over() {
        return;
    }
    let is_ended = |member: &Member| member.requested.is_some() || (story.removed.is_some() && member.is_to_end());
    let is_its = |(_, member): &(&PodUid, &Member)| member.gone.is_none() && is_ended(member) && is_lost(story, member);
    let uids: Vec<PodUid> = story.members.iter().filter(is_its).map(|(uid, _)| uid.clone()).collect();
    for uid in uids {
        let Some(mut member) = story.members.remove(&uid) else {
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
    let is_untold = |(uid, member): (&PodUid, &mut Member)| std::mem::take(&mut member.is_untold).then(|| uid.clone());
    let untold: Vec<PodUid> = story.members.iter_mut().filter_map(is_untold).collect();
    for member in untold.iter().filter_map(|uid| story.members.get(uid)) {
        if let Some(gone) = member.gone {
            pod(story, member, (gone, is_unsure), version, out);
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
    if story.back.is_some() && member.requested.is_none() {
        return;
    }
    let after = member.requested.map(|(requested, _)| gone.at.since(requested.at));
    let (by, names) = member.holder();
    let known = story.known(gone.at, version);
    let is_confirmed = member.confirmed.is_some();
    let verdict = match (by, story.back) {
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
        .filter(|requested| requested.at < story.begin.at)
        .unwrap_or(story.begin);
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

/// Alarms that are due. The remedy depends on whether the machine runs.
pub(super) fn alarms(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if story.is_over() || !story.agent.is_known() {
        return;
    }
    hanging(story, now, version, out);
    held_back(story, now, version, out);
    left_alone(story, now, version, out);
}

pub(super) fn alarm(
    node: &Arc<NodeIdentity>,
    pod: Option<Arc<PodIdentity>>,
    now: Boot,
    (advice, verdict): (Advice, LossVerdict),
) -> Output {
    Output::LossAlarm(Box::new(LossAlarm {
        node: node.clone(),
        pod,
        at: Moment::exact(now),
        advice,
        verdict,
    }))
}

/// Each pod of a StatefulSet and the node, once, and again when the advice changes.
fn hanging(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    let advice = story.known(now, version).advice();
    // An agent that answers now and then.
    let is_flapping = story.changes >= CHANGES && story.changed.is_some_and(|at| now.since(at) < ALARM_AGAIN);
    // The taint was set by whoever made sure: nothing is urgent any more.
    let is_settled = advice == Advice::Unfence && !story.advised.is_some_and(Advice::is_urgent);
    // Whether a pod hangs or not, and however often the advice has changed.
    let is_dangerous = advice.is_urgent()
        && story.advised != Some(advice)
        && (story.endangered).is_none_or(|(what, at)| what != advice || now.since(at) >= ALARM_AGAIN)
        && story.is_serious();
    let is_new = story.advised != Some(advice) && (!is_flapping || is_dangerous);
    let is_changed = is_new && story.advised.is_some();
    let mut hanging = Vec::new();
    for member in story.members.values_mut().filter(|member| member.gone.is_none()) {
        let is_again = is_changed && !is_settled && member.is_alarmed;
        if is_again || (!member.is_alarmed && member.hangs(now)) {
            member.is_alarmed = true;
            hanging.push((member.pod.clone(), member.is_stateful));
        }
        member.is_stay_alarmed &= !is_changed || is_settled;
    }
    // Their Events say what was right before: that the taint's removal helps.
    let is_too_late = is_changed && advice == Advice::PowerOff;
    let is_its = |member: &&Member| is_too_late && member.vanished && member.is_alarmed && member.is_stateful;
    let gone = story.members.values().filter(is_its);
    let gone: Vec<Arc<PodIdentity>> = gone.map(|member| member.pod.clone()).collect();
    if hanging.is_empty() && !is_changed && !is_dangerous {
        return;
    }
    if is_dangerous {
        story.endangered = Some((advice, now));
    }
    if is_new {
        story.advised = Some(advice);
        (story.changes, story.changed) = (story.changes.saturating_add(1), Some(now));
    }
    if hanging.is_empty() && is_settled {
        return;
    }
    // An earlier alarm with the same advice can have been about evictions, or a pod that stays.
    let mut is_of_node = is_new;
    if !hanging.is_empty() {
        story.step(Step::FirstPodStuck, Moment::exact(now));
        is_of_node |= !std::mem::replace(&mut story.is_hang_alarmed, true);
    }
    // The node's sentence has that, too.
    story.is_held_back_alarmed |= is_of_node && story.is_held_back(now);
    let known = story.known(now, version);
    if is_of_node {
        out.push(alarm(&story.key.node, None, now, (advice, known.node())));
    }
    let stateful = hanging.into_iter().filter(|(_, is_stateful)| *is_stateful);
    out.extend(stateful.map(|(pod, _)| {
        let verdict = known.hangs(&pod);
        alarm(&story.key.node, Some(pod), now, (advice, verdict))
    }));
    out.extend(gone.into_iter().map(|pod| {
        let verdict = known.runs_on(&pod);
        alarm(&story.key.node, Some(pod), now, (advice, verdict))
    }));
}

/// The Node object was deleted while the machine ran.
fn deleted(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    let known = story.known(now, version);
    let advice = known.advice();
    if advice.is_urgent() && story.advised != Some(advice) {
        out.push(alarm(&story.key.node, None, now, (advice, known.node())));
        let stateful = story
            .members
            .values()
            .filter(|member| member.gone.is_none() && member.is_stateful);
        out.extend(stateful.map(|member| {
            let verdict = known.runs_on(&member.pod);
            alarm(&story.key.node, Some(member.pod.clone()), now, (advice, verdict))
        }));
        story.advised = Some(advice);
    }
}

/// The controller holds the evictions back: nothing is deleted, so nothing hangs.
fn held_back(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if story.is_held_back_alarmed || !story.is_held_back(now) {
        return;
    }
    story.is_held_back_alarmed = true;
    let known = story.known(now, version);
    let advice = known.advice();
    out.push(alarm(&story.key.node, None, now, (advice, known.node())));
    story.advised = Some(advice);
}

/// A StatefulSet's pods that tolerate the loss: nothing deletes them, so nothing hangs, and nothing replaces them.
fn left_alone(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if !story.is_long_silent(now) {
        return;
    }
    let mut left = Vec::new();
    for member in story.members.values_mut() {
        if member.is_stateful && member.is_left_alone() && !std::mem::replace(&mut member.is_stay_alarmed, true) {
            left.push(member.pod.clone());
        }
    }
    if left.is_empty() {
        return;
    }
    let known = story.known(now, version);
    let advice = known.advice();
    out.extend(left.into_iter().map(|pod| {
        let verdict = known.left_alone(&pod);
        alarm(&story.key.node, Some(pod), now, (advice, verdict))
    }));
    story.advised = Some(advice);
}
