//! The container image, without a Docker daemon: the built files and what the image has beside them → an OCI layout and archive.

mod check;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{
    agent, arm64, debian,
    dist::{self, Arch},
    done, go, sbom, shell,
};

pub use self::check::{Registry, task as test};

pub const FLAGS: &str = "[--dev] [--arm64] [--name NAME:TAG] [--push HOST/REPOSITORY:TAG]";

const CRANE: &str = "github.com/google/go-containerregistry/cmd/crane";
const REGISTRY: &str = "github.com/distribution/distribution/v3/cmd/registry";
const DESCRIPTION: &str = "Why containers and systemd units terminated, with proof from the kernel";

pub struct Image {
    pub layout: PathBuf,
    pub archive: PathBuf,
    pub digest: String,
    /// `amd64 9000000`: compressed bytes.
    pub sizes: Vec<String>,
    /// For each architecture.
    pub programs: Vec<PathBuf>,
}

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    let arm64 = args.contains("--arm64");
    let name: Option<String> = args.opt_value_from_str("--name")?;
    let push: Option<String> = args.opt_value_from_str("--push")?;
    done(args)?;
    if let Some(to) = &push
        && !to.split('/').next_back().is_some_and(|last| last.contains(':'))
    {
        bail!("--push {to}: a tag is missing, as in HOST/REPOSITORY:TAG");
    }
    let name = name.or_else(|| push.clone()).unwrap_or_else(|| "epitaph:dev".to_owned());
    let mut arches = vec![Arch::host()?];
    if arm64 && arches != [Arch::Arm64] {
        arches.push(Arch::Arm64);
    }
    let image = build(&arches, dev, &name)?;
    if let Some(to) = &push {
        self::push(&image, to)?;
    }
    for line in &image.sizes {
        shell::log(format_args!("{line} bytes, compressed"));
    }
    shell::log(format_args!("{name} is {}", image.digest));
    println!("{}", image.archive.display());
    Ok(ExitCode::SUCCESS)
}

/// The image for `arches`, to be imported as `name`. With `dev` of the unoptimised binary, and without a list of its crates.
pub fn build(arches: &[Arch], dev: bool, name: &str) -> Result<Image> {
    debian::ensure(&["ca-certificates"], "the image's certificates")?;
    let out = shell::root().join("target/image");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let epoch = dist::epoch()?;
    let (mut words, mut programs): (Vec<OsString>, _) = (Vec::new(), Vec::new());
    for arch in arches {
        let program = if dev {
            // Its debug information would be most of the image.
            let program = out.join(format!("epitaph-{}", arch.name()));
            dist::strip(*arch, &dist::whole(*arch, false)?, &program)?;
            program
        } else {
            dist::build_for_pods(*arch)?.program
        };
        words.extend(["--program".into(), by_arch(*arch, &program)]);
        if *arch != Arch::host()? {
            words.extend(["--root".into(), by_arch(*arch, &arm64::system()?)]);
        }
        programs.push(program);
        if !dev {
            let crates = sbom::write(&sbom::Program::of_pods(*arch), &out, epoch)?;
            words.extend(["--crates".into(), by_arch(*arch, &crates)]);
        }
    }
    let licence = shell::root().join("LICENSE");
    words.extend(["--licence".into(), licence.into(), "--out".into(), out.clone().into()]);
    let texts = [
        ("--name", name.to_owned()),
        ("--version", dist::version().to_owned()),
        ("--description", DESCRIPTION.to_owned()),
        (
            "--licences",
            format!("{} AND (MIT OR GPL-2.0-only)", env!("CARGO_PKG_LICENSE")),
        ),
        ("--created", epoch.to_string()),
        ("--checkout", shell::root().display().to_string()),
    ];
    let optional = [("--revision", dist::revision()), ("--source", dist::source())];
    let optional = optional.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    for (flag, value) in texts.into_iter().chain(optional) {
        words.extend([flag.into(), value.into()]);
    }
    let built = agent::Built::of(&["--package", "epitaph-image", "--bins"], "building the program `image`")?;
    let output = shell::read(Command::new(built.bin("image")?).args(&words).env("PATH", shell::path()))?;
    let mut lines = output.lines().map(str::to_owned);
    Ok(Image {
        layout: out.join("layout"),
        archive: out.join(format!("epitaph-{}.oci.tar", dist::version())),
        digest: lines.next().context("the program `image` printed no digest")?,
        sizes: lines.collect(),
        programs,
    })
}

/// Pushes the index, and with it the images of all architectures. Credentials are those of `docker login` or `crane auth login`.
pub fn push(image: &Image, to: &str) -> Result<()> {
    let mut crane = Command::new(crane()?);
    if is_on_loopback(to) {
        crane.arg("--insecure");
    }
    crane.arg("push").arg(&image.layout).arg(to);
    shell::run_quietly(&mut crane, &format!("pushing the image to {to}"))
}

/// What a registry has at `reference`: its `digest` or `manifest`. None: nothing.
///
/// # Errors
/// The registry does not answer, or refuses.
pub fn published(what: &str, reference: &str) -> Result<Option<String>> {
    // The codes of the specification, and Harbor's; a registry without them has the status.
    const ABSENT: [&str; 4] = ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND", "404 Not Found"];
    let mut crane = Command::new(crane()?);
    if is_on_loopback(reference) {
        crane.arg("--insecure");
    }
    match shell::read(crane.args([what, reference])) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if ABSENT.iter().any(|code| error.to_string().contains(code)) => Ok(None),
        Err(error) => Err(error.context(format!("cannot see whether {reference} is published already"))),
    }
}

/// Such a registry has no certificate.
pub fn is_on_loopback(to: &str) -> bool {
    to.starts_with("127.0.0.1:") || to.starts_with("localhost:")
}

/// Of the last image that was built without `dev`: beside its archive, and the same as in the image.
pub fn bill_of_materials(arch: Arch) -> PathBuf {
    shell::root()
        .join("target/image")
        .join(format!("epitaph-{}-{}.cdx.json", dist::version(), arch.name()))
}

/// The client of registries.
pub fn crane() -> Result<PathBuf> {
    go::build(&module(), CRANE, "half a minute")
}

/// A registry, for the tests.
pub fn registry() -> Result<PathBuf> {
    go::build(&module(), REGISTRY, "two minutes")
}

fn module() -> PathBuf {
    shell::root().join("xtask/registry")
}

fn by_arch(arch: Arch, file: &Path) -> OsString {
    let mut word = OsString::from(format!("{}=", arch.name()));
    word.push(file);
    word
}
