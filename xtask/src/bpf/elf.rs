//! Just enough of 64-bit ELF to find a section of an object of this machine's byte order.

/// The content of the section of that name; None if there is no such section, if it is empty, or if `elf` is malformed.
pub fn section<'e>(elf: &'e [u8], name: &str) -> Option<&'e [u8]> {
    let (_, at, size) = sections(elf)?.into_iter().find(|(found, ..)| *found == name.as_bytes())?;
    let (at, size) = (usize::try_from(at).ok()?, usize::try_from(size).ok()?);
    elf.get(at..at.checked_add(size)?).filter(|bytes| !bytes.is_empty())
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
    use super::section;

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

    #[test]
    fn a_cut_or_foreign_file_has_none() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        for len in [0, 4, 5, 0x28, 0x40, me.len() / 2] {
            assert!(section(&me[..len], ".text").is_none(), "{len}");
        }
        assert!(section(b"#!/bin/sh\n", ".text").is_none());
    }
}
