//! The program as a process, without an API server: help, usage, and a cluster that is not there.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-epitaph"))
        .args(args)
        .env_clear()
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn help_names_commands_and_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    for part in [
        "kubectl epitaph",
        "list",
        "why",
        "node",
        "rollout",
        "watch",
        "doctor",
        "--context",
        "Exit codes: 0 done",
    ] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
    assert!(!help.contains("__complete"), "{help}");
    let rollout = text(&run(&["rollout", "--help"]).stdout);
    for part in ["--revision", "--wait", "--fail-on", "lost", "markdown"] {
        assert!(rollout.contains(part), "{part} is not in {rollout}");
    }
}

/// As kubectl: any failure is 1.
#[test]
fn wrong_usage_and_no_cluster_are_failures() {
    for args in [
        &[][..],
        &["unknown"],
        &["why"],
        &["rollout"],
        &["list", "--since", "90"],
        &["rollout", "deployment/web", "--timeout", "1m"],
    ] {
        let ran = run(args);
        assert_eq!(ran.status.code(), Some(1), "{args:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{args:?}: {ran:?}");
    }
    for args in [
        &["list"][..],
        &["list", "--kubeconfig", "/does/not/exist"],
        &["list", "--context", "far"],
    ] {
        let ran = run(args);
        assert_eq!(ran.status.code(), Some(1), "{args:?}");
        let err = text(&ran.stderr);
        assert!(err.starts_with("error: ") && err.contains("\nremedy: "), "{args:?}: {err}");
    }
}

/// Colours, a second sequence of a terminal, and text that runs backwards.
const FORGED: &str = " \u{1b}[31m \u{9b}2J \u{202e}";

/// What an API server answers, by the path and query of the request: for the output of the program. The requests themselves meet a real
/// server in `tests/tests/epitaphs`.
fn answer(target: &str) -> Value {
    let query = target
        .replace("%3D", "=")
        .replace("%2C", ",")
        .replace("%28", "(")
        .replace("%29", ")");
    let has = |part: &str| query.contains(part);
    let list =
        |items: Vec<Value>| json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
    let epitaph = |pod: &str, verdict: &str, unclean: bool| {
        json!({
            "apiVersion": "epitaph.dev/v1alpha1", "kind": "Epitaph",
            "metadata": {"name": pod, "namespace": "shop", "resourceVersion": "2"},
            "report": {"terminated": "Pod", "pod": {"name": pod, "uid": pod}, "verdict": verdict, "unclean": unclean, "node": "node-1",
                "owner": {"kind": "Deployment", "name": "web", "revision": "one"}, "connections": {"lost": 0},
                "sentence": format!("the pod {pod} terminated{FORGED}"), "remedy": format!("change it{FORGED}"),
                "times": {"exited": "2026-01-02T03:04:05Z"}},
        })
    };
    let set = |number: u64, hash: &str, created: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {
                "name": format!("web-{hash}"), "labels": {"pod-template-hash": hash}, "creationTimestamp": created,
                "annotations": {"deployment.kubernetes.io/revision": number.to_string()}, "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w"},
                ],
            },
        })
    };
    match () {
        () if has("/version") => {
            json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
        }
        () if has("/deployments/web") => json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "uid": "w"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": []}}},
            "status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
        }),
        () if has("/replicasets") => list(vec![
            set(1, "one", "2026-01-01T00:00:00Z"),
            set(2, "two", "2026-01-02T03:04:00Z"),
        ]),
        () if has("/nodeepitaphs") => list(vec![json!({
            "apiVersion": "epitaph.dev/v1alpha1", "kind": "NodeEpitaph", "metadata": {"name": "node-1.1"},
            "report": {"event": "Shutdown", "node": "node-1", "verdict": "graceful", "sentence": format!("the node shut down{FORGED}")},
        })]),
        () if has("watch=") => json!({"type": "ADDED", "object": epitaph("cart-1", "ignored-stop-signal", true)}),
        () if has("/epitaphs") && has("unclean=true") => list(vec![epitaph("cart-1", "ignored-stop-signal", true)]),
        () if has("/epitaphs") && has("verdict+in+(unknown,undecided-connections,clean-exit)") => list(vec![
            epitaph("cart-2", "undecided-connections", false),
            epitaph("cart-3", "undecided-connections", false),
            epitaph("cart-4", "clean-exit", false),
        ]),
        () if has("/epitaphs") => list(vec![
            epitaph("cart-1", "ignored-stop-signal", true),
            epitaph("cart-2", "undecided-connections", false),
        ]),
        () => list(Vec::new()),
    }
}

/// Status and body of an answer to a path and query.
type Respond = Arc<dyn Fn(&str) -> (u16, Value) + Send + Sync>;

fn serve(stream: TcpStream, respond: &Respond) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let (status, body) = respond(first.split(' ').nth(1).unwrap_or_default());
        let body = body.to_string() + "\n";
        let head = format!(
            "HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        reader.get_mut().write_all((head + &body).as_bytes())?;
    }
}

/// A kubeconfig of a server with [`answer`].
fn kubeconfig(name: &str) -> PathBuf {
    kubeconfig_of(name, Arc::new(|target| (200, answer(target))))
}

fn kubeconfig_of(name: &str, respond: Respond) -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let respond = respond.clone();
            std::thread::spawn(move || serve(stream, &respond));
        }
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    });
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.kubeconfig"));
    std::fs::write(&file, config.to_string()).expect("the kubeconfig");
    file
}

/// `rollout` prints as the others do, by `output::print`; a rollout to print is in `tests/tests/epitaphs`.
#[test]
fn a_full_disk_is_an_error_of_every_command_that_prints() {
    let kubeconfig = kubeconfig("a_full_disk");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    for args in [
        &["list"][..],
        &["list", "-o", "wide"],
        &["list", "-o", "json"],
        &["list", "-o", "yaml"],
        &["list", "-o", "name"],
        &["why", "cart-1"],
        &["why", "cart-1", "-o", "markdown"],
        &["why", "cart-1", "-o", "json"],
        &["node", "node-1"],
        &["watch"],
        &["doctor"],
        &["doctor", "-o", "json"],
        &["__complete", "why", ""],
        &["--help"],
        &["list", "--help"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let ran = Command::new(env!("CARGO_BIN_EXE_kubectl-epitaph"))
            .args(args)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(full)
            .output()
            .expect("the program starts");
        let err = text(&ran.stderr);
        assert!(
            ran.status.code() == Some(1) && err.contains("cannot write to standard output"),
            "{args:?}: {ran:?}"
        );
    }
}

/// Whoever may write an object may write any text in it.
#[test]
fn text_of_an_object_is_nothing_that_a_terminal_obeys() {
    let kubeconfig = kubeconfig("forged");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let check = |args: &[&str], shown: &str| {
        // Markdown has an entity for the bracket.
        assert!(shown.contains("31m"), "{args:?} shows the text: {shown}");
        let obeyed = shown.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
        assert_eq!(obeyed, None, "{args:?}: {shown:?}");
    };
    for args in [
        &["list", "-o", "wide"][..],
        &["list", "-o", "json"],
        &["list", "-o", "yaml"],
        &["why", "cart-1"],
        &["why", "cart-1", "-o", "wide"],
        &["why", "cart-1", "-o", "markdown"],
        &["why", "cart-1", "-o", "yaml"],
        &["node", "node-1"],
        &["node", "node-1", "-o", "yaml"],
        &["rollout", "deployment/web"],
        &["rollout", "deployment/web", "-o", "markdown"],
        &["rollout", "deployment/web", "-o", "json"],
        &["rollout", "deployment/web", "-o", "yaml"],
    ] {
        let ran = run(&[&["--kubeconfig", kubeconfig], args].concat());
        assert_eq!(ran.status.code(), Some(0), "{args:?}: {ran:?}");
        check(args, &text(&ran.stdout));
    }
    for output in ["text", "json", "yaml"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-epitaph"))
            .args(["--kubeconfig", kubeconfig, "watch", "-o", output])
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (to, shown) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| to.send(line)));
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.contains("31m")) {
            lines.push(shown.recv_timeout(Duration::from_secs(120)).expect("the text of the object"));
        }
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        check(&["watch", "-o", output], &lines.join("\n"));
    }
}

/// etcd elects a leader while a pipeline waits.
#[test]
fn a_request_that_fails_for_a_while_does_not_end_the_wait() {
    let failure = |code: u16, message: &str| {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "", "code": code});
        (code, status)
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    // The first look, and the read after the wait.
    let kubeconfig = kubeconfig_of(
        "fails_for_a_while",
        Arc::new(move |target| match target.contains("/deployments/web") {
            true if [0, 2].contains(&count.fetch_add(1, Ordering::Relaxed)) => failure(500, "etcdserver: leader changed"),
            _ => (200, answer(target)),
        }),
    );
    let wait = [
        "rollout",
        "deployment/web",
        "--wait",
        "--settle",
        "0",
        "--timeout",
        "60",
        "--kubeconfig",
    ];
    let ran = run(&[&wait[..], &[kubeconfig.to_str().expect("UTF-8")]].concat());
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(text(&ran.stderr).contains("etcdserver: leader changed"), "{ran:?}");
    assert!(text(&ran.stdout).contains("what the rollout to revision 2 cost"), "{ran:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    // A user without the right is told at once.
    let kubeconfig = kubeconfig_of("forbidden", Arc::new(move |_| failure(403, "no")));
    let ran = run(&[&wait[..], &[kubeconfig.to_str().expect("UTF-8")]].concat());
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
}

/// As `epitaph list --unclean`.
#[test]
fn a_list_of_unclean_terminations_counts_what_it_leaves_out() {
    let kubeconfig = kubeconfig("left_out");
    let args = ["--kubeconfig", kubeconfig.to_str().expect("UTF-8"), "list"];
    let listed = |more: &[&str]| {
        let ran = run(&[&args, more].concat());
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        (text(&ran.stdout), text(&ran.stderr))
    };
    let (out, err) = listed(&["--unclean", "--no-headers"]);
    assert!(out.lines().count() == 1 && out.starts_with("cart-1"), "{out}");
    assert_eq!(
        err,
        "not shown: 2 terminations of this time have the verdict undecided-connections and may have cut requests off; 1 termination of \
         this time has the verdict clean-exit and may have lost requests: what clients saw is unknown; give `-l \
         epitaph.dev/verdict=undecided-connections` or `-l epitaph.dev/verdict=clean-exit` instead of `--unclean`\n"
    );
    // Of the time that is asked for, and for people only.
    let (_, err) = listed(&["--unclean", "--since", "1h"]);
    assert_eq!(err, "No terminations found in shop namespace.\n");
    assert_eq!(listed(&["--unclean", "-o", "name"]).1, "");
    assert_eq!(listed(&[]).1, "");
}

#[test]
fn names_are_kubectl_s() {
    let kubeconfig = kubeconfig("names");
    for (args, name) in [
        (&["node", "node-1"][..], "node/node-1\n"),
        (&["rollout", "deploy/web"], "deployment.apps/web\n"),
    ] {
        let given = ["-o", "name", "--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
        let ran = run(&[args, &given].concat());
        assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(0), name.to_owned()), "{ran:?}");
    }
}

/// Kubernetes replaces none of its pods by itself: a wait would end with its time.
#[test]
fn a_rollout_that_waits_for_somebody_is_not_waited_for() {
    let kubeconfig = kubeconfig_of(
        "on_delete",
        Arc::new(|target| match target.contains("/statefulsets/db") {
            true => (
                200,
                json!({
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "d"},
                    "spec": {"replicas": 1, "updateStrategy": {"type": "OnDelete"}},
                }),
            ),
            false => (200, answer(target)),
        }),
    );
    let wait = [
        "rollout",
        "sts/db",
        "--wait",
        "--kubeconfig",
        kubeconfig.to_str().expect("UTF-8"),
    ];
    let ran = run(&wait);
    let err = text(&ran.stderr);
    assert!(
        ran.status.code() == Some(1) && err.contains("OnDelete") && err.contains("remedy: "),
        "{ran:?}"
    );
}

/// A shell shows nothing, rather than an error within the line.
#[test]
fn a_completion_without_a_cluster_is_empty() {
    let ran = run(&["__complete", "why", ""]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout)),
        (Some(0), ":4\n".to_owned()),
        "{ran:?}"
    );
}

/// docs/kubectl.md names every command and flag.
#[test]
fn the_page_has_the_commands() {
    use clap::CommandFactory as _;
    let page = include_str!("../../../docs/kubectl.md");
    for command in kubectl_epitaph::cli::Cli::command()
        .get_subcommands()
        .filter(|of| !of.is_hide_set())
    {
        assert!(
            page.contains(&format!("kubectl epitaph {}", command.get_name())),
            "{}",
            command.get_name()
        );
        for flag in command.get_arguments().filter_map(|arg| arg.get_long()) {
            assert!(
                page.contains(&format!("--{flag}")),
                "--{flag} of {} is not in docs/kubectl.md",
                command.get_name()
            );
        }
    }
}
