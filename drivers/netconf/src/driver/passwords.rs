//! The passwords of BGP groups. The driver reads them from Secrets whose owners name the device, as it reads logins, and
//! remembers hashes of what it wrote: no device shows a password. Each process writes each of them once.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use eno_device_secrets::{Hidden, Login, Permit, SecretSource};
use eno_sbi::Reconciled;
use eno_schemas::{Applied, BgpGroup, FabricDesired, FabricVrf, Item, Outcome};

use super::NAME;
use crate::plan::{Password, Passwords};
use crate::ssh::PORT;

/// Maximum bytes of a password. Devices take 80 or less (RFC 2385, section 4.5).
const MAX_BYTES: usize = 80;
/// Stands for a password in a preview.
const MASK: &str = "********";

/// What this process knows of the passwords on a device.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Hashes of those that it has written, by the owner of the group.
    hashes: BTreeMap<String, u64>,
    /// Those that it read last, by the name of the Secret. They count while the API server does not answer.
    texts: BTreeMap<String, Hidden>,
}

/// The passwords of the groups of a command, with their hashes.
pub(super) struct Read {
    pub(super) passwords: Passwords,
    hashes: BTreeMap<String, u64>,
}

/// The groups of a command that have a password, with the names of their Secrets.
fn groups(desired: &FabricDesired) -> impl Iterator<Item = (&FabricVrf, &BgpGroup, &str)> {
    let groups = desired.vrfs.iter().flat_map(|vrf| vrf.bgp.iter().map(move |group| (vrf, group)));
    groups.filter_map(|(vrf, group)| Some((vrf, group, group.password.as_deref()?)))
}

impl Written {
    /// Reads the passwords of a command. `hasher`: that of the process.
    pub(super) async fn read(
        &mut self,
        source: &SecretSource,
        hasher: &RandomState,
        target: &str,
        desired: &FabricDesired,
    ) -> Read {
        let mut read = Read { passwords: Passwords::default(), hashes: BTreeMap::new() };
        if groups(desired).next().is_none() {
            self.texts.clear();
            return read;
        }
        let login = Login::new(NAME, target, &desired.device).default_port(PORT);
        let permit = source.permit(login).await;
        let mut texts: BTreeMap<&str, Result<Hidden, String>> = BTreeMap::new();
        for (vrf, group, secret) in groups(desired) {
            if !texts.contains_key(secret) {
                let text = match &permit {
                    Ok(permit) => password(source, permit, secret).await,
                    Err(error) => {
                        let earlier = self.texts.get(secret).filter(|_| error.is_unavailable()).cloned();
                        earlier.ok_or_else(|| error.to_string())
                    }
                };
                texts.insert(secret, text);
            }
            let text = texts[secret].clone();
            let password = text.map(|text| {
                let hash = hasher.hash_one((&desired.device.address, &vrf.name, text.expose()));
                let is_unwritten = self.hashes.get(&group.owner) != Some(&hash);
                read.hashes.insert(group.owner.clone(), hash);
                Password { text, is_unwritten }
            });
            read.passwords.0.insert(group.owner.clone(), password);
        }
        let known = texts.into_iter().filter_map(|(secret, text)| Some((secret.to_owned(), text.ok()?)));
        self.texts = known.collect();
        read
    }

    /// The passwords of a preview, which shows none of them.
    pub(super) fn masked(&self, desired: &FabricDesired) -> Passwords {
        let masked = |group: &BgpGroup| Password {
            text: MASK.to_owned().into(),
            is_unwritten: !self.hashes.contains_key(&group.owner),
        };
        Passwords(groups(desired).map(|(_, group, _)| (group.owner.clone(), Ok(masked(group)))).collect())
    }

    /// Remembers what is on the device after a reconcile.
    pub(super) fn record(&mut self, desired: &FabricDesired, read: &Read, reconciled: &Reconciled) {
        let (Outcome::Applied, Some(Applied::Fabric { bgp, .. })) =
            (&reconciled.outcome, &reconciled.applied)
        else {
            return;
        };
        let is_there = |vrf: &FabricVrf, group: &BgpGroup| {
            let items = [Item::vrf(&vrf.name), Item::bgp(&vrf.name, &group.owner)];
            bgp.contains_key(&group.owner)
                && !reconciled.rejected.iter().any(|rejection| items.contains(&rejection.item))
        };
        let written = groups(desired).filter(|(vrf, group, _)| is_there(vrf, group));
        let hashes = written.filter_map(|(_, group, _)| read.hashes.get_key_value(&group.owner));
        self.hashes = hashes.map(|(owner, hash)| (owner.clone(), *hash)).collect();
    }
}

/// Reads the password of a Secret.
async fn password(source: &SecretSource, permit: &Permit, secret: &str) -> Result<Hidden, String> {
    let read =
        source.read_for_device(permit, secret, &["password"]).await.map_err(|error| error.to_string())?;
    let text = read.line("password").ok_or_else(|| read.lacks("password").to_string())?;
    if text.expose().len() > MAX_BYTES || text.expose().chars().any(char::is_control) {
        return Err(format!(
            "the password of Secret {secret:?} has control characters, or more than {MAX_BYTES} bytes"
        ));
    }
    Ok(text)
}
