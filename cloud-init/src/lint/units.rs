//! systemd units that a userdata writes: an order that makes them and cloud-init wait for each other
//! (`facts/packaging.md`, section 1; J1 to J3).

use std::collections::{BTreeMap, BTreeSet};

use super::content;
use crate::Finding;
use crate::yaml::Node;

/// What a unit written by `write_files` says, drop-ins included.
#[derive(Debug, Default)]
pub(super) struct Unit {
    after: BTreeSet<String>,
    before: BTreeSet<String>,
    wants: BTreeSet<String>,
    wanted_by: BTreeSet<String>,
    oneshot: bool,
    waits_for_cloud_init: bool,
    place: Option<Node>,
}

/// Units by name.
pub(super) type Units = BTreeMap<String, Unit>;

const FOLDERS: [&str; 4] =
    ["/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/", "/run/systemd/system/"];
const SUFFIXES: [&str; 7] = [".service", ".timer", ".socket", ".path", ".target", ".mount", ".device"];

/// What is not reached before cloud-init's last stage has ended, which runs `runcmd`.
pub(super) fn comes_after_runcmd(unit: &str) -> bool {
    matches!(
        unit,
        "cloud-final.service"
            | "cloud-init.target"
            | "multi-user.target"
            | "graphical.target"
            | "default.target"
    )
}

/// `name` with the suffix that systemctl adds.
pub(super) fn full_name(name: &str) -> String {
    if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

/// Every unit that `root` writes.
pub(super) fn written(root: &Node) -> Units {
    let mut units = Units::new();
    for file in root.get("write_files").and_then(Node::items).unwrap_or_default() {
        let Some(path) = file.get("path").and_then(Node::text) else { continue };
        let Some(rest) = FOLDERS.iter().find_map(|folder| path.strip_prefix(folder)) else { continue };
        let name = match rest.split_once('/') {
            None => rest,
            Some((folder, file)) if file.ends_with(".conf") => folder.trim_end_matches(".d"),
            Some(_) => continue,
        };
        if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            let unit = units.entry(name.to_owned()).or_default();
            unit.read(&content::of(file).unwrap_or_default());
            unit.place.get_or_insert_with(|| file.clone());
        }
    }
    units
}

/// The unit `name`, or the template it is made of (`a@.service` for `a@b.service`).
pub(super) fn find<'a>(units: &'a Units, name: &str) -> Option<&'a Unit> {
    units.get(name).or_else(|| {
        let (template, rest) = name.split_once('@')?;
        let (_, suffix) = rest.rsplit_once('.')?;
        units.get(&format!("{template}@.{suffix}"))
    })
}

impl Unit {
    fn read(&mut self, text: &str) {
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        for line in joined.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let list = match key.trim() {
                "After" => &mut self.after,
                "Before" => &mut self.before,
                "Wants" | "Requires" | "BindsTo" | "Requisite" => &mut self.wants,
                "WantedBy" | "RequiredBy" => &mut self.wanted_by,
                "Type" => {
                    self.oneshot = value.trim() == "oneshot";
                    continue;
                }
                key if key.starts_with("ExecStart") || key == "ExecCondition" => {
                    let waits = value.contains("cloud-init") && value.contains("--wait");
                    self.waits_for_cloud_init |= waits && (self.oneshot || key != "ExecStart");
                    continue;
                }
                _ => continue,
            };
            // An empty assignment takes back what stood before.
            if value.trim().is_empty() {
                list.clear();
            }
            list.extend(value.split_whitespace().map(str::to_owned));
        }
    }

    /// Why a start of it that is waited for never ends, when `runcmd` waits.
    pub(super) fn never_starts(&self) -> Option<String> {
        if self.waits_for_cloud_init {
            return Some("it waits for cloud-init while it starts".to_owned());
        }
        let late = self.after.iter().find(|unit| comes_after_runcmd(unit))?;
        Some(format!("it is ordered after {late}"))
    }
}

/// What is wrong with the units whoever starts them.
pub(super) fn check(units: &Units, findings: &mut Vec<Finding>) {
    for (name, unit) in units {
        let Some(place) = &unit.place else { continue };
        let targets = ["multi-user.target", "graphical.target", "default.target"];
        if let Some(target) =
            targets.iter().find(|t| unit.after.contains(**t) && unit.wanted_by.contains(**t))
        {
            let message = format!(
                "{name} is ordered after {target} and wanted by it: the target waits for the unit and the unit for the target"
            );
            let cure = format!("delete After={target}");
            findings.push(Finding::error("UnitDeadlock", 0, message, cure).at(place));
        }
        let online = "network-online.target";
        if unit.after.contains(online) && !unit.wants.contains(online) {
            let message = format!(
                "{name} is ordered after {online} and does not want it: where nothing else does, the order means nothing"
            );
            findings
                .push(Finding::warn("OrderWithoutWish", 0, message, format!("add Wants={online}")).at(place));
        }
    }
    if let Some(cycle) = cycle(units) {
        let message = format!(
            "the order of {} is a circle: systemd breaks it by dropping one of them, not always the same",
            cycle.join(" -> ")
        );
        let place = cycle.first().and_then(|name| units.get(name)).and_then(|unit| unit.place.as_ref());
        let finding =
            Finding::error("OrderingCycle", 0, message, "delete one of the After= or Before= lines");
        findings.push(match place {
            Some(place) => finding.at(place),
            None => finding,
        });
    }
}

/// Names of units that wait for each other in a circle, the first one again at the end.
fn cycle(units: &Units) -> Option<Vec<String>> {
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, unit) in units {
        unit.after.iter().for_each(|other| {
            edges.entry(name).or_default().insert(other);
        });
        unit.before.iter().for_each(|other| {
            edges.entry(other).or_default().insert(name);
        });
    }
    let mut done = BTreeSet::new();
    for start in edges.keys().copied() {
        // Depth first, with the way here kept.
        let mut way: Vec<(&str, Vec<&str>)> = Vec::new();
        let next = |node: &str| edges.get(node).map(|set| set.iter().copied().collect()).unwrap_or_default();
        if done.insert(start) {
            way.push((start, next(start)));
        }
        while let Some((_, rest)) = way.last_mut() {
            let Some(node) = rest.pop() else {
                way.pop();
                continue;
            };
            if let Some(at) = way.iter().position(|(name, _)| *name == node) {
                let names = way[at..].iter().map(|(name, _)| (*name).to_owned());
                return Some(names.chain([node.to_owned()]).collect());
            }
            if done.insert(node) {
                way.push((node, next(node)));
            }
        }
    }
    None
}
