//! preStop hooks.

use std::time::Duration;

use serde_json::json;

use super::manifest::{exec, pre_stop, victim_with};
use super::{CLEAN, Expected, Story, deleted, one};

pub const STORIES: &[Story] = &[
    deleted(
        "prestop-within",
        "the hook takes 2 s of a grace period of 12 s",
        |name| vec![victim_with(name, 12, &["handle", "0"], pre_stop(exec(&["hook", "2", "0"])))],
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            lasts: &[("preStop", Duration::from_secs(2))],
            ..CLEAN
        },
    ),
    deleted(
        "prestop-fails",
        "the hook exits with 7 at once",
        |name| vec![victim_with(name, 8, &["handle", "0"], pre_stop(exec(&["hook", "0", "7"])))],
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["preStop", "7"],
            ..one("prestop-failed", &[("app", "prestop-failed")])
        },
    ),
    deleted(
        "prestop-hangs",
        "the hook never finishes; the server would have stopped at once",
        |name| vec![victim_with(name, 5, &["handle", "0"], pre_stop(exec(&["hook", "600", "0"])))],
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["preStop", "grace"],
            remedy: &["preStop"],
            ..one("prestop-overran", &[("app", "prestop-overran")])
        },
    ),
    deleted(
        "prestop-overruns",
        "the hook uses up the grace period, and the server needs more than the 2 s that the kubelet then allows",
        |name| {
            vec![victim_with(
                name,
                20,
                &["handle-for", "20", "0"],
                pre_stop(exec(&["hook", "600", "0"])),
            )]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["preStop", "SIGKILL"],
            remedy: &["preStop"],
            ..one("prestop-overran", &[("app", "prestop-overran")])
        },
    ),
    deleted(
        "prestop-late",
        "grace period 20 s, preStop 15 s: on a machine that starts hooks slowly a few seconds are left; the server needs one",
        |name| {
            vec![victim_with(
                name,
                20,
                &["handle-for", "1", "0"],
                pre_stop(exec(&["hook", "15", "0"])),
            )]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            lasts: &[
                ("preStop", Duration::from_secs(15)),
                ("SIGTERM → exit", Duration::from_secs(1)),
            ],
            sentence: &["SIGTERM", "preStop", "of the grace period of 20 s"],
            ..CLEAN
        },
    ),
    deleted(
        "prestop-leaves-the-minimum",
        "grace period 10 s, preStop 9 s: the kubelet leaves the server two seconds, or less on a slow machine; the server needs one",
        |name| {
            vec![victim_with(
                name,
                10,
                &["handle-for", "1", "0"],
                pre_stop(exec(&["hook", "9", "0"])),
            )]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["SIGTERM", "preStop", "the grace period of 10 s"],
            lasts: &[("SIGTERM → exit", Duration::from_secs(1))],
            advice: &["grace-longer"],
            ..one("clean|prestop-overran", &[("app", "clean|prestop-overran")])
        },
    ),
    deleted(
        "prestop-stops-the-server",
        "the hook itself stops the server, as `nginx -s quit` does",
        |name| {
            vec![victim_with(
                name,
                12,
                &["handle", "0"],
                pre_stop(json!({"exec": {"command": ["sh", "-c", "kill -QUIT 1; sleep 2"]}})),
            )]
        },
        Expected {
            spans: &["preStop"],
            sentence: &["SIGQUIT"],
            ..CLEAN
        },
    ),
    deleted(
        "prestop-sleep",
        "the sleep action, 2 s",
        |name| {
            vec![victim_with(
                name,
                12,
                &["handle", "0"],
                pre_stop(json!({"sleep": {"seconds": 2}})),
            )]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            lasts: &[("preStop", Duration::from_secs(2))],
            ..CLEAN
        },
    ),
    deleted(
        "prestop-http",
        "an HTTP hook that the server answers",
        |name| {
            let hook = pre_stop(json!({"httpGet": {"path": "/", "port": 8080}}));
            vec![victim_with(name, 12, &["http", "close-and-drain", "0.0.0.0:8080"], hook)]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            ..CLEAN
        },
    ),
    deleted(
        "prestop-http-refused",
        "an HTTP hook to a port without a listener",
        |name| {
            let hook = pre_stop(json!({"httpGet": {"path": "/", "port": 8081}}));
            vec![victim_with(name, 8, &["handle", "0"], hook)]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["preStop"],
            ..one("prestop-failed", &[("app", "prestop-failed")])
        },
    ),
    deleted(
        "prestop-tcp",
        "a tcpSocket hook, which the kubelet does not run",
        |name| {
            let hook = pre_stop(json!({"tcpSocket": {"port": 8080}}));
            vec![victim_with(name, 8, &["handle", "0"], hook)]
        },
        Expected {
            spans: &["preStop", "SIGTERM → exit"],
            sentence: &["preStop"],
            ..one("prestop-failed", &[("app", "prestop-failed")])
        },
    ),
];
