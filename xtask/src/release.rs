//! `cargo xtask release VERSION`: what a maintainer does for a release, in two calls of one command. Nothing outside of target/ changes
//! without `--write`, and nothing leaves the machine without `--push`.
//!
//! While the checkout has another version, or the changelog no section of this one: the changelog is cut, and the version is written wherever
//! it stands. Once both are there: programs, image, chart and packages are built, with checksums and a statement of where they come from.

mod check;
mod krew;
mod statement;
mod version;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use pico_args::Arguments;
use sha2::{Digest as _, Sha256};

use crate::{
    cluster, deb, debian,
    dist::{self, Arch},
    done, image, sbom, shell,
};

pub use self::check::task as test;

pub const FLAGS: &str = "VERSION [--write] | VERSION [--dev] [--one-arch] [--windows] [--push HOST/PREFIX] [--minisign KEY] [--builder URI] [--krew URL]";

/// Of the chart in a registry.
const CHART: &str = "charts";
/// What a cluster needs beside the chart, or in its place: manifests, values files, alerts and dashboard, examples.
const FILES: [&str; 6] = [
    "LICENSE",
    "deploy/alerts",
    "deploy/examples",
    "deploy/helm/values",
    "deploy/kubernetes",
    "deploy/pipelines",
];
/// Who built it, where nobody says.
const BUILDER: &str = "urn:epitaph:maintainer";

struct Options {
    dev: bool,
    /// This machine's alone: for trying.
    one_arch: bool,
    /// `kubectl epitaph` for Windows, too.
    windows: bool,
    push: Option<String>,
    key: Option<PathBuf>,
    builder: String,
    /// Where the archives of `kubectl epitaph` will be found.
    krew: Option<String>,
}

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let write = args.contains("--write");
    let options = Options {
        dev: args.contains("--dev"),
        one_arch: args.contains("--one-arch"),
        windows: args.contains("--windows"),
        push: args.opt_value_from_str("--push")?,
        key: args.opt_value_from_os_str("--minisign", |path| Ok::<_, std::convert::Infallible>(PathBuf::from(path)))?,
        builder: args.opt_value_from_str("--builder")?.unwrap_or_else(|| BUILDER.to_owned()),
        krew: args.opt_value_from_str("--krew")?,
    };
    let version: String = args
        .free_from_str()
        .context("which version? As in: cargo xtask release 1.2.0")?;
    done(args)?;
    let changelog = shell::root().join(version::CHANGELOG);
    let changelog = fs::read_to_string(&changelog).with_context(|| format!("reading {}", changelog.display()))?;
    let is_cut = version::is_cut(&changelog, &version);
    // What is built for trying needs no section.
    if version == dist::version() && (is_cut || options.dev) {
        ensure!(
            !write,
            "the checkout has version {version} already: leave --write out to build its artefacts"
        );
        ensure!(
            options.push.is_none() || !options.one_arch,
            "what is pushed is for amd64 and arm64: leave --one-arch out"
        );
        if options.push.is_some() {
            ensure!(is_cut, "CHANGELOG.md has no section of {version}: {}", first(&version));
            is_the_tags(&shell::root(), &version)?;
        }
        let made = artefacts(&options)?;
        if let Some(key) = &options.key {
            sign(key, &made.out)?;
        }
        match &options.push {
            Some(to) => {
                // A build takes long enough to change the checkout meanwhile.
                is_the_tags(&shell::root(), &version)?;
                push(&made.image, &made.chart, to)?;
            }
            None => shell::log(
                "nothing was pushed: --push HOST/PREFIX pushes the image to HOST/PREFIX/epitaph and the chart to HOST/PREFIX/charts",
            ),
        }
        println!("{}", made.out.display());
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        options.push.is_none() && options.key.is_none(),
        "the checkout has version {}, and CHANGELOG.md {} section of {version}: {}",
        dist::version(),
        if is_cut { "a" } else { "no" },
        first(&version)
    );
    prepare(&version, write)
}

fn first(version: &str) -> String {
    format!("first `cargo xtask release {version} --write`, a commit, and its tag")
}

/// The edits of a new version.
fn prepare(version: &str, write: bool) -> Result<ExitCode> {
    let read = |path: &str| fs::read_to_string(shell::root().join(path)).with_context(|| format!("reading {path}"));
    let today = shell::read(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let edits = version::edits(dist::version(), version, &today, &read)?;
    for edit in &edits {
        println!("{}", edit.shown());
        if write {
            let path = shell::root().join(edit.path);
            fs::write(&path, &edit.after).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    if write {
        // Cargo.lock has the workspace's own versions.
        shell::run_quietly(
            shell::cargo().args(["update", "--workspace", "--offline"]),
            "writing the version into Cargo.lock",
        )?;
    }
    shell::log(match write {
        true => format!(
            "written. Next: look at the changes, commit, `git tag v{version}`, `cargo xtask test`, `cargo xtask release {version}`"
        ),
        false => format!(
            "nothing was written: `cargo xtask release {version} --write` makes these changes, also in Cargo.lock; with --dev the present \
             version can be built for trying"
        ),
    });
    Ok(ExitCode::SUCCESS)
}

struct Made {
    /// The directory with all of it.
    out: PathBuf,
    image: image::Image,
    chart: PathBuf,
}

/// What is pushed as a version is the commit of its tag, with nothing changed.
fn is_the_tags(checkout: &Path, version: &str) -> Result<()> {
    let head = dist::revision_of(checkout).context("what is pushed is a commit's, and git gives none here")?;
    ensure!(
        !head.ends_with("-dirty"),
        "files differ from the commit: what is pushed must be a commit's; commit, or leave --push out"
    );
    // The chart and the archive of `deploy` are of the directory as it is.
    let untracked = dist::untracked(checkout, "deploy")?;
    ensure!(
        untracked.is_empty(),
        "these files are in no commit, and would be pushed: {}; commit them, or move them away",
        untracked.lines().collect::<Vec<_>>().join(", ")
    );
    let tagged = dist::tagged(checkout, version);
    ensure!(
        tagged.as_ref() == Some(&head),
        "the checkout is at {head}, and {}: what is pushed as {version} must be the commit of that tag. Check it out (git checkout \
         v{version}), or write another version (cargo xtask release NEXT --write)",
        match &tagged {
            Some(commit) => format!("the tag v{version} is {commit}"),
            None => format!("there is no tag v{version}"),
        }
    );
    Ok(())
}

/// Builds everything into a directory of the version.
fn artefacts(options: &Options) -> Result<Made> {
    let version = dist::version();
    if dist::revision().is_some_and(|revision| revision.ends_with("-dirty")) {
        shell::log("files differ from the commit: these artefacts are for trying only");
    }
    let out = shell::root().join("target/release-artefacts").join(version);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("removing {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let arches = arches(options)?;
    let epoch = dist::epoch()?;

    let image = image::build(&arches, options.dev, &format!("epitaph:{version}"))?;
    copy(&image.archive, &out)?;
    for (arch, of_pods) in arches.iter().zip(&image.programs) {
        // With kubeconfig, and for glibc before 2.36: not the image's.
        let program = if options.dev {
            of_pods.clone()
        } else {
            dist::build(*arch)?.program
        };
        archive_of_program(*arch, &program, &out, epoch)?;
    }
    for arch in &arches {
        copy(&deb::build_for(*arch, options.dev)?, &out)?;
    }
    krew::artefacts(options, &arches, &out, epoch)?;
    let chart = archive_of_chart(&out, epoch, options.push.as_deref())?;
    let files = out.join(format!("epitaph-deploy-{version}.tar.gz"));
    archive(&shell::root(), &FILES, &files, epoch, &[])?;
    if !options.dev {
        for arch in &arches {
            let (document, name) = (image::bill_of_materials(*arch), sbom::Program::of_pods(*arch).document);
            fs::copy(&document, out.join(format!("{name}.json"))).with_context(|| format!("copying {}", document.display()))?;
        }
        for program in sbom::of_release(&arches, options.windows) {
            sbom::write(&program, &out, epoch)?;
        }
    }
    let subjects = subjects(&out)?;
    let provenance = statement::provenance(&statement::Origin {
        version,
        revision: dist::revision(),
        source: dist::source(),
        builder: &options.builder,
        epoch,
        lock: digest(&shell::root().join("Cargo.lock"))?,
        image: &image.digest,
        subjects: &subjects,
    });
    write(&out.join("provenance.intoto.json"), &provenance)?;
    // With the statement in it.
    let sums: String = self::subjects(&out)?
        .iter()
        .map(|(name, digest)| format!("{digest}  {name}\n"))
        .collect();
    write(&out.join("SHA256SUMS"), &sums)?;
    shell::log(format_args!("the image is {}", image.digest));
    Ok(Made { out, image, chart })
}

/// This machine's first.
fn arches(options: &Options) -> Result<Vec<Arch>> {
    let host = Arch::host()?;
    if options.one_arch {
        return Ok(vec![host]);
    }
    ensure!(
        host == Arch::Amd64,
        "programs for both architectures are built on amd64: --one-arch builds those of this machine, for trying"
    );
    Ok(vec![host, Arch::Arm64])
}

fn copy(file: &Path, to: &Path) -> Result<()> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
    fs::copy(file, to.join(name))
        .map(drop)
        .with_context(|| format!("copying {}", file.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// The program with its units and licence: for hosts without the package.
fn archive_of_program(arch: Arch, program: &Path, out: &Path, epoch: i64) -> Result<()> {
    let name = format!("epitaph-{}-linux-{}", dist::version(), arch.name());
    let dir = emptied(&name)?;
    fs::copy(program, dir.join("epitaph")).with_context(|| format!("copying {}", program.display()))?;
    for file in [
        "LICENSE",
        "deploy/epitaph.toml",
        "deploy/epitaph.sysusers",
        "deploy/epitaph.service",
        "deploy/epitaph-logind.service",
        "deploy/epitaph-logind.socket",
    ] {
        copy(&shell::root().join(file), &dir)?;
    }
    let parent = dir.parent().context("a directory has a parent")?;
    archive(parent, &[&name], &out.join(format!("{name}.tar.gz")), epoch, &[])
}

/// As `helm package`, which gives each archive another time. The name is that of `helm pull`, so that the checksums fit what is pulled.
/// `pushed`: where the image will be, HOST/PREFIX.
fn archive_of_chart(out: &Path, epoch: i64, pushed: Option<&str>) -> Result<PathBuf> {
    let tree = emptied("chart")?;
    shell::run_quietly(
        Command::new("cp")
            .arg("-r")
            .arg(shell::root().join("deploy/helm/epitaph"))
            .arg(&tree),
        "copying the chart",
    )?;
    let metadata = tree.join("epitaph/Chart.yaml");
    let text = fs::read_to_string(&metadata).with_context(|| format!("reading {}", metadata.display()))?;
    write(&metadata, &described(&text, dist::source().as_deref(), pushed)?)?;
    let to = out.join(format!("epitaph-{}.tgz", dist::version()));
    let ignored = ["--exclude=*.orig", "--exclude=*.swp", "--exclude=*.tgz"];
    archive(&tree, &["epitaph"], &to, epoch, &ignored)?;
    // helm writes the file's time into the manifest that it pushes.
    let time = Duration::from_secs(u64::try_from(epoch).context("the time of the commit is before 1970")?);
    File::options()
        .append(true)
        .open(&to)
        .and_then(|file| file.set_modified(UNIX_EPOCH + time))
        .with_context(|| format!("setting the time of {}", to.display()))?;
    Ok(to)
}

/// Chart.yaml with what is not known in the checkout, for Artifact Hub: where the source is, and which image the chart has.
fn described(chart: &str, source: Option<&str>, pushed: Option<&str>) -> Result<String> {
    const ANNOTATIONS: &str = "\nannotations:\n";
    let (before, annotations) = chart.split_once(ANNOTATIONS).context("Chart.yaml has no annotations")?;
    let links = source
        .map(|url| format!("\nhome: {url}\nsources: [{url}]"))
        .unwrap_or_default();
    let images = pushed.map(|to| {
        let image = format!("{to}/epitaph:{}", dist::version());
        format!(
            "  artifacthub.io/images: |\n    - {{name: epitaph, image: {image:?}, platforms: [linux/amd64, linux/arm64]}}\n"
        )
    });
    Ok(format!(
        "{before}{links}{ANNOTATIONS}{}{annotations}",
        images.unwrap_or_default()
    ))
}

/// A directory below target/release-artefacts/tree.
fn emptied(name: &str) -> Result<PathBuf> {
    let dir = shell::root().join("target/release-artefacts/tree").join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

/// The same files give the same bytes: names in order, one time, one owner, no name of the machine.
fn archive(dir: &Path, names: &[&str], to: &Path, epoch: i64, flags: &[&str]) -> Result<()> {
    let tar = to.with_extension("tar");
    let mut command = Command::new("tar");
    command
        .current_dir(dir)
        .args([
            "--create",
            "--format=ustar",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .args(["--mode=u+rw,go+r-w,a+X", &format!("--mtime=@{epoch}")])
        .args(flags)
        .arg("--file")
        .arg(&tar)
        .args(names);
    shell::run_quietly(&mut command, &format!("writing {}", to.display()))?;
    let mut gzip = Command::new("gzip");
    let output = gzip
        .args(["--best", "--no-name", "--stdout"])
        .arg(&tar)
        .output()
        .context("running gzip")?;
    ensure!(output.status.success(), "gzip: {}", String::from_utf8_lossy(&output.stderr));
    fs::write(to, output.stdout).with_context(|| format!("writing {}", to.display()))?;
    fs::remove_file(&tar).with_context(|| format!("removing {}", tar.display()))
}

/// The files so far, by name, with their digests.
fn subjects(out: &Path) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(out).with_context(|| format!("reading {}", out.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.push((name, digest(&path)?));
    }
    all.sort();
    Ok(all)
}

fn digest(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `SHA256SUMS.minisig`: one signature for all files.
fn sign(key: &Path, out: &Path) -> Result<()> {
    debian::ensure(&["minisign"], "signing the checksums")?;
    let mut command = Command::new("minisign");
    command.arg("-S").arg("-s").arg(key).arg("-m").arg(out.join("SHA256SUMS"));
    shell::run(&mut command, "signing the checksums")
}

fn push(image: &image::Image, chart: &Path, to: &str) -> Result<()> {
    if to.ends_with('/') || to.contains("://") {
        bail!("--push {to}: write HOST/PREFIX, without a scheme and without a / at the end");
    }
    let (of_image, of_chart) = (format!("{to}/epitaph:{}", dist::version()), chart_at(to));
    // Both before the first push: half of a release is none.
    let published = [
        (&of_image, image::published("digest", &of_image)?, image.digest.clone()),
        // A chart is the only layer of its manifest.
        (
            &of_chart,
            image::published("manifest", &of_chart)?,
            format!("sha256:{}", digest(chart)?),
        ),
    ];
    for (reference, published, ours) in published {
        ensure!(
            published.is_none_or(|published| published.contains(&ours)),
            "{reference} is published, and is not what was built here ({ours}): a published version does not change. Write another one \
             (cargo xtask release NEXT --write)"
        );
    }
    image::push(image, &of_image)?;
    let mut helm = Command::new(cluster::helm()?);
    helm.arg("push").arg(chart).arg(format!("oci://{to}/{CHART}"));
    if image::is_on_loopback(to) {
        helm.arg("--plain-http");
    }
    shell::run_quietly(&mut helm, &format!("pushing the chart to oci://{to}/{CHART}"))
}

/// The chart of this version in a registry.
fn chart_at(prefix: &str) -> String {
    format!("{prefix}/{CHART}/epitaph:{}", dist::version())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_chart_names_its_source_and_its_image() {
        let chart = fs::read_to_string(shell::root().join("deploy/helm/epitaph/Chart.yaml")).expect("the chart");
        let (url, version) = ("https://git.example/team/epitaph", dist::version());
        let packaged = described(&chart, Some(url), Some("registry.example/team")).expect("annotations");
        // Fields of the chart before the annotations, and the image among them.
        let (fields, annotations) = packaged.split_once("\nannotations:\n").expect("annotations");
        assert!(fields.ends_with(&format!("\nhome: {url}\nsources: [{url}]")), "{fields}");
        let image =
            format!("  artifacthub.io/images: |\n    - {{name: epitaph, image: \"registry.example/team/epitaph:{version}\", ");
        assert!(annotations.starts_with(&image), "{annotations}");
        // Nothing is said where nothing is known.
        assert_eq!(described(&chart, None, None).expect("annotations"), chart);
    }

    #[test]
    fn only_the_commit_of_the_versions_tag_is_pushed() {
        let dir = std::env::temp_dir().join(format!("epitaph-tag-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(&dir)
                .args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
            // Nobody's own settings: they may sign commits.
            git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
            shell::read(git.args(args)).expect("git")
        };
        let commit = |text: &str| {
            fs::write(dir.join("file"), text).expect("a file");
            git(&["add", "file"]);
            git(&["commit", "--quiet", "--message", text]);
        };
        let refused = |what: &str| {
            let error = is_the_tags(&dir, "1.2.0").expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        };
        git(&["init", "--quiet"]);
        refused("git gives none here");
        commit("one");
        refused("there is no tag v1.2.0");
        git(&["tag", "--annotate", "--message", "1.2.0", "v1.2.0"]);
        is_the_tags(&dir, "1.2.0").expect("the commit of the tag");
        fs::write(dir.join("file"), "changed").expect("a file");
        refused("files differ from the commit");
        git(&["checkout", "--quiet", "file"]);
        fs::create_dir_all(dir.join("deploy/chart")).expect("a directory");
        fs::write(dir.join("deploy/chart/values-prod.yaml"), "password").expect("a file");
        refused("deploy/chart/values-prod.yaml");
        fs::remove_dir_all(dir.join("deploy")).expect("the directory is ours");
        commit("two");
        refused("the tag v1.2.0 is ");
        // A branch of that name is no tag.
        git(&["tag", "--delete", "v1.2.0"]);
        git(&["branch", "v1.2.0"]);
        refused("there is no tag v1.2.0");
        fs::remove_dir_all(&dir).expect("the directory is ours");
    }
}
