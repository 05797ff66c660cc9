use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::Duration;

use expect_test::{expect, expect_file};
use tracing::Level;

use super::*;
use crate::error::lines;
use crate::sink::otlp::{Compression, Protocol};
use crate::source::pods::Access;

struct Vars(HashMap<&'static str, &'static str>);

impl Env for Vars {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|v| (*v).to_owned())
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().map(|&name| name.to_owned()).collect()
    }
}

fn vars<const N: usize>(vars: [(&'static str, &'static str); N]) -> Vars {
    Vars(HashMap::from(vars))
}

fn flags<const N: usize>(flags: [(&str, &str, &str); N]) -> Overrides {
    let text = |s: &str| s.to_owned();
    Overrides(
        flags
            .iter()
            .map(|(flag, key, value)| Override {
                flag: text(flag),
                key: text(key),
                value: text(value),
            })
            .collect(),
    )
}

/// Loads `text` from a file named `epitaph.toml`; errors as text, without the directory.
fn load(text: &str, env: &Vars, flags: &Overrides) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("epitaph.toml");
    fs::write(&file, text).unwrap();
    Config::load(Some(&file), env, flags).map_err(|e| lines(&e).replace(&format!("{}/", dir.path().display()), ""))
}

fn error(text: &str) -> String {
    load(text, &vars([]), &flags([])).unwrap_err()
}

#[test]
fn environment_overrides_file_and_flags_override_both() {
    let file = "listen = \"127.0.0.1:1\"\n[kernel]\nring_bytes = 65536\n[export]\nunclean_only = true\n";
    let env = vars([("EPITAPH_LISTEN", "127.0.0.1:2"), ("EPITAPH_RING_BYTES", "131072")]);
    let config = load(file, &env, &flags([("--listen", "listen", "127.0.0.1:3")])).unwrap();
    assert_eq!(config.listen, Listen::At("127.0.0.1:3".parse().unwrap()));
    assert_eq!(config.kernel.ring_bytes, Some(131_072));
    assert!(config.export.unclean_only);
}

#[test]
fn errors_for_unknown_keys_name_the_key_the_file_and_the_nearest_key() {
    expect![[r#"
        unknown key `listne` in epitaph.toml
        remedy: did you mean `listen`?"#]]
    .assert_eq(&error("listne = \"off\""));
    expect![[r#"
        unknown key `otlp.endpiont` in epitaph.toml
        remedy: did you mean `otlp.endpoint`?"#]]
    .assert_eq(&error("[otlp]\nendpiont = \"http://localhost:4317\""));
    expect![[r#"
        unknown key `zzz` in epitaph.toml
        remedy: `epitaph agent --print-config` lists the known keys"#]]
    .assert_eq(&error("[zzz]\na = 1"));
    let set = flags([("--set", "kernel.ringbytes", "1")]);
    expect![[r#"
        unknown key `kernel.ringbytes` in --set
        remedy: did you mean `kernel.ring_bytes`?"#]]
    .assert_eq(&load("", &vars([]), &set).unwrap_err());
}

#[test]
fn errors_for_bad_values_name_their_source_and_the_remedy() {
    expect![[r#"
        cannot parse the configuration epitaph.toml, line 2 (setting `listen`): not an address
        remedy: write ADDRESS:PORT such as 127.0.0.1:9464 or [::]:9464, or "off""#]]
    .assert_eq(&error("\nlisten = \"9464\""));
    expect!["cannot parse the configuration epitaph.toml, line 1: invalid type: integer `3`, expected struct OtlpSettings"]
        .assert_eq(&error("otlp = 3"));
    expect!["cannot parse the configuration epitaph.toml, line 2: string values must be quoted, expected literal string"]
        .assert_eq(&error("[otlp.headers]\nauthorization = Bearer t0psecret"));
    expect![[r#"
        cannot parse the configuration epitaph.toml, line 3 (setting `limits.reorder`): not a duration: expected number at 0
        remedy: write for example 10s, 500ms, or a number of milliseconds"#]]
    .assert_eq(&error("[limits]\nsubjects = 1\nreorder = \"abc\""));
    expect![[r#"
        cannot parse the configuration epitaph.toml, line 2 (setting `limits.subjects`): not a whole number
        remedy: write for example 2000"#]]
    .assert_eq(&error("[limits]\nsubjects = \"x\""));
    for value in ["x", "-1", "99999999999999999999"] {
        let set = flags([("--set", "limits.timelines", value)]);
        let error = load("", &vars([]), &set).unwrap_err();
        let key = "bad value of --set (setting `limits.timelines`): ";
        let wanted = ["not a whole number\nremedy: write for example 2000", "too large"];
        assert!(error.strip_prefix(key).is_some_and(|s| wanted.contains(&s)), "{error}");
    }
    let env = vars([("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://localhost:4317")]);
    expect![[r#"
        bad value of environment variable OTEL_EXPORTER_OTLP_ENDPOINT (setting `otlp.endpoint`): neither http nor https
        remedy: write http://HOST:PORT, or https://HOST:PORT for TLS"#]]
    .assert_eq(&load("", &env, &flags([])).unwrap_err());
    expect!["bad setting `kernel.ring_bytes`: must be between 65536 and 1073741824"]
        .assert_eq(&error("[kernel]\nring_bytes = 1000"));
    expect![[r#"
        bad setting `otlp.client_certificate`: is not set
        remedy: set both, or unset otlp.client_key"#]]
    .assert_eq(&error("[otlp]\nclient_key = \"key.pem\""));
    expect![[r#"
        bad setting `containers.directories`: `/var/lib/kubelet/pods/1/containers` is a directory of the kubelet, which has the pods' secrets
        remedy: write absolute paths without `..` that end with io.containerd.runtime.v2.task, containers (Docker) or overlay-containers"#]]
    .assert_eq(&error("[containers]\ndirectories = [\"/var/lib/kubelet/pods/1/containers\"]"));
    expect![[r#"
        bad setting `containers.directories`: `/var/lib/docker/../containers` is not a directory of a known container runtime
        remedy: write absolute paths without `..` that end with io.containerd.runtime.v2.task, containers (Docker) or overlay-containers"#]]
    .assert_eq(&error("[containers]\ndirectories = [\"/var/lib/docker/../containers\"]"));
    let missing = lines(&Config::load(Some(Path::new("no/such.toml")), &vars([]), &flags([])).unwrap_err());
    expect![[r#"
        cannot read the configuration no/such.toml: No such file or directory (os error 2)
        remedy: name another file with --config FILE"#]]
    .assert_eq(&missing);
}

#[test]
fn no_secret_is_ever_printed() {
    let env = vars([
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "Authorization=Bearer%20t0psecret,x-tenant=t0psecret",
        ),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317/base"),
    ]);
    let config = load("[otlp.headers]\nold = \"t0psecret\"", &env, &flags([])).unwrap();
    assert_eq!(config.otlp.headers["authorization"].expose(), "Bearer t0psecret");
    let shown = config.to_toml() + &format!("{config:?}");
    assert!(!shown.contains("t0psecret"), "{shown}");

    // Refused, because it would never be sent; the error does not show the value.
    for bad in ["https://me:t0psecret@collector:4317/base", "http://me:t0psecret@[::1"] {
        let problem = load("", &vars([("OTEL_EXPORTER_OTLP_ENDPOINT", bad)]), &flags([])).unwrap_err();
        assert!(
            problem.contains("otlp.endpoint") && !problem.contains("t0psecret"),
            "{problem}"
        );
    }
    let bad = vars([("OTEL_EXPORTER_OTLP_HEADERS", "authorization:t0psecret")]);
    assert!(!load("", &bad, &flags([])).unwrap_err().contains("t0psecret"));
}

fn log_filter(filter: &str) -> Result<LogFilter, String> {
    let config = load("", &vars([]), &flags([("--log", "log.filter", filter)]))?;
    Ok(config.log.read("kube_client=off,aya::sys=error").unwrap())
}

#[test]
fn a_filter_of_the_log_names_levels_and_targets() {
    let filter = log_filter("info, epitaph::termination=off,aya::sys=debug,").unwrap();
    let enabled = |target: &str, level| filter.targets.would_enable(target, &level);
    assert!(enabled("epitaph::source::kernel", Level::INFO) && !enabled("epitaph", Level::DEBUG));
    assert!(!enabled("epitaph::termination", Level::ERROR) && !enabled("kube_client::client", Level::ERROR));
    assert!(enabled("aya::sys", Level::DEBUG), "what a person names is stronger");
    assert!(filter.without_effect.is_empty());
    // A target alone has all of its levels, in any order the longest decides, and nothing else is logged.
    let filter = log_filter("epitaph::source=warn,epitaph,hyper=5,tonic=OFF").unwrap();
    let enabled = |target: &str, level| filter.targets.would_enable(target, &level);
    assert!(enabled("epitaph::sink", Level::TRACE) && enabled("hyper::client", Level::TRACE));
    assert!(!enabled("epitaph::source::pods", Level::INFO) && enabled("epitaph::source::pods", Level::WARN));
    assert!(!enabled("tonic", Level::ERROR) && !enabled("other", Level::ERROR));
    for (filter, problem) in [
        ("info,epitaph=loud", "`loud` in `epitaph=loud` is not a level: off, error,"),
        ("info, epitaph = debug", "` debug` in `epitaph = debug` is not a level: "),
        ("warn,a=b=c", "`a=b=c` has more than one `=`"),
        ("[span]=debug,epitaph=loud", "`loud` in `epitaph=loud` is not a level: "),
        ("\"info\"", "`\"info\"` is neither a level nor a target"),
        ("*=debug", "`*=debug` is neither a level nor a target"),
        ("info,$LEVEL", "`$LEVEL` is neither a level nor a target"),
    ] {
        let error = log_filter(filter).unwrap_err();
        assert!(error.starts_with(&format!("bad setting `log.filter`: {problem}")), "{error}");
        assert!(error.ends_with("\nremedy: write for example info,epitaph=debug"), "{error}");
    }
}

/// RUST_LOG of a platform is for every program: what another one understands must not end the agent.
#[test]
fn a_filter_of_spans_has_no_effect_and_the_rest_has() {
    for (filter, debug_of, without_effect) in [
        ("warn,[load_probes]=trace,a=debug", "a", &["[load_probes]=trace"][..]),
        ("a=debug,b[span{x=1,y=\"q,r\"}]=info", "a", &["b[span{x=1,y=\"q,r\"}]=info"]),
        (
            "[{path=/v1/[a-z]{2,3},user}]=trace , a=debug",
            "a",
            &["[{path=/v1/[a-z]{2,3},user}]=trace"],
        ),
        ("a=debug,[never", "a", &["[never"]),
        ("a=debug,b]=info", "a", &[]),
    ] {
        let found = log_filter(filter).unwrap();
        assert_eq!(found.without_effect, without_effect, "{filter}");
        assert!(found.targets.would_enable(debug_of, &Level::DEBUG), "{filter}");
        assert!(!found.targets.would_enable("other", &Level::DEBUG), "{filter}");
    }
    for filter in ["[load_probes]=trace", "epitaph[load_probes]=debug,hyper=warn"] {
        let found = log_filter(filter).unwrap();
        assert!(
            found.targets.would_enable("epitaph", &Level::INFO),
            "the default, so that the warning is seen"
        );
    }
}

#[test]
fn the_printed_configuration_is_an_equivalent_file() {
    let env = vars([
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("EPITAPH_BTF", "vmlinux.btf"),
        ("RUST_LOG", "epitaph=debug"),
    ]);
    let config = load(
        "listen = \"off\"",
        &env,
        &flags([("--set", "otlp.protocol", "http/protobuf")]),
    )
    .unwrap();
    assert_eq!(config.otlp.timeout, Duration::from_millis(2500));
    assert_eq!(load(&config.to_toml(), &vars([]), &flags([])).unwrap(), config);
}

#[test]
fn the_printed_configuration_lists_every_setting_once() {
    let set = load("", &vars([("EPITAPH_BTF", "vmlinux.btf")]), &flags([])).unwrap();
    for config in [Config::default(), set] {
        let printed = config.to_toml();
        let table: toml::Table = toml::from_str(&printed).unwrap();
        for setting in settings::ALL {
            let has_value = setting
                .key
                .split('.')
                .try_fold(toml::Value::Table(table.clone()), |value, part| value.get(part).cloned())
                .is_some();
            let comment = format!("# {}", setting.key);
            let is_comment = printed.lines().any(|line| line == comment);
            assert!(has_value != is_comment, "{}:\n{printed}", setting.key);
        }
    }
}

#[test]
fn every_setting_can_be_set_and_is_printed() {
    for setting in settings::ALL {
        let value = match setting.key {
            "listen" | "health_listen" => "[::1]:7",
            "otlp.endpoint" | "otlp.traces_endpoint" | "otlp.metrics_endpoint" | "otlp.logs_endpoint" => "http://collector:1",
            "otlp.protocol" => "http/protobuf",
            "otlp.traces" | "otlp.metrics" => "none",
            "otlp.logs" => "otlp",
            "otlp.headers" | "export.resource_attributes" => "a=b",
            "export.unclean_only" => "true",
            "containers.directories" => "/data/docker/containers",
            "containers.command" => "true",
            "units.include" => "nginx,web-*",
            "units.exclude" => "cron",
            "kubernetes.kubelet_units" => "my-kubelet.service",
            "kubelet.address" => "10.0.0.1",
            "kubelet.config" | "kubelet.config_directory" | "kubelet.state" => "/host/kubelet",
            "kubernetes.allow_ignore" | "kubernetes.allow_expected_exit_codes" => "shop,dev",
            "kubernetes.nodes_in_containers" => "true",
            "log.format" => "json",
            "kubernetes.events" | "kubernetes.epitaphs" => "false",
            "kubernetes.mode" => "on",
            "otlp.insecure" => "true",
            "observer.election" | "observer.lost_nodes" => "false",
            "logind.lock" => "true",
            "otlp.compression" => "gzip",
            _ => "131072",
        };
        let mut config = Config::default();
        (setting.set)(&mut config, value).unwrap_or_else(|e| panic!("{}: {e}", setting.key));
        assert_ne!(config, Config::default(), "{} changes nothing", setting.key);
        let table = toml::Table::try_from(&config).unwrap();
        assert_eq!(settings::first_unknown(&table), None);
        let mut value = &toml::Value::Table(table);
        for part in setting.key.split('.') {
            value = value
                .get(part)
                .unwrap_or_else(|| panic!("{} is not the path of its field", setting.key));
        }
    }
}

#[test]
fn variables_for_traces_override_the_general_ones() {
    let env = vars([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/in"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "HTTP/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x%2Cy, tenant = blue"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "/me.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/me.key"),
        // Unset, as OpenTelemetry defines.
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", ""),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", " "),
    ]);
    let to = load("", &env, &flags([])).unwrap().otlp.destinations().unwrap();
    let settings = to.traces.unwrap();
    assert_eq!(settings.url, "https://traces/in");
    assert_eq!(to.metrics.unwrap().url, "http://all:4318/v1/metrics");
    assert_eq!(settings.protocol, Protocol::HttpProtobuf);
    assert_eq!(settings.headers["authorization"], "Bearer x,y");
    assert_eq!(settings.headers["tenant"], "blue");
    assert_eq!(settings.timeout, Duration::from_millis(2500));
    assert_eq!(settings.compression, Compression::None);
    assert_eq!(settings.authorities, Some("/ca.pem".into()));
    let identity = settings.identity.unwrap();
    assert_eq!((identity.certificate, identity.key), ("/me.pem".into(), "/me.key".into()));
}

#[test]
fn the_otlp_flag_applies_to_all_signals() {
    let env = vars([("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/in")]);
    let to = |given: Overrides| {
        let to = load("", &env, &given).unwrap().otlp.destinations().unwrap();
        to.traces.unwrap().url.to_string()
    };
    assert_eq!(to(flags([])), "https://traces/in");
    assert_eq!(
        to(flags([("--otlp", "otlp.endpoint", "http://here:4317")])),
        "http://here:4317/"
    );
    let both = flags([
        ("--otlp", "otlp.endpoint", "http://here:4317"),
        ("--set", "otlp.traces_endpoint", "http://there:4317"),
    ]);
    assert_eq!(to(both), "http://there:4317/");
}

#[test]
fn mistakes_in_opentelemetrys_variables_are_reported() {
    let error = |name, value| load("", &vars([(name, value)]), &flags([])).unwrap_err();
    expect!["bad value of environment variable OTEL_EXPORTER_OTLP_PROTOCOL (setting `otlp.protocol`): not one of grpc, http/protobuf"]
        .assert_eq(&error("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"));
    expect!["bad value of environment variable OTEL_EXPORTER_OTLP_TRACES_COMPRESSION (setting `otlp.compression`): not one of none, gzip"]
        .assert_eq(&error("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd"));
    expect![[r#"
        bad value of environment variable OTEL_EXPORTER_OTLP_TIMEOUT (setting `otlp.timeout`): not a duration: expected number at 0
        remedy: write for example 10s, 500ms, or a number of milliseconds"#]]
        .assert_eq(&error("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"));
    expect!["bad setting `otlp.timeout`: must be more than zero"].assert_eq(&error("OTEL_EXPORTER_OTLP_TIMEOUT", "0"));
    expect![
        "bad value of environment variable OTEL_EXPORTER_OTLP_HEADERS (setting `otlp.headers`): not `name=value,name=value`"
    ]
    .assert_eq(&error("OTEL_EXPORTER_OTLP_HEADERS", "a=1,t0psecret"));
    expect![[r#"
        bad value of environment variable OTEL_RESOURCE_ATTRIBUTES (setting `export.resource_attributes`): `b` is not `name=value`
        remedy: write a comma within a value as %2C"#]]
        .assert_eq(&error("OTEL_RESOURCE_ATTRIBUTES", "a=1,b"));
    expect![[r#"
        bad value of environment variable OTEL_RESOURCE_ATTRIBUTES (setting `export.resource_attributes`): `a=100%` is badly percent-encoded
        remedy: write a percent sign itself as %25"#]]
        .assert_eq(&error("OTEL_RESOURCE_ATTRIBUTES", "a=100%"));
    expect![[r#"
        bad value of environment variable OTEL_RESOURCE_ATTRIBUTES (setting `export.resource_attributes`): `a=%ff` is badly percent-encoded
        remedy: write a percent sign itself as %25"#]]
        .assert_eq(&error("OTEL_RESOURCE_ATTRIBUTES", "a=%ff"));
    expect!["bad value of environment variable OTEL_RESOURCE_ATTRIBUTES (setting `export.resource_attributes`): `=1` has no name before its `=`"]
        .assert_eq(&error("OTEL_RESOURCE_ATTRIBUTES", " =1"));
}

#[test]
fn resource_attributes_from_the_variable_or_a_table() {
    let of = |pairs: &[(&str, &str)]| {
        let owned = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect::<BTreeMap<_, _>>()
    };
    let file = "[export.resource_attributes]\n\"deployment.environment.name\" = \"test\"\nteam = \"blue, green\"\n";
    let config = load(file, &vars([]), &flags([])).unwrap();
    let from_file = of(&[("deployment.environment.name", "test"), ("team", "blue, green")]);
    assert_eq!(config.export.resource_attributes, from_file);
    assert_eq!(load(&config.to_toml(), &vars([]), &flags([])).unwrap(), config);

    let env = vars([
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "team=a%2Cb%3Dc, k%3D8s = n%C3%A4he,empty=,eq=a=b,plus=a+b,",
        ),
        ("OTEL_SERVICE_NAME", "sexton"),
    ]);
    let export = load(file, &env, &flags([])).unwrap().export;
    let from_env = [
        ("team", "a,b=c"),
        ("k=8s", "n\u{e4}he"),
        ("empty", ""),
        ("eq", "a=b"),
        ("plus", "a+b"),
    ];
    assert_eq!(export.resource_attributes, of(&from_env));
    assert_eq!((export.agent_service_name.as_str(), export.service_name), ("sexton", None));

    expect![[r#"
        cannot parse the configuration epitaph.toml, line 1 (setting `export.resource_attributes`): attribute `deployment` is not text
        remedy: put names and values in quotes, as in "a.b" = "value""#]]
        .assert_eq(&error("[export.resource_attributes]\ndeployment.environment.name = \"test\""));
    expect![[r#"
        cannot parse the configuration epitaph.toml, line 1 (setting `export.resource_attributes`): attribute `replicas` is not text
        remedy: put names and values in quotes, as in "a.b" = "value""#]]
        .assert_eq(&error("[export.resource_attributes]\nreplicas = 3"));
    expect!["bad setting `export.resource_attributes`: an attribute must have a name"]
        .assert_eq(&error("[export.resource_attributes]\n\"\" = \"a\""));
    expect!["bad setting `export.agent_service_name`: must not be empty"]
        .assert_eq(&error("[export]\nagent_service_name = \"\""));
    expect!["bad setting `otlp.headers`: `two words` is not the name of a header"].assert_eq(&error(
        "[otlp]\nendpoint = \"http://c\"\n[otlp.headers]\n\"two words\" = \"t0psecret\"",
    ));
}

#[test]
fn interactive_commands_export_only_with_a_flag() {
    let env = vars([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
    ]);
    let traces = |flags: Overrides| Config::for_person(&env, &flags).unwrap().otlp.destinations().unwrap().traces;
    assert_eq!(traces(flags([])), None);
    let to = traces(flags([("--otlp", "otlp.endpoint", "http://d:2")])).unwrap();
    assert_eq!(to.url, "http://d:2/v1/traces");
    assert_eq!(to.headers["a"], "b");
}

#[test]
fn an_unknown_variable_is_reported_but_not_a_services() {
    let env = vars([
        ("EPITAPH_KUBERNETES_EVENT", "false"),
        ("EPITAPH_ZZZ", "1"),
        ("EPITAPH_LISTEN_PORT", "9464"),
        ("EPITAPH_LISTEN", "off"),
        ("EPITAPH_CONFIG", "epitaph.toml"),
        ("OTEL_SDK_DISABLED", "true"),
        // The kubelet's variables for a Service named epitaph with a port named http.
        ("EPITAPH_SERVICE_HOST", "10.0.0.1"),
        ("EPITAPH_SERVICE_PORT", "9464"),
        ("EPITAPH_SERVICE_PORT_HTTP", "9464"),
        ("EPITAPH_PORT", "tcp://10.0.0.1:9464"),
        ("EPITAPH_PORT_9464_TCP", "tcp://10.0.0.1:9464"),
        ("EPITAPH_PORT_9464_TCP_ADDR", "10.0.0.1"),
        ("EPITAPH_PORT_9464_TCP_PORT", "9464"),
        ("EPITAPH_PORT_9464_TCP_PROTO", "tcp"),
    ]);
    let unknown = settings::unknown_variables(&env);
    let unknown: Vec<_> = unknown.iter().map(|(name, meant)| (name.as_str(), *meant)).collect();
    assert_eq!(
        unknown,
        [
            ("EPITAPH_KUBERNETES_EVENT", Some("EPITAPH_KUBERNETES_EVENTS")),
            ("EPITAPH_LISTEN_PORT", Some("EPITAPH_LISTEN")),
            ("EPITAPH_ZZZ", None),
        ]
    );
}

#[test]
fn the_documentation_lists_what_the_code_has() {
    let doc = format!(
        "# Configuration of `epitaph agent` and `epitaph observer`\n\n\
         This page answers: which settings does the program have, and how is each set?\n\n\
         <!-- Made from the code by `UPDATE_EXPECT=1 cargo test -p epitaph --lib config`; do not edit. -->\n\n\
         Settings come from a TOML file (`--config FILE` or `EPITAPH_CONFIG`), from environment variables, and from flags. Environment variables\n\
         override the file, and flags override both. Every key can also be given as `--set KEY=VALUE`. An unknown key is an error; an unknown\n\
         `EPITAPH_*` variable causes a warning. `epitaph agent --print-config` shows the effective configuration, with secrets redacted; keys\n\
         without a value are comments at its end. A duration is written as `10s`, `500ms` or `1m 30s`; a number without a unit means milliseconds.\n\n{}\n\
         Next: [the values of the chart](../deploy/helm/epitaph/README.md#values), which have these settings under `config`, or\n\
         [what Epitaph costs](cost.md).\n",
        settings::markdown()
    );
    expect_file!["../../../docs/config.md"].assert_eq(&doc);
}

#[test]
fn interactive_commands_use_a_cluster_only_with_a_kubeconfig() {
    let env = vars([("EPITAPH_KUBERNETES", "on"), ("EPITAPH_KUBECONFIG", "/of/the/shell")]);
    let file = Access::Kubeconfig("/k".into());
    let given = ("--kubeconfig", "kubernetes.kubeconfig", "/k");
    let off = ("--kubernetes", "kubernetes.mode", "off");
    let auto = ("--kubernetes", "kubernetes.mode", "auto");
    let person = |given: Overrides| Config::for_person(&env, &given).unwrap().kubernetes.access(true);
    assert_eq!(person(flags([])), None);
    assert_eq!(person(flags([given])), Some(file.clone()));
    assert_eq!(person(flags([given, off])), None);
    assert_eq!(person(flags([auto])), Some(Access::InCluster));

    let kubernetes = |mode, kubeconfig: Option<&str>| KubernetesSettings {
        mode,
        kubeconfig: kubeconfig.map(Into::into),
        ..KubernetesSettings::default()
    };
    for (mode, kubeconfig, in_pod, access) in [
        (KubernetesMode::Auto, None, true, Some(Access::InCluster)),
        (KubernetesMode::Auto, None, false, None),
        (KubernetesMode::Auto, Some("/k"), true, Some(file.clone())),
        (KubernetesMode::On, None, false, Some(Access::Kubectl)),
        (KubernetesMode::On, None, true, Some(Access::InCluster)),
        (KubernetesMode::Off, Some("/k"), true, None),
    ] {
        assert_eq!(
            kubernetes(mode, kubeconfig).access(in_pod),
            access,
            "{mode:?} {kubeconfig:?} {in_pod}"
        );
    }
}
