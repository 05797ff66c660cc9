//! Requests to the API server for one object.

use std::time::Duration;

use epitaph_core::render::resource::{
    CONTAINER, Epitaph, EpitaphObserved, EpitaphReport, GROUP, KIND, NODE_KIND, NODE_PLURAL, NodeEpitaph, Observed, PLURAL,
    VERSION,
};
use epitaph_core::text::bounded;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, Resource as _};
use serde_json::json;

use super::object::Object;
use super::queue::Key;
use crate::cache::Cache;
use crate::error::{HasRemedy, Remedy};
use crate::rights::Right;

/// Longest text of an error that leaves this module, bytes.
const MAX_TEXT: usize = 512;

const JSON_PATCH: &str = "application/json-patch+json";

/// Pods that live on, with the report that was last written.
const REMEMBERED: usize = 256;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot write an Epitaph: RBAC forbids it ({0})")]
    Forbidden(String, &'static Right),
    #[error("cannot write an Epitaph: the policy that lets an agent write only about its own node refused it ({0})")]
    Refused(String),
    #[error("cannot write an Epitaph: the API server does not know the kind ({0})")]
    KindAbsent(String),
    #[error("cannot write an Epitaph: the namespace is deleted or being deleted ({0})")]
    NamespaceGone(String),
    #[error("cannot write an Epitaph: the API server refused it ({0})")]
    Rejected(String),
    /// A problem of this object only: a failing webhook, a race.
    #[error("cannot write an Epitaph: {0}")]
    Later(String),
    /// A problem of the API server or of the way to it: no object can be written.
    #[error("cannot write an Epitaph: {0}")]
    Away(String),
    /// No answer, from the API server or from a webhook for this object.
    #[error("cannot write an Epitaph: the API server did not answer within {} s", .0.as_secs())]
    Silent(Duration),
}

impl HasRemedy for Failure {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            Failure::Forbidden(_, right) => Some(right.remedy().into()),
            Failure::Refused(_) => Some(
                "give the agent the token of its own pod, as the chart does, on Kubernetes 1.30 or later; a token of another kind names no \
                 node"
                    .into(),
            ),
            Failure::KindAbsent(_) => Some(
                "install again (`helm upgrade` or `kubectl apply`), which brings the CustomResourceDefinition epitaphs.epitaph.dev; or set \
                 kubernetes.epitaphs = false"
                    .into(),
            ),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Written,
    Known,
    /// Of another pod or node, but of the same name.
    Foreign,
    /// There is no such object to complete any longer.
    Absent,
}

pub(super) struct Epitaphs {
    client: Client,
    resource: ApiResource,
    timeout: Duration,
    /// Of pods that live on: their next report continues the list of container terminations.
    written: Cache<Key, EpitaphReport>,
    rights: Rights,
}

/// The rules that allow the objects of pods and of nodes.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    pub pods: &'static Right,
    pub nodes: &'static Right,
}

impl Epitaphs {
    pub fn new(client: Client, timeout: Duration, rights: Rights) -> Epitaphs {
        Epitaphs {
            client,
            resource: resource(),
            timeout,
            written: Cache::new(REMEMBERED),
            rights,
        }
    }

    pub async fn write(&mut self, key: &Key, object: &Object) -> Result<Done, Failure> {
        let limit = self.timeout;
        let writing = async {
            match object {
                Object::Pod(epitaph) => self.written(key, epitaph).await,
                Object::Node(epitaph) => self.of_node(key, epitaph).await,
                Object::Observed(observed) => self.completed(key, observed).await,
            }
        };
        let written = tokio::time::timeout(limit, writing).await;
        written.unwrap_or(Err(Failure::Silent(limit)))
    }

    /// Never changed: the name is made of what happened, so an object of this name is this one.
    async fn of_node(&self, key: &Key, epitaph: &NodeEpitaph) -> Result<Done, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &node_resource());
        let object = serde_json::from_value(epitaph.object()).map_err(|error| Failure::Rejected(error.to_string()))?;
        debug_assert_eq!(key.name, epitaph.name());
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(Done::Written),
            Err(error) if is(&error, 409) => Ok(Done::Known),
            Err(error) => Err(failure(&error, self.rights.nodes)),
        }
    }

    /// The observer's field of an object that the agent has written: one request, unless an earlier observer wrote there. What that one wrote stays.
    async fn completed(&self, key: &Key, observed: &Observed) -> Result<Done, Failure> {
        match self.completed_first(key, observed).await {
            Ok(()) => return Ok(Done::Written),
            // Removed meanwhile, because of its age or by a user.
            Err(error) if is(&error, 404) && names_object(&error) => return Ok(Done::Absent),
            Err(error) if is_known(&error) => {}
            Err(error) => return Err(failure(&error, self.rights.pods)),
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &self.resource);
        let nothing = Patch::Merge(json!({}));
        let existing = match api.patch(&key.name, &PatchParams::default(), &nothing).await {
            Err(error) if is(&error, 404) && names_object(&error) => return Ok(Done::Absent),
            existing => existing.map_err(|error| failure(&error, self.rights.pods))?,
        };
        let stored = existing.data.get("observed").cloned().unwrap_or_default();
        // One that cannot be read is of another version: it is written over.
        let earlier: EpitaphObserved = serde_json::from_value(stored.clone()).unwrap_or_default();
        let whole = observed.clone().after(&earlier).patch();
        // As it is written: cut.
        if whole["observed"] == stored {
            return Ok(Done::Known);
        }
        // An observer that was active until now may still write what it holds: neither overwrites what it has not read.
        let mut whole = whole;
        whole["metadata"]["resourceVersion"] = json!(existing.metadata.resource_version);
        let patched = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(whole)).await;
        patched
            .map(|_| Done::Written)
            .map_err(|error| failure(&error, self.rights.pods))
    }

    /// Refused ([`is_known`]) where the object has the field.
    async fn completed_first(&self, key: &Key, observed: &Observed) -> kube::Result<()> {
        let field = observed.patch()["observed"].take();
        let steps = json!([
            {"op": "test", "path": "/observed", "value": null},
            {"op": "add", "path": "/observed", "value": field},
        ]);
        let url = DynamicObject::url_path(&self.resource, Some(&key.namespace));
        let request = kube::core::Request::new(url).patch(&key.name, &PatchParams::default(), &Patch::Merge(steps));
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(JSON_PATCH));
        self.client.request_text(request).await.map(drop)
    }

    async fn written(&mut self, key: &Key, epitaph: &Epitaph) -> Result<Done, Failure> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &self.resource);
        if let Some(earlier) = self.written.get(key) {
            let whole = epitaph.clone().after(earlier);
            match patch(&api, key, &whole, None).await {
                // Removed because of its age or by a user: the next one begins anew.
                Err(error) if is(&error, 404) => self.written.remove(key),
                result => return self.remembered(key, whole, result.map(|()| Done::Written)),
            }
        }
        let object = serde_json::from_value(epitaph.object()).map_err(|error| Failure::Rejected(error.to_string()))?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => self.remembered(key, epitaph.clone(), Ok(Done::Written)),
            Err(error) if is(&error, 409) => self.join(&api, key, epitaph).await,
            Err(error) => Err(failure(&error, self.rights.pods)),
        }
    }

    /// Continues an object that an earlier run wrote, or an earlier request whose answer never came.
    async fn join(&mut self, api: &Api<DynamicObject>, key: &Key, epitaph: &Epitaph) -> Result<Done, Failure> {
        // Agents may not read. A patch that changes nothing is no write, and its answer is the object.
        let nothing = Patch::Merge(json!({}));
        let existing = match api.patch(&key.name, &PatchParams::default(), &nothing).await {
            // The same policy has just admitted our own object under this name.
            Err(error) if is_refused(&error) && is_of_other_node(&error) => return Ok(Done::Foreign),
            existing => existing.map_err(|error| failure(&error, self.rights.pods))?,
        };
        // Whatever is in it: a report that cannot be read is another writer's.
        let report = existing.data.get("report").cloned().unwrap_or_default();
        let report = serde_json::from_value::<EpitaphReport>(report).ok();
        let Some(earlier) = report.filter(|earlier| epitaph.is_about(earlier)) else {
            return Ok(Done::Foreign);
        };
        let whole = epitaph.clone().after(&earlier);
        if whole.report == earlier {
            return self.remembered(key, whole, Ok(Done::Known));
        }
        let patched = patch(api, key, &whole, existing.metadata.resource_version.as_deref()).await;
        self.remembered(key, whole, patched.map(|()| Done::Written))
    }

    fn remembered(&mut self, key: &Key, written: Epitaph, result: kube::Result<Done>) -> Result<Done, Failure> {
        let done = result.map_err(|error| failure(&error, self.rights.pods))?;
        // Removed first, so that the cache drops the pod that was written the longest time ago.
        self.written.remove(key);
        if written.report.terminated == CONTAINER {
            self.written.insert(key.clone(), written.report);
        }
        Ok(done)
    }
}

pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL)
}

pub(super) fn node_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, NODE_KIND), NODE_PLURAL)
}

async fn patch(api: &Api<DynamicObject>, key: &Key, whole: &Epitaph, version: Option<&str>) -> kube::Result<()> {
    let patch = Patch::Merge(whole.patch(version));
    api.patch(&key.name, &PatchParams::default(), &patch).await.map(drop)
}

/// A JSON patch whose test did not hold. The API server gives no reason of its own; another 422 comes again with the next patch.
fn is_known(error: &kube::Error) -> bool {
    is(error, 422) && !is_refused(error)
}

/// By the policy of the chart, or another one of the cluster.
fn is_refused(error: &kube::Error) -> bool {
    let names_policy =
        |status: &Status| matches!(status.code, 403 | 422) && status.message.contains("ValidatingAdmissionPolicy");
    matches!(error, kube::Error::Api(status) if names_policy(status))
}

/// A 404 about one object, and not about its kind or namespace.
fn names_object(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains(".epitaph.dev \""))
}

pub(super) fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// What the messages of the chart's policy (`policy.yaml`) have in common.
const OF_OWN_NODE: &str = "Epitaphs of its own node only";

fn is_of_other_node(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains(OF_OWN_NODE))
}

pub(super) fn failure(error: &kube::Error, right: &'static Right) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Away(shown(&crate::error::chain(error)));
    };
    let message = shown(&status.message);
    match status.code {
        _ if is_refused(error) => Failure::Refused(message),
        // A namespace that is being deleted accepts no new objects and answers 403.
        403 if message.contains("being terminated") => Failure::NamespaceGone(message),
        // An exceeded quota and a denying webhook are 403s, too.
        403 if status.message.contains("is forbidden: User \"") => Failure::Forbidden(message, right),
        404 if message.contains("namespaces \"") => Failure::NamespaceGone(message),
        // The object was removed between two requests.
        404 if message.contains(".epitaph.dev \"") => Failure::Later(format!("404 {message}")),
        404 => Failure::KindAbsent(message),
        // Our token may be renewed before the next attempt.
        401 | 429 => Failure::Away(format!("{} {message}", status.code)),
        // 409 is a race with another writer; 500 may be a webhook of one namespace.
        408 | 409 | 500.. => Failure::Later(format!("{} {message}", status.code)),
        code => Failure::Rejected(format!("{code} {message}")),
    }
}

fn shown(text: &str) -> String {
    bounded(text, MAX_TEXT).into_owned()
}

#[cfg(test)]
mod tests {
    use super::OF_OWN_NODE;

    /// The policy's words are the only sign by which an agent tells an object of another node from other refusals.
    #[test]
    fn the_policy_has_the_words() {
        let policy = include_str!("../../../../deploy/kubernetes/policy.yaml");
        let sentences = [" writes ", " changes "].map(|verb| format!("an agent{verb}{OF_OWN_NODE}"));
        assert!(sentences.iter().all(|words| policy.contains(words)), "{sentences:?}");
    }
}
