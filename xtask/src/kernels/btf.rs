//! The type information (BTF) of Debian's kernels, as their `/sys/kernel/btf/vmlinux` has it: taken out of the packages, so that
//! what the probes find in a kernel is known without booting it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::packages::{Apt, Package};
use crate::{bpf::elf, debian, shell};

/// For so long an earlier run's answer serves: asking apt takes longer than all the tests of it.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Program and Debian's package of it, by the first bytes of what it packs.
const UNPACKERS: [(&[u8], &str, &str); 4] = [
    (b"\x1f\x8b", GZIP, "gzip"),
    (b"\xfd7zXZ\0", "xz", "xz-utils"),
    (b"\x02\x21\x4c\x18", "lz4", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd"),
];
const GZIP: &str = "gzip";

/// What could be had of it.
pub struct Extracted {
    /// One file per kernel, named by its package's version (`6.12.117-1~deb12u1`). Names with a dot in front are not kernels.
    pub dir: PathBuf,
    /// Kernels that could not be fetched, each with the reason.
    pub missing: Vec<(String, String)>,
}

impl Extracted {
    /// The missing ones, as tests write down what they skip.
    pub fn skips(&self) -> String {
        let line = |(kernel, why): &(String, String)| {
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("kernel-btf-{kernel}\t{why}\n")
        };
        self.missing.iter().map(line).collect()
    }
}

/// Of the kernels of [`Apt::series`]. What cannot be fetched is no error.
///
/// # Errors
/// A kernel that was fetched cannot be taken apart: then this file has to learn something.
pub fn of_every_series() -> Result<Extracted> {
    let cache = shell::cache().join("kernels");
    let dir = cache.join("btf");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut extracted = Extracted {
        dir,
        missing: Vec::new(),
    };
    let asked = extracted.dir.join(".asked");
    if is_fresh(&asked) {
        return Ok(extracted);
    }
    let (apt, known) = match unpackers().and_then(|()| offered(&cache)) {
        Ok(offered) => offered,
        Err(error) => {
            extracted.missing.push(("all".to_owned(), format!("{error:#}")));
            return Ok(extracted);
        }
    };
    for kernel in &known {
        let file = extracted.dir.join(&kernel.version);
        if file.exists() {
            continue;
        }
        match apt.image(kernel) {
            Ok(image) => extract(&image, &file).with_context(|| format!("taking the BTF out of {}", image.display()))?,
            Err(error) => extracted.missing.push((kernel.version.clone(), format!("{error:#}"))),
        }
    }
    forget_others(&extracted.dir, &known)?;
    if extracted.missing.is_empty() {
        fs::write(&asked, "").with_context(|| format!("writing {}", asked.display()))?;
    }
    Ok(extracted)
}

fn is_fresh(asked: &Path) -> bool {
    let modified = fs::metadata(asked).and_then(|file| file.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < FRESH))
}

fn unpackers() -> Result<()> {
    let lacking = UNPACKERS.iter().filter(|(_, program, _)| shell::which(program).is_none());
    let packages: Vec<&str> = lacking.map(|(.., package)| *package).collect();
    debian::ensure(&packages, "unpacking kernels")
}

fn offered(cache: &Path) -> Result<(Apt, Vec<Package>)> {
    let apt = Apt::open(cache)?;
    let known = apt.series()?;
    Ok((apt, known))
}

/// What an earlier run extracted and the archive no longer has.
fn forget_others(dir: &Path, known: &[Package]) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && !known.iter().any(|kernel| *kernel.version == *name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes the BTF of the kernel in the bzImage `image` to `to`, whole or not at all.
fn extract(image: &Path, to: &Path) -> Result<()> {
    shell::say(format_args!("taking the BTF out of {}", image.display()));
    let bytes = fs::read(image)?;
    let payload = payload(&bytes).context("it is no bzImage of boot protocol 2.08 or later")?;
    let scratch = tempfile(to)?;
    let vmlinux = unpack(payload, &scratch)?;
    let btf = elf::section(&vmlinux, ".BTF").context("the kernel in it has no section .BTF")?;
    fs::write(&scratch, btf)?;
    fs::rename(&scratch, to)?;
    Ok(())
}

/// Beside `to`, for this process alone: another may extract the same kernel at the same time.
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

    /// A bzImage whose payload lies where its header says.
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
    fn the_payload_lies_where_the_header_says() {
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
    fn what_could_not_be_fetched_is_one_line_each() {
        let extracted = Extracted {
            dir: PathBuf::new(),
            missing: vec![("6.1.192-2".into(), "no\nnetwork".into())],
        };
        assert_eq!(extracted.skips(), "kernel-btf-6.1.192-2\tno network\n");
    }
}
