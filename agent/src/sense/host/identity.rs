//! What makes this machine this machine: ids that survive a restart, and ids that do not.

use std::path::Path;

use outrider_protocol::{Fact, UnknownCause};
use ring::hmac;
use serde_json::Value;

use super::super::{SenseContext, file};

/// Our application id for the hashed machine-id. Changing it changes every node's identity.
const APPLICATION_ID: [u8; 16] = *b"\xf1\x65\x2b\x1c\x8a\x0e\x4d\x83\x9b\x57\x60\xc4\x2a\xd9\x31\x7e";

/// Where the UUID lies: `/sys/class/dmi/id` is a link to it, and the root helper follows no links.
pub(crate) const SYSTEM_UUID: &str = "/sys/devices/virtual/dmi/id/product_uuid";

/// UUIDs that boards carry when nobody set one, seen on more than one machine.
const JUNK_UUIDS: [&str; 5] = [
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "11111111-2222-3333-4444-555555555555",
    "fefefefe-fefe-fefe-fefe-fefefefefefe",
];

/// HMAC-SHA256 of our application id, keyed by the machine-id, as machine-id(5) asks for: the raw id never leaves
/// the machine, and no other application's hash can be compared with ours. 64 hex digits.
pub(super) fn machine_id_hash(cx: &SenseContext) -> Fact<String> {
    let path = "/etc/machine-id";
    match file::read_text(&cx.path(path), file::SMALL) {
        Ok(text) => match text.trim() {
            // An image made ready for cloning holds an empty file, and "uninitialized" during the first boot.
            "" | "uninitialized" => Fact::absent(path, cx.now()),
            id => file::parsed(cx, path, hash(id)),
        },
        Err(e) => Fact::from_io(&e, path, cx.now()),
    }
}

fn hash(id: &str) -> Result<String, String> {
    // Never quote the id in an error: it is what must not leave the machine.
    let id = id.as_bytes();
    if id.len() != 32 || !id.iter().all(u8::is_ascii_hexdigit) {
        return Err(format!("not 32 hex digits but {} bytes", id.len()));
    }
    let key: Vec<u8> = id.chunks_exact(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect();
    if key.iter().all(|b| *b == 0) {
        return Err("the machine-id is all zeros".to_owned());
    }
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &APPLICATION_ID);
    Ok(tag.as_ref().iter().map(|b| format!("{b:02x}")).collect())
}

/// The value of an ASCII hex digit.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// SMBIOS system UUID, lower case; a known junk value is absent. Root-only, hence through the opener.
pub(crate) fn system_uuid(cx: &SenseContext) -> Fact<String> {
    let read = cx.opener.open(Path::new(SYSTEM_UUID)).and_then(|f| file::read_bounded(f, file::SMALL));
    match read.and_then(file::text) {
        Ok(text) => match uuid::Uuid::try_parse(text.trim()) {
            Ok(uuid) => {
                let same = |b: u8| uuid.as_bytes().iter().all(|x| *x == b);
                let text = uuid.hyphenated().to_string();
                if same(0) || same(0xff) || JUNK_UUIDS.contains(&text.as_str()) {
                    Fact::absent(format!("{SYSTEM_UUID}: {text} is a value that boards share"), cx.now())
                } else {
                    Fact::known(text, SYSTEM_UUID, cx.now())
                }
            }
            // Firmware writes words such as "Not Settable" there.
            Err(_) if text.trim().starts_with("Not ") => Fact::absent(SYSTEM_UUID, cx.now()),
            Err(_) => {
                let detail = format!("{} is no UUID", file::excerpt(&text));
                Fact::unknown(UnknownCause::InvalidInput, detail, SYSTEM_UUID, cx.now())
            }
        },
        Err(e) => Fact::from_io(&e, SYSTEM_UUID, cx.now()),
    }
}

/// The kernel's boot id. Memory snapshots and clones repeat it.
pub(super) fn boot_id(cx: &SenseContext) -> Fact<String> {
    file::fact(cx, "/proc/sys/kernel/random/boot_id", file::SMALL, |text| {
        let id = uuid::Uuid::try_parse(text.trim());
        id.map(|id| id.hyphenated().to_string()).map_err(|_| format!("{} is no UUID", file::excerpt(text)))
    })
}

/// cloud-init's instance id: of this boot's instance data, else of the last boot's record.
pub(super) fn instance_id(cx: &SenseContext) -> Fact<String> {
    let data = file::fact(cx, "/run/cloud-init/instance-data.json", file::LARGE, |text| {
        let document: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        // The key of the standardized part; older versions wrote it with a hyphen as well.
        let v1 = document.get("v1");
        let id =
            v1.and_then(|v| v.get("instance_id").or_else(|| v.get("instance-id"))).and_then(Value::as_str);
        id.filter(|id| !id.is_empty()).map(str::to_owned).ok_or_else(|| "no v1.instance_id".to_owned())
    });
    match data {
        Fact::Known { .. } => data,
        _ => match super::word(cx, "/var/lib/cloud/data/instance-id") {
            // cloud-init's own word for "none yet".
            Fact::Known { value, source, at } if value == "NO_PREVIOUS_INSTANCE_ID" => {
                Fact::absent(source, at)
            }
            Fact::Absent { .. } => data,
            id => id,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    const ID: &str = "8f7c9d0e1a2b3c4d5e6f708192a3b4c5";

    fn hash_of(text: &str) -> Fact<String> {
        let machine = Machine::new();
        machine.write("/etc/machine-id", text);
        machine_id_hash(&machine.cx())
    }

    #[test]
    fn the_hash_is_stable_and_tells_nothing_of_the_id() {
        let fact = hash_of(&format!("{ID}\n"));
        let hash = fact.value().unwrap();
        // As openssl computes it.
        assert_eq!(hash, "6359e801ba1ab808613cbd6ce40e0d73beff808433444b2741e0e7a3ee5d0eb2");
        assert_eq!(Some(hash), hash_of(&ID.to_uppercase()).value());
        assert!(!hash.contains(&ID[..8]));
    }

    #[test]
    fn an_image_ready_for_cloning_has_no_id() {
        for text in ["", "\n", "uninitialized\n"] {
            assert!(matches!(hash_of(text), Fact::Absent { .. }), "{text:?}");
        }
    }

    #[test]
    fn a_broken_id_is_unknown_and_never_quoted() {
        for text in
            [&ID[..31], &ID.replace('f', "g"), "00000000000000000000000000000000", "ééééééééééééééééééé"]
        {
            let Fact::Unknown { detail, .. } = hash_of(text) else { panic!("{text:?} is no machine-id") };
            assert!(!detail.contains(text), "{detail}");
        }
    }

    fn uuid_of(text: &[u8]) -> Fact<String> {
        let machine = Machine::new();
        machine.write_bytes(SYSTEM_UUID, text);
        system_uuid(&machine.cx())
    }

    #[test]
    fn system_uuids_are_lower_case_and_junk_is_absent() {
        let fact = uuid_of(b"5E1B9E5C-7A0D-5DF2-8B0C-0A6F1C2D3E4F\n");
        assert_eq!(fact.value().map(String::as_str), Some("5e1b9e5c-7a0d-5df2-8b0c-0a6f1c2d3e4f"));
        for junk in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
            "Not Settable",
        ] {
            assert!(matches!(uuid_of(junk.as_bytes()), Fact::Absent { .. }), "{junk}");
        }
        for broken in [&b"5e1b9e5c"[..], b"\xff\xfe", b""] {
            assert!(matches!(uuid_of(broken), Fact::Unknown { .. }), "{broken:?}");
        }
        assert!(matches!(system_uuid(&Machine::new().cx()), Fact::Absent { .. }));
    }

    #[test]
    fn the_instance_id_of_this_boot_wins() {
        let machine = Machine::new();
        assert!(matches!(instance_id(&machine.cx()), Fact::Absent { .. }));
        machine.write("/var/lib/cloud/data/instance-id", "i-old\n");
        assert_eq!(instance_id(&machine.cx()).value().map(String::as_str), Some("i-old"));
        machine.write("/run/cloud-init/instance-data.json", r#"{"v1":{"instance_id":"i-new"}}"#);
        assert_eq!(instance_id(&machine.cx()).value().map(String::as_str), Some("i-new"));
        machine.write("/run/cloud-init/instance-data.json", r#"{"v1":{"insta"#);
        assert_eq!(instance_id(&machine.cx()).value().map(String::as_str), Some("i-old"));
    }
}
