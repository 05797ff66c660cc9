//! Epitaphs as a real kube-apiserver takes and shows them: the agent's sink with the rights of its manifest, the policy of the chart,
//! people who may read one namespace, `kubectl epitaph`, what the observer counts of a rollout, the templates of pipelines that read it, and
//! definitions of other versions.

mod forged;
mod kubectl;
mod nodes;
mod pipelines;
mod rollouts;
mod stage;
mod versions;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::clock;
use epitaph::rights;
use epitaph::sink::epitaphs::{EpitaphOutcome, KeepSettings, KeepStats, keep};
use epitaph::source::pods::{Access, connect};
use epitaph_core::observe::kept::{KeepLimits, RemovalReason};
use epitaph_core::render::resource;
use epitaph_core::report::Report;
use epitaph_tests::cluster::deploy::{NAMESPACE, as_observer};
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::sys::wall_seconds;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};

use stage::{Api, CRD, TIMEOUT, observation, offer, patient, pod, reported, requests, restart, writing};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_epitaph_is_written_once_read_by_its_namespace_and_outlives_schemas() -> anyhow::Result<()> {
    let Some(mut api) = Api::new("an_epitaph_is_written_once_read_by_its_namespace_and_outlives_schemas")? else {
        return Ok(());
    };
    let agent = api.agent("node-1")?;
    let (sink, worker) = writing(agent.clone()).await?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    offer(&sink, &pod("bank", "till-1", "node-1"));
    reported(&sink, EpitaphOutcome::Written, 2)?;
    let written = api.epitaphs("shop")?;
    ensure!(written.len() == 1, "{written:?}");
    let report = &written[0]["report"];
    for (field, value) in [("verdict", "ignored-stop-signal"), ("node", "node-1"), ("terminated", "Pod")] {
        assert_eq!(report[field], value, "{report}");
    }
    assert_eq!(report["owner"]["revision"], "7d9f8b6c5", "{report}");
    // Its size is what the agent sent, a list of two managed fields, and the server's own.
    let stored = serde_json::to_string(&written[0])?.len();
    ensure!(stored < resource::MOST_BYTES + 1024, "{stored} bytes");

    // The agent was started again, and reports the termination once more: not one write.
    worker.shutdown(TIMEOUT).await;
    let (sink, worker) = writing(agent.clone()).await?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    reported(&sink, EpitaphOutcome::Known, 1)?;
    assert_eq!(api.epitaphs("shop")?, written);

    // A pod that lives on has one as well, with the last of its container terminations.
    for n in 1..=12 {
        offer(&sink, &restart("shop", "web-0", n));
        reported(&sink, EpitaphOutcome::Written, n)?;
    }
    let living = api.epitaphs("shop")?;
    let living = living
        .iter()
        .find(|of| of["report"]["terminated"] == "Container")
        .context("web-0's")?;
    assert_eq!(living["report"]["containers"].as_array().map(Vec::len), Some(10), "{living}");

    // People: by Kubernetes' own role, in their namespace only, for reading only.
    let (alice, owner) = (api.user("alice")?, api.user("owner")?);
    let reader = api
        .plane
        .kubectl_as(&api.plane.kubeconfig_of_service_account("shop", "reader")?);
    until("Kubernetes' roles to have the right", || {
        Ok(alice
            .run(&["-n", "shop", "get", "epitaphs"])
            .map_err(|error| format!("{error:#}")))
    })?;
    for user in [&alice, &reader, &owner] {
        let table = user.run(&["-n", "shop", "get", "epitaphs"])?;
        let header: Vec<&str> = table.lines().next().context("no header")?.split_whitespace().collect();
        assert_eq!(header, ["NAME", "VERDICT", "LOST", "TOOK", "EXIT", "AGE"]);
        let row = table.lines().find(|row| row.starts_with("cart-1.")).context("no row")?;
        let row: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            row[1..5],
            ["ignored-stop-signal", "18", "32.7s", "ignored-stop-signal"],
            "{table}"
        );
        let wide = user.run(&["-n", "shop", "get", "epitaphs", "-o", "wide"])?;
        ensure!(wide.contains("SENTENCE") && wide.contains("no SIGTERM handler"), "{wide}");
        let described = user.run(&["-n", "shop", "describe", "epitaphs"])?;
        ensure!(
            described.contains("Remedy:") && described.contains("Stop Signal:"),
            "{described}"
        );
        let labelled = [
            "-n",
            "shop",
            "get",
            "epitaphs",
            "-l",
            "epitaph.dev/unclean=true,epitaph.dev/workload=cart",
            "-o",
            "name",
        ];
        ensure!(!user.run(&labelled)?.is_empty(), "no labels");
        for other in ["bank", NAMESPACE] {
            let refused = user
                .run(&["-n", other, "get", "epitaphs"])
                .expect_err("another namespace")
                .to_string();
            ensure!(refused.contains("cannot list resource \"epitaphs\""), "{refused}");
        }
        let refused = user
            .run(&["-n", "shop", "delete", "epitaphs", "--all"])
            .expect_err("for reading only")
            .to_string();
        ensure!(refused.contains("cannot delete"), "{refused}");
    }

    // The API server is away for a while: written later.
    api.plane.stop_api_server()?;
    offer(&sink, &pod("shop", "cart-2", "node-1"));
    api.plane.start_api_server()?;
    reported(&sink, EpitaphOutcome::Written, 13)?;

    // A schema that is older than the program: the field that it does not have is left out, and comes with the upgrade.
    let older = r#"[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/report/properties/took"}]"#;
    api.kubectl.run(&["patch", CRD, "--type=json", "-p", older])?;
    let took = |name: &str| -> anyhow::Result<Value> {
        let all = api.epitaphs("shop")?;
        let found = all.iter().find(|of| of["report"]["pod"]["name"] == name);
        Ok(found.with_context(|| format!("no Epitaph of {name}"))?["report"]["took"].clone())
    };
    let mut written = 13;
    let mut until_it_is = |is_there: bool| {
        until("the schema", || {
            written += 1;
            let name = format!("old-{written}");
            offer(&sink, &pod("shop", &name, "node-1"));
            reported(&sink, EpitaphOutcome::Written, written)?;
            let took = took(&name)?;
            Ok(holds(took.is_string() == is_there, || took.to_string()))
        })
    };
    until_it_is(false)?;
    api.install()?;
    until_it_is(true)?;

    // Without the kind: counted, and nothing else fails.
    worker.shutdown(TIMEOUT).await;
    api.kubectl.run(&["delete", CRD, "--timeout=180s"])?;
    let (sink, worker) = patient(agent, Duration::ZERO).await?;
    offer(&sink, &pod("shop", "cart-3", "node-1"));
    reported(&sink, EpitaphOutcome::KindAbsent, 1)?;
    worker.shutdown(TIMEOUT).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nobody_but_the_agent_of_the_node_writes_its_epitaphs() -> anyhow::Result<()> {
    let Some(api) = Api::new("nobody_but_the_agent_of_the_node_writes_its_epitaphs")? else {
        return Ok(());
    };
    if !api.has_policies()? {
        return Ok(());
    }
    let (first, second) = (api.agent("node-1")?, api.agent("node-2")?);
    let unbound = api.with_token("unbound", &api.plane.token(NAMESPACE, "epitaph-agent")?)?;
    let (sink, worker) = writing(first).await?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    reported(&sink, EpitaphOutcome::Written, 1)?;
    let written = api.epitaphs("shop")?;
    let name = written[0]["metadata"]["name"].as_str().context("no name")?.to_owned();

    // An administrator, who may do everything by RBAC; the policy takes effect a moment after it was made.
    let forge = |kubectl: &Kubectl, patch: &Value| {
        kubectl.run(&[
            "-n",
            "shop",
            "patch",
            "epitaph",
            &name,
            "--type=merge",
            "-p",
            &patch.to_string(),
        ])
    };
    let cleaned = json!({"report": {"verdict": "clean"}});
    until("the policy", || {
        Ok(match forge(&api.kubectl, &cleaned) {
            Err(error) if format!("{error:#}").contains("only the agents of Epitaph write Epitaphs") => Ok(()),
            other => Err(format!("{other:?}")),
        })
    })?;
    // Until then an attempt may have been admitted.
    let written = api.epitaphs("shop")?;

    // A node that is taken over has the token of its agent: it forges another node's, changes one, moves one to itself, or lies in the
    // label.
    let forger = api.plane.kubectl_as(&second);
    let made = |name: &str, node: &str, label: &str| {
        json!({
            "apiVersion": "epitaph.dev/v1alpha1", "kind": "Epitaph",
            "metadata": {"name": name, "namespace": "shop", "labels": {"epitaph.dev/node": label}},
            "report": {"node": node, "verdict": "clean", "pod": {"name": "cart-9", "uid": "u"}},
        })
    };
    let create =
        |kubectl: &Kubectl, object: &Value| kubectl.run_with(&["create", "--validate=false", "-f", "-"], &object.to_string());
    // kubectl patch would read first.
    let over = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"];
    let overwrite = |object: &Value| forger.run_with(&over, &object.to_string());
    for (attempt, result, why) in [
        (
            "forges",
            create(&forger, &made("forged", "node-1", "node-1")),
            "of its own node only",
        ),
        ("changes", overwrite(&made(&name, "node-1", "node-1")), "of its own node only"),
        ("moves", overwrite(&made(&name, "node-2", "node-2")), "of another node"),
        (
            "lies",
            create(&forger, &made("lie", "node-2", "node-1")),
            "the label epitaph.dev/node",
        ),
        (
            "has a token without a node",
            create(&api.plane.kubectl_as(&unbound), &made("unbound", "node-2", "node-2")),
            "of its own node only",
        ),
        (
            "writes something large",
            create(&forger, &{
                let mut large = made("large", "node-2", "node-2");
                large["report"]["sentence"] = "x".repeat(4096).into();
                large
            }),
            "Too long",
        ),
        (
            "holds one, and its namespace, for ever",
            create(&forger, &{
                let mut held = made("held", "node-2", "node-2");
                held["metadata"]["finalizers"] = json!(["attacker.example/held"]);
                held
            }),
            "must not have a finalizer",
        ),
        (
            "hides something large in an owner",
            create(&forger, &{
                let mut owned = made("owned", "node-2", "node-2");
                let name = "x".repeat(100_000);
                owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u"}]);
                owned
            }),
            "must not have an owner",
        ),
        (
            "hides something large",
            create(&forger, &{
                let mut large = made("annotated", "node-2", "node-2");
                large["metadata"]["annotations"] = json!({"attacker.example/large": "x".repeat(100_000)});
                large
            }),
            "at most 8 annotations of at most 512 characters each",
        ),
    ] {
        let refused = format!("{:#}", result.expect_err(attempt));
        ensure!(refused.contains(why), "{attempt}: {refused}");
    }
    // What the policy cannot compare is the pod: the name of another node's Epitaph can be taken, and its agent says so.
    let taken = pod("shop", "cart-7", "node-1");
    let name_of_taken = resource::of(&taken, &observation()).context("an Epitaph")?.name();
    create(&forger, &made(&name_of_taken, "node-2", "node-2"))?;
    offer(&sink, &taken);
    reported(&sink, EpitaphOutcome::Foreign, 1)?;
    api.kubectl.run(&["-n", "shop", "delete", "epitaph", &name_of_taken])?;
    // An empty patch is no way to read another node's Epitaph.
    let nothing =
        json!({"apiVersion": "epitaph.dev/v1alpha1", "kind": "Epitaph", "metadata": {"name": name, "namespace": "shop"}});
    let refused = format!("{:#}", overwrite(&nothing).expect_err("another node's"));
    ensure!(refused.contains("of its own node only"), "{refused}");
    // What it may do: about its own node.
    create(&forger, &made("own", "node-2", "node-2"))?;
    // It has no right to read, and none to delete.
    for attempt in [
        &["get", "epitaph", &name][..],
        &["get", "epitaphs"],
        &["get", "epitaphs", "--watch-only", "--request-timeout=60s"],
        &["delete", "epitaph", &name],
    ] {
        let refused = forger.run(&[&["-n", "shop"], attempt].concat());
        let refused = refused.expect_err("create and patch only").to_string();
        ensure!(refused.contains("is forbidden: User"), "{attempt:?}: {refused}");
    }
    // Nor has whoever administers the namespace a right to write.
    let owner = api.user("owner")?;
    for attempt in [
        &["label", "epitaph", &name, "mine=true"][..],
        &[
            "patch",
            "epitaph",
            &name,
            "--type=merge",
            "-p",
            r#"{"report":{"verdict":"clean"}}"#,
        ],
        &["delete", "epitaph", &name],
    ] {
        let refused = owner.run(&[&["-n", "shop"], attempt].concat());
        let refused = refused.expect_err("for reading only").to_string();
        ensure!(refused.contains("is forbidden: User"), "{attempt:?}: {refused}");
    }
    // Kubernetes' garbage collector removes its own finalizer: nothing else is written.
    api.kubectl.run(&[
        "-n",
        "shop",
        "delete",
        "epitaph",
        "own",
        "--cascade=foreground",
        "--timeout=180s",
    ])?;
    let (second_sink, second_worker) = writing(second).await?;
    offer(&second_sink, &pod("shop", "cart-2", "node-1"));
    reported(&second_sink, EpitaphOutcome::Refused, 1)?;
    second_worker.shutdown(TIMEOUT).await;
    assert_eq!(api.epitaphs("shop")?[0], written[0]);

    // Text of a process is data: markup and control characters are escaped before they are sent.
    let mut hostile = pod("bank", "till-1", "node-1");
    if let Report::PodTerminated(pod) = &mut hostile {
        pod.verdict.sentence = "\u{1b}]0;x\u{7}<script>alert(1)</script>\u{202e}".repeat(200);
    }
    offer(&sink, &hostile);
    reported(&sink, EpitaphOutcome::Written, 2)?;
    let shown = api.kubectl.run(&["-n", "bank", "get", "epitaphs", "-o", "wide"])?;
    ensure!(
        shown.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
        "{shown:?}"
    );

    // By who is taken over they are not: kubectl and its plugin escape them.
    let mut forged = written[0].clone();
    forged["metadata"] = json!({"name": "forged-text", "namespace": "shop", "labels": {"epitaph.dev/node": "node-2"}});
    forged["report"]["node"] = "node-2".into();
    forged["report"]["pod"]["name"] = "cart-9".into();
    forged["report"]["sentence"] = "\u{1b}]0;x\u{7}<script>alert(1)</script>\u{202e}".into();
    forged["report"]["remedy"] = "# [x](javascript:alert(1)) `\n```\n<img src=x onerror=alert(1)>".into();
    create(&forger, &forged)?;
    let admin = kubectl::Plugin::new(&api, &api.plane.admin())?;
    let shown = [
        admin.out(&["-n", "shop", "list", "-o", "wide"])?,
        admin.out(&["-n", "shop", "why", "cart-9"])?,
        admin.out(&["-n", "shop", "why", "cart-9", "-o", "markdown"])?,
    ];
    for text in &shown {
        ensure!(
            text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}') && text.contains("alert(1)"),
            "{text:?}"
        );
    }
    ensure!(!shown[2].contains("<script>") && !shown[2].contains("<img"), "{}", shown[2]);

    // A namespace with Epitaphs can go: the policy is about writing.
    api.kubectl.run(&["delete", "namespace", "bank", "--timeout=180s"])?;
    offer(&sink, &pod("bank", "till-2", "node-1"));
    reported(&sink, EpitaphOutcome::NamespaceGone, 1)?;
    worker.shutdown(TIMEOUT).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_observer_keeps_unclean_ones_longer_and_no_more_than_the_bounds() -> anyhow::Result<()> {
    let Some(api) = Api::new("the_observer_keeps_unclean_ones_longer_and_no_more_than_the_bounds")? else {
        return Ok(());
    };
    // The policy is about writing, also for the observer.
    api.has_policies()?;
    let (sink, worker) = writing(api.agent("node-1")?).await?;
    for namespace in ["shop", "bank"] {
        for n in 0..6 {
            let mut report = pod(namespace, &format!("cart-{n}"), "node-1");
            if let Report::PodTerminated(pod) = &mut report {
                pod.verdict.unclean = n < 3;
                // Clean ones of a workload's last revisions are kept as long as unclean ones.
                Arc::make_mut(&mut pod.facts.pod).revision = None;
            }
            offer(&sink, &report);
        }
    }
    reported(&sink, EpitaphOutcome::Written, 12)?;
    worker.shutdown(TIMEOUT).await;

    let observer = connect(&Access::Kubeconfig(as_observer(&api.plane)?)).await?;
    let left = |limits: KeepLimits, expected: [u64; 2]| {
        let stats = Arc::new(KeepStats::default());
        let settings = KeepSettings {
            limits,
            every: Duration::from_millis(100),
            pause: Duration::ZERO,
            ..KeepSettings::default()
        };
        let wall = || clock::wall_offset().wall(clock::now());
        let keeper = keep(observer.clone(), settings, stats.clone(), wall, &rights::OBSERVER_EPITAPHS);
        let swept = tokio::task::block_in_place(|| {
            until("the removal", || {
                let count = |namespace: &str, unclean: bool| -> anyhow::Result<u64> {
                    let all = api.epitaphs(namespace)?;
                    Ok(all.iter().filter(|of| of["report"]["unclean"] == unclean).count() as u64)
                };
                let unclean = count("shop", true)? + count("bank", true)?;
                let clean = count("shop", false)? + count("bank", false)?;
                Ok(holds([unclean, clean] == expected, || {
                    format!("{unclean} unclean, {clean} clean")
                }))
            })
        });
        drop(keeper);
        swept.map(|()| stats)
    };
    // A list in pages, a right to delete, and conditions, on the real API.
    let four = KeepLimits {
        per_namespace: 4,
        ..KeepLimits::default()
    };
    let stats = left(four, [6, 2])?;
    assert_eq!(stats.removed(RemovalReason::Namespace), 4);
    let seven = KeepLimits {
        cluster: 7,
        ..KeepLimits::default()
    };
    assert_eq!(left(seven, [6, 1])?.removed(RemovalReason::Cluster), 1);
    let clean_goes = KeepLimits {
        clean: Duration::ZERO,
        ..KeepLimits::default()
    };
    assert_eq!(left(clean_goes, [6, 0])?.removed(RemovalReason::Age), 1);

    // All clean ones of the fourth last revision, by one request. Its unclean one stays.
    let (sink, worker) = writing(api.agent("node-2")?).await?;
    let mut offered = 0;
    for revision in ["fourth-last", "third-last", "second-last", "last"] {
        for n in 0..4 {
            let mut report = pod("shop", &format!("{revision}-{n}"), "node-2");
            if let Report::PodTerminated(pod) = &mut report {
                pod.verdict.unclean = n == 3;
                Arc::make_mut(&mut pod.facts.pod).revision = Some(revision.into());
            }
            offer(&sink, &report);
        }
        offered += 4;
        reported(&sink, EpitaphOutcome::Written, offered)?;
        // Which one was written later is known by whole seconds.
        let second = || wall_seconds() as u64;
        let last = second();
        until("the next second", || Ok(holds(second() > last, || last.to_string())))?;
    }
    worker.shutdown(TIMEOUT).await;
    let deletions = || -> anyhow::Result<[f64; 2]> {
        let of = |scope| requests(&api.kubectl, "DELETE", scope);
        Ok([of("resource")?, of("namespace")?])
    };
    let before = deletions()?;
    assert_eq!(left(clean_goes, [10, 9])?.removed(RemovalReason::Age), 3);
    let after = deletions()?;
    assert_eq!([after[0] - before[0], after[1] - before[1]], [0.0, 1.0]);
    Ok(())
}
