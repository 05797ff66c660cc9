//! Epitaphs as they are read: the object for machines, the report for people.

use epitaph_core::render::resource::{EpitaphReport, LABEL_UNCLEAN};
use epitaph_core::time::Wall;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::cli::SelectArgs;
use crate::cluster::{Cluster, EPITAPHS, Place, Selection};
use crate::failure::Failure;

#[derive(Clone, Debug)]
pub struct Epitaph {
    pub namespace: String,
    pub report: EpitaphReport,
    pub object: DynamicObject,
}

impl Epitaph {
    /// None for an object whose report has a field of another type than here: of a version that changed it.
    pub fn of(object: DynamicObject) -> Option<Epitaph> {
        let report = serde_json::from_value(object.data.get("report")?.clone()).ok()?;
        Some(Epitaph {
            namespace: object.namespace().unwrap_or_default(),
            report,
            object,
        })
    }

    /// The exit of the last container.
    pub fn exited(&self) -> Option<Wall> {
        Wall::parse_rfc3339(&self.report.times.exited)
    }
}

/// Where a command looks.
pub fn place<'a>(cluster: &'a Cluster, select: &SelectArgs) -> Place<'a> {
    match select.all_namespaces {
        true => Place::Cluster,
        false => Place::Namespace(&cluster.namespace),
    }
}

pub fn selection(select: &SelectArgs) -> Selection {
    let unclean = select.unclean.then(|| format!("{LABEL_UNCLEAN}=true"));
    let all: Vec<String> = select.selector.iter().cloned().chain(unclean).collect();
    Selection {
        labels: (!all.is_empty()).then(|| all.join(",")),
        fields: None,
    }
}

/// The latest exit first.
pub async fn epitaphs(cluster: &Cluster, place: Place<'_>, selection: &Selection) -> Result<Vec<Epitaph>, Failure> {
    let (objects, _) = cluster.list(EPITAPHS, place, selection).await?;
    let all = objects.len();
    let mut epitaphs: Vec<Epitaph> = objects.into_iter().filter_map(Epitaph::of).collect();
    if epitaphs.len() < all {
        eprintln!(
            "warning: {} of {all} Epitaphs have another form than this version of kubectl-epitaph knows; `kubectl get epitaphs` shows them",
            all - epitaphs.len()
        );
    }
    epitaphs.sort_by(|a, b| (b.exited(), &b.report.pod.name).cmp(&(a.exited(), &a.report.pod.name)));
    Ok(epitaphs)
}
