//! `cargo xtask test release`: two builds give the same bytes, the second of which compiles every crate of the workspace anew; what a
//! registry gives back is what was pushed, and a second push is the same; the signature is that of the key.

use std::{
    fs,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;

use super::{BUILDER, CHART, Made, Options, archive_of_chart, artefacts, chart_at, push, sign};
use crate::{
    arm64, cluster, debian,
    dist::{self, Arch},
    done, image, platforms,
    shell::{self, log},
};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let options = Options {
        dev: args.contains("--dev"),
        one_arch: args.contains("--one-arch"),
        windows: args.contains("--windows"),
        push: None,
        key: None,
        builder: BUILDER.to_owned(),
        krew: None,
    };
    done(args)?;
    let revision = dist::revision();
    let first = sums(&artefacts(&options)?.out)?;
    forget(&options)?;
    let made = artefacts(&options)?;
    ensure!(
        dist::revision() == revision,
        "the checkout changed between the two builds, and the artefacts name its revision: run this task again"
    );
    let second = sums(&made.out)?;
    ensure!(first == second, "two builds differ:\n{first}\n{second}");
    log(format_args!(
        "two builds of {} artefacts have the same bytes",
        first.lines().count()
    ));
    let mut check = Command::new("sha256sum");
    check.current_dir(&made.out).args(["--check", "--strict", "SHA256SUMS"]);
    shell::run_quietly(&mut check, "checking the checksums")?;

    let dir = std::env::temp_dir().join(format!("epitaph-release-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let checked = through_registry(&made, &dir)
        .and_then(|()| signed(&made.out, &dir))
        .and_then(|()| super::krew::installs(&made.out, &dir));
    fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    checked?;
    println!("1 passed, 0 failed");
    Ok(ExitCode::SUCCESS)
}

/// Removes what cargo has built of the workspace for a release: otherwise the second build would compare files with themselves.
fn forget(options: &Options) -> Result<()> {
    const PACKAGES: [&str; 5] = ["epitaph", "epitaph-core", "epitaph-ebpf", "epitaph-story", "kubectl-epitaph"];
    let target = |arch: Arch| Some(arch.target());
    let host = Arch::host()?;
    // Directory below target/, and the target that cargo was given there.
    let mut builds = vec![("", None)];
    for arch in super::arches(options)? {
        if !options.dev {
            builds.push(("pods", target(arch)));
        }
        if arch != host {
            builds.push((arm64::DIRECTORY, target(arch)));
        }
    }
    let windows = format!("{}/{}", platforms::DIRECTORY, platforms::WINDOWS);
    if options.windows {
        builds.push((&windows, Some(platforms::WINDOWS)));
    }
    for (directory, target) in builds {
        let mut clean = shell::cargo();
        clean
            .args(["clean", "--locked", "--offline", "--target-dir"])
            .arg(shell::root().join("target").join(directory));
        clean.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
        clean.args((!options.dev).then_some("--release"));
        clean.args(target.into_iter().flat_map(|target| ["--target", target]));
        shell::run_quietly(
            &mut clean,
            &format!("removing the workspace's own crates from target/{directory}"),
        )?;
    }
    Ok(())
}

fn sums(out: &Path) -> Result<String> {
    fs::read_to_string(out.join("SHA256SUMS")).context("reading SHA256SUMS")
}

fn through_registry(made: &Made, dir: &Path) -> Result<()> {
    let registry = image::Registry::start(dir)?;
    let prefix = format!("{}/team", registry.host);
    push(&made.image, &made.chart, &prefix)?;
    let reference = format!("{prefix}/epitaph:{}", dist::version());
    let digest = shell::read(Command::new(image::crane()?).args(["--insecure", "digest", &reference]))?;
    ensure!(
        digest == made.image.digest,
        "the registry's digest is {digest}, not {}",
        made.image.digest
    );
    let mut pull = Command::new(cluster::helm()?);
    pull.args([
        "pull",
        &format!("oci://{prefix}/{CHART}/epitaph"),
        "--version",
        dist::version(),
    ])
    .args(["--plain-http", "--destination"])
    .arg(dir);
    shell::run_quietly(&mut pull, "pulling the chart")?;
    let back = dir.join(format!("epitaph-{}.tgz", dist::version()));
    let there = fs::read(&back).with_context(|| format!("reading {}", back.display()))?;
    ensure!(there == fs::read(&made.chart)?, "the chart came back another");
    // As docs/releases.md has it; it fails where the checksums have no file of that name.
    let mut check = Command::new("sha256sum");
    check.current_dir(dir).args(["--check", "--strict", "--ignore-missing"]);
    shell::run_quietly(
        check.arg(made.out.join("SHA256SUMS")),
        "checking the pulled chart by the release's checksums",
    )?;
    // The same chart, packed once more, and pushed by another call.
    let of_chart = |prefix: &str| shell::read(Command::new(image::crane()?).args(["--insecure", "digest", &chart_at(prefix)]));
    let first = of_chart(&prefix)?;
    let again = format!("{}/again", registry.host);
    let chart = archive_of_chart(&made.out, dist::epoch()?, None)?;
    push(&made.image, &chart, &again)?;
    let second = of_chart(&again)?;
    ensure!(
        first == second,
        "two pushes of the chart have the digests {first} and {second}"
    );
    log("image and chart were pushed to a registry; the digests and the chart's bytes are the same, also of a second push");
    never_over_another(made, &registry.host)
}

/// A release that is published stays: neither image nor chart takes the place of another.
fn never_over_another(made: &Made, host: &str) -> Result<()> {
    let of_image = |prefix: &str| format!("{prefix}/epitaph:{}", dist::version());
    for (at, reference) in [
        ("image", &of_image as &dyn Fn(&str) -> String),
        ("chart", &|prefix: &str| chart_at(prefix)),
    ] {
        let prefix = format!("{host}/taken-{at}");
        let reference = reference(&prefix);
        let mut other = Command::new(image::crane()?);
        other.args(["--insecure", "append", "--new_tag", &reference, "--new_layer"]);
        other.arg(made.out.join(format!("epitaph-deploy-{}.tar.gz", dist::version())));
        shell::run_quietly(&mut other, &format!("pushing another {at} to {reference}"))?;
        let before = image::published("digest", &reference)?;
        let refused = push(&made.image, &made.chart, &prefix);
        ensure!(
            refused.is_err_and(|error| error.to_string().contains("is published")),
            "a push went over another {at}"
        );
        ensure!(image::published("digest", &reference)? == before, "{reference} has changed");
        // Neither of both, before it is known of both.
        let both = [of_image(&prefix), chart_at(&prefix)];
        let there = both.iter().map(|one| image::published("digest", one));
        let there = there.collect::<Result<Vec<_>>>()?.into_iter().flatten().count();
        ensure!(there == 1, "half of a release was pushed to {prefix}");
    }
    // The same once more is no other.
    let prefix = format!("{host}/team");
    push(&made.image, &made.chart, &prefix)?;
    log("no push went over another image or chart; the same release can be pushed again");
    Ok(())
}

fn signed(out: &Path, dir: &Path) -> Result<()> {
    debian::ensure(&["minisign"], "signing the checksums")?;
    let (key, public) = (dir.join("key"), dir.join("key.pub"));
    let mut generate = Command::new("minisign");
    generate.args(["-G", "-W", "-p"]).arg(&public).arg("-s").arg(&key);
    shell::run_quietly(&mut generate, "making a key")?;
    sign(&key, out)?;
    let verify = |what: &str| {
        let mut verify = Command::new("minisign");
        verify.arg("-V").arg("-p").arg(&public).arg("-m").arg(out.join("SHA256SUMS"));
        shell::run_quietly(&mut verify, what)
    };
    verify("verifying the signature")?;
    let file = out.join("SHA256SUMS");
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.replacen('0', "1", 1))?;
    let forged = verify("verifying changed checksums, which must fail");
    fs::write(&file, text)?;
    ensure!(forged.is_err(), "the signature fits changed checksums");
    Ok(())
}
