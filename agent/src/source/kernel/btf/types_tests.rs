//! Types as a compiler could have written them.

use super::*;

/// BTF of types: name, kind, count, size or type, list.
pub fn written(types: &[(&str, u32, u32, u32, &[u32])]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut words = Vec::new();
    for (name, info_kind, count, size_or_type, list) in types {
        let offset = if name.is_empty() { 0 } else { strings.len() as u32 };
        strings.extend(name.bytes().chain([0]));
        words.extend([offset, info_kind << 24 | count, *size_or_type]);
        words.extend(*list);
    }
    let types: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    let sections = [24, 0, types.len(), types.len(), strings.len()];
    bytes.extend(sections.into_iter().flat_map(|number| (number as u32).to_ne_bytes()));
    bytes.extend(types);
    bytes.extend(strings);
    bytes
}

#[test]
fn a_member_of_unnamed_structures_is_found_at_the_sum_of_the_offsets() {
    // struct s { int a; union { struct { int b; }; }; }: names of members are the types' names, in the same strings.
    let names = |bytes: &[u8]| -> Vec<u32> {
        let strings = &bytes[bytes.len() - word(bytes, 5).expect("length") as usize..];
        let at = |name: &[u8]| strings.windows(name.len()).position(|found| found == name).expect("a name") as u32;
        vec![at(b"a\0"), at(b"b\0")]
    };
    let build = |a, b| {
        written(&[
            ("a", kind::INT, 0, 4, &[0]),
            ("b", kind::TYPEDEF, 0, 1, &[]),
            ("", kind::STRUCT, 1, 4, &[b, 2, 32]),
            ("", kind::CONST, 0, 3, &[]),
            ("", kind::UNION, 1, 8, &[0, 4, 0]),
            ("s", kind::STRUCT, 2, 16, &[a, 1, 0, 0, 5, 64]),
        ])
    };
    let at = names(&build(0, 0));
    let bytes = build(at[0], at[1]);
    let types = Types::parse(&bytes).expect("BTF");
    let found = types.named("s", kind::STRUCT).next().expect("s");
    assert_eq!(types.member(found, "a"), Some((0, 1)));
    assert_eq!(types.member(found, "b"), Some((96, 2)));
    assert_eq!(types.member(found, "c"), None);
    assert_eq!(types.bare(2).map(|found| found.kind), Some(kind::INT));
    assert!(types.get(0).is_none() && types.get(7).is_none());
}

#[test]
fn rings_of_types_end() {
    let bytes = written(&[
        ("t", kind::TYPEDEF, 0, 1, &[]),
        ("s", kind::STRUCT, 2, 8, &[0, 2, 8, 0, 2, 8]),
    ]);
    let types = Types::parse(&bytes).expect("BTF");
    assert!(types.bare(1).is_none());
    let found = types.named("s", kind::STRUCT).next().expect("s");
    assert_eq!(types.member(found, "a"), None);
}

#[test]
fn what_is_not_btf_is_refused_by_its_reason() {
    let error = |bytes: &[u8]| Types::parse(bytes).err().expect("an error");
    assert_eq!(error(b""), FormatError::NotBtf);
    assert_eq!(error(b"not BTF"), FormatError::NotBtf);
    let bytes = written(&[("a", kind::INT, 0, 4, &[0])]);
    assert_eq!(error(&bytes[..10]), FormatError::Truncated("header"));
    assert_eq!(error(&bytes[..30]), FormatError::Truncated("types"));
    assert_eq!(error(&bytes[..bytes.len() - 1]), FormatError::Truncated("strings"));
    let unknown = written(&[("a", kind::INT, 0, 4, &[0]), ("b", 31, 0, 0, &[])]);
    assert_eq!(error(&unknown), FormatError::Kind { id: 2, kind: 31 });
    let short = written(&[("s", kind::STRUCT, 9, 4, &[0])]);
    assert_eq!(error(&short), FormatError::Truncated("types"));
}
