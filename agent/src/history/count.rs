//! How often what happened, by workload and verdict.

use std::collections::{BTreeMap, HashMap};

use epitaph_core::time::Wall;

use super::{Report, Subject, Text, Workload};

/// Most workloads that are told apart; a machine of bare containers has a new one for each.
const GROUPS: usize = 4096;

/// Most verdicts of one workload: more than exist.
const VERDICTS: usize = 64;

/// What recurrences are counted by: the workload of a pod, a unit, or a container that no known pod has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// A pod without a controller is its own workload, of the kind `Pod`.
    Workload {
        namespace: Text,
        workload: Workload,
    },
    Unit(Text),
    /// A container with a name that people gave it; a new container of the same name is the same group.
    Named(Text),
    /// Containers without a name of their own.
    Image(Text),
    /// A container of which only the id is known.
    Container(Text),
    /// Its shutdowns.
    Node(Text),
}

impl Group {
    /// None for a report that names nothing.
    pub fn of(report: &Report) -> Option<Group> {
        if report.is_of_node() {
            return Some(Group::Node(report.node.clone()));
        }
        if let Some(pod) = report.pod() {
            return Some(Group::Workload {
                namespace: pod.namespace.clone(),
                workload: pod.workload.clone(),
            });
        }
        match report.subject.as_ref()? {
            Subject::Container { id, pod_uid, .. } => {
                // In a pod the spec's names, such as `app`, are those of many workloads: the image tells more.
                let name = report
                    .container_name()
                    .filter(|_| pod_uid.is_none())
                    .cloned()
                    .map(Group::Named);
                let image = || report.container_image().cloned().map(Group::Image);
                Some(name.or_else(image).unwrap_or_else(|| Group::Container(id.clone())))
            }
            Subject::Unit { name } => Some(Group::Unit(name.clone())),
            Subject::Other => None,
        }
    }
}

/// Terminations of one group with one verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    pub count: u64,
    pub unclean: bool,
    pub severity: Text,
    /// Ends of the first and the last one, in the order of time.
    pub first: Option<Wall>,
    pub last: Option<Wall>,
}

/// Bounded: what belongs to no group is counted in [`Counts::ungrouped`].
#[derive(Debug, Default)]
pub struct Counts {
    groups: HashMap<Group, BTreeMap<Text, Counted>>,
    pub total: u64,
    pub unclean: u64,
    /// Terminations of workloads beyond the first [`GROUPS`], or of none.
    pub ungrouped: u64,
    /// The earliest and the latest end.
    pub first: Option<Wall>,
    pub last: Option<Wall>,
}

impl Counts {
    /// Counts the report without its workload.
    pub fn saw(&mut self, report: &Report) {
        self.total += 1;
        self.unclean += u64::from(report.unclean);
        widen(&mut self.first, &mut self.last, report.end.map(|at| at.0));
    }

    pub fn add(&mut self, report: &Report) {
        let end = report.end.map(|at| at.0);
        self.saw(report);
        // Its shutdown is counted.
        if report.is_down() {
            return;
        }
        let group = Group::of(report).filter(|group| self.groups.contains_key(group) || self.groups.len() < GROUPS);
        let Some(verdicts) = group.map(|group| self.groups.entry(group).or_default()) else {
            self.ungrouped += 1;
            return;
        };
        if !verdicts.contains_key(&report.verdict) && verdicts.len() >= VERDICTS {
            self.ungrouped += 1;
            return;
        }
        let counted = verdicts.entry(report.verdict.clone()).or_insert_with(|| Counted {
            count: 0,
            unclean: report.unclean,
            severity: report.severity.clone(),
            first: None,
            last: None,
        });
        counted.count += 1;
        widen(&mut counted.first, &mut counted.last, end);
    }

    /// The verdicts of one group.
    pub fn of(&self, group: &Group) -> Option<&BTreeMap<Text, Counted>> {
        self.groups.get(group)
    }

    /// What [`super::Wanted`] finds groups by.
    pub fn names(&self) -> Vec<String> {
        let name = |group: &Group| match group {
            Group::Workload { workload, .. } => Some(workload.name.to_string()),
            Group::Unit(name) | Group::Named(name) | Group::Image(name) | Group::Node(name) => Some(name.to_string()),
            Group::Container(_) => None,
        };
        self.groups.keys().filter_map(name).collect()
    }

    /// Worst first: unclean, by severity, by number, then by the last one.
    pub fn worst_first(&self) -> Vec<(&Group, &Text, &Counted)> {
        let mut rows: Vec<_> = self
            .groups
            .iter()
            .flat_map(|(group, verdicts)| verdicts.iter().map(move |(verdict, counted)| (group, verdict, counted)))
            .collect();
        let severity = |counted: &Counted| match &*counted.severity {
            "critical" => 2,
            "warning" => 1,
            _ => 0,
        };
        rows.sort_by(|(a_group, a_verdict, a), (b_group, b_verdict, b)| {
            let a_worst = (a.unclean, severity(a), a.count, a.last);
            let b_worst = (b.unclean, severity(b), b.count, b.last);
            b_worst.cmp(&a_worst).then((a_group, a_verdict).cmp(&(b_group, b_verdict)))
        });
        rows
    }
}

fn widen(first: &mut Option<Wall>, last: &mut Option<Wall>, at: Option<Wall>) {
    let Some(at) = at else { return };
    *first = Some(first.map_or(at, |first| first.min(at)));
    *last = Some(last.map_or(at, |last| last.max(at)));
}
