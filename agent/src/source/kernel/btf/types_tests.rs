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
    file(&types, &strings)
}

fn names(names: &[&str]) -> HashSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_member_of_unnamed_structures_is_found_at_the_sum_of_the_offsets() {
    // struct s { int a; union { struct { int b; }; }; }: names of members are the types' names, in the same strings.
    let places = |bytes: &[u8]| -> Vec<u32> {
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
    let at = places(&build(0, 0));
    let bytes = build(at[0], at[1]);
    let types = Types::parse(&bytes, &names(&["s"])).expect("BTF");
    assert!(
        types.named("b", kind::TYPEDEF).next().is_none(),
        "nobody was going to ask for it"
    );
    let found = types.named("s", kind::STRUCT).next().expect("s");
    assert_eq!(types.member(found, "a"), Some((0, 1)));
    assert_eq!(types.member(found, "b"), Some((96, 2)));
    assert_eq!(types.member(found, "c"), None);
    assert_eq!(types.bare(2).map(|found| found.kind), Some(kind::INT));
    assert!(types.get(0).is_none() && types.get(7).is_none());
}

#[test]
fn an_array_without_a_stated_length_is_open() {
    let bytes = written(&[
        ("", kind::INT, 0, 4, &[0]),
        ("", kind::ARRAY, 0, 0, &[1, 1, 1]),
        ("", kind::ARRAY, 0, 0, &[1, 1, 0]),
        ("", kind::CONST, 0, 3, &[]),
        ("", kind::PTR, 0, 3, &[]),
    ]);
    let types = Types::parse(&bytes, &names(&[])).expect("BTF");
    assert_eq!(
        [1, 2, 3, 4, 5].map(|id| types.is_open_array(id)),
        [false, false, true, true, false]
    );
}

#[test]
fn what_is_kept_has_its_id_and_nothing_else_has_a_name() {
    let bytes = written(&[
        ("t", kind::STRUCT, 0, 8, &[]),
        ("", kind::ENUM64, 1, 8, &[0, 1, 0]),
        ("t", kind::TYPEDEF, 0, 1, &[]),
        ("other", kind::TYPEDEF, 0, 1, &[]),
        ("f", kind::FUNC, 1, 4, &[]),
        ("behind", kind::TYPEDEF, 0, 1, &[]),
    ]);
    let types = Types::parse(&bytes, &names(&["t", "f"])).expect("BTF");
    let only = |named: &[(&str, u32)]| {
        let named: Vec<_> = named.iter().map(|&(name, kind)| (name.to_owned(), kind)).collect();
        types.only(&named)
    };
    let bytes = only(&[("t", kind::TYPEDEF), ("f", kind::FUNC), ("absent", kind::TYPEDEF)]);
    assert_eq!(bytes.len(), 24 + 5 * 12 + "\0t\0f\0".len());
    let kept = Types::parse(&bytes, &names(&["t", "f", "other", "behind"])).expect("BTF");
    let ids = |name, kind| kept.ids(name, kind).map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!((ids("t", kind::TYPEDEF), ids("f", kind::FUNC)), (vec![3], vec![5]));
    assert_eq!((ids("other", kind::TYPEDEF), ids("t", kind::STRUCT)), (vec![], vec![]));
    for bytes in [bytes, only(&[])] {
        aya::Btf::parse(&bytes, aya::Endianness::default()).expect("BTF for aya, too");
    }
}

#[test]
fn rings_of_types_end() {
    let bytes = written(&[
        ("t", kind::TYPEDEF, 0, 1, &[]),
        ("s", kind::STRUCT, 2, 8, &[0, 2, 8, 0, 2, 8]),
    ]);
    let types = Types::parse(&bytes, &names(&["s"])).expect("BTF");
    assert!(types.bare(1).is_none());
    let found = types.named("s", kind::STRUCT).next().expect("s");
    assert_eq!(types.member(found, "a"), None);
}

#[test]
fn what_is_not_btf_is_refused_by_its_reason() {
    let error = |bytes: &[u8]| Types::parse(bytes, &names(&[])).err().expect("an error");
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
