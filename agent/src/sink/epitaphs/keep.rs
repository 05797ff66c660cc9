//! What the active observer removes: Epitaphs beyond their age and their bounds, in batches.

mod requests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use epitaph_core::observe::kept::{KeepLimits, KnownEpitaph, RemovalReason, RevisionOf, surplus};
use epitaph_core::time::Wall;
use kube::Client;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::api::is;
use crate::error;
use crate::rights::Right;
use requests::{Of, PAGE, Requests};

/// Where more Epitaphs are due for removal than can be removed at the usual rate in this time, the rate is higher, and the next sweep follows.
const SURPLUS_WITHIN: Duration = Duration::from_secs(60);
/// The highest rate is 100 a second: five thousand nodes on which sixty pods an hour terminate write 83. Without it etcd would fill up.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Between two sweeps of many.
const SHORT_REST: Duration = Duration::from_secs(1);
/// Requests at the same time: at the highest rate, an answer may take 80 ms.
const AT_ONCE: usize = 8;
/// Fewer of a revision are removed one by one: together they cost a list, too.
const FEWEST: usize = 3;

#[derive(Clone, Debug)]
pub struct KeepSettings {
    pub limits: KeepLimits,
    /// From the begin to the first sweep, and from one sweep to the next.
    pub every: Duration,
    /// Between two deletions; shorter where there are many.
    pub pause: Duration,
    /// Limit of one request.
    pub timeout: Duration,
}

impl Default for KeepSettings {
    fn default() -> KeepSettings {
        KeepSettings {
            limits: KeepLimits::default(),
            every: Duration::from_secs(5 * 60),
            // 20 a second.
            pause: Duration::from_millis(50),
            timeout: Duration::from_secs(30),
        }
    }
}

/// Counted for `/metrics`.
#[derive(Debug, Default)]
pub struct KeepStats {
    kept: AtomicU64,
    removed: Mutex<HashMap<RemovalReason, u64>>,
    failed: AtomicU64,
}

impl KeepStats {
    /// Epitaphs of the cluster after the last sweep.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    pub fn removed(&self, reason: RemovalReason) -> u64 {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.get(&reason).copied().unwrap_or(0)
    }

    /// Lists and deletions that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn remove(&self, reason: RemovalReason) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        *removed.entry(reason).or_default() += 1;
    }
}

/// Removes until it is dropped.
#[derive(Debug)]
pub struct Keeper(JoinHandle<()>, Arc<KeepStats>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
        self.1.kept.store(0, Ordering::Relaxed);
    }
}

/// Starts on the current Tokio runtime. Two of them at once do no harm: a deletion of one names the version that it is about, and of
/// several only those that are not written again. `right`: the rule that allows it.
pub fn keep(
    client: Client,
    settings: KeepSettings,
    stats: Arc<KeepStats>,
    clock: fn() -> Wall,
    right: &'static Right,
) -> Keeper {
    let sweeper = Sweeper {
        requests: Requests::new(client, settings.timeout),
        settings,
        stats: stats.clone(),
        clock,
        right,
        is_logged: false,
        only_single: false,
    };
    Keeper(tokio::spawn(sweeper.run()), stats)
}

/// The end of a sweep in which the API server answered.
#[derive(Clone, Copy)]
struct Swept {
    /// Many were due for removal, and most are removed: more may be due by now.
    is_pressed: bool,
    /// No removal failed.
    is_clean: bool,
}

/// What goes.
#[derive(Debug, PartialEq, Eq)]
enum Removal {
    One(KnownEpitaph, RemovalReason),
    /// All clean ones of a revision, because of their age: one request, whatever their number.
    Revision(Vec<KnownEpitaph>),
}

impl Removal {
    fn len(&self) -> u32 {
        match self {
            Removal::One(..) => 1,
            Removal::Revision(of) => u32::try_from(of.len()).unwrap_or(u32::MAX),
        }
    }
}

/// What came of a removal.
#[derive(Default)]
struct Removed {
    gone: Vec<RemovalReason>,
    failures: Vec<kube::Error>,
    /// Others would fail, too.
    away: Option<kube::Error>,
    /// The role has no right to remove several by one request: it is older than this program.
    only_single: bool,
}

struct Sweeper {
    requests: Requests,
    settings: KeepSettings,
    stats: Arc<KeepStats>,
    clock: fn() -> Wall,
    right: &'static Right,
    /// The trouble is logged once until the next success.
    is_logged: bool,
    only_single: bool,
}

impl Sweeper {
    async fn run(mut self) {
        let mut rest = self.settings.every;
        loop {
            tokio::time::sleep(rest).await;
            rest = self.settings.every;
            // The role may have been changed meanwhile.
            self.only_single = false;
            match self.sweep().await {
                Ok(swept) => {
                    if swept.is_pressed {
                        rest = rest.min(SHORT_REST);
                    }
                    if swept.is_clean && std::mem::take(&mut self.is_logged) {
                        tracing::info!("Epitaphs beyond their age and bounds are removed again");
                    }
                }
                Err(error) => {
                    self.stats.failed.fetch_add(1, Ordering::Relaxed);
                    self.log_once(&error);
                }
            }
        }
    }

    /// One look at all Epitaphs of pods, then of nodes, and the removal of what is due.
    async fn sweep(&mut self) -> kube::Result<Swept> {
        let of_pods = self.requests.list(Of::Pods).await?;
        // A definition from before there were NodeEpitaphs.
        let of_nodes = match self.requests.list(Of::Nodes).await {
            Err(error) if is(&error, 404) => Vec::new(),
            of_nodes => of_nodes?,
        };
        let of_pods = self.remove(of_pods, Of::Pods).await?;
        let of_nodes = self.remove(of_nodes, Of::Nodes).await?;
        Ok(Swept {
            is_clean: of_pods.is_clean && of_nodes.is_clean,
            ..of_pods
        })
    }

    /// In batches: several requests are under way at the same time, so that a distant API server takes as many in a second as a near one.
    async fn remove(&mut self, all: Vec<KnownEpitaph>, of: Of) -> kube::Result<Swept> {
        let total = all.len() as u64;
        let clean = clean_of(&all);
        let surplus = surplus(all, (self.clock)(), &limits(self.settings.limits, of));
        let pause = pause(surplus.len(), self.settings.pause);
        let mut running = JoinSet::new();
        let (mut gone, mut failures, mut away) = (0, 0, None);
        let mut next = Instant::now();
        for removal in removals(surplus, &clean, self.only_single) {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + pause * removal.len();
            let (requests, only_single) = (self.requests.clone(), self.only_single);
            running.spawn(async move { removed(&requests, removal, of, only_single).await });
            if running.len() >= AT_ONCE
                && let Some(Ok(removed)) = running.join_next().await
            {
                self.count(removed, &mut gone, &mut failures, &mut away);
            }
            if away.is_some() {
                break;
            }
        }
        while let Some(done) = running.join_next().await {
            if let Ok(removed) = done {
                self.count(removed, &mut gone, &mut failures, &mut away);
            }
        }
        if of == Of::Pods {
            self.stats.kept.store(total - gone, Ordering::Relaxed);
        }
        if gone > 0 {
            tracing::debug!(
                removed = gone,
                kept = total - gone,
                "Epitaphs beyond their age and bounds were removed"
            );
        }
        match away {
            Some(error) => Err(error),
            None => Ok(Swept {
                // What cannot be removed is tried again later.
                is_pressed: pause < self.settings.pause && gone > failures,
                is_clean: failures == 0,
            }),
        }
    }

    fn count(&mut self, removed: Removed, gone: &mut u64, failures: &mut u64, away: &mut Option<kube::Error>) {
        for reason in removed.gone {
            *gone += 1;
            self.stats.remove(reason);
        }
        for error in removed.failures {
            *failures += 1;
            self.stats.failed.fetch_add(1, Ordering::Relaxed);
            self.log_once(&error);
        }
        self.only_single |= removed.only_single;
        *away = away.take().or(removed.away);
    }

    fn log_once(&mut self, problem: &kube::Error) {
        // Without the kind there is nothing to keep.
        if is(problem, 404) || std::mem::replace(&mut self.is_logged, true) {
            return;
        }
        let remedy = is(problem, 403).then(|| self.right.remedy());
        tracing::warn!(
            remedy,
            "Epitaphs beyond their age and bounds cannot be removed: {}",
            error::chain(problem)
        );
    }
}

/// Nodes are in no namespace: only the bound of the cluster counts.
fn limits(limits: KeepLimits, of: Of) -> KeepLimits {
    match of {
        Of::Pods => limits,
        Of::Nodes => KeepLimits {
            per_namespace: limits.cluster,
            ..limits
        },
    }
}

async fn removed(requests: &Requests, removal: Removal, of: Of, only_single: bool) -> Removed {
    let mut removed = Removed {
        only_single,
        ..Removed::default()
    };
    let members = match removal {
        Removal::One(epitaph, reason) => Vec::from([(epitaph, reason)]),
        Removal::Revision(mut members) => {
            if !removed.only_single {
                match requests.delete_revision(&members).await {
                    Ok(gone) => {
                        members.retain(|member| !gone.contains(&member.uid));
                        removed.gone.extend(gone.iter().map(|_| RemovalReason::Age));
                    }
                    // One by one; what is gone by now answers 404.
                    Err(error) if matches!(error, kube::Error::Api(_)) => removed.only_single = is(&error, 403),
                    Err(error) => {
                        removed.away = Some(error);
                        return removed;
                    }
                }
            }
            members.into_iter().map(|member| (member, RemovalReason::Age)).collect()
        }
    };
    for (epitaph, reason) in members {
        match requests.delete(&epitaph, of).await {
            Ok(()) => removed.gone.push(reason),
            // Removed by somebody else, or written again since.
            Err(error) if is(&error, 404) || is(&error, 409) => {}
            Err(error) if !matches!(error, kube::Error::Api(_)) || is(&error, 403) => {
                removed.away = Some(error);
                break;
            }
            Err(error) => removed.failures.push(error),
        }
    }
    removed
}

type RevisionIn = (String, RevisionOf);

fn revision_in(epitaph: &KnownEpitaph) -> Option<RevisionIn> {
    let revision = epitaph.revision.clone().filter(|_| !epitaph.unclean)?;
    Some((epitaph.namespace.clone(), revision))
}

/// How many clean Epitaphs each revision has.
fn clean_of(all: &[KnownEpitaph]) -> HashMap<RevisionIn, usize> {
    let mut clean = HashMap::new();
    for revision in all.iter().filter_map(revision_in) {
        *clean.entry(revision).or_default() += 1;
    }
    clean
}

/// The clean ones of a revision together, where all of them go.
fn removals(
    surplus: Vec<(KnownEpitaph, RemovalReason)>,
    clean: &HashMap<RevisionIn, usize>,
    only_single: bool,
) -> Vec<Removal> {
    let mut single = Vec::new();
    let mut together: HashMap<RevisionIn, Vec<KnownEpitaph>> = HashMap::new();
    for (epitaph, reason) in surplus {
        match revision_in(&epitaph).filter(|_| reason == RemovalReason::Age && !only_single) {
            Some(revision) => together.entry(revision).or_default().push(epitaph),
            None => single.push(Removal::One(epitaph, reason)),
        }
    }
    let revisions = together.into_iter().flat_map(|(revision, members)| {
        let is_whole = clean.get(&revision) == Some(&members.len());
        match is_whole && (FEWEST..=PAGE as usize).contains(&members.len()) {
            true => Vec::from([Removal::Revision(members)]),
            false => members
                .into_iter()
                .map(|member| Removal::One(member, RemovalReason::Age))
                .collect(),
        }
    });
    revisions.chain(single).collect()
}

/// Between the begins of two deletions, of so many.
fn pause(surplus: usize, usual: Duration) -> Duration {
    let surplus = u32::try_from(surplus.max(1)).unwrap_or(u32::MAX);
    (SURPLUS_WITHIN / surplus).max(SHORTEST_PAUSE).min(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_removed_faster_than_agents_write() {
        let usual = KeepSettings::default().pause;
        let paused = [0, 1_200, 2_400, 1_000_000].map(|surplus| pause(surplus, usual).as_millis());
        assert_eq!(paused, [50, 50, 25, 10]);
        assert_eq!(pause(7, Duration::ZERO), Duration::ZERO);
    }

    fn known(name: &str, hash: &str, unclean: bool) -> KnownEpitaph {
        KnownEpitaph {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            node: "node-1".to_owned(),
            uid: format!("uid-of-{name}"),
            version: "7".to_owned(),
            created: Wall(0),
            written: Wall(0),
            unclean,
            revision: Some(RevisionOf {
                kind: "Deployment".to_owned(),
                workload: "web".to_owned(),
                hash: hash.to_owned(),
            }),
        }
    }

    /// 600 shutdowns of a cluster of spot instances.
    #[test]
    fn nodes_have_the_bound_of_the_cluster() {
        let all: Vec<KnownEpitaph> = (0..600)
            .map(|n| KnownEpitaph {
                namespace: String::new(),
                ..known(&format!("node-{n}"), "none", true)
            })
            .collect();
        let gone = |of: Of| surplus(all.clone(), Wall(0), &limits(KeepLimits::DEFAULT, of)).len();
        assert_eq!((gone(Of::Nodes), gone(Of::Pods)), (0, 100));
    }

    #[test]
    fn only_a_revision_of_which_every_clean_one_goes_is_removed_together() {
        let old = ["a", "b", "c"].map(|name| known(name, "old", false));
        let unclean = known("d", "old", true);
        let of_age = |of: &[KnownEpitaph]| of.iter().map(|of| (of.clone(), RemovalReason::Age)).collect::<Vec<_>>();
        let one_by_one = |of: &[KnownEpitaph]| {
            let single = |of: &KnownEpitaph| Removal::One(of.clone(), RemovalReason::Age);
            of.iter().map(single).collect::<Vec<_>>()
        };
        let together = || Removal::Revision(old.to_vec());
        // Unclean ones stay longer, and go by themselves.
        let mut all = old.to_vec();
        all.push(unclean.clone());
        assert_eq!(removals(of_age(&old), &clean_of(&all), false), [together()]);
        let with_it = removals(of_age(&all), &clean_of(&all), false);
        assert_eq!(with_it, [together(), Removal::One(unclean, RemovalReason::Age)]);
        // One that stays, too few, another reason, and a role without the right.
        all.push(known("e", "old", false));
        assert_eq!(removals(of_age(&old), &clean_of(&all), false), one_by_one(&old));
        assert_eq!(
            removals(of_age(&old[..2]), &clean_of(&old[..2]), false),
            one_by_one(&old[..2])
        );
        let over = || old.iter().map(|of| (of.clone(), RemovalReason::Cluster)).collect();
        assert_eq!(removals(over(), &clean_of(&old), false).len(), 3);
        assert_eq!(removals(of_age(&old), &clean_of(&old), true), one_by_one(&old));
    }
}
