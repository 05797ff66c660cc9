//! `cargo xtask test image`: builder, registry and containerd agree on the image's digest, and the sizes are within their goals.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use pico_args::Arguments;

use super::{Image, build, crane, push, registry};
use crate::{
    cluster,
    dist::{self, Arch},
    done,
    shell::{self, log},
};

const NAME: &str = "localhost/epitaph:checked";
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// Of the image's program, of the program of the Debian package, and of the compressed image: the goal of docs/install.md, and what may not be
/// exceeded, about two per cent above the last measurement there. A goal that is missed does not fail: otherwise nobody would see growth.
const BOUNDS: [(&str, u64, u64); 3] = [
    ("the image's program", 10 * MIB, 12 * MIB + 400 * KIB),
    ("the program with all features", 16 * MIB, 14 * MIB + 600 * KIB),
    ("the image, compressed", 20 * MIB, 7 * MIB + 200 * KIB),
];

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let (dev, size) = (args.contains("--dev"), args.contains("--size"));
    done(args)?;
    if size {
        return of_program(&dist::build_for_pods(Arch::host()?)?.program);
    }
    if !shell::is_root() {
        bail!("containerd needs root: run this task as root");
    }
    let arches = [Arch::host()?];
    let revision = dist::revision();
    let image = build(&arches, dev, NAME)?;
    let again = build(&arches, dev, NAME)?;
    ensure!(
        dist::revision() == revision,
        "the checkout changed between the two builds, and the image names its revision: run this task again"
    );
    ensure!(
        image.digest == again.digest,
        "the same files gave the digest {}, then {}",
        image.digest,
        again.digest
    );
    log("two builds of the image have one digest");
    // A socket's path is short.
    let dir = std::env::temp_dir().join(format!("epitaph-image-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let checked = through_registry(&image, &dir).and_then(|()| through_containerd(&image, &dir));
    fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    checked?;
    if dev {
        println!("the goals for sizes hold for the optimised binary: without --dev");
        return Ok(ExitCode::SUCCESS);
    }
    is_for_pods(&image)?;
    sizes(&image)
}

/// A real registry on the loopback, with its files in a directory; ended when dropped.
pub struct Registry {
    /// `127.0.0.1:PORT`
    pub host: String,
    _daemon: Daemon,
}

impl Registry {
    pub fn start(dir: &Path) -> Result<Registry> {
        let config = dir.join("registry.yml");
        let storage = dir.join("registry");
        let text = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            storage.display()
        );
        fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
        let mut command = Command::new(registry()?);
        command.arg("serve").arg(&config).env_remove("OTEL_TRACES_EXPORTER");
        let mut daemon = Daemon::start("registry", &mut command, dir)?;
        let host = daemon.until(|daemon| listening_at(&daemon.logged()))?;
        Ok(Registry { host, _daemon: daemon })
    }
}

/// The registry logs the address that it got.
fn listening_at(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("listening on ")?;
    let address: String = rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
    rest[address.len()..].starts_with('"').then_some(address)
}

/// Pushed to a real registry on the loopback and pulled again: the same digest and the same bytes.
fn through_registry(image: &Image, dir: &Path) -> Result<()> {
    let registry = Registry::start(dir)?;
    let reference = format!("{}/team/epitaph:0.1", registry.host);
    push(image, &reference)?;
    let digest = shell::read(Command::new(crane()?).args(["--insecure", "digest", &reference]))?;
    ensure!(
        digest == image.digest,
        "the registry's digest is {digest}, not {}",
        image.digest
    );
    let back = dir.join("pulled");
    let mut pull = Command::new(crane()?);
    pull.args(["--insecure", "pull", "--format=oci", &reference]).arg(&back);
    shell::run_quietly(&mut pull, "pulling the image")?;
    let blobs = Path::new("blobs/sha256");
    let mut count = 0;
    for entry in fs::read_dir(image.layout.join(blobs)).context("listing the layout's blobs")? {
        let blob = blobs.join(entry?.file_name());
        let there = fs::read(back.join(&blob)).with_context(|| format!("{} was not pulled", blob.display()))?;
        ensure!(
            there == fs::read(image.layout.join(&blob))?,
            "{} came back another",
            blob.display()
        );
        count += 1;
    }
    log(format_args!(
        "pushed to a registry and pulled: {digest}, {count} blobs, byte for byte"
    ));
    Ok(())
}

/// Imported and unpacked by a containerd of its own.
fn through_containerd(image: &Image, dir: &Path) -> Result<()> {
    let mut programs = cluster::programs(&["containerd", "ctr"])?;
    let mut program = |name: &str| programs.remove(name).with_context(|| format!("{name} was not built"));
    let (containerd, ctr) = (program("containerd")?, program("ctr")?);
    let config = dir.join("containerd.toml");
    // The Kubernetes plugins would look for a network's configuration.
    let disabled = "\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"";
    fs::write(&config, format!("version = 3\ndisabled_plugins = [{disabled}]\n"))
        .with_context(|| format!("writing {}", config.display()))?;
    let socket = dir.join("c.sock");
    let mut command = Command::new(containerd);
    command.arg("--config").arg(&config).arg("--address").arg(&socket);
    command
        .arg("--root")
        .arg(dir.join("root"))
        .arg("--state")
        .arg(dir.join("state"));
    let mut daemon = Daemon::start("containerd", &mut command, dir)?;
    let ctr = |args: &[&str]| {
        let mut command = Command::new(&ctr);
        command.arg("--address").arg(&socket).args(args);
        command
    };
    daemon.until(|_| shell::succeeds(&mut ctr(&["version"])).then_some(()))?;
    // --local: the daemon's own importer unpacks only for platforms in its configuration. native: works on every file system.
    let mut import = ctr(&["images", "import", "--local", "--snapshotter", "native"]);
    shell::run_quietly(import.arg(&image.archive), "importing the image into containerd")?;
    let list = shell::read(&mut ctr(&["images", "list"]))?;
    let line = list.lines().find(|line| line.starts_with(NAME));
    let line = line.with_context(|| format!("containerd does not list {NAME}: {list}"))?;
    ensure!(line.contains(&image.digest), "containerd lists another digest: {line}");
    log(format_args!("imported and unpacked by containerd: {}", image.digest));
    Ok(())
}

/// The program that is in the image starts, and has the features for pods.
fn is_for_pods(image: &Image) -> Result<()> {
    let program = image.programs.first().context("the image has no program")?;
    let mut agent = Command::new(program);
    agent.args(["agent", "--listen", "off", "--node-name", "node", "--kubeconfig", "/dev/null"]);
    let ran = agent.output().with_context(|| format!("running {}", program.display()))?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    ensure!(
        !ran.status.success() && errors.contains("built for pods"),
        "the image's program takes a kubeconfig: {}, {errors}",
        ran.status
    );
    log("the image's program is the one for pods");
    Ok(())
}

/// `--size`: the image's program alone, without containerd and without the build of the other one.
fn of_program(program: &Path) -> Result<ExitCode> {
    let [(what, goal, most), ..] = BOUNDS;
    let size = length(program)?;
    println!("{}", shown(what, size, goal, most));
    Ok(if size <= most { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn sizes(image: &Image) -> Result<ExitCode> {
    let program = image.programs.first().context("the image has no program")?;
    let compressed = image.sizes.first().and_then(|line| line.split_once(' ')?.1.parse().ok());
    let measured = [
        length(program)?,
        length(&dist::build(Arch::host()?)?.program)?,
        compressed.context("the image's size is not known")?,
    ];
    let (mut failed, mut missed) = (0, 0);
    for ((what, goal, most), size) in BOUNDS.into_iter().zip(measured) {
        failed += usize::from(size > most);
        missed += usize::from(size > goal);
        println!("{}", shown(what, size, goal, most));
    }
    // What passed before: two digests, registry, containerd, the program's features.
    let passed = 4 + measured.len() - failed;
    let goals = match missed {
        0 => String::new(),
        _ => format!(", goals missed: {missed}"),
    };
    println!("{passed} passed, {failed} failed, 0 skipped{goals}");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shown(what: &str, size: u64, goal: u64, most: u64) -> String {
    let reached = if size <= goal { "reached" } else { "MISSED" };
    let grown = if size <= most { "not exceeded" } else { "EXCEEDED" };
    format!(
        "{what}: {}; goal {}: {reached}; bound {}: {grown}",
        mib(size),
        mib(goal),
        mib(most)
    )
}

fn length(program: &Path) -> Result<u64> {
    let metadata = fs::metadata(program).with_context(|| format!("measuring {}", program.display()))?;
    Ok(metadata.len())
}

fn mib(bytes: u64) -> String {
    let tenths = bytes * 10 / MIB;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// Ended when dropped.
struct Daemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    fn start(name: &'static str, command: &mut Command, dir: &Path) -> Result<Daemon> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let command = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Daemon { name, child, log })
    }

    fn until<T>(&mut self, ready: impl Fn(&Daemon) -> Option<T>) -> Result<T> {
        let found = shell::found_within(Duration::from_secs(60), || {
            let found = ready(self);
            if let (None, Some(status)) = (&found, self.child.try_wait()?) {
                bail!("{} ended with {status}: {}", self.name, self.logged());
            }
            Ok(found)
        })?;
        found.with_context(|| format!("{} was not ready within a minute: {}", self.name, self.logged()))
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_tenths() {
        assert_eq!(mib(10 * MIB), "10.0 MiB");
        assert_eq!(mib(MIB + MIB / 2), "1.5 MiB");
        assert_eq!(mib(0), "0.0 MiB");
    }

    #[test]
    fn a_missed_goal_and_a_size_that_grew_are_told_apart() {
        let line = |size| shown("program", size, 10 * MIB, 12 * MIB);
        assert_eq!(
            line(10 * MIB),
            "program: 10.0 MiB; goal 10.0 MiB: reached; bound 12.0 MiB: not exceeded"
        );
        assert!(line(12 * MIB).ends_with("MISSED; bound 12.0 MiB: not exceeded"));
        assert!(line(12 * MIB + 1).ends_with("MISSED; bound 12.0 MiB: EXCEEDED"));
    }

    #[test]
    fn the_registrys_address_is_read_once_its_line_is_whole() {
        let line = r#"time="2026" level=info msg="listening on 127.0.0.1:43211" go.version=go1"#;
        assert_eq!(listening_at(line).as_deref(), Some("127.0.0.1:43211"));
        assert_eq!(listening_at(&line[..line.find("3211").unwrap()]), None);
    }
}
