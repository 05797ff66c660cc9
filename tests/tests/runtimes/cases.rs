//! The containers, how each of them ends, and what is expected of the report.

use super::runtime::Runtime;

/// Commands of the shell: `$c` is the container's name; [`Runtime::functions`] has the rest.
pub struct Case {
    pub name: &'static str,
    pub run: &'static str,
    pub end: &'static str,
    /// The container runs before the agent.
    pub is_older: bool,
    seen: [Option<Seen>; 4],
}

/// Verdict, cause, and the role of the party that sent the first of stop signal and SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub verdict: &'static str,
    pub cause: &'static str,
    pub by: Option<&'static str>,
}

impl Case {
    /// None: not played there.
    pub fn on(&self, runtime: Runtime) -> Option<Seen> {
        self.seen[runtime as usize]
    }
}

const fn seen(verdict: &'static str, cause: &'static str, by: &'static str) -> Option<Seen> {
    let by = Some(by);
    Some(Seen { verdict, cause, by })
}

const fn alone(verdict: &'static str, cause: &'static str) -> Option<Seen> {
    let by = None;
    Some(Seen { verdict, cause, by })
}

/// Docker's daemon is a runtime; Podman's commands come from a shell.
const fn stopped(verdict: &'static str) -> [Option<Seen>; 4] {
    [
        seen(verdict, "stopped", "runtime"),
        seen(verdict, "external", "other"),
        None,
        None,
    ]
}

const fn crio(verdict: &'static str) -> [Option<Seen>; 4] {
    [None, None, None, seen(verdict, "stopped", "runtime")]
}

pub const CASES: &[Case] = &[
    Case {
        name: "older",
        run: "r run --detach --name first shop:1.4 && r rename first $c",
        end: "r stop $c",
        is_older: true,
        seen: stopped("clean"),
    },
    Case {
        name: "checkout",
        run: "r run --detach --name $c shop:1.4",
        end: "r stop $c",
        is_older: false,
        seen: [
            seen("clean", "stopped", "runtime"),
            seen("clean", "external", "other"),
            seen("clean", "external", "other"),
            None,
        ],
    },
    Case {
        name: "ignores",
        run: "r run --detach --name $c shop:1.4 ignores",
        end: "r stop --time 2 $c",
        is_older: false,
        seen: stopped("ignored-stop-signal"),
    },
    Case {
        name: "no-handler",
        run: "r run --detach --name $c shop:1.4 waits",
        end: "r stop --time 2 $c",
        is_older: false,
        seen: stopped("ignored-stop-signal"),
    },
    Case {
        name: "init",
        run: "r run --detach --init --name $c shop:1.4 waits",
        end: "r stop $c",
        is_older: false,
        seen: stopped("default-action"),
    },
    Case {
        name: "stop-signal",
        run: "r run --detach --stop-signal SIGQUIT --name $c shop:1.4",
        end: "r stop $c",
        is_older: false,
        seen: stopped("clean"),
    },
    Case {
        // The runtime's files go with the container.
        name: "removed",
        run: "r run --detach --rm --name $c shop:1.4",
        end: "r stop $c",
        is_older: false,
        seen: stopped("clean"),
    },
    Case {
        name: "killed",
        run: "r run --detach --name $c shop:1.4",
        end: "r kill $c",
        is_older: false,
        seen: [
            seen("force-killed", "stopped", "runtime"),
            seen("killed-by-other", "external", "other"),
            None,
            None,
        ],
    },
    Case {
        name: "fails",
        run: "r run --detach --name $c shop:1.4 sh -c 'exit 3'",
        end: "r wait $c",
        is_older: false,
        seen: [alone("nonzero-exit", "crash"), alone("nonzero-exit", "crash"), None, None],
    },
    Case {
        name: "memory",
        run: "r run --detach --memory 32m --memory-swap 32m --name $c shop:1.4 dd if=/dev/zero of=/dev/null bs=256M",
        end: "r wait $c",
        is_older: false,
        seen: [
            seen("oom-killed", "oom", "kernel"),
            seen("oom-killed", "oom", "kernel"),
            None,
            None,
        ],
    },
    Case {
        name: "pod",
        run: "r pod create --name of-$c && r run --detach --pod of-$c --name $c shop:1.4",
        end: "r pod stop --time 2 of-$c",
        is_older: false,
        seen: [None, seen("clean", "external", "other"), None, None],
    },
    Case {
        // The runtime's commands run in the unit, around the container.
        name: "quadlet",
        run: "printf '[Container]\\nImage=localhost/shop:1.4\\nContainerName=%s\\n' $c >/etc/containers/systemd/$c.container && \
              systemctl daemon-reload && systemctl start $c",
        end: "systemctl stop $c",
        is_older: false,
        seen: [None, seen("clean", "stopped", "runtime"), None, None],
    },
    Case {
        name: "older-of-crio",
        run: "start",
        end: "r stop $(id)",
        is_older: true,
        seen: crio("clean"),
    },
    Case {
        // The runtime's files go with the container.
        name: "pod-of-crio",
        run: "start",
        end: "r stop $(id) && remove",
        is_older: false,
        seen: crio("clean"),
    },
    Case {
        // One pid namespace for the pod: the pod has an infra container, which CRI-O kills.
        name: "infra-of-crio",
        run: "pid=0; start",
        end: "r stop $(id) && remove",
        is_older: false,
        seen: crio("clean"),
    },
    Case {
        name: "ignores-on-crio",
        run: "start '\"ignores\"'",
        end: "r stop --timeout 2 $(id)",
        is_older: false,
        seen: crio("ignored-stop-signal"),
    },
    Case {
        name: "stop-signal-of-crio",
        run: "image=shop:quit; start",
        end: "r stop --timeout 2 $(id)",
        is_older: false,
        seen: crio("clean"),
    },
    Case {
        // Before any status names it.
        name: "fails-on-crio",
        run: "start '\"sh\", \"-c\", \"exit 3\"'",
        end: "while runs; do sleep 0.1; done",
        is_older: false,
        seen: [None, None, None, alone("nonzero-exit", "crash")],
    },
    Case {
        name: "memory-on-crio",
        run: "memory=33554432; start '\"dd\", \"if=/dev/zero\", \"of=/dev/null\", \"bs=256M\"'",
        end: "while runs; do sleep 0.1; done",
        is_older: false,
        seen: [None, None, None, seen("oom-killed", "oom", "kernel")],
    },
];
