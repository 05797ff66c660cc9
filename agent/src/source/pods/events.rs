//! Kubernetes Events on pods that just terminated or restarted.
//!
//! No field of an Event selects one node's (the fields are `involvedObject.*`, `reason`, `source`, `reportingComponent`, `type`; not
//! `source.host`), so a watch would bring the whole cluster's. Instead Events are listed per pod, when there is something to
//! explain: the number of lists follows the terminations on this node that the core cannot judge without (`correlate/pods/open.rs`). The cost of one list does not: the API server has no index
//! of Events by pod, and reads all Events of the namespace from etcd. So Events are listed once per termination, or twice where
//! nothing is found, and the rate per namespace is limited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::ids::PodUid;
use epitaph_core::input::Input;
use epitaph_core::pod::{PodEvent, PodEventsState, PodEventsUpdate, PodIdentity};
use epitaph_core::time::{Boot, Wall};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Client};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::convert::MAX_MESSAGE;
use super::counters::{PodsCounters, PodsDropReason};
use super::error::Action;
use super::lookup::{Lookup, LookupLimits, NoAnswer};
use crate::cache::Cache;
use crate::clock;
use crate::error::line;
use crate::source::bounded;

/// Most pods with an open lookup.
const QUEUE: usize = 256;

/// The kubelet puts its Events into a queue, which a busy node empties seconds after the status. Other containers of the pod that
/// terminate meanwhile share the list.
const SETTLED: Duration = Duration::from_secs(2);
/// Without an Event of the kubelet that it stops the container, the Event may be late: the second list.
const LATE: Duration = Duration::from_secs(3);
/// Reason of the Event with which the kubelet announces that it stops a container.
const KILLING: &str = "Killing";

/// A termination waits for the answer, but no watch.
const LIMITS: LookupLimits = LookupLimits {
    timeout: Duration::from_secs(5),
    pause: Duration::from_secs(5),
};
/// A failed list is retried as long as the termination waits: see `correlate::pods::HOLD`.
const RETRY: Duration = Duration::from_secs(6);
const LAST_RETRY: Duration = Duration::from_secs(20);

/// Lists of one namespace: as many pods as a node runs, by the kubelet's default of 110, may terminate at once, each with two.
const PER_MINUTE: u32 = 240;
const MINUTE: Duration = Duration::from_secs(60);

/// Most Events of one list: more add little, because Events of one pod are folded by reason.
const MAX_EVENTS: u32 = 100;

/// Most remembered Events that were already sent.
const SENT: usize = 4096;

/// The pods that wait for their lookup.
pub(super) struct EventQueue {
    pods: Sender<Arc<PodIdentity>>,
    counters: Arc<PodsCounters>,
}

impl EventQueue {
    pub fn new(counters: Arc<PodsCounters>) -> (EventQueue, Receiver<Arc<PodIdentity>>) {
        let (pods, queue) = mpsc::channel(QUEUE);
        (EventQueue { pods, counters }, queue)
    }

    /// Never waits. The request is announced; a pod that does not fit has no answer.
    pub fn push(&self, pod: Arc<PodIdentity>) -> Vec<Input> {
        let asked = PodEventsUpdate {
            uid: pod.uid.clone(),
            seen: clock::now(),
            state: PodEventsState::Asked,
        };
        let mut inputs = vec![Input::PodEvents(asked.clone())];
        if let Err(TrySendError::Full(_)) = self.pods.try_send(pod) {
            self.counters.count_drop(PodsDropReason::EventQueueFull);
            let why = "more pods terminated at once than Events are listed for".to_owned();
            let state = PodEventsState::Unknown { why };
            inputs.push(Input::PodEvents(PodEventsUpdate { state, ..asked }));
        }
        inputs
    }
}

pub(super) struct EventLookups {
    client: Client,
    lookup: Lookup,
    inputs: Sender<Input>,
    /// UID of the Event and its count.
    sent: Cache<(String, i32), ()>,
    /// Begin of the current minute, and the number of lists by namespace.
    lists: (Instant, HashMap<String, u32>),
    counters: Arc<PodsCounters>,
}

impl EventLookups {
    pub fn new(client: Client, counters: Arc<PodsCounters>, inputs: Sender<Input>) -> Self {
        EventLookups {
            client,
            lookup: Lookup::with(LIMITS, counters.clone()),
            inputs,
            sent: Cache::new(SENT),
            lists: (Instant::now(), HashMap::new()),
            counters,
        }
    }

    /// Looks up each received pod, until the receiver of the inputs is gone.
    pub async fn run(mut self, mut pods: Receiver<Arc<PodIdentity>>) {
        let mut open: Vec<OpenLookup> = Vec::new();
        loop {
            let next = open.iter().enumerate().min_by_key(|(_, of)| of.due);
            let next = next.map(|(i, of)| (i, of.due));
            let due = next.map_or_else(Instant::now, |(_, due)| due);
            tokio::select! {
                pod = pods.recv(), if open.len() < QUEUE => {
                    let Some(pod) = pod else { return };
                    if !open.iter().any(|of| of.pod.uid == pod.uid) {
                        let since = Instant::now();
                        open.push(OpenLookup { pod, since, due: since + SETTLED, is_second: false });
                    }
                }
                () = sleep_until(due), if next.is_some() => {
                    let Some((i, _)) = next else { continue };
                    let mut of = open.swap_remove(i);
                    match self.look_up(&of).await {
                        Found::All => {}
                        Found::NoReason => {
                            (of.due, of.is_second) = (Instant::now() + LATE, true);
                            open.push(of);
                        }
                        Found::NoAnswer => {
                            of.due = Instant::now() + RETRY;
                            open.push(of);
                        }
                        Found::Closed => return,
                    }
                }
            }
        }
    }

    async fn look_up(&mut self, of: &OpenLookup) -> Found {
        let pod = &of.pod;
        let gives_up = of.since.elapsed() >= LAST_RETRY;
        let asked = clock::now();
        let events = match self.list(pod).await {
            Ok(events) => events,
            Err(NoList::Failed(_)) if !gives_up => return Found::NoAnswer,
            // The first list was answered.
            Err(NoList::Refused(_)) if of.is_second => return self.answer(pod, asked, PodEventsState::Known).await,
            Err(NoList::Refused(why) | NoList::Failed(why)) => {
                return self.answer(pod, asked, PodEventsState::Unknown { why }).await;
            }
        };
        let seen = clock::now();
        let is_cut = events.metadata.continue_.is_some_and(|next| !next.is_empty());
        let mut has_reason = false;
        for event in events.items {
            let Some(last) = pod_event(&event, pod, seen) else { continue };
            let uid = event.metadata.uid.clone().unwrap_or_default();
            // An Event that was repeated before the list is also sent with the time of its first occurrence.
            let first = PodEvent {
                at: first_time(&event),
                ..last.clone()
            };
            for (count, event) in [(1, first), (occurrences(&event), last)] {
                let id = (uid.clone(), count);
                if self.sent.get(&id).is_some() {
                    continue;
                }
                self.sent.insert(id, ());
                has_reason |= event.reason == KILLING;
                if self.inputs.send(Input::PodEvent(event)).await.is_err() {
                    return Found::Closed;
                }
            }
        }
        let state = if is_cut {
            let why = format!("the pod has more than the {MAX_EVENTS} Events that are read");
            PodEventsState::Unknown { why }
        } else if !has_reason && !of.is_second {
            return Found::NoReason;
        } else {
            PodEventsState::Known
        };
        self.answer(pod, asked, state).await
    }

    async fn list(&mut self, pod: &PodIdentity) -> Result<ObjectList<Event>, NoList> {
        if !self.may_list(&pod.namespace) {
            self.counters.count_drop(PodsDropReason::EventRate);
            let why = format!("the Events of its namespace were listed {PER_MINUTE} times within a minute");
            return Err(NoList::Refused(why));
        }
        // By name: the kubelet's Events on a static pod have the UID of its file, not of its mirror.
        let of_pod = format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name);
        let params = ListParams::default().fields(&of_pod).limit(MAX_EVENTS);
        let api: Api<Event> = Api::namespaced(self.client.clone(), &pod.namespace);
        let instead = "without Events, the cause of a stop and the failure of a preStop hook may be unknown";
        let answer = self.lookup.get(Action::Events, instead, api.list(&params)).await;
        answer.map_err(|none| match none {
            NoAnswer::NotFound => NoList::Refused("the API server has none (404)".to_owned()),
            NoAnswer::Refused(error) => NoList::Refused(line(&error)),
            NoAnswer::Failed(error) => NoList::Failed(line(&error)),
        })
    }

    fn may_list(&mut self, namespace: &str) -> bool {
        if self.lists.0.elapsed() >= MINUTE {
            self.lists = (Instant::now(), HashMap::new());
        }
        let count = self.lists.1.entry(namespace.to_owned()).or_default();
        *count += 1;
        *count <= PER_MINUTE
    }

    async fn answer(&self, pod: &PodIdentity, asked: Boot, state: PodEventsState) -> Found {
        let uid = pod.uid.clone();
        let answer = PodEventsUpdate { uid, seen: asked, state };
        match self.inputs.send(Input::PodEvents(answer)).await {
            Ok(()) => Found::All,
            Err(_) => Found::Closed,
        }
    }
}

/// Why the list is missing.
enum NoList {
    /// A retry is of no use.
    Refused(String),
    Failed(String),
}

struct OpenLookup {
    pod: Arc<PodIdentity>,
    since: Instant,
    due: Instant,
    is_second: bool,
}

enum Found {
    All,
    /// No Event explains the termination yet.
    NoReason,
    NoAnswer,
    /// The receiver of the inputs is gone.
    Closed,
}

fn occurrences(event: &Event) -> i32 {
    event.series.as_ref().and_then(|s| s.count).or(event.count).unwrap_or(1)
}

/// None for an Event on an earlier pod of the same name.
pub(super) fn pod_event(event: &Event, pod: &PodIdentity, seen: Boot) -> Option<PodEvent> {
    let about = &event.involved_object;
    let uid = about.uid.as_deref()?;
    let is = |of: &PodUid| *of.0 == *uid;
    if !is(&pod.uid) && !is(&pod.cgroup_uid) {
        return None;
    }
    Some(PodEvent {
        uid: pod.uid.clone(),
        seen,
        at: time(event),
        container: about.field_path.as_deref().and_then(container),
        reason: bounded(event.reason.as_deref()?, 128),
        message: bounded(event.message.as_deref().unwrap_or_default(), MAX_MESSAGE),
    })
}

/// Time of the last occurrence.
fn time(event: &Event) -> Option<Wall> {
    let last = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let exact = [last, event.event_time.as_ref()].into_iter().flatten().map(|time| time.0);
    let whole = [&event.last_timestamp, &event.first_timestamp]
        .into_iter()
        .flatten()
        .map(|time| time.0);
    let at = exact.chain(whole).max()?;
    u64::try_from(at.as_nanosecond()).ok().map(Wall)
}

fn first_time(event: &Event) -> Option<Wall> {
    let exact = event.event_time.as_ref().map(|time| time.0);
    let at = exact.or(event.first_timestamp.as_ref().map(|time| time.0));
    let at = at.and_then(|at| u64::try_from(at.as_nanosecond()).ok());
    at.map(Wall).or_else(|| time(event))
}

/// `spec.containers{app}`, `spec.initContainers{init}`, `spec.ephemeralContainers{debugger}`.
fn container(path: &str) -> Option<String> {
    let (list, name) = path.strip_suffix('}')?.split_once('{')?;
    let is_list = matches!(list, "spec.containers" | "spec.initContainers" | "spec.ephemeralContainers");
    is_list.then(|| bounded(name, 253))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::mock_api::{self, Answer, Received};
    use crate::source::pods::convert::identity;
    use crate::source::pods::owners;
    use crate::waiting::LIMIT;

    /// Lookups at an API server.
    struct Conversation {
        pods: EventQueue,
        inputs: Receiver<Input>,
        counters: Arc<PodsCounters>,
        requests: Received,
    }

    /// An API server with `failures` failures, then always `answer`.
    fn conversation(failures: usize, code: u16, answer: Value) -> Conversation {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let (client, requests) = mock_api::start(move |_| {
            let fails = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < failures;
            let answer = if fails {
                mock_api::failure(500, "x")
            } else {
                Answer::Json(code, answer.clone())
            };
            std::future::ready(answer)
        });
        let counters = Arc::new(PodsCounters::default());
        let (pods, queue) = EventQueue::new(counters.clone());
        let (sender, inputs) = mpsc::channel(1024);
        tokio::spawn(EventLookups::new(client, counters.clone(), sender).run(queue));
        Conversation {
            pods,
            inputs,
            counters,
            requests,
        }
    }

    impl Conversation {
        fn look_up(&self, name: &str) {
            let pod = serde_json::json!({"metadata": {"namespace": "shop", "name": name, "uid": name}});
            let pod = serde_json::from_value(pod).expect("a pod");
            let pod = identity(&pod, "node-1", owners::by_labels(&pod)).expect("an identity");
            let asked = self.pods.push(Arc::new(pod));
            assert_eq!(asked.len(), 1, "{asked:?}");
        }

        /// As `POD REASON` or `POD: state`.
        async fn next(&mut self) -> String {
            let input = tokio::time::timeout(LIMIT, self.inputs.recv()).await;
            match input.expect("an input in time") {
                Some(Input::PodEvent(event)) => format!("{} {}", event.uid.0, event.reason),
                Some(Input::PodEvents(update)) => match update.state {
                    PodEventsState::Unknown { why } => format!("{}: {why}", update.uid.0),
                    state => format!("{}: {state:?}", update.uid.0),
                },
                other => panic!("{other:?}"),
            }
        }

        fn sent(&self) -> usize {
            self.requests.lock().unwrap().len()
        }

        fn requests(&self, outcome: &str) -> u64 {
            let of = |(resource, of, count)| (resource == "events" && of == outcome).then_some(count);
            self.counters.requests().find_map(of).expect("a count")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_does_not_fit_the_queue_has_no_answer() {
        let counters = Arc::new(PodsCounters::default());
        let (queue, _waiting) = EventQueue::new(counters.clone());
        let pod = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}});
        let pod = serde_json::from_value(pod).expect("a pod");
        let pod = Arc::new(identity(&pod, "node-1", owners::by_labels(&pod)).expect("an identity"));
        for _ in 0..QUEUE {
            assert_eq!(queue.push(pod.clone()).len(), 1);
        }
        let states = queue.push(pod).into_iter().map(|input| match input {
            Input::PodEvents(update) => update.state,
            other => panic!("{other:?}"),
        });
        let why = "more pods terminated at once than Events are listed for".to_owned();
        assert_eq!(
            states.collect::<Vec<_>>(),
            [PodEventsState::Asked, PodEventsState::Unknown { why }]
        );
        assert_eq!(counters.dropped(PodsDropReason::EventQueueFull), 1);
    }

    /// A list of these Events.
    fn list(items: Value) -> Value {
        json!({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items})
    }

    #[tokio::test(start_paused = true)]
    async fn terminations_of_one_pod_share_a_list_and_its_events_come_before_the_answer() {
        let killing = json!({"metadata": {"name": "a", "uid": "e"}, "involvedObject": {"uid": "web"}, "reason": "Killing"});
        let answer = list(json!([killing]));
        let mut of = conversation(0, 200, answer);
        of.look_up("web");
        of.look_up("web");
        assert_eq!([of.next().await, of.next().await], ["web Killing", "web: Known"]);
        // Time is paused: no second list follows.
        tokio::time::sleep(LATE + SETTLED).await;
        assert_eq!((of.sent(), of.inputs.len()), (1, 0));
    }

    /// Killed twice before the first list: each kill explains a termination.
    #[tokio::test(start_paused = true)]
    async fn a_folded_event_is_sent_with_its_first_time_too() {
        let twice = json!({
            "metadata": {"name": "a", "uid": "e"}, "involvedObject": {"uid": "web"}, "reason": "Killing", "count": 2,
            "firstTimestamp": "2026-11-21T10:00:00Z", "lastTimestamp": "2026-11-21T10:20:00Z",
        });
        let answer = list(json!([twice]));
        let mut of = conversation(0, 200, answer);
        of.look_up("web");
        let mut times = Vec::new();
        while let Some(Input::PodEvent(event)) = of.inputs.recv().await {
            times.push(event.at.map(|at| at.0 / 1_000_000_000));
        }
        assert_eq!(times, [Some(1_795_255_200), Some(1_795_256_400)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_list_is_retried_while_a_termination_waits() {
        let mut of = conversation(1, 200, list(json!([])));
        of.look_up("web");
        assert_eq!(of.next().await, "web: Known");
        assert_eq!((of.requests("failed"), of.requests("ok")), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_truncated_list_is_not_an_answer() {
        let mut answer = list(json!([]));
        answer["metadata"]["continue"] = json!("x");
        let mut of = conversation(0, 200, answer);
        of.look_up("web");
        assert_eq!(of.next().await, "web: the pod has more than the 100 Events that are read");
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_to_list_each_pod_has_the_reason() {
        let answer = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "events is forbidden",
            "reason": "Forbidden", "code": 403});
        let mut of = conversation(0, 403, answer);
        for pod in ["a", "b", "c"] {
            of.look_up(pod);
            let why = of.next().await;
            let rule = r#"{apiGroups: [""], resources: [events], verbs: [list]}"#;
            assert!(why.starts_with(&format!("{pod}: ")) && why.contains(rule), "{why}");
        }
        assert_eq!((of.requests("forbidden"), of.requests("skipped")), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_one_namespace_are_limited() {
        let mut of = conversation(0, 200, list(json!([])));
        for n in 0..=PER_MINUTE {
            of.look_up(&n.to_string());
        }
        // All are due at the same moment: in any order. Which pod is the last one is not stated.
        let refused = of.next().await;
        let (last, why) = refused.split_once(": ").expect("a pod and its answer");
        assert_eq!(why, "the Events of its namespace were listed 240 times within a minute");
        // The other pods were answered once; their second lists exceed the limit.
        let mut known = BTreeSet::new();
        for _ in 0..PER_MINUTE {
            known.insert(of.next().await);
        }
        let others = (0..=PER_MINUTE).map(|n| n.to_string()).filter(|n| n != last);
        assert_eq!(known, others.map(|n| format!("{n}: Known")).collect());
        assert_eq!(of.counters.dropped(PodsDropReason::EventRate), 1 + u64::from(PER_MINUTE));
        assert_eq!(of.sent(), PER_MINUTE as usize);
    }

    #[test]
    fn a_folded_event_has_its_last_time() {
        let event = |text: &str| serde_json::from_str::<Event>(text).expect("an Event");
        let whole = event(
            r#"{"metadata": {}, "involvedObject": {}, "firstTimestamp": "2026-11-21T10:00:00Z", "lastTimestamp": "2026-11-21T10:20:00Z", "count": 3}"#,
        );
        assert_eq!(time(&whole), Some(Wall(1_795_256_400_000_000_000)));
        assert_eq!(first_time(&whole), Some(Wall(1_795_255_200_000_000_000)));
        let series = event(
            r#"{"metadata": {}, "involvedObject": {}, "eventTime": "2026-11-21T10:00:00.000000Z",
                "series": {"count": 2, "lastObservedTime": "2026-11-21T10:00:01.500000Z"}}"#,
        );
        assert_eq!(time(&series), Some(Wall(1_795_255_201_500_000_000)));
        assert_eq!(first_time(&series), Some(Wall(1_795_255_200_000_000_000)));
        let timeless = event(r#"{"metadata": {}, "involvedObject": {}}"#);
        assert_eq!((time(&timeless), first_time(&timeless)), (None, None));
    }

    #[test]
    fn a_container_is_named_by_its_field() {
        assert_eq!(container("spec.containers{app}").as_deref(), Some("app"));
        assert_eq!(container("spec.initContainers{proxy}").as_deref(), Some("proxy"));
        for path in ["", "spec.containers", "spec.containers{app", "status{app}"] {
            assert_eq!(container(path), None, "{path}");
        }
    }
}
