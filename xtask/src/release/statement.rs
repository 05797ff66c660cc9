//! Where the artefacts come from: an in-toto statement with SLSA's provenance, as JSON.
//!
//! <https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md>, <https://slsa.dev/spec/v1.0/provenance>

use std::fmt::Write as _;

pub struct Origin<'a> {
    pub version: &'a str,
    /// The commit; None outside of a git checkout.
    pub revision: Option<String>,
    /// Its public address, if there is one.
    pub source: Option<String>,
    pub builder: &'a str,
    /// The time of the commit, seconds since 1970: the statement of a second build is the same.
    pub epoch: i64,
    /// SHA-256 of Cargo.lock.
    pub lock: String,
    /// `sha256:…`
    pub image: &'a str,
    /// Names and SHA-256.
    pub subjects: &'a [(String, String)],
}

pub fn provenance(of: &Origin) -> String {
    let image = of.image.strip_prefix("sha256:").unwrap_or(of.image);
    let image = ("epitaph (image index)".to_owned(), image.to_owned());
    let subjects: Vec<String> = of
        .subjects
        .iter()
        .chain([&image])
        .map(|(name, digest)| format!("{{\"name\": {}, \"digest\": {{\"sha256\": {}}}}}", text(name), text(digest)))
        .collect();
    let revision = of.revision.as_deref().unwrap_or("unknown");
    let source = of
        .source
        .as_deref()
        .map_or_else(|| "git+urn:epitaph".to_owned(), |url| format!("git+{url}"));
    let dependencies = [
        format!(
            "{{\"uri\": {}, \"digest\": {{\"gitCommit\": {}}}}}",
            text(&format!("{source}@{revision}")),
            text(revision)
        ),
        format!("{{\"name\": \"Cargo.lock\", \"digest\": {{\"sha256\": {}}}}}", text(&of.lock)),
    ];
    let mut out = String::new();
    let _ = write!(
        out,
        "{{\n\"_type\": \"https://in-toto.io/Statement/v1\",\n\"subject\": [\n  {}\n],\n\
         \"predicateType\": \"https://slsa.dev/provenance/v1\",\n\"predicate\": {{\n\
         \"buildDefinition\": {{\n  \"buildType\": \"urn:epitaph:cargo-xtask-release\",\n  \
         \"externalParameters\": {{\"version\": {}, \"sourceDateEpoch\": {}}},\n  \
         \"resolvedDependencies\": [\n    {}\n  ]\n}},\n\"runDetails\": {{\"builder\": {{\"id\": {}}}}}\n}}\n}}\n",
        subjects.join(",\n  "),
        text(of.version),
        of.epoch,
        dependencies.join(",\n    "),
        text(of.builder)
    );
    out
}

/// A string of JSON.
fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_names_every_artefact_and_its_commit() {
        let subjects = [
            ("a \"b\".tar.gz".to_owned(), "11".to_owned()),
            ("c.deb".to_owned(), "22".to_owned()),
        ];
        let statement = provenance(&Origin {
            version: "1.2.3",
            revision: Some("c0ffee".to_owned()),
            source: Some("https://git.example/epitaph".to_owned()),
            builder: "https://ci.example",
            epoch: 7,
            lock: "33".to_owned(),
            image: "sha256:44",
            subjects: &subjects,
        });
        for part in [
            "\"_type\": \"https://in-toto.io/Statement/v1\"",
            "\"predicateType\": \"https://slsa.dev/provenance/v1\"",
            "{\"name\": \"a \\\"b\\\".tar.gz\", \"digest\": {\"sha256\": \"11\"}}",
            "{\"name\": \"epitaph (image index)\", \"digest\": {\"sha256\": \"44\"}}",
            "\"git+https://git.example/epitaph@c0ffee\"",
            "{\"gitCommit\": \"c0ffee\"}",
            "{\"id\": \"https://ci.example\"}",
        ] {
            assert!(statement.contains(part), "{part} in {statement}");
        }
        let depth = |open: char, close: char| statement.matches(open).count() == statement.matches(close).count();
        assert!(depth('{', '}') && depth('[', ']'), "{statement}");
    }
}
