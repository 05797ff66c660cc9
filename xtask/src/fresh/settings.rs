//! This machine's network settings for the fresh root: proxies, registries, certificates; nothing else of its configuration.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::shell;

/// Go's settings for reaching modules.
const GO: [&str; 6] = ["GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE"];
/// The trusted certificate authorities, Debian's and the machine's own.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// The environment variables that configure network access.
pub fn environment() -> Vec<(OsString, OsString)> {
    let mut kept: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| is_network(&name.to_string_lossy()))
        .collect();
    if shell::which("go").is_some() {
        for name in GO {
            let value = shell::read(Command::new("go").args(["env", name]).env("PATH", shell::path())).unwrap_or_default();
            if !value.is_empty() {
                kept.push((name.into(), value.into()));
            }
        }
    }
    kept
}

fn is_network(name: &str) -> bool {
    // Its file is copied: see certificates().
    if name == "CARGO_HTTP_CAINFO" {
        return false;
    }
    let proxy = name.to_ascii_lowercase();
    GO.contains(&name)
        || ["http_proxy", "https_proxy", "all_proxy", "no_proxy"].contains(&&*proxy)
        || ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// The lines of `apt-config dump` that configure access to archives and their checks.
pub fn apt() -> Result<Vec<String>> {
    let dump = shell::read(Command::new("apt-config").arg("dump").env("PATH", shell::path()))?;
    Ok(apt_of(&dump))
}

fn apt_of(dump: &str) -> Vec<String> {
    const KEPT: [&str; 5] = ["Proxy", "Check-", "Retries", "Timeout", "Verify-"];
    let kept = dump.lines().filter(|line| {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        // The root may not have that file.
        let is_file = value.starts_with("\"/");
        name.starts_with("Acquire::") && !is_file && value != "\"\";" && KEPT.iter().any(|part| name.contains(part))
    });
    kept.map(str::to_owned).collect()
}

/// The tables of cargo's configuration that configure access to registries.
pub fn cargo() -> String {
    let home = shell::env("CARGO_HOME").map_or_else(|| shell::home().join(".cargo"), PathBuf::from);
    let text = ["config.toml", "config"]
        .iter()
        .find_map(|name| fs::read_to_string(home.join(name)).ok());
    cargo_of(&text.unwrap_or_default())
}

fn cargo_of(config: &str) -> String {
    const KEPT: [&str; 5] = ["source", "registries", "registry", "http", "net"];
    let is_kept = |name: &str| KEPT.contains(&name.split('.').next().unwrap_or(name).trim());
    let mut inside: Option<bool> = None;
    let mut text = String::new();
    for line in config.lines() {
        let trimmed = line.trim();
        if let Some(table) = trimmed.strip_prefix('[') {
            inside = Some(is_kept(table.trim_start_matches('[').split(']').next().unwrap_or(table)));
        }
        // Before the first table: dotted keys.
        let kept = inside.unwrap_or_else(|| is_kept(trimmed)) && !trimmed.contains("cainfo");
        if kept {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Copies the certificate authorities that this machine trusts into `root`.
pub fn certificates(root: &Path) -> Result<()> {
    let named = ["SSL_CERT_FILE", "CARGO_HTTP_CAINFO"].map(|name| shell::env(name).map(PathBuf::from));
    let own = Path::new("/").join(CERTIFICATES);
    let file = named.into_iter().flatten().chain([own]).find(|file| file.is_file());
    if let Some(file) = file {
        fs::copy(&file, root.join(CERTIFICATES)).with_context(|| format!("copying {} into the fresh root", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_apts_settings_only_access_is_kept() {
        let dump = "\
Acquire \"\";
Acquire::http \"\";
Acquire::http::Proxy \"http://proxy.example:3128\";
Acquire::http::Proxy-Auto-Detect \"/usr/bin/detect\";
Acquire::Check-Valid-Until \"false\";
Acquire::Languages:: \"none\";
APT::Install-Recommends \"0\";
DPkg::Post-Invoke:: \"rm -f x\";
";
        assert_eq!(
            apt_of(dump),
            [
                "Acquire::http::Proxy \"http://proxy.example:3128\";",
                "Acquire::Check-Valid-Until \"false\";"
            ]
        );
    }

    #[test]
    fn of_cargos_configuration_only_access_is_kept() {
        let config = "net.offline = false\nalias.x = \"run\"\n[build]\nrustflags = [\"-Clink-arg=-fuse-ld=mold\"]\n\
                      [source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+http://mirror.example/\"\n\
                      [target.x86_64-unknown-linux-gnu]\nlinker = \"clang\"\n[http]\nproxy = \"proxy.example\"\ncainfo = \"/a\"\n";
        assert_eq!(
            cargo_of(config),
            "net.offline = false\n[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\n\
             registry = \"sparse+http://mirror.example/\"\n[http]\nproxy = \"proxy.example\"\n"
        );
    }

    #[test]
    fn of_the_environment_only_network_settings_are_kept() {
        for name in [
            "HTTPS_PROXY",
            "no_proxy",
            "GOPROXY",
            "CARGO_REGISTRIES_CRATES_IO_PROTOCOL",
            "CARGO_NET_RETRY",
        ] {
            assert!(is_network(name), "{name}");
        }
        for name in [
            "PATH",
            "RUSTFLAGS",
            "CARGO_HOME",
            "CARGO_HTTP_CAINFO",
            "GOFLAGS",
            "OTEL_SERVICE_NAME",
        ] {
            assert!(!is_network(name), "{name}");
        }
    }
}
