//! The observer's watches of the whole cluster: EndpointSlices, pods, namespaces that opted out, nodes and VolumeAttachments; answers
//! to the core's questions about lost nodes; the offset of the API server's clock; and the Lease by which one observer is active.
//!
//! *Architecture invariant*: nothing here decides. Objects become small facts at once; a full queue makes a watch wait.

mod answers;
mod convert;
mod counters;
mod error;
mod lease;
mod names;
mod nodes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::ids::PodUid;
use epitaph_core::observe::{self, Ask, BACK_WITHIN, Input, PodSight};
use epitaph_core::pod::PodIdentity;
use epitaph_core::time::Boot;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock;
use crate::error::line;
use crate::source::api_error::ApiError;
use crate::source::pods::owners::Owners;
use crate::source::pods::{self, Access, Allowed, PodsError};
use crate::source::watch::machine::LONGEST_PAUSE;
use crate::source::watch::{
    ANSWER, Change, LeanAttachment, LeanNamespace, LeanNode, LeanPod, LeanSlice, Watch, WatchEvent, WatchOptions, Watched,
};

pub use counters::ClusterCounters;
pub use lease::Lease;

use answers::Answers;
use names::Names;
use nodes::Agents;

/// The API server ends a watch after this time, and the next watch resumes. Short: a dead connection is noticed by silence after
/// this time, and later changes are reported with a gap of this length.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A watch of a live API server is never silent for so long.
const SILENCE: Duration = Duration::from_secs(65);

const _: () = assert!(
    ANSWER.as_secs() + LONGEST_PAUSE.as_secs() < BACK_WITHIN.as_secs()
        && ANSWER.as_secs() + SILENCE.as_secs() < BACK_WITHIN.as_secs()
);

/// Inputs that wait for the loop.
const QUEUE: usize = 256;

/// A client of the API server, for the observer's watches and its Lease.
///
/// # Errors
/// Settings that allow no request.
pub async fn client(access: &Access) -> Result<Client, PodsError> {
    pods::connect(access).await
}

/// The watches, and the clock's measurement. A drop ends them.
pub struct Cluster {
    inputs: mpsc::Receiver<(Boot, Input)>,
    names: Names,
    /// None without the lost nodes.
    answers: Option<Answers>,
    counters: Arc<ClusterCounters>,
    _tasks: JoinSet<()>,
}

/// What is watched.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Where opt-outs count.
    pub allowed: Allowed,
    /// Nodes and VolumeAttachments, too.
    pub lost_nodes: bool,
    /// Namespace of the agents; None: the namespace of the ServiceAccount, or of the kubeconfig's context.
    pub namespace: Option<String>,
}

impl Cluster {
    /// Starts the requests on the current Tokio runtime. An API server that does not answer is not an error.
    pub fn start(client: &Client, counters: &Arc<ClusterCounters>, scope: &Scope) -> Cluster {
        let allowed = &scope.allowed;
        let agents = Agents::of(scope.namespace.as_deref().unwrap_or(client.default_namespace()));
        let (inputs, receiver) = mpsc::channel(QUEUE);
        let feed = |watch| Feed {
            watch,
            inputs: inputs.clone(),
            counters: counters.clone(),
            failing: None,
        };
        let (names, lookups) = Names::new(Owners::new(client.clone(), Arc::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(feed(observe::Watch::EndpointSlices).run(client, slice_inputs));
        let (of_pods, allowed_pods, allowed) = (names.clone(), allowed.clone(), allowed.clone());
        tasks.spawn(
            feed(observe::Watch::Pods).run(client, move |change| pod_inputs(&of_pods, (&allowed_pods, &agents), change)),
        );
        tasks.spawn(lookups);
        tasks.spawn(feed(observe::Watch::Namespaces).run(client, move |change| namespace_inputs(&allowed, change)));
        let mut answers = None;
        if scope.lost_nodes {
            tasks.spawn(feed(observe::Watch::Nodes).run(client, node_inputs));
            tasks.spawn(feed(observe::Watch::VolumeAttachments).run(client, attachment_inputs));
            tasks.spawn(answers::version(client.clone(), inputs.clone()));
            answers = Some(Answers::new(client.clone(), inputs.clone()));
        }
        let measured = |clock| (clock::now(), Input::ApiClock(clock));
        tasks.spawn(pods::clock::run(client.clone(), Arc::default(), inputs, measured));
        Cluster {
            inputs: receiver,
            names,
            answers,
            counters: counters.clone(),
            _tasks: tasks,
        }
    }

    /// Asks a question of the core; the answer is an input.
    pub fn ask(&mut self, ask: Ask) {
        if self.answers.as_mut().is_some_and(|answers| !answers.ask(ask)) {
            self.counters.unasked();
        }
    }

    /// The next input, and when it arrived. None if all watches ended, which none does by itself.
    pub async fn next(&mut self) -> Option<(Boot, Input)> {
        self.inputs.recv().await
    }

    /// A terminated pod with its workload's name, if the name was looked up and is known by now.
    pub fn named(&self, pod: &PodUid) -> Option<Arc<PodIdentity>> {
        self.names.of(pod)
    }
}

/// An object without a field that every object has.
struct Incomplete;

/// One or two inputs for one change.
type Inputs = [Option<Input>; 2];

fn slice_inputs(change: Change<LeanSlice>) -> Result<Inputs, Incomplete> {
    let input = match change {
        Change::Applied { object, .. } => match convert::slice(&object.0) {
            Some(fact) => Input::Slice(fact),
            // A slice without the label of its Service has left the Service.
            None => Input::SliceGone(convert::slice_key(&object.0).ok_or(Incomplete)?),
        },
        Change::Deleted(slice) => Input::SliceGone(convert::slice_key(&slice.0).ok_or(Incomplete)?),
    };
    Ok([Some(input), None])
}

fn pod_inputs(names: &Names, (allowed, agents): (&Allowed, &Agents), change: Change<LeanPod>) -> Result<Inputs, Incomplete> {
    let offset = clock::wall_offset();
    match change {
        Change::Applied { object, listed } => {
            let sight = convert::pod(&object.0, allowed, agents, offset).ok_or(Incomplete)?;
            // A list includes every pod that terminated in the last days: the owners of these pods are not looked up.
            if !listed && PodSight::ends(&sight) {
                names.want(&object.0);
            }
            Ok([Some(Input::Pod(sight)), None])
        }
        Change::Deleted(pod) => {
            // The last state first: no other input reports a forced deletion.
            let sight = convert::pod(&pod.0, allowed, agents, offset).ok_or(Incomplete)?;
            names.want(&pod.0);
            let uid = sight.identity.uid.clone();
            Ok([Some(Input::Pod(sight)), Some(Input::PodGone(uid))])
        }
    }
}

fn namespace_inputs(allowed: &Allowed, change: Change<LeanNamespace>) -> Result<Inputs, Incomplete> {
    let input = match change {
        Change::Applied { object, .. } => convert::namespace(&object.0, allowed),
        Change::Deleted(namespace) => namespace.0.name.map(Input::NamespaceGone),
    };
    Ok([Some(input.ok_or(Incomplete)?), None])
}

fn node_inputs(change: Change<LeanNode>) -> Result<Inputs, Incomplete> {
    let input = match change {
        Change::Applied { object, .. } => nodes::node(&object, clock::wall_offset()).map(Input::Node),
        Change::Deleted(node) => nodes::node_name(&node).map(Input::NodeGone),
    };
    Ok([Some(input.ok_or(Incomplete)?), None])
}

/// Nothing for an inline volume.
fn attachment_inputs(change: Change<LeanAttachment>) -> Result<Inputs, Incomplete> {
    let input = match change {
        Change::Applied { object, .. } => {
            nodes::attachment_name(&object).ok_or(Incomplete)?;
            nodes::attachment(&object).map(Input::Attachment)
        }
        Change::Deleted(attachment) => Some(Input::AttachmentGone(nodes::attachment_name(&attachment).ok_or(Incomplete)?)),
    };
    Ok([input, None])
}

/// The receiver of the inputs is gone.
struct Closed;

/// One watch, and the receiver of its inputs.
struct Feed {
    watch: observe::Watch,
    inputs: mpsc::Sender<(Boot, Input)>,
    counters: Arc<ClusterCounters>,
    /// The last logged error: a repetition is not logged.
    failing: Option<ApiError>,
}

impl Feed {
    /// Runs until the receiver of the inputs is gone.
    fn run<T: Watched>(
        self,
        client: &Client,
        inputs: impl Fn(Change<T>) -> Result<Inputs, Incomplete> + Send + Sync + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let options = WatchOptions {
            purpose: error::of_watch(self.watch),
            namespace: None,
            field_selector: None,
            timeout: TIMEOUT,
            silence: SILENCE,
            answer: ANSWER,
        };
        let watch = Watch::<T>::new(client.clone(), options, self.counters.watch(self.watch));
        self.follow(watch, inputs)
    }

    async fn follow<T: Watched>(mut self, mut watch: Watch<T>, inputs: impl Fn(Change<T>) -> Result<Inputs, Incomplete>) {
        loop {
            let (seen, event) = tokio::select! {
                event = watch.next() => event,
                () = self.inputs.closed() => return,
            };
            if self.take(seen, event, &inputs).await.is_err() {
                return;
            }
        }
    }

    async fn take<T>(
        &mut self,
        seen: Boot,
        event: WatchEvent<T>,
        inputs: impl Fn(Change<T>) -> Result<Inputs, Incomplete>,
    ) -> Result<(), Closed> {
        match event {
            WatchEvent::ListStarted => self.send(seen, Input::ListBegin(self.watch)).await,
            WatchEvent::ListFinished => self.send(seen, Input::ListEnd(self.watch)).await,
            WatchEvent::Changed(change) => {
                let Ok(inputs) = inputs(change) else {
                    self.counters.incomplete();
                    return Ok(());
                };
                for input in inputs.into_iter().flatten() {
                    self.send(seen, input).await?;
                }
                Ok(())
            }
            WatchEvent::Interrupted { since, error } => {
                if self.failing.as_ref() != Some(&error) {
                    tracing::warn!("{}; missed changes are reported later, with their gap", line(&error));
                    self.failing = Some(error);
                }
                let watch = self.watch;
                self.send(seen, Input::Broken { watch, since }).await
            }
            WatchEvent::Synced { .. } => {
                if self.failing.take().is_some() {
                    tracing::info!(watch = self.watch.name(), "the watch is complete again");
                }
                Ok(())
            }
        }
    }

    async fn send(&self, seen: Boot, input: Input) -> Result<(), Closed> {
        self.inputs.send((seen, input)).await.map_err(|_| Closed)
    }
}
