//! The type information (BTF) of Debian's kernels, as their `/sys/kernel/btf/vmlinux` has it: taken out of the packages, so that
//! what the probes find in a kernel is known without booting it.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::packages::{Apt, Package};
use crate::{bpf::elf, debian, dist::Arch, shell};

/// How long a complete answer of an earlier run is valid: asking apt takes longer than all the tests of it.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// The same for an incomplete answer: a machine without network is not asked at every run.
const FRESH_IN_PART: Duration = Duration::from_secs(60 * 60);

/// First line of the file that keeps an answer, where all was had.
const WHOLE: &str = "whole";

/// In place of a kernel's BTF: why it could not be taken out.
const BROKEN: &str = ".broken";

/// Program and Debian's package of it, by the first bytes of what it packs.
const UNPACKERS: [(&[u8], &str, &str); 4] = [
    (b"\x1f\x8b", GZIP, "gzip"),
    (b"\xfd7zXZ\0", "xz", "xz-utils"),
    (b"\x02\x21\x4c\x18", "lz4", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd"),
];
const GZIP: &str = "gzip";

/// The packages and kernels that were found.
pub struct Extracted {
    /// One file per kernel, named by its package's version (`6.12.117-1~deb12u1`). A file with `.broken` after the name explains
    /// why that kernel's BTF could not be extracted. Names with a leading dot are not kernels.
    pub dir: PathBuf,
    /// Kernels that could not be fetched, each with the reason.
    pub missing: Vec<(String, String)>,
}

impl Extracted {
    /// Into a directory of the cache, made where it is not there yet.
    fn begin(cache: &Path) -> Result<Extracted> {
        let dir = cache.join("btf");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Extracted {
            dir,
            missing: Vec::new(),
        })
    }

    /// The missing ones, as tests write down what they skip.
    pub fn skips(&self) -> String {
        let line = |(kernel, why): &(String, String)| {
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{SKIP}{kernel}\t{why}\n")
        };
        self.missing.iter().map(line).collect()
    }

    /// Those of a text by [`Extracted::skips`].
    fn missing_of(skips: &str) -> Vec<(String, String)> {
        let parts = |line: &str| {
            line.strip_prefix(SKIP)?
                .split_once('\t')
                .map(|(kernel, why)| (kernel.into(), why.into()))
        };
        skips.lines().filter_map(parts).collect()
    }

    /// Takes the kernel's out of its package, unless an earlier run did. What cannot be fetched is missing; what cannot be taken
    /// apart is for the tests to fail of.
    fn add(&mut self, apt: &Apt, kernel: &Package) -> Result<()> {
        let file = self.dir.join(&kernel.version);
        if is_whole(&file) {
            return Ok(());
        }
        if file.exists() {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
        let mut kept = apt.has_image(kernel);
        let failure = loop {
            let taken = apt
                .image(kernel)
                .map(|image| extract(&image, &file).map_err(|error| (image, error)));
            match taken {
                Ok(Ok(())) => break None,
                // A run that was cut short may have left half of it.
                Ok(Err((image, error))) if kept => {
                    shell::log(format_args!("{error:#}; fetching the package again"));
                    fs::remove_file(&image).with_context(|| format!("removing {}", image.display()))?;
                    kept = false;
                }
                Ok(Err((image, error))) => break Some(format!("taking the BTF out of {}: {error:#}", image.display())),
                Err(error) => {
                    self.missing.push((kernel.version.clone(), format!("{error:#}")));
                    return Ok(());
                }
            }
        };
        let broken = self.dir.join(format!("{}{BROKEN}", kernel.version));
        match failure {
            Some(why) => fs::write(&broken, why).with_context(|| format!("writing {}", broken.display())),
            None if broken.exists() => fs::remove_file(&broken).with_context(|| format!("removing {}", broken.display())),
            None => Ok(()),
        }
    }
}

const SKIP: &str = "kernel-btf-";

/// Of the kernels of [`Apt::series`], not older than a day. A package that cannot be fetched is not an error.
///
/// # Errors
/// The cache cannot be written.
pub fn of_every_series() -> Result<Extracted> {
    let cache = shell::cache().join("kernels");
    let mut extracted = Extracted::begin(&cache)?;
    if let Some(missing) = answered(&extracted.dir) {
        extracted.missing = missing;
        return Ok(extracted);
    }
    match unpackers().and_then(|()| offered(&cache)) {
        Ok((apt, known)) => of(&cache, &apt, &known),
        Err(error) => {
            extracted.missing.push(("all".to_owned(), format!("{error:#}")));
            keep_answer(&extracted, false)?;
            Ok(extracted)
        }
    }
}

/// Of `known`, the current list of `apt`.
///
/// # Errors
/// The cache cannot be written.
pub fn of(cache: &Path, apt: &Apt, known: &[Package]) -> Result<Extracted> {
    let mut extracted = Extracted::begin(cache)?;
    for kernel in known {
        extracted.add(apt, kernel)?;
    }
    let whole = apt.is_whole && extracted.missing.is_empty();
    if whole {
        forget_others(&extracted.dir, known)?;
    }
    keep_answer(&extracted, whole)?;
    Ok(extracted)
}

fn keep_answer(extracted: &Extracted, whole: bool) -> Result<()> {
    let asked = asked(&extracted.dir);
    let first = if whole { WHOLE } else { "in part" };
    let text = format!("{first}\n{}", extracted.skips());
    fs::write(&asked, text).with_context(|| format!("writing {}", asked.display()))
}

/// What was missing at an earlier run whose answer is still valid.
fn answered(dir: &Path) -> Option<Vec<(String, String)>> {
    let asked = asked(dir);
    let text = fs::read_to_string(&asked).ok()?;
    let age = fs::metadata(&asked).and_then(|file| file.modified()).ok()?.elapsed().ok()?;
    let mut whole = text.lines().next() == Some(WHOLE);
    for entry in fs::read_dir(dir).ok()? {
        let path = entry.ok()?.path();
        if is_hidden(&path) || is_whole(&path) {
            continue;
        }
        if !path.to_str()?.ends_with(BROKEN) {
            return None;
        }
        whole = false;
    }
    let fresh = if whole { FRESH } else { FRESH_IN_PART };
    (age < fresh).then(|| Extracted::missing_of(&text))
}

fn asked(dir: &Path) -> PathBuf {
    dir.join(".asked")
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether `path` is BTF of the length in its header: <https://docs.kernel.org/bpf/btf.html>, `struct btf_header`.
fn is_whole(path: &Path) -> bool {
    let size = || -> Option<u64> {
        let mut header = [0; 24];
        File::open(path).ok()?.read_exact(&mut header).ok()?;
        let number = |at: usize| Some(u64::from(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?)));
        let types = number(8)? + number(12)?;
        let strings = number(16)? + number(20)?;
        header.starts_with(b"\x9f\xeb").then_some(number(4)? + types.max(strings))
    };
    let found = fs::metadata(path).ok().map(|file| file.len());
    found.is_some() && found == size()
}

/// Installs what unpacks kernels.
///
/// # Errors
/// It cannot be installed here.
pub fn unpackers() -> Result<()> {
    let lacking = UNPACKERS.iter().filter(|(_, program, _)| shell::which(program).is_none());
    let packages: Vec<&str> = lacking.map(|(.., package)| *package).collect();
    debian::ensure(&packages, "unpacking kernels")
}

fn offered(cache: &Path) -> Result<(Apt, Vec<Package>)> {
    let apt = Apt::open(cache, Arch::Amd64)?;
    let known = apt.series()?;
    Ok((apt, known))
}

/// What an earlier run extracted and the archive no longer has.
fn forget_others(dir: &Path, known: &[Package]) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let version = name.strip_suffix(BROKEN).unwrap_or(name);
        if !is_hidden(&path) && !known.iter().any(|kernel| kernel.version == version) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes the BTF of the kernel in the bzImage `image` to `to`, whole or not at all.
fn extract(image: &Path, to: &Path) -> Result<()> {
    shell::log(format_args!("taking the BTF out of {}", image.display()));
    let bytes = fs::read(image)?;
    let payload = payload(&bytes).context("the file is not a bzImage of boot protocol 2.08 or later")?;
    let scratch = tempfile(to)?;
    let moved = || -> Result<()> {
        let vmlinux = unpack(payload, &scratch)?;
        let btf = elf::section(&vmlinux, ".BTF").context("the kernel has no section .BTF")?;
        fs::write(&scratch, btf)?;
        ensure!(is_whole(&scratch), "the section .BTF does not have the length in its header");
        Ok(fs::rename(&scratch, to)?)
    };
    let done = moved();
    if done.is_err() {
        // It may never have been made.
        let _ = fs::remove_file(&scratch);
    }
    done
}

/// In the directory of `to`, for this process alone: another process may extract the same kernel at the same time.
fn tempfile(to: &Path) -> Result<PathBuf> {
    let name = to.file_name().context("no file name")?.display();
    Ok(to.with_file_name(format!(".{name}.{}", std::process::id())))
}

/// The packed kernel: <https://docs.kernel.org/arch/x86/boot.html>, fields `setup_sects`, `payload_offset` and `payload_length`.
fn payload(image: &[u8]) -> Option<&[u8]> {
    const SECTOR: usize = 512;
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let version = u16::from_le_bytes(image.get(0x206..0x208)?.try_into().ok()?);
    if image.get(0x202..0x206)? != b"HdrS" || version < 0x208 {
        return None;
    }
    let setup_sects = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sects + 1) * SECTOR + number(0x248)?;
    image.get(start..start.checked_add(number(0x24c)?)?)
}

/// Unpacks by the program that the first bytes ask for. The last four are the size of the whole: gzip's own, after all others
/// the kernel's build appends it.
fn unpack(payload: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    let Some((_, program, _)) = UNPACKERS.iter().find(|(magic, ..)| payload.starts_with(magic)) else {
        bail!("the kernel is packed in an unknown way: {:02x?}", payload.get(..8));
    };
    let (packed, size) = payload.split_last_chunk::<4>().context("the packed kernel is empty")?;
    let packed = if *program == GZIP { payload } else { packed };
    fs::write(scratch, packed).with_context(|| format!("writing {}", scratch.display()))?;
    let done = Command::new(program)
        .args(["--decompress", "--stdout", "--quiet"])
        .stdin(File::open(scratch)?)
        .output()
        .with_context(|| format!("running {program}"))?;
    ensure!(
        done.status.success() && done.stdout.len() == u32::from_le_bytes(*size) as usize,
        "{program} unpacked {} of {} bytes ({}): {}",
        done.stdout.len(),
        u32::from_le_bytes(*size),
        done.status,
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage whose payload is at the offset in its header.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * 512 + 100];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&100_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"signature");
        image
    }

    #[test]
    fn the_payload_is_at_the_offset_in_the_header() {
        let whole = image(b"packed");
        assert_eq!(payload(&whole), Some(&b"packed"[..]));
        assert_eq!(payload(&whole[..whole.len() - 10]), None, "cut short");
        assert_eq!(payload(b"\x7fELF"), None);
        let mut old = whole.clone();
        old[0x206] = 0x07;
        assert_eq!(payload(&old), None, "without the field");
    }

    #[test]
    fn a_packed_kernel_is_unpacked_and_its_size_checked() {
        let scratch = std::env::temp_dir().join(format!("epitaph-xtask-unpack-{}", std::process::id()));
        fs::write(&scratch, "vmlinux").unwrap();
        let packed = Command::new("gzip").arg("--stdout").arg(&scratch).output().unwrap().stdout;
        assert_eq!(unpack(&packed, &scratch).unwrap(), b"vmlinux");
        let mut wrong = packed.clone();
        *wrong.last_mut().unwrap() = 1;
        assert!(unpack(&wrong, &scratch).is_err());
        let unknown = unpack(b"\x89LZO rest", &scratch).unwrap_err().to_string();
        assert!(unknown.contains("unknown way"), "{unknown}");
        fs::remove_file(&scratch).unwrap();
    }

    #[test]
    fn packages_that_could_not_be_fetched_are_one_line_each() {
        let extracted = Extracted {
            dir: PathBuf::new(),
            missing: vec![("6.1.192-2".into(), "no\nnetwork".into())],
        };
        assert_eq!(extracted.skips(), "kernel-btf-6.1.192-2\tno network\n");
    }

    /// Types of one byte, names of two.
    const BTF: &[u8] = b"\x9f\xeb\x01\x00\x18\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0tss";

    #[test]
    fn an_answer_serves_while_it_is_fresh_and_all_that_it_left_is_whole() {
        let extracted = Extracted {
            dir: std::env::temp_dir().join(format!("epitaph-xtask-btf-{}", std::process::id())),
            missing: vec![("6.1.192-2".into(), "no network".into())],
        };
        let dir = &extracted.dir;
        fs::create_dir_all(dir).unwrap();
        let kernel = dir.join("5.10.262-1");
        let age = |by: Duration| {
            let then = fs::metadata(asked(dir)).unwrap().modified().unwrap() - by;
            File::options()
                .write(true)
                .open(asked(dir))
                .unwrap()
                .set_modified(then)
                .unwrap();
        };

        assert_eq!(answered(dir), None, "no earlier run");
        keep_answer(&extracted, false).unwrap();
        fs::write(&kernel, BTF).unwrap();
        assert_eq!(answered(dir), Some(extracted.missing.clone()));
        age(FRESH_IN_PART);
        assert_eq!(answered(dir), None, "something was missing an hour ago");

        keep_answer(&extracted, true).unwrap();
        age(FRESH_IN_PART);
        assert!(answered(dir).is_some());
        fs::write(&kernel, &BTF[..BTF.len() - 1]).unwrap();
        assert_eq!(answered(dir), None, "cut short");
        fs::write(&kernel, BTF).unwrap();
        fs::write(dir.join("7.9.1-1.broken"), "packed in an unknown way").unwrap();
        assert_eq!(answered(dir), None, "a failed package is tried again");
        fs::remove_dir_all(dir).unwrap();
    }
}
