//! Does Harvester vouch for a machine that shows a pool token? A pure rule over what it shows.
//!
//! The token lies in userdata, so that whoever reads it could ask under any name. What it cannot make is a virtual machine at
//! Harvester with its own MAC or system UUID that nobody is yet. Exactly one that runs has to be there, of the name asked for
//! and of the cluster it would be counted in; a name alone is never enough, and what cannot be read vouches for nobody.

use outrider_protocol::Identity;
use outrider_sync::harvester::{same_uuid, usable_mac};

/// Whoever sees virtual machines from outside.
pub trait Witness: std::fmt::Debug + Send + Sync {
    /// The virtual machines with a MAC or the system UUID of this identity; why that is not known, in words.
    fn machines_of(&self, identity: &Identity) -> Result<Vec<SeenVm>, String>;
}

/// A virtual machine as it is seen from outside. Empty means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenVm {
    /// `namespace/name` at Harvester.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Guest cluster.
    pub cluster: String,
    /// Hardware addresses of its network cards.
    pub macs: Vec<String>,
    /// System UUID.
    pub system_uuid: String,
    /// Whether it runs and is not being ended.
    pub is_running: bool,
}

/// What a machine asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// The name it asks for.
    pub name: &'a str,
    /// The cluster it would be counted in; empty for none.
    pub cluster: &'a str,
    /// Its marks.
    pub identity: &'a Identity,
}

/// Whether a machine and a VM share a mark: a MAC, or the system UUID.
pub fn shares_mark(identity: &Identity, vm: &SeenVm) -> bool {
    shares_mac(identity, vm) == Some(true) || same_uuid(&identity.system_uuid, &vm.system_uuid) == Some(true)
}

/// Whether they have a MAC in common; `None` where one of them has none that tells machines apart.
fn shares_mac(identity: &Identity, vm: &SeenVm) -> Option<bool> {
    let usable = |macs: &[String]| macs.iter().filter_map(|mac| usable_mac(mac)).collect::<Vec<String>>();
    let (mine, its) = (usable(&identity.macs), usable(&vm.macs));
    (!mine.is_empty() && !its.is_empty()).then(|| mine.iter().any(|mac| its.contains(mac)))
}

/// The VM that vouches for who asks, by its key; otherwise what is missing. `claimed` names the living node, other than who
/// asks, that has a mark of a VM.
pub fn vouch(
    asks: Asks<'_>,
    seen: Result<&[SeenVm], &str>,
    claimed: impl Fn(&SeenVm) -> Option<String>,
) -> Result<String, String> {
    let Asks { name, cluster, identity } = asks;
    let seen = seen.map_err(|why| format!("Harvester cannot be asked for it: {why}"))?;
    let mut of: Vec<&SeenVm> = seen.iter().filter(|vm| shares_mark(identity, vm)).collect();
    of.sort_by(|a, b| a.key.cmp(&b.key));
    let vm = match of.as_slice() {
        [vm] => *vm,
        [] => return Err("no virtual machine at Harvester has one of its MACs or its system UUID".to_owned()),
        [a, b, ..] => {
            let (n, a, b) = (of.len(), &a.key, &b.key);
            return Err(format!(
                "{n} virtual machines at Harvester have its MAC or system UUID, such as {a} and {b}"
            ));
        }
    };
    let key = &vm.key;
    if shares_mac(identity, vm) == Some(false) {
        return Err(format!("machine {key} at Harvester has its system UUID and other MACs"));
    }
    if same_uuid(&identity.system_uuid, &vm.system_uuid) == Some(false) {
        return Err(format!("machine {key} at Harvester has its MAC and another system UUID"));
    }
    if !vm.is_running {
        return Err(format!("machine {key} does not run by Harvester's word"));
    }
    if !vm.name.eq_ignore_ascii_case(name) {
        return Err(format!("its machine at Harvester is {key}, of another name"));
    }
    if vm.cluster != cluster {
        let of = |cluster: &str| if cluster.is_empty() { "none".to_owned() } else { cluster.to_owned() };
        let (its, wanted) = (of(&vm.cluster), of(cluster));
        return Err(format!("machine {key} is of guest cluster {its}, and it would be counted in {wanted}"));
    }
    match claimed(vm) {
        Some(node) => Err(format!("machine {key} is node {node} already, which lives")),
        None => Ok(key.clone()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";
    const MAC: &str = "52:54:00:00:00:01";

    fn vm() -> SeenVm {
        SeenVm {
            key: "prod/n1".to_owned(),
            name: "n1".to_owned(),
            cluster: "prod".to_owned(),
            macs: vec![MAC.to_owned()],
            system_uuid: UUID.to_owned(),
            is_running: true,
        }
    }

    fn identity(mac: &str, uuid: &str) -> Identity {
        let macs = if mac.is_empty() { vec![] } else { vec![mac.to_owned()] };
        Identity { macs, system_uuid: uuid.to_owned(), ..Identity::default() }
    }

    fn asked(
        identity: &Identity,
        seen: Result<&[SeenVm], &str>,
        claimed: Option<&str>,
    ) -> Result<String, String> {
        vouch(Asks { name: "n1", cluster: "prod", identity }, seen, |_| claimed.map(str::to_owned))
    }

    #[test]
    fn what_is_missing_is_said() {
        let me = identity(MAC, UUID);
        let ok = |of: Result<String, String>| assert_eq!(of.unwrap(), "prod/n1");
        ok(asked(&me, Ok(&[vm()]), None));
        ok(asked(&identity(MAC, ""), Ok(&[vm()]), None));
        ok(asked(&identity("", UUID), Ok(&[vm()]), None));
        // The byte order in which old SMBIOS tells it.
        ok(asked(&identity("", "a97c305d-efb3-8c42-8861-06e72d69f223"), Ok(&[vm()]), None));
        let copy = SeenVm { key: "prod/copy".to_owned(), ..vm() };
        let off = SeenVm { is_running: false, ..vm() };
        let renamed = SeenVm { name: "n2".to_owned(), ..vm() };
        let others = SeenVm { cluster: "test".to_owned(), ..vm() };
        let nobodys = SeenVm { cluster: String::new(), ..vm() };
        let namesake =
            SeenVm { macs: vec!["52:54:00:00:00:02".to_owned()], system_uuid: String::new(), ..vm() };
        type Seen<'a> = Result<&'a [SeenVm], &'a str>;
        let table: [(Seen<'_>, Option<&str>, &str); 9] = [
            (Err("403"), None, "cannot be asked for it: 403"),
            (Ok(&[]), None, "no virtual machine"),
            (Ok(&[namesake]), None, "no virtual machine"),
            (
                Ok(&[vm(), copy]),
                None,
                "2 virtual machines at Harvester have its MAC or system UUID, such as prod/copy",
            ),
            (Ok(&[off]), None, "does not run"),
            (Ok(&[renamed]), None, "of another name"),
            (Ok(&[others]), None, "guest cluster test, and it would be counted in prod"),
            (Ok(&[nobodys]), None, "guest cluster none"),
            (Ok(&[vm()]), Some("n7"), "is node n7 already"),
        ];
        for (seen, claimed, words) in table {
            let why = asked(&me, seen, claimed).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let why =
            asked(&identity(MAC, "11111111-1111-1111-1111-111111111111"), Ok(&[vm()]), None).unwrap_err();
        assert!(why.contains("another system UUID"), "{why}");
        let why = asked(&identity("52:54:00:00:00:09", UUID), Ok(&[vm()]), None).unwrap_err();
        assert!(why.contains("other MACs"), "{why}");
    }

    prop_compose! {
        fn any_vm()(
            n in 0u8..3, name in 0u8..3, cluster in 0u8..2, mac in 0u8..4, uuid in 0u8..3, is_running in any::<bool>(),
        ) -> SeenVm {
            SeenVm {
                key: format!("prod/{n}"),
                name: format!("n{name}"),
                cluster: if cluster == 0 { "prod".to_owned() } else { String::new() },
                macs: marks(mac).0,
                system_uuid: marks(uuid).1,
                is_running,
            }
        }
    }

    fn marks(n: u8) -> (Vec<String>, String) {
        match n {
            0 => (vec![], String::new()),
            1 => (vec!["EE:EE:EE:EE:EE:EE".to_owned()], "00000000-0000-0000-0000-000000000000".to_owned()),
            n => (vec![format!("52:54:00:00:00:0{n}")], format!("5d307ca9-b3ef-428c-8861-06e72d69f22{n}")),
        }
    }

    proptest! {
        #[test]
        fn nobody_is_vouched_for_without_one_running_machine_that_has_a_mark_of_his_and_is_nobodys(
            vms in prop::collection::vec(any_vm(), 0..4), mac in 0u8..4, uuid in 0u8..3, taken in any::<bool>(),
        ) {
            let me = Identity { macs: marks(mac).0, system_uuid: marks(uuid).1, ..Identity::default() };
            let answer = asked(&me, Ok(&vms), taken.then_some("n9"));
            // Told without the rule's own means: the marks that tell machines apart are those above 1.
            let has = |vm: &&SeenVm| (mac > 1 && vm.macs == me.macs) || (uuid > 1 && vm.system_uuid == me.system_uuid);
            let of: Vec<&SeenVm> = vms.iter().filter(has).collect();
            if let Ok(key) = &answer {
                prop_assert!(of.len() == 1 && !taken, "{:?}", of);
                prop_assert!(of[0].is_running && of[0].name == "n1" && of[0].cluster == "prod" && of[0].key == *key);
            }
            let mut turned = vms.clone();
            turned.reverse();
            prop_assert_eq!(asked(&me, Ok(&turned), taken.then_some("n9")), answer.clone());
            prop_assert!(asked(&me, Err("away"), None).is_err());
            prop_assert!(asked(&Identity::default(), Ok(&vms), None).is_err(), "a name alone");
        }
    }
}
