//! `kubectl epitaph` against a real API server: as a plugin of the real kubectl, with a user's own rights.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use epitaph::sink::epitaphs::{EpitaphOutcome, Sink};
use epitaph_core::ids::PodUid;
use epitaph_core::report::Report;
use epitaph_tests::cluster::credentials::write_private;
use epitaph_tests::timeout::{self, holds, until};
use serde_json::{Value, json};

use crate::stage::{Api, CRD, TIMEOUT, offer, pod, reported, writing};

/// What a run printed.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The program as one user runs it.
pub struct Plugin {
    directory: PathBuf,
    kubeconfig: PathBuf,
}

impl Plugin {
    pub fn new(api: &Api, kubeconfig: &Path) -> anyhow::Result<Plugin> {
        let directory = api.directory.path().join("plugins");
        fs::create_dir_all(&directory)?;
        let built = Path::new(env!("CARGO_BIN_EXE_victim")).with_file_name("kubectl-epitaph");
        ensure!(
            built.exists(),
            "{}: build it with cargo build -p kubectl-epitaph",
            built.display()
        );
        for name in ["kubectl-epitaph", "kubectl_complete-epitaph"] {
            let link = directory.join(name);
            if !link.exists() {
                symlink(&built, link)?;
            }
        }
        Ok(Plugin {
            directory,
            kubeconfig: kubeconfig.to_owned(),
        })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.directory.join(name));
        command.env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> anyhow::Result<Ran> {
        ran(self.command("kubectl-epitaph").args(args))
    }

    /// Standard output of a run that succeeds.
    pub fn out(&self, args: &[&str]) -> anyhow::Result<String> {
        let ran = self.run(args)?;
        ensure!(ran.code == Some(0), "{args:?}: {ran:?}");
        Ok(ran.out)
    }
}

fn ran(command: &mut Command) -> anyhow::Result<Ran> {
    let output = command.output().context("run kubectl-epitaph")?;
    Ok(Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

pub fn clean(mut report: Report) -> Report {
    if let Report::PodTerminated(pod) = &mut report {
        pod.verdict.unclean = false;
        pod.verdict.headline = "clean";
    }
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whoever_may_read_a_namespace_asks_with_kubectl() -> anyhow::Result<()> {
    let Some(api) = Api::new("whoever_may_read_a_namespace_asks_with_kubectl")? else {
        return Ok(());
    };
    let (sink, worker) = writing(api.agent("node-1")?).await?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    offer(&sink, &clean(pod("shop", "cart-2", "node-1")));
    offer(&sink, &pod("bank", "till-1", "node-1"));
    reported(&sink, EpitaphOutcome::Written, 3)?;

    api.user("alice")?;
    let file = api.directory.path().join("alice.kubeconfig");
    let alice = Plugin::new(&api, &file)?;
    until("Kubernetes' roles to have the right", || {
        let ran = alice.run(&["-n", "shop", "list"])?;
        Ok(holds(ran.code == Some(0), || format!("{ran:?}")))
    })?;

    // Lists: as kubectl prints them.
    let list = alice.out(&["list", "-n", "shop"])?;
    let header: Vec<&str> = list.lines().next().context("no header")?.split_whitespace().collect();
    assert_eq!(header, ["POD", "VERDICT", "LOST", "TOOK", "EXIT", "AGE"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    ensure!(!list.contains("till-1"), "{list}");
    let unclean = alice.out(&["-n", "shop", "list", "--unclean", "--no-headers"])?;
    let row: Vec<&str> = unclean.split_whitespace().collect();
    assert_eq!(
        row[..5],
        ["cart-1", "ignored-stop-signal", "18", "32.7s", "ignored-stop-signal"]
    );
    let wide = alice.out(&["list", "-n", "shop", "-o", "wide", "-l", "epitaph.dev/verdict=clean"])?;
    ensure!(
        wide.contains("node-1") && wide.contains("cart-2") && !wide.contains("cart-1"),
        "{wide}"
    );
    let none = alice.run(&["list", "-n", "shop", "--since", "1h"])?;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
    ensure!(none.err.contains("No terminations found in shop namespace."), "{none:?}");
    let by_kubectl = |args: &[&str]| api.kubectl.run(&[&["-n", "shop", "get", "epitaphs"], args].concat());
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(&alice.out(&["list", "-n", "shop", "-o", "name"])?),
        sorted(&by_kubectl(&["-o", "name"])?)
    );
    let json: Value = serde_json::from_str(&alice.out(&["list", "-n", "shop", "-o", "json"])?)?;
    let yaml: Value = serde_saphyr::from_str(&alice.out(&["list", "-n", "shop", "-o", "yaml"])?)?;
    assert_eq!(json, yaml);
    let wanted: Value = serde_json::from_str(&by_kubectl(&["-o", "json", "--sort-by=.report.pod.name"])?)?;
    assert_eq!(json["items"].as_array().map(Vec::len), Some(2));
    for item in wanted["items"].as_array().context("a list")? {
        ensure!(
            json["items"].as_array().context("a list")?.contains(item),
            "{item} is not in {json}"
        );
    }

    // Nobody else's.
    let refused = alice.run(&["list", "-A"])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    ensure!(
        refused.err.contains("forbidden") && refused.err.contains("remedy: ask for the role `view`"),
        "{refused:?}"
    );

    // Why: by name, its beginning, its workload, a selector.
    for what in [
        &["cart-1"][..],
        &["cart-1", "-o", "text"],
        &["shop/cart-1"],
        &["-l", "epitaph.dev/unclean=true"],
    ] {
        let text = alice.out(&[&["-n", "shop", "why"], what].concat())?;
        for part in [
            "pod shop/cart-1",
            "ignored-stop-signal  UNCLEAN",
            "deletion requested, grace",
            "SIGKILL",
            "14 refused",
        ] {
            ensure!(text.contains(part), "{what:?}: {part} is not in {text}");
        }
    }
    // As kubectl prints them, and as people type them.
    let named = by_kubectl(&["-o", "name"])?;
    let named = named.lines().next().context("a name")?;
    let short = named.rsplit('/').next().context("a name")?;
    for what in [
        &["cart"][..],
        &["deployment/cart"],
        &["deploy", "cart"],
        &["pod", "cart-1"],
        &["po/cart"],
        &[named],
        &[short],
    ] {
        let text = alice.out(&[&["-n", "shop", "why"], what].concat())?;
        ensure!(text.contains("pod shop/cart-"), "{what:?}: {text}");
    }
    // Another namespace's by its name, for those who may; for others it is not absent.
    let other = alice.run(&["-n", "shop", "why", "bank/till-1"])?;
    ensure!(
        other.code == Some(1)
            && other.err.contains("cannot list epitaphs in namespace `bank`")
            && other.err.contains("remedy: ask for the role `view`"),
        "{other:?}"
    );
    let workload = alice.run(&["-n", "shop", "why", "deployment/nobody"])?;
    ensure!(
        workload.code == Some(1)
            && workload
                .err
                .contains("no termination of `deployment/nobody` in shop namespace"),
        "{workload:?}"
    );
    // A word that is no kind we know may be a namespace: both are asked, and both are named.
    let neither = alice.run(&["-n", "shop", "why", "rollout/nobody"])?;
    ensure!(
        neither.code == Some(1)
            && neither
                .err
                .contains("no termination of `rollout/nobody` in shop namespace; as a namespace: cannot list"),
        "{neither:?}"
    );
    let admin = Plugin::new(&api, &api.plane.admin())?;
    let nowhere = admin.run(&["-n", "shop", "why", "rollout/nobody"])?;
    ensure!(
        nowhere.code == Some(1)
            && nowhere
                .err
                .contains("no termination of `rollout/nobody` in shop namespace and in rollout namespace"),
        "{nowhere:?}"
    );
    ensure!(admin.out(&["why", "bank/till-1"])?.contains("pod bank/till-1"));
    let object: Value = serde_json::from_str(&alice.out(&["-n", "shop", "why", "cart-1", "-o", "json"])?)?;
    assert_eq!(object["report"]["pod"]["name"], "cart-1");
    let unknown = alice.run(&["-n", "shop", "why", "nobody"])?;
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(1), ""));
    ensure!(
        unknown.err.contains("no termination of `nobody` in shop namespace"),
        "{unknown:?}"
    );

    // A node, with what alice may not read named; and with everything.
    let partly = alice.out(&["-n", "shop", "node", "node-1"])?;
    ensure!(
        partly.contains("Unknown: cannot") && partly.contains("that are kept: 2"),
        "{partly}"
    );
    assert_eq!(admin.out(&["node", "node-1", "-o", "name"])?, "node/node-1\n");
    let whole = admin.out(&["node", "node/node-1"])?;
    ensure!(whole.contains("that are kept: 3"), "{whole}");
    let nothing = admin.run(&["node", "node-9"])?;
    ensure!(
        nothing.code == Some(1) && nothing.err.contains("nothing is known of a node `node-9`"),
        "{nothing:?}"
    );

    // Doctor: the kind is served, and no agent runs.
    let doctor = admin.run(&["doctor", "-o", "json"])?;
    let findings: Value = serde_json::from_str(&doctor.out)?;
    let state = |check: &str| -> anyhow::Result<Value> {
        let all = findings["findings"].as_array().context("findings")?;
        Ok(all.iter().find(|of| of["check"] == check).with_context(|| check.to_owned())?["state"].clone())
    };
    assert_eq!((state("kind")?, state("reports")?), ("ok".into(), "ok".into()), "{findings}");
    assert_eq!((state("observer")?, doctor.code), ("failed".into(), Some(1)), "{findings}");

    // Completion, as kubectl asks for it.
    let complete = |words: &[&str]| ran(alice.command("kubectl_complete-epitaph").args(words)).map(|ran| ran.out);
    assert_eq!(complete(&["-n", "shop", "why", "cart-"])?, "cart-1\ncart-2\n:4\n");
    assert_eq!(complete(&["ro"])?, "rollout\n:4\n");

    by_the_real_kubectl(&api, &alice)?;
    by_an_exec_plugin(&api)?;
    watches(&api, &alice, |name| offer(&sink, &pod("shop", name, "node-1")))?;
    moved_and_gone(&api, &alice, &sink).await?;
    without_the_kind(&api, &admin)?;
    worker.shutdown(TIMEOUT).await;
    Ok(())
}

/// A pod of a StatefulSet that moved to another node is two terminations of one name; both are there when their nodes are gone. No agent
/// is asked: none runs here.
async fn moved_and_gone(api: &Api, alice: &Plugin, first: &Sink) -> anyhow::Result<()> {
    offer(first, &pod("shop", "db-0", "node-1"));
    reported(first, EpitaphOutcome::Written, 6)?;
    let (second, worker) = writing(api.agent("node-2")?).await?;
    let mut moved = clean(pod("shop", "db-0", "node-2"));
    if let Report::PodTerminated(pod) = &mut moved {
        let identity = Arc::make_mut(&mut pod.facts.pod);
        identity.uid = PodUid("uid-on-node-2".into());
        pod.facts.end.0 += 60_000_000_000;
    }
    offer(&second, &moved);
    reported(&second, EpitaphOutcome::Written, 1)?;
    worker.shutdown(TIMEOUT).await;
    api.kubectl.run(&["delete", "node", "node-1", "node-2"])?;
    let listed = alice.out(&["-n", "shop", "list", "-o", "wide", "--no-headers"])?;
    for node in ["node-1", "node-2"] {
        ensure!(
            listed.lines().any(|row| row.starts_with("db-0 ") && row.contains(node)),
            "{listed}"
        );
    }
    // The last one.
    let last: Value = serde_json::from_str(&alice.out(&["-n", "shop", "why", "db-0", "-o", "json"])?)?;
    assert_eq!(last["report"]["node"], "node-2", "{last}");
    Ok(())
}

/// kubectl finds the program in the PATH.
fn by_the_real_kubectl(api: &Api, alice: &Plugin) -> anyhow::Result<()> {
    let program = api.kubectl.command().get_program().to_owned();
    let listed = ran(Command::new(program)
        .args(["epitaph", "list", "-n", "shop", "--kubeconfig"])
        .arg(&alice.kubeconfig)
        .env("PATH", &alice.directory)
        .env_remove("KUBECONFIG"))?;
    ensure!(listed.code == Some(0) && listed.out.contains("cart-1"), "{listed:?}");
    Ok(())
}

/// A credential plugin, as clouds' kubeconfigs have them.
fn by_an_exec_plugin(api: &Api) -> anyhow::Result<()> {
    let token = api.plane.token("shop", "reader")?;
    let plugin = api.directory.path().join("credential");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    fs::write(&plugin, format!("#!/bin/sh\necho '{credential}'\n"))?;
    fs::set_permissions(&plugin, Permissions::from_mode(0o700))?;
    let mut config: Value = serde_json::from_str(&fs::read_to_string(api.with_token("exec", &token)?)?)?;
    config["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never",
    }});
    // Another context is the current one.
    config["contexts"][0]["name"] = "far".into();
    config["contexts"][0]["context"]["namespace"] = "shop".into();
    let file = api.directory.path().join("exec.kubeconfig");
    write_private(&file, config.to_string().as_bytes())?;
    let reader = Plugin::new(api, &file)?;
    let listed = reader.out(&["--context", "far", "list"])?;
    ensure!(listed.contains("cart-1"), "{listed}");
    let wrong = reader.run(&["list", "--context", "nowhere"])?;
    ensure!(
        wrong.code == Some(1) && wrong.err.contains("remedy: `kubectl config get-contexts`"),
        "{wrong:?}"
    );
    Ok(())
}

/// `new`: makes a termination of this pod.
fn watches(api: &Api, alice: &Plugin, new: impl Fn(&str)) -> anyhow::Result<()> {
    let mut child = alice
        .command("kubectl-epitaph")
        .args(["-n", "shop", "watch", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut announced = String::new();
    BufReader::new(child.stderr.take().context("its standard error")?).read_line(&mut announced)?;
    ensure!(announced.starts_with("watching"), "{announced}");
    let mut lines = BufReader::new(child.stdout.take().context("its standard output")?);
    let mut shown = || -> anyhow::Result<Value> {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    new("cart-3");
    let first = shown()?;
    // What was there before the begin is not shown.
    assert_eq!(first["report"]["pod"]["name"], "cart-3", "{first}");
    // What the observer adds to what is shown, and to what was there before, is no further termination.
    for epitaph in api.epitaphs("shop")? {
        let name = epitaph["metadata"]["name"].as_str().context("a name")?;
        let observed = json!({"observed": {"replacement": {"pod": "cart-9", "node": "node-2"}}}).to_string();
        api.kubectl
            .run(&["-n", "shop", "patch", "epitaph", name, "--type=merge", "-p", &observed])?;
    }
    new("cart-4");
    let second = shown()?;
    child.kill()?;
    child.wait()?;
    assert_eq!(second["report"]["pod"]["name"], "cart-4", "{second}");
    Ok(())
}

/// `new`: posts an Event.
fn shows_events(admin: &Plugin, new: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut child = admin
        .command("kubectl-epitaph")
        .args(["-n", "shop", "watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(child.stderr.take().context("its standard error")?);
    let out = BufReader::new(child.stdout.take().context("its standard output")?);
    let shown = (|| {
        loop {
            let (line, rest) = timeout::line(said)?;
            ensure!(!line.is_empty(), "it ended");
            if line.starts_with("watching") {
                break;
            }
            said = rest;
        }
        new()?;
        Ok(timeout::line(out)?.0)
    })();
    child.kill()?;
    child.wait()?;
    let line = shown?;
    ensure!(
        line.contains("pod/cart-9") && line.contains("SIGTERM reached PID 1"),
        "{line}"
    );
    Ok(())
}

/// Events are left, and what is missing is named.
fn without_the_kind(api: &Api, admin: &Plugin) -> anyhow::Result<()> {
    let post = |kind: &str, name: &str| {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.unclean"), "namespace": "shop"},
            "involvedObject": {"apiVersion": "v1", "kind": kind, "name": name, "namespace": "shop"},
            "reason": "UncleanTermination", "message": "SIGTERM reached PID 1", "type": "Warning", "action": "Terminate",
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingComponent": "epitaph.dev/agent", "reportingInstance": "node-1",
        });
        api.kubectl.run_with(&["create", "-f", "-"], &event.to_string())
    };
    post("Pod", "cart-1")?;
    api.kubectl.run(&["delete", CRD, "--timeout=180s"])?;
    let listed = admin.run(&["-n", "shop", "list"])?;
    ensure!(listed.code == Some(0), "{listed:?}");
    ensure!(
        listed.err.contains("this cluster has no kind Epitaph") && listed.err.contains("remedy: install Epitaph's chart"),
        "{listed:?}"
    );
    ensure!(
        listed.out.contains("pod/cart-1") && listed.out.contains("SIGTERM reached PID 1"),
        "{listed:?}"
    );
    let why = admin.run(&["-n", "shop", "why", "cart"])?;
    ensure!(why.code == Some(0) && why.out.contains("SIGTERM reached PID 1"), "{why:?}");
    // What is not of the time, or cannot be selected, is not shown.
    let recent = admin.run(&["-n", "shop", "list", "--since", "1s"])?;
    ensure!(recent.code == Some(0) && recent.out.is_empty(), "{recent:?}");
    for command in ["list", "why", "watch"] {
        let selected = admin.run(&["-n", "shop", command, "-l", "epitaph.dev/workload=web"])?;
        ensure!(
            selected.code == Some(1) && selected.out.is_empty() && selected.err.contains("no labels for -l to select by"),
            "{selected:?}"
        );
    }
    let elsewhere = admin.run(&["-n", "shop", "why", "bank/cart-1"])?;
    ensure!(elsewhere.code == Some(1) && elsewhere.out.is_empty(), "{elsewhere:?}");
    // Of a workload, and no answer to a pipeline.
    let none = admin.run(&["-n", "shop", "rollout", "deployment/idle"])?;
    ensure!(none.code == Some(1), "{none:?}");
    let workload = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "idle", "namespace": "shop"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "idle"}}, "template": {
            "metadata": {"labels": {"app": "idle"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}}},
    });
    api.kubectl.apply(&workload.to_string())?;
    post("Deployment", "idle")?;
    let rollout = admin.run(&["-n", "shop", "rollout", "deployment/idle"])?;
    ensure!(
        rollout.code == Some(1)
            && rollout.out.contains("deployment/idle")
            && !rollout.out.contains("cart-1")
            && rollout.err.contains("what the rollout cost is unknown"),
        "{rollout:?}"
    );
    let read = admin.run(&["-n", "shop", "rollout", "deployment/idle", "-o", "json"])?;
    ensure!(read.code == Some(1) && read.out.is_empty(), "{read:?}");
    let judged = admin.run(&["-n", "shop", "rollout", "deployment/idle", "--fail-on", "lost"])?;
    ensure!(
        judged.code == Some(1) && judged.out.is_empty() && judged.err.contains("remedy: install Epitaph's chart"),
        "{judged:?}"
    );
    shows_events(admin, || post("Pod", "cart-9").map(drop))?;
    let doctor = admin.run(&["doctor"])?;
    ensure!(
        doctor.code == Some(1)
            && doctor
                .out
                .contains("FAILED   kind: the API server does not know the kind Epitaph"),
        "{doctor:?}"
    );
    Ok(())
}
