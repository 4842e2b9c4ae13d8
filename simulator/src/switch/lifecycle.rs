//! Reboot, backup, restore and replacement of a switch, and the persistence of its configuration.

use std::sync::{Arc, PoisonError};

use russh::keys::ssh_key::{self, LineEnding};
use russh::keys::{Algorithm, PrivateKey};

use super::{Boot, NoSuchBackup, Switch};
use crate::datastores::Name;

impl Switch {
    /// Reboots: drops sessions, candidate and locks, and rolls an unconfirmed commit back.
    pub fn reboot(&self, boot: Boot) {
        let mut state = self.state();
        state.cut_all();
        let origin = state.origin(None);
        let before = state.stores.running().clone();
        if state.stores.is_pending() {
            state.stats.rolled_back += 1;
        }
        let running = match boot {
            Boot::Factory => self.factory.clone(),
            Boot::Saved if self.capabilities.startup => {
                state.stores.startup().unwrap_or(&self.factory).clone()
            }
            Boot::Saved => state.stores.durable().clone(),
        };
        state.stores.reboot(running);
        self.settle(&mut state, &before, &origin);
    }

    /// Saves the running configuration under a name.
    pub fn back_up(&self, name: &str) {
        let mut state = self.state();
        let running = state.stores.running().clone();
        state.backups.insert(name.to_owned(), running);
    }

    /// Restores a saved configuration to running and startup, with or without a reboot.
    pub fn restore(&self, name: &str, reboot: bool) -> Result<(), NoSuchBackup> {
        let mut state = self.state();
        let config = state.backups.get(name).ok_or_else(|| NoSuchBackup(name.to_owned()))?.clone();
        let before = state.stores.running().clone();
        let origin = state.origin(None);
        if self.capabilities.startup {
            state.stores.put(Name::Startup, config.clone(), None);
        }
        if reboot {
            state.cut_all();
            state.stores.reboot(config);
        } else {
            state.stores.put(Name::Running, config, None);
        }
        self.settle(&mut state, &before, &origin);
        Ok(())
    }

    /// Replaces the switch by a device with the factory configuration at the same address. With `new_host_key`, it
    /// generates a host key and returns its OpenSSH public key line.
    pub fn replace(&self, new_host_key: bool) -> Result<Option<String>, ssh_key::Error> {
        let mut line = None;
        if new_host_key {
            let key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519)?;
            line = Some(key.public_key().to_openssh()?);
            if let Some(directory) = &self.directory {
                let text = key.to_openssh(LineEnding::LF)?;
                if let Err(error) = crate::files::replace(&directory.join("host_key"), text.as_bytes()) {
                    tracing::warn!(switch = self.name, %error, "host key not saved");
                }
            }
            *self.new_host_key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        }
        {
            let mut state = self.state();
            state.backups.clear();
            if self.capabilities.startup {
                let factory = self.factory.clone();
                state.stores.put(Name::Startup, factory, None);
            }
        }
        self.reboot(Boot::Factory);
        Ok(line)
    }

    /// The host key that [`Self::replace`] generated.
    pub fn new_host_key(&self) -> Option<PrivateKey> {
        self.new_host_key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Persists changes until the shutdown, at most once per pause. Does nothing without a directory.
    pub async fn keep_saved(self: Arc<Self>) {
        const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
        while self.directory.is_some() {
            let stopped = tokio::select! {
                () = self.unsaved.notified() => false,
                () = self.shutdown.cancelled() => true,
            };
            self.save();
            if stopped {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.shutdown.cancelled() => {}
            }
        }
    }

    fn save(&self) {
        let Some(directory) = &self.directory else { return };
        let (running, startup) = {
            let state = self.state();
            (Some(state.stores.durable().clone()), state.stores.startup().cloned())
        };
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        for (now, saved, file) in [(&running, &saved.0, "running.xml"), (&startup, &saved.1, "startup.xml")] {
            if now == saved {
                continue;
            }
            let mut out = String::new();
            if let Some(now) = now {
                now.write(self.dialect.roots, "", &mut out);
            }
            if let Err(error) = crate::files::replace(&directory.join(file), out.as_bytes()) {
                tracing::warn!(switch = self.name, file, %error, "configuration not saved");
            }
        }
        *saved = (running, startup);
    }
}
