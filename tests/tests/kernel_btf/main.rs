//! What the probes find in a kernel's type information (BTF), on many kernels and without booting one.
//!
//! `cargo xtask test` takes the BTF of Debian's kernels out of their packages and names the directory in `EPITAPH_KERNEL_BTF`.
//! The running kernel is checked too. An unknown kernel that is not as expected is reported but does not fail: a new upload of
//! Debian's is not a mistake here. `cargo xtask test kernels` sets `EPITAPH_KERNEL_BTF_STRICT`, and such a kernel fails.

mod expected;

use std::fs;
use std::path::{Path, PathBuf};

use epitaph::source::kernel::btf::{Layout, SYS_BTF};
use epitaph::source::kernel::probes::{self, Choice, PROBES};
use epitaph_ebpf::{ABSENT, Field};
use epitaph_tests::skip::skip;
use expected::Release;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let args = Arguments::from_args();
    #[expect(clippy::disallowed_methods, reason = "set by cargo xtask for this program alone")]
    let strict = std::env::var_os("EPITAPH_KERNEL_BTF_STRICT").is_some();
    let mut trials = vec![Trial::test("kernel_btf::running", running)];
    for (version, path) in extracted() {
        trials.push(Trial::test(format!("kernel_btf::{version}"), move || {
            match packaged(&version, &path) {
                Err(problems) if !strict && !expected::KNOWN.contains(&&*version) => {
                    // On standard error, for the other is the test runner's.
                    eprintln!("note: kernel {version} is new here, and not as expected:\n{problems}");
                    Ok(())
                }
                outcome => outcome.map_err(Failed::from),
            }
        }));
    }
    libtest_mimic::run(&args, trials).exit();
}

/// In place of a kernel's types: why they could not be had.
const BROKEN: &str = ".broken";

/// Version and file of each.
fn extracted() -> Vec<(String, PathBuf)> {
    #[expect(clippy::disallowed_methods, reason = "set by cargo xtask test for this program alone")]
    let Some(dir) = std::env::var_os("EPITAPH_KERNEL_BTF") else {
        skip(
            "kernel-btf-all",
            "EPITAPH_KERNEL_BTF names no directory: `cargo xtask test` fills one",
        );
        return Vec::new();
    };
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("list {}: {error}", Path::new(&dir).display()));
    let mut kernels: Vec<_> = files
        .map(|file| file.expect("list the kernels").path())
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)))
        .filter(|(version, _)| !version.starts_with('.'))
        .map(|(name, path)| (name.strip_suffix(BROKEN).unwrap_or(&name).to_owned(), path))
        .collect();
    kernels.sort();
    kernels
}

/// A Debian kernel has what its release has.
fn packaged(version: &str, path: &Path) -> Result<(), String> {
    if path.to_str().is_some_and(|path| path.ends_with(BROKEN)) {
        return Err(fs::read_to_string(path).unwrap_or_else(|error| format!("{}: {error}", path.display())));
    }
    let release = release(version)?;
    let layout = read(path)?;
    let mut problems = Vec::new();
    let mut same = |what: &str, found: String, expected: String| {
        if found != expected {
            problems.push(format!("{what}: {found}, expected {expected}"));
        }
    };
    for &field in Field::ALL {
        let has = layout.offsets()[field as usize] != ABSENT;
        same(
            &place(field),
            has.to_string(),
            expected::has_field(release, field).to_string(),
        );
    }
    let names: Vec<&str> = PROBES.iter().map(|probe| probe.tracepoint).collect();
    let known: Vec<&str> = expected::PROGRAMS.iter().map(|(tracepoint, _)| *tracepoint).collect();
    same("the probes", format!("{names:?}"), format!("{known:?}"));
    for (probe, (_, since)) in PROBES.iter().zip(expected::PROGRAMS) {
        let found = (probe.choose(&layout, false), probe.choose(&layout, true));
        let expected = match expected::programs(release, since) {
            Some((newest, oldest)) => (Choice::Program(newest), Choice::Program(oldest)),
            None => {
                let none = || Choice::Unsupported(format!("this kernel has no tracepoint {}", probe.tracepoint));
                (none(), none())
            }
        };
        same(probe.tracepoint, format!("{found:?}"), format!("{expected:?}"));
    }
    same(
        "tcp_send_reset without a socket",
        layout.resets_without_socket.to_string(),
        (release >= expected::SEND_RESET_REASON).to_string(),
    );
    same(
        "functions that send resets",
        format!("{:?}", probes::reset_functions(&layout)),
        format!("{:?}", Ok::<_, String>(&probes::RESET_FUNCTIONS[..])),
    );
    same(
        "bpf_get_current_task_btf",
        layout.current_task_btf.to_string(),
        (release >= expected::CURRENT_TASK_BTF).to_string(),
    );
    same(
        "pid.numbers without a stated length",
        layout.open_numbers.to_string(),
        (release >= expected::OPEN_NUMBERS).to_string(),
    );
    problems.extend(unlike_measured(version, &layout)?);
    report(problems)
}

/// Offsets that differ from those measured on that very package. Another one of the series may have moved them.
fn unlike_measured(version: &str, layout: &Layout) -> Result<Vec<String>, String> {
    let series = |version: &str| release(version).map(|release| [release[0], release[1]]);
    let mut problems = Vec::new();
    for (measured_on, offsets) in expected::MEASURED {
        if series(measured_on)? != series(version)? {
            continue;
        }
        for (field, measured) in expected::MEASURED_FIELDS.into_iter().zip(offsets) {
            let found = layout.offsets()[field as usize];
            if found == measured {
                continue;
            }
            let difference = format!("{}: {found}, measured {measured} on {measured_on}", place(field));
            if measured_on == version {
                problems.push(difference);
            } else {
                eprintln!("note: kernel {version} has moved {difference}");
            }
        }
    }
    Ok(problems)
}

/// For every build and backport: every field except those that come and go, and every probe has a program
/// except the one that not every kernel has.
fn running() -> Result<(), Failed> {
    let layout = read(Path::new(SYS_BTF))?;
    let mut problems = Vec::new();
    for &field in Field::ALL {
        if layout.offsets()[field as usize] == ABSENT && !expected::is_partly(field) {
            problems.push(format!("no {}", place(field)));
        }
    }
    for (probe, (_, since)) in PROBES.iter().zip(expected::PROGRAMS) {
        if let Choice::Unsupported(reason) = probe.choose(&layout, false)
            && expected::programs([0, 0, 0], since).is_some()
        {
            problems.push(format!("{}: {reason}", probe.tracepoint));
        }
    }
    Ok(report(problems)?)
}

fn read(path: &Path) -> Result<Layout, String> {
    Layout::read(path, &probes::tracepoints(), &probes::RESET_FUNCTIONS).map_err(|error| error.to_string())
}

fn place(field: Field) -> String {
    let (strukt, path) = field.place();
    format!("{strukt}.{path}")
}

fn report(problems: Vec<String>) -> Result<(), String> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

/// Of a package's version: `6.12.117-1~deb12u1`, `7.3~rc7-1~exp1`.
fn release(version: &str) -> Result<Release, String> {
    let upstream = version.split(['-', '~']).next().unwrap_or_default();
    let mut numbers = upstream.split('.').map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next().unwrap_or(Ok(0))) {
        (Some(Ok(major)), Some(Ok(minor)), Ok(patch)) => Ok([major, minor, patch]),
        _ => Err(format!("no release in the package's version {version}")),
    }
}
