//! The alert rules: by promtool on made-up series, and for real: Prometheus scrapes an agent, Alertmanager has the alerts. The
//! dashboard's queries: by promtool.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use epitaph::clock;
use epitaph::sink::metrics::{Metrics, alerts, push};
use epitaph_core::fixtures::pods;
use epitaph_core::report::Report;
use epitaph_tests::agent::program as agent_program;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::machine::is_root;
use epitaph_tests::monitoring::{Alert, Alertmanager, Prometheus, program};
use epitaph_tests::play::Players;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::timeout::{holds, until};
use opentelemetry_sdk::Resource;
use serde_json::{Value, json};

#[test]
fn the_rules_fire_on_their_cases_and_on_nothing_else() -> anyhow::Result<()> {
    let Some(promtool) = program("EPITAPH_PROMTOOL") else {
        skip("the_rules_fire_on_their_cases_and_on_nothing_else", NOT_BUILT);
        return Ok(());
    };
    for (args, file) in [
        (&["check", "rules", "--lint-fatal"][..], "deploy/alerts/epitaph.rules.yaml"),
        (&["test", "rules"][..], "tests/alerts/rules.test.yaml"),
    ] {
        let done = Command::new(&promtool).args(args).arg(root().join(file)).output()?;
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        ensure!(done.status.success(), "promtool {args:?} {file}: {out}{err}");
    }
    Ok(())
}

/// Agents have the same `instance` by the page's job as by the chart's ServiceMonitor: the alerts name it.
#[test]
fn the_pages_job_is_a_configuration_and_relabels_as_the_chart_does() -> anyhow::Result<()> {
    let Some(promtool) = program("EPITAPH_PROMTOOL") else {
        skip("the_pages_job_is_a_configuration_and_relabels_as_the_chart_does", NOT_BUILT);
        return Ok(());
    };
    let page = fs::read_to_string(root().join("deploy/alerts/README.md"))?;
    let (_, job) = page.split_once("```yaml\nscrape_configs:").context("no job on the page")?;
    let (job, _) = job.split_once("```").context("the job has no end")?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), format!("scrape_configs:{job}"))?;
    let done = Command::new(&promtool).args(["check", "config"]).arg(file.path()).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let monitor = root().join("deploy/helm/epitaph/templates/monitoring/servicemonitor.yaml");
    let monitor = fs::read_to_string(monitor)?
        .replace("sourceLabels", "source_labels")
        .replace("targetLabel", "target_label");
    let rules = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| line.contains("target_label"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    ensure!(!rules(job).is_empty());
    assert_eq!(rules(job), rules(&monitor));
    Ok(())
}

/// promtool checks rules: each query of the dashboard is one, with a value in place of each of Grafana's variables.
#[test]
fn prometheus_parses_the_dashboards_queries() -> anyhow::Result<()> {
    let Some(promtool) = program("EPITAPH_PROMTOOL") else {
        skip("prometheus_parses_the_dashboards_queries", NOT_BUILT);
        return Ok(());
    };
    let dashboard: Value = serde_json::from_slice(&fs::read(root().join("deploy/alerts/epitaph.dashboard.json"))?)?;
    let mut rules = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().context("no expr")?;
            let expr = expr
                .replace("$__rate_interval", "5m")
                .replace("$__range", "6h")
                .replace("$cluster", ".*")
                .replace("$namespace", ".*")
                .replace("$workload", ".*")
                .replace("$node", ".*");
            ensure!(!expr.contains('$'), "{expr}");
            rules.push(json!({"record": format!("query_{}", rules.len()), "expr": expr}));
        }
    }
    ensure!(!rules.is_empty(), "no queries");
    let check = |rules: &[Value]| -> anyhow::Result<(bool, String)> {
        let mut file = tempfile::NamedTempFile::new()?;
        // JSON is YAML.
        write!(file, "{}", json!({"groups": [{"name": "dashboard", "rules": rules}]}))?;
        let done = Command::new(&promtool).args(["check", "rules"]).arg(file.path()).output()?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        Ok((done.status.success(), text))
    };
    let (is_valid, text) = check(&rules)?;
    ensure!(is_valid && text.contains(&format!("{} rules found", rules.len())), "{text}");
    rules.push(json!({"record": "wrong", "expr": "sum by (verdict (epitaph_terminations_total)"}));
    ensure!(!check(&rules)?.0, "promtool accepts everything");
    Ok(())
}

/// Demo stories under an agent, and a pod of a workload that had no series before: both alerts reach Alertmanager and resolve. Then the
/// agent is killed.
#[test]
fn alerts_fire_for_real_and_resolve() -> anyhow::Result<()> {
    let test = "alerts_fire_for_real_and_resolve";
    let (Some(prometheus), Some(alertmanager)) = (program("EPITAPH_PROMETHEUS"), program("EPITAPH_ALERTMANAGER")) else {
        skip(test, NOT_BUILT);
        return Ok(());
    };
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let epitaph = Epitaph::copied(&agent_program(&binaries()), directory.path())?;
    let mut agent = Service::start(&epitaph, directory.path(), &[])?;
    let cluster = metrics()?;
    let pods_port = serve(cluster.clone())?;
    let alertmanager = Alertmanager::start(&alertmanager, directory.path())?;
    let rules = alerts::rule_file(&alerts::groups(1));
    let targets = [agent.port, pods_port];
    let prometheus = Prometheus::start(&prometheus, directory.path(), &rules, &targets, alertmanager.port)?;
    let on = format!("127.0.0.1:{}", agent.port);
    let crashed = |alert: &Alert| {
        alert.label("alertname") == "EpitaphHostUncleanTermination"
            && (alert.label("verdict"), alert.label("runtime")) == ("crashed", "containerd")
            && alert.label("instance") == on
    };
    let ignored = |alert: &Alert| {
        (alert.label("alertname"), alert.label("verdict")) == ("EpitaphStopSignalIgnored", "ignored-stop-signal")
    };

    // A clean termination, scraped and evaluated: no alert about a workload or about a container of this runtime.
    play("completed")?;
    agent.until(
        "epitaph_terminations_total",
        &[r#"runtime="containerd""#, r#"unclean="false""#],
        1.0,
    )?;
    until("the first scrapes", || {
        let is_empty = prometheus.query("epitaph_terminations_total")?.is_empty();
        Ok(holds(!is_empty, || "no series".to_owned()))
    })?;
    // An alert's first evaluation, its notification, and one more.
    prometheus.evaluates(3)?;
    let early = alertmanager.alerts()?;
    let is_ours = |alert: &Alert| alert.label("runtime") == "containerd" || !alert.label("epitaph_workload_name").is_empty();
    let early: Vec<_> = early.iter().filter(|alert| is_ours(alert)).collect();
    ensure!(early.is_empty(), "{early:?}");

    play("abort")?;
    cluster.report(
        clock::wall_offset().wall(clock::now()),
        &Report::PodTerminated(Box::new(pods::pod(1))),
    );
    // Scrape, evaluation and delivery take a second each, and an alert is there for twenty: what any look found counts.
    let wanted = [
        "cut-connections",
        "proxy-rejected",
        "refused-connections",
        "reset-connections",
    ];
    let (mut crash, mut workload, mut lost) = (false, None, BTreeSet::new());
    until("the alerts of the crash, of the workload, and of its connections", || {
        for alert in alertmanager.alerts()? {
            crash |= crashed(&alert);
            if alert.label("alertname") == "EpitaphConnectionsLost" {
                lost.insert(alert.label("verdict").to_owned());
            }
            if ignored(&alert) {
                workload = Some(alert);
            }
        }
        // Those of the pod, beside its verdict. Alertmanager gets each rule's on their own.
        let is_so = crash && workload.is_some() && lost.iter().eq(&wanted);
        Ok(holds(is_so, || {
            format!("crash: {crash}, workload: {}, connections: {lost:?}", workload.is_some())
        }))
    })
    .with_context(|| prometheus.log())?;
    let alert = workload.context("it was found")?;
    assert_eq!(alert.annotation("summary"), "Deployment shop/cart: ignored-stop-signal");
    let description = alert.annotation("description");
    ensure!(
        description.ends_with("epitaph explain EpitaphStopSignalIgnored"),
        "{description}"
    );
    let has = |what: &str, alert: &dyn Fn(&Alert) -> bool, wanted: bool| {
        until(what, || {
            let is_there = alertmanager.alerts()?.iter().any(alert);
            Ok(holds(is_there == wanted, || format!("it is {is_there}")))
        })
    };
    has("the end of the crash's alert", &crashed, false)?;
    has("the end of the workload's alert", &ignored, false)?;

    agent.kill()?;
    let down = |alert: &Alert| alert.label("alertname") == "EpitaphAgentDown" && alert.label("instance") == on;
    has("the alert of the agent", &down, true)
}

const NOT_BUILT: &str =
    "cargo xtask test builds Prometheus and names it in EPITAPH_PROMETHEUS, EPITAPH_PROMTOOL, EPITAPH_ALERTMANAGER";

/// The metrics of an agent on Kubernetes, without the agent.
fn metrics() -> anyhow::Result<Arc<Metrics>> {
    Ok(Arc::new(Metrics::new::<push::Push>(
        Resource::builder_empty().build(),
        None,
        100,
    )?))
}

/// `/metrics` for as long as the test runs.
fn serve(metrics: Arc<Metrics>) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let body = metrics.text().expect("the encoder has no error to report");
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    Ok(port)
}

fn play(name: &str) -> anyhow::Result<()> {
    let players = Players::new(&binaries())?;
    let role = players.cast(stories().find(|story| story.name == name).context("a story of that name")?)?;
    let differs = players.play(&role)?.differs(&role);
    ensure!(differs.is_empty(), "{name}: {}", differs.join("\n"));
    Ok(())
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}
