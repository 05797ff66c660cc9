//! Series by workload, kept here and read at every collection: the SDK's counters never forget a series, and a node sees many
//! workloads come and go.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::pod;
use epitaph_core::termination::Traffic;
use epitaph_core::time::{Boot, Wall};
use epitaph_core::verdict::advice::Need;
use epitaph_core::verdict::held::HeldBy;
use epitaph_core::verdict::{self, AdviceKind, Disagreement, Said, Verdict, Was};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use super::table::{
    HOST_UNCLEAN, INCIDENTS, Row, WORKLOAD_ADVICE, WORKLOAD_CONNECTIONS, WORKLOAD_DISAGREES, WORKLOAD_GRACE_CUT, WORKLOAD_HELD,
    WORKLOAD_IGNORED, WORKLOAD_INCIDENT, WORKLOAD_STUCK, WORKLOAD_TERMINATIONS, WORKLOAD_UNCLEAN, WORKLOAD_VERDICTS,
};
use crate::render::attributes::key;

/// Reason of a termination that was counted as `other`.
pub(super) const OVER_CAP: &str = "workload_cap";

/// How long a recommendation and the series of a workload without pods are kept: long enough to be read after the last
/// termination.
const KEPT: Duration = Duration::from_secs(3600);

/// Interval of the removal of old series.
const SWEEP: Duration = Duration::from_secs(60);

/// Recommendations of one kind that are kept for the time when larger ones are too old.
const ADVICES: usize = 8;

const OUTCOMES: [&str; 4] = ["refused", "reset", "cut", "rejected"];

/// What terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Pod,
    /// A container that was reported alone: its pod continued, or the agent stopped before the pod.
    Container,
}

impl What {
    const ALL: [What; 2] = [What::Pod, What::Container];

    const fn name(self) -> &'static str {
        match self {
            What::Pod => "pod",
            What::Container => "container",
        }
    }
}

/// A termination, and what it shows about the least useful value of a setting.
pub(super) struct Ended<'a> {
    pub what: What,
    pub verdict: &'a Verdict,
    pub needs: [(AdviceKind, Need); 2],
    /// The pod got less than its own grace period: see [`verdict::is_grace_cut`].
    pub is_cut_short: bool,
    /// Of its containers.
    pub disagreements: Vec<(Said, Was)>,
}

/// Most series of one instrument.
pub(super) fn series(workloads: usize) -> usize {
    workloads.saturating_add(1).saturating_mul(verdict::table::TABLE.len())
}

pub(super) struct Workloads(Arc<Mutex<Known>>);

struct Known {
    limit: usize,
    now: Boot,
    swept: Boot,
    all: HashMap<Name, Counts>,
    /// Counts of the workloads beyond the limit.
    other: Option<Counts>,
    /// The latest unclean termination without a pod, by verdict, subject and runtime.
    host: BTreeMap<[&'static str; 3], Wall>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: String,
    kind: String,
    name: String,
}

#[derive(Default)]
struct Counts {
    /// Number of owners under this name with pods on this node: a Deployment's ReplicaSets, a namespace's Jobs.
    running: usize,
    /// Since when there are no such owners.
    gone: Option<Boot>,
    /// By [`What::ALL`], then clean and unclean.
    ended: [[u64; 2]; 2],
    verdicts: BTreeMap<&'static str, u64>,
    /// By [`OUTCOMES`].
    connections: [u64; 4],
    ignored: u64,
    stuck: u64,
    cut_short: u64,
    disagreements: BTreeMap<(Said, Was), u64>,
    held: BTreeMap<HeldBy, u64>,
    /// The latest unclean termination by verdict.
    unclean: BTreeMap<&'static str, Wall>,
    /// The latest of each of [`INCIDENTS`].
    incidents: BTreeMap<&'static str, Wall>,
    /// Recommended values, in seconds.
    advice: BTreeMap<AdviceKind, Recent<u64>>,
    /// Observed needs, by the kind of recommendation for less that they exclude.
    needed: BTreeMap<AdviceKind, Recent<Need>>,
}

/// The largest recent value, and in falling order the later ones: each is the largest once those before it are too old.
struct Recent<T>(Vec<(T, Boot)>);

impl Workloads {
    pub(super) fn new(limit: usize, meter: &Meter) -> Workloads {
        let known = Workloads(Arc::new(Mutex::new(Known {
            limit,
            now: Boot(0),
            swept: Boot(0),
            all: HashMap::new(),
            other: None,
            host: BTreeMap::new(),
        })));
        known.counter(&WORKLOAD_TERMINATIONS, meter, |counts, observe| {
            for (what, ended) in What::ALL.into_iter().zip(counts.ended) {
                for (unclean, count) in [false, true].into_iter().zip(ended) {
                    observe(
                        count,
                        &[KeyValue::new("what", what.name()), KeyValue::new("unclean", unclean)],
                    );
                }
            }
        });
        known.counter(&WORKLOAD_VERDICTS, meter, |counts, observe| {
            for (verdict, count) in &counts.verdicts {
                observe(*count, &[KeyValue::new("verdict", *verdict)]);
            }
        });
        known.counter(&WORKLOAD_CONNECTIONS, meter, |counts, observe| {
            for (outcome, count) in OUTCOMES.into_iter().zip(counts.connections).filter(|(_, count)| *count > 0) {
                observe(count, &[KeyValue::new("outcome", outcome)]);
            }
        });
        known.counter(&WORKLOAD_IGNORED, meter, |counts, observe| some(counts.ignored, observe));
        known.counter(&WORKLOAD_GRACE_CUT, meter, |counts, observe| observe(counts.cut_short, &[]));
        known.counter(&WORKLOAD_DISAGREES, meter, |counts, observe| {
            for (said, was) in Disagreement::all() {
                let count = counts.disagreements.get(&(said, was)).copied().unwrap_or_default();
                observe(count, &[KeyValue::new("said", said.name()), KeyValue::new("was", was.name())]);
            }
        });
        known.counter(&WORKLOAD_STUCK, meter, |counts, observe| some(counts.stuck, observe));
        known.counter(&WORKLOAD_HELD, meter, |counts, observe| {
            for (by, count) in &counts.held {
                observe(*count, &[KeyValue::new("holder", by.name())]);
            }
        });
        known.gauge(&WORKLOAD_UNCLEAN, meter, |known, observe| {
            known.each(&mut |name, counts| {
                for (verdict, at) in &counts.unclean {
                    observe(
                        at.seconds(),
                        &[&name, [KeyValue::new("verdict", *verdict)].as_slice()].concat(),
                    );
                }
            });
        });
        known.gauge(&WORKLOAD_INCIDENT, meter, |known, observe| {
            known.each(&mut |name, counts| {
                for (incident, at) in &counts.incidents {
                    observe(
                        at.seconds(),
                        &[&name, [KeyValue::new("incident", *incident)].as_slice()].concat(),
                    );
                }
            });
        });
        known.gauge(&HOST_UNCLEAN, meter, |known, observe| {
            for (values, at) in &known.host {
                let labels = ["verdict", "subject", "runtime"].into_iter().zip(*values);
                observe(
                    at.seconds(),
                    &labels.map(|(name, value)| KeyValue::new(name, value)).collect::<Vec<_>>(),
                );
            }
        });
        known.gauge(&WORKLOAD_ADVICE, meter, |known, observe| {
            known.each(&mut |name, counts| {
                for (kind, seconds) in counts.advised() {
                    observe(
                        seconds as f64,
                        &[&name, [KeyValue::new("advice", kind.name())].as_slice()].concat(),
                    );
                }
            });
        });
        known
    }

    /// The SDK keeps an observable gauge's last value forever, but ends the series of a silent up-down counter.
    fn gauge(&self, row: &Row, meter: &Meter, read: impl Fn(&Known, &mut dyn FnMut(f64, &[KeyValue])) + Send + Sync + 'static) {
        let known = self.0.clone();
        meter
            .f64_observable_up_down_counter(row.name)
            .with_unit(row.unit)
            .with_description(row.about)
            .with_callback(move |observer| {
                read(&lock(&known), &mut |value, labels| observer.observe(value, labels));
            })
            .build();
    }

    /// `read` returns the numbers of one workload, each with its labels in addition to the workload's.
    fn counter(
        &self,
        row: &Row,
        meter: &Meter,
        read: impl Fn(&Counts, &mut dyn FnMut(u64, &[KeyValue])) + Send + Sync + 'static,
    ) {
        let known = self.0.clone();
        meter
            .u64_observable_counter(row.name)
            .with_unit(row.unit)
            .with_description(row.about)
            .with_callback(move |observer| {
                lock(&known).each(&mut |name, counts| {
                    read(counts, &mut |count, more| observer.observe(count, &[&name, more].concat()));
                });
            })
            .build();
    }

    /// A pod of the workload runs here: its terminations start at 0.
    pub(super) fn runs(&self, workload: &pod::Workload) {
        let mut known = lock(&self.0);
        if let Some(counts) = known.own(workload) {
            counts.running += 1;
            counts.gone = None;
        }
    }

    pub(super) fn gone(&self, workload: &pod::Workload) {
        let mut known = lock(&self.0);
        let now = known.now;
        if let Some(counts) = known.all.get_mut(&Name::of(workload)) {
            counts.running = counts.running.saturating_sub(1);
            counts.gone = (counts.running == 0).then_some(now);
        }
    }

    /// Returns how many terminations were counted as `other`.
    pub(super) fn ended<'a>(
        &self,
        at: Wall,
        workload: &pod::Workload,
        end: &Ended<'_>,
        traffic: impl IntoIterator<Item = &'a Traffic>,
    ) -> u64 {
        let mut known = lock(&self.0);
        let (now, (counts, over)) = (known.now, known.counts(workload));
        counts.ended[end.what as usize][usize::from(end.verdict.unclean)] += 1;
        *counts.verdicts.entry(end.verdict.headline).or_default() += 1;
        counts.cut_short += u64::from(end.is_cut_short);
        for pair in &end.disagreements {
            *counts.disagreements.entry(*pair).or_default() += 1;
        }
        if end.verdict.unclean {
            counts.unclean.insert(end.verdict.headline, at);
        }
        // Also where sockets were seen only in part: a counter is the least anyway.
        for t in traffic {
            let of = [t.refused.all.count, t.reset.count, t.cut.count, t.rejected.count];
            for ((sum, incident), count) in counts.connections.iter_mut().zip(INCIDENTS).zip(of) {
                *sum += count;
                if count > 0 {
                    counts.incidents.insert(incident, at);
                }
            }
        }
        // A recommendation for `other` would apply to no particular workload.
        if !over {
            counts.advise(end, now);
        }
        u64::from(over)
    }

    /// An unclean termination without a pod.
    pub(super) fn host_unclean(&self, at: Wall, labels: [&'static str; 3]) {
        lock(&self.0).host.insert(labels, at);
    }

    pub(super) fn ignored(&self, at: Wall, workload: &pod::Workload) {
        let mut known = lock(&self.0);
        let (counts, _) = known.counts(workload);
        counts.ignored += 1;
        counts.incidents.insert("stop-signal-ignored", at);
    }

    pub(super) fn stuck(&self, at: Wall, workload: &pod::Workload) {
        let mut known = lock(&self.0);
        let (counts, _) = known.counts(workload);
        counts.stuck += 1;
        counts.incidents.insert("stuck", at);
    }

    pub(super) fn held(&self, workload: &pod::Workload, by: HeldBy) {
        let mut known = lock(&self.0);
        let (counts, _) = known.counts(workload);
        *counts.held.entry(by).or_default() += 1;
    }

    pub(super) fn alive(&self, now: Boot) {
        let mut known = lock(&self.0);
        known.now = now;
        if now.since(known.swept) >= SWEEP {
            known.swept = now;
            known.sweep();
        }
    }
}

impl Known {
    /// The workload's own series, if the limit allows them.
    fn own(&mut self, workload: &pod::Workload) -> Option<&mut Counts> {
        let name = Name::of(workload);
        if !self.all.contains_key(&name) && self.all.len() >= self.limit {
            let oldest = self.least_missed()?;
            self.all.remove(&oldest);
        }
        let new = || Counts {
            gone: Some(self.now),
            ..Counts::default()
        };
        Some(self.all.entry(name).or_insert_with(new))
    }

    /// Of the namespace with the most workloads without pods, the workload that has been without pods the longest: a namespace whose
    /// workloads are created and deleted pushes no series of another namespace out.
    fn least_missed(&self) -> Option<Name> {
        let gone = || self.all.iter().filter_map(|(name, counts)| Some((counts.gone?, name)));
        let mut numbers = HashMap::<&str, usize>::new();
        for (_, name) in gone() {
            *numbers.entry(&name.namespace).or_default() += 1;
        }
        let most = numbers.values().max()?;
        let of_most = gone().filter(|(_, name)| numbers.get(&*name.namespace) == Some(most));
        of_most.min_by_key(|(gone, _)| *gone).map(|(_, name)| name.clone())
    }

    /// True: the series `other`, for workloads beyond the limit.
    fn counts(&mut self, workload: &pod::Workload) -> (&mut Counts, bool) {
        let known = self.own(workload).is_some();
        match self.all.get_mut(&Name::of(workload)).filter(|_| known) {
            Some(counts) => (counts, false),
            None => (self.other.get_or_insert_default(), true),
        }
    }

    fn sweep(&mut self) {
        let now = self.now;
        let is_old = |at: Boot| now.since(at) >= KEPT;
        self.all.retain(|_, counts| !counts.gone.is_some_and(is_old));
        for counts in self.all.values_mut() {
            counts.advice.retain(|_, recent| recent.forget(is_old));
            counts.needed.retain(|_, recent| recent.forget(is_old));
        }
    }

    fn each(&self, observe: &mut dyn FnMut([KeyValue; 3], &Counts)) {
        for (name, counts) in &self.all {
            observe(name.labels(), counts);
        }
        if let Some(counts) = &self.other {
            let name = ["other"; 3].map(str::to_owned);
            let [namespace, kind, name] = name;
            observe(Name { namespace, kind, name }.labels(), counts);
        }
    }
}

impl Counts {
    fn advise(&mut self, end: &Ended<'_>, now: Boot) {
        for advice in &end.verdict.advice {
            if let Some(seconds) = advice.seconds {
                self.advice.entry(advice.kind).or_default().add(seconds, now);
            }
        }
        for (kind, need) in end.needs.into_iter().filter(|(_, need)| *need != Need::Nothing) {
            self.needed.entry(kind).or_default().add(need, now);
        }
    }

    /// Without those that another recent termination excludes: an idle pod needs less than a busy one.
    fn advised(&self) -> impl Iterator<Item = (AdviceKind, u64)> {
        let largest = self
            .advice
            .iter()
            .filter_map(|(kind, recent)| Some((*kind, recent.largest()?)));
        largest.filter(|(kind, seconds)| {
            let needed = self.needed.get(kind).and_then(Recent::largest);
            let is_enough = needed.is_none_or(|needed| needed <= Need::Seconds(*seconds));
            is_enough && !kind.excluded_by().iter().any(|kind| self.advice.contains_key(kind))
        })
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent(Vec::new())
    }
}

impl<T: Copy + Ord> Recent<T> {
    fn add(&mut self, value: T, now: Boot) {
        self.0.retain(|(known, _)| *known > value);
        // Above the limit the smallest is dropped.
        self.0.truncate(ADVICES - 1);
        self.0.push((value, now));
    }

    fn largest(&self) -> Option<T> {
        self.0.first().map(|(value, _)| *value)
    }

    /// False: no value is left.
    fn forget(&mut self, is_old: impl Fn(Boot) -> bool) -> bool {
        self.0.retain(|(_, at)| !is_old(*at));
        !self.0.is_empty()
    }
}

impl Name {
    /// Names that are new for every run, and names of pods, are counted by kind.
    fn of(workload: &pod::Workload) -> Name {
        let name = match workload.kind.as_str() {
            "Job" | "Pod" => "*",
            _ => &workload.name,
        };
        Name {
            namespace: workload.namespace.clone(),
            kind: workload.kind.clone(),
            name: name.to_owned(),
        }
    }

    fn labels(&self) -> [KeyValue; 3] {
        [
            KeyValue::new(key::K8S_NAMESPACE_NAME, self.namespace.clone()),
            KeyValue::new(key::WORKLOAD_KIND, self.kind.clone()),
            KeyValue::new(key::WORKLOAD_NAME, self.name.clone()),
        ]
    }
}

/// A count that is not 0.
fn some(count: u64, observe: &mut dyn FnMut(u64, &[KeyValue])) {
    if count > 0 {
        observe(count, &[]);
    }
}

/// Counts are consistent after every statement, also after a panic elsewhere.
fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
