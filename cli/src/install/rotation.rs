//! The steps by which keys and certificates are exchanged. Pure: the Secrets alone say which step is next.
//!
//! Each rotation goes from the old to the new in three steps, and every part works before, during and after each:
//!
//! | step | keys of NATS users | certificates |
//! |---|---|---|
//! | [`Step::Add`] | NATS accepts both keys of a user | both authorities are trusted |
//! | [`Step::Use`] | the parts use the new seeds | the new certificate is served |
//! | [`Step::Drop`] | NATS accepts the new keys alone | the new authority alone is trusted |
//!
//! The keys of logins of agents go with the keys of users. Each server knows one pair of them, and the engine answers with
//! both from [`Step::Use`] on.
//!
//! A key of a Secret with `.next.` belongs to a rotation. Without such keys, none is under way. The whole state of a
//! rotation is in one Secret, so that each step is one write. Whether the parts follow is not part of the state: a step
//! that is repeated waits for parts that follow already.

use std::collections::BTreeMap;

use super::render::next_public;
use super::secrets::{
    ANSWERER, CA, CERT, Data, Files, ISSUER, KEY, PEOPLE, SecretError, login_keys, public_login_key,
    system_users, user_key, users,
};

/// The keys of logins of agents.
const LOGIN_KEYS: [&str; 2] = [ISSUER, ANSWERER];

/// The authority of the next certificate, alone.
const NEXT_CA: &str = "ca.next.crt";
/// The next certificate, until it is served.
const NEXT_CERT: &str = "tls.next.crt";
/// The private key of the next certificate, until that is served.
const NEXT_KEY: &str = "tls.next.key";

/// A step of a rotation that may be carried out in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The new is accepted beside the old. Also the first step of a rotation that has not begun.
    Add,
    /// The new is used.
    Use,
    /// The old is no longer accepted.
    Drop,
}

/// The key of a Secret, and the name of a person's file, with a user's second seed.
fn next_seed(user: &str) -> String {
    format!("{user}.next.seed")
}

fn seed(user: &str) -> String {
    format!("{user}.seed")
}

fn public(user: &str) -> String {
    format!("{user}.pub")
}

/// The public key of a seed; `None`: it is no seed.
fn public_of(seed: &[u8]) -> Option<String> {
    let seed = std::str::from_utf8(seed).ok()?.trim();
    Some(nkeys::KeyPair::from_seed(seed).ok()?.public_key())
}

/// The step of the keys, from the Secret `eno-system/eno-nats`. The last step leaves no state: parts follow it before
/// the Secret does.
pub fn keys_step(nats: &Data) -> Step {
    let is_used = !system_users().any(|user| nats.contains_key(&next_seed(user)));
    if is_used && users().any(|user| nats.contains_key(&next_public(user))) { Step::Use } else { Step::Add }
}

/// Gives each user a second key, unless it has one. Seeds of people must be on the admin's disk: `disk` has its files,
/// and the returned ones are to be written there before the Secret is.
pub fn add_keys(nats: &mut Data, disk: &BTreeMap<String, String>) -> Result<Files, SecretError> {
    let mut files = Files::default();
    for user in users() {
        let (next_seed, next_public) = (next_seed(user), next_public(user));
        let is_person = PEOPLE.contains(&user);
        let on_disk = |name: &str| disk.get(name).and_then(|seed| public_of(seed.as_bytes()));
        let existing = if is_person {
            // The file has the final name already if this step was interrupted at its end.
            let accepted = nats.get(&next_public).map(|key| String::from_utf8_lossy(key).into_owned());
            on_disk(&seed(user)).filter(|key| accepted.as_ref() == Some(key)).or_else(|| on_disk(&next_seed))
        } else {
            nats.get(&next_seed).and_then(|seed| public_of(seed))
        };
        let public = if let Some(public) = existing {
            public
        } else {
            let key = user_key()?;
            if is_person {
                files.0.insert(next_seed, key.seed);
            } else {
                nats.insert(next_seed, key.seed.into_bytes());
            }
            key.public
        };
        nats.insert(next_public, public.into_bytes());
    }
    // The engine reads them when it starts to use its own new key.
    if !has_next_login_keys(nats) {
        for (name, key) in LOGIN_KEYS.into_iter().zip(login_keys()?) {
            nats.insert(next_seed(name), key.seed.into_bytes());
        }
    }
    Ok(files)
}

fn has_next_login_keys(nats: &Data) -> bool {
    let is_valid =
        |name: &str| nats.get(&next_seed(name)).is_some_and(|seed| public_login_key(name, seed).is_some());
    LOGIN_KEYS.into_iter().all(is_valid)
}

/// Makes the second keys of logins the first ones. A server knows one pair only, which it reads when it starts. So the
/// engine keeps the old pair, and answers to servers with either.
pub fn use_login_keys(nats: &mut Data) {
    if !has_next_login_keys(nats) {
        return;
    }
    for name in LOGIN_KEYS {
        let Some(new) = nats.remove(&next_seed(name)) else { continue };
        if let Some(key) = public_login_key(name, &new) {
            nats.insert(public(name), key.into_bytes());
        }
        if let Some(old) = nats.insert(seed(name), new) {
            nats.insert(format!("{name}.old.seed"), old);
        }
    }
}

/// Makes the second keys the first ones. NATS accepts both before and after.
pub fn use_keys(nats: &mut Data) {
    for user in users() {
        let Some(new) = nats.get(&next_public(user)).cloned() else { continue };
        if let Some(old) = nats.insert(public(user), new) {
            nats.insert(next_public(user), old);
        }
        if !PEOPLE.contains(&user)
            && let Some(seed_of_new) = nats.remove(&next_seed(user))
        {
            nats.insert(seed(user), seed_of_new);
        }
    }
}

/// Drops the old keys.
pub fn drop_keys(nats: &mut Data) {
    nats.retain(|key, _| !key.contains(".next.") && !key.contains(".old."));
}

/// The files of people's second seeds that are their only ones by now, and their final names.
pub fn final_names(nats: &Data, disk: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let is_current = |user: &&str| {
        let key = disk.get(&next_seed(user)).and_then(|seed| public_of(seed.as_bytes()));
        key.is_some_and(|key| nats.get(&public(user)).is_some_and(|current| *current == key.into_bytes()))
    };
    PEOPLE.into_iter().filter(is_current).map(|user| (next_seed(user), seed(user))).collect()
}

/// The files of people that have the seed which NATS accepts, and those that don't.
pub fn people_files(nats: &Data, disk: &BTreeMap<String, String>) -> (Vec<String>, Vec<String>) {
    PEOPLE.into_iter().map(seed).partition(|file| {
        let key = disk.get(file).and_then(|seed| public_of(seed.as_bytes()));
        let user = file.trim_end_matches(".seed");
        key.is_some_and(|key| nats.get(&public(user)).is_some_and(|current| *current == key.into_bytes()))
    })
}

/// Whether a rotation of these certificates is under way.
pub fn is_rotating(data: &Data) -> bool {
    data.contains_key(NEXT_CA)
}

/// The step of the certificates in a Secret.
pub fn certificate_step(data: &Data) -> Step {
    match data.get(NEXT_CA) {
        Some(next) if data.get(CA) == Some(next) => Step::Drop,
        Some(_) if !data.contains_key(NEXT_CERT) => Step::Use,
        _ => Step::Add,
    }
}

/// Adds the next authority to the trusted ones, unless that was done. `new` makes an authority with a certificate.
pub fn add_certificate(
    data: &mut Data,
    new: impl FnOnce() -> Result<Data, SecretError>,
) -> Result<(), SecretError> {
    if [NEXT_CA, NEXT_CERT, NEXT_KEY].iter().all(|key| data.contains_key(*key)) {
        return Ok(());
    }
    let mut new = new()?;
    for (key, next) in [(CA, NEXT_CA), (CERT, NEXT_CERT), (KEY, NEXT_KEY)] {
        data.insert(next.to_owned(), new.remove(key).unwrap_or_default());
    }
    let mut both = data.get(CA).cloned().unwrap_or_default();
    if both.last().is_some_and(|byte| *byte != b'\n') {
        both.push(b'\n');
    }
    both.extend_from_slice(&data[NEXT_CA]);
    data.insert(CA.to_owned(), both);
    Ok(())
}

/// Makes the next certificate the current one.
pub fn use_certificate(data: &mut Data) {
    for (next, key) in [(NEXT_CERT, CERT), (NEXT_KEY, KEY)] {
        if let Some(value) = data.remove(next) {
            data.insert(key.to_owned(), value);
        }
    }
}

/// Trusts the next authority alone.
pub fn drop_authority(data: &mut Data) {
    if let Some(next) = data.get(NEXT_CA).cloned() {
        data.insert(CA.to_owned(), next);
    }
}

/// Ends a rotation whose last step all parts follow.
pub fn end(data: &mut Data) {
    data.remove(NEXT_CA);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::Values;
    use super::super::secrets::{Secrets, complete, nats_certificate};
    use super::*;

    type Disk = BTreeMap<String, String>;

    fn now() -> Timestamp {
        "2026-11-24T12:00:00Z".parse().expect("a time")
    }

    fn installed() -> (Secrets, Disk) {
        let made = complete(&Secrets::default(), &Values::default(), now()).expect("made");
        (made.secrets, made.files.0)
    }

    /// What `eno install` makes of Secrets, in the middle of a rotation too.
    fn upgraded(secrets: &Secrets) -> Secrets {
        complete(secrets, &Values::default(), now()).expect("completed").secrets
    }

    fn keys(nats: &Data, name: impl Fn(&str) -> String) -> Vec<String> {
        users()
            .filter_map(|user| nats.get(&name(user)))
            .map(|key| String::from_utf8_lossy(key).into())
            .collect()
    }

    /// The keys with which the parts and people log in.
    fn used(secrets: &Secrets, disk: &Disk) -> Vec<String> {
        let of = |user: &str| match disk.get(&seed(user)) {
            Some(seed) => public_of(seed.as_bytes()),
            None => public_of(&secrets.nats[&seed(user)]),
        };
        users().map(|user| of(user).expect("a seed")).collect()
    }

    /// The keys that NATS accepts.
    fn accepted(nats: &Data) -> Vec<String> {
        [keys(nats, public), keys(nats, next_public)].concat()
    }

    fn give_final_names(nats: &Data, disk: &mut Disk) {
        for (from, to) in final_names(nats, disk) {
            let seed = disk.remove(&from).expect("a file");
            disk.insert(to, seed);
        }
    }

    /// The issuers with whose keys an engine that starts can answer.
    fn issuers(nats: &Data) -> Vec<String> {
        let names = ["issuer", "issuer.next", "issuer.old"].map(seed);
        names.iter().filter_map(|name| public_login_key(ISSUER, nats.get(name)?)).collect()
    }

    /// A run of the rotation that is killed after `writes` writes to the cluster or the disk. True: it came to its end.
    /// `server` has the keys that NATS accepts, which must include all used ones at each time. `engine` has the issuers
    /// with whose keys the engine answers, which must include that of each server, also of one that restarts by itself.
    fn rotate(
        secrets: &mut Secrets,
        disk: &mut Disk,
        server: &mut Vec<String>,
        engine: &mut Vec<String>,
        writes: usize,
    ) -> bool {
        let mut left = writes;
        let mut write = || match left.checked_sub(1) {
            Some(fewer) => {
                left = fewer;
                true
            }
            None => false,
        };
        let assert_login = |secrets: &Secrets, disk: &Disk, server: &[String]| {
            for key in used(secrets, disk) {
                assert!(server.contains(&key), "NATS refuses a key that is used");
            }
        };
        let assert_answers = |secrets: &Secrets, engine: &[String]| {
            let issuer = String::from_utf8_lossy(&secrets.nats[&public(ISSUER)]).into_owned();
            assert!(engine.contains(&issuer), "the engine can't answer a server that starts");
        };
        if keys_step(&secrets.nats) == Step::Add {
            let mut nats = secrets.nats.clone();
            let files = add_keys(&mut nats, disk).expect("keys");
            if !write() {
                return false;
            }
            disk.extend(files.0);
            if !write() {
                return false;
            }
            secrets.nats = nats.clone();
            if !write() {
                return false;
            }
            *server = accepted(&secrets.nats);
            assert_login(secrets, disk, server);
            assert_answers(secrets, engine);
            use_keys(&mut nats);
            if !write() {
                return false;
            }
            give_final_names(&nats, disk);
            assert_login(secrets, disk, server);
            if !write() {
                return false;
            }
            secrets.nats = nats;
        }
        give_final_names(&secrets.nats, disk);
        if !write() {
            return false;
        }
        *secrets = upgraded(secrets);
        assert_login(secrets, disk, server);
        assert_answers(secrets, engine);
        // The engine is replaced.
        *engine = issuers(&secrets.nats);
        use_login_keys(&mut secrets.nats);
        if !write() {
            return false;
        }
        assert_answers(secrets, engine);
        let mut nats = secrets.nats.clone();
        drop_keys(&mut nats);
        if !write() {
            return false;
        }
        *server = accepted(&nats);
        assert_login(secrets, disk, server);
        if !write() {
            return false;
        }
        secrets.nats = nats;
        true
    }

    #[test]
    fn keys_are_rotated_from_each_interruption_also_with_an_upgrade_between() {
        // Whether an upgrade is between, and the user that it adds.
        for (has_upgrade, added) in [(false, None), (true, None), (true, Some("driver-neutron."))] {
            let mut interruptions = 0;
            for writes in 0.. {
                let (mut secrets, mut disk) = installed();
                let old = used(&secrets, &disk);
                let old_issuer = secrets.nats[&public(ISSUER)].clone();
                let mut server = accepted(&secrets.nats);
                let mut engine = issuers(&secrets.nats);
                if rotate(&mut secrets, &mut disk, &mut server, &mut engine, writes) {
                    break;
                }
                interruptions += 1;
                if let Some(added) = added {
                    secrets.nats.retain(|key, _| !key.starts_with(added));
                }
                if has_upgrade {
                    let before = secrets.nats.clone();
                    secrets = upgraded(&secrets);
                    let is_kept = before.iter().all(|(key, value)| secrets.nats.get(key) == Some(value));
                    assert!(is_kept, "after {writes} writes: an upgrade changes no key");
                    server = accepted(&secrets.nats);
                }
                let is_complete = rotate(&mut secrets, &mut disk, &mut server, &mut engine, 99);
                assert!(is_complete, "after {writes} writes");
                assert_ne!(secrets.nats[&public(ISSUER)], old_issuer, "after {writes} writes");
                assert_eq!(issuers(&secrets.nats).len(), 1, "after {writes} writes");
                let new = used(&secrets, &disk);
                assert!(new.iter().all(|key| !old.contains(key)), "after {writes} writes");
                assert_eq!(server, new, "after {writes} writes");
                assert!(!secrets.nats.keys().any(|key| key.contains("next")), "after {writes} writes");
                assert!(!disk.keys().any(|file| file.contains("next")), "after {writes} writes");
                let (here, elsewhere) = people_files(&secrets.nats, &disk);
                assert_eq!((here.len(), elsewhere.len()), (2, 0));
            }
            assert_eq!(interruptions, 9);
        }
    }

    #[test]
    fn another_admin_gets_seeds_of_his_own_or_none() {
        let (mut secrets, mut disk) = installed();
        disk.extend(add_keys(&mut secrets.nats, &disk).expect("keys").0);
        let mut other = Disk::new();
        let mut nats = secrets.nats.clone();
        other.extend(add_keys(&mut nats, &other).expect("keys").0);
        assert_eq!(other.keys().collect::<Vec<_>>(), ["admin.next.seed", "inspect.next.seed"]);
        assert_eq!(nats["engine.next.pub"], secrets.nats["engine.next.pub"]);
        assert_ne!(nats["inspect.next.pub"], secrets.nats["inspect.next.pub"]);
        // The step is over: the seeds are on the first admin's disk.
        use_keys(&mut secrets.nats);
        assert_eq!(people_files(&secrets.nats, &other).0, [""; 0]);
        assert_eq!(people_files(&secrets.nats, &disk).1, ["inspect.seed", "admin.seed"]);
        give_final_names(&secrets.nats, &mut disk);
        assert_eq!(people_files(&secrets.nats, &disk).0, ["inspect.seed", "admin.seed"]);
    }

    #[test]
    fn damaged_second_seed_is_replaced() {
        let (mut secrets, disk) = installed();
        add_keys(&mut secrets.nats, &disk).expect("keys");
        let before = secrets.nats.clone();
        secrets.nats.insert(next_seed("engine"), b"nonsense".to_vec());
        add_keys(&mut secrets.nats, &disk).expect("keys");
        assert_ne!(secrets.nats["engine.next.pub"], before["engine.next.pub"]);
        assert_eq!(secrets.nats["driver-nad.next.pub"], before["driver-nad.next.pub"]);
    }

    #[test]
    fn each_certificate_that_is_served_is_signed_by_a_trusted_authority() {
        let old = nats_certificate(now()).expect("a certificate");
        let new = nats_certificate(now()).expect("a certificate");
        let made = || Ok(new.clone());
        let mut data = old.clone();
        assert_eq!((certificate_step(&data), is_rotating(&data)), (Step::Add, false));
        add_certificate(&mut data, made).expect("added");
        let both = [old[CA].clone(), new[CA].clone()].concat();
        assert_eq!((&data[CA], &data[CERT], &data[KEY]), (&both, &old[CERT], &old[KEY]));
        assert_eq!((certificate_step(&data), is_rotating(&data)), (Step::Add, true));
        // Repeated, it makes nothing.
        let added = data.clone();
        add_certificate(&mut data, || panic!("a certificate is made again")).expect("kept");
        assert_eq!(data, added);

        use_certificate(&mut data);
        assert_eq!((&data[CA], &data[CERT], &data[KEY]), (&both, &new[CERT], &new[KEY]));
        assert_eq!(certificate_step(&data), Step::Use);

        drop_authority(&mut data);
        assert_eq!((&data[CA], &data[CERT]), (&new[CA], &new[CERT]));
        assert_eq!((certificate_step(&data), is_rotating(&data)), (Step::Drop, true));

        end(&mut data);
        assert_eq!(data, new);
    }

    #[test]
    fn upgrade_keeps_certificates_that_are_rotated() {
        let (mut secrets, _) = installed();
        add_certificate(&mut secrets.tls, || nats_certificate(now())).expect("added");
        for step in [use_certificate, drop_authority, end] {
            let after = upgraded(&secrets);
            assert_eq!((&after.tls, &after.agent_tls[CA]), (&secrets.tls, &secrets.tls[CA]));
            step(&mut secrets.tls);
        }
    }
}
