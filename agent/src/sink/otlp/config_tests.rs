use super::*;

fn env(vars: &'static [(&'static str, &'static str)]) -> Result<OtlpConfig, ConfigError> {
    OtlpConfig::from_env(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
}

fn settings(config: OtlpConfig) -> Settings {
    config.settings().expect("settings").expect("an endpoint")
}

fn endpoint(url: &str) -> OtlpConfig {
    OtlpConfig {
        endpoint: Some(url.into()),
        ..OtlpConfig::default()
    }
}

#[test]
fn nothing_configured_is_no_sink() {
    assert_eq!(env(&[]), Ok(OtlpConfig::default()));
    assert!(OtlpConfig::default().settings().expect("settings").is_none());
    assert!(
        env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")])
            .expect("config")
            .settings()
            .expect("settings")
            .is_none()
    );
}

#[test]
fn variables_of_traces_win_over_the_general_ones() {
    let config = env(&[
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
    ]);
    let s = settings(config.expect("config"));
    assert_eq!(s.url, "https://traces/in");
    assert_eq!(s.protocol, Protocol::HttpProtobuf);
    assert_eq!(s.headers["authorization"], "Bearer x,y");
    assert_eq!(s.headers["tenant"], "blue");
    assert_eq!(s.timeout, Duration::from_millis(2500));
    assert_eq!(s.compression, Compression::None);
    assert_eq!(s.authorities, Some("/ca.pem".into()));
    assert_eq!(
        s.identity,
        Some(Identity {
            certificate: "/me.pem".into(),
            key: "/me.key".into()
        })
    );
}

#[test]
fn explicit_fields_win_over_the_environment() {
    let from_env = env(&[
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://elsewhere/v1/traces"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "tenant=blue"),
    ])
    .expect("config");
    let s = settings(
        OtlpConfig {
            timeout_ms: Some(7),
            ..endpoint("http://here:4318")
        }
        .or(from_env),
    );
    assert_eq!(s.url, "http://here:4318/v1/traces");
    assert_eq!(s.timeout, Duration::from_millis(7));
    assert_eq!(s.headers["tenant"], "blue", "what is not said explicitly stays");
}

#[test]
fn endpoints() {
    for (given, protocol, url, taken) in [
        ("http://c:4318", None, "http://c:4318/v1/traces", Protocol::HttpProtobuf),
        (
            "http://c:4318/base/",
            None,
            "http://c:4318/base/v1/traces",
            Protocol::HttpProtobuf,
        ),
        ("http://c:4317", None, "http://c:4317", Protocol::Grpc),
        (
            "http://c:4317",
            Some(Protocol::HttpProtobuf),
            "http://c:4317/v1/traces",
            Protocol::HttpProtobuf,
        ),
        ("c:4317", None, "https://c:4317", Protocol::Grpc),
        ("https://c", Some(Protocol::Grpc), "https://c", Protocol::Grpc),
        ("http://[::1]:4317", None, "http://[::1]:4317", Protocol::Grpc),
    ] {
        let s = settings(OtlpConfig {
            protocol,
            ..endpoint(given)
        });
        assert_eq!((s.url, s.protocol), (url.parse().expect("a URL"), taken), "{given}");
    }
    let s = settings(OtlpConfig {
        insecure: Some(true),
        ..endpoint("c:4317")
    });
    assert_eq!(s.url, "http://c:4317");
}

#[test]
fn mistakes_are_named_with_the_remedy() {
    for (given, message) in [
        (
            "c:4318",
            "parse OTLP endpoint `c:4318`: no scheme; write http:// or https:// before it",
        ),
        (
            "https://me:hunter2@c",
            "parse OTLP endpoint `c`: a name and a password in the URL would not be sent; put them into a header (authorization)",
        ),
        (
            "ftp://c",
            "parse OTLP endpoint `ftp://c`: the scheme is neither http nor https",
        ),
        ("http://", "parse OTLP endpoint `http://`: empty string"),
    ] {
        assert_eq!(
            endpoint(given).settings().err().map(|e| e.to_string()).as_deref(),
            Some(message)
        );
    }
    for (vars, message) in [
        (
            &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")],
            "read OTEL_EXPORTER_OTLP_PROTOCOL: `http/json` is not `grpc` or `http/protobuf`",
        ),
        (
            &[("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd")],
            "read OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: `zstd` is not `gzip` or `none`",
        ),
        (
            &[("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")],
            "read OTEL_EXPORTER_OTLP_TIMEOUT: `10s` is not a positive number of milliseconds",
        ),
        (
            &[("OTEL_EXPORTER_OTLP_HEADERS", "a=1,secret")],
            "read OTEL_EXPORTER_OTLP_HEADERS: entry 2 is not `name=value` with a valid header name and value; separate entries by commas",
        ),
    ] {
        assert_eq!(env(vars).err().map(|e| e.to_string()).as_deref(), Some(message));
    }
    let half = OtlpConfig {
        client_key: Some("/k".into()),
        ..endpoint("https://c")
    };
    assert_eq!(
        half.settings().err(),
        Some(ConfigError::HalfIdentity {
            missing: "the certificate"
        })
    );
}

#[test]
fn header_values_are_never_shown() {
    let config = OtlpConfig {
        headers: Headers(vec![("authorization".into(), "hunter2".into())]),
        ..endpoint("http://c")
    };
    let shown = format!(
        "{config:?} {} {:?}",
        serde_json::to_string(&config).expect("json"),
        settings(config.clone()).headers
    );
    assert!(!shown.contains("hunter2") && shown.contains("authorization"), "{shown}");
}

#[test]
fn a_typo_in_a_file_is_an_error() {
    let error = serde_json::from_str::<OtlpConfig>(r#"{"endpont":"http://c"}"#)
        .expect_err("unknown key")
        .to_string();
    assert!(error.contains("endpont"), "{error}");
}
