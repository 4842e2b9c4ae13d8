//! Reboot, backup, restore and replacement of a switch, and the persistence of its configuration.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use russh::keys::ssh_key::{self, LineEnding};
use russh::keys::{Algorithm, PrivateKey};

use super::{Boot, NoSuchBackup, Switch};
use crate::datastores::Datastore;

impl Switch {
    /// Reboots: drops sessions, candidate and locks, and rolls an unconfirmed commit back.
    pub fn reboot(&self, boot: Boot) {
        let mut state = self.state();
        state.disconnect_all();
        let origin = state.origin(None);
        let before = state.datastores.running().clone();
        if state.datastores.is_pending() {
            state.stats.rolled_back += 1;
        }
        let running = match boot {
            Boot::Factory => self.factory.clone(),
            Boot::Saved if self.capabilities.startup => {
                state.datastores.startup().unwrap_or(&self.factory).clone()
            }
            Boot::Saved => state.datastores.confirmed_running().clone(),
        };
        state.datastores.reboot(running);
        self.boots.fetch_add(1, Ordering::Relaxed);
        if self.dialect.bgp.is_some_and(|bgp| !(bgp.instances)(&before).is_empty()) {
            // The data plane starts BGP again.
            self.increment_versions();
        }
        self.publish_changes(&mut state, &before, &origin);
    }

    /// Saves the running configuration under a name.
    pub fn back_up(&self, name: &str) {
        let mut state = self.state();
        let running = state.datastores.running().clone();
        state.backups.insert(name.to_owned(), running);
    }

    /// Restores a saved configuration to running and startup, with or without a reboot.
    pub fn restore(&self, name: &str, reboot: bool) -> Result<(), NoSuchBackup> {
        let mut state = self.state();
        let config = state.backups.get(name).ok_or_else(|| NoSuchBackup(name.to_owned()))?.clone();
        let before = state.datastores.running().clone();
        let origin = state.origin(None);
        if self.capabilities.startup {
            state.datastores.set(Datastore::Startup, config.clone(), None);
        }
        if reboot {
            state.disconnect_all();
            state.datastores.reboot(config);
        } else {
            state.datastores.set(Datastore::Running, config, None);
        }
        self.publish_changes(&mut state, &before, &origin);
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
                state.datastores.set(Datastore::Startup, factory, None);
            }
        }
        self.reboot(Boot::Factory);
        Ok(line)
    }

    /// The host key that [`Self::replace`] generated.
    pub fn new_host_key(&self) -> Option<PrivateKey> {
        self.new_host_key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Persists changes until the shutdown, with a pause after each time. Does nothing without a directory.
    pub async fn run_persistence(self: Arc<Self>) {
        const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
        /// The pause is this many times as long as the saving: a large configuration costs as little as a small one.
        const PAUSE_FACTOR: u32 = 1000;
        while self.directory.is_some() {
            let stopped = tokio::select! {
                () = self.save_requested.notified() => false,
                () = self.shutdown.cancelled() => true,
            };
            let started = Instant::now();
            self.save();
            let pause = (started.elapsed() * PAUSE_FACTOR).clamp(PAUSES[0], PAUSES[1]);
            if stopped {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shutdown.cancelled() => {}
            }
        }
    }

    fn save(&self) {
        let Some(directory) = &self.directory else { return };
        let (running, startup) = {
            let state = self.state();
            (Some(state.datastores.confirmed_running().clone()), state.datastores.startup().cloned())
        };
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        for (now, saved, file) in [(&running, &saved.0, "running.xml"), (&startup, &saved.1, "startup.xml")] {
            if now == saved {
                continue;
            }
            let mut out = String::new();
            if let Some(now) = now {
                now.write_xml(self.dialect.roots, "", &mut out);
            }
            if let Err(error) = crate::files::replace(&directory.join(file), out.as_bytes()) {
                tracing::warn!(switch = self.name, file, %error, "configuration not saved");
            }
        }
        *saved = (running, startup);
    }
}
