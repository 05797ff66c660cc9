//! The kernel's memory that the probes take.

use std::collections::BTreeMap;
use std::fs;

/// `BPF_MAP_TYPE_RINGBUF`.
const RING_BUFFER: u64 = 27;

/// Bytes of this process's BPF maps and programs, as `/proc/self/fdinfo` states them.
pub fn bytes() -> u64 {
    let Ok(descriptors) = fs::read_dir("/proc/self/fdinfo") else {
        return 0;
    };
    // One is closed meanwhile: the directory's own.
    let texts = descriptors.flatten().filter_map(|of| fs::read_to_string(of.path()).ok());
    // Several descriptors can be of one object.
    let objects: BTreeMap<_, _> = texts.filter_map(|text| of_object(&text)).collect();
    objects.values().sum()
}

/// The object's id, which is unique among those of its kind, and its bytes. None for other descriptors.
fn of_object(fdinfo: &str) -> Option<((&'static str, u64), u64)> {
    let number = |name| number(fdinfo, name);
    let id = ["map_id", "prog_id"]
        .into_iter()
        .find_map(|kind| Some((kind, number(kind)?)))?;
    let bytes = match (number("memlock")?, number("map_type")) {
        // 5.11 to 6.3 multiply the sizes of key and value, which a ring buffer has not.
        (0, Some(RING_BUFFER)) => number("max_entries")?,
        (bytes, _) => bytes,
    };
    Some((id, bytes))
}

/// A field of a descriptor's text in `/proc/self/fdinfo`.
pub fn number(fdinfo: &str, name: &str) -> Option<u64> {
    let (_, value) = fdinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(of, _)| *of == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::of_object;

    #[test]
    fn maps_and_programs_count() {
        let map = "pos:\t0\nflags:\t02000002\nmap_type:\t1\nkey_size:\t8\nmax_entries:\t65536\nmemlock:\t5769216\nmap_id:\t7\nfrozen:\t0\n";
        assert_eq!(of_object(map), Some((("map_id", 7), 5_769_216)));
        let program = "prog_type:\t26\nprog_jited:\t1\nmemlock:\t16384\nprog_id:\t9\nrun_cnt:\t0\n";
        assert_eq!(of_object(program), Some((("prog_id", 9), 16_384)));
    }

    #[test]
    fn a_ring_buffer_without_a_size_has_its_capacity() {
        let of = |memlock: u64| {
            format!("map_type:\t27\nkey_size:\t0\nvalue_size:\t0\nmax_entries:\t8388608\nmemlock:\t{memlock}\nmap_id:\t8\n")
        };
        assert_eq!(of_object(&of(0)), Some((("map_id", 8), 8_388_608)));
        assert_eq!(of_object(&of(8_433_664)), Some((("map_id", 8), 8_433_664)));
    }

    #[test]
    fn a_link_and_other_descriptors_have_no_size() {
        assert_eq!(
            of_object("link_type:\traw_tracepoint\nlink_id:\t3\nprog_tag:\tab\nprog_id:\t9\n"),
            None
        );
        assert_eq!(of_object("pos:\t0\nflags:\t0100002\nmnt_id:\t24\n"), None);
    }
}
