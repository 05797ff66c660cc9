//! Pods of Debian's own programs: inits, and servers with the stop signal that their documentation names.

use serde_json::{Value, json};

use super::manifest::{merge, pod};
use super::{CLEAN, Expected, Story, deleted};
use crate::cluster::images::PROGRAMS;

/// One container, `app`.
fn program(name: &str, grace: u32, command: &[&str], more: Value) -> Value {
    let mut app = json!({"name": "app", "image": PROGRAMS, "imagePullPolicy": "Never", "command": command});
    merge(&mut app, more);
    pod(name, json!({"terminationGracePeriodSeconds": grace, "containers": [app]}))
}

/// Ready once it accepts connections.
fn server(name: &str, command: &[&str], port: u16, stop_signal: Option<&str>) -> Vec<Value> {
    let mut pod = program(
        name,
        10,
        command,
        json!({"readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1}}),
    );
    if let Some(signal) = stop_signal {
        pod["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": signal});
        pod["spec"]["os"] = json!({"name": "linux"});
    }
    vec![pod]
}

const DEFAULT_ACTION: Expected = Expected {
    verdict: "default-action",
    containers: &[("app", "default-action")],
    sentence: &["`tini` forwarded SIGTERM to `victim`, which has no SIGTERM handler"],
    remedy: &["handler in `victim`"],
    ..CLEAN
};

const TINI_IDLE: &[&str] = &["/usr/bin/tini", "-s", "--", "/victim", "idle"];

pub const STORIES: &[Story] = &[
    deleted(
        "tini-default-action",
        "the program below tini has no handler",
        |name| vec![program(name, 8, TINI_IDLE, json!({}))],
        DEFAULT_ACTION,
    ),
    deleted(
        "tini-in-a-shared-pid-namespace",
        "the same with shareProcessNamespace: tini is the first process of its container, and not PID 1",
        |name| {
            let mut pod = program(name, 8, TINI_IDLE, json!({}));
            pod["spec"]["shareProcessNamespace"] = json!(true);
            vec![pod]
        },
        DEFAULT_ACTION,
    ),
    deleted(
        "dumb-init-ignored",
        "the program below dumb-init ignores SIGTERM",
        |name| {
            let command = ["/usr/bin/dumb-init", "--", "/victim", "ignore"];
            vec![program(name, 4, &command, json!({}))]
        },
        Expected {
            verdict: "ignored-stop-signal",
            containers: &[("app", "ignored-stop-signal")],
            spans: &[],
            sentence: &["`dumb-init` forwarded SIGTERM to `victim`, which ignores SIGTERM", "SIGKILL"],
            ..CLEAN
        },
    ),
    deleted(
        "nginx-quit",
        "nginx, with SIGQUIT by lifecycle.stopSignal: graceful shutdown",
        |name| {
            server(
                name,
                &["/usr/sbin/nginx", "-c", "/etc/nginx.conf", "-e", "stderr"],
                8080,
                Some("SIGQUIT"),
            )
        },
        Expected {
            spans: &["SIGQUIT → exit"],
            sentence: &["SIGQUIT"],
            ..CLEAN
        },
    ),
    deleted(
        "haproxy-usr1",
        "HAProxy, with SIGUSR1 by lifecycle.stopSignal: soft stop",
        |name| {
            server(
                name,
                &["/usr/sbin/haproxy", "-W", "-db", "-f", "/etc/haproxy.cfg"],
                8080,
                Some("SIGUSR1"),
            )
        },
        Expected {
            spans: &["SIGUSR1 → exit"],
            sentence: &["SIGUSR1"],
            ..CLEAN
        },
    ),
    deleted(
        "redis-term",
        "Redis, with SIGTERM: shutdown",
        |name| {
            let command = [
                "/usr/bin/redis-server",
                "--dir",
                "/tmp",
                "--save",
                "",
                "--protected-mode",
                "no",
            ];
            server(name, &command, 6379, None)
        },
        CLEAN,
    ),
];
