//! The termination that a person asks for, by any of its names.

use std::collections::VecDeque;

use epitaph_core::time::Wall;

use serde::Serialize;

use super::{Counts, Group, Report, Subject};

/// Shortest beginning of an id that is taken for one: shorter ones match too much by chance.
const SHORTEST_ID: usize = 4;

/// Other matches that are kept, the newest ones.
const OTHERS: usize = 10;

/// What a person typed.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Without the runtime that `kubectl` writes before an id (`containerd://`).
    text: String,
}

/// How a report matches, the best first. Only the best kind of match counts: the name of a workload is not also the beginning of
/// another one's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Match {
    Name,
    Workload,
    Id,
    /// The name or pid of the first process of a container or unit.
    Process,
    /// The beginning of an id.
    IdPrefix,
    /// The beginning of the name of a pod, of a unit, or of a container outside of Kubernetes.
    #[serde(rename = "name-prefix")]
    Prefix,
    /// The time after the shutdown that has the same names.
    Down,
}

/// Which part of a report matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// By its index in the containers of the pod.
    Container(usize),
}

impl Wanted {
    pub fn new(text: &str) -> Wanted {
        let text = text.split_once("://").map_or(text, |(_, id)| id);
        Wanted { text: text.to_owned() }
    }

    /// It looks like the beginning of an id, but is too short for one.
    pub fn is_short_id(&self) -> bool {
        self.text.len() < SHORTEST_ID && is_of_ids(&self.text)
    }

    fn matches(&self, report: &Report) -> Option<(Match, Part)> {
        let containers = report.containers.iter().enumerate();
        let inner = containers.filter_map(|(at, container)| {
            let (found, _) = self.matches_container(container)?;
            Some((found, Part::Container(at)))
        });
        let own = self.matches_own(report).map(|found| (found, Part::Whole));
        // The whole before its parts, where both match alike.
        own.into_iter()
            .chain(inner)
            .chain(self.matches_container(report))
            .min_by_key(|(found, _)| *found)
    }

    /// By what `ps` shows of the first process.
    fn matches_process(&self, report: &Report) -> Option<Match> {
        let main = report.main.as_ref()?;
        // A number is also the beginning of an id, and is a pid only as people write pids.
        let is_pid = main.pid > 0 && self.text == main.pid.to_string();
        (is_pid || (!self.text.is_empty() && *main.comm == *self.text)).then_some(Match::Process)
    }

    /// By the names of the pod, of its workload, of a unit; by the id of the trace.
    fn matches_own(&self, report: &Report) -> Option<Match> {
        let text = self.text.as_str();
        if report.is_of_node() {
            let is_name = *text.strip_prefix("node/").unwrap_or(text) == *report.node;
            return match (is_name, of_id(text, &report.trace_id)) {
                (false, None) => None,
                _ if report.is_down() => Some(Match::Down),
                (true, _) => Some(Match::Name),
                (false, by_trace) => by_trace,
            };
        }
        let by_unit = match &report.subject {
            Some(Subject::Unit { name }) if **name == *text || name.strip_suffix(".service") == Some(text) => {
                return Some(Match::Name);
            }
            Some(Subject::Unit { name }) => (!text.is_empty() && name.starts_with(text)).then_some(Match::Prefix),
            _ => None,
        };
        let by_pod = report.pod().and_then(|pod| {
            let (namespace, rest) = match text.split_once('/') {
                Some((namespace, rest)) if *namespace == *pod.namespace => (true, rest),
                _ => (false, text),
            };
            let is_kind = |kind: &str| kind.eq_ignore_ascii_case(&pod.workload.kind);
            let workload = match rest.split_once('/') {
                Some((kind, name)) => is_kind(kind) && *name == *pod.workload.name,
                None => *rest == *pod.workload.name,
            };
            let pod_name = rest.strip_prefix("pod/").unwrap_or(rest);
            if *pod_name == *pod.name || *text == *pod.uid {
                Some(Match::Name)
            } else if workload {
                Some(Match::Workload)
            } else if let Some(by_uid) = of_id(text, &pod.uid) {
                Some(by_uid)
            } else {
                // Not of a workload in all namespaces: `shop/` is not a name.
                let is_prefix = !pod_name.is_empty() && pod.name.starts_with(pod_name);
                (is_prefix && (namespace || !text.contains('/'))).then_some(Match::Prefix)
            }
        });
        by_pod.into_iter().chain(by_unit).chain(of_id(text, &report.trace_id)).min()
    }

    /// By the id of a container, by its name and image outside of Kubernetes, by its name behind that of the pod; by its first process,
    /// also of a unit.
    fn matches_container(&self, report: &Report) -> Option<(Match, Part)> {
        let by_id = match &report.subject {
            Some(Subject::Container { id, .. }) => of_id(&self.text, id),
            _ => None,
        };
        let found = [
            by_id,
            self.matches_bare(report),
            self.matches_in_pod(report),
            self.matches_process(report),
        ];
        found.into_iter().flatten().min().map(|found| (found, Part::Whole))
    }

    /// `POD/CONTAINER`.
    fn matches_in_pod(&self, report: &Report) -> Option<Match> {
        let context = report.kubernetes.as_ref()?;
        let name = context.container.as_deref()?;
        let pod = self.text.strip_suffix(name)?.strip_suffix('/')?;
        let is_pod = *pod == *context.pod.name
            || pod
                .split_once('/')
                .is_some_and(|(namespace, pod)| *namespace == *context.pod.namespace && *pod == *context.pod.name);
        is_pod.then_some(Match::Name)
    }

    fn matches_bare(&self, report: &Report) -> Option<Match> {
        let name = report.container_name().filter(|_| !report.is_in_pod());
        if name.is_some_and(|name| **name == *self.text) {
            return Some(Match::Name);
        }
        if report.container_image().is_some_and(|image| **image == *self.text) {
            return Some(Match::Workload);
        }
        let is_prefix = !self.text.is_empty() && name?.starts_with(&self.text);
        is_prefix.then_some(Match::Prefix)
    }
}

fn of_id(text: &str, id: &str) -> Option<Match> {
    let begins = text.len() >= SHORTEST_ID && is_of_ids(text) && id.starts_with(&text.to_ascii_lowercase());
    begins.then_some(if text.len() == id.len() { Match::Id } else { Match::IdPrefix })
}

fn is_of_ids(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

impl Match {
    /// Others may have matched that are something else.
    pub fn is_prefix(self) -> bool {
        matches!(self, Match::IdPrefix | Match::Prefix)
    }

    /// What older matches have in common with the one that is shown: "Earlier, {}".
    pub fn in_common(self) -> &'static str {
        match self {
            Match::Name | Match::Down => "of the same name",
            Match::Workload => "of the same workload",
            Match::Id => "of the same id",
            Match::Process => "whose first process has this name or pid",
            Match::IdPrefix => "whose id begins with this",
            Match::Prefix => "whose name begins with this",
        }
    }
}

/// The newest of the best matches.
#[derive(Debug)]
pub struct Found {
    /// The object as the source has it.
    pub line: String,
    pub by: Match,
    pub end: Option<Wall>,
    /// The container that was asked for, by its index in a pod's containers.
    pub container: Option<usize>,
    /// Of its workload, before it: terminations with the same verdict, and all.
    pub same: u64,
    pub all: u64,
    /// End of the last one with the same verdict.
    pub last_same: Option<Wall>,
    /// Earliest end of any termination before it.
    pub since: Option<Wall>,
}

/// Looks for one termination in a stream of reports.
#[derive(Debug)]
pub struct Search<B> {
    wanted: Wanted,
    best: Option<(Match, Found, B)>,
    /// Older matches of the same kind, the newest last.
    others: VecDeque<(Option<Wall>, B)>,
    /// Including those that are not kept.
    more: u64,
}

impl<B> Search<B> {
    pub fn new(wanted: Wanted) -> Search<B> {
        Search {
            wanted,
            best: None,
            others: VecDeque::new(),
            more: 0,
        }
    }

    /// `before`: what came before the report. `brief`: what is kept of the report if it is not the newest.
    pub fn look(&mut self, report: &Report, line: &str, before: &Counts, brief: impl FnOnce(&Report) -> B) {
        let Some((found, part)) = self.wanted.matches(report) else {
            return;
        };
        let end = report.end.map(|at| at.0);
        match &self.best {
            Some((best, ..)) if *best < found => return,
            Some((best, ..)) if *best > found => {
                (self.best, self.more) = (None, 0);
                self.others.clear();
            }
            _ => {}
        }
        let brief = brief(report);
        if self.best.as_ref().is_some_and(|(_, best, _)| best.end > end) {
            self.keep(end, brief);
            return;
        }
        let group = Group::of(report);
        let verdicts = group.as_ref().map_or_else(Default::default, |group| before.of(group));
        let same = verdicts.iter().find(|(verdict, _)| *verdict == report.verdict);
        let same = same.map(|(_, counted)| counted);
        let new = Found {
            line: line.to_owned(),
            by: found,
            end,
            container: match part {
                Part::Whole => None,
                Part::Container(at) => Some(at),
            },
            same: same.map_or(0, |counted| counted.count),
            all: verdicts.iter().map(|(_, counted)| counted.count).sum(),
            last_same: same.and_then(|counted| counted.last),
            since: before.first,
        };
        if let Some((_, old, brief)) = self.best.replace((found, new, brief)) {
            self.keep(old.end, brief);
        }
    }

    fn keep(&mut self, end: Option<Wall>, brief: B) {
        self.more += 1;
        let at = self.others.partition_point(|(other, _)| *other <= end);
        self.others.insert(at, (end, brief));
        if self.others.len() > OTHERS {
            self.others.pop_front();
        }
    }

    /// The match; the older ones that are kept, the newest first; how many older ones there are.
    pub fn finish(self) -> Option<(Found, Vec<B>, u64)> {
        let others = self.others.into_iter().rev().map(|(_, brief)| brief).collect();
        self.best.map(|(_, found, _)| (found, others, self.more))
    }
}

/// Names, for a line of a list.
impl Report {
    /// Namespace and workload of a pod, also with the container where the pod continued; a unit; the name of a container, or the
    /// beginning of its id.
    pub fn short_name(&self) -> String {
        if self.is_of_node() {
            return format!("node {}", self.node);
        }
        let container = self.kubernetes.as_ref().and_then(|context| context.container.as_deref());
        if let Some(pod) = self.pod() {
            let workload = match &*pod.workload.name {
                "" => &*pod.name,
                name => name,
            };
            let name = format!("{}/{workload}", pod.namespace);
            return match container {
                Some(container) => format!("{name}/{container}"),
                None => name,
            };
        }
        if let Some(name) = self.container_name() {
            return name.to_string();
        }
        match &self.subject {
            Some(Subject::Container { id, .. }) => {
                let comm = self.main.as_ref().map_or("", |main| &*main.comm);
                let id = id.get(..12).unwrap_or(id);
                if comm.is_empty() {
                    id.to_owned()
                } else {
                    format!("{id} {comm}")
                }
            }
            Some(Subject::Unit { name }) => name.to_string(),
            Some(Subject::Other) | None => "unknown".to_owned(),
        }
    }
}

impl Group {
    /// In words: `Deployment shop/cart`.
    pub fn name(&self) -> String {
        match self {
            Group::Workload { namespace, workload } => format!("{} {namespace}/{}", workload.kind, workload.name),
            Group::Unit(name) => format!("unit {name}"),
            Group::Named(name) => format!("container {name}"),
            Group::Image(image) => format!("image {image}"),
            Group::Container(id) => format!("container {}", id.get(..12).unwrap_or(id)),
            Group::Containers => "containers without a name".to_owned(),
            Group::Node(name) => format!("node {name}"),
        }
    }
}
