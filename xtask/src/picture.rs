//! `cargo xtask picture`: the pictures of docs/images that show Epitaph's output in programs of others.

use std::{
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use pico_args::Arguments;

use crate::{agent, debian, done, http, jaeger, shell};

pub const FLAGS: &str = "jaeger --ui DIR | alerts | dashboard";

/// A real server under load, as the demo played it.
const PICTURED: &str = "tests/corpus/stories/load-close-and-drain.epitaph";
/// In Jaeger's own pages it opens the root span with its attributes, as a person does with two clicks.
const OF_JAEGER: &str = include_str!("picture/jaeger.html");
/// In Prometheus' own pages it leaves out what does not fire.
const OF_ALERTS: &str = include_str!("picture/alerts.html");
const RULES: &str = "epitaph.rules.yaml";
const HOST: &str = jaeger::HOST;
const PROMETHEUS: u16 = 19_090;
const TO_START: Duration = Duration::from_secs(60);
/// Of the made-up metrics, in seconds.
const HISTORY: u64 = 3 * 3600;
const STEP: u64 = 30;
/// Panels of the dashboard, and whether the picture has the graph or the table.
const PANELS: [(&str, bool); 3] = [
    ("Terminations by verdict", true),
    ("Advised preStop sleep and grace period", false),
    ("Nodes that would not shut down gracefully", false),
];
/// What Grafana would put there.
const VARIABLES: [(&str, &str); 5] = [
    ("$cluster", ".*"),
    ("$namespace", ".*"),
    ("$workload", ".*"),
    ("$node", ".*"),
    ("$__rate_interval", "4m"),
];

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let which: String = args.free_from_str().with_context(|| format!("which picture? {FLAGS}"))?;
    let picture = match which.as_str() {
        "jaeger" => of_jaeger(args)?,
        "alerts" => {
            done(args)?;
            of_alerts()?
        }
        "dashboard" => {
            done(args)?;
            of_dashboard()?
        }
        other => bail!("no picture `{other}`: {FLAGS}"),
    };
    println!("{}", picture.display());
    Ok(ExitCode::SUCCESS)
}

/// docs/images/jaeger.png: the trace of a recorded termination of a real server, in Jaeger's own pages.
fn of_jaeger(mut args: Arguments) -> Result<PathBuf> {
    let ui: PathBuf = args
        .value_from_os_str("--ui", |dir| Ok::<_, std::convert::Infallible>(dir.into()))
        .context("--ui DIR names the built pages of jaeger-ui: packages/jaeger-ui/build after `yarn install` and `yarn build` in its repository, of the release that belongs to Jaeger (v2.13.0)")?;
    done(args)?;
    browser()?;
    let epitaph = agent::build(false)?;
    let pages = emptied("jaeger-pages")?;
    shell::run_quietly(
        Command::new("cp").arg("-r").arg(ui.join(".")).arg(&pages),
        "copying Jaeger's pages",
    )?;
    let opens = pages.join("static/picture.html");
    fs::write(&opens, OF_JAEGER).with_context(|| format!("writing {}", opens.display()))?;
    let mut jaeger = jaeger::start(&jaeger::path()?, Some(&pages))?;
    let pictured = (|| {
        let trace = replayed(&epitaph)?;
        // The root span's attributes, and the other spans below.
        shot(
            "jaeger",
            (1280, 1030),
            &format!("http://{HOST}:{}/static/picture.html#{trace}", jaeger::QUERY),
        )
    })();
    ended(&mut jaeger)?;
    pictured
}

/// Sends the recorded termination to Jaeger; the id of its trace.
fn replayed(epitaph: &Path) -> Result<String> {
    let mut replay = Command::new(epitaph);
    replay
        .arg("replay")
        .arg(shell::root().join(PICTURED))
        .args(["--output", "json"]);
    replay.arg(format!("--otlp=http://{HOST}:{}", jaeger::OTLP_GRPC));
    let printed = shell::read(&mut replay)?;
    printed
        .split_once("\"trace_id\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(id, _)| id.to_owned())
        .with_context(|| format!("{PICTURED} has no trace: {printed}"))
}

/// docs/images/alerts.png: three alerts that fire, in Prometheus' own pages.
fn of_alerts() -> Result<PathBuf> {
    const FIRING: usize = 3;
    let now = now()?;
    let mut metrics = String::from("# TYPE epitaph_workload_unclean_timestamp_seconds gauge\n");
    for (kind, namespace, name, verdict, ago) in [
        ("Deployment", "shop", "checkout", "refused-connections", 60),
        ("Deployment", "shop", "cart", "ignored-stop-signal", 120),
        ("StatefulSet", "search", "index", "oom-killed", 210),
    ] {
        let at = now - ago;
        let labels = format!(
            "k8s_namespace_name=\"{namespace}\",epitaph_workload_kind=\"{kind}\",epitaph_workload_name=\"{name}\",verdict=\"{verdict}\""
        );
        for time in (at..=now).step_by(15) {
            let _ = writeln!(metrics, "epitaph_workload_unclean_timestamp_seconds{{{labels}}} {at} {time}");
        }
    }
    let mut prometheus = Prometheus::start(metrics)?;
    let pictured = (|| {
        let fires = || {
            let alerts = http::get(PROMETHEUS, "/api/v1/alerts")
                .map(|(_, body)| body)
                .unwrap_or_default();
            Ok((alerts.matches("\"state\":\"firing\"").count() == FIRING).then_some(()))
        };
        shell::found_within(TO_START, fires)?.with_context(|| format!("{FIRING} alerts do not fire"))?;
        shot(
            "alerts",
            (1000, 1686),
            &format!("http://{HOST}:{PROMETHEUS}/user/alerts.html"),
        )
    })();
    prometheus.end()?;
    pictured
}

/// docs/images/dashboard.png: queries of three panels, in Prometheus' own pages.
fn of_dashboard() -> Result<PathBuf> {
    let path = shell::root().join("deploy/alerts/epitaph.dashboard.json");
    let dashboard = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut query = String::new();
    for (at, (title, is_graph)) in PANELS.into_iter().enumerate() {
        let expression = expression(&dashboard, title).with_context(|| format!("the dashboard has no panel `{title}`"))?;
        let tab = u8::from(!is_graph);
        let _ = write!(
            query,
            "&g{at}.expr={}&g{at}.tab={tab}&g{at}.range_input=3h",
            escaped(&expression)
        );
    }
    let mut prometheus = Prometheus::start(history(now()?))?;
    let url = format!("http://{HOST}:{PROMETHEUS}/classic/graph?{}", query.trim_start_matches('&'));
    let pictured = shot("dashboard", (1100, 1600), &url);
    prometheus.end()?;
    pictured
}

/// Three hours of a cluster of which some workloads terminate uncleanly: a picture's, from no cluster.
fn history(now: u64) -> String {
    let mut text = String::from("# TYPE epitaph_workload_verdicts counter\n");
    let mut random = Random(48);
    // In thousandths, how often a step has one; and in which of the history's hundredths.
    for (namespace, name, verdict, often, within) in [
        ("shop", "cart", "clean", 500, 0..100),
        ("shop", "checkout", "clean", 400, 0..100),
        ("search", "index", "clean", 300, 0..100),
        ("shop", "cart", "ignored-stop-signal", 600, 74..79),
        ("shop", "checkout", "refused-connections", 700, 50..57),
        ("search", "index", "oom-killed", 400, 33..36),
        ("shop", "cart", "unknown", 40, 0..100),
    ] {
        let labels = format!(
            "k8s_namespace_name=\"{namespace}\",epitaph_workload_kind=\"Deployment\",epitaph_workload_name=\"{name}\",verdict=\"{verdict}\""
        );
        let mut count = 0;
        for step in 0..=HISTORY / STEP {
            let is_within = within.contains(&(step * 100 / (HISTORY / STEP)));
            count += u64::from(is_within && random.below(1000) < often);
            let time = now - HISTORY + step * STEP;
            let _ = writeln!(text, "epitaph_workload_verdicts_total{{{labels}}} {count} {time}");
        }
    }
    let gauges = [
        (
            "epitaph_workload_advice_seconds",
            "advice=\"grace-longer\",epitaph_workload_kind=\"Deployment\",epitaph_workload_name=\"cart\",k8s_namespace_name=\"shop\"",
            45,
        ),
        (
            "epitaph_workload_advice_seconds",
            "advice=\"pre-stop-sleep-longer\",epitaph_workload_kind=\"Deployment\",epitaph_workload_name=\"checkout\",k8s_namespace_name=\"shop\"",
            6,
        ),
        (
            "epitaph_node_shutdown_ready",
            "check=\"lock\",instance=\"worker-1\",state=\"not_ready\"",
            1,
        ),
        (
            "epitaph_node_shutdown_ready",
            "check=\"periods\",instance=\"worker-1\",state=\"not_ready\"",
            1,
        ),
        (
            "epitaph_node_shutdown_ready",
            "check=\"lock\",instance=\"worker-2\",state=\"ready\"",
            1,
        ),
    ];
    let mut last = "";
    for (name, labels, value) in gauges {
        if name != last {
            let _ = writeln!(text, "# TYPE {name} gauge");
            last = name;
        }
        let _ = writeln!(text, "{name}{{{labels}}} {value} {}", now - 15);
        let _ = writeln!(text, "{name}{{{labels}}} {value} {now}");
    }
    text
}

/// The same numbers in every picture.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The query of the panel with that title, as Grafana would send it.
fn expression(dashboard: &str, title: &str) -> Option<String> {
    const KEY: &str = "\"expr\": \"";
    // A panel's targets stand before its title.
    let (before, _) = dashboard.split_once(&format!("\"title\": \"{title}\""))?;
    let (_, rest) = before.rsplit_once(KEY)?;
    let (mut text, mut escape) = (String::new(), false);
    for c in rest.chars() {
        match (escape, c) {
            (true, 'n') => text.push(' '),
            (true, c) => text.push(c),
            (false, '\\') => {}
            (false, '"') => break,
            (false, c) => text.push(c),
        }
        escape = !escape && c == '\\';
    }
    for (variable, value) in VARIABLES {
        text = text.replace(variable, value);
    }
    Some(text)
}

/// For a URL's query.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn now() -> Result<u64> {
    #[expect(clippy::disallowed_methods, reason = "a picture of the present")]
    let now = SystemTime::now();
    Ok(now.duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs())
}

/// Debian's, which has its own pages: the Go module does not include them.
struct Prometheus(Child);

impl Prometheus {
    /// With these metrics (OpenMetrics), and the alerts of deploy/alerts.
    fn start(mut metrics: String) -> Result<Prometheus> {
        browser()?;
        debian::ensure(&["prometheus"], "pictures of Prometheus' pages")?;
        let dir = emptied("prometheus")?;
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            Ok(path)
        };
        metrics.push_str("# EOF\n");
        let metrics = file("metrics.txt", &metrics)?;
        file("alerts.html", OF_ALERTS)?;
        let rules = shell::root().join("deploy/alerts").join(RULES);
        fs::copy(&rules, dir.join(RULES)).with_context(|| format!("copying {}", rules.display()))?;
        file(
            "prometheus.yml",
            &format!("global: {{evaluation_interval: 2s}}\nrule_files: [{RULES}]\n"),
        )?;
        let data = dir.join("data");
        let mut fill = Command::new("promtool");
        fill.args(["tsdb", "create-blocks-from", "openmetrics"])
            .arg(&metrics)
            .arg(&data);
        shell::run_quietly(&mut fill, "writing made-up metrics")?;
        let log = File::create(dir.join("prometheus.log")).context("creating Prometheus' log")?;
        let mut command = jaeger::tied(Path::new("/usr/bin/prometheus"));
        command
            // The page shows the rules' path.
            .current_dir(&dir)
            .arg("--config.file=prometheus.yml")
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.user-assets={}", dir.display()))
            .arg(format!("--web.listen-address={HOST}:{PROMETHEUS}"));
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let mut prometheus = Prometheus(child.context("starting Prometheus")?);
        let ready = || {
            Ok(http::get(PROMETHEUS, "/-/ready")
                .is_ok_and(|(status, _)| status == 200)
                .then_some(()))
        };
        if shell::found_within(TO_START, ready)?.is_none() {
            prometheus.end()?;
            bail!(
                "Prometheus was not ready within {} s; see {}",
                TO_START.as_secs(),
                dir.display()
            );
        }
        Ok(prometheus)
    }

    fn end(&mut self) -> Result<()> {
        ended(&mut self.0)
    }
}

fn ended(child: &mut Child) -> Result<()> {
    child.kill().context("stopping a server")?;
    child.wait().map(drop).context("stopping a server")
}

fn emptied(name: &str) -> Result<PathBuf> {
    let dir = shell::root().join("target/xtask").join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

fn browser() -> Result<()> {
    debian::ensure(
        &["chromium-headless-shell", "fonts-dejavu-core", "pngquant"],
        "a picture of a page",
    )
}

/// docs/images/NAME.png: what a browser's window of that size shows of the page.
fn shot(name: &str, (width, height): (u32, u32), url: &str) -> Result<PathBuf> {
    let picture = shell::root().join(format!("docs/images/{name}.png"));
    let whole = shell::root().join(format!("target/xtask/{name}.png"));
    let mut chromium = Command::new("chromium-headless-shell");
    chromium
        .args(["--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=20000"])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", whole.display()))
        .arg(url);
    shell::run_quietly(&mut chromium, "making the picture")?;
    ensure!(whole.is_file(), "the browser made no picture of {url}");
    let mut smaller = Command::new("pngquant");
    smaller
        .args(["--force", "--strip", "--speed", "1", "--output"])
        .arg(&picture)
        .arg("64")
        .arg(&whole);
    shell::run_quietly(&mut smaller, "making it smaller")?;
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_of_the_picture_is_one_of_the_dashboard() {
        let dashboard = fs::read_to_string(shell::root().join("deploy/alerts/epitaph.dashboard.json")).unwrap();
        for (title, _) in PANELS {
            let expression = expression(&dashboard, title).unwrap();
            assert!(expression.contains("epitaph_") && !expression.contains('$'), "{expression}");
            assert!(!expression.contains('\\'), "{expression}");
        }
    }

    #[test]
    fn made_up_metrics_have_the_names_of_the_panels() {
        let dashboard = fs::read_to_string(shell::root().join("deploy/alerts/epitaph.dashboard.json")).unwrap();
        let history = history(1_000_000);
        for (title, _) in PANELS {
            let expression = expression(&dashboard, title).unwrap();
            let mut words = expression.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            assert!(
                words.any(|word| word.starts_with("epitaph_") && history.contains(&format!("\n{word}{{"))),
                "{title}: no metric of {expression}"
            );
        }
    }
}
