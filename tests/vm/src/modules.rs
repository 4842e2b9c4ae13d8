//! Kernel modules: selection and load order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The modules that the tests need, if they are not built in.
pub const WANTED: [&str; 23] = [
    "8021q",
    "bonding",
    "bridge",
    "cls_bpf",
    "dummy",
    "geneve",
    "ip6_gre",
    "ip6_tunnel",
    "ip_gre",
    "ipip",
    "ipvlan",
    "macvlan",
    "macvtap",
    "nf_tables",
    "nft_chain_nat",
    "nft_ct",
    "openvswitch",
    "sch_ingress",
    "sit",
    "tun",
    "veth",
    "vrf",
    "vxlan",
];

/// The module files below a folder, by module name.
pub fn find(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ko") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
                found.insert(name, path);
            }
        }
    }
    Ok(found)
}

/// The wanted modules and their dependencies, in load order. `depends` returns a module's dependencies.
pub fn in_order(
    wanted: &[&str],
    mut depends: impl FnMut(&str) -> Result<Vec<String>>,
) -> Result<Vec<String>> {
    fn visit(
        name: &str,
        depends: &mut impl FnMut(&str) -> Result<Vec<String>>,
        visiting: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<()> {
        if order.iter().any(|done| done == name) {
            return Ok(());
        }
        if !visiting.insert(name.to_owned()) {
            bail!("module {name} depends on itself");
        }
        for dependency in depends(name).with_context(|| format!("module {name}"))? {
            visit(&dependency, depends, visiting, order)?;
        }
        order.push(name.to_owned());
        Ok(())
    }
    let (mut visiting, mut order) = (BTreeSet::new(), Vec::new());
    for name in wanted {
        visit(name, &mut depends, &mut visiting, &mut order)?;
    }
    Ok(order)
}

/// The dependencies of a module: the text `depends=a,b` of its `.modinfo`.
pub fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(begin) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[begin + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_load_after_their_dependencies() {
        let depends = |name: &str| -> Result<Vec<String>> {
            Ok(match name {
                "bridge" => vec!["stp".into(), "llc".into()],
                "stp" => vec!["llc".into()],
                "llc" | "dummy" => Vec::new(),
                other => bail!("no {other}"),
            })
        };
        assert_eq!(
            in_order(&["dummy", "bridge", "stp"], depends).unwrap(),
            ["dummy", "llc", "stp", "bridge"]
        );
        let error = in_order(&["vrf"], depends).unwrap_err();
        assert_eq!(format!("{error:#}"), "module vrf: no vrf");
        assert!(in_order(&["a"], |_| Ok(vec!["a".into()])).is_err());
    }

    #[test]
    fn module_dependencies_are_parsed() {
        assert_eq!(dependencies(b"\x7fELF\0license=GPL\0depends=nf-nat,stp\0name=x\0"), ["nf_nat", "stp"]);
        assert!(dependencies(b"\x7fELF\0depends=\0").is_empty());
        assert!(dependencies(b"\x7fELF").is_empty());
    }
}
