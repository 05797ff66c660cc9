use expect_test::expect;
use serde_json::{Value, json};

use super::*;

const ID: &str = "3F1c9b2a7d5e4f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8";

fn parsed(pod: Value) -> api::Pod {
    serde_json::from_value(pod).unwrap()
}

fn workload() -> Workload {
    Workload {
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        name: "cart".to_owned(),
        uid: None,
        api_version: None,
        through: None,
    }
}

fn converted(pod: Value) -> PodFact {
    let pod = parsed(pod);
    let identity = identity(&pod, "node-1", workload()).unwrap();
    fact(&pod, Arc::new(identity), PodOptions::default(), Boot(7))
}

fn with_spec(spec: Value) -> PodFact {
    converted(json!({"metadata": {"name": "cart-1", "namespace": "shop", "uid": "u-1"}, "spec": spec}))
}

#[test]
fn a_pod_is_converted_completely() {
    let pod = json!({
        "metadata": {
            "name": "cart-7d9-x2x", "namespace": "shop", "uid": "9a6b",
            "creationTimestamp": "2026-11-21T11:00:00Z",
            "deletionTimestamp": "2026-11-21T12:00:30Z", "deletionGracePeriodSeconds": 30,
            "labels": {"app.kubernetes.io/name": "cart", "app.kubernetes.io/version": "v2"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {
            "terminationGracePeriodSeconds": 30, "restartPolicy": "Always", "shareProcessNamespace": true,
            "initContainers": [
                {"name": "migrate", "image": "cart:v2"},
                {"name": "proxy", "image": "proxy", "restartPolicy": "Always"},
            ],
            "containers": [{
                "name": "app", "image": "cart:v2", "ports": [{"name": "http", "containerPort": 8080}],
                "lifecycle": {"preStop": {"exec": {"command": ["/bin/sleep", "secret"]}}, "stopSignal": "SIGUSR1"},
                "livenessProbe": {"httpGet": {"port": "http"}, "terminationGracePeriodSeconds": 5},
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}},
                    {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 1]}},
                    {"action": "Pause", "exitCodes": {"operator": "In", "values": [7]}},
                    {"action": "Restart", "exitCodes": {"operator": "Near", "values": [7]}},
                ],
                "startupProbe": {"exec": {"command": ["/up"]}},
                "readinessProbe": {"tcpSocket": {"port": "nowhere"}},
            }],
            "ephemeralContainers": [{"name": "debugger", "image": "busybox"}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}],
            "conditions": [
                {"type": "Ready", "status": "False"},
                {"type": "AllContainersRestarting", "status": "True", "reason": "RestartAllContainersStarted"},
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"},
            ],
            "containerStatuses": [{
                "name": "app", "image": "cart:v2", "imageID": "", "ready": false, "restartCount": 2,
                "stopSignal": "SIGUSR1",
                "containerID": format!("containerd://{ID}"),
                "state": {"terminated": {"exitCode": 137, "reason": "Error", "containerID": format!("containerd://{ID}")}},
                "lastState": {"terminated": {"exitCode": 1, "containerID": "containerd://short"}},
            }],
        },
    });
    expect![[r#"
        PodFact {
            pod: PodIdentity {
                uid: PodUid(
                    "9a6b",
                ),
                cgroup_uid: PodUid(
                    "9a6b",
                ),
                namespace: "shop",
                name: "cart-7d9-x2x",
                node: "node-1",
                workload: Workload {
                    kind: "Deployment",
                    namespace: "shop",
                    name: "cart",
                    uid: None,
                    api_version: None,
                    through: None,
                },
                is_static: false,
                service: Service {
                    name: "cart",
                    namespace: Some(
                        "shop",
                    ),
                    version: Some(
                        "v2",
                    ),
                },
                created: Some(
                    Wall(
                        1795258800000000000,
                    ),
                ),
                revision: None,
            },
            seen: Boot(
                7,
            ),
            spec: PodSpec {
                grace: Some(
                    30s,
                ),
                priority: None,
                restart_policy: Always,
                host_network: false,
                host_pid: false,
                share_process_namespace: true,
                ips: [
                    10.0.0.5,
                    fd00::5,
                ],
                containers: [
                    ContainerSpec {
                        name: "migrate",
                        kind: Init,
                        image: "cart:v2",
                        pre_stop: None,
                        stop_signal: None,
                        liveness: None,
                        startup: None,
                        readiness: None,
                        ports: [],
                        restart_policy: None,
                        restart_rules: [],
                    },
                    ContainerSpec {
                        name: "proxy",
                        kind: Sidecar,
                        image: "proxy",
                        pre_stop: None,
                        stop_signal: None,
                        liveness: None,
                        startup: None,
                        readiness: None,
                        ports: [],
                        restart_policy: None,
                        restart_rules: [],
                    },
                    ContainerSpec {
                        name: "app",
                        kind: Main,
                        image: "cart:v2",
                        pre_stop: Some(
                            Exec {
                                program: "/bin/sleep",
                            },
                        ),
                        stop_signal: Some(
                            "SIGUSR1",
                        ),
                        liveness: Some(
                            KubeletProbe {
                                kind: Network {
                                    port: Some(
                                        8080,
                                    ),
                                },
                                grace: Some(
                                    5s,
                                ),
                            },
                        ),
                        startup: Some(
                            KubeletProbe {
                                kind: Exec {
                                    program: "/up",
                                },
                                grace: None,
                            },
                        ),
                        readiness: Some(
                            KubeletProbe {
                                kind: Network {
                                    port: None,
                                },
                                grace: None,
                            },
                        ),
                        ports: [
                            8080,
                        ],
                        restart_policy: Some(
                            Never,
                        ),
                        restart_rules: [
                            RestartRule {
                                action: RestartAllContainers,
                                is_in: true,
                                codes: [
                                    88,
                                ],
                            },
                            RestartRule {
                                action: Restart,
                                is_in: false,
                                codes: [
                                    0,
                                    1,
                                ],
                            },
                            RestartRule {
                                action: Other,
                                is_in: true,
                                codes: [
                                    7,
                                ],
                            },
                        ],
                    },
                    ContainerSpec {
                        name: "debugger",
                        kind: Ephemeral,
                        image: "busybox",
                        pre_stop: None,
                        stop_signal: None,
                        liveness: None,
                        startup: None,
                        readiness: None,
                        ports: [],
                        restart_policy: None,
                        restart_rules: [],
                    },
                ],
                claims: [],
                options: PodOptions {
                    ignore: false,
                    expected_exit_codes: [],
                },
            },
            deletion: Some(
                Deletion {
                    timestamp: Wall(
                        1795262430000000000,
                    ),
                    grace: 30s,
                },
            ),
            phase: Running,
            reason: None,
            disruption: Some(
                Disruption {
                    reason: "EvictionByEvictionAPI",
                    message: "Eviction API: evicting",
                },
            ),
            restarting: true,
            finalizers: [],
            has_sandbox: None,
            ready: None,
            containers: [
                ContainerStatus {
                    name: "app",
                    id: Some(
                        ContainerId(
                            "3f1c9b2a7d5e4f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8",
                        ),
                    ),
                    restarts: 2,
                    state: Terminated(
                        Ended {
                            id: Some(
                                ContainerId(
                                    "3f1c9b2a7d5e4f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8",
                                ),
                            ),
                            exit_code: 137,
                            reason: Some(
                                "Error",
                            ),
                        },
                    ),
                    last: Some(
                        Ended {
                            id: None,
                            exit_code: 1,
                            reason: None,
                        },
                    ),
                    stop_signal: Some(
                        "SIGUSR1",
                    ),
                },
            ],
        }
    "#]]
    .assert_debug_eq(&converted(pod));
}

/// A mirror pod as the kubelet creates it, with `change` made to its metadata.
fn mirror_pod(change: impl FnOnce(&mut Value)) -> Arc<PodIdentity> {
    let mut meta = json!({
        "name": "etcd-node-1", "namespace": "kube-system", "uid": "mirror-uid",
        "annotations": {
            "kubernetes.io/config.hash": HASH_OF_FILE,
            "kubernetes.io/config.mirror": HASH_OF_FILE,
            "kubernetes.io/config.source": "file",
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n", "controller": true}],
    });
    change(&mut meta);
    converted(json!({ "metadata": meta })).pod
}

const HASH_OF_FILE: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_mirror_pod_has_its_files_cgroups() {
    let mirror = mirror_pod(|_| {});
    assert!(mirror.is_static);
    assert_eq!((&*mirror.cgroup_uid.0, &*mirror.uid.0), (HASH_OF_FILE, "mirror-uid"));
    let from_url = mirror_pod(|meta| meta["annotations"]["kubernetes.io/config.source"] = json!("http"));
    assert_eq!(&*from_url.cgroup_uid.0, HASH_OF_FILE);
}

/// Any user may write the annotations on a pod: they must not name another pod's cgroups.
#[test]
fn annotations_alone_make_no_mirror_pod() {
    const VICTIM: &str = "8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b";
    let claims: [fn(&mut Value); 8] = [
        |meta| meta["ownerReferences"] = json!([]),
        |meta| meta["ownerReferences"][0]["name"] = json!("node-2"),
        |meta| meta["ownerReferences"][0]["kind"] = json!("ReplicaSet"),
        |meta| meta["ownerReferences"][0]["controller"] = json!(false),
        |meta| {
            let first = meta["ownerReferences"][0].clone();
            meta["ownerReferences"].as_array_mut().unwrap().push(first);
        },
        |meta| meta["annotations"]["kubernetes.io/config.source"] = json!("api"),
        |meta| meta["annotations"]["kubernetes.io/config.mirror"] = json!(VICTIM),
        |meta| meta["annotations"]["kubernetes.io/config.hash"] = json!(VICTIM),
    ];
    for (i, claim) in claims.into_iter().enumerate() {
        let pod = mirror_pod(claim);
        assert!(!pod.is_static && pod.cgroup_uid == pod.uid, "{i}");
    }
    let without = mirror_pod(|meta| {
        meta["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("kubernetes.io/config.mirror");
    });
    assert!(!without.is_static && without.cgroup_uid == without.uid);
    // A UID of the API server's form, with all the rest: the static pod of a manifest with a UID, or a claim. No key of another pod.
    let of_uid = mirror_pod(|meta| {
        for name in ["kubernetes.io/config.hash", "kubernetes.io/config.mirror"] {
            meta["annotations"][name] = json!(VICTIM);
        }
    });
    assert!(of_uid.is_static && of_uid.cgroup_uid == of_uid.uid);
}

#[test]
fn every_hook_and_its_port() {
    let hook = |pre_stop: Value| {
        let container =
            json!({"name": "app", "ports": [{"name": "web", "containerPort": 80}], "lifecycle": {"preStop": pre_stop}});
        with_spec(json!({ "containers": [container] })).spec.containers[0]
            .pre_stop
            .clone()
    };
    let http = |port| Some(PreStop::HttpGet { port });
    assert_eq!(hook(json!({"httpGet": {"port": 8080}})), http(Some(8080)));
    assert_eq!(hook(json!({"httpGet": {"port": "web"}})), http(Some(80)));
    assert_eq!(hook(json!({"httpGet": {"port": "admin"}})), http(None));
    assert_eq!(hook(json!({"httpGet": {"port": 70000}})), http(None));
    assert_eq!(
        hook(json!({"tcpSocket": {"port": "81"}})),
        Some(PreStop::TcpSocket { port: Some(81) })
    );
    assert_eq!(hook(json!({"sleep": {"seconds": 5}})), Some(PreStop::Sleep { seconds: 5 }));
    assert_eq!(hook(json!({"exec": {}})), Some(PreStop::Exec { program: String::new() }));
    assert_eq!(hook(json!({"somethingNew": {}})), None);
}

#[test]
fn values_of_a_newer_server_are_unknown_and_not_an_error() {
    let pod = converted(json!({
        "metadata": {"name": "cart-1", "namespace": "shop", "uid": "u-1"},
        "spec": {"restartPolicy": "Sometimes", "terminationGracePeriodSeconds": -1, "containers": [{"name": "app", "livenessProbe": {"new": {}}}]},
        "status": {"phase": "Hibernating", "reason": "", "podIPs": [{"ip": "not an address"}],
            "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": -1, "containerID": "new-runtime://abc", "state": {"hibernated": {}}}]},
    }));
    assert_eq!((pod.phase, pod.reason, pod.spec.grace), (Phase::Unknown, None, None));
    assert_eq!(pod.spec.restart_policy, RestartPolicy::Always);
    assert_eq!((pod.spec.ips.len(), pod.spec.containers[0].liveness.clone()), (0, None));
    let app = &pod.containers[0];
    assert_eq!(
        (app.id.clone(), app.restarts, app.state.clone()),
        (None, 0, ContainerState::Waiting { reason: None })
    );
    assert_eq!(
        converted(json!({"metadata": {"name": "a", "namespace": "b", "uid": "c"}})).phase,
        Phase::Unknown
    );
    assert!(uid(&parsed(json!({"metadata": {"name": "a", "namespace": "b"}}))).is_none());
}

#[test]
fn the_applications_service_is_named_by_opentelemetrys_rules() {
    let of = |labels: Value, annotations: Value, workload: Workload| {
        let pod = json!({
            "metadata": {"name": "cart-1", "namespace": "shop", "uid": "u", "labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": "app", "image": "cart:v3"}, {"name": "log", "image": "log:v9"}]},
        });
        let service = identity(&parsed(pod), "node-1", workload).unwrap().service;
        format!("{} {:?} {:?}", service.name, service.namespace, service.version)
    };
    let annotated = json!({"resource.opentelemetry.io/service.name": "paid\u{202e}", "resource.opentelemetry.io/service.namespace": "eu", "resource.opentelemetry.io/service.version": "7"});
    let labels = json!({"app.kubernetes.io/instance": "cart-eu", "app.kubernetes.io/name": "cart-name", "app.kubernetes.io/version": "v8"});
    let custom = |through| Workload {
        kind: "Rollout".into(),
        through,
        ..workload()
    };
    let replica_set = Some(("ReplicaSet".to_owned(), "cart-7d9".to_owned(), None));
    let all = [
        of(labels.clone(), annotated, workload()),
        of(labels, json!({}), workload()),
        of(
            json!({"app.kubernetes.io/name": "cart-name"}),
            json!({"resource.opentelemetry.io/service.name": ""}),
            workload(),
        ),
        of(json!({}), json!({}), workload()),
        of(json!({}), json!({}), custom(replica_set)),
        of(json!({}), json!({}), custom(None)),
    ];
    expect![[r#"
        paid\u{202e} Some("eu") Some("7")
        cart-eu Some("shop") Some("v8")
        cart-name Some("shop") Some("v3")
        cart Some("shop") Some("v3")
        cart-7d9 Some("shop") Some("v3")
        cart-1 Some("shop") Some("v3")"#]]
    .assert_eq(&all.join("\n"));
}

/// Two statuses of Kubernetes 1.36.
#[test]
fn the_condition_ready_of_a_kubelet() {
    let of = |status: &str| {
        let status: Value = serde_json::from_str(status).unwrap();
        converted(json!({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "status": status})).ready
    };
    let ready = |is_ready: bool, since: &str| {
        Some(Ready {
            is_ready,
            since: Wall::parse_rfc3339(since).unwrap(),
            last_start: None,
        })
    };
    const RUNS: &str = r#"{
        "observedGeneration": 1, "phase": "Running", "conditions": [
            {"type": "PodReadyToStartContainers", "observedGeneration": 1, "status": "True", "lastProbeTime": null,
             "lastTransitionTime": "2026-11-26T17:54:55Z"},
            {"type": "Initialized", "observedGeneration": 1, "status": "True", "lastProbeTime": null,
             "lastTransitionTime": "2026-11-26T17:54:46Z"},
            {"type": "Ready", "observedGeneration": 1, "status": "True", "lastProbeTime": null,
             "lastTransitionTime": "2026-11-26T17:55:13Z"},
            {"type": "ContainersReady", "observedGeneration": 1, "status": "True", "lastProbeTime": null,
             "lastTransitionTime": "2026-11-26T17:55:13Z"},
            {"type": "PodScheduled", "observedGeneration": 1, "status": "True", "lastProbeTime": null,
             "lastTransitionTime": "2026-11-26T17:54:46Z"}
        ],
        "hostIP": "10.77.0.11", "podIP": "10.244.1.2", "startTime": "2026-11-26T17:54:46Z",
        "containerStatuses": [{
            "name": "agent", "state": {"running": {"startedAt": "2026-11-26T17:55:00Z"}}, "lastState": {}, "ready": true,
            "restartCount": 0, "image": "localhost/epitaph:test", "imageID": "", "started": true
        }]
    }"#;
    const STARTS: &str = r#"{
        "observedGeneration": 1, "phase": "Pending", "conditions": [
            {"type": "Ready", "observedGeneration": 1, "status": "False", "lastProbeTime": null,
             "lastTransitionTime": "2026-11-26T17:55:58Z", "reason": "ContainersNotReady",
             "message": "containers with unready status: [app]"}
        ],
        "hostIP": "10.77.0.12", "startTime": "2026-11-26T17:55:58Z",
        "containerStatuses": [{
            "name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "ready": false,
            "restartCount": 0, "image": "localhost/victim:test", "imageID": "", "started": false
        }]
    }"#;
    assert_eq!(of(RUNS), ready(true, "2026-11-26T17:55:13Z"));
    assert_eq!(of(STARTS), ready(false, "2026-11-26T17:55:58Z"));
}

/// As a kubelet reports a pod after a power loss: the first status of the boot, with the containers that the boot before left.
#[test]
fn when_a_pod_became_ready_or_not() {
    const STARTED: &str = "2026-11-21T09:00:02Z";
    let time = |text: &str| Wall::parse_rfc3339(text).unwrap();
    let lost = json!({"exitCode": 255, "reason": "Unknown", "startedAt": STARTED, "finishedAt": "2026-11-21T12:00:41Z"});
    let of = |change: &dyn Fn(&mut Value)| {
        let mut pod = json!({
            "metadata": {"name": "cart-7d9-x2x", "namespace": "shop", "uid": "9a6b", "creationTimestamp": "2026-11-21T09:00:00Z"},
            "spec": {"containers": [{"name": "app"}, {"name": "log"}]},
            "status": {
                "phase": "Running", "qosClass": "BestEffort", "startTime": "2026-11-21T09:00:00Z",
                "conditions": [
                    {"type": "PodReadyToStartContainers", "status": "False", "lastProbeTime": null,
                     "lastTransitionTime": "2026-11-21T12:00:41Z"},
                    {"type": "Initialized", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-21T09:00:00Z"},
                    {"type": "Ready", "status": "False", "lastProbeTime": null, "lastTransitionTime": "2026-11-21T12:00:41Z",
                     "reason": "ContainersNotReady", "message": "containers with unready status: [app log]"},
                    {"type": "ContainersReady", "status": "False", "lastProbeTime": null,
                     "lastTransitionTime": "2026-11-21T12:00:41Z"},
                ],
                "containerStatuses": [
                    {"name": "app", "image": "a", "imageID": "", "ready": false, "restartCount": 1,
                     "state": {"running": {"startedAt": "2026-11-21T12:00:44Z"}}, "lastState": {"terminated": lost}},
                    {"name": "log", "image": "a", "imageID": "", "ready": false, "restartCount": 0,
                     "state": {"terminated": lost}, "lastState": {}},
                ],
            },
        });
        change(&mut pod["status"]);
        converted(pod).ready
    };
    let ready = |is_ready: bool, since: &str, last_start: Option<&str>| {
        Some(Ready {
            is_ready,
            since: time(since),
            last_start: last_start.map(time),
        })
    };
    const SINCE: &str = "2026-11-21T12:00:41Z";
    assert_eq!(of(&|_| {}), ready(false, SINCE, Some(STARTED)));
    // A container that started in this boot, before the pod was not ready: the other one did not.
    let again = json!({"terminated": {"exitCode": 1, "startedAt": "2026-11-21T12:00:30Z"}});
    let one = |status: &mut Value| status["containerStatuses"][0]["lastState"] = again.clone();
    assert_eq!(of(&one), ready(false, SINCE, Some(STARTED)));
    let both = |status: &mut Value| {
        one(status);
        status["containerStatuses"][1]["state"] = again.clone();
    };
    assert_eq!(of(&both), ready(false, SINCE, Some("2026-11-21T12:00:30Z")));
    // The kubelet had reported nothing before.
    let late = |status: &mut Value| status["startTime"] = json!("2026-11-21T12:00:41Z");
    assert_eq!(of(&late), ready(false, SINCE, Some(SINCE)));
    let is_ready = |status: &mut Value| status["conditions"][2]["status"] = json!("True");
    assert_eq!(of(&is_ready), ready(true, SINCE, None));

    let unreported = |status: &mut Value| status["startTime"] = Value::Null;
    let unstarted = |status: &mut Value| {
        status["containerStatuses"] = json!([{
            "name": "app", "image": "a", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-11-21T12:00:44Z"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null}},
        }]);
    };
    for change in [&unreported as &dyn Fn(&mut Value), &unstarted] {
        assert_eq!(of(change), ready(false, SINCE, None));
    }
    let timeless = |status: &mut Value| status["conditions"][2]["lastTransitionTime"] = Value::Null;
    let unknown = |status: &mut Value| status["conditions"][2]["status"] = json!("Unknown");
    let unconditioned = |status: &mut Value| status["conditions"] = Value::Null;
    for change in [&timeless as &dyn Fn(&mut Value), &unknown, &unconditioned] {
        assert_eq!(of(change), None);
    }
}
