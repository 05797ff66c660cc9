//! Where an observation begins and ends: a first one, one after a gap, and one of another boot.

use super::Correlator;
use super::attribution::Attributor;
use super::node::FromNode;
use super::pods::{FromPods, Pods, PreviousPods};
use super::subjects::Scan;
use crate::attribute::path::Nodes;
use crate::input::Observation;
use crate::report::{Answers, DropReason, Report};
use crate::termination::Open;
use crate::time::Boot;

impl Correlator {
    /// `before`: time of the last input.
    pub(super) fn start(&mut self, before: Boot, observation: &Observation, answers: &mut Answers) {
        let is_first = self.boot_id.is_empty();
        let is_other_boot = !is_first && self.boot_id != observation.boot_id;
        let mut ended = self.observed.min(before);
        if is_other_boot {
            // Another boot: its clock starts again, and nothing of the old boot runs.
            self.now = before;
            let running = self.running_pods();
            self.node.next_boot_proves(before, observation, self.pods.held_facts());
            let agent_ended = self.node.agent_ended();
            self.end(Open::NodeDown { agent_ended }, answers);
            self.pods.drops(&mut answers.reports);
            let pods = std::mem::replace(&mut self.pods, Pods::new(self.limits));
            let previous = PreviousPods::of(
                pods,
                std::mem::take(&mut self.boot_id),
                before,
                observation,
                &mut answers.reports,
            );
            let mut out = FromNode::default();
            let node = std::mem::take(&mut self.node).next_boot(before, running, observation, &mut out);
            answers.reports.extend(out.reports);
            ended = Boot(0);
            let drops = self.subjects.take_drops();
            let unattributed = self.attribution.take_unattributed();
            let units = self.attribution.kubelet_units().to_vec();
            let reported = std::mem::take(&mut self.units);
            let reads_journal = self.reads_journal;
            *self = Correlator::new(self.limits)
                .with_kubelet_units(units)
                .with_reported_units(reported);
            self.node = node;
            self.reads_journal = reads_journal;
            self.previous = previous;
            self.subjects.add_drops(drops);
            self.attribution.add_unattributed(unattributed);
        }
        let nodes = match observation.nodes_in_containers {
            false => Nodes::Machine,
            true => Nodes::Containers,
        };
        self.attribution.start(observation.cgroups, nodes);
        self.subjects.start(ended, observation);
        if !is_first {
            // Terminations from before the gap are judged by the probes of that time.
            self.subjects_due(self.now, answers);
            self.expire(answers);
        }
        self.subjects.forget_probes();
        self.scan = (!is_first && !is_other_boot).then(|| Scan::of(ended, observation.since));
        self.now = self.now.max(observation.since);
        self.observed = self.now;
        self.node.start(observation, !is_first && !is_other_boot);
        self.pods.clock(observation.since, observation.wall_offset);
        self.pods.observed_since(observation.since);
        if !is_first {
            self.pods.resume();
        }
        self.boot_id.clone_from(&observation.boot_id);
    }

    /// What was not shown since the start has ended before it.
    pub(super) fn scanned(&mut self, answers: &mut Answers) {
        self.node.scanned();
        let Some(scan) = self.scan.take() else { return };
        let removed = self.subjects.scanned(&scan, &self.attribution, &mut self.events);
        self.became(answers);
        let now = self.now;
        self.attribute(answers, |attribution, take| {
            for cgroup in removed {
                attribution.removed(now, scan.gap.1, cgroup, take);
            }
        });
    }

    /// The end of this boot's input: terminations are reported, and stops in progress as far as they were observed. `open`: why it ended.
    pub(super) fn end(&mut self, open: Open, answers: &mut Answers) {
        self.attribute(answers, Attributor::end);
        self.subjects.end(self.now, open, &self.attribution, &mut self.events);
        self.became(answers);
        self.pods_due(self.now, answers);
        // Of two boots before, the API has shown what it shows.
        if let Some(previous) = self.previous.take() {
            previous.end(self.now, &mut answers.reports);
        }
        let mut from_pods = FromPods::default();
        match open {
            Open::NodeDown { .. } => self.pods.end_of_boot(self.now, &self.boot_id, &mut from_pods),
            _ => self.pods.end(self.now, &self.boot_id, &mut from_pods),
        }
        self.follow(from_pods, answers);
    }

    pub(super) fn report_drops(&mut self, out: &mut Vec<Report>) {
        let drops = self.subjects.take_drops();
        let counts = [
            (DropReason::TimelineCap, drops.timelines),
            (DropReason::FactCap, drops.facts),
            (DropReason::Memory, drops.memory),
            (DropReason::IndexCap, self.attribution.take_index_drops()),
            (DropReason::Unattributed, self.attribution.take_unattributed()),
        ];
        let dropped = counts.into_iter().filter(|(_, count)| *count > 0);
        out.extend(dropped.map(|(reason, count)| Report::Dropped { reason, count }));
        self.pods.drops(out);
    }
}
