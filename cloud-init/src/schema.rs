//! The keys of cloud-config that cloud-init knows, with what they may hold: `schema.txt`, read once.

use std::sync::OnceLock;

use crate::version::Version;

/// Types a value may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// Text.
    pub text: bool,
    /// A whole number.
    pub int: bool,
    /// Any number.
    pub num: bool,
    /// True or false.
    pub bool: bool,
    /// Nothing.
    pub null: bool,
    /// A list.
    pub list: bool,
    /// A mapping of the keys listed.
    pub map: bool,
    /// A mapping of any keys.
    pub open: bool,
}

/// What is known of one key, or of the items of a list.
#[derive(Debug, Default)]
pub struct Key {
    /// What it may hold; all false: anything.
    pub types: Types,
    /// The only values, where they are listed.
    pub values: Vec<&'static str>,
    /// First release whose schema has it, where that is later than 22.2.
    pub since: Option<Version>,
    /// Last release whose schema has it.
    pub until: Option<Version>,
    /// Release that deprecated it.
    pub deprecated: Option<Version>,
    /// Keys below it, by name and in its order; `[]` for items, `*` for any.
    children: Vec<(&'static str, Key)>,
    /// Letters of each of them ([`letters`]), in the same order.
    letters: Vec<u64>,
}

impl Key {
    /// The key `name` below this one, or the one that stands for any.
    pub fn child(&self, name: &str) -> Option<&Key> {
        let find = |wanted: &str| {
            let at = self.children.binary_search_by_key(&wanted, |(name, _)| *name).ok()?;
            self.children.get(at).map(|(_, key)| key)
        };
        find(name).or_else(|| find("*"))
    }

    /// What the items of the list must be.
    pub fn items(&self) -> Option<&Key> {
        self.children.iter().find(|(name, _)| *name == "[]").map(|(_, key)| key)
    }

    /// Names of the keys below this one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.children.iter().map(|(name, _)| *name).filter(|name| !matches!(*name, "[]" | "*"))
    }

    /// The same, of those that `most` changes of letters can make of `name`; others may be among them.
    pub fn names_like(&self, name: &str, most: u32) -> impl Iterator<Item = &'static str> {
        let wanted = letters(name);
        let near = self.children.iter().zip(&self.letters);
        // A change puts one letter in the place of another.
        near.filter(move |(_, letters)| (**letters ^ wanted).count_ones() <= 2 * most)
            .map(|((name, _), _)| *name)
            .filter(|name| !matches!(*name, "[]" | "*"))
    }

    fn in_order(&mut self) {
        self.children.sort_by_key(|(name, _)| *name);
        self.letters = self.children.iter().map(|(name, _)| letters(name)).collect();
        self.children.iter_mut().for_each(|(_, key)| key.in_order());
    }

    /// Anything may stand here.
    pub fn is_any(&self) -> bool {
        self.types == Types::default()
    }

    fn at(&mut self, path: &'static str) -> &mut Key {
        let mut key = self;
        for part in path.split('.') {
            let name = part.trim_end_matches("[]");
            let depth = (part.len() - name.len()) / 2;
            for step in std::iter::once(name).chain(std::iter::repeat_n("[]", depth)) {
                let at = key.children.iter().position(|(n, _)| *n == step).unwrap_or_else(|| {
                    key.children.push((step, Key::default()));
                    key.children.len() - 1
                });
                key = &mut key.children[at].1;
            }
        }
        key
    }
}

/// A bit for each letter and digit that stands in `name`, whatever its case; dashes and underlines have none.
fn letters(name: &str) -> u64 {
    let bit = |byte: u8| match byte.to_ascii_lowercase() {
        letter @ b'a'..=b'z' => 1 << (letter - b'a'),
        digit @ b'0'..=b'9' => 1 << (26 + digit - b'0'),
        b'-' | b'_' => 0,
        _ => 1 << 36,
    };
    name.bytes().fold(0, |bits, byte| bits | bit(byte))
}

/// The root: its keys are the top-level keys of a cloud-config.
pub fn root() -> &'static Key {
    static ROOT: OnceLock<Key> = OnceLock::new();
    ROOT.get_or_init(|| {
        let mut root = Key { types: Types { map: true, ..Types::default() }, ..Key::default() };
        include_str!("../schema.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .for_each(|line| add(&mut root, line));
        root.in_order();
        root
    })
}

fn add(root: &mut Key, line: &'static str) {
    let mut words = line.split(' ');
    let (Some(path), Some(types)) = (words.next(), words.next()) else { return };
    let key = root.at(path);
    let (types, values) = types.split_once('=').unwrap_or((types, ""));
    key.values = values.split(',').filter(|value| !value.is_empty()).collect();
    for word in types.split('|') {
        match word {
            "text" => key.types.text = true,
            "int" => key.types.int = true,
            "num" => key.types.num = true,
            "bool" => key.types.bool = true,
            "null" => key.types.null = true,
            "list" => key.types.list = true,
            "map" => key.types.map = true,
            "open" => key.types.open = true,
            _ => {}
        }
    }
    for word in words {
        let Some((name, version)) = word.split_once('=') else { continue };
        let version = version.parse().ok();
        match name {
            "since" => key.since = version,
            "until" => key.until = version,
            "deprecated" => key.deprecated = version,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let words = ["text", "int", "num", "bool", "null", "list", "map", "open", "any"];
        for line in include_str!("../schema.txt").lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split(' ');
            let path = parts.next().unwrap();
            let types = parts.next().unwrap().split('=').next().unwrap();
            assert!(types.split('|').all(|word| words.contains(&word)), "{line}");
            for part in parts {
                let (name, version) = part.split_once('=').unwrap();
                assert!(["since", "until", "deprecated"].contains(&name), "{line}");
                assert!(version.parse::<Version>().is_ok(), "{line}");
            }
            assert!(!path.is_empty() && path == path.trim(), "{line}");
        }
        let files = root().child("write_files").unwrap().items().unwrap();
        assert!(files.types.map && files.child("content").unwrap().types.text);
        assert_eq!(files.child("source").unwrap().since, Some(Version::new(24, 3, 0)));
        assert!(root().child("runcmd").unwrap().items().unwrap().items().unwrap().types.text);
        assert!(
            root()
                .child("apt")
                .unwrap()
                .child("sources")
                .unwrap()
                .child("mine")
                .unwrap()
                .child("key")
                .is_some()
        );
        assert!(root().child("networks").is_none() && root().names().count() > 90);
    }
}
