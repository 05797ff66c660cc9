//! Which Epitaphs are kept: unclean ones longer than clean ones, and never more than the bounds of a namespace and of the cluster. Beyond a
//! bound the node that wrote the most loses first: what one node writes, true or forged, does not push out what the others wrote.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

pub use super::limits::KeepLimits;
use crate::time::Wall;
use crate::tolerances::CLOCKS_APART;

/// What decides whether an Epitaph is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEpitaph {
    pub namespace: String,
    pub name: String,
    /// The node whose agent wrote it, by the label, which the admission policy compares with the agent's token.
    pub node: String,
    /// So that only the object that was looked at is removed.
    pub uid: String,
    pub version: String,
    pub created: Wall,
    /// The last write, by the object: whoever writes an object can write any time.
    pub written: Wall,
    pub unclean: bool,
    /// None for a pod without a workload or a revision.
    pub revision: Option<RevisionOf>,
}

/// Which revision of which workload, by the labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RevisionOf {
    pub kind: String,
    pub workload: String,
    pub hash: String,
}

/// Revisions of a workload whose clean terminations are kept as long as unclean ones: a rollout is compared with the one before, and pods of
/// the revision that it made end as well.
const COMPARED: usize = 3;

/// Why an Epitaph is not kept any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RemovalReason {
    Age,
    /// More than a namespace may have.
    Namespace,
    /// More than the cluster may have.
    Cluster,
}

names! {
    all RemovalReason:
    Age => "age",
    Namespace => "namespace",
    Cluster => "cluster",
}

/// What goes, by reason: beyond a bound, of the node with the most, the oldest clean ones first, then the oldest.
pub fn surplus(mut all: Vec<KnownEpitaph>, now: Wall, limits: &KeepLimits) -> Vec<(KnownEpitaph, RemovalReason)> {
    // A time in the future would never be old. The time of the creation is the API server's own.
    for epitaph in &mut all {
        if u128::from(epitaph.written.0.saturating_sub(now.0)) > CLOCKS_APART.as_nanos() {
            epitaph.written = epitaph.created;
        }
    }
    let compared = compared(&all);
    let is_compared = |epitaph: &KnownEpitaph| {
        let of = epitaph
            .revision
            .as_ref()
            .map(|revision| (epitaph.namespace.as_str(), revision));
        of.is_some_and(|(namespace, revision)| compared.contains(&(namespace.to_owned(), revision.clone())))
    };
    let is_old = |epitaph: &KnownEpitaph| {
        let longest = match epitaph.unclean || is_compared(epitaph) {
            true => limits.unclean,
            false => limits.clean,
        };
        u128::from(now.0.saturating_sub(epitaph.written.0)) >= longest.as_nanos()
    };
    let because = |reason: RemovalReason| move |epitaph: KnownEpitaph| (epitaph, reason);
    let mut gone: Vec<_> = all
        .extract_if(.., |epitaph| is_old(epitaph))
        .map(because(RemovalReason::Age))
        .collect();
    let mut namespaces: BTreeMap<String, Vec<KnownEpitaph>> = BTreeMap::new();
    for epitaph in all {
        namespaces.entry(epitaph.namespace.clone()).or_default().push(epitaph);
    }
    let mut kept = Vec::new();
    for mut of_namespace in namespaces.into_values() {
        let over = beyond(&mut of_namespace, limits.per_namespace);
        gone.extend(over.into_iter().map(because(RemovalReason::Namespace)));
        kept.append(&mut of_namespace);
    }
    let over = beyond(&mut kept, limits.cluster);
    gone.extend(over.into_iter().map(because(RemovalReason::Cluster)));
    gone
}

/// Unclean ones of each node that no clean one pushes out.
const UNCLEAN_OF_NODE: usize = 10;

/// Takes out what is beyond `most`: each node keeps its first unclean ones, then its next one, and so on, as long as there is room.
fn beyond(all: &mut Vec<KnownEpitaph>, most: usize) -> Vec<KnownEpitaph> {
    if all.len() <= most {
        return Vec::new();
    }
    // What is kept longest comes first.
    all.sort_by_key(|epitaph| Reverse((epitaph.unclean, epitaph.written)));
    let mut of_node: HashMap<&str, usize> = HashMap::new();
    let places: Vec<usize> = all
        .iter()
        .map(|epitaph| {
            let count = of_node.entry(&epitaph.node).or_default();
            *count += 1;
            match epitaph.unclean && *count <= UNCLEAN_OF_NODE {
                true => 0,
                false => *count,
            }
        })
        .collect();
    let mut ranked: Vec<(usize, KnownEpitaph)> = places.into_iter().zip(all.drain(..)).collect();
    ranked.sort_by_key(|(place, _)| *place);
    let over = ranked.split_off(most);
    all.extend(ranked.into_iter().map(|(_, epitaph)| epitaph));
    over.into_iter().map(|(_, epitaph)| epitaph).collect()
}

/// The revisions of each workload whose pods terminated last.
fn compared(all: &[KnownEpitaph]) -> HashSet<(String, RevisionOf)> {
    type Workload<'a> = (&'a str, &'a str, &'a str);
    let mut workloads: HashMap<Workload<'_>, Vec<(&RevisionOf, Wall)>> = HashMap::new();
    for epitaph in all {
        let Some(revision) = &epitaph.revision else { continue };
        let revisions = workloads
            .entry((&epitaph.namespace, &revision.kind, &revision.workload))
            .or_default();
        match revisions.iter_mut().find(|(known, _)| known.hash == revision.hash) {
            Some((_, last)) => *last = (*last).max(epitaph.written),
            None => revisions.push((revision, epitaph.written)),
        }
    }
    let latest = workloads.into_iter().flat_map(|((namespace, ..), mut revisions)| {
        revisions.sort_by_key(|(_, last)| Reverse(*last));
        revisions.truncate(COMPARED);
        revisions
            .into_iter()
            .map(move |(revision, _)| (namespace.to_owned(), revision.clone()))
    });
    latest.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;
    const NOW: Wall = Wall(1_000 * HOUR);

    fn known(namespace: &str, name: &str, hours_ago: u64, unclean: bool) -> KnownEpitaph {
        KnownEpitaph {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node: "node-1".to_owned(),
            uid: format!("uid-of-{name}"),
            version: "1".to_owned(),
            created: Wall(NOW.0 - hours_ago * HOUR),
            written: Wall(NOW.0 - hours_ago * HOUR),
            unclean,
            revision: None,
        }
    }

    fn of_revision(name: &str, hash: &str, hours_ago: u64) -> KnownEpitaph {
        KnownEpitaph {
            revision: Some(RevisionOf {
                kind: "Deployment".to_owned(),
                workload: "web".to_owned(),
                hash: hash.to_owned(),
            }),
            ..known("shop", name, hours_ago, false)
        }
    }

    fn gone(all: Vec<KnownEpitaph>, limits: &KeepLimits) -> Vec<String> {
        let mut gone: Vec<String> = surplus(all, NOW, limits)
            .into_iter()
            .map(|(epitaph, reason)| format!("{} {}", epitaph.name, reason.name()))
            .collect();
        gone.sort();
        gone
    }

    #[test]
    fn clean_ones_are_kept_a_day_and_unclean_ones_a_week() {
        let all = vec![
            known("shop", "clean-23h", 23, false),
            known("shop", "clean-24h", 24, false),
            known("shop", "unclean-24h", 24, true),
            known("shop", "unclean-167h", 167, true),
            known("shop", "unclean-168h", 168, true),
        ];
        assert_eq!(gone(all, &KeepLimits::default()), ["clean-24h age", "unclean-168h age"]);
    }

    /// What the last rollout cost, and the one before, also when pods of the newest revision have ended; not the rollout before that.
    #[test]
    fn clean_ones_are_kept_until_their_revision_is_the_fourth_last() {
        let all = vec![
            of_revision("newest-1h", "newest", 1),
            of_revision("one-30h", "one", 30),
            of_revision("one-2h", "one", 2),
            of_revision("two-100h", "two", 100),
            of_revision("three-101h", "three", 101),
            of_revision("three-170h", "three", 170),
            KnownEpitaph {
                namespace: "bank".to_owned(),
                ..of_revision("other-101h", "three", 101)
            },
        ];
        assert_eq!(gone(all, &KeepLimits::default()), ["three-101h age", "three-170h age"]);
    }

    #[test]
    fn over_a_bound_the_oldest_clean_ones_go_first() {
        let limits = KeepLimits {
            per_namespace: 3,
            cluster: 4,
            ..KeepLimits::default()
        };
        let all = vec![
            known("shop", "clean-new", 1, false),
            known("shop", "clean-old", 5, false),
            known("shop", "unclean-new", 2, true),
            known("shop", "unclean-old", 100, true),
            known("shop", "unclean-older", 120, true),
            known("bank", "clean-1", 3, false),
            known("bank", "clean-2", 4, false),
        ];
        let expected = ["clean-2 cluster", "clean-new namespace", "clean-old namespace"];
        assert_eq!(gone(all, &limits), expected);
    }

    /// A node that is taken over writes thousands of unclean ones, about pods of any namespace: they push out each other.
    #[test]
    fn over_a_bound_the_node_with_the_most_loses_first() {
        let limits = KeepLimits {
            per_namespace: 15,
            cluster: 20,
            ..KeepLimits::default()
        };
        let forged = |namespace: &'static str| {
            (0..40).map(move |n| KnownEpitaph {
                node: "taken-over".to_owned(),
                ..known(namespace, &format!("forged-{namespace}-{n}"), 0, true)
            })
        };
        let mut all = vec![
            known("shop", "clean-old", 20, false),
            known("shop", "unclean-old", 100, true),
            known("bank", "clean", 20, false),
        ];
        all.extend(forged("shop").chain(forged("bank")));
        let gone = gone(all, &limits);
        assert_eq!(gone.len(), 83 - limits.cluster);
        assert!(gone.iter().all(|name| name.starts_with("forged-")), "{gone:?}");
    }

    /// The pods of a DaemonSet: each node has a clean one.
    #[test]
    fn unclean_ones_of_a_node_stay_before_the_clean_ones_of_others() {
        let limits = KeepLimits {
            per_namespace: 50,
            ..KeepLimits::default()
        };
        let of = |node: usize, name: String, unclean: bool| KnownEpitaph {
            node: format!("node-{node}"),
            ..known("agents", &name, 1, unclean)
        };
        let mut all: Vec<_> = (0..60).map(|node| of(node, format!("clean-{node}"), false)).collect();
        all.extend((0..5).map(|n| of(17, format!("unclean-{n}"), true)));
        let gone = gone(all, &limits);
        assert_eq!(gone.len(), 15);
        assert!(gone.iter().all(|name| name.starts_with("clean-")), "{gone:?}");
    }

    /// A clock that was set back removes nothing.
    #[test]
    fn what_was_made_in_the_future_is_kept() {
        let mut new = known("shop", "a", 0, false);
        (new.created, new.written) = (Wall(NOW.0 + 90 * HOUR), Wall(NOW.0 + 100 * HOUR));
        assert!(surplus(vec![new], NOW, &KeepLimits::default()).is_empty());
    }

    /// `managedFields` with times of the year 2099.
    #[test]
    fn a_forged_time_of_the_last_write_does_not_keep_an_object_for_ever() {
        let mut forged = known("shop", "forged", 30, false);
        forged.written = Wall(NOW.0 + 1_000 * HOUR);
        // The clock of the API server is a little ahead, and the pod lives on.
        let mut ahead = known("shop", "ahead", 200, false);
        ahead.written = Wall(NOW.0 + HOUR / 60);
        assert_eq!(gone(vec![forged, ahead], &KeepLimits::default()), ["forged age"]);
    }
}
