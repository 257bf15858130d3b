//! gzip as cloud-init unpacks it, with a bound.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;

/// The first bytes of every gzip file.
pub const MARK: &[u8] = b"\x1F\x8B";
/// Most bytes that are unpacked; more is no userdata.
pub const MAX_BYTES: usize = 4 << 20;

/// Why nothing came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is cut, damaged or no gzip at all.
    Broken,
    /// It is more than [`MAX_BYTES`].
    TooLarge,
}

/// What `packed` holds.
pub fn unpack(packed: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX) + 1;
    MultiGzDecoder::new(packed).take(limit).read_to_end(&mut out).map_err(|_| Failure::Broken)?;
    if out.len() > MAX_BYTES { Err(Failure::TooLarge) } else { Ok(out) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use super::*;

    /// `bytes` packed.
    pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn whole_files_within_the_bound() {
        let good = packed(b"#cloud-config\n");
        assert_eq!(unpack(&good).as_deref(), Ok(&b"#cloud-config\n"[..]));
        for cut in 0..good.len() {
            assert_eq!(unpack(&good[..cut]), Err(Failure::Broken), "{cut} bytes");
        }
        let mut damaged = good.clone();
        damaged[good.len() - 6] ^= 1;
        assert_eq!(unpack(&damaged), Err(Failure::Broken));
        assert_eq!(unpack(&packed(&vec![0; MAX_BYTES])).map(|bytes| bytes.len()), Ok(MAX_BYTES));
        assert_eq!(unpack(&packed(&vec![0; MAX_BYTES + 1])), Err(Failure::TooLarge));
        assert_eq!(unpack(&[good.clone(), good].concat()).map(|bytes| bytes.len()), Ok(28), "two members");
    }
}
