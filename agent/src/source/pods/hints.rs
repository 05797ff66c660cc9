//! Kubernetes Events on pods that just ended or restarted.
//!
//! No field of an Event selects one node's (there are `involvedObject.*`, `reason`, `source`, `reportingComponent`, `type`; not
//! `source.host`), so a watch would bring the whole cluster's. Instead they are listed per pod, when there is something to
//! explain: the number of questions follows the deaths on this node. What one costs does not: the API server has no index of
//! them by pod, and reads all Events of the namespace from etcd. So each end is asked about once, or twice where nothing is found,
//! and no more than so often.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Client};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::asking::{Asker, NoAnswer, Patience};
use super::cache::Cache;
use super::convert::{MAX_MESSAGE, bounded};
use super::error::Action;
use super::stats::{DropReason, Stats};
use crate::clock;
use crate::ids::PodUid;
use crate::input::Input;
use crate::pod::{HintsState, PodHint, PodHints, PodIdentity};
use crate::time::{Boot, Wall};

/// Pods that wait for their turn.
pub(super) const QUEUE: usize = 256;

/// The kubelet hands its Events to a queue of its own, which a busy node empties seconds after the status. What else of the pod
/// ends meanwhile is asked about together.
const SETTLED: Duration = Duration::from_secs(2);
/// Where none says that the kubelet stopped it, one may be late: the last look.
const LATE: Duration = Duration::from_secs(3);
/// The reason of the Event with which the kubelet says that it stops a container.
const KILLING: &str = "Killing";

/// An end waits for its answer, and no watch does.
const PATIENCE: Patience = Patience {
    limit: Duration::from_secs(5),
    rest: Duration::from_secs(5),
};
/// Questions that failed are put again, until an end waits no longer: see `correlate::pods::HOLD`.
const AGAIN: Duration = Duration::from_secs(6);
const LAST: Duration = Duration::from_secs(20);

/// Questions for one namespace: as many as a node has pods, by the kubelet's default of 110, may end at once, each with two.
const PER_MINUTE: u32 = 240;
const MINUTE: Duration = Duration::from_secs(60);

/// Newer ones are not worth more: Events of one pod are folded by reason.
const MAX_EVENTS: u32 = 100;

/// Events that were told already.
const TOLD: usize = 4096;

pub(super) struct Hints {
    client: Client,
    asker: Asker,
    inputs: Sender<Input>,
    /// UID of the Event and how often it had happened.
    told: Cache<(String, i32), ()>,
    /// Since when, and how many questions of each namespace.
    asked: (Instant, HashMap<String, u32>),
    stats: Arc<Stats>,
}

impl Hints {
    pub fn new(client: Client, stats: Arc<Stats>, inputs: Sender<Input>) -> Self {
        Hints {
            client,
            asker: Asker::with(PATIENCE, stats.clone()),
            inputs,
            told: Cache::new(TOLD),
            asked: (Instant::now(), HashMap::new()),
            stats,
        }
    }

    /// Asks about each pod that comes, until nobody listens.
    pub async fn run(mut self, mut pods: Receiver<Arc<PodIdentity>>) {
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            let next = waiting.iter().enumerate().min_by_key(|(_, of)| of.turn);
            let next = next.map(|(i, of)| (i, of.turn));
            let turn = next.map_or_else(Instant::now, |(_, turn)| turn);
            tokio::select! {
                pod = pods.recv(), if waiting.len() < QUEUE => {
                    let Some(pod) = pod else { return };
                    if !waiting.iter().any(|of| of.pod.uid == pod.uid) {
                        let since = Instant::now();
                        waiting.push(Waiting { pod, since, turn: since + SETTLED, is_last_look: false });
                    }
                }
                () = sleep_until(turn), if next.is_some() => {
                    let Some((i, _)) = next else { continue };
                    let mut of = waiting.swap_remove(i);
                    match self.tell(&of).await {
                        Told::All => {}
                        Told::NoReason => {
                            (of.turn, of.is_last_look) = (Instant::now() + LATE, true);
                            waiting.push(of);
                        }
                        Told::Nothing => {
                            of.turn = Instant::now() + AGAIN;
                            waiting.push(of);
                        }
                        Told::ToNobody => return,
                    }
                }
            }
        }
    }

    async fn tell(&mut self, waiting: &Waiting) -> Told {
        let pod = &waiting.pod;
        let gives_up = waiting.since.elapsed() >= LAST;
        let asked = clock::now();
        let events = match self.ask(pod).await {
            Ok(events) => events,
            Err(NoAnswer::Failed(_)) if !gives_up => return Told::Nothing,
            // The first look had an answer.
            Err(NoAnswer::Refused(_)) if waiting.is_last_look => return self.answer(pod, asked, HintsState::Known).await,
            Err(none) => {
                let why = match none {
                    NoAnswer::NotFound => "the API server has none (404)".to_owned(),
                    NoAnswer::Refused(why) | NoAnswer::Failed(why) => why,
                };
                return self.answer(pod, asked, HintsState::Unknown { why }).await;
            }
        };
        let seen = clock::now();
        let is_cut = events.metadata.continue_.is_some_and(|next| !next.is_empty());
        let mut has_reason = false;
        for event in events.items {
            let Some(hint) = hint(&event, pod, seen) else { continue };
            let uid = event.metadata.uid.clone().unwrap_or_default();
            // One that happened again before it was looked at says when it did first.
            let first = PodHint {
                at: first_time(&event),
                ..hint.clone()
            };
            for (count, hint) in [(1, first), (happened(&event), hint)] {
                let id = (uid.clone(), count);
                if self.told.get(&id).is_some() {
                    continue;
                }
                self.told.insert(id, ());
                has_reason |= hint.reason == KILLING;
                if self.inputs.send(Input::PodHint(hint)).await.is_err() {
                    return Told::ToNobody;
                }
            }
        }
        let state = if is_cut {
            let why = format!("it has more than the {MAX_EVENTS} that are read");
            HintsState::Unknown { why }
        } else if !has_reason && !waiting.is_last_look {
            return Told::NoReason;
        } else {
            HintsState::Known
        };
        self.answer(pod, asked, state).await
    }

    async fn ask(&mut self, pod: &PodIdentity) -> Result<ObjectList<Event>, NoAnswer> {
        if !self.may_ask(&pod.namespace) {
            self.stats.count_drop(DropReason::HintRate);
            let why = format!("{PER_MINUTE} questions about its namespace were asked in a minute");
            return Err(NoAnswer::Refused(why));
        }
        // By name: the kubelet's Events on a static pod have the UID of its file, not of its mirror.
        let of_pod = format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name);
        let params = ListParams::default().fields(&of_pod).limit(MAX_EVENTS);
        let api: Api<Event> = Api::namespaced(self.client.clone(), &pod.namespace);
        let instead =
            "why a container had to end, or whether its preStop hook failed, is then not known where only they say it";
        self.asker.ask(Action::Events, instead, api.list(&params)).await
    }

    fn may_ask(&mut self, namespace: &str) -> bool {
        if self.asked.0.elapsed() >= MINUTE {
            self.asked = (Instant::now(), HashMap::new());
        }
        let count = self.asked.1.entry(namespace.to_owned()).or_default();
        *count += 1;
        *count <= PER_MINUTE
    }

    async fn answer(&self, pod: &PodIdentity, asked: Boot, state: HintsState) -> Told {
        let uid = pod.uid.clone();
        let answer = PodHints { uid, seen: asked, state };
        match self.inputs.send(Input::PodHints(answer)).await {
            Ok(()) => Told::All,
            Err(_) => Told::ToNobody,
        }
    }
}

struct Waiting {
    pod: Arc<PodIdentity>,
    since: Instant,
    turn: Instant,
    is_last_look: bool,
}

enum Told {
    All,
    /// No Event that says why; it may come.
    NoReason,
    /// There is no answer yet.
    Nothing,
    /// Nobody listens any more.
    ToNobody,
}

fn happened(event: &Event) -> i32 {
    event.series.as_ref().and_then(|s| s.count).or(event.count).unwrap_or(1)
}

/// None where it is about another pod that had the name before.
fn hint(event: &Event, pod: &PodIdentity, seen: Boot) -> Option<PodHint> {
    let about = &event.involved_object;
    let uid = about.uid.as_deref()?;
    let is = |of: &PodUid| *of.0 == *uid;
    if !is(&pod.uid) && !is(&pod.cgroup_uid) {
        return None;
    }
    Some(PodHint {
        uid: pod.uid.clone(),
        seen,
        at: time(event),
        container: about.field_path.as_deref().and_then(container),
        reason: bounded(event.reason.as_deref()?, 128),
        message: bounded(event.message.as_deref().unwrap_or_default(), MAX_MESSAGE),
    })
}

/// The last time that it happened.
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
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Response, StatusCode};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::source::pods::convert::identity;
    use crate::source::pods::owners;

    /// Asks an API server that fails so often and then always answers so; with how often it was asked.
    struct Conversation {
        pods: Sender<Arc<PodIdentity>>,
        inputs: Receiver<Input>,
        stats: Arc<Stats>,
        requests: Arc<AtomicU32>,
    }

    async fn conversation(failures: u32, status: StatusCode, answer: &'static str) -> Conversation {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(AtomicU32::new(0));
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = counted.clone();
                let service = hyper::service::service_fn(move |_| {
                    let fails = counted.fetch_add(1, Ordering::Relaxed) < failures;
                    let mut response = Response::new(Full::new(Bytes::from_static(answer.as_bytes())));
                    *response.status_mut() = if fails { StatusCode::INTERNAL_SERVER_ERROR } else { status };
                    async move { Ok::<_, Infallible>(response) }
                });
                tokio::spawn(async move {
                    drop(
                        auto::Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        let mut config = kube::Config::new(url.parse().expect("a URL"));
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        let stats = Arc::new(Stats::default());
        let (pods, to_explain) = mpsc::channel(QUEUE);
        let (sender, inputs) = mpsc::channel(1024);
        tokio::spawn(Hints::new(client, stats.clone(), sender).run(to_explain));
        Conversation {
            pods,
            inputs,
            stats,
            requests,
        }
    }

    impl Conversation {
        async fn explain(&self, name: &str) {
            let pod = serde_json::json!({"metadata": {"namespace": "shop", "name": name, "uid": name}});
            let pod = serde_json::from_value(pod).expect("a pod");
            let pod = identity(&pod, "node-1", owners::unasked(&pod)).expect("an identity");
            self.pods.send(Arc::new(pod)).await.expect("somebody asks");
        }

        /// As `POD REASON` or `POD: state`.
        async fn next(&mut self) -> String {
            let input = tokio::time::timeout(Duration::from_secs(20), self.inputs.recv()).await;
            match input.expect("an input in time") {
                Some(Input::PodHint(hint)) => format!("{} {}", hint.uid.0, hint.reason),
                Some(Input::PodHints(hints)) => match hints.state {
                    HintsState::Unknown { why } => format!("{}: {why}", hints.uid.0),
                    state => format!("{}: {state:?}", hints.uid.0),
                },
                other => panic!("{other:?}"),
            }
        }

        fn requests(&self, outcome: &str) -> u64 {
            let of = |(resource, of, count)| (resource == "events" && of == outcome).then_some(count);
            self.stats.requests().find_map(of).expect("a count")
        }
    }

    const NONE: &str = r#"{"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []}"#;

    #[tokio::test]
    async fn ends_of_one_pod_are_asked_about_once_and_told_as_known_after_its_events() {
        let answer = r#"{"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [
            {"metadata": {"name": "a", "uid": "e"}, "involvedObject": {"uid": "web"}, "reason": "Killing"}]}"#;
        let mut of = conversation(0, StatusCode::OK, answer).await;
        of.explain("web").await;
        of.explain("web").await;
        assert_eq!([of.next().await, of.next().await], ["web Killing", "web: Known"]);
        // No second question follows by itself.
        tokio::time::sleep(LATE + SETTLED).await;
        assert_eq!((of.requests.load(Ordering::Relaxed), of.inputs.len()), (1, 0));
    }

    /// Killed twice before anybody asked: each kill is an end's reason.
    #[tokio::test]
    async fn a_folded_event_is_told_of_its_first_time_too() {
        let answer = r#"{"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [
            {"metadata": {"name": "a", "uid": "e"}, "involvedObject": {"uid": "web"}, "reason": "Killing", "count": 2,
             "firstTimestamp": "2026-11-21T10:00:00Z", "lastTimestamp": "2026-11-21T10:20:00Z"}]}"#;
        let mut of = conversation(0, StatusCode::OK, answer).await;
        of.explain("web").await;
        let mut times = Vec::new();
        while let Some(Input::PodHint(hint)) = of.inputs.recv().await {
            times.push(hint.at.map(|at| at.0 / 1_000_000_000));
        }
        assert_eq!(times, [Some(1_795_255_200), Some(1_795_256_400)]);
    }

    #[tokio::test]
    async fn a_question_that_failed_is_put_again_while_an_end_waits() {
        let mut of = conversation(1, StatusCode::OK, NONE).await;
        of.explain("web").await;
        assert_eq!(of.next().await, "web: Known");
        assert_eq!((of.requests("failed"), of.requests("ok")), (1, 2));
    }

    #[tokio::test]
    async fn a_cut_answer_is_none() {
        let answer = r#"{"kind": "EventList", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": []}"#;
        let mut of = conversation(0, StatusCode::OK, answer).await;
        of.explain("web").await;
        assert_eq!(of.next().await, "web: it has more than the 100 that are read");
    }

    #[tokio::test]
    async fn without_the_right_to_ask_each_pod_is_told_why() {
        let answer = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "events is forbidden",
            "reason": "Forbidden", "code": 403}"#;
        let mut of = conversation(0, StatusCode::FORBIDDEN, answer).await;
        for pod in ["a", "b", "c"] {
            of.explain(pod).await;
            let why = of.next().await;
            let rule = r#"{apiGroups: [""], resources: [events], verbs: [list]}"#;
            assert!(why.starts_with(&format!("{pod}: ")) && why.contains(rule), "{why}");
        }
        assert_eq!((of.requests("forbidden"), of.requests("skipped")), (1, 2));
    }

    #[tokio::test]
    async fn a_namespace_is_read_so_often_and_no_more() {
        let mut of = conversation(0, StatusCode::OK, NONE).await;
        for n in 0..=PER_MINUTE {
            of.explain(&n.to_string()).await;
        }
        assert_eq!(
            of.next().await,
            "240: 240 questions about its namespace were asked in a minute"
        );
        // The others were answered once; what would have come later is not asked for.
        for n in 0..PER_MINUTE {
            assert_eq!(of.next().await, format!("{n}: Known"));
        }
        assert_eq!(of.stats.dropped(DropReason::HintRate), 1 + u64::from(PER_MINUTE));
        assert_eq!(of.requests.load(Ordering::Relaxed), PER_MINUTE);
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
