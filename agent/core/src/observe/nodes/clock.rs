//! What the passing of time changes.

use super::member::Member;
use super::report::{LossEnd, Step};
use super::story::Story;
use super::{KnownNode, Nodes, alarms, phases};
use crate::observe::pods::ClusterPods;
use crate::observe::{Moment, Output};
use crate::time::Boot;
use crate::tolerances::{LASTING_LOSS, LOSS_CHECKED, LOST_TOGETHER, RECOVERY};

impl Nodes {
    /// Time has passed. `is_in_gap`: the watch of nodes or pods is interrupted, so the node may be back, and its pods
    /// gone; `attachments_in_gap`: that of VolumeAttachments, so the volumes may be detached.
    pub fn finish(
        &mut self,
        now: Boot,
        pods: &ClusterPods,
        (is_in_gap, attachments_in_gap): (bool, bool),
        out: &mut Vec<Output>,
    ) {
        if self.checked.is_some_and(|checked| now.since(checked) < LOSS_CHECKED) {
            return;
        }
        self.checked = Some(now);
        self.scan(now, pods, out);
        self.ask(now, out);
        self.count_silent();
        for story in self.stories.values_mut() {
            if !story.is_over() {
                story.notice_silence(now);
            }
            if !is_in_gap {
                phases::gone(story, false, self.version, out);
                alarms::alarms(story, now, self.version, out);
            }
            // As another observer would measure it.
            let is_lasting = now.since(story.keyed.at) >= LASTING_LOSS;
            if !is_in_gap
                && !story.reported.root
                && story.is_settled(now)
                && is_lasting
                && story.is_serious()
                && !story.is_over()
            {
                let end = match story.last_gone() {
                    Some(end) => {
                        story.step(Step::LastPodGone, end);
                        (end, LossEnd::PodsGone)
                    }
                    None => (Moment::exact(now), LossEnd::NoPods),
                };
                phases::root(story, end, self.version, out);
            }
        }
        if !is_in_gap && !attachments_in_gap {
            self.overdue(now, out);
        }
        let mut left_behind: Vec<&mut KnownNode> =
            self.known.values_mut().filter(|known| known.taint.is_left_behind()).collect();
        left_behind.sort_by(|a, b| a.identity.name.cmp(&b.identity.name));
        out.extend(
            left_behind
                .into_iter()
                .filter_map(|known| known.taint.alarm(&known.identity, now, self.stuck_after)),
        );
        self.forget(now);
    }

    /// Replacements that wait for long for a volume of a lost node.
    fn overdue(&mut self, now: Boot, out: &mut Vec<Output>) {
        let stories = &self.stories;
        let is_due = |node: &str| {
            let story = stories.get(node);
            story.is_some_and(|story| story.is_deleted() || story.agent.is_known()) && story.is_some_and(Story::is_away)
        };
        for overdue in self.volumes.overdue(now, self.stuck_after, is_due) {
            let Some(story) = stories.get(overdue.pod.node.as_str()) else {
                continue;
            };
            let known = story.known(now, self.version);
            let verdict = known.volume_waits(&overdue.pod, &overdue.attachment, overdue.waited);
            out.push(alarms::alarm(
                &story.key.node,
                Some(overdue.pod),
                now,
                (known.advice(), verdict),
            ));
        }
    }

    /// How many nodes fell silent together: a network, or machines.
    fn count_silent(&mut self) {
        let silent = |story: &Story| story.silent_since().filter(|_| !story.is_over());
        let mut times: Vec<Boot> = self.stories.values().filter_map(silent).collect();
        times.sort_unstable();
        for story in self.stories.values_mut() {
            if let Some(since) = silent(story) {
                let first = times.partition_point(|at| *at < since.minus(LOST_TOGETHER));
                let last = times.partition_point(|at| *at <= since.plus(LOST_TOGETHER));
                // Those that are back fell silent all the same.
                story.at_once = (story.at_once.0.max(last - first), self.known.len());
            }
        }
    }

    fn forget(&mut self, now: Boot) {
        self.volumes.expire(now);
        let (volumes, members) = (&mut self.volumes, &mut self.members);
        self.stories.retain(|name, story| {
            let Some(over) = story.back().or(story.removed()) else {
                return true;
            };
            // A finalizer may keep a pod for longer.
            let is_left = |member: &Member| {
                member.gone.is_some_and(|gone| gone.is_untold) || (member.requested.is_some() && member.gone.is_none())
            };
            let is_attached = story.is_away() && volumes.left(name) > 0;
            let keep = now.since(over.at) < RECOVERY || story.pods.members.values().any(is_left) || is_attached;
            if !keep {
                *members -= story.pods.members.len();
                volumes.forget(name);
            }
            keep
        });
    }
}
