//! Configuration files and values of variables: from people, not from attackers, but every mistake must be an error with a name.

use std::path::Path;

use super::{Config, settings};
use crate::fuzz::{outcome, run, shape};

#[test]
fn configuration() {
    let file = "listen = \"[::]:9464\"\n[otlp]\nendpoint = \"http://collector:4317\"\ntimeout = \"10s\"\nheaders = { a = \"b\" }\n\
                [export.resource_attributes]\n\"a.b\" = \"c\"\n[kernel]\nring_bytes = 65536\n[limits]\nsubjects = 5\nlinger = \"2s\"\n\
                [kubernetes]\nkubelet_units = [\"kubelet.service\"]\n[log]\nfilter = \"info\"\n";
    let values = [
        "127.0.0.1:9464",
        "1500",
        "a=b%20c,d=e",
        "kubelet.service",
        "2s 5ms",
        "https://user@host:4317/path",
        "on",
    ];
    let mut seeds = vec![file.as_bytes().to_vec(), Config::default().to_toml().into_bytes()];
    seeds.extend(values.map(|value| value.as_bytes().to_vec()));
    run("configuration", seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let read = Config::parse(&text, Path::new("epitaph.toml"));
        let kind = match &read {
            Ok(config) => {
                let _ = config.to_toml();
                shape(&config.validate().err())
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                shape(error)
            }
        };
        // A value: short, as in a variable.
        let value: String = text.chars().take(256).collect();
        let accepted: Vec<_> = settings::ALL
            .iter()
            .map(|setting| (setting.set)(&mut Config::default(), &value).is_ok())
            .collect();
        outcome((kind, accepted))
    });
}
