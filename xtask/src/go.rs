//! Go programs from modules: a go.mod in the repository names them, with versions; the go.sum holds their hashes.

use std::{
    fmt::{self, Display, Formatter},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    debian,
    shell::{self, Content},
};

type Version = (u32, u32, u32);

/// There is no Go on this machine, and no way to install it.
#[derive(Debug)]
pub struct NoGo(Version);

impl Display for NoGo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let wanted = shown(self.0);
        write!(
            f,
            "no Go in PATH or /usr/local/go/bin, and no package golang-go; install Go {wanted} or later (https://go.dev/dl, or \
             your distribution's package)"
        )
    }
}

impl std::error::Error for NoGo {}

/// Builds `package` of the go.mod in `module`, once for its content; the built file.
pub fn build(module: &Path, package: &str, takes: &str) -> Result<PathBuf> {
    let mut built = build_all(module, &[package], Flags::default(), takes)?;
    built.pop().context("go build of one program reported no file")
}

/// Flags of `go build`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags<'a> {
    pub ldflags: &'a str,
    /// Build tags, separated by commas.
    pub tags: &'a str,
}

/// Builds `packages` of the go.mod in `module`, each once for its content and `flags`; the built files, in the same order.
/// What is missing is built by one call, so that what several share is compiled once and every core has work.
pub fn build_all(module: &Path, packages: &[&str], flags: Flags<'_>, takes: &str) -> Result<Vec<PathBuf>> {
    let files = packages.iter().map(|package| place(module, package, flags));
    let files: Vec<PathBuf> = files.collect::<Result<_>>()?;
    let pairs = packages.iter().zip(&files);
    let missing: Vec<(&str, &PathBuf)> = pairs
        .map(|(package, file)| (*package, file))
        .filter(|(_, file)| !file.is_file())
        .collect();
    if missing.is_empty() {
        return Ok(files);
    }
    let partial = shell::cache().join(format!("go-partial-{}", std::process::id()));
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    let mut go = find(module)?;
    go.current_dir(module)
        .args(["build", "-trimpath", &format!("-ldflags=-s -w {}", flags.ldflags)])
        .args(["-tags", flags.tags, "-o"])
        .arg(format!("{}/", partial.display()))
        .args(missing.iter().map(|(package, _)| package));
    let names: Vec<&str> = missing.iter().map(|(package, _)| name(package)).collect();
    let what = format!(
        "building {} from the Go modules in {} (once, {takes})",
        names.join(", "),
        module.display()
    );
    let result = shell::run(&mut go, &what).and_then(|()| {
        missing.iter().try_for_each(|(package, file)| {
            if let Some(dir) = file.parent() {
                fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
            }
            fs::rename(partial.join(name(package)), file).with_context(|| format!("renaming to {}", file.display()))
        })
    });
    fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
    result.map(|()| files)
}

/// Where the sources of `dependency` are, a module that the go.mod in `module` names; fetched if need be.
pub fn sources(module: &Path, dependency: &str) -> Result<PathBuf> {
    let mut download = find(module)?;
    download.current_dir(module).args(["mod", "download", dependency]);
    shell::run_quietly(&mut download, &format!("fetching the Go module {dependency}"))?;
    let mut list = find(module)?;
    list.current_dir(module).args(["list", "-m", "-f", "{{.Dir}}", dependency]);
    Ok(PathBuf::from(shell::read(&mut list)?.trim()))
}

/// Directory of a built program, named by everything that it is made from.
fn place(module: &Path, package: &str, flags: Flags<'_>) -> Result<PathBuf> {
    let name = name(package);
    let mut content = Content::default();
    // go.mod, go.sum, and the sources of a program of ours.
    content.tree(module)?;
    content.part("program", package.as_bytes());
    content.part("arch", std::env::consts::ARCH.as_bytes());
    for (name, value) in [("ldflags", flags.ldflags), ("tags", flags.tags)] {
        if !value.is_empty() {
            content.part(name, value.as_bytes());
        }
    }
    Ok(shell::cache().join(format!("go-{name}-{}", &content.hex()[..16])).join(name))
}

/// What `go build` calls a package's program: its last element, a major version left out.
fn name(package: &str) -> &str {
    let mut elements = package.rsplit('/');
    let last = elements.next().unwrap_or(package);
    let version = last
        .strip_prefix('v')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    if version { elements.next().unwrap_or(last) } else { last }
}

/// A `go` that go.mod's version line is content with: one on the machine, or the toolchain that go.mod names, fetched through
/// the module proxy by any Go there is, Debian's if there is none.
fn find(module: &Path) -> Result<Command> {
    let path = module.join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (wanted, toolchain) = wanted(&text).with_context(|| format!("{} lacks a go line", path.display()))?;
    let mut known = candidates();
    if known.is_empty() && debian::offered("golang-go") {
        debian::ensure(&["golang-go"], "Go programs")?;
        known = candidates();
    }
    known.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    match known.first() {
        Some((version, go)) if *version >= wanted => Ok(command(go, "local")),
        // Since 1.21 Go fetches what go.mod names by itself.
        Some((version, go)) if *version >= (1, 21, 0) => Ok(command(go, "auto")),
        Some((version, go)) => {
            shell::log(format_args!(
                "{} has version {}, which is too old; fetching a newer one",
                go.display(),
                shown(*version)
            ));
            Ok(command(&fetched(go, &toolchain)?, "local"))
        }
        None => bail!(NoGo(wanted)),
    }
}

fn command(go: &Path, toolchain: &str) -> Command {
    let mut command = Command::new(go);
    for name in ["GOROOT", "GOOS", "GOARCH", "GO111MODULE", "GOEXPERIMENT", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command
        .env("GOTOOLCHAIN", toolchain)
        .env("GOFLAGS", "-mod=readonly -buildvcs=false")
        .env("GOWORK", "off");
    command.env("CGO_ENABLED", "0").env("PATH", shell::path());
    command
}

fn candidates() -> Vec<(Version, PathBuf)> {
    let paths = shell::which("go")
        .into_iter()
        .chain(["/usr/local/go/bin/go".into(), "/usr/lib/go/bin/go".into()]);
    let version = |go: PathBuf| Some((version(&shell::read(command(&go, "local").arg("version")).ok()?)?, go));
    paths.filter_map(version).collect()
}

/// The toolchain as a module: its files, checked against the checksum database like any module's, come without the executable
/// bit when an old Go fetches them.
fn fetched(go: &Path, toolchain: &str) -> Result<PathBuf> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no Go toolchain module for {other}; install Go {toolchain} or later"),
    };
    let module = format!("golang.org/toolchain@v0.0.1-{toolchain}.linux-{arch}");
    shell::log(format_args!("fetching {module}"));
    let output = shell::read(
        command(go, "local")
            .env_remove("GOFLAGS")
            .current_dir("/")
            .args(["mod", "download", "-json", &module]),
    )?;
    let dir = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.split('"').next())
        .map(PathBuf::from);
    let dir = dir.with_context(|| format!("go mod download reported no directory for {module}: {output}"))?;
    for tools in [dir.join("bin"), dir.join("pkg/tool").join(format!("linux_{arch}"))] {
        for entry in fs::read_dir(&tools).with_context(|| format!("listing {}", tools.display()))? {
            let file = entry?.path();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
                .with_context(|| format!("making {} executable", file.display()))?;
        }
    }
    Ok(dir.join("bin/go"))
}

/// The least version that go.mod asks for, and the toolchain that it names: without a line of its own, that of this version.
fn wanted(go_mod: &str) -> Option<(Version, String)> {
    let least = go_mod.lines().find_map(|line| line.strip_prefix("go "))?.trim();
    let toolchain = go_mod.lines().find_map(|line| line.strip_prefix("toolchain "));
    let toolchain = toolchain.map_or_else(|| format!("go{least}"), |name| name.trim().to_owned());
    Some((version(&format!("go{least}"))?, toolchain))
}

/// The first `goX.Y[.Z]` in `text`.
fn version(text: &str) -> Option<Version> {
    let word = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go").filter(|rest| rest.starts_with(char::is_numeric)))?;
    let mut numbers = word.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

fn shown((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        assert_eq!(version("go version go1.19.8 linux/amd64"), Some((1, 19, 8)));
        assert_eq!(version("go version go1.27rc1 linux/amd64"), Some((1, 27, 0)));
        assert!(version("go version go1.9 linux/amd64") < version("go1.24.0"));
        assert_eq!(version("gopher"), None);
    }

    #[test]
    fn the_committed_go_mods_name_a_toolchain_that_suffices() {
        for module in [
            "xtask/helm",
            "xtask/jaeger",
            "xtask/containerd",
            "xtask/kubernetes",
            "xtask/kubernetes-1.28",
            "xtask/kwok",
            "xtask/otelcol",
            "xtask/krew",
            "xtask/pipelines",
            "xtask/prometheus",
            "xtask/registry",
            "tests/go-server",
            "tests/traffic-go",
        ] {
            let text = fs::read_to_string(shell::root().join(module).join("go.mod")).unwrap();
            let (least, toolchain) = wanted(&text).unwrap();
            assert!(version(&toolchain).unwrap() >= least, "{module}");
        }
    }

    #[test]
    fn a_program_is_named_as_go_build_names_it() {
        assert_eq!(name("k8s.io/kubernetes/cmd/kubelet"), "kubelet");
        assert_eq!(name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(name("helm.sh/helm/v4/cmd/helm"), "helm");
        assert_eq!(name("example/v"), "v");
        assert_eq!(name("example/cmd/containerd-shim-runc-v2"), "containerd-shim-runc-v2");
    }
}
