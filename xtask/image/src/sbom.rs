//! The bill of materials: the crates, as the tool lists them, and Debian's packages beside them.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::debian::Package;

/// The CycloneDX document `crates` with the packages of the system layer, without the paths of this machine.
///
/// # Errors
/// `crates` is not a CycloneDX document.
pub fn complete(crates: &[u8], packages: &[Package], checkout: &str) -> Result<Vec<u8>> {
    // The tool names the crates of the workspace by their directories.
    let text = std::str::from_utf8(crates).context("the list of crates is not text")?;
    let text = text
        .replace(&format!("file://{checkout}"), "file:///src")
        .replace(checkout, "/src");
    let mut document: Value = serde_json::from_str(&text).context("the list of crates is not JSON")?;
    let components = document.get_mut("components").and_then(Value::as_array_mut);
    let components = components.context("the list of crates has no components: not a CycloneDX document")?;
    components.extend(packages.iter().map(component));
    Ok(serde_json::to_vec_pretty(&document)?)
}

fn component(package: &Package) -> Value {
    let (name, version) = (&package.name, package.field("Version"));
    let url = format!(
        "pkg:deb/debian/{name}@{}?arch={}",
        version.replace('%', "%25").replace('+', "%2B").replace(':', "%3A"),
        package.field("Architecture")
    );
    json!({"type": "library", "bom-ref": &url, "name": name, "version": version, "purl": &url, "scope": "required"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_join_the_crates_and_paths_are_left_out() {
        let crates = br#"{"bomFormat": "CycloneDX", "components": [{"bom-ref": "path+file:///home/me/epitaph/agent#0.1.0"}]}"#;
        let packages = [Package {
            name: "libc6".into(),
            status: "Package: libc6\nArchitecture: amd64\nVersion: 1:2.36-9+deb12u1\n".into(),
            copyright: None,
        }];
        let document = complete(crates, &packages, "/home/me/epitaph").unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(document["components"][0]["bom-ref"], "path+file:///src/agent#0.1.0");
        assert_eq!(
            document["components"][1]["purl"],
            "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u1?arch=amd64"
        );
        assert!(complete(b"{}", &packages, "/home/me/epitaph").is_err());
    }
}
