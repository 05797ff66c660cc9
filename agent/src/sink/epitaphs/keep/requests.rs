//! Requests of the observer that look at Epitaphs and remove them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use epitaph_core::observe::kept::{KnownEpitaph, RevisionOf};
use epitaph_core::render::resource::{LABEL_NODE, LABEL_REVISION, LABEL_UNCLEAN, LABEL_WORKLOAD, LABEL_WORKLOAD_KIND, POD};
use epitaph_core::time::Wall;
use http::header::ACCEPT;
use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Preconditions};
use kube::core::Request;
use kube::{Api, Client, Resource as _};

use super::super::api::{node_resource, resource};

/// Objects of one page.
pub(super) const PAGE: u32 = 500;
/// Most objects that one sweep looks at, 500 bytes each: the next sweep sees the others.
const LOOKED_AT: usize = 50_000;
/// Of the answer to a removal nothing is read but its end: without it each removed object would be sent back whole.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Which kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Pods,
    Nodes,
}

#[derive(Clone)]
pub(super) struct Requests {
    client: Client,
    /// Of one request.
    limit: Duration,
}

impl Requests {
    pub fn new(client: Client, limit: Duration) -> Requests {
        Requests { client, limit }
    }

    /// The metadata of all of them, in pages.
    pub async fn list(&self, of: Of) -> kube::Result<Vec<KnownEpitaph>> {
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

    /// Only if nobody has written it since.
    pub async fn delete(&self, epitaph: &KnownEpitaph, of: Of) -> kube::Result<()> {
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

    /// Removes the clean Epitaphs of one revision by one request, `members`, at most a page; the UIDs of those that are removed. None are, where one
    /// was written since, or may be written again: such a request has no condition for each object. It removes the names that there were at
    /// the list's version: an Epitaph with a new name, which an agent writes meanwhile, stays.
    pub async fn delete_revision(&self, members: &[KnownEpitaph]) -> kube::Result<HashSet<String>> {
        let Some((namespace, revision)) = members.iter().find_map(|of| Some((&of.namespace, of.revision.as_ref()?))) else {
            return Ok(HashSet::new());
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource());
        let labels = labels(revision);
        let listed = self
            .in_time(api.list(&ListParams::default().labels(&labels).limit(PAGE)))
            .await?;
        let versions: HashMap<&str, &str> = members.iter().map(|of| (of.uid.as_str(), of.version.as_str())).collect();
        let is_known = |object: &DynamicObject| {
            let (uid, version) = (&object.metadata.uid, &object.metadata.resource_version);
            let is_same = uid.as_deref().and_then(|uid| versions.get(uid).copied()) == version.as_deref();
            // A pod that lives on may have another one.
            uid.is_some() && is_same && object.data["report"]["terminated"] == POD
        };
        let is_whole = listed.metadata.continue_.as_deref().unwrap_or_default().is_empty();
        let Some(version) = listed.metadata.resource_version.filter(|_| is_whole) else {
            return Ok(HashSet::new());
        };
        if !listed.items.iter().all(is_known) {
            return Ok(HashSet::new());
        }
        let url = DynamicObject::url_path(&resource(), Some(namespace));
        let selection = ListParams::default().labels(&labels);
        // With a body: without one the API server takes the version for a condition on each object.
        let removal = Request::new(url).delete_collection(&DeleteParams::background(), &selection);
        let mut removal = removal.map_err(kube::Error::BuildRequest)?;
        let uri = format!("{}&resourceVersion={version}&resourceVersionMatch=Exact", removal.uri());
        *removal.uri_mut() = uri.parse().map_err(|error| kube::Error::Service(Box::new(error)))?;
        removal.headers_mut().insert(ACCEPT, http::HeaderValue::from_static(METADATA));
        self.in_time(self.client.request_text(removal)).await?;
        Ok(listed.items.into_iter().filter_map(|object| object.metadata.uid).collect())
    }

    async fn in_time<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let late = |_| kube::Error::Service("no answer in time".into());
        tokio::time::timeout(self.limit, request).await.map_err(late)?
    }
}

/// Of the clean Epitaphs of a revision.
fn labels(revision: &RevisionOf) -> String {
    format!(
        "{LABEL_WORKLOAD_KIND}={},{LABEL_WORKLOAD}={},{LABEL_REVISION}={},{LABEL_UNCLEAN}=false",
        revision.kind, revision.workload, revision.hash
    )
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
        // Without the label all are taken for one node's.
        node: label(LABEL_NODE).unwrap_or_default(),
        uid: meta.uid.clone()?,
        version: meta.resource_version.clone()?,
        created: Wall(created),
        written: Wall(written.unwrap_or(created).max(created)),
        // A node has few: its clean shutdowns are kept as long.
        unclean: of == Of::Nodes || label(LABEL_UNCLEAN).is_some_and(|of| of == "true"),
        revision: revision(),
    })
}
