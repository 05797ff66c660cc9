//! Just enough of 64-bit ELF to find a section of an object of this machine's byte order.

/// The content of the section of that name; None if there is no such section, if it is empty, or if `elf` is malformed.
pub fn section<'e>(elf: &'e [u8], name: &str) -> Option<&'e [u8]> {
    let (_, at, size) = sections(elf)?.into_iter().find(|(found, ..)| *found == name.as_bytes())?;
    let (at, size) = (usize::try_from(at).ok()?, usize::try_from(size).ok()?);
    elf.get(at..at.checked_add(size)?).filter(|bytes| !bytes.is_empty())
}

/// The BPF programs of an object that call a function of it, by the names of their sections; empty if `elf` is malformed.
pub fn calling(elf: &[u8]) -> Vec<String> {
    const PROGRAMS: &[u8] = b".reltp_btf/";
    /// The type of the relocation of a call: `R_BPF_64_32`.
    const CALL: u64 = 10;
    let relocates_a_call = |relocation: &[u8]| u64_at(relocation, 8).is_some_and(|info| info & 0xffff_ffff == CALL);
    let found = sections(elf).unwrap_or_default().into_iter().filter_map(|(name, at, size)| {
        let program = name.strip_prefix(PROGRAMS)?;
        let (at, size) = (usize::try_from(at).ok()?, usize::try_from(size).ok()?);
        let relocations = elf.get(at..at.checked_add(size)?)?;
        let calls = relocations.chunks_exact(16).any(relocates_a_call);
        calls.then(|| String::from_utf8_lossy(program).into_owned())
    });
    found.collect()
}

/// Name, offset and size of each.
fn sections(elf: &[u8]) -> Option<Vec<(&[u8], u64, u64)>> {
    if !elf.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let headers = usize::try_from(u64_at(elf, 0x28)?).ok()?;
    let (size, count, names) = (u16_at(elf, 0x3a)?, u16_at(elf, 0x3c)?, u16_at(elf, 0x3e)?);
    let header = |index: u16| elf.get(headers.checked_add(usize::from(index) * usize::from(size))?..);
    let strings = usize::try_from(u64_at(header(names)?, 0x18)?).ok()?;
    let section = |index| {
        let header = header(index)?;
        let name = usize::try_from(u32::from_ne_bytes(header.get(..4)?.try_into().ok()?)).ok()?;
        let name = elf.get(strings.checked_add(name)?..)?.split(|byte| *byte == 0).next()?;
        Some((name, u64_at(header, 0x18)?, u64_at(header, 0x20)?))
    };
    (0..count).map(section).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{calling, section};

    #[test]
    fn sections_of_this_very_program() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        assert!(section(&me, ".text").is_some_and(|text| text.len() > 4096));
        assert!(
            section(&me, ".comment").is_some_and(|text| text.is_ascii()),
            "the compilers' names"
        );
        assert!(section(&me, ".BTF").is_none());
    }

    /// Two sections: the names, and the relocations of a program, one of them of the type.
    fn object(kind: u64) -> Vec<u8> {
        let names = b"\0.reltp_btf/some\0";
        let relocations = [[8, 1 << 32 | 1], [16, 2 << 32 | kind]].concat();
        let relocations: Vec<u8> = relocations.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        let (at_names, at_headers) = (0x40, 0x40 + 32 + relocations.len());
        let mut elf = vec![0; at_headers + 2 * 0x40];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[0x28..0x30].copy_from_slice(&(at_headers as u64).to_ne_bytes());
        for (at, value) in [(0x3a, 0x40_u16), (0x3c, 2), (0x3e, 0)] {
            elf[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        elf[at_names..at_names + names.len()].copy_from_slice(names);
        elf[at_names + 32..at_headers].copy_from_slice(&relocations);
        for (header, name, at, size) in [(0, 0_u32, at_names, names.len()), (1, 1, at_names + 32, relocations.len())] {
            let header = at_headers + header * 0x40;
            elf[header..header + 4].copy_from_slice(&name.to_ne_bytes());
            elf[header + 0x18..header + 0x20].copy_from_slice(&(at as u64).to_ne_bytes());
            elf[header + 0x20..header + 0x28].copy_from_slice(&(size as u64).to_ne_bytes());
        }
        elf
    }

    #[test]
    fn a_program_with_a_call_is_named() {
        const CALL: u64 = 10;
        const OF_A_MAP: u64 = 1;
        assert_eq!(calling(&object(CALL)), ["some"]);
        assert!(calling(&object(OF_A_MAP)).is_empty());
        let whole = object(CALL);
        for len in 0..whole.len() / 2 {
            assert!(calling(&whole[..len]).is_empty(), "{len}");
        }
    }

    #[test]
    fn a_cut_or_foreign_file_has_none() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        for len in [0, 4, 5, 0x28, 0x40, me.len() / 2] {
            assert!(section(&me[..len], ".text").is_none(), "{len}");
        }
        assert!(section(b"#!/bin/sh\n", ".text").is_none());
    }
}
