//! How often what happened, by workload and verdict.

use std::collections::HashMap;

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
    /// Such containers that are not unclean, in [`Counts::folded`].
    Containers,
    /// Its shutdowns.
    Node(Text),
}

impl Group {
    /// None for a report that names nothing.
    pub fn of(report: &Report) -> Option<Group> {
        if report.is_of_node() {
            return Some(Group::Node(report.node.name()));
        }
        if let Some(pod) = report.pod() {
            return Some(Group::Workload {
                namespace: pod.namespace.name(),
                workload: Workload {
                    kind: pod.workload.kind.name(),
                    name: pod.workload.name.name(),
                },
            });
        }
        match report.subject.as_ref()? {
            Subject::Container { id, .. } => {
                // The image tells more than a name of a pod's spec.
                let name = report
                    .container_name()
                    .filter(|_| !report.is_in_pod())
                    .map(|name| Group::Named(name.name()));
                let image = || report.container_image().map(|image| Group::Image(image.name()));
                Some(name.or_else(image).unwrap_or_else(|| Group::Container(id.name())))
            }
            Subject::Unit { name } => Some(Group::Unit(name.name())),
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

impl Counted {
    /// How bad: unclean, and the severity.
    fn rank(&self) -> Rank {
        rank(self.unclean, &self.severity)
    }
}

type Rank = (bool, u8);

fn rank(unclean: bool, severity: &str) -> Rank {
    let severity = match severity {
        "critical" => 2,
        "warning" => 1,
        _ => 0,
    };
    (unclean, severity)
}

/// What is known of a group.
#[derive(Debug, Default)]
struct Verdicts {
    /// Most groups have one: no map, whose smallest node has room for eleven.
    counted: Vec<(Text, Counted)>,
    worst: Rank,
    last: Option<Wall>,
    /// In the order in which the groups came.
    number: u64,
}

/// Bounded: what belongs to no group is counted in [`Counts::ungrouped`].
#[derive(Debug, Default)]
pub struct Counts {
    groups: HashMap<Group, Verdicts>,
    folded: bool,
    /// Once there are too many groups: none of them is less bad, so that most newcomers need no search.
    least: Rank,
    pub total: u64,
    pub unclean: u64,
    pub unknown: u64,
    /// Terminations beyond [`GROUPS`] workloads, none of them worse than those of the groups; or of no workload.
    pub ungrouped: u64,
    pub ungrouped_unclean: u64,
    /// The earliest and the latest end.
    pub first: Option<Wall>,
    pub last: Option<Wall>,
}

impl Counts {
    /// For people: containers of which only the id is known are one group, unless they are unclean.
    pub fn folded() -> Counts {
        Counts {
            folded: true,
            ..Counts::default()
        }
    }

    /// Counts the report without its workload.
    pub fn saw(&mut self, report: &Report) {
        self.total += 1;
        self.unclean += u64::from(report.unclean);
        self.unknown += u64::from(report.is_unknown());
        widen(&mut self.first, &mut self.last, report.end.map(|at| at.0));
    }

    pub fn add(&mut self, report: &Report) {
        let end = report.end.map(|at| at.0);
        self.saw(report);
        // Its shutdown is counted.
        if report.is_down() {
            return;
        }
        let rank = rank(report.unclean, &report.severity);
        let group = Group::of(report).map(|group| match group {
            Group::Container(_) if self.folded && !report.unclean => Group::Containers,
            group => group,
        });
        let Some(verdicts) = group.and_then(|group| self.room(group, rank)) else {
            self.leave_out(1, report.unclean.into());
            return;
        };
        let counted = &mut verdicts.counted;
        let verdict = report.verdict.name();
        let at = match counted.iter().position(|(known, _)| *known == verdict) {
            Some(at) => at,
            None if counted.len() >= VERDICTS => {
                self.leave_out(1, report.unclean.into());
                return;
            }
            None => {
                counted.reserve_exact(1);
                counted.push((
                    verdict,
                    Counted {
                        count: 0,
                        unclean: report.unclean,
                        severity: report.severity.name(),
                        first: None,
                        last: None,
                    },
                ));
                counted.len() - 1
            }
        };
        let counted = &mut counted[at].1;
        counted.count += 1;
        widen(&mut counted.first, &mut counted.last, end);
        verdicts.worst = verdicts.worst.max(rank);
        verdicts.last = verdicts.last.max(end);
    }

    /// The group's verdicts. If there are too many groups, the oldest of those that are less bad than this one makes room.
    fn room(&mut self, group: Group, rank: Rank) -> Option<&mut Verdicts> {
        if self.groups.len() >= GROUPS && !self.groups.contains_key(&group) {
            if rank <= self.least {
                return None;
            }
            let least = self.groups.iter().min_by_key(|(_, of)| (of.worst, of.last, of.number));
            let (least, rank_of_least) = least.map(|(group, of)| (group.clone(), of.worst))?;
            self.least = rank_of_least;
            if rank <= rank_of_least {
                return None;
            }
            if let Some(of) = self.groups.remove(&least) {
                let of = || of.counted.iter().map(|(_, counted)| counted);
                let unclean = of().filter(|counted| counted.unclean).map(|counted| counted.count).sum();
                self.leave_out(of().map(|counted| counted.count).sum(), unclean);
            }
        }
        let number = self.total;
        Some(self.groups.entry(group).or_insert_with(|| Verdicts {
            number,
            ..Verdicts::default()
        }))
    }

    fn leave_out(&mut self, count: u64, unclean: u64) {
        self.ungrouped += count;
        self.ungrouped_unclean += unclean;
    }

    /// The verdicts of one group; none if the group is not known.
    pub fn of(&self, group: &Group) -> &[(Text, Counted)] {
        self.groups.get(group).map_or(&[], |of| &of.counted)
    }

    /// What [`super::Wanted`] finds groups by.
    pub fn names(&self) -> Vec<String> {
        let name = |group: &Group| match group {
            Group::Workload { workload, .. } => Some(workload.name.to_string()),
            Group::Unit(name) | Group::Named(name) | Group::Image(name) | Group::Node(name) => Some(name.to_string()),
            Group::Container(_) | Group::Containers => None,
        };
        self.groups.keys().filter_map(name).collect()
    }

    /// Worst first: unclean, by severity, by number, then by the last one.
    pub fn worst_first(&self) -> Vec<(&Group, &Text, &Counted)> {
        let rows = self.groups.iter();
        let mut rows: Vec<_> = rows
            .flat_map(|(group, of)| of.counted.iter().map(move |(verdict, counted)| (group, verdict, counted)))
            .collect();
        rows.sort_by(|(a_group, a_verdict, a), (b_group, b_verdict, b)| {
            let a_worst = (a.rank(), a.count, a.last);
            let b_worst = (b.rank(), b.count, b.last);
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
