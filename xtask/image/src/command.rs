//! Arguments → image.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;

use crate::{Arch, CERTIFICATES, Image, Labels, Layout, Parts, contents};

/// Not root: an observer needs no more. The manifest of the agent names root.
pub const USER: &str = "65532:65532";

/// Reads the arguments of the program `image`, and writes into DIR: `layout`, `epitaph-VERSION.oci.tar`, and the bills
/// of materials, `epitaph-VERSION-ARCH.cdx.json`. Prints the image's
/// digest, and for each architecture its compressed size.
///
/// # Errors
/// An argument is missing or unknown, a file cannot be read, or the image cannot be written.
pub fn run(mut args: Arguments) -> Result<()> {
    let programs = by_arch(&mut args, "--program")?;
    let mut crates = by_arch(&mut args, "--crates")?;
    let mut roots = by_arch(&mut args, "--root")?;
    let certificates = args.opt_value_from_str("--certificates")?;
    let certificates: PathBuf = certificates.unwrap_or_else(|| CERTIFICATES.into());
    let licence: Option<PathBuf> = args.opt_value_from_str("--licence")?;
    let name: String = args.value_from_str("--name")?;
    let out: PathBuf = args.value_from_str("--out")?;
    let checkout: String = args.value_from_str("--checkout")?;
    let labels = Labels {
        title: "epitaph".into(),
        description: args.value_from_str("--description")?,
        version: args.value_from_str("--version")?,
        licences: args.value_from_str("--licences")?,
        created: args.value_from_str("--created")?,
        revision: args.opt_value_from_str("--revision")?,
        source: args.opt_value_from_str("--source")?,
    };
    let rest = args.finish();
    ensure!(rest.is_empty(), "unexpected argument {rest:?}");
    ensure!(!programs.is_empty(), "no --program ARCH=FILE");

    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let mut images = Vec::new();
    for (arch, program) in programs {
        let parts = Parts {
            arch,
            program,
            root: roots.remove(&arch),
            certificates: certificates.clone(),
            licence: licence.clone(),
            crates: crates.remove(&arch),
            checkout: checkout.clone(),
        };
        let contents = contents(&parts).with_context(|| format!("the image for {}", arch.name()))?;
        if let Some(document) = contents.sbom {
            let file = out.join(format!("epitaph-{}-{}.cdx.json", labels.version, arch.name()));
            fs::write(&file, document).with_context(|| format!("writing {}", file.display()))?;
        }
        images.push(Image {
            arch,
            layers: contents.layers,
            entrypoint: vec!["/epitaph".into()],
            user: USER.into(),
        });
    }
    let layout = Layout::new(&images, &labels, &name)?;
    layout.write(&out.join("layout"))?;
    layout.archive(&out.join(format!("epitaph-{}.oci.tar", labels.version)))?;
    println!("{}", layout.digest);
    for (arch, size) in &layout.sizes {
        println!("{} {size}", arch.name());
    }
    Ok(())
}

/// Every `FLAG ARCH=FILE`.
fn by_arch(args: &mut Arguments, flag: &'static str) -> Result<BTreeMap<Arch, PathBuf>> {
    let values: Vec<String> = args.values_from_str(flag)?;
    let parsed = values.into_iter().map(|value| {
        let (arch, file) = value
            .split_once('=')
            .with_context(|| format!("{flag} {value}: not ARCH=FILE"))?;
        Ok((Arch::of(arch)?, PathBuf::from(file)))
    });
    parsed.collect()
}
