//! The API server, as the user of the kubeconfig: lists in pages, single objects, watches.

use std::time::Duration;

use epitaph_core::time::Wall;
use futures::Stream;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::{Api, Client};

use crate::cli::{AccessArgs, Limit};
use crate::failure::{Failure, Trouble, chain, shown};

/// Objects of one page, as kubectl's own.
const PAGE: u32 = 500;
const CONNECT: Duration = Duration::from_secs(10);

pub struct Cluster {
    client: Client,
    /// Of the flag, otherwise of the context.
    pub namespace: String,
    /// Of one request.
    limit: Limit,
}

/// Where objects are listed.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    Namespace(&'a str),
    /// All namespaces, or a kind without a namespace.
    Cluster,
}

/// A kind of objects, with its words for "cannot list …".
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
    }
}

pub const EPITAPHS: Kind = {
    use epitaph_core::render::resource::{GROUP, KIND, PLURAL, VERSION};
    kind(GROUP, VERSION, KIND, PLURAL)
};
pub const NODE_EPITAPHS: Kind = {
    use epitaph_core::render::resource::{GROUP, NODE_KIND, NODE_PLURAL, VERSION};
    kind(GROUP, VERSION, NODE_KIND, NODE_PLURAL)
};
pub const PODS: Kind = kind("", "v1", "Pod", "pods");
pub const NODES: Kind = kind("", "v1", "Node", "nodes");
pub const NAMESPACES: Kind = kind("", "v1", "Namespace", "namespaces");
pub const EVENTS: Kind = kind("", "v1", "Event", "events");
pub const DEPLOYMENTS: Kind = kind("apps", "v1", "Deployment", "deployments");
pub const STATEFUL_SETS: Kind = kind("apps", "v1", "StatefulSet", "statefulsets");
pub const DAEMON_SETS: Kind = kind("apps", "v1", "DaemonSet", "daemonsets");
pub const REPLICA_SETS: Kind = kind("apps", "v1", "ReplicaSet", "replicasets");
pub const CONTROLLER_REVISIONS: Kind = kind("apps", "v1", "ControllerRevision", "controllerrevisions");

impl Kind {
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(self.group, self.version, self.kind), self.plural)
    }

    /// As Kubernetes writes it.
    pub fn name(self) -> &'static str {
        self.kind
    }

    /// `apiVersion` and `kind` of an object.
    pub fn types(self) -> (String, &'static str) {
        let version = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        (version, self.kind)
    }

    /// As `-o name` and error messages of kubectl write it.
    pub fn full_name(self) -> String {
        match self.group {
            "" => self.kind.to_lowercase(),
            group => format!("{}.{group}", self.kind.to_lowercase()),
        }
    }
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Selection {
    pub fn labels(labels: impl Into<String>) -> Selection {
        Selection {
            labels: Some(labels.into()),
            fields: None,
        }
    }

    pub fn fields(fields: impl Into<String>) -> Selection {
        Selection {
            labels: None,
            fields: Some(fields.into()),
        }
    }
}

impl Cluster {
    /// With kubectl's rules: `--kubeconfig`, `$KUBECONFIG` (several files are merged), `~/.kube/config`, the ServiceAccount of a pod.
    pub async fn connect(args: &AccessArgs) -> Result<Cluster, Failure> {
        let mut config = config(args).await?;
        config.connect_timeout = Some(CONNECT);
        if let Some(user) = &args.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| Failure::new(format!("cannot use the kubeconfig: {}", chain(&error))))?;
        Ok(Cluster {
            client,
            namespace,
            limit: args.request_timeout,
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    fn api(&self, kind: Kind, place: Place<'_>) -> Api<DynamicObject> {
        match place {
            Place::Namespace(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            Place::Cluster => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }

    /// All objects, and the version from which a watch continues.
    pub async fn list(
        &self,
        kind: Kind,
        place: Place<'_>,
        selection: &Selection,
    ) -> Result<(Vec<DynamicObject>, String), Failure> {
        let what = what("list", kind, place);
        let api = self.api(kind, place);
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector.clone_from(&selection.labels);
        params.field_selector.clone_from(&selection.fields);
        let mut all = Vec::new();
        loop {
            let page = self.within(&what, api.list(&params)).await?;
            all.extend(page.items);
            let version = page.metadata.resource_version.unwrap_or_default();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok((all, version)),
            }
        }
    }

    /// How many there are, by one request.
    pub async fn count(&self, kind: Kind, place: Place<'_>) -> Result<usize, Failure> {
        let api = self.api(kind, place);
        let page = self
            .within(&what("list", kind, place), api.list_metadata(&ListParams::default().limit(1)))
            .await?;
        let others = page.metadata.remaining_item_count.unwrap_or(0);
        Ok(page.items.len() + usize::try_from(others).unwrap_or(0))
    }

    /// None if there is no such object.
    pub async fn get(&self, kind: Kind, place: Place<'_>, name: &str) -> Result<Option<DynamicObject>, Failure> {
        let what = format!("get {} `{}`", kind.name(), shown(name));
        self.within(&what, self.api(kind, place).get_opt(name)).await
    }

    pub async fn watch(
        &self,
        kind: Kind,
        place: Place<'_>,
        selection: &Selection,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + use<>, Failure> {
        let mut params = WatchParams::default();
        params.label_selector.clone_from(&selection.labels);
        params.field_selector.clone_from(&selection.fields);
        let api = self.api(kind, place);
        self.within(&what("watch", kind, place), api.watch(&params, version)).await
    }

    /// A request, with the limit of the flag.
    pub async fn within<T>(&self, what: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        let Some(limit) = self.limit.0 else {
            return request.await.map_err(|error| Failure::of(&error, what));
        };
        match tokio::time::timeout(limit, request).await {
            Ok(result) => result.map_err(|error| Failure::of(&error, what)),
            Err(_) => Err(Failure {
                trouble: Some(Trouble::Silent),
                ..Failure::new(format!(
                    "cannot {what}: the API server did not answer within {} s",
                    limit.as_secs_f64()
                ))
                .with_remedy("`--request-timeout` sets another limit")
            }),
        }
    }
}

async fn config(args: &AccessArgs) -> Result<kube::Config, Failure> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: args.cluster.clone(),
        user: args.user.clone(),
    };
    let names_one = args.context.is_some() || args.cluster.is_some() || args.user.is_some();
    let wrong = |error: kube::config::KubeconfigError| {
        Failure::new(format!("cannot use the kubeconfig: {}", chain(&error)))
            .with_remedy("`kubectl config get-contexts` shows the contexts")
    };
    match &args.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).map_err(wrong)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(wrong)
        }
        None if names_one => kube::Config::from_kubeconfig(&options).await.map_err(wrong),
        None => kube::Config::infer().await.map_err(|error| {
            Failure::new(format!("no kubeconfig: {}", chain(&error)))
                .with_remedy("give --kubeconfig FILE, or set KUBECONFIG, as for kubectl")
        }),
    }
}

fn what(verb: &str, kind: Kind, place: Place<'_>) -> String {
    match place {
        Place::Namespace(namespace) => format!("{verb} {} in namespace `{}`", kind.plural, shown(namespace)),
        Place::Cluster => format!("{verb} {} in the cluster", kind.plural),
    }
}

/// The wall clock of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "the program's only reader of the clock, for --since and ages"
)]
pub fn now() -> Wall {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Wall(since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}
