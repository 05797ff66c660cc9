//! An OCI image layout: blobs named by their digests, and an index that leads to the image of each architecture.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::Path,
    str::FromStr as _,
};

use anyhow::{Context as _, Result, ensure};
use oci_spec::image::{
    self as oci, ConfigBuilder, Descriptor, DescriptorBuilder, HistoryBuilder, ImageConfigurationBuilder, ImageIndexBuilder,
    ImageManifestBuilder, MediaType, Os, PlatformBuilder, RootFsBuilder, Sha256Digest,
};
use sha2::{Digest as _, Sha256};

use crate::{
    Arch, Layer,
    layer::{append, compressed},
};

/// One architecture's image.
pub struct Image {
    pub arch: Arch,
    pub layers: Vec<Layer>,
    pub entrypoint: Vec<String>,
    /// `UID:GID`
    pub user: String,
}

/// The labels of the configuration and the annotations of manifest and index, `org.opencontainers.image.*`.
#[derive(Clone, Debug)]
pub struct Labels {
    pub title: String,
    pub description: String,
    pub version: String,
    pub licences: String,
    /// Seconds since 1970: SOURCE_DATE_EPOCH, or the time of the commit.
    pub created: i64,
    pub revision: Option<String>,
    /// URL of the source code.
    pub source: Option<String>,
}

impl Labels {
    fn created(&self) -> Result<String> {
        Ok(jiff::Timestamp::from_second(self.created)
            .context("the image's time")?
            .to_string())
    }

    fn map(&self) -> Result<HashMap<String, String>> {
        let mut map = HashMap::from([
            (oci::ANNOTATION_TITLE.into(), self.title.clone()),
            (oci::ANNOTATION_DESCRIPTION.into(), self.description.clone()),
            (oci::ANNOTATION_VERSION.into(), self.version.clone()),
            (oci::ANNOTATION_LICENSES.into(), self.licences.clone()),
            (oci::ANNOTATION_CREATED.into(), self.created()?),
        ]);
        let optional = [
            (oci::ANNOTATION_REVISION, &self.revision),
            (oci::ANNOTATION_SOURCE, &self.source),
        ];
        for (name, value) in optional {
            map.extend(value.clone().map(|value| (name.to_owned(), value)));
        }
        Ok(map)
    }
}

/// Complete in memory: an image is a few megabytes.
pub struct Layout {
    /// By the hex digits of their SHA-256.
    blobs: BTreeMap<String, Vec<u8>>,
    /// `index.json`, which names the one image index.
    index: Vec<u8>,
    /// `sha256:…` of the image index: what a registry and containerd call the image's digest.
    pub digest: String,
    /// Bytes to fetch for each architecture: configuration and compressed layers.
    pub sizes: BTreeMap<Arch, u64>,
}

impl Layout {
    /// The layout of `images`, to be imported as `name`, which is `REPOSITORY:TAG`.
    ///
    /// # Errors
    /// A file of a layer cannot be read, or `name` has no tag.
    pub fn new(images: &[Image], labels: &Labels, name: &str) -> Result<Layout> {
        let tag = name.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.contains('/'));
        let tag = tag.with_context(|| format!("the image's name `{name}` has no tag"))?;
        ensure!(!images.is_empty(), "no image for the index");
        let mut layout = Layout {
            blobs: BTreeMap::new(),
            index: Vec::new(),
            digest: String::new(),
            sizes: BTreeMap::new(),
        };
        let manifests = images
            .iter()
            .map(|image| layout.image(image, labels))
            .collect::<Result<Vec<_>>>()?;
        let index = ImageIndexBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageIndex)
            .manifests(manifests)
            .annotations(labels.map()?)
            .build()?;
        let mut described = layout.json(MediaType::ImageIndex, &index)?;
        layout.digest = described.digest().to_string();
        // containerd and docker read the full name, others the tag.
        let names = HashMap::from([
            ("io.containerd.image.name".to_owned(), full_name(name)),
            (oci::ANNOTATION_REF_NAME.to_owned(), tag.to_owned()),
        ]);
        described.set_annotations(Some(names));
        let top = ImageIndexBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageIndex)
            .manifests(vec![described])
            .build()?;
        layout.index = sorted(&top)?;
        Ok(layout)
    }

    /// Writes the layout as a directory, in place of an older one.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("removing the older {}", dir.display()))?;
        }
        fs::create_dir_all(dir.join(BLOBS)).with_context(|| format!("creating {}", dir.display()))?;
        for (name, bytes) in self.files() {
            fs::write(dir.join(&name), bytes).with_context(|| format!("writing {name} in {}", dir.display()))?;
        }
        Ok(())
    }

    /// Writes the layout as one tar archive.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn archive(&self, file: &Path) -> Result<()> {
        let what = || format!("writing {}", file.display());
        let mut tar = tar::Builder::new(File::create(file).with_context(what)?);
        for (name, bytes) in self.files() {
            append(&mut tar, Path::new(&name), bytes, 0o644).with_context(what)?;
        }
        tar.finish().with_context(what)
    }

    fn files(&self) -> impl Iterator<Item = (String, &[u8])> {
        let blobs = self
            .blobs
            .iter()
            .map(|(digest, bytes)| (format!("{BLOBS}/{digest}"), &bytes[..]));
        let marks = [("oci-layout".to_owned(), LAYOUT), ("index.json".to_owned(), &self.index[..])];
        marks.into_iter().chain(blobs)
    }

    fn image(&mut self, image: &Image, labels: &Labels) -> Result<Descriptor> {
        let (mut layers, mut diff_ids, mut history) = (Vec::new(), Vec::new(), Vec::new());
        for layer in &image.layers {
            let bytes = layer.tar()?;
            diff_ids.push(format!("sha256:{}", sha256(&bytes)));
            layers.push(self.blob(MediaType::ImageLayerGzip, compressed(&bytes)?)?);
            let step = HistoryBuilder::default()
                .created(labels.created()?)
                .created_by("cargo xtask image");
            history.push(step.build()?);
        }
        let config = ConfigBuilder::default()
            .entrypoint(image.entrypoint.clone())
            .user(image.user.clone())
            .env(vec!["PATH=/".to_owned()])
            .working_dir("/")
            .labels(labels.map()?)
            .build()?;
        let arch = match image.arch {
            Arch::Amd64 => oci::Arch::Amd64,
            Arch::Arm64 => oci::Arch::ARM64,
        };
        let configuration = ImageConfigurationBuilder::default()
            .created(labels.created()?)
            .architecture(arch.clone())
            .os(Os::Linux)
            .config(config)
            .rootfs(RootFsBuilder::default().diff_ids(diff_ids).build()?)
            .history(history)
            .build()?;
        let configuration = self.json(MediaType::ImageConfig, &configuration)?;
        self.sizes.insert(
            image.arch,
            configuration.size() + layers.iter().map(Descriptor::size).sum::<u64>(),
        );
        let manifest = ImageManifestBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageManifest)
            .config(configuration)
            .layers(layers)
            .annotations(labels.map()?)
            .build()?;
        let mut described = self.json(MediaType::ImageManifest, &manifest)?;
        described.set_platform(Some(PlatformBuilder::default().architecture(arch).os(Os::Linux).build()?));
        Ok(described)
    }

    fn json(&mut self, kind: MediaType, value: &impl serde::Serialize) -> Result<Descriptor> {
        self.blob(kind, sorted(value)?)
    }

    fn blob(&mut self, kind: MediaType, bytes: Vec<u8>) -> Result<Descriptor> {
        let hex = sha256(&bytes);
        let size = u64::try_from(bytes.len()).context("a blob's size")?;
        let digest = Sha256Digest::from_str(&hex)?;
        self.blobs.insert(hex, bytes);
        Ok(DescriptorBuilder::default()
            .media_type(kind)
            .size(size)
            .digest(digest)
            .build()?)
    }
}

const BLOBS: &str = "blobs/sha256";
const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// With the keys of maps in their order: labels are in a map whose own order is random.
fn sorted(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&serde_json::to_value(value)?)?)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `name` with its registry, as containerd keeps names: the kubelet asks for `docker.io/library/a:1` where a pod has the image `a:1`.
fn full_name(name: &str) -> String {
    match name.split_once('/') {
        Some((host, _)) if host == "localhost" || host.contains(['.', ':']) => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn labels(created: i64) -> Labels {
        Labels {
            title: "a".into(),
            description: "b".into(),
            version: "1.2.3".into(),
            licences: "Apache-2.0".into(),
            created,
            revision: Some("c0ffee".into()),
            source: None,
        }
    }

    fn layout(created: i64) -> Layout {
        let images = Arch::ALL.map(|arch| {
            let mut layer = Layer::default();
            layer.text("/etc/arch", arch.name(), 0o644);
            Image {
                arch,
                layers: vec![layer],
                entrypoint: vec!["/a".into()],
                user: "1:2".into(),
            }
        });
        Layout::new(&images, &labels(created), "registry.example/a:1").unwrap()
    }

    #[test]
    fn a_name_without_a_registry_is_the_one_that_the_kubelet_asks_for() {
        for (given, full) in [
            ("epitaph:dev", "docker.io/library/epitaph:dev"),
            ("team/epitaph:1", "docker.io/team/epitaph:1"),
            ("registry.example/a:1", "registry.example/a:1"),
            ("localhost/a:1", "localhost/a:1"),
            ("registry:5000/a:1", "registry:5000/a:1"),
        ] {
            assert_eq!(full_name(given), full);
        }
    }

    #[test]
    fn the_same_input_gives_the_same_digest_and_another_time_another() {
        assert_eq!(layout(1_700_000_000).digest, layout(1_700_000_000).digest);
        assert_ne!(layout(1_700_000_000).digest, layout(1_700_000_001).digest);
    }

    #[test]
    fn the_index_leads_to_each_architecture_by_digests() {
        let dir = tempfile::tempdir().unwrap();
        let made = layout(1_700_000_000);
        made.write(dir.path()).unwrap();
        let json = |path: String| -> Value { serde_json::from_slice(&fs::read(dir.path().join(path)).unwrap()).unwrap() };
        let blob = |descriptor: &Value| {
            let hex = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = fs::read(dir.path().join(BLOBS).join(hex)).unwrap();
            assert_eq!(sha256(&bytes), hex);
            assert_eq!(descriptor["size"], bytes.len());
            bytes
        };
        assert_eq!(json("oci-layout".into())["imageLayoutVersion"], "1.0.0");
        let top = json("index.json".into());
        let only = &top["manifests"][0];
        assert_eq!(only["annotations"]["io.containerd.image.name"], "registry.example/a:1");
        assert_eq!(only["annotations"]["org.opencontainers.image.ref.name"], "1");
        assert_eq!(only["digest"], made.digest);
        let index: Value = serde_json::from_slice(&blob(only)).unwrap();
        let mut arches = Vec::new();
        for described in index["manifests"].as_array().unwrap() {
            let manifest: Value = serde_json::from_slice(&blob(described)).unwrap();
            let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
            assert_eq!(config["architecture"], described["platform"]["architecture"]);
            assert_eq!(config["created"], "2023-11-14T22:13:20Z");
            assert_eq!(config["config"]["User"], "1:2");
            let labels = &config["config"]["Labels"];
            assert_eq!(labels["org.opencontainers.image.revision"], "c0ffee");
            assert_eq!(labels["org.opencontainers.image.source"], Value::Null);
            let mut layer = Vec::new();
            let bytes = blob(&manifest["layers"][0]);
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut layer).unwrap();
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
            arches.push(config["architecture"].as_str().unwrap().to_owned());
        }
        assert_eq!(arches, ["amd64", "arm64"]);
    }

    #[test]
    fn an_image_without_a_tag_is_refused() {
        let error = Layout::new(&[], &labels(0), "registry.example:5000/a")
            .err()
            .unwrap()
            .to_string();
        assert_eq!(error, "the image's name `registry.example:5000/a` has no tag");
    }
}
