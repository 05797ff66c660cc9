//! Alarms about a loss that goes on.

use std::sync::Arc;

use super::member::Member;
use super::report::{Advice, LossAlarm, Step};
use super::story::Story;
use super::verdict::LossVerdict;
use crate::observe::{ClusterVersion, Moment, NodeIdentity, Output};
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::ALARM_AGAIN;

/// Alarms about a node with another advice each, until they count as flapping.
const CHANGES: u8 = 3;

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
    let alarms = &story.alarms;
    // An agent that answers now and then.
    let is_flapping = alarms.changes >= CHANGES && alarms.changed.is_some_and(|at| now.since(at) < ALARM_AGAIN);
    // The taint was set by whoever made sure: nothing is urgent any more.
    let is_settled = advice == Advice::Unfence && !alarms.advised.is_some_and(Advice::is_urgent);
    // Whether a pod hangs or not, and however often the advice has changed.
    let is_dangerous = advice.is_urgent()
        && alarms.advised != Some(advice)
        && (alarms.endangered).is_none_or(|(what, at)| what != advice || now.since(at) >= ALARM_AGAIN)
        && story.is_serious();
    let is_new = alarms.advised != Some(advice) && (!is_flapping || is_dangerous);
    let is_changed = is_new && alarms.advised.is_some();
    let mut hanging = Vec::new();
    for member in story.pods.members.values_mut().filter(|member| member.gone.is_none()) {
        let is_again = is_changed && !is_settled && member.reported.hangs;
        if is_again || (!member.reported.hangs && member.hangs(now)) {
            member.reported.hangs = true;
            hanging.push((member.pod.clone(), member.is_stateful()));
        }
        member.reported.stays &= !is_changed || is_settled;
    }
    // Their Events say what was right before: that the taint's removal helps.
    let is_too_late = is_changed && advice == Advice::PowerOff;
    let is_its = |member: &&Member| is_too_late && member.vanished() && member.reported.hangs && member.is_stateful();
    let gone = story.pods.members.values().filter(is_its);
    let gone: Vec<Arc<PodIdentity>> = gone.map(|member| member.pod.clone()).collect();
    if hanging.is_empty() && !is_changed && !is_dangerous {
        return;
    }
    if is_dangerous {
        story.alarms.endangered = Some((advice, now));
    }
    if is_new {
        story.alarms.advised = Some(advice);
        story.alarms.changes = story.alarms.changes.saturating_add(1);
        story.alarms.changed = Some(now);
    }
    if hanging.is_empty() && is_settled {
        return;
    }
    // An earlier alarm with the same advice can have been about evictions, or a pod that stays.
    let mut is_of_node = is_new;
    if !hanging.is_empty() {
        story.step(Step::FirstPodStuck, Moment::exact(now));
        is_of_node |= !std::mem::replace(&mut story.alarms.is_hang_alarmed, true);
    }
    // The node's sentence has that, too.
    story.alarms.is_held_back_alarmed |= is_of_node && story.is_held_back(now);
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
pub(super) fn deleted(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    let known = story.known(now, version);
    let advice = known.advice();
    if advice.is_urgent() && story.alarms.advised != Some(advice) {
        out.push(alarm(&story.key.node, None, now, (advice, known.node())));
        let stateful = story
            .pods
            .members
            .values()
            .filter(|member| member.gone.is_none() && member.is_stateful());
        out.extend(stateful.map(|member| {
            let verdict = known.runs_on(&member.pod);
            alarm(&story.key.node, Some(member.pod.clone()), now, (advice, verdict))
        }));
        story.alarms.advised = Some(advice);
    }
}

/// The controller holds the evictions back: nothing is deleted, so nothing hangs.
fn held_back(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if story.alarms.is_held_back_alarmed || !story.is_held_back(now) {
        return;
    }
    story.alarms.is_held_back_alarmed = true;
    let known = story.known(now, version);
    let advice = known.advice();
    out.push(alarm(&story.key.node, None, now, (advice, known.node())));
    story.alarms.advised = Some(advice);
}

/// A StatefulSet's pods that tolerate the loss: nothing deletes them, so nothing hangs, and nothing replaces them.
fn left_alone(story: &mut Story, now: Boot, version: Option<ClusterVersion>, out: &mut Vec<Output>) {
    if !story.is_long_silent(now) {
        return;
    }
    let mut left = Vec::new();
    for member in story.pods.members.values_mut() {
        if member.is_stateful() && member.is_left_alone() && !std::mem::replace(&mut member.reported.stays, true) {
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
    story.alarms.advised = Some(advice);
}
