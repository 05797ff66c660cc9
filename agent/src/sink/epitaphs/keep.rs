//! What the active observer removes: Epitaphs beyond their age and their bounds, in batches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use epitaph_core::observe::kept::{KeepLimits, KnownEpitaph, RemovalReason, RevisionOf, surplus};
use epitaph_core::render::resource::{LABEL_REVISION, LABEL_UNCLEAN, LABEL_WORKLOAD, LABEL_WORKLOAD_KIND};
use epitaph_core::time::Wall;
use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Preconditions};
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::api::{is, node_resource, resource};
use crate::error;
use crate::rights::Right;

/// Objects of one page, with their metadata only.
const PAGE: u32 = 500;
/// Most objects that one sweep looks at, 500 bytes each: the next sweep sees the others.
const LOOKED_AT: usize = 50_000;

/// Where more Epitaphs are due for removal than can be removed at the usual rate in this time, the rate is higher, and the next sweep follows.
const SURPLUS_WITHIN: Duration = Duration::from_secs(60);
/// The highest rate is 100 a second, as fast as the API server removes one after the other: five thousand nodes on which sixty pods an hour
/// terminate write 83. Without it etcd would fill up.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Between two sweeps of many.
const SHORT_REST: Duration = Duration::from_secs(1);

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

/// Starts on the current Tokio runtime. Two of them at once do no harm: a deletion names the version that it is about. `right`: the rule that
/// allows it.
pub fn keep(
    client: Client,
    settings: KeepSettings,
    stats: Arc<KeepStats>,
    clock: fn() -> Wall,
    right: &'static Right,
) -> Keeper {
    let sweeper = Sweeper {
        client,
        settings,
        stats: stats.clone(),
        clock,
        right,
        is_logged: false,
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

/// Which kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Pods,
    Nodes,
}

struct Sweeper {
    client: Client,
    settings: KeepSettings,
    stats: Arc<KeepStats>,
    clock: fn() -> Wall,
    right: &'static Right,
    /// The trouble is logged once until the next success.
    is_logged: bool,
}

impl Sweeper {
    async fn run(mut self) {
        let mut rest = self.settings.every;
        loop {
            tokio::time::sleep(rest).await;
            rest = self.settings.every;
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
        let of_pods = self.list(Of::Pods).await?;
        // A definition from before there were NodeEpitaphs.
        let of_nodes = match self.list(Of::Nodes).await {
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

    async fn remove(&mut self, all: Vec<KnownEpitaph>, of: Of) -> kube::Result<Swept> {
        let total = all.len() as u64;
        let (mut gone, mut failures) = (0, 0);
        let mut away = None;
        let surplus = surplus(all, (self.clock)(), &self.settings.limits);
        let pause = pause(surplus.len(), self.settings.pause);
        let mut next = Instant::now();
        for (epitaph, reason) in surplus {
            match self.delete(&epitaph, of).await {
                Ok(()) => {
                    gone += 1;
                    self.stats.remove(reason);
                }
                // Removed by somebody else, or written again since.
                Err(error) if is(&error, 404) || is(&error, 409) => {}
                Err(error) => {
                    // The others would fail, too: after the next list.
                    if !matches!(error, kube::Error::Api(_)) || is(&error, 403) {
                        away = Some(error);
                        break;
                    }
                    failures += 1;
                    self.stats.failed.fetch_add(1, Ordering::Relaxed);
                    self.log_once(&error);
                }
            }
            next += pause;
            tokio::time::sleep_until(next).await;
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

    async fn list(&self, of: Of) -> kube::Result<Vec<KnownEpitaph>> {
        let api: Api<DynamicObject> = match of {
            Of::Pods => Api::all_with(self.client.clone(), &resource()),
            Of::Nodes => Api::all_with(self.client.clone(), &node_resource()),
        };
        let mut page = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let listed = self.in_time(api.list_metadata(&page)).await?;
            all.extend(listed.items.iter().filter_map(|object| known(object, of)));
            match listed.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) if all.len() < LOOKED_AT => page = page.continue_token(&next),
                _ => return Ok(all),
            }
        }
    }

    async fn delete(&self, epitaph: &KnownEpitaph, of: Of) -> kube::Result<()> {
        let api: Api<DynamicObject> = match of {
            Of::Pods => Api::namespaced_with(self.client.clone(), &epitaph.namespace, &resource()),
            Of::Nodes => Api::all_with(self.client.clone(), &node_resource()),
        };
        let only_this = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(epitaph.uid.clone()),
                resource_version: Some(epitaph.version.clone()),
            }),
            ..DeleteParams::default()
        };
        self.in_time(api.delete(&epitaph.name, &only_this)).await.map(drop)
    }

    async fn in_time<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let late = |_| kube::Error::Service("no answer in time".into());
        tokio::time::timeout(self.settings.timeout, request).await.map_err(late)?
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

/// Between the begins of two deletions, of so many.
fn pause(surplus: usize, usual: Duration) -> Duration {
    let surplus = u32::try_from(surplus.max(1)).unwrap_or(u32::MAX);
    (SURPLUS_WITHIN / surplus).max(SHORTEST_PAUSE).min(usual)
}

/// None for an object without the metadata that every API server sends.
fn known(object: &PartialObjectMeta<DynamicObject>, of: Of) -> Option<KnownEpitaph> {
    let meta = &object.metadata;
    let nanos = |time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| u64::try_from(time.0.as_nanosecond()).ok();
    let created = meta.creation_timestamp.as_ref().and_then(nanos)?;
    let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
    let revision = || {
        Some(RevisionOf {
            kind: label(LABEL_WORKLOAD_KIND)?,
            workload: label(LABEL_WORKLOAD)?,
            hash: label(LABEL_REVISION)?,
        })
    };
    let fields = meta.managed_fields.iter().flatten();
    let written = fields.filter_map(|of| of.time.as_ref().and_then(nanos)).max();
    Some(KnownEpitaph {
        namespace: match of {
            Of::Pods => meta.namespace.clone()?,
            Of::Nodes => String::new(),
        },
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        version: meta.resource_version.clone()?,
        written: Wall(written.unwrap_or(created).max(created)),
        // A node has few: its clean shutdowns are kept as long.
        unclean: of == Of::Nodes || label(LABEL_UNCLEAN).is_some_and(|of| of == "true"),
        revision: revision(),
    })
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
}
