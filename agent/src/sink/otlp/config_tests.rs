use super::*;

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
    assert!(OtlpConfig::default().settings().expect("settings").is_none());
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
    let shown = format!("{config:?} {:?}", settings(config.clone()).headers);
    assert!(!shown.contains("hunter2") && shown.contains("authorization"), "{shown}");
}

#[test]
fn a_bad_header_is_named_without_its_value() {
    for (name, value) in [("two words", "hunter2"), ("authorization", "hunter2\n")] {
        let config = OtlpConfig {
            headers: Headers(vec![(name.into(), value.into())]),
            ..endpoint("http://c")
        };
        let error = config.settings().err().expect("an error").to_string();
        assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
    }
}
